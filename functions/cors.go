package functions

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// localOrigin matches the origins of pages served by the user's own machine,
// at any port: a local dashboard may always call the hub (contract 9.2).
var localOrigin = regexp.MustCompile(`(?i)^https?://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]+)?$`)

// A corsPolicy decides which browser origins may read the hub's answers. It
// only adds headers: the bearer token is what authorises a request.
type corsPolicy struct{ origins []string }

// newCORSPolicy takes the exact origins that are allowed besides localhost.
func newCORSPolicy(origins []string) (corsPolicy, error) {
	for _, origin := range origins {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || u.Scheme+"://"+u.Host != origin {
			return corsPolicy{}, fmt.Errorf("CORS origin %q is not of the form https://host or https://host:port", origin)
		}
	}
	return corsPolicy{origins: origins}, nil
}

func (p corsPolicy) allows(origin string) bool {
	return localOrigin.MatchString(origin) || slices.Contains(p.origins, origin)
}

// headers adds what a browser needs to know about the answer to a request from
// origin, error answers included.
func (p corsPolicy) headers(origin string, headers map[string]string) {
	if origin == "" {
		return
	}
	headers["vary"] = "Origin"
	if !p.allows(origin) {
		return
	}
	headers["access-control-allow-origin"] = origin
	headers["access-control-allow-methods"] = "GET, POST, DELETE, OPTIONS"
	headers["access-control-allow-headers"] = "Content-Type, Authorization, Idempotency-Key, X-Correlation-ID, X-Request-ID, mcp-session-id, Last-Event-ID"
	headers["access-control-expose-headers"] = "X-Correlation-ID, Retry-After"
}

// preflight answers OPTIONS, on any path and without a token.
func (p corsPolicy) preflight(origin string) reply {
	if origin == "" || !p.allows(origin) {
		return reply{status: http.StatusForbidden, code: "PREFLIGHT_REFUSED"}
	}
	return reply{status: http.StatusNoContent}
}

// SplitOrigins reads a list of origins separated by commas, as the setting
// DRAWBRIDGE_CORS_ORIGINS holds it.
func SplitOrigins(list string) []string {
	var origins []string
	for origin := range strings.SplitSeq(list, ",") {
		if origin = strings.TrimSpace(origin); origin != "" {
			origins = append(origins, origin)
		}
	}
	return origins
}
