package linearizability

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"drawbridge/core"
)

// presence is one agent. Times are milliseconds, touched microseconds.
type presence struct {
	Generation int64
	Status     core.Status
	Final      bool
	Lease      int64
	Registered int64
	Touched    int64
}

type presenceCall struct {
	Op         string // register, heartbeat, deregister, report, read or sweep
	At         int64
	Generation int64 // 0: not sent
	TTL        int64
	Word       core.Status
	Final      bool
	Once       bool // it carries an idempotency key
}

type presenceReply struct {
	told
	Generation int64
	Lease      int64
	Status     core.Status
}

// twice: a write that lost its answer and was overtaken is fitted to what it then
// meets. So a register may use up two generations, and a status may be reported
// twice (guarantees.md). With a key a register happens once.
func (c presenceCall) twice(told) any {
	if c.Once || c.Op == "read" {
		return nil
	}
	return presenceReply{told: unknown}
}

var presenceModel = model[presence, presenceCall, presenceReply]{after: presence.after, also: presence.swept}

func (s presence) after(c presenceCall) (presence, presenceReply) {
	switch c.Op {
	case "register":
		next := presence{Generation: s.Generation + 1, Status: core.StatusOnline, Lease: c.At + c.TTL, Registered: c.At, Touched: s.place(c)}
		return next, presenceReply{Generation: next.Generation, Lease: next.Lease}
	case "heartbeat":
		return s.heartbeat(c)
	case "deregister":
		return s.become(c, core.StatusOffline)
	case "report":
		return s.become(c, c.Word)
	case "read":
		return s, presenceReply{Generation: s.Generation, Lease: s.Lease, Status: s.effective(c.At)}
	}
	return s, presenceReply{} // a sweep is in no hurry: see swept
}

// place is where a write that never yields goes among the others: past what it
// met.
func (s presence) place(c presenceCall) int64 {
	if started := c.At * 1000; started >= s.Touched {
		return started
	}
	return s.Touched + 1
}

func (s presence) stale() presenceReply {
	return presenceReply{told: told{Code: core.CodeStalePresenceOwner}, Generation: s.Generation}
}

func (s presence) heartbeat(c presenceCall) (presence, presenceReply) {
	switch {
	case s.Generation == 0, s.Final, c.Generation > 0 && c.Generation != s.Generation:
		return s, s.stale()
	case c.At*1000 < s.Touched: // it comes late: others that began after it are done
		return s, presenceReply{Lease: s.Lease}
	}
	s.Status, s.Lease, s.Touched = core.StatusOnline, c.At+c.TTL, c.At*1000
	return s, presenceReply{Lease: s.Lease}
}

func (s presence) become(c presenceCall, status core.Status) (presence, presenceReply) {
	switch {
	case s.Generation == 0, c.Generation > 0 && c.Generation != s.Generation, s.Final && status != core.StatusOffline:
		return s, s.stale()
	case c.Generation == 0 && c.At*1000 < s.Touched && s.Registered > c.At: // an unfenced one leaves a newer owner alone
		return s, presenceReply{}
	}
	s.Touched = s.place(c)
	s.Status, s.Final = status, s.Final || c.Final
	return s, presenceReply{}
}

// effective is what a reader sees (compat 6).
func (s presence) effective(at int64) core.Status {
	switch {
	case s.Generation == 0:
		return ""
	case s.Status == core.StatusOffline, s.Lease+core.OfflineAfter.Milliseconds() < at:
		return core.StatusOffline
	case s.Lease < at:
		return core.StatusStale
	}
	return s.Status
}

// swept is what a sweep may leave behind: one step, or nothing.
func (s presence) swept(c presenceCall) []presence {
	if c.Op != "sweep" || s.Generation == 0 || s.Status == core.StatusOffline || s.Lease >= c.At {
		return nil
	}
	stale, offline := s, s
	stale.Status, offline.Status = core.StatusStale, core.StatusOffline
	if s.Status == core.StatusOnline {
		return []presence{stale}
	}
	if s.Lease+core.OfflineAfter.Milliseconds() < c.At {
		return []presence{offline}
	}
	return nil
}

// agentID is the agent that all callers of a history act for.
const agentID = "agent"

// TestTheHistoryOfAnAgentIsLinearizable lets callers register, heartbeat,
// deregister, report and read one agent at once, while the time jumps past the
// lease and sweeps run.
func TestTheHistoryOfAnAgentIsLinearizable(t *testing.T) {
	eachRound(t, 2, func(t *testing.T, b *bed, seed uint64) {
		h := presenceHistory(t, b, seed, 5, 14)
		if done := h.count(isDone); done < 20 {
			t.Fatalf("only %d of %d calls were done", done, len(h.operations))
		}
		check(t, presenceModel, h)
	})
}

func presenceHistory(t *testing.T, b *bed, seed uint64, callers, calls int) *history {
	t.Helper()
	h := newHistory()
	atOnce(b.callers(callers, seed), func(c *caller) {
		known := int64(0)
		for n := range calls {
			c.disturb()
			asked := c.nextPresence(known)
			if asked.Op == "sweep" {
				c.calm() // it writes to what is not the agent's, too
			}
			reply := record(h, c, asked, func() (presenceCall, presenceReply) {
				asked.At = c.tick()
				return asked, c.presence(t, asked, n)
			})
			if reply.Generation > 0 {
				known = reply.Generation
			}
			if c.random.IntN(10) == 0 {
				b.time.jump(7 * time.Minute)
			}
		}
	})
	return h
}

func (c *caller) nextPresence(known int64) presenceCall {
	asked := presenceCall{Generation: known, TTL: int64(60+c.random.IntN(600)) * 1000}
	switch c.random.IntN(12) {
	case 0, 1, 2:
		asked.Op, asked.Generation, asked.Once = "register", 0, c.random.IntN(2) == 0
	case 3:
		asked.Op, asked.Final = "deregister", c.random.IntN(2) == 0
	case 4:
		asked.Op, asked.Word = "report", core.StatusStale
	case 5:
		asked.Op = "sweep"
	case 6, 7, 8:
		asked.Op = "read"
	default:
		asked.Op = "heartbeat"
		if c.random.IntN(5) == 0 {
			asked.Generation = 0
		}
	}
	return asked
}

// presence sends a call. A register carries an idempotency key and is repeated
// until its generation is known: it has to happen once.
func (c *caller) presence(t *testing.T, asked presenceCall, n int) presenceReply {
	ctx := t.Context()
	fences := core.Fences{}
	if asked.Generation > 0 {
		fences.Generation = core.Some(asked.Generation)
	}
	switch asked.Op {
	case "register":
		r := core.RegisterRequest{AgentID: agentID, CLI: "claude", TimeoutSec: core.Some(float64(asked.TTL)/1000 - core.RegisterGrace.Seconds())}
		if asked.Once {
			r.Idempotency = core.Some(core.IdempotencyKey{Scope: c.id, Key: fmt.Sprint(n), Body: []byte("{}")})
			return untilTold(ctx, c, func() presenceReply { return c.register(t, r) })
		}
		return c.register(t, r)
	case "heartbeat":
		beat, err := c.hub.Heartbeat(ctx, core.HeartbeatRequest{AgentID: agentID, TTLMs: core.Some(asked.TTL), Fences: fences})
		return presenceTold(err, presenceReply{Lease: int64(beat.LeaseExpires)})
	case "deregister":
		_, err := c.hub.Deregister(ctx, core.DeregisterRequest{AgentID: agentID, Final: asked.Final, Fences: fences})
		return presenceTold(err, presenceReply{})
	case "report":
		_, err := c.hub.ReportStatus(ctx, core.ReportRequest{AgentID: agentID, Status: string(asked.Word), Fences: fences})
		return presenceTold(err, presenceReply{})
	case "sweep":
		_, err := c.hub.SweepAgents(ctx)
		return presenceTold(err, presenceReply{})
	}
	agent, found, err := c.store.ReadAgent(ctx, agentID)
	if !found {
		return presenceTold(err, presenceReply{})
	}
	return presenceTold(err, presenceReply{
		Generation: agent.Generation, Lease: int64(agent.LeaseExpires), Status: agent.EffectiveStatus(core.Instant(asked.At)),
	})
}

func (c *caller) register(t *testing.T, r core.RegisterRequest) presenceReply {
	done, err := c.hub.Register(t.Context(), r)
	return presenceTold(err, presenceReply{Generation: done.Generation, Lease: int64(done.LeaseExpires)})
}

func presenceTold(err error, done presenceReply) presenceReply {
	if err == nil {
		return done
	}
	reply := presenceReply{told: tell(err)}
	var refusal *core.Error
	if errors.As(err, &refusal) {
		if stale, ok := refusal.Data.(core.StalePresence); ok {
			reply.Generation = stale.Current
		}
	}
	return reply
}
