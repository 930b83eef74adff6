package s3queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"drawbridge/core"
)

// Config is what a queue is made of. S3, Bucket, Settings, Clock and IDs are
// required.
type Config struct {
	S3       S3API
	Bucket   string
	Settings core.ArchiveSettings
	Clock    core.Clock
	IDs      core.IDs
	// Sleep waits between tries; nil really does. Random gives numbers in [0,1)
	// for the jitter; nil takes the process's source. Tests set both.
	Sleep  func(context.Context, time.Duration) error
	Random func() float64
}

// Queue is the archive queue in one bucket. It is safe for concurrent use, by
// any number of processes.
type Queue struct {
	s3       S3API
	bucket   string
	settings core.ArchiveSettings
	clock    core.Clock
	ids      core.IDs
	sleep    func(context.Context, time.Duration) error
	random   func() float64

	completed settledIDs
	crowd     crowd
}

var _ core.ArchiveQueue = (*Queue)(nil)

// New returns the queue of a bucket. It makes no request.
func New(c Config) *Queue {
	q := &Queue{s3: c.S3, bucket: c.Bucket, settings: c.Settings, clock: c.Clock, ids: c.IDs,
		sleep: c.Sleep, random: c.Random}
	if q.sleep == nil {
		q.sleep = sleep
	}
	if q.random == nil {
		q.random = rand.Float64
	}
	return q
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (q *Queue) now() core.Instant { return core.InstantOf(q.clock.Now()) }

// errUnchanged is what a decision answers to leave the job as it is.
var errUnchanged = errors.New("the job stays as it is")

// A change is what a decision wants stored.
type change struct {
	job core.ArchiveJob
	// marked tells that the marker which stands still announces the job: the
	// state stays, or its moment moved later, and an early hint may stand.
	marked bool
	// leaseID and leaseFor are those of a claim, empty otherwise.
	leaseID  string
	leaseFor time.Duration
}

// decision makes the next state of a job from the stored one. It is asked again
// whenever the job turns out to have changed.
type decision func(r record, now core.Instant) (change, error)

// update carries a decision out: against others, as often as it takes within
// the wait for contention. It returns the job as it then is; with errUnchanged
// or a refusal from the decision, as it was.
func (q *Queue) update(ctx context.Context, r record, l *litter, decide decision) (record, error) {
	p := q.patience()
	for {
		c, err := decide(r, q.now())
		if err != nil {
			return r, err
		}
		next, err := q.apply(ctx, r, c, l)
		if err == nil {
			return next, nil
		}
		if !errors.Is(err, errLost) && !errors.Is(err, errConflict) {
			return r, err
		}
		if errors.Is(err, errLost) {
			// Often that settles it, and there is nothing to wait for.
			if _, err := decide(next, q.now()); err != nil {
				return next, err
			}
		}
		if err := p.pause(ctx); err != nil {
			return r, err
		}
		if r, err = q.read(ctx, r.job.ID); err != nil {
			return r, missing(err)
		}
	}
}

// apply stores a change over exactly the record it was decided on: it announces
// the new state, replaces the document, and leaves the old state's marker to be
// cleared. errLost means that this change cannot land any more, and comes with
// the job that stands in its way; errConflict that it has not landed so far.
func (q *Queue) apply(ctx context.Context, r record, c change, l *litter) (record, error) {
	next := record{job: c.job, stamp: r.stamp.next(newNonce(q.ids))}
	writeID := next.stamp.writes[0]
	if c.leaseID != "" {
		next.stamp.lease, next.stamp.leaseFor = leaseDigest(c.leaseID), c.leaseFor
	}
	if !c.marked {
		next.stamp.marker = markerOf(c.job, writeID).key
		next.stamp.former = ""
		if c.job.Status == core.ArchiveDone {
			next.stamp.former = r.stamp.marker
		}
		if err := q.announce(ctx, next.stamp.marker, nil); err != nil {
			return r, err
		}
	}
	var err error
	if next.etag, err = q.replace(ctx, c.job, next.stamp, r.etag); err != nil {
		abandoned := next.stamp.marker
		if next, err = q.recognise(ctx, next, err); err != nil {
			if !c.marked && errors.Is(err, errLost) {
				l.add(abandoned)
			}
			return next, err
		}
	}
	if !c.marked {
		l.add(r.stamp.marker)
	}
	return next, nil
}

// recognise decides what a failed conditional write means. The answer to an
// earlier send may have been lost, so that S3 refuses the repetition of a write
// that landed: then the stored object carries the write's id. Otherwise it
// returns the job as it is stored, with errLost.
func (q *Queue) recognise(ctx context.Context, written record, failure error) (record, error) {
	unknown := core.CodeOf(failure) == core.CodeOutcomeUnknown
	if !unknown && !errors.Is(failure, errLost) && !errors.Is(failure, errConflict) && !errors.Is(failure, errAbsent) {
		return written, failure
	}
	stored, err := q.read(ctx, written.job.ID)
	switch {
	case err == nil && stored.stamp.has(written.stamp.writes[0]):
		// Others may have written since; what this write did stands.
		written.etag = stored.etag
		return written, nil
	case unknown || errors.Is(failure, errConflict):
		return written, failure
	case err != nil:
		return written, missing(err)
	}
	return stored, errLost
}

// missing turns errAbsent into the refusal that callers see.
func missing(err error) error {
	if errors.Is(err, errAbsent) {
		return core.RefuseArchiveJobNotFound()
	}
	return err
}

// find reads a job that must be there.
func (q *Queue) find(ctx context.Context, id string) (record, error) {
	if !core.IsArchiveJobID(id) {
		return record{}, core.RefuseArchiveJobNotFound()
	}
	r, err := q.read(ctx, id)
	return r, missing(err)
}
