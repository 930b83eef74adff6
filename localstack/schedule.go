package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/google/uuid"

	"drawbridge/localstack/template"
)

// A scheduler invokes functions on the schedules of the template, as EventBridge
// Scheduler does: at least once, at about the time. Every schedule has its own
// goroutine, so one that fails or hangs stops no other.
type scheduler struct {
	stack  template.Stack
	faults []scheduleFault
	log    *slog.Logger
	// speed divides the periods; 0 means that no schedule ever fires.
	speed float64

	running sync.WaitGroup
}

// A job is a schedule with the function it invokes.
type job struct {
	schedule template.Schedule
	timeout  time.Duration
	invoke   func(context.Context, json.RawMessage) error

	// busy is held by the invocation that runs. A tick that finds it held is
	// dropped: the one that runs does its work.
	busy sync.Mutex
}

// start fires the jobs until the context ends; wait returns when the last
// invocation has ended.
func (s *scheduler) start(ctx context.Context, jobs []*job) {
	if s.speed == 0 {
		return
	}
	for _, j := range jobs {
		s.running.Go(func() { s.run(ctx, j) })
	}
}

func (s *scheduler) wait() { s.running.Wait() }

func (s *scheduler) run(ctx context.Context, j *job) {
	period := time.Duration(float64(j.schedule.Local) / s.speed)
	ticker := time.NewTicker(max(period, time.Millisecond))
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case at := <-ticker.C:
			s.tick(ctx, j, n, at)
		}
	}
}

// tick delivers the nth tick as the fault script says. Deliveries run beside the
// ticker, so that a slow one delays no later tick.
func (s *scheduler) tick(ctx context.Context, j *job, n int, at time.Time) {
	event := s.event(j.schedule, at)
	for _, f := range s.faults {
		if !f.acts(j.schedule.Name, n) {
			continue
		}
		s.log.Info("schedule fault", "schedule", j.schedule.Name, "tick", n, "action", f.Action)
		switch f.Action {
		case "never":
			return
		case "late":
			s.running.Go(func() { s.later(ctx, j, event, time.Duration(f.By)) })
			return
		case "twice":
			s.running.Go(func() { s.deliver(ctx, j, event) })
			s.running.Go(func() { s.deliver(ctx, j, event) })
			return
		}
	}
	s.running.Go(func() { s.once(ctx, j, event) })
}

func (s *scheduler) later(ctx context.Context, j *job, event json.RawMessage, by time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(by):
		s.once(ctx, j, event)
	}
}

// once delivers unless an invocation of the same schedule still runs.
func (s *scheduler) once(ctx context.Context, j *job, event json.RawMessage) {
	if !j.busy.TryLock() {
		s.log.Debug("the sweep still runs", "schedule", j.schedule.Name)
		return
	}
	defer j.busy.Unlock()
	s.deliver(ctx, j, event)
}

// deliver invokes the function. A hub that stops lets it end, for stopGrace.
func (s *scheduler) deliver(hub context.Context, j *job, event json.RawMessage) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(hub), j.timeout)
	defer cancel()
	defer context.AfterFunc(hub, func() { time.AfterFunc(stopGrace, cancel) })()
	if err := guard(func() error { return j.invoke(ctx, event) }); err != nil {
		s.log.Error("the sweep failed", "schedule", j.schedule.Name, "error", err)
	}
}

// guard turns a panic into an error: one broken sweep must not take the hub down.
func guard(fn func() error) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("panic: %v\n%s", fault, debug.Stack())
		}
	}()
	return fn()
}

// event is what the scheduler hands to a function: the declared input, or its own
// event where there is none.
func (s *scheduler) event(schedule template.Schedule, at time.Time) json.RawMessage {
	if schedule.Input != "" {
		return json.RawMessage(schedule.Input)
	}
	arn := fmt.Sprintf("arn:aws:scheduler:%s:%s:schedule/default/%s", s.stack.Region, s.stack.Account, schedule.Name)
	return fmt.Appendf(nil, `{"version":"0","id":%q,"detail-type":"Scheduled Event","source":"aws.scheduler",`+
		`"account":%q,"time":%q,"region":%q,"resources":[%q],"detail":"{}"}`,
		uuid.NewString(), s.stack.Account, at.UTC().Format(time.RFC3339), s.stack.Region, arn)
}
