package dynamo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"drawbridge/localstack/fakeaws/engine"
)

// oldestExpiry is how far in the past an expiry may lie: AWS leaves items
// alone whose TTL is more than five years ago, taking it for a mistake.
const oldestExpiry = 5 * 365 * 24 * time.Hour

type timeToLiveInput struct {
	TableName               *string
	TimeToLiveSpecification *timeToLiveSpecification
}

type timeToLiveSpecification struct {
	AttributeName *string
	Enabled       *bool
}

func (e *Engine) updateTimeToLive(body []byte) (answer, error) {
	in := &timeToLiveInput{}
	if err := readAdmin(body, in); err != nil {
		return answer{}, err
	}
	s := in.TimeToLiveSpecification
	switch {
	case in.TableName == nil:
		return answer{}, missingParameter("tableName")
	case s == nil:
		return answer{}, missingParameter("timeToLiveSpecification")
	case s.Enabled == nil:
		return answer{}, missingParameter("timeToLiveSpecification.enabled")
	case s.AttributeName == nil:
		return answer{}, missingParameter("timeToLiveSpecification.attributeName")
	}
	if err := checkKeyName(*s.AttributeName, "timeToLiveSpecification.attributeName"); err != nil {
		return answer{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t, err := e.describedTable(*in.TableName)
	if err != nil {
		return answer{}, err
	}
	current := t.definition.TTLAttribute
	changed := *t.definition
	switch {
	case *s.Enabled && current != "":
		return answer{}, validationError("TimeToLive is already enabled")
	case *s.Enabled:
		changed.TTLAttribute = *s.AttributeName
	case current == "":
		return answer{}, validationError("TimeToLive is already disabled")
	case current != *s.AttributeName:
		return answer{}, validationError("TimeToLive is active on a different AttributeName: current AttributeName is %s", current)
	default:
		changed.TTLAttribute = ""
	}
	ticket, err := e.redefine(t, &changed)
	if err != nil {
		return answer{}, err
	}
	return answered(map[string]any{"TimeToLiveSpecification": s}, ticket)
}

func (e *Engine) describeTimeToLive(body []byte) (answer, error) {
	in := &tableNameInput{}
	if err := readAdmin(body, in); err != nil {
		return answer{}, err
	}
	if in.TableName == nil {
		return answer{}, missingParameter("tableName")
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	t, err := e.describedTable(*in.TableName)
	if err != nil {
		return answer{}, err
	}
	description := map[string]string{"TimeToLiveStatus": "DISABLED"}
	if name := t.definition.TTLAttribute; name != "" {
		description = map[string]string{"TimeToLiveStatus": "ENABLED", "AttributeName": name}
	}
	return answered(map[string]any{"TimeToLiveDescription": description}, e.barrier())
}

// A step of a collection holds the lock while it looks at so many items, and while
// it deletes so many: requests wait no longer than for some of their own kind.
const (
	stepLooks    = 4096
	stepRemovals = 256
)

// CollectExpired deletes the items of a table whose TTL attribute, a number of
// seconds since 1970, lies in the past by the engine's clock, and returns how
// many. Nothing else ever deletes them. It returns when the deletions are
// durable; it costs a walk over the table, in steps under the lock.
func (e *Engine) CollectExpired(tableName string) (int, error) {
	e.mu.RLock()
	known := e.tables[tableName] != nil
	e.mu.RUnlock()
	if !known {
		return 0, namedTableNotFound(tableName)
	}
	total := 0
	for from, more := "", true; more; {
		var keys []string
		keys, from, more = e.expiredKeys(tableName, from)
		for some := range slices.Chunk(keys, stepRemovals) {
			count, ticket := e.removeExpired(tableName, some)
			if ticket != nil {
				if err := ticket.Wait(); err != nil {
					return total, fmt.Errorf("delete expired items: %w", err)
				}
			}
			total += count
		}
	}
	return total, nil
}

// expiredKeys looks at some items from a key on and returns those that have
// expired, and where to go on.
func (e *Engine) expiredKeys(tableName, from string) (keys []string, next string, more bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	t := e.tables[tableName]
	if t == nil || t.definition.TTLAttribute == "" {
		return nil, "", false
	}
	now := e.clock()
	looks := 0
	t.rows.Ascend(from, func(key string, r row) bool {
		if looks == stepLooks {
			next, more = key, true
			return false
		}
		looks++
		if t.hasExpired(r, now) {
			keys = append(keys, key)
		}
		return true
	})
	return keys, next, more
}

// removeExpired deletes what still stands and has expired. TTL deletions are free of
// write units.
func (e *Engine) removeExpired(tableName string, keys []string) (int, engine.Ticket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.tables[tableName]
	if t == nil {
		return 0, nil
	}
	now := e.clock()
	var changes []change
	for _, key := range keys {
		if r, ok := t.rows.Get(key); ok && t.hasExpired(r, now) {
			changes = append(changes, change{table: t, key: key, before: r.item()})
		}
	}
	return len(changes), e.commit(changes, &usages{})
}

func (t *table) hasExpired(r row, now time.Time) bool {
	if t.definition.TTLAttribute == "" {
		return false
	}
	v, ok := r.get(t.definition.TTLAttribute)
	return ok && expired(v, now)
}

// CollectAllExpired is CollectExpired for every table, one after the other. When
// the context ends it leaves the tables that are left.
func (e *Engine) CollectAllExpired(ctx context.Context) (int, error) {
	e.mu.RLock()
	names := slices.Sorted(maps.Keys(e.tables))
	e.mu.RUnlock()
	total := 0
	for _, name := range names {
		if ctx.Err() != nil {
			return total, context.Cause(ctx)
		}
		count, err := e.CollectExpired(name)
		total += count
		var refusal *apiError
		if errors.As(err, &refusal) && refusal.code == codeNotFound {
			continue // deleted since the names were read
		}
		if err != nil {
			return total, fmt.Errorf("table %s: %w", name, err)
		}
	}
	return total, nil
}

func expired(v value, now time.Time) bool {
	if v.kind != kindNumber {
		return false
	}
	seconds, err := strconv.ParseFloat(v.text, 64)
	if err != nil || math.Abs(seconds) > math.MaxInt64/2 {
		return false
	}
	at := time.Unix(int64(math.Floor(seconds)), 0)
	return at.Before(now) && at.After(now.Add(-oldestExpiry))
}

// readAdmin reads a request that is not on the hot path.
func readAdmin(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return serializationError("Unable to parse the request: %s", err)
	}
	return nil
}

// answered makes an answer of a JSON document.
func answered(document any, ticket engine.Ticket) (answer, error) {
	body, err := json.Marshal(document)
	if err != nil {
		return answer{}, fmt.Errorf("encode answer: %w", err)
	}
	return answer{body: body, ticket: ticket}, nil
}
