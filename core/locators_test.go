package core_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"drawbridge/core"
	"drawbridge/core/coretest"
)

// validLocators gives a locator of each kind that a lease of a minute from now
// allows, with edit applied to both before they are encoded.
func locatorOf(kind string, now core.Instant) map[string]any {
	l := map[string]any{
		"schema_version": "tfx.transport-locator.v1", "transport_id": "t.1", "kind": kind, "host_id": "hst_one",
		"capabilities": []any{"probe", "wake"}, "priority": 5, "expires_at_ms": now.Add(time.Minute),
	}
	if kind == "tmux" {
		l["locator"] = map[string]any{"session_name": "s", "mux_server_id": "m"}
	} else {
		l["locator"] = map[string]any{"session_id": "s", "short": "h", "bridge_id": "b"}
	}
	return l
}

func encode(t *testing.T, v any) json.RawMessage {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// registerLocators registers an agent with a lease of a minute and returns the
// locators as stored.
func registerLocators(t *testing.T, r core.RegisterRequest) (core.Agent, error) {
	t.Helper()
	model := coretest.NewModel()
	hub := coretest.NewHub(model, coretest.NewClock())
	r.AgentID, r.TimeoutSec = "a", core.Some(-60.0)
	if r.CLI == "" {
		r.CLI = "claude"
	}
	_, err := hub.Register(t.Context(), r)
	agent, _, readErr := model.ReadAgent(t.Context(), "a")
	if readErr != nil {
		t.Fatal(readErr)
	}
	return agent, err
}

func TestLocatorsAreStoredNormalisedByPriority(t *testing.T) {
	now := core.InstantOf(coretest.NewClock().Now())
	low, high, tie := locatorOf("tmux", now), locatorOf("claude-uds", now), locatorOf("tmux", now)
	low["transport_id"], low["priority"] = " z ", -1
	high["transport_id"], high["priority"], high["locator"] = "y", 9, map[string]any{"short": " h ", "session_id": nil, "bridge_id": "b"}
	tie["transport_id"], tie["priority"] = "a", 9.0
	want := `[{"schema_version":"tfx.transport-locator.v1","transport_id":"a","kind":"tmux","host_id":"hst_one","capabilities":["probe","wake"],"priority":9,"expires_at_ms":` +
		string(encode(t, now.Add(time.Minute))) + `,"locator":{"mux_server_id":"m","session_name":"s"}},`
	list := encode(t, []any{low, high, tie})
	for name, given := range map[string]json.RawMessage{"an array": list, "a text holding one": encode(t, string(list))} {
		agent, err := registerLocators(t, core.RegisterRequest{TransportLocators: core.Some(given)})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if agent.HostID != "hst_one" || !strings.HasPrefix(string(agent.Locators), want) ||
			!strings.Contains(string(agent.Locators), `"locator":{"bridge_id":"b","short":"h"}},{`) {
			t.Errorf("%s is stored on %s as %s", name, agent.HostID, agent.Locators)
		}
	}
}

// Contract 1.3: each rule with its code.
func TestALocatorThatBreaksARuleIsRefusedWithTheRulesCode(t *testing.T) {
	now := core.InstantOf(coretest.NewClock().Now())
	long := strings.Repeat("x", 129)
	set := func(key string, value any) func(map[string]any) { return func(l map[string]any) { l[key] = value } }
	address := func(key string, value any) func(map[string]any) {
		return func(l map[string]any) { l["locator"].(map[string]any)[key] = value }
	}
	for _, test := range []struct {
		name string
		kind string
		edit func(map[string]any)
		want core.Code
	}{
		{"unknown key", "tmux", set("extra", 1), core.CodeTransportLocatorInvalid},
		{"no schema", "tmux", set("schema_version", nil), core.CodeTransportLocatorSchema},
		{"another schema", "tmux", set("schema_version", "v2"), core.CodeTransportLocatorSchema},
		{"blank id", "tmux", set("transport_id", "  "), core.CodeTransportIDInvalid},
		{"long id", "tmux", set("transport_id", long), core.CodeTransportIDInvalid},
		{"id with a slash", "tmux", set("transport_id", "a/b"), core.CodeTransportIDInvalid},
		{"id that is a number", "tmux", set("transport_id", 7), core.CodeTransportIDInvalid},
		{"another kind", "tmux", set("kind", "ssh"), core.CodeTransportKindUnsupported},
		{"bad host", "tmux", set("host_id", "one"), core.CodeHostIDInvalid},
		{"long host", "tmux", set("host_id", "hst_"+long), core.CodeHostIDInvalid},
		{"capabilities twice", "tmux", set("capabilities", []any{"wake", "wake"}), core.CodeTransportCapabilitiesInvalid},
		{"unknown capability", "tmux", set("capabilities", []any{"fly"}), core.CodeTransportCapabilitiesInvalid},
		{"blank capability", "tmux", set("capabilities", []any{""}), core.CodeTransportCapabilitiesInvalid},
		{"capabilities null", "tmux", set("capabilities", nil), core.CodeTransportCapabilitiesInvalid},
		{"fractional priority", "tmux", set("priority", 1.5), core.CodeTransportPriorityInvalid},
		{"unsafe priority", "tmux", set("priority", 1<<53), core.CodeTransportPriorityInvalid},
		{"priority as text", "tmux", set("priority", "5"), core.CodeTransportPriorityInvalid},
		{"expires now", "tmux", set("expires_at_ms", now), core.CodeTransportExpiryInvalid},
		{"expires after the lease", "tmux", set("expires_at_ms", now.Add(time.Minute)+1), core.CodeTransportExpiryInvalid},
		{"no expiry", "tmux", set("expires_at_ms", nil), core.CodeTransportExpiryInvalid},
		{"no address", "tmux", set("locator", nil), core.CodeTransportLocatorInvalid},
		{"tmux: unknown key", "tmux", address("extra", 1), core.CodeTransportLocatorInvalid},
		{"tmux: no session", "tmux", address("session_name", ""), core.CodeTmuxSessionInvalid},
		{"tmux: long server", "tmux", address("mux_server_id", long), core.CodeTmuxServerInvalid},
		{"uds: unknown key", "claude-uds", address("extra", 1), core.CodeTransportLocatorInvalid},
		{"uds: neither session nor short", "claude-uds", set("locator", map[string]any{"session_id": "", "short": 0, "bridge_id": "b"}), core.CodeClaudeUDSSessionRequired},
		{"uds: bad session", "claude-uds", address("session_id", "a b"), core.CodeClaudeUDSSessionInvalid},
		{"uds: session that is true", "claude-uds", address("session_id", true), core.CodeClaudeUDSSessionInvalid},
		{"uds: bad short", "claude-uds", address("short", "a b"), core.CodeClaudeUDSShortInvalid},
		{"uds: no bridge", "claude-uds", address("bridge_id", nil), core.CodeClaudeUDSBridgeInvalid},
		// The first broken rule in the contract's order is the answer.
		{"schema before id", "tmux", func(l map[string]any) { l["schema_version"], l["transport_id"] = "x", "" }, core.CodeTransportLocatorSchema},
		{"priority before expiry", "tmux", func(l map[string]any) { l["priority"], l["expires_at_ms"] = nil, nil }, core.CodeTransportPriorityInvalid},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := locatorOf(test.kind, now)
			test.edit(l)
			agent, err := registerLocators(t, core.RegisterRequest{TransportLocators: core.Some(encode(t, []any{l}))})
			wantRefusal(t, err, test.want, "transport_locators_json")
			if agent.Generation != 0 {
				t.Errorf("a refused register is stored as %+v", agent)
			}
		})
	}
}

func TestLocatorsAreRefusedAsAWholeWithTheirOwnCodes(t *testing.T) {
	now := core.InstantOf(coretest.NewClock().Now())
	uds, tmux, elsewhere := locatorOf("claude-uds", now), locatorOf("tmux", now), locatorOf("tmux", now)
	elsewhere["host_id"] = "hst_two"
	for _, test := range []struct {
		name    string
		request core.RegisterRequest
		want    core.Code
	}{
		{"an object", core.RegisterRequest{TransportLocators: core.Some(json.RawMessage(`{}`))}, core.CodeTransportLocatorsJSONInvalid},
		{"null", core.RegisterRequest{TransportLocators: core.Some(json.RawMessage(`null`))}, core.CodeTransportLocatorsJSONInvalid},
		{"a number", core.RegisterRequest{TransportLocators: core.Some(json.RawMessage(`7`))}, core.CodeTransportLocatorsJSONInvalid},
		{"a text that is not JSON", core.RegisterRequest{TransportLocators: core.Some(json.RawMessage(`"[}"`))}, core.CodeTransportLocatorsJSONInvalid},
		{"an empty text", core.RegisterRequest{TransportLocators: core.Some(json.RawMessage(`""`))}, core.CodeTransportLocatorsJSONInvalid},
		{"a text holding an object", core.RegisterRequest{TransportLocators: core.Some(json.RawMessage(`"{}"`))}, core.CodeTransportLocatorsInvalid},
		{"an element that is no object", core.RegisterRequest{TransportLocators: core.Some(json.RawMessage(`[1]`))}, core.CodeTransportLocatorInvalid},
		{"codex with claude-uds", core.RegisterRequest{CLI: "codex", TransportLocators: core.Some(encode(t, []any{uds}))}, core.CodeCodexTransportUnsupported},
		{"another host than the agent's", core.RegisterRequest{HostID: core.Some("hst_two"), TransportLocators: core.Some(encode(t, []any{tmux}))}, core.CodeHostIDInvalid},
		{"two hosts", core.RegisterRequest{TransportLocators: core.Some(encode(t, []any{tmux, elsewhere}))}, core.CodeHostIDInvalid},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := registerLocators(t, test.request)
			wantRefusal(t, err, test.want, "transport_locators_json")
		})
	}
	_, err := coretest.NewHub(coretest.NewModel(), coretest.NewClock()).Register(t.Context(), core.RegisterRequest{
		AgentID: "a", CLI: "claude", TimeoutSec: core.Some(-120.0), TransportLocators: core.Some(encode(t, []any{tmux})),
	})
	wantRefusal(t, err, core.CodeHeartbeatTTLInvalid, "timeout_sec")
}

func wantRefusal(t *testing.T, err error, code core.Code, field string) {
	t.Helper()
	var refusal *core.Error
	if !errors.As(err, &refusal) || refusal.Code != code || refusal.Details["field"] != field {
		t.Fatalf("error is %v with %+v, want %s of %s", err, refusal, code, field)
	}
}

func FuzzLocatorsAreStoredOrRefusedWithACode(f *testing.F) {
	now := core.InstantOf(coretest.NewClock().Now())
	for _, kind := range []string{"tmux", "claude-uds"} {
		seed, err := json.Marshal([]any{locatorOf(kind, now)})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed)
	}
	for _, seed := range []string{``, `null`, `"[]"`, `[[]]`, `[{"locator":{}}]`, `"\u0000"`, `[{"a":1,"a":2}]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, given []byte) {
		agent, err := registerLocators(t, core.RegisterRequest{TransportLocators: core.Some(json.RawMessage(given))})
		if err != nil {
			if entry := core.CodeOf(err).Entry(); entry.Kind != core.KindInvalid {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		if !json.Valid(agent.Locators) || agent.Locators[0] != '[' {
			t.Fatalf("stored as %q", agent.Locators)
		}
	})
}

func TestLocatorsAreInOrderOfPriorityThenID(t *testing.T) {
	now := core.InstantOf(coretest.NewClock().Now())
	of := map[string]int{"d": 9, "b": 5, "c": 5, "a": 1}
	for _, given := range []string{"dbca", "acbd", "cadb", "bdac"} {
		var list []any
		for _, id := range given {
			l := locatorOf("tmux", now)
			l["transport_id"], l["priority"] = string(id), of[string(id)]
			list = append(list, l)
		}
		agent, err := registerLocators(t, core.RegisterRequest{TransportLocators: core.Some(encode(t, list))})
		var stored []struct {
			ID string `json:"transport_id"`
		}
		if err != nil || json.Unmarshal(agent.Locators, &stored) != nil {
			t.Fatalf("%s: %v, %s", given, err, agent.Locators)
		}
		got := ""
		for _, l := range stored {
			got += l.ID
		}
		if got != "dbca" {
			t.Errorf("given as %s they are stored as %s", given, got)
		}
	}
}
