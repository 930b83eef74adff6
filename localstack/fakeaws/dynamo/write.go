package dynamo

import (
	"slices"

	"drawbridge/localstack/fakeaws/engine"
)

// A writeKind is what a write does with its item.
type writeKind uint8

const (
	writePut writeKind = iota
	writeUpdate
	writeDelete
	writeCheck // ConditionCheck of a transaction: looks, but changes nothing
)

// A writeRequest is a PutItem, UpdateItem or DeleteItem, or one action of a
// transaction or a batch.
type writeRequest struct {
	kind         writeKind
	table        optional[string]
	attributes   []attribute // the item of a put, the key of everything else
	hasItem      bool
	condition    optional[string]
	update       optional[string]
	placeholders placeholders
	returnValues optional[string]
	onFailure    optional[string]
	capacity     optional[string]
	metrics      optional[string]
	legacy       string // a legacy parameter that was given

	item           *item // of a put
	boundCondition *bound
	boundUpdate    *bound
}

// itemMember is the name of the member that carries the attributes.
func (k writeKind) itemMember() string {
	if k == writePut {
		return "Item"
	}
	return "Key"
}

// readWrite reads a request or an action.
func (r *reader) readWrite(w *writeRequest) error {
	return r.object(func(name []byte) error {
		switch string(name) {
		case "TableName":
			return r.optionalText(&w.table)
		case w.kind.itemMember():
			if r.null() {
				return nil
			}
			attributes, err := r.attributes(0)
			w.attributes, w.hasItem = attributes, true
			return err
		case "ConditionExpression":
			return r.optionalText(&w.condition)
		case "UpdateExpression":
			return r.optionalText(&w.update)
		case "ExpressionAttributeNames":
			return r.readNames(&w.placeholders)
		case "ExpressionAttributeValues":
			return r.readValues(&w.placeholders)
		case "ReturnValues":
			return r.optionalText(&w.returnValues)
		case "ReturnValuesOnConditionCheckFailure":
			return r.optionalText(&w.onFailure)
		case "ReturnConsumedCapacity":
			return r.optionalText(&w.capacity)
		case "ReturnItemCollectionMetrics":
			return r.optionalText(&w.metrics)
		case "Expected", "AttributeUpdates", "ConditionalOperator":
			return r.legacyParameter(string(name), &w.legacy)
		}
		return r.skip()
	})
}

// legacyParameter notes that a parameter of before expressions was given.
func (r *reader) legacyParameter(name string, into *string) error {
	if !r.null() {
		*into = name
		return r.skip()
	}
	return nil
}

func errLegacy(name string) error {
	return validationError("The legacy parameter %s is not supported by this server; use expressions instead", name)
}

// returnValuesAllowed lists what each kind may return.
var returnValuesAllowed = map[writeKind][]string{
	writePut:    {"NONE", "ALL_OLD"},
	writeDelete: {"NONE", "ALL_OLD"},
	writeUpdate: {"NONE", "ALL_OLD", "UPDATED_OLD", "ALL_NEW", "UPDATED_NEW"},
	writeCheck:  {"NONE"},
}

// checkEnum refuses a value outside a set of names.
func checkEnum(v optional[string], at string, allowed ...string) error {
	if v.set && !slices.Contains(allowed, v.value) {
		return constraintError(v.value, at, "Member must satisfy enum value set: ["+joined(allowed)+"]")
	}
	return nil
}

// prepare checks a write as far as that goes without its table and binds its
// expressions.
func (e *Engine) prepare(w *writeRequest) error {
	switch {
	case !w.table.set:
		return missingParameter("tableName")
	case !w.hasItem && w.kind == writePut:
		return missingParameter("item")
	case !w.hasItem:
		return missingParameter("key")
	case w.kind == writeCheck && !w.condition.set:
		return missingParameter("conditionExpression")
	case w.legacy != "":
		return errLegacy(w.legacy)
	}
	if err := w.checkEnums(); err != nil {
		return err
	}
	if err := e.bindWrite(w); err != nil {
		return err
	}
	if w.kind == writePut {
		w.item = newItem(w.attributes)
	}
	return nil
}

func (w *writeRequest) checkEnums() error {
	if err := checkEnum(w.returnValues, "returnValues", returnValuesAllowed[writeUpdate]...); err != nil {
		return err
	}
	if err := checkEnum(w.onFailure, "returnValuesOnConditionCheckFailure", "ALL_OLD", "NONE"); err != nil {
		return err
	}
	if err := checkCapacityMode(w.capacity); err != nil {
		return err
	}
	if err := checkEnum(w.metrics, "returnItemCollectionMetrics", "SIZE", "NONE"); err != nil {
		return err
	}
	if w.returnValues.set && !slices.Contains(returnValuesAllowed[w.kind], w.returnValues.value) {
		return validationError("ReturnValues can only be ALL_OLD or NONE")
	}
	return nil
}

func checkCapacityMode(v optional[string]) error {
	return checkEnum(v, "returnConsumedCapacity", string(capacityIndexes), string(capacityTotal), string(capacityNone))
}

func (e *Engine) bindWrite(w *writeRequest) error {
	in := &w.placeholders
	if err := in.checkSyntax(); err != nil {
		return err
	}
	var err error
	if w.boundUpdate, err = e.bind(updateExpression, w.update, in); err != nil {
		return err
	}
	if w.boundCondition, err = e.bind(conditionExpression, w.condition, in); err != nil {
		return err
	}
	expressions, without := 0, "ConditionExpression is null"
	if w.kind == writeUpdate {
		without = "UpdateExpression and ConditionExpression are null"
	}
	for _, b := range []*bound{w.boundUpdate, w.boundCondition} {
		if b != nil {
			expressions++
		}
	}
	return in.checkUsed(expressions, without)
}

// evaluate finds out what a write does to its table, without doing it. A
// failed condition or a validation error tells that it does nothing.
func (w *writeRequest) evaluate(t *table) (change, error) {
	c, err := w.locate(t)
	if err != nil {
		return c, err
	}
	return w.complete(c)
}

// complete checks the condition on a located row and works out what comes after.
func (w *writeRequest) complete(c change) (change, error) {
	if w.boundCondition != nil && !w.boundCondition.holds(w.boundCondition.root, c.before) {
		if w.onFailure.value == "ALL_OLD" {
			return c, conditionFailed(c.before)
		}
		return c, conditionFailed(nil)
	}
	var err error
	switch w.kind {
	case writePut:
		c.after = w.item
	case writeCheck:
		c.after = c.before
	case writeUpdate:
		c.after, err = w.updated(c.table, c.before)
	}
	return c, err
}

// locate checks the key and finds the row.
func (w *writeRequest) locate(t *table) (change, error) {
	c := change{table: t}
	if w.metrics.value == "SIZE" && t.hasLocalIndex() {
		return c, unsupported("ReturnItemCollectionMetrics=SIZE")
	}
	if err := w.checkKeys(t); err != nil {
		return c, err
	}
	c.key = string(t.keys.treeKey(w.attributes))
	c.before = t.get(c.key)
	return c, nil
}

func (w *writeRequest) checkKeys(t *table) error {
	if w.kind != writePut {
		if err := t.keys.checkKey(w.attributes); err != nil || w.boundUpdate == nil {
			return err
		}
		return w.checkKeysKept(t)
	}
	if err := t.keys.checkItem(w.attributes); err != nil {
		return err
	}
	if w.item.size > maxItemSize {
		return validationError("Item size has exceeded the maximum allowed size")
	}
	return t.checkIndexKeys(w.item, false)
}

// checkKeysKept refuses an update of a key attribute.
func (w *writeRequest) checkKeysKept(t *table) error {
	for _, a := range w.boundUpdate.actions {
		if name := w.boundUpdate.head(a.path); t.keys.has(name) {
			return invalidParameter("Cannot update attribute %s. This attribute is part of the key", name)
		}
	}
	return nil
}

// updated gives the item after an update; nil where an update of an absent
// item leaves none.
func (w *writeRequest) updated(t *table, before *item) (*item, error) {
	base := w.attributes
	if before != nil {
		base = before.attributes
	}
	if w.boundUpdate == nil {
		if before != nil {
			return before, nil
		}
		return newItem(base), nil
	}
	attributes, err := w.boundUpdate.applyTo(base)
	if err != nil {
		return nil, err
	}
	if before == nil && !w.boundUpdate.createsItem() {
		return nil, nil
	}
	after := newItem(attributes)
	if after.size > maxItemSize {
		return nil, validationError("Item size to update has exceeded the maximum allowed size")
	}
	for _, a := range after.attributes {
		if a.value.depth() > maxNesting {
			return nil, errTooDeep()
		}
	}
	return after, t.checkIndexKeys(after, true)
}

// units is what the write costs on its table, whether its condition held or not.
func (w *writeRequest) units(c change, failed bool) float64 {
	after := c.after
	if failed {
		switch w.kind {
		case writePut:
			after = w.item
		case writeUpdate:
			after, _ = w.updated(c.table, c.before)
		}
	}
	return writeUnits(max(c.before.bytes(), after.bytes()))
}

// commit applies changes as one and appends them to the journal, with extra
// records. Call it under the lock.
func (e *Engine) commit(changes []change, all *usages, extra ...engine.Write) engine.Ticket {
	now := e.clock()
	var records []engine.Write
	for i := range changes {
		c := &changes[i]
		if c.before == c.after {
			continue
		}
		c.apply(now, all.of(c.table))
		if e.journal != nil {
			records = append(records, itemRecord(c))
		}
	}
	if e.journal == nil {
		return nil
	}
	records = append(records, extra...)
	if len(records) == 0 {
		return e.journal.Barrier()
	}
	return e.journal.Append(records)
}

func (e *Engine) putItem(body []byte) (answer, error)    { return e.write(writePut, body) }
func (e *Engine) updateItem(body []byte) (answer, error) { return e.write(writeUpdate, body) }
func (e *Engine) deleteItem(body []byte) (answer, error) { return e.write(writeDelete, body) }

// write carries out a request for a single item.
func (e *Engine) write(k writeKind, body []byte) (answer, error) {
	w := &writeRequest{kind: k}
	if err := parse(e, body, (*reader).readWrite, w); err != nil {
		return answer{}, err
	}
	result, done, err := e.writePrepared(w)
	if err != nil {
		return result, err
	}
	result.body = w.respond(done, result.usages[0])
	return result, nil
}

// writePrepared checks a request that was read, and carries it out.
func (e *Engine) writePrepared(w *writeRequest) (answer, change, error) {
	if err := e.prepare(w); err != nil {
		return answer{}, change{}, err
	}
	return e.execute(w)
}

func (e *Engine) execute(w *writeRequest) (answer, change, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	result := answer{units: unitsWritten}
	t, err := e.table(w.table)
	if err != nil {
		return result, change{}, err
	}
	c, err := w.evaluate(t)
	if err != nil {
		if failure := asAPIError(err); failure.code == codeConditionFailed {
			result.usages.of(t).base = w.units(c, true)
		}
		return result, c, err
	}
	result.usages.of(t).base = w.units(c, false)
	result.ticket = e.commit([]change{c}, &result.usages)
	return result, c, nil
}

// respond writes the answer of a successful request.
func (w *writeRequest) respond(c change, u *usage) []byte {
	returned := w.returned(c)
	size := 64
	for _, a := range returned {
		size += 2*len(a.name) + 2*a.value.size()
	}
	out := make([]byte, 0, size)
	out = append(out, '{')
	if len(returned) > 0 {
		out = appendName(out, "Attributes")
		out = appendAttributes(out, returned)
	}
	if mode := capacityMode(w.capacity.value); mode.wanted() {
		out = appendName(out, "ConsumedCapacity")
		out = appendCapacity(out, u, mode, "")
	}
	return append(out, '}')
}

// returned picks the attributes that ReturnValues asks for.
func (w *writeRequest) returned(c change) []attribute {
	from := c.before
	switch w.returnValues.value {
	case "", "NONE":
		return nil
	case "ALL_NEW", "UPDATED_NEW":
		from = c.after
	}
	if from == nil {
		return nil
	}
	if w.returnValues.value == "ALL_OLD" || w.returnValues.value == "ALL_NEW" {
		return from.attributes
	}
	if w.boundUpdate == nil {
		return nil
	}
	var paths []path
	for _, a := range w.boundUpdate.actions {
		paths = append(paths, a.path)
	}
	return w.boundUpdate.selectPaths(paths).of(from.attributes)
}
