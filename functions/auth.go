package functions

import (
	"context"
	"crypto/subtle"
	"strings"
	"sync"
	"time"

	"drawbridge/core"
)

// Bounds of what the process remembers about tokens.
const (
	// tokenCacheTime is how long a record is used without reading it again:
	// the longest time a revoked token still works (design section 5).
	tokenCacheTime = 30 * time.Second
	// unknownTokenCacheTime is how long a token is known to have no record.
	unknownTokenCacheTime = 5 * time.Second
	// maxCachedTokens bounds the memory of the cache, records and absences
	// each.
	maxCachedTokens = 4096
	// Tokens that have to be looked up are let through at a rate, after a burst:
	// guessing must not turn into load on the table. A place is taken before the
	// read and given back when the token proves to have a record. A token that
	// the process has seen to be valid needs none, so that nobody can lock out
	// those who are at work.
	guessBurst  = 100
	guessPeriod = 100 * time.Millisecond
)

// MaxToken is the longest bearer token that is looked at, in bytes.
const MaxToken = 1024

// A principal is whom a request comes from.
type principal struct{ token core.Token }

// mayActAs refuses agents the token is not bound to (compat rule 17). field
// names where the request says it.
func (p principal) mayActAs(agentID, field string) error {
	if p.token.ActsAs(agentID) {
		return nil
	}
	return core.InvalidCode(core.CodeForbidden, field, "the token is not bound to the agent in "+field)
}

// bearerToken takes the token out of an Authorization header. The scheme's
// case and spaces around the token do not matter (RFC 9110).
func bearerToken(header string) (string, bool) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(header), " ")
	token = strings.TrimSpace(token)
	ok := strings.EqualFold(scheme, "Bearer") && token != "" && len(token) <= MaxToken &&
		isPrintableASCII(token) && !strings.Contains(token, " ")
	return token, ok
}

var errUnauthorized = core.Refuse(core.CodeUnauthorized, "a valid bearer token is required")

// An authenticator finds out whom a request comes from.
type authenticator struct {
	store core.TokenStore
	clock core.Clock

	mu      sync.Mutex
	records map[string]cachedToken
	unknown map[string]time.Time // until when
	lookups map[string]*lookup   // under way
	guesses int                  // lookups of tokens that were not known, less what has drained
	drained time.Time
}

type cachedToken struct {
	token core.Token
	until time.Time
}

// A lookup is one read of a token's record. Requests that come with the same
// token meanwhile wait for it instead of reading again.
type lookup struct {
	done  chan struct{} // closed when the rest is set
	token core.Token
	err   error // nil: there is a record
	// unknown: the read said that there is none.
	unknown bool
	// abandoned: the request that read went away before the answer came.
	abandoned bool
}

func newAuthenticator(store core.TokenStore, clock core.Clock) *authenticator {
	return &authenticator{
		store:   store,
		clock:   clock,
		records: map[string]cachedToken{},
		unknown: map[string]time.Time{},
		lookups: map[string]*lookup{},
	}
}

// authenticate returns whom an Authorization header stands for. It costs one
// read at most every tokenCacheTime for a token that is in use.
func (a *authenticator) authenticate(ctx context.Context, header string) (*principal, error) {
	secret, ok := bearerToken(header)
	if !ok {
		return nil, errUnauthorized
	}
	token, err := a.record(ctx, core.TokenHash(secret))
	if err != nil {
		return nil, err
	}
	if !token.Valid(core.InstantOf(a.clock.Now())) {
		return nil, errUnauthorized
	}
	return &principal{token: token}, nil
}

// record returns the record of a token: from memory where that is fresh, from
// the read that is under way, or from one of its own.
func (a *authenticator) record(ctx context.Context, hash string) (core.Token, error) {
	for {
		l, own, err := a.join(hash)
		if err != nil {
			return core.Token{}, err
		}
		if own {
			a.read(ctx, hash, l)
			return l.token, l.err
		}
		select {
		case <-l.done:
			if !l.abandoned {
				return l.token, l.err
			}
		case <-ctx.Done():
			return core.Token{}, ctx.Err()
		}
	}
}

// answeredLookup is a lookup that needs no read.
func answeredLookup(token core.Token) *lookup {
	l := &lookup{done: make(chan struct{}), token: token}
	close(l.done)
	return l
}

// join finds the lookup that answers for a hash: a record in memory, the one
// under way, or a new one, which the caller owns and has to carry out.
func (a *authenticator) join(hash string) (l *lookup, own bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	entry, known := a.records[hash]
	if known && now.Before(entry.until) {
		return answeredLookup(entry.token), false, nil
	}
	if until, ok := a.unknown[hash]; ok && now.Before(until) {
		return nil, false, errUnauthorized
	}
	if l, ok := a.lookups[hash]; ok {
		return l, false, nil
	}
	if !known && !a.takePlace(now) {
		return nil, false, &core.Error{
			Code: core.CodeThrottled, Message: "too many unknown tokens were tried", RetryAfter: time.Second,
		}
	}
	l = &lookup{done: make(chan struct{})}
	a.lookups[hash] = l
	return l, true, nil
}

// takePlace reserves one lookup of a token that is not known.
func (a *authenticator) takePlace(now time.Time) bool {
	if drained := int(now.Sub(a.drained) / guessPeriod); drained > 0 {
		a.guesses, a.drained = max(0, a.guesses-drained), now
	}
	if a.guesses >= guessBurst {
		return false
	}
	a.guesses++
	return true
}

// read carries a lookup out. What it finds counts from before the read, so that
// a slow one does not make a revoked token work for longer.
func (a *authenticator) read(ctx context.Context, hash string, l *lookup) {
	started := a.clock.Now()
	l.err, l.abandoned = errUnauthorized, true // a read that panics admits nobody
	defer func() { a.settle(hash, l, started) }()
	token, found, err := a.store.ReadToken(ctx, hash)
	l.abandoned = err != nil && ctx.Err() != nil
	// The store found the record by the hash; comparing it again, in constant
	// time, keeps an answer that belongs to another key from authorising.
	switch {
	case err != nil:
		l.err = err
	case found && subtle.ConstantTimeCompare([]byte(token.Hash), []byte(hash)) == 1:
		l.token, l.err = token, nil
	default:
		l.unknown = true
	}
}

// settle remembers what a lookup found and lets those who wait for it go on. A
// read that failed keeps its place: it has cost the table as much as a guess.
func (a *authenticator) settle(hash string, l *lookup, started time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer close(l.done)
	delete(a.lookups, hash)
	_, known := a.records[hash]
	switch {
	case l.err == nil:
		if !known {
			a.guesses = max(0, a.guesses-1)
		}
		makeRoom(a.records)
		a.records[hash] = cachedToken{token: l.token, until: started.Add(tokenCacheTime)}
	case l.unknown:
		if known {
			a.guesses++ // it took no place
		}
		delete(a.records, hash)
		makeRoom(a.unknown)
		a.unknown[hash] = started.Add(unknownTokenCacheTime)
	}
}

// makeRoom keeps a full cache bounded: whatever comes to hand goes, which costs
// one read more for a token that is still in use.
func makeRoom[T any](cache map[string]T) {
	for key := range cache {
		if len(cache) < maxCachedTokens {
			return
		}
		delete(cache, key)
	}
}
