// Package hostcheck tells requests that a web page had a browser send to a
// server of this machine. Such a server trusts who can reach it; a page of
// anybody's can, through the browser of its reader: by asking across origins, or
// by giving its own name the address 127.0.0.1 (DNS rebinding), after which the
// browser takes the server for a part of the page.
package hostcheck

import (
	"net"
	"net/http"
	"slices"
	"strings"
)

// Rebound tells whether a request came to this machine's own address under a
// name that a stranger may own. Addresses, localhost and names that no public
// registry gives away (one label, .localhost, .internal, .test) are nobody's.
func Rebound(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.IP.IsLoopback() && !isPrivateName(hostOf(r.Host))
}

// CrossOrigin tells whether a page of another origin had the request sent, or any
// page that says where it is from. Programs send no Origin.
func CrossOrigin(r *http.Request) bool { return len(r.Header.Values("Origin")) > 0 }

func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return hostport
}

func isPrivateName(host string) bool {
	if net.ParseIP(strings.Trim(host, "[]")) != nil {
		return true
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	top := name[strings.LastIndexByte(name, '.')+1:]
	return top == name || slices.Contains([]string{"localhost", "internal", "test"}, top)
}
