package core

import (
	"context"
	"fmt"
	"strings"
)

// Deregister takes the agent offline. Its lease, topics and generation stay. A
// heartbeat of the same generation brings it back, unless final finished it.
// Deregistering again succeeds.
//
// Errors: INVALID_ARGUMENT, STALE_HUB_INSTANCE, STORE_FINGERPRINT_MISMATCH,
// STALE_PRESENCE_OWNER with a StalePresence.
func (h *Hub) Deregister(ctx context.Context, r DeregisterRequest) (Deregistration, error) {
	if err := checkID("agent_id", r.AgentID); err != nil {
		return Deregistration{}, err
	}
	identity, err := h.checkIdentity(ctx, r.Fences)
	if err != nil {
		return Deregistration{}, err
	}
	_, err = h.changeStatus(ctx, identity, AgentStatusChange{
		AgentID:    r.AgentID,
		Generation: r.Fences.Generation,
		Status:     StatusOffline,
		Final:      r.Final,
		WriteStamp: h.stamp(h.clock.Now()),
	})
	if err != nil {
		return Deregistration{}, err
	}
	return Deregistration{AgentID: r.AgentID, Identity: identity}, nil
}

// ReportStatus stores what an agent says of itself: stale and offline as such,
// any other word as online. The lease is not touched (contract 2.7).
//
// Errors: as Deregister.
func (h *Hub) ReportStatus(ctx context.Context, r ReportRequest) (Report, error) {
	agentID := strings.TrimSpace(r.AgentID)
	reported := strings.ToLower(strings.TrimSpace(r.Status))
	if err := checkID("agent_id", agentID); err != nil {
		return Report{}, err
	}
	if err := checkID("status", reported); err != nil {
		return Report{}, err
	}
	identity, err := h.checkIdentity(ctx, r.Fences)
	if err != nil {
		return Report{}, err
	}
	now := h.clock.Now()
	change := AgentStatusChange{
		AgentID:    agentID,
		Generation: r.Fences.Generation,
		Status:     StoredStatus(reported),
		WriteStamp: h.stamp(now),
	}
	counted := h.pending(ctx, agentID, InstantOf(now))
	done, err := h.changeStatus(ctx, identity, change)
	pending, failed := counted()
	if err != nil {
		return Report{}, err
	}
	snapshot := done.Agent.snapshot(InstantOf(now))
	if failed == nil { // the status is stored: a count that is not known does not undo it
		snapshot.Pending = pending
	}
	return Report{
		AgentID:    agentID,
		Status:     change.Status,
		Reported:   reported,
		ReportedAt: InstantOf(now),
		Snapshot:   snapshot,
		Identity:   identity,
	}, nil
}

func (h *Hub) changeStatus(ctx context.Context, identity Identity, c AgentStatusChange) (AgentWrite, error) {
	done, err := h.presence.ChangeAgentStatus(ctx, c)
	if err != nil {
		return AgentWrite{}, fmt.Errorf("change agent status: %w", err)
	}
	if done.Refused {
		return AgentWrite{}, staleOwner(StalePresence{
			AgentID:    c.AgentID,
			Current:    done.Agent.Generation,
			ServerTime: InstantOf(c.Started),
			Identity:   identity,
		})
	}
	h.noticeCandidate(ctx, done.Agent, "status:"+string(c.Status), InstantOf(c.Started))
	return done, nil
}

// StoredStatus is the status that is stored for an agent's own word: stale and
// offline as such, any other as online (contract 2.7).
func StoredStatus(reported string) Status {
	switch s := Status(reported); s {
	case StatusStale, StatusOffline:
		return s
	default:
		return StatusOnline
	}
}

// EffectiveStatus is the status a reader sees at now, whether or not a sweep
// has run (compat 6). A lease that ends exactly now is still live.
func (a Agent) EffectiveStatus(now Instant) Status {
	switch {
	case a.Status == StatusOffline:
		return StatusOffline
	case a.LeaseExpires.Add(OfflineAfter) < now:
		return StatusOffline
	case a.LeaseExpires < now:
		return StatusStale
	}
	return a.Status
}

// Hung tells whether the agent is alive but has stood still for longer than its
// own deadline, and since when (design principle 9).
func (a Agent) Hung(now Instant) (Instant, bool) {
	if !a.StepDeadline.Set || a.EffectiveStatus(now) != StatusOnline {
		return 0, false
	}
	since := a.StepAt.Add(a.StepDeadline.Value)
	if since >= now {
		return 0, false
	}
	return since, true
}

// View is the agent as a reader sees it at now.
func (a Agent) View(now Instant) AgentView {
	since, hung := a.Hung(now)
	return AgentView{Agent: a, Effective: a.EffectiveStatus(now), Hung: hung, HungSince: since}
}

func (a Agent) snapshot(now Instant) AgentSnapshot {
	return AgentSnapshot{AgentID: a.ID, Status: a.EffectiveStatus(now), LastSeen: a.LastSeen, Topics: a.Topics}
}
