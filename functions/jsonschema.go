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
	_, problem := compileSchema(schema)
	return problem
}

// CheckValue tells where a value does not satisfy a schema, "" where it does.
func (Schemas) CheckValue(schema, value json.RawMessage) string {
	compiled, problem := compileSchema(schema)
	if problem != "" {
		return problem
	}
	if depth(value) > maxSchemaDepth {
		return fmt.Sprintf("it is nested deeper than %d levels", maxSchemaDepth)
	}
	decoded, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return "it is not JSON"
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

func compileSchema(schema json.RawMessage) (*jsonschema.Schema, string) {
	if depth(schema) > maxSchemaDepth {
		return nil, fmt.Sprintf("it is nested deeper than %d levels", maxSchemaDepth)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, "it is not JSON"
	}
	if references(document) > maxSchemaRefs {
		return nil, fmt.Sprintf("it has more than %d references", maxSchemaRefs)
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource(schemaLocation, document); err != nil {
		return nil, "its $id is not a URL"
	}
	compiled, err := compiler.Compile(schemaLocation)
	switch {
	case errors.Is(err, errRemote):
		return nil, errRemote.Error()
	case err != nil:
		return nil, describeSchemaError(err)
	}
	return compiled, ""
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
