package dynamo

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// pages follows LastEvaluatedKey and returns the sort keys and the page sizes.
func (f *fixture) pages(op, body string) (sorts []string, counts []int) {
	f.Helper()
	start := ""
	for range 1000 {
		got := f.do(op, `{"TableName": "main", `+body+start+`}`)
		for _, it := range got["Items"].([]any) {
			sorts = append(sorts, it.(map[string]any)["sk"].(map[string]any)["S"].(string))
		}
		n, _ := got["Count"].(json.Number).Int64()
		counts = append(counts, int(n))
		last, more := got["LastEvaluatedKey"]
		if !more {
			return sorts, counts
		}
		encoded, _ := json.Marshal(last) //nolint:errchkjson // it came from JSON
		start = `, "ExclusiveStartKey": ` + string(encoded)
	}
	f.Fatalf("%s %s: no end of pages", op, body)
	return nil, nil
}

// fillQueries puts 20 items into partition q: sk k00 to k19, n descending from
// 19 to 0, g alternating, name for every fourth.
func (f *fixture) fillQueries() {
	f.Helper()
	f.createMain()
	for i := range 20 {
		rest := fmt.Sprintf(`"n": {"N": "%d"}, "g": {"S": "g%d"}, "v": {"N": "%d"}, "extra": {"S": "e%d"}`, 19-i, i%2, i, i)
		if i%4 == 0 {
			rest += `, "name": {"B": "AAAA"}`
		}
		f.put("q", fmt.Sprintf("k%02d", i), rest)
	}
	f.put("other", "k00", `"n": {"N": "5"}`)
}

func names(prefix string, from, to, by int) []string {
	var out []string
	for i := from; i != to; i += by {
		out = append(out, fmt.Sprintf("%s%02d", prefix, i))
	}
	return out
}

func TestQueriesSelectByKey(t *testing.T) {
	f := newFixture(t)
	f.fillQueries()
	for _, c := range []struct {
		condition, more string
		want            []string
	}{
		{"pk = :q", "", names("k", 0, 20, 1)},
		{":q = pk", `, "ScanIndexForward": false`, names("k", 19, -1, -1)},
		{"pk = :q AND sk = :k05", "", names("k", 5, 6, 1)},
		{"pk = :q AND sk < :k05", "", names("k", 0, 5, 1)},
		{"pk = :q AND sk <= :k05", "", names("k", 0, 6, 1)},
		{"pk = :q AND :k05 < sk", "", names("k", 6, 20, 1)},
		{"pk = :q AND sk >= :k05", "", names("k", 5, 20, 1)},
		{"sk BETWEEN :k05 AND :k10 AND pk = :q", "", names("k", 5, 11, 1)},
		{"pk = :q AND begins_with(sk, :k1)", `, "ScanIndexForward": false`, names("k", 19, 9, -1)},
		{"pk = :q AND sk > :k10", `, "Limit": 3`, names("k", 11, 20, 1)},
		{"pk = :q AND sk <= :k10", `, "Limit": 4, "ScanIndexForward": false`, names("k", 10, -1, -1)},
		{"pk = :none", "", nil},
		{"pk = :q AND n <= :five", `, "IndexName": "byNumber", "ConsistentRead": true`, names("k", 19, 13, -1)},
		{"pk = :q", `, "IndexName": "byNumber", "Limit": 7`, names("k", 19, -1, -1)},
		{"g = :g1 AND n BETWEEN :five AND :ten", `, "IndexName": "byGroup"`, []string{"k13", "k11", "k09"}},
		{"#name = :bin", `, "IndexName": "byName", "Limit": 1`, []string{"k00", "k04", "k08", "k12", "k16"}},
		{"#name = :bin", `, "IndexName": "byName", "Limit": 2, "ScanIndexForward": false`, []string{"k16", "k12", "k08", "k04", "k00"}},
	} {
		body := `"KeyConditionExpression": "` + c.condition + `"` + queryPlaceholders(c.condition) + c.more
		got, counts := f.pages("Query", body)
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s%s: got %v, want %v (pages %v)", c.condition, c.more, got, c.want, counts)
		}
	}
}

func queryPlaceholders(expression string) string {
	all := map[string]string{
		":q": `{"S": "q"}`, ":none": `{"S": "none"}`, ":k05": `{"S": "k05"}`, ":k10": `{"S": "k10"}`, ":k1": `{"S": "k1"}`, ":five": `{"N": "5"}`, ":ten": `{"N": "10"}`,
		":g1": `{"S": "g1"}`, ":bin": `{"B": "AAAA"}`, ":empty": `{"S": ""}`, ":three": `{"N": "3"}`, ":long": `{"S": "` + strings.Repeat("x", 70_000) + `"}`,
	}
	var used []string
	for _, word := range strings.FieldsFunc(expression, func(r rune) bool { return strings.ContainsRune(" ,()", r) }) {
		if v, ok := all[word]; ok && !strings.Contains(strings.Join(used, ""), `"`+word+`"`) {
			used = append(used, `"`+word+`": `+v)
		}
	}
	out := ""
	if used != nil {
		out = `, "ExpressionAttributeValues": {` + strings.Join(used, ", ") + `}`
	}
	if strings.Contains(expression, "#name") {
		out += `, "ExpressionAttributeNames": {"#name": "name"}`
	}
	return out
}

func TestQueriesThatDynamoDBRefuses(t *testing.T) {
	f := newFixture(t)
	f.fillQueries()
	start := func(key string) string { return `, "ExclusiveStartKey": ` + key }
	for _, c := range []struct{ condition, more, message string }{
		{"", "", "Either the KeyConditions or KeyConditionExpression parameter must be specified"},
		{"sk = :k05", "", "Query condition missed key schema element: pk"},
		{"pk = :q AND v = :five", "", "Query condition missed key schema element: sk"},
		{"pk > :q", "", "Query key condition not supported"},
		{"begins_with(pk, :q)", "", "Query key condition not supported"},
		{"pk = :q OR sk = :k05", "", "Invalid operator used in KeyConditionExpression: OR"},
		{"NOT pk = :q", "", "Invalid operator used in KeyConditionExpression: NOT"},
		{"pk <> :q", "", "Invalid operator used in KeyConditionExpression: <>"},
		{"pk = :q AND sk IN (:k05)", "", "Invalid operator used in KeyConditionExpression: IN"},
		{"pk = :q AND contains(sk, :k05)", "", "Invalid operator used in KeyConditionExpression: contains"},
		{"pk = :q AND attribute_exists(sk)", "", "Invalid operator used in KeyConditionExpression: attribute_exists"},
		{"pk = :q AND sk = :k05 AND sk = :k10", "", "only contain one condition per key"},
		{"pk = :q AND sk > :k05 AND sk < :k10", "", "only contain one condition per key"},
		{"pk.x = :q", "", "cannot have conditions on nested attributes"},
		{"pk = sk", "", "Multiple attribute names used in one condition"},
		{"size(pk) = :five", "", "cannot contain nested operations"},
		{"pk = :five", "", "Condition parameter type does not match schema type"},
		{"pk = :long", "", "exceeded the maximum size limit of2048 bytes"},
		{"pk = :q AND sk > :long", "", "exceeded the size limit of 1024 bytes"},
		{"pk = :empty", "", "cannot contain an empty string value. Key: pk"},
		{"pk = :q AND sk BETWEEN :k10 AND :k05", "", "upper bound to be greater than or equal to lower bound"},
		{"pk = :q", `, "FilterExpression": "sk = :q"`, "can only contain non-primary key attributes: Primary key attribute: sk"},
		{"pk = :q", `, "Limit": 0`, "greater than or equal to 1"},
		{"pk = :q", `, "Limit": -1`, "greater than or equal to 1"},
		{"pk = :q", `, "IndexName": "nope"`, "The table does not have the specified index: nope"},
		{"g = :g1", `, "IndexName": "byGroup", "ConsistentRead": true`, "Consistent reads are not supported on global secondary indexes"},
		{"#name = :bin", `, "IndexName": "byName", "Select": "ALL_ATTRIBUTES"`, "Select type ALL_ATTRIBUTES is not supported for global secondary index byName because its projection type is not ALL"},
		{"#name = :bin", `, "IndexName": "byName", "ProjectionExpression": "extra, v"`, "Global secondary index byName does not project [v]"},
		{"#name = :bin", `, "IndexName": "byName", "FilterExpression": "v = :bin"`, "Global secondary index byName does not project [v]"},
		{"pk = :q", `, "Select": "ALL_PROJECTED_ATTRIBUTES"`, "can be used only when Querying using an IndexName"},
		{"pk = :q", `, "Select": "SPECIFIC_ATTRIBUTES"`, "Must specify the AttributesToGet or ProjectionExpression"},
		{"pk = :q", `, "Select": "COUNT", "ProjectionExpression": "v"`, "when choosing to get only the Count"},
		{"pk = :q", `, "Select": "ALL_ATTRIBUTES", "ProjectionExpression": "v"`, "when choosing to get ALL_ATTRIBUTES"},
		{"pk = :q", `, "Select": "SOME"`, "Member must satisfy enum value set"},
		{"pk = :q", start(`{"pk": {"S": "q"}}`), "The provided starting key is invalid"},
		{"pk = :q", start(`{}`), "The provided starting key is invalid"},
		{"pk = :q", start(`{"pk": {"S": "q"}, "sk": {"N": "1"}}`), "The provided starting key is invalid"},
		{"pk = :q", start(`{"pk": {"S": "q"}, "sk": {"S": "a"}, "x": {"S": "a"}}`), "The provided starting key is invalid"},
		{"pk = :q", start(mainItem("other", "k00", "")), "outside query boundaries"},
		{"pk = :q AND sk > :k05", start(mainItem("q", "k01", "")), "does not match the range key predicate"},
		{"g = :g1", `, "IndexName": "byGroup"` + start(mainItem("q", "k01", "")), "The provided starting key is invalid"},
		{"g = :g1", `, "IndexName": "byGroup"` + start(mainItem("q", "k01", `"g": {"S": "g0"}, "n": {"N": "1"}`)), "outside query boundaries"},
	} {
		body := `{"TableName": "main"` + c.more + queryPlaceholders(c.condition)
		if c.condition != "" {
			body += `, "KeyConditionExpression": "` + c.condition + `"`
		}
		f.refuse("Query", body+`}`, codeValidation, c.message)
	}
}

func TestQueriesContinueAfterAnItemThatIsGone(t *testing.T) {
	f := newFixture(t)
	f.fillQueries()
	f.do("DeleteItem", `{"TableName": "main", "Key": `+mainItem("q", "k05", "")+`}`)
	got := f.do("Query", `{"TableName": "main", "Limit": 1, "KeyConditionExpression": "pk = :q"`+queryPlaceholders(":q")+`, "ExclusiveStartKey": `+mainItem("q", "k05", "")+`}`)
	sameJSON(t, "next key", got["LastEvaluatedKey"], mainItem("q", "k06", ""))
}

func TestFiltersCountWhatTheyScanned(t *testing.T) {
	f := newFixture(t)
	f.fillQueries()
	got := f.do("Query", `{"TableName": "main", "Limit": 10, "KeyConditionExpression": "pk = :q", "FilterExpression": "v < :three"`+queryPlaceholders(":q :three")+`}`)
	sameJSON(t, "counts", []any{got["Count"], got["ScannedCount"]}, `[3, 10]`)
	for i, it := range got["Items"].([]any) {
		sameJSON(t, "an item that passed", it.(map[string]any)["sk"], fmt.Sprintf(`{"S": "k%02d"}`, i))
	}
	got = f.do("Query", `{"TableName": "main", "Select": "COUNT", "Limit": 10, "KeyConditionExpression": "pk = :q", "FilterExpression": "v < :three"`+queryPlaceholders(":q :three")+`}`)
	sameJSON(t, "counts", []any{got["Count"], got["ScannedCount"]}, `[3, 10]`)
	got = f.do("Query", `{"TableName": "main", "Select": "COUNT", "KeyConditionExpression": "pk = :q"`+queryPlaceholders(":q")+`}`)
	if _, found := got["Items"]; found {
		t.Error("COUNT returned items")
	}
	sameJSON(t, "counts", []any{got["Count"], got["ScannedCount"]}, `[20, 20]`)
	got = f.do("Query", `{"TableName": "main", "Limit": 20, "KeyConditionExpression": "pk = :q"`+queryPlaceholders(":q")+`}`)
	if _, found := got["LastEvaluatedKey"]; !found {
		t.Error("a page that just reaches the limit has no LastEvaluatedKey, as AWS's has")
	}
}

func TestIndexEntriesHaveTheProjectedAttributes(t *testing.T) {
	f := newFixture(t)
	f.fillQueries()
	first := func(condition, more string) any {
		got := f.do("Query", `{"TableName": "main", "Limit": 1, "KeyConditionExpression": "`+condition+`"`+queryPlaceholders(condition)+more+`}`)
		return got["Items"].([]any)[0]
	}
	sameJSON(t, "INCLUDE", first("#name = :bin", `, "IndexName": "byName"`), mainItem("q", "k00", `"name": {"B": "AAAA"}, "extra": {"S": "e0"}`))
	sameJSON(t, "KEYS_ONLY", first("pk = :q", `, "IndexName": "byNumber"`), mainItem("q", "k19", `"n": {"N": "0"}`))
	full := mainItem("q", "k19", `"n": {"N": "0"}, "g": {"S": "g1"}, "v": {"N": "19"}, "extra": {"S": "e19"}`)
	sameJSON(t, "ALL", first("g = :g1", `, "IndexName": "byGroup"`), full)
	sameJSON(t, "a local index fetches", first("pk = :q", `, "IndexName": "byNumber", "Select": "ALL_ATTRIBUTES"`), full)
	sameJSON(t, "a local index fetches what is named", first("pk = :q", `, "IndexName": "byNumber", "ProjectionExpression": "v"`), `{"v": {"N": "19"}}`)
}

func TestAPageHoldsOneMegabyte(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	for i := range 7 {
		f.put("big", fmt.Sprintf("k%02d", i), `"v": {"S": "`+strings.Repeat("x", 300_000)+`"}`)
	}
	f.put("big", "k07", "")
	got, counts := f.pages("Query", `"KeyConditionExpression": "pk = :b", "ExpressionAttributeValues": {":b": {"S": "big"}}`)
	if len(got) != 8 || fmt.Sprint(counts) != "[3 3 2]" {
		t.Errorf("%d items on pages of %v", len(got), counts)
	}
}

func TestSegmentsOfAScanAreDisjointAndComplete(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	for i := range 200 {
		f.put(fmt.Sprintf("p%d", i), fmt.Sprintf("k%03d", i), `"g": {"S": "g`+fmt.Sprint(i)+`"}, "n": {"N": "1"}`)
	}
	for _, segments := range []int{1, 3, 7} {
		for _, index := range []string{"", `"IndexName": "byGroup", `} {
			seen := map[string]int{}
			for segment := range segments {
				got, _ := f.pages("Scan", fmt.Sprintf(`%s"Segment": %d, "TotalSegments": %d, "Limit": 9`, index, segment, segments))
				for _, k := range got {
					seen[k]++
				}
				if segments > 1 && (len(got) == 0 || len(got) == 200) {
					t.Errorf("segment %d of %d has %d items", segment, segments, len(got))
				}
			}
			for k, n := range seen {
				if n != 1 {
					t.Errorf("%s was scanned %d times", k, n)
				}
			}
			if len(seen) != 200 {
				t.Errorf("%d segments: %d items", segments, len(seen))
			}
		}
	}
}

func TestScansThatDynamoDBRefuses(t *testing.T) {
	f := newFixture(t)
	f.fillQueries()
	for more, message := range map[string]string{
		`"Segment": 1`: "TotalSegments parameter is required", `"TotalSegments": 2`: "Segment parameter is required",
		`"Segment": 2, "TotalSegments": 2`: "zero-based and must be less than", `"Segment": -1, "TotalSegments": 2`: "'segment'", `"Segment": 0, "TotalSegments": 0`: "'totalSegments'", `"Segment": 0, "TotalSegments": 1000001`: "'totalSegments'",
		`"ExclusiveStartKey": {"pk": {"S": "q"}}`:        "starting key is invalid",
		`"ConsistentRead": true, "IndexName": "byGroup"`: "Consistent reads are not supported",
	} {
		f.refuse("Scan", `{"TableName": "main", `+more+`}`, codeValidation, message)
	}
	wrong := 0
	for segment := range 2 {
		response := f.send("Scan", fmt.Sprintf(`{"TableName": "main", "Segment": %d, "TotalSegments": 2, "ExclusiveStartKey": %s}`, segment, mainItem("q", "k00", "")))
		if response.ErrorCode == codeValidation && strings.Contains(string(response.Body), "with correct Segment") {
			wrong++
		}
	}
	if wrong != 1 {
		t.Errorf("a start key belongs to one segment of two, %d refused it", wrong)
	}
	f.do("Scan", `{"TableName": "main", "FilterExpression": "sk = :k05"`+queryPlaceholders(":k05")+`}`)
}

func TestALaggingIndexShowsThePast(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	count := func() int {
		got, _ := f.pages("Query", `"IndexName": "byGroup", "KeyConditionExpression": "g = :g", "ExpressionAttributeValues": {":g": {"S": "g"}}`)
		return len(got)
	}
	put := func(sk string) { f.put("p", sk, `"g": {"S": "g"}, "n": {"N": "1"}`) }
	put("1")
	if err := f.SetIndexLag("main", "byGroup", time.Minute); err != nil {
		t.Fatal(err)
	}
	put("2")
	f.pass(30 * time.Second)
	f.do("DeleteItem", `{"TableName": "main", "Key": `+mainItem("p", "1", "")+`}`)
	if n := count(); n != 1 {
		t.Errorf("before the lag: %d entries, want that of the first put", n)
	}
	f.pass(30 * time.Second)
	if n := count(); n != 2 {
		t.Errorf("a minute after the second put: %d entries, want 2", n)
	}
	f.pass(30 * time.Second)
	if n := count(); n != 1 {
		t.Errorf("a minute after the deletion: %d entries, want 1", n)
	}
	put("3")
	f.pass(-time.Hour) // a test's clock may go back
	if err := f.SetIndexLag("main", "byGroup", 0); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 2 {
		t.Errorf("without lag: %d entries, want 2", n)
	}
	if err := f.SetIndexLag("main", "byNumber", time.Minute); err == nil {
		t.Error("a local index was made to lag")
	}
	if err := f.SetIndexLag("main", "nope", time.Minute); err == nil {
		t.Error("an index that is not there was made to lag")
	}
}
