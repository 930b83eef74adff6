package functions

import (
	"net/http"

	"drawbridge/core"
)

// DefaultName is the function behind the gateway's $default route: it answers
// what no endpoint serves, and OPTIONS.
const DefaultName = "default"

// Endpoints lists what the hub serves over HTTP. A new endpoint is a request
// struct, a response struct, a function and one entry here, plus its route in
// template.yaml.
func Endpoints() []Endpoint {
	return []Endpoint{
		serve(Endpoint{
			Name: "register", Method: http.MethodPost, Path: "/bridge/register", Scope: core.ScopeAgent, Creates: true,
			Summary: "Start a new generation of an agent and grant it a lease",
		}, register),
		serve(Endpoint{
			Name: "heartbeat", Method: http.MethodPost, Path: "/bridge/heartbeat", Scope: core.ScopeAgent, ConflictStatus: http.StatusNotFound,
			Summary: "Extend the lease of one agent, or of up to 100",
		}, heartbeat),
		serve(Endpoint{
			Name: "deregister", Method: http.MethodPost, Path: "/bridge/deregister", Scope: core.ScopeAgent,
			Summary: "Take an agent offline",
		}, deregister),
		serve(Endpoint{
			Name: "status-get", Method: http.MethodGet, Path: "/bridge/status", Scope: core.ScopeRead,
			Summary: "Read the state of the hub, an agent or a trace",
		}, readStatus),
		serve(Endpoint{
			Name: "status-post", Method: http.MethodPost, Path: "/bridge/status", Scope: core.ScopeAgent,
			Summary: "Report an agent's status, or read as GET does with the hub's identity checked",
		}, reportStatus),
		serve(Endpoint{
			Name: "agents", Method: http.MethodGet, Path: "/bridge/agents", Scope: core.ScopeRead,
			Summary: "List the agents",
		}, listAgents),
		serve(Endpoint{
			Name: "publish", Method: http.MethodPost, Path: "/bridge/publish", Scope: core.ScopeAgent, Creates: true,
			Summary: "Send a message to an agent, a role or the followers of a topic",
		}, publish),
		serve(Endpoint{
			Name: "handoff", Method: http.MethodPost, Path: "/bridge/handoff", Scope: core.ScopeAgent, Creates: true,
			Summary: "Hand a task to an agent",
		}, handoff),
		serve(Endpoint{
			Name: "result", Method: http.MethodPost, Path: "/bridge/result", Scope: core.ScopeAgent, Creates: true,
			Summary: "Tell a result to the followers of a topic",
		}, result),
		serve(Endpoint{
			Name: "control", Method: http.MethodPost, Path: "/bridge/control", Scope: core.ScopeAgent, Creates: true,
			Summary: "Send an agent a command",
		}, control),
		serve(Endpoint{
			Name: "ask", Method: http.MethodPost, Path: "/bridge/ask", Scope: core.ScopeAgent, Creates: true,
			Summary: "Send a request and wait, for up to 25 seconds, for its response",
		}, ask),
		serve(Endpoint{
			Name: "context", Method: http.MethodPost, Path: "/bridge/context", Scope: core.ScopeAgent,
			Summary: "Drain an agent's inbox: by priority, oldest first",
		}, drain),
		serve(Endpoint{
			Name: "ack", Method: http.MethodPost, Path: "/bridge/ack", Scope: core.ScopeAgent,
			Summary: "Acknowledge messages",
		}, ack),
		serve(Endpoint{
			Name: "nack", Method: http.MethodPost, Path: "/bridge/nack", Scope: core.ScopeAgent,
			Summary: "Give leased messages back",
		}, nack),
		serve(Endpoint{
			Name: "dead-letters", Method: http.MethodGet, Path: "/bridge/dead-letters", Scope: core.ScopeRead,
			Summary: "List the dead letters, newest first",
		}, listDeadLetters),
		serve(Endpoint{
			Name: "dead-letters-redrive", Method: http.MethodPost, Path: "/bridge/dead-letters/redrive", Scope: core.ScopeOperator,
			Summary: "Give dead letters a new life",
		}, redrive),
		serve(Endpoint{
			Name: "hitl-request", Method: http.MethodPost, Path: "/bridge/hitl/request", Scope: core.ScopeAgent, Creates: true,
			Summary: "Ask a person, with a deadline",
		}, askHuman),
		serve(Endpoint{
			Name: "hitl-submit", Method: http.MethodPost, Path: "/bridge/hitl/submit", Scope: core.ScopeAgent, Finds: true,
			Summary: "Answer a human request: the first answer wins",
		}, submitHuman),
		serve(Endpoint{
			Name: "hitl-get", Method: http.MethodPost, Path: "/bridge/hitl/get", Scope: core.ScopeAgent, Finds: true,
			Summary: "Read a human request, or wait for up to 25 seconds for its end",
		}, getHuman),
		serve(Endpoint{
			Name: "hitl-pending", Method: http.MethodGet, Path: "/bridge/hitl/pending", Scope: core.ScopeRead,
			Summary: "List the human requests that wait for a person, oldest first",
		}, pendingHuman),
		serve(Endpoint{
			Name: "hitl-pending", Method: http.MethodPost, Path: "/bridge/hitl/pending", Scope: core.ScopeRead,
			Summary: "The same as GET",
		}, pendingHuman),
		serve(Endpoint{
			Name: "assign-async", Method: http.MethodPost, Path: "/bridge/assign/async", Scope: core.ScopeAgent, Creates: true,
			Summary: "Give a job to a worker",
		}, assign),
		serve(Endpoint{
			Name: "assign-result", Method: http.MethodPost, Path: "/bridge/assign/result", Scope: core.ScopeAgent, Finds: true,
			Summary: "Report on a job: progress, or its result",
		}, reportAssign),
		serve(Endpoint{
			Name: "assign-status", Method: http.MethodPost, Path: "/bridge/assign/status", Scope: core.ScopeRead, Finds: true,
			Summary: "Read a job, or list jobs, newest first",
		}, assignStatus),
		serve(Endpoint{
			Name: "assign-retry", Method: http.MethodPost, Path: "/bridge/assign/retry", Scope: core.ScopeAgent, Finds: true,
			Summary: "Begin another attempt of a job that has ended",
		}, retryAssign),
		serve(Endpoint{
			Name: "assign-cancel", Method: http.MethodPost, Path: "/bridge/assign/cancel", Scope: core.ScopeAgent, Finds: true,
			Summary: "End a job and tell its worker",
		}, cancelAssign),
		serve(Endpoint{
			Name: "events", Method: http.MethodGet, Path: "/bridge/events", Scope: core.ScopeRead, Finds: true,
			Summary: "Follow the changes of a job or an agent, waiting for up to 25 seconds",
		}, followEvents),
		serve(Endpoint{
			Name: "takeover-role", Method: http.MethodPost, Path: "/bridge/takeover-role", Scope: core.ScopeAgent,
			Summary: "Make an agent the leader of the legacy cto role",
		}, takeoverRole),
		serve(Endpoint{
			Name: "roles-candidates", Method: http.MethodPost, Path: "/bridge/roles/candidates", Scope: core.ScopeAgent,
			Summary: "Add an agent to a role's candidates",
		}, addCandidate),
		serve(Endpoint{
			Name: "roles-ensure", Method: http.MethodPost, Path: "/bridge/roles/ensure", Scope: core.ScopeAgent,
			Summary: "See to it that somebody holds a role",
		}, ensureRole),
		serve(Endpoint{
			Name: "roles-ack", Method: http.MethodPost, Path: "/bridge/roles/ack", Scope: core.ScopeAgent,
			Summary: "Acknowledge an activation and hold the role",
		}, ackRole),
		serve(Endpoint{
			Name: "roles-release", Method: http.MethodPost, Path: "/bridge/roles/release", Scope: core.ScopeAgent, Finds: true,
			Summary: "Give a role back, or hand it over",
		}, releaseRole),
		serve(Endpoint{
			Name: "roles-cas", Method: http.MethodPost, Path: "/bridge/roles/cas", Scope: core.ScopeOperator, NotFoundStatus: http.StatusConflict,
			Summary: "Change a role where it is as expected",
		}, casRole),
		serve(Endpoint{
			Name: "roles-reserve", Method: http.MethodPost, Path: "/bridge/roles/reserve", Scope: core.ScopeOperator,
			Summary: "Give a role its next epoch",
		}, reserveRole),
		serve(Endpoint{
			Name: "roles-state", Method: http.MethodPost, Path: "/bridge/roles/state", Scope: core.ScopeAgent,
			Summary: "Attach a value to a role for its next holder",
		}, setRoleState),
		serve(Endpoint{
			Name: "roles-fence-check", Method: http.MethodPost, Path: "/bridge/roles/fence-check", Scope: core.ScopeRead, Finds: true,
			Summary: "Tell whether an authority stands",
		}, checkFence),
		serve(Endpoint{
			Name: "roles-status", Method: http.MethodGet, Path: "/bridge/roles/status", Scope: core.ScopeRead,
			Summary: "List the roles",
		}, roleStatus),
		serve(Endpoint{
			Name: "roles-history", Method: http.MethodGet, Path: "/bridge/roles/history", Scope: core.ScopeRead, Finds: true,
			Summary: "List a role's latest transitions, newest first",
		}, roleHistory),
		serve(Endpoint{
			Name: "roles-settings", Method: http.MethodPost, Path: "/bridge/roles/settings", Scope: core.ScopeOperator,
			Summary: "Change the switches of the roles",
		}, changeRoleSettings),
		serve(Endpoint{
			Name: "roles-recover", Method: http.MethodPost, Path: "/bridge/roles/recover", Scope: core.ScopeOperator,
			Summary: "Fence every authority, so that holders acknowledge again",
		}, recoverRoles),
		serve(Endpoint{
			Name: "queue-enqueue", Method: http.MethodPost, Path: "/bridge/queue/enqueue", Scope: core.ScopeAgent,
			Summary: "Ask to archive one state of a file, or up to 500",
		}, enqueue),
		serve(Endpoint{
			Name: "queue-claim", Method: http.MethodPost, Path: "/bridge/queue/claim", Scope: core.ScopeAgent,
			Summary: "Lease up to 10 archive jobs",
		}, claim),
		serve(Endpoint{
			Name: "queue-renew", Method: http.MethodPost, Path: "/bridge/queue/renew", Scope: core.ScopeAgent, Finds: true,
			Summary: "Extend an archive job's lease",
		}, renew),
		serve(Endpoint{
			Name: "queue-progress", Method: http.MethodPost, Path: "/bridge/queue/progress", Scope: core.ScopeAgent, Finds: true,
			Summary: "Record how far an archive job is, and extend its lease",
		}, progress),
		serve(Endpoint{
			Name: "queue-complete", Method: http.MethodPost, Path: "/bridge/queue/complete", Scope: core.ScopeAgent, Finds: true,
			Summary: "End an archive job with its result",
		}, complete),
		serve(Endpoint{
			Name: "queue-release", Method: http.MethodPost, Path: "/bridge/queue/release", Scope: core.ScopeAgent, Finds: true,
			Summary: "Give an archive job back untried",
		}, release),
		serve(Endpoint{
			Name: "queue-fail", Method: http.MethodPost, Path: "/bridge/queue/fail", Scope: core.ScopeAgent, Finds: true,
			Summary: "Give an archive job back to be tried later",
		}, fail),
		serve(Endpoint{
			Name: "queue-retry", Method: http.MethodPost, Path: "/bridge/queue/retry", Scope: core.ScopeOperator, Finds: true,
			Summary: "Make a waiting or dead-lettered archive job claimable now",
		}, retryJob),
		serve(Endpoint{
			Name: "queue-remove", Method: http.MethodPost, Path: "/bridge/queue/remove", Scope: core.ScopeOperator, Finds: true,
			Summary: "Delete an archive job that nobody works on",
		}, removeJob),
		serve(Endpoint{
			Name: "queue-jobs", Method: http.MethodGet, Path: "/bridge/queue/jobs", Scope: core.ScopeRead, Finds: true,
			Summary: "Read one archive job, or list them",
		}, jobs),
		serve(Endpoint{
			Name: "queue-stats", Method: http.MethodGet, Path: "/bridge/queue/stats", Scope: core.ScopeRead,
			Summary: "Count the archive jobs",
		}, queueStats),
		serve(Endpoint{
			Name: "reflexion-lookup", Method: http.MethodPost, Path: "/bridge/reflexion/lookup", Scope: core.ScopeRead,
			Summary: "Find how an error was fixed",
		}, lookupReflexion),
		serve(Endpoint{
			Name: "reflexion-learn", Method: http.MethodPost, Path: "/bridge/reflexion/learn", Scope: core.ScopeAgent,
			Summary: "Tell how an error was fixed",
		}, learnReflexion),
		serve(Endpoint{
			Name: "reflexion-hit", Method: http.MethodPost, Path: "/bridge/reflexion/hit", Scope: core.ScopeAgent, Finds: true,
			Summary: "Count that a learnt fix was used, and whether it helped",
		}, hitReflexion),
		serve(Endpoint{
			Name: "reflexion", Method: http.MethodGet, Path: "/bridge/reflexion", Scope: core.ScopeRead,
			Summary: "List the learnt fixes, newest first",
		}, listReflexion),
		serve(Endpoint{
			Name: "pipeline-state", Method: http.MethodPost, Path: "/bridge/pipeline/state", Scope: core.ScopeRead, Finds: true,
			Summary: "Read a team's pipeline",
		}, pipelineState),
		serve(Endpoint{
			Name: "pipeline-advance", Method: http.MethodPost, Path: "/bridge/pipeline/advance", Scope: core.ScopeAgent, Bare: true,
			Summary: "Take a team's pipeline to its next phase",
		}, advancePipeline),
		serve(Endpoint{
			Name: "pipeline-init", Method: http.MethodPost, Path: "/bridge/pipeline/init", Scope: core.ScopeAgent,
			Summary: "Start a team's pipeline over",
		}, initPipeline),
		serve(Endpoint{
			Name: "pipeline-list", Method: http.MethodPost, Path: "/bridge/pipeline/list", Scope: core.ScopeRead, Bare: true,
			Summary: "List the pipelines, newest update first",
		}, listPipelines),
		serve(Endpoint{
			Name: "hub-rotate", Method: http.MethodPost, Path: "/bridge/hub/rotate", Scope: core.ScopeOperator,
			Summary: "Give the hub a new identity, so that every caller has to join again",
		}, rotateHub),
		serve(Endpoint{
			Name: "send-input", Method: http.MethodPost, Path: "/bridge/send-input", Scope: core.ScopeAgent,
			Summary: "Refused: a shared hub has no conductors",
		}, sendInput),
		serve(Endpoint{
			Name: "health", Method: AnyMethod, Path: "/health", Scope: ScopePublic, Bare: true,
			Summary: "Tell whether the hub can serve, and how its sweeps do",
		}, health),
		serve(Endpoint{
			Name: "health", Method: AnyMethod, Path: "/healthz", Scope: ScopePublic, Bare: true,
			Summary: "The same as /health",
		}, health),
		serve(Endpoint{
			Name: "root", Method: AnyMethod, Path: "/", Scope: ScopePublic, Bare: true,
			Summary: "Read the state of the hub in one flat object",
		}, readRoot),
		serve(Endpoint{
			Name: "root", Method: AnyMethod, Path: "/status", Scope: ScopePublic, Bare: true,
			Summary: "The same as /",
		}, readRoot),
		serve(Endpoint{
			Name: "openapi", Method: http.MethodGet, Path: "/openapi.json", Scope: core.ScopeRead, Bare: true,
			Summary: "Read this document",
		}, readOpenAPI),
	}
}
