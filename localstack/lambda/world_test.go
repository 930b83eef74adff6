//go:build rie

package lambda

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"drawbridge/core"
	"drawbridge/ddb"
	"drawbridge/functions"
	"drawbridge/localstack/fakeaws"
	"drawbridge/localstack/gateway"
	"drawbridge/localstack/provision"
	"drawbridge/localstack/template"
)

const (
	accessKey, secretKey = "test", "testtest"
	operatorToken        = "operator-token"
)

// needed is a variable that the tests cannot do without. They never skip: whoever
// built them with the tag wants them run.
func needed(t testing.TB, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Fatalf("%s is not set; run make rie", variable)
	}
	return path
}

// A world is the template's table and bucket in an embedded AWS behind a socket,
// the functions as Lambda runs them, and the same functions in this process, by
// which a test prepares what it is about.
type world struct {
	t        testing.TB
	template *template.Template
	aws      *fakeaws.Server
	pool     *Pool
	far      http.Handler // the gateway before the pool
	near     http.Handler // the gateway before the functions of this process
	sweep    func(handler string) error
	known    map[string]string // what steps captured, by name
}

func open(t testing.TB) *world {
	t.Helper()
	declared, err := template.Load("../../template.yaml", template.Local())
	must(t, err)
	server, err := fakeaws.Open(fakeaws.Options{AccessKey: accessKey, SecretKey: secretKey})
	must(t, err)
	socket := httptest.NewServer(server)
	w := &world{t: t, template: declared, aws: server, known: map[string]string{}}
	w.pool = NewPool(Runtime{
		Emulator: needed(t, "DRAWBRIDGE_RIE"), Bootstrap: needed(t, "DRAWBRIDGE_BOOTSTRAP"),
		Environment: map[string]string{
			"AWS_ENDPOINT_URL": socket.URL, "AWS_REGION": declared.Stack.Region,
			"AWS_ACCESS_KEY_ID": accessKey, "AWS_SECRET_ACCESS_KEY": secretKey,
		},
		Log: io.Discard,
	}, declared)
	t.Cleanup(func() {
		w.pool.Close()
		socket.CloseClientConnections()
		socket.Close()
		must(t, server.Close())
	})
	w.provision()
	w.wire()
	return w
}

func (w *world) provision() {
	w.t.Helper()
	client := dynamodb.NewFromConfig(w.aws.Config())
	_, err := provision.Table(w.t.Context(), client, w.template.Tables[0])
	must(w.t, err)
	_, err = provision.Bucket(w.t.Context(), w.s3(), w.template.Buckets[0].Name)
	must(w.t, err)
	_, err = ddb.Open(client, ddb.Table{Name: w.template.Tables[0].Name}).CreateToken(w.t.Context(), core.Token{
		Hash: core.TokenHash(operatorToken), Scopes: []core.Scope{core.ScopeOperator},
	})
	must(w.t, err)
}

func (w *world) s3() *s3.Client {
	return s3.NewFromConfig(w.aws.Config(), func(o *s3.Options) { o.UsePathStyle = true })
}

func (w *world) wire() {
	w.t.Helper()
	log := slog.New(slog.DiscardHandler)
	var err error
	w.far, err = gateway.New(w.template, func(name string) (gateway.Handler, bool) {
		handler, ok := w.pool.HTTP(name)
		return handler, ok
	}, log)
	must(w.t, err)
	environment := w.template.Functions[0].Environment
	settings, err := functions.SettingsFrom(func(name string) string { return environment[name] })
	must(w.t, err)
	settings.Log = log
	app, err := functions.Open(w.aws.Config(), settings)
	must(w.t, err)
	w.near, err = gateway.New(w.template, func(name string) (gateway.Handler, bool) {
		handler, ok := app.HTTP(name)
		return gateway.Handler(handler), ok
	}, log)
	must(w.t, err)
	w.sweep = func(handler string) error {
		sweep, ok := app.Sweep(handler)
		if !ok {
			return fmt.Errorf("there is no sweep %s", handler)
		}
		return sweep(context.Background(), nil)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// An answer is what a client gets.
type answer struct {
	status int
	text   string
	body   map[string]any
}

// at returns the text at a dotted path; a number is an element of a list.
func (a answer) at(path string) string {
	var value any = a.body
	for key := range strings.SplitSeq(path, ".") {
		switch v := value.(type) {
		case map[string]any:
			value = v[key]
		case []any:
			value = v[0] // the only index that steps use
		}
	}
	text, _ := value.(string)
	return text
}

// send sends a step's request through one of the gateways.
func (w *world) send(through http.Handler, s step, token string) answer {
	w.t.Helper()
	method, target, _ := strings.Cut(w.filled(s.request), " ")
	r := httptest.NewRequest(method, target, strings.NewReader(w.filled(s.body)))
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if s.key != "" {
		r.Header.Set("Idempotency-Key", s.key)
	}
	recorder := httptest.NewRecorder()
	through.ServeHTTP(recorder, r)
	a := answer{status: recorder.Code, text: recorder.Body.String()}
	if err := json.Unmarshal(recorder.Body.Bytes(), &a.body); err != nil {
		w.t.Errorf("%s %s: the answer %d is no JSON object: %s", method, target, a.status, a.text)
	}
	return a
}

// prepare carries steps out in this process.
func (w *world) prepare(steps []step) {
	w.t.Helper()
	for _, s := range steps {
		if s.sweep != "" {
			must(w.t, w.sweep(s.sweep))
			continue
		}
		time.Sleep(s.after)
		a := w.send(w.near, s, operatorToken)
		if a.status != http.StatusOK {
			w.t.Fatalf("prepare %s %s: %d %s", s.request, s.body, a.status, a.text)
		}
		for name, path := range s.capture {
			if w.known[name] = a.at(path); w.known[name] == "" {
				w.t.Fatalf("prepare %s: nothing at %s: %s", s.request, path, a.text)
			}
		}
	}
}

// filled puts what was captured into a text.
func (w *world) filled(text string) string {
	for name, value := range w.known {
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	return text
}

// word is a state, a kind or a reason, rather than an id or a text.
var word = regexp.MustCompile(`^[a-z_]{2,20}$`)

// shape tells what is stored without what differs between two runs of the same
// requests: ids, moments, and the records of idempotent requests. It counts the
// items of each kind, their words and their small numbers: generations, epochs,
// attempts, deliveries, counters.
func (w *world) shape() map[string]int {
	w.t.Helper()
	shape := map[string]int{}
	pages := dynamodb.NewScanPaginator(dynamodb.NewFromConfig(w.aws.Config()), &dynamodb.ScanInput{
		TableName: &w.template.Tables[0].Name, ConsistentRead: aws.Bool(true),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(w.t.Context())
		must(w.t, err)
		for _, item := range page.Items {
			kind := prefix(item["pk"], "#") + " " + prefix(item["sk"], "#")
			shape[kind]++
			for name, value := range item {
				if v := telling(name, value); v != "" {
					shape[kind+" "+name+"="+v]++
				}
			}
		}
	}
	objects, err := w.s3().ListObjectsV2(w.t.Context(), &s3.ListObjectsV2Input{Bucket: &w.template.Buckets[0].Name})
	must(w.t, err)
	for _, o := range objects.Contents {
		name, _, _ := strings.Cut(*o.Key, "/")
		shape["object "+name]++
	}
	return shape
}

func prefix(value types.AttributeValue, separator string) string {
	text, _ := value.(*types.AttributeValueMemberS)
	if text == nil {
		return ""
	}
	before, _, _ := strings.Cut(text.Value, separator)
	if !word.MatchString(before) {
		return "*"
	}
	return before
}

func telling(name string, value types.AttributeValue) string {
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		if word.MatchString(v.Value) && name != "sk" {
			return v.Value
		}
	case *types.AttributeValueMemberN:
		if len(v.Value) < 7 {
			return v.Value
		}
	}
	return ""
}

// different lists what one shape has and the other has not.
func different(got, want map[string]int) []string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if got[key] != want[key] {
			all = append(all, fmt.Sprintf("%s: %d, want %d", key, got[key], want[key]))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if _, there := got[key]; !there {
			all = append(all, fmt.Sprintf("%s: none, want %d", key, want[key]))
		}
	}
	return all
}
