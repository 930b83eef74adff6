package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"drawbridge/localstack/client"
)

const (
	loadTeams = 10 // topics, each followed by a tenth of the fleet
	// loadVisibility is how long a drained message is hidden until it is
	// acknowledged: long enough that a slow machine is no second delivery.
	loadVisibility = 10 * time.Minute
	// heartbeatEvery is in steps: an agent does something more often than it says
	// that it lives.
	heartbeatEvery = 10
)

// A fleet is the agents of a load.
type fleet struct {
	loadOptions

	hub    *client.Client
	run    string // begins the name of everything of this load
	meter  *loadMeter
	ledger *ledger
	serial atomic.Int64
}

func newFleet(o loadOptions, hub *client.Client, run string) *fleet {
	return &fleet{loadOptions: o, hub: hub, run: run, meter: newLoadMeter(), ledger: newLedger()}
}

func (f *fleet) name(agent int) string { return fmt.Sprintf("%s-%d", f.run, agent) }
func (f *fleet) team(agent int) string { return fmt.Sprintf("%s-team-%d", f.run, agent%loadTeams) }

// post makes a metered call.
func (f *fleet) post(ctx context.Context, endpoint string, body, into any) error {
	at := time.Now()
	err := f.hub.Post(ctx, endpoint, body, into)
	if err != nil && ctx.Err() != nil {
		return err // the load is over, not the hub at fault
	}
	f.meter.add(endpoint, time.Since(at), err)
	return err
}

// each runs something for every agent at once.
func (f *fleet) each(do func(agent int)) {
	var all sync.WaitGroup
	for agent := range f.agents {
		all.Go(func() { do(agent) })
	}
	all.Wait()
}

// enlist registers the whole fleet, so that no message of the load goes to an
// agent that does not follow its topic yet.
func (f *fleet) enlist(ctx context.Context) error {
	failures := make([]error, f.agents)
	f.each(func(agent int) { failures[agent] = f.register(ctx, agent) })
	return errors.Join(failures...)
}

func (f *fleet) register(ctx context.Context, agent int) error {
	return f.post(ctx, "register", map[string]any{
		"agent_id": f.name(agent), "cli": "claude", "timeout_sec": 600, "topics": []string{f.team(agent)},
	}, nil)
}

// work lets every agent make its steps until the context ends. A step that began
// is finished, so that the ledger knows its outcome.
func (f *fleet) work(ctx context.Context) {
	f.each(func(agent int) {
		for step := 0; ctx.Err() == nil; step++ {
			f.step(context.WithoutCancel(ctx), agent, step)
			pause(ctx, f.pause/2+rand.N(f.pause+1))
		}
	})
}

// step is what an agent does between two rests: it looks into its inbox, and does
// one thing more.
func (f *fleet) step(ctx context.Context, agent, step int) {
	f.drain(ctx, agent)
	if step%heartbeatEvery == 0 {
		f.ignore(f.post(ctx, "heartbeat", map[string]any{"agent_id": f.name(agent)}, nil))
	}
	switch dice := rand.N(100); {
	case dice < 50:
		f.publish(ctx, agent, f.name(rand.N(f.agents)))
	case dice < 60:
		f.publish(ctx, agent, "topic:"+f.team(rand.N(loadTeams)))
	case dice < 75:
		f.assign(ctx, agent)
	case dice < 85:
		f.archive(ctx, agent)
	case dice < 88:
		f.ignore(f.register(ctx, agent))
	case dice < 95:
		f.ignore(f.post(ctx, "status", map[string]any{"agent_id": f.name(agent), "status": "busy"}, nil))
	default:
		f.ignore(f.post(ctx, "assign/status", map[string]any{"supervisor_agent": f.name(agent), "limit": 10}, nil))
	}
}

// ignore drops the error of a call that leaves nothing to audit; the meter has
// counted it.
func (*fleet) ignore(error) {}

// note is the payload of the load's own messages.
type note struct {
	Load string `json:"load"`
	Text string `json:"text"`
}

func (f *fleet) publish(ctx context.Context, agent int, to string) {
	var sent struct {
		MessageID string `json:"message_id"`
		Fanout    int    `json:"fanout_count"`
	}
	err := f.post(ctx, "publish", map[string]any{
		"from": f.name(agent), "to": to, "topic": "chatter", "ttl_ms": (24 * time.Hour).Milliseconds(), "priority": 1 + rand.N(9),
		"payload": note{Load: f.run, Text: strings.Repeat("words ", 1+rand.N(40))},
	}, &sent)
	f.ledger.published(sent.MessageID, sent.Fanout, err)
}

// inboxMessage is a message as a drain gives it.
type inboxMessage struct {
	ID      string
	Receipt string
	Payload json.RawMessage
}

// drain takes up to 10 messages, does the jobs among them, and acknowledges. It
// returns how many there were.
func (f *fleet) drain(ctx context.Context, agent int) int {
	var got struct{ Messages []inboxMessage }
	err := f.post(ctx, "context", map[string]any{
		"agent_id": f.name(agent), "max_messages": 10, "auto_ack": false, "visibility_ms": loadVisibility.Milliseconds(),
	}, &got)
	if err != nil || len(got.Messages) == 0 {
		return 0
	}
	receipts := make([]string, len(got.Messages))
	for i, m := range got.Messages {
		receipts[i] = m.Receipt
		f.heed(ctx, agent, m)
	}
	var settled struct{ Results []struct{ OK bool } }
	err = f.post(ctx, "ack", map[string]any{"agent_id": f.name(agent), "receipts": receipts}, &settled)
	if err != nil || len(settled.Results) != len(got.Messages) {
		f.ledger.unanswered(len(got.Messages))
		return len(got.Messages)
	}
	for i, m := range got.Messages {
		var n note
		if settled.Results[i].OK && json.Unmarshal(m.Payload, &n) == nil && n.Load == f.run {
			f.ledger.acknowledged(m.ID, agent)
		}
	}
	return len(got.Messages)
}

// heed does the job that a message dispatches, if it does.
func (f *fleet) heed(ctx context.Context, agent int, m inboxMessage) {
	var dispatch struct {
		Kind  string
		JobID string `json:"assign_job_id"`
	}
	if json.Unmarshal(m.Payload, &dispatch) != nil || dispatch.Kind != "assign.job" || dispatch.JobID == "" {
		return
	}
	err := f.post(ctx, "assign/result", map[string]any{
		"job_id": dispatch.JobID, "worker_agent": f.name(agent), "status": "succeeded", "result": note{Load: f.run, Text: "done"},
	}, nil)
	f.ledger.jobs.ended(dispatch.JobID, err)
}

func (f *fleet) assign(ctx context.Context, agent int) {
	var made struct {
		JobID string `json:"job_id"`
	}
	err := f.post(ctx, "assign/async", map[string]any{
		"supervisor_agent": f.name(agent), "worker_agent": f.name(rand.N(f.agents)), "task": "review the change",
		"ttl_ms": (24 * time.Hour).Milliseconds(), "timeout_ms": (24 * time.Hour).Milliseconds(),
	}, &made)
	f.ledger.jobs.began(made.JobID, err)
}

// archive asks to archive a file of its own, and works on one that waits.
func (f *fleet) archive(ctx context.Context, agent int) {
	var queued struct{ Job struct{ ID string } }
	err := f.post(ctx, "queue/enqueue", map[string]any{
		"agent": "claude", "event": "stop", "source_path": fmt.Sprintf("/%s/%d.jsonl", f.run, f.serial.Add(1)),
		"source_bytes": 1000, "source_modified_at": "2026-01-01T00:00:00Z",
	}, &queued)
	f.ledger.files.began(queued.Job.ID, err)
	f.workOnFile(ctx, agent)
}

// workOnFile claims a file of this load and completes it; false when there is
// none.
func (f *fleet) workOnFile(ctx context.Context, agent int) bool {
	var claimed struct{ Jobs []archiveJob }
	err := f.post(ctx, "queue/claim", map[string]any{"owner": f.name(agent), "path_prefix": "/" + f.run + "/"}, &claimed)
	if err != nil {
		f.ledger.files.mayBeHeld(err)
		return false
	}
	if len(claimed.Jobs) == 0 {
		return false
	}
	job := claimed.Jobs[0]
	err = f.post(ctx, "queue/complete", job.fields(map[string]any{
		"result": map[string]any{"archive_id": "load", "ciphertext_sha256": "00", "bytes": 1000},
	}), nil)
	f.ledger.files.ended(job.ID, err)
	return true
}

// settle empties the inboxes and the queue, until nothing is left or the context
// ends.
func (f *fleet) settle(ctx context.Context) {
	f.each(func(agent int) {
		for ctx.Err() == nil {
			if f.drain(ctx, agent) > 0 || f.workOnFile(ctx, agent) {
				continue
			}
			if f.ledger.settled() {
				return
			}
			pause(ctx, f.pause) // what is left is another agent's
		}
	})
}
