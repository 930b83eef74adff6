package functions

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"drawbridge/core"
)

// A kind is what a request field may hold. The kinds are the vocabulary of
// the `in` tag.
type kind string

const (
	kindID         kind = "id"         // string, 1..512 bytes, no control characters; when optional, "" means absent
	kindLine       kind = "line"       // string without control characters, at most 512 bytes unless max says else
	kindText       kind = "text"       // any string: the core judges it
	kindInteger    kind = "integer"    // whole JSON number or string of digits
	kindTruncated  kind = "truncated"  // JSON number, its fraction dropped, or string of digits
	kindNumber     kind = "number"     // any JSON number or string of digits
	kindBoolean    kind = "boolean"    // true or false
	kindGeneration kind = "generation" // a fence: anything that is no whole number never matches
	kindIdentity   kind = "identity"   // a fence: anything that is no string never matches
	kindList       kind = "list"       // array, its elements ruled by the `each` tag or by their struct
	kindObject     kind = "object"     // JSON object, kept as it was sent
	kindAny        kind = "any"        // any JSON value, kept as it was sent
)

// Limits of ids and of lines in bytes (compat rule 1), and of arrays that set
// no limit of their own.
const (
	maxID    = 512
	maxItems = 1000
)

// A rule says what one request field takes. It is compiled from the tags of a
// request struct's field:
//
//	TTL core.Opt[int64] `json:"ttl_ms" in:"truncated,null=1000" doc:"..."`
//
// json names the field. in holds the kind and its options: required; null=V,
// the JSON value a null stands for (without it a null is as good as nothing);
// default=V, what an absent field stands for; min=N and max=N, the bounds of
// a number, of a string's bytes or of an array's length; enum=a|b; code=C,
// the error code of a value that breaks the rule (INVALID_ARGUMENT if not
// given). each holds the same for the elements of an array. doc describes the
// field in the OpenAPI document.
//
// Fields that may be absent and have no default are core.Opt, slices or raw
// JSON, so that the handler can tell.
type rule struct {
	kind     kind
	required bool
	optional bool // the Go field is a core.Opt
	null     jsonText
	fallback jsonText
	min, max *int64
	enum     []string
	code     core.Code
	doc      string
	each     *rule  // elements of a list
	object   *shape // elements that are objects
}

// A shape is a request struct with its rules.
type shape struct {
	typ    reflect.Type
	fields []shapeField
	byName map[string]int
}

type shapeField struct {
	name  string
	index []int // of reflect.Value.FieldByIndex
	rule  *rule
}

// shapeOf compiles the tags of a request struct. Its errors are mistakes in
// the program.
func shapeOf(t reflect.Type) (*shape, error) {
	s := &shape{typ: t, byName: map[string]int{}}
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue
		}
		name, in := f.Tag.Get("json"), f.Tag.Get("in")
		if name == "" || in == "" {
			return nil, fmt.Errorf("field %s of %s has no json or no in tag", f.Name, t)
		}
		r, err := ruleOf(f.Type, in, f.Tag.Get("each"))
		if err != nil {
			return nil, fmt.Errorf("field %s of %s: %w", f.Name, t, err)
		}
		r.doc = f.Tag.Get("doc")
		s.byName[name] = len(s.fields)
		s.fields = append(s.fields, shapeField{name: name, index: f.Index, rule: r})
	}
	return s, nil
}

// holds tells which Go type each kind is read into.
var holds = map[kind]reflect.Type{
	kindID:         reflect.TypeFor[string](),
	kindLine:       reflect.TypeFor[string](),
	kindText:       reflect.TypeFor[string](),
	kindInteger:    reflect.TypeFor[int64](),
	kindTruncated:  reflect.TypeFor[int64](),
	kindNumber:     reflect.TypeFor[float64](),
	kindBoolean:    reflect.TypeFor[bool](),
	kindGeneration: reflect.TypeFor[int64](),
	kindIdentity:   reflect.TypeFor[string](),
	kindObject:     reflect.TypeFor[json.RawMessage](),
	kindAny:        reflect.TypeFor[json.RawMessage](),
}

func ruleOf(t reflect.Type, in, each string) (*rule, error) {
	r, err := parseRule(in)
	if err != nil {
		return nil, err
	}
	if r.kind == kindList {
		return r, r.setElements(t, each)
	}
	if value, ok := optionalOf(t); ok {
		r.optional, t = true, value
	}
	if want, known := holds[r.kind]; !known || want != t {
		return nil, fmt.Errorf("kind %q does not go into %s", r.kind, t)
	}
	raw := r.kind == kindObject || r.kind == kindAny
	if !r.optional && !r.required && r.fallback == nil && !raw {
		return nil, fmt.Errorf("a field that may be absent has to be a core.Opt")
	}
	return r, nil
}

func (r *rule) setElements(t reflect.Type, each string) error {
	if t.Kind() != reflect.Slice {
		return fmt.Errorf("a list does not go into %s", t)
	}
	var err error
	if t.Elem().Kind() == reflect.Struct && each == "" {
		r.object, err = shapeOf(t.Elem())
		return err
	}
	r.each, err = ruleOf(t.Elem(), each+",required", "")
	return err
}

// optionalOf returns T when t is a core.Opt[T].
func optionalOf(t reflect.Type) (reflect.Type, bool) {
	if t.Kind() != reflect.Struct || t.PkgPath() != reflect.TypeFor[core.Error]().PkgPath() || !strings.HasPrefix(t.Name(), "Opt[") {
		return nil, false
	}
	value, ok := t.FieldByName("Value")
	return value.Type, ok
}

func parseRule(in string) (*rule, error) {
	name, options, _ := strings.Cut(in, ",")
	r := &rule{kind: kind(name), code: core.CodeInvalidArgument}
	for option := range strings.SplitSeq(options, ",") {
		key, value, _ := strings.Cut(option, "=")
		var err error
		switch key {
		case "":
		case "required":
			r.required = true
		case "null":
			r.null, err = scanJSON([]byte(value))
		case "default":
			r.fallback, err = scanJSON([]byte(value))
		case "min":
			r.min, err = parseBound(value)
		case "max":
			r.max, err = parseBound(value)
		case "enum":
			r.enum = strings.Split(value, "|")
		case "code":
			r.code = core.Code(value)
		default:
			err = fmt.Errorf("unknown option")
		}
		if err != nil {
			return nil, fmt.Errorf("option %q: %w", option, err)
		}
	}
	return r, nil
}

func parseBound(text string) (*int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	return &n, err
}

// maxBytes is the longest text the rule takes.
func (r *rule) maxBytes() int {
	switch {
	case r.max != nil:
		return int(*r.max)
	case r.kind == kindText:
		return maxBody
	default:
		return maxID
	}
}

// maxItems is the longest array the rule takes.
func (r *rule) maxItems() int {
	if r.max != nil {
		return int(*r.max)
	}
	return maxItems
}

// atLeast is the fewest bytes or elements the rule takes.
func (r *rule) atLeast() int {
	if r.min != nil {
		return int(*r.min)
	}
	return 0
}

// allows reports whether a text is one of the rule's words, if it has any.
func (r *rule) allows(text string) bool {
	return len(r.enum) == 0 || slices.Contains(r.enum, text)
}
