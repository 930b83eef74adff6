package linearizability

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"drawbridge/core"
)

// inboxOrder is what waits in an inbox, in the order of draining, one line a
// message.
type inboxOrder struct{ Waiting string }

type inboxCall struct {
	Op       string // publish, drain or peek
	At       int64
	Priority int64
	Text     string
	Max      int
}

type inboxReply struct {
	told
	Got string // texts, one a line
}

var inboxModel = model[inboxOrder, inboxCall, inboxReply]{after: inboxOrder.after}

// line sorts as the inbox does: higher priorities first, then age.
func (c inboxCall) line() string {
	return fmt.Sprintf("%d %d %s", core.MaxPriority-c.Priority, c.At, c.Text)
}

func lines(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}

func (s inboxOrder) after(c inboxCall) (inboxOrder, inboxReply) {
	waiting := lines(s.Waiting)
	if c.Op == "publish" {
		waiting = append(waiting, c.line())
		slices.Sort(waiting)
		return inboxOrder{strings.Join(waiting, "\n")}, inboxReply{}
	}
	first := min(c.Max, len(waiting))
	var got []string
	for _, line := range waiting[:first] {
		got = append(got, strings.Fields(line)[2])
	}
	if c.Op == "drain" {
		s.Waiting = strings.Join(waiting[first:], "\n")
	}
	return s, inboxReply{Got: strings.Join(got, "\n")}
}

// TestTheOrderOfAnInboxIsLinearizable lets callers publish with priorities while
// one reader drains and peeks: it always gets the first there are. (Readers that
// compete get what the others leave them; who gets what is the history of each
// delivery.)
func TestTheOrderOfAnInboxIsLinearizable(t *testing.T) {
	eachRound(t, 2, func(t *testing.T, b *bed, seed uint64) {
		h := inboxHistory(t, b, seed, 3, 8, 12)
		if done := h.count(isDone); done < 20 {
			t.Fatalf("only %d of %d calls were done", done, len(h.operations))
		}
		check(t, inboxModel, h)
	})
}

func inboxHistory(t *testing.T, b *bed, seed uint64, publishers, messages, drains int) *history {
	t.Helper()
	h := newHistory()
	all := b.callers(publishers+1, seed)
	atOnce(all, func(c *caller) {
		if c.number == 0 {
			for range drains {
				c.network.lose.Store(int64(c.random.IntN(2))) // with all its answers lost it would not know what it took
				c.drainInOrder(t, h)
			}
			return
		}
		for n := range messages {
			c.disturb()
			c.publishInOrder(t, h, fmt.Sprintf("%d-%d", c.number, n))
		}
	})
	return h
}

func (c *caller) drainInOrder(t *testing.T, h *history) {
	asked := inboxCall{Op: "drain", Max: 1 + c.random.IntN(3)}
	if c.random.IntN(3) == 0 {
		asked.Op = "peek"
	}
	record(h, c, asked, func() (inboxCall, inboxReply) {
		asked.At = c.tick()
		drained, err := c.hub.Drain(t.Context(), core.DrainRequest{AgentID: inbox, Max: int64(asked.Max), AutoAck: asked.Op == "drain"})
		var got []string
		for _, m := range drained.Messages {
			got = append(got, textOf(m))
		}
		if err == nil && len(drained.Unconfirmed) > 0 {
			t.Errorf("the drain does not know of %v whether it took them", drained.Unconfirmed)
		}
		return asked, inboxReply{told: tell(err), Got: strings.Join(got, "\n")}
	})
}

func (c *caller) publishInOrder(t *testing.T, h *history, text string) {
	asked := inboxCall{Op: "publish", Priority: int64(1 + c.random.IntN(3)), Text: text}
	record(h, c, asked, func() (inboxCall, inboxReply) {
		asked.At = c.tick()
		_, err := c.hub.Publish(t.Context(), core.PublishRequest{
			From: c.id, To: inbox, Topic: "t", Priority: asked.Priority, TTLMs: 600_000,
			Payload: json.RawMessage(fmt.Sprintf(`{"text":%q}`, text)),
		})
		return asked, inboxReply{told: tell(err)}
	})
}
