package core

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Agents lists the agents in order of their ids, as they are at the time of the
// call. An agent that exists from the first page to the last is on exactly one
// of them, whatever registers meanwhile. With a filter a page may hold fewer
// agents than asked, or none, and still have a next one: each page costs two
// round trips, however rare the match.
//
// Errors: INVALID_ARGUMENT naming status, topic, limit or cursor.
func (h *Hub) Agents(ctx context.Context, q AgentQuery) (AgentPage, error) {
	after, err := q.validate()
	if err != nil {
		return AgentPage{}, err
	}
	limit := q.limit()
	scan := AgentScan{Topic: q.Topic.or(""), After: after, Limit: limit}
	if q.filtered() {
		scan.Limit = MaxListLimit
	}
	found, err := h.presence.ScanAgents(ctx, scan)
	if err != nil {
		return AgentPage{}, fmt.Errorf("scan agents: %w", err)
	}
	page := AgentPage{Agents: []AgentView{}}
	now := InstantOf(h.clock.Now())
	last, done := found.Last, found.Done
	for i, agent := range found.Agents {
		view := agent.View(now)
		if !q.matches(view) {
			continue
		}
		if page.Agents = append(page.Agents, view); len(page.Agents) == limit && i < len(found.Agents)-1 {
			last, done = agent.ID, false
			break
		}
	}
	if !done {
		page.NextCursor = encodeCursor(q.cursorKind(), last)
	}
	return page, nil
}

func (q AgentQuery) validate() (after string, err error) {
	if q.Status.Set && !slices.Contains([]Status{StatusOnline, StatusStale, StatusOffline}, q.Status.Value) {
		return "", Invalid("status", "status must be online, stale or offline")
	}
	if q.Topic.Set {
		if err := checkID("topic", q.Topic.Value); err != nil {
			return "", err
		}
	}
	if q.Limit < 0 || q.Limit > MaxListLimit {
		return "", Invalid("limit", fmt.Sprintf("limit must be 1 to %d", MaxListLimit))
	}
	if q.Cursor == "" {
		return "", nil
	}
	return decodeCursor(q.cursorKind(), q.Cursor)
}

func (q AgentQuery) limit() int {
	if q.Limit == 0 {
		return DefaultListLimit
	}
	return q.Limit
}

func (q AgentQuery) filtered() bool { return q.Status.Set || q.Topic.Set }

// matches looks at the agent itself: the topic's entries are hints that may be
// out of date.
func (q AgentQuery) matches(a AgentView) bool {
	if q.Status.Set && a.Effective != q.Status.Value {
		return false
	}
	return !q.Topic.Set || slices.Contains(a.Topics, q.Topic.Value)
}

// cursorKind binds a cursor to the list and the filter it came from.
func (q AgentQuery) cursorKind() string {
	return strings.Join([]string{"agents", string(q.Status.or("")), q.Topic.or("")}, "\x00")
}
