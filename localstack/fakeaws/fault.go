package fakeaws

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"drawbridge/localstack/fakeaws/engine"
)

// A Rule makes the embedded AWS misbehave on the requests that it matches.
//
// The matching fields are patterns in which '*' stands for any run of
// characters ('/' included), '?' for one, and a backslash takes the next
// character literally. An empty field matches everything. Only requests with a
// good signature are matched.
type Rule struct {
	Service  string // "dynamodb" or "s3"
	Op       string // AWS's operation name: "UpdateItem", "PutObject"
	Resource string // table or bucket
	Key      string // "pk/sk" or object key; a batch or transaction matches by any of its keys
	Index    string // index that a Query or Scan reads
	Caller   string // access key
	Label    string // see WithLabel

	After       int     // leave the first matching requests alone
	Count       int     // act on so many of the following ones, then no more; 0: on all
	Probability float64 // act on a matching request by chance; 0: always
	Seed        uint64  // of that chance: the same seed and order of requests give the same decisions

	// Action is what happens. The zero Action only counts: Handle.Hits then
	// tells how many requests matched.
	Action Action
}

// An Action is one kind of misbehaviour, made by the functions below. Where
// several rules match a request, all their delays apply and the first answer;
// the rule of another answer has not acted, and keeps its count.
type Action struct {
	kind    actionKind
	delay   time.Duration
	frozen  bool // hold until released, not for delay
	failure failure
}

type actionKind int

const (
	countOnly actionKind = iota
	dropRequest
	dropResponse
	tearResponse
	holdRequest
	holdResponse
	answerError
	answerErrorAfter
	answerErrorWith200
	answerConflict
	collectExpired
	closeIdle
)

// DropRequest loses the request before it takes effect: the client sees a
// reset connection.
func DropRequest() Action { return Action{kind: dropRequest} }

// DropResponse carries the request out and loses the answer: the client sees a
// reset connection and cannot know.
func DropResponse() Action { return Action{kind: dropResponse} }

// TearResponse carries the request out, sends half of the answer's body and
// resets the connection. An answer without a body is lost whole.
func TearResponse() Action { return Action{kind: tearResponse} }

// Delay holds the request for d before it takes effect. A client that gives up
// meanwhile does not undo it: it still takes effect when d is over, as a
// request does that was under way in a real network.
func Delay(d time.Duration) Action { return Action{kind: holdRequest, delay: d} }

// DelayResponse carries the request out and holds the answer for d.
func DelayResponse(d time.Duration) Action { return Action{kind: holdResponse, delay: d} }

// Freeze holds the request before it takes effect until Handle.Release. As
// with Delay, a client that gives up does not undo it.
func Freeze() Action { return Action{kind: holdRequest, frozen: true} }

// FreezeResponse carries the request out and holds the answer until
// Handle.Release.
func FreezeResponse() Action { return Action{kind: holdResponse, frozen: true} }

// Error answers with AWS's error code and status instead of carrying the
// request out: Error(503, "SlowDown"), Error(400, "ThrottlingException"),
// Error(409, "ConditionalRequestConflict").
func Error(status int, code string) Action {
	return Action{kind: answerError, failure: scripted(status, code)}
}

// ErrorAfter carries the request out and then answers with an error: the 500
// after which nobody knows.
func ErrorAfter(status int, code string) Action {
	return Action{kind: answerErrorAfter, failure: scripted(status, code)}
}

// ErrorWith200 answers an S3 request, without carrying it out, with status 200
// and an error document, as S3 does when a long request fails after its header
// was sent. What never gets such an answer is not matched: DynamoDB requests,
// HEAD, which has no document, and GetObject, whose document is the object.
func ErrorWith200(code string) Action {
	return Action{kind: answerErrorWith200, failure: scripted(200, code)}
}

// TransactionConflict answers a DynamoDB transaction with
// TransactionCanceledException and the reason TransactionConflict for its
// first item that the rule's Key matches, and any other write with
// TransactionConflictException. Nothing is carried out; other requests are not
// matched.
func TransactionConflict() Action { return Action{kind: answerConflict} }

// CollectExpired deletes the table's items whose time to live has passed,
// before the matching request is carried out. Without such a rule they stay
// for ever: AWS promises nothing better than days.
func CollectExpired() Action { return Action{kind: collectExpired} }

// CloseIdle carries the request out and closes all connections of Serve that
// are idle, and the request's own one as soon as its answer is sent. In
// process there are none to close.
func CloseIdle() Action { return Action{kind: closeIdle} }

func scripted(status int, code string) failure {
	return failure{status: status, code: code, message: "scripted fault: " + code}
}

// A Script is the set of rules in force. The zero Script has none; its methods
// may be called while requests are served.
type Script struct {
	active atomic.Bool // any rules: spares the lock when there are none

	mu     sync.Mutex
	rules  []*Handle
	lags   []*Handle
	tables tables // nil until the server is open
}

// tables is what scripts need of the DynamoDB engine.
type tables interface {
	SetIndexLag(table, index string, lag time.Duration) error
	CollectExpired(table string) (int, error)
}

// A Handle is a rule in force.
type Handle struct {
	script *Script
	rule   Rule
	lag    *indexLag
	random *rand.Rand // guarded by script.mu

	matched  int // guarded by script.mu
	hits     atomic.Int64
	held     atomic.Int64
	release  chan struct{}
	released sync.Once
}

type indexLag struct {
	table, index string
	lag          time.Duration
}

// Add puts a rule in force after those that are there.
func (s *Script) Add(rule Rule) *Handle {
	h := &Handle{script: s, rule: rule, release: make(chan struct{}),
		random: rand.New(rand.NewPCG(rule.Seed, 0x5eed))}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, h)
	s.active.Store(true)
	return h
}

// LagIndex makes reads of a table's global index miss the writes of the last
// lag, by the services' clock, until the handle is removed. It takes effect as
// soon as there is such an index.
func (s *Script) LagIndex(table, index string, lag time.Duration) *Handle {
	h := &Handle{script: s, lag: &indexLag{table, index, lag}, release: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lags = append(s.lags, h)
	s.applyLags()
	return h
}

// bind gives the script the engine it acts on.
func (s *Script) bind(t tables) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tables = t
	s.applyLags()
}

// tablesChanged makes the lags of indexes that are new take effect.
func (s *Script) tablesChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applyLags()
}

func (s *Script) applyLags() {
	if s.tables == nil {
		return
	}
	for _, h := range s.lags {
		// An error says that there is no such index: not yet.
		_ = s.tables.SetIndexLag(h.lag.table, h.lag.index, h.lag.lag)
	}
}

// collect lets the engine delete a table's expired items.
func (s *Script) collect(table string) {
	s.mu.Lock()
	t := s.tables
	s.mu.Unlock()
	if t != nil {
		// An error says that there is no such table, or that the storage
		// failed: the request that follows says so too.
		_, _ = t.CollectExpired(table)
	}
}

// Hits returns how often the rule has acted.
func (h *Handle) Hits() int { return int(h.hits.Load()) }

// Held returns how many requests the rule's delay or freeze has stopped that
// have not taken effect since (DelayResponse, FreezeResponse: not been
// answered since).
func (h *Handle) Held() int { return int(h.held.Load()) }

// Release lets all frozen requests go on, now and in future.
func (h *Handle) Release() { h.released.Do(func() { close(h.release) }) }

// Remove takes the rule out of force and releases what it holds.
func (h *Handle) Remove() {
	s := h.script
	s.mu.Lock()
	defer s.mu.Unlock()
	defer h.Release()
	if h.lag != nil {
		s.lags = without(s.lags, h)
		if s.tables != nil {
			_ = s.tables.SetIndexLag(h.lag.table, h.lag.index, 0) // no such index: nothing lags
		}
		return
	}
	s.rules = without(s.rules, h)
	s.active.Store(len(s.rules) > 0)
}

func without(handles []*Handle, h *Handle) []*Handle {
	kept := make([]*Handle, 0, len(handles))
	for _, x := range handles {
		if x != h {
			kept = append(kept, x)
		}
	}
	return kept
}

// A plan is what the rules decided about one request.
type plan struct {
	before, after []hold // before and after the request takes effect
	collect       bool   // collect expired items first
	closeIdle     bool   // close idle connections afterwards
	answer        Action // the first that answers; countOnly: none does
	answerKey     string // Key pattern of that rule
}

// decide returns nil when no rule acts on the call.
func (s *Script) decide(call *engine.Call) *plan {
	if !s.active.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var p *plan
	for _, h := range s.rules {
		if !h.rule.matches(call) || !h.acts() {
			continue
		}
		if p != nil && p.answer.kind != countOnly && h.rule.Action.answers() {
			continue // a rule before it has the answer
		}
		h.hits.Add(1)
		if p == nil {
			p = &plan{}
		}
		p.add(h)
	}
	return p
}

// acts decides about one more matching call.
func (h *Handle) acts() bool {
	h.matched++
	if h.matched <= h.rule.After || h.rule.Count > 0 && h.Hits() >= h.rule.Count {
		return false
	}
	return h.rule.Probability <= 0 || h.random.Float64() < h.rule.Probability
}

// answers tells the actions of which a request meets only one.
func (a Action) answers() bool {
	switch a.kind {
	case countOnly, holdRequest, holdResponse, collectExpired, closeIdle:
		return false
	}
	return true
}

func (p *plan) add(h *Handle) {
	switch h.rule.Action.kind {
	case countOnly:
	case holdRequest:
		p.before = append(p.before, newHold(h))
	case holdResponse:
		p.after = append(p.after, newHold(h))
	case collectExpired:
		p.collect = true
	case closeIdle:
		p.closeIdle = true
	default:
		p.answer, p.answerKey = h.rule.Action, h.rule.Key
	}
}

func (r *Rule) matches(call *engine.Call) bool {
	switch r.Action.kind {
	case answerErrorWith200:
		if call.Service != restXML.service() || call.Op == "GetObject" || strings.HasPrefix(call.Op, "Head") {
			return false
		}
	case answerConflict:
		if !conflicts(call) {
			return false
		}
	}
	return glob(r.Service, call.Service) && glob(r.Op, call.Op) && glob(r.Resource, call.Resource) &&
		glob(r.Index, call.Index) && glob(r.Caller, call.Caller) && glob(r.Label, call.Label) && r.matchesKey(call.Keys)
}

func (r *Rule) matchesKey(keys []string) bool {
	if r.Key == "" {
		return true
	}
	for _, key := range keys {
		if glob(r.Key, key) {
			return true
		}
	}
	return false
}

// conflicts reports whether DynamoDB answers the call with a transaction
// conflict when an item of it is in another transaction.
func conflicts(call *engine.Call) bool {
	switch call.Op {
	case "PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", "TransactGetItems":
		return call.Service == awsJSON.service()
	}
	return false
}

// conflict is the answer of a TransactionConflict rule with the key pattern.
func conflict(call *engine.Call, key string) *failure {
	if !strings.HasPrefix(call.Op, "Transact") {
		return &failure{status: 400, code: "TransactionConflictException", message: "Transaction is ongoing for the item"}
	}
	f := &failure{status: 400, code: "TransactionCanceledException"}
	const none = "None"
	found := false
	for _, k := range call.Keys {
		reason := none
		if !found && (key == "" || glob(key, k)) {
			reason, found = "TransactionConflict", true
		}
		f.reasons = append(f.reasons, reason)
	}
	f.message = "Transaction cancelled, please refer cancellation reasons for specific reasons [" + strings.Join(f.reasons, ", ") + "]"
	return f
}

// glob matches s against a pattern of Rule; the empty pattern matches all. It
// backtracks to the last '*' only, so its time is bounded by len(pattern) *
// len(s).
func glob(pattern, s string) bool {
	if pattern == "" {
		return true
	}
	p, i := 0, 0
	star, mark := -1, 0
	for i < len(s) {
		if p < len(pattern) {
			switch c := pattern[p]; {
			case c == '*':
				star, mark = p, i
				p++
				continue
			case c == '?':
				p++
				i++
				for i < len(s) && s[i]&0xc0 == 0x80 { // one character, not one byte
					i++
				}
				continue
			case c == '\\' && p+1 < len(pattern) && pattern[p+1] == s[i]:
				p += 2
				i++
				continue
			case c != '\\' && c == s[i]:
				p++
				i++
				continue
			}
		}
		if star < 0 {
			return false
		}
		mark++
		p, i = star+1, mark
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// A hold is a request stopped by a rule.
type hold struct {
	by    *Handle
	until time.Time // zero: until released
}

func newHold(h *Handle) hold {
	h.held.Add(1)
	if h.rule.Action.frozen {
		return hold{by: h}
	}
	return hold{by: h, until: time.Now().Add(h.rule.Action.delay)}
}

// wait returns when the hold is over, or with ctx's error when the client gave
// up first, or with errClosed when the server ended. It may be called again.
func (h hold) wait(ctx context.Context, closed <-chan struct{}) error {
	var timer <-chan time.Time // nil blocks for ever
	if !h.until.IsZero() {
		t := time.NewTimer(time.Until(h.until))
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-timer:
	case <-h.by.release:
	case <-closed:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// waitAll waits for all holds. They run at the same time.
func waitAll(ctx context.Context, holds []hold, closed <-chan struct{}) error {
	for _, h := range holds {
		if err := h.wait(ctx, closed); err != nil {
			return err
		}
	}
	return nil
}

func endAll(holds []hold) {
	for _, h := range holds {
		h.by.held.Add(-1)
	}
}
