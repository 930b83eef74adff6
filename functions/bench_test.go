package functions

import (
	"context"
	"reflect"
	"strings"
	"testing"
)

// BenchmarkHeartbeat is a heartbeat through the whole function: event, token,
// decoding, one UpdateItem to the embedded AWS in process, answer, log line.
func BenchmarkHeartbeat(b *testing.B) {
	h := newTestHub(b)
	h.online("a1", 1)
	handler, _ := h.app.HTTP("heartbeat")
	event := h.event("POST", "/bridge/heartbeat", fields{"agent_id": "a1", "presence_generation": 1}, nil)
	b.ReportAllocs()
	for b.Loop() {
		if response, err := handler(context.Background(), event); err != nil || response.StatusCode != 200 {
			b.Fatal(response.StatusCode, err)
		}
	}
}

// BenchmarkRefusal is a request that reaches no store: what the adapter itself
// costs.
func BenchmarkRefusal(b *testing.B) {
	h := newTestHub(b)
	handler, _ := h.app.HTTP("register")
	event := h.event("POST", "/bridge/register", fields{"agent_id": "a1"}, nil)
	b.ReportAllocs()
	for b.Loop() {
		if response, err := handler(context.Background(), event); err != nil || response.StatusCode != 400 {
			b.Fatal(response.StatusCode, err)
		}
	}
}

// BenchmarkDecode reads a register of 1 MiB, most of it a field that is ignored.
func BenchmarkDecode(b *testing.B) {
	request, err := shapeOf(reflect.TypeFor[registerRequest]())
	must(b, err)
	body := []byte(`{"agent_id":"a1","cli":"codex","unknown":[` + strings.Repeat(`{"k":"v"},`, 100_000) + `0]}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		value, err := scanJSON(body)
		must(b, err)
		var r registerRequest
		must(b, request.decode(value, "", reflect.ValueOf(&r).Elem()))
	}
}
