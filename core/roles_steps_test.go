package core_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"drawbridge/core"
	"drawbridge/core/coretest"
)

// Each decision about a role is pinned here on one board, with one thing out of
// its place at a time: what the hub writes, and what it answers.

// roleShelf is a store with one role, as a test puts it there. What a test does
// not ask of it is not there.
type roleShelf struct {
	core.RoleStore
	mu      sync.Mutex
	board   core.RoleBoard
	agents  map[string]core.Agent
	lookups int // of agents
	reads   int // of boards
	stale   core.Opt[core.Agent]

	steps      []core.RoleStep
	candidates []core.CandidateWrite
	updates    []core.RoleUpdate
	updated    core.RoleOutcome // of an update that is refused
	refuses    bool
	acks       []core.RoleAck
	acked      core.RoleAckOutcome
	values     []core.RoleValueWrite
	valued     core.RoleValueOutcome
	changes    []core.SettingsChange
	due        []core.DueRolePage
	asked      []core.DueScan
	gone       []core.RoleHold
	legacy     core.LegacyState
	legacyIDs  []string
}

func (s *roleShelf) ReadRole(context.Context, string) (core.Role, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.board.Role, nil
}

func (s *roleShelf) ReadRoleBoard(context.Context, string) (core.RoleBoard, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	b := s.board
	b.Candidates = slices.Clone(b.Candidates)
	return b, nil
}

func (s *roleShelf) ReadAgents(_ context.Context, ids []string) ([]core.Agent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookups++
	var agents []core.Agent
	for _, id := range ids {
		if a, found := s.agents[id]; found {
			agents = append(agents, a)
		}
	}
	return agents, nil
}

func (s *roleShelf) ReadAuthority(_ context.Context, _, agentID string) (core.Role, core.Agent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.board.Role, s.agents[agentID], nil
}

func (s *roleShelf) StepRole(_ context.Context, step core.RoleStep) (core.RoleOutcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stale.Set {
		return core.RoleOutcome{Stale: s.stale}, nil
	}
	s.steps = append(s.steps, step)
	s.board.Role = step.Next
	return core.RoleOutcome{Done: true, Role: step.Next}, nil
}

func (s *roleShelf) UpdateRole(_ context.Context, u core.RoleUpdate) (core.RoleOutcome, error) {
	s.updates = append(s.updates, u)
	if s.refuses {
		return s.updated, nil
	}
	return core.RoleOutcome{Done: true, Role: s.board.Role}, nil
}

func (s *roleShelf) AcknowledgeRole(_ context.Context, a core.RoleAck) (core.RoleAckOutcome, error) {
	s.acks = append(s.acks, a)
	return s.acked, nil
}

func (s *roleShelf) PutCandidate(_ context.Context, w core.CandidateWrite) (core.RoleCandidate, core.Opt[core.Agent], error) {
	s.candidates = append(s.candidates, w)
	return core.RoleCandidate{AgentID: w.AgentID}, s.stale, nil
}

func (s *roleShelf) ReachCandidate(_ context.Context, _ string, seen, next core.RoleCandidate) (bool, error) {
	i := slices.IndexFunc(s.board.Candidates, func(c core.RoleCandidate) bool { return c.AgentID == seen.AgentID })
	s.board.Candidates[i] = next
	return true, nil
}

func (s *roleShelf) ScanRoles(context.Context, core.RoleScan) (core.RolePage, error) {
	return core.RolePage{Roles: []core.Role{s.board.Role}, Done: true}, nil
}

func (s *roleShelf) DueRoles(_ context.Context, scan core.DueScan) (core.DueRolePage, error) {
	s.asked = append(s.asked, scan)
	if len(s.due) == 0 {
		return core.DueRolePage{Wires: []string{s.board.Role.Wire}, Oldest: 1}, nil
	}
	page := s.due[0]
	s.due = s.due[1:]
	return page, nil
}

func (s *roleShelf) ReadRoleValue(context.Context, string) (core.RoleValue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return core.RoleValue{Version: 4}, nil
}

func (s *roleShelf) PutRoleValue(_ context.Context, w core.RoleValueWrite) (core.RoleValueOutcome, error) {
	s.values = append(s.values, w)
	return s.valued, nil
}

func (s *roleShelf) ChangeRoleSettings(_ context.Context, c core.SettingsChange) (core.RoleSettings, error) {
	s.changes = append(s.changes, c)
	return s.board.Settings, nil
}

func (s *roleShelf) ReadLegacyRole(context.Context) (core.LegacyState, []string, error) {
	return s.legacy, s.legacyIDs, nil
}

func (s *roleShelf) ReplaceLegacyRole(_ context.Context, _, next core.LegacyState, _ core.WriteStamp) (bool, error) {
	s.legacy = next
	return true, nil
}

func (s *roleShelf) ReadRoles(context.Context, []string) ([]core.Role, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []core.Role{s.board.Role}, nil
}

func (s *roleShelf) ForgetHolds(_ context.Context, _ string, holds []core.RoleHold) error {
	s.gone = append(s.gone, holds...)
	return nil
}

// rolePresence is the store of the agents that the shelf knows.
type rolePresence struct {
	core.PresenceStore
	shelf *roleShelf
}

func (p rolePresence) ReadAgent(_ context.Context, id string) (core.Agent, bool, error) {
	a, found := p.shelf.agents[id]
	return a, found, nil
}

// roleMail is a store of messages that nobody follows a topic of.
type roleMail struct {
	core.MessageStore
	put []core.Publication
}

func (m *roleMail) PutMessage(_ context.Context, p core.Publication) (core.PublicationOutcome, error) {
	m.put = append(m.put, p)
	return core.PublicationOutcome{}, nil
}

func (m *roleMail) Followers(context.Context, string) ([]core.Follower, error) { return nil, nil }

func (m *roleMail) ForgetFollowers(context.Context, string, []core.Follower) error { return nil }

func (m *roleMail) CountInbox(context.Context, string, core.Instant, int) (int64, error) {
	return 0, nil
}

var (
	deskProject = core.RoleKey{ProjectID: "prj_AbCdEfGhIjKlMnOpQrStUv", Kind: core.RoleCTO}
	deskLead    = core.RoleKey{ProjectID: deskProject.ProjectID, Kind: core.RoleLead, ScopeID: "scp_AbCdEfGhIjKlMnOpQrStUv"}
)

const otherScope = "scp_vUtSrQpOnMlKjIhGfEdCbA"

// roleDesk is a hub with one role. The agent a holds it; b may have it too, and
// comes first.
type roleDesk struct {
	*roleShelf
	t     *testing.T
	clock *coretest.Clock
	mail  *roleMail
	hub   *core.Hub
	now   core.Instant
}

func newRoleDesk(t *testing.T) *roleDesk {
	t.Helper()
	clock, model := coretest.NewClock(), coretest.NewModel()
	d := &roleDesk{t: t, clock: clock, mail: &roleMail{}, now: core.InstantOf(clock.Now())}
	d.roleShelf = &roleShelf{agents: map[string]core.Agent{}}
	d.board.Role = core.Role{
		Key: deskProject, Wire: deskProject.Wire(), State: core.RoleActive, Holder: "a", HolderGeneration: 3, Epoch: 5, Version: 7, ActivationSeq: 5,
		ActivationID: "i", CharterAckedEpoch: core.Some[int64](5), LastTransition: d.now - 1000, LastReason: core.ReasonAcknowledged, DueAt: d.later(time.Hour),
	}
	d.board.Settings = core.DefaultRoleSettings()
	d.board.Candidates = []core.RoleCandidate{{AgentID: "a", Priority: 1}, {AgentID: "b", Priority: 9}}
	for _, id := range []string{"a", "b"} {
		d.agents[id] = core.Agent{
			ID: id, Generation: 3, Status: core.StatusOnline, LeaseExpires: d.later(time.Hour),
			Capabilities: []string{"role:cto:candidate", "role:lead:candidate"},
		}
	}
	d.hub = core.New(core.Config{
		Presence: rolePresence{shelf: d.roleShelf}, Identity: model, Roles: d.roleShelf, Messages: d.mail, Clock: clock, IDs: core.NewIDs(clock, rand.Reader),
	})
	return d
}

func (d *roleDesk) later(by time.Duration) core.Instant { return d.now.Add(by) }

// agent changes an agent.
func (d *roleDesk) agent(id string, change func(*core.Agent)) {
	a := d.agents[id]
	change(&a)
	d.agents[id] = a
}

// lapse lets the lease of the holder end now.
func (d *roleDesk) lapse() { d.agent("a", func(a *core.Agent) { a.LeaseExpires = d.now }) }

// exclude keeps a candidate out for so long.
func (d *roleDesk) exclude(id string, wait time.Duration) {
	for i, c := range d.board.Candidates {
		if c.AgentID == id {
			d.board.Candidates[i].ExcludedUntil = d.later(wait)
		}
	}
}

// probing reserves the role for an agent that has so long to acknowledge.
func (d *roleDesk) probing(holder string, left time.Duration) {
	r := &d.board.Role
	r.State, r.Holder, r.HolderGeneration, r.ActivationDeadline, r.CharterAckedEpoch = core.RoleProbing, holder, 0, d.later(left), core.Opt[int64]{}
	r.DueAt = r.ActivationDeadline
}

// vacant leaves the role without a holder, to be looked at after so long.
func (d *roleDesk) vacant(state core.RoleState, wait time.Duration) {
	r := &d.board.Role
	r.State, r.Holder, r.HolderGeneration, r.ActivationID, r.NextProbe = state, "", 0, "", d.later(wait)
	r.DueAt = r.NextProbe
}

// moment tells when something is: from now, "-" for never. What chance decides
// within a few seconds is soon.
func (d *roleDesk) moment(at core.Instant) string {
	switch wait := at.Sub(d.now); {
	case at == 0:
		return "-"
	case wait >= 700*time.Millisecond && wait <= 5*time.Second && wait%time.Second != 0:
		return "soon"
	default:
		return wait.String()
	}
}

// told is the last step that was written, or that there was none.
func (d *roleDesk) told() string {
	if len(d.steps) == 0 {
		return "nothing"
	}
	step := d.steps[len(d.steps)-1]
	r := step.Next
	words := []string{
		fmt.Sprintf("%s %q after %q", r.State, r.Holder, r.PreviousHolder),
		fmt.Sprintf("v%d e%d r%d", r.Version, r.Epoch, r.RetryCount),
		"due " + d.moment(r.DueAt), r.LastReason,
	}
	if r.NextProbe != 0 {
		words = append(words, "again "+d.moment(r.NextProbe))
	}
	if r.Closed {
		words = append(words, "closed")
	}
	if step.Candidate.Set {
		c := step.Candidate.Value
		words = append(words, fmt.Sprintf("%s failed %d until %s", c.AgentID, c.Failures, d.moment(c.ExcludedUntil)))
	}
	if step.Message.Set {
		words = append(words, "tells "+step.Message.Value.Inbox)
	}
	if len(d.mail.put) > 0 {
		words = append(words, "calls "+d.mail.put[0].Delivery.Topic)
	}
	return strings.Join(words, ", ")
}

func TestAnEnsureTakesTheStepThatTheRoleNeeds(t *testing.T) {
	for _, test := range []struct {
		name    string
		set     func(*roleDesk)
		trigger string // "": manual
		want    string
	}{
		{"held and its charter acknowledged", func(*roleDesk) {}, "", "already_active; nothing"},
		{"held, and a charter was issued", func(*roleDesk) {}, core.TriggerCharterIssued, `started; elected-probing "a" after "", v8 e6 r0, due 45s, candidate_selected, tells a`},
		{"its charter acknowledged in an earlier epoch", func(d *roleDesk) { d.board.Role.CharterAckedEpoch = core.Some[int64](4) }, "", `started; elected-probing "a" after "", v8 e6 r0, due 45s, candidate_selected, tells a`},
		{"another charter is in force", func(d *roleDesk) { d.board.Role.CharterVersion, d.board.Settings.CharterVersion = "c1", "c2" }, "", `started; elected-probing "a" after "", v8 e6 r0, due 45s, candidate_selected, tells a`},
		{"that charter is in force", func(d *roleDesk) { d.board.Role.CharterVersion, d.board.Settings.CharterVersion = "c1", "c1" }, "", "already_active; nothing"},
		{"no charter is in force", func(d *roleDesk) { d.board.Role.CharterVersion = "c1" }, "", "already_active; nothing"},

		{"the holder's lease ends now", (*roleDesk).lapse, "", `started; elected-probing "b" after "a", v8 e6 r0, due 45s, candidate_selected, tells b`},
		{"the holder's lease ends next", func(d *roleDesk) { d.agent("a", func(a *core.Agent) { a.LeaseExpires = d.now + 1 }) }, "", "already_active; nothing"},
		{"the role's own bound is now", func(d *roleDesk) { d.board.Role.HolderLeaseExpires = d.now }, "", `started; elected-probing "b" after "a", v8 e6 r0, due 45s, candidate_selected, tells b`},
		{"the role's own bound is next", func(d *roleDesk) { d.board.Role.HolderLeaseExpires = d.now + 1 }, "", "already_active; nothing"},
		{"the holder is of another generation", func(d *roleDesk) { d.board.Role.HolderGeneration = 2 }, "", `started; elected-probing "b" after "a", v8 e6 r0, due 45s, candidate_selected, tells b`},
		{"the holder's generation is not known", func(d *roleDesk) { d.board.Role.HolderGeneration = 0 }, "", "already_active; nothing"},
		{"the holder was retired", func(d *roleDesk) { d.agent("a", func(a *core.Agent) { a.Final = true }) }, "", `started; elected-probing "b" after "a", v8 e6 r0, due 45s, candidate_selected, tells b`},
		{"handed over with a grace", func(d *roleDesk) {
			d.board.Role.HolderLeaseExpires, d.board.Role.Successor = d.later(time.Second), "b"
		}, core.TriggerCharterIssued, "joined; nothing"},
		{"handed over without a grace", func(d *roleDesk) { d.board.Role.Successor = "b" }, core.TriggerCharterIssued, `started; elected-probing "b" after "a", v8 e6 r0, due 45s, candidate_selected, tells b`},
		{"the grace has passed", func(d *roleDesk) {
			d.board.Role.HolderLeaseExpires, d.board.Role.Successor = d.now, "a"
		}, core.TriggerCharterIssued, `started; elected-probing "a" after "", v8 e6 r0, due 45s, candidate_selected, tells a`},

		{"reserved, and the deadline is next", func(d *roleDesk) { d.probing("a", time.Millisecond) }, "", "joined; nothing"},
		{"reserved, and the deadline is now", func(d *roleDesk) { d.probing("a", 0) }, "", `started; elected-probing "b" after "a", v8 e6 r1, due 0s, candidate_selected, a failed 1 until soon, tells b`},
		{"reserved without an activation's id", func(d *roleDesk) { d.probing("a", time.Second); d.board.Role.ActivationID = "" }, "", `started; elected-probing "b" after "a", v8 e6 r0, due 1s, candidate_selected, tells b`},
		{"reserved without a deadline", func(d *roleDesk) { d.probing("a", 0); d.board.Role.ActivationDeadline = 0 }, "", `started; elected-probing "b" after "a", v8 e6 r0, due 0s, candidate_selected, tells b`},
		{"closed, whatever its state is", func(d *roleDesk) { d.board.Role.Closed = true }, "", `started; elected-probing "b" after "a", v8 e6 r0, due 45s, candidate_selected, tells b`},
		{"unreachable until next", func(d *roleDesk) { d.vacant(core.RoleUnreachable, time.Millisecond) }, "", "joined; nothing"},
		{"unreachable until now", func(d *roleDesk) { d.vacant(core.RoleUnreachable, 0) }, "", `started; elected-probing "b" after "", v8 e6 r0, due 0s, candidate_selected, tells b`},
		{"in quarantine until next", func(d *roleDesk) { d.vacant(core.RoleQuarantined, time.Millisecond) }, "", "joined; nothing"},
		{"in quarantine until now", func(d *roleDesk) { d.vacant(core.RoleQuarantined, 0) }, "", `started; elected-probing "b" after "", v8 e6 r0, due 0s, candidate_selected, tells b`},

		{"the first is excluded until next", func(d *roleDesk) { d.lapse(); d.exclude("b", time.Millisecond) }, "", `started; unreachable "" after "a", v8 e5 r0, due 1ms, ack_timeout, again 1ms`},
		{"the first is excluded until now", func(d *roleDesk) { d.lapse(); d.exclude("b", 0) }, "", `started; elected-probing "b" after "a", v8 e6 r0, due 45s, candidate_selected, tells b`},
		{"the first was retired", func(d *roleDesk) {
			d.vacant(core.RoleElectable, 0)
			d.agent("b", func(a *core.Agent) { a.Final = true })
		}, "", `started; elected-probing "a" after "", v8 e6 r0, due 0s, candidate_selected, tells a`},
		{"the first's lease ends now", func(d *roleDesk) {
			d.vacant(core.RoleElectable, 0)
			d.agent("b", func(a *core.Agent) { a.LeaseExpires = d.now })
		}, "", `started; elected-probing "a" after "", v8 e6 r0, due 0s, candidate_selected, tells a`},
		{"of one priority, the one that was told of last", func(d *roleDesk) {
			d.vacant(core.RoleElectable, 0)
			d.board.Candidates = []core.RoleCandidate{{AgentID: "a", UpdatedAt: 8}, {AgentID: "b", UpdatedAt: 9}}
		}, "", `started; elected-probing "b" after "", v8 e6 r0, due 0s, candidate_selected, tells b`},
		{"of one priority, in the other order", func(d *roleDesk) {
			d.vacant(core.RoleElectable, 0)
			d.board.Candidates = []core.RoleCandidate{{AgentID: "b", UpdatedAt: 9}, {AgentID: "a", UpdatedAt: 8}}
		}, "", `started; elected-probing "b" after "", v8 e6 r0, due 0s, candidate_selected, tells b`},
		{"of one priority and moment, by their ids", func(d *roleDesk) {
			d.vacant(core.RoleElectable, 0)
			d.board.Candidates = []core.RoleCandidate{{AgentID: "b", UpdatedAt: 9}, {AgentID: "a", UpdatedAt: 9}}
		}, "", `started; elected-probing "a" after "", v8 e6 r0, due 0s, candidate_selected, tells a`},
		{"a later one of a higher priority", func(d *roleDesk) {
			d.vacant(core.RoleElectable, 0)
			d.board.Candidates = []core.RoleCandidate{{AgentID: "a", Priority: 2, UpdatedAt: 8}, {AgentID: "b", Priority: 1, UpdatedAt: 9}}
		}, "", `started; elected-probing "a" after "", v8 e6 r0, due 0s, candidate_selected, tells a`},
		{"all are excluded, the first for longer", func(d *roleDesk) {
			d.vacant(core.RoleElectable, 0)
			d.exclude("b", 9*time.Second)
			d.exclude("a", 7*time.Second)
		}, "", `started; unreachable "" after "", v8 e5 r0, due 0s, ack_timeout, again 7s`},
		{"all are excluded, the last for longer", func(d *roleDesk) {
			d.vacant(core.RoleElectable, 0)
			d.exclude("b", 7*time.Second)
			d.exclude("a", 9*time.Second)
		}, "", `started; unreachable "" after "", v8 e5 r0, due 0s, ack_timeout, again 7s`},
		{"nobody is eligible", func(d *roleDesk) { d.vacant(core.RoleElectable, 0); d.agents = map[string]core.Agent{} }, "", `started; elected-probing "" after "", v8 e6 r0, due 0s, standup_reserved, calls role.standup`},
		{"its successor comes first", func(d *roleDesk) { d.vacant(core.RoleElectable, 0); d.board.Role.Successor = "a" }, "", `started; elected-probing "a" after "", v8 e6 r0, due 0s, candidate_selected, tells a`},
		{"its successor is excluded until now", func(d *roleDesk) {
			d.vacant(core.RoleElectable, 0)
			d.board.Role.Successor = "a"
			d.exclude("a", 0)
		}, "", `started; elected-probing "a" after "", v8 e6 r0, due 0s, candidate_selected, tells a`},
		{"its successor is excluded until next", func(d *roleDesk) {
			d.vacant(core.RoleElectable, 0)
			d.board.Role.Successor = "a"
			d.exclude("a", time.Millisecond)
		}, "", `started; elected-probing "b" after "", v8 e6 r0, due 0s, candidate_selected, tells b`},
		{"its successor is free and another excluded", func(d *roleDesk) {
			d.vacant(core.RoleElectable, 0)
			d.board.Role.Successor = "a"
			d.exclude("b", time.Second)
			d.agents["c"] = d.agents["b"]
			d.agent("c", func(a *core.Agent) { a.ID = "c" })
			d.board.Candidates = append(d.board.Candidates, core.RoleCandidate{AgentID: "c", Priority: 8})
		}, "", `started; elected-probing "a" after "", v8 e6 r0, due 0s, candidate_selected, tells a`},

		{"the only one missed its deadline", func(d *roleDesk) { d.probing("a", 0); delete(d.agents, "b") }, "", `started; unreachable "" after "a", v8 e5 r1, due 0s, ack_timeout, again soon, a failed 1 until soon`},
		{"the role's second miss in a row", func(d *roleDesk) { d.probing("a", 0); delete(d.agents, "b"); d.board.Role.RetryCount = 1 }, "", `started; unreachable "" after "a", v8 e5 r2, due 0s, ack_timeout, again soon, a failed 1 until soon`},
		{"the role's third miss in a row", func(d *roleDesk) { d.probing("a", 0); delete(d.agents, "b"); d.board.Role.RetryCount = 2 }, "", `started; quarantined "" after "a", v8 e5 r3, due 0s, ack_timeout, again soon, a failed 1 until soon`},
		{"the candidate's second miss in a row", func(d *roleDesk) {
			d.probing("a", 0)
			d.board.Candidates = []core.RoleCandidate{{AgentID: "a", Failures: 1}}
		}, "", `started; unreachable "" after "a", v8 e5 r1, due 0s, ack_timeout, again soon, a failed 2 until soon`},
		{"the miss of a candidate that was told to have failed less than never", func(d *roleDesk) {
			d.probing("a", 0)
			d.board.Candidates = []core.RoleCandidate{{AgentID: "a", Failures: -3}}
		}, "", `started; unreachable "" after "a", v8 e5 r1, due 0s, ack_timeout, again soon, a failed -2 until soon`},
		{"the candidate's third miss in a row", func(d *roleDesk) {
			d.probing("a", 0)
			d.board.Candidates = []core.RoleCandidate{{AgentID: "a", Failures: 2}}
		}, "", `started; quarantined "" after "a", v8 e5 r1, due 0s, ack_timeout, again 2m0s, a failed 3 until 2m0s`},

		{"the hub's switch is off", func(d *roleDesk) { d.board.Settings.MasterEnabled = false }, "", `manager_disabled, refused: master_off; electable "" after "a", v8 e6 r0, due -, master_off`},
		{"the switch is off and nobody holds it", func(d *roleDesk) {
			d.vacant(core.RoleElectable, 0)
			d.board.Settings.CTOEnabled = false
		}, "", "manager_disabled, refused: manager_disabled; nothing"},
		{"its scope is closed", func(d *roleDesk) {
			d.board.Role.Key, d.board.Role.Wire, d.board.Settings.ClosedScopes = deskLead, deskLead.Wire(), []string{deskLead.ScopeID}
		}, "", `scope_closed, refused: scope_closed; electable "" after "a", v8 e6 r0, due -, scope_closed, closed`},
		{"its scope is closed and nobody holds it", func(d *roleDesk) {
			d.vacant(core.RoleElectable, 0)
			d.board.Role.Key, d.board.Role.Wire, d.board.Settings.ClosedScopes = deskLead, deskLead.Wire(), []string{deskLead.ScopeID}
		}, "", `scope_closed, refused: scope_closed; electable "" after "", v8 e6 r0, due -, scope_closed, closed`},
		{"its scope was closed before", func(d *roleDesk) {
			d.vacant(core.RoleElectable, 0)
			d.board.Role.Closed = true
			d.board.Role.Key, d.board.Role.Wire, d.board.Settings.ClosedScopes = deskLead, deskLead.Wire(), []string{deskLead.ScopeID}
		}, "", "scope_closed, refused: scope_closed; nothing"},
		{"another scope is closed", func(d *roleDesk) {
			d.board.Role.Key, d.board.Role.Wire, d.board.Settings.ClosedScopes = deskLead, deskLead.Wire(), []string{otherScope}
		}, "", "already_active; nothing"},
		{"there is no such role and the switch is off", func(d *roleDesk) {
			d.board.Role = core.AbsentRole(deskProject, deskProject.Wire())
			d.board.Settings.MasterEnabled = false
		}, "", "manager_disabled, refused: master_off; nothing"},
		{"there is no such role", func(d *roleDesk) { d.board.Role = core.AbsentRole(deskProject, deskProject.Wire()) }, "", `started; elected-probing "b" after "", v0 e0 r0, due 45s, candidate_selected, tells b`},
	} {
		d := newRoleDesk(t)
		test.set(d)
		trigger := test.trigger
		if trigger == "" {
			trigger = "manual"
		}
		r, err := d.hub.EnsureRole(t.Context(), core.EnsureRequest{Wire: d.board.Role.Wire, Trigger: trigger, CauseID: "c"})
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		got := string(r.Disposition)
		if !r.Accepted {
			got += ", refused: " + r.BlockedReason
		}
		if got += "; " + d.told(); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, test.want)
		}
		if want := max(d.board.Role.Epoch, 0); r.Epoch != want {
			t.Errorf("%s: it is told as of epoch %d, not %d", test.name, r.Epoch, want)
		}
	}
}

func TestASweepTakesTheStepsThatAreDue(t *testing.T) {
	for _, test := range []struct {
		name string
		set  func(*roleDesk)
		want string
	}{
		{"held, its entry in its place", func(*roleDesk) {}, "stepped 0, moved 0; nothing"},
		{"held, its entry early", func(d *roleDesk) { d.board.Role.DueAt = d.now }, `stepped 0, moved 1; active "a" after "", v7 e5 r0, due 1h0m0s, activation_acked`},
		{"held until its own bound, its entry at the lease", func(d *roleDesk) { d.board.Role.HolderLeaseExpires = d.later(time.Minute) }, `stepped 0, moved 1; active "a" after "", v7 e5 r0, due 1m0s, activation_acked`},
		{"held, its own bound after the lease", func(d *roleDesk) { d.board.Role.HolderLeaseExpires = d.later(2 * time.Hour) }, "stepped 0, moved 0; nothing"},
		{"held, its charter out of date", func(d *roleDesk) { d.board.Settings.CharterVersion = "c2" }, "stepped 0, moved 0; nothing"},
		{"the holder's lease ends now", (*roleDesk).lapse, `stepped 1, moved 0; elected-probing "b" after "a", v8 e6 r0, due 45s, candidate_selected, tells b`},
		{"reserved, and the deadline is next", func(d *roleDesk) { d.probing("a", time.Millisecond); d.board.Role.DueAt-- }, `stepped 0, moved 1; elected-probing "a" after "", v7 e5 r0, due 1ms, activation_acked`},
		{"reserved, and the deadline is now", func(d *roleDesk) { d.probing("a", 0) }, `stepped 1, moved 0; elected-probing "b" after "a", v8 e6 r1, due 0s, candidate_selected, a failed 1 until soon, tells b`},
		{"a session was asked for and did not come", func(d *roleDesk) { d.probing("", 0) }, `stepped 1, moved 0; electable "" after "", v8 e5 r0, due -, no_candidate`},
		{"a session was asked for", func(d *roleDesk) { d.probing("", time.Millisecond) }, "stepped 0, moved 0; nothing"},
		{"unreachable until next, its entry early", func(d *roleDesk) { d.vacant(core.RoleUnreachable, time.Millisecond); d.board.Role.DueAt-- }, `stepped 0, moved 1; unreachable "" after "", v7 e5 r0, due 1ms, activation_acked, again 1ms`},
		{"electable, an entry left behind", func(d *roleDesk) { d.vacant(core.RoleElectable, 0) }, `stepped 0, moved 1; electable "" after "", v7 e5 r0, due -, activation_acked, again 0s`},
		{"its scope is closed", func(d *roleDesk) {
			d.board.Role.Key, d.board.Role.Wire, d.board.Settings.ClosedScopes = deskLead, deskLead.Wire(), []string{deskLead.ScopeID}
		}, `stepped 1, moved 0; electable "" after "a", v8 e6 r0, due -, scope_closed, closed`},
	} {
		d := newRoleDesk(t)
		test.set(d)
		before := len(d.board.Role.History)
		swept, err := d.hub.SweepRoles(t.Context())
		if err != nil || swept.More || swept.Lag != 0 {
			t.Errorf("%s: %+v, %v", test.name, swept, err)
		}
		got := fmt.Sprintf("stepped %d, moved %d; %s", swept.Stepped, swept.Moved, d.told())
		if got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, test.want)
		}
		for _, step := range d.steps {
			if events := len(step.History()) - before; events != swept.Stepped {
				t.Errorf("%s: its history grows by %d", test.name, events)
			}
		}
	}
}

func TestASweepOfRolesLooksAtWhatIsDueByNowAndStopsInTime(t *testing.T) {
	d := newRoleDesk(t)
	full := make([]string, 100)
	for i := range full {
		full[i] = d.board.Role.Wire
	}
	for range 11 {
		d.due = append(d.due, core.DueRolePage{Wires: full, Oldest: d.now - 40, Next: "n"})
	}
	swept, err := d.hub.SweepRoles(t.Context())
	if err != nil || !swept.More || swept.Lag != 40*time.Millisecond || len(d.asked) != 11 {
		t.Errorf("of more than a run takes: %+v, %v after %d pages", swept, err, len(d.asked))
	}
	if first, next := d.asked[0], d.asked[1]; first.Before != d.now+1 || first.After != "" || next.Before != d.now+1 || next.After != "n" {
		t.Errorf("it asked for %+v and %+v", first, next)
	}
	for took, more := range map[time.Duration]bool{20 * time.Second: false, 20*time.Second + time.Millisecond: true} {
		for oldest, empty := range map[core.Instant]bool{d.now - 40: false, 0: true} {
			d := newRoleDesk(t)
			slow := &slowPages{roleShelf: d.roleShelf, clock: d.clock, took: took, pages: []core.DueRolePage{{Next: "n"}, {Oldest: oldest}}}
			hub := core.New(core.Config{Presence: rolePresence{shelf: d.roleShelf}, Roles: slow, Messages: d.mail, Clock: d.clock, IDs: core.NewIDs(d.clock, rand.Reader)})
			if swept, err := hub.SweepRoles(t.Context()); err != nil || swept.More != (more && !empty) {
				t.Errorf("after %v, with nothing left %v: %+v, %v", took, empty, swept, err)
			}
		}
	}
}

// slowPages takes its time for the first page that is due.
type slowPages struct {
	*roleShelf
	clock *coretest.Clock
	took  time.Duration
	pages []core.DueRolePage
}

func (s *slowPages) DueRoles(context.Context, core.DueScan) (core.DueRolePage, error) {
	page := s.pages[0]
	s.pages = s.pages[1:]
	s.clock.Advance(s.took)
	s.took = 0
	return page, nil
}

func TestTheLagOfASweepOfRolesIsThatOfTheOldestThatFailed(t *testing.T) {
	for _, oldest := range [][2]core.Instant{{50, 90}, {90, 50}} {
		d := newRoleDesk(t)
		d.due = []core.DueRolePage{{Wires: []string{"no role"}, Oldest: d.now - oldest[0], Next: "n"}, {Wires: []string{"no role"}, Oldest: d.now - oldest[1]}}
		swept, err := d.hub.SweepRoles(t.Context())
		if err == nil || swept.More || swept.Lag != 90*time.Millisecond {
			t.Errorf("of roles due since %d ms: %+v, %v", oldest, swept, err)
		}
	}
}

func TestACandidateIsWelcomedWhereTheRoleWaitsForOne(t *testing.T) {
	for _, test := range []struct {
		name string
		set  func(*roleDesk)
		want string
	}{
		{"held", func(*roleDesk) {}, "nothing"},
		{"there is no such role", func(d *roleDesk) { d.board.Role = core.AbsentRole(deskProject, deskProject.Wire()) }, `electable "" after "", v0 e0 r0, due -, role_reserved`},
		{"a session was asked for", func(d *roleDesk) { d.probing("", time.Millisecond) }, `elected-probing "a" after "", v8 e6 r0, due 1ms, candidate_selected, tells a`},
		{"a session was asked for until now", func(d *roleDesk) { d.probing("", 0) }, "nothing"},
		{"a session was asked for, and the candidate is not live", func(d *roleDesk) { d.probing("", time.Millisecond); d.lapse() }, "nothing"},
		{"reserved for another", func(d *roleDesk) { d.probing("b", time.Millisecond) }, "nothing"},
		{"in quarantine", func(d *roleDesk) { d.vacant(core.RoleQuarantined, time.Second); d.board.Role.RetryCount = 3 }, `electable "" after "", v8 e5 r0, due -, candidate_registered`},
		{"unreachable", func(d *roleDesk) { d.vacant(core.RoleUnreachable, time.Second) }, "nothing"},
	} {
		d := newRoleDesk(t)
		test.set(d)
		if _, err := d.hub.AddCandidate(t.Context(), core.CandidateRequest{Wire: d.board.Role.Wire, AgentID: "a"}); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if got := d.told(); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, test.want)
		}
	}
	d := newRoleDesk(t)
	d.stale = core.Some(d.agents["a"])
	_, err := d.hub.AddCandidate(t.Context(), core.CandidateRequest{Wire: d.board.Role.Wire, AgentID: "a", Fences: core.Fences{Generation: core.Some[int64](2)}})
	if core.CodeOf(err) != core.CodeStalePresenceOwner || d.reads != 0 {
		t.Errorf("of an earlier generation: %v", err)
	}
}

func TestNewsOfACandidateAreOfTheMomentTheyName(t *testing.T) {
	d := newRoleDesk(t)
	for at, want := range map[core.Instant]core.Instant{0: d.now, d.now - 5: d.now - 5} {
		c, err := d.hub.ReachCandidate(t.Context(), d.board.Role.Wire, "a", core.Reachability{ProbeFailed: true, At: at})
		if err != nil || c.LastProbe != want || c.UpdatedAt != want {
			t.Errorf("at %d: %+v, %v", at, c, err)
		}
	}
	if c, err := d.hub.ReachCandidate(t.Context(), d.board.Role.Wire, "a", core.Reachability{ExcludedUntil: core.Some(d.now)}); err != nil || c.ExcludedUntil != d.now {
		t.Errorf("excluded until now: %+v, %v", c, err)
	}
	if c, err := d.hub.ReachCandidate(t.Context(), d.board.Role.Wire, "a", core.Reachability{ProbeSucceeded: true}); err != nil || c.ExcludedUntil != d.now || c.Failures != 0 {
		t.Errorf("the exclusion stays until it is cleared: %+v, %v", c, err)
	}
}

func TestARecoveryFencesWhatIsHeldOrReserved(t *testing.T) {
	for _, test := range []struct {
		name string
		set  func(*roleDesk)
		want string
	}{
		{"held", func(*roleDesk) {}, `{Expired:0 Reprobed:1 Fenced:0 Unchanged:0}; elected-probing "a" after "", v8 e6 r0, due 0s, restart_reprobe_required`},
		{"the holder's lease ends now", (*roleDesk).lapse, `{Expired:1 Reprobed:0 Fenced:0 Unchanged:0}; electable "" after "a", v8 e6 r0, due -, restart_holder_lease_expired`},
		{"the holder's lease ends next", func(d *roleDesk) { d.agent("a", func(a *core.Agent) { a.LeaseExpires = d.now + 1 }) }, `{Expired:0 Reprobed:1 Fenced:0 Unchanged:0}; elected-probing "a" after "", v8 e6 r0, due 0s, restart_reprobe_required`},
		{"the role's own bound is now", func(d *roleDesk) { d.board.Role.HolderLeaseExpires = d.now }, `{Expired:1 Reprobed:0 Fenced:0 Unchanged:0}; electable "" after "a", v8 e6 r0, due -, restart_holder_lease_expired`},
		{"the holder never registered", func(d *roleDesk) { d.agents = nil }, `{Expired:1 Reprobed:0 Fenced:0 Unchanged:0}; electable "" after "a", v8 e6 r0, due -, restart_holder_lease_expired`},
		{"the holder never registered, the role has a bound", func(d *roleDesk) { d.agents = nil; d.board.Role.HolderLeaseExpires = d.now + 1 }, `{Expired:0 Reprobed:1 Fenced:0 Unchanged:0}; elected-probing "a" after "", v8 e6 r0, due 0s, restart_reprobe_required`},
		{"the holder was retired, the role has a bound", func(d *roleDesk) {
			d.agent("a", func(a *core.Agent) { a.Final = true })
			d.board.Role.HolderLeaseExpires = d.now + 1
		}, `{Expired:1 Reprobed:0 Fenced:0 Unchanged:0}; electable "" after "a", v8 e6 r0, due -, restart_holder_lease_expired`},
		{"a session was asked for", func(d *roleDesk) { d.probing("", time.Second) }, `{Expired:0 Reprobed:0 Fenced:1 Unchanged:0}; electable "" after "", v8 e6 r0, due -, restart_activation_fenced`},
		{"electable", func(d *roleDesk) { d.vacant(core.RoleElectable, 0) }, "{Expired:0 Reprobed:0 Fenced:0 Unchanged:1}; nothing"},
		{"closed", func(d *roleDesk) { d.board.Role.Closed = true }, "{Expired:0 Reprobed:0 Fenced:0 Unchanged:1}; nothing"},
	} {
		d := newRoleDesk(t)
		test.set(d)
		done, err := d.hub.RecoverRoles(t.Context())
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		got := fmt.Sprintf("%+v; %s", done, d.told())
		if got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, test.want)
		}
	}
}

func TestAReleaseIsTheHoldersAndOfItsEpoch(t *testing.T) {
	generation := func(n int64) core.Fences { return core.Fences{Generation: core.Some(n)} }
	released := func(d *roleDesk) { d.vacant(core.RoleElectable, 0); d.board.Role.PreviousHolder = "a" }
	for _, test := range []struct {
		name string
		set  func(*roleDesk)
		ask  core.ReleaseRequest
		want string
	}{
		{"held", nil, core.ReleaseRequest{}, `replayed false; electable "" after "a", v8 e5 r0, due -, released, bound -, for ""`},
		{"of its generation", nil, core.ReleaseRequest{Fences: generation(3)}, `replayed false; electable "" after "a", v8 e5 r0, due -, released, bound -, for ""`},
		{"of an earlier generation", nil, core.ReleaseRequest{Fences: generation(2)}, "STALE_PRESENCE_OWNER; nothing"},
		{"the agent was retired", func(d *roleDesk) { d.agent("a", func(a *core.Agent) { a.Final = true }) }, core.ReleaseRequest{Fences: generation(3)}, "STALE_PRESENCE_OWNER; nothing"},
		{"the agent's generation follows that of the holder", func(d *roleDesk) { d.agent("a", func(a *core.Agent) { a.Generation = 4 }) }, core.ReleaseRequest{Fences: generation(4)}, "HOLDER_MISMATCH; nothing"},
		{"the agent's generation follows, and is not told", func(d *roleDesk) { d.agent("a", func(a *core.Agent) { a.Generation = 4 }) }, core.ReleaseRequest{}, `replayed false; electable "" after "a", v8 e5 r0, due -, released, bound -, for ""`},
		{"the holder's generation is not known", func(d *roleDesk) { d.board.Role.HolderGeneration = 0 }, core.ReleaseRequest{Fences: generation(3)}, `replayed false; electable "" after "a", v8 e5 r0, due -, released, bound -, for ""`},
		{"the agent was overtaken meanwhile", func(d *roleDesk) { d.stale = core.Some(core.Agent{Generation: 4}) }, core.ReleaseRequest{Fences: generation(3)}, "STALE_PRESENCE_OWNER; nothing"},
		{"of another epoch", nil, core.ReleaseRequest{Epoch: 4}, "STALE_EPOCH; nothing"},
		{"of another holder", nil, core.ReleaseRequest{AgentID: "b"}, "HOLDER_MISMATCH; nothing"},
		{"there is no such role", func(d *roleDesk) { d.board.Role = core.AbsentRole(deskProject, deskProject.Wire()) }, core.ReleaseRequest{}, "ROLE_NOT_FOUND; nothing"},
		{"closed", func(d *roleDesk) { d.board.Role.Closed = true }, core.ReleaseRequest{}, "ROLE_NOT_FOUND; nothing"},
		{"released before", released, core.ReleaseRequest{}, "replayed true; nothing"},
		{"released before in another epoch", released, core.ReleaseRequest{Epoch: 4}, "STALE_EPOCH; nothing"},
		{"released before by another", released, core.ReleaseRequest{AgentID: "b"}, "HOLDER_MISMATCH; nothing"},
		{"unreachable", func(d *roleDesk) { d.vacant(core.RoleUnreachable, time.Second); d.board.Role.PreviousHolder = "a" }, core.ReleaseRequest{}, "HOLDER_MISMATCH; nothing"},
		{"reserved", func(d *roleDesk) { d.probing("a", time.Second) }, core.ReleaseRequest{GraceMs: 1000}, `replayed false; electable "" after "a", v8 e5 r0, due -, released, bound -, for ""`},
		{"with a grace", nil, core.ReleaseRequest{GraceMs: 1000}, `replayed false; active "a" after "", v8 e5 r0, due 1s, handover, bound 1s, for ""`},
		{"with the longest grace", nil, core.ReleaseRequest{GraceMs: core.MaxGrace.Milliseconds()}, `replayed false; active "a" after "", v8 e5 r0, due 10m0s, handover, bound 10m0s, for ""`},
		{"with too long a grace", nil, core.ReleaseRequest{GraceMs: core.MaxGrace.Milliseconds() + 1}, "INVALID_ARGUMENT; nothing"},
		{"with a grace below 0", nil, core.ReleaseRequest{GraceMs: -1}, "INVALID_ARGUMENT; nothing"},
		{"with a grace that ends before the role's bound", func(d *roleDesk) { d.board.Role.HolderLeaseExpires = d.later(time.Minute) }, core.ReleaseRequest{GraceMs: 1000}, `replayed false; active "a" after "", v8 e5 r0, due 1s, handover, bound 1s, for ""`},
		{"with a grace that ends after the role's bound", func(d *roleDesk) { d.board.Role.HolderLeaseExpires = d.later(time.Second) }, core.ReleaseRequest{GraceMs: 2000}, `replayed false; active "a" after "", v8 e5 r0, due 1s, handover, bound 1s, for ""`},
		{"to a successor", nil, core.ReleaseRequest{Successor: "b"}, `replayed false; elected-probing "b" after "a", v8 e6 r0, due 45s, candidate_selected, tells b, bound -, for ""`},
		{"to a successor with a grace", nil, core.ReleaseRequest{Successor: "b", GraceMs: 1000}, `replayed false; active "a" after "", v8 e5 r0, due 1s, handover, bound 1s, for "b"`},
		{"to the holder", nil, core.ReleaseRequest{Successor: "a"}, `replayed false; electable "" after "a", v8 e5 r0, due -, released, bound -, for "a"`},
		{"to a successor that is not live", func(d *roleDesk) { d.agent("b", func(a *core.Agent) { a.LeaseExpires = d.now }) }, core.ReleaseRequest{Successor: "b"}, `replayed false; electable "" after "a", v8 e5 r0, due -, released, bound -, for "b"`},
		{"to a successor, the switch off", func(d *roleDesk) { d.board.Settings.CTOEnabled = false }, core.ReleaseRequest{Successor: "b"}, `replayed false; electable "" after "a", v8 e5 r0, due -, released, bound -, for "b"`},
	} {
		d := newRoleDesk(t)
		if test.set != nil {
			test.set(d)
		}
		ask := test.ask
		ask.Wire, ask.AgentID, ask.Epoch = d.board.Role.Wire, cmp.Or(ask.AgentID, "a"), cmp.Or(ask.Epoch, 5)
		done, err := d.hub.ReleaseRole(t.Context(), ask)
		got := fmt.Sprintf("%s; %s", core.CodeOf(err), d.told())
		if err == nil {
			got = fmt.Sprintf("replayed %v; %s", done.Replayed, d.told())
			if len(d.steps) > 0 {
				r := d.steps[0].Next
				got += fmt.Sprintf(", bound %s, for %q", d.moment(r.HolderLeaseExpires), r.Successor)
			}
		}
		if got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, test.want)
		}
		if ask.Successor == "b" && d.lookups != 1 {
			t.Errorf("%s: agents that are read with the board are read %d times", test.name, d.lookups)
		}
	}
}
