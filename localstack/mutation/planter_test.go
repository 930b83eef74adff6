package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

const guarded = `package ddb

type Instant int64

type record struct {
	Generation int64
	IfMatch    *string
	set        []string
	condition  []string
}

const live = "presence = :online AND lease_ms > :now"

func allowed(r record, generation int64, now, deadline Instant, size int) bool {
	if r.Generation != generation || size > 5 {
		return false
	}
	return now < deadline+1 && size < 3
}

func write(etag string, last, touched Instant) record {
	return record{
		IfMatch:   &etag,
		set:       []string{"epoch = :epoch"},
		condition: []string{live},
		Generation: int64(max(last, touched)),
	}
}
`

func plantText(t *testing.T, text string) (names []string, planted string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "guarded.go", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	if _, err := new(types.Config).Check("ddb", files, []*ast.File{file}, info); err != nil {
		t.Fatal(err)
	}
	p := planter{tree: &tree{}, target: &target{folder: "ddb"}, path: "ddb/guarded.go", source: []byte(text), files: files, info: info, names: map[string]int{}}
	p.file(file)
	for _, m := range p.tree.mutants {
		names = append(names, strings.TrimPrefix(m.name, "ddb/guarded.go:"))
	}
	return names, p.text()
}

func TestEveryGuardOfAFileGetsItsMutants(t *testing.T) {
	names, _ := plantText(t, guarded)
	want := []string{
		"allowed: drop alternative r.Generation != generation",
		"allowed: drop now < deadline+1",
		"allowed: now < deadline+1: <= for <",
		"allowed: deadline+1: without + 1",
		"write: without IfMatch",
		"write: drop presence = :online",
		"write: drop lease_ms > :now",
		"write: lease_ms > :now: >= for >",
		"write: max(last, touched): the first",
		"write: max(last, touched): the second",
	}
	if !slices.Equal(names, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(names, "\n"), strings.Join(want, "\n"))
	}
}

func TestAFileWithItsSwitchesCompiles(t *testing.T) {
	_, planted := plantText(t, guarded)
	files := token.NewFileSet()
	var parsed []*ast.File
	for name, text := range map[string]string{"guarded.go": planted, "switch.go": switchOf("ddb", false)} {
		file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		parsed = append(parsed, file)
	}
	compiled, err := exportData(".", []string{"cmp", "os", "strconv", "strings", "sync"})
	if err != nil {
		t.Fatal(err)
	}
	config := types.Config{Importer: compiled.importer(files)}
	if _, err := config.Check("ddb", files, parsed, nil); err != nil {
		t.Fatalf("%v\n%s", err, planted)
	}
}

func TestMutantsOfOneNameAreNumbered(t *testing.T) {
	names, _ := plantText(t, `package ddb

func both(epoch, other int64) bool {
	if epoch == other {
		return true
	}
	if epoch == other {
		return false
	}
	return true
}
`)
	want := []string{"both: never epoch == other", "both: never epoch == other #2"}
	if !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}
