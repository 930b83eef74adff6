package ddb_test

import (
	"context"
	"maps"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
)

// The conditions of a write are tested one by one: with a single attribute of a
// single item that is not as the write needs it, the write has to be refused and
// change nothing; without, it is carried out. make mutation drops each condition
// and expects one of these tests to fail.

// An attribute names a stored attribute.
type attribute struct{ pk, sk, name string }

// A deviation is an attribute that is not as a write needs it.
type deviation struct {
	name string
	at   attribute
	to   types.AttributeValue // nil: the attribute is not there
}

func textValue(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func numberValue(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}
func momentValue(i core.Instant) types.AttributeValue { return numberValue(int64(i)) }

var yesValue = &types.AttributeValueMemberBOOL{Value: true}

// stored reads an item as it is; nil: there is none.
func (w *world) stored(t *testing.T, pk, sk string) map[string]types.AttributeValue {
	t.Helper()
	out, err := w.client.GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName: aws.String(w.table), ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{"pk": textValue(pk), "sk": textValue(sk)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item
}

func (w *world) restore(t *testing.T, it map[string]types.AttributeValue) {
	t.Helper()
	if _, err := w.client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(w.table), Item: it}); err != nil {
		t.Fatal(err)
	}
}

// needs holds a write to its conditions. write tells whether it was carried out.
func (w *world) needs(t *testing.T, deviations []deviation, write func(context.Context) (bool, error)) {
	t.Helper()
	for _, d := range deviations {
		t.Run(d.name, func(t *testing.T) {
			before := w.stored(t, d.at.pk, d.at.sk)
			if before == nil {
				t.Fatalf("there is no item %v", d.at)
			}
			deviating := maps.Clone(before)
			if delete(deviating, d.at.name); d.to != nil {
				deviating[d.at.name] = d.to
			}
			if reflect.DeepEqual(before, deviating) {
				t.Fatalf("%v is stored that way", d.at)
			}
			w.restore(t, deviating)
			done, err := write(t.Context())
			if done || err != nil {
				t.Errorf("the write was carried out: %v, %v", done, err)
			}
			if after := w.stored(t, d.at.pk, d.at.sk); !reflect.DeepEqual(after, deviating) {
				t.Errorf("the refused write left %v", after)
			}
			w.restore(t, before)
		})
	}
	if done, err := write(t.Context()); !done || err != nil {
		t.Errorf("the write was refused where all is as it needs it: %v, %v", done, err)
	}
}

// guardMoment is when the writes of these tests are made.
var guardMoment = core.InstantOf(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

func guardStamp(id string) core.WriteStamp {
	return core.WriteStamp{WriteID: id, Started: guardMoment.Time()}
}

func (w *world) onlineAgent(t *testing.T, id string) {
	t.Helper()
	_, err := w.store.RegisterAgent(t.Context(), core.AgentRegistration{
		AgentID: id, CLI: "claude", Metadata: []byte("{}"), LeaseExpires: guardMoment.Add(time.Minute),
		WriteStamp: core.WriteStamp{WriteID: "registers " + id, Started: guardMoment.Add(-time.Minute).Time()},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// ofAgent are the deviations of an agent that has to be live under its
// generation.
func ofAgent(id string, others ...deviation) []deviation {
	at := func(name string) attribute { return attribute{"agent#" + id, "agent", name} }
	return append([]deviation{
		{"another generation", at("generation"), numberValue(2)},
		{"a generation that is finished", at("finished"), yesValue},
	}, others...)
}

// ofLiveAgent adds what an agent that acts for a role has to be.
func ofLiveAgent(id string, others ...deviation) []deviation {
	at := func(name string) attribute { return attribute{"agent#" + id, "agent", name} }
	return append(ofAgent(id,
		deviation{"an agent that is stale", at("presence"), textValue("stale")},
		deviation{"a lease that ends at this moment", at("lease_ms"), momentValue(guardMoment)},
		deviation{"a lease that has ended", at("lease_ms"), momentValue(guardMoment - 1)},
	), others...)
}

func TestADispatchIsMarkedForTheAttemptUnderWayOnly(t *testing.T) {
	w := newWorld(t)
	job := core.Job{
		ID: "j", Supervisor: "s", Worker: "w", Topic: "t", Content: core.NewPayload([]byte("{}")), Outcome: core.NewPayload([]byte("{}")),
		Status: core.JobRunning, Attempt: 2, LastMessageID: "m", Deadline: guardMoment.Add(time.Minute), TraceID: "tr", CorrelationID: "c",
		CreatedAt: guardMoment, UpdatedAt: guardMoment, Version: 1,
	}
	if _, err := w.store.SaveJob(t.Context(), core.JobChange{Job: job, Announcement: core.Announcement{WriteStamp: guardStamp("w")}}); err != nil {
		t.Fatal(err)
	}
	at := func(name string) attribute { return attribute{"job#j", "job", name} }
	w.needs(t, []deviation{
		{"another dispatch is the latest", at("last_message_id"), textValue("n")},
		{"another attempt is under way", at("attempt"), numberValue(3)},
		{"it is marked already", at("dispatched_ms"), momentValue(guardMoment - 1)},
		{"the job is over", at("job_status"), textValue("succeeded")},
		{"its deadline is at this moment", at("deadline_ms"), momentValue(guardMoment)},
		{"its deadline has passed", at("deadline_ms"), momentValue(guardMoment - 1)},
	}, func(ctx context.Context) (bool, error) {
		return w.store.MarkDispatched(ctx, core.JobDispatch{JobID: "j", MessageID: "m", Attempt: 2, At: guardMoment, Timeout: time.Minute})
	})
}

func TestCountsAreNotReplacedByEarlierOnes(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		asOf, count, want int64
	}{{10, 1, 1}, {10, 2, 2}, {9, 3, 2}, {11, 4, 4}} {
		asOf := core.Instant(c.asOf)
		if err := w.store.StoreCounts(t.Context(), core.MessageCounts{Normal: c.count, AsOf: asOf}); err != nil {
			t.Fatal(err)
		}
		if err := w.store.StoreJobCounts(t.Context(), core.AssignCounts{Queued: c.count, AsOf: asOf}); err != nil {
			t.Fatal(err)
		}
		messages, err := w.store.ReadCounts(t.Context())
		if err != nil || messages.Normal != c.want {
			t.Errorf("as of %d the messages are %+v, %v", c.asOf, messages, err)
		}
		jobs, err := w.store.ReadJobCounts(t.Context())
		if err != nil || jobs.Queued != c.want {
			t.Errorf("as of %d the jobs are %+v, %v", c.asOf, jobs, err)
		}
	}
}

func TestASweepMovesAnAgentThatIsAllItSawOnly(t *testing.T) {
	w := newWorld(t)
	w.onlineAgent(t, "a")
	seen, _, err := w.store.ReadAgent(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) attribute { return attribute{"agent#a", "agent", name} }
	w.needs(t, []deviation{
		{"another generation", at("generation"), numberValue(2)},
		{"another status", at("presence"), textValue("stale")},
		{"another lease", at("lease_ms"), momentValue(seen.LeaseExpires + 1)},
		{"another due entry", at("due_sk"), textValue("000000000000001#a")},
		{"no due entry", at("due_sk"), nil},
	}, func(ctx context.Context) (bool, error) {
		return w.store.TransitionAgent(ctx, core.AgentTransition{
			Seen: seen, To: core.StatusStale, Due: seen.LeaseExpires.Add(time.Minute), WriteStamp: guardStamp("sweep"),
		})
	})
}

// guardRole stores an active role that a holds.
func (w *world) guardRole(t *testing.T, change func(*core.Role)) string {
	t.Helper()
	wire := costRole.Wire()
	role := core.Role{
		Key: costRole, Wire: wire, State: core.RoleActive, Holder: "a", HolderGeneration: 1, Epoch: 3, ActivationSeq: 3, ActivationID: "act",
		CharterVersion: "1", LastReason: "r", LastTransition: guardMoment, HolderLeaseExpires: guardMoment + 1,
	}
	change(&role)
	outcome, err := w.store.StepRole(t.Context(), core.RoleStep{Seen: core.AbsentRole(costRole, wire), Next: role, WriteStamp: guardStamp("makes the role")})
	if err != nil || !outcome.Done {
		t.Fatalf("the role was not stored: %+v, %v", outcome, err)
	}
	return wire
}

func TestAnAuthorityIsAllItsParts(t *testing.T) {
	w := newWorld(t)
	w.onlineAgent(t, "a")
	wire := w.guardRole(t, func(*core.Role) {})
	at := func(name string) attribute { return attribute{"role#" + wire, "role", name} }
	authority := core.RoleAuthority{Wire: wire, Holder: "a", Generation: core.Some(int64(1)), Epoch: 3, At: guardMoment}
	version := int64(0)
	w.needs(t, ofLiveAgent("a",
		deviation{"the role is probing", at("role_state"), textValue("probing")},
		deviation{"another holds it", at("holder"), textValue("b")},
		deviation{"another epoch", at("epoch"), numberValue(4)},
		deviation{"its scope was closed", at("closed"), yesValue},
		deviation{"its bound is at this moment", at("holder_lease_ms"), momentValue(guardMoment)},
		deviation{"its bound has passed", at("holder_lease_ms"), momentValue(guardMoment - 1)},
		deviation{"another registration acknowledged", at("holder_generation"), numberValue(2)},
	), func(ctx context.Context) (bool, error) {
		outcome, err := w.store.PutRoleValue(ctx, core.RoleValueWrite{
			Authority: authority, Expected: version, Value: []byte(`1`), WriteStamp: guardStamp("value"),
		})
		return outcome.Done, err
	})
	t.Run("no bound at all", func(t *testing.T) {
		it := w.stored(t, "role#"+wire, "role")
		it["holder_lease_ms"] = numberValue(0)
		w.restore(t, it)
		outcome, err := w.store.PutRoleValue(t.Context(), core.RoleValueWrite{
			Authority: authority, Expected: 1, Value: []byte(`2`), WriteStamp: guardStamp("another value"),
		})
		if err != nil || !outcome.Done {
			t.Errorf("refused: %+v, %v", outcome, err)
		}
	})
	t.Run("another version of the value", func(t *testing.T) {
		for _, expected := range []int64{0, 1, 3} {
			outcome, err := w.store.PutRoleValue(t.Context(), core.RoleValueWrite{
				Authority: authority, Expected: expected, Value: []byte(`3`), WriteStamp: guardStamp("a late value"),
			})
			if err != nil || outcome.Done {
				t.Errorf("version %d was replaced: %+v, %v", expected, outcome, err)
			}
		}
	})
}

func TestAnAcknowledgementNeedsTheReservationAndALiveAgent(t *testing.T) {
	w := newWorld(t)
	w.onlineAgent(t, "a")
	wire := w.guardRole(t, func(r *core.Role) {
		r.State, r.HolderGeneration, r.ActivationDeadline = core.RoleProbing, 0, guardMoment+1
	})
	at := func(name string) attribute { return attribute{"role#" + wire, "role", name} }
	w.needs(t, ofLiveAgent("a",
		deviation{"the role is active", at("role_state"), textValue("active")},
		deviation{"reserved for another", at("holder"), textValue("b")},
		deviation{"another epoch", at("epoch"), numberValue(4)},
		deviation{"another activation", at("activation_seq"), numberValue(4)},
		deviation{"another activation id", at("activation_id"), textValue("other")},
		deviation{"another charter", at("charter_version"), textValue("2")},
		deviation{"its scope was closed", at("closed"), yesValue},
		deviation{"the deadline is at this moment", at("deadline_ms"), momentValue(guardMoment)},
		deviation{"the deadline has passed", at("deadline_ms"), momentValue(guardMoment - 1)},
		deviation{"the bound is at this moment", at("holder_lease_ms"), momentValue(guardMoment)},
		deviation{"the bound has passed", at("holder_lease_ms"), momentValue(guardMoment - 1)},
	), func(ctx context.Context) (bool, error) {
		outcome, err := w.store.AcknowledgeRole(ctx, core.RoleAck{
			Wire: wire, Holder: "a", Generation: 1, Epoch: 3, ActivationSeq: 3, ActivationID: "act", CharterVersion: "1", WriteStamp: guardStamp("ack"),
		})
		return outcome.Done, err
	})
}

func TestAnAcknowledgementNeedsNoDeadlineNoBoundAndNoName(t *testing.T) {
	for name, change := range map[string]func(*core.Role){
		"no deadline":         func(r *core.Role) { r.ActivationDeadline = 0 },
		"no bound":            func(r *core.Role) { r.HolderLeaseExpires = 0 },
		"reserved for nobody": func(r *core.Role) { r.Holder = "" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.onlineAgent(t, "a")
			wire := w.guardRole(t, func(r *core.Role) {
				r.State, r.HolderGeneration, r.ActivationDeadline = core.RoleProbing, 0, guardMoment+1
				change(r)
			})
			outcome, err := w.store.AcknowledgeRole(t.Context(), core.RoleAck{
				Wire: wire, Holder: "a", Generation: 1, Epoch: 3, ActivationSeq: 3, ActivationID: "act", CharterVersion: "1", WriteStamp: guardStamp("ack"),
			})
			if err != nil || !outcome.Done {
				t.Errorf("refused: %+v, %v", outcome, err)
			}
		})
	}
}

func TestAnUpdateOfARoleNeedsAllItExpects(t *testing.T) {
	w := newWorld(t)
	wire := w.guardRole(t, func(r *core.Role) { r.Version = 7 })
	at := func(name string) attribute { return attribute{"role#" + wire, "role", name} }
	w.needs(t, []deviation{
		{"another version", at("version"), numberValue(8)},
		{"another epoch", at("epoch"), numberValue(4)},
		{"another activation", at("activation_seq"), numberValue(4)},
		{"another activation id", at("activation_id"), textValue("other")},
		{"its scope was closed", at("closed"), yesValue},
	}, func(ctx context.Context) (bool, error) {
		outcome, err := w.store.UpdateRole(ctx, core.RoleUpdate{
			Wire: wire,
			Expected: core.RoleExpectation{
				Version: core.Some(int64(7)), Epoch: core.Some(int64(3)), ActivationSeq: core.Some(int64(3)), ActivationID: core.Some("act"),
			},
			Patch: core.RolePatch{BlockedReason: core.Some("b"), LastTransition: guardMoment}, WriteStamp: guardStamp("update"),
		})
		return outcome.Done, err
	})
}

func TestARoleIsReservedForSomebodyElseThanItsHolder(t *testing.T) {
	w := newWorld(t)
	wire := w.guardRole(t, func(*core.Role) {})
	w.needs(t, []deviation{
		{"who is to hold it does", attribute{"role#" + wire, "role", "holder"}, textValue("b")},
	}, func(ctx context.Context) (bool, error) {
		outcome, err := w.store.UpdateRole(ctx, core.RoleUpdate{
			Wire: wire, Expected: core.RoleExpectation{Version: core.Some(int64(0))}, Reserve: true, Displace: true,
			Patch: core.RolePatch{Holder: core.Some("b"), LastTransition: guardMoment}, WriteStamp: guardStamp("reserve"),
		})
		return outcome.Done, err
	})
}

func TestAStepOfARoleNeedsItsVersionTheSettingsAndTheFence(t *testing.T) {
	w := newWorld(t)
	w.onlineAgent(t, "a")
	if _, err := w.store.ChangeRoleSettings(t.Context(), core.SettingsChange{LeadEnabled: core.Some(true), WriteStamp: guardStamp("settings")}); err != nil {
		t.Fatal(err)
	}
	wire := w.guardRole(t, func(*core.Role) {})
	seen, err := w.store.ReadRole(t.Context(), wire)
	if err != nil {
		t.Fatal(err)
	}
	next := seen
	next.Version++
	w.needs(t, ofAgent("a",
		deviation{"another version", attribute{"role#" + wire, "role", "version"}, numberValue(5)},
		deviation{"other settings", attribute{"hub", "roles", "generation"}, numberValue(2)},
	), func(ctx context.Context) (bool, error) {
		outcome, err := w.store.StepRole(ctx, core.RoleStep{
			Seen: seen, Next: next, Settings: core.Some(int64(1)), Fence: core.Some(core.AgentFence{AgentID: "a", Generation: 1}), WriteStamp: guardStamp("step"),
		})
		return outcome.Done, err
	})
	t.Run("settings that were never changed", func(t *testing.T) {
		after := next
		after.Version++
		outcome, err := w.store.StepRole(t.Context(), core.RoleStep{Seen: next, Next: after, Settings: core.Some(int64(0)), WriteStamp: guardStamp("late step")})
		if err != nil || outcome.Done {
			t.Errorf("done: %+v, %v", outcome, err)
		}
	})
}

func TestACandidateIsReachedAsItWasSeenOnly(t *testing.T) {
	w := newWorld(t)
	wire := costRole.Wire()
	seen, _, err := w.store.PutCandidate(t.Context(), core.CandidateWrite{Wire: wire, AgentID: "a", WriteStamp: guardStamp("candidate")})
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) attribute { return attribute{"role#" + wire, "candidate#a", name} }
	next := seen
	next.Failures, next.UpdatedAt, next.LastProbe = 1, guardMoment+5, guardMoment+5
	w.needs(t, []deviation{
		{"it was changed since", at("updated_ms"), momentValue(guardMoment + 1)},
		{"it has failed since", at("failures"), numberValue(2)},
	}, func(ctx context.Context) (bool, error) { return w.store.ReachCandidate(ctx, wire, seen, next) })
}

func TestACandidateIsPutUnderItsFenceOnly(t *testing.T) {
	w := newWorld(t)
	w.onlineAgent(t, "a")
	w.needs(t, ofAgent("a"), func(ctx context.Context) (bool, error) {
		_, stale, err := w.store.PutCandidate(ctx, core.CandidateWrite{
			Wire: costRole.Wire(), AgentID: "a", Fence: core.Some(core.AgentFence{AgentID: "a", Generation: 1}), WriteStamp: guardStamp("candidate"),
		})
		return !stale.Set, err
	})
}
