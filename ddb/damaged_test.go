package ddb_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
	"drawbridge/core/coretest"
)

// itemsWith returns the table's items whose key begins so, in the order of their
// due entries.
func (w *world) itemsWith(t *testing.T, prefix string) []map[string]types.AttributeValue {
	t.Helper()
	out, err := w.client.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String(w.table), ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	textOf := func(it map[string]types.AttributeValue, name string) string {
		s, _ := it[name].(*types.AttributeValueMemberS)
		if s == nil {
			return ""
		}
		return s.Value
	}
	found := slices.DeleteFunc(out.Items, func(it map[string]types.AttributeValue) bool {
		return !strings.HasPrefix(textOf(it, "pk"), prefix) || textOf(it, "due_sk") == ""
	})
	slices.SortFunc(found, func(a, b map[string]types.AttributeValue) int {
		return strings.Compare(textOf(a, "due_sk"), textOf(b, "due_sk"))
	})
	return found
}

// damage makes an item one that no reader understands: its numbers are text.
func (w *world) damage(t *testing.T, it map[string]types.AttributeValue) {
	t.Helper()
	damaged := 0
	for name, value := range it {
		if n, ok := value.(*types.AttributeValueMemberN); ok {
			it[name] = &types.AttributeValueMemberS{Value: "x" + n.Value}
			damaged++
		}
	}
	if damaged == 0 {
		t.Fatalf("%v has no number", it)
	}
	if _, err := w.client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(w.table), Item: it}); err != nil {
		t.Fatal(err)
	}
}

func enlist(t *testing.T, hub *core.Hub, r core.RegisterRequest) {
	t.Helper()
	if _, err := hub.Register(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func TestADamagedItemKeepsNoOtherFromBeingSwept(t *testing.T) {
	const things = 5
	for _, c := range []struct {
		sweep, prefix, counted string
		make                   func(t *testing.T, hub *core.Hub, name string)
		after                  time.Duration
	}{
		{core.SweepPresence, "agent#", "stale", func(t *testing.T, hub *core.Hub, name string) {
			t.Helper()
			enlist(t, hub, core.RegisterRequest{AgentID: name, CLI: "claude"})
		}, core.DefaultLease + time.Second},
		{core.SweepMessages, "inbox#", "dead_lettered", func(t *testing.T, hub *core.Hub, name string) {
			t.Helper()
			if _, err := hub.Publish(t.Context(), core.PublishRequest{From: "s", Topic: "t", To: name, Priority: 5, TTLMs: 1000, Payload: json.RawMessage(`1`)}); err != nil {
				t.Fatal(err)
			}
		}, time.Minute},
		{core.SweepHumanRequests, "human#", "timed_out", func(t *testing.T, hub *core.Hub, name string) {
			t.Helper()
			if _, err := hub.AskHuman(t.Context(), core.HumanQuestion{Requester: name, Kind: "text", Prompt: "May I?"}); err != nil {
				t.Fatal(err)
			}
		}, 24 * time.Hour},
		{core.SweepAssignments, "job#", "timed_out", func(t *testing.T, hub *core.Hub, name string) {
			t.Helper()
			if _, err := hub.Assign(t.Context(), core.AssignRequest{Supervisor: "s", Worker: name, Task: "task"}); err != nil {
				t.Fatal(err)
			}
		}, 30 * 24 * time.Hour},
		{core.SweepReflexion, "reflexion#", "moved", func(t *testing.T, hub *core.Hub, name string) {
			t.Helper()
			if _, err := hub.Learn(t.Context(), learnOf("error "+name)); err != nil {
				t.Fatal(err)
			}
		}, 365 * 24 * time.Hour},
		{core.SweepRoles, "role#", "stepped", func(t *testing.T, hub *core.Hub, name string) {
			t.Helper()
			key := costRole
			key.ScopeID = "scp_" + strings.Repeat(name, 11)
			enlist(t, hub, core.RegisterRequest{AgentID: "a-" + name, CLI: "claude", Capabilities: []string{"role:lead:candidate"}})
			if _, err := hub.AddCandidate(t.Context(), core.CandidateRequest{Wire: key.Wire(), AgentID: "a-" + name}); err != nil {
				t.Fatal(err)
			}
			if _, err := hub.EnsureRole(t.Context(), core.EnsureRequest{Wire: key.Wire(), Trigger: "manual", CauseID: "c"}); err != nil {
				t.Fatal(err)
			}
		}, time.Hour},
	} {
		t.Run(c.sweep, func(t *testing.T) {
			clock := coretest.NewClock()
			w := newWorldAt(t, clock.Now)
			hub := w.hub(clock)
			for i := range things {
				c.make(t, hub, "n"+string(rune('a'+i)))
				clock.Advance(time.Millisecond)
			}
			due := w.itemsWith(t, c.prefix)
			if len(due) != things {
				t.Fatalf("%d items are due, not %d", len(due), things)
			}
			w.damage(t, due[0])
			clock.Advance(c.after)
			report, err := hub.RunSweep(t.Context(), c.sweep)
			if core.CodeOf(err) != core.CodeInternal {
				t.Errorf("the sweep does not tell of the damaged item: %v", err)
			}
			if report.Counts[c.counted] != things-1 {
				t.Errorf("the sweep did %v, not %d %s", report.Counts, things-1, c.counted)
			}
		})
	}
}

func TestADamagedMessageKeepsNoOtherFromBeingDrained(t *testing.T) {
	clock := coretest.NewClock()
	w := newWorldAt(t, clock.Now)
	hub := w.hub(clock)
	var sent []string
	for i := range 4 {
		priority := int64(9 - i) // the damaged ones come first in the order of draining
		done, err := hub.Publish(t.Context(), core.PublishRequest{From: "s", Topic: "t", To: "a", Priority: priority, TTLMs: 60_000, Payload: json.RawMessage(`1`)})
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, done.MessageID)
		clock.Advance(time.Millisecond)
	}
	for _, it := range w.itemsWith(t, "inbox#")[:2] {
		w.damage(t, it)
	}
	for _, want := range sent[2:] {
		got, err := hub.Drain(t.Context(), core.DrainRequest{AgentID: "a", Max: 1, AutoAck: true})
		if err != nil || len(got.Messages) != 1 || got.Messages[0].ID != want {
			t.Fatalf("drained %+v, %v; not %s", got.Messages, err, want)
		}
	}
	if got, err := hub.Drain(t.Context(), core.DrainRequest{AgentID: "a", Max: 1, AutoAck: true}); core.CodeOf(err) != core.CodeInternal {
		t.Errorf("an inbox of damaged messages answered %+v, %v", got.Messages, err)
	}
}
