package core_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"drawbridge/core"
	"drawbridge/core/coretest"
)

// agentShelf is a store of agents of which a sweep reads pages.
type agentShelf struct {
	core.PresenceStore
	pages   []core.DuePage
	later   func() // what happens while the second page is read
	read    int
	stepped []core.AgentTransition
}

func (s *agentShelf) DueAgents(context.Context, core.DueScan) (core.DuePage, error) {
	if s.read++; s.read == 2 {
		s.later()
	}
	return s.pages[s.read-1], nil
}

func (s *agentShelf) TransitionAgent(_ context.Context, t core.AgentTransition) (bool, error) {
	s.stepped = append(s.stepped, t)
	return true, nil
}

func TestASweepOfAgentsStepsWhoseDeadlineHasPassed(t *testing.T) {
	clock := coretest.NewClock()
	now := core.InstantOf(clock.Now())
	early := core.Instant(-int64(core.OfflineAfter / time.Millisecond))
	for _, test := range []struct {
		name   string
		status core.Status
		due    core.Instant // from now
		lease  core.Instant // from now
		want   string
	}{
		{"without an entry", core.StatusOnline, -now, -9, "nothing"},
		{"its entry is of now", core.StatusOnline, 0, -9, "nothing"},
		{"its entry has passed", core.StatusOnline, -1, -9, fmt.Sprintf("stale, due %d", -9-early)},
		{"its lease ended before", core.StatusOnline, -5, -1, fmt.Sprintf("stale, due %d", -1-early)},
		{"its lease ends now", core.StatusOnline, -5, 0, "online, due 0"},
		{"its lease goes on", core.StatusOnline, -5, 7, "online, due 7"},
		{"offline before", core.StatusStale, -5, early - 1, "offline, done"},
		{"offline from now", core.StatusStale, -5, early, "stale, due 0"},
		{"offline later", core.StatusStale, -5, early + 7, "stale, due 7"},
		{"offline, an entry left behind", core.StatusOffline, -5, 7, "offline, done"},
	} {
		shelf := &agentShelf{pages: []core.DuePage{{Oldest: 1, Agents: []core.Agent{{ID: "a", Status: test.status, DueAt: now + test.due, LeaseExpires: now + test.lease}}}}}
		hub := core.New(core.Config{Presence: shelf, Clock: clock, IDs: core.NewIDs(clock, rand.Reader)})
		swept, err := hub.SweepAgents(t.Context())
		got := "nothing"
		if len(shelf.stepped) > 0 {
			step := shelf.stepped[0]
			if got = fmt.Sprintf("%s, due %d", step.To, step.Due-now); step.Due == 0 {
				got = fmt.Sprintf("%s, done", step.To)
			}
		}
		if err != nil || got != test.want || swept.More {
			t.Errorf("%s: %s, %+v, %v", test.name, got, swept, err)
		}
	}
}

func TestASweepOfAgentsStopsInTimeAndTakesEachOnce(t *testing.T) {
	agent := core.Agent{ID: "a", Status: core.StatusOnline, DueAt: 1, LeaseExpires: 1}
	for _, test := range []struct {
		name   string
		took   time.Duration
		oldest func(now core.Instant) core.Instant
		more   bool
	}{
		{"in time", 20 * time.Second, func(now core.Instant) core.Instant { return now - 40 }, false},
		{"late", 20*time.Second + time.Millisecond, func(now core.Instant) core.Instant { return now - 40 }, true},
		{"late, with nothing left", 20*time.Second + time.Millisecond, func(core.Instant) core.Instant { return 0 }, false},
	} {
		clock := coretest.NewClock()
		now := core.InstantOf(clock.Now())
		shelf := &agentShelf{pages: []core.DuePage{
			{Oldest: 1, Agents: []core.Agent{agent}, Next: "n"}, {Oldest: test.oldest(now), Agents: []core.Agent{agent}},
		}}
		shelf.later = func() { clock.Advance(test.took) }
		hub := core.New(core.Config{Presence: shelf, Clock: clock, IDs: core.NewIDs(clock, rand.Reader)})
		swept, err := hub.SweepAgents(t.Context())
		if err != nil || swept.More != test.more || test.more && swept.Lag != 40*time.Millisecond || len(shelf.stepped) != 1 {
			t.Errorf("%s: %+v, %v, %d steps", test.name, swept, err, len(shelf.stepped))
		}
	}
}

// ruleShelf is a store of what was learnt, as a test puts it there.
type ruleShelf struct {
	core.ReflexionStore
	found   []core.ReflexionEntry
	pages   []core.ReflexionDuePage
	later   func() // what happens while the second page is read
	read    int
	hit     core.ReflexionWrite // what a hit meets
	changed []core.ReflexionChange
	stale   core.Opt[core.Agent]
	removed int
}

func (s *ruleShelf) ReadPattern(context.Context, string, int) ([]core.ReflexionEntry, bool, error) {
	return s.found, false, nil
}

func (s *ruleShelf) SearchReflexion(context.Context, string, int) ([]core.ReflexionEntry, bool, error) {
	return nil, false, nil
}

func (s *ruleShelf) DueReflexion(context.Context, core.DueScan) (core.ReflexionDuePage, error) {
	if s.read++; s.read == 2 {
		s.later()
	}
	return s.pages[s.read-1], nil
}

func (s *ruleShelf) HitReflexion(context.Context, core.ReflexionHit) (core.ReflexionWrite, error) {
	return s.hit, nil
}

func (s *ruleShelf) ChangeReflexion(_ context.Context, c core.ReflexionChange) (core.ReflexionWrite, error) {
	if s.stale.Set {
		return core.ReflexionWrite{Stale: s.stale}, nil
	}
	s.changed = append(s.changed, c)
	return core.ReflexionWrite{Done: true, Entry: c.Next}, nil
}

func (s *ruleShelf) RemoveReflexion(context.Context, core.ReflexionEntry) (bool, error) {
	s.removed++
	return true, nil
}

const day = 24 * time.Hour

func TestTheConfidenceOfAnEntryIsFromNothingToOne(t *testing.T) {
	const now core.Instant = 1_760_000_000_000
	learnt := func(hits, successes int64) core.ReflexionEntry {
		return core.ReflexionEntry{Type: core.ReflexionLearnt, Hits: hits, Successes: successes, UpdatedAt: now}
	}
	rule := func(base, hits int64, unseen time.Duration) core.ReflexionEntry {
		return core.ReflexionEntry{Type: core.ReflexionAdaptive, Base: base, Hits: hits, BaseHits: 1, UpdatedAt: now.Add(-unseen)}
	}
	for _, test := range []struct {
		name  string
		entry core.ReflexionEntry
		want  float64
	}{
		{"not used", learnt(1, 0), 0.5},
		{"no hits", learnt(0, 0), 0.5},
		{"hits below nothing", learnt(-3, 2), 0.5},
		{"used once, in vain", learnt(2, 0), 0.4},
		{"used once", learnt(2, 1), 0.5},
		{"used often", learnt(20, 15), 0.75},
		{"just often enough", learnt(10, 7), 0.7},
		{"more successes than hits", learnt(20, 30), 1},
		{"more successes than a few hits", learnt(4, 30), 0.7},
		{"successes below nothing", learnt(20, -5), 0},
		{"a new rule", rule(5, 1, 0), 0.5},
		{"a rule seen twice more", rule(5, 3, 0), 0.7},
		{"a rule seen a thousand times", rule(5, 1000, 0), 1},
		{"a rule seen a thousand times and then not", rule(5, 1000, 14*day), 0.8},
		{"unseen for less than a week", rule(5, 1, 7*day-time.Millisecond), 0.5},
		{"unseen for a week", rule(5, 1, 7*day), 0.4},
		{"unseen for a year", rule(5, 1, 365*day), 0},
		{"seen by a clock that is ahead", rule(5, 1, -15*day), 0.5},
	} {
		if got := test.entry.Confidence(now); math.Abs(got-test.want) > 1e-12 {
			t.Errorf("%s: %v, not %v", test.name, got, test.want)
		}
	}
}

func TestARuleIsFoundWhileItIsActive(t *testing.T) {
	clock := coretest.NewClock()
	now := core.InstantOf(clock.Now())
	pattern := core.ErrorPattern("it broke")
	for _, test := range []struct {
		name  string
		entry core.ReflexionEntry
		want  bool
	}{
		{"a learnt fix", core.ReflexionEntry{Type: core.ReflexionLearnt, Hits: 1, UpdatedAt: now}, true},
		{"a learnt fix of little confidence", core.ReflexionEntry{Type: core.ReflexionLearnt, Hits: 20, UpdatedAt: now}, true},
		{"unseen for as long as it may", core.ReflexionEntry{Type: core.ReflexionLearnt, Hits: 20, UpdatedAt: now.Add(-30 * day)}, true},
		{"and for longer", core.ReflexionEntry{Type: core.ReflexionLearnt, Hits: 20, UpdatedAt: now.Add(-30*day) - 1}, false},
		{"a rule just active", core.ReflexionEntry{Type: core.ReflexionAdaptive, Base: 5, UpdatedAt: now}, true},
		{"a rule just not active", core.ReflexionEntry{Type: core.ReflexionAdaptive, Base: 4, UpdatedAt: now}, false},
		{"a rule that is active no more", core.ReflexionEntry{Type: core.ReflexionAdaptive, Base: 5, UpdatedAt: now.Add(-7 * day)}, false},
		{"a rule that decayed and is active", core.ReflexionEntry{Type: core.ReflexionAdaptive, Base: 6, UpdatedAt: now.Add(-7 * day)}, true},
	} {
		test.entry.Pattern = pattern
		hub := core.New(core.Config{Reflexion: &ruleShelf{found: []core.ReflexionEntry{test.entry}}, Clock: clock, IDs: core.NewIDs(clock, rand.Reader)})
		found, err := hub.Lookup(t.Context(), core.LookupRequest{Message: core.Some("it broke")})
		if err != nil || len(found.Entries) > 0 != test.want {
			t.Errorf("%s: %+v, %v", test.name, found, err)
		}
	}
}

func TestASweepOfRulesSettlesWhatIsDue(t *testing.T) {
	clock := coretest.NewClock()
	now := core.InstantOf(clock.Now())
	due := core.Instant(-1)
	rule := func(base, hits, baseHits int64, unseen time.Duration) core.ReflexionEntry {
		return core.ReflexionEntry{Type: core.ReflexionAdaptive, Base: base, Hits: hits, BaseHits: baseHits, UpdatedAt: now.Add(-unseen), DueAt: now + due}
	}
	learnt := func(hits int64, unseen time.Duration) core.ReflexionEntry {
		return core.ReflexionEntry{Type: core.ReflexionLearnt, Hits: hits, UpdatedAt: now.Add(-unseen), DueAt: now + due}
	}
	at := func(entry core.ReflexionEntry, due core.Instant) core.ReflexionEntry {
		entry.DueAt = due
		return entry
	}
	for _, test := range []struct {
		name  string
		entry core.ReflexionEntry
		want  string // counts, and when it is due next
	}{
		{"without an entry", at(rule(9, 1, 1, 7*day), 0), "pruned 0 decayed 0 moved 0"},
		{"its entry is of now", at(rule(9, 1, 1, 7*day), now), "pruned 0 decayed 0 moved 0"},
		{"its entry has passed", at(rule(9, 1, 1, 7*day), now-1), "pruned 0 decayed 1 moved 0, due 168h0m0s"},
		{"a rule seen meanwhile", rule(9, 1, 1, day), "pruned 0 decayed 0 moved 1, due 144h0m0s"},
		{"a rule whose gains were as large as its decay", rule(5, 3, 1, 14*day), "pruned 0 decayed 1 moved 0, due 168h0m0s"},
		{"a rule to forget", rule(4, 1, 1, 7*day), "pruned 1 decayed 0 moved 0"},
		{"a learnt fix seen meanwhile", learnt(20, day), "pruned 0 decayed 0 moved 1, due 696h0m0s"},
		// It is not forgotten yet: it is to be looked at again.
		{"a learnt fix to forget next", learnt(20, 30*day), "pruned 0 decayed 0 moved 1, due 0s"},
		{"a learnt fix to forget", learnt(20, 30*day+time.Millisecond), "pruned 1 decayed 0 moved 0"},
		{"a learnt fix to keep", learnt(1, 30*day+time.Millisecond), "pruned 0 decayed 0 moved 1, never due"},
	} {
		shelf := &ruleShelf{pages: []core.ReflexionDuePage{{Oldest: 1, Entries: []core.ReflexionEntry{test.entry}}}}
		hub := core.New(core.Config{Reflexion: shelf, Clock: clock, IDs: core.NewIDs(clock, rand.Reader)})
		swept, err := hub.SweepReflexion(t.Context())
		got := fmt.Sprintf("pruned %d decayed %d moved %d", swept.Pruned, swept.Decayed, swept.Moved)
		if len(shelf.changed) > 0 {
			if next := shelf.changed[0].Next.DueAt; next == 0 {
				got += ", never due"
			} else {
				got += fmt.Sprintf(", due %v", next.Sub(now))
			}
		}
		if err != nil || got != test.want || shelf.removed != swept.Pruned {
			t.Errorf("%s: %s, %v", test.name, got, err)
		}
	}
}

func TestASweepOfRulesStopsInTime(t *testing.T) {
	for _, test := range []struct {
		name   string
		took   time.Duration
		oldest core.Instant // before now; 0: nothing is left
		more   bool
	}{
		{"in time", 20 * time.Second, 40, false},
		{"late", 20*time.Second + time.Millisecond, 40, true},
		{"late, with nothing left", 20*time.Second + time.Millisecond, 0, false},
	} {
		clock := coretest.NewClock()
		last := core.ReflexionDuePage{}
		if test.oldest > 0 {
			last.Oldest = core.InstantOf(clock.Now()) - test.oldest
		}
		shelf := &ruleShelf{pages: []core.ReflexionDuePage{{Oldest: 1, Next: "n"}, last}, later: func() { clock.Advance(test.took) }}
		hub := core.New(core.Config{Reflexion: shelf, Clock: clock, IDs: core.NewIDs(clock, rand.Reader)})
		swept, err := hub.SweepReflexion(t.Context())
		if err != nil || swept.More != test.more || test.more && swept.Lag != 40*time.Millisecond {
			t.Errorf("%s: %+v, %v", test.name, swept, err)
		}
	}
}

// What a hit meets may have been overtaken by time: then it is written as a whole.
func TestAHitOnWhatTimeHasPassedOverKeepsItsEntry(t *testing.T) {
	clock := coretest.NewClock()
	now := core.InstantOf(clock.Now())
	model := coretest.NewModel()
	entry := core.ReflexionEntry{
		Key: core.ReflexionKey{Pattern: "p", Variant: "v"}, Born: "b", Type: core.ReflexionLearnt, Pattern: core.ErrorPattern("it broke"),
		Hits: 1, UpdatedAt: now.Add(-40 * day),
	}
	learn := func(shelf *ruleShelf) error {
		hub := core.New(core.Config{Presence: model, Identity: model, Reflexion: shelf, Clock: clock, IDs: core.NewIDs(clock, rand.Reader)})
		_, err := hub.Learn(t.Context(), core.LearnRequest{
			Message: "it broke", Solution: "mend it", Context: json.RawMessage(`{}`), AgentID: "a", Fences: core.Fences{Generation: core.Some[int64](3)},
		})
		return err
	}
	for due, want := range map[core.Instant]core.Instant{0: now.Add(30 * day), now - 5: now - 5, now + 5: now + 5} {
		entry.DueAt = due
		shelf := &ruleShelf{found: []core.ReflexionEntry{entry}, hit: core.ReflexionWrite{Entry: entry}}
		if err := learn(shelf); err != nil || len(shelf.changed) != 1 || shelf.changed[0].Next.DueAt != want || shelf.changed[0].Next.Hits != 2 {
			t.Errorf("due at %d: %+v, %v", due, shelf.changed, err)
		}
	}
	stale := core.Some(core.Agent{ID: "a", Generation: 4})
	for name, shelf := range map[string]*ruleShelf{
		"the hit":               {found: []core.ReflexionEntry{entry}, hit: core.ReflexionWrite{Stale: stale}},
		"the write of it whole": {found: []core.ReflexionEntry{entry}, hit: core.ReflexionWrite{Entry: entry}, stale: stale},
	} {
		if err := learn(shelf); core.CodeOf(err) != core.CodeStalePresenceOwner {
			t.Errorf("%s, when the agent was overtaken: %v", name, err)
		}
	}
}
