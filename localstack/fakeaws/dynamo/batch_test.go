package dynamo

import (
	"fmt"
	"strings"
	"testing"
)

func batchOf(requests ...string) string {
	return `{"RequestItems": {"main": [` + strings.Join(requests, ", ") + `]}}`
}

func batchPut(sk, rest string) string {
	return `{"PutRequest": {"Item": ` + mainItem("b", sk, rest) + `}}`
}

func TestBatchesWriteAndRead(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	f.put("b", "gone", "")
	got := f.do("BatchWriteItem", batchOf(batchPut("1", `"a": {"N": "1"}`), batchPut("2", ""), `{"DeleteRequest": {"Key": `+mainItem("b", "gone", "")+`}}`))
	sameJSON(t, "answer", got, `{"UnprocessedItems": {}}`)
	got = f.do("BatchGetItem", `{"RequestItems": {"main": {"Keys": [`+mainItem("b", "2", "")+`, `+mainItem("b", "gone", "")+`, `+mainItem("b", "1", "")+`], "ProjectionExpression": "sk, a"}}}`)
	sameJSON(t, "responses", got, `{"Responses": {"main": [{"sk": {"S": "2"}}, {"sk": {"S": "1"}, "a": {"N": "1"}}]}, "UnprocessedKeys": {}}`)
}

func TestABatchReadsSixteenMegabytesAtMost(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	var keys []string
	for i := range 50 {
		f.put("b", fmt.Sprint(i), `"f": {"S": "`+strings.Repeat("x", 390_000)+`"}`)
		keys = append(keys, mainItem("b", fmt.Sprint(i), ""))
	}
	got := f.do("BatchGetItem", `{"RequestItems": {"main": {"ConsistentRead": true, "ProjectionExpression": "#s", "ExpressionAttributeNames": {"#s": "sk"}, "Keys": [`+strings.Join(keys, ", ")+`]}}}`)
	read := len(got["Responses"].(map[string]any)["main"].([]any))
	rest := got["UnprocessedKeys"].(map[string]any)["main"].(map[string]any)
	left := len(rest["Keys"].([]any))
	if read != maxBatchReadBytes/390_000 || read+left != 50 {
		t.Errorf("%d read, %d left", read, left)
	}
	delete(rest, "Keys")
	sameJSON(t, "the rest of the request", any(rest), `{"ConsistentRead": true, "ProjectionExpression": "#s", "ExpressionAttributeNames": {"#s": "sk"}}`)
}

func TestBatchesThatDynamoDBRefuses(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	var puts, keys []string
	for i := range 101 {
		puts = append(puts, batchPut(fmt.Sprint(i), ""))
		keys = append(keys, mainItem("b", fmt.Sprint(i), ""))
	}
	get := func(body string) string { return `{"RequestItems": {"main": {` + body + `}}}` }
	for _, c := range []struct{ op, body, code, message string }{
		{"BatchWriteItem", `{}`, codeValidation, "'requestItems'"},
		{"BatchWriteItem", `{"RequestItems": {}}`, codeValidation, "'requestItems'"},
		{"BatchWriteItem", batchOf(puts[:26]...), codeValidation, "Too many items requested for the BatchWriteItem call"},
		{"BatchWriteItem", batchOf(puts[0], puts[0]), codeValidation, "Provided list of item keys contains duplicates"},
		{"BatchWriteItem", batchOf(puts[0], `{"DeleteRequest": {"Key": `+keys[0]+`}}`), codeValidation, "Provided list of item keys contains duplicates"},
		{"BatchWriteItem", batchOf(`{}`), codeValidation, "exactly one of PutRequest and DeleteRequest"},
		{"BatchWriteItem", batchOf(puts[0], batchPut("x", `"g": {"N": "1"}`)), codeValidation, "Type mismatch for Index Key g"},
		{"BatchWriteItem", `{"RequestItems": {"nope": [` + puts[0] + `]}}`, codeNotFound, "Requested resource not found"},
		{"BatchWriteItem", `{"RequestItems": []}`, codeSerialization, ""},
		{"BatchGetItem", `{}`, codeValidation, "'requestItems'"},
		{"BatchGetItem", get(`"Keys": [` + strings.Join(keys, ", ") + `]`), codeValidation, "Too many items requested for the BatchGetItem call"},
		{"BatchGetItem", get(`"Keys": [` + keys[0] + `, ` + keys[0] + `]`), codeValidation, "Provided list of item keys contains duplicates"},
		{"BatchGetItem", get(`"Keys": []`), codeValidation, "length greater than or equal to 1"},
		{"BatchGetItem", get(``), codeValidation, "keys"},
		{"BatchGetItem", get(`"Keys": [{"pk": {"S": "b"}}]`), codeValidation, "does not match the schema"},
		{"BatchGetItem", get(`"Keys": [` + keys[0] + `], "AttributesToGet": ["a"]`), codeValidation, "legacy parameter AttributesToGet"},
		{"BatchGetItem", get(`"Keys": [` + keys[0] + `], "ExpressionAttributeNames": {"#a": "a"}`), codeValidation, "can only be specified when using expressions"},
	} {
		f.refuse(c.op, c.body, c.code, c.message)
	}
	if f.get("b", "0") != nil {
		t.Error("a refused batch wrote something")
	}
}
