package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A target is a package whose guards are broken, and the packages whose tests
// are to notice, the likeliest first.
type target struct {
	folder string
	files  []string // only these, where the rest is judged by other means
	tests  []string
}

var targets = []target{
	{folder: "core", tests: []string{"core", "ddb", "s3queue", "functions"}},
	{folder: "ddb", tests: []string{"ddb", "functions", "localstack/linearizability"}},
	{folder: "s3queue", tests: []string{"s3queue", "functions"}},
	{folder: "functions", files: []string{"auth.go"}, tests: []string{"functions"}},
}

// A mutant is one guard, broken. Its name stays when lines move.
type mutant struct {
	id     int
	name   string // file:function: what was done
	file   string
	target *target
}

// A tree is the module with a switch at every guard: the copies of its files
// that go test's -overlay puts into the place of the true ones.
type tree struct {
	root    string
	mutants []mutant
	overlay map[string]string // by path, the text
}

//go:embed switch.go.txt
var switchSource string

//go:embed unchecked.go.txt
var uncheckedSource string

// plant puts the switches into the packages of the targets.
func plant(root string) (*tree, error) {
	var packages []string
	for _, target := range targets {
		packages = append(packages, "./"+target.folder)
	}
	compiled, err := exportData(root, packages)
	if err != nil {
		return nil, err
	}
	t := &tree{root: root, overlay: map[string]string{}}
	for i := range targets {
		if err := t.plantPackage(&targets[i], compiled); err != nil {
			return nil, fmt.Errorf("plant %s: %w", targets[i].folder, err)
		}
	}
	return t, nil
}

// exports tells where the compiled form of each package is, by import path.
type exports map[string]string

// exportData compiles packages and what they import.
func exportData(root string, packages []string) (exports, error) {
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Export"}, packages...)...)
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	compiled := exports{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Export string }
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return compiled, nil
		case err != nil:
			return nil, fmt.Errorf("read the list of packages: %w", err)
		}
		compiled[p.ImportPath] = p.Export
	}
}

func (e exports) importer(files *token.FileSet) types.Importer {
	return importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(e[path]) })
}

func (t *tree) plantPackage(target *target, compiled exports) error {
	folder := filepath.Join(t.root, target.folder)
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return fmt.Errorf("find the files: %w", err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	files := token.NewFileSet()
	parsed := make([]*ast.File, len(names))
	for i, name := range names {
		if parsed[i], err = parser.ParseFile(files, name, nil, parser.SkipObjectResolution); err != nil {
			return fmt.Errorf("parse: %w", err)
		}
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: compiled.importer(files)}
	if _, err := config.Check(target.folder, files, parsed, info); err != nil {
		return fmt.Errorf("check the types: %w", err)
	}
	for i, name := range names {
		base := filepath.Base(name)
		if len(target.files) > 0 && !slices.Contains(target.files, base) {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		p := planter{tree: t, target: target, path: target.folder + "/" + base, source: source, files: files, info: info, names: map[string]int{}}
		p.file(parsed[i])
		t.overlay[name] = p.text()
	}
	t.overlay[filepath.Join(folder, "mutation_switch.go")] = switchOf(parsed[0].Name.Name, target.folder == "ddb")
	return nil
}

// switchOf is the file that turns mutants on and off.
func switchOf(name string, transacts bool) string {
	text := switchSource
	if transacts {
		text = strings.Replace(text, ")\n", "\n\t\"github.com/aws/aws-sdk-go-v2/service/dynamodb/types\"\n)\n", 1) + uncheckedSource
	}
	return "package " + name + "\n\n" + text
}

// write lays the overlay down in a folder and returns the file for -overlay.
func (t *tree) write(folder string) (string, error) {
	replace := map[string]string{}
	for path, text := range t.overlay {
		name := filepath.Join(folder, strings.ReplaceAll(strings.TrimPrefix(path, t.root+string(filepath.Separator)), string(filepath.Separator), "_"))
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("write the overlay: %w", err)
		}
		replace[path] = name
	}
	encoded, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("encode the overlay: %w", err)
	}
	name := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(name, encoded, 0o600); err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	return name, nil
}
