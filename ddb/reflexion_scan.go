package ddb

import (
	"context"
	"strings"

	"drawbridge/core"
)

// listed is a query for a shard of the types' entries, newest first.
func listed(kinds []core.ReflexionType, limit int, before string) func(shard int) query {
	return func(shard int) query {
		q := query{index: listIndex, condition: "list_pk = :pk", limit: limit, descending: true}
		q.values = item{":pk": text(reflexionPartition(kinds[shard/reflexionShards], shard%reflexionShards))}
		if before != "" {
			q.condition += " AND list_sk < :before"
			q.values[":before"] = text(before)
		}
		return q
	}
}

// SearchReflexion looks through the keys of the newest entries in the index
// list, which carry the first 900 bytes of their patterns, and reads those that
// match. Cost: 2 round trips (1 when nothing matches); 8 index requests, at most
// half a read unit per 4 KB of 4,000 keys, and 1 read unit per 4 KB an entry.
// IAM: Query on the index list, BatchGetItem.
func (s *Store) SearchReflexion(ctx context.Context, wanted string, depth int) ([]core.ReflexionEntry, bool, error) {
	kinds := []core.ReflexionType{core.ReflexionLearnt, core.ReflexionAdaptive}
	perShard := depth / reflexionShards
	looked, err := s.merge(ctx, len(kinds)*reflexionShards, listSK, len(kinds)*depth, listed(kinds, perShard, ""))
	if err != nil {
		return nil, false, err
	}
	var matches []item
	for _, entry := range looked.entries {
		if strings.Contains(listedPattern(sortValue(entry, listSK)), wanted) {
			matches = append(matches, entry)
		}
	}
	cut := looked.more || len(matches) > core.MaxListLimit
	entries, err := s.reflexionsOf(ctx, matches[:min(core.MaxListLimit, len(matches))])
	return entries, cut, err
}

// ScanReflexion reads a page of keys from the shards of the types and then their
// entries. Cost: 2 round trips; 4 index requests a type and a batch, the keys
// read and 1 read unit per 4 KB an entry. IAM: Query on the index list,
// BatchGetItem.
func (s *Store) ScanReflexion(ctx context.Context, scan core.ReflexionScan) (core.ReflexionScanPage, error) {
	m, err := s.merge(ctx, len(scan.Types)*reflexionShards, listSK, scan.Limit+1, listed(scan.Types, scan.Limit+1, scan.Before))
	if err != nil || len(m.entries) == 0 {
		return core.ReflexionScanPage{}, err
	}
	m = m.first(scan.Limit)
	var page core.ReflexionScanPage
	if m.more {
		page.Next = sortValue(m.entries[len(m.entries)-1], listSK)
	}
	page.Entries, err = s.reflexionsOf(ctx, m.entries)
	for _, e := range page.Entries {
		page.Positions = append(page.Positions, reflexionListKey(e))
	}
	return page, err
}

// DueReflexion reads a page of due entries from all shards, earliest first, and
// then their items. Cost: 2 round trips (1 when nothing is due); 4 index requests
// and a batch. IAM: Query on the index due, BatchGetItem.
func (s *Store) DueReflexion(ctx context.Context, scan core.DueScan) (core.ReflexionDuePage, error) {
	due, err := s.dueInAll(ctx, reflexionShards, reflexionDuePartition, scan)
	if err != nil || len(due.entries) == 0 {
		return core.ReflexionDuePage{}, err
	}
	items, err := s.itemsOf(ctx, due.entries)
	if err != nil {
		return core.ReflexionDuePage{}, err
	}
	page := core.ReflexionDuePage{Oldest: due.oldest, Next: due.next}
	page.Entries, page.Unreadable = readable(items, readReflexion)
	return page, nil
}

// reflexionsOf reads the entries that index entries name, in their order. One
// that is gone is left out.
func (s *Store) reflexionsOf(ctx context.Context, named []item) ([]core.ReflexionEntry, error) {
	items, err := s.itemsOf(ctx, named)
	if err != nil {
		return nil, err
	}
	return readAll(items, readReflexion)
}
