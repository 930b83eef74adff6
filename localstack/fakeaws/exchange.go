package fakeaws

import (
	"context"
	"hash/crc32"
	"net/http"
	"strconv"

	"drawbridge/localstack/fakeaws/engine"
)

// fate is what becomes of an answer on its way to the client.
type fate int

const (
	sent    fate = iota
	dropped      // the connection is reset instead
	torn         // half of the body is sent, then the connection is reset
)

// A reply is the answer to one request with its fate.
type reply struct {
	engine.Response
	fate      fate
	closeIdle bool
}

// exchange answers one authenticated or refused request, faults included. r is
// the exchange's own to change. An error means that the client is gone or the
// server is closed: there is nobody to answer.
func (s *Server) exchange(ctx context.Context, r *http.Request, body []byte, tag *tag) (reply, error) {
	p := protocolOf(r)
	caller, refused := s.verifier.verify(r, body, p)
	if refused != nil {
		return reply{Response: s.refuse(r, refused, tag)}, nil
	}
	return s.answer(ctx, r, body, tag, caller)
}

// answer answers a request whose caller is known.
func (s *Server) answer(ctx context.Context, r *http.Request, body []byte, tag *tag, caller string) (reply, error) {
	p := protocolOf(r)
	id := s.ids.next()
	reading := s.meter.begin(tag)
	r.Header["X-Fakeaws-Request-Id"] = []string{id.request}
	service := s.objects
	if p == awsJSON {
		service = s.dynamo
	}
	call := service.Describe(r, body)
	call.Caller, call.Label = caller, tag.label
	x := &exchange{server: s, service: service, protocol: p, id: id, request: r, body: body, call: &call, reading: &reading}
	rep, err := x.run(ctx, s.script.decide(&call))
	code := rep.ErrorCode
	if err != nil || rep.fate != sent {
		code = Dropped
	}
	reading.end(&call, code, rep.Usage)
	return rep, err
}

// exchange is one authenticated request on its way through the faults.
type exchange struct {
	server   *Server
	service  engine.Service
	protocol protocol
	id       requestID
	request  *http.Request
	body     []byte
	call     *engine.Call
	reading  *reading
}

func (x *exchange) run(ctx context.Context, p *plan) (reply, error) {
	if p == nil {
		resp, err := x.serve(ctx)
		return reply{Response: resp}, err
	}
	if err := x.holdRequest(ctx, p); err != nil {
		endAll(p.after)
		return reply{}, err
	}
	rep, err := x.carryOut(ctx, p)
	endAll(p.before)
	if err == nil {
		err = waitAll(ctx, p.after, x.server.closed)
	}
	endAll(p.after)
	return rep, err
}

// holdRequest waits for the plan's holds, which the caller ends when the
// request has taken effect. When the client gives up meanwhile, the request
// still takes effect when they are over: it was under way.
func (x *exchange) holdRequest(ctx context.Context, p *plan) error {
	err := waitAll(ctx, p.before, x.server.closed)
	if err == nil {
		return nil
	}
	if err == errClosed {
		endAll(p.before)
		return err
	}
	late := x.server.goLate(func() {
		defer endAll(p.before)
		if waitAll(context.Background(), p.before, x.server.closed) == nil {
			rep, _ := x.carryOut(context.Background(), p) // nobody is there to be answered
			x.reading.landed(x.call, rep.Usage)
		}
	})
	if !late {
		endAll(p.before)
	}
	return err
}

// carryOut lets the request take effect, or not, as planned.
func (x *exchange) carryOut(ctx context.Context, p *plan) (rep reply, err error) {
	if p.collect && x.protocol == awsJSON {
		x.server.script.collect(x.call.Resource)
	}
	rep.closeIdle = p.closeIdle
	switch p.answer.kind {
	case dropRequest:
		rep.fate = dropped
	case answerError, answerErrorWith200:
		rep.Response = x.fail(&p.answer.failure)
	case answerConflict:
		rep.Response = x.fail(conflict(x.call, p.answerKey))
	default:
		rep.Response, err = x.serve(ctx)
	}
	switch p.answer.kind {
	case dropResponse:
		rep.fate = dropped
	case tearResponse:
		rep.fate = torn
	case answerErrorAfter:
		usage := rep.Usage
		rep.Response = x.fail(&p.answer.failure)
		rep.Usage = usage
	}
	return rep, err
}

// serve carries the request out and waits until what it did is stable, or the
// client gives up.
func (x *exchange) serve(ctx context.Context) (engine.Response, error) {
	resp := x.service.Serve(x.request, x.body)
	if x.call.Op == "CreateTable" || x.call.Op == "UpdateTable" {
		x.server.script.tablesChanged()
	}
	if resp.Durable != nil {
		if err := stable(ctx, resp.Durable); err != nil {
			if ctx.Err() != nil {
				return resp, err
			}
			return x.fail(storageFailure(x.protocol, err)), nil
		}
	}
	finish(&resp, x.request, x.protocol, x.id)
	return resp, nil
}

// stable waits for the ticket. The journal's tickets can be waited for beside
// a context.
func stable(ctx context.Context, t engine.Ticket) error {
	if d, ok := t.(interface{ Done() <-chan struct{} }); ok {
		select {
		case <-d.Done():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return t.Wait()
}

func (x *exchange) fail(f *failure) engine.Response {
	resp := f.response(x.protocol, x.request, x.id)
	finish(&resp, x.request, x.protocol, x.id)
	return resp
}

// finish adds the headers that every answer of the protocol has.
func finish(resp *engine.Response, r *http.Request, p protocol, id requestID) {
	if resp.Header == nil {
		resp.Header = make(http.Header, 6)
	}
	h := resp.Header
	if p == awsJSON {
		h["X-Amzn-Requestid"] = []string{id.request}
		h["X-Amz-Crc32"] = []string{strconv.FormatUint(uint64(crc32.ChecksumIEEE(resp.Body)), 10)}
		h["Server"] = []string{"Server"}
	} else {
		h["X-Amz-Request-Id"] = []string{id.request}
		h["X-Amz-Id-2"] = []string{id.host}
		h["Server"] = []string{"AmazonS3"}
	}
	// An answer to HEAD, and a 304, state the length of a body that they lack:
	// the engine sets it.
	if len(h["Content-Length"]) == 0 && resp.Status != http.StatusNoContent && resp.Status != http.StatusNotModified && r.Method != http.MethodHead {
		h["Content-Length"] = []string{strconv.Itoa(len(resp.Body))}
	}
}
