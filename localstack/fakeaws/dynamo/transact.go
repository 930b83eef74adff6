package dynamo

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"drawbridge/localstack/fakeaws/engine"
)

// Limits of transactions.
const (
	maxTransactionItems = 100
	maxTransactionBytes = 4 << 20
	maxTokenSize        = 36
	reasonNone          = "None"
	reasonCondition     = "ConditionalCheckFailed"
	reasonValidation    = "ValidationError"
)

func errSameItem() *apiError {
	return validationError("Transaction request cannot include multiple operations on one item")
}

func errTransactionSize() *apiError {
	return validationError("Transaction payload size cannot exceed %d bytes", maxTransactionBytes)
}

func checkTransactionCount(present bool, n int) error {
	switch {
	case !present:
		return missingParameter("transactItems")
	case n == 0:
		return constraintError("[]", "transactItems", "Member must have length greater than or equal to 1")
	case n > maxTransactionItems:
		return constraintError(fmt.Sprintf("[%d members]", n), "transactItems", "Member must have length less than or equal to 100")
	}
	return nil
}

// canceled is the error of a transaction with the reasons of its actions.
func canceled(reasons []cancellationReason) *apiError {
	codes := make([]string, len(reasons))
	for i, r := range reasons {
		codes[i] = r.code
	}
	e := newError(codeCanceled, "Transaction cancelled, please refer cancellation reasons for specific reasons [%s]", joined(codes))
	e.reasons = reasons
	return e
}

// reasonOf turns an action's error into a reason; false for errors that
// concern the whole request.
func reasonOf(err error) (cancellationReason, bool) {
	switch failure := asAPIError(err); failure.code {
	case codeConditionFailed:
		return cancellationReason{code: reasonCondition, message: failure.message, item: failure.item}, true
	case codeValidation:
		return cancellationReason{code: reasonValidation, message: failure.message}, true
	}
	return cancellationReason{}, false
}

func noReasons(n int) []cancellationReason {
	return slices.Repeat([]cancellationReason{{code: reasonNone}}, n)
}

// A transaction is a TransactWriteItems.
type transaction struct {
	writes   []*writeRequest
	hasItems bool
	token    optional[string]
	capacity optional[string]
	metrics  optional[string]
}

var transactionMembers = map[string]writeKind{
	"Put": writePut, "Update": writeUpdate, "Delete": writeDelete, "ConditionCheck": writeCheck,
}

func (r *reader) readTransaction(tx *transaction) error {
	return r.object(func(name []byte) error {
		switch string(name) {
		case "TransactItems":
			if r.null() {
				return nil
			}
			tx.hasItems = true
			return r.array(func() error {
				w, err := r.readTransactionMember()
				tx.writes = append(tx.writes, w)
				return err
			})
		case "ClientRequestToken":
			return r.optionalText(&tx.token)
		case "ReturnConsumedCapacity":
			return r.optionalText(&tx.capacity)
		case "ReturnItemCollectionMetrics":
			return r.optionalText(&tx.metrics)
		}
		return r.skip()
	})
}

func (r *reader) readTransactionMember() (*writeRequest, error) {
	var w *writeRequest
	actions := 0
	err := r.object(func(name []byte) error {
		kind, known := transactionMembers[string(name)]
		if !known {
			return r.skip()
		}
		if r.null() {
			return nil
		}
		actions++
		w = &writeRequest{kind: kind}
		return r.readWrite(w)
	})
	if err == nil && actions != 1 {
		err = validationError("TransactItems can only contain one of Check, Put, Update or Delete")
	}
	return w, err
}

func (e *Engine) prepareTransaction(tx *transaction) error {
	if err := checkTransactionCount(tx.hasItems, len(tx.writes)); err != nil {
		return err
	}
	if tx.token.set && (len(tx.token.value) < 1 || len(tx.token.value) > maxTokenSize) {
		return constraintError(tx.token.value, "clientRequestToken", "Member must have length between 1 and 36")
	}
	if err := checkCapacityMode(tx.capacity); err != nil {
		return err
	}
	if err := checkEnum(tx.metrics, "returnItemCollectionMetrics", "SIZE", "NONE"); err != nil {
		return err
	}
	size := 0
	for i, w := range tx.writes {
		// These belong to requests for a single item only.
		w.returnValues, w.capacity, w.metrics = optional[string]{}, optional[string]{}, tx.metrics
		if w.kind == writeUpdate && !w.update.set {
			return missingParameter(fmt.Sprintf("transactItems.%d.member.update.updateExpression", i+1))
		}
		if err := e.prepare(w); err != nil {
			return err
		}
		size += newItem(w.attributes).size
		for _, v := range w.placeholders.values {
			size += v.value.size()
		}
	}
	if size > maxTransactionBytes {
		return errTransactionSize()
	}
	return nil
}

func (e *Engine) transactWriteItems(body []byte) (answer, error) {
	tx := &transaction{}
	if err := parse(e, body, (*reader).readTransaction, tx); err != nil {
		return answer{}, err
	}
	result, err := e.writeTransaction(tx)
	if err != nil {
		return result, err
	}
	out := []byte{'{'}
	if mode := capacityMode(tx.capacity.value); mode.wanted() {
		out = appendName(out, "ConsumedCapacity")
		out = appendCapacities(out, result.usages, mode, result.units.member())
	}
	result.body = append(out, '}')
	return result, nil
}

// writeTransaction checks a request that was read, and carries it out.
func (e *Engine) writeTransaction(tx *transaction) (answer, error) {
	if err := e.prepareTransaction(tx); err != nil {
		return answer{}, err
	}
	return e.executeTransaction(tx, tx.fingerprint())
}

// member is the name of the units in the answer of a transaction.
func (k unitKind) member() string {
	if k == unitsRead {
		return "ReadCapacityUnits"
	}
	return "WriteCapacityUnits"
}

func (e *Engine) executeTransaction(tx *transaction, mark fingerprint) (answer, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock()
	if tx.token.set {
		if known, ok := e.tokens.find(tx.token.value, now); ok {
			if known != mark {
				return answer{}, newError(codeTokenMismatch, "The request uses the same client token as a previous, but non-identical request")
			}
			return e.replay(tx)
		}
	}
	changes, err := e.locateAll(tx)
	if err != nil {
		return answer{}, err
	}
	result := answer{units: unitsWritten}
	if err := tx.complete(changes); err != nil {
		tx.bill(changes, &result.usages, true)
		return result, err
	}
	tx.bill(changes, &result.usages, false)
	var extra []engine.Write
	if tx.token.set {
		extra = e.tokens.add(tx.token.value, mark, now)
	}
	result.ticket = e.commit(changes, &result.usages, extra...)
	return result, nil
}

// locateAll finds the rows of all actions. As on AWS, the first action whose
// key or item is invalid cancels the transaction before any condition counts.
func (e *Engine) locateAll(tx *transaction) ([]change, error) {
	tables := make([]*table, len(tx.writes))
	for i, w := range tx.writes {
		var err error
		if tables[i], err = e.table(w.table); err != nil {
			return nil, err
		}
	}
	changes := make([]change, len(tx.writes))
	for i, w := range tx.writes {
		var err error
		if changes[i], err = w.locate(tables[i]); err == nil {
			continue
		}
		reason, ok := reasonOf(err)
		if !ok {
			return nil, err
		}
		reasons := noReasons(len(tx.writes))
		reasons[i] = reason
		return nil, canceled(reasons)
	}
	if hasDuplicates(changes) {
		return nil, errSameItem()
	}
	return changes, nil
}

// complete works the changes out; every action is looked at, so that every
// failed condition is reported.
func (tx *transaction) complete(changes []change) error {
	reasons := noReasons(len(changes))
	failed := false
	for i, w := range tx.writes {
		c, err := w.complete(changes[i])
		changes[i] = c
		if err == nil {
			continue
		}
		reason, ok := reasonOf(err)
		if !ok {
			return err
		}
		reasons[i], failed = reason, true
	}
	if failed {
		return canceled(reasons)
	}
	return nil
}

// bill adds twice the write units of every action; a cancelled transaction
// costs as much, without its indexes.
func (tx *transaction) bill(changes []change, all *usages, failed bool) {
	for i, w := range tx.writes {
		all.of(changes[i].table).base += 2 * w.units(changes[i], failed)
	}
}

// replay answers a transaction whose token was used before: it succeeds, does
// nothing and costs what reading the items costs.
func (e *Engine) replay(tx *transaction) (answer, error) {
	result := answer{units: unitsRead, ticket: e.barrier()}
	for _, w := range tx.writes {
		t, err := e.table(w.table)
		if err != nil {
			return answer{}, err
		}
		c, err := w.locate(t)
		if err != nil {
			return answer{}, err
		}
		result.usages.of(t).base += 2 * readUnits(c.before.bytes(), true)
	}
	return result, nil
}

// fingerprint condenses what makes two transactions the same request. The maps
// of a request have no order, so they are sorted.
func (tx *transaction) fingerprint() fingerprint {
	if !tx.token.set {
		return fingerprint{}
	}
	var all []byte
	for _, w := range tx.writes {
		all = append(all, byte(w.kind))
		for _, text := range []optional[string]{w.table, w.condition, w.update, w.onFailure} {
			all = appendRecordText(all, text.value)
		}
		all = appendRecordAttributes(all, w.attributes)
		in := &w.placeholders
		slices.SortFunc(in.names, func(a, b namePlaceholder) int { return strings.Compare(a.key, b.key) })
		for _, n := range in.names {
			all = appendRecordText(all, n.key)
			all = appendRecordText(all, n.name)
		}
		slices.SortFunc(in.values, func(a, b valuePlaceholder) int { return strings.Compare(a.key, b.key) })
		for _, v := range in.values {
			all = appendRecordText(all, v.key)
			all = appendRecordValue(all, v.value)
		}
	}
	sum := sha256.Sum256(all)
	return fingerprint(sum[:len(fingerprint{})])
}

// A transactionRead is a TransactGetItems.
type transactionRead struct {
	reads    []*readRequest
	hasItems bool
	capacity optional[string]
}

func (r *reader) readTransactionRead(tx *transactionRead) error {
	return r.object(func(name []byte) error {
		switch string(name) {
		case "TransactItems":
			if r.null() {
				return nil
			}
			tx.hasItems = true
			return r.array(func() error {
				g := &readRequest{}
				tx.reads = append(tx.reads, g)
				return r.object(func(name []byte) error {
					if string(name) != "Get" {
						return r.skip()
					}
					return r.readGet(g)
				})
			})
		case "ReturnConsumedCapacity":
			return r.optionalText(&tx.capacity)
		}
		return r.skip()
	})
}

func (e *Engine) transactGetItems(body []byte) (answer, error) {
	tx := &transactionRead{}
	if err := parse(e, body, (*reader).readTransactionRead, tx); err != nil {
		return answer{}, err
	}
	result, found, err := e.getTransaction(tx)
	if err != nil {
		return result, err
	}
	result.body = tx.respond(found, result.usages)
	return result, nil
}

// getTransaction checks a request that was read, and carries it out.
func (e *Engine) getTransaction(tx *transactionRead) (answer, []*item, error) {
	if err := checkTransactionCount(tx.hasItems, len(tx.reads)); err != nil {
		return answer{}, nil, err
	}
	if err := checkCapacityMode(tx.capacity); err != nil {
		return answer{}, nil, err
	}
	for _, g := range tx.reads {
		g.capacity = optional[string]{}
		if err := e.prepareGet(g); err != nil {
			return answer{}, nil, err
		}
	}
	return e.lookUpTransaction(tx)
}

func (e *Engine) lookUpTransaction(tx *transactionRead) (answer, []*item, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	result := answer{units: unitsRead, ticket: e.barrier()}
	changes := make([]change, len(tx.reads))
	found := make([]*item, len(tx.reads))
	size := 0
	for i, g := range tx.reads {
		t, err := e.table(g.table)
		if err != nil {
			return answer{}, nil, err
		}
		if found[i], err = t.find(g.key); err != nil {
			reasons := noReasons(len(tx.reads))
			reasons[i], _ = reasonOf(err)
			return answer{}, nil, canceled(reasons)
		}
		changes[i] = change{table: t, key: string(t.keys.treeKey(g.key))}
		size += found[i].bytes()
		result.usages.of(t).base += 2 * readUnits(found[i].bytes(), true)
	}
	switch {
	case hasDuplicates(changes):
		return answer{}, nil, errSameItem()
	case size > maxTransactionBytes:
		return answer{}, nil, errTransactionSize()
	}
	return result, found, nil
}

func (tx *transactionRead) respond(found []*item, all usages) []byte {
	size := 128
	for _, it := range found {
		size += 16 + encodedSize(it)
	}
	out := make([]byte, 0, size)
	out = append(out, '{')
	out = appendName(out, "Responses")
	out = append(out, '[')
	for i, it := range found {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, '{')
		if it != nil {
			out = appendName(out, "Item")
			out = appendAttributes(out, tx.reads[i].selection.of(it.attributes))
		}
		out = append(out, '}')
	}
	out = append(out, ']')
	if mode := capacityMode(tx.capacity.value); mode.wanted() {
		out = appendName(out, "ConsumedCapacity")
		out = appendCapacities(out, all, mode, unitsRead.member())
	}
	return append(out, '}')
}
