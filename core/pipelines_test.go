package core_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"drawbridge/core"
	"drawbridge/core/coretest"
)

// onePipeline is a store with a pipeline that another hub may have left.
type onePipeline struct {
	core.PipelineStore
	stands core.Pipeline
}

func (p *onePipeline) ReadPipeline(context.Context, string) (core.Pipeline, bool, error) {
	return p.stands, p.stands.Version > 0, nil
}

func (p *onePipeline) WritePipeline(_ context.Context, next core.Pipeline) (bool, error) {
	p.stands = next
	return true, nil
}

func TestALoopOfAPipelineMayBeTheLongest(t *testing.T) {
	for most, want := range map[int64]core.Code{0: "", core.MaxPipelineLoop: "", core.MaxPipelineLoop + 1: core.CodeInvalidArgument} {
		hub := pipelineHub(&onePipeline{}, coretest.NewClock())
		for name, r := range map[string]core.InitRequest{"fix_max": {Team: "t", FixMax: most}, "ralph_max": {Team: "t", RalphMax: most}} {
			if _, err := hub.InitPipeline(t.Context(), r); core.CodeOf(err) != want {
				t.Errorf("%s %d: %v", name, most, err)
			}
		}
	}
}

func pipelineHub(store core.PipelineStore, clock *coretest.Clock) *core.Hub {
	return core.New(core.Config{Pipelines: store, Identity: coretest.NewModel(), Clock: clock, IDs: core.NewIDs(clock, rand.Reader)})
}

// A hub whose clock is behind that of another does not take a pipeline back: lists
// are in the order of the updates.
func TestAPipelinesMomentsDoNotGoBack(t *testing.T) {
	clock := coretest.NewClock()
	now := core.InstantOf(clock.Now())
	for last, want := range map[core.Instant]core.Instant{now.Add(-time.Second): now, now.Add(time.Second): now.Add(time.Second)} {
		hub := pipelineHub(&onePipeline{stands: core.Pipeline{Team: "t", Phase: core.PhasePlan, Version: 1, UpdatedAt: last}}, clock)
		done, err := hub.AdvancePipeline(t.Context(), core.AdvanceRequest{Team: "t", Phase: core.PhasePRD})
		if err != nil || done.Pipeline.UpdatedAt != want || done.Pipeline.History[0].At != want {
			t.Errorf("after %d: %+v, %v", last-now, done.Pipeline, err)
		}
	}
}
