package core

import "time"

// Config is what a hub is made of. Every field is required but the ones that say
// otherwise.
type Config struct {
	Presence PresenceStore
	Identity IdentityStore
	Messages MessageStore
	Roles    RoleStore
	Archive  ArchiveQueue
	Sweeps   SweepStore
	Clock    Clock
	IDs      IDs

	Humans    HumanRequestStore
	Schemas   SchemaChecker
	Sealer    Sealer // may be nil: then no credential is asked for
	Jobs      JobStore
	Relay     EventRelay // may be nil: then no event leaves the hub but to its readers
	Reflexion ReflexionStore
	Pipelines PipelineStore
}

// Hub carries out the operations. It keeps no state of its own but a short-lived
// copy of the identity, and is safe for concurrent use.
type Hub struct {
	presence PresenceStore
	identity *identityCache
	messages MessageStore
	roles    RoleStore
	archive  ArchiveQueue
	sweeps   SweepStore
	clock    Clock
	ids      IDs

	humans    HumanRequestStore
	schemas   SchemaChecker
	sealer    Sealer
	jobs      JobStore
	relay     EventRelay
	reflexion ReflexionStore
	pipelines PipelineStore
}

// New returns a hub. It makes no request.
func New(c Config) *Hub {
	return &Hub{
		presence: c.Presence,
		identity: newIdentityCache(c.Identity, c.Clock, c.IDs),
		messages: c.Messages,
		roles:    c.Roles,
		archive:  c.Archive,
		sweeps:   c.Sweeps,
		clock:    c.Clock,
		ids:      c.IDs,

		humans:    c.Humans,
		schemas:   c.Schemas,
		sealer:    c.Sealer,
		jobs:      c.Jobs,
		relay:     c.Relay,
		reflexion: c.Reflexion,
		pipelines: c.Pipelines,
	}
}

// ArchiveQueue returns the hub's archive queue.
func (h *Hub) ArchiveQueue() ArchiveQueue { return h.archive }

func (h *Hub) stamp(now time.Time) WriteStamp {
	return WriteStamp{WriteID: h.ids.New(), Started: now.Truncate(time.Microsecond)}
}
