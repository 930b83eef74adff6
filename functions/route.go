package functions

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"drawbridge/core"
)

// notServed lists what the reference serves and a shared hub does not, because
// it belongs to the user's machine (compat rule 15), by the start of the path,
// with what to use instead.
var notServed = []struct{ prefix, instead string }{
	{"/bridge/team", "use the team files of the machine they are on, or assignments for work across machines"},
	{"/bridge/delegator", "use /bridge/assign/async to hand work to another agent"},
	{"/synapse", "use /bridge/register and /bridge/heartbeat"},
	{"/mcp", "use the /bridge endpoints; /openapi.json describes them"},
	{"/dashboard", "use /bridge/status and /bridge/agents"},
	{"/tray.html", "use /bridge/status and /bridge/agents"},
	{"/public/", "use /bridge/status and /bridge/agents"},
	{"/api/", "use /bridge/status and /bridge/agents"},
}

// route finds the endpoint of a request among those that a function serves.
func route(served []*Endpoint, r *request) *Endpoint {
	for _, e := range served {
		if e.Path == r.path && e.takes(r.method) {
			return e
		}
	}
	return nil
}

// refusal answers what no endpoint takes, in the reference's order: under
// /bridge the method is judged before the path (contract 2.1), and DELETE,
// which the reference lets through the gate, finds no endpoint.
func (a *App) refusal(r *request) reply {
	for _, n := range notServed {
		if strings.HasPrefix(r.path, n.prefix) {
			return refused(nil, core.Refuse(core.CodeNotServed, "this hub does not serve it: "+n.instead))
		}
	}
	methods := a.methodsOf(r.path)
	bridge := strings.HasPrefix(r.path, "/bridge")
	gated := r.method == http.MethodPost || r.method == http.MethodDelete
	if bridge && gated || !bridge && len(methods) == 0 {
		return refused(nil, core.Refuse(core.CodeUnknownEndpoint, "there is no such endpoint"))
	}
	if len(methods) == 0 {
		methods = []string{http.MethodPost}
	}
	answer := refused(nil, core.Refuse(core.CodeMethodNotAllowed, "use "+strings.Join(methods, " or ")))
	answer.headers["allow"] = strings.Join(append(methods, http.MethodOptions), ", ")
	return answer
}

// methodsOf lists the methods a path takes, sorted.
func (a *App) methodsOf(path string) []string {
	methods := map[string]bool{}
	for _, e := range a.endpoints {
		if e.Path == path {
			methods[e.Method] = true
		}
	}
	return slices.Sorted(maps.Keys(methods))
}

// errMisrouted is a request for an endpoint of another function: the routes
// and the functions of the deployment disagree.
func errMisrouted(name string, e *Endpoint) error {
	return fmt.Errorf("function %s got a request for %s %s, which function %s serves", name, e.Method, e.Path, e.Name)
}
