package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAFaultFileHoldsRulesOfTheEmbeddedAWSAndOfTheSchedules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "faults.json")
	text := `{
	  "rules": [{"op": "UpdateItem", "count": 1, "action": "drop-response"}],
	  "indexLag": [{"table": "hub", "index": "due", "lag": "150ms"}],
	  "schedules": [{"schedule": "Sweep*", "after": 1, "count": 2, "action": "late", "by": "30s"}]
	}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	script, schedules, err := loadFaults(file, []string{"SweepAgents"}, true)
	if err != nil {
		t.Fatal(err)
	}
	want := scheduleFault{Schedule: "Sweep*", After: 1, Count: 2, Action: "late", By: period(30 * time.Second)}
	if script == nil || len(schedules) != 1 || schedules[0] != want {
		t.Errorf("got %v, %+v", script, schedules)
	}
	for n, acts := range []bool{false, true, true, false} {
		if want.acts("SweepAgents", n) != acts || want.acts("Other", n) {
			t.Errorf("tick %d", n)
		}
	}
}

func TestAMistakeInAFaultFileIsAnError(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "\n", "the file is empty"},
		{"no JSON", `{`, "unexpected EOF"},
		{"text behind", `{} {}`, "text after the document"},
		{"an unknown section", `{"ruls": []}`, `unknown field "ruls"`},
		{"an unknown field of a rule", `{"rules": [{"opp": "PutItem", "action": "delay"}]}`, `unknown field "opp"`},
		{"an unknown action of a rule", `{"rules": [{"action": "explode"}]}`, `there is no action "explode"`},
		{"an unknown field of a schedule", `{"schedules": [{"schedul": "*"}]}`, `unknown field "schedul"`},
		{"an unknown action of a schedule", `{"schedules": [{"schedule": "*", "action": "early"}]}`, `entry 1: there is no action "early"`},
		{"a schedule that is not there", `{"schedules": [{"schedule": "Nightly", "action": "never"}]}`, `no schedule matches "Nightly"; there are [SweepAgents]`},
		{"late without a duration", `{"schedules": [{"schedule": "*", "action": "late"}]}`, "late needs a positive duration"},
		{"a duration that is none", `{"schedules": [{"schedule": "*", "action": "late", "by": "soon"}]}`, `invalid duration "soon"`},
		{"a duration of another action", `{"schedules": [{"schedule": "*", "action": "never", "by": "1s"}]}`, "nothing else takes one"},
		{"a negative count", `{"schedules": [{"schedule": "*", "action": "never", "count": -1}]}`, "not negative"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := parseFaults([]byte(c.text), []string{"SweepAgents"}, true)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// Somebody who scripts faults must not believe that they happen.
func TestFaultsOfTheEmbeddedAWSAreRefusedWhereThereIsNone(t *testing.T) {
	for text, refused := range map[string]bool{
		`{"rules": [{"action": "drop-response"}]}`:                         true,
		`{"indexLag": [{"table": "hub", "index": "due", "lag": "150ms"}]}`: true,
		`{"schedules": [{"schedule": "SweepAgents", "action": "twice"}]}`:  false,
	} {
		_, _, err := parseFaults([]byte(text), []string{"SweepAgents"}, false)
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "AWS_ENDPOINT_URL names another") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzParseFaults(f *testing.F) {
	f.Add(`{"rules": [{"op": "PutItem", "action": "error", "status": 503, "code": "SlowDown"}]}`)
	f.Add(`{"schedules": [{"schedule": "[", "action": "late", "by": "1s"}], "indexLag": []}`)
	f.Fuzz(func(t *testing.T, text string) {
		script, _, err := parseFaults([]byte(text), []string{"SweepAgents"}, true)
		if (script == nil) == (err == nil) {
			t.Fatalf("a script and an error, or neither: %v, %v", script, err)
		}
	})
}
