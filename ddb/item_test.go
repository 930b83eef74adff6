package ddb

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
)

func TestKeysOfTheLongestIdsFitDynamoDB(t *testing.T) {
	long := strings.Repeat("x", core.MaxIDBytes)
	for _, k := range []key{agentKey(long), tokenKey(core.TokenHash("t")), followerKey(long, long), {agentPartition(7), dueKey(1, long)}} {
		if len(k.pk) > 2048 || len(k.sk) > 1024 {
			t.Errorf("key of %d and %d bytes", len(k.pk), len(k.sk))
		}
	}
}

func TestDueKeysOrderByDeadlineAndGiveItBack(t *testing.T) {
	last := ""
	for _, deadline := range []core.Instant{0, 1, 9, 10, 1_700_000_000_000, 999_999_999_999_999} {
		due := dueKey(deadline, "id#with#marks")
		if due <= last {
			t.Errorf("%q does not come after %q", due, last)
		}
		if got, err := deadlineOf(due); err != nil || got != deadline {
			t.Errorf("%q gives back %d, %v", due, got, err)
		}
		last = due
	}
}

func TestShardsAreAStoredFormatAndDoNotMove(t *testing.T) {
	for id, want := range map[string]int{"a": 4, "agent-1": 0, "": 5, "ключ": 1} {
		if got := shardOf(id, agentShards); got != want {
			t.Errorf("%q is in shard %d, want %d", id, got, want)
		}
	}
}

func TestAnItemOfAnotherWriterIsAnErrorNotAPanic(t *testing.T) {
	good := func() item {
		it := agentKey("a").item()
		it[generationAttr] = number(1)
		it[capabilitiesAttr] = texts([]string{"x"})
		it[finishedAttr] = flag(true)
		it[dueSK] = text(dueKey(5, "a"))
		return it
	}
	if a, _, err := readAgent(good()); err != nil || a.ID != "a" || a.Generation != 1 || !a.Final || a.DueAt != 5 {
		t.Fatalf("a good item reads %+v, %v", a, err)
	}
	for name, value := range map[string]types.AttributeValue{
		generationAttr:   &types.AttributeValueMemberN{Value: "1.5"},
		leaseAttr:        text("soon"),
		presenceAttr:     number(1),
		capabilitiesAttr: text("x"),
		topicsAttr:       &types.AttributeValueMemberL{Value: []types.AttributeValue{number(1)}},
		finishedAttr:     text("true"),
		dueSK:            text("soon#a"),
	} {
		it := good()
		it[name] = value
		_, _, err := readAgent(it)
		if core.CodeOf(err) != core.CodeInternal || err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("a wrong %s reads %v", name, err)
		}
	}
}
