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

	"drawbridge/localstack/fakeaws/engine"
)

// Tables is a client of the server's DynamoDB for the process that embeds it. It
// retries as the SDK does, and meets the same faults and the same meter. What it
// spares are endpoints, signatures and the assembly of some 40 middlewares for each
// request, and, where no fault script is in force and nobody measures the request by
// itself, the wire form: the SDK's types are handed over as they are. A request of
// which the wire form would make something else goes over the wire. Its methods are
// those of *dynamodb.Client.
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
	if in == nil {
		in = &dynamodb.TransactWriteItemsInput{}
	}
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

// ask makes one request, with its retries, and fills out in. An input that is nil is
// an empty one, as to the SDK.
func ask[I any, In interface {
	*I
	smithy.Serializable
}, Out smithy.Deserializable](ctx context.Context, t *Tables, operation *smithy.OperationSchema, in In, out Out, options []func(*dynamodb.Options)) (Out, error) {
	var none Out
	if in == nil {
		in = new(I)
	}
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

// install makes the stack of a request: retry, and for every attempt hand over and
// read.
func (w *wire) install(stack *middleware.Stack, o dynamodb.Options) error {
	err := errors.Join(
		stack.Finalize.Add(firstAttempt{o.Retryer}, middleware.After),
		stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("OperationDeserializer", w.exchange), middleware.After),
	)
	for _, option := range o.APIOptions {
		err = errors.Join(err, option(stack))
	}
	return err
}

// firstAttempt makes the first attempt without the SDK's loop around it: most
// requests have no other. One that fails is the loop's first. Of the SDK's adaptive
// mode, which delays first attempts too, it knows nothing.
type firstAttempt struct{ retryer aws.Retryer }

// ID is that of the SDK's loop, which others insert themselves behind.
func (firstAttempt) ID() string { return "Retry" }

func (f firstAttempt) HandleFinalize(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
	out, metadata, err := next.HandleFinalize(ctx, in)
	if err == nil {
		_ = f.retryer.GetInitialToken()(nil) // pays for retries to come; the loop too drops this error
		return out, metadata, nil
	}
	loop := &loopContext{Context: ctx}
	return retry.NewAttemptMiddleware(f.retryer, smithyhttp.RequestCloner).HandleFinalize(loop, in,
		middleware.FinalizeHandlerFunc(func(ctx context.Context, in middleware.FinalizeInput) (middleware.FinalizeOutput, middleware.Metadata, error) {
			if !loop.begun {
				loop.begun = true
				return out, metadata, err
			}
			return next.HandleFinalize(ctx, in)
		}))
}

// A loopContext has no end until the loop has taken over the attempt that was made:
// with a context that ended meanwhile it would not look at it, and the caller not
// learn what was answered.
type loopContext struct {
	context.Context //nolint:containedctx // it is a context

	begun bool
}

func (c *loopContext) Done() <-chan struct{} {
	if !c.begun {
		return nil
	}
	return c.Context.Done()
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
	answer, err := w.hand(ctx, r)
	switch {
	case err != nil && ctx.Err() != nil:
		return out, metadata, &smithy.CanceledError{Err: ctx.Err()}
	case errors.As(err, new(*smithy.SerializationError)):
		return out, metadata, err
	case err != nil:
		return out, metadata, &smithyhttp.RequestSendError{Err: err}
	case answer == nil: // w.out is filled
		out.Result = w.out
		return out, metadata, nil
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

// hand hands the request over. The answer is nil where it has been read already.
func (w *wire) hand(ctx context.Context, r *smithyhttp.Request) (*smithyhttp.Response, error) {
	s := w.tables.server
	if !s.enter() {
		return nil, errClosed
	}
	defer s.underWay.Done()
	resp, done, err := s.direct(ctx, w.operation.ID().Name, w.in, w.out)
	rep := reply{Response: resp}
	if err == nil && !done {
		rep, err = w.send(ctx, r)
	}
	if err == nil {
		err = ctx.Err() // whoever has given up is not answered
	}
	switch {
	case err != nil:
		return nil, err
	case done && resp.Body == nil:
		return nil, nil
	case done:
		finish(&rep.Response, r.Request, awsJSON, s.ids.next())
	}
	answer, err := received(r.Request, &rep) //nolint:bodyclose // whoever reads the answer closes it
	if err != nil {
		return nil, err
	}
	return &smithyhttp.Response{Response: answer}, nil
}

// send hands the request over in its wire form. The server takes it for that of
// its first key.
func (w *wire) send(ctx context.Context, r *smithyhttp.Request) (reply, error) {
	if err := w.tables.options.Protocol.SerializeRequest(ctx, w.operation, w.in, r); err != nil {
		return reply{}, &smithy.SerializationError{Err: err}
	}
	body, err := io.ReadAll(r.GetStream())
	if err != nil {
		return reply{}, &smithy.SerializationError{Err: err}
	}
	return w.tables.server.answer(ctx, r.Request, body, tagOf(ctx), w.tables.server.options.AccessKey)
}

// direct carries a request out without its wire form. It is false, and nothing was
// done, where faults could come upon it, or somebody measures it by its keys, or the
// engine does not take it so. A body of the answer is one to be read.
func (s *Server) direct(ctx context.Context, operation string, in, out any) (engine.Response, bool, error) {
	if s.tables == nil || s.script.active.Load() || tagOf(ctx) != &noTag {
		return engine.Response{}, false, nil
	}
	run := s.tables.Direct(in, out)
	if run == nil {
		return engine.Response{}, false, nil
	}
	reading := s.meter.begin(&noTag)
	resp := run()
	code := resp.ErrorCode
	var err error
	if resp.Durable != nil {
		err = stable(ctx, resp.Durable)
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		code = Dropped
	default:
		failed := storageFailure(awsJSON, err)
		code, err = failed.code, nil
		resp = failed.response(awsJSON, nil, requestID{})
	}
	reading.end(&engine.Call{Service: "dynamodb", Op: operation}, code, resp.Usage)
	return resp, true, err
}

// unreached is the end of a stack whose last middleware hands over by itself.
type unreached struct{}

func (unreached) Handle(context.Context, any) (any, middleware.Metadata, error) {
	return nil, middleware.Metadata{}, errors.New("fakeaws: the request was not handed over")
}
