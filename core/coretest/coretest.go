package coretest

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"testing"
	"time"

	"drawbridge/core"
)

// Store is every port an adapter implements.
type Store interface {
	core.PresenceStore
	core.IdentityStore
	core.TokenRegistry
	core.SweepStore
}

// Harness is an empty store and the ways to make the network under it
// misbehave.
type Harness struct {
	Store Store
	// LoseNextWrite has the next write carried out and its answer lost, so that
	// the adapter sends it again. stop disarms it when nothing was written.
	LoseNextWrite func() (stop func())
	// ResendWrites delivers a copy of every write on an agent sent so far once
	// more and ignores the answers.
	ResendWrites func()
	// Seeds is how many random schedules to try.
	Seeds int
}

// Run checks an adapter. open returns a harness over a new, empty store.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	for _, topic := range []struct {
		name string
		run  func(*testing.T, func(*testing.T) *bench)
	}{
		{"Fencing", testFencing},
		{"Register", testRegister},
		{"Heartbeat", testHeartbeat},
		{"Status", testStatus},
		{"Sweep", testSweep},
		{"List", testList},
		{"Identity", testIdentity},
		{"Idempotency", testIdempotency},
		{"Tokens", testTokens},
		{"SweepHealth", testSweepHealth},
		{"Model", testDifferential},
	} {
		t.Run(topic.name, func(t *testing.T) {
			topic.run(t, func(t *testing.T) *bench { return newBench(t, open(t)) })
		})
	}
}

// Clock is a clock that only the test moves.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that stands at a fixed moment.
func NewClock() *Clock {
	return &Clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
}

// Now returns where the clock stands.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// bench is a hub over the store under test.
type bench struct {
	Harness
	t     *testing.T
	ctx   context.Context
	clock *Clock
	hub   *core.Hub
	tap   *tap
}

func newBench(t *testing.T, h Harness) *bench {
	b := &bench{Harness: h, t: t, ctx: t.Context(), clock: NewClock(), tap: &tap{Store: h.Store}}
	b.hub = b.newHub()
	return b
}

// newHub returns another hub over the same store, as another process has.
func (b *bench) newHub() *core.Hub {
	return NewHub(b.tap, b.clock)
}

// noMessages is a store without a message: what the reads of presence show of
// messages, and nothing else.
type noMessages struct{ core.MessageStore }

func (noMessages) CountInbox(context.Context, string, core.Instant, int) (int64, error) {
	return 0, nil
}

func (noMessages) ReadCounts(context.Context) (core.MessageCounts, error) {
	return core.MessageCounts{}, nil
}

func (noMessages) ReadTrace(context.Context, string, int) ([]core.Delivery, bool, error) {
	return nil, false, nil
}

func (noMessages) LoadPayloads(context.Context, []core.Delivery) error { return nil }

// noJobs is a store without a job.
type noJobs struct{ core.JobStore }

func (noJobs) ReadJobCounts(context.Context) (core.AssignCounts, error) {
	return core.AssignCounts{}, nil
}

// noRoles is a store without a role, and without a candidate of the legacy one.
type noRoles struct{ core.RoleStore }

func (noRoles) ReadLegacyRole(context.Context) (core.LegacyState, []string, error) {
	return core.LegacyState{}, nil, nil
}

func (noRoles) ReadAgents(context.Context, []string) ([]core.Agent, error) { return nil, nil }

// NewHub returns a hub over a store.
func NewHub(s Store, clock core.Clock) *core.Hub {
	return core.New(Ticks(core.Config{
		Presence: s, Identity: s, Sweeps: s, Messages: noMessages{}, Roles: noRoles{},
		Clock: clock, IDs: core.NewIDs(clock, rand.Reader),
		Jobs: noJobs{},
	}))
}

// meet makes the identity, so that the next write is the one under test.
func (b *bench) meet() {
	b.t.Helper()
	_, err := b.hub.Identity(b.ctx)
	b.must(err)
}

// tick moves the clock by the least that orders two writes.
func (b *bench) tick() { b.clock.Advance(time.Microsecond) }

func (b *bench) now() core.Instant { return core.InstantOf(b.clock.Now()) }

// tap stands between the hub and the store: it lets a test act between the
// moment an operation starts and the moment its write arrives, or between a
// sweep's read and its write.
type tap struct {
	Store
	mu   sync.Mutex
	acts map[string]func()
}

// The points at which a tap acts, once each.
const (
	beforeRegister   = "before register"
	beforeHeartbeat  = "before heartbeat"
	beforeStatus     = "before status change"
	beforeDue        = "before the sweep's read"
	afterDue         = "after the sweep's read"
	beforeTransition = "before the sweep's write"
	afterRead        = "after the registration's read"
)

// at has act run when the point is reached next.
func (p *tap) at(point string, act func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.acts == nil {
		p.acts = map[string]func(){}
	}
	p.acts[point] = act
}

func (p *tap) reach(point string) {
	p.mu.Lock()
	act := p.acts[point]
	delete(p.acts, point)
	p.mu.Unlock()
	if act != nil {
		act()
	}
}

func (p *tap) RegisterAgent(ctx context.Context, r core.AgentRegistration) (core.AgentWrite, error) {
	p.reach(beforeRegister)
	return p.Store.RegisterAgent(ctx, r)
}

func (p *tap) ReadRegistration(ctx context.Context, agentID, recordID string) (core.Agent, core.Opt[core.IdempotencyRecord], error) {
	agent, answer, err := p.Store.ReadRegistration(ctx, agentID, recordID)
	p.reach(afterRead)
	return agent, answer, err
}

func (p *tap) HeartbeatAgent(ctx context.Context, h core.AgentHeartbeat) (core.AgentWrite, error) {
	p.reach(beforeHeartbeat)
	return p.Store.HeartbeatAgent(ctx, h)
}

func (p *tap) ChangeAgentStatus(ctx context.Context, c core.AgentStatusChange) (core.AgentWrite, error) {
	p.reach(beforeStatus)
	return p.Store.ChangeAgentStatus(ctx, c)
}

func (p *tap) DueAgents(ctx context.Context, s core.DueScan) (core.DuePage, error) {
	p.reach(beforeDue)
	page, err := p.Store.DueAgents(ctx, s)
	p.reach(afterDue)
	return page, err
}

func (p *tap) TransitionAgent(ctx context.Context, t core.AgentTransition) (bool, error) {
	p.reach(beforeTransition)
	return p.Store.TransitionAgent(ctx, t)
}

// The operations below fail the test on an error and return their answer.

func (b *bench) register(id string) core.Registration {
	b.t.Helper()
	return b.registerWith(core.RegisterRequest{AgentID: id, CLI: "claude", TimeoutSec: core.Some(-60.0)})
}

func (b *bench) registerWith(r core.RegisterRequest) core.Registration {
	b.t.Helper()
	answer, err := b.hub.Register(b.ctx, r)
	b.must(err)
	return answer
}

func (b *bench) heartbeat(id string, generation int64) error {
	_, err := b.hub.Heartbeat(b.ctx, core.HeartbeatRequest{
		AgentID: id, TTLMs: core.Some(int64(60_000)), Fences: core.Fences{Generation: core.Some(generation)},
	})
	return err
}

func (b *bench) deregister(id string, generation int64) error {
	_, err := b.hub.Deregister(b.ctx, core.DeregisterRequest{AgentID: id, Fences: core.Fences{Generation: core.Some(generation)}})
	return err
}

func (b *bench) sweep() core.AgentSweep {
	b.t.Helper()
	counts, err := b.hub.SweepAgents(b.ctx)
	b.must(err)
	return counts
}

func (b *bench) agent(id string) core.Agent {
	b.t.Helper()
	agent, found, err := b.Store.ReadAgent(b.ctx, id)
	b.must(err)
	if !found {
		b.t.Fatalf("agent %s is unknown", id)
	}
	return agent
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) wantCode(err error, want core.Code) *core.Error {
	b.t.Helper()
	var refusal *core.Error
	if !errors.As(err, &refusal) || refusal.Code != want {
		b.t.Fatalf("error is %v, want %s", err, want)
	}
	return refusal
}

func (b *bench) wantAgent(id string, generation int64, status core.Status) core.Agent {
	b.t.Helper()
	agent := b.agent(id)
	if agent.Generation != generation || agent.Status != status {
		b.t.Fatalf("agent %s stands at generation %d %s, want %d %s", id, agent.Generation, agent.Status, generation, status)
	}
	return agent
}
