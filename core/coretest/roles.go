package coretest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"drawbridge/core"
)

// RoleStores is every port that an adapter with roles implements.
type RoleStores interface {
	Store
	core.MessageStore
	core.RoleStore
}

// RoleHarness is an empty store with roles, and the ways to make the network
// under it misbehave.
type RoleHarness struct {
	Store RoleStores
	// LoseNextWrite has the next write carried out and its answer lost, so that
	// the adapter sends it again.
	LoseNextWrite func() (stop func())
	// Contenders and Rounds are the size of the races.
	Contenders, Rounds int
}

// RunRoles checks an adapter's roles. open returns a harness over a new, empty
// store.
func RunRoles(t *testing.T, open func(t *testing.T) RoleHarness) {
	for _, topic := range []struct {
		name string
		run  func(*testing.T, func(*testing.T) *roleBench)
	}{
		{"Registry", testRoleRegistry},
		{"Races", testRoleRaces},
		{"Authority", testRoleAuthority},
		{"Activation", testRoleActivation},
		{"Inbox", testRoleInbox},
		{"LostAnswers", testRoleLostAnswers},
		{"Legacy", testLegacyRole},
	} {
		t.Run(topic.name, func(t *testing.T) {
			topic.run(t, func(t *testing.T) *roleBench { return newRoleBench(t, open(t)) })
		})
	}
}

// The role the suite is about.
var suiteRole = core.RoleKey{ProjectID: "prj_AbCdEfGhIjKlMnOpQrStUv", Kind: core.RoleCTO}

type roleBench struct {
	RoleHarness
	t     *testing.T
	ctx   context.Context
	clock *Clock
	hub   *core.Hub
	wire  string
}

func newRoleBench(t *testing.T, h RoleHarness) *roleBench {
	b := &roleBench{RoleHarness: h, t: t, ctx: t.Context(), clock: NewClock(), wire: suiteRole.Wire()}
	b.hub = b.hubAt(b.clock)
	return b
}

// hubAt returns another hub over the same store, with a clock of its own.
func (b *roleBench) hubAt(clock core.Clock) *core.Hub {
	return core.New(Ticks(core.Config{
		Presence: b.Store, Identity: b.Store, Sweeps: b.Store, Messages: b.Store, Roles: b.Store,
		Clock: clock, IDs: core.NewIDs(clock, rand.Reader),
	}))
}

// skewed is a clock that differs from another by a fixed time.
type skewed struct {
	core.Clock
	by time.Duration
}

func (c skewed) Now() time.Time { return c.Clock.Now().Add(c.by) }

func (b *roleBench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *roleBench) refused(err error, code core.Code) core.Role {
	b.t.Helper()
	var refusal *core.Error
	if !errors.As(err, &refusal) || refusal.Code != code {
		b.t.Fatalf("error is %v, want %s", err, code)
	}
	stands, _ := refusal.Data.(core.RoleStands)
	return stands.Role.Value
}

// join registers an agent that may hold the role, with a lease of seconds plus
// 120, and adds it to the candidates.
func (b *roleBench) join(id string, seconds float64) core.Registration {
	b.t.Helper()
	r, err := b.hub.Register(b.ctx, core.RegisterRequest{
		AgentID: id, CLI: "claude", Capabilities: []string{"role:cto:candidate"}, TimeoutSec: core.Some(seconds),
	})
	b.must(err)
	_, err = b.hub.AddCandidate(b.ctx, core.CandidateRequest{Wire: b.wire, AgentID: id})
	b.must(err)
	b.clock.Advance(time.Millisecond)
	return r
}

func (b *roleBench) ensure() core.EnsureReceipt {
	b.t.Helper()
	r, err := b.hub.EnsureRole(b.ctx, core.EnsureRequest{Wire: b.wire, Trigger: "manual", CauseID: "test"})
	b.must(err)
	return r
}

func (b *roleBench) role() core.Role {
	b.t.Helper()
	r, err := b.Store.ReadRole(b.ctx, b.wire)
	b.must(err)
	return r
}

// acknowledge acknowledges the role as it is reserved now.
func (b *roleBench) acknowledge(hub *core.Hub, id string, r core.Role) (core.RoleAcked, error) {
	return hub.AcknowledgeRole(b.ctx, core.AckRoleRequest{
		AgentID: id, Wire: b.wire, HolderAgentID: id, Epoch: r.Epoch, ActivationSeq: r.ActivationSeq, ActivationID: r.ActivationID,
		CharterWire: b.wire, CharterEpoch: r.Epoch, CharterVersion: r.CharterVersion,
	})
}

// elect brings the agent into the role and returns its epoch.
func (b *roleBench) elect(id string) int64 {
	b.t.Helper()
	b.ensure()
	acked, err := b.acknowledge(b.hub, id, b.role())
	b.must(err)
	return acked.Role.Epoch
}

func (b *roleBench) valid(id string, epoch int64) bool {
	b.t.Helper()
	v, err := b.hub.CheckRoleFence(b.ctx, core.FenceQuery{Wire: b.wire, AgentID: id, Epoch: epoch})
	b.must(err)
	return v.Valid
}

func (b *roleBench) setValue(id string, epoch, expected int64, value string) error {
	_, err := b.hub.SetRoleValue(b.ctx, core.RoleValueRequest{
		Wire: b.wire, AgentID: id, Epoch: epoch, Value: json.RawMessage(value), Expected: expected,
	})
	return err
}

func expecting(r core.Role) core.RoleExpectation {
	return core.RoleExpectation{
		Version: core.Some(r.Version), Epoch: core.Some(r.Epoch), ActivationSeq: core.Some(r.ActivationSeq), ActivationID: core.Some(r.ActivationID),
	}
}

func testRoleRegistry(t *testing.T, open func(*testing.T) *roleBench) {
	t.Run("numbers survive release, recovery and the closing of a scope, and are never given again", func(t *testing.T) {
		b := open(t)
		b.join("a", 600)
		epoch := b.elect("a")
		_, err := b.hub.ReleaseRole(b.ctx, core.ReleaseRequest{Wire: b.wire, AgentID: "a", Epoch: epoch})
		b.must(err)
		last := b.role()
		for _, change := range []func() error{
			func() error { b.ensure(); return nil },
			func() error { _, err := b.hub.RecoverRoles(b.ctx); return err },
			func() error {
				_, err := b.hub.ChangeRoleSettings(b.ctx, core.RoleSettingsRequest{MasterEnabled: core.Some(false)})
				return err
			},
			func() error {
				_, err := b.hub.ReserveRole(b.ctx, core.RoleReservation{Wire: b.wire})
				return err
			},
		} {
			b.must(change())
			now := b.role()
			if now.Version < last.Version || now.Epoch < last.Epoch || now.ActivationSeq < last.ActivationSeq {
				t.Fatalf("the numbers went back from %+v to %+v", last, now)
			}
			last = now
		}
	})

	t.Run("a change keeps what it does not name and clears what it empties", func(t *testing.T) {
		b := open(t)
		done, err := b.hub.ReserveRole(b.ctx, core.RoleReservation{Wire: b.wire, Patch: core.RolePatch{
			Holder: core.Some("h"), ActivationDeadline: core.Some(core.Instant(5)), CharterVersion: core.Some("v1"), RetryCount: core.Some(int64(2)),
		}})
		b.must(err)
		done, err = b.hub.CompareAndSetRole(b.ctx, core.RoleCAS{Wire: b.wire, Expected: expecting(done.Role), Patch: core.RolePatch{
			ActivationDeadline: core.Some(core.Instant(0)), CharterAckedEpoch: core.Some(int64(0)),
		}})
		b.must(err)
		r := done.Role
		if r.Holder != "h" || r.ActivationDeadline != 0 || r.CharterVersion != "v1" || r.RetryCount != 2 || !r.CharterAckedEpoch.Set {
			t.Fatalf("the role is %+v", r)
		}
		done, err = b.hub.CompareAndSetRole(b.ctx, core.RoleCAS{Wire: b.wire, Expected: expecting(r), Patch: core.RolePatch{CharterAckedEpoch: core.Some(int64(-1))}})
		b.must(err)
		if done.Role.CharterAckedEpoch.Set || done.Role.Version != 2 {
			t.Fatalf("the role is %+v", done.Role)
		}
	})

	t.Run("the history tells the latest transitions whoever wrote them", func(t *testing.T) {
		b := open(t)
		b.join("a", 600)
		b.elect("a")
		for range core.MaxRoleHistory + 3 {
			_, err := b.hub.CompareAndSetRole(b.ctx, core.RoleCAS{Wire: b.wire, Expected: expecting(b.role()), Patch: core.RolePatch{RetryCount: core.Some(int64(1))}})
			b.must(err)
		}
		_, err := b.hub.RecoverRoles(b.ctx)
		b.must(err)
		page, err := b.hub.RoleHistory(b.ctx, core.RoleHistoryQuery{Wire: b.wire})
		b.must(err)
		if len(page.Events) == 0 || len(page.Events) > core.MaxRoleHistory {
			t.Fatalf("%d transitions", len(page.Events))
		}
		newest := page.Events[0]
		if newest.Version != b.role().Version || newest.From != core.RoleActive || newest.To != core.RoleProbing || newest.Reason != "restart_reprobe_required" {
			t.Fatalf("the newest transition is %+v", newest)
		}
	})

	t.Run("roles list by project in the order of their wire forms", func(t *testing.T) {
		b := open(t)
		for i := range 9 {
			key := core.RoleKey{ProjectID: fmt.Sprintf("prj_%022d", i%3), Kind: core.RoleLead, ScopeID: fmt.Sprintf("scp_%022d", i)}
			_, err := b.hub.ReserveRole(b.ctx, core.RoleReservation{Wire: key.Wire()})
			b.must(err)
		}
		list, err := b.hub.RoleStatus(b.ctx, core.RoleQuery{ProjectID: core.Some(fmt.Sprintf("prj_%022d", 1))})
		b.must(err)
		if len(list.Roles) != 3 || list.Roles[0].Wire >= list.Roles[1].Wire || list.NextCursor != "" {
			t.Fatalf("the project's roles are %+v", list.Roles)
		}
	})
}

func testRoleRaces(t *testing.T, open func(*testing.T) *roleBench) {
	// beads#3570: exactly one winner each round, the losers get holder and fence.
	t.Run("of many contenders for one version one wins each round", func(t *testing.T) {
		b := open(t)
		start, err := b.hub.ReserveRole(b.ctx, core.RoleReservation{Wire: b.wire})
		b.must(err)
		version := start.Role.Version
		for round := range b.Rounds {
			winners := make([]bool, b.Contenders)
			stands := make([]core.Role, b.Contenders)
			var wait sync.WaitGroup
			for i := range b.Contenders {
				hub := b.hubAt(skewed{b.clock, time.Duration(i%61-30) * time.Second})
				wait.Go(func() {
					done, err := hub.ReserveRole(b.ctx, core.RoleReservation{
						Wire: b.wire, Version: core.Some(version), Patch: core.RolePatch{Holder: core.Some(fmt.Sprintf("%d-%d", round, i))},
					})
					if winners[i] = err == nil; winners[i] {
						stands[i] = done.Role
						return
					}
					stands[i] = b.refusedWith(err, core.CodeStaleVersion)
				})
			}
			wait.Wait()
			winner := -1
			for i, won := range winners {
				if won && winner >= 0 {
					t.Fatalf("round %d: %d and %d both win", round, winner, i)
				}
				if won {
					winner = i
				}
			}
			if winner < 0 {
				t.Fatalf("round %d: nobody wins", round)
			}
			for i, role := range stands {
				if role.Version != version+1 || role.Holder != fmt.Sprintf("%d-%d", round, winner) {
					t.Fatalf("round %d: contender %d is told %+v", round, i, role)
				}
			}
			version++
		}
	})

	t.Run("of fifty ensures at once one starts and the others join", func(t *testing.T) {
		b := open(t)
		b.join("a", 600)
		receipts := make([]core.EnsureReceipt, 50)
		var wait sync.WaitGroup
		for i := range receipts {
			wait.Go(func() {
				receipts[i], _ = b.hub.EnsureRole(b.ctx, core.EnsureRequest{Wire: b.wire, Trigger: "session_start", CauseID: "race"})
			})
		}
		wait.Wait()
		counts := map[core.Disposition]int{}
		for _, r := range receipts {
			counts[r.Disposition]++
			if r.Epoch != b.role().Epoch || r.ActivationID != b.role().ActivationID {
				t.Fatalf("a receipt tells %+v", r)
			}
		}
		if counts[core.DispositionStarted] != 1 || counts[core.DispositionJoined] != 49 {
			t.Fatalf("the dispositions are %v", counts)
		}
		if n, err := b.Store.CountInbox(b.ctx, "a", core.InstantOf(b.clock.Now()), 100); err != nil || n != 1 {
			t.Fatalf("the candidate has %d activations, %v", n, err)
		}
	})

	// vault#5828: step-down, election and heartbeat in all kinds of orders.
	t.Run("releases, ensures, acknowledgements and skewed clocks never make two holders of an epoch", func(t *testing.T) {
		b := open(t)
		agents := []string{"a", "b", "c"}
		for _, id := range agents {
			b.join(id, -100)
		}
		var mu sync.Mutex
		holders := map[int64]string{}
		var wait sync.WaitGroup
		for i, id := range agents {
			hub := b.hubAt(skewed{b.clock, time.Duration(i-1) * 30 * time.Second})
			wait.Go(func() {
				for range 30 {
					_, _ = hub.EnsureRole(b.ctx, core.EnsureRequest{Wire: b.wire, Trigger: "manual", CauseID: id})
					role, err := b.Store.ReadRole(b.ctx, b.wire)
					if err != nil {
						continue
					}
					if acked, err := b.acknowledge(hub, id, role); err == nil {
						mu.Lock()
						if other, taken := holders[acked.Role.Epoch]; taken && other != id {
							t.Errorf("epoch %d belongs to %s and %s", acked.Role.Epoch, other, id)
						}
						holders[acked.Role.Epoch] = id
						mu.Unlock()
						_, _ = hub.ReleaseRole(b.ctx, core.ReleaseRequest{Wire: b.wire, AgentID: id, Epoch: acked.Role.Epoch})
					}
					_, _ = hub.Heartbeat(b.ctx, core.HeartbeatRequest{AgentID: id})
					b.clock.Advance(7 * time.Second)
				}
			})
		}
		wait.Wait()
		if len(holders) == 0 {
			t.Fatal("nobody ever held the role")
		}
	})
}

func (b *roleBench) refusedWith(err error, code core.Code) core.Role {
	var refusal *core.Error
	if !errors.As(err, &refusal) || refusal.Code != code {
		b.t.Errorf("error is %v, want %s", err, code)
		return core.Role{}
	}
	stands, _ := refusal.Data.(core.RoleStands)
	return stands.Role.Value
}

func testRoleAuthority(t *testing.T, open func(*testing.T) *roleBench) {
	// amazon-dynamodb-lock-client#1
	t.Run("a holder that stalled is refused with the epoch that stands", func(t *testing.T) {
		b := open(t)
		b.join("a", -60)
		b.join("b", 600)
		b.hubDeregisters("b")
		old := b.elect("a")
		b.must(b.setValue("a", old, 0, `"by a"`))
		b.clock.Advance(time.Minute)
		b.beat("b")
		next := b.elect("b")
		err := b.setValue("a", old, 1, `"late"`)
		if stands := b.refused(err, core.CodeStaleEpoch); stands.Epoch != next || next <= old {
			t.Fatalf("the refusal tells epoch %d, want %d", stands.Epoch, next)
		}
		value, err := b.Store.ReadRoleValue(b.ctx, b.wire)
		b.must(err)
		if string(value.Value) != `"by a"` || value.Version != 1 {
			t.Fatalf("the value is %+v", value)
		}
	})

	// amazon-dynamodb-lock-client#93, #44; vault#26580
	t.Run("after a crash one call takes over once the lease has passed, and none before", func(t *testing.T) {
		b := open(t)
		b.join("a", -60) // a minute
		b.join("b", 600)
		b.hubDeregisters("b")
		epoch := b.elect("a")
		b.beat("b")
		ends := b.agent("a").LeaseExpires
		b.clock.Advance(ends.Sub(core.InstantOf(b.clock.Now())) - time.Millisecond)
		if r := b.ensure(); r.Disposition != core.DispositionAlreadyActive || !b.valid("a", epoch) {
			t.Fatalf("a millisecond before the end of the lease: %+v", r)
		}
		b.clock.Advance(time.Millisecond)
		if r := b.ensure(); r.Disposition != core.DispositionStarted || b.role().Holder != "b" || b.valid("a", epoch) {
			t.Fatalf("at the end of the lease: %+v", r)
		}
	})

	// kubernetes#114872
	t.Run("the lease of the holder decides, not that of who would follow", func(t *testing.T) {
		b := open(t)
		b.join("long", 3600)
		b.elect("long")
		b.join("short", -110)
		b.clock.Advance(time.Minute)
		b.beat("short")
		if r := b.ensure(); r.Disposition != core.DispositionAlreadyActive {
			t.Fatalf("a holder with a long lease is replaced: %+v", r)
		}
	})

	// pinniped#800
	t.Run("a release has taken the authority when it answers", func(t *testing.T) {
		b := open(t)
		b.join("a", 600)
		epoch := b.elect("a")
		done, err := b.hub.ReleaseRole(b.ctx, core.ReleaseRequest{Wire: b.wire, AgentID: "a", Epoch: epoch})
		b.must(err)
		if done.Role.Holder != "" || b.valid("a", epoch) || b.role().State != core.RoleElectable {
			t.Fatalf("after the release: %+v", b.role())
		}
		b.refused(b.setValue("a", epoch, 0, "1"), core.CodeStaleEpoch)
		again, err := b.hub.ReleaseRole(b.ctx, core.ReleaseRequest{Wire: b.wire, AgentID: "a", Epoch: epoch})
		if err != nil || !again.Replayed {
			t.Fatalf("releasing again: %+v, %v", again, err)
		}
		_, err = b.hub.ReleaseRole(b.ctx, core.ReleaseRequest{Wire: b.wire, AgentID: "a", Epoch: epoch - 1})
		b.refused(err, core.CodeStaleEpoch)
		_, err = b.hub.ReleaseRole(b.ctx, core.ReleaseRequest{Wire: b.wire, AgentID: "b", Epoch: epoch})
		b.refused(err, core.CodeHolderMismatch)
	})

	// beads_rust#55
	t.Run("of two sessions under one name only the current one acts for the role", func(t *testing.T) {
		b := open(t)
		first := b.join("a", 600)
		b.ensure()
		role := b.role()
		second := b.join("a", 600)
		ack := core.AckRoleRequest{
			AgentID: "a", Wire: b.wire, HolderAgentID: "a", Epoch: role.Epoch, ActivationSeq: role.ActivationSeq, ActivationID: role.ActivationID,
			CharterWire: b.wire, CharterEpoch: role.Epoch, Fences: core.Fences{Generation: core.Some(first.Generation)},
		}
		_, err := b.hub.AcknowledgeRole(b.ctx, ack)
		b.refused(err, core.CodeStalePresenceOwner)
		ack.Fences.Generation = core.Some(second.Generation)
		_, err = b.hub.AcknowledgeRole(b.ctx, ack)
		b.must(err)
		_, err = b.hub.SetRoleValue(b.ctx, core.RoleValueRequest{
			Wire: b.wire, AgentID: "a", Epoch: role.Epoch, Value: json.RawMessage("1"), Fences: core.Fences{Generation: core.Some(first.Generation)},
		})
		if err == nil {
			t.Fatal("the old session writes")
		}
	})

	t.Run("a finished generation holds nothing", func(t *testing.T) {
		b := open(t)
		b.join("a", 600)
		epoch := b.elect("a")
		_, err := b.hub.Deregister(b.ctx, core.DeregisterRequest{AgentID: "a", Final: true})
		b.must(err)
		if b.valid("a", epoch) {
			t.Fatal("the authority stands")
		}
		b.refused(b.setValue("a", epoch, 0, "1"), core.CodeHolderLeaseExpired)
	})
}

func (b *roleBench) hubDeregisters(id string) {
	b.t.Helper()
	_, err := b.hub.Deregister(b.ctx, core.DeregisterRequest{AgentID: id})
	b.must(err)
}

func (b *roleBench) beat(id string) {
	b.t.Helper()
	b.clock.Advance(time.Millisecond)
	_, err := b.hub.Heartbeat(b.ctx, core.HeartbeatRequest{AgentID: id, TTLMs: core.Some(int64(600_000))})
	b.must(err)
}

func (b *roleBench) agent(id string) core.Agent {
	b.t.Helper()
	a, _, err := b.Store.ReadAgent(b.ctx, id)
	b.must(err)
	return a
}

func testRoleActivation(t *testing.T, open func(*testing.T) *roleBench) {
	t.Run("deadlines hold without a sweep, and a sweep changes no answer", func(t *testing.T) {
		for _, swept := range []bool{false, true} {
			b := open(t)
			b.join("a", 600)
			b.ensure()
			b.clock.Advance(core.ActivationDeadline)
			if swept {
				_, err := b.hub.SweepRoles(b.ctx)
				b.must(err)
			}
			list, err := b.hub.RoleStatus(b.ctx, core.RoleQuery{Wire: core.Some(b.wire)})
			b.must(err)
			if s := list.Roles[0].State; s != core.RoleUnreachable || list.Roles[0].LastReason != "ack_timeout" {
				t.Fatalf("swept %v: the role reads %s, %s", swept, s, list.Roles[0].LastReason)
			}
		}
	})

	t.Run("a sweep moves on until somebody holds the role, and finds the end of the lease", func(t *testing.T) {
		b := open(t)
		b.join("b", 3600)
		b.join("a", 3600)
		b.ensure()
		b.clock.Advance(core.ActivationDeadline)
		swept, err := b.hub.SweepRoles(b.ctx)
		b.must(err)
		if swept.Stepped != 1 || b.role().Holder != "b" || b.role().State != core.RoleProbing {
			t.Fatalf("%+v leads to %+v", swept, b.role())
		}
		_, err = b.acknowledge(b.hub, "b", b.role())
		b.must(err)
		b.clock.Advance(core.ActivationDeadline)
		swept, err = b.hub.SweepRoles(b.ctx)
		b.must(err)
		if swept.Moved != 1 || b.role().DueAt != b.agent("b").LeaseExpires {
			t.Fatalf("%+v leads to an entry at %d, the lease ends at %d", swept, b.role().DueAt, b.agent("b").LeaseExpires)
		}
		b.clock.Advance(2 * time.Hour)
		swept, err = b.hub.SweepRoles(b.ctx)
		b.must(err)
		if swept.Stepped != 1 || b.role().Holder != "" || b.role().PreviousHolder != "b" {
			t.Fatalf("%+v leads to %+v", swept, b.role())
		}
	})

	t.Run("a role without a candidate waits for a session, and the first to come is reserved", func(t *testing.T) {
		b := open(t)
		r := b.ensure()
		if r.Disposition != core.DispositionStarted || r.State != core.RoleProbing || b.role().Holder != "" {
			t.Fatalf("the receipt is %+v", r)
		}
		b.join("a", 600)
		if role := b.role(); role.Holder != "a" || role.Epoch != r.Epoch+1 {
			t.Fatalf("the role is %+v", role)
		}
		_, err := b.acknowledge(b.hub, "a", b.role())
		b.must(err)
	})

	t.Run("a session that never comes leaves the role blocked", func(t *testing.T) {
		b := open(t)
		b.ensure()
		b.clock.Advance(core.StandupDeadline)
		_, err := b.hub.SweepRoles(b.ctx)
		b.must(err)
		if role := b.role(); role.State != core.RoleElectable || role.BlockedReason != "no_candidate" || role.DueAt != 0 {
			t.Fatalf("the role is %+v", role)
		}
	})

	t.Run("a reservation under settings that changed meanwhile does not start", func(t *testing.T) {
		b := open(t)
		b.join("a", 600)
		role := b.role()
		_, err := b.hub.ChangeRoleSettings(b.ctx, core.RoleSettingsRequest{CTOEnabled: core.Some(false)})
		b.must(err)
		next := role
		next.Version, next.State = role.Version+1, core.RoleProbing
		done, err := b.Store.StepRole(b.ctx, core.RoleStep{
			Seen: role, Next: next, Settings: core.Some(int64(0)), WriteStamp: core.WriteStamp{WriteID: "w", Started: b.clock.Now()},
		})
		if err != nil || done.Done {
			t.Fatalf("the step is %+v, %v", done, err)
		}
	})
}

func testRoleInbox(t *testing.T, open func(*testing.T) *roleBench) {
	publish := func(b *roleBench, to string, priority int64, payload string) {
		b.t.Helper()
		_, err := b.hub.Publish(b.ctx, core.PublishRequest{
			From: "s", To: to, Topic: "t", Priority: priority, TTLMs: 600_000, Payload: json.RawMessage(payload),
		})
		b.must(err)
		b.clock.Advance(time.Millisecond)
	}
	drain := func(b *roleBench, id string, limit int64) string {
		b.t.Helper()
		d, err := b.hub.Drain(b.ctx, core.DrainRequest{AgentID: id, Max: limit, AutoAck: true, Topics: []string{"t"}})
		b.must(err)
		payloads := ""
		for _, m := range d.Messages {
			payloads += string(m.Payload.JSON)
		}
		return payloads
	}

	t.Run("both inboxes of a holder drain as one, by priority and age", func(t *testing.T) {
		b := open(t)
		b.join("a", 600)
		publish(b, suiteRole.Address(), 5, "2")
		publish(b, "a", 5, "3")
		publish(b, "a", 9, "1")
		publish(b, suiteRole.Address(), 5, "4")
		publish(b, suiteRole.Address(), 1, "5")
		b.elect("a")
		if got := drain(b, "a", 2) + drain(b, "a", 100); got != "12345" {
			t.Fatalf("drained %s", got)
		}
	})

	t.Run("each message for a role is drained once, whatever happens to the role", func(t *testing.T) {
		b := open(t)
		b.join("a", 600)
		b.join("b", 600)
		const messages = 60
		for i := range messages {
			publish(b, suiteRole.Address(), 5, fmt.Sprintf("%q", fmt.Sprintf("m%02d", i)))
		}
		var mu sync.Mutex
		drained := map[string]int{}
		var wait sync.WaitGroup
		stop := make(chan struct{})
		for _, id := range []string{"a", "b"} {
			wait.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					d, err := b.hub.Drain(b.ctx, core.DrainRequest{AgentID: id, Max: 3, AutoAck: true, Topics: []string{"t"}})
					if err != nil {
						continue
					}
					mu.Lock()
					for _, m := range d.Messages {
						drained[string(m.Payload.JSON)]++
					}
					mu.Unlock()
				}
			})
		}
		holder := ""
		for i := range 40 {
			holder = []string{"a", "b"}[i%2]
			_, err := b.hub.ReserveRole(b.ctx, core.RoleReservation{Wire: b.wire, Patch: core.RolePatch{Holder: core.Some(holder)}})
			b.must(err)
			_, err = b.acknowledge(b.hub, holder, b.role())
			b.must(err)
		}
		close(stop)
		wait.Wait()
		rest, err := b.hub.Drain(b.ctx, core.DrainRequest{AgentID: holder, Max: 100, AutoAck: true, Topics: []string{"t"}})
		b.must(err)
		for _, m := range rest.Messages {
			drained[string(m.Payload.JSON)]++
		}
		for payload, n := range drained {
			if n != 1 {
				t.Errorf("%s was drained %d times", payload, n)
			}
		}
		if len(drained) != messages {
			t.Errorf("%d of %d messages were drained", len(drained), messages)
		}
	})

	t.Run("a holder whose lease passed drains its own inbox only", func(t *testing.T) {
		b := open(t)
		b.join("a", -60)
		b.elect("a")
		publish(b, suiteRole.Address(), 5, "1")
		publish(b, "a", 5, "2")
		b.clock.Advance(time.Minute)
		if got := drain(b, "a", 100); got != "2" {
			t.Fatalf("drained %s", got)
		}
		b.beat("a")
		if got := drain(b, "a", 100); got != "1" {
			t.Fatalf("after a heartbeat: %s", got)
		}
	})
}

func testRoleLostAnswers(t *testing.T, open func(*testing.T) *roleBench) {
	t.Run("a write whose answer is lost happens once and is told as done", func(t *testing.T) {
		b := open(t)
		b.join("a", 600)
		lost := func(write func() error) {
			t.Helper()
			stop := b.LoseNextWrite()
			defer stop()
			b.must(write())
		}
		var role core.Role
		lost(func() error {
			done, err := b.hub.ReserveRole(b.ctx, core.RoleReservation{Wire: b.wire, Patch: core.RolePatch{Holder: core.Some("x")}})
			role = done.Role
			return err
		})
		lost(func() error {
			done, err := b.hub.ReserveRole(b.ctx, core.RoleReservation{Wire: b.wire, Version: core.Some(role.Version)})
			if err == nil && (!done.Replayed || done.Role.Epoch != role.Epoch+1) {
				t.Errorf("a reservation answers %+v", done)
			}
			role = done.Role
			return err
		})
		lost(func() error {
			done, err := b.hub.CompareAndSetRole(b.ctx, core.RoleCAS{Wire: b.wire, Expected: expecting(role), Patch: core.RolePatch{LastReason: core.Some("x")}})
			if err == nil && (!done.Replayed || done.Role.Version != role.Version+1) {
				t.Errorf("a compare-and-set answers %+v", done)
			}
			return err
		})
		lost(func() error {
			r, err := b.hub.EnsureRole(b.ctx, core.EnsureRequest{Wire: b.wire, Trigger: "manual", CauseID: "c"})
			if err == nil && r.Disposition != core.DispositionStarted {
				t.Errorf("an ensure answers %+v", r)
			}
			return err
		})
		reserved := b.role()
		lost(func() error {
			acked, err := b.acknowledge(b.hub, "a", reserved)
			if err == nil && acked.Role.State != core.RoleActive {
				t.Errorf("an acknowledgement answers %+v", acked)
			}
			return err
		})
		lost(func() error { return b.setValue("a", reserved.Epoch, 0, "1") })
		lost(func() error {
			s, err := b.hub.ChangeRoleSettings(b.ctx, core.RoleSettingsRequest{CharterVersion: core.Some("v2")})
			if err == nil && s.Generation != 1 {
				t.Errorf("the settings are %+v", s)
			}
			return err
		})
		lost(func() error {
			_, err := b.hub.ReleaseRole(b.ctx, core.ReleaseRequest{Wire: b.wire, AgentID: "a", Epoch: reserved.Epoch})
			return err
		})
		if r := b.role(); r.Epoch != reserved.Epoch || r.Version != reserved.Version+2 {
			t.Fatalf("from %+v to %+v", reserved, r)
		}
	})
}

func testLegacyRole(t *testing.T, open func(*testing.T) *roleBench) {
	t.Run("candidates that race for the legacy role leave one leader and an epoch for each change", func(t *testing.T) {
		b := open(t)
		candidate := func(id string) {
			_, err := b.hub.Register(b.ctx, core.RegisterRequest{AgentID: id, CLI: "claude", Capabilities: []string{"cto"}})
			b.must(err)
		}
		for i := range 4 {
			candidate(fmt.Sprintf("c%d", i))
		}
		before, _, err := b.Store.ReadLegacyRole(b.ctx)
		b.must(err)
		changes := make([]int, 4)
		var wait sync.WaitGroup
		for i := range changes {
			wait.Go(func() {
				for range 8 {
					done, err := b.hub.TakeoverRole(b.ctx, core.TakeoverRequest{Role: "cto", AgentID: fmt.Sprintf("c%d", i), Reason: "race"})
					if err == nil && done.Changed {
						changes[i]++
					}
				}
			})
		}
		wait.Wait()
		after, _, err := b.Store.ReadLegacyRole(b.ctx)
		b.must(err)
		total := int64(0)
		for _, n := range changes {
			total += int64(n)
		}
		if after.Epoch != before.Epoch+total || total == 0 {
			t.Fatalf("%d changes bring the epoch from %d to %d", total, before.Epoch, after.Epoch)
		}
	})

	t.Run("a takeover whose answer is lost counts once", func(t *testing.T) {
		b := open(t)
		for _, id := range []string{"a", "b"} {
			_, err := b.hub.Register(b.ctx, core.RegisterRequest{AgentID: id, CLI: "claude", Capabilities: []string{"cto"}})
			b.must(err)
		}
		stop := b.LoseNextWrite()
		done, err := b.hub.TakeoverRole(b.ctx, core.TakeoverRequest{Role: "cto", AgentID: "b"})
		stop()
		if err != nil || !done.Changed || done.Epoch != 2 {
			t.Fatalf("the takeover is %+v, %v", done, err)
		}
	})
}
