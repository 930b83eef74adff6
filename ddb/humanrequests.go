package ddb

import (
	"context"
	"encoding/json"
	"fmt"

	"drawbridge/core"
)

// The attributes of a human request.
const (
	requesterAttr   = "requester_agent"
	humanKindAttr   = "human_kind"
	promptAttr      = "prompt"
	schemaAttr      = "requested_schema"
	channelAttr     = "channel_preference"
	humanStateAttr  = "human_state"
	defaultAttr     = "default_action"
	actionAttr      = "action"
	contentAttr     = "human_content"
	submittedByAttr = "submitted_by"
	resolvedAttr    = "resolved_ms"
	forwardedAttr   = "forwarded_message_id"
	lateAttr        = "late_answers"
)

// SaveHumanRequest puts a request's next version with the message that tells of
// it.
//
// Cost: 1 round trip. A new request takes 1 write unit and 2 index units (2 and
// 2 with a fence or a stored answer, which take 2 each). An end takes 2 for the
// request, 2 index units for the entries that go, and 5 for the message. A late
// answer takes 1. IAM: PutItem, ConditionCheckItem, GetItem, s3:PutObject,
// s3:DeleteObject.
func (s *Store) SaveHumanRequest(ctx context.Context, c core.HumanChange) (core.SaveOutcome, error) {
	it, err := humanItem(c.Request)
	if err != nil {
		return core.SaveOutcome{}, err
	}
	return s.save(ctx, saving{entity: it, version: c.Request.Version, Announcement: c.Announcement})
}

func humanItem(r core.HumanRequest) (item, error) {
	it := humanKey(r.ID).item()
	it[requesterAttr] = text(r.Requester)
	it[humanKindAttr] = text(string(r.Kind))
	it[promptAttr] = text(r.Prompt)
	it[schemaAttr] = text(string(r.Schema))
	it[humanStateAttr] = text(string(r.State))
	it[deadlineAttr] = instant(r.Deadline)
	it[defaultAttr] = text(r.DefaultAction)
	it[correlationAttr] = text(r.CorrelationID)
	it[traceAttr] = text(r.TraceID)
	it[createdAttr] = instant(r.CreatedAt)
	putTexts(it, map[string]string{
		channelAttr: r.Channel, actionAttr: r.Action, submittedByAttr: r.SubmittedBy, forwardedAttr: r.MessageID,
	})
	putNumbers(it, map[string]int64{resolvedAttr: int64(r.ResolvedAt)})
	if r.Answer.JSON != nil || r.Answer.Sealed != nil {
		if err := putJSON(it, contentAttr, r.Answer); err != nil {
			return nil, err
		}
	}
	if len(r.Late) > 0 {
		if err := putJSON(it, lateAttr, r.Late); err != nil {
			return nil, err
		}
	}
	if r.State != core.HumanPending {
		it[ttl] = number(r.ResolvedAt.Add(core.JobRetention).Time().Unix() + 1)
		return it, nil
	}
	it[duePK], it[dueSK] = text(humanPartition(shardOf(r.ID, humanShards))), text(dueKey(r.Deadline, r.ID))
	it[listPK], it[listSK] = text(pendingPartition(shardOf(r.ID, pendingShards))), text(dueKey(r.CreatedAt, r.ID))
	return it, nil
}

func putJSON(it item, name string, value any) error {
	encoded, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	it[name] = text(string(encoded))
	return nil
}

func readHumanRequest(it item) (core.HumanRequest, error) {
	r := reader{it: it}
	request := core.HumanRequest{
		ID:            r.text(pk)[len(humanKey("").pk):],
		Requester:     r.text(requesterAttr),
		Kind:          core.HumanKind(r.text(humanKindAttr)),
		Prompt:        r.text(promptAttr),
		Schema:        r.json(schemaAttr, "{}"),
		Channel:       r.text(channelAttr),
		State:         core.HumanState(r.text(humanStateAttr)),
		Deadline:      r.instant(deadlineAttr),
		DefaultAction: r.text(defaultAttr),
		CorrelationID: r.text(correlationAttr),
		TraceID:       r.text(traceAttr),
		CreatedAt:     r.instant(createdAttr),
		Action:        r.text(actionAttr),
		SubmittedBy:   r.text(submittedByAttr),
		ResolvedAt:    r.instant(resolvedAttr),
		MessageID:     r.text(forwardedAttr),
		Version:       r.number(versionAttr),
	}
	r.decode(contentAttr, &request.Answer)
	r.decode(lateAttr, &request.Late)
	return request, r.err
}

// decode reads an attribute that holds JSON, if it is there.
func (r *reader) decode(name string, into any) {
	if !r.has(name) {
		return
	}
	if err := json.Unmarshal([]byte(r.text(name)), into); err != nil {
		r.fail(name, "JSON of the right shape")
	}
}

// ReadHumanRequest reads one request. Cost: 1 request, 1 read unit per 4 KB.
// IAM: GetItem.
func (s *Store) ReadHumanRequest(ctx context.Context, id string) (core.HumanRequest, bool, error) {
	it, err := s.get(ctx, humanKey(id))
	if err != nil || it == nil {
		return core.HumanRequest{}, false, err
	}
	request, err := readHumanRequest(it)
	return request, err == nil, err
}

// PendingHumanRequests reads a page of entries from all shards and then the
// requests. Cost: 2 round trips; 4 index requests and a batch for every 100
// found, 1 read unit per 4 KB a request. IAM: Query on the index list,
// BatchGetItem.
func (s *Store) PendingHumanRequests(ctx context.Context, limit int) ([]core.HumanRequest, error) {
	m, err := s.merge(ctx, pendingShards, listSK, limit, func(shard int) query {
		return query{
			index: listIndex, condition: "list_pk = :pk", limit: limit,
			values: item{":pk": text(pendingPartition(shard))},
		}
	})
	if err != nil {
		return nil, err
	}
	items, err := s.itemsOf(ctx, m.entries)
	if err != nil {
		return nil, err
	}
	return readAll(items, readHumanRequest)
}

// DueHumanRequests reads a page of one shard. Cost: 2 round trips, 1 when there
// is nothing; the keys read and 1 read unit per 4 KB a request. IAM: Query on the
// index due, BatchGetItem.
func (s *Store) DueHumanRequests(ctx context.Context, shard int, now core.Instant, after string, limit int) (core.DueHumanPage, error) {
	due, items, err := s.dueItems(ctx, humanPartition(shard), now, after, limit)
	if err != nil {
		return core.DueHumanPage{}, err
	}
	page := core.DueHumanPage{Oldest: due.oldest, Next: due.next}
	page.Requests, page.Unreadable = readable(items, readHumanRequest)
	return page, nil
}

// HumanShards tells the shards of DueHumanRequests.
func (s *Store) HumanShards() int { return humanShards }
