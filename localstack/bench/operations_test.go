package bench_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
)

// A setting is what an operation prepares its requests in.
type setting struct {
	*rig

	b       testing.TB
	callers int
	run     int64 // no two runs have the same
}

var runs atomic.Int64

// id is a name that no other run uses.
func (s setting) id(kind string, n int) string { return fmt.Sprintf("%s-%d-%d", kind, s.run, n) }

// make posts what the operation needs.
func (s setting) make(endpoint string, body fields) fields {
	s.b.Helper()
	data, err := s.post(s.b.Context(), endpoint, body)
	if err != nil {
		s.b.Fatal(err)
	}
	return data
}

// An operation is one of the hub's, as its users ask for it.
type operation struct {
	name string
	// request makes what the n-th request needs, which is not measured, and
	// returns it.
	request func(s setting, n int) request
}

const agents = 64

func agent(id string) fields {
	return fields{"agent_id": id, "cli": "claude", "timeout_sec": 86_280, "capabilities": []string{"role:lead:candidate"}}
}

func letter(to string, n int) fields {
	return fields{
		"from": "chief", "to": to, "topic": "build", "ttl_ms": 86_400_000,
		"payload": fields{"text": "the build of the main branch has passed", "number": n},
	}
}

func job(worker string) fields {
	return fields{"supervisor_agent": "chief", "worker_agent": worker, "task": "review the change", "timeout_ms": 86_400_000}
}

func file(kind string, n int) fields {
	return fields{
		"agent": "claude", "source_path": fmt.Sprintf("/home/me/%s/%d.jsonl", kind, n), "source_bytes": 1234,
		"source_modified_at": "2026-01-01T00:00:00.123Z", "event": "stop",
	}
}

func question() fields {
	return fields{"requester_agent": "chief", "kind": "approval", "prompt": "May I deploy?", "deadline_ms": 3_600_000, "default_action": "decline"}
}

// role names a role that no other run uses.
func (s setting) role(n int) fields {
	return fields{"project_id": "prj_AbCdEfGhIjKlMnOpQrStUv", "role_kind": "lead", "scope_id": fmt.Sprintf("scp_Zy%010d%010d", s.run, n)}
}

// inbox is whose messages the n-th request drains: one caller has the deep inbox,
// many have one each.
func (s setting) inbox(n int) string {
	if s.callers == 1 {
		return "deep"
	}
	return fmt.Sprintf("inbox-%d", n%s.callers)
}

// known is a registered agent.
func (s setting) known(n int) string {
	id := fmt.Sprintf("known-%02d", n%agents)
	if n < agents {
		s.make("register", agent(id))
	}
	return id
}

// leased hands one message out of an inbox of its own and returns its receipt.
func (s setting) leased(n int) (id, receipt string) {
	id = s.id("leased", n)
	s.make("publish", letter(id, n))
	got := s.make("context", fields{"agent_id": id, "auto_ack": false, "visibility_ms": 600_000})
	return id, got["messages"].([]any)[0].(fields)["receipt"].(string)
}

// claimed is an archive job with its lease: the one that has waited longest.
func (s setting) claimed(n int) fields {
	s.make("queue/enqueue", file(s.id("claimed", n), n))
	job := s.make("queue/claim", fields{"owner": "worker"})["jobs"].([]any)[0].(fields)
	return fields{"id": job["id"], "lease_id": job["lease"].(fields)["id"]}
}

// activated ensures a role of one candidate and returns the acknowledgement that
// it asks for.
func (s setting) activated(n int) fields {
	id, role := s.id("holder", n), s.role(n)
	s.make("register", agent(id))
	s.make("roles/candidates", fields{"role_key": role, "agent_id": id})
	s.make("roles/ensure", fields{"role_key": role, "trigger": "manual", "cause_id": "bench"})
	messages := s.make("context", fields{"agent_id": id})["messages"].([]any)
	a := messages[len(messages)-1].(fields)["payload"].(fields)
	return fields{
		"agent_id": id, "role_key": a["role_key"], "activation_id": a["activation_id"], "epoch": a["epoch"], "activation_seq": a["activation_seq"],
		"charter_ack": fields{"role_key": a["role_key"], "epoch": a["epoch"], "charter_version": a["charter_version"]},
	}
}

// held is a role that its candidate has acknowledged.
func (s setting) held(n int) fields {
	ack := s.activated(n)
	s.make("roles/ack", ack)
	return fields{"role_key": ack["role_key"], "agent_id": ack["agent_id"], "epoch": ack["epoch"]}
}

func with(body fields, name string, value any) fields {
	body[name] = value
	return body
}

// operations are all that the issue names. Those that need something made for
// every request make it before the clock runs.
var operations = []operation{
	{"register", func(s setting, n int) request { return post("register", agent(s.known(n))) }},
	{"register-new", func(s setting, n int) request { return post("register", agent(s.id("new", n))) }},
	{"register-5-topics", func(s setting, n int) request {
		return post("register", with(agent(s.known(n)), "topics", []string{"a", "b", "c", "d", "e"}))
	}},
	{"heartbeat", func(s setting, n int) request {
		return post("heartbeat", fields{"agent_id": s.known(n), "ttl_ms": 86_400_000})
	}},
	{"heartbeat-20", func(s setting, n int) request {
		if n == 0 {
			for i := range agents {
				s.known(i)
			}
		}
		var batch []fields
		for i := range 20 {
			batch = append(batch, fields{"agent_id": fmt.Sprintf("known-%02d", (n+i)%agents)})
		}
		return post("heartbeat", fields{"agents": batch, "ttl_ms": 86_400_000})
	}},
	{"status-report", func(s setting, n int) request {
		return post("status", fields{"agent_id": s.known(n), "status": "busy"})
	}},
	{"deregister", func(s setting, n int) request {
		s.make("register", agent(s.id("leaver", n)))
		return post("deregister", fields{"agent_id": s.id("leaver", n)})
	}},
	{"agent-status", func(s setting, _ int) request { return get("/bridge/status?scope=agent&agent_id=deep") }},
	{"hub-status", func(setting, int) request { return get("/bridge/status") }},
	{"health", func(setting, int) request { return get("/health") }},
	{"list-agents", func(setting, int) request { return get("/bridge/agents?limit=20") }},

	{"publish", func(s setting, n int) request { return post("publish", letter(s.inbox(n), n)) }},
	{"publish-topic-10", func(s setting, n int) request {
		if n == 0 {
			for i := range 10 {
				s.make("register", with(agent(fmt.Sprintf("follower-%d", i)), "topics", []string{"of-ten"}))
			}
		}
		return post("publish", letter("topic:of-ten", n))
	}},
	{"publish-role", func(_ setting, n int) request { return post("publish", letter("topic:cto", n)) }},
	{"handoff", func(s setting, n int) request {
		return post("handoff", fields{"from": "chief", "to": s.known(n), "topic": "review", "task": "finish the review", "payload": fields{"branch": "main"}})
	}},
	{"result", func(s setting, n int) request {
		return post("result", fields{"agent_id": s.known(n), "topic": "unheard", "payload": fields{"passed": true}})
	}},
	{"control", func(s setting, n int) request {
		return post("control", fields{"to_agent": s.known(n), "command": "stop"})
	}},
	{"ask", func(s setting, n int) request {
		return post("ask", fields{"from": "chief", "to": s.known(n), "topic": "review", "question": "Is it done?"})
	}},
	{"drain-10", func(s setting, n int) request {
		for i := range 10 {
			s.make("publish", letter(s.inbox(n), i))
		}
		return post("context", fields{"agent_id": s.inbox(n), "max_messages": 10, "auto_ack": true})
	}},
	{"drain-empty", func(s setting, n int) request { return post("context", fields{"agent_id": s.id("idle", n%agents)}) }},
	{"lease-10", func(s setting, n int) request {
		for i := range 10 {
			s.make("publish", letter(s.id("lessee", n), i))
		}
		return post("context", fields{"agent_id": s.id("lessee", n), "max_messages": 10, "auto_ack": false, "visibility_ms": 60_000})
	}},
	{"ack", func(s setting, n int) request {
		id, receipt := s.leased(n)
		return post("ack", fields{"agent_id": id, "receipts": []string{receipt}})
	}},
	{"nack", func(s setting, n int) request {
		id, receipt := s.leased(n)
		return post("nack", fields{"agent_id": id, "receipts": []string{receipt}})
	}},
	{"list-dead-letters", func(setting, int) request { return get("/bridge/dead-letters?limit=20") }},

	{"role-candidate", func(s setting, n int) request {
		return post("roles/candidates", fields{"role_key": s.role(n % agents), "agent_id": s.known(n)})
	}},
	{"role-ensure", func(s setting, n int) request {
		s.make("roles/candidates", fields{"role_key": s.role(n), "agent_id": s.known(n)})
		return post("roles/ensure", fields{"role_key": s.role(n), "trigger": "manual", "cause_id": "bench"})
	}},
	{"role-acknowledge", func(s setting, n int) request { return post("roles/ack", s.activated(n)) }},
	{"role-fence-check", func(s setting, n int) request { return post("roles/fence-check", s.held(n)) }},
	{"role-release", func(s setting, n int) request { return post("roles/release", s.held(n)) }},
	{"role-reserve", func(s setting, n int) request {
		s.make("roles/candidates", fields{"role_key": s.role(n), "agent_id": s.known(n)})
		return post("roles/reserve", fields{"role_key": s.role(n), "holder_agent_id": s.known(n)})
	}},
	{"role-status", func(setting, int) request { return get("/bridge/roles/status") }},

	{"human-request", func(setting, int) request { return post("hitl/request", question()) }},
	{"human-submit", func(s setting, _ int) request {
		return post("hitl/submit", fields{"request_id": s.make("hitl/request", question())["request_id"], "action": "accept", "content": fields{"yes": true}})
	}},
	{"human-get", func(s setting, _ int) request {
		return post("hitl/get", fields{"request_id": s.make("hitl/request", question())["request_id"]})
	}},
	{"list-human-pending", func(setting, int) request { return get("/bridge/hitl/pending") }},

	{"assign", func(s setting, n int) request { return post("assign/async", job(s.known(n))) }},
	{"assign-result", func(s setting, n int) request {
		id := s.make("assign/async", job(s.known(n)))["job_id"]
		return post("assign/result", fields{"job_id": id, "status": "succeeded", "result": fields{"passed": true}})
	}},
	{"assign-status", func(s setting, n int) request {
		return post("assign/status", fields{"job_id": s.make("assign/async", job(s.known(n)))["job_id"]})
	}},
	{"assign-retry", func(s setting, n int) request {
		id := s.make("assign/async", with(job(s.known(n)), "max_retries", 1))["job_id"]
		s.make("assign/result", fields{"job_id": id, "status": "succeeded", "result": "done"})
		return post("assign/retry", fields{"job_id": id, "force": true})
	}},
	{"assign-cancel", func(s setting, n int) request {
		return post("assign/cancel", fields{"job_id": s.make("assign/async", job(s.known(n)))["job_id"]})
	}},
	{"list-assignments", func(setting, int) request {
		return post("assign/status", fields{"supervisor_agent": "chief", "limit": 20})
	}},
	{"events-poll", func(s setting, n int) request {
		return get(fmt.Sprintf("/bridge/events?job_id=%v", s.make("assign/async", job(s.known(n)))["job_id"]))
	}},

	{"reflexion-lookup", func(s setting, n int) request {
		if n == 0 {
			s.make("reflexion/learn", fields{"error_message": "connection refused on port 5432", "solution": "start the database"})
		}
		return post("reflexion/lookup", fields{"error_message": "connection refused on port 5432"})
	}},
	{"reflexion-learn", func(s setting, n int) request {
		return post("reflexion/learn", fields{"error_message": "module " + s.id("missing", n) + " cannot be found", "solution": "install it"})
	}},
	{"reflexion-hit", func(s setting, n int) request {
		learnt := s.make("reflexion/learn", fields{"error_message": "module " + s.id("absent", n) + " cannot be found", "solution": "install it"})
		return post("reflexion/hit", fields{"id": learnt["entry"].(fields)["id"], "success": true})
	}},
	{"list-reflexion", func(setting, int) request { return get("/bridge/reflexion?limit=20") }},

	{"pipeline-init", func(s setting, n int) request { return post("pipeline/init", fields{"team_name": s.id("team", n)}) }},
	{"pipeline-advance", func(s setting, n int) request {
		s.make("pipeline/init", fields{"team_name": s.id("movers", n)})
		return post("pipeline/advance", fields{"team_name": s.id("movers", n), "phase": "prd"})
	}},
	{"pipeline-state", func(s setting, n int) request {
		s.make("pipeline/init", fields{"team_name": s.id("resting", n)})
		return post("pipeline/state", fields{"team_name": s.id("resting", n)})
	}},

	{"queue-enqueue", func(s setting, n int) request { return post("queue/enqueue", file(s.id("file", n), n)) }},
	{"queue-claim", func(s setting, n int) request {
		s.make("queue/enqueue", file(s.id("waiting", n), n))
		return post("queue/claim", fields{"owner": "worker"})
	}},
	{"queue-renew", func(s setting, n int) request { return post("queue/renew", s.claimed(n)) }},
	{"queue-complete", func(s setting, n int) request {
		return post("queue/complete", with(s.claimed(n), "result", fields{"archive_id": "a1", "ciphertext_sha256": "00", "bytes": 1234}))
	}},
	{"queue-stats", func(setting, int) request { return get("/bridge/queue/stats") }},
}

// rowCounts are how many rows are stored; 100,000 take half a minute to store.
func rowCounts() []int {
	if long() {
		return []int{0, 10_000, 100_000}
	}
	return []int{0}
}

// TestEveryOperationAnswers keeps the benchmarks from measuring refusals.
func TestEveryOperationAnswers(t *testing.T) {
	if len(operations) < 50 {
		t.Errorf("only %d operations are measured", len(operations))
	}
	r, err := rigOf(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range operations {
		t.Run(o.name, func(t *testing.T) {
			s := setting{rig: r, b: t, callers: 1, run: runs.Add(1)}
			status, text, err := r.handler(t.Context(), o.request(s, 0))
			if err != nil || status != http.StatusOK {
				t.Errorf("the answer is %d %s %v", status, text, err)
			}
		})
	}
}
