package core

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Bounds of what an operator may ask of a token.
const (
	maxTokenName   = 128
	maxTokenAgents = 100
	maxTokenLife   = 10 * 365 * 24 * time.Hour
	maxOverlap     = 90 * 24 * time.Hour
	tokenPage      = 100
	// tokenIDDigits is the least of a hash that names a token: 48 bits, so that
	// ids of a few thousand tokens are told apart; longer where they are not.
	tokenIDDigits = 12
	// minTokenPrefix is the least of a hash that is taken for one.
	minTokenPrefix = 8
)

// Tokens is what an operator does with tokens. It needs the store and no token:
// who may write the table decides who may use the hub, so no revocation can lock
// the operator out, not even that of the last operator token.
type Tokens struct {
	registry TokenRegistry
	clock    Clock
	random   io.Reader
}

// NewTokens returns the operator's side of a store. random is the source of the
// tokens' secrecy: crypto/rand.Reader.
func NewTokens(registry TokenRegistry, clock Clock, random io.Reader) *Tokens {
	return &Tokens{registry: registry, clock: clock, random: random}
}

// TokenRequest asks for a token.
type TokenRequest struct {
	Name     string // 1..128 bytes of UTF-8 without control characters
	Scope    Scope
	AgentIDs []string      // the agents it may act as, at most 100; empty: any
	Lifetime time.Duration // 0: without end; at most 10 years
}

func (r TokenRequest) validate() error {
	switch {
	case r.Name == "" || len(r.Name) > maxTokenName || !isText(r.Name):
		return Invalid("name", fmt.Sprintf("a token needs a name of 1 to %d bytes without control characters", maxTokenName))
	case scopeRank[r.Scope] == 0:
		return Invalid("scope", "the scope must be read, agent or operator")
	case len(r.AgentIDs) > maxTokenAgents:
		return Invalid("agent", fmt.Sprintf("a token is bound to at most %d agents", maxTokenAgents))
	case r.Lifetime < 0 || r.Lifetime > maxTokenLife || r.Lifetime%time.Millisecond != 0:
		return Invalid("expires", "a token expires after whole milliseconds, at most 10 years; 0 is never")
	}
	for _, id := range r.AgentIDs {
		if err := checkID("agent", id); err != nil {
			return err
		}
	}
	return nil
}

// Create makes a token and hands it to show, once. The record is stored before,
// so that a token that was shown works; a token that could not be shown is
// revoked again, because nobody has it.
//
// Cost: 1 write. Errors: those of show and of the store.
func (t *Tokens) Create(ctx context.Context, r TokenRequest, show func(secret string) error) (Token, error) {
	if err := r.validate(); err != nil {
		return Token{}, err
	}
	return t.issue(ctx, Token{
		Name: r.Name, Scopes: []Scope{r.Scope}, AgentIDs: slices.Compact(slices.Sorted(slices.Values(r.AgentIDs))), Lifetime: r.Lifetime,
	}, show)
}

// issue makes the token of a record that lacks its hash and times.
func (t *Tokens) issue(ctx context.Context, token Token, show func(secret string) error) (Token, error) {
	secret, err := NewToken(t.random)
	if err != nil {
		return Token{}, err
	}
	token.Hash, token.CreatedAt = TokenHash(secret), InstantOf(t.clock.Now())
	if token.Lifetime > 0 {
		token.ExpiresAt = token.CreatedAt.Add(token.Lifetime)
	}
	if _, err := t.registry.CreateToken(ctx, token); err != nil {
		return Token{}, fmt.Errorf("store the token's record: %w", err)
	}
	if err := show(secret); err != nil {
		if _, _, undone := t.registry.RevokeToken(ctx, token, InstantOf(t.clock.Now())); undone != nil {
			return Token{}, fmt.Errorf("show the token, which stays valid as %s: %w", shortID(token.Hash), err)
		}
		return Token{}, fmt.Errorf("show the token, which is revoked now: %w", err)
	}
	return token, nil
}

// List returns every record in the order of creation, ended ones too until the
// store collects them. Cost: 2 round trips for every 100.
func (t *Tokens) List(ctx context.Context) ([]Token, error) {
	var all []Token
	for after := ""; ; {
		page, next, err := t.registry.ListTokens(ctx, after, tokenPage)
		if err != nil {
			return nil, fmt.Errorf("list the tokens: %w", err)
		}
		all = append(all, page...)
		if next == "" {
			return all, nil
		}
		after = next
	}
}

// Revoke ends a token for good. It is named by its name, its id or any longer
// part of its hash from the beginning; of several with one name the one that is
// active is meant. Revoking a token again changes nothing and is no error.
//
// Processes that have read the record use it for up to 30 s more.
func (t *Tokens) Revoke(ctx context.Context, ref string) (Token, error) {
	matches, err := t.find(ctx, ref)
	if err != nil {
		return Token{}, err
	}
	now := InstantOf(t.clock.Now())
	active := slices.DeleteFunc(slices.Clone(matches), func(m Token) bool { return !m.Valid(now) })
	if len(active) > 1 {
		return Token{}, ambiguous(ref, active)
	}
	meant := matches[len(matches)-1]
	if len(active) == 1 {
		meant = active[0]
	}
	revoked, found, err := t.registry.RevokeToken(ctx, meant, now)
	if err != nil {
		return Token{}, fmt.Errorf("revoke the token: %w", err)
	}
	if !found {
		return Token{}, unknownToken(ref)
	}
	return revoked, nil
}

// TokenRotation is what a rotation did.
type TokenRotation struct {
	Fresh   Token
	Retired []Token // what it replaces: valid until their expiry
}

// Rotate makes a token of the same name, scopes, agents and lifetime as the one
// that is named, and lets that one end after the overlap (or before, when it was
// to). At every moment the caller holds a valid token: the new one is stored,
// then shown, and only then does the old one's end move. A rotation that died
// half-way is repeated like any other: where the name stands for a token and the
// one an earlier rotation made for it, both are replaced.
func (t *Tokens) Rotate(ctx context.Context, ref string, overlap time.Duration, show func(secret string) error) (TokenRotation, error) {
	if overlap < 0 || overlap > maxOverlap || overlap%time.Millisecond != 0 {
		return TokenRotation{}, Invalid("overlap", "the overlap is at most 90 days, in whole milliseconds")
	}
	matches, err := t.find(ctx, ref)
	if err != nil {
		return TokenRotation{}, err
	}
	now := InstantOf(t.clock.Now())
	active := slices.DeleteFunc(matches, func(m Token) bool { return !m.Valid(now) })
	if len(active) == 0 {
		return TokenRotation{}, Invalid("token", fmt.Sprintf("no active token is called %q: make a new one", ref))
	}
	old, ok := newest(active)
	if !ok {
		return TokenRotation{}, ambiguous(ref, active)
	}
	fresh, err := t.issue(ctx, Token{
		Name: old.Name, Scopes: old.Scopes, AgentIDs: old.AgentIDs, Lifetime: old.Lifetime, Replaces: old.Hash,
	}, show)
	if err != nil {
		return TokenRotation{}, err
	}
	done := TokenRotation{Fresh: fresh}
	end := InstantOf(t.clock.Now()).Add(overlap)
	for _, token := range active {
		retired, found, err := t.registry.ExpireToken(ctx, token, end)
		if err != nil {
			return done, fmt.Errorf("end %s, which the new token replaces: %w", shortID(token.Hash), err)
		}
		if found {
			done.Retired = append(done.Retired, retired)
		}
	}
	return done, nil
}

// newest returns the last of tokens of which each was made to replace another,
// and one was not; false when they are no such chain.
func newest(tokens []Token) (Token, bool) {
	successors := map[string]Token{}
	for _, token := range tokens {
		successors[token.Replaces] = token
	}
	if len(successors) < len(tokens) {
		return Token{}, false // two replace the same one, or none
	}
	for _, token := range tokens {
		if _, replaced := successors[token.Hash]; !replaced {
			return token, followsAll(token, tokens)
		}
	}
	return Token{}, false
}

// followsAll tells whether the last token leads back to all of them.
func followsAll(last Token, tokens []Token) bool {
	byHash := map[string]Token{}
	for _, token := range tokens {
		byHash[token.Hash] = token
	}
	met := 0
	for token, ok := last, true; ok && met < len(tokens); token, ok = byHash[token.Replaces] {
		met++
	}
	return met == len(tokens)
}

var hashPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// find returns the tokens that ref may mean, oldest first, at least one: those
// of the name, or the one whose hash begins so.
func (t *Tokens) find(ctx context.Context, ref string) ([]Token, error) {
	if hashPattern.MatchString(ref) {
		token, found, err := t.registry.ReadToken(ctx, ref)
		if err != nil {
			return nil, fmt.Errorf("read the token's record: %w", err)
		}
		if found {
			return []Token{token}, nil
		}
	}
	all, err := t.List(ctx)
	if err != nil {
		return nil, err
	}
	var named, begun []Token
	for _, token := range all {
		if token.Name == ref {
			named = append(named, token)
		} else if len(ref) >= minTokenPrefix && strings.HasPrefix(token.Hash, ref) {
			begun = append(begun, token)
		}
	}
	switch {
	case len(named)+len(begun) == 0:
		return nil, unknownToken(ref)
	case len(begun) > 1 || len(begun) == 1 && len(named) > 0:
		return nil, ambiguous(ref, append(named, begun...))
	}
	return append(named, begun...), nil
}

func unknownToken(ref string) error {
	return Refuse(CodeNotFound, fmt.Sprintf("no token is called %q or has an id of at least %d digits that begins so", ref, minTokenPrefix))
}

func ambiguous(ref string, tokens []Token) error {
	ids := TokenIDs(tokens)
	return Invalid("token", fmt.Sprintf("%q may mean %d tokens: name one of %s", ref, len(tokens), strings.Join(ids, ", ")))
}

// TokenIDs returns what people call the tokens by: the beginnings of their
// hashes, long enough to tell all of them apart.
func TokenIDs(tokens []Token) []string {
	digits := tokenIDDigits
	hashes := make([]string, 0, len(tokens))
	for _, token := range tokens {
		hashes = append(hashes, token.Hash)
	}
	sorted := slices.Sorted(slices.Values(hashes))
	for i := 1; i < len(sorted); i++ {
		digits = max(digits, commonPrefix(sorted[i-1], sorted[i])+1)
	}
	ids := make([]string, 0, len(tokens))
	for _, hash := range hashes {
		ids = append(ids, hash[:min(digits, len(hash))])
	}
	return ids
}

// commonPrefix is how many bytes two texts begin alike.
func commonPrefix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func shortID(hash string) string { return hash[:min(tokenIDDigits, len(hash))] }
