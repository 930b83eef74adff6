package core_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"drawbridge/core"
)

// refusedAs tells the code of a refusal, and whether the role comes with it.
func refusedAs(err error) string {
	told := string(core.CodeOf(err))
	var refusal *core.Error
	if errors.As(err, &refusal) {
		if stands, is := refusal.Data.(core.RoleStands); is && stands.Role.Set {
			told += " with the role"
		}
	}
	return told
}

func TestACompareAndSetNeedsAllThatIsExpectedAndIsRefusedByTheFirstThatDiffers(t *testing.T) {
	all := core.RoleExpectation{Version: core.Some[int64](7), Epoch: core.Some[int64](5), ActivationSeq: core.Some[int64](5), ActivationID: core.Some("i")}
	expect := func(change func(*core.RoleExpectation)) core.RoleExpectation {
		e := all
		change(&e)
		return e
	}
	closed := func(d *roleDesk) { d.board.Role.Closed = true }
	for _, test := range []struct {
		name     string
		set      func(*roleDesk)
		expected core.RoleExpectation
		asked    bool // the store
		want     string
	}{
		{"no version", nil, expect(func(e *core.RoleExpectation) { e.Version.Set = false }), false, "INVALID_CAS with the role"},
		{"no epoch", nil, expect(func(e *core.RoleExpectation) { e.Epoch.Set = false }), false, "INVALID_CAS with the role"},
		{"no activation_seq", nil, expect(func(e *core.RoleExpectation) { e.ActivationSeq.Set = false }), false, "INVALID_CAS with the role"},
		{"no activation_id", nil, expect(func(e *core.RoleExpectation) { e.ActivationID.Set = false }), false, "INVALID_CAS with the role"},
		{"nothing of a closed role", closed, core.RoleExpectation{}, false, "NOT_FOUND"},
		{"nothing of no role", func(d *roleDesk) { d.board.Role = core.AbsentRole(deskProject, deskProject.Wire()) }, core.RoleExpectation{}, false, "NOT_FOUND"},
		{"all of a closed role", closed, all, true, "NOT_FOUND"},
		{"all of no role", func(d *roleDesk) { d.board.Role = core.AbsentRole(deskProject, deskProject.Wire()) }, all, true, "NOT_FOUND"},
		{"another of each", nil, core.RoleExpectation{Version: core.Some[int64](1), Epoch: core.Some[int64](1), ActivationSeq: core.Some[int64](1), ActivationID: core.Some("j")}, true, "STALE_VERSION with the role"},
		{"another version", nil, expect(func(e *core.RoleExpectation) { e.Version.Value-- }), true, "STALE_VERSION with the role"},
		{"another epoch", nil, expect(func(e *core.RoleExpectation) { e.Epoch.Value-- }), true, "STALE_EPOCH with the role"},
		{"another activation_seq", nil, expect(func(e *core.RoleExpectation) { e.ActivationSeq.Value-- }), true, "STALE_ACTIVATION_SEQ with the role"},
		{"another activation_id", nil, expect(func(e *core.RoleExpectation) { e.ActivationID.Value = "j" }), true, "STALE_ACTIVATION_ID with the role"},
		{"nothing, by the time it is read", nil, all, true, "CONTENDED with the role"},
	} {
		d := newRoleDesk(t)
		if test.set != nil {
			test.set(d)
		}
		d.refuses, d.updated = true, core.RoleOutcome{Role: d.board.Role}
		_, err := d.hub.CompareAndSetRole(t.Context(), core.RoleCAS{Wire: deskProject.Wire(), Expected: test.expected})
		if got := refusedAs(err); got != test.want || len(d.updates) > 0 != test.asked {
			t.Errorf("%s: %s after %d requests", test.name, got, len(d.updates))
		}
	}
}

func TestACompareAndSetIsDueWhenTheFirstOfItsMomentsIs(t *testing.T) {
	all := core.RoleExpectation{Version: core.Some[int64](7), Epoch: core.Some[int64](5), ActivationSeq: core.Some[int64](5), ActivationID: core.Some("i")}
	d := newRoleDesk(t)
	in := func(wait time.Duration) core.Opt[core.Instant] { return core.Some(d.later(wait)) }
	never := core.Some(core.Instant(0))
	probing, electable := core.Some(core.RoleProbing), core.Some(core.RoleElectable)
	for _, test := range []struct {
		name  string
		patch core.RolePatch
		want  string
	}{
		{"nothing", core.RolePatch{}, "-"},
		{"a state without a moment", core.RolePatch{State: probing}, "0s"},
		{"electable", core.RolePatch{State: electable}, "-"},
		{"a state with a moment", core.RolePatch{State: probing, NextProbe: in(9 * time.Second)}, "9s"},
		{"rising", core.RolePatch{ActivationDeadline: in(7 * time.Second), HolderLeaseExpires: in(8 * time.Second), NextProbe: in(9 * time.Second)}, "7s"},
		{"falling", core.RolePatch{ActivationDeadline: in(9 * time.Second), HolderLeaseExpires: in(8 * time.Second), NextProbe: in(7 * time.Second)}, "7s"},
		{"cleared", core.RolePatch{ActivationDeadline: in(9 * time.Second), HolderLeaseExpires: never, NextProbe: never}, "9s"},
	} {
		d.updates = nil
		_, err := d.hub.CompareAndSetRole(t.Context(), core.RoleCAS{Wire: deskProject.Wire(), Expected: all, Patch: test.patch})
		if err != nil || d.moment(d.updates[0].Due) != test.want || d.updates[0].Patch.LastTransition != d.now {
			t.Errorf("%s: %+v, %v", test.name, d.updates, err)
		}
	}
	d.updates = nil
	_, err := d.hub.CompareAndSetRole(t.Context(), core.RoleCAS{Wire: deskProject.Wire(), Expected: all, Patch: core.RolePatch{LastTransition: d.now - 9}})
	if err != nil || d.updates[0].Patch.LastTransition != d.now-9 {
		t.Errorf("with a transition of its own: %+v, %v", d.updates, err)
	}
}

// A reservation that names a version is one request on the role as it is expected.
func TestAReservationOfAVersionIsOneConditionalRequest(t *testing.T) {
	number := core.Some[int64]
	for _, test := range []struct {
		name string
		ask  core.RoleReservation
		want core.RoleExpectation
	}{
		{"the version", core.RoleReservation{Version: number(7)}, core.RoleExpectation{Version: number(7)}},
		{"and the epoch", core.RoleReservation{Version: number(7), Epoch: number(5)}, core.RoleExpectation{Version: number(7), Epoch: number(5)}},
		{"and the next epoch", core.RoleReservation{Version: number(7), NextEpoch: number(6)}, core.RoleExpectation{Version: number(7), Epoch: number(5)}},
		{"and both epochs", core.RoleReservation{Version: number(7), Epoch: number(4), NextEpoch: number(6)}, core.RoleExpectation{Version: number(7), Epoch: number(4)}},
		{"and the next activation_seq", core.RoleReservation{Version: number(7), NextSeq: number(6)}, core.RoleExpectation{Version: number(7), ActivationSeq: number(5)}},
	} {
		d := newRoleDesk(t)
		test.ask.Wire = deskProject.Wire()
		if _, err := d.hub.ReserveRole(t.Context(), test.ask); err != nil || len(d.updates) != 1 || len(d.steps) > 0 {
			t.Errorf("%s: %v, %d updates, %d steps", test.name, err, len(d.updates), len(d.steps))
			continue
		}
		u := d.updates[0]
		if u.Expected != test.want || !u.Reserve || !u.Displace || !u.Patch.Holder.Set {
			t.Errorf("%s: it expects %+v", test.name, u.Expected)
		}
	}
	d := newRoleDesk(t)
	if _, err := d.hub.ReserveRole(t.Context(), core.RoleReservation{Wire: deskProject.Wire()}); err != nil || len(d.updates) > 0 || len(d.steps) != 1 {
		t.Errorf("without a version: %v, %d updates, %d steps", err, len(d.updates), len(d.steps))
	}
	d = newRoleDesk(t)
	ask := core.RoleReservation{Wire: deskProject.Wire(), Version: number(7), Patch: core.RolePatch{PreviousHolder: core.Some("p")}}
	if _, err := d.hub.ReserveRole(t.Context(), ask); err != nil || len(d.updates) > 0 || d.steps[0].Next.PreviousHolder != "p" {
		t.Errorf("with a previous holder: %v, %d updates", err, len(d.updates))
	}
}

func TestAReservationIsRefusedByTheFirstThatDiffers(t *testing.T) {
	number := core.Some[int64]
	for _, test := range []struct {
		name    string
		set     func(*roleDesk)
		ask     core.RoleReservation
		want    string
		version int64 // and the numbers of what is written
		epoch   int64
		seq     int64
	}{
		{"nothing expected", nil, core.RoleReservation{}, "", 8, 6, 6},
		{"all as it is", nil, core.RoleReservation{Version: number(7), Epoch: number(5), NextEpoch: number(6), NextSeq: number(6)}, "", 8, 6, 6},
		{"another version", nil, core.RoleReservation{Version: number(6), Epoch: number(4)}, "STALE_VERSION with the role", 0, 0, 0},
		{"another epoch", nil, core.RoleReservation{Epoch: number(4)}, "STALE_EPOCH with the role", 0, 0, 0},
		{"an epoch that does not follow", nil, core.RoleReservation{NextEpoch: number(5)}, "STALE_EPOCH with the role", 0, 0, 0},
		{"an activation_seq that does not follow", nil, core.RoleReservation{NextSeq: number(5)}, "STALE_ACTIVATION_SEQ with the role", 0, 0, 0},
		{"a new role", absent, core.RoleReservation{}, "", 0, 0, 0},
		{"a new role that starts later", absent, core.RoleReservation{Version: number(1), Epoch: number(1), NextEpoch: number(4), NextSeq: number(9)}, "", 0, 4, 9},
		{"a new role that starts before the first", absent, core.RoleReservation{NextEpoch: number(-4), NextSeq: number(-9)}, "", 0, 0, 0},
	} {
		d := newRoleDesk(t)
		if test.set != nil {
			test.set(d)
		}
		test.ask.Wire = deskProject.Wire()
		// With a previous holder it is decided here, not in the store.
		test.ask.Patch.PreviousHolder = core.Some("p")
		_, err := d.hub.ReserveRole(t.Context(), test.ask)
		if got := refusedAs(err); got != test.want || len(d.steps) > 0 != (test.want == "") {
			t.Errorf("%s: %s, %d steps", test.name, got, len(d.steps))
			continue
		}
		if test.want != "" {
			continue
		}
		if r := d.steps[0].Next; r.Version != test.version || r.Epoch != test.epoch || r.ActivationSeq != test.seq {
			t.Errorf("%s: version %d, epoch %d, activation_seq %d", test.name, r.Version, r.Epoch, r.ActivationSeq)
		}
	}
}

func absent(d *roleDesk) { d.board.Role = core.AbsentRole(deskProject, deskProject.Wire()) }

func TestAReservationMakesUpWhatIsNotGiven(t *testing.T) {
	text := core.Some[string]
	for _, test := range []struct {
		name  string
		set   func(*roleDesk)
		patch core.RolePatch
		want  string
	}{
		{"nothing", nil, core.RolePatch{}, `electable "" of 0 after "a", activation "i", role_reserved at now, acked 5, due -`},
		{"a holder", nil, core.RolePatch{Holder: text("b")}, `elected-probing "b" of 0 after "a", activation "new", role_reserved at now, acked 5, due 0s`},
		{"the same holder", nil, core.RolePatch{Holder: text("a")}, `elected-probing "a" of 0 after "", activation "new", role_reserved at now, acked 5, due 0s`},
		{"a holder that is none", nil, core.RolePatch{Holder: text("")}, `electable "" of 0 after "a", activation "i", role_reserved at now, acked 5, due -`},
		{"none where there is none", func(d *roleDesk) { d.vacant(core.RoleElectable, 0); d.board.Role.PreviousHolder = "p" }, core.RolePatch{}, `electable "" of 0 after "", activation "", role_reserved at now, acked 5, due -`},
		{"an empty holder where there is none", func(d *roleDesk) { d.vacant(core.RoleElectable, 0); d.board.Role.PreviousHolder = "p" }, core.RolePatch{Holder: text("")}, `electable "" of 0 after "p", activation "", role_reserved at now, acked 5, due -`},
		{"an activation's id", nil, core.RolePatch{Holder: text("b"), ActivationID: text("j")}, `elected-probing "b" of 0 after "a", activation "j", role_reserved at now, acked 5, due 0s`},
		{"a state and a reason", nil, core.RolePatch{State: core.Some(core.RoleActive), Holder: text("b"), LastReason: text("why")}, `active "b" of 0 after "a", activation "new", why at now, acked 5, due 0s`},
		{"unreachable without a moment", nil, core.RolePatch{State: core.Some(core.RoleUnreachable)}, `unreachable "" of 0 after "a", activation "i", role_reserved at now, acked 5, due 0s`},
		{"a transition of its own", nil, core.RolePatch{LastTransition: 9}, `electable "" of 0 after "a", activation "i", role_reserved at 9, acked 5, due -`},
		{"an acknowledged epoch", nil, core.RolePatch{CharterAckedEpoch: core.Some[int64](0)}, `electable "" of 0 after "a", activation "i", role_reserved at now, acked 0, due -`},
		{"none acknowledged", nil, core.RolePatch{CharterAckedEpoch: core.Some[int64](-1)}, `electable "" of 0 after "a", activation "i", role_reserved at now, acked none, due -`},
		{"an earlier deadline than its entry", nil, core.RolePatch{Holder: text("b"), ActivationDeadline: core.Some(core.Instant(7))}, `elected-probing "b" of 0 after "a", activation "new", role_reserved at now, acked 5, due 7`},
	} {
		d := newRoleDesk(t)
		if test.set != nil {
			test.set(d)
		}
		if _, err := d.hub.ReserveRole(t.Context(), core.RoleReservation{Wire: deskProject.Wire(), Patch: test.patch}); err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		r := d.steps[0].Next
		activation := r.ActivationID
		if len(activation) == 36 {
			activation = "new"
		}
		at := "now"
		if r.LastTransition != d.now {
			at = fmt.Sprint(int64(r.LastTransition))
		}
		acked := "none"
		if r.CharterAckedEpoch.Set {
			acked = fmt.Sprint(r.CharterAckedEpoch.Value)
		}
		due := d.moment(r.DueAt)
		if r.DueAt == 7 {
			due = "7"
		}
		got := fmt.Sprintf("%s %q of %d after %q, activation %q, %s at %s, acked %s, due %s", r.State, r.Holder, r.HolderGeneration, r.PreviousHolder, activation, r.LastReason, at, acked, due)
		if got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, test.want)
		}
	}
}

func TestAnEntryThatIsEarlyEnoughStays(t *testing.T) {
	for _, test := range []struct{ stands, need, want core.Instant }{
		{0, 9, 9}, {8, 9, 8}, {9, 9, 9}, {10, 9, 9}, {8, 0, 0}, {0, 0, 0},
	} {
		d := newRoleDesk(t)
		d.board.Role.DueAt = test.stands
		patch := core.RolePatch{Holder: core.Some("b"), ActivationDeadline: core.Some(test.need)}
		if test.need == 0 {
			patch = core.RolePatch{State: core.Some(core.RoleElectable)}
		}
		if _, err := d.hub.ReserveRole(t.Context(), core.RoleReservation{Wire: deskProject.Wire(), Patch: patch}); err != nil || d.steps[0].Next.DueAt != test.want {
			t.Errorf("at %d, needed at %d: %+v, %v", test.stands, test.need, d.steps, err)
		}
	}
}

func TestAnAcknowledgementIsJudgedInOrder(t *testing.T) {
	// What the agent did not fit is told beside the role where the role did not either.
	reserved := func(d *roleDesk) { d.probing("a", time.Second); d.acked.Role = d.board.Role }
	agentOnly := func(change func(*core.Agent)) func(*roleDesk) {
		return func(d *roleDesk) {
			d.probing("a", time.Second)
			a := d.agents["a"]
			change(&a)
			d.acked = core.RoleAckOutcome{Role: core.AbsentRole(deskProject, deskProject.Wire()), Agent: core.Some(a)}
		}
	}
	stands := func(change func(*core.Role)) func(*roleDesk) {
		return func(d *roleDesk) {
			change(&d.board.Role)
			d.acked.Role = d.board.Role
		}
	}
	generation := core.Fences{Generation: core.Some[int64](3)}
	ask := func(change func(*core.AckRoleRequest)) core.AckRoleRequest {
		r := core.AckRoleRequest{
			AgentID: "a", Wire: deskProject.Wire(), HolderAgentID: "a", Epoch: 5, ActivationSeq: 5, ActivationID: "i",
			CharterWire: deskProject.Wire(), CharterEpoch: 5, Fences: generation,
		}
		if change != nil {
			change(&r)
		}
		return r
	}
	for _, test := range []struct {
		name    string
		set     func(*roleDesk)
		ask     core.AckRoleRequest
		want    string
		written bool
	}{
		{"done", func(d *roleDesk) { d.acked.Done = true }, ask(nil), "", true},
		{"acknowledged before", stands(func(*core.Role) {}), ask(nil), "idempotent", true},
		{"before, its bound is next", func(d *roleDesk) { stands(func(r *core.Role) { r.HolderLeaseExpires = d.now + 1 })(d) }, ask(nil), "idempotent", true},
		{"before, its bound is now", func(d *roleDesk) { stands(func(r *core.Role) { r.HolderLeaseExpires = d.now })(d) }, ask(nil), "HOLDER_LEASE_EXPIRED with the role", true},
		{"before, by another generation", stands(func(r *core.Role) { r.HolderGeneration = 2 }), ask(nil), "STALE_EPOCH with the role", true},
		{"not reserved any more", stands(func(r *core.Role) { r.State, r.Holder = core.RoleUnreachable, "" }), ask(nil), "STALE_EPOCH with the role", true},
		{"closed", stands(func(r *core.Role) { r.Closed = true }), ask(nil), "STALE_EPOCH", true},
		{"of another epoch", stands(func(r *core.Role) { r.Epoch = 6 }), ask(nil), "STALE_EPOCH with the role", true},
		{"of another activation_seq", stands(func(r *core.Role) { r.ActivationSeq = 6 }), ask(nil), "STALE_EPOCH with the role", true},
		{"of another activation", stands(func(r *core.Role) { r.ActivationID = "j" }), ask(nil), "STALE_EPOCH with the role", true},
		{"held by another", stands(func(r *core.Role) { r.Holder = "b" }), ask(nil), "HOLDER_MISMATCH with the role", true},
		{"under another charter", stands(func(r *core.Role) { r.CharterVersion = "c" }), ask(nil), "CHARTER_VERSION_MISMATCH with the role", true},
		{"the agent is of a later generation", agentOnly(func(a *core.Agent) { a.Generation = 4 }), ask(nil), "STALE_PRESENCE_OWNER", true},
		{"the agent was retired", agentOnly(func(a *core.Agent) { a.Final = true }), ask(nil), "STALE_PRESENCE_OWNER", true},
		{"the agent is not live", agentOnly(func(a *core.Agent) { a.LeaseExpires = 1 }), ask(nil), "HOLDER_LEASE_EXPIRED with the role", true},
		{"the agent is not live and the deadline next", func(d *roleDesk) {
			agentOnly(func(*core.Agent) {})(d)
			d.board.Role.ActivationDeadline = d.now + 1
		}, ask(nil), "HOLDER_LEASE_EXPIRED with the role", true},
		{"the agent is not live and the deadline now", func(d *roleDesk) {
			agentOnly(func(*core.Agent) {})(d)
			d.board.Role.ActivationDeadline = d.now
		}, ask(nil), "STALE_EPOCH with the role", true},
		{"for another agent", reserved, ask(func(r *core.AckRoleRequest) { r.HolderAgentID = "b" }), "HOLDER_MISMATCH with the role", false},
		{"for another agent, of another activation", reserved, ask(func(r *core.AckRoleRequest) { r.HolderAgentID, r.ActivationID = "b", "j" }), "STALE_EPOCH with the role", false},
		{"for another agent, of another epoch", reserved, ask(func(r *core.AckRoleRequest) { r.HolderAgentID, r.Epoch, r.CharterEpoch = "b", 4, 5 }), "STALE_EPOCH with the role", false},
		{"for another agent, of another activation_seq", reserved, ask(func(r *core.AckRoleRequest) { r.HolderAgentID, r.ActivationSeq = "b", 4 }), "STALE_EPOCH with the role", false},
		{"for another agent, closed", func(d *roleDesk) { d.board.Role.Closed = true }, ask(func(r *core.AckRoleRequest) { r.HolderAgentID = "b" }), "STALE_EPOCH", false},
		{"a charter of another epoch", reserved, ask(func(r *core.AckRoleRequest) { r.CharterEpoch = 4 }), "STALE_EPOCH with the role", false},
		{"a charter of another epoch for another agent", reserved, ask(func(r *core.AckRoleRequest) { r.CharterEpoch, r.HolderAgentID = 4, "b" }), "STALE_EPOCH with the role", false},
		{"a charter of another role", reserved, ask(func(r *core.AckRoleRequest) { r.CharterWire = deskLead.Wire() }), "STALE_EPOCH with the role", false},
	} {
		d := newRoleDesk(t)
		test.set(d)
		done, err := d.hub.AcknowledgeRole(t.Context(), test.ask)
		got := refusedAs(err)
		if err == nil && done.Idempotent {
			got = "idempotent"
		}
		if got != test.want || len(d.acks) > 0 != test.written {
			t.Errorf("%s: %s after %d writes", test.name, got, len(d.acks))
		}
	}
	d := newRoleDesk(t)
	d.acked.Done = true
	if _, err := d.hub.AcknowledgeRole(t.Context(), ask(func(r *core.AckRoleRequest) { r.Fences = core.Fences{} })); err != nil || d.acks[0].Generation != 3 {
		t.Errorf("without a generation it is the agent's: %+v, %v", d.acks, err)
	}
	if _, err := d.hub.AcknowledgeRole(t.Context(), ask(func(r *core.AckRoleRequest) { r.Fences.Generation.Value = 2 })); err != nil || d.acks[1].Generation != 2 {
		t.Errorf("with a generation it is that: %+v, %v", d.acks, err)
	}
}

func TestAnAuthorityIsTheHoldersInItsEpochWhileItIsLive(t *testing.T) {
	for _, test := range []struct {
		name  string
		set   func(*roleDesk)
		ask   core.FenceQuery
		valid bool
		ends  string
		code  core.Code
	}{
		{"held", nil, core.FenceQuery{}, true, "1h0m0s", ""},
		{"of another epoch", nil, core.FenceQuery{Epoch: 4}, false, "1h0m0s", ""},
		{"of another agent", nil, core.FenceQuery{AgentID: "b"}, false, "-", ""},
		{"held by another with the agent's generation", func(d *roleDesk) { d.board.Role.Holder = "b" }, core.FenceQuery{}, false, "-", ""},
		{"the lease ends now", (*roleDesk).lapse, core.FenceQuery{}, false, "-", ""},
		{"the agent was retired", func(d *roleDesk) { d.agent("a", func(a *core.Agent) { a.Final = true }) }, core.FenceQuery{}, false, "-", ""},
		{"the agent's generation follows", func(d *roleDesk) { d.agent("a", func(a *core.Agent) { a.Generation = 4 }) }, core.FenceQuery{}, false, "-", ""},
		{"the role's bound is before the lease's end", func(d *roleDesk) { d.board.Role.HolderLeaseExpires = d.later(time.Minute) }, core.FenceQuery{}, true, "1m0s", ""},
		{"the role's bound is after it", func(d *roleDesk) { d.board.Role.HolderLeaseExpires = d.later(2 * time.Hour) }, core.FenceQuery{}, true, "1h0m0s", ""},
		{"the role's bound is now", func(d *roleDesk) { d.board.Role.HolderLeaseExpires = d.now }, core.FenceQuery{}, false, "0s", ""},
		{"closed", func(d *roleDesk) { d.board.Role.Closed = true }, core.FenceQuery{}, false, "-", core.CodeRoleNotFound},
		{"no role", absent, core.FenceQuery{}, false, "-", core.CodeRoleNotFound},
	} {
		d := newRoleDesk(t)
		if test.set != nil {
			test.set(d)
		}
		test.ask.Wire, test.ask.AgentID, test.ask.Epoch = deskProject.Wire(), cmp.Or(test.ask.AgentID, "a"), cmp.Or(test.ask.Epoch, 5)
		verdict, err := d.hub.CheckRoleFence(t.Context(), test.ask)
		if core.CodeOf(err) != test.code || verdict.Valid != test.valid || d.moment(verdict.LeaseExpires) != test.ends {
			t.Errorf("%s: %+v, %v", test.name, verdict, err)
		}
	}
}

func TestTheValueOfARoleIsWrittenUnderItsAuthority(t *testing.T) {
	generation := func(n int64) core.Fences { return core.Fences{Generation: core.Some(n)} }
	overtaken := core.RoleValueOutcome{Agent: core.Some(core.Agent{ID: "a", Generation: 3, Status: core.StatusStale})}
	for _, test := range []struct {
		name    string
		outcome core.RoleValueOutcome
		fences  core.Fences
		want    string
		under   int64
	}{
		{"done", core.RoleValueOutcome{Done: true}, generation(3), "", 3},
		{"done without a generation", core.RoleValueOutcome{Done: true}, core.Fences{}, "", 8},
		{"of another generation", overtaken, generation(2), "STALE_PRESENCE_OWNER", 2},
		{"not live", overtaken, generation(3), "HOLDER_LEASE_EXPIRED", 3},
		{"not live, without a generation", overtaken, core.Fences{}, "HOLDER_LEASE_EXPIRED", 8},
		{"the role is another's", core.RoleValueOutcome{Role: core.Some(core.Role{Version: 9})}, generation(3), "STALE_EPOCH with the role", 3},
		{"another version", core.RoleValueOutcome{Value: core.Some(core.RoleValue{Version: 5})}, generation(3), "STALE_STATE_VERSION", 3},
	} {
		d := newRoleDesk(t)
		d.valued, d.board.Role.HolderGeneration = test.outcome, 8
		value, err := d.hub.SetRoleValue(t.Context(), core.RoleValueRequest{
			Wire: deskProject.Wire(), AgentID: "a", Epoch: 5, Value: json.RawMessage(`{}`), Expected: 4, Fences: test.fences,
		})
		if refusedAs(err) != test.want || err == nil && value.Version != 5 {
			t.Errorf("%s: %+v, %v", test.name, value, err)
		}
		if under := d.values[0].Authority.Generation; under != core.Some(test.under) {
			t.Errorf("%s: it was written under generation %+v", test.name, under)
		}
	}
}

func TestSettingsOfRolesAreWithinTheirBoundsAndKeptInOrder(t *testing.T) {
	scopes := func(n int) core.Opt[[]string] {
		return core.Some(strings.Split(strings.Repeat(deskLead.ScopeID+" ", n-1)+otherScope, " "))
	}
	for _, test := range []struct {
		name   string
		ask    core.RoleSettingsRequest
		want   core.Code
		scopes core.Opt[[]string]
	}{
		{"nothing", core.RoleSettingsRequest{}, "", core.Opt[[]string]{}},
		{"the longest charter", core.RoleSettingsRequest{CharterVersion: core.Some(strings.Repeat("c", 128))}, "", core.Opt[[]string]{}},
		{"too long a charter", core.RoleSettingsRequest{CharterVersion: core.Some(strings.Repeat("c", 129))}, core.CodeInvalidArgument, core.Opt[[]string]{}},
		{"a charter with a control character", core.RoleSettingsRequest{CharterVersion: core.Some("c\n")}, core.CodeInvalidArgument, core.Opt[[]string]{}},
		{"no scopes", core.RoleSettingsRequest{ClosedScopes: core.Some([]string{})}, "", core.Some([]string(nil))},
		{"the most scopes", core.RoleSettingsRequest{ClosedScopes: scopes(1000)}, "", core.Some([]string{deskLead.ScopeID, otherScope})},
		{"too many scopes", core.RoleSettingsRequest{ClosedScopes: scopes(1001)}, core.CodeInvalidArgument, core.Opt[[]string]{}},
		{"no scope", core.RoleSettingsRequest{ClosedScopes: core.Some([]string{"s"})}, core.CodeScopeIDInvalid, core.Opt[[]string]{}},
	} {
		d := newRoleDesk(t)
		_, err := d.hub.ChangeRoleSettings(t.Context(), test.ask)
		if core.CodeOf(err) != test.want || len(d.changes) > 0 != (test.want == "") {
			t.Errorf("%s: %v, %d changes", test.name, err, len(d.changes))
		}
		if len(d.changes) > 0 && fmt.Sprint(d.changes[0].ClosedScopes) != fmt.Sprint(test.scopes) {
			t.Errorf("%s: it closes %+v", test.name, d.changes[0].ClosedScopes)
		}
	}
}

func TestAChangeOfTheSettingsFencesTheRolesItTurnsOff(t *testing.T) {
	for _, test := range []struct {
		name string
		set  func(*roleDesk)
		want string
	}{
		{"all is on", func(*roleDesk) {}, "nothing"},
		{"the hub's switch", func(d *roleDesk) { d.board.Settings.MasterEnabled = false }, `electable "" after "a", v8 e6 r0, due -, master_off`},
		{"its kind's switch", func(d *roleDesk) { d.board.Settings.LeadEnabled = false }, `electable "" after "a", v8 e6 r0, due -, manager_disabled`},
		{"the other kind's switch", func(d *roleDesk) { d.board.Settings.CTOEnabled = false }, "nothing"},
		{"its scope", func(d *roleDesk) { d.board.Settings.ClosedScopes = []string{deskLead.ScopeID} }, `electable "" after "a", v8 e6 r0, due -, scope_closed, closed`},
		{"another scope", func(d *roleDesk) { d.board.Settings.ClosedScopes = []string{otherScope} }, "nothing"},
	} {
		d := newRoleDesk(t)
		d.board.Role.Key, d.board.Role.Wire = deskLead, deskLead.Wire()
		test.set(d)
		if _, err := d.hub.ChangeRoleSettings(t.Context(), core.RoleSettingsRequest{}); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if got := d.told(); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, test.want)
		}
	}
}

func TestARoleIsListedAsItIsAtThatMoment(t *testing.T) {
	for _, test := range []struct {
		name string
		set  func(*roleDesk)
		want string
	}{
		{"held", func(*roleDesk) {}, `active "a" after "", activation_acked , ends 1h0m0s, 2 live`},
		{"the holder's lease ends now", (*roleDesk).lapse, `electable "" after "a", holder_lease_expired , ends -, 1 live`},
		{"the holder went offline", func(d *roleDesk) { d.agent("a", func(a *core.Agent) { a.Status = core.StatusOffline }) }, `electable "" after "a", holder_offline , ends -, 1 live`},
		{"reserved, and the deadline is next", func(d *roleDesk) { d.probing("a", time.Millisecond) }, `elected-probing "a" after "", activation_acked , ends 1h0m0s, 2 live`},
		{"reserved, and the deadline is now", func(d *roleDesk) { d.probing("a", 0) }, `unreachable "a" after "", ack_timeout , ends 1h0m0s, 2 live`},
		{"reserved without a deadline", func(d *roleDesk) { d.probing("a", 0); d.board.Role.ActivationDeadline = 0 }, `elected-probing "a" after "", activation_acked , ends 1h0m0s, 2 live`},
		{"a session was asked for", func(d *roleDesk) { d.probing("", time.Millisecond) }, `elected-probing "" after "", activation_acked , ends -, 2 live`},
		{"a session was asked for until now", func(d *roleDesk) { d.probing("", 0) }, `electable "" after "", no_candidate no_candidate, ends -, 2 live`},
		{"in quarantine until next", func(d *roleDesk) { d.vacant(core.RoleQuarantined, time.Millisecond) }, `quarantined "" after "", activation_acked , ends -, 2 live`},
		{"in quarantine until now", func(d *roleDesk) { d.vacant(core.RoleQuarantined, 0) }, `electable "" after "", exclusion_expired , ends -, 2 live`},
		{"closed", func(d *roleDesk) { d.board.Role.Closed = true }, "nothing"},
		{"no role", absent, "nothing"},
	} {
		d := newRoleDesk(t)
		test.set(d)
		list, err := d.hub.RoleStatus(t.Context(), core.RoleQuery{Wire: core.Some(deskProject.Wire())})
		got := "nothing"
		if err == nil && len(list.Roles) > 0 {
			r := list.Roles[0]
			got = fmt.Sprintf("%s %q after %q, %s %s, ends %s, %d live", r.State, r.Holder, r.PreviousHolder, r.LastReason, r.BlockedReason, d.moment(r.AuthorityEnds), r.LiveCandidates)
		}
		if err != nil || got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, test.want)
		}
	}
}
