package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A Loop is a closed loop: so many callers, each asking again as soon as it is
// answered.
type Loop struct {
	Callers int
	// For ends the loop by time; zero does not.
	For time.Duration
	// Total ends the loop after so many operations; zero does not.
	Total int
}

// A Pace is what a loop achieved.
type Pace struct {
	Elapsed   time.Duration
	Latencies *Latencies
}

// Rate is operations a second.
func (p Pace) Rate() float64 { return float64(p.Latencies.Count()) / p.Elapsed.Seconds() }

// Run calls the operation until the loop ends or one fails, which ends it with
// that error. n counts the operations from 0 and no two have the same; caller
// is who makes it.
func (l Loop) Run(ctx context.Context, operation func(ctx context.Context, caller, n int) error) (Pace, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	p := Pace{Latencies: &Latencies{}}
	started := time.Now()
	var next atomic.Int64
	var callers sync.WaitGroup
	for caller := range l.Callers {
		callers.Go(func() {
			for ctx.Err() == nil && (l.For == 0 || time.Since(started) < l.For) {
				n := int(next.Add(1)) - 1
				if l.Total > 0 && n >= l.Total {
					return
				}
				at := time.Now()
				if err := operation(ctx, caller, n); err != nil {
					fail(err)
					return
				}
				p.Latencies.Add(time.Since(at))
			}
		})
	}
	callers.Wait()
	p.Elapsed = time.Since(started)
	return p, context.Cause(ctx)
}
