package functions

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// observed is the body of an enqueue: state n of a file.
func observed(file string, n int) map[string]any {
	return map[string]any{"agent": "claude", "source_path": "/home/a/" + file, "source_bytes": 100 * n,
		"source_modified_at": fmt.Sprintf("2026-01-01T00:00:%02d.1239+01:00", n), "event": "stop", "session_id": "s"}
}

func (h *testHub) queue(endpoint string, body map[string]any) answer {
	h.t.Helper()
	return h.send("POST", "/bridge/queue/"+endpoint, body)
}

// worked does what must succeed.
func (h *testHub) worked(endpoint string, body map[string]any) answer {
	h.t.Helper()
	a := h.queue(endpoint, body)
	if a.status != 200 {
		h.t.Fatalf("%s %v: %d %s", endpoint, body, a.status, a.text)
	}
	return a
}

// leased claims one job and returns the fields that every operation on it needs.
func (h *testHub) leased() map[string]any {
	h.t.Helper()
	jobs, _ := h.worked("claim", map[string]any{"owner": "w"}).at("data.jobs").([]any)
	if len(jobs) != 1 {
		h.t.Fatalf("claimed %d jobs, want 1", len(jobs))
	}
	job := answer{body: jobs[0].(map[string]any)}
	return map[string]any{"id": job.at("id"), "lease_id": job.at("lease.id")}
}

func with(body map[string]any, more ...any) map[string]any {
	body = maps.Clone(body)
	for pair := range slices.Chunk(more, 2) {
		body[pair[0].(string)] = pair[1]
	}
	return body
}

func TestAnArchiveJobGoesThroughItsLifeOverHTTP(t *testing.T) {
	h := newTestHub(t)
	a := h.worked("enqueue", observed("x", 1))
	if a.at("data.deduped") != false || len(a.at("data.superseded").([]any)) != 0 {
		t.Fatalf("enqueued: %s", a.text)
	}
	id := a.at("data.job.id").(string)
	for field, want := range map[string]any{
		"status": "ready", "agent": "claude", "source_path": "/home/a/x", "source_bytes": json.Number("100"), "event": "stop",
		"session_id": "s", "source_modified_at": "2025-12-31T23:00:01.123Z", "enqueued_at": "2023-11-14T22:13:20.000Z",
		"updated_at": "2023-11-14T22:13:20.000Z", "next_attempt_at": "2023-11-14T22:13:20.000Z", "attempts": json.Number("0"),
	} {
		if got := a.at("data.job." + field); got != want {
			t.Errorf("%s is %v, want %v", field, got, want)
		}
	}
	if h.worked("enqueue", observed("x", 1)).at("data.deduped") != true {
		t.Error("the second enqueue was not recognised")
	}

	lease := h.leased()
	if a := h.worked("claim", map[string]any{"owner": "w"}); a.number("data.heartbeat_ms") != 60_000 || len(a.at("data.jobs").([]any)) != 0 {
		t.Errorf("a claim of nothing: %s", a.text)
	}
	h.clock.advance(time.Minute)
	if a := h.worked("renew", lease); a.at("data.job.lease.expires_at") != "2023-11-14T22:19:20.000Z" || a.at("data.job.lease.owner") != "w" {
		t.Errorf("renewed: %s", a.text)
	}
	if a := h.worked("progress", with(lease, "bytes", 10, "of", 100)); a.number("data.job.progress.bytes") != 10 {
		t.Errorf("progressed: %s", a.text)
	}
	if a := h.worked("release", with(lease, "reason", map[string]any{"code": "bye", "message": "shutdown"})); a.at("data.job.last_error.code") != "bye" {
		t.Errorf("released: %s", a.text)
	}
	a = h.queue("renew", lease)
	if a.status != 409 || a.code() != "queue_lease_invalid" || a.at("data.job.id") != id || a.at("data.job.status") != "ready" {
		t.Errorf("a renewal of what was released: %d %s", a.status, a.text)
	}
	lease = h.leased()
	if a := h.worked("fail", with(lease, "error", map[string]any{"code": "io", "message": ""})); a.at("data.job.next_attempt_at") != "2023-11-14T22:14:35.000Z" {
		t.Errorf("failed: %s", a.text)
	}
	if a := h.worked("retry", map[string]any{"id": id}); a.number("data.job.attempts") != 0 {
		t.Errorf("retried: %s", a.text)
	}
	lease = h.leased()
	done := with(lease, "result", map[string]any{"archive_id": "ar", "ciphertext_sha256": "c0", "bytes": 7, "deduplicated": false},
		"source_snapshot", map[string]any{"bytes": 200, "modified_at": "2026-01-01T00:00:02Z"})
	a = h.worked("complete", done)
	if a.at("data.job.result.completed_at") != "2023-11-14T22:14:20.000Z" || a.at("data.job.result.deduplicated") != false || a.has("data.job.lease") || a.has("replayed") {
		t.Errorf("completed: %s", a.text)
	}
	if a := h.worked("complete", done); a.at("replayed") != true {
		t.Errorf("completed again: %s", a.text)
	}
	for endpoint, code := range map[string]string{"retry": "queue_job_done", "remove": "queue_job_done"} {
		if a := h.queue(endpoint, map[string]any{"id": id}); a.status != 409 || a.code() != code || a.at("data.job.status") != "done" {
			t.Errorf("%s of a done job: %d %s", endpoint, a.status, a.text)
		}
	}
	if a := h.queue("remove", map[string]any{"id": strings.Repeat("0", 64)}); a.status != 404 || a.code() != "queue_job_not_found" {
		t.Errorf("remove of nothing: %d %s", a.status, a.text)
	}

	h.worked("enqueue", observed("y", 1))
	a = h.send("GET", "/bridge/queue/stats", nil)
	for field, want := range map[string]int64{"total": 2, "ready": 1, "leased": 0, "done": 1, "completed": 1, "superseded": 0, "failed": 0, "damaged": 0} {
		if got := a.number("data." + field); got != want {
			t.Errorf("stats %s is %d, want %d", field, got, want)
		}
	}
	if a.at("data.claimable") != true {
		t.Errorf("stats: %s", a.text)
	}
	a = h.send("GET", "/bridge/queue/jobs?limit=1", nil)
	if len(a.at("data.jobs").([]any)) != 1 || len(a.at("data.damaged").([]any)) != 0 || a.at("data.cursor") == nil {
		t.Errorf("jobs: %s", a.text)
	}
	a = h.send("GET", "/bridge/queue/jobs?limit=1&cursor="+a.at("data.cursor").(string), nil)
	if len(a.at("data.jobs").([]any)) != 1 || a.has("data.cursor") {
		t.Errorf("the last page: %s", a.text)
	}
	if a := h.send("GET", "/bridge/queue/jobs?status=failed", nil); len(a.at("data.jobs").([]any)) != 0 {
		t.Errorf("failed jobs: %s", a.text)
	}
	if a := h.send("GET", "/bridge/queue/jobs?id="+id, nil); a.at("data.job.id") != id || a.has("data.jobs") {
		t.Errorf("one job: %s", a.text)
	}
}

func TestABatchOfObservationsGetsAnOutcomeForEach(t *testing.T) {
	h := newTestHub(t)
	relative := observed("z", 1)
	relative["source_path"] = "home"
	byMs := observed("x", 1)
	delete(byMs, "source_modified_at")
	byMs["source_modified_at_ms"] = 1_767_222_001_123
	a := h.worked("enqueue", map[string]any{"requests": []any{observed("x", 1), relative, 7, map[string]any{}, byMs, observed("x", 2)}})
	outcomes := a.at("data.outcomes").([]any)
	for i, want := range []string{"", "requests[1].source_path", "requests[2]", "requests[3].source_bytes", "", ""} {
		o := answer{body: outcomes[i].(map[string]any)}
		if o.at("ok") != (want == "") {
			t.Errorf("outcome %d is %v", i, o.body)
		}
		if field, _ := o.at("error.details.field").(string); field != want {
			t.Errorf("outcome %d names %q, want %q", i, field, want)
		}
	}
	if again := (answer{body: outcomes[4].(map[string]any)}); again.at("deduped") != true {
		t.Errorf("the same time in milliseconds made another job: %v", again.body)
	}
	if last := (answer{body: outcomes[5].(map[string]any)}); len(last.at("superseded").([]any)) != 1 {
		t.Errorf("the later state retired %v", last.at("superseded"))
	}
}

func TestNestedFieldsOfTheQueueAreRefusedByName(t *testing.T) {
	h := newTestHub(t)
	lease := map[string]any{"id": strings.Repeat("0", 64), "lease_id": "l"}
	result := map[string]any{"archive_id": "a", "ciphertext_sha256": "c", "bytes": 1}
	for _, c := range []struct {
		endpoint, field string
		body            map[string]any
	}{
		{"complete", "result.archive_id", with(lease, "result", map[string]any{"ciphertext_sha256": "c", "bytes": 1})},
		{"complete", "result.bytes", with(lease, "result", with(result, "bytes", -1))},
		{"complete", "result.deduplicated", with(lease, "result", with(result, "deduplicated", "no"))},
		{"complete", "source_snapshot.modified_at", with(lease, "result", result, "source_snapshot", map[string]any{"bytes": 1, "modified_at": "yesterday"})},
		{"fail", "error.message", with(lease, "error", map[string]any{"code": "c"})},
		{"release", "reason.code", with(lease, "reason", map[string]any{"message": ""})},
		{"enqueue", "source_modified_at", with(observed("x", 1), "source_modified_at", "2026-13-01T00:00:00Z")},
		{"enqueue", "agent", with(observed("x", 1), "agent", "")},
		{"enqueue", "source_bytes", with(observed("x", 1), "source_bytes", nil)},
		{"claim", "from", map[string]any{"owner": "w", "from": "elsewhere"}},
		{"claim", "max", map[string]any{"owner": "w", "max": 11}},
	} {
		a := h.queue(c.endpoint, c.body)
		if a.status != 400 || a.at("error.details.field") != c.field {
			t.Errorf("%s %v: %d %s, want field %s", c.endpoint, c.body, a.status, a.text, c.field)
		}
	}
}
