package core

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Each edge between before, at and after a moment is pinned here, whatever
// operation meets it.

const edge Instant = 1_760_000_000_000

func TestALeaseIsLiveUntilTheMomentItsRuleNames(t *testing.T) {
	agent := Agent{Status: StatusOnline, LeaseExpires: edge}
	offline := edge.Add(OfflineAfter)
	for now, want := range map[Instant]Status{
		edge - 1: StatusOnline, edge: StatusOnline, edge + 1: StatusStale,
		offline: StatusStale, offline + 1: StatusOffline,
	} {
		if got := agent.EffectiveStatus(now); got != want {
			t.Errorf("an agent, %d ms after its lease's end, is %s", now-edge, got)
		}
	}
	for now, want := range map[Instant]bool{edge - 1: false, edge: true, edge + 1: true} {
		job := ArchiveJob{Status: ArchiveLeased, Lease: &ArchiveLease{ExpiresAt: edge}}
		if got := job.Lapsed(now); got != want {
			t.Errorf("a job's lease, %d ms after its end, has lapsed: %v", now-edge, got)
		}
		if got := job.Retirable(now); got != want {
			t.Errorf("a leased job, %d ms after its lease's end, is retirable: %v", now-edge, got)
		}
		if _, err := job.Removed(now); (err == nil) != want {
			t.Errorf("a leased job, %d ms after its lease's end, is removed: %v", now-edge, err)
		}
		if got := (Message{ExpiresAt: edge}).Expired(now); got != want {
			t.Errorf("a message, %d ms after its end, has expired: %v", now-edge, got)
		}
	}
}

func TestAnAgentHangsAfterItsOwnDeadlineOnly(t *testing.T) {
	agent := Agent{Status: StatusOnline, LeaseExpires: edge.Add(time.Hour), StepAt: edge - 1000, StepDeadline: Some(time.Second)}
	for now, want := range map[Instant]bool{edge - 1: false, edge: false, edge + 1: true} {
		if since, hung := agent.Hung(now); hung != want || hung && since != edge {
			t.Errorf("%d ms after the deadline: hung %v since %d", now-edge, hung, since-edge)
		}
	}
	agent.StepDeadline = Opt[time.Duration]{}
	if _, hung := agent.Hung(edge.Add(time.Minute)); hung {
		t.Error("an agent without a deadline hangs")
	}
}

func TestATokenEndsAtItsMoment(t *testing.T) {
	for now, want := range map[Instant]TokenState{edge - 1: TokenActive, edge: TokenExpired, edge + 1: TokenExpired} {
		if got := (Token{ExpiresAt: edge}).State(now); got != want {
			t.Errorf("%d ms after its end a token is %s", now-edge, got)
		}
	}
	for _, test := range []struct {
		token Token
		state TokenState
		ends  Instant
	}{
		{Token{}, TokenActive, 0},
		{Token{ExpiresAt: edge + 2}, TokenActive, edge + 2},
		{Token{RevokedAt: edge}, TokenRevoked, edge},
		{Token{RevokedAt: edge, ExpiresAt: edge + 1}, TokenRevoked, edge},
		{Token{RevokedAt: edge + 1, ExpiresAt: edge}, TokenRevoked, edge},
	} {
		if test.token.State(edge) != test.state || test.token.Ends() != test.ends || test.token.Valid(edge) != (test.state == TokenActive) {
			t.Errorf("%+v is %s and ends at %d", test.token, test.token.State(edge), test.token.Ends())
		}
	}
}

func TestAJobIsClaimedFromItsMomentAndUpToItsAttempts(t *testing.T) {
	settings := ArchiveSettings{MaxAttempts: 3}
	leased := func(attempts int64) ArchiveJob {
		return ArchiveJob{Status: ArchiveLeased, Attempts: attempts, Lease: &ArchiveLease{ExpiresAt: edge}}
	}
	for _, test := range []struct {
		name                 string
		job                  ArchiveJob
		now                  Instant
		claimable, exhausted bool
	}{
		{"ready and early", ArchiveJob{Status: ArchiveReady, NextAttemptAt: edge}, edge - 1, false, false},
		{"ready", ArchiveJob{Status: ArchiveReady, NextAttemptAt: edge}, edge, true, false},
		{"ready, its attempts used up", ArchiveJob{Status: ArchiveReady, NextAttemptAt: edge, Attempts: 3}, edge, true, false},
		{"done", ArchiveJob{Status: ArchiveDone, NextAttemptAt: edge}, edge, false, false},
		{"under a lease", leased(1), edge - 1, false, false},
		{"lapsed", leased(2), edge, true, false},
		{"lapsed for the last time", leased(3), edge, false, true},
		{"in its last attempt", leased(3), edge - 1, false, false},
		{"leased without a lease", ArchiveJob{Status: ArchiveLeased}, edge, true, false},
	} {
		if claimable, exhausted := test.job.Claimable(test.now, settings), test.job.Exhausted(test.now, settings); claimable != test.claimable || exhausted != test.exhausted {
			t.Errorf("%s: claimable %v, exhausted %v", test.name, claimable, exhausted)
		}
	}
}

func TestAJobsAttemptsAreCountedWithinTheirBounds(t *testing.T) {
	settings := ArchiveSettings{MaxAttempts: 3, Backoff: time.Second, MaxBackoff: 3 * time.Second}
	for before, want := range map[int64]int64{0: 1, 2: 3, maxSafeInteger - 1: maxSafeInteger, maxSafeInteger: maxSafeInteger} {
		job := ArchiveJob{Status: ArchiveReady, Attempts: before}.Claimed("o", "l", time.Minute, edge)
		if job.Attempts != want {
			t.Errorf("claimed after %d attempts: %d", before, job.Attempts)
		}
	}
	for before, want := range map[int64]int64{0: 0, 1: 0, 3: 2} {
		job := ArchiveJob{Status: ArchiveLeased, Attempts: before, Lease: &ArchiveLease{ID: "l"}}
		if released, err := job.Released("l", nil, edge); err != nil || released.Attempts != want {
			t.Errorf("released in attempt %d: %d, %v", before, released.Attempts, err)
		}
	}
	for attempts, want := range map[int64]Instant{1: 1000, 2: 2000, 3: 0, 4: 0} {
		job := ArchiveJob{Status: ArchiveLeased, Attempts: attempts, Lease: &ArchiveLease{ID: "l"}}
		failed, err := job.Failed("l", ArchiveFailure{}, settings, edge)
		if err != nil || (failed.Status == ArchiveFailed) != (want == 0) || want != 0 && failed.NextAttemptAt != edge+want {
			t.Errorf("failed in attempt %d: %+v, %v", attempts, failed, err)
		}
	}
}

func TestAJobsLeaseIsItsIDsAndWhileItIsLeasedOnly(t *testing.T) {
	for name, job := range map[string]ArchiveJob{
		"another lease": {Status: ArchiveLeased, Lease: &ArchiveLease{ID: "other"}},
		"no lease":      {Status: ArchiveLeased},
		"a ready job":   {Status: ArchiveReady, Lease: &ArchiveLease{ID: "l"}},
	} {
		if _, err := job.Renewed("l", time.Minute, edge); CodeOf(err) != CodeQueueLeaseInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBackoffsGrowToTheirBound(t *testing.T) {
	s := ArchiveSettings{Backoff: time.Second, MaxBackoff: 5 * time.Second}
	for attempts, want := range map[int64]time.Duration{1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 4: 5 * time.Second, 1 << 40: 5 * time.Second} {
		if got := s.backoff(attempts); got != want {
			t.Errorf("after attempt %d: %v", attempts, got)
		}
	}
}

// A job's marker is at the moment from which it can be claimed; a lease that was
// left in a document of another status is none.
func TestAJobCanBeClaimedFromWhatItsStatusSays(t *testing.T) {
	lease := &ArchiveLease{ExpiresAt: edge + 2}
	for _, test := range []struct {
		name string
		job  ArchiveJob
		at   Instant
		ok   bool
	}{
		{"ready", ArchiveJob{Status: ArchiveReady}, edge + 1, true},
		{"ready, with a lease", ArchiveJob{Status: ArchiveReady, Lease: lease}, edge + 1, true},
		{"leased", ArchiveJob{Status: ArchiveLeased, Lease: lease}, edge + 2, true},
		{"leased without a lease", ArchiveJob{Status: ArchiveLeased}, edge, true},
		{"failed", ArchiveJob{Status: ArchiveFailed}, 0, false},
		{"failed, with a lease", ArchiveJob{Status: ArchiveFailed, Lease: lease}, 0, false},
		{"done, with a lease", ArchiveJob{Status: ArchiveDone, Lease: lease}, 0, false},
	} {
		test.job.UpdatedAt, test.job.NextAttemptAt = edge, edge+1
		if at, ok := test.job.ClaimableAt(); at != test.at || ok != test.ok {
			t.Errorf("%s: from %d on, %v", test.name, at, ok)
		}
	}
}

// The wait before a repeat is random, and never longer than its attempt's bound.
func TestAWaitBeforeARepeatIsWithinItsBound(t *testing.T) {
	for attempt, bound := range map[int]time.Duration{
		0: 5 * time.Millisecond, 1: 10 * time.Millisecond, 5: 160 * time.Millisecond, 6: 250 * time.Millisecond, 63: 250 * time.Millisecond, 64: 250 * time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) { // its clock moves only by what the waits ask for
			longest := time.Duration(0)
			for range 100 {
				began := time.Now()
				if err := Backoff(t.Context(), attempt); err != nil {
					t.Fatal(err)
				}
				longest = max(longest, time.Since(began))
			}
			if longest >= bound || longest < bound/4 {
				t.Errorf("the longest wait of attempt %d is %v, its bound %v", attempt, longest, bound)
			}
		})
	}
}

// A cursor holds what a store can have made: a text within bounds.
func TestACursorsPositionIsATextWithinItsBounds(t *testing.T) {
	for position, want := range map[string]bool{
		"": false, "x": true, strings.Repeat("x", maxPosition): true, strings.Repeat("x", maxPosition+1): false, "é": true, "x\xff": false,
	} {
		got, err := decodeCursor("list", encodeCursor("list", position))
		if (err == nil) != want || want && got != position {
			t.Errorf("%.20q of %d bytes: %.20q, %v", position, len(position), got, err)
		}
	}
}

func TestAHeartbeatOfAJobIsWithinItsBounds(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{
		MaxArchiveLease: maxArchiveHeartbeat,
		3 * (minArchiveHeartbeat - time.Millisecond): minArchiveHeartbeat, 3 * (maxArchiveHeartbeat + time.Millisecond): maxArchiveHeartbeat,
		3 * (maxArchiveHeartbeat - time.Millisecond): maxArchiveHeartbeat - time.Millisecond,
	} {
		if got := ArchiveHeartbeat(lease); got != want {
			t.Errorf("under a lease of %v: every %v, want %v", lease, got, want)
		}
	}
}

func TestALeaseThatAClaimAsksForIsWithinItsBounds(t *testing.T) {
	for lease, want := range map[time.Duration]bool{
		0: true, MinArchiveLease: true, MaxArchiveLease: true, MinArchiveLease - 1: false, MaxArchiveLease + 1: false, -1: false,
	} {
		if err := (ArchiveClaim{Owner: "o", Max: 1, Lease: lease}).Validate(); (err == nil) != want {
			t.Errorf("%v: %v", lease, err)
		}
	}
}

func TestASizeAndAMomentAreWithinTheirBounds(t *testing.T) {
	for n, want := range map[int64]bool{-1: false, 0: true, maxSafeInteger: true, maxSafeInteger + 1: false} {
		if err := checkSafe("n", n); (err == nil) != want {
			t.Errorf("%d: %v", n, err)
		}
	}
	for i, want := range map[Instant]bool{minInstant - 1: false, minInstant: true, maxInstant: true, maxInstant + 1: false} {
		if inYears0To9999(i) != want {
			t.Errorf("%d is in the years 0 to 9999: %v", i, !want)
		}
	}
}

func TestASweepsRunKeepsItsLongestLagAndItsTime(t *testing.T) {
	run := dueRun{now: edge}
	for _, oldest := range []Instant{edge - 5, edge - 9, edge - 7, 0} {
		run.fail(errCrowded(), oldest)
	}
	if run.lag != 9*time.Millisecond || run.failed == nil {
		t.Errorf("the lag is %v, the failure %v", run.lag, run.failed)
	}
	for took, want := range map[time.Duration]bool{sweepTime: true, sweepTime + 1: false} {
		run := dueRun{hub: &Hub{clock: fixedClock(edge.Time().Add(took))}, now: edge, started: edge.Time()}
		if got := run.look(duePage{oldest: edge - 3, items: 1}); got != want || !got && (run.lag != 3*time.Millisecond || !run.more) {
			t.Errorf("after %v it goes on: %v, its lag is %v", took, got, run.lag)
		}
	}
}

// A run whose time is up has left nothing undone where there is nothing, and is as
// late as the oldest thing that it left.
func TestASweepsRunWhoseTimeIsUpTellsWhatItLeft(t *testing.T) {
	for _, test := range []struct {
		oldest []Instant // of the first page of each shard
		lag    time.Duration
		more   bool
	}{
		{[]Instant{0, 0}, 0, false},
		{[]Instant{edge - 3, 0}, 3 * time.Millisecond, true},
		{[]Instant{edge - 7, edge - 3}, 7 * time.Millisecond, true},
		{[]Instant{edge - 3, edge - 7}, 7 * time.Millisecond, true},
	} {
		run := dueRun{hub: &Hub{clock: fixedClock(edge.Time().Add(sweepTime + 1))}, now: edge, started: edge.Time()}
		for _, oldest := range test.oldest {
			run.shards(1, func(int, string) (duePage, error) { return duePage{oldest: oldest}, nil })
		}
		if run.lag != test.lag || run.more != test.more || run.failed != nil {
			t.Errorf("pages from %v: the lag is %v, more %v, %v", test.oldest, run.lag, run.more, run.failed)
		}
	}
}

type fixedClock time.Time

func (c fixedClock) Now() time.Time { return time.Time(c) }

// markedJobs keeps the dispatches that were marked.
type markedJobs struct {
	JobStore
	mu    sync.Mutex
	marks []JobDispatch
}

func (m *markedJobs) MarkDispatched(_ context.Context, d JobDispatch) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.marks = append(m.marks, d)
	return true, nil
}

// Only the first delivery of what can be a dispatch moves a deadline, and never to
// before what the dispatch made it.
func TestADispatchIsMarkedAtItsFirstDelivery(t *testing.T) {
	for _, test := range []struct {
		name       string
		timeoutMs  int64
		deliveries int64
		created    Instant
		marked     Instant // 0: not
	}{
		{"handed out for the first time", 60_000, 1, edge - 5, edge},
		{"handed out before", 60_000, 2, edge - 5, 0},
		{"at the moment of its making", 60_000, 1, edge, edge},
		{"by a host whose clock is behind", 60_000, 1, edge + 5, edge + 5},
		{"with the shortest timeout", 1000, 1, edge, edge},
		{"with a shorter one", 999, 1, edge, 0},
		{"with the longest timeout", 86_400_000, 1, edge, edge},
		{"with a longer one", 86_400_001, 1, edge, 0},
	} {
		store := &markedJobs{}
		payload := fmt.Sprintf(`{"kind":"assign.job","reason":"create","assign_job_id":"j","attempt":3,"timeout_ms":%d}`, test.timeoutMs)
		(&Hub{jobs: store}).markDispatched(t.Context(), []Delivery{{Deliveries: test.deliveries,
			Message: Message{ID: "m", Type: MessageHandoff, CreatedAt: test.created, Payload: NewPayload([]byte(payload))}}}, edge)
		var want []JobDispatch
		if test.marked > 0 {
			want = []JobDispatch{{JobID: "j", MessageID: "m", Attempt: 3, At: test.marked, Timeout: time.Duration(test.timeoutMs) * time.Millisecond}}
		}
		if !slices.Equal(store.marks, want) {
			t.Errorf("%s: %+v, want %+v", test.name, store.marks, want)
		}
	}
}
