package linearizability

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"

	"drawbridge/core"
	"drawbridge/ddb"
	"drawbridge/localstack/fakeaws"
	"drawbridge/localstack/template"
	"drawbridge/s3queue"
)

// remote tells whether the histories are made on a server elsewhere: slower, and
// of other people.
func remote() bool { return os.Getenv("AWS_ENDPOINT_URL") != "" }

// rounds is how many histories a test makes.
func rounds(usual int) int {
	if os.Getenv("DRAWBRIDGE_LONG") != "" {
		return usual * 100
	}
	return usual
}

// seeds starts the choices of a history: DRAWBRIDGE_SEED or a fresh one, printed.
func seeds(t *testing.T, round int) uint64 {
	t.Helper()
	seed := mathrand.Uint64()
	if given := os.Getenv("DRAWBRIDGE_SEED"); given != "" && given != "fresh" {
		n, err := strconv.ParseUint(given, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n + uint64(round)
	}
	t.Logf("seed %d", seed)
	return seed
}

// eachRound makes histories on a fresh table and bucket each.
func eachRound(t *testing.T, usual int, run func(t *testing.T, b *bed, seed uint64)) {
	t.Helper()
	for round := range rounds(usual) {
		t.Run(fmt.Sprintf("round %d", round), func(t *testing.T) {
			run(t, newBed(t), seeds(t, round))
		})
	}
}

// A bed is a table and a bucket, and the time that all callers share.
type bed struct {
	t      *testing.T
	config aws.Config
	table  string
	bucket string
	time   *sharedTime
	// breaks is the middleware that makes the adapters broken ones.
	breaks func(*middleware.Stack) error
}

var beds atomic.Int64

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, time: &sharedTime{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}}
	b.table = fmt.Sprintf("history-%d-%d", os.Getpid(), beds.Add(1))
	b.bucket = b.table
	if remote() {
		cfg, err := config.LoadDefaultConfig(t.Context(), config.WithHTTPClient(awshttp.NewBuildableClient()), config.WithLogger(logging.Nop{}))
		if err != nil {
			t.Fatal(err)
		}
		b.config = cfg
	} else {
		server, err := fakeaws.Open(fakeaws.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Close() })
		b.config = server.Config()
	}
	b.provision()
	return b
}

// declared is the template, read once.
var declared = sync.OnceValues(func() (*template.Template, error) {
	return template.Load("../../template.yaml", template.Local())
})

// provision makes what the template declares.
func (b *bed) provision() {
	b.t.Helper()
	stack, err := declared()
	if err != nil {
		b.t.Fatal(err)
	}
	in := stack.Tables[0].CreateInput()
	in.TableName = aws.String(b.table)
	if _, err := dynamodb.NewFromConfig(b.config).CreateTable(b.t.Context(), in); err != nil {
		b.t.Fatal(err)
	}
	bucket := s3.NewFromConfig(b.config, func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := bucket.CreateBucket(b.t.Context(), &s3.CreateBucketInput{Bucket: aws.String(b.bucket)}); err != nil {
		b.t.Fatal(err)
	}
}

// sharedTime is the time of day for every caller: each call of a caller takes
// the next millisecond, so that no two begin at one.
type sharedTime struct {
	mu  sync.Mutex
	now time.Time
}

func (s *sharedTime) next() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(time.Millisecond)
	return s.now
}

func (s *sharedTime) jump(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

// heldClock stands still within a call of its caller.
type heldClock struct{ at atomic.Int64 }

func (c *heldClock) Now() time.Time { return time.UnixMicro(c.at.Load()).UTC() }

// A caller is a process of the hub and whoever uses it.
type caller struct {
	number  int
	id      string
	time    *sharedTime
	skew    time.Duration // how far its clock is ahead
	clock   *heldClock
	network *lossy
	random  *mathrand.Rand
	store   *ddb.Store
	hub     *core.Hub
	queue   *s3queue.Queue
}

// caller starts a process. Its seed decides what it does and what it loses.
func (b *bed) caller(number int, seed uint64) *caller {
	b.t.Helper()
	c := &caller{number: number, id: fmt.Sprintf("caller-%d", number), time: b.time, clock: &heldClock{}}
	c.random = mathrand.New(mathrand.NewPCG(seed, uint64(number)))
	cfg := b.config.Copy()
	if b.breaks != nil {
		cfg.APIOptions = append(cfg.APIOptions, b.breaks)
	}
	c.network = &lossy{inner: cfg.HTTPClient}
	cfg.HTTPClient = c.network
	cfg.Retryer = func() aws.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts, o.MaxBackoff = attempts, 5*time.Millisecond // as many as in production, sooner
		})
	}
	c.store = ddb.Open(dynamodb.NewFromConfig(cfg), ddb.Table{Name: b.table, Region: cfg.Region, Account: "000000000000"})
	objects := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	if err := c.store.KeepMessages(ddb.Messages{Payloads: ddb.PayloadBucket{Client: objects, Name: b.bucket}}); err != nil {
		b.t.Fatal(err)
	}
	ids := core.NewIDs(c.clock, rand.Reader)
	c.queue = s3queue.New(s3queue.Config{
		S3: objects, Bucket: b.bucket, Settings: core.DefaultArchiveSettings(), Clock: c.clock, IDs: ids,
	})
	c.hub = core.New(core.Config{
		Presence: c.store, Identity: c.store, Sweeps: c.store, Messages: c.store, Roles: c.store, Jobs: c.store, Humans: c.store,
		Schemas: noSchemas{}, Reflexion: c.store, Pipelines: c.store, Archive: c.queue, Clock: c.clock, IDs: ids,
	})
	c.tick()
	return c
}

// attempts is how often the SDK sends a request.
const attempts = 4

// tick takes the time of the next call, in milliseconds.
func (c *caller) tick() int64 {
	now := c.time.next()
	c.clock.at.Store(now.Add(c.skew).UnixMicro())
	return now.UnixMilli()
}

// disturb decides what the next call loses: mostly nothing, often one answer,
// sometimes every answer, so that its outcome stays unknown.
func (c *caller) disturb() {
	switch c.random.IntN(8) {
	case 0, 1:
		c.network.lose.Store(1)
	case 2:
		c.network.lose.Store(attempts)
	default:
		c.network.lose.Store(0)
	}
}

// calm loses nothing more.
func (c *caller) calm() { c.network.lose.Store(0) }

// atOnce lets every caller act, each in a goroutine of its own.
func atOnce(callers []*caller, act func(c *caller)) {
	var wait sync.WaitGroup
	for _, c := range callers {
		wait.Go(func() { act(c) })
	}
	wait.Wait()
}

func (b *bed) callers(n int, seed uint64) []*caller {
	b.t.Helper()
	callers := make([]*caller, n)
	for i := range callers {
		callers[i] = b.caller(i, seed)
	}
	return callers
}

// lossy carries requests out and loses answers to writes.
type lossy struct {
	inner aws.HTTPClient
	lose  atomic.Int64 // answers still to lose
	lost  atomic.Int64
}

var errLost = errors.New("connection reset by peer")

func (n *lossy) Do(r *http.Request) (*http.Response, error) {
	response, err := n.inner.Do(r)
	if err != nil || !n.loses(r) {
		return response, err
	}
	n.lost.Add(1)
	return nil, errors.Join(errLost, response.Body.Close())
}

func (n *lossy) loses(r *http.Request) bool {
	if !mayLose(r) {
		return false
	}
	for {
		left := n.lose.Load()
		if left == 0 {
			return false
		}
		if n.lose.CompareAndSwap(left, left-1) {
			return true
		}
	}
}

// mayLose tells whether a request is a write whose answer may get lost. A server
// that does not know a transaction again by its token (moto) is no judge of
// those.
func mayLose(r *http.Request) bool {
	_, operation, dynamo := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	switch operation {
	case "PutItem", "UpdateItem", "DeleteItem":
		return true
	case "TransactWriteItems":
		return !remote()
	}
	return !dynamo && r.Method == http.MethodPut
}

// noSchemas takes every schema and every value.
type noSchemas struct{}

func (noSchemas) CheckSchema(json.RawMessage) string                 { return "" }
func (noSchemas) CheckValue(json.RawMessage, json.RawMessage) string { return "" }

// untilTold repeats a call that is idempotent until it knows what became of it.
func untilTold[R answer](ctx context.Context, c *caller, call func() R) R {
	for {
		reply := call()
		if outcome := reply.outcome(); !outcome.Unknown && !outcome.Nothing || ctx.Err() != nil {
			return reply
		}
		c.calm()
	}
}
