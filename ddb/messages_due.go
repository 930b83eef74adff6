package ddb

import (
	"context"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
)

// MessageShards tells the shards of DueMessages, both lanes, and of DueFanouts.
func (s *Store) MessageShards() (messages, fanouts int) { return 2 * messageShards, fanoutShards }

// DueMessages reads a page of what has expired. Cost: 2 round trips, 1 when
// there is nothing; the keys read and 1 read unit per 4 KB a delivery. IAM:
// Query on the index due, BatchGetItem.
func (s *Store) DueMessages(ctx context.Context, shard int, now core.Instant, after string, limit int) (core.DueDeliveries, error) {
	return s.dueDeliveries(ctx, laneShard(shard), now, after, limit)
}

func laneShard(shard int) string {
	return messagePartition(shard >= messageShards, shard%messageShards)
}

// DueFanouts reads a page of fan-outs to resume. Cost and IAM as DueMessages.
func (s *Store) DueFanouts(ctx context.Context, shard int, now core.Instant, after string, limit int) (core.DueDeliveries, error) {
	return s.dueDeliveries(ctx, fanoutPartition(shard), now, after, limit)
}

func (s *Store) dueDeliveries(ctx context.Context, partition string, now core.Instant, after string, limit int) (core.DueDeliveries, error) {
	due, err := s.dueInOne(ctx, partition, now, after, limit)
	if err != nil || len(due.entries) == 0 {
		return core.DueDeliveries{}, err
	}
	page := core.DueDeliveries{Oldest: due.oldest, Next: due.next}
	items, err := s.itemsOf(ctx, due.entries)
	if err != nil {
		return page, err
	}
	page.Deliveries, page.Unreadable = readable(items, readDelivery)
	return page, nil
}

const (
	// countedEntries bounds the entries that one roll-up counts.
	countedEntries = 2_000_000
	// countParallel bounds its requests under way.
	countParallel = 16
)

// CountMessages counts index entries: 0.5 read units per 4 KB of keys, that is
// about 16 for every 1,000 messages, and 136 requests. IAM: Query on the index due.
func (s *Store) CountMessages(ctx context.Context, now core.Instant) (core.MessageCounts, bool, error) {
	var urgent, normal, dead, looked atomic.Int64
	var cut atomic.Bool
	err := boundedParallel(2*messageShards+deadLetterShards, countParallel, func(i int) error {
		partition, from, sum := laneShard(i), duePrefix(now+1), &normal
		switch {
		case i >= 2*messageShards:
			partition, from, sum = deadPartition(i-2*messageShards), "0", &dead
		case i >= messageShards:
			sum = &urgent
		}
		limit := max(countedEntries-int(looked.Load()), 1)
		count, done, err := s.count(ctx, &dynamodb.QueryInput{
			TableName:                 aws.String(s.table),
			IndexName:                 aws.String(dueIndex),
			KeyConditionExpression:    aws.String("due_pk = :pk AND due_sk > :from"),
			ExpressionAttributeValues: item{":pk": text(partition), ":from": text(from)},
			Select:                    types.SelectCount,
		}, limit)
		looked.Add(count)
		sum.Add(count)
		if !done {
			cut.Store(true)
		}
		return err
	})
	counts := core.MessageCounts{Urgent: urgent.Load(), Normal: normal.Load(), DeadLetters: dead.Load(), AsOf: now}
	return counts, !cut.Load(), err
}

const (
	urgentAttr = "urgent"
	normalAttr = "normal"
	deadAttr   = "dead"
	asOfAttr   = "as_of_ms"
)

// StoreCounts replaces the counts unless later ones stand. Cost: 1 write unit.
// IAM: PutItem.
func (s *Store) StoreCounts(ctx context.Context, c core.MessageCounts) error {
	it := countsKey().item()
	it[urgentAttr], it[normalAttr], it[deadAttr] = number(c.Urgent), number(c.Normal), number(c.DeadLetters)
	it[asOfAttr] = instant(c.AsOf)
	_, _, err := s.put(ctx, it, "attribute_not_exists(pk) OR as_of_ms <= :as_of", item{":as_of": instant(c.AsOf)})
	return err
}

// ReadCounts reads the counts. Cost: 1 request, 1 read unit. IAM: GetItem.
func (s *Store) ReadCounts(ctx context.Context) (core.MessageCounts, error) {
	it, err := s.get(ctx, countsKey())
	if err != nil || it == nil {
		return core.MessageCounts{}, err
	}
	r := reader{it: it}
	counts := core.MessageCounts{
		Urgent: r.number(urgentAttr), Normal: r.number(normalAttr), DeadLetters: r.number(deadAttr), AsOf: r.instant(asOfAttr),
	}
	return counts, r.err
}
