package core

import (
	"context"
	"fmt"
	"time"
)

// JobSweep counts what a sweep of the assignments did.
type JobSweep struct {
	TimedOut   int // attempts whose deadline had passed
	Retried    int // of those, jobs that got another attempt
	Dispatched int // retries whose delay was over
	Moved      int // due entries that were early
	Lost       int // due ones that somebody else moved on first
	Counted    int // jobs in the roll-up
	Lag        time.Duration
	More       bool
}

// SweepJobs moves on the jobs that are due and counts all of them by status.
// Every step is a write that decides by itself, so the sweep is safe beside
// reports, cancels and another sweep, and may die anywhere.
func (h *Hub) SweepJobs(ctx context.Context) (JobSweep, error) {
	run := newDueRun(h)
	var counts JobSweep
	run.shards(h.jobs.JobShards(), func(shard int, after string) (duePage, error) {
		page, err := h.jobs.DueJobs(ctx, shard, run.now, after, sweepPage)
		if err != nil {
			return duePage{}, fmt.Errorf("read due jobs: %w", err)
		}
		return duePage{page.Oldest, page.Next, len(page.Jobs), func(i int) error {
			return h.sweepJob(ctx, page.Jobs[i], run, &counts)
		}, page.Unreadable}, nil
	})
	counts.Lag, counts.More = run.lag, run.more
	if err := h.countJobs(ctx, run.now, &counts); err != nil && run.failed == nil {
		run.failed = err
	}
	return counts, run.failed
}

func (h *Hub) sweepJob(ctx context.Context, job Job, run *dueRun, counts *JobSweep) error {
	if job.DueAt() > run.now {
		// The entry is early: a deadline moved later and left it where it was.
		step := h.jobStep(job, run.started)
		step.next.UpdatedAt = job.UpdatedAt
		saved, err := h.jobs.SaveJob(ctx, step.change())
		if err != nil {
			return fmt.Errorf("move due entry: %w", err)
		}
		run.count(func() {
			if saved.Done {
				counts.Moved++
			} else {
				counts.Lost++
			}
		})
		return nil
	}
	done, err := h.settleJob(ctx, job)
	if CodeOf(err) == CodeAssignNotFound {
		err = nil // collected since
	}
	run.count(func() {
		counts.TimedOut += done.timedOut
		counts.Retried += done.retried
		counts.Dispatched += done.dispatched
		counts.Moved += done.rearmed
		if err == nil && done.timedOut+done.dispatched+done.rearmed == 0 {
			counts.Lost++
		}
	})
	return err
}

// countJobs rolls up the counts. Readers keep the previous ones when it fails.
func (h *Hub) countJobs(ctx context.Context, now Instant, counts *JobSweep) error {
	found, complete, err := h.jobs.CountJobs(ctx, now)
	counts.More = counts.More || !complete
	if err == nil && complete {
		counts.Counted = int(found.Queued + found.Running + found.Failed + found.TimedOut)
		err = h.jobs.StoreJobCounts(ctx, found)
	}
	if err != nil {
		return fmt.Errorf("count jobs: %w", err)
	}
	return nil
}

func (h *Hub) sweepAssignments(ctx context.Context) (SweepReport, error) {
	s, err := h.SweepJobs(ctx)
	return SweepReport{
		Counts: map[string]int{
			"timed_out": s.TimedOut, "retried": s.Retried, "dispatched": s.Dispatched, "moved": s.Moved,
			"lost": s.Lost, "counted": s.Counted,
		},
		Lag: s.Lag, More: s.More,
	}, err
}
