package core

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

// IdempotencyRetention is how long a key's answer is repeated (compat 16).
const IdempotencyRetention = 24 * time.Hour

// maxIdempotencyKey is the longest key, in printable ASCII characters.
const maxIdempotencyKey = 128

// IdempotencyKey makes an operation happen once however often its request is
// sent: the same key with the same body gets the first answer again.
type IdempotencyKey struct {
	Scope string // whose key it is: the token's hash and the path
	Key   string // the caller's, 1..128 printable ASCII characters
	Body  []byte // the request's body, to tell a repetition from another request
}

// IdempotencyRecord is a stored answer. It is written in the same transaction
// as the change it belongs to, so that one never exists without the other.
type IdempotencyRecord struct {
	ID        string // of scope and key
	BodyHash  string
	Answer    []byte // the operation's complete answer, as core encodes it
	ExpiresAt Instant
}

func (k IdempotencyKey) validate() error {
	if k.Key == "" || len(k.Key) > maxIdempotencyKey {
		return Invalid("Idempotency-Key", "Idempotency-Key must have 1 to 128 characters")
	}
	for i := range len(k.Key) {
		if k.Key[i] < ' ' || k.Key[i] > '~' {
			return Invalid("Idempotency-Key", "Idempotency-Key must be printable ASCII")
		}
	}
	return nil
}

// id separates scope and key by a byte that neither holds.
func (k IdempotencyKey) id() string { return hashHex([]byte(k.Scope + "\x00" + k.Key)) }

func (k IdempotencyKey) bodyHash() string { return hashHex(k.Body) }

func hashHex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// record encodes an operation's answer for the transaction that carries it out.
func (k IdempotencyKey) record(answer any, now Instant) (IdempotencyRecord, error) {
	encoded, err := json.Marshal(answer)
	if err != nil {
		return IdempotencyRecord{}, fmt.Errorf("encode answer of an idempotency key: %w", err)
	}
	return IdempotencyRecord{
		ID:        k.id(),
		BodyHash:  k.bodyHash(),
		Answer:    encoded,
		ExpiresAt: now.Add(IdempotencyRetention),
	}, nil
}

// replay decodes the stored answer of the key, or refuses it when it was given
// to another body.
func (k IdempotencyKey) replay(stored IdempotencyRecord, answer any) error {
	if stored.BodyHash != k.bodyHash() {
		return Refuse(CodeIdempotencyMismatch, "this Idempotency-Key was used with another body")
	}
	if err := json.Unmarshal(stored.Answer, answer); err != nil {
		return fmt.Errorf("decode stored answer of an idempotency key: %w", err)
	}
	return nil
}
