package dynamo

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestTimeToLiveIsSwitchedAndDescribed(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	update := func(name, enabled string) string {
		return `{"TableName": "main", "TimeToLiveSpecification": {"AttributeName": "` + name + `", "Enabled": ` + enabled + `}}`
	}
	describe := func() any {
		return f.do("DescribeTimeToLive", `{"TableName": "main"}`)["TimeToLiveDescription"]
	}
	sameJSON(t, "at first", describe(), `{"TimeToLiveStatus": "DISABLED"}`)
	f.refuse("UpdateTimeToLive", update("ttl", "false"), codeValidation, "TimeToLive is already disabled")
	f.do("UpdateTimeToLive", update("ttl", "true"))
	sameJSON(t, "enabled", describe(), `{"TimeToLiveStatus": "ENABLED", "AttributeName": "ttl"}`)
	f.refuse("UpdateTimeToLive", update("ttl", "true"), codeValidation, "TimeToLive is already enabled")
	f.refuse("UpdateTimeToLive", update("other", "false"), codeValidation, "active on a different AttributeName: current AttributeName is ttl")
	f.do("UpdateTimeToLive", update("ttl", "false"))
	f.refuse("UpdateTimeToLive", `{"TableName": "main"}`, codeValidation, "timeToLiveSpecification")
	f.refuse("DescribeTimeToLive", `{"TableName": "nope"}`, codeNotFound, "Table: nope not found")
}

func TestExpiredItemsStayUntilTheyAreCollected(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	if n, err := f.CollectExpired("main"); n != 0 || err != nil {
		t.Errorf("without TTL: %d, %v", n, err)
	}
	f.do("UpdateTimeToLive", `{"TableName": "main", "TimeToLiveSpecification": {"AttributeName": "ttl", "Enabled": true}}`)
	now := f.time().Unix()
	put := func(sk, ttl string) { f.put("p", sk, `"ttl": `+ttl+`, "g": {"S": "g"}, "n": {"N": "1"}`) }
	put("past", fmt.Sprintf(`{"N": "%d.5"}`, now-10))
	put("future", fmt.Sprintf(`{"N": "%d"}`, now+10))
	put("text", fmt.Sprintf(`{"S": "%d"}`, now-10))
	put("milliseconds", fmt.Sprintf(`{"N": "%d"}`, now*1000))
	put("longAgo", fmt.Sprintf(`{"N": "%d"}`, now-6*365*86400))
	put("huge", `{"N": "9e125"}`)
	if f.get("p", "past") == nil {
		t.Error("an expired item vanished by itself")
	}
	collect := func(want int) {
		t.Helper()
		if n, err := f.CollectExpired("main"); n != want || err != nil {
			t.Errorf("collected %d, %v, want %d", n, err, want)
		}
	}
	collect(1)
	collect(0)
	f.pass(11 * time.Second)
	collect(1)
	left, _ := f.pages("Query", `"IndexName": "byGroup", "KeyConditionExpression": "g = :g", "ExpressionAttributeValues": {":g": {"S": "g"}}`)
	if len(left) != 4 {
		t.Errorf("left in the index: %v", left)
	}
	if _, err := f.CollectExpired("nope"); err == nil {
		t.Error("collected from a table that is not there")
	}
}

// A collection goes in steps: each has its end, and those behind it are found.
func TestACollectionOfManyItemsLeavesNoneAndTakesNoOther(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	f.do("UpdateTimeToLive", `{"TableName": "main", "TimeToLiveSpecification": {"AttributeName": "ttl", "Enabled": true}}`)
	const expired, kept = stepLooks + 3*stepRemovals, 2 * stepRemovals
	past, future := f.time().Unix()-10, f.time().Unix()+10
	for i := range expired + kept {
		at := past
		if i%(expired/kept) == 0 && i/(expired/kept) < kept {
			at = future
		}
		f.put("p", fmt.Sprintf("%06d", i), fmt.Sprintf(`"ttl": {"N": "%d"}`, at))
	}
	if n, err := f.CollectExpired("main"); n != expired || err != nil {
		t.Errorf("collected %d, %v; want %d", n, err, expired)
	}
	if left := f.tables["main"].rows.Len(); left != kept {
		t.Errorf("%d are left, want %d", left, kept)
	}
	f.pass(11 * time.Second)
	if n, err := f.CollectExpired("main"); n != kept || err != nil {
		t.Errorf("collected %d later, %v; want %d", n, err, kept)
	}
}

// BenchmarkCollectExpired goes through a table in which nothing has expired.
func BenchmarkCollectExpired(b *testing.B) {
	const items = 100_000
	f := newFixture(b)
	f.createMain()
	f.do("UpdateTimeToLive", `{"TableName": "main", "TimeToLiveSpecification": {"AttributeName": "ttl", "Enabled": true}}`)
	for i := range items {
		f.do("PutItem", `{"Item": `+benchmarkItem(i)+`, "TableName": "main"}`)
	}
	for b.Loop() {
		if n, err := f.CollectExpired("main"); n != 0 || err != nil {
			b.Fatal(n, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/items, "ns/item")
}

func TestExpiredItemsOfEveryTableAreCollected(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	f.do("CreateTable", `{"TableName": "other", "BillingMode": "PAY_PER_REQUEST", "KeySchema": [{"AttributeName": "k", "KeyType": "HASH"}],
		"AttributeDefinitions": [{"AttributeName": "k", "AttributeType": "S"}]}`)
	for _, name := range []string{"main", "other"} {
		f.do("UpdateTimeToLive", `{"TableName": "`+name+`", "TimeToLiveSpecification": {"AttributeName": "ttl", "Enabled": true}}`)
	}
	past := fmt.Sprint(f.time().Unix() - 10)
	f.put("p", "past", `"ttl": {"N": "`+past+`"}`)
	f.put("p", "stays", `"n": {"N": "`+past+`"}`)
	f.do("PutItem", `{"TableName": "other", "Item": {"k": {"S": "past"}, "ttl": {"N": "`+past+`"}}}`)
	for _, want := range []int{2, 0} {
		if n, err := f.CollectAllExpired(t.Context()); n != want || err != nil {
			t.Errorf("collected %d, %v, want %d", n, err, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.CollectAllExpired(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context's end: %v", err)
	}
}
