// Package s3queue keeps core's archive queue in an S3 bucket. docs/archive-queue.md
// describes it for users and operators; this is what a change must keep true.
//
// # Truth and hints
//
// One object a job, jobs/<id>.json, is the only truth. It is created with
// If-None-Match and replaced with If-Match, never written otherwise, so that every
// transition of core happens on exactly the job it was decided on.
//
// Everything else is a hint that finds jobs without reading all of them:
//
//	open/due_<claimable>_<enqueued>_<id>_ready|leased_<nonce>    claims, in their order
//	open/failed_<enqueued>_<id>_<nonce>                          dead letters
//	open/damaged_<name>                                          what cannot be read
//	done/<settled>_<enqueued>_<id>_completed|superseded|settled_<nonce>
//	source/<source>/<modified>_<bytes>_<id>_<nonce>              the jobs of one file
//	state/rollup.json                                            the count of done jobs
//
// A hint is written before the state that it announces and deleted after that
// state was left:
//
//	read document ─ announce next state ─ replace document ─ clear last state's hint
//
// So whoever dies in between leaves a hint too many and never one too few: a job
// that can be claimed always has a hint whose moment is not later than its own.
//
// # Why a hint may be deleted
//
// Its name ends in the id of the write that made it, and the document's metadata
// names the hint that announces it. A hint is deleted by the writer whose replacement
// made it obsolete: nothing can name it again. A hint that its job does not name may
// belong to a writer that died, or to one that has not come to its replacement yet.
// Whoever takes it away first replaces the document by itself (fence): then that
// writer's condition fails and it announces anew. Each write ends in a line of blanks
// that spell its id, so that its ETag is another one also where ETags are hashes of the
// content.
//
// A hint without a job is an enqueue that died, and holds the document that it was
// about to create: whoever meets it finishes that enqueue. Creating with the same
// write id makes the first caller, should it live, recognise the job as its own.
//
// # Answers that got lost
//
// The SDK repeats a request whose answer it did not get, and then S3 refuses the
// repetition of a write that landed. The metadata lists the ids of the last writes:
// a refused writer reads the object and looks for its own (recognise). A conflict
// (409) is repeated after a pause by chance; what S3 means is decided by its code
// and never by its status.
package s3queue
