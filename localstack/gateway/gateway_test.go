package gateway

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"drawbridge/localstack/template"
)

func declared() *template.Template {
	route := func(method, path, handler string) template.Route {
		return template.Route{Method: method, Path: path, Handler: handler, Timeout: 30 * time.Second}
	}
	function := func(handler string, routes ...template.Route) template.Function {
		return template.Function{LogicalID: handler, Handler: handler, Timeout: 28 * time.Second, Routes: routes}
	}
	return &template.Template{
		Stack: template.Local(),
		Functions: []template.Function{
			function("thing", route("POST", "/bridge/thing", "thing")),
			function("any", route("ANY", "/any", "any"), route("GET", "/any", "any")),
			function("default", route("", "", "default")),
		},
	}
}

// serve answers with a gateway whose functions are all the same one.
func serve(t *testing.T, h Handler) *httptest.Server {
	t.Helper()
	g, err := New(declared(), func(string) (Handler, bool) { return h, true }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(g)
	server.Config = g.Server()
	server.Start()
	t.Cleanup(server.Close)
	return server
}

// raw sends bytes and reads one answer, so that a test decides every byte.
func raw(t *testing.T, server *httptest.Server, request string) (*http.Response, string) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// seen sends a request and returns the event that the function got.
func seen(t *testing.T, request string) events.APIGatewayV2HTTPRequest {
	t.Helper()
	var got *events.APIGatewayV2HTTPRequest
	server := serve(t, func(_ context.Context, e events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		got = &e
		return events.APIGatewayV2HTTPResponse{StatusCode: http.StatusNoContent}, nil
	})
	resp, body := raw(t, server, request)
	if got == nil {
		t.Fatalf("no function was invoked: %s %s", resp.Status, body)
	}
	return *got
}

func TestTheEventHasTheFormOfPayload2(t *testing.T) {
	got := seen(t, "POST /bridge/thing?a=1&a=2&b=x%20y HTTP/1.1\r\nHost: hub.test:27888\r\n"+
		"Content-Type: application/json\r\nX-Thing: one\r\nX-THING: two\r\nCookie: a=b; c=d\r\nCookie: e=f\r\n"+
		"User-Agent: test\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
	context := got.RequestContext
	if context.RequestID == "" || context.Time == "" || context.TimeEpoch == 0 {
		t.Errorf("the context lacks its id or time: %+v", context)
	}
	got.RequestContext.RequestID, got.RequestContext.Time, got.RequestContext.TimeEpoch = "", "", 0
	want := events.APIGatewayV2HTTPRequest{
		Version:        "2.0",
		RouteKey:       "POST /bridge/thing",
		RawPath:        "/bridge/thing",
		RawQueryString: "a=1&a=2&b=x%20y",
		Cookies:        []string{"a=b", "c=d", "e=f"},
		Headers: map[string]string{
			"host": "hub.test:27888", "content-type": "application/json", "content-length": "2",
			"x-thing": "one,two", "user-agent": "test",
			"x-forwarded-for": "127.0.0.1", "x-forwarded-port": "27888", "x-forwarded-proto": "http",
		},
		QueryStringParameters: map[string]string{"a": "1,2", "b": "x y"},
		Body:                  "{}",
		RequestContext: events.APIGatewayV2HTTPRequestContext{
			RouteKey: "POST /bridge/thing", AccountID: "000000000000", Stage: "$default", APIID: "local",
			DomainName: "hub.test:27888", DomainPrefix: "local",
			HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{
				Method: "POST", Path: "/bridge/thing", Protocol: "HTTP/1.1", SourceIP: "127.0.0.1", UserAgent: "test",
			},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestOnlyTextBodiesAreNotBase64(t *testing.T) {
	for _, c := range []struct {
		name, header, body string
		encoded            bool
	}{
		{"JSON", "Content-Type: application/json", "{}", false},
		{"JSON with a charset", "Content-Type: application/json; charset=utf-8", "{}", false},
		{"text", "Content-Type: text/plain", "x", false},
		{"a form, as curl -d sends it", "Content-Type: application/x-www-form-urlencoded", "{}", true},
		{"no type", "X: y", "{}", true},
		{"a type that is none", "Content-Type: ;;", "{}", true},
		{"compressed", "Content-Type: application/json\r\nContent-Encoding: gzip", "{}", true},
		{"JSON that is not UTF-8", "Content-Type: application/json", "\xff", true},
		{"empty", "X: y", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := seen(t, fmt.Sprintf("POST /bridge/thing HTTP/1.1\r\nHost: h\r\n%s\r\nContent-Length: %d\r\n\r\n%s", c.header, len(c.body), c.body))
			body := e.Body
			if e.IsBase64Encoded {
				decoded, err := base64.StdEncoding.DecodeString(body)
				if err != nil {
					t.Fatal(err)
				}
				body = string(decoded)
			}
			if e.IsBase64Encoded != c.encoded || body != c.body {
				t.Errorf("base64 %v, body %q", e.IsBase64Encoded, body)
			}
		})
	}
}

func TestRoutesAreMatchedLiterally(t *testing.T) {
	for request, want := range map[string]string{
		"POST /bridge/thing":         "POST /bridge/thing",
		"GET /bridge/thing":          "$default",
		"POST /bridge/thing/":        "$default",
		"POST /Bridge/thing":         "$default",
		"POST /bridge/%74hing":       "$default",
		"POST /bridge%2Fthing":       "$default",
		"POST /x/../bridge/thing":    "$default",
		"POST //bridge/thing":        "$default",
		"GET /any":                   "GET /any",
		"HEAD /any":                  "ANY /any",
		"DELETE /any":                "ANY /any",
		"OPTIONS /bridge/thing":      "$default",
		"GET http://other.test":      "$default",
		"GET http://other.test/any?": "GET /any",
	} {
		t.Run(request, func(t *testing.T) {
			e := seen(t, request+" HTTP/1.1\r\nHost: h\r\n\r\n")
			if e.RouteKey != want {
				t.Errorf("routed to %s, want %s", e.RouteKey, want)
			}
		})
	}
}

func TestThePathStaysEncodedAndBadQueriesStayRaw(t *testing.T) {
	e := seen(t, "GET /a%2Fb%20c?ok=1&bad=%zz HTTP/1.1\r\nHost: h\r\n\r\n")
	if e.RawPath != "/a%2Fb%20c" || e.RawQueryString != "ok=1&bad=%zz" {
		t.Errorf("path %q, query %q", e.RawPath, e.RawQueryString)
	}
	if !reflect.DeepEqual(e.QueryStringParameters, map[string]string{"ok": "1"}) {
		t.Errorf("parameters %v", e.QueryStringParameters)
	}
}

func TestLimitsAreTheGateways(t *testing.T) {
	invoked := false
	server := serve(t, func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		invoked = true
		return events.APIGatewayV2HTTPResponse{StatusCode: 200}, nil
	})
	post := func(size int) string {
		return fmt.Sprintf("POST /bridge/thing HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s",
			size, strings.Repeat("x", size))
	}
	get := func(size int) string {
		const rest = "GET /any HTTP/1.1\r\nHost: h\r\nX: \r\n"
		return "GET /any HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", size-len(rest)) + "\r\n\r\n"
	}
	for _, c := range []struct {
		name, request string
		status        int
	}{
		{"a head of 10,240 bytes", get(10_240), 200},
		{"a head of 10,241 bytes", get(10_241), 431},
		{"a body below the payload limit", post(5 << 20), 200},
		{"a body over the payload limit of a function", post(6 << 20), 413},
		{"a body over the limit of the gateway", post(10<<20 + 1), 413},
		{"a method that API Gateway does not know", "BREW /any HTTP/1.1\r\nHost: h\r\n\r\n", 400},
		{"no path", "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			invoked = false
			resp, body := raw(t, server, c.request)
			if resp.StatusCode != c.status || invoked != (c.status == 200) {
				t.Errorf("status %d, want %d; invoked: %v", resp.StatusCode, c.status, invoked)
			}
			if c.status != 200 && !strings.HasPrefix(body, `{"message":`) {
				t.Errorf("body %q", body)
			}
		})
	}
}

func TestTheAnswerBecomesAResponse(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer events.APIGatewayV2HTTPResponse
		status int
		body   string
		header http.Header
	}{
		{"plain", events.APIGatewayV2HTTPResponse{StatusCode: 418, Body: "x", Headers: map[string]string{"content-type": "a/b", "x-y": "z"}},
			418, "x", http.Header{"Content-Type": {"a/b"}, "X-Y": {"z"}}},
		{"a missing status is a success", events.APIGatewayV2HTTPResponse{Body: "x"}, 200, "x", nil},
		{"base64", events.APIGatewayV2HTTPResponse{StatusCode: 200, Body: "/wA=", IsBase64Encoded: true}, 200, "\xff\x00", nil},
		{"cookies", events.APIGatewayV2HTTPResponse{StatusCode: 200, Cookies: []string{"a=b", "c=d"}},
			200, "", http.Header{"Set-Cookie": {"a=b", "c=d"}}},
		{"headers of the connection are the gateway's", events.APIGatewayV2HTTPResponse{StatusCode: 200, Body: "xy",
			Headers: map[string]string{"Content-Length": "1", "Transfer-Encoding": "chunked"}}, 200, "xy", http.Header{"Content-Length": {"2"}}},
		{"no content", events.APIGatewayV2HTTPResponse{StatusCode: 204}, 204, "", nil},
		{"base64 that is none", events.APIGatewayV2HTTPResponse{StatusCode: 200, Body: "!", IsBase64Encoded: true}, 500, `{"message":"Internal Server Error"}`, nil},
		{"a status that is none", events.APIGatewayV2HTTPResponse{StatusCode: 42}, 500, `{"message":"Internal Server Error"}`, nil},
		{"an answer over the payload limit", events.APIGatewayV2HTTPResponse{Body: strings.Repeat("x", 6<<20+1)}, 500, `{"message":"Internal Server Error"}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := serve(t, func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
				return c.answer, nil
			})
			resp, body := raw(t, server, "GET /any HTTP/1.1\r\nHost: h\r\n\r\n")
			if resp.StatusCode != c.status || body != c.body {
				t.Errorf("%d %q, want %d %q", resp.StatusCode, body, c.status, c.body)
			}
			for name, want := range c.header {
				if got := resp.Header.Values(name); !reflect.DeepEqual(got, want) {
					t.Errorf("header %s: %q, want %q", name, got, want)
				}
			}
		})
	}
}

func TestHeadHasTheHeadersOfGetAndNoBody(t *testing.T) {
	server := serve(t, func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		return events.APIGatewayV2HTTPResponse{StatusCode: 200, Body: "four"}, nil
	})
	resp, body := raw(t, server, "HEAD /any HTTP/1.1\r\nHost: h\r\n\r\n")
	if body != "" || resp.ContentLength != 4 {
		t.Errorf("body %q, length %d", body, resp.ContentLength)
	}
}

func TestAFailingFunctionIsTheGatewaysError(t *testing.T) {
	for name, h := range map[string]Handler{
		"an error": func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
			return events.APIGatewayV2HTTPResponse{}, errors.New("secret")
		},
		"a panic": func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
			panic("secret")
		},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := raw(t, serve(t, h), "GET /any HTTP/1.1\r\nHost: h\r\n\r\n")
			if resp.StatusCode != 500 || body != `{"message":"Internal Server Error"}` {
				t.Errorf("%d %q", resp.StatusCode, body)
			}
		})
	}
}

func TestAFunctionThatHangsIsCutByTheShorterTimeout(t *testing.T) {
	hang := func(ctx context.Context, _ events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		<-ctx.Done()
		select {} // it does not even heed its deadline
	}
	for _, c := range []struct {
		name              string
		function, gateway time.Duration
		status            int
	}{
		{"the function's own", 20 * time.Millisecond, time.Hour, 500},
		{"the gateway's", time.Hour, 20 * time.Millisecond, 503},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := declared()
			d.Functions[0].Timeout, d.Functions[0].Routes[0].Timeout = c.function, c.gateway
			g, err := New(d, func(string) (Handler, bool) { return hang, true }, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			g.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/bridge/thing", nil))
			if w.Code != c.status {
				t.Errorf("status %d, want %d", w.Code, c.status)
			}
		})
	}
}

func TestAnInvocationOutlivesItsClientAndKnowsItsRequest(t *testing.T) {
	done := make(chan error, 1)
	g, err := New(declared(), func(string) (Handler, bool) {
		return func(ctx context.Context, _ events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
			if lc, ok := lambdacontext.FromContext(ctx); !ok || lc.AwsRequestID == "" {
				done <- errors.New("the invocation has no request id")
			} else if _, ok := ctx.Deadline(); !ok {
				done <- errors.New("the invocation has no deadline")
			} else {
				done <- ctx.Err()
			}
			return events.APIGatewayV2HTTPResponse{StatusCode: 200}, nil
		}, true
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	g.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/bridge/thing", nil).WithContext(gone))
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestARouteWithoutAFunctionIsAnError(t *testing.T) {
	_, err := New(declared(), func(name string) (Handler, bool) { return nil, name != "thing" }, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), `POST /bridge/thing of thing: there is no function "thing"`) {
		t.Errorf("got %v", err)
	}
}

func FuzzEvent(f *testing.F) {
	f.Add("POST", "/bridge/thing?a=b", "Content-Type: application/json\r\n", []byte("{}"))
	f.Add("GET", "/%zz?%", "Cookie: ;;\r\nX: \xff\r\n", []byte{0xff})
	f.Add("OPTIONS", "*", "", []byte(nil))
	g, err := New(declared(), func(string) (Handler, bool) {
		return func(_ context.Context, e events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
			return events.APIGatewayV2HTTPResponse{StatusCode: 200, Body: e.Body, IsBase64Encoded: e.IsBase64Encoded}, nil
		}, true
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method, target, headers string, body []byte) {
		head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n%s\r\n", method, target, len(body), headers)
		r, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader(head), strings.NewReader(string(body)))))
		if err != nil {
			return // no server would hand it to a handler
		}
		sent, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(sent)))
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		if w.Code == 200 && r.Method != http.MethodHead && w.Body.String() != string(sent) {
			t.Fatalf("the body %q came back as %q", sent, w.Body)
		}
	})
}
