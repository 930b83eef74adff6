package coretest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"drawbridge/core"
)

// WorkStore is what human requests and assignments need of an adapter.
type WorkStore interface {
	MessageStore
	core.HumanRequestStore
	core.JobStore
}

// WorkHarness is an empty store and the ways to make the network under it
// misbehave.
type WorkHarness struct {
	Store WorkStore
	// LoseNextWrite has the next write carried out and its answer lost.
	LoseNextWrite func() (stop func())
	// Seeds is how many random schedules to try, Rounds how many races.
	Seeds, Rounds int
}

// RunWork checks an adapter's human requests and assignments. open returns a
// harness over a new, empty store.
func RunWork(t *testing.T, open func(t *testing.T) WorkHarness) {
	for _, topic := range []struct {
		name string
		run  func(*testing.T, func(*testing.T) *desk)
	}{
		{"HumanRequests", testHumanRequests},
		{"HumanRaces", testHumanRaces},
		{"Assignments", testAssignments},
		{"AssignmentRaces", testAssignmentRaces},
		{"LostResponsesOfWork", testLostWork},
		{"HumanModel", testHumanModel},
		{"AssignmentModel", testAssignmentModel},
	} {
		t.Run(topic.name, func(t *testing.T) {
			topic.run(t, func(t *testing.T) *desk { return newDesk(t, open(t)) })
		})
	}
}

// desk is a hub over the store under test, and how tests use its work.
type desk struct {
	WorkHarness
	t     *testing.T
	ctx   context.Context
	clock *Clock
	hub   *core.Hub
}

func newDesk(t *testing.T, h WorkHarness) *desk {
	clock := NewClock()
	return &desk{WorkHarness: h, t: t, ctx: t.Context(), clock: clock, hub: NewWorkHub(h.Store, clock)}
}

// anySchema takes every schema and every value.
type anySchema struct{}

func (anySchema) CheckSchema(json.RawMessage) string                 { return "" }
func (anySchema) CheckValue(json.RawMessage, json.RawMessage) string { return "" }

// NewWorkHub returns a hub over a store that keeps everything.
func NewWorkHub(s WorkStore, clock core.Clock) *core.Hub {
	return core.New(Ticks(core.Config{
		Presence: s, Identity: s, Sweeps: s, Messages: s, Roles: noRoles{}, Humans: s, Schemas: anySchema{}, Jobs: s,
		Clock: clock, IDs: core.NewIDs(clock, rand.Reader),
	}))
}

func (d *desk) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// drain empties an inbox.
func (d *desk) drain(agent string) []core.Delivery {
	d.t.Helper()
	var all []core.Delivery
	for {
		got, err := d.hub.Drain(d.ctx, core.DrainRequest{AgentID: agent, Max: core.MaxDrain, AutoAck: true})
		d.must(err)
		if len(got.Messages) == 0 {
			return all
		}
		all = append(all, got.Messages...)
	}
}

// member is a member of a message's payload as text, "" when it is not there.
func member(d core.Delivery, name string) string {
	var content map[string]json.RawMessage
	if json.Unmarshal(d.Payload.JSON, &content) != nil {
		return ""
	}
	var text string
	if json.Unmarshal(content[name], &text) == nil {
		return text
	}
	return string(content[name])
}

// told counts the messages of an inbox by a member of their payload.
func (d *desk) told(agent, name string) map[string]int {
	d.t.Helper()
	counts := map[string]int{}
	for _, m := range d.drain(agent) {
		counts[member(m, name)]++
	}
	return counts
}

func (d *desk) wantTold(agent, name string, want map[string]int) {
	d.t.Helper()
	if got := d.told(agent, name); fmt.Sprint(got) != fmt.Sprint(want) {
		d.t.Fatalf("%s was told %v, want %v", agent, got, want)
	}
}

// atOnce runs every function at once, each with a hub of its own, as other
// processes have.
func (d *desk) atOnce(acts ...func(hub *core.Hub)) {
	var wait sync.WaitGroup
	begin := make(chan struct{})
	for _, act := range acts {
		hub := NewWorkHub(d.Store, d.clock)
		wait.Go(func() {
			<-begin
			act(hub)
		})
	}
	close(begin)
	wait.Wait()
}

func (d *desk) question(defaultAction string, deadlineMs int64) string {
	d.t.Helper()
	asked, err := d.hub.AskHuman(d.ctx, core.HumanQuestion{
		Requester: "a", Kind: "text", Prompt: "p", DeadlineMs: core.Some(deadlineMs), DefaultAction: defaultAction,
	})
	d.must(err)
	return asked.RequestID
}

func (d *desk) human(id string) core.HumanView {
	d.t.Helper()
	view, err := d.hub.HumanRequest(d.ctx, core.HumanRead{RequestID: id})
	d.must(err)
	return view
}

func (d *desk) assign(r core.AssignRequest) core.Job {
	d.t.Helper()
	r.Supervisor, r.Worker, r.Task = "l", "w", "t"
	assigned, err := d.hub.Assign(d.ctx, r)
	d.must(err)
	return assigned.Job
}

func (d *desk) job(id string) core.Job {
	d.t.Helper()
	job, err := d.hub.Job(d.ctx, id, core.Fences{})
	d.must(err)
	return job
}

// eventsOf lists the statuses of a job's events.
func (d *desk) eventsOf(id string) []core.JobStatus {
	d.t.Helper()
	var statuses []core.JobStatus
	cursor := ""
	for {
		page, err := d.hub.Events(d.ctx, core.EventQuery{JobID: id, Cursor: cursor})
		d.must(err)
		if len(page.Jobs) == 0 {
			return statuses
		}
		for _, e := range page.Jobs {
			if statuses = append(statuses, e.Job.Status); int64(len(statuses)) != e.Seq {
				d.t.Fatalf("event %d of the job has the number %d", len(statuses), e.Seq)
			}
		}
		cursor = page.NextCursor
	}
}
