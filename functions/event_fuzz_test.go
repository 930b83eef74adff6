package functions

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/aws/aws-lambda-go/events"
)

// FuzzEvent hands any event to every function over one hub: each is answered,
// never with a fault, with JSON or nothing, in headers that keep to their line.
func FuzzEvent(f *testing.F) {
	for _, seed := range []struct {
		method, path, query, header, value, body string
		encoded                                  bool
	}{
		{"POST", "/bridge/register", "", "idempotency-key", "k", `{"agent_id":"a","cli":"codex","topics":["t"]}`, false},
		{"POST", "/bridge/heartbeat", "", "x-correlation-id", "c", `{"agents":[{"agent_id":"a","presence_generation":1}]}`, false},
		{"POST", "/bridge/deregister", "", "origin", "http://localhost:1", `{"agent_id":"a","final":true}`, false},
		{"POST", "/bridge/status", "", "origin", "null", `eyJhZ2VudF9pZCI6ImEifQ==`, true},
		{"GET", "/bridge/status", "scope=agent&agent_id=%E2%9C%93", "", "", "", false},
		{"GET", "/bridge/agents", "limit=5&cursor=x", "", "", "", false},
		{"POST", "/bridge/hub/rotate", "", "", "", `{}`, false},
		{"OPTIONS", "/mcp", "", "origin", "http://[::1]", "", false},
		{"PUT", "/bridge/%2e%2e/health", "a=%zz", "authorization", "Bearer x", "\xff", true},
		{"HEAD", "/health", "", "", "", "", false},
	} {
		f.Add(seed.method, seed.path, seed.query, seed.header, seed.value, seed.body, seed.encoded)
	}
	h := newTestHub(f)
	f.Fuzz(func(t *testing.T, method, path, query, header, value, body string, encoded bool) {
		event := events.APIGatewayV2HTTPRequest{
			RawPath: path, RawQueryString: query, Body: body, IsBase64Encoded: encoded,
			Headers: map[string]string{"authorization": "Bearer " + operatorToken, header: value},
		}
		event.RequestContext.HTTP.Method = method
		handler, ok := h.app.HTTP(h.function(method, path))
		if !ok {
			t.Fatal("no function")
		}
		response, err := handler(context.Background(), event)
		if err != nil || response.StatusCode < 200 || response.StatusCode >= 500 && response.StatusCode != 503 {
			t.Fatalf("answer %d %s, %v", response.StatusCode, response.Body, err)
		}
		if response.Body != "" && !json.Valid([]byte(response.Body)) {
			t.Fatalf("the answer is no JSON: %q", response.Body)
		}
		for name, value := range response.Headers {
			if !isPrintableASCII(name + value) {
				t.Fatalf("header %s: %q", name, value)
			}
		}
	})
}
