package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The sweeps there are.
const (
	SweepPresence      = "presence"
	SweepMessages      = "messages"
	SweepRoles         = "roles"
	SweepArchive       = "archive-queue"
	SweepHumanRequests = "human-requests"
	SweepAssignments   = "assignments"
	SweepEvents        = "events"
	SweepReflexion     = "reflexion"
)

// SweepNames lists every sweep, in the order health reports them.
var SweepNames = []string{
	SweepPresence, SweepMessages, SweepRoles, SweepArchive,
	SweepHumanRequests, SweepAssignments, SweepEvents, SweepReflexion,
}

// SweepReport is what one run of a sweep did.
type SweepReport struct {
	Name   string
	Counts map[string]int // what it counted, by the sweep's own words
	// Lag is how far the sweep is behind: the age of the oldest due work it
	// left undone, zero when it left none.
	Lag time.Duration
	// More tells that it stopped at its bound with work left.
	More bool
}

// SweepRecord is a sweep's health. It carries an error's code, never its text.
type SweepRecord struct {
	Name                string
	LastRunAt           Instant // 0: it never ran
	LastSuccessAt       Instant // 0: it never succeeded
	ConsecutiveFailures int
	LastErrorCode       Code // of the last failure, "" after a success
	// Lag is how far behind the last success was; how long ago that is says
	// the rest.
	Lag time.Duration
}

// SweepOutcome is what a run of a sweep leaves in its record.
type SweepOutcome struct {
	Name      string
	ErrorCode Code          // "" for a success
	Lag       time.Duration // of a success
	WriteStamp
}

// SweepStore keeps the health of the sweeps.
type SweepStore interface {
	// RecordSweep applies one outcome: a success sets the lag and resets the
	// failures, a failure adds one and leaves the lag alone.
	RecordSweep(ctx context.Context, o SweepOutcome) error
	// ReadSweeps returns the records of the named sweeps in that order, a zero
	// record with its name for one that never ran.
	ReadSweeps(ctx context.Context, names []string) ([]SweepRecord, error)
}

// sweepRuns maps the names of the sweeps to what they do.
func (h *Hub) sweepRuns() map[string]func(context.Context) (SweepReport, error) {
	return map[string]func(context.Context) (SweepReport, error){
		SweepPresence: h.sweepPresence,
		SweepMessages: h.sweepMessages,
		SweepRoles:    h.sweepRoles,
		SweepArchive:  h.sweepArchive,

		SweepHumanRequests: h.sweepHumanRequests,
		SweepAssignments:   h.sweepAssignments,
		SweepEvents:        h.sweepEvents,
		SweepReflexion:     h.sweepReflexion,
	}
}

// RunSweep runs the named sweep and records how it went. An error is the
// sweep's own, or that its outcome could not be recorded; either way the next
// run goes on where this one stopped.
//
// Errors: NOT_FOUND for a name that is no sweep, and whatever the store answers.
func (h *Hub) RunSweep(ctx context.Context, name string) (SweepReport, error) {
	run, known := h.sweepRuns()[name]
	if !known {
		return SweepReport{}, Refuse(CodeNotFound, "there is no such sweep")
	}
	report, failed := run(ctx)
	report.Name = name
	outcome := SweepOutcome{Name: name, ErrorCode: CodeOf(failed), Lag: report.Lag, WriteStamp: h.stamp(h.clock.Now())}
	if err := h.sweeps.RecordSweep(ctx, outcome); err != nil {
		return report, errors.Join(failed, fmt.Errorf("record sweep: %w", err))
	}
	return report, failed
}

func (h *Hub) sweepPresence(ctx context.Context) (SweepReport, error) {
	s, err := h.SweepAgents(ctx)
	return SweepReport{
		Counts: map[string]int{"stale": s.Stale, "offline": s.Offline, "moved": s.Moved, "lost": s.Lost},
		Lag:    s.Lag,
		More:   s.More,
	}, err
}
