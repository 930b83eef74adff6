package ddb

import (
	"cmp"
	"context"
	"slices"

	"drawbridge/core"
)

// merged is a page over several sharded partitions: entries in the order of
// their sort keys.
type merged struct {
	entries []item
	more    bool // entries follow the last one
}

// merge reads a page of every shard at once and keeps the first limit entries
// over all of them. Every shard is asked for that many, so none of those can be
// missing; DynamoDB's own bound of a page (1 MB) is far above 100 keys.
func (s *Store) merge(ctx context.Context, shards int, sortKey string, limit int, page func(shard int) query) (merged, error) {
	pages := make([][]item, shards)
	partial := make([]bool, shards)
	err := parallel(shards, func(shard int) error {
		var err error
		pages[shard], partial[shard], err = s.keys(ctx, page(shard))
		return err
	})
	if err != nil {
		return merged{}, err
	}
	m := merged{entries: slices.Concat(pages...), more: slices.Contains(partial, true)}
	slices.SortFunc(m.entries, func(a, b item) int { return cmp.Compare(sortValue(a, sortKey), sortValue(b, sortKey)) })
	if page(0).descending {
		slices.Reverse(m.entries)
	}
	if len(m.entries) > limit {
		m.entries, m.more = m.entries[:limit], true
	}
	return m, nil
}

// first keeps the first entries of a page that was asked for one more, and so
// knows whether any follow.
func (m merged) first(limit int) merged {
	if m.more = len(m.entries) > limit; m.more {
		m.entries = m.entries[:limit]
	}
	return m
}

func sortValue(it item, name string) string {
	r := reader{it: it}
	return r.text(name)
}

// ScanAgents reads a page of ids from the shards of the list, or of a topic's
// followers, and then their agents. Cost: 2 round trips; 8 index requests (4 for
// a topic) and a batch, the keys read and 1 read unit an agent. IAM: Query on
// the index list or, for a topic, the table; BatchGetItem.
func (s *Store) ScanAgents(ctx context.Context, scan core.AgentScan) (core.AgentScanPage, error) {
	shards, sortKey, page := agentShards, listSK, listQuery(scan)
	if scan.Topic != "" {
		shards, sortKey, page = topicShards, sk, followerQuery(scan)
	}
	m, err := s.merge(ctx, shards, sortKey, scan.Limit, page)
	if err != nil || len(m.entries) == 0 {
		return core.AgentScanPage{Done: true}, err
	}
	ids := make([]string, 0, len(m.entries))
	for _, entry := range m.entries {
		ids = append(ids, sortValue(entry, sortKey))
	}
	agents, err := s.readAgents(ctx, ids)
	return core.AgentScanPage{Agents: agents, Last: ids[len(ids)-1], Done: !m.more}, err
}

func listQuery(scan core.AgentScan) func(shard int) query {
	return func(shard int) query {
		q := query{index: listIndex, condition: "list_pk = :pk", limit: scan.Limit}
		q.values = item{":pk": text(agentPartition(shard))}
		q.startAfter("list_sk", scan.After)
		return q
	}
}

func followerQuery(scan core.AgentScan) func(shard int) query {
	return func(shard int) query {
		q := query{condition: "pk = :pk", limit: scan.Limit}
		q.values = item{":pk": text(topicPartition(scan.Topic, shard))}
		q.startAfter("sk", scan.After)
		return q
	}
}

func (q *query) startAfter(sortKey, after string) {
	if after == "" {
		return // a key is never the empty text, and DynamoDB refuses to compare with it
	}
	q.condition += " AND " + sortKey + " > :after"
	q.values[":after"] = text(after)
}

// readAgents reads agents in the order of the ids; one that is not there, which
// only a hint can name, is left out.
func (s *Store) readAgents(ctx context.Context, ids []string) ([]core.Agent, error) {
	agents := make([]core.Agent, 0, len(ids))
	for chunk := range slices.Chunk(ids, batchLimit) {
		keys := make([]key, 0, len(chunk))
		for _, id := range chunk {
			keys = append(keys, agentKey(id))
		}
		found, err := s.batchGet(ctx, keys)
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			it, ok := found[k]
			if !ok {
				continue
			}
			agent, _, err := readAgent(it)
			if err != nil {
				return nil, err
			}
			agents = append(agents, agent)
		}
	}
	return agents, nil
}

// DueAgents reads a page of due entries from all shards, earliest first, and
// then their agents. Cost: 2 round trips (1 when nothing is due); 8 index
// requests and a batch, the keys read and 1 read unit an agent. IAM: Query on
// the index due, BatchGetItem.
func (s *Store) DueAgents(ctx context.Context, scan core.DueScan) (core.DuePage, error) {
	due, err := s.dueInAll(ctx, agentShards, agentPartition, scan)
	if err != nil || len(due.entries) == 0 {
		return core.DuePage{}, err
	}
	items, err := s.itemsOf(ctx, due.entries)
	if err != nil {
		return core.DuePage{}, err
	}
	page := core.DuePage{Oldest: due.oldest, Next: due.next}
	page.Agents, page.Unreadable = readable(items, func(it item) (core.Agent, error) {
		agent, _, err := readAgent(it)
		return agent, err
	})
	return page, nil
}

// TransitionAgent is one UpdateItem on what the sweep saw. The lease being the
// one seen implies the contract's bound on it, and keeps the next deadline
// right. It leaves the agent's own stamp alone: a sweep is not an operation of
// the agent. Cost: 1 write unit, and 2 index units when the due entry moves or 1
// when it goes. IAM: UpdateItem.
func (s *Store) TransitionAgent(ctx context.Context, t core.AgentTransition) (bool, error) {
	u := update{
		key:       agentKey(t.Seen.ID),
		set:       []string{"presence = :to", "swept_id = :wid"},
		condition: []string{"generation = :generation", "presence = :from", "lease_ms = :lease", "due_sk = :due"},
		values: item{
			":to":         text(string(t.To)),
			":wid":        text(t.WriteID),
			":generation": number(t.Seen.Generation),
			":from":       text(string(t.Seen.Status)),
			":lease":      instant(t.Seen.LeaseExpires),
			":due":        text(dueKey(t.Seen.DueAt, t.Seen.ID)),
		},
	}
	if t.Due > 0 {
		u.set = append(u.set, "due_sk = :next")
		u.values[":next"] = text(dueKey(t.Due, t.Seen.ID))
	} else {
		u.remove = []string{duePK, dueSK}
	}
	it, done, err := s.apply(ctx, u)
	if err != nil || done {
		return done, err
	}
	_, stamp, err := readAgent(it)
	return stamp.sweptID == t.WriteID, err
}
