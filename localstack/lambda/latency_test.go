//go:build rie

package lambda

import (
	"net/http"
	"slices"
	"testing"
	"time"
)

const (
	coldStarts      = 15
	warmInvocations = 500
)

// TestLatenciesAreMeasured prints how long a function takes that has to start, from
// the start of the emulator's process to the answer, and one that is running. It
// asserts no time: what is printed holds for the machine that ran it, with an
// embedded AWS that answers in microseconds.
func TestLatenciesAreMeasured(t *testing.T) {
	for _, handler := range []string{"health", "heartbeat", "publish"} {
		t.Run(handler, func(t *testing.T) {
			w, e := open(t), exercises[handler]
			w.prepare(e.before)
			f, _ := w.template.Function(handler)
			e.do.key = "" // every invocation is another request
			answered := func() {
				if a := w.perform(w.far, f, e); a.status != http.StatusOK {
					t.Fatalf("answer %d: %s", a.status, a.text)
				}
			}
			var cold, warm []time.Duration
			for range coldStarts {
				w.pool.Kill(handler)
				began := time.Now()
				answered()
				cold = append(cold, time.Since(began))
			}
			for range warmInvocations {
				began := time.Now()
				answered()
				warm = append(warm, time.Since(began))
			}
			t.Logf("cold start: median %v, slowest %v of %d; warm: median %v, p99 %v of %d",
				quantile(cold, 0.5), quantile(cold, 1), coldStarts, quantile(warm, 0.5), quantile(warm, 0.99), warmInvocations)
		})
	}
}

// quantile gives the smallest duration that the part q of all does not exceed.
func quantile(all []time.Duration, q float64) time.Duration {
	slices.Sort(all)
	return all[max(0, int(q*float64(len(all))+0.5)-1)].Round(10 * time.Microsecond)
}
