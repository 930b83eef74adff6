package hostcheck

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// request is one for a host that came to an address of this machine.
func request(host, address string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Host = host
	return r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.ParseIP(address), Port: 80})))
}

func TestANameThatAStrangerMayOwnIsRebound(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1:27888": false, "127.0.0.1": false, "[::1]:27888": false, "[::1]": false, "192.168.1.7:1": false,
		"localhost": false, "LOCALHOST:27888": false, "localhost.": false, "bucket.localhost:4566": false, "hub:27888": false,
		"host.docker.internal:27888": false, "": false,
		"evil.com": true, "evil.com:27888": true, "127.0.0.1.evil.com": true, "localhost.evil.com:27888": true, "evil.com.": true,
		"localhost.evil.com.:1": true, "internal.evil.com": true, "evillocalhost.com": true, "127.0.0.1.nip.io:27888": true,
	} {
		for _, address := range []string{"127.0.0.1", "::1"} {
			if got := Rebound(request(host, address)); got != want {
				t.Errorf("Host %q at %s: %t", host, address, got)
			}
		}
		// Reached over the network, the name is the network's business.
		if Rebound(request(host, "192.168.1.7")) {
			t.Errorf("Host %q at another address is rebound", host)
		}
	}
	if Rebound(httptest.NewRequest(http.MethodGet, "http://evil.com/", nil)) {
		t.Error("a request that came over no connection is rebound")
	}
}

func TestARequestThatNamesItsOriginIsAPagesOne(t *testing.T) {
	for _, origin := range []string{"null", "", "http://localhost:1", "https://evil.com"} {
		r := request("localhost", "127.0.0.1")
		r.Header.Set("Origin", origin)
		if !CrossOrigin(r) {
			t.Errorf("Origin %q is none", origin)
		}
	}
	if CrossOrigin(request("localhost", "127.0.0.1")) {
		t.Error("a request without an origin has one")
	}
}
