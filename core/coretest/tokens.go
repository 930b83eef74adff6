package coretest

import (
	"reflect"
	"testing"

	"drawbridge/core"
)

func testTokens(t *testing.T, open func(*testing.T) *bench) {
	t.Run("a record is found by its hash as it was stored, and stored once", func(t *testing.T) {
		b := open(t)
		token := core.Token{
			Hash: core.TokenHash("secret"), Name: "someone", Scopes: []core.Scope{core.ScopeAgent}, AgentIDs: []string{"a", "b"},
			CreatedAt: 1, ExpiresAt: 2, RevokedAt: 3,
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
		got, found, err := b.Store.ReadToken(b.ctx, token.Hash)
		b.must(err)
		if !found || !reflect.DeepEqual(got, token) {
			t.Fatalf("found %t: %+v, want %+v", found, got, token)
		}
	})
}
