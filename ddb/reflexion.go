package ddb

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
)

const (
	bornAttr         = "born"
	patternAttr      = "pattern"
	errorAttr        = "error_message"
	contextAttr      = "context"
	solutionAttr     = "solution"
	solutionCodeAttr = "solution_code"
	hitsAttr         = "hits"
	successesAttr    = "successes"
	baseAttr         = "base_tenths"
	baseHitsAttr     = "base_hits"
	lastHitAttr      = "last_hit_ms"
	learntByAttr     = "learnt_by"
	learntGenAttr    = "learnt_generation"
	reflexionType    = "reflexion_type"
	recentAttr       = "recent"  // write ids of the latest hits
	earlierAttr      = "earlier" // and of those before, as many
)

// recentHits is how many write ids each of the two sets holds: a hit that is
// sent again is recognised while fewer than that many others came between.
const recentHits = 32

func reflexionItem(e core.ReflexionEntry) item {
	shard := reflexionShard(e.Key)
	it := reflexionKey(e.Key).item()
	for name, value := range map[string]string{
		bornAttr: e.Born, reflexionType: string(e.Type), patternAttr: e.Pattern, errorAttr: e.Message, contextAttr: string(e.Context),
		solutionAttr: e.Solution, solutionCodeAttr: e.Code, learntByAttr: e.LearntBy,
		listPK: reflexionPartition(e.Type, shard), listSK: reflexionListKey(e),
		duePK: reflexionDuePartition(shard), dueSK: reflexionDue(e),
	} {
		if value != "" {
			it[name] = text(value)
		}
	}
	for name, n := range map[string]int64{
		hitsAttr: e.Hits, successesAttr: e.Successes, baseAttr: e.Base, baseHitsAttr: e.BaseHits, learntGenAttr: e.LearntGeneration,
		lastHitAttr: int64(e.LastHit), createdAttr: int64(e.CreatedAt), updatedAttr: int64(e.UpdatedAt),
	} {
		it[name] = number(n)
	}
	it[recentAttr] = hitSet(e.Born)
	return it
}

func reflexionShard(k core.ReflexionKey) int { return shardOf(k.Pattern+k.Variant, reflexionShards) }

func reflexionDue(e core.ReflexionEntry) string {
	return dueKey(e.DueAt, e.Key.Pattern+e.Key.Variant)
}

func readReflexion(it item) (core.ReflexionEntry, error) {
	if it == nil {
		return core.ReflexionEntry{}, nil
	}
	r := reader{it: it}
	e := core.ReflexionEntry{
		Key:      core.ReflexionKey{Pattern: strings.TrimPrefix(r.text(pk), "reflexion#"), Variant: r.text(sk)},
		Born:     r.text(bornAttr),
		Type:     core.ReflexionType(r.text(reflexionType)),
		Pattern:  r.text(patternAttr),
		Message:  r.text(errorAttr),
		Context:  r.json(contextAttr, "{}"),
		Solution: r.text(solutionAttr),
		Code:     r.text(solutionCodeAttr),
		Hits:     r.number(hitsAttr), Successes: r.number(successesAttr),
		Base: r.number(baseAttr), BaseHits: r.number(baseHitsAttr),
		LastHit: r.instant(lastHitAttr), CreatedAt: r.instant(createdAttr), UpdatedAt: r.instant(updatedAttr),
		LearntBy: r.text(learntByAttr), LearntGeneration: r.number(learntGenAttr),
	}
	if due := r.text(dueSK); due != "" {
		var err error
		if e.DueAt, err = deadlineOf(due); err != nil {
			return e, core.Wrap(core.CodeInternal, "the store holds a due entry this hub cannot read", err)
		}
	}
	return e, r.err
}

// hitSet is a set of one write id, as 8 bytes of its hash: an entry is small.
func hitSet(writeID string) types.AttributeValue {
	return &types.AttributeValueMemberBS{Value: [][]byte{hitID(writeID)}}
}

func hitID(writeID string) []byte {
	sum := sha256.Sum256([]byte(writeID))
	return sum[:8]
}

// counted tells whether an entry has counted a hit.
func counted(it item, writeID string) bool {
	for _, name := range []string{recentAttr, earlierAttr} {
		set, _ := it[name].(*types.AttributeValueMemberBS)
		if set != nil && slices.ContainsFunc(set.Value, func(id []byte) bool { return string(id) == string(hitID(writeID)) }) {
			return true
		}
	}
	return false
}

// ReadPattern queries the partition of a pattern, strongly consistent. Cost: 1
// request, 1 read unit per 4 KB of its entries. IAM: Query.
func (s *Store) ReadPattern(ctx context.Context, pattern string, limit int) ([]core.ReflexionEntry, bool, error) {
	items, more, err := s.keys(ctx, query{
		condition: "pk = :pk", values: item{":pk": text(reflexionKey(core.ReflexionKey{Pattern: pattern}).pk)}, limit: limit,
	})
	if err != nil {
		return nil, false, err
	}
	entries := make([]core.ReflexionEntry, 0, len(items))
	for _, it := range items {
		e, err := readReflexion(it)
		if err != nil {
			return nil, false, err
		}
		entries = append(entries, e)
	}
	return entries, more, nil
}

// CreateReflexion is one PutItem, or one transaction with the agent's fence.
// Being born by this write tells an earlier try of it. Cost: 1 round trip; 1
// write unit per KB and as much for each of the indexes list and due; with a
// fence twice the first and 2 for the agent. IAM: PutItem, ConditionCheckItem.
func (s *Store) CreateReflexion(ctx context.Context, c core.ReflexionCreation) (core.ReflexionWrite, error) {
	condition, values := "attribute_not_exists(pk)", item(nil)
	if c.Replaces.Set {
		condition, values = seenReflexion(c.Replaces.Value)
		condition = "attribute_not_exists(pk) OR " + condition
	}
	it := reflexionItem(c.Entry)
	after, done, stale, err := s.writeFenced(ctx, c.Fence, func() (item, bool, error) {
		return s.put(ctx, it, condition, values)
	}, types.TransactWriteItem{Put: &types.Put{
		TableName: aws.String(s.table), Item: it, ConditionExpression: aws.String(condition), ExpressionAttributeValues: values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}})
	if err != nil || stale.Set {
		return core.ReflexionWrite{Stale: stale}, err
	}
	if done {
		return core.ReflexionWrite{Entry: c.Entry, Done: true}, nil
	}
	stands, err := readReflexion(after)
	ours := stands.Born == c.Entry.Born
	return core.ReflexionWrite{Entry: stands, Done: ours, Replayed: ours}, err
}

// writeFenced carries out a write alone, or in one transaction with an agent's
// fence. A transaction tells the item that failed its condition as the write
// alone does, but not the item after it.
func (s *Store) writeFenced(
	ctx context.Context, fence core.Opt[core.AgentFence], alone func() (item, bool, error), action types.TransactWriteItem,
) (it item, done bool, stale core.Opt[core.Agent], err error) {
	if !fence.Set {
		it, done, err = alone()
		return it, done, stale, err
	}
	reasons, err := s.commit(ctx, []types.TransactWriteItem{s.checkFence(fence.Value), action})
	if err != nil || len(reasons) < 2 {
		return nil, err == nil, stale, err
	}
	if reasons[0].code == conditionFailed {
		agent, _, err := readAgent(reasons[0].item)
		return nil, false, core.Some(agent), err
	}
	return reasons[1].item, false, stale, nil
}

// seenReflexion holds while nothing about an entry changed that a hit, a sweep
// or a replacement changes.
func seenReflexion(e core.ReflexionEntry) (string, item) {
	return "(born = :seen_born AND hits = :seen_hits AND updated_ms = :seen_updated)", item{
		":seen_born": text(e.Born), ":seen_hits": number(e.Hits), ":seen_updated": instant(e.UpdatedAt),
	}
}

// HitReflexion is one UpdateItem that adds, or one transaction with the agent's
// fence. The entry remembers the write ids of its latest hits; a full set is
// refused, and the change that follows moves the sets on. Cost: 1 round trip, 1
// write unit per KB; with a fence 4, and 1 read unit. IAM: UpdateItem,
// ConditionCheckItem, GetItem.
func (s *Store) HitReflexion(ctx context.Context, h core.ReflexionHit) (core.ReflexionWrite, error) {
	u := update{
		key: reflexionKey(h.Key),
		set: []string{
			"hits = hits + :one", "last_hit_ms = :now", "updated_ms = :now",
			"due_pk = if_not_exists(due_pk, :due_pk)", "due_sk = if_not_exists(due_sk, :due_sk)",
		},
		add:       []string{"recent :id"},
		condition: []string{"born = :born", "updated_ms > :fresh", "size(recent) < :most", notCounted},
		values: item{
			":one": number(1), ":now": instant(core.InstantOf(h.Started)), ":born": text(h.Born), ":fresh": instant(h.FreshAfter),
			":due_pk": text(reflexionDuePartition(reflexionShard(h.Key))),
			":due_sk": text(dueKey(h.Due, h.Key.Pattern+h.Key.Variant)),
			":most":   number(recentHits), ":id": hitSet(h.WriteID), ":this": hitValue(h.WriteID),
		},
	}
	if h.Success {
		u.set = append(u.set, "successes = successes + :one")
	}
	return s.writeReflexion(ctx, u, h.Fence, h.WriteID)
}

const notCounted = "NOT contains(recent, :this) AND NOT contains(earlier, :this)"

func hitValue(writeID string) types.AttributeValue {
	return &types.AttributeValueMemberB{Value: hitID(writeID)}
}

// ChangeReflexion is one UpdateItem on what was seen, or one transaction with
// the agent's fence. Cost: as HitReflexion; 2 index units when the due entry
// moves, 1 when it goes. IAM: UpdateItem, ConditionCheckItem, GetItem.
func (s *Store) ChangeReflexion(ctx context.Context, c core.ReflexionChange) (core.ReflexionWrite, error) {
	seen, values := seenReflexion(c.Seen)
	u := update{
		key: reflexionKey(c.Seen.Key),
		set: []string{
			"hits = :hits", "successes = :successes", "base_tenths = :base", "base_hits = :base_hits",
			"last_hit_ms = :last_hit", "updated_ms = :updated",
		},
		condition: []string{seen},
		values:    values,
	}
	n := c.Next
	for name, value := range map[string]int64{
		":hits": n.Hits, ":successes": n.Successes, ":base": n.Base, ":base_hits": n.BaseHits,
		":last_hit": int64(n.LastHit), ":updated": int64(n.UpdatedAt),
	} {
		values[name] = number(value)
	}
	if n.DueAt > 0 {
		u.set = append(u.set, "due_pk = :due_pk", "due_sk = :due_sk")
		values[":due_pk"], values[":due_sk"] = text(reflexionDuePartition(reflexionShard(n.Key))), text(reflexionDue(n))
	} else {
		u.remove = []string{duePK, dueSK}
	}
	if c.Counts {
		u.set = append(u.set, "earlier = recent", "recent = :id")
		u.condition = append(u.condition, notCounted)
		values[":id"], values[":this"] = hitSet(c.WriteID), hitValue(c.WriteID)
	}
	return s.writeReflexion(ctx, u, c.Fence, c.WriteID)
}

func (s *Store) writeReflexion(ctx context.Context, u update, fence core.Opt[core.AgentFence], writeID string) (core.ReflexionWrite, error) {
	it, done, stale, err := s.writeFenced(ctx, fence, func() (item, bool, error) { return s.apply(ctx, u) }, s.updateAction(u))
	if err != nil || stale.Set {
		return core.ReflexionWrite{Stale: stale}, err
	}
	if done && it == nil {
		if it, err = s.get(ctx, u.key); err != nil {
			return core.ReflexionWrite{}, err
		}
	}
	e, err := readReflexion(it)
	again := !done && counted(it, writeID)
	return core.ReflexionWrite{Entry: e, Done: done || again, Replayed: again}, err
}

// RemoveReflexion is one DeleteItem on what was seen. Cost: 1 write unit per KB,
// and 1 for each index it is in. IAM: DeleteItem.
func (s *Store) RemoveReflexion(ctx context.Context, seen core.ReflexionEntry) (bool, error) {
	condition, values := seenReflexion(seen)
	return s.remove(ctx, reflexionKey(seen.Key), condition, values)
}

// remove deletes an item on a condition; false when that failed.
func (s *Store) remove(ctx context.Context, k key, condition string, values item) (bool, error) {
	err := s.write(ctx, func(ctx context.Context, trace func(*dynamodb.Options)) error {
		_, err := s.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
			TableName: aws.String(s.table), Key: k.item(), ConditionExpression: aws.String(condition), ExpressionAttributeValues: values,
		}, trace)
		return err
	})
	if _, failed := failedCondition(err); failed {
		return false, nil
	}
	return err == nil, err
}
