package core

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// LearnRequest tells how an error was fixed.
type LearnRequest struct {
	Message  string
	Solution string
	Code     string // "": none
	Context  json.RawMessage
	Success  bool
	Type     ReflexionType // "": reflexion
	AgentID  string        // who tells it, "": nobody says
	Fences   Fences        // the generation is the agent's
}

// Learnt is the answer: the entry, and whether this made it.
type Learnt struct {
	Entry   ReflexionView
	Created bool
	// Replayed: an earlier try of the same request had done it.
	Replayed bool
}

// Learn counts a hit on the best entry of the error's pattern that agrees with
// the context, or makes one. Callers that learn the same at once make one entry
// and lose no hit. Where the agent tells its generation, it is a condition of
// the write. Cost: 2 round trips: a read, and the write whose condition decides.
//
// Errors: INVALID_ARGUMENT by field, the identity's fences,
// STALE_PRESENCE_OWNER, CONTENDED.
func (h *Hub) Learn(ctx context.Context, r LearnRequest) (Learnt, error) {
	l, err := h.learning(r)
	if err != nil {
		return Learnt{}, err
	}
	if l.identity, err = h.checkIdentity(ctx, r.Fences); err != nil {
		return Learnt{}, err
	}
	for attempt := range onceAttempts {
		learnt, done, err := l.try(ctx)
		if err != nil || done {
			return learnt, err
		}
		if err := pause(ctx, attempt); err != nil {
			return Learnt{}, err
		}
	}
	return Learnt{}, Refuse(CodeContended, "others kept changing the same entry; nothing was done")
}

// learning is one learn on its way.
type learning struct {
	hub      *Hub
	request  LearnRequest
	pattern  string
	context  reflexionContext
	fence    Opt[AgentFence]
	identity Identity
	// stamp is that of every try: one that landed unseen recognises itself.
	stamp WriteStamp
}

func (h *Hub) learning(r LearnRequest) (*learning, error) {
	if r.Type == "" {
		r.Type = ReflexionLearnt
	}
	l := &learning{hub: h, request: r, pattern: ErrorPattern(r.Message), stamp: h.stamp(h.clock.Now())}
	if err := r.Type.validate(); err != nil {
		return nil, err
	}
	switch {
	case l.pattern == "":
		return nil, Invalid("error_message", "error_message is required")
	case len(r.Message) > MaxErrorMessage:
		return nil, tooLong("error_message", MaxErrorMessage)
	case strings.TrimSpace(r.Solution) == "":
		return nil, Invalid("solution", "solution is required")
	case len(r.Solution) > MaxSolution:
		return nil, tooLong("solution", MaxSolution)
	case len(r.Code) > MaxSolutionCode:
		return nil, tooLong("solution_code", MaxSolutionCode)
	case r.AgentID == "" && r.Fences.Generation.Set:
		return nil, Invalid("agent_id", "agent_id is required with presence_generation")
	}
	if r.AgentID != "" {
		if err := checkID("agent_id", r.AgentID); err != nil {
			return nil, err
		}
		l.fence = fenceOf(r.AgentID, r.Fences)
	}
	var err error
	l.context, err = parseReflexionContext(r.Context)
	return l, err
}

// try reads what there is and hits or makes an entry; false: it changed
// meanwhile.
func (l *learning) try(ctx context.Context) (Learnt, bool, error) {
	now := InstantOf(l.stamp.Started)
	generation := inBackground(func() error { return nil })
	entry := l.entry(now)
	if l.request.AgentID != "" && !l.fence.Set {
		generation = inBackground(func() error {
			agent, _, err := l.hub.presence.ReadAgent(ctx, l.request.AgentID)
			entry.LearntGeneration = agent.Generation
			return err
		})
	}
	found, _, err := l.hub.reflexion.ReadPattern(ctx, entry.Key.Pattern, patternPage)
	if failed := generation(); err == nil {
		err = failed
	}
	if err != nil {
		return Learnt{}, false, fmt.Errorf("read pattern: %w", err)
	}
	creation := ReflexionCreation{Entry: entry, Fence: l.fence, WriteStamp: l.stamp}
	matches := rank(now, found, func(e ReflexionEntry) bool {
		_, forgotten := e.settle(now)
		if forgotten && e.Key == entry.Key {
			creation.Replaces = Some(e)
		}
		return !forgotten && e.Type == entry.Type && e.Pattern == l.pattern && l.context.agrees(e)
	})
	if len(matches) > 0 {
		return l.hit(ctx, matches[0])
	}
	write, err := l.hub.reflexion.CreateReflexion(ctx, creation)
	switch {
	case err != nil:
		return Learnt{}, false, fmt.Errorf("create reflexion entry: %w", err)
	case write.Stale.Set:
		return Learnt{}, false, l.stale(write)
	case write.Done:
		return Learnt{Entry: write.Entry.view(now), Created: true, Replayed: write.Replayed}, true, nil
	case write.Entry.Born == "":
		return Learnt{}, false, nil // it went between the read and the write
	}
	return l.hit(ctx, write.Entry)
}

// entry is what is made when there is none. A success is a hit of its own
// (contract 8).
func (l *learning) entry(now Instant) ReflexionEntry {
	r := l.request
	e := ReflexionEntry{
		Key:      ReflexionKey{Pattern: patternKey(l.pattern), Variant: l.context.variant(r.Type)},
		Born:     l.stamp.WriteID,
		Type:     r.Type,
		Pattern:  l.pattern,
		Message:  r.Message,
		Context:  r.Context,
		Solution: r.Solution,
		Code:     r.Code,
		Hits:     1,
		LastHit:  now, CreatedAt: now, UpdatedAt: now,
		LearntBy: r.AgentID, LearntGeneration: l.fence.Value.Generation,
		DueAt: now.Add(r.Type.window()),
	}
	if len(e.Context) == 0 {
		e.Context = json.RawMessage("{}")
	}
	if r.Success {
		e.Hits, e.Successes = 2, 1
	}
	if r.Type == ReflexionAdaptive {
		e.Base, e.BaseHits = adaptiveStart, 1
	}
	return e
}

func (l *learning) hit(ctx context.Context, e ReflexionEntry) (Learnt, bool, error) {
	write, err := l.hub.hitReflexion(ctx, e, ReflexionHit{Success: l.request.Success, Fence: l.fence, WriteStamp: l.stamp})
	switch {
	case err != nil:
		return Learnt{}, false, err
	case write.Stale.Set:
		return Learnt{}, false, l.stale(write)
	}
	return Learnt{Entry: write.Entry.view(InstantOf(l.stamp.Started)), Replayed: write.Replayed}, write.Done, nil
}

func (l *learning) stale(w ReflexionWrite) error {
	return l.hub.staleActor(l.fence.Value, w.Stale.Value, l.identity)
}

// HitRequest counts that an entry was used.
type HitRequest struct {
	ID      string
	Success bool // it helped
	Fences  Fences
}

// ReflexionHitResult is the entry with the hit counted.
type ReflexionHitResult struct {
	Entry    ReflexionView
	Replayed bool
}

// Hit counts a use of an entry. Hits at once are all counted, and one that is
// sent again after its answer was lost is counted once. Cost: 1 round trip, 1
// write unit; 3 once in 32 hits and after an entry's decay.
//
// Errors: INVALID_ARGUMENT naming id, NOT_FOUND for an entry that is not there
// or forgotten, the identity's fences, CONTENDED.
func (h *Hub) Hit(ctx context.Context, r HitRequest) (ReflexionHitResult, error) {
	if err := checkID("id", r.ID); err != nil {
		return ReflexionHitResult{}, err
	}
	if _, err := h.checkIdentity(ctx, r.Fences); err != nil {
		return ReflexionHitResult{}, err
	}
	missing := Refuse(CodeNotFound, "there is no such entry, or it is forgotten")
	e, ok := parseReflexionID(r.ID)
	if !ok {
		return ReflexionHitResult{}, missing
	}
	hit := ReflexionHit{Success: r.Success, WriteStamp: h.stamp(h.clock.Now())}
	write, err := h.hitReflexion(ctx, e, hit)
	if err != nil {
		return ReflexionHitResult{}, err
	}
	if !write.Done {
		return ReflexionHitResult{}, missing
	}
	return ReflexionHitResult{Entry: write.Entry.view(InstantOf(hit.Started)), Replayed: write.Replayed}, nil
}

// hitReflexion counts a hit on an entry; not done: it is not there any more, or
// forgotten. Where the counting write is refused because time has passed over
// the entry, or because the write ids that it remembers have to move on, the
// entry is written as a whole, where nothing changed since it was seen.
func (h *Hub) hitReflexion(ctx context.Context, e ReflexionEntry, hit ReflexionHit) (ReflexionWrite, error) {
	now := InstantOf(hit.Started)
	hit.Key, hit.Born = e.Key, e.Born
	hit.FreshAfter, hit.Due = now.Add(-e.Type.window()), now.Add(e.Type.window())
	for attempt := range onceAttempts {
		write, err := h.reflexion.HitReflexion(ctx, hit)
		if err != nil {
			return ReflexionWrite{}, fmt.Errorf("hit reflexion entry: %w", err)
		}
		if write.Done || write.Stale.Set {
			return write, nil
		}
		settled, forgotten := write.Entry.settle(now)
		if settled.Born != e.Born || forgotten {
			return ReflexionWrite{}, nil
		}
		write, err = h.reflexion.ChangeReflexion(ctx, ReflexionChange{
			Seen: write.Entry, Next: settled.hit(hit), Fence: hit.Fence, Counts: true, WriteStamp: hit.WriteStamp,
		})
		if err != nil {
			return ReflexionWrite{}, fmt.Errorf("hit reflexion entry: %w", err)
		}
		if write.Done || write.Stale.Set {
			return write, nil
		}
		if err := pause(ctx, attempt); err != nil {
			return ReflexionWrite{}, err
		}
	}
	return ReflexionWrite{}, Refuse(CodeContended, "others kept changing the same entry; nothing was done")
}

// hit is the entry with one hit more.
func (e ReflexionEntry) hit(hit ReflexionHit) ReflexionEntry {
	e.Hits++
	if hit.Success {
		e.Successes++
	}
	e.LastHit, e.UpdatedAt = InstantOf(hit.Started), InstantOf(hit.Started)
	if e.DueAt == 0 {
		e.DueAt = hit.Due
	}
	return e
}
