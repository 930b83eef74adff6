package s3queue

import (
	"context"
	"errors"

	"drawbridge/core"
)

// Enqueue implements core.ArchiveQueue. A new job costs 5 requests, one more for
// each job of its source that has to be looked at, and three more for each of
// those that it retires; a job that is done costs 1.
//
// Requests of one source are carried out in order, those of different ones at
// once.
func (q *Queue) Enqueue(ctx context.Context, requests []core.ArchiveRequest) []core.ArchiveEnqueued {
	outcomes := make([]core.ArchiveEnqueued, len(requests))
	bySource := map[string][]int{}
	var sources []string
	for i, r := range requests {
		if err := r.Validate(); err != nil {
			outcomes[i].Err = err
			continue
		}
		source := r.SourceID()
		if bySource[source] == nil {
			sources = append(sources, source)
		}
		bySource[source] = append(bySource[source], i)
	}
	each(len(sources), func(n int) {
		for _, i := range bySource[sources[n]] {
			outcomes[i] = q.enqueue(ctx, requests[i])
		}
	})
	return outcomes
}

func (q *Queue) enqueue(ctx context.Context, r core.ArchiveRequest) core.ArchiveEnqueued {
	var l litter
	defer func() { _ = q.clear(ctx, &l) }()
	own, deduped, err := q.obtain(ctx, r, &l)
	if err != nil {
		return core.ArchiveEnqueued{Err: missing(err)}
	}
	out := core.ArchiveEnqueued{Job: own.job, Deduped: deduped, Superseded: []string{}}
	if own.job.Status != core.ArchiveReady && own.job.Status != core.ArchiveLeased {
		return out // done needs nothing, failed retires nothing
	}
	own, out.Superseded, err = q.supersede(ctx, own, &l)
	if err != nil {
		return core.ArchiveEnqueued{Err: core.Wrap(core.CodeOutcomeUnknown,
			"the job is enqueued, its source is not settled: repeat", err)}
	}
	out.Job = own.job
	return out
}

// obtain returns the job of the request: the one that is there, promoted where
// the request says so, or a new one.
func (q *Queue) obtain(ctx context.Context, r core.ArchiveRequest, l *litter) (own record, deduped bool, err error) {
	for p := q.patience(); ; {
		own, err = q.read(ctx, r.JobID())
		if err == nil {
			own, err = q.promote(ctx, own, r.Event, l)
			deduped = true
		} else if errors.Is(err, errAbsent) {
			own, deduped, err = q.add(ctx, core.NewArchiveJob(r, q.now()), l)
		}
		// The job was there and then was not: an operator removed it.
		if !errors.Is(err, errAbsent) && core.CodeOf(err) != core.CodeQueueJobNotFound {
			return own, deduped, err
		}
		if err := p.pause(ctx); err != nil {
			return own, false, err
		}
	}
}

func (q *Queue) promote(ctx context.Context, own record, event string, l *litter) (record, error) {
	next, err := q.update(ctx, own, l, func(r record, now core.Instant) (change, error) {
		job, changed := r.job.Promoted(event, now)
		if !changed {
			return change{}, errUnchanged
		}
		return change{job: job, marked: true}, nil
	})
	if errors.Is(err, errUnchanged) {
		return next, nil
	}
	return next, err
}

// add creates a job: first the keys that announce it, then the document. The
// marker carries the document, so that whoever meets the marker of an enqueue
// that died in between can finish it. deduped tells that another was faster.
func (q *Queue) add(ctx context.Context, job core.ArchiveJob, l *litter) (own record, deduped bool, err error) {
	writeID := newNonce(q.ids)
	intent := core.EncodeArchiveJob(job)
	own = record{job: job, stamp: stamp{writes: []string{writeID}, created: writeID, marker: markerOf(job, writeID).key}}
	keys := []string{own.source(), own.stamp.marker}
	bodies := [][]byte{nil, intent}
	errs := make([]error, len(keys))
	each(len(keys), func(i int) { errs[i] = q.announce(ctx, keys[i], bodies[i]) })
	if err := errors.Join(errs...); err != nil {
		return own, false, err
	}
	own, err = q.establish(ctx, own)
	if err != nil {
		return own, false, err
	}
	if own.stamp.created != writeID {
		l.add(keys...)
		return own, true, nil
	}
	return own, false, nil
}

// establish creates the document of an announced job and returns the job that
// is then there: this one, or another's, as stamp.created tells. errAbsent
// means that another's was there for a moment.
func (q *Queue) establish(ctx context.Context, own record) (record, error) {
	writeID := own.stamp.created
	body := content(core.EncodeArchiveJob(own.job), writeID)
	for p := q.patience(); ; {
		etag, err := q.create(ctx, body, own.job.ID, own.stamp)
		if err == nil {
			own.etag = etag
			return own, nil
		}
		if !errors.Is(err, errLost) && !errors.Is(err, errConflict) && core.CodeOf(err) != core.CodeOutcomeUnknown {
			return own, err
		}
		stored, readErr := q.read(ctx, own.job.ID)
		if readErr == nil {
			return stored, nil
		}
		if !errors.Is(readErr, errAbsent) {
			return own, readErr
		}
		if errors.Is(err, errLost) {
			return own, errAbsent // another's, and removed since
		}
		if !errors.Is(err, errConflict) {
			return own, err
		}
		if err := p.pause(ctx); err != nil {
			return own, err
		}
	}
}
