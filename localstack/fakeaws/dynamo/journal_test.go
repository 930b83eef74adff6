package dynamo

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"drawbridge/localstack/fakeaws/engine"
)

// A recorder is a journal in memory whose tickets tell what they wait for.
type recorder struct {
	mu       sync.Mutex
	spaces   map[string]map[string][]byte
	appended int
	broken   error
}

func newRecorder() *recorder { return &recorder{spaces: map[string]map[string][]byte{}} }

type recorderTicket struct {
	journal *recorder
	upTo    int
}

func (t recorderTicket) Wait() error { return t.journal.broken }

func (j *recorder) Append(writes []engine.Write) engine.Ticket {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, w := range writes {
		space := j.spaces[w.Space]
		if space == nil {
			space = map[string][]byte{}
			j.spaces[w.Space] = space
		}
		if w.Value == nil {
			delete(space, w.Key)
		} else {
			space[w.Key] = w.Value
		}
	}
	j.appended++
	return recorderTicket{j, j.appended}
}

func (j *recorder) Barrier() engine.Ticket {
	j.mu.Lock()
	defer j.mu.Unlock()
	return recorderTicket{j, j.appended}
}

func (j *recorder) Load(space string, fn func(key string, value []byte) error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(j.spaces[space])) {
		scratch := slices.Clone(j.spaces[space][key])
		if err := fn(key, scratch); err != nil {
			return err
		}
		clear(scratch) // the value is only valid during the call
	}
	return nil
}

func (j *recorder) Read(space, key string) ([]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.spaces[space][key], nil
}

// contents writes an engine's state out for comparison.
func contents(e *Engine) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(e.tables)) {
		t := e.tables[name]
		record, err := tableRecord(t.definition)
		fmt.Fprintf(&out, "%s %s %v %d\n", name, record.Value, err, t.bytes)
		write := func(key string, r row) bool {
			it := r.item()
			fmt.Fprintf(&out, "%q %s %d\n", key, appendAttributes(nil, it.attributes), it.size)
			return true
		}
		t.rows.Scan(write)
		for _, x := range t.indexes {
			fmt.Fprintf(&out, "%s %d\n", x.name, x.bytes)
			x.entries.Scan(write)
		}
	}
	return out.String()
}

func TestAReopenedEngineHasEverything(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 4))
	journal := newRecorder()
	f := openFixture(t, journal)
	f.createMain()
	f.do("CreateTable", `{"TableName": "gone", `+simpleTable+`}`)
	f.do("PutItem", `{"TableName": "gone", "Item": {"pk": {"S": "a"}}}`)
	f.do("CreateTable", `{"TableName": "kept", `+simpleTable+`}`)
	f.do("DeleteTable", `{"TableName": "gone"}`)
	f.do("CreateTable", `{"TableName": "gone", `+simpleTable+`}`)
	f.do("UpdateTimeToLive", `{"TableName": "main", "TimeToLiveSpecification": {"AttributeName": "ttl", "Enabled": true}}`)
	const all = `"s": {"S": "h\u00e9"}, "b": {"B": "AAH/"}, "yes": {"BOOL": true}, "no": {"BOOL": false}, "nil": {"NULL": true}, "m": {"M": {"x": {"M": {}}}}, "l": {"L": [{"N": "-1.5"}, {"L": []}]}, "ss": {"SS": ["a", "b"]}, "ns": {"NS": ["-1", "2"]}, "bs": {"BS": ["AQ=="]}`
	f.put("p", "all", all)
	for i := range 2000 {
		f.do(randomWrite(r))
		if i == 1000 {
			f.do("UpdateTable", `{"TableName": "main", "AttributeDefinitions": [{"AttributeName": "other", "AttributeType": "N"}], "GlobalSecondaryIndexUpdates": [
				{"Create": {"IndexName": "late", "KeySchema": [{"AttributeName": "other", "KeyType": "HASH"}], "Projection": {"ProjectionType": "KEYS_ONLY"}}}]}`)
		}
	}
	again := openFixture(t, journal)
	got, want := strings.Split(contents(again.Engine), "\n"), strings.Split(contents(f.Engine), "\n")
	if len(got) != len(want) {
		t.Fatalf("seed %d: %d rows and entries after reopening, %d before", seed, len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("seed %d: after reopening:\n%s\nbefore:\n%s", seed, got[i], want[i])
		}
	}
	again.checkIndexes()
	again.do("CreateTable", `{"TableName": "fresh", `+simpleTable+`}`)
	ids := map[uint32]string{}
	for name, table := range again.tables {
		if other, taken := ids[table.definition.ID]; taken {
			t.Errorf("%s and %s share a table id", name, other)
		}
		ids[table.definition.ID] = name
	}
}

func TestATokenOutlivesTheProcess(t *testing.T) {
	journal := newRecorder()
	f := openFixture(t, journal)
	f.createMain()
	add := `{"ClientRequestToken": "token", ` + tx(`{"Update": {"TableName": "main", "Key": ` + mainItem("t", "n", "") + `, "UpdateExpression": "ADD v :n", "ExpressionAttributeValues": {":n": {"N": "1"}}}}`)[1:]
	f.do("TransactWriteItems", add)
	again := openFixture(t, journal)
	again.do("TransactWriteItems", add)
	again.refuse("TransactWriteItems", strings.Replace(add, `{"N": "1"}`, `{"N": "2"}`, 1), codeTokenMismatch, "")
	sameJSON(t, "applied once", again.get("t", "n"), mainItem("t", "n", `"v": {"N": "1"}`))
	again.pass(11 * time.Minute)
	again.do("TransactWriteItems", strings.Replace(add, `"token"`, `"next"`, 1))
	if n := len(journal.spaces[tokenSpace]); n != 1 {
		t.Errorf("%d token records, want that of the last transaction", n)
	}
}

func TestOneRequestIsOneAtomicRecordAndReadsWaitForWhatTheySaw(t *testing.T) {
	journal := newRecorder()
	f := openFixture(t, journal)
	f.createMain()
	f.put("p", "1", "")
	for _, c := range []struct {
		op, body string
		appends  int
	}{
		{"PutItem", `{"TableName": "main", "Item": ` + mainItem("p", "2", `"g": {"S": "g"}, "n": {"N": "1"}`) + `}`, 1},
		{"TransactWriteItems", `{"ClientRequestToken": "t", ` + tx(txPut("a", "", ""), txPut("b", "", ""))[1:], 1},
		{"BatchWriteItem", batchOf(batchPut("1", ""), batchPut("2", "")), 1},
		{"GetItem", `{"TableName": "main", "Key": ` + mainItem("p", "1", "") + `}`, 0},
		{"Query", `{"TableName": "main", "KeyConditionExpression": "pk = :p", "ExpressionAttributeValues": {":p": {"S": "p"}}}`, 0},
		{"BatchGetItem", `{"RequestItems": {"main": {"Keys": [` + mainItem("p", "1", "") + `]}}}`, 0},
		{"TransactGetItems", tx(`{"Get": {"TableName": "main", "Key": ` + mainItem("p", "1", "") + `}}`), 0},
		{"DeleteItem", `{"TableName": "main", "Key": ` + mainItem("p", "absent", "") + `}`, 0},
		{"PutItem", `{"TableName": "main", "Item": ` + mainItem("p", "1", "") + mustNotExist + `}`, 0},
		{"TransactWriteItems", tx(txPut("a", "", mustNotExist)), 0},
		{"DescribeTable", `{"TableName": "main"}`, 0},
		{"ListTables", `{}`, 0},
	} {
		before := journal.appended
		response := f.send(c.op, c.body)
		ticket, ok := response.Durable.(recorderTicket)
		if !ok || ticket.upTo != journal.appended || journal.appended-before != c.appends {
			t.Errorf("%s: ticket %v, %d records appended, want %d", c.op, response.Durable, journal.appended-before, c.appends)
		}
	}
	if memory := newFixture(t); memory.send("ListTables", `{}`).Durable != nil {
		t.Error("an engine without journal has something to wait for")
	}
}

func TestCollectingExpiredItemsWaitsForTheJournal(t *testing.T) {
	journal := newRecorder()
	f := openFixture(t, journal)
	f.createMain()
	f.do("UpdateTimeToLive", `{"TableName": "main", "TimeToLiveSpecification": {"AttributeName": "ttl", "Enabled": true}}`)
	f.put("p", "1", `"ttl": {"N": "1799999999"}`)
	journal.broken = errors.New("disk full")
	if _, err := f.CollectExpired("main"); !errors.Is(err, journal.broken) {
		t.Errorf("error %v", err)
	}
}

func TestDamagedRecordsAreReported(t *testing.T) {
	journal := newRecorder()
	f := openFixture(t, journal)
	f.createMain()
	f.put("p", "1", `"m": {"M": {"x": {"L": [{"SS": ["a", "b"]}, {"BOOL": true}]}}}`)
	items := journal.spaces[itemSpace]
	key := slices.Collect(maps.Keys(items))[0]
	whole := items[key]
	for n := range whole {
		items[key] = whole[:n]
		if _, err := Open(Options{Journal: journal}); err == nil {
			t.Fatalf("a record cut to %d of %d bytes was read", n, len(whole))
		}
	}
	items[key] = append(slices.Clone(whole), 0)
	if _, err := Open(Options{Journal: journal}); err == nil {
		t.Error("a record with a byte too much was read")
	}
	items[key] = whole
	items["\x00\x00\x00\x63x"] = whole
	if _, err := Open(Options{Journal: journal}); err == nil || !strings.Contains(err.Error(), "unknown table 99") {
		t.Errorf("a record without table: %v", err)
	}
}

// BenchmarkOpenWith100000Items is the start of a durable engine; the target is
// well below two seconds.
func BenchmarkOpenWith100000Items(b *testing.B) {
	journal := newRecorder()
	f := openFixture(b, journal)
	f.createMain()
	for i := range 4000 {
		var requests []string
		for k := range 25 {
			requests = append(requests, `{"PutRequest": {"Item": `+strings.Replace(benchmarkItem(25*i+k), `"bench"`, fmt.Sprintf(`"bench-%d"`, i%500), 1)+`}}`)
		}
		f.do("BatchWriteItem", batchOf(requests...))
	}
	sorted := slices.Sorted(maps.Keys(journal.spaces[itemSpace]))
	ordered := &orderedJournal{recorder: journal, keys: sorted}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		e, err := Open(Options{Journal: ordered})
		if err != nil {
			b.Fatal(err)
		}
		if n := e.tables["main"].rows.Len(); n != 100_000 {
			b.Fatalf("%d items", n)
		}
	}
}

// An orderedJournal hands items out in order without sorting them first, as a
// store on disk does.
type orderedJournal struct {
	*recorder
	keys []string
}

func (j *orderedJournal) Load(space string, fn func(key string, value []byte) error) error {
	if space != itemSpace {
		return j.recorder.Load(space, fn)
	}
	for _, key := range j.keys {
		if err := fn(key, j.spaces[space][key]); err != nil {
			return err
		}
	}
	return nil
}
