package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// command runs the command in process until it has nothing more to do.
func command(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, terminal{out: &o, err: &e, getenv: none})
	return code, o.String(), e.String()
}

func TestMistakesInTheCommandLineAreToldInOneLine(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-no-such"}, "flag provided but not defined: -no-such"},
		{[]string{"strat"}, `"strat" is not understood`},
		{[]string{"-tick", "-1"}, "-tick must be 0 or from 0.0001 to 10000"},
		{[]string{"-tick", "NaN"}, "-tick must be 0 or from 0.0001 to 10000"},
		{[]string{"-tick", "20000"}, "-tick must be 0 or from 0.0001 to 10000"},
		{[]string{"-tick", "1e-12"}, "-tick must be 0 or from 0.0001 to 10000"}, // no time.Duration is that long
		{[]string{"-log", "LOUD"}, "LOUD"},
		{[]string{"doctor", "-endpoint", "https://example.com"}, "allow scratch ones with -create"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			t.Setenv("AWS_REGION", "us-east-1")
			code, out, errs := command(t, c.args...)
			if code != exitUsage || out != "" || !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 {
				t.Errorf("code %d, out %q, err %q", code, out, errs)
			}
		})
	}
}

func TestHelpListsEveryFlag(t *testing.T) {
	for name, flags := range map[string][]string{
		"":       {"-http", "-aws", "-data", "-memory", "-log", "-tick", "-faults", "-template", "-create", "DRAWBRIDGE_TOKEN", "doctor", "queue"},
		"doctor": {"-endpoint", "-table", "-bucket", "-create"},
	} {
		args := append(strings.Fields(name), "-help")
		code, out, errs := command(t, args...)
		if code != 0 || errs != "" {
			t.Errorf("%v: code %d, err %q", args, code, errs)
		}
		for _, f := range flags {
			if !strings.Contains(out, f) {
				t.Errorf("%v does not mention %s", args, f)
			}
		}
	}
}

func TestTheTemplateIsLookedForInTheFoldersAbove(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "a", "b")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(deep)
	if _, err := findTemplate(""); err == nil || !strings.Contains(err.Error(), "name it with -template") {
		t.Errorf("without a template: %v", err)
	}
	path := filepath.Join(root, "template.yaml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := findTemplate("")
	if err != nil {
		t.Fatal(err)
	}
	if resolved, err := filepath.EvalSymlinks(path); err != nil || got != path && got != resolved {
		t.Errorf("found %s, want %s (%v)", got, path, err)
	}
	if got, err := findTemplate("other.yaml"); err != nil || got != "other.yaml" {
		t.Errorf("found %s, %v", got, err)
	}
}
