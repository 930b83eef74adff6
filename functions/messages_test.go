package functions

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"drawbridge/core"
)

func (h *testHub) publish(body fields) answer { return h.send("POST", "/bridge/publish", body) }

// drained drains an agent's inbox and returns the messages.
func (h *testHub) drained(body fields) []map[string]any {
	h.t.Helper()
	a := h.send("POST", "/bridge/context", body).expect(h.t, 200, "")
	if a.number("data.count") != int64(len(a.at("data.messages").([]any))) {
		h.t.Errorf("the count is wrong: %s", a.text)
	}
	var messages []map[string]any
	for _, m := range a.at("data.messages").([]any) {
		messages = append(messages, m.(map[string]any))
	}
	return messages
}

func (h *testHub) sweepMessages() {
	h.t.Helper()
	sweep, _ := h.app.Sweep("sweep-messages")
	must(h.t, sweep(h.t.Context(), nil))
}

// traced returns the messages of a trace.
func (h *testHub) traced(trace any) []map[string]any {
	h.t.Helper()
	var messages []map[string]any
	for _, m := range h.send("GET", fmt.Sprint("/bridge/status?scope=trace&trace_id=", trace), nil).expect(h.t, 200, "").at("data.trace").([]any) {
		messages = append(messages, m.(map[string]any))
	}
	return messages
}

func (h *testHub) deadLetters(query string) []map[string]any {
	h.t.Helper()
	var letters []map[string]any
	for _, l := range h.send("GET", "/bridge/dead-letters"+query, nil).expect(h.t, 200, "").at("data.dead_letters").([]any) {
		letters = append(letters, l.(map[string]any))
	}
	return letters
}

// TestPublishVectors are the contract's vectors 82 to 91.
func TestPublishVectors(t *testing.T) {
	h := newTestHub(t)
	h.register(fields{"agent_id": "r", "cli": "codex"})
	a := h.publish(fields{"from": "s", "to": "r", "topic": "t", "payload": fields{"v": 1}}).expect(t, 200, "") // 82
	if a.number("data.fanout_count") != 1 || a.number("data.expires_at_ms") != h.now()+300_000 || a.at("data.message_id") == nil {
		t.Errorf("answer %s", a.text)
	}
	if state := a.at("data.recipients").([]any)[0].(map[string]any); state["agent_id"] != "r" || state["status"] != "online" {
		t.Errorf("the recipient's state is %v", state)
	}

	ghost := h.publish(fields{"from": "s", "to": "ghost", "topic": "t", "trace_id": "g"}).expect(t, 200, "") // 83
	if ghost.number("data.fanout_count") != 1 || h.traced("g")[0]["status"] != "delivered" {
		t.Errorf("answer %s", ghost.text)
	}
	h.register(fields{"agent_id": "x1", "cli": "codex", "topics": []string{"x"}})
	h.register(fields{"agent_id": "x2", "cli": "codex", "topics": []string{"x"}})
	if a := h.publish(fields{"from": "s", "to": "topic:x", "topic": "t"}); a.number("data.fanout_count") != 2 { // 84
		t.Errorf("answer %s", a.text)
	}
	nobody := h.publish(fields{"from": "s", "to": "topic:y", "topic": "t", "trace_id": "y"}).expect(t, 200, "") // 85
	if nobody.number("data.fanout_count") != 0 || h.traced("y")[0]["status"] != "queued" {
		t.Errorf("answer %s", nobody.text)
	}
	h.publish(fields{"from": "s", "to": "r", "topic": "t", "trace_id": "e", "correlation_id": "c"}).expect(t, 200, "") // 86
	if m := h.traced("e")[0]; m["type"] != "event" || m["correlation_id"] != "c" {
		t.Errorf("stored %v", m)
	}
	h.send("POST", "/bridge/result", fields{"agent_id": "r", "trace_id": "res", "correlation_id": "c"}).expect(t, 200, "") // 87
	if m := h.traced("res")[0]; m["type"] != "response" || m["to_agent"] != "topic:task.result" || m["ttl_ms"] == nil {
		t.Errorf("stored %v", m)
	}

	before := h.items()
	h.publish(fields{"from": "s", "to": "r", "topic": "t", "priority": 10}).refusesField(t, core.CodeInvalidArgument, "priority") // 88
	h.publish(fields{"from": "s", "to": "r"}).refusesField(t, core.CodeInvalidArgument, "topic")
	h.publish(fields{"from": "s", "to": "r", "topic": "t", "type": "foo"}).refusesField(t, core.CodeInvalidArgument, "type")
	h.publish(fields{"from": "s", "to": "r", "topic": "t", "ttl_ms": 604_800_001}).refusesField(t, core.CodeInvalidArgument, "ttl_ms")
	h.publish(fields{"from": "s", "to": "topic:", "topic": "t"}).refusesField(t, core.CodeInvalidArgument, "to")
	h.publish(fields{"from": "s", "to": "r", "topic": "t", "if_recipient": "here"}).refusesField(t, core.CodeInvalidArgument, "if_recipient")
	h.publish(fields{"from": "s", "to": "r", "payload": fields{"topic": "t", "priority": "high"}}).refusesField(t, core.CodeInvalidArgument, "payload.priority")
	h.publish(fields{"from": "s", "to": "gone", "topic": "t", "if_recipient": "online"}).expect(t, 409, core.CodeRecipientNotOnline)
	h.send("POST", "/bridge/control", fields{"command": "pause"}).refusesField(t, core.CodeInvalidArgument, "to_agent") // 90
	h.mustNotWrite(before, "refused messages")

	handoff := h.send("POST", "/bridge/handoff", fields{"from": "s", "to": "w", "topic": "task.handoff", "task": "x", "trace_id": "h"}).expect(t, 200, "") // 89
	if handoff.at("data.state") != "queued" || handoff.at("data.assigned_to") != "w" || handoff.at("data.handoff_message_id") == nil {
		t.Errorf("answer %s", handoff.text)
	}
	if m := h.traced("h")[0]; fmt.Sprint(m["ttl_ms"]) != "600000" || m["type"] != "handoff" {
		t.Errorf("stored %v", m)
	}
	h.send("POST", "/bridge/control", fields{"to_agent": "cw", "command": "pause", "payload": fields{"command": "stop"}, "ttl_ms": 5}).expect(t, 200, "") // 91
	m := h.drained(fields{"agent_id": "cw"})[0]
	if payload := m["payload"].(map[string]any); payload["command"] != "stop" || fmt.Sprint(payload["issued_at"]) != fmt.Sprint(h.now()) ||
		fmt.Sprint(m["priority"]) != "8" || fmt.Sprint(m["ttl_ms"]) != "1000" || m["from_agent"] != "lead" {
		t.Errorf("the command arrives as %v", m)
	}
}

func TestFieldsThatTheBodyLeavesOutComeFromAnObjectPayload(t *testing.T) {
	h := newTestHub(t)
	h.publish(fields{"from": "s", "to": "r", "payload": fields{
		"topic": "in", "priority": 7, "ttl_ms": 9, "trace_id": "tr", "correlation_id": "co", "type": "nonsense", "from": "other",
	}}).expect(t, 200, "")
	m := h.traced("tr")[0]
	if m["topic"] != "in" || fmt.Sprintf("%v %v", m["priority"], m["ttl_ms"]) != "7 9" || m["correlation_id"] != "co" || m["type"] != "event" || m["from_agent"] != "s" {
		t.Errorf("stored %v", m)
	}
	h.publish(fields{"from": "s", "to": "r", "topic": "own", "trace_id": "own", "payload": fields{"topic": "in"}}).expect(t, 200, "")
	if m := h.traced("own")[0]; m["topic"] != "own" {
		t.Errorf("stored %v", m)
	}
	h.publish(fields{"from": "s", "to": "r", "topic": "t", "message_type": "request", "trace_id": "mt", "payload": []int{1}}).expect(t, 200, "")
	if m := h.traced("mt")[0]; m["type"] != "request" {
		t.Errorf("stored %v", m)
	}
}

// TestDrainVectors are the contract's vectors 92 to 97.
func TestDrainVectors(t *testing.T) {
	h := newTestHub(t)
	send := func(priority int) string {
		h.clock.advance(time.Millisecond)
		return h.publish(fields{"from": "s", "to": "r", "topic": "t", "priority": priority, "trace_id": "x", "payload": fields{"v": 1}}).at("data.message_id").(string)
	}
	older, urgent, newer := send(5), send(8), send(5)
	got := h.drained(fields{"agent_id": "r"}) // 92
	for i, want := range []string{urgent, older, newer} {
		if len(got) != 3 || got[i]["id"] != want || got[i]["status"] != "acked" || got[i]["payload_json"] != `{"v":1}` {
			t.Fatalf("drained %v", got)
		}
	}
	if len(h.drained(fields{"agent_id": "r"})) != 0 { // 93
		t.Error("drained again")
	}
	id := send(5)
	for range 2 { // 94
		if got := h.drained(fields{"agent_id": "r", "auto_ack": false}); len(got) != 1 || got[0]["id"] != id || got[0]["status"] != "delivered" {
			t.Fatalf("drained %v", got)
		}
	}

	h.register(fields{"agent_id": "f1", "cli": "codex", "topics": []string{"f"}})
	h.register(fields{"agent_id": "f2", "cli": "codex", "topics": []string{"f"}})
	h.publish(fields{"from": "s", "to": "topic:f", "topic": "t", "trace_id": "f"})
	h.drained(fields{"agent_id": "f1"}) // 95
	if s := h.traced("f")[0]["status"]; s != "delivered" {
		t.Errorf("status %v", s)
	}
	h.drained(fields{"agent_id": "f2"})
	if m := h.traced("f"); len(m) != 1 || m[0]["status"] != "acked" || m[0]["payload_json"] != nil {
		t.Errorf("trace %v", m)
	}
	for _, topic := range []string{"a", "b"} {
		h.publish(fields{"from": "s", "to": "m", "topic": topic})
	}
	if got := h.drained(fields{"agent_id": "m", "topics": []string{"a"}}); len(got) != 1 || got[0]["topic"] != "a" { // 96
		t.Errorf("drained %v", got)
	}
	h.send("POST", "/bridge/context", fields{"max_messages": 5}).refusesField(t, core.CodeInvalidArgument, "agent_id") // 97
	h.send("POST", "/bridge/context", fields{"agent_id": "m", "visibility_ms": 1000}).refusesField(t, core.CodeInvalidArgument, "visibility_ms")
	if pending := h.agent("r").at("data.agent"); pending != nil {
		t.Errorf("r never registered and reads %v", pending)
	}
	h.register(fields{"agent_id": "r", "cli": "codex"})
	if n := h.agent("r").number("data.agent.pending"); n != 1 {
		t.Errorf("%d pending", n)
	}
}

// TestDeadLetterVectors are the contract's vectors 98 to 109 as they show over
// HTTP; 106, 110 and 111 are about a store that fails inside a sweep and are
// tested there.
func TestDeadLetterVectors(t *testing.T) {
	h := newTestHub(t)
	publish := func(ttl int, body fields) string {
		all := fields{"from": "s", "to": "r", "topic": "t", "ttl_ms": ttl}
		for k, v := range body {
			all[k] = v
		}
		return h.publish(all).expect(t, 200, "").at("data.message_id").(string)
	}
	first := publish(100, fields{"trace_id": "first"})
	publish(101, fields{"to": "later"})
	h.clock.advance(100 * time.Millisecond)
	h.sweepMessages() // 98, 99, 100
	letters := h.deadLetters("")
	if len(letters) != 1 || letters[0]["message_id"] != first || letters[0]["reason"] != "ttl_expired" || letters[0]["last_error"] != nil ||
		fmt.Sprint(letters[0]["failed_at_ms"]) != fmt.Sprint(h.now()) || h.traced("first")[0]["status"] != "dead_letter" {
		t.Fatalf("dead letters %v", letters)
	}
	h.sweepMessages() // 101, 102
	if again := h.deadLetters(""); len(again) != 1 || fmt.Sprint(again) != fmt.Sprint(letters) {
		t.Errorf("dead letters %v", again)
	}

	publish(300_000, fields{"to": "m", "max_deliveries": 1}) // 103, 104: the first reason wins
	lease := fields{"agent_id": "m", "auto_ack": false, "visibility_ms": 1000}
	receipt := h.drained(lease)[0]["receipt"]
	nacked := h.send("POST", "/bridge/nack", fields{"agent_id": "m", "receipts": []any{receipt}, "error": "boom"}).expect(t, 200, "")
	if nacked.number("data.nacked") != 1 {
		t.Errorf("answer %s", nacked.text)
	}
	h.clock.advance(time.Hour)
	h.sweepMessages()
	letters = h.deadLetters("?to=m")
	if len(letters) != 1 || letters[0]["reason"] != "max_deliveries" || letters[0]["last_error"] != "boom" || fmt.Sprint(letters[0]["deliveries"]) != "1" {
		t.Fatalf("dead letters %v", letters)
	}

	h.send("POST", "/bridge/handoff", fields{"from": "sup", "to": "w", "topic": "task.handoff", "task": "x", "trace_id": "h"})
	h.clock.advance(600 * time.Second)
	h.sweepMessages() // 107, 108
	h.sweepMessages()
	notices := h.drained(fields{"agent_id": "sup"})
	if len(notices) != 1 {
		t.Fatalf("notices %v", notices)
	}
	payload := notices[0]["payload"].(map[string]any)
	if notices[0]["topic"] != "handoff.dead_letter" || payload["kind"] != "handoff.dead_letter" || payload["task"] != "x" || payload["original_to"] != "w" ||
		fmt.Sprint(payload["expired_at_ms"]) != fmt.Sprint(h.now()) || fmt.Sprint(payload["failed_at_ms"]) != fmt.Sprint(h.now()) || notices[0]["trace_id"] != "h" {
		t.Errorf("the notice is %v", notices[0])
	}
	publish(10, fields{"from": "boss", "type": "request", "payload": fields{"kind": "assign.job"}}) // 109
	publish(10, fields{"from": "boss"})
	h.clock.advance(time.Second)
	h.sweepMessages()
	if notices := h.drained(fields{"agent_id": "boss"}); len(notices) != 0 {
		t.Errorf("notices %v", notices)
	}

	id := h.deadLetters("?to=w")[0]["dead_letter_id"] // 105
	h.send("POST", "/bridge/dead-letters/redrive", fields{"dead_letter_ids": []any{id}, "ttl_ms": 1000}).expect(t, 200, "")
	again := h.send("POST", "/bridge/dead-letters/redrive", fields{"dead_letter_ids": []any{id}}).expect(t, 200, "")
	if again.number("data.redriven") != 0 || again.at("data.results").([]any)[0].(map[string]any)["code"] != "ALREADY_REDRIVEN" {
		t.Errorf("answer %s", again.text)
	}
	h.clock.advance(time.Second)
	h.sweepMessages()
	if notices := h.drained(fields{"agent_id": "sup"}); len(notices) != 0 {
		t.Errorf("the second death is told: %v", notices)
	}
	if letters := h.deadLetters("?to=w"); len(letters) != 2 || letters[1]["dead_letter_id"] != id || letters[1]["redriven_at_ms"] == nil || letters[0]["redriven_at_ms"] != nil {
		t.Errorf("dead letters %v", letters)
	}
	if q := h.send("GET", "/bridge/status", nil); q.number("data.queues.dlq_depth") == 0 || q.number("data.queues.as_of_ms") != h.now() {
		t.Errorf("the depths are %s", q.text)
	}
}

func TestAReceiptGoesTheWholeWayOverHTTP(t *testing.T) {
	h := newTestHub(t)
	h.publish(fields{"from": "s", "to": "r", "topic": "t"})
	lease := fields{"agent_id": "r", "auto_ack": false, "visibility_ms": 1000}
	m := h.drained(lease)[0]
	if m["receipt"] == nil || fmt.Sprint(m["deliveries"]) != "1" || m["status"] != "delivered" {
		t.Fatalf("leased %v", m)
	}
	nack := h.send("POST", "/bridge/nack", fields{"agent_id": "r", "receipts": []any{m["receipt"]}, "delay_ms": 500}).expect(t, 200, "")
	if nack.number("data.nacked") != 1 || len(h.drained(lease)) != 0 {
		t.Errorf("answer %s", nack.text)
	}
	h.clock.advance(500 * time.Millisecond)
	again := h.drained(lease)[0]
	stale := h.send("POST", "/bridge/ack", fields{"agent_id": "r", "receipts": []any{m["receipt"], again["receipt"], "nonsense"}}).expect(t, 200, "")
	if got := fmt.Sprint(stale.at("data.results")); stale.number("data.acked") != 1 ||
		!strings.Contains(got, "RECEIPT_STALE") || !strings.Contains(got, "NOT_FOUND") {
		t.Errorf("answer %s", stale.text)
	}
}

func TestAnAnswerReachesAWaitingAsk(t *testing.T) {
	h := newTestHub(t)
	h.publish(fields{"from": "s", "to": "other", "topic": "t"}) // makes the identity
	var a answer
	var wait sync.WaitGroup
	wait.Go(func() {
		a = h.send("POST", "/bridge/ask", fields{"from": "s", "to": "w", "topic": "t", "question": "why?", "correlation_id": "c", "await_response_ms": 20_000})
	})
	h.publish(fields{"from": "w", "to": "s", "topic": "t", "type": "response", "correlation_id": "c", "payload": fields{"answer": 42}}).expect(t, 200, "")
	wait.Wait()
	a.expect(t, 200, "")
	if a.at("data.state") != "answered" || fmt.Sprint(a.at("data.response.answer")) != "42" || a.at("data.request_message_id") == nil {
		t.Errorf("answer %s", a.text)
	}
}

func TestAStaleAgentActsOnNoMessageEndpoint(t *testing.T) {
	h := newTestHub(t)
	h.online("a", 2)
	h.publish(fields{"from": "s", "to": "a", "topic": "t"})
	before := h.items()
	for path, body := range map[string]fields{
		"publish": {"from": "a", "to": "b", "topic": "t"}, "handoff": {"from": "a", "to": "b", "topic": "t"},
		"result": {"agent_id": "a"}, "control": {"from_agent": "a", "to_agent": "b", "command": "x"},
		"ask":     {"from": "a", "to": "b", "topic": "t", "question": "q"},
		"context": {"agent_id": "a"}, "ack": {"agent_id": "a", "message_ids": []string{"m"}}, "nack": {"agent_id": "a", "receipts": []string{"m.r"}},
	} {
		body["presence_generation"] = 1
		a := h.send("POST", "/bridge/"+path, body).expect(t, 409, core.CodeStalePresenceOwner)
		if a.number("data.presence_generation") != 2 || a.at("data.hub_instance_id") == nil {
			t.Errorf("%s: %s", path, a.text)
		}
		body["presence_generation"], body["hub_instance_id"] = 2, "old"
		h.send("POST", "/bridge/"+path, body).expect(t, 409, core.CodeStaleHubInstance)
	}
	h.mustNotWrite(before, "stale agents")
}

// The sizes of the issue, in ASCII and in multi-byte text.
func TestBodiesUpTo1MiBAreTakenAndOneByteMoreIsNot(t *testing.T) {
	h := newTestHub(t)
	body := func(size int, unit string) string {
		start, end := `{"from":"s","to":"r","topic":"t","payload":"`, `"}`
		fill := size - len(start) - len(end)
		return start + strings.Repeat(unit, fill/len(unit)) + strings.Repeat("x", fill%len(unit)) + end
	}
	for _, unit := range []string{"x", "한"} {
		for _, size := range []int{399 << 10, 400 << 10, 401 << 10, 1 << 20} {
			sent := body(size, unit)
			h.send("POST", "/bridge/publish", sent).expect(t, 200, "")
			got := h.drained(fields{"agent_id": "r"})
			if len(got) != 1 || !strings.Contains(sent, `"`+got[0]["payload"].(string)+`"`) || got[0]["payload_json"] != nil {
				t.Fatalf("%d bytes of %s come back otherwise", size, unit)
			}
		}
		before := h.items()
		h.send("POST", "/bridge/publish", body(1<<20+1, unit)).expect(t, 413, core.CodeBodyTooLarge)
		h.mustNotWrite(before, "a body that is too large")
	}
}

func TestAnAnswerOfADrainFitsLambdaWhateverItsTextIs(t *testing.T) {
	h := newTestHub(t)
	quotes := `{"from":"s","to":"r","topic":"t","payload":[` + strings.TrimSuffix(strings.Repeat(`"",`, 80_000), ",") + `]}`
	for range 12 {
		h.send("POST", "/bridge/publish", quotes).expect(t, 200, "")
	}
	left := 12
	for left > 0 {
		a := h.send("POST", "/bridge/context", fields{"agent_id": "r", "max_messages": 100}).expect(t, 200, "")
		framed := len(a.text) + strings.Count(a.text, `"`) + strings.Count(a.text, `\`)
		if len(a.text) > core.MaxDrainBytes || framed > 6_000_000 || a.number("data.count") == 0 {
			t.Fatalf("%d messages in %d bytes, %d framed", a.number("data.count"), len(a.text), framed)
		}
		left -= int(a.number("data.count"))
	}
}

func TestAFilterThatIsNotUnderstoodRedrivesNothing(t *testing.T) {
	h := newTestHub(t)
	for field, filter := range map[string]any{"filter": fields{"recipient": "r"}, "filter.from_ms": fields{"from_ms": "x"}} {
		h.send("POST", "/bridge/dead-letters/redrive", fields{"filter": filter}).refusesField(t, core.CodeInvalidArgument, field)
	}
	h.send("POST", "/bridge/dead-letters/redrive", fields{}).refusesField(t, core.CodeInvalidArgument, "dead_letter_ids")
	h.send("POST", "/bridge/dead-letters/redrive", fields{"filter": fields{}, "max": 0}).refusesField(t, core.CodeInvalidArgument, "max")
}
