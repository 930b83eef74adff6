package dynamo

import (
	"slices"
	"strconv"
	"strings"
	"sync"
)

// An expressionKind is the request parameter that an expression stands in; its
// grammar and its error messages depend on it.
type expressionKind uint8

const (
	conditionExpression expressionKind = iota
	filterExpression
	keyConditionExpression
	projectionExpression
	updateExpression
	expressionKinds
)

var expressionLabels = [expressionKinds]string{
	"ConditionExpression", "FilterExpression", "KeyConditionExpression", "ProjectionExpression", "UpdateExpression",
}

// An expression is a parsed expression. It is immutable and shared by all
// requests with the same text; placeholders are bound per request.
type expression struct {
	kind expressionKind
	// names and values are the placeholders used, in order of first use.
	names  []string
	values []string
	// root is the condition of a condition, filter or key condition.
	root *node
	// paths are those of a projection.
	paths []path
	// actions are those of an update.
	actions []action
}

func (e *expression) errorf(format string, args ...any) *apiError {
	return expressionError(e.kind, format, args...)
}

func expressionError(k expressionKind, format string, args ...any) *apiError {
	return validationError("Invalid "+expressionLabels[k]+": "+format, args...)
}

// A path leads to an attribute or into one.
type path []step

// A step is one element of a path: a name written out, a placeholder for a
// name, or a list index.
type step struct {
	name    string
	ref     int // index into expression.names plus one; 0 for a name written out
	index   int
	isIndex bool
}

// An operation is what a node of a condition or of an update's operand does.
type operation uint8

const (
	opPath operation = iota
	opValue
	opOr
	opAnd
	opNot
	opEqual
	opNotEqual
	opLess
	opLessEqual
	opGreater
	opGreaterEqual
	opBetween
	opIn
	opAttributeExists
	opAttributeNotExists
	opAttributeType
	opBeginsWith
	opContains
	opSize
	opIfNotExists
	opListAppend
	opPlus
	opMinus
)

var operationNames = [...]string{
	opPath: "path", opValue: "value", opOr: "OR", opAnd: "AND", opNot: "NOT",
	opEqual: "=", opNotEqual: "<>", opLess: "<", opLessEqual: "<=", opGreater: ">", opGreaterEqual: ">=",
	opBetween: "BETWEEN", opIn: "IN",
	opAttributeExists: "attribute_exists", opAttributeNotExists: "attribute_not_exists", opAttributeType: "attribute_type",
	opBeginsWith: "begins_with", opContains: "contains", opSize: "size",
	opIfNotExists: "if_not_exists", opListAppend: "list_append", opPlus: "+", opMinus: "-",
}

func (op operation) String() string { return operationNames[op] }

// isOperand tells nodes that stand for a value from those that are true or false.
func (op operation) isOperand() bool {
	return op == opPath || op == opValue || op == opSize || op >= opIfNotExists
}

func (op operation) isFunction() bool { return op >= opAttributeExists && op <= opListAppend }

// A node is an operator, a function or an operand.
type node struct {
	op          operation
	path        path    // of opPath
	value       int     // of opValue: index into expression.values
	args        []*node // of everything else
	parentheses bool    // written in parentheses
}

// A bound is an expression together with the names and values that one
// request gives its placeholders.
type bound struct {
	*expression
	nameOf  []string
	valueOf []value
}

// stepName gives the name that a step stands for.
func (b *bound) stepName(s step) string {
	if s.ref > 0 {
		return b.nameOf[s.ref-1]
	}
	return s.name
}

// head is the attribute in which a path begins.
func (b *bound) head(p path) string { return b.stepName(p[0]) }

// resolve follows a path into an item.
func (b *bound) resolve(it *item, p path) (value, bool) {
	v, ok := it.get(b.stepName(p[0]))
	for _, s := range p[1:] {
		if !ok {
			return value{}, false
		}
		if s.isIndex {
			if v.kind != kindList || s.index >= len(v.list()) {
				return value{}, false
			}
			v = v.list()[s.index]
			continue
		}
		v, ok = findAttribute(v.fields(), b.stepName(s))
	}
	return v, ok
}

// pathText writes a path as AWS's messages do: [a, b, [2]].
func (b *bound) pathText(p path) string {
	var out strings.Builder
	out.WriteByte('[')
	for i, s := range p {
		if i > 0 {
			out.WriteString(", ")
		}
		if s.isIndex {
			out.WriteString("[" + strconv.Itoa(s.index) + "]")
		} else {
			out.WriteString(b.stepName(s))
		}
	}
	out.WriteByte(']')
	return out.String()
}

// samePath tells whether two paths lead to the same place.
func (b *bound) samePath(p, q path) bool {
	return slices.EqualFunc(p, q, b.sameStep)
}

func (b *bound) sameStep(s, t step) bool {
	if s.isIndex || t.isIndex {
		return s.isIndex == t.isIndex && s.index == t.index
	}
	return b.stepName(s) == b.stepName(t)
}

// checkDisjoint refuses paths of which one contains the other, and paths that
// take the same attribute for a list and for a map.
func (b *bound) checkDisjoint(paths []path) error {
	for i, p := range paths {
		for _, q := range paths[:i] {
			shared := 0
			for shared < len(p) && shared < len(q) && b.sameStep(p[shared], q[shared]) {
				shared++
			}
			switch {
			case shared == len(p) || shared == len(q):
				return b.errorf("Two document paths overlap with each other; must remove or rewrite one of these paths; path one: %s, path two: %s", b.pathText(q), b.pathText(p))
			case p[shared].isIndex != q[shared].isIndex:
				return b.errorf("Two document paths conflict with each other; must remove or rewrite one of these paths; path one: %s, path two: %s", b.pathText(q), b.pathText(p))
			}
		}
	}
	return nil
}

// maxCachedExpressions bounds the cache of parsed expressions.
const maxCachedExpressions = 4096

// An expressionCache keeps parsed expressions: a program uses a few dozen
// texts over and over.
type expressionCache struct {
	mu     sync.RWMutex
	parsed [expressionKinds]map[string]*expression
	count  int
}

func newExpressionCache() *expressionCache {
	c := &expressionCache{}
	c.clear()
	return c
}

func (c *expressionCache) clear() {
	for k := range c.parsed {
		c.parsed[k] = map[string]*expression{}
	}
	c.count = 0
}

// parse returns the parsed expression. A full cache starts over: whoever fills
// it uses expressions once, so no entry is worth more than another.
func (c *expressionCache) parse(k expressionKind, text string) (*expression, error) {
	c.mu.RLock()
	e := c.parsed[k][text]
	c.mu.RUnlock()
	if e != nil {
		return e, nil
	}
	e, err := parseExpression(k, text)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count >= maxCachedExpressions {
		c.clear()
	}
	c.parsed[k][text] = e
	c.count++
	return e, nil
}
