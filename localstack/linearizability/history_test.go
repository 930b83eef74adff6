package linearizability

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"drawbridge/core"
)

// told is what a caller learnt of what it asked; the zero value says "done".
type told struct {
	Code    core.Code // of the refusal
	Unknown bool
	Nothing bool
}

func (t told) outcome() told { return t }

var unknown = told{Unknown: true}

// tell reads an error: a refusal depends on the state and is part of the
// history, everything else says what may have happened.
func tell(err error) told {
	code := core.CodeOf(err)
	switch code.Entry().Kind {
	case core.KindConflict, core.KindNotFound:
		return told{Code: code}
	}
	switch {
	case code == "":
		return told{}
	case code == core.CodeOutcomeUnknown:
		return unknown
	}
	return told{Nothing: true}
}

// An answer is a reply that models compare.
type answer interface {
	comparable
	outcome() told
}

// A model is a sequential specification: what a call makes of a state, and what
// it answers. also, where it is set, tells the states that a call may leave
// behind in others' name (a drain that clears up), whatever it answers.
type model[S comparable, C any, R answer] struct {
	start S
	after func(S, C) (S, R)
	also  func(S, C) []S
	// part, where it is set, names the thing that a call is about: each is a
	// history of its own.
	part func(C) string
}

func (m model[S, C, R]) step(s S, asked C, replied R) []S {
	next, want := m.after(s, asked)
	switch outcome := replied.outcome(); {
	case outcome.Unknown:
		return []S{s, next}
	case outcome.Nothing:
		return []S{s}
	case replied == want:
		return []S{next}
	}
	return nil
}

func (m model[S, C, R]) porcupine() porcupine.Model {
	spec := porcupine.NondeterministicModel{
		Init: func() []any { return []any{m.start} },
		Step: func(state, input, output any) []any {
			var states []any
			for _, next := range m.step(state.(S), input.(C), output.(R)) {
				states = append(states, next)
				if m.also != nil {
					for _, other := range m.also(next, input.(C)) {
						states = append(states, other)
					}
				}
			}
			return states
		},
		Equal:             func(a, b any) bool { return a.(S) == b.(S) },
		Hash:              hash,
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
	spec.Partition = m.parts
	return spec.ToModel()
}

// parts are the histories of the things that the calls are about.
func (m model[S, C, R]) parts(all []porcupine.Operation) [][]porcupine.Operation {
	if m.part == nil {
		return [][]porcupine.Operation{all}
	}
	byName := map[string][]porcupine.Operation{}
	for _, o := range all {
		name := m.part(o.Input.(C))
		byName[name] = append(byName[name], o)
	}
	return slices.Collect(maps.Values(byName))
}

func hash(state any) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%+v", state) // a hash.Hash never fails
	return h.Sum64()
}

// A history is what callers asked and were told.
type history struct {
	begun time.Time

	mu         sync.Mutex
	operations []porcupine.Operation
}

func newHistory() *history { return &history{begun: time.Now()} }

// since is the time in the history.
func (h *history) since() int64 { return int64(time.Since(h.begun)) }

// record lets a caller ask and keeps the call and its reply.
func record[C any, R answer](h *history, c *caller, asked C, ask func() (C, R)) R {
	from, lost := h.since(), c.network.lost.Load()
	full, reply := ask()
	h.add(c.number, full, reply, from, h.since(), c.network.lost.Load() > lost)
	return reply
}

// add keeps a call with its reply. What is unknown may happen at any later time:
// a request that nobody waits for can still arrive. When an answer was lost, a
// call whose second try may have met others' work tells by its method twice, with
// a reply of unknown outcome, that it may have happened before that, too.
func (h *history) add(caller int, asked any, reply interface{ outcome() told }, from, to int64, lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if reply.outcome().Unknown {
		to = math.MaxInt64
	}
	h.operations = append(h.operations, porcupine.Operation{ClientId: caller, Input: asked, Output: reply, Call: from, Return: to})
	if again, ok := asked.(interface{ twice(t told) any }); ok && lost {
		if first := again.twice(reply.outcome()); first != nil {
			h.operations = append(h.operations, porcupine.Operation{ClientId: caller, Input: asked, Output: first, Call: from, Return: to})
		}
	}
}

// checkTime bounds the search for an order: that one was not found in it fails a
// test, too.
const checkTime = 30 * time.Second

// A specification is a model as porcupine takes it, and how it takes a history
// apart.
type specification interface {
	porcupine() porcupine.Model
	parts(all []porcupine.Operation) [][]porcupine.Operation
}

// check fails the test unless the history has an order that the model allows.
func check(t *testing.T, m specification, h *history) {
	t.Helper()
	spec := m.porcupine()
	if verdict := h.judge(t, spec, checkTime); verdict != porcupine.Ok {
		for _, part := range m.parts(h.operations) {
			if porcupine.CheckOperationsTimeout(spec, part, checkTime) != porcupine.Ok {
				printOperations(t, part)
			}
		}
		t.Fatalf("the history of %d calls is %s", len(h.operations), verdict)
	}
}

// judge looks for an order, and draws the history where somebody asked for it.
func (h *history) judge(t *testing.T, m porcupine.Model, limit time.Duration) porcupine.CheckResult {
	t.Helper()
	folder := os.Getenv("DRAWBRIDGE_HISTORIES")
	if folder == "" {
		return porcupine.CheckOperationsTimeout(m, h.operations, limit)
	}
	end := h.since() // an endless call would hide all others in the picture
	for i := range h.operations {
		h.operations[i].Return = min(h.operations[i].Return, end)
	}
	verdict, info := porcupine.CheckOperationsVerbose(m, h.operations, limit)
	name := strings.NewReplacer("/", "-", " ", "-").Replace(t.Name()) + ".html"
	if err := porcupine.VisualizePath(m, info, filepath.Join(folder, name)); err != nil {
		t.Fatal(err)
	}
	return verdict
}

func printOperations(t *testing.T, operations []porcupine.Operation) {
	t.Helper()
	slices.SortFunc(operations, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for _, o := range operations {
		t.Logf("%9d..%9d caller %d: %+v → %+v", o.Call/1000, o.Return/1000, o.ClientId, o.Input, o.Output)
	}
}

// count tells how many calls were answered so.
func (h *history) count(which func(told) bool) int {
	n := 0
	for _, o := range h.operations {
		if which(o.Output.(interface{ outcome() told }).outcome()) {
			n++
		}
	}
	return n
}

func isDone(t told) bool { return t == told{} }

// detailsOf are the details of an error of the hub.
func detailsOf(err error) map[string]any {
	var refusal *core.Error
	if !errors.As(err, &refusal) {
		return nil
	}
	return refusal.Details
}
