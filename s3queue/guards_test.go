package s3queue

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"drawbridge/core"
	"drawbridge/localstack/fakeaws"
)

// between lets something happen right before a process sends a request of a kind
// for the first time.
type between struct {
	over aws.HTTPClient
	kind func(*http.Request) bool
	act  func()
	once sync.Once
}

func (b *between) Do(r *http.Request) (*http.Response, error) {
	if b.kind(r) {
		b.once.Do(b.act)
	}
	return b.over.Do(r)
}

// sends tells requests by their method and a part of their key.
func sends(method, key string) func(*http.Request) bool {
	return func(r *http.Request) bool { return r.Method == method && strings.Contains(r.URL.Path, key) }
}

// meets is a process to which something happens before a request of that kind.
func (b *bed) meets(kind func(*http.Request) bool, act func()) *Queue {
	return b.queue(&between{over: b.config.HTTPClient, kind: kind, act: act})
}

func (b *bed) delete(key string) {
	b.t.Helper()
	if _, err := b.s3.DeleteObject(b.t.Context(), &s3.DeleteObjectInput{Bucket: &b.bucket, Key: &key}); err != nil {
		b.t.Fatal(err)
	}
}

// etag tells whether a document was written since it was asked for before.
func (b *bed) etag(id string) string {
	b.t.Helper()
	out, err := b.s3.HeadObject(b.t.Context(), &s3.HeadObjectInput{Bucket: &b.bucket, Key: aws.String(jobKey(id))})
	if err != nil {
		b.t.Fatal(err)
	}
	return aws.ToString(out.ETag)
}

// stray leaves the marker that a write of the job would have announced, and
// returns its key.
func (b *bed) stray(q *Queue, j core.ArchiveJob) string {
	b.t.Helper()
	m := markerOf(j, newNonce(q.ids))
	b.put(m.key, nil)
	return m.key
}

func (b *bed) stats(q *Queue) core.ArchiveStats {
	b.t.Helper()
	stats, err := q.Stats(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return stats
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) fail(q *Queue, j core.ArchiveJob) core.ArchiveJob {
	b.t.Helper()
	failed, err := q.Fail(b.t.Context(), j.ID, j.Lease.ID, core.ArchiveFailure{Code: "io"})
	b.must(err)
	return failed
}

// deadLetter makes a job that failed for good, by its worker's own word.
func (b *bed) deadLetter(q *Queue, r core.ArchiveRequest) core.ArchiveJob {
	b.t.Helper()
	b.enqueue(q, r)
	for {
		if j := b.fail(q, b.claim(q)); j.Status == core.ArchiveFailed {
			return j
		}
		b.clock.Advance(time.Hour)
	}
}

func (b *bed) done(q *Queue, r core.ArchiveRequest) core.ArchiveJob {
	b.t.Helper()
	b.enqueue(q, r)
	out, err := q.Complete(b.t.Context(), doneWith(b.claim(q)))
	b.must(err)
	return out.Job
}

// Only a claim that came too late to a job which another has leased turns the next
// ones to candidates by chance, for crowdMemory and no longer.
func TestOnlyAJobThatAnotherHasLeasedMakesClaimsChooseByChance(t *testing.T) {
	for _, test := range []struct {
		name  string
		met   func(*bed, *Queue) core.ArchiveJob // whose stale marker the claim meets
		later time.Duration
		first bool
	}{
		{"alone", nil, 0, true},
		{"a leased job", func(b *bed, q *Queue) core.ArchiveJob { b.enqueue(q, request("met", 1)); return b.claim(q) }, 0, false},
		{"a leased job, a moment before it is forgotten",
			func(b *bed, q *Queue) core.ArchiveJob { b.enqueue(q, request("met", 1)); return b.claim(q) }, crowdMemory - time.Millisecond, false},
		{"a leased job, forgotten",
			func(b *bed, q *Queue) core.ArchiveJob { b.enqueue(q, request("met", 1)); return b.claim(q) }, crowdMemory, true},
		{"a done job", func(b *bed, q *Queue) core.ArchiveJob { return b.done(q, request("met", 1)) }, 0, true},
		{"a dead letter", func(b *bed, q *Queue) core.ArchiveJob { return b.deadLetter(q, request("met", 1)) }, 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(t)
			c := b.settings(b.config.HTTPClient)
			c.Random = func() float64 { return 0.99 }
			q := New(c)
			if test.met != nil {
				was := test.met(b, q)
				was.Status, was.Lease, was.Result, was.NextAttemptAt = core.ArchiveReady, nil, nil, was.EnqueuedAt
				stale := b.stray(q, was)
				if out, err := q.Claim(t.Context(), core.ArchiveClaim{Owner: "w", Max: 1}); err != nil || len(out.Jobs) != 0 {
					t.Fatalf("claimed %v, %v", out.Jobs, err)
				}
				b.delete(stale)
			}
			var ids []string
			for _, file := range []string{"a", "b", "c"} {
				ids = append(ids, b.enqueue(q, request(file, 1)).ID)
			}
			b.clock.Advance(test.later)
			slices.Sort(ids) // they became claimable at one moment
			if got := b.claim(q); (got.ID == ids[0]) != test.first {
				t.Errorf("it took candidate %d of %d", 1+slices.Index(ids, got.ID), len(ids))
			}
		})
	}
}

// Two leases lapse, and between them a job becomes ready. The lease that was
// renewed lapsed last, though its marker stands where it would have lapsed first.
func TestAJobWhoseLeaseWasRenewedWaitsForThoseThatWereClaimableBefore(t *testing.T) {
	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	renewed := b.enqueue(q, request("renewed", 1)).ID
	held := b.claim(q)
	lease := core.DefaultArchiveSettings().Lease
	b.clock.Advance(lease - time.Minute)
	_, err := q.Renew(t.Context(), held.ID, held.Lease.ID)
	b.must(err)
	b.clock.Advance(2 * time.Minute)
	early := b.enqueue(q, request("early", 1)).ID
	b.clock.Advance(time.Second)
	late := b.enqueue(q, request("late", 1)).ID
	b.clock.Advance(lease)
	for i, want := range []string{early, late, renewed} {
		if got := b.claim(q); got.ID != want {
			t.Errorf("claim %d got %s, want %s", i, got.SourcePath, want)
		}
	}
}

// What another process does between two requests of an operation.
func TestWhatComesBetweenTwoRequestsOfAnImportFailsNothing(t *testing.T) {
	other := func(b *bed, q *Queue, _ core.ArchiveJob) { b.enqueue(q, request("x", 1)) }
	for _, test := range []struct {
		name          string
		kind          func(*http.Request) bool
		act           func(*bed, *Queue, core.ArchiveJob)
		jobs, skipped int
	}{
		{"nothing", sends("none", ""), nil, 1, 0},
		{"another makes the job", sends(http.MethodPut, jobPrefix), other, 0, 1},
		{"another makes the job, and its document is damaged", sends(http.MethodPut, jobPrefix),
			func(b *bed, _ *Queue, j core.ArchiveJob) { b.put(jobKey(j.ID), []byte("{")) }, 0, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(t)
			q := b.queue(b.config.HTTPClient)
			job := core.NewArchiveJob(request("x", 1), q.now())
			name, content := jobFile(job)
			copied, err := b.meets(test.kind, func() { test.act(b, q, job) }).Import(t.Context(), files{name: content}.all)
			if err != nil || copied.Jobs != test.jobs || copied.Skipped != test.skipped || len(copied.Damaged) != 0 {
				t.Fatalf("imported %+v, %v", copied, err)
			}
		})
	}
}

func TestAnImportOfWhatIsThereLeavesNoKeys(t *testing.T) {
	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	name, content := jobFile(b.enqueue(q, request("x", 1)))
	given := files{name: content}
	before := b.keys("")
	copied, err := q.Import(t.Context(), given.all)
	after := slices.DeleteFunc(b.keys(""), func(key string) bool { return key == rollupKey })
	if err != nil || copied.Skipped != 1 || !slices.Equal(before, after) {
		t.Fatalf("imported %+v, %v: the keys %v became %v", copied, err, before, after)
	}
}

// A copy that reads a job whose document went away since it was listed has nothing
// to copy, and that is no failure.
func TestAJobThatGoesAwayWhileTheQueueIsReadIsSkipped(t *testing.T) {
	for name, run := range map[string]func(*Queue) (Copied, error){
		"export": func(q *Queue) (Copied, error) {
			return q.Export(t.Context(), func(string, []byte) error { return nil })
		},
		"re-index": func(q *Queue) (Copied, error) { return q.Reindex(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			q := b.queue(b.config.HTTPClient)
			job := b.enqueue(q, request("x", 1))
			b.enqueue(q, request("y", 1))
			copied, err := run(b.meets(sends(http.MethodGet, jobKey(job.ID)), func() { b.delete(jobKey(job.ID)) }))
			if err != nil || copied.Jobs+copied.Skipped != 2 || len(copied.Damaged) != 0 {
				t.Fatalf("%+v, %v", copied, err)
			}
		})
	}
}

// The job is made by another right before this enqueue makes it, and an operator
// removes it right after: whoever enqueued last has the job.
func TestAJobThatWasAnothersForAMomentIsEnqueuedAllTheSame(t *testing.T) {
	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	created := false
	remove := &between{over: b.config.HTTPClient, act: func() { _, err := q.Remove(t.Context(), request("x", 1).JobID()); b.must(err) },
		kind: func(r *http.Request) bool { return created && sends(http.MethodGet, jobPrefix)(r) }}
	own := b.queue(&between{over: remove, kind: sends(http.MethodPut, jobPrefix), act: func() { b.enqueue(q, request("x", 1)); created = true }})
	out := own.Enqueue(t.Context(), []core.ArchiveRequest{request("x", 1)})[0]
	if out.Err != nil || out.Deduped {
		t.Fatalf("enqueued %+v, %v", out, out.Err)
	}
	b.claim(q)
}

// A removal has marked its job when an operator retries it: the job stays, and
// whoever removes it is told.
func TestARetryBetweenTheStepsOfARemovalKeepsTheJob(t *testing.T) {
	b := newEmbedded(t)
	q := b.queue(b.config.HTTPClient)
	job := b.enqueue(q, request("x", 1))
	_, err := b.meets(sends(http.MethodDelete, jobPrefix), func() { _, err := q.Retry(t.Context(), job.ID); b.must(err) }).Remove(t.Context(), job.ID)
	if core.CodeOf(err) != core.CodeQueueContention {
		t.Errorf("the removal answered %v", err)
	}
	if got := b.claim(q); got.ID != job.ID {
		t.Error("the retried job is gone")
	}
}

// An answer to a removal that got lost is asked for again, and there is nothing.
func TestARemovalWhoseAnswerIsLostIsOne(t *testing.T) {
	b := newEmbedded(t)
	n := newNetwork(b.config.HTTPClient)
	q := b.queue(n)
	job := b.enqueue(q, request("x", 1))
	removing := b.queue(&between{over: n, kind: sends(http.MethodDelete, jobPrefix), act: func() { n.LoseAnswers(1) }})
	if _, err := removing.Remove(t.Context(), job.ID); err != nil {
		t.Fatal(err)
	}
	if left := b.keys(""); len(left) != 0 {
		t.Errorf("left of the removed job: %v", left)
	}
}

// A completion that died before it cleared its lease's marker is repeated.
func TestARepeatedCompletionClearsWhatTheFirstLeft(t *testing.T) {
	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	b.enqueue(q, request("x", 1))
	job := b.claim(q)
	dying := newNetwork(b.config.HTTPClient)
	dying.CutAfter(3) // read, announced, completed
	if _, err := b.queue(dying).Complete(t.Context(), doneWith(job)); core.CodeOf(err) != core.CodeOutcomeUnknown {
		t.Fatalf("the dead process answered %v", err)
	}
	if open := b.keys(openPrefix); len(open) != 1 {
		t.Fatalf("it left %v", open)
	}
	if out, err := q.Complete(t.Context(), doneWith(job)); err != nil || !out.Replayed {
		t.Fatalf("repeated %+v, %v", out, err)
	}
	if open := b.keys(openPrefix); len(open) != 0 {
		t.Errorf("left are %v", open)
	}
}

// Of a refusal that what another wrote settles, nobody waits for anything.
func TestAnOperationThatAnotherSettledIsRefusedWithoutAWait(t *testing.T) {
	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	b.enqueue(q, request("x", 1))
	job := b.claim(q)
	c := b.settings(&meeting{over: b.config.HTTPClient, first: func() { _, err := q.Complete(t.Context(), doneWith(job)); b.must(err) }})
	c.Sleep = func(context.Context, time.Duration) error { t.Error("it waited"); return nil }
	if _, err := New(c).Renew(t.Context(), job.ID, job.Lease.ID); core.CodeOf(err) != core.CodeQueueLeaseInvalid {
		t.Errorf("answered %v", err)
	}
}

// What an operation answers when S3 does not, and what it leaves for the next.
func TestAWriteWithoutAnAnswerIsToldAsWhatItIs(t *testing.T) {
	const sent = 3 // as often as the SDK sends a request
	for _, test := range []struct {
		name    string
		faults  []fakeaws.Rule
		enqueue bool // otherwise a release of a claimed job
		want    core.Code
	}{
		{"an enqueue whose answers are all lost", []fakeaws.Rule{{Op: "PutObject", Key: "jobs/*", Count: sent, Action: fakeaws.DropResponse()}}, true, ""},
		{"an enqueue that never arrives", []fakeaws.Rule{{Op: "PutObject", Key: "jobs/*", Action: fakeaws.Error(500, "InternalError")}}, true, core.CodeOutcomeUnknown},
		{"an enqueue that is refused, and cannot see by what", []fakeaws.Rule{
			{Op: "PutObject", Key: "jobs/*", Count: 1, Action: fakeaws.Error(412, "PreconditionFailed")},
			{Op: "GetObject", Key: "jobs/*", After: 1, Count: sent, Action: fakeaws.Error(503, "ServiceUnavailable")}}, true, core.CodeUnavailable},
		{"a release whose answers are all lost", []fakeaws.Rule{{Op: "PutObject", Key: "jobs/*", Count: sent, Action: fakeaws.DropResponse()}}, false, ""},
		{"a release that does not arrive", []fakeaws.Rule{{Op: "PutObject", Key: "jobs/*", Count: sent, Action: fakeaws.Error(500, "InternalError")}}, false, core.CodeOutcomeUnknown},
		{"a release whose answers are all lost, and nothing can be read", []fakeaws.Rule{
			{Op: "PutObject", Key: "jobs/*", Count: sent, Action: fakeaws.DropResponse()},
			{Op: "GetObject", Key: "jobs/*", After: 1, Count: sent, Action: fakeaws.Error(503, "ServiceUnavailable")}}, false, core.CodeOutcomeUnknown},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newEmbedded(t)
			q := b.queue(b.config.HTTPClient)
			operate := func() error { return q.Enqueue(t.Context(), []core.ArchiveRequest{request("x", 1)})[0].Err }
			if !test.enqueue {
				b.enqueue(q, request("x", 1))
				job := b.claim(q)
				operate = func() error { _, err := q.Release(t.Context(), job.ID, job.Lease.ID, nil); return err }
			}
			var added []*fakeaws.Handle
			for _, rule := range test.faults {
				added = append(added, b.aws.Faults().Add(rule))
			}
			if err := operate(); core.CodeOf(err) != test.want {
				t.Errorf("answered %v, want %q", err, test.want)
			}
			for i, fault := range added {
				if fault.Hits() == 0 {
					t.Errorf("fault %d was not met", i)
				}
				fault.Remove()
			}
			// Whatever became of it, the job is not lost.
			b.enqueue(q, request("x", 1))
			b.clock.Advance(core.DefaultArchiveSettings().Lease)
			b.claim(q)
		})
	}
}

// S3 says that another request was in the way of a release, and the release lands
// while it waits: its marker may not be taken away.
func TestAWriteThatAConflictWasAnsweredForMayStillLand(t *testing.T) {
	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	b.enqueue(q, request("x", 1))
	job := b.claim(q)
	late := &lateWrite{over: b.config.HTTPClient}
	c := b.settings(late)
	c.Sleep = func(context.Context, time.Duration) error { return late.land() }
	_, err := New(c).Release(t.Context(), job.ID, job.Lease.ID, nil)
	if err != nil && core.CodeOf(err) != core.CodeQueueLeaseInvalid {
		t.Fatal(err)
	}
	if got := b.claim(q); got.ID != job.ID {
		t.Error("the released job has no marker")
	}
}

// lateWrite answers the first replacement of a document with a conflict, and
// carries it out later.
type lateWrite struct {
	over aws.HTTPClient
	held *http.Request
}

func (l *lateWrite) Do(r *http.Request) (*http.Response, error) {
	if l.held == nil && r.Header.Get("If-Match") != "" {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		l.held = r.Clone(context.Background())
		l.held.Body = io.NopCloser(bytes.NewReader(body))
		return answer(r, http.StatusConflict, "ConditionalRequestConflict"), nil
	}
	return l.over.Do(r)
}

func (l *lateWrite) land() error {
	resp, err := l.over.Do(l.held)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// The wait against others ends at its limit, by what it waited or by the clock,
// whichever comes first.
func TestTheWaitAgainstOthersEndsAtItsLimit(t *testing.T) {
	const pause = firstPause / 2 // without chance
	for _, test := range []struct {
		name   string
		limit  time.Duration
		takes  time.Duration // what the clock says a pause took
		pauses int
	}{
		{"the clock stands still", 2 * pause, 0, 2},
		{"the clock stands still, a little more to wait", 2*pause + 1, 0, 3},
		{"a pause takes the whole time", time.Minute, time.Minute, 1},
		{"a pause takes almost the whole time", time.Minute, time.Minute - time.Millisecond, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(t)
			n := newNetwork(b.config.HTTPClient)
			c := b.settings(n)
			pauses := 0
			c.Settings.ContentionWait, c.Random = test.limit, func() float64 { return 0 }
			c.Sleep = func(_ context.Context, d time.Duration) error {
				pauses++
				if d != pause {
					t.Errorf("a pause of %s, want %s", d, pause)
				}
				b.clock.Advance(test.takes)
				return nil
			}
			q := New(c)
			job := b.enqueue(q, request("x", 1))
			n.Conflict(1 << 20)
			if _, err := q.Retry(t.Context(), job.ID); core.CodeOf(err) != core.CodeQueueContention || pauses != test.pauses {
				t.Errorf("%d pauses, want %d: %v", pauses, test.pauses, err)
			}
		})
	}
}
