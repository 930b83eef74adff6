package core_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"drawbridge/core"
	"drawbridge/core/coretest"
)

// looks is a store in which what is waited for never comes: it keeps the moments
// at which somebody looked.
type looks struct {
	core.HumanRequestStore
	core.MessageStore
	core.PresenceStore
	request core.HumanRequest
	agent   core.Agent
	saved   []core.HumanChange
	at      []time.Duration
	begun   time.Time
}

func (l *looks) look() { l.at = append(l.at, time.Since(l.begun)) }

func (l *looks) ReadHumanRequest(context.Context, string) (core.HumanRequest, bool, error) {
	l.look()
	return l.request, true, nil
}

func (l *looks) SaveHumanRequest(_ context.Context, c core.HumanChange) (core.SaveOutcome, error) {
	l.saved = append(l.saved, c)
	return core.SaveOutcome{Done: true}, nil
}

func (l *looks) ReadAgent(_ context.Context, id string) (core.Agent, bool, error) {
	if id == "nobody" {
		l.look()
	}
	return l.agent, id == l.agent.ID, nil
}

func (l *looks) PutMessage(context.Context, core.Publication) (core.PublicationOutcome, error) {
	return core.PublicationOutcome{}, nil
}

func (l *looks) ReadAnswer(context.Context, string, core.Instant) (core.Answer, bool, error) {
	l.look()
	return core.Answer{}, false, nil
}

func (l *looks) hub() (*core.Hub, *coretest.Clock) {
	clock, model := coretest.NewClock(), coretest.NewModel()
	return core.New(core.Config{
		Presence: l, Identity: model, Humans: l, Messages: l, Clock: clock, IDs: core.NewIDs(clock, rand.Reader),
	}), clock
}

// Whatever a caller waits for, it waits as long as it asked for within the bounds,
// and looks soon at first and then every second.
func TestACallWaitsWithinItsBoundsAndLooksEverySecondInTheEnd(t *testing.T) {
	for name, wait := range map[string]func(*core.Hub, context.Context, int64) error{
		"for events": func(h *core.Hub, ctx context.Context, ms int64) error {
			_, err := h.Events(ctx, core.EventQuery{AgentID: "nobody", WaitMs: ms})
			return err
		},
		"for a person": func(h *core.Hub, ctx context.Context, ms int64) error {
			_, err := h.HumanRequest(ctx, core.HumanRead{RequestID: "r", WaitMs: ms})
			return err
		},
		"for an answer": func(h *core.Hub, ctx context.Context, ms int64) error {
			_, err := h.Ask(ctx, core.AskRequest{From: "b", To: "a", Topic: "t", Question: "q", Priority: 5, TTLMs: 1000, AwaitMs: ms})
			return err
		},
	} {
		for ms, want := range map[int64]time.Duration{-1: 0, 0: 0, 100: 100 * time.Millisecond, 25_000: 25 * time.Second, 25_001: 25 * time.Second, 1 << 40: 25 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				l := &looks{begun: time.Now()}
				hub, clock := l.hub()
				l.request = core.HumanRequest{ID: "r", State: core.HumanPending, Deadline: core.InstantOf(clock.Now()).Add(time.Hour), Version: 1}
				if err := wait(hub, t.Context(), ms); err != nil {
					t.Errorf("%s, %d ms: %v", name, ms, err)
				}
				if took := time.Since(l.begun); took != want {
					t.Errorf("%s, %d ms: it waits %v", name, ms, took)
				}
				if ms < 25_000 {
					return
				}
				var pauses []time.Duration
				for i := range l.at[1:] {
					pauses = append(pauses, l.at[i+1]-l.at[i])
				}
				if pauses[3] > 100*time.Millisecond || !slices.IsSorted(pauses[:len(pauses)-1]) || slices.Max(pauses) != time.Second || pauses[len(pauses)-2] != time.Second || len(pauses) > 40 {
					t.Errorf("%s, %d ms: it looks after %v", name, ms, pauses)
				}
			})
		}
	}
}

func TestAnAgentIsOfflineSinceItsLeaseEndedForGoodOrItLeft(t *testing.T) {
	offline := core.Instant(core.OfflineAfter / time.Millisecond)
	for _, test := range []struct {
		name   string
		status core.Status
		lease  core.Instant // from now
		want   core.Instant // from now
	}{
		{"its lease ended so long ago", core.StatusOnline, -offline - 7, -7},
		{"it left, and its lease had ended so long ago", core.StatusOffline, -offline - 7, -7},
		{"it left, and its lease would be over for good now", core.StatusOffline, -offline, -3},
		{"it left", core.StatusOffline, 1000, -3},
	} {
		l := &looks{}
		hub, clock := l.hub()
		now := core.InstantOf(clock.Now())
		l.agent = core.Agent{ID: "a", Generation: 1, Status: test.status, LeaseExpires: now + test.lease, LastSeen: now - 3, RegisteredAt: now - 9}
		page, err := hub.Events(t.Context(), core.EventQuery{AgentID: "a"})
		if err != nil || len(page.Agents) != 2 {
			t.Errorf("%s: %+v, %v", test.name, page, err)
			continue
		}
		if e := page.Agents[1]; e.Event != core.AgentOffline || e.At != now+test.want {
			t.Errorf("%s: %s, %d ms from now", test.name, e.Event, e.At-now)
		}
	}
}

func TestAQuestionToAPersonHasADeadlineWithinItsBounds(t *testing.T) {
	week := int64(7 * 24 * time.Hour / time.Millisecond)
	for ms, want := range map[int64]bool{999: false, 1000: true, week: true, week + 1: false, 0: false, -1: false} {
		l := &looks{}
		hub, clock := l.hub()
		asked, err := hub.AskHuman(t.Context(), core.HumanQuestion{Requester: "a", Kind: string(core.HumanKinds[0]), Prompt: "p", DeadlineMs: core.Some(ms)})
		if (err == nil) != want || len(l.saved) > 0 != want {
			t.Errorf("%d ms: %v", ms, err)
		}
		if want && asked.Deadline != core.InstantOf(clock.Now()).Add(time.Duration(ms)*time.Millisecond) {
			t.Errorf("%d ms: the deadline is %d", ms, asked.Deadline)
		}
	}
}

func TestARequestToAPersonIsOpenedForItsRequesterAsItIs(t *testing.T) {
	for _, test := range []struct {
		name       string
		generation int64
		final      bool
		want       core.Code
	}{
		{"as it is", 3, false, ""},
		{"of an earlier generation", 4, false, core.CodeStalePresenceOwner},
		{"retired", 3, true, core.CodeStalePresenceOwner},
	} {
		l := &looks{
			request: core.HumanRequest{ID: "r", Requester: "a", State: core.HumanState("accepted"), Version: 1},
			agent:   core.Agent{ID: "a", Generation: test.generation, Final: test.final},
		}
		hub, _ := l.hub()
		_, err := hub.HumanRequest(t.Context(), core.HumanRead{RequestID: "r", Fences: core.Fences{Generation: core.Some[int64](3)}})
		if core.CodeOf(err) != test.want {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestAStaleOwnerIsToldWhetherTheAgentIsKnown(t *testing.T) {
	clock, model := coretest.NewClock(), coretest.NewModel()
	hub := coretest.NewHub(model, clock)
	for _, want := range []string{"is unknown", "is current"} {
		_, err := hub.Heartbeat(t.Context(), core.HeartbeatRequest{AgentID: "a", Fences: core.Fences{Generation: core.Some[int64](9)}})
		if core.CodeOf(err) != core.CodeStalePresenceOwner || !strings.Contains(err.Error(), want) {
			t.Errorf("a heartbeat of an agent that %s: %v", want, err)
		}
		if _, err := hub.Register(t.Context(), core.RegisterRequest{AgentID: "a", CLI: "other"}); err != nil {
			t.Fatal(err)
		}
	}
}

// oneTeam is a store with the pipeline of one team.
type oneTeam struct {
	core.PipelineStore
	stands  core.Pipeline
	written []core.Pipeline
}

func (s *oneTeam) ReadPipeline(context.Context, string) (core.Pipeline, bool, error) {
	return s.stands, true, nil
}

func (s *oneTeam) WritePipeline(_ context.Context, next core.Pipeline) (bool, error) {
	s.written = append(s.written, next)
	return true, nil
}

func TestALoopOfAPipelineIsWithinItsBound(t *testing.T) {
	for most, want := range map[int64]string{-1: "-1 is refused", 0: "", 100: "", 101: "101 is refused"} {
		for _, loop := range []string{"fix", "ralph"} {
			clock, model, store := coretest.NewClock(), coretest.NewModel(), &oneTeam{}
			hub := core.New(core.Config{Identity: model, Pipelines: store, Clock: clock, IDs: core.NewIDs(clock, rand.Reader)})
			ask := core.InitRequest{Team: "t", FixMax: most}
			if loop == "ralph" {
				ask = core.InitRequest{Team: "t", RalphMax: most}
			}
			got := ""
			if _, err := hub.InitPipeline(t.Context(), ask); err != nil {
				got = fmt.Sprintf("%d is refused", most)
			}
			if got != want || len(store.written) > 0 != (want == "") {
				t.Errorf("%s: %q, not %q", loop, got, want)
			}
		}
	}
}

// Hosts' clocks differ: a pipeline's time does not go back.
func TestTheTimeOfAPipelineDoesNotGoBack(t *testing.T) {
	for ahead, want := range map[core.Instant]core.Instant{-5: 0, 0: 0, 5: 5} {
		clock, model := coretest.NewClock(), coretest.NewModel()
		now := core.InstantOf(clock.Now())
		store := &oneTeam{stands: core.Pipeline{Team: "t", Version: 4, UpdatedAt: now + ahead}}
		hub := core.New(core.Config{Identity: model, Pipelines: store, Clock: clock, IDs: core.NewIDs(clock, rand.Reader)})
		if _, err := hub.InitPipeline(t.Context(), core.InitRequest{Team: "t"}); err != nil || store.written[0].UpdatedAt != now+want {
			t.Errorf("written by a clock that is %d ms ahead: %+v, %v", ahead, store.written, err)
		}
	}
}

// readIdentities counts the reads of the hub's identity.
type readIdentities struct {
	core.IdentityStore
	reads int
}

func (r *readIdentities) ReadIdentity(ctx context.Context) (core.IdentityRecord, bool, error) {
	r.reads++
	return r.IdentityStore.ReadIdentity(ctx)
}

func TestACopyOfTheIdentityIsUsedForItsWindowOnly(t *testing.T) {
	for moved, want := range map[time.Duration]int{
		0: 1, core.IdentityWindow - 1: 1, core.IdentityWindow: 2,
		// A clock that was set back says nothing about the copy's age.
		-1: 2, -time.Hour: 2,
	} {
		clock := coretest.NewClock()
		store := &readIdentities{IdentityStore: coretest.NewModel()}
		hub := core.New(core.Config{Identity: store, Clock: clock, IDs: core.NewIDs(clock, rand.Reader)})
		for _, by := range []time.Duration{0, moved} {
			clock.Advance(by)
			if _, err := hub.Identity(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if store.reads != want {
			t.Errorf("after %v it was read %d times", moved, store.reads)
		}
	}
}

// The order of contract 4.7.
func TestTheCandidatesOfTheLegacyRoleAreInOrder(t *testing.T) {
	order := []core.Agent{
		{ID: "f", Capabilities: []string{"cto"}, Metadata: []byte(`{"priority":2}`), LastSeen: 1},
		{ID: "e", Capabilities: []string{"cto"}, LastSeen: 9},
		{ID: "d", Capabilities: []string{"cto"}, LastSeen: 8},
		{ID: "b", Capabilities: []string{"cto"}, LastSeen: 7},
		{ID: "c", Capabilities: []string{"cto"}, LastSeen: 7},
		{ID: "a", Topics: []string{"cto"}, Metadata: []byte(`{"priority":9}`), LastSeen: 99},
	}
	for _, turn := range [][]int{{0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}, {3, 0, 5, 1, 4, 2}} {
		d := newRoleDesk(t)
		for _, i := range turn {
			a := order[i]
			a.Status, a.LeaseExpires = core.StatusOnline, d.later(time.Minute)
			d.agents[a.ID] = a
			d.legacyIDs = append(d.legacyIDs, a.ID)
		}
		status, err := d.hub.Status(t.Context(), core.StatusQuery{Scope: core.StatusScopeHub})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, c := range status.Roles["cto"].Candidates {
			got += c.AgentID
		}
		if got != "fedbca" {
			t.Errorf("read as %v: %s", turn, got)
		}
	}
}
