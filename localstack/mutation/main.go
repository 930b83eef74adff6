// Command mutation breaks one guard of the hub at a time and tells which test
// fails for it. Run it from the module's root, with make mutation.
//
// It looks for guards in the sources of core, ddb and s3queue and in the
// authentication of functions: each conjunct and alternative of DynamoDB's
// conditions, each condition of a transaction's action, IfMatch and IfNoneMatch
// of requests to S3, and in the Go code each comparison of fences, moments,
// leases and write ids, each edge between before and at a moment, and each
// maximum that keeps a number from going back. New code is found by the same
// rules.
//
// All mutants are compiled into the tests once, each behind a switch, through
// go test's -overlay: the tree is not touched. A run of a test turns one on. A
// test is tried on a mutant only if it passes the mutant's switch. A test has to
// fail twice to kill.
//
// report.txt holds what killed each mutant at the last full run, and is where the
// next one begins. equivalent.txt holds the mutants that change nothing, each
// with the reason. The command fails for a mutant that survives and is not on
// that list, and for an entry of it that is killed or there no more.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var o options
	flag.IntVar(&o.sample, "sample", 0, "judge only so many mutants, by the tests that killed them last time")
	flag.Int64Var(&o.seed, "seed", time.Now().UnixNano(), "choose the sample by this number")
	flag.StringVar(&o.only, "only", "", "judge only mutants whose names match this regular expression")
	flag.StringVar(&o.tests, "tests", "", "use only tests whose names match, and leave the report as it is")
	flag.StringVar(&o.work, "work", "", "keep the test binaries, and what was measured of them, in this folder")
	flag.IntVar(&o.workers, "workers", 1, "run so many tests at once")
	flag.Parse()
	if err := mutate(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		stop()
		os.Exit(1)
	}
}

type options struct {
	sample  int
	seed    int64
	only    string
	tests   string
	work    string
	workers int
}

// The files beside this program.
const (
	reportFile     = "localstack/mutation/report.txt"
	equivalentFile = "localstack/mutation/equivalent.txt"
)

func mutate(ctx context.Context, o options) error {
	begun := time.Now()
	root, err := filepath.Abs(".")
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return fmt.Errorf("read -only: %w", err)
	}
	t, err := plant(root)
	if err != nil {
		return err
	}
	killers, err := readPairs(reportFile)
	if err != nil {
		return err
	}
	listed, err := readPairs(equivalentFile)
	if err != nil {
		return err
	}
	if o.work == "" {
		if o.work, err = os.MkdirTemp("", "drawbridge-mutation-"); err != nil {
			return fmt.Errorf("make a work folder: %w", err)
		}
		defer os.RemoveAll(o.work)
	}
	if err := os.MkdirAll(o.work, 0o700); err != nil {
		return fmt.Errorf("make the work folder: %w", err)
	}
	s := &suite{root: root, work: o.work, binaries: map[string]string{}}
	if s.overlay, err = t.write(o.work); err != nil {
		return err
	}
	var verdicts []*verdict
	for _, m := range t.mutants {
		if only.MatchString(m.name) {
			verdicts = append(verdicts, &verdict{mutant: m, equivalent: listed[m.name]})
		}
	}
	j := &judge{suite: s, log: os.Stdout, workers: o.workers}
	if o.sample > 0 {
		return j.sample(ctx, verdicts, killers, o)
	}
	if err := j.measureAndJudge(ctx, verdicts, killers, o.tests); err != nil {
		return err
	}
	if o.tests == "" {
		if err := writeReport(reportFile, verdicts, killers, t.mutants); err != nil {
			return err
		}
	}
	fmt.Printf("\n%s\n%d mutants in %v\n", summary(verdicts), len(verdicts), time.Since(begun).Round(time.Second))
	return refuse(complaints(verdicts, listed, t.mutants))
}

func refuse(wrong []string) error {
	if len(wrong) > 0 {
		return errors.New(strings.Join(append([]string{fmt.Sprintf("%d complaints", len(wrong))}, wrong...), "\n  "))
	}
	return nil
}

// measureAndJudge is a full run.
func (j *judge) measureAndJudge(ctx context.Context, verdicts []*verdict, killers map[string]string, tests string) error {
	wanted, err := regexp.Compile(tests)
	if err != nil {
		return fmt.Errorf("read -tests: %w", err)
	}
	var units []unit
	for _, folder := range testFolders(verdicts) {
		measured, err := j.suite.measure(ctx, folder, j.workers, j.log)
		if err != nil {
			return err
		}
		for _, u := range measured {
			if wanted.MatchString(u.String()) {
				units = append(units, u)
			}
		}
	}
	slices.SortStableFunc(units, func(a, b unit) int { return cmp.Compare(a.Took, b.Took) })
	fmt.Fprintf(j.log, "%d mutants, %d tests\n", len(verdicts), len(units))
	return j.all(ctx, verdicts, units, killers)
}

// testFolders are the packages whose tests are needed.
func testFolders(verdicts []*verdict) []string {
	var folders []string
	seen := map[string]bool{}
	for _, v := range verdicts {
		for _, folder := range v.mutant.target.tests {
			if !seen[folder] {
				seen[folder] = true
				folders = append(folders, folder)
			}
		}
	}
	return folders
}

// sample judges a few mutants by the tests that killed them before. What the
// report does not know yet is told, and left to a full run.
func (j *judge) sample(ctx context.Context, verdicts []*verdict, killers map[string]string, o options) error {
	fmt.Fprintf(j.log, "sample of %d, -seed %d\n", o.sample, o.seed)
	unknown := 0
	var known []*verdict
	for _, v := range verdicts {
		killer := killers[v.mutant.name]
		if _, is := parseUnit(killer); is {
			known = append(known, v)
		} else if killer == "" {
			unknown++
		}
	}
	if unknown > 0 {
		fmt.Fprintf(j.log, "%d mutants are newer than the report: run make mutation\n", unknown)
	}
	random := rand.New(rand.NewPCG(uint64(o.seed), 0))
	random.Shuffle(len(known), func(a, b int) { known[a], known[b] = known[b], known[a] })
	known = known[:min(o.sample, len(known))]
	err := inParallel(known, o.workers, func(v *verdict) error {
		u, _ := parseUnit(killers[v.mutant.name])
		j.mu.Lock()
		err := j.suite.build(ctx, u.Folder)
		j.mu.Unlock()
		if err != nil {
			return err
		}
		killed, err := j.kills(ctx, u, v.mutant)
		if killed && err == nil {
			j.kill(v, u)
		}
		return err
	})
	if err != nil {
		return err
	}
	return refuse(complaints(known, nil, nil))
}
