package core

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// MessageType is what a message is to its recipient.
type MessageType string

// The types.
const (
	MessageRequest       MessageType = "request"
	MessageResponse      MessageType = "response"
	MessageEvent         MessageType = "event"
	MessageHandoff       MessageType = "handoff"
	MessageHumanRequest  MessageType = "human_request"
	MessageHumanResponse MessageType = "human_response"
	MessageSystem        MessageType = "system"
)

// MessageTypes lists the types.
var MessageTypes = []MessageType{
	MessageRequest, MessageResponse, MessageEvent, MessageHandoff, MessageHumanRequest, MessageHumanResponse, MessageSystem,
}

// The limits of messages.
const (
	MinPriority      = 1
	MaxPriority      = 9
	DefaultPriority  = 5
	UrgentPriority   = 7                  // and above count as urgent
	MaxMessageTTL    = 7 * 24 * time.Hour // of a publish, handoff or ask
	MaxDrain         = 100                // messages a drain
	DefaultDrain     = 10                 // messages a drain that asks for no number
	MinVisibility    = time.Second
	MaxVisibility    = 12 * time.Hour // also the longest delay of a nack
	MaxReceipts      = 100            // receipts or message ids an ack
	MaxMaxDeliveries = 1000
	MaxAwait         = 25 * time.Second // of an ask
	// MinMessageRetention is the least time an acknowledged or dead-lettered
	// message stays readable, DefaultMessageRetention the usual one.
	MinMessageRetention     = 24 * time.Hour
	DefaultMessageRetention = 7 * 24 * time.Hour
	// MaxDrainBytes bounds a drain's answer, and the other lists of messages.
	MaxDrainBytes = 4 << 20
	// MaxPayloadJSON is the largest payload that answers repeat as a string.
	MaxPayloadJSON = 256 << 10
)

// maxFramedBytes bounds an answer where its text is framed in JSON once more,
// as Lambda's answers are: quotes count twice, and the frame may hold 6 MB.
const maxFramedBytes = 5_500_000

// messageOverhead is more than an answer's fields of one message take apart
// from its payload and its ids.
const messageOverhead = 1024

// Message is a message as its sender gave it to the hub.
type Message struct {
	ID            string
	Type          MessageType
	From          string // need not be registered
	To            string // an agent's id, or topic:<name>
	Topic         string
	Priority      int64 // 1..9, higher first
	TTL           time.Duration
	CreatedAt     Instant
	ExpiresAt     Instant // the first instant it is expired
	CorrelationID string
	TraceID       string
	RoleKeyWire   string // of the role it is for, "" for none
	MaxDeliveries int64  // leases after which it is dead-lettered; 0: no limit
	Payload       Payload
}

// Payload is a message's content. A store may keep a large one apart and read
// it only when asked to: JSON is nil until then.
type Payload struct {
	JSON json.RawMessage
	Size PayloadSize
	Lost bool // it was kept apart and is gone; JSON is null
}

// PayloadSize is what a payload takes of an answer, in bytes: by itself, and
// with its quotes and backslashes escaped once more.
type PayloadSize struct{ Answer, Framed int }

// NewPayload returns the payload of a JSON text without insignificant space.
func NewPayload(text json.RawMessage) Payload {
	return Payload{JSON: text, Size: sizeOf(text)}
}

// sizeOf adds up the payload and, where answers repeat it as a string, that
// string: the first escape doubles quotes and backslashes, the second again.
func sizeOf(text json.RawMessage) PayloadSize {
	escapes := strings.Count(string(text), `"`) + strings.Count(string(text), `\`)
	size := PayloadSize{Answer: len(text), Framed: len(text) + escapes}
	if len(text) <= MaxPayloadJSON {
		size.Answer += len(text) + escapes
		size.Framed += len(text) + 3*escapes
	}
	return size
}

// size is what the message takes of an answer.
func (m Message) size() PayloadSize {
	return PayloadSize{Answer: m.Payload.Size.Answer + messageOverhead, Framed: m.Payload.Size.Framed + 2*messageOverhead}
}

// Expired tells whether the message is expired at now; the edge is inclusive.
func (m Message) Expired(now Instant) bool { return m.ExpiresAt <= now }

// before tells whether m is drained before o: by priority, then age, then id.
func (m Message) before(o Message) bool {
	switch {
	case m.Priority != o.Priority:
		return m.Priority > o.Priority
	case m.CreatedAt != o.CreatedAt:
		return m.CreatedAt < o.CreatedAt
	default:
		return m.ID < o.ID
	}
}

// DeliveryState is where a delivery stands in the store.
type DeliveryState string

// The states of a delivery, and of a topic message's own record.
const (
	DeliveryPending DeliveryState = "pending" // of a record: nobody follows the topic
	DeliveryHidden  DeliveryState = "hidden"  // until VisibleAt
	DeliveryAcked   DeliveryState = "acked"
	DeliveryDead    DeliveryState = "dead"
	DeliveryFanning DeliveryState = "fanning" // a record whose recipients are being served
	DeliveryFanned  DeliveryState = "fanned"  // a record whose recipients all have their delivery
)

// MessageStatus is what readers see of a delivery, or of a whole message.
type MessageStatus string

// The statuses (contract 1.4). "expired" is shown between the expiry and the
// sweep that makes a dead letter of the message.
const (
	MessageQueued     MessageStatus = "queued" // in no agent's inbox
	MessageDelivered  MessageStatus = "delivered"
	MessageAcked      MessageStatus = "acked"
	MessageExpired    MessageStatus = "expired"
	MessageDeadLetter MessageStatus = "dead_letter"
)

// Delivery is a message in one inbox or, with Inbox "", the record of a message
// to a topic.
type Delivery struct {
	Message
	Inbox       string // an agent's id, or the address of a role
	State       DeliveryState
	Deliveries  int64   // times it was handed out
	DeliveredAt Instant // first time it was handed out; 0: never
	VisibleAt   Instant // when a hidden one is pending again
	Receipt     string  // of the lease that stands or stood last; "" without one
	AckedAt     Instant
	LastError   string // of the latest nack, or of the dead-lettering

	// Recipients are a record's, in the order of their ids.
	Recipients []string

	// DeadLetterings counts how often it was dead-lettered; the other fields
	// tell the latest time.
	DeadLetterings int64
	Reason         DeadLetterReason
	FailedAt       Instant
	RedrivenAt     Instant // 0: not, or not yet after it died again
}

// live tells whether the delivery can still be drained, but for its expiry.
func (d Delivery) live() bool { return d.State == DeliveryPending || d.State == DeliveryHidden }

// Status is what a reader sees of the delivery at now.
func (d Delivery) Status(now Instant) MessageStatus {
	switch {
	case d.State == DeliveryAcked:
		return MessageAcked
	case d.State == DeliveryDead:
		return MessageDeadLetter
	case d.live() && d.Expired(now):
		return MessageExpired
	case d.live() && (d.Inbox == "" || isRoleAddress(d.Inbox)):
		return MessageQueued
	}
	return MessageDelivered
}

// messageStatus derives a message's status from its deliveries and record
// (compat 9): delivered while any is under way, acked when all are, else what
// became of the ones that are not.
func messageStatus(deliveries []Delivery, now Instant) MessageStatus {
	seen := map[MessageStatus]int{}
	for _, d := range deliveries {
		if d.State != DeliveryFanned {
			seen[d.Status(now)]++
		}
	}
	for _, status := range []MessageStatus{MessageDelivered, MessageQueued, MessageExpired, MessageDeadLetter, MessageAcked} {
		if seen[status] > 0 {
			return status
		}
	}
	return MessageDelivered // a record whose deliveries a reader's index does not show yet
}

// RoleAddressPrefix and a role's wire form are the role's address.
const RoleAddressPrefix = "topic:role:"

// The other forms of an address.
const (
	topicPrefix = "topic:"
	ctoAddress  = "topic:cto" // of the one legacy role
)

// An address is where a message goes: an agent's inbox, a role's, or everybody
// who follows a topic.
type address struct {
	inbox string // "" for a topic
	topic string
	wire  string // of the role whose inbox it is; "" for one that has no key
}

// parseAddress reads an address. A role's messages stay in an inbox under the
// role's own address, which no agent's id can take: it starts with topic:.
func parseAddress(field, to string) (address, error) {
	to = strings.TrimSpace(to)
	name, toTopic := strings.CutPrefix(to, topicPrefix)
	if err := checkID(field, name); err != nil {
		return address{}, err
	}
	switch {
	case strings.TrimSpace(name) == "":
		return address{}, Invalid(field, field+" must name an agent or a topic")
	case to == RoleAddressPrefix:
		return address{}, Invalid(field, field+" must name a role")
	case isRoleAddress(to):
		wire := strings.TrimPrefix(to, RoleAddressPrefix)
		if _, err := ParseRoleWire(wire); err != nil {
			wire = ""
		}
		return address{inbox: to, wire: wire}, nil
	case !toTopic:
		return address{inbox: to}, nil
	}
	return address{topic: strings.TrimSpace(name)}, nil
}

// isRoleAddress tells whether an address names a role (contract 5.2).
func isRoleAddress(to string) bool {
	return to == ctoAddress || strings.HasPrefix(to, RoleAddressPrefix)
}

// isAgentInbox tells whether an agent's id names its own inbox: one that looks
// like a topic's address has none.
func isAgentInbox(agentID string) bool { return !strings.HasPrefix(agentID, topicPrefix) }

func checkPriority(priority int64) error {
	if priority < MinPriority || priority > MaxPriority {
		return Invalid("priority", fmt.Sprintf("priority must be %d to %d", MinPriority, MaxPriority))
	}
	return nil
}

func checkMessageTTL(ms int64) error {
	if ms < 1 || ms > MaxMessageTTL.Milliseconds() {
		return Invalid("ttl_ms", fmt.Sprintf("ttl_ms must be 1 to %d", MaxMessageTTL.Milliseconds()))
	}
	return nil
}
