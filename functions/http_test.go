package functions

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"drawbridge/core"
)

// TestRoutingVectors are the contract's vectors 141 to 147 and 152, with the
// answers of compat rules 1, 2 and 15.
func TestRoutingVectors(t *testing.T) {
	h := newTestHub(t)
	for _, c := range []struct {
		method, path string
		status       int
		code         core.Code
	}{
		{"POST", "/bridge/unknown-endpoint", 404, core.CodeUnknownEndpoint}, // 141
		{"POST", "/bridge/team/zzz", 404, core.CodeNotServed},               // 142
		{"POST", "/bridge/team-info", 404, core.CodeNotServed},
		{"POST", "/bridge/delegator/reply", 404, core.CodeNotServed},
		{"POST", "/synapse/register", 404, core.CodeNotServed},
		{"GET", "/mcp", 404, core.CodeNotServed},
		{"GET", "/dashboard", 404, core.CodeNotServed},
		{"GET", "/bridge/register", 405, core.CodeMethodNotAllowed}, // 143
		{"PUT", "/bridge/register", 405, core.CodeMethodNotAllowed},
		{"HEAD", "/bridge/status", 405, ""},
		{"DELETE", "/bridge/register", 404, core.CodeUnknownEndpoint}, // 144
		{"DELETE", "/bridge/status", 404, core.CodeUnknownEndpoint},
		{"GET", "/bridge/unknown", 405, core.CodeMethodNotAllowed},
		{"POST", "/bridge/agents", 404, core.CodeUnknownEndpoint},
		{"POST", "/openapi.json", 405, core.CodeMethodNotAllowed},
		{"GET", "/nonexistent", 404, core.CodeUnknownEndpoint}, // 152
		{"POST", "/bridgefoo", 404, core.CodeUnknownEndpoint},
		{"GET", "/bridgefoo", 405, core.CodeMethodNotAllowed}, // contract 2.1: whatever starts with /bridge
		{"GET", "/bridge", 405, core.CodeMethodNotAllowed},
		// What means another path to somebody must not mean it to the hub.
		{"POST", "/bridge/register/", 404, core.CodeUnknownEndpoint},
		{"POST", "/Bridge/register", 404, core.CodeUnknownEndpoint},
		{"POST", "//bridge/register", 404, core.CodeUnknownEndpoint},
		{"POST", "/bridge/regis%74er", 404, core.CodeUnknownEndpoint},
		{"POST", "/bridge%2Fregister", 404, core.CodeUnknownEndpoint},
		{"POST", "/bridge/x/../register", 404, core.CodeUnknownEndpoint},
		{"POST", "/bridge/./register", 404, core.CodeUnknownEndpoint},
		{"POST", "/bridge/%2e%2e/health", 404, core.CodeUnknownEndpoint},
		{"GET", "/health%00", 404, core.CodeUnknownEndpoint},
		{"GET", "/health/", 404, core.CodeUnknownEndpoint},
		{"GET", "", 404, core.CodeUnknownEndpoint},
		{"", "/bridge/register", 405, core.CodeMethodNotAllowed},
		{"BREW", "/bridge/register", 405, core.CodeMethodNotAllowed},
		{"post", "/bridge/register", 405, core.CodeMethodNotAllowed},
	} {
		a := h.send(c.method, c.path, "{}")
		if a.status != c.status || a.code() != string(c.code) {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, a.status, a.code(), c.status, c.code)
		}
		if a.status == 405 && a.headers["allow"] == "" {
			t.Errorf("%s %s: 405 without Allow", c.method, c.path)
		}
		if got := h.as("").send(c.method, c.path, "{}"); got.status != 401 {
			t.Errorf("%s %s without a token: %d, want 401", c.method, c.path, got.status)
		}
	}
	if a := h.send("GET", "/bridge/status/x", nil); a.headers["allow"] == "" {
		t.Error("405 of an unknown path without Allow")
	}
	if got := h.send("PUT", "/bridge/status", nil).headers["allow"]; got != "GET, POST, OPTIONS" {
		t.Errorf("Allow is %q", got)
	}
	h.send("POST", "/bridge/send-input", fields{"session_id": "s", "text": "x"}).expect(t, 503, core.CodeConductorUnavailable) // 147
}

// TestBodyVectors are the contract's vectors 145 and 146 by compat rule 1.
func TestBodyVectors(t *testing.T) {
	h := newTestHub(t)
	before := h.items()
	for _, body := range []string{
		"{bad", "", " ", "null", " null ", "{\"agent_id\":\"a\",\"agent_id\":\"b\",\"cli\":\"other\"}", "{}{}", "\xff", `{"a":"` + "\x00" + `"}`,
		strings.Repeat("[", 1000) + strings.Repeat("]", 1000),
	} {
		h.send("POST", "/bridge/register", body).expect(t, 400, core.CodeInvalidJSON)
	}
	for _, body := range []string{"[]", `"abc"`, "5", "true", `[{"agent_id":"a","cli":"other"}]`} {
		h.send("POST", "/bridge/register", body).refusesField(t, core.CodeInvalidArgument, "agent_id")
	}
	h.send("POST", "/bridge/register", bodyOfLength(1<<20+1)).expect(t, 413, core.CodeBodyTooLarge)
	h.mustNotWrite(before, "bodies that are refused")
	h.send("POST", "/bridge/register", bodyOfLength(1<<20)).expect(t, 200, "")

	encoded := func(body string) events.APIGatewayV2HTTPRequest {
		event := h.event("POST", "/bridge/register", body, nil)
		event.IsBase64Encoded = true
		return event
	}
	for length, status := range map[int]int{1<<20 - 1: 200, 1 << 20: 200, 1<<20 + 1: 413, 1<<20 + 2: 413, 1 << 21: 413} {
		if a := h.sendEvent(encoded(base64.StdEncoding.EncodeToString([]byte(bodyOfLength(length))))); a.status != status {
			t.Errorf("%d bytes in base64: %d, want %d", length, a.status, status)
		}
	}
	for _, body := range []string{"", "====", "not base64!", "e30", "e30=\n="} {
		h.sendEvent(encoded(body)).expect(t, 400, core.CodeInvalidJSON)
	}
}

// TestSecurityVectors are the contract's vectors 149 to 152.
func TestSecurityVectors(t *testing.T) {
	h := newTestHub(t)
	before := h.items()
	body := fields{"agent_id": "a1", "cli": "codex"}
	for _, token := range []string{"", "wrong"} { // 149, 150
		a := h.as(token).send("POST", "/bridge/register", body).expect(t, 401, core.CodeUnauthorized)
		if got := a.headers["www-authenticate"]; got != `Bearer realm="drawbridge"` {
			t.Errorf("WWW-Authenticate is %q", got)
		}
	}
	h.mustNotWrite(before, "registers without a valid token")
	for _, path := range []string{"/", "/status", "/health", "/healthz"} { // 151
		for _, method := range []string{"GET", "POST", "DELETE"} {
			for _, token := range []string{"", "wrong", operatorToken} {
				if a := h.as(token).send(method, path, nil); a.status != 200 {
					t.Errorf("%s %s with token %q: %d", method, path, token, a.status)
				}
			}
		}
		a := h.as("").send("HEAD", path, nil)
		if a.status != 200 || a.text != "" || a.headers["content-type"] != "application/json" {
			t.Errorf("HEAD %s: %d %q", path, a.status, a.text)
		}
	}
	h.as("").send("GET", "/nonexistent", nil).expect(t, 401, core.CodeUnauthorized) // 152
	for header, status := range map[string]int{
		"Bearer " + operatorToken:                   200,
		"bearer " + operatorToken:                   200,
		"  BEARER   " + operatorToken + "  ":        200,
		operatorToken:                               401,
		"Bearer":                                    401,
		"Bearer ":                                   401,
		"Bearer" + operatorToken:                    401,
		"Basic " + operatorToken:                    401,
		"Bearer " + operatorToken + " x":            401,
		"Bearer " + operatorToken + ",Bearer x":     401,
		"Bearer " + operatorToken + "\x00":          401,
		"Bearer " + strings.Repeat("x", MaxToken+1): 401,
		"Bearer " + strings.ToUpper(operatorToken):  401,
		"Bearer " + core.TokenHash(operatorToken):   401,
	} {
		event := h.event("GET", "/bridge/status", nil, map[string]string{"authorization": header})
		if a := h.sendEvent(event); a.status != status {
			t.Errorf("Authorization %.40q: %d, want %d", header, a.status, status)
		}
	}
	for _, target := range []string{"?token=", "?access_token=", "?authorization=Bearer%20"} {
		h.as("").send("GET", "/bridge/status"+target+operatorToken, nil).expect(t, 401, core.CodeUnauthorized)
	}
	event := h.as("").event("GET", "/bridge/status", nil, nil)
	event.Cookies = []string{"authorization=Bearer " + operatorToken, "token=" + operatorToken}
	h.sendEvent(event).expect(t, 401, core.CodeUnauthorized)
}

// TestCORSVectors are the contract's vectors 154 to 157.
func TestCORSVectors(t *testing.T) {
	h := newTestHub(t).as("")
	for origin, allowed := range map[string]bool{
		"http://localhost:5173": true, "http://localhost": true, "https://127.0.0.1:8080": true, "http://[::1]:3": true,
		"HTTP://LOCALHOST:1": true, "https://dashboard.example.com": true,
		"": false, "http://attacker.com": false, "http://localhost.attacker.com": false, "http://attacker.com/http://localhost": false,
		"http://localhost:": false, "http://localhost:80x": false, "ftp://localhost": false, "null": false,
		"https://dashboard.example.com:8443": false, "http://dashboard.example.com": false, "http://localhost:1\n": false,
		"http://localhost\r\nx-evil: 1": false,
	} {
		headers := map[string]string{}
		if origin != "" {
			headers["origin"] = origin
		}
		for _, path := range []string{"/bridge/register", "/nonexistent", "/health", "/mcp"} {
			a := h.sendEvent(h.event("OPTIONS", path, nil, headers))
			want := map[bool]int{true: 204, false: 403}[allowed] // 154, 155
			if a.status != want || a.text != "" {
				t.Errorf("OPTIONS %s from %q: %d %q, want %d", path, origin, a.status, a.text, want)
			}
			if got := a.headers["access-control-allow-origin"]; got != map[bool]string{true: origin}[allowed] {
				t.Errorf("OPTIONS from %q allows %q", origin, got)
			}
		}
		for _, request := range []struct{ method, path string }{{"POST", "/bridge/register"}, {"GET", "/status"}} { // 156, 157
			a := h.sendEvent(h.event(request.method, request.path, "{}", headers))
			if got := a.headers["access-control-allow-origin"]; got != map[bool]string{true: origin}[allowed] {
				t.Errorf("%d from %q allows %q", a.status, origin, got)
			}
			if want := map[bool]string{true: "Origin"}[origin != ""]; a.headers["vary"] != want {
				t.Errorf("from %q Vary is %q", origin, a.headers["vary"])
			}
		}
	}
	for _, origin := range []string{"*", "example.com", "https://example.com/", "https://example.com/x", "://"} {
		if _, err := newCORSPolicy([]string{origin}); err == nil {
			t.Errorf("the setting takes the origin %q", origin)
		}
	}
	if got := SplitOrigins(" https://a.example , ,https://b.example,"); len(got) != 2 || got[0] != "https://a.example" || got[1] != "https://b.example" {
		t.Errorf("origins %q", got)
	}
}

func TestCorrelationIDIsEchoedOrMade(t *testing.T) {
	h := newTestHub(t)
	for _, c := range []struct {
		headers []string
		want    string
	}{
		{[]string{"x-correlation-id", "abc-1"}, "abc-1"},
		{[]string{"x-request-id", "req 2"}, "req 2"},
		{[]string{"x-correlation-id", "abc", "x-request-id", "req"}, "abc"},
		{[]string{"x-correlation-id", strings.Repeat("x", 128)}, strings.Repeat("x", 128)},
		{[]string{"x-correlation-id", strings.Repeat("x", 129), "x-request-id", "req"}, "req"},
		{[]string{"x-correlation-id", "a\r\nset-cookie: x=1"}, ""},
		{[]string{"x-correlation-id", "é"}, ""},
		{nil, ""},
	} {
		for _, target := range []string{"/health", "/bridge/status", "/nonexistent"} {
			got := h.send("GET", target, nil, c.headers...).headers["x-correlation-id"]
			if c.want == "" && !uuidPattern.MatchString(got) || c.want != "" && got != c.want {
				t.Errorf("%q gives %q, want %q", c.headers, got, c.want)
			}
		}
	}
}

// TestEventsOfAnyShapeAreAnswered hands every function events the gateway would
// not make.
func TestEventsOfAnyShapeAreAnswered(t *testing.T) {
	h := newTestHub(t)
	names := map[string]bool{DefaultName: true}
	for _, e := range Endpoints() {
		names[e.Name] = true
	}
	shapes := map[string]events.APIGatewayV2HTTPRequest{
		"zero":        {},
		"nil headers": {RawPath: "/health", RequestContext: events.APIGatewayV2HTTPRequestContext{HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{Method: "GET"}}},
	}
	misleading := h.event("POST", "/bridge/register", "{}", nil)
	misleading.RawPath = ""
	misleading.RouteKey = "POST /bridge/register"
	shapes["route key without a path"] = misleading
	upper := h.as("").event("POST", "/bridge/register", "{}", map[string]string{"Authorization": "Bearer " + operatorToken})
	shapes["header names not in lower case"] = upper
	huge := h.event("GET", "/"+strings.Repeat("x", 1<<16)+"?"+strings.Repeat("a=b&", 1<<14), nil, map[string]string{"x-correlation-id": strings.Repeat("z", 1<<16)})
	shapes["huge"] = huge
	controls := h.event("GET\n{\"level\":\"forged\"}", "/\r\n\x00", "\x00", map[string]string{"authorization": "Bearer \r\n", "\r\n": "\r\n", "origin": "\r\n"})
	controls.RequestContext.RequestID, controls.RequestContext.HTTP.SourceIP = "a\nb", "c\nd"
	shapes["control characters"] = controls
	h.identity() // is made at first use
	before := h.items()
	for name := range names {
		handler, ok := h.app.HTTP(name)
		if !ok {
			t.Fatalf("no function %s", name)
		}
		for shape, event := range shapes {
			response, err := handler(context.Background(), event)
			if err != nil || response.StatusCode < 200 || response.StatusCode == 500 {
				t.Errorf("%s with %s: %d, %v", name, shape, response.StatusCode, err)
			}
			h.lastLog() // each line is one JSON object
		}
	}
	h.mustNotWrite(before, "odd events")
	if strings.Contains(h.log.String(), "\n{\"level\":\"forged\"}") {
		t.Error("a client forged a log line")
	}
}

// TestAFunctionServesItsOwnEndpointsOnly: its role may do no more.
func TestAFunctionServesItsOwnEndpointsOnly(t *testing.T) {
	h := newTestHub(t)
	handler, _ := h.app.HTTP("heartbeat")
	response, err := handler(context.Background(), h.event("POST", "/bridge/register", fields{"agent_id": "a", "cli": "codex"}, nil))
	must(t, err)
	if response.StatusCode != 500 || strings.Contains(response.Body, "heartbeat") {
		t.Errorf("a misrouted request is answered %d %s", response.StatusCode, response.Body)
	}
	if got := h.lastLog()["error"]; !strings.Contains(got.(string), "function heartbeat got a request for POST /bridge/register") {
		t.Errorf("the log says %v", got)
	}
	if _, ok := h.app.HTTP("nonsense"); ok {
		t.Error("there is a function nonsense")
	}
	if _, ok := h.app.Sweep("register"); ok {
		t.Error("register is a sweep")
	}
}

// faultyTokens answers token lookups as told.
type faultyTokens struct {
	core.TokenStore
	read func(context.Context) (core.Token, bool, error)
}

func (f faultyTokens) ReadToken(ctx context.Context, _ string) (core.Token, bool, error) {
	return f.read(ctx)
}

func (h *testHub) withTokens(read func(context.Context) (core.Token, bool, error)) *testHub {
	h.t.Helper()
	other := *h
	app := *h.app
	app.auth = newAuthenticator(faultyTokens{h.store, read}, h.clock)
	other.app = &app
	return &other
}

func TestFaultsAreAnsweredWithoutTheirText(t *testing.T) {
	h := newTestHub(t)
	secret := errors.New("secret text of arn:aws:dynamodb")
	for name, read := range map[string]func(context.Context) (core.Token, bool, error){
		"error": func(context.Context) (core.Token, bool, error) { return core.Token{}, false, secret },
		"internal error": func(context.Context) (core.Token, bool, error) {
			return core.Token{}, false, core.Wrap(core.CodeInternal, secret.Error(), secret)
		},
		"unknown code": func(context.Context) (core.Token, bool, error) {
			return core.Token{}, false, core.Wrap("NO_SUCH_CODE", secret.Error(), secret)
		},
		"panic": func(context.Context) (core.Token, bool, error) { panic(secret) },
	} {
		a := h.withTokens(read).send("GET", "/bridge/status", nil).expect(t, 500, core.CodeInternal)
		if strings.Contains(a.text, "secret") {
			t.Errorf("%s: the answer tells %s", name, a.text)
		}
		if line := h.lastLog(); line["level"] != "ERROR" || !strings.Contains(line["error"].(string), "secret text") {
			t.Errorf("%s: the log line lacks the cause: %v", name, line)
		}
	}
	for code, status := range map[core.Code]int{core.CodeUnavailable: 503, core.CodeThrottled: 429, core.CodeOutcomeUnknown: 503} {
		a := h.withTokens(func(context.Context) (core.Token, bool, error) {
			return core.Token{}, false, &core.Error{Code: code, Message: "later", RetryAfter: 1500 * time.Millisecond}
		}).send("GET", "/bridge/status", nil).expect(t, status, code)
		if a.headers["retry-after"] != "2" || a.at("error.retryable") != true {
			t.Errorf("%s: Retry-After %q, %s", code, a.headers["retry-after"], a.text)
		}
	}
}

func TestTheDeadlineIsAnsweredBeforeItCutsOff(t *testing.T) {
	h := newTestHub(t)
	waiting := h.withTokens(func(ctx context.Context) (core.Token, bool, error) {
		<-ctx.Done()
		return core.Token{}, false, ctx.Err()
	})
	handler, _ := waiting.app.HTTP("status-get")
	ctx, cancel := context.WithTimeout(context.Background(), deadlineHeadroom+20*time.Millisecond)
	defer cancel()
	response, err := handler(ctx, h.event("GET", "/bridge/status", nil, nil))
	must(t, err)
	if ctx.Err() != nil {
		t.Error("the answer came after the deadline")
	}
	if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(response.Body, `"OUTCOME_UNKNOWN"`) || response.Headers["retry-after"] == "" {
		t.Errorf("answer %d %s", response.StatusCode, response.Body)
	}
}

func TestAppRefusesAnIncompleteConfiguration(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("an App was made of nothing")
	}
	h := newTestHub(t)
	_, err := New(Config{
		Hub: h.hub, Tokens: h.store, Clock: h.clock, IDs: core.NewIDs(h.clock, nil), Log: h.app.log, Version: "v",
		CORSOrigins: []string{"*"},
	})
	if err == nil {
		t.Error("an App was made with the CORS origin *")
	}
}
