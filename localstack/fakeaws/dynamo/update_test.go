package dynamo

import (
	"strings"
	"testing"
)

// update sends an UpdateItem on pk "u" with the names #st = state and #d = a.b
// and the values below as far as the expression uses them.
func (f *fixture) update(sk, expression, more string) string {
	f.Helper()
	return `{"TableName": "main", "Key": ` + mainItem("u", sk, "") + `, "UpdateExpression": "` + expression + `"` + usedPlaceholders(expression) + more + `}`
}

func usedPlaceholders(expression string) string {
	values := map[string]string{
		":one": `{"N": "1"}`, ":half": `{"N": "0.5"}`, ":text": `{"S": "new"}`, ":list": `{"L": [{"N": "7"}]}`, ":none": `{"L": []}`,
		":xy": `{"SS": ["x", "y"]}`, ":all": `{"SS": ["p", "q"]}`, ":n1": `{"NS": ["1.00"]}`, ":map": `{"M": {"z": {"N": "9"}}}`, ":big": `{"N": "9e125"}`, ":g": `{"S": "G"}`,
	}
	names := map[string]string{"#st": `"state"`, "#d": `"a.b"`}
	var v, n []string
	for key, value := range values {
		if strings.Contains(expression, key) {
			v = append(v, `"`+key+`": `+value)
		}
	}
	for key, name := range names {
		if strings.Contains(expression, key) {
			n = append(n, `"`+key+`": `+name)
		}
	}
	out := ""
	if v != nil {
		out += `, "ExpressionAttributeValues": {` + strings.Join(v, ", ") + `}`
	}
	if n != nil {
		out += `, "ExpressionAttributeNames": {` + strings.Join(n, ", ") + `}`
	}
	return out
}

func TestUpdates(t *testing.T) {
	for _, c := range []struct{ before, expression, after string }{
		{``, "SET a = :text", `"a": {"S": "new"}`},
		{``, "ADD a :one", `"a": {"N": "1"}`},
		{``, "ADD a :xy", `"a": {"SS": ["x", "y"]}`},
		{`"a": {"N": "1"}`, "SET a = a + :one, b = a, c = :one - a", `"a": {"N": "2"}, "b": {"N": "1"}, "c": {"N": "0"}`},
		{`"a": {"N": "1"}, "b": {"N": "2"}`, "SET a = b, b = a", `"a": {"N": "2"}, "b": {"N": "1"}`},
		{`"a": {"N": "1"}`, "SET a = if_not_exists(a, :half) + :one, b = if_not_exists(b, :half) + :one", `"a": {"N": "2"}, "b": {"N": "1.5"}`},
		{`"a": {"N": "1"}`, "SET b = if_not_exists(c, if_not_exists(a, :one)), c = (a + :one)", `"a": {"N": "1"}, "b": {"N": "1"}, "c": {"N": "2"}`},
		{`"l": {"L": [{"N": "1"}]}`, "SET l = list_append(l, :list), k = list_append(if_not_exists(k, :none), :list), j = list_append(:list, l)",
			`"l": {"L": [{"N": "1"}, {"N": "7"}]}, "k": {"L": [{"N": "7"}]}, "j": {"L": [{"N": "7"}, {"N": "1"}]}`},
		{`"l": {"L": [{"N": "1"}, {"N": "2"}, {"N": "3"}]}`, "SET l[1] = :text REMOVE l[0]", `"l": {"L": [{"S": "new"}, {"N": "3"}]}`},
		{`"l": {"L": [{"N": "1"}, {"N": "2"}, {"N": "3"}]}`, "REMOVE l[0], l[2], l[9]", `"l": {"L": [{"N": "2"}]}`},
		{`"l": {"L": [{"N": "1"}]}`, "SET l[9] = :text, l[5] = :one", `"l": {"L": [{"N": "1"}, {"N": "1"}, {"S": "new"}]}`},
		{`"m": {"M": {"x": {"N": "1"}, "y": {"M": {"k": {"N": "5"}}}}}`, "SET m.z = m.x + :one, m.y.k = :text REMOVE m.x, m.nope, nope", `"m": {"M": {"z": {"N": "2"}, "y": {"M": {"k": {"S": "new"}}}}}`},
		{`"m": {"M": {"l": {"L": [{"M": {"x": {"N": "1"}}}]}}}`, "SET m.l[0].x = :text, m.l[1] = :one ADD m.c :one", `"m": {"M": {"l": {"L": [{"M": {"x": {"S": "new"}}}, {"N": "1"}]}, "c": {"N": "1"}}}`},
		{`"m": {"M": {"x": {"N": "1"}}}`, "REMOVE m.x", `"m": {"M": {}}`},
		{`"a.b": {"N": "1"}, "state": {"S": "old"}`, "SET #st = :text REMOVE #d", `"state": {"S": "new"}`},
		{`"a": {"N": "1"}, "s": {"SS": ["p", "x"]}`, "ADD a :half, s :xy", `"a": {"N": "1.5"}, "s": {"SS": ["p", "x", "y"]}`},
		{`"s": {"SS": ["p", "q", "r"]}, "t": {"SS": ["p"]}`, "DELETE s :all, t :all, u :all", `"s": {"SS": ["r"]}`},
		{`"s": {"NS": ["1", "2"]}`, "DELETE s :n1", `"s": {"NS": ["2"]}`},
		{`"a": {"S": "old"}`, "SET a = :text, b = :one ADD c :one REMOVE d DELETE e :xy", `"a": {"S": "new"}, "b": {"N": "1"}, "c": {"N": "1"}`},
	} {
		f := newFixture(t)
		f.createMain()
		if c.before != "" {
			f.put("u", "1", c.before)
		}
		got := f.do("UpdateItem", f.update("1", c.expression, `, "ReturnValues": "ALL_NEW"`))
		sameJSON(t, c.expression, got["Attributes"], mainItem("u", "1", c.after))
		sameJSON(t, c.expression, f.get("u", "1"), mainItem("u", "1", c.after))
	}
}

func TestUpdatesThatDynamoDBRefuses(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	const before = `"a": {"N": "1"}, "t": {"S": "x"}, "l": {"L": [{"N": "1"}]}, "m": {"M": {"x": {"N": "1"}}}, "s": {"SS": ["x"]}, "big": {"N": "9e125"}`
	f.put("u", "1", before)
	for expression, message := range map[string]string{
		"SET b = c + :one":              "refers to an attribute that does not exist in the item",
		"SET b = c":                     "refers to an attribute that does not exist in the item",
		"SET b = list_append(c, :list)": "refers to an attribute that does not exist in the item",
		"SET a = t + :one":              "An operand in the update expression has an incorrect data type",
		"SET a = list_append(t, :list)": "An operand in the update expression has an incorrect data type",
		"ADD t :one":                    "An operand in the update expression has an incorrect data type",
		"ADD a :xy":                     "An operand in the update expression has an incorrect data type",
		"DELETE a :xy":                  "An operand in the update expression has an incorrect data type",
		"ADD s :n1":                     "An operand in the update expression has an incorrect data type",
		"SET nope.x = :one":             "The document path provided in the update expression is invalid for update",
		"SET m.nope.x = :one":           "The document path provided in the update expression is invalid for update",
		"SET m[0] = :one":               "The document path provided in the update expression is invalid for update",
		"SET l.x = :one":                "The document path provided in the update expression is invalid for update",
		"SET l[7].x = :one":             "The document path provided in the update expression is invalid for update",
		"SET t.x = :one":                "The document path provided in the update expression is invalid for update",
		"REMOVE nope.x":                 "The document path provided in the update expression is invalid for update",
		"SET pk = :text":                "Cannot update attribute pk. This attribute is part of the key",
		"REMOVE sk":                     "Cannot update attribute sk. This attribute is part of the key",
		"ADD big :big":                  "Number overflow",
		"SET g = :one":                  "attempted to update the secondary index key to unsupported type",
	} {
		f.refuse("UpdateItem", f.update("1", expression, ""), codeValidation, message)
	}
	f.refuse("UpdateItem", `{"TableName": "main", "Key": `+mainItem("u", "1", "")+`, "UpdateExpression": "SET g = :e", "ExpressionAttributeValues": {":e": {"S": ""}}}`,
		codeValidation, "IndexName: byGroup, IndexKey: g")
	f.refuse("UpdateItem", `{"TableName": "main", "Key": `+mainItem("u", "1", "")+`, "UpdateExpression": "SET big2 = :e", "ExpressionAttributeValues": {":e": {"S": "`+strings.Repeat("x", 409_600)+`"}}}`,
		codeValidation, "Item size to update has exceeded the maximum allowed size")
	deep := strings.Repeat(`{"M": {"x": `, 32) + `{"N": "1"}` + strings.Repeat(`}}`, 32)
	f.refuse("UpdateItem", `{"TableName": "main", "Key": `+mainItem("u", "1", "")+`, "UpdateExpression": "SET m.y = :e", "ExpressionAttributeValues": {":e": `+deep+`}}`,
		codeValidation, "Nesting Levels")
	sameJSON(t, "the item is untouched", f.get("u", "1"), mainItem("u", "1", strings.Replace(before, "9e125", "9"+strings.Repeat("0", 125), 1)))
}

func TestAnUpdateThatOnlyTakesAwayCreatesNothing(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	for _, expression := range []string{"REMOVE a", "DELETE a :xy"} {
		got := f.do("UpdateItem", f.update("ghost", expression, `, "ReturnValues": "ALL_NEW"`))
		if got["Attributes"] != nil || f.get("u", "ghost") != nil {
			t.Errorf("%s made an item: %v", expression, got)
		}
	}
	f.do("UpdateItem", `{"TableName": "main", "Key": `+mainItem("u", "bare", "")+`}`)
	sameJSON(t, "an update without expression", f.get("u", "bare"), mainItem("u", "bare", ""))
}

func TestUpdatesReturnWhatIsAskedFor(t *testing.T) {
	for _, c := range []struct{ before, expression, returns, want string }{
		{`"a": {"N": "1"}, "b": {"N": "5"}`, "SET a = :text", "NONE", ""},
		{`"a": {"N": "1"}, "b": {"N": "5"}`, "SET a = :text", "ALL_OLD", mainItem("u", "1", `"a": {"N": "1"}, "b": {"N": "5"}`)},
		{`"a": {"N": "1"}, "b": {"N": "5"}`, "SET a = :text", "UPDATED_OLD", `{"a": {"N": "1"}}`},
		{`"a": {"N": "1"}, "b": {"N": "5"}`, "SET a = :text, c = :one REMOVE b", "UPDATED_NEW", `{"a": {"S": "new"}, "c": {"N": "1"}}`},
		{`"a": {"N": "1"}`, "SET c = :one", "UPDATED_OLD", ""},
		{`"a": {"N": "1"}`, "REMOVE a", "UPDATED_NEW", ""},
		{"", "SET c = :one", "ALL_OLD", ""},
		{"", "SET c = :one", "UPDATED_NEW", `{"c": {"N": "1"}}`},
		{`"m": {"M": {"x": {"N": "1"}, "l": {"L": [{"N": "1"}, {"N": "2"}]}}}`, "SET m.l[1] = :text, m.x = :one", "UPDATED_OLD", `{"m": {"M": {"x": {"N": "1"}, "l": {"L": [{"N": "2"}]}}}}`},
		{`"m": {"M": {"x": {"N": "1"}}}`, "SET m.y = :one", "UPDATED_NEW", `{"m": {"M": {"y": {"N": "1"}}}}`},
		// As on AWS, an element set beyond the end is not found where it was asked for.
		{`"l": {"L": [{"N": "1"}]}`, "SET l[100] = :one", "UPDATED_NEW", ""},
		{`"l": {"L": [{"N": "1"}, {"N": "2"}]}`, "REMOVE l[0]", "UPDATED_NEW", `{"l": {"L": [{"N": "2"}]}}`},
	} {
		f := newFixture(t)
		f.createMain()
		if c.before != "" {
			f.put("u", "1", c.before)
		}
		got, found := f.do("UpdateItem", f.update("1", c.expression, `, "ReturnValues": "`+c.returns+`"`))["Attributes"]
		switch {
		case c.want == "" && found:
			t.Errorf("%s %s returned %v", c.expression, c.returns, got)
		case c.want != "":
			sameJSON(t, c.expression+" "+c.returns, got, c.want)
		}
	}
}
