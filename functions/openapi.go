package functions

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"drawbridge/core"
)

type openAPIRequest struct{}

func readOpenAPI(_ context.Context, c *call, _ openAPIRequest) (json.RawMessage, error) {
	return c.openAPI, nil
}

// A schema is a JSON Schema of the 2020-12 dialect, which OpenAPI 3.1 uses.
type schema = map[string]any

// openAPIDocument describes the endpoints as an OpenAPI 3.1 document, out of
// the types that decode the requests and make the answers.
func openAPIDocument(endpoints []Endpoint, version string) (json.RawMessage, error) {
	components := schemaSet{}
	paths := map[string]map[string]any{}
	for i := range endpoints {
		e := &endpoints[i]
		operations := paths[e.Path]
		if operations == nil {
			operations = map[string]any{}
			paths[e.Path] = operations
		}
		operations[e.operationMethod()] = e.operation(components)
	}
	document, err := json.Marshal(map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{
			"title":       "Drawbridge",
			"description": "A coordination hub for a fleet of coding agents.",
			"version":     version,
			"license":     map[string]any{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		"paths": paths,
		"components": map[string]any{
			"schemas":         components,
			"securitySchemes": map[string]any{"token": map[string]any{"type": "http", "scheme": "bearer"}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the OpenAPI document: %w", err)
	}
	return document, nil
}

// operationMethod is the key of the operation: an endpoint that takes any
// method is described by GET.
func (e *Endpoint) operationMethod() string {
	if e.Method == AnyMethod {
		return "get"
	}
	return strings.ToLower(e.Method)
}

func (e *Endpoint) operation(components schemaSet) map[string]any {
	operation := map[string]any{
		"operationId": e.operationID(),
		"summary":     e.Summary,
		"responses":   e.responses(components),
		"security":    []any{},
	}
	if e.Scope != ScopePublic {
		operation["description"] = "Needs the scope " + string(e.Scope) + " or one that contains it."
		operation["security"] = []any{map[string]any{"token": []string{}}}
	}
	var parameters []any
	if e.readsBody() {
		operation["requestBody"] = map[string]any{
			"required": true,
			"content":  jsonContent(e.request.schema()),
		}
	} else {
		parameters = e.request.parameters()
	}
	if e.Creates {
		parameters = append(parameters, map[string]any{
			"name": "Idempotency-Key", "in": "header", "required": false,
			"description": "The same key with the same body gets the first answer again for 24 hours.",
			"schema":      schema{"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[ -~]+$"},
		})
	}
	if parameters != nil {
		operation["parameters"] = parameters
	}
	return operation
}

// operationID names the operation after its path: postBridgeHubRotate.
func (e *Endpoint) operationID() string {
	var id strings.Builder
	id.WriteString(e.operationMethod())
	for word := range strings.FieldsFuncSeq(e.Path, func(r rune) bool { return r == '/' || r == '-' || r == '.' }) {
		id.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	if e.Path == "/" {
		id.WriteString("Root")
	}
	return id.String()
}

// refusals are the kinds an endpoint may answer with, by status.
func (e *Endpoint) refusals() []int {
	statuses := []int{http.StatusInternalServerError, http.StatusServiceUnavailable}
	if e.Scope != ScopePublic {
		statuses = append(statuses, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests)
	}
	if len(e.request.fields) > 0 {
		statuses = append(statuses, http.StatusBadRequest)
	}
	if e.Finds {
		statuses = append(statuses, http.StatusNotFound)
	}
	if e.readsBody() {
		statuses = append(statuses, http.StatusRequestEntityTooLarge, e.conflictStatus())
	}
	return statuses
}

func (e *Endpoint) conflictStatus() int {
	if e.ConflictStatus != 0 {
		return e.ConflictStatus
	}
	return http.StatusConflict
}

func (e *Endpoint) responses(components schemaSet) map[string]any {
	done := components.of(e.response)
	if !e.Bare {
		done = schema{
			"type":     "object",
			"required": []string{"ok", "data"},
			"properties": schema{
				"ok":       schema{"const": true},
				"data":     done,
				"replayed": schema{"const": true, "description": "An earlier try of the same request had done it."},
			},
		}
	}
	responses := map[string]any{"200": map[string]any{"description": "Done", "content": jsonContent(done)}}
	refused := components.failure()
	for _, status := range e.refusals() {
		content := refused
		if e.Bare && status == http.StatusServiceUnavailable {
			content = schema{"anyOf": []any{refused, done}}
		}
		responses[fmt.Sprint(status)] = map[string]any{"description": http.StatusText(status), "content": jsonContent(content)}
	}
	return responses
}

func jsonContent(s schema) map[string]any {
	return map[string]any{"application/json": map[string]any{"schema": s}}
}

// --- requests

// schema describes the object the shape decodes.
func (s *shape) schema() schema {
	properties := schema{}
	var required []string
	for _, f := range s.fields {
		properties[f.name] = f.rule.schema()
		if f.rule.required {
			required = append(required, f.name)
		}
	}
	object := schema{"type": "object", "properties": properties}
	if required != nil {
		object["required"] = required
	}
	return object
}

// parameters describes the shape's fields as query parameters.
func (s *shape) parameters() []any {
	var parameters []any
	for _, f := range s.fields {
		parameters = append(parameters, map[string]any{
			"name": f.name, "in": "query", "required": f.rule.required, "description": f.rule.doc,
			"schema": f.rule.schema(),
		})
	}
	return parameters
}

// digits is the pattern of a number sent as a string.
const digits = "^-?[0-9]+$"

func (r *rule) schema() schema {
	s := schema{}
	if r.doc != "" {
		s["description"] = r.doc
	}
	if r.fallback != nil {
		s["default"] = json.RawMessage(r.fallback)
	}
	switch r.kind {
	case kindID, kindLine, kindText:
		r.describeText(s)
	case kindInteger:
		r.describeNumber(s, "integer")
	case kindTruncated, kindNumber:
		r.describeNumber(s, "number")
	case kindBoolean:
		s["type"] = r.types("boolean")
	case kindGeneration:
		s["description"] = r.doc + " What is no whole number never matches."
		s["examples"] = []any{1}
	case kindIdentity:
		s["description"] = r.doc + " What is no string never matches."
	case kindObject:
		s["type"] = r.types("object")
	case kindList:
		r.describeList(s)
	}
	return s
}

// types is the type of a field and, where a null is as good as nothing or
// stands for a value, null.
func (r *rule) types(names ...string) any {
	if !r.required || r.null != nil {
		names = append(names, "null")
	}
	if len(names) == 1 {
		return names[0]
	}
	return names
}

func (r *rule) describeText(s schema) {
	s["type"] = r.types("string")
	if r.required && r.kind == kindID {
		s["minLength"] = 1
	} else if r.atLeast() > 0 {
		s["minLength"] = r.atLeast()
	}
	// Bytes are at least as many as characters, so this is the looser bound.
	s["maxLength"] = r.maxBytes()
	if r.kind != kindText {
		s["pattern"] = `^[^\x00-\x1f\x7f-\x9f]*$`
	}
	if len(r.enum) > 0 {
		values := []any{}
		for _, word := range r.enum {
			values = append(values, word)
		}
		if !r.required {
			values = append(values, nil)
		}
		s["enum"] = values
	}
}

func (r *rule) describeNumber(s schema, name string) {
	s["type"] = r.types(name, "string")
	s["pattern"] = digits
	if r.min != nil {
		s["minimum"] = *r.min
	}
	if r.max != nil {
		s["maximum"] = *r.max
	}
}

func (r *rule) describeList(s schema) {
	s["type"] = r.types("array")
	s["maxItems"] = r.maxItems()
	if r.min != nil {
		s["minItems"] = *r.min
	}
	if r.object != nil {
		s["items"] = r.object.schema()
	} else {
		s["items"] = r.each.schema()
	}
}

// --- answers

// A schemaSet collects the schemas of named types for the document's
// components.
type schemaSet map[string]schema

// failure describes the envelope of a refusal, with the catalogue of codes.
func (c schemaSet) failure() schema {
	reference := c.of(reflect.TypeFor[failure]())
	codes := make([]string, len(core.Codes))
	meanings := make([]string, len(core.Codes))
	for i, entry := range core.Codes {
		codes[i] = string(entry.Code)
		meanings[i] = fmt.Sprintf("- `%s`: %s", entry.Code, entry.Meaning)
	}
	c["Failure"]["properties"].(schema)["ok"] = schema{"const": false}
	c["ErrorView"]["properties"].(schema)["code"] = schema{
		"type": "string", "enum": codes, "description": strings.Join(meanings, "\n"),
	}
	return reference
}

// of describes how encoding/json writes a type.
func (c schemaSet) of(t reflect.Type) schema {
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		return schema{}
	case t == reflect.TypeFor[core.Instant]():
		return schema{"type": "integer", "description": "Milliseconds since the Unix epoch."}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schema{"anyOf": []any{c.of(t.Elem()), schema{"type": "null"}}}
	case reflect.Struct:
		return c.reference(t)
	case reflect.Slice:
		return schema{"type": "array", "items": c.of(t.Elem())}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": c.of(t.Elem())}
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Float64:
		return schema{"type": "number"}
	case reflect.Int, reflect.Int64:
		return schema{"type": "integer"}
	default: // interfaces
		return schema{}
	}
}

// reference describes a struct once, under its name in upper camel case.
func (c schemaSet) reference(t reflect.Type) schema {
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	if _, known := c[name]; !known {
		c[name] = schema{} // ends recursion
		c[name] = c.structSchema(t)
	}
	return schema{"$ref": "#/components/schemas/" + name}
}

func (c schemaSet) structSchema(t reflect.Type) schema {
	properties := schema{}
	var required []string
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || name == "" {
			continue
		}
		property := c.of(f.Type)
		omitted := slices.ContainsFunc(strings.Split(options, ","), func(o string) bool { return o == "omitempty" || o == "omitzero" })
		if omitted {
			if f.Type.Kind() == reflect.Pointer {
				property = c.of(f.Type.Elem())
			}
		} else {
			required = append(required, name)
		}
		if doc := f.Tag.Get("doc"); doc != "" {
			property = described(property, doc)
		}
		properties[name] = property
	}
	object := schema{"type": "object", "properties": properties}
	if required != nil {
		object["required"] = required
	}
	return object
}

// described adds a description, which in this dialect may stand beside a
// reference.
func described(s schema, doc string) schema {
	s["description"] = doc
	return s
}
