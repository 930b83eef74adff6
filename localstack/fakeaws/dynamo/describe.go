package dynamo

import (
	"net/http"

	"drawbridge/localstack/fakeaws/engine"
)

// maxDescribedKeys bounds what Describe collects from one request.
const maxDescribedKeys = 128

// Describe names the table, the keys and the index of a request.
func (e *Engine) Describe(r *http.Request, body []byte) engine.Call {
	call := engine.Call{Service: "dynamodb", Op: operationOf(r)}
	d := &describer{engine: e, call: &call, reader: reader{data: body, names: e.names}}
	// An error means that the rest cannot be understood; what was found counts.
	switch call.Op {
	case "BatchGetItem", "BatchWriteItem":
		_ = d.batch()
	case "TransactGetItems", "TransactWriteItems":
		_ = d.transaction()
	default:
		_ = d.single()
	}
	return call
}

// A describer walks over a request and picks out names and keys. It skips
// everything else without looking into it.
type describer struct {
	engine *Engine
	call   *engine.Call
	reader
}

// single reads an object that has a TableName and perhaps a Key or an Item,
// which come in any order.
func (d *describer) single() error {
	var table string
	key := -1
	err := d.object(func(name []byte) error {
		switch string(name) {
		case "TableName":
			return d.string(&table)
		case "IndexName":
			return d.string(&d.call.Index)
		case "Key", "Item":
			d.peek()
			key = d.at
		}
		return d.skip()
	})
	d.resource(table)
	if key < 0 {
		return err
	}
	end := d.at
	d.at = key
	if err := d.key(table); err != nil {
		return err
	}
	d.at = end
	return err
}

func (d *describer) resource(table string) {
	if d.call.Resource == "" {
		d.call.Resource = table
	}
}

// string reads a string; another type is skipped.
func (d *describer) string(into *string) error {
	if d.peek() != '"' {
		return d.skip()
	}
	text, err := d.text()
	*into = string(text)
	return err
}

// transaction reads a list of objects, each with one action.
func (d *describer) transaction() error {
	return d.object(func(name []byte) error {
		if string(name) != "TransactItems" {
			return d.skip()
		}
		return d.array(func() error {
			return d.object(func([]byte) error { return d.single() })
		})
	})
}

// batch reads RequestItems: by table, {"Keys": [...]} or a list of put and
// delete requests.
func (d *describer) batch() error {
	return d.object(func(name []byte) error {
		if string(name) != "RequestItems" {
			return d.skip()
		}
		return d.object(func(name []byte) error {
			table := string(name)
			d.resource(table)
			if d.peek() == '[' {
				return d.array(func() error { return d.member(table) })
			}
			return d.object(func(name []byte) error {
				if string(name) != "Keys" {
					return d.skip()
				}
				return d.array(func() error { return d.key(table) })
			})
		})
	})
}

func (d *describer) member(table string) error {
	return d.object(func([]byte) error {
		return d.object(func(name []byte) error {
			if string(name) == "Item" || string(name) == "Key" {
				return d.key(table)
			}
			return d.skip()
		})
	})
}

// key reads an item or a key and notes "partition/sort".
func (d *describer) key(table string) error {
	keys, known := d.engine.keysOf(table)
	if !known || len(d.call.Keys) >= maxDescribedKeys {
		return d.skip()
	}
	var partition, sort string
	err := d.object(func(name []byte) error {
		switch string(name) {
		case keys.partition.name:
			return d.scalarText(&partition)
		case keys.sort.name:
			return d.scalarText(&sort)
		}
		return d.skip()
	})
	if keys.hasSort() {
		partition += "/" + sort
	}
	d.call.Keys = append(d.call.Keys, partition)
	return err
}

// scalarText reads {"S": "text"}; a binary stays Base64.
func (d *describer) scalarText(into *string) error {
	return d.object(func([]byte) error { return d.string(into) })
}

// keysOf gives the keys of a table.
func (e *Engine) keysOf(name string) (keySchema, bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	t := e.tables[name]
	if t == nil {
		return keySchema{}, false
	}
	return t.keys, true
}
