// Package dynamo is the DynamoDB of the embedded AWS: it answers the JSON 1.0
// protocol of the real SDKs from memory, and from a journal when it is to
// survive the process.
//
// # What is guaranteed
//
// All items of an engine share one linear order: a write, a batch member or a
// whole transaction takes effect at one instant under one lock, and a read sees
// the state of one instant. A transaction takes effect as a whole or not at
// all, so TransactionConflict cannot arise by itself. Secondary indexes change
// in the same instant as their table unless SetIndexLag says otherwise, and
// expired items stay until CollectExpired is called: AWS promises no more than
// that either, and a test that needs the lag or the deletion says so.
//
// With a journal, an answer's ticket stands for everything the answer depends
// on: the write itself, and for reads and failed conditions whatever they saw.
//
// # Strictness
//
// What AWS refuses is refused with AWS's error code and, as far as they are
// known, AWS's words. What this engine does not do, it refuses by name with
// UnsupportedOperationException: streams, PartiQL, backups, tags, global
// tables, resource policies, item collection metrics, keys of several
// attributes in a global secondary index. The legacy parameters that
// expressions replaced (Expected, AttributeUpdates, KeyConditions, QueryFilter,
// ScanFilter, ConditionalOperator, AttributesToGet) are a ValidationException.
// Capacity is counted (see capacity.go) but never limited, and an item
// collection may exceed 10 GB.
//
// # Cost
//
// Memory: every item and index entry lives in ordered trees, each as one string
// (see row); an entry of an index that projects everything shares the item's. A
// table of n items costs O(log n) an access; a page costs what it reads. Items are
// taken apart under the lock and answers encoded outside of it: items are
// immutable, a change makes a new one.
package dynamo
