package core

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"time"
)

// Scope is what a bearer token may be used for. Each contains the one before:
// read, agent, operator.
type Scope string

// The scopes.
const (
	ScopeRead     Scope = "read"     // reads that change nothing
	ScopeAgent    Scope = "agent"    // what an agent does, and reads
	ScopeOperator Scope = "operator" // what an operator does, and all of it
)

var scopeRank = map[Scope]int{ScopeRead: 1, ScopeAgent: 2, ScopeOperator: 3}

// tokenBytes is the entropy of a token: 256 bits.
const tokenBytes = 32

// TokenRetention is how long a record stays readable after its token has ended,
// before the store may collect it. A token that is collected stays refused:
// nothing knows it any more.
const TokenRetention = 365 * 24 * time.Hour

// Token is the record of a bearer token. The token itself is stored nowhere:
// the record is found by its SHA-256.
type Token struct {
	Hash      string // lower-case hex of the token's SHA-256
	Name      string // who it was made for, for people
	Scopes    []Scope
	AgentIDs  []string // the agents it may act as; empty: any
	CreatedAt Instant
	ExpiresAt Instant       // first instant it is no longer valid; 0: never
	RevokedAt Instant       // 0: not revoked
	Lifetime  time.Duration // that it was made with, and so will its successor; 0: without end
	Replaces  string        // hash of the token that a rotation made it for; "": none
}

// TokenState is what a token is at a moment.
type TokenState string

// The states of a token. Revoked wins over expired.
const (
	TokenActive  TokenState = "active"
	TokenExpired TokenState = "expired"
	TokenRevoked TokenState = "revoked"
)

// State tells what the token is at now.
func (t Token) State(now Instant) TokenState {
	switch {
	case t.RevokedAt != 0:
		return TokenRevoked
	case t.ExpiresAt != 0 && now >= t.ExpiresAt:
		return TokenExpired
	default:
		return TokenActive
	}
}

// Valid tells whether the token may be used at now.
func (t Token) Valid(now Instant) bool { return t.State(now) == TokenActive }

// Ends is when the token ends or ended: its expiry or its revocation, whichever
// is earlier; 0: it has no end.
func (t Token) Ends() Instant {
	if t.ExpiresAt == 0 || t.RevokedAt != 0 && t.RevokedAt < t.ExpiresAt {
		return t.RevokedAt
	}
	return t.ExpiresAt
}

// Allows tells whether one of the token's scopes contains want.
func (t Token) Allows(want Scope) bool {
	need, known := scopeRank[want]
	return known && slices.ContainsFunc(t.Scopes, func(s Scope) bool { return scopeRank[s] >= need })
}

// ActsAs tells whether the token may act as the agent.
func (t Token) ActsAs(agentID string) bool {
	return len(t.AgentIDs) == 0 || slices.Contains(t.AgentIDs, agentID)
}

// TokenHash returns the key of a token's record.
func TokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// NewToken makes a token of 256 bits of random, as URL-safe text.
func NewToken(random io.Reader) (string, error) {
	secret := make([]byte, tokenBytes)
	if _, err := io.ReadFull(random, secret); err != nil {
		return "", fmt.Errorf("read random bits of a token: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(secret), nil
}

// TokenStore keeps token records.
type TokenStore interface {
	// ReadToken returns the record with this hash, strongly consistent; false
	// when there is none.
	ReadToken(ctx context.Context, hash string) (Token, bool, error)
	// CreateToken stores t unless a record with its hash exists; it tells
	// whether the record is new. A record that exists is listed from then on,
	// whichever release wrote it, and is otherwise left as it is.
	CreateToken(ctx context.Context, t Token) (bool, error)
}

// TokenRegistry is the operator's side of a TokenStore.
type TokenRegistry interface {
	TokenStore
	// ListTokens reads up to limit records in the order of their creation, from
	// a position on ("" is the first), and the position to go on from ("" at the
	// end). A record that was stored a moment ago may not be there yet; one that
	// is there is as it is now.
	ListTokens(ctx context.Context, after string, limit int) ([]Token, string, error)
	// RevokeToken stamps the token that was seen as revoked at now, unless it is
	// revoked already, and returns it as it is then; false when it is gone.
	RevokeToken(ctx context.Context, seen Token, now Instant) (Token, bool, error)
	// ExpireToken moves the expiry of the token that was seen to at, unless it
	// has ended or ends before, and returns it as it is then; false when it is
	// gone. An expiry never moves to later.
	ExpireToken(ctx context.Context, seen Token, at Instant) (Token, bool, error)
}
