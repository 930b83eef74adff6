package coretest

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"drawbridge/core"
)

// ArchiveModel is the specification of the archive queue, one call at a time in
// memory. It makes the decisions of core and has nothing to go wrong.
type ArchiveModel struct {
	clock    core.Clock
	settings core.ArchiveSettings
	ids      core.IDs

	mu      sync.Mutex
	jobs    map[string]core.ArchiveJob
	leases  map[string]string // last lease id of each job
	lengths map[string]time.Duration
}

var _ core.ArchiveQueue = (*ArchiveModel)(nil)

// NewArchiveModel returns an empty queue.
func NewArchiveModel(clock core.Clock, settings core.ArchiveSettings, ids core.IDs) *ArchiveModel {
	return &ArchiveModel{clock: clock, settings: settings, ids: ids, jobs: map[string]core.ArchiveJob{},
		leases: map[string]string{}, lengths: map[string]time.Duration{}}
}

func (m *ArchiveModel) now() core.Instant { return core.InstantOf(m.clock.Now()) }

// Enqueue implements core.ArchiveQueue.
func (m *ArchiveModel) Enqueue(_ context.Context, requests []core.ArchiveRequest) []core.ArchiveEnqueued {
	m.mu.Lock()
	defer m.mu.Unlock()
	outcomes := make([]core.ArchiveEnqueued, len(requests))
	for i, r := range requests {
		outcomes[i] = m.enqueue(r)
	}
	return outcomes
}

func (m *ArchiveModel) enqueue(r core.ArchiveRequest) core.ArchiveEnqueued {
	if err := r.Validate(); err != nil {
		return core.ArchiveEnqueued{Err: err}
	}
	now := m.now()
	job, deduped := m.jobs[r.JobID()]
	if deduped {
		job, _ = job.Promoted(r.Event, now)
	} else {
		job = core.NewArchiveJob(r, now)
	}
	m.jobs[job.ID] = job
	retired := []string{}
	if job.Status == core.ArchiveReady || job.Status == core.ArchiveLeased {
		retired = m.supersede(job, now)
	}
	return core.ArchiveEnqueued{Job: m.jobs[job.ID], Deduped: deduped, Superseded: retired}
}

func (m *ArchiveModel) supersede(job core.ArchiveJob, now core.Instant) []string {
	winner := job
	for _, o := range m.jobs {
		if o.SourceID() == job.SourceID() && winner.ObservedBefore(o) && o.Archives() {
			winner = o
		}
	}
	retired := []string{}
	for id, o := range m.jobs {
		earlier := o.ObservedBefore(job) || id == job.ID && winner.ID != job.ID
		if o.SourceID() != job.SourceID() || !earlier || !o.Retirable(now) {
			continue
		}
		m.jobs[id] = o.Superseded(winner.ID, now)
		if id != job.ID {
			retired = append(retired, id)
		}
	}
	slices.Sort(retired)
	return retired
}

// Claim implements core.ArchiveQueue. Crash loops that it comes past are
// dead-lettered.
func (m *ArchiveModel) Claim(_ context.Context, c core.ArchiveClaim) (core.ArchiveClaimed, error) {
	if err := c.Validate(); err != nil {
		return core.ArchiveClaimed{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.Lease == 0 {
		c.Lease = m.settings.Lease
	}
	now := m.now()
	claimed := core.ArchiveClaimed{Jobs: []core.ArchiveJob{}, Heartbeat: core.ArchiveHeartbeat(c.Lease)}
	for _, job := range m.byClaimOrder() {
		if len(claimed.Jobs) == c.Max {
			break
		}
		if job.Exhausted(now, m.settings) && !slices.Contains(c.Exclude, job.ID) {
			m.jobs[job.ID] = job.DeadLettered(now)
		}
		if !job.Claimable(now, m.settings) || slices.Contains(c.Exclude, job.ID) || !c.Wants(job) {
			continue
		}
		job = job.Claimed(c.Owner, m.ids.New(), c.Lease, now)
		m.jobs[job.ID], m.leases[job.ID], m.lengths[job.ID] = job, job.Lease.ID, c.Lease
		claimed.Jobs = append(claimed.Jobs, job)
	}
	return claimed, nil
}

func (m *ArchiveModel) byClaimOrder() []core.ArchiveJob {
	jobs := m.all(func(j core.ArchiveJob) bool { _, ok := j.ClaimableAt(); return ok })
	slices.SortFunc(jobs, func(a, b core.ArchiveJob) int {
		at, _ := a.ClaimableAt()
		bt, _ := b.ClaimableAt()
		return cmp.Or(cmp.Compare(at, bt), byEnqueued(a, b))
	})
	return jobs
}

func byEnqueued(a, b core.ArchiveJob) int {
	return cmp.Or(cmp.Compare(a.EnqueuedAt, b.EnqueuedAt), cmp.Compare(a.ID, b.ID))
}

func (m *ArchiveModel) all(keep func(core.ArchiveJob) bool) []core.ArchiveJob {
	jobs := []core.ArchiveJob{}
	for _, j := range m.jobs {
		if keep(j) {
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, byEnqueued)
	return jobs
}

func (m *ArchiveModel) change(id string, decide func(core.ArchiveJob, core.Instant) (core.ArchiveJob, error)) (core.ArchiveJob, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	job, ok := m.jobs[id]
	if !ok {
		return core.ArchiveJob{}, core.RefuseArchiveJobNotFound()
	}
	next, err := decide(job, m.now())
	if err != nil {
		return core.ArchiveJob{}, err
	}
	m.jobs[id] = next
	return next, nil
}

// Renew implements core.ArchiveQueue.
func (m *ArchiveModel) Renew(_ context.Context, id, leaseID string) (core.ArchiveJob, error) {
	return m.change(id, func(j core.ArchiveJob, now core.Instant) (core.ArchiveJob, error) {
		return j.Renewed(leaseID, m.lengths[id], now)
	})
}

// Progress implements core.ArchiveQueue.
func (m *ArchiveModel) Progress(_ context.Context, id, leaseID string, p core.ArchiveProgress) (core.ArchiveJob, error) {
	return m.change(id, func(j core.ArchiveJob, now core.Instant) (core.ArchiveJob, error) {
		return j.Progressed(leaseID, p, m.lengths[id], now)
	})
}

// Complete implements core.ArchiveQueue.
func (m *ArchiveModel) Complete(_ context.Context, c core.ArchiveCompletion) (core.ArchiveCompleted, error) {
	replayed := false
	job, err := m.change(c.ID, func(j core.ArchiveJob, now core.Instant) (core.ArchiveJob, error) {
		if j.Result != nil && j.Result.Same(c.Result) && m.leases[j.ID] == c.LeaseID {
			replayed = true
			return j, nil
		}
		return j.Completed(c.LeaseID, c.Result, now)
	})
	if err != nil {
		return core.ArchiveCompleted{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	snapshot := core.ArchiveSnapshot{Bytes: job.SourceBytes, ModifiedAt: job.SourceModifiedAt}
	if c.Snapshot.Set {
		snapshot = c.Snapshot.Value
	}
	covered := []string{}
	for id, o := range m.jobs {
		if id != job.ID && o.SourceID() == job.SourceID() && o.CoveredBy(snapshot) && o.Retirable(m.now()) {
			m.jobs[id] = o.Covered(job.ID, m.now())
			covered = append(covered, id)
		}
	}
	slices.Sort(covered)
	return core.ArchiveCompleted{Job: job, Superseded: covered, Replayed: replayed}, nil
}

// Release implements core.ArchiveQueue.
func (m *ArchiveModel) Release(_ context.Context, id, leaseID string, reason *core.ArchiveFailure) (core.ArchiveJob, error) {
	return m.change(id, func(j core.ArchiveJob, now core.Instant) (core.ArchiveJob, error) {
		return j.Released(leaseID, reason, now)
	})
}

// Fail implements core.ArchiveQueue.
func (m *ArchiveModel) Fail(_ context.Context, id, leaseID string, f core.ArchiveFailure) (core.ArchiveJob, error) {
	return m.change(id, func(j core.ArchiveJob, now core.Instant) (core.ArchiveJob, error) {
		return j.Failed(leaseID, f, m.settings, now)
	})
}

// Retry implements core.ArchiveQueue.
func (m *ArchiveModel) Retry(_ context.Context, id string) (core.ArchiveJob, error) {
	return m.change(id, core.ArchiveJob.Retried)
}

// Remove implements core.ArchiveQueue.
func (m *ArchiveModel) Remove(_ context.Context, id string) (core.ArchiveJob, error) {
	job, err := m.change(id, core.ArchiveJob.Removed)
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.jobs, id)
	}
	return job, err
}

// Get implements core.ArchiveQueue.
func (m *ArchiveModel) Get(_ context.Context, id string) (core.ArchiveJob, error) {
	return m.change(id, func(j core.ArchiveJob, _ core.Instant) (core.ArchiveJob, error) { return j, nil })
}

// List implements core.ArchiveQueue.
func (m *ArchiveModel) List(_ context.Context, q core.ArchiveQuery) (core.ArchivePage, error) {
	if err := q.Validate(); err != nil {
		return core.ArchivePage{}, err
	}
	from := 0
	if q.Cursor != "" {
		var err error
		if from, err = strconv.Atoi(q.Cursor); err != nil {
			return core.ArchivePage{}, core.Invalid("cursor", "cursor is not one of this list")
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	jobs := m.all(func(j core.ArchiveJob) bool { return q.Status == "" || j.Status == q.Status })
	if q.Status == core.ArchiveDone {
		slices.SortFunc(jobs, func(a, b core.ArchiveJob) int {
			return cmp.Or(cmp.Compare(a.UpdatedAt, b.UpdatedAt), byEnqueued(a, b))
		})
	}
	jobs = jobs[min(from, len(jobs)):]
	page := core.ArchivePage{Jobs: jobs[:min(q.Limit, len(jobs))], Damaged: []string{}}
	if len(jobs) > q.Limit {
		page.Cursor = strconv.Itoa(from + q.Limit)
	}
	return page, nil
}

// Stats implements core.ArchiveQueue.
func (m *ArchiveModel) Stats(context.Context) (core.ArchiveStats, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var s core.ArchiveStats
	for _, j := range m.jobs {
		switch j.Status {
		case core.ArchiveReady:
			s.Ready++
		case core.ArchiveLeased:
			s.Leased++
		case core.ArchiveFailed:
			s.Failed++
		case core.ArchiveDone:
			s.Done++
			if j.Result != nil {
				s.Completed++
			} else if j.SupersededBy != "" {
				s.Superseded++
			}
		}
		s.Claimable = s.Claimable || j.Claimable(m.now(), m.settings)
	}
	return s, nil
}

// HasClaimable implements core.ArchiveQueue.
func (m *ArchiveModel) HasClaimable(ctx context.Context) (bool, error) {
	s, err := m.Stats(ctx)
	return s.Claimable, err
}

// Sweep implements core.ArchiveQueue.
func (m *ArchiveModel) Sweep(context.Context) (core.ArchiveSweep, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var s core.ArchiveSweep
	for id, j := range m.jobs {
		if j.Exhausted(m.now(), m.settings) {
			m.jobs[id] = j.DeadLettered(m.now())
			s.DeadLettered++
		}
	}
	return s, nil
}

// SettleBacklog implements core.ArchiveQueue: there is no other way in.
func (m *ArchiveModel) SettleBacklog(context.Context) (int, error) { return 0, nil }
