package ddb_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"drawbridge/core"
)

// A hundred workers raise one counter, each three times, and none of them is told of
// the others (PynamoDB#1264). The counter is an agent's generation: the most
// contended number of the hub.
func TestAHundredWorkersRaiseOneGeneration(t *testing.T) {
	const workers, each = 100, 3
	w := newWorld(t)
	hub := w.hub(core.SystemClock{})
	var mu sync.Mutex
	var given []int64
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			for range each {
				r, err := hub.Register(context.Background(), core.RegisterRequest{AgentID: "a", CLI: "claude"})
				mu.Lock()
				given = append(given, r.Generation)
				mu.Unlock()
				if err != nil {
					t.Errorf("a worker was told of a conflict: %v", err)
				}
			}
		})
	}
	wait.Wait()
	slices.Sort(given)
	for i, generation := range given {
		if generation != int64(i+1) {
			t.Fatalf("place %d has generation %d: one was lost or given twice", i+1, generation)
		}
	}
}
