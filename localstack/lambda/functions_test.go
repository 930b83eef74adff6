//go:build rie

package lambda

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"drawbridge/localstack/fakeaws"
	"drawbridge/localstack/template"
)

// patience bounds waits for what takes milliseconds.
const patience = 20 * time.Second

func TestEveryFunctionOfTheTemplateHasAnExercise(t *testing.T) {
	w := open(t)
	for _, f := range w.template.Functions {
		if _, there := exercises[f.Handler]; !there {
			t.Errorf("there is none for %s", f.Handler)
		}
	}
	if len(exercises) != len(w.template.Functions) {
		t.Errorf("%d exercises for %d functions", len(exercises), len(w.template.Functions))
	}
}

// each runs a test for every function at once with others.
func each(t *testing.T, run func(t *testing.T, f template.Function, e exercise)) {
	declared, err := template.Load("../../template.yaml", template.Local())
	must(t, err)
	for _, f := range declared.Functions {
		t.Run(f.Handler, func(t *testing.T) {
			t.Parallel()
			run(t, f, exercises[f.Handler])
		})
	}
}

// perform has the function do its exercise and returns the answer's status, 200
// for a sweep that succeeded.
func (w *world) perform(through http.Handler, f template.Function, e exercise) answer {
	w.t.Helper()
	if len(f.Routes) > 0 {
		return w.send(through, e.do, operatorToken)
	}
	var err error
	if through == w.near {
		err = w.sweep(f.Handler)
	} else {
		_, err = w.pool.Invoke(w.t.Context(), f.Handler, json.RawMessage(e.do.body))
	}
	if err != nil {
		return answer{status: http.StatusInternalServerError, text: err.Error()}
	}
	return answer{status: http.StatusOK}
}

func (e exercise) want() int {
	if e.status != 0 {
		return e.status
	}
	return http.StatusOK
}

// wantAgain is the status of a request that has happened before.
func (e exercise) wantAgain() int {
	if e.again != 0 {
		return e.again
	}
	return e.want()
}

func TestEveryFunctionAnswersAGoodEventAndABadOneAndSurvivesARestart(t *testing.T) {
	each(t, func(t *testing.T, f template.Function, e exercise) {
		w := open(t)
		w.prepare(e.before)
		var failed *FunctionError
		if _, err := w.pool.Invoke(t.Context(), f.Handler, []byte("no JSON")); !errors.As(err, &failed) {
			t.Fatalf("an event that is no JSON gives %v", err)
		}
		w.refusesBadRequests(f, e)
		first := w.perform(w.far, f, e)
		if first.status != e.want() {
			t.Fatalf("answer %d, want %d: %s", first.status, e.want(), first.text)
		}
		w.pool.Kill(f.Handler)
		second := w.perform(w.far, f, e)
		if second.status != e.wantAgain() {
			t.Fatalf("after a restart %d, want %d: %s", second.status, e.wantAgain(), second.text)
		}
		if e.do.key != "" {
			sameButReplayed(t, first, second)
		}
	})
}

// refusesBadRequests sends the exercise without a token, and a body that is none.
func (w *world) refusesBadRequests(f template.Function, e exercise) {
	w.t.Helper()
	if len(f.Routes) == 0 {
		return // a sweep reads no event
	}
	if f.Scope != "public" {
		if a := w.send(w.far, e.do, ""); a.status != http.StatusUnauthorized || a.at("error.code") != "UNAUTHORIZED" {
			w.t.Errorf("without a token: %d %s", a.status, a.text)
		}
	}
	if e.do.body == "" || e.want() != http.StatusOK {
		return // it reads no body
	}
	bad := e.do
	bad.body = "{bad"
	if a := w.send(w.far, bad, operatorToken); a.status != http.StatusBadRequest || a.at("error.code") != "INVALID_JSON" {
		w.t.Errorf("with a body that is no JSON: %d %s", a.status, a.text)
	}
}

// sameButReplayed fails unless the second answer is the first one, marked.
func sameButReplayed(t *testing.T, first, second answer) {
	t.Helper()
	if replayed, _ := second.body["replayed"].(bool); !replayed {
		t.Errorf("the repeated request was not recognised: %s", second.text)
	}
	if !reflect.DeepEqual(first.body["data"], second.body["data"]) {
		t.Errorf("the repeated request is answered %s, at first it was %s", second.text, first.text)
	}
}

// writes are the requests that change something.
var writes = []string{"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems", "PutObject", "DeleteObject", "DeleteObjects"}

// TestAFunctionThatDiesWhileItWritesLosesAndDoublesNothing ends the process when a
// write of its has taken effect and its answer is under way, at every write that it
// makes in turn, and has the client send the request again. A request that writes
// nothing dies at its first read.
func TestAFunctionThatDiesWhileItWritesLosesAndDoublesNothing(t *testing.T) {
	each(t, func(t *testing.T, f template.Function, e exercise) {
		made, want := undisturbed(t, f, e)
		for op, count := range made {
			for n := range count {
				w := open(t)
				w.prepare(e.before)
				w.dieAt(f, e, fakeaws.Rule{Op: op, After: n, Count: 1, Action: fakeaws.FreezeResponse()})
				if a := w.perform(w.far, f, e); a.status != e.want() && a.status != e.wantAgain() {
					t.Errorf("died at %s %d; sent again: %d %s", op, n, a.status, a.text)
				}
				if wrong := different(w.shape(), want); len(wrong) > 0 && e.grows == "" {
					t.Errorf("died at %s %d; the store differs:\n%s", op, n, strings.Join(wrong, "\n"))
				}
				w.pool.Close()
			}
		}
	})
}

// undisturbed tells which requests the exercise makes that are worth dying at, how
// many of each, and what the store looks like afterwards.
func undisturbed(t *testing.T, f template.Function, e exercise) (made map[string]int, shape map[string]int) {
	t.Helper()
	w := open(t)
	w.prepare(e.before)
	counts := map[string]*fakeaws.Handle{}
	for _, op := range writes {
		counts[op] = w.aws.Faults().Add(fakeaws.Rule{Op: op})
	}
	if a := w.perform(w.near, f, e); a.status != e.want() {
		t.Fatalf("in this process: %d %s", a.status, a.text)
	}
	made = map[string]int{}
	for op, count := range counts {
		if count.Hits() > 0 {
			made[op] = count.Hits()
		}
	}
	if len(made) == 0 {
		made["*"] = 1
	}
	return made, w.shape()
}

// dieAt ends the function when the rule holds a request of its.
func (w *world) dieAt(f template.Function, e exercise, rule fakeaws.Rule) {
	w.t.Helper()
	held := w.aws.Faults().Add(rule)
	defer held.Remove()
	done := make(chan answer, 1)
	go func() { done <- w.perform(w.far, f, e) }()
	for deadline := time.Now().Add(patience); held.Held() == 0; time.Sleep(time.Millisecond) {
		select {
		case a := <-done:
			w.t.Fatalf("it answered before it came so far: %d %s", a.status, a.text)
		default:
		}
		if time.Now().After(deadline) {
			w.t.Fatal("it neither came so far nor answered")
		}
	}
	w.pool.Kill(f.Handler)
	if a := <-done; a.status == http.StatusOK {
		w.t.Errorf("the client got an answer of a dead function: %s", a.text)
	}
}
