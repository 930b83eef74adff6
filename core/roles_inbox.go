package core

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
)

// Messages for a role wait in the role's own inbox, under the role's address. Who
// holds the role drains them with its own, and every write that takes one checks
// role and epoch: a change of holder moves nothing and loses nothing.

// A post is a role's inbox that an agent drains, and the authority it does so
// under.
type post struct {
	inbox     string
	authority RoleAuthority
}

// posts are the role inboxes that are the agent's at now. The agent's own hints
// lead to the roles; the roles decide. gone are hints that are out of date.
//
// Cost: nothing for an agent without hints that is no candidate of the legacy
// role, else 1 round trip.
func (h *Hub) posts(ctx context.Context, a Agent, now Instant) (posts []post, gone []RoleHold, err error) {
	var legacy []post
	read := inBackground(func() (err error) {
		legacy, err = h.legacyPost(ctx, a, now)
		return err
	})
	posts, gone, err = h.heldPosts(ctx, a, now)
	if failed := read(); err == nil {
		err = failed
	}
	return append(posts, legacy...), gone, err
}

// postInboxes are the inboxes that posts may lead to, as far as the agent itself
// tells: they can be read while the roles are.
func (a Agent) postInboxes(now Instant) []string {
	var inboxes []string
	for _, hold := range a.Holds {
		if inbox := RoleAddressPrefix + hold.Wire; !slices.Contains(inboxes, inbox) {
			inboxes = append(inboxes, inbox)
		}
	}
	if c, candidate := a.legacyCandidate(now); candidate && c.live {
		inboxes = append(inboxes, ctoAddress)
	}
	return inboxes
}

func (h *Hub) legacyPost(ctx context.Context, a Agent, now Instant) ([]post, error) {
	c, candidate := a.legacyCandidate(now)
	if !candidate || !c.live {
		return nil, nil
	}
	state, _, err := h.roles.ReadLegacyRole(ctx)
	if err != nil {
		return nil, fmt.Errorf("read legacy role: %w", err)
	}
	if state.Leader != a.ID {
		return nil, nil
	}
	authority := RoleAuthority{Wire: LegacyWire, Holder: a.ID, Epoch: state.Epoch, At: now}
	return []post{{inbox: ctoAddress, authority: authority}}, nil
}

func (h *Hub) heldPosts(ctx context.Context, a Agent, now Instant) (posts []post, gone []RoleHold, err error) {
	if len(a.Holds) == 0 {
		return nil, nil, nil
	}
	wires := make([]string, 0, len(a.Holds))
	for _, hold := range a.Holds {
		if !slices.Contains(wires, hold.Wire) {
			wires = append(wires, hold.Wire)
		}
	}
	roles, err := h.roles.ReadRoles(ctx, wires)
	if err != nil {
		return nil, nil, fmt.Errorf("read roles: %w", err)
	}
	for _, r := range roles {
		stands := !r.Closed && r.State == RoleActive && r.Holder == a.ID && r.HolderGeneration == a.Generation
		for _, hold := range a.Holds {
			if hold.Wire == r.Wire && !(stands && hold.Epoch == r.Epoch) {
				gone = append(gone, hold)
			}
		}
		if stands && r.isHeld(a, now) {
			posts = append(posts, post{inbox: r.Key.Address(), authority: RoleAuthority{
				Wire: r.Wire, Holder: a.ID, Generation: Some(r.HolderGeneration), Epoch: r.Epoch, At: now,
			}})
		}
	}
	return posts, gone, nil
}

// pendingOf counts what waits in role inboxes.
func (h *Hub) pendingOf(ctx context.Context, posts []post, now Instant) (int64, error) {
	var pending atomic.Int64
	err := each(len(posts), len(posts), func(i int) error {
		n, err := h.messages.CountInbox(ctx, posts[i].inbox, now, maxPendingCount)
		pending.Add(n)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("count messages of roles: %w", err)
	}
	return pending.Load(), nil
}

func (a Agent) legacyStanding(posts []post, now Instant) *LegacyStanding {
	c, candidate := a.legacyCandidate(now)
	if !candidate {
		return nil
	}
	leads := slices.ContainsFunc(posts, func(p post) bool { return p.inbox == ctoAddress })
	return &LegacyStanding{Source: c.Source, Priority: c.Priority, Leader: leads}
}
