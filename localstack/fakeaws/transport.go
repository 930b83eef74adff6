package fakeaws

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// endpoint of Config. No socket listens there: the name cannot be looked up.
const endpoint = "http://fakeaws.invalid"

// Config returns a configuration that makes SDK clients talk to the server in
// process, with the server's first key and region (us-east-1 where it takes
// any): dynamodb.NewFromConfig(cfg), s3.NewFromConfig(cfg, func(o *s3.Options)
// { o.UsePathStyle = true }).
func (s *Server) Config() aws.Config {
	region := s.options.Region
	if region == "" {
		region = defaultRegion
	}
	return aws.Config{
		Region:       region,
		Credentials:  credentials.NewStaticCredentialsProvider(s.options.AccessKey, s.options.SecretKey, ""),
		HTTPClient:   client{s.Transport()},
		BaseEndpoint: aws.String(endpoint),
	}
}

// client is the SDK's view of the transport. It does not follow redirects and
// has no timeout of its own, like the SDK's default client.
type client struct{ http.RoundTripper }

func (c client) Do(r *http.Request) (*http.Response, error) {
	resp, err := c.RoundTrip(r)
	if err != nil {
		return nil, &url.Error{Op: r.Method, URL: r.URL.String(), Err: err}
	}
	return resp, nil
}

// Transport returns a transport that hands requests to the server without a
// socket. It ends early with the context; what a request did by then stays
// done. A dropped answer is a reset connection.
func (s *Server) Transport() http.RoundTripper { return transport{s} }

type transport struct{ server *Server }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	ctx := r.Context()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := sendable(r.Header); err != nil {
		return nil, err
	}
	p := protocolOf(r)
	length := r.ContentLength
	if length == 0 && r.Body != nil && r.Body != http.NoBody {
		length = -1 // http.Request: on the client's side zero means unknown
	}
	body, refused := readBody(r.Body, length, p)
	if !t.server.enter() { // not before: a body may take for ever to come
		return nil, errClosed
	}
	defer t.server.underWay.Done()
	in := arriving(r, len(body))
	if refused != nil {
		rep := reply{Response: t.server.refuse(in, refused, transportTag(ctx, in))}
		return received(r, &rep)
	}
	rep, err := t.server.exchange(ctx, in, body, transportTag(ctx, in))
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return received(r, &rep)
}

func transportTag(ctx context.Context, r *http.Request) *tag {
	if t := tagOf(ctx); t != &noTag {
		return t
	}
	return headerTag(r)
}

// sendable refuses what net/http's transport refuses to send: in process such a
// header would arrive, and a test would pass that no socket lets through.
func sendable(h http.Header) error {
	for name, values := range h {
		if !isToken(name) {
			return fmt.Errorf("fakeaws: %q is no name of a header", name)
		}
		for _, value := range values {
			if strings.ContainsFunc(value, isControl) {
				return fmt.Errorf("fakeaws: the value of header %s holds a control character", name)
			}
		}
	}
	return nil
}

// isToken tells whether s is a token of RFC 9110.
func isToken(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == '\x7f' }

// arriving is the request as a server sees it: header names in their canonical
// form, values without the space around them. The transport must not change
// the client's own.
func arriving(r *http.Request, length int) *http.Request {
	in := new(http.Request)
	*in = *r
	in.Header = make(http.Header, len(r.Header)+2)
	for name, values := range r.Header {
		name = textproto.CanonicalMIMEHeaderKey(name)
		values = trimmed(values)
		if before := in.Header[name]; before != nil {
			values = append(slices.Clip(before), values...)
		}
		in.Header[name] = values
	}
	if in.Host == "" {
		in.Host = r.URL.Host
	}
	in.Body, in.GetBody, in.ContentLength = http.NoBody, nil, int64(length)
	return in
}

// trimmed returns values without space at their ends; the same slice where
// there is none.
func trimmed(values []string) []string {
	spaced := func(v string) bool { return v != textproto.TrimString(v) }
	if !slices.ContainsFunc(values, spaced) {
		return values
	}
	values = slices.Clone(values)
	for i, v := range values {
		values[i] = textproto.TrimString(v)
	}
	return values
}

// received is the answer as a client sees it.
func received(r *http.Request, rep *reply) (*http.Response, error) {
	if rep.fate == dropped || rep.fate == torn && len(rep.Body) == 0 {
		return nil, errReset
	}
	rep.Header["Date"] = []string{httpDate()}
	resp := &http.Response{
		Status: strconv.Itoa(rep.Status) + " " + http.StatusText(rep.Status), StatusCode: rep.Status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: rep.Header, ContentLength: int64(len(rep.Body)), Request: r,
	}
	switch {
	case r.Method == http.MethodHead || len(rep.Body) == 0:
		resp.Body = http.NoBody
		if n, err := strconv.ParseInt(rep.Header.Get("Content-Length"), 10, 64); err == nil {
			resp.ContentLength = n
		}
	case rep.fate == torn:
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(rep.Body[:len(rep.Body)/2]), resetReader{}))
	default:
		resp.Body = io.NopCloser(bytes.NewReader(rep.Body))
	}
	return resp, nil
}

// errReset is what a client sees of a connection that the peer reset.
var errReset = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}

type resetReader struct{}

func (resetReader) Read([]byte) (int, error) { return 0, errReset }

// httpDate is the Date header of now, formatted once a second.
func httpDate() string {
	now := time.Now()
	if d := lastDate.Load(); d != nil && d.second == now.Unix() {
		return d.text
	}
	d := &dateText{now.Unix(), now.UTC().Format(http.TimeFormat)}
	lastDate.Store(d)
	return d.text
}

type dateText struct {
	second int64
	text   string
}

var lastDate atomic.Pointer[dateText]
