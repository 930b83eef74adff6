package s3queue

import (
	"context"
	"errors"
	"time"

	"drawbridge/core"
)

// grace is how old a marker that its job does not name must be before it is
// taken for the remains of a writer that died, and not for the beginning of a
// write under way. Nothing goes wrong when it is mistaken: see fence.
const grace = 30 * time.Second

// examine reads the job of a marker whose moment has come and puts right what
// it finds: an enqueue that died half-way is finished, a crash loop is
// dead-lettered, an early hint moved, a stale one noted for clearing. claiming
// tells that a claimable job will be claimed, which does all that at once. It
// returns the job, or nil where there is none.
func (q *Queue) examine(ctx context.Context, m marker, claiming bool, l *litter) (*record, error) {
	r, err := q.read(ctx, m.id)
	var damaged *damagedDocument
	switch {
	case errors.As(err, &damaged):
		if err := q.reportDamage(ctx, m.id); err != nil {
			return nil, err
		}
		l.add(m.key)
		return nil, nil
	case errors.Is(err, errAbsent):
		return q.orphan(ctx, m, l)
	case err != nil:
		return nil, err
	}
	if claiming && r.job.Claimable(q.now(), q.settings) {
		return &r, nil
	}
	after, err := q.repair(ctx, m, r, l)
	switch core.CodeOf(err) {
	case core.CodeQueueContention, core.CodeQueueJobDamaged:
		return &r, nil // whoever meets the marker next looks again
	case core.CodeQueueJobNotFound:
		return nil, nil
	}
	if errors.Is(err, errUnchanged) {
		return &r, nil
	}
	return &after, err
}

// repair puts a marker right that was met with its job. It returns the job as it
// then is, with errUnchanged when this call changed nothing: there was no need,
// or someone else was faster.
func (q *Queue) repair(ctx context.Context, m marker, met record, l *litter) (record, error) {
	after, err := q.update(ctx, met, l, func(r record, now core.Instant) (change, error) {
		switch {
		case r.job.Exhausted(now, q.settings):
			return change{job: r.job.DeadLettered(now)}, nil
		case r.etag != met.etag:
			return change{}, errUnchanged
		}
		return tidy(m, r, now)
	})
	if err != nil && !errors.Is(err, errUnchanged) {
		return after, err
	}
	// Done is for ever, and whoever replaced the document has fenced the marker.
	unnameable := after.job.Status == core.ArchiveDone || after.etag != met.etag
	if unnameable && after.stamp.marker != m.key {
		l.add(m.key)
	}
	return after, err
}

// tidy decides what a marker needs whose job is no crash loop.
func tidy(m marker, r record, now core.Instant) (change, error) {
	named := m.key == r.stamp.marker
	switch {
	case named && early(m, r.job, now):
		return change{job: r.job}, nil
	case named || r.job.Status == core.ArchiveDone || !m.writtenBefore(now.Add(-grace)):
		return change{}, errUnchanged
	}
	return fence(r), nil
}

// early tells whether the marker's moment has come while the lease lives on.
func early(m marker, j core.ArchiveJob, now core.Instant) bool {
	return j.Status == core.ArchiveLeased && m.at <= now && !j.Lapsed(now)
}

// fence makes it safe to delete a marker that the job does not name. Its writer
// may be about to replace the document that was just read: replacing it first,
// by the same job, makes that write fail, and the writer announces anew.
func fence(r record) change { return change{job: r.job, marked: true} }

// orphan finishes the enqueue that left the marker and no job. A marker of a job
// that was removed since is cleared.
func (q *Queue) orphan(ctx context.Context, m marker, l *litter) (*record, error) {
	if !m.writtenBefore(q.now().Add(-grace)) {
		return nil, nil
	}
	_, intent, err := q.get(ctx, m.key, core.MaxArchiveDocumentBytes)
	if errors.Is(err, errAbsent) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	job, err := core.DecodeArchiveJob(m.id, intent)
	if err != nil || markerOf(job, m.nonce).key != m.key {
		l.add(m.key) // no enqueue left it, so the job was removed
		return nil, nil
	}
	own := record{job: job, stamp: stamp{writes: []string{m.nonce}, created: m.nonce, marker: m.key}}
	if err := q.announce(ctx, own.source(), nil); err != nil {
		return nil, err
	}
	if own, err = q.establish(ctx, own); err != nil {
		return nil, missing(err)
	}
	if own, _, err = q.supersede(ctx, own, l); err != nil {
		return nil, err
	}
	return &own, nil
}

// reportDamage makes stats count and name a document that cannot be read.
func (q *Queue) reportDamage(ctx context.Context, id string) error {
	return q.announce(ctx, damagedPrefix+id, nil)
}
