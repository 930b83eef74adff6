package functions

import (
	"testing"
	"time"

	"drawbridge/core"
	"drawbridge/localstack/fakeaws"
)

func TestHealthTellsHowTheSweepsDo(t *testing.T) {
	h := newTestHub(t).as("")
	a := h.send("GET", "/health", nil).expect(t, 200, "")
	if a.at("ok") != true || a.at("store") != "dynamodb" || a.at("version") != Version || !a.has("node") || a.number("sessions") != 0 {
		t.Errorf("health is %s", a.text)
	}
	sweep := func() answer {
		a := h.send("GET", "/healthz", nil).expect(t, 200, "")
		return answer{body: a.at("sweeps").([]any)[0].(map[string]any)}
	}
	if s := sweep(); s.at("name") != core.SweepPresence || s.at("last_run_at_ms") != nil || s.at("last_success_at_ms") != nil {
		t.Errorf("a sweep that never ran is %v", s.body)
	}
	h.sweep()
	if s := sweep(); s.number("last_success_at_ms") != h.now() || s.number("consecutive_failures") != 0 || s.at("last_error_code") != nil {
		t.Errorf("a sweep that ran is %v", s.body)
	}

	h.clock.advance(time.Minute)
	broken := h.aws.Faults().Add(fakeaws.Rule{Op: "Query", Action: fakeaws.Error(500, "InternalServerError")})
	run, _ := h.app.Sweep("sweep-agents")
	for range 2 {
		if err := run(t.Context(), nil); err == nil {
			t.Fatal("a sweep that cannot read succeeds")
		}
	}
	broken.Remove()
	if s := sweep(); s.number("consecutive_failures") != 2 || s.at("last_error_code") != string(core.CodeUnavailable) ||
		s.number("last_success_at_ms") != h.now()-60_000 || s.number("last_run_at_ms") != h.now() {
		t.Errorf("a sweep that failed twice is %v", s.body)
	}
	if line := h.lastLog(); line["outcome"] != "OK" {
		t.Errorf("health was logged as %v", line)
	}
}

func TestHealthIs503WhenTheTableDoesNotAnswer(t *testing.T) {
	h := newTestHub(t).as("")
	h.aws.Faults().Add(fakeaws.Rule{Action: fakeaws.Error(500, "InternalServerError")})
	a := h.send("GET", "/health", nil).expect(t, 503, core.CodeUnavailable)
	if a.at("ok") != false || a.at("error.retryable") != true || a.headers["retry-after"] == "" || a.at("version") != Version {
		t.Errorf("health is %s", a.text)
	}
	if line := h.lastLog(); line["outcome"] != string(core.CodeUnavailable) || line["level"] != "WARN" {
		t.Errorf("health was logged as %v", line)
	}
	for _, path := range []string{"/", "/status"} {
		h.send("GET", path, nil).expect(t, 503, core.CodeUnavailable)
	}
}

func TestRootIsTheFlatState(t *testing.T) {
	h := newTestHub(t)
	a := h.send("GET", "/status", nil).expect(t, 200, "")
	for path, want := range map[string]any{
		"hub.state": "healthy", "auth_mode": "token-required", "pipe_path": nil, "pipe.path": nil, "pipe.protocol": "ndjson",
		"assign_callback_pipe.path": nil, "port": nil, "version": Version, "roles.cto.role": "cto",
	} {
		if !a.has(path) || a.at(path) != want {
			t.Errorf("%s is %v, want %v", path, a.at(path), want)
		}
	}
	for _, path := range []string{"sessions", "pid", "idle_timeout_ms", "pipe.clients", "pipe.pending_messages", "spawn_trace.max_per_sec", "queues.dlq_depth"} {
		if a.number(path) != 0 {
			t.Errorf("%s is %v", path, a.at(path))
		}
	}
	if _, err := time.Parse(time.RFC3339, a.at("last_request_at").(string)); err != nil {
		t.Error(err)
	}
}
