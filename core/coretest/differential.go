package coretest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"drawbridge/core"
)

// F7: the store under test and the model give the same generations, outcomes and
// sweep counts, and end in the same state, over random schedules.
func testDifferential(t *testing.T, open func(*testing.T) *bench) {
	t.Run("F7 over random schedules the store and the model agree on every outcome and on the state", func(t *testing.T) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 7))
		b := open(t)
		model := NewModel()
		pair := &pair{bench: b, model: model, other: NewHub(model, b.clock), random: random}
		for round := range max(b.Seeds/50, 10) {
			pair.agents = []string{fmt.Sprintf("x%d", round), fmt.Sprintf("y%d", round)}
			for range 30 {
				pair.step()
			}
			pair.compareState()
		}
	})
}

// pair is a hub over the store under test and one over the model, on one clock.
type pair struct {
	*bench
	model  *Model
	other  *core.Hub
	random *rand.Rand
	agents []string
}

// outcome is what an operation tells, without what differs from hub to hub.
type outcome struct {
	Code         core.Code
	Generation   int64
	LeaseExpires core.Instant
	Status       core.Status
	Counts       core.AgentSweep
	IDs          []string
}

func (p *pair) step() {
	p.t.Helper()
	p.clock.Advance(time.Duration(p.random.Int64N(int64(3 * time.Minute))))
	name, operation := p.choose()
	got, want := operation(p.hub), operation(p.other)
	if !reflect.DeepEqual(got, want) {
		p.t.Fatalf("%s is answered %+v, by the model %+v", name, got, want)
	}
}

// choose picks an operation and its arguments, to be carried out on both hubs.
func (p *pair) choose() (string, func(*core.Hub) outcome) {
	id := p.agents[p.random.IntN(len(p.agents))]
	fences, step, topic := core.Fences{}, core.Opt[int64]{}, core.Opt[string]{}
	if p.random.IntN(3) > 0 {
		fences.Generation = core.Some(p.random.Int64N(5))
	}
	if p.random.IntN(2) == 0 {
		step, topic = core.Some(p.random.Int64N(4)), core.Some("t")
	}
	switch p.random.IntN(8) {
	case 0, 1:
		topics := [][]string{nil, {"t"}, {"t", "u"}}[p.random.IntN(3)]
		timeout := core.Some(float64(p.random.IntN(600) - 119))
		return "register", func(h *core.Hub) outcome {
			r, err := h.Register(p.ctx, core.RegisterRequest{AgentID: id, CLI: "claude", Topics: topics, TimeoutSec: timeout, Step: step})
			return outcome{Code: core.CodeOf(err), Generation: r.Generation, LeaseExpires: r.LeaseExpires, Status: r.Status}
		}
	case 2, 3:
		ttl := core.Some(p.random.Int64N(300_000))
		return "heartbeat", func(h *core.Hub) outcome {
			beat, err := h.Heartbeat(p.ctx, core.HeartbeatRequest{AgentID: id, TTLMs: ttl, Step: step, Fences: fences})
			return outcome{Code: core.CodeOf(err), Generation: currentOf(err), LeaseExpires: beat.LeaseExpires}
		}
	case 4:
		final := p.random.IntN(3) == 0
		return "deregister", func(h *core.Hub) outcome {
			_, err := h.Deregister(p.ctx, core.DeregisterRequest{AgentID: id, Final: final, Fences: fences})
			return outcome{Code: core.CodeOf(err), Generation: currentOf(err)}
		}
	case 5:
		word := []string{"online", "stale", "offline", "busy"}[p.random.IntN(4)]
		return "report " + word, func(h *core.Hub) outcome {
			r, err := h.ReportStatus(p.ctx, core.ReportRequest{AgentID: id, Status: word, Fences: fences})
			return outcome{Code: core.CodeOf(err), Generation: currentOf(err), Status: r.Snapshot.Status}
		}
	case 6:
		return "list", func(h *core.Hub) outcome {
			page, err := h.Agents(p.ctx, core.AgentQuery{Topic: topic})
			o := outcome{Code: core.CodeOf(err)}
			for _, a := range page.Agents {
				o.IDs = append(o.IDs, a.ID+" "+string(a.Effective))
			}
			return o
		}
	default:
		return "sweep", func(h *core.Hub) outcome {
			counts, err := h.SweepAgents(p.ctx)
			return outcome{Code: core.CodeOf(err), Counts: counts}
		}
	}
}

// currentOf is the generation a refusal tells, 0 when there is none.
func currentOf(err error) int64 {
	var refusal *core.Error
	if errors.As(err, &refusal) {
		if stale, ok := refusal.Data.(core.StalePresence); ok {
			return stale.Current
		}
	}
	return 0
}

func (p *pair) compareState() {
	p.t.Helper()
	for _, id := range p.agents {
		got, found, err := p.Store.ReadAgent(p.ctx, id)
		p.must(err)
		want, known, err := p.model.ReadAgent(p.ctx, id)
		p.must(err)
		slices.Sort(got.Topics)
		slices.Sort(want.Topics)
		if found != known || !reflect.DeepEqual(got, want) {
			p.t.Fatalf("agent %s stands at %+v, in the model at %+v", id, got, want)
		}
	}
}
