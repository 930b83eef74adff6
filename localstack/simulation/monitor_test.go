package simulation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// An item is a stored item in plain Go: texts, int64s, bools, and what else there
// is as it is written. nil: there is none.
type item map[string]any

func (it item) text(name string) string { s, _ := it[name].(string); return s }

func (it item) number(name string) int64 { n, _ := it[name].(int64); return n }

func (it item) flag(name string) bool { b, _ := it[name].(bool); return b }

func (it item) has(name string) bool { _, there := it[name]; return there }

// A monitor sees every change in the order in which it took effect, with the call
// that made it.
type monitor struct {
	w       *world
	items   map[itemKey]item
	objects map[string][]byte
	changes int
	messageRules
	roleRules
	identityRules
}

func newMonitor(w *world) *monitor {
	return &monitor{w: w, items: map[itemKey]item{}, objects: map[string][]byte{},
		messageRules: newMessageRules(), roleRules: newRoleRules(), identityRules: identityRules{}}
}

// changed finds out what a request has changed.
func (w *world) changed(c *call, s sent) {
	if s.key != "" {
		w.monitor.seeObject(c, s.key)
		return
	}
	after, err := w.read(s.keys)
	if err != nil {
		w.t.Error(err)
		return
	}
	w.monitor.seeItems(c, s.keys, after)
}

func (m *monitor) seeItems(c *call, keys []itemKey, after map[itemKey]item) {
	before := map[itemKey]item{}
	for _, k := range keys {
		now := after[k]
		if reflect.DeepEqual(m.items[k], now) {
			continue
		}
		before[k] = m.items[k]
		m.w.trace.note(fmt.Sprint(k, sortedItem(now)))
		if now == nil {
			delete(m.items, k)
		} else {
			m.items[k] = now
		}
	}
	if len(before) == 0 {
		return
	}
	m.noteChange(c)
	for _, k := range keys { // only now: what changed in one write is judged together
		if was, changed := before[k]; changed {
			m.judge(c, k, was, after[k])
		}
	}
}

func (m *monitor) noteChange(c *call) {
	m.changes++
	for _, other := range m.w.calls {
		if other != c {
			other.crowded = true
		}
	}
}

func (m *monitor) seeObject(c *call, key string) {
	out, err := m.w.objects.GetObject(context.Background(), &s3.GetObjectInput{Bucket: aws.String(bucketName), Key: aws.String(key)})
	var missing *s3types.NoSuchKey
	if errors.As(err, &missing) {
		before, there := m.objects[key]
		delete(m.objects, key)
		if there {
			m.noteChange(c)
			m.judgeObject(c, key, before, nil)
		}
		return
	}
	if err != nil {
		m.w.t.Error(err)
		return
	}
	now, err := io.ReadAll(out.Body)
	if err != nil {
		m.w.t.Error(err)
	}
	before, there := m.objects[key]
	if there && string(before) == string(now) {
		return
	}
	m.objects[key] = now
	m.noteChange(c)
	m.w.trace.note(key + string(now))
	m.judgeObject(c, key, before, now)
}

// read returns items as they are stored.
func (w *world) read(keys []itemKey) (map[itemKey]item, error) {
	found := map[itemKey]item{}
	for chunk := range slices.Chunk(keys, 100) {
		var wanted []map[string]types.AttributeValue
		for _, k := range chunk {
			wanted = append(wanted, map[string]types.AttributeValue{
				"pk": &types.AttributeValueMemberS{Value: k.pk}, "sk": &types.AttributeValueMemberS{Value: k.sk},
			})
		}
		out, err := w.tables.BatchGetItem(context.Background(), &dynamodb.BatchGetItemInput{
			RequestItems: map[string]types.KeysAndAttributes{w.table: {Keys: wanted, ConsistentRead: aws.Bool(true)}},
		})
		if err != nil {
			return nil, fmt.Errorf("read what was changed: %w", err)
		}
		for _, stored := range out.Responses[w.table] {
			it := plain(stored)
			found[itemKey{it.text("pk"), it.text("sk")}] = it
		}
	}
	return found, nil
}

func plain(stored map[string]types.AttributeValue) item {
	it := item{}
	for name, value := range stored {
		it[name] = plainValue(value)
	}
	return it
}

func plainValue(value types.AttributeValue) any {
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberN:
		n, err := strconv.ParseInt(v.Value, 10, 64)
		if err != nil {
			return v.Value
		}
		return n
	case *types.AttributeValueMemberBOOL:
		return v.Value
	case *types.AttributeValueMemberL:
		values := make([]any, 0, len(v.Value))
		for _, element := range v.Value {
			values = append(values, plainValue(element))
		}
		return values
	case *types.AttributeValueMemberM:
		return plain(v.Value)
	case *types.AttributeValueMemberSS:
		return slices.Sorted(slices.Values(v.Value))
	case *types.AttributeValueMemberB:
		return string(v.Value)
	}
	return value
}

// sortedItem is an item as a text, the same for the same item.
func sortedItem(it item) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(it)) {
		fmt.Fprintf(&text, " %s=%v", name, it[name])
	}
	return text.String()
}

// judge holds a change against the rules of its kind of item.
func (m *monitor) judge(c *call, k itemKey, before, after item) {
	kind, id, _ := strings.Cut(k.pk, "#")
	switch kind {
	case "agent":
		m.judgeAgent(c, id, before, after)
	case "inbox", "fanout":
		m.judgeMessage(c, k, before, after)
	case "role":
		m.judgeRole(c, k, id, before, after)
	case "human":
		m.judgeHuman(c, id, before, after)
	case "job":
		m.judgeJob(c, id, before, after)
	case "events":
		m.judgeOnce(c, k, before, after)
	case "pipeline":
		m.judgeVersion(c, k, before, after)
	case "hub":
		m.judgeHub(c, k, before, after)
	case "answer":
		if after != nil && before.number("expires_ms") <= int64(m.w.instant())+slack {
			return // a question may be answered anew once its answer has expired
		}
		m.judgeOnce(c, k, before, after)
	case "idem":
		m.judgeOnce(c, k, before, after)
	}
}

// violatef names the call and the change.
func (m *monitor) violatef(c *call, k itemKey, before, after item, format string, args ...any) {
	m.w.violatef("%s (%s, %s) changed %s from%s to%s: %s", c.name, c.endpoint, c.instance.name, k, sortedItem(before), sortedItem(after), fmt.Sprintf(format, args...))
}

// agent returns the agent as it is stored now.
func (m *monitor) agent(id string) item { return m.items[itemKey{"agent#" + id, "agent"}] }

// mustHoldFence finds a change made under a fence that had passed.
func (m *monitor) mustHoldFence(c *call, agent string, k itemKey, before, after item) {
	if c.fence.agent != agent || agent == "" {
		return
	}
	current := m.agent(agent)
	if k.pk == "agent#"+agent {
		current = before // what the write met
	}
	if current.number("generation") != c.fence.generation || current.flag("finished") {
		m.violatef(c, k, before, after, "the fence is generation %d of %s, which stands at %d, finished %v",
			c.fence.generation, agent, current.number("generation"), current.flag("finished"))
	}
}

// judgeOnce finds a change of what is written once and never changed.
func (m *monitor) judgeOnce(c *call, k itemKey, before, after item) {
	if before != nil && (after == nil || !sameBut(before, after, "due_pk", "due_sk", "ttl")) {
		m.violatef(c, k, before, after, "what was written once was changed")
	}
}

func sameBut(a, b item, names ...string) bool {
	for _, it := range []item{a, b} {
		for name := range it {
			if !slices.Contains(names, name) && !reflect.DeepEqual(a[name], b[name]) {
				return false
			}
		}
	}
	return true
}

// judgeVersion finds a version that does not follow the one before.
func (m *monitor) judgeVersion(c *call, k itemKey, before, after item) {
	switch {
	case after == nil:
		m.violatef(c, k, before, after, "it is gone")
	case after.number("version") != before.number("version")+1:
		m.violatef(c, k, before, after, "its version does not follow")
	}
}

func (m *monitor) judgeAgent(c *call, id string, before, after item) {
	k := itemKey{"agent#" + id, "agent"}
	switch {
	case after == nil:
		m.violatef(c, k, before, after, "an agent is gone, and its generation with it")
		return
	case after.number("generation") < before.number("generation"):
		m.violatef(c, k, before, after, "its generation went back")
	case after.number("touched_us") < before.number("touched_us"):
		m.violatef(c, k, before, after, "a write that started earlier came after")
	}
	if before == nil || after.number("generation") != before.number("generation") {
		if c.endpoint != "POST /bridge/register" {
			m.violatef(c, k, before, after, "only a register makes a generation")
		}
		return
	}
	if before.flag("finished") && (!after.flag("finished") || after.text("presence") != "offline") {
		m.violatef(c, k, before, after, "a finished generation came back")
	}
	again := before.flag("finished") && sameBut(before, after, "touched_us", "write_id")
	if strings.Contains(c.endpoint, "bridge") && !again && !sameBut(before, after, "due_pk", "due_sk", "holds", "swept_id") {
		m.mustHoldFence(c, id, k, before, after)
	}
}
