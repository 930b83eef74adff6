package dynamo

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/tidwall/btree"
)

// A row is an item at rest, in a table or an index: its record, which is one piece
// of memory without a pointer in it. A hub's rows live for days and are hundreds of
// thousands, and the garbage collector looks at every pointer of each of them again
// and again; an item taken apart has dozens. Taking a record apart for a reader
// costs about a microsecond.
type row struct {
	record string // empty for no row at all
	size   int    // of the item, as AWS counts it
}

// rows is an ordered tree of rows under their tree keys.
type rows = btree.Map[string, row]

func newRows() *rows { return btree.NewMap[string, row](0) }

// rowOf puts an item, or none, at rest.
func rowOf(it *item) row {
	if it == nil {
		return row{}
	}
	// The record is kept, so it is to take no more room than it needs.
	scratch, _ := scratches.Get().(*[]byte)
	*scratch = appendRecordAttributes((*scratch)[:0], it.attributes)
	r := row{record: string(*scratch), size: it.size}
	scratches.Put(scratch)
	return r
}

var scratches = sync.Pool{New: func() any { return new([]byte) }}

// item takes a row apart; nil where there is none.
func (r row) item() *item {
	if r.record == "" {
		return nil
	}
	d := recordReader{rest: r.record}
	return &item{attributes: d.attributes(0), size: r.size}
}

// itemIn is item for one that is looked at and not kept: it lasts until the next
// one is taken apart in the same place.
func (r row) itemIn(place *item) {
	d := recordReader{rest: r.record}
	place.size, place.attributes = r.size, d.appendAttributes(place.attributes[:0], 0)
}

// get is the item's get, without taking the rest of the row apart.
func (r row) get(name string) (value, bool) {
	d := recordReader{rest: r.record}
	for range d.count() {
		switch have := d.text(); {
		case have == name:
			return d.value(0), true
		case have > name: // attributes are sorted
			return value{}, false
		}
		d.skip()
	}
	return value{}, false
}

// A record is an item in bytes, in the journal and in memory: the number of
// attributes, then the name and the value of each, sorted by name. A value begins
// with its kind; a text or the members of a nest follow with their number.

func appendRecordText(out []byte, text string) []byte {
	out = binary.AppendUvarint(out, uint64(len(text)))
	return append(out, text...)
}

func appendRecordAttributes(out []byte, attributes []attribute) []byte {
	out = binary.AppendUvarint(out, uint64(len(attributes)))
	for _, a := range attributes {
		out = appendRecordText(out, a.name)
		out = appendRecordValue(out, a.value)
	}
	return out
}

func appendRecordValue(out []byte, v value) []byte {
	out = append(out, byte(v.kind))
	switch {
	case v.kind.isScalar():
		return appendRecordText(out, v.text)
	case v.kind == kindBool || v.kind == kindNull:
		if v.truth {
			return append(out, 1)
		}
		return append(out, 0)
	case v.kind == kindMap:
		return appendRecordAttributes(out, v.fields())
	}
	out = binary.AppendUvarint(out, uint64(len(v.list())))
	for _, element := range v.list() {
		out = appendRecordValue(out, element)
	}
	return out
}

// A recordReader takes a record apart. All texts of an item share the record's
// string, so that it takes few allocations. Damage makes it stop.
type recordReader struct {
	rest   string
	broken bool
}

func (d *recordReader) fail() {
	d.broken, d.rest = true, ""
}

func (d *recordReader) byte() byte {
	if d.rest == "" {
		d.fail()
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

// count reads a number of bytes or elements, of which each takes a byte at least.
func (d *recordReader) count() int {
	if d.rest != "" && d.rest[0] < 0x80 && int(d.rest[0]) < len(d.rest) { // most are short
		n := int(d.rest[0])
		d.rest = d.rest[1:]
		return n
	}
	var n uint64
	for shift := 0; shift < 64; shift += 7 {
		b := d.byte()
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			break
		}
	}
	if n > uint64(len(d.rest)) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *recordReader) text() string {
	n := d.count()
	text := d.rest[:n]
	d.rest = d.rest[n:]
	return text
}

func (d *recordReader) attributes(nesting int) []attribute {
	return d.appendAttributes(nil, nesting)
}

func (d *recordReader) appendAttributes(attributes []attribute, nesting int) []attribute {
	n := d.count()
	attributes = slices.Grow(attributes, n)[:n]
	for i := range attributes {
		attributes[i].name = d.text()
		attributes[i].value = d.value(nesting)
	}
	return attributes
}

func (d *recordReader) value(nesting int) value {
	k := kind(d.byte())
	switch {
	case nesting > maxNesting || k < kindString || k > kindMap:
		d.fail()
		return value{}
	case k.isScalar():
		return value{kind: k, text: d.text()}
	case k == kindBool || k == kindNull:
		return value{kind: k, truth: d.byte() == 1}
	case k == kindMap:
		return mapValue(d.attributes(nesting + 1))
	}
	elements := make([]value, d.count())
	for i := range elements {
		elements[i] = d.value(nesting + 1)
	}
	if k == kindList {
		return listValue(elements)
	}
	return setValue(k, elements)
}

// skip passes a value over, of a record that was read before.
func (d *recordReader) skip() {
	switch k := kind(d.byte()); {
	case k.isScalar():
		d.text()
	case k == kindBool || k == kindNull:
		d.byte()
	default:
		for range d.count() {
			if k == kindMap {
				d.text()
			}
			d.skip()
		}
	}
}
