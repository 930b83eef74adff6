package fakeaws

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"drawbridge/localstack/fakeaws/disk"
	"drawbridge/localstack/fakeaws/dynamo"
	"drawbridge/localstack/fakeaws/engine"
	"drawbridge/localstack/fakeaws/objects"
)

// Options of Open. The zero value is a server in memory that takes every
// region and the default key.
type Options struct {
	// Dir is the data folder, made when absent; one server at a time may use
	// it. Empty: everything is in memory and gone with the process.
	Dir string
	// Clock is the services' time: time to live, transaction tokens,
	// Last-Modified, the end of presigned URLs. Nil: time.Now. Signatures and
	// the Date header stay on the machine's clock, which clients sign with.
	Clock func() time.Time
	// AccessKey and SecretKey that requests must be signed with. Both empty:
	// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY where both are set, else
	// "test" and "testtest".
	AccessKey, SecretKey string
	// MoreKeys holds the secrets of further access keys: callers that a fault
	// script can tell apart over a socket.
	MoreKeys map[string]string
	// Region that signatures must be scoped to. Empty: any.
	Region string
	// Faults in force from the first request on. Nil: none.
	Faults *Script
}

const (
	defaultAccessKey, defaultSecretKey = "test", "testtest"
	defaultRegion                      = "us-east-1"
)

// keys resolves the default of AccessKey and SecretKey.
func (o *Options) keys() error {
	if o.AccessKey == "" && o.SecretKey == "" {
		o.AccessKey, o.SecretKey = os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
		if o.AccessKey == "" || o.SecretKey == "" {
			o.AccessKey, o.SecretKey = defaultAccessKey, defaultSecretKey
		}
	}
	if o.AccessKey == "" || o.SecretKey == "" {
		return errors.New("fakeaws: an access key needs a secret key and the reverse")
	}
	return nil
}

// A Server is an embedded AWS: DynamoDB and S3 behind one http.Handler.
type Server struct {
	options  Options
	verifier *verifier
	dynamo   engine.Service
	objects  engine.Service
	script   *Script
	meter    *Meter
	ids      requestIDs
	http     http.Server
	idle     idleConns
	journal  *disk.Journal // nil in memory

	// tables and buckets are dynamo and objects again, for Collect; nil in tests
	// of the shell alone.
	tables  *dynamo.Engine
	buckets *objects.Engine

	endMu  sync.Mutex
	ending bool          // guarded by endMu: Close has begun
	closed chan struct{} // closed with ending
	// underWay counts the requests that http.Server does not know of: those in
	// process and those whose clients have given up.
	underWay sync.WaitGroup
}

// errClosed is the fate of requests that meet a closed server.
var errClosed = errors.New("fakeaws: the server is closed")

// newServer puts the shell around two engines.
func newServer(o Options, dynamo, objects engine.Service) *Server {
	secrets := map[string]string{o.AccessKey: o.SecretKey}
	for key, secret := range o.MoreKeys {
		secrets[key] = secret
	}
	s := &Server{
		options: o, verifier: newVerifier(secrets, o.Region, o.Clock), dynamo: dynamo, objects: objects,
		script: o.Faults, meter: newMeter(), ids: newRequestIDs(), closed: make(chan struct{}),
	}
	if s.script == nil {
		s.script = &Script{}
	}
	s.http = http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ConnState:         s.idle.changed,
		ConnContext:       withConn,
	}
	return s
}

// Faults returns the script in force, to be changed at will.
func (s *Server) Faults() *Script { return s.script }

// Meter returns the counts of requests and capacity.
func (s *Server) Meter() *Meter { return s.meter }

// Serve answers requests on the listener until Close, and returns nil then.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// closeGrace is how long Close waits for requests in flight.
const closeGrace = 5 * time.Second

// Close stops listening, ends held requests without effect, lets the requests
// in flight end (those of sockets within 5 seconds) and closes the data folder.
// In-process requests made afterwards fail.
func (s *Server) Close() error {
	if !s.end() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	s.underWay.Wait()
	if s.journal != nil {
		err = errors.Join(err, s.journal.Close())
	}
	return err
}

// end reports whether this call began the end of the server.
func (s *Server) end() bool {
	s.endMu.Lock()
	defer s.endMu.Unlock()
	if s.ending {
		return false
	}
	s.ending = true
	close(s.closed)
	return true
}

// enter lets a request in, unless the server is ending. Close waits until the
// request calls underWay.Done.
func (s *Server) enter() bool {
	s.endMu.Lock()
	defer s.endMu.Unlock()
	if s.ending {
		return false
	}
	s.underWay.Add(1)
	return true
}

// goLate runs fn beside, unless the server is ending. Close waits for it.
func (s *Server) goLate(fn func()) bool {
	if !s.enter() {
		return false
	}
	go func() {
		defer s.underWay.Done()
		fn()
	}()
	return true
}
