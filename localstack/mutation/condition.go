package main

import (
	"fmt"
	"regexp"
	"strings"
)

// A piece is part of an expression's text as the source builds it: a literal
// text, or Go code that makes one when it runs.
type piece struct {
	text string
	code bool
}

// A template is the text of a condition, in pieces.
type template []piece

// String shows a template in a mutant's name: code stands in braces.
func (t template) String() string {
	var b strings.Builder
	for _, p := range t {
		if p.code {
			fmt.Fprintf(&b, "{%s}", p.text)
		} else {
			b.WriteString(p.text)
		}
	}
	return b.String()
}

// A conditionMutant is a condition with one guard broken.
type conditionMutant struct {
	what   string // what was done to it
	broken template
}

// mutateCondition returns the ways to break one guard of a condition of
// DynamoDB, or nothing where the text is no condition.
//
// A conjunct is not cut out but made true whatever the item is, (x OR NOT (x)),
// and a disjunct never: DynamoDB refuses a request with a value that no
// expression uses, so that cutting would fail every test for the wrong reason.
// Keys of a query have to keep their shape, so only their edges are moved.
func mutateCondition(t template, ofKeys bool) []conditionMutant {
	p := conditionParser{tokens: tokenize(t)}
	root, ok := p.group()
	if !ok || p.at != len(p.tokens) || p.atoms == 0 {
		return nil
	}
	m := conditionMutator{tokens: p.tokens, ofKeys: ofKeys}
	m.group(root)
	return m.mutants
}

// A condToken is a word, an operator or a bracket, in the pieces that make it.
type condToken struct {
	template

	glued bool // no blank stood before it
}

// plain is the token's text where no code takes part in it.
func (t condToken) plain() string {
	if len(t.template) == 1 && !t.template[0].code {
		return t.template[0].text
	}
	return ""
}

// isCode tells whether the whole token is code.
func (t condToken) isCode() bool { return len(t.template) == 1 && t.template[0].code }

var condLexeme = regexp.MustCompile(`^(?:\s+|<>|<=|>=|[=<>(),]|[A-Za-z0-9_:#.]+|.)`)

func isWord(s string) bool {
	c := s[0]
	return c == '_' || c == ':' || c == '#' || c == '.' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// tokenize splits a template. A variable that touches a word is part of it; a
// call makes a text of its own.
func tokenize(t template) []condToken {
	var tokens []condToken
	glued, wordBefore := true, false
	add := func(p piece, word bool) {
		if last := len(tokens) - 1; glued && word && wordBefore {
			tokens[last].template = append(tokens[last].template, p)
		} else {
			tokens = append(tokens, condToken{template{p}, glued})
		}
		glued, wordBefore = true, word
	}
	for _, p := range t {
		if p.code {
			add(p, !strings.Contains(p.text, "("))
			continue
		}
		for rest := p.text; rest != ""; {
			lexeme := condLexeme.FindString(rest)
			rest = rest[len(lexeme):]
			if strings.TrimSpace(lexeme) == "" {
				glued, wordBefore = false, false
				continue
			}
			add(piece{text: lexeme}, isWord(lexeme))
		}
	}
	return tokens
}

// A condNode is an atom, a bracket, code, or a group of them, by tokens.
type condNode struct {
	from, to  int // tokens [from, to)
	atom      bool
	edge      int          // the token of an atom's <, <=, >, >=; -1: it has none
	disjuncts [][]condNode // of a group or a bracket
	bracket   bool
}

type conditionParser struct {
	tokens []condToken
	at     int
	atoms  int
}

func (p *conditionParser) peek() string {
	if p.at < len(p.tokens) {
		return p.tokens[p.at].plain()
	}
	return ""
}

func (p *conditionParser) take(word string) bool {
	if p.peek() != word {
		return false
	}
	p.at++
	return true
}

// group parses items joined by AND and OR up to a bracket or the end. It may
// begin with either: then the text continues another.
func (p *conditionParser) group() (condNode, bool) {
	g := condNode{from: p.at, disjuncts: [][]condNode{nil}}
	if !p.take("AND") {
		p.take("OR")
	}
	for {
		item, ok := p.item()
		if !ok {
			return g, false
		}
		last := len(g.disjuncts) - 1
		g.disjuncts[last] = append(g.disjuncts[last], item)
		for p.at < len(p.tokens) && p.tokens[p.at].isCode() {
			// Code that follows an item is a conjunct of its own, or nothing.
			g.disjuncts[last] = append(g.disjuncts[last], condNode{from: p.at, to: p.at + 1})
			p.at++
		}
		switch {
		case p.take("AND"):
		case p.take("OR"):
			g.disjuncts = append(g.disjuncts, nil)
		default:
			g.to = p.at
			return g, true
		}
	}
}

// item parses a bracket, an atom with or without NOT, or code.
func (p *conditionParser) item() (condNode, bool) {
	from := p.at
	for p.take("NOT") {
	}
	if p.at == len(p.tokens) {
		return condNode{}, false
	}
	if p.take("(") {
		g, ok := p.group()
		if !ok || !p.take(")") {
			return condNode{}, false
		}
		g.from, g.to, g.bracket = from, p.at, true
		return g, true
	}
	edge, ok := p.predicate()
	if ok {
		p.atoms++
		return condNode{from: from, to: p.at, atom: true, edge: edge}, true
	}
	if p.tokens[p.at].isCode() {
		p.at++
		return condNode{from: from, to: p.at}, true
	}
	return condNode{}, false
}

// predicate parses a comparison, BETWEEN, IN or a function that answers a truth
// value. It goes back where it finds none.
func (p *conditionParser) predicate() (edge int, ok bool) {
	from := p.at
	edge = -1
	name := p.peek()
	if !p.operand() {
		return edge, false
	}
	call := p.at > from+1
	switch op := p.peek(); op {
	case "=", "<>", "<", "<=", ">", ">=":
		if strings.Trim(op, "<>") != op && op != "<>" {
			edge = p.at
		}
		p.at++
		ok = p.operand()
	case "BETWEEN":
		p.at++
		ok = p.operand() && p.take("AND") && p.operand()
	case "IN":
		p.at++
		ok = p.list()
	default:
		switch name {
		case "attribute_exists", "attribute_not_exists", "begins_with", "contains":
			ok = call
		}
	}
	if !ok {
		p.at = from
	}
	return edge, ok
}

// operand parses a name, a value or a function's call.
func (p *conditionParser) operand() bool {
	if p.at == len(p.tokens) {
		return false
	}
	first := p.tokens[p.at].template[0]
	if !first.code && !isWord(first.text) {
		return false
	}
	p.at++
	if p.peek() == "(" && !first.code {
		return p.list()
	}
	return true
}

// list parses operands in brackets.
func (p *conditionParser) list() bool {
	if !p.take("(") {
		return false
	}
	for {
		if !p.operand() {
			return false
		}
		if !p.take(",") {
			return p.take(")")
		}
	}
}

type conditionMutator struct {
	tokens  []condToken
	ofKeys  bool
	mutants []conditionMutant
}

func (m *conditionMutator) group(g condNode) {
	for _, disjunct := range g.disjuncts {
		for _, item := range disjunct {
			m.item(item, len(disjunct) == 1 && len(g.disjuncts) > 1)
		}
	}
}

func (m *conditionMutator) item(n condNode, alternative bool) {
	if !n.atom && !n.bracket {
		return
	}
	text := m.text(n.from, n.to)
	if !m.ofKeys {
		if alternative {
			m.add("drop alternative "+text.String(), n, piece{text: "("}, text, piece{text: " AND " + not(text)}, text, piece{text: closing(text)})
		} else {
			m.add("drop "+text.String(), n, piece{text: "("}, text, piece{text: " OR " + not(text)}, text, piece{text: closing(text)})
		}
	}
	if n.bracket {
		m.group(n)
	} else if n.edge >= 0 {
		op := m.tokens[n.edge].plain()
		moved := moveEdge(op)
		at := condNode{from: n.edge, to: n.edge + 1}
		m.add(fmt.Sprintf("%s: %s for %s", text, moved, op), at, piece{text: moved})
	}
}

// not opens the negation of a condition and closing ends it, without brackets in
// brackets, which DynamoDB refuses.
func not(t template) string {
	if t[0].text[0] == '(' {
		return "NOT "
	}
	return "NOT ("
}

func closing(t template) string {
	if t[0].text[0] == '(' {
		return ")"
	}
	return "))"
}

// moveEdge makes an inclusive comparison exclusive, and the other way round.
func moveEdge(op string) string {
	if inclusive, is := strings.CutSuffix(op, "="); is {
		return inclusive
	}
	return op + "="
}

// text joins tokens again, with the blanks that stood between them.
func (m *conditionMutator) text(from, to int) template {
	var joined template
	for i := from; i < to; i++ {
		if i > from && !m.tokens[i].glued {
			joined = append(joined, piece{text: " "})
		}
		joined = append(joined, m.tokens[i].template...)
	}
	return joined.compact()
}

// add notes a mutant that has something else in a node's place.
func (m *conditionMutator) add(what string, at condNode, instead ...any) {
	broken := m.text(0, at.from)
	if at.from > 0 && !m.tokens[at.from].glued {
		broken = append(broken, piece{text: " "})
	}
	for _, part := range instead {
		switch part := part.(type) {
		case piece:
			broken = append(broken, part)
		case template:
			broken = append(broken, part...)
		}
	}
	if at.to < len(m.tokens) && !m.tokens[at.to].glued {
		broken = append(broken, piece{text: " "})
	}
	broken = append(broken, m.text(at.to, len(m.tokens))...)
	if m.tokens[0].plain() == "AND" || m.tokens[0].plain() == "OR" {
		broken = append(template{{text: " "}}, broken...) // it continues another text
	}
	m.mutants = append(m.mutants, conditionMutant{what, broken.compact()})
}

// compact joins neighbouring texts.
func (t template) compact() template {
	var joined template
	for _, p := range t {
		if last := len(joined) - 1; last >= 0 && !p.code && !joined[last].code {
			joined[last].text += p.text
		} else {
			joined = append(joined, p)
		}
	}
	return joined
}
