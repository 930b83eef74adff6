package functions

import (
	"context"
	"fmt"
	"net/http"
	"reflect"

	"drawbridge/core"
)

// AnyMethod is the method of endpoints that answer all of them.
const AnyMethod = "ANY"

// ScopePublic is the scope of endpoints that need no token. They tell no agent
// ids to callers without one.
const ScopePublic core.Scope = "public"

// An Endpoint is one method and path the hub serves. The registry (Endpoints)
// is the only place that knows them all: routing, authorisation, the OpenAPI
// document and the check of template.yaml walk it.
type Endpoint struct {
	// Name is the function that serves it: the template's Handler. A function
	// may serve several endpoints.
	Name    string
	Method  string // an HTTP method, or AnyMethod
	Path    string
	Scope   core.Scope // the least scope a token needs; ScopePublic: none
	Summary string
	// Creates: an Idempotency-Key header is honoured (compat rule 16).
	Creates bool
	// Finds: what the request names may not be there, which is a 404.
	Finds bool
	// Bare: the answer stands without the envelope (contract 2.20, 2.21).
	Bare bool
	// ConflictStatus answers refusals of the conflict kind, 409 when zero.
	ConflictStatus int
	// NotFoundStatus answers refusals of the not-found kind, 404 when zero.
	NotFoundStatus int

	request  *shape
	response reflect.Type
	serve    func(context.Context, *call, jsonText) (any, error)
	err      error // a mistake in the tags of the request
}

// A call is one request on its way through a handler.
type call struct {
	*App
	endpoint *Endpoint
	request  *request
	caller   *principal // nil on a public endpoint without a valid token
	key      core.Opt[core.IdempotencyKey]

	replayed  bool  // set by the handler: an earlier try had done it
	unhealthy error // set by health: why the hub is not
}

// An actor is a request that acts for agents: a token that is bound to agents
// may only name those (compat rule 17). It returns the ids by the field that
// holds them.
type actor interface{ actingAgents() []actingAgent }

type actingAgent struct{ field, id string }

// serve makes an endpoint of a handler function. Req is a struct with rules in
// its tags (see rule), Res a struct with json tags.
func serve[Req, Res any](e Endpoint, handle func(context.Context, *call, Req) (Res, error)) Endpoint {
	e.request, e.err = shapeOf(reflect.TypeFor[Req]())
	e.response = reflect.TypeFor[Res]()
	request := e.request
	e.serve = func(ctx context.Context, c *call, value jsonText) (any, error) {
		var req Req
		if err := request.decode(value, "", reflect.ValueOf(&req).Elem()); err != nil {
			return nil, err
		}
		if err := c.authoriseActing(req); err != nil {
			return nil, err
		}
		return handle(ctx, c, req)
	}
	return e
}

func (c *call) authoriseActing(req any) error {
	acts, ok := req.(actor)
	if !ok || c.caller == nil {
		return nil
	}
	for _, agent := range acts.actingAgents() {
		if err := c.caller.mayActAs(agent.id, agent.field); err != nil {
			return err
		}
	}
	return nil
}

// readsBody reports whether the endpoint's fields come in a JSON body; else
// they come as query parameters.
func (e *Endpoint) readsBody() bool { return e.Method == http.MethodPost }

// takes reports whether a method reaches the endpoint.
func (e *Endpoint) takes(method string) bool { return e.Method == AnyMethod || e.Method == method }

// run carries the request out once it is authorised.
func (c *call) run(ctx context.Context) (any, error) {
	value, err := c.input()
	if err != nil {
		return nil, err
	}
	return c.endpoint.serve(ctx, c, value)
}

// input returns the object the request's fields are read from.
func (c *call) input() (jsonText, error) {
	if !c.endpoint.readsBody() {
		return c.endpoint.request.query(c.request.query)
	}
	value, err := c.request.readJSON()
	if err != nil {
		return nil, err
	}
	if key, sent := c.request.headers[headerIdempotencyKey]; sent && c.endpoint.Creates {
		c.key = core.Some(core.IdempotencyKey{
			Scope: c.caller.token.Hash + " " + c.endpoint.Path,
			Key:   key,
			Body:  value,
		})
	}
	return value, nil
}

// validate finds mistakes in the registry.
func validate(endpoints []Endpoint) error {
	seen := map[string]bool{}
	for _, e := range endpoints {
		route := e.Method + " " + e.Path
		switch {
		case e.err != nil:
			return fmt.Errorf("endpoint %s: %w", route, e.err)
		case e.Name == "" || e.Scope == "" || e.Summary == "":
			return fmt.Errorf("endpoint %s lacks its name, scope or summary", route)
		case e.Creates && (e.Scope == ScopePublic || !e.readsBody()):
			return fmt.Errorf("endpoint %s creates, so it needs a body and a token, whose the idempotency key is", route)
		case seen[route]:
			return fmt.Errorf("endpoint %s is there twice", route)
		}
		seen[route] = true
	}
	return nil
}
