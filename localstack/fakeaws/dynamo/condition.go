package dynamo

import (
	"strconv"
	"strings"
)

// holds evaluates a condition on an item; nil stands for an absent item.
func (b *bound) holds(n *node, it *item) bool {
	switch n.op {
	case opAnd:
		for _, arg := range n.args {
			if !b.holds(arg, it) {
				return false
			}
		}
		return true
	case opOr:
		for _, arg := range n.args {
			if b.holds(arg, it) {
				return true
			}
		}
		return false
	case opNot:
		return !b.holds(n.args[0], it)
	case opAttributeExists, opAttributeNotExists:
		_, exists := b.resolve(it, n.args[0].path)
		return exists == (n.op == opAttributeExists)
	case opIn:
		return b.isIn(n, it)
	}
	return b.compares(n, it)
}

// operand evaluates a path, a value or size(); false when an attribute is missing.
func (b *bound) operand(n *node, it *item) (value, bool) {
	switch n.op {
	case opValue:
		return b.valueOf[n.value], true
	case opPath:
		return b.resolve(it, n.path)
	}
	v, ok := b.operand(n.args[0], it)
	if !ok {
		return value{}, false
	}
	length, ok := v.length()
	return numberValue(strconv.Itoa(length)), ok
}

// compares evaluates the operators and functions on two or three operands. A
// missing attribute makes all of them false but <>, as a wrong type does.
func (b *bound) compares(n *node, it *item) bool {
	left, leftOK := b.operand(n.args[0], it)
	right, rightOK := b.operand(n.args[1], it)
	if n.op == opNotEqual {
		return !leftOK || !rightOK || !left.equal(right)
	}
	if !leftOK || !rightOK {
		return false
	}
	switch n.op {
	case opEqual:
		return left.equal(right)
	case opContains:
		return left.contains(right)
	case opBeginsWith:
		return left.kind == right.kind && left.kind.isScalar() && left.kind != kindNumber && strings.HasPrefix(left.text, right.text)
	case opAttributeType:
		return right.kind == kindString && left.kind.String() == right.text
	}
	if !left.comparable(right) {
		return false
	}
	order := compareScalars(left, right)
	switch n.op {
	case opLess:
		return order < 0
	case opLessEqual:
		return order <= 0
	case opGreater:
		return order > 0
	case opGreaterEqual:
		return order >= 0
	}
	upper, ok := b.operand(n.args[2], it) // BETWEEN
	return ok && order >= 0 && left.comparable(upper) && compareScalars(left, upper) <= 0
}

func (b *bound) isIn(n *node, it *item) bool {
	v, ok := b.operand(n.args[0], it)
	if !ok {
		return false
	}
	for _, arg := range n.args[1:] {
		if other, ok := b.operand(arg, it); ok && v.equal(other) {
			return true
		}
	}
	return false
}

// checkTypes refuses, before any item is looked at, operands whose type makes
// no sense and comparisons of an attribute with itself.
func (b *bound) checkTypes(n *node) error {
	for _, arg := range n.args {
		if err := b.checkTypes(arg); err != nil {
			return err
		}
	}
	switch n.op {
	case opEqual, opNotEqual:
		return b.checkDistinct(n)
	case opLess, opLessEqual, opGreater, opGreaterEqual:
		if err := b.checkDistinct(n); err != nil {
			return err
		}
		return b.checkKinds(n, "operator", kind.isScalar)
	case opBetween:
		if err := b.checkKinds(n, "operator", kind.isScalar); err != nil {
			return err
		}
		return b.checkBounds(n)
	case opBeginsWith:
		if err := b.checkDistinct(n); err != nil {
			return err
		}
		return b.checkKinds(n, "operator or function", func(k kind) bool { return k == kindString || k == kindBinary })
	case opContains:
		return b.checkDistinct(n)
	case opSize:
		return b.checkKinds(n, "operator or function", func(k kind) bool {
			return k != kindNumber && k != kindBool && k != kindNull
		})
	case opAttributeType:
		return b.checkTypeName(n)
	}
	return nil
}

// staticKind is the type of an operand where no item is needed to know it.
func (b *bound) staticKind(n *node) (kind, bool) {
	switch n.op {
	case opValue:
		return b.valueOf[n.value].kind, true
	case opSize, opPlus, opMinus:
		return kindNumber, true
	case opListAppend:
		return kindList, true
	}
	return 0, false
}

func (b *bound) checkKinds(n *node, called string, allowed func(kind) bool) error {
	for _, arg := range n.args {
		if k, known := b.staticKind(arg); known && !allowed(k) {
			return b.errorf("Incorrect operand type for operator or function; %s: %s, operand type: %s", called, n.op, k)
		}
	}
	return nil
}

func (b *bound) checkDistinct(n *node) error {
	left, right := n.args[0], n.args[1]
	if left.op == opPath && right.op == opPath && b.samePath(left.path, right.path) {
		return b.errorf("The first operand must be distinct from the remaining operands for this operator or function; operator: %s, first operand: %s", n.op, b.pathText(left.path))
	}
	return nil
}

func (b *bound) checkBounds(n *node) error {
	if n.args[1].op != opValue || n.args[2].op != opValue {
		return nil
	}
	lower, upper := b.valueOf[n.args[1].value], b.valueOf[n.args[2].value]
	if lower.kind != upper.kind {
		return b.errorf("The BETWEEN operator requires same data type for lower and upper bounds; lower bound operand: AttributeValue: {%s:%s}, upper bound operand: AttributeValue: {%s:%s}", lower.kind, lower.text, upper.kind, upper.text)
	}
	if compareScalars(lower, upper) > 0 {
		return b.errorf("The BETWEEN operator requires upper bound to be greater than or equal to lower bound; lower bound operand: AttributeValue: {%s:%s}, upper bound operand: AttributeValue: {%s:%s}", lower.kind, lower.text, upper.kind, upper.text)
	}
	return nil
}

func (b *bound) checkTypeName(n *node) error {
	if n.args[1].op != opValue {
		return b.errorf("Incorrect operand type for operator or function; operator or function: attribute_type, operand type: {NS,SS,L,BS,N,M,B,BOOL,NULL,S}")
	}
	name := b.valueOf[n.args[1].value]
	if name.kind != kindString {
		return b.errorf("Incorrect operand type for operator or function; operator or function: attribute_type, operand type: %s", name.kind)
	}
	if _, known := kindNamed(name.text); !known {
		return b.errorf("Invalid attribute type name found; type: %s, valid types: {B,NULL,SS,BOOL,L,BS,N,NS,S,M}", name.text)
	}
	return nil
}

// heads calls fn with the top-level attribute of every path under a node.
func (b *bound) heads(n *node, fn func(name string) error) error {
	if n.op == opPath {
		return fn(b.head(n.path))
	}
	for _, arg := range n.args {
		if err := b.heads(arg, fn); err != nil {
			return err
		}
	}
	return nil
}
