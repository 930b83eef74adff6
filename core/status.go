package core

import (
	"context"
	"fmt"
)

// The scopes of a status query; any other answers the identity only.
const (
	StatusScopeHub   = "hub"
	StatusScopeQueue = "queue"
	StatusScopeAgent = "agent"
	StatusScopeTrace = "trace"
)

// StatusQuery asks for the state of the hub, an agent or a trace.
type StatusQuery struct {
	Scope          string
	AgentID        string
	TraceID        string
	IncludeMetrics bool
	Fences         Fences // the generation is not read
}

// StatusReport answers a status query; what the scope did not ask for is nil.
type StatusReport struct {
	Identity Identity
	Hub      *HubState
	Roles    map[string]LegacyRole
	Queues   *QueueDepths
	Assigns  *AssignCounts
	Agent    *AgentSnapshot
	// Trace holds the messages of a trace, oldest first; not nil when the scope
	// asked for one. TraceCut tells that the newest are left out.
	Trace    []TraceMessage
	TraceCut bool
}

// HubState is the hub's own state.
type HubState struct {
	State      string // healthy
	UptimeMs   int64  // since the identity was made: the hub has no process
	AuditStore string
}

// QueueDepths counts the pending messages, as of a moment.
type QueueDepths struct {
	Urgent, Normal, DeadLetters int64
	AverageDeliveryMs           int64
	AsOf                        Instant
}

// AssignCounts counts the assignments by state, as of a moment.
type AssignCounts struct {
	Queued, Running, Failed, TimedOut int64
	AsOf                              Instant
}

// AgentSnapshot is an agent in a status answer.
type AgentSnapshot struct {
	AgentID  string
	Status   Status // effective
	Pending  int64
	LastSeen Instant
	Topics   []string
	// Legacy is what an agent that may lead the legacy role has to do with it.
	Legacy *LegacyStanding
}

// LegacyStanding is an agent's place in the legacy role.
type LegacyStanding struct {
	Source   string
	Priority float64
	Leader   bool
}

// Status answers a status query (contract 2.6, 2.7). It writes nothing. Cost:
// one round trip, and one more where the legacy role has candidates or the agent
// has roles; two for the scope trace, by way of an index.
//
// Errors: STALE_HUB_INSTANCE, STORE_FINGERPRINT_MISMATCH, INVALID_ARGUMENT.
func (h *Hub) Status(ctx context.Context, q StatusQuery) (StatusReport, error) {
	identity, err := h.checkIdentity(ctx, q.Fences)
	if err != nil {
		return StatusReport{}, err
	}
	report := StatusReport{Identity: identity}
	now := InstantOf(h.clock.Now())
	switch q.Scope {
	case StatusScopeHub, StatusScopeQueue:
		err = h.describeHub(ctx, &report, now, q.IncludeMetrics)
	case StatusScopeAgent:
		report.Agent, err = h.agentSnapshot(ctx, q.AgentID, now)
	case StatusScopeTrace:
		if q.TraceID == "" {
			break
		}
		if err := checkID("trace_id", q.TraceID); err != nil {
			return StatusReport{}, err
		}
		report.Trace, report.TraceCut, err = h.trace(ctx, q.TraceID, now)
	}
	return report, err
}

func (h *Hub) agentSnapshot(ctx context.Context, agentID string, now Instant) (*AgentSnapshot, error) {
	if agentID == "" {
		return nil, nil
	}
	if err := checkID("agent_id", agentID); err != nil {
		return nil, err
	}
	counted := h.pending(ctx, agentID, now)
	agent, found, err := h.presence.ReadAgent(ctx, agentID)
	pending, failed := counted()
	switch {
	case err != nil:
		return nil, fmt.Errorf("read agent: %w", err)
	case failed != nil:
		return nil, failed
	case !found:
		return nil, nil
	}
	snapshot := agent.snapshot(now)
	posts, _, err := h.posts(ctx, agent, now)
	if err != nil {
		return nil, err
	}
	ofRoles, err := h.pendingOf(ctx, posts, now)
	if err != nil {
		return nil, err
	}
	snapshot.Pending = min(pending+ofRoles, maxPendingCount)
	snapshot.Legacy = agent.legacyStanding(posts, now)
	return &snapshot, nil
}

// pending counts an agent's messages while the caller does something else.
func (h *Hub) pending(ctx context.Context, agentID string, now Instant) func() (int64, error) {
	var pending int64
	wait := inBackground(func() error {
		var err error
		pending, err = h.messages.CountInbox(ctx, agentID, now, maxPendingCount)
		return err
	})
	return func() (int64, error) {
		if err := wait(); err != nil {
			return 0, fmt.Errorf("count pending messages: %w", err)
		}
		return pending, nil
	}
}

func (h *Hub) describeHub(ctx context.Context, r *StatusReport, now Instant, metrics bool) error {
	r.Hub = &HubState{
		State:      HubHealthy,
		UptimeMs:   now.Sub(r.Identity.CreatedAt).Milliseconds(),
		AuditStore: r.Identity.StoreType,
	}
	var cto LegacyRole
	read := inBackground(func() (err error) {
		cto, err = h.legacySnapshot(ctx)
		return err
	})
	var depths QueueDepths
	var counts AssignCounts
	var err error
	if metrics {
		counted := inBackground(func() (err error) {
			counts, err = h.jobs.ReadJobCounts(ctx)
			return err
		})
		depths, err = h.depths(ctx)
		if failed := counted(); err == nil && failed != nil {
			err = fmt.Errorf("read job counts: %w", failed)
		}
	}
	if failed := read(); err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	r.Roles = map[string]LegacyRole{legacyRole: cto}
	if !metrics {
		return nil
	}
	r.Queues, r.Assigns = &depths, &counts
	return nil
}
