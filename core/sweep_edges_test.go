package core_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"drawbridge/core"
	"drawbridge/core/coretest"
)

// What a sweep reads may be out of date or be at just the moment: each case is
// one item that a page of due ones holds.

// duePages gives a sweep its pages one after the other. The first takes its time.
type duePages struct {
	core.PresenceStore
	core.ReflexionStore
	clock   *coretest.Clock
	took    time.Duration
	agents  []core.DuePage
	entries []core.ReflexionDuePage

	stepped []core.AgentTransition
	removed int
	changed []core.ReflexionChange
}

func (p *duePages) pass() {
	p.clock.Advance(p.took)
	p.took = 0
}

func (p *duePages) DueAgents(context.Context, core.DueScan) (core.DuePage, error) {
	p.pass()
	page := p.agents[0]
	p.agents = p.agents[1:]
	return page, nil
}

func (p *duePages) TransitionAgent(_ context.Context, t core.AgentTransition) (bool, error) {
	p.stepped = append(p.stepped, t)
	return true, nil
}

func (p *duePages) DueReflexion(context.Context, core.DueScan) (core.ReflexionDuePage, error) {
	p.pass()
	page := p.entries[0]
	p.entries = p.entries[1:]
	return page, nil
}

func (p *duePages) RemoveReflexion(context.Context, core.ReflexionEntry) (bool, error) {
	p.removed++
	return true, nil
}

func (p *duePages) ChangeReflexion(_ context.Context, c core.ReflexionChange) (core.ReflexionWrite, error) {
	p.changed = append(p.changed, c)
	return core.ReflexionWrite{Done: true, Entry: c.Next}, nil
}

// newDuePages returns a hub whose sweeps find what the pages hold.
func newDuePages() (*duePages, *core.Hub, core.Instant) {
	clock := coretest.NewClock()
	p := &duePages{clock: clock}
	return p, p.hub(p), core.InstantOf(clock.Now())
}

func (p *duePages) hub(reflexion core.ReflexionStore) *core.Hub {
	return core.New(core.Config{Presence: p, Reflexion: reflexion, Identity: coretest.NewModel(), Clock: p.clock, IDs: core.NewIDs(p.clock, rand.Reader)})
}

func TestASweepTakesAnAgentOneStepOnAfterItsMoment(t *testing.T) {
	_, _, now := newDuePages()
	ended := now.Add(-core.OfflineAfter)
	agent := func(status core.Status, lease, due core.Instant) core.Agent {
		return core.Agent{ID: "a", Status: status, LeaseExpires: lease, DueAt: due}
	}
	for _, test := range []struct {
		name  string
		agent core.Agent
		to    core.Status // "": no step
		due   core.Instant
	}{
		{"online, its lease has passed", agent(core.StatusOnline, now-1, now-1), core.StatusStale, (now - 1).Add(core.OfflineAfter)},
		{"online, its lease ends now", agent(core.StatusOnline, now, now-1), core.StatusOnline, now},
		{"stale, its time has passed", agent(core.StatusStale, ended-1, now-1), core.StatusOffline, 0},
		{"stale, its time ends now", agent(core.StatusStale, ended, now-1), core.StatusStale, now},
		{"offline", agent(core.StatusOffline, ended-1, now-1), core.StatusOffline, 0},
		{"due now", agent(core.StatusOnline, now-1, now), "", 0},
		{"due next", agent(core.StatusOnline, now-1, now+1), "", 0},
		{"not due any more", agent(core.StatusOnline, now-1, 0), "", 0},
	} {
		p, hub, _ := newDuePages()
		p.agents = []core.DuePage{{Agents: []core.Agent{test.agent}, Oldest: 1}}
		if _, err := hub.SweepAgents(t.Context()); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if len(p.stepped) != 0 != (test.to != "") {
			t.Errorf("%s: steps %+v", test.name, p.stepped)
		} else if test.to != "" && (p.stepped[0].To != test.to || p.stepped[0].Due != test.due) {
			t.Errorf("%s: to %s, due %d ms from now", test.name, p.stepped[0].To, p.stepped[0].Due-now)
		}
	}
}

// A sweep that ran for its time stops before the next page, and tells that it did
// where that page holds anything.
func TestASweepStopsInTimeAndTellsWhatItLeaves(t *testing.T) {
	for took, late := range map[time.Duration]bool{20 * time.Second: false, 20*time.Second + time.Millisecond: true} {
		for _, left := range []bool{true, false} {
			p, hub, now := newDuePages()
			oldest, lag := core.Instant(0), time.Duration(0)
			if left {
				oldest = now - 40
			}
			if left && late {
				lag = 40 * time.Millisecond
			}
			p.took, p.agents = took, []core.DuePage{{Next: "n"}, {Oldest: oldest}}
			if swept, err := hub.SweepAgents(t.Context()); err != nil || swept.More != (late && left) || swept.Lag != lag {
				t.Errorf("agents after %v, anything left %v: %+v, %v", took, left, swept, err)
			}
			p.took, p.entries = took, []core.ReflexionDuePage{{Next: "n"}, {Oldest: oldest}}
			if left && late {
				lag += took // the clock goes on between the two sweeps
			}
			if swept, err := hub.SweepReflexion(t.Context()); err != nil || swept.More != (late && left) || swept.Lag != lag {
				t.Errorf("reflexion after %v, anything left %v: %+v, %v", took, left, swept, err)
			}
		}
	}
}

func TestASweepOfReflexionSettlesAnEntryAfterItsMoment(t *testing.T) {
	_, _, now := newDuePages()
	const week, month = 7 * 24 * time.Hour, 30 * 24 * time.Hour
	rule := func(base, hits, baseHits int64, unseen time.Duration) core.ReflexionEntry {
		return core.ReflexionEntry{Type: core.ReflexionAdaptive, Base: base, Hits: hits, BaseHits: baseHits, UpdatedAt: now.Add(-unseen), DueAt: now - 1}
	}
	learnt := func(hits, successes int64, unseen time.Duration) core.ReflexionEntry {
		return core.ReflexionEntry{Type: core.ReflexionLearnt, Hits: hits, Successes: successes, UpdatedAt: now.Add(-unseen), DueAt: now - 1}
	}
	dueAt := func(e core.ReflexionEntry, due core.Instant) core.ReflexionEntry {
		e.DueAt = due
		return e
	}
	for _, test := range []struct {
		name  string
		entry core.ReflexionEntry
		want  string
	}{
		{"a rule that was not seen for a week", rule(8, 4, 4, week), "{Pruned:0 Decayed:1 Moved:0 Lost:0 Lag:0s More:false} due 168h0m0s"},
		{"a rule whose gain and decay cancel out", rule(7, 5, 4, week), "{Pruned:0 Decayed:1 Moved:0 Lost:0 Lag:0s More:false} due 168h0m0s"},
		{"a rule that was seen since", rule(8, 4, 4, week-time.Millisecond), "{Pruned:0 Decayed:0 Moved:1 Lost:0 Lag:0s More:false} due 1ms"},
		{"a rule that is little trusted", rule(4, 4, 4, week), "{Pruned:1 Decayed:0 Moved:0 Lost:0 Lag:0s More:false}"},
		{"a fix that stood its time", learnt(10, 9, month+time.Millisecond), "{Pruned:0 Decayed:0 Moved:1 Lost:0 Lag:0s More:false} due never"},
		{"a fix that was seen since", learnt(10, 9, month-time.Millisecond), "{Pruned:0 Decayed:0 Moved:1 Lost:0 Lag:0s More:false} due 1ms"},
		{"a fix that did not help", learnt(10, 1, month+time.Millisecond), "{Pruned:1 Decayed:0 Moved:0 Lost:0 Lag:0s More:false}"},
		// It is forgotten at the next moment: nobody else would delete it then.
		{"a fix that did not help, its time ends now", learnt(10, 1, month), "{Pruned:0 Decayed:0 Moved:1 Lost:0 Lag:0s More:false} due 0s"},
		{"due now", dueAt(rule(8, 4, 4, week), now), "{Pruned:0 Decayed:0 Moved:0 Lost:0 Lag:0s More:false}"},
		{"due next", dueAt(rule(8, 4, 4, week), now+1), "{Pruned:0 Decayed:0 Moved:0 Lost:0 Lag:0s More:false}"},
		{"not due any more", dueAt(rule(8, 4, 4, week), 0), "{Pruned:0 Decayed:0 Moved:0 Lost:0 Lag:0s More:false}"},
	} {
		p, hub, _ := newDuePages()
		p.entries = []core.ReflexionDuePage{{Entries: []core.ReflexionEntry{test.entry}, Oldest: 1}}
		swept, err := hub.SweepReflexion(t.Context())
		got := fmt.Sprintf("%+v", swept)
		for _, c := range p.changed {
			if got += " due never"; c.Next.DueAt != 0 {
				got = fmt.Sprintf("%+v due %v", swept, c.Next.DueAt.Sub(now))
			}
		}
		if err != nil || got != test.want || p.removed != swept.Pruned {
			t.Errorf("%s:\n got %s, %v\nwant %s", test.name, got, err, test.want)
		}
	}
}
