package core_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"drawbridge/core"
)

func TestTheCatalogueListsEveryCodeOnceWithAKindAndAMeaning(t *testing.T) {
	listed := map[core.Code]bool{}
	for _, entry := range core.Codes {
		if listed[entry.Code] {
			t.Errorf("%s is listed twice", entry.Code)
		}
		listed[entry.Code] = true
		if entry.Kind == "" || !strings.HasSuffix(entry.Meaning, ".") {
			t.Errorf("%s has kind %q and meaning %q", entry.Code, entry.Kind, entry.Meaning)
		}
		if entry.Retryable != (entry.Kind == core.KindThrottled || entry.Kind == core.KindUnavailable) && entry.Code != core.CodeConductorUnavailable {
			t.Errorf("%s is %s and retryable %t", entry.Code, entry.Kind, entry.Retryable)
		}
	}
	for name, code := range declaredCodes(t) {
		if !listed[code] {
			t.Errorf("%s (%s) is not in the catalogue", name, code)
		}
	}
}

// declaredCodes reads the constants of type Code out of the source.
func declaredCodes(t *testing.T) map[string]core.Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]core.Code{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Code") {
			return true
		}
		if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			codes[spec.Names[0].Name] = core.Code(text)
		}
		return true
	})
	if len(codes) < 30 {
		t.Fatalf("only %d codes were found in the source", len(codes))
	}
	return codes
}

func TestAnErrorKeepsItsCauseAwayFromItsMessage(t *testing.T) {
	cause := errors.New("table arn:secret")
	err := fmt.Errorf("read agent: %w", core.Wrap(core.CodeUnavailable, "the store did not answer", cause))
	var e *core.Error
	if !errors.As(err, &e) || strings.Contains(e.Message, "secret") || !errors.Is(err, cause) || e.RetryAfter <= 0 {
		t.Fatalf("error is %+v", e)
	}
	if code := core.CodeOf(errors.New("anything")); code != core.CodeInternal {
		t.Fatalf("an error without a code is %s", code)
	}
	if code := core.CodeOf(nil); code != "" {
		t.Fatalf("no error is %s", code)
	}
	if entry := core.Code("NO_SUCH_CODE").Entry(); entry.Code != core.CodeInternal {
		t.Fatalf("a code outside the catalogue is described as %s", entry.Code)
	}
}
