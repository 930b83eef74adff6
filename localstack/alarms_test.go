package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"drawbridge/functions"
	"drawbridge/localstack/fakeaws"
	"drawbridge/localstack/gateway"
)

// A metricFilter draws a metric from log lines.
type metricFilter struct {
	pattern, metric, value string
}

// infraTemplate is what the tests read of a template under infra/.
type infraTemplate struct {
	Resources map[string]struct {
		Type       string    `yaml:"Type"`
		Properties yaml.Node `yaml:"Properties"`
	} `yaml:"Resources"`
}

func readInfra(t *testing.T, file string) infraTemplate {
	t.Helper()
	src, err := os.ReadFile("../infra/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var read infraTemplate
	if err := yaml.Unmarshal(src, &read); err != nil {
		t.Fatal(err)
	}
	return read
}

func metricFilters(t *testing.T) []metricFilter {
	t.Helper()
	var all []metricFilter
	for name, r := range readInfra(t, "alarms.yaml").Resources {
		if r.Type != "AWS::Logs::MetricFilter" {
			continue
		}
		var p struct {
			FilterPattern         string `yaml:"FilterPattern"`
			MetricTransformations []struct {
				MetricName  string `yaml:"MetricName"`
				MetricValue string `yaml:"MetricValue"`
			} `yaml:"MetricTransformations"`
		}
		if err := r.Properties.Decode(&p); err != nil || len(p.MetricTransformations) != 1 {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, metricFilter{p.FilterPattern, p.MetricTransformations[0].MetricName, p.MetricTransformations[0].MetricValue})
	}
	return all
}

// field finds what a selector such as $.counts.pending names in a line.
func field(line map[string]any, selector string) any {
	var at any = line
	for _, name := range strings.Split(strings.TrimPrefix(selector, "$."), ".") {
		object, _ := at.(map[string]any)
		at = object[name]
	}
	return at
}

var (
	patternShape = regexp.MustCompile(`\A\{ (.+) \}\z`)
	clauseShape  = regexp.MustCompile(`\A(\$[\w.]+) (=|!=|>=) ("[^"]*"|\d+)\z`)
)

// matches tells whether CloudWatch would take a line for the pattern: clauses on
// fields, joined by &&. A field that is not there matches nothing.
func (f metricFilter) matches(t *testing.T, line map[string]any) bool {
	t.Helper()
	shape := patternShape.FindStringSubmatch(f.pattern)
	if shape == nil {
		t.Fatalf("the pattern %s is not understood", f.pattern)
	}
	for _, clause := range strings.Split(shape[1], " && ") {
		part := clauseShape.FindStringSubmatch(clause)
		if part == nil {
			t.Fatalf("the clause %s is not understood", clause)
		}
		if !holds(field(line, part[1]), part[2], part[3]) {
			return false
		}
	}
	return true
}

func holds(found any, operator, literal string) bool {
	if text, err := strconv.Unquote(literal); err == nil {
		got, ok := found.(string)
		return ok && (got == text) == (operator == "=")
	}
	want, _ := strconv.ParseFloat(literal, 64)
	got, ok := found.(float64)
	if operator == ">=" {
		return ok && got >= want
	}
	return ok && (got == want) == (operator == "=")
}

// lambdaReports are lines that Lambda itself writes, as its user guide shows them.
const lambdaReports = `{"time":"2026-10-08T07:30:29.470Z","type":"platform.report","record":{"requestId":"1","metrics":{"durationMs":1.5},"status":"success"}}
{"time":"2026-10-08T07:30:29.470Z","type":"platform.report","record":{"requestId":"2","metrics":{"durationMs":28000},"status":"timeout"}}
`

// Every metric gets its value from the lines that the functions really write, and
// from no others.
func TestTheMetricFiltersReadTheLinesOfTheFunctions(t *testing.T) {
	want := map[string]float64{
		"SweepLag": float64(len(functions.Sweeps()) - 1), "PendingMessages": 1, "DeadLetters": 1, "RefusedTokens": 1, "FunctionFailures": 1,
	}
	lines := functionLines(t)
	filters := metricFilters(t)
	for _, f := range filters {
		var drawn float64
		for _, line := range lines {
			if !f.matches(t, line) {
				continue
			}
			drawn++
			if _, number := field(line, f.value).(float64); strings.HasPrefix(f.value, "$.") && !number {
				t.Errorf("%s: %s is no number in %v", f.metric, f.value, line)
			}
		}
		if drawn != want[f.metric] {
			t.Errorf("%s is drawn from %v lines, want %v: %s", f.metric, drawn, want[f.metric], f.pattern)
		}
	}
	if len(filters) != len(want) {
		t.Errorf("%d filters, want %d", len(filters), len(want))
	}
}

// functionLines are what functions log when every sweep runs, one of them in vain,
// when a request is served and when one is refused.
func functionLines(t *testing.T) []map[string]any {
	t.Helper()
	g := openGuarded(t)
	var log bytes.Buffer
	app, err := functions.Open(g.cfg, functions.Settings{
		Table: g.iam.template.Tables[0].Name, Bucket: g.iam.template.Buckets[0].Name, Log: functions.NewLog(&log, slog.LevelInfo.String()),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range functions.Sweeps() {
		h, _ := app.Sweep(s.Name)
		if s.Name == "sweep-roles" {
			broken := g.aws.Faults().Add(fakeaws.Rule{Op: "Query", Action: fakeaws.Error(400, "ValidationException")})
			if err := h(t.Context(), nil); err == nil {
				t.Error("the sweep that was to fail succeeded")
			}
			broken.Remove()
			continue
		}
		if err := h(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	g.app = app
	if g.handler, err = gateway.New(g.iam.template, g.function, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	request(t, g.handler, g.token.value, 200)
	request(t, g.handler, "no-token", 401)
	log.WriteString(lambdaReports)
	var lines []map[string]any
	for text := range strings.Lines(log.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		lines = append(lines, line)
	}
	return lines
}

func request(t *testing.T, handler http.Handler, token string, status int) {
	t.Helper()
	r := httptest.NewRequest("GET", "/bridge/agents", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	if w.Code != status {
		t.Errorf("status %d, want %d: %s", w.Code, status, w.Body)
	}
}

// ownMetric finds the metrics of the hub's own namespace in YAML or JSON.
var ownMetric = regexp.MustCompile(`Namespace: !Ref Namespace,? +MetricName: (\w+)|"\$\{Namespace\}", "(\w+)"`)

func TestAlarmsAndDashboardUseMetricsThatAreDrawn(t *testing.T) {
	var drawn []string
	for _, f := range metricFilters(t) {
		drawn = append(drawn, f.metric)
	}
	for _, file := range []string{"alarms.yaml", "dashboard.yaml"} {
		src, err := os.ReadFile("../infra/" + file)
		if err != nil {
			t.Fatal(err)
		}
		found := ownMetric.FindAllStringSubmatch(strings.ReplaceAll(string(src), "\n", " "), -1)
		if len(found) < 4 {
			t.Errorf("%s uses %d metrics of the hub", file, len(found))
		}
		for _, m := range found {
			if name := m[1] + m[2]; !slices.Contains(drawn, name) {
				t.Errorf("%s uses the metric %s, which nothing draws", file, name)
			}
		}
	}
}

func TestTheDashboardIsValid(t *testing.T) {
	var p struct {
		DashboardBody string `yaml:"DashboardBody"`
	}
	resource := readInfra(t, "dashboard.yaml").Resources["Dashboard"]
	if err := resource.Properties.Decode(&p); err != nil {
		t.Fatal(err)
	}
	var body struct {
		Widgets []struct {
			Type       string
			Properties struct{ Metrics [][]any }
		}
	}
	if err := json.Unmarshal([]byte(p.DashboardBody), &body); err != nil {
		t.Fatal(err)
	}
	for i, w := range body.Widgets {
		if w.Type != "metric" || len(w.Properties.Metrics) == 0 {
			t.Errorf("widget %d shows nothing", i)
		}
	}
	if len(body.Widgets) == 0 {
		t.Error("the dashboard is empty")
	}
}

// The alarm on sweeps that do not run counts those that run every minute.
func TestTheAlarmOnMissingSweepsNoticesOne(t *testing.T) {
	var p struct {
		Period    int `yaml:"Period"`
		Threshold int `yaml:"Threshold"`
	}
	alarm := readInfra(t, "alarms.yaml").Resources["SweepsMissingAlarm"]
	if err := alarm.Properties.Decode(&p); err != nil {
		t.Fatal(err)
	}
	minutes, each, hourly := p.Period/60, 0, 0
	for _, s := range projectTemplate(t).Schedules() {
		if s.Every == time.Minute {
			each++
		} else {
			hourly++
		}
	}
	fewestOfAll := each * (minutes - 1)
	mostWithoutOne := (each-1)*(minutes+1) + hourly
	if p.Threshold > fewestOfAll || p.Threshold <= mostWithoutOne {
		t.Errorf("the threshold %d is not above %d and at most %d", p.Threshold, mostWithoutOne, fewestOfAll)
	}
}
