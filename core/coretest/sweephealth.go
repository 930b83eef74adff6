package coretest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"drawbridge/core"
)

func testSweepHealth(t *testing.T, open func(*testing.T) *bench) {
	health := func(b *bench) core.SweepRecord {
		b.t.Helper()
		h, err := b.hub.Health(b.ctx)
		b.must(err)
		return h.Sweeps[0]
	}

	t.Run("a sweep that never ran is reported as such", func(t *testing.T) {
		b := open(t)
		if r := health(b); r != (core.SweepRecord{Name: core.SweepPresence}) {
			t.Fatalf("the record is %+v", r)
		}
	})

	t.Run("failures add up until a success, and a lost answer counts once", func(t *testing.T) {
		b := open(t)
		_, err := b.hub.RunSweep(b.ctx, core.SweepPresence)
		b.must(err)
		success := b.now()
		failing := NewHub(failingDue{b.Store}, b.clock)
		for i := 1; i <= 3; i++ {
			b.clock.Advance(time.Minute)
			stop := b.LoseNextWrite()
			_, err := failing.RunSweep(b.ctx, core.SweepPresence)
			stop()
			b.wantCode(err, core.CodeUnavailable)
			want := core.SweepRecord{
				Name: core.SweepPresence, LastRunAt: b.now(), LastSuccessAt: success,
				ConsecutiveFailures: i, LastErrorCode: core.CodeUnavailable,
			}
			if r := health(b); r != want {
				t.Fatalf("the record is %+v, want %+v", r, want)
			}
		}
		b.clock.Advance(time.Minute)
		report, err := b.hub.RunSweep(b.ctx, core.SweepPresence)
		b.must(err)
		if r := health(b); r.ConsecutiveFailures != 0 || r.LastErrorCode != "" || r.LastSuccessAt != b.now() || report.Name != core.SweepPresence {
			t.Fatalf("after a success the record is %+v, the report %+v", r, report)
		}
	})

	t.Run("the lag is the last success's", func(t *testing.T) {
		b := open(t)
		for i, code := range []core.Code{"", core.CodeThrottled} {
			b.must(b.Store.RecordSweep(b.ctx, core.SweepOutcome{
				Name: core.SweepPresence, ErrorCode: code, Lag: time.Duration(7-7*i) * time.Second,
				WriteStamp: core.WriteStamp{WriteID: fmt.Sprint("w", i), Started: b.clock.Now()},
			}))
			if r := health(b); r.Lag != 7*time.Second || r.LastErrorCode != code {
				t.Fatalf("the record is %+v", r)
			}
		}
	})

	t.Run("a name that is no sweep is refused", func(t *testing.T) {
		b := open(t)
		_, err := b.hub.RunSweep(b.ctx, "nothing")
		b.wantCode(err, core.CodeNotFound)
	})
}

// failingDue is a store whose index does not answer.
type failingDue struct{ Store }

func (failingDue) DueAgents(context.Context, core.DueScan) (core.DuePage, error) {
	return core.DuePage{}, core.Wrap(core.CodeUnavailable, "the index is down", errors.New("cause with a secret"))
}
