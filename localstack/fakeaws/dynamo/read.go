package dynamo

import "strings"

func joined(names []string) string { return strings.Join(names, ", ") }

// A readRequest is a GetItem or one member of TransactGetItems.
type readRequest struct {
	table        optional[string]
	key          []attribute
	hasKey       bool
	consistent   optional[bool]
	projection   optional[string]
	placeholders placeholders
	capacity     optional[string]
	legacy       string

	selection *selection
}

func (r *reader) readGet(g *readRequest) error {
	return r.object(func(name []byte) error {
		switch string(name) {
		case "TableName":
			return r.optionalText(&g.table)
		case "Key":
			if r.null() {
				return nil
			}
			key, err := r.attributes(0)
			g.key, g.hasKey = key, true
			return err
		case "ConsistentRead":
			return r.optionalBool(&g.consistent)
		case "ProjectionExpression":
			return r.optionalText(&g.projection)
		case "ExpressionAttributeNames":
			return r.readNames(&g.placeholders)
		case "ReturnConsumedCapacity":
			return r.optionalText(&g.capacity)
		case "AttributesToGet":
			return r.legacyParameter(string(name), &g.legacy)
		}
		return r.skip()
	})
}

// prepareGet checks a read as far as that goes without its table.
func (e *Engine) prepareGet(g *readRequest) error {
	switch {
	case !g.table.set:
		return missingParameter("tableName")
	case !g.hasKey:
		return missingParameter("key")
	case g.legacy != "":
		return errLegacy(g.legacy)
	}
	if err := checkCapacityMode(g.capacity); err != nil {
		return err
	}
	var err error
	g.selection, err = e.projection(g.projection, &g.placeholders)
	return err
}

// projection binds a projection that stands alone.
func (e *Engine) projection(text optional[string], in *placeholders) (*selection, error) {
	if err := in.checkSyntax(); err != nil {
		return nil, err
	}
	b, err := e.bind(projectionExpression, text, in)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, in.checkUsed(0, "")
	}
	return b.selectPaths(b.paths), in.checkUsed(1, "")
}

// find reads the item of a key that is checked against the table.
func (t *table) find(key []attribute) (*item, error) {
	if err := t.keys.checkKey(key); err != nil {
		return nil, err
	}
	return t.get(string(t.keys.treeKey(key))), nil
}

func (e *Engine) getItem(body []byte) (answer, error) {
	g := &readRequest{}
	if err := parse(e, body, (*reader).readGet, g); err != nil {
		return answer{}, err
	}
	result, it, err := e.get(g)
	if err != nil {
		return result, err
	}
	out := make([]byte, 0, 64+encodedSize(it))
	out = append(out, '{')
	if it != nil {
		out = appendName(out, "Item")
		out = appendAttributes(out, g.selection.of(it.attributes))
	}
	if mode := capacityMode(g.capacity.value); mode.wanted() {
		out = appendName(out, "ConsumedCapacity")
		out = appendCapacity(out, result.usages[0], mode, "")
	}
	result.body = append(out, '}')
	return result, nil
}

// get checks a request that was read, and carries it out.
func (e *Engine) get(g *readRequest) (answer, *item, error) {
	if err := e.prepareGet(g); err != nil {
		return answer{}, nil, err
	}
	return e.lookUp(g)
}

func (e *Engine) lookUp(g *readRequest) (answer, *item, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	t, err := e.table(g.table)
	if err != nil {
		return answer{}, nil, err
	}
	it, err := t.find(g.key)
	if err != nil {
		return answer{}, nil, err
	}
	result := answer{units: unitsRead, ticket: e.barrier()}
	result.usages.of(t).base = readUnits(it.bytes(), g.consistent.value)
	return result, it, nil
}
