package dynamo

// Limits of batches.
const (
	maxBatchGets      = 100
	maxBatchWrites    = 25
	maxBatchReadBytes = 16 << 20
)

func errDuplicateKeys() *apiError {
	return validationError("Provided list of item keys contains duplicates")
}

func errEmptyBatch() *apiError {
	return constraintError("{}", "requestItems", "Member must have length greater than or equal to 1")
}

// A batchGetTable is what a BatchGetItem reads from one table.
type batchGetTable struct {
	name         string
	keys         [][]attribute
	hasKeys      bool
	consistent   optional[bool]
	projection   optional[string]
	placeholders placeholders
	legacy       string

	selection   *selection
	found       []*item
	unprocessed [][]attribute
}

// A batchGet is a BatchGetItem.
type batchGet struct {
	tables   []*batchGetTable
	capacity optional[string]
}

func (r *reader) readBatchGet(b *batchGet) error {
	return r.object(func(name []byte) error {
		switch string(name) {
		case "RequestItems":
			if r.null() {
				return nil
			}
			return r.object(func(table []byte) error {
				t := &batchGetTable{name: string(table)}
				b.tables = append(b.tables, t)
				return r.readBatchGetTable(t)
			})
		case "ReturnConsumedCapacity":
			return r.optionalText(&b.capacity)
		}
		return r.skip()
	})
}

func (r *reader) readBatchGetTable(t *batchGetTable) error {
	return r.object(func(name []byte) error {
		switch string(name) {
		case "Keys":
			if r.null() {
				return nil
			}
			t.hasKeys = true
			return r.array(func() error {
				key, err := r.attributes(0)
				t.keys = append(t.keys, key)
				return err
			})
		case "ConsistentRead":
			return r.optionalBool(&t.consistent)
		case "ProjectionExpression":
			return r.optionalText(&t.projection)
		case "ExpressionAttributeNames":
			return r.readNames(&t.placeholders)
		case "AttributesToGet":
			return r.legacyParameter(string(name), &t.legacy)
		}
		return r.skip()
	})
}

func (e *Engine) prepareBatchGet(b *batchGet) error {
	if err := checkCapacityMode(b.capacity); err != nil {
		return err
	}
	if len(b.tables) == 0 {
		return errEmptyBatch()
	}
	total := 0
	for _, t := range b.tables {
		switch {
		case !t.hasKeys:
			return missingParameter("requestItems." + t.name + ".member.keys")
		case len(t.keys) == 0:
			return constraintError("[]", "requestItems."+t.name+".member.keys", "Member must have length greater than or equal to 1")
		case t.legacy != "":
			return errLegacy(t.legacy)
		}
		total += len(t.keys)
		var err error
		if t.selection, err = e.projection(t.projection, &t.placeholders); err != nil {
			return err
		}
	}
	if total > maxBatchGets {
		return validationError("Too many items requested for the BatchGetItem call")
	}
	return nil
}

func (e *Engine) batchGetItem(body []byte) (answer, error) {
	b := &batchGet{}
	if err := parse(e, body, (*reader).readBatchGet, b); err != nil {
		return answer{}, err
	}
	result, err := e.getBatch(b)
	if err != nil {
		return result, err
	}
	result.body = b.respond(result.usages)
	return result, nil
}

// getBatch checks a request that was read, and carries it out.
func (e *Engine) getBatch(b *batchGet) (answer, error) {
	if err := e.prepareBatchGet(b); err != nil {
		return answer{}, err
	}
	return e.lookUpBatch(b)
}

// lookUpBatch reads all keys at one instant. What does not fit into 16 MB is
// left unprocessed.
func (e *Engine) lookUpBatch(b *batchGet) (answer, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	result := answer{units: unitsRead}
	size := 0
	for _, wanted := range b.tables {
		t, err := e.table(optional[string]{value: wanted.name, set: true})
		if err != nil {
			return answer{}, err
		}
		seen := make(map[string]bool, len(wanted.keys))
		for _, key := range wanted.keys {
			if err := t.keys.checkKey(key); err != nil {
				return answer{}, err
			}
			at := string(t.keys.treeKey(key))
			if seen[at] {
				return answer{}, errDuplicateKeys()
			}
			seen[at] = true
			it := t.get(at)
			if size+it.bytes() > maxBatchReadBytes {
				wanted.unprocessed = append(wanted.unprocessed, key)
				continue
			}
			size += it.bytes()
			if it != nil {
				wanted.found = append(wanted.found, it)
			}
			result.usages.of(t).base += readUnits(it.bytes(), wanted.consistent.value)
		}
	}
	result.ticket = e.barrier()
	return result, nil
}

func (b *batchGet) respond(all usages) []byte {
	size := 128
	for _, t := range b.tables {
		for _, it := range t.found {
			size += encodedSize(it)
		}
	}
	out := make([]byte, 0, size)
	out = append(out, '{')
	out = appendName(out, "Responses")
	out = append(out, '{')
	for _, t := range b.tables {
		out = appendName(out, t.name)
		out = append(out, '[')
		for i, it := range t.found {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendAttributes(out, t.selection.of(it.attributes))
		}
		out = append(out, ']')
	}
	out = append(out, '}')
	out = appendName(out, "UnprocessedKeys")
	out = append(out, '{')
	for _, t := range b.tables {
		if len(t.unprocessed) > 0 {
			out = appendName(out, t.name)
			out = t.appendUnprocessed(out)
		}
	}
	out = append(out, '}')
	if mode := capacityMode(b.capacity.value); mode.wanted() {
		out = appendName(out, "ConsumedCapacity")
		out = appendCapacities(out, all, mode, "")
	}
	return append(out, '}')
}

// appendUnprocessed writes what the caller has to ask for again.
func (t *batchGetTable) appendUnprocessed(out []byte) []byte {
	out = append(out, '{')
	out = appendName(out, "Keys")
	out = append(out, '[')
	for i, key := range t.unprocessed {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendAttributes(out, key)
	}
	out = append(out, ']')
	if t.consistent.value {
		out = appendName(out, "ConsistentRead")
		out = append(out, "true"...)
	}
	if t.projection.set {
		out = appendName(out, "ProjectionExpression")
		out = appendText(out, t.projection.value)
	}
	if len(t.placeholders.names) > 0 {
		out = appendName(out, "ExpressionAttributeNames")
		out = append(out, '{')
		for _, n := range t.placeholders.names {
			out = appendName(out, n.key)
			out = appendText(out, n.name)
		}
		out = append(out, '}')
	}
	return append(out, '}')
}

// A batchWrite is a BatchWriteItem.
type batchWrite struct {
	writes   []*writeRequest
	capacity optional[string]
	metrics  optional[string]
}

func (r *reader) readBatchWrite(b *batchWrite) error {
	return r.object(func(name []byte) error {
		switch string(name) {
		case "RequestItems":
			if r.null() {
				return nil
			}
			return r.object(func(table []byte) error {
				name := string(table)
				return r.array(func() error {
					w, err := r.readBatchMember()
					if err != nil {
						return err
					}
					w.table = optional[string]{value: name, set: true}
					b.writes = append(b.writes, w)
					return nil
				})
			})
		case "ReturnConsumedCapacity":
			return r.optionalText(&b.capacity)
		case "ReturnItemCollectionMetrics":
			return r.optionalText(&b.metrics)
		}
		return r.skip()
	})
}

// readBatchMember reads a WriteRequest: a put or a deletion.
func (r *reader) readBatchMember() (*writeRequest, error) {
	var w *writeRequest
	requests := 0
	err := r.object(func(name []byte) error {
		kind := writePut
		switch string(name) {
		case "PutRequest":
		case "DeleteRequest":
			kind = writeDelete
		default:
			return r.skip()
		}
		if r.null() {
			return nil
		}
		requests++
		w = &writeRequest{kind: kind}
		return r.object(func(name []byte) error {
			if string(name) != kind.itemMember() {
				return r.skip()
			}
			if r.null() {
				return nil
			}
			attributes, err := r.attributes(0)
			w.attributes, w.hasItem = attributes, true
			return err
		})
	})
	if err == nil && requests != 1 {
		err = validationError("Supplied WriteRequest must contain exactly one of PutRequest and DeleteRequest")
	}
	return w, err
}

func (e *Engine) prepareBatchWrite(b *batchWrite) error {
	if err := checkCapacityMode(b.capacity); err != nil {
		return err
	}
	if err := checkEnum(b.metrics, "returnItemCollectionMetrics", "SIZE", "NONE"); err != nil {
		return err
	}
	switch {
	case len(b.writes) == 0:
		return errEmptyBatch()
	case len(b.writes) > maxBatchWrites:
		return validationError("Too many items requested for the BatchWriteItem call")
	}
	for _, w := range b.writes {
		w.metrics = b.metrics
		if err := e.prepare(w); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) batchWriteItem(body []byte) (answer, error) {
	b := &batchWrite{}
	if err := parse(e, body, (*reader).readBatchWrite, b); err != nil {
		return answer{}, err
	}
	if err := e.prepareBatchWrite(b); err != nil {
		return answer{}, err
	}
	result, err := e.executeBatch(b)
	if err != nil {
		return result, err
	}
	out := []byte{'{'}
	out = appendName(out, "UnprocessedItems")
	out = append(out, "{}"...)
	if mode := capacityMode(b.capacity.value); mode.wanted() {
		out = appendName(out, "ConsumedCapacity")
		out = appendCapacities(out, result.usages, mode, "")
	}
	result.body = append(out, '}')
	return result, nil
}

// executeBatch writes all members at one instant, which AWS permits but does
// not promise.
func (e *Engine) executeBatch(b *batchWrite) (answer, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	result := answer{units: unitsWritten}
	changes := make([]change, 0, len(b.writes))
	for _, w := range b.writes {
		t, err := e.table(w.table)
		if err != nil {
			return answer{}, err
		}
		c, err := w.evaluate(t)
		if err != nil {
			return answer{}, err
		}
		changes = append(changes, c)
	}
	if hasDuplicates(changes) {
		return answer{}, errDuplicateKeys()
	}
	for i, w := range b.writes {
		result.usages.of(changes[i].table).base += w.units(changes[i], false)
	}
	result.ticket = e.commit(changes, &result.usages)
	return result, nil
}

// hasDuplicates tells whether two changes are about one row.
func hasDuplicates(changes []change) bool {
	type row struct {
		table *table
		key   string
	}
	seen := make(map[row]bool, len(changes))
	for _, c := range changes {
		at := row{c.table, c.key}
		if seen[at] {
			return true
		}
		seen[at] = true
	}
	return false
}
