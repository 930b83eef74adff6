// Package simulation drives a whole fleet through the hub's real handlers over
// the embedded AWS, deterministically, and audits what came of it. It holds
// tests only.
//
// # One goroutine at a time
//
// A run lives in a bubble of testing/synctest. Whoever asks AWS for something,
// and whoever has nothing to do for a while, stops at the scheduler; once
// everybody has stopped (synctest.Wait), the seeded scheduler lets one of them
// go on until it stops again. So calls interleave at every AWS request, the
// shards that a handler reads in parallel too, and the same seed gives the same
// run: the same requests with the same bodies, ids and answers in the same order.
//
//	agents, people, operators, sweeps        each a goroutine that acts by chance
//	    │ events of API Gateway, ticks
//	    ▼
//	instances: functions.App, each with its own memory, clock and ids
//	    │ requests of the AWS SDK
//	    ▼
//	network ◀── scheduler: who goes next, what goes wrong, how late it gets
//	    │                         ▲
//	    ▼                         │ every change of an item or an object
//	embedded AWS ──────────▶ monitor
//
// # Time
//
// The clock of the hub, of the embedded AWS and of every actor is the
// scheduler's; instances read it with a skew of their own, within the second
// that docs/guarantees.md allows. It moves a little with every step and leaps
// where nobody has anything to do. The bubble's own time only makes the waits of
// a retry pass, whose length is chance and must not count.
//
// # What goes wrong
//
// A request gets lost before or after it took effect, is answered with half an
// answer, a 500, a throttle, a conflict or a 200 with an error in it, or arrives
// a second time long after its sender gave it up. Indexes lag. An instance dies
// between two requests, an invocation runs into its time limit, an answer gets
// lost on its way to the client, an agent sleeps past its lease.
//
// # What is checked
//
// The monitor sees every change with the call that made it, and holds it against
// the rules of each kind of item: fences grow, what has ended has ended, nobody
// writes under a fence that has passed. When the faults are over and everybody
// got an answer, the audit compares what callers were told with what is stored,
// every list with the items it lists, and every status with the clock. See
// docs/proofs.md.
package simulation
