package functions

import (
	"encoding/json"
	"fmt"
	"testing"

	"drawbridge/core"
)

// The recorded pipelines of the reference. Where it takes no team for a team of
// its own, this hub asks for one (compat rule 1); a refused transition is told
// by its code (rule 2).
func TestGoldenPipelines(t *testing.T) {
	h := newTestHub(t)
	differs := map[string]int{"pipeline-init-no-team": 400, "pipeline-state-no-team": 400}
	for _, c := range readGoldenCases(t, "pipelines.jsonl") {
		t.Run(c.Name, func(t *testing.T) {
			h := *h
			h.t = t
			a := h.replay(c, nil)
			if status, ok := differs[c.Name]; ok {
				a.expect(t, status, core.CodeInvalidArgument)
				return
			}
			if a.status != c.Status {
				t.Fatalf("answer %d, recorded %d: %s", a.status, c.Status, a.text)
			}
			var recorded map[string]any
			must(t, json.Unmarshal(c.Response, &recorded))
			switch {
			case c.Status == 404:
				a.expect(t, 404, core.CodePipelineNotFound)
			case c.Status == 400:
				a.expect(t, 400, core.CodePipelineTransitionInvalid)
				if a.at("data.version") == nil {
					t.Errorf("the refusal does not tell the state: %s", a.text)
				}
			case c.Name == "pipeline-list":
				list := a.at("data").([]any)
				if len(list) != 2 {
					t.Fatalf("listed: %s", a.text)
				}
				recorded := recorded["data"].([]any)
				compareRecorded(t, "data[0]", recorded[0], list[0], h.table)
				compareRecorded(t, "data[1]", recorded[2], list[1], h.table)
			default:
				compareRecorded(t, "answer", recorded, a.body, h.table)
			}
		})
		h.clock.advance(1_000_000)
	}
}

// Vectors 139 and 140.
func TestPipelineVectors(t *testing.T) {
	h := newTestHub(t)
	h.send("POST", "/bridge/pipeline/state", fields{"team_name": "t"}).expect(t, 404, core.CodePipelineNotFound)
	h.send("POST", "/bridge/pipeline/advance", fields{"team_name": "t", "phase": "exec"}).expect(t, 400, core.CodePipelineTransitionInvalid)
	h.send("POST", "/bridge/pipeline/state", fields{"team_name": "t"}).expect(t, 404, core.CodePipelineNotFound)
}

func TestAPipelineIsFencedByItsVersionOverHTTP(t *testing.T) {
	h := newTestHub(t)
	a := h.send("POST", "/bridge/pipeline/advance", fields{"team_name": "팀", "phase": "prd", "version": 0}).expect(t, 200, "")
	if a.at("ok") != true || a.at("state.phase") != "prd" || a.has("data") || a.number("state.version") != 1 {
		t.Fatalf("advanced: %s", a.text)
	}
	stale := h.send("POST", "/bridge/pipeline/advance", fields{"team_name": "팀", "phase": "confidence", "version": 0}).
		expect(t, 409, core.CodePipelineVersionStale)
	if stale.number("data.version") != 1 || stale.at("data.phase") != "prd" {
		t.Errorf("the refusal tells %s", stale.text)
	}
	h.send("POST", "/bridge/pipeline/advance", fields{"team_name": "팀", "phase": "nowhere"}).refusesField(t, core.CodeInvalidArgument, "phase")
	h.send("POST", "/bridge/pipeline/init", fields{"team_name": "팀", "hub_instance_id": "old"}).expect(t, 409, core.CodeStaleHubInstance)
	for i := range 3 {
		h.send("POST", "/bridge/pipeline/init", fields{"team_name": fmt.Sprint("t", i), "fix_max": 0}).expect(t, 200, "")
	}
	list := h.send("POST", "/bridge/pipeline/list", fields{"limit": 3}).expect(t, 200, "")
	rest := h.send("POST", "/bridge/pipeline/list", fields{"cursor": list.at("next_cursor")}).expect(t, 200, "")
	if len(list.at("data").([]any)) != 3 || len(rest.at("data").([]any)) != 1 || rest.at("next_cursor") != nil {
		t.Errorf("pages: %s %s", list.text, rest.text)
	}
}
