package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// sweeping is how the schedules of a run behave.
type sweeping int

const (
	sweepsRun     sweeping = iota
	sweepsOverlap          // two of each, so that they run at once
	sweepsLag              // seldom
	sweepsNever            // not even at the end
)

func (s sweeping) String() string {
	return [...]string{"run", "overlap", "lag", "never run"}[s]
}

// focus is what the agents of a run do most of: where all do the same, they get
// into each other's way.
type focus int

const (
	onEverything focus = iota
	onMessages
	onRoles
	onWork
	onArchive
)

func (f focus) String() string {
	return [...]string{"everything", "messages", "roles", "work", "the archive"}[f]
}

// A plan is what a run is made of. The same plan gives the same run.
type plan struct {
	seed   uint64
	steps  int // that the scheduler takes before the faults end
	lambda bool
	sweeps sweeping
	focus  focus
	faults int // of a thousand requests
	lag    time.Duration
	tamper func(parameters any)
}

// planOf draws a plan from a seed. With DRAWBRIDGE_LONG=1 the run is long.
func planOf(seed uint64) plan {
	p := plan{seed: seed, steps: 700}
	if long() {
		p.steps = 2500
	}
	random := p.random("plan")
	p.lambda = random.IntN(3) > 0
	p.sweeps = sweeping(random.IntN(4))
	p.focus = focus(random.IntN(5))
	p.faults = []int{0, 15, 40, 90}[random.IntN(4)]
	if random.IntN(3) == 0 {
		p.lag = time.Duration(random.IntN(2000)) * time.Millisecond
	}
	return p
}

func (p plan) String() string {
	where := "one process"
	if p.lambda {
		where = "many instances"
	}
	return fmt.Sprintf("seed %d: on %s, %s, sweeps %s, %d of 1,000 requests in trouble, indexes lag %s", p.seed, p.focus, where, p.sweeps, p.faults, p.lag)
}

// A report is what a run came to.
type report struct {
	wrong   []string
	sum     string // of everything that happened
	tail    string
	steps   int
	calls   int
	changes int
	took    time.Duration // of the run's own time
	costs   map[string]int
}

// simulate carries out a plan.
func simulate(t *testing.T, p plan) report {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // see goroutine
	var done report
	synctest.Test(t, func(t *testing.T) {
		w := openWorld(t, p)
		w.populate()
		w.run()
		w.audit()
		w.must(w.aws.Close())
		done = report{
			wrong: w.wrong, sum: w.trace.sum(), tail: w.trace.last(tailLines), steps: w.scheduler.steps, calls: w.started,
			changes: w.monitor.changes, took: w.now().Sub(start), costs: w.costs,
		}
	})
	return done
}

// start lets somebody act until it is done.
func (w *world) start(name string, act func(*actor)) {
	a := &actor{w: w, name: name, random: w.plan.random("actor " + name)}
	w.running++
	go func() {
		defer func() { w.running-- }()
		a.think(time.Duration(a.random.IntN(1000)) * time.Millisecond)
		act(a)
	}()
}

// run is the scheduler at work: until the faults are over and everybody is done.
func (w *world) run() {
	random := w.plan.random("time")
	for {
		w.scheduler.settle()
		if !w.closing && w.scheduler.steps >= w.plan.steps {
			w.close()
			w.scheduler.settle()
		}
		ready, next, idle := w.scheduler.ready()
		switch {
		case idle && w.running == 0:
			return
		case idle:
			w.violatef("%v", errStuck)
			return
		case len(ready) == 0:
			w.scheduler.advance(next.Sub(w.now()))
			continue
		}
		w.happen(random)
		w.expire()
		w.scheduler.settle()
		if ready, _, _ = w.scheduler.ready(); len(ready) == 0 {
			continue
		}
		w.scheduler.release(w.scheduler.choose(ready))
	}
}

// happen lets time pass and things go wrong that are nobody's request.
func (w *world) happen(random *rand.Rand) {
	w.scheduler.advance(time.Duration(random.Int64N(int64(25 * time.Millisecond))))
	if n := len(w.network.late); n > 0 && random.IntN(25) == 0 {
		w.network.deliverLate(random.IntN(n))
	}
	if w.plan.faults == 0 || w.closing {
		return
	}
	switch random.IntN(1500) {
	case 0, 1, 2:
		if n := len(w.instances); n > 0 {
			if i := w.instances[random.IntN(n)]; !i.dead {
				w.crash(i)
			}
		}
	case 3, 4:
		if len(w.calls) > 0 {
			w.limit(w.calls[random.IntN(len(w.calls))])
		}
	case 5, 6:
		leap := time.Duration(random.Int64N(int64(90 * time.Second)))
		w.trace.addf("nothing moves for %s", leap)
		w.scheduler.advance(leap)
	}
}

// expire ends invocations that have run into their time limit.
func (w *world) expire() {
	for _, c := range slices.Clone(w.calls) {
		if w.now().Sub(c.begun) > c.limit {
			w.limit(c)
		}
	}
}

// limit ends an invocation as its time limit does: the handler answers, or
// fails, and asks AWS for nothing any more.
func (w *world) limit(c *call) {
	w.trace.addf("%s runs into its time limit", c.name)
	c.troubled = true
	c.cancel()
	w.scheduler.quiet()
}

// close ends the faults. Everybody comes to an end: what was asked is asked
// until it is answered.
func (w *world) close() {
	w.trace.addf("the faults are over")
	w.closing = true
	w.chance.faults = 0
	for len(w.network.late) > 0 {
		w.network.deliverLate(0)
	}
}

// An actor is somebody who uses the hub, or a schedule.
type actor struct {
	w      *world
	name   string
	random *rand.Rand
	serial int
}

// think does nothing for a while.
func (a *actor) think(d time.Duration) {
	w := &waiter{owner: a.name, what: "think", from: a.w.now().Add(d)}
	if err := a.w.scheduler.wait(context.Background(), w); err != nil {
		a.w.t.Error(err)
	}
}

func (a *actor) chance(of int) bool { return a.random.IntN(of) == 0 }

func (a *actor) between(least, most int) int { return least + a.random.IntN(most-least+1) }

// pick returns one of several.
func pick[T any](a *actor, of ...T) T { return of[a.random.IntN(len(of))] }

// unique names something.
func (a *actor) unique(what string) string {
	a.serial++
	return fmt.Sprintf("%s-%s-%d", what, a.name, a.serial)
}

func (a *actor) send(r request) answer { return a.w.send(a.name, a.random, r) }

// insist sends a request until its answer comes and says what became of it. What
// is repeated must be safe to repeat.
func (a *actor) insist(r request) answer {
	for {
		got := a.send(r)
		if !got.unknown() && got.status != 503 && got.status != 429 && got.code() != "CONTENDED" {
			return got
		}
		a.think(time.Duration(a.between(10, 500)) * time.Millisecond)
	}
}
