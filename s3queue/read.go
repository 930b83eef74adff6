package s3queue

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"

	"drawbridge/core"
)

// Get implements core.ArchiveQueue: 1 request.
func (q *Queue) Get(ctx context.Context, id string) (core.ArchiveJob, error) {
	r, err := q.find(ctx, id)
	return r.job, err
}

// List implements core.ArchiveQueue. A page costs 1 request a job and the
// listings that find them: 1 for failed and for done jobs; 1 for each 1,000 that
// are not done for ready and leased ones; 1 for each 1,000 jobs there are for
// all of them, which is why a full list wants large pages.
func (q *Queue) List(ctx context.Context, query core.ArchiveQuery) (core.ArchivePage, error) {
	if err := query.Validate(); err != nil {
		return core.ArchivePage{}, err
	}
	list := listing{status: query.Status}
	if err := list.resume(query.Cursor); err != nil {
		return core.ArchivePage{}, err
	}
	marks, more, err := q.marks(ctx, list, query.Limit)
	if err != nil {
		return core.ArchivePage{}, err
	}
	page, err := q.readPage(ctx, marks, query.Status)
	if more && err == nil {
		page.Cursor = list.cursor(marks[len(marks)-1])
	}
	return page, err
}

// A listing is one of the lists, from a place on.
type listing struct {
	status core.ArchiveStatus
	after  string // the position of the last job that was answered
}

// position orders the listing's markers.
func (l listing) position(m marker) string {
	if l.status == core.ArchiveDone {
		return m.key
	}
	return join(timeKey(m.enqueued), m.id)
}

const cursorSeparator = "|"

func (l listing) cursor(m marker) string {
	return base64.RawURLEncoding.EncodeToString([]byte(string(l.status) + cursorSeparator + l.position(m)))
}

// resume takes a cursor of this listing. A forged one only chooses where the
// caller's own list starts.
func (l *listing) resume(cursor string) error {
	if cursor == "" {
		return nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	status, position, ok := strings.Cut(string(raw), cursorSeparator)
	if err != nil || !ok || status != string(l.status) || !l.places(position) {
		return core.Invalid("cursor", "cursor is not one of this list with this filter")
	}
	l.after = position
	return nil
}

func (l listing) places(position string) bool {
	if l.status == core.ArchiveDone {
		_, ok := parseMarker(position)
		return ok && strings.HasPrefix(position, donePrefix)
	}
	at, id, ok := strings.Cut(position, "_")
	_, timed := parseTimeKey(at)
	return ok && timed && core.IsArchiveJobID(id)
}

// marks finds the markers of one page; more tells that others follow.
func (q *Queue) marks(ctx context.Context, list listing, limit int) (marks []marker, more bool, err error) {
	switch list.status {
	case core.ArchiveDone:
		return q.orderedMarks(ctx, donePrefix, list.after, limit)
	case core.ArchiveFailed:
		after := ""
		if list.after != "" {
			after = failedPrefix + list.after + "~" // after every nonce of that job
		}
		return q.orderedMarks(ctx, failedPrefix, after, limit)
	case core.ArchiveReady:
		return q.selectMarks(ctx, list, limit, kindReady, openPrefix)
	case core.ArchiveLeased:
		return q.selectMarks(ctx, list, limit, kindLeased, openPrefix)
	}
	return q.selectMarks(ctx, list, limit, "", openPrefix, donePrefix)
}

// orderedMarks pages through markers whose keys are in the list's order. Of the
// dead letters, which their keys tell apart by the job, each job counts once.
func (q *Queue) orderedMarks(ctx context.Context, prefix, after string, limit int) ([]marker, bool, error) {
	var marks []marker
	more := false
	err := q.walkPages(ctx, prefix, after, limit, func(key string) bool {
		m, ok := parseMarker(key)
		if ok && m.kind == kindFailed && len(marks) > 0 && sameJob(marks[len(marks)-1], m) {
			return true
		}
		if ok && len(marks) == limit {
			more = true
			return false
		}
		if ok {
			marks = append(marks, m)
		}
		return true
	})
	return marks, more, err
}

// selectMarks finds the first markers of a kind in the order of enqueueing,
// which no key has: it goes through all and keeps only as many as it needs.
func (q *Queue) selectMarks(ctx context.Context, list listing, limit int, kind string, prefixes ...string) ([]marker, bool, error) {
	first := firstMarks{limit: limit + 1, order: list.position}
	for _, prefix := range prefixes {
		err := q.walk(ctx, prefix, "", func(key string) bool {
			m, ok := parseMarker(key)
			if ok && (kind == "" || m.kind == kind) && (list.after == "" || list.position(m) > list.after) {
				first.add(m)
			}
			return true
		})
		if err != nil {
			return nil, false, err
		}
	}
	marks := first.sorted()
	if len(marks) > limit {
		return marks[:limit], true, nil
	}
	return marks, false, nil
}

// firstMarks keeps the first so many of any number of markers, one for each job.
type firstMarks struct {
	limit int
	order func(marker) string
	marks []marker
}

func (f *firstMarks) add(m marker) {
	f.marks = append(f.marks, m)
	if len(f.marks) >= 2*f.limit+pageSize {
		f.sorted()
	}
}

func (f *firstMarks) sorted() []marker {
	slices.SortFunc(f.marks, func(a, b marker) int { return cmp.Compare(f.order(a), f.order(b)) })
	f.marks = slices.CompactFunc(f.marks, sameJob)
	f.marks = f.marks[:min(len(f.marks), f.limit)]
	return f.marks
}

// sameJob tells markers of one job from those of a job that was removed and
// enqueued again since.
func sameJob(a, b marker) bool { return a.id == b.id && a.enqueued == b.enqueued }

// readPage reads the jobs of the markers, and keeps those that are what the
// list is of: a marker may be stale, another of the same job, or of one with
// the same id that was removed.
func (q *Queue) readPage(ctx context.Context, marks []marker, status core.ArchiveStatus) (core.ArchivePage, error) {
	records, damaged, err := q.readAll(ctx, marks)
	if err != nil {
		return core.ArchivePage{}, err
	}
	page := core.ArchivePage{Jobs: []core.ArchiveJob{}, Damaged: damaged}
	for i, r := range records {
		switch {
		case r == nil || status != "" && r.job.Status != status:
		case status == core.ArchiveDone && r.stamp.marker != marks[i].key:
		case r.job.EnqueuedAt != marks[i].enqueued:
		default:
			page.Jobs = append(page.Jobs, r.job)
		}
	}
	return page, nil
}

// readAll reads the jobs of the markers, nil for one that is not there, and
// names those that cannot be read, sorted.
func (q *Queue) readAll(ctx context.Context, marks []marker) ([]*record, []string, error) {
	records := make([]*record, len(marks))
	damaged := []string{}
	var mu sync.Mutex
	var failures []error
	each(len(marks), func(i int) {
		r, err := q.read(ctx, marks[i].id)
		mu.Lock()
		defer mu.Unlock()
		var unreadable *damagedDocument
		switch {
		case err == nil:
			records[i] = &r
		case errors.As(err, &unreadable):
			damaged = append(damaged, unreadable.id)
		case !errors.Is(err, errAbsent):
			failures = append(failures, err)
		}
	})
	slices.Sort(damaged)
	return records, slices.Compact(damaged), errors.Join(failures...)
}

// HasClaimable implements core.ArchiveQueue: 2 requests, and more only while
// the first candidates are leases that were renewed since their markers were
// written. It looks at about 1,000 candidates at most, and answers true when
// all of those are such and more follow.
func (q *Queue) HasClaimable(ctx context.Context) (bool, error) {
	after := ""
	for _, limit := range []int{width, pageSize} {
		keys, more, err := q.page(ctx, duePrefix, after, limit)
		if err != nil || len(keys) == 0 {
			return false, err
		}
		after = keys[len(keys)-1]
		candidates, later := dueMarks(keys, q.now())
		found, err := q.anyClaimable(ctx, candidates)
		if err != nil || found || later || !more {
			return found, err
		}
	}
	return true, nil
}

// dueMarks are the markers whose moment has come; later tells that the keys
// reach beyond now.
func dueMarks(keys []string, now core.Instant) (due []marker, later bool) {
	for _, key := range keys {
		m, ok := parseMarker(key)
		if ok && m.at > now {
			return due, true
		}
		if ok {
			due = append(due, m)
		}
	}
	return due, false
}

// anyClaimable reads the first candidate, and the others only if that one is
// not claimable.
func (q *Queue) anyClaimable(ctx context.Context, candidates []marker) (bool, error) {
	now := q.now()
	for n := 1; len(candidates) > 0; n = width {
		n = min(n, len(candidates))
		records, _, err := q.readAll(ctx, candidates[:n])
		if err != nil {
			return false, err
		}
		for _, r := range records {
			if r != nil && r.job.Claimable(now, q.settings) {
				return true, nil
			}
		}
		candidates = candidates[n:]
	}
	return false, nil
}

// Stats implements core.ArchiveQueue: 2 requests, 1 for each further 1,000 jobs
// that are not done, and 1 for each 1,000 done since the roll-up. It counts
// markers: a job that has several, because it is changing or its writer died,
// is read.
func (q *Queue) Stats(ctx context.Context) (core.ArchiveStats, error) {
	roll, err := q.readRollup(ctx)
	if err != nil {
		return core.ArchiveStats{}, err
	}
	c := census{byID: map[string][]marker{}}
	for _, from := range []struct{ prefix, after string }{{openPrefix, ""}, {donePrefix, roll.Through}} {
		if err := q.walk(ctx, from.prefix, from.after, c.add); err != nil {
			return core.ArchiveStats{}, err
		}
	}
	return q.count(ctx, roll, c)
}

// census is the markers there are, by job.
type census struct {
	byID    map[string][]marker
	damaged []string
}

func (c *census) add(key string) bool {
	if id, ok := strings.CutPrefix(key, damagedPrefix); ok {
		c.damaged = append(c.damaged, id)
	} else if m, ok := parseMarker(key); ok {
		c.byID[m.id] = append(c.byID[m.id], m)
	}
	return true
}

func (q *Queue) count(ctx context.Context, roll rollup, c census) (core.ArchiveStats, error) {
	stats := core.ArchiveStats{Done: roll.Completed + roll.Superseded + roll.Settled,
		Completed: roll.Completed, Superseded: roll.Superseded, Damaged: c.damaged}
	var several, lapsed []marker
	now := q.now()
	for _, marks := range c.byID {
		m := marks[0]
		if len(marks) > 1 {
			several = append(several, m)
			continue
		}
		tally(&stats, m.kind, 1)
		if m.at <= now && m.kind == kindReady {
			stats.Claimable = true
		}
		if m.at <= now && m.kind == kindLeased {
			lapsed = append(lapsed, m)
		}
	}
	records, _, err := q.readAll(ctx, several)
	if err != nil {
		return core.ArchiveStats{}, err
	}
	for _, r := range records {
		if r != nil && !roll.covers(r.stamp.marker) {
			tally(&stats, kindOf(r.job), 1)
			stats.Claimable = stats.Claimable || r.job.Claimable(now, q.settings)
		}
	}
	if !stats.Claimable {
		slices.SortFunc(lapsed, func(a, b marker) int { return cmp.Compare(a.key, b.key) })
		stats.Claimable, err = q.anyClaimable(ctx, lapsed)
	}
	return stats, err
}

func tally(s *core.ArchiveStats, kind string, n int) {
	switch kind {
	case kindReady:
		s.Ready += n
	case kindLeased:
		s.Leased += n
	case kindFailed:
		s.Failed += n
	case kindCompleted:
		s.Done += n
		s.Completed += n
	case kindSuperseded:
		s.Done += n
		s.Superseded += n
	case kindSettled:
		s.Done += n
	}
}

// rollup is the count of the done jobs up to a marker, so that counting them
// costs only the ones since. It is kept by the sweep.
type rollup struct {
	Through    string `json:"through"` // the last marker that is counted
	Completed  int    `json:"completed"`
	Superseded int    `json:"superseded"`
	Settled    int    `json:"settled"`
	// Backlog tells that jobs were brought in whose sources nobody has settled.
	Backlog bool `json:"backlog"`

	etag string // empty where there is none yet
}

func (r rollup) covers(key string) bool {
	return strings.HasPrefix(key, donePrefix) && key <= r.Through
}

const maxRollupBytes = 1 << 16

func (q *Queue) readRollup(ctx context.Context) (rollup, error) {
	out, body, err := q.get(ctx, rollupKey, maxRollupBytes)
	if errors.Is(err, errAbsent) {
		return rollup{}, nil
	}
	if err != nil {
		return rollup{}, err
	}
	r := rollup{etag: aws.ToString(out.ETag)}
	if err := json.Unmarshal(body, &r); err != nil {
		return r, core.Wrap(core.CodeInternal, "the count of done jobs cannot be read; reindex makes it anew", err)
	}
	return r, nil
}
