package core

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// RoleCAS replaces fields of a role where everything is as expected.
type RoleCAS struct {
	Wire     string
	Expected RoleExpectation // all of it
	Patch    RolePatch
}

// RoleReservation gives a role its next epoch (contract 4.3).
type RoleReservation struct {
	Wire      string
	Version   Opt[int64] // expected; not set: any
	Epoch     Opt[int64] // expected; not set: any
	NextEpoch Opt[int64] // must be the epoch that follows
	NextSeq   Opt[int64] // must be the activation_seq that follows
	// Patch holds the fields given. A holder that is not set is none; a previous
	// holder or an activation id that is empty is made up.
	Patch RolePatch
}

// reserveAttempts bounds how often an operation on a role starts over because
// the role changed between its read and its write.
const reserveAttempts = 12

// CompareAndSetRole replaces fields of a role in one conditional write. What it
// fails on is judged from the role that refused the write, in the order of
// contract 4.4; epoch and activation_seq never change. Cost: 1 request.
//
// Errors: with the role as it stands as data: NOT_FOUND, INVALID_CAS,
// STALE_VERSION, STALE_EPOCH, STALE_ACTIVATION_SEQ, STALE_ACTIVATION_ID.
// ROLE_REACHABILITY_STATE_INVALID, INVALID_ARGUMENT.
func (h *Hub) CompareAndSetRole(ctx context.Context, c RoleCAS) (RoleOutcome, error) {
	if _, err := ParseRoleWire(c.Wire); err != nil {
		return RoleOutcome{}, err
	}
	if err := c.Patch.validate(); err != nil {
		return RoleOutcome{}, err
	}
	if e := c.Expected; !e.Version.Set || !e.Epoch.Set || !e.ActivationSeq.Set || !e.ActivationID.Set {
		return h.refuseCAS(ctx, c.Wire)
	}
	now := h.clock.Now()
	if c.Patch.LastTransition == 0 {
		c.Patch.LastTransition = InstantOf(now)
	}
	done, err := h.roles.UpdateRole(ctx, RoleUpdate{
		Wire: c.Wire, Expected: c.Expected, Patch: c.Patch, Due: c.Patch.due(InstantOf(now)), WriteStamp: h.stamp(now),
	})
	if err != nil {
		return RoleOutcome{}, fmt.Errorf("compare and set role: %w", err)
	}
	if !done.Done {
		return RoleOutcome{}, refuseRole(c.Expected.judge(done.Role), done.Role)
	}
	return done, nil
}

// refuseCAS judges a compare-and-set without its expectations: a role that is
// not there comes first.
func (h *Hub) refuseCAS(ctx context.Context, wire string) (RoleOutcome, error) {
	role, err := h.roles.ReadRole(ctx, wire)
	if err != nil {
		return RoleOutcome{}, fmt.Errorf("read role: %w", err)
	}
	code := CodeInvalidCAS
	if !role.isStored() || role.Closed {
		code = CodeNotFound
	}
	return RoleOutcome{}, refuseRole(code, role)
}

// judge tells why a role is not as expected, by the contract's precedence.
func (e RoleExpectation) judge(r Role) Code {
	switch {
	case !r.isStored(), r.Closed:
		return CodeNotFound
	case e.Version.Set && e.Version.Value != r.Version:
		return CodeStaleVersion
	case e.Epoch.Set && e.Epoch.Value != r.Epoch:
		return CodeStaleEpoch
	case e.ActivationSeq.Set && e.ActivationSeq.Value != r.ActivationSeq:
		return CodeStaleActivationSeq
	case e.ActivationID.Set && e.ActivationID.Value != r.ActivationID:
		return CodeStaleActivationID
	}
	return CodeContended
}

var roleRefusals = map[Code]string{
	CodeNotFound:               "there is no such role",
	CodeRoleNotFound:           "there is no such role",
	CodeInvalidCAS:             "expected needs version, epoch, activation_seq and activation_id",
	CodeStaleVersion:           "the role has another version",
	CodeStaleEpoch:             "the role's epoch is another, or grants nothing any more; read its status and join again",
	CodeStaleActivationSeq:     "the role has another activation_seq",
	CodeStaleActivationID:      "the role has another activation_id",
	CodeHolderMismatch:         "somebody else holds the role",
	CodeCharterVersionMismatch: "the role was reserved under another charter version",
	CodeHolderLeaseExpired:     "the agent is not online with a live lease, or its authority has ended",
	CodeContended:              "others kept changing the role",
}

// refuseRole refuses with the role as it stands as data, nil when there is none.
func refuseRole(code Code, stands Role) *Error {
	refusal := Refuse(code, roleRefusals[code])
	refusal.Data = RoleStands{}
	if stands.isStored() && !stands.Closed {
		refusal.Data = RoleStands{Role: Some(stands)}
	}
	return refusal
}

// RoleStands is the data of a refusal: the role that was judged, if there is one.
type RoleStands struct{ Role Opt[Role] }

func (p RolePatch) validate() error {
	if p.State.Set {
		if err := checkRoleState(p.State.Value); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		field string
		value Opt[string]
		most  int
	}{
		{"holder_agent_id", p.Holder, MaxIDBytes}, {"previous_holder_agent_id", p.PreviousHolder, MaxIDBytes},
		{"activation_id", p.ActivationID, maxRoleReason}, {"charter_version", p.CharterVersion, maxCharterVersion},
		{"blocked_reason", p.BlockedReason, maxRoleReason}, {"last_reason", p.LastReason, maxRoleReason},
	} {
		if len(f.value.Value) > f.most || !isText(f.value.Value) {
			return Invalid(f.field, fmt.Sprintf("%s must be at most %d bytes of UTF-8 without control characters", f.field, f.most))
		}
	}
	return nil
}

// due is the latest moment at which the sweep has to look at a role that was
// given this patch, for all that the patch tells.
func (p RolePatch) due(now Instant) Instant {
	due := Instant(0)
	for _, at := range []Opt[Instant]{p.ActivationDeadline, p.HolderLeaseExpires, p.NextProbe} {
		if at.Value != 0 && (due == 0 || at.Value < due) {
			due = at.Value
		}
	}
	if due == 0 && p.State.Set && p.State.Value != RoleElectable {
		return now
	}
	return due
}

// ReserveRole gives a role its next epoch, and creates it where it is absent.
// With an expected version it is one conditional write; without one the role is
// read first.
//
// Cost: 1 round trip with an expected version, else 2.
//
// Errors: as CompareAndSetRole but for NOT_FOUND and INVALID_CAS.
func (h *Hub) ReserveRole(ctx context.Context, r RoleReservation) (RoleOutcome, error) {
	if _, err := ParseRoleWire(r.Wire); err != nil {
		return RoleOutcome{}, err
	}
	if err := r.Patch.validate(); err != nil {
		return RoleOutcome{}, err
	}
	now := h.clock.Now()
	r.complete(InstantOf(now), h.ids)
	var seen Role
	var err error
	if r.Version.Set && !r.Patch.PreviousHolder.Set {
		done, err := h.roles.UpdateRole(ctx, r.update(h.stamp(now)))
		if err != nil {
			return RoleOutcome{}, fmt.Errorf("reserve role: %w", err)
		}
		if done.Done {
			return done, nil
		}
		seen = done.Role
	} else if seen, err = h.roles.ReadRole(ctx, r.Wire); err != nil {
		return RoleOutcome{}, fmt.Errorf("read role: %w", err)
	}
	for attempt := range reserveAttempts {
		if code := r.judge(seen); code != "" {
			return RoleOutcome{}, refuseRole(code, seen)
		}
		next := r.apply(seen)
		next.DueAt = keepDue(seen.DueAt, next.due(Agent{}))
		done, err := h.roles.StepRole(ctx, RoleStep{Seen: seen, Next: next, WriteStamp: h.stamp(now)})
		if err != nil || done.Done {
			return done, err
		}
		if err := pause(ctx, attempt); err != nil {
			return RoleOutcome{}, err
		}
		if seen, err = h.roles.ReadRole(ctx, r.Wire); err != nil {
			return RoleOutcome{}, fmt.Errorf("read role: %w", err)
		}
	}
	return RoleOutcome{}, refuseRole(CodeContended, seen)
}

// complete fills in what a reservation has by default.
func (r *RoleReservation) complete(now Instant, ids IDs) {
	p := &r.Patch
	if !p.State.Set {
		p.State = Some(RoleElectable)
		if p.Holder.Value != "" {
			p.State = Some(RoleProbing)
		}
	}
	if !p.ActivationID.Set && p.Holder.Value != "" {
		p.ActivationID = Some(ids.New())
	}
	if p.PreviousHolder.Value == "" {
		p.PreviousHolder = Opt[string]{}
	}
	if p.LastTransition == 0 {
		p.LastTransition = now
	}
	if !p.LastReason.Set {
		p.LastReason = Some(reasonReserved)
	}
}

// update is the reservation as one write on a role that was not read.
func (r RoleReservation) update(stamp WriteStamp) RoleUpdate {
	p := r.Patch
	p.Holder = Some(p.Holder.Value)
	u := RoleUpdate{
		Wire: r.Wire, Patch: p, Reserve: true, Displace: true, Due: p.due(InstantOf(stamp.Started)), WriteStamp: stamp,
		Expected: RoleExpectation{Version: r.Version, Epoch: r.Epoch},
	}
	if r.NextEpoch.Set && !u.Expected.Epoch.Set {
		u.Expected.Epoch = Some(r.NextEpoch.Value - 1)
	}
	if r.NextSeq.Set {
		u.Expected.ActivationSeq = Some(r.NextSeq.Value - 1)
	}
	return u
}

// judge tells why a role cannot be reserved, "" when it can.
func (r RoleReservation) judge(seen Role) Code {
	switch {
	case seen.isStored() && r.Version.Set && r.Version.Value != seen.Version:
		return CodeStaleVersion
	case seen.isStored() && r.Epoch.Set && r.Epoch.Value != seen.Epoch:
		return CodeStaleEpoch
	case r.NextEpoch.Set && r.NextEpoch.Value != seen.Epoch+1 && seen.isStored():
		return CodeStaleEpoch
	case r.NextSeq.Set && r.NextSeq.Value != seen.ActivationSeq+1 && seen.isStored():
		return CodeStaleActivationSeq
	}
	return ""
}

// apply is the role under its next epoch.
func (r RoleReservation) apply(seen Role) Role {
	p := r.Patch
	next := seen.nextEpoch()
	next.Version++
	if !seen.isStored() { // a new role may start anywhere
		next.Epoch, next.ActivationSeq = max(r.NextEpoch.Value, 0), max(r.NextSeq.Value, 0)
	}
	if p.Holder.Value != seen.Holder || !p.Holder.Set {
		next.PreviousHolder = seen.Holder
	}
	next.Holder, next.HolderGeneration, next.Successor, next.Closed = p.Holder.Value, 0, "", false
	p.Holder = Opt[string]{}
	return next.patched(p)
}

// patched is the role with the fields of the patch.
func (r Role) patched(p RolePatch) Role {
	set(&r.State, p.State)
	set(&r.PreviousHolder, p.PreviousHolder)
	if p.Holder.Set {
		r.Holder, r.HolderGeneration = p.Holder.Value, 0
	}
	set(&r.ActivationID, p.ActivationID)
	set(&r.ActivationDeadline, p.ActivationDeadline)
	set(&r.HolderLeaseExpires, p.HolderLeaseExpires)
	set(&r.CharterVersion, p.CharterVersion)
	if p.CharterAckedEpoch.Set {
		r.CharterAckedEpoch = Opt[int64]{}
		if p.CharterAckedEpoch.Value >= 0 {
			r.CharterAckedEpoch = p.CharterAckedEpoch
		}
	}
	set(&r.RetryCount, p.RetryCount)
	set(&r.NextProbe, p.NextProbe)
	set(&r.BlockedReason, p.BlockedReason)
	set(&r.LastReason, p.LastReason)
	r.LastTransition = p.LastTransition
	return r
}

// Recognise looks for a write in the history of the role as it stands, and
// returns the role as that write left it: so a write whose answer was lost is
// told as done, although others have written since.
func (u RoleUpdate) Recognise(stands Role) (Role, bool) {
	r, found := stands.at(u.Mark())
	if found && r.Version != stands.Version {
		set(&r.ActivationID, u.Expected.ActivationID)
		r = r.patched(u.Patch)
	}
	return r, found
}

// Remembers tells whether the history still tells which write made a version; of
// a version that is yet to come it tells that none did.
func (r Role) Remembers(version int64) bool {
	return version > r.Version || slices.ContainsFunc(r.History, func(e RoleEvent) bool { return e.Version == version })
}

// at is the role as far as its history tells how the write with this mark left
// it. Epoch and activation_seq grow together, so one tells the other.
func (r Role) at(mark string) (Role, bool) {
	for _, e := range r.History {
		if e.Mark != mark {
			continue
		}
		if e.Version != r.Version {
			r.ActivationSeq -= r.Epoch - e.Epoch
			r.Version, r.Epoch, r.State, r.Holder = e.Version, e.Epoch, e.To, e.Holder
			r.LastTransition, r.LastReason = e.At, e.Reason
		}
		return r, true
	}
	return r, false
}

func set[T any](field *T, v Opt[T]) {
	if v.Set {
		*field = v.Value
	}
}

// keepDue is where a due entry stands after a write that needs one by a moment:
// one that is earlier stays where it is.
func keepDue(stands, need Instant) Instant {
	if need != 0 && stands != 0 && stands <= need {
		return stands
	}
	return need
}

// CandidateRequest adds an agent to a role's candidates, or changes it.
type CandidateRequest struct {
	Wire     string
	AgentID  string
	Priority Opt[int64]
	Source   Opt[string]
	Locators Opt[json.RawMessage] // as a register takes them
	Fences   Fences
}

// AddCandidate adds or changes a candidate, creates the role where it is absent
// and lets a role that waits for a candidate have it: one that is quarantined
// may be elected again, one that asked for a session is reserved for it.
//
// Cost: 2 round trips, 3 more where the role waits.
//
// Errors: INVALID_ARGUMENT, the codes of role keys and locators,
// STALE_PRESENCE_OWNER and those of the identity.
func (h *Hub) AddCandidate(ctx context.Context, r CandidateRequest) (RoleCandidate, error) {
	key, err := ParseRoleWire(r.Wire)
	if err != nil {
		return RoleCandidate{}, err
	}
	if err := checkID("agent_id", r.AgentID); err != nil {
		return RoleCandidate{}, err
	}
	if r.Source.Set && !slices.Contains([]string{CandidateGrant, CandidateStandup, CandidateOperator}, r.Source.Value) {
		return RoleCandidate{}, Invalid("source", "source must be grant, standup or operator")
	}
	identity, err := h.checkIdentity(ctx, r.Fences)
	if err != nil {
		return RoleCandidate{}, err
	}
	now := h.clock.Now()
	write := CandidateWrite{
		Wire: r.Wire, AgentID: r.AgentID, Source: r.Source, Priority: r.Priority,
		Fence: fenceOf(r.AgentID, r.Fences), WriteStamp: h.stamp(now),
	}
	if write.Locators, err = candidateLocators(r.Locators, InstantOf(now)); err != nil {
		return RoleCandidate{}, err
	}
	candidate, stale, err := h.roles.PutCandidate(ctx, write)
	switch {
	case err != nil:
		return RoleCandidate{}, fmt.Errorf("put candidate: %w", err)
	case stale.Set:
		return RoleCandidate{}, h.staleActor(write.Fence.Value, stale.Value, identity)
	}
	// The candidate is stored: a role that could not be told now is told by the
	// next ensure or sweep, which reads the candidates itself.
	_, err = h.runRole(ctx, key, roleWish{trigger: triggerCandidate, agentID: r.AgentID})
	return candidate, err
}

// candidateLocators checks a candidate's locators. They are kept for whoever
// reads them; the hub's own transport is the mailbox.
func candidateLocators(given Opt[json.RawMessage], now Instant) (Opt[json.RawMessage], error) {
	if !given.Set {
		return given, nil
	}
	var p placement
	if err := p.locate(given.Value, locatorCheck{now: now, latest: now.Add(MaxLease)}); err != nil {
		return given, err
	}
	if len(p.locators.Value) > MaxProfileBytes {
		return given, Invalid("transport_locators", fmt.Sprintf("transport_locators must be at most %d bytes", MaxProfileBytes))
	}
	return p.locators, nil
}

// ReachCandidate records news about a candidate (contract 4.5). Quarantining is
// the activator's business.
//
// Errors: NOT_FOUND for an agent that is no candidate.
func (h *Hub) ReachCandidate(ctx context.Context, wire, agentID string, news Reachability) (RoleCandidate, error) {
	if news.At == 0 {
		news.At = InstantOf(h.clock.Now())
	}
	for attempt := range reserveAttempts {
		board, err := h.roles.ReadRoleBoard(ctx, wire)
		if err != nil {
			return RoleCandidate{}, fmt.Errorf("read role: %w", err)
		}
		i := slices.IndexFunc(board.Candidates, func(c RoleCandidate) bool { return c.AgentID == agentID })
		if i < 0 {
			return RoleCandidate{}, Refuse(CodeNotFound, "the agent is no candidate of the role")
		}
		next := board.Candidates[i].Reach(news)
		done, err := h.roles.ReachCandidate(ctx, wire, board.Candidates[i], next)
		if err != nil || done {
			return next, err
		}
		if err := pause(ctx, attempt); err != nil {
			return RoleCandidate{}, err
		}
	}
	return RoleCandidate{}, Refuse(CodeContended, roleRefusals[CodeContended])
}
