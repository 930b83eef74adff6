package objects

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"drawbridge/localstack/fakeaws/engine"
)

// What one step of a collection does at most under the lock, so that requests
// wait for milliseconds at worst: versions and uploads looked at, and records
// taken out. A step finishes the key or the upload that it began to look at.
const (
	stepLooks    = 4096
	stepRemovals = 512
)

// A Collection counts what lifecycle rules took away.
type Collection struct {
	Expired int // current versions: gone for good, or noncurrent from now on
	Old     int // noncurrent versions, delete markers among them
	Markers int // delete markers under which nothing was left
	Uploads int // multipart uploads that were never completed
}

// CollectExpired carries out the lifecycle rules of every bucket for this
// instant of the clock, and returns when that is durable. S3 does so about once
// a day; nothing here does it by itself. Cost: a look at every version of the
// buckets that have rules, about 1 µs each. It holds the lock for one bounded
// step at a time, each of which is one atomic unit of the journal; when the
// context ends, or the journal fails, the steps before stay and the next call
// begins anew.
//
// The rules are those of the S3 User Guide, "Lifecycle configuration elements":
// a life ends at the midnight (UTC) after its days have passed; a noncurrent
// version's days count from when its successor was written; an expired current
// version is deleted as DeleteObject would, so that in a versioned bucket it
// becomes noncurrent; where rules overlap, the shortest life holds. Bucket
// policies have no say.
func (e *Engine) CollectExpired(ctx context.Context) (Collection, error) {
	total := Collection{}
	for _, name := range e.bucketsWithRules() {
		p := &pass{e: e, name: name, total: &total}
		if err := p.run(ctx); err != nil {
			return total, fmt.Errorf("collect what has expired in bucket %s: %w", name, err)
		}
	}
	return total, nil
}

func (e *Engine) bucketsWithRules() []string {
	e.mu.RLock()
	defer e.mu.RUnlock()
	var names []string
	for name, b := range e.buckets {
		if b.lifecycle != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// A pass goes once through a bucket, by steps.
type pass struct {
	e     *Engine
	name  string
	total *Collection

	key      string // where the next step goes on among the keys
	keysDone bool
	upload   upload // and, after them, among the uploads
	done     bool
}

func (p *pass) run(ctx context.Context) error {
	for !p.done {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if ticket := p.step(); ticket != nil {
			if err := ticket.Wait(); err != nil {
				return err
			}
		}
	}
	return nil
}

// step does the next part of the pass. The bucket and its rules are those of
// this instant: between two steps either may have changed.
func (p *pass) step() engine.Ticket {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	b := p.e.buckets[p.name]
	if b == nil || b.lifecycle == nil {
		p.done = true
		return nil
	}
	s := &step{pass: p, bucket: b, change: p.e.begin(), now: p.e.now(), looks: stepLooks, removals: stepRemovals}
	if !p.keysDone {
		s.collectKeys()
	} else {
		s.collectUploads()
	}
	return s.change.commit()
}

// A step is one bounded piece of a pass, under the lock.
type step struct {
	*pass
	bucket *bucket
	change *change
	now    time.Time

	looks, removals int // what is left of its bounds
}

// collectKeys goes on where the last step ended. The keys are gathered first: a
// tree must not change under its iterator.
func (s *step) collectKeys() {
	var found []*entry
	s.keysDone = true
	s.bucket.entries.Ascend(&entry{key: s.key}, func(en *entry) bool {
		if s.looks <= 0 {
			s.key, s.keysDone = en.key, false
			return false
		}
		s.looks -= len(en.versions)
		found = append(found, en)
		return true
	})
	for _, en := range found {
		if !s.collectKey(en) {
			s.key, s.keysDone = en.key, false
			return
		}
	}
}

// collectKey does what the rules say about one key. It returns false when the
// removals are used up before: the next step begins with this key again.
func (s *step) collectKey(en *entry) (finished bool) {
	if s.removals <= 0 {
		return false
	}
	t := s.bucket.lifecycle.termsOf(en.key)
	s.expireCurrent(en, t)
	if !s.removeOld(en, t) {
		return false
	}
	s.removeBareMarker(en, t)
	return true
}

func (s *step) expireCurrent(en *entry, t terms) {
	if v := en.current(); v.marker || !s.isOver(v.modified, t.current) {
		return
	}
	// Without a condition a delete cannot fail.
	_, _ = s.e.delete(s.change, s.bucket, en.key, "", "")
	s.removals--
	s.total.Expired++
}

// removeOld removes noncurrent versions for good, the oldest first, and tells
// whether it came to the last one.
func (s *step) removeOld(en *entry, t terms) (finished bool) {
	var over []string
	for i := range len(en.versions) - 1 {
		if s.isOver(noncurrentSince(en.versions[i], en.versions[i+1]), t.noncurrent) {
			over = append(over, en.versions[i].id)
		}
	}
	finished = len(over) <= s.removals
	if !finished {
		over = over[:s.removals]
	}
	for _, id := range over {
		s.change.removeVersion(s.bucket, en.key, id)
	}
	s.removals -= len(over)
	s.total.Old += len(over)
	return finished
}

// noncurrentSince tells when a version's successor took its place. A multipart
// upload's Last-Modified is when it was begun, which may be before the version
// that it replaced.
func noncurrentSince(v, successor *version) time.Time {
	if successor.modified.Before(v.modified) {
		return v.modified
	}
	return successor.modified
}

// removeBareMarker removes a delete marker that hides nothing: at once where a
// rule says so, else when it is as old as the objects that the rule ends.
func (s *step) removeBareMarker(en *entry, t terms) {
	if len(en.versions) != 1 || !en.current().marker {
		return
	}
	v := en.current()
	if t.markers || s.isOver(v.modified, t.current) {
		s.change.removeVersion(s.bucket, en.key, v.id)
		s.removals--
		s.total.Markers++
	}
}

func (s *step) collectUploads() {
	var over []*upload
	s.done = true
	s.bucket.uploads.Ascend(&s.upload, func(u *upload) bool {
		if s.looks <= 0 || s.removals <= 0 {
			s.upload, s.done = upload{key: u.key, seq: u.seq}, false
			return false
		}
		s.looks--
		if s.isOver(u.initiated, s.bucket.lifecycle.termsOf(u.key).upload) {
			s.removals -= 1 + len(u.parts)
			over = append(over, u)
		}
		return true
	})
	for _, u := range over {
		s.change.abortUpload(s.bucket, u)
	}
	s.total.Uploads += len(over)
}

// isOver tells whether a life of so many days (0: without end) that began at an
// instant is over. It lasts until the midnight after the days have passed.
func (s *step) isOver(begun time.Time, days int32) bool {
	if days == 0 {
		return false
	}
	const day = 24 * time.Hour
	end := begun.AddDate(0, 0, int(days)).Truncate(day).Add(day)
	return !s.now.Before(end)
}

// terms are what all rules together say about a key: the shortest life of each
// kind in days, 0 without one.
type terms struct {
	current, noncurrent, upload int32
	markers                     bool // bare delete markers go at once
}

func (l *lifecycle) termsOf(key string) terms {
	var t terms
	for i := range l.Rules {
		r := &l.Rules[i]
		if r.Status != ruleEnabled || !strings.HasPrefix(key, r.prefix()) {
			continue
		}
		if x := r.Expiration; x != nil {
			t.current = shorter(t.current, x.Days)
			t.markers = t.markers || x.Markers != nil && *x.Markers
		}
		if x := r.Noncurrent; x != nil {
			t.noncurrent = shorter(t.noncurrent, x.Days)
		}
		if x := r.Abort; x != nil {
			t.upload = shorter(t.upload, x.Days)
		}
	}
	return t
}

// shorter is the shorter of two lives, of which either may be without end.
func shorter(days int32, other *int32) int32 {
	if other == nil || days != 0 && days < *other {
		return days
	}
	return *other
}
