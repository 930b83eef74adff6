package fakeaws

import (
	"encoding/base64"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
)

// requestID is what AWS calls an answer by in its headers and error documents.
type requestID struct {
	request string // x-amzn-RequestId, x-amz-request-id
	host    string // x-amz-id-2, of S3 only
}

// requestIDs numbers the requests of one server, on from a random start so
// that ids of several runs in one log differ.
type requestIDs struct {
	last *atomic.Uint64
	host string
}

func newRequestIDs() requestIDs {
	var last atomic.Uint64
	last.Store(rand.Uint64() &^ (1<<32 - 1))
	var host [48]byte
	for i := range host {
		host[i] = byte(rand.Uint32())
	}
	return requestIDs{last: &last, host: base64.StdEncoding.EncodeToString(host[:])}
}

func (ids requestIDs) next() requestID {
	n := ids.last.Add(1)
	var digits [16]byte
	for i := range digits {
		digits[i] = upperHex[n>>(60-4*i)&15]
	}
	return requestID{request: string(digits[:]), host: ids.host}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
