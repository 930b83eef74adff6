package core

import "context"

// AgentFence makes a write conditional on the agent's generation being this one
// and not finished.
type AgentFence struct {
	AgentID    string
	Generation int64
}

// Publication is a message on its way into the store.
type Publication struct {
	// Delivery is what to store: a delivery in its inbox or, with Inbox "", the
	// record of a topic message with its recipients.
	Delivery Delivery
	// Answer makes the message the answer to its correlation id, unless there is
	// one already.
	Answer bool
	// Once stores the operation's own answer with the message.
	Once Opt[IdempotencyRecord]
	// Fence is the sender's.
	Fence Opt[AgentFence]
	// Online stores nothing unless the inbox's agent is online with a live
	// lease.
	Online bool
	WriteStamp
}

// PublicationOutcome tells what became of a publication; at most one field is
// set, none when the message was stored.
type PublicationOutcome struct {
	// Stale is the sender as it stands (the zero Agent when unknown) when its
	// fence did not hold.
	Stale Opt[Agent]
	// Offline tells that the recipient is not online.
	Offline bool
	// Repeated is the answer that is stored already.
	Repeated Opt[IdempotencyRecord]
	// Replayed: an earlier try of this write had done it.
	Replayed bool
}

// Follower is an agent that may follow a topic: an entry is a hint, the agent
// decides.
type Follower struct {
	AgentID   string
	WrittenAt Instant // of the entry
	Agent     Agent   // the zero Agent when it is unknown
}

// InboxScan asks for a page of an inbox's live deliveries: the pending ones in
// the order of draining, or those whose lease lapsed by the moment Lapsed, in
// the order they lapsed.
type InboxScan struct {
	Inbox  string
	Lapsed Opt[Instant]
	After  string // position of a previous page
	Limit  int
}

// InboxPage is a page of an inbox, strongly consistent.
type InboxPage struct {
	Deliveries []Delivery
	Next       string // position to continue from, "" at the end
	// Unreadable is the error of the first item that cannot be read; the page leaves
	// such items out.
	Unreadable error
}

// DeliveryChange is a write on one live, unexpired delivery. It applies only
// where every condition that is set holds.
type DeliveryChange struct {
	Inbox     string
	MessageID string

	// Seen: the delivery is still where the reader saw it.
	Seen Opt[Delivery]
	// Receipt: the lease it was handed out with is the latest, lapsed or not.
	Receipt Opt[string]
	// Unleased: no lease holds it.
	Unleased bool
	// Unspent: it has not been handed out as often as it may be.
	Unspent bool

	To            DeliveryState // acked or hidden
	VisibleAt     Instant       // of a hidden one: now gives it back at once
	Lease         string        // the receipt of a new lease; "" ends the lease
	HandedOut     bool          // count it, as of Started
	MaxDeliveries int64         // a stricter limit from now on; 0 keeps it
	Error         string        // of a nack; "" keeps the latest
}

// ChangeOutcome is what became of a change.
type ChangeOutcome struct {
	Done     bool
	Replayed bool
	// Stands is the delivery as it stands when the change was refused (the zero
	// Delivery when there is none), and after it otherwise.
	Stands Delivery
	// Err tells that the outcome of this change is unknown, or that it did not
	// happen, by its code.
	Err error
}

// DeadLettering makes a dead letter of a delivery or a record.
type DeadLettering struct {
	Seen   Delivery
	Reason DeadLetterReason
	Error  string // "" keeps that of the latest nack
	// Notice is what its sender gets in the same transaction, if it gets one.
	Notice Opt[Delivery]
	// Unmoved: the delivery must be where it was seen. Otherwise it must be live
	// and expired when the write starts.
	Unmoved bool
	WriteStamp
}

// Redrive makes a dead letter pending again, and keeps what it was.
type Redrive struct {
	Seen      Delivery // of the dead-lettering it belongs to
	ExpiresAt Instant
	TTL       Opt[int64] // ms
	// Recipients of a topic message's record that is to be fanned out now.
	Recipients []string
	WriteStamp
}

// DueDeliveries is a page of one shard of what has expired, or of fan-outs to
// resume.
type DueDeliveries struct {
	Deliveries []Delivery
	Oldest     Instant // the first entry's deadline; 0 when there is none
	Next       string
	// Unreadable is the error of the first item that cannot be read; the page leaves
	// such items out.
	Unreadable error
}

// DeadLetterScan asks for dead letters, newest first.
type DeadLetterScan struct {
	From, To Instant // failed within, both inclusive
	Before   string  // position of a previous page
	Limit    int
}

// DeadLetterPage is a page of dead letters. Each position is the one to
// continue from when its letter is the last a reader took.
type DeadLetterPage struct {
	Letters   []Delivery
	Positions []string
	Next      string // position to continue from after all of them; "" at the end
}

// MessageCounts are the pending messages and dead letters of the whole hub.
type MessageCounts struct {
	Urgent, Normal, DeadLetters int64
	AsOf                        Instant
}

// Answer is the first response to a correlation id.
type Answer struct {
	CorrelationID string
	MessageID     string
	ExpiresAt     Instant
	Payload       Payload
}

// MessageStore keeps the messages. Reads are strongly consistent except where
// said. Refusals that depend on the state are outcomes; an error is a failure
// of the store and says by its code whether the write may have happened.
type MessageStore interface {
	// PutMessage stores a publication, all of it or nothing.
	PutMessage(ctx context.Context, p Publication) (PublicationOutcome, error)
	// Followers returns whoever may follow the topic, in the order of their ids.
	Followers(ctx context.Context, topic string) ([]Follower, error)
	// ForgetFollowers removes entries that are still as they were seen.
	ForgetFollowers(ctx context.Context, topic string, entries []Follower) error
	// Deliver gives every recipient of a record its delivery, unless it has it.
	Deliver(ctx context.Context, record Delivery) error
	// FinishFanout marks a record whose recipients all have their delivery.
	FinishFanout(ctx context.Context, record Delivery) error
	// ReadRecord returns a topic message's record with its recipients; false
	// when there is none.
	ReadRecord(ctx context.Context, messageID string) (Delivery, bool, error)

	// ReadInbox returns a page of an inbox. Payloads that are kept apart are not
	// loaded.
	ReadInbox(ctx context.Context, s InboxScan) (InboxPage, error)
	// CountInbox counts an inbox's unexpired deliveries among its first limit.
	CountInbox(ctx context.Context, inbox string, now Instant, limit int) (int64, error)
	// LoadPayloads reads the payloads that are kept apart, in place. One that is
	// not there any more is Lost.
	LoadPayloads(ctx context.Context, deliveries []Delivery) error
	// ChangeDeliveries applies changes, each to a delivery of its own: the stamp
	// of one must not be found on the delivery by another. With a guard they
	// apply only while all of it holds; when it does not the refusal tells, and
	// nothing is changed.
	ChangeDeliveries(ctx context.Context, changes []DeliveryChange, guard InboxGuard, stamp WriteStamp) ([]ChangeOutcome, GuardRefusal, error)

	// DueMessages returns a page of what expired by now, of one shard.
	DueMessages(ctx context.Context, shard int, now Instant, after string, limit int) (DueDeliveries, error)
	// DueFanouts returns a page of fan-outs that should have finished by now, of
	// one shard.
	DueFanouts(ctx context.Context, shard int, now Instant, after string, limit int) (DueDeliveries, error)
	// MessageShards tells how many shards DueMessages and DueFanouts have.
	MessageShards() (messages, fanouts int)
	// DeadLetter applies d; false when its condition does not hold any more.
	DeadLetter(ctx context.Context, d DeadLettering) (bool, error)
	// DeadLetters returns a page of dead letters, redriven ones included. Which
	// there are may lag a moment behind.
	DeadLetters(ctx context.Context, s DeadLetterScan) (DeadLetterPage, error)
	// ReadDelivery returns one delivery, or a record with inbox ""; false when
	// there is none.
	ReadDelivery(ctx context.Context, inbox, messageID string) (Delivery, bool, error)
	// Requeue applies r; false when its dead-lettering is not the latest any
	// more, or was redriven.
	Requeue(ctx context.Context, r Redrive) (bool, error)

	// ReadTrace returns up to limit deliveries and records of a trace; more
	// tells that there are others. Which there are may lag a moment behind.
	ReadTrace(ctx context.Context, traceID string, limit int) (found []Delivery, more bool, err error)
	// ReadAnswer returns the answer to a correlation id; false when there is
	// none that is valid at now.
	ReadAnswer(ctx context.Context, correlationID string, now Instant) (Answer, bool, error)

	// CountMessages counts the whole hub's messages; false when it gave up
	// before it had counted them all. Counts may lag a moment behind.
	CountMessages(ctx context.Context, now Instant) (MessageCounts, bool, error)
	// StoreCounts and ReadCounts keep the counts for readers; zero when none
	// were stored.
	StoreCounts(ctx context.Context, c MessageCounts) error
	ReadCounts(ctx context.Context) (MessageCounts, error)
}
