package coretest

import (
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"drawbridge/core"
)

func testRegister(t *testing.T, open func(*testing.T) *bench) {
	t.Run("64 racing registers of one id get the generations 1 to 64, none twice", func(t *testing.T) {
		b := open(t)
		got := b.race(64)
		for i, generation := range got {
			if generation != int64(i+1) {
				t.Fatalf("generations are %v", got)
			}
		}
		b.wantAgent("a", 64, core.StatusOnline)
	})

	t.Run("under lost answers no generation is given twice, and a gap costs a lost answer", func(t *testing.T) {
		b := open(t)
		b.meet()
		const lost = 8
		for range lost {
			defer b.LoseNextWrite()()
		}
		got := b.race(64)
		if len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Fatalf("a generation was given twice: %v", got)
		}
		if last := b.agent("a").Generation; last > 64+lost || last < 64 {
			t.Fatalf("the agent stands at generation %d after 64 registers and %d lost answers", last, lost)
		}
	})

	// aws/aws-sdk-java#2667, aws/aws-sdk-go#3765: apply the conditional write,
	// drop the response, let the SDK retry.
	t.Run("a register whose answer was lost succeeds as replayed and counts once", func(t *testing.T) {
		b := open(t)
		b.meet()
		for want := int64(1); want <= 3; want++ {
			stop := b.LoseNextWrite()
			r := b.register("a")
			stop()
			if r.Generation != want || !r.Replayed {
				t.Fatalf("register answers generation %d, replayed %t; want %d, true", r.Generation, r.Replayed, want)
			}
			b.tick()
		}
		b.wantAgent("a", 3, core.StatusOnline)
	})

	t.Run("a late copy of a register does not take the id back", func(t *testing.T) {
		b := open(t)
		b.register("a")
		b.tick()
		b.register("a")
		b.tick()
		b.must(b.heartbeat("a", 2))
		b.ResendWrites()
		b.wantAgent("a", 2, core.StatusOnline)
	})

	t.Run("a register that met a later clock still succeeds", func(t *testing.T) {
		b := open(t)
		b.register("a")
		b.tap.at(beforeRegister, func() {
			b.clock.Advance(time.Second)
			b.must(b.heartbeat("a", 1))
		})
		if r := b.register("a"); r.Generation != 2 {
			t.Fatalf("generation is %d, want 2", r.Generation)
		}
		b.must(b.heartbeat("a", 2))
	})

	t.Run("a late copy of what a register met on a later clock does not take the id back", func(t *testing.T) {
		for _, keyed := range []bool{false, true} {
			b := open(t)
			b.clock.Advance(time.Minute)
			b.register("a")
			b.tick()
			_, err := b.hub.Heartbeat(b.ctx, core.HeartbeatRequest{AgentID: "a", TTLMs: core.Some(int64(1000))})
			b.must(err)
			b.clock.Advance(-time.Minute) // another host
			request := core.RegisterRequest{AgentID: "a", CLI: "codex"}
			if keyed {
				request.Idempotency = core.Some(core.IdempotencyKey{Scope: "s", Key: "k", Body: []byte("b")})
			}
			lease := b.registerWith(request).LeaseExpires
			b.ResendWrites()
			if a := b.wantAgent("a", 2, core.StatusOnline); a.LeaseExpires != lease || a.CLI != "codex" {
				t.Fatalf("keyed %t: the late copies changed the agent to %+v", keyed, a)
			}
		}
	})

	t.Run("fields that are not given keep the identity and replace the rest", func(t *testing.T) {
		b := open(t)
		const project, host = "prj_0123456789012345678901", "hst_one"
		b.registerWith(core.RegisterRequest{
			AgentID: "a", CLI: "claude", Topics: []string{" one ", "two", "one", ""}, Capabilities: []string{"code"},
			Metadata: json.RawMessage(`{"k": 1}`), ProjectID: core.Some(project), SessionID: core.Some(" s "), HostID: core.Some(host),
			Step: core.Some(int64(7)), StepDeadlineMs: core.Some(int64(1000)),
		})
		first := b.agent("a")
		if !slices.Equal(first.Topics, []string{"one", "two"}) || string(first.Metadata) != `{"k":1}` || first.SessionID != "s" || first.Step != core.Some(int64(7)) {
			t.Fatalf("stored as %+v", first)
		}
		b.registerWith(core.RegisterRequest{AgentID: "a", CLI: "codex"})
		second := b.agent("a")
		if second.ProjectID != project || second.SessionID != "s" || second.HostID != host {
			t.Fatalf("the identity was not kept: %+v", second)
		}
		if second.CLI != "codex" || len(second.Topics) != 0 || len(second.Capabilities) != 0 || string(second.Metadata) != "{}" || second.Step.Set || second.StepDeadline.Set {
			t.Fatalf("the rest was not replaced: %+v", second)
		}
	})

	t.Run("locators are kept until others are given", func(t *testing.T) {
		b := open(t)
		locators := json.RawMessage(`[{"schema_version":"tfx.transport-locator.v1","transport_id":"t","kind":"tmux","host_id":"hst_h","capabilities":["wake"],"priority":1,"expires_at_ms":` +
			string(mustJSON(b.now().Add(time.Minute))) + `,"locator":{"mux_server_id":"m","session_name":"s"}}]`)
		b.registerWith(core.RegisterRequest{AgentID: "a", CLI: "claude", TransportLocators: core.Some(locators)})
		b.registerWith(core.RegisterRequest{AgentID: "a", CLI: "claude"})
		if a := b.agent("a"); string(a.Locators) != string(locators) || a.HostID != "hst_h" {
			t.Fatalf("stored locators are %s on %s", a.Locators, a.HostID)
		}
		b.registerWith(core.RegisterRequest{AgentID: "a", CLI: "claude", TransportLocators: core.Some(json.RawMessage(`"[]"`))})
		if a := b.agent("a"); string(a.Locators) != "[]" {
			t.Fatalf("stored locators are %s, want none", a.Locators)
		}
	})

	// amazon-dynamodb-lock-client#93, #42, #44, #88; dynamolock#778: taking over
	// waits for nothing.
	t.Run("taking over a crashed or a live agent succeeds on the first call", func(t *testing.T) {
		b := open(t)
		b.register("a")
		if r := b.register("a"); r.Generation != 2 {
			t.Fatalf("over a live owner: generation %d", r.Generation)
		}
		b.clock.Advance(time.Hour)
		if r := b.register("a"); r.Generation != 3 || r.LeaseExpires != b.now().Add(time.Minute) {
			t.Fatalf("over a crashed owner: %+v", r)
		}
	})
}

// race registers one id n times at once and returns the generations in order.
func (b *bench) race(n int) []int64 {
	b.t.Helper()
	b.meet()
	generations := make([]int64, n)
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() {
			var r core.Registration
			r, errs[i] = b.hub.Register(b.ctx, core.RegisterRequest{AgentID: "a", CLI: "claude"})
			generations[i] = r.Generation
		})
	}
	wait.Wait()
	for _, err := range errs {
		b.must(err)
	}
	slices.Sort(generations)
	return generations
}

func mustJSON(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
