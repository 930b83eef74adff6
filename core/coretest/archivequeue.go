package coretest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"drawbridge/core"
)

// ArchiveHarness is an empty archive queue and what a test does to it from
// outside.
type ArchiveHarness struct {
	Clock *Clock
	// Caller returns the queue as one more process uses it.
	Caller func() ArchiveCaller
	// Steady is Caller without chance: a claim takes the first candidate even
	// while claims collide.
	Steady func() ArchiveCaller
	// Overwrite replaces a job's document behind the queue's back.
	Overwrite func(id string, document []byte)
	// Steps is how long the random tests are, Jobs how many the fleet works on.
	Steps, Jobs int
	// Seed repeats a run of the random operations; 0 draws one.
	Seed uint64
}

// ArchiveCaller is one process that uses the queue, and its network.
type ArchiveCaller struct {
	core.ArchiveQueue
	Network ArchiveNetwork
}

// ArchiveNetwork makes the network of one caller misbehave.
type ArchiveNetwork interface {
	// LoseAnswers has the answers to the next n conditional writes lost, after
	// they were carried out; the caller's client sends them again by itself.
	LoseAnswers(n int)
	// Conflict answers the next n conditional writes with a conflict that is
	// nobody's fault, without carrying them out.
	Conflict(n int)
	// CutAfter kills the caller after n more requests: nothing it sends later
	// arrives.
	CutAfter(n int)
	// FreezeAfter holds what the caller sends after n more requests until thaw.
	FreezeAfter(n int) (thaw func())
	// Disturb makes writes lose their answers, conflict and stall by chance,
	// until the next call.
	Disturb(chance float64)
	// Requests counts what the caller has sent.
	Requests() int
}

// RunArchiveQueue checks an implementation of the archive queue. open returns a
// harness over a new, empty one with the default settings.
func RunArchiveQueue(t *testing.T, open func(t *testing.T) ArchiveHarness) {
	for _, topic := range []struct {
		name string
		run  func(*testing.T, func(*testing.T) *archive)
	}{
		{"Lease", testArchiveLease},
		{"Operator", testArchiveOperator},
		{"Enqueue", testArchiveEnqueue},
		{"Supersede", testArchiveSupersede},
		{"Claim", testArchiveClaim},
		{"Read", testArchiveRead},
		{"Damage", testArchiveDamage},
		{"Faults", testArchiveFaults},
		{"Fleet", testArchiveFleet},
		{"Model", testArchiveModel},
	} {
		t.Run(topic.name, func(t *testing.T) {
			topic.run(t, func(t *testing.T) *archive {
				h := open(t)
				return &archive{ArchiveHarness: h, t: t, ctx: t.Context(), queue: h.Caller()}
			})
		})
	}
}

// archive is the queue under test with the helpers of its cases.
type archive struct {
	ArchiveHarness
	t     *testing.T
	ctx   context.Context
	queue ArchiveCaller
}

var archiveDefaults = core.DefaultArchiveSettings()

// observe makes a request: state n of a file, each later and larger.
func observe(file string, n int) core.ArchiveRequest {
	return core.ArchiveRequest{
		ArchiveObservation: core.ArchiveObservation{Agent: "claude", SourcePath: "/home/a/" + file,
			SourceBytes: int64(100 * n), SourceModifiedAt: core.Instant(1_760_000_000_000 + 1000*int64(n))},
		Event: "stop", SessionID: core.Some("s-1"),
	}
}

func (a *archive) enqueueBy(q core.ArchiveQueue, r core.ArchiveRequest) core.ArchiveEnqueued {
	a.t.Helper()
	out := q.Enqueue(a.ctx, []core.ArchiveRequest{r})
	if len(out) != 1 {
		a.t.Fatalf("one request gave %d outcomes", len(out))
	}
	return out[0]
}

func (a *archive) enqueue(r core.ArchiveRequest) core.ArchiveEnqueued {
	a.t.Helper()
	out := a.enqueueBy(a.queue, r)
	a.must(out.Err)
	return out
}

func (a *archive) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *archive) refused(err error, code core.Code) *core.Error {
	a.t.Helper()
	var e *core.Error
	if !errors.As(err, &e) || e.Code != code {
		a.t.Fatalf("got %v, want a refusal with %s", err, code)
	}
	return e
}

// refusedWith is refused with the job in its current state.
func (a *archive) refusedWith(err error, code core.Code, status core.ArchiveStatus) {
	a.t.Helper()
	job, ok := a.refused(err, code).Data.(core.ArchiveJob)
	if !ok || job.Status != status {
		a.t.Fatalf("the refusal carries %+v, want the job in status %s", job, status)
	}
}

func (a *archive) claimBy(q core.ArchiveQueue, c core.ArchiveClaim) []core.ArchiveJob {
	a.t.Helper()
	if c.Owner == "" {
		c.Owner = "worker-1"
	}
	c.Max = max(c.Max, 1)
	out, err := q.Claim(a.ctx, c)
	a.must(err)
	return out.Jobs
}

// claim takes the one job that the claim must get.
func (a *archive) claim() core.ArchiveJob {
	a.t.Helper()
	jobs := a.claimBy(a.queue, core.ArchiveClaim{})
	if len(jobs) != 1 {
		a.t.Fatalf("the claim got %d jobs, want 1", len(jobs))
	}
	return jobs[0]
}

func (a *archive) claimNothing() {
	a.t.Helper()
	if jobs := a.claimBy(a.queue, core.ArchiveClaim{}); len(jobs) != 0 {
		a.t.Fatalf("the claim got %s in status %s, want nothing", jobs[0].ID, jobs[0].Status)
	}
}

func (a *archive) get(id string) core.ArchiveJob {
	a.t.Helper()
	job, err := a.queue.Get(a.ctx, id)
	a.must(err)
	return job
}

func (a *archive) wantStatus(id string, status core.ArchiveStatus) core.ArchiveJob {
	a.t.Helper()
	job := a.get(id)
	if job.Status != status {
		a.t.Fatalf("job %s has status %s, want %s", id, job.Status, status)
	}
	return job
}

func (a *archive) now() core.Instant { return core.InstantOf(a.Clock.Now()) }

func archiveResult(name string) core.ArchiveResult {
	return core.ArchiveResult{ArchiveID: "archive-" + name, CiphertextSHA256: "c0ffee", Bytes: 42}
}

func completion(job core.ArchiveJob) core.ArchiveCompletion {
	return core.ArchiveCompletion{ID: job.ID, LeaseID: job.Lease.ID, Result: archiveResult(job.ID[:8])}
}

func (a *archive) complete(job core.ArchiveJob) core.ArchiveCompleted {
	a.t.Helper()
	out, err := a.queue.Complete(a.ctx, completion(job))
	a.must(err)
	return out
}

func (a *archive) sweep() core.ArchiveSweep {
	a.t.Helper()
	s, err := a.queue.Sweep(a.ctx)
	a.must(err)
	return s
}

// inParallel runs fn for 0 to n-1 at once.
func inParallel(n int, fn func(i int)) {
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		group.Go(func() {
			<-start
			fn(i)
		})
	}
	close(start)
	group.Wait()
}

func idsOf(jobs []core.ArchiveJob) []string {
	ids := make([]string, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	return ids
}

func testArchiveLease(t *testing.T, open func(*testing.T) *archive) {
	t.Run("a claim leases the job for five minutes and counts the attempt", func(t *testing.T) {
		a := open(t)
		made := a.enqueue(observe("x", 1)).Job
		job := a.claim()
		want := made
		want.Status, want.Attempts, want.UpdatedAt = core.ArchiveLeased, 1, a.now()
		want.Lease = job.Lease
		if string(core.EncodeArchiveJob(job)) != string(core.EncodeArchiveJob(want)) {
			t.Fatalf("claimed %+v, want %+v", job, want)
		}
		if l := job.Lease; l == nil || l.ID == "" || l.Owner != "worker-1" || l.AcquiredAt != a.now() ||
			l.ExpiresAt != a.now().Add(archiveDefaults.Lease) {
			t.Fatalf("the lease is %+v", l)
		}
	})

	// gastownhall/gascity#3616
	t.Run("a leased job is in no list of available work while its lease lives", func(t *testing.T) {
		a := open(t)
		a.enqueue(observe("x", 1))
		a.claim()
		for _, wait := range []time.Duration{0, archiveDefaults.Lease - time.Millisecond} {
			a.Clock.Advance(wait)
			a.sweep()
			a.claimNothing()
			some, err := a.queue.HasClaimable(a.ctx)
			a.must(err)
			page, err := a.queue.List(a.ctx, core.ArchiveQuery{Status: core.ArchiveReady, Limit: 10})
			a.must(err)
			if some || len(page.Jobs) != 0 {
				t.Fatalf("claimable %t, ready %v", some, idsOf(page.Jobs))
			}
		}
	})

	t.Run("expiry makes a job claimable at its very millisecond and leaves its worker the lease", func(t *testing.T) {
		for name, use := range map[string]func(*archive, core.ArchiveJob) error{
			"renew": func(a *archive, j core.ArchiveJob) error {
				_, err := a.queue.Renew(a.ctx, j.ID, j.Lease.ID)
				return err
			},
			"progress": func(a *archive, j core.ArchiveJob) error {
				_, err := a.queue.Progress(a.ctx, j.ID, j.Lease.ID, core.ArchiveProgress{Bytes: 1, Of: 2})
				return err
			},
			"complete": func(a *archive, j core.ArchiveJob) error {
				_, err := a.queue.Complete(a.ctx, completion(j))
				return err
			},
			"release": func(a *archive, j core.ArchiveJob) error {
				_, err := a.queue.Release(a.ctx, j.ID, j.Lease.ID, nil)
				return err
			},
			"fail": func(a *archive, j core.ArchiveJob) error {
				_, err := a.queue.Fail(a.ctx, j.ID, j.Lease.ID, core.ArchiveFailure{Code: "io", Message: "disk"})
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				a := open(t)
				a.enqueue(observe("x", 1))
				job := a.claim()
				a.Clock.Advance(archiveDefaults.Lease)
				a.must(use(a, job))

				a = open(t)
				a.enqueue(observe("x", 1))
				job = a.claim()
				a.Clock.Advance(archiveDefaults.Lease)
				second := a.claim()
				if second.Lease.ID == job.Lease.ID || second.Attempts != 2 {
					t.Fatalf("the second claim got %+v", second)
				}
				// hatchet-dev/hatchet#1022, #2432: the late result of the first
				// attempt is refused and changes nothing.
				a.refusedWith(use(a, job), core.CodeQueueLeaseInvalid, core.ArchiveLeased)
				if after := a.get(job.ID); after.Lease.ID != second.Lease.ID || after.UpdatedAt != second.UpdatedAt {
					t.Fatalf("a refused %s changed the job to %+v", name, after)
				}
			})
		}
	})

	// riverqueue/river#682, #347; hexpm/hexpm#1825
	t.Run("three hours of work under heartbeats are not reclaimed, and are within a lease without", func(t *testing.T) {
		a := open(t)
		a.enqueue(observe("x", 1))
		job := a.claim()
		for range 3 * 60 {
			a.Clock.Advance(time.Minute)
			renewed, err := a.queue.Renew(a.ctx, job.ID, job.Lease.ID)
			a.must(err)
			if renewed.Lease.ExpiresAt != a.now().Add(archiveDefaults.Lease) || renewed.Lease.AcquiredAt != job.Lease.AcquiredAt ||
				renewed.Attempts != 1 || renewed.Lease.Owner != "worker-1" {
				t.Fatalf("renewed to %+v", renewed)
			}
		}
		a.sweep()
		a.claimNothing()
		a.Clock.Advance(archiveDefaults.Lease)
		a.claim()
	})

	t.Run("a claim's own length is what its renewals extend by", func(t *testing.T) {
		a := open(t)
		a.enqueue(observe("x", 1))
		out, err := a.queue.Claim(a.ctx, core.ArchiveClaim{Owner: "w", Max: 1, Lease: 30 * time.Second})
		a.must(err)
		if out.Heartbeat != 10*time.Second {
			t.Fatalf("heartbeat %s, want 10s", out.Heartbeat)
		}
		a.Clock.Advance(20 * time.Second)
		job, err := a.queue.Renew(a.ctx, out.Jobs[0].ID, out.Jobs[0].Lease.ID)
		a.must(err)
		if job.Lease.ExpiresAt != a.now().Add(30*time.Second) {
			t.Fatalf("renewed until %v", job.Lease.ExpiresAt.Sub(a.now()))
		}
	})

	t.Run("progress and lease move in one write", func(t *testing.T) {
		a := open(t)
		a.enqueue(observe("x", 1))
		job := a.claim()
		a.Clock.Advance(time.Minute)
		job, err := a.queue.Progress(a.ctx, job.ID, job.Lease.ID, core.ArchiveProgress{Bytes: 10, Of: 100})
		a.must(err)
		if job.Progress.Bytes != 10 || job.Progress.Of != 100 || job.Lease.ExpiresAt != a.now().Add(archiveDefaults.Lease) {
			t.Fatalf("progressed to %+v %+v", job.Progress, job.Lease)
		}
	})

	t.Run("a completion is final, and its repetition is recognised", func(t *testing.T) {
		a := open(t)
		a.enqueue(observe("x", 1))
		job := a.claim()
		_, err := a.queue.Fail(a.ctx, job.ID, job.Lease.ID, core.ArchiveFailure{Code: "io", Message: "disk"})
		a.must(err)
		a.Clock.Advance(time.Minute)
		job = a.claim()
		done := a.complete(job)
		if j := done.Job; j.Status != core.ArchiveDone || j.Lease != nil || j.LastError != nil || j.Result.CompletedAt != a.now() || done.Replayed {
			t.Fatalf("completed to %+v, replayed %t", j, done.Replayed)
		}
		a.Clock.Advance(time.Hour)
		again := a.complete(job)
		if !again.Replayed || again.Job.Result.CompletedAt != done.Job.Result.CompletedAt {
			t.Fatalf("the repetition gave %+v, replayed %t", again.Job, again.Replayed)
		}
		other := completion(job)
		other.Result.Bytes++
		_, err = a.queue.Complete(a.ctx, other)
		a.refusedWith(err, core.CodeQueueLeaseInvalid, core.ArchiveDone)
		_, err = a.queue.Progress(a.ctx, job.ID, job.Lease.ID, core.ArchiveProgress{})
		a.refusedWith(err, core.CodeQueueLeaseInvalid, core.ArchiveDone)
		a.claimNothing()
	})

	t.Run("a release gives the attempt back and keeps the job's turn", func(t *testing.T) {
		a := open(t)
		first := a.enqueue(observe("x", 1)).Job
		a.Clock.Advance(time.Second)
		a.enqueue(observe("y", 1))
		job := a.claim()
		job, err := a.queue.Release(a.ctx, job.ID, job.Lease.ID, &core.ArchiveFailure{Code: "shutdown", Message: "bye"})
		a.must(err)
		if job.Status != core.ArchiveReady || job.Attempts != 0 || job.Lease != nil || job.LastError.Code != "shutdown" ||
			job.NextAttemptAt != first.NextAttemptAt {
			t.Fatalf("released to %+v", job)
		}
		if again := a.claim(); again.ID != first.ID {
			t.Fatal("the released job lost its turn")
		}
	})

	t.Run("a failure waits 15 s, doubling, and the fifth is final", func(t *testing.T) {
		a := open(t)
		a.enqueue(observe("x", 1))
		for attempt, wait := range []time.Duration{15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute} {
			job := a.claim()
			failed, err := a.queue.Fail(a.ctx, job.ID, job.Lease.ID, core.ArchiveFailure{Code: "io", Message: "disk"})
			a.must(err)
			if failed.Status != core.ArchiveReady || failed.NextAttemptAt != a.now().Add(wait) || failed.Attempts != int64(attempt+1) {
				t.Fatalf("after attempt %d: %+v", attempt+1, failed)
			}
			a.Clock.Advance(wait - time.Millisecond)
			a.claimNothing()
			a.Clock.Advance(time.Millisecond)
		}
		job := a.claim()
		due := job.NextAttemptAt
		job, err := a.queue.Fail(a.ctx, job.ID, job.Lease.ID, core.ArchiveFailure{Code: "io", Message: "disk"})
		a.must(err)
		if job.Status != core.ArchiveFailed || job.NextAttemptAt != due || job.Lease != nil || job.LastError.Code != "io" {
			t.Fatalf("the last failure gave %+v", job)
		}
		a.Clock.Advance(24 * time.Hour)
		a.claimNothing()
	})

	// Tencent/WeKnora#3462
	t.Run("a job whose workers die is dead-lettered after the last attempt, by a claim or a sweep", func(t *testing.T) {
		for _, by := range []string{"claim", "sweep"} {
			t.Run(by, func(t *testing.T) {
				a := open(t)
				id := a.enqueue(observe("x", 1)).Job.ID
				for range archiveDefaults.MaxAttempts {
					a.claim()
					a.Clock.Advance(archiveDefaults.Lease)
				}
				if some, err := a.queue.HasClaimable(a.ctx); err != nil || some {
					t.Fatalf("a crash loop counts as claimable: %t, %v", some, err)
				}
				if by == "claim" {
					a.claimNothing()
				} else if s := a.sweep(); s.DeadLettered != 1 {
					t.Fatalf("the sweep reports %+v", s)
				}
				job := a.wantStatus(id, core.ArchiveFailed)
				if job.LastError == nil || job.LastError.Code != core.ArchiveLeaseExhausted || job.Lease != nil {
					t.Fatalf("dead-lettered to %+v", job)
				}
			})
		}
	})

	// riverqueue/river#1258
	t.Run("jobs orphaned by a deploy are all claimable one lease later, without any sweep", func(t *testing.T) {
		a := open(t)
		n := min(a.Jobs, 300)
		var requests []core.ArchiveRequest
		for i := range n {
			requests = append(requests, observe(fmt.Sprint("f", i), 1))
		}
		for _, out := range a.queue.Enqueue(a.ctx, requests) {
			a.must(out.Err)
		}
		for range n / core.MaxArchiveClaim {
			a.claimBy(a.queue, core.ArchiveClaim{Max: core.MaxArchiveClaim})
		}
		a.Clock.Advance(archiveDefaults.Lease)
		seen := map[string]bool{}
		for range n / core.MaxArchiveClaim {
			for _, j := range a.claimBy(a.queue, core.ArchiveClaim{Max: core.MaxArchiveClaim}) {
				seen[j.ID] = true
			}
		}
		if len(seen) != n/core.MaxArchiveClaim*core.MaxArchiveClaim {
			t.Fatalf("%d of %d jobs were claimed again", len(seen), n)
		}
	})

	t.Run("a lease operation on what is not leased is refused", func(t *testing.T) {
		a := open(t)
		id := a.enqueue(observe("x", 1)).Job.ID
		_, err := a.queue.Renew(a.ctx, id, "no-lease")
		a.refusedWith(err, core.CodeQueueLeaseInvalid, core.ArchiveReady)
		_, err = a.queue.Renew(a.ctx, observe("y", 1).JobID(), "no-lease")
		a.refused(err, core.CodeQueueJobNotFound)
		_, err = a.queue.Renew(a.ctx, "../x", "no-lease")
		a.refused(err, core.CodeQueueJobNotFound)
	})
}

func testArchiveOperator(t *testing.T, open func(*testing.T) *archive) {
	t.Run("retry revives a dead letter, forgets a back-off and refuses the rest", func(t *testing.T) {
		a := open(t)
		a.enqueue(observe("x", 1))
		job := a.claim()
		_, err := a.queue.Retry(a.ctx, job.ID)
		a.refusedWith(err, core.CodeQueueJobLeased, core.ArchiveLeased)
		for range archiveDefaults.MaxAttempts {
			_, err := a.queue.Fail(a.ctx, job.ID, job.Lease.ID, core.ArchiveFailure{Code: "io", Message: "disk"})
			a.must(err)
			if a.get(job.ID).Status == core.ArchiveFailed {
				break
			}
			revived, err := a.queue.Retry(a.ctx, job.ID)
			a.must(err)
			if revived.Attempts != 0 || revived.NextAttemptAt != a.now() || revived.Status != core.ArchiveReady {
				t.Fatalf("retried to %+v", revived)
			}
			job = a.claim()
		}
		a.complete(job)
		_, err = a.queue.Retry(a.ctx, job.ID)
		a.refusedWith(err, core.CodeQueueJobDone, core.ArchiveDone)
		_, err = a.queue.Retry(a.ctx, observe("y", 1).JobID())
		a.refused(err, core.CodeQueueJobNotFound)
	})

	t.Run("remove takes what nobody works on and answers it as it was", func(t *testing.T) {
		a := open(t)
		made := a.enqueue(observe("x", 1)).Job
		job := a.claim()
		_, err := a.queue.Remove(a.ctx, job.ID)
		a.refusedWith(err, core.CodeQueueJobLeased, core.ArchiveLeased)
		a.Clock.Advance(archiveDefaults.Lease)
		gone, err := a.queue.Remove(a.ctx, job.ID)
		a.must(err)
		if gone.Status != core.ArchiveFailed || gone.LastError.Code != core.ArchiveRemoved || gone.Attempts != 1 || gone.EnqueuedAt != made.EnqueuedAt {
			t.Fatalf("removed %+v", gone)
		}
		_, err = a.queue.Get(a.ctx, job.ID)
		a.refused(err, core.CodeQueueJobNotFound)
		_, err = a.queue.Complete(a.ctx, completion(job))
		a.refused(err, core.CodeQueueJobNotFound)
		a.claimNothing()
		stats, err := a.queue.Stats(a.ctx)
		a.must(err)
		if stats.Total() != 0 {
			t.Fatalf("stats %+v after the only job was removed", stats)
		}
		if again := a.enqueue(observe("x", 1)); again.Deduped {
			t.Fatal("a removed job cannot be enqueued again")
		}
		a.complete(a.claim())
		_, err = a.queue.Remove(a.ctx, job.ID)
		a.refusedWith(err, core.CodeQueueJobDone, core.ArchiveDone)
	})
}

func testArchiveEnqueue(t *testing.T, open func(*testing.T) *archive) {
	// oban-bg/oban#1505
	t.Run("of 50 enqueues at once of one observation exactly one creates it", func(t *testing.T) {
		a := open(t)
		callers := make([]ArchiveCaller, 50)
		for i := range callers {
			callers[i] = a.Caller()
		}
		outcomes := make([]core.ArchiveEnqueued, len(callers))
		inParallel(len(callers), func(i int) { outcomes[i] = a.enqueueBy(callers[i], observe("x", 1)) })
		created := 0
		for _, out := range outcomes {
			a.must(out.Err)
			if !out.Deduped {
				created++
			}
			if out.Job.ID != observe("x", 1).JobID() {
				t.Fatalf("an outcome names job %s", out.Job.ID)
			}
		}
		stats, err := a.queue.Stats(a.ctx)
		a.must(err)
		if created != 1 || stats.Total() != 1 {
			t.Fatalf("%d created, stats %+v", created, stats)
		}
		a.claim()
		a.claimNothing()
	})

	t.Run("two events about an unchanged file are one job, and manual promotes it", func(t *testing.T) {
		a := open(t)
		first := a.enqueue(observe("x", 1)).Job
		a.Clock.Advance(time.Second)
		r := observe("x", 1)
		r.Event = "session_end"
		if out := a.enqueue(r); !out.Deduped || out.Job.Event != "stop" || out.Job.UpdatedAt != first.UpdatedAt {
			t.Fatalf("the second event gave %+v", out)
		}
		r.Event = core.ArchiveManual
		promoted := a.enqueue(r)
		if j := promoted.Job; !promoted.Deduped || j.Event != core.ArchiveManual || j.UpdatedAt != a.now() || j.NextAttemptAt != first.NextAttemptAt {
			t.Fatalf("the manual event gave %+v", promoted)
		}
		r.Event = "stop"
		if out := a.enqueue(r); out.Job.Event != core.ArchiveManual {
			t.Fatal("a later event took the promotion back")
		}
	})

	// hibiken/asynq#629
	t.Run("a dead letter keeps its observation: enqueued again it is promoted but not revived", func(t *testing.T) {
		a := open(t)
		a.enqueue(observe("x", 1))
		for range archiveDefaults.MaxAttempts {
			a.claim()
			a.Clock.Advance(archiveDefaults.Lease)
		}
		a.sweep()
		r := observe("x", 1)
		r.Event = core.ArchiveManual
		out := a.enqueue(r)
		if !out.Deduped || out.Job.Status != core.ArchiveFailed || out.Job.Event != core.ArchiveManual {
			t.Fatalf("enqueued again: %+v", out)
		}
		a.claimNothing()
	})

	t.Run("a leased or done job is left as it is", func(t *testing.T) {
		a := open(t)
		a.enqueue(observe("x", 1))
		r := observe("x", 1)
		r.Event = core.ArchiveManual
		job := a.claim()
		if out := a.enqueue(r); !out.Deduped || out.Job.Event != "stop" || out.Job.Lease.ID != job.Lease.ID {
			t.Fatalf("the leased job became %+v", out.Job)
		}
		a.complete(job)
		if out := a.enqueue(r); !out.Deduped || out.Job.Event != "stop" || out.Job.Status != core.ArchiveDone {
			t.Fatalf("the done job became %+v", out.Job)
		}
	})

	t.Run("a batch gives each request its outcome in order, and a bad one fails alone", func(t *testing.T) {
		a := open(t)
		bad := observe("bad", 1)
		bad.SourcePath = "not/absolute"
		requests := []core.ArchiveRequest{observe("x", 1), bad, observe("x", 2), observe("y", 1), observe("x", 2)}
		out := a.queue.Enqueue(a.ctx, requests)
		a.refused(out[1].Err, core.CodeInvalidArgument)
		for _, i := range []int{0, 2, 3, 4} {
			a.must(out[i].Err)
			if out[i].Job.ID != requests[i].JobID() {
				t.Fatalf("outcome %d is of job %s", i, out[i].Job.ID)
			}
		}
		if !slices.Equal(out[2].Superseded, []string{requests[0].JobID()}) || len(out[4].Superseded) != 0 || !out[4].Deduped {
			t.Fatalf("retired %v, then %v", out[2].Superseded, out[4].Superseded)
		}
	})

	// loculus-project/loculus#7146
	t.Run("a batch that is repeated after a timeout makes no duplicates", func(t *testing.T) {
		a := open(t)
		var requests []core.ArchiveRequest
		for i := range 60 {
			requests = append(requests, observe(fmt.Sprint("f", i), 1))
		}
		dying := a.Caller()
		dying.Network.CutAfter(100)
		dying.Enqueue(a.ctx, requests)
		for i, out := range a.queue.Enqueue(a.ctx, requests) {
			a.must(out.Err)
			if out.Job.ID != requests[i].JobID() {
				t.Fatalf("outcome %d is of job %s", i, out.Job.ID)
			}
		}
		a.Clock.Advance(time.Minute)
		a.sweep()
		stats, err := a.queue.Stats(a.ctx)
		a.must(err)
		if stats.Total() != 60 || stats.Ready != 60 {
			t.Fatalf("stats %+v, want 60 ready", stats)
		}
	})

	t.Run("every text a caller may send comes back unchanged", func(t *testing.T) {
		a := open(t)
		for _, text := range []string{"a/b", "a%2Fb", "a+b c", "..", "😀", "שלום", "e\u0301", "\u202eabc", "<&>'\"", "a_b|c", "\\", "ready"} {
			r := core.ArchiveRequest{ArchiveObservation: core.ArchiveObservation{Agent: text, SourcePath: "/" + text, SourceBytes: 1},
				Event: text, SessionID: core.Some(text)}
			job := a.enqueue(r).Job
			jobs := a.claimBy(a.queue, core.ArchiveClaim{Owner: text, Agents: []string{text}, Events: []string{text}, PathPrefix: "/" + text})
			if len(jobs) != 1 || jobs[0].ID != job.ID || jobs[0].Lease.Owner != text {
				t.Fatalf("claimed %+v of %q", jobs, text)
			}
			_, err := a.queue.Fail(a.ctx, job.ID, jobs[0].Lease.ID, core.ArchiveFailure{Code: text, Message: text})
			a.must(err)
			got := a.get(job.ID)
			if got.Agent != text || got.SourcePath != "/"+text || got.Event != text || got.SessionID.Value != text || got.LastError.Message != text {
				t.Fatalf("%q came back as %+v", text, got)
			}
		}
	})
}
