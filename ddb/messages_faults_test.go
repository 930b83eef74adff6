package ddb_test

import (
	"encoding/json"
	"testing"
	"time"

	"drawbridge/core"
	"drawbridge/core/coretest"
	"drawbridge/localstack/fakeaws"
)

// messageFaults are scripts of mixed misbehaviour of the network and of
// DynamoDB, each with its own chances.
func (w *world) messageFaults() map[string]func(seed uint64) (stop func()) {
	script := func(rules ...fakeaws.Rule) func(uint64) func() {
		return func(seed uint64) func() {
			var handles []*fakeaws.Handle
			for i, rule := range rules {
				rule.Service, rule.Seed = "dynamodb", seed+uint64(i)
				handles = append(handles, w.aws.Faults().Add(rule))
			}
			return func() {
				for _, h := range handles {
					h.Remove()
				}
			}
		}
	}
	lost := fakeaws.Rule{Probability: 0.3, Action: fakeaws.DropResponse()}
	dropped := fakeaws.Rule{Probability: 0.3, Action: fakeaws.DropRequest()}
	throttled := fakeaws.Rule{Probability: 0.4, Action: fakeaws.Error(400, "ThrottlingException")}
	ghosts := fakeaws.Rule{Probability: 0.3, Action: fakeaws.ErrorAfter(500, "InternalServerError")}
	conflicts := fakeaws.Rule{Probability: 0.3, Action: fakeaws.TransactionConflict()}
	slow := fakeaws.Rule{Probability: 0.2, Action: fakeaws.Delay(2 * time.Millisecond)}
	return map[string]func(uint64) func(){
		"answers are lost":                   script(lost),
		"requests are lost":                  script(dropped),
		"the store throttles":                script(throttled),
		"writes succeed and say they failed": script(ghosts),
		"transactions conflict":              script(conflicts),
		"the indexes lag":                    w.lag,
		"everything at once":                 script(mild(lost, dropped, throttled, ghosts, conflicts, slow)...),
	}
}

// mild gives every rule a small chance, so that together they leave some
// operations through.
func mild(rules ...fakeaws.Rule) []fakeaws.Rule {
	for i := range rules {
		rules[i].Probability = 0.1
	}
	return rules
}

// lag lets the global indexes show what is written only after a while.
func (w *world) lag(uint64) (stop func()) {
	due := w.aws.Faults().LagIndex(w.table, "due", 20*time.Millisecond)
	list := w.aws.Faults().LagIndex(w.table, "list", 20*time.Millisecond)
	return func() {
		due.Remove()
		list.Remove()
	}
}

func TestEveryMessageIsAccountedForUnderEveryFault(t *testing.T) {
	rounds := 25
	if long() {
		rounds = 600
	}
	coretest.RunMessageFaults(t, func(t *testing.T) coretest.MessageHarness {
		w := newWorld(t)
		h := w.messages()
		h.Faults = w.messageFaults()
		return h
	}, seedOf(t), rounds)
}

// A transaction was carried out, its answer got lost, and the request sent again met
// a conflict: what was taken is told all the same.
func TestATransactionWhoseAnswerIsLostBeforeAConflictIsTold(t *testing.T) {
	for _, autoAck := range []bool{true, false} {
		clock := coretest.NewClock()
		w := newWorldAt(t, clock.Now)
		hub := w.hub(clock)
		enlist(t, hub, core.RegisterRequest{AgentID: "a", CLI: "claude"})
		sent, err := hub.Publish(t.Context(), core.PublishRequest{From: "s", To: "a", Topic: "t", Priority: 5, TTLMs: 60_000, Payload: json.RawMessage(`1`)})
		if err != nil {
			t.Fatal(err)
		}
		lost := w.aws.Faults().Add(fakeaws.Rule{Op: "TransactWriteItems", Count: 1, Action: fakeaws.DropResponse()})
		conflict := w.aws.Faults().Add(fakeaws.Rule{Op: "TransactWriteItems", After: 1, Count: 1, Action: fakeaws.TransactionConflict()})
		drain := core.DrainRequest{AgentID: "a", Max: 10, AutoAck: autoAck, Fences: core.Fences{Generation: core.Some(int64(1))}}
		if !autoAck {
			drain.VisibilityMs = core.Some(int64(30_000))
		}
		got, err := hub.Drain(t.Context(), drain)
		if err != nil || len(got.Messages) != 1 || got.Messages[0].ID != sent.MessageID {
			t.Errorf("auto_ack %t: drained %+v, %v", autoAck, got, err)
		}
		if lost.Hits() != 1 || conflict.Hits() != 1 {
			t.Errorf("%d answers were lost, %d conflicts met", lost.Hits(), conflict.Hits())
		}
	}
}

// A take that never reached the store is not told as one: nobody can know, and the
// message is still there.
func TestATakeThatNeverArrivedIsNotToldAsDone(t *testing.T) {
	for name, op := range map[string]string{"alone": "UpdateItem", "under a fence": "TransactWriteItems"} {
		clock := coretest.NewClock()
		w := newWorldAt(t, clock.Now)
		hub := w.hub(clock)
		enlist(t, hub, core.RegisterRequest{AgentID: "a", CLI: "claude"})
		sent, err := hub.Publish(t.Context(), core.PublishRequest{From: "s", To: "a", Topic: "t", Priority: 5, TTLMs: 60_000, Payload: json.RawMessage(`1`)})
		if err != nil {
			t.Fatal(err)
		}
		drain := core.DrainRequest{AgentID: "a", Max: 10, AutoAck: true}
		if op == "TransactWriteItems" {
			drain.Fences.Generation = core.Some(int64(1))
		}
		lost := w.aws.Faults().Add(fakeaws.Rule{Op: op, Action: fakeaws.DropRequest()})
		got, err := hub.Drain(t.Context(), drain)
		if core.CodeOf(err) != core.CodeOutcomeUnknown || len(got.Messages) != 0 {
			t.Errorf("%s: drained %+v, %v", name, got, err)
		}
		lost.Remove()
		if got, err = hub.Drain(t.Context(), drain); err != nil || len(got.Messages) != 1 || got.Messages[0].ID != sent.MessageID {
			t.Errorf("%s: then drained %+v, %v", name, got, err)
		}
	}
}
