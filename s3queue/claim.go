package s3queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
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

	mu    sync.Mutex
	taken []taken
}

type taken struct {
	m   marker
	job core.ArchiveJob
}

// jobs are what the scan got, in the order of the candidates.
func (s *scan) jobs() []core.ArchiveJob {
	slices.SortFunc(s.taken, func(a, b taken) int { return cmp.Compare(a.m.key, b.m.key) })
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
	looked := 0
	for more := true; more && len(s.taken) < s.claim.Max; {
		if looked >= core.MaxArchiveCandidates {
			return after[len(duePrefix):], nil
		}
		var keys []string
		if keys, more, err = s.queue.page(ctx, duePrefix, after, s.pageLimit(looked)); err != nil {
			return "", err
		}
		if len(keys) == 0 {
			return "", nil
		}
		after = keys[len(keys)-1]
		looked += len(keys)
		candidates, later := s.candidates(keys)
		if err := s.take(ctx, candidates); err != nil {
			return "", err
		}
		more = more && !later
	}
	return "", nil
}

func (s *scan) pageLimit(looked int) int {
	if looked == 0 && !s.claim.Filtered() {
		return claimPage
	}
	return min(pageSize, core.MaxArchiveCandidates-looked)
}

// candidates are the markers whose moment has come and that the claim does not
// exclude; later tells that the keys reach beyond now.
func (s *scan) candidates(keys []string) (candidates []marker, later bool) {
	due, later := dueMarks(keys, s.queue.now())
	return slices.DeleteFunc(due, func(m marker) bool {
		return slices.Contains(s.claim.Exclude, m.id)
	}), later
}

// take tries the candidates in order, as many at once as the claim still
// wants, or as it may read at once where a filter will pass over most.
func (s *scan) take(ctx context.Context, candidates []marker) error {
	for len(candidates) > 0 && len(s.taken) < s.claim.Max {
		n := min(len(candidates), s.claim.Max-len(s.taken))
		if s.claim.Filtered() {
			n = min(len(candidates), width)
		}
		candidates = s.spread(candidates, n)
		if err := s.takeChunk(ctx, candidates[:n]); err != nil {
			return err
		}
		candidates = candidates[n:]
	}
	return nil
}

// spread moves n candidates from a place by chance to the front while claims
// collide.
func (s *scan) spread(candidates []marker, n int) []marker {
	room := min(crowdWindow, len(candidates)-n)
	if room <= 0 || !s.queue.crowd.about(s.queue.now()) {
		return candidates
	}
	at := int(s.queue.random() * float64(room+1))
	return slices.Concat(candidates[at:at+n], candidates[:at], candidates[at+n:])
}

// takeChunk reads the candidates at once and claims the first of those that the
// claim wants.
func (s *scan) takeChunk(ctx context.Context, chunk []marker) error {
	found := make([]*record, len(chunk))
	errs := make([]error, len(chunk))
	each(len(chunk), func(i int) { found[i], errs[i] = s.look(ctx, chunk[i]) })
	var wanted []int
	for i, r := range found {
		if r != nil && len(wanted) < s.claim.Max-len(s.taken) {
			wanted = append(wanted, i)
		}
	}
	each(len(wanted), func(n int) {
		i := wanted[n]
		errs[i] = s.lease(ctx, chunk[i], *found[i])
	})
	return errors.Join(errs...)
}

// look reads a candidate; nil when the claim does not want it.
func (s *scan) look(ctx context.Context, m marker) (*record, error) {
	q := s.queue
	r, err := q.examine(ctx, m, &s.litter)
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
func (s *scan) lease(ctx context.Context, m marker, r record) error {
	q := s.queue
	next, err := q.update(ctx, r, &s.litter, func(r record, now core.Instant) (change, error) {
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
	s.litter.add(m.key) // the job has moved on from whatever it announced
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = append(s.taken, taken{m, next.job})
	return nil
}
