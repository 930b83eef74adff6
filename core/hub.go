package core

import "time"

// Config is what a hub is made of. Every field is required but the ones that say
// otherwise.
type Config struct {
	Presence    PresenceStore
	Identity    IdentityStore
	Idempotency IdempotencyStore
	Messages    MessageStore
	Sweeps      SweepStore
	Clock       Clock
	IDs         IDs

	Humans  HumanRequestStore
	Schemas SchemaChecker
	Sealer  Sealer // may be nil: then no credential is asked for
	Jobs    JobStore
	Relay   EventRelay // may be nil: then no event leaves the hub but to its readers
}

// Hub carries out the operations. It keeps no state of its own but a short-lived
// copy of the identity, and is safe for concurrent use.
type Hub struct {
	presence    PresenceStore
	identity    *identityCache
	idempotency IdempotencyStore
	messages    MessageStore
	sweeps      SweepStore
	clock       Clock
	ids         IDs

	humans  HumanRequestStore
	schemas SchemaChecker
	sealer  Sealer
	jobs    JobStore
	relay   EventRelay
}

// New returns a hub. It makes no request.
func New(c Config) *Hub {
	return &Hub{
		presence:    c.Presence,
		identity:    newIdentityCache(c.Identity, c.Clock, c.IDs),
		idempotency: c.Idempotency,
		messages:    c.Messages,
		sweeps:      c.Sweeps,
		clock:       c.Clock,
		ids:         c.IDs,

		humans:  c.Humans,
		schemas: c.Schemas,
		sealer:  c.Sealer,
		jobs:    c.Jobs,
		relay:   c.Relay,
	}
}

func (h *Hub) stamp(now time.Time) WriteStamp {
	return WriteStamp{WriteID: h.ids.New(), Started: now}
}
