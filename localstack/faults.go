package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"go.yaml.in/yaml/v3"

	"drawbridge/localstack/fakeaws"
)

// A faultFile tells how the embedded AWS and the schedules misbehave. docs of the
// fields: Rule and its actions in package fakeaws.
type faultFile struct {
	Requests  []requestFault  `yaml:"requests"`
	Indexes   []indexFault    `yaml:"indexes"`
	Schedules []scheduleFault `yaml:"schedules"`
}

// A requestFault acts on the requests that match every field that is given.
type requestFault struct {
	Service     string  `yaml:"service"`
	Op          string  `yaml:"op"`
	Resource    string  `yaml:"resource"`
	Key         string  `yaml:"key"`
	Index       string  `yaml:"index"`
	Caller      string  `yaml:"caller"`
	After       int     `yaml:"after"`
	Count       int     `yaml:"count"`
	Probability float64 `yaml:"probability"`
	Seed        uint64  `yaml:"seed"`

	Do     string        `yaml:"do"`
	For    time.Duration `yaml:"for"`    // delay, delay-response
	Status int           `yaml:"status"` // error, error-after
	Code   string        `yaml:"code"`   // error, error-after, error-with-200
}

// An indexFault makes a global index lag behind its table.
type indexFault struct {
	Table string        `yaml:"table"`
	Index string        `yaml:"index"`
	Lag   time.Duration `yaml:"lag"`
}

// A scheduleFault acts on ticks of the schedules whose names match the pattern.
type scheduleFault struct {
	Schedule string        `yaml:"schedule"`
	After    int           `yaml:"after"` // leave the first ticks alone
	Count    int           `yaml:"count"` // act on so many of the following ones; 0: on all
	Do       string        `yaml:"do"`    // late, twice, never
	By       time.Duration `yaml:"by"`    // late
}

// loadFaults reads a fault file; no path means no faults. names are the schedules
// there are.
func loadFaults(file string, names []string) (*fakeaws.Script, []scheduleFault, error) {
	script := &fakeaws.Script{}
	if file == "" {
		return script, nil, nil
	}
	src, err := os.Open(file)
	if err != nil {
		return nil, nil, fmt.Errorf("read the faults: %w", err)
	}
	defer src.Close()
	var f faultFile
	dec := yaml.NewDecoder(src)
	dec.KnownFields(true)
	if err := dec.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("read the faults of %s: %w", file, err)
	}
	if err := f.apply(script, names); err != nil {
		return nil, nil, fmt.Errorf("read the faults of %s: %w", file, err)
	}
	return script, f.Schedules, nil
}

func (f *faultFile) apply(script *fakeaws.Script, names []string) error {
	for i, r := range f.Requests {
		rule, err := r.rule()
		if err != nil {
			return fmt.Errorf("requests[%d]: %w", i, err)
		}
		script.Add(rule)
	}
	for i, x := range f.Indexes {
		if x.Table == "" || x.Index == "" || x.Lag <= 0 {
			return fmt.Errorf("indexes[%d]: table, index and a positive lag are needed", i)
		}
		script.LagIndex(x.Table, x.Index, x.Lag)
	}
	for i, s := range f.Schedules {
		if err := s.check(names); err != nil {
			return fmt.Errorf("schedules[%d]: %w", i, err)
		}
	}
	return nil
}

func (r requestFault) rule() (fakeaws.Rule, error) {
	action, err := r.action()
	if err == nil && (r.After < 0 || r.Count < 0 || r.Probability < 0 || r.Probability > 1) {
		err = errors.New("after and count must not be negative, probability is from 0 to 1")
	}
	return fakeaws.Rule{
		Service: r.Service, Op: r.Op, Resource: r.Resource, Key: r.Key, Index: r.Index, Caller: r.Caller,
		After: r.After, Count: r.Count, Probability: r.Probability, Seed: r.Seed, Action: action,
	}, err
}

func (r requestFault) action() (fakeaws.Action, error) {
	switch r.Do {
	case "drop-request":
		return fakeaws.DropRequest(), nil
	case "drop-response":
		return fakeaws.DropResponse(), nil
	case "tear-response":
		return fakeaws.TearResponse(), nil
	case "transaction-conflict":
		return fakeaws.TransactionConflict(), nil
	case "collect-expired":
		return fakeaws.CollectExpired(), nil
	case "close-idle":
		return fakeaws.CloseIdle(), nil
	case "delay", "delay-response":
		return r.delay()
	case "error", "error-after", "error-with-200":
		return r.refusal()
	default:
		return fakeaws.Action{}, fmt.Errorf("do: %q is not understood", r.Do)
	}
}

func (r requestFault) delay() (fakeaws.Action, error) {
	if r.For <= 0 {
		return fakeaws.Action{}, fmt.Errorf("%s needs a positive duration in for", r.Do)
	}
	if r.Do == "delay" {
		return fakeaws.Delay(r.For), nil
	}
	return fakeaws.DelayResponse(r.For), nil
}

func (r requestFault) refusal() (fakeaws.Action, error) {
	if r.Code == "" {
		return fakeaws.Action{}, fmt.Errorf("%s needs AWS's error code in code", r.Do)
	}
	if r.Do == "error-with-200" {
		return fakeaws.ErrorWith200(r.Code), nil
	}
	if r.Status < 400 || r.Status > 599 {
		return fakeaws.Action{}, fmt.Errorf("%s needs a status from 400 to 599", r.Do)
	}
	if r.Do == "error" {
		return fakeaws.Error(r.Status, r.Code), nil
	}
	return fakeaws.ErrorAfter(r.Status, r.Code), nil
}

func (s scheduleFault) check(names []string) error {
	if s.After < 0 || s.Count < 0 {
		return errors.New("after and count must not be negative")
	}
	if (s.Do == "late") != (s.By > 0) {
		return errors.New("late needs a positive duration in by, and nothing else takes one")
	}
	if s.Do != "late" && s.Do != "twice" && s.Do != "never" {
		return fmt.Errorf("do: %q is not understood; it must be late, twice or never", s.Do)
	}
	for _, name := range names {
		if s.matches(name) {
			return nil
		}
	}
	return fmt.Errorf("no schedule matches %q; there are %v", s.Schedule, names)
}

func (s scheduleFault) matches(name string) bool {
	ok, err := path.Match(s.Schedule, name)
	return err == nil && ok
}

// acts tells whether the fault acts on the nth tick of a schedule, counted from 0.
func (s scheduleFault) acts(name string, n int) bool {
	return s.matches(name) && n >= s.After && (s.Count == 0 || n < s.After+s.Count)
}
