package coretest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"drawbridge/core"
)

func as(err error, target any) bool { return errors.As(err, target) }

func testExpiry(t *testing.T, open func(*testing.T) *post) {
	t.Run("the edge is inclusive, on every path, whether or not a sweep has run", func(t *testing.T) {
		p := open(t)
		r := letter("r")
		r.TTLMs, r.TraceID = 100, "x"
		id := p.publish(r).MessageID
		p.clock.Advance(50 * time.Millisecond)
		peek := drainOf("r")
		peek.AutoAck = false
		p.wantIDs(p.drain(peek), id)
		p.clock.Advance(49 * time.Millisecond)
		if s := p.sweep(); s.DeadLettered != 0 {
			t.Fatalf("a sweep before the edge counts %+v", s)
		}
		p.wantIDs(p.drain(peek), id)
		p.clock.Advance(time.Millisecond)
		p.wantIDs(p.drain(peek))
		p.wantIDs(p.drain(drainOf("r")))
		p.wantIDs(p.lease("r"))
		p.wantCodes(p.ack(core.AckRequest{AgentID: "r", MessageIDs: []string{id}}), core.CodeExpired)
		if s := p.status("x"); s != core.MessageExpired {
			t.Fatalf("status is %s", s)
		}
		if n, err := p.Store.CountInbox(p.ctx, "r", p.now(), 100); err != nil || n != 0 {
			t.Fatalf("%d are pending, %v", n, err)
		}
		if s := p.sweep(); s.DeadLettered != 1 {
			t.Fatalf("the sweep counts %+v", s)
		}
		if s := p.sweep(); s.DeadLettered != 0 {
			t.Fatalf("the second sweep counts %+v", s)
		}
		letters := p.deadLetters()
		if len(letters) != 1 || letters[0].Reason != core.DeadExpired || letters[0].FailedAt != p.now() || letters[0].LastError != "" {
			t.Fatalf("dead letters are %+v", letters)
		}
		if s := p.status("x"); s != core.MessageDeadLetter {
			t.Fatalf("status is %s", s)
		}
		p.wantIDs(p.drain(drainOf("s"))) // an event: nobody is told
	})

	t.Run("a leased message expires like any other", func(t *testing.T) {
		p := open(t)
		r := letter("r")
		r.TTLMs = 5000
		p.publish(r)
		lease := p.lease("r")
		p.clock.Advance(5 * time.Second)
		p.wantCodes(p.ack(core.AckRequest{AgentID: "r", Receipts: []string{lease[0].Receipt}}), core.CodeExpired)
		if s := p.sweep(); s.DeadLettered != 1 {
			t.Fatalf("the sweep counts %+v", s)
		}
	})

	t.Run("what is acknowledged or dead stays so", func(t *testing.T) {
		p := open(t)
		p.send("r")
		p.drain(drainOf("r"))
		r := letter("r")
		r.MaxDeliveries = core.Some(int64(1))
		p.publish(r)
		p.lease("r")
		p.clock.Advance(time.Minute)
		p.lease("r")
		p.clock.Advance(time.Hour)
		if s := p.sweep(); s.DeadLettered != 0 {
			t.Fatalf("the sweep counts %+v", s)
		}
		if letters := p.deadLetters(); len(letters) != 1 || letters[0].Reason != core.DeadMaxDeliveries {
			t.Fatalf("dead letters are %+v", letters)
		}
	})

	t.Run("the sender of a handoff or request is told once, in the contract's words", func(t *testing.T) {
		p := open(t)
		r := letter("w")
		r.Type, r.Topic, r.CorrelationID, r.TraceID = core.MessageHandoff, "task.handoff", "c", "x"
		r.Payload = json.RawMessage(`{"task":"do <it>"}`)
		id := p.publish(r).MessageID
		for _, silent := range []func(*core.PublishRequest){
			func(r *core.PublishRequest) { r.Type = core.MessageEvent },
			func(r *core.PublishRequest) { r.Payload = json.RawMessage(`{"kind":"assign.job"}`) },
			func(r *core.PublishRequest) { r.From = "topic:z" },
		} {
			other := r
			silent(&other)
			p.publish(other)
		}
		p.clock.Advance(300 * time.Second)
		if s := p.sweep(); s.DeadLettered != 4 {
			t.Fatalf("the sweep counts %+v", s)
		}
		p.sweep()
		notices := p.drain(drainOf("s"))
		if len(notices) != 1 {
			t.Fatalf("%d notices", len(notices))
		}
		n := notices[0]
		want := fmt.Sprintf(`{"kind":"handoff.dead_letter","message_id":"%s","original_topic":"task.handoff","original_to":"w","recipient":"w","reason":"ttl_expired","task":"do <it>","expired_at_ms":%d,"failed_at_ms":%d,"recovery_source":"periodic"}`, id, p.now(), p.now())
		if string(n.Payload.JSON) != want || n.From != "hub-sweeper" || n.Topic != "handoff.dead_letter" || n.Priority != 7 ||
			n.TTL != 300*time.Second || n.CorrelationID != "c" || n.TraceID != "x" || n.Type != core.MessageEvent {
			t.Fatalf("the notice is %+v\n%s\n%s", n.Message, n.Payload.JSON, want)
		}
		p.clock.Advance(time.Hour)
		p.sweep()
		p.wantIDs(p.drain(drainOf("s"))) // notices cause none
	})

	t.Run("a death and its notice are one: a sweep that dies leaves neither", func(t *testing.T) {
		p := open(t)
		r := letter("r")
		r.Type = core.MessageRequest
		id := p.publish(r).MessageID
		p.clock.Advance(300 * time.Second)
		stop := p.RefuseAfter(0)
		if _, err := p.hub.SweepMessages(p.ctx); err == nil {
			t.Fatal("the sweep that could not write succeeded")
		}
		stop()
		if letters := p.deadLetters(); len(letters) != 0 {
			t.Fatalf("dead letters are %+v", letters)
		}
		p.wantIDs(p.drain(drainOf("s")))
		p.sweep()
		if letters := p.deadLetters(); len(letters) != 1 || letters[0].Delivery.ID != id {
			t.Fatalf("dead letters are %+v", letters)
		}
		if notices := p.drain(drainOf("s")); len(notices) != 1 {
			t.Fatalf("%d notices", len(notices))
		}
	})

	t.Run("sweeps, drains, acks and redrives at once settle every message once", func(t *testing.T) {
		p := open(t)
		const messages = 60
		r := letter("r")
		r.Type, r.TTLMs = core.MessageRequest, 20_000
		publishMany(p, r, messages)
		var leases []string
		for range 3 {
			for _, d := range p.drain(core.DrainRequest{AgentID: "r", Max: 10, VisibilityMs: core.Some(int64(10_000))}) {
				leases = append(leases, d.Receipt)
			}
		}
		p.clock.Advance(19_999 * time.Millisecond)
		var mu sync.Mutex
		acked := 0
		var wait sync.WaitGroup
		for i := range 4 {
			wait.Go(func() {
				for range 3 {
					p.clock.Advance(time.Millisecond)
					if _, err := p.hub.SweepMessages(p.ctx); err != nil {
						t.Error(err)
					}
				}
			})
			wait.Go(func() {
				done, err := p.hub.Drain(p.ctx, drainOf("r"))
				result, failed := p.hub.Ack(p.ctx, core.AckRequest{AgentID: "r", Receipts: leases[i*7 : i*7+7]})
				mu.Lock()
				defer mu.Unlock()
				acked += len(done.Messages) + int(result.Done)
				if err != nil || failed != nil {
					t.Error(err, failed)
				}
			})
		}
		wait.Wait()
		p.sweep()
		letters, notices := p.deadLetters(), p.drain(core.DrainRequest{AgentID: "s", Max: 100, AutoAck: true})
		if acked+len(letters) != messages || len(notices) != len(letters) {
			t.Fatalf("%d acknowledged, %d dead, %d notices of %d messages", acked, len(letters), len(notices), messages)
		}
	})

	t.Run("a sweep works in bounded steps and tells what is left", func(t *testing.T) {
		p := open(t)
		r := letter("r")
		r.TTLMs = 1000
		publishMany(p, r, 500)
		p.clock.Advance(time.Minute)
		slow := slowClock{Clock: p.clock, step: 3 * time.Second}
		s, err := NewMessageHub(p.Store, &slow).SweepMessages(p.ctx)
		p.must(err)
		if !s.More || s.Lag < 50*time.Second || s.DeadLettered == 0 || s.DeadLettered == 500 {
			t.Fatalf("the bounded sweep counts %+v", s)
		}
		if rest := p.sweep(); rest.DeadLettered+s.DeadLettered != 500 || rest.More {
			t.Fatalf("the next sweep counts %+v", rest)
		}
	})

	t.Run("the sweep counts what is pending for the hub's status", func(t *testing.T) {
		p := open(t)
		urgent, dying := letter("r"), letter("r")
		urgent.Priority, dying.TTLMs = 7, 1
		for range 3 {
			p.publish(urgent)
			p.publish(letter("r"))
			p.publish(letter("r"))
		}
		p.publish(dying)
		p.clock.Advance(time.Second)
		p.sweep()
		report, err := p.hub.Status(p.ctx, core.StatusQuery{Scope: core.StatusScopeHub, IncludeMetrics: true})
		p.must(err)
		if q := report.Queues; q.Urgent != 3 || q.Normal != 6 || q.DeadLetters != 1 || q.AsOf != p.now() {
			t.Fatalf("depths are %+v", q)
		}
	})
}

// slowClock moves on by itself with every look at it.
type slowClock struct {
	*Clock
	step time.Duration
}

func (c *slowClock) Now() time.Time {
	now := c.Clock.Now()
	c.Advance(c.step)
	return now
}

func testDeadLetters(t *testing.T, open func(*testing.T) *post) {
	die := func(p *post, n int) []string {
		var ids []string
		r := letter("r")
		r.Type, r.TTLMs = core.MessageRequest, 1000
		for range n {
			ids = append(ids, p.publish(r).MessageID)
			p.clock.Advance(time.Second)
			p.sweep()
		}
		return ids
	}

	// dotdevdotdev/agentwire-dev#333, #359, #699.
	t.Run("they are listed newest first, by page, and tell why, when and how often", func(t *testing.T) {
		p := open(t)
		want := die(p, 7)
		var got []string
		q := core.DeadLetterQuery{Limit: 3}
		for page := 0; ; page++ {
			list, err := p.hub.DeadLetters(p.ctx, q)
			p.must(err)
			for _, l := range list.Letters {
				got = append(got, l.Delivery.ID)
				if l.Reason != core.DeadExpired || l.FailedAt == 0 {
					t.Errorf("letter %+v", l)
				}
			}
			if q.Cursor = list.NextCursor; q.Cursor == "" || page > 5 {
				break
			}
		}
		for i := range want {
			if len(got) != len(want) || got[i] != want[len(want)-1-i] {
				t.Fatalf("letters are %v, published %v", got, want)
			}
		}
	})

	t.Run("filters by reason, recipient and time", func(t *testing.T) {
		p := open(t)
		die(p, 3)
		middle := p.deadLetters()[1].FailedAt
		count := func(f core.DeadLetterFilter) int {
			list, err := p.hub.DeadLetters(p.ctx, core.DeadLetterQuery{DeadLetterFilter: f})
			p.must(err)
			return len(list.Letters)
		}
		at := core.Some(int64(middle))
		for _, test := range []struct {
			filter core.DeadLetterFilter
			want   int
		}{
			{core.DeadLetterFilter{}, 3},
			{core.DeadLetterFilter{Reason: core.Some("ttl_expired")}, 3},
			{core.DeadLetterFilter{Reason: core.Some("max_deliveries")}, 0},
			{core.DeadLetterFilter{To: core.Some("r")}, 3},
			{core.DeadLetterFilter{To: core.Some("q")}, 0},
			{core.DeadLetterFilter{From: at}, 2},
			{core.DeadLetterFilter{Up: at}, 2},
			{core.DeadLetterFilter{From: at, Up: at}, 1},
		} {
			if got := count(test.filter); got != test.want {
				t.Errorf("%+v keeps %d, want %d", test.filter, got, test.want)
			}
		}
	})

	// lightninglabs/wavelength#705.
	t.Run("a redrive gives a letter a new life, once", func(t *testing.T) {
		p := open(t)
		id := die(p, 1)[0]
		letterID := p.deadLetters()[0].ID
		redrive := func(ids ...string) []core.RedriveItem {
			done, err := p.hub.Redrive(p.ctx, core.RedriveRequest{IDs: ids, TTLMs: core.Some(int64(5000))})
			p.must(err)
			return done.Results
		}
		first := redrive(letterID, letterID, "nonsense")
		if first[0].Code != "" || first[1].Code != core.CodeAlreadyRedriven || first[2].Code != core.CodeNotFound || first[0].MessageID != id {
			t.Fatalf("outcomes are %+v", first)
		}
		letters := p.deadLetters()
		if len(letters) != 1 || letters[0].ID != letterID || letters[0].RedrivenAt != p.now() || letters[0].Reason != core.DeadExpired {
			t.Fatalf("the letter reads %+v", letters)
		}
		p.drain(drainOf("s"))
		p.clock.Advance(5 * time.Second)
		if s := p.sweep(); s.DeadLettered != 1 {
			t.Fatalf("the sweep counts %+v", s)
		}
		p.wantIDs(p.drain(drainOf("s"))) // told once (contract vector 105)
		letters = p.deadLetters()
		if len(letters) != 2 || letters[1].ID != letterID || letters[0].ID == letterID {
			t.Fatalf("letters are %+v", letters)
		}
		if again := redrive(letterID, letters[0].ID); again[0].Code != core.CodeAlreadyRedriven || again[1].Code != "" {
			t.Fatalf("outcomes are %+v", again)
		}
		p.wantIDs(p.drain(drainOf("r")), id)
		if again := redrive(letters[0].ID); again[0].Code != core.CodeAlreadyRedriven {
			t.Fatalf("outcomes are %+v", again)
		}
	})

	t.Run("a redriven message is handed out as often as a new one", func(t *testing.T) {
		p := open(t)
		r := letter("r")
		r.MaxDeliveries = core.Some(int64(1))
		id := p.publish(r).MessageID
		p.lease("r")
		p.clock.Advance(10 * time.Second)
		p.lease("r")
		_, err := p.hub.Redrive(p.ctx, core.RedriveRequest{IDs: []string{p.deadLetters()[0].ID}})
		p.must(err)
		if got := p.lease("r"); len(got) != 1 || got[0].ID != id || got[0].Deliveries != 1 {
			t.Fatalf("the lease is %+v", got)
		}
	})

	t.Run("a redrive by filter is bounded and goes on where it stopped", func(t *testing.T) {
		p := open(t)
		die(p, 5)
		filter := core.RedriveRequest{Filter: core.Some(core.DeadLetterFilter{To: core.Some("r")}), Max: 3, TTLMs: core.Some(int64(60_000))}
		for _, want := range []int64{3, 2, 0} {
			done, err := p.hub.Redrive(p.ctx, filter)
			p.must(err)
			if done.Count != want {
				t.Fatalf("redrove %d, want %d", done.Count, want)
			}
		}
		if got := p.drain(drainOf("r")); len(got) != 5 {
			t.Fatalf("%d messages", len(got))
		}
	})

	t.Run("16 redrives of one letter at once make one message", func(t *testing.T) {
		p := open(t)
		die(p, 1)
		letterID := p.deadLetters()[0].ID
		var mu sync.Mutex
		done := 0
		var wait sync.WaitGroup
		for range 16 {
			wait.Go(func() {
				r, err := p.hub.Redrive(p.ctx, core.RedriveRequest{IDs: []string{letterID}, TTLMs: core.Some(int64(60_000))})
				mu.Lock()
				defer mu.Unlock()
				if done += int(r.Count); err != nil && core.CodeOf(err) != core.CodeContended {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		if got := p.drain(drainOf("r")); done != 1 || len(got) != 1 {
			t.Fatalf("%d succeeded, %d messages", done, len(got))
		}
	})
}

func testAsk(t *testing.T, open func(*testing.T) *post) {
	question := core.AskRequest{From: "s", To: "w", Topic: "t", Question: "why?", Payload: json.RawMessage(`{"n":1}`), Priority: 5, TTLMs: 300_000}
	answer := func(correlation, text string) core.PublishRequest {
		r := letter("s")
		r.From, r.Type, r.CorrelationID, r.Payload = "w", core.MessageResponse, correlation, json.RawMessage(text)
		return r
	}

	t.Run("without waiting it is queued, and no answer in time leaves it delivered", func(t *testing.T) {
		p := open(t)
		done, err := p.hub.Ask(p.ctx, question)
		p.must(err)
		if done.State != core.AskQueued || done.CorrelationID == "" {
			t.Fatalf("answer is %+v", done)
		}
		waiting := question
		waiting.AwaitMs = 30
		done, err = p.hub.Ask(p.ctx, waiting)
		p.must(err)
		if done.State != core.AskDelivered || done.Response != nil {
			t.Fatalf("answer is %+v", done)
		}
		got := p.drain(drainOf("w"))
		if len(got) != 2 || string(got[0].Payload.JSON) != `{"question":"why?","n":1}` || got[0].Type != core.MessageRequest {
			t.Fatalf("the question arrives as %+v", got)
		}
	})

	t.Run("several askers of one correlation id get the first response", func(t *testing.T) {
		p := open(t)
		waiting := question
		waiting.AwaitMs, waiting.CorrelationID = 20_000, "c"
		p.send("other")
		answers := make([]core.Asked, 4)
		var wait sync.WaitGroup
		for i := range answers {
			wait.Go(func() {
				var err error
				if answers[i], err = p.hub.Ask(p.ctx, waiting); err != nil {
					t.Error(err)
				}
			})
		}
		p.publish(answer("another", `"wrong"`))
		p.publish(answer("c", `{"a":1}`))
		p.publish(answer("c", `{"a":2}`))
		wait.Wait()
		for _, a := range answers {
			if a.State != core.AskAnswered || string(a.Response) != `{"a":1}` {
				t.Fatalf("answer is %+v", a)
			}
		}
		if got := p.drain(drainOf("s")); len(got) != 3 {
			t.Fatalf("%d responses arrived", len(got)) // each is a message as well
		}
	})

	t.Run("a response stays readable until it expires", func(t *testing.T) {
		p := open(t)
		p.publish(answer("c", `1`))
		waiting := question
		waiting.AwaitMs, waiting.CorrelationID = 1, "c"
		p.clock.Advance(299_999 * time.Millisecond)
		if done, err := p.hub.Ask(p.ctx, waiting); err != nil || done.State != core.AskAnswered {
			t.Fatalf("answer is %+v, %v", done, err)
		}
		p.clock.Advance(time.Millisecond)
		if done, err := p.hub.Ask(p.ctx, waiting); err != nil || done.State != core.AskDelivered {
			t.Fatalf("answer is %+v, %v", done, err)
		}
		p.publish(answer("c", `2`))
		if done, err := p.hub.Ask(p.ctx, waiting); err != nil || string(done.Response) != `2` {
			t.Fatalf("answer is %+v, %v", done, err)
		}
	})
}

func testPayloads(t *testing.T, open func(*testing.T) *post) {
	t.Run("any JSON value of any size comes back as it was", func(t *testing.T) {
		p := open(t)
		p.register("a", "x")
		for i, payload := range []string{
			`null`, `0`, `""`, `[]`, `{}`, `"` + strings.Repeat("x", 8190) + `"`, `"` + strings.Repeat("x", 8191) + `"`,
			`"` + strings.Repeat("é", 5000) + `"`, `{"k":"` + strings.Repeat(`\"`, 100_000) + `"}`,
			`"` + strings.Repeat("x", 400<<10) + `"`, `"` + strings.Repeat("한", 400<<10/3) + `"`,
			`"` + strings.Repeat("x", 1<<20-2) + `"`,
		} {
			for _, to := range []string{"r", "topic:x"} {
				r := letter(to)
				r.Payload, r.TraceID = json.RawMessage(payload), fmt.Sprint(i, to)
				p.publish(r)
				inbox := strings.Replace(to, "topic:x", "a", 1)
				got := p.drain(drainOf(inbox))
				if len(got) != 1 || string(got[0].Payload.JSON) != payload {
					t.Fatalf("a payload of %d bytes comes back in %d messages", len(payload), len(got))
				}
				report, err := p.hub.Status(p.ctx, core.StatusQuery{Scope: core.StatusScopeTrace, TraceID: r.TraceID})
				p.must(err)
				if string(report.Trace[0].Payload.JSON) != payload {
					t.Fatalf("a payload of %d bytes reads otherwise in its trace", len(payload))
				}
			}
		}
	})

	t.Run("one byte over 1 MiB is refused and nothing is stored", func(t *testing.T) {
		p := open(t)
		r := letter("r")
		r.Payload = json.RawMessage(`"` + strings.Repeat("x", 1<<20-1) + `"`)
		_, err := p.hub.Publish(p.ctx, r)
		p.wantCode(err, core.CodeBodyTooLarge)
		p.wantIDs(p.drain(drainOf("r")))
	})

	t.Run("a drain stops before its answer exceeds 4 MiB and leaves the rest", func(t *testing.T) {
		p := open(t)
		r := letter("r")
		r.Payload = json.RawMessage(`"` + strings.Repeat("x", 1_000_000) + `"`)
		var want []string
		for range 6 {
			want = append(want, p.publish(r).MessageID)
		}
		p.wantIDs(p.drain(drainOf("r")), want[:4]...)
		p.wantIDs(p.drain(drainOf("r")), want[4:]...)
	})
}

func testLostResponses(t *testing.T, open func(*testing.T) *post) {
	t.Run("publish", func(t *testing.T) {
		p := open(t)
		generation := p.register("s")
		p.register("a", "x")
		p.publish(letter("other"))
		for name, change := range map[string]func(*core.PublishRequest){
			"plain":    func(*core.PublishRequest) {},
			"fenced":   func(r *core.PublishRequest) { r.Fences.Generation = core.Some(generation) },
			"keyed":    func(r *core.PublishRequest) { r.Idempotency = core.Some(core.IdempotencyKey{Scope: "s", Key: "k"}) },
			"response": func(r *core.PublishRequest) { r.Type = core.MessageResponse },
			"topic":    func(r *core.PublishRequest) { r.To = "topic:x" },
		} {
			r := letter("a")
			change(&r)
			stop := p.LoseNextWrite()
			done := p.publish(r)
			stop()
			if got := p.drain(drainOf("a")); len(got) != 1 || got[0].ID != done.MessageID {
				t.Errorf("%s: messages are %v, want %s", name, ids(got), done.MessageID)
			}
		}
	})

	t.Run("drain, lease, ack and nack", func(t *testing.T) {
		for _, fenced := range []bool{false, true} {
			p := open(t)
			var fences core.Fences
			if generation := p.register("r"); fenced {
				fences.Generation = core.Some(generation)
			}
			lost := func(act func()) {
				stop := p.LoseNextWrite()
				act()
				stop()
			}
			id := p.send("r")
			lost(func() {
				p.wantIDs(p.drain(core.DrainRequest{AgentID: "r", Max: 1, AutoAck: true, Fences: fences}), id)
			})
			id = p.send("r")
			var lease []core.Delivery
			lost(func() {
				lease = p.drain(core.DrainRequest{AgentID: "r", Max: 1, VisibilityMs: core.Some(int64(10_000)), Fences: fences})
				p.wantIDs(lease, id)
			})
			lost(func() {
				done, err := p.hub.Nack(p.ctx, core.NackRequest{AgentID: "r", Receipts: []string{lease[0].Receipt}, Fences: fences})
				p.must(err)
				p.wantCodes(done, "")
			})
			lease = p.lease("r")
			lost(func() {
				p.wantCodes(p.ack(core.AckRequest{AgentID: "r", Receipts: []string{lease[0].Receipt}, Fences: fences}), "")
			})
		}
	})

	t.Run("death, with and without a notice, and redrive", func(t *testing.T) {
		p := open(t)
		for _, kind := range []core.MessageType{core.MessageEvent, core.MessageRequest} {
			r := letter("r")
			r.Type, r.TTLMs = kind, 1000
			p.publish(r)
			p.clock.Advance(time.Second)
			stop := p.LoseNextWrite()
			s := p.sweep()
			stop()
			if s.DeadLettered != 1 {
				t.Fatalf("the sweep counts %+v", s)
			}
		}
		if notices := p.drain(drainOf("s")); len(notices) != 1 {
			t.Fatalf("%d notices", len(notices))
		}
		stop := p.LoseNextWrite()
		done, err := p.hub.Redrive(p.ctx, core.RedriveRequest{IDs: []string{p.deadLetters()[0].ID}})
		stop()
		p.must(err)
		if done.Count != 1 {
			t.Fatalf("redrive answers %+v", done)
		}
	})
}
