package fakeaws

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"drawbridge/localstack/fakeaws/engine"
)

// moody is a journal that gives the ticket which the test wants.
type moody struct{ ticket atomic.Pointer[engine.Ticket] }

func (j *moody) now(t engine.Ticket)                              { j.ticket.Store(&t) }
func (j *moody) Append([]engine.Write) engine.Ticket              { return *j.ticket.Load() }
func (j *moody) Barrier() engine.Ticket                           { return *j.ticket.Load() }
func (j *moody) Load(string, func(string, []byte) error) error    { return nil }
func (j *moody) Read(string, string) (value []byte, failed error) { return nil, nil }

// onMoody is a server on such a journal, with a table, and a client of the same
// process that tries once.
func onMoody(t *testing.T, clock func() time.Time) (*moody, *Server, *Tables) {
	t.Helper()
	journal := &moody{}
	journal.now(failedTicket{})
	s, err := openEngines(Options{AccessKey: "test", SecretKey: "testtest", Clock: clock}, journal)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.Config()
	cfg.RetryMaxAttempts = 1
	_, err = dynamodb.NewFromConfig(cfg).CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: aws.String("table"), BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: "S"}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: "HASH"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return journal, s, s.NewTables(cfg)
}

// stableRequests are a write, one that is refused, and a read: each waits for the
// disk.
var stableRequests = map[string]func(context.Context, *Tables) (any, error){
	"write": func(ctx context.Context, c *Tables) (any, error) {
		return c.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String("table"), Item: stableKey, ReturnValues: "ALL_OLD"})
	},
	"refused": func(ctx context.Context, c *Tables) (any, error) {
		return c.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String("table"), Item: stableKey, ConditionExpression: aws.String("attribute_exists(absent)")})
	},
	"read": func(ctx context.Context, c *Tables) (any, error) {
		return c.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String("table"), Key: stableKey})
	},
	"transaction": func(ctx context.Context, c *Tables) (any, error) {
		return c.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{{Put: &types.Put{TableName: aws.String("table"), Item: stableKey}}}})
	},
}

var stableKey = map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "p"}}

// outcome is what the caller and the meter see of a request.
type outcome struct {
	code, message       string
	status              int
	cancelled, deadline bool
	operation           bool // an *smithy.OperationError
	cost                Cost
}

func outcomeOf(s *Server, err error) outcome {
	o := outcome{cost: s.meter.Total(), cancelled: errors.Is(err, context.Canceled), deadline: errors.Is(err, context.DeadlineExceeded), operation: errors.As(err, new(*smithy.OperationError))}
	var api smithy.APIError
	if errors.As(err, &api) {
		o.code, o.message = api.ErrorCode(), api.ErrorMessage()
	}
	var answer interface{ HTTPStatusCode() int }
	if errors.As(err, &answer) {
		o.status = answer.HTTPStatusCode()
	}
	return o
}

// bothWays makes each request directly and in its wire form, on servers of their own,
// and compares what is seen.
func bothWays(t *testing.T, name string, run func(name string, wire bool) outcome) outcome {
	t.Helper()
	direct, wire := run(name, false), run(name, true)
	if !reflect.DeepEqual(direct, wire) {
		t.Errorf("%s: directly %+v\nby wire %+v", name, direct, wire)
	}
	return direct
}

func wired(ctx context.Context, wire bool) context.Context {
	if wire {
		return WithLabel(ctx, "wire")
	}
	return ctx
}

func TestAFailedDiskIsTheSameBothWays(t *testing.T) {
	for name, request := range stableRequests {
		got := bothWays(t, name, func(name string, wire bool) outcome {
			journal, s, tables := onMoody(t, time.Now)
			journal.now(failedTicket{errors.New("no space left on device")})
			result, err := request(wired(t.Context(), wire), tables)
			if !reflect.ValueOf(result).IsNil() {
				t.Errorf("%s: a result beside an error: %+v", name, result)
			}
			return outcomeOf(s, err)
		})
		if got.status != 500 || got.code != "InternalServerError" {
			t.Errorf("%s: %+v, want a 500", name, got)
		}
	}
}

func TestAContextThatEndsBeforeTheDiskIsTheSameBothWays(t *testing.T) {
	for name, request := range stableRequests {
		got := bothWays(t, name, func(name string, wire bool) outcome {
			journal, s, tables := onMoody(t, time.Now)
			slow := make(slowTicket)
			journal.now(slow)
			ctx, cancel := context.WithTimeout(wired(t.Context(), wire), 5*time.Millisecond)
			defer cancel()
			_, err := request(ctx, tables)
			close(slow)
			return outcomeOf(s, err)
		})
		if !got.deadline || got.cost.Errors[Dropped] != 1 {
			t.Errorf("%s: %+v, want the context's end", name, got)
		}
	}
}

// The clock is asked while a write is carried out: it takes effect, and its caller
// has gone.
func TestAContextThatEndsMeanwhileIsTheSameBothWays(t *testing.T) {
	got := bothWays(t, "write", func(name string, wire bool) outcome {
		end := func() {}
		_, s, tables := onMoody(t, func() time.Time { end(); return time.Now() })
		ctx, cancel := context.WithCancel(wired(t.Context(), wire))
		defer cancel()
		end = cancel
		_, err := stableRequests["transaction"](ctx, tables)
		end = func() {}
		held, readErr := tables.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("table"), Key: stableKey})
		if readErr != nil || held.Item == nil {
			t.Errorf("%s: %+v, %v; want what was written", name, held, readErr)
		}
		return outcomeOf(s, err)
	})
	if !got.cancelled {
		t.Errorf("%+v, want the context's end", fmt.Sprint(got))
	}
}
