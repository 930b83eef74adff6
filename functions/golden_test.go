package functions

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"drawbridge/core"
)

// A goldenCase is one line of testdata/golden/cases.jsonl.
type goldenCase struct {
	Name         string            `json:"name"`
	Method       string            `json:"method"`
	Path         string            `json:"path"`
	Headers      map[string]string `json:"headers"`
	Body         json.RawMessage   `json:"body"`
	BodyTemplate json.RawMessage   `json:"body_template"`
	Capture      map[string]string `json:"capture"`
	Status       int               `json:"status"`
	Response     json.RawMessage   `json:"response_norm"`
}

// A difference is how a case's answer differs on purpose; the README beside the
// cases has the rule for each.
type difference struct {
	status int
	code   core.Code
	rule   string
}

var goldenDifferences = map[string]difference{
	"auth-lowercase-scheme":             {200, "", "RFC 9110"},
	"body-malformed":                    {400, core.CodeInvalidJSON, "compat 1"},
	"body-empty":                        {400, core.CodeInvalidJSON, "compat 1"},
	"body-null":                         {400, core.CodeInvalidJSON, "compat 1"},
	"body-too-large":                    {413, core.CodeBodyTooLarge, "compat 1"},
	"register-bad-cli":                  {400, core.CodeInvalidArgument, "compat 1"},
	"register-timeout-string-word":      {400, core.CodeInvalidArgument, "compat 1"},
	"register-topics-string":            {400, core.CodeInvalidArgument, "compat 1"},
	"register-topics-string-partial":    {200, "", "compat 1"},
	"register-agent-number":             {400, core.CodeInvalidArgument, "compat 1"},
	"register-agent-object":             {400, core.CodeInvalidArgument, "compat 1"},
	"fence-heartbeat-bool-generation":   {404, core.CodeStalePresenceOwner, "compat 1"},
	"fence-heartbeat-object-generation": {404, core.CodeStalePresenceOwner, "compat 1"},
	"fence-status-query-stale-hub":      {409, core.CodeStaleHubInstance, "compat 3"},
	"fence-register-bad-project":        {400, core.CodeProjectIDInvalid, "compat 1"},
	"fence-register-locators-not-json":  {400, core.CodeTransportLocatorsJSONInvalid, "compat 1"},
	"direct-context-max-negative":       {200, "", "compat 1"},
	"direct-context-max-word":           {400, core.CodeInvalidArgument, "compat 1"},
	"direct-context-topics-string":      {400, core.CodeInvalidArgument, "compat 1"},
	"handoff-no-topic":                  {400, core.CodeInvalidArgument, "compat 1"},
	"handoff-no-to":                     {400, core.CodeInvalidArgument, "compat 1"},
	"bridge-ack-absent":                 {400, core.CodeInvalidArgument, "an endpoint beyond the reference"},
}

// goldenLength is the body's length of cases whose body was not kept.
var goldenLength = regexp.MustCompile(`^<(\d+) bytes: `)

// codeOfText is the code of each text the reference answers (compat rule 2).
func codeOfText(text string) core.Code {
	switch text {
	case "Unauthorized":
		return core.CodeUnauthorized
	case "Method Not Allowed":
		return core.CodeMethodNotAllowed
	case "Unknown bridge endpoint", "Not Found":
		return core.CodeUnknownEndpoint
	}
	return core.CodeInvalidArgument // "... 필수": a required field is missing
}

func TestGoldenCases(t *testing.T) {
	h := newTestHub(t)
	captured := map[string]any{}
	differing := map[string]bool{}
	for _, c := range readGoldenCases(t) {
		ok := t.Run(c.Name, func(t *testing.T) {
			h := *h
			h.t = t
			a := h.replay(c, captured)
			for name, path := range c.Capture {
				captured[name] = a.at(path)
			}
			if _, differs := goldenDifferences[c.Name]; differs {
				differing[c.Name] = true
			}
			c.compare(t, a, h.table)
		})
		if !ok && c.Capture != nil {
			t.Fatal("the cases that follow build on this one")
		}
	}
	if len(differing) != len(goldenDifferences) {
		t.Errorf("differences are declared for cases that are not there: %d of %d met", len(differing), len(goldenDifferences))
	}
}

func readGoldenCases(t *testing.T) []goldenCase {
	t.Helper()
	file, err := os.Open("testdata/golden/cases.jsonl")
	must(t, err)
	defer file.Close()
	var cases []goldenCase
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c goldenCase
		must(t, json.Unmarshal(lines.Bytes(), &c))
		cases = append(cases, c)
	}
	must(t, lines.Err())
	return cases
}

// replay sends the case as it was recorded.
func (h *testHub) replay(c goldenCase, captured map[string]any) answer {
	h.t.Helper()
	headers := map[string]string{}
	for name, value := range c.Headers {
		headers[strings.ToLower(name)] = strings.ReplaceAll(value, "<token>", operatorToken)
	}
	body := c.body(captured)
	if length := goldenLength.FindStringSubmatch(body); length != nil {
		n, err := strconv.Atoi(length[1])
		must(h.t, err)
		body = bodyOfLength(n)
	}
	return h.sendEvent(h.as("").event(c.Method, c.target(), body, headers))
}

// target is where the case is sent: the cases about bodies go to an endpoint
// this hub has.
func (c goldenCase) target() string {
	if strings.HasPrefix(c.Name, "body-") {
		return "/bridge/register"
	}
	return c.Path
}

func bodyOfLength(length int) string {
	start, end := `{"agent_id":"big","cli":"other","unknown":"`, `"}`
	return start + strings.Repeat("x", length-len(start)-len(end)) + end
}

// body is the text to send, captured values put in.
func (c goldenCase) body(captured map[string]any) string {
	template := c.BodyTemplate
	if template == nil {
		template = c.Body
	}
	var text string
	if json.Unmarshal(template, &text) != nil {
		text = string(template)
	}
	for name, value := range captured {
		text = strings.ReplaceAll(text, `"{{#`+name+`}}"`, fmt.Sprint(value))
		text = strings.ReplaceAll(text, `{{`+name+`}}`, fmt.Sprint(value))
	}
	return text
}

func (c goldenCase) compare(t *testing.T, a answer, table string) {
	t.Helper()
	if d, differs := goldenDifferences[c.Name]; differs {
		if a.status != d.status || a.code() != string(d.code) {
			t.Errorf("answer %d %q, want %d %q by %s: %s", a.status, a.code(), d.status, d.code, d.rule, a.text)
		}
		if c.Status == d.status && a.code() == "" {
			return // a different answer of the same status
		}
		if c.Status == d.status {
			t.Errorf("declared as a difference, but the recorded status is %d too", c.Status)
		}
		return
	}
	if a.status != c.Status {
		t.Fatalf("answer %d, recorded %d: %s", a.status, c.Status, a.text)
	}
	if want := c.code(t); a.code() != string(want) {
		t.Errorf("code %q, recorded %q: %s", a.code(), want, a.text)
	}
	var recorded struct {
		OK   any `json:"ok"`
		Data any `json:"data"`
	}
	if json.Unmarshal(c.Response, &recorded) != nil {
		return // the reference's plain text
	}
	if a.at("ok") != recorded.OK {
		t.Errorf("ok %v, recorded %v", a.at("ok"), recorded.OK)
	}
	if c.target() == c.Path {
		compareRecorded(t, "data", recorded.Data, a.at("data"), table)
	}
}

// code is the code the recorded answer stands for.
func (c goldenCase) code(t *testing.T) core.Code {
	t.Helper()
	var text string
	if json.Unmarshal(c.Response, &text) == nil {
		return codeOfText(text)
	}
	var recorded struct {
		Error any `json:"error"`
	}
	must(t, json.Unmarshal(c.Response, &recorded))
	switch e := recorded.Error.(type) {
	case nil:
		return ""
	case string:
		return codeOfText(e)
	default:
		code, _ := e.(map[string]any)["code"].(string)
		return core.Code(code)
	}
}

var (
	uuidPattern        = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	epochPattern       = regexp.MustCompile(`:[0-9]{13}`)
	numberPattern      = regexp.MustCompile(`^[0-9]+$`)
	fingerprintPattern = regexp.MustCompile(`^dynamodb:[0-9a-f]{64}$`)
)

// compareRecorded holds every recorded field against the answer, by compat rule
// 4 where it is about the process or the store.
func compareRecorded(t *testing.T, path string, recorded, answered any, table string) {
	t.Helper()
	switch recorded := recorded.(type) {
	case nil:
		return
	case map[string]any:
		object, _ := answered.(map[string]any)
		for key, value := range recorded {
			if key == "pipe_path" {
				if got, there := object[key]; !there || got != nil {
					t.Errorf("%s.%s is %v", path, key, got)
				}
				continue
			}
			compareRecorded(t, path+"."+key, value, object[key], table)
		}
		return
	case []any:
		list, _ := answered.([]any)
		if len(list) != len(recorded) {
			t.Errorf("%s has %d elements, recorded %d", path, len(list), len(recorded))
			return
		}
		for i, value := range recorded {
			compareRecorded(t, fmt.Sprintf("%s[%d]", path, i), value, list[i], table)
		}
		return
	}
	got := fmt.Sprint(answered)
	want := fmt.Sprint(recorded)
	if n, ok := recorded.(float64); ok {
		want = strconv.FormatFloat(n, 'f', -1, 64)
	}
	var matches bool
	switch key := path[strings.LastIndexByte(path, '.')+1:]; {
	case key == "store_type" || key == "audit_store":
		matches = got == "dynamodb"
	case key == "db_path":
		matches = got == table
	case key == "hub_pid":
		matches = got == "0"
	case key == "realtime_transport":
		matches = got == "none"
	case key == "store_fingerprint":
		matches = fingerprintPattern.MatchString(got)
	case want == "<uuid>":
		matches = uuidPattern.MatchString(got)
	case want == "<ms>" || want == "<n>":
		matches = numberPattern.MatchString(got)
	case strings.Contains(want, ":<ms>"): // inside a payload's text
		matches = epochPattern.ReplaceAllString(got, ":<ms>") == want
	default:
		matches = got == want
	}
	if !matches {
		t.Errorf("%s is %s, recorded %s", path, got, want)
	}
}
