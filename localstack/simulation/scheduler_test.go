package simulation

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/synctest"
	"time"
)

// breath is how long the bubble's time passes before every step: longer than the
// longest wait before a retry (core.Backoff: 250 ms), so that by then everybody
// who waits for one has come back to the scheduler, whatever chance made of the
// wait. The nanosecond keeps timers apart that were set in different steps: they
// never fire at once.
const breath = 300*time.Millisecond + time.Nanosecond

// A waiter is a goroutine that has stopped.
type waiter struct {
	owner   string // who: a call's or an actor's name
	what    string // what for; orders the waiters of one owner
	request bool   // it is about to ask AWS
	call    *call  // of a request
	from    time.Time
	// goroutine tells apart those of one owner that want the same.
	goroutine int
	resume    chan struct{}
}

// A scheduler decides who goes on.
type scheduler struct {
	random *rand.Rand

	mu      sync.Mutex
	clock   time.Time
	waiting []*waiter
	drawing []*draw
	steps   int
}

// A draw is a goroutine that stopped to take from a source of ids or of chance.
// A handler does many things at once, and each takes its ids: which of them is
// first is the runtime's whim. So they are served when all have stopped, in the
// order in which they were started, which their numbers tell.
type draw struct {
	goroutine int
	resume    chan struct{}
}

func (s *scheduler) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock
}

func (s *scheduler) advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = s.clock.Add(d)
}

// wait stops the caller until it is its turn, or until ctx ends.
func (s *scheduler) wait(ctx context.Context, w *waiter) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w.resume, w.goroutine = make(chan struct{}), goroutine()
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.mu.Unlock()
	select {
	case <-w.resume:
		return nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiting = slices.DeleteFunc(s.waiting, func(x *waiter) bool { return x == w })
		return ctx.Err()
	}
}

// draw returns when it is the caller's turn to take from a source.
func (s *scheduler) draw() {
	d := &draw{goroutine: goroutine(), resume: make(chan struct{})}
	s.mu.Lock()
	s.drawing = append(s.drawing, d)
	s.mu.Unlock()
	<-d.resume
}

// goroutine is the number of the calling goroutine. Those that one goroutine
// starts, on one processor, have growing numbers.
func goroutine() int {
	var trace [64]byte
	fields := strings.Fields(string(trace[:runtime.Stack(trace[:], false)])) // goroutine 7 [running]:
	n, err := strconv.Atoi(fields[1])
	if err != nil {
		panic(err)
	}
	return n
}

// settle returns when everybody has stopped or ended, and whoever slept has woken.
func (s *scheduler) settle() {
	s.quiet()
	for {
		time.Sleep(breath)
		if !s.quiet() {
			return
		}
	}
}

// quiet returns when everybody has stopped or ended, and tells whether somebody
// drew on the way.
func (s *scheduler) quiet() (drew bool) {
	for {
		synctest.Wait()
		s.mu.Lock()
		if len(s.drawing) == 0 {
			s.mu.Unlock()
			return drew
		}
		slices.SortFunc(s.drawing, func(a, b *draw) int { return cmp.Compare(a.goroutine, b.goroutine) })
		first := s.drawing[0]
		s.drawing = s.drawing[1:]
		s.mu.Unlock()
		close(first.resume)
		drew = true
	}
}

// ready returns the waiters whose time has come, in an order that does not
// depend on who stopped first, and otherwise when the first one's does.
func (s *scheduler) ready() (ready []*waiter, next time.Time, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.waiting {
		switch {
		case !w.from.After(s.clock):
			ready = append(ready, w)
		case next.IsZero() || w.from.Before(next):
			next = w.from
		}
	}
	slices.SortFunc(ready, func(a, b *waiter) int {
		return cmp.Or(cmp.Compare(a.owner, b.owner), cmp.Compare(a.what, b.what), cmp.Compare(a.goroutine, b.goroutine))
	})
	return ready, next, len(s.waiting) == 0
}

// choose takes a waiter: every owner has the same chance, however many requests
// it has under way.
func (s *scheduler) choose(ready []*waiter) *waiter {
	var owners []string
	for _, w := range ready {
		if len(owners) == 0 || owners[len(owners)-1] != w.owner {
			owners = append(owners, w.owner)
		}
	}
	owner := owners[s.random.IntN(len(owners))]
	ready = slices.DeleteFunc(ready, func(w *waiter) bool { return w.owner != owner })
	return ready[s.random.IntN(len(ready))]
}

// handOver tells the race detector that what the caller did comes before what the
// scheduler does next. synctest.Wait tells it that of most goroutines that stop, but
// not of one that stops in a WaitGroup's Wait, which turns the detector off for it.
func (s *scheduler) handOver() {
	s.mu.Lock()
	defer s.mu.Unlock()
}

// release lets a waiter go on.
func (s *scheduler) release(w *waiter) {
	s.mu.Lock()
	s.waiting = slices.DeleteFunc(s.waiting, func(x *waiter) bool { return x == w })
	s.steps++
	s.mu.Unlock()
	close(w.resume)
}

var errStuck = errors.New("somebody waits for nothing that the scheduler knows")
