package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"drawbridge/localstack/bench"
	"drawbridge/localstack/client"
)

const loadHelp = `Usage: go run ./localstack load [flags]

Puts a fleet of agents on a hub for a while: they register, heartbeat, publish to
each other and to topics, drain, give each other jobs and report on them, and
archive files. Afterwards it audits: every message that the hub accepted was
drained exactly once by each of its recipients, every job has one outcome, every
file was archived once. It exits with 1 when one was not.

The fleet's agents are named load-...; use a hub whose records may hold them.
With -start it starts a durable hub of its own, in a folder that is removed
afterwards, and samples its memory too.

`

// Bounds of a load: it must end, and must not take a machine's connections.
const (
	maxLoadAgents   = 2000
	maxLoadDuration = 24 * time.Hour
	maxLoadHistory  = 1_000_000
)

// loadOptions are the flags of the command load.
type loadOptions struct {
	url, data string
	start     bool
	history   int
	agents    int
	duration  time.Duration
	pause     time.Duration
	every     time.Duration
	patience  time.Duration
}

func parseLoad(args []string, t terminal) (loadOptions, error) {
	var o loadOptions
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.StringVar(&o.url, "url", "http://127.0.0.1:27888", "`URL` of the hub")
	flags.StringVar(&o.data, "data", ".drawbridge", "data `folder` of the hub, for its token (DRAWBRIDGE_TOKEN goes before)")
	flags.BoolVar(&o.start, "start", false, "start a durable hub for the load alone")
	flags.IntVar(&o.history, "history", 0, "`messages` that a hub of the load's own begins with; for every row that the fleet makes, an old one goes")
	flags.IntVar(&o.agents, "agents", 50, "`number` of agents")
	flags.DurationVar(&o.duration, "duration", 30*time.Second, "how `long` they work")
	flags.DurationVar(&o.pause, "pause", 200*time.Millisecond, "how `long` an agent rests between two steps, on average")
	flags.DurationVar(&o.every, "progress", 5*time.Second, "how `often` the progress is told")
	flags.DurationVar(&o.patience, "settle", time.Minute, "how `long` the fleet may take to empty inboxes and queue afterwards")
	flags.Usage = func() {
		fmt.Fprint(t.out, loadHelp)
		flags.PrintDefaults()
	}
	if err := parseFlags(flags, args, t); err != nil {
		return o, err
	}
	switch {
	case o.agents < 2 || o.agents > maxLoadAgents:
		return o, &usageError{fmt.Sprintf("-agents must be from 2 to %d", maxLoadAgents)}
	case o.duration <= 0 || o.duration > maxLoadDuration:
		return o, &usageError{fmt.Sprintf("-duration must be above 0 and at most %s", maxLoadDuration)}
	case o.history < 0 || o.history > maxLoadHistory:
		return o, &usageError{fmt.Sprintf("-history must be from 0 to %d", maxLoadHistory)}
	case o.history > 0 && !o.start:
		return o, &usageError{"-history takes rows away: it goes with -start, with a hub of the load's own"}
	case o.pause < 0 || o.every <= 0 || o.patience <= 0:
		return o, &usageError{"-pause must not be below 0, -progress and -settle must be above"}
	}
	return o, nil
}

// load is the command load.
func load(ctx context.Context, args []string, t terminal) error {
	o, err := parseLoad(args, t)
	if err != nil {
		return err
	}
	if !o.start {
		token, err := findHubToken(o.data, t.getenv)
		if err != nil {
			return err
		}
		return putLoad(ctx, o, client.New(o.url, token, o.agents), nil, t)
	}
	own, stop, err := ownHub(ctx)
	if err != nil {
		return err
	}
	return errors.Join(putLoad(ctx, o, client.New(own.URL, own.Token, o.agents), own, t), stop())
}

// ownHub starts this program as a hub in a folder of its own.
func ownHub(ctx context.Context) (*bench.Hub, func() error, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("find this program: %w", err)
	}
	folder, err := os.MkdirTemp("", "drawbridge-load-")
	if err != nil {
		return nil, nil, fmt.Errorf("make a folder for the hub: %w", err)
	}
	hub, err := bench.Start(ctx, binary, filepath.Join(folder, "data"))
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(folder))
	}
	return hub, func() error { return errors.Join(hub.Stop(), os.RemoveAll(folder)) }, nil
}

// putLoad runs the fleet and audits what became of its work. own is the hub where
// its memory is to be sampled, else nil.
func putLoad(ctx context.Context, o loadOptions, hub *client.Client, own *bench.Hub, t terminal) error {
	f := newFleet(o, hub, fmt.Sprintf("load-%06x", rand.N(1<<24)))
	if err := f.enlist(ctx); err != nil {
		return fmt.Errorf("register the fleet: %w", err)
	}
	history, err := makeHistory(ctx, f, own, o.history, t.out)
	if err != nil {
		return err
	}
	fmt.Fprintf(t.out, "%d agents named %s-... work for %s.\n", o.agents, f.run, o.duration)
	watch := newWatch(f.meter, own, o, t.out)
	working, done := context.WithTimeout(ctx, o.duration)
	defer done()
	var beside sync.WaitGroup
	beside.Go(func() { watch.run(working) })
	beside.Go(func() { history.run(working) })
	f.work(working)
	beside.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("the load was stopped: there is no audit: %w", ctx.Err())
	}
	settling, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	f.settle(settling)
	watch.table()
	return f.audit(ctx, t.out)
}
