package functions

import (
	"encoding/json"
	"strings"
	"testing"

	"drawbridge/core"
)

func TestEveryRequestIsOneLogLine(t *testing.T) {
	h := newTestHub(t)
	h.identity()
	start := strings.Count(h.log.String(), "\n")
	h.send("POST", "/bridge/register", fields{"agent_id": "agent-with-an-id", "cli": "codex", "metadata": fields{"key": "payload-text"}}, "x-correlation-id", "corr-1")
	line := h.lastLog()
	for key, want := range map[string]any{
		"level": "INFO", "msg": "request", "request_id": "gateway-request", "correlation_id": "corr-1", "endpoint": "register",
		"method": "POST", "status": 200.0, "outcome": "OK", "remote": "192.0.2.7", "aws_requests": 1.0, "read_units": 0.0,
	} {
		if line[key] != want {
			t.Errorf("%s is %v, want %v", key, line[key], want)
		}
	}
	if units, _ := line["write_units"].(float64); units < 1 {
		t.Errorf("write_units is %v", line["write_units"])
	}
	if took, ok := line["duration_ms"].(float64); !ok || took <= 0 {
		t.Errorf("duration_ms is %v", line["duration_ms"])
	}
	h.as("wrong-token-text").send("POST", "/bridge/register", fields{"agent_id": "agent-with-an-id"})
	if line = h.lastLog(); line["outcome"] != string(core.CodeUnauthorized) || line["status"] != 401.0 {
		t.Errorf("a refusal is logged as %v", line)
	}
	h.send("GET", "/bridge/path-with-secret-text?token=query-text", nil)
	h.send("BREW\n{}", "/bridge/register", "{}")
	if line = h.lastLog(); line["method"] != "other" {
		t.Errorf("an unknown method is logged as %v", line["method"])
	}
	if got := strings.Count(h.log.String(), "\n") - start; got != 4 {
		t.Errorf("4 requests made %d lines", got)
	}
	for _, secret := range []string{operatorToken, core.TokenHash(operatorToken), "wrong-token-text", "payload-text", "agent-with-an-id", "secret-text", "query-text"} {
		if strings.Contains(h.log.String(), secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
}

func TestASweepIsOneLogLine(t *testing.T) {
	h := newTestHub(t)
	h.sweep()
	line := h.lastLog()
	if line["msg"] != "sweep" || line["endpoint"] != "sweep-agents" || line["outcome"] != "OK" || line["aws_requests"].(float64) < 1 {
		t.Errorf("the line is %v", line)
	}
}

func TestLogLevelsAreReadAsLambdaWritesThem(t *testing.T) {
	for level, lines := range map[string]int{"DEBUG": 3, "INFO": 2, "": 2, "nonsense": 2, "WARN": 1, "ERROR": 0} {
		out := &lockedBuffer{}
		log := NewLog(out, level)
		log.Debug("d")
		log.Info("i")
		log.Warn("w\n{\"forged\":1}")
		if got := strings.Count(out.String(), "\n"); got != lines {
			t.Errorf("level %q writes %d lines, want %d", level, got, lines)
		}
		for line := range strings.SplitSeq(strings.TrimSpace(out.String()), "\n") {
			if line != "" && !json.Valid([]byte(line)) {
				t.Errorf("line %q is no JSON", line)
			}
		}
	}
}
