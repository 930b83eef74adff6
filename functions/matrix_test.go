package functions

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"drawbridge/core"
)

// raw is JSON text in a body that is sent as it is.
type raw = json.RawMessage

// sampleAgent is the agent that sample requests are about.
const sampleAgent = "agent-1"

// optionalInSample are fields that a request needs although their rules do not
// say so: another field could stand for them.
var optionalInSample = map[string]bool{
	"worker_agent": true, "supervisor_agent": true, "agent_id": true, "from_agent": true, "topic": true, "message_ids": true,
	"role_key_wire": true, "state": true, "submitted_by": true,
}

// sampleValues are values of fields that take fewer than their rules say.
var sampleValues = map[string]any{
	"role_key_wire": sampleRole.Wire(),
	"trigger":       "manual",
	"state":         "electable",
	"charter_ack":   map[string]any{"role_key_wire": sampleRole.Wire(), "epoch": 1},
}

// sampleRole is the role that sample requests are about.
var sampleRole = core.RoleKey{ProjectID: "prj_AbCdEfGhIjKlMnOpQrStUv", Kind: core.RoleCTO}

// sample is a request the shape takes: its required fields, and those of
// optionalInSample.
func (s *shape) sample() map[string]any {
	body := map[string]any{}
	for _, f := range s.fields {
		if !f.rule.required && !optionalInSample[f.name] {
			continue
		}
		body[f.name] = f.rule.sample()
		if value, special := sampleValues[f.name]; special {
			body[f.name] = value
		}
		if f.name == "status" && len(f.rule.enum) == 0 {
			body[f.name] = "running" // one of the words that the core knows
		}
	}
	return body
}

func (r *rule) sample() any {
	switch {
	case len(r.enum) > 0:
		return r.enum[0]
	case r.kind == kindList && r.object != nil:
		return []any{r.object.sample()}
	case r.kind == kindList:
		return []any{r.each.sample()}
	case r.kind == kindBoolean:
		return true
	case r.kind == kindObject:
		return map[string]any{}
	case r.kind == kindInteger || r.kind == kindTruncated || r.kind == kindNumber:
		return 1
	default:
		return sampleAgent
	}
}

// refused lists values that break the rule, as JSON.
func (r *rule) refused() []raw {
	if r.kind == kindGeneration || r.kind == kindIdentity {
		return nil // compared, never refused for their type
	}
	values := []raw{raw(`{"a":1}`), raw(`[[]]`), raw(`true`), raw(`7`), raw(`""`), raw(`"\u0000"`), raw(`"a\nb"`), raw(`"\u009f"`),
		raw(`"\ud83d"`), raw(`1.5`), raw(`1e999`), raw(`-1e999`), raw(`"x"`), raw(`"` + strings.Repeat("x", 70_000) + `"`), raw(`null`)}
	if r.kind == kindList {
		values = append(values, raw("["+strings.TrimSuffix(strings.Repeat(`"x",`, r.maxItems()+1), ",")+"]"))
	}
	var refused []raw
	for _, value := range values {
		if r.mustRefuse(jsonText(value)) {
			refused = append(refused, value)
		}
	}
	return refused
}

// mustRefuse states, apart from the decoder, which values break which rules.
func (r *rule) mustRefuse(value jsonText) bool {
	kind := value.kind()
	if kind == jsonNull {
		return r.required && r.null == nil && r.kind != kindAny
	}
	switch r.kind {
	case kindID:
		return kind != jsonString || string(value) != `""` && !isCleanText(value) || string(value) == `""` && r.required
	case kindLine:
		return kind != jsonString || !isCleanText(value) || len(r.enum) > 0 || r.min != nil && string(value) == `""`
	case kindText:
		return kind != jsonString || string(value) == `"\ud83d"` || r.min != nil && string(value) == `""`
	case kindInteger:
		return kind != jsonNumber || string(value) != `7`
	case kindTruncated, kindNumber:
		return kind != jsonNumber
	case kindBoolean:
		return kind != jsonBoolean
	case kindObject:
		return kind != jsonObject
	case kindList:
		return kind != jsonArray || len(value) > 4
	default:
		return false
	}
}

func isCleanText(value jsonText) bool {
	return len(value) < maxID && !strings.Contains(string(value), `\`)
}

// A fieldCase is a request with one field replaced.
type fieldCase struct {
	field string // as the refusal names it
	rule  *rule
	with  func(value any) map[string]any
}

// fieldCases lists every field of the shape, nested ones included.
func (s *shape) fieldCases(prefix string, wrap func(map[string]any) map[string]any) []fieldCase {
	var cases []fieldCase
	for _, f := range s.fields {
		replace := func(value any) map[string]any {
			body := s.sample()
			if f.name == "agents" {
				delete(body, "agent_id") // the batch form
			}
			body[f.name] = value
			return wrap(body)
		}
		cases = append(cases, fieldCase{prefix + f.name, f.rule, replace})
		if f.rule.kind != kindList {
			continue
		}
		element := fmt.Sprintf("%s%s[0]", prefix, f.name)
		inList := func(value any) map[string]any { return replace([]any{value}) }
		if f.rule.object != nil {
			cases = append(cases, f.rule.object.fieldCases(element+".", func(o map[string]any) map[string]any { return inList(o) })...)
		} else {
			cases = append(cases, fieldCase{element, f.rule.each, inList})
		}
	}
	return cases
}

func unwrapped(body map[string]any) map[string]any { return body }

// request sends an endpoint a body, or its fields as query parameters.
func (h *testHub) request(e *Endpoint, body map[string]any) answer {
	h.t.Helper()
	method := e.Method
	if method == AnyMethod {
		method = http.MethodGet
	}
	if e.readsBody() {
		return h.send(method, e.Path, body)
	}
	query := url.Values{}
	for name, value := range body {
		if value != nil {
			query.Set(name, fmt.Sprint(value))
		}
	}
	return h.send(method, e.Path+"?"+query.Encode(), nil)
}

// TestBadInputIsRefusedByFieldAndWritesNothing goes through every field of
// every endpoint that reads a body.
func TestBadInputIsRefusedByFieldAndWritesNothing(t *testing.T) {
	h := newTestHub(t)
	h.online(sampleAgent, 1)
	before := h.items()
	tried := 0
	for _, e := range h.app.endpoints {
		if !e.readsBody() {
			continue
		}
		for _, c := range e.request.fieldCases("", unwrapped) {
			for _, value := range c.rule.refused() {
				tried++
				a := h.request(e, c.with(value))
				if got, _ := a.at("error.details.field").(string); a.status != 400 || got != c.field {
					t.Errorf("%s with %s = %.60s: %d %.200s", e.Path, c.field, value, a.status, a.text)
				}
			}
		}
	}
	h.mustNotWrite(before, "bad input")
	if tried < 200 {
		t.Errorf("only %d bad values were tried", tried)
	}
}

// TestValuesTheCoreJudgesAreRefusedByFieldToo covers the fields whose rules are
// the core's: nothing but 400 with the field, and nothing written.
func TestValuesTheCoreJudgesAreRefusedByFieldToo(t *testing.T) {
	h := newTestHub(t)
	h.online(sampleAgent, 1)
	before := h.items()
	long := raw(`"` + strings.Repeat("x", 20_000) + `"`)
	for field, values := range map[string][]raw{
		"project_id":              {raw(`""`), raw(`"prj_"`), raw(`"prj_AAAAAAAAAAAAAAAAAAAAA\n"`), raw(`"\u0000"`), long, raw(`"프로젝트"`)},
		"session_id":              {raw(`""`), raw(`"  "`), raw(`"a\u0000b"`), long},
		"host_id":                 {raw(`""`), raw(`"hst_"`), raw(`"hst_a\n"`), long, raw(`"hst_ㅎ"`)},
		"transport_locators_json": {raw(`5`), raw(`true`), raw(`{}`), raw(`"{"`), raw(`"{}"`), raw(`""`), raw(`[5]`), raw(`[{}]`), raw(`"[null]"`), long},
		"metadata":                {raw(`{"a":` + string(long) + `}`)},
		"timeout_sec":             {raw(`1e999`), raw(`-1e999`), raw(`-121`), raw(`1e10`)},
		"step_deadline_ms":        {raw(`1e15`)},
	} {
		for _, value := range values {
			body := map[string]any{"agent_id": sampleAgent, "cli": "codex", field: value}
			a := h.send("POST", "/bridge/register", body)
			if got, _ := a.at("error.details.field").(string); a.status != 400 || got != field {
				t.Errorf("%s = %.60s: %d %.200s", field, value, a.status, a.text)
			}
		}
	}
	topics := func(topic string, n int) raw {
		return raw("[" + strings.TrimSuffix(strings.Repeat(topic+",", n), ",") + "]")
	}
	for field, value := range map[string]raw{
		"topics[0]":    topics(`"a\u0000b"`, 1),
		"topics[1]":    raw(`["ok","` + strings.Repeat("x", 513) + `"]`),
		"capabilities": topics(`"`+strings.Repeat("x", 500)+`"`, 40),
	} {
		body := map[string]any{"agent_id": sampleAgent, "cli": "codex", strings.Split(field, "[")[0]: value}
		h.send("POST", "/bridge/register", body).refusesField(t, core.CodeInvalidArgument, field)
	}
	many := make([]string, 101)
	for i := range many {
		many[i] = fmt.Sprint("topic-", i)
	}
	h.send("POST", "/bridge/register", fields{"agent_id": sampleAgent, "cli": "codex", "topics": many}).refusesField(t, core.CodeInvalidArgument, "topics")
	h.mustNotWrite(before, "bad input")
}

// TestFencesOfOddTypesAreMismatches sends every fence of every endpoint values
// of other types: a refusal of the conflict kind, never a fault, nothing
// written.
func TestFencesOfOddTypesAreMismatches(t *testing.T) {
	h := newTestHub(t)
	h.online(sampleAgent, 1)
	before := h.items()
	for _, e := range h.app.endpoints {
		for _, c := range e.request.fieldCases("", unwrapped) {
			if c.rule.kind != kindGeneration && c.rule.kind != kindIdentity {
				continue
			}
			for _, value := range []raw{raw(`{}`), raw(`[]`), raw(`true`), raw(`2.5`), raw(`"x"`), raw(`""`), raw(`"\u0000"`), raw(`"\ud83d"`), raw(`1e999`), raw(`-1`)} {
				if e.Path == "/bridge/hitl/get" && c.rule.kind == kindGeneration {
					continue // whose generation, the request that is asked for says
				}
				body := c.with(value)
				if e.Path == "/bridge/status" && c.rule.kind == kindGeneration {
					body["status"] = "online" // a query does not read the generation
				}
				a := h.request(e, body)
				if strings.HasPrefix(c.field, "agents[") {
					if code := a.at("data.results").([]any)[0].(map[string]any)["error"].(map[string]any)["code"]; code != string(core.CodeStalePresenceOwner) {
						t.Errorf("%s with %s = %s: %s", e.Path, c.field, value, a.text)
					}
					continue
				}
				if a.status != e.conflictStatus() {
					t.Errorf("%s with %s = %s: %d %s", e.Path, c.field, value, a.status, a.text)
				}
			}
		}
	}
	h.mustNotWrite(before, "fences that match nothing")
}

// TestUnusualButValidIDsAreTaken registers and reads back ids at the edges.
func TestUnusualButValidIDsAreTaken(t *testing.T) {
	h := newTestHub(t)
	for _, id := range []string{"에이전트-✓", strings.Repeat("x", 512), "a#b", "a/b?c=d&e", " a ", "<script>", `"\`, "𝒳", "a\u2028b", "true", "null", "0", "%00", "../.."} {
		h.online(id, 1)
		a := h.send("GET", "/bridge/status?scope=agent&agent_id="+url.QueryEscape(id), nil).expect(t, 200, "")
		if a.at("data.agent.agent_id") != id {
			t.Errorf("%q reads back as %v", id, a.at("data.agent.agent_id"))
		}
	}
}

// TestBadQueriesAreRefusedByField goes through the query parameters of every
// endpoint.
func TestBadQueriesAreRefusedByField(t *testing.T) {
	h := newTestHub(t)
	h.identity()
	before := h.items()
	tried := 0
	for _, e := range h.app.endpoints {
		if e.readsBody() {
			continue
		}
		for _, f := range e.request.fields {
			for _, value := range []string{"%00", "a%0Ab", "%C2%9F", "%FF", strings.Repeat("x", 5000), "x&" + f.name + "=y"} {
				tried++
				a := h.send("GET", e.Path+"?"+f.name+"="+value, nil)
				if got, _ := a.at("error.details.field").(string); a.status != 400 || got != f.name {
					t.Errorf("%s with %s = %.40s: %d %s", e.Path, f.name, value, a.status, a.text)
				}
			}
		}
	}
	h.mustNotWrite(before, "bad queries")
	if tried < 30 {
		t.Errorf("only %d bad values were tried", tried)
	}
}

// A credential is what a request shows, and what each endpoint answers to it.
type credential struct {
	name   string
	header string // of Authorization
	// wants gives the code of the refusal, "" where the token lets the caller in.
	wants func(e *Endpoint, acts bool) core.Code
}

// credentials makes a token of every kind.
func (h *testHub) credentials() []credential {
	now := core.InstantOf(h.clock.Now())
	always := func(code core.Code) func(*Endpoint, bool) core.Code {
		return func(*Endpoint, bool) core.Code { return code }
	}
	forbiddenIf := func(wrong func(e *Endpoint, acts bool) bool) func(*Endpoint, bool) core.Code {
		return func(e *Endpoint, acts bool) core.Code {
			if wrong(e, acts) {
				return core.CodeForbidden
			}
			return ""
		}
	}
	overRead := func(e *Endpoint, _ bool) bool { return e.Scope != core.ScopeRead }
	overAgent := func(e *Endpoint, _ bool) bool { return e.Scope == core.ScopeOperator }
	actsOnly := func(_ *Endpoint, acts bool) bool { return acts }
	all := []core.Scope{core.ScopeOperator}
	list := []credential{
		{"no token", "", always(core.CodeUnauthorized)},
		{"a scheme alone", "Bearer", always(core.CodeUnauthorized)},
		{"another scheme", "Basic " + operatorToken, always(core.CodeUnauthorized)},
		{"no scheme", operatorToken, always(core.CodeUnauthorized)},
		{"two tokens", "Bearer " + operatorToken + " x", always(core.CodeUnauthorized)},
		{"two headers", "Bearer " + operatorToken + ",Bearer " + operatorToken, always(core.CodeUnauthorized)},
		{"a control character", "Bearer " + operatorToken + "\x00", always(core.CodeUnauthorized)},
		{"too long a token", "Bearer " + strings.Repeat("x", MaxToken+1), always(core.CodeUnauthorized)},
		{"the hash of a token", "Bearer " + core.TokenHash(operatorToken), always(core.CodeUnauthorized)},
		{"a wrong token", "Bearer nobodys-token", always(core.CodeUnauthorized)},
	}
	for _, made := range []struct {
		name  string
		token core.Token
		wants func(*Endpoint, bool) core.Code
	}{
		{"expired", core.Token{Scopes: all, ExpiresAt: now}, always(core.CodeUnauthorized)},
		{"revoked", core.Token{Scopes: all, RevokedAt: now}, always(core.CodeUnauthorized)},
		{"without a scope", core.Token{}, always(core.CodeForbidden)},
		{"with scopes that do not exist", core.Token{Scopes: []core.Scope{"root", ScopePublic}}, always(core.CodeForbidden)},
		{"to read", core.Token{Scopes: []core.Scope{core.ScopeRead}}, forbiddenIf(overRead)},
		{"of an agent", core.Token{Scopes: []core.Scope{core.ScopeAgent}}, forbiddenIf(overAgent)},
		{"with two scopes", core.Token{Scopes: []core.Scope{core.ScopeRead, core.ScopeAgent}}, forbiddenIf(overAgent)},
		{"bound to the agent", core.Token{Scopes: all, AgentIDs: []string{"agent-0", sampleAgent}}, always("")},
		{"bound to another agent", core.Token{Scopes: all, AgentIDs: []string{"agent-2"}}, forbiddenIf(actsOnly)},
		{"of an operator", core.Token{Scopes: all}, always("")},
	} {
		secret := "token-" + strings.ReplaceAll(made.name, " ", "-")
		h.createToken(secret, made.token)
		list = append(list, credential{"a token " + made.name, "Bearer " + secret, made.wants})
	}
	return list
}

// changes counts the requests so far that could have changed something.
func (h *testHub) changes() int {
	total := 0
	for op, cost := range h.aws.Meter().Total().ByOp {
		switch op {
		case "GetItem", "BatchGetItem", "Query", "Scan", "DescribeTable", "GetObject", "HeadObject", "ListObjectsV2", "HeadBucket":
		default:
			total += cost.Requests
		}
	}
	return total
}

// TestEveryEndpointIsClosedToWhoMayNotUseIt goes through every endpoint with
// every kind of credential: status, code and envelope are right, and a refused
// request has changed nothing and tells nothing of the agent it names.
func TestEveryEndpointIsClosedToWhoMayNotUseIt(t *testing.T) {
	h := newTestHub(t)
	h.online(sampleAgent, 1)
	credentials := h.credentials()
	for _, e := range h.app.endpoints {
		if e.Scope == ScopePublic {
			continue
		}
		body := e.request.sample()
		if e.Path == "/bridge/status" && e.readsBody() {
			body["status"] = "online" // a report acts, a query does not
		}
		acts := actsFor(t, e, body)
		for _, c := range credentials {
			before := h.changes()
			a := h.requestAs(c.header, e, body)
			what := fmt.Sprintf("%s %s with %s", e.Method, e.Path, c.name)
			want := c.wants(e, acts)
			if want == "" {
				if a.status == 401 || a.status == 403 || a.status == 500 {
					t.Errorf("%s: %d %s", what, a.status, a.text)
				}
				continue
			}
			if status := statusOfKind[want.Entry().Kind]; a.status != status || a.code() != string(want) {
				t.Errorf("%s: %d %s, want %d %s", what, a.status, a.code(), status, want)
			}
			if got := a.headers["www-authenticate"] != ""; got != (want == core.CodeUnauthorized) {
				t.Errorf("%s: WWW-Authenticate %t", what, got)
			}
			if h.changes() != before {
				t.Errorf("%s: a request that could change something was made", what)
			}
			if other := h.requestAs(c.header, e, renamed(body)); other.text != a.text {
				t.Errorf("%s: an agent that exists is refused by %s, one that does not by %s", what, a.text, other.text)
			}
		}
	}
}

// requestAs sends an endpoint a request with an Authorization header as it is.
func (h *testHub) requestAs(header string, e *Endpoint, body map[string]any) answer {
	h.t.Helper()
	sender := h.as("")
	sender.authorization = header
	return sender.request(e, body)
}

// renamed is the request about an agent that does not exist.
func renamed(body map[string]any) map[string]any {
	other := map[string]any{}
	for name, value := range body {
		if value == sampleAgent {
			value = "agent-9"
		}
		other[name] = value
	}
	return other
}

// openFields are those whose names sound like an agent and by which nobody acts
// as one, with why: everywhere, or by the method or the path of an endpoint.
var openFields = map[string]string{
	"to":                       "the recipient: anybody may be written to",
	"to_agent":                 "the recipient",
	"agent_id GET":             "reads are open to every token",
	"agent":                    "the kind of program whose transcript it is, no id",
	"agents":                   "a list whose elements act, or a filter by kind of program",
	"agents[0]":                "a kind of program",
	"requested_by":             "a label that is told as it was given and decides nothing",
	"successor":                "who gets the role after the holder, who acts",
	"holder_agent_id":          "what an operator sets",
	"previous_holder_agent_id": "what an operator sets",
	"holder_lease_expires_ms":  "a time",
	"from_ms":                  "a time",

	"supervisor_agent /bridge/assign/status": "a filter",
	"worker_agent /bridge/assign/status":     "a filter",
	"worker_agent /bridge/assign/async":      "who gets the job",
	"agent_id /bridge/roles/fence-check":     "a read",
	"from /bridge/queue/claim":               "a position",
}

// open tells whether a field is one of openFields, and marks it as met.
func open(met map[string]bool, name string, e *Endpoint) bool {
	for _, key := range []string{name, name + " " + e.Method, name + " " + e.Path} {
		if openFields[key] != "" {
			met[key] = true
			return true
		}
	}
	return false
}

var soundsLikeAnAgent = regexp.MustCompile(`agent|from|^to$|_to$|owner|by$|supervisor|worker|requester|successor|sender|holder|principal`)

// TestEveryFieldThatNamesAnAgentIsHeldAgainstTheToken finds the fields by which
// one agent could act as another, and tries each with a token of another agent.
func TestEveryFieldThatNamesAnAgentIsHeldAgainstTheToken(t *testing.T) {
	h := newTestHub(t)
	h.online(sampleAgent, 1)
	h.createToken("bound-token", core.Token{Scopes: []core.Scope{core.ScopeOperator}, AgentIDs: []string{sampleAgent}})
	bound, tried, met := h.as("bound-token"), map[string]bool{}, map[string]bool{}
	for _, e := range h.app.endpoints {
		for _, c := range e.request.fieldCases("", unwrapped) {
			name := c.field[strings.LastIndexByte(c.field, '.')+1:]
			if !soundsLikeAnAgent.MatchString(name) || open(met, name, e) {
				continue
			}
			body := c.with("agent-2")
			if e.Path == "/bridge/status" {
				body["status"] = "online"
			}
			before := h.changes()
			a := bound.request(e, body)
			if got, _ := a.at("error.details.field").(string); a.code() != string(core.CodeForbidden) || got != c.field {
				t.Errorf("%s %s with %s of another agent: %d %s", e.Method, e.Path, c.field, a.status, a.text)
			}
			if h.changes() != before {
				t.Errorf("%s with %s of another agent changed something", e.Path, c.field)
			}
			tried[name] = true
		}
	}
	for name, why := range openFields {
		if !met[name] {
			t.Errorf("no endpoint has the open field %s (%s)", name, why)
		}
	}
	for _, name := range []string{"agent_id", "from", "from_agent", "supervisor_agent", "worker_agent", "requester_agent", "submitted_by", "owner"} {
		if !tried[name] {
			t.Errorf("no endpoint was tried by its field %s", name)
		}
	}
}

// TestABoundTokenActsForItsAgentsAlone covers what the fields alone do not say.
func TestABoundTokenActsForItsAgentsAlone(t *testing.T) {
	h := newTestHub(t)
	h.online(sampleAgent, 1)
	h.createToken("bound-token", core.Token{Scopes: []core.Scope{core.ScopeOperator}, AgentIDs: []string{"agent-0", sampleAgent}})
	h.createToken("foreign-token", core.Token{Scopes: []core.Scope{core.ScopeOperator}, AgentIDs: []string{"agent-2"}})
	batch := fields{"agents": []fields{{"agent_id": sampleAgent}, {"agent_id": "agent-2"}}}
	h.as("bound-token").send("POST", "/bridge/heartbeat", batch).expect(t, 403, core.CodeForbidden)
	a := h.as("foreign-token").send("POST", "/bridge/heartbeat", batch).expect(t, 403, core.CodeForbidden)
	if a.at("error.details.field") != "agents[0].agent_id" {
		t.Errorf("the refusal names %v", a.at("error.details.field"))
	}
	h.as("bound-token").send("POST", "/bridge/status", fields{"agent_id": " agent-2 ", "status": "online"}).expect(t, 403, core.CodeForbidden)
	h.as("bound-token").send("POST", "/bridge/status", fields{"agent_id": "agent-2", "scope": "agent"}).expect(t, 200, "")
	h.as("bound-token").send("POST", "/bridge/control", fields{"to_agent": sampleAgent, "command": "stop"}).expect(t, 403, core.CodeForbidden) // from "lead"
	for id, status := range map[string]int{sampleAgent: 200, "Agent-1": 403, "agent-1 ": 403, "agent\u2010" + "1": 403, "agent-1\u200b": 403, "\uff41gent-1": 403} {
		a := h.as("bound-token").send("POST", "/bridge/context", fields{"agent_id": id})
		if a.status != status {
			t.Errorf("as %+q: %d %s", id, a.status, a.text)
		}
	}
}

// actsFor reports whether a request acts for the sample agent.
func actsFor(t *testing.T, e *Endpoint, body map[string]any) bool {
	t.Helper()
	encoded, err := json.Marshal(body)
	must(t, err)
	request := reflect.New(e.request.typ).Elem()
	must(t, e.request.decode(jsonText(encoded), "", request))
	acts, ok := request.Interface().(actor)
	if !ok {
		return false
	}
	for _, agent := range acts.actingAgents() {
		if agent.id != sampleAgent {
			t.Errorf("%s acts for %q", e.Path, agent.id)
		}
	}
	return true
}
