package ddb_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"drawbridge/core/coretest"
)

// seedOf takes a run's seed from the environment, so that it can be repeated.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if given := os.Getenv("DRAWBRIDGE_SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("DRAWBRIDGE_SEED=%d", seed)
	return seed
}

// long tells whether the long form of a test was asked for.
func long() bool { return os.Getenv("DRAWBRIDGE_LONG") != "" }

func TestTheMessagesDoWhatTheModelDoes(t *testing.T) {
	steps := 3000
	if long() {
		steps = 40_000
	}
	coretest.RunMessageModel(t, newWorld(t).messages(), seedOf(t), steps)
}
