package core

import "context"

// ReflexionCreation is an entry on its way into the store.
type ReflexionCreation struct {
	Entry ReflexionEntry
	// Replaces is the forgotten entry at the same key, as it was seen.
	Replaces Opt[ReflexionEntry]
	Fence    Opt[AgentFence] // of the agent that tells it
	WriteStamp
}

// ReflexionHit counts a hit by adding, so that hits at once do not meet.
type ReflexionHit struct {
	Key     ReflexionKey
	Born    string // of the entry that is meant
	Success bool
	// FreshAfter refuses an entry that was not updated after it: time has
	// passed over that one.
	FreshAfter Instant
	Due        Instant // where the entry has no due time
	Fence      Opt[AgentFence]
	WriteStamp
}

// ReflexionChange writes what changes about an entry, where nothing about that
// changed since it was seen.
type ReflexionChange struct {
	Seen, Next ReflexionEntry
	// Counts: it is a hit, which is remembered by its write id.
	Counts bool
	Fence  Opt[AgentFence]
	WriteStamp
}

// ReflexionWrite is what became of a write.
type ReflexionWrite struct {
	// Entry is the entry after the write or, when it was not done, as it stands
	// (the zero entry: there is none).
	Entry ReflexionEntry
	Done  bool
	// Replayed: an earlier try of this write had done it.
	Replayed bool
	// Stale is the agent as it stands when the fence did not hold.
	Stale Opt[Agent]
}

// ReflexionScan asks for a page of entries, newest first.
type ReflexionScan struct {
	Types  []ReflexionType
	Before string // position of a previous page
	Limit  int
}

// ReflexionScanPage is a page of entries.
type ReflexionScanPage struct {
	Entries   []ReflexionEntry
	Positions []string // of each, to continue after it
	Next      string   // "" when none is left
}

// ReflexionDuePage is a page of due entries in order of their due times. Oldest
// is the first one's (0 when the page is empty).
type ReflexionDuePage struct {
	Entries []ReflexionEntry
	Oldest  Instant
	Next    string // "" when none is left
	// Unreadable is the error of the first item that cannot be read; the page leaves
	// such items out.
	Unreadable error
}

// ReflexionStore keeps the entries. Entries are read strongly consistent; which
// ones lists, searches and sweeps find may lag a moment behind.
type ReflexionStore interface {
	// ReadPattern returns the entries of a pattern, at most limit, in one
	// request; cut tells that there are more.
	ReadPattern(ctx context.Context, pattern string, limit int) (entries []ReflexionEntry, cut bool, err error)
	// SearchReflexion returns entries whose pattern contains the text, at most
	// MaxListLimit, out of the newest depth of each type. The store may look at
	// the beginning of a pattern only, of at least 200 bytes; cut tells that it
	// did not look at every entry or found more.
	SearchReflexion(ctx context.Context, text string, depth int) (entries []ReflexionEntry, cut bool, err error)
	// CreateReflexion puts an entry where there is none, or the one it replaces
	// is unchanged.
	CreateReflexion(ctx context.Context, c ReflexionCreation) (ReflexionWrite, error)
	// HitReflexion counts a hit once, however often it is sent while others come
	// between, at least 32.
	HitReflexion(ctx context.Context, h ReflexionHit) (ReflexionWrite, error)
	// ChangeReflexion writes counters, base, times and due time.
	ChangeReflexion(ctx context.Context, c ReflexionChange) (ReflexionWrite, error)
	// RemoveReflexion deletes an entry; false when it changed since it was seen.
	RemoveReflexion(ctx context.Context, seen ReflexionEntry) (bool, error)
	ScanReflexion(ctx context.Context, s ReflexionScan) (ReflexionScanPage, error)
	// DueReflexion returns a page of entries whose due time is before a moment.
	DueReflexion(ctx context.Context, s DueScan) (ReflexionDuePage, error)
}
