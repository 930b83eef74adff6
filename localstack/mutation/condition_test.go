package main

import (
	"slices"
	"testing"
)

func TestAConditionIsBrokenOneGuardAtATime(t *testing.T) {
	type mutants map[string]string // what was done: the condition then
	for _, c := range []struct {
		name   string
		in     template
		ofKeys bool
		want   mutants
	}{
		{"a single condition", template{{text: "attribute_exists(pk)"}}, false, mutants{
			"drop attribute_exists(pk)": "(attribute_exists(pk) OR NOT (attribute_exists(pk)))",
		}},
		{"conjuncts, one with an edge", template{{text: "generation = :g AND lease_ms >= :now"}}, false, mutants{
			"drop generation = :g":       "(generation = :g OR NOT (generation = :g)) AND lease_ms >= :now",
			"drop lease_ms >= :now":      "generation = :g AND (lease_ms >= :now OR NOT (lease_ms >= :now))",
			"lease_ms >= :now: > for >=": "generation = :g AND lease_ms > :now",
		}},
		{"alternatives in brackets", template{{text: "a = :a AND (attribute_not_exists(s) OR s < :s)"}}, false, mutants{
			"drop a = :a": "(a = :a OR NOT (a = :a)) AND (attribute_not_exists(s) OR s < :s)",
			"drop (attribute_not_exists(s) OR s < :s)": "a = :a AND ((attribute_not_exists(s) OR s < :s) OR NOT (attribute_not_exists(s) OR s < :s))",
			"drop alternative attribute_not_exists(s)": "a = :a AND ((attribute_not_exists(s) AND NOT (attribute_not_exists(s))) OR s < :s)",
			"drop alternative s < :s":                  "a = :a AND (attribute_not_exists(s) OR (s < :s AND NOT (s < :s)))",
			"s < :s: <= for <":                         "a = :a AND (attribute_not_exists(s) OR s <= :s)",
		}},
		{"AND binds before OR", template{{text: "attribute_not_exists(pk) OR w <> :w AND t <= :t"}}, false, mutants{
			"drop alternative attribute_not_exists(pk)": "(attribute_not_exists(pk) AND NOT (attribute_not_exists(pk))) OR w <> :w AND t <= :t",
			"drop w <> :w":      "attribute_not_exists(pk) OR (w <> :w OR NOT (w <> :w)) AND t <= :t",
			"drop t <= :t":      "attribute_not_exists(pk) OR w <> :w AND (t <= :t OR NOT (t <= :t))",
			"t <= :t: < for <=": "attribute_not_exists(pk) OR w <> :w AND t < :t",
		}},
		{"a text that continues another", template{{text: " AND held = :h"}}, false, mutants{
			"drop held = :h": " AND (held = :h OR NOT (held = :h))",
		}},
		{"a call that continues it", template{{text: "t = :t"}, {text: "more()", code: true}}, false, mutants{
			"drop t = :t": "(t = :t OR NOT (t = :t)){more()}",
		}},
		{"names that are variables", template{{text: "name", code: true}, {text: " = :expected_"}, {text: "name", code: true}}, false, mutants{
			"drop {name} = :expected_{name}": "({name} = :expected_{name} OR NOT ({name} = :expected_{name}))",
		}},
		{"functions, lists and negations", template{{text: "NOT contains(r, :x) AND s IN (:p, :h) AND size(r) < :m"}}, false, mutants{
			"drop NOT contains(r, :x)": "(NOT contains(r, :x) OR NOT (NOT contains(r, :x))) AND s IN (:p, :h) AND size(r) < :m",
			"drop s IN (:p, :h)":       "NOT contains(r, :x) AND (s IN (:p, :h) OR NOT (s IN (:p, :h))) AND size(r) < :m",
			"drop size(r) < :m":        "NOT contains(r, :x) AND s IN (:p, :h) AND (size(r) < :m OR NOT (size(r) < :m))",
			"size(r) < :m: <= for <":   "NOT contains(r, :x) AND s IN (:p, :h) AND size(r) <= :m",
		}},
		{"keys keep their shape", template{{text: "pk = :pk AND sk > :after"}}, true, mutants{
			"sk > :after: >= for >": "pk = :pk AND sk >= :after",
		}},
		{"a message", template{{text: "the store did not answer"}}, false, mutants{}},
		{"an assignment", template{{text: "version = version + :one"}}, false, mutants{}},
		{"an unclosed bracket", template{{text: "(a = :a"}}, false, mutants{}},
		{"nothing", template{{text: ""}}, false, mutants{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := mutants{}
			for _, m := range mutateCondition(c.in, c.ofKeys) {
				got[m.what] = m.broken.String()
			}
			for what, condition := range c.want {
				if got[what] != condition {
					t.Errorf("%s:\n got %q\nwant %q", what, got[what], condition)
				}
				delete(got, what)
			}
			for what, condition := range got {
				t.Errorf("not asked for: %s: %q", what, condition)
			}
		})
	}
}

func TestCodeThatTouchesAWordIsPartOfIt(t *testing.T) {
	tokens := tokenize(template{{text: "a = :x_"}, {text: "n", code: true}, {text: " AND b=:y"}, {text: "f()", code: true}})
	var got []string
	for _, token := range tokens {
		got = append(got, token.String())
	}
	want := []string{"a", "=", ":x_{n}", "AND", "b", "=", ":y", "{f()}"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
