package bench_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"drawbridge/localstack/bench"
)

func TestQuantilesAreRightToThreePercent(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	var l bench.Latencies
	all := make([]time.Duration, 10_000)
	for i := range all {
		all[i] = time.Duration(random.Int64N(1 << (1 + random.IntN(40))))
		l.Add(all[i])
	}
	slices.Sort(all)
	if got := l.Longest(); got != all[len(all)-1] || l.Count() != int64(len(all)) {
		t.Fatalf("%d operations, the longest %d; want %d and %d", l.Count(), got, len(all), all[len(all)-1])
	}
	for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[max(0, int(q*float64(len(all))+0.5)-1)]
		if got := l.Quantile(q); got < want || float64(got) > 1.032*float64(want) {
			t.Errorf("the quantile %g is %d, want %d and at most 3.2 %% more", q, got, want)
		}
	}
}

func TestWithoutOperationsThereAreNoLatencies(t *testing.T) {
	var l bench.Latencies
	if l.Quantile(0.99) != 0 || l.Longest() != 0 || l.Mean() != 0 {
		t.Error("an empty count has a latency")
	}
}

func TestTheShortestAndTheLongestDurationHaveABucket(t *testing.T) {
	var l bench.Latencies
	for _, d := range []time.Duration{-1, 0, 1<<63 - 1} {
		l.Add(d)
	}
	if l.Quantile(0.3) != 0 || l.Quantile(1) != 1<<63-1 {
		t.Errorf("quantiles %d and %d", l.Quantile(0.3), l.Quantile(1))
	}
}
