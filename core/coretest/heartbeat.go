package coretest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"drawbridge/core"
)

func testHeartbeat(t *testing.T, open func(*testing.T) *bench) {
	t.Run("the lease is clamped, never refused", func(t *testing.T) {
		b := open(t)
		b.register("a")
		for _, c := range []struct {
			ttl  core.Opt[int64]
			want time.Duration
		}{
			{core.Opt[int64]{}, 1_320_000 * time.Millisecond},
			{core.Some(int64(5)), time.Second},
			{core.Some(int64(-1 << 62)), time.Second},
			{core.Some(int64(90_000)), 90 * time.Second},
			{core.Some(int64(999_999_999)), 24 * time.Hour},
			{core.Some(int64(1 << 62)), 24 * time.Hour},
		} {
			b.clock.Advance(time.Second)
			beat, err := b.hub.Heartbeat(b.ctx, core.HeartbeatRequest{AgentID: "a", TTLMs: c.ttl})
			b.must(err)
			if want := b.now().Add(c.want); beat.LeaseExpires != want || b.agent("a").LeaseExpires != want || beat.ServerTime != b.now() {
				t.Fatalf("ttl %+v gives %+v, want a lease until %d", c.ttl, beat, want)
			}
		}
	})

	t.Run("a heartbeat revives a stale and an offline agent", func(t *testing.T) {
		b := open(t)
		r := b.register("a")
		for _, status := range []string{"stale", "offline"} {
			_, err := b.hub.ReportStatus(b.ctx, core.ReportRequest{AgentID: "a", Status: status})
			b.must(err)
			b.wantAgent("a", 1, core.Status(status))
			b.must(b.heartbeat("a", r.Generation))
			b.wantAgent("a", 1, core.StatusOnline)
		}
	})

	// aws-labs/amazon-kinesis-client#537: the renewal's answer is lost; the next
	// fenced write must succeed.
	t.Run("a heartbeat whose answer was lost succeeds and so does the next", func(t *testing.T) {
		b := open(t)
		b.registerWith(core.RegisterRequest{AgentID: "a", CLI: "claude", StepDeadlineMs: core.Some(int64(60_000))})
		for step := int64(1); step <= 3; step++ {
			b.clock.Advance(time.Second)
			stop := b.LoseNextWrite()
			beat, err := b.hub.Heartbeat(b.ctx, core.HeartbeatRequest{AgentID: "a", Step: core.Some(step), Fences: core.Fences{Generation: core.Some(int64(1))}})
			stop()
			b.must(err)
			if !beat.Replayed {
				t.Fatalf("step %d is answered %+v, want it replayed", step, beat)
			}
			if a := b.agent("a"); a.Step != core.Some(step) || a.StepAt != b.now() || a.LastSeen != b.now() {
				t.Fatalf("after step %d the agent stands at %+v", step, a)
			}
		}
	})

	// cirello-io/dynamolock#14: acquire right after releasing.
	t.Run("a register right after a deregister is renewed by its heartbeats", func(t *testing.T) {
		b := open(t)
		r := b.register("a")
		b.must(b.deregister("a", r.Generation))
		r = b.register("a")
		b.must(b.heartbeat("a", r.Generation))
		b.wantAgent("a", 2, core.StatusOnline)
	})

	t.Run("a heartbeat on its way while its agent deregisters does not bring it back", func(t *testing.T) {
		b := open(t)
		r := b.register("a")
		b.tick()
		b.tap.at(beforeHeartbeat, func() {
			b.tick()
			b.must(b.deregister("a", r.Generation))
		})
		b.must(b.heartbeat("a", r.Generation))
		b.wantAgent("a", r.Generation, core.StatusOffline)
	})

	t.Run("a deregister on its way while its agent heartbeats still wins", func(t *testing.T) {
		b := open(t)
		r := b.register("a")
		b.tick()
		var beat core.AgentHeartbeat
		b.tap.at(beforeStatus, func() {
			b.tick()
			beat = b.write("a", r.Generation)
			b.deliver(beat)
		})
		b.must(b.deregister("a", r.Generation))
		b.wantAgent("a", r.Generation, core.StatusOffline)
		b.deliver(beat) // a late copy of it
		b.wantAgent("a", r.Generation, core.StatusOffline)
	})

	t.Run("an unfenced deregister on its way while a new owner registers leaves that one alone", func(t *testing.T) {
		b := open(t)
		b.register("a")
		b.tap.at(beforeStatus, func() {
			b.clock.Advance(2 * time.Millisecond)
			b.register("a")
		})
		_, err := b.hub.Deregister(b.ctx, core.DeregisterRequest{AgentID: "a"})
		b.must(err)
		b.wantAgent("a", 2, core.StatusOnline)
	})

	// amazon-dynamodb-lock-client#116: release concurrent with heartbeat.
	t.Run("late and doubled heartbeats never resurrect a released agent", func(t *testing.T) {
		b := open(t)
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		for round := range b.Seeds {
			b.playRelease(fmt.Sprintf("a%d", round), random)
		}
	})

	t.Run("a step that has not grown for longer than its deadline reads hung", testStep(open))
	t.Run("a batch tells each agent's own outcome in order", testBatch(open))
}

// playRelease plays one random schedule: heartbeats, copies of them that arrive
// late, a heartbeat that is still on its way when the release arrives.
func (b *bench) playRelease(id string, random *rand.Rand) {
	b.t.Helper()
	b.clock.Advance(time.Duration(1+random.IntN(2_000_000)) * time.Microsecond)
	r := b.register(id)
	var sent []core.AgentHeartbeat
	for range random.IntN(4) {
		b.clock.Advance(time.Duration(1+random.IntN(3000)) * time.Microsecond)
		beat := b.write(id, r.Generation)
		sent = append(sent, beat)
		if random.IntN(3) > 0 {
			_, err := b.Store.HeartbeatAgent(b.ctx, beat)
			b.must(err)
		}
	}
	b.tick()
	if len(sent) > 0 && random.IntN(2) == 0 {
		late := sent[random.IntN(len(sent))]
		b.tap.at(beforeStatus, func() { b.deliver(late) })
	}
	b.must(b.deregister(id, r.Generation))
	for range random.IntN(4) {
		if len(sent) > 0 {
			b.deliver(sent[random.IntN(len(sent))])
		}
	}
	b.wantAgent(id, r.Generation, core.StatusOffline)
}

func (b *bench) write(id string, generation int64) core.AgentHeartbeat {
	now := b.clock.Now()
	return core.AgentHeartbeat{
		AgentID: id, Generation: core.Some(generation), LeaseExpires: core.InstantOf(now).Add(time.Minute),
		WriteStamp: core.WriteStamp{WriteID: fmt.Sprintf("%s-%d", id, now.UnixMicro()), Started: now},
	}
}

func (b *bench) deliver(beat core.AgentHeartbeat) {
	b.t.Helper()
	_, err := b.Store.HeartbeatAgent(b.ctx, beat)
	b.must(err)
}

// gastownhall/gastown#4704, stevehuang0115/crewly#120: alive, but standing still.
func testStep(open func(*testing.T) *bench) func(*testing.T) {
	return func(t *testing.T) {
		b := open(t)
		b.registerWith(core.RegisterRequest{AgentID: "a", CLI: "claude", TimeoutSec: core.Some(3600.0), StepDeadlineMs: core.Some(int64(600_000))})
		registered := b.now()
		beat := func(step int64) core.AgentView {
			t.Helper()
			_, err := b.hub.Heartbeat(b.ctx, core.HeartbeatRequest{AgentID: "a", Step: core.Some(step)})
			b.must(err)
			return b.agent("a").View(b.now())
		}
		if v := b.agent("a").View(registered.Add(10 * time.Minute)); v.Hung {
			t.Fatalf("hung at its deadline, not past it: %+v", v)
		}
		if v := b.agent("a").View(registered.Add(10*time.Minute + time.Millisecond)); !v.Hung || v.HungSince != registered.Add(10*time.Minute) {
			t.Fatalf("not hung past its deadline: %+v", v)
		}
		b.clock.Advance(time.Second)
		beat(1)
		grown := b.now()
		for range 61 {
			b.clock.Advance(10 * time.Second)
			beat(1)
		}
		if v := beat(1); !v.Hung || v.HungSince != grown.Add(10*time.Minute) || v.Effective != core.StatusOnline {
			t.Fatalf("heartbeats without progress hide the verdict: %+v", v)
		}
		if v := beat(0); !v.Hung || v.Step != core.Some(int64(1)) {
			t.Fatalf("a step that goes back counts as progress: %+v", v)
		}
		if v := beat(2); v.Hung {
			t.Fatalf("hung in spite of progress: %+v", v)
		}
		b.clock.Advance(11 * time.Minute)
		b.registerWith(core.RegisterRequest{AgentID: "a", CLI: "claude", StepDeadlineMs: core.Some(int64(600_000))})
		if v := b.agent("a").View(b.now()); v.Hung || v.Step.Set {
			t.Fatalf("a register does not reset the step: %+v", v)
		}
		b.clock.Advance(time.Hour)
		if v := b.agent("a").View(b.now()); v.Hung || v.Effective == core.StatusOnline {
			t.Fatalf("hung without a live lease: %+v", v)
		}
	}
}

func testBatch(open func(*testing.T) *bench) func(*testing.T) {
	return func(t *testing.T) {
		b := open(t)
		request := core.BatchHeartbeatRequest{TTLMs: core.Some(int64(30_000))}
		for i := range core.MaxBatch {
			id := fmt.Sprintf("a%02d", i)
			if i%10 != 3 {
				b.register(id)
			}
			beat := core.AgentBeat{AgentID: id}
			if i%10 == 5 {
				beat.Generation = core.Some(int64(9))
			}
			request.Agents = append(request.Agents, beat)
		}
		b.clock.Advance(time.Second)
		results, err := b.hub.HeartbeatBatch(b.ctx, request)
		b.must(err)
		for i, r := range results {
			if r.AgentID != request.Agents[i].AgentID {
				t.Fatalf("result %d is of %s", i, r.AgentID)
			}
			if refused := i%10 == 3 || i%10 == 5; refused != (r.Err != nil) {
				t.Fatalf("result %d is %+v", i, r)
			} else if refused && r.Err.Code != core.CodeStalePresenceOwner {
				t.Fatalf("result %d is refused with %v", i, r.Err)
			} else if !refused && r.LeaseExpires != b.now().Add(30*time.Second) {
				t.Fatalf("result %d has lease %d", i, r.LeaseExpires)
			}
		}
		for _, n := range []int{0, core.MaxBatch + 1} {
			_, err := b.hub.HeartbeatBatch(b.ctx, core.BatchHeartbeatRequest{Agents: make([]core.AgentBeat, n)})
			b.wantCode(err, core.CodeInvalidArgument)
		}
		request.HubInstanceID = core.Some("old")
		_, err = b.hub.HeartbeatBatch(b.ctx, request)
		b.wantCode(err, core.CodeStaleHubInstance)
	}
}
