package s3queue

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"drawbridge/core"
	"drawbridge/localstack/fakeaws"
)

// fill puts done jobs into the bucket, long enough ago for the roll-up.
func (b *bed) fill(n int) {
	b.t.Helper()
	at := b.clock.Now().Add(-24 * time.Hour)
	q := b.queue(b.config.HTTPClient)
	errs := make([]error, n)
	each(n, func(i int) {
		errs[i] = q.putDone(b.t.Context(), i, core.InstantOf(at).Add(time.Duration(i)*time.Millisecond))
	})
	for _, err := range errs {
		if err != nil {
			b.t.Fatal(err)
		}
	}
	for {
		s, err := q.Sweep(b.t.Context())
		if err != nil {
			b.t.Fatal(err)
		}
		if !s.More {
			return
		}
	}
}

// putDone writes what a job leaves that was enqueued and completed at once.
func (q *Queue) putDone(ctx context.Context, i int, at core.Instant) error {
	job := core.NewArchiveJob(request(fmt.Sprint("done", i), 1), at)
	job = job.Claimed("w", "lease", time.Minute, at)
	job, err := job.Completed("lease", core.ArchiveResult{ArchiveID: "a", CiphertextSHA256: "c", Bytes: 1}, at)
	if err != nil {
		return err
	}
	writeID := newNonce(q.ids)
	own := record{job: job, stamp: stamp{writes: []string{writeID}, created: writeID, marker: markerOf(job, writeID).key}}
	for _, key := range []string{own.source(), own.stamp.marker} {
		if err := q.announce(ctx, key, nil); err != nil {
			return err
		}
	}
	_, err = q.create(ctx, content(core.EncodeArchiveJob(job), writeID), job.ID, own.stamp)
	return err
}

func request(file string, n int) core.ArchiveRequest {
	return core.ArchiveRequest{ArchiveObservation: core.ArchiveObservation{Agent: "claude", SourcePath: "/t/" + file,
		SourceBytes: int64(n), SourceModifiedAt: core.Instant(1_750_000_000_000 + int64(n))}, Event: "stop"}
}

// costs is a queue whose requests are counted.
type costs struct {
	*bed
	q *Queue
}

// of counts the requests of one operation.
func (c costs) of(operation func(context.Context) error) fakeaws.Cost {
	c.t.Helper()
	var err error
	cost := c.aws.Measure(c.t.Context(), func(ctx context.Context) { err = operation(ctx) })
	if err != nil {
		c.t.Fatal(err)
	}
	return cost
}

func (c costs) enqueue(ctx context.Context, requests ...core.ArchiveRequest) error {
	for _, out := range c.q.Enqueue(ctx, requests) {
		if out.Err != nil {
			return out.Err
		}
	}
	return nil
}

func (c costs) claim(max int) []core.ArchiveJob {
	c.t.Helper()
	out, err := c.q.Claim(c.t.Context(), core.ArchiveClaim{Owner: "w", Max: max})
	if err != nil || len(out.Jobs) != max {
		c.t.Fatalf("claimed %d jobs, want %d: %v", len(out.Jobs), max, err)
	}
	return out.Jobs
}

func doneWith(j core.ArchiveJob) core.ArchiveCompletion {
	return core.ArchiveCompletion{ID: j.ID, LeaseID: j.Lease.ID,
		Result: core.ArchiveResult{ArchiveID: "a", CiphertextSHA256: "c", Bytes: 1}}
}

// The budgets of the specification, and what else the queue offers. The figures
// are the same with nothing done before and with 100,000 jobs done.
func TestNoOperationCostsMoreThanItsBudgetHoweverManyJobsAreDone(t *testing.T) {
	sizes := []int{0, 1000}
	if long() {
		sizes = append(sizes, 100_000)
	}
	for _, size := range sizes {
		t.Run(fmt.Sprint(size, " done jobs"), func(t *testing.T) {
			b := newEmbedded(t)
			c := costs{b, b.queue(b.config.HTTPClient)}
			b.fill(size)
			testCosts(t, c, size)
		})
	}
}

func testCosts(t *testing.T, c costs, done int) {
	var job core.ArchiveJob
	// prepare makes the state that the operation begins with.
	for _, op := range []struct {
		name     string
		prepare  func(ctx context.Context) error
		operate  func(ctx context.Context) error
		requests int
	}{
		{"enqueue a new job", nil,
			func(ctx context.Context) error { return c.enqueue(ctx, request("x", 1)) }, 5},
		{"enqueue it again", nil,
			func(ctx context.Context) error { return c.enqueue(ctx, request("x", 1)) }, 2},
		{"enqueue the next state, which retires it", nil,
			func(ctx context.Context) error { return c.enqueue(ctx, request("x", 2)) }, 5 + 4},
		{"enqueue a late state, which the next settles", nil,
			func(ctx context.Context) error { return c.enqueue(ctx, request("x", 0)) }, 5 + 4},
		{"has claimable", nil,
			func(ctx context.Context) error { _, err := c.q.HasClaimable(ctx); return err }, 2},
		{"claim", nil,
			func(ctx context.Context) error { job = c.claimWith(ctx, 1)[0]; return nil }, 5},
		{"claim nothing", nil,
			func(ctx context.Context) error { c.claimWith(ctx, 0); return nil }, 1},
		{"renew", nil,
			func(ctx context.Context) error { _, err := c.q.Renew(ctx, job.ID, job.Lease.ID); return err }, 2},
		{"progress", nil, func(ctx context.Context) error {
			_, err := c.q.Progress(ctx, job.ID, job.Lease.ID, core.ArchiveProgress{Bytes: 1, Of: 2})
			return err
		}, 2},
		{"complete", nil,
			func(ctx context.Context) error { _, err := c.q.Complete(ctx, doneWith(job)); return err }, 5},
		{"repeat the completion", nil,
			func(ctx context.Context) error { _, err := c.q.Complete(ctx, doneWith(job)); return err }, 3},
		{"enqueue a settled job", nil,
			func(ctx context.Context) error { return c.enqueue(ctx, request("x", 2)) }, 1},
		{"enqueue a superseded job", nil,
			func(ctx context.Context) error { return c.enqueue(ctx, request("x", 1)) }, 1},
		{"enqueue a new state of an archived file", nil,
			func(ctx context.Context) error { return c.enqueue(ctx, request("x", 3)) }, 5},
		{"the same by a process that has not seen it archived",
			func(context.Context) error { c.q = c.queue(c.config.HTTPClient); return nil },
			func(ctx context.Context) error { return c.enqueue(ctx, request("x", 4)) }, 5 + 1 + 4},
		{"fail", func(ctx context.Context) error { job = c.claimWith(ctx, 1)[0]; return nil },
			func(ctx context.Context) error {
				_, err := c.q.Fail(ctx, job.ID, job.Lease.ID, core.ArchiveFailure{Code: "io"})
				return err
			}, 4},
		{"retry", nil,
			func(ctx context.Context) error { _, err := c.q.Retry(ctx, job.ID); return err }, 4},
		{"release", func(ctx context.Context) error { job = c.claimWith(ctx, 1)[0]; return nil },
			func(ctx context.Context) error { _, err := c.q.Release(ctx, job.ID, job.Lease.ID, nil); return err }, 4},
		{"complete and cover one job", func(ctx context.Context) error {
			job = c.claimWith(ctx, 1)[0]
			return c.enqueue(ctx, request("x", 5))
		}, func(ctx context.Context) error {
			d := doneWith(job)
			d.Snapshot = core.Some(core.ArchiveSnapshot{Bytes: 5, ModifiedAt: request("x", 5).SourceModifiedAt})
			_, err := c.q.Complete(ctx, d)
			return err
		}, 5 + 4},
		{"promote", func(ctx context.Context) error { return c.enqueue(ctx, request("y", 1)) },
			func(ctx context.Context) error {
				r := request("y", 1)
				r.Event = core.ArchiveManual
				return c.enqueue(ctx, r)
			}, 3},
		{"get", nil,
			func(ctx context.Context) error { _, err := c.q.Get(ctx, job.ID); return err }, 1},
		{"stats", nil,
			func(ctx context.Context) error { _, err := c.q.Stats(ctx); return err }, 3},
		{"remove", nil,
			func(ctx context.Context) error { _, err := c.q.Remove(ctx, request("y", 1).JobID()); return err }, 5},
		{"claim ten", func(ctx context.Context) error {
			for i := range 10 {
				if err := c.enqueue(ctx, request(fmt.Sprint("z", i), 1)); err != nil {
					return err
				}
			}
			return nil
		}, func(ctx context.Context) error { c.claimWith(ctx, 10); return nil }, 2 + 3*10},
		{"an idle sweep", nil,
			func(ctx context.Context) error { _, err := c.q.Sweep(ctx); return err }, 3},
	} {
		if op.prepare != nil {
			c.of(op.prepare)
		}
		// Held back a little, requests that may run at once do. How many rounds
		// that makes is told and not judged: it depends on the machine.
		hold := c.aws.Faults().Add(fakeaws.Rule{Action: fakeaws.Delay(5 * time.Millisecond)})
		cost := c.of(op.operate)
		hold.Remove()
		t.Logf("%-45s %3d requests %2d rounds", op.name, cost.Requests, cost.Rounds)
		if cost.Requests > op.requests {
			t.Errorf("%s with %d done jobs: %d requests, want at most %d: %v", op.name, done, cost.Requests, op.requests, cost.ByOp)
		}
	}
}

func (c costs) claimWith(ctx context.Context, want int) []core.ArchiveJob {
	c.t.Helper()
	out, err := c.q.Claim(ctx, core.ArchiveClaim{Owner: "w", Max: max(want, 1)})
	if err != nil || len(out.Jobs) != want {
		c.t.Fatalf("claimed %d jobs, want %d: %v", len(out.Jobs), want, err)
	}
	return out.Jobs
}

func TestABatchOfSettledJobsReadsEachOnceAndWritesNothing(t *testing.T) {
	b := newEmbedded(t)
	c := costs{b, b.queue(b.config.HTTPClient)}
	b.fill(core.MaxArchiveBatch)
	var requests []core.ArchiveRequest
	for i := range core.MaxArchiveBatch {
		requests = append(requests, request(fmt.Sprint("done", i), 1))
	}
	cost := c.of(func(ctx context.Context) error { return c.enqueue(ctx, requests...) })
	if cost.Requests != core.MaxArchiveBatch || cost.ByOp["GetObject"].Requests != cost.Requests {
		t.Fatalf("a settled batch cost %d requests: %v", cost.Requests, cost.ByOp)
	}
}

func TestAClaimDoesNotGrowWithTheJobsInAnyState(t *testing.T) {
	b := newEmbedded(t)
	c := costs{b, b.queue(b.config.HTTPClient)}
	var requests []core.ArchiveRequest
	for i := range 300 {
		requests = append(requests, request(fmt.Sprint("r", i), 1))
	}
	c.of(func(ctx context.Context) error { return c.enqueue(ctx, requests...) })
	for range 20 { // 200 leased; 50 of those fail for a while, 100 stay ready
		for i, j := range c.claim(10) {
			if i%4 == 0 {
				if _, err := c.q.Fail(t.Context(), j.ID, j.Lease.ID, core.ArchiveFailure{Code: "io"}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	cost := c.of(func(ctx context.Context) error { c.claimWith(ctx, 1); return nil })
	if cost.Requests > 5 {
		t.Fatalf("the claim cost %d requests: %v", cost.Requests, cost.ByOp)
	}
}

func BenchmarkQueue(b *testing.B) {
	server, err := fakeaws.Open(fakeaws.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	q, err := benchQueue(b.Context(), server)
	if err != nil {
		b.Fatal(err)
	}
	c := benchCosts{server}
	n := 0
	next := func() core.ArchiveRequest { n++; return request(fmt.Sprint("b", n), 1) }
	b.Run("enqueue", func(b *testing.B) {
		c.run(b, func(ctx context.Context) error { return q.Enqueue(ctx, []core.ArchiveRequest{next()})[0].Err })
	})
	var jobs []core.ArchiveJob
	b.Run("claim", func(b *testing.B) {
		for range b.N { // as many as are claimed below
			if err := q.Enqueue(b.Context(), []core.ArchiveRequest{next()})[0].Err; err != nil {
				b.Fatal(err)
			}
		}
		jobs = jobs[:0]
		b.ResetTimer()
		c.run(b, func(ctx context.Context) error {
			out, err := q.Claim(ctx, core.ArchiveClaim{Owner: "w", Max: 1})
			jobs = append(jobs, out.Jobs...)
			return err
		})
	})
	b.Run("renew", func(b *testing.B) {
		c.run(b, func(ctx context.Context) error { _, err := q.Renew(ctx, jobs[0].ID, jobs[0].Lease.ID); return err })
	})
	b.Run("complete", func(b *testing.B) {
		for range b.N {
			if err := q.Enqueue(b.Context(), []core.ArchiveRequest{next()})[0].Err; err != nil {
				b.Fatal(err)
			}
		}
		var held []core.ArchiveJob
		for len(held) < b.N {
			out, err := q.Claim(b.Context(), core.ArchiveClaim{Owner: "w", Max: 10})
			if err != nil {
				b.Fatal(err)
			}
			held = append(held, out.Jobs...)
		}
		b.ResetTimer()
		c.run(b, func(ctx context.Context) error {
			_, err := q.Complete(ctx, doneWith(held[0]))
			held = held[1:]
			return err
		})
	})
	b.Run("stats", func(b *testing.B) {
		c.run(b, func(ctx context.Context) error { _, err := q.Stats(ctx); return err })
	})
}

func benchQueue(ctx context.Context, server *fakeaws.Server) (*Queue, error) {
	client := s3.NewFromConfig(server.Config(), func(o *s3.Options) { o.UsePathStyle = true })
	_, err := client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String("queue")})
	return New(Config{S3: client, Bucket: "queue", Settings: core.DefaultArchiveSettings(),
		Clock: core.SystemClock{}, IDs: core.NewIDs(core.SystemClock{}, rand.Reader)}), err
}

type benchCosts struct{ server *fakeaws.Server }

// run reports requests beside time.
func (c benchCosts) run(b *testing.B, operate func(context.Context) error) {
	total := 0
	for range b.N {
		var err error
		cost := c.server.Measure(b.Context(), func(ctx context.Context) { err = operate(ctx) })
		if err != nil {
			b.Fatal(err)
		}
		total += cost.Requests
	}
	b.ReportMetric(float64(total)/float64(b.N), "requests/op")
}
