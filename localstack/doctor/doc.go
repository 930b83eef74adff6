// Package doctor tells whether an endpoint can be trusted with a hub's state.
//
// Every guarantee of Drawbridge rests on conditional writes: of any number of
// writers that state the same condition, exactly one wins. Endpoints exist that
// ignore a condition, or check it outside the lock that the write takes
// (localstack/localstack#13294 let two If-Match writers win on one version;
// terrakube-io/terrakube#3380 met a store that ignored the header). Nothing but
// a race shows it, so the doctor races 32 writers through each kind of condition
// the hub uses and refuses the endpoint when the outcome is not the only one
// allowed.
//
// It writes under keys of its own (partition "doctor#<id>", prefix
// "doctor/<id>/") and deletes what it wrote.
package doctor
