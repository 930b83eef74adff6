package core

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ReflexionType tells what an entry's confidence follows.
type ReflexionType string

// The types. A learnt fix is judged by how often it helped; an adaptive rule
// gains by being seen and decays while it is not.
const (
	ReflexionLearnt   ReflexionType = "reflexion"
	ReflexionAdaptive ReflexionType = "adaptive"
)

// The numbers of contract 8.
const (
	reflexionForgetAfter = 30 * 24 * time.Hour // an entry of little confidence, unseen
	reflexionLittle      = 0.2                 // the confidence below which it is forgotten
	reflexionSure        = 10                  // hits after which only the rate counts
	adaptiveDecayAfter   = 7 * 24 * time.Hour  // unseen: a step down each time this passes
	adaptiveStart        = 5                   // tenths of confidence
	adaptiveActive       = 5                   // tenths from which lookups show a rule
	adaptiveForgotten    = 3                   // tenths at which a decayed rule is forgotten
	adaptiveMost         = 10
)

// The limits of reflexion, in bytes.
const (
	MaxErrorMessage    = 16 << 10
	MaxSolution        = 16 << 10
	MaxSolutionCode    = 64 << 10
	MaxReflexionFilter = 4 << 10 // of a context, as JSON
)

const (
	// DefaultLookupLimit is how many entries a lookup answers when none is asked
	// for.
	DefaultLookupLimit = 10
	// patternPage is how many entries of one pattern a lookup reads.
	patternPage = 200
	// ReflexionSearchDepth is how many entries of each type the fallback looks
	// at, the newest.
	ReflexionSearchDepth = 2000
	// maxReflexionPage bounds the texts of an answer in bytes. Escaped in JSON
	// twice, as a function's answer is, they stay below Lambda's 6 MB.
	maxReflexionPage = 768 << 10
)

// ReflexionKey is where an entry is: what it is about, as hashes.
type ReflexionKey struct {
	Pattern string // of the error pattern
	Variant string // of type and context
}

// ReflexionEntry is how an error was fixed, as it is stored.
type ReflexionEntry struct {
	Key      ReflexionKey
	Born     string // unlike that of any entry that was here before
	Type     ReflexionType
	Pattern  string
	Message  string          // the error it was learnt from
	Context  json.RawMessage // an object
	Solution string
	Code     string // "": none

	Hits, Successes int64
	// Base is what an adaptive rule's confidence was, in tenths, when it had
	// BaseHits.
	Base, BaseHits int64

	LastHit   Instant
	CreatedAt Instant
	UpdatedAt Instant // the last hit, or the last decay

	LearntBy         string // the agent, "": not told
	LearntGeneration int64  // its generation then, 0: not known

	// DueAt is when the sweep looks at the entry, 0: never. It may be early.
	DueAt Instant
}

// ID names the entry as long as it lives: one that is learnt anew after it was
// forgotten has another.
func (e ReflexionEntry) ID() string {
	id := []byte{e.Type[0]}
	for _, part := range []string{e.Key.Pattern, e.Key.Variant, strings.ReplaceAll(e.Born, "-", "")} {
		raw, _ := hex.DecodeString(part) // core made them
		id = append(id, raw...)
	}
	return base64.RawURLEncoding.EncodeToString(id)
}

// parseReflexionID reads an id back; false when it is none.
func parseReflexionID(id string) (ReflexionEntry, bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(id)
	if err != nil || len(raw) != 1+3*keyBytes {
		return ReflexionEntry{}, false
	}
	part := func(n int) string { return hex.EncodeToString(raw[1+n*keyBytes : 1+(n+1)*keyBytes]) }
	born := part(2)
	e := ReflexionEntry{
		Key:  ReflexionKey{Pattern: part(0), Variant: part(1)},
		Born: strings.Join([]string{born[:8], born[8:12], born[12:16], born[16:20], born[20:]}, "-"),
		Type: ReflexionLearnt,
	}
	if raw[0] == ReflexionAdaptive[0] {
		e.Type = ReflexionAdaptive
	}
	return e, raw[0] == e.Type[0]
}

// keyBytes is the length of a hash in a key and of a UUID.
const keyBytes = 16

func patternKey(pattern string) string { return shortHash(pattern) }

func shortHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:keyBytes])
}

// Confidence is how far to trust the entry at a moment, 0 to 1. A learnt fix
// starts at one half and moves to its rate of success as hits come in (contract
// 8); an adaptive rule gains a tenth with each hit and loses one with every
// seven days it is not seen.
func (e ReflexionEntry) Confidence(now Instant) float64 {
	if e.Type == ReflexionAdaptive {
		decayed, _ := e.settle(now)
		return float64(decayed.tenths()) / 10
	}
	hits, successes := max(0, e.Hits), min(max(0, e.Successes), max(0, e.Hits))
	if hits <= 1 {
		return 0.5 // learnt, and not used since
	}
	if hits >= reflexionSure {
		return float64(successes) / float64(hits)
	}
	// The contract's r*d + 0.5*(1-d) with r = successes/hits and d = hits/10, in
	// one division: 0.55 and not 0.5499999999999999.
	return float64(2*successes+reflexionSure-hits) / (2 * reflexionSure)
}

// tenths is a rule's confidence before decay. Gains are capped, so that a rule
// seen a thousand times decays as soon as one seen five times.
func (e ReflexionEntry) tenths() int64 { return min(adaptiveMost, e.Base+e.Hits-e.BaseHits) }

// settle is the entry with the decay of the time that passed, and whether it is
// forgotten: then every read and hit treats it as gone, swept or not.
func (e ReflexionEntry) settle(now Instant) (ReflexionEntry, bool) {
	unseen := now.Sub(e.UpdatedAt)
	if e.Type != ReflexionAdaptive {
		return e, unseen > reflexionForgetAfter && e.Confidence(now) < reflexionLittle
	}
	steps := int64(unseen / adaptiveDecayAfter)
	if steps <= 0 {
		return e, false
	}
	e.Base, e.BaseHits = max(0, e.tenths()-steps), e.Hits
	e.UpdatedAt = e.UpdatedAt.Add(time.Duration(steps) * adaptiveDecayAfter)
	return e, e.Base <= adaptiveForgotten
}

// window is how long an entry is left alone after it was last seen.
func (t ReflexionType) window() time.Duration {
	if t == ReflexionAdaptive {
		return adaptiveDecayAfter
	}
	return reflexionForgetAfter
}

// ReflexionView is an entry as a reader sees it.
type ReflexionView struct {
	ReflexionEntry
	Confidence float64
}

func (e ReflexionEntry) view(now Instant) ReflexionView {
	return ReflexionView{ReflexionEntry: e, Confidence: e.Confidence(now)}
}

// LookupRequest asks how an error was fixed.
type LookupRequest struct {
	Message Opt[string] // the error's text, or
	Pattern Opt[string] // its pattern, or a part of one
	Context json.RawMessage
	Limit   int // 1..100; 0: 10
}

// Lookup is the answer: the entries by confidence, highest first.
type Lookup struct {
	Pattern string
	Entries []ReflexionView
	// Truncated: there are more entries than were asked for, or the bounded
	// search did not look at all of them.
	Truncated bool
}

// Lookup finds the entries of exactly the error's pattern that agree with every
// member of the context that is not null. Without one it falls back to the
// patterns that contain this one (its first 100 characters), among the newest
// entries of each type, at most 2,000. Adaptive rules are found while they are
// active. Cost: 1 round trip, however many entries exist; the fallback 2 more,
// whose cost does not grow beyond its bound.
//
// Errors: INVALID_ARGUMENT naming error_message, context or limit.
func (h *Hub) Lookup(ctx context.Context, r LookupRequest) (Lookup, error) {
	wanted, err := r.validate()
	if err != nil {
		return Lookup{}, err
	}
	answer := Lookup{Entries: []ReflexionView{}}
	if answer.Pattern = ErrorPattern(r.Message.or(r.Pattern.Value)); answer.Pattern == "" {
		return answer, nil
	}
	now := InstantOf(h.clock.Now())
	found, cut, err := h.reflexion.ReadPattern(ctx, patternKey(answer.Pattern), patternPage)
	if err != nil {
		return Lookup{}, fmt.Errorf("read pattern: %w", err)
	}
	known := func(e ReflexionEntry) bool { return e.shows(now) && wanted.agrees(e) }
	matches := rank(now, found, func(e ReflexionEntry) bool { return e.Pattern == answer.Pattern && known(e) })
	if len(matches) == 0 {
		text := searchText(answer.Pattern)
		if found, cut, err = h.reflexion.SearchReflexion(ctx, text, ReflexionSearchDepth); err != nil {
			return Lookup{}, fmt.Errorf("search patterns: %w", err)
		}
		matches = rank(now, found, func(e ReflexionEntry) bool { return strings.Contains(e.Pattern, text) && known(e) })
	}
	fitting := fitReflexions(matches[:min(cmp.Or(r.Limit, DefaultLookupLimit), len(matches))])
	answer.Truncated = cut || len(matches) > fitting
	for _, e := range matches[:fitting] {
		answer.Entries = append(answer.Entries, e.view(now))
	}
	return answer, nil
}

func (r LookupRequest) validate() (reflexionContext, error) {
	switch {
	case !r.Message.Set && !r.Pattern.Set:
		return nil, Invalid("error_message", "give error_message or error_pattern")
	case len(r.Message.Value) > MaxErrorMessage:
		return nil, tooLong("error_message", MaxErrorMessage)
	case len(r.Pattern.Value) > MaxErrorMessage:
		return nil, tooLong("error_pattern", MaxErrorMessage)
	case r.Limit < 0 || r.Limit > MaxListLimit:
		return nil, Invalid("limit", fmt.Sprintf("limit must be 1 to %d", MaxListLimit))
	}
	return parseReflexionContext(r.Context)
}

func tooLong(field string, most int) error {
	return Invalid(field, fmt.Sprintf("%s must be at most %d bytes", field, most))
}

// shows tells whether a lookup may answer the entry.
func (e ReflexionEntry) shows(now Instant) bool {
	settled, forgotten := e.settle(now)
	return !forgotten && (e.Type != ReflexionAdaptive || settled.tenths() >= adaptiveActive)
}

// rank keeps some entries, by confidence, then age.
func rank(now Instant, entries []ReflexionEntry, keep func(ReflexionEntry) bool) []ReflexionEntry {
	kept := slices.DeleteFunc(slices.Clone(entries), func(e ReflexionEntry) bool { return !keep(e) })
	slices.SortFunc(kept, func(a, b ReflexionEntry) int {
		return cmp.Or(cmp.Compare(b.Confidence(now), a.Confidence(now)), cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.Born, b.Born))
	})
	return kept
}

// fitReflexions is how many of the entries fit into an answer, at least one.
func fitReflexions(entries []ReflexionEntry) int {
	size := 0
	for i, e := range entries {
		size += len(e.Pattern) + len(e.Message) + len(e.Context) + len(e.Solution) + len(e.Code)
		if size > maxReflexionPage && i > 0 {
			return i
		}
	}
	return len(entries)
}

// reflexionContext is a context's members in one form: those that are equal have
// equal texts. A null is no member.
type reflexionContext map[string]string

func parseReflexionContext(raw json.RawMessage) (reflexionContext, error) {
	if len(raw) > MaxReflexionFilter {
		return nil, tooLong("context", MaxReflexionFilter)
	}
	if len(raw) == 0 {
		return reflexionContext{}, nil
	}
	var members map[string]any
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, Invalid("context", "context must be an object whose numbers fit a double")
	}
	c := reflexionContext{}
	for name, value := range members {
		if value == nil {
			continue
		}
		canonical, err := json.Marshal(value) // sorts the members of nested objects
		if err != nil {
			return nil, Invalid("context", "context cannot be encoded")
		}
		c[name] = string(canonical)
	}
	return c, nil
}

// agrees tells whether the entry has every member with the same value.
func (c reflexionContext) agrees(e ReflexionEntry) bool {
	if len(c) == 0 {
		return true
	}
	has, err := parseReflexionContext(e.Context)
	if err != nil {
		return false
	}
	for name, value := range c {
		if has[name] != value {
			return false
		}
	}
	return true
}

// variant is the key of an entry with this context among those of its pattern.
func (c reflexionContext) variant(t ReflexionType) string {
	canonical, _ := json.Marshal(c) // texts only: sorted, and never fails
	return shortHash(string(t) + "\x00" + string(canonical))
}

// ReflexionQuery asks for a page of the entries, newest first.
type ReflexionQuery struct {
	Type   Opt[string]
	Limit  int // 1..100; 0: 50
	Cursor string
}

// ReflexionPage is a page of entries. It may be short where some were forgotten
// or are large.
type ReflexionPage struct {
	Entries    []ReflexionView
	NextCursor string // "" at the end
}

// Reflexions lists the entries, newest first. An entry that exists from the
// first page to the last is on exactly one. Cost: 2 round trips.
//
// Errors: INVALID_ARGUMENT naming type, limit or cursor.
func (h *Hub) Reflexions(ctx context.Context, q ReflexionQuery) (ReflexionPage, error) {
	scan := ReflexionScan{Types: []ReflexionType{ReflexionLearnt, ReflexionAdaptive}, Limit: cmp.Or(q.Limit, DefaultListLimit)}
	if q.Type.Set {
		scan.Types = []ReflexionType{ReflexionType(q.Type.Value)}
		if err := scan.Types[0].validate(); err != nil {
			return ReflexionPage{}, err
		}
	}
	if q.Limit < 0 || q.Limit > MaxListLimit {
		return ReflexionPage{}, Invalid("limit", fmt.Sprintf("limit must be 1 to %d", MaxListLimit))
	}
	kind := "reflexion\x00" + q.Type.Value
	if q.Cursor != "" {
		var err error
		if scan.Before, err = decodeCursor(kind, q.Cursor); err != nil {
			return ReflexionPage{}, err
		}
	}
	found, err := h.reflexion.ScanReflexion(ctx, scan)
	if err != nil {
		return ReflexionPage{}, fmt.Errorf("scan reflexion: %w", err)
	}
	page := ReflexionPage{Entries: []ReflexionView{}}
	now := InstantOf(h.clock.Now())
	fitting := fitReflexions(found.Entries)
	if fitting < len(found.Entries) {
		found.Next = found.Positions[fitting-1]
	}
	for _, e := range found.Entries[:fitting] {
		if _, forgotten := e.settle(now); !forgotten {
			page.Entries = append(page.Entries, e.view(now))
		}
	}
	if found.Next != "" {
		page.NextCursor = encodeCursor(kind, found.Next)
	}
	return page, nil
}

func (t ReflexionType) validate() error {
	if t != ReflexionLearnt && t != ReflexionAdaptive {
		return Invalid("type", "type must be reflexion or adaptive")
	}
	return nil
}
