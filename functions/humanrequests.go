package functions

import (
	"context"
	"encoding/json"

	"drawbridge/core"
)

// --- hitl/request (contract 2.19)

type humanRequestRequest struct {
	RequesterAgent  string           `json:"requester_agent" in:"id,required"`
	Kind            string           `json:"kind" in:"line,required,enum=captcha|approval|credential|choice|text"`
	Prompt          string           `json:"prompt" in:"text,required,min=1,max=16384" doc:"What the person is asked."`
	RequestedSchema json.RawMessage  `json:"requested_schema" in:"object" doc:"JSON Schema that an accepted answer must satisfy: at most 16 KB and 32 levels, no reference out of it. Empty asks for nothing."`
	DeadlineMs      core.Opt[int64]  `json:"deadline_ms" in:"integer,min=1000,max=604800000" doc:"A duration; 300,000 without it."`
	DefaultAction   core.Opt[string] `json:"default_action" in:"line,enum=decline|cancel|timeout_continue" doc:"What the requester is told when the deadline passes; decline without it."`
	Channel         core.Opt[string] `json:"channel_preference" in:"line" doc:"Where the person would best be asked; kept for whoever shows the request."`
	messageIDs
	fences
}

func (r humanRequestRequest) actingAgents() []actingAgent {
	return []actingAgent{{"requester_agent", r.RequesterAgent}}
}

type humanRequestResponse struct {
	RequestID  string          `json:"request_id"`
	State      core.HumanState `json:"state" doc:"pending."`
	DeadlineMs core.Instant    `json:"deadline_ms"`
}

func askHuman(ctx context.Context, c *call, r humanRequestRequest) (humanRequestResponse, error) {
	done, err := c.hub.AskHuman(ctx, core.HumanQuestion{
		Requester: r.RequesterAgent, Kind: r.Kind, Prompt: r.Prompt, Schema: r.RequestedSchema, DeadlineMs: r.DeadlineMs,
		DefaultAction: r.DefaultAction.Value, Channel: r.Channel.Value,
		CorrelationID: r.CorrelationID.Value, TraceID: r.TraceID.Value, Fences: r.fences.core(), Idempotency: c.key,
	})
	if err != nil {
		return humanRequestResponse{}, staleActor(err)
	}
	c.replayed = done.Replayed
	return humanRequestResponse{RequestID: done.RequestID, State: done.State, DeadlineMs: done.Deadline}, nil
}

// --- hitl/submit

type humanSubmitRequest struct {
	RequestID   string          `json:"request_id" in:"id,required"`
	Action      string          `json:"action" in:"line,required,min=1" doc:"accept, decline or cancel."`
	Content     json.RawMessage `json:"content" in:"any" doc:"At most 64 KB; a credential 4 KB."`
	SubmittedBy string          `json:"submitted_by" in:"id,default=\"human\"" doc:"Who answers. A token that is bound to agents names one of them."`
}

type humanSubmitResponse struct {
	RequestID          string          `json:"request_id"`
	NewState           core.HumanState `json:"new_state"`
	ForwardedMessageID *string         `json:"forwarded_message_id" doc:"The message that tells the requester."`
}

// actingAgents holds a bound token to its own agents, by name: what the requester
// is told of who answered has to be true.
func (r humanSubmitRequest) actingAgents() []actingAgent {
	return []actingAgent{{"submitted_by", r.SubmittedBy}}
}

// submitHuman is for people: a token that is bound to agents answers no
// question of theirs, unless it is an operator's.
func submitHuman(ctx context.Context, c *call, r humanSubmitRequest) (humanSubmitResponse, error) {
	submission := core.HumanSubmission{
		RequestID: r.RequestID, Action: r.Action, Content: r.Content, SubmittedBy: r.SubmittedBy,
	}
	if !c.caller.token.Allows(core.ScopeOperator) {
		submission.Agents = c.caller.token.AgentIDs
	}
	done, err := c.hub.SubmitHuman(ctx, submission)
	if err != nil {
		return humanSubmitResponse{}, err
	}
	c.replayed = done.Replayed
	return humanSubmitResponse{RequestID: done.RequestID, NewState: done.State, ForwardedMessageID: orNull(done.MessageID)}, nil
}

// --- hitl/get and hitl/pending

// humanView is a human request in an answer (contract 1.7).
type humanView struct {
	RequestID          string           `json:"request_id"`
	RequesterAgent     string           `json:"requester_agent"`
	Kind               core.HumanKind   `json:"kind"`
	Prompt             string           `json:"prompt"`
	Schema             json.RawMessage  `json:"schema"`
	State              core.HumanState  `json:"state"`
	DeadlineMs         core.Instant     `json:"deadline_ms"`
	DefaultAction      string           `json:"default_action"`
	ChannelPreference  *string          `json:"channel_preference"`
	CorrelationID      string           `json:"correlation_id"`
	TraceID            string           `json:"trace_id"`
	Response           json.RawMessage  `json:"response" doc:"null while pending, where there is none, and of a credential for any reader but the requester."`
	Action             *string          `json:"action" doc:"As the requester was told: accept, decline, cancel or timeout_ and the default action."`
	SubmittedBy        *string          `json:"submitted_by"`
	ForwardedMessageID *string          `json:"forwarded_message_id"`
	CreatedAtMs        core.Instant     `json:"created_at_ms"`
	ResolvedAtMs       *core.Instant    `json:"resolved_at_ms"`
	LateAnswers        []lateAnswerView `json:"late_answers" doc:"At most 10, oldest first."`
}

type lateAnswerView struct {
	AtMs        core.Instant    `json:"at_ms"`
	Action      string          `json:"action"`
	Content     json.RawMessage `json:"content"`
	ContentCut  bool            `json:"content_cut,omitempty" doc:"The content was over 8 KB and is not kept."`
	SubmittedBy string          `json:"submitted_by"`
}

func humanViewOf(v core.HumanView) humanView {
	view := humanView{
		RequestID: v.ID, RequesterAgent: v.Requester, Kind: v.Kind, Prompt: v.Prompt, Schema: v.Schema, State: v.State,
		DeadlineMs: v.Deadline, DefaultAction: v.DefaultAction, ChannelPreference: orNull(v.Channel),
		CorrelationID: v.CorrelationID, TraceID: v.TraceID, Response: v.Response, Action: orNull(v.Action),
		SubmittedBy: orNull(v.SubmittedBy), ForwardedMessageID: orNull(v.MessageID), CreatedAtMs: v.CreatedAt,
		ResolvedAtMs: momentOrNull(v.ResolvedAt), LateAnswers: []lateAnswerView{},
	}
	for _, late := range v.Late {
		view.LateAnswers = append(view.LateAnswers, lateAnswerView{
			AtMs: late.At, Action: late.Action, Content: late.Content, ContentCut: late.Cut, SubmittedBy: late.SubmittedBy,
		})
	}
	return view
}

func momentOrNull(i core.Instant) *core.Instant {
	if i == 0 {
		return nil
	}
	return &i
}

type humanGetRequest struct {
	RequestID string `json:"request_id" in:"id,required"`
	WaitMs    int64  `json:"wait_ms" in:"truncated,default=0,null=0" doc:"How long to wait for the request to end: brought into 0 to 25,000."`
	fences
}

func getHuman(ctx context.Context, c *call, r humanGetRequest) (humanView, error) {
	view, err := c.hub.HumanRequest(ctx, core.HumanRead{RequestID: r.RequestID, WaitMs: r.WaitMs, Fences: r.fences.core()})
	if err != nil {
		return humanView{}, staleActor(err)
	}
	if view.Opened {
		// A generation is a fence and no secret: who reads a credential has to be
		// allowed to act as the requester.
		if err := c.caller.mayActAs(view.Requester, "request_id"); err != nil {
			return humanView{}, err
		}
	}
	return humanViewOf(view), nil
}

type humanPendingRequest struct{}

func pendingHuman(ctx context.Context, c *call, _ humanPendingRequest) ([]humanView, error) {
	found, err := c.hub.PendingHuman(ctx)
	if err != nil {
		return nil, err
	}
	views := make([]humanView, 0, len(found))
	for _, v := range found {
		views = append(views, humanViewOf(v))
	}
	return views, nil
}
