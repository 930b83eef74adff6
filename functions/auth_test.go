package functions

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"drawbridge/core"
)

// countedTokens counts the lookups of a token store in memory.
type countedTokens struct {
	core.TokenStore
	records map[string]core.Token
	reads   int
	slow    func() // while a lookup is under way
}

func (c *countedTokens) ReadToken(_ context.Context, hash string) (core.Token, bool, error) {
	c.reads++
	if c.slow != nil {
		c.slow()
	}
	token, found := c.records[hash]
	return token, found, nil
}

func newCountedTokens(tokens map[string]core.Token) *countedTokens {
	c := &countedTokens{records: map[string]core.Token{}}
	for secret, token := range tokens {
		token.Hash = core.TokenHash(secret)
		c.records[token.Hash] = token
	}
	return c
}

func TestTokensAreReadOnceInThirtySeconds(t *testing.T) {
	clock := &testClock{now: time.UnixMilli(1_700_000_000_000)}
	store := newCountedTokens(map[string]core.Token{"known-secret": {Scopes: []core.Scope{core.ScopeRead}}})
	auth := newAuthenticator(store, clock)
	authenticate := func(secret string) error {
		_, err := auth.authenticate(context.Background(), "Bearer "+secret)
		return err
	}
	for range 10 {
		must(t, authenticate("known-secret"))
	}
	if store.reads != 1 {
		t.Errorf("%d reads for 10 uses", store.reads)
	}
	revoked := store.records[core.TokenHash("known-secret")]
	revoked.RevokedAt = core.InstantOf(clock.Now())
	store.records[revoked.Hash] = revoked
	clock.advance(tokenCacheTime - time.Millisecond)
	must(t, authenticate("known-secret"))
	clock.advance(time.Millisecond)
	if core.CodeOf(authenticate("known-secret")) != core.CodeUnauthorized {
		t.Error("a revoked token works for longer than the cache holds it")
	}

	reads := store.reads
	for range 10 {
		if core.CodeOf(authenticate("later-secret")) != core.CodeUnauthorized {
			t.Error("an unknown token works")
		}
	}
	if store.reads != reads+1 {
		t.Errorf("%d reads for 10 uses of an unknown token", store.reads-reads)
	}
	store.records[core.TokenHash("later-secret")] = core.Token{Hash: core.TokenHash("later-secret"), Scopes: []core.Scope{core.ScopeRead}}
	clock.advance(unknownTokenCacheTime)
	must(t, authenticate("later-secret"))
}

// A revocation that comes right after the store has looked must not get the time
// of a slow answer on top.
func TestTheThirtySecondsOfATokenBeginBeforeItIsRead(t *testing.T) {
	clock := &testClock{now: time.UnixMilli(1_700_000_000_000)}
	store := newCountedTokens(map[string]core.Token{"known-secret": {}})
	store.slow = func() { clock.advance(20 * time.Second) }
	auth := newAuthenticator(store, clock)
	authenticate := func(secret string) error {
		_, err := auth.authenticate(context.Background(), "Bearer "+secret)
		return err
	}
	must(t, authenticate("known-secret"))
	clock.advance(9 * time.Second)
	must(t, authenticate("known-secret"))
	if store.reads != 1 {
		t.Errorf("%d reads in 29 s", store.reads)
	}
	revoked := store.records[core.TokenHash("known-secret")]
	revoked.RevokedAt = core.InstantOf(clock.Now())
	store.records[revoked.Hash] = revoked
	clock.advance(time.Second)
	if got := core.CodeOf(authenticate("known-secret")); got != core.CodeUnauthorized {
		t.Errorf("30 s after it was read a revoked token gets %q", got)
	}
}

// gatedTokens holds every lookup until the gate opens.
type gatedTokens struct {
	core.TokenStore
	known   string // the hash that has a record
	gate    chan struct{}
	arrived chan string
	reads   atomic.Int64
}

func (g *gatedTokens) ReadToken(ctx context.Context, hash string) (core.Token, bool, error) {
	g.reads.Add(1)
	g.arrived <- hash
	select {
	case <-g.gate:
		return core.Token{Hash: hash}, hash == g.known, nil
	case <-ctx.Done():
		return core.Token{}, false, ctx.Err()
	}
}

func newGatedTokens(known string) *gatedTokens {
	return &gatedTokens{known: core.TokenHash(known), gate: make(chan struct{}), arrived: make(chan string, 1000)}
}

func TestGuessesThatComeAtOnceTakeTheirPlaceBeforeTheyAreLookedUp(t *testing.T) {
	store := newGatedTokens("known-secret")
	auth := newAuthenticator(store, &testClock{now: time.UnixMilli(1_700_000_000_000)})
	const callers = 4 * guessBurst
	outcomes := make(chan core.Code, callers)
	for i := range callers {
		go func() {
			_, err := auth.authenticate(context.Background(), fmt.Sprint("Bearer guess-", i))
			outcomes <- core.CodeOf(err)
		}()
	}
	count := map[core.Code]int{}
	for range callers - guessBurst { // all but those whose lookup is held
		count[<-outcomes]++
	}
	if count[core.CodeThrottled] != callers-guessBurst {
		t.Errorf("before any lookup has ended: %v", count)
	}
	close(store.gate)
	for range guessBurst {
		count[<-outcomes]++
	}
	if got := store.reads.Load(); got != guessBurst || count[core.CodeUnauthorized] != guessBurst {
		t.Errorf("%d guesses at once cost %d reads: %v", callers, got, count)
	}
}

func TestRequestsWithOneTokenShareOneLookup(t *testing.T) {
	for secret, want := range map[string]core.Code{"known-secret": "", "guess": core.CodeUnauthorized} {
		store := newGatedTokens("known-secret")
		auth := newAuthenticator(store, &testClock{now: time.UnixMilli(1_700_000_000_000)})
		const callers = 2 * guessBurst
		outcomes := make(chan core.Code, callers)
		for range callers {
			go func() {
				_, err := auth.authenticate(context.Background(), "Bearer "+secret)
				outcomes <- core.CodeOf(err)
			}()
		}
		<-store.arrived
		close(store.gate)
		for range callers {
			if got := <-outcomes; got != want {
				t.Errorf("%s is answered %q", secret, got)
			}
		}
		if got := store.reads.Load(); got != 1 {
			t.Errorf("%s was read %d times", secret, got)
		}
		if secret == "known-secret" && auth.guesses != 0 {
			t.Errorf("a valid token keeps %d places", auth.guesses)
		}
	}
}

func TestALookupWhoseRequestWentAwayIsMadeAgainForThoseWhoWait(t *testing.T) {
	store := newGatedTokens("known-secret")
	auth := newAuthenticator(store, &testClock{now: time.UnixMilli(1_700_000_000_000)})
	leaving, leave := context.WithCancel(context.Background())
	outcomes := make(chan error, 2)
	authenticate := func(ctx context.Context) {
		_, err := auth.authenticate(ctx, "Bearer known-secret")
		outcomes <- err
	}
	go authenticate(leaving)
	<-store.arrived
	go authenticate(context.Background())
	leave()
	if err := <-outcomes; !errors.Is(err, context.Canceled) {
		t.Fatalf("the request that went away got %v", err)
	}
	close(store.gate)
	if err := <-outcomes; err != nil {
		t.Fatalf("the request that waited got %v", err)
	}
	// One that waits and goes away itself does not wait for the other's answer.
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	auth.lookups[core.TokenHash("held")] = &lookup{done: make(chan struct{})}
	if _, err := auth.authenticate(gone, "Bearer held"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestALookupThatPanicsAdmitsNobodyAndHoldsNobody(t *testing.T) {
	store := newCountedTokens(map[string]core.Token{"known-secret": {}})
	store.slow = func() { panic("a fault") }
	auth := newAuthenticator(store, &testClock{now: time.UnixMilli(1_700_000_000_000)})
	for range 2 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the fault was swallowed")
				}
			}()
			_, err := auth.authenticate(context.Background(), "Bearer known-secret")
			t.Errorf("answered %v", err)
		}()
	}
	store.slow = nil
	if _, err := auth.authenticate(context.Background(), "Bearer known-secret"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestATokenExpiresAtItsMomentThoughItIsCached(t *testing.T) {
	clock := &testClock{now: time.UnixMilli(1_700_000_000_000)}
	store := newCountedTokens(map[string]core.Token{"short-lived": {ExpiresAt: core.InstantOf(clock.Now()).Add(2 * time.Second)}})
	auth := newAuthenticator(store, clock)
	for step, want := range []core.Code{"", "", core.CodeUnauthorized} {
		if _, err := auth.authenticate(context.Background(), "Bearer short-lived"); core.CodeOf(err) != want {
			t.Errorf("after %d s: %v", step, err)
		}
		clock.advance(time.Second)
	}
}

func TestGuessingFillsNoMemoryAndDoesNotHammerTheTable(t *testing.T) {
	clock := &testClock{now: time.UnixMilli(1_700_000_000_000)}
	store := newCountedTokens(map[string]core.Token{"known-secret": {}})
	auth := newAuthenticator(store, clock)
	authenticate := func(secret string) core.Code {
		_, err := auth.authenticate(context.Background(), "Bearer "+secret)
		return core.CodeOf(err)
	}
	if got := authenticate("known-secret"); got != "" {
		t.Fatal(got)
	}
	outcomes := map[core.Code]int{}
	for i := range 10_000 {
		outcomes[authenticate(fmt.Sprint("guess-", i))]++
	}
	if store.reads != 1+guessBurst || outcomes[core.CodeUnauthorized] != guessBurst || outcomes[core.CodeThrottled] != 10_000-guessBurst {
		t.Errorf("10,000 guesses at once cost %d reads: %v", store.reads-1, outcomes)
	}
	if got := authenticate("known-secret"); got != "" {
		t.Errorf("a token in use is refused with %s while others guess", got)
	}
	// The record in memory gets old while the guessing goes on.
	clock.advance(tokenCacheTime)
	for i := range guessBurst {
		authenticate(fmt.Sprint("late-guess-", i))
	}
	if got := authenticate("one-more-guess"); got != core.CodeThrottled {
		t.Fatalf("a guess too many is answered %s", got)
	}
	if got := authenticate("known-secret"); got != "" {
		t.Errorf("a token in use is refused with %s when its record has to be read again while others guess", got)
	}
	// Over a long time: a steady rate, and memory that stays bounded.
	before := store.reads
	for i := range 100_000 {
		authenticate(fmt.Sprint("slow-guess-", i))
		clock.advance(10 * time.Millisecond)
	}
	if lookups, allowed := store.reads-before, 100_000*10*int(time.Millisecond)/int(guessPeriod); lookups > allowed+1 {
		t.Errorf("%d lookups in 1,000 s, at most %d are allowed", lookups, allowed)
	}
	if len(auth.unknown) > maxCachedTokens || len(auth.records) > maxCachedTokens {
		t.Errorf("%d absences and %d records are cached", len(auth.unknown), len(auth.records))
	}
}

func TestTheTokenCacheIsBounded(t *testing.T) {
	clock := &testClock{now: time.UnixMilli(1_700_000_000_000)}
	tokens := map[string]core.Token{}
	for i := range 2 * maxCachedTokens {
		tokens[fmt.Sprint("secret-", i)] = core.Token{}
	}
	auth := newAuthenticator(newCountedTokens(tokens), clock)
	for secret := range tokens {
		if _, err := auth.authenticate(context.Background(), "Bearer "+secret); err != nil {
			t.Fatal(err)
		}
		clock.advance(time.Millisecond)
	}
	if len(auth.records) > maxCachedTokens {
		t.Errorf("%d records are cached", len(auth.records))
	}
}

func TestARecordOfAnotherHashAuthorisesNobody(t *testing.T) {
	clock := &testClock{now: time.UnixMilli(1_700_000_000_000)}
	store := newCountedTokens(nil)
	store.records[core.TokenHash("presented")] = core.Token{Hash: core.TokenHash("another")}
	if _, err := newAuthenticator(store, clock).authenticate(context.Background(), "Bearer presented"); core.CodeOf(err) != core.CodeUnauthorized {
		t.Errorf("got %v", err)
	}
}

func TestPublicAnswersTellNoAgentIDs(t *testing.T) {
	root := rootResponse{statusResponse: statusResponse{Roles: map[string]legacyRoleView{"cto": {
		LeaderAgentID: orNull("secret-agent"), PreviousLeaderAgentID: orNull("secret-agent"), CandidateCount: 1,
		Candidates: []legacyCandidateView{{AgentID: "secret-agent"}},
	}}}}
	root.hideAgents()
	encoded, err := encodeJSON(root)
	must(t, err)
	if strings.Contains(string(encoded), "secret-agent") || !strings.Contains(string(encoded), `"candidate_count":1`) {
		t.Errorf("the answer to anybody is %s", encoded)
	}

	h := newTestHub(t)
	h.online("secret-agent", 1)
	for _, path := range []string{"/", "/status", "/health", "/healthz", "/status?scope=agent&agent_id=secret-agent"} {
		if a := h.as("").send("GET", path, nil); strings.Contains(a.text, "secret-agent") {
			t.Errorf("%s tells anybody %s", path, a.text)
		}
	}
}

// A header that names no token is refused as it is: nobody looks up what it says,
// whatever has a record.
func TestWhatIsNoTokenIsNotLookedUp(t *testing.T) {
	long := strings.Repeat("t", MaxToken)
	for _, test := range []struct {
		header string
		want   bool
	}{
		{"Bearer known-secret", true},
		{"bearer   known-secret ", true},
		{"Bearer " + long, true},
		{"Bearer " + long + "t", false},
		{"Bearer known secret", false},
		{"Bearer known\tsecret", false},
		{"Bearer known-s\u00e9cret", false},
		{"Bearer known-secret\x7f", false},
		{"Bearer", false},
		{"Basic known-secret", false},
		{"known-secret", false},
		{"", false},
	} {
		tokens := map[string]core.Token{}
		for _, secret := range []string{"known-secret", long, long + "t", "known secret", "known\tsecret", "known-s\u00e9cret", "known-secret\x7f", ""} {
			tokens[secret] = core.Token{}
		}
		store := newCountedTokens(tokens)
		_, err := newAuthenticator(store, &testClock{now: time.UnixMilli(1_700_000_000_000)}).authenticate(context.Background(), test.header)
		if (err == nil) != test.want || err != nil && core.CodeOf(err) != core.CodeUnauthorized || (store.reads == 1) != test.want {
			t.Errorf("%.40q: %v after %d reads", test.header, err, store.reads)
		}
	}
}

// A token whose record has gone was looked up without a place among the guesses:
// when that comes out, it counts as one.
func TestATokenWhoseRecordHasGoneCountsAsAGuess(t *testing.T) {
	for _, gone := range []bool{false, true} {
		clock := &testClock{now: time.UnixMilli(1_700_000_000_000)}
		store := newCountedTokens(map[string]core.Token{"known-secret": {}})
		auth := newAuthenticator(store, clock)
		authenticate := func(secret string) core.Code {
			_, err := auth.authenticate(context.Background(), "Bearer "+secret)
			return core.CodeOf(err)
		}
		authenticate("known-secret")
		clock.advance(tokenCacheTime)
		if gone {
			clear(store.records)
		}
		authenticate("guess") // the places drain up to here
		if got, want := authenticate("known-secret"), map[bool]core.Code{true: core.CodeUnauthorized}[gone]; got != want {
			t.Fatalf("answered %q, want %q", got, want)
		}
		free := 0
		for authenticate(fmt.Sprint("guess-", free)) == core.CodeUnauthorized {
			free++
		}
		if want := map[bool]int{false: guessBurst - 1, true: guessBurst - 2}[gone]; free != want {
			t.Errorf("gone %t: %d guesses were free, want %d", gone, free, want)
		}
	}
}
