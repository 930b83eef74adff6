package ddb_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
	"drawbridge/localstack/fakeaws"
)

func guardJob(change func(*core.Job)) core.Job {
	j := core.Job{
		ID: "j", Supervisor: "s", Worker: "w", Topic: "t", Content: core.NewPayload([]byte("{}")), Outcome: core.NewPayload([]byte("{}")),
		Status: core.JobRunning, Attempt: 1, TraceID: "tr", CorrelationID: "c", CreatedAt: guardMoment, UpdatedAt: guardMoment, Version: 1,
	}
	change(&j)
	return j
}

func (w *world) saveJob(t *testing.T, j core.Job, id string, change func(*core.JobChange)) (core.SaveOutcome, error) {
	t.Helper()
	c := core.JobChange{Job: j, Announcement: core.Announcement{WriteStamp: guardStamp(id)}}
	change(&c)
	return w.store.SaveJob(t.Context(), c)
}

func unchanged(*core.JobChange) {}

// A new entity that others keep from being written is told as such: nobody else
// can have made it. A change finds out by looking again.
func TestASaveThatOthersHoldUpIsRefusedOrLooksAgain(t *testing.T) {
	w := newWorld(t)
	if saved, err := w.saveJob(t, guardJob(func(*core.Job) {}), "first", unchanged); err != nil || !saved.Done {
		t.Fatalf("%+v, %v", saved, err)
	}
	w.onlineAgent(t, "s")
	fenced := func(c *core.JobChange) { c.Fence = core.Some(core.AgentFence{AgentID: "s", Generation: 1}) }
	w.aws.Faults().Add(fakeaws.Rule{Op: "TransactWriteItems", Action: fakeaws.TransactionConflict()})
	if saved, err := w.saveJob(t, guardJob(func(j *core.Job) { j.ID = "other" }), "other", fenced); core.CodeOf(err) != core.CodeContended {
		t.Errorf("a new job: %+v, %v", saved, err)
	}
	if saved, err := w.saveJob(t, guardJob(func(j *core.Job) { j.Version = 2 }), "second", fenced); err != nil || saved.Done {
		t.Errorf("a change: %+v, %v", saved, err)
	}
}

// What others hold up may have been done before, by a request whose answer was lost:
// then whoever asked looks, and is told so.
func TestASaveWhoseAnswerIsLostAndThatOthersThenHoldUpIsFound(t *testing.T) {
	w := newWorld(t)
	w.onlineAgent(t, "s")
	lost := w.aws.Faults().Add(fakeaws.Rule{Op: "TransactWriteItems", Count: 1, Action: fakeaws.DropResponse()})
	held := w.aws.Faults().Add(fakeaws.Rule{Op: "TransactWriteItems", After: 1, Action: fakeaws.TransactionConflict()})
	saved, err := w.saveJob(t, guardJob(func(*core.Job) {}), "first", func(c *core.JobChange) {
		c.Fence = core.Some(core.AgentFence{AgentID: "s", Generation: 1})
	})
	if lost.Hits() != 1 || held.Hits() < 2 || w.stored(t, "job#j", "job") == nil {
		t.Fatalf("%d answers were lost, %d requests held up", lost.Hits(), held.Hits())
	}
	if err != nil || !saved.Done || !saved.Replayed {
		t.Errorf("%+v, %v", saved, err)
	}
}

// What is kept apart of a new job that was refused goes; of a change that lost a
// race it stays, because the winner may refer to it.
func TestOnlyANewJobThatIsRefusedTakesWhatIsKeptApartWithIt(t *testing.T) {
	w := newWorld(t)
	stale := func(c *core.JobChange) { c.Fence = core.Some(core.AgentFence{AgentID: "s", Generation: 2}) }
	w.onlineAgent(t, "s")
	if saved, err := w.saveJob(t, guardJob(func(j *core.Job) {
		j.ID, j.Outcome, j.OutcomeID = "new", core.NewPayload(large), "new-outcome"
	}), "new", stale); err != nil || saved.Done {
		t.Fatalf("%+v, %v", saved, err)
	}
	if saved, err := w.saveJob(t, guardJob(func(*core.Job) {}), "first", unchanged); err != nil || !saved.Done {
		t.Fatalf("%+v, %v", saved, err)
	}
	if saved, err := w.saveJob(t, guardJob(func(j *core.Job) {
		j.Version, j.Outcome, j.OutcomeID = 2, core.NewPayload(large), "changed-outcome"
	}), "changed", stale); err != nil || saved.Done {
		t.Fatalf("%+v, %v", saved, err)
	}
	for name, lost := range map[string]bool{"new-outcome": true, "changed-outcome": false} {
		jobs := []core.Job{guardJob(func(j *core.Job) { j.Outcome, j.OutcomeID = core.Payload{}, name })}
		if err := w.store.LoadJobs(t.Context(), jobs); err != nil || jobs[0].Outcome.Lost != lost {
			t.Errorf("%s is lost: %v, %v", name, jobs[0].Outcome.Lost, err)
		}
	}
}

// The keys of new items are made of ids that nobody else has. Should one be taken
// all the same, nothing is replaced and nothing else is done.
func TestNothingNewTakesThePlaceOfAnother(t *testing.T) {
	w := newWorld(t)
	w.putDelivery(t, guardDelivery(func(*core.Delivery) {}))
	taken := w.stored(t, "inbox#a", "m#m")
	message := guardDelivery(func(d *core.Delivery) { d.Topic = "another" })
	stands := func(t *testing.T) {
		t.Helper()
		if now := w.stored(t, "inbox#a", "m#m"); !reflect.DeepEqual(now, taken) {
			t.Errorf("the message was replaced by %v", now)
		}
	}
	t.Run("a message of a job, with and without a fence", func(t *testing.T) {
		w.onlineAgent(t, "s")
		for _, fence := range []core.Opt[core.AgentFence]{{}, core.Some(core.AgentFence{AgentID: "s", Generation: 1})} {
			saved, err := w.saveJob(t, guardJob(func(*core.Job) {}), "job", func(c *core.JobChange) { c.Messages, c.Fence = []core.Delivery{message}, fence })
			if core.CodeOf(err) != core.CodeInternal || saved.Done || saved.Stale.Set || w.stored(t, "job#j", "job") != nil {
				t.Errorf("%+v, %v", saved, err)
			}
			stands(t)
		}
	})
	t.Run("an event of a job", func(t *testing.T) {
		job := guardJob(func(j *core.Job) { j.Events = 1 })
		events := func(c *core.JobChange) { c.Events = []core.JobEvent{{Seq: 1, At: guardMoment, Job: job}} }
		if saved, err := w.saveJob(t, job, "first", events); err != nil || !saved.Done {
			t.Fatalf("%+v, %v", saved, err)
		}
		job.Version = 2
		if saved, err := w.saveJob(t, job, "second", events); core.CodeOf(err) != core.CodeInternal || saved.Done {
			t.Errorf("%+v, %v", saved, err)
		}
	})
	t.Run("a message, with and without a transaction", func(t *testing.T) {
		for _, fence := range []core.Opt[core.AgentFence]{{}, core.Some(core.AgentFence{AgentID: "s", Generation: 1})} {
			outcome, err := w.store.PutMessage(t.Context(), core.Publication{Delivery: message, Fence: fence, WriteStamp: guardStamp("put")})
			if err != nil || !outcome.Replayed {
				t.Errorf("%+v, %v", outcome, err)
			}
			stands(t)
		}
	})
	t.Run("a notice of a death", func(t *testing.T) {
		dying := guardDelivery(func(d *core.Delivery) { d.ID, d.ExpiresAt = "dying", guardMoment })
		w.putDelivery(t, dying)
		done, err := w.store.DeadLetter(t.Context(), core.DeadLettering{Seen: dying, Reason: "expired", Notice: core.Some(message), WriteStamp: guardStamp("dies")})
		if done || err != nil {
			t.Errorf("%v, %v", done, err)
		}
		stands(t)
	})
	t.Run("what a letter was before it was redriven", func(t *testing.T) {
		dead := guardDelivery(func(d *core.Delivery) {
			d.ID, d.State, d.DeadLetterings, d.FailedAt, d.Reason = "dead", core.DeliveryDead, 1, guardMoment, "expired"
		})
		w.putDelivery(t, dead)
		before := w.stored(t, "inbox#a", "m#dead")
		past := w.stored(t, "inbox#a", "m#dead")
		past["sk"] = textValue("r#dead#1")
		delete(past, "inbox_sk")
		w.restore(t, past)
		done, err := w.store.Requeue(t.Context(), core.Redrive{Seen: dead, ExpiresAt: guardMoment.Add(time.Minute), WriteStamp: guardStamp("redrive")})
		if done || err != nil || !reflect.DeepEqual(w.stored(t, "inbox#a", "m#dead"), before) {
			t.Errorf("redriven over another: %v, %v", done, err)
		}
	})
}

func TestWhatExpiresAtThisMomentIsNotPending(t *testing.T) {
	w := newWorld(t)
	for id, expires := range map[string]core.Instant{"over": guardMoment, "pending": guardMoment + 1} {
		w.putDelivery(t, guardDelivery(func(d *core.Delivery) { d.ID, d.ExpiresAt = id, expires }))
	}
	if n, err := w.store.CountInbox(t.Context(), "a", guardMoment, 10); err != nil || n != 1 {
		t.Errorf("the inbox holds %d, %v", n, err)
	}
	if counts, all, err := w.store.CountMessages(t.Context(), guardMoment); err != nil || !all || counts.Normal != 1 || counts.Urgent != 0 {
		t.Errorf("the hub holds %+v, %v, %v", counts, all, err)
	}
}

// The lanes are counted apart: the lowest urgent priority and the one below it.
func TestUrgentMessagesAreCountedApart(t *testing.T) {
	w := newWorld(t)
	for i, priority := range []int64{core.UrgentPriority, core.UrgentPriority - 1, core.UrgentPriority - 1} {
		w.putDelivery(t, guardDelivery(func(d *core.Delivery) { d.ID, d.Priority = string(rune('a'+i)), priority }))
	}
	if counts, _, err := w.store.CountMessages(t.Context(), guardMoment); err != nil || counts.Urgent != 1 || counts.Normal != 2 {
		t.Errorf("counted %+v, %v", counts, err)
	}
}

// A transaction does not tell the items after it: what a guarded change answers is
// worked out, and has to be what is stored.
func TestAGuardedChangeAnswersWhatIsStoredAfterIt(t *testing.T) {
	for name, c := range map[string]core.DeliveryChange{
		"leased":                       {To: core.DeliveryHidden, VisibleAt: guardMoment + 5, Lease: "l", HandedOut: true, MaxDeliveries: 3},
		"leased without another limit": {To: core.DeliveryHidden, VisibleAt: guardMoment + 5, Lease: "l", HandedOut: true},
		"given back":                   {To: core.DeliveryHidden, VisibleAt: guardMoment},
		"acknowledged":                 {To: core.DeliveryAcked, HandedOut: true},
	} {
		for _, before := range []int64{0, 2} {
			w := newWorld(t)
			w.onlineAgent(t, "a")
			seen := guardDelivery(func(d *core.Delivery) {
				if d.MaxDeliveries = 9; before > 0 {
					d.Deliveries, d.DeliveredAt = before, guardMoment-7
				}
			})
			w.putDelivery(t, seen)
			c.Inbox, c.MessageID, c.Seen = "a", "m", core.Some(seen)
			guard := core.InboxGuard{Agent: core.Some(core.AgentFence{AgentID: "a", Generation: 1})}
			outcomes, refusal, err := w.store.ChangeDeliveries(t.Context(), []core.DeliveryChange{c}, guard, guardStamp("change"))
			if err != nil || refusal.Refused() || !outcomes[0].Done {
				t.Fatalf("%s: %+v, %+v, %v", name, outcomes, refusal, err)
			}
			stored, _, err := w.store.ReadDelivery(t.Context(), "a", "m")
			if err != nil || !reflect.DeepEqual(outcomes[0].Stands, stored) {
				t.Errorf("%s after %d deliveries:\nanswered %+v\n  stored %+v, %v", name, before, outcomes[0].Stands, stored, err)
			}
		}
	}
}

// One change of a transaction that does not fit keeps the others from nothing.
func TestAGuardedChangeThatDoesNotFitKeepsNoOtherBack(t *testing.T) {
	agent := core.Some(core.AgentFence{AgentID: "a", Generation: 1})
	for name, guard := range map[string]core.InboxGuard{
		"an agent": {Agent: agent},
		"a role":   {Agent: agent, Role: core.Some(core.RoleAuthority{Wire: costRole.Wire(), Holder: "a", Epoch: 3, At: guardMoment})},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.onlineAgent(t, "a")
			w.guardRole(t, func(*core.Role) {})
			var changes []core.DeliveryChange
			for _, id := range []string{"x", "gone", "y"} {
				if id != "gone" {
					w.putDelivery(t, guardDelivery(func(d *core.Delivery) { d.ID = id }))
				}
				seen := guardDelivery(func(d *core.Delivery) { d.ID = id })
				changes = append(changes, core.DeliveryChange{Inbox: "a", MessageID: id, Seen: core.Some(seen), To: core.DeliveryAcked})
			}
			outcomes, refusal, err := w.store.ChangeDeliveries(t.Context(), changes, guard, guardStamp("change"))
			if err != nil || refusal.Refused() || !outcomes[0].Done || outcomes[1].Done || outcomes[1].Err != nil || !outcomes[2].Done {
				t.Errorf("%+v, %+v, %v", outcomes, refusal, err)
			}
		})
	}
}

// A guard's refusal tells which part of it does not hold.
func TestARefusedGuardSaysWhetherTheRoleOrTheAgentDoesNotFit(t *testing.T) {
	for _, test := range []struct {
		name              string
		epoch, generation int64
		role, agent       bool
	}{
		{"the role", 4, 1, true, false}, {"the agent", 3, 2, false, true}, {"both", 4, 2, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.onlineAgent(t, "a")
			w.guardRole(t, func(*core.Role) {})
			w.putDelivery(t, guardDelivery(func(*core.Delivery) {}))
			_, refusal, err := w.store.ChangeDeliveries(t.Context(), []core.DeliveryChange{{Inbox: "a", MessageID: "m", To: core.DeliveryAcked}}, core.InboxGuard{
				Agent: core.Some(core.AgentFence{AgentID: "a", Generation: test.generation}),
				Role:  core.Some(core.RoleAuthority{Wire: costRole.Wire(), Holder: "a", Epoch: test.epoch, At: guardMoment}),
			}, guardStamp("change"))
			if err != nil || refusal.Role != test.role || refusal.Agent.Set != test.agent {
				t.Errorf("%+v, %v", refusal, err)
			}
		})
	}
}

// Whoever publishes to itself under a fence is told which of the two does not
// hold: that it is finished or overtaken, or only that it is not online.
func TestAMessageToOneselfIsRefusedByTheFenceBeforeThePresence(t *testing.T) {
	for _, test := range []struct {
		name  string
		at    string
		to    types.AttributeValue
		stale bool
	}{
		{"overtaken", "generation", numberValue(2), true},
		{"finished", "finished", yesValue, true},
		{"not online", "presence", textValue("stale"), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.onlineAgent(t, "a")
			it := w.stored(t, "agent#a", "agent")
			it[test.at] = test.to
			w.restore(t, it)
			outcome, err := w.store.PutMessage(t.Context(), core.Publication{
				Delivery: guardDelivery(func(*core.Delivery) {}), Online: true, Fence: core.Some(core.AgentFence{AgentID: "a", Generation: 1}), WriteStamp: guardStamp("put"),
			})
			if err != nil || outcome.Stale.Set != test.stale || outcome.Offline == test.stale {
				t.Errorf("%+v, %v", outcome, err)
			}
		})
	}
}

func guardRegistration(id string, started, lease core.Instant) core.AgentRegistration {
	return core.AgentRegistration{
		AgentID: "a", CLI: "claude", Metadata: []byte("{}"), LeaseExpires: lease, WriteStamp: core.WriteStamp{WriteID: id, Started: started.Time()},
	}
}

// A register on a host whose clock is behind takes its place after what it met,
// so that a late copy of that does not undo it.
func TestARegisterTakesItsPlaceAfterWhatItMet(t *testing.T) {
	w := newWorld(t)
	for i, started := range []core.Instant{guardMoment, guardMoment - 1000} {
		got, err := w.store.RegisterAgent(t.Context(), guardRegistration(string(rune('a'+i)), started, guardMoment.Add(time.Minute)))
		if err != nil || got.Agent.Generation != int64(i+1) || got.Replayed {
			t.Fatalf("%+v, %v", got, err)
		}
		if i == 1 && !got.Agent.TouchedAt.After(guardMoment.Time()) {
			t.Errorf("the second register stands at %v, the first at %v", got.Agent.TouchedAt, guardMoment.Time())
		}
	}
}

func TestARegisterThatEndsBeforeItsDueEntryMovesIt(t *testing.T) {
	for _, once := range []bool{false, true} {
		w := newWorld(t)
		w.onlineAgent(t, "a")
		seen, _, err := w.store.ReadAgent(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		r := guardRegistration("earlier", guardMoment, seen.DueAt-1)
		if once {
			done, err := w.store.RegisterAgentOnce(t.Context(), r, seen, core.IdempotencyRecord{ID: "k", Answer: []byte("{}"), ExpiresAt: guardMoment + 9})
			if err != nil || !done {
				t.Fatalf("%v, %v", done, err)
			}
		} else if _, err := w.store.RegisterAgent(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if after, _, err := w.store.ReadAgent(t.Context(), "a"); err != nil || after.DueAt != seen.DueAt-1 {
			t.Errorf("once %v: due at %d, %v", once, after.DueAt-guardMoment, err)
		}
	}
}

func TestARegisterOnceNeedsTheAgentAsItWasSeen(t *testing.T) {
	w := newWorld(t)
	w.onlineAgent(t, "a")
	seen, _, err := w.store.ReadAgent(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	once := func(seen core.Agent, key string) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			return w.store.RegisterAgentOnce(ctx, guardRegistration(key, guardMoment, seen.LeaseExpires), seen,
				core.IdempotencyRecord{ID: key, Answer: []byte("{}"), ExpiresAt: guardMoment.Add(time.Hour)})
		}
	}
	at := func(name string) attribute { return attribute{"agent#a", "agent", name} }
	w.needs(t, []deviation{
		{"another generation", at("generation"), numberValue(2)},
		{"a write that started later", at("touched_us"), numberValue(guardMoment.Time().UnixMicro() + 1)},
		{"an earlier due entry may stay, a later one may not", at("due_sk"), textValue("999999999999999#a")},
	}, once(seen, "k"))
	for name, write := range map[string]func(context.Context) (bool, error){
		"an answer is stored": once(func() core.Agent { s := seen; s.Generation = 2; return s }(), "k"),
		"there is an agent":   once(core.Agent{}, "other"),
	} {
		if done, err := write(t.Context()); done || err != nil {
			t.Errorf("%s: %v, %v", name, done, err)
		}
	}
}

func (w *world) beat(t *testing.T, change func(*core.AgentHeartbeat)) core.AgentWrite {
	t.Helper()
	b := core.AgentHeartbeat{AgentID: "a", LeaseExpires: guardMoment.Add(2 * time.Minute), WriteStamp: guardStamp("beat")}
	change(&b)
	got, err := w.store.HeartbeatAgent(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Only a step that has grown moves the step's clock; with one that has not, the
// lease is extended all the same.
func TestOnlyAStepThatHasGrownIsProgress(t *testing.T) {
	w := newWorld(t)
	w.onlineAgent(t, "a")
	for _, beat := range []struct {
		step     core.Opt[int64]
		at       core.Instant
		want     core.Opt[int64]
		progress core.Instant
	}{
		{core.Opt[int64]{}, 1, core.Opt[int64]{}, -60_000},
		{core.Some(int64(0)), 2, core.Some(int64(0)), 2},
		{core.Some(int64(5)), 3, core.Some(int64(5)), 3},
		{core.Some(int64(5)), 4, core.Some(int64(5)), 3},
		{core.Some(int64(4)), 5, core.Some(int64(5)), 3},
		{core.Opt[int64]{}, 6, core.Some(int64(5)), 3},
		{core.Some(int64(6)), 7, core.Some(int64(6)), 7},
	} {
		got := w.beat(t, func(b *core.AgentHeartbeat) {
			b.Step, b.WriteStamp = beat.step, core.WriteStamp{WriteID: string(rune('a' + beat.at)), Started: (guardMoment + beat.at).Time()}
		})
		if a := got.Agent; got.Refused || a.Step != beat.want || a.StepAt != guardMoment+beat.progress || a.LastSeen != guardMoment+beat.at {
			t.Errorf("beat %+v: step %+v since %d, seen %d, refused %v", beat, a.Step, a.StepAt-guardMoment, a.LastSeen-guardMoment, got.Refused)
		}
	}
}

func TestAHeartbeatSetsTheStepsDeadlineWhereItTellsOne(t *testing.T) {
	w := newWorld(t)
	w.onlineAgent(t, "a")
	for _, given := range []core.Opt[time.Duration]{{}, core.Some(time.Second), {}} {
		got := w.beat(t, func(b *core.AgentHeartbeat) { b.StepDeadline = given })
		if given.Set && got.Agent.StepDeadline != given {
			t.Errorf("the deadline is %+v", got.Agent.StepDeadline)
		}
	}
	if a, _, err := w.store.ReadAgent(t.Context(), "a"); err != nil || a.StepDeadline != core.Some(time.Second) {
		t.Errorf("the deadline is %+v, %v", a.StepDeadline, err)
	}
}

// A heartbeat whose lease ends before the due entry moves it earlier: an entry may
// be early, never late.
func TestAHeartbeatLeavesNoDueEntryAfterItsLease(t *testing.T) {
	w := newWorld(t)
	w.onlineAgent(t, "a")
	lease := guardMoment.Add(time.Second)
	if got := w.beat(t, func(b *core.AgentHeartbeat) { b.LeaseExpires = lease }); got.Agent.DueAt > lease {
		t.Errorf("due %d ms after the lease's end", got.Agent.DueAt-lease)
	}
}

// A beat that has to be fitted to what it met keeps its step: only one that has not
// grown is dropped.
func TestAHeartbeatThatMovesItsDueEntryKeepsItsStep(t *testing.T) {
	for before, given := range map[core.Opt[int64]]int64{{}: 0, core.Some(int64(3)): 4} {
		w := newWorld(t)
		w.onlineAgent(t, "a")
		w.beat(t, func(b *core.AgentHeartbeat) { b.WriteID, b.Step = "before", before })
		got := w.beat(t, func(b *core.AgentHeartbeat) {
			b.LeaseExpires, b.Step = guardMoment.Add(time.Second), core.Some(given)
		})
		if got.Agent.Step != core.Some(given) {
			t.Errorf("after %+v the step %d was taken for %+v", before, given, got.Agent.Step)
		}
	}
}

// A change of status without a fence that a register has overtaken leaves the new
// owner alone; with a fence, and without a register in between, it wins.
func TestAnUnfencedStatusThatARegisterOvertookLeavesTheNewOwnerAlone(t *testing.T) {
	for _, test := range []struct {
		name       string
		registered core.Instant // of the agent, against the change's start
		generation core.Opt[int64]
		want       core.Status
	}{
		{"overtaken", 1, core.Opt[int64]{}, core.StatusOnline},
		{"in the same millisecond", 0, core.Opt[int64]{}, core.StatusOffline},
		{"fenced", 1, core.Some(int64(1)), core.StatusOffline},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			if _, err := w.store.RegisterAgent(t.Context(), guardRegistration("r", guardMoment+test.registered, guardMoment.Add(time.Minute))); err != nil {
				t.Fatal(err)
			}
			// A heartbeat that started later has the change refused at first.
			w.beat(t, func(b *core.AgentHeartbeat) { b.Started = (guardMoment + 5).Time() })
			_, err := w.store.ChangeAgentStatus(t.Context(), core.AgentStatusChange{
				AgentID: "a", Generation: test.generation, Status: core.StatusOffline, WriteStamp: guardStamp("off"),
			})
			if err != nil {
				t.Fatal(err)
			}
			if a, _, err := w.store.ReadAgent(t.Context(), "a"); err != nil || a.Status != test.want {
				t.Errorf("the agent is %s, %v", a.Status, err)
			}
		})
	}
}

func TestAFinishedGenerationTakesNoStatusButOffline(t *testing.T) {
	w := newWorld(t)
	w.onlineAgent(t, "a")
	change := func(id string, status core.Status, final bool) core.AgentWrite {
		t.Helper()
		got, err := w.store.ChangeAgentStatus(t.Context(), core.AgentStatusChange{AgentID: "a", Status: status, Final: final, WriteStamp: guardStamp(id)})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	change("final", core.StatusOffline, true)
	if got := change("again", core.StatusOffline, false); got.Refused {
		t.Errorf("a second deregistration was refused: %+v", got)
	}
	if got := change("back", core.StatusOnline, false); !got.Refused {
		t.Errorf("a finished generation came back: %+v", got)
	}
	if a, _, err := w.store.ReadAgent(t.Context(), "a"); err != nil || a.Status != core.StatusOffline || !a.Final {
		t.Errorf("the agent is %+v, %v", a, err)
	}
	if got := w.beat(t, func(*core.AgentHeartbeat) {}); !got.Refused {
		t.Errorf("a finished generation beats: %+v", got)
	}
}

// A sweep that is recorded twice by a retry has failed once.
func TestASweepsFailureIsCountedOnce(t *testing.T) {
	w := newWorld(t)
	outcome := core.SweepOutcome{Name: "s", ErrorCode: core.CodeInternal, WriteStamp: guardStamp("run")}
	for range 2 {
		if err := w.store.RecordSweep(t.Context(), outcome); err != nil {
			t.Fatal(err)
		}
	}
	got, err := w.store.ReadSweeps(t.Context(), []string{"s"})
	if err != nil || got[0].ConsecutiveFailures != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// The settings' generation fences the roles: a retry may not take two.
func TestAChangeOfTheSettingsThatIsSentAgainIsOne(t *testing.T) {
	w := newWorld(t)
	for range 2 {
		got, err := w.store.ChangeRoleSettings(t.Context(), core.SettingsChange{LeadEnabled: core.Some(true), WriteStamp: guardStamp("s")})
		if err != nil || got.Generation != 1 {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

func TestALegacyCandidateIsForgottenWhenItIsOlderOnly(t *testing.T) {
	w := newWorld(t)
	r := guardRegistration("r", guardMoment, guardMoment.Add(time.Minute))
	r.LegacyCandidate = true
	if _, err := w.store.RegisterAgent(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		olderThan core.Instant
		left      int
	}{{guardMoment - 1, 1}, {guardMoment, 1}, {guardMoment + 1, 0}} {
		if err := w.store.ForgetLegacyCandidates(t.Context(), []string{"a"}, step.olderThan); err != nil {
			t.Fatal(err)
		}
		if _, ids, err := w.store.ReadLegacyRole(t.Context()); err != nil || len(ids) != step.left {
			t.Errorf("older than %d: %v, %v", step.olderThan-guardMoment, ids, err)
		}
	}
}

// Forgetting holds makes no agent out of nothing.
func TestForgettingHoldsOfNobodyMakesNoAgent(t *testing.T) {
	w := newWorld(t)
	if err := w.store.ForgetHolds(t.Context(), "nobody", []core.RoleHold{{Wire: costRole.Wire(), Epoch: 1}}); err != nil {
		t.Fatal(err)
	}
	if it := w.stored(t, "agent#nobody", "agent"); it != nil {
		t.Errorf("there is %v", it)
	}
}

// Dead letters are listed by when they failed, both ends included.
func TestDeadLettersAreListedByWhenTheyFailedBothEndsIncluded(t *testing.T) {
	w := newWorld(t)
	for i := range core.Instant(5) {
		d := guardDelivery(func(d *core.Delivery) { d.ID, d.ExpiresAt = string(rune('a'+i)), guardMoment-9 })
		w.putDelivery(t, d)
		stamp := core.WriteStamp{WriteID: d.ID, Started: (guardMoment + i).Time()}
		if done, err := w.store.DeadLetter(t.Context(), core.DeadLettering{Seen: d, Reason: "expired", WriteStamp: stamp}); err != nil || !done {
			t.Fatal(done, err)
		}
	}
	page := func(before string, limit int) core.DeadLetterPage {
		t.Helper()
		got, err := w.store.DeadLetters(t.Context(), core.DeadLetterScan{From: guardMoment + 1, To: guardMoment + 3, Before: before, Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	var ids string
	for before := ""; ; {
		got := page(before, 1)
		for _, letter := range got.Letters {
			ids += letter.ID
		}
		if before = got.Next; before == "" {
			break
		}
	}
	if ids != "dcb" {
		t.Errorf("listed %q one by one", ids)
	}
	if got := page("", 10); len(got.Letters) != 3 {
		t.Errorf("listed %d at once", len(got.Letters))
	}
	if got := page("999999999999999#z", 10); len(got.Letters) != 3 {
		t.Errorf("a position after the window lists %d", len(got.Letters))
	}
	before := core.DeadLetterScan{From: -5, To: -5, Limit: 10}
	if got, err := w.store.DeadLetters(t.Context(), before); err != nil || len(got.Letters) != 0 {
		t.Errorf("before all time: %+v, %v", got, err)
	}
}

// The due entry of an update of a role may be early, never late.
func TestAnUpdateOfARoleMovesItsDueEntryEarlierOnly(t *testing.T) {
	for _, test := range []struct {
		name           string
		has, due, want core.Instant
	}{
		{"none", 0, 5, 5}, {"later", 9, 5, 5}, {"the same", 5, 5, 5}, {"earlier", 3, 5, 3}, {"not asked for", 9, 0, 9},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			wire := w.guardRole(t, func(r *core.Role) { r.DueAt = test.has })
			outcome, err := w.store.UpdateRole(t.Context(), core.RoleUpdate{
				Wire: wire, Expected: core.RoleExpectation{Version: core.Some(int64(0))}, Due: test.due,
				Patch: core.RolePatch{LastTransition: guardMoment}, WriteStamp: guardStamp("update"),
			})
			if err != nil || !outcome.Done || outcome.Replayed || outcome.Role.DueAt != test.want {
				t.Errorf("%+v, %v", outcome, err)
			}
		})
	}
}
