package ddb_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"drawbridge/core"
	"drawbridge/core/coretest"
	"drawbridge/localstack/fakeaws"
)

func beat(t *testing.T, hub *core.Hub) error {
	t.Helper()
	_, err := hub.Heartbeat(t.Context(), core.HeartbeatRequest{AgentID: "a"})
	return err
}

func TestAThrottledWriteSaysThatNothingWasDoneAndWhenToRepeat(t *testing.T) {
	c := newCosts(t)
	c.aws.Faults().Add(fakeaws.Rule{Op: "UpdateItem", Action: fakeaws.Error(400, "ThrottlingException")})
	err := beat(t, c.core)
	var failure *core.Error
	if !errors.As(err, &failure) || failure.Code != core.CodeThrottled || failure.RetryAfter <= 0 {
		t.Fatalf("error is %v", err)
	}
}

// powertools-lambda-python#8049: an ambiguous end is told as such.
func TestAWriteWithoutAnAnswerIsToldAsUnknown(t *testing.T) {
	for _, test := range []struct {
		name   string
		action fakeaws.Action
	}{
		{"every answer lost", fakeaws.DropResponse()},
		{"every answer torn", fakeaws.TearResponse()},
		{"a fault after the write", fakeaws.ErrorAfter(500, "InternalServerError")},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCosts(t)
			c.clock.Advance(time.Second)
			rule := c.aws.Faults().Add(fakeaws.Rule{Op: "UpdateItem", Action: test.action})
			if err := beat(t, c.core); core.CodeOf(err) != core.CodeOutcomeUnknown {
				t.Fatalf("error is %v", err)
			}
			rule.Remove()
			agent, _, err := c.store.ReadAgent(t.Context(), "a")
			if err != nil || agent.LastSeen != core.InstantOf(c.clock.Now()) {
				t.Fatalf("the write that may have happened did not: %+v, %v", agent, err)
			}
		})
	}
}

func TestAnAnswerThatIsLateForTheCallersDeadlineIsUnknown(t *testing.T) {
	c := newCosts(t)
	held := c.aws.Faults().Add(fakeaws.Rule{Op: "UpdateItem", Action: fakeaws.FreezeResponse()})
	defer held.Release()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := c.core.Heartbeat(ctx, core.HeartbeatRequest{AgentID: "a"})
		done <- err
	}()
	for held.Held() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; core.CodeOf(err) != core.CodeOutcomeUnknown {
		t.Fatalf("error is %v", err)
	}
}

func TestAReadThatFailsIsUnavailable(t *testing.T) {
	c := newCosts(t)
	c.aws.Faults().Add(fakeaws.Rule{Op: "GetItem", Action: fakeaws.DropRequest()})
	_, _, err := c.store.ReadAgent(t.Context(), "a")
	if core.CodeOf(err) != core.CodeUnavailable {
		t.Fatalf("error is %v", err)
	}
}

// The SDK does not retry a write that meets a transaction on its item.
func TestAWriteWaitsForATransactionOnItsItem(t *testing.T) {
	c := newCosts(t)
	rule := c.aws.Faults().Add(fakeaws.Rule{Op: "UpdateItem", Count: 3, Action: fakeaws.TransactionConflict()})
	if err := beat(t, c.core); err != nil {
		t.Fatal(err)
	}
	if rule.Hits() != 3 {
		t.Fatalf("the write met %d transactions, want 3", rule.Hits())
	}
	rule.Remove()
	c.aws.Faults().Add(fakeaws.Rule{Op: "UpdateItem", Action: fakeaws.TransactionConflict()})
	if err := beat(t, c.core); core.CodeOf(err) != core.CodeContended {
		t.Fatalf("error is %v", err)
	}
}

func TestACancelledTransactionStartsOver(t *testing.T) {
	c := newCosts(t)
	c.aws.Faults().Add(fakeaws.Rule{Op: "TransactWriteItems", Count: 2, Action: fakeaws.TransactionConflict()})
	r, err := c.core.Register(t.Context(), core.RegisterRequest{
		AgentID: "a", CLI: "claude", Idempotency: core.Some(core.IdempotencyKey{Scope: "s", Key: "k", Body: []byte("b")}),
	})
	if err != nil || r.Generation != 2 {
		t.Fatalf("register answers %+v, %v", r, err)
	}
}

// Heartbeats and keyed registers of one agent at once: the transactions and the
// plain writes get into each other's way and all succeed.
func TestPlainWritesAndTransactionsOnOneAgentAllSucceed(t *testing.T) {
	c := newCosts(t)
	const each = 12
	errs := make([]error, 2*each)
	var wait sync.WaitGroup
	for i := range each {
		wait.Go(func() {
			_, errs[i] = c.core.Register(t.Context(), core.RegisterRequest{
				AgentID: "a", CLI: "claude", Idempotency: core.Some(core.IdempotencyKey{Scope: "s", Key: fmt.Sprint(i % 4), Body: []byte("b")}),
			})
		})
		wait.Go(func() { errs[each+i] = beat(t, c.core) })
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	agent, _, err := c.store.ReadAgent(t.Context(), "a")
	if err != nil || agent.Generation != 5 {
		t.Fatalf("4 keys bring the agent to %+v, %v", agent, err)
	}
}

// An index that lags shows entries that are no longer true, and none that are
// new: a sweep believes the items and only works later.
func TestASweepOverALaggingIndexBelievesTheItems(t *testing.T) {
	server := coretest.NewClock() // of the services
	w := newWorldAt(t, server.Now)
	clock := coretest.NewClock()
	hub := w.hub(clock)
	register := func() {
		t.Helper()
		server.Advance(time.Second)
		if _, err := hub.Register(t.Context(), core.RegisterRequest{AgentID: "a", CLI: "claude", TimeoutSec: core.Some(-60.0)}); err != nil {
			t.Fatal(err)
		}
	}
	sweep := func(want core.AgentSweep) {
		t.Helper()
		counts, err := hub.SweepAgents(t.Context())
		if err != nil || counts != want {
			t.Fatalf("the sweep did %+v, %v; want %+v", counts, err, want)
		}
	}
	w.aws.Faults().LagIndex(w.table, "due", time.Hour)
	register()
	clock.Advance(2 * time.Minute)
	sweep(core.AgentSweep{}) // the entry is not there yet
	server.Advance(2 * time.Hour)
	sweep(core.AgentSweep{Stale: 1})
	sweep(core.AgentSweep{}) // the old entry still is; its agent is stale and not yet due
	register()
	sweep(core.AgentSweep{})
	agent, _, err := w.store.ReadAgent(t.Context(), "a")
	if err != nil || agent.Status != core.StatusOnline || agent.Generation != 2 {
		t.Fatalf("the agent stands at %+v, %v", agent, err)
	}
}

// A deadline that passed counts although nothing collected the item
// (gravitational/teleport#19885): here the stored answer of a key.
func TestAnExpiredAnswerDoesNotCountBeforeItIsCollectedOrAfter(t *testing.T) {
	c := newCosts(t)
	request := core.RegisterRequest{
		AgentID: "a", CLI: "claude", Idempotency: core.Some(core.IdempotencyKey{Scope: "s", Key: "k", Body: []byte("b")}),
	}
	for want := int64(2); want <= 3; want++ {
		r, err := c.core.Register(t.Context(), request)
		if err != nil || r.Generation != want || r.Replayed {
			t.Fatalf("register answers %+v, %v; want generation %d", r, err, want)
		}
		c.clock.Advance(core.IdempotencyRetention)
	}
	out, err := c.client.Scan(t.Context(), &dynamodb.ScanInput{
		TableName:        aws.String(c.table),
		FilterExpression: aws.String("attribute_exists(#ttl)"), ExpressionAttributeNames: map[string]string{"#ttl": "ttl"},
	})
	if err != nil || len(out.Items) != 1 {
		t.Fatalf("%d items carry a time to live, %v; want the one answer", len(out.Items), err)
	}
}
