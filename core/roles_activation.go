package core

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"
)

// The triggers of an ensure (contract 4.6).
const (
	TriggerLeaseExpired    = "lease_expired"
	TriggerRestartRecovery = "restart_recovery"
	TriggerCharterIssued   = "charter_issued"

	triggerCandidate = "candidate_registered" // the hub's own: a candidate was added
	triggerSweep     = "sweep"                // the hub's own: a deadline may have passed
	triggerSettings  = "settings_changed"     // the hub's own: a switch may be off
)

// RoleTriggers lists what a caller may give as the trigger of an ensure.
var RoleTriggers = []string{
	"session_start", "publish_no_holder", TriggerLeaseExpired, TriggerRestartRecovery, "hygiene_changed", TriggerCharterIssued, "manual",
}

// Disposition is what an ensure found or did.
type Disposition string

// The dispositions; the last two are not accepted.
const (
	DispositionStarted         Disposition = "started"
	DispositionJoined          Disposition = "joined" // an activation is under way
	DispositionAlreadyActive   Disposition = "already_active"
	DispositionManagerDisabled Disposition = "manager_disabled"
	DispositionScopeClosed     Disposition = "scope_closed"
)

// EnsureRequest asks that somebody holds the role.
type EnsureRequest struct {
	Wire    string
	Trigger string
	CauseID string
}

// EnsureReceipt tells what an ensure did. It does not wait for the holder.
type EnsureReceipt struct {
	Accepted      bool
	Disposition   Disposition
	Wire          string
	State         RoleState
	Epoch         int64
	ActivationID  string
	BlockedReason string
}

// What the hub sends about roles.
const (
	activatorName    = "hub-activator"
	activationTopic  = "role.activation"
	activationSchema = "tfx.role-activation.v1"
	standupTopic     = "role.standup"
	rolePriority     = 8
)

// EnsureRole sees to it that somebody holds the role (contract 4.6). Where
// nobody does it reserves the best candidate and puts the activation into its
// inbox, in one transaction with the reservation; the candidate acknowledges
// before the deadline. Without a candidate it asks for a session, by a message
// to the followers of role.standup. Of many ensures at once one starts, the
// others join.
//
// Cost: 2 round trips when there is nothing to do, 3 to start.
//
// Errors: ENSURE_ROLE_REQUEST_INVALID and the codes of role keys.
func (h *Hub) EnsureRole(ctx context.Context, r EnsureRequest) (EnsureReceipt, error) {
	key, err := ParseRoleWire(r.Wire)
	if err != nil {
		return EnsureReceipt{}, err
	}
	if !slices.Contains(RoleTriggers, r.Trigger) {
		return EnsureReceipt{}, InvalidCode(CodeEnsureRoleInvalid, "trigger", fmt.Sprintf("trigger must be one of %v", RoleTriggers))
	}
	if err := checkID("cause_id", r.CauseID); err != nil {
		return EnsureReceipt{}, InvalidCode(CodeEnsureRoleInvalid, "cause_id", "cause_id must be 1 to 512 bytes of UTF-8 without control characters")
	}
	plan, err := h.runRole(ctx, key, roleWish{trigger: r.Trigger, cause: r.CauseID})
	return plan.receipt(), err
}

// roleWish is why somebody looks at a role.
type roleWish struct {
	trigger string
	cause   string
	agentID string // of triggerCandidate
}

// runRole takes the step that the role needs now, if it needs one. When the role
// changed under its hands it looks again.
func (h *Hub) runRole(ctx context.Context, key RoleKey, wish roleWish) (rolePlan, error) {
	for attempt := range reserveAttempts {
		b, err := h.readBoard(ctx, key)
		if err != nil {
			return rolePlan{}, err
		}
		id := h.ids.New()
		plan := b.plan(wish, id, chanceOf(id))
		if !plan.write {
			return plan, nil
		}
		done, err := h.roles.StepRole(ctx, h.stepOf(b, plan, wish))
		if err != nil {
			return rolePlan{}, fmt.Errorf("step role: %w", err)
		}
		if done.Done {
			plan.next = done.Role
			return plan, h.callForSession(ctx, plan, wish)
		}
		if err := pause(ctx, attempt); err != nil {
			return rolePlan{}, err
		}
	}
	return rolePlan{}, Refuse(CodeContended, roleRefusals[CodeContended])
}

// chanceOf is a number in [0,1) out of an id: the hub's chance, like its ids, is
// given to it.
func chanceOf(id string) float64 {
	h := fnv.New32a()
	h.Write([]byte(id)) // a hash never fails
	return float64(h.Sum32()) / (1 << 32)
}

// board is a role with everything its next step depends on, at one moment.
type board struct {
	RoleBoard
	agents map[string]Agent
	now    Instant
	at     time.Time
}

func (h *Hub) readBoard(ctx context.Context, key RoleKey) (board, error) {
	at := h.clock.Now()
	read, err := h.roles.ReadRoleBoard(ctx, key.Wire())
	if err != nil {
		return board{}, fmt.Errorf("read role: %w", err)
	}
	b := board{RoleBoard: read, agents: map[string]Agent{}, now: InstantOf(at), at: at}
	slices.SortFunc(b.Candidates, beforeCandidate)
	ids := b.agentIDs()
	if len(ids) == 0 {
		return b, nil
	}
	agents, err := h.roles.ReadAgents(ctx, ids)
	if err != nil {
		return board{}, fmt.Errorf("read candidates: %w", err)
	}
	for _, a := range agents {
		b.agents[a.ID] = a
	}
	return b, nil
}

// agentIDs are the ids of everybody the step may concern, each once.
func (b board) agentIDs() []string {
	ids := []string{}
	for _, c := range b.Candidates {
		ids = append(ids, c.AgentID)
	}
	for _, id := range []string{b.Role.Holder, b.Role.Successor} {
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (b board) holder() Agent { return b.agents[b.Role.Holder] }

// isEligible tells whether an agent can be given the role now (contract 4.6):
// live, of the project if it has one, and able to hold such a role. Its inbox is
// how it is reached, so it needs no locator.
func (b board) isEligible(agentID string) bool {
	a, found := b.agents[agentID]
	return found && a.isLive(b.now) && !a.Final && isAgentInbox(a.ID) &&
		(a.ProjectID == "" || a.ProjectID == b.Role.Key.ProjectID) &&
		slices.Contains(a.Capabilities, "role:"+string(b.Role.Key.Kind)+":candidate")
}

// best is the candidate to reserve: one that is preferred, else the first by
// order. waits is the earliest end of an exclusion when all that are eligible
// are excluded, 0 when nobody is eligible.
func (b board) best(preferred ...string) (agentID string, waits Instant) {
	for _, id := range preferred {
		if id != "" && b.isEligible(id) && !b.isExcluded(id) {
			return id, 0
		}
	}
	for _, c := range b.Candidates {
		switch {
		case !b.isEligible(c.AgentID):
		case c.ExcludedUntil <= b.now:
			return c.AgentID, 0
		case waits == 0 || c.ExcludedUntil < waits:
			waits = c.ExcludedUntil
		}
	}
	return "", waits
}

func (b board) isExcluded(agentID string) bool {
	return slices.ContainsFunc(b.Candidates, func(c RoleCandidate) bool { return c.AgentID == agentID && c.ExcludedUntil > b.now })
}

// rolePlan is the next step of a role: what to write, and what to answer.
type rolePlan struct {
	next        Role
	disposition Disposition
	write       bool
	failed      Opt[RoleCandidate] // a candidate that let its deadline pass
	activate    bool               // tell the holder
	standup     bool               // ask for a session
}

func (p rolePlan) receipt() EnsureReceipt {
	r := EnsureReceipt{
		Disposition: p.disposition, Wire: p.next.Wire, State: p.next.State, Epoch: max(p.next.Epoch, 0),
		ActivationID: p.next.ActivationID, BlockedReason: p.next.BlockedReason,
	}
	r.Accepted = p.disposition != DispositionManagerDisabled && p.disposition != DispositionScopeClosed
	return r
}

// plan decides the next step. It is a pure function of what was read, so that
// every order of events can be tried on it.
func (b board) plan(wish roleWish, activationID string, u float64) rolePlan {
	if wish.trigger == triggerSweep && b.Role.State == RoleElectable {
		standing, _ := b.standing(wish)
		return standing
	}
	if reason := b.Settings.disabled(b.Role.Key.Kind); reason != "" {
		return b.fence(DispositionManagerDisabled, reason)
	}
	if b.Settings.closed(b.Role.Key) {
		return b.fence(DispositionScopeClosed, reasonScopeClosed)
	}
	if wish.trigger == triggerSettings {
		return rolePlan{next: b.Role, disposition: DispositionJoined} // switched on again meanwhile
	}
	if wish.trigger == triggerCandidate {
		return b.welcome(wish.agentID, activationID)
	}
	if standing, ok := b.standing(wish); ok {
		return standing
	}
	if wish.trigger == triggerSweep && b.Role.State == RoleProbing && b.Role.Holder == "" {
		// The session that was asked for did not come. Asking again is up to
		// the next ensure.
		next := b.Role.vacated(b.now, blockedNoCandidate)
		next.BlockedReason = blockedNoCandidate
		return b.step(next, DispositionStarted)
	}
	return b.elect(activationID, u)
}

// standing tells whether the role needs nothing now: it is held, or somebody is
// on the way. A sweep moves its due entry to where it belongs.
func (b board) standing(wish roleWish) (rolePlan, bool) {
	r := b.Role
	var disposition Disposition
	switch {
	case r.isHeld(b.holder(), b.now) && (wish.trigger == triggerSweep || b.isCharterAcknowledged() && wish.trigger != TriggerCharterIssued):
		disposition = DispositionAlreadyActive
	case r.isHeld(b.holder(), b.now) && r.HolderLeaseExpires != 0 && r.Successor != "":
		disposition = DispositionJoined // a hand-over with a grace
	case r.State == RoleProbing && r.ActivationID != "" && r.ActivationDeadline > b.now:
		disposition = DispositionJoined
	case (r.State == RoleUnreachable || r.State == RoleQuarantined) && r.NextProbe > b.now:
		disposition = DispositionJoined
	case r.State == RoleElectable && wish.trigger == triggerSweep:
		disposition = DispositionJoined
	default:
		return rolePlan{}, false
	}
	plan := rolePlan{next: r, disposition: disposition}
	if due := r.due(b.holder()); wish.trigger == triggerSweep && due != r.DueAt {
		plan.next.DueAt, plan.write = due, true
	}
	return plan, true
}

// isCharterAcknowledged tells whether the holder knows the charter that is in force.
func (b board) isCharterAcknowledged() bool {
	acked := b.Role.CharterAckedEpoch
	return acked.Set && acked.Value == b.Role.Epoch && b.isCharterCurrent()
}

func (b board) isCharterCurrent() bool {
	return b.Settings.CharterVersion == "" || b.Settings.CharterVersion == b.Role.CharterVersion
}

// fence takes the authority from a role that may have none, and leaves one that
// has none alone.
func (b board) fence(disposition Disposition, reason string) rolePlan {
	r := b.Role
	closes := disposition == DispositionScopeClosed
	if !r.isStored() || r.Closed || !closes && r.Holder == "" && r.State == RoleElectable {
		r.BlockedReason = reason
		return rolePlan{next: r, disposition: disposition}
	}
	next := r.vacated(b.now, reason).nextEpoch()
	next.BlockedReason, next.Closed = reason, closes
	return b.step(next, disposition)
}

// welcome is the step for a candidate that was just added.
func (b board) welcome(agentID, activationID string) rolePlan {
	r := b.Role
	waits := r.State == RoleProbing && r.Holder == "" && r.ActivationDeadline > b.now
	switch {
	case !r.isStored():
		next := r.step(RoleElectable, b.now, reasonReserved).nextEpoch()
		return b.step(next, DispositionStarted)
	case waits && b.isEligible(agentID):
		return b.reserve(r, agentID, activationID)
	case r.State == RoleQuarantined:
		next := r.vacated(b.now, reasonRegistered)
		next.RetryCount = 0
		return b.step(next, DispositionStarted)
	}
	return rolePlan{next: r, disposition: DispositionJoined}
}

// elect reserves the best candidate. A holder that let its deadline pass is
// excluded for a while, in the same write.
func (b board) elect(activationID string, u float64) rolePlan {
	r := b.Role
	missed := r.State == RoleProbing && r.Holder != "" && passed(r.ActivationDeadline, b.now)
	failed := Opt[RoleCandidate]{}
	if missed {
		r.RetryCount++
		failed = b.exclude(r.Holder, u)
	}
	preferred := []string{r.Successor}
	if r.isHeld(b.holder(), b.now) { // its charter is out of date
		preferred = append(preferred, r.Holder)
	}
	agentID, waits := b.best(preferred...)
	var plan rolePlan
	switch {
	case agentID != "":
		plan = b.reserve(r, agentID, activationID)
	case waits != 0:
		third := max(r.RetryCount, failed.Value.Failures) >= FailureLimit
		plan = b.step(r.unreachable(b.now, waits, third), DispositionStarted)
	default:
		plan = b.step(r.reserved("", activationID, b.now, b.now.Add(StandupDeadline), reasonStandup), DispositionStarted)
		plan.next.CharterVersion = cmp.Or(b.Settings.CharterVersion, r.CharterVersion)
		plan.standup = true
	}
	plan.failed = failed
	return plan
}

// exclude records the failure of a candidate, also for the rest of this plan.
func (b *board) exclude(agentID string, u float64) Opt[RoleCandidate] {
	i := slices.IndexFunc(b.Candidates, func(c RoleCandidate) bool { return c.AgentID == agentID })
	if i < 0 {
		return Opt[RoleCandidate]{}
	}
	next := b.Candidates[i].Reach(Reachability{ProbeFailed: true, At: b.now, Code: Some(reasonAckTimeout)})
	next.ExcludedUntil = b.now.Add(next.exclusion(u))
	b.Candidates = slices.Clone(b.Candidates)
	b.Candidates[i] = next
	return Some(next)
}

// unreachable is the role when everybody who could hold it is excluded; after
// the third failure it is quarantined.
func (r Role) unreachable(now, retry Instant, third bool) Role {
	state := RoleUnreachable
	if third {
		state = RoleQuarantined
	}
	next := r.vacated(now, reasonAckTimeout)
	next.State, next.NextProbe = state, retry
	return next
}

func (b board) reserve(r Role, agentID, activationID string) rolePlan {
	next := r.reserved(agentID, activationID, b.now, b.now.Add(ActivationDeadline), reasonSelected)
	next.CharterVersion = cmp.Or(b.Settings.CharterVersion, r.CharterVersion)
	plan := b.step(next, DispositionStarted)
	plan.activate = true
	return plan
}

// step is a plan that writes the next role, with its due entry.
func (b board) step(next Role, disposition Disposition) rolePlan {
	next.DueAt = keepDue(b.Role.DueAt, next.due(b.agents[next.Holder]))
	return rolePlan{next: next, disposition: disposition, write: true}
}

// stepOf is the write of a plan. It holds only while the settings are those the
// plan was made under: a manager that was switched off meanwhile starts nothing.
func (h *Hub) stepOf(b board, plan rolePlan, wish roleWish) RoleStep {
	s := RoleStep{Seen: b.Role, Next: plan.next, Candidate: plan.failed, WriteStamp: h.stamp(b.at)}
	if plan.activate || plan.standup {
		s.Settings = Some(b.Settings.Generation)
	}
	if plan.activate {
		s.Message = Some(h.activation(plan.next, wish, b.now))
	}
	return s
}

// activation is the message that tells a candidate that it is to hold the role:
// probe and wake in one (compat 13).
func (h *Hub) activation(r Role, wish roleWish, now Instant) Delivery {
	payload := activationPayload(r, wish)
	payload.put("schema_version", quoted(activationSchema))
	payload.put("holder_agent_id", quoted(r.Holder))
	message := PublishRequest{
		From: activatorName, To: r.Holder, Type: MessageSystem, Topic: activationTopic, Priority: rolePriority,
		TTLMs: ActivationDeadline.Milliseconds(), Payload: payload.encode(), CorrelationID: r.ActivationID,
	}.message(now, h.ids)
	message.RoleKeyWire = r.Wire
	return Delivery{Message: message, Inbox: r.Holder, State: DeliveryPending}
}

func activationPayload(r Role, wish roleWish) object {
	payload := object{}
	payload.put("role_key", r.Key.JSON())
	payload.put("role_key_wire", quoted(r.Wire))
	payload.put("epoch", numeral(r.Epoch))
	payload.put("activation_seq", numeral(r.ActivationSeq))
	payload.put("activation_id", quoted(r.ActivationID))
	payload.put("activation_deadline_ms", numeral(int64(r.ActivationDeadline)))
	payload.put("charter_version", quotedOrNull(r.CharterVersion))
	payload.put("trigger", quoted(wish.trigger))
	payload.put("cause_id", quotedOrNull(wish.cause))
	return payload
}

// callForSession asks whoever starts sessions for one. The role waits for it
// either way: when the message cannot be sent, its deadline passes and the next
// ensure asks again.
func (h *Hub) callForSession(ctx context.Context, plan rolePlan, wish roleWish) error {
	if !plan.standup {
		return nil
	}
	_, err := h.Publish(ctx, PublishRequest{
		From: activatorName, To: topicPrefix + standupTopic, Type: MessageEvent, Topic: standupTopic, Priority: rolePriority,
		TTLMs: StandupDeadline.Milliseconds(), Payload: activationPayload(plan.next, wish).encode(), CorrelationID: plan.next.ActivationID,
	})
	if err != nil {
		return fmt.Errorf("call for a session: %w", err)
	}
	return nil
}

// AckRoleRequest acknowledges an activation.
type AckRoleRequest struct {
	AgentID        string // who acts
	Wire           string
	HolderAgentID  string
	Epoch          int64
	ActivationSeq  int64
	ActivationID   string
	CharterWire    string // the role the charter was acknowledged for
	CharterEpoch   int64
	CharterVersion string
	Fences         Fences
}

// RoleAcked is the answer to an acknowledgement.
type RoleAcked struct {
	Role       Role
	Value      RoleValue // what the predecessor left
	Idempotent bool      // it was acknowledged before
}

// AcknowledgeRole makes the agent the active holder, in one transaction over the
// role, which must still be reserved as the acknowledgement says, and the agent,
// which must be live under its generation. What it fails on is judged from the
// items that refused the transaction, in the order of contract 4.6.
//
// Cost: 1 round trip; 1 more when the generation is not sent.
//
// Errors: STALE_EPOCH, HOLDER_MISMATCH, CHARTER_VERSION_MISMATCH,
// HOLDER_LEASE_EXPIRED with the role as data; STALE_PRESENCE_OWNER.
func (h *Hub) AcknowledgeRole(ctx context.Context, r AckRoleRequest) (RoleAcked, error) {
	key, err := ParseRoleWire(r.Wire)
	if err != nil {
		return RoleAcked{}, err
	}
	identity, err := h.checkIdentity(ctx, r.Fences)
	if err != nil {
		return RoleAcked{}, err
	}
	generation := r.Fences.Generation
	if !generation.Set {
		agent, _, err := h.presence.ReadAgent(ctx, r.AgentID)
		if err != nil {
			return RoleAcked{}, fmt.Errorf("read agent: %w", err)
		}
		generation = Some(agent.Generation)
	}
	now := h.clock.Now()
	write := RoleAck{
		Wire: r.Wire, Holder: r.AgentID, Generation: generation.Value, Epoch: r.Epoch, ActivationSeq: r.ActivationSeq,
		ActivationID: r.ActivationID, CharterVersion: r.CharterVersion, WriteStamp: h.stamp(now),
	}
	if r.HolderAgentID != r.AgentID || r.CharterWire != r.Wire || r.CharterEpoch != r.Epoch {
		return RoleAcked{}, h.refuseAck(ctx, r, write)
	}
	var role Role
	var value RoleValue
	read := inBackground(func() (err error) {
		role, value, err = h.readRoleAndValue(ctx, r.Wire)
		return err
	})
	outcome, err := h.roles.AcknowledgeRole(ctx, write)
	failed := read()
	switch {
	case err != nil:
		return RoleAcked{}, fmt.Errorf("acknowledge role: %w", err)
	case !outcome.Done:
		return h.judgeAck(ctx, r, write, outcome, identity, value)
	case failed != nil: // it is done: what could not be read beside it is left out
		return RoleAcked{Role: AbsentRole(key, r.Wire).acknowledged(write)}, nil
	}
	return RoleAcked{Role: role.acknowledged(write), Value: value}, nil
}

func (h *Hub) readRoleAndValue(ctx context.Context, wire string) (Role, RoleValue, error) {
	var value RoleValue
	wait := inBackground(func() (err error) {
		value, err = h.roles.ReadRoleValue(ctx, wire)
		return err
	})
	role, err := h.roles.ReadRole(ctx, wire)
	if failed := wait(); err == nil {
		err = failed
	}
	return role, value, err
}

// acknowledged is the role as the acknowledgement left it, whether it was read
// before that, after it, or when others had written since. A role that others
// have written beyond its history's reach tells nothing of it: under a version
// that is too high the holder would overwrite what it has not seen.
func (r Role) acknowledged(a RoleAck) Role {
	left, found := r.at(a.Mark())
	switch {
	case found && left.Version == r.Version:
		return r
	case found:
		r = left
	case r.State == RoleProbing && r.Epoch == a.Epoch && r.CharterAckedEpoch != Some(a.Epoch):
		r = r.step(RoleActive, InstantOf(a.Started), ReasonAcknowledged)
	default:
		r = AbsentRole(r.Key, r.Wire)
	}
	r.Epoch, r.ActivationSeq, r.ActivationID, r.State = a.Epoch, a.ActivationSeq, a.ActivationID, RoleActive
	r.Holder, r.HolderGeneration, r.CharterVersion, r.CharterAckedEpoch = a.Holder, a.Generation, a.CharterVersion, Some(a.Epoch)
	r.ActivationDeadline, r.BlockedReason, r.RetryCount, r.NextProbe = 0, "", 0, 0
	return r
}

// judgeAck tells why an acknowledgement was refused, or that it was made before.
func (h *Hub) judgeAck(ctx context.Context, r AckRoleRequest, a RoleAck, o RoleAckOutcome, identity Identity, value RoleValue) (RoleAcked, error) {
	role := o.Role
	if !role.isStored() && o.Agent.Set { // only the agent did not fit: the role did
		var err error
		if role, err = h.roles.ReadRole(ctx, a.Wire); err != nil {
			return RoleAcked{}, fmt.Errorf("read role: %w", err)
		}
	}
	now := InstantOf(a.Started)
	code := a.judge(r, role, now)
	agent := o.Agent.Value
	switch {
	case code != "":
	case o.Agent.Set && (agent.Generation != a.Generation || agent.Final):
		return RoleAcked{}, h.staleActor(AgentFence{AgentID: a.Holder, Generation: a.Generation}, agent, identity)
	case o.Agent.Set, role.HolderLeaseExpires != 0 && role.HolderLeaseExpires <= now:
		code = CodeHolderLeaseExpired
	case role.State == RoleActive && role.HolderGeneration == a.Generation:
		return RoleAcked{Role: role, Value: value, Idempotent: true}, nil
	default:
		code = CodeStaleEpoch
	}
	return RoleAcked{}, refuseRole(code, role)
}

// judge compares an acknowledgement with the role, in the contract's order.
func (a RoleAck) judge(r AckRoleRequest, role Role, now Instant) Code {
	switch {
	case r.CharterWire != r.Wire, !role.isStored(), role.Closed,
		a.Epoch != role.Epoch, a.ActivationSeq != role.ActivationSeq, a.ActivationID != role.ActivationID, r.CharterEpoch != role.Epoch:
		return CodeStaleEpoch
	case r.HolderAgentID != r.AgentID, role.Holder != r.AgentID && role.Holder != "":
		return CodeHolderMismatch
	case a.CharterVersion != role.CharterVersion:
		return CodeCharterVersionMismatch
	case role.State == RoleProbing && passed(role.ActivationDeadline, now):
		return CodeStaleEpoch
	}
	return ""
}

// refuseAck refuses an acknowledgement that contradicts itself, by whatever
// comes first in the contract's order.
func (h *Hub) refuseAck(ctx context.Context, r AckRoleRequest, a RoleAck) error {
	role, err := h.roles.ReadRole(ctx, r.Wire)
	if err != nil {
		return fmt.Errorf("read role: %w", err)
	}
	return refuseRole(cmp.Or(a.judge(r, role, InstantOf(a.Started)), CodeStaleEpoch), role)
}

// ReleaseRequest gives a role back.
type ReleaseRequest struct {
	Wire      string
	AgentID   string
	Epoch     int64
	Successor string // who is to have it, "" for whoever comes first
	GraceMs   int64  // how long the holder may still finish
	Fences    Fences
}

// ReleaseRole gives the role back. Without a grace the authority ends with this
// write, and a successor that can hold the role is reserved in the same one. With
// a grace it goes on, but no longer than that: then whoever acts next reserves
// the successor. Releasing again is answered as done.
//
// Cost: 3 round trips.
//
// Errors: ROLE_NOT_FOUND, STALE_EPOCH, HOLDER_MISMATCH with the role as data,
// INVALID_ARGUMENT, STALE_PRESENCE_OWNER.
func (h *Hub) ReleaseRole(ctx context.Context, r ReleaseRequest) (RoleOutcome, error) {
	key, err := ParseRoleWire(r.Wire)
	if err != nil {
		return RoleOutcome{}, err
	}
	if r.GraceMs < 0 || r.GraceMs > MaxGrace.Milliseconds() {
		return RoleOutcome{}, Invalid("grace_ms", fmt.Sprintf("grace_ms must be 0 to %d", MaxGrace.Milliseconds()))
	}
	identity, err := h.checkIdentity(ctx, r.Fences)
	if err != nil {
		return RoleOutcome{}, err
	}
	for attempt := range reserveAttempts {
		b, err := h.readBoard(ctx, key)
		if err != nil {
			return RoleOutcome{}, err
		}
		if err := h.addAgents(ctx, &b, r); err != nil {
			return RoleOutcome{}, err
		}
		fence := fenceOf(r.AgentID, r.Fences)
		if agent := b.agents[r.AgentID]; fence.Set && (agent.Generation != fence.Value.Generation || agent.Final) {
			return RoleOutcome{}, h.staleActor(fence.Value, agent, identity)
		}
		b.Role.Successor = r.Successor
		if code := r.judge(b.Role); code != "" {
			return RoleOutcome{}, refuseRole(code, b.Role)
		}
		if b.Role.Holder == "" {
			return RoleOutcome{Done: true, Replayed: true, Role: b.Role}, nil
		}
		plan := b.release(r, h.ids.New())
		step := h.stepOf(b, plan, roleWish{trigger: reasonHandover, cause: r.AgentID})
		step.Fence = fence
		done, err := h.roles.StepRole(ctx, step)
		switch {
		case err != nil:
			return RoleOutcome{}, fmt.Errorf("release role: %w", err)
		case done.Stale.Set:
			return RoleOutcome{}, h.staleActor(step.Fence.Value, done.Stale.Value, identity)
		case done.Done:
			return done, nil
		}
		if err := pause(ctx, attempt); err != nil {
			return RoleOutcome{}, err
		}
	}
	return RoleOutcome{}, Refuse(CodeContended, roleRefusals[CodeContended])
}

// addAgents reads whom a release concerns beside the candidates and the holder.
func (h *Hub) addAgents(ctx context.Context, b *board, r ReleaseRequest) error {
	var ids []string
	for _, id := range []string{r.AgentID, r.Successor} {
		if _, known := b.agents[id]; !known && id != "" {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	agents, err := h.roles.ReadAgents(ctx, slices.Compact(ids))
	if err != nil {
		return fmt.Errorf("read agents: %w", err)
	}
	for _, a := range agents {
		b.agents[a.ID] = a
	}
	return nil
}

// judge tells why the caller cannot release the role, "" when it can or did.
func (r ReleaseRequest) judge(role Role) Code {
	released := role.State == RoleElectable && role.Holder == "" && role.PreviousHolder == r.AgentID
	switch {
	case !role.isStored(), role.Closed:
		return CodeRoleNotFound
	case role.Epoch != r.Epoch:
		return CodeStaleEpoch
	case released:
		return ""
	case role.Holder != r.AgentID, r.Fences.Generation.Set && role.HolderGeneration != 0 && r.Fences.Generation.Value != role.HolderGeneration:
		return CodeHolderMismatch
	case role.State != RoleActive && role.State != RoleProbing:
		return CodeStaleEpoch
	}
	return ""
}

// release is the step of a release. Somebody who was reserved and declines has
// nothing to finish.
func (b board) release(r ReleaseRequest, activationID string) rolePlan {
	role := b.Role
	if r.GraceMs > 0 && role.State == RoleActive {
		ends := b.now.Add(time.Duration(r.GraceMs) * time.Millisecond)
		next := role.step(RoleActive, b.now, reasonHandover)
		if role.HolderLeaseExpires == 0 || ends < role.HolderLeaseExpires {
			next.HolderLeaseExpires = ends
		}
		return b.step(next, DispositionStarted)
	}
	if role.Successor != "" && role.Successor != role.Holder && b.isEligible(role.Successor) && b.Settings.disabled(role.Key.Kind) == "" {
		return b.reserve(role, role.Successor, activationID)
	}
	next := role.vacated(b.now, reasonReleased)
	next.Successor = role.Successor
	return b.step(next, DispositionStarted)
}
