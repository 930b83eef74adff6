package functions

import (
	"context"
	"encoding/json"

	"drawbridge/core"
)

// reflexionView is how an error was fixed (contract 1.12).
type reflexionView struct {
	ID           string             `json:"id" doc:"Opaque; names the entry as long as it lives."`
	Type         core.ReflexionType `json:"type" doc:"reflexion or adaptive."`
	ErrorPattern string             `json:"error_pattern"`
	ErrorMessage string             `json:"error_message" doc:"The error it was learnt from."`
	Context      json.RawMessage    `json:"context"`
	Solution     string             `json:"solution"`
	SolutionCode *string            `json:"solution_code"`
	Adaptive     json.RawMessage    `json:"adaptive_state"`
	Confidence   float64            `json:"confidence" doc:"0 to 1, as of now."`
	HitCount     int64              `json:"hit_count"`
	SuccessCount int64              `json:"success_count"`
	LastHitMs    core.Instant       `json:"last_hit_ms"`
	CreatedAtMs  core.Instant       `json:"created_at_ms"`
	UpdatedAtMs  core.Instant       `json:"updated_at_ms"`
	LearntBy     *string            `json:"learnt_by" doc:"The agent that told it."`
	Generation   *int64             `json:"learnt_generation" doc:"Its generation then."`
}

func reflexionViewOf(e core.ReflexionView) reflexionView {
	return reflexionView{
		ID:           e.ID(),
		Type:         e.Type,
		ErrorPattern: e.Pattern,
		ErrorMessage: e.Message,
		Context:      e.Context,
		Solution:     e.Solution,
		SolutionCode: orNull(e.Code),
		Adaptive:     json.RawMessage("{}"),
		Confidence:   e.Confidence,
		HitCount:     e.Hits,
		SuccessCount: e.Successes,
		LastHitMs:    e.LastHit,
		CreatedAtMs:  e.CreatedAt,
		UpdatedAtMs:  e.UpdatedAt,
		LearntBy:     orNull(e.LearntBy),
		Generation:   orNull(e.LearntGeneration),
	}
}

func reflexionViewsOf(entries []core.ReflexionView) []reflexionView {
	views := make([]reflexionView, 0, len(entries))
	for _, e := range entries {
		views = append(views, reflexionViewOf(e))
	}
	return views
}

// --- reflexion/lookup

type lookupRequest struct {
	ErrorMessage core.Opt[string] `json:"error_message" in:"text,max=16384" doc:"The error's text. This, or error_pattern."`
	ErrorPattern core.Opt[string] `json:"error_pattern" in:"text,max=16384" doc:"A pattern, or a part of one."`
	Context      json.RawMessage  `json:"context" in:"object" doc:"Members that entries must have with the same value; a null asks for nothing."`
	Limit        int64            `json:"limit" in:"integer,min=1,max=100,default=10"`
}

type lookupResponse struct {
	Found     bool            `json:"found"`
	Entries   []reflexionView `json:"entries" doc:"By confidence, highest first."`
	BestMatch *reflexionView  `json:"best_match"`
	Truncated bool            `json:"truncated" doc:"There are more entries than asked for, or the bounded search did not look at all of them."`
	Pattern   string          `json:"error_pattern" doc:"What was looked for."`
}

func lookupReflexion(ctx context.Context, c *call, r lookupRequest) (lookupResponse, error) {
	done, err := c.hub.Lookup(ctx, core.LookupRequest{Message: r.ErrorMessage, Pattern: r.ErrorPattern, Context: r.Context, Limit: int(r.Limit)})
	if err != nil {
		return lookupResponse{}, err
	}
	answer := lookupResponse{
		Found: len(done.Entries) > 0, Entries: reflexionViewsOf(done.Entries), Truncated: done.Truncated, Pattern: done.Pattern,
	}
	if answer.Found {
		answer.BestMatch = &answer.Entries[0]
	}
	return answer, nil
}

// --- reflexion/learn

type learnRequest struct {
	ErrorMessage string           `json:"error_message" in:"text,required,min=1,max=16384"`
	Solution     string           `json:"solution" in:"text,required,min=1,max=16384"`
	SolutionCode core.Opt[string] `json:"solution_code" in:"text,max=65536"`
	Context      json.RawMessage  `json:"context" in:"object" doc:"Where it applies, at most 4 KB."`
	Success      bool             `json:"success" in:"boolean,default=false" doc:"It helped just now."`
	Type         string           `json:"type" in:"line,enum=reflexion|adaptive,default=\"reflexion\"" doc:"adaptive: a rule that gains by being seen and decays unseen."`
	AgentID      core.Opt[string] `json:"agent_id" in:"id" doc:"Who tells it, for the record."`
	fences
}

func (r learnRequest) actingAgents() []actingAgent {
	if !r.AgentID.Set {
		return nil
	}
	return []actingAgent{{"agent_id", r.AgentID.Value}}
}

type learnResponse struct {
	Entry   reflexionView `json:"entry"`
	Created bool          `json:"created" doc:"False: an entry that was there got a hit, and kept its solution."`
}

func learnReflexion(ctx context.Context, c *call, r learnRequest) (learnResponse, error) {
	done, err := c.hub.Learn(ctx, core.LearnRequest{
		Message: r.ErrorMessage, Solution: r.Solution, Code: r.SolutionCode.Value, Context: r.Context, Success: r.Success,
		Type: core.ReflexionType(r.Type), AgentID: r.AgentID.Value, Fences: r.fences.core(),
	})
	if err != nil {
		return learnResponse{}, staleActor(err)
	}
	c.replayed = done.Replayed
	return learnResponse{Entry: reflexionViewOf(done.Entry), Created: done.Created}, nil
}

// --- reflexion/hit

type hitRequest struct {
	ID      string `json:"id" in:"id,required"`
	Success bool   `json:"success" in:"boolean,default=false" doc:"It helped."`
	identityFences
}

type hitResponse struct {
	Entry reflexionView `json:"entry"`
}

func hitReflexion(ctx context.Context, c *call, r hitRequest) (hitResponse, error) {
	done, err := c.hub.Hit(ctx, core.HitRequest{ID: r.ID, Success: r.Success, Fences: r.identityFences.core()})
	if err != nil {
		return hitResponse{}, err
	}
	c.replayed = done.Replayed
	return hitResponse{Entry: reflexionViewOf(done.Entry)}, nil
}

// --- GET reflexion

type reflexionRequest struct {
	Type   core.Opt[string] `json:"type" in:"line,enum=reflexion|adaptive"`
	Limit  int64            `json:"limit" in:"integer,min=1,max=100,default=50"`
	Cursor core.Opt[string] `json:"cursor" in:"line,max=4096" doc:"next_cursor of the page before."`
}

type reflexionResponse struct {
	Entries    []reflexionView `json:"entries"`
	NextCursor *string         `json:"next_cursor" doc:"Null at the end. A page may be short before it."`
}

func listReflexion(ctx context.Context, c *call, r reflexionRequest) (reflexionResponse, error) {
	page, err := c.hub.Reflexions(ctx, core.ReflexionQuery{Type: r.Type, Limit: int(r.Limit), Cursor: r.Cursor.Value})
	if err != nil {
		return reflexionResponse{}, err
	}
	return reflexionResponse{Entries: reflexionViewsOf(page.Entries), NextCursor: orNull(page.NextCursor)}, nil
}
