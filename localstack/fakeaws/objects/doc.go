// Package objects is the S3 engine of the embedded AWS: an engine.Service that
// answers the S3 REST protocol, path style, with S3's own status codes.
//
// # Model
//
// All state sits behind one lock, so every operation takes effect at one
// instant and all of them form one order: among concurrent conditional writers
// of a key exactly one wins, and a reader sees a whole object or none. An
// object version is immutable once published; replacing an object publishes
// another version.
//
//	bucket ── entries: key ─► versions, oldest first (the last one is current)
//	       ├─ live:    the keys whose current version is an object (lists read it)
//	       └─ uploads: key, age ─► multipart upload ─► parts
//
// Hashing and parsing happen before the lock is taken. Under it: a few tree
// operations, the append to the journal, and in durable mode the read of a body
// that is not in memory. CopyObject reads its source under the lock too, which
// is why objects are bounded by MaxObjectSize.
//
// # Durability
//
// With a journal, every operation appends its records as one atomic unit while
// it holds the lock, and the answer carries the ticket to wait for; an answer
// that only read carries a barrier, because what it saw must not vanish in a
// crash. Metadata is kept in memory. A body above inlineLimit bytes lives only
// in the journal, under its own record, which goes in the same unit as the
// version that owned it.
//
// # What is faithful, what is refused, what is bounded
//
// The status table of conditional requests is the one recorded on AWS by
// LocalStack's snapshot tests (S3 API snapshots of 2025 and 2026): see
// conditions.go. What is not supported answers NotImplemented and names itself.
// Known differences:
//
//   - an object, multipart ones included, has at most MaxObjectSize bytes;
//   - the loopback hop counts as secure transport (aws:SecureTransport is true),
//     so a bucket policy that denies plain HTTP is kept and never denies;
//   - a bucket policy may only hold Deny statements for every principal with
//     the conditions of policy.go, and these are enforced at once: every caller
//     owns the account, so an Allow would have nothing to allow;
//   - settings take effect at once; 409 ConditionalRequestConflict arises only
//     from multipart uploads (a fault script may inject the others);
//   - lifecycle rules are carried out by CollectExpired, and by nothing else;
//     they may hold prefixes, expirations by days, of bare delete markers, of
//     noncurrent versions and of unfinished uploads. No answer names the rule
//     that will end an object (x-amz-expiration, x-amz-abort-date).
package objects
