package fakeaws_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"drawbridge/localstack/fakeaws"
)

// ways are two servers with the same tables and one clock. Every request goes to
// both: directly to the first, in its wire form to the second.
type ways struct {
	t       testing.TB
	servers [2]*fakeaws.Server
	clients [2]*fakeaws.Tables
	now     time.Time
	direct  int // requests that succeeded without a wire form
}

// newWays makes "table" as setUp does, and "odd": pk, and sk that is a number; the
// local index "local" by lk, keys only; the global index "some" by g and gn, with a.
func newWays(t testing.TB, dirs [2]string) *ways {
	t.Helper()
	w := &ways{t: t, now: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)}
	for i := range w.servers {
		server, err := fakeaws.Open(fakeaws.Options{Dir: dirs[i], Clock: func() time.Time { return w.now }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Close() }) // those with a folder are closed already
		tables, store := clients(server.Config())
		setUp(t, tables, store)
		createOdd(t, tables)
		cfg := server.Config()
		cfg.RetryMaxAttempts = 1
		w.servers[i], w.clients[i] = server, server.NewTables(cfg)
	}
	return w
}

func createOdd(t testing.TB, tables *dynamodb.Client) {
	t.Helper()
	keys := func(partition, sort string) []types.KeySchemaElement {
		return []types.KeySchemaElement{{AttributeName: &partition, KeyType: "HASH"}, {AttributeName: &sort, KeyType: "RANGE"}}
	}
	var attributes []types.AttributeDefinition
	for _, a := range [][2]string{{"pk", "S"}, {"sk", "N"}, {"lk", "B"}, {"g", "S"}, {"gn", "N"}} {
		attributes = append(attributes, types.AttributeDefinition{AttributeName: aws.String(a[0]), AttributeType: types.ScalarAttributeType(a[1])})
	}
	_, err := tables.CreateTable(context.Background(), &dynamodb.CreateTableInput{
		TableName: aws.String("odd"), BillingMode: types.BillingModePayPerRequest, AttributeDefinitions: attributes, KeySchema: keys("pk", "sk"),
		LocalSecondaryIndexes:  []types.LocalSecondaryIndex{{IndexName: aws.String("local"), KeySchema: keys("pk", "lk"), Projection: &types.Projection{ProjectionType: "KEYS_ONLY"}}},
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{{IndexName: aws.String("some"), KeySchema: keys("g", "gn"), Projection: &types.Projection{ProjectionType: "INCLUDE", NonKeyAttributes: []string{"a"}}}},
	})
	if inUse := new(types.ResourceInUseException); err != nil && !errors.As(err, &inUse) {
		t.Fatal(err)
	}
}

// told is all that a caller can tell of one request.
type told struct {
	result        any
	code, message string
	item          item
	reasons       []types.CancellationReason
	status        int
	panics        string
}

// ask sends one request both ways.
func (w *ways) ask(in any) (got [2]told) {
	w.t.Helper()
	for i := range w.servers {
		got[i] = w.askOne(i, in)
	}
	return got
}

func (w *ways) askOne(way int, in any) (got told) {
	defer func() {
		if p := recover(); p != nil {
			got = told{panics: fmt.Sprint(p)}
		}
	}()
	ctx := context.Background()
	if way == 1 {
		ctx = fakeaws.WithLabel(ctx, "wire")
	}
	wired := false
	result, err := send(ctx, w.clients[way], in, noteWire(&wired))
	if err != nil {
		return failure(err)
	}
	if way == 0 && !wired {
		w.direct++
	}
	if way == 1 && !wired {
		w.t.Errorf("a request with a label has no wire form")
	}
	return told{result: settled(result)}
}

// noteWire is a call's option that notes whether an answer had a wire form.
func noteWire(wired *bool) func(*dynamodb.Options) {
	return func(o *dynamodb.Options) {
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("NoteWire", func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
				out, metadata, err := next.HandleDeserialize(ctx, in)
				*wired = out.RawResponse != nil
				return out, metadata, err
			}), middleware.Before)
		})
	}
}

func send(ctx context.Context, c *fakeaws.Tables, in any, o func(*dynamodb.Options)) (any, error) {
	switch in := in.(type) {
	case *dynamodb.GetItemInput:
		return c.GetItem(ctx, in, o)
	case *dynamodb.BatchGetItemInput:
		return c.BatchGetItem(ctx, in, o)
	case *dynamodb.TransactGetItemsInput:
		return c.TransactGetItems(ctx, in, o)
	case *dynamodb.QueryInput:
		return c.Query(ctx, in, o)
	case *dynamodb.PutItemInput:
		return c.PutItem(ctx, in, o)
	case *dynamodb.UpdateItemInput:
		return c.UpdateItem(ctx, in, o)
	case *dynamodb.DeleteItemInput:
		return c.DeleteItem(ctx, in, o)
	case *dynamodb.BatchWriteItemInput:
		return c.BatchWriteItem(ctx, in, o)
	case *dynamodb.TransactWriteItemsInput:
		return c.TransactWriteItems(ctx, in, o)
	}
	return nil, fmt.Errorf("no operation takes %T", in)
}

func failure(err error) told {
	got := told{message: "not of the service: " + err.Error()}
	var e smithy.APIError
	if errors.As(err, &e) {
		got.code, got.message = e.ErrorCode(), e.ErrorMessage()
	}
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		got.item = failed.Item
	}
	var undone *types.TransactionCanceledException
	if errors.As(err, &undone) {
		got.reasons = undone.CancellationReasons
	}
	var answer interface{ HTTPStatusCode() int }
	if errors.As(err, &answer) {
		got.status = answer.HTTPStatusCode()
	}
	return got
}

// settled is a result without what belongs to its transport, and with the one list
// in order that follows the order of a map.
func settled(result any) any {
	switch o := result.(type) {
	case *dynamodb.BatchGetItemOutput:
		sortCapacities(o.ConsumedCapacity)
	case *dynamodb.BatchWriteItemOutput:
		sortCapacities(o.ConsumedCapacity)
	}
	return forget(result)
}

func sortCapacities(all []types.ConsumedCapacity) {
	slices.SortFunc(all, func(a, b types.ConsumedCapacity) int { return strings.Compare(*a.TableName, *b.TableName) })
}

// same asks both ways and compares the answers and what they cost.
func (w *ways) same(name string, in any) told {
	w.t.Helper()
	got := w.ask(in)
	if !reflect.DeepEqual(got[0], got[1]) {
		w.t.Errorf("%s: %s\ndirectly %s\nby wire  %s", name, shown(in), shown(got[0]), shown(got[1]))
	}
	if direct, wire := w.servers[0].Meter().Total(), w.servers[1].Meter().Total(); !reflect.DeepEqual(direct, wire) {
		w.t.Fatalf("%s: %s\ncosts directly %+v\nby wire        %+v", name, shown(in), direct, wire)
	}
	return got[0]
}

// shown is a request or what was told of it, in short.
func shown(v any) string {
	if got, ok := v.(told); ok {
		v = map[string]any{"result": got.result, "code": got.code, "message": got.message, "item": got.item, "reasons": got.reasons, "status": got.status, "panics": got.panics}
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%#v", v)
	}
	return fmt.Sprintf("%T %.2000s", v, text)
}

// sameState compares everything that the two servers hold, indexes too.
func (w *ways) sameState() {
	w.t.Helper()
	for _, place := range [][2]string{{"table", ""}, {"table", "index"}, {"odd", ""}, {"odd", "local"}, {"odd", "some"}} {
		var held [2][]item
		for i, server := range w.servers {
			held[i] = scan(w.t, server, place[0], place[1])
		}
		if !reflect.DeepEqual(held[0], held[1]) {
			w.t.Errorf("%q holds %d and %d items, not the same", place, len(held[0]), len(held[1]))
		}
	}
}

func scan(t testing.TB, s *fakeaws.Server, table, index string) (all []item) {
	t.Helper()
	in := &dynamodb.ScanInput{TableName: &table}
	if index != "" {
		in.IndexName = &index
	}
	tables, _ := clients(s.Config())
	pages := dynamodb.NewScanPaginator(tables, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Items...)
	}
	return all
}

func n(text string) types.AttributeValue { return &types.AttributeValueMemberN{Value: text} }
func bin(b []byte) types.AttributeValue  { return &types.AttributeValueMemberB{Value: b} }

func strs(members ...string) types.AttributeValue {
	return &types.AttributeValueMemberSS{Value: members}
}

func nums(members ...string) types.AttributeValue {
	return &types.AttributeValueMemberNS{Value: members}
}

func bins(members ...[]byte) types.AttributeValue {
	return &types.AttributeValueMemberBS{Value: members}
}

func list(elements ...types.AttributeValue) types.AttributeValue {
	return &types.AttributeValueMemberL{Value: elements}
}
func tree(m item) types.AttributeValue { return &types.AttributeValueMemberM{Value: m} }

// nested is a value with so many lists and maps in turn inside one another, a list
// the innermost of an even number.
func nested(levels int) types.AttributeValue {
	v := n("1")
	for i := range levels {
		if i%2 == levels%2 {
			v = list(v)
		} else {
			v = tree(item{"k": v})
		}
	}
	return v
}

// with is an item of "table" with one attribute more.
func with(name string, v types.AttributeValue) item {
	return item{"pk": str("p"), "sk": str("s"), name: v}
}

func TestValuesAreTheSameBothWays(t *testing.T) {
	const most = "99999999999999999999999999999999999999" // 38 digits
	values := map[string]types.AttributeValue{
		"nothing": nil, "an unknown type": &types.UnknownUnionMember{Tag: "X"},
		"S empty": str(""), "S with zeros": str("\x00\u2028\u007f\ufffd"), "S not UTF-8": str("a\xff"), "S half a surrogate": str("\xed\xa0\x80"),
		"B nil": bin(nil), "B empty": bin([]byte{}), "B": bin([]byte{0, 255}), "BOOL": &types.AttributeValueMemberBOOL{Value: true}, "BOOL false": &types.AttributeValueMemberBOOL{},
		"NULL": &types.AttributeValueMemberNULL{Value: true}, "NULL false": &types.AttributeValueMemberNULL{},
		"SS nil": strs(), "SS": strs("b", "a"), "SS twice": strs("a", "a"), "SS empty member": strs("a", ""), "SS not UTF-8": strs("\xff"), "SS twice once written": strs("\xff", "\ufffd"),
		"NS": nums("2", "-1", "1e1"), "NS twice": nums("1", "2", "1.0"), "NS zeros": nums("0", "-0"), "NS no number": nums("1", "x"), "NS empty": &types.AttributeValueMemberNS{Value: []string{}},
		"BS": bins([]byte{2}, []byte{1, 0}), "BS nil member": bins([]byte{1}, nil), "BS empty member": bins([]byte{}), "BS twice": bins([]byte{1}, []byte{1}),
		"L nil": list(), "L empty": &types.AttributeValueMemberL{Value: []types.AttributeValue{}}, "L of nothing": list(nil), "L with nothing": list(str("a"), nil, str("b")),
		"M nil": tree(nil), "M empty": tree(item{}), "M of nothing": tree(item{"a": nil}), "M without a name": tree(item{"": str("a")}), "M not UTF-8": tree(item{"\xff": str("a")}),
		"31 levels": nested(31), "32 levels": nested(32), "33 levels": nested(33), "33 levels of lists": list(nested(32)),
	}
	for _, text := range []string{
		"", " 1", "1 ", "0", "-0", "+0", "00", "007", "+7", "1.", ".5", ".", "1.50", "0.0e5", "1e3", "1E+3", "10e-1", "1e", "e1", "1e1.5", "--1", "0x1", "1_0", "NaN", "Infinity", "١",
		most, "-" + most, most + "0", most + "1", most + ".5", "0." + most, "1" + strings.Repeat("0", 37), "1" + strings.Repeat("0", 40), strings.Repeat("0", 300) + "1", "1." + strings.Repeat("0", 300),
		"1e125", "9." + most[1:] + "e125", "1e126", "-1e126", "1e-130", "1e-131", "-1e-130", "1e999999999999999999999", "0e999999999999999999999", "1e-999999999999999999999",
	} {
		values["N "+text] = n(text)
	}
	w := newWays(t, [2]string{})
	table := aws.String("table")
	for name, v := range values {
		w.same(name+" put", &dynamodb.PutItemInput{TableName: table, Item: with("v", v), ReturnValues: "ALL_OLD", ReturnConsumedCapacity: "INDEXES"})
		w.same(name+" set", &dynamodb.UpdateItemInput{TableName: table, Key: with2(), UpdateExpression: aws.String("SET w = :v"), ExpressionAttributeValues: item{":v": v}, ReturnValues: "ALL_NEW"})
		w.same(name+" compared", &dynamodb.DeleteItemInput{TableName: table, Key: with2(), ConditionExpression: aws.String("v <> :v"), ExpressionAttributeValues: item{":v": v}, ReturnValuesOnConditionCheckFailure: "ALL_OLD"})
		w.same(name+" as a key", &dynamodb.GetItemInput{TableName: table, Key: item{"pk": str("p"), "sk": v}})
		w.same(name+" as a start", &dynamodb.QueryInput{TableName: table, KeyConditionExpression: aws.String("pk = :v"), ExpressionAttributeValues: item{":v": str("p")}, ExclusiveStartKey: item{"pk": str("p"), "sk": v}})
		w.same(name+" got", &dynamodb.GetItemInput{TableName: table, Key: with2()})
	}
	w.sameState()
}

func with2() item { return item{"pk": str("p"), "sk": str("s")} }

func TestRequestsAreTheSameBothWays(t *testing.T) {
	w := newWays(t, [2]string{})
	table, odd := aws.String("table"), aws.String("odd")
	large := str(strings.Repeat("x", 399<<10))
	huge := func(extra int) item {
		i := item{"pk": str("p"), "sk": str("huge")}
		i["x"] = str(strings.Repeat("x", 400<<10-len("pkpskhugex")+extra))
		return i
	}
	one := item{":one": n("1")}
	put := func(i item) types.TransactWriteItem {
		return types.TransactWriteItem{Put: &types.Put{TableName: table, Item: i}}
	}
	get := func(n int) types.TransactGetItem {
		return types.TransactGetItem{Get: &types.Get{TableName: table, Key: keyOf(n)}}
	}
	several := func(count int, i func(n int) item) (items []types.TransactWriteItem) {
		for n := range count {
			items = append(items, put(i(n)))
		}
		return items
	}
	reads := func(count int) (items []types.TransactGetItem) {
		for n := range count {
			items = append(items, get(n))
		}
		return items
	}
	keys := func(count int) (keys []item) {
		for n := range count {
			keys = append(keys, keyOf(n))
		}
		return keys
	}
	heavy := func(n int) item { i := keyOf(n); i["x"] = large; return i }
	batch := func(wanted types.KeysAndAttributes) *dynamodb.BatchGetItemInput {
		return &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{"table": wanted}, ReturnConsumedCapacity: "TOTAL"}
	}
	transact := func(items ...types.TransactWriteItem) *dynamodb.TransactWriteItemsInput {
		return &dynamodb.TransactWriteItemsInput{TransactItems: items, ReturnConsumedCapacity: "INDEXES"}
	}
	update := &types.Update{TableName: table, Key: keyOf(1), UpdateExpression: aws.String("ADD n :one"), ExpressionAttributeValues: one}
	for _, c := range []struct {
		name string
		in   any
	}{
		{"nothing at all", (*dynamodb.GetItemInput)(nil)},
		{"a transaction of nothing at all", (*dynamodb.TransactWriteItemsInput)(nil)},
		{"an empty input", &dynamodb.QueryInput{}},
		{"a key without a table", &dynamodb.GetItemInput{Key: keyOf(1)}},
		{"a table without a key", &dynamodb.GetItemInput{TableName: table}},
		{"an empty key", &dynamodb.GetItemInput{TableName: table, Key: item{}}},
		{"a table's name that is empty", &dynamodb.GetItemInput{TableName: aws.String(""), Key: keyOf(1)}},
		{"a table's name that is not UTF-8", &dynamodb.PutItemInput{TableName: aws.String("tab\xff"), Item: keyOf(1)}},
		{"an expression that is empty", &dynamodb.PutItemInput{TableName: table, Item: keyOf(1), ConditionExpression: aws.String("")}},
		{"an expression that is not UTF-8", &dynamodb.PutItemInput{TableName: table, Item: keyOf(1), ConditionExpression: aws.String("a\xff = a")}},
		{"a name that is not UTF-8", &dynamodb.PutItemInput{TableName: table, Item: item{"pk": str("p"), "sk": str("s"), "\xff": n("1")}, ReturnValues: "ALL_OLD"}},
		{"a name that is empty", &dynamodb.PutItemInput{TableName: table, Item: with("", n("1"))}},
		{"a name as long as can be", &dynamodb.PutItemInput{TableName: table, Item: with(strings.Repeat("n", 65535), n("1"))}},
		{"a name that is too long", &dynamodb.PutItemInput{TableName: table, Item: with(strings.Repeat("n", 65536), n("1"))}},
		{"a placeholder for a name that is not UTF-8", &dynamodb.UpdateItemInput{TableName: table, Key: keyOf(1), UpdateExpression: aws.String("SET #a = :one"), ExpressionAttributeNames: map[string]string{"#a": "a\xff"}, ExpressionAttributeValues: one, ReturnValues: "UPDATED_NEW"}},
		{"a placeholder that is not UTF-8", &dynamodb.UpdateItemInput{TableName: table, Key: keyOf(1), UpdateExpression: aws.String("SET #a = :one"), ExpressionAttributeNames: map[string]string{"#a\xff": "a"}, ExpressionAttributeValues: one}},
		{"a placeholder without a name", &dynamodb.UpdateItemInput{TableName: table, Key: keyOf(1), UpdateExpression: aws.String("SET #a = :one"), ExpressionAttributeNames: map[string]string{"#a": ""}, ExpressionAttributeValues: one}},
		{"placeholders that are empty", &dynamodb.GetItemInput{TableName: table, Key: keyOf(1), ExpressionAttributeNames: map[string]string{}}},
		{"placeholders without an expression", &dynamodb.DeleteItemInput{TableName: table, Key: keyOf(1), ExpressionAttributeValues: one}},
		{"an unknown enum", &dynamodb.PutItemInput{TableName: table, Item: keyOf(1), ReturnValues: "ALL"}},
		{"an enum that is not UTF-8", &dynamodb.PutItemInput{TableName: table, Item: keyOf(1), ReturnValues: "ALL\xff"}},
		{"a projection of what is not there", &dynamodb.GetItemInput{TableName: table, Key: with2(), ProjectionExpression: aws.String("absent")}},
		{"legacy names", &dynamodb.GetItemInput{TableName: table, Key: keyOf(1), AttributesToGet: []string{}}},
		{"legacy names in a batch", batch(types.KeysAndAttributes{Keys: keys(1), AttributesToGet: []string{"a"}})},
		{"a legacy condition", &dynamodb.PutItemInput{TableName: table, Item: keyOf(1), Expected: map[string]types.ExpectedAttributeValue{}}},
		{"a legacy operator", &dynamodb.DeleteItemInput{TableName: table, Key: keyOf(1), ConditionalOperator: "AND"}},
		{"a legacy update", &dynamodb.UpdateItemInput{TableName: table, Key: keyOf(1), AttributeUpdates: map[string]types.AttributeValueUpdate{"a": {Value: n("1")}}}},
		{"legacy key conditions", &dynamodb.QueryInput{TableName: table, KeyConditions: map[string]types.Condition{}}},
		{"a legacy filter", &dynamodb.QueryInput{TableName: table, QueryFilter: map[string]types.Condition{"a": {ComparisonOperator: "NULL"}}}},
		{"an item of 400 KB", &dynamodb.PutItemInput{TableName: table, Item: huge(0), ReturnConsumedCapacity: "TOTAL"}},
		{"an item of more", &dynamodb.PutItemInput{TableName: table, Item: huge(1), ReturnConsumedCapacity: "TOTAL"}},
		{"an item that outgrows it", &dynamodb.UpdateItemInput{TableName: table, Key: item{"pk": str("p"), "sk": str("huge")}, UpdateExpression: aws.String("SET y = :one"), ExpressionAttributeValues: one}},
		{"sizes of a local index", &dynamodb.PutItemInput{TableName: odd, Item: item{"pk": str("p"), "sk": n("1")}, ReturnItemCollectionMetrics: "SIZE"}},
		{"sizes without one", &dynamodb.PutItemInput{TableName: table, Item: keyOf(1), ReturnItemCollectionMetrics: "SIZE"}},
		{"units of every index", &dynamodb.PutItemInput{TableName: odd, Item: item{"pk": str("p"), "sk": n("1.0"), "lk": bin([]byte{1}), "g": str("g"), "gn": n("1")}, ReturnConsumedCapacity: "INDEXES"}},
		{"the same item by another number", &dynamodb.GetItemInput{TableName: odd, Key: item{"pk": str("p"), "sk": n("10e-1")}}},
		{"a transaction of nothing", transact()},
		{"a transaction of no items", &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{}}},
		{"a transaction of no action", transact(types.TransactWriteItem{})},
		{"a transaction of two actions at once", transact(types.TransactWriteItem{Update: update, Put: &types.Put{TableName: table, Item: keyOf(2)}})},
		{"a transaction with an empty action", transact(put(keyOf(2)), types.TransactWriteItem{Delete: &types.Delete{}})},
		{"a check without a condition", transact(types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{TableName: table, Key: keyOf(1)}})},
		{"an item twice", transact(put(keyOf(1)), put(keyOf(1)))},
		{"100 items", transact(several(100, keyOf)...)},
		{"101 items", transact(several(101, keyOf)...)},
		{"4 MB", transact(several(10, heavy)...)},
		{"more than 4 MB", transact(several(11, heavy)...)},
		{"an empty token", &dynamodb.TransactWriteItemsInput{TransactItems: several(1, keyOf), ClientRequestToken: aws.String("")}},
		{"a token that is too long", &dynamodb.TransactWriteItemsInput{TransactItems: several(1, keyOf), ClientRequestToken: aws.String(strings.Repeat("t", 37))}},
		{"a token that is not UTF-8", &dynamodb.TransactWriteItemsInput{TransactItems: several(1, keyOf), ClientRequestToken: aws.String("\xff")}},
		{"reads of nothing", &dynamodb.TransactGetItemsInput{}},
		{"reads of no items", &dynamodb.TransactGetItemsInput{TransactItems: []types.TransactGetItem{}}},
		{"a read that is empty", &dynamodb.TransactGetItemsInput{TransactItems: []types.TransactGetItem{get(1), {}}}},
		{"100 reads", &dynamodb.TransactGetItemsInput{TransactItems: reads(100), ReturnConsumedCapacity: "INDEXES"}},
		{"101 reads", &dynamodb.TransactGetItemsInput{TransactItems: reads(101)}},
		{"a read of no key", &dynamodb.TransactGetItemsInput{TransactItems: []types.TransactGetItem{get(1), {Get: &types.Get{TableName: table, Key: item{"pk": n("1")}}}}}},
		{"a batch of nothing", &dynamodb.BatchGetItemInput{}},
		{"a batch of no tables", &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{}}},
		{"a batch without keys", batch(types.KeysAndAttributes{})},
		{"a batch of no keys", batch(types.KeysAndAttributes{Keys: []item{}})},
		{"a batch with a key that is nil", batch(types.KeysAndAttributes{Keys: []item{keyOf(1), nil}})},
		{"a batch with a key twice", batch(types.KeysAndAttributes{Keys: []item{keyOf(1), keyOf(1)}})},
		{"a batch of 100", batch(types.KeysAndAttributes{Keys: keys(100), ConsistentRead: aws.Bool(true)})},
		{"a batch of 101", batch(types.KeysAndAttributes{Keys: keys(101)})},
		{"a batch of a table that is not UTF-8", &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{"\xff": {Keys: keys(1)}}}},
		{"a batch of two tables", &dynamodb.BatchGetItemInput{ReturnConsumedCapacity: "INDEXES", RequestItems: map[string]types.KeysAndAttributes{
			"table": {Keys: keys(3), ProjectionExpression: aws.String("#x"), ExpressionAttributeNames: map[string]string{"#x": "pk"}}, "odd": {Keys: []item{{"pk": str("p"), "sk": n("01")}, {"pk": str("absent"), "sk": n("1")}}}}}},
	} {
		if got := w.same(c.name, c.in); got.panics != "" {
			t.Errorf("%s panics: %s", c.name, got.panics)
		}
	}
	w.sameState()
	for from := range 5 { // 45 items of 399 KB, of which a batch holds 41
		w.same("large items", transact(several(9, func(n int) item { return heavy(from*9 + n) })...))
	}
	got := w.same("16 MB", batch(types.KeysAndAttributes{Keys: keys(45), ConsistentRead: aws.Bool(true), ProjectionExpression: aws.String("#x"), ExpressionAttributeNames: map[string]string{"#x": "x"}}))
	if o, ok := got.result.(dynamodb.BatchGetItemOutput); !ok || len(o.UnprocessedKeys["table"].Keys) != 4 {
		t.Errorf("a batch of more than 16 MB leaves %+v", o.UnprocessedKeys)
	}
}

func TestQueriesAreTheSameBothWays(t *testing.T) {
	w := newWays(t, [2]string{})
	table, odd := aws.String("table"), aws.String("odd")
	for i := range 6 {
		w.same("put", &dynamodb.PutItemInput{TableName: odd, Item: item{
			"pk": str("p"), "sk": num(i), "lk": bin([]byte{byte(9 - i)}), "g": str("g"), "gn": num(i / 2), "a": list(num(i), str("x")), "b": str(strings.Repeat("b", 300<<10))}})
	}
	page := func(change func(*dynamodb.QueryInput)) *dynamodb.QueryInput {
		in := &dynamodb.QueryInput{TableName: odd, KeyConditionExpression: aws.String("pk = :p"), ExpressionAttributeValues: item{":p": str("p")}, ReturnConsumedCapacity: "INDEXES", ProjectionExpression: aws.String("sk")}
		change(in)
		return in
	}
	by := func(index, condition string) *dynamodb.QueryInput {
		return page(func(in *dynamodb.QueryInput) {
			in.IndexName, in.KeyConditionExpression = &index, &condition
			if strings.HasPrefix(condition, "g ") {
				in.ExpressionAttributeValues = item{":p": str("g")}
			}
		})
	}
	for _, limit := range []int32{0, -1, 1, 5, 6, 7, math.MaxInt32, math.MinInt32} {
		w.same(fmt.Sprint("limit ", limit), page(func(in *dynamodb.QueryInput) { in.Limit = &limit }))
	}
	for _, s := range []types.Select{"", "ALL_ATTRIBUTES", "ALL_PROJECTED_ATTRIBUTES", "SPECIFIC_ATTRIBUTES", "COUNT", "OTHER"} {
		for _, projected := range []*string{nil, aws.String("a[0], pk"), aws.String("absent"), aws.String("b")} {
			for _, in := range []*dynamodb.QueryInput{page(func(*dynamodb.QueryInput) {}), by("local", "pk = :p"), by("some", "g = :p"), by("absent", "pk = :p")} {
				for _, consistent := range []*bool{nil, aws.Bool(false), aws.Bool(true)} {
					in.Select, in.ProjectionExpression, in.ConsistentRead = s, projected, consistent
					w.same(fmt.Sprint("select ", s), in)
				}
			}
		}
	}
	for name, start := range map[string]item{
		"empty": {}, "whole": {"pk": str("p"), "sk": n("3.0")}, "not there": {"pk": str("p"), "sk": n("2.5")}, "half": {"pk": str("p")}, "more": {"pk": str("p"), "sk": num(3), "a": num(1)},
		"elsewhere": {"pk": str("q"), "sk": num(3)}, "of another type": {"pk": str("p"), "sk": str("3")}, "of a global index": {"pk": str("p"), "sk": num(3), "g": str("g"), "gn": num(1)},
		"of a local index": {"pk": str("p"), "sk": num(3), "lk": bin([]byte{6})}, "with an empty binary": {"pk": str("p"), "sk": num(3), "lk": bin([]byte{})}, "nothing inside": {"pk": nil, "sk": num(3)},
	} {
		for _, in := range []*dynamodb.QueryInput{page(func(*dynamodb.QueryInput) {}), by("local", "pk = :p"), by("some", "g = :p")} {
			for _, forward := range []*bool{nil, aws.Bool(false)} {
				in.ExclusiveStartKey, in.ScanIndexForward = start, forward
				w.same("start "+name, in)
			}
		}
	}
	w.same("a page of 1 MB", page(func(in *dynamodb.QueryInput) { in.ProjectionExpression = nil }))
	w.same("a filter", page(func(in *dynamodb.QueryInput) {
		in.FilterExpression, in.ExpressionAttributeNames = aws.String("#a[0] > :one"), map[string]string{"#a": "a"}
		in.ExpressionAttributeValues[":one"] = num(1)
	}))

	// An index that lags shows both the same, before the lag and after.
	for _, server := range w.servers {
		defer server.Faults().LagIndex("table", "index", time.Minute).Remove()
	}
	w.same("put", &dynamodb.PutItemInput{TableName: table, Item: benchItem(1)})
	lagged := &dynamodb.QueryInput{TableName: table, IndexName: aws.String("index"), KeyConditionExpression: aws.String("gpk = :g"), ExpressionAttributeValues: item{":g": str("GROUP#1")}}
	for _, want := range []int32{0, 1} {
		got := w.same("a lagged index", lagged)
		if o, ok := got.result.(dynamodb.QueryOutput); !ok || o.Count != want {
			t.Errorf("a lagged index: %s, want %d items", shown(got), want)
		}
		w.now = w.now.Add(time.Hour)
	}
	w.sameState()
}

// Time to live takes away the same of both, and nothing else.
func TestWhatExpiresIsTheSameBothWays(t *testing.T) {
	w := newWays(t, [2]string{})
	table := aws.String("table")
	for _, server := range w.servers {
		tables, _ := clients(server.Config())
		_, err := tables.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{TableName: table,
			TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String("ttl"), Enabled: aws.Bool(true)}})
		if err != nil {
			t.Fatal(err)
		}
	}
	past, next := fmt.Sprint(w.now.Unix()-1), fmt.Sprint(w.now.Unix()+3600)
	for i, ttl := range []types.AttributeValue{n(past), n(past + ".50"), n("0" + past), n(past[:1] + "." + past[1:] + "e9"), str(past), n("1"), n("-1"), nums(past), n(next)} {
		entry := keyOf(i)
		entry["ttl"] = ttl
		w.same("put", &dynamodb.PutItemInput{TableName: table, Item: entry})
	}
	for range 2 {
		var gone [2]fakeaws.Collection
		for i, server := range w.servers {
			var err error
			if gone[i], err = server.Collect(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if gone[0] != gone[1] || gone[0].Items == 0 {
			t.Errorf("collected %+v and %+v", gone[0], gone[1])
		}
		w.sameState()
		w.now = w.now.Add(24 * time.Hour)
	}
}

// A value that is a nil pointer is the mistake of a program: the SDK panics. The
// server is as it was.
func TestANilValuePanicsBothWays(t *testing.T) {
	w := newWays(t, [2]string{})
	for _, v := range []types.AttributeValue{
		(*types.AttributeValueMemberS)(nil), (*types.AttributeValueMemberN)(nil), (*types.AttributeValueMemberB)(nil), (*types.AttributeValueMemberBOOL)(nil), (*types.AttributeValueMemberNULL)(nil),
		(*types.AttributeValueMemberSS)(nil), (*types.AttributeValueMemberNS)(nil), (*types.AttributeValueMemberBS)(nil), (*types.AttributeValueMemberL)(nil), (*types.AttributeValueMemberM)(nil),
	} {
		if got := w.same(fmt.Sprintf("%T", v), &dynamodb.PutItemInput{TableName: aws.String("table"), Item: with("v", v)}); got.panics == "" {
			t.Errorf("%T: %s", v, shown(got))
		}
	}
	for _, server := range w.servers {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}
}

// One server, both ways: a transaction is known again by its token whichever way it
// comes, and each way reads what the other wrote.
func TestATransactionIsKnownAgainByTheOtherWay(t *testing.T) {
	w := newWays(t, [2]string{})
	w.servers[1], w.clients[1] = w.servers[0], w.clients[0]
	for first := range w.servers {
		request := func(count string) *dynamodb.TransactWriteItemsInput {
			return &dynamodb.TransactWriteItemsInput{
				ClientRequestToken: aws.String(fmt.Sprint("token", first)), ReturnConsumedCapacity: "TOTAL",
				TransactItems: []types.TransactWriteItem{
					{Update: &types.Update{TableName: aws.String("table"), Key: keyOf(first), UpdateExpression: aws.String("ADD #n :count"), ExpressionAttributeNames: map[string]string{"#n": "n"}, ExpressionAttributeValues: item{":count": n(count)}}},
					{Put: &types.Put{TableName: aws.String("odd"), Item: item{"pk": num2(first), "sk": n("1.0"), "v": tree(item{"b": strs("b", "a"), "a": nested(31)})}}},
				},
			}
		}
		if got := w.askOne(first, request("1")); got.code != "" {
			t.Fatal(shown(got))
		}
		for _, again := range []string{"1", "01", "1e0"} { // the same number
			got := w.askOne(1-first, request(again))
			o, ok := got.result.(dynamodb.TransactWriteItemsOutput)
			if !ok || o.ConsumedCapacity[0].ReadCapacityUnits == nil {
				t.Errorf("sent again as %q: %s", again, shown(got))
			}
		}
		if got := w.askOne(1-first, request("2")); got.code != "IdempotentParameterMismatchException" {
			t.Errorf("another transaction by the same token: %s", shown(got))
		}
		read := &dynamodb.GetItemInput{TableName: aws.String("table"), Key: keyOf(first)}
		if got := w.ask(read); !reflect.DeepEqual(got[0], got[1]) || !reflect.DeepEqual(got[0].result.(dynamodb.GetItemOutput).Item["n"], n("1")) {
			t.Errorf("read directly %s, by wire %s", shown(got[0]), shown(got[1]))
		}
	}
}

func num2(n int) types.AttributeValue { return str(fmt.Sprint("p", n)) }

// What a caller does to its input afterwards, or to what it was given, changes
// nothing that the server holds or gives to another.
func TestNothingIsShared(t *testing.T) {
	w := newWays(t, [2]string{})
	table := aws.String("table")
	fresh := func() item {
		return item{"pk": str("p"), "sk": str("s"), "b": bin([]byte("abc")), "ss": strs("a", "b"), "ns": nums("1", "2"), "bs": bins([]byte("ab"), []byte("c")),
			"l": list(str("a"), bin([]byte("abc")), list(strs("x"))), "m": tree(item{"b": bin([]byte("abc")), "l": list(n("1")), "m": tree(item{"ss": strs("x")})})}
	}
	answers := []struct {
		name string
		in   func(values item) any
		item func(result any) item
	}{
		{"get", func(item) any { return &dynamodb.GetItemInput{TableName: table, Key: with2()} },
			func(r any) item { return r.(dynamodb.GetItemOutput).Item }},
		{"batch", func(item) any {
			return &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{"table": {Keys: []item{with2()}}}}
		}, func(r any) item { return r.(dynamodb.BatchGetItemOutput).Responses["table"][0] }},
		{"transaction", func(item) any {
			return &dynamodb.TransactGetItemsInput{TransactItems: []types.TransactGetItem{{Get: &types.Get{TableName: table, Key: with2()}}}}
		}, func(r any) item { return r.(dynamodb.TransactGetItemsOutput).Responses[0].Item }},
		{"query", func(item) any {
			return &dynamodb.QueryInput{TableName: table, KeyConditionExpression: aws.String("pk = :p"), ExpressionAttributeValues: item{":p": str("p")}}
		}, func(r any) item { return r.(dynamodb.QueryOutput).Items[0] }},
		{"put", func(values item) any {
			return &dynamodb.PutItemInput{TableName: table, Item: values, ReturnValues: "ALL_OLD"}
		}, func(r any) item { return r.(dynamodb.PutItemOutput).Attributes }},
		{"update", func(values item) any {
			return &dynamodb.UpdateItemInput{TableName: table, Key: with2(), UpdateExpression: aws.String("SET l = :l, m = :m, bs = :bs"), ReturnValues: "ALL_NEW",
				ExpressionAttributeValues: item{":l": values["l"], ":m": values["m"], ":bs": values["bs"]}}
		}, func(r any) item { return r.(dynamodb.UpdateItemOutput).Attributes }},
	}
	stored := fresh()
	w.same("put", &dynamodb.PutItemInput{TableName: table, Item: stored})
	spoil(tree(stored))
	for _, a := range answers {
		for range 2 {
			values := fresh()
			got := a.item(w.askOne(0, a.in(values)).result)
			if !reflect.DeepEqual(got, fresh()) {
				t.Fatalf("%s: got %s", a.name, shown(got))
			}
			if !reflect.DeepEqual(values, fresh()) {
				t.Fatalf("%s: the input became %s", a.name, shown(values))
			}
			spoil(tree(values))
			spoil(tree(got))
		}
	}
}

// spoil overwrites everything inside a value.
func spoil(v types.AttributeValue) {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		v.Value = "spoilt"
	case *types.AttributeValueMemberN:
		v.Value = "0"
	case *types.AttributeValueMemberB:
		clear(v.Value)
	case *types.AttributeValueMemberSS:
		clear(v.Value)
	case *types.AttributeValueMemberNS:
		clear(v.Value)
	case *types.AttributeValueMemberBS:
		for _, m := range v.Value {
			clear(m)
		}
		clear(v.Value)
	case *types.AttributeValueMemberL:
		for _, e := range v.Value {
			spoil(e)
		}
		clear(v.Value)
	case *types.AttributeValueMemberM:
		for _, e := range v.Value {
			spoil(e)
		}
		clear(v.Value)
	}
}

// Callers that share one input, and one item, do not meet in it.
func TestRequestsAtOnceShareTheirInput(t *testing.T) {
	w := newWays(t, [2]string{})
	table := aws.String("table")
	value := tree(item{"ss": strs("b", "a"), "l": list(n("1.0"), bin([]byte("b")))})
	put := &dynamodb.PutItemInput{TableName: table, Item: with("m", value), ReturnValues: "ALL_OLD"}
	add := &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{{Update: &types.Update{TableName: table, Key: keyOf(1),
		UpdateExpression: aws.String("SET m = :m ADD #n :one"), ExpressionAttributeNames: map[string]string{"#n": "n"}, ExpressionAttributeValues: item{":m": value, ":one": n("1")}}}}}
	get := &dynamodb.GetItemInput{TableName: table, Key: with2()}
	const callers, rounds = 4, 25
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for range rounds {
				for _, in := range []any{put, add, get} {
					result, err := send(context.Background(), w.clients[0], in, func(*dynamodb.Options) {})
					if err != nil {
						t.Error(err)
					}
					if o, ok := result.(*dynamodb.GetItemOutput); ok && caller == 0 {
						spoil(tree(o.Item))
					}
				}
			}
		})
	}
	wg.Wait()
	got := w.askOne(0, &dynamodb.GetItemInput{TableName: table, Key: keyOf(1), ProjectionExpression: aws.String("n")})
	if o := got.result.(dynamodb.GetItemOutput); !reflect.DeepEqual(o.Item, item{"n": num(callers * rounds)}) {
		t.Errorf("%d additions came to %s", callers*rounds, shown(got))
	}
}

// A member that the SDK adds must be handed over, or make the request go over the
// wire: whoever updates the SDK looks at dynamo/direct.go for each one.
func TestEveryMemberOfARequestIsKnown(t *testing.T) {
	const write = "ConditionExpression ExpressionAttributeNames ExpressionAttributeValues ReturnValuesOnConditionCheckFailure TableName "
	const single = write + "ConditionalOperator Expected ReturnConsumedCapacity ReturnItemCollectionMetrics ReturnValues "
	for _, known := range []struct {
		of      any
		members string
	}{
		{dynamodb.GetItemInput{}, "AttributesToGet ConsistentRead ExpressionAttributeNames Key ProjectionExpression ReturnConsumedCapacity TableName"},
		{dynamodb.BatchGetItemInput{}, "RequestItems ReturnConsumedCapacity"},
		{dynamodb.TransactGetItemsInput{}, "ReturnConsumedCapacity TransactItems"},
		{dynamodb.QueryInput{}, "AttributesToGet ConditionalOperator ConsistentRead ExclusiveStartKey ExpressionAttributeNames ExpressionAttributeValues FilterExpression IndexName KeyConditionExpression KeyConditions Limit ProjectionExpression QueryFilter ReturnConsumedCapacity ScanIndexForward Select TableName"},
		{dynamodb.PutItemInput{}, single + "Item"},
		{dynamodb.UpdateItemInput{}, single + "AttributeUpdates Key UpdateExpression"},
		{dynamodb.DeleteItemInput{}, single + "Key"},
		{dynamodb.TransactWriteItemsInput{}, "ClientRequestToken ReturnConsumedCapacity ReturnItemCollectionMetrics TransactItems"},
		{types.KeysAndAttributes{}, "AttributesToGet ConsistentRead ExpressionAttributeNames Keys ProjectionExpression"},
		{types.TransactGetItem{}, "Get"},
		{types.Get{}, "ExpressionAttributeNames Key ProjectionExpression TableName"},
		{types.TransactWriteItem{}, "ConditionCheck Delete Put Update"},
		{types.Put{}, write + "Item"},
		{types.Update{}, write + "Key UpdateExpression"},
		{types.Delete{}, write + "Key"},
		{types.ConditionCheck{}, write + "Key"},
	} {
		of := reflect.TypeOf(known.of)
		var members []string
		for i := range of.NumField() {
			if of.Field(i).IsExported() {
				members = append(members, of.Field(i).Name)
			}
		}
		want := strings.Fields(known.members)
		slices.Sort(want)
		slices.Sort(members)
		if !slices.Equal(members, want) {
			t.Errorf("%s has the members %q, known are %q", of, members, want)
		}
	}
}
