package functions

import (
	"context"
	"encoding/json"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"drawbridge/core"
)

// jobEventName is the event of every frame of a job.
const jobEventName = "assign_job_status"

// jobEventView is a frame of contract 7.7 with its place in the job's order. A
// number that is not there is null: the contract tells the reference's zeros for
// them as a quirk.
type jobEventView struct {
	Event           string          `json:"event"`
	Seq             int64           `json:"seq" doc:"Numbers the job's events from 1, without a gap."`
	JobID           string          `json:"job_id"`
	SupervisorAgent string          `json:"supervisor_agent"`
	WorkerAgent     string          `json:"worker_agent"`
	Topic           string          `json:"topic"`
	Task            json.RawMessage `json:"task"`
	Status          core.JobStatus  `json:"status"`
	Attempt         int64           `json:"attempt"`
	RetryCount      int64           `json:"retry_count"`
	MaxRetries      int64           `json:"max_retries"`
	Priority        int64           `json:"priority"`
	TTLMs           int64           `json:"ttl_ms"`
	TimeoutMs       int64           `json:"timeout_ms"`
	DeadlineMs      *core.Instant   `json:"deadline_ms"`
	TraceID         string          `json:"trace_id"`
	CorrelationID   string          `json:"correlation_id"`
	LastMessageID   *string         `json:"last_message_id"`
	Result          json.RawMessage `json:"result"`
	Error           json.RawMessage `json:"error"`
	CreatedAtMs     core.Instant    `json:"created_at_ms"`
	UpdatedAtMs     core.Instant    `json:"updated_at_ms"`
	StartedAtMs     *core.Instant   `json:"started_at_ms"`
	CompletedAtMs   *core.Instant   `json:"completed_at_ms"`
	LastRetryAtMs   *core.Instant   `json:"last_retry_at_ms"`
	Timestamp       core.Instant    `json:"timestamp"`
	Cut             bool            `json:"cut,omitempty" doc:"On the bus: task, result and error were too long for it and are null."`
}

func jobEventViewOf(e core.JobEvent) jobEventView {
	j := e.Job
	return jobEventView{
		Event: jobEventName, Seq: e.Seq, JobID: j.ID, SupervisorAgent: j.Supervisor, WorkerAgent: j.Worker, Topic: j.Topic,
		Task: j.Task(), Status: j.Status, Attempt: j.Attempt, RetryCount: j.RetryCount, MaxRetries: j.MaxRetries,
		Priority: j.Priority, TTLMs: j.TTL.Milliseconds(), TimeoutMs: j.Timeout.Milliseconds(),
		DeadlineMs: momentOrNull(j.Deadline), TraceID: j.TraceID, CorrelationID: j.CorrelationID,
		LastMessageID: orNull(j.LastMessageID), Result: j.Result(), Error: j.Error(), CreatedAtMs: j.CreatedAt,
		UpdatedAtMs: j.UpdatedAt, StartedAtMs: momentOrNull(j.StartedAt), CompletedAtMs: momentOrNull(j.CompletedAt),
		LastRetryAtMs: momentOrNull(j.LastRetryAt), Timestamp: e.At,
	}
}

// agentEventView is a change of an agent's presence.
type agentEventView struct {
	Event              string       `json:"event" doc:"agent_registered, agent_online, agent_stale, agent_offline, agent_hung or agent_progressed."`
	AgentID            string       `json:"agent_id"`
	PresenceGeneration int64        `json:"presence_generation"`
	Status             core.Status  `json:"status" doc:"Effective."`
	Hung               bool         `json:"hung"`
	AtMs               core.Instant `json:"at_ms" doc:"When it came about."`
	Timestamp          core.Instant `json:"timestamp" doc:"When it was seen."`
}

// --- events

type eventsRequest struct {
	JobID   core.Opt[string] `json:"job_id" in:"id" doc:"The job to follow. This, or agent_id."`
	AgentID core.Opt[string] `json:"agent_id" in:"id" doc:"The agent whose presence to follow."`
	Cursor  core.Opt[string] `json:"cursor" in:"text,max=8192" doc:"next_cursor of the answer before. Without it: from a job's first event, or an agent's present state."`
	WaitMs  int64            `json:"wait_ms" in:"truncated,default=0" doc:"How long to wait for an event: brought into 0 to 25,000."`
}

type eventsResponse struct {
	Events     []any  `json:"events" doc:"Oldest first: JobEventView of a job, AgentEventView of an agent."`
	NextCursor string `json:"next_cursor" doc:"Send it to go on; never null."`
}

func followEvents(ctx context.Context, c *call, r eventsRequest) (eventsResponse, error) {
	page, err := c.hub.Events(ctx, core.EventQuery{
		JobID: r.JobID.Value, AgentID: r.AgentID.Value, Cursor: r.Cursor.Value, WaitMs: r.WaitMs,
	})
	if err != nil {
		return eventsResponse{}, err
	}
	answer := eventsResponse{Events: []any{}, NextCursor: page.NextCursor}
	for _, e := range page.Jobs {
		answer.Events = append(answer.Events, jobEventViewOf(e))
	}
	now := core.InstantOf(c.clock.Now())
	for _, e := range page.Agents {
		answer.Events = append(answer.Events, agentEventView{
			Event: e.Event, AgentID: e.AgentID, PresenceGeneration: e.Generation, Status: e.Status, Hung: e.Hung,
			AtMs: e.At, Timestamp: now,
		})
	}
	return answer, nil
}

// --- the relay to EventBridge

const (
	relayOn     = "on" // the template's parameter
	eventSource = "drawbridge"
	// maxBusEvent is what an event's detail may take of the 256 KB of an entry,
	// and with it of a call.
	maxBusEvent = 240 << 10
)

// busAPI is what the relay needs of EventBridge.
type busAPI interface {
	PutEvents(context.Context, *eventbridge.PutEventsInput, ...func(*eventbridge.Options)) (*eventbridge.PutEventsOutput, error)
}

// A busRelay publishes job events to an EventBridge bus.
type busRelay struct {
	client busAPI
	bus    string
}

func newBusRelay(cfg aws.Config, bus string) core.EventRelay {
	return busRelay{client: eventbridge.NewFromConfig(cfg), bus: bus}
}

// Publish sends one event a call: the bus keeps no order within one, and a call
// that takes only some of its entries would send a later one first.
func (b busRelay) Publish(ctx context.Context, events []core.JobEvent) (int, error) {
	for i, e := range events {
		detail, err := busDetail(e)
		if err != nil {
			return i, err
		}
		out, err := b.client.PutEvents(ctx, &eventbridge.PutEventsInput{Entries: []types.PutEventsRequestEntry{{
			EventBusName: aws.String(b.bus), Source: aws.String(eventSource), DetailType: aws.String(jobEventName),
			Detail: aws.String(string(detail)), Time: aws.Time(e.At.Time()),
		}}})
		if err != nil {
			return i, core.Wrap(core.CodeUnavailable, "the event bus does not answer", err)
		}
		if out.FailedEntryCount > 0 {
			return i, core.Refuse(core.CodeUnavailable, "the event bus refused an event: "+aws.ToString(out.Entries[0].ErrorCode))
		}
	}
	return len(events), nil
}

// busDetail is the event's frame, without its contents where it is too long.
func busDetail(e core.JobEvent) ([]byte, error) {
	view := jobEventViewOf(e)
	detail, err := encodeJSON(view)
	if err != nil || len(detail) <= maxBusEvent {
		return detail, err
	}
	null := json.RawMessage("null")
	view.Task, view.Result, view.Error, view.Cut = null, null, null, true
	return encodeJSON(view)
}
