package dynamo

import (
	"slices"
	"time"
)

// An index is a secondary index. Its entries are projected items: the item
// itself where everything is projected.
type index struct {
	definition indexDefinition
	name       string
	local      bool
	keys       keySchema
	everything bool     // projection ALL
	projected  []string // otherwise: the attributes of an entry, sorted
	entries    *rows
	bytes      int64

	// lag and pending are those of SetIndexLag.
	lag     time.Duration
	pending []laggedChange
}

// A laggedChange is a change of an entry that readers do not see yet.
type laggedChange struct {
	written time.Time
	key     string
	entry   row // none takes the entry away
}

// projects tells whether an entry has an attribute.
func (x *index) projects(name string) bool {
	if x.everything {
		return true
	}
	_, found := slices.BinarySearch(x.projected, name)
	return found
}

// holds tells whether an item belongs into the index: it does when it has all
// key attributes, with the right types.
func (x *index) holds(it *item) bool {
	return it != nil && x.keys.partition.isIn(it, maxPartitionKeySize) &&
		(!x.keys.hasSort() || x.keys.sort.isIn(it, maxSortKeySize))
}

// check refuses an item whose index key attributes have a wrong type or
// content; absent ones merely keep it out of the index.
func (x *index) check(it *item, update bool) error {
	return x.keys.each(func(a keyAttribute, limit int) error {
		v, exists := it.get(a.name)
		switch {
		case !exists:
			return nil
		case v.kind != a.kind && update:
			return validationError("The update expression attempted to update the secondary index key to unsupported type")
		case v.kind != a.kind:
			return invalidParameter("Type mismatch for Index Key %s Expected: %s Actual: %s IndexName: %s", a.name, a.kind, v.kind, x.name)
		case a.kind != kindNumber && v.text == "":
			content := "string"
			if a.kind == kindBinary {
				content = "binary"
			}
			return validationError("One or more parameter values are not valid. A value specified for a secondary index key is not supported. The AttributeValue for a key attribute cannot contain an empty %s value. IndexName: %s, IndexKey: %s", content, x.name, a.name)
		}
		return a.checkValue(v, limit)
	})
}

// project makes the entry of an item, which is stored as r.
func (x *index) project(it *item, r row) row {
	if x.everything {
		return r
	}
	kept := make([]attribute, 0, len(x.projected))
	for _, name := range x.projected {
		if v, exists := it.get(name); exists {
			kept = append(kept, attribute{name: name, value: v})
		}
	}
	return rowOf(newItem(kept))
}

// entrySize is the size of an item's entry.
func (x *index) entrySize(it *item) int {
	if x.everything {
		return it.size
	}
	size := 0
	for _, name := range x.projected {
		if v, exists := it.get(name); exists {
			size += len(name) + v.size()
		}
	}
	return size
}

// sameEntry tells whether two items have the same entry.
func (x *index) sameEntry(a, b *item) bool {
	if x.everything {
		return a.equal(b)
	}
	for _, name := range x.projected {
		if !sameAttribute(a, b, name) {
			return false
		}
	}
	return true
}

func (x *index) sameKey(a, b *item) bool {
	return sameAttribute(a, b, x.keys.partition.name) && (!x.keys.hasSort() || sameAttribute(a, b, x.keys.sort.name))
}

func sameAttribute(a, b *item, name string) bool {
	v, inA := a.get(name)
	w, inB := b.get(name)
	return inA == inB && v.equal(w)
}

// entryKey is the place of an item's entry: the index key, then the row's key.
func (x *index) entryKey(it *item, rowKey string) string {
	key := x.keys.treeKey(it.attributes)
	return string(append(key, rowKey...))
}

// replace brings the index up to date with a changed row, which is stored as r, and
// returns the write units of it: a changed index key is a deletion and an insertion,
// a change that the index does not project costs nothing.
func (x *index) replace(before, after *item, r row, rowKey string, now time.Time) float64 {
	wasIn, isIn := x.holds(before), x.holds(after)
	switch {
	case wasIn && isIn && x.sameKey(before, after):
		if x.sameEntry(before, after) {
			return 0
		}
		entry := x.project(after, r)
		x.change(x.entryKey(after, rowKey), entry, now)
		return writeUnits(max(x.entrySize(before), entry.size))
	case wasIn && isIn:
		return x.remove(before, rowKey, now) + x.insert(after, r, rowKey, now)
	case wasIn:
		return x.remove(before, rowKey, now)
	case isIn:
		return x.insert(after, r, rowKey, now)
	}
	return 0
}

func (x *index) insert(it *item, r row, rowKey string, now time.Time) float64 {
	entry := x.project(it, r)
	x.change(x.entryKey(it, rowKey), entry, now)
	return writeUnits(entry.size)
}

func (x *index) remove(it *item, rowKey string, now time.Time) float64 {
	x.change(x.entryKey(it, rowKey), row{}, now)
	return writeUnits(x.entrySize(it))
}

// change sets or deletes an entry, now or when it comes due.
func (x *index) change(key string, entry row, now time.Time) {
	if x.lag > 0 {
		x.settle(now)
		x.pending = append(x.pending, laggedChange{written: now, key: key, entry: entry})
		return
	}
	x.store(key, entry)
}

func (x *index) store(key string, entry row) {
	var old row
	if entry.record == "" {
		old, _ = x.entries.Delete(key)
	} else {
		old, _ = x.entries.Set(key, entry)
	}
	x.bytes += int64(entry.size - old.size)
}

// due tells whether readers at now must see pending changes.
func (x *index) due(now time.Time) bool {
	return len(x.pending) > 0 && now.Sub(x.pending[0].written) >= x.lag
}

// settle makes pending changes visible that are older than the lag; without a
// lag all of them, even if the clock went back meanwhile: a change that is left
// would undo those that come after it.
func (x *index) settle(now time.Time) {
	settled := 0
	for settled < len(x.pending) && (x.lag == 0 || now.Sub(x.pending[settled].written) >= x.lag) {
		x.store(x.pending[settled].key, x.pending[settled].entry)
		settled++
	}
	x.pending = slices.Delete(x.pending, 0, settled)
	if len(x.pending) == 0 {
		x.pending = nil
	}
}

// fill builds the entries of all rows of a table at once.
func (x *index) fill(all *rows) {
	type keyed struct {
		key   string
		entry row
	}
	entries := make([]keyed, 0, all.Len())
	all.Scan(func(rowKey string, r row) bool {
		if it := r.item(); x.holds(it) {
			entries = append(entries, keyed{key: x.entryKey(it, rowKey), entry: x.project(it, r)})
		}
		return true
	})
	slices.SortFunc(entries, func(a, b keyed) int {
		if a.key < b.key {
			return -1
		}
		return 1 // keys differ: each ends with the key of its row
	})
	x.entries, x.bytes = newRows(), 0
	for _, e := range entries {
		x.entries.Load(e.key, e.entry)
		x.bytes += int64(e.entry.size)
	}
}
