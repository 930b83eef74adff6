package coretest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"drawbridge/core"
)

func testSweep(t *testing.T, open func(*testing.T) *bench) {
	t.Run("a lease that ends exactly now is live for the sweep; a millisecond later it is stale", func(t *testing.T) {
		b := open(t)
		b.register("a")
		b.clock.Advance(time.Minute)
		if c := b.sweep(); c != (core.AgentSweep{}) {
			t.Fatalf("at the edge the sweep did %+v", c)
		}
		b.clock.Advance(time.Millisecond)
		if c := b.sweep(); c != (core.AgentSweep{Stale: 1}) {
			t.Fatalf("past the edge the sweep did %+v", c)
		}
		b.wantAgent("a", 1, core.StatusStale)
		b.clock.Advance(5*time.Minute - time.Millisecond)
		if c := b.sweep(); c != (core.AgentSweep{}) {
			t.Fatalf("at the second edge the sweep did %+v", c)
		}
		b.clock.Advance(time.Millisecond)
		if c := b.sweep(); c != (core.AgentSweep{Offline: 1}) {
			t.Fatalf("past the second edge the sweep did %+v", c)
		}
		if a := b.wantAgent("a", 1, core.StatusOffline); a.DueAt != 0 {
			t.Fatalf("an offline agent is still due: %+v", a)
		}
		if c := b.sweep(); c != (core.AgentSweep{}) {
			t.Fatalf("with nothing left the sweep did %+v", c)
		}
	})

	t.Run("an agent takes one step a sweep, however long ago its lease passed", func(t *testing.T) {
		b := open(t)
		b.register("a")
		b.clock.Advance(24 * time.Hour)
		for _, want := range []core.AgentSweep{{Stale: 1}, {Offline: 1}, {}} {
			if c := b.sweep(); c != want {
				t.Fatalf("the sweep did %+v, want %+v", c, want)
			}
		}
	})

	t.Run("nor does it take a second step on a later page", func(t *testing.T) {
		b := open(t)
		const agents = 230
		b.fill(agents)
		b.clock.Advance(24 * time.Hour)
		for _, want := range []core.AgentSweep{{Stale: agents}, {Offline: agents}, {}} {
			if c := b.sweep(); c != want {
				t.Fatalf("the sweep did %+v, want %+v", c, want)
			}
		}
	})

	t.Run("a step applies only to the agent that was seen", func(t *testing.T) {
		b := open(t)
		b.register("a")
		b.clock.Advance(2 * time.Minute)
		seen := b.agent("a")
		for i, other := range []func(*core.Agent){
			func(a *core.Agent) { a.Generation++ },
			func(a *core.Agent) { a.Status = core.StatusStale },
			func(a *core.Agent) { a.LeaseExpires++ },
			func(a *core.Agent) { a.DueAt-- },
		} {
			step := core.AgentTransition{Seen: seen, To: core.StatusOffline, WriteStamp: core.WriteStamp{WriteID: fmt.Sprint(i), Started: b.clock.Now()}}
			other(&step.Seen)
			done, err := b.Store.TransitionAgent(b.ctx, step)
			b.must(err)
			if done {
				t.Fatalf("a step from %+v was applied to %+v", step.Seen, seen)
			}
		}
		b.wantAgent("a", 1, core.StatusOnline)
	})

	t.Run("an early entry is moved to the deadline that stands", func(t *testing.T) {
		b := open(t)
		b.register("a")
		b.clock.Advance(30 * time.Second)
		b.must(b.heartbeat("a", 1))
		b.clock.Advance(31 * time.Second)
		if c := b.sweep(); c != (core.AgentSweep{Moved: 1}) {
			t.Fatalf("the sweep did %+v", c)
		}
		if a := b.wantAgent("a", 1, core.StatusOnline); a.DueAt != a.LeaseExpires {
			t.Fatalf("the entry was not moved to the lease: %+v", a)
		}
		if c := b.sweep(); c != (core.AgentSweep{}) {
			t.Fatalf("a second sweep did %+v", c)
		}
	})

	t.Run("a lease that became shorter is found in time", func(t *testing.T) {
		b := open(t)
		b.registerWith(core.RegisterRequest{AgentID: "a", CLI: "claude", TimeoutSec: core.Some(86_400.0)})
		_, err := b.hub.Heartbeat(b.ctx, core.HeartbeatRequest{AgentID: "a", TTLMs: core.Some(int64(1000))})
		b.must(err)
		b.registerWith(core.RegisterRequest{AgentID: "b", CLI: "claude", TimeoutSec: core.Some(86_400.0)})
		b.register("b")
		b.clock.Advance(2 * time.Minute)
		if c := b.sweep(); c.Stale != 2 {
			t.Fatalf("the sweep did %+v, want both agents stale", c)
		}
	})

	t.Run("an agent that reported itself stale or online is swept by its lease", func(t *testing.T) {
		b := open(t)
		for _, id := range []string{"a", "b"} {
			b.register(id)
			b.must(b.deregister(id, 1))
		}
		_, err := b.hub.ReportStatus(b.ctx, core.ReportRequest{AgentID: "a", Status: "stale"})
		b.must(err)
		_, err = b.hub.ReportStatus(b.ctx, core.ReportRequest{AgentID: "b", Status: "online"})
		b.must(err)
		b.clock.Advance(time.Second)
		if c := b.sweep(); c != (core.AgentSweep{Moved: 2}) {
			t.Fatalf("the sweep did %+v", c)
		}
		b.clock.Advance(10 * time.Minute)
		if c := b.sweep(); c != (core.AgentSweep{Stale: 1, Offline: 1}) {
			t.Fatalf("the sweep did %+v", c)
		}
	})

	t.Run("F6 in every interleaving with a sweep the other operation's outcome stands", testSweepRaces(open))

	t.Run("a sweep whose write lost its answer counts its step once", func(t *testing.T) {
		b := open(t)
		b.register("a")
		b.clock.Advance(2 * time.Minute)
		defer b.LoseNextWrite()()
		if c := b.sweep(); c != (core.AgentSweep{Stale: 1}) {
			t.Fatalf("the sweep did %+v", c)
		}
	})

	t.Run("late copies of a sweep's writes change nothing after a register", func(t *testing.T) {
		b := open(t)
		b.register("a")
		b.clock.Advance(2 * time.Minute)
		b.sweep()
		b.register("a")
		b.ResendWrites()
		b.wantAgent("a", 2, core.StatusOnline)
	})

	t.Run("sweeps at once step each agent once between them", func(t *testing.T) {
		b := open(t)
		const agents = 40
		for i := range agents {
			b.register(fmt.Sprintf("a%d", i))
		}
		b.clock.Advance(2 * time.Minute)
		var counts [4]core.AgentSweep
		var wait sync.WaitGroup
		for i := range counts {
			wait.Go(func() { counts[i], _ = b.newHub().SweepAgents(b.ctx) })
		}
		wait.Wait()
		stale := 0
		for _, c := range counts {
			stale += c.Stale
		}
		if stale != agents {
			t.Fatalf("%d agents were counted stale, want %d: %+v", stale, agents, counts)
		}
		for i := range agents {
			b.wantAgent(fmt.Sprintf("a%d", i), 1, core.StatusStale)
		}
	})

	t.Run("a sweep is bounded and the next goes on where it stopped", testSweepBound(open))
}

// testSweepRaces puts another operation before the sweep's read, between read
// and write, and after the write, on a stale-to-be and an offline-to-be agent.
func testSweepRaces(open func(*testing.T) *bench) func(*testing.T) {
	operations := map[string]struct {
		run  func(b *bench)
		want func(a core.Agent) bool
	}{
		"register": {
			func(b *bench) { b.register("a") },
			func(a core.Agent) bool { return a.Generation == 2 && a.Status == core.StatusOnline },
		},
		"heartbeat": {
			func(b *bench) { b.must(b.heartbeat("a", 1)) },
			func(a core.Agent) bool { return a.Generation == 1 && a.Status == core.StatusOnline },
		},
		"deregister": {
			func(b *bench) { b.must(b.deregister("a", 1)) },
			func(a core.Agent) bool { return a.Generation == 1 && a.Status == core.StatusOffline },
		},
	}
	points := []string{beforeDue, afterDue, beforeTransition, "after the sweep"}
	return func(t *testing.T) {
		for name, operation := range operations {
			for _, point := range points {
				for _, from := range []core.Status{core.StatusOnline, core.StatusStale} {
					t.Run(fmt.Sprintf("%s %s of an agent that is %s", name, point, from), func(t *testing.T) {
						b := open(t)
						b.register("a")
						b.clock.Advance(10 * time.Minute)
						if from == core.StatusStale {
							b.sweep()
						}
						b.tick()
						b.tap.at(point, func() { b.tick(); operation.run(b) })
						b.sweep()
						b.tap.reach("after the sweep")
						if a := b.agent("a"); !operation.want(a) {
							t.Fatalf("the agent stands at %+v", a)
						}
						b.sweep()
						if a := b.agent("a"); !operation.want(a) {
							t.Fatalf("after another sweep the agent stands at %+v", a)
						}
					})
				}
			}
		}
	}
}

func testSweepBound(open func(*testing.T) *bench) func(*testing.T) {
	return func(t *testing.T) {
		b := open(t)
		const agents, bound = 2150, 2000
		b.fill(agents)
		b.clock.Advance(2 * time.Minute)
		first := b.sweep()
		if first.Stale < bound || first.Stale >= agents || !first.More || first.Lag <= 0 {
			t.Fatalf("the first sweep did %+v, want at least %d agents and more to do", first, bound)
		}
		second := b.sweep()
		if first.Stale+second.Stale != agents || second.More || second.Lag != 0 {
			t.Fatalf("the sweeps did %+v and %+v, want %d agents in all", first, second, agents)
		}
	}
}

// fill registers agents without going through the hub one after the other.
func (b *bench) fill(agents int) {
	b.t.Helper()
	const workers = 16
	var wait sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		wait.Go(func() {
			for i := w; i < agents && errs[w] == nil; i += workers {
				_, errs[w] = b.hub.Register(b.ctx, core.RegisterRequest{AgentID: fmt.Sprintf("agent-%05d", i), CLI: "other", TimeoutSec: core.Some(-60.0)})
			}
		})
	}
	wait.Wait()
	for _, err := range errs {
		b.must(err)
	}
}
