package core

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"unicode/utf8"
)

const (
	// cursorSumBytes is the length of a cursor's checksum.
	cursorSumBytes = 8
	// maxPosition is the longest position in bytes: what a store can hold as one,
	// less a byte, so that it can be asked for what comes next.
	maxPosition = 1023
)

// encodeCursor makes the opaque text of a position in a list. The checksum over
// list, filter and position refuses a cursor that was mangled or belongs to
// another query. It is no secret: a position grants nothing, so a caller who
// forges one only chooses where its own list starts.
func encodeCursor(kind, position string) string {
	sum := cursorSum(kind, position)
	return base64.RawURLEncoding.EncodeToString(append(sum, position...))
}

func decodeCursor(kind, cursor string) (string, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err == nil && len(raw) > cursorSumBytes && len(raw) <= cursorSumBytes+maxPosition && utf8.Valid(raw[cursorSumBytes:]) {
		position := string(raw[cursorSumBytes:])
		if subtle.ConstantTimeCompare(raw[:cursorSumBytes], cursorSum(kind, position)) == 1 {
			return position, nil
		}
	}
	return "", Invalid("cursor", "cursor is not one of this list with this filter")
}

func cursorSum(kind, position string) []byte {
	sum := sha256.Sum256([]byte(kind + "\x00" + position))
	return sum[:cursorSumBytes]
}
