package functions

import (
	"fmt"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"drawbridge/core"
)

// The role most tests are about, and a lead beside it.
const (
	testProject = "prj_AbCdEfGhIjKlMnOpQrStUv"
	testScope   = "scp_ZyXwVuTsRqPoNmLkJiHgFe"
	ctoWire     = "rk2.eyJwcm9qZWN0X2lkIjoicHJqX0FiQ2RFZkdoSWpLbE1uT3BRclN0VXYiLCJyb2xlX2tpbmQiOiJjdG8ifQ"
	leadWire    = "rk2.eyJwcm9qZWN0X2lkIjoicHJqX0FiQ2RFZkdoSWpLbE1uT3BRclN0VXYiLCJyb2xlX2tpbmQiOiJsZWFkIiwic2NvcGVfaWQiOiJzY3BfWnlYd1Z1VHNScVBvTm1Ma0ppSGdGZSJ9"
)

// legacy registers a candidate of the legacy role.
func (h *testHub) legacy(id string, priority int) {
	h.t.Helper()
	h.send("POST", "/bridge/register", fields{
		"agent_id": id, "cli": "claude", "metadata": fields{"role": "cto", "cto_priority": priority},
	}).expect(h.t, 200, "")
}

func (h *testHub) publishTo(to string, payload any) answer {
	h.t.Helper()
	return h.send("POST", "/bridge/publish", fields{"from": "sender", "to": to, "topic": "work", "payload": payload}).expect(h.t, 200, "")
}

func (h *testHub) pendingOf(id string) int64 {
	h.t.Helper()
	return h.send("GET", "/bridge/status?scope=agent&agent_id="+url.QueryEscape(id), nil).expect(h.t, 200, "").number("data.agent.pending")
}

func (h *testHub) cto() answer {
	h.t.Helper()
	return h.send("GET", "/bridge/status", nil).expect(h.t, 200, "")
}

func (h *testHub) wantLeader(want any) {
	h.t.Helper()
	if got := h.cto().at("data.roles.cto.leader_agent_id"); got != want {
		h.t.Fatalf("the leader is %v, want %v", got, want)
	}
}

func want(t *testing.T, a answer, path string, value any) {
	t.Helper()
	if got := fmt.Sprint(a.at(path)); got != fmt.Sprint(value) {
		t.Errorf("%s is %s, want %v: %s", path, got, value, a.text)
	}
}

func wantPending(t *testing.T, h *testHub, id string, pending int64) {
	t.Helper()
	if got := h.pendingOf(id); got != pending {
		t.Errorf("%s has %d messages waiting, want %d", id, got, pending)
	}
}

// TestLegacyTakeoverVectors are the contract's vectors 50 to 55.
func TestLegacyTakeoverVectors(t *testing.T) {
	h := newTestHub(t)
	takeover := func(body fields) answer { return h.send("POST", "/bridge/takeover-role", body) }
	h.legacy("A", 10)
	h.clock.advance(time.Second)
	h.legacy("B", 1)
	h.wantLeader("A")
	h.publishTo("topic:cto", fields{"n": 1})
	wantPending(t, h, "A", 1)

	a := takeover(fields{"agent_id": "B"}).expect(t, 200, "") // 50
	for path, value := range map[string]any{
		"data.changed": true, "data.previous_leader_agent_id": "A", "data.leader_agent_id": "B", "data.transferred_count": 1,
		"data.removed_count": 1, "data.skipped_count": 0, "data.reason": "manual", "data.requested_by": "http",
		"data.status.leader_agent_id": "B", "data.status.transferred_count": 1, "data.leader_epoch": 2,
	} {
		want(t, a, path, value)
	}
	wantPending(t, h, "A", 0)
	wantPending(t, h, "B", 1)

	a = takeover(fields{"agent_id": "B", "role": " CTO "}).expect(t, 200, "") // 51
	want(t, a, "data.changed", false)
	want(t, a, "data.transferred_count", 0)
	want(t, a, "data.skipped_count", 1)
	want(t, a, "data.leader_epoch", 2)
	wantPending(t, h, "B", 1)

	h.online("plain", 1)
	a = takeover(fields{"agent_id": "plain"}).expect(t, 409, core.CodeCandidateUnavailable) // 52
	want(t, a, "data.role.leader_agent_id", "B")
	takeover(fields{"agent_id": "B", "role": "ceo"}).expect(t, 409, core.CodeRoleNotSupported) // 53
	takeover(fields{"agent_id": " "}).expect(t, 409, core.CodeAgentIDRequired)
	takeover(fields{}).expect(t, 400, core.CodeInvalidArgument) // 54
	takeover(fields{"agent_id": "B", "role": ""}).refusesField(t, core.CodeInvalidArgument, "role")
	takeover(fields{"agent_id": "B", "hub_instance_id": "old"}).expect(t, 409, core.CodeStaleHubInstance) // 55
}

// TestLegacyElectionVectors are the contract's vectors 56 to 63.
func TestLegacyElectionVectors(t *testing.T) {
	h := newTestHub(t)
	a := h.publishTo("topic:cto", fields{"n": 7}) // 56
	want(t, a, "data.fanout_count", 0)
	want(t, a, "data.role.pending_count", 1)
	want(t, a, "data.role.status", "offline")
	want(t, a, "data.role.last_reason", "init")

	h.legacy("C", 0) // 57
	h.wantLeader("C")
	wantPending(t, h, "C", 1)
	a = h.send("POST", "/bridge/context", fields{"agent_id": "C"}).expect(t, 200, "")
	first := a.at("data.messages").([]any)[0].(map[string]any)
	if fmt.Sprint(first["payload"]) != "map[n:7]" || first["status"] != "acked" {
		t.Errorf("the leader drains %v", first)
	}
	wantPending(t, h, "C", 0)
}

func TestLegacyExplicitCandidatesComeBeforeFollowersOfTheTopic(t *testing.T) {
	h := newTestHub(t)
	h.send("POST", "/bridge/register", fields{"agent_id": "W", "cli": "codex", "topics": []string{"cto"}}).expect(t, 200, "")
	h.wantLeader("W")
	h.legacy("L", 0) // preempts the fallback
	h.wantLeader("L")
	a := h.publishTo("topic:cto", "x") // 58
	want(t, a, "data.fanout_count", 1)
	want(t, a, "data.role.candidate_source", "explicit")
	wantPending(t, h, "L", 1)
	wantPending(t, h, "W", 0)
	a = h.send("GET", "/bridge/status?scope=agent&agent_id=L", nil).expect(t, 200, "")
	want(t, a, "data.agent.roles.cto.leader", true)
	want(t, a, "data.agent.roles.cto.candidate_source", "explicit")
}

func TestLegacyRoleMovesOnWhenItsLeaderGoes(t *testing.T) {
	h := newTestHub(t)
	h.legacy("A", 10)
	h.legacy("B", 1)
	h.publishTo("topic:cto", "x")
	for range 3 {
		h.publishTo("A", "x")
	}
	h.send("POST", "/bridge/deregister", fields{"agent_id": "A"}).expect(t, 200, "") // 59
	a := h.cto()
	want(t, a, "data.roles.cto.leader_agent_id", "B")
	want(t, a, "data.roles.cto.previous_leader_agent_id", "A")
	want(t, a, "data.roles.cto.last_reason", "status:offline")
	wantPending(t, h, "B", 1)
	wantPending(t, h, "A", 3)
	h.send("POST", "/bridge/heartbeat", fields{"agent_id": "A"}).expect(t, 200, "") // 60
	h.wantLeader("B")

	h.clock.advance(core.DefaultLease + time.Second) // 61
	before := h.items()
	a = h.cto()
	want(t, a, "data.roles.cto.leader_agent_id", nil)
	want(t, a, "data.roles.cto.status", "offline")
	h.mustNotWrite(before, "a status query")
}

func TestLegacyElectionBreaksTiesByIDAndKeepsALiveLeader(t *testing.T) {
	h := newTestHub(t)
	for _, id := range []string{"cto-ccc", "cto-aaa", "cto-bbb"} {
		h.legacy(id, 0)
	}
	h.wantLeader("cto-ccc") // the first, and live: no churn
	epoch := h.cto().number("data.roles.cto.leader_epoch")
	for range 2 { // 63
		h.send("POST", "/bridge/heartbeat", fields{"agent_id": "cto-aaa"}).expect(t, 200, "")
	}
	if got := h.cto().number("data.roles.cto.leader_epoch"); got != epoch {
		t.Errorf("the epoch went from %d to %d", epoch, got)
	}
	h.send("POST", "/bridge/deregister", fields{"agent_id": "cto-ccc"}).expect(t, 200, "") // 62: bbb saw nothing since
	if leader := h.cto().at("data.roles.cto.leader_agent_id"); leader != "cto-aaa" {
		t.Errorf("the leader is %v", leader)
	}
}

func (h *testHub) role(path string, body fields) answer {
	h.t.Helper()
	if body["role_key_wire"] == nil && body["role_key"] == nil {
		body["role_key_wire"] = ctoWire
	}
	return h.send("POST", "/bridge/roles/"+path, body)
}

func expectation(version, epoch, seq, id any) fields {
	return fields{"version": version, "epoch": epoch, "activation_seq": seq, "activation_id": id}
}

// TestRegistryVectors are the contract's vectors 64 to 76.
func TestRegistryVectors(t *testing.T) {
	h := newTestHub(t)
	cas := func(expected, patch fields) answer {
		return h.role("cas", fields{"expected": expected, "patch": patch})
	}
	a := cas(expectation(0, 0, 0, nil), fields{}).expect(t, 409, core.CodeNotFound) // 64
	if !a.has("data.role") || a.at("data.role") != nil {
		t.Errorf("the data of a role that is not there: %s", a.text)
	}
	a = h.role("reserve", fields{"holder_agent_id": "h"}).expect(t, 200, "") // 70
	for path, value := range map[string]any{
		"data.role.state": "elected-probing", "data.role.epoch": 0, "data.role.activation_seq": 0, "data.role.version": 0,
		"data.role.holder_agent_id": "h", "data.role.last_reason": "role_reserved",
	} {
		want(t, a, path, value)
	}
	id, _ := a.at("data.role.activation_id").(string)
	if !uuidPattern.MatchString(id) {
		t.Errorf("activation id %q", id)
	}
	for range 3 {
		a = h.role("reserve", fields{"holder_agent_id": "h"}).expect(t, 200, "")
	}
	id = a.at("data.role.activation_id").(string)
	missing := expectation(3, 3, 3, nil)
	delete(missing, "activation_id")
	a = cas(missing, fields{}).expect(t, 409, core.CodeInvalidCAS) // 65
	want(t, a, "data.role.version", 3)
	cas(expectation(nil, 3, 3, id), fields{}).expect(t, 409, core.CodeInvalidCAS)
	cas(expectation(2, 1, 3, id), fields{}).expect(t, 409, core.CodeStaleVersion) // 66
	cas(expectation(3, 2, 2, id), fields{}).expect(t, 409, core.CodeStaleEpoch)   // 67
	cas(expectation(3, 3, 2, "other"), fields{}).expect(t, 409, core.CodeStaleActivationSeq)
	a = cas(expectation(3, 3, 3, "other"), fields{}).expect(t, 409, core.CodeStaleActivationID) // 68
	want(t, a, "data.role.activation_id", id)
	cas(expectation(3, 3, 3, nil), fields{}).expect(t, 409, core.CodeStaleActivationID)
	a = cas(expectation(3, 3, 3, id), fields{"state": "active"}).expect(t, 200, "") // 69
	want(t, a, "data.role.version", 4)
	want(t, a, "data.role.epoch", 3)
	want(t, a, "data.role.activation_seq", 3)
	want(t, a, "data.role.state", "active")
	h.role("reserve", fields{"epoch": 5}).expect(t, 409, core.CodeStaleEpoch) // 71
	h.role("reserve", fields{"next_epoch": 5, "expected_version": 4}).expect(t, 409, core.CodeStaleEpoch)
	h.role("reserve", fields{"next_activation_seq": 5, "expected_version": 4}).expect(t, 409, core.CodeStaleActivationSeq)
	h.role("reserve", fields{"expected_version": 0}).expect(t, 409, core.CodeStaleVersion) // 72
	h.role("reserve", fields{"expected_epoch": 1}).expect(t, 409, core.CodeStaleEpoch)
	h.role("reserve", fields{"state": "asleep"}).refusesField(t, core.CodeRoleStateInvalid, "state") // 73
	cas(expectation(4, 3, 3, id), fields{"state": "asleep"}).refusesField(t, core.CodeRoleStateInvalid, "state")
	a = h.role("reserve", fields{"epoch": 4, "activation_seq": 4, "expected_version": 4, "expected_epoch": 3, "holder_agent_id": "i"}).expect(t, 200, "")
	want(t, a, "data.role.previous_holder_agent_id", "h")
	want(t, a, "data.role.epoch", 4)
	want(t, a, "data.role.version", 5)
	a = h.role("reserve", fields{"expected_version": 5, "holder_agent_id": "i"}).expect(t, 200, "") // the same holder
	want(t, a, "data.role.previous_holder_agent_id", "h")
	a = cas(expectation(6, 5, 5, a.at("data.role.activation_id")), fields{
		"holder_agent_id": nil, "previous_holder_agent_id": nil, "activation_id": nil, "state": nil, "retry_count": nil, "last_reason": nil,
	}).expect(t, 200, "")
	want(t, a, "data.role.holder_agent_id", nil)
	want(t, a, "data.role.previous_holder_agent_id", nil)
	want(t, a, "data.role.state", "elected-probing")

	history := h.send("GET", "/bridge/roles/history?limit=2&role_key_wire="+ctoWire, nil).expect(t, 200, "")
	transitions := history.at("data.transitions").([]any)
	if newest := transitions[0].(map[string]any); fmt.Sprintf("%v %v %v", newest["version"], newest["epoch"], newest["to"]) != "7 5 elected-probing" {
		t.Errorf("the newest transition is %v", newest)
	}
	cursor := history.at("data.next_cursor").(string)
	history = h.send("GET", "/bridge/roles/history?role_key_wire="+ctoWire+"&cursor="+url.QueryEscape(cursor), nil).expect(t, 200, "")
	if rest := history.at("data.transitions").([]any); len(rest) != 6 || history.at("data.next_cursor") != nil {
		t.Errorf("%d transitions follow: %s", len(rest), history.text)
	}
}

// TestRecoveryVectors are the contract's vectors 74 to 76.
func TestRecoveryVectors(t *testing.T) {
	h := newTestHub(t)
	now := h.clock.Now().UnixMilli()
	h.role("reserve", fields{"holder_agent_id": "h", "holder_lease_expires_ms": now - 100}).expect(t, 200, "")
	h.role("reserve", fields{"role_key_wire": leadWire, "holder_agent_id": "h", "holder_lease_expires_ms": now + 1000, "activation_id": "act"}).expect(t, 200, "")
	a := h.role("recover", fields{}).expect(t, 200, "")
	want(t, a, "data.restart_holder_lease_expired", 1)
	want(t, a, "data.restart_reprobe_required", 1)
	items := h.roleStatus("")
	expired, live := items[ctoWire], items[leadWire]
	if got := fmt.Sprintf("%v %v %v %v %v", expired["state"], expired["holder_agent_id"], expired["previous_holder_agent_id"], expired["epoch"], expired["last_reason"]); got != "electable <nil> h 1 restart_holder_lease_expired" { // 74
		t.Errorf("the role whose lease had passed: %s", got)
	}
	if live["state"] != "elected-probing" || live["holder_agent_id"] != "h" || live["activation_id"] == "act" || live["last_reason"] != "restart_reprobe_required" { // 75
		t.Errorf("the role whose lease is live: %v", live)
	}
	h.role("recover", fields{"now_ms": 5}).refusesField(t, core.CodeInvalidArgument, "now_ms")

	h.role("candidates", fields{"agent_id": "x"}).expect(t, 200, "")
	for i := range 3 { // 76
		c, err := h.hub.ReachCandidate(t.Context(), ctoWire, "x", core.Reachability{ProbeFailed: true})
		if err != nil || c.Failures != int64(i+1) {
			t.Fatalf("after failure %d: %+v, %v", i+1, c, err)
		}
		h.clock.advance(time.Millisecond)
	}
	c, err := h.hub.ReachCandidate(t.Context(), ctoWire, "x", core.Reachability{ProbeSucceeded: true})
	if err != nil || c.Failures != 0 {
		t.Errorf("after a success: %+v, %v", c, err)
	}
	if _, err := h.hub.ReachCandidate(t.Context(), ctoWire, "y", core.Reachability{}); core.CodeOf(err) != core.CodeNotFound {
		t.Errorf("an agent that is no candidate: %v", err)
	}
}

// roleStatus returns the items of the roles' status by their wire form.
func (h *testHub) roleStatus(query string) map[string]map[string]any {
	h.t.Helper()
	a := h.send("GET", "/bridge/roles/status?"+query, nil).expect(h.t, 200, "")
	items := map[string]map[string]any{}
	for _, item := range a.at("data.items").([]any) {
		role := item.(map[string]any)
		items[role["role_key_wire"].(string)] = role
	}
	return items
}

// TestRoleKeyVectors are the contract's vectors 77 and 78 over HTTP.
func TestRoleKeyVectors(t *testing.T) {
	h := newTestHub(t)
	ensure := func(body fields) answer {
		body["trigger"], body["cause_id"] = "manual", "c"
		return h.send("POST", "/bridge/roles/ensure", body)
	}
	for _, wire := range []string{ctoWire, leadWire} { // 77
		want(t, ensure(fields{"role_key_wire": wire}).expect(t, 200, ""), "data.role_key_wire", wire)
	}
	const reordered = "rk2.eyJyb2xlX2tpbmQiOiJjdG8iLCJwcm9qZWN0X2lkIjoicHJqX0FiQ2RFZkdoSWpLbE1uT3BRclN0VXYifQ"
	for wire, code := range map[string]core.Code{
		reordered: core.CodeRoleKeyNonCanonical, "rk1.x": core.CodeRoleKeyWirePrefix, "rk2.": core.CodeRoleKeyNonCanonical, "rk2.!": core.CodeRoleKeyNonCanonical,
	} {
		ensure(fields{"role_key_wire": wire}).expect(t, 400, code)
	}
	ensure(fields{"role_key_wire": 5}).expect(t, 400, core.CodeRoleKeyWireInvalid)
	project := testProject
	for _, c := range []struct { // 78
		key  any
		code core.Code
	}{
		{fields{"project_id": project, "role_kind": "cto", "scope_id": testScope}, core.CodeRoleScopeForbidden},
		{fields{"project_id": project, "role_kind": "lead"}, core.CodeScopeRequired},
		{fields{"project_id": project, "role_kind": "owner"}, core.CodeRoleKindUnsupported},
		{fields{"project_id": project, "role_kind": "cto", "x": 1}, core.CodeRoleKeyFieldUnsupported},
		{fields{"project_id": "p", "role_kind": "cto"}, core.CodeProjectIDInvalid},
		{fields{"project_id": project, "role_kind": "lead", "scope_id": "s"}, core.CodeScopeIDInvalid},
		{[]string{}, core.CodeRoleKeyInvalid}, {nil, core.CodeRoleKeyInvalid},
	} {
		ensure(fields{"role_key": c.key}).expect(t, 400, c.code)
	}
	ensure(fields{"role_key_wire": leadWire, "role_key": fields{"project_id": project, "role_kind": "cto"}}).expect(t, 400, core.CodeInvalidArgument)
	h.role("ensure", fields{"trigger": "whim", "cause_id": "c"}).expect(t, 400, core.CodeEnsureRoleInvalid)
	h.role("ensure", fields{"trigger": "manual", "cause_id": ""}).expect(t, 400, core.CodeEnsureRoleInvalid)
}

// able registers an agent that may hold roles, as a candidate of the cto.
func (h *testHub) able(id string) {
	h.t.Helper()
	h.send("POST", "/bridge/register", fields{
		"agent_id": id, "cli": "claude", "capabilities": []string{"role:cto:candidate", "role:lead:candidate"},
	}).expect(h.t, 200, "")
	h.role("candidates", fields{"agent_id": id}).expect(h.t, 200, "")
}

func (h *testHub) ensure() answer {
	h.t.Helper()
	return h.role("ensure", fields{"trigger": "manual", "cause_id": "c"}).expect(h.t, 200, "")
}

// activation drains the agent's inbox and returns the latest activation in it.
func (h *testHub) activation(id string) map[string]any {
	h.t.Helper()
	a := h.send("POST", "/bridge/context", fields{"agent_id": id}).expect(h.t, 200, "")
	messages := a.at("data.messages").([]any)
	if len(messages) == 0 {
		h.t.Fatalf("%s has no activation", id)
	}
	last := messages[len(messages)-1].(map[string]any)
	if last["topic"] != "role.activation" || last["role_key_wire"] != ctoWire {
		h.t.Fatalf("%s has %v", id, last)
	}
	return last["payload"].(map[string]any)
}

func ackOf(id string, activation map[string]any) fields {
	return fields{
		"schema_version": "tfx.role-activation-ack.v1", "agent_id": id, "holder_agent_id": id, "role_key": activation["role_key"], "reachable": true,
		"activation_id": activation["activation_id"], "epoch": activation["epoch"], "activation_seq": activation["activation_seq"],
		"charter_ack": fields{"role_key": activation["role_key"], "epoch": activation["epoch"], "charter_version": activation["charter_version"]},
	}
}

func (h *testHub) fenceCheck(id string, epoch any) answer {
	h.t.Helper()
	return h.role("fence-check", fields{"agent_id": id, "epoch": epoch}).expect(h.t, 200, "")
}

// TestActivatorVectors are the contract's vectors 79 and 81; 80 is a test of the
// core.
func TestActivatorVectors(t *testing.T) {
	h := newTestHub(t)
	h.send("POST", "/bridge/register", fields{"agent_id": "starter", "cli": "other", "topics": []string{"role.standup"}}).expect(t, 200, "")
	dispositions := map[any]int{}
	var mu sync.Mutex
	var wait sync.WaitGroup
	for range 50 { // 79
		wait.Go(func() {
			a := h.role("ensure", fields{"trigger": "session_start", "cause_id": "c"})
			mu.Lock()
			defer mu.Unlock()
			dispositions[a.at("data.disposition")]++
		})
	}
	wait.Wait()
	if dispositions["started"] != 1 || dispositions["joined"] != 49 {
		t.Fatalf("50 ensures at once: %v", dispositions)
	}
	if n := h.pendingOf("starter"); n != 1 {
		t.Errorf("%d calls for a session", n)
	}
	h.able("a") // the session that was called for
	activation := h.activation("a")
	h.clock.advance(core.ActivationDeadline)                                       // the deadline itself is too late
	a := h.role("ack", ackOf("a", activation)).expect(t, 409, core.CodeStaleEpoch) // 81
	want(t, a, "data.role.epoch", activation["epoch"])
}

func TestAnActivationMakesAHolderWhoseAuthorityIsItsLease(t *testing.T) {
	h := newTestHub(t)
	h.able("a")
	a := h.ensure()
	want(t, a, "data.disposition", "started")
	want(t, a, "data.accepted", true)
	want(t, a, "data.state", "elected-probing")
	activation := h.activation("a")
	want(t, h.fenceCheck("a", activation["epoch"]), "data.valid", false) // reserved is not held
	a = h.role("ack", ackOf("a", activation)).expect(t, 200, "")
	want(t, a, "data.idempotent", false)
	want(t, a, "data.role.state", "active")
	want(t, a, "data.role.charter_acked_epoch", activation["epoch"])
	a = h.role("ack", ackOf("a", activation)).expect(t, 200, "")
	want(t, a, "data.idempotent", true)
	want(t, h.ensure(), "data.disposition", "already_active")
	check := h.fenceCheck("a", activation["epoch"])
	want(t, check, "data.valid", true)
	want(t, check, "data.holder_agent_id", "a")
	want(t, check, "data.holder_lease_expires_ms", h.clock.Now().Add(core.DefaultLease).UnixMilli())
	role := h.roleStatus("project_id=" + testProject)[ctoWire]
	if role["state"] != "active" || fmt.Sprint(role["live_candidate_count"]) != "1" {
		t.Errorf("the status shows %v", role)
	}

	h.clock.advance(core.DefaultLease)
	want(t, h.fenceCheck("a", activation["epoch"]), "data.valid", false)
	if state := h.roleStatus("")[ctoWire]["state"]; state != "electable" {
		t.Errorf("a role whose holder lapsed reads %v", state)
	}
	h.send("POST", "/bridge/heartbeat", fields{"agent_id": "a"}).expect(t, 200, "")
	want(t, h.fenceCheck("a", activation["epoch"]), "data.valid", true) // nobody was reserved meanwhile

	h.able("a") // a new registration has to acknowledge for itself
	want(t, h.fenceCheck("a", activation["epoch"]), "data.valid", false)
	h.role("ack", ackOf("a", activation)).expect(t, 409, core.CodeStaleEpoch)
}

func TestAnAcknowledgementIsRefusedByTheFirstThingThatDoesNotFit(t *testing.T) {
	h := newTestHub(t)
	h.able("a")
	h.role("settings", fields{"charter_version": "v1"}).expect(t, 200, "")
	h.ensure()
	activation := h.activation("a")
	with := func(change func(fields)) fields {
		body := ackOf("a", activation)
		change(body)
		return body
	}
	h.online("b", 1)
	for name, c := range map[string]struct {
		code   core.Code
		change func(fields)
	}{
		"epoch":      {core.CodeStaleEpoch, func(b fields) { b["epoch"], b["holder_agent_id"] = 7, "b" }},
		"seq":        {core.CodeStaleEpoch, func(b fields) { b["activation_seq"] = 7 }},
		"activation": {core.CodeStaleEpoch, func(b fields) { b["activation_id"] = "x" }},
		"charter's key": {core.CodeStaleEpoch, func(b fields) {
			b["charter_ack"].(fields)["role_key"] = fields{"project_id": testProject, "role_kind": "lead", "scope_id": testScope}
		}},
		"charter epoch":  {core.CodeStaleEpoch, func(b fields) { b["charter_ack"].(fields)["epoch"] = 7 }},
		"holder":         {core.CodeHolderMismatch, func(b fields) { b["holder_agent_id"] = "b" }},
		"principal":      {core.CodeHolderMismatch, func(b fields) { b["agent_id"] = "b" }},
		"charter":        {core.CodeCharterVersionMismatch, func(b fields) { b["charter_ack"].(fields)["charter_version"] = "v0" }},
		"old generation": {core.CodeStalePresenceOwner, func(b fields) { b["presence_generation"] = 7 }},
	} {
		if a := h.role("ack", with(c.change)); a.status != 409 || a.code() != string(c.code) {
			t.Errorf("%s: %d %s", name, a.status, a.text)
		}
	}
	for name, change := range map[string]func(fields){
		"shape":     func(b fields) { b["charter_ack"] = 5 },
		"reachable": func(b fields) { b["reachable"] = false },
		"schema":    func(b fields) { b["schema_version"] = "v0" },
	} {
		if a := h.role("ack", with(change)); a.status != 400 || a.code() != string(core.CodeActivationAckInvalid) {
			t.Errorf("%s: %d %s", name, a.status, a.text)
		}
	}
	h.send("POST", "/bridge/deregister", fields{"agent_id": "a"}).expect(t, 200, "")
	h.role("ack", ackOf("a", activation)).expect(t, 409, core.CodeHolderLeaseExpired)
}

func TestACandidateThatMissesItsDeadlineIsExcludedAndTheNextReserved(t *testing.T) {
	h := newTestHub(t)
	h.able("a")
	h.clock.advance(time.Millisecond)
	h.able("b") // added later, so it comes first
	h.ensure()
	h.activation("b")
	h.clock.advance(core.ActivationDeadline)
	want(t, h.ensure(), "data.disposition", "started")
	first := h.activation("a")
	want(t, h.role("ack", ackOf("a", first)).expect(t, 200, ""), "data.role.epoch", first["epoch"])

	h.role("release", fields{"agent_id": "a", "epoch": first["epoch"]}).expect(t, 200, "")
	for _, id := range []string{"a", "b"} {
		h.send("POST", "/bridge/deregister", fields{"agent_id": id}).expect(t, 200, "")
	}
	h.able("b")
	states := []any{}
	for range 8 {
		a := h.ensure()
		states = append(states, a.at("data.state"))
		h.clock.advance(core.ActivationDeadline)
	}
	if !slices.Contains(states, any("quarantined")) {
		t.Errorf("a candidate that never answers leads to %v", states)
	}
}

// held has a hold the cto and returns its epoch.
func (h *testHub) held(id string) int64 {
	h.t.Helper()
	h.able(id)
	h.ensure()
	return h.role("ack", ackOf(id, h.activation(id))).expect(h.t, 200, "").number("data.role.epoch")
}

func TestARoleInboxIsDrainedByItsHolderOnlyAndAChangeOfHolderLosesNothing(t *testing.T) {
	h := newTestHub(t)
	address := "topic:role:" + ctoWire
	want(t, h.publishTo(address, 1), "data.fanout_count", 0)
	epoch := h.held("a")
	want(t, h.publishTo(address, 2), "data.fanout_count", 1)
	h.publishTo("a", 3)
	h.able("b")
	wantPending(t, h, "a", 3)
	wantPending(t, h, "b", 0)
	if n := h.send("POST", "/bridge/context", fields{"agent_id": "b"}).number("data.count"); n != 0 {
		t.Errorf("an agent that does not hold the role drains %d", n)
	}
	a := h.send("POST", "/bridge/context", fields{"agent_id": "a", "max_messages": 1}).expect(t, 200, "")
	if got := fmt.Sprint(a.at("data.messages").([]any)[0].(map[string]any)["payload"]); got != "1" {
		t.Errorf("the oldest of both inboxes is %s", got)
	}
	leased := h.send("POST", "/bridge/context", fields{"agent_id": "a", "auto_ack": false, "visibility_ms": 1000, "max_messages": 1}).expect(t, 200, "")
	receipt := leased.at("data.messages").([]any)[0].(map[string]any)["receipt"]

	a = h.role("release", fields{"agent_id": "a", "epoch": epoch, "successor": "b"}).expect(t, 200, "")
	want(t, a, "data.role.holder_agent_id", "b")
	want(t, a, "data.role.state", "elected-probing")
	h.role("ack", ackOf("b", h.activation("b"))).expect(t, 200, "")
	h.publishTo(address, 4)
	if n := h.send("POST", "/bridge/context", fields{"agent_id": "a"}).number("data.count"); n != 1 { // its own
		t.Errorf("the old holder drains %d", n)
	}
	a = h.send("POST", "/bridge/context", fields{"agent_id": "b", "auto_ack": false}).expect(t, 200, "")
	peeked := a.at("data.messages").([]any)
	if len(peeked) != 1 || fmt.Sprint(peeked[0].(map[string]any)["payload"]) != "4" {
		t.Errorf("the new holder sees %v", peeked)
	}
	ack := h.send("POST", "/bridge/ack", fields{"agent_id": "b", "message_ids": []any{peeked[0].(map[string]any)["id"]}}).expect(t, 200, "")
	want(t, ack, "data.acked", 1)
	h.clock.advance(2 * time.Second) // the old holder's lease of a message lapsed, and nobody took it yet
	want(t, h.send("POST", "/bridge/ack", fields{"agent_id": "a", "receipts": []any{receipt}}).expect(t, 200, ""), "data.acked", 1)
}

func TestAHandOverWithAGraceEndsTheOldAuthorityAtItsEnd(t *testing.T) {
	h := newTestHub(t)
	epoch := h.held("a")
	h.able("b")
	a := h.role("release", fields{"agent_id": "a", "epoch": epoch, "successor": "b", "grace_ms": 5000}).expect(t, 200, "")
	want(t, a, "data.role.state", "active")
	want(t, h.fenceCheck("a", epoch), "data.valid", true)
	want(t, h.ensure(), "data.disposition", "already_active")
	h.role("state", fields{"agent_id": "a", "epoch": epoch, "state": fields{"at": 7}, "expected_state_version": 0}).expect(t, 200, "")
	h.clock.advance(5 * time.Second)
	h.send("POST", "/bridge/heartbeat", fields{"agent_id": "a"}).expect(t, 200, "") // does not bring it back
	want(t, h.fenceCheck("a", epoch), "data.valid", false)
	h.role("state", fields{"agent_id": "a", "epoch": epoch, "state": 1, "expected_state_version": 1}).expect(t, 409, core.CodeStaleEpoch)
	want(t, h.ensure(), "data.disposition", "started")
	a = h.role("ack", ackOf("b", h.activation("b"))).expect(t, 200, "")
	want(t, a, "data.state.at", 7) // what the predecessor left
	want(t, a, "data.state_version", 1)
}

func TestAnAttachedValueIsReplacedByTheHolderUnderItsVersionOnly(t *testing.T) {
	h := newTestHub(t)
	epoch := h.held("a")
	set := func(body fields) answer {
		for name, value := range (fields{"agent_id": "a", "epoch": epoch, "state": "x", "expected_state_version": 0}) {
			if _, given := body[name]; !given {
				body[name] = value
			}
		}
		return h.role("state", body)
	}
	want(t, set(fields{}).expect(t, 200, ""), "data.state_version", 1)
	a := set(fields{}).expect(t, 409, core.CodeStaleStateVersion)
	want(t, a, "data.state_version", 1)
	want(t, set(fields{"expected_state_version": 1, "state": nil}).expect(t, 200, ""), "data.state_version", 2)
	set(fields{"expected_state_version": 2, "epoch": epoch - 1}).expect(t, 409, core.CodeStaleEpoch)
	set(fields{"expected_state_version": 2, "agent_id": "b"}).expect(t, 409, core.CodeStaleEpoch)
	large := make([]byte, core.MaxRoleValue)
	for i := range large {
		large[i] = 'x'
	}
	set(fields{"expected_state_version": 2, "state": string(large)}).refusesField(t, core.CodeInvalidArgument, "state")
	set(fields{"expected_state_version": 2, "state": string(large[:core.MaxRoleValue-2])}).expect(t, 200, "")
	h.send("POST", "/bridge/deregister", fields{"agent_id": "a"}).expect(t, 200, "")
	set(fields{"expected_state_version": 3}).expect(t, 409, core.CodeHolderLeaseExpired)
}

func TestASwitchTakesAuthorityAwayBeforeItsAnswer(t *testing.T) {
	h := newTestHub(t)
	epoch := h.held("a")
	a := h.role("settings", fields{"cto_manager_enabled": false}).expect(t, 200, "")
	want(t, a, "data.generation", 1)
	want(t, a, "data.master_enabled", true)
	check := h.fenceCheck("a", epoch)
	want(t, check, "data.valid", false)
	want(t, check, "data.epoch", epoch+1)
	a = h.ensure()
	want(t, a, "data.disposition", "manager_disabled")
	want(t, a, "data.accepted", false)
	want(t, a, "data.blocked_reason", "manager_disabled")
	h.role("settings", fields{"cto_manager_enabled": true}).expect(t, 200, "")
	want(t, h.ensure(), "data.disposition", "started")

	h.role("reserve", fields{"role_key_wire": leadWire, "holder_agent_id": "x"}).expect(t, 200, "")
	h.role("settings", fields{"closed_scopes": []string{testScope}}).expect(t, 200, "")
	if _, there := h.roleStatus("")[leadWire]; there {
		t.Error("a role of a closed scope is listed")
	}
	a = h.role("ensure", fields{"role_key_wire": leadWire, "trigger": "manual", "cause_id": "c"}).expect(t, 200, "")
	want(t, a, "data.disposition", "scope_closed")
	h.role("fence-check", fields{"role_key_wire": leadWire, "agent_id": "x", "epoch": 0}).expect(t, 404, core.CodeRoleNotFound)
	h.role("settings", fields{"closed_scopes": []string{}}).expect(t, 200, "")
	a = h.role("ensure", fields{"role_key_wire": leadWire, "trigger": "manual", "cause_id": "c"}).expect(t, 200, "")
	if a.number("data.epoch") != 2 { // 0 reserved, 1 closed: no number is given twice
		t.Errorf("the epoch after a scope was closed and opened: %s", a.text)
	}
	h.role("settings", fields{"closed_scopes": []string{"s"}}).refusesField(t, core.CodeScopeIDInvalid, "closed_scopes[0]")
}

func TestARotationFencesEveryRole(t *testing.T) {
	h := newTestHub(t)
	epoch := h.held("a")
	a := h.send("POST", "/bridge/hub/rotate", fields{}).expect(t, 200, "")
	want(t, a, "data.roles_recovered.restart_reprobe_required", 1)
	want(t, h.fenceCheck("a", epoch), "data.valid", false)
	want(t, h.ensure(), "data.disposition", "started")
	h.role("ack", ackOf("a", h.activation("a"))).expect(t, 200, "")
}

func TestTheRoleStatusPagesInTheOrderOfTheWireForms(t *testing.T) {
	h := newTestHub(t)
	for i := range 7 {
		h.role("reserve", fields{"role_key": fields{"project_id": fmt.Sprintf("prj_%022d", i%3), "role_kind": "lead", "scope_id": fmt.Sprintf("scp_%022d", i)}}).expect(t, 200, "")
	}
	seen, cursor := []string{}, ""
	for {
		a := h.send("GET", "/bridge/roles/status?limit=3&cursor="+url.QueryEscape(cursor), nil).expect(t, 200, "")
		want(t, a, "data.schema_version", "tfx.roles.v2")
		for _, item := range a.at("data.items").([]any) {
			seen = append(seen, item.(map[string]any)["role_key_wire"].(string))
		}
		next, more := a.at("data.next_cursor").(string)
		if !more {
			break
		}
		cursor = next
	}
	for i := 1; i < len(seen); i++ {
		if seen[i-1] >= seen[i] {
			t.Errorf("out of order: %v", seen)
		}
	}
	if of := h.roleStatus("project_id=" + fmt.Sprintf("prj_%022d", 0)); len(seen) != 7 || len(of) != 3 {
		t.Errorf("%d roles, %d of the first project", len(seen), len(of))
	}
}
