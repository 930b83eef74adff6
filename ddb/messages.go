package ddb

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
)

// The attributes of a delivery and of a topic message's record.
const (
	deliveryStateAttr  = "delivery_state"
	messageTypeAttr    = "message_type"
	fromAttr           = "from_agent"
	toAttr             = "to_agent"
	topicAttr          = "topic"
	priorityAttr       = "priority"
	ttlAttr            = "ttl_ms"
	correlationAttr    = "correlation_id"
	traceAttr          = "trace_id"
	roleAttr           = "role_key_wire"
	payloadAttr        = "payload"
	payloadSizeAttr    = "payload_bytes" // of a payload that is kept apart
	payloadFramedAttr  = "payload_framed"
	maxDeliveriesAttr  = "max_deliveries"
	deliveriesAttr     = "deliveries"
	deliveredAttr      = "delivered_ms"
	visibleAttr        = "visible_ms"
	receiptAttr        = "receipt"
	ackedAttr          = "acked_ms"
	lastErrorAttr      = "last_error"
	deadLetteringsAttr = "dead_letterings"
	failedAttr         = "failed_ms"
	redrivenAttr       = "redriven_ms"
	recipientsAttr     = "recipients"
	recipientPartsAttr = "recipient_parts" // items that hold the recipients instead
	messageIDAttr      = "message_id"
)

// deliveryItem encodes a delivery or a record with the index entries of its
// state.
func deliveryItem(d core.Delivery) item { return delivered(contentItem(d), d) }

// delivered takes the content of a message and makes it the item of one delivery.
// For another one it takes a copy.
func delivered(content item, d core.Delivery) item {
	it := addressed(content, deliveryKey(d.Inbox, d.ID), d)
	it[listPK] = text(tracePartition(d.TraceID, shardOf(d.ID+d.Inbox, traceShards)))
	it[listSK] = text(dueKey(d.CreatedAt, d.ID+"#"+recipient(d)))
	partition, deadline := dueEntry(d)
	it[duePK], it[dueSK] = text(partition), text(deadline)
	if d.Inbox != "" {
		it[inboxSK] = text(pendingPosition(d))
	}
	return it
}

// recipient tells the deliveries of one message apart in the order of an index. A
// message to a role has one delivery, whose inbox is long and need not be told
// again.
func recipient(d core.Delivery) string {
	if wireOfInbox(d.Inbox) != "" {
		return ""
	}
	return d.Inbox
}

// wireOfInbox is the wire form of the role whose inbox it is, "" for any other.
func wireOfInbox(inbox string) string {
	wire, ofRole := strings.CutPrefix(inbox, core.RoleAddressPrefix)
	if !ofRole {
		return ""
	}
	if _, err := core.ParseRoleWire(wire); err != nil {
		return ""
	}
	return wire
}

// dueEntry is where the sweep finds what is pending or fanning out.
func dueEntry(d core.Delivery) (partition, deadline string) {
	shard := func(shards uint32) int { return shardOf(d.ID+d.Inbox, shards) }
	if d.State == core.DeliveryFanning {
		return fanoutPartition(shard(fanoutShards)), dueKey(d.VisibleAt, d.ID)
	}
	return messagePartition(d.Priority >= core.UrgentPriority, shard(messageShards)), dueKey(d.ExpiresAt, d.ID+"#"+recipient(d))
}

// messageItem encodes everything of a delivery but its index entries. What is
// zero is left out.
func messageItem(k key, d core.Delivery) item { return addressed(contentItem(d), k, d) }

// addressed adds what depends on the inbox.
func addressed(it item, k key, d core.Delivery) item {
	it[pk], it[sk] = text(k.pk), text(k.sk)
	if d.To != d.Inbox { // else the key tells it
		it[toAttr] = text(d.To)
	}
	if d.RoleKeyWire != wireOfInbox(d.Inbox) {
		it[roleAttr] = text(d.RoleKeyWire)
	}
	return it
}

// deliveryAttributes are about as many as a delivery has.
const deliveryAttributes = 24

// contentItem encodes what all deliveries of a message have in common, and the
// state.
func contentItem(d core.Delivery) item {
	it := make(item, deliveryAttributes)
	it[deliveryStateAttr] = text(string(d.State))
	it[messageIDAttr] = text(d.ID)
	it[messageTypeAttr] = text(string(d.Type))
	it[fromAttr] = text(d.From)
	it[topicAttr] = text(d.Topic)
	it[priorityAttr] = number(d.Priority)
	it[ttlAttr] = number(d.TTL.Milliseconds())
	it[createdAttr] = instant(d.CreatedAt)
	it[expiresAttr] = instant(d.ExpiresAt)
	it[correlationAttr] = text(d.CorrelationID)
	it[traceAttr] = text(d.TraceID)
	putPayload(it, d.Payload)
	putTexts(it, map[string]string{
		receiptAttr: d.Receipt, lastErrorAttr: d.LastError, reasonAttr: string(d.Reason),
	})
	putNumbers(it, map[string]int64{
		maxDeliveriesAttr: d.MaxDeliveries, deliveriesAttr: d.Deliveries, deliveredAttr: int64(d.DeliveredAt),
		visibleAttr: int64(d.VisibleAt), ackedAttr: int64(d.AckedAt), deadLetteringsAttr: d.DeadLetterings,
		failedAttr: int64(d.FailedAt), redrivenAttr: int64(d.RedrivenAt),
	})
	return it
}

func putTexts(it item, values map[string]string) {
	for name, v := range values {
		if v != "" {
			it[name] = text(v)
		}
	}
}

func putNumbers(it item, values map[string]int64) {
	for name, v := range values {
		if v != 0 {
			it[name] = number(v)
		}
	}
}

// readDelivery decodes a delivery or a record.
func readDelivery(it item) (core.Delivery, error) {
	if it == nil {
		return core.Delivery{}, nil
	}
	r := reader{it: it}
	inbox, ofInbox := strings.CutPrefix(r.text(pk), inboxPartition(""))
	if !ofInbox {
		inbox = ""
	}
	d := core.Delivery{
		Message: core.Message{
			ID:            r.text(messageIDAttr),
			Type:          core.MessageType(r.text(messageTypeAttr)),
			From:          r.text(fromAttr),
			To:            r.text(toAttr),
			Topic:         r.text(topicAttr),
			Priority:      r.number(priorityAttr),
			TTL:           r.duration(ttlAttr),
			CreatedAt:     r.instant(createdAttr),
			ExpiresAt:     r.instant(expiresAttr),
			CorrelationID: r.text(correlationAttr),
			TraceID:       r.text(traceAttr),
			RoleKeyWire:   r.text(roleAttr),
			MaxDeliveries: r.number(maxDeliveriesAttr),
			Payload:       r.payload(),
		},
		Inbox:          inbox,
		State:          core.DeliveryState(r.text(deliveryStateAttr)),
		Deliveries:     r.number(deliveriesAttr),
		DeliveredAt:    r.instant(deliveredAttr),
		VisibleAt:      r.instant(visibleAttr),
		Receipt:        r.text(receiptAttr),
		AckedAt:        r.instant(ackedAttr),
		LastError:      r.text(lastErrorAttr),
		DeadLetterings: r.number(deadLetteringsAttr),
		Reason:         core.DeadLetterReason(r.text(reasonAttr)),
		FailedAt:       r.instant(failedAttr),
		RedrivenAt:     r.instant(redrivenAttr),
	}
	if !r.has(toAttr) {
		d.To = inbox
	}
	if !r.has(roleAttr) {
		d.RoleKeyWire = wireOfInbox(inbox)
	}
	if r.has(recipientsAttr) {
		d.Recipients = r.texts(recipientsAttr)
	}
	return d, r.err
}

// PutMessage is one PutItem, or one transaction where more than the message has
// to hold: the sender's fence, the recipient's presence, a stored answer, or
// being the answer to a correlation id. The key is the message's own, so a put
// that finds it taken finds its own earlier try.
//
// Cost: 1 round trip; 1 write unit and 3 index units, in a transaction 1 more
// for the message and 2 for every other item. Before it, a payload over 8 KB
// takes 1 S3 put and a topic's recipients, when they are many, 1 round trip and
// 1 unit a KB. IAM: PutItem, ConditionCheckItem, BatchWriteItem, s3:PutObject,
// s3:DeleteObject.
func (s *Store) PutMessage(ctx context.Context, p core.Publication) (core.PublicationOutcome, error) {
	if err := s.storePayload(ctx, p.Delivery.ID, p.Delivery.Payload); err != nil {
		return core.PublicationOutcome{}, err
	}
	parts, err := s.putRecipients(ctx, p.Delivery)
	if err != nil {
		return core.PublicationOutcome{}, err
	}
	it := deliveryItem(p.Delivery)
	setRecipients(it, p.Delivery.Recipients, parts)
	outcome, err := s.putMessage(ctx, p, it)
	if err == nil && (outcome.Stale.Set || outcome.Offline || outcome.Repeated.Set) {
		// Nothing refers to the payload. What cannot be removed now the bucket's
		// lifecycle removes.
		_ = s.dropPayload(ctx, p.Delivery.ID, p.Delivery.Payload)
	}
	return outcome, err
}

func (s *Store) putMessage(ctx context.Context, p core.Publication, it item) (core.PublicationOutcome, error) {
	if !p.Fence.Set && !p.Online && !p.Once.Set && !p.Answer {
		_, fresh, err := s.put(ctx, it, "attribute_not_exists(pk)", nil)
		return core.PublicationOutcome{Replayed: !fresh}, err
	}
	for range conflictAttempts {
		t := s.publication(p, it)
		reasons, err := s.commit(ctx, t.actions)
		if err != nil || reasons == nil {
			return core.PublicationOutcome{}, err
		}
		if t.failed(reasons, t.answer) {
			p.Answer = false // there is an answer already: the message is a message
			continue
		}
		return t.outcome(p, reasons)
	}
	return core.PublicationOutcome{}, core.Refuse(core.CodeContended, "others kept answering the same question")
}

// publicationActions are the actions of a publication's transaction, and where
// each is; -1 is nowhere.
type publicationActions struct {
	actions                            []types.TransactWriteItem
	message, once, answer, from, inbox int
}

func (s *Store) publication(p core.Publication, it item) publicationActions {
	t := publicationActions{once: -1, answer: -1, from: -1, inbox: -1}
	add := func(action types.TransactWriteItem) int {
		t.actions = append(t.actions, action)
		return len(t.actions) - 1
	}
	t.message = add(s.putNew(it))
	if p.Once.Set {
		t.once = add(s.putAnswer(p.Once.Value, p.Started))
	}
	if p.Answer {
		t.answer = add(s.putFirstAnswer(p.Delivery, p.Started))
	}
	now := core.InstantOf(p.Started)
	switch {
	case p.Fence.Set && p.Online && p.Fence.Value.AgentID == p.Delivery.Inbox:
		t.from = add(s.checkAgent(p.Delivery.Inbox, fenceCondition+" AND "+onlineCondition, fenceValues(p.Fence.Value), onlineValues(now)))
		t.inbox = t.from
	default:
		if p.Fence.Set {
			t.from = add(s.checkFence(p.Fence.Value))
		}
		if p.Online {
			t.inbox = add(s.checkAgent(p.Delivery.Inbox, onlineCondition, onlineValues(now)))
		}
	}
	return t
}

func (t publicationActions) failed(reasons []reason, action int) bool {
	return action >= 0 && reasons[action].code == conditionFailed
}

// outcome reads a refusal. The stored answer of the same request comes first:
// what happened to the agents since does not undo it.
func (t publicationActions) outcome(p core.Publication, reasons []reason) (core.PublicationOutcome, error) {
	if t.failed(reasons, t.once) {
		record, err := readAnswer(p.Once.Value.ID, reasons[t.once].item)
		return core.PublicationOutcome{Repeated: core.Some(record)}, err
	}
	if t.failed(reasons, t.message) {
		return core.PublicationOutcome{Replayed: true}, nil
	}
	if t.failed(reasons, t.from) {
		agent, _, err := readAgent(reasons[t.from].item)
		if err != nil || !p.Online || agent.Generation != p.Fence.Value.Generation || agent.Final {
			return core.PublicationOutcome{Stale: core.Some(agent)}, err
		}
	}
	return core.PublicationOutcome{Offline: true}, nil
}

func (s *Store) putNew(it item) types.TransactWriteItem {
	return types.TransactWriteItem{Put: &types.Put{
		TableName: aws.String(s.table), Item: it, ConditionExpression: aws.String("attribute_not_exists(pk)"),
	}}
}

// The conditions on an agent's item that other writes depend on.
const (
	fenceCondition  = "generation = :generation AND attribute_not_exists(finished)"
	onlineCondition = "presence = :online AND lease_ms >= :now"
)

func fenceValues(f core.AgentFence) item { return item{":generation": number(f.Generation)} }

func onlineValues(now core.Instant) item {
	return item{":online": text(string(core.StatusOnline)), ":now": instant(now)}
}

// checkFence is a transaction's condition on an agent's fence.
func (s *Store) checkFence(f core.AgentFence) types.TransactWriteItem {
	return s.checkAgent(f.AgentID, fenceCondition, fenceValues(f))
}

func (s *Store) checkAgent(agentID, condition string, values ...item) types.TransactWriteItem {
	all := item{}
	for _, v := range values {
		for name, value := range v {
			all[name] = value
		}
	}
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
		TableName:                           aws.String(s.table),
		Key:                                 agentKey(agentID).item(),
		ConditionExpression:                 aws.String(condition),
		ExpressionAttributeValues:           all,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

func (s *Store) updateAction(u update) types.TransactWriteItem {
	action := &types.Update{
		TableName:                           aws.String(s.table),
		Key:                                 u.key.item(),
		UpdateExpression:                    aws.String(u.expression()),
		ExpressionAttributeNames:            u.names,
		ExpressionAttributeValues:           u.values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if len(u.condition) > 0 {
		action.ConditionExpression = aws.String(strings.Join(u.condition, " AND "))
	}
	return types.TransactWriteItem{Update: action}
}

// reason is what a cancelled transaction tells about one action.
type reason struct {
	code cancellation
	item item // that failed the condition; nil: there is none
}

// commit carries out a transaction. Its reasons are nil when it did, and tell
// about every action when a condition failed; nothing was done then. It waits,
// within bounds, for other transactions that hold an item. All its requests carry
// one token: where an earlier one was carried out and its answer got lost, DynamoDB
// answers a later one as it answered that (for ten minutes), instead of with the
// conditions that the transaction itself has made false.
func (s *Store) commit(ctx context.Context, actions []types.TransactWriteItem) ([]reason, error) {
	in := &dynamodb.TransactWriteItemsInput{TransactItems: actions, ClientRequestToken: aws.String(rand.Text())}
	var sent attempts
	for attempt := 1; ; attempt++ {
		_, err := s.client.TransactWriteItems(ctx, in, sent.trace)
		if err == nil {
			return nil, nil
		}
		switch cancellationOf(err) {
		case notCancelled:
			return nil, sent.failure(err)
		case cancelRefused:
			return nil, core.Wrap(core.CodeInternal, "the store refused a transaction", err)
		case conditionFailed:
			return reasonsOf(err), nil
		}
		if attempt < conflictAttempts && core.Backoff(ctx, attempt) == nil {
			continue
		}
		if err := sent.failure(err); core.CodeOf(err) == core.CodeOutcomeUnknown {
			return nil, err // of an earlier request
		}
		return nil, core.Wrap(core.CodeContended, "others kept holding the same items; nothing was done", err)
	}
}

func reasonsOf(err error) []reason {
	var cancelled *types.TransactionCanceledException
	if !errors.As(err, &cancelled) {
		return nil
	}
	reasons := make([]reason, len(cancelled.CancellationReasons))
	for i, r := range cancelled.CancellationReasons {
		reasons[i] = reason{cancellationCode(r), r.Item}
	}
	return reasons
}

// putFirstAnswer is a transaction's action that makes a message the answer to
// its correlation id, unless there is one that has not expired.
func (s *Store) putFirstAnswer(d core.Delivery, now time.Time) types.TransactWriteItem {
	it := answerKey(d.CorrelationID).item()
	it[messageIDAttr] = text(d.ID)
	it[expiresAttr] = instant(d.ExpiresAt)
	it[ttl] = number(d.ExpiresAt.Time().Unix() + 1)
	putPayload(it, d.Payload)
	return types.TransactWriteItem{Put: &types.Put{
		TableName:                 aws.String(s.table),
		Item:                      it,
		ConditionExpression:       aws.String("attribute_not_exists(pk) OR expires_ms <= :now"),
		ExpressionAttributeValues: item{":now": instant(core.InstantOf(now))},
	}}
}

// ReadAnswer reads the answer to a correlation id. Cost: 1 request, 1 read unit
// per 4 KB, and 1 S3 get for a large payload. IAM: GetItem, s3:GetObject.
func (s *Store) ReadAnswer(ctx context.Context, correlationID string, now core.Instant) (core.Answer, bool, error) {
	it, err := s.get(ctx, answerKey(correlationID))
	if err != nil || it == nil {
		return core.Answer{}, false, err
	}
	r := reader{it: it}
	answer := core.Answer{
		CorrelationID: correlationID, MessageID: r.text(messageIDAttr), ExpiresAt: r.instant(expiresAttr), Payload: r.payload(),
	}
	if r.err != nil || answer.ExpiresAt <= now {
		return core.Answer{}, false, r.err
	}
	if answer.Payload.JSON == nil {
		answer.Payload, err = s.loadPayload(ctx, answer.MessageID, answer.Payload)
	}
	return answer, err == nil, err
}

// ReadDelivery reads one delivery or record. Cost: 1 request, 1 read unit per 4
// KB. IAM: GetItem.
func (s *Store) ReadDelivery(ctx context.Context, inbox, messageID string) (core.Delivery, bool, error) {
	it, err := s.get(ctx, deliveryKey(inbox, messageID))
	if err != nil || it == nil {
		return core.Delivery{}, false, err
	}
	d, err := readDelivery(it)
	return d, err == nil, err
}

// ReadTrace reads a trace's entries from all its shards and then what they lead
// to. Cost: 2 round trips; 4 index requests a page and a batch for every 100
// found. IAM: Query on the index list, BatchGetItem.
func (s *Store) ReadTrace(ctx context.Context, traceID string, limit int) ([]core.Delivery, bool, error) {
	m, err := s.merge(ctx, traceShards, listSK, limit, func(shard int) query {
		return query{
			index: listIndex, condition: "list_pk = :pk", limit: limit,
			values: item{":pk": text(tracePartition(traceID, shard))},
		}
	})
	if err != nil {
		return nil, false, err
	}
	items, err := s.itemsOf(ctx, m.entries)
	if err != nil {
		return nil, false, err
	}
	found, err := readAll(items, readDelivery)
	return found, m.more, err
}

// itemsOf reads the items that index entries lead to, in their order; one that
// is gone is left out.
func (s *Store) itemsOf(ctx context.Context, entries []item) ([]item, error) {
	keys := make([]key, 0, len(entries))
	for _, entry := range entries {
		keys = append(keys, keyOf(entry))
	}
	batches := (len(keys) + batchLimit - 1) / batchLimit
	found := make([]map[key]item, batches)
	err := parallel(batches, func(i int) error {
		var err error
		found[i], err = s.batchGet(ctx, keys[i*batchLimit:min((i+1)*batchLimit, len(keys))])
		return err
	})
	if err != nil {
		return nil, err
	}
	items := make([]item, 0, len(keys))
	for i, k := range keys {
		if it, ok := found[i/batchLimit][k]; ok {
			items = append(items, it)
		}
	}
	return items, nil
}

// putPayload encodes a small payload, or the size of one that is kept apart.
func putPayload(it item, p core.Payload) {
	if p.JSON != nil && len(p.JSON) <= inlinePayload {
		it[payloadAttr] = text(string(p.JSON))
		return
	}
	it[payloadSizeAttr], it[payloadFramedAttr] = number(int64(p.Size.Answer)), number(int64(p.Size.Framed))
}

func (r *reader) payload() core.Payload {
	if r.has(payloadSizeAttr) {
		return core.Payload{Size: core.PayloadSize{Answer: int(r.number(payloadSizeAttr)), Framed: int(r.number(payloadFramedAttr))}}
	}
	return core.NewPayload(json.RawMessage(r.text(payloadAttr)))
}

// Messages configures what the messages need beside the table.
type Messages struct {
	// Retention is how long acknowledged and dead-lettered messages stay
	// readable; zero takes core.DefaultMessageRetention.
	Retention time.Duration
	// Payloads keeps payloads over 8 KB. Its lifecycle has to keep them for the
	// longest life of a message and the retention.
	Payloads PayloadBucket
}

// KeepMessages configures the store. It refuses a retention under a day.
func (s *Store) KeepMessages(m Messages) error {
	if m.Retention == 0 {
		m.Retention = core.DefaultMessageRetention
	}
	if m.Retention < core.MinMessageRetention {
		return fmt.Errorf("messages must be kept for at least %v", core.MinMessageRetention)
	}
	s.retention, s.payloads = m.Retention, m.Payloads
	return nil
}

// collectAfter is the time to live of what is over at a moment.
func (s *Store) collectAfter(over core.Instant) int64 {
	return over.Add(s.retention).Time().Unix() + 1
}
