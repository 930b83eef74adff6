package functions

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"drawbridge/core"
)

type fields = map[string]any

func (h *testHub) register(body fields) answer {
	h.t.Helper()
	return h.send("POST", "/bridge/register", body)
}

// online registers an agent n times and returns its generation.
func (h *testHub) online(agentID string, times int) int64 {
	h.t.Helper()
	var generation int64
	for range times {
		generation = h.register(fields{"agent_id": agentID, "cli": "codex"}).expect(h.t, 200, "").number("data.presence_generation")
	}
	return generation
}

func (h *testHub) identity() (hubID, fingerprint string) {
	h.t.Helper()
	a := h.send("GET", "/bridge/status", nil).expect(h.t, 200, "")
	return a.at("data.hub_instance_id").(string), a.at("data.store_fingerprint").(string)
}

func (h *testHub) agent(agentID string) answer {
	h.t.Helper()
	return h.send("GET", "/bridge/status?scope=agent&agent_id="+agentID, nil).expect(h.t, 200, "")
}

func (h *testHub) now() int64 { return h.clock.Now().UnixMilli() }

func (h *testHub) sweep() {
	h.t.Helper()
	run, ok := h.app.Sweep("sweep-agents")
	if !ok {
		h.t.Fatal("there is no sweep-agents")
	}
	must(h.t, run(context.Background(), nil))
}

func (h *testHub) swept(stale, offline float64) {
	h.t.Helper()
	h.sweep()
	counts, _ := h.lastLog()["counts"].(map[string]any)
	if counts["stale"] != stale || counts["offline"] != offline {
		h.t.Errorf("the sweep counted %v, want stale %v and offline %v", counts, stale, offline)
	}
}

// TestRegisterVectors are the contract's vectors 1 to 15, 7, 13 and 14 by
// compat rule 1, 16 by rule 4.
func TestRegisterVectors(t *testing.T) {
	h := newTestHub(t)
	hubID, fingerprint := h.identity()

	first := h.register(fields{"agent_id": "a1", "cli": "codex", "timeout_sec": 60, "topics": []string{"task.result"}, "capabilities": []string{"code"}})
	first.expect(t, 200, "") // 1
	for path, want := range map[string]any{
		"data.effective.online": true, "data.effective.updated": true, "data.effective.status": "online",
		"data.effective.store_type": "dynamodb", "data.effective.db_path": h.table,
		"data.hub_instance_id": hubID, "data.store_fingerprint": fingerprint, "data.effective.store_fingerprint": fingerprint,
		"data.pipe_path": nil, "data.agent_id": "a1",
	} {
		if got := first.at(path); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
	if got := first.number("data.lease_expires_ms"); got != h.now()+180_000 {
		t.Errorf("the lease ends %d ms from now", got-h.now())
	}
	if first.number("data.presence_generation") != 1 || first.number("data.hub_pid") != 0 {
		t.Errorf("generation or pid: %s", first.text)
	}
	second := h.register(fields{"agent_id": "a1", "cli": "codex"}).expect(t, 200, "") // 2
	if second.number("data.presence_generation") != 2 || second.at("data.lease_id") == first.at("data.lease_id") {
		t.Errorf("the second registration answers %s", second.text)
	}
	h.register(fields{"cli": "codex"}).refusesField(t, core.CodeInvalidArgument, "agent_id") // 3
	h.register(fields{"agent_id": "x"}).refusesField(t, core.CodeInvalidArgument, "cli")     // 4
	for timeout, lease := range map[any]int64{"": 1_320_000, nil: 120_000, 60: 180_000, "61": 181_000, 0.5: 120_500, -119: 1_000} {
		body := fields{"agent_id": "leased", "cli": "other", "timeout_sec": timeout}
		if timeout == "" {
			delete(body, "timeout_sec") // 5; 6 is null
		}
		if got := h.register(body).expect(t, 200, "").number("data.lease_expires_ms") - h.now(); got != lease {
			t.Errorf("timeout_sec %v gives a lease of %d ms, want %d", timeout, got, lease)
		}
	}

	before := h.items()
	h.register(fields{"agent_id": "x", "cli": "vim"}).refusesField(t, core.CodeInvalidArgument, "cli") // 7
	for _, timeout := range []any{-120, 2_592_000, "abc", true, "1e3"} {
		h.register(fields{"agent_id": "x", "cli": "other", "timeout_sec": timeout}).refusesField(t, core.CodeInvalidArgument, "timeout_sec")
	}
	for _, refused := range []struct {
		body fields
		code core.Code
	}{
		{fields{"hub_instance_id": "old"}, core.CodeStaleHubInstance},                                  // 8
		{fields{"store_fingerprint": "sqlite:0"}, core.CodeStoreFingerprintMismatch},                   // 9
		{fields{"hub_instance_id": "old", "store_fingerprint": "sqlite:0"}, core.CodeStaleHubInstance}, // 10
		{fields{"hub_instance_id": ""}, core.CodeStaleHubInstance},                                     // 11
		{fields{"hub_instance_id": true}, core.CodeStaleHubInstance},                                   // contract 11.5
		{fields{"hub_instance_id": hubID, "store_fingerprint": ""}, core.CodeStoreFingerprintMismatch}, // 3.1
		{fields{"hub_instance_id": hubID, "store_fingerprint": fields{}}, core.CodeStoreFingerprintMismatch},
	} {
		refused.body["agent_id"], refused.body["cli"] = "a1", "codex"
		a := h.register(refused.body).expect(t, 409, refused.code)
		if a.at("data.hub_instance_id") != hubID || a.at("data.store_fingerprint") != fingerprint {
			t.Errorf("the refusal does not tell the identity: %s", a.text)
		}
	}
	h.register(fields{"agent_id": "p", "cli": "codex", "project_id": "bad"}).refusesField(t, core.CodeProjectIDInvalid, "project_id") // 13
	h.register(fields{"agent_id": "p", "cli": "codex", "project_id": 5}).refusesField(t, core.CodeProjectIDInvalid, "project_id")
	h.mustNotWrite(before, "refused registers")

	h.register(fields{"agent_id": "a1", "cli": "codex", "hub_instance_id": nil}).expect(t, 200, "") // 12
	project := "prj_AAAAAAAAAAAAAAAAAAAAAA"
	h.register(fields{"agent_id": "p", "cli": "codex", "project_id": project}).expect(t, 200, "")
	h.register(fields{"agent_id": "p", "cli": "codex"}).expect(t, 200, "")                    // 15
	h.register(fields{"agent_id": "p", "cli": "codex", "project_id": nil}).expect(t, 200, "") // 14
	listed := h.listed(t, "")
	if got := listed["p"]["project_id"]; got != project {
		t.Errorf("project_id is %v after registers without one", got)
	}
	h.register(fields{"agent_id": "c", "cli": "claude", "capabilities": []string{"cto"}, "metadata": fields{"role": "cto"}}).expect(t, 200, "") // 16
}

// listed returns the agents of every page of the list, by id.
func (h *testHub) listed(t *testing.T, query string) map[string]map[string]any {
	t.Helper()
	agents := map[string]map[string]any{}
	cursor := ""
	for {
		a := h.send("GET", "/bridge/agents?limit=2&"+query+"&cursor="+cursor, nil).expect(t, 200, "")
		for _, entry := range a.at("data.agents").([]any) {
			agent := entry.(map[string]any)
			agents[agent["agent_id"].(string)] = agent
		}
		next, more := a.at("data.next_cursor").(string)
		if !more {
			return agents
		}
		cursor = next
	}
}

// TestHeartbeatVectors are the contract's vectors 17 to 31.
func TestHeartbeatVectors(t *testing.T) {
	h := newTestHub(t)
	hubID, fingerprint := h.identity()
	beat := func(body fields) answer { return h.send("POST", "/bridge/heartbeat", body) }

	beat(fields{"agent_id": "ghost"}).expect(t, 404, core.CodeStalePresenceOwner) // 22
	h.online("a1", 1)
	for ttl, lease := range map[any]int64{"": 1_320_000, 5: 1_000, nil: 1_000, 999_999_999: 86_400_000, "60000": 60_000, 1500.9: 1_500, -1: 1_000, 1e300: 86_400_000} {
		body := fields{"agent_id": "a1", "ttl_ms": ttl}
		if ttl == "" {
			delete(body, "ttl_ms") // 17; then 18, 19, 20
		}
		h.clock.advance(time.Second)
		a := beat(body).expect(t, 200, "")
		if got := a.number("data.lease_expires_ms") - h.now(); got != lease || a.at("data.effective.updated") != true {
			t.Errorf("ttl_ms %v gives a lease of %d ms, want %d: %s", ttl, got, lease, a.text)
		}
		if a.has("data.hub_instance_id") || a.has("data.presence_generation") {
			t.Errorf("a heartbeat tells more than the reference: %s", a.text)
		}
	}
	beat(fields{"agent_id": "a1", "ttl_ms": "abc"}).refusesField(t, core.CodeInvalidArgument, "ttl_ms")
	beat(fields{"agent_id": "a1", "hub_instance_id": hubID, "store_fingerprint": fingerprint}).expect(t, 200, "") // 21
	beat(fields{}).refusesField(t, core.CodeInvalidArgument, "agent_id")                                          // 23

	h.online("a1", 1)
	before := h.items()
	for _, generation := range []any{1, 0, 99, 2.5, "abc", "", true, fields{}, []any{}, -1, 1e300} { // 24, 28
		a := beat(fields{"agent_id": "a1", "presence_generation": generation}).expect(t, 404, core.CodeStalePresenceOwner)
		if a.at("data.effective.updated") != false || a.at("data.hub_instance_id") != hubID || a.number("data.presence_generation") != 2 {
			t.Errorf("generation %v: the refusal lacks what the caller needs: %s", generation, a.text)
		}
		if a.number("data.lease_expires_ms") != h.now()+1_320_000 {
			t.Errorf("the refusal does not tell the lease that would have been granted: %s", a.text)
		}
	}
	h.mustNotWrite(before, "stale heartbeats")
	for _, generation := range []any{2, nil, "2", 2.0} { // 25, 26, 27
		beat(fields{"agent_id": "a1", "presence_generation": generation}).expect(t, 200, "")
	}
	h.send("POST", "/bridge/deregister", fields{"agent_id": "a1"}).expect(t, 200, "")
	beat(fields{"agent_id": "a1", "presence_generation": 2}).expect(t, 200, "") // 29
	if got := h.agent("a1").at("data.agent.status"); got != "online" {
		t.Errorf("a heartbeat left the agent %v", got)
	}

	rotated := h.send("POST", "/bridge/hub/rotate", fields{}).expect(t, 200, "")
	if rotated.at("data.previous_hub_instance_id") != hubID {
		t.Errorf("rotate answers %s", rotated.text)
	}
	a := beat(fields{"agent_id": "a1", "presence_generation": 2, "hub_instance_id": hubID}).expect(t, 404, core.CodeStaleHubInstance) // 30
	if a.at("data.hub_instance_id") != rotated.at("data.hub_instance_id") || a.at("data.hub_instance_id") == hubID {
		t.Errorf("the refusal does not tell the new identity: %s", a.text)
	}
	beat(fields{"agent_id": "a1", "store_fingerprint": "sqlite:00"}).expect(t, 404, core.CodeStoreFingerprintMismatch)
	beat(fields{"agent_id": "a1", "presence_generation": 2}).expect(t, 200, "") // 31
}

func TestBatchHeartbeatTellsEachAgentItsOwnOutcome(t *testing.T) {
	h := newTestHub(t)
	h.online("a", 1)
	h.online("b", 2)
	hubID, _ := h.identity()
	a := h.send("POST", "/bridge/heartbeat", fields{"ttl_ms": 60_000, "hub_instance_id": hubID, "agents": []fields{
		{"agent_id": "a", "presence_generation": "1"},
		{"agent_id": "b", "presence_generation": 1},
		{"agent_id": "ghost"},
		{"agent_id": "b", "step": 3},
	}}).expect(t, 200, "")
	results := a.at("data.results").([]any)
	if len(results) != 4 {
		t.Fatalf("results: %s", a.text)
	}
	for i, want := range []struct {
		ok   bool
		code any
	}{{true, nil}, {false, "STALE_PRESENCE_OWNER"}, {false, "STALE_PRESENCE_OWNER"}, {true, nil}} {
		result := answer{body: results[i].(map[string]any)}
		if result.at("ok") != want.ok || result.at("error.code") != want.code || want.ok && result.number("lease_expires_ms") != h.now()+60_000 {
			t.Errorf("result %d is %v", i, results[i])
		}
	}
	if stale := (answer{body: results[1].(map[string]any)}); stale.number("presence_generation") != 2 {
		t.Errorf("a stale agent is not told its current generation: %v", results[1])
	}

	before := h.items()
	beat := func(body fields) answer { return h.send("POST", "/bridge/heartbeat", body) }
	many := make([]fields, 101)
	for i := range many {
		many[i] = fields{"agent_id": fmt.Sprint("agent-", i)}
	}
	beat(fields{"agents": many}).refusesField(t, core.CodeInvalidArgument, "agents")
	beat(fields{"agents": []fields{}}).refusesField(t, core.CodeInvalidArgument, "agents")
	beat(fields{"agents": many[:2], "agent_id": "a"}).refusesField(t, core.CodeInvalidArgument, "agent_id")
	for _, field := range []string{"presence_generation", "step", "step_deadline_ms"} {
		beat(fields{"agents": many[:2], field: 1}).refusesField(t, core.CodeInvalidArgument, field)
	}
	beat(fields{"agents": []fields{{"agent_id": "a"}, {"agent_id": ""}}}).refusesField(t, core.CodeInvalidArgument, "agents[1].agent_id")
	beat(fields{"agents": []fields{{"agent_id": "a"}}, "hub_instance_id": "old"}).expect(t, 404, core.CodeStaleHubInstance)
	h.mustNotWrite(before, "refused batches")
}

// TestDeregisterVectors are the contract's vectors 32 to 36, with 409 for the
// fenced failures (compat rule 3).
func TestDeregisterVectors(t *testing.T) {
	h := newTestHub(t)
	hubID, fingerprint := h.identity()
	deregister := func(body fields) answer { return h.send("POST", "/bridge/deregister", body) }

	h.online("a1", 1)
	a := deregister(fields{"agent_id": "a1", "presence_generation": 1, "hub_instance_id": hubID, "store_fingerprint": fingerprint}).expect(t, 200, "") // 32
	if a.at("data.status") != "offline" || a.number("data.presence_generation") != 1 || a.at("data.hub_instance_id") != hubID {
		t.Errorf("deregister answers %s", a.text)
	}
	h.online("a1", 1)
	before := h.items()
	a = deregister(fields{"agent_id": "a1", "presence_generation": 1}).expect(t, 409, core.CodeStalePresenceOwner) // 33
	if a.at("data.status") != "offline" || a.number("data.presence_generation") != 2 {
		t.Errorf("the refusal is %s", a.text)
	}
	deregister(fields{"agent_id": "ghost"}).expect(t, 409, core.CodeStalePresenceOwner) // 34
	deregister(fields{"agent_id": "a1", "hub_instance_id": "old"}).expect(t, 409, core.CodeStaleHubInstance)
	deregister(fields{}).refusesField(t, core.CodeInvalidArgument, "agent_id") // 36
	h.mustNotWrite(before, "refused deregisters")
	a = deregister(fields{"agent_id": "a1"}).expect(t, 200, "") // 35
	if a.has("data.presence_generation") {
		t.Errorf("a generation that was not sent is echoed: %s", a.text)
	}
	deregister(fields{"agent_id": "a1"}).expect(t, 200, "") // idempotent

	deregister(fields{"agent_id": "a1", "final": true}).expect(t, 200, "")
	h.send("POST", "/bridge/heartbeat", fields{"agent_id": "a1", "presence_generation": 2}).expect(t, 404, core.CodeStalePresenceOwner)
	if got := h.online("a1", 1); got != 3 {
		t.Errorf("the generation after a final one is %d", got)
	}
}

// TestStatusVectors are the contract's vectors 37 to 43, 40 with 409 (compat
// rule 3).
func TestStatusVectors(t *testing.T) {
	h := newTestHub(t)
	hubID, fingerprint := h.identity()
	report := func(body fields) answer { return h.send("POST", "/bridge/status", body) }

	h.online("a1", 1)
	a := report(fields{"agent_id": " a1 ", "status": " Paused", "presence_generation": 1, "hub_instance_id": hubID, "store_fingerprint": fingerprint}).expect(t, 200, "") // 37
	if a.at("data.reported_status") != "paused" || a.at("data.status") != "online" || a.at("data.snapshot.status") != "online" || a.number("data.reported_at_ms") != h.now() {
		t.Errorf("the report answers %s", a.text)
	}
	h.online("a1", 1)
	before := h.items()
	a = report(fields{"agent_id": "a1", "status": "offline", "presence_generation": 1}).expect(t, 409, core.CodeStalePresenceOwner) // 38
	if a.at("data.status") != "offline" {
		t.Errorf("the refusal is %s", a.text)
	}
	report(fields{"agent_id": "  ", "status": "x"}).refusesField(t, core.CodeInvalidArgument, "agent_id") // 39
	report(fields{"agent_id": "a1", "status": "  "}).refusesField(t, core.CodeInvalidArgument, "status")
	a = report(fields{"agent_id": "ghost", "status": "online"}).expect(t, 409, core.CodeStalePresenceOwner) // 41
	if a.at("data.status") != "online" {
		t.Errorf("the refusal is %s", a.text)
	}
	report(fields{"scope": "hub", "hub_instance_id": "old"}).expect(t, 409, core.CodeStaleHubInstance) // 40
	a = report(fields{"scope": "agent", "agent_id": "ghost", "presence_generation": 9}).expect(t, 200, "")
	if a.has("data.agent") || a.at("data.hub_instance_id") != hubID {
		t.Errorf("the query of an unknown agent answers %s", a.text)
	}
	h.mustNotWrite(before, "refused reports and queries")

	a = h.send("GET", "/bridge/status?scope=hub", nil).expect(t, 200, "") // 42
	for path, want := range map[string]any{
		"data.hub.state": "healthy", "data.hub.audit_store": "dynamodb", "data.hub.hub_instance_id": hubID,
		"data.roles.cto.role": "cto", "data.roles.cto.leader_agent_id": nil, "data.store_fingerprint": fingerprint,
	} {
		if got := a.at(path); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
	if a.number("data.queues.urgent_depth") != 0 || a.number("data.assigns.timed_out") != 0 {
		t.Errorf("counts of an empty hub: %s", a.text)
	}
	for _, query := range []string{"?include_metrics=0", "?scope=queue&include_metrics=0"} {
		if a = h.send("GET", "/bridge/status"+query, nil).expect(t, 200, ""); a.has("data.queues") || !a.has("data.hub") {
			t.Errorf("%s answers %s", query, a.text)
		}
	}
	if a = report(fields{"include_metrics": false}).expect(t, 200, ""); a.has("data.queues") || a.has("data.snapshot") {
		t.Errorf("the query answers %s", a.text)
	}
	a = h.send("GET", "/bridge/status?scope=other&hub_instance_id=old", nil).expect(t, 200, "")
	if a.has("data.hub") || a.at("data.hub_instance_id") != hubID {
		t.Errorf("an unknown scope answers %s", a.text)
	}
	if a = h.send("GET", "/bridge/status?scope=trace&trace_id=t", nil); fmt.Sprint(a.at("data.trace")) != "[]" {
		t.Errorf("a trace without messages answers %s", a.text)
	}
	if a = h.agent("a1"); a.at("data.agent.status") != "online" || a.number("data.agent.pending") != 0 { // 43
		t.Errorf("the agent is %s", a.text)
	}
	report(fields{"agent_id": "a1", "status": "offline"}).expect(t, 200, "")
	if a = h.agent("a1"); a.at("data.agent.status") != "offline" {
		t.Errorf("after offline was reported the agent is %s", a.text)
	}
}

// TestSweepVectors are the contract's vectors 44 to 47; the status a reader sees
// does not wait for the sweep (compat rule 6).
func TestSweepVectors(t *testing.T) {
	h := newTestHub(t)
	h.register(fields{"agent_id": "a1", "cli": "codex", "timeout_sec": 60})
	h.clock.advance(180 * time.Second)
	h.swept(0, 0) // 45
	if got := h.agent("a1").at("data.agent.status"); got != "online" {
		t.Errorf("a lease that ends now reads %v", got)
	}
	h.clock.advance(time.Millisecond)
	if got := h.agent("a1").at("data.agent.status"); got != "stale" {
		t.Errorf("a lease that has passed reads %v", got)
	}
	h.swept(1, 0) // 44
	h.swept(0, 0)
	h.clock.advance(300 * time.Second)
	if got := h.agent("a1").at("data.agent.status"); got != "offline" {
		t.Errorf("300 s after the lease the agent reads %v", got)
	}
	h.swept(0, 1) // 46
	h.register(fields{"agent_id": "a1", "cli": "codex", "timeout_sec": 60})
	h.clock.advance(time.Hour)
	h.swept(1, 0) // 47
	h.swept(0, 1)
	h.swept(0, 0)
}

func TestListShowsEveryAgentWithItsVerdict(t *testing.T) {
	h := newTestHub(t)
	locator := fields{
		"schema_version": "tfx.transport-locator.v1", "transport_id": "t1", "kind": "tmux", "host_id": "hst_a",
		"capabilities": []string{"wake"}, "priority": 1, "expires_at_ms": h.now() + 60_000,
		"locator": fields{"session_name": "s", "mux_server_id": "m"},
	}
	h.register(fields{
		"agent_id": "full", "cli": "codex", "timeout_sec": 3600, "topics": []string{"build", " build ", "", "review"},
		"capabilities": []string{"code"}, "metadata": fields{"n": fields{"k": 1.5}}, "session_id": " s ", "host_id": "hst_a",
		"transport_locators_json": []fields{locator}, "step": 4, "step_deadline_ms": 60_000,
	}).expect(t, 200, "")
	h.register(fields{"agent_id": "plain", "cli": "other", "timeout_sec": 60, "topics": nil, "capabilities": nil, "metadata": nil}).expect(t, 200, "")
	for i := range 5 {
		h.register(fields{"agent_id": fmt.Sprint("more-", i), "cli": "gemini", "topics": []string{"build"}}).expect(t, 200, "")
	}
	h.clock.advance(200 * time.Second)

	all := h.listed(t, "")
	if len(all) != 7 {
		t.Fatalf("%d agents are listed, want 7: %v", len(all), all)
	}
	full := all["full"]
	for field, want := range map[string]any{
		"cli": "codex", "status": "online", "session_id": "s", "host_id": "hst_a", "project_id": nil, "pid": nil,
		"topics": []any{"build", "review"}, "capabilities": []any{"code"}, "hung": true, "hung_since_ms": h.now() - 140_000,
		"step": 4, "step_deadline_ms": 60_000, "presence_generation": 1, "final": false, "metadata": "map[n:map[k:1.5]]",
	} {
		if fmt.Sprint(full[field]) != fmt.Sprint(want) {
			t.Errorf("%s is %v, want %v", field, full[field], want)
		}
	}
	if text, ok := full["transport_locators_json"].(string); !ok || !strings.Contains(text, `"transport_id":"t1"`) {
		t.Errorf("the locators are %v", full["transport_locators_json"])
	}
	plain := all["plain"]
	for field, want := range map[string]any{
		"status": "stale", "topics": []any{}, "capabilities": []any{}, "metadata": "map[]", "transport_locators_json": "[]",
		"hung": false, "hung_since_ms": nil, "step": nil,
	} {
		if fmt.Sprint(plain[field]) != fmt.Sprint(want) {
			t.Errorf("%s is %v, want %v", field, plain[field], want)
		}
	}
	if got := h.listed(t, "topic=build"); len(got) != 6 || got["plain"] != nil {
		t.Errorf("topic=build lists %d agents", len(got))
	}
	if got := h.listed(t, "status=stale"); len(got) != 1 || got["plain"] == nil {
		t.Errorf("status=stale lists %v", got)
	}
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=101": "limit", "limit=x": "limit", "status=gone": "status", "cursor=forged": "cursor",
		"topic=" + strings.Repeat("x", 513): "topic", "topic=%00": "topic",
	} {
		h.send("GET", "/bridge/agents?"+query, nil).refusesField(t, core.CodeInvalidArgument, field)
	}
}

func TestIdempotencyKeyMakesARegisterHappenOnce(t *testing.T) {
	h := newTestHub(t)
	body := fields{"agent_id": "a1", "cli": "codex"}
	first := h.send("POST", "/bridge/register", body, "idempotency-key", "k1").expect(t, 200, "")
	h.clock.advance(time.Hour)
	again := h.send("POST", "/bridge/register", body, "idempotency-key", "k1").expect(t, 200, "")
	if again.at("replayed") != true || first.has("replayed") {
		t.Errorf("replayed: first %s, again %s", first.text, again.text)
	}
	if got, want := again.text, strings.TrimSuffix(first.text, "}")+`,"replayed":true}`; got != want {
		t.Errorf("the repeated answer differs:\n got %s\nwant %s", got, want)
	}
	h.send("POST", "/bridge/register", fields{"agent_id": "a2", "cli": "codex"}, "idempotency-key", "k1").expect(t, 409, core.CodeIdempotencyMismatch)
	for _, key := range []string{"", strings.Repeat("k", 129), "k\n", "키"} {
		h.send("POST", "/bridge/register", body, "idempotency-key", key).refusesField(t, core.CodeInvalidArgument, "Idempotency-Key")
	}
	h.createToken("another-token", core.Token{Scopes: []core.Scope{core.ScopeAgent}})
	other := h.as("another-token").send("POST", "/bridge/register", body, "idempotency-key", "k1").expect(t, 200, "")
	if other.number("data.presence_generation") != 2 {
		t.Errorf("another token's key is not its own: %s", other.text)
	}
	h.send("POST", "/bridge/heartbeat", fields{"agent_id": "a1"}, "idempotency-key", "k1").expect(t, 200, "") // ignored there
	h.clock.advance(24 * time.Hour)
	if late := h.send("POST", "/bridge/register", body, "idempotency-key", "k1").expect(t, 200, ""); late.number("data.presence_generation") != 3 {
		t.Errorf("the key still stands after 24 hours: %s", late.text)
	}
}

// TestRacingRegistersOverHTTPGetGenerationsOfTheirOwn runs the whole path at
// once; core/coretest has the races of the store.
func TestRacingRegistersOverHTTPGetGenerationsOfTheirOwn(t *testing.T) {
	h := newTestHub(t)
	handler, _ := h.app.HTTP("register")
	event := h.event("POST", "/bridge/register", fields{"agent_id": "a1", "cli": "codex"}, nil)
	const racers = 32
	generations := make([]int64, racers)
	var wait sync.WaitGroup
	for i := range racers {
		wait.Go(func() {
			response, err := handler(context.Background(), event)
			if err != nil || response.StatusCode != 200 {
				t.Errorf("answer %d %s, %v", response.StatusCode, response.Body, err)
				return
			}
			var body struct {
				Data struct {
					Generation int64 `json:"presence_generation"`
				} `json:"data"`
			}
			if err := json.Unmarshal([]byte(response.Body), &body); err != nil {
				t.Error(err)
			}
			generations[i] = body.Data.Generation
		})
	}
	wait.Wait()
	slices.Sort(generations)
	for i, generation := range generations {
		if generation != int64(i+1) {
			t.Fatalf("%d registers got the generations %v", racers, generations)
		}
	}
}
