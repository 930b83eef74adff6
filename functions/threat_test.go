package functions

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"drawbridge/core"
	"drawbridge/localstack/gateway"
	"drawbridge/localstack/template"
)

// The threats of docs/security.md, each with the answer it gets.

// front is the hub behind the local gateway, on a socket.
func (h *testHub) front() *httptest.Server {
	h.t.Helper()
	declared, err := template.Load("../template.yaml", template.Local())
	must(h.t, err)
	g, err := gateway.New(declared, func(name string) (gateway.Handler, bool) {
		handler, ok := h.app.HTTP(name)
		return gateway.Handler(handler), ok
	}, NewLog(h.log, "DEBUG"))
	must(h.t, err)
	server := httptest.NewUnstartedServer(nil)
	server.Config = g.Server()
	server.Start()
	h.t.Cleanup(server.Close)
	return server
}

// rawAnswer is an answer to bytes on a socket.
type rawAnswer struct {
	status int
	header http.Header
	body   string
}

// sendRaw sends bytes as they are and reads the first answer.
func sendRaw(t *testing.T, server *httptest.Server, text string) rawAnswer {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	must(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, text)
	must(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return rawAnswer{resp.StatusCode, resp.Header, string(body)}
}

const bearer = "Authorization: Bearer " + operatorToken + "\r\n"

func TestPathTricksReachNoOtherEndpoint(t *testing.T) {
	h := newTestHub(t)
	h.identity()
	server := h.front()
	for _, c := range []struct {
		target    string
		with, out int // with the token, and without
	}{
		{"/bridge/status", 200, 401},
		{"http://localhost/bridge/status", 200, 401}, // the absolute form names the same path
		{"//bridge/status", 404, 401},
		{"/bridge//status", 405, 401},
		{"/bridge/./status", 405, 401},
		{"/./bridge/status", 404, 401},
		{"/health/../bridge/status", 404, 401},
		{"/bridge/%2e/status", 405, 401},
		{"/bridge%2fstatus", 405, 401},
		{"/bridge/%73tatus", 405, 401},
		{"/bridge/status/", 405, 401},
		{"/bridge/status;x=1", 405, 401},
		{"/bridge/status%00", 405, 401},
		{"/bridge/status%0d%0aX-Evil:%201", 405, 401},
		{"/bridge\\status", 405, 401},
		{"/BRIDGE/status", 404, 401},
		{"/bridge/statu\xc5\xbf", 405, 401}, // ſ is s to who folds case
		{"/health/", 404, 401},
		{"/health%2f..%2fbridge%2fstatus", 404, 401},
		{"/health", 200, 200},
		{"/health?/bridge/status", 200, 200},
	} {
		for head, want := range map[string]int{bearer: c.with, "": c.out} {
			a := sendRaw(t, server, "GET "+c.target+" HTTP/1.1\r\nHost: localhost\r\n"+head+"\r\n")
			if a.status != want || a.header.Get("X-Correlation-Id") == "" || a.header.Get("X-Evil") != "" {
				t.Errorf("%q with %q: %d, want %d; %v", c.target, head, a.status, want, a.header)
			}
		}
	}
}

func TestWhatAConnectionCarriesIsReadInOneWayOnly(t *testing.T) {
	h := newTestHub(t)
	h.identity()
	server := h.front()
	const post = "POST /bridge/register HTTP/1.1\r\nHost: localhost\r\n" + bearer
	for _, c := range []struct {
		name, request string
		status        int
	}{
		{"no Host", "GET /health HTTP/1.1\r\n\r\n", 400},
		{"two Hosts", "GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400},
		{"a rebound Host", "GET /health HTTP/1.1\r\nHost: evil.com\r\n\r\n", 403},
		{"a rebound Host in the target", "GET http://evil.com/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 403},
		{"two lengths", post + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400},
		{"a length with a sign", post + "Content-Length: +2\r\n\r\n{}", 400},
		{"another encoding", post + "Transfer-Encoding: gzip\r\n\r\n{}", 501},
		{"two encodings", post + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 501},
		{"a chunk that is none", post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", 400},
		// The length is not looked at beside chunks: the body is what they say.
		{"length and chunks", post + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n1e\r\n{\"agent_id\":\"a\",\"cli\":\"codex\"}\r\n0\r\n\r\n", 200},
		{"a space before the colon", "GET /bridge/status HTTP/1.1\r\nHost: localhost\r\nAuthorization : Bearer " + operatorToken + "\r\n\r\n", 400},
		{"a NUL in a header", "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Correlation-Id: a\x00b\r\n\r\n", 400},
		{"a bare CR in a header", "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Correlation-Id: a\rSet-Cookie: x\r\n\r\n", 400},
		{"a head over 10 KB", "GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 11_000) + "\r\n\r\n", 431},
		{"two tokens", "GET /bridge/status HTTP/1.1\r\nHost: localhost\r\n" + bearer + bearer + "\r\n", 401},
		{"a right token and a wrong one", "GET /bridge/status HTTP/1.1\r\nHost: localhost\r\n" + bearer + "Authorization: Bearer x\r\n\r\n", 401},
		{"a folded header", "GET /bridge/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer\r\n " + operatorToken + "\r\n\r\n", 200}, // one value still
		{"a method in a header", "POST /bridge/status HTTP/1.1\r\nHost: localhost\r\n" + bearer + "X-HTTP-Method-Override: GET\r\nX-Method-Override: GET\r\nContent-Length: 0\r\n\r\n", 400},
		{"a method in the query", "POST /bridge/status?_method=GET HTTP/1.1\r\nHost: localhost\r\n" + bearer + "Content-Length: 0\r\n\r\n", 400},
		{"another path in a header", "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Original-Url: /bridge/status\r\nX-Rewrite-Url: /bridge/status\r\n\r\n", 200},
		{"a forwarded host", "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-Host: evil.com\r\nForwarded: host=evil.com\r\n\r\n", 200},
	} {
		a := sendRaw(t, server, c.request)
		if a.status != c.status || a.header.Get("Set-Cookie") != "" || strings.Contains(a.body, "evil") {
			t.Errorf("%s: %d %s %v, want %d", c.name, a.status, a.body, a.header, c.status)
		}
	}
}

func TestATokenInTheWrongPlaceIsNeitherTakenNorToldNorLogged(t *testing.T) {
	h := newTestHub(t)
	const secret = "a-secret-of-forty-three-characters-and-more"
	h.createToken(secret, core.Token{Scopes: []core.Scope{core.ScopeOperator}})
	out := h.as("")
	for _, name := range []string{"token", "access_token", "authorization", "api_key", "key"} {
		out.send("GET", "/bridge/status?"+name+"="+secret, nil).expect(t, 401, core.CodeUnauthorized)
		out.send("POST", "/bridge/status", fields{name: secret, "scope": "hub"}).expect(t, 401, core.CodeUnauthorized)
		out.send("GET", "/bridge/status", nil, "x-"+name, secret, "proxy-authorization", "Bearer "+secret).expect(t, 401, core.CodeUnauthorized)
	}
	for _, path := range []string{"/bridge/" + secret, "/" + secret, "/bridge/status/" + secret} {
		out.send("GET", path, nil).expect(t, 401, core.CodeUnauthorized)
		if a := h.send("GET", path, nil); strings.Contains(a.text, secret) {
			t.Errorf("%s is told %s", path, a.text)
		}
	}
	// What is refused is not repeated.
	for field, body := range map[string]fields{
		"agent_id": {"agent_id": secret + "\x00", "cli": "codex"}, "cli": {"agent_id": "a", "cli": secret}, "topics[0]": {"agent_id": "a", "cli": "codex", "topics": []any{secret + "\x00x"}},
	} {
		if a := h.register(body); a.status != 400 || strings.Contains(a.text, secret) {
			t.Errorf("%s: %d %s", field, a.status, a.text)
		}
	}
	h.send("POST", "/bridge/register", `{"agent_id":"`+secret).expect(t, 400, core.CodeInvalidJSON)
	if strings.Contains(h.log.String(), secret) || strings.Contains(h.log.String(), core.TokenHash(secret)) {
		t.Error("the log holds the token, or its hash")
	}
	for key, item := range h.items() {
		if strings.Contains(key+item, secret) {
			t.Errorf("the table holds the token in %s", key)
		}
	}
}

func TestOddJSONIsRefusedWholeOrKeptAsItIs(t *testing.T) {
	h := newTestHub(t)
	h.online(sampleAgent, 1)
	before := h.items()
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	inPayload := func(payload string) string {
		return `{"from":"agent-1","to":"agent-1","topic":"t","payload":` + payload + `}`
	}
	for name, body := range map[string]string{
		"nested 10,000 deep":        inPayload(nested(10_000)),
		"nested 129 deep":           inPayload(nested(129)),
		"a key twice":               `{"from":"agent-1","from":"agent-2","to":"agent-1","topic":"t"}`,
		"a key twice by escape":     `{"from":"agent-1","\u0066rom":"agent-2","to":"agent-1","topic":"t"}`,
		"a key twice deep inside":   inPayload(`{"a":[{"x":1,"x":2}]}`),
		"invalid UTF-8":             inPayload("\"\xff\""),
		"an overlong encoding":      inPayload("\"\xc0\xaf\""),
		"a surrogate as UTF-8":      inPayload("\"\xed\xa0\x80\""),
		"a byte order mark":         "\ufeff" + inPayload("1"),
		"data after the value":      inPayload("1") + "{}",
		"a NUL after the value":     inPayload("1") + "\x00",
		"a comment":                 inPayload("1/*x*/"),
		"a trailing comma":          inPayload("[1,]"),
		"single quotes":             inPayload(`'x'`),
		"NaN":                       inPayload("NaN"),
		"Infinity":                  inPayload("-Infinity"),
		"a number in hex":           inPayload("0x10"),
		"a leading zero":            inPayload("01"),
		"a raw newline in a text":   inPayload("\"a\nb\""),
		"an unknown escape":         inPayload(`"\x41"`),
		"UTF-16":                    "\xff\xfe{\x00}\x00",
		"a form":                    "from=agent-1&to=agent-1",
		"half a surrogate as a key": inPayload(`{"\ud800":1}`),
	} {
		if a := h.send("POST", "/bridge/publish", body); a.status != 400 || a.code() != string(core.CodeInvalidJSON) {
			t.Errorf("%s: %d %s", name, a.status, a.text)
		}
	}
	h.send("POST", "/bridge/publish", fields{"from": sampleAgent, "to": sampleAgent, "topic": "t", "payload": strings.Repeat("x", 1<<20)}).expect(t, 413, core.CodeBodyTooLarge)
	for field, body := range map[string]string{
		"from":     `{"from":"\ud800","to":"agent-1","topic":"t"}`,
		"ttl_ms":   `{"from":"agent-1","to":"agent-1","topic":"t","ttl_ms":1e999}`,
		"priority": `{"from":"agent-1","to":"agent-1","topic":"t","priority":5.5}`,
		"topic":    `{"from":"agent-1","to":"agent-1","topic":["t"]}`,
	} {
		h.send("POST", "/bridge/publish", body).refusesField(t, core.CodeInvalidArgument, field)
	}
	h.mustNotWrite(before, "odd JSON")
	for _, payload := range []string{
		`{"__proto__":{"admin":true},"constructor":{"prototype":{}},"toString":1,"$where":"1","":0}`,
		`1e400`, `123456789012345678901234567890.000`, `-0`, `"\u0000\u202e\u001b[2J"`, `"<script>&"`, nested(120),
	} {
		h.send("POST", "/bridge/publish", inPayload(payload)).expect(t, 200, "")
		got := h.drained(fields{"agent_id": sampleAgent})
		if len(got) != 1 || got[0]["payload_json"] != payload {
			t.Errorf("the payload %s comes as %v", payload, got)
		}
	}
	for _, contentType := range []string{"text/plain", "application/xml", "multipart/form-data; boundary=x", "application/json; charset=utf-16", "\"", ""} {
		h.send("POST", "/bridge/heartbeat", `{"agent_id":"agent-1"}`, "content-type", contentType).expect(t, 200, "") // it is judged by what it is
	}
}

func TestIDsThatLookAlikeStayApart(t *testing.T) {
	h := newTestHub(t)
	ids := []string{
		"caf\u00e9", "cafe\u0301", "agent", "Agent", "\u0430gent", "\uff41gent", "agent\u200b", "agent\u00ad", "\u202eagent", "agent ", " agent", "agent\u00a0", "agent\ufeff",
		"ﬁ", "fi", "K", "\u212a", "ß", "ss", "a#b", "a#b#0", "a/b", "agent#agent", "topic:x", "role:x", "a\u2028", "\U0001F468\u200d\U0001F469", "\U0001F468\U0001F469",
	}
	for _, id := range ids {
		h.register(fields{"agent_id": id, "cli": "codex", "topics": []any{id}}).expect(t, 200, "")
	}
	for _, id := range ids {
		if a := h.agent(id); a.at("data.agent.agent_id") != id {
			t.Errorf("%+q reads back as %+q", id, a.at("data.agent.agent_id"))
		}
		if a := h.register(fields{"agent_id": id, "cli": "codex"}); a.number("data.presence_generation") != 2 {
			t.Errorf("%+q shares its generation: %s", id, a.text)
		}
	}
	for _, id := range []string{"\x00", "a\x1b[2J", "a\u0085", "a\x7f", "a\tb", "a\r\nb"} {
		h.register(fields{"agent_id": id, "cli": "codex"}).refusesField(t, core.CodeInvalidArgument, "agent_id")
	}
}

func TestTopicsHaveNoWildcards(t *testing.T) {
	h := newTestHub(t)
	h.register(fields{"agent_id": "all", "cli": "codex", "topics": []any{"*", "#", "builds.*", ".*"}}).expect(t, 200, "")
	h.register(fields{"agent_id": "one", "cli": "codex", "topics": []any{"builds.linux", "a#1"}}).expect(t, 200, "")
	for to, want := range map[string]int64{
		"topic:*": 1, "topic:builds.linux": 1, "topic:builds.*": 1, "topic:builds.%": 0, "topic:a": 0, "topic:a#1": 1, "topic:": -1, "topic:builds.linux,*": 0,
	} {
		a := h.publish(fields{"from": "one", "to": to, "topic": "t"})
		if want < 0 {
			if a.status != 400 {
				t.Errorf("%s: %d %s", to, a.status, a.text)
			}
			continue
		}
		if got := a.expect(t, 200, "").number("data.fanout_count"); got != want {
			t.Errorf("%s reaches %d, want %d", to, got, want)
		}
	}
}

// TestAnotherAgentsAuthorityIsRefused uses fences and receipts that are somebody
// else's, with a token that may act as anybody.
func TestAnotherAgentsAuthorityIsRefused(t *testing.T) {
	h := newTestHub(t)
	h.online("victim", 3)
	h.online("thief", 1)
	h.publish(fields{"from": "victim", "to": "victim", "topic": "t", "payload": "secret"}).expect(t, 200, "")
	leased := h.drained(fields{"agent_id": "victim", "auto_ack": false, "visibility_ms": 60_000})
	receipt, message := leased[0]["receipt"], leased[0]["id"]
	for _, c := range []struct {
		endpoint, field string
		id              any
	}{
		{"ack", "receipts", receipt}, {"nack", "receipts", receipt}, {"ack", "message_ids", message},
	} {
		a := h.send("POST", "/bridge/"+c.endpoint, fields{"agent_id": "thief", c.field: []any{c.id}}).expect(t, 200, "")
		if result := a.at("data.results").([]any)[0].(map[string]any); result["ok"] != false || result["code"] != string(core.CodeNotFound) {
			t.Errorf("%s by %s of another agent: %s", c.endpoint, c.field, a.text)
		}
	}
	// An agent whose id is the address of an inbox that is not its own.
	for _, id := range []string{"topic:role:cto", "topic:cto", "role:" + sampleRole.Wire(), "topic:role:" + sampleRole.Wire()} {
		h.register(fields{"agent_id": id, "cli": "codex"})
		h.publish(fields{"from": "victim", "to": "topic:role:" + sampleRole.Wire(), "topic": "t", "payload": "secret"})
		h.publish(fields{"from": "victim", "to": "topic:cto", "topic": "t", "payload": "secret"})
		a := h.send("POST", "/bridge/context", fields{"agent_id": id})
		if strings.Contains(a.text, "secret") {
			t.Errorf("the agent %q drains %s", id, a.text)
		}
	}
	for name, body := range map[string]fields{
		"heartbeat": {"agent_id": "victim", "presence_generation": 1}, "deregister": {"agent_id": "victim", "presence_generation": 1},
		"context": {"agent_id": "victim", "presence_generation": 1}, "publish": {"from": "victim", "to": "thief", "topic": "t", "presence_generation": 1},
	} {
		if a := h.send("POST", "/bridge/"+name, body); a.code() != string(core.CodeStalePresenceOwner) {
			t.Errorf("%s with the generation of another: %d %s", name, a.status, a.text)
		}
	}
	h.worked("enqueue", observed("x", 1))
	job := h.leased()
	for _, name := range []string{"renew", "release"} {
		h.queue(name, with(job, "lease_id", "another")).expect(t, 409, core.CodeQueueLeaseInvalid)
	}
}

func TestLogLinesCannotBeForged(t *testing.T) {
	h := newTestHub(t)
	h.identity()
	const forged = "x\n{\"level\":\"ERROR\",\"forged\":true}\r\n\x1b[31m\u2028"
	lines := strings.Count(h.log.String(), "\n")
	event := h.event("GET", "/bridge/status", nil, map[string]string{
		"x-correlation-id": forged, "x-request-id": forged, "user-agent": forged, "x-forwarded-for": forged, "idempotency-key": forged, "origin": forged,
	})
	event.RequestContext.RequestID, event.RequestContext.HTTP.SourceIP, event.RequestContext.HTTP.UserAgent = forged, forged, forged
	h.sendEvent(event).expect(t, 200, "")
	event.RequestContext.HTTP.Method = "GET" + forged
	h.sendEvent(event)
	event = h.event("POST", "/bridge/register"+forged, fields{"agent_id": forged, "cli": forged}, nil)
	h.sendEvent(event)
	logged := h.log.String()
	if got := strings.Count(logged, "\n") - lines; got != 3 {
		t.Errorf("3 requests wrote %d lines", got)
	}
	for line := range strings.Lines(logged) {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil || object["forged"] != nil || strings.ContainsAny(line, "\x1b\u2028") {
			t.Errorf("the line %q: %v", line, err)
		}
	}
}

func TestOriginTricksGetNoCORSHeaders(t *testing.T) {
	h := newTestHub(t).as("")
	for _, origin := range []string{
		"null", "http://localhost.evil.com", "http://127.0.0.1.evil.com", "http://evil.com#localhost", "http://localhost@evil.com", "http://evil.com?http://localhost",
		"http://localhost:80@evil.com", "http://localhost:1/x", "http://localhost,http://evil.com", "http://xlocalhost", "http://[::1].evil.com", "http://127.0.0.2",
		"https://dashboard.example.com.evil.com", "https://xdashboard.example.com", "file://", "*", "http://localhost\x00",
	} {
		a := h.send("OPTIONS", "/bridge/register", nil, "origin", origin)
		if a.status != 403 || a.headers["access-control-allow-origin"] != "" {
			t.Errorf("preflight from %q: %d %v", origin, a.status, a.headers)
		}
		if a := h.send("GET", "/health", nil, "origin", origin); a.headers["access-control-allow-origin"] != "" {
			t.Errorf("from %q: %v", origin, a.headers)
		}
	}
	if a := h.send("OPTIONS", "/bridge/register", nil, "origin", "http://localhost:1"); a.headers["access-control-allow-credentials"] != "" {
		t.Error("cookies are allowed")
	}
}

func TestWhatWouldBeALinkElsewhereIsNeverFollowed(t *testing.T) {
	h := newTestHub(t)
	asked := 0
	trap := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer trap.Close()
	h.register(fields{"agent_id": "a", "cli": "codex", "metadata": fields{"callback": trap.URL}}).expect(t, 200, "")
	h.send("POST", "/bridge/publish", fields{"from": "a", "to": trap.URL, "topic": trap.URL, "payload": fields{"url": trap.URL, "$ref": trap.URL}})
	h.send("POST", "/bridge/control", fields{"to_agent": "a", "command": trap.URL})
	h.queue("enqueue", with(observed("x", 1), "source_path", "/"+trap.URL))
	for _, ref := range []string{trap.URL, trap.URL + "/s.json#/x", "file:///etc/passwd", "urn:x", "//" + strings.TrimPrefix(trap.URL, "http://")} {
		for _, schema := range []fields{{"$ref": ref}, {"$schema": ref}, {"$id": trap.URL, "$ref": "x.json"}, {"$dynamicRef": ref}} {
			h.send("POST", "/bridge/hitl/request", fields{"requester_agent": "a", "kind": "text", "prompt": "p", "requested_schema": schema}).
				refusesField(t, core.CodeInvalidArgument, "requested_schema")
		}
	}
	if asked != 0 {
		t.Errorf("the hub asked %d times", asked)
	}
}

// TestASchemaCannotKeepTheHubBusy tries schemas and answers that together ask for
// more work than there is time. That a verdict comes at all is the test: each
// would take minutes or for ever.
func TestASchemaCannotKeepTheHubBusy(t *testing.T) {
	repeated := func(n int, one func(i int) any) []any {
		list := make([]any, n)
		for i := range list {
			list[i] = one(i)
		}
		return list
	}
	patterns := fields{}
	for i := range 700 {
		patterns[fmt.Sprintf(".*%d$", i)] = true
	}
	members := fields{}
	for i := range 6000 {
		members[fmt.Sprint("k", i)] = 1
	}
	numbers := repeated(3000, func(i int) any { return i })
	for name, c := range map[string]struct{ schema, value any }{
		"every definition leads twice to the next": {doubling(), 1},
		"a schema that leads back to itself":       {fields{"$ref": "#"}, 1},
		"one that leads back on every level":       {fields{"allOf": repeated(8, func(int) any { return fields{"properties": fields{"a": fields{"$ref": "#"}}} })}, nil},
		"a dynamic one":                            {fields{"$dynamicAnchor": "x", "properties": fields{"a": fields{"$dynamicRef": "#x"}}}, nil},
		"long patterns and a long text":            {fields{"allOf": repeated(40, func(i int) any { return fields{"pattern": fmt.Sprintf("(x{0,500}y%d)$", i)} })}, strings.Repeat("x", 60_000)},
		"patterns that fill the memory":            {fields{"allOf": repeated(600, func(int) any { return fields{"pattern": "x{1000}"} })}, ""},
		"many patterns and many members":           {fields{"patternProperties": patterns}, members},
		"many values and many elements":            {fields{"items": fields{"enum": numbers}}, append(numbers, numbers...)},
		"a huge number in the schema":              {raw(`{"maximum":1e100000000}`), 1},
		"a huge number in the answer":              {fields{"maximum": 3}, raw(`1e100000000`)},
		"a tiny number":                            {fields{"multipleOf": 3}, raw(`1e-100000000`)},
		"a number of many digits":                  {fields{"multipleOf": 3}, raw(strings.Repeat("9", 60_000))},
	} {
		schema, err := json.Marshal(c.schema)
		must(t, err)
		value, err := json.Marshal(c.value)
		must(t, err)
		if problem := (Schemas{}).CheckValue(schema, value); problem == "" || strings.HasPrefix(problem, "at ") {
			t.Errorf("%s: judged, %q", name, problem)
		}
	}
	form := raw(`{"type":"object","properties":{"name":{"type":"string","pattern":"^[a-z]{1,64}$"},"kind":{"enum":["a","b"]},"tags":{"$ref":"#/$defs/tags"}},"$defs":{"tags":{"type":"array","items":{"type":"string"}}}}`)
	answered := fmt.Sprintf(`{"name":"x","kind":"a","tags":[%s"z"]}`, strings.Repeat(`"tag",`, 2000))
	if problem := (Schemas{}).CheckValue(form, raw(answered)); problem != "" {
		t.Errorf("an ordinary form: %s", problem)
	}
}

func TestErrorTextsThatAreHardToReadAreLearnt(t *testing.T) {
	h := newTestHub(t)
	for _, text := range []string{
		strings.Repeat("a", 16_384), strings.Repeat("0x", 8192), strings.Repeat("/a", 8192), strings.Repeat("\"", 16_384), strings.Repeat("(", 16_384),
		strings.Repeat("1.", 8192), strings.Repeat("a-", 8192), strings.Repeat("\u00e9", 8192), strings.Repeat(" ", 16_383) + "x", strings.Repeat("2026-01-01T", 1400),
	} {
		h.learn(fields{"error_message": text, "solution": "s"}).expect(t, 200, "")
		h.lookup(fields{"error_message": text}).expect(t, 200, "")
	}
}

var queueKey = regexp.MustCompile(`^(jobs|open|done|source|state|payload)/[A-Za-z0-9._/-]+$`)

// TestNoCallersTextGetsIntoTheKeysOfTheBucket: nor can an id that is none reach
// another object.
func TestNoCallersTextGetsIntoTheKeysOfTheBucket(t *testing.T) {
	h := newTestHub(t)
	tricks := []string{"../../state/rollup", "..", "/x", "//", "a/../../b", "x\u0001", "\ufffe\uffff", "jobs/x", "x.json", "%2e%2e%2f", strings.Repeat("a", 64), strings.Repeat("A", 64), "\U0001F600"}
	for i, trick := range tricks {
		for _, field := range []string{"agent", "event", "session_id", "source_path"} {
			value := trick
			if field == "source_path" {
				value = "/" + trick
			}
			h.queue("enqueue", with(observed("x", i), field, value)) // taken or refused
		}
		h.queue("claim", fields{"owner": trick, "exclude": []any{trick}, "path_prefix": trick, "from": trick})
	}
	before := h.changes()
	for _, trick := range tricks {
		for endpoint, body := range map[string]fields{
			"renew": {"lease_id": "l"}, "release": {"lease_id": "l"}, "remove": {}, "retry": {},
		} {
			a := h.queue(endpoint, with(body, "id", trick))
			if a.status != 404 && a.status != 400 {
				t.Errorf("%s of %q: %d %s", endpoint, trick, a.status, a.text)
			}
		}
		if a := h.send("GET", "/bridge/queue/jobs?id="+url.QueryEscape(trick), nil); a.status != 404 && a.status != 400 {
			t.Errorf("job %q: %d %s", trick, a.status, a.text)
		}
	}
	if h.changes() != before {
		t.Error("an id that is none changed something")
	}
	pages := s3.NewListObjectsV2Paginator(bucketClient(h.aws.Config()), &s3.ListObjectsV2Input{Bucket: aws.String("payloads")})
	keys := 0
	for pages.HasMorePages() {
		page, err := pages.NextPage(context.Background())
		must(t, err)
		for _, object := range page.Contents {
			keys++
			if key := aws.ToString(object.Key); !queueKey.MatchString(key) || strings.Contains(key, "..") {
				t.Errorf("the bucket holds %q", key)
			}
		}
	}
	if keys == 0 {
		t.Error("nothing was enqueued")
	}
}

// forgedCursor is a cursor of a list for a position that the hub never gave out:
// the checksum is no secret.
func forgedCursor(kind, position string) string {
	sum := sha256.Sum256([]byte(kind + "\x00" + position))
	return base64.RawURLEncoding.EncodeToString(append(sum[:8], position...))
}

func TestAForgedCursorChoosesWhereAListStartsAndNothingElse(t *testing.T) {
	h := newTestHub(t)
	h.online(sampleAgent, 1)
	h.newJob(nil)
	h.send("POST", "/bridge/pipeline/init", fields{"team_name": "a"}).expect(t, 200, "")
	h.learn(fields{"error_message": "e", "solution": "s"}).expect(t, 200, "")
	taken := 0
	for _, list := range []struct{ path, kind string }{
		{"/bridge/agents", "agents\x00\x00"},
		{"/bridge/roles/status", "roles\x00"},
		{"/bridge/reflexion", "reflexion\x00"},
		{"/bridge/events?agent_id=" + sampleAgent, "events\x00\x00" + sampleAgent},
		{"/bridge/dead-letters", "dead-letters\x00\x00\x00{0 false}\x00{0 false}"},
		{"/bridge/pipeline/list", "pipelines"},
		{"/bridge/assign/status", "jobs\x00\x00\x00\x00\x00\x00\x00{0 false}"},
	} {
		for _, position := range []string{
			"a", "x\x00", "#", "-1", "9223372036854775808", "000000000000000", "\xff\xfe", "\x7f", strings.Repeat("x", 1025), strings.Repeat("x", 3000), "agent#1\x00agent",
		} {
			cursor := forgedCursor(list.kind, position)
			var a answer
			if strings.HasPrefix(list.path, "/bridge/pipeline") || strings.HasPrefix(list.path, "/bridge/assign") {
				a = h.send("POST", list.path, fields{"cursor": cursor})
			} else {
				sign := map[bool]string{true: "&", false: "?"}[strings.Contains(list.path, "?")]
				a = h.send("GET", list.path+sign+"cursor="+cursor, nil)
			}
			if a.status == 200 {
				taken++
			} else if a.status != 400 {
				t.Errorf("%s from %.20q: %d %s", list.path, position, a.status, a.text)
			}
		}
		if a := h.send("GET", list.path+map[bool]string{true: "&", false: "?"}[strings.Contains(list.path, "?")]+"cursor="+forgedCursor("another", "a"), nil); a.status == 200 {
			t.Errorf("%s takes the cursor of another list", list.path)
		}
	}
	for _, position := range []string{"a 1 b", "a 1 ", " 1 ", "a -1 b", "a 9223372036854775807 b", "a 1 topic:x", "a 1 " + strings.Repeat("x", 1000), "\x00 1 \x00", "a#1 1 b#m", sampleAgent + " 1 " + sampleAgent} {
		a := h.send("POST", "/bridge/dead-letters/redrive", fields{"dead_letter_ids": []any{forgedCursor("dead-letter", position)}}).expect(t, 200, "")
		if result := a.at("data.results").([]any)[0].(map[string]any); a.number("data.redriven") != 0 || result["code"] != string(core.CodeNotFound) {
			t.Errorf("the forged dead letter %.20q: %s", position, a.text)
		}
	}
	for _, text := range []string{"x", "..", "jobs/x", "open/", "\ufffe", strings.Repeat("~", 512), strings.Repeat("\U0001F600", 128), "%", "due_", "done/../jobs/"} {
		if a := h.queue("claim", fields{"owner": "w", "from": text}); a.status != 200 && a.status != 400 {
			t.Errorf("a claim from %.20q: %d %s", text, a.status, a.text)
		}
		for _, more := range []string{"", "&status=done", "&status=failed", "&status=ready"} {
			if a := h.send("GET", "/bridge/queue/jobs?cursor="+url.QueryEscape(text)+more, nil); a.status != 200 && a.status != 400 {
				t.Errorf("jobs from %.20q%s: %d %s", text, more, a.status, a.text)
			}
		}
		for _, receipt := range []string{text, text + "." + text + "@topic:role:" + text, text + ".x@topic:cto", "@", ".", "#"} {
			if a := h.send("POST", "/bridge/ack", fields{"agent_id": sampleAgent, "receipts": []any{receipt}}); a.status != 200 && a.status != 400 {
				t.Errorf("the receipt %.20q: %d %s", receipt, a.status, a.text)
			}
		}
	}
	if taken < 30 {
		t.Errorf("only %d forged cursors were taken for one of the list", taken)
	}
}

// A version that is expected may be any number, and is then not the role's.
func TestNoExpectedVersionIsAFaultOfTheHub(t *testing.T) {
	h := newTestHub(t)
	wire := sampleRole.Wire()
	h.send("POST", "/bridge/roles/reserve", fields{"role_key_wire": wire, "holder_agent_id": sampleAgent, "state": "electable"}).expect(t, 200, "")
	for _, n := range []json.Number{"-1", "-5", "-9223372036854775808", "9223372036854775807", "9007199254740993"} {
		for _, a := range []answer{
			h.send("POST", "/bridge/roles/reserve", fields{"role_key_wire": wire, "state": "electable", "expected_version": n}),
			h.send("POST", "/bridge/roles/cas", fields{"role_key_wire": wire, "expected": fields{"version": n, "epoch": n, "activation_seq": n, "activation_id": ""}, "patch": fields{"last_reason": "x"}}),
			h.send("POST", "/bridge/roles/state", fields{"role_key_wire": wire, "agent_id": sampleAgent, "epoch": n, "state": 1, "expected_state_version": n}),
			h.send("POST", "/bridge/roles/release", fields{"role_key_wire": wire, "agent_id": sampleAgent, "epoch": n}),
		} {
			if a.status < 400 || a.status >= 500 {
				t.Errorf("%s: %d %s", n, a.status, a.text)
			}
		}
	}
}

// TestNoTextIsAFaultOfTheHub puts texts that mean something to somebody into
// every field of every endpoint.
func TestNoTextIsAFaultOfTheHub(t *testing.T) {
	h := newTestHub(t)
	h.online(sampleAgent, 1)
	texts := []any{
		strings.Repeat("#", 512), "9223372036854775807",
	}
	if os.Getenv("DRAWBRIDGE_LONG") == "1" {
		texts = append(texts, "#", raw(`{"#":"$ref"}`), "\ufffe", -1, "a#b\u00a0", "../../x", "topic:", "topic:role:x", "role:x", strings.Repeat("\U0001F600", 128), "__proto__", "%00", "null", "$1", "(", "*", " ", "\u2028",
			"-1", "1e5", "0", true, 9007199254740993, raw(`1e300`), raw(`[[]]`), raw(`""`))
	}
	for _, e := range h.app.endpoints {
		for _, c := range e.request.fieldCases("", unwrapped) {
			if c.field == "wait_ms" || c.field == "await_response_ms" {
				continue // a number makes the test wait, and every text is refused
			}
			for _, text := range texts {
				if a := h.request(e, c.with(text)); a.status >= 500 && a.code() != string(core.CodeConductorUnavailable) && a.code() != string(core.CodeCredentialsNotSealed) {
					t.Errorf("%s %s with %s = %.40v: %d %s", e.Method, e.Path, c.field, text, a.status, a.text)
				}
			}
		}
	}
}
