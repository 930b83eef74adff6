package core

import (
	"context"
	"encoding/json"
	"time"
)

// Status is an agent's presence.
type Status string

// The statuses.
const (
	StatusOnline  Status = "online"
	StatusStale   Status = "stale"
	StatusOffline Status = "offline"
)

// Agent is a registered agent as it is stored.
type Agent struct {
	ID           string
	CLI          string // codex, gemini, claude or other
	Capabilities []string
	Topics       []string
	Metadata     json.RawMessage // an object
	ProjectID    string          // "": none
	SessionID    string          // "": none
	HostID       string          // "": none
	Locators     json.RawMessage // the normalised transport locators, an array

	Generation   int64  // of the registration that stands, from 1
	Status       Status // stored; readers want EffectiveStatus
	Final        bool   // the generation is finished for good
	RegisteredAt Instant
	LastSeen     Instant
	LeaseExpires Instant

	Step         Opt[int64]         // the agent's own count of its work
	StepAt       Instant            // when it last grew, or the registration
	StepDeadline Opt[time.Duration] // how long it may stand still

	// Holds are the roles that this registration acknowledged: hints, the roles
	// decide.
	Holds []RoleHold

	// DueAt is the deadline under which the presence sweep finds the agent; 0
	// when it needs no sweep. It may be early, never late.
	DueAt Instant

	// TouchedAt orders the writes by agents, to the microsecond: the start of the
	// operation that wrote last, or just past what it met.
	TouchedAt time.Time
}

// RegisterRequest asks for a new generation of an agent.
type RegisterRequest struct {
	AgentID      string
	CLI          string
	TimeoutSec   Opt[float64] // null is given as 0
	Topics       []string
	Capabilities []string
	Metadata     json.RawMessage // an object or nil

	// ProjectID, SessionID, HostID: a value that is not a text is given as the
	// empty text, which is refused with the field's own code.
	ProjectID Opt[string]
	SessionID Opt[string]
	HostID    Opt[string]
	// TransportLocators is the JSON value as sent: an array, or a string that
	// holds one.
	TransportLocators Opt[json.RawMessage]

	Step           Opt[int64]
	StepDeadlineMs Opt[int64]

	Fences      Fences // the generation is not read: a register always takes over
	Idempotency Opt[IdempotencyKey]
}

// Registration is the answer to a register: the generation to fence with and
// the lease to keep up.
type Registration struct {
	AgentID      string   `json:"agent_id"`
	LeaseID      string   `json:"lease_id"` // fresh, stored nowhere
	Generation   int64    `json:"presence_generation"`
	Status       Status   `json:"status"`
	LastSeen     Instant  `json:"last_seen_ms"`
	LeaseExpires Instant  `json:"lease_expires_ms"`
	ServerTime   Instant  `json:"server_time_ms"`
	Identity     Identity `json:"identity"`
	// Replayed tells that an earlier try of the same request had done it.
	Replayed bool `json:"-"`
}

// HeartbeatRequest extends an agent's lease.
type HeartbeatRequest struct {
	AgentID        string
	TTLMs          Opt[int64] // clamped to 1 s..1 day; null is given as 1000
	Step           Opt[int64]
	StepDeadlineMs Opt[int64]
	Fences         Fences
}

// Beat is the answer to a heartbeat.
type Beat struct {
	AgentID      string
	LeaseExpires Instant
	ServerTime   Instant
	Identity     Identity
	Replayed     bool
}

// BatchHeartbeatRequest extends the leases of the agents of one host.
type BatchHeartbeatRequest struct {
	Agents           []AgentBeat // 1..100
	TTLMs            Opt[int64]
	HubInstanceID    Opt[string]
	StoreFingerprint Opt[string]
}

// AgentBeat is one agent of a batch.
type AgentBeat struct {
	AgentID        string
	Generation     Opt[int64]
	Step           Opt[int64]
	StepDeadlineMs Opt[int64]
}

// BeatResult is one agent's outcome in a batch: Err is nil when its lease was
// extended.
type BeatResult struct {
	AgentID      string
	LeaseExpires Instant
	Err          *Error
}

// DeregisterRequest takes an agent offline.
type DeregisterRequest struct {
	AgentID string
	Final   bool // finish the generation: its late heartbeats are refused
	Fences  Fences
}

// Deregistration is the answer to a deregister; its status is offline.
type Deregistration struct {
	AgentID  string
	Identity Identity
}

// ReportRequest reports a status in the agent's own words.
type ReportRequest struct {
	AgentID string
	Status  string
	Fences  Fences
}

// Report is the answer to a status report.
type Report struct {
	AgentID    string
	Status     Status // as stored
	Reported   string // as given, trimmed and in lower case
	ReportedAt Instant
	Snapshot   AgentSnapshot
	Identity   Identity
}

// StalePresence is the data of STALE_PRESENCE_OWNER: what the refused caller
// needs to join again.
type StalePresence struct {
	AgentID string
	// Current is the agent's generation; 0 when the agent is unknown.
	Current int64
	// LeaseExpires is the lease a heartbeat would have granted.
	LeaseExpires Instant
	ServerTime   Instant
	Identity     Identity
}

// AgentQuery asks for a page of the agents.
type AgentQuery struct {
	Status Opt[Status] // effective
	Topic  Opt[string]
	Limit  int // 1..100; 0: 50
	Cursor string
}

// AgentPage is a page of the agents in order of their ids. With a filter it may
// hold fewer than asked, or none, and still have a next page.
type AgentPage struct {
	Agents     []AgentView
	NextCursor string // "" at the end
}

// AgentView is an agent as a reader sees it at one moment.
type AgentView struct {
	Agent
	Effective Status
	Hung      bool
	HungSince Instant // when its deadline passed; 0 unless hung
}

// AgentSweep counts what a presence sweep did.
type AgentSweep struct {
	Stale   int // online agents it marked stale
	Offline int // stale agents it marked offline
	Moved   int // early due entries it moved to their deadline
	Lost    int // agents that changed between its read and its write
	Lag     time.Duration
	More    bool
}

// AgentRegistration is the write of a register. The store makes it atomic:
// generation + 1, status online, and every field below replaced, except that an
// identity field that is not set keeps its value.
type AgentRegistration struct {
	AgentID      string
	CLI          string
	Capabilities []string
	Topics       []string
	Metadata     json.RawMessage
	ProjectID    Opt[string]
	SessionID    Opt[string]
	HostID       Opt[string]
	Locators     Opt[json.RawMessage]
	Step         Opt[int64]
	StepDeadline Opt[time.Duration]
	LeaseExpires Instant
	// LegacyCandidate: the agent may lead the legacy role, and is to be found as
	// such.
	LegacyCandidate bool
	WriteStamp
}

// WriteStamp is carried by every write: a retry recognises its own write by the
// id, and the start of the operation keeps a request that was delayed on its
// way from undoing what later operations did.
type WriteStamp struct {
	WriteID string
	Started time.Time // to the microsecond
}

// AgentHeartbeat is the write of a heartbeat.
type AgentHeartbeat struct {
	AgentID      string
	Generation   Opt[int64]
	LeaseExpires Instant
	Step         Opt[int64]
	StepDeadline Opt[time.Duration]
	WriteStamp
}

// AgentStatusChange is the write of a deregister or a status report.
type AgentStatusChange struct {
	AgentID    string
	Generation Opt[int64]
	Status     Status
	Final      bool
	WriteStamp
}

// AgentWrite is the outcome of a write on an agent.
type AgentWrite struct {
	// Agent is the agent after the write or, when it was refused, as it stands
	// (the zero Agent when there is none).
	Agent Agent
	// Refused: the agent is unknown, its generation is another, or finished.
	Refused bool
	// Replayed: an earlier try of this write had done it.
	Replayed bool
}

// AgentScan asks the store for a page of agents in order of their ids.
type AgentScan struct {
	Topic string // "": all agents
	After string // the id to continue after
	Limit int
}

// AgentScanPage is a page of agents. Last is the last id looked at, also when
// its agent turned out not to match; Done tells that none follows it.
type AgentScanPage struct {
	Agents []Agent
	Last   string
	Done   bool
}

// DueScan asks the store for agents whose due entry lies before a moment.
type DueScan struct {
	Before Instant
	After  string // position of a previous page, "" at first
	Limit  int
}

// DuePage is a page of due agents in order of their due entries. Oldest is the
// first entry's deadline (0 when the page is empty).
type DuePage struct {
	Agents []Agent
	Oldest Instant
	Next   string // position to continue from; "" when none is left
	// Unreadable is the error of the first item that cannot be read; the page leaves
	// such items out.
	Unreadable error
}

// AgentTransition is the sweep's write: from what it saw, to the next status
// and due entry. It applies only where the agent still is what the sweep saw.
type AgentTransition struct {
	Seen Agent   // the generation, status and lease it is conditional on
	To   Status  // the same status moves the due entry only
	Due  Instant // the next deadline; 0 removes the entry
	WriteStamp
}

// PresenceStore keeps the agents. Reads are strongly consistent except where
// said; an agent a store once had is never forgotten, so that its generation
// never goes back.
type PresenceStore interface {
	// RegisterAgent applies r whatever the agent's state is.
	RegisterAgent(ctx context.Context, r AgentRegistration) (AgentWrite, error)
	// ReadRegistration reads, in one request, the agent (the zero Agent when it
	// is unknown) and a stored answer.
	ReadRegistration(ctx context.Context, agentID, recordID string) (Agent, Opt[IdempotencyRecord], error)
	// RegisterAgentOnce applies r together with the stored answer, where the
	// agent's generation is the one seen and no answer is stored that is still
	// valid at the write's start. It is false, with nothing done, when that does
	// not hold any more.
	RegisterAgentOnce(ctx context.Context, r AgentRegistration, seen Agent, answer IdempotencyRecord) (bool, error)
	// HeartbeatAgent extends a lease and makes the agent online. A write that
	// started before the agent's latest change leaves it alone and succeeds.
	HeartbeatAgent(ctx context.Context, b AgentHeartbeat) (AgentWrite, error)
	// ChangeAgentStatus sets a status and leaves the lease alone.
	ChangeAgentStatus(ctx context.Context, c AgentStatusChange) (AgentWrite, error)
	// ReadAgent returns one agent; false when it is unknown.
	ReadAgent(ctx context.Context, agentID string) (Agent, bool, error)
	// ScanAgents returns a page of agents. The agents are read strongly
	// consistent; which ids there are may lag a moment behind.
	ScanAgents(ctx context.Context, s AgentScan) (AgentScanPage, error)
	// DueAgents returns a page of the agents that may need a sweep; which they
	// are may lag a moment behind.
	DueAgents(ctx context.Context, s DueScan) (DuePage, error)
	// TransitionAgent applies t; false when the agent changed meanwhile.
	TransitionAgent(ctx context.Context, t AgentTransition) (bool, error)
}
