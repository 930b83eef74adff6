// Package functions is the hub's outer side: one handler for each endpoint and
// each sweep, as AWS Lambda functions behind an API Gateway HTTP API.
//
// A request goes through the same stages whatever function it reaches:
//
//	event -> request        headers, correlation id, body limits     request.go
//	      -> CORS preflight  OPTIONS ends here                       cors.go
//	      -> principal       bearer token to record, cached          auth.go
//	      -> endpoint        method and path, exactly as sent        route.go
//	      -> scope           of the token against the endpoint's     app.go
//	      -> fields          JSON or query to a struct, by its tags  decode.go
//	      -> acting agents   of the request against the token's      endpoint.go
//	      -> operation       package core                            presence.go, ...
//	      -> envelope        {"ok":true,"data":...} or the refusal   envelope.go
//	      -> log line        one a request                           logging.go
//
// # Adding an endpoint
//
// In the file of its concept: a request struct whose tags hold the rules (see
// rule), a response struct, and a function
//
//	func enqueue(ctx context.Context, c *call, r enqueueRequest) (enqueueResponse, error)
//
// Then one entry in Endpoints, and its route in template.yaml. Decoding,
// authorisation, the OpenAPI document and the tests over the registry (bad
// input of every field, every kind of wrong token) follow from these. A request
// that acts for agents says which in a method actingAgents.
//
// # Scopes
//
// A token's scopes are ordered: operator contains agent, agent contains read. An
// endpoint declares the least one it needs. Endpoints that are public answer
// without a token, and then tell no agent ids. A revoked token works for at most
// 30 seconds more in a process that has seen it.
//
// # What the hub does not trust
//
// Paths are compared as they were sent and never decoded. Bodies are checked as
// a whole before anything is read out of them: UTF-8, nesting, keys named twice.
// No value of a request is repeated in an error's text, and no token, path,
// payload or id in a log line. A panic is an INTERNAL answer.
package functions
