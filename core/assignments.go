package core

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// An assignment is a job that a supervisor gives to a worker:
//
//	          report running        report
//	queued ─────────────────▶ running ─────▶ succeeded
//	 ▲  │                      │    └──────▶ failed ◀── cancel
//	 │  └──────────┬───────────┘               │
//	 │             │ deadline                  │
//	 │             ▼                           │
//	 │          timed_out                      │
//	 └─────────────┴───────────────────────────┘
//	   retry, while there are any: the next attempt
//
// The attempt is the fence: a report that names another one changes nothing and
// is kept for the supervisor as a late result. Whatever happens to a job is one
// transaction with the messages that tell of it (the dispatch to the worker, the
// events to the supervisor) and with the records its followers read, on the
// condition that the job is what it was seen as. So reports, the deadline, a
// cancel and a retry at once end in one outcome, told once.
//
// A deadline holds when it is read: a report that comes at or after it meets a
// job that has timed out, whether or not the sweep has been there. A retry that
// waits is due work like a deadline: whoever meets the job then, by a read, a
// report or the sweep, dispatches it. Without any sweep a waiting retry waits
// until somebody asks for the job.

// JobStatus is where a job stands.
type JobStatus string

// The statuses; the last three are final, until a retry.
const (
	JobQueued    JobStatus = "queued"
	JobRunning   JobStatus = "running"
	JobSucceeded JobStatus = "succeeded"
	JobFailed    JobStatus = "failed"
	JobTimedOut  JobStatus = "timed_out"
)

// JobStatuses lists the statuses.
var JobStatuses = []JobStatus{JobQueued, JobRunning, JobSucceeded, JobFailed, JobTimedOut}

// Final tells whether nothing but a retry leads on.
func (s JobStatus) Final() bool { return s != JobQueued && s != JobRunning }

// The limits of assignments (contract 1.8; a value beyond them is brought into
// them).
const (
	DefaultJobTopic   = "assign.job"
	DefaultJobTimeout = 10 * time.Minute
	DefaultJobTTL     = 10 * time.Minute // of a job's messages
	MinJobTimeout     = time.Second      // also of the messages' time to live
	MaxJobTimeout     = 24 * time.Hour
	MaxJobRetries     = 1000
	MaxRetryDelay     = time.Hour // also where an exponential delay stops growing
	jobCeiling        = 6 * time.Hour
	maxJobNote        = 4096 // bytes of a reason
	// JobRetention is how long a job stays readable after its end, and its
	// events after each of them.
	JobRetention = 30 * 24 * time.Hour
)

// The backoffs of retry_backoff.
const (
	BackoffFixed       = "fixed"
	BackoffExponential = "exponential"
)

// JobEnd tells what ended a job.
type JobEnd string

// What ends a job.
const (
	EndedByReport  JobEnd = "report"
	EndedByTimeout JobEnd = "timed_out"
	EndedByCancel  JobEnd = "cancelled"
	EndedByLoss    JobEnd = "content_lost" // its content is gone, so that it cannot be dispatched again
)

// Job is an assignment as it is stored.
type Job struct {
	ID         string
	Supervisor string
	Worker     string
	Topic      string
	// Content is an object of task and payload. A store may keep a large one
	// apart: JSON is nil until it is loaded.
	Content    Payload
	Status     JobStatus
	Attempt    int64 // from 1: the fence of reports
	RetryCount int64
	MaxRetries int64
	Priority   int64
	Timeout    time.Duration
	TTL        time.Duration // of its messages
	RetryDelay time.Duration
	Backoff    bool // the delay doubles with every retry
	// HoldTimeouts: a deadline ends the job even where retries are left, because
	// nobody knows whether the work was done.
	HoldTimeouts bool

	Deadline Instant // 0 when final
	RetryAt  Instant // of a retry that waits to be dispatched; else 0
	// DueEntry is where the sweep finds the job: at DueAt or before, 0 for
	// nowhere.
	DueEntry      Instant
	TraceID       string
	CorrelationID string
	LastMessageID string // of the attempt's dispatch
	// Outcome is an object of result and error, OutcomeID its name where it is
	// kept apart.
	Outcome   Payload
	OutcomeID string

	CreatedAt    Instant
	UpdatedAt    Instant
	StartedAt    Instant
	DispatchedAt Instant // first delivery of the attempt's dispatch
	CompletedAt  Instant
	LastRetryAt  Instant

	EndedBy JobEnd // of a final job
	// Reported is the latest report that ended an attempt, to know it again.
	Reported JobReportMark
	Events   int64 // how many there were: the sequence of the latest
	Version  int64 // counts the changes: a write names the one it follows
}

// JobReportMark is what a repeated report is known by.
type JobReportMark struct {
	Attempt int64
	Hash    string
}

// DueAt is when the job needs somebody to look at it; 0 for never.
func (j Job) DueAt() Instant {
	switch {
	case j.RetryAt > 0:
		return j.RetryAt
	case !j.Status.Final():
		return j.Deadline
	}
	return 0
}

// due tells whether the clock has moved the job on and nobody has met it since.
func (j Job) due(now Instant) bool { return j.DueAt() > 0 && j.DueAt() <= now }

// Task is what the worker is asked for, as JSON.
func (j Job) Task() json.RawMessage { return memberOf(j.Content.JSON, "task") }

// Payload is what goes with the task.
func (j Job) Payload() json.RawMessage { return memberOf(j.Content.JSON, "payload") }

// Result is what the worker reported, null for nothing.
func (j Job) Result() json.RawMessage { return memberOf(j.Outcome.JSON, "result") }

// Error is why the latest attempt failed, null for nothing.
func (j Job) Error() json.RawMessage { return memberOf(j.Outcome.JSON, "error") }

func memberOf(text json.RawMessage, name string) json.RawMessage {
	content := object{}
	if err := content.merge(text); err == nil {
		if value := content.get(name); value != nil {
			return value
		}
	}
	return json.RawMessage("null")
}

// size is what the job takes of an answer.
func (j Job) size() PayloadSize {
	return PayloadSize{
		Answer: j.Content.Size.Answer + j.Outcome.Size.Answer + 2*messageOverhead,
		Framed: j.Content.Size.Framed + j.Outcome.Size.Framed + 4*messageOverhead,
	}
}

// JobChange is a job's next version, the events of its changes of status and
// what is announced with them. It applies where the version before it stands
// (0: there is none).
type JobChange struct {
	Job    Job
	Events []JobEvent
	Announcement
}

// JobDispatch marks the first delivery of a job's dispatch. It applies while the
// job waits for it: active, with this message the latest dispatch, undelivered.
type JobDispatch struct {
	JobID     string
	MessageID string
	Attempt   int64
	At        Instant
	Timeout   time.Duration // the deadline is so much after At
}

// JobStore keeps the assignments. Reads are strongly consistent except where
// said.
type JobStore interface {
	// SaveJob applies a change, all of it or nothing.
	SaveJob(ctx context.Context, c JobChange) (SaveOutcome, error)
	// ReadJob returns one job, its content and outcome where they are small;
	// false when there is none.
	ReadJob(ctx context.Context, id string) (Job, bool, error)
	// LoadJobs reads what is kept apart of jobs, in place.
	LoadJobs(ctx context.Context, jobs []Job) error
	// MarkDispatched applies d; false when it does not apply (any more).
	MarkDispatched(ctx context.Context, d JobDispatch) (bool, error)
	// ListJobs returns a page of jobs, newest first. Which there are may lag a
	// moment behind.
	ListJobs(ctx context.Context, s JobScan) (JobPage, error)
	// DueJobs returns a page of one shard of the jobs that are due by now.
	DueJobs(ctx context.Context, shard int, now Instant, after string, limit int) (DueJobPage, error)
	// JobShards tells how many shards DueJobs and DueEvents have.
	JobShards() int

	// ReadJobEvents returns up to limit events of a job after a sequence, oldest
	// first, without the job's content.
	ReadJobEvents(ctx context.Context, jobID string, after int64, limit int) ([]JobEvent, error)
	// DueEvents returns a page of one shard of the jobs with events that were
	// not relayed; a job may be there more than once.
	DueEvents(ctx context.Context, shard int, now Instant, after string, limit int) (DueEventPage, error)
	// UnrelayedEvents returns up to limit of them of one job, oldest first.
	UnrelayedEvents(ctx context.Context, jobID string, limit int) ([]JobEvent, error)
	// MarkRelayed takes an event out of what is to be relayed.
	MarkRelayed(ctx context.Context, e JobEvent) error

	// CountJobs counts the jobs by stored status; false when it gave up before
	// it had counted them all. Counts may lag a moment behind.
	CountJobs(ctx context.Context, now Instant) (AssignCounts, bool, error)
	// StoreJobCounts and ReadJobCounts keep the counts for readers; zero when
	// none were stored.
	StoreJobCounts(ctx context.Context, c AssignCounts) error
	ReadJobCounts(ctx context.Context) (AssignCounts, error)
}

// DueJobPage is a page of jobs that are due, or whose due entry is early.
type DueJobPage struct {
	Jobs   []Job
	Oldest Instant // the first entry's deadline; 0 when there is none
	Next   string
	// Unreadable is the error of the first item that cannot be read; the page leaves
	// such items out.
	Unreadable error
}

// AssignRequest gives a job to a worker.
type AssignRequest struct {
	Supervisor    string
	Worker        string
	Task          string
	Topic         string          // "": assign.job
	Payload       json.RawMessage // any JSON value; nil is an empty object
	Priority      Opt[int64]      // brought into 1..9; 5 without it
	TTLMs         Opt[int64]      // of its messages
	TimeoutMs     Opt[int64]      // of an attempt
	MaxRetries    int64
	RetryDelayMs  int64
	Backoff       string // "", fixed or exponential
	HoldTimeouts  bool
	TraceID       string
	CorrelationID string
	Fences        Fences // the generation is the supervisor's
	Idempotency   Opt[IdempotencyKey]
}

// Assigned is the answer to an operation that leads to a job's state.
type Assigned struct {
	Job Job
	// Retried: the operation led to another attempt.
	Retried     bool
	RetryReason string
	RequestedBy string
	// Replayed: an earlier try had done it; Job is the job as it stands.
	Replayed bool
}

// Assign stores a job and dispatches it to the worker's inbox, both in one
// transaction (contract 7.2). Cost: 1 round trip.
//
// Errors: INVALID_ARGUMENT, IDEMPOTENCY_MISMATCH and those of the fences.
func (h *Hub) Assign(ctx context.Context, r AssignRequest) (Assigned, error) {
	if err := r.validate(); err != nil {
		return Assigned{}, err
	}
	identity, err := h.checkIdentity(ctx, r.Fences)
	if err != nil {
		return Assigned{}, err
	}
	started := h.clock.Now()
	step := h.jobStep(Job{}, started)
	step.next = r.job(step.now, h.ids)
	step.dispatch("create")
	step.record()
	change := step.change()
	change.Fence = fenceOf(r.Supervisor, r.Fences)
	if r.Idempotency.Set {
		record, err := r.Idempotency.Value.record(assignedAnswer{JobID: change.Job.ID}, step.now)
		if err != nil {
			return Assigned{}, err
		}
		change.Once = Some(record)
	}
	saved, err := h.jobs.SaveJob(ctx, change)
	switch {
	case err != nil:
		return Assigned{}, fmt.Errorf("put job: %w", err)
	case saved.Repeated.Set:
		return h.replayAssigned(ctx, saved.Repeated.Value, r.Idempotency.Value)
	case saved.Stale.Set:
		return Assigned{}, h.staleActor(change.Fence.Value, saved.Stale.Value, identity)
	case !saved.Done:
		return Assigned{}, Refuse(CodeInternal, "a new job's id was taken")
	}
	return Assigned{Job: change.Job, Replayed: saved.Replayed}, nil
}

// assignedAnswer is what an idempotency key remembers of a job: enough to find
// it. Its snapshot is that of the moment it is asked for.
type assignedAnswer struct {
	JobID string `json:"job_id"`
}

func (h *Hub) replayAssigned(ctx context.Context, stored IdempotencyRecord, key IdempotencyKey) (Assigned, error) {
	var answer assignedAnswer
	if err := key.replay(stored, &answer); err != nil {
		return Assigned{}, err
	}
	job, err := h.readJob(ctx, answer.JobID)
	if err != nil {
		return Assigned{}, err
	}
	loaded, err := h.loaded(ctx, job)
	return Assigned{Job: loaded, Replayed: true}, err
}

func (r *AssignRequest) validate() error {
	if err := checkAgentID("supervisor_agent", r.Supervisor); err != nil {
		return err
	}
	if err := checkAgentID("worker_agent", r.Worker); err != nil {
		return err
	}
	if r.Task == "" {
		return Invalid("task", "task is required")
	}
	if r.Topic == "" {
		r.Topic = DefaultJobTopic
	}
	if err := checkID("topic", r.Topic); err != nil {
		return err
	}
	if !slices.Contains([]string{"", BackoffFixed, BackoffExponential}, r.Backoff) {
		return Invalid("retry_backoff", "retry_backoff must be fixed or exponential")
	}
	if err := checkOptionalIDs(map[string]string{"correlation_id": r.CorrelationID, "trace_id": r.TraceID}); err != nil {
		return err
	}
	var err error
	if r.Payload, err = normalisePayload(r.Payload); err != nil {
		return err
	}
	if r.Idempotency.Set {
		return r.Idempotency.Value.validate()
	}
	return nil
}

// job is the request as a job that is made now, its values brought into their
// bounds (contract 1.8).
func (r AssignRequest) job(now Instant, ids IDs) Job {
	timeout := clamped(r.TimeoutMs, DefaultJobTimeout)
	content := object{}
	content.put("task", quoted(r.Task))
	content.put("payload", r.Payload)
	priority := int64(DefaultPriority)
	if r.Priority.Set {
		priority = min(max(r.Priority.Value, MinPriority), MaxPriority)
	}
	return Job{
		ID: ids.New(), Supervisor: r.Supervisor, Worker: r.Worker, Topic: r.Topic, Content: NewPayload(content.encode()),
		Status: JobQueued, Attempt: 1, MaxRetries: min(max(r.MaxRetries, 0), MaxJobRetries), Priority: priority,
		Timeout: timeout, TTL: clamped(r.TTLMs, DefaultJobTTL),
		RetryDelay: time.Duration(min(max(r.RetryDelayMs, 0), MaxRetryDelay.Milliseconds())) * time.Millisecond,
		Backoff:    r.Backoff == BackoffExponential, HoldTimeouts: r.HoldTimeouts,
		Deadline: now.Add(timeout), TraceID: orNewID(r.TraceID, ids), CorrelationID: orNewID(r.CorrelationID, ids),
		Outcome: outcomeOf(nil, nil), CreatedAt: now, UpdatedAt: now, Version: 1,
	}
}

func clamped(ms Opt[int64], otherwise time.Duration) time.Duration {
	if !ms.Set {
		return otherwise
	}
	return time.Duration(min(max(ms.Value, MinJobTimeout.Milliseconds()), MaxJobTimeout.Milliseconds())) * time.Millisecond
}

// outcomeOf is what a report leaves of a job; nil is null.
func outcomeOf(result, failure json.RawMessage) Payload {
	content := object{}
	for _, m := range []member{{"result", result}, {"error", failure}} {
		if m.value == nil {
			m.value = json.RawMessage("null")
		}
		content.put(m.name, m.value)
	}
	return NewPayload(content.encode())
}

func (h *Hub) readJob(ctx context.Context, id string) (Job, error) {
	job, found, err := h.jobs.ReadJob(ctx, id)
	if err != nil {
		return Job{}, fmt.Errorf("read job: %w", err)
	}
	if !found {
		return Job{}, Refuse(CodeAssignNotFound, "there is no such job")
	}
	return job, nil
}

// loaded is a job with what is kept apart of it.
func (h *Hub) loaded(ctx context.Context, job Job) (Job, error) {
	jobs := []Job{job}
	if err := h.jobs.LoadJobs(ctx, jobs); err != nil {
		return Job{}, fmt.Errorf("load job: %w", err)
	}
	return jobs[0], nil
}

// Job reads one job. One that is due moves on first. Cost: one read; more where
// it is due, or large.
//
// Errors: ASSIGN_NOT_FOUND, INVALID_ARGUMENT and those of the hub's identity.
func (h *Hub) Job(ctx context.Context, id string, f Fences) (Job, error) {
	if err := checkID("job_id", id); err != nil {
		return Job{}, err
	}
	if _, err := h.checkIdentity(ctx, f); err != nil {
		return Job{}, err
	}
	job, err := h.currentJob(ctx, id)
	if err != nil {
		return Job{}, err
	}
	return h.loaded(ctx, job)
}

// currentJob reads a job and lets the clock move it on.
func (h *Hub) currentJob(ctx context.Context, id string) (Job, error) {
	job, err := h.readJob(ctx, id)
	if err != nil {
		return Job{}, err
	}
	settled, err := h.settleJob(ctx, job)
	return settled.job, err
}
