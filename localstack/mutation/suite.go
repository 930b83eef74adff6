package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// worthSplitting is how long a test takes whose subtests are run one by one.
	worthSplitting = 1200 * time.Millisecond
	// longest bounds a run without a mutant. With one, a run has tenfold what it
	// took without, and patience on top: a mutant may make a test wait for ever.
	longest  = 3 * time.Minute
	patience = 20 * time.Second
)

// A unit is a test, or one of its subtests where it has slow ones.
type unit struct {
	Folder  string // of its package
	Test    string
	Sub     string // "": the whole test
	Took    time.Duration
	Reaches []int // the mutants whose switches it passes
}

func (u unit) String() string {
	if u.Sub == "" {
		return u.Folder + " " + u.Test
	}
	return u.Folder + " " + u.Test + "/" + u.Sub
}

// parseUnit reads the form of String.
func parseUnit(s string) (unit, bool) {
	folder, name, ok := strings.Cut(s, " ")
	test, sub, _ := strings.Cut(name, "/")
	return unit{Folder: folder, Test: test, Sub: sub, Took: worthSplitting}, ok
}

// pattern selects the unit in its test binary.
func (u unit) pattern() string {
	p := "^" + regexp.QuoteMeta(u.Test) + "$"
	if u.Sub != "" {
		p += "/^" + regexp.QuoteMeta(u.Sub) + "$"
	}
	return p
}

// A suite is the test binaries with all switches in them.
type suite struct {
	root, work string
	overlay    string
	binaries   map[string]string // by folder
}

// build compiles the tests of a package, once.
func (s *suite) build(ctx context.Context, folder string) error {
	if s.binaries[folder] != "" {
		return nil
	}
	name := filepath.Join(s.work, strings.ReplaceAll(folder, "/", "_")+".test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", s.overlay, "-o", name, "./"+folder)
	build.Dir = s.root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("compile the tests of %s: %w\n%s", folder, err, out)
	}
	s.binaries[folder] = name
	return nil
}

// A run is how a unit went.
type run struct {
	failed bool
	took   time.Duration
	output []byte
}

// run runs a unit with mutants turned on.
func (s *suite) run(ctx context.Context, u unit, mutants []int, limit time.Duration, env ...string) (run, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	command := exec.CommandContext(ctx, s.binaries[u.Folder], "-test.v", "-test.failfast", "-test.run", u.pattern())
	command.Dir = filepath.Join(s.root, u.Folder)
	command.WaitDelay = time.Second
	ids := make([]string, len(mutants))
	for i, id := range mutants {
		ids[i] = strconv.Itoa(id)
	}
	command.Env = append(os.Environ(), append(env, "DRAWBRIDGE_MUTANTS="+strings.Join(ids, ","))...)
	begun := time.Now()
	out, err := command.CombinedOutput()
	var exited *exec.ExitError
	if err != nil && ctx.Err() == nil && !errors.As(err, &exited) {
		return run{}, fmt.Errorf("run %v: %w", u, err)
	}
	return run{failed: err != nil, took: time.Since(begun), output: out}, nil
}

var subtestLine = regexp.MustCompile(`(?m)^    --- PASS: [^/\s]+/(\S+) \(`)

// measure runs every test of a package without a mutant, to learn how long each
// takes and which switches it passes. What it learns it keeps beside the binary,
// for as long as that stays the same.
func (s *suite) measure(ctx context.Context, folder string, workers int, log io.Writer) ([]unit, error) {
	if err := s.build(ctx, folder); err != nil {
		return nil, err
	}
	kept, err := s.keptMeasure(folder)
	if err != nil {
		return nil, err
	}
	var units []unit
	if known, err := os.ReadFile(kept); err == nil && json.Unmarshal(known, &units) == nil {
		return units, nil
	}
	list := exec.CommandContext(ctx, s.binaries[folder], "-test.list", ".")
	list.Dir = filepath.Join(s.root, folder)
	names, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", folder, err)
	}
	tests := slices.DeleteFunc(strings.Fields(string(names)), func(name string) bool { return strings.HasPrefix(name, "Benchmark") })
	var mu sync.Mutex
	err = inParallel(tests, workers, func(name string) error {
		found, err := s.measureTest(ctx, unit{Folder: folder, Test: name})
		mu.Lock()
		defer mu.Unlock()
		if units = append(units, found...); len(found) == 0 && err == nil {
			fmt.Fprintf(log, "left out, it fails without a mutant: %s %s\n", folder, name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(units)
	if err != nil {
		return nil, fmt.Errorf("encode what was measured: %w", err)
	}
	if err := os.WriteFile(kept, encoded, 0o600); err != nil {
		return nil, fmt.Errorf("keep what was measured: %w", err)
	}
	return units, nil
}

func (s *suite) keptMeasure(folder string) (string, error) {
	binary, err := os.ReadFile(s.binaries[folder])
	if err != nil {
		return "", fmt.Errorf("read the test binary: %w", err)
	}
	sum := sha256.Sum256(binary)
	return filepath.Join(s.work, "measured-"+hex.EncodeToString(sum[:8])+".json"), nil
}

// measureTest measures a test, and its subtests alone where it takes long. It
// returns nothing for one that fails.
func (s *suite) measureTest(ctx context.Context, u unit) ([]unit, error) {
	r, reaches, err := s.trace(ctx, u)
	if err != nil {
		return nil, err
	}
	if r.failed {
		return nil, nil
	}
	subtests := subtestLine.FindAllSubmatch(r.output, -1)
	if r.took < worthSplitting || len(subtests) < 2 || u.Sub != "" {
		u.Took, u.Reaches = r.took, reaches
		return []unit{u}, nil
	}
	var units []unit
	for _, name := range subtests {
		u.Sub = string(name[1])
		found, err := s.measureTest(ctx, u)
		if err != nil {
			return nil, err
		}
		units = append(units, found...)
	}
	return units, nil
}

// trace runs a unit without a mutant and tells which switches it passed.
func (s *suite) trace(ctx context.Context, u unit) (run, []int, error) {
	file, err := os.CreateTemp(s.work, "reached-")
	if err != nil {
		return run{}, nil, fmt.Errorf("make a file for the trace: %w", err)
	}
	name := file.Name()
	defer os.Remove(name)
	if err := file.Close(); err != nil {
		return run{}, nil, fmt.Errorf("make a file for the trace: %w", err)
	}
	r, err := s.run(ctx, u, nil, longest, "DRAWBRIDGE_MUTANTS_REACHED="+name)
	if err != nil {
		return run{}, nil, err
	}
	trace, err := os.ReadFile(name)
	if err != nil {
		return run{}, nil, fmt.Errorf("read the trace: %w", err)
	}
	var reaches []int
	for lines := bufio.NewScanner(bytes.NewReader(trace)); lines.Scan(); {
		id, err := strconv.Atoi(lines.Text())
		if err != nil {
			return run{}, nil, fmt.Errorf("read the trace: %w", err)
		}
		reaches = append(reaches, id)
	}
	slices.Sort(reaches)
	return r, slices.Compact(reaches), nil
}
