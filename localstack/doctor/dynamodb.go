package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/uuid"
)

// tables examines DynamoDB.
type tables struct {
	client    *dynamodb.Client
	table     string
	partition string
	scratch   bool // the table is the doctor's own

	mu   sync.Mutex
	used map[string]bool // sort keys that may exist
}

func (d *tables) name() string { return "DynamoDB" }

func (d *tables) checks() []check {
	return []check{
		{"a condition is not ignored", d.conditionHolds},
		{"a failed condition returns the old item", d.oldItem},
		{"put if absent has one winner", d.putIfAbsent},
		{"compare-and-set has one winner", d.compareAndSet},
		{"a transaction has one winner", d.transaction},
	}
}

const tableReady = 30 * time.Second

func (d *tables) open(ctx context.Context) error {
	d.used = map[string]bool{}
	if d.table != "" {
		_, err := d.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &d.table})
		return err
	}
	d.table = "drawbridge-doctor-" + uuid.NewString()
	d.scratch = true
	_, err := d.client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:   &d.table,
		BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String("sk"), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String("sk"), KeyType: types.KeyTypeRange},
		},
	})
	if err != nil {
		d.scratch = false
		return fmt.Errorf("make a scratch table: %w", err)
	}
	in := &dynamodb.DescribeTableInput{TableName: &d.table}
	if err := dynamodb.NewTableExistsWaiter(d.client).Wait(ctx, in, tableReady); err != nil {
		return fmt.Errorf("wait for the scratch table: %w", err)
	}
	return nil
}

func (d *tables) close(ctx context.Context) error {
	if d.scratch {
		_, err := d.client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &d.table})
		return err
	}
	var all []error
	for sk := range d.used {
		_, err := d.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &d.table, Key: d.key(sk)})
		all = append(all, err)
	}
	return errors.Join(all...)
}

func (d *tables) key(sk string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"pk": text(d.partition), "sk": text(sk)}
}

// item is an item that will have to be deleted.
func (d *tables) item(sk, writer string) map[string]types.AttributeValue {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used[sk] = true
	item := d.key(sk)
	item["writer"] = text(writer)
	return item
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func (d *tables) put(ctx context.Context, sk, writer string) error {
	_, err := d.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &d.table, Item: d.item(sk, writer)})
	if err != nil {
		return fmt.Errorf("put an item: %w", err)
	}
	return nil
}

func (d *tables) tryPutIfAbsent(ctx context.Context, sk, writer string) (outcome, error) {
	_, err := d.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &d.table, Item: d.item(sk, writer),
		ConditionExpression: aws.String("attribute_not_exists(pk)"),
	})
	return judged(err)
}

func judged(err error) (outcome, error) {
	var failed *types.ConditionalCheckFailedException
	var conflict *types.TransactionConflictException
	switch {
	case err == nil:
		return won, nil
	case errors.As(err, &failed):
		return lost, nil
	case errors.As(err, &conflict):
		return contended, nil
	default:
		return lost, err
	}
}

func (d *tables) stored(ctx context.Context, sk string) (string, error) {
	out, err := d.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &d.table, Key: d.key(sk), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return "", err
	}
	return writerOf(out.Item), nil
}

func writerOf(item map[string]types.AttributeValue) string {
	if s, ok := item["writer"].(*types.AttributeValueMemberS); ok {
		return s.Value
	}
	return ""
}

func (d *tables) conditionHolds(ctx context.Context) error {
	const sk = "condition"
	if err := d.put(ctx, sk, "first"); err != nil {
		return err
	}
	result, err := d.tryPutIfAbsent(ctx, sk, "second")
	if err != nil {
		return err
	}
	if result == won {
		return refusef("a put with attribute_not_exists replaced an item that exists: conditions are ignored")
	}
	value, err := d.stored(ctx, sk)
	if err != nil {
		return fmt.Errorf("read it back: %w", err)
	}
	if value != "first" {
		return refusef("a put that failed its condition changed the item all the same")
	}
	return nil
}

// oldItem: a writer whose answer was lost recognises its own write by the item
// that the failed condition of its second attempt returns.
func (d *tables) oldItem(ctx context.Context) error {
	const sk = "old-item"
	if err := d.put(ctx, sk, "first"); err != nil {
		return err
	}
	_, err := d.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &d.table, Item: d.item(sk, "second"),
		ConditionExpression:                 aws.String("attribute_not_exists(pk)"),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	var failed *types.ConditionalCheckFailedException
	if !errors.As(err, &failed) {
		if err != nil {
			return err
		}
		return refusef("a put with attribute_not_exists replaced an item that exists: conditions are ignored")
	}
	if writerOf(failed.Item) != "first" {
		return refusef("ReturnValuesOnConditionCheckFailure=ALL_OLD gave no item: a lost answer could not be told from a refusal")
	}
	return nil
}

func (d *tables) putIfAbsent(ctx context.Context) error {
	return repeat(ctx, func(ctx context.Context, n int) error {
		sk := "put-" + strconv.Itoa(n)
		return race(ctx,
			func(ctx context.Context, writer string) (outcome, error) { return d.tryPutIfAbsent(ctx, sk, writer) },
			func(ctx context.Context) (string, error) { return d.stored(ctx, sk) })
	})
}

func (d *tables) compareAndSet(ctx context.Context) error {
	return repeat(ctx, func(ctx context.Context, n int) error {
		sk := "swap-" + strconv.Itoa(n)
		if err := d.put(ctx, sk, "before"); err != nil {
			return err
		}
		return race(ctx,
			func(ctx context.Context, writer string) (outcome, error) { return d.trySwap(ctx, sk, writer) },
			func(ctx context.Context) (string, error) { return d.stored(ctx, sk) })
	})
}

func (d *tables) trySwap(ctx context.Context, sk, writer string) (outcome, error) {
	_, err := d.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &d.table, Key: d.key(sk),
		UpdateExpression:         aws.String("SET #w = :new"),
		ConditionExpression:      aws.String("#w = :old"),
		ExpressionAttributeNames: map[string]string{"#w": "writer"},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":new": text(writer), ":old": text("before"),
		},
	})
	return judged(err)
}

// transaction: a claim over two items. A writer that wins one of them without the
// other would show as a second winner, or as a value that is not the winner's.
func (d *tables) transaction(ctx context.Context) error {
	return repeat(ctx, func(ctx context.Context, n int) error {
		left, right := "left-"+strconv.Itoa(n), "right-"+strconv.Itoa(n)
		try := func(ctx context.Context, writer string) (outcome, error) {
			return d.tryClaim(ctx, writer, left, right)
		}
		if err := race(ctx, try, func(ctx context.Context) (string, error) { return d.stored(ctx, left) }); err != nil {
			return err
		}
		return d.sameWinner(ctx, left, right)
	})
}

func (d *tables) sameWinner(ctx context.Context, left, right string) error {
	l, err := d.stored(ctx, left)
	if err != nil {
		return fmt.Errorf("read one half of a claim: %w", err)
	}
	r, err := d.stored(ctx, right)
	if err != nil {
		return fmt.Errorf("read the other half of a claim: %w", err)
	}
	if l != r {
		return refusef("one transaction claimed two items, but they belong to writers %s and %s", l, r)
	}
	return nil
}

func (d *tables) tryClaim(ctx context.Context, writer string, keys ...string) (outcome, error) {
	in := &dynamodb.TransactWriteItemsInput{}
	for _, sk := range keys {
		in.TransactItems = append(in.TransactItems, types.TransactWriteItem{Put: &types.Put{
			TableName: &d.table, Item: d.item(sk, writer),
			ConditionExpression: aws.String("attribute_not_exists(pk)"),
		}})
	}
	_, err := d.client.TransactWriteItems(ctx, in)
	var cancelled *types.TransactionCanceledException
	if !errors.As(err, &cancelled) {
		return judged(err)
	}
	result := contended
	for _, reason := range cancelled.CancellationReasons {
		if aws.ToString(reason.Code) == "ConditionalCheckFailed" {
			result = lost
		}
	}
	return result, nil
}
