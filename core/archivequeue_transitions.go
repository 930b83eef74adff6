package core

import "time"

// The transitions of a job. Each takes the job as it is stored and the time,
// and returns the job as it should be stored, or a refusal that carries the
// stored job. Whoever stores the answer must do so only where the job is still
// the one that was given.

// The codes that the queue itself puts into LastError.
const (
	ArchiveLeaseExhausted = "lease_exhausted" // the last attempt's lease lapsed
	ArchiveRemoved        = "removed"         // an operator removed the job
)

// NewArchiveJob is the job of a request that nobody has made before.
func NewArchiveJob(r ArchiveRequest, now Instant) ArchiveJob {
	return ArchiveJob{
		ID:                 r.JobID(),
		Status:             ArchiveReady,
		ArchiveObservation: r.ArchiveObservation,
		Event:              r.Event,
		SessionID:          r.SessionID,
		EnqueuedAt:         now,
		UpdatedAt:          now,
		NextAttemptAt:      now,
	}
}

// Lapsed tells whether the job is leased but its lease no longer keeps others
// away: it has expired, or the document has none.
func (j ArchiveJob) Lapsed(now Instant) bool {
	return j.Status == ArchiveLeased && (j.Lease == nil || j.Lease.ExpiresAt <= now)
}

// ClaimableAt is the moment from which the job can be claimed; ok is false for
// a job that no passing of time makes claimable.
func (j ArchiveJob) ClaimableAt() (at Instant, ok bool) {
	switch {
	case j.Status == ArchiveReady:
		return j.NextAttemptAt, true
	case j.Status == ArchiveLeased && j.Lease != nil:
		return j.Lease.ExpiresAt, true
	case j.Status == ArchiveLeased:
		return j.UpdatedAt, true
	}
	return 0, false
}

// Exhausted tells whether the job is a crash loop: its lease lapsed in the last
// attempt, so that it is dead-lettered instead of claimed.
func (j ArchiveJob) Exhausted(now Instant, s ArchiveSettings) bool {
	return j.Lapsed(now) && j.Attempts >= s.MaxAttempts
}

// Claimable tells whether a claim may take the job.
func (j ArchiveJob) Claimable(now Instant, s ArchiveSettings) bool {
	return j.due(now) && !j.Exhausted(now, s)
}

func (j ArchiveJob) due(now Instant) bool {
	return j.Lapsed(now) || j.Status == ArchiveReady && j.NextAttemptAt <= now
}

// Retirable tells whether another job may settle this one: nobody works on it.
func (j ArchiveJob) Retirable(now Instant) bool {
	return j.Status == ArchiveReady || j.Lapsed(now)
}

// Archives tells whether the job has archived its observation or is still
// going to, so that it may retire the earlier ones of its source. A failed job
// may never succeed; a superseded one leaves it to its own successor.
func (j ArchiveJob) Archives() bool {
	return j.Status == ArchiveReady || j.Status == ArchiveLeased ||
		j.Status == ArchiveDone && j.Result != nil
}

// Promoted is the job after another request for it: a manual one leaves its
// mark on a job that waits. changed is false when the job stays as it is.
func (j ArchiveJob) Promoted(event string, now Instant) (next ArchiveJob, changed bool) {
	waiting := j.Status == ArchiveReady || j.Status == ArchiveFailed
	if !waiting || event != ArchiveManual || j.Event == ArchiveManual {
		return j, false
	}
	j.Event, j.UpdatedAt = event, now
	return j, true
}

// Claimed is the job under a new lease. It must be Claimable.
func (j ArchiveJob) Claimed(owner, leaseID string, lease time.Duration, now Instant) ArchiveJob {
	j.Status = ArchiveLeased
	j.Attempts = min(j.Attempts+1, maxSafeInteger)
	j.Lease = &ArchiveLease{ID: leaseID, Owner: owner, AcquiredAt: now, ExpiresAt: now.Add(lease)}
	j.UpdatedAt = now
	return j
}

// DeadLettered is the job after its last attempt's lease lapsed. It must be
// Exhausted.
func (j ArchiveJob) DeadLettered(now Instant) ArchiveJob {
	j.Status, j.Lease, j.UpdatedAt = ArchiveFailed, nil, now
	j.LastError = &ArchiveFailure{Code: ArchiveLeaseExhausted, Message: "the lease of the last attempt lapsed"}
	return j
}

// held refuses an operation of a worker whose lease is not the job's. Only the
// id decides: while nobody else claimed the job, an expired lease still holds.
func (j ArchiveJob) held(leaseID string) error {
	if j.Status != ArchiveLeased || j.Lease == nil || j.Lease.ID != leaseID {
		return refuseArchive(CodeQueueLeaseInvalid, "the job is not under this lease", j)
	}
	return nil
}

// Renewed is the job with its lease extended from now.
func (j ArchiveJob) Renewed(leaseID string, lease time.Duration, now Instant) (ArchiveJob, error) {
	if err := j.held(leaseID); err != nil {
		return j, err
	}
	extended := *j.Lease
	extended.ExpiresAt = now.Add(lease)
	j.Lease, j.UpdatedAt = &extended, now
	return j, nil
}

// Progressed is the job with the progress and its lease extended from now.
func (j ArchiveJob) Progressed(leaseID string, p ArchiveProgress, lease time.Duration, now Instant) (ArchiveJob, error) {
	next, err := j.Renewed(leaseID, lease, now)
	if err != nil {
		return j, err
	}
	if j.Progress != nil {
		p.extra = j.Progress.extra
	}
	next.Progress = &p
	return next, nil
}

// Completed is the job with a result.
func (j ArchiveJob) Completed(leaseID string, r ArchiveResult, now Instant) (ArchiveJob, error) {
	if err := j.held(leaseID); err != nil {
		return j, err
	}
	r.CompletedAt = now
	j.Status, j.Lease, j.LastError, j.Result, j.UpdatedAt = ArchiveDone, nil, nil, &r, now
	return j, nil
}

// Released is the job given back: the attempt does not count. Without a reason
// the last error stays.
func (j ArchiveJob) Released(leaseID string, reason *ArchiveFailure, now Instant) (ArchiveJob, error) {
	if err := j.held(leaseID); err != nil {
		return j, err
	}
	j.Status, j.Lease, j.UpdatedAt = ArchiveReady, nil, now
	j.Attempts = max(0, j.Attempts-1)
	if reason != nil {
		j.LastError = reason
	}
	return j, nil
}

// Failed is the job after a failed attempt: waiting for the next one, or
// dead-lettered after the last.
func (j ArchiveJob) Failed(leaseID string, f ArchiveFailure, s ArchiveSettings, now Instant) (ArchiveJob, error) {
	if err := j.held(leaseID); err != nil {
		return j, err
	}
	j.Lease, j.LastError, j.UpdatedAt = nil, &f, now
	if j.Attempts >= s.MaxAttempts {
		j.Status = ArchiveFailed
		return j, nil
	}
	j.Status = ArchiveReady
	j.NextAttemptAt = now.Add(s.backoff(j.Attempts))
	return j, nil
}

// Retried is the job made claimable now, its attempts forgotten.
func (j ArchiveJob) Retried(now Instant) (ArchiveJob, error) {
	switch j.Status {
	case ArchiveDone:
		return j, refuseArchive(CodeQueueJobDone, "a done job cannot be retried", j)
	case ArchiveLeased:
		return j, refuseArchive(CodeQueueJobLeased, "a leased job cannot be retried", j)
	case ArchiveReady, ArchiveFailed:
	}
	j.Status, j.Attempts, j.NextAttemptAt, j.Lease, j.UpdatedAt = ArchiveReady, 0, now, nil, now
	return j, nil
}

// Removed is what a removal answers, and what stands in the job's place until
// it is gone: failed, so that no worker takes it any more.
func (j ArchiveJob) Removed(now Instant) (ArchiveJob, error) {
	if j.Status == ArchiveDone {
		return j, refuseArchive(CodeQueueJobDone, "a done job cannot be removed", j)
	}
	if j.Status == ArchiveLeased && !j.Lapsed(now) {
		return j, refuseArchive(CodeQueueJobLeased, "a job under a live lease cannot be removed", j)
	}
	j.Status = ArchiveFailed
	j.LastError = &ArchiveFailure{Code: ArchiveRemoved, Message: "removed by an operator"}
	return j, nil
}

// Superseded is the job settled by a later observation of its source. It must
// be Retirable.
func (j ArchiveJob) Superseded(winner string, now Instant) ArchiveJob {
	j.Status, j.Lease, j.SupersededBy, j.UpdatedAt = ArchiveDone, nil, winner, now
	return j
}

// Covered is the job settled by a completion that archived all it would have.
// It must be Retirable.
func (j ArchiveJob) Covered(completed string, now Instant) ArchiveJob {
	j = j.Superseded(completed, now)
	j.Progress, j.LastError = nil, nil
	return j
}

func refuseArchive(code Code, message string, j ArchiveJob) error {
	return &Error{Code: code, Message: message, Data: j}
}

// RefuseArchiveJobNotFound is the refusal of an id that no job has.
func RefuseArchiveJobNotFound() error {
	return Refuse(CodeQueueJobNotFound, "there is no job with this id")
}
