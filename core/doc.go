// Package core is the hub itself: its entities, rules and operations, and the
// small store interfaces (ports) they need. It knows no AWS and no HTTP; the
// clock and the ids are given to it. Hub carries out the operations, each port
// is implemented by an adapter (package ddb), and package coretest checks an
// adapter against everything said here.
//
// # Fences
//
// Authority is granted with a number or id that every later write has to carry,
// and that is compared inside the same conditional write that changes the state.
// An agent's fence is its generation: each register of an id gets the next one,
// and from then on every write that carries an earlier one is refused with
// STALE_PRESENCE_OWNER and the current generation. A generation is never given
// twice and never goes back: an agent's record outlives deregister, expiry and
// sweeps. The hub's own fences are its instance id, which changes only when an
// operator rotates it, and the fingerprint of its store. A caller that sends no
// fence is not checked, so clients older than the fences are served.
//
// # Presence
//
//	             register (generation + 1)
//	  (unknown) ---------------------------.
//	                                       v
//	      heartbeat, register        +----------+  report "stale"
//	   .---------------------------->|  online  |------------------.
//	   |                             +----------+                  |
//	   |                              |        | sweep: lease      |
//	   |        deregister, report    |        | < now             v
//	   |        "offline"             |        |             +-----------+
//	   |            .-----------------'        `------------>|   stale   |
//	   |            v                                        +-----------+
//	   |      +-----------+  sweep: lease + 5 min < now, deregister  |  |
//	   |<-----|  offline  |<-----------------------------------------'  |
//	   |      +-----------+                                             |
//	   `----------------------------------------------------------------'
//
//	deregister with final: offline, and this generation takes no heartbeat any
//	more; only a register (the next generation) leads back.
//
// The lease decides when it is read, not when a sweep runs: an agent that is
// stored online reads stale as soon as its lease has passed (lease < now), and
// offline five minutes later. A sweep only makes the stored state catch up, one
// step at a time, and only while generation, status and lease are still what it
// read; with every sweep switched off no answer changes.
//
// Being alive is not getting on: an agent may send a step counter and a deadline
// for it, and reads hung when its lease is live but the step has stood still for
// longer.
//
// # Messages
//
// A message accepted is a message kept, until it is acknowledged or
// dead-lettered once with its sender told. Every recipient has a delivery of
// its own, and the delivery is what moves:
//
//	             drain with auto_ack, or ack
//	publish ---> pending ----------------------> acked
//	             |  ^ |
//	    drain    |  | | expired, or handed out
//	    with a   |  | v too often
//	  visibility |  | dead ---- redrive ---> pending, with a new expiry
//	             v  |  ^
//	            hidden-'  nack, or the visibility passed: pending again
//
// A message to a topic is first one record that fixes who its recipients are;
// then every recipient gets its delivery, by puts that never replace one. So a
// fan-out that stopped anywhere is resumed by anybody and reaches every
// recipient once. To a topic that nobody follows the record is the message: it
// can only expire.
//
// The conditional write that takes a delivery decides who gets it; a dead letter
// and its notice are one transaction. The clock decides on every read: at its
// expiry a delivery is in no drain any more and can be neither acknowledged nor
// leased, whether or not a sweep has made a dead letter of it. The guarantees of
// each operation are in docs/messages.md.
//
// # Failures
//
// Lost answers, doubled and late requests. Every write carries an id made once
// for its operation, and the moment the operation started. A retry that finds
// its own id in the record has succeeded before and is answered as replayed. A
// write that arrives after one that started later is out of date: a late copy of
// a heartbeat neither shortens a lease nor revives an agent that deregistered
// meanwhile, a late copy of a register does not take the id back. An operation
// whose answer never came ends in OUTCOME_UNKNOWN, never in a guess. A register
// sent again by its caller is another register, unless both carry the same
// Idempotency-Key: then the answer and the change are committed together, and
// the first answer is repeated for 24 hours.
//
// Crashes. Nothing lives in the process but a copy of the hub's identity, at
// most IdentityWindow old: for that long after a rotation, another process may
// still accept the old identity.
//
// Clocks. Leases are told and judged by the clocks of the hub's hosts. Between
// hosts whose clocks differ, a lease is seen to end earlier or later by the
// difference, and a heartbeat that a slower host receives within the difference
// after another write of the same agent may be taken for a late one: it is
// answered with the lease that stands and has no effect. Registers and
// deregisters are never lost that way: they take their place after what they
// met.
//
// # Costs
//
// An operation on one agent is one conditional write: a heartbeat costs one
// round trip and one write unit, and touches no index. The table of all costs is
// tested by the adapter.
package core
