package core

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Events tell outside readers what changes.
//
// A job's events are records, one for its creation and one for every change of
// its status, written in the transaction of the change and numbered without a
// gap: following them by a cursor misses none and repeats none. Where the hub
// relays them to a bus, a sweep feeds it from these records, at least once and
// in the order of the job.
//
// An agent's events cost nothing to anybody who does not follow them: nothing is
// written. A reader looks at the agent and tells what is different from what its
// cursor says it saw last. So a change that undid itself between two looks is
// not told, and the state that stands always is.

// JobEvent is a change of a job's status.
type JobEvent struct {
	Seq int64
	At  Instant
	Job Job // as the change left it
}

// The events of an agent.
const (
	AgentRegistered = "agent_registered" // it has another generation
	AgentOnline     = "agent_online"     // its lease lives again
	AgentStale      = "agent_stale"
	AgentOffline    = "agent_offline"
	AgentHung       = "agent_hung"
	AgentProgressed = "agent_progressed" // hung no more
)

// AgentEvent is a change of an agent's presence.
type AgentEvent struct {
	Event      string
	AgentID    string
	Generation int64
	Status     Status // effective
	Hung       bool
	At         Instant
}

// EventQuery follows a job or an agent.
type EventQuery struct {
	JobID   string // one of the two
	AgentID string
	Cursor  string // of the last answer; "" starts with the first event, or the agent's state
	WaitMs  int64  // how long to wait for an event: brought into 0..25,000
}

// EventPage holds the events since the cursor, oldest first; those of a job or
// those of an agent.
type EventPage struct {
	Jobs       []JobEvent
	Agents     []AgentEvent
	NextCursor string // send it to go on; never ""
}

const (
	maxEventWait = 25 * time.Second
	maxEvents    = 100 // a page
)

// Events answers as soon as there is an event after the cursor, at most WaitMs
// later (contract 7.7). A page also ends before it exceeds MaxDrainBytes. Cost:
// one read a look, and one more where a job has events; while it waits one look
// at most every second.
//
// Errors: INVALID_ARGUMENT, ASSIGN_NOT_FOUND.
func (h *Hub) Events(ctx context.Context, q EventQuery) (EventPage, error) {
	position, err := q.validate()
	if err != nil {
		return EventPage{}, err
	}
	var page EventPage
	wait := time.Duration(min(max(q.WaitMs, 0), maxEventWait.Milliseconds())) * time.Millisecond
	err = follow(ctx, wait, func(ctx context.Context) (bool, error) {
		if q.JobID != "" {
			position, err = h.jobEvents(ctx, q.JobID, position, &page)
		} else {
			position, err = h.agentEvents(ctx, q.AgentID, position, &page)
		}
		return len(page.Jobs)+len(page.Agents) > 0, err
	})
	page.NextCursor = encodeCursor(q.cursorKind(), position)
	return page, err
}

func (q EventQuery) validate() (string, error) {
	position := "0"
	if q.Cursor != "" {
		var err error
		if position, err = decodeCursor(q.cursorKind(), q.Cursor); err != nil {
			return "", err
		}
	}
	if (q.JobID == "") == (q.AgentID == "") {
		return "", Invalid("job_id", "give job_id or agent_id")
	}
	for field, id := range map[string]string{"job_id": q.JobID, "agent_id": q.AgentID} {
		if id != "" {
			if err := checkID(field, id); err != nil {
				return "", err
			}
		}
	}
	return position, nil
}

func (q EventQuery) cursorKind() string {
	return strings.Join([]string{"events", q.JobID, q.AgentID}, "\x00")
}

// jobEvents reads the events of a job after a sequence. A job that is due moves
// on first: a reader sees its deadline pass without any sweep.
func (h *Hub) jobEvents(ctx context.Context, jobID, position string, page *EventPage) (string, error) {
	seq, err := strconv.ParseInt(position, 10, 64)
	if err != nil {
		return position, Invalid("cursor", "cursor is not one of this job's events")
	}
	job, err := h.currentJob(ctx, jobID)
	if err != nil || job.Events <= seq {
		return position, err
	}
	events, err := h.jobs.ReadJobEvents(ctx, jobID, seq, maxEvents)
	if err != nil {
		return position, fmt.Errorf("read events: %w", err)
	}
	events, err = h.loadedEvents(ctx, job, fitting(job, events))
	if err != nil || len(events) == 0 {
		return position, err
	}
	page.Jobs = events
	return strconv.FormatInt(events[len(events)-1].Seq, 10), nil
}

// fitting keeps the first events that an answer holds.
func fitting(job Job, events []JobEvent) []JobEvent {
	size := PayloadSize{}
	for i, e := range events {
		e.Job.Content = job.Content
		next := e.Job.size()
		size = PayloadSize{Answer: size.Answer + next.Answer, Framed: size.Framed + next.Framed}
		if i > 0 && (size.Answer > MaxDrainBytes || size.Framed > maxFramedBytes) {
			return events[:i]
		}
	}
	return events
}

// loadedEvents are events with the job's content and their own outcomes.
func (h *Hub) loadedEvents(ctx context.Context, job Job, events []JobEvent) ([]JobEvent, error) {
	if len(events) == 0 {
		return nil, nil
	}
	jobs := []Job{job}
	for _, e := range events {
		e.Job.Content = Payload{JSON: []byte("{}")}
		jobs = append(jobs, e.Job)
	}
	if err := h.jobs.LoadJobs(ctx, jobs); err != nil {
		return nil, fmt.Errorf("load events: %w", err)
	}
	for i := range events {
		events[i].Job = jobs[i+1]
		events[i].Job.Content = jobs[0].Content
	}
	return events, nil
}

// agentSeen is what a cursor remembers of an agent.
type agentSeen struct {
	generation int64
	status     Status
	hung       bool
}

func (s agentSeen) position() string {
	return fmt.Sprintf("%d %s %t", s.generation, s.status, s.hung)
}

// parseAgentSeen reads a position back; the first one knows nothing.
func parseAgentSeen(position string) (agentSeen, error) {
	var seen agentSeen
	if position == "0" {
		return seen, nil
	}
	if _, err := fmt.Sscanf(position, "%d %s %t", &seen.generation, &seen.status, &seen.hung); err != nil {
		return seen, Invalid("cursor", "cursor is not one of this agent's events")
	}
	return seen, nil
}

func (h *Hub) agentEvents(ctx context.Context, agentID, position string, page *EventPage) (string, error) {
	seen, err := parseAgentSeen(position)
	if err != nil {
		return position, err
	}
	agent, found, err := h.presence.ReadAgent(ctx, agentID)
	if err != nil || !found {
		return position, err
	}
	now := InstantOf(h.clock.Now())
	view := agent.View(now)
	page.Agents = agentChanges(seen, view, now)
	return agentSeen{generation: agent.Generation, status: view.Effective, hung: view.Hung}.position(), nil
}

// agentChanges tells what is different from what was seen, in the order it came
// about.
func agentChanges(seen agentSeen, v AgentView, now Instant) []AgentEvent {
	var events []AgentEvent
	tell := func(event string, at Instant) {
		events = append(events, AgentEvent{
			Event: event, AgentID: v.ID, Generation: v.Generation, Status: v.Effective, Hung: v.Hung, At: at,
		})
	}
	if v.Generation != seen.generation {
		tell(AgentRegistered, v.RegisteredAt)
		seen.status, seen.hung = StatusOnline, false
	}
	if v.Effective != seen.status {
		switch v.Effective {
		case StatusOnline:
			tell(AgentOnline, v.LastSeen)
		case StatusStale:
			tell(AgentStale, v.LeaseExpires)
		case StatusOffline:
			tell(AgentOffline, offlineSince(v, now))
		}
	}
	switch {
	case v.Hung && !seen.hung:
		tell(AgentHung, v.HungSince)
	case !v.Hung && seen.hung:
		tell(AgentProgressed, v.StepAt)
	}
	return events
}

// offlineSince is when an agent went offline: by its lease, or before that by
// its own word.
func offlineSince(v AgentView, now Instant) Instant {
	if lapsed := v.LeaseExpires.Add(OfflineAfter); lapsed < now {
		return lapsed
	}
	return v.LastSeen
}

// EventRelay publishes the events of jobs to a bus outside.
type EventRelay interface {
	// Publish sends events in order and tells how many of them, from the first
	// on, the bus has taken. An error tells why the rest was not sent.
	Publish(ctx context.Context, events []JobEvent) (int, error)
}

// EventSweep counts what a run of the relay did.
type EventSweep struct {
	Relayed int
	Lag     time.Duration
	More    bool
}

// relayBatch are the events of one job that the relay sends at once.
const relayBatch = 10

// RelayEvents feeds the bus with the events that were not: those of one job in
// their order, each at least once. Two runs at once may send an event twice,
// never one before its predecessor was sent.
func (h *Hub) RelayEvents(ctx context.Context) (EventSweep, error) {
	run := newDueRun(h)
	var counts EventSweep
	if h.relay == nil {
		return counts, nil
	}
	run.shards(h.jobs.JobShards(), func(shard int, after string) (duePage, error) {
		page, err := h.jobs.DueEvents(ctx, shard, run.now, after, sweepPage)
		if err != nil {
			return duePage{}, fmt.Errorf("read events to relay: %w", err)
		}
		return duePage{page.Oldest, page.Next, len(page.JobIDs), func(i int) error {
			relayed, err := h.relayJob(ctx, page.JobIDs[i])
			run.count(func() { counts.Relayed += relayed })
			return err
		}, nil}, nil
	})
	counts.Lag, counts.More = run.lag, run.more
	return counts, run.failed
}

// DueEventPage is a page of jobs with events to relay, each once.
type DueEventPage struct {
	JobIDs []string
	Oldest Instant // the first entry's time; 0 when there is none
	Next   string
}

// relayJob sends what one job has to relay. It reads the records themselves: an
// index may show a later one first.
func (h *Hub) relayJob(ctx context.Context, jobID string) (relayed int, err error) {
	for {
		events, err := h.jobs.UnrelayedEvents(ctx, jobID, relayBatch)
		if err != nil || len(events) == 0 {
			return relayed, err
		}
		job, found, err := h.jobs.ReadJob(ctx, jobID)
		if err != nil {
			return relayed, fmt.Errorf("read job: %w", err)
		}
		if !found {
			job.Content = Payload{JSON: []byte("{}")} // collected before its last events were sent
		}
		if events, err = h.loadedEvents(ctx, job, events); err != nil {
			return relayed, err
		}
		sent, failed := h.relay.Publish(ctx, events)
		for _, e := range events[:sent] {
			if err := h.jobs.MarkRelayed(ctx, e); err != nil {
				return relayed, fmt.Errorf("mark event relayed: %w", err)
			}
			relayed++
		}
		if failed != nil {
			return relayed, fmt.Errorf("relay events: %w", failed)
		}
	}
}

func (h *Hub) sweepEvents(ctx context.Context) (SweepReport, error) {
	s, err := h.RelayEvents(ctx)
	return SweepReport{Counts: map[string]int{"relayed": s.Relayed}, Lag: s.Lag, More: s.More}, err
}
