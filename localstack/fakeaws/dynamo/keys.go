package dynamo

import (
	"encoding/binary"
	"hash/fnv"
	"strings"
)

// Rows and index entries live in ordered trees under keys that are byte
// strings:
//
//	hash of the partition key (4) | length (2) | partition key | sort key | ...
//
// The hash comes first so that a scan walks the partitions in hash order, as
// DynamoDB does, and a segment of a parallel scan is a range of the tree. The
// sort key is encoded so that the order of the bytes is DynamoDB's order, and
// ends itself so that "equals" is a prefix. An index appends the key of the
// base row, which orders entries with equal index keys and makes them unique.

// partitionPrefix begins the keys of all items of one partition.
func partitionPrefix(partition value) []byte {
	raw := partition.text
	key := make([]byte, 0, 64+len(raw))
	key = binary.BigEndian.AppendUint32(key, partitionHash(raw))
	key = binary.BigEndian.AppendUint16(key, uint16(len(raw)))
	return append(key, raw...)
}

// partitionHash spreads partitions evenly over 32 bits. It is part of the
// journal's format.
func partitionHash(raw string) uint32 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(raw)) // a hash never fails
	x := h.Sum64()
	// FNV leaves the high bits of short keys alike; this mixes them.
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return uint32(x >> 32)
}

// Ends of an ordered text: a zero byte inside it is escaped so that the end
// sorts before any continuation.
const (
	escapedZero = "\x00\xff"
	textEnd     = "\x00\x01"
)

// appendOrdered appends a sort key in an encoding that sorts as the value
// does and is no prefix of another value's encoding.
func appendOrdered(key []byte, v value) []byte {
	if v.kind == kindNumber {
		return appendOrderedNumber(key, v.text)
	}
	key = appendEscaped(key, v.text)
	return append(key, textEnd...)
}

func appendEscaped(key []byte, text string) []byte {
	for {
		at := strings.IndexByte(text, 0)
		if at < 0 {
			return append(key, text...)
		}
		key = append(key, text[:at]...)
		key = append(key, escapedZero...)
		text = text[at+1:]
	}
}

// Signs of an ordered number.
const (
	signNegative = 1
	signZero     = 2
	signPositive = 3
)

// appendOrderedNumber writes sign, exponent, digits in pairs and an end. The
// bytes after the sign are inverted for negative numbers, of which the larger
// magnitude sorts first.
func appendOrderedNumber(key []byte, canonical string) []byte {
	d, err := parseDecimal(canonical)
	if err != nil || d.count == 0 {
		// Canonical numbers parse; zero is the only one without digits.
		return append(key, signZero)
	}
	var flip byte
	if d.negative {
		key = append(key, signNegative)
		flip = 0xff
	} else {
		key = append(key, signPositive)
	}
	key = append(key, byte(d.exponent-minExponent)^flip)
	for i := 0; i < d.count; i += 2 {
		pair := 10 * d.digits[i]
		if i+1 < d.count {
			pair += d.digits[i+1]
		}
		key = append(key, (pair+1)^flip)
	}
	return append(key, flip)
}

// prefixEnd returns the first key after all keys that begin with prefix; empty
// when there is none.
func prefixEnd(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for len(end) > 0 {
		if last := len(end) - 1; end[last] < 0xff {
			end[last]++
			return end
		}
		end = end[:len(end)-1]
	}
	return nil
}

// A keyRange is a range of tree keys, from first inclusive to end exclusive;
// an empty end is open.
type keyRange struct {
	first, end string
}

func (r keyRange) contains(key string) bool {
	return key >= r.first && (r.end == "" || key < r.end)
}
