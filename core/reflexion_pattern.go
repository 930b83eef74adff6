package core

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A patternRule replaces what differs between two occurrences of one error.
type patternRule struct {
	find *regexp.Regexp
	with string
	// startsWord and endsWord: only where no word goes on across that end.
	startsWord, endsWord bool
}

// The characters of a path's segment: words of any script, and what stands
// between them in file names.
const pathCharacters = `\p{L}\p{M}\p{N}_.@+~-`

// patternRules are the contract's, in its order (section 8). The texts they
// read are in lower case with single spaces. Numbers are those of any script.
var patternRules = []patternRule{
	{find: regexp.MustCompile(`(?:[a-z]:|\\)\\[\\/` + pathCharacters + `]+`), with: "<file>", startsWord: true},
	{find: regexp.MustCompile(`(?:/+[` + pathCharacters + `]+){2,}/*`), with: "<file>"},
	{find: regexp.MustCompile(`:\p{Nd}+(?::\p{Nd}+)?([ ,\p{Pe}]|$)`), with: ":<line>${1}"},
	{find: regexp.MustCompile(`line \p{Nd}+`), with: "line <line>", startsWord: true},
	{
		find: regexp.MustCompile(`\p{Nd}{4}-\p{Nd}{2}-\p{Nd}{2}[t ]\p{Nd}{2}:\p{Nd}{2}(?::\p{Nd}{2}(?:[.,]\p{Nd}+)?)?(?: ?(?:z|[+-]\p{Nd}{2}:?\p{Nd}{2}))?`),
		with: "<time>",
	},
	{find: regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), with: "<id>"},
	{find: regexp.MustCompile(`[0-9a-f]{32,}`), with: "<id>"},
	{find: regexp.MustCompile(`\p{Nd}{10,13}`), with: "<time>", startsWord: true, endsWord: true},
	{find: regexp.MustCompile(`\p{Nd}{4,}`), with: "<num>", startsWord: true, endsWord: true},
}

// ErrorPattern is what stays the same when an error occurs again: paths, line
// numbers, times, ids and large numbers give way to a mark, letters to their
// lower case and blanks to one space. A text of blanks has the empty pattern.
//
// The contract lower-cases and collapses last. Its rules do not mind case, so
// doing it first gives the same, and repeating the rules until they find nothing
// more makes every pattern its own pattern. Each replacement takes digits,
// slashes or hexadecimal letters away, so that ends.
func ErrorPattern(message string) string {
	pattern := strings.Join(strings.FieldsFunc(strings.ToLower(strings.ToValidUTF8(message, "\uFFFD")), isBlank), " ")
	for {
		before := pattern
		for _, rule := range patternRules {
			pattern = rule.apply(pattern)
		}
		if pattern == before {
			return pattern
		}
	}
}

// isBlank also takes the byte order mark, as the reference's blanks do.
func isBlank(r rune) bool { return unicode.IsSpace(r) || r == '\uFEFF' }

func (p patternRule) apply(text string) string {
	matches := p.find.FindAllStringSubmatchIndex(text, -1)
	if matches == nil {
		return text
	}
	var out []byte
	copied := 0
	for _, m := range matches {
		if p.startsWord && wordGoesOn(text[:m[0]], text[m[0]:]) || p.endsWord && wordGoesOn(text[:m[1]], text[m[1]:]) {
			continue
		}
		out = append(out, text[copied:m[0]]...)
		out = p.find.ExpandString(out, p.with, text, m)
		copied = m[1]
	}
	return string(append(out, text[copied:]...))
}

// wordGoesOn tells whether a word spans the place between two texts, so that
// TS2304 and ошибка2304 are words and not numbers. Scripts without case are
// written against numbers and do not make a word with them: 端口8080被占用.
func wordGoesOn(before, after string) bool {
	left, _ := utf8.DecodeLastRuneInString(before)
	right, _ := utf8.DecodeRuneInString(after)
	return before != "" && after != "" && isWordRune(left) && isWordRune(right)
}

func isWordRune(r rune) bool {
	return r == '_' || unicode.IsLower(r) || unicode.Is(unicode.Nd, r)
}

// searchedCharacters bounds the text that the fallback looks for (contract 8):
// it is cut where its form with escapes would be.
const searchedCharacters = 100

// searchText is what the fallback looks for inside of other patterns. The
// reference escapes % _ \ and cuts after that; here a cut never falls between an
// escape and its character.
func searchText(pattern string) string {
	length := 0
	for i, r := range pattern {
		if length++; strings.ContainsRune(`%_\`, r) {
			length++
		}
		if length > searchedCharacters {
			return pattern[:i]
		}
	}
	return pattern
}
