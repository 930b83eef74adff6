package core

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// MessageSweep counts what a sweep of the messages did.
type MessageSweep struct {
	DeadLettered int
	Lost         int // expired ones that somebody else settled first
	Resumed      int // fan-outs it finished
	// Depth is the roll-up; absent where it could not count them all.
	Depth Opt[MessageCounts]
	Lag   time.Duration
	More  bool // it stopped at its bound
}

// The bounds of one run of the message sweep.
const (
	messageSweepLimit  = 20_000 // deliveries it looks at
	messageSweepTime   = 20 * time.Second
	messageSweepPage   = 100
	messageSweepShards = 8 // shards it works on at once
)

// SweepMessages makes dead letters of what has expired, resumes fan-outs that
// were left half done and counts what is pending (contract 5.6, compat 10). The
// write that makes a dead letter decides, so it is safe beside drains, acks,
// redrives and another sweep, and it may die anywhere: the next run goes on.
func (h *Hub) SweepMessages(ctx context.Context) (MessageSweep, error) {
	started := h.clock.Now()
	run := messageSweepRun{hub: h, now: InstantOf(started), started: started}
	messages, fanouts := h.messages.MessageShards()
	run.shards(fanouts, func(shard int) error { return run.resume(ctx, shard) })
	run.shards(messages, func(shard int) error { return run.expire(ctx, shard) })
	run.count(ctx)
	return run.counts, run.failed
}

// messageSweepRun is one run of the message sweep.
type messageSweepRun struct {
	hub     *Hub
	now     Instant // one moment for the whole run
	started time.Time

	mu     sync.Mutex
	looked int
	counts MessageSweep
	failed error
}

// shards runs work for every shard, some at once. A shard that fails does not
// keep the others from their work.
func (r *messageSweepRun) shards(n int, work func(shard int) error) {
	var wait sync.WaitGroup
	slots := make(chan struct{}, messageSweepShards)
	for shard := range n {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			if err := work(shard); err != nil {
				r.fail(err, r.now)
			}
		})
	}
	wait.Wait()
}

// fail keeps the first failure, and how far behind it leaves the sweep.
func (r *messageSweepRun) fail(err error, oldest Instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Lag = max(r.counts.Lag, r.now.Sub(oldest))
	if r.failed == nil {
		r.failed = err
	}
}

// look counts n more deliveries, and tells whether the run may go on.
func (r *messageSweepRun) look(n int, oldest Instant) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.looked < messageSweepLimit && r.hub.clock.Now().Sub(r.started) <= messageSweepTime {
		r.looked += n
		return true
	}
	r.counts.More = true
	r.counts.Lag = max(r.counts.Lag, r.now.Sub(oldest))
	return false
}

func (r *messageSweepRun) expire(ctx context.Context, shard int) error {
	after := ""
	for {
		page, err := r.hub.messages.DueMessages(ctx, shard, r.now, after, messageSweepPage)
		if err != nil {
			return fmt.Errorf("read expired messages: %w", err)
		}
		if page.Oldest == 0 || !r.look(len(page.Deliveries), page.Oldest) {
			return nil
		}
		if page.Unreadable != nil {
			r.fail(page.Unreadable, page.Oldest)
		}
		var due []Delivery
		for _, d := range page.Deliveries {
			if d.live() && d.Expired(r.now) {
				due = append(due, d)
			}
		}
		dead, err := r.hub.expire(ctx, due, recoveryPeriodic)
		r.add(MessageSweep{DeadLettered: dead, Lost: len(page.Deliveries) - dead})
		if err != nil {
			r.fail(err, page.Oldest)
		}
		if after = page.Next; after == "" {
			return nil
		}
	}
}

func (r *messageSweepRun) resume(ctx context.Context, shard int) error {
	after := ""
	for {
		page, err := r.hub.messages.DueFanouts(ctx, shard, r.now, after, messageSweepPage)
		if err != nil {
			return fmt.Errorf("read fan-outs to resume: %w", err)
		}
		if page.Oldest == 0 || !r.look(len(page.Deliveries), page.Oldest) {
			return nil
		}
		if page.Unreadable != nil {
			r.fail(page.Unreadable, page.Oldest)
		}
		for _, record := range page.Deliveries {
			if record.State != DeliveryFanning {
				continue
			}
			if err := r.hub.resumeFanout(ctx, record.ID); err != nil {
				r.fail(err, page.Oldest)
				continue
			}
			r.add(MessageSweep{Resumed: 1})
		}
		if after = page.Next; after == "" {
			return nil
		}
	}
}

func (r *messageSweepRun) add(c MessageSweep) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.DeadLettered += c.DeadLettered
	r.counts.Lost += c.Lost
	r.counts.Resumed += c.Resumed
}

// count rolls up the depths. Readers keep the previous ones when it fails.
func (r *messageSweepRun) count(ctx context.Context) {
	counts, complete, err := r.hub.messages.CountMessages(ctx, r.now)
	if err == nil && complete {
		err = r.hub.messages.StoreCounts(ctx, counts)
		r.counts.Depth = Some(counts)
	}
	r.counts.More = r.counts.More || !complete
	if err != nil && r.failed == nil {
		r.failed = fmt.Errorf("count messages: %w", err)
	}
}

func (h *Hub) sweepMessages(ctx context.Context) (SweepReport, error) {
	s, err := h.SweepMessages(ctx)
	counts := map[string]int{"dead_lettered": s.DeadLettered, "lost": s.Lost, "resumed": s.Resumed}
	if depth := s.Depth.Value; s.Depth.Set {
		counts["pending"], counts["dead_letters"] = int(depth.Urgent+depth.Normal), int(depth.DeadLetters)
	}
	return SweepReport{Counts: counts, Lag: s.Lag, More: s.More}, err
}
