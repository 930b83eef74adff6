package functions

import (
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"drawbridge/core"
)

// Values of fences that were sent but can be nobody's: they are compared, and
// never equal (compat rule 1). Generations start at 1, and no hub identity or
// store fingerprint holds a NUL.
const (
	neverGeneration = -1
	neverIdentity   = "\x00"
)

// decode fills a request struct from a JSON value by the rules of its shape.
// Unknown fields are ignored: the reference's clients send some. A value that
// is no object has no fields, as in the reference. The first field, in the
// order of the struct, that breaks its rule is the error.
func (s *shape) decode(value jsonText, path string, into reflect.Value) error {
	given := make([]jsonText, len(s.fields))
	if value.kind() == jsonObject {
		value.members(func(key string, member jsonText) {
			if i, ok := s.byName[key]; ok {
				given[i] = member
			}
		})
	}
	for i, f := range s.fields {
		if err := f.rule.decode(given[i], path+f.name, into.FieldByIndex(f.index)); err != nil {
			return err
		}
	}
	return nil
}

// decode reads one field; value is nil when it was not sent.
func (r *rule) decode(value jsonText, path string, into reflect.Value) error {
	if value != nil && value.kind() == jsonNull && r.kind != kindAny {
		value = r.null
	}
	if value == nil || r.isAbsent(value) {
		if r.required {
			return r.refuse(path, "is required")
		}
		if value = r.fallback; value == nil {
			return nil
		}
	}
	if r.kind == kindList {
		return r.decodeList(value, path, into)
	}
	read, problem := r.read(value)
	if problem != "" {
		return r.refuse(path, problem)
	}
	r.store(into, reflect.ValueOf(read))
	return nil
}

// isAbsent reports whether an empty string stands for nothing, as it does for
// ids: the reference asks whether they are truthy.
func (r *rule) isAbsent(value jsonText) bool {
	return r.kind == kindID && string(value) == `""`
}

func (r *rule) store(into, value reflect.Value) {
	if r.optional {
		into.FieldByName("Set").SetBool(true)
		into = into.FieldByName("Value")
	}
	into.Set(value)
}

func (r *rule) decodeList(value jsonText, path string, into reflect.Value) error {
	if value.kind() != jsonArray {
		return r.refuse(path, "must be an array")
	}
	items := value.items(r.maxItems())
	if len(items) < r.atLeast() || len(items) > r.maxItems() {
		return r.refuse(path, fmt.Sprintf("must have %d to %d elements", r.atLeast(), r.maxItems()))
	}
	list := reflect.MakeSlice(into.Type(), len(items), len(items))
	for i, item := range items {
		if err := r.decodeElement(item, fmt.Sprintf("%s[%d]", path, i), list.Index(i)); err != nil {
			return err
		}
	}
	into.Set(list)
	return nil
}

func (r *rule) decodeElement(item jsonText, path string, into reflect.Value) error {
	if r.object == nil {
		return r.each.decode(item, path, into)
	}
	if item.kind() != jsonObject {
		return r.refuse(path, "must be an object")
	}
	return r.object.decode(item, path+".", into)
}

// read takes a scalar out of a value, or says what is wrong with it.
func (r *rule) read(value jsonText) (any, string) {
	switch r.kind {
	case kindID, kindLine, kindText:
		return r.readText(value)
	case kindInteger, kindTruncated, kindNumber:
		return r.readNumber(value)
	case kindBoolean:
		return string(value) == "true", problemIf(value.kind() != jsonBoolean, "must be true or false")
	case kindGeneration:
		if n, ok := value.number(); ok && n.whole && n.integer >= 0 {
			return n.integer, ""
		}
		return int64(neverGeneration), ""
	case kindIdentity:
		if value.kind() == jsonString {
			if text, ok := value.text(); ok {
				return text, ""
			}
		}
		return neverIdentity, ""
	case kindObject:
		return json.RawMessage(value), problemIf(value.kind() != jsonObject, "must be an object")
	default:
		return json.RawMessage(value), ""
	}
}

func problemIf(wrong bool, problem string) string {
	if wrong {
		return problem
	}
	return ""
}

func (r *rule) readText(value jsonText) (any, string) {
	if value.kind() != jsonString {
		return nil, "must be a string"
	}
	text, ok := value.text()
	switch {
	case !ok:
		return nil, "must be valid Unicode"
	case len(text) < r.atLeast():
		return nil, "must not be empty"
	case len(text) > r.maxBytes():
		return nil, fmt.Sprintf("must have at most %d bytes", r.maxBytes())
	case r.kind != kindText && strings.ContainsFunc(text, unicode.IsControl):
		return nil, "must not hold control characters"
	case !r.allows(text):
		return nil, "must be one of " + strings.Join(r.enum, ", ")
	}
	return text, ""
}

func (r *rule) readNumber(value jsonText) (any, string) {
	n, ok := value.number()
	switch {
	case !ok:
		return nil, "must be a number"
	case r.kind == kindInteger && !n.whole:
		return nil, "must be a whole number"
	case r.min != nil && n.float < float64(*r.min), r.max != nil && n.float > float64(*r.max):
		return nil, "must be " + r.bounds()
	case r.kind == kindNumber:
		return n.float, ""
	}
	return n.integer, ""
}

func (r *rule) bounds() string {
	switch {
	case r.min == nil:
		return "at most " + strconv.FormatInt(*r.max, 10)
	case r.max == nil:
		return "at least " + strconv.FormatInt(*r.min, 10)
	default:
		return fmt.Sprintf("%d to %d", *r.min, *r.max)
	}
}

// refuse is the error of a field that breaks its rule. It names the field and
// never repeats its value.
func (r *rule) refuse(path, problem string) error {
	return core.InvalidCode(r.code, path, path+" "+problem)
}

// query turns a query string into the JSON object the decoder reads: every
// parameter of the shape a string, an empty one left out as in the reference.
// A parameter given twice is refused, because two readers may see two
// different requests.
func (s *shape) query(raw string) (jsonText, error) {
	parameters, err := url.ParseQuery(raw)
	if err != nil {
		return nil, core.Invalid("query", "the query string is not valid percent-encoding")
	}
	single := map[string]string{}
	for _, f := range s.fields {
		values := parameters[f.name]
		switch {
		case len(values) > 1:
			return nil, core.Invalid(f.name, f.name+" is given more than once")
		case len(values) == 0 || values[0] == "":
		case !utf8.ValidString(values[0]):
			return nil, core.Invalid(f.name, f.name+" must be valid UTF-8")
		default:
			single[f.name] = values[0]
		}
	}
	object, err := json.Marshal(single)
	if err != nil {
		return nil, fmt.Errorf("encode the query: %w", err)
	}
	return jsonText(object), nil
}
