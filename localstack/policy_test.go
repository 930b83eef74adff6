package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"go.yaml.in/yaml/v3"

	"drawbridge/core"
	"drawbridge/ddb"
	"drawbridge/functions"
	"drawbridge/localstack/fakeaws"
	"drawbridge/localstack/gateway"
	"drawbridge/localstack/provision"
	"drawbridge/localstack/template"
)

// A need is one permission that a request to DynamoDB uses.
type need struct {
	action   string // "dynamodb:GetItem"
	resource string // ARN of the table or the index
	key      string // partition key of the table or index; the prefix of a listing
}

// transactionActions is what each part of a transaction is authorised as; it has no action
// of its own.
var transactionActions = map[string]string{
	"Get": "GetItem", "Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem",
}

// A permission is one action on one resource, for keys of one pattern, that a
// function's policy gives it.
type permission struct{ function, action, resource, keys string }

// functionName is the context key of the function that makes a request.
type functionName struct{}

// iam stands before the embedded AWS and refuses what the function that asks
// may not do by its own policy, as IAM would.
type iam struct {
	next     aws.HTTPClient
	template *template.Template

	mu      sync.Mutex
	used    map[permission]bool
	reading map[string]bool // functions that have asked for a payload
}

// Do implements aws.HTTPClient.
func (i *iam) Do(r *http.Request) (*http.Response, error) {
	name, _ := r.Context().Value(functionName{}).(string)
	if name == "" {
		return i.next.Do(r) // the test itself
	}
	if service, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "."); elsewhere[service] != "" {
		return i.elsewhere(name, elsewhere[service]+":"+op, r)
	}
	needs, err := i.needsOf(r)
	if err != nil {
		return nil, err
	}
	for _, n := range needs {
		if !i.allows(name, n) {
			return nil, fmt.Errorf("AccessDeniedException: %s may not %s on %s with the key %q", name, n.action, n.resource, n.key)
		}
	}
	resp, err := i.next.Do(r)
	if err != nil || !strings.HasPrefix(needs[0].resource, bucketARN) {
		return resp, err
	}
	if resp.StatusCode == http.StatusNotFound || needs[0].action == "s3:GetObject" && i.isFirstPayload(name, r.URL.Path) {
		return hidden(resp), nil
	}
	return resp, nil
}

// isFirstPayload tells whether it is the first payload that a function reads: each
// has to find out by itself that what it may not read is there.
func (i *iam) isFirstPayload(name, path string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !strings.Contains(path, "/payload/") || i.reading[name] {
		return false
	}
	i.reading[name] = true
	return true
}

// hidden makes a missing object a forbidden one, as S3 does for who may not list
// the whole bucket.
func hidden(resp *http.Response) *http.Response {
	_ = resp.Body.Close()
	const denied = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
	resp.StatusCode, resp.Status = http.StatusForbidden, "403 Forbidden"
	resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(denied)), int64(len(denied))
	resp.Header.Del("Content-Length")
	return resp
}

// elsewhere names the services that the embedded AWS does not have, by the
// target of their requests.
var elsewhere = map[string]string{"AWSEvents": "events", "TrentService": "kms"}

// elsewhere answers for those services: the bus takes every event, and the key
// seals nothing but gives back what it got.
func (i *iam) elsewhere(name, action string, r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	f, _ := i.template.Function(name)
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, p := range permissions(f) {
		if p.action != action {
			continue
		}
		i.used[p] = true
		var sent struct{ Plaintext, CiphertextBlob []byte }
		_ = json.Unmarshal(body, &sent) // an event holds neither
		answer, err := json.Marshal(map[string]any{
			"CiphertextBlob": sent.Plaintext, "Plaintext": sent.CiphertextBlob, "KeyId": "key",
			"FailedEntryCount": 0, "Entries": []map[string]string{{"EventId": "1"}},
		})
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/x-amz-json-1.1"}},
			Body: io.NopCloser(bytes.NewReader(answer)), Request: r,
		}, err
	}
	return nil, fmt.Errorf("AccessDeniedException: %s may not %s", name, action)
}

// needsOf tells what a request needs: a DynamoDB call by its target and body, an
// S3 call by its method, path (/bucket/key) and query.
func (i *iam) needsOf(r *http.Request) ([]need, error) {
	_, op, ofDynamo := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if !ofDynamo && r.Method != http.MethodPost {
		return []need{objectNeed(r)}, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if !ofDynamo {
		return deletionNeeds(r.URL.Path, body)
	}
	return i.needs(op, body), nil
}

const bucketARN = "arn:aws:s3:::"

// objectNeed is what an S3 request on one object, or a listing, needs.
func objectNeed(r *http.Request) need {
	resource := bucketARN + strings.TrimPrefix(r.URL.Path, "/")
	if query := r.URL.Query(); query.Has("list-type") {
		return need{"s3:ListBucket", strings.TrimSuffix(resource, "/"), query.Get("prefix")}
	}
	action := map[string]string{"GET": "s3:GetObject", "PUT": "s3:PutObject", "DELETE": "s3:DeleteObject"}[r.Method]
	return need{action, resource, ""}
}

// deletionNeeds are those of DeleteObjects: one for each key.
func deletionNeeds(bucket string, body []byte) ([]need, error) {
	var deletion struct{ Object []struct{ Key string } }
	if err := xml.Unmarshal(body, &deletion); err != nil {
		return nil, err
	}
	var needs []need
	for _, o := range deletion.Object {
		needs = append(needs, need{"s3:DeleteObject", bucketARN + strings.Trim(bucket, "/") + "/" + o.Key, ""})
	}
	return needs, nil
}

func (i *iam) allows(name string, n need) bool {
	f, _ := i.template.Function(name)
	i.mu.Lock()
	defer i.mu.Unlock()
	allowed := false
	for _, p := range permissions(f) {
		if p.action == n.action && like(p.resource, n.resource) && like(p.keys, n.key) {
			allowed = true
			i.used[p] = true
		}
	}
	return allowed
}

func permissions(f template.Function) []permission {
	var all []permission
	for _, s := range f.Statements {
		keys := leadingKeys(s)
		if len(keys) == 0 {
			keys = []string{"*"}
		}
		for _, action := range s.Actions {
			for _, resource := range s.Resources {
				for _, k := range keys {
					all = append(all, permission{f.Handler, action, resource, k})
				}
			}
		}
	}
	return all
}

func leadingKeys(s template.Statement) []string {
	var keys []string
	for _, byKey := range s.Condition {
		keys = append(keys, byKey["dynamodb:LeadingKeys"]...)
		keys = append(keys, byKey["s3:prefix"]...)
	}
	return keys
}

// like is IAM's StringLike for the patterns used here: a prefix with a star.
func like(pattern, key string) bool {
	prefix, star := strings.CutSuffix(pattern, "*")
	return star && strings.HasPrefix(key, prefix) || pattern == key
}

// A value is an attribute value that is a string.
type value struct{ S string }

// A dynamoCall is what the requests used here have in common.
type dynamoCall struct {
	TableName, IndexName      string
	Key, Item                 map[string]value
	ExpressionAttributeValues map[string]value
	KeyConditionExpression    string
	RequestItems              map[string]json.RawMessage
	TransactItems             []map[string]dynamoCall
}

func (i *iam) needs(op string, body []byte) []need {
	var c dynamoCall
	_ = json.Unmarshal(body, &c) // values of other types than strings are left out
	stack := i.template.Stack
	table := "arn:aws:dynamodb:" + stack.Region + ":" + stack.Account + ":table/" + i.template.Tables[0].Name
	switch op {
	case "Query":
		// Every key condition used here starts with the partition: "pk = :x ...".
		_, partition, _ := strings.Cut(c.KeyConditionExpression, " = ")
		name, _, _ := strings.Cut(partition, " ")
		resource := table
		if c.IndexName != "" {
			resource += "/index/" + c.IndexName
		}
		return []need{{"dynamodb:Query", resource, c.ExpressionAttributeValues[name].S}}
	case "BatchGetItem", "BatchWriteItem":
		return i.batch(op, table, c.RequestItems)
	case "TransactWriteItems", "TransactGetItems":
		var all []need
		for _, item := range c.TransactItems {
			for kind, part := range item {
				all = append(all, need{"dynamodb:" + transactionActions[kind], table, part.partition()})
			}
		}
		return all
	default:
		return []need{{"dynamodb:" + op, table, c.partition()}}
	}
}

func (c dynamoCall) partition() string {
	if c.Key != nil {
		return c.Key["pk"].S
	}
	return c.Item["pk"].S
}

func (i *iam) batch(op, table string, items map[string]json.RawMessage) []need {
	var all []need
	for _, raw := range items {
		var get struct{ Keys []map[string]value }
		var write []struct {
			PutRequest    struct{ Item map[string]value }
			DeleteRequest struct{ Key map[string]value }
		}
		if op == "BatchGetItem" {
			_ = json.Unmarshal(raw, &get)
		} else {
			_ = json.Unmarshal(raw, &write)
		}
		for _, k := range get.Keys {
			all = append(all, need{"dynamodb:" + op, table, k["pk"].S})
		}
		for _, w := range write {
			all = append(all, need{"dynamodb:" + op, table, w.PutRequest.Item["pk"].S + w.DeleteRequest.Key["pk"].S})
		}
	}
	return all
}

// guarded is a hub whose functions may do what the template allows them.
type guarded struct {
	t       *testing.T
	iam     *iam
	aws     *fakeaws.Server
	cfg     aws.Config
	app     *functions.App
	handler http.Handler
	token   bootstrapToken
}

func openGuarded(t *testing.T) *guarded {
	t.Helper()
	server, err := fakeaws.Open(fakeaws.Options{AccessKey: "test", SecretKey: "testtest"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	g := &guarded{t: t, aws: server, token: bootstrapToken{value: "test-token"}}
	declared := projectTemplate(t)
	cfg := server.Config()
	g.iam = &iam{next: cfg.HTTPClient, template: declared, used: map[permission]bool{}, reading: map[string]bool{}}
	cfg.HTTPClient = g.iam
	client := dynamodb.NewFromConfig(cfg)
	if _, err := provision.Table(t.Context(), client, declared.Tables[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := provision.Bucket(t.Context(), newS3(cfg), declared.Buckets[0].Name); err != nil {
		t.Fatal(err)
	}
	in := &s3.PutBucketPolicyInput{Bucket: &declared.Buckets[0].Name, Policy: aws.String(bucketPolicy(t, declared.Buckets[0].Name))}
	if _, err := newS3(cfg).PutBucketPolicy(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	store := ddb.Open(client, ddb.Table{Name: declared.Tables[0].Name})
	if err := g.token.record(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	g.cfg = cfg
	g.cold()
	return g
}

// cold starts the functions anew: nothing that one of them has read is kept for
// another.
func (g *guarded) cold() {
	g.t.Helper()
	log := slog.New(slog.NewJSONHandler(g.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	app, err := functions.Open(g.cfg, functions.Settings{
		Table: g.iam.template.Tables[0].Name, Bucket: g.iam.template.Buckets[0].Name, Log: log,
		CredentialKey: "key", EventBus: "events",
	})
	if err != nil {
		g.t.Fatal(err)
	}
	g.app = app
	if g.handler, err = gateway.New(g.iam.template, g.function, log); err != nil {
		g.t.Fatal(err)
	}
}

// function runs a handler under its own name, as under its own role.
func (g *guarded) function(name string) (gateway.Handler, bool) {
	h, ok := g.app.HTTP(name)
	return func(ctx context.Context, e events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		return h(context.WithValue(ctx, functionName{}, name), e)
	}, ok
}

func (g *guarded) do(status int, method, target, body string, headers ...string) {
	g.t.Helper()
	g.cold()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+g.token.value)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	g.handler.ServeHTTP(w, r)
	if w.Code != status {
		g.t.Errorf("%s %s %s: status %d, want %d: %s", method, target, body, w.Code, status, w.Body)
	}
}

func (g *guarded) sweep(name string) {
	g.t.Helper()
	g.cold()
	h, ok := g.app.Sweep(name)
	if !ok {
		g.t.Fatalf("there is no sweep %s", name)
	}
	if err := h(context.WithValue(g.t.Context(), functionName{}, name), nil); err != nil {
		g.t.Errorf("sweep %s: %v", name, err)
	}
}

// Every function gets a table of its own and starts cold for every request, so
// that it has to do all that it may ever have to.
func TestEveryFunctionCanDoItsWorkWithItsOwnPolicy(t *testing.T) {
	const register = `{"agent_id":"a","cli":"claude","topics":["t"],"timeout_sec":-119}`
	const learnt = `{"error_message":"boom 5","solution":"s","agent_id":"a"}`
	works := map[string]func(g *guarded){
		"register": func(g *guarded) {
			g.do(200, "POST", "/bridge/register", register)
			g.do(200, "POST", "/bridge/register", `{"agent_id":"a","cli":"claude","topics":["u"],"timeout_sec":-118}`)
			g.do(200, "POST", "/bridge/register", `{"agent_id":"b","cli":"claude"}`, "Idempotency-Key", "k")
			g.do(200, "POST", "/bridge/register", `{"agent_id":"b","cli":"claude"}`, "Idempotency-Key", "k")
			g.do(409, "POST", "/bridge/register", `{"agent_id":"b","cli":"claude","hub_instance_id":"old"}`)
			g.leaders()
		},
		"heartbeat": func(g *guarded) {
			g.do(404, "POST", "/bridge/heartbeat", `{"agent_id":"a"}`)
			g.do(200, "POST", "/bridge/register", register)
			g.do(200, "POST", "/bridge/heartbeat", `{"agent_id":"a","step":1,"step_deadline_ms":1000}`)
			g.do(200, "POST", "/bridge/heartbeat", `{"agent_id":"a","step":1,"ttl_ms":1000}`)
			g.do(404, "POST", "/bridge/heartbeat", `{"agent_id":"a","presence_generation":7}`)
			g.do(200, "POST", "/bridge/heartbeat", `{"agents":[{"agent_id":"a"},{"agent_id":"b"}]}`)
			g.revives("/bridge/heartbeat", `{"agent_id":"l"}`)
		},
		"deregister": func(g *guarded) {
			g.do(409, "POST", "/bridge/deregister", `{"agent_id":"a","presence_generation":1}`)
			g.do(200, "POST", "/bridge/register", register)
			g.do(200, "POST", "/bridge/deregister", `{"agent_id":"a","presence_generation":1,"final":true}`)
			g.leaders()
			g.do(200, "POST", "/bridge/deregister", `{"agent_id":"l"}`)
		},
		"status-get": func(g *guarded) {
			g.do(200, "GET", "/bridge/status?scope=hub", "")
			g.do(200, "GET", "/bridge/status?scope=agent&agent_id=a&include_metrics=true", "")
			g.traced()
			g.do(200, "GET", "/bridge/status?scope=trace&trace_id=x", "")
			g.held()
			g.do(200, "GET", "/bridge/status?scope=agent&agent_id=a", "")
			g.do(200, "GET", "/bridge/status", "")
		},
		"status-post": func(g *guarded) {
			g.do(200, "POST", "/bridge/status", `{"scope":"hub"}`)
			g.do(200, "POST", "/bridge/register", register)
			g.do(200, "POST", "/bridge/status", `{"agent_id":"a","status":"busy"}`)
			g.do(200, "POST", "/bridge/status", `{"agent_id":"a","status":"offline"}`)
			g.do(200, "POST", "/bridge/status", `{"agent_id":"a","scope":"agent"}`)
			g.traced()
			g.do(200, "POST", "/bridge/status", `{"scope":"trace","trace_id":"x"}`)
			g.held()
			g.do(200, "POST", "/bridge/status", `{"scope":"agent","agent_id":"a"}`)
			g.do(200, "POST", "/bridge/status", `{"agent_id":"l","status":"offline"}`)
		},
		"agents": func(g *guarded) {
			g.do(200, "POST", "/bridge/register", register)
			g.do(200, "GET", "/bridge/agents", "")
			g.do(200, "GET", "/bridge/agents?topic=t", "")
		},
		"publish": func(g *guarded) {
			g.sends("/bridge/publish", "", `"from":"a","topic":"t"`, "to")
			g.do(200, "POST", "/bridge/publish", `{"from":"a","to":"b","topic":"t","type":"response","correlation_id":"c"}`)
		},
		"handoff": func(g *guarded) { g.sends("/bridge/handoff", "task", `"from":"a","topic":"t"`, "to") },
		"result": func(g *guarded) {
			g.do(200, "POST", "/bridge/result", `{"agent_id":"a"}`)
			g.followed()
			g.repeated("/bridge/result", `{"agent_id":"a","topic":"t"}`)
			g.do(200, "POST", "/bridge/result", `{"agent_id":"a","topic":"t","correlation_id":"c","presence_generation":1}`)
			g.do(409, "POST", "/bridge/result", `{"agent_id":"a","topic":"t","presence_generation":7,"payload":"`+large+`"}`)
			g.do(200, "POST", "/bridge/result", `{"agent_id":"a","topic":"cto","correlation_id":"d"}`)
			g.routes(func(to string) { g.do(200, "POST", "/bridge/result", `{"agent_id":"a","topic":"`+to+`"}`) })
		},
		"control": func(g *guarded) {
			g.sends("/bridge/control", "reason", `"from_agent":"a","command":"x"`, "to_agent")
			g.do(200, "POST", "/bridge/control", `{"from_agent":"a","to_agent":"b","command":"x","correlation_id":"c"}`)
		},
		"ask": func(g *guarded) {
			g.sends("/bridge/ask", "question", `"from":"a","topic":"t","question":"q"`, "to")
			g.do(200, "POST", "/bridge/publish", `{"from":"b","to":"a","topic":"t","type":"response","correlation_id":"c","payload":"`+large+`"}`)
			g.do(200, "POST", "/bridge/ask", `{"from":"a","to":"b","topic":"t","question":"q","correlation_id":"c","await_response_ms":1000}`)
		},
		"context": func(g *guarded) {
			g.do(200, "POST", "/bridge/context", `{"agent_id":"a"}`)
			g.do(200, "POST", "/bridge/register", register)
			g.letter("a", `"type":"request"`, "")
			g.leased("a", `"type":"request","max_deliveries":1,"payload":"`+large+`"`)
			time.Sleep(1100 * time.Millisecond) // the visibility of 1 s
			g.do(200, "POST", "/bridge/context", `{"agent_id":"a","presence_generation":1}`)
			g.unanswered("UpdateItem", "inbox#a/*", func() {
				g.letter("a", `"type":"event"`, "")
				g.do(200, "POST", "/bridge/context", `{"agent_id":"a"}`)
			})
			g.do(200, "POST", "/bridge/assign/async", `{"supervisor_agent":"a","worker_agent":"a","task":"t"}`)
			g.held()
			g.letter("topic:role:"+roleWire, `"type":"event"`, "")
			g.do(200, "POST", "/bridge/context", `{"agent_id":"a"}`)
			g.do(200, "POST", "/bridge/roles/reserve", `{`+role+`}`)
			g.do(200, "POST", "/bridge/context", `{"agent_id":"a"}`)
		},
		"ack": func(g *guarded) {
			g.do(200, "POST", "/bridge/ack", `{"agent_id":"a","message_ids":["m"]}`)
			g.do(200, "POST", "/bridge/register", register)
			g.do(200, "POST", "/bridge/ack", `{"agent_id":"a","message_ids":["m"],"presence_generation":1}`)
			receipt := g.leased("a", `"type":"event"`)
			g.unanswered("UpdateItem", "inbox#a/*", func() { g.do(200, "POST", "/bridge/ack", `{"agent_id":"a","receipts":["`+receipt+`"]}`) })
			g.held()
			g.do(200, "POST", "/bridge/context", `{"agent_id":"a"}`)
			g.letter("topic:role:"+roleWire, `"type":"event"`, "")
			g.ackPeeked("a")
		},
		"nack": func(g *guarded) {
			g.do(200, "POST", "/bridge/nack", `{"agent_id":"a","receipts":["m.r"]}`)
			g.do(200, "POST", "/bridge/register", register)
			receipt := g.leased("a", `"type":"request","max_deliveries":1,"payload":"`+large+`"`)
			g.do(200, "POST", "/bridge/nack", `{"agent_id":"a","receipts":["`+receipt+`"],"presence_generation":1}`)
			receipt = g.leased("a", `"type":"event"`)
			g.unanswered("UpdateItem", "inbox#a/*", func() { g.do(200, "POST", "/bridge/nack", `{"agent_id":"a","receipts":["`+receipt+`"]}`) })
		},
		"dead-letters": func(g *guarded) {
			g.died()
			g.do(200, "GET", "/bridge/dead-letters", "")
		},
		"dead-letters-redrive": func(g *guarded) {
			g.died()
			g.followed()
			g.do(200, "POST", "/bridge/dead-letters/redrive", `{"filter":{}}`)
		},
		"hitl-request": func(g *guarded) {
			const question = `{"requester_agent":"a","kind":"text","prompt":"p"`
			g.do(200, "POST", "/bridge/register", register)
			g.do(200, "POST", "/bridge/hitl/request", question+`,"presence_generation":1}`, "Idempotency-Key", "k")
			g.unanswered("PutItem", "human#*", func() { g.do(200, "POST", "/bridge/hitl/request", question+`}`) })
		},
		"hitl-submit": func(g *guarded) {
			id := g.asked(`"kind":"credential"`)
			g.do(200, "POST", "/bridge/hitl/submit", `{"request_id":"`+id+`","action":"accept","content":"secret"}`)
		},
		"hitl-get": func(g *guarded) {
			g.do(404, "POST", "/bridge/hitl/get", `{"request_id":"x"}`)
			g.do(200, "POST", "/bridge/register", register)
			id := g.asked(`"kind":"credential"`)
			g.do(200, "POST", "/bridge/hitl/submit", `{"request_id":"`+id+`","action":"accept","content":"secret"}`)
			g.do(200, "POST", "/bridge/hitl/get", `{"request_id":"`+id+`","presence_generation":1}`)
			id = g.asked(`"deadline_ms":1000`)
			time.Sleep(1100 * time.Millisecond)
			g.do(200, "POST", "/bridge/hitl/get", `{"request_id":"`+id+`"}`)
		},
		"hitl-pending": func(g *guarded) {
			g.asked(`"deadline_ms":1000`)
			time.Sleep(1100 * time.Millisecond)
			g.do(200, "GET", "/bridge/hitl/pending", "")
		},
		"assign-async": func(g *guarded) {
			const job = `{"supervisor_agent":"a","worker_agent":"w","task":"`
			g.do(200, "POST", "/bridge/register", register)
			g.do(200, "POST", "/bridge/assign/async", job+large+`","presence_generation":1}`, "Idempotency-Key", "k")
			g.do(200, "POST", "/bridge/assign/async", job+large+`","presence_generation":1}`, "Idempotency-Key", "k")
		},
		"assign-result": func(g *guarded) {
			g.do(404, "POST", "/bridge/assign/result", `{"job_id":"x","status":"failed"}`)
			g.do(200, "POST", "/bridge/register", register)
			id := g.overdueJob(`"max_retries":1`)
			g.do(200, "POST", "/bridge/assign/result", `{"job_id":"`+id+`","status":"failed","attempt":2,"worker_agent":"a","presence_generation":1}`)
		},
		"assign-retry": func(g *guarded) {
			g.do(404, "POST", "/bridge/assign/retry", `{"job_id":"x"}`)
			g.do(200, "POST", "/bridge/register", register)
			id := g.overdueJob(`"max_retries":1,"retry_on_timeout":false`)
			g.do(200, "POST", "/bridge/assign/retry", `{"job_id":"`+id+`","supervisor_agent":"a","presence_generation":1}`)
		},
		"assign-cancel": func(g *guarded) {
			g.do(404, "POST", "/bridge/assign/cancel", `{"job_id":"x"}`)
			g.do(200, "POST", "/bridge/register", register)
			id := g.overdueJob(`"max_retries":1`)
			g.do(200, "POST", "/bridge/assign/cancel", `{"job_id":"`+id+`","supervisor_agent":"a","presence_generation":1}`)
		},
		"assign-status": func(g *guarded) {
			g.do(404, "POST", "/bridge/assign/status", `{"job_id":"x"}`)
			id := g.overdueJob(`"max_retries":1`)
			g.do(200, "POST", "/bridge/assign/status", `{"job_id":"`+id+`"}`)
			for _, by := range []string{"", `"supervisor_agent":"a"`, `"worker_agent":"a"`, `"trace_id":"x"`, `"correlation_id":"x"`} {
				g.do(200, "POST", "/bridge/assign/status", `{`+by+`}`)
			}
		},
		"events": func(g *guarded) {
			g.do(200, "GET", "/bridge/events?agent_id=a", "")
			g.do(200, "GET", "/bridge/events?job_id="+g.overdueJob(`"max_retries":1`), "")
		},
		"takeover-role": func(g *guarded) {
			g.do(409, "POST", "/bridge/takeover-role", `{"agent_id":"a"}`)
			g.leaders()
			g.do(200, "POST", "/bridge/takeover-role", `{"agent_id":"b"}`)
		},
		"roles-candidates": func(g *guarded) {
			g.do(200, "POST", "/bridge/roles/candidates", `{`+role+`,"agent_id":"b"}`)
			g.candidates("a")
			g.do(200, "POST", "/bridge/roles/candidates", `{`+role+`,"agent_id":"a","presence_generation":1}`)
			g.do(200, "POST", "/bridge/roles/ensure", `{`+lead+`,"trigger":"manual","cause_id":"c"}`)
			g.do(200, "POST", "/bridge/roles/candidates", `{`+lead+`,"agent_id":"a"}`)
		},
		"roles-ensure": func(g *guarded) {
			g.do(200, "POST", "/bridge/roles/ensure", `{`+lead+`,"trigger":"manual","cause_id":"c"}`)
			g.again()
			g.candidates("a")
			g.do(200, "POST", "/bridge/roles/ensure", `{`+role+`,"trigger":"manual","cause_id":"c"}`)
			g.standup()
			g.do(200, "POST", "/bridge/roles/ensure", `{`+lead+`,"trigger":"manual","cause_id":"c"}`)
			g.again()
			g.lostOnce("PutItem", "fanout#*", func() {
				g.do(200, "POST", "/bridge/roles/ensure", `{`+lead+`,"trigger":"manual","cause_id":"c"}`)
			})
		},
		"roles-ack": func(g *guarded) {
			g.do(409, "POST", "/bridge/roles/ack", `{`+role+`,"agent_id":"a","activation_id":"x","epoch":1,"activation_seq":1,"charter_ack":{`+role+`,"epoch":1}}`)
			g.candidates("a")
			g.do(200, "POST", "/bridge/roles/ensure", `{`+role+`,"trigger":"manual","cause_id":"c"}`)
			g.acked("a")
		},
		"roles-release": func(g *guarded) {
			g.do(404, "POST", "/bridge/roles/release", `{`+role+`,"agent_id":"a","epoch":1}`)
			g.candidates("a")
			g.do(200, "POST", "/bridge/roles/ensure", `{`+role+`,"trigger":"manual","cause_id":"c"}`)
			g.acked("a")
			g.candidates("b")
			g.do(200, "POST", "/bridge/roles/release", `{`+role+`,"agent_id":"a","epoch":1,"successor":"b","presence_generation":1}`)
		},
		"roles-cas": func(g *guarded) {
			g.do(200, "POST", "/bridge/roles/reserve", `{`+role+`}`)
			g.do(200, "POST", "/bridge/roles/cas", `{`+role+`,"expected":{"version":0,"epoch":0,"activation_seq":0,"activation_id":null},"patch":{}}`)
			g.do(409, "POST", "/bridge/roles/cas", `{`+role+`}`)
		},
		"roles-reserve": func(g *guarded) {
			g.do(200, "POST", "/bridge/roles/reserve", `{`+role+`}`)
			g.do(200, "POST", "/bridge/roles/reserve", `{`+role+`,"holder_agent_id":"a","expected_version":0}`)
		},
		"roles-state": func(g *guarded) {
			g.do(409, "POST", "/bridge/roles/state", `{`+role+`,"agent_id":"a","epoch":1,"state":1,"expected_state_version":0}`)
			g.candidates("a")
			g.do(200, "POST", "/bridge/roles/ensure", `{`+role+`,"trigger":"manual","cause_id":"c"}`)
			g.acked("a")
			g.do(200, "POST", "/bridge/roles/state", `{`+role+`,"agent_id":"a","epoch":1,"state":1,"expected_state_version":0}`)
		},
		"roles-fence-check": func(g *guarded) {
			g.candidates("a")
			g.do(200, "POST", "/bridge/roles/fence-check", `{`+role+`,"agent_id":"a","epoch":0}`)
		},
		"roles-status": func(g *guarded) {
			g.candidates("a")
			g.do(200, "GET", "/bridge/roles/status", "")
			g.do(200, "GET", "/bridge/roles/status?role_key_wire="+roleWire, "")
		},
		"roles-history": func(g *guarded) {
			g.candidates("a")
			g.do(200, "GET", "/bridge/roles/history?role_key_wire="+roleWire, "")
		},
		"roles-settings": func(g *guarded) {
			g.candidates("a")
			g.do(200, "POST", "/bridge/roles/ensure", `{`+role+`,"trigger":"manual","cause_id":"c"}`)
			g.do(200, "POST", "/bridge/roles/settings", `{"master_enabled":false}`)
		},
		"roles-recover": func(g *guarded) {
			g.candidates("a")
			g.do(200, "POST", "/bridge/roles/ensure", `{`+role+`,"trigger":"manual","cause_id":"c"}`)
			g.do(200, "POST", "/bridge/roles/recover", `{}`)
		},
		"hub-rotate": func(g *guarded) {
			g.candidates("a")
			g.do(200, "POST", "/bridge/roles/ensure", `{`+role+`,"trigger":"manual","cause_id":"c"}`)
			g.do(200, "POST", "/bridge/hub/rotate", `{"reason":"test"}`)
			g.do(200, "POST", "/bridge/hub/rotate", `{}`)
		},
		"queue-enqueue": func(g *guarded) {
			g.do(200, "POST", "/bridge/queue/enqueue", observed("x", 1))
			g.do(200, "POST", "/bridge/queue/enqueue", observed("x", 2)) // retires the first
		},
		"queue-claim": func(g *guarded) {
			g.do(200, "POST", "/bridge/queue/enqueue", observed("x", 1))
			g.abandoned("x", 2)
			g.do(200, "POST", "/bridge/queue/claim", `{"owner":"w"}`)
		},
		"queue-renew":    func(g *guarded) { g.holds("renew", "") },
		"queue-progress": func(g *guarded) { g.holds("progress", `,"bytes":1,"of":2`) },
		"queue-complete": func(g *guarded) {
			const result = `,"result":{"archive_id":"a","ciphertext_sha256":"c","bytes":1}`
			g.holds("complete", result)
			g.do(200, "POST", "/bridge/queue/enqueue", observed("y", 1))
			lease := g.leasedJob()
			g.do(200, "POST", "/bridge/queue/enqueue", observed("y", 2))
			g.do(200, "POST", "/bridge/queue/enqueue", observed("y", 3))  // retires the second
			g.putObject("jobs/"+observation("y", 4).JobID()+".json", "{") // damaged: to be reported
			g.markSource(observation("y", 4))
			g.do(200, "POST", "/bridge/queue/complete", `{"id":"`+lease.ID+`","lease_id":"`+lease.Lease.ID+`"`+result+
				`,"source_snapshot":{"bytes":9,"modified_at":"2026-01-01T00:00:09Z"}}`)
		},
		"queue-release": func(g *guarded) { g.holds("release", "") },
		"queue-fail":    func(g *guarded) { g.holds("fail", `,"error":{"code":"c","message":"m"}`) },
		"queue-retry": func(g *guarded) {
			g.do(404, "POST", "/bridge/queue/retry", `{"id":"`+observation("x", 1).JobID()+`"}`)
			g.do(200, "POST", "/bridge/queue/enqueue", observed("x", 1))
			g.do(200, "POST", "/bridge/queue/retry", `{"id":"`+observation("x", 1).JobID()+`"}`)
		},
		"queue-remove": func(g *guarded) {
			g.do(404, "POST", "/bridge/queue/remove", `{"id":"`+observation("x", 1).JobID()+`"}`)
			g.do(200, "POST", "/bridge/queue/enqueue", observed("x", 1))
			g.do(200, "POST", "/bridge/queue/remove", `{"id":"`+observation("x", 1).JobID()+`"}`)
		},
		"queue-jobs": func(g *guarded) {
			g.do(404, "GET", "/bridge/queue/jobs?id="+observation("x", 1).JobID(), "")
			g.do(200, "GET", "/bridge/queue/jobs", "")
		},
		"queue-stats": func(g *guarded) {
			g.abandoned("x", 1)
			g.abandoned("x", 1)
			g.do(200, "GET", "/bridge/queue/stats", "") // two markers of one job, which is not there
		},
		"sweep-archive-queue": func(g *guarded) {
			g.do(200, "POST", "/bridge/queue/enqueue", observed("x", 1))
			g.abandoned("x", 2)
			g.abandoned("x", 2)   // two, so that the sweep looks
			g.settledLongAgo("y") // not named by its job: cleared
			g.settledLongAgo("z")
			g.putObject("jobs/"+observation("z", 1).JobID()+".json", "{") // damaged: reported
			g.sweep("sweep-archive-queue")
		},
		"reflexion-lookup": func(g *guarded) {
			g.do(200, "POST", "/bridge/reflexion/learn", learnt)
			g.do(200, "POST", "/bridge/reflexion/lookup", `{"error_message":"boom 5"}`)
			g.do(200, "POST", "/bridge/reflexion/lookup", `{"error_pattern":"oom"}`)
		},
		"reflexion-learn": func(g *guarded) {
			g.do(200, "POST", "/bridge/reflexion/learn", learnt)
			g.do(200, "POST", "/bridge/register", register)
			g.do(200, "POST", "/bridge/reflexion/learn", `{"error_message":"boom 5","solution":"s","agent_id":"a","presence_generation":1}`)
			g.do(409, "POST", "/bridge/reflexion/learn", `{"error_message":"boom 5","solution":"s","agent_id":"a","presence_generation":7}`)
		},
		"reflexion-hit": func(g *guarded) {
			g.do(404, "POST", "/bridge/reflexion/hit", `{"id":"x"}`)
			id := core.ReflexionEntry{Type: core.ReflexionLearnt, Born: strings.Repeat("0", 32),
				Key: core.ReflexionKey{Pattern: strings.Repeat("0", 32), Variant: strings.Repeat("0", 32)}}.ID()
			g.do(404, "POST", "/bridge/reflexion/hit", `{"id":"`+id+`"}`)
		},
		"reflexion": func(g *guarded) {
			g.do(200, "POST", "/bridge/reflexion/learn", learnt)
			g.do(200, "GET", "/bridge/reflexion", "")
		},
		"pipeline-state":   func(g *guarded) { g.do(404, "POST", "/bridge/pipeline/state", `{"team_name":"t"}`) },
		"pipeline-advance": func(g *guarded) { g.do(200, "POST", "/bridge/pipeline/advance", `{"team_name":"t","phase":"prd"}`) },
		"pipeline-init":    func(g *guarded) { g.do(200, "POST", "/bridge/pipeline/init", `{"team_name":"t"}`) },
		"pipeline-list": func(g *guarded) {
			g.do(200, "POST", "/bridge/pipeline/init", `{"team_name":"t"}`)
			g.do(200, "POST", "/bridge/pipeline/list", `{}`)
		},
		"sweep-reflexion": func(g *guarded) {
			// An entry whose time has come long ago, and one that is forgotten.
			for variant, hits := range map[string]string{"kept": "1", "gone": "9"} {
				texts := map[string]string{"pk": "reflexion#p", "sk": variant, "born": "b", "reflexion_type": "reflexion", "pattern": "p",
					"due_pk": "reflexion#0", "due_sk": "000000000000001#" + variant}
				if err := g.put(texts, map[string]string{"hits": hits, "updated_ms": "1", "successes": "0"}); err != nil {
					g.t.Fatal(err)
				}
			}
			g.sweep("sweep-reflexion")
		},
		"health": func(g *guarded) { g.do(200, "GET", "/health", "") },
		"root": func(g *guarded) {
			g.do(200, "GET", "/status", "")
			g.leaders()
			g.do(200, "GET", "/status", "")
		},
		"openapi": func(g *guarded) {
			g.do(200, "GET", "/openapi.json", "")
		},
		"send-input": func(g *guarded) { g.do(503, "POST", "/bridge/send-input", `{"session_id":"s","text":"x"}`) },
		"default":    func(g *guarded) { g.do(404, "POST", "/bridge/nothing", `{}`) },
		"sweep-agents": func(g *guarded) {
			g.do(200, "POST", "/bridge/register", register)
			g.do(200, "POST", "/bridge/register", `{"agent_id":"early","cli":"claude","timeout_sec":-119}`)
			g.do(200, "POST", "/bridge/heartbeat", `{"agent_id":"early"}`)
			time.Sleep(1100 * time.Millisecond) // the lease of 1 s
			g.sweep("sweep-agents")
			g.sweep("sweep-agents")
		},
		"sweep-roles": func(g *guarded) {
			g.do(200, "POST", "/bridge/roles/reserve", `{`+lead+`,"state":"unreachable","next_probe_ms":1}`)
			g.sweep("sweep-roles")
			g.candidates("a")
			g.do(200, "POST", "/bridge/roles/ensure", `{`+role+`,"trigger":"manual","cause_id":"c"}`)
			g.do(200, "POST", "/bridge/roles/recover", `{}`)
			g.leaders()
			g.lapse("l")
			if err := g.put(map[string]string{"pk": "role#cto", "sk": "candidate#a"}, map[string]string{"written_ms": "1"}); err != nil {
				g.t.Fatal(err)
			}
			g.standup()
			g.do(200, "POST", "/bridge/roles/reserve", `{`+lead+`,"state":"unreachable","next_probe_ms":1}`)
			g.sweep("sweep-roles")
			g.do(200, "POST", "/bridge/roles/reserve", `{`+lead+`,"state":"unreachable","next_probe_ms":1}`)
			g.lostOnce("PutItem", "fanout#*", func() { g.sweep("sweep-roles") })
		},
		"sweep-messages": func(g *guarded) {
			g.followed()
			g.letter("a", `"type":"request","ttl_ms":1,"payload":"`+large+`"`, "")
			g.letter("topic:nobody", `"ttl_ms":1`, "")
			time.Sleep(5 * time.Millisecond)
			g.sweep("sweep-messages")
			g.do(200, "POST", "/bridge/register", `{"agent_id":"`+strings.Repeat("f", 300)+`","cli":"claude","topics":["nobody"]}`)
			cut := g.aws.Faults().Add(fakeaws.Rule{Op: "PutItem", Key: "inbox#*", Action: fakeaws.Error(400, "ValidationException")})
			g.do(200, "POST", "/bridge/dead-letters/redrive", `{"filter":{"to":"topic:nobody"},"ttl_ms":60000}`)
			cut.Remove()
			time.Sleep(5 * time.Millisecond)
			g.sweep("sweep-messages") // goes on with the fan-out
		},
		"sweep-human-requests": func(g *guarded) {
			g.asked(`"deadline_ms":1000`)
			time.Sleep(1100 * time.Millisecond)
			g.sweep("sweep-human-requests")
		},
		"sweep-assignments": func(g *guarded) {
			g.overdueJob(`"max_retries":1`)
			g.sweep("sweep-assignments")
		},
		"sweep-events": func(g *guarded) {
			g.overdueJob(``)
			g.sweep("sweep-events")
		},
	}
	var mu sync.Mutex
	used := map[permission]bool{}
	t.Run("works", func(t *testing.T) {
		for name, work := range works {
			t.Run(name, func(t *testing.T) {
				t.Parallel() // they wait for leases
				g := openGuarded(t)
				work(g)
				mu.Lock()
				defer mu.Unlock()
				maps.Copy(used, g.iam.used)
			})
		}
	})
	for _, f := range projectTemplate(t).Functions {
		if works[f.Handler] == nil {
			t.Errorf("nothing drives %s", f.LogicalID)
		}
		for _, p := range permissions(f) {
			if !used[p] && !ofLambda(p) {
				t.Errorf("%s may %s on %s for keys %s, and never does", f.LogicalID, p.action, p.resource, p.keys)
			}
		}
	}
}

// The roles the tests are about: a cto, and a lead that has no candidate.
const (
	roleWire = "rk2.eyJwcm9qZWN0X2lkIjoicHJqX0FiQ2RFZkdoSWpLbE1uT3BRclN0VXYiLCJyb2xlX2tpbmQiOiJjdG8ifQ"
	role     = `"role_key_wire":"` + roleWire + `"`
	lead     = `"role_key":{"project_id":"prj_AbCdEfGhIjKlMnOpQrStUv","role_kind":"lead","scope_id":"scp_ZyXwVuTsRqPoNmLkJiHgFe"}`
)

// answer sends a request as the test itself and returns what its data holds.
func (g *guarded) answer(method, target, body string) map[string]any {
	g.t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+g.token.value)
	w := httptest.NewRecorder()
	g.handler.ServeHTTP(w, r)
	var answer struct{ Data map[string]any }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 200 {
		g.t.Fatalf("%s: %d %v %s", target, w.Code, err, w.Body)
	}
	return answer.Data
}

// candidates registers agents that may hold both roles, as candidates of the cto.
func (g *guarded) candidates(ids ...string) {
	g.t.Helper()
	for _, id := range ids {
		g.do(200, "POST", "/bridge/register", `{"agent_id":"`+id+`","cli":"claude","capabilities":["role:cto:candidate","role:lead:candidate"]}`)
		g.do(200, "POST", "/bridge/roles/candidates", `{`+role+`,"agent_id":"`+id+`"}`)
	}
}

// acked has the reserved holder of the cto acknowledge.
func (g *guarded) acked(id string) {
	g.t.Helper()
	items := g.answer("GET", "/bridge/roles/status?role_key_wire="+roleWire, "")["items"].([]any)
	activation := items[0].(map[string]any)["activation_id"].(string)
	g.do(200, "POST", "/bridge/roles/ack", `{`+role+`,"agent_id":"`+id+`","activation_id":"`+activation+`","epoch":1,"activation_seq":1,"charter_ack":{`+role+`,"epoch":1}}`)
}

// held has the agent a hold the cto, and l lead the legacy one.
func (g *guarded) held() {
	g.t.Helper()
	g.leaders()
	g.do(200, "POST", "/bridge/register", `{"agent_id":"a","cli":"claude","capabilities":["role:cto:candidate","cto"]}`)
	g.do(200, "POST", "/bridge/roles/candidates", `{`+role+`,"agent_id":"a"}`)
	g.do(200, "POST", "/bridge/roles/ensure", `{`+role+`,"trigger":"manual","cause_id":"c"}`)
	g.acked("a")
}

// leaders registers two candidates of the legacy role; l leads.
func (g *guarded) leaders() {
	g.t.Helper()
	g.do(200, "POST", "/bridge/register", `{"agent_id":"l","cli":"claude","capabilities":["cto"]}`)
	g.do(200, "POST", "/bridge/register", `{"agent_id":"b","cli":"claude","capabilities":["cto"]}`)
}

// revives has a request make the only candidate of the legacy role its leader.
func (g *guarded) revives(endpoint, body string) {
	g.t.Helper()
	g.do(200, "POST", "/bridge/register", `{"agent_id":"l","cli":"claude","capabilities":["cto"]}`)
	g.do(200, "POST", "/bridge/deregister", `{"agent_id":"l"}`)
	g.do(200, "POST", endpoint, body)
}

// routes sends to the roles: to the legacy one when its leader has just gone.
func (g *guarded) routes(send func(to string)) {
	g.t.Helper()
	send("cto")
	g.held()
	g.lapse("l")
	send("cto")
	send("role:" + roleWire)
}

// lapse ends an agent's lease.
func (g *guarded) lapse(id string) {
	g.t.Helper()
	lapsed := dynamodb.UpdateItemInput{
		TableName: aws.String(g.iam.template.Tables[0].Name),
		Key: map[string]types.AttributeValue{
			"pk": &types.AttributeValueMemberS{Value: "agent#" + id}, "sk": &types.AttributeValueMemberS{Value: "agent"},
		},
		UpdateExpression:          aws.String("SET lease_ms = :past"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":past": &types.AttributeValueMemberN{Value: "1"}},
	}
	if _, err := dynamodb.NewFromConfig(g.cfg).UpdateItem(g.t.Context(), &lapsed); err != nil {
		g.t.Fatal(err)
	}
}

// standup has agents follow the call for sessions, more than a record holds, and
// leaves one entry that is out of date.
func (g *guarded) standup() {
	g.t.Helper()
	for i := range 10 {
		g.do(200, "POST", "/bridge/register", fmt.Sprintf(`{"agent_id":"%s%d","cli":"claude","topics":["role.standup"]}`, strings.Repeat("s", 40), i))
	}
	if err := g.put(map[string]string{"pk": "topic#role.standup#0", "sk": "stranger"}, map[string]string{"written_ms": "1"}); err != nil {
		g.t.Fatal(err)
	}
}

// again gives the lead a state from which it is ensured anew.
func (g *guarded) again() {
	g.t.Helper()
	g.do(200, "POST", "/bridge/roles/reserve", `{`+lead+`,"state":"electable"}`)
}

// ackPeeked acknowledges by id what the agent has looked at.
func (g *guarded) ackPeeked(id string) {
	g.t.Helper()
	messages := g.answer("POST", "/bridge/context", `{"agent_id":"`+id+`","auto_ack":false}`)["messages"].([]any)
	for _, m := range messages {
		g.do(200, "POST", "/bridge/ack", `{"agent_id":"`+id+`","message_ids":["`+m.(map[string]any)["id"].(string)+`"]}`)
	}
}

// lostOnce loses the answer of one write, which its caller then sends again.
func (g *guarded) lostOnce(op, key string, act func()) {
	g.t.Helper()
	lost := g.aws.Faults().Add(fakeaws.Rule{Op: op, Key: key, Count: 1, Action: fakeaws.DropResponse()})
	defer lost.Remove()
	act()
}

// large is a text that no item holds.
var large = strings.Repeat("x", 9000)

// letter publishes a message with these fields more.
func (g *guarded) letter(to, fields, key string) {
	g.t.Helper()
	var headers []string
	if key != "" {
		headers = []string{"Idempotency-Key", key}
	}
	g.do(200, "POST", "/bridge/publish", `{"from":"a","to":"`+to+`","topic":"t",`+fields+`}`, headers...)
}

// followed registers an agent, more followers of the topic t than a record
// holds, and one entry that is out of date.
func (g *guarded) followed() {
	g.t.Helper()
	g.do(200, "POST", "/bridge/register", `{"agent_id":"a","cli":"claude"}`)
	for i := range 10 {
		g.do(200, "POST", "/bridge/register", fmt.Sprintf(`{"agent_id":"%s%d","cli":"claude","topics":["t"]}`, strings.Repeat("f", 40), i))
	}
	if err := g.put(map[string]string{"pk": "topic#t#0", "sk": "stranger"}, map[string]string{"written_ms": "1"}); err != nil {
		g.t.Fatal(err)
	}
}

func (g *guarded) put(texts, numbers map[string]string) error {
	item := map[string]types.AttributeValue{}
	for name, v := range texts {
		item[name] = &types.AttributeValueMemberS{Value: v}
	}
	for name, v := range numbers {
		item[name] = &types.AttributeValueMemberN{Value: v}
	}
	_, err := dynamodb.NewFromConfig(g.cfg).PutItem(g.t.Context(), &dynamodb.PutItemInput{
		TableName: aws.String(g.iam.template.Tables[0].Name), Item: item,
	})
	return err
}

// repeated sends a request whose fan-out is cut short, and again with the same
// key, which finishes it.
func (g *guarded) repeated(endpoint, body string) {
	g.t.Helper()
	cut := g.aws.Faults().Add(fakeaws.Rule{Op: "PutItem", Key: "inbox#*", Action: fakeaws.Error(400, "ValidationException")})
	g.do(200, "POST", endpoint, body, "Idempotency-Key", "r")
	cut.Remove()
	g.do(200, "POST", endpoint, body, "Idempotency-Key", "r")
}

// sends goes through the ways of an endpoint that sends messages.
func (g *guarded) sends(endpoint, text, fields, to string) {
	g.t.Helper()
	body := func(recipient, more string) string {
		return `{` + fields + `,"` + to + `":"` + recipient + `"` + more + `}`
	}
	g.do(200, "POST", endpoint, body("b", ""))
	g.followed()
	g.repeated(endpoint, body("topic:t", ""))
	g.do(200, "POST", endpoint, body("topic:t", ""))
	g.routes(func(to string) { g.do(200, "POST", endpoint, body("topic:"+to, "")) })
	if text == "" {
		text = "payload"
	}
	refused := strings.Replace(body("b", `,"presence_generation":7`), `"`+text+`":"q",`, "", 1)
	refused = strings.TrimSuffix(refused, "}") + `,"` + text + `":"` + large + `"}`
	g.do(409, "POST", endpoint, strings.Replace(refused, `"question":"q",`, "", 1))
}

// leased publishes a message, drains it with a visibility of a second and
// returns its receipt.
func (g *guarded) leased(to, fields string) string {
	g.t.Helper()
	g.letter(to, fields, "")
	r := httptest.NewRequest("POST", "/bridge/context", strings.NewReader(`{"agent_id":"`+to+`","auto_ack":false,"visibility_ms":1000}`))
	r.Header.Set("Authorization", "Bearer "+g.token.value)
	w := httptest.NewRecorder()
	g.handler.ServeHTTP(w, r)
	var answer struct {
		Data struct{ Messages []struct{ Receipt string } }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || len(answer.Data.Messages) == 0 {
		g.t.Fatalf("no lease: %v %s", err, w.Body)
	}
	return answer.Data.Messages[len(answer.Data.Messages)-1].Receipt
}

// unanswered loses the answers of a write so often that its caller has to read
// what became of it.
func (g *guarded) unanswered(op, key string, act func()) {
	g.t.Helper()
	lost := g.aws.Faults().Add(fakeaws.Rule{Op: op, Key: key, Action: fakeaws.DropResponse()})
	defer lost.Remove()
	act()
}

// traced publishes messages of the trace x: one to an agent, one to nobody.
func (g *guarded) traced() {
	g.t.Helper()
	g.letter("a", `"trace_id":"x","payload":"`+large+`"`, "")
	g.letter("topic:nobody", `"trace_id":"x"`, "")
}

// asked asks a person and returns the request's id.
func (g *guarded) asked(fields string) string {
	g.t.Helper()
	body := `{"requester_agent":"a","prompt":"p",` + fields
	if !strings.Contains(fields, "kind") {
		body += `,"kind":"text"`
	}
	return g.answer("POST", "/bridge/hitl/request", body+`}`)["request_id"].(string)
}

// overdueJob gives a large job of the agent a to itself and waits until its
// deadline has passed.
func (g *guarded) overdueJob(fields string) string {
	g.t.Helper()
	body := `{"supervisor_agent":"a","worker_agent":"a","timeout_ms":1000,"task":"` + large + `"`
	if fields != "" {
		body += "," + fields
	}
	id := g.answer("POST", "/bridge/assign/async", body+`}`)["job_id"].(string)
	time.Sleep(1100 * time.Millisecond)
	return id
}

// died makes dead letters: one of an agent, one of a topic that nobody followed.
func (g *guarded) died() {
	g.t.Helper()
	g.letter("a", `"ttl_ms":1,"payload":"`+large+`"`, "")
	g.letter("topic:t", `"ttl_ms":1`, "")
	time.Sleep(5 * time.Millisecond)
	g.sweep("sweep-messages")
}

// observation is state n of a file that an agent wants archived.
func observation(file string, n int) core.ArchiveRequest {
	return core.ArchiveRequest{ArchiveObservation: core.ArchiveObservation{Agent: "claude", SourcePath: "/" + file,
		SourceBytes: int64(n), SourceModifiedAt: core.Instant(1_767_225_600_000 + 1000*int64(n))}, Event: "stop"}
}

// observed is the body that enqueues it.
func observed(file string, n int) string {
	o := observation(file, n)
	return fmt.Sprintf(`{"agent":%q,"source_path":%q,"source_bytes":%d,"source_modified_at_ms":%d,"event":"stop"}`,
		o.Agent, o.SourcePath, o.SourceBytes, o.SourceModifiedAt)
}

// putObject writes an object behind the functions' backs, as the bucket's policy
// wants it.
func (g *guarded) putObject(key, content string) {
	g.t.Helper()
	client, bucket := newS3(g.cfg), aws.String(g.iam.template.Buckets[0].Name)
	in := &s3.PutObjectInput{Bucket: bucket, Key: &key, Body: strings.NewReader(content), IfNoneMatch: aws.String("*")}
	if there, err := client.HeadObject(g.t.Context(), &s3.HeadObjectInput{Bucket: bucket, Key: &key}); err == nil {
		in.IfMatch, in.IfNoneMatch = there.ETag, nil
	}
	if _, err := client.PutObject(g.t.Context(), in); err != nil {
		g.t.Fatal(err)
	}
}

const archiveKeyTime = "20060102T150405.000Z"

// oldNonce is the id of a write of long ago.
func oldNonce() string {
	return strings.ReplaceAll(core.NewIDs(pastClock{}, rand.Reader).New(), "-", "")
}

type pastClock struct{}

func (pastClock) Now() time.Time { return time.Now().Add(-time.Hour) }

// abandoned leaves what an enqueue leaves that died after it announced its job.
func (g *guarded) abandoned(file string, n int) {
	g.t.Helper()
	at := pastClock{}.Now()
	job := core.NewArchiveJob(observation(file, n), core.InstantOf(at))
	moment := at.UTC().Format(archiveKeyTime)
	g.putObject("open/due_"+moment+"_"+moment+"_"+job.ID+"_ready_"+oldNonce(), string(core.EncodeArchiveJob(job)))
}

// markSource lists a job under its source.
func (g *guarded) markSource(r core.ArchiveRequest) {
	g.t.Helper()
	g.putObject(fmt.Sprintf("source/%s/%s_%016d_%s_%s", r.SourceID(), r.SourceModifiedAt.Time().Format(archiveKeyTime),
		r.SourceBytes, r.JobID(), oldNonce()), "")
}

// settledLongAgo leaves a done marker that its job does not name.
func (g *guarded) settledLongAgo(file string) {
	g.t.Helper()
	g.do(200, "POST", "/bridge/queue/enqueue", observed(file, 1))
	moment := pastClock{}.Now().UTC().Format(archiveKeyTime)
	g.putObject("done/"+moment+"_"+moment+"_"+observation(file, 1).JobID()+"_completed_"+oldNonce(), "")
}

// leasedJob claims a job.
func (g *guarded) leasedJob() core.ArchiveJob {
	g.t.Helper()
	r := httptest.NewRequest("POST", "/bridge/queue/claim", strings.NewReader(`{"owner":"w"}`))
	r.Header.Set("Authorization", "Bearer "+g.token.value)
	w := httptest.NewRecorder()
	g.handler.ServeHTTP(w, r)
	var answer struct {
		Data struct {
			Jobs []struct {
				ID    string
				Lease core.ArchiveLease
			}
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || len(answer.Data.Jobs) != 1 {
		g.t.Fatalf("no lease: %v %s", err, w.Body)
	}
	return core.ArchiveJob{ID: answer.Data.Jobs[0].ID, Lease: &answer.Data.Jobs[0].Lease}
}

// holds enqueues and claims a job and has the endpoint do its work on it, after
// it was refused for a job that is not there.
func (g *guarded) holds(endpoint, fields string) {
	g.t.Helper()
	g.do(404, "POST", "/bridge/queue/"+endpoint, `{"id":"`+observation("none", 1).JobID()+`","lease_id":"l"`+fields+`}`)
	g.do(200, "POST", "/bridge/queue/enqueue", observed("x", 1))
	job := g.leasedJob()
	g.do(200, "POST", "/bridge/queue/"+endpoint, `{"id":"`+job.ID+`","lease_id":"`+job.Lease.ID+`"`+fields+`}`)
}

func TestThePatternsOfThePoliciesAreUnderstood(t *testing.T) {
	for _, f := range projectTemplate(t).Functions {
		for _, s := range f.Statements {
			for operator := range s.Condition {
				if !slices.Contains([]string{"ForAllValues:StringLike", "ForAllValues:StringEquals", "StringLike"}, operator) {
					t.Errorf("%s: the operator %s", f.LogicalID, operator)
				}
			}
			for _, p := range leadingKeys(s) {
				if strings.Count(p, "*") > 1 || p == "*" {
					t.Errorf("%s: the pattern %q", f.LogicalID, p)
				}
			}
		}
	}
}

// ofLambda tells what Lambda itself does under a function's role: it writes the
// log, and passes on the event of a sweep that failed.
func ofLambda(p permission) bool {
	return p.action == "logs:CreateLogStream" || p.action == "logs:PutLogEvents" || p.action == "sqs:SendMessage"
}

// bucketPolicy is the template's policy of the bucket, as JSON. The embedded AWS
// enforces what it denies.
func bucketPolicy(t *testing.T, bucket string) string {
	t.Helper()
	src, err := os.ReadFile("../template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var declared struct {
		Resources struct {
			QueueBucketPolicy struct {
				Properties struct {
					PolicyDocument yaml.Node `yaml:"PolicyDocument"`
				} `yaml:"Properties"`
			} `yaml:"QueueBucketPolicy"`
		} `yaml:"Resources"`
	}
	if err := yaml.Unmarshal(src, &declared); err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	node := &declared.Resources.QueueBucketPolicy.Properties.PolicyDocument
	resolve(node, bucketARN+bucket)
	if err := node.Decode(&document); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// resolve puts the bucket's ARN where the template refers to it.
func resolve(n *yaml.Node, arn string) {
	if n.Tag == "!Sub" || n.Tag == "!GetAtt" {
		n.Value = strings.NewReplacer("${QueueBucket.Arn}", arn, "QueueBucket.Arn", arn).Replace(n.Value)
		n.Tag = "!!str"
	}
	for _, c := range n.Content {
		resolve(c, arn)
	}
}

// That every write of the queue carries a condition is what the other test shows:
// its bucket has this policy.
func TestTheBucketRefusesWritesOfJobsWithoutACondition(t *testing.T) {
	g := openGuarded(t)
	client, bucket := newS3(g.cfg), aws.String(g.iam.template.Buckets[0].Name)
	for _, key := range []string{"jobs/x.json", "state/x"} {
		_, err := client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: bucket, Key: &key, Body: strings.NewReader("x")})
		if !denied(err) {
			t.Errorf("an unconditional write of %s: %v", key, err)
		}
		g.putObject(key, "x")
	}
	job := aws.String("jobs/x.json")
	if _, err := client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: bucket, Key: job}); !denied(err) {
		t.Errorf("an unconditional delete of a job: %v", err)
	}
	if _, err := client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: bucket, Key: job, IfMatch: aws.String("*")}); err != nil {
		t.Errorf("a conditional delete of a job: %v", err)
	}
}

func denied(err error) bool {
	var answer smithy.APIError
	return errors.As(err, &answer) && answer.ErrorCode() == "AccessDenied"
}

// Lambda writes the log under each function's role, and passes on what a sweep
// failed at; nothing else may.
func TestEveryRoleHoldsWhatLambdaItselfNeeds(t *testing.T) {
	declared := projectTemplate(t)
	for _, f := range declared.Functions {
		want := []string{"logs:CreateLogStream", "logs:PutLogEvents"}
		if len(f.Schedules) > 0 {
			want = append(want, "sqs:SendMessage")
		}
		var got []string
		for _, p := range permissions(f) {
			if ofLambda(p) {
				got = append(got, p.action)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s may %v for Lambda's sake, want %v", f.LogicalID, got, want)
		}
	}
}

// S3 answers 403 for an object that is gone to whoever may not list its whole
// bucket. The message stays until it expires, and those behind it are drained.
func TestAPayloadThatIsGoneDoesNotKeepTheInbox(t *testing.T) {
	g := openGuarded(t)
	g.cold()
	large := strings.Repeat("x", 10_000)
	g.do(200, "POST", "/bridge/publish", `{"from":"b","to":"a","topic":"t","payload":"`+large+`"}`)
	client, bucket := newS3(g.aws.Config()), aws.String(g.iam.template.Buckets[0].Name)
	kept, err := client.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: bucket, Prefix: aws.String("payload/")})
	if err != nil || len(kept.Contents) != 1 {
		t.Fatalf("%v, %+v; want one payload", err, kept)
	}
	if _, err := client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: bucket, Key: kept.Contents[0].Key}); err != nil {
		t.Fatal(err)
	}
	g.do(200, "POST", "/bridge/publish", `{"from":"b","to":"a","topic":"t","payload":"small"}`)
	drained := g.answer("POST", "/bridge/context", `{"agent_id":"a","auto_ack":true}`)["messages"].([]any)
	if len(drained) != 1 || drained[0].(map[string]any)["payload"] != "small" {
		t.Errorf("drained %v, want the message behind", drained)
	}
}
