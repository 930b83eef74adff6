package ddb

import (
	"context"

	"drawbridge/core"
)

// A duePage is a page of entries of the index due, earliest first. They are keys
// of the items they lead to, and may be early.
type duePage struct {
	entries []item
	oldest  core.Instant // the first entry's deadline
	next    string       // position to continue from; "" when none is left
}

// dueBefore asks for the entries of a partition whose deadline is earlier, from
// a position on.
func dueBefore(partition string, before core.Instant, after string, limit int) query {
	from := "0"
	if after != "" {
		from = after + "\x00" // the least text after it
	}
	return query{
		index: dueIndex, condition: "due_pk = :pk AND due_sk BETWEEN :from AND :before", limit: limit,
		values: item{":pk": text(partition), ":from": text(from), ":before": text(duePrefix(before))},
	}
}

// dueInAll reads a page over all shards. Cost: 1 request a shard, in parallel,
// and the keys read. IAM: Query on the index due.
func (s *Store) dueInAll(ctx context.Context, shards int, partition func(shard int) string, scan core.DueScan) (duePage, error) {
	m, err := s.merge(ctx, shards, dueSK, scan.Limit, func(shard int) query {
		return dueBefore(partition(shard), scan.Before, scan.After, scan.Limit)
	})
	if err != nil {
		return duePage{}, err
	}
	return newDuePage(m.entries, m.more)
}

// dueInOne reads a page of one partition: what is due at now. Cost: 1 request and
// the keys read. IAM: Query on the index due.
func (s *Store) dueInOne(ctx context.Context, partition string, now core.Instant, after string, limit int) (duePage, error) {
	entries, more, err := s.keys(ctx, dueBefore(partition, now+1, after, limit))
	if err != nil {
		return duePage{}, err
	}
	return newDuePage(entries, more)
}

func newDuePage(entries []item, more bool) (duePage, error) {
	if len(entries) == 0 {
		return duePage{}, nil
	}
	oldest, err := deadlineOf(sortValue(entries[0], dueSK))
	if err != nil {
		return duePage{}, core.Wrap(core.CodeInternal, "the store holds a due entry this hub cannot read", err)
	}
	page := duePage{entries: entries, oldest: oldest}
	if more {
		page.next = sortValue(entries[len(entries)-1], dueSK)
	}
	return page, nil
}

// dueItems reads a page of one partition and the items it leads to, but for those
// whose entry is out of date. Cost: as dueInOne, and a batch. IAM: Query on the
// index due, BatchGetItem.
func (s *Store) dueItems(ctx context.Context, partition string, now core.Instant, after string, limit int) (duePage, []item, error) {
	due, err := s.dueInOne(ctx, partition, now, after, limit)
	if err != nil || len(due.entries) == 0 {
		return duePage{}, nil, err
	}
	found, err := s.itemsOf(ctx, due.entries)
	var items []item
	for _, it := range found {
		if at := sortValue(it, dueSK); at != "" && at < duePrefix(now+1) {
			items = append(items, it)
		}
	}
	return due, items, err
}
