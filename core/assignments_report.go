package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// JobReport is a worker's report on its attempt.
type JobReport struct {
	JobID    string
	Worker   string     // "" is not checked
	Attempt  Opt[int64] // the fence; not checked without it
	Status   string
	Result   json.RawMessage // nil or null: the payload's, or the payload
	Failure  json.RawMessage // the error
	Payload  json.RawMessage
	Metadata json.RawMessage
	Fences   Fences // the generation is the worker's
}

// report is a validated report.
type report struct {
	JobReport
	status          JobStatus
	result, failure json.RawMessage
	hash            string
}

// ReportJob carries out a report (contract 7.4, compat 12). Of any number of
// reports at once that end the attempt one does; the others meet its outcome. A
// report that repeats the one that ended the attempt is answered with the job as
// it stands. Cost: a read, then one transaction.
//
// Errors: ASSIGN_NOT_FOUND, ASSIGN_WORKER_MISMATCH, ASSIGN_ATTEMPT_MISMATCH,
// ASSIGN_ALREADY_FINAL (Data is the Job), INVALID_ARGUMENT and those of the
// fences. A result that is refused because its attempt is over, other than by a
// report, is kept for the supervisor: details.preserved_message_id names the
// message.
func (h *Hub) ReportJob(ctx context.Context, given JobReport) (Assigned, error) {
	r, err := given.validate()
	if err != nil {
		return Assigned{}, err
	}
	return h.changeJob(ctx, jobOperation{
		jobID: r.JobID, agent: r.Worker, agentOf: func(j Job) string { return j.Worker }, fences: r.Fences,
		judge: r.judge,
		late:  func(seen Job, fence Opt[AgentFence]) (string, error) { return h.preserve(ctx, r, seen, fence) },
	})
}

func (r JobReport) validate() (report, error) {
	v := report{JobReport: r}
	if err := checkID("job_id", r.JobID); err != nil {
		return v, err
	}
	if r.Worker != "" {
		if err := checkID("worker_agent", r.Worker); err != nil {
			return v, err
		}
	}
	payload, err := normalisePayload(r.Payload)
	if err != nil {
		return v, err
	}
	if v.status, err = reportedStatus(r.Status, payload, r.Metadata); err != nil {
		return v, err
	}
	v.result, v.failure = r.Result, r.Failure
	content := object{}
	if err := content.merge(payload); err != nil {
		return v, Invalid("payload", "payload must be JSON")
	}
	if isNull(v.result) {
		if v.result = content.get("result"); v.result == nil {
			v.result = payload
		}
	}
	if isNull(v.failure) {
		v.failure = content.get("error")
	}
	if v.result, err = compactJSON("result", v.result, maxPayload); err != nil {
		return v, err
	}
	if v.failure, err = compactJSON("error", v.failure, maxPayload); err != nil {
		return v, err
	}
	v.hash = hashHex([]byte(strings.Join([]string{string(v.status), string(v.result), string(v.failure)}, "\x00")))
	return v, nil
}

// judge is what a report does to the job it meets.
func (r report) judge(step *jobStep, seen Job) (Assigned, error) {
	if r.repeats(seen) {
		return Assigned{
			Job: seen, Replayed: true, Retried: seen.Attempt > seen.Reported.Attempt,
			RetryReason: string(r.status), RequestedBy: seen.Worker,
		}, nil
	}
	switch {
	case r.Attempt.Set && r.Attempt.Value != seen.Attempt:
		return Assigned{}, errLate(CodeAssignAttemptMismatch, "the job is at another attempt", seen)
	case seen.Status.Final() && seen.EndedBy == EndedByReport:
		return Assigned{}, alreadyFinal(seen)
	case seen.Status.Final():
		return Assigned{}, errLate(CodeAssignAlreadyFinal, "the job has ended", seen)
	case r.status.Final():
		return r.end(step), nil
	}
	r.progress(step)
	return Assigned{}, nil
}

// repeats tells whether a report that ended an attempt came again. Without an
// attempt it is only known while the job has not moved on.
func (r report) repeats(seen Job) bool {
	if seen.Reported.Hash != r.hash {
		return false
	}
	if r.Attempt.Set {
		return r.Attempt.Value == seen.Reported.Attempt
	}
	return seen.Status.Final() && seen.EndedBy == EndedByReport && seen.Reported.Attempt == seen.Attempt
}

func (r report) progress(step *jobStep) {
	job := &step.next
	begun := job.CreatedAt
	for _, at := range []Instant{job.LastRetryAt, job.DispatchedAt} {
		if at > 0 {
			begun = at
		}
	}
	if r.status == JobRunning && job.StartedAt == 0 {
		job.StartedAt = step.now
	}
	job.RetryAt = 0
	job.Deadline = min(step.now.Add(job.Timeout), begun.Add(jobCeiling))
	step.keepEntry = true
	step.setOutcome(r.result, r.failure)
	step.become(r.status)
	step.tellSupervisor(eventProgress, nil)
}

func (r report) end(step *jobStep) Assigned {
	job := &step.next
	step.setOutcome(r.result, r.failure)
	job.EndedBy, job.Reported = EndedByReport, JobReportMark{Attempt: job.Attempt, Hash: r.hash}
	step.become(r.status)
	if r.status != JobSucceeded && step.mayRetry() {
		step.retry(string(r.status), job.Worker)
		return Assigned{Retried: true, RetryReason: string(r.status), RequestedBy: job.Worker}
	}
	step.tellSupervisor(eventCompleted, nil)
	return Assigned{}
}

// alreadyFinal refuses to change a job that has ended.
func alreadyFinal(job Job) *Error {
	return &Error{Code: CodeAssignAlreadyFinal, Message: "the job has ended as " + string(job.Status), Data: job}
}

// errLate refuses a report whose attempt is over. What it reports is kept.
func errLate(code Code, message string, seen Job) error {
	return &lateReport{Error{Code: code, Message: message, Data: seen}}
}

type lateReport struct{ refusal Error }

func (l *lateReport) Error() string { return l.refusal.Error() }

// lateSpace names the messages that keep late results: the same report of the
// same attempt is the same message, however often it is sent.
var lateSpace = uuid.MustParse("0b6c6d1e-6a0b-4f0e-8d6f-4a2f6d6a7c11")

// preserve keeps a late result for the supervisor.
func (h *Hub) preserve(ctx context.Context, r report, seen Job, fence Opt[AgentFence]) (string, error) {
	attempt := seen.Attempt
	if r.Attempt.Set {
		attempt = r.Attempt.Value
	}
	started := h.clock.Now()
	extras := object{
		{"stale_attempt", numeral(attempt)},
		{"late_status", quoted(string(r.status))},
		{"late_result", r.result},
		{"late_error", r.failure},
		{"reported_by", quoted(orText(r.Worker, seen.Worker))},
	}
	message := h.announce(announcement{
		from: seen.Worker, to: seen.Supervisor, kind: MessageEvent, topic: jobResultTopic,
		priority: max(jobMinPriority, seen.Priority), ttl: seen.TTL, correlationID: seen.CorrelationID, traceID: seen.TraceID,
		payload: supervisorEvent(eventLate, seen, extras).encode(),
	}, InstantOf(started))
	name := strings.Join([]string{seen.ID, strconv.FormatInt(attempt, 10), r.hash}, "\x00")
	message.ID = uuid.NewSHA1(lateSpace, []byte(name)).String()
	outcome, err := h.messages.PutMessage(ctx, Publication{Delivery: message, Fence: fence, WriteStamp: h.stamp(started)})
	if err != nil {
		return "", fmt.Errorf("keep late result: %w", err)
	}
	if outcome.Stale.Set {
		identity, err := h.Identity(ctx)
		if err != nil {
			return "", err
		}
		return "", h.staleActor(fence.Value, outcome.Stale.Value, identity)
	}
	return message.ID, nil
}

func orText(given, otherwise string) string {
	if given == "" {
		return otherwise
	}
	return given
}

// JobRetryRequest begins another attempt of a job that has ended.
type JobRetryRequest struct {
	JobID       string
	Supervisor  string // "" is not checked
	Reason      string // "": manual
	RequestedBy string // "": manual
	Force       bool   // a succeeded one too
	Fences      Fences // the generation is the supervisor's
}

// RetryJob begins another attempt (contract 7.5, compat 12 and 19). Cost: a
// read, then one transaction.
//
// Errors: ASSIGN_NOT_FOUND, ASSIGN_ACTIVE, ASSIGN_ALREADY_FINAL,
// ASSIGN_RETRY_EXHAUSTED, ASSIGN_SUPERVISOR_MISMATCH, INVALID_ARGUMENT and those
// of the fences.
func (h *Hub) RetryJob(ctx context.Context, r JobRetryRequest) (Assigned, error) {
	reason, by := orText(r.Reason, retryManual), orText(r.RequestedBy, retryManual)
	if err := checkNotes(r.JobID, r.Supervisor, reason, by); err != nil {
		return Assigned{}, err
	}
	return h.changeJob(ctx, jobOperation{
		jobID: r.JobID, agent: r.Supervisor, agentOf: func(j Job) string { return j.Supervisor }, fences: r.Fences,
		judge: func(step *jobStep, seen Job) (Assigned, error) {
			exhausted := seen.RetryCount >= seen.MaxRetries || seen.Content.Lost
			switch {
			// The last retry is under way: the contract says exhausted (vector
			// 127), and so it is.
			case exhausted && seen.RetryCount > 0 && !seen.Status.Final():
				return Assigned{}, Refuse(CodeAssignRetryExhausted, "the job has no retry left")
			case !seen.Status.Final():
				return Assigned{}, &Error{Code: CodeAssignActive, Message: "the job is " + string(seen.Status), Data: seen}
			case seen.Status == JobSucceeded && !r.Force:
				return Assigned{}, alreadyFinal(seen)
			case exhausted:
				return Assigned{}, Refuse(CodeAssignRetryExhausted, "the job has no retry left")
			}
			step.retry(reason, by)
			return Assigned{Retried: true, RetryReason: reason, RequestedBy: by}, nil
		},
	})
}

// JobCancelRequest ends a job.
type JobCancelRequest struct {
	JobID       string
	Supervisor  string // "" is not checked
	Reason      string
	RequestedBy string
	Fences      Fences // the generation is the supervisor's
}

// cancelledCode is the code in the error of a cancelled job.
const cancelledCode = "cancelled"

// CancelJob ends a job as failed and tells its worker and its supervisor. Cost:
// a read, then one transaction.
//
// Errors: ASSIGN_NOT_FOUND, ASSIGN_ALREADY_FINAL (Data is the Job),
// ASSIGN_SUPERVISOR_MISMATCH, INVALID_ARGUMENT and those of the fences.
func (h *Hub) CancelJob(ctx context.Context, r JobCancelRequest) (Assigned, error) {
	if err := checkNotes(r.JobID, r.Supervisor, r.Reason, r.RequestedBy); err != nil {
		return Assigned{}, err
	}
	return h.changeJob(ctx, jobOperation{
		jobID: r.JobID, agent: r.Supervisor, agentOf: func(j Job) string { return j.Supervisor }, fences: r.Fences,
		judge: func(step *jobStep, seen Job) (Assigned, error) {
			if seen.Status.Final() {
				return Assigned{}, alreadyFinal(seen)
			}
			failure := object{
				{"code", quoted(cancelledCode)},
				{"message", quoted("assign job cancelled")},
				{"reason", quotedOrNull(r.Reason)},
				{"requested_by", quotedOrNull(r.RequestedBy)},
			}
			step.setOutcome(nil, failure.encode())
			step.next.EndedBy = EndedByCancel
			step.become(JobFailed)
			step.tellWorker(orText(r.Reason, cancelledCode))
			step.tellSupervisor(eventCompleted, object{{"completion_reason", quoted(cancelledCode)}})
			return Assigned{}, nil
		},
	})
}

func checkNotes(jobID, supervisor, reason, by string) error {
	if err := checkID("job_id", jobID); err != nil {
		return err
	}
	if err := checkOptionalIDs(map[string]string{"supervisor_agent": supervisor, "requested_by": by}); err != nil {
		return err
	}
	if len(reason) > maxJobNote || !isText(reason) {
		return Invalid("reason", fmt.Sprintf("reason must be at most %d bytes of UTF-8 without control characters", maxJobNote))
	}
	return nil
}

// jobOperation is one operation on a job: who acts, and what it does to the job
// it meets.
type jobOperation struct {
	jobID string
	// agent is who says to act, "" for nobody; agentOf who it has to be.
	agent   string
	agentOf func(Job) string
	fences  Fences
	// judge builds the step, or answers without one: a refusal, or a replay.
	judge func(step *jobStep, seen Job) (Assigned, error)
	// late keeps what a lateReport carries and returns its message.
	late func(seen Job, fence Opt[AgentFence]) (string, error)
}

// changeJob reads a job, lets the clock move it on, and carries the operation
// out where the job is still what was read.
func (h *Hub) changeJob(ctx context.Context, o jobOperation) (Assigned, error) {
	identity, err := h.checkIdentity(ctx, o.fences)
	if err != nil {
		return Assigned{}, err
	}
	if o.fences.Generation.Set && o.agent != "" {
		// A stale owner is told so whatever the job is; the write decides again.
		if err := h.checkFence(ctx, fenceOf(o.agent, o.fences).Value, identity); err != nil {
			return Assigned{}, err
		}
	}
	for attempt := range changeAttempts {
		seen, err := h.currentJob(ctx, o.jobID)
		if err != nil {
			return Assigned{}, err
		}
		if seen, err = h.loaded(ctx, seen); err != nil {
			return Assigned{}, err
		}
		if o.agent != "" && o.agent != o.agentOf(seen) {
			return Assigned{}, o.mismatch()
		}
		fence := fenceOf(o.agentOf(seen), o.fences)
		step := h.jobStep(seen, h.clock.Now())
		answer, err := o.judge(step, seen)
		if err != nil {
			return Assigned{}, o.refuse(err, seen, fence)
		}
		if answer.Replayed {
			return answer, nil
		}
		done, err := h.saveStep(ctx, step, fence, identity)
		if err != nil {
			return Assigned{}, err
		}
		if done.Done {
			answer.Job, answer.Replayed = step.next, done.Replayed
			return answer, nil
		}
		if err := pause(ctx, attempt); err != nil {
			return Assigned{}, err
		}
	}
	return Assigned{}, errCrowded()
}

func (h *Hub) saveStep(ctx context.Context, step *jobStep, fence Opt[AgentFence], identity Identity) (SaveOutcome, error) {
	change := step.change()
	change.Fence = fence
	saved, err := h.jobs.SaveJob(ctx, change)
	if err != nil {
		return SaveOutcome{}, fmt.Errorf("put job: %w", err)
	}
	if saved.Stale.Set {
		return SaveOutcome{}, h.staleActor(fence.Value, saved.Stale.Value, identity)
	}
	return saved, nil
}

func (o jobOperation) mismatch() error {
	if o.late != nil {
		return Refuse(CodeAssignWorkerMismatch, "the job is another worker's")
	}
	return Refuse(CodeAssignSupervisorMismatch, "the job is another supervisor's")
}

// refuse answers a refusal; that of a late report when what it reports is kept.
func (o jobOperation) refuse(err error, seen Job, fence Opt[AgentFence]) error {
	var late *lateReport
	if !errors.As(err, &late) {
		return err
	}
	message, failed := o.late(seen, fence)
	if failed != nil {
		return failed
	}
	refusal := late.refusal
	refusal.Details = map[string]any{"preserved": true, "preserved_message_id": message}
	return &refusal
}
