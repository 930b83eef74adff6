package functions

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"drawbridge/core"
	"drawbridge/core/coretest"
	"drawbridge/ddb"
	"drawbridge/localstack/fakeaws"
	"drawbridge/localstack/lambda"
	"drawbridge/localstack/template"
	"drawbridge/s3queue"
)

// testClock is a clock that moves when told.
type testClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// A testHub is the deployed hub in one process: the template's table in the
// embedded AWS, the template's routes in front of the App.
type testHub struct {
	t      testing.TB
	aws    *fakeaws.Server
	client *dynamodb.Client
	table  string
	store  *ddb.Store
	hub    *core.Hub
	clock  *testClock
	app    *App
	routes []template.Route
	log    *lockedBuffer
	token  string // of an operator
	// authorization, when set, is the whole header in place of the token's.
	authorization string
	sealer        core.Sealer
	relay         core.EventRelay

	deployed *lambda.Pool // nil: the functions run in this process

	compiling *sync.Mutex // guards the two below: requests may run at once
	schema    *jsonschema.Compiler
	cached    map[string]*jsonschema.Schema
}

type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

const operatorToken = "oracle-token"

func newTestHub(t testing.TB) *testHub {
	t.Helper()
	h := &testHub{t: t, clock: &testClock{now: startOfTime()}, log: &lockedBuffer{}, token: operatorToken}
	var err error
	h.aws, err = fakeaws.Open(fakeaws.Options{Clock: h.clock.Now})
	must(t, err)
	t.Cleanup(func() { must(t, h.aws.Close()) })
	h.createTable()

	cfg := h.aws.Config()
	cfg.APIOptions = append(cfg.APIOptions, CountSpend)
	h.client = dynamodb.NewFromConfig(cfg)
	h.store = ddb.Open(h.client, ddb.Table{Name: h.table, Region: cfg.Region, Account: "000000000000"})
	payloads := s3.NewFromConfig(h.aws.Config(), func(o *s3.Options) { o.UsePathStyle = true })
	_, err = payloads.CreateBucket(context.Background(), &s3.CreateBucketInput{Bucket: aws.String("payloads")})
	must(t, err)
	must(t, h.store.KeepMessages(ddb.Messages{Payloads: ddb.PayloadBucket{Client: payloads, Name: "payloads"}}))
	h.app = h.newApp()
	h.createToken(operatorToken, core.Token{Scopes: []core.Scope{core.ScopeOperator}})
	h.compileSchemas()
	if emulator() != "" {
		h.deploy()
	}
	return h
}

func (h *testHub) createTable() {
	h.t.Helper()
	declared, err := template.Load("../template.yaml", template.Local())
	must(h.t, err)
	h.table, h.routes = declared.Tables[0].Name, declared.Routes()
	_, err = dynamodb.NewFromConfig(h.aws.Config()).CreateTable(context.Background(), declared.Tables[0].CreateInput())
	must(h.t, err)
}

// newApp builds a process of the hub: it shares the table and nothing else.
func (h *testHub) newApp() *App {
	h.t.Helper()
	ids := core.NewIDs(h.clock, rand.Reader)
	h.hub = core.New(coretest.Ticks(core.Config{
		Presence: h.store, Identity: h.store, Sweeps: h.store, Messages: h.store, Roles: h.store, Reflexion: h.store, Pipelines: h.store, Clock: h.clock, IDs: ids,
		Archive: s3queue.New(s3queue.Config{
			S3: bucketClient(h.aws.Config()), Bucket: "payloads", Settings: core.DefaultArchiveSettings(), Clock: h.clock, IDs: ids,
		}),
		Humans: h.store, Schemas: Schemas{}, Sealer: h.sealer, Jobs: h.store, Relay: h.relay,
	}))
	app, err := New(Config{
		Hub: h.hub, Tokens: h.store, Clock: h.clock, IDs: ids, Log: NewLog(h.log, "DEBUG"), Version: Version,
		CORSOrigins: []string{"https://dashboard.example.com"},
	})
	must(h.t, err)
	return app
}

func (h *testHub) createToken(secret string, token core.Token) {
	h.t.Helper()
	token.Hash = core.TokenHash(secret)
	fresh, err := h.store.CreateToken(context.Background(), token)
	must(h.t, err)
	if !fresh {
		h.t.Fatalf("token %q was there", secret)
	}
}

// function is the name of the function that the gateway sends a request to.
func (h *testHub) function(method, path string) string {
	name := ""
	for _, route := range h.routes {
		switch {
		case route.Path == path && route.Method == method:
			return route.Handler
		case route.Path == path && route.Method == AnyMethod, route.Path == "" && name == "":
			name = route.Handler
		}
	}
	return name
}

// An answer is what a client gets.
type answer struct {
	status  int
	headers map[string]string
	text    string
	body    map[string]any
}

func (a answer) code() string { code, _ := a.at("error.code").(string); return code }

// at returns the value at a dotted path, nil when there is none.
func (a answer) at(path string) any {
	var value any = a.body
	for key := range strings.SplitSeq(path, ".") {
		object, _ := value.(map[string]any)
		value = object[key]
	}
	return value
}

func (a answer) has(path string) bool {
	parent, key, nested := cutLast(path)
	object := a.body
	if nested {
		object, _ = a.at(parent).(map[string]any)
	}
	_, there := object[key]
	return there
}

func cutLast(path string) (parent, key string, nested bool) {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

// number returns an integer out of the answer.
func (a answer) number(path string) int64 {
	n, err := a.at(path).(json.Number).Int64()
	if err != nil {
		panic(err)
	}
	return n
}

// event makes the gateway's event. body is sent as it is when it is a string,
// else as JSON; nil sends none.
func (h *testHub) event(method, target string, body any, headers map[string]string) events.APIGatewayV2HTTPRequest {
	h.t.Helper()
	path, query, _ := strings.Cut(target, "?")
	event := events.APIGatewayV2HTTPRequest{Version: "2.0", RawPath: path, RawQueryString: query, Headers: map[string]string{}}
	event.RequestContext.RequestID = "gateway-request"
	event.RequestContext.HTTP.Method = method
	event.RequestContext.HTTP.Path = path
	event.RequestContext.HTTP.SourceIP = "192.0.2.7"
	if h.token != "" {
		event.Headers["authorization"] = "Bearer " + h.token
	}
	if h.authorization != "" {
		event.Headers["authorization"] = h.authorization
	}
	maps.Copy(event.Headers, headers)
	switch b := body.(type) {
	case nil:
	case string:
		event.Body = b
	default:
		encoded, err := json.Marshal(b)
		must(h.t, err)
		event.Body = string(encoded)
	}
	return event
}

// send sends a request with the hub's token, checks what holds for every answer
// and returns it.
func (h *testHub) send(method, target string, body any, headers ...string) answer {
	h.t.Helper()
	return h.sendEvent(h.event(method, target, body, pairs(headers)))
}

func pairs(list []string) map[string]string {
	headers := map[string]string{}
	for pair := range slices.Chunk(list, 2) {
		headers[pair[0]] = pair[1]
	}
	return headers
}

// as sends with another token, "" for none.
func (h *testHub) as(token string) *testHub {
	other := *h
	other.token = token
	return &other
}

func (h *testHub) sendEvent(event events.APIGatewayV2HTTPRequest) answer {
	h.t.Helper()
	handler, ok := h.handler(h.function(event.RequestContext.HTTP.Method, event.RawPath))
	if !ok {
		h.t.Fatalf("no function for %s %s", event.RequestContext.HTTP.Method, event.RawPath)
	}
	response, err := handler(context.Background(), event)
	must(h.t, err)
	a := answer{status: response.StatusCode, headers: response.Headers, text: response.Body}
	if a.text != "" {
		decoder := json.NewDecoder(strings.NewReader(a.text))
		decoder.UseNumber()
		if err := decoder.Decode(&a.body); err != nil {
			h.t.Fatalf("the answer is no JSON object: %v\n%s", err, a.text)
		}
	}
	h.checkAnswer(event, a)
	return a
}

// checkAnswer holds what every answer promises.
func (h *testHub) checkAnswer(event events.APIGatewayV2HTTPRequest, a answer) {
	h.t.Helper()
	for name, want := range map[string]string{
		"x-content-type-options": "nosniff", "x-frame-options": "DENY", "cache-control": "no-store",
	} {
		if a.headers[name] != want {
			h.t.Errorf("header %s is %q", name, a.headers[name])
		}
	}
	for name, value := range a.headers {
		if strings.ContainsAny(name+value, "\r\n") {
			h.t.Errorf("header %s: %q breaks the line", name, value)
		}
	}
	if id := a.headers["x-correlation-id"]; id == "" || len(id) > maxCorrelationID {
		h.t.Errorf("correlation id %q", id)
	}
	method, path := event.RequestContext.HTTP.Method, event.RawPath
	if a.text == "" {
		if method != http.MethodOptions && method != http.MethodHead {
			h.t.Errorf("%s %s: empty answer", method, path)
		}
		return
	}
	if a.headers["content-type"] != "application/json" {
		h.t.Errorf("content type %q", a.headers["content-type"])
	}
	if a.status >= 400 && a.at("ok") != false {
		h.t.Errorf("%s %s: %d without ok false: %s", method, path, a.status, a.text)
	}
	if a.status >= 400 && (a.code() == "" || a.at("error.message") == nil) {
		h.t.Errorf("%s %s: %d without code and message: %s", method, path, a.status, a.text)
	}
	if (a.status == 503 || a.status == 429) && a.at("error.retryable") == true && a.headers["retry-after"] == "" {
		h.t.Errorf("%s %s: retryable without Retry-After", method, path)
	}
	if secret := strings.TrimPrefix(event.Headers["authorization"], "Bearer "); len(secret) > 8 && strings.Contains(a.text, secret) {
		h.t.Errorf("the answer holds the token")
	}
	h.checkSchemas(event, a)
}

// --- OpenAPI

func (h *testHub) compileSchemas() {
	h.t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(h.app.openAPI))
	must(h.t, err)
	h.compiling, h.schema, h.cached = &sync.Mutex{}, jsonschema.NewCompiler(), map[string]*jsonschema.Schema{}
	must(h.t, h.schema.AddResource("openapi.json", document))
}

// schemaAt compiles the schema at a place of the document.
func (h *testHub) schemaAt(keys ...string) *jsonschema.Schema {
	h.t.Helper()
	var pointer strings.Builder
	for _, key := range keys {
		escaped := strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
		pointer.WriteString("/" + url.PathEscape(escaped))
	}
	location := "openapi.json#" + pointer.String()
	h.compiling.Lock()
	defer h.compiling.Unlock()
	if h.cached[location] == nil {
		compiled, err := h.schema.Compile(location)
		if err != nil {
			h.t.Fatalf("schema %s: %v", location, err)
		}
		h.cached[location] = compiled
	}
	return h.cached[location]
}

// checkSchemas holds the answer against the schema of its status, and the
// request against its own where the hub took it.
func (h *testHub) checkSchemas(event events.APIGatewayV2HTTPRequest, a answer) {
	h.t.Helper()
	r := newRequest(event, core.NewIDs(h.clock, rand.Reader))
	e := route(h.app.endpoints, r)
	if e == nil || event.IsBase64Encoded {
		return
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(a.text))
	must(h.t, err)
	place := []string{"paths", e.Path, e.operationMethod()}
	answers := h.schemaAt(append(place, "responses", fmt.Sprint(a.status), "content", "application/json", "schema")...)
	if err := answers.Validate(value); err != nil {
		h.t.Errorf("%s %s: the answer %s does not match its schema: %v", e.Method, e.Path, a.text, err)
	}
	if a.status != http.StatusOK || !e.readsBody() {
		return
	}
	sent, err := jsonschema.UnmarshalJSON(strings.NewReader(event.Body))
	must(h.t, err)
	if err := h.schemaAt(append(place, "requestBody", "content", "application/json", "schema")...).Validate(sent); err != nil {
		h.t.Errorf("%s %s took %s, which its schema does not: %v", e.Method, e.Path, event.Body, err)
	}
}

// --- the table

// items returns everything in the table, encoded, by key.
func (h *testHub) items() map[string]string {
	h.t.Helper()
	items := map[string]string{}
	pages := dynamodb.NewScanPaginator(dynamodb.NewFromConfig(h.aws.Config()), &dynamodb.ScanInput{
		TableName: aws.String(h.table), ConsistentRead: aws.Bool(true),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(context.Background())
		must(h.t, err)
		for _, item := range page.Items {
			encoded, err := json.Marshal(item)
			must(h.t, err)
			key, err := json.Marshal([]any{item["pk"], item["sk"]})
			must(h.t, err)
			items[string(key)] = string(encoded)
		}
	}
	return items
}

// mustNotWrite fails when the table is not as it was before.
func (h *testHub) mustNotWrite(before map[string]string, what string) {
	h.t.Helper()
	if after := h.items(); !maps.Equal(before, after) {
		h.t.Errorf("%s changed the table from %v to %v", what, before, after)
	}
}

// lastLog returns the last line of the log.
func (h *testHub) lastLog() map[string]any {
	h.t.Helper()
	lines := strings.Split(strings.TrimSpace(h.log.String()), "\n")
	var line map[string]any
	must(h.t, json.Unmarshal([]byte(lines[len(lines)-1]), &line))
	return line
}

// expect fails unless the answer has the status and the code ("" for success).
func (a answer) expect(t testing.TB, status int, code core.Code) answer {
	t.Helper()
	if a.status != status || a.code() != string(code) {
		t.Fatalf("answer %d %q, want %d %q: %s", a.status, a.code(), status, code, a.text)
	}
	return a
}

// refusesField fails unless the answer is a 400 that names the field.
func (a answer) refusesField(t testing.TB, code core.Code, field string) {
	t.Helper()
	a.expect(t, http.StatusBadRequest, code)
	if got, _ := a.at("error.details.field").(string); got != field {
		t.Errorf("the answer names field %q, want %q: %s", got, field, a.text)
	}
}
