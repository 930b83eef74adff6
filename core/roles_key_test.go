package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

const (
	testProject = "prj_AbCdEfGhIjKlMnOpQrStUv"
	testScope   = "scp_ZyXwVuTsRqPoNmLkJiHgFe"
)

// The vectors of contract 4.1.
func TestTheWireFormsOfTheContract(t *testing.T) {
	for wire, key := range map[string]RoleKey{
		"rk2.eyJwcm9qZWN0X2lkIjoicHJqX0FiQ2RFZkdoSWpLbE1uT3BRclN0VXYiLCJyb2xlX2tpbmQiOiJjdG8ifQ": {ProjectID: testProject, Kind: RoleCTO},
		"rk2.eyJwcm9qZWN0X2lkIjoicHJqX0FiQ2RFZkdoSWpLbE1uT3BRclN0VXYiLCJyb2xlX2tpbmQiOiJsZWFkIiwic2NvcGVfaWQiOiJzY3BfWnlYd1Z1VHNScVBvTm1Ma0ppSGdGZSJ9": {
			ProjectID: testProject, Kind: RoleLead, ScopeID: testScope,
		},
	} {
		if got := key.Wire(); got != wire {
			t.Errorf("%+v encodes to %s", key, got)
		}
		if got, err := ParseRoleWire(wire); err != nil || got != key {
			t.Errorf("%s decodes to %+v, %v", wire, got, err)
		}
		if !strings.HasPrefix(wire, ProjectWirePrefix(testProject)) {
			t.Errorf("%s does not begin as its project's", wire)
		}
		if key.Address() != "topic:role:"+wire {
			t.Errorf("the address is %s", key.Address())
		}
	}
	if other := ProjectWirePrefix("prj_AbCdEfGhIjKlMnOpQrStUw"); strings.HasPrefix(RoleKey{ProjectID: testProject, Kind: RoleCTO}.Wire(), other) {
		t.Error("two projects share a prefix")
	}
}

func TestARoleKeyIsRefusedByItsFirstMistake(t *testing.T) {
	for text, want := range map[string]Code{
		`[]`: CodeRoleKeyInvalid, `null`: CodeRoleKeyInvalid, `5`: CodeRoleKeyInvalid, ``: CodeRoleKeyInvalid, `{`: CodeRoleKeyInvalid,
		`{"project_id":"x","role_kind":"x","extra":1}`: CodeRoleKeyFieldUnsupported,
		`{}`: CodeProjectIDInvalid,
		`{"project_id":"prj_","role_kind":"owner"}`:                                                       CodeProjectIDInvalid,
		`{"project_id":5,"role_kind":"owner"}`:                                                            CodeProjectIDInvalid,
		`{"project_id":"` + testProject + `\n","role_kind":"cto"}`:                                        CodeProjectIDInvalid,
		`{"project_id":"` + testProject + `","scope_id":"x"}`:                                             CodeRoleKindUnsupported,
		`{"project_id":"` + testProject + `","role_kind":"CTO"}`:                                          CodeRoleKindUnsupported,
		`{"project_id":"` + testProject + `","role_kind":"cto","scope_id":null}`:                          CodeRoleScopeForbidden,
		`{"project_id":"` + testProject + `","role_kind":"lead"}`:                                         CodeScopeRequired,
		`{"project_id":"` + testProject + `","role_kind":"lead","scope_id":7}`:                            CodeScopeRequired,
		`{"project_id":"` + testProject + `","role_kind":"lead","scope_id":""}`:                           CodeScopeIDInvalid,
		`{"project_id":"` + testProject + `","role_kind":"lead","scope_id":"scp_ZyXwVuTsRqPoNmLkJiHgF!"}`: CodeScopeIDInvalid,
	} {
		if _, err := ParseRoleKey(json.RawMessage(text)); CodeOf(err) != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestAWireFormIsRefusedByItsFirstMistake(t *testing.T) {
	wire := RoleKey{ProjectID: testProject, Kind: RoleCTO}.Wire()
	for text, want := range map[string]Code{
		"":                           CodeRoleKeyWirePrefix,
		strings.Repeat("x", 513):     CodeRoleKeyWireInvalid,
		"rk1." + wire[4:]:            CodeRoleKeyWirePrefix,
		"rk2.":                       CodeRoleKeyNonCanonical,
		"rk2.*":                      CodeRoleKeyNonCanonical,
		"rk2.ew":                     CodeRoleKeyNonCanonical, // {, which is no JSON
		wire + "=":                   CodeRoleKeyNonCanonical,
		wire[:len(wire)-1]:           CodeRoleKeyNonCanonical,
		wire[:50] + "\n" + wire[50:]: CodeRoleKeyNonCanonical,
		"rk2.NQ":                     CodeRoleKeyInvalid,   // 5
		"rk2.e30":                    CodeProjectIDInvalid, // {}
		"rk2.eyJyb2xlX2tpbmQiOiJjdG8iLCJwcm9qZWN0X2lkIjoicHJqX0FiQ2RFZkdoSWpLbE1uT3BRclN0VXYifQ": CodeRoleKeyNonCanonical,
	} {
		if _, err := ParseRoleWire(text); CodeOf(err) != want {
			t.Errorf("%.60q: %v, want %s", text, err, want)
		}
	}
}

func FuzzAWireFormDecodesToTheKeyThatEncodesToIt(f *testing.F) {
	f.Add(RoleKey{ProjectID: testProject, Kind: RoleCTO}.Wire())
	f.Add(RoleKey{ProjectID: testProject, Kind: RoleLead, ScopeID: testScope}.Wire())
	f.Add("rk2.e30")
	f.Fuzz(func(t *testing.T, wire string) {
		key, err := ParseRoleWire(wire)
		if err != nil {
			var refusal *Error
			if !errors.As(err, &refusal) || refusal.Code.Entry().Kind != KindInvalid {
				t.Fatalf("%q is refused with %v", wire, err)
			}
			return
		}
		if key.Wire() != wire {
			t.Fatalf("%q and %q are the same key", wire, key.Wire())
		}
		if again, err := ParseRoleKey(key.JSON()); err != nil || again != key {
			t.Fatalf("%s reads as %+v, %v", key.JSON(), again, err)
		}
	})
}

// The transition table of contract 4.2: every pair that it names, and no other.
func TestTheTransitionTable(t *testing.T) {
	rows := map[RoleState]map[string]RoleState{
		RoleElectable:   {"candidate_selected": RoleProbing, "standup_reserved": RoleProbing, "no_candidate": RoleElectable, "candidates_excluded": RoleQuarantined},
		RoleProbing:     {"probe_succeeded": RoleProbing, "activation_acked": RoleActive, "probe_failed": RoleUnreachable, "wake_failed": RoleUnreachable, "ack_timeout": RoleUnreachable, "holder_lease_expired": RoleElectable},
		RoleActive:      {"holder_lease_expired": RoleElectable, "holder_offline": RoleElectable, "transport_failed": RoleUnreachable, "charter_reissued": RoleProbing},
		RoleUnreachable: {"alternate_candidate_available": RoleElectable, "retry_due": RoleProbing, "retries_exhausted": RoleQuarantined},
		RoleQuarantined: {"exclusion_expired": RoleElectable, "candidate_registered": RoleElectable, "locator_registered": RoleElectable, "capability_registered": RoleElectable},
	}
	triggers := map[string]bool{}
	for _, row := range rows {
		for trigger := range row {
			triggers[trigger] = true
		}
	}
	for _, from := range RoleStates {
		for trigger := range triggers {
			got, err := NextRoleState(from, trigger)
			want, listed := rows[from][trigger]
			switch {
			case listed && (err != nil || got.To != want || got.Action == ""):
				t.Errorf("%s and %s lead to %+v, %v", from, trigger, got, err)
			case !listed && CodeOf(err) != CodeInvalidRoleTransition:
				t.Errorf("%s and %s: %+v, %v", from, trigger, got, err)
			}
		}
		if got, err := NextRoleState(from, "stale_ack"); err != nil || got.To != from || got.Refused != CodeStaleEpoch {
			t.Errorf("a stale acknowledgement in %s: %+v, %v", from, got, err)
		}
		if got, err := NextRoleState(from, "scope_closed"); err != nil || got.To != "" || got.Action != "remove_registry" {
			t.Errorf("a closed scope in %s: %+v, %v", from, got, err)
		}
	}
	if _, err := NextRoleState("asleep", "stale_ack"); CodeOf(err) != CodeRoleStateInvalid {
		t.Errorf("an unknown state: %v", err)
	}
}

// Vector 80.
func TestTheBackoffOfACandidate(t *testing.T) {
	for _, c := range []struct {
		n    int64
		u    float64
		want string
	}{{1, 0, "800ms"}, {1, 1, "1.2s"}, {10, 0.5, "30s"}, {2, 0.5, "2s"}, {5, 0.5, "16s"}, {6, 0.5, "30s"}, {1 << 40, 1, "36s"}} {
		if got := RoleBackoff(c.n, c.u); fmt.Sprint(got) != c.want {
			t.Errorf("after failure %d with u %g: %v, want %s", c.n, c.u, got, c.want)
		}
	}
}

func TestWhoIsALegacyCandidate(t *testing.T) {
	for _, c := range []struct {
		metadata string
		agent    Agent
		source   string
		priority float64
	}{
		{`{}`, Agent{}, "", 0},
		{`{"role":"cto"}`, Agent{}, legacyExplicit, 0},
		{`{"role":"dev, cto"}`, Agent{}, legacyExplicit, 0},
		{`{"roles":["dev","cto"],"priority":3}`, Agent{}, legacyExplicit, 3},
		{`{"role":"ctos"}`, Agent{}, "", 0},
		{`{"cto":true,"cto_priority":null,"priority":9}`, Agent{}, legacyExplicit, 0},
		{`{"cto":"true"}`, Agent{}, "", 0},
		{`{"is_cto":true,"cto_priority":"x","role_priority":2.5}`, Agent{}, legacyExplicit, 2.5},
		{`{}`, Agent{Capabilities: []string{"CTO:Leader"}}, legacyExplicit, 0},
		{`{"priority":4}`, Agent{Topics: []string{"cto"}}, legacyFallback, 4},
		{`{"cto":true}`, Agent{Topics: []string{"cto"}}, legacyExplicit, 0},
	} {
		c.agent.Metadata = json.RawMessage(c.metadata)
		got, ok := c.agent.legacyCandidate(1)
		if ok != (c.source != "") || got.Source != c.source || got.Priority != c.priority {
			t.Errorf("%s %v %v: %+v", c.metadata, c.agent.Capabilities, c.agent.Topics, got)
		}
	}
}
