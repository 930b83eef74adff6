package functions

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"drawbridge/core"
)

func (h *testHub) learn(body fields) answer {
	h.t.Helper()
	return h.send("POST", "/bridge/reflexion/learn", body).expect(h.t, 200, "")
}

func (h *testHub) lookup(body fields) answer {
	h.t.Helper()
	return h.send("POST", "/bridge/reflexion/lookup", body).expect(h.t, 200, "")
}

// The rules of contract section 8, over HTTP.
func TestAnErrorFindsItsFixWhateverItsScript(t *testing.T) {
	for _, test := range []struct{ name, learnt, again, pattern string }{
		{"Unix paths and lines", "at /home/a/x.ts:10:5", "at /srv/b/y.ts:7", "at <file>:<line>"},
		{"Windows paths", `open C:\a\b.txt failed`, `open D:\c\d.md failed`, "open <file> failed"},
		{"Korean", "포트 8080 열기 실패: /사용자/김/앱.go", "포트 9090 열기 실패: /사용자/이/봇.go", "포트 <num> 열기 실패: <file>"},
		{"Chinese without blanks", "端口8080被占用", "端口65535被占用", "端口<num>被占用"},
		{"Cyrillic and case", "ФАЙЛ /дом/а/б не НАЙДЕН", "файл /дом/в/г не найден", "файл <file> не найден"},
		{"Arabic digits", "المنفذ ٨٠٨٠", "المنفذ ٩٠٩٠", "المنفذ <num>"},
		{"ids and times", "job 123e4567-e89b-12d3-a456-426614174000 at 2026-01-01T00:00:00Z", "job 00000000-0000-7000-8000-000000000000 at 2025-02-03T04:05:06.7Z", "job <id> at <time>"},
		{"blanks", "too   many\n\tblanks", " too many blanks ", "too many blanks"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newTestHub(t)
			a := h.learn(fields{"error_message": test.learnt, "solution": "s"})
			if a.at("data.created") != true || a.at("data.entry.error_pattern") != test.pattern {
				t.Fatalf("learnt: %s", a.text)
			}
			found := h.lookup(fields{"error_message": test.again})
			if found.at("data.found") != true || found.at("data.best_match.id") != a.at("data.entry.id") || found.at("data.truncated") != false {
				t.Errorf("found: %s", found.text)
			}
		})
	}
}

func TestALearntFixGoesItsWholeWayOverHTTP(t *testing.T) {
	h := newTestHub(t)
	generation := h.online("a", 2)
	a := h.learn(fields{"error_message": "boom", "solution": "s", "solution_code": "c", "context": fields{"os": "linux"}, "agent_id": "a"})
	for field, want := range map[string]any{
		"type": "reflexion", "error_message": "boom", "solution": "s", "solution_code": "c", "learnt_by": "a", "confidence": json.Number("0.5"),
		"learnt_generation": json.Number(fmt.Sprint(generation)), "hit_count": json.Number("1"), "success_count": json.Number("0"),
	} {
		if got := a.at("data.entry." + field); got != want {
			t.Errorf("%s is %v, want %v", field, got, want)
		}
	}
	id := a.at("data.entry.id")
	h.clock.advance(time.Second)
	a = h.send("POST", "/bridge/reflexion/hit", fields{"id": id, "success": true}).expect(t, 200, "")
	if a.number("data.entry.hit_count") != 2 || a.number("data.entry.success_count") != 1 || a.number("data.entry.updated_at_ms") != h.now() {
		t.Errorf("hit: %s", a.text)
	}
	if a := h.learn(fields{"error_message": "BOOM", "solution": "other", "success": true}); a.at("data.created") != false || a.at("data.entry.solution") != "s" {
		t.Errorf("learnt again: %s", a.text)
	}
	if a := h.lookup(fields{"error_pattern": "oo", "context": fields{"os": "linux"}}); a.at("data.best_match.id") != id {
		t.Errorf("a part of the pattern finds %s", a.text)
	}
	if a := h.lookup(fields{"error_message": "boom", "context": fields{"os": "windows"}}); a.at("data.found") != false || a.at("data.best_match") != nil {
		t.Errorf("another context finds %s", a.text)
	}
	h.send("POST", "/bridge/reflexion/hit", fields{"id": "nothing"}).expect(t, 404, core.CodeNotFound)
	h.send("POST", "/bridge/reflexion/lookup", fields{}).refusesField(t, core.CodeInvalidArgument, "error_message")
	h.send("POST", "/bridge/reflexion/learn", fields{"error_message": " ", "solution": "s"}).refusesField(t, core.CodeInvalidArgument, "error_message")
	h.send("POST", "/bridge/reflexion/learn", fields{"error_message": "x", "solution": "s", "context": fields{"a": strings.Repeat("x", 5000)}}).
		refusesField(t, core.CodeInvalidArgument, "context")
	h.send("POST", "/bridge/reflexion/learn", fields{"error_message": "x", "solution": "s", "agent_id": "a", "presence_generation": 1}).
		expect(t, 409, core.CodeStalePresenceOwner)

	h.learn(fields{"error_message": "rule", "solution": "s", "type": "adaptive"})
	list := h.send("GET", "/bridge/reflexion?limit=1", nil).expect(t, 200, "")
	if entries := list.at("data.entries").([]any); len(entries) != 1 || list.at("data.next_cursor") == nil {
		t.Fatalf("listed: %s", list.text)
	}
	list = h.send("GET", "/bridge/reflexion?limit=1&cursor="+list.at("data.next_cursor").(string), nil).expect(t, 200, "")
	if entries := list.at("data.entries").([]any); len(entries) != 1 || list.at("data.next_cursor") != nil {
		t.Errorf("second page: %s", list.text)
	}
	list = h.send("GET", "/bridge/reflexion?type=adaptive", nil).expect(t, 200, "")
	if entries := list.at("data.entries").([]any); len(entries) != 1 || entries[0].(map[string]any)["type"] != "adaptive" {
		t.Errorf("rules: %s", list.text)
	}
}

// An answer of Lambda holds 6 MB, quoted.
func TestAnAnswerOfReflexionFitsLambdaWhateverItsTextIs(t *testing.T) {
	h := newTestHub(t)
	for i := range 20 {
		h.learn(fields{"error_message": "boom", "solution": "x" + strings.Repeat("\x01", 16_000), "solution_code": strings.Repeat("\x01", 65_536),
			"context": fields{"n": i}})
	}
	check := func(name, text string) {
		t.Helper()
		quoted, err := json.Marshal(text)
		must(t, err)
		if len(quoted) > 6<<20 {
			t.Errorf("%s answers %d bytes", name, len(quoted))
		}
	}
	a := h.lookup(fields{"error_message": "boom", "limit": 100})
	if check("lookup", a.text); a.at("data.truncated") != true {
		t.Error("the cut lookup does not say so")
	}
	seen, cursor := 0, ""
	for {
		list := h.send("GET", "/bridge/reflexion?limit=100&cursor="+cursor, nil).expect(t, 200, "")
		check("list", list.text)
		seen += len(list.at("data.entries").([]any))
		next, more := list.at("data.next_cursor").(string)
		if !more {
			break
		}
		cursor = next
	}
	if seen != 20 {
		t.Errorf("the pages show %d entries of 20", seen)
	}
}
