package dynamo

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"drawbridge/localstack/fakeaws/engine"
)

// Options of an engine.
type Options struct {
	// Journal keeps tables, items and transaction tokens; nil keeps them in
	// memory only.
	Journal engine.Journal
	// Clock is the time for token expiry, index lag and TTL; nil is time.Now.
	Clock func() time.Time
}

// An Engine is a DynamoDB. Its methods may be called concurrently.
type Engine struct {
	clock       func() time.Time
	journal     engine.Journal
	names       *interner
	expressions *expressionCache

	mu     sync.RWMutex // guards everything below
	tables map[string]*table
	lastID uint32
	tokens *tokenStore
}

var _ engine.Service = (*Engine)(nil)

// Open returns an engine with what its journal holds.
func Open(o Options) (*Engine, error) {
	e := &Engine{
		clock:       o.Clock,
		journal:     o.Journal,
		names:       newInterner(),
		expressions: newExpressionCache(),
		tables:      map[string]*table{},
		tokens:      newTokenStore(),
	}
	if e.clock == nil {
		e.clock = time.Now
	}
	if e.journal == nil {
		return e, nil
	}
	return e, e.load()
}

// An answer is the outcome of an operation. Everything but the body counts
// also when the operation failed.
type answer struct {
	body   []byte
	usages usages
	units  unitKind
	ticket engine.Ticket
}

type operationFunc func(e *Engine, body []byte) (answer, error)

var operations = map[string]operationFunc{
	"PutItem":            (*Engine).putItem,
	"UpdateItem":         (*Engine).updateItem,
	"DeleteItem":         (*Engine).deleteItem,
	"GetItem":            (*Engine).getItem,
	"Query":              (*Engine).query,
	"Scan":               (*Engine).scan,
	"BatchGetItem":       (*Engine).batchGetItem,
	"BatchWriteItem":     (*Engine).batchWriteItem,
	"TransactGetItems":   (*Engine).transactGetItems,
	"TransactWriteItems": (*Engine).transactWriteItems,
	"CreateTable":        (*Engine).createTable,
	"DescribeTable":      (*Engine).describeTable,
	"UpdateTable":        (*Engine).updateTable,
	"DeleteTable":        (*Engine).deleteTable,
	"ListTables":         (*Engine).listTables,
	"UpdateTimeToLive":   (*Engine).updateTimeToLive,
	"DescribeTimeToLive": (*Engine).describeTimeToLive,
}

// Operations returns the names of the operations that the engine carries out, in
// no order.
func Operations() []string { return slices.Collect(maps.Keys(operations)) }

const (
	targetHeader  = "X-Amz-Target"
	targetPrefix  = "DynamoDB_20120810."
	streamsPrefix = "DynamoDBStreams_20120810."
	contentType   = "application/x-amz-json-1.0"
)

// operationOf takes AWS's operation name out of a request; empty when the
// request does not name one of DynamoDB's or its streams'.
func operationOf(r *http.Request) string {
	target := r.Header.Get(targetHeader)
	if name, ok := strings.CutPrefix(target, targetPrefix); ok {
		return name
	}
	name, _ := strings.CutPrefix(target, streamsPrefix)
	if name == target {
		return ""
	}
	return name
}

// Serve carries a request out.
func (e *Engine) Serve(r *http.Request, body []byte) engine.Response {
	name := operationOf(r)
	var result answer
	var err error
	switch run := operations[name]; {
	case name == "" || r.Method != http.MethodPost:
		err = newError(codeUnknownOperation, "Unknown operation")
	case run == nil || strings.HasPrefix(r.Header.Get(targetHeader), streamsPrefix):
		err = unsupported(name)
	default:
		result, err = run(e, body)
	}
	return e.response(result, err)
}

// response makes an answer of what an operation came to.
func (e *Engine) response(result answer, err error) engine.Response {
	response := engine.Response{
		Status:  http.StatusOK,
		Body:    result.body,
		Usage:   result.usages.meter(result.units),
		Durable: result.ticket,
	}
	if response.Durable == nil {
		// An error can tell about state, too: that a table is gone, or that a
		// condition failed.
		response.Durable = e.barrier()
	}
	if err != nil {
		failure := asAPIError(err)
		response.Status = failure.status
		response.ErrorCode = failure.code
		response.Body = appendError(nil, failure)
	}
	if response.Body != nil {
		response.Header = http.Header{"Content-Type": {contentType}}
	}
	return response
}

// asAPIError makes an answer of any error; those that are none yet are faults
// of the server.
func asAPIError(err error) *apiError {
	var failure *apiError
	if errors.As(err, &failure) {
		return failure
	}
	return &apiError{status: http.StatusInternalServerError, code: "InternalServerError", message: err.Error()}
}

// barrier stands for all that a read could have seen so far; under the lock it
// does not stand for more than that.
func (e *Engine) barrier() engine.Ticket {
	if e.journal == nil {
		return nil
	}
	return e.journal.Barrier()
}

// table finds a table under the lock.
func (e *Engine) table(name optional[string]) (*table, error) {
	if t := e.tables[name.value]; t != nil {
		return t, nil
	}
	if !name.set {
		return nil, missingParameter("tableName")
	}
	if err := checkName(name.value, "tableName"); err != nil {
		return nil, err
	}
	return nil, tableNotFound()
}

// parse reads a request, all of it.
func parse[T any](e *Engine, body []byte, read func(*reader, *T) error, into *T) error {
	r := &reader{data: body, names: e.names}
	if err := read(r, into); err != nil {
		return err
	}
	return r.end()
}

// bind parses an expression and binds it; nil when it is absent.
func (e *Engine) bind(k expressionKind, text optional[string], in *placeholders) (*bound, error) {
	if !text.set {
		return nil, nil
	}
	parsed, err := e.expressions.parse(k, text.value)
	if err != nil {
		return nil, err
	}
	return in.bind(parsed)
}
