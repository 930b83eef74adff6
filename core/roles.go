package core

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// A role is held by one agent at a time, under an epoch that grows with every
// reservation and never goes back: whoever acts for a role carries its epoch,
// and a write that carries an earlier one is refused.
//
//	                 reserve: epoch + 1, a message to the candidate
//	  electable ────────────────────────────────────▶ elected-probing
//	   ▲  ▲  ▲                                          │   │
//	   │  │  │ holder's lease passed, released          │   │ deadline missed:
//	   │  │  └───────────────── active ◀────────────────┘   │ candidate excluded,
//	   │  │                        acknowledged in time     │ the next reserved
//	   │  │ no candidate                                    ▼ none left
//	   │  └──────────────────────────────────────────── unreachable ──┐
//	   │ exclusion expired, candidate registered            ▲ retry   │ three times
//	   └──────────────────────────────── quarantined ◀──────┴─────────┘
//
// No process waits for any of it. Each step is one conditional write by whoever
// acts: an ensure, an acknowledgement, a release, a sweep. Deadlines hold when
// they are read, so a step that nobody has taken yet changes no answer.
//
// The authority of an active role lasts as long as its holder's lease, or until
// the role's own bound where that is earlier. Heartbeats write nothing to the
// role: a holder whose lease lapsed holds again when it heartbeats, unless
// somebody was reserved meanwhile. There is one authority, because a
// reservation and a write under the old epoch compare the same item.

// RoleState is the reachability of a role's holder (contract 4.2).
type RoleState string

// The states.
const (
	RoleElectable   RoleState = "electable"       // nobody holds it
	RoleProbing     RoleState = "elected-probing" // reserved, not yet acknowledged
	RoleActive      RoleState = "active"          // acknowledged
	RoleUnreachable RoleState = "unreachable"     // nobody acknowledged; to be tried again
	RoleQuarantined RoleState = "quarantined"     // nobody acknowledged several times
)

// RoleStates lists the states in the contract's order.
var RoleStates = []RoleState{RoleElectable, RoleProbing, RoleActive, RoleUnreachable, RoleQuarantined}

func checkRoleState(s RoleState) error {
	if !slices.Contains(RoleStates, s) {
		return InvalidCode(CodeRoleStateInvalid, "state", fmt.Sprintf("state must be one of %v", RoleStates))
	}
	return nil
}

// RoleTransition is a row of the transition table: what a trigger makes of a
// state, and what has to be done about it.
type RoleTransition struct {
	To      RoleState // "" when the role is removed
	Action  string
	Refused Code // of a trigger that changes nothing but is answered
}

type roleTrigger struct {
	from    RoleState
	trigger string
}

var roleTransitions = map[roleTrigger]RoleTransition{
	{RoleElectable, "candidate_selected"}:              {To: RoleProbing, Action: "reserve_holder"},
	{RoleElectable, "standup_reserved"}:                {To: RoleProbing, Action: "reserve_standup"},
	{RoleElectable, "no_candidate"}:                    {To: RoleElectable, Action: "record_blocked_no_candidate"},
	{RoleElectable, "candidates_excluded"}:             {To: RoleQuarantined, Action: "schedule_exclusion_expiry"},
	{RoleProbing, "probe_succeeded"}:                   {To: RoleProbing, Action: "send_activation"},
	{RoleProbing, "activation_acked"}:                  {To: RoleActive, Action: "record_activation_ack"},
	{RoleProbing, "probe_failed"}:                      {To: RoleUnreachable, Action: "exclude_failed_candidate"},
	{RoleProbing, "wake_failed"}:                       {To: RoleUnreachable, Action: "exclude_failed_candidate"},
	{RoleProbing, "ack_timeout"}:                       {To: RoleUnreachable, Action: "exclude_failed_candidate"},
	{RoleProbing, "holder_lease_expired"}:              {To: RoleElectable, Action: "revoke_holder_epoch_fence"},
	{RoleActive, "holder_lease_expired"}:               {To: RoleElectable, Action: "revoke_holder_preserve_backlog"},
	{RoleActive, "holder_offline"}:                     {To: RoleElectable, Action: "revoke_holder_preserve_backlog"},
	{RoleActive, "transport_failed"}:                   {To: RoleUnreachable, Action: "fence_active_authority"},
	{RoleActive, "charter_reissued"}:                   {To: RoleProbing, Action: "reserve_reack"},
	{RoleUnreachable, "alternate_candidate_available"}: {To: RoleElectable, Action: "failover_candidate"},
	{RoleUnreachable, "retry_due"}:                     {To: RoleProbing, Action: "reserve_retry_epoch"},
	{RoleUnreachable, "retries_exhausted"}:             {To: RoleQuarantined, Action: "schedule_quarantine"},
	{RoleQuarantined, "exclusion_expired"}:             {To: RoleElectable, Action: "restore_candidate_eligibility"},
	{RoleQuarantined, "candidate_registered"}:          {To: RoleElectable, Action: "clear_quarantine"},
	{RoleQuarantined, "locator_registered"}:            {To: RoleElectable, Action: "clear_quarantine"},
	{RoleQuarantined, "capability_registered"}:         {To: RoleElectable, Action: "clear_quarantine"},
}

// NextRoleState is the transition table of contract 4.2 as a pure function. The
// store does not enforce it; whoever plans a step does.
//
// Errors: ROLE_REACHABILITY_STATE_INVALID, INVALID_ROLE_TRANSITION.
func NextRoleState(from RoleState, trigger string) (RoleTransition, error) {
	if err := checkRoleState(from); err != nil {
		return RoleTransition{}, err
	}
	switch trigger {
	case "stale_ack":
		return RoleTransition{To: from, Action: "reject_stale_ack", Refused: CodeStaleEpoch}, nil
	case "scope_closed":
		return RoleTransition{Action: "remove_registry"}, nil
	}
	next, ok := roleTransitions[roleTrigger{from, trigger}]
	if !ok {
		return RoleTransition{}, Refuse(CodeInvalidRoleTransition, fmt.Sprintf("a role that is %s does not take %q", from, trigger))
	}
	return next, nil
}

// The periods of activation (contract 4.6, compat 13).
const (
	ActivationDeadline  = 45 * time.Second // to acknowledge
	StandupDeadline     = time.Minute      // for a fresh session to register and acknowledge
	ExclusionAfterLimit = 2 * time.Minute  // of a candidate that failed FailureLimit times
	FailureLimit        = 3                // failures in a row
	MaxGrace            = 10 * time.Minute // of a hand-over
	MaxRoleValue        = 32 << 10         // bytes of the value attached to a role
	MaxRoleHistory      = 12               // transitions kept with a role
	maxRoleReason       = 128              // bytes
	maxCharterVersion   = 128              // bytes
	maxClosedScopes     = 1000
	firstBackoff        = time.Second
	longestBackoff      = 30 * time.Second
	backoffSpread       = 0.2
)

// Role is a role as it is stored. Zero instants and empty texts stand for null.
type Role struct {
	Key  RoleKey
	Wire string

	State          RoleState
	Holder         string
	PreviousHolder string
	// HolderGeneration is the registration that acknowledged; 0 until then. A
	// newer registration of the same agent has to acknowledge for itself.
	HolderGeneration int64

	Epoch         int64 // grows with every reservation
	Version       int64 // grows with every write
	ActivationSeq int64 // grows with the epoch
	ActivationID  string

	ActivationDeadline Instant
	// HolderLeaseExpires bounds the authority where it is set; otherwise the
	// holder's own lease alone does.
	HolderLeaseExpires Instant
	CharterVersion     string
	CharterAckedEpoch  Opt[int64]
	RetryCount         int64
	NextProbe          Instant
	BlockedReason      string
	LastTransition     Instant
	LastReason         string

	// Successor is who a hand-over under way is for.
	Successor string
	// Closed: the scope was closed. The record stays as a tombstone, so that the
	// numbers above are never given again.
	Closed bool

	// DueAt is where the sweep finds the role; 0 when it needs none. It may be
	// early, never late.
	DueAt Instant
	// History holds the latest transitions, oldest first.
	History []RoleEvent
}

// RoleEvent is a transition in a role's history.
type RoleEvent struct {
	Version int64
	At      Instant
	From    RoleState // "" before the first that is known
	To      RoleState
	Epoch   int64
	Reason  string
	Holder  string
	// Mark is the end of its write's id. By it a write whose answer was lost is
	// recognised when others have written since.
	Mark string
}

// RoleHold is a role that an agent acknowledged: a hint kept with the agent, by
// which its drains find the role's inbox. The role decides.
type RoleHold struct {
	Wire  string
	Epoch int64
}

// RoleCandidate is an agent that may hold a role (contract 1.10).
type RoleCandidate struct {
	AgentID       string
	Source        string // grant, standup or operator
	Priority      int64
	Locators      json.RawMessage // an array
	Failures      int64           // in a row
	ExcludedUntil Instant
	LastProbe     Instant
	LastProbeCode string
	UpdatedAt     Instant
}

// The sources of a candidate.
const (
	CandidateGrant    = "grant"
	CandidateStandup  = "standup"
	CandidateOperator = "operator"
)

// isLive tells whether an agent can act: online with a lease that has not
// passed. The end of the lease itself is too late for a role (contract 4.6).
func (a Agent) isLive(now Instant) bool {
	return a.Status == StatusOnline && a.LeaseExpires > now
}

// authorityEnds is when the holder's authority over the role ends, as far as is
// known: the holder's lease, or the role's own bound where that is earlier; 0
// when there is none.
func (r Role) authorityEnds(holder Agent, now Instant) Instant {
	if r.Holder == "" || holder.ID != r.Holder || holder.Final || !holder.isLive(now) {
		return 0
	}
	if r.HolderGeneration != 0 && holder.Generation != r.HolderGeneration {
		return 0
	}
	if r.HolderLeaseExpires != 0 && r.HolderLeaseExpires < holder.LeaseExpires {
		return r.HolderLeaseExpires
	}
	return holder.LeaseExpires
}

// isHeld tells whether the holder's authority stands at now.
func (r Role) isHeld(holder Agent, now Instant) bool {
	return !r.Closed && r.State == RoleActive && r.authorityEnds(holder, now) > now
}

// effective is the role as a reader sees it at now, whether or not somebody took
// the steps that are due.
func (r Role) effective(holder Agent, now Instant) Role {
	switch {
	case r.State == RoleActive && !r.isHeld(holder, now):
		r.State, r.LastReason = RoleElectable, r.lapse(holder)
		r.PreviousHolder, r.Holder = r.Holder, ""
	case r.State == RoleProbing && r.Holder != "" && passed(r.ActivationDeadline, now):
		r.State, r.LastReason, r.NextProbe = RoleUnreachable, reasonAckTimeout, r.ActivationDeadline
	case r.State == RoleProbing && r.Holder == "" && passed(r.ActivationDeadline, now):
		r.State, r.BlockedReason, r.LastReason = RoleElectable, blockedNoCandidate, blockedNoCandidate
	case r.State == RoleQuarantined && passed(r.NextProbe, now):
		r.State, r.LastReason = RoleElectable, "exclusion_expired"
	}
	return r
}

// passed tells whether a deadline is set and over.
func passed(deadline, now Instant) bool { return deadline != 0 && deadline <= now }

// lapse is why an active role is not held.
func (r Role) lapse(holder Agent) string {
	if holder.Status == StatusOffline {
		return reasonHolderOffline
	}
	return reasonLeaseExpired
}

// ReasonAcknowledged is the reason of the transition to active.
const ReasonAcknowledged = "activation_acked"

// The reasons of transitions that the hub itself makes.
const (
	reasonReserved      = "role_reserved"
	reasonSelected      = "candidate_selected"
	reasonStandup       = "standup_reserved"
	reasonAckTimeout    = "ack_timeout"
	reasonLeaseExpired  = "holder_lease_expired"
	reasonHolderOffline = "holder_offline"
	reasonReleased      = "released"
	reasonHandover      = "handover"
	reasonRegistered    = "candidate_registered"
	reasonScopeClosed   = "scope_closed"
	reasonMasterOff     = "master_off"
	reasonManagerOff    = "manager_disabled"
	blockedNoCandidate  = "no_candidate"
)

// due is the moment at which somebody has to look at the role; 0 for none. An
// active role whose holder's lease is not known is due at once: the sweep moves
// the entry to the lease.
func (r Role) due(holder Agent) Instant {
	switch r.State {
	case RoleProbing:
		if r.ActivationDeadline != 0 {
			return r.ActivationDeadline
		}
		return r.LastTransition
	case RoleActive:
		if ends := r.authorityEnds(holder, 0); ends != 0 {
			return ends
		}
		return r.LastTransition
	case RoleUnreachable, RoleQuarantined:
		return max(r.NextProbe, r.LastTransition)
	}
	return 0
}

// step returns the next version of the role, as a transition now for a reason.
func (r Role) step(to RoleState, now Instant, reason string) Role {
	r.State, r.LastTransition, r.LastReason = to, now, reason
	r.Version++
	return r
}

// reserved returns the role under its next epoch, reserved for a holder ("" for
// a session that has yet to register). The first reservation of all has epoch 0
// and version 0 (contract 4.3).
func (r Role) reserved(holder, activationID string, now, deadline Instant, reason string) Role {
	next := r.step(RoleProbing, now, reason).nextEpoch()
	if next.Holder != holder {
		next.PreviousHolder = next.Holder
	}
	next.Holder, next.HolderGeneration, next.ActivationID, next.ActivationDeadline = holder, 0, activationID, deadline
	next.HolderLeaseExpires, next.CharterAckedEpoch, next.NextProbe, next.BlockedReason = 0, Opt[int64]{}, 0, ""
	next.Successor, next.Closed = "", false
	return next
}

// markBytes is how much of a write's id a mark keeps: of the random part, so that
// two among the few events of a role do not meet.
const markBytes = 8

// Mark is what a role's history keeps of the write's id.
func (s WriteStamp) Mark() string { return s.WriteID[max(len(s.WriteID)-markBytes, 0):] }

func (r Role) nextEpoch() Role {
	r.Epoch++
	r.ActivationSeq++
	return r
}

// vacated returns the role with nobody holding it.
func (r Role) vacated(now Instant, reason string) Role {
	next := r.step(RoleElectable, now, reason)
	if r.Holder != "" {
		next.PreviousHolder = r.Holder
	}
	next.Holder, next.HolderGeneration, next.ActivationID, next.ActivationDeadline = "", 0, "", 0
	next.HolderLeaseExpires, next.CharterAckedEpoch, next.NextProbe, next.Successor = 0, Opt[int64]{}, 0, ""
	return next
}

// AbsentRole is a role that is not stored: its first write has the number 0 for
// everything that counts.
func AbsentRole(key RoleKey, wire string) Role {
	return Role{Key: key, Wire: wire, State: RoleElectable, Epoch: -1, Version: -1, ActivationSeq: -1, LastReason: reasonReserved}
}

// isStored tells whether the role has been written.
func (r Role) isStored() bool { return r.Version >= 0 }

// RoleBackoff is how long a candidate stays excluded after its n-th failure in a
// row, n from 1: doubling from a second to 30, spread by up to a fifth; u is
// uniform in 0..1 (contract 4.6).
func RoleBackoff(n int64, u float64) time.Duration {
	wait := longestBackoff
	if n < 6 { // 2^5 s is beyond the longest
		wait = min(firstBackoff<<max(n-1, 0), longestBackoff)
	}
	spread := 1 + (2*u-1)*backoffSpread
	return time.Duration(float64(wait.Milliseconds())*spread+0.5) * time.Millisecond
}

// exclusion is how long the candidate stays excluded after its latest failure.
func (c RoleCandidate) exclusion(u float64) time.Duration {
	if c.Failures >= FailureLimit {
		return ExclusionAfterLimit
	}
	return RoleBackoff(c.Failures, u)
}

// Reachability is news about a candidate (contract 4.5).
type Reachability struct {
	Failures       Opt[int64] // an explicit count
	ProbeFailed    bool       // wins over ProbeSucceeded
	ProbeSucceeded bool
	ExcludedUntil  Opt[Instant] // 0 clears it
	At             Instant
	Code           Opt[string] // "" clears it
}

// Reach applies news about the candidate.
func (c RoleCandidate) Reach(r Reachability) RoleCandidate {
	switch {
	case r.Failures.Set:
		c.Failures = r.Failures.Value
	case r.ProbeFailed:
		c.Failures++
	case r.ProbeSucceeded:
		c.Failures = 0
	}
	if r.ExcludedUntil.Set {
		c.ExcludedUntil = r.ExcludedUntil.Value
	}
	if r.Code.Set {
		c.LastProbeCode = r.Code.Value
	}
	c.LastProbe, c.UpdatedAt = r.At, r.At
	return c
}

// beforeCandidate orders candidates: priority, then the latest change, then id.
func beforeCandidate(a, b RoleCandidate) int {
	switch {
	case a.Priority != b.Priority:
		return sign(a.Priority > b.Priority)
	case a.UpdatedAt != b.UpdatedAt:
		return sign(a.UpdatedAt > b.UpdatedAt)
	default:
		return sign(a.AgentID < b.AgentID)
	}
}

func sign(first bool) int {
	if first {
		return -1
	}
	return 1
}

// RoleSettings are the hub's switches for its roles. Every manager is on by
// default.
type RoleSettings struct {
	MasterEnabled  bool
	CTOEnabled     bool
	LeadEnabled    bool
	CharterVersion string
	ClosedScopes   []string
	Generation     int64 // grows with every change; 0: never changed
}

// DefaultRoleSettings are the settings of a hub whose operator changed none.
func DefaultRoleSettings() RoleSettings {
	return RoleSettings{MasterEnabled: true, CTOEnabled: true, LeadEnabled: true, ClosedScopes: []string{}}
}

// disabled tells why the manager of a kind is off, "" when it is on.
func (s RoleSettings) disabled(kind RoleKind) string {
	switch {
	case !s.MasterEnabled:
		return reasonMasterOff
	case kind == RoleCTO && !s.CTOEnabled, kind == RoleLead && !s.LeadEnabled:
		return reasonManagerOff
	}
	return ""
}

func (s RoleSettings) closed(key RoleKey) bool {
	return key.Kind == RoleLead && slices.Contains(s.ClosedScopes, key.ScopeID)
}
