package ddb_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"drawbridge/core"
)

func learnOf(message string) core.LearnRequest {
	return core.LearnRequest{Message: message, Solution: "do it"}
}

// learn makes entries, or hits one.
func (c *costs) learn(r core.LearnRequest) core.Learnt {
	c.t.Helper()
	var learnt core.Learnt
	c.do(func(ctx context.Context) (err error) {
		learnt, err = c.core.Learn(ctx, r)
		return err
	})
	return learnt
}

func (c *costs) advance(team string, phases ...core.Phase) {
	c.t.Helper()
	for _, phase := range phases {
		c.do(func(ctx context.Context) error {
			_, err := c.core.AdvancePipeline(ctx, core.AdvanceRequest{Team: team, Phase: phase})
			return err
		})
	}
}

// Entries and pipelines of up to 1 KB. Reads through an index cost half a unit,
// empty ones too.
func TestEveryOperationOfReflexionAndPipelinesCostsWhatTheDesignAllows(t *testing.T) {
	learn := func(r core.LearnRequest) func(*costs) func(context.Context) error {
		return func(c *costs) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := c.core.Learn(ctx, r)
				return err
			}
		}
	}
	lookup := func(text string, want int) func(*costs) func(context.Context) error {
		return func(c *costs) func(context.Context) error {
			for i := range 3 {
				c.learn(learnOf(fmt.Sprintf("error %c", 'a'+i)))
			}
			return func(ctx context.Context) error {
				found, err := c.core.Lookup(ctx, core.LookupRequest{Pattern: core.Some(text)})
				if err == nil && (len(found.Entries) != want || found.Truncated) {
					return fmt.Errorf("found %+v", found)
				}
				return err
			}
		}
	}
	again := func(prepare func(*costs) func(context.Context) error) func(*costs) func(context.Context) error {
		return func(c *costs) func(context.Context) error {
			operation := prepare(c)
			c.do(operation)
			return operation
		}
	}
	told, fenced := learnOf("boom"), learnOf("boom")
	told.AgentID, fenced.AgentID = "a", "a"
	fenced.Fences.Generation = core.Some(int64(1))
	advance := func(phase core.Phase) func(*costs) func(context.Context) error {
		return func(c *costs) func(context.Context) error {
			if phase != core.PhasePRD {
				c.advance("t", core.PhasePRD)
				c.clock.Advance(time.Second)
			}
			return func(ctx context.Context) error {
				_, err := c.core.AdvancePipeline(ctx, core.AdvanceRequest{Team: "t", Phase: phase})
				return err
			}
		}
	}

	for _, test := range []struct {
		name    string
		prepare func(*costs) func(context.Context) error
		want    spend
	}{
		{"lookup of an exact pattern", lookup("error a", 1), spend{1, 1, 0, 1}},
		{"lookup that falls back and finds 3", lookup("error", 3), spend{3, 10, 0, 8}},
		{"lookup that finds nothing", lookup("nothing", 0), spend{2, 9, 0, 5}},
		{"learn, the first", learn(learnOf("boom")), spend{2, 2, 3, 1}},
		{"learn with the agent that tells it", learn(told), spend{2, 3, 3, 2}},
		{"learn with the agent's fence", learn(fenced), spend{2, 2, 6, 1}},
		{"learn again", again(learn(learnOf("boom"))), spend{2, 2, 1, 1}},
		{"learn again with the agent's fence", again(learn(fenced)), spend{3, 3, 4, 2}},
		{"hit", func(c *costs) func(context.Context) error {
			id := c.learn(learnOf("boom")).Entry.ID()
			return func(ctx context.Context) error {
				_, err := c.core.Hit(ctx, core.HitRequest{ID: id})
				return err
			}
		}, spend{1, 1, 1, 0}},
		{"hit whose write ids move on", func(c *costs) func(context.Context) error {
			id := c.learn(learnOf("boom")).Entry.ID()
			hit := func(ctx context.Context) error {
				_, err := c.core.Hit(ctx, core.HitRequest{ID: id})
				return err
			}
			for range 31 {
				c.do(hit)
			}
			return hit
		}, spend{2, 2, 2, 0}},
		{"list of 20 entries", func(c *costs) func(context.Context) error {
			for i := range 20 {
				c.learn(learnOf(fmt.Sprintf("error %c", 'a'+i)))
			}
			return func(ctx context.Context) error {
				page, err := c.core.Reflexions(ctx, core.ReflexionQuery{Limit: 20})
				if err == nil && len(page.Entries) != 20 {
					return fmt.Errorf("%d entries", len(page.Entries))
				}
				return err
			}
		}, spend{2, 9, 0, 24}},
		{"reflexion sweep with nothing due, and its record", func(c *costs) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := c.core.RunSweep(ctx, core.SweepReflexion)
				return err
			}
		}, spend{2, 5, 1, 2}},
		{"reflexion sweep that prunes one", func(c *costs) func(context.Context) error {
			id := c.learn(learnOf("boom")).Entry.ID()
			for range 6 {
				c.do(func(ctx context.Context) error {
					_, err := c.core.Hit(ctx, core.HitRequest{ID: id})
					return err
				})
			}
			c.clock.Advance(31 * 24 * time.Hour)
			return func(ctx context.Context) error {
				swept, err := c.core.SweepReflexion(ctx)
				if err == nil && swept.Pruned != 1 {
					return fmt.Errorf("swept %+v", swept)
				}
				return err
			}
		}, spend{3, 6, 3, 3}},
		{"state of a pipeline", func(c *costs) func(context.Context) error {
			c.advance("t", core.PhasePRD)
			return func(ctx context.Context) error {
				_, err := c.core.Pipeline(ctx, "t")
				return err
			}
		}, spend{1, 1, 0, 1}},
		{"advance that makes the pipeline", advance(core.PhasePRD), spend{2, 2, 2, 1}},
		{"advance", advance(core.PhaseConfidence), spend{2, 2, 3, 1}},
		{"advance that is refused", func(c *costs) func(context.Context) error {
			refused := advance(core.PhaseComplete)(c)
			return func(ctx context.Context) error {
				if err := refused(ctx); core.CodeOf(err) != core.CodePipelineTransitionInvalid {
					return fmt.Errorf("answered %w", err)
				}
				return nil
			}
		}, spend{1, 1, 0, 1}},
		{"init of a pipeline that is there", func(c *costs) func(context.Context) error {
			c.advance("t", core.PhasePRD)
			c.clock.Advance(time.Second)
			return func(ctx context.Context) error {
				_, err := c.core.InitPipeline(ctx, core.InitRequest{Team: "t"})
				return err
			}
		}, spend{2, 2, 3, 1}},
		{"list of 20 pipelines", func(c *costs) func(context.Context) error {
			for i := range 20 {
				c.advance(fmt.Sprint("t", i), core.PhasePRD)
			}
			return func(ctx context.Context) error {
				page, err := c.core.Pipelines(ctx, core.PipelineQuery{Limit: 20})
				if err == nil && len(page.Pipelines) != 20 {
					return fmt.Errorf("%d pipelines", len(page.Pipelines))
				}
				return err
			}
		}, spend{2, 9, 0, 24}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCosts(t)
				c.do(func(ctx context.Context) error { _, err := c.core.Identity(ctx); return err })
				operation := test.prepare(c)
				if got := c.measure(operation); got != test.want {
					t.Errorf("%d rounds, %d requests, %g write units, %g read units; want %+v", got.rounds, got.requests, got.write, got.read, test.want)
				}
			})
		})
	}
}

// storeEntries puts entries of other patterns into the store.
func (c *costs) storeEntries(from, to int) {
	c.t.Helper()
	const workers = 16
	done := make(chan error, workers)
	for worker := range workers {
		go func() {
			for i := from + worker; i < to; i += workers {
				sum := fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, i)))
				entry := core.ReflexionEntry{
					Key:  core.ReflexionKey{Pattern: sum[:32], Variant: sum[32:]},
					Born: fmt.Sprint(i), Type: core.ReflexionLearnt, Pattern: fmt.Sprintf("another error, number %d of many", i),
					Hits: 1, CreatedAt: core.InstantOf(c.clock.Now()), UpdatedAt: core.InstantOf(c.clock.Now()), DueAt: core.InstantOf(c.clock.Now()) + 1e9,
				}
				if _, err := c.store.CreateReflexion(c.t.Context(), core.ReflexionCreation{Entry: entry}); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range workers {
		if err := <-done; err != nil {
			c.t.Fatal(err)
		}
	}
}

// However many entries there are, an exact lookup is one request, a learn and a
// hit stay what they are, and the fallback stops at its bound and says so.
func TestTheCostOfReflexionDoesNotGrowWithWhatIsStored(t *testing.T) {
	c := newCosts(t)
	id := c.learn(learnOf("boom")).Entry.ID()
	operations := map[string]func(ctx context.Context) error{
		"lookup": func(ctx context.Context) error {
			_, err := c.core.Lookup(ctx, core.LookupRequest{Pattern: core.Some("boom")})
			return err
		},
		"learn": func(ctx context.Context) error { _, err := c.core.Learn(ctx, learnOf("boom")); return err },
		"hit":   func(ctx context.Context) error { _, err := c.core.Hit(ctx, core.HitRequest{ID: id}); return err },
	}
	before := map[string]spend{}
	measure := func(operation func(context.Context) error) spend {
		var err error
		cost := c.aws.Measure(t.Context(), func(ctx context.Context) { err = operation(ctx) })
		if err != nil {
			t.Fatal(err)
		}
		return spend{0, cost.Requests, cost.WriteUnits, cost.ReadUnits}
	}
	fallback := func() (core.Lookup, spend) {
		var found core.Lookup
		cost := measure(func(ctx context.Context) (err error) {
			found, err = c.core.Lookup(ctx, core.LookupRequest{Pattern: core.Some("no such error")})
			return err
		})
		return found, cost
	}
	for name, operation := range operations {
		before[name] = measure(operation)
	}
	c.storeEntries(0, 2500)
	full, bounded := fallback()
	if !full.Truncated || len(full.Entries) != 0 {
		t.Errorf("the fallback over 2,500 entries answers %+v", full)
	}
	c.storeEntries(2500, 6000)
	for name, operation := range operations {
		if after := measure(operation); after != before[name] {
			t.Errorf("%s cost %+v, and %+v over 6,000 entries", name, before[name], after)
		}
	}
	// Keys differ by a digit in length, no more.
	if _, after := fallback(); after.requests != bounded.requests || after.read > bounded.read+5 || after.read > 200 {
		t.Errorf("the fallback cost %+v over 2,500 entries and %+v over 6,000", bounded, after)
	} else {
		t.Logf("fallback at its bound: %+v", after)
	}
}
