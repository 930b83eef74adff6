package bench_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"drawbridge/localstack/bench"
	"drawbridge/localstack/fakeaws"
)

func long() bool { return os.Getenv("DRAWBRIDGE_LONG") == "1" }

// BenchmarkOperations measures every operation of the hub: the time, the
// processor time of hub and caller together, and for each request what it asked of
// AWS. Sequential round trips are measured for one caller: of 16 at once they
// cannot be told apart.
func BenchmarkOperations(b *testing.B) {
	for _, rows := range rowCounts() {
		for _, o := range operations {
			for _, callers := range []int{1, 16} {
				for _, through := range []string{"handler", "http"} {
					b.Run(fmt.Sprintf("op=%s/rows=%d/callers=%d/through=%s", o.name, rows, callers, through), func(b *testing.B) {
						r, err := rigOf(rows)
						if err != nil {
							b.Fatal(err)
						}
						measure(b, r, o, callers, through)
					})
				}
			}
		}
	}
}

func measure(b *testing.B, r *rig, o operation, callers int, through string) {
	s := setting{rig: r, b: b, callers: callers, run: runs.Add(1)}
	requests := make([]request, b.N+delayedTries)
	for n := range requests {
		requests[n] = o.request(s, n)
	}
	var cpu time.Duration
	cost := r.aws.Measure(b.Context(), func(ctx context.Context) {
		send := way(r.handler)
		if through == "http" {
			send = r.overHTTP(ctx, b, callers)
		}
		cpu = bench.OwnCPU()
		b.ResetTimer()
		_, err := bench.Loop{Callers: callers, Total: b.N}.Run(ctx, func(ctx context.Context, _, n int) error {
			return answered(send(ctx, requests[n]))
		})
		b.StopTimer()
		cpu = bench.OwnCPU() - cpu
		if err != nil {
			b.Fatal(err)
		}
	})
	n := float64(b.N)
	b.ReportMetric(float64(cpu)/n, "cpu-ns/op")
	b.ReportMetric(float64(cost.Requests)/n, "requests/op")
	b.ReportMetric(cost.WriteUnits/n, "WRU/op")
	b.ReportMetric(cost.ReadUnits/n, "RRU/op")
	if callers == 1 && through == "handler" {
		b.ReportMetric(r.rounds(b, requests[b.N:]), "rounds/op")
	}
}

func answered(status int, text []byte, err error) error {
	if err == nil && status != http.StatusOK {
		return fmt.Errorf("%d %s", status, text)
	}
	return err
}

const (
	delay        = 8 * time.Millisecond
	delayedTries = 5
)

// rounds is how many requests to AWS follow one another: each is delayed, so that
// those that are made at once take one delay together. A machine that is busy with
// something else only adds time; the fastest try tells.
func (r *rig) rounds(b *testing.B, requests []request) float64 {
	b.Helper()
	defer r.aws.Faults().Add(fakeaws.Rule{Action: fakeaws.Delay(delay)}).Remove()
	fastest := time.Hour
	for _, q := range requests {
		at := time.Now()
		if err := answered(r.handler(b.Context(), q)); err != nil {
			b.Fatal(err)
		}
		fastest = min(fastest, time.Since(at))
	}
	return float64(fastest / delay)
}
