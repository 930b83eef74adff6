package core

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
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

// Token is the record of a bearer token. The token itself is stored nowhere:
// the record is found by its SHA-256.
type Token struct {
	Hash      string // lower-case hex of the token's SHA-256
	Name      string // who it was made for, for people
	Scopes    []Scope
	AgentIDs  []string // the agents it may act as; empty: any
	CreatedAt Instant
	ExpiresAt Instant // first instant it is no longer valid; 0: never
	RevokedAt Instant // 0: not revoked
}

// Valid tells whether the token may be used at now.
func (t Token) Valid(now Instant) bool {
	return t.RevokedAt == 0 && (t.ExpiresAt == 0 || now < t.ExpiresAt)
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
	// whether the record is new.
	CreateToken(ctx context.Context, t Token) (bool, error)
}
