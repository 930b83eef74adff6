package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"drawbridge/core"
	"drawbridge/ddb"
	"drawbridge/functions"
	"drawbridge/localstack/bench"
	"drawbridge/localstack/client"
	"drawbridge/localstack/fakeaws"
	"drawbridge/localstack/gateway"
	"drawbridge/localstack/template"
)

type fields = map[string]any

const benchToken = "a-token-of-the-benchmarks"

// A rig is a hub over the embedded AWS in memory, with rows stored in it.
type rig struct {
	rows    int
	aws     *fakeaws.Server
	routes  []template.Route
	app     *functions.App
	gateway *gateway.Gateway
}

func newRig(rows int) (*rig, error) {
	r := &rig{rows: rows}
	var err error
	if r.aws, err = fakeaws.Open(fakeaws.Options{}); err != nil {
		return nil, err
	}
	declared, err := template.Load("../../template.yaml", template.Local())
	if err != nil {
		return nil, err
	}
	r.routes = declared.Routes()
	ctx, cfg := context.Background(), r.aws.Config()
	if _, err := dynamodb.NewFromConfig(cfg).CreateTable(ctx, declared.Tables[0].CreateInput()); err != nil {
		return nil, err
	}
	buckets := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := buckets.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String(declared.Buckets[0].Name)}); err != nil {
		return nil, err
	}
	tables := r.aws.NewTables(cfg)
	quiet := slog.New(slog.DiscardHandler)
	settings := functions.Settings{
		Table: declared.Tables[0].Name, Bucket: declared.Buckets[0].Name, Log: quiet,
		NewTables: func(cfg aws.Config) ddb.Client { return r.aws.NewTables(cfg) },
	}
	store := ddb.Open(tables, ddb.Table{Name: settings.Table, Region: cfg.Region})
	if _, err := store.CreateToken(ctx, core.Token{Hash: core.TokenHash(benchToken), Scopes: []core.Scope{core.ScopeOperator}}); err != nil {
		return nil, err
	}
	if r.app, err = functions.Open(cfg, settings); err != nil {
		return nil, err
	}
	r.gateway, err = gateway.New(declared, func(name string) (gateway.Handler, bool) {
		h, ok := r.app.HTTP(name)
		return gateway.Handler(h), ok
	}, quiet)
	if err != nil {
		return nil, err
	}
	return r, r.fill()
}

// fill stores the rows: as many messages pending in the inbox "deep", and beside
// them a tenth of agents, of assignments and a hundredth of archive jobs.
func (r *rig) fill() error {
	everyone := bench.Loop{Callers: 16}
	for _, f := range []struct {
		share int
		post  func(n int) (endpoint string, body fields)
	}{
		{1, func(n int) (string, fields) { return "publish", letter("deep", n) }},
		{10, func(n int) (string, fields) { return "register", agent(fmt.Sprintf("row-%d", n)) }},
		{10, func(n int) (string, fields) { return "assign/async", job(fmt.Sprintf("row-%d", n)) }},
		{100, func(n int) (string, fields) { return "queue/enqueue", file("row", n) }},
	} {
		everyone.Total = r.rows / f.share
		if everyone.Total == 0 {
			continue
		}
		if _, err := everyone.Run(context.Background(), func(ctx context.Context, _, n int) error {
			endpoint, body := f.post(n)
			_, err := r.post(ctx, endpoint, body)
			return err
		}); err != nil {
			return fmt.Errorf("store the rows: %w", err)
		}
	}
	return nil
}

// rigs are those of this process, one for each number of rows.
var rigs sync.Map

func rigOf(rows int) (*rig, error) {
	made, _ := rigs.LoadOrStore(rows, sync.OnceValues(func() (*rig, error) { return newRig(rows) }))
	return made.(func() (*rig, error))()
}

// A request is one to the hub.
type request struct {
	method, target string // with the query
	body           []byte
}

func post(endpoint string, body fields) request {
	encoded, err := json.Marshal(body)
	if err != nil {
		panic(err) // fields of this file
	}
	return request{http.MethodPost, "/bridge/" + endpoint, encoded}
}

func get(target string) request { return request{method: http.MethodGet, target: target} }

// A way takes a request to the hub.
type way func(context.Context, request) (status int, text []byte, err error)

// handler is the way through the function alone.
func (r *rig) handler(ctx context.Context, q request) (int, []byte, error) {
	path, query, _ := strings.Cut(q.target, "?")
	event := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RawPath: path, RawQueryString: query, Body: string(q.body),
		Headers: map[string]string{"authorization": "Bearer " + benchToken, "content-type": "application/json"},
	}
	event.RequestContext.HTTP.Method, event.RequestContext.HTTP.Path = q.method, path
	for _, route := range r.routes {
		if route.Path == path && (route.Method == q.method || route.Method == functions.AnyMethod) {
			h, ok := r.app.HTTP(route.Handler)
			if !ok {
				break
			}
			answer, err := h(ctx, event)
			return answer.StatusCode, []byte(answer.Body), err
		}
	}
	return 0, nil, fmt.Errorf("no function for %s %s", q.method, path)
}

// overHTTP serves the hub for one benchmark: what its requests cost is counted
// under the context.
func (r *rig) overHTTP(ctx context.Context, b *testing.B, callers int) way {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := r.gateway.Server()
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	go func() { _ = server.Serve(listener) }() // it ends with Close
	b.Cleanup(func() { _ = server.Close() })
	c := client.New("http://"+listener.Addr().String(), benchToken, callers)
	return func(ctx context.Context, q request) (int, []byte, error) {
		return c.Send(ctx, q.method, q.target, q.body)
	}
}

// post makes what a benchmark needs, and returns the data of the answer.
func (r *rig) post(ctx context.Context, endpoint string, body fields) (fields, error) {
	status, text, err := r.handler(ctx, post(endpoint, body))
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s: %d %s", endpoint, status, text)
	}
	if err != nil {
		return nil, err
	}
	var answer struct{ Data fields }
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&answer); err != nil {
		return nil, fmt.Errorf("%s: %w", endpoint, err)
	}
	return answer.Data, nil
}
