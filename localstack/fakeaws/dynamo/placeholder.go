package dynamo

import (
	"slices"
	"strings"
)

// placeholders are ExpressionAttributeNames and ExpressionAttributeValues of a
// request, or of one action of a transaction.
type placeholders struct {
	names     []namePlaceholder
	values    []valuePlaceholder
	namesSet  bool
	valuesSet bool
}

type namePlaceholder struct {
	key, name string
	used      bool
}

type valuePlaceholder struct {
	key   string
	value value
	used  bool
}

// maxPlaceholderSize is the limit of "#name" and ":value" themselves.
const maxPlaceholderSize = 255

// readNames reads ExpressionAttributeNames.
func (r *reader) readNames(into *placeholders) error {
	if r.null() {
		return nil
	}
	into.namesSet = true
	return r.object(func(key []byte) error {
		owned := string(key)
		name, err := r.text()
		if err != nil {
			return err
		}
		into.names = append(into.names, namePlaceholder{key: owned, name: r.names.intern(name)})
		return nil
	})
}

// readValues reads ExpressionAttributeValues.
func (r *reader) readValues(into *placeholders) error {
	if r.null() {
		return nil
	}
	into.valuesSet = true
	return r.object(func(key []byte) error {
		owned := string(key)
		v, err := r.value(0)
		if err != nil {
			if invalid, ok := err.(*apiError); ok && invalid.code == codeValidation {
				return validationError("ExpressionAttributeValues contains invalid value: %s for key %s", invalid.message, owned)
			}
			return err
		}
		into.values = append(into.values, valuePlaceholder{key: owned, value: v})
		return nil
	})
}

// checkSyntax looks at the placeholders themselves.
func (in *placeholders) checkSyntax() error {
	if in.namesSet && len(in.names) == 0 {
		return validationError("ExpressionAttributeNames must not be empty")
	}
	for i := range in.names {
		if n := &in.names[i]; !isPlaceholder(n.key, '#') {
			return validationError("ExpressionAttributeNames contains invalid key: Syntax error; key: %q", n.key)
		} else if len(n.name) == 0 || len(n.name) > maxNameSize {
			return validationError("ExpressionAttributeNames contains invalid value: Attribute name must be 1 to 65535 bytes long for key %s", n.key)
		}
	}
	if in.valuesSet && len(in.values) == 0 {
		return validationError("ExpressionAttributeValues must not be empty")
	}
	for i := range in.values {
		if !isPlaceholder(in.values[i].key, ':') {
			return validationError("ExpressionAttributeValues contains invalid key: Syntax error; key: %q", in.values[i].key)
		}
	}
	return nil
}

func isPlaceholder(key string, mark byte) bool {
	if len(key) < 2 || len(key) > maxPlaceholderSize || key[0] != mark {
		return false
	}
	for i := 1; i < len(key); i++ {
		if !isLetter(key[i]) && !isDigit(key[i]) {
			return false
		}
	}
	return true
}

// bind gives an expression's placeholders their names and values and checks
// what can be checked without an item.
func (in *placeholders) bind(e *expression) (*bound, error) {
	b := &bound{expression: e}
	if len(e.names) > 0 {
		b.nameOf = make([]string, len(e.names))
	}
	for i, key := range e.names {
		at := slices.IndexFunc(in.names, func(n namePlaceholder) bool { return n.key == key })
		if at < 0 {
			return nil, e.errorf("An expression attribute name used in the document path is not defined; attribute name: %s", key)
		}
		in.names[at].used = true
		b.nameOf[i] = in.names[at].name
	}
	if len(e.values) > 0 {
		b.valueOf = make([]value, len(e.values))
	}
	for i, key := range e.values {
		at := slices.IndexFunc(in.values, func(v valuePlaceholder) bool { return v.key == key })
		if at < 0 {
			return nil, e.errorf("An expression attribute value used in expression is not defined; attribute value: %s", key)
		}
		in.values[at].used = true
		b.valueOf[i] = in.values[at].value
	}
	return b, b.check()
}

func (b *bound) check() error {
	switch b.kind {
	case updateExpression:
		return b.checkActions()
	case projectionExpression:
		return b.checkDisjoint(b.paths)
	}
	return b.checkTypes(b.root)
}

// checkUsed refuses placeholders that no expression of the request used.
// without names the expressions that could have used them but are absent.
func (in *placeholders) checkUsed(expressions int, without string) error {
	switch {
	case in.namesSet && expressions == 0:
		return validationError("ExpressionAttributeNames can only be specified when using expressions")
	case in.valuesSet && expressions == 0:
		return validationError("ExpressionAttributeValues can only be specified when using expressions: %s", without)
	}
	var unused []string
	for _, n := range in.names {
		if !n.used {
			unused = append(unused, n.key)
		}
	}
	if len(unused) > 0 {
		return validationError("Value provided in ExpressionAttributeNames unused in expressions: keys: {%s}", strings.Join(unused, ", "))
	}
	for _, v := range in.values {
		if !v.used {
			unused = append(unused, v.key)
		}
	}
	if len(unused) > 0 {
		return validationError("Value provided in ExpressionAttributeValues unused in expressions: keys: {%s}", strings.Join(unused, ", "))
	}
	return nil
}
