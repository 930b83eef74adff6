package ddb

import (
	"context"
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
)

// The attributes of the legacy role's item.
const (
	leaderAttr      = "leader"
	previousAttr    = "previous_leader"
	transferredAttr = "transferred"
)

// ReadLegacyRole reads the legacy role's partition: the role and the agents that
// registered as its candidates. Cost: 1 request, 1 read unit per 4 KB. IAM: Query.
func (s *Store) ReadLegacyRole(ctx context.Context) (core.LegacyState, []string, error) {
	items, err := s.partition(ctx, legacyKey().pk, candidatePrefix, legacyKey().sk)
	if err != nil {
		return core.LegacyState{}, nil, err
	}
	var state core.LegacyState
	var ids []string
	for _, it := range items {
		r := reader{it: it}
		if id, ofCandidate := strings.CutPrefix(r.text(sk), candidatePrefix); ofCandidate {
			ids = append(ids, id)
			continue
		}
		state = core.LegacyState{
			Leader: r.text(leaderAttr), PreviousLeader: r.text(previousAttr), Epoch: r.number(epochAttr), Source: r.text(sourceAttr),
			LastTransition: r.instant(transitionAttr), LastReason: r.text(reasonAttr), Transferred: r.number(transferredAttr),
		}
		if r.err != nil {
			return core.LegacyState{}, nil, r.err
		}
	}
	return state, ids, nil
}

// ReplaceLegacyRole is one PutItem on the epoch that was seen. Cost: 1 request, 1
// write unit. IAM: PutItem.
func (s *Store) ReplaceLegacyRole(ctx context.Context, seen, next core.LegacyState, stamp core.WriteStamp) (bool, error) {
	it := legacyKey().item()
	for name, v := range map[string]string{
		leaderAttr: next.Leader, previousAttr: next.PreviousLeader, sourceAttr: next.Source, reasonAttr: next.LastReason, writeIDAttr: stamp.WriteID,
	} {
		it[name] = text(v)
	}
	it[epochAttr], it[transitionAttr], it[transferredAttr] = number(next.Epoch), instant(next.LastTransition), number(next.Transferred)
	condition, values := "attribute_not_exists(pk)", item(nil)
	if seen.Epoch > 0 {
		condition, values = "epoch = :epoch", item{":epoch": number(seen.Epoch)}
	}
	stands, done, err := s.put(ctx, it, condition, values)
	return done || err == nil && isStampOf(stands, stamp), err
}

// legacyCandidate is the write that makes an agent findable as a candidate. It
// goes before the agent's own write, as the entries of topics do.
func legacyCandidate(agentID string, at core.Instant) types.WriteRequest {
	it := candidateKey(core.LegacyWire, agentID).item()
	it["written_ms"] = instant(at)
	return types.WriteRequest{PutRequest: &types.PutRequest{Item: it}}
}

// ForgetLegacyCandidates removes entries that are older than a moment. Cost: 1
// write unit an entry. IAM: DeleteItem.
func (s *Store) ForgetLegacyCandidates(ctx context.Context, ids []string, olderThan core.Instant) error {
	return parallel(len(ids), func(i int) error {
		err := s.write(ctx, func(ctx context.Context, trace func(*dynamodb.Options)) error {
			_, err := s.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
				TableName:                 aws.String(s.table),
				Key:                       candidateKey(core.LegacyWire, ids[i]).item(),
				ConditionExpression:       aws.String("written_ms < :older"),
				ExpressionAttributeValues: item{":older": instant(olderThan)},
			}, trace)
			return err
		})
		var failed *types.ConditionalCheckFailedException
		if errors.As(err, &failed) {
			return nil // it is young, or gone
		}
		return err
	})
}
