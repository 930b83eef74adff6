package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// aloneFor is how much testing, measured without a mutant, each mutant gets on
// its own. What survives it meets the slower tests together with the others that
// did: a test that passes with many of them kills none.
const aloneFor = 3 * time.Second

// A verdict is what became of a mutant.
type verdict struct {
	mutant     mutant
	killer     string // the test that failed; "": none did
	unreached  bool   // no test passes its switch
	equivalent string // the reason, where it is on the list
}

// A judge finds the test that fails for each mutant.
type judge struct {
	suite   *suite
	log     io.Writer
	workers int

	mu      sync.Mutex
	killed  int
	killers map[string][]string // by file, the tests that killed mutants of it, the latest first
}

// kills tells whether a unit fails with a mutant, twice: once may be chance.
func (j *judge) kills(ctx context.Context, u unit, m mutant) (bool, error) {
	for range 2 {
		r, err := j.suite.run(ctx, u, []int{m.id}, limitOf(u))
		if err != nil || !r.failed {
			return false, err
		}
		if r.took >= limitOf(u) {
			return true, ctx.Err()
		}
	}
	return true, ctx.Err()
}

func limitOf(u unit) time.Duration { return 10*u.Took + patience }

func (j *judge) kill(v *verdict, u unit) {
	j.mu.Lock()
	defer j.mu.Unlock()
	v.killer = u.String()
	j.killed++
	fmt.Fprintf(j.log, "%4d  %s\n      killed by %s\n", j.killed, v.mutant.name, v.killer)
	others := slices.DeleteFunc(j.killers[v.mutant.file], func(name string) bool { return name == v.killer })
	if j.killers == nil {
		j.killers = map[string][]string{}
	}
	j.killers[v.mutant.file] = append([]string{v.killer}, others...)
}

// all judges the verdicts' mutants with the units, the quickest first, beginning
// with the test that killed it last time.
func (j *judge) all(ctx context.Context, verdicts []*verdict, units []unit, killers map[string]string) error {
	err := inParallel(verdicts, j.workers, func(v *verdict) error {
		if v.equivalent != "" {
			return nil // the group's tests are enough to find it killed
		}
		return j.alone(ctx, v, units, killers[v.mutant.name])
	})
	if err != nil {
		return err
	}
	return inParallel(units, j.workers, func(u unit) error {
		var left []*verdict
		for _, v := range verdicts {
			if v.killer == "" && reaches(u, v.mutant) {
				left = append(left, v)
			}
		}
		if len(left) == 0 {
			return nil
		}
		return j.together(ctx, left, u)
	})
}

func reaches(u unit, m mutant) bool {
	_, found := slices.BinarySearch(u.Reaches, m.id)
	return found
}

// alone tries a mutant on the test that killed it before and on the quick ones.
func (j *judge) alone(ctx context.Context, v *verdict, units []unit, killer string) error {
	j.mu.Lock()
	likely := append([]string{killer}, j.killers[v.mutant.file]...)
	j.mu.Unlock()
	tests := quickest(v.mutant, units, likely)
	v.unreached = len(tests) == 0
	for _, u := range tests {
		killed, err := j.kills(ctx, u, v.mutant)
		if err != nil {
			return err
		}
		if killed {
			j.kill(v, u)
			return nil
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprintf(j.log, "      no quick test kills %s\n", v.mutant.name)
	return nil
}

// quickest are the tests that a mutant meets on its own, of those that pass its
// switch: the quickest, one at least. The one that killed it before and those that
// killed its neighbours go first.
func quickest(m mutant, units []unit, likely []string) []unit {
	var tests []unit
	spent := time.Duration(0)
	for _, u := range units {
		if !slices.Contains(m.target.tests, u.Folder) || !reaches(u, m) {
			continue
		}
		if u.String() == likely[0] {
			tests = append(tests, u)
		} else if spent += u.Took; spent <= aloneFor || len(tests) == 0 {
			tests = append(tests, u)
		}
	}
	rank := func(u unit) int {
		if at := slices.Index(likely, u.String()); at >= 0 {
			return at
		}
		return len(likely)
	}
	slices.SortStableFunc(tests, func(a, b unit) int { return cmp.Compare(rank(a), rank(b)) })
	return tests
}

// together runs a unit with many mutants at once and, where it fails, with the
// halves of them, down to those that make it fail.
func (j *judge) together(ctx context.Context, verdicts []*verdict, u unit) error {
	if len(verdicts) == 1 {
		killed, err := j.kills(ctx, u, verdicts[0].mutant)
		if killed && err == nil {
			j.kill(verdicts[0], u)
		}
		return err
	}
	ids := make([]int, len(verdicts))
	for i, v := range verdicts {
		ids[i] = v.mutant.id
	}
	r, err := j.suite.run(ctx, u, ids, limitOf(u))
	if err != nil || !r.failed {
		return err
	}
	half := len(verdicts) / 2
	if err := j.together(ctx, verdicts[:half], u); err != nil {
		return err
	}
	return j.together(ctx, verdicts[half:], u)
}

// inParallel calls fn for each element, so many at a time, and stops at the
// first failure.
func inParallel[T any](list []T, width int, fn func(T) error) error {
	var wait sync.WaitGroup
	var mu sync.Mutex
	var failed error
	next := 0
	take := func() (T, bool) {
		mu.Lock()
		defer mu.Unlock()
		if failed != nil || next == len(list) {
			var none T
			return none, false
		}
		next++
		return list[next-1], true
	}
	for range width {
		wait.Go(func() {
			for {
				element, more := take()
				if !more {
					return
				}
				if err := fn(element); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			}
		})
	}
	wait.Wait()
	return failed
}
