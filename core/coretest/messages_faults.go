package coretest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"drawbridge/core"
)

// RunMessageFaults lets several callers publish, drain, acknowledge, give back,
// sweep and redrive at once while every script of the harness misbehaves, and
// then accounts for every message: accepted is acknowledged or dead, once for
// each recipient, with its sender told once.
func RunMessageFaults(t *testing.T, open func(t *testing.T) MessageHarness, seed uint64, rounds int) {
	for name := range open(t).Faults {
		t.Run(name, func(t *testing.T) {
			h := open(t)
			b := &books{post: newPost(t, h), published: map[string]core.PublishRequest{}, answers: map[string]core.Published{},
				handed: map[entry]int{}, acked: map[entry]bool{}, unsure: map[string]int{}}
			for i := range 4 {
				b.register(fmt.Sprint("a", i), "x")
			}
			stop := h.Faults[name](seed)
			var wait sync.WaitGroup
			for caller := range 6 {
				wait.Go(func() { b.work(rand.New(rand.NewPCG(seed, uint64(caller))), caller, rounds) })
			}
			wait.Wait()
			stop()
			b.settle()
			b.account()
		})
	}
}

// entry is one recipient's delivery of one message.
type entry struct{ id, inbox string }

// books record what callers were told.
type books struct {
	*post
	mu        sync.Mutex
	published map[string]core.PublishRequest // by trace
	answers   map[string]core.Published      // by trace; accepted
	refused   []string                       // traces of publishes that failed for certain
	handed    map[entry]int                  // by drains with auto_ack
	acked     map[entry]bool
	unsure    map[string]int // operations of each kind whose outcome nobody knows
	unknown   int            // acknowledged deliveries that nobody was told of
}

// certain tells whether an error says that nothing happened.
func (b *books) certain(kind string, err error) bool {
	if err == nil {
		return true
	}
	switch core.CodeOf(err) {
	case core.CodeOutcomeUnknown:
		b.mu.Lock()
		defer b.mu.Unlock()
		b.unsure[kind]++
		return false
	case core.CodeThrottled, core.CodeUnavailable, core.CodeContended:
		return true
	default:
		b.t.Errorf("%s: %v", kind, err)
		return true
	}
}

func (b *books) work(random *rand.Rand, caller, rounds int) {
	for round := range rounds {
		b.clock.Advance(time.Duration(random.IntN(300)) * time.Millisecond)
		inbox := fmt.Sprint("a", random.IntN(4))
		switch n := random.IntN(40); {
		case n < 18:
			b.publishOne(random, fmt.Sprintf("%d.%d", caller, round), inbox)
		case n < 27:
			b.drainOne(inbox)
		case n < 35:
			b.leaseOne(random, inbox)
		case n == 35: // seldom: it asks every shard
			_, err := b.hub.SweepMessages(b.ctx)
			b.certain("sweep", err)
		case n < 38:
			b.redriveOne(random)
		default:
			_, err := b.hub.Register(b.ctx, core.RegisterRequest{AgentID: inbox, CLI: "codex", Topics: []string{"x"}})
			b.certain("register", err)
		}
	}
}

func (b *books) publishOne(random *rand.Rand, trace, inbox string) {
	r := core.PublishRequest{
		From: "sender", To: inbox, Topic: "t", Type: core.MessageRequest, Priority: 1 + random.Int64N(9),
		TTLMs: 1 + random.Int64N(20_000), TraceID: trace, Payload: json.RawMessage(`{"trace":"` + trace + `"}`),
	}
	if random.IntN(3) == 0 {
		r.To = "topic:x"
	}
	if random.IntN(4) == 0 {
		r.Idempotency = core.Some(core.IdempotencyKey{Scope: "s", Key: trace, Body: []byte(trace)})
	}
	done, err := b.hub.Publish(b.ctx, r)
	if err != nil && r.Idempotency.Set {
		done, err = b.hub.Publish(b.ctx, r) // the caller repeats it
	}
	certain := b.certain("publish", err)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.published[trace] = r
	switch {
	case err == nil:
		b.answers[trace] = done
	case certain && !r.Idempotency.Set:
		b.refused = append(b.refused, trace)
	}
}

func (b *books) drainOne(inbox string) {
	done, err := b.hub.Drain(b.ctx, core.DrainRequest{AgentID: inbox, Max: 5, AutoAck: true})
	b.certain("drain", err)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unsure["drain"] += len(done.Unconfirmed)
	for _, d := range done.Messages {
		b.handed[entry{d.ID, inbox}]++
	}
}

func (b *books) leaseOne(random *rand.Rand, inbox string) {
	done, err := b.hub.Drain(b.ctx, core.DrainRequest{AgentID: inbox, Max: 5, VisibilityMs: core.Some(int64(1000))})
	b.certain("lease", err)
	for _, d := range done.Messages {
		if random.IntN(3) == 0 {
			_, err := b.hub.Nack(b.ctx, core.NackRequest{AgentID: inbox, Receipts: []string{d.Receipt}, DelayMs: random.Int64N(500)})
			b.certain("nack", err)
			continue
		}
		result, err := b.hub.Ack(b.ctx, core.AckRequest{AgentID: inbox, Receipts: []string{d.Receipt}})
		if b.certain("ack", err) && err == nil {
			b.note(result.Results[0].Code, entry{d.ID, inbox})
		}
	}
}

// note records an acknowledgement's outcome.
func (b *books) note(code core.Code, e entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch code {
	case "":
		if b.acked[e] || b.handed[e] > 0 {
			b.t.Errorf("%v was acknowledged twice", e)
		}
		b.acked[e] = true
	case core.CodeOutcomeUnknown:
		b.unsure["ack"]++
	}
}

func (b *books) redriveOne(random *rand.Rand) {
	list, err := b.hub.DeadLetters(b.ctx, core.DeadLetterQuery{Limit: 20})
	if !b.certain("list", err) || len(list.Letters) == 0 {
		return
	}
	letter := list.Letters[random.IntN(len(list.Letters))]
	_, err = b.hub.Redrive(b.ctx, core.RedriveRequest{IDs: []string{letter.ID}, TTLMs: core.Some(int64(5000))})
	b.certain("redrive", err)
}

// settle lets everything that is still under way end: fan-outs are resumed, the
// rest expires. The notices stay: theirs is the sender's inbox.
func (b *books) settle() {
	b.t.Helper()
	b.clock.Advance(2 * time.Minute)
	b.sweep()
	b.sweep() // what a resumed fan-out delivered late
	if counts, done, err := b.Store.CountMessages(b.ctx, b.now()); err != nil || !done || counts.Normal > 0 {
		b.t.Errorf("after everything expired there are %+v pending, %v", counts, err)
	}
}

// account looks every message up in its trace.
func (b *books) account() {
	b.t.Helper()
	acknowledged, dead := 0, 0
	for trace, r := range b.published {
		found, more, err := b.Store.ReadTrace(b.ctx, trace, 1000)
		b.must(err)
		if more {
			b.t.Fatalf("trace %s is too long", trace)
		}
		deliveries, notices := map[entry]core.Delivery{}, map[string]int{}
		for _, d := range found {
			switch {
			case d.From == "hub-sweeper":
				notices[keyOf(d)]++
			case d.Inbox != "":
				deliveries[entry{d.ID, d.Inbox}] = d
			}
		}
		if answer, accepted := b.answers[trace]; accepted && len(deliveries) != int(answer.FanoutCount) {
			b.t.Errorf("%s to %s has %d deliveries, was told %d", trace, r.To, len(deliveries), answer.FanoutCount)
		}
		for e, d := range deliveries {
			b.accountOne(e, d, notices["notice of "+e.id+"/"+e.inbox])
			if d.State == core.DeliveryAcked {
				acknowledged++
			} else {
				dead++
			}
		}
	}
	for _, trace := range b.refused {
		if found, _, err := b.Store.ReadTrace(b.ctx, trace, 1000); err != nil || len(found) > 0 {
			b.t.Errorf("%s was refused for certain and is there: %+v, %v", trace, found, err)
		}
	}
	b.t.Logf("%d accepted, %d refused, %d deliveries acknowledged, %d dead, unsure of %v",
		len(b.answers), len(b.refused), acknowledged, dead, b.unsure)
	if acknowledged == 0 || dead == 0 {
		b.t.Error("nothing much happened")
	}
}

func (b *books) accountOne(e entry, d core.Delivery, notices int) {
	told := b.handed[e]
	if b.acked[e] {
		told++
	}
	switch {
	case told > 1:
		b.t.Errorf("%v was handed out %d times, acknowledged %t: %+v", e, b.handed[e], b.acked[e], d)
	case d.State != core.DeliveryAcked && d.State != core.DeliveryDead:
		b.t.Errorf("%v ends %s", e, d.State)
	case told == 1 && d.State != core.DeliveryAcked:
		b.t.Errorf("%v was handed out and ends %s", e, d.State)
	case told == 0 && d.State == core.DeliveryAcked:
		if b.unknown++; b.unknown > 5*(b.unsure["drain"]+b.unsure["ack"]) {
			b.t.Errorf("%v is acknowledged, and nobody was told of it", e)
		}
	case notices != min(1, int(d.DeadLetterings)):
		b.t.Errorf("%v died %d times, and its sender was told %d times", e, d.DeadLetterings, notices)
	}
}
