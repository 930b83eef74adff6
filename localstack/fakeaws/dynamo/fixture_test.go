package dynamo

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"drawbridge/localstack/fakeaws/engine"
)

// A fixture is an engine under test with a clock that the test moves.
type fixture struct {
	testing.TB
	*Engine
	mu  sync.Mutex
	now time.Time
}

func (f *fixture) time() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *fixture) pass(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

func newFixture(tb testing.TB) *fixture { return openFixture(tb, nil) }

func openFixture(tb testing.TB, journal engine.Journal) *fixture {
	tb.Helper()
	f := &fixture{TB: tb, now: time.Unix(1_800_000_000, 0)}
	e, err := Open(Options{Journal: journal, Clock: f.time})
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	f.Engine = e
	return f
}

func request(op string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set(targetHeader, targetPrefix+op)
	return r
}

// send carries out an operation whatever its outcome.
func (f *fixture) send(op, body string) engine.Response {
	return f.Serve(request(op), []byte(body))
}

// do carries out an operation that must succeed and returns the answer.
func (f *fixture) do(op, body string) map[string]any {
	f.Helper()
	response := f.send(op, body)
	if response.Status != http.StatusOK {
		f.Fatalf("%s %s: %d %s", op, body, response.Status, response.Body)
	}
	return decode(f, response.Body)
}

// refuse carries out an operation that must fail with a code, and with a
// message that contains a text.
func (f *fixture) refuse(op, body, code, message string) engine.Response {
	f.Helper()
	response := f.send(op, body)
	if response.ErrorCode != code {
		f.Errorf("%s %s: code %q (%s), want %s", op, body, response.ErrorCode, response.Body, code)
		return response
	}
	if got, _ := decode(f, response.Body)["message"].(string); !strings.Contains(got, message) {
		f.Errorf("%s %s: message %q, want one with %q", op, body, got, message)
	}
	return response
}

func decode(tb testing.TB, body []byte) map[string]any {
	tb.Helper()
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var out map[string]any
	if err := d.Decode(&out); err != nil {
		tb.Fatalf("decode %s: %v", body, err)
	}
	return out
}

// sameJSON compares a decoded document with one written out.
func sameJSON(tb testing.TB, what string, got any, want string) {
	tb.Helper()
	d := json.NewDecoder(strings.NewReader(want))
	d.UseNumber()
	var wanted any
	if err := d.Decode(&wanted); err != nil {
		tb.Fatalf("decode %s: %v", want, err)
	}
	if !reflect.DeepEqual(got, wanted) {
		encoded, _ := json.Marshal(got) //nolint:errchkjson // it came from JSON
		tb.Errorf("%s:\n got %s\nwant %s", what, encoded, want)
	}
}

// createMain makes a table with keys pk and sk, a local index "byNumber" on n
// that has the keys only, a global index "byGroup" on g and n with everything,
// and a global index "byName" on name with the attribute extra.
func (f *fixture) createMain() {
	f.Helper()
	f.do("CreateTable", `{
		"TableName": "main", "BillingMode": "PAY_PER_REQUEST",
		"AttributeDefinitions": [
			{"AttributeName": "pk", "AttributeType": "S"}, {"AttributeName": "sk", "AttributeType": "S"},
			{"AttributeName": "n", "AttributeType": "N"}, {"AttributeName": "g", "AttributeType": "S"}, {"AttributeName": "name", "AttributeType": "B"}],
		"KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
		"LocalSecondaryIndexes": [{"IndexName": "byNumber", "Projection": {"ProjectionType": "KEYS_ONLY"},
			"KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "n", "KeyType": "RANGE"}]}],
		"GlobalSecondaryIndexes": [
			{"IndexName": "byGroup", "Projection": {"ProjectionType": "ALL"},
				"KeySchema": [{"AttributeName": "g", "KeyType": "HASH"}, {"AttributeName": "n", "KeyType": "RANGE"}]},
			{"IndexName": "byName", "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["extra"]},
				"KeySchema": [{"AttributeName": "name", "KeyType": "HASH"}]}]}`)
}

// put stores an item of the main table, given as JSON without pk and sk.
func (f *fixture) put(pk, sk, rest string) {
	f.Helper()
	f.do("PutItem", `{"TableName": "main", "Item": `+mainItem(pk, sk, rest)+`}`)
}

func mainItem(pk, sk, rest string) string {
	if rest != "" {
		rest = ", " + rest
	}
	return `{"pk": {"S": "` + pk + `"}, "sk": {"S": "` + sk + `"}` + rest + `}`
}

// get reads an item of the main table; nil when it is absent.
func (f *fixture) get(pk, sk string) any {
	f.Helper()
	return f.do("GetItem", `{"TableName": "main", "ConsistentRead": true, "Key": `+mainItem(pk, sk, "")+`}`)["Item"]
}
