package coretest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"drawbridge/core"
)

// The races F1 to F6 of contract 3.7 and the fences of 3.2 to 3.4.
func testFencing(t *testing.T, open func(*testing.T) *bench) {
	t.Run("F1 a superseded owner cannot deregister the new one", func(t *testing.T) {
		b := open(t)
		first := b.register("a")
		second := b.register("a")
		b.wantCode(b.deregister("a", first.Generation), core.CodeStalePresenceOwner)
		b.wantAgent("a", second.Generation, core.StatusOnline)
	})

	// amazon-dynamodb-lock-client#1, gastownhall/gastown#909: a stalled owner
	// resumes after another took over.
	t.Run("F2 a superseded owner cannot extend the new one's lease and learns the current generation", func(t *testing.T) {
		b := open(t)
		first := b.register("a")
		second := b.register("a")
		before := b.agent("a")
		b.clock.Advance(time.Second)
		refusal := b.wantCode(b.heartbeat("a", first.Generation), core.CodeStalePresenceOwner)
		data, ok := refusal.Data.(core.StalePresence)
		if !ok || data.Current != second.Generation || data.Identity.HubInstanceID == "" || data.LeaseExpires != b.now().Add(time.Minute) {
			t.Fatalf("the refusal carries %+v", refusal.Data)
		}
		if after := b.agent("a"); after.LeaseExpires != before.LeaseExpires || after.LastSeen != before.LastSeen {
			t.Fatalf("a refused heartbeat changed %+v to %+v", before, after)
		}
	})

	t.Run("F3 in all 24 orders the old owner succeeds exactly before the new one registers", func(t *testing.T) {
		for _, order := range permutations([]string{"register", "heartbeat", "deregister", "sweep"}) {
			for _, network := range []string{"sound", "loses answers", "delivers late copies"} {
				t.Run(strings.Join(order, " ")+", network "+network, func(t *testing.T) {
					testOrder(open(t), order, network)
				})
			}
		}
	})

	t.Run("F4 the hub's old identity is refused even with the right generation", func(t *testing.T) {
		b := open(t)
		r := b.register("a")
		rotation, err := b.hub.RotateIdentity(b.ctx, "test")
		b.must(err)
		old := core.Fences{Generation: core.Some(r.Generation), HubInstanceID: core.Some(r.Identity.HubInstanceID)}
		_, err = b.hub.Heartbeat(b.ctx, core.HeartbeatRequest{AgentID: "a", Fences: old})
		refusal := b.wantCode(err, core.CodeStaleHubInstance)
		if refusal.Data != rotation.Identity {
			t.Fatalf("the refusal carries %+v, want %+v", refusal.Data, rotation.Identity)
		}
		_, err = b.hub.Status(b.ctx, core.StatusQuery{Scope: core.StatusScopeHub, Fences: old})
		b.wantCode(err, core.CodeStaleHubInstance)
		b.must(b.heartbeat("a", r.Generation))
	})

	t.Run("F5 a client that knows no fences is served", func(t *testing.T) {
		b := open(t)
		b.register("a")
		b.register("a")
		_, err := b.hub.Heartbeat(b.ctx, core.HeartbeatRequest{AgentID: "a"})
		b.must(err)
		_, err = b.hub.Deregister(b.ctx, core.DeregisterRequest{AgentID: "a"})
		b.must(err)
		b.wantAgent("a", 2, core.StatusOffline)
	})

	t.Run("hub instance is compared before store fingerprint, and nothing is written", func(t *testing.T) {
		b := open(t)
		wrong := core.Some("")
		for _, c := range []struct {
			fences core.Fences
			want   core.Code
		}{
			{core.Fences{HubInstanceID: wrong}, core.CodeStaleHubInstance},
			{core.Fences{StoreFingerprint: wrong}, core.CodeStoreFingerprintMismatch},
			{core.Fences{HubInstanceID: wrong, StoreFingerprint: wrong}, core.CodeStaleHubInstance},
		} {
			_, err := b.hub.Register(b.ctx, core.RegisterRequest{AgentID: "a", CLI: "other", Fences: c.fences})
			b.wantCode(err, c.want)
		}
		if r := b.register("a"); r.Generation != 1 {
			t.Fatalf("a refused register used up a generation: %d", r.Generation)
		}
	})

	t.Run("an unknown agent and a generation nobody has are refused by every fenced operation", func(t *testing.T) {
		b := open(t)
		b.register("known")
		for _, id := range []string{"unknown", "known"} {
			for _, generation := range []int64{-1, 0, 2} {
				b.wantCode(b.heartbeat(id, generation), core.CodeStalePresenceOwner)
				b.wantCode(b.deregister(id, generation), core.CodeStalePresenceOwner)
				_, err := b.hub.ReportStatus(b.ctx, core.ReportRequest{
					AgentID: id, Status: "offline", Fences: core.Fences{Generation: core.Some(generation)},
				})
				b.wantCode(err, core.CodeStalePresenceOwner)
			}
		}
		b.wantAgent("known", 1, core.StatusOnline)
	})

	t.Run("a finished generation is over: only a register brings the agent back", func(t *testing.T) {
		b := open(t)
		r := b.register("a")
		_, err := b.hub.Deregister(b.ctx, core.DeregisterRequest{AgentID: "a", Final: true})
		b.must(err)
		b.clock.Advance(time.Second)
		b.wantCode(b.heartbeat("a", r.Generation), core.CodeStalePresenceOwner)
		_, err = b.hub.Heartbeat(b.ctx, core.HeartbeatRequest{AgentID: "a"})
		b.wantCode(err, core.CodeStalePresenceOwner)
		_, err = b.hub.ReportStatus(b.ctx, core.ReportRequest{AgentID: "a", Status: "online"})
		b.wantCode(err, core.CodeStalePresenceOwner)
		b.must(b.deregister("a", r.Generation))
		b.wantAgent("a", 1, core.StatusOffline)
		second := b.register("a")
		b.must(b.heartbeat("a", second.Generation))
		b.wantAgent("a", 2, core.StatusOnline)
	})
}

// testOrder plays one order of F3: A's lease has passed, then B registers, A
// heartbeats and deregisters with its generation, and a sweep runs.
func testOrder(b *bench, order []string, network string) {
	const id = "a"
	first := b.register(id)
	b.clock.Advance(61 * time.Second)
	registered := slices.Index(order, "register")
	var second core.Registration
	for i, step := range order {
		b.tick()
		if network == "loses answers" {
			stop := b.LoseNextWrite()
			defer stop()
		}
		var err error
		switch step {
		case "register":
			second = b.register(id)
		case "sweep":
			b.sweep()
		case "heartbeat":
			err = b.heartbeat(id, first.Generation)
		case "deregister":
			err = b.deregister(id, first.Generation)
		}
		if i < registered {
			b.must(err)
		} else if step == "heartbeat" || step == "deregister" {
			b.wantCode(err, core.CodeStalePresenceOwner)
		}
		if network == "delivers late copies" {
			b.ResendWrites()
		}
	}
	agent := b.wantAgent(id, second.Generation, core.StatusOnline)
	if second.Generation != 2 || agent.LeaseExpires != second.LeaseExpires {
		b.t.Fatalf("agent stands at %+v, want generation 2 with the lease of %+v", agent, second)
	}
}

func permutations(words []string) [][]string {
	if len(words) < 2 {
		return [][]string{words}
	}
	var all [][]string
	for i := range words {
		rest := slices.Concat(words[:i:i], words[i+1:])
		for _, tail := range permutations(rest) {
			all = append(all, append([]string{words[i]}, tail...))
		}
	}
	if want := len(words); want == 4 && len(all) != 24 {
		panic(fmt.Sprintf("%d permutations of 4", len(all)))
	}
	return all
}
