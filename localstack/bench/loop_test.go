package bench_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"drawbridge/localstack/bench"
)

func TestALoopMakesEachOfItsOperationsOnce(t *testing.T) {
	var mu sync.Mutex
	made := map[int]int{}
	pace, err := bench.Loop{Callers: 8, Total: 1000}.Run(t.Context(), func(_ context.Context, caller, n int) error {
		mu.Lock()
		defer mu.Unlock()
		made[n]++
		if caller < 0 || caller >= 8 {
			t.Errorf("caller %d", caller)
		}
		return nil
	})
	if err != nil || pace.Latencies.Count() != 1000 || len(made) != 1000 {
		t.Fatalf("%d operations, %d different, %v", pace.Latencies.Count(), len(made), err)
	}
}

func TestALoopEndsWithTheFirstFailure(t *testing.T) {
	broken := errors.New("broken")
	_, err := bench.Loop{Callers: 4}.Run(t.Context(), func(_ context.Context, _, n int) error {
		if n == 10 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) {
		t.Fatalf("the loop ended with %v", err)
	}
}
