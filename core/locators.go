package core

import (
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"
	"unicode/utf8"
)

// LocatorSchema is the only version of a transport locator.
const LocatorSchema = "tfx.transport-locator.v1"

const (
	kindClaudeUDS = "claude-uds"
	kindTmux      = "tmux"

	maxReference = 128
	maxSession   = 256
	maxSafeInt   = 1<<53 - 1
)

var (
	projectPattern   = regexp.MustCompile(`^prj_[A-Za-z0-9_-]{22}$`)
	hostPattern      = regexp.MustCompile(`^hst_[A-Za-z0-9_-]+$`)
	referencePattern = regexp.MustCompile(`^[A-Za-z0-9._:-]+$`)

	locatorCapabilities = []string{"probe", "wake", "activate", "interrupt"}
	locatorKeys         = []string{"schema_version", "transport_id", "kind", "host_id", "capabilities", "priority", "expires_at_ms", "locator"}
	claudeUDSKeys       = []string{"session_id", "short", "bridge_id"}
	tmuxKeys            = []string{"session_name", "mux_server_id"}
)

// placement is where an agent runs and how it is reached.
type placement struct {
	project, session, host Opt[string]
	locators               Opt[json.RawMessage]
}

// locator is a transport locator in its stored form (contract 1.3).
type locator struct {
	SchemaVersion string            `json:"schema_version"`
	TransportID   string            `json:"transport_id"`
	Kind          string            `json:"kind"`
	HostID        string            `json:"host_id"`
	Capabilities  []string          `json:"capabilities"`
	Priority      int64             `json:"priority"`
	ExpiresAt     Instant           `json:"expires_at_ms"`
	Locator       map[string]string `json:"locator"`
}

// place checks project, session, host and locators (contract 1.2, 1.3).
func (r RegisterRequest) place(now Instant, lease time.Duration) (placement, error) {
	p := placement{project: r.ProjectID, host: r.HostID}
	if r.ProjectID.Set && !projectPattern.MatchString(r.ProjectID.Value) {
		return p, InvalidCode(CodeProjectIDInvalid, "project_id", "project_id must be prj_ and 22 characters of A-Za-z0-9_-")
	}
	if r.SessionID.Set {
		session := strings.TrimSpace(r.SessionID.Value)
		if session == "" || utf8.RuneCountInString(session) > maxSession || !isText(session) {
			return p, InvalidCode(CodeSessionIDInvalid, "session_id", "session_id must be 1 to 256 characters, not blank")
		}
		p.session = Some(session)
	}
	if r.HostID.Set && !isHost(r.HostID.Value) {
		return p, InvalidCode(CodeHostIDInvalid, "host_id", "host_id must be hst_ and characters of A-Za-z0-9_-, at most 128")
	}
	if !r.TransportLocators.Set {
		return p, nil
	}
	return p, p.locate(r.TransportLocators.Value, locatorCheck{cli: r.CLI, now: now, latest: now.Add(lease)})
}

func isHost(s string) bool { return len(s) <= maxReference && hostPattern.MatchString(s) }

// locate checks the locators and stores them by priority, highest first. The
// first one's host is the agent's when the agent gave none.
func (p *placement) locate(given json.RawMessage, check locatorCheck) error {
	elements, err := locatorElements(given)
	if err != nil {
		return err
	}
	locators := make([]locator, 0, len(elements))
	for _, element := range elements {
		l, err := check.locator(element, p.host)
		if err != nil {
			return err
		}
		p.host = Some(l.HostID)
		locators = append(locators, l)
	}
	sort.SliceStable(locators, func(i, j int) bool {
		if locators[i].Priority != locators[j].Priority {
			return locators[i].Priority > locators[j].Priority
		}
		return locators[i].TransportID < locators[j].TransportID
	})
	encoded, err := json.Marshal(locators)
	if err != nil {
		return Wrap(CodeInternal, "the locators cannot be encoded", err)
	}
	p.locators = Some(json.RawMessage(encoded))
	return nil
}

// locatorElements takes the array out of the value: as it is, or as a text that
// holds one.
func locatorElements(given json.RawMessage) ([]json.RawMessage, error) {
	if text, ok := jsonString(given); ok {
		given = json.RawMessage(text)
		if !json.Valid(given) {
			return nil, locatorError(CodeTransportLocatorsJSONInvalid, "is a text that is not JSON")
		}
	} else if !isArray(given) {
		return nil, locatorError(CodeTransportLocatorsJSONInvalid, "must be an array, or a text holding one")
	}
	var elements []json.RawMessage
	if !isArray(given) || json.Unmarshal(given, &elements) != nil {
		return nil, locatorError(CodeTransportLocatorsInvalid, "must hold an array")
	}
	return elements, nil
}

// locatorCheck checks one locator after the other, each in the contract's order.
type locatorCheck struct {
	cli         string
	now, latest Instant
}

func (c locatorCheck) locator(element json.RawMessage, host Opt[string]) (locator, error) {
	fields, ok := jsonObject(element, locatorKeys)
	if !ok {
		return locator{}, locatorError(CodeTransportLocatorInvalid, "has an element that is not an object with only the keys of a locator")
	}
	l := locator{SchemaVersion: LocatorSchema}
	if version, ok := jsonString(fields["schema_version"]); !ok || version != LocatorSchema {
		return l, locatorError(CodeTransportLocatorSchema, "has a schema_version other than "+LocatorSchema)
	}
	if l.TransportID, ok = reference(fields["transport_id"]); !ok {
		return l, locatorError(CodeTransportIDInvalid, "has a transport_id that is not a reference")
	}
	if l.Kind, ok = jsonString(fields["kind"]); !ok || l.Kind != kindClaudeUDS && l.Kind != kindTmux {
		return l, locatorError(CodeTransportKindUnsupported, "has a kind other than claude-uds and tmux")
	}
	if c.cli == "codex" && l.Kind != kindTmux {
		return l, locatorError(CodeCodexTransportUnsupported, "has a kind other than tmux for a codex agent")
	}
	if l.HostID, ok = jsonString(fields["host_id"]); !ok || !isHost(l.HostID) || host.Set && l.HostID != host.Value {
		return l, locatorError(CodeHostIDInvalid, "has a host_id that is not a host or not the agent's")
	}
	if l.Capabilities, ok = capabilitySet(fields["capabilities"]); !ok {
		return l, locatorError(CodeTransportCapabilitiesInvalid, "has capabilities other than a set of "+strings.Join(locatorCapabilities, ", "))
	}
	if l.Priority, ok = safeInteger(fields["priority"]); !ok {
		return l, locatorError(CodeTransportPriorityInvalid, "has a priority that is not an integer")
	}
	expires, ok := safeInteger(fields["expires_at_ms"])
	if l.ExpiresAt = Instant(expires); !ok || l.ExpiresAt <= c.now || l.ExpiresAt > c.latest {
		return l, locatorError(CodeTransportExpiryInvalid, "has an expires_at_ms that is not within the lease")
	}
	address, err := addressOf(l.Kind, fields["locator"])
	l.Locator = address
	return l, err
}

func addressOf(kind string, given json.RawMessage) (map[string]string, error) {
	if kind == kindTmux {
		return tmuxAddress(given)
	}
	return claudeUDSAddress(given)
}

func claudeUDSAddress(given json.RawMessage) (map[string]string, error) {
	fields, ok := jsonObject(given, claudeUDSKeys)
	if !ok {
		return nil, locatorError(CodeTransportLocatorInvalid, "has a claude-uds locator with other keys than session_id, short, bridge_id")
	}
	session, short := truthy(fields["session_id"]), truthy(fields["short"])
	if !session && !short {
		return nil, locatorError(CodeClaudeUDSSessionRequired, "has a claude-uds locator without session_id and short")
	}
	address := make(map[string]string, len(fields))
	if session {
		if address["session_id"], ok = reference(fields["session_id"]); !ok {
			return nil, locatorError(CodeClaudeUDSSessionInvalid, "has a session_id that is not a reference")
		}
	}
	if short {
		if address["short"], ok = reference(fields["short"]); !ok {
			return nil, locatorError(CodeClaudeUDSShortInvalid, "has a short that is not a reference")
		}
	}
	if address["bridge_id"], ok = reference(fields["bridge_id"]); !ok {
		return nil, locatorError(CodeClaudeUDSBridgeInvalid, "has a bridge_id that is missing or not a reference")
	}
	return address, nil
}

func tmuxAddress(given json.RawMessage) (map[string]string, error) {
	fields, ok := jsonObject(given, tmuxKeys)
	if !ok {
		return nil, locatorError(CodeTransportLocatorInvalid, "has a tmux locator with other keys than session_name, mux_server_id")
	}
	address := make(map[string]string, len(tmuxKeys))
	if address["session_name"], ok = reference(fields["session_name"]); !ok {
		return nil, locatorError(CodeTmuxSessionInvalid, "has a session_name that is not a reference")
	}
	if address["mux_server_id"], ok = reference(fields["mux_server_id"]); !ok {
		return nil, locatorError(CodeTmuxServerInvalid, "has a mux_server_id that is not a reference")
	}
	return address, nil
}

func locatorError(code Code, problem string) error {
	return InvalidCode(code, "transport_locators_json", "transport_locators_json "+problem)
}

// reference reads a logical reference: 1 to 128 characters of A-Za-z0-9._:-
// after trimming.
func reference(given json.RawMessage) (string, bool) {
	text, ok := jsonString(given)
	text = strings.TrimSpace(text)
	return text, ok && len(text) <= maxReference && referencePattern.MatchString(text)
}

func capabilitySet(given json.RawMessage) ([]string, bool) {
	var elements []json.RawMessage
	if !isArray(given) || json.Unmarshal(given, &elements) != nil {
		return nil, false
	}
	set := make([]string, 0, len(locatorCapabilities))
	for _, element := range elements {
		name, ok := jsonString(element)
		if name = strings.TrimSpace(name); !ok || !slices.Contains(locatorCapabilities, name) || slices.Contains(set, name) {
			return nil, false
		}
		set = append(set, name)
	}
	return set, true
}

func safeInteger(given json.RawMessage) (int64, bool) {
	var number *float64
	if len(given) == 0 || json.Unmarshal(given, &number) != nil || number == nil {
		return 0, false
	}
	return int64(*number), *number == math.Trunc(*number) && math.Abs(*number) <= maxSafeInt
}

// truthy is the contract's word for a value that is not absent, null, false,
// zero or the empty text.
func truthy(given json.RawMessage) bool {
	if number, ok := safeInteger(given); ok {
		return number != 0
	}
	switch string(given) {
	case "", "null", "false", `""`:
		return false
	}
	return true
}

func jsonString(given json.RawMessage) (string, bool) {
	var text *string
	if len(given) == 0 || json.Unmarshal(given, &text) != nil || text == nil {
		return "", false
	}
	return *text, true
}

func isArray(given json.RawMessage) bool {
	trimmed := strings.TrimLeft(string(given), " \t\r\n")
	return strings.HasPrefix(trimmed, "[")
}

func jsonObject(given json.RawMessage, keys []string) (map[string]json.RawMessage, bool) {
	var fields map[string]json.RawMessage
	if len(given) == 0 || json.Unmarshal(given, &fields) != nil || fields == nil {
		return nil, false
	}
	for key := range fields {
		if !slices.Contains(keys, key) {
			return nil, false
		}
	}
	return fields, true
}
