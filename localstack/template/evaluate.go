package template

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// An evaluator turns YAML into values: it follows Ref, Fn::Sub and Fn::GetAtt,
// and notes every problem it meets instead of stopping at the first.
type evaluator struct {
	stack      Stack
	parameters map[string]any
	resources  map[string]resource
	roles      map[string][]Statement // by ARN
	problems   []Problem
	more       int
}

// A resource is what other parts of the template may say about it.
type resource struct {
	kind       string
	ref        string            // what Ref gives
	attributes map[string]string // what Fn::GetAtt gives
}

func (e *evaluator) failf(n *yaml.Node, format string, args ...any) {
	if len(e.problems) == maxProblems {
		e.more++
		return
	}
	e.problems = append(e.problems, Problem{n.Line, fmt.Sprintf(format, args...)})
}

// count tells how many problems were noted.
func (e *evaluator) count() int { return len(e.problems) + e.more }

// value evaluates a node into string, int64, float64, bool, nil, []any or
// map[string]any. ok is false when a problem was noted.
func (e *evaluator) value(n *yaml.Node, path string) (v any, ok bool) {
	if name, arg := intrinsic(n); name != "" {
		return e.call(n, name, arg, path)
	}
	switch n.Kind {
	case yaml.ScalarNode:
		return e.scalar(n, path)
	case yaml.SequenceNode:
		return e.sequence(n, path)
	default:
		return e.mapping(n, path)
	}
}

func (e *evaluator) scalar(n *yaml.Node, path string) (any, bool) {
	switch n.Tag {
	case "!!str", "!!timestamp":
		return n.Value, true
	case "!!null":
		return nil, true
	case "!!bool", "!!int", "!!float":
		var v any
		if err := n.Decode(&v); err != nil {
			e.failf(n, "%s: %q is not a %s", path, n.Value, strings.TrimPrefix(n.Tag, "!!"))
			return nil, false
		}
		if i, is := v.(int); is {
			return int64(i), true
		}
		return v, true
	default:
		e.failf(n, "%s: the tag %s is not understood", path, n.Tag)
		return nil, false
	}
}

func (e *evaluator) sequence(n *yaml.Node, path string) (any, bool) {
	list, good := make([]any, 0, len(n.Content)), true
	for i, c := range n.Content {
		v, ok := e.value(c, fmt.Sprintf("%s[%d]", path, i))
		list, good = append(list, v), good && ok
	}
	return list, good
}

func (e *evaluator) mapping(n *yaml.Node, path string) (map[string]any, bool) {
	m, good := make(map[string]any, len(n.Content)/2), true
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i].Value
		v, ok := e.value(n.Content[i+1], path+"."+key)
		m[key], good = v, good && ok
	}
	return m, good
}

// intrinsic gives the long name of the function that a node calls and its
// argument, or "" when the node is plain data.
func intrinsic(n *yaml.Node) (name string, arg *yaml.Node) {
	if strings.HasPrefix(n.Tag, "!") && !strings.HasPrefix(n.Tag, "!!") {
		name = strings.TrimPrefix(n.Tag, "!")
		if name != "Ref" && name != "Condition" {
			name = "Fn::" + name
		}
		return name, n
	}
	if n.Kind == yaml.MappingNode && len(n.Content) == 2 {
		key := n.Content[0].Value
		if key == "Ref" || strings.HasPrefix(key, "Fn::") {
			return key, n.Content[1]
		}
	}
	return "", nil
}

func (e *evaluator) call(n *yaml.Node, name string, arg *yaml.Node, path string) (any, bool) {
	switch name {
	case "Ref":
		if arg.Kind != yaml.ScalarNode {
			e.failf(n, "%s: Ref takes one name", path)
			return nil, false
		}
		return e.ref(n, arg.Value, path)
	case "Fn::GetAtt":
		return e.getAtt(n, arg, path)
	case "Fn::Sub":
		return e.sub(n, arg, path)
	default:
		e.failf(n, "%s: %s is not understood", path, name)
		return nil, false
	}
}

func (e *evaluator) ref(n *yaml.Node, name, path string) (any, bool) {
	if v, ok := e.parameters[name]; ok {
		return v, true
	}
	if v, ok := e.stack.pseudo(name); ok {
		return v, true
	}
	if r, ok := e.resources[name]; ok && r.ref != "" {
		return r.ref, true
	}
	e.failf(n, "%s: Ref %s: there is no parameter or resource of that name that can be referred to", path, name)
	return nil, false
}

func (e *evaluator) getAtt(n, arg *yaml.Node, path string) (any, bool) {
	var id, attr string
	switch {
	case arg.Kind == yaml.ScalarNode:
		id, attr, _ = strings.Cut(arg.Value, ".")
	case arg.Kind == yaml.SequenceNode && len(arg.Content) == 2:
		id, attr = arg.Content[0].Value, arg.Content[1].Value
	}
	if id == "" || attr == "" {
		e.failf(n, "%s: Fn::GetAtt takes a resource and an attribute", path)
		return nil, false
	}
	return e.attribute(n, id, attr, path)
}

func (e *evaluator) attribute(n *yaml.Node, id, attr, path string) (any, bool) {
	r, ok := e.resources[id]
	if !ok {
		e.failf(n, "%s: Fn::GetAtt %s.%s: there is no resource %s", path, id, attr, id)
		return nil, false
	}
	v, ok := r.attributes[attr]
	if !ok {
		e.failf(n, "%s: Fn::GetAtt %s.%s: the attribute %s is not understood", path, id, attr, attr)
		return nil, false
	}
	return v, true
}

// A placeholder of Fn::Sub: ${Name}, ${Resource.Attribute}, or ${!literal},
// which stands for the text ${literal} itself.
var placeholder = regexp.MustCompile(`\$\{([^}]*)\}`)

func (e *evaluator) sub(n, arg *yaml.Node, path string) (any, bool) {
	text, own, ok := e.subArguments(n, arg, path)
	if !ok {
		return nil, false
	}
	good := true
	out := placeholder.ReplaceAllStringFunc(text, func(match string) string {
		name := strings.TrimSpace(match[2 : len(match)-1])
		if literal, is := strings.CutPrefix(name, "!"); is {
			return "${" + literal + "}"
		}
		v, ok := e.subValue(n, name, own, path)
		good = good && ok
		return v
	})
	return out, good
}

func (e *evaluator) subArguments(n, arg *yaml.Node, path string) (text string, own map[string]any, ok bool) {
	if arg.Kind == yaml.ScalarNode {
		return arg.Value, nil, true
	}
	if arg.Kind != yaml.SequenceNode || len(arg.Content) != 2 ||
		arg.Content[0].Kind != yaml.ScalarNode || arg.Content[1].Kind != yaml.MappingNode {
		e.failf(n, "%s: Fn::Sub takes a text, or a list of a text and its variables", path)
		return "", nil, false
	}
	own, ok = e.mapping(arg.Content[1], path)
	return arg.Content[0].Value, own, ok
}

func (e *evaluator) subValue(n *yaml.Node, name string, own map[string]any, path string) (string, bool) {
	v, given := own[name]
	if !given {
		var ok bool
		if id, attr, dotted := strings.Cut(name, "."); dotted {
			v, ok = e.attribute(n, id, attr, path)
		} else {
			v, ok = e.ref(n, name, path)
		}
		if !ok {
			return "", false
		}
	}
	s, ok := asText(v)
	if !ok {
		e.failf(n, "%s: Fn::Sub: ${%s} is not a text", path, name)
	}
	return s, ok
}

// asText gives the text that CloudFormation makes of a scalar.
func asText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case int64:
		return strconv.FormatInt(v, 10), true
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), true
	case bool:
		return strconv.FormatBool(v), true
	default:
		return "", false
	}
}

// sorted returns the problems in the order of their lines.
func sorted(problems []Problem) []Problem {
	slices.SortStableFunc(problems, func(a, b Problem) int { return a.Line - b.Line })
	return problems
}
