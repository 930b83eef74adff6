package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"drawbridge/localstack/fakeaws"
)

// A faultFile tells how the embedded AWS and the schedules misbehave: the rules
// of fakeaws.ParseScript, and "schedules" beside them:
//
//	{
//	  "rules": [{"op": "UpdateItem", "count": 1, "action": "drop-response"}],
//	  "schedules": [
//	    {"schedule": "SweepAgents*", "after": 2, "count": 1, "action": "late", "by": "30s"},
//	    {"schedule": "*", "after": 10, "action": "never"}
//	  ]
//	}
type faultFile struct {
	Rules     json.RawMessage `json:"rules,omitempty"`
	IndexLag  json.RawMessage `json:"indexLag,omitempty"`
	Schedules []scheduleFault `json:"schedules,omitempty"`
}

// A scheduleFault acts on ticks of the schedules whose names match the pattern.
type scheduleFault struct {
	Schedule string `json:"schedule"`
	After    int    `json:"after"` // leave the first ticks alone
	Count    int    `json:"count"` // act on so many of the following ones; 0: on all
	// Action is late (needs By), twice (at once) or never: with no Count the
	// schedule is frozen.
	Action string `json:"action"`
	By     period `json:"by"`
}

// A period is written as Go does: "30s".
type period time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *period) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*p = period(d)
	return err
}

// loadFaults reads a fault file; no path means no faults. names are the schedules
// there are. Without the embedded AWS nothing could follow the rules, so that a
// file with some is refused.
func loadFaults(file string, names []string, embedded bool) (*fakeaws.Script, []scheduleFault, error) {
	if file == "" {
		return &fakeaws.Script{}, nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("read the faults: %w", err)
	}
	script, schedules, err := parseFaults(text, names, embedded)
	if err != nil {
		return nil, nil, fmt.Errorf("read the faults of %s: %w", file, err)
	}
	return script, schedules, nil
}

func parseFaults(text []byte, names []string, embedded bool) (*fakeaws.Script, []scheduleFault, error) {
	var f faultFile
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	switch err := dec.Decode(&f); {
	case errors.Is(err, io.EOF):
		return nil, nil, errors.New("the file is empty")
	case err != nil:
		return nil, nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("there is text after the document")
	}
	if !embedded && (f.Rules != nil || f.IndexLag != nil) {
		return nil, nil, errors.New("rules and indexLag are of the embedded AWS, and " + endpointVariable + " names another")
	}
	for i, s := range f.Schedules {
		if err := s.check(names); err != nil {
			return nil, nil, fmt.Errorf("schedules: entry %d: %w", i+1, err)
		}
	}
	rules, err := json.Marshal(faultFile{Rules: f.Rules, IndexLag: f.IndexLag})
	if err != nil {
		return nil, nil, err
	}
	script, err := fakeaws.ParseScript(rules)
	return script, f.Schedules, err
}

func (s scheduleFault) check(names []string) error {
	switch s.Action {
	case "late", "twice", "never":
	default:
		return fmt.Errorf("there is no action %q; it is late, twice or never", s.Action)
	}
	if s.After < 0 || s.Count < 0 {
		return errors.New("after and count are not negative")
	}
	if (s.Action == "late") != (s.By > 0) {
		return errors.New("late needs a positive duration in by, and nothing else takes one")
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
