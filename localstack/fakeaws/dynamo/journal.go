package dynamo

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"drawbridge/localstack/fakeaws/engine"
)

// The journal has one record for each item, table and transaction token. An
// item's key is the table's id and its place in the table's tree, so that
// loading reads every table in order; its value is the item in a compact form.
// Index entries are not stored: they follow from the items.
const (
	tableSpace = "ddb.table"
	itemSpace  = "ddb.item"
	tokenSpace = "ddb.token"
)

// tableIDSize is the length of the table id before an item's key.
const tableIDSize = 4

func itemKey(id uint32, key string) string {
	full := make([]byte, 0, tableIDSize+len(key))
	full = binary.BigEndian.AppendUint32(full, id)
	return string(append(full, key...))
}

// itemRecord is the record of a change.
func itemRecord(c *change) engine.Write {
	w := engine.Write{Space: itemSpace, Key: itemKey(c.table.definition.ID, c.key)}
	if c.after != nil {
		w.Value = appendRecordAttributes(make([]byte, 0, c.after.size+8*len(c.after.attributes)), c.after.attributes)
	}
	return w
}

// tableRecord is the record of a table.
func tableRecord(d *tableDefinition) (engine.Write, error) {
	encoded, err := json.Marshal(d)
	if err != nil {
		return engine.Write{}, fmt.Errorf("encode table definition: %w", err)
	}
	return engine.Write{Space: tableSpace, Key: d.TableName, Value: encoded}, nil
}

// load reads the journal back and rebuilds the indexes.
func (e *Engine) load() error {
	byID := map[uint32]*table{}
	err := e.journal.Load(tableSpace, func(name string, record []byte) error {
		d := &tableDefinition{}
		if err := json.Unmarshal(record, d); err != nil {
			return fmt.Errorf("decode table %s: %w", name, err)
		}
		t := newTable(d)
		e.tables[name], byID[d.ID] = t, t
		e.lastID = max(e.lastID, d.ID)
		return nil
	})
	if err != nil {
		return fmt.Errorf("load tables: %w", err)
	}
	if err := e.journal.Load(itemSpace, func(key string, record []byte) error {
		return e.loadItem(byID, key, record)
	}); err != nil {
		return fmt.Errorf("load items: %w", err)
	}
	if err := e.journal.Load(tokenSpace, e.tokens.load); err != nil {
		return fmt.Errorf("load transaction tokens: %w", err)
	}
	e.tokens.sortByTime()
	for t := range maps.Values(e.tables) {
		for _, x := range t.indexes {
			x.fill(t.rows)
		}
	}
	return nil
}

func (e *Engine) loadItem(byID map[uint32]*table, key string, record []byte) error {
	if len(key) < tableIDSize {
		return errors.New("item record without table")
	}
	id := binary.BigEndian.Uint32([]byte(key[:tableIDSize]))
	t := byID[id]
	if t == nil {
		return fmt.Errorf("item record of unknown table %d", id)
	}
	d := &recordReader{rest: string(record), names: e.names}
	attributes := d.attributes(0)
	if d.broken || d.rest != "" {
		return fmt.Errorf("item record of table %s is damaged", t.name)
	}
	it := newItem(attributes)
	t.rows.Load(key[tableIDSize:], it)
	t.bytes += int64(it.size)
	return nil
}

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

// A recordReader decodes a record. All texts of an item share the record's
// string, so that loading takes few allocations. Damage makes it stop.
type recordReader struct {
	rest   string
	names  *interner
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
	attributes := make([]attribute, d.count())
	for i := range attributes {
		attributes[i].name = d.names.internText(d.text())
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
