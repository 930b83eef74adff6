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
	pk      = "pk"
	sk      = "sk"
	duePK   = "due_pk"
	dueSK   = "due_sk"
	listPK  = "list_pk"
	listSK  = "list_sk"
	inboxSK = "inbox_sk"
	ttl     = "ttl" // seconds since the epoch
)

// The indexes. The global ones carry keys only: an entry is a hint, the item
// decides.
const (
	dueIndex   = "due"
	listIndex  = "list"
	inboxIndex = "inbox" // local and whole: what it shows is the item
)

// The shards of an index's partition keys. They are part of the stored format:
// with another number, entries written before would not be found.
const (
	agentShards = 8 // of the list and of the due entries of agents
	topicShards = 4 // of a topic's followers

	messageShards    = 64 // of the due entries of deliveries, for each lane
	fanoutShards     = 16 // of the due entries of fan-outs under way
	deadLetterShards = 8  // of the dead letters, and of the redriven ones
	traceShards      = 4  // of a trace

	humanShards     = 8  // of the due entries of human requests
	pendingShards   = 4  // of the list of the pending ones
	jobShards       = 16 // of the due entries of jobs, and of their events
	statusShards    = 4  // of the list of jobs of one status
	reflexionShards = 4  // of each type's entries in the list, and of the due ones
	pipelineShards  = 8  // of the list of pipelines
	roleShards      = 4  // of the list and of the due entries of roles; a project's are in one
)

// A key is an item's primary key.
type key struct{ pk, sk string }

// Every item's key, by what it holds. Ids are at most 512 bytes, so that
// partition keys stay below DynamoDB's 2,048 and sort keys below its 1,024.
func agentKey(id string) key             { return key{"agent#" + id, "agent"} }
func identityKey() key                   { return key{"hub", "identity"} }
func tokenKey(hash string) key           { return key{"token#" + hash, "token"} }
func sweepKey(name string) key           { return key{"sweep#" + name, "health"} }
func idempotencyKey(id string) key       { return key{"idem#" + id, "record"} }
func recordKey(messageID string) key     { return key{"fanout#" + messageID, "record"} }
func answerKey(correlationID string) key { return key{"answer#" + correlationID, "answer"} }
func countsKey() key                     { return key{"rollup#messages", "counts"} }
func roleKey(wire string) key            { return key{"role#" + wire, roleSK} }
func roleValueKey(wire string) key       { return key{"role#" + wire, "value"} }
func roleSettingsKey() key               { return key{"hub", "roles"} }
func legacyKey() key                     { return key{"role#" + core.LegacyWire, "legacy"} }
func candidateKey(wire, agentID string) key {
	return key{"role#" + wire, candidatePrefix + agentID}
}
func followerKey(topic, id string) key {
	return key{topicPartition(topic, shardOf(id, topicShards)), id}
}

func humanKey(id string) key { return key{"human#" + id, "request"} }
func jobKey(id string) key   { return key{"job#" + id, "job"} }
func jobCountsKey() key      { return key{"rollup#jobs", "counts"} }
func eventKey(jobID string, seq int64) key {
	return key{eventPartition(jobID), eventPosition(seq)}
}

// The sort keys of a role's partition, in their order: its candidates, the role,
// the value attached to it. One query reads the first two without the third.
const (
	candidatePrefix = "candidate#"
	roleSK          = "role"
)

// rolePartition is a shard of the roles in the indexes list and due.
func rolePartition(shard int) string { return fmt.Sprintf("role#%d", shard) }

// roleShard keeps a project's roles together, so that listing them is one query.
func roleShard(wire string) int {
	key, err := core.ParseRoleWire(wire)
	if err != nil {
		return 0 // no such role is ever written
	}
	return projectShard(key.ProjectID)
}

func projectShard(projectID string) int { return shardOf(projectID, roleShards) }

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

func tokenHashOf(partition string) string { return strings.TrimPrefix(partition, "token#") }

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

// inboxPartition holds the deliveries of one inbox.
func inboxPartition(inbox string) string { return "inbox#" + inbox }

// deliveryKey is the key of a delivery, or of a topic message's record when
// there is no inbox. A second put of one is refused by its key alone.
func deliveryKey(inbox, messageID string) key {
	if inbox == "" {
		return recordKey(messageID)
	}
	return key{inboxPartition(inbox), "m#" + messageID}
}

// redrivenKey is the key of what a dead letter was before it was redriven.
func redrivenKey(inbox, messageID string, death int64) key {
	k := deliveryKey(inbox, messageID)
	return key{k.pk, fmt.Sprintf("r#%s#%d", messageID, death)}
}

// recipientsKey is the key of a part of a record's recipients.
func recipientsKey(messageID string, part int) key {
	return key{recordKey(messageID).pk, fmt.Sprintf("recipients#%05d", part)}
}

// pendingPosition orders an inbox: higher priorities first, then age, then id.
func pendingPosition(d core.Delivery) string {
	return fmt.Sprintf("p%d%s", core.MaxPriority-d.Priority, dueKey(d.CreatedAt, d.ID))
}

// hiddenPosition orders what is hidden by when it is pending again.
func hiddenPosition(visibleAt core.Instant, messageID string) string {
	return "h" + dueKey(visibleAt, messageID)
}

// messagePartition is a shard of the deliveries in order of their expiry. Urgent
// messages have shards of their own, so that they can be counted apart.
func messagePartition(urgent bool, shard int) string {
	lane := "normal"
	if urgent {
		lane = "urgent"
	}
	return fmt.Sprintf("message#%s#%d", lane, shard)
}

// fanoutPartition is a shard of the fan-outs under way, in order of when the
// sweep may resume them.
func fanoutPartition(shard int) string { return fmt.Sprintf("fanout#%d", shard) }

// deadPartition and redrivenPartition are shards of the dead letters in order
// of their death.
func deadPartition(shard int) string     { return fmt.Sprintf("dead#%d", shard) }
func redrivenPartition(shard int) string { return fmt.Sprintf("redriven#%d", shard) }

// deadKey orders dead letters by death, and differs for every one.
func deadKey(d core.Delivery) string {
	return dueKey(d.FailedAt, fmt.Sprintf("%s#%d#%s", d.ID, d.DeadLetterings, recipient(d)))
}

// tracePartition is a shard of a trace's deliveries and records, oldest first.
func tracePartition(traceID string, shard int) string {
	return fmt.Sprintf("trace#%s#%d", traceID, shard)
}

// humanPartition is a shard of the pending human requests in order of their
// deadline, pendingPartition one of the same in order of their creation.
func humanPartition(shard int) string   { return fmt.Sprintf("human#%d", shard) }
func pendingPartition(shard int) string { return fmt.Sprintf("human#pending#%d", shard) }

// jobPartition is a shard of the jobs in order of when they are due.
func jobPartition(shard int) string { return fmt.Sprintf("job#%d", shard) }

// statusPartition is a shard of the jobs of one stored status.
func statusPartition(status core.JobStatus, shard int) string {
	return fmt.Sprintf("job#%s#%d", status, shard)
}

// eventPartition holds a job's events, eventPosition orders them.
func eventPartition(jobID string) string { return "events#" + jobID }
func eventPosition(seq int64) string     { return fmt.Sprintf("%010d", seq) }

// relayPartition is a shard of the events to relay.
func relayPartition(shard int) string { return fmt.Sprintf("events#%d", shard) }

// reflexionKey is the key of an entry: those of one error pattern share a
// partition, so that a lookup is one request.
func reflexionKey(k core.ReflexionKey) key { return key{"reflexion#" + k.Pattern, k.Variant} }

// reflexionPartition is a shard of a type's entries in the index list, and
// reflexionDuePartition one of the entries that the sweep is to look at.
func reflexionPartition(t core.ReflexionType, shard int) string {
	return fmt.Sprintf("%s#%d", t, shard)
}

func reflexionDuePartition(shard int) string { return fmt.Sprintf("reflexion#%d", shard) }

// listedPatternBytes is how much of an entry's pattern its key in the index list
// carries: the search reads no entry whose pattern there does not match. With
// the rest of the key that stays below the 1,024 bytes of a sort key.
const listedPatternBytes = 900

// reflexionListKey orders entries by age and carries the beginning of their
// pattern.
func reflexionListKey(e core.ReflexionEntry) string {
	head := e.Pattern
	if len(head) > listedPatternBytes {
		head = strings.ToValidUTF8(head[:listedPatternBytes], "")
	}
	return dueKey(e.CreatedAt, e.Key.Pattern+e.Key.Variant) + "#" + head
}

// listedPattern reads the beginning of the pattern back.
func listedPattern(listed string) string {
	parts := strings.SplitN(listed, "#", 3)
	return parts[len(parts)-1]
}

func pipelineKey(team string) key { return key{"pipeline#" + team, "pipeline"} }

// pipelinePartition is a shard of the pipelines in order of their last update.
func pipelinePartition(shard int) string { return fmt.Sprintf("pipeline#%d", shard) }
