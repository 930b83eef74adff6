package coretest

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"drawbridge/core"
)

// listAll pages through a list.
func (a *archive) listAll(status core.ArchiveStatus, limit int) []core.ArchiveJob {
	a.t.Helper()
	var jobs []core.ArchiveJob
	q := core.ArchiveQuery{Status: status, Limit: limit}
	for range 10_000 {
		page, err := a.queue.List(a.ctx, q)
		a.must(err)
		jobs = append(jobs, page.Jobs...)
		if q.Cursor = page.Cursor; q.Cursor == "" {
			return jobs
		}
	}
	a.t.Fatal("the list has no end")
	return nil
}

func (a *archive) stats() core.ArchiveStats {
	a.t.Helper()
	s, err := a.queue.Stats(a.ctx)
	a.must(err)
	return s
}

func testArchiveRead(t *testing.T, open func(*testing.T) *archive) {
	t.Run("a queue that nobody used is empty", func(t *testing.T) {
		a := open(t)
		if s := a.stats(); s.Total() != 0 || s.Claimable || len(s.Damaged) != 0 {
			t.Fatalf("stats %+v", s)
		}
		for _, status := range append(core.ArchiveStatuses, "") {
			if jobs := a.listAll(status, 10); len(jobs) != 0 {
				t.Fatalf("list of %q gave %v", status, jobs)
			}
		}
		a.claimNothing()
		a.sweep()
	})

	t.Run("lists are ordered, paged and complete, and stats agree with them", func(t *testing.T) {
		a := open(t)
		var enqueued, settled []string
		for i := range 30 {
			enqueued = append(enqueued, a.enqueue(observe(fmt.Sprint("f", i), 1)).Job.ID)
			if i%2 == 1 {
				a.Clock.Advance(time.Millisecond) // two share each moment
			}
		}
		for i := 0; i < 30; i += 2 {
			slices.Sort(enqueued[i : i+2])
		}
		jobs := a.claimBy(a.queue, core.ArchiveClaim{Max: 10})
		for _, i := range []int{3, 1, 7} {
			a.complete(jobs[i])
			settled = append(settled, jobs[i].ID)
			a.Clock.Advance(time.Millisecond)
		}
		_, err := a.queue.Fail(a.ctx, jobs[0].ID, jobs[0].Lease.ID, core.ArchiveFailure{Code: "io", Message: "disk"})
		a.must(err)
		for _, limit := range []int{1, 7, 30, 100} {
			if got := idsOf(a.listAll("", limit)); !slices.Equal(got, enqueued) {
				t.Fatalf("by %d: list gave %d jobs\n%v, want\n%v", limit, len(got), got, enqueued)
			}
			if got := idsOf(a.listAll(core.ArchiveDone, limit)); !slices.Equal(got, settled) {
				t.Fatalf("by %d: done gave %v, want %v", limit, got, settled)
			}
			if got := a.listAll(core.ArchiveReady, limit); len(got) != 21 {
				t.Fatalf("by %d: %d ready, want 21", limit, len(got))
			}
			if got := a.listAll(core.ArchiveLeased, limit); len(got) != 6 {
				t.Fatalf("by %d: %d leased, want 6", limit, len(got))
			}
		}
		s := a.stats()
		if s.Ready != 21 || s.Leased != 6 || s.Done != 3 || s.Completed != 3 || s.Superseded != 0 || s.Failed != 0 || !s.Claimable {
			t.Fatalf("stats %+v", s)
		}
	})

	t.Run("stats stay right while the sweep takes done jobs into its count", func(t *testing.T) {
		a := open(t)
		for i := range 12 {
			a.enqueue(observe(fmt.Sprint("f", i/2), i%2+1))
			if i%2 == 1 {
				a.complete(a.claim())
			}
			a.Clock.Advance(3 * time.Minute)
			a.sweep()
			want := core.ArchiveStats{Done: 2 * ((i + 1) / 2), Completed: (i + 1) / 2, Superseded: (i + 1) / 2, Ready: 1 - i%2}
			if s := a.stats(); s.Done != want.Done || s.Completed != want.Completed || s.Superseded != want.Superseded || s.Ready != want.Ready {
				t.Fatalf("step %d: stats %+v, want %+v", i, s, want)
			}
		}
	})

	t.Run("a malformed query is refused with its field", func(t *testing.T) {
		a := open(t)
		for field, q := range map[string]core.ArchiveQuery{
			"status": {Status: "new", Limit: 1}, "limit": {Limit: 0}, "cursor": {Limit: 1, Cursor: "x"},
		} {
			_, err := a.queue.List(a.ctx, q)
			if got := a.refused(err, core.CodeInvalidArgument).Details["field"]; got != field {
				t.Fatalf("the refusal names %v, want %s", got, field)
			}
		}
		for field, c := range map[string]core.ArchiveClaim{
			"owner": {Max: 1}, "max": {Owner: "w", Max: 11}, "lease_ms": {Owner: "w", Max: 1, Lease: 1}, "from": {Owner: "w", Max: 1, From: "x"},
		} {
			_, err := a.queue.Claim(a.ctx, c)
			if got := a.refused(err, core.CodeInvalidArgument).Details["field"]; got != field {
				t.Fatalf("the refusal names %v, want %s", got, field)
			}
		}
	})
}

func testArchiveDamage(t *testing.T, open func(*testing.T) *archive) {
	t.Run("a damaged document is named, never claimed, overwritten or believed, and healthy jobs are served", func(t *testing.T) {
		a := open(t)
		damaged := a.enqueue(observe("x", 2)).Job
		a.Clock.Advance(time.Millisecond)
		healthy := a.enqueue(observe("y", 1)).Job
		for _, bytes := range []string{"", "{", "null", "[]", `{"version":2}`,
			strings.Replace(string(core.EncodeArchiveJob(damaged)), damaged.ID, healthy.ID, 1),
			strings.Replace(string(core.EncodeArchiveJob(damaged)), `"ready"`, `"done"`, 1) + "x"} {
			a.Overwrite(damaged.ID, []byte(bytes))
			_, err := a.queue.Get(a.ctx, damaged.ID)
			a.refused(err, core.CodeQueueJobDamaged)
		}
		if job := a.claim(); job.ID != healthy.ID {
			t.Fatal("claimed the damaged job")
		}
		a.refused(a.enqueueBy(a.queue, observe("x", 2)).Err, core.CodeQueueJobDamaged)
		_, err := a.queue.Retry(a.ctx, damaged.ID)
		a.refused(err, core.CodeQueueJobDamaged)
		_, err = a.queue.Remove(a.ctx, damaged.ID)
		a.refused(err, core.CodeQueueJobDamaged)
		if out := a.enqueue(observe("x", 1)); out.Job.Status != core.ArchiveReady {
			t.Fatalf("the damaged job settled an earlier one: %+v", out.Job)
		}
		if out := a.enqueue(observe("x", 3)); !slices.Equal(out.Superseded, []string{observe("x", 1).JobID()}) {
			t.Fatalf("retired %v", out.Superseded)
		}
		if s := a.stats(); !slices.Equal(s.Damaged, []string{damaged.ID}) || s.Leased != 1 || s.Ready != 1 {
			t.Fatalf("stats %+v", s)
		}

		a.Overwrite(damaged.ID, core.EncodeArchiveJob(damaged))
		if s := a.sweep(); s.Healed != 1 {
			t.Fatalf("the sweep reports %+v", s)
		}
		if s := a.stats(); len(s.Damaged) != 0 {
			t.Fatalf("still damaged: %v", s.Damaged)
		}
		if job := a.claim(); job.ID != damaged.ID {
			t.Fatal("the repaired job is not claimable")
		}
	})
}

// testArchiveModel runs random operations against the queue and the model.
func testArchiveModel(t *testing.T, open func(*testing.T) *archive) {
	for _, faulty := range []bool{false, true} {
		t.Run(fmt.Sprintf("random operations give what the model gives, with faults %t", faulty), func(t *testing.T) {
			a := open(t)
			seed := cmp.Or(a.Seed, rand.Uint64())
			t.Logf("DRAWBRIDGE_SEED=%d", seed)
			d := duel{archive: a, seed: seed, random: rand.New(rand.NewPCG(seed, 1)),
				model:  NewArchiveModel(a.Clock, archiveDefaults, core.NewIDs(a.Clock, zeros{})),
				leases: map[string]string{}}
			d.callers = []ArchiveCaller{a.Steady(), a.Steady(), a.Steady()}
			for d.step = range a.Steps {
				if faulty && d.random.IntN(4) == 0 {
					d.disturb()
				}
				d.play()
			}
		})
	}
}

// zeros is randomness for ids that need not be unique among hosts.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// duel is the queue under test beside the model.
type duel struct {
	*archive
	seed    uint64
	step    int
	random  *rand.Rand
	model   *ArchiveModel
	callers []ArchiveCaller
	leases  map[string]string // the model's lease id of each of the queue's
	held    []core.ArchiveJob // every claim ever made
}

func (d *duel) caller() ArchiveCaller { return d.callers[d.random.IntN(len(d.callers))] }

func (d *duel) disturb() {
	n := d.caller().Network
	if d.random.IntN(2) == 0 {
		n.LoseAnswers(1 + d.random.IntN(2))
	} else {
		n.Conflict(1 + d.random.IntN(2))
	}
}

// same fails unless both gave the same jobs and the same error.
func (d *duel) same(what string, got, want []core.ArchiveJob, gotErr, wantErr error) {
	d.t.Helper()
	if core.CodeOf(gotErr) != core.CodeOf(wantErr) {
		d.t.Fatalf("seed %d step %d: %s gave %v, the model %v", d.seed, d.step, what, gotErr, wantErr)
	}
	if len(got) != len(want) {
		d.t.Fatalf("seed %d step %d: %s gave %d jobs, the model %d", d.seed, d.step, what, len(got), len(want))
	}
	for i := range got {
		g, w := core.EncodeArchiveJob(d.translate(got[i])), core.EncodeArchiveJob(want[i])
		if !bytes.Equal(g, w) {
			d.t.Fatalf("seed %d step %d: %s gave\n%s, the model\n%s", d.seed, d.step, what, g, w)
		}
	}
}

// translate gives a job the lease id that the model gave it.
func (d *duel) translate(j core.ArchiveJob) core.ArchiveJob {
	if j.Lease != nil {
		l := *j.Lease
		l.ID = d.leases[l.ID]
		j.Lease = &l
	}
	return j
}

func (d *duel) request() core.ArchiveRequest {
	r := observe(fmt.Sprint("f", d.random.IntN(12)), 1+d.random.IntN(6))
	if d.random.IntN(5) == 0 {
		r.Event = core.ArchiveManual
	}
	return r
}

func (d *duel) play() {
	switch n := d.random.IntN(100); {
	case n < 25:
		d.playEnqueue()
	case n < 45:
		d.playClaim()
	case n < 80 && len(d.held) > 0:
		d.playLease()
	case n < 85:
		d.playOperator()
	case n < 93:
		d.Clock.Advance(time.Duration(d.random.IntN(4)) * time.Minute / 2)
	case n < 96:
		_, err := d.caller().Sweep(d.ctx)
		d.must(err)
		_, err = d.model.Sweep(d.ctx)
		d.must(err)
	default:
		d.playRead()
	}
}

func (d *duel) playEnqueue() {
	requests := []core.ArchiveRequest{d.request()}
	for d.random.IntN(3) == 0 {
		requests = append(requests, d.request())
	}
	got, want := d.caller().Enqueue(d.ctx, requests), d.model.Enqueue(d.ctx, requests)
	for i := range want {
		d.same("enqueue", []core.ArchiveJob{got[i].Job}, []core.ArchiveJob{want[i].Job}, got[i].Err, want[i].Err)
		if got[i].Deduped != want[i].Deduped || !slices.Equal(got[i].Superseded, want[i].Superseded) {
			d.t.Fatalf("seed %d step %d: enqueue gave deduped %t, superseded %v; the model %t, %v",
				d.seed, d.step, got[i].Deduped, got[i].Superseded, want[i].Deduped, want[i].Superseded)
		}
	}
}

func (d *duel) playClaim() {
	c := core.ArchiveClaim{Owner: fmt.Sprint("w", d.random.IntN(3)), Max: 1 + d.random.IntN(3)}
	if d.random.IntN(4) == 0 {
		c.PathPrefix = fmt.Sprint("/home/a/f", d.random.IntN(3))
	}
	if d.random.IntN(4) == 0 {
		c.Exclude = []string{d.request().JobID()}
	}
	if d.random.IntN(4) == 0 {
		c.Lease = time.Duration(1+d.random.IntN(5)) * time.Minute
	}
	got, gotErr := d.caller().Claim(d.ctx, c)
	want, wantErr := d.model.Claim(d.ctx, c)
	for i := range min(len(got.Jobs), len(want.Jobs)) {
		d.leases[got.Jobs[i].Lease.ID] = want.Jobs[i].Lease.ID
	}
	d.same("claim", got.Jobs, want.Jobs, gotErr, wantErr)
	d.held = append(d.held, got.Jobs...)
	if c.Filtered() || len(want.Jobs) == c.Max {
		// Which crash loops a claim comes past before it stops is left to it.
		_, err := d.caller().Sweep(d.ctx)
		d.must(err)
		_, err = d.model.Sweep(d.ctx)
		d.must(err)
	}
}

func (d *duel) playLease() {
	// Mostly one of the latest claims, sometimes one that is long over.
	from := 0
	if d.random.IntN(4) > 0 {
		from = max(0, len(d.held)-6)
	}
	job := d.held[from+d.random.IntN(len(d.held)-from)]
	mine := d.translate(job).Lease.ID
	c := d.caller()
	var got, want core.ArchiveJob
	var gotErr, wantErr error
	switch d.random.IntN(6) {
	case 0:
		got, gotErr = c.Renew(d.ctx, job.ID, job.Lease.ID)
		want, wantErr = d.model.Renew(d.ctx, job.ID, mine)
	case 1:
		p := core.ArchiveProgress{Bytes: d.random.Int64N(100), Of: 100}
		got, gotErr = c.Progress(d.ctx, job.ID, job.Lease.ID, p)
		want, wantErr = d.model.Progress(d.ctx, job.ID, mine, p)
	case 2:
		got, gotErr = c.Release(d.ctx, job.ID, job.Lease.ID, nil)
		want, wantErr = d.model.Release(d.ctx, job.ID, mine, nil)
	case 3:
		f := core.ArchiveFailure{Code: "io", Message: fmt.Sprint("step ", d.step)}
		got, gotErr = c.Fail(d.ctx, job.ID, job.Lease.ID, f)
		want, wantErr = d.model.Fail(d.ctx, job.ID, mine, f)
	default:
		d.playComplete(c, job, mine)
		return
	}
	if wantErr != nil {
		got, want = core.ArchiveJob{}, core.ArchiveJob{}
	}
	d.same("a lease operation", []core.ArchiveJob{got}, []core.ArchiveJob{want}, gotErr, wantErr)
}

func (d *duel) playComplete(caller ArchiveCaller, job core.ArchiveJob, mine string) {
	c := completion(job)
	if d.random.IntN(3) == 0 {
		o := d.request()
		c.Snapshot = core.Some(core.ArchiveSnapshot{Bytes: o.SourceBytes, ModifiedAt: o.SourceModifiedAt})
	}
	got, gotErr := caller.Complete(d.ctx, c)
	c.LeaseID = mine
	want, wantErr := d.model.Complete(d.ctx, c)
	if wantErr != nil {
		got.Job, want.Job = core.ArchiveJob{}, core.ArchiveJob{}
	}
	d.same("complete", []core.ArchiveJob{got.Job}, []core.ArchiveJob{want.Job}, gotErr, wantErr)
	if got.Replayed != want.Replayed || !slices.Equal(got.Superseded, want.Superseded) {
		d.t.Fatalf("seed %d step %d: complete gave replayed %t, superseded %v; the model %t, %v",
			d.seed, d.step, got.Replayed, got.Superseded, want.Replayed, want.Superseded)
	}
}

func (d *duel) playOperator() {
	id := d.request().JobID()
	operate := core.ArchiveQueue.Retry
	if d.random.IntN(3) == 0 {
		operate = core.ArchiveQueue.Remove
	}
	got, gotErr := operate(d.caller(), d.ctx, id)
	want, wantErr := operate(d.model, d.ctx, id)
	if wantErr != nil {
		got, want = core.ArchiveJob{}, core.ArchiveJob{}
	}
	d.same("an operator's operation", []core.ArchiveJob{got}, []core.ArchiveJob{want}, gotErr, wantErr)
}

func (d *duel) playRead() {
	status := append(slices.Clone(core.ArchiveStatuses), "")[d.random.IntN(5)]
	limit := 1 + d.random.IntN(20)
	got, want := d.listAll(status, limit), (&archive{ArchiveHarness: d.ArchiveHarness, t: d.t, ctx: d.ctx,
		queue: ArchiveCaller{ArchiveQueue: d.model}}).listAll(status, limit)
	d.same(fmt.Sprintf("list of %q by %d", status, limit), got, want, nil, nil)
	gotStats, err := d.caller().Stats(d.ctx)
	d.must(err)
	wantStats, err := d.model.Stats(d.ctx)
	d.must(err)
	gotStats.Damaged = nil
	if fmt.Sprint(gotStats) != fmt.Sprint(wantStats) {
		d.t.Fatalf("seed %d step %d: stats %+v, the model %+v", d.seed, d.step, gotStats, wantStats)
	}
	some, err := d.caller().HasClaimable(d.ctx)
	d.must(err)
	if some != wantStats.Claimable {
		d.t.Fatalf("seed %d step %d: claimable %t, the model %t", d.seed, d.step, some, wantStats.Claimable)
	}
}
