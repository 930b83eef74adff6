package coretest

import (
	"context"
	"os"

	"drawbridge/core"
)

// TicksOff tells whether DRAWBRIDGE_TICKS=off is set: then every suite runs with
// sweeps that find nothing, as if no schedule ever fired. What fails then is about
// sweeping itself (.ci/ticks-off.txt lists it); every other promise must hold.
func TicksOff() bool { return os.Getenv("DRAWBRIDGE_TICKS") == "off" }

// Ticks returns the hub's configuration as it is, or with TicksOff one whose
// sweeps find nothing that is due, and count nothing. Only sweeps ask for either.
func Ticks(c core.Config) core.Config {
	if !TicksOff() {
		return c
	}
	if c.Presence != nil {
		c.Presence = unsweptPresence{c.Presence}
	}
	if c.Messages != nil {
		c.Messages = unsweptMessages{c.Messages}
	}
	if c.Roles != nil {
		c.Roles = unsweptRoles{c.Roles}
	}
	if c.Humans != nil {
		c.Humans = unsweptHumans{c.Humans}
	}
	if c.Jobs != nil {
		c.Jobs = unsweptJobs{c.Jobs}
	}
	if c.Reflexion != nil {
		c.Reflexion = unsweptReflexion{c.Reflexion}
	}
	if c.Archive != nil {
		c.Archive = TicksOfQueue(c.Archive)
	}
	return c
}

// TicksOfQueue does the same to an archive queue.
func TicksOfQueue(q core.ArchiveQueue) core.ArchiveQueue {
	if !TicksOff() {
		return q
	}
	return unsweptArchive{q}
}

type unsweptPresence struct{ core.PresenceStore }

func (unsweptPresence) DueAgents(context.Context, core.DueScan) (core.DuePage, error) {
	return core.DuePage{}, nil
}

type unsweptMessages struct{ core.MessageStore }

func (unsweptMessages) DueMessages(context.Context, int, core.Instant, string, int) (core.DueDeliveries, error) {
	return core.DueDeliveries{}, nil
}

func (unsweptMessages) DueFanouts(context.Context, int, core.Instant, string, int) (core.DueDeliveries, error) {
	return core.DueDeliveries{}, nil
}

func (unsweptMessages) CountMessages(context.Context, core.Instant) (core.MessageCounts, bool, error) {
	return core.MessageCounts{}, false, nil
}

type unsweptRoles struct{ core.RoleStore }

func (unsweptRoles) DueRoles(context.Context, core.DueScan) (core.DueRolePage, error) {
	return core.DueRolePage{}, nil
}

type unsweptHumans struct{ core.HumanRequestStore }

func (unsweptHumans) DueHumanRequests(context.Context, int, core.Instant, string, int) (core.DueHumanPage, error) {
	return core.DueHumanPage{}, nil
}

type unsweptJobs struct{ core.JobStore }

func (unsweptJobs) DueJobs(context.Context, int, core.Instant, string, int) (core.DueJobPage, error) {
	return core.DueJobPage{}, nil
}

func (unsweptJobs) DueEvents(context.Context, int, core.Instant, string, int) (core.DueEventPage, error) {
	return core.DueEventPage{}, nil
}

func (unsweptJobs) CountJobs(context.Context, core.Instant) (core.AssignCounts, bool, error) {
	return core.AssignCounts{}, false, nil
}

type unsweptReflexion struct{ core.ReflexionStore }

func (unsweptReflexion) DueReflexion(context.Context, core.DueScan) (core.ReflexionDuePage, error) {
	return core.ReflexionDuePage{}, nil
}

type unsweptArchive struct{ core.ArchiveQueue }

func (unsweptArchive) Sweep(context.Context) (core.ArchiveSweep, error) {
	return core.ArchiveSweep{}, nil
}

func (unsweptArchive) SettleBacklog(context.Context) (int, error) { return 0, nil }
