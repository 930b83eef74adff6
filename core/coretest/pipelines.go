package coretest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"drawbridge/core"
)

// RunPipelines checks an adapter. open returns a harness over a new, empty
// store.
func RunPipelines(t *testing.T, open func(t *testing.T) SharedHarness, seed uint64) {
	for _, test := range []struct {
		name string
		run  func(*sharedBench)
	}{
		{"every edge of the contract is open and no other", pipelineEdges},
		{"fix is entered as often as fix_max says", pipelineFixLoop},
		{"of advancers at once one wins, and the others are judged after it", pipelineRace},
		{"a caller that sends its version never follows another one", pipelineVersions},
		{"an answer that gets lost is given again", pipelineLostAnswers},
		{"inits and advances at once are all counted by the version", pipelineInitRace},
		{"the list has the newest update first, on pages", pipelineList},
		{"bad input is refused by field and stores nothing", pipelineBadInput},
		{"random walks go where the model goes", func(b *sharedBench) { pipelineWalk(b, seed) }},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(newSharedBench(t, open(t))) })
	}
}

// edges are the contract's, written down once more.
var edges = map[core.Phase]string{
	"plan": "prd", "prd": "confidence", "confidence": "exec failed", "exec": "deslop", "deslop": "verify",
	"verify": "selfcheck fix failed", "selfcheck": "complete fix", "fix": "exec verify complete failed", "complete": "", "failed": "",
}

// way leads to each phase.
var way = map[core.Phase][]core.Phase{
	"plan": {}, "prd": {"prd"}, "confidence": {"prd", "confidence"}, "exec": {"prd", "confidence", "exec"},
	"deslop": {"prd", "confidence", "exec", "deslop"}, "verify": {"prd", "confidence", "exec", "deslop", "verify"},
	"selfcheck": {"prd", "confidence", "exec", "deslop", "verify", "selfcheck"},
	"fix":       {"prd", "confidence", "exec", "deslop", "verify", "fix"},
	"complete":  {"prd", "confidence", "exec", "deslop", "verify", "selfcheck", "complete"},
	"failed":    {"prd", "confidence", "failed"},
}

func leads(from, to core.Phase) bool {
	return slices.Contains(strings.Fields(edges[from]), string(to))
}

func (b *sharedBench) advance(team string, to core.Phase) (core.Pipeline, error) {
	done, err := b.hub.AdvancePipeline(b.t.Context(), core.AdvanceRequest{Team: team, Phase: to})
	return done.Pipeline, err
}

func (b *sharedBench) init(team string, fixMax int64) core.Pipeline {
	b.t.Helper()
	done, err := b.hub.InitPipeline(b.t.Context(), core.InitRequest{Team: team, FixMax: fixMax, RalphMax: core.DefaultRalphMax})
	b.must(err)
	return done.Pipeline
}

func (b *sharedBench) pipeline(team string) core.Pipeline {
	b.t.Helper()
	p, err := b.hub.Pipeline(b.t.Context(), team)
	b.must(err)
	return p
}

func (b *sharedBench) goTo(team string, phase core.Phase) core.Pipeline {
	b.t.Helper()
	b.init(team, core.DefaultFixMax)
	for _, next := range way[phase] {
		_, err := b.advance(team, next)
		b.must(err)
	}
	return b.pipeline(team)
}

func pipelineEdges(b *sharedBench) {
	for from := range edges {
		before := b.goTo("t", from)
		for to := range edges {
			after, err := b.advance("t", to)
			switch {
			case !leads(from, to):
				var refusal *core.Error
				if !errors.As(err, &refusal) || refusal.Code != core.CodePipelineTransitionInvalid || refusal.Data.(core.Pipeline).Phase != from {
					b.t.Fatalf("%s to %s: %v", from, to, err)
				}
				if stands := b.pipeline("t"); stands.Version != before.Version {
					b.t.Fatalf("%s to %s was refused and changed the pipeline", from, to)
				}
				continue
			case err != nil:
				b.t.Fatalf("%s to %s: %v", from, to, err)
			}
			last := after.History[len(after.History)-1]
			if after.Phase != to || last.From != from || last.To != to || len(after.History) != len(before.History)+1 {
				b.t.Fatalf("%s to %s leads to %+v", from, to, after)
			}
			if want := from == "fix" && to == "failed"; (after.RalphIteration == 1) != want {
				b.t.Fatalf("%s to %s: ralph iteration %d", from, to, after.RalphIteration)
			}
			before = b.goTo("t", from)
		}
	}
}

func pipelineFixLoop(b *sharedBench) {
	for max, want := range map[int64]int{0: 3, 1: 1, 2: 2} {
		b.init("t", max)
		for _, phase := range way["verify"] {
			_, err := b.advance("t", phase)
			b.must(err)
		}
		for range want {
			_, err := b.advance("t", "fix")
			b.must(err)
			_, err = b.advance("t", "verify")
			b.must(err)
		}
		if _, err := b.advance("t", "fix"); core.CodeOf(err) != core.CodePipelineTransitionInvalid {
			b.t.Fatalf("fix_max %d: one more is answered %v", max, err)
		}
		if p := b.pipeline("t"); p.FixAttempt != int64(want) || p.Phase != "verify" {
			b.t.Fatalf("fix_max %d: it stands at %+v", max, p)
		}
	}
}

// tally counts outcomes by their codes.
func tally(errs []error) map[core.Code]int {
	counts := map[core.Code]int{}
	for _, err := range errs {
		counts[core.CodeOf(err)]++
	}
	return counts
}

func pipelineRace(b *sharedBench) {
	const advancers = 16
	for _, phase := range way["deslop"] {
		counts := tally(b.race(advancers, func(int) error {
			_, err := b.advance("t", phase)
			return err
		}))
		if counts[""] != 1 || counts[core.CodePipelineTransitionInvalid] != advancers-1 {
			b.t.Fatalf("%s: outcomes %v", phase, counts)
		}
	}
	if p := b.pipeline("t"); len(p.History) != 4 || p.Version != 4 {
		b.t.Fatalf("the pipeline stands at %+v", p)
	}
}

func pipelineVersions(b *sharedBench) {
	seen := b.goTo("t", "verify")
	advance := func(version int64, to core.Phase) error {
		_, err := b.hub.AdvancePipeline(b.t.Context(), core.AdvanceRequest{Team: "t", Phase: to, Version: core.Some(version)})
		return err
	}
	// Somebody goes round, and the pipeline is in the same phase again.
	b.must(advance(seen.Version, "fix"))
	b.must(advance(seen.Version+1, "verify"))
	err := advance(seen.Version, "fix")
	var refusal *core.Error
	if !errors.As(err, &refusal) || refusal.Code != core.CodePipelineVersionStale || refusal.Data.(core.Pipeline).Version != seen.Version+2 {
		b.t.Fatalf("a stale version is answered %v", err)
	}
	counts := tally(b.race(12, func(int) error { return advance(seen.Version+2, "fix") }))
	if counts[""] != 1 || counts[core.CodePipelineVersionStale] != 11 {
		b.t.Fatalf("outcomes %v", counts)
	}
	_, err = b.hub.InitPipeline(b.t.Context(), core.InitRequest{Team: "t", Version: core.Some(seen.Version)})
	if core.CodeOf(err) != core.CodePipelineVersionStale {
		b.t.Fatalf("an init of a stale version is answered %v", err)
	}
	_, err = b.hub.AdvancePipeline(b.t.Context(), core.AdvanceRequest{Team: "new", Phase: "prd", Version: core.Some(int64(0))})
	b.must(err)
}

func pipelineLostAnswers(b *sharedBench) {
	for i, phase := range way["selfcheck"] {
		stop := b.LoseNextWrite()
		done, err := b.hub.AdvancePipeline(b.t.Context(), core.AdvanceRequest{Team: "t", Phase: phase})
		stop()
		b.must(err)
		if !done.Replayed || done.Pipeline.Phase != phase || done.Pipeline.Version != int64(i+1) {
			b.t.Fatalf("%s is answered %+v", phase, done)
		}
	}
	stop := b.LoseNextWrite()
	done, err := b.hub.InitPipeline(b.t.Context(), core.InitRequest{Team: "t"})
	stop()
	b.must(err)
	if p := b.pipeline("t"); !done.Replayed || p.Phase != "plan" || p.Version != 7 || len(p.History) != 0 {
		b.t.Fatalf("init is answered %+v, the pipeline stands at %+v", done, p)
	}
}

func pipelineInitRace(b *sharedBench) {
	counts := tally(b.race(8, func(i int) error {
		if i%2 == 0 {
			_, err := b.advance("t", "prd")
			return err
		}
		_, err := b.hub.InitPipeline(b.t.Context(), core.InitRequest{Team: "t"})
		return err
	}))
	if counts[""]+counts[core.CodePipelineTransitionInvalid] != 8 {
		b.t.Fatalf("outcomes %v", counts)
	}
	if p := b.pipeline("t"); p.Version != int64(counts[""]) {
		b.t.Fatalf("%v succeeded, and the version is %d", counts, p.Version)
	}
}

func pipelineList(b *sharedBench) {
	var want []string
	for i := range 9 {
		team := fmt.Sprintf("팀-%d", i)
		b.init(team, 0)
		b.clock.Advance(time.Millisecond)
		want = append(want, team)
	}
	_, err := b.advance(want[0], "prd")
	b.must(err)
	want = append(want[1:], want[0])
	slices.Reverse(want)
	var got []string
	for q := (core.PipelineQuery{Limit: 4}); ; {
		page, err := b.hub.Pipelines(b.t.Context(), q)
		b.must(err)
		for _, p := range page.Pipelines {
			got = append(got, p.Team)
		}
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		b.t.Fatalf("listed %v, want %v", got, want)
	}
}

func pipelineBadInput(b *sharedBench) {
	ctx := b.t.Context()
	refuse := func(field string, err error) {
		b.t.Helper()
		var refusal *core.Error
		if !errors.As(err, &refusal) || refusal.Code != core.CodeInvalidArgument || refusal.Details["field"] != field {
			b.t.Errorf("want a refusal of %s, got %v", field, err)
		}
	}
	_, err := b.advance("t", "nowhere")
	refuse("phase", err)
	_, err = b.advance("", "prd")
	refuse("team_name", err)
	_, err = b.hub.Pipeline(ctx, "a\n")
	refuse("team_name", err)
	_, err = b.hub.InitPipeline(ctx, core.InitRequest{Team: "t", FixMax: 101})
	refuse("fix_max", err)
	_, err = b.hub.InitPipeline(ctx, core.InitRequest{Team: "t", RalphMax: -1})
	refuse("ralph_max", err)
	_, err = b.hub.Pipelines(ctx, core.PipelineQuery{Limit: 101})
	refuse("limit", err)
	_, err = b.hub.Pipelines(ctx, core.PipelineQuery{Cursor: "x"})
	refuse("cursor", err)
	if _, err := b.hub.Pipeline(ctx, "t"); core.CodeOf(err) != core.CodePipelineNotFound {
		b.t.Fatalf("bad input left %v", err)
	}
	if _, err := b.advance("t", "exec"); core.CodeOf(err) != core.CodePipelineTransitionInvalid {
		b.t.Fatalf("plan to exec is answered %v", err)
	}
	if _, err := b.hub.Pipeline(ctx, "t"); core.CodeOf(err) != core.CodePipelineNotFound {
		b.t.Fatalf("a refused advance left %v", err)
	}
}

// pipelineWalk advances and inits at random, some answers lost, and holds the
// outcome against the edges.
func pipelineWalk(b *sharedBench, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	phases := slices.Sorted(maps.Keys(edges))
	type model struct {
		phase               core.Phase
		fixes, max, version int64
	}
	teams := map[string]*model{}
	for step := range 400 {
		team := fmt.Sprint("t", random.IntN(3))
		m := teams[team]
		stop := func() {}
		if random.IntN(8) == 0 {
			stop = b.LoseNextWrite()
		}
		if m == nil || random.IntN(12) == 0 {
			max := random.Int64N(3)
			version := b.init(team, max).Version
			if m == nil {
				m = &model{}
				teams[team] = m
			}
			m.phase, m.fixes, m.max, m.version = "plan", 0, max, m.version+1
			if version != m.version {
				b.t.Fatalf("seed %d, step %d: init has version %d, want %d", seed, step, version, m.version)
			}
			stop()
			continue
		}
		to := phases[random.IntN(len(phases))]
		most := m.max
		if most == 0 {
			most = 3
		}
		allowed := leads(m.phase, to) && (to != "fix" || m.fixes < most)
		p, err := b.advance(team, to)
		if allowed != (err == nil) {
			b.t.Fatalf("seed %d, step %d: %s to %s with %d fixes of %d: %v", seed, step, m.phase, to, m.fixes, m.max, err)
		}
		if allowed {
			if m.version++; to == "fix" {
				m.fixes++
			}
			m.phase = to
			if p.Phase != to || p.FixAttempt != m.fixes || p.Version != m.version {
				b.t.Fatalf("seed %d, step %d: the pipeline is %+v, the model %+v", seed, step, p, *m)
			}
		}
		stop()
	}
}
