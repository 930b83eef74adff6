// Package fakeaws is an embedded AWS: DynamoDB and S3 in one process, strict,
// atomic, optionally durable, and able to misbehave on request. The real
// aws-sdk-go-v2 clients talk to it over a socket (Serve, ServeHTTP) or without
// one (Transport, Config).
//
//	server, err := fakeaws.Open(fakeaws.Options{})       // in memory
//	tables := dynamodb.NewFromConfig(server.Config())
//
// # The way of a request
//
// This package is the shell around two engines (packages dynamo and objects)
// that know nothing of signatures, faults or sockets:
//
//	body read whole ─► signature verified ─► described ─► faults decide
//	    ─► carried out by the engine ─► stable on disk ─► answer sent, lost or torn
//	                                                        └─► metered
//
// Because the answer is complete and stable before anything of it is sent, a
// fault can lose it after the write took effect: the failure that conditional
// writes are hardest to get right against.
//
// # Signatures
//
// Signature Version 4 is verified for every request, in the Authorization
// header and, for S3, in presigned URLs and signed chunk streams, with AWS's
// canonical form, skew of 15 minutes and error codes. Without a good signature
// nothing is carried out.
//
// # Misbehaviour
//
// A Script holds rules: which requests (by operation, table, key, caller,
// label, count or seeded chance) meet what (a lost request or answer, a delay,
// an error, a conflict, a torn answer, a freeze). See Rule, Action and, for the
// form as a file, ParseScript.
//
// # Meter
//
// The Meter counts requests, sequential rounds and capacity units, in all, by
// label (WithLabel) and around a function (Measure), so that a test can hold an
// operation to its budget.
//
// # Expiry
//
// What has expired, by a table's time to live or a bucket's lifecycle rules,
// stays until Collect is called: AWS says only that it will go some day.
//
// # Durability
//
// With a folder, what was acknowledged survives the kill of the process at any
// instant: see package disk.
package fakeaws
