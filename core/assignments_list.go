package core

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// JobQuery asks for a page of the jobs, newest first. A filter that is not set
// keeps everything.
type JobQuery struct {
	Supervisor    string
	Worker        string
	Status        string
	Statuses      []string // wins over Status when it is not empty
	TraceID       string
	CorrelationID string
	// ActiveBefore keeps active jobs whose deadline is at or before it.
	ActiveBefore Opt[int64]
	Limit        int // 1..100; 0: 50
	Cursor       string
	Fences       Fences // the generation is not read
}

// JobList is a page of jobs. With a filter it may hold fewer than asked, or
// none, and still have a next page.
type JobList struct {
	Jobs       []Job
	NextCursor string // "" at the end
}

// JobScan asks for a page of jobs by the one key that is set; by Statuses when
// none is.
type JobScan struct {
	Supervisor, Worker, TraceID, CorrelationID string
	Statuses                                   []JobStatus // stored ones
	Before                                     string      // position of a previous page
	Limit                                      int
}

// JobPage is a page of jobs. Each position is the one to continue from when its
// job is the last a reader took.
type JobPage struct {
	Jobs      []Job
	Positions []string
	Next      string // position to continue from after all of them; "" at the end
}

// maxJobLook bounds the jobs that one page looks at.
const maxJobLook = 1000

// Jobs lists jobs by the most telling key of the query, and never looks at
// others. A job that is due reads as what the clock has made of it. A page also
// ends before it exceeds MaxDrainBytes, and at 1,000 jobs looked at. Cost: 2
// round trips for 50 or 100 jobs that all match.
//
// Errors: INVALID_ARGUMENT naming the field.
func (h *Hub) Jobs(ctx context.Context, q JobQuery) (JobList, error) {
	statuses, err := q.validate()
	if err != nil {
		return JobList{}, err
	}
	if _, err := h.checkIdentity(ctx, q.Fences); err != nil {
		return JobList{}, err
	}
	if q.Limit == 0 {
		q.Limit = DefaultListLimit
	}
	take := jobTaking{query: q, statuses: statuses, now: InstantOf(h.clock.Now())}
	scan := q.scan(statuses)
	if q.Cursor != "" {
		if scan.Before, err = decodeCursor(q.cursorKind(), q.Cursor); err != nil {
			return JobList{}, err
		}
	}
	last := scan.Before
	for looked := 0; looked < maxJobLook && !take.full; {
		page, err := h.jobs.ListJobs(ctx, scan)
		if err != nil {
			return JobList{}, fmt.Errorf("list jobs: %w", err)
		}
		last = take.page(page, last)
		looked += len(page.Jobs)
		if scan.Before = page.Next; page.Next == "" {
			break
		}
		scan.Limit = MaxListLimit
	}
	list := JobList{Jobs: take.jobs}
	if last != "" {
		list.NextCursor = encodeCursor(q.cursorKind(), last)
	}
	if err := h.jobs.LoadJobs(ctx, list.Jobs); err != nil {
		return JobList{}, fmt.Errorf("load jobs: %w", err)
	}
	return list, nil
}

func (q JobQuery) validate() ([]JobStatus, error) {
	for field, id := range map[string]string{
		"supervisor_agent": q.Supervisor, "worker_agent": q.Worker, "trace_id": q.TraceID, "correlation_id": q.CorrelationID,
	} {
		if id != "" {
			if err := checkID(field, id); err != nil {
				return nil, err
			}
		}
	}
	if q.Limit < 0 || q.Limit > MaxListLimit {
		return nil, Invalid("limit", fmt.Sprintf("limit must be 1 to %d", MaxListLimit))
	}
	field, words := "statuses", q.Statuses
	if len(words) == 0 && q.Status != "" {
		field, words = "status", []string{q.Status}
	}
	var statuses []JobStatus
	for _, word := range words {
		status := JobStatus(word)
		if !slices.Contains(JobStatuses, status) {
			return nil, Invalid(field, fmt.Sprintf("%s must be of %v", field, JobStatuses))
		}
		if !slices.Contains(statuses, status) {
			statuses = append(statuses, status)
		}
	}
	return statuses, nil
}

// scan chooses the key: a correlation or a trace names few jobs, a worker fewer
// than its supervisor.
func (q JobQuery) scan(statuses []JobStatus) JobScan {
	scan := JobScan{Limit: q.Limit}
	switch {
	case q.CorrelationID != "":
		scan.CorrelationID = q.CorrelationID
	case q.TraceID != "":
		scan.TraceID = q.TraceID
	case q.Worker != "":
		scan.Worker = q.Worker
	case q.Supervisor != "":
		scan.Supervisor = q.Supervisor
	case q.ActiveBefore.Set:
		scan.Statuses = []JobStatus{JobQueued, JobRunning}
	default:
		scan.Statuses = storedStatuses(statuses)
	}
	return scan
}

// storedStatuses are the statuses under which jobs may be stored that read as
// one of these: one that is stored active may have timed out, and wait for its
// retry, without anybody having met it.
func storedStatuses(wanted []JobStatus) []JobStatus {
	if len(wanted) == 0 {
		return JobStatuses
	}
	stored := slices.Clone(wanted)
	for _, status := range wanted {
		switch status {
		case JobTimedOut:
			stored = append(stored, JobQueued, JobRunning)
		case JobQueued:
			stored = append(stored, JobRunning)
		}
	}
	slices.Sort(stored)
	return slices.Compact(stored)
}

func (q JobQuery) cursorKind() string {
	return strings.Join([]string{
		"jobs", q.Supervisor, q.Worker, q.Status, strings.Join(q.Statuses, ","), q.TraceID, q.CorrelationID, fmt.Sprint(q.ActiveBefore),
	}, "\x00")
}

// jobTaking fills a page.
type jobTaking struct {
	query    JobQuery
	statuses []JobStatus
	now      Instant
	jobs     []Job
	size     PayloadSize
	full     bool
}

// page keeps what matches and fits, and tells where the next page begins.
func (t *jobTaking) page(page JobPage, last string) string {
	for i, job := range page.Jobs {
		shown := job.asOf(t.now)
		if t.matches(shown) {
			next := shown.size()
			size := PayloadSize{Answer: t.size.Answer + next.Answer, Framed: t.size.Framed + next.Framed}
			over := size.Answer > MaxDrainBytes || size.Framed > maxFramedBytes
			if len(t.jobs) == t.query.Limit || over && len(t.jobs) > 0 {
				t.full = true
				return last
			}
			t.jobs, t.size = append(t.jobs, shown), size
		}
		last = page.Positions[i]
	}
	t.full = len(t.jobs) == t.query.Limit
	return page.Next
}

func (t *jobTaking) matches(j Job) bool {
	q := t.query
	for _, want := range []struct{ given, is string }{
		{q.Supervisor, j.Supervisor}, {q.Worker, j.Worker}, {q.TraceID, j.TraceID}, {q.CorrelationID, j.CorrelationID},
	} {
		if want.given != "" && want.given != want.is {
			return false
		}
	}
	if q.ActiveBefore.Set && (j.Status.Final() || j.Deadline > Instant(q.ActiveBefore.Value)) {
		return false
	}
	return len(t.statuses) == 0 || slices.Contains(t.statuses, j.Status)
}

// asOf is the job as a reader sees it at now: with its deadline passed it has
// timed out, and where a retry is left it waits for the next attempt, which is the
// fence of reports from then on. What a write adds to that (the outcome, the next
// message and its deadline) is not there yet.
func (j Job) asOf(now Instant) Job {
	if j.RetryAt > 0 || !j.due(now) {
		return j
	}
	if j.RetryCount >= j.MaxRetries || j.HoldTimeouts {
		j.Status, j.CompletedAt, j.Deadline = JobTimedOut, j.Deadline, 0
		return j
	}
	j.Status = JobQueued
	j.Attempt++
	j.RetryCount++
	j.StartedAt, j.DispatchedAt, j.LastMessageID = 0, 0, ""
	return j
}
