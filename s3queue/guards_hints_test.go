package s3queue

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"drawbridge/core"
	"drawbridge/localstack/fakeaws"
)

var archiveLease = core.DefaultArchiveSettings().Lease

// What a sweep reports of one hint, and whether it wrote the job for it.
func TestASweepTellsWhatItDidAboutAHint(t *testing.T) {
	// as gives a job the state that a stale hint of it tells of.
	as := func(j core.ArchiveJob, status core.ArchiveStatus, now core.Instant) core.ArchiveJob {
		j.Status, j.Lease, j.Result, j.NextAttemptAt = status, nil, nil, now
		if status == core.ArchiveLeased {
			j.Lease = &core.ArchiveLease{ID: "l", Owner: "o", ExpiresAt: now}
		}
		return j
	}
	renewed := func(later time.Duration) func(*bed, *Queue) string {
		return func(b *bed, q *Queue) string {
			b.enqueue(q, request("x", 1))
			job := b.claim(q)
			b.clock.Advance(time.Minute)
			_, err := q.Renew(b.t.Context(), job.ID, job.Lease.ID)
			b.must(err)
			b.clock.Advance(later - time.Minute)
			return job.ID
		}
	}
	for _, test := range []struct {
		name  string
		make  func(*bed, *Queue) string // the job's id
		want  core.ArchiveSweep
		wrote bool
	}{
		{"a renewed lease before its hint's moment", renewed(archiveLease - time.Millisecond), core.ArchiveSweep{}, false},
		{"a renewed lease at its hint's moment", renewed(archiveLease), core.ArchiveSweep{Moved: 1}, true},
		{"a renewed lease before it lapses", renewed(archiveLease + time.Minute - time.Millisecond), core.ArchiveSweep{Moved: 1}, true},
		{"a lease that lapsed", renewed(archiveLease + time.Minute), core.ArchiveSweep{}, false},
		{"a leased job's stale ready hint", func(b *bed, q *Queue) string {
			b.enqueue(q, request("x", 1))
			job := b.claim(q)
			b.stray(q, as(job, core.ArchiveReady, q.now()))
			b.clock.Advance(2 * grace)
			return job.ID
		}, core.ArchiveSweep{Cleaned: 1}, true},
		{"a ready job's own hint beside one that may be a writer's", func(b *bed, q *Queue) string {
			job := b.enqueue(q, request("x", 1))
			b.clock.Advance(grace)
			b.stray(q, job)
			return job.ID
		}, core.ArchiveSweep{}, false},
		{"a hint that its job does not name, as old as it may be", func(b *bed, q *Queue) string {
			job := b.enqueue(q, request("x", 1))
			b.stray(q, job)
			b.clock.Advance(grace)
			return job.ID
		}, core.ArchiveSweep{}, false},
		{"a hint that its job does not name, too old", func(b *bed, q *Queue) string {
			job := b.enqueue(q, request("x", 1))
			b.stray(q, job)
			b.clock.Advance(grace + time.Millisecond)
			return job.ID
		}, core.ArchiveSweep{Cleaned: 1}, true},
		{"a done job's stale lease", func(b *bed, q *Queue) string {
			job := b.done(q, request("x", 1))
			b.stray(q, as(job, core.ArchiveLeased, q.now()))
			return job.ID
		}, core.ArchiveSweep{Cleaned: 1}, false},
		{"a dead letter's stale lease", func(b *bed, q *Queue) string {
			job := b.deadLetter(q, request("x", 1))
			b.stray(q, as(job, core.ArchiveLeased, q.now()))
			b.clock.Advance(2 * grace)
			return job.ID
		}, core.ArchiveSweep{Cleaned: 1}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(t)
			q := b.queue(b.config.HTTPClient)
			id := test.make(b, q)
			before := b.etag(id)
			if got := b.sweep(q); got != test.want {
				t.Errorf("the sweep reports %+v, want %+v", got, test.want)
			}
			if wrote := b.etag(id) != before; wrote != test.wrote {
				t.Errorf("the job was written: %t, want %t", wrote, test.wrote)
			}
		})
	}
}

// Another writes a job between the sweep's look at it and its repair: that write
// has fenced the marker, and nothing is left to repair.
func TestAJobThatAnotherWritesWhileItIsPutRightIsLeftAlone(t *testing.T) {
	for _, test := range []struct {
		name  string
		stale bool // the marker is one that the job does not name
	}{{"its own marker, which is early", false}, {"a stale one", true}} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(t)
			q := b.queue(b.config.HTTPClient)
			b.enqueue(q, request("x", 1))
			job := b.claim(q)
			marker := b.keys(duePrefix)
			if test.stale {
				b.clock.Advance(archiveLease)
				first := job
				job = b.claim(q)
				marker = []string{b.stray(q, first)}
				b.clock.Advance(2 * grace)
			} else {
				b.clock.Advance(time.Minute)
				b.must(second(q.Renew(t.Context(), job.ID, job.Lease.ID)))
				b.clock.Advance(archiveLease - time.Minute)
			}
			left := ""
			b.sweep(b.queue(&meeting{over: b.config.HTTPClient, first: func() {
				b.must(second(q.Renew(t.Context(), job.ID, job.Lease.ID)))
				left = b.etag(job.ID)
			}}))
			if left == "" || b.etag(job.ID) != left {
				t.Error("the sweep wrote the job again")
			}
			if keys := b.keys(duePrefix); len(keys) != 1 || slices.Contains(keys, marker[0]) == test.stale {
				t.Errorf("its markers are %v", keys)
			}
			b.clock.Advance(archiveLease)
			if got := b.claim(q); got.ID != job.ID {
				t.Error("the job has no marker")
			}
		})
	}
}

// A marker without a job that goes away while somebody looks at it.
func TestAMarkerThatAnotherClearedFirstFailsNobody(t *testing.T) {
	for name, pass := range map[string]func(*Queue) error{
		"claim": func(q *Queue) error {
			_, err := q.Claim(t.Context(), core.ArchiveClaim{Owner: "w", Max: 1})
			return err
		},
		"sweep": func(q *Queue) error { _, err := q.Sweep(t.Context()); return err },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			q := b.queue(b.config.HTTPClient)
			job := core.NewArchiveJob(request("x", 1), q.now()).Claimed("w", "l", time.Second, q.now())
			key := b.stray(q, job)
			b.clock.Advance(2 * grace)
			if err := pass(b.meets(sends(http.MethodGet, key), func() { b.delete(key) })); err != nil {
				t.Error(err)
			}
		})
	}
}

// Only the marker of the very enqueue that a document tells of is one to finish.
func TestAMarkerThatHoldsAnotherStatesDocumentBringsNothingBack(t *testing.T) {
	for name, change := range map[string]func(*core.ArchiveJob){
		"as it was":                 func(*core.ArchiveJob) {},
		"enqueued at another time":  func(j *core.ArchiveJob) { j.EnqueuedAt = j.EnqueuedAt.Add(-time.Hour) },
		"claimable at another time": func(j *core.ArchiveJob) { j.NextAttemptAt = j.NextAttemptAt.Add(-time.Hour) },
		"dead":                      func(j *core.ArchiveJob) { j.Status = core.ArchiveFailed },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			q := b.queue(b.config.HTTPClient)
			job := core.NewArchiveJob(request("x", 1), q.now())
			m := markerOf(job, newNonce(q.ids))
			change(&job)
			b.put(m.key, core.EncodeArchiveJob(job))
			b.clock.Advance(2 * grace)
			out, err := q.Claim(t.Context(), core.ArchiveClaim{Owner: "w", Max: 1})
			if want := name == "as it was"; err != nil || (len(out.Jobs) == 1) != want {
				t.Errorf("claimed %v, %v", out.Jobs, err)
			} else if left := b.keys(""); !want && len(left) != 0 {
				t.Errorf("left are %v", left)
			}
		})
	}
}

// Counting reads the jobs of lapsed leases and of several markers, and no others.
func TestCountingReadsOnlyTheJobsThatItHasTo(t *testing.T) {
	b := newEmbedded(t)
	c := costs{b, b.queue(b.config.HTTPClient)}
	b.deadLetter(c.q, request("dead", 1))
	b.done(c.q, request("done", 1))
	for i := range 3 {
		b.enqueue(c.q, request(fmt.Sprint("leased", i), 1))
		b.claim(c.q)
	}
	reads := func(operation func(context.Context) error) int {
		return c.of(operation).ByOp["GetObject"].Requests - 1 // the roll-up's
	}
	stats := func(ctx context.Context) error { _, err := c.q.Stats(ctx); return err }
	sweep := func(ctx context.Context) error { _, err := c.q.Sweep(ctx); return err }
	if s, w := reads(stats), reads(sweep); s != 0 || w != 0 {
		t.Errorf("with live leases the count read %d jobs and the sweep %d", s, w)
	}
	for i := range 3 {
		b.enqueue(c.q, request(fmt.Sprint("ready", i), 1))
	}
	if s, w := reads(stats), reads(sweep); s != 0 || w != 0 {
		t.Errorf("with ready jobs the count read %d jobs and the sweep %d", s, w)
	}
}

// A job that the roll-up holds is not counted by its stale markers again, and one
// that is claimable is told though it has several.
func TestAJobWithSeveralMarkersIsCountedAsWhatItIs(t *testing.T) {
	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	done := b.done(q, request("done", 1))
	b.clock.Advance(2 * settleMargin)
	if counted := b.sweep(q).Counted; counted != 1 {
		t.Fatalf("%d jobs counted", counted)
	}
	stale := done
	stale.Status, stale.Result = core.ArchiveReady, nil
	stale.NextAttemptAt = q.now().Add(time.Hour)
	b.stray(q, stale)
	b.stray(q, stale)
	if got := b.stats(q); got.Done != 1 || got.Completed != 1 || got.Total() != 1 || got.Claimable {
		t.Errorf("a counted job with stale markers: %+v", got)
	}
	ready := b.enqueue(q, request("ready", 1))
	b.stray(q, ready)
	if got := b.stats(q); got.Ready != 1 || !got.Claimable {
		t.Errorf("a ready job with two markers: %+v", got)
	}
}

// A job that cannot be read for now is not one that is not there.
func TestAJobThatCannotBeReadForNowIsNotLeftOut(t *testing.T) {
	b := newEmbedded(t)
	q := b.queue(b.config.HTTPClient)
	b.enqueue(q, request("x", 1))
	b.claim(q)
	b.clock.Advance(archiveLease)
	b.aws.Faults().Add(fakeaws.Rule{Op: "GetObject", Key: "jobs/*", Action: fakeaws.Error(503, "ServiceUnavailable")})
	for name, err := range map[string]error{
		"list":          second(q.List(t.Context(), core.ArchiveQuery{Limit: 10})),
		"stats":         second(q.Stats(t.Context())),
		"has claimable": second(q.HasClaimable(t.Context())),
		"claim":         second(q.Claim(t.Context(), core.ArchiveClaim{Owner: "w", Max: 1})),
		"sweep":         second(q.Sweep(t.Context())),
		"export":        second(q.Export(t.Context(), func(string, []byte) error { return nil })),
	} {
		if core.CodeOf(err) != core.CodeUnavailable {
			t.Errorf("%s answers %v", name, err)
		}
	}
}

// Metadata in which one thing is not ours is not ours at all: the job is one that
// was copied by hand, and works as such.
func TestADocumentWithMetadataThatIsNotOursWorksAsACopy(t *testing.T) {
	for name, change := range map[string]func(map[string]string){
		"none":                       func(m map[string]string) { clear(m) },
		"a creator that is no write": func(m map[string]string) { m[metaCreated] = "somebody" },
		"a marker that is none":      func(m map[string]string) { m[metaMarker] = "somewhere" },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			q := b.queue(b.config.HTTPClient)
			job := core.NewArchiveJob(request("x", 1), q.now())
			writeID := newNonce(q.ids)
			meta := stamp{writes: []string{writeID}, created: writeID, marker: markerOf(job, writeID).key}.metadata()
			change(meta)
			_, err := b.s3.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &b.bucket, Key: aws.String(jobKey(job.ID)),
				Metadata: meta, Body: bytes.NewReader(core.EncodeArchiveJob(job))})
			b.must(err)
			if copied, err := q.Reindex(t.Context()); err != nil || copied.Jobs != 1 {
				t.Fatalf("indexed %+v, %v", copied, err)
			}
			out := q.Enqueue(t.Context(), []core.ArchiveRequest{request("x", 2)})[0]
			if out.Err != nil || !slices.Equal(out.Superseded, []string{job.ID}) {
				t.Errorf("a later observation retired %v, %v", out.Superseded, out.Err)
			}
		})
	}
}

// A document is bounded whatever its last bytes are, and a larger one is not read
// to its end.
func TestADocumentOverItsBoundIsDamagedAndNotReadToItsEnd(t *testing.T) {
	for _, test := range []struct {
		size int
		want core.Code
	}{
		{core.MaxArchiveDocumentBytes, ""},
		{core.MaxArchiveDocumentBytes + 1, core.CodeQueueJobDamaged},
		{4 * core.MaxArchiveDocumentBytes, core.CodeQueueJobDamaged},
	} {
		b := newBed(t)
		counted := &countedBodies{over: b.config.HTTPClient}
		job := core.NewArchiveJob(request("x", 1), core.InstantOf(b.clock.Now()))
		document := core.EncodeArchiveJob(job)
		b.put(jobKey(job.ID), append(document, bytes.Repeat([]byte(" "), test.size-len(document))...))
		_, err := b.queue(counted).Get(t.Context(), job.ID)
		if core.CodeOf(err) != test.want {
			t.Errorf("%d bytes: %v", test.size, err)
		}
		if most := int64(2 * core.MaxArchiveDocumentBytes); counted.read > most {
			t.Errorf("of %d bytes it read %d", test.size, counted.read)
		}
	}
}

// countedBodies counts what is read of the answers.
type countedBodies struct {
	over aws.HTTPClient
	read int64
}

func (c *countedBodies) Do(r *http.Request) (*http.Response, error) {
	resp, err := c.over.Do(r)
	if err == nil {
		resp.Body = countedBody{resp.Body, c}
	}
	return resp, err
}

type countedBody struct {
	io.ReadCloser
	by *countedBodies
}

func (c countedBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.by.read += int64(n)
	return n, err
}

// The source mark of an enqueue that has not come to its job yet stands for an
// hour, whoever meets it.
func TestASourceMarkWithoutAJobIsClearedAfterAnHour(t *testing.T) {
	for _, test := range []struct {
		age  time.Duration
		kept bool
	}{{0, true}, {abandonedAfter, true}, {abandonedAfter + time.Millisecond, false}} {
		b := newBed(t)
		q := b.queue(b.config.HTTPClient)
		mark := sourceMarkOf(core.NewArchiveJob(request("x", 1), q.now()), newNonce(q.ids)).key
		b.put(mark, nil)
		b.clock.Advance(test.age)
		b.enqueue(q, request("x", 2))
		if kept := slices.Contains(b.keys(sourcePrefix), mark); kept != test.kept {
			t.Errorf("after %s the mark is kept: %t", test.age, kept)
		}
	}
}

func TestADamagedDocumentThatIsGoneIsHealed(t *testing.T) {
	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	id := strings.Repeat("d", 64)
	b.put(jobKey(id), []byte("{"))
	if _, err := q.Reindex(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := b.sweep(q); got.Healed != 0 || len(b.stats(q).Damaged) != 1 {
		t.Fatalf("while it is there: %+v", got)
	}
	b.delete(jobKey(id))
	if got := b.sweep(q); got.Healed != 1 || len(b.stats(q).Damaged) != 0 {
		t.Errorf("when it is gone: %+v", got)
	}
}

// One run of the sweep looks at so many damaged documents and done markers, and
// says that there are more.
func TestTheSweepSaysThatThereIsMore(t *testing.T) {
	for _, n := range []int{sweepBound, sweepBound + 1} {
		q := newBed(t).queue(nil)
		s := sweep{queue: q}
		for i := range n {
			s.census.damaged = append(s.census.damaged, fmt.Sprint("no-jobs-", i))
		}
		if err := s.healAll(t.Context()); err != nil || s.more != (n > sweepBound) {
			t.Errorf("%d damaged documents: more %t, %v", n, s.more, err)
		}
	}

	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	const n = sweepBound + 1
	errs := make([]error, n)
	each(n, func(i int) {
		job := core.NewArchiveJob(request(fmt.Sprint(i), 1), q.now())
		job.Status = core.ArchiveDone
		errs[i] = q.announce(t.Context(), markerOf(job, rawNonce).key, nil)
	})
	for _, err := range errs {
		b.must(err)
	}
	b.clock.Advance(2 * settleMargin)
	for _, more := range []bool{true, false} {
		if got := b.sweep(q); got.More != more {
			t.Errorf("the sweep reports %+v", got)
		}
	}
}

// The roll-up passes a done job when it is settleMargin old and one millisecond.
func TestADoneJobIsCountedWhenItIsOldEnough(t *testing.T) {
	for _, test := range []struct {
		age     time.Duration
		counted int
	}{{settleMargin - time.Millisecond, 0}, {settleMargin, 0}, {settleMargin + time.Millisecond, 1}} {
		b := newBed(t)
		q := b.queue(b.config.HTTPClient)
		b.done(q, request("x", 1))
		b.clock.Advance(test.age)
		if got := b.sweep(q); got != (core.ArchiveSweep{Counted: test.counted}) {
			t.Errorf("after %s: %+v", test.age, got)
		}
	}
}

// The roll-up is written by whoever comes, a sweep, an import or a re-index.
func TestWhatComesBetweenTheReadingAndTheWritingOfTheRollUpFailsNobody(t *testing.T) {
	empty := func(func(string, []byte) bool) {}
	passes := map[string]func(*Queue) error{
		"sweep":    func(q *Queue) error { _, err := q.Sweep(t.Context()); return err },
		"re-index": func(q *Queue) error { _, err := q.Reindex(t.Context()); return err },
		"import":   func(q *Queue) error { _, err := q.Import(t.Context(), empty); return err },
	}
	for name, pass := range passes {
		for other, act := range map[string]func(*bed, *Queue){
			"a sweep":    func(b *bed, q *Queue) { b.sweep(q) },
			"an import":  func(b *bed, q *Queue) { b.must(passes["import"](q)) },
			"a deletion": func(b *bed, _ *Queue) { b.delete(rollupKey) },
			"a conflict": nil,
		} {
			t.Run(name+" and "+other, func(t *testing.T) {
				b := newEmbedded(t)
				q := b.queue(b.config.HTTPClient)
				b.done(q, request("x", 1))
				b.clock.Advance(2 * settleMargin)
				b.sweep(q)
				b.done(q, request("y", 1))
				b.clock.Advance(2 * settleMargin)
				own := b.meets(sends(http.MethodPut, rollupKey), func() { act(b, q) })
				if act == nil {
					own = q
					b.aws.Faults().Add(fakeaws.Rule{Op: "PutObject", Key: rollupKey, Count: 1, Action: fakeaws.Error(409, "ConditionalRequestConflict")})
				}
				b.must(pass(own))
				// Whatever came first, the next sweep counts each job once.
				b.sweep(q)
				if got := b.stats(q); got.Done != 2 || got.Completed != 2 {
					t.Errorf("%+v", got)
				}
			})
		}
	}
}

// An import comes between a sweep's reading and its writing of the roll-up: what
// the import left there stands.
func TestASweepDoesNotOverwriteWhatAnImportToldIt(t *testing.T) {
	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	b.done(q, request("x", 1))
	b.clock.Advance(2 * settleMargin)
	b.sweep(q)
	b.done(q, request("y", 1))
	b.clock.Advance(2 * settleMargin)
	given := files{}
	for n := range 2 {
		name, content := jobFile(core.NewArchiveJob(request("imported", n), q.now()))
		given[name] = content
	}
	b.sweep(b.meets(sends(http.MethodPut, rollupKey), func() { _, err := q.Import(t.Context(), given.all); b.must(err) }))
	if retired, err := q.SettleBacklog(t.Context()); err != nil || retired != 1 {
		t.Errorf("%d of the imported jobs were retired, %v", retired, err)
	}
}
