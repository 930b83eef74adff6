package core

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Backoff waits before a repeat among callers that collided: a random time up to
// a bound that doubles with each attempt, from 5 ms to 250 ms, so that they do
// not collide again. It returns the context's error when that ends first. This
// is the one wait that does not follow the injected clock: it paces real
// requests.
func Backoff(ctx context.Context, attempt int) error {
	const base, longest = 5 * time.Millisecond, 250 * time.Millisecond
	timer := time.NewTimer(rand.N(min(base<<min(attempt, 10), longest)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pause is Backoff for an operation that tells its caller why it gave up.
func pause(ctx context.Context, attempt int) error {
	if err := Backoff(ctx, attempt); err != nil {
		return Wrap(CodeContended, "others kept changing the same thing until the time ran out", errors.Join(err, context.Cause(ctx)))
	}
	return nil
}
