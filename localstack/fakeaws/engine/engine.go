// Package engine holds what the parts of the embedded AWS agree on: a request
// is described before it is carried out (so that faults and the meter can
// match it), carried out into a buffered response (so that a response can be
// dropped, torn or replaced after the write took effect), and made durable
// through a journal before it is acknowledged.
package engine

import "net/http"

// A Service carries out the requests of one AWS service.
// Both methods are called from many goroutines at once.
type Service interface {
	// Describe tells what a request asks for without carrying it out. It is
	// best effort: a request that cannot be understood gives a Call with empty
	// fields, and Serve then answers the error. body is the whole request body.
	Describe(r *http.Request, body []byte) Call
	// Serve carries the request out. The returned response must not be sent
	// before its Durable ticket is waited for.
	Serve(r *http.Request, body []byte) Response
}

// A Call names one request for fault scripts and for the meter.
type Call struct {
	Service  string   // "dynamodb" or "s3"
	Op       string   // AWS's operation name: "UpdateItem", "PutObject"
	Resource string   // table or bucket; the first one where a call names several
	Keys     []string // "pk/sk" of each item, or the object key; every key of batches and transactions
	Index    string   // the index a Query or Scan reads
	Caller   string   // access key id of the signature, set by the server
	Label    string   // label of the caller, set by the server
}

// Usage is capacity that one call consumed on a table or one of its indexes,
// by AWS's rounding rules.
type Usage struct {
	Table      string
	Index      string // empty for the base table
	ReadUnits  float64
	WriteUnits float64
}

// Response is a complete answer.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
	// ErrorCode is AWS's error code when the answer is an error.
	ErrorCode string
	// Usage is what the call consumed, failed conditions included.
	Usage []Usage
	// Durable must be waited for before the response leaves. Reads carry a
	// ticket too: what they saw must not vanish in a crash. Nil needs no wait.
	Durable Ticket
}

// A Ticket stands for writes that are on their way to stable storage.
type Ticket interface {
	// Wait returns when everything up to the ticket is stable, or the error
	// that makes that impossible (then the answer must be a 500).
	Wait() error
}

// A Write is one change of the journal: a nil Value deletes the key.
type Write struct {
	Space string // one namespace per kind of record, e.g. "item"
	Key   string
	Value []byte
}

// A Journal keeps an engine's records. Engines hold their state in memory,
// call Append under their own lock (so the journal's order is the order in
// which the writes took effect) and read the records back only at start, or
// when they chose not to keep a value in memory.
type Journal interface {
	// Append accepts the writes as one atomic unit. It does not block on
	// stable storage; the ticket does. The journal keeps no reference to the
	// slice itself but may keep the values: do not modify them afterwards.
	Append(writes []Write) Ticket
	// Barrier returns a ticket for everything appended so far.
	Barrier() Ticket
	// Load calls fn for every record of a space in byte order of the keys.
	// The value is only valid during the call.
	Load(space string, fn func(key string, value []byte) error) error
	// Read returns one record that was appended before (stable or not), or
	// nil when there is none. The caller must not modify it.
	Read(space, key string) ([]byte, error)
}
