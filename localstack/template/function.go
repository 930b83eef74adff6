package template

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"
)

// A Function is one endpoint or sweep.
type Function struct {
	LogicalID string
	// Handler names the endpoint or sweep of the one binary.
	Handler string
	// Scope is what a caller's token must hold; empty for a sweep.
	Scope       string
	Timeout     time.Duration
	Environment map[string]string
	// Statements are those of the function's role.
	Statements []Statement
	Routes     []Route
	Schedules  []Schedule
}

func (e *evaluator) function(d declaration) Function {
	o := d.properties
	f := Function{
		LogicalID:   d.id,
		Handler:     o.needText("Handler"),
		Timeout:     time.Duration(o.integer("Timeout", 3, 1, 900)) * time.Second,
		Environment: e.environment(o.object("Environment")),
	}
	o.integer("MemorySize", 128, 128, 10240)
	o.oneOf("Runtime", "provided.al2023")
	for i, n := range o.list("Architectures") {
		if a := e.text(n, o.child("Architectures")); i > 0 || a != "arm64" {
			e.failf(n, "%s must be [arm64]", o.child("Architectures"))
		}
	}
	f.Statements = e.statementsOf(o)
	scope, local := e.functionMetadata(d.metadata)
	f.Scope = scope
	e.readEvents(&f, o.object("Events"), local)
	if len(f.Routes) > 0 && f.Scope == "" {
		e.failf(d.body.node, "%s has a route: Metadata.Drawbridge.Scope must state the scope it needs", d.body.path)
	}
	o.ignore(ignoredOfFunction...)
	o.done()
	return f
}

func (e *evaluator) environment(o *object) map[string]string {
	env := map[string]string{}
	vars := o.object("Variables")
	for i := 0; i < len(vars.node.Content); i += 2 {
		key := vars.node.Content[i].Value
		env[key] = vars.text(key)
	}
	o.done()
	return env
}

// functionMetadata reads what the template says about a function for Drawbridge
// alone: the scope of its route and the local period of its schedule.
func (e *evaluator) functionMetadata(o *object) (scope string, local time.Duration) {
	o.oneOf("BuildMethod", "makefile")
	own := o.object("Drawbridge")
	if own.get("Scope") != nil {
		scope = own.oneOf("Scope", "public", "read", "agent", "operator")
	}
	if n := own.get("LocalPeriod"); n != nil {
		d, err := time.ParseDuration(own.text("LocalPeriod"))
		if err != nil || d <= 0 {
			e.failf(n, "%s must be a duration such as 10s", own.child("LocalPeriod"))
		}
		local = d
	}
	own.done()
	o.done()
	return scope, local
}

// texts reads a required text, or a list of texts, as policies allow both.
func (o *object) texts(key string) []string {
	n := o.need(key)
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode || n.Tag != "!!seq" {
		return []string{o.e.text(n, o.child(key))}
	}
	out := make([]string, 0, len(n.Content))
	for i, c := range n.Content {
		out = append(out, o.e.text(c, fmt.Sprintf("%s[%d]", o.child(key), i)))
	}
	return out
}
