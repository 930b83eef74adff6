// Package linearizability holds histories of callers that run at once against
// small sequential models, with porcupine. It has tests only.
//
// Every caller of a history is a process of its own: a hub, a store and a queue
// with their own HTTP client, whose answers get lost by chance, and a clock that
// stands still while the caller is within one call. So a call has one known time,
// and the models tell what was to be answered at it. What a history records is
// what the caller asked and was told, from before the first request to after the
// last answer:
//
//	done     the model makes the step, and the answer has to be the model's
//	refused  the model refuses with the same code, and does not move
//	unknown  the model may have made the step at any time since, or never
//	nothing  told to ask again (CONTENDED, THROTTLED): the model does not move
//
// A call that was refused after an answer of its own got lost may have happened
// first: it was done, others came between, and the second try met them. It is
// recorded as one call whose outcome is unknown and one that was refused.
//
// The models are pure: the state is a comparable value, a step a function. One
// agent, one role, one delivery, one job is one history, because what holds for
// each of several independent things holds for all of them together; only the
// order of an inbox is a model of the whole of it.
//
// The tests run on the embedded AWS and, with AWS_ENDPOINT_URL set, on any other
// server (.ci/linearizability.sh: moto, one request at a time).
// DRAWBRIDGE_HISTORIES names a folder for the visualisation of every history,
// DRAWBRIDGE_LONG makes many and longer ones, DRAWBRIDGE_SEED repeats a run's
// choices (but not the scheduler's).
package linearizability
