package ddb

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"drawbridge/core"
)

// Ids are the callers' text, # included. Whatever they hold, no two things share
// a key, in the table or in an index: else one agent could write what is
// another's.
func TestNoTwoThingsShareAKeyWhateverTheirIDsHold(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	ids := []string{"a", "0", "a#0", "a#b", "#", "##", "agent", "agent#a", "token", "hub", "pending", "pending#0", "urgent#0", "normal", "role", "record", "m#a", "r#a#1", "a#0#0", "00000"}
	for range 25 {
		var id strings.Builder
		for range 1 + random.IntN(4) {
			id.WriteString([]string{"a", "#", "0", "1", "agent", "topic", "job", "pending", "queued", "dead"}[random.IntN(10)])
		}
		ids = append(ids, id.String())
	}
	items, lists, dues := map[string]string{}, map[string]string{}, map[string]string{}
	claim := func(in map[string]string, key, what string) {
		t.Helper()
		if other, taken := in[key]; taken && other != what {
			t.Fatalf("%s and %s have the key %q", other, what, key)
		}
		in[key] = what
	}
	item := func(k key, what string) { t.Helper(); claim(items, k.pk+"\x00"+k.sk, what) }
	for _, k := range []struct {
		key  key
		what string
	}{{identityKey(), "identity"}, {countsKey(), "counts"}, {jobCountsKey(), "job counts"}, {roleSettingsKey(), "role settings"}, {legacyKey(), "legacy role"}} {
		item(k.key, k.what)
	}
	for _, id := range ids {
		for what, k := range map[string]key{
			"agent": agentKey(id), "token": tokenKey(id), "sweep": sweepKey(id), "idempotency": idempotencyKey(id), "record": recordKey(id), "answer": answerKey(id),
			"role": roleKey(id), "role value": roleValueKey(id), "human": humanKey(id), "job": jobKey(id), "pipeline": pipelineKey(id),
		} {
			item(k, what+" "+id)
		}
		for shard := range 5 {
			claim(lists, tracePartition(id, shard), fmt.Sprintf("trace %s %d", id, shard))
			item(recipientsKey(id, shard), fmt.Sprintf("recipients %s %d", id, shard))
			item(eventKey(id, int64(shard)), fmt.Sprintf("event %s %d", id, shard))
		}
		for _, second := range ids {
			pair := fmt.Sprintf("%q of %q", second, id)
			item(candidateKey(id, second), "candidate "+pair)
			item(followerKey(id, second), "follower "+pair)
			item(deliveryKey(id, second), "delivery "+pair)
			item(redrivenKey(id, second, 1), "redriven 1 "+pair)
			item(redrivenKey(id, second, 11), "redriven 11 "+pair)
			item(reflexionKey(core.ReflexionKey{Pattern: id, Variant: second}), "reflexion "+pair)
		}
	}
	claim(lists, tokenPartition, "tokens")
	for shard := range 20 {
		for what, partition := range map[string]string{
			"agents": agentPartition(shard), "roles": rolePartition(shard), "dead": deadPartition(shard), "redriven": redrivenPartition(shard),
			"pending humans": pendingPartition(shard), "pipelines": pipelinePartition(shard), "queued jobs": statusPartition(core.JobQueued, shard),
			"reflexion": reflexionPartition(core.ReflexionType("reflexion"), shard),
		} {
			claim(lists, partition, fmt.Sprint(what, " ", shard))
		}
		for what, partition := range map[string]string{
			"agents": agentPartition(shard), "roles": rolePartition(shard), "fan-outs": fanoutPartition(shard), "urgent": messagePartition(true, shard),
			"normal": messagePartition(false, shard), "humans": humanPartition(shard), "jobs": jobPartition(shard), "events": relayPartition(shard),
			"reflexion": reflexionDuePartition(shard),
		} {
			claim(dues, partition, fmt.Sprint(what, " ", shard))
		}
	}
}
