package fakeaws

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"drawbridge/localstack/fakeaws/engine"
)

// ticketed is an engine whose answers carry a ticket.
type ticketed struct {
	echo
	ticket engine.Ticket
}

func (e *ticketed) Serve(r *http.Request, body []byte) engine.Response {
	resp := e.echo.Serve(r, body)
	resp.Durable = e.ticket
	return resp
}

type failedTicket struct{ error }

func (t failedTicket) Wait() error { return t.error }

// slowTicket is a ticket of a disk that hangs until released.
type slowTicket chan struct{}

func (t slowTicket) Wait() error           { <-t; return nil }
func (t slowTicket) Done() <-chan struct{} { return t }

func withTicket(ticket engine.Ticket) *Server {
	e := &ticketed{ticket: ticket}
	return newServer(Options{AccessKey: "test", SecretKey: "testtest", Clock: time.Now}, e, e)
}

func TestAWriteThatIsNotStableIsA500(t *testing.T) {
	s := withTicket(failedTicket{errors.New("no space left on device")})
	for _, signing := range []signing{s3Put(), dynamoPut()} {
		resp, err := s.Transport().RoundTrip(signing.request(t))
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusInternalServerError {
			t.Errorf("%s: status %d, want 500", signing.service, resp.StatusCode)
		}
	}
	if n := s.Meter().Total().Errors; n["InternalError"] != 1 || n["InternalServerError"] != 1 {
		t.Errorf("errors %v, want one of each protocol", n)
	}
}

func TestAnAnswerWaitsForTheDiskAndTheClientNeedNot(t *testing.T) {
	ticket := make(slowTicket)
	s := withTicket(ticket)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.Transport().RoundTrip(s3Put().request(t).WithContext(ctx)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while the disk hangs: %v, want context.DeadlineExceeded", err)
	}
	close(ticket)
	if status, code, _ := roundTrip(t, s, s3Put().request(t)); status != 200 {
		t.Errorf("when the disk answers: %d %s", status, code)
	}
}

// slow is an engine that serves when it is told to.
type slow struct {
	echo
	entered, release chan struct{}
}

func (e *slow) Serve(r *http.Request, body []byte) engine.Response {
	close(e.entered)
	<-e.release
	return e.echo.Serve(r, body)
}

func newSlow() *slow { return &slow{entered: make(chan struct{}), release: make(chan struct{})} }

func (e *slow) server() *Server {
	return newServer(Options{AccessKey: "test", SecretKey: "testtest", Clock: time.Now}, e, e)
}

func TestCloseWaitsForTheInProcessRequestsInFlight(t *testing.T) {
	e := newSlow()
	s := e.server()
	answered := make(chan error, 1)
	go func() {
		_, err := s.Transport().RoundTrip(s3Put().request(t))
		answered <- err
	}()
	<-e.entered
	go func() {
		<-s.closed
		close(e.release)
	}()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(e.served) != 1 {
		t.Error("Close returned before the request was served")
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

func TestARequestIsHeldUntilItHasTakenEffect(t *testing.T) {
	e := newSlow()
	s := e.server()
	h := s.Faults().Add(Rule{Action: Freeze()})
	h.Release()
	answered := make(chan error, 1)
	go func() {
		_, err := s.Transport().RoundTrip(s3Put().request(t))
		answered <- err
	}()
	<-e.entered
	if n := h.Held(); n != 1 {
		t.Errorf("%d held while the released request is carried out, want 1", n)
	}
	close(e.release)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if n := h.Held(); n != 0 {
		t.Errorf("%d held after the answer", n)
	}
}

func TestHeaderValuesArriveWithoutSpaceAtTheirEnds(t *testing.T) {
	r := s3Put().request(t)
	r.Header["x-amz-meta-note"] = []string{"\tthree "}
	if got, want := arriving(r, 0).Header["X-Amz-Meta-Note"], []string{"two   spaces", "three"}; len(got) != 2 || !slices.Contains(got, want[0]) || !slices.Contains(got, want[1]) {
		t.Errorf("%q, want %q", got, want)
	}
	if sent := r.Header["X-Amz-Meta-Note"]; sent[0] != "  two   spaces " {
		t.Errorf("the client's own header became %q", sent)
	}
}

func TestRefusedBodiesAreCounted(t *testing.T) {
	s, _ := shell(Options{})
	r := dynamoPut().request(t)
	r.ContentLength = maxJSONBody + 1
	resp, err := s.Transport().RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	cost := s.Meter().Total()
	if resp.StatusCode != http.StatusRequestEntityTooLarge || cost.Requests != 1 || cost.Errors["RequestEntityTooLarge"] != 1 {
		t.Errorf("status %d, cost %+v; want one refused request", resp.StatusCode, cost)
	}
}

func TestTheMeterKeepsABoundedNumberOfNames(t *testing.T) {
	s, _ := shell(Options{})
	for i := range maxOps + 10 {
		reading := s.meter.begin(&tag{label: "l" + itoa(int64(i))})
		reading.end(&engine.Call{Op: "op" + itoa(int64(i))}, "", nil)
	}
	ops := s.Meter().Total().ByOp
	if len(ops) != maxOps+1 || ops[Others].Requests != 10 {
		t.Errorf("%d operations, %d requests of others; want %d and 10", len(ops), ops[Others].Requests, maxOps+1)
	}
}

func FuzzGlob(f *testing.F) {
	for _, c := range [][2]string{{"*", "a"}, {"a*b*c", "a/b/c"}, {"a?c", "aéc"}, {`a\*`, "a*"}, {`\`, `\`}, {"**?", ""}, {"", "x"}} {
		f.Add(c[0], c[1])
	}
	f.Fuzz(func(t *testing.T, pattern, s string) {
		got := glob(pattern, s)
		if want := pattern == "" || slowGlob(pattern, s); got != want {
			t.Errorf("glob(%q, %q) is %v, want %v", pattern, s, got, want)
		}
	})
}

// slowGlob is glob's definition, without its cleverness.
func slowGlob(pattern, s string) bool {
	if pattern == "" {
		return s == ""
	}
	switch c, rest := pattern[0], pattern[1:]; {
	case c == '*':
		return slowGlob(rest, s) || s != "" && slowGlob(pattern, s[1:])
	case s == "":
		return false
	case c == '?':
		n := 1
		for n < len(s) && s[n]&0xc0 == 0x80 {
			n++
		}
		return slowGlob(rest, s[n:])
	case c == '\\':
		return rest != "" && rest[0] == s[0] && slowGlob(rest[1:], s[1:])
	default:
		return c == s[0] && slowGlob(rest, s[1:])
	}
}
