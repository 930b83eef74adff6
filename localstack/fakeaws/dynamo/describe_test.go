package dynamo

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestDescribeNamesTableKeysAndIndex(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	f.do("CreateTable", `{"TableName": "simple", "BillingMode": "PAY_PER_REQUEST", "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "N"}], "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}]}`)
	for _, c := range []struct{ op, body, want string }{
		{"GetItem", `{"TableName": "main", "Key": ` + mainItem("a", "b", "") + `}`, "main [a/b] "},
		{"PutItem", `{"Item": ` + mainItem("a", `x\"y`, `"m": {"M": {"pk": {"S": "no"}}}`) + `, "TableName": "main", "ReturnValues": "NONE"}`, `main [a/x"y] `},
		{"DeleteItem", `{"Key": {"id": {"N": "17"}}, "TableName": "simple"}`, "simple [17] "},
		{"Query", `{"IndexName": "byGroup", "TableName": "main"}`, "main [] byGroup"},
		{"CreateTable", `{"TableName": "new"}`, "new [] "},
		{"BatchGetItem", `{"RequestItems": {"main": {"ConsistentRead": true, "Keys": [` + mainItem("a", "b", "") + `, ` + mainItem("c", "d", "") + `]}, "simple": {"Keys": [{"id": {"N": "1"}}]}}}`, "main [a/b c/d 1] "},
		{"BatchWriteItem", `{"RequestItems": {"main": [` + batchPut("1", "") + `, {"DeleteRequest": {"Key": ` + mainItem("b", "2", "") + `}}]}}`, "main [b/1 b/2] "},
		{"TransactWriteItems", `{"ClientRequestToken": "t", ` + tx(txPut("1", "", ""), `{"Update": {"Key": `+mainItem("t", "2", "")+`, "TableName": "main"}}`)[1:], "main [t/1 t/2] "},
		{"TransactGetItems", tx(`{"Get": {"Key": ` + mainItem("t", "2", "") + `, "TableName": "main"}}`), "main [t/2] "},
		{"GetItem", `{"TableName": "nope", "Key": {"pk": {"S": "a"}}}`, "nope [] "},
		{"GetItem", `{"TableName": "main", "Key": {"pk": {"S": "a"}, "sk": 7}}`, "main [a/] "},
		{"GetItem", `{"TableName": 1, "Key": []}`, " [] "},
		{"GetItem", `{`, " [] "},
		{"TransactWriteItems", `{"TransactItems": [1, {"Put": 2}]}`, " [] "},
	} {
		call := f.Describe(request(c.op), []byte(c.body))
		if got := fmt.Sprintf("%s %v %s", call.Resource, call.Keys, call.Index); got != c.want || call.Op != c.op || call.Service != "dynamodb" {
			t.Errorf("%s %s: %s %q, want %q", c.op, c.body, call.Op, got, c.want)
		}
	}
	if call := f.Describe(httptest.NewRequest(http.MethodGet, "/", nil), nil); call.Op != "" {
		t.Errorf("a request without target: %+v", call)
	}
}
