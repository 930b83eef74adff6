package dynamo

import "time"

// A table holds the rows of one table and its indexes.
type table struct {
	definition *tableDefinition
	name       string
	keys       keySchema
	rows       *rows
	bytes      int64
	indexes    []*index // local ones first
}

// newTable makes an empty table of a checked definition.
func newTable(d *tableDefinition) *table {
	t := &table{definition: d, name: d.TableName, rows: newRows()}
	kinds := d.kinds()
	t.keys = keysOf(d.KeySchema, kinds)
	for _, local := range d.LocalSecondaryIndexes {
		t.indexes = append(t.indexes, newIndex(local, true, t.keys, kinds))
	}
	for _, global := range d.GlobalSecondaryIndexes {
		t.indexes = append(t.indexes, newIndex(global, false, t.keys, kinds))
	}
	return t
}

func newIndex(d indexDefinition, local bool, tableKeys keySchema, kinds map[string]kind) *index {
	x := &index{
		definition: d,
		name:       d.IndexName,
		local:      local,
		keys:       keysOf(d.KeySchema, kinds),
		everything: d.Projection.ProjectionType == "ALL",
		entries:    newRows(),
	}
	if !x.everything {
		x.projected = projectedNames(d, tableKeys, x.keys)
	}
	return x
}

// index finds an index by name; nil when there is none.
func (t *table) index(name string) *index {
	for _, x := range t.indexes {
		if x.name == name {
			return x
		}
	}
	return nil
}

// get reads the item under a tree key; nil where there is none.
func (t *table) get(key string) *item {
	r, _ := t.rows.Get(key)
	return r.item()
}

// hasLocalIndex tells whether item collections exist, as AWS calls them.
func (t *table) hasLocalIndex() bool {
	return len(t.indexes) > 0 && t.indexes[0].local
}

// checkIndexKeys refuses an item that an index could not hold.
func (t *table) checkIndexKeys(it *item, update bool) error {
	for _, x := range t.indexes {
		if err := x.check(it, update); err != nil {
			return err
		}
	}
	return nil
}

// A change replaces one row. before and after are nil for an absent row.
type change struct {
	table         *table
	key           string
	before, after *item
	stored        row // after, once the change is applied
}

// apply carries the change out on the row and the indexes and adds what the
// indexes cost to usage.
func (c *change) apply(now time.Time, u *usage) {
	t := c.table
	c.stored = rowOf(c.after)
	if c.after == nil {
		t.rows.Delete(c.key)
	} else {
		t.rows.Set(c.key, c.stored)
	}
	t.bytes += int64(c.after.bytes() - c.before.bytes())
	for _, x := range t.indexes {
		if units := x.replace(c.before, c.after, c.stored, c.key, now); units > 0 {
			u.addIndex(x, units)
		}
	}
}
