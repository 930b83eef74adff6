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
}

// LegacyRole is the snapshot of the legacy cto role (contract 4.9). "" and 0
// stand for null where the contract has it.
type LegacyRole struct {
	Role               string
	Status             string // active, electable or offline
	Leader             string
	PreviousLeader     string
	Epoch              int64
	LeaseExpires       Instant
	CandidateSource    string
	CandidateCount     int64
	LiveCandidateCount int64
	PendingCount       int64
	TransferredCount   int64
	LastTransition     Instant
	LastReason         string
	Candidates         []LegacyCandidate
}

// LegacyCandidate is a candidate of the legacy cto role.
type LegacyCandidate struct {
	AgentID      string
	Status       Status
	Source       string
	Priority     float64
	LastSeen     Instant
	LeaseExpires Instant
}

// Status answers a status query (contract 2.6, 2.7). It writes nothing. Cost:
// one round trip; two for the scope trace, by way of an index.
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
	snapshot.Pending = pending
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
	r.Roles = map[string]LegacyRole{legacyRole: emptyLegacyRole()}
	if !metrics {
		return nil
	}
	counted := inBackground(func() error {
		counts, err := h.jobs.ReadJobCounts(ctx)
		r.Assigns = &counts
		return err
	})
	depths, err := h.depths(ctx)
	if failed := counted(); failed != nil {
		return fmt.Errorf("read job counts: %w", failed)
	}
	if err != nil {
		return err
	}
	r.Queues = &depths
	return nil
}

// legacyRole is the one role of the legacy interface.
const legacyRole = "cto"

// emptyLegacyRole is the snapshot of a role that nobody ever held.
func emptyLegacyRole() LegacyRole {
	return LegacyRole{Role: legacyRole, Status: string(StatusOffline), LastReason: "init", Candidates: []LegacyCandidate{}}
}
