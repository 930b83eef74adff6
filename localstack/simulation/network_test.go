package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"drawbridge/localstack/fakeaws"
)

// A network stands between the AWS SDK of the instances and the embedded AWS. It
// is where the scheduler gets hold of a call.
type network struct {
	w     *world
	inner http.RoundTripper
	late  []lateRequest
}

// A sent is a request to AWS as the network sees it.
type sent struct {
	http *http.Request
	body []byte
	op   string
	keys []itemKey // that it may change: of items
	key  string    // of the object that it may change
	text string    // the whole request, the same for the same request
}

type itemKey struct{ pk, sk string }

func (k itemKey) String() string { return k.pk + "/" + k.sk }

// A lateRequest was given up by its sender and is still under way.
type lateRequest struct {
	sent
	call *call
	at   time.Time
}

// lateBy bounds how much later a request arrives than its sender gave it up: the
// hub's invocations, and with them whatever they sent, end within half a minute.
const lateBy = 20 * time.Second

var (
	errLost = errors.New("read tcp: connection reset by peer")
	errDied = errors.New("the instance is dead")
)

// Do implements aws.HTTPClient.
func (n *network) Do(r *http.Request) (*http.Response, error) {
	c := callOf(r.Context())
	if c == nil {
		return n.inner.RoundTrip(r) // the world's own requests
	}
	s, err := readSent(r)
	if err != nil {
		return nil, err
	}
	w := &waiter{owner: c.name, what: s.text, request: true, call: c}
	if err := n.w.scheduler.wait(r.Context(), w); err != nil {
		return nil, err
	}
	defer n.w.scheduler.handOver()
	return n.carry(c, s, n.w.chance.misfortune(c, s))
}

// carry lets a request take effect, or not, and returns what its sender sees.
func (n *network) carry(c *call, s sent, m misfortune) (*http.Response, error) {
	if m.none() {
		return n.exchange(c, s, "")
	}
	c.troubled = true
	// Whoever has asked for nothing yet may be waiting for what this call reads for
	// the whole process, its token or the identity, and is told what comes of it.
	for _, other := range n.w.calls {
		if other.instance == c.instance && other.requests == 0 {
			other.troubled = true
		}
	}
	if m.late {
		n.late = append(n.late, lateRequest{sent: s, call: c, at: n.w.now()})
		n.w.trace.addf("%s %s: under way, given up", c.name, s.head())
		return nil, errLost
	}
	rule := n.w.aws.Faults().Add(fakeaws.Rule{Count: 1, Action: m.action})
	defer rule.Remove()
	return n.exchange(c, s, m.name)
}

func (n *network) exchange(c *call, s sent, fault string) (*http.Response, error) {
	response, err := n.inner.RoundTrip(s.again(s.http.Context()))
	status := "lost"
	if err == nil {
		status = fmt.Sprint(response.StatusCode)
	}
	n.w.trace.addf("%s %s -> %s %s", c.name, s.head(), status, fault)
	n.w.trace.note(s.text)
	c.requests++
	switch {
	case s.writes():
		n.w.changed(c, s)
	case s.op == "TransactGetItems" && c.endpoint == "POST /bridge/roles/fence-check":
		n.w.monitor.observed(c, c.sent)
	}
	return response, err
}

// deliverLate lets one of the requests that were given up arrive.
func (n *network) deliverLate(i int) {
	l := n.late[i]
	n.late = slices.Delete(n.late, i, i+1)
	if n.w.now().Sub(l.at) > lateBy {
		return
	}
	l.call.troubled = true
	if response, err := n.exchange(l.call, sent{
		http: l.http.WithContext(context.WithoutCancel(l.http.Context())), body: l.body, op: l.op, keys: l.keys, key: l.key, text: l.text,
	}, "late"); err == nil {
		_ = response.Body.Close() // nobody waits for the answer
	}
}

func (s sent) again(ctx context.Context) *http.Request {
	r := s.http.Clone(ctx)
	r.Body = io.NopCloser(bytes.NewReader(s.body))
	return r
}

// head is the request in a line.
func (s sent) head() string {
	if s.key != "" {
		return s.op + " " + s.key
	}
	if len(s.keys) > 0 {
		return fmt.Sprint(s.op, " ", s.keys)
	}
	return s.op
}

func (s sent) writes() bool { return len(s.keys) > 0 || s.key != "" }

func readSent(r *http.Request) (sent, error) {
	s := sent{http: r}
	if r.Body != nil {
		var err error
		if s.body, err = io.ReadAll(r.Body); err != nil {
			return s, err
		}
	}
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		_, s.op, _ = strings.Cut(target, ".")
		return s, s.readTable()
	}
	s.readObject()
	return s, nil
}

// readTable finds out what a request to DynamoDB may change. Its text has the
// members of all objects in order: the SDK writes maps in any.
func (s *sent) readTable() error {
	var body map[string]any
	decoder := json.NewDecoder(bytes.NewReader(s.body))
	decoder.UseNumber()
	if err := decoder.Decode(&body); err != nil {
		return fmt.Errorf("read the request %s: %w", s.op, err)
	}
	delete(body, "ClientRequestToken") // the SDK's own, by chance
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	s.text = s.op + " " + string(text)
	switch s.op {
	case "PutItem":
		s.addKey(body["Item"])
	case "UpdateItem", "DeleteItem":
		s.addKey(body["Key"])
	case "TransactWriteItems":
		for _, action := range list(body["TransactItems"]) {
			s.addKey(at(action, "Put", "Item"))
			s.addKey(at(action, "Update", "Key"))
			s.addKey(at(action, "Delete", "Key"))
		}
	case "BatchWriteItem":
		tables, _ := body["RequestItems"].(map[string]any)
		for _, table := range slices.Sorted(maps.Keys(tables)) {
			for _, action := range list(tables[table]) {
				s.addKey(at(action, "PutRequest", "Item"))
				s.addKey(at(action, "DeleteRequest", "Key"))
			}
		}
	}
	return nil
}

func (s *sent) addKey(attributes any) {
	pk, ok := at(attributes, "pk", "S").(string)
	sk, _ := at(attributes, "sk", "S").(string)
	if ok {
		s.keys = append(s.keys, itemKey{pk, sk})
	}
}

// readObject does the same for S3.
func (s *sent) readObject() {
	r := s.http
	s.op = r.Method
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s?%s", r.Method, r.URL.Path, r.URL.RawQuery)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		if strings.HasPrefix(name, "X-Amz-Meta-") || strings.HasPrefix(name, "If-") {
			fmt.Fprintf(&text, " %s=%s", name, r.Header.Get(name))
		}
	}
	text.Write(s.body)
	s.text = text.String()
	if r.Method == http.MethodPut || r.Method == http.MethodDelete {
		s.key = strings.TrimPrefix(r.URL.Path, "/"+bucketName+"/")
	}
}

// at walks down objects.
func at(value any, path ...string) any {
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return value
}

func list(value any) []any {
	l, _ := value.([]any)
	return l
}
