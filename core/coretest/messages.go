package coretest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"drawbridge/core"
)

// MessageStore is what the hub's messages need of an adapter.
type MessageStore interface {
	Store
	core.MessageStore
}

// MessageHarness is an empty store and the ways to make the network under it
// misbehave.
type MessageHarness struct {
	Store MessageStore
	// LoseNextWrite has the next write carried out and its answer lost.
	LoseNextWrite func() (stop func())
	// RefuseAfter lets a number of writes through and refuses all that follow:
	// the caller died there.
	RefuseAfter func(writes int) (stop func())
	// Faults are scripts of mixed misbehaviour, by name.
	Faults map[string]func(seed uint64) (stop func())
}

// RunMessages checks an adapter's messages. open returns a harness over a new,
// empty store.
func RunMessages(t *testing.T, open func(t *testing.T) MessageHarness) {
	for _, topic := range []struct {
		name string
		run  func(*testing.T, func(*testing.T) *post)
	}{
		{"Publish", testPublish},
		{"Fanout", testFanout},
		{"Drain", testDrain},
		{"Leases", testLeases},
		{"Expiry", testExpiry},
		{"DeadLetters", testDeadLetters},
		{"Ask", testAsk},
		{"Payloads", testPayloads},
		{"LostResponses", testLostResponses},
	} {
		t.Run(topic.name, func(t *testing.T) {
			topic.run(t, func(t *testing.T) *post { return newPost(t, open(t)) })
		})
	}
}

// post is a hub over the store under test, and how tests use its messages.
type post struct {
	MessageHarness
	t     *testing.T
	ctx   context.Context
	clock *Clock
	hub   *core.Hub
}

func newPost(t *testing.T, h MessageHarness) *post {
	clock := NewClock()
	return &post{MessageHarness: h, t: t, ctx: t.Context(), clock: clock, hub: NewMessageHub(h.Store, clock)}
}

// NewMessageHub returns a hub over a store that keeps messages too.
func NewMessageHub(s MessageStore, clock core.Clock) *core.Hub {
	return core.New(Ticks(core.Config{
		Presence: s, Identity: s, Sweeps: s, Messages: s, Roles: noRoles{}, Jobs: noJobs{},
		Clock: clock, IDs: core.NewIDs(clock, rand.Reader),
	}))
}

func (p *post) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *post) wantCode(err error, want core.Code) {
	p.t.Helper()
	if core.CodeOf(err) != want {
		p.t.Fatalf("error is %v, want %s", err, want)
	}
}

func (p *post) now() core.Instant { return core.InstantOf(p.clock.Now()) }

// letter is a request to publish, with the defaults of the endpoint.
func letter(to string) core.PublishRequest {
	return core.PublishRequest{From: "s", To: to, Topic: "t", Priority: 5, TTLMs: 300_000}
}

func (p *post) register(id string, topics ...string) int64 {
	p.t.Helper()
	r, err := p.hub.Register(p.ctx, core.RegisterRequest{AgentID: id, CLI: "claude", Topics: topics})
	p.must(err)
	return r.Generation
}

func (p *post) publish(r core.PublishRequest) core.Published {
	p.t.Helper()
	done, err := p.hub.Publish(p.ctx, r)
	p.must(err)
	return done
}

func (p *post) send(to string) string {
	p.t.Helper()
	return p.publish(letter(to)).MessageID
}

func drainOf(agent string) core.DrainRequest {
	return core.DrainRequest{AgentID: agent, Max: 10, AutoAck: true}
}

func (p *post) drain(r core.DrainRequest) []core.Delivery {
	p.t.Helper()
	done, err := p.hub.Drain(p.ctx, r)
	p.must(err)
	return done.Messages
}

func (p *post) lease(agent string) []core.Delivery {
	p.t.Helper()
	r := drainOf(agent)
	r.AutoAck, r.VisibilityMs = false, core.Some(int64(10_000))
	return p.drain(r)
}

func (p *post) sweep() core.MessageSweep {
	p.t.Helper()
	done, err := p.hub.SweepMessages(p.ctx)
	p.must(err)
	return done
}

func (p *post) deadLetters() []core.DeadLetterView {
	p.t.Helper()
	list, err := p.hub.DeadLetters(p.ctx, core.DeadLetterQuery{Limit: 100})
	p.must(err)
	return list.Letters
}

func (p *post) ack(r core.AckRequest) core.AckResult {
	p.t.Helper()
	done, err := p.hub.Ack(p.ctx, r)
	p.must(err)
	return done
}

func (p *post) status(trace string) core.MessageStatus {
	p.t.Helper()
	report, err := p.hub.Status(p.ctx, core.StatusQuery{Scope: core.StatusScopeTrace, TraceID: trace})
	p.must(err)
	if len(report.Trace) != 1 {
		p.t.Fatalf("trace %s has %d messages", trace, len(report.Trace))
	}
	return report.Trace[0].Status
}

func ids(deliveries []core.Delivery) []string {
	list := []string{}
	for _, d := range deliveries {
		list = append(list, d.ID)
	}
	return list
}

func (p *post) wantIDs(got []core.Delivery, want ...string) {
	p.t.Helper()
	if !slices.Equal(ids(got), want) {
		p.t.Fatalf("messages are %v, want %v", ids(got), want)
	}
}

func codes(r core.AckResult) []core.Code {
	var list []core.Code
	for _, item := range r.Results {
		list = append(list, item.Code)
	}
	return list
}

func (p *post) wantCodes(r core.AckResult, want ...core.Code) {
	p.t.Helper()
	if !slices.Equal(codes(r), want) {
		p.t.Fatalf("outcomes are %v, want %v", codes(r), want)
	}
}

func testPublish(t *testing.T, open func(*testing.T) *post) {
	t.Run("a message waits for an agent that is not registered yet", func(t *testing.T) {
		p := open(t)
		done := p.publish(letter("ghost"))
		if done.FanoutCount != 1 || done.Recipient.Status != "unknown" || done.ExpiresAt != p.now()+300_000 {
			t.Fatalf("answer is %+v", done)
		}
		if s := p.status(done.TraceID); s != core.MessageDelivered {
			t.Fatalf("status is %s", s)
		}
		p.register("ghost")
		p.wantIDs(p.drain(drainOf("ghost")), done.MessageID)
	})

	t.Run("the recipient's state is told", func(t *testing.T) {
		p := open(t)
		p.register("r")
		for _, step := range []struct {
			pass time.Duration
			want string
		}{{0, "online"}, {core.DefaultLease + time.Millisecond, "stale"}, {core.OfflineAfter, "offline"}} {
			p.clock.Advance(step.pass)
			if done := p.publish(letter("r")); done.Recipient.Status != step.want {
				t.Errorf("state is %+v, want %s", done.Recipient, step.want)
			}
		}
	})

	// CommanderCrowCode/relay-mesh#71.
	t.Run("a sender that insists on an online recipient is refused, and nothing is stored", func(t *testing.T) {
		p := open(t)
		insist := letter("r")
		insist.RequireOnline, insist.TraceID = true, "x"
		_, err := p.hub.Publish(p.ctx, insist)
		p.wantCode(err, core.CodeRecipientNotOnline)
		generation := p.register("r")
		p.clock.Advance(core.DefaultLease + time.Millisecond)
		_, err = p.hub.Publish(p.ctx, insist)
		p.wantCode(err, core.CodeRecipientNotOnline)
		p.register("r")
		insist.From, insist.Fences.Generation = "r", core.Some(generation)
		_, err = p.hub.Publish(p.ctx, insist)
		p.wantCode(err, core.CodeStalePresenceOwner)
		insist.Fences.Generation = core.Some(generation + 1)
		done := p.publish(insist)
		p.wantIDs(p.drain(drainOf("r")), done.MessageID)
	})

	t.Run("a stale sender publishes nothing", func(t *testing.T) {
		p := open(t)
		p.register("r", "x")
		p.register("s")
		p.register("s")
		for _, to := range []string{"r", "topic:x"} {
			for _, generation := range []int64{1, 3, -1} {
				r := letter(to)
				r.Fences.Generation = core.Some(generation)
				_, err := p.hub.Publish(p.ctx, r)
				p.wantCode(err, core.CodeStalePresenceOwner)
			}
		}
		p.wantIDs(p.drain(drainOf("r")))
		r := letter("r")
		r.Fences.Generation = core.Some(int64(2))
		p.wantIDs(p.drain(drainOf("r")), []string{}...)
		id := p.publish(r).MessageID
		p.wantIDs(p.drain(drainOf("r")), id)
	})

	// softwaremill/elasticmq#354, a2aproject/A2A#928, #1987.
	t.Run("the same key gives the same message, also after it was acknowledged", func(t *testing.T) {
		p := open(t)
		p.register("r", "x")
		for _, to := range []string{"r", "topic:x", "topic:nobody"} {
			r := letter(to)
			r.Idempotency = core.Some(core.IdempotencyKey{Scope: "s", Key: to, Body: []byte("b")})
			first := p.publish(r)
			p.drain(drainOf("r"))
			p.clock.Advance(time.Hour)
			second := p.publish(r)
			if first.MessageID != second.MessageID || !second.Replayed || first.Replayed || first.ExpiresAt != second.ExpiresAt || first.FanoutCount != second.FanoutCount {
				t.Errorf("to %s: first %+v, then %+v", to, first, second)
			}
			p.wantIDs(p.drain(drainOf("r")))
			r.Idempotency.Value.Body = []byte("other")
			_, err := p.hub.Publish(p.ctx, r)
			p.wantCode(err, core.CodeIdempotencyMismatch)
		}
	})

	t.Run("32 callers with one key publish one message", func(t *testing.T) {
		p := open(t)
		r := letter("r")
		r.Idempotency = core.Some(core.IdempotencyKey{Scope: "s", Key: "k", Body: []byte("b")})
		p.publish(letter("other")) // makes the identity
		answers := make([]core.Published, 32)
		errs := make([]error, 32)
		var wait sync.WaitGroup
		for i := range answers {
			wait.Go(func() { answers[i], errs[i] = p.hub.Publish(p.ctx, r) })
		}
		wait.Wait()
		for i := range answers {
			p.must(errs[i])
			if answers[i].MessageID != answers[0].MessageID {
				t.Fatalf("messages %s and %s", answers[i].MessageID, answers[0].MessageID)
			}
		}
		p.wantIDs(p.drain(drainOf("r")), answers[0].MessageID)
	})

	t.Run("a message to a role stays in the role's inbox", func(t *testing.T) {
		p := open(t)
		p.register("topic:cto")
		done := p.publish(letter("topic:cto"))
		if done.FanoutCount != 0 || done.Role == nil || done.Role.PendingCount != 1 {
			t.Fatalf("answer is %+v", done)
		}
		if s := p.status(done.TraceID); s != core.MessageQueued {
			t.Fatalf("status is %s", s)
		}
		if done := p.publish(letter("topic:role:prj/lead")); done.FanoutCount != 0 || done.Role != nil {
			t.Fatalf("answer is %+v", done)
		}
		p.wantIDs(p.drain(drainOf("topic:cto")))
	})

	t.Run("what is out of bounds is refused by field, and nothing is stored", func(t *testing.T) {
		p := open(t)
		for field, spoil := range map[string]func(*core.PublishRequest){
			"from":           func(r *core.PublishRequest) { r.From = "" },
			"to":             func(r *core.PublishRequest) { r.To = "topic:" },
			"topic":          func(r *core.PublishRequest) { r.Topic = "" },
			"type":           func(r *core.PublishRequest) { r.Type = "foo" },
			"priority":       func(r *core.PublishRequest) { r.Priority = 10 },
			"ttl_ms":         func(r *core.PublishRequest) { r.TTLMs = 0 },
			"payload":        func(r *core.PublishRequest) { r.Payload = json.RawMessage("{") },
			"max_deliveries": func(r *core.PublishRequest) { r.MaxDeliveries = core.Some(int64(0)) },
			"if_recipient":   func(r *core.PublishRequest) { r.To, r.RequireOnline = "topic:x", true },
			"trace_id":       func(r *core.PublishRequest) { r.TraceID = "a\n" },
		} {
			r := letter("r")
			spoil(&r)
			_, err := p.hub.Publish(p.ctx, r)
			p.wantCode(err, core.CodeInvalidArgument)
			var refusal *core.Error
			if as(err, &refusal); refusal.Details["field"] != field {
				t.Errorf("the refusal of %s names %v", field, refusal.Details)
			}
		}
		p.wantIDs(p.drain(drainOf("r")))
	})
}

func testFanout(t *testing.T, open func(*testing.T) *post) {
	t.Run("followers that are not offline get a delivery each, the sender too", func(t *testing.T) {
		p := open(t)
		p.register("stale", "x")
		p.clock.Advance(core.DefaultLease)
		p.register("a", "x", "y")
		p.register("s", "x")
		p.register("elsewhere", "y")
		p.register("left", "x")
		p.register("left")
		p.register("gone", "x")
		_, err := p.hub.Deregister(p.ctx, core.DeregisterRequest{AgentID: "gone"})
		p.must(err)
		p.clock.Advance(time.Second)
		done := p.publish(letter("topic:x"))
		if done.FanoutCount != 3 || done.Resuming {
			t.Fatalf("answer is %+v", done)
		}
		for _, id := range []string{"stale", "a", "s"} {
			if s := p.status(done.TraceID); s != core.MessageDelivered {
				t.Fatalf("status is %s before %s drained", s, id)
			}
			p.wantIDs(p.drain(drainOf(id)), done.MessageID)
		}
		if s := p.status(done.TraceID); s != core.MessageAcked {
			t.Fatalf("status is %s", s)
		}
		for _, id := range []string{"elsewhere", "left", "gone"} {
			p.wantIDs(p.drain(drainOf(id)))
		}
	})

	t.Run("entries that are out of date are removed, and fresh ones are not", func(t *testing.T) {
		p := open(t)
		p.register("left", "x")
		p.register("left")
		entries := func() int {
			found, err := p.Store.Followers(p.ctx, "x")
			p.must(err)
			return len(found)
		}
		p.publish(letter("topic:x"))
		if entries() != 1 {
			t.Fatal("a fresh entry is gone")
		}
		p.clock.Advance(2 * time.Hour)
		p.publish(letter("topic:x"))
		if entries() != 0 {
			t.Fatal("an old entry is still there")
		}
	})

	t.Run("a topic that nobody follows queues the message until it expires", func(t *testing.T) {
		p := open(t)
		r := letter("topic:y")
		r.Type = core.MessageHandoff
		done := p.publish(r)
		if s := p.status(done.TraceID); done.FanoutCount != 0 || s != core.MessageQueued {
			t.Fatalf("answer is %+v, status %s", done, s)
		}
		p.clock.Advance(300 * time.Second)
		if s := p.status(done.TraceID); s != core.MessageExpired {
			t.Fatalf("status is %s", s)
		}
		p.sweep()
		if letters := p.deadLetters(); len(letters) != 1 || letters[0].Delivery.ID != done.MessageID || letters[0].Inbox != "" {
			t.Fatalf("dead letters are %+v", letters)
		}
		if notices := p.drain(drainOf("s")); len(notices) != 1 {
			t.Fatalf("%d notices", len(notices))
		}
		p.register("late", "y")
		redriven, err := p.hub.Redrive(p.ctx, core.RedriveRequest{IDs: []string{p.deadLetters()[0].ID}})
		p.must(err)
		if redriven.Count != 1 {
			t.Fatalf("redrive answers %+v", redriven)
		}
		p.wantIDs(p.drain(drainOf("late")), done.MessageID)
	})

	t.Run("a fan-out that stopped anywhere is resumed and reaches everybody once", func(t *testing.T) {
		const followers = 5
		// Writes of a publish: the record, a delivery each, the end of the record.
		for stop := range followers + 2 {
			p := open(t)
			for i := range followers {
				p.register(fmt.Sprintf("f%d", i), "x")
			}
			p.publish(letter("other"))
			resume := p.RefuseAfter(stop)
			done, err := p.hub.Publish(p.ctx, letter("topic:x"))
			resume()
			if stop == 0 {
				if err == nil {
					t.Fatal("a publish whose record is not stored succeeded")
				}
				continue
			}
			p.must(err)
			if !done.Resuming || done.FanoutCount != followers {
				t.Fatalf("answer is %+v", done)
			}
			before := map[string]int{}
			for i := range followers {
				before[fmt.Sprintf("f%d", i)] = len(p.drain(drainOf(fmt.Sprintf("f%d", i))))
			}
			p.sweep() // too early
			p.clock.Advance(61 * time.Second)
			if s := p.sweep(); s.Resumed != 1 {
				t.Fatalf("stopped after %d writes: sweep counts %+v", stop, s)
			}
			for id, had := range before {
				if got := had + len(p.drain(drainOf(id))); got != 1 {
					t.Fatalf("stopped after %d writes: %s got it %d times", stop, id, got)
				}
			}
			if s := p.sweep(); s.Resumed != 0 {
				t.Fatalf("the second sweep counts %+v", s)
			}
		}
	})

	t.Run("repeating the request resumes the fan-out too", func(t *testing.T) {
		p := open(t)
		p.register("a", "x")
		p.register("b", "x")
		p.publish(letter("other"))
		r := letter("topic:x")
		r.Idempotency = core.Some(core.IdempotencyKey{Scope: "s", Key: "k", Body: []byte("b")})
		resume := p.RefuseAfter(1)
		first := p.publish(r)
		resume()
		if !first.Resuming {
			t.Fatalf("answer is %+v", first)
		}
		second := p.publish(r)
		if second.Resuming || second.MessageID != first.MessageID {
			t.Fatalf("answer is %+v", second)
		}
		p.wantIDs(p.drain(drainOf("a")), first.MessageID)
		p.wantIDs(p.drain(drainOf("b")), first.MessageID)
	})

	t.Run("a topic with 1,000 followers works", func(t *testing.T) {
		p := open(t)
		const followers = 1000
		var wait sync.WaitGroup
		slots := make(chan struct{}, 32)
		for i := range followers {
			slots <- struct{}{}
			wait.Go(func() {
				defer func() { <-slots }()
				if _, err := p.hub.Register(p.ctx, core.RegisterRequest{AgentID: fmt.Sprintf("agent-%04d", i), CLI: "claude", Topics: []string{"x"}}); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		done := p.publish(letter("topic:x"))
		if done.FanoutCount != followers || done.Resuming {
			t.Fatalf("answer is %+v", done)
		}
		for i := range followers {
			p.wantIDs(p.drain(drainOf(fmt.Sprintf("agent-%04d", i))), done.MessageID)
		}
		if s := p.status(done.TraceID); s != core.MessageAcked {
			t.Fatalf("status is %s", s)
		}
	})
}

func testDrain(t *testing.T, open func(*testing.T) *post) {
	t.Run("by priority, then age, then id", func(t *testing.T) {
		p := open(t)
		low, high, tie := letter("r"), letter("r"), letter("r")
		high.Priority = 8
		first := p.publish(low).MessageID
		p.clock.Advance(time.Millisecond)
		urgent := p.publish(high).MessageID
		second := p.publish(low).MessageID
		third := p.publish(tie).MessageID
		got := p.drain(drainOf("r"))
		p.wantIDs(got, urgent, first, second, third)
		for _, d := range got {
			if d.Status(p.now()) != core.MessageAcked {
				t.Errorf("%s is %s", d.ID, d.Status(p.now()))
			}
		}
		p.wantIDs(p.drain(drainOf("r")))
	})

	t.Run("without auto_ack nothing changes", func(t *testing.T) {
		p := open(t)
		id := p.send("r")
		r := drainOf("r")
		r.AutoAck = false
		for range 3 {
			got := p.drain(r)
			p.wantIDs(got, id)
			if got[0].Status(p.now()) != core.MessageDelivered {
				t.Fatalf("status is %s", got[0].Status(p.now()))
			}
		}
		p.wantCodes(p.ack(core.AckRequest{AgentID: "r", MessageIDs: []string{id, id, "nothing"}}), "", core.CodeAlreadyAcked, core.CodeNotFound)
		p.wantIDs(p.drain(r))
	})

	t.Run("a filter keeps to its topics, and max_messages is brought into 0 to 100", func(t *testing.T) {
		p := open(t)
		other := letter("r")
		other.Topic = "b"
		var want []string
		for range 3 {
			want = append(want, p.send("r"))
			p.publish(other)
		}
		r := drainOf("r")
		r.Topics, r.Max = []string{"t", "none"}, 2
		p.wantIDs(p.drain(r), want[:2]...)
		r.Max = -1
		p.wantIDs(p.drain(r))
		r.Max = 1 << 40
		p.wantIDs(p.drain(r), want[2:]...)
		if left := p.drain(core.DrainRequest{AgentID: "r", Max: 1000, AutoAck: true}); len(left) != 3 {
			t.Fatalf("%d are left", len(left))
		}
	})

	t.Run("eight drains at once share the messages without one twice", func(t *testing.T) {
		for _, fenced := range []bool{false, true} {
			p := open(t)
			generation := p.register("r")
			want := map[string]bool{}
			for range 120 {
				want[p.send("r")] = true
			}
			var mu sync.Mutex
			got := map[string]int{}
			var wait sync.WaitGroup
			for range 8 {
				wait.Go(func() {
					for range 40 {
						r := drainOf("r")
						if fenced {
							r.Fences.Generation = core.Some(generation)
						}
						done, err := p.hub.Drain(p.ctx, r)
						if err != nil && core.CodeOf(err) != core.CodeContended {
							t.Error(err)
						}
						mu.Lock()
						for _, d := range done.Messages {
							got[d.ID]++
						}
						mu.Unlock()
					}
				})
			}
			wait.Wait()
			for id := range want {
				if got[id] != 1 {
					t.Fatalf("fenced %t: %s was handed out %d times", fenced, id, got[id])
				}
			}
		}
	})

	// A message that is given back between the two reads of a drain is in both.
	t.Run("a message that moves while it is drained is handed out once", func(t *testing.T) {
		for _, fenced := range []bool{false, true} {
			p := open(t)
			r := drainOf("r")
			if generation := p.register("r"); fenced {
				r.Fences.Generation = core.Some(generation)
			}
			id := p.send("r")
			lease := p.lease("r")
			page, err := p.Store.ReadInbox(p.ctx, core.InboxScan{Inbox: "r", Lapsed: core.Some(p.now() + 10_000), Limit: 10})
			p.must(err)
			_, err = p.hub.Nack(p.ctx, core.NackRequest{AgentID: "r", Receipts: []string{lease[0].Receipt}})
			p.must(err)
			stale := page.Deliveries[0]
			stale.State, stale.Deliveries = core.DeliveryPending, 0
			moving := NewMessageHub(&twice{MessageStore: p.Store, copy: stale}, p.clock)
			done, err := moving.Drain(p.ctx, r)
			p.must(err)
			if len(done.Messages) > 1 {
				t.Fatalf("it was handed out %d times", len(done.Messages))
			}
			if len(done.Messages) == 0 {
				p.wantIDs(p.drain(r), id)
			}
		}
	})

	t.Run("a stale owner drains, acknowledges and gives back nothing", func(t *testing.T) {
		p := open(t)
		old := p.register("r")
		id := p.send("r")
		leased := p.lease("r")
		stale := core.Fences{Generation: core.Some(old)}
		p.register("r")
		r := drainOf("r")
		r.Fences = stale
		_, err := p.hub.Drain(p.ctx, r)
		p.wantCode(err, core.CodeStalePresenceOwner)
		_, err = p.hub.Drain(p.ctx, core.DrainRequest{AgentID: "r", Fences: stale})
		p.wantCode(err, core.CodeStalePresenceOwner)
		_, err = p.hub.Ack(p.ctx, core.AckRequest{AgentID: "r", Receipts: []string{leased[0].Receipt}, Fences: stale})
		p.wantCode(err, core.CodeStalePresenceOwner)
		_, err = p.hub.Nack(p.ctx, core.NackRequest{AgentID: "r", Receipts: []string{leased[0].Receipt}, Fences: stale})
		p.wantCode(err, core.CodeStalePresenceOwner)
		p.clock.Advance(10 * time.Second)
		r.Fences.Generation = core.Some(old + 1)
		p.wantIDs(p.drain(r), id)
	})

	t.Run("a deep backlog of what is expired or filtered neither blocks nor unbounds a drain", func(t *testing.T) {
		p := open(t)
		short := letter("r")
		short.TTLMs, short.Priority = 1000, 9
		publishMany(p, short, 1500)
		p.clock.Advance(time.Second)
		other := letter("r")
		other.Topic = "b"
		want := p.publish(other).MessageID
		// No sweep ever runs: the drains get past the expired ones by themselves.
		for range 20 {
			if got := p.drain(drainOf("r")); len(got) > 0 {
				p.wantIDs(got, want)
				return
			}
		}
		t.Fatal("20 drains did not reach the message")
	})
}

// twice shows one more delivery in every page of pending ones.
type twice struct {
	MessageStore
	copy core.Delivery
}

func (s *twice) ReadInbox(ctx context.Context, scan core.InboxScan) (core.InboxPage, error) {
	page, err := s.MessageStore.ReadInbox(ctx, scan)
	if !scan.Lapsed.Set {
		page.Deliveries = append([]core.Delivery{s.copy}, page.Deliveries...)
	}
	return page, err
}

func publishMany(p *post, r core.PublishRequest, n int) {
	p.t.Helper()
	var wait sync.WaitGroup
	slots := make(chan struct{}, 32)
	for range n {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			if _, err := p.hub.Publish(p.ctx, r); err != nil {
				p.t.Error(err)
			}
		})
	}
	wait.Wait()
}

func testLeases(t *testing.T, open func(*testing.T) *post) {
	t.Run("a leased message is hidden until its visibility passes", func(t *testing.T) {
		p := open(t)
		id := p.send("r")
		first := p.lease("r")
		p.wantIDs(first, id)
		if first[0].Receipt == "" || first[0].Deliveries != 1 || first[0].VisibleAt != p.now()+10_000 {
			t.Fatalf("the lease is %+v", first[0])
		}
		p.wantIDs(p.lease("r"))
		p.clock.Advance(9999 * time.Millisecond)
		p.wantIDs(p.lease("r"))
		p.clock.Advance(time.Millisecond)
		second := p.lease("r")
		p.wantIDs(second, id)
		if second[0].Deliveries != 2 || second[0].Receipt == first[0].Receipt {
			t.Fatalf("the second lease is %+v", second[0])
		}
		// aws-sdk-js#1279, #1750, bbc/sqs-consumer#83.
		p.wantCodes(p.ack(core.AckRequest{AgentID: "r", Receipts: []string{first[0].Receipt}}), core.CodeReceiptStale)
		p.wantCodes(p.ack(core.AckRequest{AgentID: "r", MessageIDs: []string{id}}), core.CodeReceiptStale)
		p.wantCodes(p.ack(core.AckRequest{AgentID: "r", Receipts: []string{second[0].Receipt, first[0].Receipt}}), "", core.CodeAlreadyAcked)
	})

	t.Run("a lapsed lease that nobody took over still acknowledges", func(t *testing.T) {
		p := open(t)
		id := p.send("r")
		lease := p.lease("r")
		p.clock.Advance(time.Minute)
		p.wantCodes(p.ack(core.AckRequest{AgentID: "r", Receipts: []string{lease[0].Receipt}}), "")
		p.wantIDs(p.lease("r"))
		p.wantCodes(p.ack(core.AckRequest{AgentID: "r", MessageIDs: []string{id}}), core.CodeAlreadyAcked)
	})

	t.Run("a lapsed lease comes back in its place", func(t *testing.T) {
		p := open(t)
		urgent, low := letter("r"), letter("r")
		urgent.Priority, low.Priority = 9, 1
		first := p.publish(urgent).MessageID
		p.lease("r")
		second := p.publish(low).MessageID
		p.clock.Advance(10 * time.Second)
		p.wantIDs(p.drain(drainOf("r")), first, second)
	})

	t.Run("a nack gives back at once, or after its delay", func(t *testing.T) {
		p := open(t)
		id := p.send("r")
		lease := p.lease("r")
		back := func(delay int64) core.AckResult {
			done, err := p.hub.Nack(p.ctx, core.NackRequest{AgentID: "r", Receipts: []string{lease[0].Receipt}, DelayMs: delay, Error: "no"})
			p.must(err)
			return done
		}
		p.wantCodes(back(0), "")
		p.wantCodes(back(0), core.CodeReceiptStale)
		lease = p.lease("r")
		p.wantIDs(lease, id)
		p.wantCodes(back(5000), "")
		p.wantIDs(p.lease("r"))
		p.clock.Advance(5 * time.Second)
		lease = p.lease("r")
		p.wantIDs(lease, id)
		if lease[0].LastError != "no" || lease[0].Deliveries != 3 {
			t.Fatalf("the lease is %+v", lease[0])
		}
	})

	// nats-io/nats-server#5564, #4956, nats-io/jetstream#425, pgmq/pgmq#274.
	t.Run("the hub ends what was handed out as often as it may be", func(t *testing.T) {
		for _, byNack := range []bool{true, false} {
			p := open(t)
			r := letter("r")
			r.Type, r.MaxDeliveries = core.MessageRequest, core.Some(int64(2))
			id := p.publish(r).MessageID
			for range 2 {
				lease := p.lease("r")
				p.wantIDs(lease, id)
				if byNack {
					done, err := p.hub.Nack(p.ctx, core.NackRequest{AgentID: "r", Receipts: []string{lease[0].Receipt}, Error: "boom"})
					p.must(err)
					p.wantCodes(done, "")
				}
				p.clock.Advance(10 * time.Second)
			}
			p.wantIDs(p.lease("r"))
			letters := p.deadLetters()
			if len(letters) != 1 || letters[0].Reason != core.DeadMaxDeliveries || letters[0].Deliveries != 2 || letters[0].FailedAt == 0 {
				t.Fatalf("dead letters are %+v", letters)
			}
			if byNack && letters[0].LastError != "boom" {
				t.Fatalf("the last error is %q", letters[0].LastError)
			}
			if notices := p.drain(drainOf("s")); len(notices) != 1 || !strings.Contains(string(notices[0].Payload.JSON), `"reason":"max_deliveries"`) {
				t.Fatalf("notices are %+v", notices)
			}
			p.wantCodes(p.ack(core.AckRequest{AgentID: "r", MessageIDs: []string{id}}), core.CodeDeadLettered)
		}
	})

	t.Run("32 leases at once hand a message out once", func(t *testing.T) {
		p := open(t)
		p.send("r")
		var mu sync.Mutex
		got := 0
		var wait sync.WaitGroup
		for range 32 {
			wait.Go(func() {
				done, err := p.hub.Drain(p.ctx, core.DrainRequest{AgentID: "r", Max: 1, VisibilityMs: core.Some(int64(10_000))})
				mu.Lock()
				defer mu.Unlock()
				if got += len(done.Messages); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		if got != 1 {
			t.Fatalf("it was handed out %d times", got)
		}
	})
}
