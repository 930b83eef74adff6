package functions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"drawbridge/core"
)

func (h *testHub) runSweep(name string) {
	h.t.Helper()
	run, ok := h.app.Sweep(name)
	if !ok {
		h.t.Fatalf("there is no %s", name)
	}
	must(h.t, run(context.Background(), nil))
}

// question asks a person and returns the request's id.
func (h *testHub) question(more fields) string {
	h.t.Helper()
	body := fields{"requester_agent": "a", "kind": "approval", "prompt": "p", "deadline_ms": 60000, "default_action": "decline"}
	for name, value := range more {
		body[name] = value
	}
	return h.send("POST", "/bridge/hitl/request", body).expect(h.t, 200, "").at("data.request_id").(string)
}

func (h *testHub) submit(id, action string, content any) answer {
	h.t.Helper()
	return h.send("POST", "/bridge/hitl/submit", fields{"request_id": id, "action": action, "content": content})
}

func (h *testHub) human(id string, more fields) answer {
	h.t.Helper()
	body := fields{"request_id": id}
	for name, value := range more {
		body[name] = value
	}
	return h.send("POST", "/bridge/hitl/get", body)
}

// emptied drains an inbox and returns its messages.
func (h *testHub) emptied(agent string) []map[string]any {
	h.t.Helper()
	return h.drained(fields{"agent_id": agent, "max_messages": 100})
}

// onlyMessage is the one message in an inbox.
func (h *testHub) onlyMessage(agent string) map[string]any {
	h.t.Helper()
	messages := h.emptied(agent)
	if len(messages) != 1 {
		h.t.Fatalf("%s has %d messages, want 1: %v", agent, len(messages), messages)
	}
	return messages[0]
}

// encoded is a value of an answer as JSON.
func encoded(t testing.TB, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	must(t, err)
	return string(text)
}

// The vectors 112 to 123 of the contract, as compat 11 and 21 leave them.
func TestTheContractsVectorsOfHumanRequests(t *testing.T) {
	h := newTestHub(t)
	a := h.send("POST", "/bridge/hitl/request", fields{"requester_agent": "a", "kind": "approval", "prompt": "p", "deadline_ms": 60000, "default_action": "decline"})
	a.expect(t, 200, "") // 112
	if a.at("data.state") != "pending" || a.number("data.deadline_ms") != h.now()+60000 {
		t.Errorf("112: %s", a.text)
	}
	id := a.at("data.request_id").(string)
	// 113: both defaults are taken.
	b := h.send("POST", "/bridge/hitl/request", fields{"kind": "approval", "prompt": "p", "requester_agent": "cli"}).expect(t, 200, "")
	if b.number("data.deadline_ms") != h.now()+300000 {
		t.Errorf("113: %s", b.text)
	}
	for _, method := range []string{"GET", "POST"} { // 114, 123
		var body any
		if method == "POST" {
			body = fields{}
		}
		first := h.send(method, "/bridge/hitl/pending", body).expect(t, 200, "").at("data").([]any)[0].(map[string]any)
		if first["request_id"] != id || encoded(t, first["schema"]) != "{}" || first["response"] != nil {
			t.Errorf("114: %v", first)
		}
	}
	h.submit(id, "maybe", nil).expect(t, 400, core.CodeInvalidAction)    // 117
	h.submit("missing", "accept", nil).expect(t, 404, core.CodeNotFound) // 118
	done := h.submit(id, "accept", fields{"ok": 1}).expect(t, 200, "")   // 115
	h.submit(id, "decline", nil).expect(t, 409, core.CodeAlreadyHandled) // 116
	h.submit(id, "maybe", nil).expect(t, 409, core.CodeAlreadyHandled)   // the order of the checks
	h.submit("missing", "maybe", nil).expect(t, 404, core.CodeNotFound)  // likewise
	message := h.onlyMessage("a")
	if done.at("data.new_state") != "accepted" || done.at("data.forwarded_message_id") != message["id"] ||
		message["type"] != "human_response" || message["topic"] != "human.response" || message["from_agent"] != "hub:hitl" ||
		encoded(t, message["priority"]) != "7" || encoded(t, message["ttl_ms"]) != "300000" ||
		encoded(t, message["payload"]) != `{"action":"accept","content":{"ok":1},"request_id":"`+id+`","submitted_by":"human"}` {
		t.Errorf("115: %s %v", done.text, message)
	}
	id = h.question(nil)
	cancelled := h.submit(id, "cancel", nil).expect(t, 200, "") // 119, told since compat 11
	if m := h.onlyMessage("a"); cancelled.at("data.new_state") != "cancelled" || cancelled.at("data.forwarded_message_id") != m["id"] {
		t.Errorf("119: %s", cancelled.text)
	}
	for action, told := range map[string]string{"timeout_continue": "timeout_continue", "decline": "timeout_decline", "cancel": "timeout_cancel"} {
		id = h.question(fields{"default_action": action, "deadline_ms": 1000})
		h.clock.advance(time.Second)
		h.runSweep("sweep-messages") // 120: the message sweep is not the one
		if messages := h.emptied("a"); len(messages) != 0 {
			t.Errorf("120: a message before its sweep: %v", messages)
		}
		h.runSweep("sweep-human-requests") // 120, 121
		m := h.onlyMessage("a")
		payload := m["payload"].(map[string]any)
		if payload["action"] != told || payload["submitted_by"] != "system" || payload["content"] != nil || encoded(t, m["priority"]) != "5" {
			t.Errorf("120, 121: %v", m)
		}
		h.runSweep("sweep-human-requests")
		if view := h.human(id, nil); view.at("data.state") != "timed_out" || view.at("data.action") != told || len(h.emptied("a")) != 0 {
			t.Errorf("120, 121: %s", view.text)
		}
	}
	// 122: the deadline holds though no tick has been.
	id = h.question(fields{"deadline_ms": 1000})
	h.clock.advance(time.Second)
	h.submit(id, "accept", "late").expect(t, 409, core.CodeDeadlinePassed)
	view := h.human(id, nil)
	late := view.at("data.late_answers").([]any)
	if view.at("data.state") != "timed_out" || view.at("data.response") != nil || len(late) != 1 ||
		late[0].(map[string]any)["content"] != "late" || h.onlyMessage("a")["payload"].(map[string]any)["action"] != "timeout_decline" {
		t.Errorf("122: %s", view.text)
	}
}

// A person who has not answered yet has not refused (use-agent-os/agent-os#1563),
// and a requester that comes back finds its answer (preloop/preloop#510).
func TestAWaitThatEndsWithoutAnAnswerSaysPending(t *testing.T) {
	h := newTestHub(t)
	id := h.question(nil)
	if a := h.human(id, fields{"wait_ms": 30}).expect(t, 200, ""); a.at("data.state") != "pending" || a.at("data.action") != nil {
		t.Errorf("the wait answers %s", a.text)
	}
	go h.as(operatorToken).submit(id, "accept", "yes")
	if a := h.human(id, fields{"wait_ms": 20000}).expect(t, 200, ""); a.at("data.response") != "yes" {
		t.Errorf("the wait answers %s", a.text)
	}
	h.clock.advance(time.Hour) // the message has expired, the answer has not
	if a := h.human(id, nil).expect(t, 200, ""); a.at("data.response") != "yes" || len(h.emptied("a")) != 0 {
		t.Errorf("the request answers %s", a.text)
	}
}

func TestOverdueRequestsAreNotPending(t *testing.T) {
	h := newTestHub(t)
	h.question(fields{"deadline_ms": 1000})
	h.clock.advance(time.Second)
	if found := h.send("GET", "/bridge/hitl/pending", nil).expect(t, 200, "").at("data").([]any); len(found) != 0 {
		t.Errorf("pending: %v", found)
	}
	if m := h.onlyMessage("a"); m["payload"].(map[string]any)["action"] != "timeout_decline" {
		t.Errorf("the list that met it told %v", m)
	}
}

func TestACredentialIsSealedAndShownToTheRequestersGenerationOnly(t *testing.T) {
	h := newTestHub(t)
	body := fields{"requester_agent": "a", "kind": "credential", "prompt": "password?"}
	h.send("POST", "/bridge/hitl/request", body).expect(t, 409, core.CodeCredentialsNotSealed)
	var err error
	h.sealer, err = OpenKeyFile(filepath.Join(t.TempDir(), "key"))
	must(t, err)
	h.app = h.newApp()
	old := h.online("a", 1)
	id := h.question(fields{"kind": "credential"})
	const secret = "correct horse battery staple"
	h.submit(id, "accept", strings.Repeat("x", 5000)).refusesField(t, core.CodeInvalidArgument, "content")
	h.submit(id, "accept", secret).expect(t, 200, "")
	for key, stored := range h.items() {
		if strings.Contains(stored, secret) {
			t.Errorf("%s holds the credential: %s", key, stored)
		}
	}
	message := h.onlyMessage("a")
	if payload := message["payload"].(map[string]any); payload["content"] != nil {
		t.Errorf("the message holds %v", payload) // compat 20
	}
	if a := h.human(id, nil).expect(t, 200, ""); a.at("data.response") != nil || strings.Contains(a.text, secret) {
		t.Errorf("a reader without the fence sees %s", a.text)
	}
	generation := h.online("a", 1) // it died and came back
	h.human(id, fields{"presence_generation": old}).expect(t, 409, core.CodeStalePresenceOwner)
	if a := h.human(id, fields{"presence_generation": generation}).expect(t, 200, ""); a.at("data.response") != secret {
		t.Errorf("the requester sees %s", a.text)
	}
	h.createToken("other-agent", core.Token{Scopes: []core.Scope{core.ScopeAgent}, AgentIDs: []string{"b"}})
	h.as("other-agent").human(id, fields{"presence_generation": generation}).expect(t, 403, core.CodeForbidden)
}

func TestAnAgentDoesNotAnswerItsOwnQuestion(t *testing.T) {
	h := newTestHub(t)
	h.createToken("agent-a", core.Token{Scopes: []core.Scope{core.ScopeAgent}, AgentIDs: []string{"a"}})
	id := h.question(nil)
	h.as("agent-a").submit(id, "accept", nil).expect(t, 403, core.CodeForbidden)
	h.submit(id, "accept", nil).expect(t, 200, "")
}

// doubling is a schema whose every definition leads twice to the next: judging
// by it would never end.
func doubling() fields {
	definitions := fields{"d64": true}
	for i := range 64 {
		next := fields{"$ref": fmt.Sprint("#/$defs/d", i+1)}
		definitions[fmt.Sprint("d", i)] = fields{"allOf": []any{next, next}}
	}
	return fields{"$defs": definitions, "$ref": "#/$defs/d0"}
}

func TestAnAcceptedAnswerSatisfiesTheSchema(t *testing.T) {
	h := newTestHub(t)
	schema := fields{"type": "object", "required": []string{"n"}, "properties": fields{"n": fields{"type": "integer"}}}
	id := h.question(fields{"requested_schema": schema})
	for _, wrong := range []any{nil, fields{}, fields{"n": "x"}, fields{"n": 1.5}, []any{}} {
		h.submit(id, "accept", wrong).refusesField(t, core.CodeSchemaMismatch, "content")
	}
	h.submit(id, "accept", fields{"n": 3}).expect(t, 200, "")
	h.submit(h.question(fields{"requested_schema": schema}), "decline", "no").expect(t, 200, "") // judged only when accepted
	deep := raw(strings.Repeat(`{"not":`, 40) + "{}" + strings.Repeat("}", 40))
	for name, bad := range map[string]any{
		"no schema": fields{"type": 5}, "a reference out": fields{"$ref": "https://example.com/s.json"},
		"a file": fields{"$ref": "file:///etc/passwd"}, "no target": fields{"$ref": "#/nowhere"}, "too deep": deep,
		"too large": fields{"description": strings.Repeat("x", 20_000)}, "a bad pattern": fields{"pattern": "("},
		"an id that is none": fields{"$id": ":"}, "doubling references": doubling(),
	} {
		a := h.send("POST", "/bridge/hitl/request", fields{"requester_agent": "a", "kind": "text", "prompt": "p", "requested_schema": bad})
		if a.status != 400 || a.at("error.details.field") != "requested_schema" || strings.Contains(a.text, "passwd") {
			t.Errorf("%s: %d %s", name, a.status, a.text)
		}
	}
	deepValue := raw(strings.Repeat("[", 40) + strings.Repeat("]", 40))
	h.submit(h.question(fields{"requested_schema": fields{"type": "array"}}), "accept", deepValue).refusesField(t, core.CodeSchemaMismatch, "content")
	loop := fields{"requested_schema": fields{"$ref": "#"}}
	a := h.send("POST", "/bridge/hitl/request", fields{"requester_agent": "a", "kind": "text", "prompt": "p", "requested_schema": loop["requested_schema"]})
	if a.status == 200 {
		if s := h.submit(a.at("data.request_id").(string), "accept", 1); s.status != 200 && s.status != 400 {
			t.Errorf("a schema that refers to itself: %d %s", s.status, s.text)
		}
	}
}

// a2aproject/A2A#928: the caller repeats with the same key and learns the id.
func TestAQuestionWithAKeyIsAskedOnce(t *testing.T) {
	h := newTestHub(t)
	body := fields{"requester_agent": "a", "kind": "text", "prompt": "p"}
	first := h.send("POST", "/bridge/hitl/request", body, "idempotency-key", "k").expect(t, 200, "")
	again := h.send("POST", "/bridge/hitl/request", body, "idempotency-key", "k").expect(t, 200, "")
	if first.at("data.request_id") != again.at("data.request_id") || again.at("replayed") != true {
		t.Errorf("asked twice: %s %s", first.text, again.text)
	}
	body["prompt"] = "q"
	h.send("POST", "/bridge/hitl/request", body, "idempotency-key", "k").expect(t, 409, core.CodeIdempotencyMismatch)
}

func TestLateAnswersAreKeptWithinBounds(t *testing.T) {
	h := newTestHub(t)
	id := h.question(fields{"deadline_ms": 1000})
	h.clock.advance(time.Second)
	h.submit(id, "accept", strings.Repeat("x", 10_000)).expect(t, 409, core.CodeDeadlinePassed)
	for i := range 2 * core.MaxLateAnswers {
		h.submit(id, "accept", fmt.Sprint(i)).expect(t, 409, core.CodeDeadlinePassed)
	}
	late := h.human(id, nil).at("data.late_answers").([]any)
	first := late[0].(map[string]any)
	if len(late) != core.MaxLateAnswers || first["content"] != nil || first["content_cut"] != true || len(h.emptied("a")) != 1 {
		t.Errorf("%d late answers, the first %v", len(late), first)
	}
}

func TestAHundredPeopleGiveOneAnswerAndOneMessage(t *testing.T) {
	h := newTestHub(t)
	id := h.question(nil)
	results := make([]answer, 100)
	var wait sync.WaitGroup
	for i := range results {
		wait.Go(func() { results[i] = h.submit(id, "accept", i) })
	}
	wait.Wait()
	winner := -1
	for i, a := range results {
		switch {
		case a.status == 200 && winner < 0:
			winner = i
		case a.status != 409 || a.code() != string(core.CodeAlreadyHandled):
			t.Errorf("answer %d: %d %s", i, a.status, a.text)
		}
	}
	content := fmt.Sprint(winner)
	if winner == 0 {
		content = "null" // 0 is falsy (contract 1.7)
	}
	if view := h.human(id, nil); encoded(t, view.at("data.response")) != content {
		t.Errorf("%d won and %s stands", winner, view.text)
	}
	if m := h.onlyMessage("a"); encoded(t, m["payload"].(map[string]any)["content"]) != fmt.Sprint(winner) {
		t.Errorf("%d won and the requester got %v", winner, m)
	}
}

func TestTheKeyFileIsForItsOwnerAndSealsForOneContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	sealers := make([]core.Sealer, 8)
	var wait sync.WaitGroup
	for i := range sealers {
		wait.Go(func() {
			var err error
			if sealers[i], err = OpenKeyFile(path); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the key's mode is %v", info.Mode())
	}
	sealed, err := sealers[0].Seal(t.Context(), []byte("plain"), "request-1")
	must(t, err)
	if plain, err := sealers[7].Open(t.Context(), sealed, "request-1"); err != nil || string(plain) != "plain" {
		t.Errorf("another process opens %q, %v", plain, err)
	}
	if _, err := sealers[0].Open(t.Context(), sealed, "request-2"); err == nil {
		t.Error("sealed bytes open for another request")
	}
	for i := range sealed {
		changed := append([]byte(nil), sealed...)
		changed[i] ^= 1
		if _, err := sealers[0].Open(t.Context(), changed, "request-1"); err == nil {
			t.Fatalf("a change at byte %d is not noticed", i)
		}
	}
	if _, err := sealers[0].Open(t.Context(), nil, "request-1"); err == nil {
		t.Error("nothing opens")
	}
	must(t, os.Chmod(path, 0o644))
	if _, err := OpenKeyFile(path); err == nil {
		t.Error("a key that others can read is taken")
	}
	must(t, os.Chmod(path, 0o600))
	must(t, os.WriteFile(path, []byte("short"), 0o600))
	if _, err := OpenKeyFile(path); err == nil {
		t.Error("a short key is taken")
	}
	if _, err := OpenKeyFile(filepath.Join(path, "x")); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key under a file: %v", err)
	}
}
