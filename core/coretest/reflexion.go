package coretest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"drawbridge/core"
)

// SharedStore is what reflexion and pipelines need of an adapter.
type SharedStore interface {
	core.ReflexionStore
	core.PipelineStore
	core.PresenceStore
	core.IdentityStore
	core.SweepStore
}

// SharedHarness is an empty store and a network under it that loses answers.
type SharedHarness struct {
	Store SharedStore
	// LoseNextWrite has the next write carried out and its answer lost, so that
	// the adapter sends it again. stop disarms it.
	LoseNextWrite func() (stop func())
}

// sharedBench is a hub over the store under test.
type sharedBench struct {
	SharedHarness
	t     *testing.T
	clock *Clock
	hub   *core.Hub
	// beforeRemove runs once, between a sweep's read and its deletion.
	beforeRemove func()
}

func newSharedBench(t *testing.T, h SharedHarness) *sharedBench {
	b := &sharedBench{SharedHarness: h, t: t, clock: NewClock()}
	b.hub = core.New(Ticks(core.Config{
		Presence: h.Store, Identity: h.Store, Sweeps: h.Store, Messages: noMessages{}, Roles: noRoles{}, Reflexion: removeTap{h.Store, b}, Pipelines: h.Store,
		Clock: b.clock, IDs: core.NewIDs(b.clock, rand.Reader),
	}))
	if _, err := b.hub.Identity(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

type removeTap struct {
	core.ReflexionStore
	bench *sharedBench
}

func (p removeTap) RemoveReflexion(ctx context.Context, seen core.ReflexionEntry) (bool, error) {
	if act := p.bench.beforeRemove; act != nil {
		p.bench.beforeRemove = nil
		act()
	}
	return p.ReflexionStore.RemoveReflexion(ctx, seen)
}

const day = 24 * time.Hour

func fix(message string) core.LearnRequest {
	return core.LearnRequest{Message: message, Solution: "do it"}
}

func (b *sharedBench) learn(r core.LearnRequest) core.Learnt {
	b.t.Helper()
	learnt, err := b.hub.Learn(b.t.Context(), r)
	b.must(err)
	return learnt
}

func (b *sharedBench) hit(id string, success bool) core.ReflexionView {
	b.t.Helper()
	done, err := b.hub.Hit(b.t.Context(), core.HitRequest{ID: id, Success: success})
	b.must(err)
	return done.Entry
}

func (b *sharedBench) hitCode(id string) core.Code {
	_, err := b.hub.Hit(b.t.Context(), core.HitRequest{ID: id})
	return core.CodeOf(err)
}

func (b *sharedBench) lookup(message, filter string) core.Lookup {
	b.t.Helper()
	found, err := b.hub.Lookup(b.t.Context(), core.LookupRequest{Message: core.Some(message), Context: json.RawMessage(filter)})
	b.must(err)
	return found
}

func (b *sharedBench) sweep(want core.ReflexionSweep) {
	b.t.Helper()
	got, err := b.hub.SweepReflexion(b.t.Context())
	b.must(err)
	if got != want {
		b.t.Fatalf("the sweep did %+v, want %+v", got, want)
	}
}

func (b *sharedBench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *sharedBench) wantEntry(e core.ReflexionView, hits, successes int64, confidence float64) {
	b.t.Helper()
	if diff := e.Confidence - confidence; e.Hits != hits || e.Successes != successes || diff > 1e-9 || diff < -1e-9 {
		b.t.Fatalf("entry has %d hits, %d successes, confidence %g; want %d, %d, %g", e.Hits, e.Successes, e.Confidence, hits, successes, confidence)
	}
}

// race runs an operation n times at once.
func (b *sharedBench) race(n int, operation func(i int) error) []error {
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { errs[i] = operation(i) })
	}
	wait.Wait()
	return errs
}

// RunReflexion checks an adapter. open returns a harness over a new, empty
// store.
func RunReflexion(t *testing.T, open func(t *testing.T) SharedHarness) {
	for _, test := range []struct {
		name string
		run  func(*sharedBench)
	}{
		{"confidence follows the contract's formula", reflexionConfidence},
		{"a fix is found by another occurrence of its error, with who told it and when", reflexionProvenance},
		{"each context has its own entry, and a lookup sees those that agree", reflexionContexts},
		{"without an exact match patterns that contain the text are found", reflexionFallback},
		{"learners at once make one entry and lose no hit", reflexionLearnRace},
		{"hits at once are all counted", reflexionHitRace},
		{"answers that get lost count once", reflexionLostAnswers},
		{"a fix that did not help is forgotten by the clock, swept or not", reflexionForgotten},
		{"a sweep deletes what is forgotten and leaves the rest alone", reflexionSweep},
		{"a sweep that meets a fresh hit or a new entry leaves it", reflexionSweepRace},
		{"an adaptive rule gains, decays and ends", reflexionAdaptive},
		{"a stale generation teaches nothing", reflexionFence},
		{"every entry is on one page, newest first", reflexionList},
		{"bad input is refused by field and stores nothing", reflexionBadInput},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(newSharedBench(t, open(t))) })
	}
}

func reflexionConfidence(b *sharedBench) {
	e := b.learn(fix("boom")).Entry
	b.wantEntry(e, 1, 0, 0.5)
	b.wantEntry(b.hit(e.ID(), true), 2, 1, 0.5)
	for range 8 {
		e = b.hit(e.ID(), true)
	}
	b.wantEntry(e, 10, 9, 0.9)
	b.wantEntry(b.hit(e.ID(), false), 11, 9, 9.0/11)
	r := fix("worked at once")
	r.Success = true
	b.wantEntry(b.learn(r).Entry, 2, 1, 0.5)
}

func reflexionProvenance(b *sharedBench) {
	ctx := b.t.Context()
	for range 2 {
		_, err := b.hub.Register(ctx, core.RegisterRequest{AgentID: "a", CLI: "claude"})
		b.must(err)
	}
	r := fix("ENOENT: /home/a/main.go:12 missing")
	r.AgentID, r.Code = "a", "touch main.go"
	learnt := b.learn(r)
	if !learnt.Created || learnt.Entry.LearntBy != "a" || learnt.Entry.LearntGeneration != 2 || learnt.Entry.CreatedAt != core.InstantOf(b.clock.Now()) {
		b.t.Fatalf("learnt %+v", learnt)
	}
	found := b.lookup("enoent: /srv/b/other.go:7 missing", "")
	if len(found.Entries) != 1 || found.Entries[0].ID() != learnt.Entry.ID() || found.Entries[0].Code != r.Code || found.Truncated {
		b.t.Fatalf("found %+v", found)
	}
	again := fix("ENOENT: /x/y:1 missing")
	again.Solution = "something else"
	second := b.learn(again)
	if second.Created || second.Entry.Solution != "do it" || second.Entry.LearntBy != "a" || second.Entry.Hits != 2 {
		b.t.Fatalf("learnt again %+v", second)
	}
}

func reflexionContexts(b *sharedBench) {
	learn := func(context string) core.Learnt {
		r := fix("boom")
		r.Context = json.RawMessage(context)
		return b.learn(r)
	}
	a, z := learn(`{"os":"linux","n":1}`), learn(`{"os":"windows"}`)
	if !a.Created || !z.Created {
		b.t.Fatal("two contexts share an entry")
	}
	if again := learn(`{"n":1.0,"os":"linux"}`); again.Created || again.Entry.ID() != a.Entry.ID() {
		b.t.Fatalf("an equal context makes an entry: %+v", again)
	}
	b.hit(z.Entry.ID(), true)
	if any := learn(`{}`); any.Created || any.Entry.ID() != z.Entry.ID() {
		b.t.Fatalf("no context takes %+v, want the best entry", any)
	}
	for _, test := range []struct {
		filter string
		want   []string
	}{
		{"", []string{z.Entry.ID(), a.Entry.ID()}},
		{`{"os":"linux"}`, []string{a.Entry.ID()}},
		{`{"os":null,"n":1}`, []string{a.Entry.ID()}},
		{`{"os":"windows","n":1}`, nil},
		{`{"os":["linux"]}`, nil},
	} {
		var got []string
		for _, e := range b.lookup("boom", test.filter).Entries {
			got = append(got, e.ID())
		}
		if !slices.Equal(got, test.want) {
			b.t.Errorf("filter %s finds %v, want %v", test.filter, got, test.want)
		}
	}
}

func reflexionFallback(b *sharedBench) {
	for i := range 12 {
		e := b.learn(fix(fmt.Sprintf("step %c: 50%%_off 连接失败 again", 'a'+i))).Entry
		for range i % 3 {
			b.hit(e.ID(), true)
		}
	}
	b.learn(fix("step z: 50x off"))
	found := b.lookup("50%_OFF 连接失败", "")
	if len(found.Entries) != core.DefaultLookupLimit || !found.Truncated {
		b.t.Fatalf("found %d entries, cut %t", len(found.Entries), found.Truncated)
	}
	for i, e := range found.Entries[1:] {
		if e.Confidence > found.Entries[i].Confidence {
			b.t.Fatalf("entry %d is better than the one before it", i+1)
		}
	}
	if found := b.lookup("50%_off nothing of the kind", ""); len(found.Entries) != 0 || found.Truncated {
		b.t.Fatalf("found %+v", found)
	}
	if found := b.lookup("step z", `{"os":"linux"}`); len(found.Entries) != 0 {
		b.t.Fatalf("another context finds %+v", found)
	}
	if found := b.lookup(" \n", ""); len(found.Entries) != 0 {
		b.t.Fatalf("blanks find %+v", found)
	}
}

func reflexionLearnRace(b *sharedBench) {
	const learners = 32
	learnt := make([]core.Learnt, learners)
	errs := b.race(learners, func(i int) (err error) {
		learnt[i], err = b.hub.Learn(b.t.Context(), fix("boom"))
		return err
	})
	b.must(errors.Join(errs...))
	created := 0
	for _, l := range learnt {
		if l.Created {
			created++
		}
		if l.Entry.ID() != learnt[0].Entry.ID() {
			b.t.Fatal("there are two entries")
		}
	}
	found := b.lookup("boom", "").Entries
	if created != 1 || len(found) != 1 || found[0].Hits != learners {
		b.t.Fatalf("%d created, entries %+v", created, found)
	}
}

func reflexionHitRace(b *sharedBench) {
	const hits = 96 // more than the write ids that an entry remembers
	id := b.learn(fix("boom")).Entry.ID()
	b.must(errors.Join(b.race(hits, func(i int) error {
		_, err := b.hub.Hit(b.t.Context(), core.HitRequest{ID: id, Success: i%2 == 0})
		return err
	})...))
	e := b.lookup("boom", "").Entries[0]
	if e.Hits != 1+hits || e.Successes != hits/2 {
		b.t.Fatalf("%d hits, %d successes; want %d, %d", e.Hits, e.Successes, 1+hits, hits/2)
	}
}

func reflexionLostAnswers(b *sharedBench) {
	stop := b.LoseNextWrite()
	learnt := b.learn(fix("boom"))
	stop()
	if !learnt.Created || !learnt.Replayed || learnt.Entry.Hits != 1 {
		b.t.Fatalf("learnt %+v", learnt)
	}
	stop = b.LoseNextWrite()
	learnt = b.learn(fix("boom"))
	stop()
	if learnt.Created || !learnt.Replayed || learnt.Entry.Hits != 2 {
		b.t.Fatalf("learnt again %+v", learnt)
	}
	id := learnt.Entry.ID()
	const hits, lost = 24, 6
	var stops []func()
	for range lost {
		stops = append(stops, b.LoseNextWrite())
	}
	b.must(errors.Join(b.race(hits, func(int) error {
		_, err := b.hub.Hit(b.t.Context(), core.HitRequest{ID: id})
		return err
	})...))
	for _, stop := range stops {
		stop()
	}
	b.wantEntry(b.hit(id, false), 3+hits, 0, 0)
	// Over the moment where the remembered write ids move on; not every answer is
	// lost, because the SDK bounds its retries.
	for i := range 40 {
		if i%3 == 0 {
			stop = b.LoseNextWrite()
		}
		e := b.hit(id, false)
		stop()
		if want := int64(4 + hits + i); e.Hits != want {
			b.t.Fatalf("%d hits, want %d", e.Hits, want)
		}
	}
}

// useless brings an entry to 7 hits without a success: confidence 0.15.
func (b *sharedBench) useless(message string) string {
	b.t.Helper()
	e := b.learn(fix(message)).Entry
	for range 6 {
		e = b.hit(e.ID(), false)
	}
	b.wantEntry(e, 7, 0, 0.15)
	return e.ID()
}

func reflexionForgotten(b *sharedBench) {
	id := b.useless("boom")
	b.clock.Advance(30 * day)
	if found := b.lookup("boom", "").Entries; len(found) != 1 {
		b.t.Fatalf("after 30 days exactly there are %d entries", len(found))
	}
	b.clock.Advance(time.Millisecond)
	if found := b.lookup("boom", "").Entries; len(found) != 0 {
		b.t.Fatalf("found %+v", found)
	}
	if page, err := b.hub.Reflexions(b.t.Context(), core.ReflexionQuery{}); err != nil || len(page.Entries) != 0 {
		b.t.Fatalf("listed %+v, %v", page, err)
	}
	if code := b.hitCode(id); code != core.CodeNotFound {
		b.t.Fatalf("a hit on it is answered %q", code)
	}
	again := b.learn(fix("boom"))
	if !again.Created || again.Entry.Hits != 1 || again.Entry.ID() == id {
		b.t.Fatalf("learnt again %+v", again)
	}
	if code := b.hitCode(id); code != core.CodeNotFound {
		b.t.Fatalf("a hit on the entry before is answered %q", code)
	}
	for _, id := range []string{"x", again.Entry.ID() + "A", "%%%"} {
		if code := b.hitCode(id); code != core.CodeNotFound {
			b.t.Fatalf("id %q is answered %q", id, code)
		}
	}
}

func reflexionSweep(b *sharedBench) {
	b.useless("useless")
	kept := b.learn(fix("kept")).Entry.ID()
	used := b.learn(fix("used")).Entry.ID()
	b.clock.Advance(20 * day)
	b.hit(used, true)
	b.sweep(core.ReflexionSweep{})
	b.clock.Advance(11 * day)
	b.sweep(core.ReflexionSweep{Pruned: 1, Moved: 2})
	b.sweep(core.ReflexionSweep{})
	for range 6 {
		b.hit(kept, false) // it is due again
	}
	b.clock.Advance(31 * day)
	b.sweep(core.ReflexionSweep{Pruned: 1, Moved: 1})
	if page, err := b.hub.Reflexions(b.t.Context(), core.ReflexionQuery{}); err != nil || len(page.Entries) != 1 || page.Entries[0].ID() != used {
		b.t.Fatalf("left are %+v, %v", page, err)
	}
	if report, err := b.hub.RunSweep(b.t.Context(), core.SweepReflexion); err != nil || report.More {
		b.t.Fatalf("the sweep's run answers %+v, %v", report, err)
	}
}

func reflexionSweepRace(b *sharedBench) {
	b.useless("boom")
	b.clock.Advance(31 * day)
	b.beforeRemove = func() { b.learn(fix("boom")) }
	b.sweep(core.ReflexionSweep{Lost: 1})
	if found := b.lookup("boom", "").Entries; len(found) != 1 || found[0].Hits != 1 {
		b.t.Fatalf("the sweep left %+v", found)
	}
}

func reflexionAdaptive(b *sharedBench) {
	r := fix("rule")
	r.Type, r.Context = core.ReflexionAdaptive, json.RawMessage(`{"project_slug":"p"}`)
	learnt := b.learn(r)
	id := learnt.Entry.ID()
	b.wantEntry(learnt.Entry, 1, 0, 0.5)
	if same := b.learn(fix("rule")); !same.Created {
		b.t.Fatal("a learnt fix and a rule share an entry")
	}
	b.wantEntry(b.learn(r).Entry, 2, 0, 0.6)
	for range 8 {
		b.hit(id, false)
	}
	b.wantEntry(b.hit(id, false), 11, 0, 1) // capped
	b.clock.Advance(7*day - time.Millisecond)
	rule := func() core.ReflexionView {
		b.t.Helper()
		page, err := b.hub.Reflexions(b.t.Context(), core.ReflexionQuery{Type: core.Some("adaptive")})
		b.must(err)
		if len(page.Entries) != 1 {
			b.t.Fatalf("%d rules", len(page.Entries))
		}
		return page.Entries[0]
	}
	b.wantEntry(rule(), 11, 0, 1)
	b.clock.Advance(time.Millisecond)
	b.wantEntry(rule(), 11, 0, 0.9)
	b.clock.Advance(14 * day)
	b.wantEntry(rule(), 11, 0, 0.7)
	b.wantEntry(b.hit(id, false), 12, 0, 0.8) // the decay counts, swept or not
	b.clock.Advance(28*day + time.Minute)
	b.wantEntry(rule(), 12, 0, 0.4)
	if found := b.lookup("rule", `{"project_slug":"p"}`).Entries; len(found) != 0 {
		b.t.Fatalf("an inactive rule is found: %+v", found)
	}
	b.sweep(core.ReflexionSweep{Decayed: 1, Moved: 1}) // the learnt fix stood its time
	b.wantEntry(rule(), 12, 0, 0.4)
	b.clock.Advance(7 * day)
	if code := b.hitCode(id); code != core.CodeNotFound {
		b.t.Fatalf("a hit on a rule at 0.3 is answered %q", code)
	}
	b.sweep(core.ReflexionSweep{Pruned: 1})
}

func reflexionFence(b *sharedBench) {
	ctx := b.t.Context()
	r := fix("boom")
	r.AgentID, r.Fences.Generation = "a", core.Some(int64(1))
	if _, err := b.hub.Learn(ctx, r); core.CodeOf(err) != core.CodeStalePresenceOwner {
		b.t.Fatalf("an unknown agent is answered %v", err)
	}
	_, err := b.hub.Register(ctx, core.RegisterRequest{AgentID: "a", CLI: "claude"})
	b.must(err)
	if learnt := b.learn(r); !learnt.Created || learnt.Entry.LearntGeneration != 1 {
		b.t.Fatalf("learnt %+v", learnt)
	}
	if learnt := b.learn(r); learnt.Created || learnt.Entry.Hits != 2 {
		b.t.Fatalf("learnt again %+v", learnt)
	}
	_, err = b.hub.Register(ctx, core.RegisterRequest{AgentID: "a", CLI: "claude"})
	b.must(err)
	_, err = b.hub.Learn(ctx, r)
	var refusal *core.Error
	if !errors.As(err, &refusal) || refusal.Code != core.CodeStalePresenceOwner {
		b.t.Fatalf("a stale agent is answered %v", err)
	}
	if data, ok := refusal.Data.(core.StalePresence); !ok || data.Current != 2 {
		b.t.Fatalf("the refusal tells %+v", refusal.Data)
	}
	b.wantEntry(b.lookup("boom", "").Entries[0], 2, 0, 0.4)
}

func reflexionList(b *sharedBench) {
	const entries = 25
	for i := range entries {
		r := fix(fmt.Sprintf("error %c", 'a'+i))
		if i%5 == 0 {
			r.Type = core.ReflexionAdaptive
		}
		b.learn(r)
		b.clock.Advance(time.Millisecond)
	}
	for kind, want := range map[string]int{"": entries, "adaptive": entries / 5, "reflexion": entries - entries/5} {
		q := core.ReflexionQuery{Limit: 4}
		if kind != "" {
			q.Type = core.Some(kind)
		}
		seen, last := map[string]bool{}, core.InstantOf(b.clock.Now())
		for {
			page, err := b.hub.Reflexions(b.t.Context(), q)
			b.must(err)
			for _, e := range page.Entries {
				if seen[e.ID()] || e.CreatedAt > last {
					b.t.Fatalf("%q: entry %s is twice or out of order", kind, e.Pattern)
				}
				seen[e.ID()], last = true, e.CreatedAt
			}
			if q.Cursor = page.NextCursor; q.Cursor == "" {
				break
			}
		}
		if len(seen) != want {
			b.t.Errorf("%q: %d entries, want %d", kind, len(seen), want)
		}
	}
}

func reflexionBadInput(b *sharedBench) {
	ctx := b.t.Context()
	long := func(n int) string { return string(make([]byte, n)) }
	refuse := func(field string, err error) {
		b.t.Helper()
		var refusal *core.Error
		if !errors.As(err, &refusal) || refusal.Code != core.CodeInvalidArgument || refusal.Details["field"] != field {
			b.t.Errorf("want a refusal of %s, got %v", field, err)
		}
	}
	learn := func(field string, change func(*core.LearnRequest)) {
		b.t.Helper()
		r := fix("boom")
		change(&r)
		_, err := b.hub.Learn(ctx, r)
		refuse(field, err)
	}
	learn("error_message", func(r *core.LearnRequest) { r.Message = " \n" })
	learn("error_message", func(r *core.LearnRequest) { r.Message = "x" + long(core.MaxErrorMessage) })
	learn("solution", func(r *core.LearnRequest) { r.Solution = "\t" })
	learn("solution", func(r *core.LearnRequest) { r.Solution = "x" + long(core.MaxSolution) })
	learn("solution_code", func(r *core.LearnRequest) { r.Code = long(core.MaxSolutionCode + 1) })
	learn("context", func(r *core.LearnRequest) { r.Context = json.RawMessage(`[]`) })
	learn("context", func(r *core.LearnRequest) { r.Context = json.RawMessage(`{"a":1e999}`) })
	learn("context", func(r *core.LearnRequest) {
		r.Context = json.RawMessage(`{"a":"` + fmt.Sprintf("%04096d", 0) + `"}`)
	})
	learn("type", func(r *core.LearnRequest) { r.Type = "other" })
	learn("agent_id", func(r *core.LearnRequest) { r.AgentID = "a\n" })
	learn("agent_id", func(r *core.LearnRequest) { r.Fences.Generation = core.Some(int64(1)) })
	_, err := b.hub.Lookup(ctx, core.LookupRequest{})
	refuse("error_message", err)
	_, err = b.hub.Lookup(ctx, core.LookupRequest{Pattern: core.Some("x"), Limit: 101})
	refuse("limit", err)
	_, err = b.hub.Reflexions(ctx, core.ReflexionQuery{Cursor: "x"})
	refuse("cursor", err)
	_, err = b.hub.Reflexions(ctx, core.ReflexionQuery{Type: core.Some("other")})
	refuse("type", err)
	_, err = b.hub.Hit(ctx, core.HitRequest{})
	refuse("id", err)
	if page, err := b.hub.Reflexions(ctx, core.ReflexionQuery{}); err != nil || len(page.Entries) != 0 {
		b.t.Fatalf("bad input stored %+v, %v", page, err)
	}
}
