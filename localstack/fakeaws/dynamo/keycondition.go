package dynamo

// A keyCondition is what a Query asks of the keys: one partition, and
// optionally a range of the sort key.
type keyCondition struct {
	partition value
	op        operation // opAnd (none) when the sort key is free
	operands  []value
}

func (c *keyCondition) hasSort() bool { return c.op != opAnd }

var flipped = map[operation]operation{
	opEqual: opEqual, opLess: opGreater, opLessEqual: opGreaterEqual, opGreater: opLess, opGreaterEqual: opLessEqual,
}

// keyCondition reads a key condition for the keys of a table or index.
func (b *bound) keyCondition(keys keySchema) (*keyCondition, error) {
	parts := []*node{b.root}
	if b.root.op == opAnd {
		parts = b.root.args
	}
	condition := &keyCondition{op: opAnd}
	seen := map[string]bool{}
	for _, part := range parts {
		name, op, operands, err := b.keyPart(part)
		if err != nil {
			return nil, err
		}
		if seen[name] {
			return nil, b.errorf("KeyConditionExpressions must only contain one condition per key")
		}
		seen[name] = true
		switch {
		case name == keys.partition.name:
			if op != opEqual {
				return nil, validationError("Query key condition not supported")
			}
			condition.partition = operands[0]
			err = keys.partition.checkCondition(operands, maxPartitionKeySize)
		case keys.hasSort() && name == keys.sort.name:
			condition.op, condition.operands = op, operands
			err = keys.sort.checkCondition(operands, maxSortKeySize)
		case len(parts) > 1 && keys.hasSort() && seen[keys.partition.name]:
			return nil, validationError("Query condition missed key schema element: %s", keys.sort.name)
		default:
			return nil, validationError("Query condition missed key schema element: %s", keys.partition.name)
		}
		if err != nil {
			return nil, err
		}
	}
	if !seen[keys.partition.name] {
		return nil, validationError("Query condition missed key schema element: %s", keys.partition.name)
	}
	return condition, nil
}

// keyPart takes one comparison of a key attribute with values apart.
func (b *bound) keyPart(n *node) (name string, op operation, operands []value, err error) {
	switch n.op {
	case opEqual, opLess, opLessEqual, opGreater, opGreaterEqual, opBetween, opBeginsWith:
	default:
		return "", 0, nil, b.errorf("Invalid operator used in KeyConditionExpression: %s", n.op)
	}
	op = n.op
	attribute, others := n.args[0], n.args[1:]
	if attribute.op == opValue && n.op != opBetween && n.op != opBeginsWith {
		attribute, others, op = n.args[1], n.args[:1], flipped[n.op]
	}
	switch {
	case attribute.op == opSize:
		return "", 0, nil, b.errorf("KeyConditionExpressions cannot contain nested operations")
	case attribute.op != opPath:
		return "", 0, nil, b.errorf("Invalid condition in KeyConditionExpression: No key attribute specified")
	case len(attribute.path) > 1:
		return "", 0, nil, b.errorf("KeyConditionExpressions cannot have conditions on nested attributes")
	}
	for _, other := range others {
		switch other.op {
		case opValue:
			operands = append(operands, b.valueOf[other.value])
		case opPath:
			return "", 0, nil, b.errorf("Invalid condition in KeyConditionExpression: Multiple attribute names used in one condition")
		default:
			return "", 0, nil, b.errorf("KeyConditionExpressions cannot contain nested operations")
		}
	}
	return b.head(attribute.path), op, operands, nil
}

// keyRange is the range of tree keys that satisfy the condition.
func (c *keyCondition) keyRange() keyRange {
	prefix := partitionPrefix(c.partition)
	whole := len(prefix)
	exact := func(v value) []byte { return appendOrdered(prefix[:whole:whole], v) }
	first, end := prefix, prefixEnd(prefix)
	switch c.op {
	case opEqual:
		first = exact(c.operands[0])
		end = prefixEnd(first)
	case opLess:
		end = exact(c.operands[0])
	case opLessEqual:
		end = prefixEnd(exact(c.operands[0]))
	case opGreater:
		first = prefixEnd(exact(c.operands[0]))
	case opGreaterEqual:
		first = exact(c.operands[0])
	case opBetween:
		first = exact(c.operands[0])
		end = prefixEnd(exact(c.operands[1]))
	case opBeginsWith:
		first = appendEscaped(prefix[:whole:whole], c.operands[0].text)
		end = prefixEnd(first)
	}
	return keyRange{first: string(first), end: string(end)}
}

// matches tells whether a start key satisfies the sort key's condition.
func (c *keyCondition) matches(sort value) bool {
	if !c.hasSort() {
		return true
	}
	b := &bound{expression: &expression{}, valueOf: append([]value{sort}, c.operands...)}
	n := &node{op: c.op}
	for i := range b.valueOf {
		n.args = append(n.args, &node{op: opValue, value: i})
	}
	return b.holds(n, nil)
}
