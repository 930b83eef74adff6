package coretest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"drawbridge/core"
)

func testArchiveSupersede(t *testing.T, open func(*testing.T) *archive) {
	t.Run("a later observation retires the earlier ones that nobody works on", func(t *testing.T) {
		a := open(t)
		ready := a.enqueue(observe("x", 1)).Job
		other := observe("x", 1)
		other.Agent = "codex"
		a.enqueue(other)
		out := a.enqueue(observe("x", 2))
		if out.Deduped || !slices.Equal(out.Superseded, []string{ready.ID}) {
			t.Fatalf("retired %v", out.Superseded)
		}
		old := a.wantStatus(ready.ID, core.ArchiveDone)
		if old.SupersededBy != out.Job.ID || old.Result != nil || old.Lease != nil {
			t.Fatalf("retired to %+v", old)
		}
		a.wantStatus(other.JobID(), core.ArchiveReady)
	})

	t.Run("the later modification wins over the larger file, then the larger over the smaller", func(t *testing.T) {
		a := open(t)
		large := observe("x", 1)
		large.SourceBytes = 1 << 40
		a.enqueue(large)
		if out := a.enqueue(observe("x", 2)); len(out.Superseded) != 1 {
			t.Fatal("a compacted transcript did not retire the larger one before it")
		}
		same := observe("x", 2)
		same.SourceBytes++
		if out := a.enqueue(same); len(out.Superseded) != 1 {
			t.Fatal("at the same time more bytes did not win")
		}
	})

	t.Run("an observation that comes late is settled by the later one, ready, leased or archived", func(t *testing.T) {
		for _, state := range []core.ArchiveStatus{core.ArchiveReady, core.ArchiveLeased, core.ArchiveDone} {
			t.Run(string(state), func(t *testing.T) {
				a := open(t)
				later := a.enqueue(observe("x", 2)).Job
				if state != core.ArchiveReady {
					job := a.claim()
					if state == core.ArchiveDone {
						a.complete(job)
					}
				}
				out := a.enqueue(observe("x", 1))
				if out.Deduped || len(out.Superseded) != 0 || out.Job.Status != core.ArchiveDone || out.Job.SupersededBy != later.ID {
					t.Fatalf("the late one became %+v, retired %v", out.Job, out.Superseded)
				}
				a.wantStatus(later.ID, state)
			})
		}
	})

	t.Run("a dead letter retires nothing and settles nothing", func(t *testing.T) {
		a := open(t)
		failed := a.enqueue(observe("x", 2)).Job
		for range archiveDefaults.MaxAttempts {
			a.claim()
			a.Clock.Advance(archiveDefaults.Lease)
		}
		a.sweep()
		a.wantStatus(failed.ID, core.ArchiveFailed)
		if out := a.enqueue(observe("x", 1)); out.Job.Status != core.ArchiveReady {
			t.Fatalf("the earlier one became %+v", out.Job)
		}
		if out := a.enqueue(observe("x", 2)); len(out.Superseded) != 0 {
			t.Fatalf("a dead letter retired %v", out.Superseded)
		}
		if out := a.enqueue(observe("x", 3)); !slices.Equal(out.Superseded, []string{observe("x", 1).JobID()}) {
			t.Fatalf("retired %v", out.Superseded)
		}
		a.wantStatus(failed.ID, core.ArchiveFailed)
	})

	t.Run("a live lease is never touched, a lapsed one is", func(t *testing.T) {
		a := open(t)
		a.enqueue(observe("x", 1))
		job := a.claim()
		if out := a.enqueue(observe("x", 2)); len(out.Superseded) != 0 {
			t.Fatal("an enqueue retired a job under a live lease")
		}
		a.Clock.Advance(archiveDefaults.Lease)
		if out := a.enqueue(observe("x", 2)); !slices.Equal(out.Superseded, []string{job.ID}) {
			t.Fatalf("retired %v", out.Superseded)
		}
		_, err := a.queue.Renew(a.ctx, job.ID, job.Lease.ID)
		a.refusedWith(err, core.CodeQueueLeaseInvalid, core.ArchiveDone)
	})

	t.Run("a completion covers what its snapshot archived and nothing newer", func(t *testing.T) {
		a := open(t)
		a.enqueue(observe("x", 1))
		job := a.claim()
		// Newer than the job, older than what the worker read.
		between := a.enqueue(observe("x", 2)).Job
		b := a.claim()
		_, err := a.queue.Progress(a.ctx, b.ID, b.Lease.ID, core.ArchiveProgress{Bytes: 1, Of: 2})
		a.must(err)
		_, err = a.queue.Fail(a.ctx, b.ID, b.Lease.ID, core.ArchiveFailure{Code: "io", Message: "disk"})
		a.must(err)
		live := a.enqueueBy(a.queue, observe("y", 1)).Job // another source
		c := completion(job)
		c.Snapshot = core.Some(core.ArchiveSnapshot{Bytes: between.SourceBytes, ModifiedAt: between.SourceModifiedAt})
		out, err := a.queue.Complete(a.ctx, c)
		a.must(err)
		if !slices.Equal(out.Superseded, []string{between.ID}) {
			t.Fatalf("covered %v", out.Superseded)
		}
		got := a.wantStatus(between.ID, core.ArchiveDone)
		if got.SupersededBy != job.ID || got.Progress != nil || got.LastError != nil {
			t.Fatalf("covered to %+v", got)
		}
		a.wantStatus(live.ID, core.ArchiveReady)
		if newer := a.enqueue(observe("x", 3)); newer.Job.Status != core.ArchiveReady || len(newer.Superseded) != 0 {
			t.Fatalf("the newer one became %+v", newer.Job)
		}
	})

	t.Run("enqueues at once converge on the most advanced observation", func(t *testing.T) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		a := open(t)
		callers := make([]ArchiveCaller, 8)
		for i := range callers {
			callers[i] = a.Caller()
			callers[i].Network.Disturb(0.05)
		}
		for round := range max(3, a.Steps/200) {
			file := fmt.Sprint("f", round)
			order := random.Perm(len(callers))
			inParallel(len(callers), func(i int) {
				// A caller whose client gave up asks again, as any would.
				out := a.enqueueBy(callers[i], observe(file, order[i]+1))
				for tries := 1; core.CodeOf(out.Err).Entry().Retryable && tries < 10; tries++ {
					out = a.enqueueBy(callers[i], observe(file, order[i]+1))
				}
				if out.Err != nil {
					t.Errorf("seed %d round %d: %v", seed, round, out.Err)
				}
			})
			last := observe(file, len(callers)).JobID()
			for n := 1; n < len(callers); n++ {
				if job := a.wantStatus(observe(file, n).JobID(), core.ArchiveDone); job.SupersededBy == "" || job.SupersededBy == job.ID {
					t.Fatalf("seed %d round %d: observation %d became %+v", seed, round, n, job)
				}
			}
			a.wantStatus(last, core.ArchiveReady)
		}
	})
}

func testArchiveClaim(t *testing.T, open func(*testing.T) *archive) {
	t.Run("a filtered claim gives a renewed job its turn among those that it reads along", func(t *testing.T) {
		a := open(t)
		renewed := a.enqueue(observe("x", 1)).Job
		a.Clock.Advance(time.Second)
		a.enqueue(observe("y", 1))
		job := a.claim()
		a.Clock.Advance(time.Minute)
		a.claim()
		_, err := a.queue.Renew(a.ctx, job.ID, job.Lease.ID)
		a.must(err)
		a.Clock.Advance(archiveDefaults.Lease)
		got := a.claimBy(a.queue, core.ArchiveClaim{PathPrefix: "/home/"})
		if len(got) != 1 || got[0].ID != renewed.ID {
			t.Fatalf("the claim got %v, want %s, which was enqueued first", idsOf(got), renewed.ID)
		}
	})

	t.Run("jobs are claimed by when they became claimable, then by when they were enqueued, then by id", func(t *testing.T) {
		a := open(t)
		a.enqueue(observe("slow", 1))
		slow := a.claim() // lapses at +5 min, renewed at +4: at +9
		a.Clock.Advance(time.Second)
		a.enqueue(observe("failing", 1))
		failing := a.claim()
		failed, err := a.queue.Fail(a.ctx, failing.ID, failing.Lease.ID, core.ArchiveFailure{Code: "io", Message: "disk"})
		a.must(err)
		var twins []string
		for i := range 3 {
			twins = append(twins, a.enqueue(observe(fmt.Sprint("twin", i), 1)).Job.ID)
		}
		slices.Sort(twins)
		a.Clock.Advance(4*time.Minute - time.Second)
		_, err = a.queue.Renew(a.ctx, slow.ID, slow.Lease.ID)
		a.must(err)
		a.Clock.Advance(3 * time.Minute) // past the first end of the lease, before the second
		late := a.enqueue(observe("late", 1)).Job
		a.Clock.Advance(2 * time.Minute)
		want := append(twins, failed.ID, late.ID, slow.ID)
		got := idsOf(a.claimBy(a.queue, core.ArchiveClaim{Max: 10}))
		if !slices.Equal(got, want) {
			t.Fatalf("claimed\n%v, want\n%v", got, want)
		}
	})

	t.Run("filters and exclusions narrow a claim, and the rest stays", func(t *testing.T) {
		a := open(t)
		var want string
		for i := range 40 {
			r := observe(fmt.Sprintf("dir%d/f%d", i%2, i), 1)
			r.Agent, r.Event = fmt.Sprint("agent", i%3), fmt.Sprint("event", i%5)
			job := a.enqueue(r).Job
			if i == 9 { // odd, agent0, event4
				want = job.ID
			}
			a.Clock.Advance(time.Millisecond)
		}
		filter := core.ArchiveClaim{Owner: "w", Max: 10, Agents: []string{"agent0", "none"}, Events: []string{"event4"}, PathPrefix: "/home/a/dir1/"}
		excluded := filter
		excluded.Exclude = []string{want}
		if got := idsOf(a.claimBy(a.queue, excluded)); slices.Contains(got, want) || len(got) != 1 {
			t.Fatalf("with the exclusion claimed %v", got)
		}
		if got := idsOf(a.claimBy(a.queue, filter)); !slices.Equal(got, []string{want}) {
			t.Fatalf("claimed %v, want %s", got, want)
		}
		if got := a.claimBy(a.queue, filter); len(got) != 0 {
			t.Fatalf("claimed %v again", idsOf(got))
		}
	})

	// gastownhall/beads#3570, #3575, #4657, #5998
	t.Run("of 16 claims at once on one job exactly one wins", func(t *testing.T) {
		a := open(t)
		callers := make([]ArchiveCaller, 16)
		for i := range callers {
			callers[i] = a.Caller()
		}
		for round := range max(5, a.Steps/100) {
			a.enqueue(observe(fmt.Sprint("f", round), 1))
			var won atomic.Int64
			inParallel(len(callers), func(i int) {
				out, err := callers[i].Claim(a.ctx, core.ArchiveClaim{Owner: fmt.Sprint("w", i), Max: 1})
				if err != nil {
					t.Error(err)
				}
				won.Add(int64(len(out.Jobs)))
			})
			if won.Load() != 1 {
				t.Fatalf("round %d: %d claims won", round, won.Load())
			}
		}
	})

	t.Run("as many claims at once as there are jobs each get another one", func(t *testing.T) {
		a := open(t)
		const n = 16
		callers := make([]ArchiveCaller, n)
		for i := range callers {
			callers[i] = a.Caller()
		}
		for round := range 3 {
			for i := range n {
				a.enqueue(observe(fmt.Sprintf("r%df%d", round, i), 1))
			}
			got := make([]string, n)
			inParallel(n, func(i int) {
				out, err := callers[i].Claim(a.ctx, core.ArchiveClaim{Owner: "w", Max: 1})
				if err != nil || len(out.Jobs) != 1 {
					t.Errorf("round %d: claimed %d jobs, %v", round, len(out.Jobs), err)
					return
				}
				got[i] = out.Jobs[0].ID
			})
			slices.Sort(got)
			if len(slices.Compact(got)) != n {
				t.Fatalf("round %d: claims share jobs", round)
			}
		}
	})
}

// testArchiveFaults interrupts every operation after every request it makes.
func testArchiveFaults(t *testing.T, open func(*testing.T) *archive) {
	operations := []struct {
		name    string
		prepare func(*archive) func(ArchiveCaller) error
	}{
		{"enqueue", func(a *archive) func(ArchiveCaller) error {
			a.enqueue(observe("x", 1))
			return func(c ArchiveCaller) error { return a.enqueueBy(c, observe("x", 2)).Err }
		}},
		{"enqueue of a late observation", func(a *archive) func(ArchiveCaller) error {
			a.enqueue(observe("x", 2))
			return func(c ArchiveCaller) error { return a.enqueueBy(c, observe("x", 1)).Err }
		}},
		{"claim", func(a *archive) func(ArchiveCaller) error {
			a.enqueue(observe("x", 2))
			return func(c ArchiveCaller) error {
				_, err := c.Claim(a.ctx, core.ArchiveClaim{Owner: "dying", Max: 1})
				return err
			}
		}},
		{"renew", held(func(a *archive, c ArchiveCaller, j core.ArchiveJob) error {
			_, err := c.Renew(a.ctx, j.ID, j.Lease.ID)
			return err
		})},
		{"progress", held(func(a *archive, c ArchiveCaller, j core.ArchiveJob) error {
			_, err := c.Progress(a.ctx, j.ID, j.Lease.ID, core.ArchiveProgress{Bytes: 1, Of: 2})
			return err
		})},
		{"complete", held(func(a *archive, c ArchiveCaller, j core.ArchiveJob) error {
			a.enqueue(observe("x", 1))
			_, err := c.Complete(a.ctx, completion(j))
			return err
		})},
		{"release", held(func(a *archive, c ArchiveCaller, j core.ArchiveJob) error {
			_, err := c.Release(a.ctx, j.ID, j.Lease.ID, nil)
			return err
		})},
		{"fail", held(func(a *archive, c ArchiveCaller, j core.ArchiveJob) error {
			_, err := c.Fail(a.ctx, j.ID, j.Lease.ID, core.ArchiveFailure{Code: "io", Message: "disk"})
			return err
		})},
		{"retry", func(a *archive) func(ArchiveCaller) error {
			a.enqueue(observe("x", 2))
			return func(c ArchiveCaller) error { _, err := c.Retry(a.ctx, observe("x", 2).JobID()); return err }
		}},
		{"sweep", func(a *archive) func(ArchiveCaller) error {
			a.enqueue(observe("x", 2))
			for range archiveDefaults.MaxAttempts {
				a.claim()
				a.Clock.Advance(archiveDefaults.Lease)
			}
			return func(c ArchiveCaller) error { _, err := c.Sweep(a.ctx); return err }
		}},
	}
	for _, op := range operations {
		t.Run(op.name+" cut short anywhere loses no job", func(t *testing.T) {
			for cut := 0; ; cut++ {
				a := open(t)
				act := op.prepare(a)
				dying := a.Caller()
				dying.Network.CutAfter(cut)
				err := act(dying)
				a.settleAll(fmt.Sprintf("%s cut after %d requests", op.name, cut))
				if dying.Network.Requests() <= cut && err == nil {
					break
				}
				if cut > 40 {
					t.Fatal("the operation never ends")
				}
			}
		})
		// aws/aws-sdk-java#2667, aws/aws-sdk-go#3765; apache/opendal#6741,
		// apache/arrow-rs-object-store#138, #852; NOFireAI/ravel#1354
		t.Run(op.name+" survives lost answers and conflicts on every write", func(t *testing.T) {
			for _, fault := range []struct {
				name string
				arm  func(ArchiveNetwork, int)
			}{{"lost answers", ArchiveNetwork.LoseAnswers}, {"conflicts", ArchiveNetwork.Conflict}} {
				a := open(t)
				act := op.prepare(a)
				caller := a.Caller()
				fault.arm(caller.Network, 1)
				if err := act(caller); err != nil {
					t.Fatalf("%s with %s: %v", op.name, fault.name, err)
				}
				a.settleAll(op.name + " with " + fault.name)
			}
		})
	}

	t.Run("conflicts keep no claim and no sweep from dead-lettering the crash loop it comes past", func(t *testing.T) {
		for name, pass := range map[string]func(*archive, ArchiveCaller){
			"claim": func(a *archive, c ArchiveCaller) { a.claimBy(c, core.ArchiveClaim{}) },
			"sweep": func(a *archive, c ArchiveCaller) { _, err := c.Sweep(a.ctx); a.must(err) },
		} {
			a := open(t)
			job := a.enqueue(observe("x", 1)).Job
			for range archiveDefaults.MaxAttempts {
				a.claim()
				a.Clock.Advance(archiveDefaults.Lease)
			}
			caller := a.Caller()
			caller.Network.Conflict(2)
			pass(a, caller)
			if got := a.get(job.ID); got.Status != core.ArchiveFailed || got.LastError.Code != core.ArchiveLeaseExhausted {
				t.Fatalf("the %s left the crash loop at %+v", name, got)
			}
		}
	})

	t.Run("a worker whose answer is lost has its operation once, whatever it was", func(t *testing.T) {
		for _, name := range []string{"progress", "complete", "release", "fail", "renew"} {
			a := open(t)
			a.enqueue(observe("x", 2))
			job := a.claim()
			worker := a.Caller()
			worker.Network.LoseAnswers(1)
			if err := a.leaseOperation(worker, name, job); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got := a.get(job.ID); name == "release" && got.Attempts != 0 || name != "release" && got.Attempts != 1 {
				t.Fatalf("%s left %d attempts", name, got.Attempts)
			}
		}
	})

	t.Run("an enqueue whose answer is lost knows that it created the job", func(t *testing.T) {
		a := open(t)
		caller := a.Caller()
		caller.Network.LoseAnswers(1)
		out := a.enqueueBy(caller, observe("x", 1))
		a.must(out.Err)
		if out.Deduped {
			t.Fatal("the caller's own job was answered as another's")
		}
	})

	t.Run("a worker frozen before any of its requests and thawed past its lease changes nothing that is not its own", func(t *testing.T) {
		for _, name := range []string{"progress", "complete", "release", "fail", "renew"} {
			for at := range 5 {
				a := open(t)
				a.enqueue(observe("x", 1))
				job := a.claim()
				worker := a.Caller()
				thaw := worker.Network.FreezeAfter(at)
				ended := make(chan error, 1)
				go func() { ended <- a.leaseOperation(worker, name, job) }()
				// Until it is frozen, or has ended before it came to that.
				for worker.Network.Requests() <= at && len(ended) == 0 {
					time.Sleep(time.Millisecond)
				}
				a.Clock.Advance(archiveDefaults.Lease)
				second := a.claimBy(a.queue, core.ArchiveClaim{Owner: "second"})
				thaw()
				err := <-ended
				switch {
				case len(second) == 1 && err == nil && a.get(job.ID).Lease.ID != second[0].Lease.ID:
					t.Fatalf("%s frozen before request %d took the job from its new holder", name, at)
				case len(second) == 1 && err != nil:
					a.refused(err, core.CodeQueueLeaseInvalid)
					if now := a.get(job.ID); now.Lease == nil || now.Lease.ID != second[0].Lease.ID {
						t.Fatalf("%s frozen before request %d changed the job to %+v", name, at, now)
					}
				}
				a.settleAll(fmt.Sprintf("%s frozen before request %d", name, at))
			}
		}
	})
}

func (a *archive) leaseOperation(c ArchiveCaller, name string, j core.ArchiveJob) error {
	var err error
	switch name {
	case "progress":
		_, err = c.Progress(a.ctx, j.ID, j.Lease.ID, core.ArchiveProgress{Bytes: 1, Of: 2})
	case "complete":
		_, err = c.Complete(a.ctx, completion(j))
	case "release":
		_, err = c.Release(a.ctx, j.ID, j.Lease.ID, nil)
	case "fail":
		_, err = c.Fail(a.ctx, j.ID, j.Lease.ID, core.ArchiveFailure{Code: "io", Message: "disk"})
	case "renew":
		_, err = c.Renew(a.ctx, j.ID, j.Lease.ID)
	}
	return err
}

// held prepares an operation on a job under a lease.
func held(operate func(*archive, ArchiveCaller, core.ArchiveJob) error) func(*archive) func(ArchiveCaller) error {
	return func(a *archive) func(ArchiveCaller) error {
		a.enqueue(observe("x", 2))
		job := a.claim()
		return func(c ArchiveCaller) error { return operate(a, c, job) }
	}
}

// settleAll works the queue to its end after something went wrong, and fails
// when a job was lost on the way: one that no claim can find and no list shows.
func (a *archive) settleAll(what string) {
	a.t.Helper()
	a.Clock.Advance(2 * time.Hour)
	a.sweep()
	for range 20 {
		jobs := a.claimBy(a.queue, core.ArchiveClaim{Max: 10})
		for _, j := range jobs {
			a.complete(j)
		}
	}
	page, err := a.queue.List(a.ctx, core.ArchiveQuery{Limit: 1000})
	a.must(err)
	listed := map[string]core.ArchiveStatus{}
	for _, j := range page.Jobs {
		listed[j.ID] = j.Status
	}
	for n := 1; n <= 2; n++ {
		id := observe("x", n).JobID()
		job, err := a.queue.Get(a.ctx, id)
		if core.CodeOf(err) == core.CodeQueueJobNotFound {
			continue // its enqueue never happened
		}
		a.must(err)
		if job.Status != core.ArchiveDone && job.Status != core.ArchiveFailed || listed[id] != job.Status {
			a.t.Fatalf("%s: job %d was lost in status %s, listed as %q", what, n, job.Status, listed[id])
		}
	}
	a.Clock.Advance(2 * time.Hour)
	a.sweep()
	stats, err := a.queue.Stats(a.ctx)
	a.must(err)
	if stats.Total() != len(page.Jobs) || stats.Ready+stats.Leased != 0 || stats.Claimable {
		a.t.Fatalf("%s: stats %+v for the jobs %v", what, stats, listed)
	}
}

// testArchiveFleet lets workers that lose answers, stall, freeze and die work
// on many jobs.
func testArchiveFleet(t *testing.T, open func(*testing.T) *archive) {
	t.Run("16 faulty workers complete every job exactly once", func(t *testing.T) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		a := open(t)
		var requests []core.ArchiveRequest
		for i := range a.Jobs {
			requests = append(requests, observe(fmt.Sprint("f", i), 1))
		}
		for chunk := range slices.Chunk(requests, core.MaxArchiveBatch) {
			for _, out := range a.queue.Enqueue(a.ctx, chunk) {
				a.must(out.Err)
			}
		}
		f := fleet{archive: a, completed: map[string]int{}}
		stop := make(chan struct{})
		var clock sync.WaitGroup
		clock.Go(func() { f.runClock(stop) })
		inParallel(16, func(i int) { f.work(i, rand.New(rand.NewPCG(seed, uint64(i)))) })
		close(stop)
		clock.Wait()
		for _, r := range requests {
			if n := f.completed[r.JobID()]; n != 1 {
				t.Fatalf("seed %d: job %s was completed %d times", seed, r.JobID(), n)
			}
			a.wantStatus(r.JobID(), core.ArchiveDone)
		}
	})
}

type fleet struct {
	*archive
	mu        sync.Mutex
	completed map[string]int
}

// runClock lets a lease lapse every so often.
func (f *fleet) runClock(stop <-chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			f.Clock.Advance(10 * time.Second)
		}
	}
}

func (f *fleet) done() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.completed)
}

// work is one worker until all jobs are completed. One in forty times it dies
// over a job, one in forty it is frozen until its lease has lapsed; whoever
// follows is another process.
func (f *fleet) work(n int, random *rand.Rand) {
	owner := fmt.Sprint("worker", n)
	caller := f.Caller()
	caller.Network.Disturb(0.03)
	for f.done() < f.Jobs && !f.t.Failed() {
		out, err := caller.Claim(f.ctx, core.ArchiveClaim{Owner: owner, Max: 1 + random.IntN(3)})
		if err != nil && !f.bearable(err) {
			return
		}
		if len(out.Jobs) == 0 {
			f.dawdle(caller)
			continue
		}
		for _, job := range out.Jobs {
			switch fate := random.IntN(40); {
			case fate == 0:
				caller.Network.CutAfter(random.IntN(6))
				f.finish(caller, job)
				caller = f.Caller()
				caller.Network.Disturb(0.03)
			case fate == 1:
				f.finishFrozen(caller, job, random.IntN(5))
			default:
				f.finish(caller, job)
			}
		}
	}
}

// dawdle is a worker that found nothing: what is left is with others, perhaps
// dead ones.
func (f *fleet) dawdle(caller ArchiveCaller) {
	page, err := caller.List(f.ctx, core.ArchiveQuery{Status: core.ArchiveFailed, Limit: 100})
	for _, j := range page.Jobs {
		_, _ = caller.Retry(f.ctx, j.ID) // others do it too
	}
	if err == nil {
		time.Sleep(time.Millisecond)
	}
}

func (f *fleet) finish(caller ArchiveCaller, job core.ArchiveJob) {
	_, err := caller.Complete(f.ctx, completion(job))
	if err != nil {
		f.bearable(err)
		// Whether it happened is for a living process to find out.
		if _, err := f.queue.Complete(f.ctx, completion(job)); err != nil {
			return
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.completed[job.ID]++
}

// finishFrozen completes a job from a process that stands still on the way
// until the job's lease has lapsed.
func (f *fleet) finishFrozen(caller ArchiveCaller, job core.ArchiveJob, at int) {
	thaw := caller.Network.FreezeAfter(at)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.finish(caller, job)
	}()
	until := f.now().Add(archiveDefaults.Lease)
	for f.now() < until {
		time.Sleep(5 * time.Millisecond)
	}
	thaw()
	<-ended
}

// bearable tells whether an error is one that faults may cause.
func (f *fleet) bearable(err error) bool {
	switch core.CodeOf(err) {
	case core.CodeQueueLeaseInvalid, core.CodeQueueContention, core.CodeOutcomeUnknown, core.CodeUnavailable, core.CodeThrottled:
		return true
	}
	f.t.Errorf("a worker met %v", err)
	return false
}
