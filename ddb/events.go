package ddb

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"drawbridge/core"
)

// eventItem is a job as an event left it, without its content.
func (s *Store) eventItem(e core.JobEvent) item {
	it := eventKey(e.Job.ID, e.Seq).item()
	putJob(it, e.Job)
	it[eventAtAttr] = instant(e.At)
	it[ttl] = number(e.At.Add(core.JobRetention).Time().Unix() + 1)
	if s.relaying {
		it[duePK] = text(relayPartition(shardOf(e.Job.ID, jobShards)))
		it[dueSK] = text(dueKey(e.At, e.Job.ID+"#"+eventPosition(e.Seq)))
	}
	return it
}

func readEvent(it item) (core.JobEvent, error) {
	job, err := readJob(it)
	if err != nil {
		return core.JobEvent{}, err
	}
	r := reader{it: it}
	return core.JobEvent{Seq: job.Events, At: r.instant(eventAtAttr), Job: job}, r.err
}

// ReadJobEvents reads a page of a job's events. Cost: 1 request, 1 read unit per
// 4 KB. IAM: Query.
func (s *Store) ReadJobEvents(ctx context.Context, jobID string, after int64, limit int) ([]core.JobEvent, error) {
	items, _, err := s.keys(ctx, query{
		condition: "pk = :pk AND sk > :after", limit: limit,
		values: item{":pk": text(eventPartition(jobID)), ":after": text(eventPosition(after))},
	})
	if err != nil {
		return nil, err
	}
	return readAll(items, readEvent)
}

// DueEvents reads a page of one shard's entries; they name their jobs. Cost: 1
// request and the keys read. IAM: Query on the index due.
func (s *Store) DueEvents(ctx context.Context, shard int, now core.Instant, after string, limit int) (core.DueEventPage, error) {
	due, err := s.dueInOne(ctx, relayPartition(shard), now, after, limit)
	if err != nil {
		return core.DueEventPage{}, err
	}
	page := core.DueEventPage{Oldest: due.oldest, Next: due.next}
	for _, entry := range due.entries {
		id := strings.TrimPrefix(sortValue(entry, pk), eventPartition(""))
		if !slices.Contains(page.JobIDs, id) {
			page.JobIDs = append(page.JobIDs, id)
		}
	}
	return page, nil
}

// UnrelayedEvents reads the events of a job that still have their entry, from
// the table itself: an index may show a later one first. Cost: 1 request a MB
// and 1 read unit per 4 KB of all the job's events. IAM: Query.
func (s *Store) UnrelayedEvents(ctx context.Context, jobID string, limit int) ([]core.JobEvent, error) {
	in := &dynamodb.QueryInput{
		TableName:                 aws.String(s.table),
		KeyConditionExpression:    aws.String("pk = :pk"),
		FilterExpression:          aws.String("attribute_exists(due_pk)"),
		ExpressionAttributeValues: item{":pk": text(eventPartition(jobID))},
		ConsistentRead:            aws.Bool(true),
	}
	var found []item
	for {
		out, err := s.client.Query(ctx, in)
		if err != nil {
			return nil, readFailure(err)
		}
		found = append(found, out.Items...)
		if in.ExclusiveStartKey = out.LastEvaluatedKey; len(out.LastEvaluatedKey) == 0 || len(found) >= limit {
			return readAll(found[:min(len(found), limit)], readEvent)
		}
	}
}

// MarkRelayed removes the event's entry. Finding none is success. Cost: 1 write
// unit and 1 index unit. IAM: UpdateItem.
func (s *Store) MarkRelayed(ctx context.Context, e core.JobEvent) error {
	_, _, err := s.apply(ctx, update{
		key:       eventKey(e.Job.ID, e.Seq),
		set:       []string{"relayed = :yes"},
		remove:    []string{duePK, dueSK},
		condition: []string{"attribute_exists(due_pk)"},
		values:    item{":yes": flag(true)},
	})
	return err
}
