package functions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"drawbridge/core"
)

// assigned gives a job from l to w and returns the answer.
func (h *testHub) assigned(more fields, headers ...string) answer {
	h.t.Helper()
	body := fields{"supervisor_agent": "l", "worker_agent": "w", "task": "t"}
	for name, value := range more {
		body[name] = value
	}
	return h.send("POST", "/bridge/assign/async", body, headers...)
}

func (h *testHub) newJob(more fields) string {
	h.t.Helper()
	return h.assigned(more).expect(h.t, 200, "").at("data.job_id").(string)
}

func (h *testHub) report(job, status string, more fields) answer {
	h.t.Helper()
	body := fields{"job_id": job, "status": status}
	for name, value := range more {
		body[name] = value
	}
	return h.send("POST", "/bridge/assign/result", body)
}

func (h *testHub) job(id string) answer {
	h.t.Helper()
	return h.send("POST", "/bridge/assign/status", fields{"job_id": id}).expect(h.t, 200, "")
}

// told lists the events in the messages of an inbox: a supervisor's by event, a
// worker's by kind.
func (h *testHub) told(agent string) []string {
	h.t.Helper()
	var events []string
	for _, m := range h.emptied(agent) {
		payload := m["payload"].(map[string]any)
		if payload["event"] != nil {
			events = append(events, payload["event"].(string))
		} else {
			events = append(events, payload["kind"].(string))
		}
	}
	slices.Sort(events)
	return events
}

func (h *testHub) wantTold(agent string, want ...string) {
	h.t.Helper()
	slices.Sort(want)
	if got := h.told(agent); !slices.Equal(got, want) {
		h.t.Errorf("%s was told %v, want %v", agent, got, want)
	}
}

// The vectors 124 to 137 of the contract, as compat 1, 3, 12 and 19 leave them.
func TestTheContractsVectorsOfAssignments(t *testing.T) {
	h := newTestHub(t)
	a := h.assigned(fields{"max_retries": 1}).expect(t, 200, "") // 124
	id := a.at("data.job_id").(string)
	m := h.onlyMessage("w")
	payload := m["payload"].(map[string]any)
	if a.at("data.status") != "queued" || a.number("data.attempt") != 1 || a.at("data.assigned_to") != "w" || a.at("data.last_message_id") != m["id"] ||
		payload["kind"] != "assign.job" || payload["assign_job_id"] != id || payload["reason"] != "create" || payload["task"] != "t" ||
		m["type"] != "handoff" || m["from_agent"] != "l" || m["topic"] != "assign.job" || encoded(t, m["ttl_ms"]) != "600000" {
		t.Errorf("124: %s %v", a.text, m)
	}
	h.send("POST", "/bridge/assign/async", fields{"supervisor_agent": "l"}).refusesField(t, core.CodeInvalidArgument, "worker_agent") // 125

	a = h.report(id, "failed", fields{"attempt": 1, "error": "broken"}).expect(t, 200, "") // 126
	if a.at("data.retried") != true || a.at("data.status") != "queued" || a.number("data.attempt") != 2 || a.number("data.retry_count") != 1 ||
		a.at("data.retry_reason") != "failed" || a.at("data.requested_by") != "w" || a.at("data.result") != nil || a.at("data.error") != "broken" {
		t.Errorf("126: %s", a.text)
	}
	h.wantTold("l", "retry_scheduled")
	if again := h.onlyMessage("w")["payload"].(map[string]any); again["reason"] != "retry" || encoded(t, again["attempt"]) != "2" {
		t.Errorf("126: the worker got %v", again)
	}
	h.send("POST", "/bridge/assign/retry", fields{"job_id": id}).expect(t, 409, core.CodeAssignRetryExhausted)           // 127
	a = h.report(id, "completed", fields{"attempt": 1, "result": "late"}).expect(t, 409, core.CodeAssignAttemptMismatch) // 128
	late := h.onlyMessage("l")
	details := late["payload"].(map[string]any)
	if a.at("error.details.preserved") != true || a.at("error.details.preserved_message_id") != late["id"] || details["event"] != "late_result" ||
		encoded(t, details["stale_attempt"]) != "1" || details["late_result"] != "late" || details["late_status"] != "succeeded" || h.job(id).at("data.status") != "queued" {
		t.Errorf("128: %s %v", a.text, late)
	}
	done := fields{"attempt": 2, "metadata": fields{"result": "success"}, "result": fields{"o": 1}}
	a = h.report(id, "completed", done).expect(t, 200, "") // 129
	if a.at("data.status") != "succeeded" || encoded(t, a.at("data.result")) != `{"o":1}` || a.at("data.deadline_ms") != nil || a.at("data.completed_at_ms") == nil {
		t.Errorf("129: %s", a.text)
	}
	h.wantTold("l", "completed")
	if again := h.report(id, "completed", done).expect(t, 200, ""); again.at("replayed") != true {
		t.Errorf("a repeated report answers %s", again.text)
	}
	other := h.report(id, "failed", fields{"attempt": 2}).expect(t, 409, core.CodeAssignAlreadyFinal)
	if other.at("data.status") != "succeeded" || len(h.emptied("l")) != 0 {
		t.Errorf("another outcome answers %s", other.text)
	}

	id = h.newJob(nil)
	h.report(id, "running", fields{"worker_agent": "other"}).expect(t, 409, core.CodeAssignWorkerMismatch)       // 130
	h.report("missing", "running", nil).expect(t, 404, core.CodeAssignNotFound)                                  // 131, compat 3
	h.send("POST", "/bridge/assign/status", fields{"job_id": "missing"}).expect(t, 404, core.CodeAssignNotFound) // 132
	h.report(id, "banana", nil).refusesField(t, core.CodeInvalidArgument, "status")                              // 133, compat 12
	h.told("w")

	id = h.newJob(fields{"timeout_ms": 5000})
	h.clock.advance(2 * time.Second)
	h.told("w") // 134
	if a := h.job(id); a.number("data.dispatched_at_ms") != h.now() || a.number("data.deadline_ms") != h.now()+5000 {
		t.Errorf("134: %s", a.text)
	}
	h.clock.advance(5 * time.Second)
	h.runSweep("sweep-assignments") // 135
	if a := h.job(id); a.at("data.status") != "timed_out" {
		t.Errorf("135: %s", a.text)
	}
	if p := h.onlyMessage("l")["payload"].(map[string]any); p["event"] != "completed" || p["completion_reason"] != "timed_out" {
		t.Errorf("135: the supervisor got %v", p)
	}
	h.wantTold("w", "assign.cancel")

	id = h.newJob(fields{"timeout_ms": 5000, "max_retries": 1})
	h.clock.advance(5 * time.Second)
	h.runSweep("sweep-assignments") // 136
	if a := h.job(id); a.at("data.status") != "queued" || a.number("data.attempt") != 2 {
		t.Errorf("136: %s", a.text)
	}
	h.wantTold("w", "assign.job", "assign.cancel", "assign.job")

	a = h.assigned(fields{"priority": 99, "timeout_ms": 1}).expect(t, 200, "") // 137
	if m := h.onlyMessage("w"); a.number("data.timeout_ms") != 1000 || encoded(t, m["priority"]) != "9" {
		t.Errorf("137: %s %v", a.text, m)
	}
}

func TestTheStatusWordsOfAReport(t *testing.T) {
	h := newTestHub(t)
	for _, test := range []struct {
		word string
		more fields
		want string
	}{
		{" Running ", nil, "running"}, {"in_progress", nil, "running"}, {"queued", nil, "queued"},
		{"TIMEOUT", nil, "timed_out"}, {"timed_out", nil, "timed_out"}, {"error", nil, "failed"}, {"failed", nil, "failed"},
		{"success", nil, "succeeded"}, {"succeeded", nil, "succeeded"}, {"completed", nil, "succeeded"},
		{"completed", fields{"metadata": fields{"result": "failed"}}, "failed"},
		{"completed", fields{"metadata": fields{"result": nil, "status": "error"}}, "failed"},
		{"completed", fields{"metadata": fields{"outcome": "timeout"}}, "timed_out"},
		{"completed", fields{"metadata": fields{"result": "success", "outcome": "failed"}}, "succeeded"},
		{"completed", fields{"payload": fields{"metadata": fields{"result": "failed"}}}, "failed"},
		{"completed", fields{"payload": fields{"metadata": fields{"result": "failed"}}, "metadata": fields{"result": "success"}}, "succeeded"},
		{"completed", fields{"metadata": fields{"result": 5}}, "succeeded"},
	} {
		if a := h.report(h.newJob(nil), test.word, test.more).expect(t, 200, ""); a.at("data.status") != test.want {
			t.Errorf("%s with %v is %v, want %s", test.word, test.more, a.at("data.status"), test.want)
		}
	}
	for _, word := range []string{"banana", "succeeded!", "done", "성공"} {
		h.report(h.newJob(nil), word, nil).refusesField(t, core.CodeInvalidArgument, "status")
	}
}

func TestWhatAReportLeavesOfAResult(t *testing.T) {
	h := newTestHub(t)
	for _, test := range []struct {
		more          fields
		result, error string
	}{
		{nil, `{}`, `null`},
		{fields{"result": nil, "payload": fields{"x": 1}}, `{"x":1}`, `null`},
		{fields{"payload": fields{"result": 0, "error": "e"}}, `0`, `"e"`},
		{fields{"payload": fields{"result": nil}}, `null`, `null`},
		{fields{"result": "r", "error": fields{"m": 1}, "payload": fields{"result": "p", "error": "q"}}, `"r"`, `{"m":1}`},
		{fields{"payload": "text"}, `"text"`, `null`},
	} {
		a := h.report(h.newJob(nil), "succeeded", test.more).expect(t, 200, "")
		if encoded(t, a.at("data.result")) != test.result || encoded(t, a.at("data.error")) != test.error {
			t.Errorf("%v leaves %s", test.more, a.text)
		}
	}
}

// hatchet-dev/hatchet#1022: the late result of an attempt that timed out is
// refused and recorded.
func TestAResultAtTheDeadlineIsLate(t *testing.T) {
	h := newTestHub(t)
	id := h.newJob(fields{"timeout_ms": 1000})
	h.told("w")
	h.clock.advance(time.Second)
	for range 3 { // repeated by a client that got no answer
		a := h.report(id, "succeeded", fields{"attempt": 1, "result": "r"}).expect(t, 409, core.CodeAssignAlreadyFinal)
		if a.at("data.status") != "timed_out" || a.at("error.details.preserved") != true {
			t.Errorf("the report answers %s", a.text)
		}
	}
	h.wantTold("l", "completed", "late_result")
}

// hatchet-dev/hatchet#2432, gastownhall/gastown#909: what an earlier attempt does
// has no effect on the present one.
func TestAnEarlierAttemptHasNoEffect(t *testing.T) {
	h := newTestHub(t)
	id := h.newJob(fields{"timeout_ms": 1000, "max_retries": 1})
	h.clock.advance(time.Second)
	before := h.job(id)
	for _, word := range []string{"running", "failed", "succeeded"} {
		h.report(id, word, fields{"attempt": 1}).expect(t, 409, core.CodeAssignAttemptMismatch)
	}
	h.report(id, "succeeded", fields{"attempt": nil}).expect(t, 409, core.CodeAssignAttemptMismatch) // null counts as 0
	if after := h.job(id); after.text != before.text {
		t.Errorf("the job went from %s to %s", before.text, after.text)
	}
}

// riverqueue/river#682, hexpm/hexpm#1825: work that reports is not timed out,
// however long it takes, and silence is.
func TestProgressRenewsTheDeadline(t *testing.T) {
	h := newTestHub(t)
	id := h.newJob(fields{"timeout_ms": 60000})
	h.told("w")
	for range 360 { // three hours
		h.clock.advance(30 * time.Second)
		h.report(id, "running", fields{"attempt": 1, "result": "same"}).expect(t, 200, "")
	}
	h.runSweep("sweep-assignments")
	if a := h.job(id); a.at("data.status") != "running" || a.number("data.deadline_ms") != h.now()+60000 {
		t.Errorf("the job reads %s", a.text)
	}
	h.clock.advance(time.Minute)
	if a := h.job(id); a.at("data.status") != "timed_out" {
		t.Errorf("a silent job reads %s", a.text)
	}
	id = h.newJob(fields{"timeout_ms": 86_400_000})
	h.told("w")
	began := h.now()
	h.clock.advance(5 * time.Hour)
	if a := h.report(id, "running", nil).expect(t, 200, ""); a.number("data.deadline_ms") != began+6*3_600_000 {
		t.Errorf("the ceiling of 6 hours: %s", a.text)
	}
}

func TestRetriesWaitTheirDelay(t *testing.T) {
	h := newTestHub(t)
	id := h.newJob(fields{"max_retries": 20, "retry_delay_ms": 600_000, "retry_backoff": "exponential"})
	h.told("w")
	for attempt, delay := range []time.Duration{10 * time.Minute, 20 * time.Minute, 40 * time.Minute, time.Hour, time.Hour} {
		a := h.report(id, "failed", fields{"attempt": attempt + 1}).expect(t, 200, "")
		if a.at("data.status") != "queued" || a.number("data.retry_at_ms") != h.now()+delay.Milliseconds() || len(h.emptied("w")) != 0 {
			t.Fatalf("retry %d: %s", attempt+1, a.text)
		}
		h.clock.advance(delay - time.Millisecond)
		if a := h.job(id); a.at("data.last_message_id") != nil || len(h.emptied("w")) != 0 {
			t.Fatalf("retry %d is early: %s", attempt+1, a.text)
		}
		h.clock.advance(time.Millisecond)
		if attempt%2 == 0 {
			h.runSweep("sweep-assignments")
		} else {
			h.job(id) // a read dispatches it as well
		}
		if m := h.onlyMessage("w"); encoded(t, m["payload"].(map[string]any)["attempt"]) != fmt.Sprint(attempt+2) {
			t.Fatalf("retry %d: the worker got %v", attempt+1, m)
		}
	}
	if a := h.job(id); a.number("data.deadline_ms") != h.now()+600_000 {
		t.Errorf("the deadline of the attempt: %s", a.text)
	}
}

func TestManualRetries(t *testing.T) {
	h := newTestHub(t)
	retry := func(id string, more fields) answer {
		body := fields{"job_id": id}
		for name, value := range more {
			body[name] = value
		}
		return h.send("POST", "/bridge/assign/retry", body)
	}
	id := h.newJob(fields{"max_retries": 3, "timeout_ms": 1000, "retry_on_timeout": false})
	if a := retry(id, nil).expect(t, 409, core.CodeAssignActive); a.at("data.status") != "queued" {
		t.Errorf("a queued job answers %s", a.text)
	}
	h.report(id, "running", nil).expect(t, 200, "")
	retry(id, nil).expect(t, 409, core.CodeAssignActive)
	// powertools-lambda-python#8049: nobody knows whether the work was done, and
	// the supervisor has chosen not to repeat it by itself.
	h.clock.advance(time.Second)
	if a := h.job(id); a.at("data.status") != "timed_out" || a.number("data.retry_count") != 0 {
		t.Errorf("a job without retries on timeouts reads %s", a.text)
	}
	a := retry(id, fields{"reason": "looked at it", "requested_by": "ops", "supervisor_agent": "l"}).expect(t, 200, "")
	if a.at("data.retried") != true || a.at("data.retry_reason") != "looked at it" || a.at("data.requested_by") != "ops" || a.number("data.attempt") != 2 {
		t.Errorf("the retry answers %s", a.text)
	}
	h.report(id, "succeeded", fields{"attempt": 2}).expect(t, 200, "")
	retry(id, nil).expect(t, 409, core.CodeAssignAlreadyFinal)
	if a := retry(id, fields{"force": true}).expect(t, 200, ""); a.at("data.retry_reason") != "manual" || a.at("data.requested_by") != "manual" {
		t.Errorf("a forced retry answers %s", a.text)
	}
	retry(id, fields{"supervisor_agent": "x"}).expect(t, 409, core.CodeAssignSupervisorMismatch)
	retry("missing", nil).expect(t, 404, core.CodeAssignNotFound)
	done := h.newJob(nil)
	h.report(done, "failed", nil).expect(t, 200, "")
	retry(done, nil).expect(t, 409, core.CodeAssignRetryExhausted)
}

// Tencent/WeKnora#3462, openclaw/openclaw#71127: ending a job has an effect, on
// the worker too.
func TestCancellingTellsTheWorkerAndTheSupervisor(t *testing.T) {
	h := newTestHub(t)
	id := h.newJob(fields{"max_retries": 3})
	h.told("w")
	cancel := fields{"job_id": id, "reason": "not needed", "requested_by": "ops"}
	a := h.send("POST", "/bridge/assign/cancel", cancel).expect(t, 200, "")
	if a.at("data.status") != "failed" || a.at("data.error.code") != "cancelled" || a.at("data.error.reason") != "not needed" || a.at("data.retried") != nil {
		t.Errorf("the cancel answers %s", a.text)
	}
	m := h.onlyMessage("w")
	if payload := m["payload"].(map[string]any); m["topic"] != "assign.cancel" || m["from_agent"] != "assign-router" || encoded(t, m["priority"]) != "8" ||
		payload["assign_job_id"] != id || payload["reason"] != "not needed" {
		t.Errorf("the worker got %v", m)
	}
	h.wantTold("l", "completed")
	if again := h.send("POST", "/bridge/assign/cancel", cancel).expect(t, 409, core.CodeAssignAlreadyFinal); again.at("data.error.code") != "cancelled" {
		t.Errorf("cancelling again answers %s", again.text)
	}
	h.report(id, "succeeded", fields{"attempt": 1, "result": "r"}).expect(t, 409, core.CodeAssignAlreadyFinal)
	h.wantTold("l", "late_result")
	h.send("POST", "/bridge/assign/cancel", fields{"job_id": "missing"}).expect(t, 404, core.CodeAssignNotFound)
}

func TestStaleActorsNeitherAssignNorReport(t *testing.T) {
	h := newTestHub(t)
	h.online("l", 2)
	h.online("w", 2)
	stale, live := fields{"presence_generation": 1}, fields{"presence_generation": 2}
	h.assigned(stale).expect(t, 409, core.CodeStalePresenceOwner)
	id := h.assigned(live).expect(t, 200, "").at("data.job_id").(string)
	before := h.items()
	h.report(id, "succeeded", stale).expect(t, 409, core.CodeStalePresenceOwner)
	for _, path := range []string{"cancel", "retry"} {
		h.send("POST", "/bridge/assign/"+path, fields{"job_id": id, "presence_generation": 1, "supervisor_agent": "l"}).expect(t, 409, core.CodeStalePresenceOwner)
	}
	// oban-bg/oban#1087: a creation that was refused has not used its key.
	h.assigned(stale, "idempotency-key", "k").expect(t, 409, core.CodeStalePresenceOwner)
	h.mustNotWrite(before, "stale actors")
	if a := h.assigned(live, "idempotency-key", "k").expect(t, 200, ""); a.has("replayed") {
		t.Errorf("a refused creation is replayed: %s", a.text)
	}
	h.report(id, "succeeded", live).expect(t, 200, "")
	h.report(id, "failed", fields{"attempt": 9, "presence_generation": 1}).expect(t, 409, core.CodeStalePresenceOwner)
}

func TestATokenThatIsBoundReportsAndCancelsByName(t *testing.T) {
	h := newTestHub(t)
	h.createToken("agent-x", core.Token{Scopes: []core.Scope{core.ScopeAgent}, AgentIDs: []string{"x"}})
	id := h.newJob(nil)
	x := h.as("agent-x")
	x.report(id, "succeeded", nil).expect(t, 403, core.CodeForbidden)
	x.report(id, "succeeded", fields{"worker_agent": "w"}).expect(t, 403, core.CodeForbidden)
	x.report(id, "succeeded", fields{"worker_agent": "x"}).expect(t, 409, core.CodeAssignWorkerMismatch)
	x.send("POST", "/bridge/assign/cancel", fields{"job_id": id}).expect(t, 403, core.CodeForbidden)
	x.send("POST", "/bridge/assign/cancel", fields{"job_id": id, "supervisor_agent": "x"}).expect(t, 409, core.CodeAssignSupervisorMismatch)
}

// oban-bg/oban#1505, a2aproject/A2A#928: 50 at once with one key are one job,
// and everybody learns its id; after it failed too (hibiken/asynq#629: for 24
// hours, whatever became of the job).
func TestOneKeyIsOneJob(t *testing.T) {
	h := newTestHub(t)
	ids := make([]any, 50)
	var wait sync.WaitGroup
	for i := range ids {
		wait.Go(func() { ids[i] = h.assigned(nil, "idempotency-key", "k").expect(t, 200, "").at("data.job_id") })
	}
	wait.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("jobs %v", ids)
		}
	}
	h.wantTold("w", "assign.job")
	h.report(ids[0].(string), "failed", nil).expect(t, 200, "")
	if a := h.assigned(nil, "idempotency-key", "k").expect(t, 200, ""); a.at("data.job_id") != ids[0] || a.at("replayed") != true || a.at("data.status") != "failed" {
		t.Errorf("after its failure the key answers %s", a.text)
	}
	h.assigned(fields{"task": "u"}, "idempotency-key", "k").expect(t, 409, core.CodeIdempotencyMismatch)
	h.clock.advance(24*time.Hour + time.Second)
	if a := h.assigned(nil, "idempotency-key", "k").expect(t, 200, ""); a.at("data.job_id") == ids[0] {
		t.Errorf("a day later the key answers %s", a.text)
	}
}

func TestListsOfJobs(t *testing.T) {
	h := newTestHub(t)
	var all []string
	for i := range 25 {
		h.clock.advance(time.Millisecond)
		id := h.newJob(fields{"worker_agent": fmt.Sprint("w", i%2), "supervisor_agent": fmt.Sprint("l", i%5), "trace_id": fmt.Sprint("t", i%3), "timeout_ms": 1000 * (i + 1)})
		all = append(all, id)
		if i%4 == 0 {
			h.report(id, "succeeded", nil).expect(t, 200, "")
		}
	}
	pick := func(keep func(i int) bool) []string {
		var ids []string
		for i := len(all) - 1; i >= 0; i-- {
			if keep(i) {
				ids = append(ids, all[i])
			}
		}
		return ids
	}
	for _, test := range []struct {
		query fields
		keep  func(i int) bool
	}{
		{nil, func(int) bool { return true }},
		{fields{"worker_agent": "w1"}, func(i int) bool { return i%2 == 1 }},
		{fields{"supervisor_agent": "l3"}, func(i int) bool { return i%5 == 3 }},
		{fields{"trace_id": "t2"}, func(i int) bool { return i%3 == 2 }},
		{fields{"correlation_id": "none"}, func(int) bool { return false }},
		{fields{"status": "succeeded"}, func(i int) bool { return i%4 == 0 }},
		{fields{"status": "failed", "statuses": []string{"queued", "succeeded"}}, func(int) bool { return true }},
		{fields{"statuses": []string{"queued"}, "worker_agent": "w0"}, func(i int) bool { return i%2 == 0 && i%4 != 0 }},
		{fields{"active_before_ms": h.now() + 5000}, func(i int) bool { return i%4 != 0 && h.job(all[i]).number("data.deadline_ms") <= h.now()+5000 }},
	} {
		want := pick(test.keep)
		var got []string
		body := fields{"limit": 3}
		for name, value := range test.query {
			body[name] = value
		}
		for pages := 0; ; pages++ {
			a := h.send("POST", "/bridge/assign/status", body).expect(t, 200, "")
			for _, job := range a.at("data.assigns").([]any) {
				got = append(got, job.(map[string]any)["job_id"].(string))
			}
			if a.at("data.next_cursor") == nil || pages > 30 {
				break
			}
			body["cursor"] = a.at("data.next_cursor")
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v lists %d, want %d: %v, %v", test.query, len(got), len(want), got, want)
		}
	}
	h.clock.advance(3 * time.Second) // nobody has met the overdue ones
	a := h.send("POST", "/bridge/assign/status", fields{"status": "timed_out"}).expect(t, 200, "")
	if n := len(a.at("data.assigns").([]any)); n != 2 { // the third of the first four has succeeded... the first
		t.Errorf("%d jobs read as timed out, want 2: %s", n, a.text)
	}
	h.send("POST", "/bridge/assign/status", fields{"cursor": "nonsense"}).refusesField(t, core.CodeInvalidArgument, "cursor")
	foreign := h.send("POST", "/bridge/assign/status", fields{"limit": 3, "worker_agent": "w1"}).at("data.next_cursor")
	h.send("POST", "/bridge/assign/status", fields{"worker_agent": "w0", "cursor": foreign}).refusesField(t, core.CodeInvalidArgument, "cursor")
}

func TestLargeContentsAndResultsAreKeptApart(t *testing.T) {
	h := newTestHub(t)
	large := strings.Repeat("x", 200_000)
	id := h.assigned(fields{"payload": large, "max_retries": 1}).expect(t, 200, "").at("data.job_id").(string)
	if p := h.onlyMessage("w")["payload"].(map[string]any); p["payload"] != large {
		t.Error("the worker does not get the payload")
	}
	h.report(id, "failed", fields{"result": large, "error": large, "attempt": 1}).expect(t, 200, "")
	if p := h.onlyMessage("w")["payload"].(map[string]any); p["payload"] != large {
		t.Error("the worker does not get the payload again")
	}
	h.report(id, "succeeded", fields{"result": large, "attempt": 2}).expect(t, 200, "")
	if a := h.job(id); a.at("data.result") != large || a.at("data.error") != nil {
		t.Errorf("the job reads %.200s", a.text)
	}
	for _, item := range h.items() {
		if len(item) > 30_000 {
			t.Errorf("an item of %d bytes", len(item))
		}
	}
	a := h.send("GET", "/bridge/events?job_id="+id, nil).expect(t, 200, "")
	events := a.at("data.events").([]any)
	if last := events[len(events)-1].(map[string]any); last["result"] != large || events[1].(map[string]any)["error"] != large {
		t.Error("the events lack their outcomes")
	}
}

// --- events

func (h *testHub) events(target, cursor string) ([]map[string]any, string) {
	h.t.Helper()
	if cursor != "" {
		target += "&cursor=" + url.QueryEscape(cursor)
	}
	a := h.send("GET", "/bridge/events?"+target, nil).expect(h.t, 200, "")
	var events []map[string]any
	for _, e := range a.at("data.events").([]any) {
		events = append(events, e.(map[string]any))
	}
	return events, a.at("data.next_cursor").(string)
}

func names(events []map[string]any, field string) string {
	var list []string
	for _, e := range events {
		list = append(list, fmt.Sprint(e[field]))
	}
	return strings.Join(list, " ")
}

func TestTheEventsOfAJobAreNumberedWithoutAGap(t *testing.T) {
	h := newTestHub(t)
	id := h.newJob(fields{"max_retries": 1, "timeout_ms": 1000})
	events, cursor := h.events("job_id="+id, "")
	if names(events, "status") != "queued" || names(events, "event") != "assign_job_status" || events[0]["task"] != "t" {
		t.Errorf("the creation is told as %v", events)
	}
	h.report(id, "running", nil).expect(t, 200, "")
	h.report(id, "running", nil).expect(t, 200, "") // no change of status
	h.clock.advance(time.Second)                    // nobody meets the deadline but the reader
	h.events("job_id="+id, cursor)
	h.report(id, "succeeded", fields{"attempt": 2, "result": "r"}).expect(t, 200, "")
	events, cursor = h.events("job_id="+id, cursor)
	if names(events, "status") != "running timed_out queued succeeded" || names(events, "seq") != "2 3 4 5" || names(events, "attempt") != "1 1 2 2" ||
		events[3]["result"] != "r" {
		t.Errorf("the job's life is told as %v", events)
	}
	if events, again := h.events("job_id="+id, cursor); len(events) != 0 || again != cursor {
		t.Errorf("the end is told again: %v", events)
	}
	h.send("GET", "/bridge/events?job_id=missing", nil).expect(t, 404, core.CodeAssignNotFound)
	h.send("GET", "/bridge/events?job_id=a&agent_id=b", nil).refusesField(t, core.CodeInvalidArgument, "job_id")
	h.send("GET", "/bridge/events?job_id=other&cursor="+url.QueryEscape(cursor), nil).refusesField(t, core.CodeInvalidArgument, "cursor")
}

func TestAFollowerWaitsForTheNextEvent(t *testing.T) {
	h := newTestHub(t)
	id := h.newJob(nil)
	_, cursor := h.events("job_id="+id, "")
	if events, _ := h.events("wait_ms=30&job_id="+id, cursor); len(events) != 0 {
		t.Errorf("nothing happened, and it is told as %v", events)
	}
	go h.as(operatorToken).report(id, "running", nil)
	if events, _ := h.events("wait_ms=20000&job_id="+id, cursor); names(events, "status") != "running" {
		t.Errorf("the report is told as %v", events)
	}
}

// Nothing is written for them: a heartbeat costs what it costs without any.
func TestTheEventsOfAnAgentAreTheDifferenceToWhatItsFollowerSaw(t *testing.T) {
	h := newTestHub(t)
	events, cursor := h.events("agent_id=a", "")
	if len(events) != 0 {
		t.Errorf("an unknown agent is told as %v", events)
	}
	register := fields{"agent_id": "a", "cli": "codex", "timeout_sec": -60, "step": 1, "step_deadline_ms": 10_000}
	next := func(want string) {
		t.Helper()
		before := h.items()
		events, cursor = h.events("agent_id=a", cursor)
		if names(events, "event") != want {
			t.Errorf("told as %v, want %s", events, want)
		}
		h.mustNotWrite(before, "following an agent")
	}
	h.register(register).expect(t, 200, "")
	next("agent_registered")
	next("")
	h.clock.advance(11 * time.Second)
	next("agent_hung")
	h.send("POST", "/bridge/heartbeat", fields{"agent_id": "a", "step": 2, "ttl_ms": 60_000}).expect(t, 200, "")
	next("agent_progressed")
	h.clock.advance(time.Minute + time.Millisecond)
	next("agent_stale")
	h.clock.advance(core.OfflineAfter)
	next("agent_offline")
	h.send("POST", "/bridge/heartbeat", fields{"agent_id": "a", "step": 3}).expect(t, 200, "")
	next("agent_online")
	h.send("POST", "/bridge/deregister", fields{"agent_id": "a"}).expect(t, 200, "")
	next("agent_offline")
	h.register(register).expect(t, 200, "")
	h.send("POST", "/bridge/deregister", fields{"agent_id": "a"}).expect(t, 200, "")
	next("agent_registered agent_offline")
}

// --- the relay

// fakeBus takes events, and refuses the ones it is told to.
type fakeBus struct {
	mu     sync.Mutex
	refuse int
	taken  []string
}

func (b *fakeBus) PutEvents(_ context.Context, in *eventbridge.PutEventsInput, _ ...func(*eventbridge.Options)) (*eventbridge.PutEventsOutput, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse--
	switch {
	case b.refuse == 1:
		return nil, errors.New("the bus is away")
	case b.refuse == 0:
		return &eventbridge.PutEventsOutput{FailedEntryCount: 1, Entries: []types.PutEventsResultEntry{{ErrorCode: aws.String("ThrottlingException")}}}, nil
	}
	b.taken = append(b.taken, aws.ToString(in.Entries[0].Detail))
	return &eventbridge.PutEventsOutput{Entries: []types.PutEventsResultEntry{{EventId: aws.String("1")}}}, nil
}

func TestTheRelaySendsEveryEventInTheOrderOfItsJob(t *testing.T) {
	h := newTestHub(t)
	bus := &fakeBus{refuse: 5}
	h.store.RelayEvents()
	h.relay = busRelay{client: bus, bus: "events"}
	h.app = h.newApp()
	ids := []string{h.newJob(fields{"task": strings.Repeat("x", 300_000)}), h.newJob(nil), h.newJob(nil)}
	for _, id := range ids {
		h.report(id, "running", nil).expect(t, 200, "")
		h.report(id, "succeeded", nil).expect(t, 200, "")
	}
	run, _ := h.app.Sweep("sweep-events")
	for range 3 { // the bus refuses two of its events
		if err := run(context.Background(), nil); err == nil {
			break
		}
	}
	must(t, run(context.Background(), nil))
	seen := map[string]string{}
	for _, detail := range bus.taken {
		var frame struct {
			JobID  string `json:"job_id"`
			Seq    int    `json:"seq"`
			Status string `json:"status"`
			Cut    bool   `json:"cut"`
		}
		must(t, json.Unmarshal([]byte(detail), &frame))
		seen[frame.JobID] += fmt.Sprint(frame.Seq, frame.Status, " ")
		if frame.Cut != (frame.JobID == ids[0]) || len(detail) > 256<<10 {
			t.Errorf("an event of %d bytes, cut %t", len(detail), frame.Cut)
		}
	}
	for _, id := range ids {
		if seen[id] != "1queued 2running 3succeeded " {
			t.Errorf("job %s was relayed as %q", id, seen[id])
		}
	}
}
