package core

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// The bounds of one run of the reflexion sweep.
const (
	reflexionSweepLimit = 2000
	reflexionSweepTime  = 20 * time.Second
)

// ReflexionSweep counts what a sweep did.
type ReflexionSweep struct {
	Pruned  int // forgotten entries deleted
	Decayed int // rules taken down
	Moved   int // entries whose due time was early, or needs none any more
	Lost    int // entries that changed between the sweep's read and its write
	Lag     time.Duration
	More    bool
}

// SweepReflexion deletes what is forgotten and stores the decay of the time
// that passed. Readers see both without it. It may run late, twice at once, or
// never.
func (h *Hub) SweepReflexion(ctx context.Context) (ReflexionSweep, error) {
	started := h.clock.Now()
	run := reflexionSweepRun{hub: h, now: InstantOf(started)}
	position := ""
	for looked := 0; ; {
		page, err := h.reflexion.DueReflexion(ctx, DueScan{Before: run.now, After: position, Limit: MaxListLimit})
		if err != nil {
			return run.counts, fmt.Errorf("read due reflexion entries: %w", err)
		}
		if page.Oldest > 0 && (looked >= reflexionSweepLimit || h.clock.Now().Sub(started) > reflexionSweepTime) {
			run.counts.More, run.counts.Lag = true, run.now.Sub(page.Oldest)
			return run.counts, run.failed
		}
		run.fail(page.Unreadable)
		run.page(ctx, page.Entries)
		looked += len(page.Entries)
		if position = page.Next; position == "" {
			return run.counts, run.failed
		}
	}
}

type reflexionSweepRun struct {
	hub *Hub
	now Instant

	mu     sync.Mutex
	counts ReflexionSweep
	failed error
}

// page settles the entries of a page, many at once. One that fails does not keep
// the others, or later pages, from theirs; the first failure is the run's.
func (r *reflexionSweepRun) page(ctx context.Context, entries []ReflexionEntry) {
	var wait sync.WaitGroup
	slots := make(chan struct{}, sweepParallel)
	for _, e := range entries {
		if e.DueAt == 0 || e.DueAt >= r.now {
			continue // the entry of the index is out of date
		}
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			r.settle(ctx, e)
		})
	}
	wait.Wait()
}

// fail keeps the first failure.
func (r *reflexionSweepRun) fail(err error) {
	if r.failed == nil {
		r.failed = err
	}
}

func (r *reflexionSweepRun) settle(ctx context.Context, e ReflexionEntry) {
	next, forgotten := e.settle(r.now)
	if forgotten {
		done, err := r.hub.reflexion.RemoveReflexion(ctx, e)
		r.count(&r.counts.Pruned, done, err)
		return
	}
	counter := &r.counts.Moved
	if next.Base != e.Base || next.UpdatedAt != e.UpdatedAt {
		counter = &r.counts.Decayed
	}
	// A learnt fix that stood its time is kept until a hit makes it due again.
	if next.DueAt = next.UpdatedAt.Add(e.Type.window()); next.DueAt < r.now && e.Type != ReflexionAdaptive {
		next.DueAt = 0
	}
	write, err := r.hub.reflexion.ChangeReflexion(ctx, ReflexionChange{Seen: e, Next: next, WriteStamp: r.hub.stamp(r.hub.clock.Now())})
	r.count(counter, write.Done, err)
}

func (r *reflexionSweepRun) count(counter *int, done bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.fail(fmt.Errorf("settle reflexion entry: %w", err))
	case done:
		*counter++
	default:
		r.counts.Lost++
	}
}

func (h *Hub) sweepReflexion(ctx context.Context) (SweepReport, error) {
	s, err := h.SweepReflexion(ctx)
	return SweepReport{
		Counts: map[string]int{"pruned": s.Pruned, "decayed": s.Decayed, "moved": s.Moved, "lost": s.Lost},
		Lag:    s.Lag,
		More:   s.More,
	}, err
}
