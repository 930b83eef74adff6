package coretest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"drawbridge/core"
)

func testIdempotency(t *testing.T, open func(*testing.T) *bench) {
	keyed := func(agent, key, body string) core.RegisterRequest {
		return core.RegisterRequest{
			AgentID: agent, CLI: "claude", Topics: []string{"x"},
			Idempotency: core.Some(core.IdempotencyKey{Scope: "token /bridge/register", Key: key, Body: []byte(body)}),
		}
	}
	equal := func(a, b core.Registration) bool {
		a.Replayed, b.Replayed = false, false
		return a == b
	}

	// a2aproject/A2A#928, #1987: crash between send and response, then repeat.
	t.Run("the same key and body get the first answer again and change nothing", func(t *testing.T) {
		b := open(t)
		first := b.registerWith(keyed("a", "k", "body"))
		if first.Replayed || first.Generation != 1 {
			t.Fatalf("the first answer is %+v", first)
		}
		b.clock.Advance(23 * time.Hour)
		second := b.registerWith(keyed("a", "k", "body"))
		if !second.Replayed || !equal(first, second) {
			t.Fatalf("first %+v, then %+v", first, second)
		}
		b.wantAgent("a", 1, core.StatusOnline)
	})

	t.Run("the same key with another body is refused and changes nothing", func(t *testing.T) {
		b := open(t)
		b.registerWith(keyed("a", "k", "body"))
		_, err := b.hub.Register(b.ctx, keyed("b", "k", "other"))
		b.wantCode(err, core.CodeIdempotencyMismatch)
		if _, found, err := b.Store.ReadAgent(b.ctx, "b"); err != nil || found {
			t.Fatalf("the refused agent is there: %t, %v", found, err)
		}
	})

	t.Run("keys of another scope are others", func(t *testing.T) {
		b := open(t)
		b.registerWith(keyed("a", "k", "body"))
		request := keyed("a", "k", "other")
		request.Idempotency.Value.Scope = "another"
		if r := b.registerWith(request); r.Generation != 2 || r.Replayed {
			t.Fatalf("answer is %+v", r)
		}
	})

	t.Run("a key is free again after 24 hours, collected or not", func(t *testing.T) {
		b := open(t)
		b.registerWith(keyed("a", "k", "body"))
		b.clock.Advance(core.IdempotencyRetention)
		if r := b.registerWith(keyed("a", "k", "other")); r.Generation != 2 || r.Replayed {
			t.Fatalf("answer is %+v", r)
		}
	})

	t.Run("a lost answer is given again", func(t *testing.T) {
		b := open(t)
		b.meet()
		defer b.LoseNextWrite()()
		request := keyed("a", "k", "body")
		request.Topics = nil
		first := b.registerWith(request)
		second := b.registerWith(request)
		if !equal(first, second) || second.Generation != 1 {
			t.Fatalf("first %+v, then %+v", first, second)
		}
		b.wantAgent("a", 1, core.StatusOnline)
	})

	t.Run("32 callers with one key make one generation and get one answer", func(t *testing.T) {
		b := open(t)
		answers := b.raceKeys(32, func(int) core.RegisterRequest { return keyed("a", "k", "body") })
		fresh := 0
		for _, r := range answers {
			if !equal(r, answers[0]) || r.Generation != 1 {
				t.Fatalf("answers are %+v", answers)
			}
			if !r.Replayed {
				fresh++
			}
		}
		if fresh != 1 {
			t.Fatalf("%d answers are not replayed, want 1", fresh)
		}
		b.wantAgent("a", 1, core.StatusOnline)
	})

	t.Run("callers with their own keys get a generation each", func(t *testing.T) {
		b := open(t)
		const callers = 6
		seen := map[int64]bool{}
		for _, r := range b.raceKeys(callers, func(i int) core.RegisterRequest { return keyed("a", fmt.Sprint(i), "body") }) {
			seen[r.Generation] = true
		}
		if len(seen) != callers {
			t.Fatalf("generations are %v", seen)
		}
		b.wantAgent("a", callers, core.StatusOnline)
	})

	t.Run("a register between the read and the transaction makes it start over", func(t *testing.T) {
		b := open(t)
		b.tap.at(afterRead, func() { b.register("a") })
		if r := b.registerWith(keyed("a", "k", "body")); r.Generation != 2 {
			t.Fatalf("answer is %+v", r)
		}
		b.wantAgent("a", 2, core.StatusOnline)
	})

	t.Run("a key that is empty, long or not printable is refused", func(t *testing.T) {
		b := open(t)
		for _, key := range []string{"", "a\n", "é", fmt.Sprintf("%0129d", 0)} {
			_, err := b.hub.Register(b.ctx, keyed("a", key, "body"))
			b.wantCode(err, core.CodeInvalidArgument)
		}
	})
}

func (b *bench) raceKeys(n int, request func(i int) core.RegisterRequest) []core.Registration {
	b.t.Helper()
	b.meet()
	answers := make([]core.Registration, n)
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { answers[i], errs[i] = b.hub.Register(b.ctx, request(i)) })
	}
	wait.Wait()
	for _, err := range errs {
		b.must(err)
	}
	return answers
}
