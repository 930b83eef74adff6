package ddb

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
)

const (
	// inlineRecipients are the bytes of recipients that a record holds itself,
	// so that it stays within one write unit.
	inlineRecipients = 256
	// recipientsPart are the recipients of an item of their own: 500 ids of 512
	// bytes stay below DynamoDB's 400 KB.
	recipientsPart = 500
	// fanoutParallel bounds the puts of one fan-out under way: as many as the
	// client keeps connections.
	fanoutParallel = 128
	// followerPage is the entries read of a topic's shard at once.
	followerPage = 1000
)

const writtenAttr = "written_ms"

// Followers reads a topic's entries from all its shards at once and then the
// agents they name. Cost: 2 round trips up to 4,000 entries; the entries and 1
// read unit an agent. IAM: Query, BatchGetItem.
func (s *Store) Followers(ctx context.Context, topic string) ([]core.Follower, error) {
	shards := make([][]item, topicShards)
	err := parallel(topicShards, func(shard int) error {
		var err error
		shards[shard], err = s.allKeys(ctx, query{
			condition: "pk = :pk", limit: followerPage,
			values: item{":pk": text(topicPartition(topic, shard))},
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	entries := slices.Concat(shards...)
	slices.SortFunc(entries, func(a, b item) int { return strings.Compare(sortValue(a, sk), sortValue(b, sk)) })
	return s.followers(ctx, entries)
}

func (s *Store) followers(ctx context.Context, entries []item) ([]core.Follower, error) {
	followers := make([]core.Follower, len(entries))
	batches := (len(entries) + batchLimit - 1) / batchLimit
	err := parallel(batches, func(i int) error {
		batch := followers[i*batchLimit : min((i+1)*batchLimit, len(entries))]
		keys := make([]key, len(batch))
		for j := range batch {
			r := reader{it: entries[i*batchLimit+j]}
			batch[j] = core.Follower{AgentID: r.text(sk), WrittenAt: r.instant(writtenAttr)}
			if keys[j] = agentKey(batch[j].AgentID); r.err != nil {
				return r.err
			}
		}
		found, err := s.batchGet(ctx, keys)
		for j := range batch {
			if err == nil {
				batch[j].Agent, _, err = readAgent(found[keys[j]])
			}
		}
		return err
	})
	return followers, err
}

// allKeys reads a whole partition, page by page.
func (s *Store) allKeys(ctx context.Context, q query) ([]item, error) {
	var all []item
	condition := q.condition
	for {
		page, more, err := s.keys(ctx, q)
		if err != nil {
			return nil, err
		}
		if all = append(all, page...); !more || len(page) == 0 {
			return all, nil
		}
		q.condition = condition
		q.startAfter(sk, sortValue(page[len(page)-1], sk))
	}
}

// ForgetFollowers removes entries that were not written again since they were
// seen. Cost: 1 write unit an entry. IAM: DeleteItem.
func (s *Store) ForgetFollowers(ctx context.Context, topic string, entries []core.Follower) error {
	return boundedParallel(len(entries), fanoutParallel, func(i int) error {
		in := &dynamodb.DeleteItemInput{
			TableName:                 aws.String(s.table),
			Key:                       followerKey(topic, entries[i].AgentID).item(),
			ConditionExpression:       aws.String("written_ms = :seen"),
			ExpressionAttributeValues: item{":seen": instant(entries[i].WrittenAt)},
		}
		err := s.write(ctx, func(ctx context.Context, trace func(*dynamodb.Options)) error {
			_, err := s.client.DeleteItem(ctx, in, trace)
			return err
		})
		if _, failed := failedCondition(err); failed {
			return nil
		}
		return err
	})
}

// putRecipients stores a record's recipients apart when they are many, and
// tells in how many items. They go before the record: it is what counts.
func (s *Store) putRecipients(ctx context.Context, record core.Delivery) (int, error) {
	if standInRecord(record.Recipients) {
		return 0, nil
	}
	var writes []types.WriteRequest
	for part := range slices.Chunk(record.Recipients, recipientsPart) {
		it := recipientsKey(record.ID, len(writes)).item()
		it[recipientsAttr] = texts(part)
		it[ttl] = number(s.collectAfter(record.ExpiresAt))
		writes = append(writes, types.WriteRequest{PutRequest: &types.PutRequest{Item: it}})
	}
	for batch := range slices.Chunk(writes, 25) {
		if err := s.batchWrite(ctx, batch); err != nil {
			return 0, err
		}
	}
	return len(writes), nil
}

func standInRecord(recipients []string) bool {
	size := 0
	for _, id := range recipients {
		size += len(id)
	}
	return size <= inlineRecipients
}

// setRecipients lets a record hold its recipients, or tell where they are.
func setRecipients(it item, recipients []string, parts int) {
	switch {
	case parts > 0:
		it[recipientPartsAttr] = number(int64(parts))
	case len(recipients) > 0:
		it[recipientsAttr] = texts(recipients)
	}
}

// ReadRecord reads a record with all its recipients. Cost: 1 round trip, 2 when
// they are many. IAM: GetItem, BatchGetItem.
func (s *Store) ReadRecord(ctx context.Context, messageID string) (core.Delivery, bool, error) {
	it, err := s.get(ctx, recordKey(messageID))
	if err != nil || it == nil {
		return core.Delivery{}, false, err
	}
	record, err := readDelivery(it)
	if err != nil {
		return core.Delivery{}, false, err
	}
	r := reader{it: it}
	parts := make([]item, r.number(recipientPartsAttr))
	for i := range parts {
		parts[i] = recipientsKey(messageID, i).item()
	}
	if parts, err = s.itemsOf(ctx, parts); err != nil {
		return core.Delivery{}, false, err
	}
	for _, part := range parts {
		held := reader{it: part}
		if record.Recipients = append(record.Recipients, held.texts(recipientsAttr)...); held.err != nil {
			return core.Delivery{}, false, held.err
		}
	}
	return record, r.err == nil, r.err
}

// Deliver puts every delivery that is not there yet. A put never replaces one:
// what was acknowledged before a resumed fan-out came by stays so. One that
// fails does not keep the others. Cost: 1 write unit and 3 index units a
// recipient, 1 for one that has it already; the puts run at once, 64 at most.
// IAM: PutItem.
func (s *Store) Deliver(ctx context.Context, record core.Delivery) error {
	pending := core.Delivery{Message: record.Message, State: core.DeliveryPending}
	content := contentItem(pending)
	return boundedParallel(len(record.Recipients), fanoutParallel, func(i int) error {
		d := pending
		d.Inbox = record.Recipients[i]
		_, _, err := s.put(ctx, delivered(maps.Clone(content), d), "attribute_not_exists(pk)", nil)
		return err
	})
}

// FinishFanout takes the record out of the due index. Finding it finished is
// success. Cost: 1 write unit and 1 index unit. IAM: UpdateItem.
func (s *Store) FinishFanout(ctx context.Context, record core.Delivery) error {
	_, _, err := s.apply(ctx, update{
		key:       recordKey(record.ID),
		set:       []string{"delivery_state = :fanned", "#ttl = :ttl"},
		remove:    []string{duePK, dueSK, visibleAttr},
		condition: []string{"delivery_state = :fanning"},
		names:     map[string]string{"#ttl": ttl},
		values: item{
			":fanned":  text(string(core.DeliveryFanned)),
			":fanning": text(string(core.DeliveryFanning)),
			":ttl":     number(s.collectAfter(record.ExpiresAt)),
		},
	})
	return err
}

// boundedParallel is parallel with at most width calls under way.
func boundedParallel(n, width int, fn func(i int) error) error {
	var next atomic.Int64
	width = min(n, width)
	return parallel(width, func(first int) error {
		var failed error
		for i := first; i < n; i = width + int(next.Add(1)) - 1 {
			if err := fn(i); err != nil && failed == nil {
				failed = err
			}
		}
		return failed
	})
}
