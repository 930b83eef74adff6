package ddb_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	"drawbridge/core"
	"drawbridge/localstack/fakeaws"
)

// What a refused update would not be helped by is not tried: it is one request.
func TestARefusedUpdateOfARoleIsOneRequest(t *testing.T) {
	for _, test := range []struct {
		name           string
		version, epoch int64
		has, due       core.Instant
	}{
		{"another version, nothing due", 8, 3, 9, 0},
		{"another version, due earlier", 8, 3, 9, 5},
		{"another epoch, nothing due", 7, 4, 9, 0},
		{"another epoch, due later", 7, 4, 5, 9},
		{"another epoch, due then", 7, 4, 5, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			wire := w.guardRole(t, func(r *core.Role) { r.Version, r.DueAt = 7, test.has })
			var outcome core.RoleOutcome
			var err error
			cost := w.aws.Measure(t.Context(), func(ctx context.Context) {
				outcome, err = w.store.UpdateRole(ctx, core.RoleUpdate{
					Wire: wire, Expected: core.RoleExpectation{Version: core.Some(test.version), Epoch: core.Some(test.epoch)}, Due: test.due,
					Patch: core.RolePatch{LastTransition: guardMoment}, WriteStamp: guardStamp("update"),
				})
			})
			if err != nil || outcome.Done || cost.Requests != 1 {
				t.Errorf("%+v, %v in %d requests", outcome, err, cost.Requests)
			}
		})
	}
}

// A step may change more than its role: each of the others makes it a transaction.
func TestAStepOfARoleCarriesEachOfWhatGoesWithIt(t *testing.T) {
	candidate := core.RoleCandidate{AgentID: "a", Source: core.CandidateOperator, Locators: []byte("[]"), UpdatedAt: guardMoment}
	message := guardDelivery(func(*core.Delivery) {})
	for _, test := range []struct {
		name    string
		with    func(*core.RoleStep)
		refused bool
		holds   func(*testing.T, *world, string) bool
	}{
		{"a candidate", func(s *core.RoleStep) { s.Candidate = core.Some(candidate) }, false, func(t *testing.T, w *world, wire string) bool {
			return w.stored(t, "role#"+wire, "candidate#a") != nil
		}},
		{"a message", func(s *core.RoleStep) { s.Message = core.Some(message) }, false, func(t *testing.T, w *world, _ string) bool {
			return w.stored(t, "inbox#a", "m#m") != nil
		}},
		{"a fence that does not hold", func(s *core.RoleStep) { s.Fence = core.Some(core.AgentFence{AgentID: "a", Generation: 1}) }, true, nil},
		{"settings that are others", func(s *core.RoleStep) { s.Settings = core.Some(int64(1)) }, true, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			wire := w.guardRole(t, func(*core.Role) {})
			seen, err := w.store.ReadRole(t.Context(), wire)
			if err != nil {
				t.Fatal(err)
			}
			step := core.RoleStep{Seen: seen, Next: seen, WriteStamp: guardStamp("step")}
			step.Next.Version++
			test.with(&step)
			outcome, err := w.store.StepRole(t.Context(), step)
			if err != nil || outcome.Done == test.refused || test.holds != nil && !test.holds(t, w, wire) {
				t.Errorf("%+v, %v", outcome, err)
			}
		})
	}
}

func TestAStepThatLosesARaceIsNotCalledStaleAndReplacesNoMessage(t *testing.T) {
	w := newWorld(t)
	w.onlineAgent(t, "a")
	wire := w.guardRole(t, func(*core.Role) {})
	seen, err := w.store.ReadRole(t.Context(), wire)
	if err != nil {
		t.Fatal(err)
	}
	message := guardDelivery(func(*core.Delivery) {})
	w.putDelivery(t, message)
	stands := w.stored(t, "inbox#a", "m#m")
	fence := core.Some(core.AgentFence{AgentID: "a", Generation: 1})
	late := seen
	late.Version += 5
	next := late
	next.Version++
	outcome, err := w.store.StepRole(t.Context(), core.RoleStep{Seen: late, Next: next, Fence: fence, WriteStamp: guardStamp("late")})
	if err != nil || outcome.Done || outcome.Stale.Set {
		t.Errorf("a step on another version: %+v, %v", outcome, err)
	}
	next = seen
	next.Version++
	message.Topic = "another"
	for _, fence := range []core.Opt[core.AgentFence]{{}, fence} {
		outcome, err = w.store.StepRole(t.Context(), core.RoleStep{Seen: seen, Next: next, Message: core.Some(message), Fence: fence, WriteStamp: guardStamp("taken")})
		if err != nil || outcome.Done || outcome.Stale.Set || !reflect.DeepEqual(w.stored(t, "inbox#a", "m#m"), stands) {
			t.Errorf("a step whose message's key is taken: %+v, %v", outcome, err)
		}
	}
}

func TestAReadOfAnAuthorityGivesUpInTheEnd(t *testing.T) {
	for _, test := range []struct {
		name   string
		action fakeaws.Action
		code   core.Code
	}{
		{"transactions", fakeaws.TransactionConflict(), core.CodeContended},
		{"a refusal", fakeaws.Error(400, "AccessDeniedException"), core.CodeInternal},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.aws.Faults().Add(fakeaws.Rule{Op: "TransactGetItems", Action: test.action})
			if _, _, err := w.store.ReadAuthority(t.Context(), costRole.Wire(), "a"); core.CodeOf(err) != test.code {
				t.Errorf("error is %v", err)
			}
		})
	}
}

// A retry takes a candidate for its own write only if all of it is.
func TestACandidateThatDiffersInOneThingIsNotOnesOwn(t *testing.T) {
	seen := core.RoleCandidate{AgentID: "a", Source: core.CandidateOperator, Locators: []byte("[]"), UpdatedAt: guardMoment}
	next := seen
	next.Failures, next.UpdatedAt, next.ExcludedUntil, next.LastProbe, next.LastProbeCode = 1, guardMoment+1, guardMoment+9, guardMoment+1, "code"
	for name, change := range map[string]func(*core.RoleCandidate){
		"":                func(*core.RoleCandidate) {},
		"failures":        func(c *core.RoleCandidate) { c.Failures = 2 },
		"the moment":      func(c *core.RoleCandidate) { c.UpdatedAt++ },
		"the exclusion":   func(c *core.RoleCandidate) { c.ExcludedUntil++ },
		"the probe's end": func(c *core.RoleCandidate) { c.LastProbeCode = "other" },
	} {
		t.Run("differs in "+name, func(t *testing.T) {
			w := newWorld(t)
			wire := w.guardRole(t, func(*core.Role) {})
			stands := next
			change(&stands)
			role, err := w.store.ReadRole(t.Context(), wire)
			if err != nil {
				t.Fatal(err)
			}
			step := core.RoleStep{Seen: role, Next: role, Candidate: core.Some(stands), WriteStamp: guardStamp("step")}
			step.Next.Version++
			if outcome, err := w.store.StepRole(t.Context(), step); err != nil || !outcome.Done {
				t.Fatalf("%+v, %v", outcome, err)
			}
			if done, err := w.store.ReachCandidate(t.Context(), wire, seen, next); err != nil || done != (name == "") {
				t.Errorf("done %v, %v", done, err)
			}
		})
	}
}

// What a write does not know of its event is filled in from the one before. What
// cannot be filled in is left out: no event tells what was not so.
func TestAHistoryTellsNothingThatWasNotSo(t *testing.T) {
	w := newWorld(t)
	wire := w.guardRole(t, func(r *core.Role) { r.State = core.RoleProbing })
	now := core.RoleEvent{At: guardMoment, To: core.RoleProbing, Epoch: 3, Reason: "r", Holder: "a"}
	truth := map[int64]core.RoleEvent{0: now}
	for version := int64(1); version <= 3*core.MaxRoleHistory; version++ {
		u := core.RoleUpdate{
			Wire: wire, Expected: core.RoleExpectation{Version: core.Some(version - 1)}, Reserve: version%3 != 0,
			Patch: core.RolePatch{LastTransition: guardMoment + core.Instant(version)}, WriteStamp: guardStamp(fmt.Sprint("update ", version)),
		}
		// For a while every write leaves the same thing unsaid, so that no event
		// is left to fill it in from.
		unsaid := version / core.MaxRoleHistory
		if unsaid != 0 {
			now.Holder = fmt.Sprint("holder-", version)
			u.Patch.Holder = core.Some(now.Holder)
		}
		if unsaid != 1 {
			u.Expected.Epoch = core.Some(now.Epoch)
		}
		if unsaid != 2 {
			now.Reason = fmt.Sprint("reason-", version)
			u.Patch.LastReason = core.Some(now.Reason)
		}
		u.Patch.State = core.Some(core.RoleProbing)
		if u.Reserve {
			now.Epoch++
		}
		outcome, err := w.store.UpdateRole(t.Context(), u)
		if err != nil || !outcome.Done {
			t.Fatalf("version %d: %+v, %v", version, outcome, err)
		}
		now.Version, now.At = version, u.Patch.LastTransition
		truth[version] = now
		for _, told := range outcome.Role.History {
			is := truth[told.Version]
			if told.To != is.To || told.Epoch != is.Epoch || told.Reason != is.Reason || told.Holder != is.Holder || told.At != is.At {
				t.Fatalf("after version %d the event %d is told as %+v, and was %+v", version, told.Version, told, is)
			}
		}
		if version < core.MaxRoleHistory && len(outcome.Role.History) == 0 {
			t.Fatalf("version %d has no history", version)
		}
	}
}

// Records of earlier releases lack attributes that were added since.
func TestATokenOfAnEarlierReleaseEndsToo(t *testing.T) {
	w := newWorld(t)
	token := core.Token{Hash: "hash", Scopes: []core.Scope{core.ScopeRead}, CreatedAt: guardMoment}
	if created, err := w.store.CreateToken(t.Context(), token); err != nil || !created {
		t.Fatal(created, err)
	}
	it := w.stored(t, "token#hash", "token")
	delete(it, "revoked_ms")
	delete(it, "expires_ms")
	w.restore(t, it)
	if got, found, err := w.store.ExpireToken(t.Context(), token, guardMoment+1); err != nil || !found || got.ExpiresAt != guardMoment+1 {
		t.Errorf("%+v, %v, %v", got, found, err)
	}
	if got, found, err := w.store.RevokeToken(t.Context(), token, guardMoment); err != nil || !found || got.RevokedAt != guardMoment {
		t.Errorf("%+v, %v, %v", got, found, err)
	}
}

// A report that a heartbeat of the same agent overtook is stored all the same.
func TestAStatusThatAHeartbeatOvertookIsNotRefused(t *testing.T) {
	w := newWorld(t)
	w.onlineAgent(t, "a")
	w.beat(t, func(b *core.AgentHeartbeat) { b.Started = (guardMoment + 5).Time() })
	got, err := w.store.ChangeAgentStatus(t.Context(), core.AgentStatusChange{AgentID: "a", Status: core.StatusStale, WriteStamp: guardStamp("status")})
	if err != nil || got.Refused || got.Agent.Status != core.StatusStale {
		t.Errorf("%+v, %v", got, err)
	}
}
