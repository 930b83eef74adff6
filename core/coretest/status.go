package coretest

import (
	"testing"
	"time"

	"drawbridge/core"
)

func testStatus(t *testing.T, open func(*testing.T) *bench) {
	t.Run("the effective status follows the lease on both edges, sweep or not", func(t *testing.T) {
		b := open(t)
		r := b.register("a")
		lease := r.LeaseExpires
		for _, c := range []struct {
			stored core.Status
			at     core.Instant
			want   core.Status
		}{
			{core.StatusOnline, lease - 1, core.StatusOnline},
			{core.StatusOnline, lease, core.StatusOnline},
			{core.StatusOnline, lease + 1, core.StatusStale},
			{core.StatusOnline, lease + 300_000, core.StatusStale},
			{core.StatusOnline, lease + 300_001, core.StatusOffline},
			{core.StatusStale, lease, core.StatusStale},
			{core.StatusStale, lease + 300_000, core.StatusStale},
			{core.StatusStale, lease + 300_001, core.StatusOffline},
			{core.StatusOffline, lease - 1, core.StatusOffline},
			{core.StatusOffline, lease + 300_001, core.StatusOffline},
		} {
			_, err := b.hub.ReportStatus(b.ctx, core.ReportRequest{AgentID: "a", Status: string(c.stored)})
			b.must(err)
			if got := b.wantAgent("a", 1, c.stored).EffectiveStatus(c.at); got != c.want {
				t.Errorf("stored %s, %d ms past the lease: reads %s, want %s", c.stored, c.at-lease, got, c.want)
			}
		}
	})

	// hashicorp/consul#1172, classicswarm#1227: never twice the lease.
	// Cotal-AI/Cotal#286: a killed agent is seen as gone, with its age.
	t.Run("an agent that dies reads stale the moment its lease has passed and keeps its last sign of life", func(t *testing.T) {
		b := open(t)
		r := b.register("a")
		b.clock.Advance(time.Minute + time.Millisecond)
		report, err := b.hub.Status(b.ctx, core.StatusQuery{Scope: core.StatusScopeAgent, AgentID: "a"})
		b.must(err)
		if a := report.Agent; a == nil || a.Status != core.StatusStale || a.LastSeen != r.ServerTime {
			t.Fatalf("reads %+v", report.Agent)
		}
	})

	// kubernetes/kubernetes#114872: the holder's recorded lease decides.
	t.Run("each agent's own lease decides", func(t *testing.T) {
		b := open(t)
		b.registerWith(core.RegisterRequest{AgentID: "short", CLI: "claude", TimeoutSec: core.Some(-119.0)})
		b.registerWith(core.RegisterRequest{AgentID: "long", CLI: "claude", TimeoutSec: core.Some(2_591_880.0)})
		b.clock.Advance(2 * time.Second)
		if s := b.agent("short").EffectiveStatus(b.now()); s != core.StatusStale {
			t.Fatalf("a lease of a second reads %s after two", s)
		}
		b.clock.Advance(29 * 24 * time.Hour)
		if s := b.agent("long").EffectiveStatus(b.now()); s != core.StatusOnline {
			t.Fatalf("a lease of 30 days reads %s after 29", s)
		}
	})

	// amazon-dynamodb-lock-client#34: a long lease, kept up by short heartbeats.
	t.Run("an agent that promised short heartbeats is seen dead when they stop, not when its first lease ends", func(t *testing.T) {
		b := open(t)
		b.registerWith(core.RegisterRequest{AgentID: "a", CLI: "claude", TimeoutSec: core.Some(780.0)})
		b.clock.Advance(30 * time.Second)
		b.must(b.heartbeat("a", 1))
		b.clock.Advance(time.Minute + time.Millisecond)
		report, err := b.newHub().Status(b.ctx, core.StatusQuery{Scope: core.StatusScopeAgent, AgentID: "a"})
		b.must(err)
		if report.Agent.Status != core.StatusStale {
			t.Fatalf("two missed heartbeats read %s", report.Agent.Status)
		}
	})

	// vmware/pinniped#800: the release is visible to every reader at once.
	t.Run("a deregister is seen by every reader at once and repeats without harm", func(t *testing.T) {
		b := open(t)
		b.register("a")
		other := b.newHub()
		for range 2 {
			stop := b.LoseNextWrite()
			b.must(b.deregister("a", 1))
			stop()
			report, err := other.Status(b.ctx, core.StatusQuery{Scope: core.StatusScopeAgent, AgentID: "a"})
			b.must(err)
			if report.Agent.Status != core.StatusOffline {
				t.Fatalf("reads %s after a deregister", report.Agent.Status)
			}
		}
	})

	t.Run("a report stores stale and offline as such, any other word as online, and leaves the lease alone", func(t *testing.T) {
		b := open(t)
		r := b.register("a")
		for word, want := range map[string]core.Status{
			" Stale ": core.StatusStale, "OFFLINE": core.StatusOffline, "paused": core.StatusOnline, "online": core.StatusOnline,
		} {
			b.tick()
			report, err := b.hub.ReportStatus(b.ctx, core.ReportRequest{AgentID: " a ", Status: word})
			b.must(err)
			if report.Status != want || report.Snapshot.Status != want || report.AgentID != "a" {
				t.Errorf("%q is answered %+v", word, report)
			}
			if a := b.wantAgent("a", 1, want); a.LeaseExpires != r.LeaseExpires || a.LastSeen != r.LastSeen {
				t.Errorf("%q changed the lease: %+v", word, a)
			}
		}
	})

	t.Run("a query tells the hub, its empty queues and roles, and nothing it was not asked for", func(t *testing.T) {
		b := open(t)
		for _, scope := range []string{core.StatusScopeHub, core.StatusScopeQueue} {
			report, err := b.hub.Status(b.ctx, core.StatusQuery{Scope: scope, IncludeMetrics: true})
			b.must(err)
			if report.Hub == nil || report.Hub.State != core.HubHealthy || report.Queues == nil || report.Assigns == nil || report.Identity.HubInstanceID == "" {
				t.Fatalf("scope %s answers %+v", scope, report)
			}
			if role := report.Roles["cto"]; role.Status != "offline" || role.Epoch != 0 || role.LastReason != "init" {
				t.Fatalf("the role that nobody held is %+v", role)
			}
		}
		for _, q := range []core.StatusQuery{
			{Scope: core.StatusScopeAgent, AgentID: "nobody"}, {Scope: core.StatusScopeAgent}, {Scope: "other"}, {},
		} {
			report, err := b.hub.Status(b.ctx, q)
			b.must(err)
			if report.Hub != nil || report.Agent != nil || report.Trace != nil || report.Identity.StoreFingerprint == "" {
				t.Fatalf("query %+v answers %+v", q, report)
			}
		}
		report, err := b.hub.Status(b.ctx, core.StatusQuery{Scope: core.StatusScopeTrace, TraceID: "t"})
		b.must(err)
		if report.Trace == nil || len(report.Trace) != 0 {
			t.Fatalf("a trace without messages is %v, want an empty list", report.Trace)
		}
	})
}
