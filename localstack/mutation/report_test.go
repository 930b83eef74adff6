package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWhatSurvivesOrIsWronglyListedIsComplainedOf(t *testing.T) {
	all := []mutant{{name: "killed"}, {name: "alive"}, {name: "passed by"}, {name: "same"}, {name: "not the same"}}
	verdicts := []*verdict{
		{mutant: all[0], killer: "core TestX"},
		{mutant: all[1]},
		{mutant: all[2], unreached: true},
		{mutant: all[3], equivalent: "reason"},
		{mutant: all[4], equivalent: "reason", killer: "core TestX"},
	}
	listed := map[string]string{"same": "reason", "not the same": "reason", "gone": "reason"}
	want := []string{
		"SURVIVED, no test comes by: passed by",
		"SURVIVED: alive",
		"listed as equivalent and killed by core TestX: not the same",
		"listed as equivalent and not there: gone",
	}
	if got := complaints(verdicts, listed, all); !slices.Equal(got, want) {
		t.Errorf("got:\n%s", strings.Join(got, "\n"))
	}
}

func TestAReportKeepsWhatWasNotJudged(t *testing.T) {
	name := filepath.Join(t.TempDir(), "report.txt")
	all := []mutant{{name: "a"}, {name: "b"}, {name: "c"}}
	before := map[string]string{"a": "core TestA", "b": "core TestB", "gone": "core TestC"}
	if err := writeReport(name, []*verdict{{mutant: all[1]}}, before, all); err != nil {
		t.Fatal(err)
	}
	got, err := readPairs(name)
	if err != nil || len(got) != 2 || got["a"] != "core TestA" || got["b"] != survived {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestAListIsRefusedByItsLine(t *testing.T) {
	for _, text := range []string{"a mutant without a reason\n", "twice\tx\ntwice\ty\n"} {
		name := filepath.Join(t.TempDir(), "list.txt")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if pairs, err := readPairs(name); err == nil {
			t.Errorf("%q was read as %v", text, pairs)
		}
	}
}

// Every entry of the list names a file that is there and gives a reason.
func TestTheListOfEquivalentMutantsGivesReasons(t *testing.T) {
	listed, err := readPairs("equivalent.txt")
	if err != nil {
		t.Fatal(err)
	}
	for name, reason := range listed {
		file, _, _ := strings.Cut(name, ":")
		if _, err := os.Stat(filepath.Join("..", "..", file)); err != nil || len(reason) < 20 {
			t.Errorf("%s: %q, %v", name, reason, err)
		}
	}
}
