// Package deadlines walks every deadline of the hub with all schedules off. It has
// tests only.
//
// A deadline has a first instant at which it has passed. One millisecond before,
// nothing has happened for anybody. At it, every read, claim and write behaves as
// if it had passed, whichever comes first; and whoever comes first, with others and
// at last the sweeps behind it, what is to be told is told once.
package deadlines
