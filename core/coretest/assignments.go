package coretest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"drawbridge/core"
)

func jobReport(id string, attempt int64, status, result string) core.JobReport {
	return core.JobReport{JobID: id, Attempt: core.Some(attempt), Status: status, Result: json.RawMessage(`"` + result + `"`)}
}

// brief is a job's events in one text.
func brief(statuses []core.JobStatus) string {
	words := make([]string, len(statuses))
	for i, s := range statuses {
		words[i] = string(s)
	}
	return strings.Join(words, " ")
}

func testAssignments(t *testing.T, open func(*testing.T) *desk) {
	second := core.Some(int64(1000))

	t.Run("the deadline holds on every path, without any sweep", func(t *testing.T) {
		for name, meet := range map[string]func(d *desk, id string){
			"a read": func(d *desk, id string) { d.job(id) },
			"a report": func(d *desk, id string) {
				if _, err := d.hub.ReportJob(d.ctx, jobReport(id, 1, "succeeded", "r")); core.CodeOf(err) != core.CodeAssignAttemptMismatch {
					t.Fatalf("error is %v", err)
				}
			},
			"a follower": func(d *desk, id string) { d.eventsOf(id) },
			"a cancel of another": func(d *desk, id string) {
				_, err := d.hub.RetryJob(d.ctx, core.JobRetryRequest{JobID: id})
				if core.CodeOf(err) != core.CodeAssignRetryExhausted {
					t.Fatalf("error is %v", err)
				}
			},
			"the sweep": func(d *desk, _ string) {
				counts, err := d.hub.SweepJobs(d.ctx)
				d.must(err)
				if counts.TimedOut != 1 || counts.Retried != 1 {
					t.Fatalf("the sweep did %+v", counts)
				}
			},
		} {
			d := open(t)
			id := d.assign(core.AssignRequest{TimeoutMs: second, MaxRetries: 1}).ID
			d.drain("w")
			d.clock.Advance(time.Second)
			meet(d, id)
			if job := d.job(id); job.Status != core.JobQueued || job.Attempt != 2 || job.RetryCount != 1 {
				t.Fatalf("%s leaves the job %+v", name, job)
			}
			_, err := d.hub.SweepJobs(d.ctx)
			d.must(err)
			d.wantTold("w", "kind", map[string]int{"assign.cancel": 1, "assign.job": 1})
			if got := brief(d.eventsOf(id)); got != "queued timed_out queued" {
				t.Fatalf("%s is told as %s", name, got)
			}
		}
	})

	t.Run("the drain that first delivers the dispatch re-arms the deadline", func(t *testing.T) {
		d := open(t)
		id := d.assign(core.AssignRequest{TimeoutMs: second}).ID
		d.clock.Advance(900 * time.Millisecond)
		d.drain("w")
		d.clock.Advance(900 * time.Millisecond)
		if counts, err := d.hub.SweepJobs(d.ctx); err != nil || counts.TimedOut != 0 || counts.Moved != 1 {
			t.Fatalf("the sweep that meets the early entry does %+v, %v", counts, err)
		}
		if _, err := d.hub.ReportJob(d.ctx, jobReport(id, 1, "succeeded", "r")); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("a drain on a host whose clock is behind moves no deadline before its due entry", func(t *testing.T) {
		d := open(t)
		job := d.assign(core.AssignRequest{TimeoutMs: second})
		d.clock.Advance(-200 * time.Millisecond)
		d.drain("w")
		d.clock.Advance(200 * time.Millisecond)
		if after := d.job(job.ID); after.DispatchedAt != job.CreatedAt || after.Deadline != job.Deadline {
			t.Fatalf("the job was created at %d and is due at %d; it reads %+v", job.CreatedAt, job.Deadline, after)
		}
		d.clock.Advance(time.Second)
		if counts, err := d.hub.SweepJobs(d.ctx); err != nil || counts.TimedOut != 1 {
			t.Fatalf("the sweep at the deadline does %+v, %v", counts, err)
		}
	})

	t.Run("a delivery that nobody marked is looked up before the job times out", func(t *testing.T) {
		d := open(t)
		job := d.assign(core.AssignRequest{TimeoutMs: second})
		d.clock.Advance(900 * time.Millisecond)
		_, _, err := d.Store.ChangeDeliveries(d.ctx, []core.DeliveryChange{{
			Inbox: "w", MessageID: job.LastMessageID, To: core.DeliveryAcked, HandedOut: true,
		}}, core.InboxGuard{}, core.WriteStamp{WriteID: "drain", Started: d.clock.Now()})
		d.must(err) // a drain that died before it could mark
		d.clock.Advance(900 * time.Millisecond)
		if job = d.job(job.ID); job.Status != core.JobQueued || job.DispatchedAt == 0 {
			t.Fatalf("the job reads %+v", job)
		}
		d.clock.Advance(100 * time.Millisecond)
		if job = d.job(job.ID); job.Status != core.JobTimedOut {
			t.Fatalf("the job reads %+v", job)
		}
	})

	t.Run("a message that looks like a dispatch re-arms nothing", func(t *testing.T) {
		d := open(t)
		job := d.assign(core.AssignRequest{TimeoutMs: second})
		payload := fmt.Sprintf(`{"kind":"assign.job","reason":"x","assign_job_id":%q,"attempt":1,"timeout_ms":86400000}`, job.ID)
		_, err := d.hub.Publish(d.ctx, core.PublishRequest{
			From: "x", To: "y", Type: core.MessageHandoff, Topic: "assign.job", Priority: 5, TTLMs: 60_000, Payload: json.RawMessage(payload),
		})
		d.must(err)
		d.drain("y")
		if after := d.job(job.ID); after.Deadline != job.Deadline || after.DispatchedAt != 0 {
			t.Fatalf("the job reads %+v", after)
		}
	})

	t.Run("the counts are rolled up", func(t *testing.T) {
		d := open(t)
		for i, status := range []string{"running", "failed", "failed", "timed_out", "succeeded", ""} {
			id := d.assign(core.AssignRequest{}).ID
			if status != "" {
				_, err := d.hub.ReportJob(d.ctx, jobReport(id, 1, status, fmt.Sprint(i)))
				d.must(err)
			}
		}
		_, err := d.hub.SweepJobs(d.ctx)
		d.must(err)
		report, err := d.hub.Status(d.ctx, core.StatusQuery{Scope: core.StatusScopeHub, IncludeMetrics: true})
		d.must(err)
		want := core.AssignCounts{Queued: 1, Running: 1, Failed: 2, TimedOut: 1, AsOf: core.InstantOf(d.clock.Now())}
		if *report.Assigns != want {
			t.Fatalf("the counts are %+v, want %+v", *report.Assigns, want)
		}
	})

	// riverqueue/river#1258: whatever the number, one sweep after the other gets
	// all of them out of running.
	t.Run("many orphaned jobs all leave running", func(t *testing.T) {
		d := open(t)
		const jobs = 300
		for range jobs {
			id := d.assign(core.AssignRequest{TimeoutMs: second}).ID
			_, err := d.hub.ReportJob(d.ctx, jobReport(id, 1, "running", ""))
			d.must(err)
		}
		d.clock.Advance(time.Second)
		counts, err := d.hub.SweepJobs(d.ctx)
		d.must(err)
		if counts.TimedOut != jobs || counts.More {
			t.Fatalf("the sweep did %+v", counts)
		}
		list, err := d.hub.Jobs(d.ctx, core.JobQuery{Statuses: []string{"running", "queued"}})
		d.must(err)
		if len(list.Jobs) != 0 {
			t.Fatalf("%d jobs are still active", len(list.Jobs))
		}
	})
}

func testAssignmentRaces(t *testing.T, open func(*testing.T) *desk) {
	// gastownhall/beads#3570: one outcome, whoever reports.
	t.Run("64 reports at once end in one outcome, told once", func(t *testing.T) {
		d := open(t)
		for range d.Rounds {
			id := d.assign(core.AssignRequest{}).ID
			wins := make([]bool, 64)
			var acts []func(*core.Hub)
			for i := range wins {
				acts = append(acts, func(hub *core.Hub) {
					status := []string{"succeeded", "failed"}[i%2]
					_, err := hub.ReportJob(d.ctx, jobReport(id, 1, status, fmt.Sprint(i)))
					if wins[i] = err == nil; err != nil && core.CodeOf(err) != core.CodeAssignAlreadyFinal {
						t.Errorf("a report ends in %v", err)
					}
				})
			}
			d.atOnce(acts...)
			job, winner := d.job(id), slices.Index(wins, true)
			if winner < 0 || slices.Contains(wins[winner+1:], true) || string(job.Result()) != fmt.Sprintf("%q", fmt.Sprint(winner)) {
				t.Fatalf("winners %v, and %s stands", wins, job.Result())
			}
			d.wantTold("l", "event", map[string]int{"completed": 1})
			if events := d.eventsOf(id); len(events) != 2 || events[1] != job.Status {
				t.Fatalf("told as %v", events)
			}
		}
	})

	t.Run("a sweep, a cancel and a report at once end in one outcome", func(t *testing.T) {
		d := open(t)
		for range 4 * d.Rounds {
			id := d.assign(core.AssignRequest{TimeoutMs: core.Some(int64(1000))}).ID
			d.drain("w")
			d.clock.Advance(time.Second - time.Microsecond)
			reported, cancelled := false, false
			d.atOnce(
				func(hub *core.Hub) {
					_, err := hub.ReportJob(d.ctx, jobReport(id, 1, "succeeded", "r"))
					reported = err == nil
				},
				func(*core.Hub) { d.clock.Advance(time.Microsecond) },
				func(hub *core.Hub) {
					if _, err := hub.SweepJobs(d.ctx); err != nil {
						t.Error(err)
					}
				},
				func(hub *core.Hub) {
					_, err := hub.CancelJob(d.ctx, core.JobCancelRequest{JobID: id})
					cancelled = err == nil
				},
			)
			_, err := d.hub.SweepJobs(d.ctx)
			d.must(err)
			job := d.job(id)
			want := core.JobTimedOut
			switch {
			case reported && cancelled:
				t.Fatal("the report and the cancel both did it")
			case reported:
				want = core.JobSucceeded
			case cancelled:
				want = core.JobFailed
			}
			if job.Status != want || brief(d.eventsOf(id)) != "queued "+string(want) {
				t.Fatalf("the job is %s, want %s: %v", job.Status, want, d.eventsOf(id))
			}
			told := d.told("l", "event")
			if told["completed"] != 1 {
				t.Fatalf("the supervisor was told %v", told)
			}
			d.drain("w")
		}
	})

	t.Run("retries, sweeps and reads at once dispatch one attempt", func(t *testing.T) {
		d := open(t)
		for range d.Rounds {
			id := d.assign(core.AssignRequest{MaxRetries: 5, RetryDelayMs: 1000}).ID
			_, err := d.hub.ReportJob(d.ctx, jobReport(id, 1, "failed", "r"))
			d.must(err)
			d.drain("w")
			d.clock.Advance(time.Second)
			var acts []func(*core.Hub)
			for i := range 16 {
				acts = append(acts, func(hub *core.Hub) {
					var err error
					if i%2 == 0 {
						_, err = hub.Job(d.ctx, id, core.Fences{})
					} else {
						_, err = hub.SweepJobs(d.ctx)
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			d.atOnce(acts...)
			d.wantTold("w", "attempt", map[string]int{"2": 1})
		}
	})
}

// testLostWork loses the answer of the one write of each operation.
func testLostWork(t *testing.T, open func(*testing.T) *desk) {
	t.Run("every operation is carried out once when its answer is lost", func(t *testing.T) {
		d := open(t)
		lose := func(operation func()) {
			t.Helper()
			stop := d.LoseNextWrite()
			operation()
			stop()
		}
		lose(func() { _, err := d.hub.Identity(d.ctx); d.must(err) })
		var request, job string
		lose(func() { request = d.question(core.DefaultDecline, 60_000) })
		lose(func() {
			done, err := d.hub.SubmitHuman(d.ctx, submission(request, core.ActionAccept, 1))
			d.must(err)
			if done.State != core.HumanAccepted {
				t.Fatalf("the answer leads to %+v", done)
			}
		})
		d.wantTold("a", "action", map[string]int{"accept": 1})
		lose(func() { job = d.assign(core.AssignRequest{MaxRetries: 2, TimeoutMs: core.Some(int64(1000))}).ID })
		d.wantTold("w", "kind", map[string]int{"assign.job": 1})
		lose(func() {
			done, err := d.hub.ReportJob(d.ctx, jobReport(job, 1, "failed", "r"))
			d.must(err)
			if !done.Retried {
				t.Fatalf("the report leads to %+v", done)
			}
		})
		d.wantTold("l", "event", map[string]int{"retry_scheduled": 1})
		d.clock.Advance(time.Second)
		lose(func() { _, err := d.hub.SweepJobs(d.ctx); d.must(err) })
		if got := d.job(job); got.Attempt != 3 {
			t.Fatalf("the job reads %+v", got)
		}
		lose(func() { _, err := d.hub.CancelJob(d.ctx, core.JobCancelRequest{JobID: job}); d.must(err) })
		d.wantTold("l", "event", map[string]int{"retry_scheduled": 1, "completed": 1})
		if got := brief(d.eventsOf(job)); got != "queued failed queued timed_out queued failed" {
			t.Fatalf("told as %s", got)
		}
	})
}

// testAssignmentModel runs random operations on a few jobs and holds what they
// answer, and what is told of them, against what the rules say.
func testAssignmentModel(t *testing.T, open func(*testing.T) *desk) {
	type modelled struct {
		status   core.JobStatus
		attempt  int64
		retries  int64
		deadline core.Instant
		armed    bool // its dispatch was delivered
		reported string
		by       core.JobEnd
		events   []core.JobStatus
	}
	const timeout = time.Second
	d := open(t)
	for range d.Seeds {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		jobs := map[string]*modelled{}
		var ids []string
		now := func() core.Instant { return core.InstantOf(d.clock.Now()) }
		become := func(m *modelled, s core.JobStatus) {
			if m.status != s {
				m.status = s
				m.events = append(m.events, s)
			}
		}
		again := func(m *modelled) {
			if m.retries == 0 {
				return
			}
			m.retries--
			m.attempt++
			m.deadline, m.armed, m.by = now().Add(timeout), false, ""
			become(m, core.JobQueued)
		}
		expire := func(m *modelled) {
			if !m.status.Final() && m.deadline <= now() {
				become(m, core.JobTimedOut)
				m.by = core.EndedByTimeout
				again(m)
			}
		}
		for step := range 60 {
			d.clock.Advance(time.Duration(r.IntN(500)) * time.Millisecond)
			if len(ids) == 0 || r.IntN(8) == 0 {
				retries := int64(r.IntN(3))
				id := d.assign(core.AssignRequest{TimeoutMs: core.Some(timeout.Milliseconds()), MaxRetries: retries}).ID
				ids = append(ids, id)
				jobs[id] = &modelled{attempt: 1, retries: retries, deadline: now().Add(timeout)}
				become(jobs[id], core.JobQueued)
				continue
			}
			id := ids[r.IntN(len(ids))]
			m := jobs[id]
			switch r.IntN(6) {
			case 0:
				_, err := d.hub.SweepJobs(d.ctx)
				d.must(err)
				for _, other := range jobs {
					expire(other)
				}
			case 1:
				d.drain("w")
				for _, other := range jobs {
					if !other.status.Final() && other.deadline > now() && !other.armed {
						other.armed, other.deadline = true, now().Add(timeout)
					}
				}
			case 2:
				expire(m)
				_, err := d.hub.CancelJob(d.ctx, core.JobCancelRequest{JobID: id})
				want := core.CodeAssignAlreadyFinal
				if !m.status.Final() {
					want = ""
					become(m, core.JobFailed)
					m.by = core.EndedByCancel
				}
				if core.CodeOf(err) != want {
					t.Fatalf("seed %d, step %d: the cancel ends in %v, want %q", seed, step, err, want)
				}
			default:
				expire(m)
				attempt := m.attempt - int64(r.IntN(4)/3)
				word := []string{"running", "succeeded", "failed"}[r.IntN(3)]
				_, err := d.hub.ReportJob(d.ctx, jobReport(id, attempt, word, ""))
				want := core.Code("")
				switch {
				case m.reported == fmt.Sprint(attempt, word): // the same report again
				case attempt != m.attempt:
					want = core.CodeAssignAttemptMismatch
				case m.status.Final():
					want = core.CodeAssignAlreadyFinal
				case word == "running":
					m.deadline = now().Add(timeout)
					become(m, core.JobRunning)
				default:
					m.reported, m.by = fmt.Sprint(attempt, word), core.EndedByReport
					become(m, core.JobStatus(word))
					if word == "failed" {
						again(m)
					}
				}
				if core.CodeOf(err) != want {
					t.Fatalf("seed %d, step %d: %s of attempt %d ends in %v, want %q; model %+v", seed, step, word, attempt, err, want, m)
				}
			}
			expire(m)
			job := d.job(id)
			if job.Status != m.status || job.Attempt != m.attempt || !m.status.Final() && job.Deadline != m.deadline {
				t.Fatalf("seed %d, step %d: the job reads %s %d until %d, want %+v", seed, step, job.Status, job.Attempt, job.Deadline, m)
			}
			if got := brief(d.eventsOf(id)); got != brief(m.events) {
				t.Fatalf("seed %d, step %d: told as %s, want %s", seed, step, got, brief(m.events))
			}
		}
		for _, id := range ids {
			_, _ = d.hub.CancelJob(d.ctx, core.JobCancelRequest{JobID: id}) // the next seed starts without them
		}
		d.drain("w")
		d.drain("l")
	}
}
