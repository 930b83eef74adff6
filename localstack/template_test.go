package main

import (
	"maps"
	"slices"
	"testing"

	"drawbridge/functions"
	"drawbridge/localstack/template"
)

func projectTemplate(t *testing.T) *template.Template {
	t.Helper()
	got, err := template.Load("../template.yaml", template.Local())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// declared is what one side says about a route.
type declared struct{ handler, scope string }

func TestTheTemplateDeclaresTheRoutesOfTheRegistryAndNoOthers(t *testing.T) {
	registered := map[string]declared{"$default": {functions.DefaultName, string(functions.ScopePublic)}}
	for _, e := range functions.Endpoints() {
		registered[e.Method+" "+e.Path] = declared{e.Name, string(e.Scope)}
	}
	routed := map[string]declared{}
	for _, f := range projectTemplate(t).Functions {
		for _, r := range f.Routes {
			routed[r.Key()] = declared{f.Handler, f.Scope}
		}
	}
	compare(t, registered, routed)
}

func TestTheTemplateSchedulesEverySweepAndNothingElse(t *testing.T) {
	registered, scheduled := map[string]declared{}, map[string]declared{}
	for _, s := range functions.Sweeps() {
		registered[s.Name] = declared{handler: s.Name}
	}
	for _, s := range projectTemplate(t).Schedules() {
		scheduled[s.Handler] = declared{handler: s.Handler}
	}
	compare(t, registered, scheduled)
}

func compare(t *testing.T, registered, inTemplate map[string]declared) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(registered)) {
		if got, ok := inTemplate[key]; !ok {
			t.Errorf("%s is in the registry and not in template.yaml", key)
		} else if got != registered[key] {
			t.Errorf("%s: the registry says %v, template.yaml %v", key, registered[key], got)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(inTemplate)) {
		if _, ok := registered[key]; !ok {
			t.Errorf("%s is in template.yaml and not in the registry", key)
		}
	}
}

func TestEveryHandlerHasOneFunction(t *testing.T) {
	owner := map[string]string{}
	for _, f := range projectTemplate(t).Functions {
		if other := owner[f.Handler]; other != "" {
			t.Errorf("%s and %s have the handler %s", other, f.LogicalID, f.Handler)
		}
		owner[f.Handler] = f.LogicalID
	}
}
