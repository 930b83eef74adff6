package core

import (
	"context"
	"encoding/json"
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
	// Trace holds the messages of a trace in stored view, oldest first; not nil
	// when the scope asked for one.
	Trace []json.RawMessage
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
// one read for the scope agent, none otherwise.
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
		report.describeHub(now, q.IncludeMetrics)
	case StatusScopeAgent:
		report.Agent, err = h.agentSnapshot(ctx, q.AgentID, now)
	case StatusScopeTrace:
		report.trace(q.TraceID)
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
	agent, found, err := h.presence.ReadAgent(ctx, agentID)
	if err != nil {
		return nil, fmt.Errorf("read agent: %w", err)
	}
	if !found {
		return nil, nil
	}
	snapshot := agent.snapshot(now)
	return &snapshot, nil
}

func (r *StatusReport) describeHub(now Instant, metrics bool) {
	r.Hub = &HubState{
		State:      HubHealthy,
		UptimeMs:   now.Sub(r.Identity.CreatedAt).Milliseconds(),
		AuditStore: r.Identity.StoreType,
	}
	r.Roles = map[string]LegacyRole{legacyRole: emptyLegacyRole()}
	if metrics {
		r.Queues = &QueueDepths{AsOf: now}
		r.Assigns = &AssignCounts{AsOf: now}
	}
}

// trace answers with no message: the hub has none yet.
func (r *StatusReport) trace(traceID string) {
	if traceID != "" {
		r.Trace = []json.RawMessage{}
	}
}

// legacyRole is the one role of the legacy interface.
const legacyRole = "cto"

// emptyLegacyRole is the snapshot of a role that nobody ever held.
func emptyLegacyRole() LegacyRole {
	return LegacyRole{Role: legacyRole, Status: string(StatusOffline), LastReason: "init", Candidates: []LegacyCandidate{}}
}
