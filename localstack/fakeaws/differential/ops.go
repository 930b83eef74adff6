package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"sort"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

type attrs = map[string]types.AttributeValue

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func num(s string) types.AttributeValue { return &types.AttributeValueMemberN{Value: s} }

func tableInput(name string) *dynamodb.CreateTableInput {
	def := func(n string, t types.ScalarAttributeType) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: aws.String(n), AttributeType: t}
	}
	schema := func(hash, rng string) []types.KeySchemaElement {
		return []types.KeySchemaElement{{AttributeName: aws.String(hash), KeyType: types.KeyTypeHash}, {AttributeName: aws.String(rng), KeyType: types.KeyTypeRange}}
	}
	all := &types.Projection{ProjectionType: types.ProjectionTypeAll}
	return &dynamodb.CreateTableInput{
		TableName:   &name,
		BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			def("pk", "S"), def("sk", "S"), def("gh", "S"), def("gr", "N"), def("lr", "S"),
		},
		KeySchema:              schema("pk", "sk"),
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{{IndexName: aws.String("global"), KeySchema: schema("gh", "gr"), Projection: all}},
		LocalSecondaryIndexes:  []types.LocalSecondaryIndex{{IndexName: aws.String("local"), KeySchema: schema("pk", "lr"), Projection: all}},
	}
}

func keyOf(it attrs) attrs { return attrs{"pk": it["pk"], "sk": it["sk"]} }

// An op is one request that can be sent to either side.
type op struct {
	kind   string
	writes bool // the tables' contents are compared after it
	input  any
	send   func(ctx context.Context, c *dynamodb.Client) outcome
}

func (o op) text() string {
	b, err := json.Marshal(o.input)
	if err != nil {
		return fmt.Sprintf("%+v", o.input)
	}
	return string(b)
}

// An outcome is an answer made comparable: an error code, or the data. err is set
// when no answer came at all, or one that is not of the protocol.
type outcome struct {
	text    string
	code    string
	message string
	err     error
}

func failed(err error) outcome {
	var ae smithy.APIError
	if !errors.As(err, &ae) {
		return outcome{text: "no answer of the protocol", err: err}
	}
	o := outcome{code: ae.ErrorCode(), message: ae.ErrorMessage()}
	o.text = "error " + o.code
	var cancelled *types.TransactionCanceledException
	if errors.As(err, &cancelled) {
		for _, r := range cancelled.CancellationReasons {
			o.text += " " + aws.ToString(r.Code) + canonical(r.Item)
		}
	}
	var check *types.ConditionalCheckFailedException
	if errors.As(err, &check) {
		o.text += " " + canonical(check.Item)
	}
	return o
}

// canonical renders an item so that equal items give equal text: sorted names and
// set members, numbers as exact fractions.
func canonical(it attrs) string {
	if len(it) == 0 {
		return "{}"
	}
	var b strings.Builder
	b.WriteByte('{')
	names := make([]string, 0, len(it))
	for n := range it {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, n := range names {
		fmt.Fprintf(&b, "%s:%s ", n, canonicalValue(it[n]))
	}
	b.WriteByte('}')
	return b.String()
}

func canonicalNumber(s string) string {
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return "?" + s
	}
	return r.RatString()
}

func canonicalValue(v types.AttributeValue) string {
	switch x := v.(type) {
	case *types.AttributeValueMemberS:
		return fmt.Sprintf("%q", x.Value)
	case *types.AttributeValueMemberN:
		return "N" + canonicalNumber(x.Value)
	case *types.AttributeValueMemberB:
		return fmt.Sprintf("B%x", x.Value)
	case *types.AttributeValueMemberBOOL:
		return fmt.Sprint(x.Value)
	case *types.AttributeValueMemberNULL:
		return "null"
	case *types.AttributeValueMemberM:
		return "M" + canonical(x.Value)
	case *types.AttributeValueMemberL:
		out := make([]string, len(x.Value))
		for i, e := range x.Value {
			out[i] = canonicalValue(e)
		}
		return "L" + fmt.Sprint(out)
	case *types.AttributeValueMemberSS:
		return "SS" + sorted(x.Value, func(s string) string { return fmt.Sprintf("%q", s) })
	case *types.AttributeValueMemberNS:
		return "NS" + sorted(x.Value, canonicalNumber)
	case *types.AttributeValueMemberBS:
		return "BS" + sorted(x.Value, func(b []byte) string { return fmt.Sprintf("%x", b) })
	}
	return fmt.Sprintf("%T", v)
}

func sorted[T any](in []T, text func(T) string) string {
	out := make([]string, len(in))
	for i, v := range in {
		out[i] = text(v)
	}
	sort.Strings(out)
	return fmt.Sprint(out)
}

func ordered(items []attrs) string {
	out := make([]string, len(items))
	for i, it := range items {
		out[i] = canonical(it)
	}
	return strings.Join(out, "\n")
}

func unordered(items []attrs) string { return sorted(items, canonical) }

// An expr collects the names and values that an expression uses.
type expr struct {
	c      *comparison
	names  map[string]string
	values attrs
}

func (c *comparison) newExpr() *expr { return &expr{c: c, names: map[string]string{}, values: attrs{}} }

func (e *expr) value(v types.AttributeValue) string {
	n := fmt.Sprintf(":v%d", len(e.values))
	e.values[n] = v
	return n
}

func (e *expr) name(n string) string {
	if e.c.rng.IntN(3) > 0 {
		return n
	}
	p := "#" + n
	e.names[p] = n
	return p
}

func (e *expr) set(names *map[string]string, values *attrs) {
	if len(e.names) > 0 {
		*names = maps.Clone(e.names)
	}
	if len(e.values) > 0 {
		*values = maps.Clone(e.values)
	}
}

func pick[T any](c *comparison, xs ...T) T { return xs[c.rng.IntN(len(xs))] }

func (c *comparison) chance(percent int) bool { return c.rng.IntN(100) < percent }

var (
	partitions = []string{"p1", "p2"}
	sorts      = []string{"a", "ab", "b", "ä", "é", "😀", "z"}
	attributes = []string{"n1", "n2", "s1", "s2", "m1", "l1", "ss1", "ns1", "bo1", "nu1", "b1", "gone"}
	numbers    = []string{"0", "1", "-1", "2", "10", "9", "1.5", "-0.25", "100000000000000000000", "1e10", "3"}
	texts      = []string{"a", "b", "ab", "abc", "é", "Z"}
)

func (c *comparison) key() attrs {
	return attrs{"pk": str(pick(c, partitions...)), "sk": str(pick(c, sorts...))}
}

func (c *comparison) scalar() types.AttributeValue {
	switch c.rng.IntN(6) {
	case 0, 1:
		return num(pick(c, numbers...))
	case 2:
		return &types.AttributeValueMemberBOOL{Value: c.chance(50)}
	case 3:
		return &types.AttributeValueMemberB{Value: []byte(pick(c, c.texts...))}
	default:
		return str(pick(c, c.values...))
	}
}

// valueFor gives a value of the type that the attribute's name promises, most of the
// time: operations on matching types are the interesting ones.
func (c *comparison) valueFor(name string) types.AttributeValue {
	if c.chance(10) {
		return c.scalar()
	}
	switch name {
	case "n1", "n2":
		return num(pick(c, numbers...))
	case "m1":
		return &types.AttributeValueMemberM{Value: attrs{"x": c.scalar(), "y": &types.AttributeValueMemberM{Value: attrs{"z": num("1")}}}}
	case "l1":
		return &types.AttributeValueMemberL{Value: []types.AttributeValue{c.scalar(), num("2"), c.scalar()}}
	case "ss1":
		return &types.AttributeValueMemberSS{Value: [][]string{{"a"}, {"a", "b"}, {"b", "c", "a"}}[c.rng.IntN(3)]}
	case "ns1":
		return &types.AttributeValueMemberNS{Value: [][]string{{"1"}, {"1", "2.5"}, {"3", "1", "10"}}[c.rng.IntN(3)]}
	case "bo1":
		return &types.AttributeValueMemberBOOL{Value: c.chance(50)}
	case "nu1":
		return &types.AttributeValueMemberNULL{Value: true}
	case "b1":
		return &types.AttributeValueMemberB{Value: []byte(pick(c, c.texts...))}
	}
	return str(pick(c, c.values...))
}

func (c *comparison) item() attrs {
	it := c.key()
	for _, n := range attributes[:len(attributes)-1] {
		if c.chance(45) {
			it[n] = c.valueFor(n)
		}
	}
	if c.chance(50) {
		it["gh"], it["gr"] = str(pick(c, "g1", "g2")), num(pick(c, numbers...))
	}
	if c.chance(50) {
		it["lr"] = str(pick(c, c.texts...))
	}
	return it
}

// path names an attribute, sometimes nested.
func (e *expr) path() (text, attribute string) {
	a := pick(e.c, attributes...)
	if e.c.name == "moto" && (a == "nu1" || a == "bo1") { // takes a missing attribute for a null, a boolean for a number
		a = "n1"
	}
	switch {
	case a == "m1" && e.c.chance(60):
		return e.name(a) + pick(e.c, ".x", ".y.z", ".nope", ".y"), "s1"
	case a == "l1" && e.c.chance(60):
		return e.name(a) + pick(e.c, "[0]", "[1]", "[2]", "[7]"), "n1"
	}
	return e.name(a), a
}

func (e *expr) condition(depth int) string {
	c := e.c
	if depth > 0 && c.chance(45) {
		switch c.rng.IntN(4) {
		case 0:
			return "NOT " + e.operand(depth)
		case 1:
			return "(" + e.condition(depth-1) + " OR " + e.condition(depth-1) + ")"
		default:
			return e.condition(depth-1) + pick(c, " AND ", " OR ", " and ") + e.condition(depth-1)
		}
	}
	p, a := e.path()
	switch c.rng.IntN(10) {
	case 0:
		return "attribute_exists(" + p + ")"
	case 1:
		return "attribute_not_exists(" + p + ")"
	case 2:
		return "attribute_type(" + p + ", " + e.value(str(pick(c, "S", "N", "M", "L", "SS", "NS", "BOOL", "NULL", "B"))) + ")"
	case 3:
		return "begins_with(" + p + ", " + e.value(str(pick(c, c.texts...))) + ")"
	case 4:
		if c.name == "moto" { // compares members of other types as texts
			return "contains(" + p + ", " + e.value(str(pick(c, c.texts...))) + ")"
		}
		return "contains(" + p + ", " + e.value(c.scalar()) + ")"
	case 5:
		if c.name == "moto" { // fails on the size of a missing path
			return "attribute_exists(" + p + ")"
		}
		return "size(" + p + ") " + e.comparator() + " " + e.value(num(pick(c, "0", "1", "2", "3")))
	case 6:
		return p + " IN (" + e.value(c.valueFor(a)) + ", " + e.value(c.valueFor(a)) + ")"
	case 7:
		low, high := pick(c, "-1", "0", "1"), pick(c, "2", "3", "100")
		return p + " BETWEEN " + e.value(num(low)) + " AND " + e.value(num(high))
	}
	return p + " " + e.comparator() + " " + e.value(c.valueFor(a))
}

func (e *expr) operand(depth int) string {
	if e.c.chance(50) {
		return "(" + e.condition(depth-1) + " AND " + e.condition(0) + ")"
	}
	return e.condition(0)
}

func (e *expr) comparator() string { return pick(e.c, "=", "<>", "<", "<=", ">", ">=") }

func (e *expr) update() string {
	c := e.c
	var set, remove, add, del []string
	for range 1 + c.rng.IntN(3) {
		p, a := e.path()
		switch c.rng.IntN(9) {
		case 0:
			remove = append(remove, p)
		case 1:
			add = append(add, e.name(pick(c, "n1", "n2", "gone"))+" "+e.value(num(pick(c, numbers...))))
		case 2:
			add = append(add, e.name("ss1")+" "+e.value(&types.AttributeValueMemberSS{Value: []string{pick(c, "a", "b", "q")}}))
		case 3:
			del = append(del, e.name("ns1")+" "+e.value(&types.AttributeValueMemberNS{Value: []string{pick(c, "1", "3", "77")}}))
		case 4:
			set = append(set, p+" = if_not_exists("+e.name(a)+", "+e.value(c.valueFor(a))+")")
		case 5:
			set = append(set, e.name("n2")+" = "+e.name("n1")+pick(c, " + ", " - ")+e.value(num(pick(c, numbers...))))
		case 6:
			set = append(set, e.name("l1")+" = list_append("+e.name("l1")+", "+e.value(&types.AttributeValueMemberL{Value: []types.AttributeValue{c.scalar()}})+")")
		case 7:
			set = append(set, e.name("gh")+" = "+e.value(str(pick(c, "g1", "g2"))), e.name("gr")+" = "+e.value(num(pick(c, numbers...))))
		default:
			set = append(set, p+" = "+e.value(c.valueFor(a)))
		}
	}
	var out []string
	for _, clause := range []struct {
		word  string
		parts []string
	}{{"SET", set}, {"REMOVE", remove}, {"ADD", add}, {"DELETE", del}} {
		if len(clause.parts) > 0 {
			out = append(out, clause.word+" "+strings.Join(clause.parts, ", "))
		}
	}
	return strings.Join(out, " ")
}

func (c *comparison) randomOp() op {
	switch c.rng.IntN(20) {
	case 0, 1, 2, 3, 4:
		return c.put()
	case 5, 6, 7, 8, 9:
		return c.updateItem()
	case 10:
		return c.deleteItem()
	case 11:
		return c.getItem()
	case 12, 13, 14, 15:
		return c.query()
	case 16:
		return c.scan()
	default:
		if c.name == "dynalite" { // has no transactions
			return c.query()
		}
		return c.transaction()
	}
}

func (c *comparison) put() op {
	in := &dynamodb.PutItemInput{TableName: &c.table, Item: c.item(), ReturnValues: pick(c, types.ReturnValueNone, types.ReturnValueAllOld)}
	if c.chance(60) {
		e := c.newExpr()
		in.ConditionExpression = aws.String(e.condition(2))
		e.set(&in.ExpressionAttributeNames, &in.ExpressionAttributeValues)
		c.oldOnFailure(&in.ReturnValuesOnConditionCheckFailure)
	}
	return op{"PutItem", true, in, func(ctx context.Context, cl *dynamodb.Client) outcome {
		o, err := cl.PutItem(ctx, in)
		if err != nil {
			return failed(err)
		}
		return outcome{text: canonical(o.Attributes)}
	}}
}

// oldOnFailure asks for the old item, except of dynalite, which never returns it.
func (c *comparison) oldOnFailure(v *types.ReturnValuesOnConditionCheckFailure) {
	if c.name != "dynalite" && c.chance(50) {
		*v = types.ReturnValuesOnConditionCheckFailureAllOld
	}
}

func (c *comparison) updateItem() op {
	e := c.newExpr()
	in := &dynamodb.UpdateItemInput{TableName: &c.table, Key: c.key(), UpdateExpression: aws.String(e.update()),
		ReturnValues: pick(c, types.ReturnValueNone, types.ReturnValueAllOld, types.ReturnValueAllNew, types.ReturnValueUpdatedOld, types.ReturnValueUpdatedNew)}
	if c.chance(50) {
		in.ConditionExpression = aws.String(e.condition(2))
		c.oldOnFailure(&in.ReturnValuesOnConditionCheckFailure)
	}
	e.set(&in.ExpressionAttributeNames, &in.ExpressionAttributeValues)
	return op{"UpdateItem", true, in, func(ctx context.Context, cl *dynamodb.Client) outcome {
		o, err := cl.UpdateItem(ctx, in)
		if err != nil {
			return failed(err)
		}
		return outcome{text: canonical(o.Attributes)}
	}}
}

func (c *comparison) deleteItem() op {
	in := &dynamodb.DeleteItemInput{TableName: &c.table, Key: c.key(), ReturnValues: types.ReturnValueAllOld}
	if c.chance(50) {
		e := c.newExpr()
		in.ConditionExpression = aws.String(e.condition(1))
		e.set(&in.ExpressionAttributeNames, &in.ExpressionAttributeValues)
	}
	return op{"DeleteItem", true, in, func(ctx context.Context, cl *dynamodb.Client) outcome {
		o, err := cl.DeleteItem(ctx, in)
		if err != nil {
			return failed(err)
		}
		return outcome{text: canonical(o.Attributes)}
	}}
}

func (c *comparison) getItem() op {
	in := &dynamodb.GetItemInput{TableName: &c.table, Key: c.key(), ConsistentRead: aws.Bool(true)}
	if c.chance(50) {
		e := c.newExpr()
		p, _ := e.path()
		in.ProjectionExpression = aws.String(p + ", sk")
		e.set(&in.ExpressionAttributeNames, new(attrs))
	}
	return op{"GetItem", false, in, func(ctx context.Context, cl *dynamodb.Client) outcome {
		o, err := cl.GetItem(ctx, in)
		if err != nil {
			return failed(err)
		}
		return outcome{text: canonical(o.Item)}
	}}
}

func (c *comparison) query() op {
	e := c.newExpr()
	in := &dynamodb.QueryInput{TableName: &c.table, ScanIndexForward: aws.Bool(c.chance(70))}
	switch c.rng.IntN(3) {
	case 0:
		in.KeyConditionExpression = aws.String("pk = " + e.value(str(pick(c, partitions...))) + e.sortCondition("sk", str(pick(c, sorts...)), str(pick(c, sorts...))))
		in.ConsistentRead = aws.Bool(c.chance(50))
	case 1:
		in.IndexName = aws.String("global")
		in.KeyConditionExpression = aws.String("gh = " + e.value(str(pick(c, "g1", "g2"))) + e.sortCondition("gr", num(pick(c, numbers...)), num(pick(c, numbers...))))
	default:
		in.IndexName = aws.String("local")
		in.KeyConditionExpression = aws.String("pk = " + e.value(str(pick(c, partitions...))) + e.sortCondition("lr", str(pick(c, c.texts...)), str(pick(c, c.texts...))))
	}
	if c.chance(40) {
		in.FilterExpression = aws.String(e.condition(1))
	}
	if c.chance(40) {
		in.Limit = aws.Int32(int32(1 + c.rng.IntN(4)))
	}
	if c.chance(20) {
		in.Select = types.SelectCount
	}
	e.set(&in.ExpressionAttributeNames, &in.ExpressionAttributeValues)
	// Items of a global index with equal keys have no defined order.
	render := ordered
	if aws.ToString(in.IndexName) != "" {
		render = unordered
		in.Limit = nil
	}
	return op{"Query", false, in, func(ctx context.Context, cl *dynamodb.Client) outcome {
		o, err := cl.Query(ctx, in)
		if err != nil {
			return failed(err)
		}
		return outcome{text: fmt.Sprint(o.Count, o.ScannedCount, canonical(o.LastEvaluatedKey), render(o.Items))}
	}}
}

func (e *expr) sortCondition(name string, v, w types.AttributeValue) string {
	switch e.c.rng.IntN(7) {
	case 0, 1:
		return ""
	case 2:
		if _, text := v.(*types.AttributeValueMemberS); text {
			return " AND begins_with(" + name + ", " + e.value(v) + ")"
		}
		return ""
	case 3:
		return " AND " + name + " BETWEEN " + e.value(v) + " AND " + e.value(w)
	}
	return " AND " + name + " " + pick(e.c, "=", "<", "<=", ">", ">=") + " " + e.value(v)
}

func (c *comparison) scan() op {
	in := &dynamodb.ScanInput{TableName: &c.table, ConsistentRead: aws.Bool(true)}
	if c.chance(60) {
		e := c.newExpr()
		in.FilterExpression = aws.String(e.condition(2))
		e.set(&in.ExpressionAttributeNames, &in.ExpressionAttributeValues)
	}
	return op{"Scan", false, in, func(ctx context.Context, cl *dynamodb.Client) outcome {
		o, err := cl.Scan(ctx, in)
		if err != nil {
			return failed(err)
		}
		return outcome{text: fmt.Sprint(o.Count, o.ScannedCount, unordered(o.Items))}
	}}
}

func (c *comparison) transaction() op {
	in := &dynamodb.TransactWriteItemsInput{}
	for range 1 + c.rng.IntN(3) {
		e := c.newExpr()
		var it types.TransactWriteItem
		switch c.rng.IntN(4) {
		case 0:
			p := &types.Put{TableName: &c.table, Item: c.item()}
			if c.chance(60) {
				p.ConditionExpression = aws.String(e.condition(1))
				c.oldOnFailure(&p.ReturnValuesOnConditionCheckFailure)
			}
			e.set(&p.ExpressionAttributeNames, &p.ExpressionAttributeValues)
			it.Put = p
		case 1:
			u := &types.Update{TableName: &c.table, Key: c.key(), UpdateExpression: aws.String(e.update())}
			if c.chance(60) {
				u.ConditionExpression = aws.String(e.condition(1))
				c.oldOnFailure(&u.ReturnValuesOnConditionCheckFailure)
			}
			e.set(&u.ExpressionAttributeNames, &u.ExpressionAttributeValues)
			it.Update = u
		case 2:
			d := &types.Delete{TableName: &c.table, Key: c.key()}
			if c.chance(60) {
				d.ConditionExpression = aws.String(e.condition(1))
				c.oldOnFailure(&d.ReturnValuesOnConditionCheckFailure)
			}
			e.set(&d.ExpressionAttributeNames, &d.ExpressionAttributeValues)
			it.Delete = d
		default:
			k := &types.ConditionCheck{TableName: &c.table, Key: c.key(), ConditionExpression: aws.String(e.condition(1))}
			c.oldOnFailure(&k.ReturnValuesOnConditionCheckFailure)
			e.set(&k.ExpressionAttributeNames, &k.ExpressionAttributeValues)
			it.ConditionCheck = k
		}
		in.TransactItems = append(in.TransactItems, it)
	}
	return op{"TransactWriteItems", true, in, func(ctx context.Context, cl *dynamodb.Client) outcome {
		copyOf := *in // a fresh idempotency token for each side
		_, err := cl.TransactWriteItems(ctx, &copyOf)
		if err != nil {
			return failed(err)
		}
		return outcome{text: "ok"}
	}}
}
