package dynamo

import (
	"encoding/binary"
	"strconv"
	"time"
)

// maxPageSize is the limit of what Query and Scan read for one page.
const maxPageSize = 1 << 20

// maxSegments is the limit of a parallel scan.
const maxSegments = 1_000_000

// A pageRequest is a Query or a Scan.
type pageRequest struct {
	scan         bool
	table        optional[string]
	index        optional[string]
	keyCondition optional[string]
	filter       optional[string]
	projection   optional[string]
	placeholders placeholders
	startKey     []attribute
	hasStart     bool
	limit        optional[int]
	segment      optional[int]
	segments     optional[int]
	consistent   optional[bool]
	forward      optional[bool]
	selects      optional[string]
	capacity     optional[string]
	legacy       string

	boundKeys       *bound
	boundFilter     *bound
	boundProjection *bound
	selection       *selection
}

func (r *reader) readPage(q *pageRequest) error {
	return r.object(func(name []byte) error {
		switch string(name) {
		case "TableName":
			return r.optionalText(&q.table)
		case "IndexName":
			return r.optionalText(&q.index)
		case "KeyConditionExpression":
			return r.optionalText(&q.keyCondition)
		case "FilterExpression":
			return r.optionalText(&q.filter)
		case "ProjectionExpression":
			return r.optionalText(&q.projection)
		case "ExpressionAttributeNames":
			return r.readNames(&q.placeholders)
		case "ExpressionAttributeValues":
			return r.readValues(&q.placeholders)
		case "ExclusiveStartKey":
			if r.null() {
				return nil
			}
			key, err := r.attributes(0)
			q.startKey, q.hasStart = key, true
			return err
		case "Limit":
			return r.optionalInt(&q.limit)
		case "Segment":
			return r.optionalInt(&q.segment)
		case "TotalSegments":
			return r.optionalInt(&q.segments)
		case "ConsistentRead":
			return r.optionalBool(&q.consistent)
		case "ScanIndexForward":
			return r.optionalBool(&q.forward)
		case "Select":
			return r.optionalText(&q.selects)
		case "ReturnConsumedCapacity":
			return r.optionalText(&q.capacity)
		case "KeyConditions", "QueryFilter", "ScanFilter", "ConditionalOperator", "AttributesToGet":
			return r.legacyParameter(string(name), &q.legacy)
		}
		return r.skip()
	})
}

const (
	selectAll       = "ALL_ATTRIBUTES"
	selectProjected = "ALL_PROJECTED_ATTRIBUTES"
	selectSpecific  = "SPECIFIC_ATTRIBUTES"
	selectCount     = "COUNT"
)

// preparePage checks a request as far as that goes without its table.
func (e *Engine) preparePage(q *pageRequest) error {
	if !q.table.set {
		return missingParameter("tableName")
	}
	if err := checkEnum(q.selects, "select", "SPECIFIC_ATTRIBUTES", "COUNT", "ALL_ATTRIBUTES", "ALL_PROJECTED_ATTRIBUTES"); err != nil {
		return err
	}
	if err := checkCapacityMode(q.capacity); err != nil {
		return err
	}
	if q.limit.set && q.limit.value < 1 {
		return constraintError(q.limit.value, "limit", "Member must have value greater than or equal to 1")
	}
	if q.legacy != "" {
		return errLegacy(q.legacy)
	}
	if err := q.checkSegments(); err != nil {
		return err
	}
	if err := q.checkSelect(); err != nil {
		return err
	}
	return e.bindPage(q)
}

func (q *pageRequest) checkSegments() error {
	switch {
	case !q.scan || !q.segment.set && !q.segments.set:
		return nil
	case q.segments.set && (q.segments.value < 1 || q.segments.value > maxSegments):
		return constraintError(q.segments.value, "totalSegments", "Member must have value between 1 and 1000000")
	case q.segment.set && (q.segment.value < 0 || q.segment.value >= maxSegments):
		return constraintError(q.segment.value, "segment", "Member must have value between 0 and 999999")
	case !q.segments.set:
		return validationError("The TotalSegments parameter is required but was not present in the request when Segment parameter is present")
	case !q.segment.set:
		return validationError("The Segment parameter is required but was not present in the request when parameter TotalSegments is present")
	case q.segment.value >= q.segments.value:
		return validationError("The Segment parameter is zero-based and must be less than parameter TotalSegments: Segment: %d is not less than TotalSegments: %d", q.segment.value, q.segments.value)
	}
	return nil
}

func (q *pageRequest) checkSelect() error {
	switch s := q.selects.value; {
	case s == selectProjected && !q.index.set:
		return validationError("ALL_PROJECTED_ATTRIBUTES can be used only when Querying using an IndexName")
	case s == selectSpecific && !q.projection.set:
		return validationError("Must specify the AttributesToGet or ProjectionExpression when choosing to get SPECIFIC_ATTRIBUTES")
	case q.projection.set && s == selectCount:
		return validationError("Cannot specify the ProjectionExpression when choosing to get only the Count")
	case q.projection.set && (s == selectAll || s == selectProjected):
		return validationError("Cannot specify the ProjectionExpression when choosing to get %s", s)
	}
	return nil
}

func (e *Engine) bindPage(q *pageRequest) error {
	in := &q.placeholders
	if err := in.checkSyntax(); err != nil {
		return err
	}
	if !q.scan && !q.keyCondition.set {
		return validationError("Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.")
	}
	var err error
	if !q.scan {
		if q.boundKeys, err = e.bind(keyConditionExpression, q.keyCondition, in); err != nil {
			return err
		}
	}
	if q.boundFilter, err = e.bind(filterExpression, q.filter, in); err != nil {
		return err
	}
	if q.boundProjection, err = e.bind(projectionExpression, q.projection, in); err != nil {
		return err
	}
	expressions := 0
	for _, b := range []*bound{q.boundKeys, q.boundFilter, q.boundProjection} {
		if b != nil {
			expressions++
		}
	}
	if q.boundProjection != nil {
		q.selection = q.boundProjection.selectPaths(q.boundProjection.paths)
	}
	return in.checkUsed(expressions, "FilterExpression is null")
}

// A page is what a Query or Scan read.
type page struct {
	items   []*item
	count   int
	scanned int
	last    []attribute // LastEvaluatedKey; nil at the end
}

func (e *Engine) query(body []byte) (answer, error) { return e.page(&pageRequest{}, body) }
func (e *Engine) scan(body []byte) (answer, error)  { return e.page(&pageRequest{scan: true}, body) }

func (e *Engine) page(q *pageRequest, body []byte) (answer, error) {
	if err := parse(e, body, (*reader).readPage, q); err != nil {
		return answer{}, err
	}
	result, read, err := e.readPrepared(q)
	if err != nil {
		return result, err
	}
	result.body = q.respond(read, result.usages)
	return result, nil
}

// readPrepared checks a request that was read, and carries it out.
func (e *Engine) readPrepared(q *pageRequest) (answer, page, error) {
	if err := e.preparePage(q); err != nil {
		return answer{}, page{}, err
	}
	e.settleIndex(q.table.value, q.index.value)
	return e.readPage(q)
}

// settleIndex lets lagged changes of an index take effect that are due.
func (e *Engine) settleIndex(tableName, indexName string) {
	if indexName == "" {
		return
	}
	now := e.clock()
	e.mu.RLock()
	x := e.findIndex(tableName, indexName)
	due := x != nil && x.due(now)
	e.mu.RUnlock()
	if !due {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.findIndex(tableName, indexName); x != nil {
		x.settle(now)
	}
}

func (e *Engine) findIndex(tableName, indexName string) *index {
	t := e.tables[tableName]
	if t == nil {
		return nil
	}
	return t.index(indexName)
}

func (e *Engine) readPage(q *pageRequest) (answer, page, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	t, err := e.table(q.table)
	if err != nil {
		return answer{}, page{}, err
	}
	s := &source{request: q, table: t, keys: t.keys, rows: t.rows}
	if q.index.set {
		if err := s.useIndex(); err != nil {
			return answer{}, page{}, err
		}
	}
	if err := s.locate(); err != nil {
		return answer{}, page{}, err
	}
	result := answer{units: unitsRead, ticket: e.barrier()}
	read := s.read(result.usages.of(t))
	return result, read, nil
}

// A source is the table or index that a page is read from, with the range.
type source struct {
	request *pageRequest
	table   *table
	index   *index // nil for the table itself
	keys    keySchema
	rows    *rows
	span    keyRange
	// fetch is set when a local index is read for attributes that it does not
	// project: each entry then costs a read of the table.
	fetch bool
}

func (s *source) useIndex() error {
	q := s.request
	x := s.table.index(q.index.value)
	if x == nil {
		return validationError("The table does not have the specified index: %s", q.index.value)
	}
	if !x.local && q.consistent.value {
		return validationError("Consistent reads are not supported on global secondary indexes")
	}
	s.index, s.keys, s.rows = x, x.keys, x.entries
	if x.everything {
		return nil
	}
	if q.selects.value == selectAll {
		if !x.local {
			return invalidParameter("Select type ALL_ATTRIBUTES is not supported for global secondary index %s because its projection type is not ALL", x.name)
		}
		s.fetch = true
	}
	return s.checkProjected()
}

// checkProjected looks for attributes that the index does not have: a local
// index gets them from the table, a global one cannot.
func (s *source) checkProjected() error {
	missing := func(name string) error {
		if s.index.projects(name) {
			return nil
		}
		if !s.index.local {
			return invalidParameter("Global secondary index %s does not project [%s]", s.index.name, name)
		}
		s.fetch = true
		return nil
	}
	if b := s.request.boundProjection; b != nil {
		for _, p := range b.paths {
			if err := missing(b.head(p)); err != nil {
				return err
			}
		}
	}
	if b := s.request.boundFilter; b != nil {
		return b.heads(b.root, missing)
	}
	return nil
}

// locate turns conditions, segment and start key into a range of the tree.
func (s *source) locate() error {
	q := s.request
	var condition *keyCondition
	if q.scan {
		s.span = segmentRange(q.segment.value, max(1, q.segments.value))
	} else {
		var err error
		if condition, err = q.boundKeys.keyCondition(s.keys); err != nil {
			return err
		}
		if err := s.checkFilter(); err != nil {
			return err
		}
		s.span = condition.keyRange()
	}
	if !q.hasStart {
		return nil
	}
	return s.startAfter(condition)
}

// checkFilter refuses a Query's filter on the keys that it queries by.
func (s *source) checkFilter() error {
	b := s.request.boundFilter
	if b == nil {
		return nil
	}
	return b.heads(b.root, func(name string) error {
		if s.keys.has(name) {
			return validationError("Filter Expression can only contain non-primary key attributes: Primary key attribute: %s", name)
		}
		return nil
	})
}

// segmentRange is the part of a tree that one segment of a parallel scan walks:
// an equal share of the partitions' hashes.
func segmentRange(segment, segments int) keyRange {
	edge := func(n int) string {
		at := uint64(n) << 32 / uint64(segments)
		if n == 0 || at>>32 > 0 {
			return ""
		}
		return string(binary.BigEndian.AppendUint32(nil, uint32(at)))
	}
	return keyRange{first: edge(segment), end: edge(segment + 1)}
}

// startAfter narrows the range to what comes after the start key. The key must
// be one that the request could have returned; its item need not exist.
func (s *source) startAfter(condition *keyCondition) error {
	key := s.request.startKey
	if err := s.checkStartKey(key); err != nil {
		return err
	}
	at := s.table.keys.treeKey(key)
	if s.index != nil {
		at = append(s.keys.treeKey(key), at...)
	}
	if condition != nil {
		if partition, _ := findAttribute(key, s.keys.partition.name); !partition.equal(condition.partition) {
			return validationError("The provided starting key is outside query boundaries based on provided conditions")
		}
		if sort, ok := findAttribute(key, s.keys.sort.name); ok && !condition.matches(sort) {
			return validationError("The provided starting key does not match the range key predicate")
		}
	} else if !s.span.contains(string(at)) {
		return validationError("The provided starting key is invalid: Invalid ExclusiveStartKey. Please use ExclusiveStartKey with correct Segment. TotalSegments: %d Segment: %d", s.request.segments.value, s.request.segment.value)
	}
	if s.backwards() {
		s.span.end = string(at)
	} else {
		s.span.first = string(append(at, 0))
	}
	return nil
}

func (s *source) checkStartKey(key []attribute) error {
	demanded := 0
	for _, a := range key {
		if s.table.keys.has(a.name) || s.keys.has(a.name) {
			demanded++
		}
	}
	expected := s.table.keys.size()
	_ = s.keys.each(func(a keyAttribute, _ int) error {
		if !s.table.keys.has(a.name) {
			expected++
		}
		return nil
	})
	if demanded != expected || len(key) != expected {
		return validationError("The provided starting key is invalid")
	}
	for _, keys := range []keySchema{s.table.keys, s.keys} {
		err := keys.each(func(a keyAttribute, limit int) error {
			v, _ := findAttribute(key, a.name)
			if v.kind != a.kind {
				return errKeySchema()
			}
			return a.checkValue(v, limit)
		})
		if err != nil {
			return validationError("The provided starting key is invalid: %s", asAPIError(err).message)
		}
	}
	return nil
}

func (s *source) backwards() bool {
	return !s.request.scan && s.request.forward.set && !s.request.forward.value
}

// read walks the range until the page is full.
func (s *source) read(u *usage) page {
	q := s.request
	var result page
	var last row
	var passing item // what a filter looks at
	size, fetched := 0, 0.0
	full := false
	s.walk(func(r row) bool {
		if q.limit.set && result.scanned == q.limit.value || result.scanned > 0 && size+r.size > maxPageSize {
			full = true
			return false
		}
		result.scanned++
		size += r.size
		last = r
		counted := q.selects.value == selectCount
		entry := &passing
		switch {
		case counted && q.boundFilter == nil && !s.fetch:
			result.count++
			return true
		case q.boundFilter == nil || s.fetch:
			entry = r.item()
		default:
			r.itemIn(entry)
		}
		if s.fetch {
			entry, _ = s.table.find(s.table.keys.keyOf(entry))
			fetched += readUnits(entry.bytes(), q.consistent.value)
		}
		if q.boundFilter != nil && !q.boundFilter.holds(q.boundFilter.root, entry) {
			return true
		}
		result.count++
		if counted {
			return true
		}
		if entry == &passing {
			entry = r.item()
		}
		result.items = append(result.items, entry)
		return true
	})
	// AWS does not look beyond the limit, so a page that just reaches it has a
	// LastEvaluatedKey even when nothing follows.
	if full || q.limit.set && result.scanned == q.limit.value {
		result.last = s.lastKey(last.item())
	}
	units := readUnits(size, q.consistent.value)
	if s.index != nil {
		u.addIndex(s.index, units)
		u.base += fetched
	} else {
		u.base += units
	}
	return result
}

func (s *source) lastKey(last *item) []attribute {
	key := make([]attribute, 0, 4)
	for _, a := range last.attributes {
		if s.table.keys.has(a.name) || s.keys.has(a.name) {
			key = append(key, a)
		}
	}
	return key
}

// walk calls fn with the entries of the range in order until fn stops it.
func (s *source) walk(fn func(r row) bool) {
	if !s.backwards() {
		s.rows.Ascend(s.span.first, func(key string, r row) bool {
			if s.span.end != "" && key >= s.span.end {
				return false
			}
			return fn(r)
		})
		return
	}
	down := func(key string, r row) bool {
		if s.span.end != "" && key >= s.span.end {
			return true // the pivot itself is outside of the range
		}
		return key >= s.span.first && fn(r)
	}
	if s.span.end == "" {
		s.rows.Reverse(down)
	} else {
		s.rows.Descend(s.span.end, down)
	}
}

// respond writes the answer.
func (q *pageRequest) respond(read page, all usages) []byte {
	size := 128
	for _, it := range read.items {
		size += encodedSize(it)
	}
	out := make([]byte, 0, size)
	out = append(out, '{')
	if q.selects.value != selectCount {
		out = appendName(out, "Items")
		out = append(out, '[')
		for i, it := range read.items {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendAttributes(out, q.selection.of(it.attributes))
		}
		out = append(out, ']')
	}
	out = appendName(out, "Count")
	out = strconv.AppendInt(out, int64(read.count), 10)
	out = appendName(out, "ScannedCount")
	out = strconv.AppendInt(out, int64(read.scanned), 10)
	if read.last != nil {
		out = appendName(out, "LastEvaluatedKey")
		out = appendAttributes(out, read.last)
	}
	if mode := capacityMode(q.capacity.value); mode.wanted() {
		out = appendName(out, "ConsumedCapacity")
		out = appendCapacity(out, all[0], mode, "")
	}
	return append(out, '}')
}

// SetIndexLag makes eventually consistent reads of a global secondary index
// see the state of d ago by the engine's clock; 0 makes changes visible at
// once again, those held back included. Reads of a local index and of the
// table never lag. The lag does not outlive the process.
func (e *Engine) SetIndexLag(tableName, indexName string, d time.Duration) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.findIndex(tableName, indexName)
	if x == nil || x.local {
		return validationError("table %s has no global secondary index %s", tableName, indexName)
	}
	x.lag = max(0, d)
	x.settle(e.clock())
	return nil
}
