package functions

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxJSONDepth bounds how deep arrays and objects may nest in a request body:
// the scanner recurses, and no client of the bridge nests deeper than a few.
const maxJSONDepth = 128

// A jsonText is one JSON value exactly as it was sent, without the space
// around it. It is checked as a whole before anything is taken out of it
// (scanJSON), so its methods cannot fail; values nobody asks for are never
// decoded, and a payload keeps its numbers and escapes byte for byte.
type jsonText []byte

// The kinds of JSON values, named as error messages name them.
const (
	jsonNull    = "null"
	jsonBoolean = "a boolean"
	jsonNumber  = "a number"
	jsonString  = "a string"
	jsonArray   = "an array"
	jsonObject  = "an object"
)

// kind tells what the value is by its first byte.
func (t jsonText) kind() string {
	switch t[0] {
	case 'n':
		return jsonNull
	case 't', 'f':
		return jsonBoolean
	case '"':
		return jsonString
	case '[':
		return jsonArray
	case '{':
		return jsonObject
	default:
		return jsonNumber
	}
}

// text decodes a string. It reports false when an escape names half of a
// surrogate pair: such text has no UTF-8 form, and replacing it would let two
// different ids become one.
func (t jsonText) text() (string, bool) { return unquoteJSON(t) }

// members calls fn for each member of an object in the order they were sent.
func (t jsonText) members(fn func(key string, value jsonText)) {
	pos := skipSpace(t, 1)
	for t[pos] != '}' {
		end := skipString(t, pos)
		key, _ := unquoteJSON(t[pos:end])
		pos = skipSpace(t, skipSpace(t, end)+1) // past the colon
		end = skipValue(t, pos)
		fn(key, t[pos:end])
		pos = skipSpace(t, end)
		if t[pos] == ',' {
			pos = skipSpace(t, pos+1)
		}
	}
}

// items returns the elements of an array, at most limit+1 of them: enough to
// see that there are too many.
func (t jsonText) items(limit int) []jsonText {
	var items []jsonText
	pos := skipSpace(t, 1)
	for t[pos] != ']' && len(items) <= limit {
		end := skipValue(t, pos)
		items = append(items, t[pos:end])
		pos = skipSpace(t, end)
		if t[pos] == ',' {
			pos = skipSpace(t, pos+1)
		}
	}
	return items
}

// A jsonError says where a text stops being a JSON value this hub takes.
type jsonError struct {
	offset int
	reason string
}

func (e *jsonError) Error() string {
	return fmt.Sprintf("%s at byte %d", e.reason, e.offset)
}

// scanJSON checks that data is exactly one JSON value (RFC 8259) in valid
// UTF-8, nested at most maxJSONDepth deep, no object naming a key twice: two
// readers of such an object may see two different requests.
func scanJSON(data []byte) (jsonText, error) {
	if !utf8.Valid(data) {
		return nil, &jsonError{offset: firstInvalidUTF8(data), reason: "invalid UTF-8"}
	}
	s := jsonScanner{data: data}
	start := skipSpace(data, 0)
	end, err := s.value(start, 0)
	if err != nil {
		return nil, err
	}
	if rest := skipSpace(data, end); rest != len(data) {
		return nil, &jsonError{offset: rest, reason: "text after the JSON value"}
	}
	return jsonText(data[start:end]), nil
}

func firstInvalidUTF8(data []byte) int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(data)
}

// A jsonScanner checks values; each method takes the offset a value starts at
// and returns the offset after it.
type jsonScanner struct{ data []byte }

func (s jsonScanner) fail(offset int, reason string) (int, error) {
	if offset >= len(s.data) {
		return 0, &jsonError{offset: len(s.data), reason: "the JSON text ends early"}
	}
	return 0, &jsonError{offset: offset, reason: reason}
}

func (s jsonScanner) at(offset int) byte {
	if offset < len(s.data) {
		return s.data[offset]
	}
	return 0
}

func (s jsonScanner) value(pos, depth int) (int, error) {
	if depth > maxJSONDepth {
		return s.fail(pos, fmt.Sprintf("nested deeper than %d", maxJSONDepth))
	}
	switch c := s.at(pos); {
	case c == '{':
		return s.object(pos, depth)
	case c == '[':
		return s.array(pos, depth)
	case c == '"':
		return s.string(pos)
	case c == '-' || isDigit(c):
		return s.number(pos)
	}
	for _, word := range []string{"true", "false", "null"} {
		if strings.HasPrefix(string(s.data[pos:min(pos+len(word), len(s.data))]), word) {
			return pos + len(word), nil
		}
	}
	return s.fail(pos, "not a JSON value")
}

func (s jsonScanner) object(pos, depth int) (int, error) {
	pos = skipSpace(s.data, pos+1)
	if s.at(pos) == '}' {
		return pos + 1, nil
	}
	seen := map[string]struct{}{}
	for {
		if s.at(pos) != '"' {
			return s.fail(pos, "a key in double quotes is missing")
		}
		end, err := s.string(pos)
		if err != nil {
			return 0, err
		}
		key, ok := unquoteJSON(s.data[pos:end])
		if !ok {
			return s.fail(pos, "a key that is not valid Unicode")
		}
		if _, twice := seen[key]; twice {
			return s.fail(pos, "a key that was given before")
		}
		seen[key] = struct{}{}
		pos = skipSpace(s.data, end)
		if s.at(pos) != ':' {
			return s.fail(pos, "a colon is missing")
		}
		if pos, err = s.value(skipSpace(s.data, pos+1), depth+1); err != nil {
			return 0, err
		}
		pos = skipSpace(s.data, pos)
		switch s.at(pos) {
		case '}':
			return pos + 1, nil
		case ',':
			pos = skipSpace(s.data, pos+1)
		default:
			return s.fail(pos, "a comma or closing brace is missing")
		}
	}
}

func (s jsonScanner) array(pos, depth int) (int, error) {
	pos = skipSpace(s.data, pos+1)
	if s.at(pos) == ']' {
		return pos + 1, nil
	}
	for {
		end, err := s.value(pos, depth+1)
		if err != nil {
			return 0, err
		}
		pos = skipSpace(s.data, end)
		switch s.at(pos) {
		case ']':
			return pos + 1, nil
		case ',':
			pos = skipSpace(s.data, pos+1)
		default:
			return s.fail(pos, "a comma or closing bracket is missing")
		}
	}
}

func (s jsonScanner) string(pos int) (int, error) {
	for pos++; pos < len(s.data); pos++ {
		switch c := s.data[pos]; {
		case c == '"':
			return pos + 1, nil
		case c < ' ':
			return s.fail(pos, "a control character in a string")
		case c == '\\':
			pos++
			switch s.at(pos) {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					if pos++; !isHex(s.at(pos)) {
						return s.fail(pos, "a broken \\u escape")
					}
				}
			default:
				return s.fail(pos, "an unknown escape")
			}
		}
	}
	return s.fail(pos, "")
}

func (s jsonScanner) number(pos int) (int, error) {
	if s.at(pos) == '-' {
		pos++
	}
	switch {
	case s.at(pos) == '0':
		pos++
	case isDigit(s.at(pos)):
		pos = s.digits(pos)
	default:
		return s.fail(pos, "a broken number")
	}
	if s.at(pos) == '.' {
		if !isDigit(s.at(pos + 1)) {
			return s.fail(pos+1, "a broken number")
		}
		pos = s.digits(pos + 1)
	}
	if c := s.at(pos); c == 'e' || c == 'E' {
		pos++
		if c := s.at(pos); c == '+' || c == '-' {
			pos++
		}
		if !isDigit(s.at(pos)) {
			return s.fail(pos, "a broken number")
		}
		pos = s.digits(pos)
	}
	return pos, nil
}

func (s jsonScanner) digits(pos int) int {
	for isDigit(s.at(pos)) {
		pos++
	}
	return pos
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isHex(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func skipSpace(data []byte, pos int) int {
	for pos < len(data) {
		switch data[pos] {
		case ' ', '\t', '\n', '\r':
			pos++
		default:
			return pos
		}
	}
	return pos
}

// skipValue returns the offset after the value at pos of a text that scanJSON
// has checked.
func skipValue(data []byte, pos int) int {
	depth := 0
	for pos < len(data) {
		switch data[pos] {
		case '"':
			pos = skipString(data, pos) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return pos // the end of what encloses a scalar
			}
			depth--
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return pos
			}
		default:
			pos++
			continue
		}
		pos++
		if depth == 0 {
			return pos
		}
	}
	return pos
}

func skipString(data []byte, pos int) int {
	for pos++; data[pos] != '"'; pos++ {
		if data[pos] == '\\' {
			pos++
		}
	}
	return pos + 1
}

var jsonEscapes = map[byte]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// unquoteJSON decodes a checked string literal with its quotes; false when it
// holds half a surrogate pair.
func unquoteJSON(literal []byte) (string, bool) {
	body := string(literal[1 : len(literal)-1])
	if !strings.Contains(body, `\`) {
		return body, true
	}
	var out strings.Builder
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' {
			out.WriteByte(body[i])
			continue
		}
		i++
		if body[i] != 'u' {
			out.WriteByte(jsonEscapes[body[i]])
			continue
		}
		r := hexRune(body[i+1 : i+5])
		i += 4
		if utf16.IsSurrogate(r) {
			if !strings.HasPrefix(body[i+1:], `\u`) {
				return "", false
			}
			if r = utf16.DecodeRune(r, hexRune(body[i+3:i+7])); r == utf8.RuneError {
				return "", false
			}
			i += 6
		}
		out.WriteRune(r)
	}
	return out.String(), true
}

func hexRune(digits string) rune {
	n, _ := strconv.ParseUint(digits, 16, 16) // four digits the scanner has seen
	return rune(n)
}

// A decimal is a JSON number, or a string of digits taken as one.
type decimal struct {
	float   float64 // may be infinite
	integer int64   // truncated towards zero, saturated at the range of int64
	whole   bool    // integer is the exact value
}

// parseDecimal reads a checked JSON number literal. Numbers that are too large
// saturate, so that a range check or a clamp downstream decides about them.
func parseDecimal(literal string) decimal {
	if n, err := strconv.ParseInt(literal, 10, 64); err == nil {
		return decimal{float: float64(n), integer: n, whole: true}
	}
	f, _ := strconv.ParseFloat(literal, 64) // the only error left is range: f is then infinite
	switch whole := math.Trunc(f); {
	case whole >= math.MaxInt64:
		return decimal{float: f, integer: math.MaxInt64}
	case whole <= math.MinInt64:
		return decimal{float: f, integer: math.MinInt64}
	default:
		return decimal{float: f, integer: int64(whole), whole: whole == f}
	}
}

// maxNumericString bounds a number sent as text: longer ones are no number
// anybody means.
const maxNumericString = 32

// number reads a JSON number or an integral numeric string ("60", "-1").
func (t jsonText) number() (decimal, bool) {
	switch t.kind() {
	case jsonNumber:
		return parseDecimal(string(t)), true
	case jsonString:
		text, ok := t.text()
		return numericText(text, ok)
	default:
		return decimal{}, false
	}
}

func numericText(text string, ok bool) (decimal, bool) {
	digits := strings.TrimPrefix(text, "-")
	if !ok || digits == "" || len(text) > maxNumericString {
		return decimal{}, false
	}
	for i := range len(digits) {
		if !isDigit(digits[i]) {
			return decimal{}, false
		}
	}
	return parseDecimal(text), true
}
