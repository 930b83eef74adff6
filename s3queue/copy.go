package s3queue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"drawbridge/core"
)

// Damaged is a document that cannot be read, and why.
type Damaged struct {
	Name   string
	Reason string
}

// Copied is what an import, an export or a re-index did.
type Copied struct {
	Jobs    int       // documents that were copied or indexed
	Skipped int       // documents that the queue had already
	Damaged []Damaged // documents that were refused, by name
}

// copying gathers the outcomes of documents that are handled at once.
type copying struct {
	mu       sync.Mutex
	result   Copied
	failures []error
}

func (c *copying) note(name string, copied bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var damaged *core.DamagedError
	switch {
	case errors.As(err, &damaged):
		c.result.Damaged = append(c.result.Damaged, Damaged{name, damaged.Error()})
	case err != nil:
		c.failures = append(c.failures, fmt.Errorf("%s: %w", name, err))
	case copied:
		c.result.Jobs++
	default:
		c.result.Skipped++
	}
}

func (c *copying) done(err error) (Copied, error) {
	slices.SortFunc(c.result.Damaged, func(a, b Damaged) int { return strings.Compare(a.Name, b.Name) })
	return c.result, errors.Join(append(c.failures, err)...)
}

// Import copies documents, given by file name, into the queue as they are: byte
// for byte, leases and all. A document whose job is there already is skipped, one
// that is damaged or misnamed refused, and neither stops the others. It costs 3
// requests a document.
func (q *Queue) Import(ctx context.Context, documents iter.Seq2[string, []byte]) (Copied, error) {
	var c copying
	if err := q.recount(ctx); err != nil {
		return c.done(err)
	}
	inChunks(documents, func(chunk []namedDocument) bool {
		each(len(chunk), func(i int) {
			copied, err := q.importOne(ctx, chunk[i])
			c.note(chunk[i].name, copied, err)
		})
		return len(c.failures) == 0
	})
	// Again: a sweep may have passed the times of jobs that were done long ago.
	return c.done(q.recount(ctx))
}

type namedDocument struct {
	name    string
	content []byte
}

// inChunks hands the documents over as many at a time as are handled at once,
// until fn answers false.
func inChunks(documents iter.Seq2[string, []byte], fn func([]namedDocument) bool) {
	var chunk []namedDocument
	for name, content := range documents {
		chunk = append(chunk, namedDocument{name, content})
		if len(chunk) < width {
			continue
		}
		if !fn(chunk) {
			return
		}
		chunk = nil
	}
	fn(chunk)
}

func (q *Queue) importOne(ctx context.Context, d namedDocument) (bool, error) {
	id, ok := jobID(jobPrefix + d.name)
	if !ok {
		return false, &core.DamagedError{Reason: "its name is not an id and " + jobSuffix}
	}
	job, err := core.DecodeArchiveJob(id, d.content)
	if err != nil {
		return false, err
	}
	if _, err := q.read(ctx, id); !errors.Is(err, errAbsent) {
		return false, ignoreDamage(err)
	}
	writeID := newNonce(q.ids)
	s := stamp{writes: []string{writeID}, created: writeID, marker: markerOf(job, writeID).key}
	if job.Lease != nil {
		s.lease, s.leaseFor = leaseDigest(job.Lease.ID), q.settings.Lease
	}
	own := record{job: job, stamp: s}
	if err := errors.Join(q.announce(ctx, own.source(), nil), q.announce(ctx, s.marker, d.content)); err != nil {
		return false, err
	}
	_, err = q.create(ctx, d.content, id, s)
	if errors.Is(err, errLost) {
		stored, err := q.read(ctx, id)
		return err == nil && stored.stamp.created == writeID, ignoreDamage(err)
	}
	return err == nil, missing(err)
}

// ignoreDamage is for whoever only asks whether a document is there.
func ignoreDamage(err error) error {
	var damaged *damagedDocument
	if errors.As(err, &damaged) {
		return nil
	}
	return err
}

// Export hands out every document by file name, as it is stored. A damaged one
// is named and left out. It costs 1 request a document and 1 for each 1,000.
func (q *Queue) Export(ctx context.Context, write func(name string, document []byte) error) (Copied, error) {
	var c copying
	err := q.eachObject(ctx, func(name string) {
		content, err := q.exportOne(ctx, name)
		if err == nil && content != nil {
			err = write(name, content)
		}
		c.note(name, content != nil, err)
	})
	return c.done(err)
}

// exportOne reads one document; nil when it is gone.
func (q *Queue) exportOne(ctx context.Context, name string) ([]byte, error) {
	id, ok := jobID(jobPrefix + name)
	if !ok {
		return nil, &core.DamagedError{Reason: "its name is not an id and " + jobSuffix}
	}
	_, content, err := q.get(ctx, jobPrefix+name, core.MaxArchiveDocumentBytes)
	if errors.Is(err, errAbsent) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if _, err := core.DecodeArchiveJob(id, content); err != nil {
		return nil, err
	}
	return document(content), nil
}

// eachObject calls fn for the name of every object under jobs/, several at
// once.
func (q *Queue) eachObject(ctx context.Context, fn func(name string)) error {
	var names []string
	flush := func() {
		each(len(names), func(i int) { fn(names[i]) })
		names = names[:0]
	}
	err := q.walk(ctx, jobPrefix, "", func(key string) bool {
		if names = append(names, strings.TrimPrefix(key, jobPrefix)); len(names) == pageSize {
			flush()
		}
		return ctx.Err() == nil
	})
	flush()
	return err
}

// Reindex reads every document and writes the index keys that are missing: for
// documents that were copied into the bucket by hand, and as the operator's full
// check, which finds every damaged document. It costs 1 request a document, 1
// for each 1,000 keys, and 1 for each key it writes.
func (q *Queue) Reindex(ctx context.Context) (Copied, error) {
	x := reindex{queue: q, there: map[string]bool{}, completed: map[string]record{}}
	for _, prefix := range []string{openPrefix, donePrefix, sourcePrefix} {
		err := q.walk(ctx, prefix, "", func(key string) bool { x.there[key] = true; return true })
		if err != nil {
			return Copied{}, err
		}
	}
	err := q.eachObject(ctx, func(name string) {
		indexed, err := x.index(ctx, name)
		x.note(name, indexed, err)
	})
	if err == nil {
		err = errors.Join(x.indexCompleted(ctx), x.forgetHealed(ctx), q.recount(ctx))
	}
	return x.done(err)
}

// reindex is one run of Reindex.
type reindex struct {
	copying
	queue *Queue
	there map[string]bool // the index keys there are

	mapMu     sync.Mutex
	completed map[string]record // the last completed job of each source
}

// index writes the index keys of one document that are missing; false when they
// were all there.
func (x *reindex) index(ctx context.Context, name string) (bool, error) {
	q := x.queue
	id, ok := jobID(jobPrefix + name)
	if !ok {
		return false, errors.Join(&core.DamagedError{Reason: "its name is not an id and " + jobSuffix},
			q.reportDamage(ctx, damagedName(name)))
	}
	r, err := q.read(ctx, id)
	var damaged *damagedDocument
	switch {
	case errors.As(err, &damaged):
		return false, errors.Join(damaged.cause, q.reportDamage(ctx, id))
	case errors.Is(err, errAbsent):
		return false, nil
	case err != nil:
		return false, err
	}
	keys := []string{r.stamp.marker}
	if r.job.Status != core.ArchiveDone {
		keys = append(keys, r.source())
	} else if r.job.Result != nil {
		x.remember(r)
	}
	return x.write(ctx, keys...)
}

// remember keeps the last completed job of each source: the only done one that
// its source lists.
func (x *reindex) remember(r record) {
	x.mapMu.Lock()
	defer x.mapMu.Unlock()
	source := r.job.SourceID()
	if last, ok := x.completed[source]; !ok || last.job.ObservedBefore(r.job) {
		r.job = core.ArchiveJob{ID: r.job.ID, ArchiveObservation: r.job.ArchiveObservation}
		x.completed[source] = r
	}
}

func (x *reindex) indexCompleted(ctx context.Context) error {
	keys := make([]string, 0, len(x.completed))
	for _, r := range x.completed {
		keys = append(keys, r.source())
	}
	errs := make([]error, len(keys))
	each(len(keys), func(i int) { _, errs[i] = x.write(ctx, keys[i]) })
	return errors.Join(errs...)
}

// write announces the keys that are missing; false when none was.
func (x *reindex) write(ctx context.Context, keys ...string) (bool, error) {
	wrote := false
	for _, key := range keys {
		if x.there[key] {
			continue
		}
		if err := x.queue.announce(ctx, key, nil); err != nil {
			return wrote, err
		}
		wrote = true
	}
	return wrote, nil
}

// damagedName is the name of an object that is no job's, as far as it fits into
// a key.
func damagedName(name string) string {
	const longest = 120
	var b strings.Builder
	for _, c := range []byte(name) {
		if b.Len() > longest {
			b.WriteString("~")
			break
		}
		if c == '.' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// forgetHealed clears the reports of documents that are not damaged any more.
func (x *reindex) forgetHealed(ctx context.Context) error {
	still := map[string]bool{}
	for _, d := range x.result.Damaged {
		id, ok := jobID(jobPrefix + d.Name)
		if !ok {
			id = damagedName(d.Name)
		}
		still[id] = true
	}
	var l litter
	for key := range x.there {
		if name, ok := strings.CutPrefix(key, damagedPrefix); ok && !still[name] {
			l.add(key)
		}
	}
	return x.queue.clear(ctx, &l)
}
