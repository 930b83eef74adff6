package core

import (
	"encoding/json"
	"fmt"
	"time"
)

// Announcement is what becomes true together with a change of a human request
// or an assignment, or not at all: the messages that tell of it, the answer of
// the request that caused it, and the fence it was made under.
type Announcement struct {
	// Messages are put into the inboxes of agents.
	Messages []Delivery
	// Once stores the operation's own answer.
	Once Opt[IdempotencyRecord]
	// Fence is the acting agent's.
	Fence Opt[AgentFence]
	WriteStamp
}

// SaveOutcome is what became of a change. With no field set somebody else
// changed the entity first, and nothing was done.
type SaveOutcome struct {
	Done bool
	// Replayed: an earlier try of this write had done it. Done is set too.
	Replayed bool
	// Stale is the acting agent as it stands (the zero Agent when unknown) when
	// its fence did not hold.
	Stale Opt[Agent]
	// Repeated is the answer that is stored already.
	Repeated Opt[IdempotencyRecord]
}

// changeAttempts bounds how often an operation reads again because others
// changed the same request or job first. Every loss is another operation's
// success, so a crowd gets through.
const changeAttempts = 64

// errCrowded refuses an operation that lost every attempt.
func errCrowded() error {
	return Refuse(CodeContended, "others kept changing the same thing; nothing was done")
}

// announcement is a message that the hub puts into an agent's inbox together
// with a change.
type announcement struct {
	from, to      string
	kind          MessageType
	topic         string
	priority      int64
	ttl           time.Duration
	correlationID string
	traceID       string
	payload       json.RawMessage
}

func (h *Hub) announce(a announcement, now Instant) Delivery {
	message := PublishRequest{
		From: a.from, To: a.to, Type: a.kind, Topic: a.topic, Priority: a.priority,
		TTLMs: a.ttl.Milliseconds(), Payload: a.payload, CorrelationID: a.correlationID, TraceID: a.traceID,
	}.message(now, h.ids)
	return Delivery{Message: message, Inbox: a.to, State: DeliveryPending}
}

// checkAgentID refuses an id whose inbox the hub could not put a message into.
func checkAgentID(field, id string) error {
	if err := checkID(field, id); err != nil {
		return err
	}
	if !isAgentInbox(id) {
		return Invalid(field, field+" must name an agent, not a topic")
	}
	return nil
}

// checkOptionalIDs holds ids that may be empty to the rules of ids.
func checkOptionalIDs(ids map[string]string) error {
	for field, id := range ids {
		if id == "" {
			continue
		}
		if err := checkID(field, id); err != nil {
			return err
		}
	}
	return nil
}

// compactJSON returns a JSON value without insignificant space, null for none.
func compactJSON(field string, given json.RawMessage, limit int) (json.RawMessage, error) {
	if len(given) == 0 {
		return json.RawMessage("null"), nil
	}
	compact, err := normalisePayload(given)
	if err != nil {
		return nil, Invalid(field, field+" must be JSON")
	}
	if len(compact) > limit {
		return nil, Invalid(field, fmt.Sprintf("%s must be at most %d bytes", field, limit))
	}
	return compact, nil
}

func isNull(value json.RawMessage) bool { return len(value) == 0 || string(value) == "null" }

func orNewID(id string, ids IDs) string {
	if id == "" {
		return ids.New()
	}
	return id
}
