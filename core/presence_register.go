package core

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

var clis = []string{"codex", "gemini", "claude", "other"}

// onceAttempts bounds how often a register with an idempotency key starts over
// because the agent changed between its read and its transaction.
const onceAttempts = 12

// Register gives the agent a new generation, online with a fresh lease. It
// never fails because of who holds the id: the last register wins, and every
// earlier generation is refused from then on (contract 2.3, 3.2).
//
// With an idempotency key the generation grows once however often the request
// is sent within 24 hours. Without one, a retry inside the store's client
// recognises its own write; a request sent again by the caller is a new
// register.
//
// Errors: INVALID_ARGUMENT and the codes of contract 1.2 and 1.3 for the
// request, STALE_HUB_INSTANCE, STORE_FINGERPRINT_MISMATCH, IDEMPOTENCY_MISMATCH.
func (h *Hub) Register(ctx context.Context, r RegisterRequest) (Registration, error) {
	if err := checkID("agent_id", r.AgentID); err != nil {
		return Registration{}, err
	}
	if r.CLI == "" {
		return Registration{}, Invalid("cli", "cli is required")
	}
	identity, err := h.checkIdentity(ctx, r.Fences)
	if err != nil {
		return Registration{}, err
	}
	now := h.clock.Now()
	write, err := r.plan(InstantOf(now))
	if err != nil {
		return Registration{}, err
	}
	write.WriteStamp = h.stamp(now)
	if r.Idempotency.Set {
		return h.registerOnce(ctx, write, identity, r.Idempotency.Value)
	}
	done, err := h.presence.RegisterAgent(ctx, write)
	if err != nil {
		return Registration{}, fmt.Errorf("register agent: %w", err)
	}
	h.noticeCandidate(ctx, done.Agent, "register", InstantOf(now))
	answer := h.registration(write, identity, done.Agent.Generation)
	answer.Replayed = done.Replayed
	return answer, nil
}

// registerOnce carries out a register with an idempotency key. Each round reads
// the stored answer and the generation, then commits the next generation and
// the answer that tells it together; if either changed meanwhile, it starts over.
func (h *Hub) registerOnce(ctx context.Context, w AgentRegistration, identity Identity, key IdempotencyKey) (Registration, error) {
	if err := key.validate(); err != nil {
		return Registration{}, err
	}
	now := InstantOf(w.Started)
	for attempt := range onceAttempts {
		seen, stored, err := h.presence.ReadRegistration(ctx, w.AgentID, key.id())
		if err != nil {
			return Registration{}, fmt.Errorf("read registration: %w", err)
		}
		if stored.Set && now < stored.Value.ExpiresAt {
			return replayRegistration(stored.Value, key)
		}
		answer := h.registration(w, identity, seen.Generation+1)
		record, err := key.record(answer, now)
		if err != nil {
			return Registration{}, err
		}
		done, err := h.presence.RegisterAgentOnce(ctx, w, seen, record)
		if err != nil {
			return Registration{}, fmt.Errorf("register agent once: %w", err)
		}
		if done {
			if w.LegacyCandidate {
				// The register is done; the next event or the sweep elects too.
				_ = h.electLegacy(ctx, "register")
			}
			return answer, nil
		}
		if err := pause(ctx, attempt); err != nil {
			return Registration{}, err
		}
	}
	return Registration{}, Refuse(CodeContended, "others kept registering this agent")
}

func replayRegistration(stored IdempotencyRecord, key IdempotencyKey) (Registration, error) {
	var answer Registration
	if err := key.replay(stored, &answer); err != nil {
		return Registration{}, err
	}
	answer.Replayed = true
	return answer, nil
}

func (h *Hub) registration(w AgentRegistration, identity Identity, generation int64) Registration {
	now := InstantOf(w.Started)
	return Registration{
		AgentID:      w.AgentID,
		LeaseID:      h.ids.New(),
		Generation:   generation,
		Status:       StatusOnline,
		LastSeen:     now,
		LeaseExpires: w.LeaseExpires,
		ServerTime:   now,
		Identity:     identity,
	}
}

// plan checks the request's fields and turns them into the write, without its
// stamp.
func (r RegisterRequest) plan(now Instant) (AgentRegistration, error) {
	if !slices.Contains(clis, r.CLI) {
		return AgentRegistration{}, Invalid("cli", "cli must be one of "+strings.Join(clis, ", "))
	}
	lease, err := r.lease()
	if err != nil {
		return AgentRegistration{}, err
	}
	topics, err := normaliseTopics(r.Topics)
	if err != nil {
		return AgentRegistration{}, err
	}
	metadata, err := normaliseMetadata(r.Metadata)
	if err != nil {
		return AgentRegistration{}, err
	}
	deadline, err := stepDeadline("step_deadline_ms", r.StepDeadlineMs)
	if err != nil {
		return AgentRegistration{}, err
	}
	place, err := r.place(now, lease)
	if err != nil {
		return AgentRegistration{}, err
	}
	w := AgentRegistration{
		AgentID:      r.AgentID,
		CLI:          r.CLI,
		Capabilities: append([]string{}, r.Capabilities...),
		Topics:       topics,
		Metadata:     metadata,
		ProjectID:    place.project,
		SessionID:    place.session,
		HostID:       place.host,
		Locators:     place.locators,
		Step:         r.Step,
		StepDeadline: deadline,
		LeaseExpires: now.Add(lease),
	}
	profile := Agent{Capabilities: w.Capabilities, Topics: w.Topics, Metadata: w.Metadata}
	_, w.LegacyCandidate = profile.legacyCandidate(now)
	return w, checkProfile(w)
}

// lease derives the lease from timeout_sec (contract 2.3): a number of seconds
// plus the grace, the default lease when there is none.
func (r RegisterRequest) lease() (time.Duration, error) {
	if !r.TimeoutSec.Set {
		return DefaultLease, nil
	}
	ms := math.Trunc((r.TimeoutSec.Value + RegisterGrace.Seconds()) * 1000)
	switch {
	case ms >= float64(MinLease.Milliseconds()) && ms <= float64(MaxLease.Milliseconds()):
		return time.Duration(ms) * time.Millisecond, nil
	case r.TransportLocators.Set && !(ms > 0):
		return 0, InvalidCode(CodeHeartbeatTTLInvalid, "timeout_sec", "timeout_sec gives no positive lease")
	}
	return 0, Invalid("timeout_sec", "timeout_sec must give a lease of 1 second to 30 days (120 seconds are added to it)")
}

func normaliseTopics(given []string) ([]string, error) {
	topics := make([]string, 0, len(given))
	seen := make(map[string]bool, len(given))
	for i, topic := range given {
		topic = strings.TrimSpace(topic)
		if topic == "" || seen[topic] {
			continue
		}
		if err := checkID(fmt.Sprintf("topics[%d]", i), topic); err != nil {
			return nil, err
		}
		seen[topic] = true
		topics = append(topics, topic)
	}
	if len(topics) > MaxTopics {
		return nil, Invalid("topics", fmt.Sprintf("topics must be at most %d", MaxTopics))
	}
	return topics, nil
}

func normaliseMetadata(given json.RawMessage) (json.RawMessage, error) {
	if len(given) == 0 {
		return json.RawMessage("{}"), nil
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, given); err != nil || compact.Bytes()[0] != '{' {
		return nil, Invalid("metadata", "metadata must be an object")
	}
	return compact.Bytes(), nil
}

// checkProfile bounds what every later write of the agent's item carries along.
func checkProfile(w AgentRegistration) error {
	capabilities, err := json.Marshal(w.Capabilities)
	if err != nil {
		return fmt.Errorf("encode capabilities: %w", err)
	}
	sizes := []struct {
		field string
		size  int
	}{
		{"metadata", len(w.Metadata)},
		{"capabilities", len(capabilities)},
		{"transport_locators_json", len(w.Locators.Value)},
	}
	total, largest := 0, sizes[0]
	for _, s := range sizes {
		total += s.size
		if s.size > largest.size {
			largest = s
		}
	}
	if total > MaxProfileBytes {
		return Invalid(largest.field, fmt.Sprintf("metadata, capabilities and transport_locators_json must be at most %d bytes together", MaxProfileBytes))
	}
	return nil
}

func stepDeadline(field string, ms Opt[int64]) (Opt[time.Duration], error) {
	if !ms.Set {
		return Opt[time.Duration]{}, nil
	}
	if ms.Value < 1 || ms.Value > MaxLease.Milliseconds() {
		return Opt[time.Duration]{}, Invalid(field, field+" must be 1 millisecond to 30 days")
	}
	return Some(time.Duration(ms.Value) * time.Millisecond), nil
}
