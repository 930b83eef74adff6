package functions

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"drawbridge/core"
)

// A Sweep is a function that a schedule starts.
type Sweep struct {
	Name string // the template's Handler
	Run  string // the core's name of the sweep, as health reports it
}

// Sweeps lists the sweeps there are.
func Sweeps() []Sweep {
	return []Sweep{
		{Name: "sweep-agents", Run: core.SweepPresence},
		{Name: "sweep-messages", Run: core.SweepMessages},
		{Name: "sweep-roles", Run: core.SweepRoles},
		{Name: "sweep-archive-queue", Run: core.SweepArchive},
		{Name: "sweep-human-requests", Run: core.SweepHumanRequests},
		{Name: "sweep-assignments", Run: core.SweepAssignments},
		{Name: "sweep-events", Run: core.SweepEvents},
		{Name: "sweep-reflexion", Run: core.SweepReflexion},
	}
}

// SweepHandler runs a sweep once. The event is not read: late, twice or with
// any content, it only says that it is time. An error makes the invocation
// fail, so that the schedule's alarms see it; the next tick goes on.
type SweepHandler func(context.Context, json.RawMessage) error

// Sweep returns the handler of the sweep function with this name; false when
// there is no such sweep.
func (a *App) Sweep(name string) (SweepHandler, bool) {
	i := slices.IndexFunc(Sweeps(), func(s Sweep) bool { return s.Name == name })
	if i < 0 {
		return nil, false
	}
	sweep := Sweeps()[i]
	return func(ctx context.Context, _ json.RawMessage) error { return a.sweep(ctx, sweep) }, true
}

func (a *App) sweep(ctx context.Context, s Sweep) error {
	started := time.Now()
	ctx, spent := withSpend(ctx)
	ctx, cancel := beforeDeadline(ctx)
	defer cancel()
	report, err := a.runSweep(ctx, s)
	counts := make([]any, 0, len(report.Counts))
	for what, n := range report.Counts {
		counts = append(counts, slog.Int(what, n))
	}
	level, outcome := slog.LevelInfo, outcomeOK
	if err != nil {
		level, outcome = slog.LevelError, string(core.CodeOf(err))
	}
	attributes := []slog.Attr{
		slog.String("endpoint", s.Name),
		slog.String("outcome", outcome),
		slog.Float64("duration_ms", milliseconds(time.Since(started))),
		slog.Float64("lag_ms", milliseconds(report.Lag)),
		slog.Bool("more", report.More),
		slog.Group("counts", counts...),
	}
	a.log.LogAttrs(ctx, level, "sweep", slices.Concat(attributes, spent.attributes(), cause(err))...)
	return err
}

func (a *App) runSweep(ctx context.Context, s Sweep) (report core.SweepReport, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("panic in sweep %s: %v\n%s", s.Name, fault, debug.Stack())
		}
	}()
	return a.hub.RunSweep(ctx, s.Run)
}
