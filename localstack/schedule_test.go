package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"drawbridge/localstack/template"
)

// fire runs a schedule of 10 s with invocations that take so long, for a minute
// and a bit of fake time, and returns the seconds at which they began and how many
// ran at once at most.
func fire(t *testing.T, takes time.Duration, speed float64, faults ...scheduleFault) (begun []int, most int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		running := 0
		gate := make(chan struct{}, 1) // guards the counts
		gate <- struct{}{}
		count := func(change int) {
			<-gate
			running += change
			most = max(most, running)
			if change > 0 {
				begun = append(begun, int(time.Since(start).Seconds()))
			}
			gate <- struct{}{}
		}
		s := &scheduler{stack: template.Local(), faults: faults, log: slog.New(slog.DiscardHandler), speed: speed}
		ctx, cancel := context.WithCancel(t.Context())
		s.start(ctx, []*job{{
			schedule: template.Schedule{Name: "Sweep", Local: 10 * time.Second},
			timeout:  time.Hour,
			invoke: func(context.Context, json.RawMessage) error {
				count(+1)
				defer count(-1)
				time.Sleep(takes)
				return nil
			},
		}})
		time.Sleep(61 * time.Second)
		cancel()
		s.wait()
	})
	slices.Sort(begun)
	return begun, most
}

func TestSchedulesFireInTheirLocalPeriodAndAsTheFaultsSay(t *testing.T) {
	for _, c := range []struct {
		name   string
		takes  time.Duration
		speed  float64
		faults []scheduleFault
		want   []int
		most   int
	}{
		{"as declared", 0, 1, nil, []int{10, 20, 30, 40, 50, 60}, 1},
		{"faster", 0, 0.5, nil, []int{20, 40, 60}, 1},
		{"never, by the flag", 0, 0, nil, nil, 0},
		{"no overlap with one that still runs", 15 * time.Second, 1, nil, []int{10, 30, 50}, 1},
		{"two ticks are lost", 0, 1, []scheduleFault{{Schedule: "*", After: 1, Count: 2, Action: "never"}}, []int{10, 40, 50, 60}, 1},
		{"frozen from the third on", 0, 1, []scheduleFault{{Schedule: "Swe*", After: 2, Action: "never"}}, []int{10, 20}, 1},
		{"one is late, and delays no other", 0, 1, []scheduleFault{{Schedule: "*", Count: 1, Action: "late", By: period(25 * time.Second)}}, []int{20, 30, 35, 40, 50, 60}, 1},
		{"one comes twice, at once", time.Second, 1, []scheduleFault{{Schedule: "*", Count: 1, Action: "twice"}}, []int{10, 10, 20, 30, 40, 50, 60}, 2},
		{"faults of another schedule", 0, 1, []scheduleFault{{Schedule: "Other", Action: "never"}}, []int{10, 20, 30, 40, 50, 60}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			begun, most := fire(t, c.takes, c.speed, c.faults...)
			if !slices.Equal(begun, c.want) || most != c.most {
				t.Errorf("fired at %v, %d at once; want %v, %d", begun, most, c.want, c.most)
			}
		})
	}
}

func TestABrokenSweepStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		schedule := template.Schedule{Name: "Sweep", Local: time.Second}
		var log strings.Builder
		s := &scheduler{stack: template.Local(), log: slog.New(slog.NewTextHandler(&log, nil)), speed: 1}
		ctx, cancel := context.WithCancel(t.Context())
		healthy := 0
		s.start(ctx, []*job{
			{schedule: schedule, timeout: time.Second, invoke: func(context.Context, json.RawMessage) error { panic("broken") }},
			{schedule: schedule, timeout: time.Hour, invoke: func(context.Context, json.RawMessage) error { healthy++; return nil }},
		})
		time.Sleep(3500 * time.Millisecond)
		cancel()
		s.wait()
		if healthy != 3 {
			t.Errorf("the healthy sweep ran %d times", healthy)
		}
		if n := strings.Count(log.String(), "panic: broken"); n != 3 {
			t.Errorf("the broken sweep was logged %d times: %s", n, log.String())
		}
	})
}

func TestASweepIsCutAtItsTimeoutAndEndsBeforeTheHubStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scheduler{stack: template.Local(), log: slog.New(slog.DiscardHandler), speed: 1}
		ctx, cancel := context.WithCancel(t.Context())
		var cause error
		s.start(ctx, []*job{{
			schedule: template.Schedule{Name: "Sweep", Local: time.Second}, timeout: 5 * time.Second,
			invoke: func(ctx context.Context, _ json.RawMessage) error { <-ctx.Done(); cause = ctx.Err(); return cause },
		}})
		time.Sleep(1500 * time.Millisecond)
		cancel() // while it runs
		s.wait()
		if !errors.Is(cause, context.DeadlineExceeded) {
			t.Errorf("the sweep ended with %v", cause)
		}
	})
}

func TestASweepThatHangsHoldsAStoppingHubUpForTheGraceOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scheduler{stack: template.Local(), log: slog.New(slog.DiscardHandler), speed: 1}
		ctx, cancel := context.WithCancel(t.Context())
		s.start(ctx, []*job{{
			schedule: template.Schedule{Name: "Sweep", Local: time.Second},
			timeout:  time.Hour,
			invoke: func(ctx context.Context, _ json.RawMessage) error {
				<-ctx.Done()
				return ctx.Err()
			},
		}})
		time.Sleep(2 * time.Second)
		cancel()
		stopped := time.Now()
		s.wait()
		if waited := time.Since(stopped); waited != stopGrace {
			t.Errorf("the hub waited for %v, want %v", waited, stopGrace)
		}
	})
}

func TestTheEventIsTheInputOrTheSchedulersOwn(t *testing.T) {
	s := &scheduler{stack: template.Local()}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if got := s.event(template.Schedule{Input: `{"a":1}`}, at); string(got) != `{"a":1}` {
		t.Errorf("got %s", got)
	}
	var own struct {
		Type      string `json:"detail-type"`
		Source    string
		Time      time.Time
		Resources []string
	}
	if err := json.Unmarshal(s.event(template.Schedule{Name: "Tick"}, at), &own); err != nil {
		t.Fatal(err)
	}
	if own.Type != "Scheduled Event" || own.Source != "aws.scheduler" || !own.Time.Equal(at) ||
		!slices.Equal(own.Resources, []string{"arn:aws:scheduler:us-east-1:000000000000:schedule/default/Tick"}) {
		t.Errorf("got %+v", own)
	}
}
