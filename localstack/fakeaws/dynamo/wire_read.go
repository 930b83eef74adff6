package dynamo

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxJSONDepth bounds the recursion on a request. The deepest legal request,
// a transaction with a value of 32 levels, stays well below it.
const maxJSONDepth = 128

// maxNesting is DynamoDB's limit on lists and maps inside one another.
const maxNesting = 32

// maxNameSize is the limit of an attribute name in bytes, 64 KB exclusive.
const maxNameSize = 65535

// A reader walks over one JSON document without building a tree of it. Its
// methods return SerializationException where the document is malformed or a
// value has another JSON type than the caller wants.
type reader struct {
	data  []byte
	at    int
	depth int
	names *interner
}

func errMalformed() *apiError {
	return serializationError("Unable to parse the request: malformed JSON")
}

// peek returns the first byte of the next token, 0 at the end.
func (r *reader) peek() byte {
	for r.at < len(r.data) {
		switch c := r.data[r.at]; c {
		case ' ', '\t', '\r', '\n':
			r.at++
		default:
			return c
		}
	}
	return 0
}

// take consumes one byte when it comes next.
func (r *reader) take(c byte) bool {
	if r.peek() != c {
		return false
	}
	r.at++
	return true
}

// end demands that nothing follows.
func (r *reader) end() error {
	if r.peek() != 0 || r.at != len(r.data) {
		return errMalformed()
	}
	return nil
}

// null consumes a null.
func (r *reader) null() bool {
	if r.peek() == 'n' && r.literal("null") {
		return true
	}
	return false
}

func (r *reader) literal(word string) bool {
	if len(r.data)-r.at < len(word) || string(r.data[r.at:r.at+len(word)]) != word {
		return false
	}
	r.at += len(word)
	return true
}

// object calls member for each name; member must consume the value. The name
// is only valid during the call.
func (r *reader) object(member func(name []byte) error) error {
	if r.peek() != '{' {
		return r.mismatch("map")
	}
	r.at++
	if err := r.enter(); err != nil {
		return err
	}
	defer r.leave()
	if r.take('}') {
		return nil
	}
	for {
		if r.peek() != '"' {
			return errMalformed()
		}
		name, err := r.quoted()
		if err != nil {
			return err
		}
		if !r.take(':') {
			return errMalformed()
		}
		if err := member(name); err != nil {
			return err
		}
		if r.take(',') {
			continue
		}
		if r.take('}') {
			return nil
		}
		return errMalformed()
	}
}

// array calls element for each element; element must consume it.
func (r *reader) array(element func() error) error {
	if r.peek() != '[' {
		return r.mismatch("list")
	}
	r.at++
	if err := r.enter(); err != nil {
		return err
	}
	defer r.leave()
	if r.take(']') {
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if r.take(',') {
			continue
		}
		if r.take(']') {
			return nil
		}
		return errMalformed()
	}
}

func (r *reader) enter() error {
	r.depth++
	if r.depth > maxJSONDepth {
		return serializationError("Unable to parse the request: nested too deeply")
	}
	return nil
}

func (r *reader) leave() { r.depth-- }

// mismatch is the error for a token of another type than wanted.
func (r *reader) mismatch(wanted string) error {
	switch c := r.peek(); {
	case c == '{':
		return serializationError("Start of structure or map found where not expected")
	case c == '[':
		return serializationError("Unrecognized collection type: start of list found where a %s was expected", wanted)
	case c == '"':
		return serializationError("STRING_VALUE cannot be converted to %s", wanted)
	case c == 't':
		return serializationError("TRUE_VALUE cannot be converted to %s", wanted)
	case c == 'f':
		return serializationError("FALSE_VALUE cannot be converted to %s", wanted)
	case c == '-' || c >= '0' && c <= '9':
		return serializationError("NUMBER_VALUE cannot be converted to %s", wanted)
	}
	return errMalformed()
}

// text reads a string. The bytes are part of the document where it has no
// escapes; the caller must copy what it keeps.
func (r *reader) text() ([]byte, error) {
	if r.peek() != '"' {
		return nil, r.mismatch("String")
	}
	return r.quoted()
}

// isPlain marks the bytes that stand for themselves in a JSON string of ASCII.
// Both directions spend most of their time in runs of them.
var isPlain = func() (plain [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		plain[c] = c != '"' && c != '\\'
	}
	return plain
}()

// quoted reads a string whose opening quote comes next.
func (r *reader) quoted() ([]byte, error) {
	r.at++
	start := r.at
	ascii := true
	for i := start; i < len(r.data); i++ {
		c := r.data[i]
		if isPlain[c] {
			continue
		}
		switch {
		case c == '"':
			r.at = i + 1
			if !ascii && !utf8.Valid(r.data[start:i]) {
				return nil, serializationError("Unable to parse the request: a string is not UTF-8")
			}
			return r.data[start:i], nil
		case c == '\\':
			return r.unescape(start, i)
		case c < ' ':
			return nil, errMalformed()
		}
		ascii = false
	}
	return nil, errMalformed()
}

// unescape reads the rest of a string from its first backslash on.
func (r *reader) unescape(start, at int) ([]byte, error) {
	out := slices.Clone(r.data[start:at])
	for at < len(r.data) {
		c := r.data[at]
		switch {
		case c == '"':
			r.at = at + 1
			if !utf8.Valid(out) {
				return nil, serializationError("Unable to parse the request: a string is not UTF-8")
			}
			return out, nil
		case c < ' ':
			return nil, errMalformed()
		case c != '\\':
			out = append(out, c)
			at++
			continue
		}
		if at+1 >= len(r.data) {
			return nil, errMalformed()
		}
		escaped := r.data[at+1]
		at += 2
		switch escaped {
		case '"', '\\', '/':
			out = append(out, escaped)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			char, width := r.codePoint(at)
			if width == 0 {
				return nil, errMalformed()
			}
			out = utf8.AppendRune(out, char)
			at += width
		default:
			return nil, errMalformed()
		}
	}
	return nil, errMalformed()
}

// codePoint reads the digits of a \u escape at a position, and the second
// escape of a surrogate pair; a lone surrogate reads as U+FFFD. The width is
// the number of bytes used, 0 for malformed digits.
func (r *reader) codePoint(at int) (char rune, width int) {
	first, ok := r.hex4(at)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(first) {
		return first, 4
	}
	if at+6 <= len(r.data) && r.data[at+4] == '\\' && r.data[at+5] == 'u' {
		if second, ok := r.hex4(at + 6); ok {
			if pair := utf16.DecodeRune(first, second); pair != utf8.RuneError {
				return pair, 10
			}
		}
	}
	return utf8.RuneError, 4
}

func (r *reader) hex4(at int) (rune, bool) {
	if at+4 > len(r.data) {
		return 0, false
	}
	var char rune
	for _, c := range r.data[at : at+4] {
		char <<= 4
		switch {
		case c >= '0' && c <= '9':
			char |= rune(c - '0')
		case c >= 'a' && c <= 'f':
			char |= rune(c-'a') + 10
		case c >= 'A' && c <= 'F':
			char |= rune(c-'A') + 10
		default:
			return 0, false
		}
	}
	return char, true
}

// skip consumes any value.
func (r *reader) skip() error {
	switch c := r.peek(); {
	case c == '{':
		return r.object(func([]byte) error { return r.skip() })
	case c == '[':
		return r.array(r.skip)
	case c == '"':
		_, err := r.quoted()
		return err
	case c == 't' && r.literal("true"), c == 'f' && r.literal("false"), c == 'n' && r.literal("null"):
		return nil
	case c == '-' || c >= '0' && c <= '9':
		_, err := r.number()
		return err
	}
	return errMalformed()
}

// number reads a JSON number.
func (r *reader) number() (float64, error) {
	start := r.at
	for r.at < len(r.data) {
		c := r.data[r.at]
		if c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E' {
			r.at++
			continue
		}
		break
	}
	if !json.Valid(r.data[start:r.at]) {
		return 0, errMalformed()
	}
	n, _ := strconv.ParseFloat(string(r.data[start:r.at]), 64) // infinite when out of range
	return n, nil
}

// optionalText reads a string or null.
func (r *reader) optionalText(into *optional[string]) error {
	if r.null() {
		return nil
	}
	text, err := r.text()
	if err != nil {
		return err
	}
	*into = optional[string]{value: string(text), set: true}
	return nil
}

// optionalBool reads true, false or null.
func (r *reader) optionalBool(into *optional[bool]) error {
	if r.null() {
		return nil
	}
	switch c := r.peek(); {
	case c == 't' && r.literal("true"):
		*into = optional[bool]{value: true, set: true}
	case c == 'f' && r.literal("false"):
		*into = optional[bool]{value: false, set: true}
	default:
		return r.mismatch("Boolean")
	}
	return nil
}

// optionalInt reads a number or null; a fraction is cut off, as AWS does.
func (r *reader) optionalInt(into *optional[int]) error {
	if r.null() {
		return nil
	}
	if c := r.peek(); c != '-' && (c < '0' || c > '9') {
		return r.mismatch("Integer")
	}
	n, err := r.number()
	if err != nil {
		return err
	}
	*into = optional[int]{value: int(max(math.MinInt32, min(math.MaxInt32, n))), set: true}
	return nil
}

// An optional is a request parameter that may be absent.
type optional[T any] struct {
	value T
	set   bool
}

// attributes reads a map from attribute names to values.
func (r *reader) attributes(nesting int) ([]attribute, error) {
	fields := make([]attribute, 0, 8)
	err := r.object(func(name []byte) error {
		switch {
		case len(name) == 0:
			return invalidParameter("An attribute name may not be empty")
		case len(name) > maxNameSize:
			return invalidParameter("Attribute name is too large, must be less than 65536 bytes")
		}
		// Interning first: value() reuses the buffer behind name.
		owned := r.names.intern(name)
		v, err := r.value(nesting)
		if err != nil {
			return err
		}
		fields = append(fields, attribute{name: owned, value: v})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return sortAttributes(fields), nil
}

func errTooDeep() *apiError {
	return validationError("Nesting Levels have exceeded supported limits: Attributes in the item have nested levels beyond supported limit")
}

// value reads an AttributeValue: an object with exactly one member that names
// the type. nesting counts the lists and maps around it.
func (r *reader) value(nesting int) (value, error) {
	if r.null() {
		return value{}, errEmptyValue()
	}
	var v value
	types := 0
	err := r.object(func(name []byte) error {
		k, known := kindOf(name)
		if !known {
			return r.skip()
		}
		if r.null() {
			return nil
		}
		types++
		read, err := r.typed(k, nesting)
		v = read
		return err
	})
	switch {
	case err != nil:
		return value{}, err
	case types == 0:
		return value{}, errEmptyValue()
	case types > 1:
		return value{}, validationError("Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes")
	}
	return v, nil
}

func errEmptyValue() *apiError {
	return validationError("Supplied AttributeValue is empty, must contain exactly one of the supported datatypes")
}

func kindOf(name []byte) (kind, bool) {
	switch string(name) {
	case "S":
		return kindString, true
	case "N":
		return kindNumber, true
	}
	return kindNamed(string(name))
}

// typed reads the value behind a type's name.
func (r *reader) typed(k kind, nesting int) (value, error) {
	switch k {
	case kindString, kindNumber, kindBinary:
		return r.scalar(k)
	case kindBool:
		var truth optional[bool]
		err := r.optionalBool(&truth)
		return value{kind: kindBool, truth: truth.value}, err
	case kindNull:
		var truth optional[bool]
		if err := r.optionalBool(&truth); err != nil {
			return value{}, err
		}
		if !truth.value {
			return value{}, invalidParameter("Null attribute value types must have the value of true")
		}
		return value{kind: kindNull, truth: true}, nil
	case kindStringSet, kindNumberSet, kindBinarySet:
		return r.set(k)
	case kindList:
		return r.list(nesting + 1)
	}
	if nesting+1 > maxNesting {
		return value{}, errTooDeep()
	}
	fields, err := r.attributes(nesting + 1)
	return mapValue(fields), err
}

func (r *reader) scalar(k kind) (value, error) {
	text, err := r.text()
	if err != nil {
		return value{}, err
	}
	switch k {
	case kindNumber:
		canonical, err := canonicalNumber(string(text))
		return numberValue(canonical), err
	case kindBinary:
		raw := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
		n, err := base64.StdEncoding.Strict().Decode(raw, text)
		if err != nil {
			return value{}, serializationError("A binary value is not valid Base64")
		}
		return value{kind: kindBinary, text: string(raw[:n])}, nil
	}
	return stringValue(string(text)), nil
}

func (r *reader) set(k kind) (value, error) {
	var members []value
	err := r.array(func() error {
		if r.null() {
			return invalidParameter("An AttributeValue may not contain a null member in a set")
		}
		m, err := r.scalar(k.member())
		if err == nil && m.text == "" {
			return errEmptyMember(k)
		}
		members = append(members, m)
		return err
	})
	if err != nil {
		return value{}, err
	}
	if len(members) == 0 {
		return value{}, invalidParameter("An AttributeValue may not contain an empty set")
	}
	slices.SortFunc(members, compareScalars)
	for i := 1; i < len(members); i++ {
		if compareScalars(members[i-1], members[i]) == 0 {
			if k == kindNumberSet {
				return value{}, validationError("Input collection contains duplicates")
			}
			return value{}, invalidParameter("Input collection of type %s contains duplicates.", k)
		}
	}
	return setValue(k, members), nil
}

func errEmptyMember(k kind) *apiError {
	if k == kindBinarySet {
		return invalidParameter("Binary sets may not contain null or empty values")
	}
	return invalidParameter("An string set may not have a empty string as a member")
}

func (r *reader) list(nesting int) (value, error) {
	if nesting > maxNesting {
		return value{}, errTooDeep()
	}
	var elements []value
	err := r.array(func() error {
		e, err := r.value(nesting)
		elements = append(elements, e)
		return err
	})
	return listValue(elements), err
}
