package doctor

import (
	"context"
	"fmt"
	"strconv"
	"sync"
)

// An outcome is what one conditional write came to.
type outcome int

const (
	won outcome = iota
	lost
	// contended: the service asked to try again (409, a transaction conflict).
	contended
)

// A write tries one conditional write as the named writer.
type write func(ctx context.Context, writer string) (outcome, error)

// maxAttempts of one contended writer. Real services ask for one or two.
const maxAttempts = 20

// race lets all writers try the same condition at once and requires that exactly
// one wins and that the stored value is the winner's.
func race(ctx context.Context, try write, stored func(context.Context) (string, error)) error {
	winners, err := start(ctx, try)
	if err != nil {
		return err
	}
	switch len(winners) {
	case 0:
		return refusef("none of %d writers won", writers)
	case 1:
	default:
		return refusef("%d of %d writers won; exactly one may", len(winners), writers)
	}
	value, err := stored(ctx)
	if err != nil {
		return fmt.Errorf("read the winner's value: %w", err)
	}
	if value != winners[0] {
		return refusef("writer %s won, but the value read afterwards is %q", winners[0], value)
	}
	return nil
}

func start(ctx context.Context, try write) (winners []string, err error) {
	var (
		mu    sync.Mutex
		group sync.WaitGroup
		gate  = make(chan struct{})
	)
	for i := range writers {
		group.Go(func() {
			<-gate
			writer := strconv.Itoa(i)
			result, failed := persist(ctx, try, writer)
			mu.Lock()
			defer mu.Unlock()
			if failed != nil && err == nil {
				err = failed
			}
			if failed == nil && result == won {
				winners = append(winners, writer)
			}
		})
	}
	close(gate)
	group.Wait()
	return winners, err
}

// persist repeats a contended write: contention means that it did not happen.
func persist(ctx context.Context, try write, writer string) (outcome, error) {
	for range maxAttempts {
		result, err := try(ctx, writer)
		if err != nil || result != contended {
			return result, err
		}
	}
	return lost, nil
}

// repeat runs a race for several fresh keys.
func repeat(ctx context.Context, round func(ctx context.Context, n int) error) error {
	for n := range rounds {
		if err := round(ctx, n); err != nil {
			return err
		}
	}
	return nil
}
