package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// readPairs reads a file of lines that hold two texts, apart by a tab. Empty
// lines and those that begin with # are left out. No file is an empty one.
func readPairs(name string) (map[string]string, error) {
	file, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	defer file.Close()
	pairs := map[string]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, ok := strings.Cut(line, "\t")
		if !ok || pairs[key] != "" {
			return nil, fmt.Errorf("%s: a line is not a new mutant, a tab and a text: %q", name, line)
		}
		pairs[key] = value
	}
	return pairs, lines.Err()
}

// writeReport writes what killed each mutant: what this run found, and what the
// report said of the mutants that were not judged.
func writeReport(name string, verdicts []*verdict, before map[string]string, all []mutant) error {
	found := map[string]string{}
	for _, v := range verdicts {
		found[v.mutant.name] = v.outcome()
	}
	var b strings.Builder
	b.WriteString("# Each mutant and the test that kills it; written by make mutation.\n")
	for _, m := range all {
		if outcome := cmp.Or(found[m.name], before[m.name]); outcome != "" {
			fmt.Fprintf(&b, "%s\t%s\n", m.name, outcome)
		}
	}
	if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

const (
	survived   = "SURVIVED"
	equivalent = "equivalent"
)

func (v *verdict) outcome() string {
	switch {
	case v.killer != "":
		return v.killer
	case v.equivalent != "":
		return equivalent
	}
	return survived
}

// summary counts per file.
func summary(verdicts []*verdict) string {
	type counts struct{ mutants, killed, equivalent, survived int }
	byFile := map[string]*counts{}
	var files []string
	total := &counts{}
	for _, v := range verdicts {
		if byFile[v.mutant.file] == nil {
			byFile[v.mutant.file] = &counts{}
			files = append(files, v.mutant.file)
		}
		for _, c := range []*counts{byFile[v.mutant.file], total} {
			c.mutants++
			switch v.outcome() {
			case survived:
				c.survived++
			case equivalent:
				c.equivalent++
			default:
				c.killed++
			}
		}
	}
	slices.Sort(files)
	var b strings.Builder
	b.WriteString("| file | mutants | killed | equivalent | survived |\n|---|---|---|---|---|\n")
	row := func(name string, c *counts) {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", name, c.mutants, c.killed, c.equivalent, c.survived)
	}
	for _, file := range files {
		row(file, byFile[file])
	}
	row("all", total)
	return b.String()
}

// complaints are what keeps a run from succeeding: mutants that survived, and
// entries of the list of equivalent ones that are none.
func complaints(verdicts []*verdict, listed map[string]string, all []mutant) []string {
	var wrong []string
	for _, v := range verdicts {
		switch {
		case v.killer != "" && v.equivalent != "":
			wrong = append(wrong, "listed as equivalent and killed by "+v.killer+": "+v.mutant.name)
		case v.outcome() == survived && v.unreached:
			wrong = append(wrong, "SURVIVED, no test comes by: "+v.mutant.name)
		case v.outcome() == survived:
			wrong = append(wrong, "SURVIVED: "+v.mutant.name)
		}
	}
	for name := range listed {
		if !slices.ContainsFunc(all, func(m mutant) bool { return m.name == name }) {
			wrong = append(wrong, "listed as equivalent and not there: "+name)
		}
	}
	slices.Sort(wrong)
	return wrong
}
