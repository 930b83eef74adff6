package ddb_test

import (
	"testing"
	"time"

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
