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
// loading reads every table in order; its value is the row's record.
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

// itemRecord is the record of a change that was applied.
func itemRecord(c *change) engine.Write {
	w := engine.Write{Space: itemSpace, Key: itemKey(c.table.definition.ID, c.key)}
	if c.after != nil {
		w.Value = []byte(c.stored.record)
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
		return loadItem(byID, key, record)
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

func loadItem(byID map[uint32]*table, key string, record []byte) error {
	if len(key) < tableIDSize {
		return errors.New("item record without table")
	}
	id := binary.BigEndian.Uint32([]byte(key[:tableIDSize]))
	t := byID[id]
	if t == nil {
		return fmt.Errorf("item record of unknown table %d", id)
	}
	r := row{record: string(record)}
	d := &recordReader{rest: r.record}
	attributes := d.attributes(0)
	if d.broken || d.rest != "" {
		return fmt.Errorf("item record of table %s is damaged", t.name)
	}
	r.size = newItem(attributes).size
	t.rows.Load(key[tableIDSize:], r)
	t.bytes += int64(r.size)
	return nil
}
