package dynamo

import "strings"

// Limits of expressions, from AWS's guide ("Quotas", "Expression parameters").
const (
	maxExpressionSize = 4096
	maxOperators      = 300
	maxInOperands     = 100
	maxPathDepth      = 32 + 1
	// maxExpressionDepth bounds the parser's recursion.
	maxExpressionDepth = 100
)

// A tokenKind tells what a token of an expression is.
type tokenKind uint8

const (
	tokenEnd         tokenKind = iota
	tokenName                  // an identifier, a keyword or a function's name
	tokenPlaceholder           // #name
	tokenValue                 // :value
	tokenInteger               // a list index
	tokenSymbol                // an operator or a bracket
	tokenBad
)

// A token is one word of an expression, with its place for error messages.
type token struct {
	kind tokenKind
	text string
	at   int
}

// A lexer cuts an expression into tokens.
type lexer struct {
	text string
	at   int
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

// next returns the next token; tokenEnd at the end.
func (l *lexer) next() token {
	for l.at < len(l.text) && strings.IndexByte(" \t\r\n", l.text[l.at]) >= 0 {
		l.at++
	}
	start := l.at
	if start == len(l.text) {
		return token{kind: tokenEnd, text: "<EOF>", at: start}
	}
	switch c := l.text[start]; {
	case isLetter(c):
		l.word()
		return token{kind: tokenName, text: l.text[start:l.at], at: start}
	case c == '#' || c == ':':
		l.at++
		l.word()
		if l.at == start+1 {
			return token{kind: tokenBad, text: l.text[start:l.at], at: start}
		}
		if c == '#' {
			return token{kind: tokenPlaceholder, text: l.text[start:l.at], at: start}
		}
		return token{kind: tokenValue, text: l.text[start:l.at], at: start}
	case isDigit(c):
		for l.at < len(l.text) && isDigit(l.text[l.at]) {
			l.at++
		}
		return token{kind: tokenInteger, text: l.text[start:l.at], at: start}
	}
	l.at++
	switch text := l.text[start:l.at]; text {
	case "<", ">":
		if l.at < len(l.text) && (l.text[l.at] == '=' || text == "<" && l.text[l.at] == '>') {
			l.at++
		}
	case "=", "(", ")", "[", "]", ",", ".", "+", "-":
	default:
		// A character of several bytes must not be cut in messages.
		for l.at < len(l.text) && l.text[l.at]&0xC0 == 0x80 {
			l.at++
		}
		return token{kind: tokenBad, text: l.text[start:l.at], at: start}
	}
	return token{kind: tokenSymbol, text: l.text[start:l.at], at: start}
}

// word moves over letters and digits.
func (l *lexer) word() {
	for l.at < len(l.text) && (isLetter(l.text[l.at]) || isDigit(l.text[l.at])) {
		l.at++
	}
}
