package functions

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxSchemaDepth bounds how deep a schema, and a value it judges, may be
// nested: both are walked by recursion.
const maxSchemaDepth = 32

// maxSchemaRefs bounds the references in a schema: each may be followed from
// several others, so that the work grows with the power of their number.
const maxSchemaRefs = 16

// Bounds of the work of judging, which no deadline interrupts. A unit is what one
// keyword does with one value, about a microsecond.
const (
	// maxSchemaWeight bounds a schema by itself: its keywords, values and
	// patterns, everything that is referred to counted as often as it is.
	maxSchemaWeight = 20_000
	// maxSchemaWork bounds the weight times the size of the value.
	maxSchemaWork = 1_000_000
	// maxNumberText bounds the digits of a number and the power of ten in it:
	// numbers are compared exactly, however long they are.
	maxNumberText = 400
)

// Schemas judges JSON Schemas (draft 2020-12 unless $schema names another) and
// values by them. A reference leads nowhere but into the schema itself or into
// the drafts' own meta-schemas: nothing is loaded.
type Schemas struct{}

// errRemote refuses every reference out of a schema.
var errRemote = errors.New("references to other documents are not followed")

type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errRemote }

const schemaLocation = "mem:///schema.json"

// CheckSchema tells what is wrong with a schema, "" for nothing.
func (Schemas) CheckSchema(schema json.RawMessage) string {
	_, _, problem := compileSchema(schema)
	return problem
}

// CheckValue tells where a value does not satisfy a schema, "" where it does.
func (Schemas) CheckValue(schema, value json.RawMessage) string {
	compiled, weight, problem := compileSchema(schema)
	if problem != "" {
		return problem
	}
	decoded, problem := decodeForSchema(value)
	if problem != "" {
		return problem
	}
	if weight*(1+countNodes(decoded)+len(value)/8) > maxSchemaWork {
		return "it is too large for what the schema asks of it"
	}
	var failed *jsonschema.ValidationError
	switch err := compiled.Validate(decoded); {
	case err == nil:
		return ""
	case errors.As(err, &failed):
		return firstFailure(failed)
	default:
		return "it cannot be judged"
	}
}

// decodeForSchema decodes a schema or a value that is to be judged.
func decodeForSchema(text json.RawMessage) (any, string) {
	if depth(text) > maxSchemaDepth {
		return nil, fmt.Sprintf("it is nested deeper than %d levels", maxSchemaDepth)
	}
	decoded, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, "it is not JSON"
	}
	if hasHugeNumber(decoded) {
		return nil, "a number in it has too many digits or too large a power of ten"
	}
	return decoded, ""
}

// compileSchema also tells what one value costs to judge.
func compileSchema(schema json.RawMessage) (*jsonschema.Schema, int, string) {
	document, problem := decodeForSchema(schema)
	if problem != "" {
		return nil, 0, problem
	}
	if references(document) > maxSchemaRefs {
		return nil, 0, fmt.Sprintf("it has more than %d references", maxSchemaRefs)
	}
	if patternsWeight(document) > maxSchemaWeight {
		return nil, 0, "its patterns are too large"
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource(schemaLocation, document); err != nil {
		return nil, 0, "its $id is not a URL"
	}
	compiled, err := compiler.Compile(schemaLocation)
	switch {
	case errors.Is(err, errRemote):
		return nil, 0, errRemote.Error()
	case err != nil:
		return nil, 0, describeSchemaError(err)
	}
	weight, problem := weigh(compiled)
	return compiled, weight, problem
}

// describeSchemaError says where a schema is wrong. The library's own text names
// internal locations.
func describeSchemaError(err error) string {
	var invalid *jsonschema.SchemaValidationError
	var failed *jsonschema.ValidationError
	if errors.As(err, &invalid) && errors.As(invalid.Err, &failed) {
		return firstFailure(failed)
	}
	return "a keyword or a reference in it cannot be understood"
}

// firstFailure describes the first cause that has no cause of its own: where,
// and which keyword. It repeats no value.
func firstFailure(failed *jsonschema.ValidationError) string {
	for len(failed.Causes) > 0 {
		failed = failed.Causes[0]
	}
	place := "/" + strings.Join(failed.InstanceLocation, "/")
	if len(place) > maxID {
		place = place[:maxID]
	}
	keyword := strings.Join(failed.ErrorKind.KeywordPath(), "/")
	return fmt.Sprintf("at %s: %s", strings.ToValidUTF8(place, ""), keyword)
}

// references counts the members of a schema that lead to another part of it.
func references(value any) int {
	count := 0
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			if name == "$ref" || name == "$dynamicRef" || name == "$recursiveRef" {
				count++
			}
			count += references(member)
		}
	case []any:
		for _, element := range v {
			count += references(element)
		}
	}
	return count
}

// depth is how deep the arrays and objects of a JSON value are nested.
func depth(value json.RawMessage) int {
	deepest, now, inText := 0, 0, false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return deepest
}
