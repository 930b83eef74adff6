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
	Statements  []Statement
	Routes      []Route
	Schedules   []Schedule
}

// A Statement is one statement of a function's own policy.
type Statement struct {
	Effect    string
	Actions   []string
	Resources []string
	// Condition is operator, then key, then the values.
	Condition map[string]map[string][]string
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
	for i, n := range o.list("Policies") {
		f.Statements = append(f.Statements, e.policy(n, fmt.Sprintf("%s[%d]", o.child("Policies"), i))...)
	}
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

func (e *evaluator) policy(n *yaml.Node, path string) []Statement {
	if n.Kind == yaml.ScalarNode {
		e.failf(n, "%s: managed policies are not understood; a function states its own actions", path)
		return nil
	}
	o := e.object(n, path)
	if o.get("Statement") == nil {
		e.failf(n, "%s: policy templates are not understood; a function states its own actions", path)
		return nil
	}
	o.oneOf("Version", "2012-10-17")
	var out []Statement
	for i, s := range o.list("Statement") {
		out = append(out, e.statement(e.object(s, fmt.Sprintf("%s[%d]", o.child("Statement"), i))))
	}
	o.done()
	return out
}

func (e *evaluator) statement(o *object) Statement {
	s := Statement{
		Effect:    o.oneOf("Effect", "Allow", "Deny"),
		Actions:   o.texts("Action"),
		Resources: o.texts("Resource"),
		Condition: map[string]map[string][]string{},
	}
	o.object("Condition").each(func(operator string, keys *object) {
		s.Condition[operator] = map[string][]string{}
		for i := 0; i < len(keys.node.Content); i += 2 {
			key := keys.node.Content[i].Value
			s.Condition[operator][key] = keys.texts(key)
		}
	})
	o.ignore("Sid")
	o.done()
	return s
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
