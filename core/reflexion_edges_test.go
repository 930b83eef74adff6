package core_test

import (
	"context"
	"testing"
	"time"

	"drawbridge/core"
)

func TestAConfidenceIsWithinItsBoundsWhateverWasCounted(t *testing.T) {
	const now, week = core.Instant(1_760_000_000_000), 7 * 24 * time.Hour
	for _, test := range []struct {
		name  string
		entry core.ReflexionEntry
		want  float64
	}{
		{"a fix that was not used", core.ReflexionEntry{Type: core.ReflexionLearnt, Hits: 1, Successes: 1}, 0.5},
		{"a fix", core.ReflexionEntry{Type: core.ReflexionLearnt, Hits: 2, Successes: 1}, 0.5},
		{"a fix that helped more often than it was used", core.ReflexionEntry{Type: core.ReflexionLearnt, Hits: 2, Successes: 5}, 0.6},
		{"a fix that helped less than never", core.ReflexionEntry{Type: core.ReflexionLearnt, Hits: 2, Successes: -1}, 0.4},
		{"a fix of ten hits", core.ReflexionEntry{Type: core.ReflexionLearnt, Hits: 10, Successes: 7}, 0.7},
		{"a rule", core.ReflexionEntry{Type: core.ReflexionAdaptive, Base: 5, Hits: 3, BaseHits: 1, UpdatedAt: now}, 0.7},
		{"a rule that is due to decay", core.ReflexionEntry{Type: core.ReflexionAdaptive, Base: 5, UpdatedAt: now.Add(-week)}, 0.4},
		{"a rule that is not yet", core.ReflexionEntry{Type: core.ReflexionAdaptive, Base: 5, UpdatedAt: now.Add(-week) + 1}, 0.5},
		{"a rule that decayed for longer than it gained", core.ReflexionEntry{Type: core.ReflexionAdaptive, Base: 5, UpdatedAt: now.Add(-10 * week)}, 0},
		{"a rule that another clock saw ahead of this one", core.ReflexionEntry{Type: core.ReflexionAdaptive, Base: 5, UpdatedAt: now.Add(2 * week)}, 0.5},
	} {
		if got := test.entry.Confidence(now); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// reflexionShelf is a store with one entry. What a test does not ask of it is not
// there.
type reflexionShelf struct {
	*duePages
	entry core.ReflexionEntry
	hits  core.ReflexionWrite // the answer to a hit
	stale core.Opt[core.Agent]
}

func (s *reflexionShelf) ReadPattern(context.Context, string, int) ([]core.ReflexionEntry, bool, error) {
	return []core.ReflexionEntry{s.entry}, false, nil
}

func (s *reflexionShelf) SearchReflexion(context.Context, string, int) ([]core.ReflexionEntry, bool, error) {
	return nil, false, nil
}

func (s *reflexionShelf) HitReflexion(context.Context, core.ReflexionHit) (core.ReflexionWrite, error) {
	return s.hits, nil
}

func (s *reflexionShelf) ChangeReflexion(ctx context.Context, c core.ReflexionChange) (core.ReflexionWrite, error) {
	if s.stale.Set {
		return core.ReflexionWrite{Entry: s.entry, Stale: s.stale}, nil
	}
	return s.duePages.ChangeReflexion(ctx, c)
}

func newReflexionShelf(entry core.ReflexionEntry) (*reflexionShelf, *core.Hub, core.Instant) {
	p, _, now := newDuePages()
	entry.Pattern = core.ErrorPattern(shelfError)
	if entry.UpdatedAt == 0 {
		entry.UpdatedAt = now
	}
	s := &reflexionShelf{duePages: p, entry: entry}
	s.hits = core.ReflexionWrite{Entry: s.entry}
	return s, p.hub(s), now
}

const shelfError = "disk full"

func TestALookupShowsARuleWhileItIsActive(t *testing.T) {
	for base, shown := range map[int64]int{4: 0, 5: 1, 6: 1} {
		_, hub, _ := newReflexionShelf(core.ReflexionEntry{Type: core.ReflexionAdaptive, Base: base})
		found, err := hub.Lookup(t.Context(), core.LookupRequest{Message: core.Some(shelfError)})
		if err != nil || len(found.Entries) != shown {
			t.Errorf("a rule of %d tenths: %+v, %v", base, found, err)
		}
	}
}

// Where the counting write is refused the entry is written as a whole.
func TestAHitThatWritesTheWholeEntryMakesItDueAndKeepsTheFence(t *testing.T) {
	for stands, moved := range map[core.Instant]bool{0: true, 7: false} {
		s, hub, now := newReflexionShelf(core.ReflexionEntry{Type: core.ReflexionLearnt, Hits: 3, DueAt: stands})
		want := stands
		if moved {
			want = now.Add(30 * 24 * time.Hour)
		}
		learnt, err := hub.Learn(t.Context(), core.LearnRequest{Message: shelfError, Solution: "s"})
		if err != nil || learnt.Entry.Hits != 4 || learnt.Entry.DueAt != want || !s.changed[0].Counts {
			t.Errorf("due at %d: %+v, %v", stands, learnt.Entry, err)
		}
	}
	s, hub, _ := newReflexionShelf(core.ReflexionEntry{Type: core.ReflexionLearnt, Hits: 3})
	s.stale = core.Some(core.Agent{ID: "a", Generation: 4})
	_, err := hub.Learn(t.Context(), core.LearnRequest{Message: shelfError, Solution: "s", AgentID: "a", Fences: core.Fences{Generation: core.Some[int64](3)}})
	if core.CodeOf(err) != core.CodeStalePresenceOwner {
		t.Errorf("of an agent that registered again: %v", err)
	}
}
