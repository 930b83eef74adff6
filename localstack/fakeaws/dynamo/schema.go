package dynamo

// Limits of key values in bytes.
const (
	maxPartitionKeySize = 2048
	maxSortKeySize      = 1024
)

// A keyAttribute is an attribute that is part of a key.
type keyAttribute struct {
	name string
	kind kind
}

// A keySchema is the key of a table or an index; sort has no name when there
// is no sort key.
type keySchema struct {
	partition, sort keyAttribute
}

func (k keySchema) hasSort() bool { return k.sort.name != "" }

func (k keySchema) has(name string) bool {
	return name == k.partition.name || k.hasSort() && name == k.sort.name
}

// size is the number of key attributes.
func (k keySchema) size() int {
	if k.hasSort() {
		return 2
	}
	return 1
}

// each calls fn with every key attribute and the size limit of its values.
func (k keySchema) each(fn func(a keyAttribute, limit int) error) error {
	if err := fn(k.partition, maxPartitionKeySize); err != nil || !k.hasSort() {
		return err
	}
	return fn(k.sort, maxSortKeySize)
}

// treeKey is the place of a row in its table's tree. The attributes must have
// been checked.
func (k keySchema) treeKey(attributes []attribute) []byte {
	partition, _ := findAttribute(attributes, k.partition.name)
	key := partitionPrefix(partition)
	if k.hasSort() {
		sort, _ := findAttribute(attributes, k.sort.name)
		key = appendOrdered(key, sort)
	}
	return key
}

func errKeySchema() *apiError {
	return validationError("The provided key element does not match the schema")
}

func errEmptyKey(a keyAttribute) *apiError {
	content := "string"
	if a.kind == kindBinary {
		content = "binary"
	}
	return validationError("One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty %s value. Key: %s", content, a.name)
}

func errKeySize(limit int) *apiError {
	if limit == maxPartitionKeySize {
		return invalidParameter("Size of hashkey has exceeded the maximum size limit of2048 bytes")
	}
	return invalidParameter("Aggregated size of all range keys has exceeded the size limit of 1024 bytes")
}

// isIn tells whether an item has a value for the attribute that a key can have.
func (a keyAttribute) isIn(it *item, limit int) bool {
	v, exists := it.get(a.name)
	return exists && v.kind == a.kind && (a.kind == kindNumber || len(v.text) > 0 && len(v.text) <= limit)
}

// checkValue checks the content of a key value of the right type.
func (a keyAttribute) checkValue(v value, limit int) error {
	if a.kind == kindNumber {
		return nil
	}
	if v.text == "" {
		return errEmptyKey(a)
	}
	if len(v.text) > limit {
		return errKeySize(limit)
	}
	return nil
}

// checkCondition checks the operands of a key condition.
func (a keyAttribute) checkCondition(operands []value, limit int) error {
	for _, v := range operands {
		if v.kind != a.kind {
			return invalidParameter("Condition parameter type does not match schema type")
		}
		if err := a.checkValue(v, limit); err != nil {
			return err
		}
	}
	return nil
}

// checkKey demands exactly the key attributes.
func (k keySchema) checkKey(attributes []attribute) error {
	if len(attributes) != k.size() {
		return errKeySchema()
	}
	return k.each(func(a keyAttribute, limit int) error {
		v, exists := findAttribute(attributes, a.name)
		if !exists || v.kind != a.kind {
			return errKeySchema()
		}
		return a.checkValue(v, limit)
	})
}

// checkItem demands the key attributes among others.
func (k keySchema) checkItem(attributes []attribute) error {
	return k.each(func(a keyAttribute, limit int) error {
		v, exists := findAttribute(attributes, a.name)
		if !exists {
			return invalidParameter("Missing the key %s in the item", a.name)
		}
		if v.kind != a.kind {
			return invalidParameter("Type mismatch for key %s expected: %s actual: %s", a.name, a.kind, v.kind)
		}
		return a.checkValue(v, limit)
	})
}

// keyOf takes the key attributes out of an item.
func (k keySchema) keyOf(it *item) []attribute {
	key := make([]attribute, 0, 2)
	for _, a := range it.attributes {
		if k.has(a.name) {
			key = append(key, a)
		}
	}
	return key
}
