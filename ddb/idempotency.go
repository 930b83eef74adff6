package ddb

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
)

const (
	bodyHashAttr = "body_hash"
	answerAttr   = "answer"
)

// readAnswer decodes a stored answer, expired or not.
func readAnswer(id string, it item) (core.IdempotencyRecord, error) {
	r := reader{it: it}
	record := core.IdempotencyRecord{
		ID:        id,
		BodyHash:  r.text(bodyHashAttr),
		Answer:    []byte(r.text(answerAttr)),
		ExpiresAt: r.instant(expiresAttr),
	}
	return record, r.err
}

// putAnswer is a transaction's action that stores an answer, unless one that is
// still valid at now is stored. DynamoDB collects it some time after it expired;
// until then its own time says that it does not count.
func (s *Store) putAnswer(r core.IdempotencyRecord, now time.Time) types.TransactWriteItem {
	it := idempotencyKey(r.ID).item()
	it[bodyHashAttr] = text(r.BodyHash)
	it[answerAttr] = text(string(r.Answer))
	it[expiresAttr] = instant(r.ExpiresAt)
	it[ttl] = number(r.ExpiresAt.Time().Unix() + 1)
	return types.TransactWriteItem{Put: &types.Put{
		TableName:                           aws.String(s.table),
		Item:                                it,
		ConditionExpression:                 aws.String("attribute_not_exists(pk) OR expires_ms <= :now"),
		ExpressionAttributeValues:           item{":now": instant(core.InstantOf(now))},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

// transact commits all actions or none. It is false when a condition failed or
// another transaction held an item; the caller reads again and decides. The SDK
// gives the call a token that stays the same over its retries, so a lost
// response does not look like a failed condition.
func (s *Store) transact(ctx context.Context, actions ...types.TransactWriteItem) (bool, error) {
	var sent attempts
	_, err := s.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: actions}, sent.trace)
	if err == nil {
		return true, nil
	}
	switch cancellationOf(err) {
	case conditionFailed, conflicted:
		return false, nil
	case cancelThrottled:
		return false, core.Wrap(core.CodeThrottled, "the store asks to slow down; nothing was done", err)
	case cancelRefused:
		return false, core.Wrap(core.CodeInternal, "the store refused a transaction", err)
	default:
		return false, sent.failure(err)
	}
}
