package ddb_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"drawbridge/core"
	"drawbridge/core/coretest"
	"drawbridge/ddb"
	"drawbridge/localstack/fakeaws"
	"drawbridge/localstack/template"
)

// world is an AWS with the template's table in it.
type world struct {
	aws     *fakeaws.Server // nil for a server elsewhere
	network *network
	client  *dynamodb.Client
	table   string
	store   *ddb.Store
}

var tables atomic.Int64

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldAt(t, time.Now)
}

func newWorldAt(t testing.TB, clock func() time.Time) *world {
	t.Helper()
	server, err := fakeaws.Open(fakeaws.Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	w := openWorld(t, server.Config(), fmt.Sprintf("hub-%d", tables.Add(1)), "payloads")
	w.aws = server
	return w
}

// openWorld makes the template's table and a bucket for large payloads on a server.
func openWorld(t testing.TB, cfg aws.Config, table, payloads string) *world {
	t.Helper()
	w := &world{table: table}
	buckets := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	w.network = &network{inner: cfg.HTTPClient}
	cfg.HTTPClient = w.network
	cfg.Retryer = func() aws.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts, o.MaxBackoff = 4, 20*time.Millisecond // as many as in production, sooner
		})
	}
	w.client = dynamodb.NewFromConfig(cfg)
	stack, err := template.Load("../template.yaml", template.Local())
	if err != nil {
		t.Fatal(err)
	}
	in := stack.Tables[0].CreateInput()
	in.TableName = aws.String(w.table)
	// The name is this world's alone: a table that is there was made by a request
	// whose answer got lost.
	var made *types.ResourceInUseException
	if _, err := w.client.CreateTable(t.Context(), in); err != nil && !errors.As(err, &made) {
		t.Fatal(err)
	}
	w.store = ddb.Open(w.client, ddb.Table{Name: w.table, Region: cfg.Region, Account: "000000000000"})
	w.keepPayloads(t, ddb.PayloadBucket{Client: buckets, Name: payloads})
	return w
}

// keepPayloads gives the store a bucket for large payloads.
func (w *world) keepPayloads(t testing.TB, bucket ddb.PayloadBucket) {
	t.Helper()
	if _, err := bucket.Client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(bucket.Name)}); err != nil {
		t.Fatal(err)
	}
	if err := w.store.KeepMessages(ddb.Messages{Payloads: bucket}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) hub(clock core.Clock) *core.Hub {
	return core.New(coretest.Ticks(core.Config{
		Presence: w.store, Identity: w.store, Sweeps: w.store, Messages: w.store, Roles: w.store, Reflexion: w.store, Pipelines: w.store,
		Clock: clock, IDs: core.NewIDs(clock, rand.Reader),
		Humans: w.store, Schemas: noSchemas{}, Sealer: plainSealer{}, Jobs: w.store,
	}))
}

func (w *world) harness(seeds int) coretest.Harness {
	return coretest.Harness{Store: w.store, LoseNextWrite: w.network.loseNextWrite, ResendWrites: w.network.resendWrites, Seeds: seeds}
}

// network stands between the SDK and the server. It loses answers of writes
// that were carried out, and delivers copies of writes once more.
type network struct {
	inner aws.HTTPClient

	mu       sync.Mutex
	losing   int
	refusing int // writes still to let through; 0: none are refused, see refuse
	sent     []sentRequest
}

type sentRequest struct {
	request *http.Request
	body    []byte
}

var errLost = errors.New("connection reset by peer")

func (n *network) Do(r *http.Request) (*http.Response, error) {
	if !isWrite(r) {
		return n.inner.Do(r)
	}
	if n.refuses() {
		return refusal(r), nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	sent := sentRequest{r, body}
	response, err := n.inner.Do(sent.copy())
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent = append(n.sent, sent)
	if err == nil && n.losing > 0 {
		n.losing--
		return nil, errors.Join(errLost, response.Body.Close())
	}
	return response, err
}

func (s sentRequest) copy() *http.Request {
	r := s.request.Clone(s.request.Context())
	r.Body = io.NopCloser(bytes.NewReader(s.body))
	return r
}

func isWrite(r *http.Request) bool {
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	switch op {
	case "PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", "BatchWriteItem":
		return true
	}
	return false
}

// refuseAfter lets a number of writes through and refuses all that follow, as if
// the caller had died there.
func (n *network) refuseAfter(writes int) (stop func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refusing = writes + 1
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.refusing = 0
	}
}

func (n *network) refuses() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refusing > 1 {
		n.refusing--
		return false
	}
	return n.refusing == 1
}

func refusal(r *http.Request) *http.Response {
	body := `{"__type":"com.amazon.coral.validate#ValidationException","message":"scripted refusal"}`
	return &http.Response{
		StatusCode: http.StatusBadRequest, Request: r, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), ProtoMajor: 1, ProtoMinor: 1,
	}
}

func (n *network) loseNextWrite() (stop func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.losing++
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.losing = 0
	}
}

func (n *network) resendWrites() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.sent {
		if response, err := n.inner.Do(s.copy()); err == nil {
			_ = response.Body.Close() // the answer to a copy goes nowhere
		}
	}
}

// noSchemas takes every schema and every value.
type noSchemas struct{}

func (noSchemas) CheckSchema(json.RawMessage) string                 { return "" }
func (noSchemas) CheckValue(json.RawMessage, json.RawMessage) string { return "" }

// plainSealer marks what it seals: it hides nothing, and opens nothing else.
type plainSealer struct{}

func (plainSealer) Seal(_ context.Context, plain []byte, context string) ([]byte, error) {
	return append([]byte(context+":"), plain...), nil
}

func (plainSealer) Open(_ context.Context, sealed []byte, context string) ([]byte, error) {
	plain, ours := bytes.CutPrefix(sealed, []byte(context+":"))
	if !ours {
		return nil, errors.New("sealed for something else")
	}
	return plain, nil
}
