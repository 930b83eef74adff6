package fakeaws_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"drawbridge/ddb"
	"drawbridge/localstack/fakeaws"
)

var _ ddb.Client = (*fakeaws.Tables)(nil)

// seen is what a caller can tell of one request.
type seen struct {
	result    any
	code      string // of an error of DynamoDB
	item      item   // that a failed condition returns
	reasons   []string
	status    int // of the answer that was an error
	cancelled bool
	operation string // that an error names
	attempts  int
	failures  int // attempts that failed
}

func observe(result any, err error, sent *retry.AttemptResults) seen {
	s := seen{code: errorCode(err), attempts: len(sent.Results)}
	for _, a := range sent.Results {
		if a.Err != nil {
			s.failures++
		}
	}
	if err == nil {
		s.result = result
		// Nobody asks for the only attempt of a request that had no other, and the
		// client of the same process does not tell of it.
		if s.failures == 0 {
			s.attempts = 0
		}
		return s
	}
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		s.item = failed.Item
	}
	var undone *types.TransactionCanceledException
	if errors.As(err, &undone) {
		for _, r := range undone.CancellationReasons {
			s.reasons = append(s.reasons, aws.ToString(r.Code))
		}
	}
	var answer interface{ HTTPStatusCode() int }
	if errors.As(err, &answer) {
		s.status = answer.HTTPStatusCode()
	}
	var operation *smithy.OperationError
	if errors.As(err, &operation) {
		s.operation = operation.Service() + " " + operation.Operation()
	}
	s.cancelled = errors.Is(err, context.Canceled)
	return s
}

// keepAttempts is a call's option that keeps the results of its attempts, as the
// store's does.
func keepAttempts(into *retry.AttemptResults) func(*dynamodb.Options) {
	return func(o *dynamodb.Options) {
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("KeepAttempts", func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
				out, metadata, err := next.HandleInitialize(ctx, in)
				*into, _ = retry.GetAttemptResults(metadata)
				return out, metadata, err
			}), middleware.Before)
		})
	}
}

// forget takes out of a result what belongs to the answer's transport alone.
func forget(result any) any {
	v := reflect.ValueOf(result).Elem()
	v.FieldByName("ResultMetadata").SetZero()
	return v.Interface()
}

// requests are one of every operation, in an order in which each finds what it
// needs, with those that are refused.
func requests() []struct {
	name string
	ask  func(context.Context, ddb.Client, func(*dynamodb.Options)) (any, error)
} {
	table := aws.String("table")
	type option = func(*dynamodb.Options)
	check := func(condition string) []types.TransactWriteItem {
		return []types.TransactWriteItem{
			{Update: &types.Update{TableName: table, Key: keyOf(1), UpdateExpression: aws.String("ADD n :one"), ExpressionAttributeValues: item{":one": num(1)}}},
			{ConditionCheck: &types.ConditionCheck{TableName: table, Key: keyOf(2), ConditionExpression: aws.String(condition)}},
		}
	}
	return []struct {
		name string
		ask  func(context.Context, ddb.Client, option) (any, error)
	}{
		{"PutItem", func(ctx context.Context, c ddb.Client, o option) (any, error) {
			return c.PutItem(ctx, &dynamodb.PutItemInput{TableName: table, Item: benchItem(1), ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal}, o)
		}},
		{"PutItem whose condition fails", func(ctx context.Context, c ddb.Client, o option) (any, error) {
			return c.PutItem(ctx, &dynamodb.PutItemInput{
				TableName: table, Item: keyOf(1), ConditionExpression: aws.String("attribute_not_exists(pk)"),
				ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
			}, o)
		}},
		{"BatchWriteItem", func(ctx context.Context, c ddb.Client, o option) (any, error) {
			return c.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{"table": {
				{PutRequest: &types.PutRequest{Item: benchItem(2)}}, {PutRequest: &types.PutRequest{Item: benchItem(3)}},
			}}}, o)
		}},
		{"UpdateItem", func(ctx context.Context, c ddb.Client, o option) (any, error) {
			return c.UpdateItem(ctx, &dynamodb.UpdateItemInput{
				TableName: table, Key: keyOf(1), UpdateExpression: aws.String("ADD n :one"), ExpressionAttributeValues: item{":one": num(1)},
				ReturnValues: types.ReturnValueAllNew,
			}, o)
		}},
		{"UpdateItem with an expression that cannot be read", func(ctx context.Context, c ddb.Client, o option) (any, error) {
			return c.UpdateItem(ctx, &dynamodb.UpdateItemInput{TableName: table, Key: keyOf(1), UpdateExpression: aws.String("SET")}, o)
		}},
		{"TransactWriteItems", func(ctx context.Context, c ddb.Client, o option) (any, error) {
			return c.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: check("attribute_exists(pk)")}, o)
		}},
		{"TransactWriteItems that is cancelled", func(ctx context.Context, c ddb.Client, o option) (any, error) {
			return c.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: check("attribute_not_exists(pk)")}, o)
		}},
		{"GetItem", func(ctx context.Context, c ddb.Client, o option) (any, error) {
			return c.GetItem(ctx, &dynamodb.GetItemInput{TableName: table, Key: keyOf(1), ConsistentRead: aws.Bool(true)}, o)
		}},
		{"GetItem of a table that is not there", func(ctx context.Context, c ddb.Client, o option) (any, error) {
			return c.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String("absent"), Key: keyOf(1)}, o)
		}},
		{"BatchGetItem", func(ctx context.Context, c ddb.Client, o option) (any, error) {
			return c.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{"table": {Keys: []item{keyOf(2)}}}}, o)
		}},
		{"TransactGetItems", func(ctx context.Context, c ddb.Client, o option) (any, error) {
			return c.TransactGetItems(ctx, &dynamodb.TransactGetItemsInput{TransactItems: []types.TransactGetItem{{Get: &types.Get{TableName: table, Key: keyOf(1)}}}}, o)
		}},
		{"Query", func(ctx context.Context, c ddb.Client, o option) (any, error) {
			return c.Query(ctx, &dynamodb.QueryInput{
				TableName: table, IndexName: aws.String("index"), KeyConditionExpression: aws.String("gpk = :g"), ExpressionAttributeValues: item{":g": str("GROUP#1")},
			}, o)
		}},
		{"DeleteItem", func(ctx context.Context, c ddb.Client, o option) (any, error) {
			return c.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: table, Key: keyOf(3), ReturnValues: types.ReturnValueAllOld}, o)
		}},
	}
}

func TestTheClientOfTheSameProcessTellsWhatTheSDKTells(t *testing.T) {
	dynamodbOnly := func(a fakeaws.Action) []fakeaws.Rule {
		return []fakeaws.Rule{{Service: "dynamodb", Count: 1, Action: a}}
	}
	faults := []struct {
		name  string
		rules []fakeaws.Rule
	}{
		{"no fault", nil},
		{"a lost request", dynamodbOnly(fakeaws.DropRequest())},
		{"a lost answer", dynamodbOnly(fakeaws.DropResponse())},
		{"a torn answer", dynamodbOnly(fakeaws.TearResponse())},
		{"a throttled request", dynamodbOnly(fakeaws.Error(400, "ThrottlingException"))},
		{"an error of the server", dynamodbOnly(fakeaws.Error(500, "InternalServerError"))},
	}
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			sdk, near := newRig(t, fakeaws.Options{}), newRig(t, fakeaws.Options{})
			cfg, nearCfg := sdk.server.Config(), near.server.Config()
			cfg.Retryer, nearCfg.Retryer = quickRetryer, quickRetryer
			ways := []struct {
				server *fakeaws.Server
				client ddb.Client
			}{{sdk.server, dynamodb.NewFromConfig(cfg)}, {near.server, near.server.NewTables(nearCfg)}}
			for _, request := range requests() {
				var got [2]seen
				var cost [2]string
				for i, way := range ways {
					for _, rule := range fault.rules {
						defer way.server.Faults().Add(rule).Remove() // it acts once: removing it late disturbs nothing
					}
					c := way.server.Measure(t.Context(), func(ctx context.Context) {
						var sent retry.AttemptResults
						result, err := request.ask(ctx, way.client, keepAttempts(&sent))
						if err == nil {
							result = forget(result)
						}
						got[i] = observe(result, err, &sent)
					})
					cost[i] = fmt.Sprint(c.Requests, c.Rounds, c.ReadUnits, c.WriteUnits, c.Errors, c.Touched)
				}
				if !reflect.DeepEqual(got[0], got[1]) || cost[0] != cost[1] {
					t.Errorf("%s: the SDK tells %+v (%s), the client of the same process %+v (%s)", request.name, got[0], cost[0], got[1], cost[1])
				}
				if got[1].attempts == 0 && got[1].code != "" {
					t.Errorf("%s: no attempt was observed", request.name)
				}
			}
		})
	}
}

func TestTheClientOfTheSameProcessEndsWithItsContextAndItsServer(t *testing.T) {
	r := newRig(t, fakeaws.Options{})
	tables := r.server.NewTables(r.server.Config())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in := &dynamodb.GetItemInput{TableName: aws.String("table"), Key: keyOf(1)}
	if _, err := tables.GetItem(ctx, in); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	if err := r.server.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := tables.GetItem(t.Context(), in); err == nil {
		t.Error("a closed server answered")
	}
}
