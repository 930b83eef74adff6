package ddb

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
)

// storeType is what the hub calls this kind of store.
const storeType = "dynamodb"

// Table names a table so that no other one in the world is meant.
type Table struct {
	Name    string
	Region  string
	Account string // may be empty where it is not known
}

// Store is the hub's table. It is safe for concurrent use and keeps no state
// but the client.
type Store struct {
	client      Client
	table       string
	fingerprint string
	payloads    PayloadBucket
	retention   time.Duration
	relaying    bool // events are kept for the relay
}

var (
	_ core.PresenceStore = (*Store)(nil)
	_ core.IdentityStore = (*Store)(nil)
	_ core.TokenRegistry = (*Store)(nil)
	_ core.SweepStore    = (*Store)(nil)
	_ core.MessageStore  = (*Store)(nil)
	_ core.RoleStore     = (*Store)(nil)

	_ core.HumanRequestStore = (*Store)(nil)
	_ core.JobStore          = (*Store)(nil)
	_ core.ReflexionStore    = (*Store)(nil)
	_ core.PipelineStore     = (*Store)(nil)
)

// Open returns the store over a table as the template declares it. It makes no
// request. The client is expected to retry a request up to 3 times (4 attempts,
// the SDK's default for DynamoDB) and to bound each attempt in time.
func Open(client Client, t Table) *Store {
	sum := sha256.Sum256([]byte(strings.Join([]string{t.Region, t.Account, t.Name}, "/")))
	return &Store{
		client: client, table: t.Name, fingerprint: storeType + ":" + hex.EncodeToString(sum[:]),
		retention: core.DefaultMessageRetention,
	}
}

// Describe tells the store's type, the table's name and its fingerprint.
func (s *Store) Describe() (kind, name, fingerprint string) {
	return storeType, s.table, s.fingerprint
}

// update is one UpdateItem: an expression, its condition and their values.
type update struct {
	key       key
	set       []string
	remove    []string
	add       []string // to numbers and sets
	drop      []string // from sets
	condition []string // all must hold
	names     map[string]string
	values    item
	// sent, where it is set, observes the attempts.
	sent *attempts
}

func (u *update) expression() string {
	var clauses []string
	for _, clause := range []struct {
		verb  string
		parts []string
	}{{"SET ", u.set}, {"REMOVE ", u.remove}, {"ADD ", u.add}, {"DELETE ", u.drop}} {
		if len(clause.parts) > 0 {
			clauses = append(clauses, clause.verb+strings.Join(clause.parts, ", "))
		}
	}
	return strings.Join(clauses, " ")
}

// observe installs the update's own observer of its attempts, if it has one.
func (u *update) observe(o *dynamodb.Options) {
	if u.sent != nil {
		u.sent.traceAs(o, "ObserveResends")
	}
}

// apply sends the update. It returns the item after it, or, when the condition
// failed, the item that failed it (nil: there is none) and false.
func (s *Store) apply(ctx context.Context, u update) (item, bool, error) {
	in := &dynamodb.UpdateItemInput{
		TableName:                           aws.String(s.table),
		Key:                                 u.key.item(),
		UpdateExpression:                    aws.String(u.expression()),
		ExpressionAttributeNames:            u.names,
		ExpressionAttributeValues:           u.values,
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if len(u.condition) > 0 {
		in.ConditionExpression = aws.String(strings.Join(u.condition, " AND "))
	}
	var after item
	err := s.write(ctx, func(ctx context.Context, trace func(*dynamodb.Options)) error {
		out, err := s.client.UpdateItem(ctx, in, trace, u.observe)
		if err == nil {
			after = out.Attributes
		}
		return err
	})
	if old, failed := failedCondition(err); failed {
		return old, false, nil
	}
	return after, err == nil, err
}

// put stores an item on a condition; the options are of this one request. When the
// condition failed it returns the item that stands and false.
func (s *Store) put(ctx context.Context, it item, condition string, values item, options ...func(*dynamodb.Options)) (item, bool, error) {
	in := &dynamodb.PutItemInput{
		TableName:                           aws.String(s.table),
		Item:                                it,
		ConditionExpression:                 aws.String(condition),
		ExpressionAttributeValues:           values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	err := s.write(ctx, func(ctx context.Context, trace func(*dynamodb.Options)) error {
		_, err := s.client.PutItem(ctx, in, append(options, trace)...)
		return err
	})
	if old, failed := failedCondition(err); failed {
		return old, false, nil
	}
	return it, err == nil, err
}

// get reads one item, strongly consistent; nil when there is none. Cost: 1
// request, 1 read unit per 4 KB.
func (s *Store) get(ctx context.Context, k key) (item, error) {
	out, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName:      aws.String(s.table),
		Key:            k.item(),
		ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return nil, readFailure(err)
	}
	return out.Item, nil
}

// batchLimit is the most keys of a BatchGetItem.
const batchLimit = 100

// batchRounds bounds how often what a batch left unprocessed is sent again.
const batchRounds = 6

// batchGet reads up to 100 items in one request, strongly consistent; what is
// not there is left out.
func (s *Store) batchGet(ctx context.Context, keys []key) (map[key]item, error) {
	found := make(map[key]item, len(keys))
	pending := make([]map[string]types.AttributeValue, 0, len(keys))
	for _, k := range keys {
		pending = append(pending, k.item())
	}
	for round := 0; len(pending) > 0; round++ {
		if round == batchRounds {
			return nil, core.Refuse(core.CodeThrottled, "the store keeps part of a read back")
		}
		if round > 0 {
			if err := core.Backoff(ctx, round); err != nil {
				return nil, readFailure(err)
			}
		}
		out, err := s.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{
			RequestItems: map[string]types.KeysAndAttributes{s.table: {Keys: pending, ConsistentRead: aws.Bool(true)}},
		})
		if err != nil {
			return nil, readFailure(err)
		}
		for _, it := range out.Responses[s.table] {
			found[keyOf(it)] = it
		}
		pending = out.UnprocessedKeys[s.table].Keys
	}
	return found, nil
}

// query reads one page of keys from a partition of the table or an index.
type query struct {
	index      string // "": the table itself
	condition  string
	values     item
	limit      int
	descending bool
}

// consistent tells whether a query can be strongly consistent: one through a
// global index cannot.
func (q query) consistent() bool { return q.index == "" || q.index == inboxIndex }

// isEmpty tells whether nothing can lie between the ends of the query's range.
// DynamoDB refuses to be asked; a cursor or a filter can come to it.
func (q query) isEmpty() bool {
	from, ranged := q.values[":from"].(*types.AttributeValueMemberS)
	if !ranged {
		return false
	}
	for _, end := range []string{":to", ":before"} {
		if to, ok := q.values[end].(*types.AttributeValueMemberS); ok && from.Value > to.Value {
			return true
		}
	}
	return false
}

// keys returns the page and whether the partition may hold more. Cost: 1
// request; the units of the keys read, half of it through an index.
func (s *Store) keys(ctx context.Context, q query) ([]item, bool, error) {
	if q.isEmpty() {
		return nil, false, nil
	}
	in := &dynamodb.QueryInput{
		TableName:                 aws.String(s.table),
		KeyConditionExpression:    aws.String(q.condition),
		ExpressionAttributeValues: q.values,
		Limit:                     aws.Int32(int32(q.limit)),
		ConsistentRead:            aws.Bool(q.consistent()),
		ScanIndexForward:          aws.Bool(!q.descending),
	}
	if q.index != "" {
		in.IndexName = aws.String(q.index)
	}
	out, err := s.client.Query(ctx, in)
	if err != nil {
		return nil, false, readFailure(err)
	}
	return out.Items, len(out.LastEvaluatedKey) > 0, nil
}

// conflictAttempts bounds how often a write waits for a transaction of another
// operation on the same item.
const conflictAttempts = 8

// write sends a write and sends it again while a transaction holds the item: the
// SDK does not retry that. It returns a failed condition as it is and everything
// else with a code of the catalogue.
func (s *Store) write(ctx context.Context, send func(context.Context, func(*dynamodb.Options)) error) error {
	for attempt := 1; ; attempt++ {
		var sent attempts
		err := send(ctx, sent.trace)
		if err == nil {
			return nil
		}
		if _, failed := failedCondition(err); failed {
			return err
		}
		var conflict *types.TransactionConflictException
		if !errors.As(err, &conflict) {
			return sent.failure(err)
		}
		if attempt == conflictAttempts {
			return core.Wrap(core.CodeContended, "transactions kept holding the item", err)
		}
		if core.Backoff(ctx, attempt) != nil {
			return core.Wrap(core.CodeContended, "transactions held the item until the time ran out", err)
		}
	}
}

// parallel runs fn for 0..n-1 at once and returns the first of their errors in
// that order.
func parallel(n int, fn func(i int) error) error {
	failures := make([]error, n)
	var wait sync.WaitGroup
	for i := 1; i < n; i++ {
		wait.Go(func() { failures[i] = fn(i) })
	}
	if n > 0 {
		failures[0] = fn(0) // on the stack that is there
	}
	wait.Wait()
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}
