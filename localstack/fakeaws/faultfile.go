package fakeaws

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"drawbridge/localstack/fakeaws/dynamo"
	"drawbridge/localstack/fakeaws/engine"
	"drawbridge/localstack/fakeaws/objects"
)

// ParseScript reads a script from JSON. Unknown and misplaced fields, and a rule that no request can meet, are
// errors, so that a misspelt rule does not silently do nothing.
//
//	{
//	  "rules": [
//	    {"op": "UpdateItem", "resource": "hub*", "key": "AGENT#a/*", "after": 3, "count": 1, "action": "drop-response"},
//	    {"op": "PutObject", "count": 2, "action": "error", "status": 409, "code": "ConditionalRequestConflict"},
//	    {"label": "worker-7", "probability": 0.1, "seed": 42, "action": "delay", "delay": "200ms"}
//	  ],
//	  "indexLag": [
//	    {"table": "hub", "index": "GSI1", "lag": "150ms"}
//	  ]
//	}
//
// The matching fields of a rule (service, op, resource, key, index, caller,
// label), after, count, probability and seed are those of Rule. The actions:
//
//	drop-request          DropRequest
//	drop-response         DropResponse
//	tear-response         TearResponse
//	delay                 Delay, needs "delay"
//	delay-response        DelayResponse, needs "delay"
//	freeze                Freeze: until the server ends, nothing in a file releases it
//	error                 Error, needs "status" and "code"
//	error-after           ErrorAfter, needs "status" and "code"
//	error-with-200        ErrorWith200, needs "code"
//	transaction-conflict  TransactionConflict
//	collect-expired       CollectExpired
//	close-idle            CloseIdle
func ParseScript(document []byte) (*Script, error) {
	var file struct {
		Rules    []ruleEntry `json:"rules"`
		IndexLag []lagEntry  `json:"indexLag"`
	}
	if err := decodeStrictly(document, &file); err != nil {
		return nil, fmt.Errorf("read the fault script: %w", err)
	}
	s := &Script{}
	for i, entry := range file.Rules {
		rule, err := entry.rule()
		if err != nil {
			return nil, fmt.Errorf("read the fault script: rule %d: %w", i+1, err)
		}
		s.Add(rule)
	}
	for i, entry := range file.IndexLag {
		if entry.Table == "" || entry.Index == "" || entry.Lag <= 0 {
			return nil, fmt.Errorf("read the fault script: indexLag %d: needs table, index and a lag over zero", i+1)
		}
		s.LagIndex(entry.Table, entry.Index, time.Duration(entry.Lag))
	}
	return s, nil
}

func decodeStrictly(document []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(document))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is text after the document")
	}
	return nil
}

type lagEntry struct {
	Table string   `json:"table"`
	Index string   `json:"index"`
	Lag   duration `json:"lag"`
}

type ruleEntry struct {
	Service     string    `json:"service"`
	Op          string    `json:"op"`
	Resource    string    `json:"resource"`
	Key         string    `json:"key"`
	Index       string    `json:"index"`
	Caller      string    `json:"caller"`
	Label       string    `json:"label"`
	After       int       `json:"after"`
	Count       int       `json:"count"`
	Probability *float64  `json:"probability"`
	Seed        uint64    `json:"seed"`
	Action      string    `json:"action"`
	Delay       *duration `json:"delay"`
	Status      *int      `json:"status"`
	Code        *string   `json:"code"`
}

func (e *ruleEntry) rule() (Rule, error) {
	action, err := e.action()
	if err != nil {
		return Rule{}, err
	}
	if e.After < 0 || e.Count < 0 {
		return Rule{}, errors.New("after and count are not negative")
	}
	rule := Rule{
		Service: e.Service, Op: e.Op, Resource: e.Resource, Key: e.Key, Index: e.Index, Caller: e.Caller, Label: e.Label,
		After: e.After, Count: e.Count, Seed: e.Seed, Action: action,
	}
	if !rule.matchesAnOperation() {
		return Rule{}, fmt.Errorf("service %q and op %q name no operation that %q can act on", e.Service, e.Op, e.Action)
	}
	if e.Probability != nil {
		if rule.Probability = *e.Probability; rule.Probability <= 0 || rule.Probability > 1 {
			return Rule{}, errors.New("probability is over 0 and at most 1")
		}
	}
	return rule, nil
}

// matchesAnOperation tells whether any request can meet the rule's service, op and
// action.
func (r *Rule) matchesAnOperation() bool {
	some := Rule{Service: r.Service, Op: r.Op, Action: r.Action}
	for service, ops := range map[string][]string{awsJSON.service(): dynamo.Operations(), restXML.service(): objects.Operations()} {
		for _, op := range ops {
			if some.matches(&engine.Call{Service: service, Op: op}) {
				return true
			}
		}
	}
	return false
}

// plainActions need nothing but their name.
var plainActions = map[string]Action{
	"drop-request":         DropRequest(),
	"drop-response":        DropResponse(),
	"tear-response":        TearResponse(),
	"freeze":               Freeze(),
	"transaction-conflict": TransactionConflict(),
	"collect-expired":      CollectExpired(),
	"close-idle":           CloseIdle(),
}

// action builds the entry's action from exactly the fields that it has.
func (e *ruleEntry) action() (Action, error) {
	needs := func(delay, status, code bool) error {
		for name, wrong := range map[string]bool{
			"delay": delay != (e.Delay != nil), "status": status != (e.Status != nil), "code": code != (e.Code != nil),
		} {
			if wrong {
				return fmt.Errorf("action %q: %q is missing or does not belong there", e.Action, name)
			}
		}
		if status && (*e.Status < 400 || *e.Status > 599) {
			return fmt.Errorf("action %q: status is 400 to 599", e.Action)
		}
		return nil
	}
	if action, ok := plainActions[e.Action]; ok {
		return action, needs(false, false, false)
	}
	switch e.Action {
	case "delay", "delay-response":
		if err := needs(true, false, false); err != nil {
			return Action{}, err
		}
		if e.Action == "delay" {
			return Delay(time.Duration(*e.Delay)), nil
		}
		return DelayResponse(time.Duration(*e.Delay)), nil
	case "error", "error-after":
		if err := needs(false, true, true); err != nil {
			return Action{}, err
		}
		if e.Action == "error" {
			return Error(*e.Status, *e.Code), nil
		}
		return ErrorAfter(*e.Status, *e.Code), nil
	case "error-with-200":
		if err := needs(false, false, true); err != nil {
			return Action{}, err
		}
		return ErrorWith200(*e.Code), nil
	}
	return Action{}, fmt.Errorf("there is no action %q", e.Action)
}

// duration is written as Go does: "150ms", "2s".
type duration time.Duration

func (d *duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return errors.New(`a duration is written as "150ms"`)
	}
	parsed, err := time.ParseDuration(s)
	if err == nil && parsed < 0 {
		err = errors.New("a duration is not negative")
	}
	*d = duration(parsed)
	return err
}
