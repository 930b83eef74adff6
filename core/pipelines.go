package core

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// Phase is where a team's pipeline stands.
type Phase string

// The phases.
const (
	PhasePlan       Phase = "plan"
	PhasePRD        Phase = "prd"
	PhaseConfidence Phase = "confidence"
	PhaseExec       Phase = "exec"
	PhaseDeslop     Phase = "deslop"
	PhaseVerify     Phase = "verify"
	PhaseSelfcheck  Phase = "selfcheck"
	PhaseFix        Phase = "fix"
	PhaseComplete   Phase = "complete"
	PhaseFailed     Phase = "failed"
)

// phaseEdges lists which phases may follow each (contract 2.17). Complete and
// failed end a pipeline; only init starts it over.
//
//	plan → prd → confidence → exec → deslop → verify → selfcheck → complete
//	                  ↓         ↑               ↓  ↑       ↓          ↑
//	                failed      └────────────── fix ───────┴──────────┘ → failed
var phaseEdges = map[Phase][]Phase{
	PhasePlan:       {PhasePRD},
	PhasePRD:        {PhaseConfidence},
	PhaseConfidence: {PhaseExec, PhaseFailed},
	PhaseExec:       {PhaseDeslop},
	PhaseDeslop:     {PhaseVerify},
	PhaseVerify:     {PhaseSelfcheck, PhaseFix, PhaseFailed},
	PhaseSelfcheck:  {PhaseComplete, PhaseFix},
	PhaseFix:        {PhaseExec, PhaseVerify, PhaseComplete, PhaseFailed},
	PhaseComplete:   {},
	PhaseFailed:     {},
}

// The bounds of a pipeline's loops. They bound its history, too.
const (
	DefaultFixMax   = 3
	DefaultRalphMax = 10
	MaxPipelineLoop = 100
)

// rememberedWrites is how many of its latest writes a pipeline recognises when
// one is sent again.
const rememberedWrites = 8

// Pipeline is a team's shared state.
type Pipeline struct {
	Team           string
	Phase          Phase
	FixAttempt     int64
	FixMax         int64
	RalphIteration int64
	RalphMax       int64
	History        []PhaseChange
	CreatedAt      Instant
	UpdatedAt      Instant
	// Version grows with every change, across inits too: the fence of a caller
	// that decided on what it read.
	Version int64
	// Writes are the ids of the latest writes, newest last.
	Writes []string
}

// PhaseChange is one step of a pipeline.
type PhaseChange struct {
	From Phase   `json:"from"`
	To   Phase   `json:"to"`
	At   Instant `json:"at"`
}

// PipelineStore keeps the pipelines.
type PipelineStore interface {
	// ReadPipeline returns a team's pipeline, strongly consistent.
	ReadPipeline(ctx context.Context, team string) (Pipeline, bool, error)
	// WritePipeline stores next where the version is the one before it, 0
	// standing for no pipeline. It is false when that does not hold; one whose
	// Writes hold the write's id was written by it.
	WritePipeline(ctx context.Context, next Pipeline) (bool, error)
	// ScanPipelines returns a page, newest update first. Which pipelines there
	// are, and their order, may lag a moment behind.
	ScanPipelines(ctx context.Context, s PipelineScan) (PipelineScanPage, error)
}

// PipelineScan asks for a page of pipelines.
type PipelineScan struct {
	Before string // position of a previous page
	Limit  int
}

// PipelineScanPage is a page of pipelines.
type PipelineScanPage struct {
	Pipelines []Pipeline
	Next      string // "" when none is left
}

// PipelineResult is a pipeline after a change.
type PipelineResult struct {
	Pipeline Pipeline
	// Replayed: an earlier try of the same request had done it.
	Replayed bool
}

// Pipeline returns a team's pipeline. Cost: 1 round trip.
//
// Errors: INVALID_ARGUMENT naming team_name, PIPELINE_NOT_FOUND.
func (h *Hub) Pipeline(ctx context.Context, team string) (Pipeline, error) {
	if err := checkID("team_name", team); err != nil {
		return Pipeline{}, err
	}
	p, found, err := h.pipelines.ReadPipeline(ctx, team)
	if err != nil {
		return Pipeline{}, fmt.Errorf("read pipeline: %w", err)
	}
	if !found {
		return Pipeline{}, Refuse(CodePipelineNotFound, "the team has no pipeline")
	}
	return p, nil
}

// AdvanceRequest takes a team's pipeline to a phase.
type AdvanceRequest struct {
	Team  string
	Phase Phase
	// Version refuses unless it is the pipeline's; 0 means that there is none
	// yet.
	Version Opt[int64]
	Fences  Fences
}

// AdvancePipeline takes the pipeline to the phase, from plan when the team has
// none. Of callers at once one wins; the others are judged against what it left,
// as if they had come later. A caller that must not follow another one sends the
// version it has read. A refusal stores nothing. Cost: 2 round trips, a read and
// the write on its version.
//
// Errors: INVALID_ARGUMENT by field, PIPELINE_TRANSITION_INVALID and
// PIPELINE_VERSION_STALE with the Pipeline as data, CONTENDED.
func (h *Hub) AdvancePipeline(ctx context.Context, r AdvanceRequest) (PipelineResult, error) {
	if _, known := phaseEdges[r.Phase]; !known {
		return PipelineResult{}, Invalid("phase", "phase must be one of the pipeline's phases")
	}
	return h.changePipeline(ctx, r.Team, r.Version, r.Fences, func(p Pipeline, now Instant) (Pipeline, error) {
		if p.Version == 0 {
			p = newPipeline(r.Team, DefaultFixMax, DefaultRalphMax, now)
		}
		return p.advance(r.Phase, now)
	})
}

// InitRequest starts a team's pipeline over.
type InitRequest struct {
	Team             string
	FixMax, RalphMax int64 // 0..100
	Version          Opt[int64]
	Fences           Fences
}

// InitPipeline replaces the team's pipeline by one in the phase plan. Its version
// goes on. Cost: 2 round trips.
//
// Errors: INVALID_ARGUMENT by field, PIPELINE_VERSION_STALE, CONTENDED.
func (h *Hub) InitPipeline(ctx context.Context, r InitRequest) (PipelineResult, error) {
	for field, value := range map[string]int64{"fix_max": r.FixMax, "ralph_max": r.RalphMax} {
		if value < 0 || value > MaxPipelineLoop {
			return PipelineResult{}, Invalid(field, fmt.Sprintf("%s must be 0 to %d", field, MaxPipelineLoop))
		}
	}
	return h.changePipeline(ctx, r.Team, r.Version, r.Fences, func(p Pipeline, now Instant) (Pipeline, error) {
		fresh := newPipeline(r.Team, r.FixMax, r.RalphMax, now)
		fresh.Version, fresh.Writes = p.Version, p.Writes
		return fresh, nil
	})
}

// changePipeline reads, decides and writes on the version it read, until nobody
// comes between.
func (h *Hub) changePipeline(
	ctx context.Context, team string, version Opt[int64], fences Fences, decide func(Pipeline, Instant) (Pipeline, error),
) (PipelineResult, error) {
	if err := checkID("team_name", team); err != nil {
		return PipelineResult{}, err
	}
	if _, err := h.checkIdentity(ctx, fences); err != nil {
		return PipelineResult{}, err
	}
	stamp := h.stamp(h.clock.Now())
	var written Pipeline // by the last try, which may have landed unseen
	for attempt := range onceAttempts {
		p, _, err := h.pipelines.ReadPipeline(ctx, team)
		if err != nil {
			return PipelineResult{}, fmt.Errorf("read pipeline: %w", err)
		}
		if slices.Contains(p.Writes, stamp.WriteID) {
			return PipelineResult{Pipeline: written, Replayed: true}, nil
		}
		if version.Set && version.Value != p.Version {
			return PipelineResult{}, &Error{Code: CodePipelineVersionStale, Message: "the pipeline's version is another", Data: p}
		}
		next, err := decide(p, max(InstantOf(stamp.Started), p.UpdatedAt))
		if err != nil {
			return PipelineResult{}, err
		}
		next.Version++
		next.Writes = append(slices.Clone(next.Writes[max(0, len(next.Writes)-rememberedWrites+1):]), stamp.WriteID)
		done, err := h.pipelines.WritePipeline(ctx, next)
		if err != nil {
			return PipelineResult{}, fmt.Errorf("write pipeline: %w", err)
		}
		if done {
			return PipelineResult{Pipeline: next}, nil
		}
		written = next
		if err := pause(ctx, attempt); err != nil {
			return PipelineResult{}, err
		}
	}
	return PipelineResult{}, Refuse(CodeContended, "others kept changing the pipeline; nothing was done")
}

func newPipeline(team string, fixMax, ralphMax int64, now Instant) Pipeline {
	return Pipeline{
		Team: team, Phase: PhasePlan, FixMax: fixMax, RalphMax: ralphMax, History: []PhaseChange{}, CreatedAt: now, UpdatedAt: now,
	}
}

// advance is the pipeline one phase on, or why it may not go there.
func (p Pipeline) advance(to Phase, now Instant) (Pipeline, error) {
	if allowed := phaseEdges[p.Phase]; !slices.Contains(allowed, to) {
		return p, p.refuse(fmt.Sprintf("%s does not lead to %s; allowed: %s", p.Phase, to, phaseNames(allowed)))
	}
	next := p
	if to == PhaseFix {
		next.FixAttempt++
		if most := cmp.Or(p.FixMax, DefaultFixMax); next.FixAttempt > most {
			return p, p.refuse(fmt.Sprintf("fix was entered %d times, which is the most", most))
		}
	}
	if p.Phase == PhaseFix && to == PhaseFailed {
		next.RalphIteration++
	}
	next.Phase, next.UpdatedAt = to, now
	next.History = append(slices.Clone(p.History), PhaseChange{From: p.Phase, To: to, At: now})
	return next, nil
}

func (p Pipeline) refuse(message string) error {
	return &Error{Code: CodePipelineTransitionInvalid, Message: message, Data: p}
}

func phaseNames(phases []Phase) string {
	names := make([]string, 0, len(phases))
	for _, p := range phases {
		names = append(names, string(p))
	}
	return "[" + strings.Join(names, ", ") + "]"
}

// PipelineQuery asks for a page of the pipelines, newest update first.
type PipelineQuery struct {
	Limit  int // 1..100; 0: 100
	Cursor string
}

// PipelinePage is a page of pipelines.
type PipelinePage struct {
	Pipelines  []Pipeline
	NextCursor string // "" at the end
}

// Pipelines lists the pipelines, newest update first. One that is updated while
// somebody pages moves to the front. Cost: 2 round trips.
//
// Errors: INVALID_ARGUMENT naming limit or cursor.
func (h *Hub) Pipelines(ctx context.Context, q PipelineQuery) (PipelinePage, error) {
	const kind = "pipelines"
	if q.Limit < 0 || q.Limit > MaxListLimit {
		return PipelinePage{}, Invalid("limit", fmt.Sprintf("limit must be 1 to %d", MaxListLimit))
	}
	scan := PipelineScan{Limit: cmp.Or(q.Limit, MaxListLimit)}
	if q.Cursor != "" {
		var err error
		if scan.Before, err = decodeCursor(kind, q.Cursor); err != nil {
			return PipelinePage{}, err
		}
	}
	found, err := h.pipelines.ScanPipelines(ctx, scan)
	if err != nil {
		return PipelinePage{}, fmt.Errorf("scan pipelines: %w", err)
	}
	page := PipelinePage{Pipelines: found.Pipelines}
	slices.SortStableFunc(page.Pipelines, func(a, b Pipeline) int { return cmp.Compare(b.UpdatedAt, a.UpdatedAt) })
	if found.Next != "" {
		page.NextCursor = encodeCursor(kind, found.Next)
	}
	return page, nil
}
