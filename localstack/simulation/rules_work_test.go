package simulation

import (
	"bytes"
	"regexp"
	"strings"
	"time"

	"drawbridge/core"
)

// roleRules is what the monitor knows of roles beyond the items.
type roleRules struct {
	holders map[epochKey]string // who acknowledged an epoch
	// stands is what a fence check has to say, at the moment it read.
	stands map[*call]bool
}

type epochKey struct {
	wire  string
	epoch int64
}

func newRoleRules() roleRules {
	return roleRules{holders: map[epochKey]string{}, stands: map[*call]bool{}}
}

func (m *monitor) role(wire string) item { return m.items[itemKey{"role#" + wire, "role"}] }

func (m *monitor) judgeRole(c *call, k itemKey, wire string, before, after item) {
	switch k.sk {
	case "role":
		m.judgeRoleState(c, k, wire, before, after)
	case "value":
		if after == nil || after.number("value_version") != before.number("value_version")+1 {
			m.violatef(c, k, before, after, "the value's version does not follow")
		}
		m.mustHoldRole(c, wire, k, before, after)
	}
}

// historyOf names the attributes that hold the role's history: its form changes
// with whatever write comes next.
func historyOf(items ...item) []string {
	var names []string
	for _, it := range items {
		for name := range it {
			if historyAttribute.MatchString(name) {
				names = append(names, name)
			}
		}
	}
	return names
}

var historyAttribute = regexp.MustCompile(`^[apv][0-9]+$`)

func (m *monitor) judgeRoleState(c *call, k itemKey, wire string, before, after item) {
	if before != nil && after != nil && sameBut(before, after, append(historyOf(before, after), "due_pk", "due_sk", "write_id")...) {
		return // the sweep moved an early entry
	}
	if before != nil || after == nil { // the first is 0
		m.judgeVersion(c, k, before, after)
	}
	if after == nil {
		return
	}
	if after.number("epoch") < before.number("epoch") || after.number("activation_seq") < before.number("activation_seq") {
		m.violatef(c, k, before, after, "the epoch went back")
	}
	same := after.number("epoch") == before.number("epoch")
	holder := after.text("holder")
	if before != nil && same && holder != "" && holder != before.text("holder") {
		m.violatef(c, k, before, after, "another holder under the same epoch")
	}
	if after.text("role_state") != string(core.RoleActive) {
		return
	}
	if key := (epochKey{wire, after.number("epoch")}); m.holders[key] == "" {
		m.holders[key] = holder
	} else if m.holders[key] != holder {
		m.violatef(c, k, before, after, "%s acknowledged this epoch before", m.holders[key])
	}
	if c.endpoint == "POST /bridge/roles/ack" {
		m.mustHoldRole(c, wire, k, before, after)
		m.mustHoldFence(c, c.acts, k, before, after)
	}
}

// mustHoldRole finds a change made for a role by somebody who does not hold it.
func (m *monitor) mustHoldRole(c *call, wire string, k itemKey, before, after item) {
	role, agent := m.role(wire), m.agent(c.acts)
	if role.text("role_state") != string(core.RoleActive) || role.text("holder") != c.acts ||
		role.number("holder_generation") != agent.number("generation") {
		m.violatef(c, k, before, after, "%s (generation %d) acts for the role, which stands at%s", c.acts, agent.number("generation"), sortedItem(role))
	}
}

// observed is called at the moment at which a fence check reads.
func (m *monitor) observed(c *call, r request) {
	wire, _ := r.body["role_key_wire"].(string)
	id, _ := r.body["agent_id"].(string)
	role, agent := m.role(wire), m.agent(id)
	epoch, _ := r.body["epoch"].(int64)
	now := int64(core.InstantOf(c.instance.Now()))
	bound := role.number("holder_lease_ms")
	// The call read its clock earlier, so a lease that ended in between may be seen
	// as live; the answer is compared only where both moments agree.
	begun := int64(core.InstantOf(c.begun))
	live := func(at int64) bool {
		return agent.text("presence") == "online" && agent.number("lease_ms") >= at && (bound == 0 || bound >= at)
	}
	held := role.text("role_state") == string(core.RoleActive) && role.text("holder") == id && role.number("epoch") == epoch &&
		role.number("holder_generation") == agent.number("generation") && !agent.flag("finished")
	if live(now) == live(begun-slack) && live(now) == live(begun+slack) {
		m.stands[c] = held && live(now)
	} else {
		delete(m.stands, c)
	}
}

// identityRules is when the hub's identity changed, and what it was before.
type identityRules struct {
	retired map[string]time.Time
}

func (m *monitor) judgeHub(c *call, k itemKey, before, after item) {
	if k.sk != "identity" {
		return
	}
	if before == nil {
		return
	}
	if after == nil || c.endpoint != "POST /bridge/hub/rotate" {
		m.violatef(c, k, before, after, "only a rotation changes the identity")
	}
	if m.retired == nil {
		m.retired = map[string]time.Time{}
	}
	m.retired[before.text("hub_instance_id")] = m.w.now()
}

// identityWindow is how long a process may take the old identity for the current
// one, and identitySlack what clocks add.
const identityWindow = core.IdentityWindow + 2*maxSkew

// answered holds an answer against what the monitor knows.
func (m *monitor) answered(c *call, r request, a answer) {
	switch c.endpoint {
	case drainEndpoint:
		m.answeredDrain(c, r, a)
	case "POST /bridge/roles/fence-check":
		if valid, known := m.stands[c]; a.ok() && known && a.at("data.valid") != valid {
			m.w.violatef("%s answers %v of an authority that is %v: %s, role%s, agent%s", c.name, a.at("data.valid"), valid, a.text,
				sortedItem(m.role(r.body["role_key_wire"].(string))), sortedItem(m.agent(r.body["agent_id"].(string))))
		}
	}
	if old, fenced := r.body["hub_instance_id"].(string); fenced && a.ok() {
		if at, gone := m.retired[old]; gone && c.begun.Sub(at) > identityWindow {
			m.w.violatef("%s %s was carried out under an identity that had passed %s before", c.name, c.endpoint, c.begun.Sub(at))
		}
	}
}

func (m *monitor) judgeHuman(c *call, id string, before, after item) {
	k := itemKey{"human#" + id, "request"}
	m.judgeVersion(c, k, before, after)
	if before == nil || after == nil {
		m.mustHoldFence(c, after.text("requester_agent"), k, before, after)
		return
	}
	was, is := core.HumanState(before.text("human_state")), core.HumanState(after.text("human_state"))
	deadline := before.number("deadline_ms")
	switch {
	case was != core.HumanPending:
		if !sameBut(before, after, "late_answers", "version", "ttl", "write_id") {
			m.violatef(c, k, before, after, "what had ended ended again")
		}
	case is == core.HumanTimedOut && deadline > int64(m.w.instant())+slack:
		m.violatef(c, k, before, after, "it timed out before its deadline")
	case is != core.HumanPending && is != core.HumanTimedOut && deadline <= int64(core.InstantOf(c.begun))-slack:
		m.violatef(c, k, before, after, "an answer after the deadline counted")
	}
	if is != core.HumanPending && (after.has("due_pk") || after.has("list_pk")) {
		m.violatef(c, k, before, after, "it has ended and is still listed or due")
	}
	if message := after.text("forwarded_message_id"); was == core.HumanPending && is != core.HumanPending && !m.hasMessage(after.text("requester_agent"), message) {
		m.violatef(c, k, before, after, "its requester was not told in the same write")
	}
}

func (m *monitor) hasMessage(inbox, id string) bool {
	return m.items[itemKey{"inbox#" + inbox, "m#" + id}] != nil
}

func (m *monitor) judgeJob(c *call, id string, before, after item) {
	k := itemKey{"job#" + id, "job"}
	m.judgeVersion(c, k, before, after)
	if after == nil {
		return
	}
	was, is := core.JobStatus(before.text("job_status")), core.JobStatus(after.text("job_status"))
	attempt, next := before.number("attempt"), after.number("attempt")
	ended := is == core.JobSucceeded || is == core.JobFailed && after.text("ended_by") == string(core.EndedByReport)
	reports := c.endpoint == "POST /bridge/assign/result"
	switch {
	case before == nil:
		m.mustHoldFence(c, after.text("supervisor_agent"), k, before, after)
	case next != attempt && next != attempt+1:
		m.violatef(c, k, before, after, "its attempt does not follow")
	case next == attempt && was.Final() && is != was:
		m.violatef(c, k, before, after, "an attempt that had ended ended again, or goes on")
	case next == attempt && was != is && ended && !reports:
		m.violatef(c, k, before, after, "only a report ends an attempt so")
	case next == attempt && was != is && (ended || is == core.JobRunning) && reports:
		m.mustHoldFence(c, c.acts, k, before, after)
		if sent, named := c.sent.body["attempt"].(int64); named && sent != attempt {
			m.violatef(c, k, before, after, "a report of attempt %d counted", sent)
		}
		if deadline := before.number("deadline_ms"); deadline <= int64(core.InstantOf(c.begun))-slack {
			m.violatef(c, k, before, after, "a report after the deadline counted")
		}
	case is == core.JobTimedOut && was != is && before.number("deadline_ms") > int64(m.w.instant())+slack:
		m.violatef(c, k, before, after, "it timed out before its deadline")
	}
	m.judgeJobEntries(c, k, before, after, is)
}

func (m *monitor) judgeJobEntries(c *call, k itemKey, before, after item, is core.JobStatus) {
	at := after.number("retry_at_ms")
	if at == 0 {
		at = after.number("deadline_ms")
	}
	switch {
	case !strings.HasPrefix(after.text("list_pk"), "job#"+string(is)+"#"):
		m.violatef(c, k, before, after, "it is listed under another status")
	case is.Final() && after.has("due_pk"):
		m.violatef(c, k, before, after, "it has ended and is still due")
	case !is.Final() && (!after.has("due_pk") || deadlineOf(after) > at):
		m.violatef(c, k, before, after, "the sweep finds it late or never")
	}
	if id := after.text("last_message_id"); before != nil && after.number("retry_at_ms") == 0 && id != before.text("last_message_id") &&
		!m.hasMessage(after.text("worker_agent"), id) {
		m.violatef(c, k, before, after, "its worker was not told in the same write")
	}
}

// judgeObject holds a change of an archive job's document against its life.
func (m *monitor) judgeObject(c *call, key string, before, after []byte) {
	name, isJob := strings.CutPrefix(key, "jobs/")
	if !isJob || bytes.Equal(before, after) {
		return
	}
	id := strings.TrimSuffix(name, ".json")
	var was, is core.ArchiveJob
	var err error
	if before != nil {
		was, err = core.DecodeArchiveJob(id, before)
	}
	if after != nil && err == nil {
		is, err = core.DecodeArchiveJob(id, after)
	}
	wrong := func(what string) {
		m.w.violatef("%s (%s) changed %s from %s to %s: %s", c.name, c.endpoint, key, before, after, what)
	}
	switch {
	case err != nil:
		wrong("it is damaged: " + err.Error())
		return
	case was.Status == core.ArchiveDone:
		wrong("a job that was done changed")
	case after == nil && c.endpoint != "POST /bridge/queue/remove":
		wrong("only an operator removes a job")
	}
	lease, holds := c.sent.body["lease_id"].(string)
	if holds && before != nil && after != nil && c.sent.body["id"] == id && (was.Lease == nil || was.Lease.ID != lease) {
		wrong("it was done under the lease " + lease)
	}
	if is.Lease != nil && (was.Lease == nil || was.Lease.ID != is.Lease.ID) {
		m.judgeClaim(c, was, is, wrong)
	}
}

func (m *monitor) judgeClaim(c *call, was, is core.ArchiveJob, wrong func(string)) {
	now := m.w.instant() + core.Instant(slack)
	switch {
	case c.endpoint != "POST /bridge/queue/claim":
		wrong("only a claim makes a lease")
	case was.Lease != nil && was.Lease.ExpiresAt > now:
		wrong("it was claimed under a live lease")
	case was.Status == core.ArchiveReady && was.NextAttemptAt > now:
		wrong("it was claimed too early")
	case is.Attempts != was.Attempts+1:
		wrong("the attempt does not count")
	}
}
