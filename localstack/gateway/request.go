package gateway

import (
	"encoding/base64"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
)

func supported(method string) bool {
	return slices.Contains([]string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut,
		http.MethodPatch, http.MethodDelete, http.MethodOptions,
	}, method)
}

// rawPath is the path as the client wrote it, still percent-encoded.
func rawPath(r *http.Request) (string, bool) {
	path := r.URL.EscapedPath()
	if path == "" {
		path = "/" // an absolute URI without a path
	}
	return path, strings.HasPrefix(path, "/")
}

// headSize is the request line and the headers as HTTP/1.1 sends them.
func headSize(r *http.Request) int {
	size := len(r.Method) + len(r.RequestURI) + len(r.Proto) + len("  \r\n") +
		len("Host: \r\n") + len(r.Host)
	for name, values := range r.Header {
		for _, v := range values {
			size += len(name) + len(v) + len(": \r\n")
		}
	}
	return size
}

func (g *Gateway) event(r *http.Request, path, routeKey string, body []byte) events.APIGatewayV2HTTPRequest {
	now := g.now().UTC()
	address, port := splitHost(r)
	event := events.APIGatewayV2HTTPRequest{
		Version:               "2.0",
		RouteKey:              routeKey,
		RawPath:               path,
		RawQueryString:        r.URL.RawQuery,
		Cookies:               cookies(r.Header),
		Headers:               headers(r, address, port, len(body)),
		QueryStringParameters: query(r.URL.RawQuery),
		RequestContext: events.APIGatewayV2HTTPRequestContext{
			RouteKey:     routeKey,
			AccountID:    g.stack.Account,
			Stage:        "$default",
			RequestID:    g.requestID(),
			APIID:        "local",
			DomainName:   r.Host,
			DomainPrefix: "local",
			Time:         now.Format("02/Jan/2006:15:04:05 -0700"),
			TimeEpoch:    now.UnixMilli(),
			HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{
				Method:    r.Method,
				Path:      path,
				Protocol:  r.Proto,
				SourceIP:  address,
				UserAgent: strings.ToValidUTF8(r.UserAgent(), "\uFFFD"),
			},
		},
	}
	event.Body, event.IsBase64Encoded = encodeBody(r.Header, body)
	return event
}

func splitHost(r *http.Request) (address, port string) {
	address, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		address = r.RemoteAddr
	}
	_, port, err = net.SplitHostPort(r.Host)
	if err != nil {
		port = "80"
	}
	return address, port
}

// hopByHop headers belong to one connection; the gateway keeps them.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// headers are lower-cased; repeated ones are joined by commas. Cookies travel in
// a field of their own.
func headers(r *http.Request, address, port string, length int) map[string]string {
	out := make(map[string]string, len(r.Header)+5)
	for name, values := range r.Header {
		if name == "Cookie" || slices.Contains(hopByHop, name) {
			continue
		}
		// Lambda's event is JSON, which has no other bytes than UTF-8.
		out[strings.ToLower(name)] = strings.ToValidUTF8(strings.Join(values, ","), "\uFFFD")
	}
	out["host"] = r.Host
	if length > 0 || out["content-length"] != "" {
		out["content-length"] = strconv.Itoa(length)
	}
	forwarded := address
	if before := out["x-forwarded-for"]; before != "" {
		forwarded = before + ", " + address
	}
	out["x-forwarded-for"] = forwarded
	out["x-forwarded-port"] = port
	out["x-forwarded-proto"] = "http"
	return out
}

func cookies(h http.Header) []string {
	var out []string
	for _, line := range h.Values("Cookie") {
		for _, c := range strings.Split(line, ";") {
			if c = strings.TrimSpace(c); c != "" {
				out = append(out, strings.ToValidUTF8(c, "\uFFFD"))
			}
		}
	}
	return out
}

// query decodes the query string; repeated parameters are joined by commas. A
// part that cannot be decoded is left out here and stays in the raw string.
func query(raw string) map[string]string {
	values, _ := url.ParseQuery(raw) // gives the parts it could decode
	if len(values) == 0 {
		return nil
	}
	out := make(map[string]string, len(values))
	for name, v := range values {
		out[strings.ToValidUTF8(name, "\uFFFD")] = strings.ToValidUTF8(strings.Join(v, ","), "\uFFFD")
	}
	return out
}

// encodeBody passes text through and everything else as base64. A form is no text
// to API Gateway, and neither is a body without a type or a compressed one. Text
// that is not UTF-8 could not travel in the event's JSON.
func encodeBody(h http.Header, body []byte) (text string, encoded bool) {
	if len(body) == 0 {
		return "", false
	}
	if h.Get("Content-Encoding") == "" && isText(h.Get("Content-Type")) && utf8.Valid(body) {
		return string(body), false
	}
	return base64.StdEncoding.EncodeToString(body), true
}

func isText(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	return strings.HasPrefix(kind, "text/") ||
		slices.Contains([]string{"application/json", "application/javascript", "application/xml"}, kind)
}
