package functions

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"drawbridge/core"
)

// roleNaming names a role by its key or by its wire form.
type roleNaming struct {
	RoleKey     json.RawMessage  `json:"role_key" in:"any" doc:"project_id, role_kind (cto or lead) and, of a lead, scope_id. Or else role_key_wire."`
	RoleKeyWire core.Opt[string] `json:"role_key_wire" in:"text,code=ROLE_KEY_WIRE_INVALID,max=512"`
}

// wire is the role's wire form. Where both are given they must agree.
func (n roleNaming) wire() (string, error) {
	wire := n.RoleKeyWire.Value
	if n.RoleKeyWire.Set {
		if _, err := core.ParseRoleWire(wire); err != nil {
			return "", err
		}
	}
	if n.RoleKeyWire.Set && isNullOrAbsent(n.RoleKey) {
		return wire, nil
	}
	key, err := core.ParseRoleKey(n.RoleKey)
	if err != nil {
		return "", err
	}
	if n.RoleKeyWire.Set && key.Wire() != wire {
		return "", core.Invalid("role_key_wire", "role_key and role_key_wire name two roles")
	}
	return key.Wire(), nil
}

func isNullOrAbsent(value json.RawMessage) bool { return len(value) == 0 || string(value) == "null" }

// nested decodes an object inside a request by the rules of a struct.
func nested[T any](value json.RawMessage, path string) (T, error) {
	var into T
	if len(value) == 0 {
		return into, nil
	}
	fields, err := shapeOf(reflect.TypeFor[T]())
	if err != nil {
		return into, err
	}
	if err := fields.decode(jsonText(value), path+".", reflect.ValueOf(&into).Elem()); err != nil {
		return into, err
	}
	return into, nil
}

// roleKeyView is a role's key in an answer.
type roleKeyView struct {
	ProjectID string        `json:"project_id"`
	RoleKind  core.RoleKind `json:"role_kind"`
	ScopeID   string        `json:"scope_id,omitempty"`
}

// roleView is a role in an answer (contract 1.9, compat 18).
type roleView struct {
	RoleKey               roleKeyView    `json:"role_key"`
	RoleKeyWire           string         `json:"role_key_wire"`
	ProjectID             string         `json:"project_id"`
	RoleKind              core.RoleKind  `json:"role_kind"`
	ScopeID               string         `json:"scope_id"`
	State                 core.RoleState `json:"state"`
	Epoch                 int64          `json:"epoch" doc:"Send it with everything that is done for the role."`
	Version               int64          `json:"version"`
	ActivationSeq         int64          `json:"activation_seq"`
	ActivationID          *string        `json:"activation_id"`
	HolderAgentID         *string        `json:"holder_agent_id"`
	PreviousHolderAgentID *string        `json:"previous_holder_agent_id"`
	LeaseExpiresMs        *core.Instant  `json:"lease_expires_ms" doc:"Of the authority: the holder's lease, or the role's own bound where that is earlier. Outside of status the bound."`
	HolderLeaseExpiresMs  *core.Instant  `json:"holder_lease_expires_ms" doc:"The role's own bound."`
	ActivationDeadlineMs  *core.Instant  `json:"activation_deadline_ms"`
	CharterVersion        *string        `json:"charter_version"`
	CharterAckedEpoch     *int64         `json:"charter_acked_epoch"`
	RetryCount            int64          `json:"retry_count"`
	NextProbeMs           *core.Instant  `json:"next_probe_ms"`
	BlockedReason         *string        `json:"blocked_reason"`
	SuccessorAgentID      *string        `json:"successor_agent_id" doc:"Who a hand-over under way is for."`
	LastTransitionMs      core.Instant   `json:"last_transition_ms"`
	LastReason            string         `json:"last_reason"`
}

func roleViewOf(r core.Role) roleView {
	view := roleView{
		RoleKey:               roleKeyView{ProjectID: r.Key.ProjectID, RoleKind: r.Key.Kind, ScopeID: r.Key.ScopeID},
		RoleKeyWire:           r.Wire,
		ProjectID:             r.Key.ProjectID,
		RoleKind:              r.Key.Kind,
		ScopeID:               r.Key.ScopeID,
		State:                 r.State,
		Epoch:                 r.Epoch,
		Version:               r.Version,
		ActivationSeq:         r.ActivationSeq,
		ActivationID:          orNull(r.ActivationID),
		HolderAgentID:         orNull(r.Holder),
		PreviousHolderAgentID: orNull(r.PreviousHolder),
		LeaseExpiresMs:        orNull(r.HolderLeaseExpires),
		HolderLeaseExpiresMs:  orNull(r.HolderLeaseExpires),
		ActivationDeadlineMs:  orNull(r.ActivationDeadline),
		CharterVersion:        orNull(r.CharterVersion),
		RetryCount:            r.RetryCount,
		NextProbeMs:           orNull(r.NextProbe),
		BlockedReason:         orNull(r.BlockedReason),
		SuccessorAgentID:      orNull(r.Successor),
		LastTransitionMs:      r.LastTransition,
		LastReason:            r.LastReason,
	}
	if r.CharterAckedEpoch.Set {
		view.CharterAckedEpoch = &r.CharterAckedEpoch.Value
	}
	return view
}

// roleStandsView is the data of a refusal: the role that was judged.
type roleStandsView struct {
	Role *roleView `json:"role"`
}

func roleStandsOf(s core.RoleStands) roleStandsView {
	if !s.Role.Set {
		return roleStandsView{}
	}
	view := roleViewOf(s.Role.Value)
	return roleStandsView{Role: &view}
}

type legacyStandsView struct {
	Role legacyRoleView `json:"role"`
}

type roleResponse struct {
	Role roleView `json:"role"`
}

// roleValueView is the value attached to a role.
type roleValueView struct {
	StateVersion int64           `json:"state_version" doc:"0: none was ever attached."`
	State        json.RawMessage `json:"state"`
	StateEpoch   int64           `json:"state_epoch" doc:"The epoch it was written under."`
}

func roleValueViewOf(v core.RoleValue) roleValueView {
	view := roleValueView{StateVersion: v.Version, State: v.Value, StateEpoch: v.Epoch}
	if len(v.Value) == 0 {
		view.State = json.RawMessage("null")
	}
	return view
}

// --- takeover-role (contract 2.8)

type takeoverRequest struct {
	Role        string `json:"role" in:"text,min=1,max=512,default=\"cto\"" doc:"The one legacy role: cto."`
	AgentID     string `json:"agent_id" in:"text,required,min=1,max=512"`
	Reason      string `json:"reason" in:"line,default=\"manual\""`
	RequestedBy string `json:"requested_by" in:"line,default=\"http\""`
	identityFences
}

func (r takeoverRequest) actingAgents() []actingAgent {
	return []actingAgent{{"agent_id", trimmed(core.Some(r.AgentID))}}
}

type takeoverResponse struct {
	Role                  string         `json:"role"`
	RequestedBy           string         `json:"requested_by"`
	Reason                string         `json:"reason"`
	Changed               bool           `json:"changed"`
	PreviousLeaderAgentID *string        `json:"previous_leader_agent_id"`
	LeaderAgentID         string         `json:"leader_agent_id"`
	LeaderEpoch           int64          `json:"leader_epoch"`
	TransferredCount      int64          `json:"transferred_count" doc:"Messages that waited in the role's inbox when the leader changed."`
	SkippedCount          int64          `json:"skipped_count"`
	RemovedCount          int64          `json:"removed_count"`
	Status                legacyRoleView `json:"status"`
	identityView
}

func takeoverRole(ctx context.Context, c *call, r takeoverRequest) (takeoverResponse, error) {
	done, err := c.hub.TakeoverRole(ctx, core.TakeoverRequest{
		Role: r.Role, AgentID: r.AgentID, Reason: r.Reason, RequestedBy: r.RequestedBy, Fences: r.identityFences.core(),
	})
	if err != nil {
		return takeoverResponse{}, err
	}
	return takeoverResponse{
		Role:                  done.Role,
		RequestedBy:           done.RequestedBy,
		Reason:                done.Reason,
		Changed:               done.Changed,
		PreviousLeaderAgentID: orNull(done.PreviousLeader),
		LeaderAgentID:         done.Leader,
		LeaderEpoch:           done.Epoch,
		TransferredCount:      done.Transferred,
		SkippedCount:          done.Skipped,
		RemovedCount:          done.Removed,
		Status:                legacyRoleViewOf(done.Snapshot),
		identityView:          identityViewOf(done.Identity),
	}, nil
}

// --- roles/candidates

type candidateRequest struct {
	roleNaming
	AgentID  string           `json:"agent_id" in:"id,required"`
	Priority core.Opt[int64]  `json:"priority" in:"integer,min=-1000000,max=1000000" doc:"Higher first; 0 without it."`
	Source   core.Opt[string] `json:"source" in:"line,enum=grant|standup|operator" doc:"operator without it."`
	Locators json.RawMessage  `json:"transport_locators" in:"any" doc:"As a register takes them. Kept; the hub reaches candidates by their inbox."`
	fences
}

func (r candidateRequest) actingAgents() []actingAgent {
	return []actingAgent{{"agent_id", r.AgentID}}
}

type candidateView struct {
	RoleKeyWire              string          `json:"role_key_wire"`
	AgentID                  string          `json:"agent_id"`
	Source                   string          `json:"source"`
	Priority                 int64           `json:"priority"`
	TransportLocators        json.RawMessage `json:"transport_locators"`
	ConsecutiveProbeFailures int64           `json:"consecutive_probe_failures"`
	ExcludedUntilMs          *core.Instant   `json:"excluded_until_ms"`
	LastProbeMs              *core.Instant   `json:"last_probe_ms"`
	LastProbeCode            *string         `json:"last_probe_code"`
	UpdatedAtMs              core.Instant    `json:"updated_at_ms"`
}

type candidateResponse struct {
	Candidate candidateView `json:"candidate"`
}

func addCandidate(ctx context.Context, c *call, r candidateRequest) (candidateResponse, error) {
	wire, err := r.wire()
	if err != nil {
		return candidateResponse{}, err
	}
	request := core.CandidateRequest{Wire: wire, AgentID: r.AgentID, Priority: r.Priority, Source: r.Source, Fences: r.fences.core()}
	if !isNullOrAbsent(r.Locators) {
		request.Locators = core.Some(r.Locators)
	}
	done, err := c.hub.AddCandidate(ctx, request)
	if err != nil {
		return candidateResponse{}, staleActor(err)
	}
	return candidateResponse{Candidate: candidateView{
		RoleKeyWire:              wire,
		AgentID:                  done.AgentID,
		Source:                   done.Source,
		Priority:                 done.Priority,
		TransportLocators:        done.Locators,
		ConsecutiveProbeFailures: done.Failures,
		ExcludedUntilMs:          orNull(done.ExcludedUntil),
		LastProbeMs:              orNull(done.LastProbe),
		LastProbeCode:            orNull(done.LastProbeCode),
		UpdatedAtMs:              done.UpdatedAt,
	}}, nil
}

// --- roles/ensure

type ensureRequest struct {
	roleNaming
	SchemaVersion core.Opt[string] `json:"schema_version" in:"line,enum=tfx.ensure-role.v1,code=ENSURE_ROLE_REQUEST_INVALID"`
	Trigger       string           `json:"trigger" in:"text,required,code=ENSURE_ROLE_REQUEST_INVALID" doc:"session_start, publish_no_holder, lease_expired, restart_recovery, hygiene_changed, charter_issued or manual."`
	CauseID       string           `json:"cause_id" in:"text,required,code=ENSURE_ROLE_REQUEST_INVALID" doc:"What made the caller ask."`
}

type ensureResponse struct {
	Accepted      bool             `json:"accepted"`
	Disposition   core.Disposition `json:"disposition" doc:"started, joined, already_active, manager_disabled or scope_closed."`
	RoleKeyWire   string           `json:"role_key_wire"`
	State         core.RoleState   `json:"state"`
	Epoch         int64            `json:"epoch"`
	ActivationID  string           `json:"activation_id,omitempty"`
	BlockedReason string           `json:"blocked_reason,omitempty"`
}

func ensureRole(ctx context.Context, c *call, r ensureRequest) (ensureResponse, error) {
	wire, err := r.wire()
	if err != nil {
		return ensureResponse{}, err
	}
	done, err := c.hub.EnsureRole(ctx, core.EnsureRequest{Wire: wire, Trigger: r.Trigger, CauseID: r.CauseID})
	if err != nil {
		return ensureResponse{}, err
	}
	return ensureResponse{
		Accepted: done.Accepted, Disposition: done.Disposition, RoleKeyWire: done.Wire, State: done.State, Epoch: done.Epoch,
		ActivationID: done.ActivationID, BlockedReason: done.BlockedReason,
	}, nil
}

// --- roles/ack

type ackRoleRequest struct {
	AgentID       string           `json:"agent_id" in:"id,required" doc:"Who acts."`
	SchemaVersion core.Opt[string] `json:"schema_version" in:"line,enum=tfx.role-activation-ack.v1,code=ACTIVATION_ACK_INVALID"`
	roleNaming
	ActivationID  string           `json:"activation_id" in:"line,required,min=1,code=ACTIVATION_ACK_INVALID"`
	Epoch         int64            `json:"epoch" in:"integer,required,min=0,code=ACTIVATION_ACK_INVALID"`
	ActivationSeq int64            `json:"activation_seq" in:"integer,required,min=0,code=ACTIVATION_ACK_INVALID"`
	HolderAgentID core.Opt[string] `json:"holder_agent_id" in:"id,code=ACTIVATION_ACK_INVALID" doc:"agent_id without it."`
	Reachable     bool             `json:"reachable" in:"boolean,default=true,code=ACTIVATION_ACK_INVALID" doc:"true."`
	CharterAck    json.RawMessage  `json:"charter_ack" in:"object,required,code=ACTIVATION_ACK_INVALID" doc:"role_key (or role_key_wire), epoch and charter_version."`
	fences
}

func (r ackRoleRequest) actingAgents() []actingAgent {
	return []actingAgent{{"agent_id", r.AgentID}}
}

// charterAck is what the holder acknowledges.
type charterAck struct {
	roleNaming
	Epoch          int64            `json:"epoch" in:"integer,required,min=0,code=ACTIVATION_ACK_INVALID"`
	CharterVersion core.Opt[string] `json:"charter_version" in:"line,max=128,code=ACTIVATION_ACK_INVALID"`
}

type ackRoleResponse struct {
	Role       roleView `json:"role"`
	Idempotent bool     `json:"idempotent" doc:"It was acknowledged before."`
	roleValueView
}

func ackRole(ctx context.Context, c *call, r ackRoleRequest) (ackRoleResponse, error) {
	wire, err := r.wire()
	if err != nil {
		return ackRoleResponse{}, err
	}
	charter, err := nested[charterAck](r.CharterAck, "charter_ack")
	if err != nil {
		return ackRoleResponse{}, err
	}
	charterWire, err := charter.wire()
	if err != nil || !r.Reachable {
		return ackRoleResponse{}, core.InvalidCode(core.CodeActivationAckInvalid, "charter_ack", "charter_ack must name the role, and reachable be true")
	}
	done, err := c.hub.AcknowledgeRole(ctx, core.AckRoleRequest{
		AgentID: r.AgentID, Wire: wire, HolderAgentID: or(r.HolderAgentID, r.AgentID), Epoch: r.Epoch, ActivationSeq: r.ActivationSeq,
		ActivationID: r.ActivationID, CharterWire: charterWire, CharterEpoch: charter.Epoch, CharterVersion: charter.CharterVersion.Value,
		Fences: r.fences.core(),
	})
	if err != nil {
		return ackRoleResponse{}, staleActor(err)
	}
	return ackRoleResponse{Role: roleViewOf(done.Role), Idempotent: done.Idempotent, roleValueView: roleValueViewOf(done.Value)}, nil
}

// --- roles/release

type releaseRoleRequest struct {
	roleNaming
	AgentID   string           `json:"agent_id" in:"id,required" doc:"The holder."`
	Epoch     int64            `json:"epoch" in:"integer,required"`
	Successor core.Opt[string] `json:"successor" in:"id" doc:"Who is to have the role next; without it whoever comes first."`
	GraceMs   int64            `json:"grace_ms" in:"integer,min=0,max=600000,default=0" doc:"How long the holder may still finish."`
	fences
}

func (r releaseRoleRequest) actingAgents() []actingAgent {
	return []actingAgent{{"agent_id", r.AgentID}}
}

func releaseRole(ctx context.Context, c *call, r releaseRoleRequest) (roleResponse, error) {
	wire, err := r.wire()
	if err != nil {
		return roleResponse{}, err
	}
	done, err := c.hub.ReleaseRole(ctx, core.ReleaseRequest{
		Wire: wire, AgentID: r.AgentID, Epoch: r.Epoch, Successor: r.Successor.Value, GraceMs: r.GraceMs, Fences: r.fences.core(),
	})
	if err != nil {
		return roleResponse{}, staleActor(err)
	}
	c.replayed = done.Replayed
	return roleResponse{Role: roleViewOf(done.Role)}, nil
}

// --- roles/cas and roles/reserve

// rolePatch are fields of a role to replace; null clears one, except where the
// contract keeps it (state, retry_count, last_reason).
type rolePatch struct {
	State                 core.Opt[string] `json:"state" in:"text,max=64,code=ROLE_REACHABILITY_STATE_INVALID"`
	HolderAgentID         core.Opt[string] `json:"holder_agent_id" in:"line,null=\"\""`
	PreviousHolderAgentID core.Opt[string] `json:"previous_holder_agent_id" in:"line,null=\"\""`
	ActivationID          core.Opt[string] `json:"activation_id" in:"line,null=\"\""`
	ActivationDeadlineMs  core.Opt[int64]  `json:"activation_deadline_ms" in:"integer,min=0,max=999999999999999,null=0"`
	HolderLeaseExpiresMs  core.Opt[int64]  `json:"holder_lease_expires_ms" in:"integer,min=0,max=999999999999999,null=0"`
	CharterVersion        core.Opt[string] `json:"charter_version" in:"line,null=\"\""`
	CharterAckedEpoch     core.Opt[int64]  `json:"charter_acked_epoch" in:"integer,min=-1,null=-1"`
	RetryCount            core.Opt[int64]  `json:"retry_count" in:"integer,min=0,max=1000000"`
	NextProbeMs           core.Opt[int64]  `json:"next_probe_ms" in:"integer,min=0,max=999999999999999,null=0"`
	BlockedReason         core.Opt[string] `json:"blocked_reason" in:"line,null=\"\""`
	LastTransitionMs      core.Opt[int64]  `json:"last_transition_ms" in:"integer,min=0,max=999999999999999"`
	LastReason            core.Opt[string] `json:"last_reason" in:"line"`
}

func (p rolePatch) core() core.RolePatch {
	at := func(ms core.Opt[int64]) core.Opt[core.Instant] {
		return core.Opt[core.Instant]{Value: core.Instant(ms.Value), Set: ms.Set}
	}
	return core.RolePatch{
		State:              core.Opt[core.RoleState]{Value: core.RoleState(p.State.Value), Set: p.State.Set},
		Holder:             p.HolderAgentID,
		PreviousHolder:     p.PreviousHolderAgentID,
		ActivationID:       p.ActivationID,
		ActivationDeadline: at(p.ActivationDeadlineMs),
		HolderLeaseExpires: at(p.HolderLeaseExpiresMs),
		CharterVersion:     p.CharterVersion,
		CharterAckedEpoch:  p.CharterAckedEpoch,
		RetryCount:         p.RetryCount,
		NextProbe:          at(p.NextProbeMs),
		BlockedReason:      p.BlockedReason,
		LastTransition:     core.Instant(p.LastTransitionMs.Value),
		LastReason:         p.LastReason,
	}
}

type casRequest struct {
	roleNaming
	Expected json.RawMessage `json:"expected" in:"object" doc:"version, epoch, activation_seq and activation_id; null expects no activation_id."`
	Patch    json.RawMessage `json:"patch" in:"object" doc:"Fields to replace; null clears."`
	Changes  json.RawMessage `json:"changes" in:"object" doc:"The same as patch."`
}

type casExpectation struct {
	Version       core.Opt[int64]  `json:"version" in:"integer"`
	Epoch         core.Opt[int64]  `json:"epoch" in:"integer"`
	ActivationSeq core.Opt[int64]  `json:"activation_seq" in:"integer,null=-1"`
	ActivationID  core.Opt[string] `json:"activation_id" in:"line,null=\"\""`
}

func casRole(ctx context.Context, c *call, r casRequest) (roleResponse, error) {
	wire, err := r.wire()
	if err != nil {
		return roleResponse{}, err
	}
	expected, err := nested[casExpectation](r.Expected, "expected")
	if err != nil {
		return roleResponse{}, err
	}
	given, name := r.Patch, "patch"
	if given == nil {
		given, name = r.Changes, "changes"
	}
	patch, err := nested[rolePatch](given, name)
	if err != nil {
		return roleResponse{}, err
	}
	done, err := c.hub.CompareAndSetRole(ctx, core.RoleCAS{
		Wire: wire, Patch: patch.core(),
		Expected: core.RoleExpectation(expected),
	})
	if err != nil {
		return roleResponse{}, err
	}
	c.replayed = done.Replayed
	return roleResponse{Role: roleViewOf(done.Role)}, nil
}

type reserveRequest struct {
	roleNaming
	ExpectedVersion   core.Opt[int64] `json:"expected_version" in:"integer" doc:"Any without it; with it the reservation is one conditional write."`
	ExpectedEpoch     core.Opt[int64] `json:"expected_epoch" in:"integer" doc:"Any without it."`
	Epoch             core.Opt[int64] `json:"epoch" in:"integer,min=0" doc:"Must be the epoch that follows."`
	NextEpoch         core.Opt[int64] `json:"next_epoch" in:"integer,min=0" doc:"The same as epoch."`
	ActivationSeq     core.Opt[int64] `json:"activation_seq" in:"integer,min=0" doc:"Must be the activation_seq that follows."`
	NextActivationSeq core.Opt[int64] `json:"next_activation_seq" in:"integer,min=0" doc:"The same as activation_seq."`
	rolePatch
}

func reserveRole(ctx context.Context, c *call, r reserveRequest) (roleResponse, error) {
	wire, err := r.wire()
	if err != nil {
		return roleResponse{}, err
	}
	done, err := c.hub.ReserveRole(ctx, core.RoleReservation{
		Wire: wire, Version: r.ExpectedVersion, Epoch: r.ExpectedEpoch,
		NextEpoch: orLifted(r.Epoch, r.NextEpoch), NextSeq: orLifted(r.ActivationSeq, r.NextActivationSeq), Patch: r.rolePatch.core(),
	})
	if err != nil {
		return roleResponse{}, err
	}
	c.replayed = done.Replayed
	return roleResponse{Role: roleViewOf(done.Role)}, nil
}

// --- roles/state

type roleStateRequest struct {
	roleNaming
	AgentID  string          `json:"agent_id" in:"id,required" doc:"The holder."`
	Epoch    int64           `json:"epoch" in:"integer,required"`
	State    json.RawMessage `json:"state" in:"any" doc:"Any JSON value of at most 32 KB."`
	Expected int64           `json:"expected_state_version" in:"integer,required,min=0" doc:"The version it replaces; 0 for the first."`
	fences
}

func (r roleStateRequest) actingAgents() []actingAgent {
	return []actingAgent{{"agent_id", r.AgentID}}
}

type roleStateResponse struct {
	StateVersion int64 `json:"state_version"`
}

func setRoleState(ctx context.Context, c *call, r roleStateRequest) (roleStateResponse, error) {
	wire, err := r.wire()
	if err != nil {
		return roleStateResponse{}, err
	}
	if len(r.State) == 0 {
		return roleStateResponse{}, core.Invalid("state", "state is required")
	}
	done, err := c.hub.SetRoleValue(ctx, core.RoleValueRequest{
		Wire: wire, AgentID: r.AgentID, Epoch: r.Epoch, Value: r.State, Expected: r.Expected, Fences: r.fences.core(),
	})
	if err != nil {
		return roleStateResponse{}, staleActor(err)
	}
	return roleStateResponse{StateVersion: done.Version}, nil
}

// --- roles/fence-check

type fenceCheckRequest struct {
	roleNaming
	AgentID string `json:"agent_id" in:"id,required"`
	Epoch   int64  `json:"epoch" in:"integer,required"`
}

type fenceCheckResponse struct {
	Valid                bool          `json:"valid"`
	Epoch                int64         `json:"epoch" doc:"The role's current epoch."`
	HolderAgentID        *string       `json:"holder_agent_id"`
	HolderLeaseExpiresMs *core.Instant `json:"holder_lease_expires_ms" doc:"When the agent's authority ends; null when it has none."`
	ServerTimeMs         core.Instant  `json:"server_time_ms"`
}

func checkFence(ctx context.Context, c *call, r fenceCheckRequest) (fenceCheckResponse, error) {
	wire, err := r.wire()
	if err != nil {
		return fenceCheckResponse{}, err
	}
	v, err := c.hub.CheckRoleFence(ctx, core.FenceQuery{Wire: wire, AgentID: r.AgentID, Epoch: r.Epoch})
	if err != nil {
		return fenceCheckResponse{}, err
	}
	return fenceCheckResponse{
		Valid: v.Valid, Epoch: v.Epoch, HolderAgentID: orNull(v.Holder), HolderLeaseExpiresMs: orNull(v.LeaseExpires), ServerTimeMs: v.ServerTime,
	}, nil
}

// --- roles/status and roles/history

type roleStatusRequest struct {
	ProjectID   core.Opt[string] `json:"project_id" in:"line,code=PROJECT_ID_INVALID" doc:"Only roles of this project."`
	RoleKeyWire core.Opt[string] `json:"role_key_wire" in:"line,code=ROLE_KEY_WIRE_INVALID" doc:"Only this role, with the value attached to it."`
	Limit       int64            `json:"limit" in:"integer,min=1,max=100,default=50"`
	Cursor      core.Opt[string] `json:"cursor" in:"line,max=4096" doc:"next_cursor of the page before."`
}

// roleItemView is a role in the status, as it is in effect.
type roleItemView struct {
	roleView
	CandidateCount     int            `json:"candidate_count"`
	LiveCandidateCount int            `json:"live_candidate_count"`
	PendingCount       int64          `json:"pending_count" doc:"Messages that wait for the role."`
	Attached           *roleValueView `json:"attached,omitempty" doc:"The value attached to the role; when one role was asked for."`
}

type roleStatusResponse struct {
	SchemaVersion string         `json:"schema_version"`
	GeneratedAtMs core.Instant   `json:"generated_at_ms"`
	ProjectID     string         `json:"project_id,omitempty"`
	Items         []roleItemView `json:"items"`
	NextCursor    *string        `json:"next_cursor" doc:"Null at the end."`
}

const roleStatusSchema = "tfx.roles.v2"

func roleStatus(ctx context.Context, c *call, r roleStatusRequest) (roleStatusResponse, error) {
	list, err := c.hub.RoleStatus(ctx, core.RoleQuery{ProjectID: r.ProjectID, Wire: r.RoleKeyWire, Limit: int(r.Limit), Cursor: r.Cursor.Value})
	if err != nil {
		return roleStatusResponse{}, err
	}
	answer := roleStatusResponse{
		SchemaVersion: roleStatusSchema, GeneratedAtMs: list.GeneratedAt, ProjectID: list.ProjectID,
		Items: []roleItemView{}, NextCursor: orNull(list.NextCursor),
	}
	for _, role := range list.Roles {
		item := roleItemView{
			roleView: roleViewOf(role.Role), CandidateCount: role.Candidates, LiveCandidateCount: role.LiveCandidates, PendingCount: role.Pending,
		}
		item.LeaseExpiresMs = orNull(role.AuthorityEnds)
		answer.Items = append(answer.Items, item)
	}
	if r.RoleKeyWire.Set && len(answer.Items) == 1 {
		value, err := c.hub.ReadRoleValue(ctx, r.RoleKeyWire.Value)
		if err != nil {
			return roleStatusResponse{}, fmt.Errorf("read what is attached: %w", err)
		}
		view := roleValueViewOf(value)
		answer.Items[0].Attached = &view
	}
	return answer, nil
}

type roleHistoryRequest struct {
	Limit       int64            `json:"limit" in:"integer,min=1,max=100,default=50"`
	Cursor      core.Opt[string] `json:"cursor" in:"line,max=4096" doc:"next_cursor of the page before."`
	RoleKeyWire string           `json:"role_key_wire" in:"line,required,code=ROLE_KEY_WIRE_INVALID"`
}

type transitionView struct {
	AtMs          core.Instant    `json:"at_ms"`
	From          *core.RoleState `json:"from"`
	To            core.RoleState  `json:"to"`
	Epoch         int64           `json:"epoch"`
	Reason        string          `json:"reason"`
	HolderAgentID *string         `json:"holder_agent_id"`
	Version       int64           `json:"version"`
}

type roleHistoryResponse struct {
	Transitions []transitionView `json:"transitions" doc:"Newest first; the latest 12 are kept."`
	NextCursor  *string          `json:"next_cursor" doc:"Null at the end."`
}

func roleHistory(ctx context.Context, c *call, r roleHistoryRequest) (roleHistoryResponse, error) {
	page, err := c.hub.RoleHistory(ctx, core.RoleHistoryQuery{Wire: r.RoleKeyWire, Limit: int(r.Limit), Cursor: r.Cursor.Value})
	if err != nil {
		return roleHistoryResponse{}, err
	}
	answer := roleHistoryResponse{Transitions: []transitionView{}, NextCursor: orNull(page.NextCursor)}
	for _, e := range page.Events {
		answer.Transitions = append(answer.Transitions, transitionView{
			AtMs: e.At, From: orNull(e.From), To: e.To, Epoch: e.Epoch, Reason: e.Reason, HolderAgentID: orNull(e.Holder), Version: e.Version,
		})
	}
	return answer, nil
}

// --- roles/settings and roles/recover

type roleSettingsRequest struct {
	MasterEnabled  core.Opt[bool]   `json:"master_enabled" in:"boolean" doc:"false: nobody holds any role."`
	CTOEnabled     core.Opt[bool]   `json:"cto_manager_enabled" in:"boolean"`
	LeadEnabled    core.Opt[bool]   `json:"lead_manager_enabled" in:"boolean"`
	CharterVersion core.Opt[string] `json:"charter_version" in:"line,max=128,null=\"\"" doc:"Holders acknowledge it; null: none."`
	ClosedScopes   []string         `json:"closed_scopes" in:"list,max=1000,null=[]" each:"line" doc:"Replaces the list: leads of these scopes are over."`
}

type roleSettingsResponse struct {
	MasterEnabled  bool     `json:"master_enabled"`
	CTOEnabled     bool     `json:"cto_manager_enabled"`
	LeadEnabled    bool     `json:"lead_manager_enabled"`
	CharterVersion *string  `json:"charter_version"`
	ClosedScopes   []string `json:"closed_scopes"`
	Generation     int64    `json:"generation" doc:"Grows with every change."`
}

func changeRoleSettings(ctx context.Context, c *call, r roleSettingsRequest) (roleSettingsResponse, error) {
	s, err := c.hub.ChangeRoleSettings(ctx, core.RoleSettingsRequest{
		MasterEnabled: r.MasterEnabled, CTOEnabled: r.CTOEnabled, LeadEnabled: r.LeadEnabled, CharterVersion: r.CharterVersion,
		ClosedScopes: core.Opt[[]string]{Value: r.ClosedScopes, Set: r.ClosedScopes != nil},
	})
	if err != nil {
		return roleSettingsResponse{}, err
	}
	return roleSettingsResponse{
		MasterEnabled: s.MasterEnabled, CTOEnabled: s.CTOEnabled, LeadEnabled: s.LeadEnabled,
		CharterVersion: orNull(s.CharterVersion), ClosedScopes: orEmpty(s.ClosedScopes), Generation: s.Generation,
	}, nil
}

type recoverRequest struct {
	NowMs core.Opt[int64] `json:"now_ms" in:"integer" doc:"Refused: the hub's clock is used."`
}

// recoveryView counts the roles by what a recovery did with them.
type recoveryView struct {
	HolderLeaseExpired int `json:"restart_holder_lease_expired"`
	ReprobeRequired    int `json:"restart_reprobe_required"`
	ActivationFenced   int `json:"restart_activation_fenced"`
	Unchanged          int `json:"unchanged"`
}

func recoveryViewOf(r core.RoleRecovery) *recoveryView {
	return &recoveryView{HolderLeaseExpired: r.Expired, ReprobeRequired: r.Reprobed, ActivationFenced: r.Fenced, Unchanged: r.Unchanged}
}

func recoverRoles(ctx context.Context, c *call, r recoverRequest) (recoveryView, error) {
	if r.NowMs.Set {
		return recoveryView{}, core.Invalid("now_ms", "now_ms is not taken: the hub's clock is used")
	}
	done, err := c.hub.RecoverRoles(ctx)
	if err != nil {
		return recoveryView{}, err
	}
	return *recoveryViewOf(done), nil
}
