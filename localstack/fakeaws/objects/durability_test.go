package objects

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

// A testJournal is an engine.Journal in memory that remembers every unit, so
// that a test can open what a crash after any of them leaves.
type testJournal struct {
	mu       sync.Mutex
	units    [][]engine.Write
	records  map[string]map[string][]byte
	barriers int
}

func newTestJournal(units ...[]engine.Write) *testJournal {
	j := &testJournal{records: make(map[string]map[string][]byte)}
	for _, unit := range units {
		j.Append(unit)
	}
	return j
}

type testTicket int

func (testTicket) Wait() error { return nil }

func (j *testJournal) Append(writes []engine.Write) engine.Ticket {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.units = append(j.units, writes)
	for _, w := range writes {
		if j.records[w.Space] == nil {
			j.records[w.Space] = make(map[string][]byte)
		}
		if w.Value == nil {
			delete(j.records[w.Space], w.Key)
		} else {
			j.records[w.Space][w.Key] = w.Value
		}
	}
	return testTicket(len(j.units))
}

func (j *testJournal) Barrier() engine.Ticket {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.barriers++
	return testTicket(len(j.units))
}

func (j *testJournal) Load(space string, fn func(string, []byte) error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(j.records[space])) {
		if err := fn(key, j.records[space][key]); err != nil {
			return err
		}
	}
	return nil
}

func (j *testJournal) Read(space, key string) ([]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.records[space][key], nil
}

func (j *testJournal) count(space string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.records[space])
}

func openBench(t testing.TB, j engine.Journal) *bench {
	t.Helper()
	clock := &testClock{now: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)}
	e, err := Open(Options{Journal: j, Clock: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	return &bench{TB: t, e: e, clock: clock}
}

// dump tells everything that a client can see.
func (b *bench) dump() string {
	b.Helper()
	var out strings.Builder
	note := func(method, target string) {
		resp := b.do(method, target, headers{"X-Amz-Checksum-Mode": "ENABLED"}, "")
		fmt.Fprintf(&out, "%s %s: %d %v %d %.60q\n", method, target, resp.Status, resp.Header, len(resp.Body), resp.Body)
		if method == "GET" && resp.Status == 200 && len(resp.Body) > 60 {
			fmt.Fprintf(&out, "%s\n", etagOf(string(resp.Body)))
		}
	}
	note("GET", "/")
	b.e.mu.RLock()
	var targets []string
	for _, name := range slices.Sorted(maps.Keys(b.e.buckets)) {
		bkt := b.e.buckets[name]
		for _, sub := range []string{"versioning", "encryption", "publicAccessBlock", "policy", "lifecycle", "versions", "uploads", "list-type=2"} {
			targets = append(targets, "/"+name+"?"+sub)
		}
		for _, en := range bkt.entries.Items() {
			for _, v := range en.versions {
				targets = append(targets, "/"+name+"/"+en.key+"?versionId="+v.id)
			}
		}
		for _, u := range bkt.uploads.Items() {
			fmt.Fprintf(&out, "upload %s %v %v\n", u.id, u.keyChanged, u.keyDeleted)
			targets = append(targets, "/"+name+"/"+u.key+"?uploadId="+u.id)
		}
	}
	b.e.mu.RUnlock()
	for _, target := range targets {
		note("GET", target)
	}
	return out.String()
}

// TestEveryUnitReopensToTheStateItLeft runs random operations, and opens the
// journal cut after random units: a crash between two units must show exactly
// what was visible between them.
func TestEveryUnitReopensToTheStateItLeft(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	j := newTestJournal()
	b := openBench(t, j)
	b.want(b.do("PUT", "/bkt", nil, ""), 200, "")
	dumps := map[int]string{len(j.units): b.dump()}
	var uploads []*uploadBench
	body := func() string { return strings.Repeat(fmt.Sprint(rng.IntN(10)), rng.IntN(3*inlineLimit)) }
	key := func() string { return fmt.Sprintf("k/%d", rng.IntN(6)) }
	for range 400 {
		switch n := rng.IntN(22); {
		case n < 8:
			b.put(key(), body(), headers{"X-Amz-Meta-N": fmt.Sprint(n)})
		case n < 10:
			b.do("DELETE", keyPath(key()), nil, "")
		case n < 11:
			b.setVersioning([]string{"Enabled", "Suspended"}[rng.IntN(2)])
		case n < 12:
			b.do("PUT", keyPath(key()), headers{"X-Amz-Copy-Source": "bkt/" + key()}, "")
		case n < 13:
			b.deleteMany("<Delete><Object><Key>" + key() + "</Key></Object><Object><Key>" + key() + "</Key></Object></Delete>")
		case n < 14:
			b.e.mu.RLock()
			if en := b.e.buckets["bkt"].entry("k/1"); en != nil {
				id := en.versions[rng.IntN(len(en.versions))].id
				b.e.mu.RUnlock()
				b.want(b.version("DELETE", "k/1", id), 204, "")
			} else {
				b.e.mu.RUnlock()
			}
		case n < 16:
			uploads = append(uploads, b.upload(key(), nil))
		case n < 18 && len(uploads) > 0:
			u := uploads[rng.IntN(len(uploads))]
			u.parts = nil
			u.part(1+rng.IntN(2), body())
		case n < 20 && len(uploads) > 0:
			i := rng.IntN(len(uploads))
			if u := uploads[i]; n == 18 && len(u.parts) > 0 {
				b.want(u.complete(nil), 200, "")
			} else {
				b.want(u.abort(), 204, "")
			}
			uploads = slices.Delete(uploads, i, i+1)
		case n == 20:
			b.want(b.putLifecycle(rule("a", key(), expireAfter(1+rng.IntN(3))), rule("b", "", forgetOldAfter(1)+forgetBareMarkers)), 200, "")
		case n == 21:
			b.clock.Advance(time.Duration(rng.IntN(60)) * time.Hour)
			if _, err := b.e.CollectExpired(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		dumps[len(j.units)] = b.dump()
	}
	cuts := slices.Sorted(maps.Keys(dumps))
	for range 40 {
		cut := cuts[rng.IntN(len(cuts))]
		again := openBench(t, newTestJournal(j.units[:cut]...))
		if got := again.dump(); got != dumps[cut] {
			t.Fatalf("after unit %d the reopened engine shows\n%s\nwant\n%s", cut, got, dumps[cut])
		}
	}

	// Nothing is left behind: deleting everything empties the journal.
	for _, u := range uploads {
		b.want(u.abort(), 204, "")
	}
	b.e.mu.RLock()
	var all []string
	for _, en := range b.e.buckets["bkt"].entries.Items() {
		for _, v := range en.versions {
			all = append(all, keyPath(en.key)+"?versionId="+v.id)
		}
	}
	b.e.mu.RUnlock()
	for _, target := range all {
		b.want(b.do("DELETE", target, nil, ""), 204, "")
	}
	for _, space := range []string{spaceVersion, spaceBody, spaceUpload, spacePart} {
		if n := j.count(space); n != 0 {
			t.Errorf("%d records left in %s", n, space)
		}
	}
	b.want(b.do("DELETE", "/bkt", nil, ""), 204, "")
	if n := j.count(spaceBucket) + j.count(spaceLifecycle); n != 0 {
		t.Errorf("%d records of buckets left", n)
	}
}

func TestOverwritingKeepsTheJournalSmall(t *testing.T) {
	j := newTestJournal()
	b := openBench(t, j)
	b.want(b.do("PUT", "/bkt", nil, ""), 200, "")
	for i := range 50 {
		b.want(b.put("k", strings.Repeat("x", inlineLimit+1+i), nil), 200, "")
	}
	if v, n := j.count(spaceVersion), j.count(spaceBody); v != 1 || n != 1 {
		t.Errorf("%d version records and %d bodies for one object", v, n)
	}
}

func TestLargeBodiesStayOutOfMemory(t *testing.T) {
	b := openBench(t, newTestJournal())
	b.want(b.do("PUT", "/bkt", nil, ""), 200, "")
	for size, inMemory := range map[int]bool{0: true, inlineLimit: true, inlineLimit + 1: false} {
		b.want(b.put("k", strings.Repeat("x", size), nil), 200, "")
		s := b.e.buckets["bkt"].current("k").body.segments[0]
		if (s.record == 0) != inMemory || (s.data != nil) != inMemory {
			t.Errorf("a body of %d bytes: record %d, %d bytes in memory", size, s.record, len(s.data))
		}
		if got := b.get("k", nil); len(got.Body) != size {
			t.Errorf("%d bytes come back as %d", size, len(got.Body))
		}
	}
}

func TestEveryAnswerCarriesATicket(t *testing.T) {
	j := newTestJournal()
	b := openBench(t, j)
	for _, r := range []struct{ method, target string }{
		{"PUT", "/bkt"}, {"PUT", "/bkt/k"}, {"GET", "/bkt/k"}, {"GET", "/bkt?list-type=2"}, {"GET", "/bkt/none"}, {"DELETE", "/bkt/k"}, {"DELETE", "/bkt/k"},
	} {
		if resp := b.do(r.method, r.target, nil, ""); resp.Durable == nil || resp.Durable.Wait() != nil {
			t.Errorf("%s %s has no ticket", r.method, r.target)
		}
	}
	if j.barriers != 4 { // three reads and a delete that changed nothing
		t.Errorf("%d barriers", j.barriers)
	}
	if resp := newBench(t).get("k", nil); resp.Durable != nil {
		t.Error("in memory there is nothing to wait for")
	}
}

func TestDamagedRecordsAreToldAtOpen(t *testing.T) {
	whole := newTestJournal()
	b := openBench(t, whole)
	b.want(b.do("PUT", "/bkt", nil, ""), 200, "")
	b.want(b.put("k", "v", nil), 200, "")
	b.want(b.putLifecycle(rule("r", "", expireAfter(1))), 200, "")
	u := b.upload("k", nil)
	u.part(1, "x")
	for _, space := range []string{spaceBucket, spaceLifecycle, spaceVersion, spaceUpload, spacePart} {
		for key, record := range whole.records[space] {
			for cut := range len(record) {
				j := newTestJournal(whole.units...)
				j.records[space][key] = record[:cut]
				if _, err := Open(Options{Journal: j}); !errors.Is(err, errRecord) {
					t.Errorf("record of %s cut to %d of %d bytes: %v", space, cut, len(record), err)
				}
			}
			j := newTestJournal(whole.units...)
			j.records[space][key] = append(slices.Clone(record), 0)
			if _, err := Open(Options{Journal: j}); !errors.Is(err, errRecord) {
				t.Errorf("record of %s with a byte more: %v", space, err)
			}
		}
	}
}

// A failingJournal cannot read.
type failingJournal struct{ *testJournal }

func (failingJournal) Read(string, string) ([]byte, error) { return nil, errors.New("disk on fire") }

func TestUnreadableBodiesAreInternalErrors(t *testing.T) {
	b := openBench(t, failingJournal{newTestJournal()})
	b.want(b.do("PUT", "/bkt", nil, ""), 200, "")
	b.want(b.put("k", strings.Repeat("x", inlineLimit+1), nil), 200, "")
	b.want(b.get("k", nil), 500, "InternalError")
	b.want(b.do("HEAD", "/bkt/k", nil, ""), 200, "")
}
