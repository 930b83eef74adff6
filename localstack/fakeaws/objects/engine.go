package objects

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"drawbridge/localstack/fakeaws/engine"
)

const (
	// MaxObjectSize bounds one object, however it was written: answers are built
	// in memory. S3's own limits are 5 GB a request and 50 TB an object.
	MaxObjectSize = 256 << 20
	// inlineLimit is the largest body that durable mode keeps in memory, inside
	// the record of its version.
	inlineLimit = 4 << 10

	// accountID owns every bucket; x-amz-expected-bucket-owner is compared with it.
	accountID = "000000000000"
	// ownerID is the account's canonical user id, shown as the owner of objects.
	ownerID = "75aa57f09aa0c8caeab4f8c24e99d10f8e7faeebf76c078efc7c6caea54ba06a"

	defaultRegion = "us-east-1"
)

// Options configure an Engine.
type Options struct {
	// Journal keeps the records; nil keeps everything in memory only.
	Journal engine.Journal
	// Clock stamps Last-Modified; nil means time.Now.
	Clock func() time.Time
}

// An Engine is an embedded S3. Its methods are safe for concurrent use.
type Engine struct {
	journal engine.Journal // nil in memory mode
	clock   func() time.Time

	mu      sync.RWMutex
	buckets map[string]*bucket
	seq     uint64 // orders versions and uploads, names bodies
}

var _ engine.Service = (*Engine)(nil)

// Open returns an engine over what the journal holds. It reads every metadata
// record (a few microseconds each) and no body.
func Open(opts Options) (*Engine, error) {
	e := &Engine{journal: opts.Journal, clock: opts.Clock, buckets: make(map[string]*bucket)}
	if e.clock == nil {
		e.clock = time.Now
	}
	if e.journal != nil {
		if err := e.load(); err != nil {
			return nil, fmt.Errorf("load objects: %w", err)
		}
	}
	return e, nil
}

// Describe implements engine.Service.
func (e *Engine) Describe(r *http.Request, body []byte) engine.Call {
	call := engine.Call{Service: "s3"}
	req, err := parseRequest(r, body)
	if err != nil {
		return call
	}
	call.Op, call.Resource = req.op.name, req.bucket
	switch {
	case req.key != "":
		call.Keys = []string{req.key}
	case req.op.name == "DeleteObjects":
		// A body that does not parse names no keys; Serve tells the error.
		if del, err := parseDeleteObjects(req); err == nil {
			for _, o := range del.Objects {
				call.Keys = append(call.Keys, o.Key)
			}
		}
	}
	return call
}

// Serve implements engine.Service. The engine keeps no reference to body; the
// caller must not modify the body of the response, which may be the stored one.
func (e *Engine) Serve(r *http.Request, body []byte) engine.Response {
	resp, err := e.serve(r, body)
	if err != nil {
		resp = errorResponse(r, err)
	}
	if resp.Durable == nil && e.journal != nil {
		// Even a refusal may tell what another caller has just written.
		resp.Durable = e.journal.Barrier()
	}
	return resp
}

func (e *Engine) serve(r *http.Request, body []byte) (engine.Response, error) {
	req, err := parseRequest(r, body)
	if err != nil {
		return engine.Response{}, err
	}
	if req.op.serve == nil {
		return engine.Response{}, notImplemented(req.op.name)
	}
	if err := e.admit(req); err != nil {
		return engine.Response{}, err
	}
	return req.op.serve(e, req)
}

// admit refuses requests on buckets that do not exist, that the caller takes
// for another account's, or whose policy denies the operation, before the work
// of hashing a body. The operation looks the bucket up again under its own lock.
func (e *Engine) admit(req *request) error {
	if err := refuseHeaders(req.header); err != nil {
		return err
	}
	if req.bucket == "" || req.op.name == "CreateBucket" {
		return nil
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	b, err := e.bucket(req.bucket)
	if err != nil {
		return err
	}
	if owner := req.header.Get("X-Amz-Expected-Bucket-Owner"); owner != "" && owner != accountID {
		return newError(http.StatusForbidden, "AccessDenied", "Access Denied")
	}
	return b.policy.authorize(req.policyContext())
}

// bucket finds a bucket; the caller holds the lock.
func (e *Engine) bucket(name string) (*bucket, error) {
	if b := e.buckets[name]; b != nil {
		return b, nil
	}
	return nil, noSuchBucket(name)
}

// nextSeq returns a number above all before it; the caller holds the lock.
func (e *Engine) nextSeq() uint64 {
	e.seq++
	return e.seq
}

// now is the time of a change, at S3's resolution of Last-Modified.
func (e *Engine) now() time.Time { return e.clock().UTC().Truncate(time.Second) }
