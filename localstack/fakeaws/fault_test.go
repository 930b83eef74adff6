package fakeaws_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"drawbridge/localstack/fakeaws"
)

// Every fault is seen through the real SDK, in process and over a socket where
// the two could differ.

// quick retries without waiting, as often as the SDK's standard.
func quick(o *retry.StandardOptions) {
	o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
}

func quickRetryer() aws.Retryer { return retry.NewStandard(quick) }

// path is a way to reach a server.
type path struct {
	name string
	rig  *rig
}

// paths returns a fresh server reached in process and one reached over a
// socket, both with clients that retry at once.
func paths(t *testing.T) []path {
	t.Helper()
	inProcess := newRig(t, fakeaws.Options{})
	cfg := inProcess.server.Config()
	cfg.Retryer = quickRetryer
	inProcess.tables, inProcess.store = clients(cfg)

	socket := newRig(t, fakeaws.Options{})
	cfg = listen(t, socket.server)
	socket.tables, socket.store = clients(cfg)
	return []path{{"in process", inProcess}, {"over a socket", socket}}
}

// listen serves on a socket and returns the configuration to reach it.
func listen(t *testing.T, server *fakeaws.Server) aws.Config {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(server.Close(), <-ended); err != nil {
			t.Error(err)
		}
	})
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	cfg := server.Config()
	cfg.HTTPClient = &http.Client{Transport: transport}
	cfg.BaseEndpoint = aws.String("http://" + l.Addr().String())
	cfg.Retryer = quickRetryer
	return cfg
}

func (r *rig) create(ctx context.Context, i item) error {
	_, err := r.tables.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String("table"), Item: i,
		ConditionExpression:                 aws.String("attribute_not_exists(pk)"),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld})
	return err
}

func (r *rig) get(t *testing.T, n int) item {
	t.Helper()
	out, err := r.tables.GetItem(context.Background(), &dynamodb.GetItemInput{TableName: aws.String("table"), Key: keyOf(n), ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item
}

func (r *rig) putObject(ctx context.Context, key, text string, change func(*s3.PutObjectInput)) error {
	in := &s3.PutObjectInput{Bucket: aws.String("bucket"), Key: &key, Body: strings.NewReader(text)}
	if change != nil {
		change(in)
	}
	_, err := r.store.PutObject(ctx, in)
	return err
}

func (r *rig) getObject(t *testing.T, key string) (string, error) {
	t.Helper()
	out, err := r.store.GetObject(context.Background(), &s3.GetObjectInput{Bucket: aws.String("bucket"), Key: &key})
	if err != nil {
		return "", err
	}
	defer out.Body.Close()
	b, err := io.ReadAll(out.Body)
	return string(b), err
}

func ifNoneMatch(in *s3.PutObjectInput) { in.IfNoneMatch = aws.String("*") }

// The fault that the whole product is built against: the write took effect,
// the answer is lost, the SDK sends it again on its own, and the caller is told
// that its own write is in the way.
func TestALostResponseIsRetriedAndSeesItsOwnWrite(t *testing.T) {
	for _, p := range paths(t) {
		t.Run(p.name, func(t *testing.T) {
			ctx := context.Background()
			h := p.rig.server.Faults().Add(fakeaws.Rule{Op: "PutItem", Count: 1, Action: fakeaws.DropResponse()})
			written := keyOf(1)
			written["writeId"] = str("w1")
			err := p.rig.create(ctx, written)
			var refused *types.ConditionalCheckFailedException
			if !errors.As(err, &refused) {
				t.Fatalf("%v, want ConditionalCheckFailedException", err)
			}
			if id, _ := refused.Item["writeId"].(*types.AttributeValueMemberS); id == nil || id.Value != "w1" {
				t.Errorf("the blocking item is %v, want the caller's own", refused.Item)
			}
			if n := h.Hits(); n != 1 {
				t.Errorf("%d hits, want 1", n)
			}

			p.rig.server.Faults().Add(fakeaws.Rule{Op: "PutObject", Key: "once", Count: 1, Action: fakeaws.DropResponse()})
			if err := p.rig.putObject(ctx, "once", "mine", ifNoneMatch); errorCode(err) != "PreconditionFailed" {
				t.Errorf("S3: %v, want PreconditionFailed", err)
			}
			if text, err := p.rig.getObject(t, "once"); text != "mine" {
				t.Errorf("S3: %q, %v", text, err)
			}
		})
	}
}

func TestALostRequestHasNoEffectUntilItIsRetried(t *testing.T) {
	for _, p := range paths(t) {
		t.Run(p.name, func(t *testing.T) {
			ctx := context.Background()
			faults := p.rig.server.Faults()
			h := faults.Add(fakeaws.Rule{Op: "PutItem", Action: fakeaws.DropRequest()})
			if err := p.rig.create(ctx, keyOf(1)); err == nil {
				t.Fatal("a request that was always lost succeeded")
			}
			if h.Hits() < 2 {
				t.Errorf("%d attempts, want retries", h.Hits())
			}
			h.Remove()
			if i := p.rig.get(t, 1); i != nil {
				t.Fatalf("a lost request left %v", i)
			}
			faults.Add(fakeaws.Rule{Op: "PutItem", Count: 1, Action: fakeaws.DropRequest()})
			if err := p.rig.create(ctx, keyOf(1)); err != nil {
				t.Errorf("one loss, then a retry: %v", err)
			}
		})
	}
}

func TestScriptedErrors(t *testing.T) {
	ctx := context.Background()
	put := func(r *rig) error { return r.put(ctx, keyOf(1)) }
	putObject := func(r *rig) error { return r.putObject(ctx, "k", "v", nil) }
	for name, c := range map[string]struct {
		call   func(*rig) error
		action fakeaws.Action
		count  int
		code   string // empty: retried until it succeeds
		hits   int
	}{
		"500 twice is retried":                      {put, fakeaws.Error(500, "InternalServerError"), 2, "", 2},
		"throttling twice is retried":               {put, fakeaws.Error(400, "ProvisionedThroughputExceededException"), 2, "", 2},
		"ThrottlingException twice is retried":      {put, fakeaws.Error(400, "ThrottlingException"), 2, "", 2},
		"throttling for ever ends":                  {put, fakeaws.Error(400, "ThrottlingException"), 0, "ThrottlingException", 3},
		"SlowDown twice is retried":                 {putObject, fakeaws.Error(503, "SlowDown"), 2, "", 2},
		"InternalError for ever ends":               {putObject, fakeaws.Error(500, "InternalError"), 0, "InternalError", 3},
		"409 is not retried by the SDK":             {putObject, fakeaws.Error(409, "ConditionalRequestConflict"), 2, "ConditionalRequestConflict", 1},
		"a conflict with a plain write":             {put, fakeaws.TransactionConflict(), 1, "TransactionConflictException", 1},
		"200 with an error body becomes a 500":      {putObject, fakeaws.ErrorWith200("InternalError"), 2, "", 2},
		"200 with an error body keeps its code":     {putObject, fakeaws.ErrorWith200("PreconditionFailed"), 0, "PreconditionFailed", 3},
		"200 with an error body is not DynamoDB's":  {put, fakeaws.ErrorWith200("InternalError"), 0, "", 0},
		"a conflict of transactions is not S3's":    {putObject, fakeaws.TransactionConflict(), 0, "", 0},
		"an ambiguous 500 of a conditional request": {func(r *rig) error { return r.putObject(ctx, "k", "v", ifNoneMatch) }, fakeaws.ErrorAfter(500, "InternalError"), 1, "PreconditionFailed", 1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, p := range paths(t) {
				h := p.rig.server.Faults().Add(fakeaws.Rule{Count: c.count, Action: c.action})
				err := c.call(p.rig)
				if errorCode(err) != c.code || (err != nil) != (c.code != "") {
					t.Errorf("%s: %v, want code %q", p.name, err, c.code)
				}
				if h.Hits() != c.hits {
					t.Errorf("%s: %d hits, want %d", p.name, h.Hits(), c.hits)
				}
			}
		})
	}
}

// Two rules that answer the same request: the first one acts, and the other
// keeps its count for the next request.
func TestARuleThatDoesNotAnswerHasNotActed(t *testing.T) {
	r := newRig(t, fakeaws.Options{})
	cfg := r.server.Config()
	cfg.Retryer = quickRetryer
	r.tables, _ = clients(cfg)
	faults := r.server.Faults()
	dropped := faults.Add(fakeaws.Rule{Op: "PutItem", Count: 1, Action: fakeaws.DropResponse()})
	refused := faults.Add(fakeaws.Rule{Op: "PutItem", Count: 1, Action: fakeaws.Error(500, "InternalServerError")})
	held := faults.Add(fakeaws.Rule{Op: "PutItem", Action: fakeaws.Delay(0)})
	cost := r.server.Measure(t.Context(), func(ctx context.Context) {
		if err := r.put(ctx, keyOf(1)); err != nil {
			t.Error(err)
		}
	})
	if cost.Requests != 3 || cost.Errors[fakeaws.Dropped] != 1 || cost.Errors["InternalServerError"] != 1 {
		t.Errorf("%d requests, errors %v; want a lost answer, an error and a success", cost.Requests, cost.Errors)
	}
	if dropped.Hits() != 1 || refused.Hits() != 1 || held.Hits() != 3 {
		t.Errorf("%d, %d and %d hits, want 1, 1 and 3", dropped.Hits(), refused.Hits(), held.Hits())
	}
}

// A read would take the error document for an object, or an answer without a
// document for a success.
func TestReadsOfObjectsAreNotAnsweredWith200AndAnError(t *testing.T) {
	r := newRig(t, fakeaws.Options{})
	if err := r.putObject(t.Context(), "k", "text", nil); err != nil {
		t.Fatal(err)
	}
	h := r.server.Faults().Add(fakeaws.Rule{Action: fakeaws.ErrorWith200("InternalError")})
	head, err := r.store.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: aws.String("bucket"), Key: aws.String("k")})
	if err != nil || aws.ToInt64(head.ContentLength) != 4 {
		t.Errorf("HEAD: %v, %v; want the object's 4 bytes", head, err)
	}
	got, err := r.store.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String("bucket"), Key: aws.String("k")})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(got.Body); string(text) != "text" || err != nil {
		t.Errorf("GET: %q, %v", text, err)
	}
	if h.Hits() != 0 {
		t.Errorf("%d hits, want none", h.Hits())
	}
}

func TestATransactionConflictNamesTheItem(t *testing.T) {
	r := newRig(t, fakeaws.Options{})
	ctx := context.Background()
	h := r.server.Faults().Add(fakeaws.Rule{Key: "AGENT#2/*", Action: fakeaws.TransactionConflict()})
	var items []types.TransactWriteItem
	for n := range 4 {
		items = append(items, types.TransactWriteItem{Put: &types.Put{TableName: aws.String("table"), Item: keyOf(n)}})
	}
	_, err := r.tables.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: items})
	var cancelled *types.TransactionCanceledException
	if !errors.As(err, &cancelled) {
		t.Fatalf("%v, want TransactionCanceledException", err)
	}
	var codes []string
	for _, reason := range cancelled.CancellationReasons {
		codes = append(codes, aws.ToString(reason.Code))
	}
	if want := []string{"None", "None", "TransactionConflict", "None"}; !slices.Equal(codes, want) {
		t.Errorf("reasons %v, want %v", codes, want)
	}
	h.Remove()
	if i := r.get(t, 0); i != nil {
		t.Errorf("a cancelled transaction left %v", i)
	}
}

func TestATornResponseEndsInTheMiddle(t *testing.T) {
	for _, p := range paths(t) {
		t.Run(p.name, func(t *testing.T) {
			text := strings.Repeat("0123456789", 10_000)
			if err := p.rig.putObject(context.Background(), "k", text, nil); err != nil {
				t.Fatal(err)
			}
			h := p.rig.server.Faults().Add(fakeaws.Rule{Op: "GetObject", Action: fakeaws.TearResponse()})
			got, err := p.rig.getObject(t, "k")
			if err == nil || got != text[:len(text)/2] {
				t.Errorf("%d bytes of %d, %v; want half and an error", len(got), len(text), err)
			}
			h.Remove()
			// An answer of DynamoDB is read whole before it means anything.
			p.rig.server.Faults().Add(fakeaws.Rule{Op: "PutItem", Count: 1, Action: fakeaws.TearResponse()})
			_ = p.rig.create(context.Background(), keyOf(1)) // what the SDK makes of it is the SDK's matter
			if p.rig.get(t, 1) == nil {
				t.Error("a torn answer undid the write")
			}
		})
	}
}

func TestDelaysHoldTheRequestOrTheResponse(t *testing.T) {
	for _, p := range paths(t) {
		t.Run(p.name, func(t *testing.T) {
			const d = 30 * time.Millisecond
			for _, action := range []fakeaws.Action{fakeaws.Delay(d), fakeaws.DelayResponse(d)} {
				h := p.rig.server.Faults().Add(fakeaws.Rule{Op: "PutItem", Count: 1, Action: action})
				start := time.Now()
				if err := p.rig.put(context.Background(), keyOf(1)); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took < d {
					t.Errorf("took %v, less than the delay", took)
				}
				if h.Held() != 0 {
					t.Errorf("%d held after the answer", h.Held())
				}
			}
		})
	}
}

// A client that gives up does not undo a request that is under way: it lands
// when the delay is over, after the client has moved on.
func TestARequestLandsAfterItsClientGaveUp(t *testing.T) {
	for _, p := range paths(t) {
		t.Run(p.name, func(t *testing.T) {
			h := p.rig.server.Faults().Add(fakeaws.Rule{Op: "PutItem", Action: fakeaws.Freeze()})
			ctx, cancel := context.WithCancel(context.Background())
			failed := make(chan error, 1)
			go func() { failed <- p.rig.create(ctx, keyOf(1)) }()
			eventually(t, "the request is held", func() bool { return h.Held() == 1 })
			cancel()
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want context.Canceled", err)
			}
			if i := p.rig.get(t, 1); i != nil {
				t.Fatalf("a held request took effect: %v", i)
			}
			h.Release()
			eventually(t, "the request has landed", func() bool { return h.Held() == 0 })
			if units := p.rig.server.Meter().Total().ByOp["PutItem"].WriteUnits; units != 1 {
				t.Errorf("%v write units, want those of the request that landed", units)
			}
			if p.rig.get(t, 1) == nil {
				t.Error("the released request did not take effect")
			}
		})
	}
}

func TestAFrozenResponseHasTakenEffect(t *testing.T) {
	for _, p := range paths(t) {
		t.Run(p.name, func(t *testing.T) {
			h := p.rig.server.Faults().Add(fakeaws.Rule{Op: "PutItem", Action: fakeaws.FreezeResponse()})
			answered := make(chan error, 1)
			go func() { answered <- p.rig.create(context.Background(), keyOf(1)) }()
			eventually(t, "the write is seen", func() bool { return p.rig.get(t, 1) != nil })
			select {
			case err := <-answered:
				t.Fatalf("answered while frozen: %v", err)
			default:
			}
			h.Release()
			if err := <-answered; err != nil {
				t.Errorf("after the release: %v", err)
			}
		})
	}
}

func TestOneCallerIsFrozenWhileOthersGoOn(t *testing.T) {
	server, err := fakeaws.Open(fakeaws.Options{AccessKey: "first", SecretKey: "s1", MoreKeys: map[string]string{"second": "s2"}})
	if err != nil {
		t.Fatal(err)
	}
	first := &rig{server: server}
	cfg := listen(t, server)
	first.tables, first.store = clients(cfg)
	setUp(t, first.tables, first.store)
	cfg.Credentials = credentials.NewStaticCredentialsProvider("second", "s2", "")
	second := &rig{server: server}
	second.tables, second.store = clients(cfg)

	h := server.Faults().Add(fakeaws.Rule{Caller: "second", Action: fakeaws.Freeze()})
	done := make(chan error, 1)
	go func() { done <- second.put(context.Background(), keyOf(2)) }()
	eventually(t, "the second caller is held", func() bool { return h.Held() == 1 })
	if err := first.put(context.Background(), keyOf(1)); err != nil {
		t.Fatal(err)
	}
	if first.get(t, 2) != nil {
		t.Error("the frozen caller's write took effect")
	}
	h.Remove() // releases what it holds
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestClosingTheServerEndsHeldRequestsWithoutEffect(t *testing.T) {
	r := newRig(t, fakeaws.Options{})
	cfg := r.server.Config()
	cfg.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
	r.tables, _ = clients(cfg)
	h := r.server.Faults().Add(fakeaws.Rule{Op: "PutItem", Action: fakeaws.Freeze()})
	done := make(chan error, 1)
	go func() { done <- r.put(context.Background(), keyOf(1)) }()
	eventually(t, "the request is held", func() bool { return h.Held() == 1 })
	if err := r.server.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("a request held when the server closed succeeded")
	}
	if err := r.put(context.Background(), keyOf(1)); err == nil {
		t.Error("a closed server took a request")
	}
}

// The connections are the test's own: an HTTP client may give one up by itself.
func TestIdleConnectionsAreClosedByThePeer(t *testing.T) {
	r := newRig(t, fakeaws.Options{AccessKey: "test", SecretKey: "testtest"})
	cfg := listen(t, r.server)
	dial := func() *keptConn {
		c, err := net.Dial("tcp", strings.TrimPrefix(aws.ToString(cfg.BaseEndpoint), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() }) // the peer may have closed it
		return &keptConn{Conn: c, answers: bufio.NewReader(c)}
	}
	idle := dial()
	idle.put(t, "a")
	dial().put(t, "b")
	idle.put(t, "c") // still open, without a rule
	h := r.server.Faults().Add(fakeaws.Rule{Op: "PutObject", Action: fakeaws.CloseIdle()})
	// The peer knows that a connection is idle a moment after its answer.
	eventually(t, "the idle connection is closed", func() bool {
		own := dial()
		own.put(t, "d")
		eventually(t, "the request's own connection is closed", own.closedByPeer)
		return idle.closedByPeer()
	})
	hits := h.Hits()
	h.Remove()
	after := dial()
	after.put(t, "e")
	after.put(t, "f")
	if hits == 0 || h.Hits() != hits {
		t.Errorf("%d hits, %d after the rule was removed", hits, h.Hits())
	}
}

// keptConn is a connection that is used for one request after the other.
type keptConn struct {
	net.Conn
	answers *bufio.Reader
}

func (c *keptConn) put(t *testing.T, key string) {
	t.Helper()
	r := wireRequest("PUT", "/bucket/"+key, "", []byte(key))
	if !sign(r, []byte(key)) {
		t.Fatal("the request could not be signed")
	}
	if err := r.Write(c); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(c.answers, r)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("put %s: %v, %v", key, resp, err)
	}
}

func (c *keptConn) closedByPeer() bool {
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)) // of an open socket: cannot fail
	_, err := c.answers.ReadByte()
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
}

func TestAnIndexLags(t *testing.T) {
	now := time.Now()
	var mu sync.Mutex
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	advance := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
	script := &fakeaws.Script{}
	h := script.LagIndex("table", "index", time.Second) // before there is such a table
	r := newRig(t, fakeaws.Options{Clock: clock, Faults: script})
	count := func(n int) int32 {
		out, err := r.tables.Query(context.Background(), &dynamodb.QueryInput{
			TableName: aws.String("table"), IndexName: aws.String("index"), KeyConditionExpression: aws.String("gpk = :g"),
			ExpressionAttributeValues: item{":g": str("GROUP#" + strconv.Itoa(n))}})
		if err != nil {
			t.Fatal(err)
		}
		return out.Count
	}
	if err := r.put(context.Background(), benchItem(1)); err != nil {
		t.Fatal(err)
	}
	if n := count(1); n != 0 {
		t.Errorf("%d items at once, want none: the index lags", n)
	}
	advance(1100 * time.Millisecond)
	if n := count(1); n != 1 {
		t.Errorf("%d items after the lag, want 1", n)
	}
	if err := r.put(context.Background(), benchItem(2)); err != nil {
		t.Fatal(err)
	}
	h.Remove()
	if n := count(2); n != 1 {
		t.Errorf("%d items without the lag, want 1", n)
	}
}

func TestExpiredItemsStayUntilTheScriptCollectsThem(t *testing.T) {
	r := newRig(t, fakeaws.Options{})
	ctx := context.Background()
	_, err := r.tables.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{TableName: aws.String("table"),
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String("expires"), Enabled: aws.Bool(true)}})
	if err != nil {
		t.Fatal(err)
	}
	for n, expires := range []int{int(time.Now().Unix()) - 60, int(time.Now().Unix()) + 3600} {
		i := keyOf(n)
		i["expires"] = num(expires)
		if err := r.put(ctx, i); err != nil {
			t.Fatal(err)
		}
	}
	if r.get(t, 0) == nil {
		t.Fatal("an expired item is gone without a rule that collects it")
	}
	r.server.Faults().Add(fakeaws.Rule{Resource: "table", Op: "GetItem", After: 1, Action: fakeaws.CollectExpired()})
	if r.get(t, 0) == nil {
		t.Error("collected on the first read, want the second")
	}
	if r.get(t, 0) != nil {
		t.Error("the expired item is still there after the collection")
	}
	if r.get(t, 1) == nil {
		t.Error("an item that has not expired was collected")
	}
}

func TestRulesMatchAndCount(t *testing.T) {
	call := func(r *rig, ctx context.Context) {
		_ = r.put(ctx, benchItem(7)) // which of them fail is the matter of the rule
		_ = r.putObject(ctx, "dir/key*1", "v", nil)
		_, _ = r.tables.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{
			"table": {{PutRequest: &types.PutRequest{Item: keyOf(8)}}, {PutRequest: &types.PutRequest{Item: keyOf(9)}}}}})
		_, _ = r.tables.Query(ctx, &dynamodb.QueryInput{TableName: aws.String("table"), IndexName: aws.String("index"),
			KeyConditionExpression: aws.String("gpk = :g"), ExpressionAttributeValues: item{":g": str("x")}})
	}
	for name, c := range map[string]struct {
		rule fakeaws.Rule
		want int
	}{
		"everything":               {fakeaws.Rule{}, 4},
		"a service":                {fakeaws.Rule{Service: "s3"}, 1},
		"an operation":             {fakeaws.Rule{Op: "PutItem"}, 1},
		"operations":               {fakeaws.Rule{Op: "Put*"}, 2},
		"a table":                  {fakeaws.Rule{Resource: "table"}, 3},
		"a bucket":                 {fakeaws.Rule{Resource: "b?cket"}, 1},
		"no such table":            {fakeaws.Rule{Resource: "tabl"}, 0},
		"an item":                  {fakeaws.Rule{Key: "AGENT#7/meta"}, 1},
		"the last key of a batch":  {fakeaws.Rule{Key: "AGENT#9/*"}, 1},
		"all agents":               {fakeaws.Rule{Key: "AGENT#*"}, 2},
		"an object":                {fakeaws.Rule{Key: "dir/*"}, 1},
		"a literal star":           {fakeaws.Rule{Key: `dir/key\*1`}, 1},
		"a literal star elsewhere": {fakeaws.Rule{Key: `dir/\*`}, 0},
		"an index":                 {fakeaws.Rule{Index: "index"}, 1},
		"the label":                {fakeaws.Rule{Label: "me"}, 4},
		"another label":            {fakeaws.Rule{Label: "you"}, 0},
		"the caller":               {fakeaws.Rule{Caller: "test"}, 4},
		"another caller":           {fakeaws.Rule{Caller: "nobody"}, 0},
		"after two":                {fakeaws.Rule{After: 2}, 2},
		"one after two":            {fakeaws.Rule{After: 2, Count: 1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("AWS_ACCESS_KEY_ID", "")
			r := newRig(t, fakeaws.Options{})
			h := r.server.Faults().Add(c.rule)
			call(r, fakeaws.WithLabel(context.Background(), "me"))
			if h.Hits() != c.want {
				t.Errorf("%d hits, want %d", h.Hits(), c.want)
			}
		})
	}
}

func TestChanceIsDeterminedByTheSeed(t *testing.T) {
	decisions := func(seed uint64) string {
		r := newRig(t, fakeaws.Options{})
		cfg := r.server.Config()
		cfg.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
		r.tables, _ = clients(cfg)
		r.server.Faults().Add(fakeaws.Rule{Op: "PutItem", Probability: 0.5, Seed: seed, Action: fakeaws.DropRequest()})
		var b bytes.Buffer
		for n := range 64 {
			if r.put(context.Background(), keyOf(n)) == nil {
				b.WriteByte('.')
			} else {
				b.WriteByte('x')
			}
		}
		return b.String()
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	first := decisions(seed)
	if again := decisions(seed); again != first {
		t.Errorf("the same seed decided\n%s and\n%s", first, again)
	}
	if other := decisions(seed + 1); other == first {
		t.Errorf("another seed decided the same: %s", first)
	}
	if !strings.Contains(first, "x") || !strings.Contains(first, ".") {
		t.Errorf("half by chance: %s", first)
	}
}

func TestScriptFiles(t *testing.T) {
	script, err := fakeaws.ParseScript([]byte(`{
	  "rules": [
	    {"op": "PutItem", "key": "AGENT#1/*", "count": 1, "action": "drop-response"},
	    {"op": "PutObject", "after": 1, "count": 1, "action": "error", "status": 409, "code": "ConditionalRequestConflict"},
	    {"label": "slow", "probability": 1, "seed": 3, "action": "delay", "delay": "1ms"}
	  ],
	  "indexLag": [{"table": "table", "index": "index", "lag": "1h"}]
	}`))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	r := newRig(t, fakeaws.Options{Faults: script})
	if err := r.create(ctx, keyOf(1)); errorCode(err) != "ConditionalCheckFailedException" {
		t.Errorf("first rule: %v", err)
	}
	if err := r.putObject(ctx, "k", "v", nil); err != nil {
		t.Errorf("second rule, first call: %v", err)
	}
	if err := r.putObject(ctx, "k", "v", nil); errorCode(err) != "ConditionalRequestConflict" {
		t.Errorf("second rule, second call: %v", err)
	}
	if err := r.putObject(fakeaws.WithLabel(ctx, "slow"), "k", "v", nil); err != nil {
		t.Errorf("third rule: %v", err)
	}
}

func TestEveryActionHasAName(t *testing.T) {
	for _, rule := range []string{
		`"action": "drop-request"`, `"action": "drop-response"`, `"action": "tear-response"`, `"action": "freeze"`,
		`"action": "delay", "delay": "1s"`, `"action": "delay-response", "delay": "0s"`,
		`"action": "error", "status": 500, "code": "InternalError"`, `"action": "error-after", "status": 500, "code": "InternalError"`,
		`"action": "error-with-200", "code": "InternalError"`, `"action": "transaction-conflict"`,
		`"action": "collect-expired"`, `"action": "close-idle"`,
	} {
		if _, err := fakeaws.ParseScript([]byte(`{"rules": [{` + rule + `}]}`)); err != nil {
			t.Errorf("%s: %v", rule, err)
		}
	}
}

func TestWrongScriptFilesAreRefused(t *testing.T) {
	for document, want := range map[string]string{
		``:                 "EOF",
		`{"rules": [}`:     "invalid character",
		`{"rules": []} {}`: "after the document",
		`{"rule": []}`:     `unknown field "rule"`,
		`{"rules": [{"opp": "PutItem", "action": "freeze"}]}`:                               `unknown field "opp"`,
		`{"rules": [{"op": "PutItme", "action": "freeze"}]}`:                                `op "PutItme" name no operation`,
		`{"rules": [{"service": "sqs", "action": "freeze"}]}`:                               `service "sqs"`,
		`{"rules": [{"service": "s3", "op": "*Item", "action": "freeze"}]}`:                 `name no operation`,
		`{"rules": [{"op": "HeadObject", "action": "error-with-200", "code": "SlowDown"}]}`: `that "error-with-200" can act on`,
		`{"rules": [{"op": "PutObject", "action": "transaction-conflict"}]}`:                `that "transaction-conflict" can act on`,
		`{"rules": [{"op": "PutItem"}]}`:                                                    `rule 1: there is no action ""`,
		`{"rules": [{"action": "freeze"}, {"action": "explode"}]}`:                          `rule 2: there is no action "explode"`,
		`{"rules": [{"action": "delay"}]}`:                                                  `"delay" is missing`,
		`{"rules": [{"action": "delay", "delay": 5}]}`:                                      "written as",
		`{"rules": [{"action": "delay", "delay": "-5s"}]}`:                                  "not negative",
		`{"rules": [{"action": "freeze", "delay": "5s"}]}`:                                  `"delay" is missing or does not belong there`,
		`{"rules": [{"action": "error", "status": 500}]}`:                                   `"code" is missing`,
		`{"rules": [{"action": "error", "code": "X"}]}`:                                     `"status" is missing`,
		`{"rules": [{"action": "error", "status": 200, "code": "X"}]}`:                      "400 to 599",
		`{"rules": [{"action": "freeze", "probability": 1.5}]}`:                             "probability",
		`{"rules": [{"action": "freeze", "probability": 0}]}`:                               "probability",
		`{"rules": [{"action": "freeze", "count": -1}]}`:                                    "not negative",
		`{"indexLag": [{"table": "t", "lag": "1s"}]}`:                                       "needs table, index",
		`{"rules": [{"action": "freeze"}], "schedules": []}`:                                `unknown field "schedules"`,
	} {
		if _, err := fakeaws.ParseScript([]byte(document)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", document, err, want)
		}
	}
}

// eventually waits for something that another goroutine does.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}
