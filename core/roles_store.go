package core

import (
	"context"
	"encoding/json"
)

// RoleBoard is what a step of a role is planned from.
type RoleBoard struct {
	Role       Role // not stored when there is none
	Candidates []RoleCandidate
	Settings   RoleSettings
}

// RoleExpectation is what a write expects of the role; what is not set is not
// compared. An empty ActivationID expects none.
type RoleExpectation struct {
	Version       Opt[int64]
	Epoch         Opt[int64]
	ActivationSeq Opt[int64]
	ActivationID  Opt[string]
}

// RolePatch replaces fields of a role; what is not set stays. The zero value
// clears a field; a CharterAckedEpoch of -1 does.
type RolePatch struct {
	State              Opt[RoleState]
	Holder             Opt[string]
	PreviousHolder     Opt[string]
	ActivationID       Opt[string]
	ActivationDeadline Opt[Instant]
	HolderLeaseExpires Opt[Instant]
	CharterVersion     Opt[string]
	CharterAckedEpoch  Opt[int64]
	RetryCount         Opt[int64]
	NextProbe          Opt[Instant]
	BlockedReason      Opt[string]
	LastTransition     Instant
	LastReason         Opt[string]
}

// RoleUpdate is one conditional write on a role that nobody has read: the
// version grows by one, and where Reserve is set epoch and activation_seq do.
type RoleUpdate struct {
	Wire     string
	Expected RoleExpectation // the version is always set
	Patch    RolePatch
	// Reserve gives the next epoch. With Displace the previous holder becomes
	// who holds the role now, which must not be who is to hold it.
	Reserve  bool
	Displace bool
	// Due is the latest moment at which the sweep has to look at the role; 0
	// leaves its entry alone.
	Due Instant
	WriteStamp
}

// RoleOutcome is what became of a write on a role.
type RoleOutcome struct {
	Done     bool
	Replayed bool // an earlier try of this write had done it
	// Role is the role after the write or, when it was refused, as it stands
	// (not stored when there is none).
	Role Role
	// Stale is the acting agent as it stands when its fence did not hold.
	Stale Opt[Agent]
}

// RoleStep replaces a role that was read: all of it or, when the role is not
// what was seen any more, nothing.
type RoleStep struct {
	Seen, Next Role
	// Candidate is rewritten with it, Message delivered with it.
	Candidate Opt[RoleCandidate]
	Message   Opt[Delivery]
	// Settings is the generation that the hub's settings must have.
	Settings Opt[int64]
	// Fence is the acting agent's.
	Fence Opt[AgentFence]
	WriteStamp
}

// RoleAck makes a reserved role active, where it still is reserved as the
// acknowledgement says and the agent is live under its generation.
type RoleAck struct {
	Wire           string
	Holder         string
	Generation     int64
	Epoch          int64
	ActivationSeq  int64
	ActivationID   string
	CharterVersion string
	WriteStamp
}

// RoleAckOutcome is what became of an acknowledgement. When it was refused,
// Agent is set where the agent did not fit.
type RoleAckOutcome struct {
	Done  bool
	Role  Role // as it stands when it was refused, unless only the agent did not fit
	Agent Opt[Agent]
}

// RoleAuthority is the condition under which somebody acts for a role: it is
// active, held by Holder under Epoch, and Holder is live.
type RoleAuthority struct {
	Wire       string // LegacyWire for the legacy role
	Holder     string
	Generation Opt[int64] // the holder's
	Epoch      int64
	At         Instant
}

// LegacyWire stands for the legacy cto role where others have their wire form.
const LegacyWire = "cto"

// InboxGuard is what has to hold beside a change of deliveries.
type InboxGuard struct {
	Agent Opt[AgentFence]
	Role  Opt[RoleAuthority]
}

// GuardRefusal tells which part of a guard did not hold.
type GuardRefusal struct {
	Agent Opt[Agent] // as it stands
	Role  bool       // the role is not held that way any more
}

// Refused tells whether any part did not hold.
func (g GuardRefusal) Refused() bool { return g.Agent.Set || g.Role }

// CandidateWrite adds or changes a candidate; what is not set keeps its value,
// or takes its default.
type CandidateWrite struct {
	Wire          string
	AgentID       string
	Source        Opt[string]
	Priority      Opt[int64]
	Locators      Opt[json.RawMessage]
	ExcludedUntil Opt[Instant]
	Fence         Opt[AgentFence]
	WriteStamp
}

// RoleScan asks for a page of roles in the order of their wire forms.
type RoleScan struct {
	Project string // "": of all projects
	After   string
	Limit   int
}

// RolePage is a page of roles. Last is the last wire form looked at.
type RolePage struct {
	Roles []Role
	Last  string
	Done  bool
}

// DueRolePage is a page of roles that may need a step, by their wire form.
type DueRolePage struct {
	Wires  []string
	Oldest Instant // the first entry's deadline; 0 when the page is empty
	Next   string
}

// RoleValue is the value attached to a role.
type RoleValue struct {
	Version int64 // 0: none was ever attached
	Epoch   int64 // under which it was written
	Value   json.RawMessage
}

// RoleValueWrite replaces the value where its version is the expected one and
// the authority stands.
type RoleValueWrite struct {
	Authority RoleAuthority
	Expected  int64
	Value     json.RawMessage
	WriteStamp
}

// RoleValueOutcome is what became of it. When it was refused, at least one of
// the others is set to what stands.
type RoleValueOutcome struct {
	Done  bool
	Value Opt[RoleValue]
	Role  Opt[Role]
	Agent Opt[Agent]
}

// SettingsChange replaces the settings that are set.
type SettingsChange struct {
	MasterEnabled  Opt[bool]
	CTOEnabled     Opt[bool]
	LeadEnabled    Opt[bool]
	CharterVersion Opt[string]
	ClosedScopes   Opt[[]string]
	WriteStamp
}

// LegacyState is the legacy cto role as it is stored (contract 1.11).
type LegacyState struct {
	Leader         string
	PreviousLeader string
	Epoch          int64 // grows with every change of the leader
	Source         string
	LastTransition Instant
	LastReason     string
	Transferred    int64
}

// RoleStore keeps the roles. Reads are strongly consistent except where said. A
// role that was stored once is never forgotten.
type RoleStore interface {
	// ReadRole returns one role, not stored when there is none.
	ReadRole(ctx context.Context, wire string) (Role, error)
	// ReadRoles returns the roles of these wire forms in their order.
	ReadRoles(ctx context.Context, wires []string) ([]Role, error)
	// ReadRoleBoard returns a role, its candidates in no order and the settings.
	ReadRoleBoard(ctx context.Context, wire string) (RoleBoard, error)
	// ReadAgents returns the agents that there are of these ids.
	ReadAgents(ctx context.Context, ids []string) ([]Agent, error)
	// UpdateRole applies u in one conditional write.
	UpdateRole(ctx context.Context, u RoleUpdate) (RoleOutcome, error)
	// StepRole applies s.
	StepRole(ctx context.Context, s RoleStep) (RoleOutcome, error)
	// AcknowledgeRole applies a, and leaves the agent a hint that it holds the
	// role.
	AcknowledgeRole(ctx context.Context, a RoleAck) (RoleAckOutcome, error)
	// ForgetHolds removes such hints.
	ForgetHolds(ctx context.Context, agentID string, holds []RoleHold) error
	// ReadAuthority returns a role and an agent as they stand at one moment.
	ReadAuthority(ctx context.Context, wire, agentID string) (Role, Agent, error)

	// PutCandidate applies w. Stale is the agent when the fence does not hold.
	PutCandidate(ctx context.Context, w CandidateWrite) (c RoleCandidate, stale Opt[Agent], err error)
	// ReachCandidate replaces a candidate that is as it was seen; false when it
	// changed meanwhile.
	ReachCandidate(ctx context.Context, wire string, seen, next RoleCandidate) (bool, error)

	// ScanRoles returns a page of roles; which there are may lag a moment behind.
	ScanRoles(ctx context.Context, s RoleScan) (RolePage, error)
	// DueRoles returns a page of the roles that may need a step; which they are
	// may lag a moment behind.
	DueRoles(ctx context.Context, s DueScan) (DueRolePage, error)

	// ReadRoleValue returns the value attached to a role.
	ReadRoleValue(ctx context.Context, wire string) (RoleValue, error)
	// PutRoleValue applies w.
	PutRoleValue(ctx context.Context, w RoleValueWrite) (RoleValueOutcome, error)

	// ReadRoleSettings returns the settings, DefaultRoleSettings at first.
	ReadRoleSettings(ctx context.Context) (RoleSettings, error)
	// ChangeRoleSettings applies c and returns the settings after it.
	ChangeRoleSettings(ctx context.Context, c SettingsChange) (RoleSettings, error)

	// ReadLegacyRole returns the legacy role and the ids of agents that may be
	// its candidates.
	ReadLegacyRole(ctx context.Context) (LegacyState, []string, error)
	// ReplaceLegacyRole stores next where the epoch is still the one seen.
	ReplaceLegacyRole(ctx context.Context, seen, next LegacyState, stamp WriteStamp) (bool, error)
	// ForgetLegacyCandidates removes hints about agents that are no candidates.
	ForgetLegacyCandidates(ctx context.Context, ids []string, olderThan Instant) error
}
