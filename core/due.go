package core

import (
	"sync"
	"sync/atomic"
	"time"
)

// The bounds of one run of a sweep over due entries.
const (
	sweepLimit  = 10_000 // entries it looks at
	sweepTime   = 20 * time.Second
	sweepPage   = 100
	sweepShards = 8 // shards it works on at once
)

// dueRun is one run of a sweep over sharded due entries. A shard or an entry
// that fails does not keep the others from their work; the first failure is the
// run's.
type dueRun struct {
	hub     *Hub
	now     Instant // one moment for the whole run
	started time.Time

	mu     sync.Mutex
	looked int
	lag    time.Duration
	more   bool
	failed error
}

// duePage is a page of due entries and what to do with each.
type duePage struct {
	oldest Instant // the first entry's deadline; 0 when there is none
	next   string
	items  int
	work   func(i int) error
	// unreadable is the error of an item that the page had to leave out.
	unreadable error
}

func newDueRun(h *Hub) *dueRun {
	started := h.clock.Now()
	return &dueRun{hub: h, now: InstantOf(started), started: started}
}

// shards goes through the pages of every shard, some shards at once.
func (r *dueRun) shards(n int, read func(shard int, after string) (duePage, error)) {
	_ = inParallel(n, sweepShards, func(shard int) error {
		after := ""
		for {
			page, err := read(shard, after)
			if err != nil {
				r.fail(err, page.oldest)
				return nil
			}
			if page.oldest == 0 || !r.look(page) {
				return nil
			}
			if page.unreadable != nil {
				r.fail(page.unreadable, page.oldest)
			}
			if err := inParallel(page.items, sweepParallel, page.work); err != nil {
				r.fail(err, page.oldest)
			}
			if after = page.next; after == "" {
				return nil
			}
		}
	})
}

// look counts a page in, and tells whether the run may go on.
func (r *dueRun) look(page duePage) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.looked < sweepLimit && r.hub.clock.Now().Sub(r.started) <= sweepTime {
		r.looked += page.items
		return true
	}
	r.more = true
	r.lag = max(r.lag, r.now.Sub(page.oldest))
	return false
}

func (r *dueRun) fail(err error, oldest Instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if oldest > 0 {
		r.lag = max(r.lag, r.now.Sub(oldest))
	}
	if r.failed == nil {
		r.failed = err
	}
}

// count changes what the sweep counts.
func (r *dueRun) count(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// inParallel runs fn for 0..n-1, at most width at once, all of them whatever
// fails, and returns the first failure.
func inParallel(n, width int, fn func(i int) error) error {
	var next atomic.Int64
	var wait sync.WaitGroup
	var mu sync.Mutex
	var failed error
	width = min(n, width)
	for first := range width { // fixed, so that only who is done sooner decides the rest
		wait.Go(func() {
			for i := first; i < n; i = width + int(next.Add(1)) - 1 {
				if err := fn(i); err != nil {
					mu.Lock()
					if failed == nil {
						failed = err
					}
					mu.Unlock()
				}
			}
		})
	}
	wait.Wait()
	return failed
}
