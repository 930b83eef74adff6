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

// purse is a retryer's limiter that notes what it gives and gets.
type purse struct{ moves []string }

func (p *purse) GetToken(_ context.Context, cost uint) (func() error, error) {
	p.moves = append(p.moves, fmt.Sprint("-", cost))
	return func() error { p.moves = append(p.moves, fmt.Sprint("+", cost)); return nil }, nil
}

func (p *purse) AddTokens(n uint) error {
	p.moves = append(p.moves, fmt.Sprint("+", n))
	return nil
}

// Retries are paid for by the requests that needed none: a client that does not tell
// its retryer of them has, after some hundred failures, no retries left for ever.
func TestTheClientOfTheSameProcessPaysForRetries(t *testing.T) {
	r := newRig(t, fakeaws.Options{})
	var moves [2][]string
	for i := range moves {
		p := &purse{}
		cfg := r.server.Config()
		cfg.Retryer = func() aws.Retryer {
			return retry.NewStandard(quick, func(o *retry.StandardOptions) { o.RateLimiter = p })
		}
		client := []ddb.Client{dynamodb.NewFromConfig(cfg), r.server.NewTables(cfg)}[i]
		get := func(key item) {
			_, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("table"), Key: key})
			if err != nil && errorCode(err) != "ValidationException" {
				t.Error(err)
			}
		}
		get(keyOf(1))
		get(item{})
		fault := r.server.Faults().Add(fakeaws.Rule{Count: 2, Action: fakeaws.Error(500, "InternalServerError")})
		get(keyOf(1))
		fault.Remove()
		get(keyOf(1))
		moves[i] = p.moves
	}
	if !reflect.DeepEqual(moves[0], moves[1]) || len(moves[0]) == 0 {
		t.Errorf("the SDK pays %v, the client of the same process %v", moves[0], moves[1])
	}
}

// An answer that came is told, although the context ended as it came; one after which
// the SDK would try again is the context's end.
func TestAnAnswerThatCameIsToldAlthoughTheContextEnded(t *testing.T) {
	refused := &dynamodb.PutItemInput{TableName: aws.String("table"), Item: keyOf(1), ConditionExpression: aws.String("attribute_exists(absent)"), ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld}
	for _, c := range []struct {
		name  string
		fault *fakeaws.Rule
	}{
		{"refused", nil},
		{"an error of the server", &fakeaws.Rule{Op: "PutItem", Action: fakeaws.Error(500, "InternalServerError")}},
		{"a lost request", &fakeaws.Rule{Op: "PutItem", Action: fakeaws.DropRequest()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, fakeaws.Options{})
			if c.fault != nil {
				defer r.server.Faults().Add(*c.fault).Remove()
			}
			cfg := r.server.Config()
			cfg.Retryer = quickRetryer
			var got [2]string
			var attempts [2]retry.AttemptResults
			for i, client := range []ddb.Client{dynamodb.NewFromConfig(cfg), r.server.NewTables(cfg)} {
				ctx, cancel := context.WithCancel(t.Context())
				_, err := client.PutItem(ctx, refused, keepAttempts(&attempts[i]), endAfterAnswer(cancel))
				cancel()
				seen := observe(nil, err, &attempts[i])
				got[i] = fmt.Sprintf("%+v, a cancellation: %t, of the attempt: %t", seen, errors.As(err, new(*aws.RequestCanceledError)), errors.As(err, new(*smithy.CanceledError)))
			}
			if got[0] != got[1] {
				t.Errorf("the SDK tells %s, the client of the same process %s", got[0], got[1])
			}
		})
	}
}

// endAfterAnswer is a call's option that ends the context as the first answer comes.
func endAfterAnswer(cancel context.CancelFunc) func(*dynamodb.Options) {
	return func(o *dynamodb.Options) {
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("EndAfterAnswer", func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
				out, metadata, err := next.HandleDeserialize(ctx, in)
				cancel()
				return out, metadata, err
			}), middleware.Before)
		})
	}
}
