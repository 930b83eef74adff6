package dynamo

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// A kind is one of DynamoDB's data types.
type kind uint8

const (
	kindString kind = iota + 1
	kindNumber
	kindBinary
	kindBool
	kindNull
	kindStringSet
	kindNumberSet
	kindBinarySet
	kindList
	kindMap
)

var kindNames = [...]string{
	kindString: "S", kindNumber: "N", kindBinary: "B", kindBool: "BOOL", kindNull: "NULL",
	kindStringSet: "SS", kindNumberSet: "NS", kindBinarySet: "BS", kindList: "L", kindMap: "M",
}

// kindWords are the names that some of AWS's messages use.
var kindWords = [...]string{
	kindString: "STRING", kindNumber: "NUMBER", kindBinary: "BINARY", kindBool: "BOOLEAN", kindNull: "NULL",
	kindStringSet: "STRING_SET", kindNumberSet: "NUMBER_SET", kindBinarySet: "BINARY_SET", kindList: "LIST", kindMap: "MAP",
}

func (k kind) String() string { return kindNames[k] }
func (k kind) word() string   { return kindWords[k] }

// isScalar tells the types that keys can have and that have an order.
func (k kind) isScalar() bool { return k == kindString || k == kindNumber || k == kindBinary }

func (k kind) isSet() bool {
	return k == kindStringSet || k == kindNumberSet || k == kindBinarySet
}

// member is the type of a set's members.
func (k kind) member() kind {
	switch k {
	case kindStringSet:
		return kindString
	case kindNumberSet:
		return kindNumber
	}
	return kindBinary
}

func kindNamed(name string) (kind, bool) {
	for k := kindString; k <= kindMap; k++ {
		if kindNames[k] == name {
			return k, true
		}
	}
	return 0, false
}

// A value is an attribute value. Values are immutable once they are part of an
// item: readers share them without a lock.
type value struct {
	kind  kind
	truth bool
	// text is the UTF-8 text of a string, the raw bytes of a binary, or the
	// canonical text of a number.
	text string
	// nest holds the elements of lists, sets and maps; nil when there are none.
	nest *nest
}

// A nest is the inside of a list, a set (sorted, without duplicates) or a map.
type nest struct {
	list   []value
	fields []attribute // sorted by name
}

// An attribute is a named value.
type attribute struct {
	name  string
	value value
}

func stringValue(text string) value { return value{kind: kindString, text: text} }

func numberValue(canonical string) value { return value{kind: kindNumber, text: canonical} }

func listValue(elements []value) value {
	if len(elements) == 0 {
		return value{kind: kindList}
	}
	return value{kind: kindList, nest: &nest{list: elements}}
}

func mapValue(fields []attribute) value {
	if len(fields) == 0 {
		return value{kind: kindMap}
	}
	return value{kind: kindMap, nest: &nest{fields: fields}}
}

// setValue takes sorted members.
func setValue(k kind, members []value) value {
	return value{kind: k, nest: &nest{list: members}}
}

// list gives the elements of a list or the members of a set.
func (v value) list() []value {
	if v.nest == nil {
		return nil
	}
	return v.nest.list
}

// fields gives the attributes of a map.
func (v value) fields() []attribute {
	if v.nest == nil {
		return nil
	}
	return v.nest.fields
}

// equal compares type and content; numbers compare by value because their text
// is canonical, sets without regard to order because they are sorted.
func (v value) equal(other value) bool {
	if v.kind != other.kind || v.truth != other.truth || v.text != other.text {
		return false
	}
	if v.nest == other.nest {
		return true
	}
	return slices.EqualFunc(v.list(), other.list(), value.equal) && attributesEqual(v.fields(), other.fields())
}

func attributesEqual(a, b []attribute) bool {
	return slices.EqualFunc(a, b, func(x, y attribute) bool {
		return x.name == y.name && x.value.equal(y.value)
	})
}

// compareScalars orders two values of one scalar type: numbers by value,
// strings and binaries by their unsigned bytes.
func compareScalars(a, b value) int {
	if a.kind == kindNumber {
		return compareNumbers(a.text, b.text)
	}
	return strings.Compare(a.text, b.text)
}

// comparable tells whether the order of two values is defined.
func (v value) comparable(other value) bool {
	return v.kind == other.kind && v.kind.isScalar()
}

// length is what the function size() gives; false where it has no meaning.
// A string counts in characters: AWS's guide says "length" and does not say of
// what. No recording of a text beyond ASCII is known, and nothing here depends
// on it.
func (v value) length() (int, bool) {
	switch {
	case v.kind == kindString:
		return utf8.RuneCountInString(v.text), true
	case v.kind == kindBinary:
		return len(v.text), true
	case v.kind == kindMap:
		return len(v.fields()), true
	case v.kind == kindList || v.kind.isSet():
		return len(v.list()), true
	}
	return 0, false
}

// contains is the function contains(): a substring, a set's member or a
// list's element.
func (v value) contains(other value) bool {
	switch {
	case v.kind == kindString || v.kind == kindBinary:
		return other.kind == v.kind && strings.Contains(v.text, other.text)
	case v.kind.isSet():
		_, found := slices.BinarySearchFunc(v.list(), other, compareScalars)
		return other.kind == v.kind.member() && found
	case v.kind == kindList:
		return slices.ContainsFunc(v.list(), other.equal)
	}
	return false
}

// union merges two sets of one type.
func (v value) union(other value) value {
	members := make([]value, 0, len(v.list())+len(other.list()))
	members = append(members, v.list()...)
	for _, m := range other.list() {
		if !v.contains(m) {
			members = append(members, m)
		}
	}
	slices.SortFunc(members, compareScalars)
	return setValue(v.kind, members)
}

// without takes another set's members out; false when nothing is left, because
// a set cannot be empty.
func (v value) without(other value) (value, bool) {
	var members []value
	for _, m := range v.list() {
		if !other.contains(m) {
			members = append(members, m)
		}
	}
	return setValue(v.kind, members), len(members) > 0
}

// depth counts the levels of lists and maps.
func (v value) depth() int {
	deepest := 0
	switch v.kind {
	case kindList:
		for _, e := range v.list() {
			deepest = max(deepest, e.depth())
		}
		return deepest + 1
	case kindMap:
		for _, f := range v.fields() {
			deepest = max(deepest, f.value.depth())
		}
		return deepest + 1
	}
	return 0
}

// size is the storage size as AWS counts it: the bytes of strings and
// binaries, about half a byte a digit, one byte for BOOL and NULL, three bytes
// for a list or map and one more for each element.
func (v value) size() int {
	size := 0
	switch {
	case v.kind == kindString || v.kind == kindBinary:
		return len(v.text)
	case v.kind == kindNumber:
		return numberSize(v.text)
	case v.kind.isSet():
		for _, m := range v.list() {
			size += m.size()
		}
		return size
	case v.kind == kindList:
		for _, e := range v.list() {
			size += 1 + e.size()
		}
		return size + 3
	case v.kind == kindMap:
		for _, f := range v.fields() {
			size += 1 + len(f.name) + f.value.size()
		}
		return size + 3
	}
	return 1
}
