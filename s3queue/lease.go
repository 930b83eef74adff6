package s3queue

import (
	"context"
	"errors"
	"time"

	"drawbridge/core"
)

// Renew implements core.ArchiveQueue: 2 requests. The lease's marker stays where
// it is, which is early; the claim or sweep that meets it moves it.
func (q *Queue) Renew(ctx context.Context, id, leaseID string) (core.ArchiveJob, error) {
	return q.transition(ctx, id, func(r record, now core.Instant) (change, error) {
		job, err := r.job.Renewed(leaseID, q.leaseFor(r), now)
		return change{job: job, marked: true}, err
	})
}

// Progress implements core.ArchiveQueue: 2 requests.
func (q *Queue) Progress(ctx context.Context, id, leaseID string, p core.ArchiveProgress) (core.ArchiveJob, error) {
	if err := p.Validate(); err != nil {
		return core.ArchiveJob{}, err
	}
	return q.transition(ctx, id, func(r record, now core.Instant) (change, error) {
		job, err := r.job.Progressed(leaseID, p, q.leaseFor(r), now)
		return change{job: job, marked: true}, err
	})
}

// Release implements core.ArchiveQueue: 4 requests.
func (q *Queue) Release(ctx context.Context, id, leaseID string, reason *core.ArchiveFailure) (core.ArchiveJob, error) {
	if reason != nil {
		if err := reason.Validate("reason"); err != nil {
			return core.ArchiveJob{}, err
		}
	}
	return q.transition(ctx, id, func(r record, now core.Instant) (change, error) {
		job, err := r.job.Released(leaseID, reason, now)
		return change{job: job}, err
	})
}

// Fail implements core.ArchiveQueue: 4 requests.
func (q *Queue) Fail(ctx context.Context, id, leaseID string, f core.ArchiveFailure) (core.ArchiveJob, error) {
	if err := f.Validate("error"); err != nil {
		return core.ArchiveJob{}, err
	}
	return q.transition(ctx, id, func(r record, now core.Instant) (change, error) {
		job, err := r.job.Failed(leaseID, f, q.settings, now)
		return change{job: job}, err
	})
}

// Retry implements core.ArchiveQueue: 4 requests.
func (q *Queue) Retry(ctx context.Context, id string) (core.ArchiveJob, error) {
	return q.transition(ctx, id, func(r record, now core.Instant) (change, error) {
		job, err := r.job.Retried(now)
		return change{job: job}, err
	})
}

// transition is an operation on one job and nothing else.
func (q *Queue) transition(ctx context.Context, id string, decide decision) (core.ArchiveJob, error) {
	var l litter
	r, err := q.find(ctx, id)
	if err != nil {
		return core.ArchiveJob{}, err
	}
	r, err = q.update(ctx, r, &l, decide)
	_ = q.clear(ctx, &l) // see clear
	if err != nil {
		return core.ArchiveJob{}, err
	}
	return r.job, nil
}

// leaseFor is the length that the claim asked for.
func (q *Queue) leaseFor(r record) time.Duration {
	if r.stamp.leaseFor > 0 {
		return r.stamp.leaseFor
	}
	return q.settings.Lease
}

// errReplayed tells that the same lease completed the job before.
var errReplayed = errors.New("completed before")

// Complete implements core.ArchiveQueue: 5 requests, one more for each job of
// the source that is not known to be done, and three more for each of those
// that the completion covers.
func (q *Queue) Complete(ctx context.Context, c core.ArchiveCompletion) (core.ArchiveCompleted, error) {
	if err := c.Validate(); err != nil {
		return core.ArchiveCompleted{}, err
	}
	r, err := q.find(ctx, c.ID)
	if err != nil {
		return core.ArchiveCompleted{}, err
	}
	var l litter
	r, err = q.update(ctx, r, &l, func(r record, now core.Instant) (change, error) {
		if q.completedUnder(r, c) {
			return change{}, errReplayed
		}
		job, err := r.job.Completed(c.LeaseID, c.Result, now)
		return change{job: job}, err
	})
	replayed := errors.Is(err, errReplayed)
	if err != nil && !replayed {
		_ = q.clear(ctx, &l)
		return core.ArchiveCompleted{}, err
	}
	if replayed {
		l.add(r.stamp.former)
	}
	q.completed.add(r.job.ID)
	covered, err := q.cover(ctx, r, c.Snapshot, &l)
	_ = q.clear(ctx, &l)
	if err != nil {
		return core.ArchiveCompleted{}, core.Wrap(core.CodeOutcomeUnknown,
			"the job is completed, not all that it covers is settled: repeat", err)
	}
	return core.ArchiveCompleted{Job: r.job, Superseded: covered, Replayed: replayed}, nil
}

// completedUnder tells whether the lease has completed the job with this result.
func (q *Queue) completedUnder(r record, c core.ArchiveCompletion) bool {
	return r.job.Status == core.ArchiveDone && r.job.Result != nil && r.job.Result.Same(c.Result) &&
		r.stamp.lease == leaseDigest(c.LeaseID)
}
