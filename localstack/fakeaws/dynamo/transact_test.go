package dynamo

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

func tx(actions ...string) string {
	return `{"TransactItems": [` + strings.Join(actions, ", ") + `]}`
}

func txPut(sk, rest, more string) string {
	return `{"Put": {"TableName": "main", "Item": ` + mainItem("t", sk, rest) + more + `}}`
}

const mustNotExist = `, "ConditionExpression": "attribute_not_exists(pk)"`

func TestATransactionTakesEffectAsAWhole(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	f.put("t", "u", `"v": {"N": "1"}`)
	f.put("t", "d", "")
	f.put("t", "c", `"v": {"N": "1"}`)
	key := func(sk string) string { return `"TableName": "main", "Key": ` + mainItem("t", sk, "") }
	f.do("TransactWriteItems", tx(txPut("p", "", mustNotExist),
		`{"Update": {`+key("u")+`, "UpdateExpression": "ADD v :one", "ExpressionAttributeValues": {":one": {"N": "1"}}}}`,
		`{"Delete": {`+key("d")+`}}`,
		`{"ConditionCheck": {`+key("c")+`, "ConditionExpression": "v = :one", "ExpressionAttributeValues": {":one": {"N": "1"}}}}`))
	sameJSON(t, "put", f.get("t", "p"), mainItem("t", "p", ""))
	sameJSON(t, "update", f.get("t", "u"), mainItem("t", "u", `"v": {"N": "2"}`))
	if f.get("t", "d") != nil {
		t.Error("the deleted item is still there")
	}
	sameJSON(t, "check", f.get("t", "c"), mainItem("t", "c", `"v": {"N": "1"}`))
}

func TestACancelledTransactionTellsAReasonForEachAction(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	f.put("t", "b", `"v": {"S": "x"}`)
	response := f.refuse("TransactWriteItems", tx(txPut("a", "", ""),
		txPut("b", "", mustNotExist+`, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"`),
		`{"ConditionCheck": {"TableName": "main", "Key": `+mainItem("t", "c", "")+`, "ConditionExpression": "attribute_exists(pk)", "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}}`),
		codeCanceled, "please refer cancellation reasons for specific reasons [None, ConditionalCheckFailed, ConditionalCheckFailed]")
	sameJSON(t, "reasons", decode(t, response.Body)["CancellationReasons"], `[{"Code": "None"},
		{"Code": "ConditionalCheckFailed", "Message": "The conditional request failed", "Item": `+mainItem("t", "b", `"v": {"S": "x"}`)+`},
		{"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}]`)

	update := `{"Update": {"TableName": "main", "Key": ` + mainItem("t", "b", "") + `, "UpdateExpression": "SET v = v + :one", "ExpressionAttributeValues": {":one": {"N": "1"}}}}`
	f.refuse("TransactWriteItems", tx(txPut("a", "", ""), update), codeCanceled, "[None, ValidationError]")

	// An invalid key ends the search: conditions after it are not looked at.
	response = f.refuse("TransactWriteItems", tx(`{"Put": {"TableName": "main", "Item": {"pk": {"S": "t"}, "sk": {"N": "1"}}}}`, txPut("b", "", mustNotExist)), codeCanceled, "[ValidationError, None]")
	if !strings.Contains(string(response.Body), "Type mismatch for key sk") {
		t.Errorf("reason: %s", response.Body)
	}
	if f.get("t", "a") != nil {
		t.Error("a cancelled transaction wrote something")
	}
}

func TestTransactionsThatDynamoDBRefuses(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	var many []string
	for i := range 101 {
		many = append(many, txPut(fmt.Sprint(i), "", ""))
	}
	var large []string
	for i := range 11 {
		large = append(large, txPut(fmt.Sprint(i), `"v": {"S": "`+strings.Repeat("x", 390_000)+`"}`, ""))
	}
	for _, c := range []struct{ body, code, message string }{
		{`{}`, codeValidation, "Value null at 'transactItems'"},
		{tx(), codeValidation, "length greater than or equal to 1"},
		{tx(many...), codeValidation, "length less than or equal to 100"},
		{tx(large...), codeValidation, "payload size cannot exceed"},
		{tx(`{}`), codeValidation, "can only contain one of Check, Put, Update or Delete"},
		{tx(`{"Put": {"TableName": "main", "Item": ` + mainItem("t", "1", "") + `}, "Delete": {"TableName": "main", "Key": ` + mainItem("t", "2", "") + `}}`), codeValidation, "can only contain one of"},
		{tx(txPut("1", "", ""), txPut("1", "", "")), codeValidation, "cannot include multiple operations on one item"},
		{tx(`{"Update": {"TableName": "main", "Key": ` + mainItem("t", "1", "") + `}}`), codeValidation, "'transactItems.1.member.update.updateExpression'"},
		{tx(`{"ConditionCheck": {"TableName": "main", "Key": ` + mainItem("t", "1", "") + `}}`), codeValidation, "conditionExpression"},
		{tx(txPut("1", "", `, "ConditionExpression": "a = :x"`)), codeValidation, ":x"},
		{tx(txPut("1", "", `, "ReturnValuesOnConditionCheckFailure": "none"`)), codeValidation, "returnValuesOnConditionCheckFailure"},
		{tx(`{"Put": {"TableName": "nope", "Item": {"a": {"S": "b"}}}}`), codeNotFound, "Requested resource not found"},
		{`{"ClientRequestToken": "` + strings.Repeat("t", 37) + `", ` + tx(txPut("1", "", ""))[1:], codeValidation, "clientRequestToken"},
		{`{"ClientRequestToken": "", ` + tx(txPut("1", "", ""))[1:], codeValidation, "clientRequestToken"},
	} {
		f.refuse("TransactWriteItems", c.body, c.code, c.message)
	}
	get := `{"Get": {"TableName": "main", "Key": ` + mainItem("t", "1", "") + `}}`
	f.refuse("TransactGetItems", tx(get, get), codeValidation, "cannot include multiple operations on one item")
	f.refuse("TransactGetItems", tx(`{"Get": {"TableName": "main", "Key": {"pk": {"S": "t"}}}}`), codeCanceled, "[ValidationError]")
	f.refuse("TransactGetItems", tx(`{}`), codeValidation, "tableName")
	f.do("TransactWriteItems", tx(many[:100]...))
}

func TestATokenMakesATransactionIdempotentForTenMinutes(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	add := func(token, n string) string {
		return `{"ClientRequestToken": "` + token + `", "ReturnConsumedCapacity": "TOTAL", ` +
			tx(`{"Update": {"TableName": "main", "Key": ` + mainItem("t", "n", "") + `, "UpdateExpression": "ADD v :n, w :m", "ExpressionAttributeValues": {":n": {"N": "` + n + `"}, ":m": {"N": "0"}}}}`)[1:]
	}
	reordered := strings.Replace(add("one", "1"), `":n": {"N": "1"}, ":m": {"N": "0"}`, `":m": {"N": "0.0"}, ":n": {"N": "1"}`, 1)
	first := f.do("TransactWriteItems", add("one", "1"))
	sameJSON(t, "first", first["ConsumedCapacity"], `[{"TableName": "main", "CapacityUnits": 2.0, "WriteCapacityUnits": 2.0}]`)
	again := f.do("TransactWriteItems", reordered)
	sameJSON(t, "replay", again["ConsumedCapacity"], `[{"TableName": "main", "CapacityUnits": 2.0, "ReadCapacityUnits": 2.0}]`)
	f.refuse("TransactWriteItems", add("one", "2"), codeTokenMismatch, "same client token")
	f.do("TransactWriteItems", add("two", "1"))
	sameJSON(t, "applied once a token", f.get("t", "n"), mainItem("t", "n", `"v": {"N": "2"}, "w": {"N": "0"}`))

	f.pass(10*time.Minute - time.Second)
	f.do("TransactWriteItems", add("one", "1"))
	sameJSON(t, "still known", f.get("t", "n"), mainItem("t", "n", `"v": {"N": "2"}, "w": {"N": "0"}`))
	f.pass(time.Second)
	f.do("TransactWriteItems", add("one", "5"))
	sameJSON(t, "a new request", f.get("t", "n"), mainItem("t", "n", `"v": {"N": "7"}, "w": {"N": "0"}`))

	failing := `{"ClientRequestToken": "three", ` + tx(txPut("n", "", mustNotExist))[1:]
	f.refuse("TransactWriteItems", failing, codeCanceled, "")
	f.do("DeleteItem", `{"TableName": "main", "Key": `+mainItem("t", "n", "")+`}`)
	f.do("TransactWriteItems", failing)
}

func TestExpiredTokensAreForgotten(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	for i := range 1000 {
		f.do("TransactWriteItems", fmt.Sprintf(`{"ClientRequestToken": "token-%d", %s`, i, tx(txPut("x", "", ""))[1:]))
		f.pass(time.Minute)
	}
	if n := len(f.tokens.used); n > 11 {
		t.Errorf("%d tokens kept", n)
	}
}

func TestTransactGetReadsInOrder(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	f.put("t", "1", `"a": {"N": "1"}, "b": {"N": "2"}`)
	get := func(sk, more string) string {
		return `{"Get": {"TableName": "main", "Key": ` + mainItem("t", sk, "") + more + `}}`
	}
	got := f.do("TransactGetItems", tx(get("absent", ""), get("1", `, "ProjectionExpression": "#x", "ExpressionAttributeNames": {"#x": "b"}`)))
	sameJSON(t, "responses", got["Responses"], `[{}, {"Item": {"b": {"N": "2"}}}]`)
}

// TestReadersNeverSeeHalfATransaction moves an amount between items while
// others add it up; with -race it also checks that items are shared safely.
func TestReadersNeverSeeHalfATransaction(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	for i := range 4 {
		f.put("t", fmt.Sprint(i), `"v": {"N": "100"}, "g": {"S": "bank"}, "n": {"N": "1"}`)
	}
	move := func(sk int, amount string) string {
		return fmt.Sprintf(`{"Update": {"TableName": "main", "Key": %s, "UpdateExpression": "ADD v :d", "ExpressionAttributeValues": {":d": {"N": "%s"}}}}`, mainItem("t", fmt.Sprint(sk), ""), amount)
	}
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			for i := range 200 {
				if i%2 == 0 {
					f.do("TransactWriteItems", tx(move(g, "-7"), move((g+1+i)%4, "7")))
					continue
				}
				got := f.do("Query", `{"TableName": "main", "IndexName": "byGroup", "KeyConditionExpression": "g = :g", "ExpressionAttributeValues": {":g": {"S": "bank"}}}`)
				sum := 0
				for _, it := range got["Items"].([]any) {
					n := 0
					_, _ = fmt.Sscan(it.(map[string]any)["v"].(map[string]any)["N"].(string), &n)
					sum += n
				}
				if sum != 400 {
					t.Errorf("the sum is %d", sum)
				}
			}
		})
	}
	group.Wait()
}
