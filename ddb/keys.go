package ddb

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"drawbridge/core"
)

// The table's attributes that are keys, of itself and of its indexes.
const (
	pk     = "pk"
	sk     = "sk"
	duePK  = "due_pk"
	dueSK  = "due_sk"
	listPK = "list_pk"
	listSK = "list_sk"
	ttl    = "ttl" // seconds since the epoch
)

// The indexes. Both carry keys only: an entry is a hint, the item decides.
const (
	dueIndex  = "due"
	listIndex = "list"
)

// The shards of an index's partition keys. They are part of the stored format:
// with another number, entries written before would not be found.
const (
	agentShards = 8 // of the list and of the due entries of agents
	topicShards = 4 // of a topic's followers
)

// A key is an item's primary key.
type key struct{ pk, sk string }

// Every item's key, by what it holds. Ids are at most 512 bytes, so that
// partition keys stay below DynamoDB's 2,048 and sort keys below its 1,024.
func agentKey(id string) key       { return key{"agent#" + id, "agent"} }
func identityKey() key             { return key{"hub", "identity"} }
func tokenKey(hash string) key     { return key{"token#" + hash, "token"} }
func sweepKey(name string) key     { return key{"sweep#" + name, "health"} }
func idempotencyKey(id string) key { return key{"idem#" + id, "record"} }
func followerKey(topic, id string) key {
	return key{topicPartition(topic, shardOf(id, topicShards)), id}
}

// topicPartition holds the agents that may follow a topic. A follower's entry
// is written before the agent's item says that it follows, so an entry may be
// early or out of date but is never missing. Whoever removes one must find it
// older (written_ms) than any register can live.
func topicPartition(topic string, shard int) string {
	return fmt.Sprintf("topic#%s#%d", topic, shard)
}

// agentPartition is the partition of an agent in the indexes list and due.
func agentPartition(shard int) string { return fmt.Sprintf("agent#%d", shard) }

func agentIDOf(partition string) string { return strings.TrimPrefix(partition, "agent#") }

func shardOf(id string, shards uint32) int {
	h := fnv.New32a()
	h.Write([]byte(id)) // a hash.Hash never fails
	return int(h.Sum32() % shards)
}

// dueKey orders due entries by deadline, then id. 15 digits of milliseconds
// last until the year 33658.
func dueKey(deadline core.Instant, id string) string {
	return duePrefix(deadline) + "#" + id
}

func duePrefix(deadline core.Instant) string { return fmt.Sprintf("%015d", max(deadline, 0)) }

// deadlineOf reads the deadline back from a due entry's key.
func deadlineOf(due string) (core.Instant, error) {
	digits, _, _ := strings.Cut(due, "#")
	ms, err := strconv.ParseInt(digits, 10, 64)
	return core.Instant(ms), err
}
