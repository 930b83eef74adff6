package template

import "fmt"

// A Statement is one statement of a function's role.
type Statement struct {
	Effect    string
	Actions   []string
	Resources []string
	// Condition is operator, then key, then the values.
	Condition map[string]map[string][]string
}

// role reads what a role allows. Who may assume it has no meaning on a laptop.
func (e *evaluator) role(d declaration) []Statement {
	var out []Statement
	for i, n := range d.properties.list("Policies") {
		o := e.object(n, fmt.Sprintf("%s[%d]", d.properties.child("Policies"), i))
		o.needText("PolicyName")
		out = append(out, e.policy(o.object("PolicyDocument"))...)
		o.done()
	}
	d.properties.ignore(ignoredOfRole...)
	d.properties.done()
	return out
}

// statementsOf gives what a function's role allows. SAM would make a role for a
// function without one, and let it write every log group of the account.
func (e *evaluator) statementsOf(function *object) []Statement {
	arn := function.needText("Role")
	statements, ok := e.roles[arn]
	if !ok && arn != "" {
		e.failf(function.get("Role"), "%s must be the Arn of a role of the template", function.child("Role"))
	}
	return statements
}

func (e *evaluator) policy(o *object) []Statement {
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
