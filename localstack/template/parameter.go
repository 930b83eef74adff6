package template

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

func (e *evaluator) readParameters(section *object) {
	section.each(func(name string, o *object) {
		if v, ok := e.parameter(name, o); ok {
			e.parameters[name] = v
		}
	})
	for _, name := range slices.Sorted(maps.Keys(e.stack.Parameters)) {
		if !slices.Contains(section.known, name) {
			e.failf(section.node, "there is no parameter %s to override", name)
		}
	}
}

func (e *evaluator) parameter(name string, o *object) (any, bool) {
	before := e.count()
	kind := o.oneOf("Type", "String", "Number")
	value, given := e.stack.Parameters[name]
	if def := o.get("Default"); !given && def != nil {
		value, given = e.text(def, o.child("Default")), true
	}
	if !given {
		e.failf(o.node, "%s has no default and no value was given", o.path)
	}
	if given {
		o.checkAllowed(value)
		o.checkPattern(value)
		o.checkBounds(kind, value)
	}
	o.ignore("AllowedPattern", "AllowedValues", "MaxLength", "MaxValue", "MinLength", "MinValue")
	o.ignore(ignoredOfParameter...)
	o.done()
	return value, e.count() == before
}

func (o *object) checkAllowed(value string) {
	allowed := o.list("AllowedValues")
	if allowed == nil {
		return
	}
	same := func(n *yaml.Node) bool { return o.e.text(n, o.child("AllowedValues")) == value }
	if !slices.ContainsFunc(allowed, same) {
		o.e.failf(o.node, "%s: %q is not one of the allowed values", o.path, value)
	}
}

func (o *object) checkPattern(value string) {
	n := o.get("AllowedPattern")
	if n == nil {
		return
	}
	// CloudFormation matches the whole value.
	re, err := regexp.Compile(`\A(?:` + o.e.text(n, o.child("AllowedPattern")) + `)\z`)
	if err != nil {
		o.e.failf(n, "%s is not understood: %v", o.child("AllowedPattern"), err)
		return
	}
	if !re.MatchString(value) {
		o.e.failf(o.node, "%s: %q does not match the allowed pattern", o.path, value)
	}
}

func (o *object) checkBounds(kind, value string) {
	o.checkBound("MinLength", float64(len([]rune(value))), false)
	o.checkBound("MaxLength", float64(len([]rune(value))), true)
	if kind != "Number" {
		return
	}
	f, err := strconv.ParseFloat(value, 64)
	if err != nil {
		o.e.failf(o.node, "%s: %q is not a number", o.path, value)
		return
	}
	o.checkBound("MinValue", f, false)
	o.checkBound("MaxValue", f, true)
}

func (o *object) checkBound(key string, measured float64, upper bool) {
	n := o.get(key)
	if n == nil {
		return
	}
	bound, err := strconv.ParseFloat(o.e.text(n, o.child(key)), 64)
	if err != nil {
		o.e.failf(n, "%s must be a number", o.child(key))
		return
	}
	if upper && measured > bound || !upper && measured < bound {
		o.e.failf(o.node, "%s: the value breaks %s %s", o.path, key, fmt.Sprint(bound))
	}
}
