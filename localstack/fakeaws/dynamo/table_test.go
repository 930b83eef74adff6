package dynamo

import (
	"fmt"
	"strings"
	"testing"
)

func TestTablesAreDescribedAsTheyWereCreated(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	f.put("p", "1", `"g": {"S": "g"}, "n": {"N": "1"}`)
	got := f.do("DescribeTable", `{"TableName": "main"}`)["Table"].(map[string]any)
	if id, _ := got["TableId"].(string); len(id) != 36 {
		t.Errorf("TableId %q", id)
	}
	delete(got, "TableId")
	none := `{"ReadCapacityUnits": 0, "WriteCapacityUnits": 0, "NumberOfDecreasesToday": 0}`
	sameJSON(t, "description", any(got), `{
		"TableName": "main", "TableArn": "arn:aws:dynamodb:us-east-1:000000000000:table/main", "TableStatus": "ACTIVE", "CreationDateTime": 1800000000,
		"AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}, {"AttributeName": "sk", "AttributeType": "S"}, {"AttributeName": "n", "AttributeType": "N"}, {"AttributeName": "g", "AttributeType": "S"}, {"AttributeName": "name", "AttributeType": "B"}],
		"KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
		"ItemCount": 1, "TableSizeBytes": 11, "DeletionProtectionEnabled": false, "ProvisionedThroughput": `+none+`,
		"BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST", "LastUpdateToPayPerRequestDateTime": 1800000000},
		"LocalSecondaryIndexes": [{"IndexName": "byNumber", "IndexArn": "arn:aws:dynamodb:us-east-1:000000000000:table/main/index/byNumber", "ItemCount": 1, "IndexSizeBytes": 9,
			"KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "n", "KeyType": "RANGE"}], "Projection": {"ProjectionType": "KEYS_ONLY"}}],
		"GlobalSecondaryIndexes": [
			{"IndexName": "byGroup", "IndexArn": "arn:aws:dynamodb:us-east-1:000000000000:table/main/index/byGroup", "IndexStatus": "ACTIVE", "ItemCount": 1, "IndexSizeBytes": 11, "ProvisionedThroughput": `+none+`,
				"KeySchema": [{"AttributeName": "g", "KeyType": "HASH"}, {"AttributeName": "n", "KeyType": "RANGE"}], "Projection": {"ProjectionType": "ALL"}},
			{"IndexName": "byName", "IndexArn": "arn:aws:dynamodb:us-east-1:000000000000:table/main/index/byName", "IndexStatus": "ACTIVE", "ItemCount": 0, "IndexSizeBytes": 0, "ProvisionedThroughput": `+none+`,
				"KeySchema": [{"AttributeName": "name", "KeyType": "HASH"}], "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["extra"]}}]}`)
}

const simpleTable = `"BillingMode": "PAY_PER_REQUEST", "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}], "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}]`

func TestTablesThatDynamoDBRefuses(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	attributes := func(names ...string) string {
		var out []string
		for _, n := range names {
			out = append(out, `{"AttributeName": "`+n+`", "AttributeType": "S"}`)
		}
		return `"BillingMode": "PAY_PER_REQUEST", "AttributeDefinitions": [` + strings.Join(out, ", ") + `]`
	}
	keys := func(names ...string) string {
		var out []string
		for i, n := range names {
			out = append(out, `{"AttributeName": "`+n+`", "KeyType": "`+[]string{"HASH", "RANGE", "RANGE"}[i]+`"}`)
		}
		return `"KeySchema": [` + strings.Join(out, ", ") + `]`
	}
	index := func(kind, name, schema, projection string) string {
		return `"` + kind + `SecondaryIndexes": [{"IndexName": "` + name + `", ` + schema + `, "Projection": ` + projection + `}]`
	}
	const all = `{"ProjectionType": "ALL"}`
	ab := attributes("a", "b") + ", " + keys("a", "b")
	for _, c := range []struct{ body, code, message string }{
		{simpleTable, codeValidation, "Value null at 'tableName'"},
		{`"TableName": "ab", ` + simpleTable, codeValidation, "length greater than or equal to 3"},
		{`"TableName": "a b c", ` + simpleTable, codeValidation, "regular expression"},
		{`"TableName": "` + strings.Repeat("x", 256) + `", ` + simpleTable, codeValidation, "length less than or equal to 255"},
		{`"TableName": "main", ` + simpleTable, codeInUse, "Table already exists: main"},
		{`"TableName": "new", "BillingMode": "PAY_PER_REQUEST", ` + keys("a"), codeValidation, "attributeDefinitions"},
		{`"TableName": "new", ` + attributes("a"), codeValidation, "'keySchema'"},
		{`"TableName": "new", ` + attributes("a") + `, "KeySchema": []`, codeValidation, "length greater than or equal to 1"},
		{`"TableName": "new", ` + attributes("a", "b", "c") + `, ` + keys("a", "b", "c"), codeValidation, "length less than or equal to 2"},
		{`"TableName": "new", ` + attributes("a") + `, ` + keys("b"), codeValidation, "Some index key attributes are not defined in AttributeDefinitions. Keys: [b], AttributeDefinitions: [a]"},
		{`"TableName": "new", ` + attributes("a", "b") + `, ` + keys("a"), codeValidation, "does not exactly match number of attributes defined"},
		{`"TableName": "new", ` + attributes("a", "a") + `, ` + keys("a"), codeValidation, "Duplicate AttributeName"},
		{`"TableName": "new", ` + attributes("a") + `, ` + keys("a", "a"), codeValidation, "have the same name"},
		{`"TableName": "new", ` + attributes("a") + `, "KeySchema": [{"AttributeName": "a", "KeyType": "RANGE"}]`, codeValidation, "first KeySchemaElement is not a HASH key type"},
		{`"TableName": "new", ` + attributes("a", "b") + `, "KeySchema": [{"AttributeName": "a", "KeyType": "HASH"}, {"AttributeName": "b", "KeyType": "HASH"}]`, codeValidation, "second KeySchemaElement is not a RANGE key type"},
		{`"TableName": "new", ` + attributes("a") + `, "KeySchema": [{"AttributeName": "a", "KeyType": "SORT"}]`, codeValidation, "Member must satisfy enum value set: [HASH, RANGE]"},
		{`"TableName": "new", "AttributeDefinitions": [{"AttributeName": "a", "AttributeType": "M"}], ` + keys("a"), codeValidation, "[B, N, S]"},
		{`"TableName": "new", "AttributeDefinitions": [{"AttributeName": "a", "AttributeType": "S"}], ` + keys("a"), codeValidation, "must both be specified when BillingMode is PROVISIONED"},
		{`"TableName": "new", ` + simpleTable + `, "ProvisionedThroughput": {"ReadCapacityUnits": 1, "WriteCapacityUnits": 1}`, codeValidation, "when BillingMode is PAY_PER_REQUEST"},
		{`"TableName": "new", ` + strings.Replace(simpleTable, "PAY_PER_REQUEST", "FREE", 1), codeValidation, "'billingMode'"},
		{`"TableName": "new", ` + strings.Replace(simpleTable, "PAY_PER_REQUEST", "PROVISIONED", 1) + `, "ProvisionedThroughput": {"ReadCapacityUnits": 0, "WriteCapacityUnits": 1}`, codeValidation, "readCapacityUnits"},
		{`"TableName": "new", ` + simpleTable + `, "GlobalSecondaryIndexes": []`, codeValidation, "List of GlobalSecondaryIndexes is empty"},
		{`"TableName": "new", ` + simpleTable + `, "LocalSecondaryIndexes": []`, codeValidation, "List of LocalSecondaryIndexes is empty"},
		{`"TableName": "new", ` + ab + `, ` + index("Global", "g1", keys("b"), all), codeValidation, "length greater than or equal to 3"},
		{`"TableName": "new", ` + ab + `, ` + index("Global", "gsi", keys("c"), all), codeValidation, "not defined in AttributeDefinitions"},
		{`"TableName": "new", ` + attributes("a", "b", "c") + `, ` + keys("a", "b") + `, ` + index("Global", "gsi", keys("b"), all), codeValidation, "Some AttributeDefinitions are not used"},
		{`"TableName": "new", ` + ab + `, ` + index("Global", "gsi", keys("b"), `{}`), codeValidation, "Unknown ProjectionType: null"},
		{`"TableName": "new", ` + ab + `, ` + index("Global", "gsi", keys("b"), `{"ProjectionType": "SOME"}`), codeValidation, "[ALL, INCLUDE, KEYS_ONLY]"},
		{`"TableName": "new", ` + ab + `, ` + index("Global", "gsi", keys("b"), `{"ProjectionType": "ALL", "NonKeyAttributes": ["x"]}`), codeValidation, "but NonKeyAttributes is specified"},
		{`"TableName": "new", ` + ab + `, ` + index("Global", "gsi", keys("b"), `{"ProjectionType": "INCLUDE"}`), codeValidation, "but NonKeyAttributes is not specified"},
		{`"TableName": "new", ` + ab + `, "GlobalSecondaryIndexes": [{"IndexName": "gsi", ` + keys("b") + `}]`, codeValidation, "projection"},
		{`"TableName": "new", ` + ab + `, ` + index("Global", "gsi", `"KeySchema": [{"AttributeName": "a", "KeyType": "HASH"}, {"AttributeName": "b", "KeyType": "HASH"}]`, all), codeUnsupported, "multi-attribute keys"},
		{`"TableName": "new", ` + ab + `, ` + index("Local", "lsi", keys("b", "a"), all), codeValidation, "same leading hash key"},
		{`"TableName": "new", ` + ab + `, ` + index("Local", "lsi", keys("a"), all), codeValidation, "does not have a range key for index: lsi"},
		{`"TableName": "new", ` + attributes("a", "b") + `, ` + keys("a") + `, ` + index("Local", "lsi", keys("a", "b"), all), codeValidation, "Table KeySchema does not have a range key"},
		{`"TableName": "new", ` + ab + `, ` + index("Local", "same", keys("a", "b"), all) + `, ` + index("Global", "same", keys("b"), all), codeValidation, "Duplicate index name: same"},
		{`"TableName": "new", ` + simpleTable + `, "StreamSpecification": {"StreamEnabled": true, "StreamViewType": "NEW_IMAGE"}`, codeUnsupported, "Streams"},
		{`"TableName": "new", ` + simpleTable + `, "Tags": [{"Key": "a", "Value": "b"}]`, codeUnsupported, "Tags"},
		{`"TableName": "new", ` + simpleTable + `, "SSESpecification": {"Enabled": true}`, codeUnsupported, "SSESpecification"},
		{`"TableName": "new", ` + simpleTable + `, "ResourcePolicy": "{}"`, codeUnsupported, "ResourcePolicy"},
	} {
		f.refuse("CreateTable", `{`+c.body+`}`, c.code, c.message)
	}
	f.do("CreateTable", `{"TableName": "new", `+simpleTable+`, "StreamSpecification": {"StreamEnabled": false}, "SSESpecification": {"Enabled": false}, "Tags": []}`)
}

func TestAnIndexAddedLaterHasWhatIsThere(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	for i := range 30 {
		rest := `"late": {"S": "x"}`
		if i%3 == 0 {
			rest = `"late": {"N": "1"}` // has another type than the index wants
		}
		f.put("p", fmt.Sprintf("k%02d", i), rest)
	}
	create := `"GlobalSecondaryIndexUpdates": [{"Create": {"IndexName": "byLate", "KeySchema": [{"AttributeName": "late", "KeyType": "HASH"}], "Projection": {"ProjectionType": "KEYS_ONLY"}}}]`
	f.refuse("UpdateTable", `{"TableName": "main", `+create+`}`, codeValidation, "not defined in AttributeDefinitions")
	const late = `"AttributeDefinitions": [{"AttributeName": "late", "AttributeType": "S"}, {"AttributeName": "unused", "AttributeType": "S"}]`
	f.do("UpdateTable", `{"TableName": "main", `+late+`, `+create+`}`)
	got, _ := f.pages("Query", `"IndexName": "byLate", "KeyConditionExpression": "late = :x", "ExpressionAttributeValues": {":x": {"S": "x"}}`)
	if len(got) != 20 {
		t.Errorf("backfilled: %v", got)
	}
	f.refuse("PutItem", `{"TableName": "main", "Item": `+mainItem("p", "x", `"late": {"N": "1"}`)+`}`, codeValidation, "Type mismatch for Index Key late")
	f.refuse("UpdateTable", `{"TableName": "main", `+late+`, `+create+`}`, codeValidation, "already exists")
	f.do("UpdateTable", `{"TableName": "main", "GlobalSecondaryIndexUpdates": [{"Delete": {"IndexName": "byLate"}}]}`)
	f.refuse("Query", `{"TableName": "main", "IndexName": "byLate", "KeyConditionExpression": "late = :x", "ExpressionAttributeValues": {":x": {"S": "x"}}}`, codeValidation, "does not have the specified index")
	f.put("p", "x", `"late": {"N": "1"}`)
	for _, c := range []struct{ body, code, message string }{
		{``, codeValidation, "At least one of"},
		{`"GlobalSecondaryIndexUpdates": [{"Delete": {"IndexName": "byLate"}}]`, codeNotFound, "Index: byLate not found"},
		{`"GlobalSecondaryIndexUpdates": [{"Delete": {"IndexName": "byName"}}, {"Delete": {"IndexName": "byGroup"}}]`, codeLimitExceeded, "Only 1 online index"},
		{`"GlobalSecondaryIndexUpdates": [{}]`, codeValidation, "Exactly one of"},
		{`"GlobalSecondaryIndexUpdates": [{"Delete": {"IndexName": "byName"}}, {"Delete": {"IndexName": "byName"}}]`, codeValidation, "Only one global secondary index update per index"},
		{`"StreamSpecification": {"StreamEnabled": true}`, codeUnsupported, "Streams"},
		{`"ReplicaUpdates": [{}]`, codeUnsupported, "ReplicaUpdates"},
		{`"AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "N"}], "TableClass": "STANDARD"`, codeValidation, "already defined with type S"},
	} {
		if c.body != "" {
			c.body = ", " + c.body
		}
		f.refuse("UpdateTable", `{"TableName": "main"`+c.body+`}`, c.code, c.message)
	}
}

func TestTablesAreProtectedDeletedAndListed(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"beta", "alpha", "gamma"} {
		f.do("CreateTable", `{"TableName": "`+name+`", `+simpleTable+`, "DeletionProtectionEnabled": true}`)
	}
	sameJSON(t, "all", any(f.do("ListTables", `{}`)), `{"TableNames": ["alpha", "beta", "gamma"]}`)
	sameJSON(t, "a page", any(f.do("ListTables", `{"Limit": 1, "ExclusiveStartTableName": "alpha"}`)), `{"TableNames": ["beta"], "LastEvaluatedTableName": "beta"}`)
	sameJSON(t, "the end", any(f.do("ListTables", `{"ExclusiveStartTableName": "gamma"}`)), `{"TableNames": []}`)
	f.refuse("ListTables", `{"Limit": 101}`, codeValidation, "limit")

	f.refuse("DeleteTable", `{"TableName": "beta"}`, codeValidation, "protected against deletion")
	f.do("UpdateTable", `{"TableName": "beta", "DeletionProtectionEnabled": false}`)
	f.do("PutItem", `{"TableName": "beta", "Item": {"pk": {"S": "a"}}}`)
	f.do("DeleteTable", `{"TableName": "beta"}`)
	f.refuse("DescribeTable", `{"TableName": "beta"}`, codeNotFound, "Table: beta not found")
	f.refuse("GetItem", `{"TableName": "beta", "Key": {"pk": {"S": "a"}}}`, codeNotFound, "")
	f.refuse("DeleteTable", `{"TableName": "beta"}`, codeNotFound, "Table: beta not found")
	f.do("CreateTable", `{"TableName": "beta", `+simpleTable+`}`)
	if got := f.do("Scan", `{"TableName": "beta"}`); fmt.Sprint(got["Count"]) != "0" {
		t.Errorf("a new table has old items: %v", got)
	}
}

func TestBillingCanBeChanged(t *testing.T) {
	f := newFixture(t)
	f.do("CreateTable", `{"TableName": "bill", `+simpleTable+`}`)
	f.do("UpdateTable", `{"TableName": "bill", "BillingMode": "PROVISIONED", "ProvisionedThroughput": {"ReadCapacityUnits": 5, "WriteCapacityUnits": 6}}`)
	got := f.do("DescribeTable", `{"TableName": "bill"}`)["Table"].(map[string]any)
	sameJSON(t, "provisioned", got["ProvisionedThroughput"], `{"ReadCapacityUnits": 5, "WriteCapacityUnits": 6, "NumberOfDecreasesToday": 0}`)
	f.do("UpdateTable", `{"TableName": "bill", "BillingMode": "PAY_PER_REQUEST"}`)
	f.refuse("UpdateTable", `{"TableName": "bill", "BillingMode": "PROVISIONED"}`, codeValidation, "must both be specified")
}
