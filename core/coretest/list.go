package coretest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"drawbridge/core"
)

func testList(t *testing.T, open func(*testing.T) *bench) {
	t.Run("pages of every size hold all agents once, in order of their ids", func(t *testing.T) {
		b := open(t)
		b.fill(57)
		for _, limit := range []int{0, 1, 7, 19, 56, 57, 58, 100} {
			got := b.list(core.AgentQuery{Limit: limit})
			if len(got) != 57 || !slices.IsSorted(got) {
				t.Fatalf("with limit %d the list is %v", limit, got)
			}
		}
	})

	t.Run("an empty hub has an empty page without a next one", func(t *testing.T) {
		b := open(t)
		page, err := b.hub.Agents(b.ctx, core.AgentQuery{})
		b.must(err)
		if page.Agents == nil || len(page.Agents) != 0 || page.NextCursor != "" {
			t.Fatalf("the page is %+v", page)
		}
	})

	t.Run("agents there from the start are all listed once while others register", func(t *testing.T) {
		b := open(t)
		b.fill(60)
		done := make(chan struct{})
		var wait sync.WaitGroup
		wait.Go(func() {
			for i := range 600 { // an end, or the list might never reach its own
				select {
				case <-done:
					return
				default:
					_, err := b.hub.Register(b.ctx, core.RegisterRequest{AgentID: fmt.Sprintf("agent-%05d-%d", i*7%60, i), CLI: "other"})
					if err != nil {
						return
					}
				}
			}
		})
		got := b.list(core.AgentQuery{Limit: 9})
		close(done)
		wait.Wait()
		if len(slices.Compact(slices.Clone(got))) != len(got) || !slices.IsSorted(got) {
			t.Fatalf("an agent is listed twice or out of order: %v", got)
		}
		for i := range 60 {
			if id := fmt.Sprintf("agent-%05d", i); !slices.Contains(got, id) {
				t.Fatalf("%s is missing from %v", id, got)
			}
		}
	})

	t.Run("filters look at the effective status and at the topics of the current registration", func(t *testing.T) {
		b := open(t)
		b.registerWith(core.RegisterRequest{AgentID: "dead", CLI: "claude", TimeoutSec: core.Some(-60.0), Topics: []string{"x"}})
		b.registerWith(core.RegisterRequest{AgentID: "gone", CLI: "claude", Topics: []string{"x"}})
		b.must(b.deregister("gone", 1))
		b.registerWith(core.RegisterRequest{AgentID: "left", CLI: "claude", Topics: []string{"x"}})
		b.registerWith(core.RegisterRequest{AgentID: "left", CLI: "claude", Topics: []string{"y"}})
		b.registerWith(core.RegisterRequest{AgentID: "live", CLI: "claude", Topics: []string{"y", "x"}})
		b.clock.Advance(61 * time.Second)
		x := core.Some("x")
		for _, c := range []struct {
			query core.AgentQuery
			want  string
		}{
			{core.AgentQuery{Status: core.Some(core.StatusOnline)}, "left live"},
			{core.AgentQuery{Status: core.Some(core.StatusStale)}, "dead"},
			{core.AgentQuery{Status: core.Some(core.StatusOffline)}, "gone"},
			{core.AgentQuery{Topic: x}, "dead gone live"},
			{core.AgentQuery{Topic: core.Some("y")}, "left live"},
			{core.AgentQuery{Topic: core.Some("z")}, ""},
			{core.AgentQuery{Topic: x, Status: core.Some(core.StatusOnline)}, "live"},
		} {
			for _, limit := range []int{1, 50} {
				c.query.Limit = limit
				if got := strings.Join(b.list(c.query), " "); got != c.want {
					t.Errorf("query %+v lists %q, want %q", c.query, got, c.want)
				}
			}
		}
	})

	t.Run("a cursor that was changed or belongs to another query is refused", func(t *testing.T) {
		b := open(t)
		b.fill(5)
		page, err := b.hub.Agents(b.ctx, core.AgentQuery{Limit: 2})
		b.must(err)
		cursor := page.NextCursor
		tampered := []string{"x", cursor[:len(cursor)-1], cursor + "A", "!" + cursor[1:], strings.Repeat("A", 4000)}
		for i := range cursor {
			flipped := []byte(cursor)
			flipped[i] ^= 1
			tampered = append(tampered, string(flipped))
		}
		for _, c := range tampered {
			_, err := b.hub.Agents(b.ctx, core.AgentQuery{Limit: 2, Cursor: c})
			if refusal := b.wantCode(err, core.CodeInvalidArgument); refusal.Details["field"] != "cursor" {
				t.Fatalf("cursor %q is refused with %+v", c, refusal)
			}
		}
		_, err = b.hub.Agents(b.ctx, core.AgentQuery{Limit: 2, Cursor: cursor, Status: core.Some(core.StatusOnline)})
		b.wantCode(err, core.CodeInvalidArgument)
	})
}

// list reads all pages of a query and returns the ids.
func (b *bench) list(q core.AgentQuery) []string {
	b.t.Helper()
	var ids []string
	for range 10_000 {
		page, err := b.hub.Agents(b.ctx, q)
		b.must(err)
		for _, a := range page.Agents {
			ids = append(ids, a.ID)
		}
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			return ids
		}
	}
	b.t.Fatal("the list does not end")
	return nil
}
