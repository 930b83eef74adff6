package fakeaws_test

import (
	"context"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"drawbridge/localstack/fakeaws"
)

// answer is the raw response behind an SDK call.
func answer(t *testing.T, md middleware.Metadata) *http.Response {
	t.Helper()
	raw, ok := md.Get(rawKey{}).(*http.Response)
	if !ok {
		t.Fatal("no raw response")
	}
	return raw
}

type rawKey struct{}

// keepRaw keeps the raw response for answer.
func keepRaw(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("keepRaw",
		func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
			out, md, err := next.HandleDeserialize(ctx, in)
			if raw, ok := out.RawResponse.(*smithyhttp.Response); ok {
				md.Set(rawKey{}, raw.Response)
			}
			return out, md, err
		}), middleware.Before)
}

func TestAnswersCarryTheHeadersOfTheirProtocol(t *testing.T) {
	for _, p := range paths(t) {
		t.Run(p.name, func(t *testing.T) {
			if err := p.rig.putObject(t.Context(), "k", "text", nil); err != nil {
				t.Fatal(err)
			}
			list, err := p.rig.tables.ListTables(t.Context(), &dynamodb.ListTablesInput{}, func(o *dynamodb.Options) { o.APIOptions = append(o.APIOptions, keepRaw) })
			if err != nil {
				t.Fatal(err)
			}
			h := answer(t, list.ResultMetadata).Header
			const body = `{"TableNames":["table"]}`
			if want := strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(body))), 10); h.Get("X-Amz-Crc32") != want {
				t.Errorf("X-Amz-Crc32 %q, want %q for %s", h.Get("X-Amz-Crc32"), want, body)
			}
			for name, want := range map[string]string{"Content-Type": "application/x-amz-json-1.0", "Content-Length": strconv.Itoa(len(body)), "Server": "Server"} {
				if h.Get(name) != want {
					t.Errorf("DynamoDB: %s %q, want %q", name, h.Get(name), want)
				}
			}
			if h.Get("X-Amzn-Requestid") == "" {
				t.Error("DynamoDB: no request id")
			}
			head, err := p.rig.store.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: aws.String("bucket"), Key: aws.String("k")}, func(o *s3.Options) { o.APIOptions = append(o.APIOptions, keepRaw) })
			if err != nil {
				t.Fatal(err)
			}
			if n := aws.ToInt64(head.ContentLength); n != 4 {
				t.Errorf("HEAD: Content-Length %d, want the object's 4", n)
			}
			s := answer(t, head.ResultMetadata).Header
			if s.Get("X-Amz-Request-Id") == "" || s.Get("X-Amz-Id-2") == "" || s.Get("Server") != "AmazonS3" {
				t.Errorf("S3: %v", s)
			}
			for _, header := range []http.Header{h, s} {
				if date, err := http.ParseTime(header.Get("Date")); err != nil || time.Since(date).Abs() > time.Minute {
					t.Errorf("Date %q, want now", header.Get("Date"))
				}
			}
			if h.Get("X-Amzn-Requestid") == s.Get("X-Amz-Request-Id") {
				t.Error("two requests have one id")
			}
		})
	}
}

func TestBodiesOverTheLimitAreRefused(t *testing.T) {
	for _, p := range paths(t) {
		t.Run(p.name, func(t *testing.T) {
			for _, length := range []int64{16<<20 + 1, -1} {
				big := io.LimitReader(zeros{}, 16<<20+1)
				r, err := http.NewRequest("POST", aws.ToString(p.rig.tables.Options().BaseEndpoint), big)
				if err != nil {
					t.Fatal(err)
				}
				r.ContentLength = length
				r.Header.Set("X-Amz-Target", "DynamoDB_20120810.PutItem")
				resp, err := p.rig.tables.Options().HTTPClient.Do(r)
				if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
					continue // refused while still sending
				}
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if resp.StatusCode != http.StatusRequestEntityTooLarge {
					t.Errorf("length %d: status %d, want 413", length, resp.StatusCode)
				}
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestACutOffBodyIsRefused(t *testing.T) {
	r := newRig(t, fakeaws.Options{})
	cfg := listen(t, r.server)
	c, err := net.Dial("tcp", strings.TrimPrefix(aws.ToString(cfg.BaseEndpoint), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "PUT /bucket/k HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nonly this"); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(b), "<Code>IncompleteBody</Code>") {
		t.Errorf("%v, %s; want IncompleteBody", err, b)
	}
}

func TestTheTransportEndsWithItsContext(t *testing.T) {
	r := newRig(t, fakeaws.Options{})
	h := r.server.Faults().Add(fakeaws.Rule{Op: "GetItem", Action: fakeaws.FreezeResponse()})
	defer h.Remove()
	get := func(ctx context.Context) error {
		_, err := r.tables.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String("table"), Key: keyOf(1)})
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := get(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want context.DeadlineExceeded", err)
	}
	cost := r.server.Measure(ctx, func(ctx context.Context) {
		if err := get(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a context that is over: %v, want context.DeadlineExceeded", err)
		}
	})
	if cost.Requests != 0 {
		t.Errorf("%d requests with a context that is over, want none", cost.Requests)
	}
}

func TestTheTransportLeavesTheRequestAlone(t *testing.T) {
	r := newRig(t, fakeaws.Options{})
	request, err := http.NewRequest("GET", "http://fakeaws.invalid/bucket", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Amz-Date", "x")
	before := request.Header.Clone()
	resp, err := r.server.Transport().RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusForbidden || resp.Request != request {
		t.Errorf("status %d, request %p; want 403 and %p", resp.StatusCode, resp.Request, request)
	}
	if len(request.Header) != len(before) || request.Host != "fakeaws.invalid" {
		t.Errorf("the request became %v of %q", request.Header, request.Host)
	}
}

func TestHeadersArriveInProcessAsOverASocket(t *testing.T) {
	for _, p := range paths(t) {
		t.Run(p.name, func(t *testing.T) {
			note := func(text string) func(*s3.PutObjectInput) {
				return func(in *s3.PutObjectInput) { in.Metadata = map[string]string{"note": text} }
			}
			if err := p.rig.putObject(t.Context(), "k", "text", note("  two  words\t")); err != nil {
				t.Fatal(err)
			}
			head, err := p.rig.store.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: aws.String("bucket"), Key: aws.String("k")})
			if err != nil {
				t.Fatal(err)
			}
			if got := head.Metadata["note"]; got != "two  words" {
				t.Errorf("the note is %q, want no space at its ends", got)
			}
			if err := p.rig.putObject(t.Context(), "split", "text", note("a\nb")); err == nil {
				t.Error("a header of two lines was sent")
			}
			_, err = p.rig.store.PutObject(t.Context(), &s3.PutObjectInput{
				Bucket: aws.String("bucket"), Key: aws.String("named"), Metadata: map[string]string{"no te": "x"}})
			if err == nil {
				t.Error("a header with a space in its name was sent")
			}
		})
	}
}

func TestKeysComeFromTheOptionsOrTheEnvironment(t *testing.T) {
	for name, c := range map[string]struct {
		options        fakeaws.Options
		envKey, envVal string
		key, secret    string
	}{
		"default":          {key: "test", secret: "testtest"},
		"environment":      {envKey: "k", envVal: "s", key: "k", secret: "s"},
		"half environment": {envKey: "k", key: "test", secret: "testtest"},
		"options win":      {options: fakeaws.Options{AccessKey: "a", SecretKey: "b"}, envKey: "k", envVal: "s", key: "a", secret: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("AWS_ACCESS_KEY_ID", c.envKey)
			t.Setenv("AWS_SECRET_ACCESS_KEY", c.envVal)
			r := newRig(t, c.options)
			got, err := r.server.Config().Credentials.Retrieve(t.Context())
			if err != nil || got.AccessKeyID != c.key || got.SecretAccessKey != c.secret {
				t.Errorf("%q %q %v, want %q %q", got.AccessKeyID, got.SecretAccessKey, err, c.key, c.secret)
			}
		})
	}
	if _, err := fakeaws.Open(fakeaws.Options{AccessKey: "a"}); err == nil {
		t.Error("an access key without a secret was taken")
	}
}

func TestADurableServerKeepsEverythingOverARestart(t *testing.T) {
	dir := t.TempDir()
	open := func() *rig {
		server, err := fakeaws.Open(fakeaws.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		r := &rig{server: server}
		r.tables, r.store = clients(server.Config())
		return r
	}
	r := open()
	setUp(t, r.tables, r.store)
	if err := r.put(t.Context(), benchItem(1)); err != nil {
		t.Fatal(err)
	}
	if err := r.putObject(t.Context(), "k", "text", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := fakeaws.Open(fakeaws.Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use by process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("a second server on the folder: %v", err)
	}
	if err := r.server.Close(); err != nil {
		t.Fatal(err)
	}
	r = open()
	defer r.server.Close()
	if i := r.get(t, 1); i == nil {
		t.Error("the item is gone")
	}
	if text, err := r.getObject(t, "k"); text != "text" {
		t.Errorf("the object is %q, %v", text, err)
	}
}

// A server whose clock a test has moved still takes requests that clients sign
// with the machine's clock, and does not make them correct their clock.
func TestAMovedClockDoesNotDisturbSignatures(t *testing.T) {
	r := newRig(t, fakeaws.Options{Clock: func() time.Time { return time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC) }})
	cost := r.server.Measure(t.Context(), func(ctx context.Context) {
		for n := range 3 {
			if err := r.put(ctx, keyOf(n)); err != nil {
				t.Error(err)
			}
		}
	})
	if cost.Requests != 3 {
		t.Errorf("%d requests for 3 puts", cost.Requests)
	}
}

func TestAReadyConfigurationRetriesAsTheSDKDoes(t *testing.T) {
	r := newRig(t, fakeaws.Options{})
	if n := r.tables.Options().Retryer.MaxAttempts(); n < retry.DefaultMaxAttempts {
		t.Errorf("%d attempts, want the SDK's default", n)
	}
}
