package lambda

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/aws/aws-lambda-go/events"

	"drawbridge/localstack/template"
)

// A Pool holds an instance of every function that was invoked. Its methods may be
// called at once.
type Pool struct {
	runtime  Runtime
	template *template.Template

	mu        sync.Mutex
	instances map[string]*Instance // by handler
}

// NewPool makes a pool for the functions of a template. It starts none.
func NewPool(r Runtime, t *template.Template) *Pool {
	return &Pool{runtime: r, template: t, instances: map[string]*Instance{}}
}

// Instance returns the instance of the function with this handler and starts it
// where there is none.
func (p *Pool) Instance(ctx context.Context, handler string) (*Instance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := p.instances[handler]; i != nil {
		return i, nil
	}
	f, ok := p.template.Function(handler)
	if !ok {
		return nil, fmt.Errorf("the template has no function %q", handler)
	}
	i, err := p.runtime.Start(ctx, f)
	if err != nil {
		return nil, err
	}
	p.instances[handler] = i
	return i, nil
}

// Invoke hands an event to the function with this handler.
func (p *Pool) Invoke(ctx context.Context, handler string, event any) (json.RawMessage, error) {
	i, err := p.Instance(ctx, handler)
	if err != nil {
		return nil, err
	}
	return i.Invoke(ctx, event)
}

// HTTP returns the function behind a route; false when the template has none of
// that name.
func (p *Pool) HTTP(handler string) (func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error), bool) {
	_, ok := p.template.Function(handler)
	return func(ctx context.Context, event events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		var response events.APIGatewayV2HTTPResponse
		answer, err := p.Invoke(ctx, handler, event)
		if err != nil {
			return response, err
		}
		if err := json.Unmarshal(answer, &response); err != nil {
			return response, fmt.Errorf("decode the answer of %s: %w", handler, err)
		}
		return response, nil
	}, ok
}

// Kill ends the instance of a function at once, as a crash does. The next
// invocation starts another.
func (p *Pool) Kill(handler string) {
	p.mu.Lock()
	i := p.instances[handler]
	delete(p.instances, handler)
	p.mu.Unlock()
	if i != nil {
		i.Kill()
	}
}

// Close ends every instance.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for handler, i := range p.instances {
		i.Kill()
		delete(p.instances, handler)
	}
}
