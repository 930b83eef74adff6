package dynamo

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/localstack/fakeaws/engine"
)

// Direct returns what carries out a request of this process: in is the SDK's input
// and out its output, which is filled, and nothing is written as JSON or read back.
// The answer to a request that fails, and one that is rare, have a body, as from
// Serve, and out is then untouched.
//
// It is nil where the request is of another operation, or holds anything that its
// wire form refuses, drops or changes: the reader of that form is who judges.
func (e *Engine) Direct(in, out any) func() engine.Response {
	c := &converter{}
	var run func() (answer, error)
	switch in := in.(type) {
	case *dynamodb.GetItemInput:
		run = c.getItem(e, in, out)
	case *dynamodb.BatchGetItemInput:
		run = c.batchGetItem(e, in, out)
	case *dynamodb.TransactGetItemsInput:
		run = c.transactGetItems(e, in, out)
	case *dynamodb.QueryInput:
		run = c.query(e, in, out)
	case *dynamodb.PutItemInput:
		run = c.putItem(e, in, out)
	case *dynamodb.UpdateItemInput:
		run = c.updateItem(e, in, out)
	case *dynamodb.DeleteItemInput:
		run = c.deleteItem(e, in, out)
	case *dynamodb.TransactWriteItemsInput:
		run = c.transactWriteItems(e, in, out)
	}
	if run == nil || c.unclear {
		return nil
	}
	return func() engine.Response {
		result, err := run()
		return e.response(result, err)
	}
}

// A converter turns the SDK's types into the engine's. What it cannot turn as the
// wire would makes the request unclear. Names of attributes are taken as they are:
// within one process they are constants of the program, or the engine's own.
type converter struct{ unclear bool }

// text is a member of the model that is a string.
func (c *converter) text(s *string) optional[string] {
	if s == nil {
		return optional[string]{}
	}
	return optional[string]{value: c.valid(*s), set: true}
}

// enum is a member of the model that is one of several names.
func enum[T ~string](c *converter, v T) optional[string] {
	return optional[string]{value: c.valid(string(v)), set: v != ""}
}

// valid refuses text that JSON would change.
func (c *converter) valid(s string) string {
	if !utf8.ValidString(s) {
		c.unclear = true
	}
	return s
}

func truth(b *bool) optional[bool] {
	if b == nil {
		return optional[bool]{}
	}
	return optional[bool]{value: *b, set: true}
}

func (c *converter) refuseIf(unclear bool) {
	if unclear {
		c.unclear = true
	}
}

// attributes turns an item, a key or the inside of a map.
func (c *converter) attributes(m map[string]types.AttributeValue, nesting int) []attribute {
	fields := make([]attribute, 0, len(m))
	for name, v := range m {
		c.refuseIf(name == "" || len(name) > maxNameSize)
		fields = append(fields, attribute{name: c.valid(name), value: c.value(v, nesting)})
	}
	slices.SortFunc(fields, func(a, b attribute) int { return strings.Compare(a.name, b.name) })
	return fields
}

func (c *converter) value(v types.AttributeValue, nesting int) value {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		if v != nil {
			return stringValue(c.valid(v.Value))
		}
	case *types.AttributeValueMemberN:
		if v != nil {
			return c.number(v.Value)
		}
	case *types.AttributeValueMemberB:
		if v != nil && v.Value != nil {
			return value{kind: kindBinary, text: string(v.Value)}
		}
	case *types.AttributeValueMemberBOOL:
		if v != nil {
			return value{kind: kindBool, truth: v.Value}
		}
	case *types.AttributeValueMemberNULL:
		if v != nil && v.Value {
			return value{kind: kindNull, truth: true}
		}
	case *types.AttributeValueMemberSS:
		if v != nil {
			return set(c, kindStringSet, v.Value, func(s string) value { return stringValue(c.valid(s)) })
		}
	case *types.AttributeValueMemberNS:
		if v != nil {
			return set(c, kindNumberSet, v.Value, c.number)
		}
	case *types.AttributeValueMemberBS:
		if v != nil {
			return set(c, kindBinarySet, v.Value, func(b []byte) value { return value{kind: kindBinary, text: string(b)} })
		}
	case *types.AttributeValueMemberL:
		if v != nil && v.Value != nil && nesting < maxNesting {
			elements := make([]value, len(v.Value))
			for i, e := range v.Value {
				elements[i] = c.value(e, nesting+1)
			}
			return listValue(elements)
		}
	case *types.AttributeValueMemberM:
		if v != nil && v.Value != nil && nesting < maxNesting {
			return mapValue(c.attributes(v.Value, nesting+1))
		}
	}
	c.unclear = true
	return value{}
}

func (c *converter) number(text string) value {
	canonical, err := canonicalNumber(text)
	c.refuseIf(err != nil)
	return numberValue(canonical)
}

func set[T any](c *converter, k kind, from []T, member func(T) value) value {
	members := make([]value, len(from))
	for i, m := range from {
		members[i] = member(m)
		c.refuseIf(members[i].text == "")
	}
	slices.SortFunc(members, compareScalars)
	same := func(a, b value) bool { return a.text == b.text }
	c.refuseIf(len(members) == 0 || len(slices.CompactFunc(slices.Clone(members), same)) < len(members))
	return setValue(k, members)
}

func (c *converter) placeholders(names map[string]string, values map[string]types.AttributeValue) placeholders {
	c.refuseIf(names != nil && len(names) == 0 || values != nil && len(values) == 0)
	p := placeholders{namesSet: names != nil, valuesSet: values != nil}
	for key, name := range names {
		p.names = append(p.names, namePlaceholder{key: c.valid(key), name: c.valid(name)})
	}
	for key, v := range values {
		p.values = append(p.values, valuePlaceholder{key: c.valid(key), value: c.value(v, 0)})
	}
	return p
}

func (c *converter) getItem(e *Engine, in *dynamodb.GetItemInput, out any) func() (answer, error) {
	c.refuseIf(in.AttributesToGet != nil)
	g := &readRequest{
		table: c.text(in.TableName), key: c.attributes(in.Key, 0), hasKey: in.Key != nil, consistent: truth(in.ConsistentRead),
		projection: c.text(in.ProjectionExpression), placeholders: c.placeholders(in.ExpressionAttributeNames, nil),
		capacity: enum(c, in.ReturnConsumedCapacity),
	}
	return func() (answer, error) {
		result, it, err := e.get(g)
		if o, ok := out.(*dynamodb.GetItemOutput); ok && err == nil {
			*o = dynamodb.GetItemOutput{ConsumedCapacity: result.usages.first(g.capacity)}
			if it != nil {
				o.Item = attributeValues(g.selection.of(it.attributes))
			}
		}
		return result, err
	}
}

func (c *converter) batchGetItem(e *Engine, in *dynamodb.BatchGetItemInput, out any) func() (answer, error) {
	b := &batchGet{capacity: enum(c, in.ReturnConsumedCapacity)}
	for name, wanted := range in.RequestItems {
		c.refuseIf(wanted.AttributesToGet != nil)
		t := &batchGetTable{
			name: c.valid(name), keys: make([][]attribute, len(wanted.Keys)), hasKeys: wanted.Keys != nil, consistent: truth(wanted.ConsistentRead),
			projection: c.text(wanted.ProjectionExpression), placeholders: c.placeholders(wanted.ExpressionAttributeNames, nil),
		}
		for i, k := range wanted.Keys {
			t.keys[i] = c.attributes(k, 0)
		}
		b.tables = append(b.tables, t)
	}
	return func() (answer, error) {
		result, err := e.getBatch(b)
		o, ok := out.(*dynamodb.BatchGetItemOutput)
		if !ok || err != nil {
			return result, err
		}
		if slices.ContainsFunc(b.tables, func(t *batchGetTable) bool { return len(t.unprocessed) > 0 }) {
			result.body = b.respond(result.usages)
			return result, nil
		}
		*o = dynamodb.BatchGetItemOutput{
			ConsumedCapacity: result.usages.capacities(b.capacity, ""),
			Responses:        make(map[string][]map[string]types.AttributeValue, len(b.tables)),
			UnprocessedKeys:  map[string]types.KeysAndAttributes{},
		}
		for _, t := range b.tables {
			found := make([]map[string]types.AttributeValue, len(t.found))
			for i, it := range t.found {
				found[i] = attributeValues(t.selection.of(it.attributes))
			}
			o.Responses[t.name] = found
		}
		return result, nil
	}
}

func (c *converter) transactGetItems(e *Engine, in *dynamodb.TransactGetItemsInput, out any) func() (answer, error) {
	tx := &transactionRead{reads: make([]*readRequest, len(in.TransactItems)), hasItems: in.TransactItems != nil, capacity: enum(c, in.ReturnConsumedCapacity)}
	for i, member := range in.TransactItems {
		g := member.Get
		if g == nil {
			c.unclear = true
			return nil
		}
		tx.reads[i] = &readRequest{
			table: c.text(g.TableName), key: c.attributes(g.Key, 0), hasKey: g.Key != nil,
			projection: c.text(g.ProjectionExpression), placeholders: c.placeholders(g.ExpressionAttributeNames, nil),
		}
	}
	return func() (answer, error) {
		result, found, err := e.getTransaction(tx)
		if o, ok := out.(*dynamodb.TransactGetItemsOutput); ok && err == nil {
			*o = dynamodb.TransactGetItemsOutput{
				ConsumedCapacity: result.usages.capacities(tx.capacity, unitsRead.member()),
				Responses:        make([]types.ItemResponse, len(found)),
			}
			for i, it := range found {
				if it != nil {
					o.Responses[i].Item = attributeValues(tx.reads[i].selection.of(it.attributes))
				}
			}
		}
		return result, err
	}
}

func (c *converter) query(e *Engine, in *dynamodb.QueryInput, out any) func() (answer, error) {
	c.refuseIf(in.AttributesToGet != nil || in.ConditionalOperator != "" || in.KeyConditions != nil || in.QueryFilter != nil)
	q := &pageRequest{
		table: c.text(in.TableName), index: c.text(in.IndexName), keyCondition: c.text(in.KeyConditionExpression),
		filter: c.text(in.FilterExpression), projection: c.text(in.ProjectionExpression),
		placeholders: c.placeholders(in.ExpressionAttributeNames, in.ExpressionAttributeValues),
		startKey:     c.attributes(in.ExclusiveStartKey, 0), hasStart: in.ExclusiveStartKey != nil,
		consistent: truth(in.ConsistentRead), forward: truth(in.ScanIndexForward),
		selects: enum(c, in.Select), capacity: enum(c, in.ReturnConsumedCapacity),
	}
	if in.Limit != nil {
		q.limit = optional[int]{value: int(*in.Limit), set: true}
	}
	return func() (answer, error) {
		result, read, err := e.readPrepared(q)
		if o, ok := out.(*dynamodb.QueryOutput); ok && err == nil {
			*o = dynamodb.QueryOutput{
				ConsumedCapacity: result.usages.first(q.capacity),
				Count:            int32(read.count),
				ScannedCount:     int32(read.scanned),
			}
			if q.selects.value != selectCount {
				o.Items = make([]map[string]types.AttributeValue, len(read.items))
			}
			for i, it := range read.items {
				o.Items[i] = attributeValues(q.selection.of(it.attributes))
			}
			if read.last != nil {
				o.LastEvaluatedKey = attributeValues(read.last)
			}
		}
		return result, err
	}
}

func (c *converter) putItem(e *Engine, in *dynamodb.PutItemInput, out any) func() (answer, error) {
	c.refuseIf(in.ConditionalOperator != "" || in.Expected != nil)
	w := c.write(writePut, in.TableName, in.Item, in.ConditionExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues, in.ReturnValuesOnConditionCheckFailure)
	return c.single(e, w, in.ReturnValues, in.ReturnConsumedCapacity, in.ReturnItemCollectionMetrics, func(returned map[string]types.AttributeValue, capacity *types.ConsumedCapacity) {
		if o, ok := out.(*dynamodb.PutItemOutput); ok {
			*o = dynamodb.PutItemOutput{Attributes: returned, ConsumedCapacity: capacity}
		}
	})
}

func (c *converter) updateItem(e *Engine, in *dynamodb.UpdateItemInput, out any) func() (answer, error) {
	c.refuseIf(in.AttributeUpdates != nil || in.ConditionalOperator != "" || in.Expected != nil)
	w := c.write(writeUpdate, in.TableName, in.Key, in.ConditionExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues, in.ReturnValuesOnConditionCheckFailure)
	w.update = c.text(in.UpdateExpression)
	return c.single(e, w, in.ReturnValues, in.ReturnConsumedCapacity, in.ReturnItemCollectionMetrics, func(returned map[string]types.AttributeValue, capacity *types.ConsumedCapacity) {
		if o, ok := out.(*dynamodb.UpdateItemOutput); ok {
			*o = dynamodb.UpdateItemOutput{Attributes: returned, ConsumedCapacity: capacity}
		}
	})
}

func (c *converter) deleteItem(e *Engine, in *dynamodb.DeleteItemInput, out any) func() (answer, error) {
	c.refuseIf(in.ConditionalOperator != "" || in.Expected != nil)
	w := c.write(writeDelete, in.TableName, in.Key, in.ConditionExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues, in.ReturnValuesOnConditionCheckFailure)
	return c.single(e, w, in.ReturnValues, in.ReturnConsumedCapacity, in.ReturnItemCollectionMetrics, func(returned map[string]types.AttributeValue, capacity *types.ConsumedCapacity) {
		if o, ok := out.(*dynamodb.DeleteItemOutput); ok {
			*o = dynamodb.DeleteItemOutput{Attributes: returned, ConsumedCapacity: capacity}
		}
	})
}

// single returns what carries a request for a single item out; fill gets what it
// returns.
func (c *converter) single(e *Engine, w *writeRequest, values types.ReturnValue, capacity types.ReturnConsumedCapacity, metrics types.ReturnItemCollectionMetrics,
	fill func(map[string]types.AttributeValue, *types.ConsumedCapacity),
) func() (answer, error) {
	w.returnValues, w.capacity, w.metrics = enum(c, values), enum(c, capacity), enum(c, metrics)
	return func() (answer, error) {
		result, done, err := e.writePrepared(w)
		if err != nil {
			return result, err
		}
		var returned map[string]types.AttributeValue
		if attributes := w.returned(done); len(attributes) > 0 {
			returned = attributeValues(attributes)
		}
		fill(returned, result.usages.first(w.capacity))
		return result, nil
	}
}

func (c *converter) write(k writeKind, table *string, item map[string]types.AttributeValue, condition *string,
	names map[string]string, values map[string]types.AttributeValue, onFailure types.ReturnValuesOnConditionCheckFailure,
) *writeRequest {
	return &writeRequest{
		kind: k, table: c.text(table), attributes: c.attributes(item, 0), hasItem: item != nil, condition: c.text(condition),
		placeholders: c.placeholders(names, values), onFailure: enum(c, onFailure),
	}
}

func (c *converter) transactWriteItems(e *Engine, in *dynamodb.TransactWriteItemsInput, out any) func() (answer, error) {
	tx := &transaction{
		writes: make([]*writeRequest, len(in.TransactItems)), hasItems: in.TransactItems != nil, token: c.text(in.ClientRequestToken),
		capacity: enum(c, in.ReturnConsumedCapacity), metrics: enum(c, in.ReturnItemCollectionMetrics),
	}
	for i := range in.TransactItems {
		if tx.writes[i] = c.action(&in.TransactItems[i]); tx.writes[i] == nil {
			c.unclear = true
			return nil
		}
	}
	return func() (answer, error) {
		result, err := e.writeTransaction(tx)
		if o, ok := out.(*dynamodb.TransactWriteItemsOutput); ok && err == nil {
			*o = dynamodb.TransactWriteItemsOutput{ConsumedCapacity: result.usages.capacities(tx.capacity, result.units.member())}
		}
		return result, err
	}
}

// action turns a member of a transaction; nil where it is not exactly one action.
func (c *converter) action(a *types.TransactWriteItem) *writeRequest {
	var actions []*writeRequest
	if p := a.Put; p != nil {
		actions = append(actions, c.write(writePut, p.TableName, p.Item, p.ConditionExpression, p.ExpressionAttributeNames, p.ExpressionAttributeValues, p.ReturnValuesOnConditionCheckFailure))
	}
	if u := a.Update; u != nil {
		w := c.write(writeUpdate, u.TableName, u.Key, u.ConditionExpression, u.ExpressionAttributeNames, u.ExpressionAttributeValues, u.ReturnValuesOnConditionCheckFailure)
		w.update = c.text(u.UpdateExpression)
		actions = append(actions, w)
	}
	if d := a.Delete; d != nil {
		actions = append(actions, c.write(writeDelete, d.TableName, d.Key, d.ConditionExpression, d.ExpressionAttributeNames, d.ExpressionAttributeValues, d.ReturnValuesOnConditionCheckFailure))
	}
	if k := a.ConditionCheck; k != nil {
		actions = append(actions, c.write(writeCheck, k.TableName, k.Key, k.ConditionExpression, k.ExpressionAttributeNames, k.ExpressionAttributeValues, k.ReturnValuesOnConditionCheckFailure))
	}
	if len(actions) != 1 {
		return nil
	}
	return actions[0]
}
