package template

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// An object reads one mapping of the template key by key. Keys that nobody asked
// for are refused by done, so a property is either understood, ignored on
// purpose, or an error.
type object struct {
	e     *evaluator
	path  string
	node  *yaml.Node
	known []string
}

// object opens a mapping; anything else is noted as a problem and reads as empty.
func (e *evaluator) object(n *yaml.Node, path string) *object {
	if name, _ := intrinsic(n); name != "" {
		e.failf(n, "%s: %s is not understood here: the local runner needs the mapping itself", path, name)
		n = &yaml.Node{Kind: yaml.MappingNode, Line: n.Line}
	}
	if n.Kind != yaml.MappingNode {
		e.failf(n, "%s must be a mapping", path)
		n = &yaml.Node{Kind: yaml.MappingNode, Line: n.Line}
	}
	return &object{e: e, path: path, node: n}
}

func (o *object) child(key string) string {
	if o.path == "" {
		return key
	}
	return o.path + "." + key
}

// get returns a key's value, or nil when the mapping does not have it.
func (o *object) get(key string) *yaml.Node {
	o.known = append(o.known, key)
	for i := 0; i < len(o.node.Content); i += 2 {
		if o.node.Content[i].Value == key {
			return o.node.Content[i+1]
		}
	}
	return nil
}

// need is get for a key that must be there.
func (o *object) need(key string) *yaml.Node {
	n := o.get(key)
	if n == nil {
		o.e.failf(o.node, "%s is missing", o.child(key))
	}
	return n
}

func (o *object) text(key string) string {
	n := o.get(key)
	if n == nil {
		return ""
	}
	return o.e.text(n, o.child(key))
}

func (o *object) needText(key string) string {
	n := o.need(key)
	if n == nil {
		return ""
	}
	before := o.e.count()
	s := o.e.text(n, o.child(key))
	if s == "" && o.e.count() == before {
		o.e.failf(n, "%s must not be empty", o.child(key))
	}
	return s
}

func (e *evaluator) text(n *yaml.Node, path string) string {
	v, ok := e.value(n, path)
	if !ok {
		return ""
	}
	s, ok := asText(v)
	if !ok {
		e.failf(n, "%s must be a text", path)
	}
	return s
}

// oneOf is needText for a word from a closed list.
func (o *object) oneOf(key string, words ...string) string {
	s := o.needText(key)
	if s != "" && !slices.Contains(words, s) {
		o.e.failf(o.get(key), "%s: %q is not understood; it must be %s", o.child(key), s, strings.Join(words, " or "))
	}
	return s
}

// integer reads a whole number from least to most, or def when it is absent.
func (o *object) integer(key string, def, least, most int) int {
	n := o.get(key)
	if n == nil {
		return def
	}
	i, err := strconv.Atoi(o.e.text(n, o.child(key)))
	if err != nil || i < least || i > most {
		o.e.failf(n, "%s must be a whole number from %d to %d", o.child(key), least, most)
		return def
	}
	return i
}

func (o *object) object(key string) *object {
	n := o.get(key)
	if n == nil {
		n = &yaml.Node{Kind: yaml.MappingNode, Line: o.node.Line}
	}
	return o.e.object(n, o.child(key))
}

// list gives the elements of a sequence; nil when the key is absent.
func (o *object) list(key string) []*yaml.Node {
	n := o.get(key)
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode || n.Tag != "!!seq" {
		o.e.failf(n, "%s must be a list", o.child(key))
		return nil
	}
	return n.Content
}

// each opens every mapping below the object, in the order of the template.
func (o *object) each(fn func(key string, child *object)) {
	for i := 0; i < len(o.node.Content); i += 2 {
		key := o.node.Content[i].Value
		o.known = append(o.known, key)
		fn(key, o.e.object(o.node.Content[i+1], o.child(key)))
	}
}

func (o *object) ignore(keys ...string) { o.known = append(o.known, keys...) }

// done refuses every key that was neither read nor ignored.
func (o *object) done() {
	for i := 0; i < len(o.node.Content); i += 2 {
		if k := o.node.Content[i]; !slices.Contains(o.known, k.Value) {
			o.e.failf(k, "%s is not understood by the local runner", o.child(k.Value))
		}
	}
}
