package core

import (
	"context"
	"encoding/json"
	"time"
)

// AskRequest sends a request and may wait for its answer.
type AskRequest struct {
	From          string
	To            string
	Topic         string
	Question      string
	ContextRefs   json.RawMessage // nil: none
	Payload       json.RawMessage // an object's members are the message's too
	Priority      int64
	TTLMs         int64
	AwaitMs       int64 // brought into 0..25,000
	CorrelationID string
	TraceID       string
	Fences        Fences
	Idempotency   Opt[IdempotencyKey]
	MaxDeliveries Opt[int64]
	RequireOnline bool
}

// AskState is how far a question has come.
type AskState string

// The states of a question.
const (
	AskQueued    AskState = "queued"    // nobody waited
	AskDelivered AskState = "delivered" // no answer came in time
	AskAnswered  AskState = "answered"
)

// Asked is the answer to an ask.
type Asked struct {
	Published
	State    AskState
	Response json.RawMessage // the payload of the response, when answered
}

// How often a waiting ask looks for its answer: soon at first, then less often.
const (
	askFirstLook = 20 * time.Millisecond
	askLastLook  = time.Second
)

// Ask publishes a request and waits for the first response with its correlation
// id, at most AwaitMs and as long as the context lasts (contract 5.5). Nothing
// but the request is held while it waits. Any number of askers with one
// correlation id get the same response, which stays readable until it expires.
//
// Cost: a publish, and while it waits one read at most every second.
//
// Errors: those of Publish.
func (h *Hub) Ask(ctx context.Context, r AskRequest) (Asked, error) {
	if r.Question == "" {
		return Asked{}, Invalid("question", "question is required")
	}
	published, err := h.Publish(ctx, PublishRequest{
		From: r.From, To: r.To, Type: MessageRequest, Topic: r.Topic, Priority: r.Priority, TTLMs: r.TTLMs,
		Payload: r.payload(), CorrelationID: r.CorrelationID, TraceID: r.TraceID, MaxDeliveries: r.MaxDeliveries,
		RequireOnline: r.RequireOnline, Fences: r.Fences, Idempotency: r.Idempotency,
	})
	if err != nil {
		return Asked{}, err
	}
	asked := Asked{Published: published, State: AskQueued}
	if wait := min(r.AwaitMs, MaxAwait.Milliseconds()); wait > 0 {
		h.await(ctx, &asked, time.Duration(wait)*time.Millisecond)
	}
	return asked, nil
}

func (r AskRequest) payload() json.RawMessage {
	content := object{}
	content.put("question", quoted(r.Question))
	if r.ContextRefs != nil {
		content.put("context_refs", r.ContextRefs)
	}
	switch {
	case len(r.Payload) == 0:
	case !isObject(r.Payload):
		content.put("payload", r.Payload)
	default:
		if err := content.merge(r.Payload); err != nil {
			content.put("payload", r.Payload) // refused as no JSON further on
		}
	}
	return content.encode()
}

// await looks for the answer until it is there or the time is up. A look that
// fails is repeated: the question is asked, and only the answer is missing. One
// that has begun is not cut short by the end of the wait, so that an answer that
// is there is told however short the wait.
func (h *Hub) await(ctx context.Context, asked *Asked, wait time.Duration) {
	asked.State = AskDelivered
	over := time.NewTimer(wait)
	defer over.Stop()
	for pause := askFirstLook; ; pause = min(pause*3/2, askLastLook) {
		answer, found, err := h.messages.ReadAnswer(ctx, asked.CorrelationID, InstantOf(h.clock.Now()))
		if err == nil && found {
			asked.State, asked.Response = AskAnswered, answer.Payload.JSON
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-over.C:
			timer.Stop()
			return
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}
