package core_test

import (
	"context"
	"crypto/rand"
	"slices"
	"testing"

	"drawbridge/core"
	"drawbridge/core/coretest"
)

// holdShelf is a role that an agent's hints lead to.
type holdShelf struct {
	*roleShelf
	forgotten []core.RoleHold
}

func (s *holdShelf) ReadRoles(context.Context, []string) ([]core.Role, error) {
	return []core.Role{s.board.Role}, nil
}

func (s *holdShelf) ForgetHolds(_ context.Context, _ string, holds []core.RoleHold) error {
	s.forgotten = append(s.forgotten, holds...)
	return nil
}

// waiting are inboxes in which so many messages wait. None can be drained.
type waiting struct {
	*roleMail
	inboxes map[string]int64
}

func (w waiting) CountInbox(_ context.Context, inbox string, _ core.Instant, _ int) (int64, error) {
	return w.inboxes[inbox], nil
}

func (w waiting) ReadInbox(context.Context, core.InboxScan) (core.InboxPage, error) {
	return core.InboxPage{}, nil
}

// A drain removes the hints that lead to no role of the agent's, and keeps one of
// a role that the agent holds again with its next heartbeat. What waits for a role
// is its holder's.
func TestAHintOfARoleIsKeptWhileTheRoleIsTheAgents(t *testing.T) {
	of := func(epochs ...int64) []core.RoleHold {
		var holds []core.RoleHold
		for _, epoch := range epochs {
			holds = append(holds, core.RoleHold{Wire: deskProject.Wire(), Epoch: epoch})
		}
		return holds
	}
	for _, test := range []struct {
		name  string
		set   func(*roleDesk)
		holds []core.RoleHold
		gone  []core.RoleHold
		waits int64
	}{
		{"held", nil, of(5), nil, 207},
		{"held, and of an earlier epoch", nil, of(4, 5), of(4), 207},
		{"the lease ends now", (*roleDesk).lapse, of(5), nil, 7},
		{"closed", func(d *roleDesk) { d.board.Role.Closed = true }, of(5), of(5), 7},
		{"reserved", func(d *roleDesk) { d.probing("a", 1e9); d.board.Role.HolderGeneration = 3 }, of(5), of(5), 7},
		{"another's", func(d *roleDesk) { d.board.Role.Holder = "b" }, of(5), of(5), 7},
		{"of an earlier generation", func(d *roleDesk) { d.board.Role.HolderGeneration = 2 }, of(5), of(5), 7},
	} {
		d := newRoleDesk(t)
		if test.set != nil {
			test.set(d)
		}
		d.agent("a", func(a *core.Agent) { a.Holds = test.holds })
		shelf, hub := holdDesk(d, map[string]int64{"a": 7, deskProject.Address(): 200})
		status, err := hub.Status(t.Context(), core.StatusQuery{Scope: core.StatusScopeAgent, AgentID: "a"})
		if err != nil || status.Agent.Pending != test.waits {
			t.Errorf("%s: %+v, %v", test.name, status.Agent, err)
		}
		if _, err := hub.Drain(t.Context(), core.DrainRequest{AgentID: "a", Max: 1}); err != nil || !slices.Equal(shelf.forgotten, test.gone) {
			t.Errorf("%s: it forgets %+v, %v", test.name, shelf.forgotten, err)
		}
	}
}

func holdDesk(d *roleDesk, inboxes map[string]int64) (*holdShelf, *core.Hub) {
	shelf := &holdShelf{roleShelf: d.roleShelf}
	return shelf, core.New(core.Config{
		Presence: rolePresence{shelf: d.roleShelf}, Identity: coretest.NewModel(), Roles: shelf, Messages: waiting{d.mail, inboxes},
		Clock: d.clock, IDs: core.NewIDs(d.clock, rand.Reader),
	})
}

func TestAnAgentsStatusCountsUpToItsBound(t *testing.T) {
	for own, want := range map[int64]int64{799: 999, 800: 1000, 801: 1000} {
		d := newRoleDesk(t)
		d.agent("a", func(a *core.Agent) { a.Holds = []core.RoleHold{{Wire: deskProject.Wire(), Epoch: 5}} })
		_, hub := holdDesk(d, map[string]int64{"a": own, deskProject.Address(): 200})
		status, err := hub.Status(t.Context(), core.StatusQuery{Scope: core.StatusScopeAgent, AgentID: "a"})
		if err != nil || status.Agent.Pending != want {
			t.Errorf("%d of its own: %+v, %v", own, status.Agent, err)
		}
	}
}
