package fakeaws

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"drawbridge/localstack/fakeaws/engine"
)

// A Cost is what a set of requests amounted to. SDK retries are requests.
type Cost struct {
	// Requests that reached the server, refused and dropped ones included.
	Requests int
	// Rounds counts sequential round trips: a request that starts while no
	// other of the same set is in flight begins a new round. It is the latency
	// of the set in units of one request.
	Rounds int
	// ReadUnits and WriteUnits are DynamoDB capacity units over tables and
	// indexes, by AWS's rounding rules. Those of a request that took effect
	// after its caller had given up are counted when it did.
	ReadUnits, WriteUnits float64
	// Errors counts answers by AWS's error code, and under Dropped those that
	// never came.
	Errors map[string]int
	// ByOp splits the cost by operation ("UpdateItem", "PutObject"). A round
	// belongs to the operation that began it. Refused signatures, and bodies
	// that were refused before, are under Unauthenticated.
	ByOp map[string]OpCost
	// ByIndex splits the units by "table" and "table/index".
	ByIndex map[string]Units
	// Touched lists what was used, sorted, to be compared with IAM policies.
	// The overall meter does not keep it. It stops growing at 4,096 entries.
	Touched []Access
}

// Names in Cost for what has no error code or operation of its own.
const (
	Dropped         = "(dropped)"
	Unauthenticated = "(unauthenticated)"
	Others          = "(others)" // operations after the first 512 names
)

// OpCost is the share of one operation in a Cost.
type OpCost struct {
	Requests, Rounds      int
	ReadUnits, WriteUnits float64
}

// Units are capacity units of one table or index.
type Units struct{ Read, Write float64 }

// Access is one way in which a resource was used.
type Access struct {
	Op       string
	Resource string // table or bucket
	Index    string
	// KeyPrefix is the key up to and including its first '#' or '/', or the
	// whole key where it has neither.
	KeyPrefix string
}

const (
	maxLabels   = 4096 // labels arrive in a header: they must not fill the memory
	maxAccesses = 4096
	maxOps      = 512 // AWS's services have fewer; a client can send any name
)

// A Meter counts what requests cost: all of them, and those of each label.
type Meter struct {
	total  *tally
	mu     sync.Mutex
	labels map[string]*tally
}

func newMeter() *Meter {
	return &Meter{total: newTally(false), labels: map[string]*tally{}}
}

// Total returns the cost of every request since the start or the last Reset.
func (m *Meter) Total() Cost { return m.total.cost() }

// Label returns the cost of the requests of one label; of a label never seen
// it is zero. Only the first 4,096 labels are told apart.
func (m *Meter) Label(label string) Cost {
	m.mu.Lock()
	t := m.labels[label]
	m.mu.Unlock()
	if t == nil {
		return newTally(false).cost()
	}
	return t.cost()
}

// Labels returns the labels seen, sorted.
func (m *Meter) Labels() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := make([]string, 0, len(m.labels))
	for name := range m.labels {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Reset forgets everything counted so far. Requests in flight are counted
// when they end.
func (m *Meter) Reset() {
	m.total.reset()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.labels {
		t.reset()
	}
}

func (m *Meter) label(label string) *tally {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.labels[label]
	if t == nil && len(m.labels) < maxLabels {
		t = newTally(true)
		m.labels[strings.Clone(label)] = t
	}
	return t
}

// Measure runs fn and returns what the requests cost that were made through
// the in-process transport with its context or one derived from it.
func (s *Server) Measure(ctx context.Context, fn func(ctx context.Context)) Cost {
	t := newTally(true)
	was := tagOf(ctx)
	fn(context.WithValue(ctx, tagKey{}, &tag{label: was.label, tallies: append(slices.Clip(was.tallies), t)}))
	return t.cost()
}

// WithLabel marks the requests made with the context, for the meter and for
// fault scripts. It is seen through the in-process transport; over a socket
// the header X-Fakeaws-Label does the same.
func WithLabel(ctx context.Context, label string) context.Context {
	return context.WithValue(ctx, tagKey{}, &tag{label: label, tallies: tagOf(ctx).tallies})
}

// A tag travels in the context of in-process requests.
type tag struct {
	label   string
	tallies []*tally // of the Measure calls around the request
}

type tagKey struct{}

var noTag tag

func tagOf(ctx context.Context) *tag {
	if t, ok := ctx.Value(tagKey{}).(*tag); ok {
		return t
	}
	return &noTag
}

// A reading is one request while it is being metered.
type reading struct {
	total    *tally
	label    *tally // nil without a label
	measured []*tally
	began    uint64 // bit i: the request began a round of the i-th tally
}

// begin counts a request's arrival. The reading must be ended.
func (m *Meter) begin(t *tag) reading {
	r := reading{total: m.total, measured: t.tallies}
	if t.label != "" {
		r.label = m.label(t.label)
	}
	r.each(func(i int, t *tally) {
		if t.begin() {
			r.began |= 1 << i
		}
	})
	return r
}

func (r *reading) end(call *engine.Call, errorCode string, usage []engine.Usage) {
	r.each(func(i int, t *tally) { t.end(call, r.began>>i&1 == 1, errorCode, usage) })
}

// landed counts what a request consumed after its end.
func (r *reading) landed(call *engine.Call, usage []engine.Usage) {
	r.each(func(_ int, t *tally) { t.charge(call, usage) })
}

func (r *reading) each(fn func(i int, t *tally)) {
	fn(0, r.total)
	if r.label != nil {
		fn(1, r.label)
	}
	for i, t := range r.measured {
		fn(i+2, t)
	}
}

// A tally adds up one Cost.
type tally struct {
	mu       sync.Mutex
	inFlight int
	requests int
	rounds   int
	errors   map[string]int
	ops      map[string]*OpCost
	units    map[unitKey]*Units
	accesses map[Access]struct{} // nil: not kept
}

type unitKey struct{ table, index string }

func newTally(keepAccesses bool) *tally {
	t := &tally{}
	if keepAccesses {
		t.accesses = map[Access]struct{}{}
	}
	t.reset()
	return t
}

func (t *tally) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests, t.rounds = 0, 0
	t.errors, t.ops, t.units = map[string]int{}, map[string]*OpCost{}, map[unitKey]*Units{}
	clear(t.accesses)
}

func (t *tally) begin() (beganRound bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inFlight++
	return t.inFlight == 1
}

func (t *tally) end(call *engine.Call, beganRound bool, errorCode string, usage []engine.Usage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inFlight--
	t.requests++
	op := t.op(call)
	op.Requests++
	if beganRound {
		t.rounds++
		op.Rounds++
	}
	if errorCode != "" {
		t.errors[errorCode]++
	}
	t.add(op, usage)
	t.touch(call)
}

// charge counts units alone.
func (t *tally) charge(call *engine.Call, usage []engine.Usage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(t.op(call), usage)
}

// op is the share of the call's operation. t.mu is held.
func (t *tally) op(call *engine.Call) *OpCost {
	name := call.Op
	if _, known := t.ops[name]; !known && len(t.ops) >= maxOps {
		name = Others
	}
	return entry(t.ops, name)
}

// add counts units. t.mu is held.
func (t *tally) add(op *OpCost, usage []engine.Usage) {
	for _, u := range usage {
		units := entry(t.units, unitKey{u.Table, u.Index})
		units.Read += u.ReadUnits
		units.Write += u.WriteUnits
		op.ReadUnits += u.ReadUnits
		op.WriteUnits += u.WriteUnits
	}
}

// touch records what the call used. Names are copied: they may point into the
// request's body.
func (t *tally) touch(call *engine.Call) {
	if t.accesses == nil || call.Op == Unauthenticated {
		return
	}
	a := Access{Op: call.Op, Resource: call.Resource, Index: call.Index}
	if len(call.Keys) == 0 {
		t.addAccess(a)
	}
	for _, key := range call.Keys {
		a.KeyPrefix = key
		if i := strings.IndexAny(key, "#/"); i >= 0 {
			a.KeyPrefix = key[:i+1]
		}
		t.addAccess(a)
	}
}

func (t *tally) addAccess(a Access) {
	if _, ok := t.accesses[a]; ok || len(t.accesses) >= maxAccesses {
		return
	}
	t.accesses[Access{strings.Clone(a.Op), strings.Clone(a.Resource), strings.Clone(a.Index), strings.Clone(a.KeyPrefix)}] = struct{}{}
}

func entry[K comparable, V any](m map[K]*V, key K) *V {
	v := m[key]
	if v == nil {
		v = new(V)
		m[key] = v
	}
	return v
}

func (t *tally) cost() Cost {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := Cost{Requests: t.requests, Rounds: t.rounds, Errors: map[string]int{}, ByOp: map[string]OpCost{}, ByIndex: map[string]Units{}}
	for code, n := range t.errors {
		c.Errors[code] = n
	}
	for name, op := range t.ops {
		c.ByOp[name] = *op
	}
	for key, u := range t.units {
		name := key.table
		if key.index != "" {
			name += "/" + key.index
		}
		c.ByIndex[name] = *u
		c.ReadUnits += u.Read
		c.WriteUnits += u.Write
	}
	for a := range t.accesses {
		c.Touched = append(c.Touched, a)
	}
	slices.SortFunc(c.Touched, func(x, y Access) int {
		return cmp.Or(cmp.Compare(x.Op, y.Op), cmp.Compare(x.Resource, y.Resource), cmp.Compare(x.Index, y.Index), cmp.Compare(x.KeyPrefix, y.KeyPrefix))
	})
	return c
}
