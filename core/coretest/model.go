package coretest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"drawbridge/core"
)

// Model is a store in memory that takes one call at a time: the specification
// of the ports in code, and the second adapter that validates the suite.
type Model struct {
	mu       sync.Mutex
	agents   map[string]*modelAgent
	answers  map[string]core.IdempotencyRecord
	identity *core.IdentityRecord
	tokens   map[string]core.Token
	sweeps   map[string]core.SweepRecord
	swept    map[string]string // sweep's name: write id of its last outcome
	lose     int               // answers of writes still to lose
	sent     []func()          // what a delayed copy of each write on an agent would do
}

type modelAgent struct {
	core.Agent
	writeID string
	touched time.Time
	sweptID string
}

// NewModel returns an empty store.
func NewModel() *Model {
	return &Model{
		agents:  map[string]*modelAgent{},
		answers: map[string]core.IdempotencyRecord{},
		tokens:  map[string]core.Token{},
		sweeps:  map[string]core.SweepRecord{},
		swept:   map[string]string{},
	}
}

// LoseNextWrite loses the answer of the next write: it is sent a second time.
func (m *Model) LoseNextWrite() (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lose++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.lose = 0
	}
}

// ResendWrites delivers a copy of every write so far again, as a network does
// that delays what it already delivered.
func (m *Model) ResendWrites() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, again := range m.sent {
		again()
	}
}

// Describe implements core.IdentityStore.
func (m *Model) Describe() (kind, name, fingerprint string) {
	return "model", "model", "model:" + strings.Repeat("0", 64)
}

// once runs a write, and a second time when its answer is lost.
func once[T any](m *Model, write func() T) T {
	result := write()
	if m.lose > 0 {
		m.lose--
		result = write()
	}
	return result
}

// RegisterAgent implements core.PresenceStore.
func (m *Model) RegisterAgent(_ context.Context, r core.AgentRegistration) (core.AgentWrite, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = append(m.sent, func() {
		if a := m.agents[r.AgentID]; a.writeID != r.WriteID && !a.touched.After(r.Started) {
			m.register(r)
		}
	})
	return once(m, func() core.AgentWrite {
		if a := m.agents[r.AgentID]; a != nil && a.writeID == r.WriteID {
			return core.AgentWrite{Agent: a.copy(), Replayed: true}
		}
		return core.AgentWrite{Agent: m.register(r)}
	}), nil
}

func (m *Model) register(r core.AgentRegistration) core.Agent {
	a := m.agents[r.AgentID]
	if a == nil {
		a = &modelAgent{Agent: core.Agent{ID: r.AgentID, Locators: json.RawMessage("[]")}}
		m.agents[r.AgentID] = a
	}
	now := core.InstantOf(r.Started)
	overtaken := a.touched.After(r.Started)
	a.Generation++
	a.CLI, a.Metadata = r.CLI, r.Metadata
	a.Capabilities, a.Topics = append([]string{}, r.Capabilities...), append([]string{}, r.Topics...)
	keep(&a.ProjectID, r.ProjectID)
	keep(&a.SessionID, r.SessionID)
	keep(&a.HostID, r.HostID)
	keep(&a.Locators, r.Locators)
	a.Step, a.StepAt, a.StepDeadline = r.Step, now, r.StepDeadline
	a.Status, a.Final, a.RegisteredAt, a.LastSeen, a.LeaseExpires = core.StatusOnline, false, now, now, r.LeaseExpires
	a.due(r.LeaseExpires)
	a.stamp(r.WriteStamp)
	if overtaken {
		a.touched = a.touched.Add(time.Microsecond)
	}
	return a.copy()
}

func keep[T any](field *T, v core.Opt[T]) {
	if v.Set {
		*field = v.Value
	}
}

// due leaves an entry that is early where it is.
func (a *modelAgent) due(deadline core.Instant) {
	if a.DueAt == 0 || a.DueAt > deadline {
		a.DueAt = deadline
	}
}

// stamp marks the write; the order of writes never goes back.
func (a *modelAgent) stamp(s core.WriteStamp) {
	a.writeID = s.WriteID
	if s.Started.After(a.touched) {
		a.touched = s.Started
	}
}

func (a *modelAgent) copy() core.Agent {
	c := a.Agent
	c.Capabilities, c.Topics, c.TouchedAt = slices.Clone(a.Capabilities), slices.Clone(a.Topics), a.touched
	return c
}

// ReadRegistration implements core.PresenceStore.
func (m *Model) ReadRegistration(_ context.Context, agentID, recordID string) (core.Agent, core.Opt[core.IdempotencyRecord], error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	answer, stored := m.answers[recordID]
	return m.agent(agentID), core.Opt[core.IdempotencyRecord]{Value: answer, Set: stored}, nil
}

func (m *Model) agent(id string) core.Agent {
	if a := m.agents[id]; a != nil {
		return a.copy()
	}
	return core.Agent{}
}

// RegisterAgentOnce implements core.PresenceStore.
func (m *Model) RegisterAgentOnce(_ context.Context, r core.AgentRegistration, seen core.Agent, answer core.IdempotencyRecord) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	stored, found := m.answers[answer.ID]
	if m.agent(r.AgentID).Generation != seen.Generation || found && core.InstantOf(r.Started) < stored.ExpiresAt {
		return false, nil
	}
	m.register(r)
	m.answers[answer.ID] = answer
	return true, nil
}

// HeartbeatAgent implements core.PresenceStore.
func (m *Model) HeartbeatAgent(_ context.Context, b core.AgentHeartbeat) (core.AgentWrite, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = append(m.sent, func() { m.heartbeat(b) })
	return once(m, func() core.AgentWrite {
		// A copy without a step may apply twice: it says the same.
		if a := m.agents[b.AgentID]; a != nil && b.Step.Set && a.writeID == b.WriteID {
			return core.AgentWrite{Agent: a.copy(), Replayed: true}
		}
		return m.heartbeat(b)
	}), nil
}

func (m *Model) heartbeat(b core.AgentHeartbeat) core.AgentWrite {
	a := m.agents[b.AgentID]
	switch {
	case a == nil:
		return core.AgentWrite{Refused: true}
	case a.Final || b.Generation.Set && b.Generation.Value != a.Generation:
		return core.AgentWrite{Agent: a.copy(), Refused: true}
	case a.touched.After(b.Started):
		return core.AgentWrite{Agent: a.copy()}
	}
	now := core.InstantOf(b.Started)
	a.Status, a.LastSeen, a.LeaseExpires = core.StatusOnline, now, b.LeaseExpires
	a.due(b.LeaseExpires)
	if b.Step.Set && (!a.Step.Set || a.Step.Value < b.Step.Value) {
		a.Step, a.StepAt = b.Step, now
	}
	if b.StepDeadline.Set {
		a.StepDeadline = b.StepDeadline
	}
	a.stamp(b.WriteStamp)
	return core.AgentWrite{Agent: a.copy()}
}

// ChangeAgentStatus implements core.PresenceStore.
func (m *Model) ChangeAgentStatus(_ context.Context, c core.AgentStatusChange) (core.AgentWrite, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = append(m.sent, func() {
		if a := m.agents[c.AgentID]; a != nil && !a.touched.After(c.Started) {
			m.changeStatus(c)
		}
	})
	return once(m, func() core.AgentWrite { return m.changeStatus(c) }), nil
}

func (m *Model) changeStatus(c core.AgentStatusChange) core.AgentWrite {
	a := m.agents[c.AgentID]
	switch {
	case a == nil:
		return core.AgentWrite{Refused: true}
	case c.Generation.Set && c.Generation.Value != a.Generation, a.Final && c.Status != core.StatusOffline:
		return core.AgentWrite{Agent: a.copy(), Refused: true}
	case !c.Generation.Set && a.RegisteredAt > core.InstantOf(c.Started):
		return core.AgentWrite{Agent: a.copy()}
	}
	overtaken := a.touched.After(c.Started) && a.writeID != c.WriteID
	a.Status, a.Final = c.Status, a.Final || c.Final
	if c.Status == core.StatusOffline {
		a.DueAt = 0
	} else if a.DueAt == 0 {
		a.DueAt = core.InstantOf(c.Started)
	}
	a.stamp(c.WriteStamp)
	if overtaken {
		a.touched = a.touched.Add(time.Microsecond)
	}
	return core.AgentWrite{Agent: a.copy()}
}

// ReadAgent implements core.PresenceStore.
func (m *Model) ReadAgent(_ context.Context, agentID string) (core.Agent, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.agent(agentID), m.agents[agentID] != nil, nil
}

// ScanAgents implements core.PresenceStore.
func (m *Model) ScanAgents(_ context.Context, s core.AgentScan) (core.AgentScanPage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	page := core.AgentScanPage{Done: true}
	for _, id := range slices.Sorted(maps.Keys(m.agents)) {
		if id <= s.After || s.Topic != "" && !slices.Contains(m.agents[id].Topics, s.Topic) {
			continue
		}
		if len(page.Agents) == s.Limit {
			page.Done = false
			break
		}
		page.Agents, page.Last = append(page.Agents, m.agent(id)), id
	}
	return page, nil
}

// DueAgents implements core.PresenceStore.
func (m *Model) DueAgents(_ context.Context, s core.DueScan) (core.DuePage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	position := func(a *modelAgent) string { return fmt.Sprintf("%015d#%s", a.DueAt, a.ID) }
	due := slices.Collect(maps.Values(m.agents))
	due = slices.DeleteFunc(due, func(a *modelAgent) bool {
		return a.DueAt == 0 || a.DueAt >= s.Before || position(a) <= s.After
	})
	slices.SortFunc(due, func(a, b *modelAgent) int { return cmp.Compare(position(a), position(b)) })
	var page core.DuePage
	for i, a := range due {
		if i == s.Limit {
			page.Next = position(due[i-1])
			break
		}
		page.Agents = append(page.Agents, a.copy())
	}
	if len(due) > 0 {
		page.Oldest = due[0].DueAt
	}
	return page, nil
}

// TransitionAgent implements core.PresenceStore.
func (m *Model) TransitionAgent(_ context.Context, t core.AgentTransition) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = append(m.sent, func() { m.transition(t) })
	return once(m, func() bool { return m.transition(t) }), nil
}

func (m *Model) transition(t core.AgentTransition) bool {
	a := m.agents[t.Seen.ID]
	if a.sweptID == t.WriteID {
		return true
	}
	if a.Generation != t.Seen.Generation || a.Status != t.Seen.Status || a.LeaseExpires != t.Seen.LeaseExpires || a.DueAt != t.Seen.DueAt {
		return false
	}
	a.Status, a.DueAt, a.sweptID = t.To, t.Due, t.WriteID
	return true
}

// ReadIdentity implements core.IdentityStore.
func (m *Model) ReadIdentity(context.Context) (core.IdentityRecord, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.identity == nil {
		return core.IdentityRecord{}, false, nil
	}
	return *m.identity, true, nil
}

// CreateIdentity implements core.IdentityStore.
func (m *Model) CreateIdentity(_ context.Context, r core.IdentityRecord) (core.IdentityRecord, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.identity == nil {
		m.identity = &r
	}
	return *m.identity, nil
}

// ReplaceIdentity implements core.IdentityStore.
func (m *Model) ReplaceIdentity(_ context.Context, previous string, r core.IdentityRecord) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return once(m, func() bool {
		if m.identity != nil && m.identity.HubInstanceID == previous {
			m.identity = &r
		}
		return m.identity != nil && m.identity.HubInstanceID == r.HubInstanceID
	}), nil
}

// ReadToken implements core.TokenStore.
func (m *Model) ReadToken(_ context.Context, hash string) (core.Token, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	token, found := m.tokens[hash]
	return token, found, nil
}

// CreateToken implements core.TokenStore.
func (m *Model) CreateToken(_ context.Context, t core.Token) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, found := m.tokens[t.Hash]; found {
		return false, nil
	}
	m.tokens[t.Hash] = t
	return true, nil
}

// ListTokens implements core.TokenRegistry. A position is a token's place in the
// order of creation.
func (m *Model) ListTokens(_ context.Context, after string, limit int) ([]core.Token, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	place := func(t core.Token) string { return fmt.Sprintf("%015d#%s", t.CreatedAt, t.Hash) }
	sorted := slices.SortedFunc(maps.Values(m.tokens), func(a, b core.Token) int { return cmp.Compare(place(a), place(b)) })
	sorted = slices.DeleteFunc(sorted, func(t core.Token) bool { return place(t) <= after })
	if len(sorted) <= limit {
		return sorted, "", nil
	}
	return sorted[:limit], place(sorted[limit-1]), nil
}

// RevokeToken implements core.TokenRegistry.
func (m *Model) RevokeToken(_ context.Context, seen core.Token, now core.Instant) (core.Token, bool, error) {
	return m.changeToken(seen.Hash, func(t *core.Token) {
		if t.RevokedAt == 0 {
			t.RevokedAt = now
		}
	})
}

// ExpireToken implements core.TokenRegistry.
func (m *Model) ExpireToken(_ context.Context, seen core.Token, at core.Instant) (core.Token, bool, error) {
	return m.changeToken(seen.Hash, func(t *core.Token) {
		if t.RevokedAt == 0 && (t.ExpiresAt == 0 || t.ExpiresAt > at) {
			t.ExpiresAt = at
		}
	})
}

func (m *Model) changeToken(hash string, change func(*core.Token)) (core.Token, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	token, found := m.tokens[hash]
	if found {
		change(&token)
		m.tokens[hash] = token
	}
	return token, found, nil
}

// RecordSweep implements core.SweepStore.
func (m *Model) RecordSweep(_ context.Context, o core.SweepOutcome) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	once(m, func() bool {
		if m.swept[o.Name] == o.WriteID {
			return false
		}
		r := m.sweeps[o.Name]
		r.Name, r.LastRunAt, r.LastErrorCode = o.Name, core.InstantOf(o.Started), o.ErrorCode
		if r.ConsecutiveFailures++; o.ErrorCode == "" {
			r.LastSuccessAt, r.Lag, r.ConsecutiveFailures = r.LastRunAt, o.Lag, 0
		}
		m.sweeps[o.Name], m.swept[o.Name] = r, o.WriteID
		return true
	})
	return nil
}

// ReadSweeps implements core.SweepStore.
func (m *Model) ReadSweeps(_ context.Context, names []string) ([]core.SweepRecord, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	records := make([]core.SweepRecord, 0, len(names))
	for _, name := range names {
		r := m.sweeps[name]
		r.Name = name
		records = append(records, r)
	}
	return records, nil
}
