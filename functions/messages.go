package functions

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"sync"

	"drawbridge/core"
)

// messageView is a message in an answer: the stored view of a trace or, with
// the fields of its delivery, the live view of a drain (contract 1.4).
type messageView struct {
	ID            string             `json:"id"`
	Type          core.MessageType   `json:"type"`
	FromAgent     string             `json:"from_agent"`
	ToAgent       string             `json:"to_agent"`
	Topic         string             `json:"topic"`
	Priority      int64              `json:"priority"`
	TTLMs         int64              `json:"ttl_ms"`
	CreatedAtMs   core.Instant       `json:"created_at_ms"`
	ExpiresAtMs   core.Instant       `json:"expires_at_ms"`
	CorrelationID string             `json:"correlation_id"`
	TraceID       string             `json:"trace_id"`
	RoleKeyWire   *string            `json:"role_key_wire"`
	MaxDeliveries int64              `json:"max_deliveries,omitempty" doc:"Leases after which it is dead-lettered."`
	PayloadJSON   *string            `json:"payload_json,omitempty" doc:"The payload as a string; left out of traces, and over 256 KB."`
	Status        core.MessageStatus `json:"status"`
	Payload       json.RawMessage    `json:"payload"`
	Receipt       string             `json:"receipt,omitempty" doc:"Of a leased message: acknowledge or give back with it."`
	Deliveries    int64              `json:"deliveries,omitempty" doc:"Times it was handed out; of a leased message."`
	VisibleAtMs   core.Instant       `json:"visible_at_ms,omitempty" doc:"When the lease lapses."`
}

// storedView is a message as traces and dead letters show it.
func storedView(m core.Message, status core.MessageStatus) messageView {
	return messageView{
		ID:            m.ID,
		Type:          m.Type,
		FromAgent:     m.From,
		ToAgent:       m.To,
		Topic:         m.Topic,
		Priority:      m.Priority,
		TTLMs:         m.TTL.Milliseconds(),
		CreatedAtMs:   m.CreatedAt,
		ExpiresAtMs:   m.ExpiresAt,
		CorrelationID: m.CorrelationID,
		TraceID:       m.TraceID,
		RoleKeyWire:   orNull(m.RoleKeyWire),
		MaxDeliveries: m.MaxDeliveries,
		Status:        status,
		Payload:       m.Payload.JSON,
	}
}

// liveView is a message as a drain hands it out.
func liveView(d core.Delivery, now core.Instant) messageView {
	view := storedView(d.Message, d.Status(now))
	if len(view.Payload) <= core.MaxPayloadJSON {
		text := string(view.Payload)
		view.PayloadJSON = &text
	}
	if d.State == core.DeliveryHidden {
		view.Receipt, view.Deliveries, view.VisibleAtMs = d.Receipt, d.Deliveries, d.VisibleAt
	}
	return view
}

func traceViewOf(trace []core.TraceMessage) []messageView {
	if trace == nil {
		return nil
	}
	views := make([]messageView, 0, len(trace))
	for _, m := range trace {
		views = append(views, storedView(m.Message, m.Status))
	}
	return views
}

// messageIDs are the ids that tie messages together; an empty one is a new one.
type messageIDs struct {
	TraceID       core.Opt[string] `json:"trace_id" in:"id" doc:"Groups messages; a new one without it."`
	CorrelationID core.Opt[string] `json:"correlation_id" in:"id" doc:"Pairs a request and its response; a new one without it."`
}

// recipientRule lets a sender insist on a recipient that is there.
type recipientRule struct {
	IfRecipient core.Opt[string] `json:"if_recipient" in:"line,enum=online" doc:"online: refuse, and store nothing, unless the recipient is."`
}

func (r recipientRule) requireOnline() bool { return r.IfRecipient.Value == "online" }

// deliveryRule bounds how often a message is handed out.
type deliveryRule struct {
	MaxDeliveries core.Opt[int64] `json:"max_deliveries" in:"integer,min=1,max=1000" doc:"Leases after which the message is dead-lettered; without it there is no limit."`
}

// publishedView is the answer of the endpoints that send a message.
type publishedView struct {
	MessageID   string          `json:"message_id"`
	FanoutCount int64           `json:"fanout_count" doc:"Recipients the message was put in the inbox of."`
	ExpiresAtMs core.Instant    `json:"expires_at_ms"`
	Recipients  []recipientView `json:"recipients,omitempty" doc:"State of the agent a direct message is for, when it could be read."`
	Role        *legacyRoleView `json:"role,omitempty" doc:"Of a message to topic:cto: the role that it waits for."`
	Resuming    bool            `json:"fanout_resuming,omitempty" doc:"The message is stored, and the sweep gives it to the followers who have not got it yet."`
}

type recipientView struct {
	AgentID string `json:"agent_id"`
	Status  string `json:"status" doc:"online, stale, offline or unknown, when the message was published."`
}

func (c *call) published(p core.Published) publishedView {
	c.replayed = p.Replayed
	view := publishedView{
		MessageID: p.MessageID, FanoutCount: p.FanoutCount, ExpiresAtMs: p.ExpiresAt,
		Recipients: recipientsOf(p), Resuming: p.Resuming,
	}
	if p.Role != nil {
		role := legacyRoleViewOf(*p.Role)
		view.Role = &role
	}
	return view
}

func recipientsOf(p core.Published) []recipientView {
	if p.Recipient == nil {
		return nil
	}
	return []recipientView{{AgentID: p.Recipient.AgentID, Status: p.Recipient.Status}}
}

// staleActor shows a refused generation on endpoints where an agent acts.
func staleActor(err error) error {
	return staleData(err, func(s core.StalePresence) any {
		return staleActorView{AgentID: s.AgentID, PresenceGeneration: s.Current, identityView: identityViewOf(s.Identity)}
	})
}

type staleActorView struct {
	AgentID            string `json:"agent_id"`
	PresenceGeneration int64  `json:"presence_generation,omitempty"` // the current one
	identityView
}

// --- publish (contract 2.12)

// The reference's client lays the members of an object payload beside the
// body's own fields, and the body's own win (contract 2.11). The fields that
// may come out of the payload are absent from the body, not defaulted.
type publishRequest struct {
	From        string           `json:"from" in:"id,required"`
	To          string           `json:"to" in:"id,required,max=518" doc:"An agent's id, or topic: and a topic."`
	Type        core.Opt[string] `json:"type" in:"line,enum=request|response|event|handoff|human_request|human_response|system" doc:"event without it."`
	MessageType core.Opt[string] `json:"message_type" in:"line,enum=request|response|event|handoff|human_request|human_response|system" doc:"The type, where type is not given."`
	Payload     json.RawMessage  `json:"payload" in:"any" doc:"Any JSON value. Members topic, priority, ttl_ms, trace_id, correlation_id of an object stand for fields that the body leaves out."`
	envelopeFields
	recipientRule
	deliveryRule
	fences
}

// envelopeFields may stand in the body or, where it leaves them out, in an
// object payload.
type envelopeFields struct {
	Topic    core.Opt[string] `json:"topic" in:"id" doc:"What the message is about. Required, here or in the payload."`
	Priority core.Opt[int64]  `json:"priority" in:"integer,min=1,max=9" doc:"Higher first; 5 without it."`
	TTLMs    core.Opt[int64]  `json:"ttl_ms" in:"integer,min=1,max=604800000" doc:"How long the message may wait."`
	messageIDs
}

// lift fills fields that the body left out from the payload's members.
func (f *envelopeFields) lift(payload json.RawMessage) error {
	var lifted envelopeFields
	if err := decodeInner(envelopeShape, jsonText(payload), "payload.", &lifted); err != nil {
		return err
	}
	f.Topic = orLifted(f.Topic, lifted.Topic)
	f.Priority = orLifted(f.Priority, lifted.Priority)
	f.TTLMs = orLifted(f.TTLMs, lifted.TTLMs)
	f.TraceID = orLifted(f.TraceID, lifted.TraceID)
	f.CorrelationID = orLifted(f.CorrelationID, lifted.CorrelationID)
	return f.check()
}

// check holds what may come from either place.
func (f envelopeFields) check() error {
	if !f.Topic.Set {
		return core.Invalid("topic", "topic is required")
	}
	return nil
}

// The shapes of what is read out of a value inside a request.
var (
	envelopeShape = sync.OnceValues(func() (*shape, error) { return shapeOf(reflect.TypeFor[envelopeFields]()) })
	taskShape     = sync.OnceValues(func() (*shape, error) { return shapeOf(reflect.TypeFor[taskFields]()) })
	filterShape   = sync.OnceValues(func() (*shape, error) { return shapeOf(reflect.TypeFor[redriveFilter]()) })
)

// decodeInner decodes the members of an object inside a request by the rules of
// a struct; any other value has none.
func decodeInner(shapeOf func() (*shape, error), value jsonText, path string, into any) error {
	if len(value) == 0 || value.kind() != jsonObject {
		return nil
	}
	inner, err := shapeOf()
	if err != nil {
		return err
	}
	return inner.decode(value, path, reflect.ValueOf(into).Elem())
}

func orLifted[T any](own, lifted core.Opt[T]) core.Opt[T] {
	if own.Set {
		return own
	}
	return lifted
}

func or[T any](given core.Opt[T], fallback T) T {
	if given.Set {
		return given.Value
	}
	return fallback
}

func (r publishRequest) actingAgents() []actingAgent { return []actingAgent{{"from", r.From}} }

func publish(ctx context.Context, c *call, r publishRequest) (publishedView, error) {
	if err := r.lift(r.Payload); err != nil {
		return publishedView{}, err
	}
	done, err := c.hub.Publish(ctx, core.PublishRequest{
		From:          r.From,
		To:            r.To,
		Type:          core.MessageType(or(r.Type, r.MessageType.Value)),
		Topic:         r.Topic.Value,
		Priority:      or(r.Priority, core.DefaultPriority),
		TTLMs:         or(r.TTLMs, core.DefaultMessageTTLMs),
		Payload:       r.Payload,
		CorrelationID: r.CorrelationID.Value,
		TraceID:       r.TraceID.Value,
		MaxDeliveries: r.MaxDeliveries,
		RequireOnline: r.requireOnline(),
		Fences:        r.fences.core(),
		Idempotency:   c.key,
	})
	if err != nil {
		return publishedView{}, staleActor(err)
	}
	return c.published(done), nil
}

// --- handoff (contract 2.11)

type handoffRequest struct {
	From    string          `json:"from" in:"id,required"`
	To      string          `json:"to" in:"id,required,max=518"`
	Payload json.RawMessage `json:"payload" in:"any" doc:"Members of an object stand for fields that the body leaves out."`
	taskFields
	envelopeFields
	recipientRule
	deliveryRule
	fences
}

// taskFields are what a handoff's message is made of.
type taskFields struct {
	Task               json.RawMessage `json:"task" in:"any"`
	AcceptanceCriteria json.RawMessage `json:"acceptance_criteria" in:"any"`
	ContextRefs        json.RawMessage `json:"context_refs" in:"any"`
}

func (f *taskFields) lift(payload json.RawMessage) error {
	var lifted taskFields
	if err := decodeInner(taskShape, jsonText(payload), "payload.", &lifted); err != nil {
		return err
	}
	for own, other := range map[*json.RawMessage]json.RawMessage{
		&f.Task: lifted.Task, &f.AcceptanceCriteria: lifted.AcceptanceCriteria, &f.ContextRefs: lifted.ContextRefs,
	} {
		if *own == nil {
			*own = other
		}
	}
	return nil
}

func (r handoffRequest) actingAgents() []actingAgent { return []actingAgent{{"from", r.From}} }

type handoffResponse struct {
	HandoffMessageID string          `json:"handoff_message_id"`
	State            string          `json:"state" doc:"Always queued."`
	AssignedTo       string          `json:"assigned_to"`
	FanoutCount      int64           `json:"fanout_count"`
	ExpiresAtMs      core.Instant    `json:"expires_at_ms"`
	Recipients       []recipientView `json:"recipients,omitempty"`
}

func handoff(ctx context.Context, c *call, r handoffRequest) (handoffResponse, error) {
	if err := r.envelopeFields.lift(r.Payload); err != nil {
		return handoffResponse{}, err
	}
	if err := r.taskFields.lift(r.Payload); err != nil {
		return handoffResponse{}, err
	}
	done, err := c.hub.Handoff(ctx, core.HandoffRequest{
		From:               r.From,
		To:                 r.To,
		Topic:              r.Topic.Value,
		Task:               r.Task,
		AcceptanceCriteria: r.AcceptanceCriteria,
		ContextRefs:        r.ContextRefs,
		Priority:           or(r.Priority, core.DefaultPriority),
		TTLMs:              or(r.TTLMs, core.DefaultHandoffTTLMs),
		CorrelationID:      r.CorrelationID.Value,
		TraceID:            r.TraceID.Value,
		MaxDeliveries:      r.MaxDeliveries,
		RequireOnline:      r.requireOnline(),
		Fences:             r.fences.core(),
		Idempotency:        c.key,
	})
	if err != nil {
		return handoffResponse{}, staleActor(err)
	}
	c.replayed = done.Replayed
	return handoffResponse{
		HandoffMessageID: done.MessageID, State: "queued", AssignedTo: r.To,
		FanoutCount: done.FanoutCount, ExpiresAtMs: done.ExpiresAt, Recipients: recipientsOf(done),
	}, nil
}

// --- result (contract 2.9)

type resultRequest struct {
	AgentID string          `json:"agent_id" in:"id,required"`
	Topic   string          `json:"topic" in:"id,default=\"task.result\"" doc:"The topic whose followers get it."`
	Payload json.RawMessage `json:"payload" in:"any"`
	messageIDs
	fences
}

func (r resultRequest) actingAgents() []actingAgent { return []actingAgent{{"agent_id", r.AgentID}} }

func result(ctx context.Context, c *call, r resultRequest) (publishedView, error) {
	done, err := c.hub.Result(ctx, core.ResultRequest{
		AgentID: r.AgentID, Topic: r.Topic, Payload: r.Payload,
		CorrelationID: r.CorrelationID.Value, TraceID: r.TraceID.Value,
		Fences: r.fences.core(), Idempotency: c.key,
	})
	if err != nil {
		return publishedView{}, staleActor(err)
	}
	return c.published(done), nil
}

// --- control (contract 2.10)

type controlRequest struct {
	ToAgent   string          `json:"to_agent" in:"id,required,max=518" doc:"An agent's id, or topic: and a topic."`
	Command   string          `json:"command" in:"text,required,min=1,max=4096"`
	FromAgent string          `json:"from_agent" in:"id,default=\"lead\""`
	Reason    string          `json:"reason" in:"text,default=\"\",max=65536"`
	Payload   json.RawMessage `json:"payload" in:"any" doc:"Members of an object stand beside command and reason, and win."`
	TTLMs     int64           `json:"ttl_ms" in:"truncated,default=3600000,null=0" doc:"Brought into 1,000 to 86,400,000; 0 is an hour."`
	messageIDs
	recipientRule
	fences
}

func (r controlRequest) actingAgents() []actingAgent {
	return []actingAgent{{"from_agent", r.FromAgent}}
}

func control(ctx context.Context, c *call, r controlRequest) (publishedView, error) {
	done, err := c.hub.Control(ctx, core.ControlRequest{
		From: r.FromAgent, To: r.ToAgent, Command: r.Command, Reason: r.Reason, Payload: r.Payload, TTLMs: r.TTLMs,
		CorrelationID: r.CorrelationID.Value, TraceID: r.TraceID.Value, RequireOnline: r.requireOnline(),
		Fences: r.fences.core(), Idempotency: c.key,
	})
	if err != nil {
		return publishedView{}, staleActor(err)
	}
	return c.published(done), nil
}

// --- ask (contract 5.5)

type askRequest struct {
	From        string          `json:"from" in:"id,required"`
	To          string          `json:"to" in:"id,required,max=518"`
	Topic       string          `json:"topic" in:"id,required"`
	Question    string          `json:"question" in:"text,required,min=1"`
	ContextRefs json.RawMessage `json:"context_refs" in:"any"`
	Payload     json.RawMessage `json:"payload" in:"any" doc:"Members of an object stand beside question and context_refs."`
	Priority    int64           `json:"priority" in:"integer,min=1,max=9,default=5"`
	TTLMs       int64           `json:"ttl_ms" in:"integer,min=1,max=604800000,default=300000"`
	AwaitMs     int64           `json:"await_response_ms" in:"truncated,default=0,null=0" doc:"How long to wait for the response: brought into 0 to 25,000."`
	messageIDs
	recipientRule
	deliveryRule
	fences
}

func (r askRequest) actingAgents() []actingAgent { return []actingAgent{{"from", r.From}} }

type askResponse struct {
	RequestMessageID string          `json:"request_message_id"`
	CorrelationID    string          `json:"correlation_id" doc:"Of the response that is waited for."`
	TraceID          string          `json:"trace_id"`
	State            core.AskState   `json:"state" doc:"queued: nobody waited. delivered: no response yet. answered: here it is."`
	Response         json.RawMessage `json:"response,omitempty" doc:"The payload of the first response."`
	Recipients       []recipientView `json:"recipients,omitempty"`
}

func ask(ctx context.Context, c *call, r askRequest) (askResponse, error) {
	done, err := c.hub.Ask(ctx, core.AskRequest{
		From: r.From, To: r.To, Topic: r.Topic, Question: r.Question, ContextRefs: r.ContextRefs, Payload: r.Payload,
		Priority: r.Priority, TTLMs: r.TTLMs, AwaitMs: r.AwaitMs,
		CorrelationID: r.CorrelationID.Value, TraceID: r.TraceID.Value, MaxDeliveries: r.MaxDeliveries,
		RequireOnline: r.requireOnline(), Fences: r.fences.core(), Idempotency: c.key,
	})
	if err != nil {
		return askResponse{}, staleActor(err)
	}
	c.replayed = done.Replayed
	return askResponse{
		RequestMessageID: done.MessageID, CorrelationID: done.CorrelationID, TraceID: done.TraceID,
		State: done.State, Response: done.Response, Recipients: recipientsOf(done.Published),
	}, nil
}

// --- context: the drain (contract 2.13)

type contextRequest struct {
	AgentID       string          `json:"agent_id" in:"id,required"`
	Topics        []string        `json:"topics" in:"list,max=1000,null=[]" each:"id" doc:"Only messages of these topics."`
	MaxMessages   int64           `json:"max_messages" in:"truncated,default=10" doc:"Brought into 0 to 100."`
	AutoAck       bool            `json:"auto_ack" in:"boolean,default=true" doc:"Acknowledge what is handed out: at most once. Without it messages stay pending."`
	VisibilityMs  core.Opt[int64] `json:"visibility_ms" in:"integer,min=1000,max=43200000" doc:"With auto_ack false: hide what is handed out for that long and give receipts: at least once."`
	MaxDeliveries core.Opt[int64] `json:"max_deliveries" in:"integer,min=1,max=1000" doc:"Dead-letter messages that were leased so often."`
	fences
}

func (r contextRequest) actingAgents() []actingAgent { return []actingAgent{{"agent_id", r.AgentID}} }

type contextResponse struct {
	Messages     []messageView `json:"messages"`
	Count        int           `json:"count"`
	ServerTimeMs core.Instant  `json:"server_time_ms"`
	Unconfirmed  []string      `json:"unconfirmed,omitempty" doc:"Messages that may have been taken, because the store did not answer, and are not handed out: look at their traces."`
}

func drain(ctx context.Context, c *call, r contextRequest) (contextResponse, error) {
	done, err := c.hub.Drain(ctx, core.DrainRequest{
		AgentID: r.AgentID, Topics: r.Topics, Max: r.MaxMessages, AutoAck: r.AutoAck,
		VisibilityMs: r.VisibilityMs, MaxDeliveries: r.MaxDeliveries, Fences: r.fences.core(),
	})
	if err != nil {
		return contextResponse{}, staleActor(err)
	}
	answer := contextResponse{
		Messages: []messageView{}, Count: len(done.Messages), ServerTimeMs: done.ServerTime, Unconfirmed: done.Unconfirmed,
	}
	for _, m := range done.Messages {
		answer.Messages = append(answer.Messages, liveView(m, done.ServerTime))
	}
	return answer, nil
}

// --- ack and nack

type ackRequest struct {
	AgentID    string   `json:"agent_id" in:"id,required"`
	MessageIDs []string `json:"message_ids" in:"list,min=1,max=100" each:"id" doc:"Of messages no lease holds. These, or receipts."`
	Receipts   []string `json:"receipts" in:"list,min=1,max=100" each:"line"`
	fences
}

func (r ackRequest) actingAgents() []actingAgent { return []actingAgent{{"agent_id", r.AgentID}} }

type settledItem struct {
	ID   string    `json:"id" doc:"The message id or receipt as it was sent."`
	OK   bool      `json:"ok"`
	Code core.Code `json:"code,omitempty" doc:"NOT_FOUND, ALREADY_ACKED, RECEIPT_STALE, DEAD_LETTERED, EXPIRED, or why the store failed."`
}

type ackResponse struct {
	Acked   int64         `json:"acked"`
	Results []settledItem `json:"results" doc:"One for each id, in order."`
}

func ack(ctx context.Context, c *call, r ackRequest) (ackResponse, error) {
	done, err := c.hub.Ack(ctx, core.AckRequest{
		AgentID: r.AgentID, MessageIDs: r.MessageIDs, Receipts: r.Receipts, Fences: r.fences.core(),
	})
	if err != nil {
		return ackResponse{}, staleActor(err)
	}
	return ackResponse{Acked: done.Done, Results: settledItems(done)}, nil
}

func settledItems(done core.AckResult) []settledItem {
	items := make([]settledItem, 0, len(done.Results))
	for _, o := range done.Results {
		items = append(items, settledItem{ID: o.ID, OK: o.Code == "", Code: o.Code})
	}
	return items
}

type nackRequest struct {
	AgentID  string           `json:"agent_id" in:"id,required"`
	Receipts []string         `json:"receipts" in:"list,required,min=1,max=100" each:"line"`
	DelayMs  int64            `json:"delay_ms" in:"integer,min=0,max=43200000,default=0" doc:"Hide the messages that long."`
	Error    core.Opt[string] `json:"error" in:"text,max=4096" doc:"Why, for the message's record."`
	fences
}

func (r nackRequest) actingAgents() []actingAgent { return []actingAgent{{"agent_id", r.AgentID}} }

type nackResponse struct {
	Nacked  int64         `json:"nacked"`
	Results []settledItem `json:"results" doc:"One for each receipt, in order."`
}

func nack(ctx context.Context, c *call, r nackRequest) (nackResponse, error) {
	done, err := c.hub.Nack(ctx, core.NackRequest{
		AgentID: r.AgentID, Receipts: r.Receipts, DelayMs: r.DelayMs, Error: r.Error.Value, Fences: r.fences.core(),
	})
	if err != nil {
		return nackResponse{}, staleActor(err)
	}
	return nackResponse{Nacked: done.Done, Results: settledItems(done)}, nil
}

// --- dead letters

type deadLettersRequest struct {
	Reason core.Opt[string] `json:"reason" in:"line" doc:"Only dead letters for this reason: ttl_expired, max_deliveries."`
	To     core.Opt[string] `json:"to" in:"id,max=518" doc:"Only dead letters of this recipient or address."`
	FromMs core.Opt[int64]  `json:"from_ms" in:"integer,min=0" doc:"Only those that failed at or after this time."`
	ToMs   core.Opt[int64]  `json:"to_ms" in:"integer,min=0" doc:"Only those that failed at or before this time."`
	Limit  int64            `json:"limit" in:"integer,min=1,max=100,default=50"`
	Cursor core.Opt[string] `json:"cursor" in:"line,max=4096" doc:"next_cursor of the page before."`
}

type deadLetterView struct {
	DeadLetterID string                `json:"dead_letter_id" doc:"Opaque; names this death of this message for this recipient."`
	MessageID    string                `json:"message_id"`
	Recipient    *string               `json:"recipient" doc:"Whose inbox it was in; null for a message to a topic that nobody followed."`
	Reason       core.DeadLetterReason `json:"reason"`
	FailedAtMs   core.Instant          `json:"failed_at_ms"`
	LastError    *string               `json:"last_error"`
	Deliveries   int64                 `json:"deliveries"`
	RedrivenAtMs *core.Instant         `json:"redriven_at_ms"`
	Redrives     int64                 `json:"redrives" doc:"How often the message was redriven before this death."`
	Message      messageView           `json:"message"`
}

type deadLettersResponse struct {
	DeadLetters []deadLetterView `json:"dead_letters"`
	NextCursor  *string          `json:"next_cursor" doc:"Null at the end. A filtered page may be short, or empty, before it."`
}

func listDeadLetters(ctx context.Context, c *call, r deadLettersRequest) (deadLettersResponse, error) {
	list, err := c.hub.DeadLetters(ctx, core.DeadLetterQuery{
		DeadLetterFilter: core.DeadLetterFilter{Reason: r.Reason, To: r.To, From: r.FromMs, Up: r.ToMs},
		Limit:            int(r.Limit),
		Cursor:           r.Cursor.Value,
	})
	if err != nil {
		return deadLettersResponse{}, err
	}
	answer := deadLettersResponse{DeadLetters: []deadLetterView{}, NextCursor: orNull(list.NextCursor)}
	for _, letter := range list.Letters {
		answer.DeadLetters = append(answer.DeadLetters, deadLetterView{
			DeadLetterID: letter.ID,
			MessageID:    letter.Message.ID,
			Recipient:    orNull(letter.Inbox),
			Reason:       letter.Reason,
			FailedAtMs:   letter.FailedAt,
			LastError:    orNull(letter.LastError),
			Deliveries:   letter.Deliveries,
			RedrivenAtMs: orNull(letter.RedrivenAt),
			Redrives:     letter.DeadLetterings - 1,
			Message:      storedView(letter.Message, core.MessageDeadLetter),
		})
	}
	return answer, nil
}

type redriveRequest struct {
	DeadLetterIDs []string        `json:"dead_letter_ids" in:"list,min=1,max=100" each:"line,max=4096" doc:"As the list gives them. These, or a filter."`
	Filter        json.RawMessage `json:"filter" in:"object" doc:"reason, to, from_ms, to_ms, as the list takes them."`
	Max           int64           `json:"max" in:"integer,min=1,max=1000,default=100" doc:"With a filter: how many at most."`
	TTLMs         core.Opt[int64] `json:"ttl_ms" in:"integer,min=1,max=604800000" doc:"How long they may wait now; without it as long as they could."`
}

// redriveFilter are the members of a redrive's filter.
type redriveFilter struct {
	Reason core.Opt[string] `json:"reason" in:"line"`
	To     core.Opt[string] `json:"to" in:"id,max=518"`
	FromMs core.Opt[int64]  `json:"from_ms" in:"integer,min=0"`
	ToMs   core.Opt[int64]  `json:"to_ms" in:"integer,min=0"`
}

type redriveResponse struct {
	Redriven int64             `json:"redriven"`
	Results  []redriveItemView `json:"results"`
}

type redriveItemView struct {
	DeadLetterID string    `json:"dead_letter_id"`
	MessageID    *string   `json:"message_id" doc:"Null where the id names no message."`
	OK           bool      `json:"ok"`
	Code         core.Code `json:"code,omitempty" doc:"NOT_FOUND, NOT_DEAD, ALREADY_REDRIVEN, or why the store failed."`
}

func redrive(ctx context.Context, c *call, r redriveRequest) (redriveResponse, error) {
	request := core.RedriveRequest{IDs: r.DeadLetterIDs, Max: r.Max, TTLMs: r.TTLMs}
	if r.Filter != nil {
		filter, err := r.filter()
		if err != nil {
			return redriveResponse{}, err
		}
		request.Filter = core.Some(filter)
	}
	done, err := c.hub.Redrive(ctx, request)
	if err != nil {
		return redriveResponse{}, err
	}
	answer := redriveResponse{Redriven: done.Count, Results: []redriveItemView{}}
	for _, item := range done.Results {
		answer.Results = append(answer.Results, redriveItemView{
			DeadLetterID: item.ID, MessageID: orNull(item.MessageID), OK: item.Code == "", Code: item.Code,
		})
	}
	return answer, nil
}

func (r redriveRequest) filter() (core.DeadLetterFilter, error) {
	var f redriveFilter
	value := jsonText(r.Filter)
	unknown := ""
	value.members(func(name string, _ jsonText) {
		if !slices.Contains([]string{"reason", "to", "from_ms", "to_ms"}, name) {
			unknown = name
		}
	})
	if unknown != "" {
		// A filter that is not understood must not redrive everything.
		return core.DeadLetterFilter{}, core.Invalid("filter", "filter takes reason, to, from_ms and to_ms only")
	}
	if err := decodeInner(filterShape, value, "filter.", &f); err != nil {
		return core.DeadLetterFilter{}, err
	}
	return core.DeadLetterFilter{Reason: f.Reason, To: f.To, From: f.FromMs, Up: f.ToMs}, nil
}
