package fakeaws

import (
	"net"
	"net/http"
	"strings"
	"testing"
)

// The default key is no secret, so a page could sign what it sends: it is refused
// by where it is from, before anything else of it is looked at.
func TestWebPagesAreNotServed(t *testing.T) {
	server, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	for _, c := range []struct {
		name, host, origin string
		page               bool
	}{
		{"a program", "", "", false},
		{"a program that calls it localhost", "localhost:4566", "", false},
		{"a bucket's own name", "bucket.localhost", "", false},
		{"a page of another origin", "", "https://evil.com", true},
		{"a page of this machine", "", "http://localhost:3000", true},
		{"a sandboxed page", "", "null", true},
		{"a rebound name", "evil.com", "", true},
		{"a rebound name that looks local", "127.0.0.1.evil.com:4566", "", true},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} {
			r, err := http.NewRequestWithContext(t.Context(), method, "http://"+listener.Addr().String()+"/bucket?delete", strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			r.Host = c.host
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
			before := server.Meter().Total().Requests
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			reached := server.Meter().Total().Requests > before
			if reached == c.page || c.page && (resp.StatusCode != http.StatusForbidden || resp.Header.Get("Access-Control-Allow-Origin") != "") {
				t.Errorf("%s, %s: %d, reached the services: %t", c.name, method, resp.StatusCode, reached)
			}
		}
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
