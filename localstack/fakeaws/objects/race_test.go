package objects

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"drawbridge/localstack/fakeaws/engine"
)

// race runs fn on n goroutines that start together.
func race(n int, fn func(i int)) {
	var start, done sync.WaitGroup
	start.Add(1)
	for i := range n {
		done.Go(func() {
			start.Wait()
			fn(i)
		})
	}
	start.Done()
	done.Wait()
}

func TestOneOfManyConditionalWritersWins(t *testing.T) {
	b := newBench(t)
	ops := map[string]func(key string, i int) int{
		"create": func(key string, i int) int {
			return b.put(key, fmt.Sprint(i), headers{"If-None-Match": "*"}).Status
		},
		"swap": func(key string, i int) int {
			return b.put(key+"/swap", fmt.Sprint(i), headers{"If-Match": etagOf("start")}).Status
		},
		"delete": func(key string, _ int) int {
			return b.do("DELETE", keyPath(key+"/delete"), headers{"If-Match": "*"}, "").Status
		},
		"copy": func(key string, _ int) int {
			return b.do("PUT", keyPath(key+"/copy"), headers{"X-Amz-Copy-Source": "bkt/source", "If-None-Match": "*"}, "").Status
		},
	}
	b.want(b.put("source", "s", nil), 200, "")
	for name, op := range ops {
		for round := range 50 {
			key := fmt.Sprintf("%s%d", name, round)
			b.want(b.put(key+"/swap", "start", nil), 200, "")
			b.want(b.put(key+"/delete", "start", nil), 200, "")
			var wins atomic.Int32
			race(8, func(i int) {
				if op(key, i)/100 == 2 {
					wins.Add(1)
				}
			})
			if wins.Load() != 1 {
				t.Fatalf("%s: %d of 8 won", name, wins.Load())
			}
		}
	}
}

// increment adds one to the counter by compare-and-set, as often as it takes.
func increment(b *bench) {
	for {
		now := b.get("counter", nil)
		n, err := strconv.Atoi(string(now.Body))
		if err != nil {
			b.Errorf("counter is %q", now.Body)
			return
		}
		if b.put("counter", fmt.Sprint(n+1), headers{"If-Match": now.Header.Get("Etag")}).Status == 200 {
			return
		}
	}
}

func TestConditionalCounterLosesNoIncrement(t *testing.T) {
	b := newBench(t)
	b.want(b.put("counter", "0", nil), 200, "")
	race(8, func(int) {
		for range 25 {
			increment(b)
		}
	})
	if got := b.get("counter", nil); string(got.Body) != "200" {
		t.Errorf("counter is %s after 200 increments", got.Body)
	}
}

func TestReadersSeeWholeObjects(t *testing.T) {
	for name, b := range map[string]*bench{"memory": newBench(t), "durable": openBench(t, newTestJournal())} {
		t.Run(name, func(t *testing.T) {
			b.want(b.do("PUT", "/bkt", nil, ""), 200, "")
			content := func(i int) string { return strings.Repeat(string(rune('a'+i%26)), 20_000) }
			b.want(b.put("k", content(0), nil), 200, "")
			race(6, func(g int) {
				for i := range 200 {
					if g < 3 {
						b.put("k", content(g+i), nil)
						continue
					}
					got := b.get("k", nil)
					if len(got.Body) != 20_000 || etagOf(string(got.Body)) != got.Header.Get("Etag") {
						t.Errorf("torn read: %d bytes, etag %s", len(got.Body), got.Header.Get("Etag"))
						return
					}
				}
			})
		})
	}
}

func TestListsRunBesideWrites(t *testing.T) {
	b := newBench(t)
	enableVersioning(b)
	race(6, func(g int) {
		for i := range 100 {
			key := fmt.Sprintf("%d/%d", i%7, g)
			switch g % 3 {
			case 0:
				b.put(key, "x", nil)
			case 1:
				b.do("DELETE", keyPath(key), nil, "")
			default:
				b.do("GET", "/bkt?list-type=2&delimiter=/", nil, "")
				b.do("GET", "/bkt?versions&max-keys=10", nil, "")
			}
		}
	})
}

// TestACollectionBesideConditionalWritersLosesNoWrite moves the clock by days
// while writers increment a counter by compare-and-set and others put and
// remove a key. The counter's current version is never what a rule ends.
func TestACollectionBesideConditionalWritersLosesNoWrite(t *testing.T) {
	const writers, increments = 4, 50
	j := newTestJournal()
	b := openBench(t, j)
	b.want(b.do("PUT", "/bkt", nil, ""), 200, "")
	enableVersioning(b)
	b.want(b.putLifecycle(rule("old", "", forgetOldAfter(1)), rule("marks", "mark", forgetBareMarkers), rule("lived", "lived", expireAfter(1))), 200, "")
	b.want(b.put("counter", "0", nil), 200, "")
	must := func(resp engine.Response) {
		if resp.Status/100 != 2 {
			t.Errorf("answer %d %s", resp.Status, resp.Body)
		}
	}
	var writing sync.WaitGroup
	writing.Add(writers)
	race(writers+2, func(g int) {
		if g < writers {
			defer writing.Done()
			for i := range increments {
				increment(b)
				must(b.put("mark", "x", nil))
				must(b.do("DELETE", "/bkt/mark", nil, ""))
				must(b.put(fmt.Sprintf("lived/%d/%d", g, i), "x", nil))
			}
			return
		}
		written := make(chan struct{})
		go func() { writing.Wait(); close(written) }()
		for {
			b.clock.Advance(3 * day)
			if _, err := b.e.CollectExpired(t.Context()); err != nil {
				t.Error(err)
			}
			select {
			case <-written:
				return
			default:
			}
		}
	})
	for range 3 { // current, then noncurrent, then a bare marker: days apart
		b.clock.Advance(3 * day)
		if _, err := b.e.CollectExpired(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.contents(); got != "+counter" {
		t.Errorf("left %q", got)
	}
	if got := b.get("counter", nil); string(got.Body) != fmt.Sprint(writers*increments) {
		t.Errorf("counter is %s after %d increments", got.Body, writers*increments)
	}
	if again := openBench(t, newTestJournal(j.units...)); again.dump() != b.dump() {
		t.Error("a restart shows something else")
	}
}
