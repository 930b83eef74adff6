package functions

import (
	"context"
	"log/slog"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"
)

// Spend counts what one invocation asked of AWS. Requests are attempts, so a
// retry counts. Units are capacity units as DynamoDB reports them; it reports
// none for a write whose condition failed, though it bills it.
type Spend struct {
	mu         sync.Mutex
	requests   int
	readUnits  float64
	writeUnits float64
}

type spendKey struct{}

// withSpend returns a context in which the requests to AWS are counted.
func withSpend(ctx context.Context) (context.Context, *Spend) {
	s := &Spend{}
	return context.WithValue(ctx, spendKey{}, s), s
}

func spendOf(ctx context.Context) *Spend {
	s, _ := ctx.Value(spendKey{}).(*Spend)
	return s
}

func (s *Spend) attributes() []slog.Attr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []slog.Attr{
		slog.Int("aws_requests", s.requests),
		slog.Float64("read_units", s.readUnits),
		slog.Float64("write_units", s.writeUnits),
	}
}

func (s *Spend) addRequest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
}

func (s *Spend) addUnits(reads bool, consumed ...types.ConsumedCapacity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range consumed {
		switch {
		case c.CapacityUnits == nil:
		case reads:
			s.readUnits += *c.CapacityUnits
		default:
			s.writeUnits += *c.CapacityUnits
		}
	}
}

// CountSpend adds the counting to a client's middleware: put it into
// aws.Config.APIOptions. It asks DynamoDB to report the capacity it consumed,
// which costs nothing.
func CountSpend(stack *middleware.Stack) error {
	units := middleware.InitializeMiddlewareFunc("DrawbridgeUnits", countUnits)
	if err := stack.Initialize.Add(units, middleware.Before); err != nil {
		return err
	}
	attempts := middleware.FinalizeMiddlewareFunc("DrawbridgeAttempts", countAttempt)
	return stack.Finalize.Insert(attempts, "Retry", middleware.After)
}

func countAttempt(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
	if s := spendOf(ctx); s != nil {
		s.addRequest()
	}
	return next.HandleFinalize(ctx, in)
}

func countUnits(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
	askForUnits(in.Parameters)
	out, metadata, err := next.HandleInitialize(ctx, in)
	if s := spendOf(ctx); s != nil && err == nil {
		s.countResult(out.Result)
	}
	return out, metadata, err
}

// askForUnits sets the one parameter that makes DynamoDB tell what a call
// consumed, on the operations the hub uses.
func askForUnits(parameters any) {
	switch p := parameters.(type) {
	case *dynamodb.GetItemInput:
		p.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	case *dynamodb.BatchGetItemInput:
		p.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	case *dynamodb.TransactGetItemsInput:
		p.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	case *dynamodb.QueryInput:
		p.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	case *dynamodb.PutItemInput:
		p.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	case *dynamodb.UpdateItemInput:
		p.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	case *dynamodb.DeleteItemInput:
		p.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	case *dynamodb.BatchWriteItemInput:
		p.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	case *dynamodb.TransactWriteItemsInput:
		p.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	}
}

func (s *Spend) countResult(result any) {
	switch r := result.(type) {
	case *dynamodb.GetItemOutput:
		s.addOne(true, r.ConsumedCapacity)
	case *dynamodb.BatchGetItemOutput:
		s.addUnits(true, r.ConsumedCapacity...)
	case *dynamodb.TransactGetItemsOutput:
		s.addUnits(true, r.ConsumedCapacity...)
	case *dynamodb.QueryOutput:
		s.addOne(true, r.ConsumedCapacity)
	case *dynamodb.PutItemOutput:
		s.addOne(false, r.ConsumedCapacity)
	case *dynamodb.UpdateItemOutput:
		s.addOne(false, r.ConsumedCapacity)
	case *dynamodb.DeleteItemOutput:
		s.addOne(false, r.ConsumedCapacity)
	case *dynamodb.BatchWriteItemOutput:
		s.addUnits(false, r.ConsumedCapacity...)
	case *dynamodb.TransactWriteItemsOutput:
		s.addUnits(false, r.ConsumedCapacity...)
	}
}

func (s *Spend) addOne(reads bool, consumed *types.ConsumedCapacity) {
	if consumed != nil {
		s.addUnits(reads, *consumed)
	}
}
