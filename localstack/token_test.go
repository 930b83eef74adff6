package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func none(string) string { return "" }

func TestTheTokenIsMadeOnceAndOnlyItsOwnerMayReadIt(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "new", "data")
	first, err := findToken(folder, none)
	if err != nil {
		t.Fatal(err)
	}
	if len(first.value) < 43 { // 256 bits in base64
		t.Errorf("the token has %d characters", len(first.value))
	}
	second, err := findToken(folder, none)
	if err != nil || second != first {
		t.Errorf("the second start got another token: %v, %v", second.place, err)
	}
	path := filepath.Join(folder, "token")
	for file, want := range map[string]os.FileMode{path: 0o600, folder: 0o700} {
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v (%v)", file, info.Mode().Perm(), want, err)
		}
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
	if first.place != path || strings.Contains(first.shell, first.value) {
		t.Errorf("place %q, shell %q", first.place, first.shell)
	}
}

func TestATokenFileThatOthersCanReadIsClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("secret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	token, err := findToken(filepath.Dir(path), none)
	if err != nil || token.value != "secret" {
		t.Fatalf("got %q, %v", token.value, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode().Perm(), err)
	}
}

func TestAnEmptyTokenFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := findToken(filepath.Dir(path), none); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("got %v", err)
	}
}

func TestATokenFileThatNoHeaderCanCarryIsRefused(t *testing.T) {
	for _, text := range []string{"two words", "t\u00f6ken", strings.Repeat("x", 1025)} {
		path := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := findToken(filepath.Dir(path), none); err == nil || !strings.Contains(err.Error(), "something else than a token") {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

func TestATokenOfTheEnvironmentIsWrittenNowhere(t *testing.T) {
	folder := t.TempDir()
	token, err := findToken(folder, func(name string) string {
		return map[string]string{"DRAWBRIDGE_TOKEN": "from-the-environment"}[name]
	})
	if err != nil || token.value != "from-the-environment" || token.shell != "$DRAWBRIDGE_TOKEN" {
		t.Errorf("got %+v, %v", token, err)
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 0 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
	for _, bad := range []string{"two words", "line\nbreak", "ünicode", "tab\t", strings.Repeat("x", 1025)} {
		if _, err := findToken(folder, func(string) string { return bad }); err == nil {
			t.Errorf("the token %q was taken", bad)
		}
	}
}

func TestPathsAreQuotedForAShell(t *testing.T) {
	for path, want := range map[string]string{
		".drawbridge/token": ".drawbridge/token",
		"/a b/token":        "'/a b/token'",
		"/it's/$HOME":       `'/it'\''s/$HOME'`,
	} {
		if got := quote(path); got != want {
			t.Errorf("quote(%q) = %s, want %s", path, got, want)
		}
	}
}
