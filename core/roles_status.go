package core

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// RoleQuery asks for a page of the roles.
type RoleQuery struct {
	ProjectID Opt[string]
	Wire      Opt[string] // one role
	Limit     int         // 1..100; 0: 50
	Cursor    string
}

// RoleView is a role as a reader sees it at one moment.
type RoleView struct {
	Role           // effective
	AuthorityEnds  Instant
	Candidates     int
	LiveCandidates int
	Pending        int64
}

// RoleList is a page of roles in the order of their wire forms.
type RoleList struct {
	GeneratedAt Instant
	ProjectID   string
	Roles       []RoleView
	NextCursor  string // "" at the end
}

// RoleStatus lists the roles as they are at the time of the call: their states
// are the effective ones, whether or not a sweep has run. It writes nothing.
//
// Cost: 4 round trips a page: the index, the roles, their candidates beside their
// inboxes, and the agents. 3 for one role.
//
// Errors: INVALID_ARGUMENT, PROJECT_ID_INVALID and the codes of wire forms.
func (h *Hub) RoleStatus(ctx context.Context, q RoleQuery) (RoleList, error) {
	list := RoleList{GeneratedAt: InstantOf(h.clock.Now()), ProjectID: q.ProjectID.Value, Roles: []RoleView{}}
	keys, next, err := h.roleKeys(ctx, q)
	if err != nil {
		return RoleList{}, err
	}
	views := make([]RoleView, len(keys))
	found := make([]bool, len(keys))
	err = each(len(keys), statusParallel, func(i int) (err error) {
		views[i], found[i], err = h.roleView(ctx, keys[i])
		return err
	})
	if err != nil {
		return RoleList{}, err
	}
	for i, view := range views {
		if found[i] {
			list.Roles = append(list.Roles, view)
		}
	}
	list.NextCursor = next
	return list, nil
}

// statusParallel bounds the roles that a status reads at once.
const statusParallel = 16

// roleKeys are the roles of the page, and the cursor of the next.
func (h *Hub) roleKeys(ctx context.Context, q RoleQuery) ([]RoleKey, string, error) {
	if q.Wire.Set {
		key, err := ParseRoleWire(q.Wire.Value)
		return []RoleKey{key}, "", err
	}
	after, err := q.validate()
	if err != nil {
		return nil, "", err
	}
	limit := q.Limit
	if limit == 0 {
		limit = DefaultListLimit
	}
	page, err := h.roles.ScanRoles(ctx, RoleScan{Project: q.ProjectID.Value, After: after, Limit: limit})
	if err != nil {
		return nil, "", fmt.Errorf("scan roles: %w", err)
	}
	keys := make([]RoleKey, 0, len(page.Roles))
	for _, r := range page.Roles {
		keys = append(keys, r.Key)
	}
	if page.Done {
		return keys, "", nil
	}
	return keys, encodeCursor(q.cursorKind(), page.Last), nil
}

func (q RoleQuery) validate() (after string, err error) {
	if q.ProjectID.Set && !projectPattern.MatchString(q.ProjectID.Value) {
		return "", InvalidCode(CodeProjectIDInvalid, "project_id", "project_id must be prj_ and 22 characters of A-Za-z0-9_-")
	}
	if q.Limit < 0 || q.Limit > MaxListLimit {
		return "", Invalid("limit", fmt.Sprintf("limit must be 1 to %d", MaxListLimit))
	}
	if q.Cursor == "" {
		return "", nil
	}
	return decodeCursor(q.cursorKind(), q.Cursor)
}

func (q RoleQuery) cursorKind() string {
	return strings.Join([]string{"roles", q.ProjectID.Value}, "\x00")
}

// roleView reads one role with all that its view shows.
func (h *Hub) roleView(ctx context.Context, key RoleKey) (RoleView, bool, error) {
	pending := int64(0)
	counted := inBackground(func() (err error) {
		pending, err = h.messages.CountInbox(ctx, key.Address(), InstantOf(h.clock.Now()), maxPendingCount)
		return err
	})
	b, err := h.readBoard(ctx, key)
	if failed := counted(); err == nil && failed != nil {
		err = fmt.Errorf("count pending messages: %w", failed)
	}
	if err != nil || !b.Role.isStored() || b.Role.Closed {
		return RoleView{}, false, err
	}
	view := RoleView{
		Role: b.Role.effective(b.holder(), b.now), AuthorityEnds: b.Role.authorityEnds(b.holder(), b.now),
		Candidates: len(b.Candidates), Pending: pending,
	}
	for _, c := range b.Candidates {
		if b.isEligible(c.AgentID) {
			view.LiveCandidates++
		}
	}
	return view, true, nil
}

// RoleHistoryQuery asks for a role's transitions.
type RoleHistoryQuery struct {
	Wire   string
	Limit  int // 1..100; 0: 50
	Cursor string
}

// RoleHistoryPage is a page of transitions, newest first.
type RoleHistoryPage struct {
	Events     []RoleEvent
	NextCursor string
}

// RoleHistory returns the latest transitions of a role, MaxRoleHistory at most,
// newest first. Cost: 1 request.
//
// Errors: ROLE_NOT_FOUND, INVALID_ARGUMENT and the codes of wire forms.
func (h *Hub) RoleHistory(ctx context.Context, q RoleHistoryQuery) (RoleHistoryPage, error) {
	if _, err := ParseRoleWire(q.Wire); err != nil {
		return RoleHistoryPage{}, err
	}
	if q.Limit < 0 || q.Limit > MaxListLimit {
		return RoleHistoryPage{}, Invalid("limit", fmt.Sprintf("limit must be 1 to %d", MaxListLimit))
	}
	before := ""
	if q.Cursor != "" {
		var err error
		if before, err = decodeCursor("role history\x00"+q.Wire, q.Cursor); err != nil {
			return RoleHistoryPage{}, err
		}
	}
	role, err := h.roles.ReadRole(ctx, q.Wire)
	if err != nil {
		return RoleHistoryPage{}, fmt.Errorf("read role: %w", err)
	}
	if !role.isStored() {
		return RoleHistoryPage{}, Refuse(CodeRoleNotFound, roleRefusals[CodeRoleNotFound])
	}
	page := RoleHistoryPage{Events: []RoleEvent{}}
	limit := q.Limit
	if limit == 0 {
		limit = DefaultListLimit
	}
	for _, e := range slices.Backward(role.History) {
		position := fmt.Sprintf("%020d", e.Version)
		if before != "" && position >= before {
			continue
		}
		if len(page.Events) == limit {
			last := page.Events[limit-1].Version
			page.NextCursor = encodeCursor("role history\x00"+q.Wire, fmt.Sprintf("%020d", last))
			break
		}
		page.Events = append(page.Events, e)
	}
	return page, nil
}

// History is the role's history with the step in it, where it is one: moving a
// due entry is none.
func (s RoleStep) History() []RoleEvent {
	next := s.Next
	if next.Version == s.Seen.Version {
		return s.Seen.History
	}
	e := RoleEvent{
		Version: next.Version, At: next.LastTransition, To: next.State, Epoch: next.Epoch, Reason: next.LastReason, Holder: next.Holder,
		Mark: s.Mark(),
	}
	if n := len(s.Seen.History); n > 0 {
		e.From = s.Seen.History[n-1].To
	}
	history := append(slices.Clone(s.Seen.History), e)
	return history[max(len(history)-MaxRoleHistory, 0):]
}

// IsIn tells whether the step is in the history of the role as it stands.
func (s RoleStep) IsIn(stands Role) bool {
	_, found := stands.at(s.Mark())
	return found
}

// FenceQuery asks whether an authority stands.
type FenceQuery struct {
	Wire    string
	AgentID string
	Epoch   int64
}

// FenceVerdict answers it, with the fence that stands.
type FenceVerdict struct {
	Valid        bool
	Epoch        int64
	Holder       string
	LeaseExpires Instant // of the authority; 0 when the agent has none
	ServerTime   Instant
}

// CheckRoleFence tells whether an agent holds the role under an epoch: for
// workers that guard side effects of their own. Role and agent are read as they
// stand at one moment (a TransactGetItems): read one after the other, a role that
// is handed on in between and an agent that is revived in between would show an
// authority that stood at no time.
//
// Cost: 1 request, 4 read units.
//
// Errors: ROLE_NOT_FOUND, INVALID_ARGUMENT and the codes of wire forms.
func (h *Hub) CheckRoleFence(ctx context.Context, q FenceQuery) (FenceVerdict, error) {
	if _, err := ParseRoleWire(q.Wire); err != nil {
		return FenceVerdict{}, err
	}
	if err := checkID("agent_id", q.AgentID); err != nil {
		return FenceVerdict{}, err
	}
	role, agent, err := h.roles.ReadAuthority(ctx, q.Wire, q.AgentID)
	if err != nil {
		return FenceVerdict{}, fmt.Errorf("read authority: %w", err)
	}
	if !role.isStored() || role.Closed {
		return FenceVerdict{}, Refuse(CodeRoleNotFound, roleRefusals[CodeRoleNotFound])
	}
	now := InstantOf(h.clock.Now())
	return FenceVerdict{
		Valid: role.Epoch == q.Epoch && role.Holder == q.AgentID && role.isHeld(agent, now),
		Epoch: role.Epoch, Holder: role.Holder, LeaseExpires: role.authorityEnds(agent, now), ServerTime: now,
	}, nil
}

// RoleValueRequest attaches a value to a role.
type RoleValueRequest struct {
	Wire     string
	AgentID  string
	Epoch    int64
	Value    json.RawMessage
	Expected int64 // the version it replaces; 0: there is none
	Fences   Fences
}

// SetRoleValue attaches a value to the role, for whoever holds it next. It holds
// only where the agent's authority under the epoch stands and the version is the
// expected one, in one transaction.
//
// Cost: 1 transaction, and one read before it for the generation where the
// caller sends none.
//
// Errors: STALE_EPOCH, HOLDER_LEASE_EXPIRED with the role as data,
// STALE_STATE_VERSION with the RoleValue, BODY_TOO_LARGE, INVALID_ARGUMENT,
// STALE_PRESENCE_OWNER.
func (h *Hub) SetRoleValue(ctx context.Context, r RoleValueRequest) (RoleValue, error) {
	if _, err := ParseRoleWire(r.Wire); err != nil {
		return RoleValue{}, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, r.Value); err != nil {
		return RoleValue{}, Invalid("state", "state must be JSON")
	}
	if compact.Len() > MaxRoleValue {
		return RoleValue{}, Invalid("state", fmt.Sprintf("state must be at most %d bytes", MaxRoleValue))
	}
	identity, err := h.checkIdentity(ctx, r.Fences)
	if err != nil {
		return RoleValue{}, err
	}
	now := h.clock.Now()
	write := RoleValueWrite{
		Authority: RoleAuthority{Wire: r.Wire, Holder: r.AgentID, Epoch: r.Epoch, Generation: r.Fences.Generation, At: InstantOf(now)},
		Expected:  r.Expected, Value: compact.Bytes(), WriteStamp: h.stamp(now),
	}
	if !write.Authority.Generation.Set {
		role, err := h.roles.ReadRole(ctx, r.Wire)
		if err != nil {
			return RoleValue{}, fmt.Errorf("read role: %w", err)
		}
		write.Authority.Generation = Some(role.HolderGeneration)
	}
	done, err := h.roles.PutRoleValue(ctx, write)
	switch {
	case err != nil:
		return RoleValue{}, fmt.Errorf("put value of role: %w", err)
	case done.Done:
		return RoleValue{Version: r.Expected + 1, Epoch: r.Epoch, Value: write.Value}, nil
	case done.Role.Set:
		return RoleValue{}, refuseRole(CodeStaleEpoch, done.Role.Value)
	case done.Agent.Set && r.Fences.Generation.Set && done.Agent.Value.Generation != r.Fences.Generation.Value:
		return RoleValue{}, h.staleActor(AgentFence{AgentID: r.AgentID, Generation: r.Fences.Generation.Value}, done.Agent.Value, identity)
	case done.Agent.Set:
		return RoleValue{}, refuseRole(CodeHolderLeaseExpired, Role{Version: -1})
	}
	refusal := Refuse(CodeStaleStateVersion, "the role's value has another version")
	refusal.Data = done.Value.Value
	return RoleValue{}, refusal
}

// ReadRoleValue returns the value attached to a role.
func (h *Hub) ReadRoleValue(ctx context.Context, wire string) (RoleValue, error) {
	value, err := h.roles.ReadRoleValue(ctx, wire)
	if err != nil {
		return RoleValue{}, fmt.Errorf("read value of role: %w", err)
	}
	return value, nil
}
