package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Heartbeat extends the agent's lease and makes it online, whatever a sweep
// made of it meanwhile (contract 2.4, 3.5). A generation that is set must be the
// agent's, and not finished.
//
// Errors: INVALID_ARGUMENT, STALE_HUB_INSTANCE, STORE_FINGERPRINT_MISMATCH,
// STALE_PRESENCE_OWNER with a StalePresence.
func (h *Hub) Heartbeat(ctx context.Context, r HeartbeatRequest) (Beat, error) {
	if err := checkID("agent_id", r.AgentID); err != nil {
		return Beat{}, err
	}
	deadline, err := stepDeadline("step_deadline_ms", r.StepDeadlineMs)
	if err != nil {
		return Beat{}, err
	}
	identity, err := h.checkIdentity(ctx, r.Fences)
	if err != nil {
		return Beat{}, err
	}
	now := h.clock.Now()
	return h.beat(ctx, identity, AgentHeartbeat{
		AgentID:      r.AgentID,
		Generation:   r.Fences.Generation,
		LeaseExpires: InstantOf(now).Add(heartbeatLease(r.TTLMs)),
		Step:         r.Step,
		StepDeadline: deadline,
		WriteStamp:   h.stamp(now),
	})
}

// HeartbeatBatch extends the leases of the agents of one host, all at once. Each
// agent has its own outcome; the error is about the call as a whole, and then no
// lease was extended.
func (h *Hub) HeartbeatBatch(ctx context.Context, r BatchHeartbeatRequest) ([]BeatResult, error) {
	if len(r.Agents) == 0 || len(r.Agents) > MaxBatch {
		return nil, Invalid("agents", fmt.Sprintf("agents must be 1 to %d", MaxBatch))
	}
	deadlines, err := r.validate()
	if err != nil {
		return nil, err
	}
	identity, err := h.checkIdentity(ctx, Fences{HubInstanceID: r.HubInstanceID, StoreFingerprint: r.StoreFingerprint})
	if err != nil {
		return nil, err
	}
	now := h.clock.Now()
	lease := InstantOf(now).Add(heartbeatLease(r.TTLMs))
	results := make([]BeatResult, len(r.Agents))
	var wait sync.WaitGroup
	for i, agent := range r.Agents {
		wait.Go(func() {
			beat, err := h.beat(ctx, identity, AgentHeartbeat{
				AgentID:      agent.AgentID,
				Generation:   agent.Generation,
				LeaseExpires: lease,
				Step:         agent.Step,
				StepDeadline: deadlines[i],
				WriteStamp:   h.stamp(now),
			})
			results[i] = beatResult(agent.AgentID, beat, err)
		})
	}
	wait.Wait()
	return results, nil
}

func (r BatchHeartbeatRequest) validate() ([]Opt[time.Duration], error) {
	deadlines := make([]Opt[time.Duration], len(r.Agents))
	for i, agent := range r.Agents {
		if err := checkID(fmt.Sprintf("agents[%d].agent_id", i), agent.AgentID); err != nil {
			return nil, err
		}
		deadline, err := stepDeadline(fmt.Sprintf("agents[%d].step_deadline_ms", i), agent.StepDeadlineMs)
		if err != nil {
			return nil, err
		}
		deadlines[i] = deadline
	}
	return deadlines, nil
}

func beatResult(agentID string, beat Beat, err error) BeatResult {
	if err == nil {
		return BeatResult{AgentID: agentID, LeaseExpires: beat.LeaseExpires}
	}
	var refusal *Error
	if !errors.As(err, &refusal) {
		refusal = Wrap(CodeInternal, "the heartbeat failed", err)
	}
	return BeatResult{AgentID: agentID, Err: refusal}
}

func (h *Hub) beat(ctx context.Context, identity Identity, b AgentHeartbeat) (Beat, error) {
	done, err := h.presence.HeartbeatAgent(ctx, b)
	if err != nil {
		return Beat{}, fmt.Errorf("heartbeat agent: %w", err)
	}
	now := InstantOf(b.Started)
	if !done.Refused {
		h.noticeCandidate(ctx, done.Agent, "heartbeat", now)
	}
	if done.Refused {
		return Beat{}, staleOwner(StalePresence{
			AgentID:      b.AgentID,
			Current:      done.Agent.Generation,
			LeaseExpires: b.LeaseExpires,
			ServerTime:   now,
			Identity:     identity,
		})
	}
	return Beat{
		AgentID:      b.AgentID,
		LeaseExpires: done.Agent.LeaseExpires,
		ServerTime:   now,
		Identity:     identity,
		Replayed:     done.Replayed,
	}, nil
}

// heartbeatLease clamps ttl_ms, as the reference does, instead of refusing it.
func heartbeatLease(ttl Opt[int64]) time.Duration {
	if !ttl.Set {
		return DefaultLease
	}
	ms := min(max(ttl.Value, MinHeartbeatLease.Milliseconds()), MaxHeartbeatLease.Milliseconds())
	return time.Duration(ms) * time.Millisecond
}

func staleOwner(data StalePresence) *Error {
	message := "the agent is unknown; register first"
	if data.Current > 0 {
		message = "another registration of this agent is current, or this one is finished; register again"
	}
	return &Error{Code: CodeStalePresenceOwner, Message: message, Data: data}
}
