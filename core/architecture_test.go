package core_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "drawbridge"

// layers are the folders of design section 2 and what each may import, beside
// the standard library and itself. A prefix stands for everything under it.
var layers = []struct {
	folder string
	may    []string
}{
	{"core/coretest", []string{module + "/core"}},
	{"core", []string{"github.com/google/uuid"}},
	{"ddb", []string{module + "/core", "github.com/aws/"}},
	{"s3queue", []string{module + "/core", "github.com/aws/"}},
	{"functions", []string{module + "/core", module + "/ddb", module + "/s3queue", module + "/functions", "github.com/aws/", "github.com/santhosh-tekuri/jsonschema"}},
}

// testsMay lists what tests of every layer but core may import beside: they run
// over the embedded AWS and the template, behind the local gateway and the runtime
// emulator, and check history and schemas.
var testsMay = []string{
	module + "/core", module + "/localstack/fakeaws", module + "/localstack/template", module + "/localstack/provision",
	module + "/localstack/gateway", module + "/localstack/lambda",
	"github.com/anishathalye/porcupine", "github.com/santhosh-tekuri/jsonschema",
}

// TestLayersImportOnlyWhatTheDesignAllows reads the import clauses of the whole
// tree: core knows no adapter and no AWS, adapters do not know each other, and
// nothing but the runner in localstack knows functions.
func TestLayersImportOnlyWhatTheDesignAllows(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		folder := filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))
		if entry.IsDir() {
			if name := entry.Name(); name != ".." && strings.HasPrefix(name, ".") || name == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		for _, layer := range layers {
			if strings.HasPrefix(folder, layer.folder+"/") {
				seen[layer.folder] = true
				checkImports(t, path, layer.folder, layer.may)
				return nil
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		if !seen[layer.folder] {
			t.Errorf("%s holds no Go file: the check looks in the wrong place", layer.folder)
		}
	}
}

func checkImports(t *testing.T, path, folder string, may []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Error(err)
		return
	}
	allowed := append([]string{module + "/" + folder}, may...)
	if strings.HasSuffix(path, "_test.go") {
		allowed = append(allowed, testsMay...)
	}
	for _, spec := range file.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Error(err)
			continue
		}
		if !isStandard(name) && !isAllowed(name, allowed) {
			t.Errorf("%s imports %s, which %s may not", path, name, folder)
		}
	}
}

// isStandard tells whether a package is the standard library's: the first part
// of any other has a dot, or is this module.
func isStandard(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return !strings.Contains(first, ".") && first != module
}

func isAllowed(name string, allowed []string) bool {
	for _, prefix := range allowed {
		if name == prefix || strings.HasPrefix(name, strings.TrimSuffix(prefix, "/")+"/") {
			return true
		}
	}
	return false
}
