package simulation

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"drawbridge/core"
)

// compareLists reads everything that the hub lists, and holds it against the
// items it lists and against the clock. Nobody else is there.
func (a *auditor) compareLists() {
	a.think(2 * a.w.plan.lag) // the indexes have caught up
	a.compareAgents()
	a.compareHumanRequests()
	a.compareDeadLetters()
	a.compareJobs()
	a.compareRoles()
	a.compareArchive()
}

// get reads what must be there.
func (a *auditor) get(path string, body map[string]any) answer {
	r := request{method: "GET", path: path}
	if body != nil {
		r.method, r.body = "POST", body
	}
	got := a.send(r)
	if !got.ok() {
		a.w.violatef("%s %v: %d %s", path, body, got.status, got.text)
	}
	return got
}

// all reads a list to its end.
func (a *auditor) all(path, member string, body map[string]any) []any {
	var found []any
	cursor := ""
	for range 100 {
		target, filter := path, body
		switch {
		case body != nil:
			filter = maps.Clone(body)
			if cursor != "" {
				filter["cursor"] = cursor
			}
		case cursor != "":
			separator := "?"
			if strings.Contains(path, "?") {
				separator = "&"
			}
			target += separator + "cursor=" + url.QueryEscape(cursor)
		}
		got := a.get(target, filter)
		found = append(found, list(got.at("data."+member))...)
		if cursor = got.text1("data.next_cursor") + got.text1("data.cursor"); cursor == "" { // the archive queue has another word
			return found
		}
	}
	a.w.violatef("the list %s has no end", path)
	return found
}

// same compares what a list shows with what it must, each as "id state".
func (a *auditor) same(what string, shown, want []string) {
	slices.Sort(shown)
	slices.Sort(want)
	if !slices.Equal(shown, want) {
		a.w.violatef("%s\nshows %v\nnot   %v", what, shown, want)
	}
}

// effective is an agent's status by the rule of docs/guarantees.md.
func effective(it item, now int64) string {
	lease := it.number("lease_ms")
	switch {
	case it.text("presence") == "offline" || lease+core.OfflineAfter.Milliseconds() < now:
		return "offline"
	case lease < now:
		return "stale"
	}
	return it.text("presence")
}

// ambiguous tells that skewed clocks may see it either way.
func ambiguous(moment, now int64) bool { return moment > now-2*slack && moment < now+2*slack }

func (a *auditor) compareAgents() {
	var shown, want []string
	var unclear []string
	now := int64(a.w.instant())
	a.w.each("agent#", "agent", func(id string, _ itemKey, it item) {
		if lease := it.number("lease_ms"); ambiguous(lease, now) || ambiguous(lease+core.OfflineAfter.Milliseconds(), now) {
			unclear = append(unclear, id)
			return
		}
		want = append(want, fmt.Sprint(id, " ", effective(it, now), " ", it.number("generation")))
	})
	for _, one := range a.all("/bridge/agents", "agents", nil) {
		if id := fmt.Sprint(at(one, "agent_id")); !slices.Contains(unclear, id) {
			shown = append(shown, fmt.Sprint(id, " ", at(one, "status"), " ", at(one, "presence_generation")))
		}
	}
	a.same("the list of agents", shown, want)
}

func (a *auditor) compareHumanRequests() {
	var shown, want []string
	now := int64(a.w.instant())
	pending := list(a.get("/bridge/hitl/pending", nil).at("data"))
	a.w.each("human#", "request", func(id string, _ itemKey, it item) {
		if it.text("human_state") == string(core.HumanPending) && !ambiguous(it.number("deadline_ms"), now) {
			if it.number("deadline_ms") <= now {
				a.w.violatef("human request %s is overdue, was listed, and nobody ended it", id)
			}
			want = append(want, id)
		}
	})
	for _, one := range pending {
		id := fmt.Sprint(at(one, "request_id"))
		if deadline, _ := at(one, "deadline_ms").(float64); !ambiguous(int64(deadline), now) {
			shown = append(shown, id)
		}
	}
	a.same("the list of pending human requests", shown, want)
}

func (a *auditor) compareDeadLetters() {
	var shown, want []string
	add := func(_ string, _ itemKey, it item) {
		if it.text("delivery_state") == string(core.DeliveryDead) {
			want = append(want, it.text("message_id"))
		}
	}
	a.w.each("inbox#", "m#", add)
	a.w.each("fanout#", "record", add)
	for _, letter := range a.all("/bridge/dead-letters?limit=100", "dead_letters", nil) {
		if at(letter, "redriven_at_ms") == nil {
			shown = append(shown, fmt.Sprint(at(letter, "message_id")))
		}
	}
	a.same("the list of dead letters", shown, want)
}

// compareJobs reads the lists by supervisor, by worker and by status.
func (a *auditor) compareJobs() {
	for _, index := range []string{"supervisor_agent", "worker_agent"} {
		for _, agent := range agentIDs {
			var shown, want []string
			a.w.each("job#", "job", func(id string, _ itemKey, it item) {
				if it.text(index) == agent {
					want = append(want, id)
				}
			})
			for _, job := range a.all("/bridge/assign/status", "assigns", map[string]any{index: agent, "limit": 100}) {
				shown = append(shown, fmt.Sprint(at(job, "job_id")))
			}
			a.same("the jobs of "+index+" "+agent, shown, want)
		}
	}
	// A job at its deadline is in one status or the next, by whose clock looks.
	var shown, want []string
	now := int64(a.w.instant())
	between := map[string]bool{}
	a.w.each("job#", "job", func(id string, _ itemKey, it item) {
		if between[id] = ambiguous(it.number("deadline_ms"), now); !between[id] {
			want = append(want, id)
		}
	})
	for _, status := range core.JobStatuses {
		for _, job := range a.all("/bridge/assign/status", "assigns", map[string]any{"status": status, "limit": 100}) {
			if id := fmt.Sprint(at(job, "job_id")); !between[id] {
				shown = append(shown, id)
			}
		}
	}
	a.same("the jobs of every status", shown, want)
}

func (a *auditor) compareRoles() {
	var shown, want []string
	a.w.each("role#", "role", func(wire string, _ itemKey, it item) {
		want = append(want, fmt.Sprint(wire, " ", it.number("epoch")))
	})
	for _, role := range a.all("/bridge/roles/status", "items", nil) {
		shown = append(shown, fmt.Sprint(at(role, "role_key_wire"), " ", at(role, "epoch")))
		a.compareAuthority(role)
	}
	a.same("the list of roles", shown, want)
}

// compareAuthority holds a role that is shown as held against its holder's lease.
func (a *auditor) compareAuthority(role any) {
	holder, _ := at(role, "holder_agent_id").(string)
	agent := a.w.monitor.agent(holder)
	now := int64(a.w.instant())
	if at(role, "state") == string(core.RoleActive) && !ambiguous(agent.number("lease_ms"), now) && effective(agent, now) != "online" {
		a.w.violatef("the role %v is shown as held by an agent that is %s", role, effective(agent, now))
	}
}

func (a *auditor) compareArchive() {
	var shown, want []string
	for key, document := range a.w.monitor.objects {
		name, isJob := strings.CutPrefix(key, "jobs/")
		if !isJob {
			continue
		}
		id := strings.TrimSuffix(name, ".json")
		job, err := core.DecodeArchiveJob(id, document)
		if err != nil {
			a.w.violatef("%s: %v", key, err)
		}
		want = append(want, id+" "+string(job.Status))
	}
	for _, status := range core.ArchiveStatuses {
		for _, job := range a.all("/bridge/queue/jobs?status="+string(status), "jobs", nil) {
			shown = append(shown, fmt.Sprint(at(job, "id"), " ", at(job, "status")))
		}
	}
	a.same("the lists of archive jobs", shown, want)
}
