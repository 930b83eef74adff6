package core_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"drawbridge/core"
	"drawbridge/core/coretest"
)

func TestARegisterDerivesItsLeaseFromTheTimeout(t *testing.T) {
	for _, test := range []struct {
		timeout core.Opt[float64]
		want    time.Duration // 0: refused
	}{
		{core.Opt[float64]{}, 1_320_000 * time.Millisecond},
		{core.Some(60.0), 180 * time.Second},
		{core.Some(0.0), 120 * time.Second}, // null
		{core.Some(0.5), 120_500 * time.Millisecond},
		{core.Some(-119.0), time.Second},
		{core.Some(-119.001), 0},
		{core.Some(2_591_880.0), 720 * time.Hour},
		{core.Some(2_591_880.001), 0},
		{core.Some(math.NaN()), 0},
		{core.Some(math.Inf(1)), 0},
		{core.Some(-math.MaxFloat64), 0},
	} {
		clock := coretest.NewClock()
		r, err := coretest.NewHub(coretest.NewModel(), clock).Register(t.Context(), core.RegisterRequest{AgentID: "a", CLI: "other", TimeoutSec: test.timeout})
		if test.want == 0 {
			wantRefusal(t, err, core.CodeInvalidArgument, "timeout_sec")
			continue
		}
		if got := r.LeaseExpires.Sub(core.InstantOf(clock.Now())); err != nil || got != test.want {
			t.Errorf("timeout_sec %+v gives a lease of %s, %v; want %s", test.timeout, got, err, test.want)
		}
	}
}

func TestEveryFieldOutOfItsLimitsIsRefusedByNameAndNothingIsWritten(t *testing.T) {
	long := strings.Repeat("x", core.MaxIDBytes+1)
	many := make([]string, core.MaxTopics+1)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	big := json.RawMessage(`{"k":"` + strings.Repeat("x", core.MaxProfileBytes) + `"}`)
	valid := func(edit func(*core.RegisterRequest)) core.RegisterRequest {
		r := core.RegisterRequest{AgentID: "a", CLI: "claude"}
		edit(&r)
		return r
	}
	for _, test := range []struct {
		field   string
		code    core.Code
		request core.RegisterRequest
	}{
		{"agent_id", "", valid(func(r *core.RegisterRequest) { r.AgentID = "" })},
		{"agent_id", "", valid(func(r *core.RegisterRequest) { r.AgentID = long })},
		{"agent_id", "", valid(func(r *core.RegisterRequest) { r.AgentID = "a\x00b" })},
		{"agent_id", "", valid(func(r *core.RegisterRequest) { r.AgentID = "a\u0085b" })},
		{"agent_id", "", valid(func(r *core.RegisterRequest) { r.AgentID = "a\xff" })},
		{"cli", "", valid(func(r *core.RegisterRequest) { r.CLI = "" })},
		{"cli", "", valid(func(r *core.RegisterRequest) { r.CLI = "vim" })},
		{"topics", "", valid(func(r *core.RegisterRequest) { r.Topics = many })},
		{"topics[1]", "", valid(func(r *core.RegisterRequest) { r.Topics = []string{"x", long} })},
		{"topics[0]", "", valid(func(r *core.RegisterRequest) { r.Topics = []string{"a\nb"} })},
		{"metadata", "", valid(func(r *core.RegisterRequest) { r.Metadata = json.RawMessage(`[]`) })},
		{"metadata", "", valid(func(r *core.RegisterRequest) { r.Metadata = json.RawMessage(`{`) })},
		{"metadata", "", valid(func(r *core.RegisterRequest) { r.Metadata = big })},
		{"capabilities", "", valid(func(r *core.RegisterRequest) { r.Capabilities = []string{string(big)} })},
		{"step_deadline_ms", "", valid(func(r *core.RegisterRequest) { r.StepDeadlineMs = core.Some(int64(0)) })},
		{"step_deadline_ms", "", valid(func(r *core.RegisterRequest) { r.StepDeadlineMs = core.Some(int64(math.MaxInt64)) })},
		{"project_id", core.CodeProjectIDInvalid, valid(func(r *core.RegisterRequest) { r.ProjectID = core.Some("bad") })},
		{"project_id", core.CodeProjectIDInvalid, valid(func(r *core.RegisterRequest) { r.ProjectID = core.Some("prj_0123456789012345678901\n") })},
		{"session_id", core.CodeSessionIDInvalid, valid(func(r *core.RegisterRequest) { r.SessionID = core.Some("  ") })},
		{"session_id", core.CodeSessionIDInvalid, valid(func(r *core.RegisterRequest) { r.SessionID = core.Some(strings.Repeat("é", 257)) })},
		{"host_id", core.CodeHostIDInvalid, valid(func(r *core.RegisterRequest) { r.HostID = core.Some("hst_") })},
		{"host_id", core.CodeHostIDInvalid, valid(func(r *core.RegisterRequest) { r.HostID = core.Some("hst_" + strings.Repeat("x", 125)) })},
	} {
		model := coretest.NewModel()
		_, err := coretest.NewHub(model, coretest.NewClock()).Register(t.Context(), test.request)
		if test.code == "" {
			test.code = core.CodeInvalidArgument
		}
		wantRefusal(t, err, test.code, test.field)
		if _, found, err := model.ReadAgent(t.Context(), test.request.AgentID); err != nil || found {
			t.Errorf("%s: a refused register was stored (%v)", test.field, err)
		}
	}
}

func TestValuesAtTheirLimitsAreTaken(t *testing.T) {
	topics := make([]string, core.MaxTopics)
	for i := range topics {
		topics[i] = fmt.Sprintf("%0*d", core.MaxIDBytes, i)
	}
	hub := coretest.NewHub(coretest.NewModel(), coretest.NewClock())
	_, err := hub.Register(t.Context(), core.RegisterRequest{
		AgentID: strings.Repeat("é", core.MaxIDBytes/2), CLI: "gemini", Topics: append(topics, topics...),
		Metadata:  json.RawMessage(`{"k":"` + strings.Repeat("x", core.MaxProfileBytes-len(`{"k":""}`)-len(`[]`)) + `"}`),
		SessionID: core.Some(strings.Repeat("é", 256)), HostID: core.Some("hst_" + strings.Repeat("x", 124)),
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestEveryOperationRefusesAnAgentIDOutOfItsLimits(t *testing.T) {
	hub := coretest.NewHub(coretest.NewModel(), coretest.NewClock())
	for _, id := range []string{"", "a\x7f", strings.Repeat("x", core.MaxIDBytes+1)} {
		_, err := hub.Heartbeat(t.Context(), core.HeartbeatRequest{AgentID: id})
		wantRefusal(t, err, core.CodeInvalidArgument, "agent_id")
		_, err = hub.HeartbeatBatch(t.Context(), core.BatchHeartbeatRequest{Agents: []core.AgentBeat{{AgentID: "a"}, {AgentID: id}}})
		wantRefusal(t, err, core.CodeInvalidArgument, "agents[1].agent_id")
		_, err = hub.Deregister(t.Context(), core.DeregisterRequest{AgentID: id})
		wantRefusal(t, err, core.CodeInvalidArgument, "agent_id")
		_, err = hub.ReportStatus(t.Context(), core.ReportRequest{AgentID: id, Status: "online"})
		wantRefusal(t, err, core.CodeInvalidArgument, "agent_id")
	}
	_, err := hub.ReportStatus(t.Context(), core.ReportRequest{AgentID: "a", Status: "  "})
	wantRefusal(t, err, core.CodeInvalidArgument, "status")
	_, err = hub.Agents(t.Context(), core.AgentQuery{Status: core.Some(core.Status("away"))})
	wantRefusal(t, err, core.CodeInvalidArgument, "status")
	_, err = hub.Agents(t.Context(), core.AgentQuery{Limit: 101})
	wantRefusal(t, err, core.CodeInvalidArgument, "limit")
	_, err = hub.RotateIdentity(t.Context(), "a\nb")
	wantRefusal(t, err, core.CodeInvalidArgument, "reason")
}

func TestAStepHasFromAMillisecondToThirtyDays(t *testing.T) {
	longest := (30 * 24 * time.Hour).Milliseconds()
	for ms, want := range map[int64]bool{-1: false, 0: false, 1: true, longest: true, longest + 1: false} {
		model := coretest.NewModel()
		_, err := coretest.NewHub(model, coretest.NewClock()).Register(t.Context(), core.RegisterRequest{AgentID: "a", CLI: "other", StepDeadlineMs: core.Some(ms)})
		if !want {
			wantRefusal(t, err, core.CodeInvalidArgument, "step_deadline_ms")
			continue
		}
		agent, _, readErr := model.ReadAgent(t.Context(), "a")
		if err != nil || readErr != nil || agent.StepDeadline != core.Some(time.Duration(ms)*time.Millisecond) {
			t.Errorf("%d ms: %+v, %v, %v", ms, agent.StepDeadline, err, readErr)
		}
	}
}
