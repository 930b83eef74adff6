package core

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The legacy cto role is the reference's: one for the whole hub, elected from
// what agents say of themselves when they register. Its leader is whoever the
// record names, as long as that agent is live; who would be elected next is
// decided by the events of contract 4.8, not by reads.

// legacyRole is the one role of the legacy interface.
const legacyRole = "cto"

// The sources of a legacy candidate.
const (
	legacyExplicit = "explicit"
	legacyFallback = "topic-fallback"
)

// The statuses of the legacy role.
const (
	legacyActive    = "active"
	legacyElectable = "electable"
	legacyOffline   = "offline"
)

// maxLegacyCandidates is how many candidates the snapshot shows.
const maxLegacyCandidates = 16

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
	Status       Status // effective
	Source       string
	Priority     float64
	LastSeen     Instant
	LeaseExpires Instant

	live bool
}

// legacyCandidate tells whether the agent is a candidate, and with what
// (contract 4.7).
func (a Agent) legacyCandidate(now Instant) (LegacyCandidate, bool) {
	var metadata map[string]json.RawMessage
	if json.Unmarshal(a.Metadata, &metadata) != nil {
		metadata = nil // it is always an object; one that is not says nothing
	}
	c := LegacyCandidate{
		AgentID: a.ID, Status: a.EffectiveStatus(now), Source: legacyExplicit, Priority: legacyPriority(metadata),
		LastSeen: a.LastSeen, LeaseExpires: a.LeaseExpires, live: a.isLive(now),
	}
	switch {
	case claimsLegacyRole(metadata) || slices.ContainsFunc(a.Capabilities, isLegacyCapability):
	case slices.Contains(a.Topics, legacyRole):
		c.Source = legacyFallback
	default:
		return LegacyCandidate{}, false
	}
	return c, true
}

func isLegacyCapability(capability string) bool {
	return slices.Contains([]string{"cto", "role:cto", "cto:leader", "cto:candidate"}, strings.ToLower(capability))
}

func claimsLegacyRole(metadata map[string]json.RawMessage) bool {
	for _, name := range []string{"role", "roles"} {
		if slices.Contains(legacyRoles(metadata[name]), legacyRole) {
			return true
		}
	}
	return string(metadata["cto"]) == "true" || string(metadata["is_cto"]) == "true"
}

// legacyRoles reads a list of roles: an array, or a text with commas or space
// between them.
func legacyRoles(value json.RawMessage) []string {
	if text, ok := jsonString(value); ok {
		return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' || r == '\r' })
	}
	var elements []json.RawMessage
	if json.Unmarshal(value, &elements) != nil {
		return nil
	}
	var roles []string
	for _, element := range elements {
		if role, ok := jsonString(element); ok {
			roles = append(roles, strings.TrimSpace(role))
		}
	}
	return roles
}

// legacyPriority is the first number there is; null counts as 0.
func legacyPriority(metadata map[string]json.RawMessage) float64 {
	for _, name := range []string{"cto_priority", "role_priority", "priority"} {
		value, there := metadata[name]
		if !there {
			continue
		}
		var number float64
		if json.Unmarshal(value, &number) == nil { // null leaves it 0
			return number
		}
	}
	return 0
}

// beforeLegacy orders candidates (contract 4.7).
func beforeLegacy(a, b LegacyCandidate) int {
	switch {
	case a.Source != b.Source:
		return sign(a.Source == legacyExplicit)
	case a.Priority != b.Priority:
		return sign(a.Priority > b.Priority)
	case a.LastSeen != b.LastSeen:
		return sign(a.LastSeen > b.LastSeen)
	default:
		return cmp.Compare(a.AgentID, b.AgentID)
	}
}

// legacyBoard is the legacy role with everybody who may hold it.
type legacyBoard struct {
	state      LegacyState
	candidates []LegacyCandidate // in order
	hints      []string          // ids that led to no candidate
	now        Instant
	at         time.Time
}

func (h *Hub) readLegacy(ctx context.Context) (legacyBoard, error) {
	at := h.clock.Now()
	b := legacyBoard{now: InstantOf(at), at: at}
	state, ids, err := h.roles.ReadLegacyRole(ctx)
	if err != nil {
		return b, fmt.Errorf("read legacy role: %w", err)
	}
	b.state = state
	if len(ids) == 0 {
		return b, nil
	}
	agents, err := h.roles.ReadAgents(ctx, ids)
	if err != nil {
		return b, fmt.Errorf("read candidates: %w", err)
	}
	for _, a := range agents {
		if c, ok := a.legacyCandidate(b.now); ok {
			b.candidates = append(b.candidates, c)
		} else {
			b.hints = append(b.hints, a.ID)
		}
	}
	slices.SortFunc(b.candidates, beforeLegacy)
	return b, nil
}

// leader is the leader that is live now.
func (b legacyBoard) leader() (LegacyCandidate, bool) {
	for _, c := range b.candidates {
		if c.AgentID == b.state.Leader && c.live {
			return c, true
		}
	}
	return LegacyCandidate{}, false
}

// best is the first candidate that is live.
func (b legacyBoard) best() (LegacyCandidate, bool) {
	for _, c := range b.candidates {
		if c.live {
			return c, true
		}
	}
	return LegacyCandidate{}, false
}

// elect is who leads from now on (contract 4.8): a live leader stays, unless it
// came by the topic only and an explicit candidate is there.
func (b legacyBoard) elect(reason string) (LegacyState, bool) {
	best, found := b.best()
	leader, leads := b.leader()
	switch {
	case leads && (leader.Source == legacyExplicit || best.Source != legacyExplicit):
		return b.state, false
	case !found && b.state.Leader == "":
		return b.state, false
	}
	return b.appoint(best, reason), true
}

// appoint is the state with another leader, or with none.
func (b legacyBoard) appoint(c LegacyCandidate, reason string) LegacyState {
	next := b.state
	if next.Leader != "" {
		next.PreviousLeader = next.Leader
	}
	next.Leader, next.Source = c.AgentID, c.Source
	next.Epoch++
	next.LastTransition, next.LastReason = b.now, reason
	return next
}

// snapshot is what readers see (contract 4.9).
func (b legacyBoard) snapshot(pending int64) LegacyRole {
	s := LegacyRole{
		Role: legacyRole, Status: legacyOffline, PreviousLeader: b.state.PreviousLeader, Epoch: b.state.Epoch,
		CandidateCount: int64(len(b.candidates)), PendingCount: pending, TransferredCount: b.state.Transferred,
		LastTransition: b.state.LastTransition, LastReason: cmp.Or(b.state.LastReason, "init"), Candidates: []LegacyCandidate{},
	}
	for _, c := range b.candidates {
		if c.live {
			s.LiveCandidateCount++
			s.Status = legacyElectable
		}
	}
	if leader, ok := b.leader(); ok {
		s.Status, s.Leader, s.LeaseExpires, s.CandidateSource = legacyActive, leader.AgentID, leader.LeaseExpires, leader.Source
	}
	s.Candidates = append(s.Candidates, b.candidates[:min(len(b.candidates), maxLegacyCandidates)]...)
	return s
}

// electLegacy runs an election of the legacy role.
func (h *Hub) electLegacy(ctx context.Context, reason string) error {
	_, err := h.runLegacy(ctx, reason)
	return err
}

// sweepLegacy elects where the leader is not live any more, and removes what led
// to no candidate.
func (h *Hub) sweepLegacy(ctx context.Context) error {
	b, err := h.runLegacy(ctx, "sweep")
	if err != nil {
		return err
	}
	return h.forgetLegacy(ctx, b)
}

// runLegacy elects and returns the role as it stands after that.
func (h *Hub) runLegacy(ctx context.Context, reason string) (legacyBoard, error) {
	for attempt := range reserveAttempts {
		b, err := h.readLegacy(ctx)
		if err != nil {
			return b, err
		}
		next, changes := b.elect(reason)
		if !changes {
			return b, nil
		}
		if done, _, err := h.appointLegacy(ctx, b, next); err != nil || done {
			b.state = next
			return b, err
		}
		if err := pause(ctx, attempt); err != nil {
			return b, err
		}
	}
	return legacyBoard{}, Refuse(CodeContended, "others kept changing the legacy role")
}

// appointLegacy stores the next leader. What waits in the role's inbox is the
// new leader's without being moved, and counts as transferred.
func (h *Hub) appointLegacy(ctx context.Context, b legacyBoard, next LegacyState) (done bool, pending int64, err error) {
	if pending, err = h.countLegacy(ctx); err != nil {
		return false, 0, err
	}
	if next.Leader != "" {
		next.Transferred += pending
	}
	if done, err = h.roles.ReplaceLegacyRole(ctx, b.state, next, h.stamp(b.at)); err != nil {
		return false, 0, fmt.Errorf("replace legacy leader: %w", err)
	}
	return done, pending, nil
}

func (h *Hub) countLegacy(ctx context.Context) (int64, error) {
	pending, err := h.messages.CountInbox(ctx, ctoAddress, InstantOf(h.clock.Now()), maxPendingCount)
	if err != nil {
		return 0, fmt.Errorf("count messages for the cto: %w", err)
	}
	return pending, nil
}

// forgetLegacy removes hints that lead to no candidate and are older than any
// register that may still be on its way.
func (h *Hub) forgetLegacy(ctx context.Context, b legacyBoard) error {
	if len(b.hints) == 0 {
		return nil
	}
	if err := h.roles.ForgetLegacyCandidates(ctx, b.hints, b.now.Add(-followerEntryAge)); err != nil {
		return fmt.Errorf("forget legacy candidates: %w", err)
	}
	return nil
}

// noticeCandidate runs an election after an event of an agent that is a
// candidate. The event itself is done: an election that fails is made up for by
// the next event, or the sweep. Cost: 1 round trip where the agent leads anyway,
// else 3, and 1 unit when the leader changes.
func (h *Hub) noticeCandidate(ctx context.Context, a Agent, reason string, now Instant) {
	c, candidate := a.legacyCandidate(now)
	if !candidate {
		return
	}
	if c.live && c.Source == legacyExplicit {
		if state, _, err := h.roles.ReadLegacyRole(ctx); err == nil && state.Leader == a.ID {
			return
		}
	}
	_ = h.electLegacy(ctx, reason)
}

// legacySnapshot reads the legacy role for an answer. It elects nobody.
func (h *Hub) legacySnapshot(ctx context.Context) (LegacyRole, error) {
	var pending int64
	counted := inBackground(func() (err error) {
		pending, err = h.countLegacy(ctx)
		return err
	})
	b, err := h.readLegacy(ctx)
	if failed := counted(); err == nil {
		err = failed
	}
	if err != nil {
		return LegacyRole{}, err
	}
	return b.snapshot(pending), nil
}

// TakeoverRequest makes an agent the leader of the legacy role.
type TakeoverRequest struct {
	Role        string
	AgentID     string
	Reason      string
	RequestedBy string
	Fences      Fences // the generation is not read
}

// Takeover is the answer.
type Takeover struct {
	Role           string
	RequestedBy    string
	Reason         string
	Changed        bool
	PreviousLeader string
	Leader         string
	Epoch          int64
	Transferred    int64
	Skipped        int64
	Removed        int64
	Snapshot       LegacyRole
	Identity       Identity
}

// TakeoverRole makes a live candidate the leader of the legacy cto role,
// whoever leads (contract 2.8). Nothing is moved: what waits for the role is in
// the role's own inbox.
//
// Cost: 4 round trips.
//
// Errors: ROLE_NOT_SUPPORTED, AGENT_ID_REQUIRED, ROLE_CANDIDATE_UNAVAILABLE with
// the snapshot as data, INVALID_ARGUMENT and those of the identity.
func (h *Hub) TakeoverRole(ctx context.Context, r TakeoverRequest) (Takeover, error) {
	for _, field := range []struct{ name, value string }{{"role", r.Role}, {"agent_id", r.AgentID}} {
		if err := checkID(field.name, field.value); err != nil {
			return Takeover{}, err
		}
	}
	for _, field := range []struct{ name, value string }{{"reason", r.Reason}, {"requested_by", r.RequestedBy}} {
		if len(field.value) > MaxIDBytes || !isText(field.value) {
			return Takeover{}, Invalid(field.name, field.name+" must be at most 512 bytes of UTF-8 without control characters")
		}
	}
	identity, err := h.checkIdentity(ctx, r.Fences)
	if err != nil {
		return Takeover{}, err
	}
	agentID := strings.TrimSpace(r.AgentID)
	switch {
	case strings.ToLower(strings.TrimSpace(r.Role)) != legacyRole:
		return Takeover{}, Refuse(CodeRoleNotSupported, "role must be cto")
	case agentID == "":
		return Takeover{}, Refuse(CodeAgentIDRequired, "agent_id is blank")
	}
	t := Takeover{Role: legacyRole, RequestedBy: r.RequestedBy, Reason: r.Reason, Identity: identity}
	return h.takeover(ctx, t, agentID)
}

func (h *Hub) takeover(ctx context.Context, t Takeover, agentID string) (Takeover, error) {
	for attempt := range reserveAttempts {
		b, err := h.readLegacy(ctx)
		if err != nil {
			return Takeover{}, err
		}
		i := slices.IndexFunc(b.candidates, func(c LegacyCandidate) bool { return c.AgentID == agentID && c.live })
		if i < 0 {
			return Takeover{}, h.refuseTakeover(ctx, b)
		}
		before := b.state
		if leader, leads := b.leader(); leads && leader.AgentID == agentID {
			pending, err := h.countLegacy(ctx)
			t.Leader, t.PreviousLeader, t.Epoch, t.Skipped = agentID, before.PreviousLeader, before.Epoch, pending
			t.Snapshot = b.snapshot(pending)
			return t, err
		}
		next := b.appoint(b.candidates[i], t.Reason)
		done, pending, err := h.appointLegacy(ctx, b, next)
		if err != nil {
			return Takeover{}, err
		}
		if done {
			next.Transferred += pending
			b.state = next
			t.Changed, t.Leader, t.PreviousLeader, t.Epoch, t.Transferred = true, agentID, next.PreviousLeader, next.Epoch, pending
			if before.Leader != "" {
				t.Removed = pending
			}
			t.Snapshot = b.snapshot(pending)
			return t, nil
		}
		if err := pause(ctx, attempt); err != nil {
			return Takeover{}, err
		}
	}
	return Takeover{}, Refuse(CodeContended, "others kept changing the legacy role")
}

func (h *Hub) refuseTakeover(ctx context.Context, b legacyBoard) error {
	pending, err := h.countLegacy(ctx)
	if err != nil {
		return err
	}
	refusal := Refuse(CodeCandidateUnavailable, "the agent is not a live candidate")
	refusal.Data = b.snapshot(pending)
	return refusal
}
