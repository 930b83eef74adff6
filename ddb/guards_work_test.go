package ddb_test

import (
	"context"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
	"drawbridge/ddb"
)

func guardEntry() core.ReflexionEntry {
	return core.ReflexionEntry{
		Key: core.ReflexionKey{Pattern: "p", Variant: "v"}, Born: "b", Type: core.ReflexionLearnt, Pattern: "p", Message: "m", Context: []byte("{}"),
		Solution: "s", Hits: 3, Successes: 1, CreatedAt: guardMoment, UpdatedAt: guardMoment, DueAt: guardMoment.Add(time.Hour),
	}
}

// createEntry stores guardEntry.
func (w *world) createEntry(t *testing.T) core.ReflexionEntry {
	t.Helper()
	e := guardEntry()
	written, err := w.store.CreateReflexion(t.Context(), core.ReflexionCreation{Entry: e, WriteStamp: guardStamp("b")})
	if err != nil || !written.Done {
		t.Fatalf("not created: %+v, %v", written, err)
	}
	return e
}

func ofEntry(name string) attribute { return attribute{"reflexion#p", "v", name} }

func changedEntry() []deviation {
	return []deviation{
		{"another was born there", ofEntry("born"), textValue("c")},
		{"it was hit since", ofEntry("hits"), numberValue(4)},
		{"it decayed since", ofEntry("updated_ms"), momentValue(guardMoment + 1)},
	}
}

func TestAnEntryIsChangedRemovedAndReplacedAsItWasSeenOnly(t *testing.T) {
	for name, write := range map[string]func(*world, core.ReflexionEntry) func(context.Context) (bool, error){
		"changed": func(w *world, seen core.ReflexionEntry) func(context.Context) (bool, error) {
			return func(ctx context.Context) (bool, error) {
				next := seen
				next.Hits++
				written, err := w.store.ChangeReflexion(ctx, core.ReflexionChange{Seen: seen, Next: next, WriteStamp: guardStamp("change")})
				return written.Done, err
			}
		},
		"removed": func(w *world, seen core.ReflexionEntry) func(context.Context) (bool, error) {
			return func(ctx context.Context) (bool, error) { return w.store.RemoveReflexion(ctx, seen) }
		},
		"replaced": func(w *world, seen core.ReflexionEntry) func(context.Context) (bool, error) {
			return func(ctx context.Context) (bool, error) {
				next := seen
				next.Born = "another"
				written, err := w.store.CreateReflexion(ctx, core.ReflexionCreation{Entry: next, Replaces: core.Some(seen), WriteStamp: guardStamp("another")})
				return written.Done, err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			seen := w.createEntry(t)
			w.needs(t, changedEntry(), write(w, seen))
		})
	}
}

func TestAnEntryThatIsGoneIsReplacedAllTheSame(t *testing.T) {
	w := newWorld(t)
	seen := guardEntry()
	next := seen
	next.Born = "another"
	written, err := w.store.CreateReflexion(t.Context(), core.ReflexionCreation{Entry: next, Replaces: core.Some(seen), WriteStamp: guardStamp("another")})
	if err != nil || !written.Done || written.Replayed {
		t.Errorf("got %+v, %v", written, err)
	}
}

// hitsOf makes a set as the entry remembers hits: n ids that belong to nobody.
func hitsOf(n int) types.AttributeValue {
	set := &types.AttributeValueMemberBS{}
	for i := range n {
		set.Value = append(set.Value, []byte("none-"+strconv.Itoa(100+i)))
	}
	return set
}

func TestAHitIsCountedForTheEntryThatIsMeantOnly(t *testing.T) {
	w := newWorld(t)
	w.createEntry(t)
	w.needs(t, []deviation{
		{"another was born there", ofEntry("born"), textValue("c")},
		{"time has passed over it", ofEntry("updated_ms"), momentValue(guardMoment - 1)},
		{"it remembers as many hits as it may", ofEntry("recent"), hitsOf(32)},
	}, func(ctx context.Context) (bool, error) {
		written, err := w.store.HitReflexion(ctx, core.ReflexionHit{
			Key: guardEntry().Key, Born: "b", FreshAfter: guardMoment - 1, Due: guardMoment, WriteStamp: guardStamp("hit"),
		})
		return written.Done, err
	})
}

// A hit is one hit however often it is sent: while it is among the latest, and
// after it moved to the earlier ones.
func TestAHitIsCountedOnceWhereverItIsRemembered(t *testing.T) {
	w := newWorld(t)
	seen := w.createEntry(t)
	hit := core.ReflexionHit{Key: seen.Key, Born: "b", FreshAfter: guardMoment - 1, Due: guardMoment, WriteStamp: guardStamp("hit")}
	moved := func(id string) core.ReflexionWrite {
		t.Helper()
		entries, _, err := w.store.ReadPattern(t.Context(), "p", 1)
		if err != nil {
			t.Fatal(err)
		}
		next := entries[0]
		next.Hits++
		written, err := w.store.ChangeReflexion(t.Context(), core.ReflexionChange{Seen: entries[0], Next: next, Counts: true, WriteStamp: guardStamp(id)})
		if err != nil {
			t.Fatal(err)
		}
		return written
	}
	again := func(where string) {
		t.Helper()
		if written, err := w.store.HitReflexion(t.Context(), hit); err != nil || !written.Replayed || written.Entry.Hits != hits(t, w) {
			t.Errorf("the hit sent again, %s: %+v, %v", where, written, err)
		}
		if written := moved("hit"); !written.Replayed {
			t.Errorf("the hit sent again as a change, %s: %+v", where, written)
		}
	}
	if written, err := w.store.HitReflexion(t.Context(), hit); err != nil || !written.Done || written.Replayed {
		t.Fatalf("the first hit: %+v, %v", written, err)
	}
	again("among the latest")
	if written := moved("the sets move on"); !written.Done || written.Replayed {
		t.Fatalf("the sets did not move: %+v", written)
	}
	again("among the earlier")
	if got := hits(t, w); got != seen.Hits+2 {
		t.Errorf("counted %d hits, want 2", got-seen.Hits)
	}
}

func hits(t *testing.T, w *world) int64 {
	t.Helper()
	entries, _, err := w.store.ReadPattern(t.Context(), "p", 1)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%+v, %v", entries, err)
	}
	return entries[0].Hits
}

func TestWhatIsLearntIsWrittenUnderTheFenceOnly(t *testing.T) {
	fence := core.Some(core.AgentFence{AgentID: "a", Generation: 1})
	t.Run("created", func(t *testing.T) {
		w := newWorld(t)
		w.onlineAgent(t, "a")
		w.needs(t, ofAgent("a"), func(ctx context.Context) (bool, error) {
			written, err := w.store.CreateReflexion(ctx, core.ReflexionCreation{Entry: guardEntry(), Fence: fence, WriteStamp: guardStamp("b")})
			return written.Done, err
		})
		if written, err := w.store.CreateReflexion(t.Context(), core.ReflexionCreation{Entry: func() core.ReflexionEntry {
			e := guardEntry()
			e.Born = "another"
			return e
		}(), Fence: fence, WriteStamp: guardStamp("another")}); err != nil || written.Done || written.Entry.Born != "b" {
			t.Errorf("an entry was replaced: %+v, %v", written, err)
		}
	})
	t.Run("hit", func(t *testing.T) {
		w := newWorld(t)
		w.onlineAgent(t, "a")
		w.createEntry(t)
		w.needs(t, append(ofAgent("a"), deviation{"another was born there", ofEntry("born"), textValue("c")}), func(ctx context.Context) (bool, error) {
			written, err := w.store.HitReflexion(ctx, core.ReflexionHit{
				Key: guardEntry().Key, Born: "b", FreshAfter: guardMoment - 1, Due: guardMoment, Fence: fence, WriteStamp: guardStamp("hit"),
			})
			return written.Done, err
		})
	})
}

func guardRequest(change func(*core.HumanRequest)) core.HumanRequest {
	r := core.HumanRequest{
		ID: "h", Requester: "a", Kind: "text", Prompt: "?", Schema: []byte("{}"), State: core.HumanPending, Deadline: guardMoment.Add(time.Minute),
		DefaultAction: "none", CorrelationID: "c", TraceID: "tr", CreatedAt: guardMoment, Version: 1,
	}
	change(&r)
	return r
}

func TestARequestIsSavedAfterTheVersionBeforeItAndUnderItsFence(t *testing.T) {
	fence := core.Some(core.AgentFence{AgentID: "a", Generation: 1})
	save := func(w *world, r core.HumanRequest, id string) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			saved, err := w.store.SaveHumanRequest(ctx, core.HumanChange{Request: r, Announcement: core.Announcement{Fence: fence, WriteStamp: guardStamp(id)}})
			return saved.Done, err
		}
	}
	w := newWorld(t)
	w.onlineAgent(t, "a")
	w.needs(t, ofAgent("a"), save(w, guardRequest(func(*core.HumanRequest) {}), "first"))
	if done, err := save(w, guardRequest(func(*core.HumanRequest) {}), "another first")(t.Context()); err != nil || done {
		t.Errorf("the first version was replaced: %v, %v", done, err)
	}
	w.needs(t, append(ofAgent("a"), deviation{"another version", attribute{"human#h", "request", "version"}, numberValue(2)}),
		save(w, guardRequest(func(r *core.HumanRequest) { r.Version, r.Prompt = 2, "??" }), "second"))
	for _, fenced := range []bool{true, false} {
		late := core.HumanChange{
			Request:      guardRequest(func(r *core.HumanRequest) { r.Version = 2 }),
			Announcement: core.Announcement{WriteStamp: guardStamp("late")},
		}
		if late.Fence = (core.Opt[core.AgentFence]{}); fenced {
			late.Fence = fence
		}
		if saved, err := w.store.SaveHumanRequest(t.Context(), late); err != nil || saved.Done {
			t.Errorf("fenced %v: an earlier version was saved: %+v, %v", fenced, saved, err)
		}
	}
}

// The time to live only collects garbage: it may never come before the end that
// an item has to outlast, which is in milliseconds where it is in seconds.
func TestNothingIsCollectedBeforeItsTime(t *testing.T) {
	w := newWorld(t)
	end := guardMoment + 999
	if err := w.store.KeepMessages(ddb.Messages{Retention: core.MinMessageRetention}); err != nil {
		t.Fatal(err)
	}
	w.onlineAgent(t, "a")
	_, err := w.store.PutMessage(t.Context(), core.Publication{
		Delivery: guardDelivery(func(d *core.Delivery) { d.ExpiresAt = end }), Answer: true,
		Once:       core.Some(core.IdempotencyRecord{ID: "key", BodyHash: "h", Answer: []byte("{}"), ExpiresAt: end}),
		WriteStamp: guardStamp("put"),
	})
	if err != nil {
		t.Fatal(err)
	}
	acks := core.WriteStamp{WriteID: "ack", Started: (guardMoment - 1).Time()} // at ….999 s
	if _, _, err := w.store.ChangeDeliveries(t.Context(), []core.DeliveryChange{{Inbox: "a", MessageID: "m", To: core.DeliveryAcked}}, core.InboxGuard{}, acks); err != nil {
		t.Fatal(err)
	}
	job := core.Job{
		ID: "j", Supervisor: "s", Worker: "w", Topic: "t", Content: core.NewPayload([]byte("{}")), Outcome: core.NewPayload([]byte("{}")), Status: core.JobSucceeded,
		Attempt: 1, TraceID: "tr", CorrelationID: "c", CreatedAt: guardMoment, UpdatedAt: end, CompletedAt: end, Events: 1, Version: 1,
	}
	saved, err := w.store.SaveJob(t.Context(), core.JobChange{
		Job: job, Events: []core.JobEvent{{Seq: 1, At: end, Job: job}}, Announcement: core.Announcement{WriteStamp: guardStamp("job")},
	})
	if err != nil || !saved.Done {
		t.Fatalf("%+v, %v", saved, err)
	}
	request := guardRequest(func(r *core.HumanRequest) { r.State, r.ResolvedAt = core.HumanAccepted, end })
	if saved, err := w.store.SaveHumanRequest(t.Context(), core.HumanChange{Request: request, Announcement: core.Announcement{WriteStamp: guardStamp("r")}}); err != nil || !saved.Done {
		t.Fatalf("%+v, %v", saved, err)
	}
	token := core.Token{Hash: "hash", Scopes: []core.Scope{core.ScopeRead}, CreatedAt: guardMoment, ExpiresAt: end}
	if _, err := w.store.CreateToken(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	for _, item := range []struct {
		pk, sk string
		until  core.Instant
	}{
		{"idem#key", "record", end},
		{"answer#c", "answer", end},
		{"inbox#a", "m#m", core.InstantOf(acks.Started).Add(core.MinMessageRetention)},
		{"job#j", "job", end.Add(core.JobRetention)},
		{"events#j", "0000000001", end.Add(core.JobRetention)},
		{"human#h", "request", end.Add(core.JobRetention)},
		{"token#hash", "token", end.Add(core.TokenRetention)},
	} {
		ttl, is := w.stored(t, item.pk, item.sk)["ttl"].(*types.AttributeValueMemberN)
		if !is {
			t.Errorf("%s is never collected", item.pk)
			continue
		}
		seconds, err := strconv.ParseInt(ttl.Value, 10, 64)
		if collected := core.Instant(seconds * 1000); err != nil || collected < item.until || collected > item.until+1000 {
			t.Errorf("%s is collected %d ms after its end, %v", item.pk, collected-item.until, err)
		}
	}
}

func TestMessagesAreKeptForADayAtLeast(t *testing.T) {
	w := newWorld(t)
	for kept, want := range map[time.Duration]bool{core.MinMessageRetention: true, core.MinMessageRetention - 1: false, 0: true} {
		if err := w.store.KeepMessages(ddb.Messages{Retention: kept}); (err == nil) != want {
			t.Errorf("%v: %v", kept, err)
		}
	}
}

func TestTheIdentityIsMadeOnceAndReplacedAsItWasSeenOnly(t *testing.T) {
	w := newWorld(t)
	record := func(id string) core.IdentityRecord {
		return core.IdentityRecord{HubInstanceID: id, CreatedAt: guardMoment, Reason: "r"}
	}
	for _, id := range []string{"first", "second"} {
		if stands, err := w.store.CreateIdentity(t.Context(), record(id)); err != nil || stands.HubInstanceID != "first" {
			t.Fatalf("making %s the identity is %+v, %v", id, stands, err)
		}
	}
	w.needs(t, []deviation{{"another replaced it", attribute{"hub", "identity", "hub_instance_id"}, textValue("other")}},
		func(ctx context.Context) (bool, error) { return w.store.ReplaceIdentity(ctx, "first", record("third")) })
}

func TestAnEventIsMarkedRelayedOnceAndOnlyIfItIsThere(t *testing.T) {
	w := newWorld(t)
	w.store.RelayEvents()
	job := core.Job{
		ID: "j", Supervisor: "s", Worker: "w", Topic: "t", Content: core.NewPayload([]byte("{}")), Outcome: core.NewPayload([]byte("{}")), Status: core.JobRunning,
		Attempt: 1, TraceID: "tr", CorrelationID: "c", CreatedAt: guardMoment, UpdatedAt: guardMoment, Events: 1, Version: 1,
	}
	event := core.JobEvent{Seq: 1, At: guardMoment, Job: job}
	if saved, err := w.store.SaveJob(t.Context(), core.JobChange{Job: job, Events: []core.JobEvent{event}, Announcement: core.Announcement{WriteStamp: guardStamp("job")}}); err != nil || !saved.Done {
		t.Fatalf("%+v, %v", saved, err)
	}
	unrelayed := func(id string) int {
		t.Helper()
		events, err := w.store.UnrelayedEvents(t.Context(), id, 10)
		if err != nil {
			t.Fatal(err)
		}
		return len(events)
	}
	if unrelayed("j") != 1 {
		t.Fatal("the event waits nowhere")
	}
	gone := event
	gone.Job.ID = "gone"
	for range 2 {
		for _, e := range []core.JobEvent{event, gone} {
			if err := w.store.MarkRelayed(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
	}
	if unrelayed("j") != 0 {
		t.Error("the event still waits")
	}
	if events, err := w.store.ReadJobEvents(t.Context(), "gone", 0, 10); err != nil || len(events) != 0 {
		t.Errorf("marking made an event: %+v, %v", events, err)
	}
}

func TestAPipelineIsWrittenAfterTheVersionBeforeItOnly(t *testing.T) {
	w := newWorld(t)
	write := func(version int64) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			return w.store.WritePipeline(ctx, core.Pipeline{Team: "t", Phase: "plan", CreatedAt: guardMoment, UpdatedAt: guardMoment, Version: version})
		}
	}
	for _, step := range []struct {
		version int64
		done    bool
	}{{2, false}, {1, true}, {1, false}, {3, false}, {2, true}, {2, false}} {
		before := w.stored(t, "pipeline#t", "pipeline")
		done, err := write(step.version)(t.Context())
		if err != nil || done != step.done {
			t.Errorf("version %d: %v, %v", step.version, done, err)
		}
		if after := w.stored(t, "pipeline#t", "pipeline"); !done && !reflect.DeepEqual(before, after) {
			t.Errorf("version %d was refused and left %v", step.version, after)
		}
	}
}

func TestATokenEndsOnceAndNoLaterThanItDid(t *testing.T) {
	w := newWorld(t)
	token := core.Token{Hash: "hash", Scopes: []core.Scope{core.ScopeRead}, CreatedAt: guardMoment}
	if created, err := w.store.CreateToken(t.Context(), token); err != nil || !created {
		t.Fatal(created, err)
	}
	expire := func(at core.Instant) (core.Token, bool, error) { return w.store.ExpireToken(t.Context(), token, at) }
	for _, step := range []struct{ at, want core.Instant }{{guardMoment + 9, guardMoment + 9}, {guardMoment + 10, guardMoment + 9}, {guardMoment + 8, guardMoment + 8}} {
		if got, found, err := expire(step.at); err != nil || !found || got.ExpiresAt != step.want {
			t.Errorf("expiring at %d: %+v, %v, %v", step.at-guardMoment, got, found, err)
		}
	}
	for _, at := range []core.Instant{guardMoment + 1, guardMoment + 2} {
		if got, found, err := w.store.RevokeToken(t.Context(), token, at); err != nil || !found || got.RevokedAt != guardMoment+1 {
			t.Errorf("revoking at %d: %+v, %v, %v", at-guardMoment, got, found, err)
		}
	}
	if got, _, err := expire(guardMoment + 3); err != nil || got.ExpiresAt != guardMoment+8 {
		t.Errorf("a revoked token was changed: %+v, %v", got, err)
	}
	unknown := core.Token{Hash: "other"}
	if _, found, err := w.store.RevokeToken(t.Context(), unknown, guardMoment); err != nil || found || w.stored(t, "token#other", "token") != nil {
		t.Errorf("revoking made a token: %v, %v", found, err)
	}
}
