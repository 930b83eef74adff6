package dynamo

import (
	"fmt"
	"strings"
	"testing"

	"drawbridge/localstack/fakeaws/engine"
)

// filler is an attribute that brings an item of the main table with one-letter
// keys to a size.
func filler(size int) string {
	return `"f": {"S": "` + strings.Repeat("x", size-len("pk")-1-len("sk")-1-len("f")) + `"}`
}

func usageText(all []engine.Usage) string {
	var out []string
	for _, u := range all {
		name := u.Table
		if u.Index != "" {
			name += "/" + u.Index
		}
		out = append(out, fmt.Sprintf("%s r%g w%g", name, u.ReadUnits, u.WriteUnits))
	}
	return strings.Join(out, ", ")
}

func TestWritesAreBilledByAWSsRules(t *testing.T) {
	const index = `"g": {"S": "g"}, "n": {"N": "1"}`
	for _, c := range []struct{ name, before, op, body, want string }{
		{"a small put", "", "PutItem", `"Item": ` + mainItem("p", "s", ""), "main r0 w1"},
		{"a put of just 1 KB", "", "PutItem", `"Item": ` + mainItem("p", "s", filler(1024)), "main r0 w1"},
		{"a put of a byte more", "", "PutItem", `"Item": ` + mainItem("p", "s", filler(1025)), "main r0 w2"},
		{"a small put over a large item", filler(3000), "PutItem", `"Item": ` + mainItem("p", "s", ""), "main r0 w3"},
		{"an update that shrinks", filler(3000), "UpdateItem", `"Key": ` + mainItem("p", "s", "") + `, "UpdateExpression": "REMOVE f"`, "main r0 w3"},
		{"an update that grows", "", "UpdateItem", `"Key": ` + mainItem("p", "s", "") + `, "UpdateExpression": "SET f = :f", "ExpressionAttributeValues": {":f": {"S": "` + strings.Repeat("x", 2048) + `"}}`, "main r0 w3"},
		{"a deletion", filler(2049), "DeleteItem", `"Key": ` + mainItem("p", "s", ""), "main r0 w3"},
		{"a deletion of nothing", "", "DeleteItem", `"Key": ` + mainItem("p", "s", ""), "main r0 w1"},
		{"a failed condition", filler(1500), "UpdateItem", `"Key": ` + mainItem("p", "s", "") + `, "UpdateExpression": "REMOVE f", "ConditionExpression": "attribute_not_exists(pk)"`, "main r0 w2"},
		{"a failed condition of a larger put", filler(1500), "PutItem", `"Item": ` + mainItem("p", "s", filler(2500)) + `, "ConditionExpression": "attribute_not_exists(pk)"`, "main r0 w3"},
		{"a failed condition on nothing", "", "DeleteItem", `"Key": ` + mainItem("p", "s", "") + `, "ConditionExpression": "attribute_exists(pk)"`, "main r0 w1"},
		{"an insertion into two indexes", "", "PutItem", `"Item": ` + mainItem("p", "s", index), "main r0 w1, main/byNumber r0 w1, main/byGroup r0 w1"},
		{"an attribute that one index projects", index, "UpdateItem", `"Key": ` + mainItem("p", "s", "") + `, "UpdateExpression": "SET f = :f", "ExpressionAttributeValues": {":f": {"N": "1"}}`, "main r0 w1, main/byGroup r0 w1"},
		{"the same content again", index, "PutItem", `"Item": ` + mainItem("p", "s", index), "main r0 w1"},
		{"a changed index key", index, "UpdateItem", `"Key": ` + mainItem("p", "s", "") + `, "UpdateExpression": "SET n = :n", "ExpressionAttributeValues": {":n": {"N": "2"}}`, "main r0 w1, main/byNumber r0 w2, main/byGroup r0 w2"},
		{"an item that leaves an index", index, "UpdateItem", `"Key": ` + mainItem("p", "s", "") + `, "UpdateExpression": "REMOVE g"`, "main r0 w1, main/byGroup r0 w1"},
		{"a deletion with indexes", index + ", " + filler(1100), "DeleteItem", `"Key": ` + mainItem("p", "s", ""), "main r0 w2, main/byNumber r0 w1, main/byGroup r0 w2"},
		{"a transaction doubles the table only", "", "TransactWriteItems", `"TransactItems": [{"Put": {"TableName": "main", "Item": ` + mainItem("p", "s", index) + `}}]`, "main r0 w2, main/byNumber r0 w1, main/byGroup r0 w1"},
		{"a condition check", filler(1500), "TransactWriteItems", `"TransactItems": [{"ConditionCheck": {"TableName": "main", "Key": ` + mainItem("p", "s", "") + `, "ConditionExpression": "attribute_exists(pk)"}}]`, "main r0 w4"},
		{"a cancelled transaction", index, "TransactWriteItems", `"TransactItems": [{"Delete": {"TableName": "main", "Key": ` + mainItem("p", "s", "") + `, "ConditionExpression": "attribute_not_exists(pk)"}}]`, "main r0 w2"},
	} {
		f := newFixture(t)
		f.createMain()
		if c.before != "" {
			f.put("p", "s", c.before)
		}
		table := `"TableName": "main", `
		if c.op == "TransactWriteItems" {
			table = ""
		}
		response := f.send(c.op, `{`+table+c.body+`}`)
		if got := usageText(response.Usage); got != c.want {
			t.Errorf("%s: %s, want %s (%s)", c.name, got, c.want, response.Body)
		}
	}
}

func TestReadsAreBilledByAWSsRules(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	f.put("p", "4", filler(4096))
	f.put("p", "5", filler(4097))
	for i := range 3 {
		f.put("q", fmt.Sprint(i), `"g": {"S": "g"}, "n": {"N": "1"}, `+strings.Replace(filler(1500), `"f"`, `"h"`, 1))
	}
	key := func(sk string) string { return `"Key": ` + mainItem("p", sk, "") }
	const q = `"KeyConditionExpression": "pk = :p", "ExpressionAttributeValues": {":p": {"S": "q"}}`
	for _, c := range []struct{ op, body, want string }{
		{"GetItem", key("4") + `, "ConsistentRead": true`, "main r1 w0"},
		{"GetItem", key("5") + `, "ConsistentRead": true`, "main r2 w0"},
		{"GetItem", key("5"), "main r1 w0"},
		{"GetItem", key("5") + `, "ProjectionExpression": "pk"`, "main r1 w0"},
		{"GetItem", key("absent"), "main r0.5 w0"},
		{"GetItem", key("absent") + `, "ConsistentRead": true`, "main r1 w0"},
		{"Query", q + `, "ConsistentRead": true`, "main r2 w0"},
		{"Query", q, "main r1 w0"},
		{"Query", q + `, "FilterExpression": "attribute_exists(nope)"`, "main r1 w0"},
		{"Query", `"KeyConditionExpression": "pk = :p", "ExpressionAttributeValues": {":p": {"S": "none"}}`, "main r0.5 w0"},
		{"Query", q + `, "IndexName": "byNumber", "ConsistentRead": true`, "main/byNumber r1 w0"},
		{"Query", q + `, "IndexName": "byNumber", "ConsistentRead": true, "Select": "ALL_ATTRIBUTES"`, "main r3 w0, main/byNumber r1 w0"},
		{"Query", `"IndexName": "byGroup", "KeyConditionExpression": "g = :p", "ExpressionAttributeValues": {":p": {"S": "g"}}`, "main/byGroup r1 w0"},
	} {
		response := f.send(c.op, `{"TableName": "main", `+c.body+`}`)
		if got := usageText(response.Usage); got != c.want {
			t.Errorf("%s %s: %s, want %s (%s)", c.op, c.body, got, c.want, response.Body)
		}
	}
	keys := mainItem("p", "4", "") + "," + mainItem("p", "5", "") + "," + mainItem("p", "absent", "")
	response := f.send("BatchGetItem", `{"RequestItems": {"main": {"ConsistentRead": true, "Keys": [`+keys+`]}}}`)
	if got := usageText(response.Usage); got != "main r4 w0" {
		t.Errorf("batch: %s", got)
	}
	get := func(sk string) string { return `{"Get": {"TableName": "main", ` + key(sk) + `}}` }
	response = f.send("TransactGetItems", `{"TransactItems": [`+get("4")+`,`+get("5")+`,`+get("absent")+`]}`)
	if got := usageText(response.Usage); got != "main r8 w0" {
		t.Errorf("transaction: %s", got)
	}
}

func TestConsumedCapacityIsReturnedAsAsked(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	const item = `"g": {"S": "g"}, "n": {"N": "1"}`
	put := func(mode string) any {
		f.do("DeleteItem", `{"TableName": "main", "Key": `+mainItem("p", "s", "")+`}`)
		return f.do("PutItem", `{"TableName": "main", "ReturnConsumedCapacity": "`+mode+`", "Item": `+mainItem("p", "s", item)+`}`)["ConsumedCapacity"]
	}
	if got := put("NONE"); got != nil {
		t.Errorf("NONE: %v", got)
	}
	sameJSON(t, "TOTAL", put("TOTAL"), `{"TableName": "main", "CapacityUnits": 3.0}`)
	sameJSON(t, "INDEXES", put("INDEXES"), `{"TableName": "main", "CapacityUnits": 3.0, "Table": {"CapacityUnits": 1.0},
		"LocalSecondaryIndexes": {"byNumber": {"CapacityUnits": 1.0}}, "GlobalSecondaryIndexes": {"byGroup": {"CapacityUnits": 1.0}}}`)
	got := f.do("Query", `{"TableName": "main", "IndexName": "byGroup", "ReturnConsumedCapacity": "INDEXES", "KeyConditionExpression": "g = :g", "ExpressionAttributeValues": {":g": {"S": "g"}}}`)
	sameJSON(t, "query", got["ConsumedCapacity"], `{"TableName": "main", "CapacityUnits": 0.5, "Table": {"CapacityUnits": 0.0}, "GlobalSecondaryIndexes": {"byGroup": {"CapacityUnits": 0.5}}}`)
	got = f.do("TransactWriteItems", `{"ReturnConsumedCapacity": "TOTAL", "TransactItems": [{"Delete": {"TableName": "main", "Key": `+mainItem("p", "s", "")+`}}]}`)
	sameJSON(t, "transaction", got["ConsumedCapacity"], `[{"TableName": "main", "CapacityUnits": 4.0, "WriteCapacityUnits": 4.0}]`)
	got = f.do("BatchWriteItem", `{"ReturnConsumedCapacity": "TOTAL", "RequestItems": {"main": [{"PutRequest": {"Item": `+mainItem("p", "s", "")+`}}]}}`)
	sameJSON(t, "batch", got["ConsumedCapacity"], `[{"TableName": "main", "CapacityUnits": 1.0}]`)
}
