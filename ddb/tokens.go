package ddb

import (
	"context"

	"drawbridge/core"
)

const (
	tokenNameAttr = "token_name"
	scopesAttr    = "scopes"
	agentIDsAttr  = "agent_ids"
	expiresAttr   = "expires_ms"
	revokedAttr   = "revoked_ms"
)

// ReadToken reads a token's record. Cost: 1 request, 1 read unit. IAM: GetItem.
func (s *Store) ReadToken(ctx context.Context, hash string) (core.Token, bool, error) {
	it, err := s.get(ctx, tokenKey(hash))
	if err != nil || it == nil {
		return core.Token{}, false, err
	}
	r := reader{it: it}
	token := core.Token{
		Hash:      tokenHashOf(r.text(pk)),
		Name:      r.text(tokenNameAttr),
		AgentIDs:  r.texts(agentIDsAttr),
		CreatedAt: r.instant(createdAttr),
		ExpiresAt: r.instant(expiresAttr),
		RevokedAt: r.instant(revokedAttr),
	}
	for _, scope := range r.texts(scopesAttr) {
		token.Scopes = append(token.Scopes, core.Scope(scope))
	}
	return token, r.err == nil, r.err
}

// CreateToken puts a token's record unless there is one with its hash: a token
// is random, so an existing record of the same hash is the same token. A record
// that this write's own earlier try made counts as existing. Cost: 1 request, 1
// write unit. IAM: PutItem.
func (s *Store) CreateToken(ctx context.Context, t core.Token) (bool, error) {
	scopes := make([]string, 0, len(t.Scopes))
	for _, scope := range t.Scopes {
		scopes = append(scopes, string(scope))
	}
	it := tokenKey(t.Hash).item()
	it[tokenNameAttr] = text(t.Name)
	it[scopesAttr] = texts(scopes)
	it[agentIDsAttr] = texts(t.AgentIDs)
	it[createdAttr] = instant(t.CreatedAt)
	it[expiresAttr] = instant(t.ExpiresAt)
	it[revokedAttr] = instant(t.RevokedAt)
	_, created, err := s.put(ctx, it, "attribute_not_exists(pk)", nil)
	return created, err
}
