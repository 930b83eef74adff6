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
	lifetimeAttr  = "lifetime_ms"
	replacesAttr  = "replaces"
)

// tokenPartition holds every token in the index list, oldest first: an operator
// lists them rarely, and nothing else writes there.
const tokenPartition = "token"

func tokenListKey(t core.Token) string { return dueKey(t.CreatedAt, t.Hash) }

// ReadToken reads a token's record. Cost: 1 request, 1 read unit. IAM: GetItem.
func (s *Store) ReadToken(ctx context.Context, hash string) (core.Token, bool, error) {
	it, err := s.get(ctx, tokenKey(hash))
	if err != nil || it == nil {
		return core.Token{}, false, err
	}
	token, err := readToken(it)
	return token, err == nil, err
}

func readToken(it item) (core.Token, error) {
	r := reader{it: it}
	token := core.Token{
		Hash:      tokenHashOf(r.text(pk)),
		Name:      r.text(tokenNameAttr),
		AgentIDs:  r.texts(agentIDsAttr),
		CreatedAt: r.instant(createdAttr),
		ExpiresAt: r.instant(expiresAttr),
		RevokedAt: r.instant(revokedAttr),
		Lifetime:  r.duration(lifetimeAttr),
		Replaces:  r.text(replacesAttr),
	}
	for _, scope := range r.texts(scopesAttr) {
		token.Scopes = append(token.Scopes, core.Scope(scope))
	}
	return token, r.err
}

// CreateToken puts a token's record unless there is one with its hash: a token
// is random, so an existing record of the same hash is the same token. A record
// that this write's own earlier try made counts as existing. Cost: 1 request, 2
// write units (1 of the index); 2 requests for a record that an earlier release
// wrote and the index lacks. IAM: PutItem, UpdateItem.
func (s *Store) CreateToken(ctx context.Context, t core.Token) (bool, error) {
	stands, created, err := s.put(ctx, tokenItem(t), "attribute_not_exists(pk)", nil)
	if err != nil || created || stands[listPK] != nil {
		return created, err
	}
	seen, err := readToken(stands)
	if err != nil {
		return false, err
	}
	_, _, err = s.changeToken(ctx, seen, update{})
	return false, err
}

func tokenItem(t core.Token) item {
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
	it[lifetimeAttr] = number(t.Lifetime.Milliseconds())
	it[listPK], it[listSK] = text(tokenPartition), text(tokenListKey(t))
	if t.Replaces != "" {
		it[replacesAttr] = text(t.Replaces)
	}
	if end := t.Ends(); end != 0 {
		it[ttl] = number(tokenCollected(end))
	}
	return it
}

// tokenCollected is when, in seconds, the record of a token that ends then is
// garbage.
func tokenCollected(end core.Instant) int64 {
	return end.Add(core.TokenRetention).Time().Unix() + 1
}

// ListTokens reads a page of the index and the records it leads to. Cost: 2 round
// trips; the keys read, and 1 read unit a token. IAM: Query on the index list,
// BatchGetItem.
func (s *Store) ListTokens(ctx context.Context, after string, limit int) ([]core.Token, string, error) {
	q := query{index: listIndex, condition: "list_pk = :pk", limit: limit, values: item{":pk": text(tokenPartition)}}
	q.startAfter(listSK, after)
	entries, more, err := s.keys(ctx, q)
	if err != nil || len(entries) == 0 {
		return nil, "", err
	}
	items, err := s.itemsOf(ctx, entries)
	if err != nil {
		return nil, "", err
	}
	tokens := make([]core.Token, 0, len(items))
	for _, it := range items {
		token, err := readToken(it)
		if err != nil {
			return nil, "", err
		}
		tokens = append(tokens, token)
	}
	next := ""
	if more {
		next = sortValue(entries[len(entries)-1], listSK)
	}
	return tokens, next, nil
}

// RevokeToken is one UpdateItem. Cost: 1 request, 1 write unit. IAM: UpdateItem.
func (s *Store) RevokeToken(ctx context.Context, seen core.Token, now core.Instant) (core.Token, bool, error) {
	return s.changeToken(ctx, seen, update{
		set:       []string{"revoked_ms = :now", "#ttl = :ttl"},
		condition: []string{"(attribute_not_exists(revoked_ms) OR revoked_ms = :never)"},
		names:     map[string]string{"#ttl": ttl},
		values:    item{":now": instant(now), ":never": instant(0), ":ttl": number(tokenCollected(now))},
	})
}

// ExpireToken is one UpdateItem: an expiry that is earlier stands, and so does a
// revocation. Cost: 1 request, 1 write unit. IAM: UpdateItem.
func (s *Store) ExpireToken(ctx context.Context, seen core.Token, at core.Instant) (core.Token, bool, error) {
	return s.changeToken(ctx, seen, update{
		set: []string{"expires_ms = :at", "#ttl = :ttl"},
		condition: []string{
			"(attribute_not_exists(revoked_ms) OR revoked_ms = :never)",
			"(attribute_not_exists(expires_ms) OR expires_ms = :never OR expires_ms > :at)",
		},
		names:  map[string]string{"#ttl": ttl},
		values: item{":at": instant(at), ":never": instant(0), ":ttl": number(tokenCollected(at))},
	})
}

// changeToken applies an update to a token that exists, and puts it into the
// list if an earlier release wrote it. It returns the token as it is then: a
// failed condition is no failure, because what it guards has happened already,
// perhaps by this write's own earlier try.
func (s *Store) changeToken(ctx context.Context, seen core.Token, u update) (core.Token, bool, error) {
	u.key = tokenKey(seen.Hash)
	u.set = append(u.set, "list_pk = :list_pk", "list_sk = if_not_exists(list_sk, :list_sk)")
	u.condition = append(u.condition, "attribute_exists(pk)")
	if u.values == nil {
		u.values = item{}
	}
	u.values[":list_pk"], u.values[":list_sk"] = text(tokenPartition), text(tokenListKey(seen))
	it, _, err := s.apply(ctx, u)
	if err != nil || it == nil {
		return core.Token{}, false, err
	}
	token, err := readToken(it)
	return token, err == nil, err
}
