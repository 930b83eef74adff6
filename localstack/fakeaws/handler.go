package fakeaws

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"

	"drawbridge/localstack/fakeaws/engine"
	"drawbridge/localstack/hostcheck"
)

// The largest bodies: DynamoDB's largest request is a batch of 16 MB; S3 takes
// 5 GB, but the embedded one holds bodies in memory on their way.
const (
	maxJSONBody = 16 << 20
	maxXMLBody  = 256 << 20
)

func (p protocol) maxBody() int64 {
	if p == awsJSON {
		return maxJSONBody
	}
	return maxXMLBody
}

// ServeHTTP answers one request over a socket. Web pages are not served: the
// default key is no secret, so that any page could sign.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if hostcheck.Rebound(r) || hostcheck.CrossOrigin(r) {
		http.Error(w, "the embedded AWS serves programs of this machine, not web pages", http.StatusForbidden)
		return
	}
	var rep reply
	body, refused := readBody(r.Body, r.ContentLength, protocolOf(r))
	if refused != nil {
		rep.Response = s.refuse(r, refused, headerTag(r))
		w.Header().Set("Connection", "close") // the rest of the body is still on its way
	} else {
		var err error
		rep, err = s.exchange(r.Context(), r, body, headerTag(r))
		if err != nil {
			rep.fate = dropped
		}
	}
	if rep.closeIdle {
		s.idle.closeAll(r.Context())
	}
	send(w, r, &rep)
}

// headerTag is the tag of a request that came over a socket.
func headerTag(r *http.Request) *tag {
	if label := r.Header.Get("X-Fakeaws-Label"); label != "" {
		return &tag{label: label}
	}
	return &noTag
}

// refuse answers a request that is not carried out: its body could not be read, or
// its signature is no good.
func (s *Server) refuse(r *http.Request, f *failure, tag *tag) engine.Response {
	reading := s.meter.begin(tag)
	p, id := protocolOf(r), s.ids.next()
	resp := f.response(p, r, id)
	finish(&resp, r, p, id)
	reading.end(&engine.Call{Op: Unauthenticated}, resp.ErrorCode, nil)
	return resp
}

// readBody reads a body of at most the protocol's size. length is the declared
// one, or -1.
func readBody(body io.Reader, length int64, p protocol) ([]byte, *failure) {
	limit := p.maxBody()
	if length > limit {
		return nil, bodyTooLarge(p, limit)
	}
	if body == nil || length == 0 {
		return nil, nil
	}
	// A declared length is not trusted with more memory than a small body
	// needs before the bytes are there.
	const trusted = 1 << 20
	if 0 < length && length <= trusted {
		b := make([]byte, length)
		if _, err := io.ReadFull(body, b); err != nil {
			return nil, bodyIncomplete(p)
		}
		return b, nil
	}
	var b bytes.Buffer
	if length > 0 {
		b.Grow(trusted)
	}
	n, err := b.ReadFrom(io.LimitReader(body, limit+1))
	switch {
	case n > limit:
		return nil, bodyTooLarge(p, limit)
	case err != nil, length > 0 && n != length:
		return nil, bodyIncomplete(p)
	}
	return b.Bytes(), nil
}

// send writes the answer as far as its fate allows. http.ErrAbortHandler is
// net/http's way to reset the connection.
func send(w http.ResponseWriter, r *http.Request, rep *reply) {
	if rep.fate == dropped || rep.fate == torn && len(rep.Body) == 0 {
		panic(http.ErrAbortHandler)
	}
	h := w.Header()
	for name, values := range rep.Header {
		h[name] = values
	}
	w.WriteHeader(rep.Status)
	if r.Method == http.MethodHead {
		return
	}
	if rep.fate == torn {
		_, _ = w.Write(rep.Body[:len(rep.Body)/2]) // the client may be gone: it is being cut off anyway
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(rep.Body) // a client that is gone cannot be told
}

// idleConns knows the connections of Serve, so that a script can close the
// idle ones.
type idleConns struct {
	mu    sync.Mutex
	state map[net.Conn]connState
}

type connState struct{ idle, doomed bool }

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// changed is the server's ConnState hook.
func (i *idleConns) changed(c net.Conn, state http.ConnState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.state == nil {
		i.state = map[net.Conn]connState{}
	}
	switch state {
	case http.StateIdle:
		if i.state[c].doomed {
			_ = c.Close() // an error means that it is closed already
		}
		i.state[c] = connState{idle: true}
	case http.StateNew, http.StateActive:
		i.state[c] = connState{doomed: i.state[c].doomed}
	case http.StateClosed, http.StateHijacked:
		delete(i.state, c)
	}
}

// closeAll closes the idle connections now and the one that the context's
// request came on when it becomes idle.
func (i *idleConns) closeAll(ctx context.Context) {
	own, _ := ctx.Value(connKey{}).(net.Conn)
	i.mu.Lock()
	defer i.mu.Unlock()
	for c, state := range i.state {
		switch {
		case state.idle:
			_ = c.Close()
		case c == own:
			i.state[c] = connState{doomed: true}
		}
	}
}
