package s3queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"drawbridge/core"
)

// abandonedAfter is how old a source mark that its job does not name must be
// before it is taken for the remains of an enqueue that died.
const abandonedAfter = time.Hour

// siblings lists the other jobs of a source, in the order of their
// observations: all that are not done, and the last completed one.
func (q *Queue) siblings(ctx context.Context, source, except string) ([]sourceMark, error) {
	var marks []sourceMark
	err := q.walk(ctx, sourcePrefix+source+"/", "", func(key string) bool {
		if m, ok := parseSourceMark(key); ok && m.id != except {
			marks = append(marks, m)
		}
		return true
	})
	return marks, err
}

// look reads the job that a source mark lists; ok is false when the mark proves
// nothing. It notes for clearing the marks that nothing will need.
func (q *Queue) look(ctx context.Context, m sourceMark, l *litter) (r record, ok bool, err error) {
	r, err = q.read(ctx, m.id)
	var damaged *damagedDocument
	switch {
	case errors.As(err, &damaged):
		return r, false, q.reportDamage(ctx, m.id)
	case err != nil && !errors.Is(err, errAbsent):
		return r, false, err
	}
	if r.stamp.created != m.nonce && nonceTime(m.nonce) < q.now().Add(-abandonedAfter) {
		l.add(m.key)
	}
	if err != nil {
		return r, false, nil
	}
	if kindOf(r.job) == kindCompleted {
		q.completed.add(m.id)
	}
	if r.job.Status == core.ArchiveDone && r.job.Result == nil {
		l.add(m.key)
	}
	return r, true, nil
}

// supersede settles the source of an enqueued job: the job itself when a later
// observation is at hand, and every earlier one that nobody works on. It runs
// after the job was created, so that of two enqueues at once at least one sees
// the other's job. It returns the job as it then is and the ids it retired.
func (q *Queue) supersede(ctx context.Context, own record, l *litter) (record, []string, error) {
	marks, err := q.siblings(ctx, own.job.SourceID(), own.job.ID)
	if err != nil {
		return own, nil, err
	}
	earlier, _ := slices.BinarySearchFunc(marks, own.job, func(m sourceMark, j core.ArchiveJob) int {
		if m.observation().ObservedBefore(j) {
			return -1
		}
		return 1
	})
	winner := own.job.ID
	for _, m := range slices.Backward(marks[earlier:]) {
		archives, err := q.archives(ctx, m, l)
		if err != nil {
			return own, nil, err
		}
		if archives {
			winner = m.id
			break
		}
	}
	if winner != own.job.ID {
		if own, _, err = q.retire(ctx, own, l, superseding(winner)); err != nil {
			return own, nil, err
		}
	}
	retired, err := q.retireAll(ctx, marks[:earlier], l, superseding(winner))
	return own, retired, err
}

// archives tells whether the marked job has archived its observation or still
// will.
func (q *Queue) archives(ctx context.Context, m sourceMark, l *litter) (bool, error) {
	if q.completed.has(m.id) {
		return true, nil
	}
	r, ok, err := q.look(ctx, m, l)
	return ok && r.job.Archives(), err
}

// cover settles the jobs of the source whose observations the completed job's
// worker has archived along with it, and forgets the completed ones before it.
func (q *Queue) cover(ctx context.Context, own record, read core.Opt[core.ArchiveSnapshot], l *litter) ([]string, error) {
	marks, err := q.siblings(ctx, own.job.SourceID(), own.job.ID)
	if err != nil {
		return nil, err
	}
	snapshot := core.ArchiveSnapshot{Bytes: own.job.SourceBytes, ModifiedAt: own.job.SourceModifiedAt}
	if read.Set {
		snapshot = read.Value
	}
	var covered []sourceMark
	for _, m := range marks {
		if m.observation().CoveredBy(snapshot) {
			covered = append(covered, m)
		}
	}
	ids, err := q.retireAll(ctx, covered, l, func(j core.ArchiveJob, now core.Instant) core.ArchiveJob {
		return j.Covered(own.job.ID, now)
	})
	for _, m := range covered {
		if q.completed.has(m.id) && m.observation().ObservedBefore(own.job) {
			l.add(m.key)
		}
	}
	return ids, err
}

// settlement is how a job becomes done without a result.
type settlement func(j core.ArchiveJob, now core.Instant) core.ArchiveJob

func superseding(winner string) settlement {
	return func(j core.ArchiveJob, now core.Instant) core.ArchiveJob { return j.Superseded(winner, now) }
}

// retireAll retires the marked jobs that nobody works on and returns their ids,
// sorted.
func (q *Queue) retireAll(ctx context.Context, marks []sourceMark, l *litter, settle settlement) ([]string, error) {
	var mu sync.Mutex
	retired := []string{}
	var failures []error
	each(len(marks), func(i int) {
		if q.completed.has(marks[i].id) {
			return
		}
		r, ok, err := q.look(ctx, marks[i], l)
		if err == nil && ok {
			_, ok, err = q.retire(ctx, r, l, settle)
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failures = append(failures, err)
		} else if ok {
			retired = append(retired, marks[i].id)
		}
	})
	slices.Sort(retired)
	return retired, errors.Join(failures...)
}

// retire settles a job if nobody works on it; retired is false when it was left
// alone.
func (q *Queue) retire(ctx context.Context, r record, l *litter, settle settlement) (after record, retired bool, err error) {
	after, err = q.update(ctx, r, l, func(r record, now core.Instant) (change, error) {
		if !r.job.Retirable(now) {
			return change{}, errUnchanged
		}
		return change{job: settle(r.job, now)}, nil
	})
	switch {
	case errors.Is(err, errUnchanged), core.CodeOf(err) == core.CodeQueueJobNotFound:
		return after, false, nil
	case err != nil:
		return after, false, err
	}
	l.add(after.source())
	return after, true, nil
}
