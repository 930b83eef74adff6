package dynamo

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"drawbridge/localstack/fakeaws/engine"
)

// tokenLifetime is how long a ClientRequestToken makes a transaction
// idempotent after it completed.
const tokenLifetime = 10 * time.Minute

// maxTokensDropped bounds how many expired tokens one transaction clears away.
// Each adds one, so the store shrinks all the same.
const maxTokensDropped = 64

// A fingerprint condenses a token or the parameters of a transaction. Sixteen
// bytes of SHA-256 do not collide by chance, and hold no pointers: the SDK puts
// a token on every transaction, so there are many.
type fingerprint [16]byte

// A tokenStore remembers the transactions of the last ten minutes by token.
type tokenStore struct {
	used map[fingerprint]tokenUse
	// order is the queue of tokens by time of use.
	order []fingerprint
}

type tokenUse struct {
	request   fingerprint
	completed int64 // nanoseconds since 1970
}

func newTokenStore() *tokenStore {
	return &tokenStore{used: map[fingerprint]tokenUse{}}
}

func tokenKey(token string) fingerprint {
	sum := sha256.Sum256([]byte(token))
	return fingerprint(sum[:len(fingerprint{})])
}

func (u tokenUse) expired(now time.Time) bool {
	return now.UnixNano()-u.completed >= int64(tokenLifetime)
}

// find returns the request that used a token.
func (s *tokenStore) find(token string, now time.Time) (fingerprint, bool) {
	u, ok := s.used[tokenKey(token)]
	if !ok || u.expired(now) {
		return fingerprint{}, false
	}
	return u.request, true
}

// add remembers a token and returns what the journal has to know: the token,
// and the expired ones that are gone.
func (s *tokenStore) add(token string, request fingerprint, now time.Time) []engine.Write {
	key := tokenKey(token)
	records := s.dropExpired(now)
	use := tokenUse{request: request, completed: now.UnixNano()}
	s.used[key] = use
	s.order = append(s.order, key)
	record := append([]byte(nil), use.request[:]...)
	record = binary.BigEndian.AppendUint64(record, uint64(use.completed))
	return append(records, engine.Write{Space: tokenSpace, Key: string(key[:]), Value: record})
}

func (s *tokenStore) dropExpired(now time.Time) []engine.Write {
	var gone []engine.Write
	for len(s.order) > 0 && len(gone) < maxTokensDropped {
		key := s.order[0]
		if use, ok := s.used[key]; ok && !use.expired(now) {
			break
		}
		delete(s.used, key)
		s.order = s.order[1:]
		gone = append(gone, engine.Write{Space: tokenSpace, Key: string(key[:])})
	}
	return gone
}

// load takes a record of the journal back.
func (s *tokenStore) load(key string, record []byte) error {
	if len(key) != len(fingerprint{}) || len(record) != len(fingerprint{})+8 {
		return fmt.Errorf("read token record: bad length %d, %d", len(key), len(record))
	}
	use := tokenUse{
		request:   fingerprint(record[:len(fingerprint{})]),
		completed: int64(binary.BigEndian.Uint64(record[len(fingerprint{}):])),
	}
	k := fingerprint([]byte(key))
	s.used[k] = use
	s.order = append(s.order, k)
	return nil
}

// sortByTime puts loaded tokens into their order of use.
func (s *tokenStore) sortByTime() {
	slices.SortFunc(s.order, func(a, b fingerprint) int {
		switch x, y := s.used[a].completed, s.used[b].completed; {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
}
