// Package gateway is an API Gateway HTTP API on a laptop: it turns an HTTP
// request into the event that AWS would hand to the function behind the route,
// payload format 2.0, and the function's answer into an HTTP response.
//
// A handler must not be able to tell the difference, so the gateway's own limits
// (request line and headers, body, payload, timeouts) and its own refusals, which
// carry {"message": ...} and no envelope, are part of it.
package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/google/uuid"

	"drawbridge/localstack/template"
)

// Limits of an HTTP API and of Lambda, in bytes.
const (
	maxHead    = 10_240
	maxBody    = 10 << 20
	maxPayload = 6 << 20
)

// A Handler is a Lambda function behind a route.
type Handler func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error)

// A Gateway serves the routes of a template. It is an http.Handler.
type Gateway struct {
	routes    map[string]*integration // by template.Route.Key
	stack     template.Stack
	log       *slog.Logger
	now       func() time.Time
	requestID func() string
}

// An integration is a route with the function it leads to.
type integration struct {
	route    template.Route
	function template.Function
	handler  Handler
}

// New makes a gateway for every route of the template. handler gives the function
// of a name; a route whose function does not exist is an error.
func New(t *template.Template, handler func(name string) (Handler, bool), log *slog.Logger) (*Gateway, error) {
	g := &Gateway{
		routes: map[string]*integration{}, stack: t.Stack, log: log,
		now: time.Now, requestID: uuid.NewString,
	}
	for _, f := range t.Functions {
		for _, r := range f.Routes {
			h, ok := handler(f.Handler)
			if !ok {
				return nil, fmt.Errorf("route %s of %s: there is no function %q", r.Key(), f.LogicalID, f.Handler)
			}
			g.routes[r.Key()] = &integration{route: r, function: f, handler: h}
		}
	}
	return g, nil
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status := g.serve(w, r)
	if status != 0 {
		refuse(w, status)
	}
}

// serve answers the request, or returns the status of the gateway's own refusal.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request) int {
	path, ok := rawPath(r)
	if !ok || !supported(r.Method) {
		return http.StatusBadRequest
	}
	if headSize(r) > maxHead {
		return http.StatusRequestHeaderFieldsTooLarge
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return http.StatusRequestEntityTooLarge
		}
		return http.StatusBadRequest
	}
	in := g.match(r.Method, path)
	if in == nil {
		return http.StatusNotFound
	}
	event := g.event(r, path, in.route.Key(), body)
	if payload, err := json.Marshal(event); err != nil || len(payload) > maxPayload {
		return http.StatusRequestEntityTooLarge
	}
	answer, status := g.invoke(r.Context(), in, event)
	if status != 0 {
		return status
	}
	return g.respond(w, event.RequestContext.RequestID, answer)
}

// match finds the route as an HTTP API does: the method and path, any method of
// the path, the default.
func (g *Gateway) match(method, path string) *integration {
	for _, key := range []string{method + " " + path, "ANY " + path, "$default"} {
		if in, ok := g.routes[key]; ok {
			return in
		}
	}
	return nil
}

type result struct {
	answer events.APIGatewayV2HTTPResponse
	err    error
}

// invoke runs the function until it answers, its own timeout ends it (500) or the
// gateway has waited long enough (503). An invocation is not stopped by a client
// that goes away.
func (g *Gateway) invoke(ctx context.Context, in *integration, event events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), in.function.Timeout)
	ctx = lambdacontext.NewContext(ctx, &lambdacontext.LambdaContext{AwsRequestID: g.requestID()})
	done := make(chan result, 1)
	go func() {
		defer cancel()
		defer func() {
			if fault := recover(); fault != nil {
				done <- result{err: fmt.Errorf("panic: %v\n%s", fault, debug.Stack())}
			}
		}()
		answer, err := in.handler(ctx, event)
		done <- result{answer, err}
	}()
	patience := time.NewTimer(in.route.Timeout)
	defer patience.Stop()
	select {
	case r := <-done:
		return g.outcome(in, r)
	case <-ctx.Done():
		select {
		case r := <-done: // it ended by itself: the context ends after the answer
			return g.outcome(in, r)
		default:
		}
		g.log.Error("the function timed out", "function", in.function.LogicalID, "timeout", in.function.Timeout)
		return events.APIGatewayV2HTTPResponse{}, http.StatusInternalServerError
	case <-patience.C:
		g.log.Error("the gateway gave up on the function", "function", in.function.LogicalID, "timeout", in.route.Timeout)
		return events.APIGatewayV2HTTPResponse{}, http.StatusServiceUnavailable
	}
}

func (g *Gateway) outcome(in *integration, r result) (events.APIGatewayV2HTTPResponse, int) {
	if r.err != nil {
		g.log.Error("the function failed", "function", in.function.LogicalID, "error", r.err)
		return r.answer, http.StatusInternalServerError
	}
	return r.answer, 0
}
