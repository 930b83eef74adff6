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
	// Wrong tokens that have to be looked up are let through at a rate, after
	// a burst: guessing must not turn into load on the table. A token that the
	// process has seen to be valid is no guess, so that nobody can lock out those
	// who are at work.
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
	guesses int                  // wrong tokens looked up, less what has drained
	drained time.Time
}

type cachedToken struct {
	token core.Token
	until time.Time
}

func newAuthenticator(store core.TokenStore, clock core.Clock) *authenticator {
	return &authenticator{
		store:   store,
		clock:   clock,
		records: map[string]cachedToken{},
		unknown: map[string]time.Time{},
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

// record returns the record of a token, from memory where that is fresh.
func (a *authenticator) record(ctx context.Context, hash string) (core.Token, error) {
	if token, found, err := a.cached(hash); found || err != nil {
		return token, err
	}
	token, found, err := a.store.ReadToken(ctx, hash)
	if err != nil {
		return core.Token{}, err
	}
	// The store found the record by the hash; comparing it again, in constant
	// time, keeps an answer that belongs to another key from authorising.
	found = found && subtle.ConstantTimeCompare([]byte(token.Hash), []byte(hash)) == 1
	a.remember(hash, token, found)
	if !found {
		return core.Token{}, errUnauthorized
	}
	return token, nil
}

// cached answers from memory: a record, a refusal, or neither.
func (a *authenticator) cached(hash string) (core.Token, bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	entry, known := a.records[hash]
	if known && now.Before(entry.until) {
		return entry.token, true, nil
	}
	if until, ok := a.unknown[hash]; ok && now.Before(until) {
		return core.Token{}, false, errUnauthorized
	}
	drained := int(now.Sub(a.drained) / guessPeriod)
	if drained > 0 {
		a.guesses, a.drained = max(0, a.guesses-drained), now
	}
	if a.guesses >= guessBurst && !known {
		return core.Token{}, false, &core.Error{
			Code: core.CodeThrottled, Message: "too many unknown tokens were tried", RetryAfter: time.Second,
		}
	}
	return core.Token{}, false, nil
}

func (a *authenticator) remember(hash string, token core.Token, found bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	if found {
		makeRoom(a.records)
		a.records[hash] = cachedToken{token: token, until: now.Add(tokenCacheTime)}
		return
	}
	a.guesses++
	delete(a.records, hash)
	makeRoom(a.unknown)
	a.unknown[hash] = now.Add(unknownTokenCacheTime)
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
