package dynamo

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestItemsComeBackAsTheyWerePut(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	const all = `"s": {"S": "h\u00e9llo \"\\\n\u0001\ud83d\ude00"}, "num": {"N": "-1.5"}, "b": {"B": "AAH/"}, "yes": {"BOOL": true}, "no": {"BOOL": false}, "nil": {"NULL": true},
		"m": {"M": {"x": {"N": "1"}, "y": {"M": {}}}}, "l": {"L": [{"N": "1"}, {"S": ""}, {"L": []}]}, "ss": {"SS": ["a", "b"]}, "ns": {"NS": ["-1", "2.5"]}, "bs": {"BS": ["AQ==", "Ag=="]}, "e": {"S": ""}, "eb": {"B": ""}`
	f.put("p", "1", all)
	sameJSON(t, "item", f.get("p", "1"), mainItem("p", "1", all))
	old := f.do("PutItem", `{"TableName": "main", "Item": `+mainItem("p", "1", "")+`, "ReturnValues": "ALL_OLD"}`)
	sameJSON(t, "replaced item", old["Attributes"], mainItem("p", "1", all))
	old = f.do("DeleteItem", `{"TableName": "main", "Key": `+mainItem("p", "1", "")+`, "ReturnValues": "ALL_OLD"}`)
	sameJSON(t, "deleted item", old["Attributes"], mainItem("p", "1", ""))
	if f.get("p", "1") != nil {
		t.Error("the deleted item is still there")
	}
	if _, found := f.do("DeleteItem", `{"TableName": "main", "Key": `+mainItem("p", "1", "")+`, "ReturnValues": "ALL_OLD"}`)["Attributes"]; found {
		t.Error("deleting nothing returned attributes")
	}
}

func TestItemsThatDynamoDBRefuses(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	deep := strings.Repeat(`{"L": [`, 33) + `{"N": "1"}` + strings.Repeat(`]}`, 33)
	for item, message := range map[string]string{
		`{"pk": {"S": "a"}}`:                                                     "Missing the key sk in the item",
		`{"pk": {"S": "a"}, "sk": {"N": "1"}}`:                                   "Type mismatch for key sk expected: S actual: N",
		`{"pk": {"S": ""}, "sk": {"S": "1"}}`:                                    "cannot contain an empty string value. Key: pk",
		mainItem("a", strings.Repeat("x", 1025), ""):                             "Aggregated size of all range keys has exceeded the size limit of 1024 bytes",
		mainItem(strings.Repeat("x", 2049), "b", ""):                             "Size of hashkey has exceeded the maximum size limit of2048 bytes",
		mainItem("a", "b", `"g": {"N": "1"}`):                                    "Type mismatch for Index Key g Expected: S Actual: N IndexName: byGroup",
		mainItem("a", "b", `"n": {"S": "1"}`):                                    "Type mismatch for Index Key n Expected: N Actual: S IndexName: byNumber",
		mainItem("a", "b", `"g": {"S": ""}`):                                     "cannot contain an empty string value. IndexName: byGroup, IndexKey: g",
		mainItem("a", "b", `"name": {"B": ""}`):                                  "cannot contain an empty binary value. IndexName: byName, IndexKey: name",
		mainItem("a", "b", `"x": {"SS": []}`):                                    "may not contain an empty set",
		mainItem("a", "b", `"x": {"SS": ["a", "a"]}`):                            "contains duplicates",
		mainItem("a", "b", `"x": {"NS": ["1", "1.0"]}`):                          "Input collection contains duplicates",
		mainItem("a", "b", `"x": {"SS": ["a", ""]}`):                             "may not have a empty string as a member",
		mainItem("a", "b", `"x": {"BS": [""]}`):                                  "may not contain null or empty values",
		mainItem("a", "b", `"x": {"SS": [null]}`):                                "may not contain a null member",
		mainItem("a", "b", `"x": {}`):                                            "Supplied AttributeValue is empty",
		mainItem("a", "b", `"x": null`):                                          "Supplied AttributeValue is empty",
		mainItem("a", "b", `"x": {"S": null}`):                                   "Supplied AttributeValue is empty",
		mainItem("a", "b", `"x": {"S": "a", "N": "1"}`):                          "has more than one datatypes set",
		mainItem("a", "b", `"x": {"N": "one"}`):                                  "cannot be converted to a numeric value: one",
		mainItem("a", "b", `"x": {"NULL": false}`):                               "Null attribute value types must have the value of true",
		mainItem("a", "b", `"": {"S": "a"}`):                                     "attribute name may not be empty",
		mainItem("a", "b", `"x": `+deep):                                         "Nesting Levels have exceeded supported limits",
		mainItem("a", "b", `"x": {"S": "`+strings.Repeat("y", maxItemSize)+`"}`): "Item size has exceeded the maximum allowed size",
		mainItem("a", "b", `"`+strings.Repeat("n", 65536)+`": {"S": "y"}`):       "must be less than 65536 bytes",
	} {
		f.refuse("PutItem", `{"TableName": "main", "Item": `+item+`}`, codeValidation, message)
	}
	f.put("a", "b", `"x": `+strings.Repeat(`{"L": [`, 32)+`{"N": "1"}`+strings.Repeat(`]}`, 32))
	f.put("a", strings.Repeat("x", 1024), `"x": {"S": "`+strings.Repeat("y", maxItemSize-2-1-2-1024-1)+`"}`)
}

func TestKeysThatDynamoDBRefuses(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	for key, message := range map[string]string{
		`{"pk": {"S": "a"}}`:                                    "The provided key element does not match the schema",
		`{"pk": {"S": "a"}, "sk": {"N": "1"}}`:                  "The provided key element does not match the schema",
		`{"pk": {"S": "a"}, "sk": {"S": "b"}, "x": {"S": "c"}}`: "The provided key element does not match the schema",
		`{"pk": {"S": "a"}, "sk": {"S": ""}}`:                   "cannot contain an empty string value. Key: sk",
		mainItem("a", strings.Repeat("x", 1025), ""):            "exceeded the size limit of 1024 bytes",
	} {
		for _, op := range []string{"GetItem", "DeleteItem", "UpdateItem"} {
			f.refuse(op, `{"TableName": "main", "Key": `+key+`}`, codeValidation, message)
		}
	}
}

func TestParametersThatDynamoDBRefuses(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	key := `"TableName": "main", "Key": ` + mainItem("a", "b", "")
	for _, c := range []struct{ op, body, code, message string }{
		{"PutItem", `{"Item": {"pk": {"S": "a"}}}`, codeValidation, "Value null at 'tableName'"},
		{"PutItem", `{"TableName": "main"}`, codeValidation, "Value null at 'item'"},
		{"GetItem", `{"TableName": "main"}`, codeValidation, "Value null at 'key'"},
		{"GetItem", `{"TableName": "nope", "Key": {"pk": {"S": "a"}}}`, codeNotFound, "Requested resource not found"},
		{"GetItem", `{"TableName": "x", "Key": {"pk": {"S": "a"}}}`, codeValidation, "length greater than or equal to 3"},
		{"GetItem", `{"TableName": "a/b", "Key": {"pk": {"S": "a"}}}`, codeValidation, "regular expression pattern"},
		{"PutItem", `{"TableName": "main", "Item": ` + mainItem("a", "b", "") + `, "ReturnValues": "ALL_NEW"}`, codeValidation, "ReturnValues can only be ALL_OLD or NONE"},
		{"PutItem", `{"TableName": "main", "Item": ` + mainItem("a", "b", "") + `, "ReturnValues": "DOG"}`, codeValidation, "Value 'DOG' at 'returnValues' failed to satisfy constraint: Member must satisfy enum value set: [NONE, ALL_OLD"},
		{"DeleteItem", `{` + key + `, "ReturnValues": "UPDATED_NEW"}`, codeValidation, "ReturnValues can only be"},
		{"UpdateItem", `{` + key + `, "ReturnValuesOnConditionCheckFailure": "none"}`, codeValidation, "returnValuesOnConditionCheckFailure"},
		{"UpdateItem", `{` + key + `, "ReturnConsumedCapacity": "SOME"}`, codeValidation, "returnConsumedCapacity"},
		{"UpdateItem", `{` + key + `, "ReturnItemCollectionMetrics": "SIZE"}`, codeUnsupported, "ReturnItemCollectionMetrics=SIZE"},
		{"UpdateItem", `{` + key + `, "AttributeUpdates": {}}`, codeValidation, "legacy parameter AttributeUpdates"},
		{"PutItem", `{"TableName": "main", "Item": ` + mainItem("a", "b", "") + `, "Expected": {"a": {"Exists": false}}}`, codeValidation, "legacy parameter Expected"},
		{"DeleteItem", `{` + key + `, "ConditionalOperator": "AND"}`, codeValidation, "legacy parameter ConditionalOperator"},
		{"GetItem", `{` + key + `, "AttributesToGet": ["a"]}`, codeValidation, "legacy parameter AttributesToGet"},
		{"Query", `{"TableName": "main", "KeyConditions": {}}`, codeValidation, "legacy parameter KeyConditions"},
		{"Query", `{"TableName": "main", "QueryFilter": {}}`, codeValidation, "legacy parameter QueryFilter"},
		{"Scan", `{"TableName": "main", "ScanFilter": {}}`, codeValidation, "legacy parameter ScanFilter"},
		{"ExecuteStatement", `{"Statement": "SELECT * FROM main"}`, codeUnsupported, "UnsupportedOperation: ExecuteStatement"},
		{"TagResource", `{}`, codeUnsupported, "UnsupportedOperation: TagResource"},
	} {
		f.refuse(c.op, c.body, c.code, c.message)
	}
}

func TestMalformedRequestsAreSerializationErrors(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	for body, message := range map[string]string{
		``: "", `{`: "", `null`: "", `[]`: "", `"x"`: "", `{} {}`: "", `{"TableName": }`: "", `{"TableName": "main",}`: "", `{"TableName" "main"}`: "", `{x: 1}`: "",
		"{\"TableName\": \"ma\nin\"}": "", `{"TableName": "\x"}`: "", `{"TableName": "\u12"}`: "", "{\"TableName\": \"\xff\"}": "not UTF-8", `{"TableName": "main`: "",
		`{"TableName": 1}`:                              "NUMBER_VALUE cannot be converted to String",
		`{"TableName": true}`:                           "TRUE_VALUE cannot be converted to String",
		`{"TableName": {}}`:                             "Start of structure or map found where not expected",
		`{"TableName": []}`:                             "start of list found",
		`{"Item": []}`:                                  "start of list found",
		`{"Item": "x"}`:                                 "STRING_VALUE cannot be converted to map",
		`{"Item": {"a": "x"}}`:                          "STRING_VALUE cannot be converted to map",
		`{"Item": {"a": {"S": 1}}}`:                     "NUMBER_VALUE cannot be converted to String",
		`{"Item": {"a": {"N": 1}}}`:                     "NUMBER_VALUE cannot be converted to String",
		`{"Item": {"a": {"BOOL": "true"}}}`:             "STRING_VALUE cannot be converted to Boolean",
		`{"Item": {"a": {"B": "x"}}}`:                   "not valid Base64",
		`{"Item": {"a": {"L": {}}}}`:                    "Start of structure or map found where not expected",
		`{"Item": {"a": {"M": []}}}`:                    "start of list found",
		`{"Item": {"a": {"SS": "a"}}}`:                  "STRING_VALUE cannot be converted to list",
		`{"ExpressionAttributeNames": {"#a": 7}}`:       "NUMBER_VALUE cannot be converted to String",
		`{"ExpressionAttributeValues": []}`:             "start of list found",
		`{"Unknown": ` + strings.Repeat("[", 200) + `}`: "nested too deeply",
	} {
		f.refuse("PutItem", body, codeSerialization, message)
	}
	f.refuse("GetItem", `{"ConsistentRead": 1}`, codeSerialization, "NUMBER_VALUE cannot be converted to Boolean")
	f.refuse("Query", `{"Limit": "1"}`, codeSerialization, "STRING_VALUE cannot be converted to Integer")
	for _, number := range []string{"01", "1.", "-", "1e", "1-1"} {
		f.refuse("Query", `{"Limit": `+number+`}`, codeSerialization, "malformed")
	}
	f.refuse("CreateTable", `{"TableName": 1}`, codeSerialization, "")
	f.do("PutItem", ` { "Unknown" : [1, -2.5e3, {"a": null}, true, false] , "TableName":"main","Item":`+mainItem("a", "b", "")+"}\n")
}

func TestOtherRequestsAreUnknown(t *testing.T) {
	f := newFixture(t)
	for _, r := range []*http.Request{
		httptest.NewRequest(http.MethodPost, "/", nil),
		httptest.NewRequest(http.MethodGet, "/", nil),
	} {
		if response := f.Serve(r, nil); response.ErrorCode != codeUnknownOperation || response.Status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", r.Method, response.Status, response.Body)
		}
	}
	r := request("DescribeStream")
	r.Header.Set(targetHeader, streamsPrefix+"GetRecords")
	if response := f.Serve(r, []byte(`{}`)); response.ErrorCode != codeUnsupported || !strings.Contains(string(response.Body), "GetRecords") {
		t.Errorf("streams: %s", response.Body)
	}
}

func TestAFailedConditionTellsTheItemThatFailedIt(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	f.put("p", "1", `"v": {"S": "one"}`)
	const fails = `"ConditionExpression": "v = :x", "ExpressionAttributeValues": {":x": {"S": "two"}}`
	for op, body := range map[string]string{
		"PutItem":    `{"TableName": "main", "Item": ` + mainItem("p", "%s", "") + `, ` + fails,
		"UpdateItem": `{"TableName": "main", "Key": ` + mainItem("p", "%s", "") + `, ` + fails,
		"DeleteItem": `{"TableName": "main", "Key": ` + mainItem("p", "%s", "") + `, ` + fails,
	} {
		response := f.refuse(op, fmt.Sprintf(body, "1")+`, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}`, codeConditionFailed, "The conditional request failed")
		sameJSON(t, op, decode(t, response.Body)["Item"], mainItem("p", "1", `"v": {"S": "one"}`))
		for _, rest := range []string{`}`, `, "ReturnValuesOnConditionCheckFailure": "NONE"}`} {
			response = f.refuse(op, fmt.Sprintf(body, "1")+rest, codeConditionFailed, "")
			if _, found := decode(t, response.Body)["Item"]; found {
				t.Errorf("%s returned an item unasked", op)
			}
		}
		response = f.refuse(op, fmt.Sprintf(body, "absent")+`, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}`, codeConditionFailed, "")
		if _, found := decode(t, response.Body)["Item"]; found {
			t.Errorf("%s returned an item that is not there", op)
		}
	}
	sameJSON(t, "the item is untouched", f.get("p", "1"), mainItem("p", "1", `"v": {"S": "one"}`))
}

func TestGetItemProjects(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	f.put("p", "1", `"a": {"N": "1"}, "m": {"M": {"x": {"N": "1"}, "y": {"N": "2"}}}, "l": {"L": [{"N": "0"}, {"N": "1"}, {"M": {"k": {"N": "2"}, "z": {"N": "3"}}}]}`)
	for expression, want := range map[string]string{
		"a":                       `{"a": {"N": "1"}}`,
		"#p, m.y":                 `{"pk": {"S": "p"}, "m": {"M": {"y": {"N": "2"}}}}`,
		"l[2].k, l[0]":            `{"l": {"L": [{"N": "0"}, {"M": {"k": {"N": "2"}}}]}}`,
		"nope, m.nope, l[9], a.x": `{}`,
		"m.x, m.y":                `{"m": {"M": {"x": {"N": "1"}, "y": {"N": "2"}}}}`,
	} {
		names := ""
		if strings.Contains(expression, "#p") {
			names = `, "ExpressionAttributeNames": {"#p": "pk"}`
		}
		got := f.do("GetItem", `{"TableName": "main", "Key": `+mainItem("p", "1", "")+`, "ProjectionExpression": "`+expression+`"`+names+`}`)
		sameJSON(t, expression, got["Item"], want)
	}
	if _, found := f.do("GetItem", `{"TableName": "main", "Key": `+mainItem("p", "absent", "")+`}`)["Item"]; found {
		t.Error("an absent item was returned")
	}
}
