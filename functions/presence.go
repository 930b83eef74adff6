package functions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"drawbridge/core"
)

// identityFences are what a caller believes about the hub it speaks to.
type identityFences struct {
	HubInstanceID    core.Opt[string] `json:"hub_instance_id" in:"identity" doc:"Refuse unless it is the hub's current instance id."`
	StoreFingerprint core.Opt[string] `json:"store_fingerprint" in:"identity" doc:"Refuse unless it is the fingerprint of the hub's store."`
}

func (f identityFences) core() core.Fences {
	return core.Fences{HubInstanceID: f.HubInstanceID, StoreFingerprint: f.StoreFingerprint}
}

// fences are what a caller believes about the authority it acts under.
type fences struct {
	Generation core.Opt[int64] `json:"presence_generation" in:"generation" doc:"Refuse unless it is the agent's current generation."`
	identityFences
}

func (f fences) core() core.Fences {
	believed := f.identityFences.core()
	believed.Generation = f.Generation
	return believed
}

// steps are how an agent tells its progress (design principle 9).
type steps struct {
	Step           core.Opt[int64] `json:"step" in:"integer" doc:"A count that grows with the agent's work."`
	StepDeadlineMs core.Opt[int64] `json:"step_deadline_ms" in:"integer,min=1" doc:"How long the step may stand still before the agent reads as hung."`
}

// identityView is the hub's identity in an answer.
type identityView struct {
	HubInstanceID    string `json:"hub_instance_id"`
	StoreFingerprint string `json:"store_fingerprint"`
}

func identityViewOf(id core.Identity) identityView {
	return identityView{HubInstanceID: id.HubInstanceID, StoreFingerprint: id.StoreFingerprint}
}

// storeView is the store in the effective block of an answer.
type storeView struct {
	StoreType        string `json:"store_type"`
	DBPath           string `json:"db_path" doc:"The table's name."`
	StoreFingerprint string `json:"store_fingerprint"`
}

func storeViewOf(id core.Identity) storeView {
	return storeView{StoreType: id.StoreType, DBPath: id.StoreName, StoreFingerprint: id.StoreFingerprint}
}

// staleData replaces the data of a refused generation by what the endpoint
// shows of it; every other error passes unchanged.
func staleData(err error, show func(core.StalePresence) any) error {
	var refusal *core.Error
	if !errors.As(err, &refusal) {
		return err
	}
	stale, ok := refusal.Data.(core.StalePresence)
	if !ok {
		return err
	}
	shown := *refusal
	shown.Data = show(stale)
	return &shown
}

// --- register (contract 2.3)

type registerRequest struct {
	AgentID      string                    `json:"agent_id" in:"id,required"`
	CLI          string                    `json:"cli" in:"line,required,enum=codex|gemini|claude|other" doc:"The kind of agent."`
	TimeoutSec   core.Opt[float64]         `json:"timeout_sec" in:"number,null=0" doc:"The lease is this many seconds plus 120; without it 1,320 seconds."`
	Topics       []string                  `json:"topics" in:"list,max=1000,null=[]" each:"text" doc:"Topics the agent follows: trimmed, without repetitions, at most 100."`
	Capabilities []string                  `json:"capabilities" in:"list,max=1000,null=[]" each:"line"`
	Metadata     json.RawMessage           `json:"metadata" in:"object" doc:"Kept as it is; with capabilities and locators at most 16 KB."`
	ProjectID    core.Opt[string]          `json:"project_id" in:"text,code=PROJECT_ID_INVALID" doc:"prj_ and 22 characters of A-Za-z0-9_-."`
	SessionID    core.Opt[string]          `json:"session_id" in:"text,code=SESSION_ID_INVALID"`
	HostID       core.Opt[string]          `json:"host_id" in:"text,code=HOST_ID_INVALID" doc:"hst_ and characters of A-Za-z0-9_-."`
	Locators     core.Opt[json.RawMessage] `json:"transport_locators_json" in:"any" doc:"An array of transport locators, or a string that holds one."`
	steps
	identityFences
}

func (r registerRequest) actingAgents() []actingAgent {
	return []actingAgent{{"agent_id", r.AgentID}}
}

type registerResponse struct {
	AgentID            string         `json:"agent_id"`
	LeaseID            string         `json:"lease_id"`
	PresenceGeneration int64          `json:"presence_generation" doc:"Send it with every later write: a newer registration makes it stale."`
	LeaseExpiresMs     core.Instant   `json:"lease_expires_ms"`
	ServerTimeMs       core.Instant   `json:"server_time_ms"`
	Effective          registeredView `json:"effective"`
	HubPID             int            `json:"hub_pid" doc:"Always 0: the hub has no process."`
	identityView
	PipePath *string `json:"pipe_path" doc:"Always null: the hub has no pipe."`
}

// registeredView is what the register made true of the agent.
type registeredView struct {
	Updated        bool         `json:"updated"`
	Online         bool         `json:"online"`
	Status         core.Status  `json:"status"`
	LastSeenMs     core.Instant `json:"last_seen_ms"`
	LeaseExpiresMs core.Instant `json:"lease_expires_ms"`
	storeView
}

func register(ctx context.Context, c *call, r registerRequest) (registerResponse, error) {
	done, err := c.hub.Register(ctx, core.RegisterRequest{
		AgentID:           r.AgentID,
		CLI:               r.CLI,
		TimeoutSec:        r.TimeoutSec,
		Topics:            r.Topics,
		Capabilities:      r.Capabilities,
		Metadata:          r.Metadata,
		ProjectID:         r.ProjectID,
		SessionID:         r.SessionID,
		HostID:            r.HostID,
		TransportLocators: r.Locators,
		Step:              r.Step,
		StepDeadlineMs:    r.StepDeadlineMs,
		Fences:            r.identityFences.core(),
		Idempotency:       c.key,
	})
	if err != nil {
		return registerResponse{}, err
	}
	c.replayed = done.Replayed
	return registerResponse{
		AgentID:            done.AgentID,
		LeaseID:            done.LeaseID,
		PresenceGeneration: done.Generation,
		LeaseExpiresMs:     done.LeaseExpires,
		ServerTimeMs:       done.ServerTime,
		Effective: registeredView{
			Updated:        true,
			Online:         done.Status == core.StatusOnline,
			Status:         done.Status,
			LastSeenMs:     done.LastSeen,
			LeaseExpiresMs: done.LeaseExpires,
			storeView:      storeViewOf(done.Identity),
		},
		identityView: identityViewOf(done.Identity),
	}, nil
}

// --- heartbeat (contract 2.4), alone or as a batch

type heartbeatRequest struct {
	AgentID core.Opt[string] `json:"agent_id" in:"id" doc:"The one agent; or else agents."`
	Agents  []agentBeat      `json:"agents" in:"list,min=1,max=100" doc:"The agents of a batch."`
	TTLMs   core.Opt[int64]  `json:"ttl_ms" in:"truncated,null=1000" doc:"The new lease, brought into 1,000 to 86,400,000; 1,320,000 when absent."`
	steps
	fences
}

type agentBeat struct {
	AgentID    string          `json:"agent_id" in:"id,required"`
	Generation core.Opt[int64] `json:"presence_generation" in:"generation" doc:"Refuse unless it is the agent's current generation."`
	steps
}

func (r heartbeatRequest) actingAgents() []actingAgent {
	if r.Agents == nil {
		return []actingAgent{{"agent_id", r.AgentID.Value}}
	}
	agents := make([]actingAgent, len(r.Agents))
	for i, beat := range r.Agents {
		agents[i] = actingAgent{fmt.Sprintf("agents[%d].agent_id", i), beat.AgentID}
	}
	return agents
}

// heartbeatResponse is a beat of one agent, or the results of a batch.
type heartbeatResponse struct {
	AgentID        string        `json:"agent_id,omitempty"`
	LeaseExpiresMs core.Instant  `json:"lease_expires_ms,omitempty"`
	ServerTimeMs   core.Instant  `json:"server_time_ms,omitempty"`
	Effective      *beatView     `json:"effective,omitempty"`
	Results        []beatOutcome `json:"results,omitempty" doc:"Of a batch: one for each agent, in order."`
}

// beatView tells whether a heartbeat changed the agent.
type beatView struct {
	Updated bool `json:"updated"`
	storeView
}

type beatOutcome struct {
	AgentID            string       `json:"agent_id"`
	OK                 bool         `json:"ok"`
	LeaseExpiresMs     core.Instant `json:"lease_expires_ms,omitempty"`
	PresenceGeneration int64        `json:"presence_generation,omitempty" doc:"The agent's current generation, when the one that was sent is not."`
	Error              *errorView   `json:"error,omitempty"`
}

func heartbeat(ctx context.Context, c *call, r heartbeatRequest) (heartbeatResponse, error) {
	if r.Agents != nil {
		return heartbeatBatch(ctx, c, r)
	}
	done, err := c.hub.Heartbeat(ctx, core.HeartbeatRequest{
		AgentID:        r.AgentID.Value,
		TTLMs:          r.TTLMs,
		Step:           r.Step,
		StepDeadlineMs: r.StepDeadlineMs,
		Fences:         r.fences.core(),
	})
	if err != nil {
		return heartbeatResponse{}, staleData(err, staleBeatOf)
	}
	c.replayed = done.Replayed
	return heartbeatResponse{
		AgentID:        done.AgentID,
		LeaseExpiresMs: done.LeaseExpires,
		ServerTimeMs:   done.ServerTime,
		Effective:      &beatView{Updated: true, storeView: storeViewOf(done.Identity)},
	}, nil
}

// staleBeat is the data of a heartbeat whose generation is not the agent's.
type staleBeat struct {
	AgentID            string       `json:"agent_id"`
	PresenceGeneration int64        `json:"presence_generation,omitempty"` // the current one
	LeaseExpiresMs     core.Instant `json:"lease_expires_ms"`
	ServerTimeMs       core.Instant `json:"server_time_ms"`
	Effective          beatView     `json:"effective"`
	identityView
}

func staleBeatOf(s core.StalePresence) any {
	return staleBeat{
		AgentID:            s.AgentID,
		PresenceGeneration: s.Current,
		LeaseExpiresMs:     s.LeaseExpires,
		ServerTimeMs:       s.ServerTime,
		Effective:          beatView{storeView: storeViewOf(s.Identity)},
		identityView:       identityViewOf(s.Identity),
	}
}

// checkBatch refuses what belongs to one agent beside the agents of a batch: a
// fence that is sent and not checked would be taken for one that held.
func (r heartbeatRequest) checkBatch() error {
	switch {
	case r.AgentID.Set:
		return core.Invalid("agent_id", "agent_id and agents exclude each other")
	case r.Generation.Set:
		return core.Invalid("presence_generation", "presence_generation belongs to each of the agents")
	case r.Step.Set:
		return core.Invalid("step", "step belongs to each of the agents")
	case r.StepDeadlineMs.Set:
		return core.Invalid("step_deadline_ms", "step_deadline_ms belongs to each of the agents")
	}
	return nil
}

func heartbeatBatch(ctx context.Context, c *call, r heartbeatRequest) (heartbeatResponse, error) {
	if err := r.checkBatch(); err != nil {
		return heartbeatResponse{}, err
	}
	batch := core.BatchHeartbeatRequest{
		TTLMs:            r.TTLMs,
		HubInstanceID:    r.HubInstanceID,
		StoreFingerprint: r.StoreFingerprint,
	}
	for _, beat := range r.Agents {
		batch.Agents = append(batch.Agents, core.AgentBeat{
			AgentID:        beat.AgentID,
			Generation:     beat.Generation,
			Step:           beat.Step,
			StepDeadlineMs: beat.StepDeadlineMs,
		})
	}
	results, err := c.hub.HeartbeatBatch(ctx, batch)
	if err != nil {
		return heartbeatResponse{}, err
	}
	var answer heartbeatResponse
	for _, result := range results {
		answer.Results = append(answer.Results, beatOutcomeOf(result))
	}
	return answer, nil
}

func beatOutcomeOf(r core.BeatResult) beatOutcome {
	outcome := beatOutcome{AgentID: r.AgentID, OK: r.Err == nil, LeaseExpiresMs: r.LeaseExpires}
	if r.Err == nil {
		return outcome
	}
	shown := viewOf(r.Err)
	outcome.Error = &shown
	if stale, ok := r.Err.Data.(core.StalePresence); ok {
		outcome.PresenceGeneration = stale.Current
	}
	return outcome
}

// --- deregister (contract 2.5)

type deregisterRequest struct {
	AgentID string `json:"agent_id" in:"id,required"`
	Final   bool   `json:"final" in:"boolean,default=false" doc:"Finish the generation for good: its late heartbeats are refused."`
	fences
}

func (r deregisterRequest) actingAgents() []actingAgent {
	return []actingAgent{{"agent_id", r.AgentID}}
}

type deregisterResponse struct {
	AgentID            string      `json:"agent_id"`
	Status             core.Status `json:"status"`
	PresenceGeneration *int64      `json:"presence_generation,omitempty" doc:"The generation that was sent, if one was."`
	identityView
}

func deregister(ctx context.Context, c *call, r deregisterRequest) (deregisterResponse, error) {
	done, err := c.hub.Deregister(ctx, core.DeregisterRequest{AgentID: r.AgentID, Final: r.Final, Fences: r.fences.core()})
	if err != nil {
		return deregisterResponse{}, staleData(err, staleStatusOf(core.StatusOffline))
	}
	answer := deregisterResponse{AgentID: done.AgentID, Status: core.StatusOffline, identityView: identityViewOf(done.Identity)}
	if r.Generation.Set {
		answer.PresenceGeneration = &r.Generation.Value
	}
	return answer, nil
}

// staleStatus is the data of a deregister or status report whose generation is
// not the agent's.
type staleStatus struct {
	Status             core.Status `json:"status"`                        // the one that was asked for
	PresenceGeneration int64       `json:"presence_generation,omitempty"` // the current one
	identityView
}

func staleStatusOf(asked core.Status) func(core.StalePresence) any {
	return func(s core.StalePresence) any {
		return staleStatus{Status: asked, PresenceGeneration: s.Current, identityView: identityViewOf(s.Identity)}
	}
}

// --- list

type agentsRequest struct {
	Status core.Opt[string] `json:"status" in:"line,enum=online|stale|offline" doc:"Only agents with this effective status."`
	Topic  core.Opt[string] `json:"topic" in:"id" doc:"Only agents that follow this topic."`
	Limit  int64            `json:"limit" in:"integer,min=1,max=100,default=50"`
	Cursor core.Opt[string] `json:"cursor" in:"line,max=4096" doc:"next_cursor of the page before."`
}

type agentsResponse struct {
	Agents     []agentView `json:"agents"`
	NextCursor *string     `json:"next_cursor" doc:"Null at the end. A filtered page may be short, or empty, before it."`
}

// agentView is the read view of an agent (contract 1.2), with its step and the
// verdict on it.
type agentView struct {
	AgentID            string          `json:"agent_id"`
	CLI                string          `json:"cli"`
	PID                *int64          `json:"pid"`
	Capabilities       []string        `json:"capabilities"`
	Topics             []string        `json:"topics"`
	Metadata           json.RawMessage `json:"metadata"`
	ProjectID          *string         `json:"project_id"`
	SessionID          *string         `json:"session_id"`
	HostID             *string         `json:"host_id"`
	TransportLocators  string          `json:"transport_locators_json" doc:"A string that holds the array."`
	PresenceGeneration int64           `json:"presence_generation"`
	Status             core.Status     `json:"status" doc:"The effective status: what the lease says now."`
	Final              bool            `json:"final"`
	RegisteredAtMs     core.Instant    `json:"registered_at_ms"`
	LastSeenMs         core.Instant    `json:"last_seen_ms"`
	LeaseExpiresMs     core.Instant    `json:"lease_expires_ms"`
	Step               *int64          `json:"step"`
	StepAtMs           core.Instant    `json:"step_at_ms"`
	StepDeadlineMs     *int64          `json:"step_deadline_ms"`
	Hung               bool            `json:"hung" doc:"The lease is live but the step has stood still for longer than its deadline."`
	HungSinceMs        *core.Instant   `json:"hung_since_ms"`
}

func listAgents(ctx context.Context, c *call, r agentsRequest) (agentsResponse, error) {
	page, err := c.hub.Agents(ctx, core.AgentQuery{
		Status: core.Opt[core.Status]{Value: core.Status(r.Status.Value), Set: r.Status.Set},
		Topic:  r.Topic,
		Limit:  int(r.Limit),
		Cursor: r.Cursor.Value,
	})
	if err != nil {
		return agentsResponse{}, err
	}
	answer := agentsResponse{Agents: []agentView{}, NextCursor: orNull(page.NextCursor)}
	for _, agent := range page.Agents {
		answer.Agents = append(answer.Agents, agentViewOf(agent))
	}
	return answer, nil
}

func agentViewOf(a core.AgentView) agentView {
	view := agentView{
		AgentID:            a.ID,
		CLI:                a.CLI,
		Capabilities:       orEmpty(a.Capabilities),
		Topics:             orEmpty(a.Topics),
		Metadata:           a.Metadata,
		ProjectID:          orNull(a.ProjectID),
		SessionID:          orNull(a.SessionID),
		HostID:             orNull(a.HostID),
		TransportLocators:  "[]",
		PresenceGeneration: a.Generation,
		Status:             a.Effective,
		Final:              a.Final,
		RegisteredAtMs:     a.RegisteredAt,
		LastSeenMs:         a.LastSeen,
		LeaseExpiresMs:     a.LeaseExpires,
		StepAtMs:           a.StepAt,
		Hung:               a.Hung,
		HungSinceMs:        orNull(a.HungSince),
	}
	if len(a.Locators) > 0 {
		view.TransportLocators = string(a.Locators)
	}
	if a.Step.Set {
		view.Step = &a.Step.Value
	}
	if a.StepDeadline.Set {
		ms := a.StepDeadline.Value.Milliseconds()
		view.StepDeadlineMs = &ms
	}
	return view
}

// orNull turns the zero value, which stands for none, into null.
func orNull[T comparable](value T) *T {
	var none T
	if value == none {
		return nil
	}
	return &value
}

// orEmpty keeps an absent list from being encoded as null.
func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// trimmed is an optional text without the space around it, as the reference
// reads the fields of a status report.
func trimmed(text core.Opt[string]) string { return strings.TrimSpace(text.Value) }
