package dynamo

import (
	"drawbridge/localstack/fakeaws/engine"
)

// Capacity is counted by the rules of AWS's guide ("DynamoDB read and write
// operations"):
//
//   - A write costs one unit for each KB begun of the larger of the item before
//     and after, at least one; so does one whose condition fails, and the
//     deletion of an item that is not there.
//   - Each index costs by the size of its entry, and only when the entry
//     changes; a changed index key is a deletion and an insertion.
//   - A read costs one unit for each 4 KB begun, half of that when it is
//     eventually consistent; GetItem and batches round up item by item, Query
//     and Scan once a page. A read that finds nothing costs the minimum.
//   - A transaction doubles what the table costs, not what its indexes cost;
//     a condition check costs as a write of its item.

const (
	writeUnitSize = 1024
	readUnitSize  = 4096
)

// blocks divides rounding up; nothing still takes one block.
func blocks(size, block int) float64 {
	return float64(max(1, (size+block-1)/block))
}

// writeUnits is the cost of writing an item or an index entry.
func writeUnits(size int) float64 { return blocks(size, writeUnitSize) }

// readUnits is the cost of reading so many bytes.
func readUnits(size int, consistent bool) float64 {
	if consistent {
		return blocks(size, readUnitSize)
	}
	return blocks(size, readUnitSize) / 2
}

// A usage adds up what a request consumed on one table.
type usage struct {
	table   *table
	base    float64
	indexes []indexUsage
}

type indexUsage struct {
	index *index
	units float64
}

func (u *usage) addIndex(x *index, units float64) {
	for i := range u.indexes {
		if u.indexes[i].index == x {
			u.indexes[i].units += units
			return
		}
	}
	u.indexes = append(u.indexes, indexUsage{index: x, units: units})
}

func (u *usage) total() float64 {
	sum := u.base
	for _, x := range u.indexes {
		sum += x.units
	}
	return sum
}

// usages are those of a request that can touch several tables.
type usages []*usage

// of returns the usage of a table, a new one the first time.
func (all *usages) of(t *table) *usage {
	for _, u := range *all {
		if u.table == t {
			return u
		}
	}
	u := &usage{table: t}
	*all = append(*all, u)
	return u
}

// A unitKind tells reads from writes.
type unitKind uint8

const (
	unitsRead unitKind = iota
	unitsWritten
)

// meter gives the usages in the form of the meter.
func (all usages) meter(k unitKind) []engine.Usage {
	var out []engine.Usage
	for _, u := range all {
		if u.base > 0 {
			out = append(out, k.usage(u.table.name, "", u.base))
		}
		for _, x := range u.indexes {
			out = append(out, k.usage(u.table.name, x.index.name, x.units))
		}
	}
	return out
}

func (k unitKind) usage(table, index string, units float64) engine.Usage {
	if k == unitsRead {
		return engine.Usage{Table: table, Index: index, ReadUnits: units}
	}
	return engine.Usage{Table: table, Index: index, WriteUnits: units}
}

// A capacityMode is ReturnConsumedCapacity.
type capacityMode string

const (
	capacityNone    capacityMode = "NONE"
	capacityTotal   capacityMode = "TOTAL"
	capacityIndexes capacityMode = "INDEXES"
)

// wanted tells whether the answer has the member ConsumedCapacity.
func (m capacityMode) wanted() bool { return m == capacityTotal || m == capacityIndexes }

// appendCapacity appends one ConsumedCapacity. Transactions name the kind of
// units in a member of its own: "ReadCapacityUnits" or "WriteCapacityUnits".
func appendCapacity(out []byte, u *usage, mode capacityMode, transaction string) []byte {
	out = append(out, '{')
	out = appendName(out, "TableName")
	out = appendText(out, u.table.name)
	out = appendUnitMembers(out, u.total(), transaction)
	if mode == capacityIndexes {
		out = appendName(out, "Table")
		out = append(out, '{')
		out = appendUnitMembers(out, u.base, transaction)
		out = append(out, '}')
		out = appendIndexCapacity(out, u, "LocalSecondaryIndexes", true, transaction)
		out = appendIndexCapacity(out, u, "GlobalSecondaryIndexes", false, transaction)
	}
	return append(out, '}')
}

func appendUnitMembers(out []byte, units float64, transaction string) []byte {
	out = appendName(out, "CapacityUnits")
	out = appendUnits(out, units)
	if transaction != "" {
		out = appendName(out, transaction)
		out = appendUnits(out, units)
	}
	return out
}

func appendIndexCapacity(out []byte, u *usage, member string, local bool, transaction string) []byte {
	opened := false
	for _, x := range u.indexes {
		if x.index.local != local {
			continue
		}
		if !opened {
			out = appendName(out, member)
			out = append(out, '{')
			opened = true
		}
		out = appendName(out, x.index.name)
		out = append(out, '{')
		out = appendUnitMembers(out, x.units, transaction)
		out = append(out, '}')
	}
	if opened {
		out = append(out, '}')
	}
	return out
}

// appendCapacities appends the list that batches and transactions answer.
func appendCapacities(out []byte, all usages, mode capacityMode, transaction string) []byte {
	out = append(out, '[')
	for i, u := range all {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendCapacity(out, u, mode, transaction)
	}
	return append(out, ']')
}
