package core

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// PublishRequest sends a message to an agent, a role or the followers of a
// topic.
type PublishRequest struct {
	From          string
	To            string
	Type          MessageType // "" is an event
	Topic         string
	Priority      int64
	TTLMs         int64
	Payload       json.RawMessage // any JSON value; nil is an empty object
	CorrelationID string          // "": a new one
	TraceID       string          // "": a new one
	MaxDeliveries Opt[int64]      // leases after which it is dead-lettered
	RequireOnline bool            // refuse unless the recipient is online
	Fences        Fences          // the generation is the sender's
	Idempotency   Opt[IdempotencyKey]
}

// Published is the answer to a publish.
type Published struct {
	MessageID     string  `json:"message_id"`
	CorrelationID string  `json:"correlation_id"`
	TraceID       string  `json:"trace_id"`
	FanoutCount   int64   `json:"fanout_count"`
	ExpiresAt     Instant `json:"expires_at_ms"`
	// Recipient is the state of the agent a direct message goes to.
	Recipient *RecipientState `json:"-"`
	// Role is the legacy role a message to topic:cto waits for.
	Role *LegacyRole `json:"-"`
	// Resuming: the message is stored, but not every follower has its delivery
	// yet. The sweep sees to it.
	Resuming bool `json:"-"`
	// Replayed: an earlier try had published it.
	Replayed bool `json:"-"`
}

// RecipientState is what the hub knew of a recipient when it got a message.
type RecipientState struct {
	AgentID string
	Status  string // an effective status, or unknown
}

// recipientUnknown is the state of a recipient that never registered: its
// messages wait for it until they expire.
const recipientUnknown = "unknown"

// maxPayload is the largest payload in bytes: that of a request's body.
const maxPayload = 1 << 20

// fanoutGrace is how long a publisher has to serve the followers itself before
// the sweep resumes for it.
const fanoutGrace = time.Minute

// Publish stores a message, durable before it answers (contract 2.12, 5.1). The
// id of the message is chosen before the first request to the store, so a retry
// inside the store's client meets its own write; a caller that repeats a
// request sends an idempotency key.
//
// Errors: INVALID_ARGUMENT, BODY_TOO_LARGE, STALE_HUB_INSTANCE,
// STORE_FINGERPRINT_MISMATCH, STALE_PRESENCE_OWNER, RECIPIENT_NOT_ONLINE,
// IDEMPOTENCY_MISMATCH. None of them stores anything.
func (h *Hub) Publish(ctx context.Context, r PublishRequest) (Published, error) {
	to, err := r.validate()
	if err != nil {
		return Published{}, err
	}
	identity, err := h.checkIdentity(ctx, r.Fences)
	if err != nil {
		return Published{}, err
	}
	now := h.clock.Now()
	message := r.message(InstantOf(now), h.ids)
	message.RoleKeyWire = to.wire
	p := publishing{
		hub: h, to: to, key: r.Idempotency, identity: identity,
		write: Publication{
			Delivery:   Delivery{Message: message, Inbox: to.inbox, State: DeliveryPending},
			Answer:     r.Type == MessageResponse,
			Online:     r.RequireOnline,
			Fence:      fenceOf(r.From, r.Fences),
			WriteStamp: h.stamp(now),
		},
	}
	return p.run(ctx)
}

func (r *PublishRequest) validate() (address, error) {
	if err := checkID("from", r.From); err != nil {
		return address{}, err
	}
	to, err := parseAddress("to", r.To)
	if err != nil {
		return address{}, err
	}
	if r.Type == "" {
		r.Type = MessageEvent
	}
	if !slices.Contains(MessageTypes, r.Type) {
		return address{}, Invalid("type", fmt.Sprintf("type must be one of %v", MessageTypes))
	}
	if err := checkID("topic", r.Topic); err != nil {
		return address{}, err
	}
	if err := checkPriority(r.Priority); err != nil {
		return address{}, err
	}
	if err := checkMessageTTL(r.TTLMs); err != nil {
		return address{}, err
	}
	if r.MaxDeliveries.Set && (r.MaxDeliveries.Value < 1 || r.MaxDeliveries.Value > MaxMaxDeliveries) {
		return address{}, Invalid("max_deliveries", fmt.Sprintf("max_deliveries must be 1 to %d", MaxMaxDeliveries))
	}
	for _, id := range []struct{ field, value string }{{"correlation_id", r.CorrelationID}, {"trace_id", r.TraceID}} {
		if id.value != "" {
			if err := checkID(id.field, id.value); err != nil {
				return address{}, err
			}
		}
	}
	if r.RequireOnline && (to.inbox == "" || isRoleAddress(to.inbox)) {
		return address{}, Invalid("if_recipient", "if_recipient is for messages to one agent")
	}
	if r.Payload, err = normalisePayload(r.Payload); err != nil {
		return address{}, err
	}
	if r.Idempotency.Set {
		return to, r.Idempotency.Value.validate()
	}
	return to, nil
}

func normalisePayload(given json.RawMessage) (json.RawMessage, error) {
	if len(given) == 0 {
		return json.RawMessage("{}"), nil
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, given); err != nil {
		return nil, Invalid("payload", "payload must be JSON")
	}
	if compact.Len() > maxPayload {
		return nil, Refuse(CodeBodyTooLarge, "the payload is larger than 1 MiB")
	}
	return compact.Bytes(), nil
}

// message is the request as a message that is made now.
func (r PublishRequest) message(now Instant, ids IDs) Message {
	ttl := time.Duration(r.TTLMs) * time.Millisecond
	m := Message{
		ID:            ids.New(),
		Type:          r.Type,
		From:          r.From,
		To:            r.To,
		Topic:         r.Topic,
		Priority:      r.Priority,
		TTL:           ttl,
		CreatedAt:     now,
		ExpiresAt:     now.Add(ttl),
		CorrelationID: r.CorrelationID,
		TraceID:       r.TraceID,
		MaxDeliveries: r.MaxDeliveries.Value,
		Payload:       NewPayload(r.Payload),
	}
	if m.CorrelationID == "" {
		m.CorrelationID = ids.New()
	}
	if m.TraceID == "" {
		m.TraceID = ids.New()
	}
	return m
}

// fenceOf is the fence of an acting agent, if it sent its generation.
func fenceOf(agentID string, f Fences) Opt[AgentFence] {
	if !f.Generation.Set {
		return Opt[AgentFence]{}
	}
	return Some(AgentFence{AgentID: agentID, Generation: f.Generation.Value})
}

// publishing is one publish on its way.
type publishing struct {
	hub      *Hub
	to       address
	key      Opt[IdempotencyKey]
	identity Identity
	write    Publication
}

func (p *publishing) run(ctx context.Context) (Published, error) {
	if p.to.topic != "" {
		return p.toTopic(ctx)
	}
	if isRoleAddress(p.to.inbox) {
		return p.toRole(ctx)
	}
	return p.toAgent(ctx)
}

// toAgent reads the recipient's state beside the write: it is news for the
// sender and decides nothing. A repeated request gets the state of its own time.
func (p *publishing) toAgent(ctx context.Context) (Published, error) {
	var state *RecipientState
	read := inBackground(func() error {
		var err error
		state, err = p.hub.recipientState(ctx, p.to.inbox)
		return err
	})
	answer, err := p.store(ctx, p.answer(1))
	if failed := read(); failed == nil {
		answer.Recipient = state
	}
	return answer, err
}

// toRole leaves the message in the role's inbox, for whoever holds the role. The
// holder is looked up beside the write: it is news for the sender and decides
// nothing.
func (p *publishing) toRole(ctx context.Context) (Published, error) {
	if p.to.inbox == ctoAddress {
		return p.toLegacyRole(ctx)
	}
	held := false
	read := inBackground(func() (err error) {
		held, err = p.hub.isRoleHeld(ctx, p.write.Delivery.RoleKeyWire)
		return err
	})
	answer, err := p.store(ctx, p.answer(0))
	if failed := read(); failed == nil && held && !answer.Replayed {
		answer.FanoutCount = 1
	}
	return answer, err
}

// isRoleHeld tells whether somebody holds a role now; "" names none.
func (h *Hub) isRoleHeld(ctx context.Context, wire string) (bool, error) {
	if wire == "" {
		return false, nil
	}
	role, err := h.roles.ReadRole(ctx, wire)
	if err != nil || role.State != RoleActive {
		return false, err
	}
	holder, _, err := h.presence.ReadAgent(ctx, role.Holder)
	return role.isHeld(holder, InstantOf(h.clock.Now())), err
}

// toLegacyRole stores the message first: the election that routing to the
// legacy role asks for (contract 4.8) changes who drains it, not where it is.
func (p *publishing) toLegacyRole(ctx context.Context) (Published, error) {
	answer, err := p.store(ctx, p.answer(0))
	if err != nil {
		return answer, err
	}
	board, err := p.hub.runLegacy(ctx, "route")
	if err != nil {
		return answer, nil //nolint:nilerr // the message is stored: news that is not known does not undo it
	}
	pending, err := p.hub.countLegacy(ctx)
	if err != nil {
		return answer, nil //nolint:nilerr // as above
	}
	role := board.snapshot(pending)
	answer.Role = &role
	if role.Leader != "" && !answer.Replayed {
		answer.FanoutCount = 1
	}
	return answer, nil
}

// toTopic fixes the recipients in the record and then serves them. Once the
// record is stored the message is accepted: what is left undone, the sweep does.
func (p *publishing) toTopic(ctx context.Context) (Published, error) {
	now := InstantOf(p.write.Started)
	found, err := p.hub.messages.Followers(ctx, p.to.topic)
	if err != nil {
		return Published{}, fmt.Errorf("read followers: %w", err)
	}
	recipients, strangers := followersOf(p.to.topic, found, now)
	record := &p.write.Delivery
	if record.Recipients = recipients; len(recipients) > 0 {
		record.State, record.VisibleAt = DeliveryFanning, now.Add(fanoutGrace)
	}
	answer, err := p.store(ctx, p.answer(len(recipients)))
	if err != nil {
		return Published{}, err
	}
	if answer.Replayed {
		answer.Resuming = p.hub.resumeFanout(ctx, answer.MessageID) != nil
		return answer, nil
	}
	forget := inBackground(func() error { return p.hub.messages.ForgetFollowers(ctx, p.to.topic, strangers) })
	if len(recipients) > 0 {
		answer.Resuming = p.hub.serve(ctx, *record) != nil
	}
	// The strangers are tried again by the next publish.
	_ = forget()
	return answer, nil
}

// followerEntryAge is how old the entry of an agent that does not follow the
// topic has to be before it is removed: far longer than a register lasts, which
// writes the entry before the agent.
const followerEntryAge = time.Hour

// maxForgotten bounds the entries that one publish removes.
const maxForgotten = 25

// followersOf keeps the agents whose current registration follows the topic and
// that are not offline (compat 8), and finds the entries that are out of date.
func followersOf(topic string, found []Follower, now Instant) (recipients []string, strangers []Follower) {
	for _, f := range found {
		switch follows := slices.Contains(f.Agent.Topics, topic); {
		case follows && f.Agent.EffectiveStatus(now) != StatusOffline && isAgentInbox(f.AgentID):
			recipients = append(recipients, f.AgentID)
		case !follows && f.WrittenAt.Add(followerEntryAge) < now && len(strangers) < maxForgotten:
			strangers = append(strangers, f)
		}
	}
	return recipients, strangers
}

// serve gives every recipient of a record its delivery and marks the record.
func (h *Hub) serve(ctx context.Context, record Delivery) error {
	if err := h.messages.Deliver(ctx, record); err != nil {
		return fmt.Errorf("deliver to followers: %w", err)
	}
	if err := h.messages.FinishFanout(ctx, record); err != nil {
		return fmt.Errorf("finish fan-out: %w", err)
	}
	return nil
}

// resumeFanout serves a record that was left half served.
func (h *Hub) resumeFanout(ctx context.Context, messageID string) error {
	record, found, err := h.messages.ReadRecord(ctx, messageID)
	if err != nil {
		return fmt.Errorf("read fan-out: %w", err)
	}
	if !found || record.State != DeliveryFanning {
		return nil
	}
	return h.serve(ctx, record)
}

func (p *publishing) answer(recipients int) Published {
	m := p.write.Delivery.Message
	return Published{
		MessageID:     m.ID,
		CorrelationID: m.CorrelationID,
		TraceID:       m.TraceID,
		FanoutCount:   int64(recipients),
		ExpiresAt:     m.ExpiresAt,
	}
}

// store writes the publication and turns a refusal into its error.
func (p *publishing) store(ctx context.Context, answer Published) (Published, error) {
	if p.key.Set {
		record, err := p.key.Value.record(answer, InstantOf(p.write.Started))
		if err != nil {
			return Published{}, err
		}
		p.write.Once = Some(record)
	}
	outcome, err := p.hub.messages.PutMessage(ctx, p.write)
	switch {
	case err != nil:
		return Published{}, fmt.Errorf("put message: %w", err)
	case outcome.Repeated.Set:
		return replayPublished(outcome.Repeated.Value, p.key.Value)
	case outcome.Stale.Set:
		return Published{}, p.hub.staleActor(p.write.Fence.Value, outcome.Stale.Value, p.identity)
	case outcome.Offline:
		return Published{}, Refuse(CodeRecipientNotOnline, "the recipient is not online; nothing was stored")
	}
	answer.Replayed = outcome.Replayed
	return answer, nil
}

func replayPublished(stored IdempotencyRecord, key IdempotencyKey) (Published, error) {
	var answer Published
	if err := key.replay(stored, &answer); err != nil {
		return Published{}, err
	}
	answer.Replayed = true
	return answer, nil
}

// staleActor refuses an agent whose fence does not hold.
func (h *Hub) staleActor(fence AgentFence, stands Agent, identity Identity) *Error {
	return staleOwner(StalePresence{
		AgentID:    fence.AgentID,
		Current:    stands.Generation,
		ServerTime: InstantOf(h.clock.Now()),
		Identity:   identity,
	})
}

func (h *Hub) recipientState(ctx context.Context, agentID string) (*RecipientState, error) {
	agent, found, err := h.presence.ReadAgent(ctx, agentID)
	if err != nil {
		return nil, fmt.Errorf("read recipient: %w", err)
	}
	state := &RecipientState{AgentID: agentID, Status: recipientUnknown}
	if found {
		state.Status = string(agent.EffectiveStatus(InstantOf(h.clock.Now())))
	}
	return state, nil
}

// inBackground starts fn and returns what waits for it.
func inBackground(fn func() error) (wait func() error) {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	return func() error { return <-done }
}

// The fixed parts of the messages that endpoints make (contract 2.9 to 2.11).
const (
	DefaultMessageTTLMs = 300_000
	DefaultHandoffTTLMs = 600_000
	DefaultControlTTLMs = 3_600_000
	resultTTLMs         = 3_600_000
	controlPriority     = 8
	controlTopic        = "lead.control"
	maxControlTTLMs     = 86_400_000
	minControlTTLMs     = 1_000
)

// ResultRequest tells a task's result to whoever follows the topic.
type ResultRequest struct {
	AgentID       string
	Topic         string
	Payload       json.RawMessage
	CorrelationID string
	TraceID       string
	Fences        Fences
	Idempotency   Opt[IdempotencyKey]
}

// Result publishes a result (contract 2.9). With a correlation id it is the
// response to it.
func (h *Hub) Result(ctx context.Context, r ResultRequest) (Published, error) {
	if err := checkID("agent_id", r.AgentID); err != nil {
		return Published{}, err
	}
	if err := checkID("topic", strings.TrimSpace(r.Topic)); err != nil {
		return Published{}, err
	}
	return h.Publish(ctx, PublishRequest{
		From: r.AgentID, To: topicPrefix + r.Topic, Type: responseOrEvent(r.CorrelationID), Topic: r.Topic,
		Priority: DefaultPriority, TTLMs: resultTTLMs, Payload: r.Payload,
		CorrelationID: r.CorrelationID, TraceID: r.TraceID, Fences: r.Fences, Idempotency: r.Idempotency,
	})
}

func responseOrEvent(correlationID string) MessageType {
	if correlationID != "" {
		return MessageResponse
	}
	return MessageEvent
}

// ControlRequest sends a command to an agent.
type ControlRequest struct {
	From          string
	To            string
	Command       string
	Reason        string
	Payload       json.RawMessage // an object's members override command and reason
	TTLMs         int64           // 0 is an hour; brought into 1 s to a day
	CorrelationID string
	TraceID       string
	RequireOnline bool
	Fences        Fences
	Idempotency   Opt[IdempotencyKey]
}

// Control sends a command (contract 2.10).
func (h *Hub) Control(ctx context.Context, r ControlRequest) (Published, error) {
	if _, err := parseAddress("to_agent", r.To); err != nil {
		return Published{}, err
	}
	if r.Command == "" {
		return Published{}, Invalid("command", "command is required")
	}
	payload, err := r.payload(InstantOf(h.clock.Now()))
	if err != nil {
		return Published{}, err
	}
	ttl := r.TTLMs
	if ttl == 0 {
		ttl = DefaultControlTTLMs
	}
	return h.Publish(ctx, PublishRequest{
		From: r.From, To: r.To, Type: responseOrEvent(r.CorrelationID), Topic: controlTopic,
		Priority: controlPriority, TTLMs: min(max(ttl, minControlTTLMs), maxControlTTLMs), Payload: payload,
		CorrelationID: r.CorrelationID, TraceID: r.TraceID, RequireOnline: r.RequireOnline,
		Fences: r.Fences, Idempotency: r.Idempotency,
	})
}

func (r ControlRequest) payload(now Instant) (json.RawMessage, error) {
	fields := object{}
	fields.put("command", quoted(r.Command))
	fields.put("reason", quoted(r.Reason))
	if err := fields.merge(r.Payload); err != nil {
		return nil, Invalid("payload", "payload must be JSON")
	}
	fields.drop("issued_at")
	fields.put("issued_at", numeral(int64(now)))
	return fields.encode(), nil
}

// HandoffRequest hands a task to an agent.
type HandoffRequest struct {
	From               string
	To                 string
	Topic              string
	Task               json.RawMessage // any JSON value; nil leaves it out, as with the next two
	AcceptanceCriteria json.RawMessage
	ContextRefs        json.RawMessage
	Priority           int64
	TTLMs              int64
	CorrelationID      string
	TraceID            string
	MaxDeliveries      Opt[int64]
	RequireOnline      bool
	Fences             Fences
	Idempotency        Opt[IdempotencyKey]
}

// Handoff hands a task over (contract 2.11).
func (h *Hub) Handoff(ctx context.Context, r HandoffRequest) (Published, error) {
	fields := object{}
	for _, member := range []struct {
		name  string
		value json.RawMessage
	}{{"task", r.Task}, {"acceptance_criteria", r.AcceptanceCriteria}, {"context_refs", r.ContextRefs}} {
		if member.value != nil {
			fields.put(member.name, member.value)
		}
	}
	return h.Publish(ctx, PublishRequest{
		From: r.From, To: r.To, Type: MessageHandoff, Topic: r.Topic,
		Priority: r.Priority, TTLMs: r.TTLMs, Payload: fields.encode(),
		CorrelationID: r.CorrelationID, TraceID: r.TraceID, MaxDeliveries: r.MaxDeliveries,
		RequireOnline: r.RequireOnline, Fences: r.Fences, Idempotency: r.Idempotency,
	})
}
