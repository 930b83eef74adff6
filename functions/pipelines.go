package functions

import (
	"context"
	"encoding/json"

	"drawbridge/core"
)

// pipelineView is a team's pipeline (contract 1.13).
type pipelineView struct {
	TeamName       string             `json:"team_name"`
	Phase          core.Phase         `json:"phase"`
	FixAttempt     int64              `json:"fix_attempt"`
	FixMax         int64              `json:"fix_max" doc:"How often fix may be entered; 0 counts as 3."`
	RalphIteration int64              `json:"ralph_iteration"`
	RalphMax       int64              `json:"ralph_max"`
	Artifacts      json.RawMessage    `json:"artifacts"`
	PhaseHistory   []core.PhaseChange `json:"phase_history"`
	CreatedAt      core.Instant       `json:"created_at"`
	UpdatedAt      core.Instant       `json:"updated_at"`
	Version        int64              `json:"version" doc:"Grows with every change: send it back to refuse when somebody came between."`
}

func pipelineViewOf(p core.Pipeline) pipelineView {
	return pipelineView{
		TeamName:       p.Team,
		Phase:          p.Phase,
		FixAttempt:     p.FixAttempt,
		FixMax:         p.FixMax,
		RalphIteration: p.RalphIteration,
		RalphMax:       p.RalphMax,
		Artifacts:      json.RawMessage("{}"), // nothing in the contract writes them
		PhaseHistory:   p.History,
		CreatedAt:      p.CreatedAt,
		UpdatedAt:      p.UpdatedAt,
		Version:        p.Version,
	}
}

// versionFence lets a caller insist on the version it has read.
type versionFence struct {
	Version core.Opt[int64] `json:"version" in:"integer,min=0" doc:"Refuse unless it is the pipeline's; 0: there is none yet."`
}

// --- pipeline/state

type pipelineStateRequest struct {
	TeamName string `json:"team_name" in:"id,required"`
}

func pipelineState(ctx context.Context, c *call, r pipelineStateRequest) (pipelineView, error) {
	p, err := c.hub.Pipeline(ctx, r.TeamName)
	if err != nil {
		return pipelineView{}, err
	}
	return pipelineViewOf(p), nil
}

// --- pipeline/advance

type advanceRequest struct {
	TeamName string `json:"team_name" in:"id,required"`
	Phase    string `json:"phase" in:"line,required,enum=plan|prd|confidence|exec|deslop|verify|selfcheck|fix|complete|failed"`
	versionFence
	identityFences
}

// advanceResponse carries state where other answers carry data (contract 2.17).
type advanceResponse struct {
	OK       bool         `json:"ok"`
	State    pipelineView `json:"state"`
	Replayed bool         `json:"replayed,omitempty"`
}

func advancePipeline(ctx context.Context, c *call, r advanceRequest) (advanceResponse, error) {
	done, err := c.hub.AdvancePipeline(ctx, core.AdvanceRequest{
		Team: r.TeamName, Phase: core.Phase(r.Phase), Version: r.Version, Fences: r.identityFences.core(),
	})
	if err != nil {
		return advanceResponse{}, err
	}
	return advanceResponse{OK: true, State: pipelineViewOf(done.Pipeline), Replayed: done.Replayed}, nil
}

// --- pipeline/init

type initRequest struct {
	TeamName string `json:"team_name" in:"id,required"`
	FixMax   int64  `json:"fix_max" in:"integer,min=0,max=100,default=3"`
	RalphMax int64  `json:"ralph_max" in:"integer,min=0,max=100,default=10"`
	versionFence
	identityFences
}

func initPipeline(ctx context.Context, c *call, r initRequest) (pipelineView, error) {
	done, err := c.hub.InitPipeline(ctx, core.InitRequest{
		Team: r.TeamName, FixMax: r.FixMax, RalphMax: r.RalphMax, Version: r.Version, Fences: r.identityFences.core(),
	})
	if err != nil {
		return pipelineView{}, err
	}
	c.replayed = done.Replayed
	return pipelineViewOf(done.Pipeline), nil
}

// --- pipeline/list

type pipelinesRequest struct {
	Limit  int64            `json:"limit" in:"integer,min=1,max=100,default=100"`
	Cursor core.Opt[string] `json:"cursor" in:"line,max=4096" doc:"next_cursor of the page before."`
}

// pipelinesResponse has the list as its data (contract 2.17), so that the cursor
// stands beside it.
type pipelinesResponse struct {
	OK         bool           `json:"ok"`
	Data       []pipelineView `json:"data"`
	NextCursor *string        `json:"next_cursor" doc:"Null at the end."`
}

func listPipelines(ctx context.Context, c *call, r pipelinesRequest) (pipelinesResponse, error) {
	page, err := c.hub.Pipelines(ctx, core.PipelineQuery{Limit: int(r.Limit), Cursor: r.Cursor.Value})
	if err != nil {
		return pipelinesResponse{}, err
	}
	answer := pipelinesResponse{OK: true, Data: []pipelineView{}, NextCursor: orNull(page.NextCursor)}
	for _, p := range page.Pipelines {
		answer.Data = append(answer.Data, pipelineViewOf(p))
	}
	return answer, nil
}
