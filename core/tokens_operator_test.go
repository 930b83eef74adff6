package core_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"drawbridge/core"
	"drawbridge/core/coretest"
)

// desk is an operator at work.
type desk struct {
	t      *testing.T
	clock  *coretest.Clock
	store  *breakableTokens
	tokens *core.Tokens
	shown  []string
}

// breakableTokens fails the changes that it is told to.
type breakableTokens struct {
	core.TokenRegistry
	failExpire error
}

func (b *breakableTokens) ExpireToken(ctx context.Context, seen core.Token, at core.Instant) (core.Token, bool, error) {
	if b.failExpire != nil {
		return core.Token{}, false, b.failExpire
	}
	return b.TokenRegistry.ExpireToken(ctx, seen, at)
}

func newDesk(t *testing.T) *desk {
	d := &desk{t: t, clock: coretest.NewClock(), store: &breakableTokens{TokenRegistry: coretest.NewModel()}}
	d.tokens = core.NewTokens(d.store, d.clock, rand.Reader)
	return d
}

func (d *desk) show(secret string) error {
	d.shown = append(d.shown, secret)
	return nil
}

func (d *desk) create(r core.TokenRequest) core.Token {
	d.t.Helper()
	token, err := d.tokens.Create(d.t.Context(), r, d.show)
	if err != nil {
		d.t.Fatal(err)
	}
	return token
}

func (d *desk) rotate(ref string, overlap time.Duration) core.TokenRotation {
	d.t.Helper()
	done, err := d.tokens.Rotate(d.t.Context(), ref, overlap, d.show)
	if err != nil {
		d.t.Fatal(err)
	}
	return done
}

// valid tells which of the tokens shown so far work now, by their number.
func (d *desk) valid() []int {
	d.t.Helper()
	var valid []int
	for i, secret := range d.shown {
		token, found, err := d.store.ReadToken(d.t.Context(), core.TokenHash(secret))
		if err != nil || !found {
			d.t.Fatal(found, err)
		}
		if token.Valid(core.InstantOf(d.clock.Now())) {
			valid = append(valid, i)
		}
	}
	return valid
}

func (d *desk) mustBeValid(want ...int) {
	d.t.Helper()
	if got := d.valid(); !slices.Equal(got, want) {
		d.t.Errorf("the valid tokens are %v, want %v", got, want)
	}
}

var agentToken = core.TokenRequest{Name: "ci", Scope: core.ScopeAgent, AgentIDs: []string{"b", "a", "b"}}

func TestATokenIsStoredBeforeItIsShownAndShownOnce(t *testing.T) {
	d := newDesk(t)
	token, err := d.tokens.Create(t.Context(), agentToken, func(secret string) error {
		if _, found, err := d.store.ReadToken(t.Context(), core.TokenHash(secret)); err != nil || !found {
			t.Errorf("the token was shown before it works: %t, %v", found, err)
		}
		return d.show(secret)
	})
	if err != nil || len(d.shown) != 1 || token.Hash != core.TokenHash(d.shown[0]) {
		t.Fatalf("shown %d times, %v", len(d.shown), err)
	}
	if !slices.Equal(token.AgentIDs, []string{"a", "b"}) {
		t.Errorf("bound to %v", token.AgentIDs)
	}
}

func TestATokenThatCannotBeShownDoesNotStayValid(t *testing.T) {
	d := newDesk(t)
	broken := errors.New("the pipe is closed")
	var secret string
	_, err := d.tokens.Create(t.Context(), agentToken, func(s string) error { secret = s; return broken })
	if !errors.Is(err, broken) || strings.Contains(err.Error(), secret) {
		t.Fatalf("got %v", err)
	}
	if token, found, err := d.store.ReadToken(t.Context(), core.TokenHash(secret)); err != nil || !found || token.RevokedAt == 0 {
		t.Errorf("it is %+v, %t, %v", token, found, err)
	}
}

func TestARotationKeepsWhatTheTokenMayDoAndOverlaps(t *testing.T) {
	d := newDesk(t)
	request := agentToken
	request.Lifetime = 1000 * time.Hour
	old := d.create(request)
	d.clock.Advance(10 * time.Hour)
	done := d.rotate("ci", 24*time.Hour)
	fresh := done.Fresh
	if fresh.Name != old.Name || !slices.Equal(fresh.Scopes, old.Scopes) || !slices.Equal(fresh.AgentIDs, old.AgentIDs) ||
		fresh.ExpiresAt != old.ExpiresAt.Add(10*time.Hour) || fresh.Replaces != old.Hash {
		t.Errorf("%+v replaces %+v", fresh, old)
	}
	d.mustBeValid(0, 1)
	d.clock.Advance(24*time.Hour - time.Millisecond)
	d.mustBeValid(0, 1)
	d.clock.Advance(time.Millisecond)
	d.mustBeValid(1)
}

func TestARotationThatDiesHalfWayLeavesAValidTokenAndIsRepeated(t *testing.T) {
	d := newDesk(t)
	d.create(agentToken)
	// The new token cannot be shown: the old one has no end.
	if _, err := d.tokens.Rotate(t.Context(), "ci", 0, func(string) error { return errors.New("closed") }); err == nil {
		t.Fatal("a token that was not shown was rotated to")
	}
	d.mustBeValid(0)
	// The old one's end cannot be stored: both work, and the caller is told.
	d.store.failExpire = errors.New("the table is away")
	if _, err := d.tokens.Rotate(t.Context(), "ci", time.Hour, d.show); !errors.Is(err, d.store.failExpire) {
		t.Fatal(err)
	}
	d.mustBeValid(0, 1)
	d.clock.Advance(48 * time.Hour)
	d.mustBeValid(0, 1)
	// Once more: the name stands for both, and both end.
	d.store.failExpire = nil
	done := d.rotate("ci", time.Hour)
	if len(done.Retired) != 2 || done.Fresh.Replaces != core.TokenHash(d.shown[1]) {
		t.Errorf("retired %+v for %+v", done.Retired, done.Fresh)
	}
	d.mustBeValid(0, 1, 2)
	d.clock.Advance(time.Hour)
	d.mustBeValid(2)
}

func TestARepeatedRotationNeverExtendsWhatItReplaced(t *testing.T) {
	d := newDesk(t)
	id := d.create(agentToken).Hash
	d.rotate(id, time.Hour)
	d.clock.Advance(30 * time.Minute)
	d.rotate(id, 24*time.Hour)
	d.clock.Advance(30 * time.Minute)
	d.mustBeValid(1, 2)
	if _, err := d.tokens.Rotate(t.Context(), id, time.Hour, d.show); err == nil || !strings.Contains(err.Error(), "no active token") {
		t.Errorf("an expired token was rotated: %v", err)
	}
	// Two tokens replace the first one: neither is meant by the name.
	if _, err := d.tokens.Rotate(t.Context(), "ci", time.Hour, d.show); core.CodeOf(err) != core.CodeInvalidArgument {
		t.Errorf("one of two was rotated by their name: %v", err)
	}
	d.mustBeValid(1, 2)
}

func TestTokensOfOneNameThatHaveNothingToDoWithEachOtherAreNamedByID(t *testing.T) {
	d := newDesk(t)
	d.create(agentToken)
	d.clock.Advance(time.Second)
	second := d.create(core.TokenRequest{Name: "ci", Scope: core.ScopeOperator})
	for what, err := range map[string]error{
		"rotate": errorOf(d.tokens.Rotate(t.Context(), "ci", 0, d.show)),
		"revoke": errorOf(d.tokens.Revoke(t.Context(), "ci")),
	} {
		if core.CodeOf(err) != core.CodeInvalidArgument || !strings.Contains(err.Error(), second.Hash[:12]) {
			t.Errorf("%s: %v", what, err)
		}
	}
	d.mustBeValid(0, 1)
	if _, err := d.tokens.Revoke(t.Context(), second.Hash[:8]); err != nil {
		t.Fatal(err)
	}
	d.mustBeValid(0)
	// The name stands for the one that is left, and then for those that ended.
	for range 3 {
		if _, err := d.tokens.Revoke(t.Context(), "ci"); err != nil {
			t.Fatal(err)
		}
		d.mustBeValid()
	}
}

func errorOf[T any](_ T, err error) error { return err }

func TestARevocationNamesOneTokenOrNone(t *testing.T) {
	d := newDesk(t)
	token := d.create(agentToken)
	for _, ref := range []string{"", "nobody", token.Hash[:7], strings.ToUpper(token.Hash), token.Hash[1:], strings.Repeat("0", 64)} {
		if _, err := d.tokens.Revoke(t.Context(), ref); core.CodeOf(err) != core.CodeNotFound {
			t.Errorf("%q: %v", ref, err)
		}
	}
	// A name that looks like an id of another token stands for neither.
	d.create(core.TokenRequest{Name: token.Hash[:12], Scope: core.ScopeRead})
	if _, err := d.tokens.Revoke(t.Context(), token.Hash[:12]); core.CodeOf(err) != core.CodeInvalidArgument {
		t.Errorf("got %v", err)
	}
	d.mustBeValid(0, 1)
	first, err := d.tokens.Revoke(t.Context(), token.Hash)
	if err != nil {
		t.Fatal(err)
	}
	d.clock.Advance(time.Hour)
	again, err := d.tokens.Revoke(t.Context(), token.Hash)
	if err != nil || again.RevokedAt != first.RevokedAt {
		t.Errorf("revoked at %d, then at %d: %v", first.RevokedAt, again.RevokedAt, err)
	}
}

const (
	longestLife    = 10 * 365 * 24 * time.Hour
	longestOverlap = 90 * 24 * time.Hour
)

func TestATokenLivesAndOverlapsForAsLongAsItMay(t *testing.T) {
	d := newDesk(t)
	request := agentToken
	request.Lifetime = longestLife
	d.create(request)
	if done := d.rotate("ci", longestOverlap); done.Retired[0].ExpiresAt != done.Fresh.CreatedAt.Add(longestOverlap) {
		t.Errorf("retired as %+v", done.Retired)
	}
}

func TestAWholeHashIsNoName(t *testing.T) {
	d := newDesk(t)
	token := d.create(agentToken)
	d.create(core.TokenRequest{Name: token.Hash, Scope: core.ScopeRead})
	if revoked, err := d.tokens.Revoke(t.Context(), token.Hash); err != nil || revoked.Hash != token.Hash {
		t.Errorf("%+v, %v", revoked, err)
	}
	d.mustBeValid(1)
}

// A name stands for a token and what was made to replace it, not for one that has
// nothing to do with them, whatever became of what it replaced.
func TestANameDoesNotStandForTwoWaysBack(t *testing.T) {
	d := newDesk(t)
	first := d.create(agentToken)
	d.rotate("ci", time.Hour)
	if _, err := d.tokens.Revoke(t.Context(), first.Hash); err != nil {
		t.Fatal(err)
	}
	d.clock.Advance(time.Second)
	d.create(agentToken)
	if _, err := d.tokens.Rotate(t.Context(), "ci", time.Hour, d.show); core.CodeOf(err) != core.CodeInvalidArgument || !strings.Contains(err.Error(), "2 tokens") {
		t.Errorf("one of two was rotated by their name: %v", err)
	}
	d.mustBeValid(1, 2)
}

func TestTokenRequestsAreChecked(t *testing.T) {
	d := newDesk(t)
	many := slices.Repeat([]string{"a"}, 101)
	for field, requests := range map[string][]core.TokenRequest{
		"name":    {{Scope: core.ScopeRead}, {Name: "a\nb", Scope: core.ScopeRead}, {Name: strings.Repeat("x", 129), Scope: core.ScopeRead}},
		"scope":   {{Name: "a"}, {Name: "a", Scope: "public"}, {Name: "a", Scope: "Operator"}},
		"agent":   {{Name: "a", Scope: core.ScopeRead, AgentIDs: []string{""}}, {Name: "a", Scope: core.ScopeRead, AgentIDs: []string{"x\x00"}}, {Name: "a", Scope: core.ScopeRead, AgentIDs: many}},
		"expires": {{Name: "a", Scope: core.ScopeRead, Lifetime: -1}, {Name: "a", Scope: core.ScopeRead, Lifetime: -time.Hour}, {Name: "a", Scope: core.ScopeRead, Lifetime: 1}, {Name: "a", Scope: core.ScopeRead, Lifetime: longestLife + time.Millisecond}},
	} {
		for _, r := range requests {
			_, err := d.tokens.Create(t.Context(), r, d.show)
			var refusal *core.Error
			if !errors.As(err, &refusal) || refusal.Details["field"] != field {
				t.Errorf("%+v: %v", r, err)
			}
		}
	}
	d.create(agentToken)
	for _, overlap := range []time.Duration{-1, -time.Hour, time.Microsecond, longestOverlap + time.Millisecond} {
		if _, err := d.tokens.Rotate(t.Context(), "ci", overlap, d.show); core.CodeOf(err) != core.CodeInvalidArgument {
			t.Errorf("an overlap of %s: %v", overlap, err)
		}
	}
	if len(d.shown) != 1 {
		t.Errorf("%d tokens were shown", len(d.shown))
	}
}

func TestIDsTellAllTokensApart(t *testing.T) {
	tokens := []core.Token{{Hash: strings.Repeat("a", 64)}, {Hash: strings.Repeat("a", 20) + strings.Repeat("b", 44)}, {Hash: "c"}}
	want := []string{strings.Repeat("a", 21), strings.Repeat("a", 20) + "b", "c"}
	if got := core.TokenIDs(tokens); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if got := core.TokenIDs(tokens[:1]); got[0] != strings.Repeat("a", 12) {
		t.Errorf("got %v", got)
	}
}

func TestATokenEndsByWhateverComesFirst(t *testing.T) {
	for _, c := range []struct{ expires, revoked, want core.Instant }{{0, 0, 0}, {5, 0, 5}, {0, 7, 7}, {5, 7, 5}, {7, 5, 5}} {
		if got := (core.Token{ExpiresAt: c.expires, RevokedAt: c.revoked}).Ends(); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
