package core

import "time"

// Config is what a hub is made of. Every field is required.
type Config struct {
	Presence PresenceStore
	Identity IdentityStore
	Messages MessageStore
	Roles    RoleStore
	Archive  ArchiveQueue
	Sweeps   SweepStore
	Clock    Clock
	IDs      IDs
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
	}
}

// ArchiveQueue returns the hub's archive queue.
func (h *Hub) ArchiveQueue() ArchiveQueue { return h.archive }

func (h *Hub) stamp(now time.Time) WriteStamp {
	return WriteStamp{WriteID: h.ids.New(), Started: now.Truncate(time.Microsecond)}
}
