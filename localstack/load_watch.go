package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"drawbridge/localstack/bench"
	"drawbridge/localstack/client"
)

// loadWindows is how many parts of the load are told apart, so that it can be seen
// whether the hub gets slower or larger.
const loadWindows = 10

// noAnswer is the code of a call that nobody answered.
const noAnswer = "(no answer)"

// uncertain tells whether a call that failed may have been done. A refusal without
// a code is the gateway's own: it gave up waiting.
func uncertain(err error) bool {
	var refusal *client.Refusal
	return !errors.As(err, &refusal) || refusal.Code == "" || refusal.Code == "OUTCOME_UNKNOWN"
}

// codeOf names a failure in the report.
func codeOf(err error) string {
	var refusal *client.Refusal
	switch {
	case !errors.As(err, &refusal):
		return noAnswer
	case refusal.Code == "":
		return fmt.Sprintf("(status %d)", refusal.Status)
	}
	return refusal.Code
}

// A loadMeter counts the calls of a load.
type loadMeter struct {
	mu      sync.Mutex
	byCall  map[string]*bench.Latencies
	current *bench.Latencies // of this window
	recent  *bench.Latencies // since the progress was told
	errors  map[string]int   // by code
}

func newLoadMeter() *loadMeter {
	return &loadMeter{byCall: map[string]*bench.Latencies{}, current: &bench.Latencies{}, recent: &bench.Latencies{}, errors: map[string]int{}}
}

func (m *loadMeter) add(call string, took time.Duration, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byCall[call] == nil {
		m.byCall[call] = &bench.Latencies{}
	}
	m.byCall[call].Add(took)
	m.current.Add(took)
	m.recent.Add(took)
	if err != nil {
		m.errors[codeOf(err)]++
	}
}

// window ends a window and returns its latencies.
func (m *loadMeter) window() *bench.Latencies {
	m.mu.Lock()
	defer m.mu.Unlock()
	ended := m.current
	m.current = &bench.Latencies{}
	return ended
}

// progress returns the latencies since it was last asked, and how many calls
// failed in all.
func (m *loadMeter) progress() (recent *bench.Latencies, failures int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	recent, m.recent = m.recent, &bench.Latencies{}
	for _, n := range m.errors {
		failures += n
	}
	return recent, failures
}

// A watch tells how a load goes, and keeps its windows.
type watch struct {
	loadOptions

	meter   *loadMeter
	own     *bench.Hub // whose memory and rows are sampled, or nil
	out     io.Writer
	windows []window
}

// A window is one part of a load.
type window struct {
	bench.Pace

	memory int64 // of the hub at its end, in bytes; 0 where it is not known
	rows   int64 // that its table held then
}

func newWatch(m *loadMeter, own *bench.Hub, o loadOptions, out io.Writer) *watch {
	m.window() // what came before is not the load's
	return &watch{loadOptions: o, meter: m, own: own, out: out}
}

// run tells the progress and ends the windows until the context does.
func (w *watch) run(ctx context.Context) {
	started := time.Now()
	length := w.duration / loadWindows
	windows, progress := time.NewTicker(max(1, length)), time.NewTicker(w.every)
	defer windows.Stop()
	defer progress.Stop()
	for {
		select {
		case <-ctx.Done():
			if len(w.windows) < loadWindows {
				w.endWindow(length)
			}
			return
		case <-windows.C:
			if len(w.windows) < loadWindows-1 { // the last ends with the load
				w.endWindow(length)
			}
		case <-progress.C:
			recent, failures := w.meter.progress()
			fmt.Fprintf(w.out, "%6s  %6d calls  p50 %6s ms  p99 %6s ms  %d errors%s\n", time.Since(started).Round(time.Second), recent.Count(),
				milliseconds(recent.Quantile(0.5)), milliseconds(recent.Quantile(0.99)), failures, w.memoryText())
		}
	}
}

func (w *watch) endWindow(length time.Duration) {
	ended := window{Pace: bench.Pace{Elapsed: length, Latencies: w.meter.window()}, memory: w.memory()}
	if w.own != nil {
		ended.rows, _ = w.own.Rows() // zero is shown where it does not answer
	}
	w.windows = append(w.windows, ended)
}

func (w *watch) memory() int64 {
	if w.own == nil {
		return 0
	}
	bytes, err := bench.Memory(w.own.PID)
	if err != nil {
		return 0 // it is known on Linux only
	}
	return bytes
}

func (w *watch) memoryText() string {
	if bytes := w.memory(); bytes > 0 {
		return fmt.Sprintf("  hub %d MB", bytes>>20)
	}
	return ""
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond))
}

// table prints the load by call, by window and its errors.
func (w *watch) table() {
	m := w.meter
	t := tabwriter.NewWriter(w.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\ncall\tcount\tmean ms\tp50 ms\tp95 ms\tp99 ms\tp99.9 ms\tlongest ms\t")
	for _, call := range slices.Sorted(maps.Keys(m.byCall)) {
		l := m.byCall[call]
		fmt.Fprintf(t, "%s\t%d\t%s\t", call, l.Count(), milliseconds(l.Mean()))
		for _, q := range []float64{0.5, 0.95, 0.99, 0.999, 1} {
			fmt.Fprintf(t, "%s\t", milliseconds(l.Quantile(q)))
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintln(t, "\nwindow\tcalls/s\tp50 ms\tp99 ms\thub MB\trows\t")
	for i, p := range w.windows {
		fmt.Fprintf(t, "%d\t%.0f\t%s\t%s\t%d\t%d\t\n", i+1, p.Rate(), milliseconds(p.Latencies.Quantile(0.5)), milliseconds(p.Latencies.Quantile(0.99)), p.memory>>20, p.rows)
	}
	_ = t.Flush() // to the user's terminal
	for _, code := range slices.Sorted(maps.Keys(m.errors)) {
		fmt.Fprintf(w.out, "%d answers %s\n", m.errors[code], code)
	}
}
