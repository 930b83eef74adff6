package functions

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
	"drawbridge/localstack/fakeaws"
)

// TestAThawedFunctionOpensANewConnection: aws-sdk-go-v2#3423 (pain case 82). A
// connection that AWS closed while the sandbox was frozen costs no attempt,
// because it is not used.
func TestAThawedFunctionOpensANewConnection(t *testing.T) {
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "{}")
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	clock := &testClock{now: time.UnixMilli(1_700_000_000_000)}
	transport := &thawedTransport{Transport: awshttp.NewBuildableClient().GetTransport(), now: clock.Now}
	client := &http.Client{Transport: transport}
	for _, step := range []struct {
		pause       time.Duration
		connections int32
	}{{0, 1}, {awsIdleTimeout, 1}, {awsIdleTimeout + time.Millisecond, 2}, {0, 2}, {10 * time.Minute, 3}} {
		clock.advance(step.pause)
		response, err := client.Get(server.URL)
		must(t, err)
		_, err = io.Copy(io.Discard, response.Body)
		must(t, err)
		must(t, response.Body.Close())
		if got := connections.Load(); got != step.connections {
			t.Errorf("after a pause of %v there were %d connections, want %d", step.pause, got, step.connections)
		}
	}
}

// TestABodyIsNotDrainedByWriteTo: see withPlainBody. The closed body of the SDK must
// end where the transport looks for excess bytes, not fail.
func TestABodyIsNotDrainedByWriteTo(t *testing.T) {
	body := &closedWriterTo{Reader: strings.NewReader("{}")}
	r := httptest.NewRequest(http.MethodPost, "/", body)
	r.Body = body
	plain := withPlainBody(r)
	if _, ok := plain.Body.(io.WriterTo); ok {
		t.Fatal("the transport would drain the body by WriteTo")
	}
	if got, err := io.ReadAll(plain.Body); err != nil || string(got) != "{}" {
		t.Fatalf("read %q, %v", got, err)
	}
	if _, err := io.Copy(io.Discard, plain.Body); err != nil {
		t.Fatalf("looking for excess bytes failed: %v", err)
	}
	if r.Body != io.ReadCloser(body) {
		t.Fatal("the caller's request was changed")
	}
	empty := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	if withPlainBody(empty).Body != http.NoBody {
		t.Fatal("a request without a body got one")
	}
}

type closedWriterTo struct{ io.Reader }

func (*closedWriterTo) WriteTo(io.Writer) (int64, error) { return 0, io.EOF }
func (*closedWriterTo) Close() error                     { return nil }

func TestRetriesComeSoonAndAreBounded(t *testing.T) {
	for attempt, bound := range map[int]time.Duration{1: 50 * time.Millisecond, 2: 100 * time.Millisecond, 5: 800 * time.Millisecond, 6: time.Second, 60: time.Second} {
		for range 100 {
			if wait, err := backoff(attempt, nil); err != nil || wait < 0 || wait >= bound {
				t.Fatalf("retry %d waits %v, %v", attempt, wait, err)
			}
		}
	}
	if total := awsAttempts*awsAttemptTimeout + (awsAttempts-1)*awsMaxBackoff; total > 28*time.Second-deadlineHeadroom {
		t.Errorf("one call to AWS may take %v, longer than a function runs", total)
	}
}

// overSocket serves the embedded AWS on a socket and returns the configuration
// of a deployed function for it.
func (h *testHub) overSocket() aws.Config {
	h.t.Helper()
	server := httptest.NewServer(h.aws)
	h.t.Cleanup(server.Close)
	cfg := h.aws.Config()
	cfg.BaseEndpoint = aws.String(server.URL)
	cfg.HTTPClient = awshttp.NewBuildableClient()
	return ForLambda(cfg)
}

// TestLostResponsesAreRecognised drops the answer of each write on its way to
// the SDK: the retry finds its own write, the state changed once (pain case 65).
// A heartbeat and a status change are applied again to the same effect, so only
// a register has something to recognise.
func TestLostResponsesAreRecognised(t *testing.T) {
	h := newTestHub(t)
	app, err := Open(h.overSocket(), Settings{Table: h.table, Account: "000000000000", Log: NewLog(h.log, "INFO")})
	must(t, err)
	h.app = app
	h.identity()
	lost := func(op string, send func() answer) answer {
		t.Helper()
		dropped := h.aws.Faults().Add(fakeaws.Rule{Op: op, Key: "agent#*", Count: 1, Action: fakeaws.DropResponse()})
		defer dropped.Remove()
		a := send()
		if dropped.Hits() != 1 {
			t.Fatalf("no %s was dropped", op)
		}
		if a.status != 200 {
			t.Errorf("after a lost response of %s the answer is %d %s", op, a.status, a.text)
		}
		if n, _ := h.lastLog()["aws_requests"].(float64); n < 2 {
			t.Errorf("%v requests are logged", n)
		}
		return a
	}
	body := fields{"agent_id": "a1", "cli": "codex"}
	if a := lost("UpdateItem", func() answer { return h.register(body) }); a.number("data.presence_generation") != 1 || a.at("replayed") != true {
		t.Errorf("the register is answered %s", a.text)
	}
	lost("UpdateItem", func() answer {
		return h.send("POST", "/bridge/heartbeat", fields{"agent_id": "a1", "presence_generation": 1})
	})
	lost("UpdateItem", func() answer { return h.send("POST", "/bridge/status", fields{"agent_id": "a1", "status": "busy"}) })
	lost("UpdateItem", func() answer { return h.send("POST", "/bridge/deregister", fields{"agent_id": "a1"}) })

	if a := h.agent("a1"); a.at("data.agent.status") != "offline" {
		t.Errorf("after all that the agent is %s", a.text)
	}
	dropped := h.aws.Faults().Add(fakeaws.Rule{Op: "TransactWriteItems", Count: 1, Action: fakeaws.DropResponse()})
	a := h.send("POST", "/bridge/register", body, "idempotency-key", "k").expect(t, 200, "")
	if dropped.Hits() == 0 || a.number("data.presence_generation") != 2 {
		t.Errorf("after a lost response of the transaction (%d dropped) the answer is %s", dropped.Hits(), a.text)
	}
}

func TestAStoreThatStaysAwayIsARetryable503(t *testing.T) {
	h := newTestHub(t)
	app, err := Open(h.overSocket(), Settings{Table: h.table, Log: NewLog(h.log, "INFO")})
	must(t, err)
	h.app = app
	h.identity()
	h.aws.Faults().Add(fakeaws.Rule{Op: "UpdateItem", Action: fakeaws.Error(500, "InternalServerError")})
	a := h.register(fields{"agent_id": "a1", "cli": "codex"})
	if a.status != 503 || a.headers["retry-after"] == "" || a.at("error.retryable") != true {
		t.Errorf("answer %d %s", a.status, a.text)
	}
	if n := h.lastLog()["aws_requests"]; n != float64(awsAttempts) {
		t.Errorf("%v attempts were made, want %d", n, awsAttempts)
	}
}

func TestSpendCountsAttemptsAndUnits(t *testing.T) {
	h := newTestHub(t)
	ctx, spent := withSpend(context.Background())
	_, err := h.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String(h.table), ConsistentRead: aws.Bool(true), Key: tokenKey(operatorToken)})
	must(t, err)
	_, err = h.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: aws.String(h.table), Key: tokenKey(operatorToken)})
	must(t, err)
	if spent.requests != 2 || spent.readUnits != 1 || spent.writeUnits != 2 { // the record and its entry in the list
		t.Errorf("a consistent read and a delete count as %d requests, %v and %v units", spent.requests, spent.readUnits, spent.writeUnits)
	}
}

func TestFromEnvSaysWhatIsMissing(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	t.Setenv("AWS_CONFIG_FILE", "testdata/none")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "testdata/none")
	env := map[string]string{}
	getenv := func(name string) string { return env[name] }
	for _, step := range []struct{ missing, value string }{{"TABLE_NAME", "t"}, {"AWS_REGION", "eu-central-1"}} {
		if _, err := FromEnv(context.Background(), getenv); err == nil || !strings.Contains(err.Error(), step.missing) {
			t.Errorf("without %s: %v", step.missing, err)
		}
		env[step.missing] = step.value
		t.Setenv(step.missing, step.value)
	}
	app, err := FromEnv(context.Background(), getenv)
	must(t, err)
	env["DRAWBRIDGE_CORS_ORIGINS"] = "https://a.example,*"
	if _, err := FromEnv(context.Background(), getenv); err == nil {
		t.Error("the CORS origin * is taken")
	}
	if app.version != Version {
		t.Errorf("version %q", app.version)
	}
}

func tokenKey(secret string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{
		"pk": &types.AttributeValueMemberS{Value: "token#" + core.TokenHash(secret)},
		"sk": &types.AttributeValueMemberS{Value: "token"},
	}
}
