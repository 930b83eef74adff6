package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"drawbridge/localstack/fakeaws"
)

// A call is one invocation of a function.
type call struct {
	name     string // unique
	endpoint string // method and path, or the sweep
	instance *instance
	ctx      context.Context //nolint:containedctx // a call is an invocation under way, and this is what ends it
	cancel   context.CancelFunc
	died     chan struct{}
	dead     bool
	begun    time.Time
	limit    time.Duration
	fence    fence
	acts     string  // the agent it acts for, fenced or not
	sent     request // of an endpoint

	troubled bool // something went wrong on its way
	crowded  bool // somebody else wrote meanwhile
	requests int
	cost     fakeaws.Cost

	misfortune misfortune // of its latest request that met one
	again      int        // times that strikes again
}

// A fence is what a caller believes of the agent it acts for; the zero fence is
// none.
type fence struct {
	agent      string
	generation int64
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// The time limits of the functions: 28 s behind the gateway, 55 s of a sweep
// (template.yaml).
const (
	endpointLimit = 28 * time.Second
	sweepLimit    = 55 * time.Second
)

func (w *world) newCall(who, endpoint string, random *rand.Rand, limit time.Duration) *call {
	w.started++
	c := &call{
		name: fmt.Sprintf("%s.%05d", who, w.started), endpoint: endpoint, instance: w.take(random),
		died: make(chan struct{}), begun: w.now(), limit: limit,
	}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), callKey{}, c))
	c.ctx, c.cancel = ctx, cancel
	c.instance.busy++
	w.calls = append(w.calls, c)
	return c
}

// invoke runs a function; false when its instance died first.
func (w *world) invoke(c *call, run func(context.Context)) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.cost = w.aws.Measure(c.ctx, run)
	}()
	select {
	case <-done:
	case <-c.died:
	}
	c.cancel()
	c.instance.busy--
	w.calls = slices.DeleteFunc(w.calls, func(x *call) bool { return x == c })
	return !c.dead
}

// An answer is what a client gets.
type answer struct {
	lost   bool // it gets none
	status int
	text   string
	body   any
}

func (a answer) ok() bool { return !a.lost && a.status == 200 }

// code is the error's code.
func (a answer) code() string { return a.text1("error.code") }

// unknown tells that the call may have been carried out: no answer, or one that
// says so. Every other refusal says that it was not.
func (a answer) unknown() bool { return a.lost || a.code() == "OUTCOME_UNKNOWN" }

// at returns the value at a dotted path of the answer.
func (a answer) at(path string) any { return at(a.body, strings.Split(path, ".")...) }

func (a answer) text1(path string) string {
	s, _ := a.at(path).(string)
	return s
}

func (a answer) number(path string) int64 {
	n, _ := a.at(path).(float64)
	return int64(n)
}

// request is what a client sends.
type request struct {
	method, path string
	body         map[string]any // nil: none
	token        string         // "": an agent's
	key          string         // Idempotency-Key
	acts         string         // the agent it acts for
}

func (r request) event() (events.APIGatewayV2HTTPRequest, error) {
	path, query, _ := strings.Cut(r.path, "?")
	event := events.APIGatewayV2HTTPRequest{Version: "2.0", RawPath: path, RawQueryString: query, Headers: map[string]string{}}
	event.RequestContext.RequestID = "gateway-request"
	event.RequestContext.HTTP.Method = r.method
	event.RequestContext.HTTP.Path = path
	token := r.token
	if token == "" {
		token = agentToken
	}
	event.Headers["authorization"] = "Bearer " + token
	if r.key != "" {
		event.Headers["idempotency-key"] = r.key
	}
	if r.body == nil {
		return event, nil
	}
	encoded, err := json.Marshal(r.body)
	event.Body = string(encoded)
	return event, err
}

// function is the name of the function behind a route.
func (w *world) function(method, path string) string {
	for _, route := range w.routes {
		if route.Path == path && (route.Method == method || route.Method == "ANY") {
			return route.Handler
		}
	}
	w.t.Errorf("no route for %s %s", method, path)
	return ""
}

// send carries a request to the hub and the answer back, unless something
// happens to it.
func (w *world) send(who string, random *rand.Rand, r request) answer {
	event, err := r.event()
	if err != nil {
		w.t.Error(err)
	}
	path, _, _ := strings.Cut(r.path, "?")
	c := w.newCall(who, r.method+" "+path, random, endpointLimit)
	c.acts, c.sent = r.acts, r
	if generation, fenced := r.body["presence_generation"].(int64); fenced {
		c.fence = fence{r.acts, generation}
	}
	handler, found := c.instance.app.HTTP(w.function(r.method, path))
	if !found {
		w.t.Errorf("no function for %s", c.endpoint)
	}
	w.trace.addf("%s %s on %s: %s %s", c.name, c.endpoint, c.instance.name, event.Body, r.key)
	var response events.APIGatewayV2HTTPResponse
	answered := w.invoke(c, func(ctx context.Context) { response, err = handler(ctx, event) })
	if !answered {
		return answer{lost: true}
	}
	if err != nil {
		w.t.Error(err)
	}
	a := answer{status: response.StatusCode, text: response.Body}
	if err := json.Unmarshal([]byte(a.text), &a.body); err != nil {
		w.violatef("%s: the answer is no JSON: %v: %s", c.name, err, a.text)
	}
	w.trace.addf("%s: %d %.600s", c.name, a.status, a.text)
	w.judgeAnswer(c, r, a)
	if w.chance.faults > 0 && random.IntN(60) == 0 {
		w.trace.addf("%s: its client gets no answer", c.name)
		a = answer{lost: true}
	}
	return a
}

// judgeAnswer holds what every answer must hold, also one that its client never
// gets.
func (w *world) judgeAnswer(c *call, r request, a answer) {
	if a.status >= 500 && a.code() != "OUTCOME_UNKNOWN" && (!c.troubled || a.code() == "INTERNAL") {
		w.violatef("%s %s: %d %s where nothing went wrong", c.name, c.endpoint, a.status, a.text)
	}
	w.monitor.answered(c, r, a)
	w.judgeCost(c, a)
}

// sweep runs a sweep once.
func (w *world) sweep(who, name string, random *rand.Rand) error {
	c := w.newCall(who, name, random, sweepLimit)
	handler, found := c.instance.app.Sweep(name)
	if !found {
		w.t.Errorf("no sweep %s", name)
	}
	w.trace.addf("%s sweeps on %s", c.name, c.instance.name)
	err := errDied
	if !w.invoke(c, func(ctx context.Context) { err = handler(ctx, nil) }) {
		return errDied
	}
	w.trace.addf("%s: %v", c.name, err)
	return err
}
