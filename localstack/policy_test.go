package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

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
	key      string // partition key; empty for an index
}

// transactionActions is what each part of a transaction is authorised as; it has no action
// of its own.
var transactionActions = map[string]string{
	"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem",
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

	mu   sync.Mutex
	used map[permission]bool
}

// Do implements aws.HTTPClient.
func (i *iam) Do(r *http.Request) (*http.Response, error) {
	name, _ := r.Context().Value(functionName{}).(string)
	if name == "" {
		return i.next.Do(r) // the test itself
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	for _, n := range i.needs(op, body) {
		if !i.allows(name, n) {
			return nil, fmt.Errorf("AccessDeniedException: %s may not %s on %s with the key %q", name, n.action, n.resource, n.key)
		}
	}
	return i.next.Do(r)
}

func (i *iam) allows(name string, n need) bool {
	f, _ := i.template.Function(name)
	i.mu.Lock()
	defer i.mu.Unlock()
	allowed := false
	for _, p := range permissions(f) {
		if p.action == n.action && p.resource == n.resource && like(p.keys, n.key) {
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
		if c.IndexName != "" {
			return []need{{"dynamodb:Query", table + "/index/" + c.IndexName, ""}}
		}
		// The one key condition on a table starts with the partition: "pk = :x ...".
		name, _, _ := strings.Cut(strings.TrimPrefix(c.KeyConditionExpression, "pk = "), " ")
		return []need{{"dynamodb:Query", table, c.ExpressionAttributeValues[name].S}}
	case "BatchGetItem", "BatchWriteItem":
		return i.batch(op, table, c.RequestItems)
	case "TransactWriteItems":
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
	g := &guarded{t: t, token: bootstrapToken{value: "test-token"}}
	declared := projectTemplate(t)
	cfg := server.Config()
	g.iam = &iam{next: cfg.HTTPClient, template: declared, used: map[permission]bool{}}
	cfg.HTTPClient = g.iam
	client := dynamodb.NewFromConfig(cfg)
	if _, err := provision.Table(t.Context(), client, declared.Tables[0]); err != nil {
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
	app, err := functions.Open(g.cfg, functions.Settings{Table: g.iam.template.Tables[0].Name, Log: log})
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
	used := map[permission]bool{}
	for name, work := range map[string]func(g *guarded){
		"register": func(g *guarded) {
			g.do(200, "POST", "/bridge/register", register)
			g.do(200, "POST", "/bridge/register", `{"agent_id":"a","cli":"claude","topics":["u"],"timeout_sec":-118}`)
			g.do(200, "POST", "/bridge/register", `{"agent_id":"b","cli":"claude"}`, "Idempotency-Key", "k")
			g.do(200, "POST", "/bridge/register", `{"agent_id":"b","cli":"claude"}`, "Idempotency-Key", "k")
			g.do(409, "POST", "/bridge/register", `{"agent_id":"b","cli":"claude","hub_instance_id":"old"}`)
		},
		"heartbeat": func(g *guarded) {
			g.do(404, "POST", "/bridge/heartbeat", `{"agent_id":"a"}`)
			g.do(200, "POST", "/bridge/register", register)
			g.do(200, "POST", "/bridge/heartbeat", `{"agent_id":"a","step":1,"step_deadline_ms":1000}`)
			g.do(200, "POST", "/bridge/heartbeat", `{"agent_id":"a","step":1,"ttl_ms":1000}`)
			g.do(404, "POST", "/bridge/heartbeat", `{"agent_id":"a","presence_generation":7}`)
			g.do(200, "POST", "/bridge/heartbeat", `{"agents":[{"agent_id":"a"},{"agent_id":"b"}]}`)
		},
		"deregister": func(g *guarded) {
			g.do(409, "POST", "/bridge/deregister", `{"agent_id":"a","presence_generation":1}`)
			g.do(200, "POST", "/bridge/register", register)
			g.do(200, "POST", "/bridge/deregister", `{"agent_id":"a","presence_generation":1,"final":true}`)
		},
		"status-get": func(g *guarded) {
			g.do(200, "GET", "/bridge/status?scope=hub", "")
			g.do(200, "GET", "/bridge/status?scope=agent&agent_id=a&include_metrics=true", "")
		},
		"status-post": func(g *guarded) {
			g.do(200, "POST", "/bridge/status", `{"scope":"hub"}`)
			g.do(200, "POST", "/bridge/register", register)
			g.do(200, "POST", "/bridge/status", `{"agent_id":"a","status":"busy"}`)
			g.do(200, "POST", "/bridge/status", `{"agent_id":"a","status":"offline"}`)
			g.do(200, "POST", "/bridge/status", `{"agent_id":"a","scope":"agent"}`)
		},
		"agents": func(g *guarded) {
			g.do(200, "POST", "/bridge/register", register)
			g.do(200, "GET", "/bridge/agents", "")
			g.do(200, "GET", "/bridge/agents?topic=t", "")
		},
		"hub-rotate": func(g *guarded) {
			g.do(200, "POST", "/bridge/hub/rotate", `{"reason":"test"}`)
			g.do(200, "POST", "/bridge/hub/rotate", `{}`)
		},
		"health": func(g *guarded) { g.do(200, "GET", "/health", "") },
		"root":   func(g *guarded) { g.do(200, "GET", "/status", "") },
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
	} {
		t.Run(name, func(t *testing.T) {
			g := openGuarded(t)
			work(g)
			maps.Copy(used, g.iam.used)
		})
	}
	for _, f := range projectTemplate(t).Functions {
		for _, p := range permissions(f) {
			if !used[p] {
				t.Errorf("%s may %s on %s for keys %s, and never does", f.LogicalID, p.action, p.resource, p.keys)
			}
		}
	}
}

func TestThePatternsOfThePoliciesAreUnderstood(t *testing.T) {
	for _, f := range projectTemplate(t).Functions {
		for _, s := range f.Statements {
			for operator := range s.Condition {
				if !slices.Contains([]string{"ForAllValues:StringLike", "ForAllValues:StringEquals"}, operator) {
					t.Errorf("%s: the operator %s", f.LogicalID, operator)
				}
			}
			for _, p := range leadingKeys(s) {
				if strings.Count(p, "*") > 1 || path.Base(p) == "*" {
					t.Errorf("%s: the pattern %q", f.LogicalID, p)
				}
			}
		}
	}
}
