package s3queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"drawbridge/core"
)

const (
	// claimPage is how many candidates an unfiltered claim lists: more than it
	// needs, so that those who collide have others to turn to.
	claimPage = 64
	// crowdWindow is among how many of the first candidates a claim chooses
	// while others claim, and crowdMemory how long after a collision.
	crowdWindow = 32
	crowdMemory = time.Second
)

// crowd remembers that claims collide. Alone, a claim takes the first candidate.
type crowd struct{ until atomic.Int64 }

func (c *crowd) met(now core.Instant) { c.until.Store(int64(now.Add(crowdMemory))) }

func (c *crowd) about(now core.Instant) bool { return int64(now) < c.until.Load() }

// Claim implements core.ArchiveQueue. It costs 2 requests and 3 for each job
// it gets, however many jobs there are: a listing of the first candidates, the
// document, the lease's marker and the document again for each, and one request
// that clears the markers. A filtered claim reads each candidate that it passes.
func (q *Queue) Claim(ctx context.Context, c core.ArchiveClaim) (core.ArchiveClaimed, error) {
	if err := c.Validate(); err != nil {
		return core.ArchiveClaimed{}, err
	}
	after, err := claimStart(c.From)
	if err != nil {
		return core.ArchiveClaimed{}, err
	}
	if c.Lease == 0 {
		c.Lease = q.settings.Lease
	}
	s := &scan{queue: q, claim: c}
	scannedTo, err := s.run(ctx, after)
	_ = q.clear(ctx, &s.litter) // see clear
	jobs := s.jobs()
	if err != nil && len(jobs) == 0 {
		return core.ArchiveClaimed{}, err
	}
	// Jobs that were claimed are answered whatever happened to the others.
	return core.ArchiveClaimed{Jobs: jobs, Heartbeat: core.ArchiveHeartbeat(c.Lease), ScannedTo: scannedTo}, nil
}

// claimStart turns a claim's From into the key to go on after.
func claimStart(from string) (string, error) {
	if from == "" {
		return "", nil
	}
	m, ok := parseMarker(duePrefix + from)
	if !ok {
		return "", core.Invalid("from", "from is not the scanned_to of a claim")
	}
	return m.key, nil
}

// A scan is one pass of a claim over the candidates.
type scan struct {
	queue  *Queue
	claim  core.ArchiveClaim
	litter litter

	waiting  []candidate // listed and not yet tried, in order
	frontier string      // the place up to which candidates are listed
	last     marker      // the last of them
	listed   int
	all      bool // there are none beyond

	mu    sync.Mutex
	taken []taken
}

// A candidate is a marker whose moment has come. place orders it among the
// others: it is that of the marker, until the job tells that it became
// claimable later, because the lease was renewed.
type candidate struct {
	marker
	place string
}

// placeOf is the order of claims: by when a job became claimable, then by when
// it was enqueued, then by id.
func placeOf(at, enqueued core.Instant, id string) string {
	return join(timeKey(at), timeKey(enqueued), id)
}

// endOfPlaces is after every place.
const endOfPlaces = "~"

type taken struct {
	place string
	job   core.ArchiveJob
}

// jobs are what the scan got, in order.
func (s *scan) jobs() []core.ArchiveJob {
	slices.SortFunc(s.taken, func(a, b taken) int { return cmp.Compare(a.place, b.place) })
	jobs := make([]core.ArchiveJob, len(s.taken))
	for i, t := range s.taken {
		jobs[i] = t.job
	}
	return jobs
}

// run goes through the candidates after a key until the claim has what it
// wants, or has seen them all, or as many as a claim may look at: then it says
// where it stopped.
func (s *scan) run(ctx context.Context, after string) (scannedTo string, err error) {
	for len(s.taken) < s.claim.Max {
		if n := s.within(); n > 0 {
			if err := s.take(ctx, n); err != nil {
				return "", err
			}
			continue
		}
		if s.all {
			return "", nil
		}
		if s.listed >= core.MaxArchiveCandidates {
			return strings.TrimPrefix(s.last.key, duePrefix), nil
		}
		if after, err = s.list(ctx, after); err != nil {
			return "", err
		}
	}
	return "", nil
}

// within counts the candidates before which no other can still be listed.
func (s *scan) within() int {
	if s.all || s.listed >= core.MaxArchiveCandidates {
		return len(s.waiting)
	}
	n, _ := slices.BinarySearchFunc(s.waiting, s.frontier, func(c candidate, frontier string) int {
		if c.place <= frontier {
			return -1
		}
		return 1
	})
	return n
}

// list finds further candidates and returns the key to go on after.
func (s *scan) list(ctx context.Context, after string) (string, error) {
	limit := min(pageSize, core.MaxArchiveCandidates-s.listed)
	if s.listed == 0 && !s.claim.Filtered() {
		limit = claimPage
	}
	keys, more, err := s.queue.page(ctx, duePrefix, after, limit)
	if err != nil {
		return after, err
	}
	due, later := dueMarks(keys, s.queue.now())
	s.listed += len(keys)
	s.all = later || !more
	for _, m := range due {
		s.last, s.frontier = m, placeOf(m.at, m.enqueued, m.id)
		if !slices.Contains(s.claim.Exclude, m.id) {
			s.wait(candidate{m, s.frontier})
		}
	}
	if len(keys) > 0 {
		after = keys[len(keys)-1]
	}
	return after, nil
}

// wait puts a candidate at its place.
func (s *scan) wait(c candidate) {
	at, _ := slices.BinarySearchFunc(s.waiting, c, func(a, b candidate) int { return cmp.Compare(a.place, b.place) })
	s.waiting = slices.Insert(s.waiting, at, c)
}

// take tries the first of n candidates: as many at once as the claim still
// wants, or as it may read at once where a filter will pass over most.
func (s *scan) take(ctx context.Context, n int) error {
	size := min(n, s.claim.Max-len(s.taken))
	if s.claim.Filtered() {
		size = min(n, width)
	}
	from := s.start(n - size)
	chunk := slices.Clone(s.waiting[from : from+size])
	s.waiting = slices.Delete(s.waiting, from, from+size)

	sightings, err := s.sight(ctx, chunk)
	if err != nil {
		return err
	}
	room, bound := s.claim.Max-len(s.taken), s.bound(from)
	tried := 0
	for tried < min(room, len(sightings)) && sightings[tried].place <= bound {
		tried++
	}
	for _, left := range sightings[tried:] {
		s.wait(left.candidate)
	}
	errs := make([]error, tried)
	each(tried, func(i int) { errs[i] = s.lease(ctx, sightings[i]) })
	return errors.Join(errs...)
}

// A sighting is a candidate whose job was read, at the job's own place.
type sighting struct {
	candidate
	record record
}

// sight reads candidates and returns those that the claim wants, in order.
func (s *scan) sight(ctx context.Context, chunk []candidate) ([]sighting, error) {
	found := make([]*record, len(chunk))
	errs := make([]error, len(chunk))
	each(len(chunk), func(i int) { found[i], errs[i] = s.look(ctx, chunk[i].marker) })
	var sightings []sighting
	for i, r := range found {
		if r == nil {
			continue
		}
		at, _ := r.job.ClaimableAt()
		c := chunk[i]
		c.place = max(c.place, placeOf(at, r.job.EnqueuedAt, r.job.ID))
		sightings = append(sightings, sighting{c, *r})
	}
	slices.SortFunc(sightings, func(a, b sighting) int { return cmp.Compare(a.place, b.place) })
	return sightings, errors.Join(errs...)
}

// bound is the place up to which a job is before all those not read yet, of
// which the waiting ones from an index on count: a job that became claimable
// later than its marker says lets them have their turn first.
func (s *scan) bound(from int) string {
	if from < len(s.waiting) {
		return s.waiting[from].place
	}
	if s.all || s.listed >= core.MaxArchiveCandidates {
		return endOfPlaces
	}
	return s.frontier
}

// start chooses where to begin among the candidates: with the first, or at a
// place by chance while claims collide.
func (s *scan) start(room int) int {
	if room <= 0 || !s.queue.crowd.about(s.queue.now()) {
		return 0
	}
	return int(s.queue.random() * float64(min(crowdWindow, room)+1))
}

// look reads a candidate; nil when the claim does not want it.
func (s *scan) look(ctx context.Context, m marker) (*record, error) {
	q := s.queue
	r, err := q.examine(ctx, m, true, &s.litter)
	if err != nil || r == nil {
		return nil, err
	}
	if !r.job.Claimable(q.now(), q.settings) {
		if m.kind == kindReady && r.job.Status == core.ArchiveLeased {
			q.crowd.met(q.now())
		}
		return nil, nil
	}
	if !s.claim.Wants(r.job) {
		return nil, nil
	}
	return r, nil
}

// lease claims a job that was just read, unless another claim is faster: then
// that job is not to be had, and there are other candidates.
func (s *scan) lease(ctx context.Context, c sighting) error {
	q := s.queue
	next, err := q.update(ctx, c.record, &s.litter, func(r record, now core.Instant) (change, error) {
		if !r.job.Claimable(now, q.settings) || !s.claim.Wants(r.job) {
			return change{}, errUnchanged
		}
		id := q.ids.New()
		job := r.job.Claimed(s.claim.Owner, id, s.claim.Lease, now)
		return change{job: job, leaseID: id, leaseFor: s.claim.Lease}, nil
	})
	if errors.Is(err, errUnchanged) || core.CodeOf(err) == core.CodeQueueJobNotFound {
		q.crowd.met(q.now())
		return nil
	}
	if err != nil {
		return err
	}
	s.litter.add(c.key) // the job has moved on from whatever it announced
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = append(s.taken, taken{c.place, next.job})
	return nil
}
