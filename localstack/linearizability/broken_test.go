package linearizability

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"

	"drawbridge/core"
)

// A flaw is what a broken adapter does to the requests it sends.
type flaw func(input any)

// always holds, for an item that is there and for one that is not.
const always = "attribute_exists(sk) OR attribute_not_exists(sk)"

// without drops clauses from every condition: they stay where they are, so that
// their values are used, and hold always.
func without(clauses ...string) flaw {
	drop := func(condition *string) *string {
		if condition == nil {
			return nil
		}
		dropped := *condition
		for _, clause := range clauses {
			dropped = strings.ReplaceAll(dropped, clause, "("+clause+" OR "+always+")")
		}
		return aws.String(dropped)
	}
	return func(input any) {
		switch in := input.(type) {
		case *dynamodb.UpdateItemInput:
			in.ConditionExpression = drop(in.ConditionExpression)
		case *dynamodb.PutItemInput:
			in.ConditionExpression = drop(in.ConditionExpression)
		case *dynamodb.TransactWriteItemsInput:
			for _, action := range in.TransactItems {
				switch {
				case action.Put != nil:
					action.Put.ConditionExpression = drop(action.Put.ConditionExpression)
				case action.Update != nil:
					action.Update.ConditionExpression = drop(action.Update.ConditionExpression)
				}
			}
		}
	}
}

// unconditional overwrites objects whatever stands there.
func unconditional(input any) {
	if in, ok := input.(*s3.PutObjectInput); ok {
		in.IfMatch, in.IfNoneMatch = nil, nil
	}
}

func (f flaw) install(stack *middleware.Stack) error {
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("Flaw",
		func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			f(in.Parameters)
			return next.HandleInitialize(ctx, in)
		}), middleware.Before)
}

// TestABrokenAdapterIsFound makes the same histories over adapters that drop one
// condition each: every checker has to find one that no order explains.
func TestABrokenAdapterIsFound(t *testing.T) {
	for _, c := range []struct {
		name string
		flaw flaw
		spec specification
		run  func(t *testing.T, b *bed, seed uint64) *history
	}{
		{"an agent without its generation", without("generation = :generation"), presenceModel, func(t *testing.T, b *bed, seed uint64) *history {
			return presenceHistory(t, b, seed, 3, 10)
		}},
		{"an agent without the order of writes", without("touched_us <= :touched"), presenceModel, func(t *testing.T, b *bed, seed uint64) *history {
			return presenceHistory(t, b, seed, 3, 10)
		}},
		{"a role without its version", without("version = :version"), roleModel{}, func(t *testing.T, b *bed, seed uint64) *history {
			return roleHistory(t, b, seed, 4, 8)
		}},
		// Its place and its count each suffice: both have to go.
		{"a delivery that was seen elsewhere", without("inbox_sk = :seen", "attribute_exists(inbox_sk)", "attribute_not_exists(deliveries)", "deliveries = :deliveries"), deliveryModel, func(t *testing.T, b *bed, seed uint64) *history {
			return deliveryHistory(t, b, seed, 4, 2, 6)
		}},
		{"a delivery without its receipt", without("receipt = :receipt"), deliveryModel, func(t *testing.T, b *bed, seed uint64) *history {
			return deliveryHistory(t, b, seed, 4, 3, 7)
		}},
		// So do an assignment's version and the keys of its events.
		{"an assignment without its version", without("version = :seen", "attribute_not_exists(pk)"), assignmentModel, func(t *testing.T, b *bed, seed uint64) *history {
			return assignmentHistory(t, b, seed, 4, 3, 5)
		}},
		{"an archive job without its ETag", unconditional, archiveModel, func(t *testing.T, b *bed, seed uint64) *history {
			return archiveHistory(t, b, seed, 4, 2, 5)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// A race has to happen, and to be small enough to be seen through: mostly
			// the first is.
			for attempt := range 60 {
				b := newBed(t)
				b.breaks = c.flaw.install
				if c.run(t, b, seeds(t, attempt)).judge(t, c.spec.porcupine(), 2*time.Second) == porcupine.Illegal {
					return
				}
			}
			t.Error("nothing was found")
		})
	}
}

// TestAWrongHistoryIsRefused holds each model against a short history that must
// not happen, beside the same with one reply put right.
func TestAWrongHistoryIsRefused(t *testing.T) {
	stale := told{Code: core.CodeStalePresenceOwner}
	taken := told{Code: core.CodeAlreadyAcked}
	version1 := roleRegister{exists: true, version: 1, epoch: 1, activation: "a", state: string(core.RoleProbing), holder: "h"}
	for _, c := range []struct {
		name  string
		spec  specification
		calls []any // call, reply, ...
		right any   // the last reply
	}{
		{"a stale generation that was served", presenceModel, []any{
			presenceCall{Op: "register", At: 1, TTL: 1000}, presenceReply{Generation: 1, Lease: 1001},
			presenceCall{Op: "register", At: 2, TTL: 1000}, presenceReply{Generation: 2, Lease: 1002},
			presenceCall{Op: "heartbeat", At: 3, Generation: 1, TTL: 1000}, presenceReply{Lease: 1003},
		}, presenceReply{told: stale, Generation: 2}},
		{"a generation that was given twice", presenceModel, []any{
			presenceCall{Op: "register", At: 1, TTL: 1000}, presenceReply{Generation: 1, Lease: 1001},
			presenceCall{Op: "register", At: 2, TTL: 1000}, presenceReply{Generation: 1, Lease: 1002},
		}, presenceReply{Generation: 2, Lease: 1002}},
		{"a lapsed lease that reads online", presenceModel, []any{
			presenceCall{Op: "register", At: 1, TTL: 1000}, presenceReply{Generation: 1, Lease: 1001},
			presenceCall{Op: "read", At: 1002}, presenceReply{Generation: 1, Lease: 1001, Status: core.StatusOnline},
		}, presenceReply{Generation: 1, Lease: 1001, Status: core.StatusStale}},
		{"an epoch that was given twice", roleModel{}, []any{
			roleCall{op: "reserve", activation: "a", holder: "h"}, roleReply{stands: version1},
			roleCall{op: "reserve", activation: "a", holder: "h"}, roleReply{stands: version1},
		}, roleReply{told: told{Code: core.CodeStaleVersion}, stands: version1}},
		{"a message that was handed out twice", deliveryModel, []any{
			deliveryCall{Op: "publish", Message: "m", At: 1, Expires: 100}, deliveryReply{},
			deliveryCall{Op: "take", Message: "m", At: 2}, deliveryReply{},
			deliveryCall{Op: "take", Message: "m", At: 3}, deliveryReply{},
		}, deliveryReply{told: told{Code: notThere}}},
		{"an expired message that was handed out", deliveryModel, []any{
			deliveryCall{Op: "publish", Message: "m", At: 1, Expires: 100}, deliveryReply{},
			deliveryCall{Op: "take", Message: "m", At: 100}, deliveryReply{},
		}, deliveryReply{told: told{Code: notThere}}},
		{"a message that was acknowledged twice", deliveryModel, []any{
			deliveryCall{Op: "publish", Message: "m", At: 1, Expires: 100}, deliveryReply{},
			deliveryCall{Op: "take", Message: "m", At: 2, Receipt: "r", Until: 50}, deliveryReply{},
			deliveryCall{Op: "ack", Message: "m", At: 3, Receipt: "r"}, deliveryReply{},
			deliveryCall{Op: "ack", Message: "m", At: 4, Receipt: "r"}, deliveryReply{},
		}, deliveryReply{told: taken}},
		{"a message that was lost", deliveryModel, []any{
			deliveryCall{Op: "publish", Message: "m", At: 1, Expires: 100}, deliveryReply{},
			deliveryCall{Op: "pass", Message: "m", At: 2, Looked: true}, deliveryReply{},
		}, deliveryReply{told: told{Code: notThere}}},
		{"a message before a more urgent one", inboxModel, []any{
			inboxCall{Op: "publish", At: 1, Priority: 5, Text: "a"}, inboxReply{},
			inboxCall{Op: "publish", At: 2, Priority: 6, Text: "b"}, inboxReply{},
			inboxCall{Op: "drain", At: 3, Max: 1}, inboxReply{Got: "a"},
		}, inboxReply{Got: "b"}},
		{"an attempt that ended twice", assignmentModel, []any{
			assignmentCall{Op: "assign"}, assignmentReply{Status: core.JobQueued, Attempt: 1},
			assignmentCall{Op: "report", Attempt: 1, Word: "succeeded"}, assignmentReply{Status: core.JobSucceeded, Attempt: 1},
			assignmentCall{Op: "report", Attempt: 1, Word: "failed"}, assignmentReply{Status: core.JobFailed, Attempt: 1},
		}, assignmentReply{told: told{Code: core.CodeAssignAlreadyFinal}}},
		{"two holders of one archive job", archiveModel, []any{
			archiveCall{Op: "enqueue", At: 1}, archiveReply{Got: true},
			archiveCall{Op: "claim", At: 2, Lease: "a"}, archiveReply{Got: true},
			archiveCall{Op: "claim", At: 3, Lease: "b"}, archiveReply{Got: true},
		}, archiveReply{}},
		{"an archive job that no claim finds", archiveModel, []any{
			archiveCall{Op: "enqueue", At: 1}, archiveReply{Got: true},
			archiveCall{Op: "claim", At: 2, Lease: "a"}, archiveReply{},
		}, archiveReply{Got: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			operations := oneByOne(c.calls)
			if porcupine.CheckOperations(c.spec.porcupine(), operations) {
				t.Error("it was accepted")
			}
			operations[len(operations)-1].Output = c.right
			if !porcupine.CheckOperations(c.spec.porcupine(), operations) {
				t.Error("it was refused for another reason")
			}
		})
	}
}

// oneByOne is the history of calls and replies that follow each other.
func oneByOne(calls []any) []porcupine.Operation {
	var operations []porcupine.Operation
	for i := 0; i < len(calls); i += 2 {
		operations = append(operations, porcupine.Operation{Input: calls[i], Output: calls[i+1], Call: int64(i), Return: int64(i + 1)})
	}
	return operations
}
