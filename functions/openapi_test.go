package functions

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"drawbridge/core"
)

// TestOpenAPIDescribesEveryEndpoint: the answers and the requests of every
// other test of this package are held against the schemas as they are sent
// (see checkSchemas).
func TestOpenAPIDescribesEveryEndpoint(t *testing.T) {
	h := newTestHub(t)
	document := h.send("GET", "/openapi.json", nil).expect(t, 200, "")
	if document.at("openapi") != "3.1.0" || document.at("info.version") != Version {
		t.Errorf("the document is %v of version %v", document.at("openapi"), document.at("info.version"))
	}
	paths := document.body["paths"].(map[string]any)
	operations, ids := 0, map[string]bool{}
	for _, path := range paths {
		operations += len(path.(map[string]any))
	}
	if operations != len(h.app.endpoints) {
		t.Errorf("%d operations describe %d endpoints", operations, len(h.app.endpoints))
	}
	for _, e := range h.app.endpoints {
		path, _ := paths[e.Path].(map[string]any)
		operation, _ := path[e.operationMethod()].(map[string]any)
		if operation == nil {
			t.Errorf("%s %s is missing", e.Method, e.Path)
			continue
		}
		id := operation["operationId"].(string)
		if ids[id] || strings.ContainsAny(id, "/-.") {
			t.Errorf("operation id %q of %s", id, e.Path)
		}
		ids[id] = true
		if public := len(operation["security"].([]any)) == 0; public != (e.Scope == ScopePublic) {
			t.Errorf("%s %s: security %v for scope %s", e.Method, e.Path, operation["security"], e.Scope)
		}
		h.checkOperation(e, operation)
	}
	codes := document.at("components.schemas.ErrorView.properties.code.enum").([]any)
	for _, entry := range core.Codes {
		if !slices.Contains(codes, any(string(entry.Code))) {
			t.Errorf("code %s is missing", entry.Code)
		}
	}
}

// checkOperation compiles every schema of an operation and counts its fields.
func (h *testHub) checkOperation(e *Endpoint, operation map[string]any) {
	h.t.Helper()
	place := []string{"paths", e.Path, e.operationMethod()}
	for status := range operation["responses"].(map[string]any) {
		h.schemaAt(append(place, "responses", status, "content", "application/json", "schema")...)
	}
	names := 0
	if parameters, ok := operation["parameters"].([]any); ok {
		for _, p := range parameters {
			if p.(map[string]any)["in"] == "query" {
				names++
			}
		}
	}
	if _, ok := operation["requestBody"]; ok {
		h.schemaAt(append(place, "requestBody", "content", "application/json", "schema")...)
		schema := answer{body: operation}.at("requestBody.content").(map[string]any)["application/json"].(map[string]any)["schema"].(map[string]any)
		names = len(schema["properties"].(map[string]any))
	}
	if names != len(e.request.fields) {
		h.t.Errorf("%s %s: %d of %d fields are described", e.Method, e.Path, names, len(e.request.fields))
	}
}

// TestRequestSchemasRefuseWhatTheDecoderRefuses: the schemas are no looser than
// the rules they are made of, where JSON Schema can say it.
func TestRequestSchemasRefuseWhatTheDecoderRefuses(t *testing.T) {
	h := newTestHub(t)
	for _, e := range h.app.endpoints {
		if !e.readsBody() {
			continue
		}
		schema := h.schemaAt("paths", e.Path, e.operationMethod(), "requestBody", "content", "application/json", "schema")
		for _, c := range e.request.fieldCases("", unwrapped) {
			for _, value := range c.rule.refused() {
				if strings.Contains(string(value), `\ud83d`) || string(value) == `""` && c.rule.kind == kindText || strings.Contains(string(value), "1e999") {
					continue // half a surrogate pair and infinity have no value to validate
				}
				body, err := json.Marshal(c.with(value))
				must(t, err)
				instance, err := jsonschema.UnmarshalJSON(strings.NewReader(string(body)))
				must(t, err)
				if schema.Validate(instance) == nil {
					t.Errorf("%s: the schema takes %s = %.60s", e.Path, c.field, value)
				}
			}
		}
	}
}
