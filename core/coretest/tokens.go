package coretest

import (
	"crypto/rand"
	"fmt"
	"reflect"
	"testing"
	"time"

	"drawbridge/core"
)

func testTokens(t *testing.T, open func(*testing.T) *bench) {
	t.Run("a record is found by its hash as it was stored, and stored once", func(t *testing.T) {
		b := open(t)
		token := core.Token{
			Hash: core.TokenHash("secret"), Name: "someone", Scopes: []core.Scope{core.ScopeAgent}, AgentIDs: []string{"a", "b"},
			CreatedAt: 1, ExpiresAt: 2, RevokedAt: 3, Lifetime: time.Hour, Replaces: core.TokenHash("another"),
		}
		_, found, err := b.Store.ReadToken(b.ctx, token.Hash)
		b.must(err)
		if found {
			t.Fatal("an unknown token is found")
		}
		for i := range 2 {
			created, err := b.Store.CreateToken(b.ctx, token)
			b.must(err)
			if created != (i == 0) {
				t.Fatalf("try %d: created %t", i, created)
			}
		}
		b.mustBeToken(token)
	})
	t.Run("a list shows every record once, in the order of creation, page by page", func(t *testing.T) {
		b := open(t)
		for i := range 7 {
			b.storeToken(fmt.Sprint("secret-", i), core.Instant(1000-i/2))
		}
		var listed []core.Token
		for after := ""; ; {
			page, next, err := b.Store.ListTokens(b.ctx, after, 3)
			b.must(err)
			listed = append(listed, page...)
			if after = next; after == "" {
				break
			}
		}
		if len(listed) != 7 {
			t.Fatalf("%d of 7 are listed", len(listed))
		}
		for i := 1; i < len(listed); i++ {
			if a, b := listed[i-1], listed[i]; a.CreatedAt > b.CreatedAt || a.CreatedAt == b.CreatedAt && a.Hash >= b.Hash {
				t.Errorf("%+v is listed before %+v", a, b)
			}
		}
	})
	t.Run("a revocation happens once, keeps its time, and survives a lost answer", func(t *testing.T) {
		b := open(t)
		token := b.storeToken("secret", 5)
		stop := b.LoseNextWrite()
		defer stop()
		for _, now := range []core.Instant{10, 20} {
			revoked, found, err := b.Store.RevokeToken(b.ctx, token, now)
			b.must(err)
			if !found || revoked.RevokedAt != 10 {
				t.Fatalf("at %d: found %t, revoked at %d", now, found, revoked.RevokedAt)
			}
		}
		token.RevokedAt = 10
		b.mustBeToken(token)
		expired, found, err := b.Store.ExpireToken(b.ctx, token, 30)
		b.must(err)
		if !found || !reflect.DeepEqual(expired, token) {
			t.Errorf("an expiry changed a revoked token: %t, %+v", found, expired)
		}
	})
	t.Run("an expiry only ever moves to earlier", func(t *testing.T) {
		b := open(t)
		token := b.storeToken("secret", 5)
		for _, step := range []struct{ at, want core.Instant }{{100, 100}, {200, 100}, {100, 100}, {50, 50}, {51, 50}} {
			changed, found, err := b.Store.ExpireToken(b.ctx, token, step.at)
			b.must(err)
			if !found || changed.ExpiresAt != step.want {
				t.Fatalf("to %d: found %t, expires at %d, want %d", step.at, found, changed.ExpiresAt, step.want)
			}
		}
		token.ExpiresAt = 50
		b.mustBeToken(token)
	})
	t.Run("a token that is not there is neither revoked nor expired nor made by it", func(t *testing.T) {
		b := open(t)
		ghost := core.Token{Hash: core.TokenHash("ghost")}
		_, revoked, err := b.Store.RevokeToken(b.ctx, ghost, 10)
		b.must(err)
		_, expired, err := b.Store.ExpireToken(b.ctx, ghost, 10)
		b.must(err)
		_, found, err := b.Store.ReadToken(b.ctx, ghost.Hash)
		b.must(err)
		if revoked || expired || found {
			t.Errorf("revoked %t, expired %t, found %t", revoked, expired, found)
		}
	})
	t.Run("an operator makes, lists, rotates and revokes tokens", func(t *testing.T) {
		b := open(t)
		tokens := core.NewTokens(b.Store, b.clock, rand.Reader)
		var shown []string
		show := func(secret string) error { shown = append(shown, secret); return nil }
		_, err := tokens.Create(b.ctx, core.TokenRequest{Name: "ci", Scope: core.ScopeAgent, AgentIDs: []string{"a1"}}, show)
		b.must(err)
		b.clock.Advance(time.Hour)
		rotated, err := tokens.Rotate(b.ctx, "ci", time.Hour, show)
		b.must(err)
		now := core.InstantOf(b.clock.Now())
		for i, want := range []core.Token{
			{Name: "ci", Scopes: []core.Scope{core.ScopeAgent}, AgentIDs: []string{"a1"}, CreatedAt: now.Add(-time.Hour), ExpiresAt: now.Add(time.Hour)},
			{Name: "ci", Scopes: []core.Scope{core.ScopeAgent}, AgentIDs: []string{"a1"}, CreatedAt: now, Replaces: core.TokenHash(shown[0])},
		} {
			want.Hash = core.TokenHash(shown[i])
			b.mustBeToken(want)
		}
		listed, err := tokens.List(b.ctx)
		b.must(err)
		if len(listed) != 2 || listed[1].Hash != rotated.Fresh.Hash {
			t.Fatalf("listed %+v", listed)
		}
		revoked, err := tokens.Revoke(b.ctx, core.TokenIDs(listed)[1])
		b.must(err)
		if revoked.Hash != rotated.Fresh.Hash || revoked.Valid(now) {
			t.Errorf("revoked %+v", revoked)
		}
	})
}

// storeToken stores a token that never ends and is bound to one agent.
func (b *bench) storeToken(secret string, created core.Instant) core.Token {
	b.t.Helper()
	token := core.Token{
		Hash: core.TokenHash(secret), Name: secret, Scopes: []core.Scope{core.ScopeRead}, AgentIDs: []string{"a"}, CreatedAt: created,
	}
	fresh, err := b.Store.CreateToken(b.ctx, token)
	b.must(err)
	if !fresh {
		b.t.Fatalf("token %s was there", secret)
	}
	return token
}

func (b *bench) mustBeToken(want core.Token) {
	b.t.Helper()
	got, found, err := b.Store.ReadToken(b.ctx, want.Hash)
	b.must(err)
	if !found || !reflect.DeepEqual(got, want) {
		b.t.Fatalf("found %t: %+v, want %+v", found, got, want)
	}
}
