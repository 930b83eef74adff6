package fakeaws

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/schemas"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/google/uuid"
)

// Tables is a client of the server's DynamoDB for the process that embeds it. It
// writes and reads the SDK's own wire form, retries as the SDK does, and meets
// the same faults and the same meter; what it spares are endpoints, signatures
// and the assembly of some 40 middlewares for each request, which cost more than
// DynamoDB itself does here. Its methods are those of *dynamodb.Client.
type Tables struct {
	server  *Server
	options dynamodb.Options
}

// NewTables returns a client with the API options of a configuration. They and
// those of a call may add to the Initialize step, and to the Finalize step beside
// "Retry"; the other steps have nothing to name.
func (s *Server) NewTables(cfg aws.Config) *Tables {
	return &Tables{server: s, options: dynamodb.NewFromConfig(cfg).Options()}
}

// GetItem is that of *dynamodb.Client, as are the following.
func (t *Tables) GetItem(ctx context.Context, in *dynamodb.GetItemInput, options ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	return ask(ctx, t, getItem, in, &dynamodb.GetItemOutput{}, options)
}

// BatchGetItem is that of *dynamodb.Client.
func (t *Tables) BatchGetItem(ctx context.Context, in *dynamodb.BatchGetItemInput, options ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	return ask(ctx, t, batchGetItem, in, &dynamodb.BatchGetItemOutput{}, options)
}

// TransactGetItems is that of *dynamodb.Client.
func (t *Tables) TransactGetItems(ctx context.Context, in *dynamodb.TransactGetItemsInput, options ...func(*dynamodb.Options)) (*dynamodb.TransactGetItemsOutput, error) {
	return ask(ctx, t, transactGetItems, in, &dynamodb.TransactGetItemsOutput{}, options)
}

// Query is that of *dynamodb.Client.
func (t *Tables) Query(ctx context.Context, in *dynamodb.QueryInput, options ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	return ask(ctx, t, query, in, &dynamodb.QueryOutput{}, options)
}

// PutItem is that of *dynamodb.Client.
func (t *Tables) PutItem(ctx context.Context, in *dynamodb.PutItemInput, options ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	return ask(ctx, t, putItem, in, &dynamodb.PutItemOutput{}, options)
}

// UpdateItem is that of *dynamodb.Client.
func (t *Tables) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, options ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	return ask(ctx, t, updateItem, in, &dynamodb.UpdateItemOutput{}, options)
}

// DeleteItem is that of *dynamodb.Client.
func (t *Tables) DeleteItem(ctx context.Context, in *dynamodb.DeleteItemInput, options ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error) {
	return ask(ctx, t, deleteItem, in, &dynamodb.DeleteItemOutput{}, options)
}

// BatchWriteItem is that of *dynamodb.Client.
func (t *Tables) BatchWriteItem(ctx context.Context, in *dynamodb.BatchWriteItemInput, options ...func(*dynamodb.Options)) (*dynamodb.BatchWriteItemOutput, error) {
	return ask(ctx, t, batchWriteItem, in, &dynamodb.BatchWriteItemOutput{}, options)
}

// TransactWriteItems is that of *dynamodb.Client: without a token it gets one, so
// that a transaction sent again is recognised.
func (t *Tables) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, options ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	if in.ClientRequestToken == nil {
		tokened := *in
		tokened.ClientRequestToken = aws.String(uuid.NewString())
		in = &tokened
	}
	return ask(ctx, t, transactWriteItems, in, &dynamodb.TransactWriteItemsOutput{}, options)
}

var (
	getItem            = smithy.NewOperationSchema(schemas.GetItem, schemas.GetItemInput, schemas.GetItemOutput)
	batchGetItem       = smithy.NewOperationSchema(schemas.BatchGetItem, schemas.BatchGetItemInput, schemas.BatchGetItemOutput)
	transactGetItems   = smithy.NewOperationSchema(schemas.TransactGetItems, schemas.TransactGetItemsInput, schemas.TransactGetItemsOutput)
	query              = smithy.NewOperationSchema(schemas.Query, schemas.QueryInput, schemas.QueryOutput)
	putItem            = smithy.NewOperationSchema(schemas.PutItem, schemas.PutItemInput, schemas.PutItemOutput)
	updateItem         = smithy.NewOperationSchema(schemas.UpdateItem, schemas.UpdateItemInput, schemas.UpdateItemOutput)
	deleteItem         = smithy.NewOperationSchema(schemas.DeleteItem, schemas.DeleteItemInput, schemas.DeleteItemOutput)
	batchWriteItem     = smithy.NewOperationSchema(schemas.BatchWriteItem, schemas.BatchWriteItemInput, schemas.BatchWriteItemOutput)
	transactWriteItems = smithy.NewOperationSchema(schemas.TransactWriteItems, schemas.TransactWriteItemsInput, schemas.TransactWriteItemsOutput)
)

// ask makes one request, with its retries, and fills out in.
func ask[In smithy.Serializable, Out smithy.Deserializable](ctx context.Context, t *Tables, operation *smithy.OperationSchema, in In, out Out, options []func(*dynamodb.Options)) (Out, error) {
	var none Out
	o := t.options
	o.APIOptions = o.APIOptions[:len(o.APIOptions):len(o.APIOptions)]
	for _, option := range options {
		option(&o)
	}
	name := operation.ID().Name
	stack := middleware.NewStack(name, smithyhttp.NewStackRequest)
	w := &wire{tables: t, operation: operation, in: in, out: out}
	if err := w.install(stack, o); err != nil {
		return none, err
	}
	result, _, err := middleware.DecorateHandler(unreached{}, stack).Handle(ctx, in)
	if err != nil {
		return none, &smithy.OperationError{ServiceID: dynamodb.ServiceID, OperationName: name, Err: err}
	}
	return result.(Out), nil
}

// A wire is one request on its way to the server and back.
type wire struct {
	tables    *Tables
	operation *smithy.OperationSchema
	in        smithy.Serializable
	out       smithy.Deserializable
}

// install makes the stack of a request: write, retry, and for every attempt hand
// over and read.
func (w *wire) install(stack *middleware.Stack, o dynamodb.Options) error {
	attempt := retry.NewAttemptMiddleware(o.Retryer, smithyhttp.RequestCloner)
	err := errors.Join(
		stack.Serialize.Add(middleware.SerializeMiddlewareFunc("OperationSerializer", w.write), middleware.After),
		stack.Finalize.Add(attempt, middleware.After),
		stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("OperationDeserializer", w.exchange), middleware.After),
	)
	for _, option := range o.APIOptions {
		err = errors.Join(err, option(stack))
	}
	return err
}

func (w *wire) write(ctx context.Context, in middleware.SerializeInput, next middleware.SerializeHandler) (out middleware.SerializeOutput, metadata middleware.Metadata, err error) {
	r, ok := in.Request.(*smithyhttp.Request)
	if !ok {
		return out, metadata, fmt.Errorf("fakeaws: a request of type %T", in.Request)
	}
	if err := w.tables.options.Protocol.SerializeRequest(ctx, w.operation, w.in, r); err != nil {
		return out, metadata, err
	}
	return next.HandleSerialize(ctx, in)
}

// exchange is one attempt. Its errors are those of the SDK's HTTP client.
func (w *wire) exchange(ctx context.Context, in middleware.DeserializeInput, _ middleware.DeserializeHandler) (out middleware.DeserializeOutput, metadata middleware.Metadata, err error) {
	r, ok := in.Request.(*smithyhttp.Request)
	if !ok {
		return out, metadata, fmt.Errorf("fakeaws: a request of type %T", in.Request)
	}
	if err := ctx.Err(); err != nil {
		return out, metadata, &smithy.CanceledError{Err: err}
	}
	body, err := io.ReadAll(r.GetStream())
	if err != nil {
		return out, metadata, &smithy.SerializationError{Err: err}
	}
	answer, err := w.tables.server.ask(ctx, r, body)
	switch {
	case err != nil && ctx.Err() != nil:
		return out, metadata, &smithy.CanceledError{Err: ctx.Err()}
	case err != nil:
		return out, metadata, &smithyhttp.RequestSendError{Err: err}
	}
	defer answer.Body.Close()
	out.RawResponse = answer
	err = w.tables.options.Protocol.DeserializeResponse(ctx, w.operation, dynamodb.TypeRegistry, answer, w.out)
	if err != nil {
		return out, metadata, &awshttp.ResponseError{
			ResponseError: &smithyhttp.ResponseError{Response: answer, Err: err},
			RequestID:     answer.Header.Get("X-Amzn-Requestid"),
		}
	}
	out.Result = w.out
	return out, metadata, nil
}

// ask hands a request of this process to the server, which takes it for that of
// its first key.
func (s *Server) ask(ctx context.Context, r *smithyhttp.Request, body []byte) (*smithyhttp.Response, error) {
	if !s.enter() {
		return nil, errClosed
	}
	defer s.underWay.Done()
	rep, err := s.answer(ctx, r.Request, body, tagOf(ctx), s.options.AccessKey)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	resp, err := received(r.Request, &rep) //nolint:bodyclose // whoever reads the answer closes it
	if err != nil {
		return nil, err
	}
	return &smithyhttp.Response{Response: resp}, nil
}

// unreached is the end of a stack whose last middleware hands over by itself.
type unreached struct{}

func (unreached) Handle(context.Context, any) (any, middleware.Metadata, error) {
	return nil, middleware.Metadata{}, errors.New("fakeaws: the request was not handed over")
}
