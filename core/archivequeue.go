package core

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The archive queue holds the intent to archive states of source files and
// leases that work to workers:
//
//	            claim                  complete
//	 ready ───────────────▶ leased ───────────────▶ done
//	  ▲ ▲ ◀── release, fail ──┘ │                    ▲
//	  │ └──────── retry ──┐     │ fail, or lapsed,   │
//	  │                   │     ▼ at maxAttempts     │
//	enqueue             failed                       │
//	  ready, or leased and lapsed ── superseded ─────┘
//
// A lease that lapsed makes the job claimable and changes nothing else: its
// holder may still renew or complete until another claim replaces the lease id.
// The file archivequeue_transitions.go has the arrows, archivequeue_document.go
// the stored form, archivequeue_identity.go what makes two jobs the same.

// ArchiveStatus is where a job stands.
type ArchiveStatus string

// The statuses of a job.
const (
	ArchiveReady  ArchiveStatus = "ready"
	ArchiveLeased ArchiveStatus = "leased"
	ArchiveDone   ArchiveStatus = "done"
	ArchiveFailed ArchiveStatus = "failed" // dead-lettered: only an operator revives it
)

// ArchiveStatuses lists the statuses.
var ArchiveStatuses = []ArchiveStatus{ArchiveReady, ArchiveLeased, ArchiveDone, ArchiveFailed}

// ArchiveManual is the event of a request that a person made: it promotes a
// waiting job that was enqueued by any other event.
const ArchiveManual = "manual"

// The limits of the archive queue's requests.
const (
	MaxArchiveBatch      = 500            // requests an enqueue
	MaxArchiveClaim      = 10             // jobs a claim
	MaxArchiveCandidates = 1000           // candidates a claim looks at
	MaxArchiveExcluded   = 1000           // ids a claim excludes
	MaxArchiveFilters    = 100            // agents or events a claim names
	MaxArchivePathBytes  = 4096           // of a source path
	MaxArchiveTextBytes  = 4096           // of an error's message
	MinArchiveLease      = time.Second    // a claim may ask for
	MaxArchiveLease      = 24 * time.Hour // a claim may ask for
	MaxArchivePage       = 1000           // jobs a page of a list
	DefaultArchivePage   = 50             // jobs a page when none is asked for
	minArchiveHeartbeat  = 10 * time.Millisecond
	maxArchiveHeartbeat  = 60 * time.Second
)

// ArchiveObservation is one state of one source file.
type ArchiveObservation struct {
	Agent            string
	SourcePath       string // absolute
	SourceBytes      int64  // 0 .. 2^53-1
	SourceModifiedAt Instant
}

// ArchiveJob is the intent to archive one observation. Values are never changed
// in place: a transition returns another job.
type ArchiveJob struct {
	ID     string
	Status ArchiveStatus
	ArchiveObservation
	Event         string
	SessionID     Opt[string]
	EnqueuedAt    Instant
	UpdatedAt     Instant
	Attempts      int64 // claims since it was enqueued or retried
	NextAttemptAt Instant
	Lease         *ArchiveLease
	Progress      *ArchiveProgress
	LastError     *ArchiveFailure
	Result        *ArchiveResult
	SupersededBy  string // id of the job that made this one unnecessary

	extra []rawField // fields of the document that this version does not know
}

// ArchiveLease is the right to work on a job. The id is the fence: it changes
// with every claim and with nothing else.
type ArchiveLease struct {
	ID         string
	Owner      string
	AcquiredAt Instant
	ExpiresAt  Instant

	extra []rawField
}

// ArchiveProgress is how far a worker has come, in bytes.
type ArchiveProgress struct {
	Bytes int64
	Of    int64

	extra []rawField
}

// ArchiveFailure is why a job stopped short.
type ArchiveFailure struct {
	Code    string
	Message string

	extra []rawField
}

// Validate refuses malformed progress, with INVALID_ARGUMENT.
func (p ArchiveProgress) Validate() error {
	if err := checkSafe("bytes", p.Bytes); err != nil {
		return err
	}
	return checkSafe("of", p.Of)
}

// Validate refuses a malformed failure, with INVALID_ARGUMENT; field is its
// name in the request.
func (f ArchiveFailure) Validate(field string) error {
	if err := checkID(field+".code", f.Code); err != nil {
		return err
	}
	if len(f.Message) > MaxArchiveTextBytes || !utf8.ValidString(f.Message) {
		return Invalid(field+".message", fmt.Sprintf("%s.message must be UTF-8 of at most %d bytes", field, MaxArchiveTextBytes))
	}
	return nil
}

// ArchiveResult is what a worker made of the source.
type ArchiveResult struct {
	ArchiveID        string
	CiphertextSHA256 string
	Bytes            int64
	CompletedAt      Instant // set by the queue
	Deduplicated     Opt[bool]

	extra []rawField
}

// Validate refuses a malformed result, with INVALID_ARGUMENT.
func (r ArchiveResult) Validate() error {
	if err := checkID("result.archive_id", r.ArchiveID); err != nil {
		return err
	}
	if err := checkID("result.ciphertext_sha256", r.CiphertextSHA256); err != nil {
		return err
	}
	return checkSafe("result.bytes", r.Bytes)
}

func checkSafe(field string, n int64) error {
	if n < 0 || n > maxSafeInteger {
		return Invalid(field, field+" must be from 0 to 2^53-1")
	}
	return nil
}

// Same tells whether two results say the same, apart from when.
func (r ArchiveResult) Same(o ArchiveResult) bool {
	return r.ArchiveID == o.ArchiveID && r.CiphertextSHA256 == o.CiphertextSHA256 &&
		r.Bytes == o.Bytes && r.Deduplicated == o.Deduplicated
}

// ArchiveSettings are the queue's durations and bounds.
type ArchiveSettings struct {
	Lease          time.Duration // how long a claim holds without a heartbeat
	MaxAttempts    int64         // claims after which a failure is final
	Backoff        time.Duration // before the second attempt; doubles with each
	MaxBackoff     time.Duration
	ContentionWait time.Duration // how long an operation tries against others on one job
}

// DefaultArchiveSettings are the reference's.
func DefaultArchiveSettings() ArchiveSettings {
	return ArchiveSettings{
		Lease:          5 * time.Minute,
		MaxAttempts:    5,
		Backoff:        15 * time.Second,
		MaxBackoff:     30 * time.Minute,
		ContentionWait: 10 * time.Second,
	}
}

// ArchiveHeartbeat is how often a worker should renew a lease of that length.
func ArchiveHeartbeat(lease time.Duration) time.Duration {
	third := (lease / 3).Truncate(time.Millisecond)
	return max(minArchiveHeartbeat, min(maxArchiveHeartbeat, third))
}

// backoff is how long a job waits after the failure of its attempts-th claim.
func (s ArchiveSettings) backoff(attempts int64) time.Duration {
	wait := s.Backoff
	for n := int64(1); n < attempts && wait < s.MaxBackoff; n++ {
		wait *= 2
	}
	return min(wait, s.MaxBackoff)
}

// ArchiveRequest asks to archive an observation.
type ArchiveRequest struct {
	ArchiveObservation
	Event     string
	SessionID Opt[string]
}

// Validate refuses what cannot become a job, with INVALID_ARGUMENT.
func (r ArchiveRequest) Validate() error {
	if err := checkID("agent", r.Agent); err != nil {
		return err
	}
	if err := checkArchivePath(r.SourcePath); err != nil {
		return err
	}
	if err := checkSafe("source_bytes", r.SourceBytes); err != nil {
		return err
	}
	if !inYears0To9999(r.SourceModifiedAt) {
		return Invalid("source_modified_at", "source_modified_at must be in the years 0 to 9999")
	}
	if err := checkID("event", r.Event); err != nil {
		return err
	}
	if r.SessionID.Set {
		return checkID("session_id", r.SessionID.Value)
	}
	return nil
}

func checkArchivePath(path string) error {
	switch {
	case path == "":
		return Invalid("source_path", "source_path is required")
	case len(path) > MaxArchivePathBytes:
		return Invalid("source_path", fmt.Sprintf("source_path must be at most %d bytes", MaxArchivePathBytes))
	case !utf8.ValidString(path) || strings.ContainsRune(path, 0):
		return Invalid("source_path", "source_path must be UTF-8 without NUL")
	case !isAbsolutePath(path):
		return Invalid("source_path", "source_path must be absolute")
	}
	return nil
}

// isAbsolutePath knows the paths of every system an agent runs on, whatever
// system the hub runs on: /x, \\host\share and C:\x.
func isAbsolutePath(path string) bool {
	if strings.HasPrefix(path, "/") || strings.HasPrefix(path, `\\`) {
		return true
	}
	if len(path) < 3 || path[1] != ':' || (path[2] != '\\' && path[2] != '/') {
		return false
	}
	drive := path[0] | 0x20
	return 'a' <= drive && drive <= 'z'
}

// ArchiveEnqueued is the outcome of one request of an enqueue.
type ArchiveEnqueued struct {
	Job        ArchiveJob
	Deduped    bool     // the job existed already
	Superseded []string // jobs of the same source that this request retired, sorted
	Err        error    // then nothing else is set
}

// ArchiveClaim asks for work.
type ArchiveClaim struct {
	Owner      string
	Max        int           // 1 .. MaxArchiveClaim
	Lease      time.Duration // zero takes the queue's
	Agents     []string      // only jobs of these; empty takes any
	Events     []string      // only jobs of these; empty takes any
	PathPrefix string        // only jobs whose source path starts so
	Exclude    []string      // ids not to claim
	From       string        // ScannedTo of an earlier claim
}

// Validate refuses a malformed claim, with INVALID_ARGUMENT.
func (c ArchiveClaim) Validate() error {
	if err := checkID("owner", c.Owner); err != nil {
		return err
	}
	switch {
	case c.Max < 1 || c.Max > MaxArchiveClaim:
		return Invalid("max", fmt.Sprintf("max must be from 1 to %d", MaxArchiveClaim))
	case c.Lease != 0 && (c.Lease < MinArchiveLease || c.Lease > MaxArchiveLease):
		return Invalid("lease_ms", fmt.Sprintf("lease_ms must be from %d to %d",
			MinArchiveLease.Milliseconds(), MaxArchiveLease.Milliseconds()))
	case len(c.Agents) > MaxArchiveFilters:
		return Invalid("agents", fmt.Sprintf("agents must be at most %d", MaxArchiveFilters))
	case len(c.Events) > MaxArchiveFilters:
		return Invalid("events", fmt.Sprintf("events must be at most %d", MaxArchiveFilters))
	case len(c.PathPrefix) > MaxArchivePathBytes:
		return Invalid("path_prefix", fmt.Sprintf("path_prefix must be at most %d bytes", MaxArchivePathBytes))
	case len(c.Exclude) > MaxArchiveExcluded:
		return Invalid("exclude", fmt.Sprintf("exclude must be at most %d ids", MaxArchiveExcluded))
	}
	return nil
}

// Filtered tells whether the claim asks for some jobs only.
func (c ArchiveClaim) Filtered() bool {
	return len(c.Agents) > 0 || len(c.Events) > 0 || c.PathPrefix != ""
}

// Wants tells whether the claim's filters take the job. Exclude is not one of
// them: it is decided by the id alone.
func (c ArchiveClaim) Wants(j ArchiveJob) bool {
	return (len(c.Agents) == 0 || slices.Contains(c.Agents, j.Agent)) &&
		(len(c.Events) == 0 || slices.Contains(c.Events, j.Event)) &&
		strings.HasPrefix(j.SourcePath, c.PathPrefix)
}

// ArchiveClaimed is what a claim got.
type ArchiveClaimed struct {
	Jobs      []ArchiveJob
	Heartbeat time.Duration // how often to renew
	// ScannedTo is set when the claim stopped at MaxArchiveCandidates before it
	// had seen every candidate: send it back as From to go on there.
	ScannedTo string
}

// ArchiveSnapshot is what a worker really read of the source.
type ArchiveSnapshot struct {
	Bytes      int64
	ModifiedAt Instant
}

// ArchiveCompletion ends a lease with a result.
type ArchiveCompletion struct {
	ID      string
	LeaseID string
	Result  ArchiveResult // CompletedAt is ignored
	// Snapshot is what the worker read; without one, the job's own observation.
	Snapshot Opt[ArchiveSnapshot]
}

// Validate refuses a malformed completion, with INVALID_ARGUMENT.
func (c ArchiveCompletion) Validate() error {
	if err := c.Result.Validate(); err != nil || !c.Snapshot.Set {
		return err
	}
	if !inYears0To9999(c.Snapshot.Value.ModifiedAt) {
		return Invalid("source_snapshot.modified_at", "source_snapshot.modified_at must be in the years 0 to 9999")
	}
	return checkSafe("source_snapshot.bytes", c.Snapshot.Value.Bytes)
}

// ArchiveCompleted is the outcome of a completion.
type ArchiveCompleted struct {
	Job        ArchiveJob
	Superseded []string // jobs that the snapshot covered, sorted
	Replayed   bool     // the same lease had completed it with the same result
}

// ArchiveQuery asks for a page of jobs.
type ArchiveQuery struct {
	Status ArchiveStatus // empty: all
	Limit  int           // 1 .. MaxArchivePage
	Cursor string
}

// Validate refuses a malformed query, with INVALID_ARGUMENT.
func (q ArchiveQuery) Validate() error {
	switch q.Status {
	case "", ArchiveReady, ArchiveLeased, ArchiveDone, ArchiveFailed:
	default:
		return Invalid("status", "status must be ready, leased, done or failed")
	}
	if q.Limit < 1 || q.Limit > MaxArchivePage {
		return Invalid("limit", fmt.Sprintf("limit must be from 1 to %d", MaxArchivePage))
	}
	return nil
}

// ArchivePage is a page of jobs, ordered by EnqueuedAt then id; the done ones
// alone by when they were settled.
type ArchivePage struct {
	Jobs    []ArchiveJob
	Damaged []string // documents of this page that cannot be read, by name
	Cursor  string   // empty at the end
}

// ArchiveStats counts the jobs.
type ArchiveStats struct {
	Ready, Leased, Done, Failed int
	Completed                   int      // done with a result
	Superseded                  int      // done without one, because of another job
	Damaged                     []string // names met so far; not in any other count
	Claimable                   bool
}

// Total is the number of readable jobs.
func (s ArchiveStats) Total() int { return s.Ready + s.Leased + s.Done + s.Failed }

// ArchiveSweep is what one run of the queue's sweep did.
type ArchiveSweep struct {
	DeadLettered int           // leases that lapsed after the last attempt
	Moved        int           // early hints that were put at the lease's end
	Cleaned      int           // stale hints that were removed
	Healed       int           // damaged documents that can be read again
	Counted      int           // done jobs that the roll-up took in
	Retired      int           // superseded jobs that an import had brought
	Lag          time.Duration // age of the oldest crash loop left undone
	More         bool          // it stopped at its bound
}

// ArchiveQueue is the queue: any number of processes may use one at once.
//
// Every method fails with UNAVAILABLE, OUTCOME_UNKNOWN or THROTTLED when the
// store does, with queue_contention when others kept changing the same job for
// ArchiveSettings.ContentionWait, and with queue_job_damaged when the job's
// document cannot be read. A refusal about a job carries it as Error.Data.
type ArchiveQueue interface {
	// Enqueue makes a job for each request unless it exists; one outcome for
	// each, in order. One bad request does not fail the others.
	Enqueue(ctx context.Context, requests []ArchiveRequest) []ArchiveEnqueued
	// Claim leases up to Max claimable jobs, earliest claimable first.
	Claim(ctx context.Context, c ArchiveClaim) (ArchiveClaimed, error)
	// Renew extends the lease from now by its own length.
	// Refusals: queue_job_not_found, queue_lease_invalid.
	Renew(ctx context.Context, id, leaseID string) (ArchiveJob, error)
	// Progress records how far the work is and renews. Refusals as Renew.
	Progress(ctx context.Context, id, leaseID string, p ArchiveProgress) (ArchiveJob, error)
	// Complete ends the lease with a result and settles what it covers. A
	// repeated completion answers Replayed. Refusals as Renew.
	Complete(ctx context.Context, c ArchiveCompletion) (ArchiveCompleted, error)
	// Release gives the work back without using up an attempt. Refusals as Renew.
	Release(ctx context.Context, id, leaseID string, reason *ArchiveFailure) (ArchiveJob, error)
	// Fail gives the work back to be tried after the back-off, or dead-letters
	// it after the last attempt. Refusals as Renew.
	Fail(ctx context.Context, id, leaseID string, f ArchiveFailure) (ArchiveJob, error)
	// Retry makes a waiting or dead-lettered job claimable now.
	// Refusals: queue_job_not_found, queue_job_done, queue_job_leased.
	Retry(ctx context.Context, id string) (ArchiveJob, error)
	// Remove deletes a job that nobody works on and answers it as it was, marked
	// failed with the code "removed". Refusals as Retry.
	Remove(ctx context.Context, id string) (ArchiveJob, error)

	// Get reads one job. Refusal: queue_job_not_found.
	Get(ctx context.Context, id string) (ArchiveJob, error)
	// List reads a page of jobs.
	List(ctx context.Context, q ArchiveQuery) (ArchivePage, error)
	// Stats counts the jobs.
	Stats(ctx context.Context) (ArchiveStats, error)
	// HasClaimable tells whether a claim would get a job.
	HasClaimable(ctx context.Context) (bool, error)

	// Sweep dead-letters crash loops, tidies hints and keeps the count of done
	// jobs. Nothing depends on it but the cost of the other methods.
	Sweep(ctx context.Context) (ArchiveSweep, error)
	// SettleBacklog retires the superseded jobs that an import brought, once
	// after each import; it answers how many. The sweep does it too.
	SettleBacklog(ctx context.Context) (int, error)
}

func (h *Hub) sweepArchive(ctx context.Context) (SweepReport, error) {
	s, err := h.archive.Sweep(ctx)
	return SweepReport{
		Counts: map[string]int{"dead_lettered": s.DeadLettered, "moved": s.Moved, "cleaned": s.Cleaned,
			"healed": s.Healed, "counted": s.Counted, "retired": s.Retired},
		Lag:  s.Lag,
		More: s.More,
	}, err
}
