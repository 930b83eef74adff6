package functions

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"

	"drawbridge/core"
)

// assignView is the snapshot of a job (contract 1.8) with what is beyond it.
type assignView struct {
	JobID           string          `json:"job_id"`
	SupervisorAgent string          `json:"supervisor_agent"`
	WorkerAgent     string          `json:"worker_agent"`
	Topic           string          `json:"topic"`
	Task            json.RawMessage `json:"task" doc:"A string; null when a large one is not kept any more."`
	Status          core.JobStatus  `json:"status"`
	Attempt         int64           `json:"attempt" doc:"The fence of reports: send it with every one."`
	RetryCount      int64           `json:"retry_count"`
	MaxRetries      int64           `json:"max_retries"`
	TimeoutMs       int64           `json:"timeout_ms"`
	DeadlineMs      *core.Instant   `json:"deadline_ms"`
	TraceID         string          `json:"trace_id"`
	CorrelationID   string          `json:"correlation_id"`
	LastMessageID   *string         `json:"last_message_id" doc:"Of the attempt's dispatch."`
	Result          json.RawMessage `json:"result"`
	Error           json.RawMessage `json:"error"`
	CreatedAtMs     core.Instant    `json:"created_at_ms"`
	UpdatedAtMs     core.Instant    `json:"updated_at_ms"`
	DispatchedAtMs  *core.Instant   `json:"dispatched_at_ms" doc:"First delivery of the attempt's dispatch."`
	RetryAtMs       *core.Instant   `json:"retry_at_ms" doc:"When a retry that waits is dispatched."`
	CompletedAtMs   *core.Instant   `json:"completed_at_ms"`
}

func assignViewOf(j core.Job) assignView {
	return assignView{
		JobID: j.ID, SupervisorAgent: j.Supervisor, WorkerAgent: j.Worker, Topic: j.Topic, Task: j.Task(), Status: j.Status,
		Attempt: j.Attempt, RetryCount: j.RetryCount, MaxRetries: j.MaxRetries, TimeoutMs: j.Timeout.Milliseconds(),
		DeadlineMs: momentOrNull(j.Deadline), TraceID: j.TraceID, CorrelationID: j.CorrelationID,
		LastMessageID: orNull(j.LastMessageID), Result: j.Result(), Error: j.Error(), CreatedAtMs: j.CreatedAt,
		UpdatedAtMs: j.UpdatedAt, DispatchedAtMs: momentOrNull(j.DispatchedAt), RetryAtMs: momentOrNull(j.RetryAt),
		CompletedAtMs: momentOrNull(j.CompletedAt),
	}
}

// changedAssignView is the answer of what may lead to another attempt.
type changedAssignView struct {
	assignView
	Retried     bool   `json:"retried,omitempty"`
	RetryReason string `json:"retry_reason,omitempty"`
	RequestedBy string `json:"requested_by,omitempty"`
}

func (c *call) changedAssign(done core.Assigned) changedAssignView {
	c.replayed = done.Replayed
	view := changedAssignView{assignView: assignViewOf(done.Job), Retried: done.Retried}
	if done.Retried {
		view.RetryReason, view.RequestedBy = done.RetryReason, done.RequestedBy
	}
	return view
}

// refusedAssign shows the job in a refusal that carries one.
func refusedAssign(err error) error {
	var refusal *core.Error
	if errors.As(err, &refusal) {
		if job, ok := refusal.Data.(core.Job); ok {
			shown := *refusal
			shown.Data = assignViewOf(job)
			return &shown
		}
	}
	return staleActor(err)
}

// --- assign/async (contract 2.15)

type assignRequest struct {
	SupervisorAgent string          `json:"supervisor_agent" in:"id,required"`
	WorkerAgent     string          `json:"worker_agent" in:"id,required"`
	Task            string          `json:"task" in:"text,required,min=1"`
	Topic           string          `json:"topic" in:"id,default=\"assign.job\""`
	Payload         json.RawMessage `json:"payload" in:"any"`
	Priority        core.Opt[int64] `json:"priority" in:"truncated" doc:"Brought into 1 to 9; 5 without it."`
	TTLMs           core.Opt[int64] `json:"ttl_ms" in:"truncated" doc:"Of the job's messages: brought into 1,000 to 86,400,000; 600,000 without it."`
	TimeoutMs       core.Opt[int64] `json:"timeout_ms" in:"truncated" doc:"Of an attempt: brought into 1,000 to 86,400,000; 600,000 without it."`
	MaxRetries      int64           `json:"max_retries" in:"truncated,default=0,null=0" doc:"Brought into 0 to 1,000."`
	RetryDelayMs    int64           `json:"retry_delay_ms" in:"truncated,default=0,null=0" doc:"How long a retry waits: brought into 0 to 3,600,000."`
	RetryBackoff    string          `json:"retry_backoff" in:"line,default=\"fixed\",enum=fixed|exponential" doc:"exponential: the delay doubles with every retry, up to an hour."`
	RetryOnTimeout  bool            `json:"retry_on_timeout" in:"boolean,default=true" doc:"false: a deadline ends the job even where retries are left, because nobody knows whether the work was done."`
	messageIDs
	fences
}

func (r assignRequest) actingAgents() []actingAgent {
	return []actingAgent{{"supervisor_agent", r.SupervisorAgent}}
}

type assignResponse struct {
	AssignedTo string `json:"assigned_to"`
	assignView
}

func assign(ctx context.Context, c *call, r assignRequest) (assignResponse, error) {
	done, err := c.hub.Assign(ctx, core.AssignRequest{
		Supervisor: r.SupervisorAgent, Worker: r.WorkerAgent, Task: r.Task, Topic: r.Topic, Payload: r.Payload,
		Priority: r.Priority, TTLMs: r.TTLMs, TimeoutMs: r.TimeoutMs, MaxRetries: r.MaxRetries, RetryDelayMs: r.RetryDelayMs,
		Backoff: r.RetryBackoff, HoldTimeouts: !r.RetryOnTimeout, TraceID: r.TraceID.Value, CorrelationID: r.CorrelationID.Value,
		Fences: r.fences.core(), Idempotency: c.key,
	})
	if err != nil {
		return assignResponse{}, staleActor(err)
	}
	c.replayed = done.Replayed
	return assignResponse{AssignedTo: done.Job.Worker, assignView: assignViewOf(done.Job)}, nil
}

// --- assign/result

type assignResultRequest struct {
	JobID       string           `json:"job_id" in:"id,required"`
	Status      string           `json:"status" in:"line,required,min=1" doc:"queued, running, in_progress, succeeded, success, completed, failed, error, timed_out or timeout."`
	WorkerAgent core.Opt[string] `json:"worker_agent" in:"id" doc:"Refuse unless it is the job's worker."`
	Attempt     core.Opt[int64]  `json:"attempt" in:"integer,null=0" doc:"Refuse unless it is the job's attempt."`
	Result      json.RawMessage  `json:"result" in:"any"`
	Error       json.RawMessage  `json:"error" in:"any"`
	Payload     json.RawMessage  `json:"payload" in:"any" doc:"Its members result and error stand for those that are not given; without them it is the result."`
	Metadata    json.RawMessage  `json:"metadata" in:"object" doc:"For completed: a member result, status or outcome that says failed or timed_out."`
	fences
}

// A token that is bound to agents reports as one of them, by name.
func (r assignResultRequest) actingAgents() []actingAgent {
	return []actingAgent{{"worker_agent", r.WorkerAgent.Value}}
}

func reportAssign(ctx context.Context, c *call, r assignResultRequest) (changedAssignView, error) {
	done, err := c.hub.ReportJob(ctx, core.JobReport{
		JobID: r.JobID, Worker: r.WorkerAgent.Value, Attempt: r.Attempt, Status: r.Status, Result: r.Result, Failure: r.Error,
		Payload: r.Payload, Metadata: r.Metadata, Fences: r.fences.core(),
	})
	if err != nil {
		return changedAssignView{}, refusedAssign(err)
	}
	return c.changedAssign(done), nil
}

// --- assign/status

type assignStatusRequest struct {
	JobID           core.Opt[string] `json:"job_id" in:"id" doc:"One job; the rest is for the list."`
	SupervisorAgent core.Opt[string] `json:"supervisor_agent" in:"id"`
	WorkerAgent     core.Opt[string] `json:"worker_agent" in:"id"`
	Status          core.Opt[string] `json:"status" in:"line,enum=queued|running|succeeded|failed|timed_out"`
	Statuses        []string         `json:"statuses" in:"list,max=5,null=[]" each:"line,enum=queued|running|succeeded|failed|timed_out" doc:"Wins over status when it is not empty."`
	TraceID         core.Opt[string] `json:"trace_id" in:"id"`
	CorrelationID   core.Opt[string] `json:"correlation_id" in:"id"`
	ActiveBeforeMs  core.Opt[int64]  `json:"active_before_ms" in:"integer" doc:"Only active jobs whose deadline is not after it."`
	Limit           int64            `json:"limit" in:"integer,min=1,max=100,default=50"`
	Cursor          core.Opt[string] `json:"cursor" in:"text,max=8192"`
	identityFences
}

// assignStatusResponse is one job, or a page of the list.
type assignStatusResponse struct {
	job  *assignView
	list *assignListView
}

type assignListView struct {
	Assigns    []assignView `json:"assigns" doc:"Newest first."`
	NextCursor *string      `json:"next_cursor" doc:"null at the end."`
}

// MarshalJSON writes the one that is there.
func (r assignStatusResponse) MarshalJSON() ([]byte, error) {
	if r.job != nil {
		return encodeJSON(r.job)
	}
	return encodeJSON(r.list)
}

func (assignStatusResponse) forms() []reflect.Type {
	return []reflect.Type{reflect.TypeFor[assignView](), reflect.TypeFor[assignListView]()}
}

func assignStatus(ctx context.Context, c *call, r assignStatusRequest) (assignStatusResponse, error) {
	if r.JobID.Set {
		job, err := c.hub.Job(ctx, r.JobID.Value, r.identityFences.core())
		if err != nil {
			return assignStatusResponse{}, err
		}
		view := assignViewOf(job)
		return assignStatusResponse{job: &view}, nil
	}
	page, err := c.hub.Jobs(ctx, core.JobQuery{
		Supervisor: r.SupervisorAgent.Value, Worker: r.WorkerAgent.Value, Status: r.Status.Value, Statuses: r.Statuses,
		TraceID: r.TraceID.Value, CorrelationID: r.CorrelationID.Value, ActiveBefore: r.ActiveBeforeMs,
		Limit: int(r.Limit), Cursor: r.Cursor.Value, Fences: r.identityFences.core(),
	})
	if err != nil {
		return assignStatusResponse{}, err
	}
	list := assignListView{Assigns: []assignView{}, NextCursor: orNull(page.NextCursor)}
	for _, job := range page.Jobs {
		list.Assigns = append(list.Assigns, assignViewOf(job))
	}
	return assignStatusResponse{list: &list}, nil
}

// --- assign/retry and assign/cancel

// jobCommand is what a supervisor's commands have in common. A token that is
// bound to agents gives them as one of them, by name.
type jobCommand struct {
	JobID           string           `json:"job_id" in:"id,required"`
	SupervisorAgent core.Opt[string] `json:"supervisor_agent" in:"id" doc:"Refuse unless it is the job's supervisor."`
	Reason          core.Opt[string] `json:"reason" in:"line,max=4096"`
	RequestedBy     core.Opt[string] `json:"requested_by" in:"id"`
	fences
}

func (r jobCommand) actingAgents() []actingAgent {
	return []actingAgent{{"supervisor_agent", r.SupervisorAgent.Value}}
}

type assignRetryRequest struct {
	jobCommand
	Force bool `json:"force" in:"boolean,default=false" doc:"Retry a job that succeeded."`
}

func retryAssign(ctx context.Context, c *call, r assignRetryRequest) (changedAssignView, error) {
	done, err := c.hub.RetryJob(ctx, core.JobRetryRequest{
		JobID: r.JobID, Supervisor: r.SupervisorAgent.Value, Reason: r.Reason.Value, RequestedBy: r.RequestedBy.Value,
		Force: r.Force, Fences: r.fences.core(),
	})
	if err != nil {
		return changedAssignView{}, refusedAssign(err)
	}
	return c.changedAssign(done), nil
}

func cancelAssign(ctx context.Context, c *call, r jobCommand) (changedAssignView, error) {
	done, err := c.hub.CancelJob(ctx, core.JobCancelRequest{
		JobID: r.JobID, Supervisor: r.SupervisorAgent.Value, Reason: r.Reason.Value, RequestedBy: r.RequestedBy.Value,
		Fences: r.fences.core(),
	})
	if err != nil {
		return changedAssignView{}, refusedAssign(err)
	}
	return c.changedAssign(done), nil
}
