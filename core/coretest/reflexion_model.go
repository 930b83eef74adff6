package coretest

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"drawbridge/core"
)

// modelFix is an entry as the contract's section 8 describes it, stepped through
// time instead of computed from it.
type modelFix struct {
	id              string
	hits, successes int64
	updated         time.Time
	confidence      float64
}

// reflexionModel is what the hub is held against: one entry for each error and
// system, told of every hit and of time as it passes.
type reflexionModel struct {
	fixes map[[2]string]*modelFix
}

func (m *reflexionModel) hit(f *modelFix, success bool, now time.Time) {
	f.hits++
	if success {
		f.successes++
	}
	f.updated = now
	d := math.Min(1, float64(f.hits)/10)
	f.confidence = float64(f.successes)/float64(f.hits)*d + 0.5*(1-d)
}

func (m *reflexionModel) prune(now time.Time) {
	for key, f := range m.fixes {
		if f.updated.Before(now.Add(-30*day)) && f.confidence < 0.2-1e-9 {
			delete(m.fixes, key)
		}
	}
}

// best is the entry that a lookup with this context answers first: the highest
// confidence.
func (m *reflexionModel) best(message, system string) (highest float64, count int) {
	for key, f := range m.fixes {
		if key[0] == message && (system == "" || key[1] == system) {
			highest = max(highest, f.confidence)
			count++
		}
	}
	return highest, count
}

// RunReflexionModel does random operations, some of whose answers get lost, and
// holds every answer against a model.
func RunReflexionModel(t *testing.T, h SharedHarness, seed uint64, steps int) {
	b := newSharedBench(t, h)
	random := rand.New(rand.NewPCG(seed, 2))
	m := &reflexionModel{fixes: map[[2]string]*modelFix{}}
	messages := []string{"connection refused", "연결 거부됨", "нет файла"}
	systems := []string{"linux", "windows"}
	for step := range steps {
		fail := func(format string, args ...any) {
			t.Helper()
			t.Fatalf("seed %d, step %d: %s", seed, step, fmt.Sprintf(format, args...))
		}
		key := [2]string{messages[random.IntN(len(messages))], systems[random.IntN(len(systems))]}
		filter := json.RawMessage(`{"os":"` + key[1] + `"}`)
		success := random.IntN(6) == 0
		now := b.clock.Now()
		m.prune(now)
		f := m.fixes[key]
		stop := func() {}
		if random.IntN(20) == 0 {
			stop = b.LoseNextWrite()
		}
		switch action := random.IntN(20); {
		case action < 6:
			r := fix(key[0])
			r.Context, r.Success = filter, success
			learnt := b.learn(r)
			if learnt.Created != (f == nil) {
				fail("learning %v is created %t", key, learnt.Created)
			}
			if f == nil {
				f = &modelFix{id: learnt.Entry.ID(), hits: 1, updated: now, confidence: 0.5}
				m.fixes[key] = f
				if success {
					m.hit(f, true, now)
				}
			} else {
				m.hit(f, success, now)
			}
			if learnt.Entry.ID() != f.id || learnt.Entry.Hits != f.hits || learnt.Entry.Successes != f.successes {
				fail("learnt %+v, the model has %+v", learnt.Entry, *f)
			}
		case action < 14:
			if f == nil {
				break
			}
			e := b.hit(f.id, success)
			m.hit(f, success, now)
			if e.Hits != f.hits || math.Abs(e.Confidence-f.confidence) > 1e-9 {
				fail("hit %+v, the model has %+v", e, *f)
			}
		case action < 17:
			for _, system := range []string{"", key[1]} {
				asked := ""
				if system != "" {
					asked = string(filter)
				}
				found := b.lookup(key[0], asked)
				highest, count := m.best(key[0], system)
				if len(found.Entries) != count || count > 0 && math.Abs(found.Entries[0].Confidence-highest) > 1e-9 {
					fail("a lookup of %q in %q finds %+v, the model %d up to %g", key[0], system, found.Entries, count, highest)
				}
			}
		case action < 18:
			if _, err := b.hub.SweepReflexion(t.Context()); err != nil {
				fail("sweep: %v", err)
			}
		case action < 19:
			page, err := b.hub.Reflexions(t.Context(), core.ReflexionQuery{})
			if err != nil || len(page.Entries) != len(m.fixes) {
				fail("the list has %d entries, %v; the model %d", len(page.Entries), err, len(m.fixes))
			}
		default:
			b.clock.Advance(time.Duration(random.Int64N(int64(20 * day))))
		}
		stop()
	}
}
