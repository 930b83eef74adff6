package core

import (
	"context"
	"fmt"
	"time"
)

// Identity names the deployment's store: which incarnation of the hub a caller
// speaks to. It is stable over restarts and changes only when an operator
// rotates it (compat 4).
type Identity struct {
	HubInstanceID    string  `json:"hub_instance_id"`
	StoreFingerprint string  `json:"store_fingerprint"`
	StoreType        string  `json:"store_type"`
	StoreName        string  `json:"store_name"` // the table's name
	CreatedAt        Instant `json:"created_at_ms"`
}

// Fences are what a caller believes about the authority it acts under. What is
// not set is not checked. They are checked in the order hub instance, store
// fingerprint, generation; the first mismatch is the answer.
type Fences struct {
	// Generation is the agent's; a value that no generation can have, such as
	// a text or a fraction, is given as -1 and matches nothing.
	Generation       Opt[int64]
	HubInstanceID    Opt[string]
	StoreFingerprint Opt[string]
}

// Rotation is the outcome of a rotation of the identity.
type Rotation struct {
	Identity Identity
	Previous string // the hub instance id before it
}

// IdentityRecord is what the store keeps of the identity.
type IdentityRecord struct {
	HubInstanceID string
	CreatedAt     Instant
	Reason        string // why it was made: "first use" or the operator's words
}

// IdentityStore keeps the one identity of the hub.
type IdentityStore interface {
	// Describe tells what the store is: its type, its name and the fingerprint of
	// what identifies it. It makes no request.
	Describe() (kind, name, fingerprint string)
	// ReadIdentity returns the identity, strongly consistent; false when none
	// was made yet.
	ReadIdentity(ctx context.Context) (IdentityRecord, bool, error)
	// CreateIdentity stores r unless there is an identity, and returns the one
	// that stands: every first user gets the same.
	CreateIdentity(ctx context.Context, r IdentityRecord) (IdentityRecord, error)
	// ReplaceIdentity stores r where previous stands; false when another
	// identity does. A lost response is recognised.
	ReplaceIdentity(ctx context.Context, previous string, r IdentityRecord) (bool, error)
}

// IdentityWindow is how long a process may go on with its copy of the identity
// after a rotation elsewhere. Within it a caller that still presents the old
// identity is accepted by that process; one that presents the new is never
// refused, because a mismatch is read again before it is believed.
const IdentityWindow = 5 * time.Second

// maxReason is the longest reason of a rotation, in bytes.
const maxReason = 512

// rotateAttempts bounds how often a rotation starts over because another one
// came first.
const rotateAttempts = 4

// Identity returns the hub's identity, making it at first use. It is at most
// IdentityWindow old. Cost: nothing while the copy is fresh, else one read.
func (h *Hub) Identity(ctx context.Context) (Identity, error) {
	return h.identity.current(ctx)
}

// RotateIdentity gives the hub a new instance id: every caller that fences with
// the old one is refused from then on (within IdentityWindow). Cost: one read
// and one write.
func (h *Hub) RotateIdentity(ctx context.Context, reason string) (Rotation, error) {
	if len(reason) > maxReason || !isText(reason) {
		return Rotation{}, Invalid("reason", "reason must be at most 512 bytes of UTF-8 without control characters")
	}
	for range rotateAttempts {
		before, err := h.identity.refresh(ctx)
		if err != nil {
			return Rotation{}, err
		}
		next := IdentityRecord{HubInstanceID: h.ids.New(), CreatedAt: InstantOf(h.clock.Now()), Reason: reason}
		done, err := h.identity.store.ReplaceIdentity(ctx, before.HubInstanceID, next)
		if err != nil {
			return Rotation{}, fmt.Errorf("replace identity: %w", err)
		}
		if done {
			return Rotation{Identity: h.identity.put(ctx, next), Previous: before.HubInstanceID}, nil
		}
	}
	return Rotation{}, Refuse(CodeContended, "others kept rotating the identity")
}

// checkIdentity compares what the caller believes with the identity, hub
// instance first. It returns the identity either way it can.
func (h *Hub) checkIdentity(ctx context.Context, f Fences) (Identity, error) {
	id, err := h.identity.current(ctx)
	if err != nil {
		return Identity{}, err
	}
	if id.mismatch(f) == nil {
		return id, nil
	}
	// The copy may be the one that is out of date, not the caller.
	if id, err = h.identity.refresh(ctx); err != nil {
		return Identity{}, err
	}
	if stale := id.mismatch(f); stale != nil {
		return id, stale
	}
	return id, nil
}

func (id Identity) mismatch(f Fences) error {
	if f.HubInstanceID.Set && f.HubInstanceID.Value != id.HubInstanceID {
		return &Error{Code: CodeStaleHubInstance, Message: "hub_instance_id is not this hub's; register again with the current one", Data: id}
	}
	if f.StoreFingerprint.Set && f.StoreFingerprint.Value != id.StoreFingerprint {
		return &Error{Code: CodeStoreFingerprintMismatch, Message: "store_fingerprint is not this hub's store; register again with the current one", Data: id}
	}
	return nil
}

// identityCache is the process's copy of the identity.
type identityCache struct {
	store IdentityStore
	clock Clock
	ids   IDs

	// turn is held while reading, so that a burst reads once. It is no mutex,
	// because whoever waits for another's read must be able to give up.
	turn   chan struct{}
	copy   Identity
	readAt time.Time
}

func newIdentityCache(store IdentityStore, clock Clock, ids IDs) *identityCache {
	return &identityCache{store: store, clock: clock, ids: ids, turn: make(chan struct{}, 1)}
}

// take waits for the caller's turn, which it has to give back.
func (c *identityCache) take(ctx context.Context) error {
	if ctx.Err() == nil {
		select {
		case c.turn <- struct{}{}:
			return nil
		case <-ctx.Done():
		}
	}
	return Wrap(CodeUnavailable, "the time ran out before the hub's identity was read", ctx.Err())
}

func (c *identityCache) give() { <-c.turn }

func (c *identityCache) current(ctx context.Context) (Identity, error) {
	if err := c.take(ctx); err != nil {
		return Identity{}, err
	}
	defer c.give()
	if age := c.clock.Now().Sub(c.readAt); c.copy.HubInstanceID != "" && age >= 0 && age < IdentityWindow {
		return c.copy, nil
	}
	return c.read(ctx)
}

func (c *identityCache) refresh(ctx context.Context) (Identity, error) {
	if err := c.take(ctx); err != nil {
		return Identity{}, err
	}
	defer c.give()
	return c.read(ctx)
}

// read dates the copy by the moment before the request: the identity is at
// least that fresh.
func (c *identityCache) read(ctx context.Context) (Identity, error) {
	now := c.clock.Now()
	record, found, err := c.store.ReadIdentity(ctx)
	if err != nil {
		return Identity{}, fmt.Errorf("read identity: %w", err)
	}
	if !found {
		first := IdentityRecord{HubInstanceID: c.ids.New(), CreatedAt: InstantOf(now), Reason: "first use"}
		if record, err = c.store.CreateIdentity(ctx, first); err != nil {
			return Identity{}, fmt.Errorf("create identity: %w", err)
		}
	}
	c.copy, c.readAt = c.describe(record), now
	return c.copy, nil
}

// put keeps an identity that was just written: it is told whether or not there
// is time left to remember it.
func (c *identityCache) put(ctx context.Context, r IdentityRecord) Identity {
	written := c.describe(r)
	if c.take(ctx) == nil {
		defer c.give()
		c.copy, c.readAt = written, c.clock.Now()
	}
	return written
}

func (c *identityCache) describe(r IdentityRecord) Identity {
	kind, name, fingerprint := c.store.Describe()
	return Identity{
		HubInstanceID:    r.HubInstanceID,
		StoreFingerprint: fingerprint,
		StoreType:        kind,
		StoreName:        name,
		CreatedAt:        r.CreatedAt,
	}
}
