package coretest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"drawbridge/core"
)

func submission(id, action string, content int) core.HumanSubmission {
	return core.HumanSubmission{RequestID: id, Action: action, Content: json.RawMessage(fmt.Sprint(content))}
}

func testHumanRequests(t *testing.T, open func(*testing.T) *desk) {
	t.Run("the deadline holds on every path, without any sweep", func(t *testing.T) {
		for name, meet := range map[string]func(d *desk, id string){
			"a read": func(d *desk, id string) { d.human(id) },
			"a list": func(d *desk, _ string) {
				pending, err := d.hub.PendingHuman(d.ctx)
				d.must(err)
				if len(pending) != 0 {
					t.Fatalf("an overdue request is pending: %v", pending)
				}
			},
			"a submit": func(d *desk, id string) {
				if _, err := d.hub.SubmitHuman(d.ctx, submission(id, core.ActionAccept, 1)); core.CodeOf(err) != core.CodeDeadlinePassed {
					t.Fatalf("error is %v", err)
				}
			},
			"the sweep": func(d *desk, _ string) {
				counts, err := d.hub.SweepHumanRequests(d.ctx)
				d.must(err)
				if counts.TimedOut != 1 {
					t.Fatalf("the sweep did %+v", counts)
				}
			},
		} {
			// NousResearch/hermes-agent#54110: a halt is told as one.
			for action, want := range map[string]string{
				core.DefaultDecline: "timeout_decline", core.DefaultCancel: "timeout_cancel", core.DefaultContinue: "timeout_continue",
			} {
				d := open(t)
				id := d.question(action, 1000)
				d.clock.Advance(time.Second)
				meet(d, id)
				if view := d.human(id); view.State != core.HumanTimedOut {
					t.Fatalf("%s leaves the request %s", name, view.State)
				}
				_, err := d.hub.SweepHumanRequests(d.ctx)
				d.must(err)
				d.wantTold("a", "action", map[string]int{want: 1})
			}
		}
	})

	t.Run("a millisecond before the deadline an answer counts", func(t *testing.T) {
		d := open(t)
		id := d.question(core.DefaultDecline, 1000)
		d.clock.Advance(999 * time.Millisecond)
		done, err := d.hub.SubmitHuman(d.ctx, submission(id, core.ActionAccept, 7))
		d.must(err)
		if done.State != core.HumanAccepted || string(d.human(id).Response) != "7" {
			t.Fatalf("the answer leads to %+v", done)
		}
		d.clock.Advance(time.Hour)
		counts, err := d.hub.SweepHumanRequests(d.ctx)
		d.must(err)
		if counts.TimedOut != 0 || d.human(id).State != core.HumanAccepted {
			t.Fatalf("a later sweep did %+v", counts)
		}
	})

	t.Run("the pending ones are listed oldest first", func(t *testing.T) {
		d := open(t)
		var ids []string
		for range 7 {
			ids = append(ids, d.question(core.DefaultDecline, 60_000))
			d.clock.Advance(time.Millisecond)
		}
		_, err := d.hub.SubmitHuman(d.ctx, submission(ids[3], core.ActionDecline, 1))
		d.must(err)
		pending, err := d.hub.PendingHuman(d.ctx)
		d.must(err)
		var got []string
		for _, p := range pending {
			got = append(got, p.ID)
		}
		if want := append(ids[:3:3], ids[4:]...); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("pending: %v, want %v", got, want)
		}
	})
}

func testHumanRaces(t *testing.T, open func(*testing.T) *desk) {
	t.Run("a hundred answers, reads and sweeps at once end in one outcome, told once", func(t *testing.T) {
		d := open(t)
		for round := range d.Rounds {
			id := d.question(core.DefaultContinue, 1000)
			if round%2 == 1 {
				d.clock.Advance(time.Second) // then nobody's answer counts
			}
			wins := make([]int, 100)
			var acts []func(*core.Hub)
			for i := range wins {
				acts = append(acts, func(hub *core.Hub) {
					switch {
					case i%10 == 8:
						if _, err := hub.SweepHumanRequests(d.ctx); err != nil {
							t.Error(err)
						}
					case i%10 == 9:
						if _, err := hub.HumanRequest(d.ctx, core.HumanRead{RequestID: id}); err != nil {
							t.Error(err)
						}
					default:
						_, err := hub.SubmitHuman(d.ctx, submission(id, core.ActionAccept, i+1))
						switch code := core.CodeOf(err); code {
						case "":
							wins[i]++
						case core.CodeAlreadyHandled, core.CodeDeadlinePassed:
						default:
							t.Errorf("an answer ends in %v", err)
						}
					}
				})
			}
			d.atOnce(acts...)
			view, winners := d.human(id), 0
			for i, won := range wins {
				if winners += won; won == 1 && string(view.Response) != fmt.Sprint(i+1) {
					t.Fatalf("answer %d won, and %s stands", i+1, view.Response)
				}
			}
			if want := 1 - round%2; winners != want {
				t.Fatalf("round %d has %d winners, want %d", round, winners, want)
			}
			d.wantTold("a", "action", map[string]int{view.Action: 1})
		}
	})
}

// testHumanModel runs random operations on a few requests and holds what they
// answer against what the rules say.
func testHumanModel(t *testing.T, open func(*testing.T) *desk) {
	type modelled struct {
		state    core.HumanState
		deadline core.Instant
		action   string
		response string
		late     int
	}
	d := open(t)
	for range d.Seeds {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		requests := map[string]*modelled{}
		var ids []string
		told, want := map[string]int{}, map[string]int{}
		expire := func(m *modelled) {
			if m.state == core.HumanPending && m.deadline <= core.InstantOf(d.clock.Now()) {
				m.state, m.action = core.HumanTimedOut, "timeout_decline"
				want[m.action]++
			}
		}
		for step := range 40 {
			d.clock.Advance(time.Duration(r.IntN(800)) * time.Millisecond)
			if len(ids) == 0 || r.IntN(5) == 0 {
				id := d.question(core.DefaultDecline, 1000)
				ids = append(ids, id)
				requests[id] = &modelled{state: core.HumanPending, deadline: core.InstantOf(d.clock.Now()).Add(time.Second), response: "null"}
				continue
			}
			id := ids[r.IntN(len(ids))]
			m := requests[id]
			switch r.IntN(4) {
			case 0:
				_, err := d.hub.SweepHumanRequests(d.ctx)
				d.must(err)
				for _, other := range requests {
					expire(other)
				}
			case 1:
				expire(m)
				if view := d.human(id); view.State != m.state || view.Action != m.action || string(view.Response) != m.response || len(view.Late) != m.late {
					t.Fatalf("seed %d, step %d: the request reads %+v, want %+v", seed, step, view, m)
				}
			default:
				before := m.state
				expire(m)
				action := []string{core.ActionAccept, core.ActionDecline, core.ActionCancel}[r.IntN(3)]
				_, err := d.hub.SubmitHuman(d.ctx, submission(id, action, step+1))
				wantCode := core.CodeAlreadyHandled
				switch {
				case m.state == core.HumanTimedOut:
					wantCode = core.CodeDeadlinePassed
					m.late = min(m.late+1, core.MaxLateAnswers)
				case before == core.HumanPending:
					wantCode = ""
					m.state = map[string]core.HumanState{
						core.ActionAccept: core.HumanAccepted, core.ActionDecline: core.HumanDeclined, core.ActionCancel: core.HumanCancelled,
					}[action]
					m.action, m.response = action, fmt.Sprint(step+1)
					want[action]++
				}
				if core.CodeOf(err) != wantCode {
					t.Fatalf("seed %d, step %d: %s ends in %v, want %q", seed, step, action, err, wantCode)
				}
			}
			for action, n := range d.told("a", "action") {
				told[action] += n
			}
			if fmt.Sprint(told) != fmt.Sprint(want) {
				t.Fatalf("seed %d, step %d: the requester was told %v, want %v", seed, step, told, want)
			}
		}
		d.clock.Advance(time.Minute) // the next seed starts without them
		_, err := d.hub.SweepHumanRequests(d.ctx)
		d.must(err)
		d.drain("a")
	}
}
