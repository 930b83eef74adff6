package functions

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"drawbridge/core"
)

// deadlineHeadroom is kept back from the invocation's deadline: when it comes,
// the store's calls are given up and the client gets a retryable 503 instead
// of a cut connection.
const deadlineHeadroom = 500 * time.Millisecond

// Config is what an App is made of. CORSOrigins may be empty; the rest is
// required.
type Config struct {
	Hub     *core.Hub
	Tokens  core.TokenStore
	Clock   core.Clock
	IDs     core.IDs
	Log     *slog.Logger
	Version string // of the build, as health and status tell it
	// CORSOrigins are the exact browser origins that may call besides
	// localhost, such as https://dashboard.example.com.
	CORSOrigins []string
}

// An App is every function of the hub over one set of dependencies. It is safe
// for concurrent use.
type App struct {
	hub       *core.Hub
	auth      *authenticator
	clock     core.Clock
	ids       core.IDs
	log       *slog.Logger
	version   string
	cors      corsPolicy
	endpoints []*Endpoint
	openAPI   json.RawMessage
}

// New returns an App, or what is wrong with the configuration. It makes no
// request.
func New(c Config) (*App, error) {
	if c.Hub == nil || c.Tokens == nil || c.Clock == nil || c.IDs == nil || c.Log == nil || c.Version == "" {
		return nil, fmt.Errorf("functions need a hub, tokens, a clock, ids, a log and a version")
	}
	cors, err := newCORSPolicy(c.CORSOrigins)
	if err != nil {
		return nil, err
	}
	endpoints := Endpoints()
	if err := validate(endpoints); err != nil {
		return nil, err
	}
	document, err := openAPIDocument(endpoints, c.Version)
	if err != nil {
		return nil, err
	}
	app := &App{
		hub: c.Hub, auth: newAuthenticator(c.Tokens, c.Clock), clock: c.Clock, ids: c.IDs, log: c.Log,
		version: c.Version, cors: cors, openAPI: document,
	}
	for i := range endpoints {
		app.endpoints = append(app.endpoints, &endpoints[i])
	}
	return app, nil
}

// HTTPHandler answers an event of an API Gateway HTTP API, payload format 2.0.
// It never returns an error: every failure is an answer.
type HTTPHandler func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error)

// HTTP returns the handler of the function with this name, which serves the
// endpoints of that name and refuses everything else; false when there is no
// such function. DefaultName serves none.
func (a *App) HTTP(name string) (HTTPHandler, bool) {
	var served []*Endpoint
	for _, e := range a.endpoints {
		if e.Name == name {
			served = append(served, e)
		}
	}
	if len(served) == 0 && name != DefaultName {
		return nil, false
	}
	return func(ctx context.Context, event events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		return a.handle(ctx, name, served, event), nil
	}, true
}

func (a *App) handle(ctx context.Context, name string, served []*Endpoint, event events.APIGatewayV2HTTPRequest) events.APIGatewayV2HTTPResponse {
	started := time.Now()
	ctx, spent := withSpend(ctx)
	ctx, cancel := beforeDeadline(ctx)
	defer cancel()
	r := newRequest(event, a.ids)
	answer := a.answer(ctx, name, served, r)
	a.logRequest(ctx, name, r, answer, spent, time.Since(started))
	return answer.event(r, a.cors)
}

// beforeDeadline ends a context early enough to still answer.
func beforeDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(ctx, deadline.Add(-deadlineHeadroom))
	}
	return context.WithCancel(ctx)
}

// answer goes through the stages of a request in the reference's order: CORS
// preflight, authorisation, routing, scope, body, operation.
func (a *App) answer(ctx context.Context, name string, served []*Endpoint, r *request) (answer reply) {
	var e *Endpoint
	defer func() {
		if fault := recover(); fault != nil {
			answer = refused(e, fmt.Errorf("panic: %v\n%s", fault, debug.Stack()))
		}
	}()
	if r.method == http.MethodOptions {
		return a.cors.preflight(r.header(headerOrigin))
	}
	e = route(served, r)
	caller, err := a.admit(ctx, e, r)
	if err != nil {
		return refused(e, err)
	}
	if e == nil {
		return a.unrouted(name, r)
	}
	c := &call{App: a, endpoint: e, request: r, caller: caller}
	data, err := c.run(ctx)
	if err != nil {
		return refused(e, err)
	}
	return answered(e, c, data)
}

// admit authenticates the caller and holds its scope against the endpoint's.
// Authorisation comes before routing: without a token an unknown path is 401.
func (a *App) admit(ctx context.Context, e *Endpoint, r *request) (*principal, error) {
	header := r.header(headerAuthorization)
	if e != nil && e.Scope == ScopePublic {
		if header == "" {
			return nil, nil
		}
		// A token that is wrong, or that cannot be looked up just now, gets what
		// everybody gets: health has to answer when the table does not.
		caller, _ := a.auth.authenticate(ctx, header)
		return caller, nil
	}
	caller, err := a.auth.authenticate(ctx, header)
	if err != nil {
		return nil, err
	}
	if e != nil && !caller.token.Allows(e.Scope) {
		return nil, core.Refuse(core.CodeForbidden, "the token's scope does not contain "+string(e.Scope))
	}
	return caller, nil
}

// unrouted answers an authorised request that no endpoint of the function
// takes.
func (a *App) unrouted(name string, r *request) reply {
	if e := route(a.endpoints, r); e != nil {
		return refused(nil, errMisrouted(name, e))
	}
	return a.refusal(r)
}
