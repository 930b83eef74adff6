package s3queue

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"drawbridge/core"
)

// single is one process on a bed, and its job.
func (b *bed) enqueue(q *Queue, r core.ArchiveRequest) core.ArchiveJob {
	b.t.Helper()
	out := q.Enqueue(b.t.Context(), []core.ArchiveRequest{r})[0]
	if out.Err != nil {
		b.t.Fatal(out.Err)
	}
	return out.Job
}

func (b *bed) claim(q *Queue) core.ArchiveJob {
	b.t.Helper()
	return costs{b, q}.claim(1)[0]
}

func (b *bed) sweep(q *Queue) core.ArchiveSweep {
	b.t.Helper()
	s, err := q.Sweep(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// A marker may only be deleted when nobody can still name it. The release below
// has announced its ready state and stands still before it writes it, for so
// long that the sweep takes the marker for the remains of a dead writer.
func TestAMarkerThatIsClearedUnderASlowWriterIsAnnouncedAnew(t *testing.T) {
	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	job := b.enqueue(q, request("x", 1))
	job = b.claim(q)

	slow := newNetwork(b.config.HTTPClient)
	thaw := slow.FreezeAfter(2) // the document read, the marker written
	ended := make(chan error, 1)
	go func() {
		_, err := b.queue(slow).Release(t.Context(), job.ID, job.Lease.ID, nil)
		ended <- err
	}()
	for slow.Requests() < 3 {
		time.Sleep(time.Millisecond)
	}
	announced := b.keys(duePrefix)
	b.clock.Advance(2 * grace)
	b.sweep(q)
	if left := b.keys(duePrefix); len(announced) != 2 || len(left) != 1 {
		t.Fatalf("before the sweep %v, after it %v", announced, left)
	}
	thaw()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if again := b.claim(q); again.ID != job.ID {
		t.Fatal("the released job has no marker")
	}
}

// A meeting lets something happen right before a process replaces a document.
type meeting struct {
	over  aws.HTTPClient
	first func()
	once  sync.Once
}

func (m *meeting) Do(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPut && r.Header.Get("If-Match") != "" {
		m.once.Do(m.first)
	}
	return m.over.Do(r)
}

// The completion below has announced that the job is done and stands still until
// the sweep is about to clear that marker as a dead writer's.
func TestACompletionThatLandsWhileItsMarkerIsClearedIsCounted(t *testing.T) {
	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	b.enqueue(q, request("x", 1))
	job := b.claim(q)

	slow := newNetwork(b.config.HTTPClient)
	thaw := slow.FreezeAfter(2) // the document read, the marker written
	ended := make(chan error, 1)
	go func() {
		_, err := b.queue(slow).Complete(t.Context(), doneWith(job))
		ended <- err
	}()
	for slow.Requests() < 3 {
		time.Sleep(time.Millisecond)
	}
	b.clock.Advance(2 * settleMargin)
	var completed error
	b.sweep(b.queue(&meeting{over: b.config.HTTPClient, first: func() { thaw(); completed = <-ended }}))
	stats, err := q.Stats(t.Context())
	if completed != nil || err != nil || stats.Completed != 1 || stats.Total() != 1 {
		t.Fatalf("completed with %v; stats %+v, %v", completed, stats, err)
	}
}

func TestAJobThatIsRemovedWhileItIsPutRightFailsNobody(t *testing.T) {
	for name, pass := range map[string]func(*Queue) error{
		"claim": func(q *Queue) error {
			_, err := q.Claim(t.Context(), core.ArchiveClaim{Owner: "w", Max: 1})
			return err
		},
		"sweep": func(q *Queue) error { _, err := q.Sweep(t.Context()); return err },
	} {
		b := newBed(t)
		q := b.queue(b.config.HTTPClient)
		job := b.enqueue(q, request("x", 1))
		for range core.DefaultArchiveSettings().MaxAttempts {
			b.claim(q)
			b.clock.Advance(core.DefaultArchiveSettings().Lease)
		}
		var removed error
		err := pass(b.queue(&meeting{over: b.config.HTTPClient, first: func() { _, removed = q.Remove(t.Context(), job.ID) }}))
		if err != nil || removed != nil {
			t.Fatalf("the %s failed with %v, the removal with %v", name, err, removed)
		}
	}
}

func TestAWriteUnderWayIsNotDisturbed(t *testing.T) {
	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	b.enqueue(q, request("x", 1))
	job := b.claim(q)
	r, err := q.read(t.Context(), job.ID)
	if err != nil {
		t.Fatal(err)
	}
	m := markerOf(core.NewArchiveJob(request("x", 1), q.now()), newNonce(q.ids))
	if err := q.announce(t.Context(), m.key, nil); err != nil {
		t.Fatal(err)
	}
	b.sweep(q)
	after, err := q.read(t.Context(), job.ID)
	if err != nil || after.etag != r.etag || !slices.Contains(b.keys(duePrefix), m.key) {
		t.Fatalf("the sweep touched a marker that is not %s old: %v", grace, err)
	}
}

func TestTheMarkersOfARemovedJobAreClearedAndBringNothingBack(t *testing.T) {
	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	b.enqueue(q, request("x", 1))
	job := b.claim(q)
	stale := markerOf(job, newNonce(q.ids))
	if err := q.announce(t.Context(), stale.key, nil); err != nil {
		t.Fatal(err)
	}
	b.clock.Advance(core.DefaultArchiveSettings().Lease)
	if _, err := q.Remove(t.Context(), job.ID); err != nil {
		t.Fatal(err)
	}
	b.sweep(q)
	if left := b.keys(""); len(left) != 0 {
		t.Fatalf("left of the removed job: %v", left)
	}
}

func TestARemovalCutShortLeavesADeadLetter(t *testing.T) {
	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	job := b.enqueue(q, request("x", 1))
	dying := newNetwork(b.config.HTTPClient)
	dying.CutAfter(3) // read, announced, marked as removed
	if _, err := b.queue(dying).Remove(t.Context(), job.ID); err == nil {
		t.Fatal("the dead process removed the job")
	}
	page, err := q.List(t.Context(), core.ArchiveQuery{Status: core.ArchiveFailed, Limit: 10})
	if err != nil || len(page.Jobs) != 1 || page.Jobs[0].LastError.Code != core.ArchiveRemoved {
		t.Fatalf("failed jobs %v, %v", page.Jobs, err)
	}
	if _, err := q.Remove(t.Context(), job.ID); err != nil {
		t.Fatal(err)
	}
}

func TestAStaleMarkerTakesNoTurnOfAFilteredClaim(t *testing.T) {
	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	job := b.enqueue(q, request("x", 1))
	b.clock.Advance(time.Second)
	b.enqueue(q, request("y", 1))
	if err := q.announce(t.Context(), markerOf(job, newNonce(q.ids)).key, nil); err != nil {
		t.Fatal(err)
	}
	out, err := q.Claim(t.Context(), core.ArchiveClaim{Owner: "w", Max: 2, PathPrefix: "/"})
	if err != nil || len(out.Jobs) != 2 {
		t.Fatalf("the claim got %d of 2 jobs: %v", len(out.Jobs), err)
	}
}

func TestAJobWithStaleMarkersIsListedOnce(t *testing.T) {
	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	job := b.enqueue(q, request("x", 1))
	b.clock.Advance(time.Second)
	b.enqueue(q, request("y", 1))
	for range core.DefaultArchiveSettings().MaxAttempts {
		costs{b, q}.claim(2)
		b.clock.Advance(core.DefaultArchiveSettings().Lease)
	}
	b.sweep(q)
	letter, err := q.read(t.Context(), job.ID)
	if err != nil {
		t.Fatal(err)
	}
	removed := letter.job // one of the same id, enqueued and removed before
	removed.EnqueuedAt = removed.EnqueuedAt.Add(-time.Hour)
	for _, stale := range []core.ArchiveJob{letter.job, removed} {
		if err := q.announce(t.Context(), markerOf(stale, newNonce(q.ids)).key, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, status := range []core.ArchiveStatus{core.ArchiveFailed, ""} {
		for limit := 1; limit <= 4; limit++ {
			listed, cursor := 0, ""
			for more := true; more; more = cursor != "" {
				page, err := q.List(t.Context(), core.ArchiveQuery{Status: status, Limit: limit, Cursor: cursor})
				if err != nil {
					t.Fatal(err)
				}
				listed, cursor = listed+len(page.Jobs), page.Cursor
			}
			if listed != 2 {
				t.Errorf("the list of %q by %d has %d jobs, want 2", status, limit, listed)
			}
		}
	}
}

func TestTheIndexHoldsNothingButWhatTheJobsNeed(t *testing.T) {
	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	for n := range 20 { // one growing transcript, archived now and then
		b.enqueue(q, request("x", n))
		if n%5 == 4 {
			if _, err := q.Complete(t.Context(), doneWith(b.claim(q))); err != nil {
				t.Fatal(err)
			}
		}
		b.clock.Advance(time.Second)
	}
	b.enqueue(q, request("y", 1))
	b.enqueue(q, request("y", 2))
	if sources := b.keys(sourcePrefix + request("y", 1).SourceID()); len(sources) != 1 {
		t.Errorf("the source lists %v after one retired the other", sources)
	}
	if _, err := q.Complete(t.Context(), doneWith(b.claim(q))); err != nil {
		t.Fatal(err)
	}
	if open := b.keys(openPrefix); len(open) != 0 {
		t.Errorf("markers of jobs that are all done: %v", open)
	}
	if sources := b.keys(sourcePrefix + request("x", 1).SourceID()); len(sources) != 1 || !strings.Contains(sources[0], request("x", 19).JobID()) {
		t.Errorf("the source lists %v, want its last completed job only", sources)
	}
	if done := b.keys(donePrefix); len(done) != 22 {
		t.Errorf("%d done markers, want 22", len(done))
	}
}

func TestAFilteredClaimLooksAtAThousandCandidatesAndSaysWhereItStopped(t *testing.T) {
	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	const n = 1100
	errs := make([]error, n)
	each(n, func(i int) { errs[i] = q.putReady(t, i) })
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	claim := core.ArchiveClaim{Owner: "w", Max: 1, PathPrefix: fmt.Sprintf("/t/f%04d", n-1)}
	out, err := q.Claim(t.Context(), claim)
	if err != nil || len(out.Jobs) != 0 || out.ScannedTo == "" {
		t.Fatalf("the first claim got %d jobs, scanned to %q: %v", len(out.Jobs), out.ScannedTo, err)
	}
	claim.From = out.ScannedTo
	out, err = q.Claim(t.Context(), claim)
	if err != nil || len(out.Jobs) != 1 || out.ScannedTo != "" {
		t.Fatalf("the second claim got %d jobs, scanned to %q: %v", len(out.Jobs), out.ScannedTo, err)
	}
}

// putReady writes the i-th of many jobs as a hand-made copy and its marker.
func (q *Queue) putReady(t *testing.T, i int) error {
	job := core.NewArchiveJob(request(fmt.Sprintf("f%04d", i), 1), q.now().Add(time.Duration(i-2000)*time.Millisecond))
	if err := q.announce(t.Context(), markerOf(job, rawNonce).key, nil); err != nil {
		return err
	}
	return q.announce(t.Context(), jobKey(job.ID), core.EncodeArchiveJob(job))
}

func TestTheSweepStopsAtItsBoundAndSaysSo(t *testing.T) {
	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	s := sweep{queue: q, census: census{byID: map[string][]marker{}}}
	first := q.now().Add(-time.Hour)
	for i := range sweepBound + 5 {
		job := core.NewArchiveJob(request(fmt.Sprint(i), 1), first).Claimed("w", "l", time.Duration(i)*time.Millisecond, first)
		s.census.add(markerOf(job, newNonce(q.ids)).key)
	}
	if got := s.suspects(); len(got) != sweepBound || !s.more || s.report().Lag != time.Hour-sweepBound*time.Millisecond {
		t.Fatalf("%d suspects, more %t, lag %s", len(got), s.more, s.report().Lag)
	}
}
