package functions

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestScanJSONTakesExactlyOneValue(t *testing.T) {
	for _, text := range []string{
		`{}`, ` { } `, `[]`, `[1,2]`, `"x"`, `0`, `-0`, `1.5e-3`, `true`, `false`, `null`,
		`{"a":{"a":1},"b":[{"a":1},{"a":2}]}`, `"\ud83d\ude00"`, `"\ud83d"`, "\"\u007f\"", `{"":1}`,
		strings.Repeat("[", maxJSONDepth) + strings.Repeat("]", maxJSONDepth),
	} {
		value, err := scanJSON([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if string(value) != strings.TrimSpace(text) {
			t.Errorf("%s was taken as %s", text, value)
		}
	}
	for text, reason := range map[string]string{
		``:                      "ends early",
		` `:                     "ends early",
		`{`:                     "ends early",
		`{"a"`:                  "ends early",
		`{"a":`:                 "ends early",
		`{"a":1`:                "ends early",
		`[1,`:                   "ends early",
		`"x`:                    "ends early",
		`"\u12`:                 "ends early",
		`-`:                     "ends early",
		`{not json`:             "a key in double quotes is missing",
		`{"a":1,}`:              "a key in double quotes is missing",
		`{"a" 1}`:               "a colon is missing",
		`{"a":1 "b":2}`:         "a comma or closing brace",
		`[1 2]`:                 "a comma or closing bracket",
		`[1,]`:                  "not a JSON value",
		`{"a":1}{}`:             "text after the JSON value",
		`01`:                    "text after the JSON value",
		`1.`:                    "ends early",
		`1.x`:                   "a broken number",
		`1e`:                    "ends early",
		`+1`:                    "not a JSON value",
		`NaN`:                   "not a JSON value",
		`tru`:                   "not a JSON value",
		`'a'`:                   "not a JSON value",
		"\ufeff{}":              "not a JSON value",
		"\"a\nb\"":              "a control character in a string",
		`"\x"`:                  "an unknown escape",
		`"\u12g4"`:              "a broken \\u escape",
		"\"\xff\"":              "invalid UTF-8",
		"{}\xff":                "invalid UTF-8",
		`{"a":1,"a":2}`:         "a key that was given before",
		`{"a":1,"\u0061":2}`:    "a key that was given before",
		`[{"b":{"a":1,"a":2}}]`: "a key that was given before",
		`{"\ud83d":1}`:          "a key that is not valid Unicode",
		strings.Repeat("[", maxJSONDepth+2) + strings.Repeat("]", maxJSONDepth+2): "nested deeper",
		strings.Repeat("[", 1<<20): "nested deeper",
	} {
		if _, err := scanJSON([]byte(text)); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%.40q: got %v, want %q", text, err, reason)
		}
	}
}

func TestStringsDecodeEveryEscape(t *testing.T) {
	for literal, want := range map[string]string{
		`""`:                             "",
		`"a\"\\\/\b\f\n\r\tz"`:           "a\"\\/\b\f\n\r\tz",
		`"\u0041\u00e9\u4e2d"`:           "Aé中",
		`"x\ud83d\ude00y"`:               "x😀y",
		`"\u0000"`:                       "\x00",
		`"에이전트-✓"`:                       "에이전트-✓",
		`"\ufffd"`:                       "\ufffd",
		`"\\ud83d"`:                      `\ud83d`,
		`"\ud83d\ude00\ud83d\ude00"`:     "😀😀",
		`"\udbff\udfff"`:                 "\U0010ffff",
		`"a very plain string, as most"`: "a very plain string, as most",
	} {
		if got, ok := jsonText(literal).text(); !ok || got != want {
			t.Errorf("%s decoded to %q, %v", literal, got, ok)
		}
	}
	for _, half := range []string{`"\ud83d"`, `"\ude00"`, `"\ud83dx"`, `"\ud83d\n"`, `"\ude00\ud83d"`, `"\ud83d\u0041"`} {
		if got, ok := jsonText(half).text(); ok {
			t.Errorf("half a surrogate pair %s decoded to %q", half, got)
		}
	}
}

func TestNumbersKeepTheirValueAndSaturate(t *testing.T) {
	for literal, want := range map[string]decimal{
		`0`:                     {0, 0, true},
		`-0`:                    {0, 0, true},
		`2.0`:                   {2, 2, true},
		`1e3`:                   {1000, 1000, true},
		`2.5`:                   {2.5, 2, false},
		`-2.5`:                  {-2.5, -2, false},
		`9007199254740993`:      {9007199254740992, 9007199254740993, true},
		`9223372036854775807`:   {math.MaxInt64, math.MaxInt64, true},
		`9223372036854775808`:   {math.MaxInt64, math.MaxInt64, false},
		`-9223372036854775809`:  {math.MinInt64, math.MinInt64, false},
		`1e999`:                 {math.Inf(1), math.MaxInt64, false},
		`-1e999`:                {math.Inf(-1), math.MinInt64, false},
		`1e-999`:                {0, 0, true},
		`"60"`:                  {60, 60, true},
		`"-1"`:                  {-1, -1, true},
		`"0099"`:                {99, 99, true},
		`"9999999999999999999"`: {1e19, math.MaxInt64, false},
	} {
		if got, ok := jsonText(literal).number(); !ok || got != want {
			t.Errorf("%s is %+v, %v; want %+v", literal, got, ok, want)
		}
	}
	for _, literal := range []string{`""`, `"-"`, `"+1"`, `"1.0"`, `"1e3"`, `" 1"`, `"0x10"`, `"١"`, `true`, `null`, `[1]`, `{}`, `"` + strings.Repeat("1", 33) + `"`} {
		if got, ok := jsonText(literal).number(); ok {
			t.Errorf("%s was taken as the number %+v", literal, got)
		}
	}
}

// FuzzJSON holds the scanner against encoding/json: it takes what that takes,
// less invalid UTF-8, repeated keys and deep nesting, and every value that the
// accessors take out is the one encoding/json sees.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"agent_id":"a1","cli":"codex","timeout_sec":60,"topics":["t"],"metadata":{"k":[1,2.5e3,null]}}`,
		`{"a":1,"a":2}`, `[[[[]]]]`, `"\ud83d\ude00 \ud83d"`, ` [ 1 , "x" , { } ] `, `{"\u0061":{"b":"\\\""}}`, "\xff", `1e999`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		value, err := scanJSON(data)
		if err == nil && (!json.Valid(data) || !utf8.Valid(data)) {
			t.Fatalf("took %q, which is no JSON", data)
		}
		if err != nil {
			var e *jsonError
			if e, _ = err.(*jsonError); e == nil || e.offset < 0 || e.offset > len(data) {
				t.Fatalf("%q: error without a place: %v", data, err)
			}
			for _, allowed := range []string{"invalid UTF-8", "given before", "nested deeper", "not valid Unicode"} {
				if strings.Contains(e.reason, allowed) {
					return
				}
			}
			if json.Valid(data) {
				t.Fatalf("refused %q: %v", data, err)
			}
			return
		}
		compareWithStandard(t, value)
	})
}

func compareWithStandard(t *testing.T, value jsonText) {
	t.Helper()
	switch value.kind() {
	case jsonObject:
		var want map[string]json.RawMessage
		must(t, json.Unmarshal(value, &want))
		got := 0
		value.members(func(key string, member jsonText) {
			got++
			if string(want[key]) != string(member) {
				t.Fatalf("member %q is %s, want %s", key, member, want[key])
			}
			compareWithStandard(t, member)
		})
		if got != len(want) {
			t.Fatalf("%d members, want %d in %s", got, len(want), value)
		}
	case jsonArray:
		var want []json.RawMessage
		must(t, json.Unmarshal(value, &want))
		got := value.items(len(value))
		if len(got) != len(want) {
			t.Fatalf("%d elements, want %d in %s", len(got), len(want), value)
		}
		for i, item := range got {
			if string(item) != string(want[i]) {
				t.Fatalf("element %d is %s, want %s", i, item, want[i])
			}
			compareWithStandard(t, item)
		}
	case jsonString:
		var want string
		must(t, json.Unmarshal(value, &want))
		if got, ok := value.text(); ok && got != want {
			t.Fatalf("%s decoded to %q, want %q", value, got, want)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
