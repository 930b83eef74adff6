package functions

import (
	"context"
	"time"

	"drawbridge/core"
)

// --- the answer of both methods (contract 2.6)

// statusResponse holds what the scope asked for.
type statusResponse struct {
	Hub     *hubView                  `json:"hub,omitempty"`
	Roles   map[string]legacyRoleView `json:"roles,omitempty"`
	Queues  *queuesView               `json:"queues,omitempty"`
	Assigns *assignsView              `json:"assigns,omitempty"`
	Agent   *snapshotView             `json:"agent,omitempty"`
	Trace   []messageView             `json:"trace,omitzero" doc:"The messages of the trace, oldest first."`
	// TraceTruncated is there when the trace is too long for one answer.
	TraceTruncated bool `json:"trace_truncated,omitempty" doc:"The newest messages are left out."`
	identityView
}

type hubView struct {
	State             string `json:"state"`
	UptimeMs          int64  `json:"uptime_ms" doc:"Since the hub's identity was made: the hub has no process."`
	RealtimeTransport string `json:"realtime_transport"`
	AuditStore        string `json:"audit_store"`
	identityView
}

type queuesView struct {
	UrgentDepth   int64        `json:"urgent_depth"`
	NormalDepth   int64        `json:"normal_depth"`
	DLQDepth      int64        `json:"dlq_depth"`
	AvgDeliveryMs int64        `json:"avg_delivery_ms"`
	AsOfMs        core.Instant `json:"as_of_ms"`
}

type assignsView struct {
	Queued   int64        `json:"queued"`
	Running  int64        `json:"running"`
	Failed   int64        `json:"failed"`
	TimedOut int64        `json:"timed_out"`
	AsOfMs   core.Instant `json:"as_of_ms"`
}

type snapshotView struct {
	AgentID    string       `json:"agent_id"`
	Status     core.Status  `json:"status" doc:"The effective status: what the lease says now."`
	Pending    int64        `json:"pending"`
	LastSeenMs core.Instant `json:"last_seen_ms"`
	Topics     []string     `json:"topics"`
	// Roles is there for candidates of the legacy role.
	Roles map[string]standingView `json:"roles,omitempty"`
}

// standingView is an agent's place in the legacy role.
type standingView struct {
	CandidateSource string  `json:"candidate_source"`
	Priority        float64 `json:"priority"`
	Leader          bool    `json:"leader"`
}

// legacyRoleView is the snapshot of the legacy cto role (contract 4.9).
type legacyRoleView struct {
	Role                  string                `json:"role"`
	Status                string                `json:"status"`
	LeaderAgentID         *string               `json:"leader_agent_id"`
	PreviousLeaderAgentID *string               `json:"previous_leader_agent_id"`
	LeaderEpoch           int64                 `json:"leader_epoch"`
	LeaseExpiresMs        *core.Instant         `json:"lease_expires_ms"`
	CandidateSource       *string               `json:"candidate_source"`
	CandidateCount        int64                 `json:"candidate_count"`
	LiveCandidateCount    int64                 `json:"live_candidate_count"`
	PendingCount          int64                 `json:"pending_count"`
	TransferredCount      int64                 `json:"transferred_count"`
	LastTransitionMs      *core.Instant         `json:"last_transition_ms"`
	LastReason            string                `json:"last_reason"`
	Candidates            []legacyCandidateView `json:"candidates"`
}

type legacyCandidateView struct {
	AgentID        string       `json:"agent_id"`
	Status         core.Status  `json:"status"`
	Source         string       `json:"source"`
	Priority       float64      `json:"priority"`
	LastSeenMs     core.Instant `json:"last_seen_ms"`
	LeaseExpiresMs core.Instant `json:"lease_expires_ms"`
}

// realtimeTransport is how the hub reaches agents: it does not, they ask.
const realtimeTransport = "none"

func statusResponseOf(r core.StatusReport) statusResponse {
	answer := statusResponse{Trace: traceViewOf(r.Trace), TraceTruncated: r.TraceCut, identityView: identityViewOf(r.Identity)}
	if r.Hub != nil {
		answer.Hub = &hubView{
			State:             r.Hub.State,
			UptimeMs:          r.Hub.UptimeMs,
			RealtimeTransport: realtimeTransport,
			AuditStore:        r.Hub.AuditStore,
			identityView:      identityViewOf(r.Identity),
		}
	}
	if r.Roles != nil {
		answer.Roles = map[string]legacyRoleView{}
		for name, role := range r.Roles {
			answer.Roles[name] = legacyRoleViewOf(role)
		}
	}
	if q := r.Queues; q != nil {
		answer.Queues = &queuesView{
			UrgentDepth: q.Urgent, NormalDepth: q.Normal, DLQDepth: q.DeadLetters,
			AvgDeliveryMs: q.AverageDeliveryMs, AsOfMs: q.AsOf,
		}
	}
	if a := r.Assigns; a != nil {
		answer.Assigns = &assignsView{Queued: a.Queued, Running: a.Running, Failed: a.Failed, TimedOut: a.TimedOut, AsOfMs: a.AsOf}
	}
	if r.Agent != nil {
		answer.Agent = snapshotViewOf(*r.Agent)
	}
	return answer
}

func snapshotViewOf(s core.AgentSnapshot) *snapshotView {
	view := &snapshotView{
		AgentID: s.AgentID, Status: s.Status, Pending: s.Pending, LastSeenMs: s.LastSeen, Topics: orEmpty(s.Topics),
	}
	if l := s.Legacy; l != nil {
		view.Roles = map[string]standingView{"cto": {CandidateSource: l.Source, Priority: l.Priority, Leader: l.Leader}}
	}
	return view
}

func legacyRoleViewOf(r core.LegacyRole) legacyRoleView {
	view := legacyRoleView{
		Role:                  r.Role,
		Status:                r.Status,
		LeaderAgentID:         orNull(r.Leader),
		PreviousLeaderAgentID: orNull(r.PreviousLeader),
		LeaderEpoch:           r.Epoch,
		LeaseExpiresMs:        orNull(r.LeaseExpires),
		CandidateSource:       orNull(r.CandidateSource),
		CandidateCount:        r.CandidateCount,
		LiveCandidateCount:    r.LiveCandidateCount,
		PendingCount:          r.PendingCount,
		TransferredCount:      r.TransferredCount,
		LastTransitionMs:      orNull(r.LastTransition),
		LastReason:            r.LastReason,
		Candidates:            []legacyCandidateView{},
	}
	for _, candidate := range r.Candidates {
		view.Candidates = append(view.Candidates, legacyCandidateView{
			AgentID:        candidate.AgentID,
			Status:         candidate.Status,
			Source:         candidate.Source,
			Priority:       candidate.Priority,
			LastSeenMs:     candidate.LastSeen,
			LeaseExpiresMs: candidate.LeaseExpires,
		})
	}
	return view
}

// --- GET /bridge/status

type readStatusRequest struct {
	Scope          string           `json:"scope" in:"line,default=\"hub\"" doc:"hub, queue, agent or trace; any other answers the identity only."`
	AgentID        core.Opt[string] `json:"agent_id" in:"id" doc:"The agent of the scope agent."`
	TraceID        core.Opt[string] `json:"trace_id" in:"id" doc:"The trace of the scope trace."`
	IncludeMetrics string           `json:"include_metrics" in:"line,default=\"1\"" doc:"0 leaves the counts out."`
}

func readStatus(ctx context.Context, c *call, r readStatusRequest) (statusResponse, error) {
	report, err := c.hub.Status(ctx, core.StatusQuery{
		Scope:          r.Scope,
		AgentID:        r.AgentID.Value,
		TraceID:        r.TraceID.Value,
		IncludeMetrics: r.IncludeMetrics != "0",
	})
	if err != nil {
		return statusResponse{}, err
	}
	return statusResponseOf(report), nil
}

// --- POST /bridge/status (contract 2.7): a report, or a query

type statusRequest struct {
	AgentID        core.Opt[string] `json:"agent_id" in:"id" doc:"With status: the agent that reports. Without: the agent of the scope agent."`
	Status         core.Opt[string] `json:"status" in:"line" doc:"What the agent says of itself: stale and offline are stored as such, any other word as online."`
	Scope          string           `json:"scope" in:"line,default=\"hub\"" doc:"Of a query: hub, queue, agent or trace; any other answers the identity only."`
	TraceID        core.Opt[string] `json:"trace_id" in:"id" doc:"Of a query: the trace of the scope trace."`
	IncludeMetrics bool             `json:"include_metrics" in:"boolean,default=true" doc:"Of a query: false leaves the counts out."`
	fences
}

// reports tells a report from a query.
func (r statusRequest) reports() bool { return r.AgentID.Value != "" && r.Status.Value != "" }

func (r statusRequest) actingAgents() []actingAgent {
	if !r.reports() {
		return nil
	}
	return []actingAgent{{"agent_id", trimmed(r.AgentID)}}
}

// statusAnswer is the answer to a report, or to a query.
type statusAnswer struct {
	AgentID        string        `json:"agent_id,omitempty"`
	Status         core.Status   `json:"status,omitempty" doc:"Of a report: the status as it is stored."`
	ReportedStatus string        `json:"reported_status,omitempty"`
	ReportedAtMs   core.Instant  `json:"reported_at_ms,omitempty"`
	Snapshot       *snapshotView `json:"snapshot,omitempty"`
	statusResponse
}

func reportStatus(ctx context.Context, c *call, r statusRequest) (statusAnswer, error) {
	if !r.reports() {
		return queryStatus(ctx, c, r)
	}
	done, err := c.hub.ReportStatus(ctx, core.ReportRequest{AgentID: trimmed(r.AgentID), Status: r.Status.Value, Fences: r.fences.core()})
	if err != nil {
		return statusAnswer{}, staleData(err, staleStatusOf(core.StoredStatus(r.Status.Value)))
	}
	return statusAnswer{
		AgentID:        done.AgentID,
		Status:         done.Status,
		ReportedStatus: done.Reported,
		ReportedAtMs:   done.ReportedAt,
		Snapshot:       snapshotViewOf(done.Snapshot),
		statusResponse: statusResponse{identityView: identityViewOf(done.Identity)},
	}, nil
}

func queryStatus(ctx context.Context, c *call, r statusRequest) (statusAnswer, error) {
	report, err := c.hub.Status(ctx, core.StatusQuery{
		Scope:          r.Scope,
		AgentID:        r.AgentID.Value,
		TraceID:        r.TraceID.Value,
		IncludeMetrics: r.IncludeMetrics,
		Fences:         r.identityFences.core(),
	})
	if err != nil {
		return statusAnswer{}, err
	}
	return statusAnswer{statusResponse: statusResponseOf(report)}, nil
}

// --- / and /status (contract 2.20)

type rootRequest struct{}

// rootResponse is the hub's state in one flat object. What the reference has a
// process, a pipe or a session for is 0, empty or null.
type rootResponse struct {
	statusResponse
	Sessions               int            `json:"sessions"`
	PID                    int            `json:"pid"`
	Port                   *int           `json:"port"`
	AuthMode               string         `json:"auth_mode"`
	IdleTimeoutMs          int64          `json:"idle_timeout_ms"`
	LastRequestAt          string         `json:"last_request_at" doc:"RFC 3339: this request."`
	PipePath               *string        `json:"pipe_path"`
	Pipe                   pipeView       `json:"pipe"`
	AssignCallbackPipePath *string        `json:"assign_callback_pipe_path"`
	AssignCallbackPipe     pipeClients    `json:"assign_callback_pipe"`
	SpawnTrace             spawnTraceView `json:"spawn_trace"`
	Version                string         `json:"version"`
}

type pipeClients struct {
	Path    *string `json:"path"`
	Clients int     `json:"clients"`
}

type pipeView struct {
	pipeClients
	Protocol        string `json:"protocol"`
	PendingMessages int    `json:"pending_messages"`
}

type spawnTraceView struct {
	MaxPerSec           int `json:"max_per_sec"`
	MaxTotalDescendants int `json:"max_total_descendants"`
}

func readRoot(ctx context.Context, c *call, _ rootRequest) (rootResponse, error) {
	report, err := c.hub.Status(ctx, core.StatusQuery{Scope: core.StatusScopeHub, IncludeMetrics: true})
	if err != nil {
		return rootResponse{}, err
	}
	answer := rootResponse{
		statusResponse: statusResponseOf(report),
		AuthMode:       "token-required",
		LastRequestAt:  c.clock.Now().UTC().Format(time.RFC3339Nano),
		Pipe:           pipeView{Protocol: "ndjson"},
		Version:        c.version,
	}
	if c.caller == nil {
		answer.hideAgents()
	}
	return answer, nil
}

// hideAgents takes the agent ids out of an answer to anybody.
func (r *rootResponse) hideAgents() {
	for name, role := range r.Roles {
		role.LeaderAgentID, role.PreviousLeaderAgentID, role.Candidates = nil, nil, []legacyCandidateView{}
		r.Roles[name] = role
	}
}
