// Compare measures a durable hub, started as a user starts it and asked over HTTP
// by 16 callers, beside the figures of the reference hub. It fails when an
// operation is slower, or when a drain out of a deep backlog takes longer than one
// out of a shallow one allows.
//
//	go run ./localstack/bench/compare
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"drawbridge/localstack/bench"
	"drawbridge/localstack/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// callers ask at once, as the reference was asked.
const callers = 16

type options struct {
	rounds  int
	length  time.Duration
	backlog int
	dir     string
	only    string
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.IntVar(&o.rounds, "rounds", 3, "`times` each operation is measured; the best counts")
	flags.DurationVar(&o.length, "time", 3*time.Second, "how `long` a round is")
	flags.IntVar(&o.backlog, "backlog", 100_000, "pending `messages` of the deep drain")
	flags.StringVar(&o.dir, "dir", "", "`folder` on the disk to measure (default: that of temporary files)")
	flags.StringVar(&o.only, "only", "", "measure the operations whose name holds this `text`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	folder, err := os.MkdirTemp(o.dir, "drawbridge-compare-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(folder)
	binary := filepath.Join(folder, "localstack")
	if text, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "drawbridge/localstack").CombinedOutput(); err != nil {
		return fmt.Errorf("build the hub: %w\n%s", err, text)
	}
	hub, err := bench.Start(ctx, binary, filepath.Join(folder, "data"))
	if err != nil {
		return err
	}
	m := &measurement{options: o, hub: hub, client: client.New(hub.URL, hub.Token, callers)}
	return errors.Join(m.run(ctx, out), hub.Stop())
}

// A measurement is one run beside the reference.
type measurement struct {
	options

	hub    *bench.Hub
	client *client.Client
	slower []string
}

// A score is what one operation achieved in its best round.
type score struct {
	bench.Pace

	hubCPU, ownCPU time.Duration // for one operation
}

func (m *measurement) run(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, "%s, %d processors, %d callers, best of %d rounds of %s\n\n",
		runtime.Version(), runtime.NumCPU(), callers, m.rounds, m.length)
	// Row by row: a run takes minutes, and whoever breaks it off keeps what it found.
	fmt.Fprintf(out, row, "operation", "ops/s", "p50 ms", "p99 ms", "hub CPU µs", "caller CPU µs", "reference ops/s", "times")
	for _, c := range cases() {
		if !strings.Contains(c.name, m.only) {
			continue
		}
		s, err := m.measure(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if s.Rate() <= c.reference {
			m.slower = append(m.slower, c.name)
		}
		fmt.Fprintf(out, row, c.name, decimals(s.Rate(), 0), ms(s.Latencies.Quantile(0.5)), ms(s.Latencies.Quantile(0.99)),
			strconv.FormatInt(s.hubCPU.Microseconds(), 10), strconv.FormatInt(s.ownCPU.Microseconds(), 10), decimals(c.reference, 0), decimals(s.Rate()/c.reference, 2))
	}
	if strings.Contains(deepDrain, m.only) {
		if err := m.growth(ctx, out); err != nil {
			return err
		}
	}
	if len(m.slower) > 0 {
		return fmt.Errorf("slower than the reference: %q", m.slower)
	}
	return nil
}

// row is a line of the table.
const row = "%-42s %8s %8s %8s %11s %14s %16s %6s\n"

func ms(d time.Duration) string { return decimals(float64(d)/float64(time.Millisecond), 2) }

func decimals(f float64, places int) string { return strconv.FormatFloat(f, 'f', places, 64) }

// measure runs the rounds of a case and returns the best.
func (m *measurement) measure(ctx context.Context, c comparison) (score, error) {
	var best score
	for range m.rounds {
		operation, loop, err := c.prepare(ctx, m.client, bench.Loop{Callers: callers, For: m.length})
		if err != nil {
			return best, err
		}
		hubBefore, _ := bench.CPU(m.hub.PID) // zero where it is not known
		ownBefore := bench.OwnCPU()
		pace, err := loop.Run(ctx, operation)
		if err != nil {
			return best, err
		}
		hubAfter, _ := bench.CPU(m.hub.PID)
		ownAfter := bench.OwnCPU()
		n := time.Duration(max(1, pace.Latencies.Count()))
		s := score{pace, (hubAfter - hubBefore) / n, (ownAfter - ownBefore) / n}
		if best.Latencies == nil || s.Rate() > best.Rate() {
			best = s
		}
	}
	return best, nil
}
