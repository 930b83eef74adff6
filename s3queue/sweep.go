package s3queue

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"drawbridge/core"
)

const (
	// sweepBound is how many jobs one run reads for each of its purposes.
	sweepBound = 1000
	// settleMargin is how old a done marker must be before the roll-up passes
	// it: longer than a writer may take from choosing the time to writing the
	// marker, and than the clocks of two writers may differ.
	settleMargin = 10 * time.Minute
)

// Sweep implements core.ArchiveQueue. It lists the markers of all jobs that are
// not done, 1 request for each 1,000, and reads the jobs behind those that may
// need something: lapsed leases, several markers of one job, damaged documents.
// Then it counts the jobs done since its last run, with 1 request each.
//
// It is safe to run twice at once, late or never.
func (q *Queue) Sweep(ctx context.Context) (core.ArchiveSweep, error) {
	s := sweep{queue: q, census: census{byID: map[string][]marker{}}}
	if err := q.walk(ctx, openPrefix, "", s.census.add); err != nil {
		return core.ArchiveSweep{}, err
	}
	err := errors.Join(s.repairAll(ctx), s.healAll(ctx), s.rollUp(ctx))
	if s.backlog {
		var failure error
		s.retired, failure = q.SettleBacklog(ctx)
		err = errors.Join(err, failure)
	}
	return s.report(), err
}

// sweep is one run.
type sweep struct {
	queue  *Queue
	census census

	deadLettered, moved, cleaned, healed, counted atomic.Int64

	oldestLeft core.Instant
	more       bool
	backlog    bool // jobs were brought in whose sources nobody has settled
	retired    int
}

func (s *sweep) report() core.ArchiveSweep {
	r := core.ArchiveSweep{DeadLettered: int(s.deadLettered.Load()), Moved: int(s.moved.Load()),
		Cleaned: int(s.cleaned.Load()), Healed: int(s.healed.Load()), Counted: int(s.counted.Load()),
		Retired: s.retired, More: s.more}
	if s.oldestLeft != 0 {
		r.Lag = s.queue.now().Sub(s.oldestLeft)
	}
	return r
}

// suspects are the markers worth reading their job for, oldest first: those of
// leases whose moment has come, and those of a job that has several.
func (s *sweep) suspects() []marker {
	now := s.queue.now()
	var suspects []marker
	for _, marks := range s.census.byID {
		for _, m := range marks {
			if len(marks) > 1 || m.kind == kindLeased && m.at <= now {
				suspects = append(suspects, m)
			}
		}
	}
	slices.SortFunc(suspects, func(a, b marker) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.key, b.key)) })
	if len(suspects) > sweepBound {
		s.more, s.oldestLeft = true, suspects[sweepBound].at
		suspects = suspects[:sweepBound]
	}
	return suspects
}

func (s *sweep) repairAll(ctx context.Context) error {
	suspects := s.suspects()
	errs := make([]error, len(suspects))
	var l litter
	each(len(suspects), func(i int) {
		before, err := s.queue.examine(ctx, suspects[i], false, &l)
		errs[i] = err
		s.note(suspects[i], before)
	})
	s.cleaned.Add(int64(len(l.keys)) - s.moved.Load() - s.deadLettered.Load())
	return errors.Join(errors.Join(errs...), s.queue.clear(ctx, &l))
}

// note counts what became of a marker.
func (s *sweep) note(m marker, r *record) {
	switch {
	case r == nil || m.kind != kindLeased || r.stamp.marker == m.key:
	case r.job.Status == core.ArchiveFailed && r.job.LastError != nil && r.job.LastError.Code == core.ArchiveLeaseExhausted:
		s.deadLettered.Add(1)
	case r.job.Status == core.ArchiveLeased:
		s.moved.Add(1)
	}
}

// healAll looks whether damaged documents can be read again.
func (s *sweep) healAll(ctx context.Context) error {
	ids := s.census.damaged
	if len(ids) > sweepBound {
		ids, s.more = ids[:sweepBound], true
	}
	errs := make([]error, len(ids))
	var l litter
	each(len(ids), func(i int) {
		healed, err := s.queue.heal(ctx, ids[i])
		if healed {
			s.healed.Add(1)
			l.add(damagedPrefix + ids[i])
		}
		errs[i] = err
	})
	return errors.Join(errors.Join(errs...), s.queue.clear(ctx, &l))
}

// heal announces a job anew whose document was damaged; true when it can be
// read again or is gone.
func (q *Queue) heal(ctx context.Context, name string) (bool, error) {
	if !core.IsArchiveJobID(name) {
		return false, nil // an object that is no job's: reindex looks whether it is gone
	}
	r, err := q.read(ctx, name)
	var damaged *damagedDocument
	switch {
	case errors.As(err, &damaged):
		return false, nil
	case errors.Is(err, errAbsent):
		return true, nil
	case err != nil:
		return false, err
	}
	err = errors.Join(q.announce(ctx, r.source(), nil), q.announce(ctx, r.stamp.marker, nil))
	if err == nil && r.job.Status == core.ArchiveDone {
		err = q.recount(ctx) // the roll-up may have passed its marker
	}
	return err == nil, err
}

// rollUp counts the jobs that were done since the last run. Each is read once
// in its life for that: a marker whose job says otherwise is not counted but
// cleared, and so are those that a done job left behind.
func (s *sweep) rollUp(ctx context.Context) error {
	roll, err := s.queue.readRollup(ctx)
	if err != nil {
		return err
	}
	s.backlog = roll.Backlog
	marks, err := s.settled(ctx, roll.Through)
	if err != nil || len(marks) == 0 {
		return err
	}
	records, damaged, err := s.queue.readAll(ctx, marks)
	if err != nil {
		return err
	}
	for _, id := range damaged {
		if err := s.queue.reportDamage(ctx, id); err != nil {
			return err
		}
	}
	var l litter
	for i, m := range marks {
		r, err := s.confirm(ctx, m, records[i], &l)
		if err != nil {
			return err
		}
		if r != nil {
			roll.count(kindOf(r.job))
			s.counted.Add(1)
			s.addLeftovers(&l, r.job.ID)
		}
	}
	roll.Through = marks[len(marks)-1].key
	if err := s.queue.writeRollup(ctx, roll); err != nil {
		return err
	}
	s.cleaned.Add(int64(len(l.keys)))
	return s.queue.clear(ctx, &l)
}

// settled lists the done markers after a key that are old enough.
func (s *sweep) settled(ctx context.Context, after string) ([]marker, error) {
	until := s.queue.now().Add(-settleMargin)
	var marks []marker
	err := s.queue.walk(ctx, donePrefix, after, func(key string) bool {
		m, ok := parseMarker(key)
		if ok && (m.at >= until || len(marks) == sweepBound) {
			s.more = s.more || m.at < until
			return false
		}
		if ok {
			marks = append(marks, m)
		}
		return true
	})
	return marks, err
}

// addLeftovers notes the markers that a done job still has.
func (s *sweep) addLeftovers(l *litter, id string) {
	for _, m := range s.census.byID[id] {
		l.add(m.key)
	}
}

// confirm returns the job that a done marker was listed with if the marker is
// the job's own, and otherwise clears the marker. A marker of a damaged job or
// of none proves nothing, and nothing asks for it again.
func (s *sweep) confirm(ctx context.Context, m marker, r *record, l *litter) (*record, error) {
	if r == nil || r.stamp.marker == m.key {
		return r, nil
	}
	after, err := s.queue.repair(ctx, m, *r, l)
	switch {
	case core.CodeOf(err) == core.CodeQueueJobNotFound:
		return nil, nil
	case err != nil && !errors.Is(err, errUnchanged):
		return nil, err
	case after.stamp.marker != m.key:
		return nil, nil
	}
	return &after, nil // its writer, slow and alive, came to it meanwhile
}

func (r *rollup) count(kind string) {
	switch kind {
	case kindCompleted:
		r.Completed++
	case kindSuperseded:
		r.Superseded++
	case kindSettled:
		r.Settled++
	}
}

// writeRollup replaces the roll-up that was read. That another run was faster
// is no failure: it has counted the same.
func (q *Queue) writeRollup(ctx context.Context, r rollup) error {
	err := q.swapRollup(ctx, r)
	if errors.Is(err, errLost) || errors.Is(err, errConflict) || errors.Is(err, errAbsent) {
		return nil
	}
	return err
}

func (q *Queue) swapRollup(ctx context.Context, r rollup) error {
	body, err := json.Marshal(r)
	if err != nil {
		return core.Wrap(core.CodeInternal, "the count of done jobs cannot be written", err)
	}
	in := &s3.PutObjectInput{Key: aws.String(rollupKey), Body: bytes.NewReader(body),
		ContentType: aws.String("application/json")}
	if r.etag == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = &r.etag
	}
	_, err = q.put(ctx, in)
	return err
}

// recount makes the roll-up begin again, and remember that the sources of jobs
// that were brought in are not settled.
func (q *Queue) recount(ctx context.Context) error {
	for p := q.patience(); ; {
		stored, err := q.readRollup(ctx)
		if err != nil && stored.etag == "" {
			return err
		}
		err = q.swapRollup(ctx, rollup{Backlog: true, etag: stored.etag})
		if !errors.Is(err, errLost) && !errors.Is(err, errConflict) && !errors.Is(err, errAbsent) {
			return err
		}
		if err := p.pause(ctx); err != nil {
			return err
		}
	}
}

// SettleBacklog implements core.ArchiveQueue: 1 request when there is nothing
// to do, else 1 for each 1,000 source marks and those of settling each source
// that has several.
func (q *Queue) SettleBacklog(ctx context.Context) (int, error) {
	roll, err := q.readRollup(ctx)
	if err != nil || !roll.Backlog {
		return 0, err
	}
	retired := 0
	var group []sourceMark
	var failure error
	settle := func() bool {
		var n int
		n, failure = q.settleSource(ctx, group)
		retired += n
		return failure == nil
	}
	err = q.walk(ctx, sourcePrefix, "", func(key string) bool {
		m, ok := parseSourceMark(key)
		if !ok {
			return true
		}
		if len(group) > 0 && group[0].source != m.source {
			if !settle() {
				return false
			}
			group = nil
		}
		group = append(group, m)
		return true
	})
	if err == nil && failure == nil {
		settle()
	}
	if err := errors.Join(err, failure); err != nil {
		return retired, err
	}
	roll.Backlog = false
	return retired, q.writeRollup(ctx, roll)
}

// settleSource retires the earlier jobs of one source, given in order.
func (q *Queue) settleSource(ctx context.Context, marks []sourceMark) (int, error) {
	var l litter
	defer func() { _ = q.clear(ctx, &l) }()
	for i, m := range slices.Backward(marks) {
		if i == 0 {
			break
		}
		archives, err := q.archives(ctx, m, &l)
		if err != nil {
			return 0, err
		}
		if archives {
			ids, err := q.retireAll(ctx, marks[:i], &l, superseding(m.id))
			return len(ids), err
		}
	}
	return 0, nil
}
