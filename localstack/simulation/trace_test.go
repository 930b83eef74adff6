package simulation

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
)

// tailLines is how much of a run a failure shows.
const tailLines = 4000

// A trace is what happened, condensed: a hash of everything, and the last lines
// for people.
type trace struct {
	hash hash.Hash
	tail []string
	at   func() string // where the run stands
}

func newTrace(at func() string) *trace { return &trace{hash: sha256.New(), at: at} }

// addf adds a line.
func (t *trace) addf(format string, args ...any) {
	line := t.at() + " " + fmt.Sprintf(format, args...)
	t.note(line)
	if len(t.tail) == 2*tailLines {
		t.tail = append(t.tail[:0], t.tail[tailLines:]...)
	}
	t.tail = append(t.tail, line)
}

// note counts without being shown.
func (t *trace) note(text string) {
	_, _ = t.hash.Write([]byte(text)) // a hash does not fail
	_, _ = t.hash.Write([]byte{0})
}

func (t *trace) sum() string { return hex.EncodeToString(t.hash.Sum(nil)) }

func (t *trace) last(n int) string {
	return strings.Join(t.tail[max(0, len(t.tail)-n):], "\n")
}
