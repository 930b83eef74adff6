package simulation

import "fmt"

// A bound is what a call may cost at most: requests, write and read units. It is
// the dearest row of the operation in the docs' tables, for what the actors send.
type bound struct{ requests, writes, reads float64 }

// around is what any call may pay besides: the caller's token and the hub's
// identity, when a process has neither.
var around = bound{requests: 3, writes: 1, reads: 2}

// bounds are those of the calls whose cost does not depend on what they meet.
// Where it does, see boundOf.
var bounds = map[string]bound{
	"POST /bridge/deregister":        {1, 2, 0},
	"POST /bridge/queue/renew":       {2, 0, 0},
	"POST /bridge/queue/progress":    {2, 0, 0},
	"POST /bridge/queue/release":     {4, 0, 0},
	"POST /bridge/queue/fail":        {4, 0, 0},
	"POST /bridge/roles/fence-check": {1, 0, 4},
	"POST /bridge/roles/state":       {1, 8, 0}, // the value, its role, the agent, the hub's identity
	"POST /bridge/roles/ack":         {4, 5, 4},
	"POST /bridge/hitl/request":      {2, 8, 1},
	"POST /bridge/hitl/submit":       {2, 10, 2},
	"POST /bridge/reflexion/hit":     {2, 2, 1},
	"POST /bridge/pipeline/advance":  {2, 3, 1},
	"POST /bridge/pipeline/init":     {2, 3, 1},
	"POST /bridge/assign/async":      {2, 19, 1},
}

// boundOf is the bound of a call; false when its cost is not judged.
func boundOf(c *call, a answer) (bound, bool) {
	switch c.endpoint {
	case "POST /bridge/register":
		b := bound{requests: 1, writes: 4}
		if topics, follows := c.sent.body["topics"].([]string); follows {
			b.requests, b.writes = b.requests+1, b.writes+float64(len(topics))
		}
		if c.sent.key != "" {
			b.requests, b.writes, b.reads = b.requests+1, b.writes+4, 2
		}
		return b, true
	case "POST /bridge/heartbeat":
		if agents, batch := c.sent.body["agents"].([]map[string]any); batch {
			n := float64(len(agents))
			return bound{2 * n, 4 * n, 0}, true
		}
		if _, steps := c.sent.body["step"]; steps {
			return bound{3, 5, 0}, true
		}
		return bound{2, 4, 0}, true // a lease that ends before its due entry moves that
	case "POST /bridge/ack": // one delivery of up to 2 KB; a nack may make a dead letter of it
		if c.fence.agent != "" {
			return bound{1, 14, 0}, true
		}
		return bound{1, 5, 0}, true
	}
	b, known := bounds[c.endpoint]
	return b, known
}

// judgeCost holds what a call cost against its bound, where it went through
// undisturbed: nothing went wrong and nobody else wrote meanwhile, so nothing had
// to be asked twice.
func (w *world) judgeCost(c *call, a answer) {
	b, known := boundOf(c, a)
	if !known || !a.ok() || c.troubled || c.crowded {
		return
	}
	w.costs[c.endpoint]++
	most := bound{b.requests + around.requests, b.writes + around.writes, b.reads + around.reads}
	if float64(c.cost.Requests) > most.requests || c.cost.WriteUnits > most.writes || c.cost.ReadUnits > most.reads {
		w.violatef("%s %s cost %d requests, %v write and %v read units, its bound is %s: %v", c.name, c.endpoint,
			c.cost.Requests, c.cost.WriteUnits, c.cost.ReadUnits, fmt.Sprint(most), c.sent.body)
	}
}
