package fakeaws_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Random requests of every operation are answered the same directly and in their wire
// form, and leave the same behind.
func TestRandomRequestsAreTheSameBothWays(t *testing.T) {
	const seed, requests = 1, 3000
	w := newWays(t, [2]string{})
	r := &requester{Rand: rand.New(rand.NewPCG(seed, 0))}
	answered := map[string]int{}
	for i := range requests {
		in := r.request()
		got := w.same(fmt.Sprintf("seed %d, request %d", seed, i), in)
		if got.panics != "" {
			t.Errorf("request %d panics: %s", i, got.panics)
		}
		if q, ok := got.result.(dynamodb.QueryOutput); ok {
			r.last = q.LastEvaluatedKey
		}
		if t.Failed() {
			break
		}
		if got.code == "" {
			answered[fmt.Sprintf("%T", in)]++
		}
	}
	w.sameState()
	// The generator is worth nothing where it makes what is refused alone, or what
	// goes over the wire anyhow.
	if w.direct < requests/4 || len(answered) != 9 {
		t.Errorf("%d of %d requests succeeded directly: %v", w.direct, requests, answered)
	}
}

// What random requests leave on the disk is the same too.
func TestRandomRequestsLeaveTheSameOnTheDisk(t *testing.T) {
	dirs := [2]string{t.TempDir(), t.TempDir()}
	w := newWays(t, dirs)
	r := &requester{Rand: rand.New(rand.NewPCG(2, 0))}
	for i := range 60 {
		w.same(fmt.Sprint("request ", i), r.write())
	}
	token := aws.String("kept")
	again := func() any {
		return &dynamodb.TransactWriteItemsInput{ClientRequestToken: token, ReturnConsumedCapacity: "TOTAL", TransactItems: []types.TransactWriteItem{{Put: &types.Put{TableName: aws.String("table"), Item: keyOf(1)}}}}
	}
	w.same("a transaction", again())
	for _, server := range w.servers {
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
	}
	w = newWays(t, [2]string{dirs[1], dirs[0]}) // each way goes on from where the other ended
	w.sameState()
	got := w.same("the transaction again", again())
	if o, ok := got.result.(dynamodb.TransactWriteItemsOutput); !ok || o.ConsumedCapacity[0].ReadCapacityUnits == nil {
		t.Errorf("the transaction again: %s", shown(got))
	}
	for _, server := range w.servers {
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A requester makes requests out of odd parts. Of what is refused it puts one into a
// request: which of two is refused first is up to the order of a map.
type requester struct {
	*rand.Rand

	refused bool // the one is in the request
	odd     bool // the table whose sort key is a number
	last    item // where the last page ended
}

func one[T any](r *requester, of ...T) T { return of[r.IntN(len(of))] }

// bad is rarely true, and once a request.
func (r *requester) bad() bool {
	if r.refused || r.IntN(150) > 0 {
		return false
	}
	r.refused = true
	return true
}

func (r *requester) request() any {
	switch r.refused = false; r.IntN(10) {
	case 0:
		return &dynamodb.GetItemInput{
			TableName: r.table(), Key: r.key(), ConsistentRead: r.truth(), ReturnConsumedCapacity: r.capacity(),
			AttributesToGet: legacy(r, []string{"a"}),
		}
	case 1:
		in := &dynamodb.GetItemInput{TableName: r.table(), Key: r.key(), ReturnConsumedCapacity: r.capacity()}
		in.ProjectionExpression, in.ExpressionAttributeNames, _ = r.expressions(r.projection())
		return in
	case 2:
		return r.batchGet()
	case 3:
		in := &dynamodb.TransactGetItemsInput{ReturnConsumedCapacity: r.capacity()}
		for range r.IntN(4) {
			g := &types.Get{TableName: r.table(), Key: r.key()}
			if r.IntN(2) == 0 {
				g.ProjectionExpression, g.ExpressionAttributeNames, _ = r.expressions(r.projection())
			}
			if r.bad() {
				g = nil
			}
			in.TransactItems = append(in.TransactItems, types.TransactGetItem{Get: g})
		}
		return in
	case 4, 5:
		return r.query()
	}
	return r.write()
}

func (r *requester) write() any {
	r.refused = false
	switch r.IntN(7) {
	case 0, 1:
		in := &dynamodb.PutItemInput{
			TableName: r.table(), Item: r.item(), ReturnValues: one(r, types.ReturnValue(""), "ALL_OLD", "ALL_OLD", "NONE", "ALL_NEW"), ReturnConsumedCapacity: r.capacity(),
			ReturnItemCollectionMetrics: r.metrics(), ReturnValuesOnConditionCheckFailure: r.onFailure(), ConditionalOperator: one(r, r.operator(), ""),
			Expected: legacy(r, map[string]types.ExpectedAttributeValue{}),
		}
		in.ConditionExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues = r.expressions(one(r, "", r.condition()))
		return in
	case 2, 3:
		in := &dynamodb.UpdateItemInput{
			TableName: r.table(), Key: r.key(), ReturnValues: one(r, types.ReturnValue(""), "ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW", "NONE"), ReturnConsumedCapacity: r.capacity(),
			ReturnItemCollectionMetrics: r.metrics(), ReturnValuesOnConditionCheckFailure: r.onFailure(), ConditionalOperator: r.operator(),
			AttributeUpdates: legacy(r, map[string]types.AttributeValueUpdate{}), Expected: legacy(r, map[string]types.ExpectedAttributeValue{}),
		}
		in.UpdateExpression, in.ConditionExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues = r.two(r.update(), one(r, "", r.condition()))
		return in
	case 4:
		in := &dynamodb.DeleteItemInput{
			TableName: r.table(), Key: r.key(), ReturnValues: one(r, types.ReturnValue(""), "ALL_OLD", "UPDATED_OLD"), ReturnConsumedCapacity: r.capacity(),
			ReturnItemCollectionMetrics: r.metrics(), ReturnValuesOnConditionCheckFailure: r.onFailure(), Expected: legacy(r, map[string]types.ExpectedAttributeValue{}),
		}
		in.ConditionExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues = r.expressions(one(r, "", r.condition()))
		return in
	case 5:
		in := &dynamodb.BatchWriteItemInput{ReturnConsumedCapacity: r.capacity(), RequestItems: map[string][]types.WriteRequest{}}
		table := aws.ToString(r.table())
		for range r.IntN(4) {
			in.RequestItems[table] = append(in.RequestItems[table], one(r, types.WriteRequest{PutRequest: &types.PutRequest{Item: r.item()}}, types.WriteRequest{DeleteRequest: &types.DeleteRequest{Key: r.key()}}))
		}
		return in
	}
	return r.transaction()
}

func (r *requester) transaction() any {
	in := &dynamodb.TransactWriteItemsInput{ReturnConsumedCapacity: r.capacity(), ReturnItemCollectionMetrics: r.metrics()}
	if r.IntN(2) == 0 {
		in.ClientRequestToken = aws.String(fmt.Sprint("token", r.IntN(400)))
	}
	for range one(r, 0, 1, 1, 1, 2, 2, 3) {
		in.TransactItems = append(in.TransactItems, r.action())
	}
	return in
}

func (r *requester) action() (a types.TransactWriteItem) {
	table, onFailure := r.table(), r.onFailure()
	switch r.IntN(4) {
	case 0:
		a.Put = &types.Put{TableName: table, Item: r.item(), ReturnValuesOnConditionCheckFailure: onFailure}
		a.Put.ConditionExpression, a.Put.ExpressionAttributeNames, a.Put.ExpressionAttributeValues = r.expressions(one(r, "", r.condition()))
	case 1:
		a.Update = &types.Update{TableName: table, Key: r.key(), ReturnValuesOnConditionCheckFailure: onFailure}
		a.Update.UpdateExpression, a.Update.ConditionExpression, a.Update.ExpressionAttributeNames, a.Update.ExpressionAttributeValues = r.two(r.update(), one(r, "", r.condition()))
	case 2:
		a.Delete = &types.Delete{TableName: table, Key: r.key(), ReturnValuesOnConditionCheckFailure: onFailure}
		a.Delete.ConditionExpression, a.Delete.ExpressionAttributeNames, a.Delete.ExpressionAttributeValues = r.expressions(one(r, "", r.condition()))
	default:
		a.ConditionCheck = &types.ConditionCheck{TableName: table, Key: r.key(), ReturnValuesOnConditionCheckFailure: onFailure}
		a.ConditionCheck.ConditionExpression, a.ConditionCheck.ExpressionAttributeNames, a.ConditionCheck.ExpressionAttributeValues = r.expressions(one(r, "attribute_not_exists(#absent)", r.condition()))
	}
	if r.bad() {
		a = one(r, types.TransactWriteItem{}, types.TransactWriteItem{Put: &types.Put{}}, types.TransactWriteItem{Put: &types.Put{TableName: table}, Delete: &types.Delete{TableName: table}})
	}
	return a
}

func (r *requester) batchGet() any {
	in := &dynamodb.BatchGetItemInput{ReturnConsumedCapacity: r.capacity()}
	wanted := types.KeysAndAttributes{ConsistentRead: r.truth(), AttributesToGet: legacy(r, []string{"a"})}
	for range r.IntN(5) {
		wanted.Keys = append(wanted.Keys, r.key())
	}
	if r.IntN(2) == 0 {
		wanted.ProjectionExpression, wanted.ExpressionAttributeNames, _ = r.expressions(r.projection())
	}
	in.RequestItems = map[string]types.KeysAndAttributes{aws.ToString(r.table()): wanted}
	if r.IntN(3) == 0 { // nothing in it is refused
		in.RequestItems = map[string]types.KeysAndAttributes{"table": {Keys: []item{{"pk": str("p0"), "sk": str("s")}}}, "odd": {Keys: []item{{"pk": str("p1"), "sk": n("1.0")}, {"pk": str("p2"), "sk": n("02")}}}}
	}
	return in
}

func (r *requester) query() any {
	in := &dynamodb.QueryInput{
		TableName: r.table(), ConsistentRead: r.truth(), ScanIndexForward: r.truth(), ReturnConsumedCapacity: r.capacity(),
		Select: one(r, types.Select(""), "", "", "", "", "COUNT", "COUNT", "ALL_ATTRIBUTES", "ALL_PROJECTED_ATTRIBUTES", "SPECIFIC_ATTRIBUTES"),
		Limit:  one(r, nil, nil, aws.Int32(1), aws.Int32(2), aws.Int32(7), aws.Int32(math.MaxInt32)), ConditionalOperator: r.operator(),
		AttributesToGet: legacy(r, []string{}), KeyConditions: legacy(r, map[string]types.Condition{}), QueryFilter: legacy(r, map[string]types.Condition{}),
	}
	if r.bad() {
		in.Limit = one(r, aws.Int32(0), aws.Int32(-1))
	}
	condition := one(r, "pk = :P", "pk = :P", "pk = :P AND sk > :S", "pk = :P AND sk BETWEEN :S AND :T", "#pk = :P AND begins_with(sk, :S)", "sk = :S", "")
	if r.IntN(2) == 0 {
		index := "index"
		if condition = one(r, "gpk = :P AND gsk < :T", "gpk = :P"); r.odd {
			index = one(r, "local", "some")
			condition = map[string]string{"local": "pk = :P AND lk > :B", "some": "g = :P AND gn < :T"}[index]
		}
		if r.bad() {
			index = one(r, "", "absent", "\xff")
		}
		in.IndexName = &index
	}
	in.ExclusiveStartKey = one(r, nil, nil, nil, r.key(), r.last)
	in.KeyConditionExpression, in.FilterExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues = r.two(condition, one(r, "", "", r.condition()))
	if r.IntN(4) == 0 {
		in.ProjectionExpression = aws.String(one(r, "a", "pk, sk, l[0]", "m.a, m.l", "absent", "a, a"))
	}
	return in
}

func (r *requester) table() *string {
	if r.bad() {
		return one(r, nil, aws.String(""), aws.String("\xff"), aws.String("absent"), aws.String("x!"))
	}
	r.odd = r.IntN(3) > 0
	if r.odd {
		return aws.String("odd")
	}
	return aws.String("table")
}

func (r *requester) truth() *bool { return one(r, nil, aws.Bool(false), aws.Bool(true)) }

func (r *requester) capacity() types.ReturnConsumedCapacity {
	if r.bad() {
		return one(r, types.ReturnConsumedCapacity("total"), "\xff")
	}
	return one(r, types.ReturnConsumedCapacity(""), "NONE", "TOTAL", "INDEXES")
}

func (r *requester) metrics() types.ReturnItemCollectionMetrics {
	if r.bad() {
		return one(r, types.ReturnItemCollectionMetrics("x"), "SIZE", "\xff")
	}
	return one(r, types.ReturnItemCollectionMetrics(""), "NONE")
}

func (r *requester) onFailure() types.ReturnValuesOnConditionCheckFailure {
	return one(r, types.ReturnValuesOnConditionCheckFailure(""), "ALL_OLD", "ALL_OLD", "NONE")
}

func (r *requester) operator() types.ConditionalOperator {
	if r.bad() {
		return "AND"
	}
	return ""
}

// legacy is a legacy parameter, which is rarely there.
func legacy[T any](r *requester, v T) (none T) {
	if r.bad() {
		return v
	}
	return none
}

func (r *requester) partition() types.AttributeValue { return str(fmt.Sprint("p", r.IntN(3))) }

// sort is one of few sort keys, as a number in many forms.
func (r *requester) sort() types.AttributeValue {
	if r.odd == (r.IntN(50) > 0) {
		return n(one(r, "1", "1.0", "01", "2", "20e-1", "-0"))
	}
	return str(one(r, "s", "t"))
}

func (r *requester) key() item {
	key := item{"pk": r.partition(), "sk": r.sort()}
	if r.bad() {
		return one(r, nil, item{}, item{"pk": r.partition()}, item{"pk": nil, "sk": r.sort()}, item{"pk": str("p"), "\xff": r.sort()}, item{"pk": str("\xff"), "sk": str("s")}, item{"pk": r.partition(), "sk": r.sort(), "a": n("1")}, item{"pk": str(""), "sk": r.sort()})
	}
	return key
}

func (r *requester) item() item {
	i := item{"pk": r.partition(), "sk": r.sort()}
	for range r.IntN(6) {
		i[r.name()] = r.value(3)
	}
	if r.IntN(2) == 0 {
		i["g"], i["gn"], i["lk"] = r.partition(), n(one(r, "1.50", "0")), bin([]byte{0, 1})
		i["gpk"], i["gsk"] = r.partition(), str("s")
	}
	if r.bad() {
		i[one(r, "", "\xff", strings.Repeat("n", 65536))] = n("1")
	}
	return i
}

// name is that of an attribute.
func (r *requester) name() string {
	return one(r, "a", "b", "n", "l", "m", "ss", "é", "a b", "a.b", "\u2028", "\x00", "#", "\"", strings.Repeat("long", 100))
}

func (r *requester) value(depth int) types.AttributeValue {
	if r.bad() {
		return one[types.AttributeValue](r, nil, str("\xff"), n("1e126"), n(""), n("x"), bin(nil), &types.AttributeValueMemberNULL{}, strs(), strs("a", "a"), nums("1", "1.0"), bins([]byte{}), strs("\xff", "\xfe"), nested(33), list(nil, n("1")), tree(item{"": n("1")}))
	}
	switch k := r.IntN(14); {
	case k < 3:
		return str(one(r, "", "a", "b", "\x00\x1f\x7f", "\u2028\u2029\ufffd", "é😀", "\"\\/\b\n\t", strings.Repeat("x", 1+r.IntN(5000))))
	case k < 6:
		return n(one(r, "0", "-0", "+1", "007", "1.50", ".5", "1.", "1e3", "12E-1", "-1e-130", "1e125", "99999999999999999999999999999999999999", "0.00000000000000000000000000000000000001", fmt.Sprint(r.Int64()), fmt.Sprint(r.NormFloat64())))
	case k == 6:
		return bin(one(r, []byte{}, []byte{0}, []byte("abc"), []byte{0xff, 0xfe}))
	case k == 7:
		return &types.AttributeValueMemberBOOL{Value: r.IntN(2) == 0}
	case k == 8:
		return &types.AttributeValueMemberNULL{Value: true}
	case k == 9:
		return one(r, strs("b", "a"), strs("a"), nums("2", "1e0", "-3.50"), nums("0.0"), bins([]byte("b"), []byte("ab")), strs("\u2028", "é"))
	case k < 12 && depth > 0:
		l := list()
		for range r.IntN(4) {
			l.(*types.AttributeValueMemberL).Value = append(l.(*types.AttributeValueMemberL).Value, r.value(depth-1))
		}
		return l
	case depth > 0:
		m := item{}
		for range r.IntN(4) {
			m[r.name()] = r.value(depth - 1)
		}
		return tree(m)
	}
	return nested(r.IntN(30))
}

func (r *requester) condition() string {
	return one(r, "", "", "attribute_exists(pk)", "attribute_not_exists(pk)", "attribute_not_exists(#a)", "#a = :v", "#a <> :v OR size(#b) > :N", "#a IN (:v, :w)", "contains(#a, :v)", "a <= :N", "NOT #a.#b = :v", "attribute_type(#a, :L)", "#a = = :v")
}

func (r *requester) update() string {
	return one(r, "", "SET #a = :v", "SET l = :l, ss = :v, m = :w", "SET #a = :v, #b = :w", "SET #a = if_not_exists(#b, :N) + :N", "SET n = n - :N", "ADD #a :v", "ADD n :N", "ADD ss :v", "DELETE ss :v", "REMOVE #a", "REMOVE l[0]", "SET l[1] = :v", "SET m.#a = :v", "SET l = list_append(:l, l)", "SET sk = :S", "SET gn = :v", "SET #a")
}

func (r *requester) projection() string {
	return one(r, "#a", "#a, #b", "pk", "m.#a, l[0], l[2]", "m.#a.#b", "absent", "pk, pk", "l[0][1]")
}

var placeholder = regexp.MustCompile(`[#:]\w+`)

// expressions is one expression with the placeholders that it needs.
func (r *requester) expressions(text string) (*string, map[string]string, item) {
	first, _, names, values := r.two(text, "")
	return first, names, values
}

// two are two expressions, of which an empty one is absent, with their placeholders.
func (r *requester) two(text, other string) (first, second *string, names map[string]string, values item) {
	need := placeholder.FindAllString(text+" "+other, -1)
	if r.bad() {
		need = append(need, one(r, ":unused", "#unused", "#", ":bad-mark", "#\xff"))
	} else if len(need) > 0 && r.bad() {
		need = need[1:]
	}
	for _, key := range need {
		if names == nil && key[0] == '#' {
			names = map[string]string{}
		}
		if values == nil && key[0] == ':' {
			values = item{}
		}
		switch {
		case key == "#pk":
			names[key] = "pk"
		case key[0] == '#':
			names[key] = r.name()
			if r.bad() {
				names[key] = one(r, "", "\xff")
			}
		default:
			values[key] = r.operand(key)
		}
	}
	if r.bad() {
		names = map[string]string{}
	}
	for i, t := range []string{text, other} {
		if t != "" {
			*[]**string{&first, &second}[i] = &t
		}
	}
	return first, second, names, values
}

// operand is a value of the type that a placeholder's name stands for, most often.
func (r *requester) operand(key string) types.AttributeValue {
	if r.IntN(30) == 0 {
		return r.value(1)
	}
	switch key {
	case ":P":
		return r.partition()
	case ":S":
		return r.sort()
	case ":T":
		return one(r, str("z"), n("1e9"))
	case ":B":
		return bin([]byte{0})
	case ":N":
		return n(one(r, "1", "2.50", "1e1"))
	case ":L":
		return str(one(r, "S", "N", "L"))
	case ":l":
		return list(r.value(1))
	}
	return r.value(2)
}
