package core

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// What the hub puts into a job's messages (contract 7).
const (
	jobRouter       = "assign-router"
	jobCancelTopic  = "assign.cancel"
	jobCancelKind   = "assign.cancel"
	jobResultTopic  = "assign.result"
	jobMinPriority  = 5 // of what the supervisor gets
	jobCancelUrgent = 8

	eventProgress  = "progress"
	eventCompleted = "completed"
	eventRetry     = "retry_scheduled"
	eventLate      = "late_result"

	retrySweeper = "sweeper" // who asks for the retry of a job that timed out
	retryManual  = "manual"
)

// jobStep is a job's next version in the making.
type jobStep struct {
	hub      *Hub
	started  time.Time
	now      Instant // never before the job's latest change: events are in order
	next     Job
	messages []Delivery
	events   []JobEvent
	// keepEntry leaves an early due entry where it is: what happens often moves
	// none, and the sweep that meets the entry does.
	keepEntry bool
}

func (h *Hub) jobStep(seen Job, started time.Time) *jobStep {
	next := seen
	next.Version++
	now := max(InstantOf(started), seen.UpdatedAt)
	next.UpdatedAt = now
	return &jobStep{hub: h, started: started, now: now, next: next}
}

func (s *jobStep) change() JobChange {
	if due := s.next.DueAt(); !s.keepEntry || s.next.DueEntry == 0 || s.next.DueEntry > due {
		s.next.DueEntry = due
	}
	return JobChange{Job: s.next, Events: s.events, Announcement: Announcement{Messages: s.messages, WriteStamp: s.hub.stamp(s.started)}}
}

// become changes the status, with its event.
func (s *jobStep) become(status JobStatus) {
	if s.next.Status == status {
		return
	}
	s.next.Status = status
	if status.Final() {
		s.next.Deadline, s.next.RetryAt, s.next.CompletedAt = 0, 0, s.now
	}
	s.record()
}

// record adds the event of the status the job has now.
func (s *jobStep) record() {
	s.next.Events++
	s.events = append(s.events, JobEvent{Seq: s.next.Events, At: s.now, Job: s.next})
}

func (s *jobStep) setOutcome(result, failure json.RawMessage) {
	s.next.Outcome, s.next.OutcomeID = outcomeOf(result, failure), s.hub.ids.New()
}

// dispatch sends the attempt to the worker.
func (s *jobStep) dispatch(reason string) {
	job := &s.next
	payload := object{}
	payload.put("kind", quoted(assignKind))
	payload.put("reason", quoted(reason))
	payload.put("assign_job_id", quoted(job.ID))
	payload.put("attempt", numeral(job.Attempt))
	payload.put("retry_count", numeral(job.RetryCount))
	payload.put("max_retries", numeral(job.MaxRetries))
	payload.put("timeout_ms", numeral(job.Timeout.Milliseconds()))
	payload.put("supervisor_agent", quoted(job.Supervisor))
	payload.put("worker_agent", quoted(job.Worker))
	payload.put("task", job.Task())
	payload.put("payload", job.Payload())
	message := s.announce(job.Supervisor, job.Worker, MessageHandoff, job.Topic, job.Priority, payload)
	job.RetryAt, job.LastMessageID, job.Deadline = 0, message.ID, s.now.Add(job.Timeout)
}

func (s *jobStep) announce(from, to string, kind MessageType, topic string, priority int64, payload object) Delivery {
	message := s.hub.announce(announcement{
		from: from, to: to, kind: kind, topic: topic, priority: priority, ttl: s.next.TTL,
		correlationID: s.next.CorrelationID, traceID: s.next.TraceID, payload: payload.encode(),
	}, s.now)
	s.messages = append(s.messages, message)
	return message
}

// tellWorker tells the worker to stop its attempt.
func (s *jobStep) tellWorker(reason string) {
	payload := object{}
	payload.put("kind", quoted(jobCancelKind))
	payload.put("assign_job_id", quoted(s.next.ID))
	payload.put("attempt", numeral(s.next.Attempt))
	payload.put("reason", quoted(reason))
	s.announce(jobRouter, s.next.Worker, MessageEvent, jobCancelTopic, jobCancelUrgent, payload)
}

// tellSupervisor sends the supervisor an event with the job's snapshot.
func (s *jobStep) tellSupervisor(event string, extras object) {
	s.announce(s.next.Worker, s.next.Supervisor, MessageEvent, jobResultTopic, max(jobMinPriority, s.next.Priority),
		supervisorEvent(event, s.next, extras))
}

func supervisorEvent(event string, j Job, extras object) object {
	payload := object{}
	payload.put("event", quoted(event))
	for _, m := range append(snapshotOf(j), extras...) {
		payload.put(m.name, m.value)
	}
	return payload
}

// snapshotOf is the snapshot of contract 1.8.
func snapshotOf(j Job) object {
	return object{
		{"job_id", quoted(j.ID)},
		{"supervisor_agent", quoted(j.Supervisor)},
		{"worker_agent", quoted(j.Worker)},
		{"topic", quoted(j.Topic)},
		{"task", j.Task()},
		{"status", quoted(string(j.Status))},
		{"attempt", numeral(j.Attempt)},
		{"retry_count", numeral(j.RetryCount)},
		{"max_retries", numeral(j.MaxRetries)},
		{"timeout_ms", numeral(j.Timeout.Milliseconds())},
		{"deadline_ms", momentOrNull(j.Deadline)},
		{"trace_id", quoted(j.TraceID)},
		{"correlation_id", quoted(j.CorrelationID)},
		{"last_message_id", quotedOrNull(j.LastMessageID)},
		{"result", j.Result()},
		{"error", j.Error()},
		{"updated_at_ms", numeral(int64(j.UpdatedAt))},
		{"completed_at_ms", momentOrNull(j.CompletedAt)},
	}
}

func momentOrNull(i Instant) json.RawMessage {
	if i == 0 {
		return json.RawMessage("null")
	}
	return numeral(int64(i))
}

func quotedOrNull(s string) json.RawMessage {
	if s == "" {
		return json.RawMessage("null")
	}
	return quoted(s)
}

// mayRetry tells whether there is another attempt, and something to send.
func (s *jobStep) mayRetry() bool {
	return s.next.RetryCount < s.next.MaxRetries && !s.next.Content.Lost
}

// retry begins the next attempt (contract 7.5): at once or after its delay.
func (s *jobStep) retry(reason, requestedBy string) {
	job := &s.next
	delay := job.retryDelay()
	job.RetryCount++
	job.Attempt++
	job.StartedAt, job.CompletedAt, job.DispatchedAt, job.LastMessageID, job.EndedBy = 0, 0, 0, "", ""
	job.LastRetryAt = s.now
	s.setOutcome(nil, job.Error())
	extras := object{{"retry_reason", quoted(reason)}, {"requested_by", quoted(requestedBy)}}
	if delay == 0 {
		s.dispatch("retry")
	} else {
		job.RetryAt = s.now.Add(delay)
		job.Deadline = job.RetryAt.Add(job.Timeout)
		extras = append(extras, member{"retry_at_ms", numeral(int64(job.RetryAt))})
	}
	s.become(JobQueued)
	s.tellSupervisor(eventRetry, extras)
}

// retryDelay is how long the next retry waits.
func (j Job) retryDelay() time.Duration {
	delay := j.RetryDelay
	for n := int64(0); j.Backoff && n < j.RetryCount && delay < MaxRetryDelay; n++ {
		delay *= 2
	}
	return min(delay, MaxRetryDelay)
}

// timeOut ends an attempt whose deadline has passed (contract 7.6).
func (s *jobStep) timeOut() {
	failure := s.next.Error()
	if isNull(failure) {
		failure = json.RawMessage(`{"message":"assign job timed out"}`)
	}
	s.setOutcome(s.next.Result(), failure)
	s.next.EndedBy = EndedByTimeout
	s.become(JobTimedOut)
	s.tellWorker(string(JobTimedOut))
	if s.mayRetry() && !s.next.HoldTimeouts {
		s.retry(string(JobTimedOut), retrySweeper)
		return
	}
	s.tellSupervisor(eventCompleted, object{{"completion_reason", quoted(string(JobTimedOut))}})
}

// settlement is what became of a job that was due.
type settlement struct {
	job                                    Job
	timedOut, retried, dispatched, rearmed int
}

// settleJob lets the clock move a job on: a waiting retry is dispatched, an
// attempt whose deadline has passed ends. It returns the job as it then stands.
func (h *Hub) settleJob(ctx context.Context, seen Job) (settlement, error) {
	done := settlement{job: seen}
	for attempt := range changeAttempts {
		started := h.clock.Now()
		if !done.job.due(InstantOf(started)) {
			return done, nil
		}
		loaded, err := h.loaded(ctx, done.job)
		if err != nil {
			return done, err
		}
		step, counts, err := h.dueStep(ctx, loaded, started)
		if err != nil {
			return done, err
		}
		saved, err := h.jobs.SaveJob(ctx, step.change())
		if err != nil {
			return done, fmt.Errorf("move job on: %w", err)
		}
		if saved.Done {
			counts.job = step.next
			counts.add(done)
			done = counts
			continue
		}
		if err := pause(ctx, attempt); err != nil {
			return done, err
		}
		if done.job, err = h.readJob(ctx, seen.ID); err != nil {
			return done, err
		}
	}
	return done, errCrowded()
}

func (s *settlement) add(o settlement) {
	s.timedOut += o.timedOut
	s.retried += o.retried
	s.dispatched += o.dispatched
	s.rearmed += o.rearmed
}

// dueStep is what the clock does to a job.
func (h *Hub) dueStep(ctx context.Context, job Job, started time.Time) (*jobStep, settlement, error) {
	step := h.jobStep(job, started)
	switch {
	case job.RetryAt > 0 && job.Content.Lost:
		step.setOutcome(nil, json.RawMessage(`{"code":"content_lost","message":"the job's content is gone"}`))
		step.next.EndedBy = EndedByLoss
		step.become(JobFailed)
		step.tellSupervisor(eventCompleted, object{{"completion_reason", quoted(string(EndedByLoss))}})
		return step, settlement{}, nil
	case job.RetryAt > 0:
		step.dispatch("retry")
		return step, settlement{dispatched: 1}, nil
	}
	delivered, err := h.deliveredAt(ctx, job)
	if err != nil {
		return nil, settlement{}, err
	}
	if delivered > 0 && delivered < job.Deadline && delivered.Add(job.Timeout) > step.now {
		step.next.DispatchedAt, step.next.Deadline = delivered, delivered.Add(job.Timeout)
		return step, settlement{rearmed: 1}, nil
	}
	step.timeOut()
	counts := settlement{timedOut: 1}
	if !step.next.Status.Final() {
		counts.retried = 1
	}
	return step, counts, nil
}

// deliveredAt looks up when the dispatch of an attempt was delivered, where the
// drain that delivered it did not get to say so; 0 when it was not.
func (h *Hub) deliveredAt(ctx context.Context, job Job) (Instant, error) {
	if job.DispatchedAt > 0 || job.LastMessageID == "" {
		return 0, nil
	}
	dispatch, _, err := h.messages.ReadDelivery(ctx, job.Worker, job.LastMessageID)
	if err != nil {
		return 0, fmt.Errorf("read dispatch: %w", err)
	}
	if dispatch.DeliveredAt == 0 {
		return 0, nil
	}
	return max(dispatch.DeliveredAt, dispatch.CreatedAt), nil
}

// dispatchPrefix is how the payload of every dispatch begins.
var dispatchPrefix = []byte(`{"kind":"assign.job","reason":`)

// markDispatched re-arms the deadlines of jobs whose dispatch was just handed
// out for the first time (contract 7.3). The messages are out either way: where
// a mark is missing, whoever meets the deadline looks the delivery up. On a host
// whose clock is behind, the delivery counts from the dispatch on: the deadline
// must not come before the due entry that the dispatch made.
func (h *Hub) markDispatched(ctx context.Context, handedOut []Delivery, now Instant) {
	var marks []JobDispatch
	for _, d := range handedOut {
		if d.Type != MessageHandoff || d.Deliveries > 1 || !bytes.HasPrefix(d.Payload.JSON, dispatchPrefix) {
			continue
		}
		var content struct {
			JobID     string `json:"assign_job_id"`
			Attempt   int64  `json:"attempt"`
			TimeoutMs int64  `json:"timeout_ms"`
		}
		if json.Unmarshal(d.Payload.JSON, &content) != nil || checkID("assign_job_id", content.JobID) != nil ||
			content.TimeoutMs < MinJobTimeout.Milliseconds() || content.TimeoutMs > MaxJobTimeout.Milliseconds() {
			continue // somebody else's message that looks like one
		}
		marks = append(marks, JobDispatch{
			JobID: content.JobID, MessageID: d.ID, Attempt: content.Attempt, At: max(now, d.CreatedAt),
			Timeout: time.Duration(content.TimeoutMs) * time.Millisecond,
		})
	}
	_ = inParallel(len(marks), sweepParallel, func(i int) error {
		_, err := h.jobs.MarkDispatched(ctx, marks[i])
		return err
	})
}

// knownStatuses are the words of a report and what they say (contract 7.4).
var knownStatuses = map[string]JobStatus{
	"queued":  JobQueued,
	"running": JobRunning, "in_progress": JobRunning,
	"timed_out": JobTimedOut, "timeout": JobTimedOut,
	"failed": JobFailed, "error": JobFailed,
	"succeeded": JobSucceeded, "success": JobSucceeded,
}

// completedWord leaves it to the outcome tag of the metadata.
const completedWord = "completed"

// reportedStatus reads the status of a report.
func reportedStatus(word string, payload, metadata json.RawMessage) (JobStatus, error) {
	word = trimmed(word)
	if status, known := knownStatuses[word]; known {
		return status, nil
	}
	if word != completedWord {
		return "", Invalid("status", "status must be queued, running, in_progress, succeeded, success, completed, failed, error, timed_out or timeout")
	}
	merged := object{}
	for _, layer := range []json.RawMessage{memberOf(payload, "metadata"), metadata} {
		if err := merged.merge(layer); err != nil {
			return "", Invalid("metadata", "metadata must be JSON")
		}
	}
	for _, name := range []string{"result", "status", "outcome"} {
		value := merged.get(name)
		if isNull(value) {
			continue
		}
		var tag string
		if json.Unmarshal(value, &tag) == nil {
			if status := knownStatuses[trimmed(tag)]; slices.Contains([]JobStatus{JobFailed, JobTimedOut}, status) {
				return status, nil
			}
		}
		break
	}
	return JobSucceeded, nil
}
