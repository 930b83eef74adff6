package s3queue

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"drawbridge/core"
	"drawbridge/core/coretest"
	"drawbridge/localstack/fakeaws"
)

// endpointVariable names the server to test against; empty takes the embedded
// S3.
const endpointVariable = "AWS_ENDPOINT_URL"

func remote() bool { return os.Getenv(endpointVariable) != "" }

// long is set where the tests may take minutes.
func long() bool { return os.Getenv("DRAWBRIDGE_LONG") != "" }

// usualSeed is that of an ordinary run, so that a change is not judged by luck.
const usualSeed = 1

// seed is that of the model's run: DRAWBRIDGE_SEED, or 0, which takes a fresh one,
// when it says "fresh".
func seed(t *testing.T) uint64 {
	t.Helper()
	given := os.Getenv("DRAWBRIDGE_SEED")
	switch given {
	case "":
		return usualSeed
	case "fresh":
		return 0
	}
	n, err := strconv.ParseUint(given, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// bed is a bucket and the processes that use the queue in it.
type bed struct {
	t      *testing.T
	aws    *fakeaws.Server // nil for a server elsewhere
	config aws.Config
	bucket string
	clock  *coretest.Clock
	s3     *s3.Client // undisturbed, for what a test does behind the queue's back
}

// newBed makes a bucket on the server under test.
func newBed(t *testing.T) *bed {
	t.Helper()
	if !remote() {
		return newEmbedded(t)
	}
	cfg, err := config.LoadDefaultConfig(t.Context(), config.WithHTTPClient(awshttp.NewBuildableClient()))
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, clock: coretest.NewClock(), config: cfg, bucket: fmt.Sprintf("queue-%x", randomBytes(8))}
	return b.open()
}

// newEmbedded makes a bucket on an embedded S3, for tests of what only that can
// be told or asked.
func newEmbedded(t *testing.T) *bed {
	t.Helper()
	server, err := fakeaws.Open(fakeaws.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	b := &bed{t: t, clock: coretest.NewClock(), aws: server, config: server.Config(), bucket: "queue"}
	return b.open()
}

func (b *bed) open() *bed {
	b.t.Helper()
	b.s3 = b.client(b.config.HTTPClient)
	if _, err := b.s3.CreateBucket(b.t.Context(), &s3.CreateBucketInput{Bucket: &b.bucket}); err != nil {
		b.t.Fatal(err)
	}
	return b
}

func (b *bed) versioned() *bed {
	b.t.Helper()
	_, err := b.s3.PutBucketVersioning(b.t.Context(), &s3.PutBucketVersioningInput{Bucket: &b.bucket,
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}})
	if err != nil {
		b.t.Fatal(err)
	}
	return b
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

func (b *bed) client(over aws.HTTPClient) *s3.Client {
	return s3.NewFromConfig(b.config, func(o *s3.Options) {
		o.UsePathStyle = true
		o.HTTPClient = over
		o.Retryer = impatient{o.Retryer}
	})
}

// impatient retries as the SDK does, without the wait.
type impatient struct{ aws.Retryer }

func (impatient) RetryDelay(int, error) (time.Duration, error) { return time.Millisecond, nil }

// settings are those of a process with this HTTP client.
func (b *bed) settings(over aws.HTTPClient) Config {
	return Config{S3: b.client(over), Bucket: b.bucket, Settings: core.DefaultArchiveSettings(), Clock: b.clock,
		IDs:   core.NewIDs(b.clock, rand.Reader),
		Sleep: func(ctx context.Context, d time.Duration) error { return sleep(ctx, d/10) }}
}

// queue returns the queue as a process with this HTTP client uses it.
func (b *bed) queue(over aws.HTTPClient) *Queue { return New(b.settings(over)) }

func (b *bed) caller() coretest.ArchiveCaller {
	n := newNetwork(b.config.HTTPClient)
	return coretest.ArchiveCaller{ArchiveQueue: coretest.TicksOfQueue(b.queue(n)), Network: n}
}

func (b *bed) steady() coretest.ArchiveCaller {
	n := newNetwork(b.config.HTTPClient)
	c := b.settings(n)
	c.Random = func() float64 { return 0 }
	return coretest.ArchiveCaller{ArchiveQueue: coretest.TicksOfQueue(New(c)), Network: n}
}

func (b *bed) harness() coretest.ArchiveHarness {
	h := coretest.ArchiveHarness{Clock: b.clock, Caller: b.caller, Steady: b.steady,
		Overwrite: func(id string, document []byte) { b.put(jobKey(id), document) }, Steps: 1500, Jobs: 300,
		Seed: seed(b.t)}
	switch {
	case remote():
		h.Steps, h.Jobs = 600, 100
	case long():
		h.Steps, h.Jobs = 40_000, 1000
	}
	return h
}

func (b *bed) put(key string, body []byte) {
	b.t.Helper()
	_, err := b.s3.PutObject(b.t.Context(), &s3.PutObjectInput{Bucket: &b.bucket, Key: &key, Body: bytes.NewReader(body)})
	if err != nil {
		b.t.Fatal(err)
	}
}

// keys lists the bucket.
func (b *bed) keys(prefix string) []string {
	b.t.Helper()
	var keys []string
	q := b.queue(b.config.HTTPClient)
	if err := q.walk(b.t.Context(), prefix, "", func(key string) bool { keys = append(keys, key); return true }); err != nil {
		b.t.Fatal(err)
	}
	return keys
}

// network is the network of one process, made to misbehave.
type network struct {
	over aws.HTTPClient

	mu       sync.Mutex
	sent     int
	lose     int
	conflict int
	cutAt    int // of sent; 0: never
	freezeAt int
	thawed   chan struct{}
	chance   float64
}

func newNetwork(over aws.HTTPClient) *network { return &network{over: over} }

func (n *network) LoseAnswers(count int) { n.set(func() { n.lose = count }) }
func (n *network) Conflict(count int)    { n.set(func() { n.conflict = count }) }
func (n *network) CutAfter(count int)    { n.set(func() { n.cutAt = n.sent + count + 1 }) }
func (n *network) Disturb(p float64)     { n.set(func() { n.chance = p }) }

func (n *network) FreezeAfter(count int) (thaw func()) {
	thawed := make(chan struct{})
	n.set(func() { n.freezeAt, n.thawed = n.sent+count+1, thawed })
	return func() {
		n.set(func() { n.freezeAt = 0 })
		close(thawed)
	}
}

func (n *network) Requests() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sent
}

func (n *network) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// fate is what happens to one request.
type fate struct {
	cut, lost, conflict bool
	stall               time.Duration
	frozen              <-chan struct{}
}

func (n *network) decide(r *http.Request) fate {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent++
	f := fate{cut: n.cutAt > 0 && n.sent >= n.cutAt}
	if n.freezeAt > 0 && n.sent >= n.freezeAt {
		f.frozen = n.thawed
	}
	write := r.Method != http.MethodGet
	conditional := r.Header.Get("If-Match") != "" || r.Header.Get("If-None-Match") != ""
	switch {
	case conditional && n.lose > 0:
		n.lose--
		f.lost = true
	case conditional && n.conflict > 0:
		n.conflict--
		f.conflict = true
	case write && mathrand.Float64() < n.chance:
		f.lost = true
	case conditional && mathrand.Float64() < n.chance:
		f.conflict = true
	case mathrand.Float64() < n.chance:
		f.stall = 3 * time.Millisecond
	}
	return f
}

// Do implements the SDK's HTTP client.
func (n *network) Do(r *http.Request) (*http.Response, error) {
	f := n.decide(r)
	if f.frozen != nil {
		<-f.frozen
	}
	time.Sleep(f.stall)
	switch {
	case f.cut:
		return nil, errors.New("the process is dead")
	case f.conflict:
		return answer(r, http.StatusConflict, "ConditionalRequestConflict"), nil
	}
	resp, err := n.over.Do(r)
	if err == nil && f.lost {
		_ = resp.Body.Close()
		return nil, syscall.ECONNRESET
	}
	return resp, err
}

// answer is an error of S3.
func answer(r *http.Request, status int, code string) *http.Response {
	body := "<Error><Code>" + code + "</Code><Message>made up</Message></Error>"
	return &http.Response{StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/xml"}}, ContentLength: int64(len(body)),
		Body: io.NopCloser(strings.NewReader(body))}
}
