//go:build rie

package lambda

import (
	"fmt"
	"strings"
	"time"
)

// A step is one request, or one run of a sweep.
type step struct {
	request string // "POST /bridge/register"
	body    string
	key     string            // Idempotency-Key
	capture map[string]string // name by which later steps know it, and its place in the answer
	after   time.Duration     // time to let pass before
	sweep   string            // handler of a sweep, instead of a request
}

// An exercise is what a function does for its living.
type exercise struct {
	before []step
	do     step
	status int // of the answer; 0: 200
	// again is the status when the request, which has happened, is sent once more;
	// 0: as the first time.
	again int
	// grows says why a request that is sent twice may count twice: it has no
	// Idempotency-Key, so that to the hub it is another one.
	grows string
}

const (
	roleWire = "rk2.eyJwcm9qZWN0X2lkIjoicHJqX0FiQ2RFZkdoSWpLbE1uT3BRclN0VXYiLCJyb2xlX2tpbmQiOiJjdG8ifQ"
	role     = `"role_key_wire":"` + roleWire + `"`
	learnt   = `{"error_message":"boom 5","solution":"s","agent_id":"a"}`
)

// large is a payload that goes to the bucket.
var large = strings.Repeat("x", 10_000)

func post(path, body string) step {
	return step{request: "POST /bridge/" + path, body: body}
}

func keyed(path, body string) step {
	s := post(path, body)
	s.key = "the-one"
	return s
}

func get(path string) step { return step{request: "GET " + path} }

func (s step) capturing(name, path string) step {
	s.capture = map[string]string{name: path}
	return s
}

// late has the step wait first: for leases, visibilities and deadlines of a second.
func (s step) late() step {
	s.after = 1100 * time.Millisecond
	return s
}

func agent(id string) step {
	return post("register", `{"agent_id":"`+id+`","cli":"claude","topics":["t"],"capabilities":["role:cto:candidate","cto"]}`)
}

func candidate(id string) step {
	return post("roles/candidates", `{`+role+`,"agent_id":"`+id+`"}`)
}

var (
	ensure = post("roles/ensure", `{`+role+`,"trigger":"manual","cause_id":"c"}`)
	// activation is the reservation that ensure made.
	activation = get("/bridge/roles/status?role_key_wire="+roleWire).capturing("activation", "data.items.0.activation_id")
	ack        = post("roles/ack", `{`+role+`,"agent_id":"a","activation_id":"{activation}","epoch":1,"activation_seq":1,"charter_ack":{`+role+`,"epoch":1}}`)
	reserved   = []step{agent("a"), candidate("a"), ensure, activation}
	held       = append(reserved[:len(reserved):len(reserved)], ack)
	letter     = post("publish", `{"from":"b","to":"a","topic":"t","type":"request","payload":"`+large+`"}`)
	leased     = []step{
		agent("a"), letter,
		post("context", `{"agent_id":"a","auto_ack":false,"visibility_ms":60000}`).capturing("receipt", "data.messages.0.receipt"),
	}
	died = []step{
		agent("a"), post("publish", `{"from":"b","to":"a","topic":"t","ttl_ms":1,"payload":"`+large+`"}`),
		{request: "GET /health", after: 5 * time.Millisecond}, {sweep: "sweep-messages"},
	}
	asked = []step{
		agent("a"), post("hitl/request", `{"requester_agent":"a","prompt":"p","kind":"text"}`).capturing("request", "data.request_id"),
	}
	unanswered = []step{
		agent("a"), post("hitl/request", `{"requester_agent":"a","prompt":"p","kind":"text","deadline_ms":1000}`), get("/health").late(),
	}
	given = []step{
		agent("a"), agent("w"),
		post("assign/async", `{"supervisor_agent":"a","worker_agent":"w","timeout_ms":60000,"max_retries":1,"task":"`+large+`"}`).capturing("job", "data.job_id"),
	}
	overdue = []step{
		agent("a"), agent("w"),
		post("assign/async", `{"supervisor_agent":"a","worker_agent":"w","timeout_ms":1000,"max_retries":1,"retry_on_timeout":false,"task":"t"}`).capturing("job", "data.job_id"),
		get("/health").late(),
	}
	cancelled = append(given[:len(given):len(given)], post("assign/cancel", `{"job_id":"{job}","supervisor_agent":"a"}`))
	queued    = []step{
		post("queue/enqueue", observed(1)),
	}
	set     = []step{post("queue/enqueue", observed(1)).capturing("id", "data.job.id")}
	claimed = append(queued[:1:1], step{
		request: "POST /bridge/queue/claim", body: `{"owner":"w"}`,
		capture: map[string]string{"id": "data.jobs.0.id", "lease": "data.jobs.0.lease.id"},
	})
)

// observed is state n of a file that an agent wants archived.
func observed(n int) string {
	return fmt.Sprintf(`{"agent":"claude","source_path":"/x","source_bytes":%d,"source_modified_at_ms":%d,"event":"stop"}`,
		n, 1_767_225_600_000+1000*n)
}

// ofLease is a request of the worker that holds the archive job.
func ofLease(endpoint, fields string) step {
	return post("queue/"+endpoint, `{"id":"{id}","lease_id":"{lease}"`+fields+`}`)
}

// A sweep's request is a schedule's event, which no sweep reads.
var scheduled = step{body: `{"version":"0","id":"tick","detail-type":"Scheduled Event","source":"aws.scheduler","detail":{}}`}

// exercises are by the function's handler.
var exercises = map[string]exercise{
	"register":             {do: keyed("register", `{"agent_id":"a","cli":"claude","topics":["t"]}`)},
	"heartbeat":            {before: []step{agent("a")}, do: post("heartbeat", `{"agent_id":"a","step":1,"presence_generation":1}`)},
	"deregister":           {before: []step{agent("a")}, do: post("deregister", `{"agent_id":"a","presence_generation":1}`)},
	"status-get":           {before: held, do: get("/bridge/status?scope=agent&agent_id=a")},
	"status-post":          {before: []step{agent("a")}, do: post("status", `{"agent_id":"a","status":"busy"}`)},
	"agents":               {before: []step{agent("a")}, do: get("/bridge/agents?topic=t")},
	"publish":              {before: []step{agent("a")}, do: keyed("publish", `{"from":"b","to":"a","topic":"t","payload":"`+large+`"}`)},
	"handoff":              {before: []step{agent("a")}, do: keyed("handoff", `{"from":"b","to":"a","topic":"t","task":"x"}`)},
	"result":               {before: []step{agent("a"), agent("c")}, do: keyed("result", `{"agent_id":"b","topic":"t","payload":"x"}`)},
	"control":              {before: []step{agent("a")}, do: keyed("control", `{"from_agent":"b","to_agent":"a","command":"stop"}`)},
	"ask":                  {before: []step{agent("a")}, do: keyed("ask", `{"from":"b","to":"a","topic":"t","question":"q"}`)},
	"context":              {before: []step{agent("a"), letter}, do: post("context", `{"agent_id":"a"}`)},
	"ack":                  {before: leased, do: post("ack", `{"agent_id":"a","receipts":["{receipt}"]}`)},
	"nack":                 {before: leased, do: post("nack", `{"agent_id":"a","receipts":["{receipt}"]}`)},
	"dead-letters":         {before: died, do: get("/bridge/dead-letters")},
	"dead-letters-redrive": {before: died, do: post("dead-letters/redrive", `{"filter":{},"ttl_ms":60000}`)},
	"hitl-request":         {before: []step{agent("a")}, do: keyed("hitl/request", `{"requester_agent":"a","prompt":"p","kind":"text"}`)},
	"hitl-submit":          {before: asked, do: post("hitl/submit", `{"request_id":"{request}","action":"accept","content":"yes"}`), again: 409},
	"hitl-get":             {before: asked, do: post("hitl/get", `{"request_id":"{request}"}`)},
	"hitl-pending":         {before: asked, do: get("/bridge/hitl/pending")},
	"assign-async":         {before: []step{agent("a"), agent("w")}, do: keyed("assign/async", `{"supervisor_agent":"a","worker_agent":"w","task":"t"}`)},
	"assign-result":        {before: given, do: post("assign/result", `{"job_id":"{job}","status":"completed","worker_agent":"w","result":"`+large+`"}`)},
	"assign-retry":         {before: cancelled, do: post("assign/retry", `{"job_id":"{job}","supervisor_agent":"a"}`), again: 409},
	"assign-cancel":        {before: given, do: post("assign/cancel", `{"job_id":"{job}","supervisor_agent":"a"}`), again: 409},
	"assign-status":        {before: given, do: post("assign/status", `{"job_id":"{job}"}`)},
	"events":               {before: given, do: get("/bridge/events?job_id={job}")},
	"takeover-role":        {before: []step{agent("a"), agent("b")}, do: post("takeover-role", `{"agent_id":"b"}`), grows: "every takeover has an epoch of its own"},
	"roles-candidates":     {before: []step{agent("a")}, do: candidate("a")},
	"roles-ensure":         {before: []step{agent("a"), candidate("a")}, do: ensure},
	"roles-ack":            {before: reserved, do: ack},
	"roles-release":        {before: held, do: post("roles/release", `{`+role+`,"agent_id":"a","epoch":1}`)},
	"roles-cas":            {before: []step{post("roles/reserve", `{`+role+`}`)}, do: post("roles/cas", `{`+role+`,"expected":{"version":0,"epoch":0,"activation_seq":0,"activation_id":null},"patch":{}}`), again: 409},
	"roles-reserve":        {do: post("roles/reserve", `{`+role+`}`), grows: "every reservation has an epoch of its own"},
	"roles-state":          {before: held, do: post("roles/state", `{`+role+`,"agent_id":"a","epoch":1,"state":1,"expected_state_version":0}`), again: 409},
	"roles-fence-check":    {before: held, do: post("roles/fence-check", `{`+role+`,"agent_id":"a","epoch":1}`)},
	"roles-status":         {before: held, do: get("/bridge/roles/status")},
	"roles-history":        {before: held, do: get("/bridge/roles/history?role_key_wire=" + roleWire)},
	"roles-settings":       {before: held, do: post("roles/settings", `{"master_enabled":false}`), grows: "every change of the settings is counted"},
	"roles-recover":        {before: held, do: post("roles/recover", `{}`), grows: "every recovery has an epoch of its own"},
	"hub-rotate":           {before: held, do: post("hub/rotate", `{"reason":"test"}`), grows: "every rotation fences the roles anew"},
	"queue-enqueue":        {before: queued, do: post("queue/enqueue", observed(2))},
	"queue-claim":          {before: queued, do: post("queue/claim", `{"owner":"w"}`)},
	"queue-renew":          {before: claimed, do: ofLease("renew", "")},
	"queue-progress":       {before: claimed, do: ofLease("progress", `,"bytes":1,"of":2`)},
	"queue-complete":       {before: claimed, do: ofLease("complete", `,"result":{"archive_id":"a","ciphertext_sha256":"c","bytes":1}`)},
	"queue-release":        {before: claimed, do: ofLease("release", ""), again: 409},
	"queue-fail":           {before: claimed, do: ofLease("fail", `,"error":{"code":"c","message":"m"}`), again: 409},
	"queue-retry":          {before: set, do: post("queue/retry", `{"id":"{id}"}`)},
	"queue-remove":         {before: set, do: post("queue/remove", `{"id":"{id}"}`), again: 404},
	"queue-jobs":           {before: claimed, do: get("/bridge/queue/jobs?id={id}")},
	"queue-stats":          {before: claimed, do: get("/bridge/queue/stats")},
	"reflexion-lookup":     {before: []step{post("reflexion/learn", learnt)}, do: post("reflexion/lookup", `{"error_message":"boom 5"}`)},
	"reflexion-learn":      {do: post("reflexion/learn", learnt), grows: "learnt twice counts twice"},
	"reflexion-hit":        {before: []step{post("reflexion/learn", learnt).capturing("entry", "data.entry.id")}, do: post("reflexion/hit", `{"id":"{entry}"}`), grows: "every hit counts"},
	"reflexion":            {before: []step{post("reflexion/learn", learnt)}, do: get("/bridge/reflexion")},
	"pipeline-state":       {before: []step{post("pipeline/init", `{"team_name":"t"}`)}, do: post("pipeline/state", `{"team_name":"t"}`)},
	"pipeline-advance":     {before: []step{post("pipeline/init", `{"team_name":"t"}`)}, do: post("pipeline/advance", `{"team_name":"t","phase":"prd"}`), again: 400},
	"pipeline-init":        {do: post("pipeline/init", `{"team_name":"t"}`), grows: "a team that begins again begins another version"},
	"pipeline-list":        {before: []step{post("pipeline/init", `{"team_name":"t"}`)}, do: post("pipeline/list", `{}`)},
	"health":               {do: get("/health")},
	"root":                 {before: []step{agent("a")}, do: get("/status")},
	"openapi":              {do: get("/openapi.json")},
	"send-input":           {do: post("send-input", `{"session_id":"s","text":"x"}`), status: 503},
	"default":              {do: post("nothing", `{}`), status: 404},
	"sweep-agents":         {before: []step{post("register", `{"agent_id":"a","cli":"claude","timeout_sec":-119}`), get("/health").late()}, do: scheduled},
	"sweep-messages":       {before: died[:3:3], do: scheduled},
	"sweep-roles":          {before: held, do: scheduled},
	"sweep-archive-queue":  {before: claimed, do: scheduled},
	"sweep-human-requests": {before: unanswered, do: scheduled},
	"sweep-assignments":    {before: overdue, do: scheduled},
	"sweep-events":         {before: given, do: scheduled},
	"sweep-reflexion":      {before: []step{post("reflexion/learn", learnt)}, do: scheduled},
}
