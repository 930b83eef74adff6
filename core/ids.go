package core

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/google/uuid"
)

// IDs makes identifiers: lower-case UUIDv7 text, strictly increasing within a
// process, so that text order is creation order there (contract 1.14).
type IDs interface{ New() string }

// sequenceMax is the last value of the 12 bits that order the ids of one
// millisecond.
const sequenceMax = 0xfff

type ids struct {
	clock  Clock
	random io.Reader

	mu       sync.Mutex
	ms       int64
	sequence uint16
}

// NewIDs returns the generator of ids: 48 bits of milliseconds from clock, 12
// bits of sequence within the millisecond, 62 bits from random. A clock that
// stands still or goes back does not disturb the order: the sequence grows, and
// when it is used up the logical millisecond runs ahead of the clock.
//
// random must not fail (crypto/rand.Reader never does): an id without its
// random bits could collide with another host's, so New panics.
func NewIDs(clock Clock, random io.Reader) IDs {
	return &ids{clock: clock, random: random}
}

func (g *ids) New() string {
	var id uuid.UUID
	if _, err := io.ReadFull(g.random, id[8:]); err != nil {
		panic(fmt.Sprintf("read random bits of an id: %v", err))
	}
	ms, sequence := g.next()
	binary.BigEndian.PutUint64(id[:8], uint64(ms)<<16|7<<12|uint64(sequence))
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

func (g *ids) next() (int64, uint16) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch now := g.clock.Now().UnixMilli(); {
	case now > g.ms:
		g.ms, g.sequence = now, 0
	case g.sequence < sequenceMax:
		g.sequence++
	default:
		g.ms, g.sequence = g.ms+1, 0
	}
	return g.ms, g.sequence
}
