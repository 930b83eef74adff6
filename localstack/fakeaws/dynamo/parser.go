package dynamo

import (
	"slices"
	"strconv"
	"strings"
)

// A parser reads one expression by recursive descent.
type parser struct {
	lexer
	expression *expression
	current    token
	previous   token
	depth      int
	operators  int
}

// parseExpression parses text by the grammar of its kind. All errors that do
// not depend on the bound names and values are found here.
func parseExpression(k expressionKind, text string) (*expression, error) {
	p := &parser{lexer: lexer{text: text}, expression: &expression{kind: k}}
	if len(text) > maxExpressionSize {
		return nil, p.errorf("Expression size has exceeded the maximum allowed size; expression size: %d", len(text))
	}
	p.current = p.next()
	if p.current.kind == tokenEnd {
		return nil, p.errorf("The expression can not be empty;")
	}
	var err error
	switch k {
	case updateExpression:
		err = p.update()
	case projectionExpression:
		err = p.projection()
	default:
		p.expression.root, err = p.wholeCondition()
	}
	if err != nil {
		return nil, err
	}
	if p.current.kind != tokenEnd {
		return nil, p.syntaxError()
	}
	return p.expression, nil
}

func (p *parser) errorf(format string, args ...any) *apiError {
	return p.expression.errorf(format, args...)
}

// syntaxError names the current token and its neighbours, as AWS does.
func (p *parser) syntaxError() *apiError {
	after := lexer{text: p.text, at: p.at}
	following := after.next()
	end := following.at
	if following.kind != tokenEnd {
		end += len(following.text)
	}
	near := strings.TrimRight(p.text[p.previous.at:end], " \t\r\n")
	return p.errorf("Syntax error; token: %q, near: %q", p.current.text, near)
}

func (p *parser) advance() {
	p.previous = p.current
	p.current = p.next()
}

// symbol consumes an operator or bracket when it comes next.
func (p *parser) symbol(text string) bool {
	if p.current.kind != tokenSymbol || p.current.text != text {
		return false
	}
	p.advance()
	return true
}

func (p *parser) expect(text string) error {
	if !p.symbol(text) {
		return p.syntaxError()
	}
	return nil
}

// keyword tells whether a word comes next; keywords are not case sensitive.
func (p *parser) keyword(word string) bool {
	return p.current.kind == tokenName && strings.EqualFold(p.current.text, word)
}

func (p *parser) takeKeyword(word string) bool {
	if !p.keyword(word) {
		return false
	}
	p.advance()
	return true
}

func (p *parser) enter() error {
	p.depth++
	if p.depth > maxExpressionDepth {
		return p.errorf("The expression is nested too deeply; maximum nesting: %d", maxExpressionDepth)
	}
	return nil
}

func (p *parser) leave() { p.depth-- }

// operator counts one operator or function against the limit.
func (p *parser) operator() error {
	p.operators++
	if p.operators > maxOperators {
		return p.errorf("The expression contains too many operators and functions; maximum: %d", maxOperators)
	}
	return nil
}

// reference returns the place of a placeholder in a list, added when new.
func reference(list *[]string, placeholder string) int {
	if at := slices.Index(*list, placeholder); at >= 0 {
		return at
	}
	*list = append(*list, placeholder)
	return len(*list) - 1
}

// documentPath reads a path.
func (p *parser) documentPath() (path, error) {
	first, err := p.pathName()
	if err != nil {
		return nil, err
	}
	steps := path{first}
	for {
		switch {
		case p.symbol("."):
			s, err := p.pathName()
			if err != nil {
				return nil, err
			}
			steps = append(steps, s)
		case p.symbol("["):
			s, err := p.pathIndex()
			if err != nil {
				return nil, err
			}
			steps = append(steps, s)
		default:
			return steps, nil
		}
		if len(steps) > maxPathDepth {
			return nil, p.errorf("The document path has too many nesting elements; nesting levels: %d", len(steps))
		}
	}
}

func (p *parser) pathName() (step, error) {
	switch p.current.kind {
	case tokenPlaceholder:
		s := step{ref: reference(&p.expression.names, p.current.text) + 1}
		p.advance()
		return s, nil
	case tokenName:
		name := p.current.text
		if isReserved(name) {
			return step{}, p.errorf("Attribute name is a reserved keyword; reserved keyword: %s", name)
		}
		p.advance()
		return step{name: name}, nil
	}
	return step{}, p.syntaxError()
}

func (p *parser) pathIndex() (step, error) {
	if p.current.kind != tokenInteger {
		return step{}, p.syntaxError()
	}
	index, err := strconv.ParseInt(p.current.text, 10, 32)
	if err != nil {
		return step{}, p.errorf("List index is not within the allowable range; index: [%s]", p.current.text)
	}
	p.advance()
	return step{index: int(index), isIndex: true}, p.expect("]")
}

// wholeCondition reads a condition, filter or key condition.
func (p *parser) wholeCondition() (*node, error) {
	root, err := p.or()
	if err != nil {
		return nil, err
	}
	return root, p.checkCondition(root)
}

func (p *parser) or() (*node, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	return p.chain("OR", opOr, p.and)
}

func (p *parser) and() (*node, error) {
	return p.chain("AND", opAnd, p.not)
}

// chain reads one or more parts that a keyword joins.
func (p *parser) chain(word string, op operation, part func() (*node, error)) (*node, error) {
	first, err := part()
	if err != nil || !p.keyword(word) {
		return first, err
	}
	if err := p.checkCondition(first); err != nil {
		return nil, err
	}
	all := &node{op: op, args: []*node{first}}
	for p.takeKeyword(word) {
		if err := p.operator(); err != nil {
			return nil, err
		}
		next, err := part()
		if err != nil {
			return nil, err
		}
		if err := p.checkCondition(next); err != nil {
			return nil, err
		}
		all.args = append(all.args, next)
	}
	return all, nil
}

func (p *parser) not() (*node, error) {
	if !p.takeKeyword("NOT") {
		return p.comparison()
	}
	if err := p.operator(); err != nil {
		return nil, err
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	inner, err := p.not()
	if err != nil {
		return nil, err
	}
	return &node{op: opNot, args: []*node{inner}}, p.checkCondition(inner)
}

var comparators = map[string]operation{
	"=": opEqual, "<>": opNotEqual, "<": opLess, "<=": opLessEqual, ">": opGreater, ">=": opGreaterEqual,
}

// comparison reads an operand with what compares it, or a condition that
// stands by itself.
func (p *parser) comparison() (*node, error) {
	left, err := p.primary()
	if err != nil {
		return nil, err
	}
	if p.current.kind == tokenSymbol {
		op, ok := comparators[p.current.text]
		if !ok {
			return left, nil
		}
		p.advance()
		right, err := p.primary()
		if err != nil {
			return nil, err
		}
		return p.compared(op, left, right)
	}
	switch {
	case p.takeKeyword("BETWEEN"):
		return p.between(left)
	case p.takeKeyword("IN"):
		return p.in(left)
	}
	return left, nil
}

// compared builds a node from operands.
func (p *parser) compared(op operation, operands ...*node) (*node, error) {
	if err := p.operator(); err != nil {
		return nil, err
	}
	for _, o := range operands {
		if err := p.checkOperand(o); err != nil {
			return nil, err
		}
	}
	return &node{op: op, args: operands}, nil
}

func (p *parser) between(left *node) (*node, error) {
	lower, err := p.primary()
	if err != nil {
		return nil, err
	}
	if !p.takeKeyword("AND") {
		return nil, p.syntaxError()
	}
	upper, err := p.primary()
	if err != nil {
		return nil, err
	}
	return p.compared(opBetween, left, lower, upper)
}

func (p *parser) in(left *node) (*node, error) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
	operands, err := p.list(p.primary)
	if err != nil {
		return nil, err
	}
	if len(operands) > maxInOperands {
		return nil, p.errorf("The IN operator is provided with too many operands; number of operands: %d", len(operands))
	}
	return p.compared(opIn, append([]*node{left}, operands...)...)
}

// list reads elements between commas up to the closing parenthesis.
func (p *parser) list(element func() (*node, error)) ([]*node, error) {
	var all []*node
	for {
		n, err := element()
		if err != nil {
			return nil, err
		}
		all = append(all, n)
		if p.symbol(",") {
			continue
		}
		return all, p.expect(")")
	}
}

// primary reads an operand, a function or something in parentheses.
func (p *parser) primary() (*node, error) {
	switch p.current.kind {
	case tokenValue:
		n := &node{op: opValue, value: reference(&p.expression.values, p.current.text)}
		p.advance()
		return n, nil
	case tokenName:
		if p.followedByParenthesis() {
			return p.function(conditionFunctions)
		}
	}
	if !p.symbol("(") {
		return p.pathNode()
	}
	inner, err := p.or()
	if err != nil {
		return nil, err
	}
	if err := p.expect(")"); err != nil {
		return nil, err
	}
	if inner.parentheses {
		return nil, p.errorf("The expression has redundant parentheses;")
	}
	inner.parentheses = true
	return inner, nil
}

func (p *parser) pathNode() (*node, error) {
	steps, err := p.documentPath()
	return &node{op: opPath, path: steps}, err
}

// followedByParenthesis looks one token ahead: only then a name is a function.
// Keywords are never functions: "a IN (:b)".
func (p *parser) followedByParenthesis() bool {
	for _, word := range []string{"AND", "OR", "NOT", "IN", "BETWEEN"} {
		if p.keyword(word) {
			return false
		}
	}
	ahead := lexer{text: p.text, at: p.at}
	next := ahead.next()
	return next.kind == tokenSymbol && next.text == "("
}

// A signature tells what a function takes.
type signature struct {
	op       operation
	operands int
	// path demands a document path as the first operand.
	path bool
}

var conditionFunctions = map[string]signature{
	"attribute_exists":     {opAttributeExists, 1, true},
	"attribute_not_exists": {opAttributeNotExists, 1, true},
	"attribute_type":       {opAttributeType, 2, true},
	"begins_with":          {opBeginsWith, 2, false},
	"contains":             {opContains, 2, false},
	"size":                 {opSize, 1, false},
}

var updateFunctions = map[string]signature{
	"if_not_exists": {opIfNotExists, 2, true},
	"list_append":   {opListAppend, 2, false},
}

// function reads a call.
func (p *parser) function(known map[string]signature) (*node, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	name := p.current.text
	p.advance()
	p.advance() // the parenthesis that followedByParenthesis saw
	operand := p.primary
	if p.expression.kind == updateExpression {
		operand = p.updateOperand
	}
	args, err := p.list(operand)
	if err != nil {
		return nil, err
	}
	s, ok := known[name]
	switch {
	case !ok:
		return nil, p.errorf("Invalid function name; function: %s", name)
	case len(args) != s.operands:
		return nil, p.errorf("Incorrect number of operands for operator or function; operator or function: %s, number of operands: %d", name, len(args))
	case s.path && args[0].op != opPath:
		return nil, p.errorf("Operator or function requires a document path; operator or function: %s", name)
	}
	return p.compared(s.op, args...)
}

// checkCondition refuses an operand where only true or false makes sense.
func (p *parser) checkCondition(n *node) error {
	switch {
	case n.op == opSize:
		return p.errorf("The function is not allowed to be used this way in an expression; function: size")
	case n.op.isOperand():
		return p.syntaxError()
	}
	return nil
}

// checkOperand refuses a condition where a value is needed.
func (p *parser) checkOperand(n *node) error {
	switch {
	case n.op.isOperand():
		return nil
	case n.op.isFunction():
		return p.errorf("The function is not allowed to be used this way in an expression; function: %s", n.op)
	}
	return p.syntaxError()
}

// projection reads paths between commas.
func (p *parser) projection() error {
	for {
		steps, err := p.documentPath()
		if err != nil {
			return err
		}
		p.expression.paths = append(p.expression.paths, steps)
		if !p.symbol(",") {
			return nil
		}
	}
}

// A section is a part of an update expression: a keyword and its actions.
type section struct {
	word string
	verb verb
	read func(*parser, verb) (action, error)
}

var sections = []section{
	{"SET", verbSet, (*parser).assignment},
	{"REMOVE", verbRemove, (*parser).removal},
	{"ADD", verbAdd, (*parser).pathWithValue},
	{"DELETE", verbDelete, (*parser).pathWithValue},
}

// update reads the sections of an update expression.
func (p *parser) update() error {
	seen := map[string]bool{}
	for p.current.kind != tokenEnd {
		at := slices.IndexFunc(sections, func(s section) bool { return p.keyword(s.word) })
		if at < 0 {
			return p.syntaxError()
		}
		s := sections[at]
		if seen[s.word] {
			return p.errorf("The %q section can only be used once in an update expression;", s.word)
		}
		seen[s.word] = true
		p.advance()
		if err := p.section(s); err != nil {
			return err
		}
	}
	return nil
}

// section reads the actions of a section whose keyword is read.
func (p *parser) section(s section) error {
	for more := true; more; more = p.symbol(",") {
		if err := p.operator(); err != nil {
			return err
		}
		a, err := s.read(p, s.verb)
		if err != nil {
			return err
		}
		p.expression.actions = append(p.expression.actions, a)
	}
	return nil
}

func (p *parser) assignment(v verb) (action, error) {
	steps, err := p.documentPath()
	if err != nil {
		return action{}, err
	}
	if err := p.expect("="); err != nil {
		return action{}, err
	}
	operand, err := p.assignedValue()
	return action{verb: v, path: steps, operand: operand}, err
}

func (p *parser) removal(v verb) (action, error) {
	steps, err := p.documentPath()
	return action{verb: v, path: steps}, err
}

func (p *parser) pathWithValue(v verb) (action, error) {
	steps, err := p.documentPath()
	if err != nil {
		return action{}, err
	}
	if p.current.kind != tokenValue {
		return action{}, p.syntaxError()
	}
	operand, err := p.primary()
	return action{verb: v, path: steps, operand: operand}, err
}

// assignedValue reads the right side of a SET action: an operand, or a sum or
// difference of two.
func (p *parser) assignedValue() (*node, error) {
	left, err := p.updateOperand()
	if err != nil {
		return nil, err
	}
	switch {
	case p.symbol("+"):
		return p.arithmetic(opPlus, left)
	case p.symbol("-"):
		return p.arithmetic(opMinus, left)
	}
	return left, nil
}

func (p *parser) arithmetic(op operation, left *node) (*node, error) {
	right, err := p.updateOperand()
	if err != nil {
		return nil, err
	}
	return p.compared(op, left, right)
}

// updateOperand reads a path, a value, a function or one of them, or a sum,
// in parentheses.
func (p *parser) updateOperand() (*node, error) {
	switch {
	case p.current.kind == tokenValue:
		return p.primary()
	case p.current.kind == tokenName && p.followedByParenthesis():
		return p.function(updateFunctions)
	case !p.symbol("("):
		return p.pathNode()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	inner, err := p.assignedValue()
	if err != nil {
		return nil, err
	}
	if inner.parentheses {
		return nil, p.errorf("The expression has redundant parentheses;")
	}
	inner.parentheses = true
	return inner, p.expect(")")
}
