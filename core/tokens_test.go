package core_test

import (
	"bytes"
	"crypto/rand"
	"testing"

	"drawbridge/core"
)

func TestAScopeContainsTheOnesBelowIt(t *testing.T) {
	order := []core.Scope{core.ScopeRead, core.ScopeAgent, core.ScopeOperator}
	for i, has := range order {
		for j, want := range order {
			if got := (core.Token{Scopes: []core.Scope{has}}).Allows(want); got != (j <= i) {
				t.Errorf("%s allows %s: %t", has, want, got)
			}
		}
	}
	if (core.Token{}).Allows(core.ScopeRead) || (core.Token{Scopes: []core.Scope{"admin"}}).Allows(core.ScopeRead) || (core.Token{Scopes: order}).Allows("admin") {
		t.Error("a scope that does not exist allows or is allowed")
	}
}

func TestATokenIsValidUntilItsExpiryOrRevocation(t *testing.T) {
	for _, test := range []struct {
		token core.Token
		want  bool
	}{
		{core.Token{}, true},
		{core.Token{ExpiresAt: 11}, true},
		{core.Token{ExpiresAt: 10}, false},
		{core.Token{RevokedAt: 1}, false},
		{core.Token{RevokedAt: 99}, false},
	} {
		if got := test.token.Valid(10); got != test.want {
			t.Errorf("%+v at 10: %t", test.token, got)
		}
	}
}

func TestABoundTokenActsAsItsAgentsOnly(t *testing.T) {
	bound := core.Token{AgentIDs: []string{"a"}}
	if !bound.ActsAs("a") || bound.ActsAs("b") || bound.ActsAs("") || !(core.Token{}).ActsAs("b") {
		t.Error("binding is not as documented")
	}
}

func TestATokenIs256RandomBitsKeptAsAHash(t *testing.T) {
	a, err := core.NewToken(rand.Reader)
	if err != nil || len(a) != 43 {
		t.Fatalf("token %q, %v", a, err)
	}
	if b, err := core.NewToken(rand.Reader); err != nil || a == b {
		t.Fatalf("the same token twice, %v", err)
	}
	if _, err := core.NewToken(bytes.NewReader(nil)); err == nil {
		t.Fatal("a token without random bits")
	}
	if got := core.TokenHash("abc"); got != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Fatalf("hash is %s", got)
	}
}
