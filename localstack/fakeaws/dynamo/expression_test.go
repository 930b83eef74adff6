package dynamo

import (
	"strings"
	"testing"
)

func TestReservedWordsAreAllThere(t *testing.T) {
	if len(reserved) != 573 {
		t.Errorf("%d reserved words, AWS lists 573", len(reserved))
	}
	for _, word := range []string{"status", "Name", "TTL", "owner", "flattern", "zone"} {
		if !isReserved(word) {
			t.Errorf("%s is not reserved", word)
		}
	}
	if isReserved("pk") {
		t.Error("pk is reserved")
	}
}

// conditionItem is what the conditions below are evaluated on.
const conditionItem = `{"pk": {"S": "p"}, "sk": {"S": "s"}, "n": {"N": "10"}, "lim": {"N": "12"}, "st": {"S": "leased"}, "txt": {"S": "abcdé"},
	"bin": {"B": "AAH/"}, "yes": {"BOOL": true}, "nil": {"NULL": true}, "m": {"M": {"k": {"S": "v"}, "l": {"L": [{"N": "1"}, {"M": {"deep": {"S": "x"}}}]}}},
	"l": {"L": [{"N": "1"}, {"N": "2"}, {"N": "3"}]}, "ss": {"SS": ["b", "a"]}, "ns": {"NS": ["1.0", "2"]}, "bs": {"BS": ["AQ==", "Ag=="]}, "e": {"S": ""}}`

const conditionValues = `{":ten": {"N": "10.0"}, ":nine": {"N": "9"}, ":hundred": {"N": "1E2"}, ":leased": {"S": "leased"}, ":done": {"S": "done"}, ":textten": {"S": "10"},
	":abc": {"S": "abc"}, ":bc": {"S": "bc"}, ":b01": {"B": "AAE="}, ":yes": {"BOOL": true}, ":nil": {"NULL": true}, ":map": {"M": {"k": {"S": "v"}, "l": {"L": [{"N": "1"}, {"M": {"deep": {"S": "x"}}}]}}},
	":list": {"L": [{"N": "1"}, {"N": "2"}, {"N": "3"}]}, ":ss": {"SS": ["a", "b"]}, ":ns": {"NS": ["2", "1"]}, ":a": {"S": "a"}, ":one": {"N": "1"}, ":two": {"N": "2"}, ":three": {"N": "3"}, ":five": {"N": "5"},
	":S": {"S": "S"}, ":M": {"S": "M"}, ":bin1": {"B": "AQ=="}, ":empty": {"S": ""}}`

func TestConditions(t *testing.T) {
	it := parseItem(t, conditionItem)
	values := placeholders{valuesSet: true}
	r := &reader{data: []byte(conditionValues), names: newInterner()}
	if err := r.readValues(&values); err != nil {
		t.Fatal(err)
	}
	values.names = []namePlaceholder{{key: "#n", name: "n"}, {key: "#k", name: "k"}, {key: "#odd", name: "a.b"}}
	for text, want := range map[string]bool{
		"n = :ten": true, "n <> :ten": false, "n < :hundred": true, "n <= :nine": false, "n > :nine AND n < :hundred": true, "n >= :ten": true,
		"n = :textten": false, "n <> :textten": true, "n < :textten": false, "NOT n < :textten": true,
		"nope = :ten": false, "nope <> :ten": true, "nope < :ten": false, "NOT (nope < :ten)": true, "nope <> nada": true, "nope = nada": false,
		":nine < n": true, "n < lim": true, "#n = :ten": true, "m.#k = st OR n = :ten": true, "attribute_not_exists(#odd)": true,
		"st IN (:done, :leased)": true, "st IN (:done)": false, "nope IN (:done)": false, "st in (:done, st)": true,
		"n BETWEEN :nine AND :hundred": true, "n between :ten and :ten and st = :leased": true, "n BETWEEN :hundred AND lim": false, "st BETWEEN :done AND :leased": true, "n BETWEEN :a AND :leased": false,
		"st = :leased OR st = :done AND n = :nine": true, "(st = :leased OR st = :done) AND n = :nine": false, "NOT st = :leased": false, "NOT NOT st = :leased": true, "NOT n = :nine AND st = :leased": true,
		"attribute_exists(m.k)": true, "attribute_exists(m.z)": false, "attribute_exists(l[2])": true, "attribute_exists(l[3])": false, "attribute_exists(m.l[1].deep)": true, "attribute_exists(st.k)": false, "attribute_exists(m[0])": false, "attribute_exists(l.k)": false, "attribute_exists(e)": true,
		"attribute_type(m, :M)": true, "attribute_type(st, :S)": true, "attribute_type(n, :S)": false, "attribute_type(nope, :S)": false,
		"begins_with(txt, :abc)": true, "begins_with(txt, :bc)": false, "begins_with(bin, :b01)": true, "begins_with(n, :abc)": false, "begins_with(st, :empty)": true,
		"contains(txt, :bc)": true, "contains(l, :two)": true, "contains(l, :ten)": false, "contains(ss, :a)": true, "contains(ns, :one)": true, "contains(bs, :bin1)": true, "contains(ss, :one)": false, "contains(bin, :bin1)": true, "contains(n, :one)": false, "contains(:abc, e)": true,
		"size(txt) = :five": true, "size(bin) = :three": true, "size(l) < lim": true, "size(ss) = :two": true, "size(m) = :two": true, "size(nope) < :ten": false, "size(n) < :ten": false, "size(e) < :one": true,
		"yes = :yes": true, "nil = :nil": true, "m = :map": true, "l = :list": true, "ss = :ss": true, "ns = :ns": true, "bs <> :ss": true,
	} {
		b := bindText(t, conditionExpression, text, &values)
		if got := b.holds(b.root, it); got != want {
			t.Errorf("%s is %v", text, got)
		}
	}
	absent := bindText(t, conditionExpression, "attribute_not_exists(pk) AND NOT attribute_exists(m.k) AND n <> :ten", &values)
	if !absent.holds(absent.root, nil) {
		t.Error("conditions on an absent item")
	}
}

func bindText(tb testing.TB, k expressionKind, text string, in *placeholders) *bound {
	tb.Helper()
	parsed, err := parseExpression(k, text)
	if err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	b, err := in.bind(parsed)
	if err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return b
}

func parseItem(tb testing.TB, text string) *item {
	tb.Helper()
	r := &reader{data: []byte(text), names: newInterner()}
	attributes, err := r.attributes(0)
	if err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return newItem(attributes)
}

func TestExpressionsThatDynamoDBRefuses(t *testing.T) {
	deep := strings.Repeat("(a = :v AND ", 120) + "a = :v" + strings.Repeat(")", 120)
	many := strings.Repeat("a = :v OR ", 301) + "a = :v"
	in := "a IN (:v" + strings.Repeat(", :v", 100) + ")"
	for _, c := range []struct {
		kind          expressionKind
		text, message string
	}{
		{conditionExpression, "", "The expression can not be empty;"},
		{conditionExpression, "  ", "The expression can not be empty;"},
		{conditionExpression, "a = = :v", `Syntax error; token: "=", near: "= = :v"`},
		{conditionExpression, "a =", `Syntax error; token: "<EOF>"`},
		{conditionExpression, "a = :v)", "Syntax error"},
		{conditionExpression, "(a = :v", "Syntax error"},
		{conditionExpression, "a", "Syntax error"},
		{conditionExpression, ":v", "Syntax error"},
		{conditionExpression, "a ! :v", `token: "!"`},
		{conditionExpression, "a = é", `token: "é"`},
		{conditionExpression, "a.b.3 = :v", "Syntax error"},
		{conditionExpression, "a[x] = :v", "Syntax error"},
		{conditionExpression, "a[-1] = :v", "Syntax error"},
		{conditionExpression, "a[99999999999] = :v", "List index is not within the allowable range"},
		{conditionExpression, "a" + strings.Repeat(".a", 40) + " = :v", "too many nesting elements"},
		{conditionExpression, "# = :v", "Syntax error"},
		{conditionExpression, "a = :", "Syntax error"},
		{conditionExpression, "NOT", "Syntax error"},
		{conditionExpression, "a = :v AND", "Syntax error"},
		{conditionExpression, "a BETWEEN :v", "Syntax error"},
		{conditionExpression, "a IN :v", "Syntax error"},
		{conditionExpression, "a = :v = :v", "Syntax error"},
		{conditionExpression, "(a = :v) = :v", "Syntax error"},
		{conditionExpression, "((a = :v))", "redundant parentheses"},
		{conditionExpression, "((a)) = :v", "redundant parentheses"},
		{conditionExpression, "status = :v", "reserved keyword: status"},
		{conditionExpression, "a.Name = :v", "reserved keyword: Name"},
		{conditionExpression, "foo(a)", "Invalid function name; function: foo"},
		{conditionExpression, "Size(a) = :v", "Invalid function name; function: Size"},
		{conditionExpression, "if_not_exists(a, :v)", "Invalid function name"},
		{conditionExpression, "attribute_exists(a, b)", "Incorrect number of operands for operator or function; operator or function: attribute_exists, number of operands: 2"},
		{conditionExpression, "attribute_exists(:v)", "requires a document path"},
		{conditionExpression, "size(a)", "not allowed to be used this way in an expression; function: size"},
		{conditionExpression, "contains(a, :v) = :v", "not allowed to be used this way in an expression; function: contains"},
		{conditionExpression, "contains(attribute_exists(a), :v)", "not allowed to be used this way in an expression; function: attribute_exists"},
		{conditionExpression, "a = a", "The first operand must be distinct"},
		{conditionExpression, "a.b[1] < #a.b[1]", "The first operand must be distinct from the remaining operands for this operator or function; operator: <, first operand: [a, b, [1]]"},
		{conditionExpression, "begins_with(a, a)", "The first operand must be distinct"},
		{conditionExpression, "a < :yes", "Incorrect operand type for operator or function; operator: <, operand type: BOOL"},
		{conditionExpression, "a BETWEEN :v AND :w", "requires upper bound to be greater than or equal to lower bound"},
		{conditionExpression, "a BETWEEN :v AND :text", "requires same data type for lower and upper bounds"},
		{conditionExpression, "a BETWEEN :yes AND :yes", "Incorrect operand type"},
		{conditionExpression, "begins_with(a, :v)", "operator or function: begins_with, operand type: N"},
		{conditionExpression, "begins_with(a, size(b))", "operand type: N"},
		{conditionExpression, "attribute_type(a, :v)", "operand type: N"},
		{conditionExpression, "attribute_type(a, b)", "Incorrect operand type"},
		{conditionExpression, "attribute_type(a, :text)", "Invalid attribute type name found; type: x"},
		{conditionExpression, "size(:v) = :v", "operator or function: size, operand type: N"},
		{conditionExpression, "#missing = :v", "attribute name: #missing"},
		{conditionExpression, "a = :missing", "attribute value: :missing"},
		{conditionExpression, deep, "nested too deeply"},
		{conditionExpression, strings.Repeat("NOT ", 120) + "a = :v", "nested too deeply"},
		{conditionExpression, many, "too many operators"},
		{conditionExpression, in, "too many operands; number of operands: 101"},
		{conditionExpression, "a = :v" + strings.Repeat(" ", 4096), "Expression size has exceeded the maximum allowed size; expression size: 4102"},
		{filterExpression, "a = = :v", "Invalid FilterExpression: Syntax error"},
		{projectionExpression, "a,", "Invalid ProjectionExpression: Syntax error"},
		{projectionExpression, "a b", "Syntax error"},
		{projectionExpression, "a, a", "overlap with each other; must remove or rewrite one of these paths; path one: [a], path two: [a]"},
		{projectionExpression, "a.b, #a", "overlap"},
		{projectionExpression, "a[0], a.b", "conflict with each other; must remove or rewrite one of these paths; path one: [a, [0]], path two: [a, b]"},
		{projectionExpression, "size(a)", "reserved keyword: size"},
		{updateExpression, "SET", "Syntax error"},
		{updateExpression, "PUT a = :v", "Syntax error"},
		{updateExpression, "SET a = :v SET b = :v", `The "SET" section can only be used once in an update expression;`},
		{updateExpression, "SET a = :v,", "Syntax error"},
		{updateExpression, "SET a = :v + :v + :v", "Syntax error"},
		{updateExpression, "SET a = foo(:v)", "Invalid function name; function: foo"},
		{updateExpression, "SET a = if_not_exists(:v, :v)", "requires a document path"},
		{updateExpression, "SET a = list_append(b)", "number of operands: 1"},
		{updateExpression, "SET a = list_append(b, :v)", "operator or function: list_append, operand type: N"},
		{updateExpression, "SET a = b + :text", "operator or function: +, operand type: S"},
		{updateExpression, "SET a = ((:v))", "redundant parentheses"},
		{updateExpression, "SET a = (:v", "Syntax error"},
		{updateExpression, "SET a.b = :v, a = :v", "overlap"},
		{updateExpression, "SET a = :v REMOVE #a", "overlap"},
		{updateExpression, "SET a[1] = :v REMOVE a.b", "conflict"},
		{updateExpression, "SET status = :v", "reserved keyword: status"},
		{updateExpression, "ADD a :text", "operator: ADD, operand type: STRING"},
		{updateExpression, "ADD a b", "Syntax error"},
		{updateExpression, "DELETE a :v", "operator: DELETE, operand type: NUMBER"},
		{updateExpression, "REMOVE a = :v", "Syntax error"},
		{updateExpression, "SET a = " + strings.Repeat("if_not_exists(b, ", 120) + ":v" + strings.Repeat(")", 120), "nested too deeply"},
	} {
		in := &placeholders{
			names: []namePlaceholder{{key: "#a", name: "a"}},
			values: []valuePlaceholder{
				{key: ":v", value: numberValue("2")}, {key: ":w", value: numberValue("1")},
				{key: ":text", value: stringValue("x")}, {key: ":yes", value: value{kind: kindBool, truth: true}},
			},
		}
		parsed, err := parseExpression(c.kind, c.text)
		if err == nil {
			_, err = in.bind(parsed)
		}
		switch {
		case err == nil:
			t.Errorf("%s %q was accepted", expressionLabels[c.kind], c.text)
		case asAPIError(err).code != codeValidation || !strings.Contains(err.Error(), c.message):
			t.Errorf("%s %q: %v, want %s", expressionLabels[c.kind], c.text, err, c.message)
		}
	}
}

func TestThreeHundredOperatorsAreAllowed(t *testing.T) {
	// A condition of n comparisons has n - 1 ORs.
	if _, err := parseExpression(conditionExpression, strings.Repeat("a = :v OR ", 149)+"a = :v"); err != nil {
		t.Error(err)
	}
}

func TestThePlaceholdersThemselvesAreChecked(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	for given, message := range map[string]string{
		`"ConditionExpression": "a = :v", "ExpressionAttributeValues": {}`:                                                          "ExpressionAttributeValues must not be empty",
		`"ConditionExpression": "attribute_exists(a)", "ExpressionAttributeNames": {}`:                                              "ExpressionAttributeNames must not be empty",
		`"ConditionExpression": "a = :v", "ExpressionAttributeValues": {"v": {"N": "1"}}`:                                           `ExpressionAttributeValues contains invalid key: Syntax error; key: "v"`,
		`"ConditionExpression": "a = :v", "ExpressionAttributeValues": {":v-1": {"N": "1"}}`:                                        "contains invalid key",
		`"ConditionExpression": "attribute_exists(a)", "ExpressionAttributeNames": {"a": "b"}`:                                      `ExpressionAttributeNames contains invalid key: Syntax error; key: "a"`,
		`"ConditionExpression": "attribute_exists(#a)", "ExpressionAttributeNames": {"#a": ""}`:                                     "ExpressionAttributeNames contains invalid value",
		`"ConditionExpression": "a = :v", "ExpressionAttributeValues": {":v": {"N": "x"}}`:                                          "ExpressionAttributeValues contains invalid value: The parameter cannot be converted to a numeric value: x for key :v",
		`"ConditionExpression": "a = :v", "ExpressionAttributeValues": {":v": {"N": "1"}, ":w": {"N": "1"}}`:                        "Value provided in ExpressionAttributeValues unused in expressions: keys: {:w}",
		`"ConditionExpression": "a = :v", "ExpressionAttributeValues": {":v": {"N": "1"}}, "ExpressionAttributeNames": {"#a": "a"}`: "Value provided in ExpressionAttributeNames unused in expressions: keys: {#a}",
		`"ExpressionAttributeNames": {"#a": "a"}`:                                                                                   "ExpressionAttributeNames can only be specified when using expressions",
		`"ExpressionAttributeValues": {":v": {"N": "1"}}`:                                                                           "ExpressionAttributeValues can only be specified when using expressions: ConditionExpression is null",
		`"ConditionExpression": "", "ExpressionAttributeValues": {":v": {"N": "1"}}`:                                                "Invalid ConditionExpression: The expression can not be empty;",
	} {
		f.refuse("PutItem", `{"TableName": "main", "Item": `+mainItem("a", "b", "")+`, `+given+`}`, codeValidation, message)
	}
}

func TestTheExpressionCacheIsBounded(t *testing.T) {
	c := newExpressionCache()
	for i := range 2*maxCachedExpressions + 10 {
		if _, err := c.parse(projectionExpression, "a"+strings.Repeat("b", i%200)+strings.Repeat("c", i/200)); err != nil {
			t.Fatal(err)
		}
	}
	if c.count > maxCachedExpressions {
		t.Errorf("%d expressions cached", c.count)
	}
}
