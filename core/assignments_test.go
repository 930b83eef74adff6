package core_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"testing"
	"time"

	"drawbridge/core"
	"drawbridge/core/coretest"
)

// jobShelf is a store of jobs in memory. What a test does not ask of it is not
// there.
type jobShelf struct {
	core.JobStore
	jobs  map[string]core.Job
	saved []core.JobChange
	stale core.Opt[core.Agent] // what stands where an actor's fence should
}

func (s *jobShelf) ReadJob(_ context.Context, id string) (core.Job, bool, error) {
	job, found := s.jobs[id]
	return job, found, nil
}

func (s *jobShelf) LoadJobs(context.Context, []core.Job) error { return nil }

func (s *jobShelf) SaveJob(_ context.Context, c core.JobChange) (core.SaveOutcome, error) {
	if s.stale.Set {
		return core.SaveOutcome{Stale: s.stale}, nil
	}
	if s.jobs[c.Job.ID].Version != c.Job.Version-1 {
		return core.SaveOutcome{}, nil
	}
	s.jobs[c.Job.ID] = c.Job
	s.saved = append(s.saved, c)
	return core.SaveOutcome{Done: true}, nil
}

func (s *jobShelf) ListJobs(context.Context, core.JobScan) (core.JobPage, error) {
	page := core.JobPage{}
	for id, job := range s.jobs {
		page.Jobs, page.Positions = append(page.Jobs, job), append(page.Positions, id)
	}
	return page, nil
}

func (s *jobShelf) JobShards() int { return 1 }

// DueJobs tells of every job, whenever it is due.
func (s *jobShelf) DueJobs(context.Context, int, core.Instant, string, int) (core.DueJobPage, error) {
	page := core.DueJobPage{Oldest: 1}
	for _, job := range s.jobs {
		page.Jobs = append(page.Jobs, job)
	}
	return page, nil
}

func (s *jobShelf) CountJobs(context.Context, core.Instant) (core.AssignCounts, bool, error) {
	return core.AssignCounts{}, true, nil
}

func (s *jobShelf) StoreJobCounts(context.Context, core.AssignCounts) error { return nil }

// post is a store of messages in which one dispatch is.
type post struct {
	core.MessageStore
	dispatch core.Delivery
	reads    int
	put      []core.Publication
	stale    core.Opt[core.Agent]
}

func (p *post) ReadDelivery(_ context.Context, _, id string) (core.Delivery, bool, error) {
	p.reads++
	return p.dispatch, id == p.dispatch.ID, nil
}

func (p *post) PutMessage(_ context.Context, m core.Publication) (core.PublicationOutcome, error) {
	if p.stale.Set {
		return core.PublicationOutcome{Stale: p.stale}, nil
	}
	p.put = append(p.put, m)
	return core.PublicationOutcome{}, nil
}

// workbench is a hub with one job, as a test puts it there.
type workbench struct {
	t     *testing.T
	clock *coretest.Clock
	jobs  *jobShelf
	post  *post
	hub   *core.Hub
	start core.Instant
}

func newWorkbench(t *testing.T) *workbench {
	t.Helper()
	clock, model := coretest.NewClock(), coretest.NewModel()
	w := &workbench{t: t, clock: clock, jobs: &jobShelf{jobs: map[string]core.Job{}}, post: &post{}, start: core.InstantOf(clock.Now())}
	w.hub = core.New(core.Config{Presence: model, Identity: model, Messages: w.post, Jobs: w.jobs, Clock: clock, IDs: core.NewIDs(clock, rand.Reader)})
	return w
}

// put stores a running job that began at the start, with its first attempt's
// deadline ten minutes later.
func (w *workbench) put(change func(*core.Job)) {
	job := core.Job{
		ID: "j", Supervisor: "s", Worker: "w", Topic: core.DefaultJobTopic, Content: core.NewPayload(json.RawMessage(`{"task":"t","payload":{}}`)),
		Status: core.JobRunning, Attempt: 1, Priority: 5, Timeout: 10 * time.Minute, TTL: time.Hour, Deadline: w.start.Add(10 * time.Minute),
		Outcome: core.NewPayload(json.RawMessage(`{"result":null,"error":null}`)), LastMessageID: "m", CreatedAt: w.start, UpdatedAt: w.start, Version: 1,
	}
	if change != nil {
		change(&job)
	}
	w.jobs.jobs[job.ID] = job
}

func (w *workbench) job() core.Job { return w.jobs.jobs["j"] }

func (w *workbench) report(status string) core.Assigned {
	w.t.Helper()
	answer, err := w.hub.ReportJob(w.t.Context(), core.JobReport{JobID: "j", Status: status, Failure: json.RawMessage(`"why"`)})
	if err != nil {
		w.t.Fatal(err)
	}
	return answer
}

func TestTheNumbersOfAnAssignmentAreBroughtIntoTheirBounds(t *testing.T) {
	type numbers struct {
		priority, retries   int64
		delay, timeout, ttl time.Duration
	}
	number := core.Some[int64]
	usual := numbers{5, 0, 0, 10 * time.Minute, 10 * time.Minute}
	for _, test := range []struct {
		name    string
		request core.AssignRequest
		change  func(*numbers)
	}{
		{"nothing", core.AssignRequest{}, func(*numbers) {}},
		{"the least", core.AssignRequest{Priority: number(1), TimeoutMs: number(1000), TTLMs: number(1000)},
			func(n *numbers) { n.priority, n.timeout, n.ttl = 1, time.Second, time.Second }},
		{"less", core.AssignRequest{Priority: number(0), MaxRetries: -1, RetryDelayMs: -1, TimeoutMs: number(999), TTLMs: number(-1)},
			func(n *numbers) { n.priority, n.timeout, n.ttl = 1, time.Second, time.Second }},
		{"some", core.AssignRequest{Priority: number(7), MaxRetries: 3, RetryDelayMs: 1500, TimeoutMs: number(60_000), TTLMs: number(90_000)},
			func(n *numbers) { *n = numbers{7, 3, 1500 * time.Millisecond, time.Minute, 90 * time.Second} }},
		{"the most", core.AssignRequest{Priority: number(9), MaxRetries: 1000, RetryDelayMs: 3_600_000, TimeoutMs: number(86_400_000), TTLMs: number(86_400_000)},
			func(n *numbers) { *n = numbers{9, 1000, time.Hour, 24 * time.Hour, 24 * time.Hour} }},
		{"more", core.AssignRequest{Priority: number(10), MaxRetries: 1001, RetryDelayMs: 3_600_001, TimeoutMs: number(86_400_001), TTLMs: number(1 << 60)},
			func(n *numbers) { *n = numbers{9, 1000, time.Hour, 24 * time.Hour, 24 * time.Hour} }},
	} {
		r := test.request
		r.Supervisor, r.Worker, r.Task = "s", "w", "t"
		want := usual
		test.change(&want)
		assigned, err := newWorkbench(t).hub.Assign(t.Context(), r)
		job := assigned.Job
		if got := (numbers{job.Priority, job.MaxRetries, job.RetryDelay, job.Timeout, job.TTL}); err != nil || got != want {
			t.Errorf("%s: %+v, want %+v, %v", test.name, got, want, err)
		}
		if job.Deadline != job.CreatedAt.Add(job.Timeout) {
			t.Errorf("%s: the deadline is %v after the job was made", test.name, job.Deadline.Sub(job.CreatedAt))
		}
	}
}

// A list shows a job as the clock has made it, though nobody has met it since, and
// keeps by that.
func TestAListShowsAJobAsTheClockHasMadeIt(t *testing.T) {
	const timeout = 10 * time.Minute
	retries := func(used, most int64) func(*core.Job) {
		return func(j *core.Job) { j.RetryCount, j.MaxRetries = used, most }
	}
	for _, test := range []struct {
		name    string
		change  func(*core.Job)
		after   time.Duration
		status  core.JobStatus
		attempt int64
		ends    time.Duration // when it ended; 0: it has not
	}{
		{"before its deadline", nil, timeout - time.Millisecond, core.JobRunning, 1, 0},
		{"at its deadline", nil, timeout, core.JobTimedOut, 1, timeout},
		{"long after its deadline", nil, time.Hour, core.JobTimedOut, 1, timeout},
		{"with a retry left", retries(0, 1), timeout, core.JobQueued, 2, 0},
		{"with the last retry used", retries(1, 1), timeout, core.JobTimedOut, 1, timeout},
		{"with a retry left that a person decides about", func(j *core.Job) { j.MaxRetries, j.HoldTimeouts = 1, true }, timeout, core.JobTimedOut, 1, timeout},
		{"while its retry waits", func(j *core.Job) {
			j.Status, j.Attempt, j.RetryAt, j.Deadline = core.JobQueued, 2, j.Deadline, j.Deadline.Add(timeout)
		}, timeout - time.Millisecond, core.JobQueued, 2, 0},
		{"when its retry is due", func(j *core.Job) {
			j.Status, j.Attempt, j.RetryAt, j.Deadline = core.JobQueued, 2, j.Deadline, j.Deadline.Add(timeout)
		}, timeout, core.JobQueued, 2, 0},
		{"after its end", func(j *core.Job) {
			j.Status, j.Deadline, j.CompletedAt = core.JobSucceeded, 0, j.CreatedAt.Add(time.Second)
		},
			time.Hour, core.JobSucceeded, 1, time.Second},
	} {
		w := newWorkbench(t)
		w.put(test.change)
		w.clock.Advance(test.after)
		list, err := w.hub.Jobs(t.Context(), core.JobQuery{Status: string(test.status)})
		if err != nil || len(list.Jobs) != 1 {
			t.Errorf("%s: listed %v, %v", test.name, list.Jobs, err)
			continue
		}
		job := list.Jobs[0]
		var ends core.Instant
		if test.ends > 0 {
			ends = w.start.Add(test.ends)
		}
		if job.Status != test.status || job.Attempt != test.attempt || job.CompletedAt != ends {
			t.Errorf("%s: %s in attempt %d, ended at %d", test.name, job.Status, job.Attempt, job.CompletedAt)
		}
		for _, other := range core.JobStatuses {
			if list, err := w.hub.Jobs(t.Context(), core.JobQuery{Status: string(other)}); err != nil || (len(list.Jobs) == 1) != (other == test.status) {
				t.Errorf("%s: %d jobs are listed as %s, %v", test.name, len(list.Jobs), other, err)
			}
		}
		// Of those that are active, a deadline at the moment counts.
		for _, moment := range []core.Instant{job.Deadline - 1, job.Deadline, job.Deadline + 1} {
			want := !test.status.Final() && moment >= job.Deadline
			list, err := w.hub.Jobs(t.Context(), core.JobQuery{ActiveBefore: core.Some(int64(moment))})
			if err != nil || (len(list.Jobs) == 1) != want {
				t.Errorf("%s: %d jobs are active %d ms after its deadline, %v", test.name, len(list.Jobs), moment-job.Deadline, err)
			}
		}
	}
}

// A failure with a retry left leads to the next attempt, at once or after a delay
// that doubles up to an hour.
func TestARetryWaitsForItsDelay(t *testing.T) {
	for _, test := range []struct {
		name        string
		delay       time.Duration
		doubles     bool
		used, most  int64
		want        time.Duration
		sent, again bool
	}{
		{"no delay", 0, false, 0, 1, 0, true, true},
		{"a fixed delay", time.Minute, false, 5, 6, time.Minute, false, true},
		{"the first of delays that double", time.Minute, true, 0, 6, time.Minute, false, true},
		{"the second", time.Minute, true, 1, 6, 2 * time.Minute, false, true},
		{"the fifth", time.Minute, true, 4, 6, 16 * time.Minute, false, true},
		{"one that has just grown to the longest", 30 * time.Minute, true, 1, 6, time.Hour, false, true},
		{"one that has grown beyond the longest", 40 * time.Minute, true, 1, 6, time.Hour, false, true},
		{"the last of many", time.Second, true, 999, 1000, time.Hour, false, true},
		{"none left", time.Minute, true, 6, 6, 0, false, false},
	} {
		w := newWorkbench(t)
		w.put(func(j *core.Job) {
			j.RetryDelay, j.Backoff, j.RetryCount, j.MaxRetries, j.Attempt = test.delay, test.doubles, test.used, test.most, test.used+1
		})
		answer := w.report("failed")
		job := w.job()
		var at core.Instant
		if test.want > 0 {
			at = w.start.Add(test.want)
		}
		dispatched := job.LastMessageID != "" && job.LastMessageID != "m"
		if answer.Retried != test.again || job.RetryAt != at || dispatched != test.sent {
			t.Errorf("%s: retried %t, at %d, want %d; dispatched %t", test.name, answer.Retried, job.RetryAt, at, dispatched)
		}
		if !test.again {
			if job.Status != core.JobFailed || job.Deadline != 0 || job.CompletedAt != w.start {
				t.Errorf("%s: %+v", test.name, job)
			}
			continue
		}
		if job.Status != core.JobQueued || job.Attempt != test.used+2 || job.RetryCount != test.used+1 || job.CompletedAt != 0 ||
			job.Deadline != w.start.Add(test.want+10*time.Minute) {
			t.Errorf("%s: %+v", test.name, job)
		}
	}
}

// Progress moves the deadline to a timeout from now, and never more than six hours
// after the attempt began.
func TestProgressMovesTheDeadlineUpToItsCeiling(t *testing.T) {
	const ceiling = 6 * time.Hour
	at := func(set func(*core.Job, core.Instant), d time.Duration) func(*core.Job) {
		return func(j *core.Job) { set(j, j.CreatedAt.Add(d)) }
	}
	dispatched := func(j *core.Job, i core.Instant) { j.DispatchedAt = i }
	retried := func(j *core.Job, i core.Instant) { j.LastRetryAt = i }
	for _, test := range []struct {
		name   string
		change func(*core.Job)
		after  time.Duration
		want   time.Duration // the deadline after the start
	}{
		{"soon", nil, time.Minute, 11 * time.Minute},
		{"up to the ceiling", nil, ceiling - 10*time.Minute, ceiling},
		{"beyond the ceiling", nil, ceiling - time.Minute, ceiling},
		{"beyond that of a retry", at(retried, time.Hour), ceiling + 59*time.Minute, ceiling + time.Hour},
		{"beyond that of a dispatch", at(dispatched, time.Hour), ceiling + 59*time.Minute, ceiling + time.Hour},
		{"a retry that was dispatched later", func(j *core.Job) {
			j.LastRetryAt, j.DispatchedAt = j.CreatedAt.Add(time.Hour), j.CreatedAt.Add(2*time.Hour)
		},
			ceiling + 119*time.Minute, ceiling + 2*time.Hour},
	} {
		for status, began := range map[string]bool{"running": true, "queued": false} {
			w := newWorkbench(t)
			w.put(test.change)
			w.jobs.jobs["j"] = func(j core.Job) core.Job { j.Deadline = j.CreatedAt.Add(24 * time.Hour); return j }(w.job())
			w.clock.Advance(test.after)
			w.report(status)
			job := w.job()
			if got := job.Deadline.Sub(w.start); got != test.want || (job.StartedAt == w.start.Add(test.after)) != began {
				t.Errorf("%s, %s: the deadline is after %v, want %v; started at %d", test.name, status, got, test.want, job.StartedAt)
			}
			// What has started does not start again.
			w.clock.Advance(time.Millisecond)
			w.report("running")
			if began && w.job().StartedAt != job.StartedAt {
				t.Errorf("%s, %s: it started again", test.name, status)
			}
		}
	}
}

// The sweep finds a job at its due entry. Progress leaves an entry that is early
// where it is, and never one that would be late.
func TestProgressLeavesADueEntryThatIsEarly(t *testing.T) {
	due := 11 * time.Minute // after progress at one minute
	for entry, want := range map[time.Duration]time.Duration{
		0: due, 10 * time.Minute: 10 * time.Minute, due: due, due + time.Millisecond: due,
	} {
		w := newWorkbench(t)
		w.put(func(j *core.Job) {
			if entry > 0 {
				j.DueEntry = j.CreatedAt.Add(entry)
			}
		})
		w.clock.Advance(time.Minute)
		w.report("running")
		if got := w.job().DueEntry.Sub(w.start); got != want {
			t.Errorf("an entry %v after the start is left %v after it, want %v", entry, got, want)
		}
	}
}

// An attempt whose dispatch was delivered, unknown to the job, has its timeout from
// then on.
func TestADeadlineCountsFromADeliveryThatNobodyMarked(t *testing.T) {
	const timeout = 10 * time.Minute
	lost := func(j *core.Job) { j.Content.Lost = true }
	for _, test := range []struct {
		name      string
		change    func(*core.Job)
		delivered time.Duration // after the start; 0: not
		created   time.Duration // the dispatch
		after     time.Duration
		want      core.JobStatus
		deadline  time.Duration // after the start, of one that goes on
		looks     int
	}{
		{"not delivered", nil, 0, 0, timeout, core.JobTimedOut, 0, 1},
		{"not delivered, of a dispatch that is younger than its deadline tells", nil, 0, time.Minute, timeout, core.JobTimedOut, 0, 1},
		{"delivered late", nil, 9 * time.Minute, 0, timeout, core.JobRunning, 19 * time.Minute, 1},
		{"delivered a moment before the deadline", nil, timeout - time.Millisecond, 0, timeout, core.JobRunning, 2*timeout - time.Millisecond, 1},
		{"delivered at the deadline", nil, timeout, 0, timeout, core.JobTimedOut, 0, 1},
		{"delivered so that it has a moment left", nil, time.Minute, 0, 11*time.Minute - time.Millisecond, core.JobRunning, 11 * time.Minute, 1},
		{"delivered so that it has none", nil, time.Minute, 0, 11 * time.Minute, core.JobTimedOut, 0, 1},
		{"delivered by a host whose clock is behind", nil, time.Minute, 5 * time.Minute, timeout, core.JobRunning, 15 * time.Minute, 1},
		{"marked", func(j *core.Job) { j.DispatchedAt = j.CreatedAt.Add(time.Second) }, 9 * time.Minute, 0, timeout, core.JobTimedOut, 0, 0},
		{"never dispatched", func(j *core.Job) { j.LastMessageID = "" }, 9 * time.Minute, 0, timeout, core.JobTimedOut, 0, 0},
		{"its content lost", lost, 0, 0, timeout, core.JobTimedOut, 0, 1},
		{"its content lost while a retry waits", func(j *core.Job) { lost(j); j.Status, j.RetryAt = core.JobQueued, j.Deadline }, 0, 0, timeout, core.JobFailed, 0, 0},
		{"a retry that waits no more", func(j *core.Job) {
			j.Status, j.RetryAt, j.Deadline = core.JobQueued, j.Deadline, j.Deadline.Add(timeout)
		}, 0, 0, timeout, core.JobQueued, 2 * timeout, 0},
	} {
		w := newWorkbench(t)
		w.put(test.change)
		w.post.dispatch = core.Delivery{Message: core.Message{ID: "m", CreatedAt: w.start.Add(test.created)}}
		if test.delivered > 0 {
			w.post.dispatch.DeliveredAt = w.start.Add(test.delivered)
		}
		w.clock.Advance(test.after)
		job, err := w.hub.Job(t.Context(), "j", core.Fences{})
		var deadline core.Instant
		if test.deadline > 0 {
			deadline = w.start.Add(test.deadline)
		}
		if err != nil || job.Status != test.want || job.Deadline != deadline || w.post.reads != test.looks {
			t.Errorf("%s: %s with deadline %d, want %d, after %d looks, %v", test.name, job.Status, job.Deadline, deadline, w.post.reads, err)
		}
		if kept := w.job(); kept.Version != 2 || kept.Status != job.Status {
			t.Errorf("%s: it is stored as %s after %d changes", test.name, kept.Status, kept.Version-1)
		}
	}
}

// The sweep moves on what is due, and the entry of what is not yet.
func TestTheSweepTellsDueJobsFromEarlyEntries(t *testing.T) {
	const timeout = 10 * time.Minute
	for _, test := range []struct {
		after   time.Duration
		retries int64
		want    core.JobSweep
	}{
		{timeout - time.Millisecond, 0, core.JobSweep{Moved: 1}},
		{timeout, 0, core.JobSweep{TimedOut: 1}},
		{timeout + time.Millisecond, 0, core.JobSweep{TimedOut: 1}},
		{timeout, 1, core.JobSweep{TimedOut: 1, Retried: 1}},
	} {
		w := newWorkbench(t)
		w.put(func(j *core.Job) { j.DueEntry, j.MaxRetries = j.CreatedAt.Add(time.Minute), test.retries })
		w.clock.Advance(test.after)
		counts, err := w.hub.SweepJobs(t.Context())
		if counts.Lag = 0; err != nil || counts != test.want {
			t.Errorf("after %v, with %d retries: %+v, %v", test.after, test.retries, counts, err)
		}
		if test.want.Moved == 1 && (w.job().DueEntry != w.job().Deadline || w.job().UpdatedAt != w.start) {
			t.Errorf("after %v: %+v", test.after, w.job())
		}
	}
}

// What happens to a job is never before what happened to it last, whatever a host's
// clock says.
func TestTheEventsOfAJobAreInOrder(t *testing.T) {
	for moved, want := range map[time.Duration]time.Duration{-time.Minute: 0, 0: 0, time.Minute: time.Minute} {
		w := newWorkbench(t)
		w.put(func(j *core.Job) { j.Status = core.JobQueued })
		w.clock.Advance(moved)
		w.report("running")
		change := w.jobs.saved[0]
		if at := w.start.Add(want); change.Job.UpdatedAt != at || len(change.Events) != 1 || change.Events[0].At != at || change.Messages[0].CreatedAt != at {
			t.Errorf("%v after its creation: %+v", moved, change)
		}
	}
}

// The supervisor hears of a job at least as urgently as of any, and more where the
// job is.
func TestASupervisorHearsOfAJobWithItsPriority(t *testing.T) {
	for given, want := range map[int64]int64{1: 5, 5: 5, 9: 9} {
		w := newWorkbench(t)
		w.put(func(j *core.Job) { j.Priority = given })
		w.report("running")
		w.put(func(j *core.Job) {
			j.Priority, j.Status, j.EndedBy, j.Deadline = given, core.JobFailed, core.EndedByCancel, 0
		})
		_, err := w.hub.ReportJob(t.Context(), core.JobReport{JobID: "j", Status: "succeeded"})
		if core.CodeOf(err) != core.CodeAssignAlreadyFinal || len(w.post.put) != 1 {
			t.Fatalf("a late report: %v", err)
		}
		for name, message := range map[string]core.Delivery{"progress": w.jobs.saved[0].Messages[0], "a late result": w.post.put[0].Delivery} {
			if message.Priority != want || message.To != "s" {
				t.Errorf("of %s of a job of priority %d: priority %d to %s", name, given, message.Priority, message.To)
			}
		}
		var snapshot struct {
			CompletedAt *int64 `json:"completed_at_ms"`
			Deadline    *int64 `json:"deadline_ms"`
		}
		if err := json.Unmarshal(w.jobs.saved[0].Messages[0].Payload.JSON, &snapshot); err != nil || snapshot.CompletedAt != nil || snapshot.Deadline == nil {
			t.Errorf("the snapshot of a running job: %s, %v", w.jobs.saved[0].Messages[0].Payload.JSON, err)
		}
	}
}

// What a report does depends on the attempt that it names, on the report that ended
// the attempt and on what else did.
func TestAReportMeetsTheAttemptThatItNames(t *testing.T) {
	one, two := core.Some(int64(1)), core.Some(int64(2))
	for _, test := range []struct {
		name     string
		change   func(*core.Job) // of a job that failed by the report, in attempt 1
		again    core.Opt[int64] // the attempt that the same report names when it comes again
		status   string          // what it says; "failed" makes it the same
		want     core.Code
		replayed bool
		retried  bool
		kept     int64 // the attempt of a late result; 0: none
	}{
		{"the same again", nil, one, "failed", "", true, false, 0},
		{"the same again without an attempt", nil, core.Opt[int64]{}, "failed", "", true, false, 0},
		{"another", nil, one, "succeeded", core.CodeAssignAlreadyFinal, false, false, 0},
		{"the same of another attempt", nil, two, "failed", core.CodeAssignAttemptMismatch, false, false, 2},
		{"the same after a retry", func(j *core.Job) { j.Status, j.Attempt, j.EndedBy = core.JobRunning, 2, "" }, one, "failed", "", true, true, 0},
		{"another after a retry", func(j *core.Job) { j.Status, j.Attempt, j.EndedBy = core.JobRunning, 2, "" }, one, "succeeded", core.CodeAssignAttemptMismatch, false, false, 1},
		{"the same without an attempt after a retry", func(j *core.Job) { j.Status, j.Attempt, j.EndedBy = core.JobRunning, 2, "" },
			core.Opt[int64]{}, "failed", "", false, false, 0},
		{"the same without an attempt, of a retry that was cancelled", func(j *core.Job) { j.Attempt, j.EndedBy = 2, core.EndedByCancel },
			core.Opt[int64]{}, "failed", core.CodeAssignAlreadyFinal, false, false, 2},
		{"the same without an attempt, of a retry that another report ended", func(j *core.Job) { j.Attempt = 2 },
			core.Opt[int64]{}, "failed", core.CodeAssignAlreadyFinal, false, false, 0},
		{"one of a cancelled job", func(j *core.Job) { j.EndedBy, j.Reported = core.EndedByCancel, core.JobReportMark{} }, one, "succeeded", core.CodeAssignAlreadyFinal, false, false, 1},
		{"one of a job that runs", func(j *core.Job) {
			j.Status, j.EndedBy, j.Reported = core.JobRunning, "", core.JobReportMark{}
		}, one, "succeeded", "", false, false, 0},
	} {
		w := newWorkbench(t)
		w.put(nil)
		w.report("failed")
		ended := w.job()
		if test.change != nil {
			test.change(&ended)
		}
		if !ended.Status.Final() {
			ended.Deadline = w.start.Add(time.Hour)
		}
		w.jobs.jobs["j"] = ended
		answer, err := w.hub.ReportJob(t.Context(), core.JobReport{JobID: "j", Attempt: test.again, Status: test.status, Failure: json.RawMessage(`"why"`)})
		if core.CodeOf(err) != test.want || answer.Replayed != test.replayed || answer.Retried != test.retried {
			t.Errorf("%s: %v, replayed %t, retried %t", test.name, err, answer.Replayed, answer.Retried)
		}
		if changed := w.job().Version != ended.Version; changed != (test.want == "" && !test.replayed) {
			t.Errorf("%s: the job was changed: %t", test.name, changed)
		}
		var late struct {
			Attempt int64 `json:"stale_attempt"`
		}
		if len(w.post.put) > 0 {
			if err := json.Unmarshal(w.post.put[0].Delivery.Payload.JSON, &late); err != nil {
				t.Fatal(err)
			}
		}
		if late.Attempt != test.kept {
			t.Errorf("%s: the late result is of attempt %d, want %d", test.name, late.Attempt, test.kept)
		}
	}
}

// When a retry by hand is refused, and as what.
func TestARetryByHandIsRefusedByWhatTheJobIs(t *testing.T) {
	for _, test := range []struct {
		name       string
		status     core.JobStatus
		used, most int64
		lost       bool
		force      bool
		want       core.Code
	}{
		{"failed", core.JobFailed, 0, 1, false, false, ""},
		{"failed with the last one used", core.JobFailed, 1, 1, false, false, core.CodeAssignRetryExhausted},
		{"failed with none from the start", core.JobFailed, 0, 0, false, false, core.CodeAssignRetryExhausted},
		{"failed, its content lost", core.JobFailed, 0, 1, true, false, core.CodeAssignRetryExhausted},
		{"running with one left", core.JobRunning, 0, 1, false, false, core.CodeAssignActive},
		{"running with none from the start", core.JobRunning, 0, 0, false, false, core.CodeAssignActive},
		{"running its last retry", core.JobRunning, 1, 1, false, false, core.CodeAssignRetryExhausted},
		{"running a retry with one left", core.JobRunning, 1, 2, false, false, core.CodeAssignActive},
		{"succeeded", core.JobSucceeded, 0, 1, false, false, core.CodeAssignAlreadyFinal},
		{"succeeded with none left", core.JobSucceeded, 1, 1, false, false, core.CodeAssignAlreadyFinal},
		{"succeeded, all the same", core.JobSucceeded, 0, 1, false, true, ""},
		{"succeeded with none left, all the same", core.JobSucceeded, 1, 1, false, true, core.CodeAssignRetryExhausted},
	} {
		w := newWorkbench(t)
		w.put(func(j *core.Job) {
			j.Status, j.RetryCount, j.MaxRetries, j.Content.Lost = test.status, test.used, test.most, test.lost
			if j.Status.Final() {
				j.Deadline, j.EndedBy = 0, core.EndedByReport
			}
		})
		answer, err := w.hub.RetryJob(t.Context(), core.JobRetryRequest{JobID: "j", Force: test.force})
		if core.CodeOf(err) != test.want || answer.Retried != (test.want == "") || (w.job().Status == core.JobQueued) != (test.want == "") {
			t.Errorf("%s: %v, the job is %s", test.name, err, w.job().Status)
		}
	}
}

// Whoever was replaced while it acts is told so, by the write, and nothing is done.
func TestAnActorThatIsReplacedMeanwhileChangesNoJob(t *testing.T) {
	fences := core.Fences{Generation: core.Some(int64(1))}
	for name, act := range map[string]func(*workbench) error{
		"assign": func(w *workbench) error {
			_, err := w.hub.Assign(t.Context(), core.AssignRequest{Supervisor: "s", Worker: "w", Task: "t", Fences: fences})
			return err
		},
		"report": func(w *workbench) error {
			_, err := w.hub.ReportJob(t.Context(), core.JobReport{JobID: "j", Status: "succeeded", Fences: fences})
			return err
		},
		"late report": func(w *workbench) error {
			_, err := w.hub.ReportJob(t.Context(), core.JobReport{JobID: "j", Attempt: core.Some(int64(7)), Status: "succeeded", Fences: fences})
			return err
		},
		"cancel": func(w *workbench) error {
			_, err := w.hub.CancelJob(t.Context(), core.JobCancelRequest{JobID: "j", Fences: fences})
			return err
		},
	} {
		w := newWorkbench(t)
		w.put(nil)
		w.jobs.stale, w.post.stale = core.Some(core.Agent{ID: "w", Generation: 2}), core.Some(core.Agent{ID: "w", Generation: 2})
		if err := act(w); core.CodeOf(err) != core.CodeStalePresenceOwner || len(w.jobs.saved)+len(w.post.put) != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Without a generation nobody is asked who acts.
func TestAnOperationWithoutAGenerationReadsNoAgent(t *testing.T) {
	for generation, want := range map[core.Opt[int64]]core.Code{{}: "", core.Some(int64(1)): core.CodeUnavailable} {
		clock, model := coretest.NewClock(), coretest.NewModel()
		w := newWorkbench(t)
		hub := core.New(core.Config{Presence: blindPresence{}, Identity: model, Messages: w.post, Jobs: w.jobs, Clock: clock, IDs: core.NewIDs(clock, rand.Reader)})
		w.put(nil)
		_, err := hub.ReportJob(t.Context(), core.JobReport{JobID: "j", Worker: "w", Status: "succeeded", Fences: core.Fences{Generation: generation}})
		if core.CodeOf(err) != want {
			t.Errorf("with generation %v: %v", generation, err)
		}
	}
}

// blindPresence has no answer about an agent.
type blindPresence struct{ core.PresenceStore }

func (blindPresence) ReadAgent(context.Context, string) (core.Agent, bool, error) {
	return core.Agent{}, false, core.Refuse(core.CodeUnavailable, "no answer")
}

// What has ended is not cancelled.
func TestACancelEndsWhatGoesOnOnly(t *testing.T) {
	for _, status := range core.JobStatuses {
		w := newWorkbench(t)
		w.put(func(j *core.Job) {
			if j.Status = status; status.Final() {
				j.Deadline, j.EndedBy = 0, core.EndedByReport
			}
		})
		_, err := w.hub.CancelJob(t.Context(), core.JobCancelRequest{JobID: "j"})
		if want := map[bool]core.Code{true: core.CodeAssignAlreadyFinal}[status.Final()]; core.CodeOf(err) != want || w.job().Status.Final() != true {
			t.Errorf("%s: %v, then %s", status, err, w.job().Status)
		}
		if len(w.jobs.saved) == 0 != status.Final() {
			t.Errorf("%s: %d changes", status, len(w.jobs.saved))
		}
	}
}
