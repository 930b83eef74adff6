package ddb

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
)

// The attributes of a job, and of an event, which is a job as it was.
const (
	supervisorAttr   = "supervisor_agent"
	workerAttr       = "worker_agent"
	jobStatusAttr    = "job_status"
	attemptAttr      = "attempt"
	retryCountAttr   = "retry_count"
	maxRetriesAttr   = "max_retries"
	timeoutAttr      = "timeout_ms"
	retryDelayAttr   = "retry_delay_ms"
	backoffAttr      = "retry_backoff"
	holdAttr         = "hold_timeouts"
	retryAtAttr      = "retry_at_ms"
	lastMessageAttr  = "last_message_id"
	jobContentAttr   = "content"
	outcomeAttr      = "outcome"
	outcomeIDAttr    = "outcome_id"
	startedAttr      = "started_ms"
	dispatchedAttr   = "dispatched_ms"
	completedAttr    = "completed_ms"
	lastRetryAttr    = "last_retry_ms"
	endedByAttr      = "ended_by"
	reportAttr       = "report_attempt"
	reportHashAttr   = "report_hash"
	eventsAttr       = "event_count"
	eventAtAttr      = "event_ms"
	jobSK            = "job_sk" // orders the jobs of a supervisor, worker, trace or correlation
	supervisorIndex  = "jobs_by_supervisor"
	workerIndex      = "jobs_by_worker"
	traceIndex       = "jobs_by_trace"
	correlationIndex = "jobs_by_correlation"
)

// RelayEvents keeps the events that are saved from now on for the relay: each
// has a due entry until it was sent.
func (s *Store) RelayEvents() { s.relaying = true }

// SaveJob puts a job's next version with its events and messages.
//
// Cost: 1 round trip; for a job of up to 1 KB 2 write units, 5 for each message
// and 2 for each event (3 and 2 more where events are relayed). A new job takes
// 6 index units (due, status, supervisor, worker, trace, correlation), a change
// of status 2, a due entry that moves 2 and one that goes 1; a message over 1 KB
// counts for two. A fence and a stored
// answer take 2 each. IAM: PutItem, ConditionCheckItem, GetItem, s3:PutObject,
// s3:DeleteObject.
func (s *Store) SaveJob(ctx context.Context, c core.JobChange) (core.SaveOutcome, error) {
	w := saving{
		entity: jobItem(c.Job), version: c.Job.Version, Announcement: c.Announcement,
		apart: map[string]core.Payload{},
	}
	if c.Job.OutcomeID != "" {
		w.apart[c.Job.OutcomeID] = c.Job.Outcome
	}
	if sendsContent(c) {
		// With every dispatch the content is as young as its message.
		w.apart[c.Job.ID] = c.Job.Content
	}
	for _, e := range c.Events {
		if e.Job.OutcomeID != "" {
			w.apart[e.Job.OutcomeID] = e.Job.Outcome
		}
		w.records = append(w.records, s.eventItem(e))
	}
	return s.save(ctx, w)
}

func sendsContent(c core.JobChange) bool {
	return slices.ContainsFunc(c.Messages, func(m core.Delivery) bool { return m.ID == c.Job.LastMessageID })
}

func jobItem(j core.Job) item {
	it := jobKey(j.ID).item()
	putJob(it, j)
	putNamedPayload(it, jobContentAttr, j.Content)
	it[jobSK] = text(dueKey(j.CreatedAt, j.ID))
	it[listPK] = text(statusPartition(j.Status, shardOf(j.ID, statusShards)))
	it[listSK] = text(dueKey(j.CreatedAt, j.ID))
	if at := j.DueEntry; at > 0 {
		it[duePK], it[dueSK] = text(jobPartition(shardOf(j.ID, jobShards))), text(dueKey(at, j.ID))
	}
	if j.Status.Final() {
		it[ttl] = number(j.CompletedAt.Add(core.JobRetention).Time().Unix() + 1)
	}
	return it
}

// putJob encodes what a job and its events have in common. What is zero is left
// out.
func putJob(it item, j core.Job) {
	it[supervisorAttr] = text(j.Supervisor)
	it[workerAttr] = text(j.Worker)
	it[topicAttr] = text(j.Topic)
	it[jobStatusAttr] = text(string(j.Status))
	it[traceAttr] = text(j.TraceID)
	it[correlationAttr] = text(j.CorrelationID)
	putNamedPayload(it, outcomeAttr, j.Outcome)
	putTexts(it, map[string]string{
		lastMessageAttr: j.LastMessageID, outcomeIDAttr: j.OutcomeID, endedByAttr: string(j.EndedBy), reportHashAttr: j.Reported.Hash,
	})
	putNumbers(it, map[string]int64{
		attemptAttr: j.Attempt, retryCountAttr: j.RetryCount, maxRetriesAttr: j.MaxRetries, priorityAttr: j.Priority,
		timeoutAttr: j.Timeout.Milliseconds(), ttlAttr: j.TTL.Milliseconds(), retryDelayAttr: j.RetryDelay.Milliseconds(),
		deadlineAttr: int64(j.Deadline), retryAtAttr: int64(j.RetryAt), createdAttr: int64(j.CreatedAt),
		updatedAttr: int64(j.UpdatedAt), startedAttr: int64(j.StartedAt), dispatchedAttr: int64(j.DispatchedAt),
		completedAttr: int64(j.CompletedAt), lastRetryAttr: int64(j.LastRetryAt), reportAttr: j.Reported.Attempt,
		eventsAttr: j.Events,
	})
	for name, set := range map[string]bool{backoffAttr: j.Backoff, holdAttr: j.HoldTimeouts} {
		if set {
			it[name] = flag(true)
		}
	}
}

// putNamedPayload is putPayload under other names.
func putNamedPayload(it item, name string, p core.Payload) {
	if p.JSON != nil && len(p.JSON) <= inlinePayload {
		it[name] = text(string(p.JSON))
		return
	}
	it[name+"_bytes"], it[name+"_framed"] = number(int64(p.Size.Answer)), number(int64(p.Size.Framed))
}

func (r *reader) namedPayload(name string) core.Payload {
	if r.has(name + "_bytes") {
		return core.Payload{Size: core.PayloadSize{Answer: int(r.number(name + "_bytes")), Framed: int(r.number(name + "_framed"))}}
	}
	return core.NewPayload(r.json(name, "{}"))
}

func readJob(it item) (core.Job, error) {
	r := reader{it: it}
	job := core.Job{
		ID:            strings.TrimPrefix(strings.TrimPrefix(r.text(pk), jobKey("").pk), eventPartition("")),
		Supervisor:    r.text(supervisorAttr),
		Worker:        r.text(workerAttr),
		Topic:         r.text(topicAttr),
		Content:       r.namedPayload(jobContentAttr),
		Status:        core.JobStatus(r.text(jobStatusAttr)),
		Attempt:       r.number(attemptAttr),
		RetryCount:    r.number(retryCountAttr),
		MaxRetries:    r.number(maxRetriesAttr),
		Priority:      r.number(priorityAttr),
		Timeout:       r.duration(timeoutAttr),
		TTL:           r.duration(ttlAttr),
		RetryDelay:    r.duration(retryDelayAttr),
		Backoff:       r.flag(backoffAttr),
		HoldTimeouts:  r.flag(holdAttr),
		Deadline:      r.instant(deadlineAttr),
		RetryAt:       r.instant(retryAtAttr),
		TraceID:       r.text(traceAttr),
		CorrelationID: r.text(correlationAttr),
		LastMessageID: r.text(lastMessageAttr),
		Outcome:       r.namedPayload(outcomeAttr),
		OutcomeID:     r.text(outcomeIDAttr),
		CreatedAt:     r.instant(createdAttr),
		UpdatedAt:     r.instant(updatedAttr),
		StartedAt:     r.instant(startedAttr),
		DispatchedAt:  r.instant(dispatchedAttr),
		CompletedAt:   r.instant(completedAttr),
		LastRetryAt:   r.instant(lastRetryAttr),
		EndedBy:       core.JobEnd(r.text(endedByAttr)),
		Reported:      core.JobReportMark{Attempt: r.number(reportAttr), Hash: r.text(reportHashAttr)},
		Events:        r.number(eventsAttr),
		Version:       r.number(versionAttr),
	}
	if due := r.text(dueSK); due != "" && r.err == nil {
		job.DueEntry, r.err = deadlineOf(due)
	}
	return job, r.err
}

// ReadJob reads one job. Cost: 1 request, 1 read unit per 4 KB. IAM: GetItem.
func (s *Store) ReadJob(ctx context.Context, id string) (core.Job, bool, error) {
	it, err := s.get(ctx, jobKey(id))
	if err != nil || it == nil {
		return core.Job{}, false, err
	}
	job, err := readJob(it)
	return job, err == nil, err
}

// LoadJobs reads large contents and outcomes, several at once. One that is gone
// is Lost. Cost: 1 S3 get each. IAM: s3:GetObject.
func (s *Store) LoadJobs(ctx context.Context, jobs []core.Job) error {
	type part struct {
		name string
		of   *core.Payload
	}
	var parts []part
	for i := range jobs {
		for _, p := range []part{{jobs[i].ID, &jobs[i].Content}, {jobs[i].OutcomeID, &jobs[i].Outcome}} {
			if p.of.JSON == nil {
				parts = append(parts, p)
			}
		}
	}
	return boundedParallel(len(parts), payloadReads, func(i int) error {
		loaded, err := s.loadPayload(ctx, parts[i].name, *parts[i].of)
		if err == nil {
			*parts[i].of = loaded
		}
		return err
	})
}

// MarkDispatched is one UpdateItem. The due entry stays where it is: it is
// early, and the sweep that meets it moves it. Cost: 1 round trip, 1 write unit
// per KB of the job. IAM: UpdateItem.
func (s *Store) MarkDispatched(ctx context.Context, d core.JobDispatch) (bool, error) {
	_, done, err := s.apply(ctx, update{
		key: jobKey(d.JobID),
		set: []string{"dispatched_ms = :at", "deadline_ms = :deadline", "#version = #version + :one"},
		condition: []string{
			"last_message_id = :message", "attempt = :attempt", "attribute_not_exists(dispatched_ms)",
			"job_status IN (:queued, :running)", "deadline_ms > :at",
		},
		names: map[string]string{"#version": versionAttr},
		values: item{
			":at": instant(d.At), ":deadline": instant(d.At.Add(d.Timeout)), ":one": number(1),
			":message": text(d.MessageID), ":attempt": number(d.Attempt),
			":queued": text(string(core.JobQueued)), ":running": text(string(core.JobRunning)),
		},
	})
	return done, err
}

// ListJobs reads a page of entries from the index of the scan's key, and then
// the jobs. Cost: 2 round trips; 1 index request (4 for every status), the keys
// read and 1 read unit per 4 KB a job. IAM: Query on the indexes list and
// jobs_by_*, BatchGetItem.
func (s *Store) ListJobs(ctx context.Context, scan core.JobScan) (core.JobPage, error) {
	shards, sortKey, page := jobQuery(scan)
	m, err := s.merge(ctx, shards, sortKey, scan.Limit, page)
	if err != nil || len(m.entries) == 0 {
		return core.JobPage{}, err
	}
	items, err := s.itemsOf(ctx, m.entries)
	if err != nil {
		return core.JobPage{}, err
	}
	var found core.JobPage
	if found.Jobs, err = readAll(items, readJob); err != nil {
		return core.JobPage{}, err
	}
	for _, it := range items {
		found.Positions = append(found.Positions, sortValue(it, jobSK))
	}
	if m.more {
		found.Next = sortValue(m.entries[len(m.entries)-1], sortKey)
	}
	return found, nil
}

func jobQuery(scan core.JobScan) (shards int, sortKey string, page func(int) query) {
	q := query{limit: scan.Limit, descending: true}
	before := func(q query, pk, sk, partition string) query {
		q.condition = pk + " = :pk"
		q.values = item{":pk": text(partition)}
		if scan.Before != "" {
			q.condition += " AND " + sk + " < :before"
			q.values[":before"] = text(scan.Before)
		}
		return q
	}
	for _, by := range []struct{ index, attribute, value string }{
		{correlationIndex, correlationAttr, scan.CorrelationID},
		{traceIndex, traceAttr, scan.TraceID},
		{workerIndex, workerAttr, scan.Worker},
		{supervisorIndex, supervisorAttr, scan.Supervisor},
	} {
		if by.value != "" {
			q.index = by.index
			return 1, jobSK, func(int) query { return before(q, by.attribute, jobSK, by.value) }
		}
	}
	q.index = listIndex
	return len(scan.Statuses) * statusShards, listSK, func(shard int) query {
		return before(q, listPK, listSK, statusPartition(scan.Statuses[shard/statusShards], shard%statusShards))
	}
}

// JobShards tells the shards of DueJobs and DueEvents.
func (s *Store) JobShards() int { return jobShards }

// DueJobs reads a page of one shard. Cost: 2 round trips, 1 when there is
// nothing; the keys read and 1 read unit per 4 KB a job. IAM: Query on the index
// due, BatchGetItem.
func (s *Store) DueJobs(ctx context.Context, shard int, now core.Instant, after string, limit int) (core.DueJobPage, error) {
	due, items, err := s.dueItems(ctx, jobPartition(shard), now, after, limit)
	if err != nil {
		return core.DueJobPage{}, err
	}
	page := core.DueJobPage{Oldest: due.oldest, Next: due.next}
	page.Jobs, page.Unreadable = readable(items, readJob)
	return page, nil
}

// countedStatuses are the statuses that a roll-up counts.
var countedStatuses = []core.JobStatus{core.JobQueued, core.JobRunning, core.JobFailed, core.JobTimedOut}

// CountJobs counts index entries: 0.5 read units per 4 KB of keys. IAM: Query on
// the index list.
func (s *Store) CountJobs(ctx context.Context, now core.Instant) (core.AssignCounts, bool, error) {
	counts := core.AssignCounts{AsOf: now}
	sums := make([]atomic.Int64, len(countedStatuses))
	var looked atomic.Int64
	var cut atomic.Bool
	err := boundedParallel(len(countedStatuses)*statusShards, countParallel, func(i int) error {
		limit := max(countedEntries-int(looked.Load()), 1)
		count, done, err := s.count(ctx, &dynamodb.QueryInput{
			TableName:              aws.String(s.table),
			IndexName:              aws.String(listIndex),
			KeyConditionExpression: aws.String("list_pk = :pk"),
			ExpressionAttributeValues: item{
				":pk": text(statusPartition(countedStatuses[i/statusShards], i%statusShards)),
			},
			Select: types.SelectCount,
		}, limit)
		looked.Add(count)
		sums[i/statusShards].Add(count)
		if !done {
			cut.Store(true)
		}
		return err
	})
	for i, into := range []*int64{&counts.Queued, &counts.Running, &counts.Failed, &counts.TimedOut} {
		*into = sums[i].Load()
	}
	return counts, !cut.Load(), err
}

const (
	queuedAttr   = "queued"
	runningAttr  = "running"
	failedJobs   = "failed"
	timedOutAttr = "timed_out"
)

// StoreJobCounts replaces the counts unless later ones stand. Cost: 1 write
// unit. IAM: PutItem.
func (s *Store) StoreJobCounts(ctx context.Context, c core.AssignCounts) error {
	it := jobCountsKey().item()
	it[queuedAttr], it[runningAttr] = number(c.Queued), number(c.Running)
	it[failedJobs], it[timedOutAttr] = number(c.Failed), number(c.TimedOut)
	it[asOfAttr] = instant(c.AsOf)
	_, _, err := s.put(ctx, it, "attribute_not_exists(pk) OR as_of_ms <= :as_of", item{":as_of": instant(c.AsOf)})
	return err
}

// ReadJobCounts reads the counts. Cost: 1 request, 1 read unit. IAM: GetItem.
func (s *Store) ReadJobCounts(ctx context.Context) (core.AssignCounts, error) {
	it, err := s.get(ctx, jobCountsKey())
	if err != nil || it == nil {
		return core.AssignCounts{}, err
	}
	r := reader{it: it}
	counts := core.AssignCounts{
		Queued: r.number(queuedAttr), Running: r.number(runningAttr), Failed: r.number(failedJobs),
		TimedOut: r.number(timedOutAttr), AsOf: r.instant(asOfAttr),
	}
	return counts, r.err
}
