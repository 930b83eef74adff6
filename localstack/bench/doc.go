// Package bench measures a hub: latencies, closed loops of callers, and the
// benchmarks of every operation.
//
//	go test ./localstack/bench -run '^$' -bench .    every operation: time, requests, rounds, units
//	go run ./localstack/bench/compare                a durable hub over HTTP beside the reference
//
// What the figures are and how they came about is in docs/performance.md.
package bench
