package ddb_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"drawbridge/core"
)

// guardDelivery is a message from s in the inbox of a, unless it is changed.
func guardDelivery(change func(*core.Delivery)) core.Delivery {
	d := core.Delivery{Message: core.Message{
		ID: "m", Type: "status", From: "s", To: "a", Topic: "t", Priority: 5, TTL: time.Minute, CreatedAt: guardMoment, ExpiresAt: guardMoment + 1,
		CorrelationID: "c", TraceID: "tr", Payload: core.NewPayload([]byte("{}")),
	}, Inbox: "a", State: core.DeliveryPending}
	change(&d)
	return d
}

func (w *world) putDelivery(t *testing.T, d core.Delivery) {
	t.Helper()
	if outcome, err := w.store.PutMessage(t.Context(), core.Publication{Delivery: d, WriteStamp: guardStamp("put")}); err != nil || outcome.Replayed {
		t.Fatalf("not stored: %+v, %v", outcome, err)
	}
}

// ofDelivery is an attribute of guardDelivery.
func ofDelivery(name string) attribute { return attribute{"inbox#a", "m#m", name} }

func (w *world) change(c core.DeliveryChange, guard core.InboxGuard) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		outcomes, refusal, err := w.store.ChangeDeliveries(ctx, []core.DeliveryChange{c}, guard, guardStamp("change"))
		if err != nil {
			return false, err
		}
		if refusal.Refused() {
			return false, nil // the outcome's error says the same
		}
		return outcomes[0].Done, outcomes[0].Err
	}
}

func TestAPendingDeliveryIsTakenAsItWasSeenOnly(t *testing.T) {
	w := newWorld(t)
	seen := guardDelivery(func(*core.Delivery) {})
	w.putDelivery(t, seen)
	w.needs(t, []deviation{
		{"it is in no place of the inbox", ofDelivery("inbox_sk"), nil},
		{"it moved", ofDelivery("inbox_sk"), textValue("p5000000000000001#m")},
		{"it expires at this moment", ofDelivery("expires_ms"), momentValue(guardMoment)},
		{"it has expired", ofDelivery("expires_ms"), momentValue(guardMoment - 1)},
		{"it was handed out since", ofDelivery("deliveries"), numberValue(1)},
		{"it died since", ofDelivery("dead_letterings"), numberValue(1)},
	}, w.change(core.DeliveryChange{
		Inbox: "a", MessageID: "m", Seen: core.Some(seen), To: core.DeliveryHidden, VisibleAt: guardMoment + 9, Lease: "l", HandedOut: true,
	}, core.InboxGuard{}))
}

func TestADeliveryOnItsSecondLifeIsTakenAsItWasSeenOnly(t *testing.T) {
	w := newWorld(t)
	seen := guardDelivery(func(d *core.Delivery) { d.Deliveries, d.DeadLetterings = 2, 1 })
	w.putDelivery(t, seen)
	w.needs(t, []deviation{
		{"it was handed out since", ofDelivery("deliveries"), numberValue(3)},
		{"it died since", ofDelivery("dead_letterings"), numberValue(2)},
	}, w.change(core.DeliveryChange{
		Inbox: "a", MessageID: "m", Seen: core.Some(seen), To: core.DeliveryAcked,
	}, core.InboxGuard{}))
}

func TestAReceiptIsTheLatestOnly(t *testing.T) {
	w := newWorld(t)
	w.putDelivery(t, guardDelivery(func(d *core.Delivery) {
		d.State, d.VisibleAt, d.Receipt, d.Deliveries, d.MaxDeliveries = core.DeliveryHidden, guardMoment, "r", 1, 2
	}))
	w.needs(t, []deviation{
		{"another receipt", ofDelivery("receipt"), textValue("q")},
		{"no receipt", ofDelivery("receipt"), nil},
		{"the delivery is acknowledged", ofDelivery("inbox_sk"), nil},
		{"it expires at this moment", ofDelivery("expires_ms"), momentValue(guardMoment)},
		{"it has been handed out as often as it may be", ofDelivery("deliveries"), numberValue(2)},
		{"a lease holds it for another moment", ofDelivery("visible_ms"), momentValue(guardMoment + 1)},
	}, w.change(core.DeliveryChange{
		Inbox: "a", MessageID: "m", Receipt: core.Some("r"), Unleased: true, Unspent: true, To: core.DeliveryHidden, VisibleAt: guardMoment,
	}, core.InboxGuard{}))
}

func TestADeliveryWithoutALeaseOrALimitHasNeitherInItsWay(t *testing.T) {
	w := newWorld(t)
	w.putDelivery(t, guardDelivery(func(d *core.Delivery) { d.VisibleAt = guardMoment + 9 }))
	done, err := w.change(core.DeliveryChange{
		Inbox: "a", MessageID: "m", Unleased: true, Unspent: true, To: core.DeliveryAcked,
	}, core.InboxGuard{})(t.Context())
	if !done || err != nil {
		t.Errorf("refused: %v, %v", done, err)
	}
}

func TestAnInboxIsDrainedUnderItsGuardOnly(t *testing.T) {
	ack := core.DeliveryChange{Inbox: "a", MessageID: "m", To: core.DeliveryAcked}
	agent := core.AgentFence{AgentID: "a", Generation: 1}
	role := core.RoleAuthority{Wire: costRole.Wire(), Holder: "a", Epoch: 3, At: guardMoment}
	at := func(name string) attribute { return attribute{"role#" + costRole.Wire(), "role", name} }
	ofRole := []deviation{
		{"the role is not active", at("role_state"), textValue("probing")},
		{"another holds it", at("holder"), textValue("b")},
		{"another epoch", at("epoch"), numberValue(4)},
		{"its scope was closed", at("closed"), yesValue},
		{"its bound is at this moment", at("holder_lease_ms"), momentValue(guardMoment)},
	}
	for _, test := range []struct {
		name       string
		guard      core.InboxGuard
		deviations []deviation
	}{
		{"an agent", core.InboxGuard{Agent: core.Some(agent)}, ofAgent("a")},
		{"a role, without a generation", core.InboxGuard{Role: core.Some(role)}, append(ofLiveAgent("a")[1:], ofRole...)},
		{"a role and its agent", core.InboxGuard{Agent: core.Some(agent), Role: core.Some(role)}, ofLiveAgent("a", ofRole...)},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.onlineAgent(t, "a")
			w.guardRole(t, func(*core.Role) {})
			w.putDelivery(t, guardDelivery(func(*core.Delivery) {}))
			w.needs(t, test.deviations, w.change(ack, test.guard))
		})
	}
}

func TestTheLegacyRolesInboxIsItsLeadersOnly(t *testing.T) {
	w := newWorld(t)
	w.onlineAgent(t, "a")
	leads := core.LegacyState{Leader: "a", Epoch: 3, Source: "s", LastReason: "r"}
	if done, err := w.store.ReplaceLegacyRole(t.Context(), core.LegacyState{}, leads, guardStamp("leads")); err != nil || !done {
		t.Fatal(done, err)
	}
	w.putDelivery(t, guardDelivery(func(*core.Delivery) {}))
	at := func(name string) attribute { return attribute{"role#cto", "legacy", name} }
	w.needs(t, ofLiveAgent("a",
		deviation{"another leads", at("leader"), textValue("b")},
		deviation{"another epoch", at("epoch"), numberValue(4)},
	)[1:], w.change(core.DeliveryChange{Inbox: "a", MessageID: "m", To: core.DeliveryAcked},
		core.InboxGuard{Role: core.Some(core.RoleAuthority{Wire: core.LegacyWire, Holder: "a", Epoch: 3, At: guardMoment})}))
	w.needs(t, []deviation{{"another epoch than was seen", at("epoch"), numberValue(4)}}, func(ctx context.Context) (bool, error) {
		next := leads
		next.Leader, next.Epoch = "b", 4
		return w.store.ReplaceLegacyRole(ctx, leads, next, guardStamp("replaces"))
	})
	if done, err := w.store.ReplaceLegacyRole(t.Context(), core.LegacyState{}, leads, guardStamp("leads too")); err != nil || done {
		t.Errorf("a second first leader was stored: %v, %v", done, err)
	}
}

// deathNotice is what the sender of guardDelivery gets.
func deathNotice() core.Opt[core.Delivery] {
	return core.Some(guardDelivery(func(d *core.Delivery) { d.ID, d.To, d.Inbox = "notice", "s", "s" }))
}

func TestADeadLetterIsMadeOfWhatWasSeenOnly(t *testing.T) {
	for _, notice := range []core.Opt[core.Delivery]{{}, deathNotice()} {
		name := fmt.Sprintf("with a notice %v: ", notice.Set)
		t.Run(name+"unmoved", func(t *testing.T) {
			w := newWorld(t)
			seen := guardDelivery(func(d *core.Delivery) { d.Deliveries = 2 })
			w.putDelivery(t, seen)
			w.needs(t, []deviation{
				{"it moved", ofDelivery("inbox_sk"), textValue("p5000000000000001#m")},
				{"it is acknowledged", ofDelivery("inbox_sk"), nil},
				{"it was handed out since", ofDelivery("deliveries"), numberValue(3)},
				{"it died since", ofDelivery("dead_letterings"), numberValue(1)},
			}, func(ctx context.Context) (bool, error) {
				return w.store.DeadLetter(ctx, core.DeadLettering{Seen: seen, Reason: "max_deliveries", Unmoved: true, Notice: notice, WriteStamp: guardStamp("dies")})
			})
		})
		t.Run(name+"expired", func(t *testing.T) {
			w := newWorld(t)
			seen := guardDelivery(func(d *core.Delivery) { d.ExpiresAt, d.DeadLetterings = guardMoment, 1 })
			w.putDelivery(t, seen)
			w.needs(t, []deviation{
				{"it is acknowledged", ofDelivery("delivery_state"), textValue("acked")},
				{"it has another moment", ofDelivery("expires_ms"), momentValue(guardMoment + 1)},
				{"it died since", ofDelivery("dead_letterings"), numberValue(2)},
				{"it never died", ofDelivery("dead_letterings"), nil},
			}, func(ctx context.Context) (bool, error) {
				return w.store.DeadLetter(ctx, core.DeadLettering{Seen: seen, Reason: "expired", Notice: notice, WriteStamp: guardStamp("dies")})
			})
		})
	}
}

func TestALetterIsRedrivenFromItsLatestDeathOnly(t *testing.T) {
	w := newWorld(t)
	dead := guardDelivery(func(d *core.Delivery) {
		d.State, d.DeadLetterings, d.FailedAt, d.Reason = core.DeliveryDead, 2, guardMoment, "expired"
	})
	w.putDelivery(t, dead)
	w.needs(t, []deviation{
		{"it is pending", ofDelivery("delivery_state"), textValue("pending")},
		{"it died since", ofDelivery("dead_letterings"), numberValue(3)},
	}, func(ctx context.Context) (bool, error) {
		return w.store.Requeue(ctx, core.Redrive{Seen: dead, ExpiresAt: guardMoment.Add(time.Minute), WriteStamp: guardStamp("redrive")})
	})
}

func TestAMessageIsPutUnderItsConditionsOnly(t *testing.T) {
	online := func(id string) []deviation { return ofLiveAgent(id)[2:] }
	fence := func(id string) core.Opt[core.AgentFence] {
		return core.Some(core.AgentFence{AgentID: id, Generation: 1})
	}
	for _, test := range []struct {
		name       string
		fence      core.Opt[core.AgentFence]
		online     bool
		deviations []deviation
	}{
		{"the sender's fence", fence("s"), false, ofAgent("s")},
		{"the recipient's presence", core.Opt[core.AgentFence]{}, true, []deviation{online("a")[0], online("a")[2]}},
		{"both", fence("s"), true, append(ofAgent("s"), online("a")[0], online("a")[2])},
		{"both, of one agent", fence("a"), true, append(ofAgent("a"), online("a")[0], online("a")[2])},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.onlineAgent(t, "s")
			w.onlineAgent(t, "a")
			it := w.stored(t, "agent#a", "agent")
			it["lease_ms"] = momentValue(guardMoment) // its last moment
			w.restore(t, it)
			w.needs(t, test.deviations, func(ctx context.Context) (bool, error) {
				outcome, err := w.store.PutMessage(ctx, core.Publication{
					Delivery: guardDelivery(func(*core.Delivery) {}), Fence: test.fence, Online: test.online, WriteStamp: guardStamp("put"),
				})
				return !outcome.Offline && !outcome.Stale.Set, err
			})
		})
	}
}

func TestAStoredAnswerIsTheFirstUntilItExpires(t *testing.T) {
	w := newWorld(t)
	answer := func(id string, expires core.Instant) core.Publication {
		return core.Publication{
			Delivery:   guardDelivery(func(d *core.Delivery) { d.ID, d.ExpiresAt = id, expires }),
			Once:       core.Some(core.IdempotencyRecord{ID: "key", BodyHash: "h", Answer: []byte(`"` + id + `"`), ExpiresAt: expires}),
			WriteStamp: guardStamp(id),
		}
	}
	for _, step := range []struct {
		id       string
		stands   core.Instant // when the stored answer expires
		repeated bool
	}{
		{"first", 0, false}, {"second", guardMoment + 1, true}, {"third", guardMoment, false}, {"fourth", guardMoment - 1, false},
	} {
		if step.stands != 0 {
			it := w.stored(t, "idem#key", "record")
			it["expires_ms"] = momentValue(step.stands)
			w.restore(t, it)
		}
		outcome, err := w.store.PutMessage(t.Context(), answer(step.id, guardMoment.Add(time.Hour)))
		if err != nil || outcome.Repeated.Set != step.repeated {
			t.Errorf("%s: %+v, %v", step.id, outcome, err)
		}
	}
}

func TestTheAnswerToAQuestionIsTheFirstUntilItExpires(t *testing.T) {
	w := newWorld(t)
	for _, step := range []struct {
		id, answers string
		stands      core.Instant
	}{
		{"first", "first", 0}, {"second", "first", guardMoment + 1}, {"third", "third", guardMoment}, {"fourth", "fourth", guardMoment - 1},
	} {
		if step.stands != 0 {
			it := w.stored(t, "answer#c", "answer")
			it["expires_ms"] = momentValue(step.stands)
			w.restore(t, it)
		}
		_, err := w.store.PutMessage(t.Context(), core.Publication{
			Delivery: guardDelivery(func(d *core.Delivery) { d.ID, d.ExpiresAt = step.id, guardMoment+9 }), Answer: true, WriteStamp: guardStamp(step.id),
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, found, err := w.store.ReadAnswer(t.Context(), "c", guardMoment); err != nil || !found || got.MessageID != step.answers {
			t.Errorf("after %s the answer is %+v, %v, %v", step.id, got, found, err)
		}
	}
	for at, want := range map[core.Instant]bool{guardMoment + 8: true, guardMoment + 9: false} {
		if _, found, err := w.store.ReadAnswer(t.Context(), "c", at); err != nil || found != want {
			t.Errorf("at %d the answer is there: %v, %v", at-guardMoment, found, err)
		}
	}
}

func TestAFanoutReplacesNoDeliveryAndEndsOnce(t *testing.T) {
	w := newWorld(t)
	record := guardDelivery(func(d *core.Delivery) {
		d.To, d.Inbox, d.State, d.VisibleAt, d.Recipients = "t", "", core.DeliveryFanning, guardMoment, []string{"a"}
	})
	w.putDelivery(t, record)
	if err := w.store.Deliver(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	if done, err := w.change(core.DeliveryChange{Inbox: "a", MessageID: "m", To: core.DeliveryAcked}, core.InboxGuard{})(t.Context()); err != nil || !done {
		t.Fatal(done, err)
	}
	acked := w.stored(t, "inbox#a", "m#m")
	if err := w.store.Deliver(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	if again := w.stored(t, "inbox#a", "m#m"); !reflect.DeepEqual(again, acked) {
		t.Errorf("the acknowledged delivery was replaced: %v", again)
	}
	if err := w.store.FinishFanout(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	// What became of the record since stays: it was dead-lettered and redriven.
	it := w.stored(t, "fanout#m", "record")
	it["delivery_state"] = textValue("dead")
	w.restore(t, it)
	if err := w.store.FinishFanout(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	if after := w.stored(t, "fanout#m", "record"); !reflect.DeepEqual(after, it) {
		t.Errorf("a late end of the fan-out left %v", after)
	}
}

func TestAFollowersEntryIsForgottenAsItWasSeenOnly(t *testing.T) {
	w := newWorld(t)
	if _, err := w.store.RegisterAgent(t.Context(), core.AgentRegistration{
		AgentID: "a", CLI: "claude", Metadata: []byte("{}"), Topics: []string{"t"}, LeaseExpires: guardMoment.Add(time.Minute), WriteStamp: guardStamp("registers"),
	}); err != nil {
		t.Fatal(err)
	}
	followers := func() []core.Follower {
		found, err := w.store.Followers(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	seen := followers()
	earlier := []core.Follower{{AgentID: "a", WrittenAt: guardMoment - 1}}
	for _, step := range []struct {
		entries []core.Follower
		left    int
	}{{earlier, 1}, {seen, 0}} {
		if err := w.store.ForgetFollowers(t.Context(), "t", step.entries); err != nil {
			t.Fatal(err)
		}
		if left := followers(); len(left) != step.left {
			t.Errorf("after forgetting %+v: %+v", step.entries, left)
		}
	}
}
