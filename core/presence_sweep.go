package core

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// The bounds of one run of the presence sweep. What is left is found by the
// next run; readers see the effective status meanwhile.
const (
	agentSweepLimit = 2000             // agents
	agentSweepTime  = 20 * time.Second // by the hub's clock
	agentSweepPage  = 100              // agents read at once
)

// SweepAgents moves agents whose lease has passed one step on: online to stale,
// stale (five minutes past the lease) to offline (contract 3.6). Each step
// holds only where the agent's generation, status and lease are still what the
// sweep read, so that a register or heartbeat that came between wins. An agent
// takes at most one step a sweep. It may run late, twice at once, or never.
func (h *Hub) SweepAgents(ctx context.Context) (AgentSweep, error) {
	started := h.clock.Now()
	run := agentSweepRun{hub: h, now: InstantOf(started), stepped: map[string]bool{}}
	position := ""
	for looked := 0; ; {
		page, err := h.presence.DueAgents(ctx, DueScan{Before: run.now, After: position, Limit: agentSweepPage})
		if err != nil {
			return run.counts, fmt.Errorf("read due agents: %w", err)
		}
		if bounded := looked >= agentSweepLimit || h.clock.Now().Sub(started) > agentSweepTime; bounded && page.Oldest > 0 {
			run.counts.More = true
			run.counts.Lag = run.now.Sub(page.Oldest)
			return run.counts, run.failed
		}
		run.fail(page.Unreadable)
		run.page(ctx, page.Agents)
		looked += len(page.Agents)
		if position = page.Next; position == "" {
			return run.counts, run.failed
		}
	}
}

// agentSweepRun is one run of the presence sweep.
type agentSweepRun struct {
	hub     *Hub
	now     Instant // one moment for the whole run
	stepped map[string]bool

	mu     sync.Mutex
	counts AgentSweep
	failed error
}

// page takes the agents of a page one step on, all at once. An agent that fails
// does not keep the others, or later pages, from theirs; the first failure is the
// run's.
func (r *agentSweepRun) page(ctx context.Context, agents []Agent) {
	var wait sync.WaitGroup
	for _, agent := range agents {
		if r.stepped[agent.ID] {
			continue
		}
		step, due := r.step(agent)
		if !due {
			continue
		}
		r.stepped[agent.ID] = true
		wait.Go(func() {
			done, err := r.hub.presence.TransitionAgent(ctx, step)
			r.count(step, done, err)
		})
	}
	wait.Wait()
}

// step decides what the agent needs now: the next status, or its due entry
// moved to the deadline that stands.
func (r *agentSweepRun) step(a Agent) (AgentTransition, bool) {
	t := AgentTransition{Seen: a, To: a.Status, WriteStamp: r.hub.stamp(r.hub.clock.Now())}
	stale, offline := a.LeaseExpires, a.LeaseExpires.Add(OfflineAfter)
	switch {
	case a.DueAt == 0 || a.DueAt >= r.now:
		return t, false // the entry that led here is out of date
	case a.Status == StatusOffline:
		t.Due = 0
	case a.Status == StatusOnline && stale < r.now:
		t.To, t.Due = StatusStale, offline
	case a.Status == StatusOnline:
		t.Due = stale
	case offline < r.now:
		t.To, t.Due = StatusOffline, 0
	default:
		t.Due = offline
	}
	return t, true
}

// fail keeps the first failure.
func (r *agentSweepRun) fail(err error) {
	if r.failed == nil {
		r.failed = err
	}
}

func (r *agentSweepRun) count(t AgentTransition, done bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.fail(fmt.Errorf("step agent: %w", err))
	case !done:
		r.counts.Lost++
	case t.To == t.Seen.Status:
		r.counts.Moved++
	case t.To == StatusStale:
		r.counts.Stale++
	default:
		r.counts.Offline++
	}
}
