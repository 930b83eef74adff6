package ddb_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"drawbridge/core/coretest"
)

// usualSeed is that of an ordinary run, so that a change is not judged by luck.
const usualSeed = 1

// seedOf takes a run's seed from the environment, so that it can be repeated:
// DRAWBRIDGE_SEED is a number, or "fresh".
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(usualSeed)
	switch given := os.Getenv("DRAWBRIDGE_SEED"); given {
	case "":
	case "fresh":
		seed = rand.Uint64()
	default:
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
	steps := either(3000, 300)
	if long() {
		steps = 40_000
	}
	coretest.RunMessageModel(t, newWorldUnderTest(t).messages(), seedOf(t), steps)
}
