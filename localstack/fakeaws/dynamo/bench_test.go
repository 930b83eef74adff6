package dynamo

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// serveAll runs one request an iteration, in parallel where b says so.
func serveAll(b *testing.B, f *fixture, op string, body func(i int) string) {
	b.Helper()
	bodies := make([][]byte, 1000)
	for i := range bodies {
		bodies[i] = []byte(body(i))
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		r := request(op)
		for i := 0; pb.Next(); i++ {
			body := bodies[i%len(bodies)]
			f.Describe(r, body)
			if response := f.Serve(r, body); response.Status != http.StatusOK {
				b.Errorf("%s: %s", op, response.Body)
				return
			}
		}
	})
}

func benchmarkItem(i int) string {
	return mainItem("bench", fmt.Sprintf("%06d", i), fmt.Sprintf(`"n": {"N": "%d"}, "g": {"S": "group%d"}, "owner": {"S": "agent-%d"},
		"live": {"BOOL": true}, "payload": {"S": "%s"}, "tags": {"SS": ["a", "b"]}, "meta": {"M": {"at": {"N": "1700000000000"}}}`, i, i%20, i, strings.Repeat("x", 700)))
}

func BenchmarkPut(b *testing.B) {
	f := newFixture(b)
	f.createMain()
	serveAll(b, f, "PutItem", func(i int) string {
		return `{"Item": ` + benchmarkItem(i) + `, "TableName": "main"}`
	})
}

func BenchmarkConditionalUpdate(b *testing.B) {
	f := newFixture(b)
	f.createMain()
	for i := range 1000 {
		f.do("PutItem", `{"Item": `+benchmarkItem(i)+`, "TableName": "main"}`)
	}
	serveAll(b, f, "UpdateItem", func(i int) string {
		return `{"TableName": "main", "Key": ` + mainItem("bench", fmt.Sprintf("%06d", i), "") + `,
			"UpdateExpression": "SET #o = :o, beat = if_not_exists(beat, :zero) + :one, lease = :l", "ConditionExpression": "attribute_exists(pk) AND #o = :o",
			"ExpressionAttributeNames": {"#o": "owner"}, "ReturnValues": "ALL_NEW",
			"ExpressionAttributeValues": {":o": {"S": "agent-` + fmt.Sprint(i) + `"}, ":zero": {"N": "0"}, ":one": {"N": "1"}, ":l": {"N": "1700000000000"}}}`
	})
}

func BenchmarkGet(b *testing.B) {
	f := newFixture(b)
	f.createMain()
	for i := range 1000 {
		f.do("PutItem", `{"Item": `+benchmarkItem(i)+`, "TableName": "main"}`)
	}
	serveAll(b, f, "GetItem", func(i int) string {
		return `{"TableName": "main", "ConsistentRead": true, "Key": ` + mainItem("bench", fmt.Sprintf("%06d", i), "") + `}`
	})
}

func BenchmarkQueryOfTenThroughAnIndex(b *testing.B) {
	f := newFixture(b)
	f.createMain()
	for i := range 1000 {
		f.do("PutItem", `{"Item": `+benchmarkItem(i)+`, "TableName": "main"}`)
	}
	serveAll(b, f, "Query", func(i int) string {
		return fmt.Sprintf(`{"TableName": "main", "IndexName": "byGroup", "Limit": 10, "KeyConditionExpression": "g = :g AND n >= :n",
			"ExpressionAttributeValues": {":g": {"S": "group%d"}, ":n": {"N": "%d"}}}`, i%20, i%500)
	})
}

func BenchmarkTransactionOfThree(b *testing.B) {
	f := newFixture(b)
	f.createMain()
	serveAll(b, f, "TransactWriteItems", func(i int) string {
		var actions []string
		for k := range 3 {
			actions = append(actions, `{"Put": {"TableName": "main", "Item": `+benchmarkItem(3*i+k)+`}}`)
		}
		return `{"TransactItems": [` + strings.Join(actions, ",") + `]}`
	})
}
