package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"drawbridge/core"
)

// An agent is an actor that has an id. Two may have the same one: then each takes
// the other for somebody long gone.
type agent struct {
	*actor
	id         string
	generation int64  // that it believes in; 0: it never registered
	hub        string // the identity that it believes in
	step       int64

	held  []held   // messages it leased
	asked []string // human requests it made
	posts []post   // roles it acknowledged
	files []filed  // archive jobs it works on
	*desk
}

// A desk is where everybody sees the jobs: they report on each other's, so that
// reports, retries and cancels meet.
type desk struct {
	orders []order
	given  []string
}

// recent returns one of the last few.
func recent[T any](a *actor, of []T) T { return of[len(of)-1-a.random.IntN(min(len(of), 4))] }

type held struct {
	receipt string
	message any
}

type order struct {
	worker  string
	job     string
	attempt int64
}

type post struct {
	wire  string
	epoch int64
	value int64 // version of the role's value that it knows
}

type filed struct{ id, lease string }

const project = "prj_ABCDEFGHIJKLMNOPQRSTUV"

var (
	agentIDs = []string{"a0", "a1", "a2", "a3", "a4"}
	topics   = []string{"build", "review"}
	roles    = []core.RoleKey{
		{ProjectID: project, Kind: core.RoleCTO}, {ProjectID: project, Kind: core.RoleLead, ScopeID: "scp_ABCDEFGHIJKLMNOPQRSTUV"},
	}
)

// live is what an agent does until the run comes to its end.
func (g *agent) live() {
	for !g.w.closing {
		g.act()
		g.think(time.Duration(g.between(0, pick(g.actor, 10, 40, 250))) * time.Millisecond)
		if g.chance(40) {
			g.think(time.Duration(g.between(2000, 20000)) * time.Millisecond) // it stalls
		}
	}
	g.finish()
}

// act does one thing.
func (g *agent) act() {
	if g.generation == 0 || g.chance(25) {
		g.register()
		return
	}
	pick(g.actor, g.deeds()...)()
}

// deeds are what an agent does, each as often as it is there.
func (g *agent) deeds() []func() {
	alive := []func(){g.heartbeat, g.heartbeat, g.heartbeat, g.beatAll, g.report, g.leave, g.look, g.drain, g.drain}
	talk := []func(){
		g.publish, g.publish, g.publish, g.publish, g.ask, g.drain, g.drain, g.drain, g.drain, g.settle, g.settle, g.settle,
	}
	lead := []func(){
		g.enrol, g.enrol, g.ensure, g.ensure, g.ensure, g.drain, g.drain, g.checkFence, g.checkFence, g.release, g.attach, g.attach, g.publish,
	}
	work := []func(){
		g.assign, g.assign, g.drain, g.drain, g.work, g.work, g.work, g.work, g.command, g.command, g.askHuman, g.askHuman, g.readHuman,
	}
	archive := []func(){
		g.enqueue, g.enqueue, g.enqueue, g.claim, g.claim, g.archive, g.archive, g.archive, g.archive,
	}
	learn := []func(){g.learn, g.recall, g.advance}
	switch g.w.plan.focus {
	case onMessages:
		return append(alive, talk...)
	case onRoles:
		return append(alive, lead...)
	case onWork:
		return append(alive, work...)
	case onArchive:
		return append(archive, g.heartbeat)
	case onEverything:
	}
	return slices.Concat(alive, talk, lead, work, archive, learn)
}

// body is a request's body with the agent's fences, as often as it sends them.
func (g *agent) body(field string, pairs ...any) map[string]any {
	body := map[string]any{field: g.id}
	if g.generation > 0 && !g.chance(6) {
		body["presence_generation"] = g.generation
	}
	if g.hub != "" && g.chance(3) {
		body["hub_instance_id"] = g.hub
	}
	for i := 0; i < len(pairs); i += 2 {
		body[pairs[i].(string)] = pairs[i+1]
	}
	return body
}

// post sends a request in the agent's name and learns from a refusal that it is
// not current any more.
func (g *agent) post(path string, body map[string]any) answer {
	return g.learnFrom(g.send(g.request(path, body)))
}

func (g *agent) request(path string, body map[string]any) request {
	return request{method: "POST", path: "/bridge/" + path, body: body, acts: g.id}
}

func (g *agent) learnFrom(a answer) answer {
	switch a.code() {
	case "STALE_PRESENCE_OWNER":
		if !g.chance(4) { // some do not listen
			g.generation = 0
		}
	case "STALE_HUB_INSTANCE":
		g.hub = ""
	}
	return a
}

// --- presence

func (g *agent) register() {
	body := map[string]any{
		"agent_id": g.id, "cli": "claude", "timeout_sec": -119 + g.between(0, 20), "project_id": project,
		"capabilities": []string{"role:cto:candidate", "role:lead:candidate"},
	}
	if g.chance(2) {
		body["topics"] = topics[:g.between(1, 2)]
	}
	r := g.request("register", body)
	if g.chance(3) {
		r.key = g.unique("register")
	}
	got := g.send(r)
	if got.unknown() && r.key != "" {
		got = g.insist(r)
	}
	if got.ok() {
		g.generation, g.hub, g.step = got.number("data.presence_generation"), got.text1("data.hub_instance_id"), 0
	}
}

func (g *agent) heartbeat() {
	body := g.body("agent_id", "ttl_ms", g.between(1000, 12000))
	if g.chance(3) {
		g.step += int64(g.between(0, 1))
		body["step"], body["step_deadline_ms"] = g.step, g.between(500, 5000)
	}
	g.post("heartbeat", body)
}

// beatAll sends the heartbeats of a host's agents in one call.
func (g *agent) beatAll() {
	var beats []map[string]any
	for _, id := range agentIDs {
		beats = append(beats, map[string]any{"agent_id": id})
	}
	g.post("heartbeat", map[string]any{"agents": beats, "ttl_ms": g.between(1000, 5000)})
}

func (g *agent) report() {
	g.post("status", g.body("agent_id", "status", pick(g.actor, "busy", "idle", "stale", "offline")))
}

func (g *agent) leave() {
	if !g.chance(3) {
		return
	}
	if got := g.post("deregister", g.body("agent_id", "final", g.chance(2))); got.ok() && g.chance(2) {
		g.generation = 0
	}
}

func (g *agent) look() {
	g.send(request{method: "GET", path: pick(g.actor, "/bridge/agents", "/bridge/status", "/bridge/status?agent_id="+g.id,
		"/bridge/dead-letters", "/bridge/roles/status", "/health", "/bridge/queue/stats", "/bridge/hitl/pending", "/bridge/queue/jobs")})
}

// --- messages

func (g *agent) publish() {
	to := pick(g.actor, agentIDs...)
	switch g.random.IntN(8) {
	case 0, 1:
		to = "topic:" + pick(g.actor, topics...)
	case 2:
		to = pick(g.actor, roles...).Address()
	case 3:
		to = "topic:nobody"
	}
	serial := g.unique("m")
	payload := any(map[string]any{"serial": serial})
	if g.chance(25) {
		payload = map[string]any{"serial": serial, "ballast": strings.Repeat("x", 9000)}
	}
	body := g.body("from", "to", to, "topic", "work", "trace_id", serial, "payload", payload,
		"ttl_ms", g.between(500, 30000), "priority", g.between(1, 9), "type", pick(g.actor, "event", "request", "handoff"))
	if g.chance(4) {
		body["max_deliveries"] = g.between(1, 3)
	}
	if g.chance(8) && !strings.HasPrefix(to, "topic:") {
		body["if_recipient"] = "online"
	}
	r := g.request("publish", body)
	if g.chance(2) {
		r.key = "key of " + serial
	}
	g.publishAs(serial, r)
}

func (g *agent) publishAs(serial string, r request) {
	p := g.w.ledger.open("message", serial, r.key != "")
	send := func() answer {
		got := g.learnFrom(g.send(r))
		id := got.text1("data.message_id")
		if id == "" {
			id = got.text1("data.request_message_id")
		}
		p.note(got, id)
		return got
	}
	got := send()
	// The same key tells the same request: a client that got no answer asks again,
	// and some do for no reason.
	for p.keyed && (got.unknown() || got.ok() && g.chance(10)) {
		g.think(time.Duration(g.between(0, 300)) * time.Millisecond)
		got = send()
	}
}

func (g *agent) ask() {
	serial := g.unique("m")
	g.publishAs(serial, g.request("ask", g.body("from", "to", pick(g.actor, agentIDs...), "topic", "question", "question", serial,
		"trace_id", serial, "correlation_id", "c-"+serial, "ttl_ms", g.between(1000, 20000), "await_response_ms", g.between(0, 1500))))
}

func (g *agent) drain() {
	body := g.body("agent_id", "max_messages", g.between(1, 10))
	switch g.random.IntN(8) {
	case 0:
		body["auto_ack"] = false
	case 1, 2, 3:
		body["auto_ack"], body["visibility_ms"] = false, g.between(1000, 8000)
	}
	for _, message := range list(g.post("context", body).at("data.messages")) {
		g.receive(message)
		if receipt, leased := at(message, "receipt").(string); leased {
			g.held = append(g.held, held{receipt, message})
		}
	}
}

// receive acts on a message.
func (g *agent) receive(message any) {
	payload, _ := at(message, "payload").(map[string]any)
	switch {
	case at(message, "topic") == "role.activation":
		g.acknowledge(payload)
	case payload["kind"] == "assign.job":
		job, _ := payload["assign_job_id"].(string)
		attempt, _ := payload["attempt"].(float64)
		g.orders = append(g.orders, order{g.id, job, int64(attempt)})
	case at(message, "topic") == "question":
		g.respond(message)
	}
}

func (g *agent) respond(message any) {
	serial := g.unique("m")
	g.publishAs(serial, g.request("publish", g.body("from", "to", at(message, "from_agent"), "type", "response", "topic", "question",
		"trace_id", serial, "correlation_id", at(message, "correlation_id"), "payload", map[string]any{"serial": serial})))
}

// settle acknowledges what it leased, or gives it back; sometimes much later,
// sometimes twice.
func (g *agent) settle() {
	if len(g.held) == 0 {
		return
	}
	i := g.random.IntN(len(g.held))
	h := g.held[i]
	if !g.chance(6) {
		g.held = append(g.held[:i], g.held[i+1:]...)
	}
	switch g.random.IntN(6) {
	case 0, 1:
		g.post("nack", g.body("agent_id", "receipts", []string{h.receipt}, "delay_ms", g.between(0, 3000), "error", "cannot"))
	case 2:
		g.post("ack", g.body("agent_id", "message_ids", []any{at(h.message, "id")}))
	default:
		g.post("ack", g.body("agent_id", "receipts", []string{h.receipt}))
	}
}

// --- roles

func (g *agent) enrol() {
	g.post("roles/candidates", g.body("agent_id", "role_key_wire", pick(g.actor, roles...).Wire(), "priority", g.between(0, 3)))
}

func (g *agent) ensure() {
	g.post("roles/ensure", map[string]any{"role_key_wire": pick(g.actor, roles...).Wire(), "trigger": "manual", "cause_id": g.unique("cause")})
}

func (g *agent) acknowledge(payload map[string]any) {
	wire, _ := payload["role_key_wire"].(string)
	epoch, _ := payload["epoch"].(float64)
	charter := map[string]any{"role_key_wire": wire, "epoch": int64(epoch)}
	if version := payload["charter_version"]; version != nil {
		charter["charter_version"] = version
	}
	got := g.post("roles/ack", g.body("agent_id", "role_key_wire", wire, "activation_id", payload["activation_id"], "epoch", int64(epoch),
		"activation_seq", payload["activation_seq"], "charter_ack", charter))
	if got.ok() {
		g.posts = append(g.posts, post{wire, int64(epoch), got.number("data.state_version")})
	}
}

// office is a role that it once acknowledged; false when there is none.
func (g *agent) office() (*post, bool) {
	if len(g.posts) == 0 {
		return nil, false
	}
	if g.chance(2) {
		return &g.posts[len(g.posts)-1], true
	}
	return &g.posts[g.random.IntN(len(g.posts))], true
}

func (g *agent) checkFence() {
	if p, ok := g.office(); ok {
		g.post("roles/fence-check", map[string]any{"role_key_wire": p.wire, "agent_id": g.id, "epoch": p.epoch})
	}
}

func (g *agent) release() {
	p, ok := g.office()
	if !ok || !g.chance(3) {
		return
	}
	body := g.body("agent_id", "role_key_wire", p.wire, "epoch", p.epoch)
	if g.chance(2) {
		body["successor"], body["grace_ms"] = pick(g.actor, agentIDs...), g.between(0, 3000)
	}
	g.post("roles/release", body)
}

func (g *agent) attach() {
	if p, ok := g.office(); ok {
		got := g.post("roles/state", g.body("agent_id", "role_key_wire", p.wire, "epoch", p.epoch, "expected_state_version", p.value,
			"state", map[string]any{"by": g.unique("value")}))
		if got.ok() {
			p.value = got.number("data.state_version")
		}
	}
}

// --- assignments

func (g *agent) assign() {
	serial := g.unique("j")
	r := g.request("assign/async", g.body("supervisor_agent", "worker_agent", pick(g.actor, agentIDs...), "task", serial, "trace_id", serial,
		"correlation_id", "c-"+serial, "timeout_ms", g.between(1000, 15000), "ttl_ms", g.between(1000, 15000), "max_retries", g.between(0, 2),
		"retry_delay_ms", pick(g.actor, 0, 0, 700), "retry_on_timeout", !g.chance(4)))
	if g.chance(2) {
		r.key = "key of " + serial
	}
	j := g.w.ledger.open("job", serial, r.key != "")
	for {
		got := g.learnFrom(g.send(r))
		id := got.text1("data.job_id")
		j.note(got, id)
		if got.ok() {
			g.given = append(g.given, id)
		}
		if !j.keyed || !got.unknown() {
			return
		}
	}
}

// work reports on a job that it was given, sometimes long after, sometimes twice.
func (g *agent) work() {
	if len(g.orders) == 0 {
		return
	}
	o := recent(g.actor, g.orders)
	body := map[string]any{"job_id": o.job, "attempt": o.attempt}
	if o.worker == g.id {
		maps.Copy(body, g.body("worker_agent"))
	}
	switch g.random.IntN(8) {
	case 0, 1, 2, 3, 4:
		body["status"] = "running"
	case 5, 6:
		body["status"], body["result"] = "succeeded", map[string]any{"of": g.unique("result")}
	default:
		body["status"], body["error"] = "failed", "no"
	}
	r := g.request("assign/result", body)
	if got := g.learnFrom(g.send(r)); got.unknown() {
		g.insist(r) // a report may be repeated
	}
}

// command reads, retries or cancels a job that it gave.
func (g *agent) command() {
	if len(g.given) == 0 {
		return
	}
	job := recent(g.actor, g.given)
	switch g.random.IntN(5) {
	case 0:
		g.post("assign/retry", map[string]any{"job_id": job, "reason": "again"})
	case 1:
		g.post("assign/cancel", map[string]any{"job_id": job, "reason": "enough"})
	case 2:
		g.send(request{method: "GET", path: "/bridge/events?job_id=" + job})
	default:
		g.post("assign/status", map[string]any{"job_id": job})
	}
}

// --- human requests

func (g *agent) askHuman() {
	serial := g.unique("h")
	r := g.request("hitl/request", g.body("requester_agent", "kind", "approval", "prompt", serial, "trace_id", serial,
		"deadline_ms", g.between(1000, 15000), "default_action", pick(g.actor, "decline", "cancel", "timeout_continue")))
	if g.chance(2) {
		r.key = "key of " + serial
	}
	q := g.w.ledger.open("question", serial, r.key != "")
	for {
		got := g.learnFrom(g.send(r))
		q.note(got, got.text1("data.request_id"))
		if got.ok() {
			g.asked = append(g.asked, got.text1("data.request_id"))
		}
		if !q.keyed || !got.unknown() {
			return
		}
	}
}

func (g *agent) readHuman() {
	if len(g.asked) > 0 {
		g.post("hitl/get", map[string]any{"request_id": pick(g.actor, g.asked...), "wait_ms": pick(g.actor, 0, 0, 1000)})
	}
}

// --- the archive queue

func (g *agent) enqueue() {
	body := map[string]any{
		"agent": "claude", "source_path": fmt.Sprintf("/home/%d.jsonl", g.between(0, 3)), "source_bytes": g.between(1, 3),
		"source_modified_at_ms": start.Add(time.Duration(g.between(0, 5)) * time.Second).UnixMilli(), "event": pick(g.actor, "stop", "manual"),
	}
	got := g.insist(g.request("queue/enqueue", body))
	if got.ok() {
		g.w.ledger.enqueued[got.text1("data.job.id")] = true
	}
}

func (g *agent) claim() {
	got := g.post("queue/claim", map[string]any{"owner": g.name, "max": g.between(1, 3), "lease_ms": g.between(1000, 8000)})
	for _, job := range list(got.at("data.jobs")) {
		id, _ := at(job, "id").(string)
		lease, _ := at(job, "lease", "id").(string)
		g.files = append(g.files, filed{id, lease})
	}
}

// archive does something under a lease, sometimes long after it lapsed.
func (g *agent) archive() {
	if len(g.files) == 0 {
		return
	}
	i := g.random.IntN(len(g.files))
	f := g.files[i]
	body := map[string]any{"id": f.id, "lease_id": f.lease}
	switch g.random.IntN(8) {
	case 0:
		g.post("queue/renew", body)
		return
	case 1:
		body["bytes"], body["of"] = 1, 2
		g.post("queue/progress", body)
		return
	case 2:
		g.post("queue/release", body)
	case 3:
		body["error"] = map[string]any{"code": "disk", "message": "full"}
		g.post("queue/fail", body)
	default:
		g.complete(f, body)
	}
	g.files = append(g.files[:i], g.files[i+1:]...)
}

func (g *agent) complete(f filed, body map[string]any) {
	body["result"] = map[string]any{"archive_id": "of " + f.lease, "ciphertext_sha256": "00", "bytes": 1}
	if g.insist(g.request("queue/complete", body)).ok() {
		g.w.ledger.done[f.id] = true
	}
}

// --- what was learnt, and pipelines

// failure is an error that agents meet again and again.
func (g *agent) failure() string {
	return "cannot open " + pick(g.actor, "the door", "the window", "the lid")
}

func (g *agent) learn() {
	g.post("reflexion/learn", map[string]any{
		"error_message": g.failure(), "solution": g.unique("fix"), "agent_id": g.id,
	})
}

func (g *agent) recall() {
	got := g.post("reflexion/lookup", map[string]any{"error_message": g.failure()})
	if entries := list(got.at("data.entries")); len(entries) > 0 {
		g.post("reflexion/hit", map[string]any{"id": at(entries[0], "id"), "success": g.chance(2)})
	}
}

func (g *agent) advance() {
	if g.chance(5) {
		g.post("pipeline/init", map[string]any{"team_name": "team"})
		return
	}
	g.post("pipeline/advance", map[string]any{"team_name": "team", "phase": pick(g.actor, "prd", "confidence", "exec", "deslop", "verify", "fix", "complete")})
}

// finish is the end of an agent: it asks for what it has until it is answered,
// and empties its inbox.
func (g *agent) finish() {
	g.generation = 0
	for g.generation == 0 {
		g.register()
	}
	for {
		got := g.insist(g.request("context", map[string]any{"agent_id": g.id, "max_messages": 100, "presence_generation": g.generation}))
		switch {
		case got.code() == "STALE_PRESENCE_OWNER":
			g.register() // its twin came after it
		case got.ok() && len(list(got.at("data.messages"))) == 0:
			return
		case !got.ok():
			g.w.violatef("%s cannot empty its inbox: %s", g.name, got.text)
			return
		}
	}
}
