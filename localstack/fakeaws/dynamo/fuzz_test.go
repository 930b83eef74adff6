package dynamo

import (
	"net/http"
	"testing"
)

// FuzzExpression parses any text as every kind of expression, binds it to a
// fixed set of names and values and evaluates it.
func FuzzExpression(f *testing.F) {
	for _, text := range []string{
		"attribute_not_exists(pk) OR lease <= :one AND #a IN (:one, :s)", "NOT (a.b[1].#a BETWEEN :one AND :one)", "contains(l, size(m)) = :s",
		"SET a = if_not_exists(a, :one) + :one, l = list_append(l, :l), m.x = (:one - a) REMOVE l[0], m.k ADD n :one, ss :ss DELETE ss :ss", "pk = :s AND begins_with(sk, :s)", "a, #a.b, l[2], m.k", "((a = :one))", "a = = :one", "é", "#", "a[99999999999999999999]",
	} {
		f.Add(text)
	}
	it := parseItem(f, conditionItem)
	keys := keySchema{partition: keyAttribute{"pk", kindString}, sort: keyAttribute{"sk", kindString}}
	f.Fuzz(func(t *testing.T, text string) {
		for k := range expressionKinds {
			parsed, err := parseExpression(k, text)
			if err != nil {
				if asAPIError(err).code != codeValidation {
					t.Fatalf("%q: %v", text, err)
				}
				continue
			}
			in := &placeholders{}
			for i, key := range parsed.names {
				in.names = append(in.names, namePlaceholder{key: key, name: []string{"a.b", "m", "l"}[i%3]})
			}
			choices := []value{numberValue("1"), stringValue("p"), listValue([]value{numberValue("2")}), setValue(kindStringSet, []value{stringValue("a")}), mapValue(nil)}
			for i, key := range parsed.values {
				in.values = append(in.values, valuePlaceholder{key: key, value: choices[(i+len(text))%len(choices)]})
			}
			b, err := in.bind(parsed)
			if err != nil {
				continue
			}
			evaluate(b, keys, it)
		}
	})
}

func evaluate(b *bound, keys keySchema, it *item) {
	switch b.kind {
	case updateExpression:
		_, _ = b.applyTo(it.attributes)
		_, _ = b.applyTo(nil)
	case projectionExpression:
		b.selectPaths(b.paths).of(it.attributes)
	case keyConditionExpression:
		if c, err := b.keyCondition(keys); err == nil {
			c.keyRange()
		}
	default:
		b.holds(b.root, it)
		b.holds(b.root, nil)
	}
}

// FuzzServe sends any body as any operation; the answer must be a JSON
// document, and the indexes must still follow from the rows.
func FuzzServe(f *testing.F) {
	ops := []string{"PutItem", "UpdateItem", "DeleteItem", "GetItem", "Query", "Scan", "BatchGetItem", "BatchWriteItem", "TransactGetItems", "TransactWriteItems",
		"CreateTable", "DescribeTable", "UpdateTable", "ListTables", "UpdateTimeToLive", "DescribeTimeToLive", "Nothing"}
	for i, body := range []string{
		`{"TableName": "main", "Item": {"pk": {"S": "a"}, "sk": {"S": "b"}, "g": {"S": "g"}, "n": {"N": "1e3"}, "x": {"L": [{"M": {"k": {"BS": ["AQ=="]}}}, {"NULL": true}]}}, "ReturnConsumedCapacity": "INDEXES"}`,
		`{"TableName": "main", "Key": {"pk": {"S": "a"}, "sk": {"S": "b"}}, "UpdateExpression": "SET #n = :n REMOVE l[0] ADD c :n", "ExpressionAttributeNames": {"#n": "n"}, "ExpressionAttributeValues": {":n": {"N": "-0.5"}}, "ReturnValues": "UPDATED_NEW"}`,
		`{"TableName": "main", "Key": {"pk": {"S": "a"}, "sk": {"S": "b"}}, "ConditionExpression": "size(x) > :n", "ExpressionAttributeValues": {":n": {"N": "1"}}}`,
		`{"TableName": "main", "Key": {"pk": {"S": "\ud83d\ude00"}, "sk": {"S": "\u0000"}}, "ProjectionExpression": "a[1].b"}`,
		`{"TableName": "main", "IndexName": "byGroup", "KeyConditionExpression": "g = :g AND n BETWEEN :a AND :b", "ExpressionAttributeValues": {":g": {"S": "g"}, ":a": {"N": "-1"}, ":b": {"N": "1"}}, "ScanIndexForward": false, "Limit": 1}`,
		`{"TableName": "main", "Segment": 1, "TotalSegments": 4, "FilterExpression": "attribute_exists(g)", "Select": "COUNT"}`,
		`{"RequestItems": {"main": {"Keys": [{"pk": {"S": "a"}, "sk": {"S": "b"}}]}}}`,
		`{"RequestItems": {"main": [{"PutRequest": {"Item": {"pk": {"S": "a"}, "sk": {"S": "c"}}}}, {"DeleteRequest": {"Key": {"pk": {"S": "a"}, "sk": {"S": "b"}}}}]}}`,
		`{"TransactItems": [{"Get": {"TableName": "main", "Key": {"pk": {"S": "a"}, "sk": {"S": "b"}}}}]}`,
		`{"ClientRequestToken": "t", "TransactItems": [{"ConditionCheck": {"TableName": "main", "Key": {"pk": {"S": "a"}, "sk": {"S": "b"}}, "ConditionExpression": "attribute_exists(pk)"}}]}`,
		`{"TableName": "new", "BillingMode": "PAY_PER_REQUEST", "AttributeDefinitions": [{"AttributeName": "a", "AttributeType": "B"}], "KeySchema": [{"AttributeName": "a", "KeyType": "HASH"}]}`,
		`{"TableName": "main"}`,
		`{"TableName": "main", "GlobalSecondaryIndexUpdates": [{"Delete": {"IndexName": "byName"}}]}`,
		`{"Limit": 1}`,
		`{"TableName": "main", "TimeToLiveSpecification": {"AttributeName": "ttl", "Enabled": true}}`,
		`[[[[`, `"`,
	} {
		f.Add(uint8(i), body)
	}
	f.Fuzz(func(t *testing.T, op uint8, body string) {
		e := openFixture(t, newRecorder())
		e.createMain()
		e.put("a", "b", `"g": {"S": "g"}, "n": {"N": "1"}, "l": {"L": [{"N": "1"}]}, "m": {"M": {"x": {"N": "1"}}}`)
		r := request(ops[int(op)%len(ops)])
		e.Describe(r, []byte(body))
		response := e.Serve(r, []byte(body))
		if (response.Status == http.StatusOK) != (response.ErrorCode == "") || response.Status >= http.StatusInternalServerError {
			t.Fatalf("status %d with code %q: %s", response.Status, response.ErrorCode, response.Body)
		}
		decode(t, response.Body)
		e.checkIndexes()
		if e.tables["main"] == nil {
			t.Fatal("the table is gone")
		}
	})
}
