package functions

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"drawbridge/core"
)

// everyKind has a field of each kind, with and without options.
type everyKind struct {
	ID         string                    `json:"id" in:"id,required"`
	Other      core.Opt[string]          `json:"other" in:"id"`
	Line       core.Opt[string]          `json:"line" in:"line,max=8"`
	Word       string                    `json:"word" in:"line,enum=a|b,default=\"a\""`
	Text       core.Opt[string]          `json:"text" in:"text,min=1,max=10"`
	Coded      core.Opt[string]          `json:"coded" in:"text,code=PROJECT_ID_INVALID"`
	Whole      core.Opt[int64]           `json:"whole" in:"integer,min=1,max=100"`
	Cut        core.Opt[int64]           `json:"cut" in:"truncated,null=1000"`
	Real       core.Opt[float64]         `json:"real" in:"number,null=0"`
	Flag       bool                      `json:"flag" in:"boolean,default=true"`
	Generation core.Opt[int64]           `json:"generation" in:"generation"`
	Identity   core.Opt[string]          `json:"identity" in:"identity"`
	Texts      []string                  `json:"texts" in:"list,max=3,null=[]" each:"text"`
	Ids        []string                  `json:"ids" in:"list" each:"id"`
	Objects    []element                 `json:"objects" in:"list,min=1,max=2"`
	Object     json.RawMessage           `json:"object" in:"object"`
	Any        core.Opt[json.RawMessage] `json:"any" in:"any"`
	embedded
}

type embedded struct {
	Deep core.Opt[int64] `json:"deep" in:"integer"`
}

type element struct {
	Name string `json:"name" in:"id,required"`
	embedded
}

func decodeEveryKind(t *testing.T, body string) (everyKind, error) {
	t.Helper()
	s, err := shapeOf(reflect.TypeFor[everyKind]())
	must(t, err)
	value, err := scanJSON([]byte(body))
	must(t, err)
	var into everyKind
	err = s.decode(value, "", reflect.ValueOf(&into).Elem())
	return into, err
}

func TestDecoderReadsEveryKind(t *testing.T) {
	s, err := shapeOf(reflect.TypeFor[everyKind]())
	must(t, err)
	defaults := everyKind{ID: "x", Word: "a", Flag: true}
	with := func(change func(*everyKind)) everyKind {
		e := defaults
		change(&e)
		return e
	}
	for body, want := range map[string]everyKind{
		`{"id":"x"}`:                defaults,
		`{"id":"x","unknown":[{}]}`: defaults,
		`{"id":"x","other":null,"line":null,"word":null,"text":null,"coded":null,"whole":null,"flag":null,"generation":null,"identity":null,"ids":null,"objects":null,"object":null,"deep":null}`: defaults,
		`{"id":"x","other":""}`:       defaults,
		`{"id":"에이전트-✓"}`:             with(func(e *everyKind) { e.ID = "에이전트-✓" }),
		`{"id":"x","other":"y"}`:      with(func(e *everyKind) { e.Other = core.Some("y") }),
		`{"id":"x","line":""}`:        with(func(e *everyKind) { e.Line = core.Some("") }),
		`{"id":"x","word":"b"}`:       with(func(e *everyKind) { e.Word = "b" }),
		`{"id":"x","text":"a\nb"}`:    with(func(e *everyKind) { e.Text = core.Some("a\nb") }),
		`{"id":"x","whole":100}`:      with(func(e *everyKind) { e.Whole = core.Some(int64(100)) }),
		`{"id":"x","whole":"7"}`:      with(func(e *everyKind) { e.Whole = core.Some(int64(7)) }),
		`{"id":"x","whole":1e1}`:      with(func(e *everyKind) { e.Whole = core.Some(int64(10)) }),
		`{"id":"x","cut":5.9}`:        with(func(e *everyKind) { e.Cut = core.Some(int64(5)) }),
		`{"id":"x","cut":"60000"}`:    with(func(e *everyKind) { e.Cut = core.Some(int64(60000)) }),
		`{"id":"x","cut":null}`:       with(func(e *everyKind) { e.Cut = core.Some(int64(1000)) }),
		`{"id":"x","real":0.5}`:       with(func(e *everyKind) { e.Real = core.Some(0.5) }),
		`{"id":"x","real":null}`:      with(func(e *everyKind) { e.Real = core.Some(0.0) }),
		`{"id":"x","flag":false}`:     with(func(e *everyKind) { e.Flag = false }),
		`{"id":"x","generation":2}`:   with(func(e *everyKind) { e.Generation = core.Some(int64(2)) }),
		`{"id":"x","generation":2.0}`: with(func(e *everyKind) { e.Generation = core.Some(int64(2)) }),
		`{"id":"x","generation":"2"}`: with(func(e *everyKind) { e.Generation = core.Some(int64(2)) }),
		`{"id":"x","generation":0}`:   with(func(e *everyKind) { e.Generation = core.Some(int64(0)) }),
		`{"id":"x","identity":"i"}`:   with(func(e *everyKind) { e.Identity = core.Some("i") }),
		`{"id":"x","identity":""}`:    with(func(e *everyKind) { e.Identity = core.Some("") }),
		`{"id":"x","texts":null}`:     with(func(e *everyKind) { e.Texts = []string{} }),
		`{"id":"x","texts":["","a"]}`: with(func(e *everyKind) { e.Texts = []string{"", "a"} }),
		`{"id":"x","ids":["p","q"]}`:  with(func(e *everyKind) { e.Ids = []string{"p", "q"} }),
		`{"id":"x","objects":[{"name":"n","deep":1,"z":0}]}`: with(func(e *everyKind) {
			e.Objects = []element{{Name: "n", embedded: embedded{core.Some(int64(1))}}}
		}),
		`{"id":"x","object":{"a": 1.0}}`: with(func(e *everyKind) { e.Object = json.RawMessage(`{"a": 1.0}`) }),
		`{"id":"x","any":null}`:          with(func(e *everyKind) { e.Any = core.Some(json.RawMessage(`null`)) }),
		`{"id":"x","any":"\ud83d"}`:      with(func(e *everyKind) { e.Any = core.Some(json.RawMessage(`"\ud83d"`)) }),
		`{"id":"x","deep":-3}`:           with(func(e *everyKind) { e.Deep = core.Some(int64(-3)) }),
	} {
		value, err := scanJSON([]byte(body))
		must(t, err)
		var got everyKind
		if err := s.decode(value, "", reflect.ValueOf(&got).Elem()); err != nil {
			t.Errorf("%s: %v", body, err)
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n got %+v\nwant %+v", body, got, want)
		}
	}
}

func TestDecoderNamesTheFieldThatBreaksItsRule(t *testing.T) {
	long := strings.Repeat("x", maxID+1)
	for body, field := range map[string]string{
		`{}`: "id", `[]`: "id", `"id"`: "id", `5`: "id", `true`: "id",
		`{"id":null}`: "id", `{"id":""}`: "id", `{"id":7}`: "id", `{"id":{}}`: "id", `{"id":[]}`: "id",
		`{"id":false}`: "id", `{"id":"a\u0000"}`: "id", `{"id":"a\nb"}`: "id", `{"id":"\u0085"}`: "id",
		`{"id":"\ud83d"}`: "id", `{"id":"` + long + `"}`: "id",
		`{"id":"x","other":1}`:                           "other",
		`{"id":"x","line":"123456789"}`:                  "line",
		`{"id":"x","line":"\t"}`:                         "line",
		`{"id":"x","word":""}`:                           "word",
		`{"id":"x","word":"A"}`:                          "word",
		`{"id":"x","text":""}`:                           "text",
		`{"id":"x","text":"에이전트"}`:                       "text",
		`{"id":"x","coded":1}`:                           "coded",
		`{"id":"x","whole":0}`:                           "whole",
		`{"id":"x","whole":101}`:                         "whole",
		`{"id":"x","whole":1.5}`:                         "whole",
		`{"id":"x","whole":"1.5"}`:                       "whole",
		`{"id":"x","whole":true}`:                        "whole",
		`{"id":"x","whole":1e999}`:                       "whole",
		`{"id":"x","cut":"abc"}`:                         "cut",
		`{"id":"x","cut":[]}`:                            "cut",
		`{"id":"x","real":"0.5"}`:                        "real",
		`{"id":"x","flag":"true"}`:                       "flag",
		`{"id":"x","flag":1}`:                            "flag",
		`{"id":"x","texts":"build"}`:                     "texts",
		`{"id":"x","texts":["a",1]}`:                     "texts[1]",
		`{"id":"x","texts":["a",null]}`:                  "texts[1]",
		`{"id":"x","texts":["a","b","c","d"]}`:           "texts",
		`{"id":"x","ids":["p",""]}`:                      "ids[1]",
		`{"id":"x","objects":[]}`:                        "objects",
		`{"id":"x","objects":[1]}`:                       "objects[0]",
		`{"id":"x","objects":[null]}`:                    "objects[0]",
		`{"id":"x","objects":[{"name":"n"},{}]}`:         "objects[1].name",
		`{"id":"x","objects":[{"name":"n","deep":"z"}]}`: "objects[0].deep",
		`{"id":"x","object":[]}`:                         "object",
		`{"id":"x","deep":1.5}`:                          "deep",
	} {
		_, err := decodeEveryKind(t, body)
		var refusal *core.Error
		if !errors.As(err, &refusal) {
			t.Errorf("%.80s: got %v", body, err)
			continue
		}
		if refusal.Details["field"] != field {
			t.Errorf("%.80s: named %v, want %s", body, refusal.Details["field"], field)
		}
		want := core.CodeInvalidArgument
		if field == "coded" {
			want = core.CodeProjectIDInvalid
		}
		if refusal.Code != want {
			t.Errorf("%.80s: code %s, want %s", body, refusal.Code, want)
		}
	}
}

func TestFencesOfAnotherTypeAreComparedAndNeverEqual(t *testing.T) {
	for _, value := range []string{`2.5`, `"abc"`, `""`, `true`, `false`, `{}`, `[]`, `-1`, `"2.0"`, `1e30`, `"99999999999999999999"`} {
		got, err := decodeEveryKind(t, `{"id":"x","generation":`+value+`}`)
		must(t, err)
		if got.Generation != core.Some(int64(neverGeneration)) {
			t.Errorf("generation %s was read as %+v", value, got.Generation)
		}
	}
	for _, value := range []string{`5`, `true`, `{}`, `[]`, `"\ud83d"`} {
		got, err := decodeEveryKind(t, `{"id":"x","identity":`+value+`}`)
		must(t, err)
		if got.Identity != core.Some(neverIdentity) {
			t.Errorf("identity %s was read as %+v", value, got.Identity)
		}
	}
}

func TestQueryParametersGoThroughTheSameRules(t *testing.T) {
	s, err := shapeOf(reflect.TypeFor[everyKind]())
	must(t, err)
	for query, want := range map[string]string{
		`id=x`:                      `{"id":"x"}`,
		`id=a%20b+c&whole=5&nope=1`: `{"id":"a b c","whole":"5"}`,
		`id=x&other=&nope=1&nope=2`: `{"id":"x"}`,
		`id=%EC%97%90`:              `{"id":"에"}`,
		``:                          `{}`,
		`id=%22%3C%3E%26%5C`:        `{"id":"\"\u003c\u003e\u0026\\"}`,
	} {
		got, err := s.query(query)
		must(t, err)
		if string(got) != want {
			t.Errorf("%s became %s, want %s", query, got, want)
		}
	}
	for query, field := range map[string]string{
		`id=x&id=y`: "id", `id=%FF`: "id", `id=%zz`: "query", `id=x;other=y`: "query",
	} {
		_, err := s.query(query)
		var refusal *core.Error
		if !errors.As(err, &refusal) || refusal.Details["field"] != field {
			t.Errorf("%s: got %v, want a refusal of %s", query, err, field)
		}
	}
}

func TestShapesRefuseMistakesInTheirTags(t *testing.T) {
	for name, request := range map[string]any{
		"no in tag": struct {
			A string `json:"a"`
		}{},
		"no json tag": struct {
			A string `in:"id,required"`
		}{},
		"unknown kind": struct {
			A string `json:"a" in:"name,required"`
		}{},
		"unknown option": struct {
			A string `json:"a" in:"id,requird"`
		}{},
		"type of the kind": struct {
			A int `json:"a" in:"id,required"`
		}{},
		"absent, not Opt": struct {
			A string `json:"a" in:"id"`
		}{},
		"default no JSON": struct {
			A string `json:"a" in:"line,default=x"`
		}{},
		"bound no number": struct {
			A string `json:"a" in:"id,required,max=x"`
		}{},
		"list into scalar": struct {
			A string `json:"a" in:"list"`
		}{},
		"list of what": struct {
			A []string `json:"a" in:"list"`
		}{},
		"mistake in object": struct {
			A []struct{ B string } `json:"a" in:"list"`
		}{},
	} {
		if _, err := shapeOf(reflect.TypeOf(request)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// FuzzDecode decodes any body as the request of every endpoint: it never
// panics, names a field in every refusal, and what it lets through keeps the
// limits of ids.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"agent_id":"a1","cli":"codex","timeout_sec":"60","topics":["t",null],"capabilities":null,"metadata":{"k":1}}`,
		`{"agents":[{"agent_id":"a","presence_generation":"2","step":1e3}],"ttl_ms":null}`,
		`{"agent_id":"a\u0000","presence_generation":{},"hub_instance_id":5,"final":true}`,
		`{"status":" Paused ","agent_id":"\ud83d","include_metrics":false,"scope":"hub"}`,
		`[]`, `null`, `{"transport_locators_json":"{","project_id":7}`,
	} {
		f.Add([]byte(seed))
	}
	endpoints := Endpoints()
	f.Fuzz(func(t *testing.T, body []byte) {
		value, err := scanJSON(body)
		if err != nil {
			return
		}
		for _, e := range endpoints {
			request := reflect.New(e.request.typ).Elem()
			err := e.request.decode(value, "", request)
			var refusal *core.Error
			if err != nil && (!errors.As(err, &refusal) || refusal.Details["field"] == nil) {
				t.Fatalf("%s: %v", e.Path, err)
			}
			if err == nil {
				checkIDs(t, e.request, request)
			}
		}
	})
}

func checkIDs(t *testing.T, s *shape, request reflect.Value) {
	t.Helper()
	for _, f := range s.fields {
		field := request.FieldByIndex(f.index)
		if f.rule.optional {
			field = field.FieldByName("Value")
		}
		if f.rule.kind != kindID || field.String() == "" && f.rule.optional {
			continue
		}
		id := field.String()
		if id == "" || len(id) > maxID || !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl) {
			t.Fatalf("%s holds %q", f.name, id)
		}
	}
}
