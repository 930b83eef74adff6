package dynamo

import (
	"slices"
	"strings"
)

// maxItemSize is the limit of an item, attribute names included.
const maxItemSize = 400 * 1024

// An item is an immutable set of attributes.
type item struct {
	attributes []attribute // sorted by name
	size       int         // as AWS counts it
}

// newItem takes attributes that are sorted by name.
func newItem(attributes []attribute) *item {
	size := 0
	for i := range attributes {
		size += len(attributes[i].name) + attributes[i].value.size()
	}
	return &item{attributes: attributes, size: size}
}

// bytes is the size, zero without an item.
func (it *item) bytes() int {
	if it == nil {
		return 0
	}
	return it.size
}

// get finds an attribute; false also without an item.
func (it *item) get(name string) (value, bool) {
	if it == nil {
		return value{}, false
	}
	return findAttribute(it.attributes, name)
}

func findAttribute(attributes []attribute, name string) (value, bool) {
	at, found := searchAttribute(attributes, name)
	if !found {
		return value{}, false
	}
	return attributes[at].value, true
}

func searchAttribute(attributes []attribute, name string) (int, bool) {
	low, high := 0, len(attributes)
	for low < high {
		middle := int(uint(low+high) >> 1)
		if attributes[middle].name < name {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, low < len(attributes) && attributes[low].name == name
}

func (it *item) equal(other *item) bool {
	if it == other {
		return true
	}
	if it == nil || other == nil {
		return false
	}
	return attributesEqual(it.attributes, other.attributes)
}

// sortAttributes orders attributes by name. Of two with one name the later
// one stays, as in a JSON object with a repeated member.
func sortAttributes(attributes []attribute) []attribute {
	byName := func(a, b attribute) int { return strings.Compare(a.name, b.name) }
	if !slices.IsSortedFunc(attributes, byName) {
		slices.SortStableFunc(attributes, byName)
	}
	kept := attributes[:0]
	for i, a := range attributes {
		if i+1 < len(attributes) && attributes[i+1].name == a.name {
			continue
		}
		kept = append(kept, a)
	}
	return kept
}

// withAttribute returns a copy of sorted attributes in which name has v.
func withAttribute(attributes []attribute, name string, v value) []attribute {
	at, found := searchAttribute(attributes, name)
	if found {
		changed := slices.Clone(attributes)
		changed[at].value = v
		return changed
	}
	changed := make([]attribute, 0, len(attributes)+1)
	changed = append(changed, attributes[:at]...)
	changed = append(changed, attribute{name: name, value: v})
	return append(changed, attributes[at:]...)
}

// withoutAttribute returns attributes without name; the same slice when there
// is no such attribute.
func withoutAttribute(attributes []attribute, name string) []attribute {
	at, found := searchAttribute(attributes, name)
	if !found {
		return attributes
	}
	changed := make([]attribute, 0, len(attributes)-1)
	changed = append(changed, attributes[:at]...)
	return append(changed, attributes[at+1:]...)
}
