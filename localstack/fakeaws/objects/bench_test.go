package objects

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// serve is what a benchmark repeats: one request without the cost of making it.
func (b *bench) serve(r *http.Request, body []byte, status int) {
	if resp := b.e.Serve(r, body); resp.Status != status {
		b.Fatalf("answer %d %s", resp.Status, resp.Body)
	}
}

func request1K(target string, h headers) (*http.Request, []byte) {
	r := httptest.NewRequest("PUT", target, nil)
	r.Header.Set("X-Amz-Checksum-Crc32", crc32IEEE.of([]byte(strings.Repeat("x", 1024))).value)
	for name, value := range h {
		r.Header.Set(name, value)
	}
	return r, []byte(strings.Repeat("x", 1024))
}

func BenchmarkPut1KB(b *testing.B) {
	for _, mode := range []string{"new keys", "one key"} {
		b.Run(mode, func(b *testing.B) {
			s := newBench(b)
			var n atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				r, body := request1K("http://127.0.0.1/bkt/k", nil)
				for pb.Next() {
					if mode == "new keys" {
						r.URL.Path = fmt.Sprintf("/bkt/k/%09d", n.Add(1))
					}
					s.serve(r, body, 200)
				}
			})
		})
	}
}

func BenchmarkConditionalPut1KB(b *testing.B) {
	for _, condition := range []string{"create", "swap"} {
		b.Run(condition, func(b *testing.B) {
			s := newBench(b)
			var n atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				r, body := request1K("http://127.0.0.1/bkt/k", headers{"If-None-Match": "*"})
				if condition == "swap" {
					r, body = request1K("http://127.0.0.1/bkt/k", headers{"If-Match": etagOf(strings.Repeat("x", 1024))})
					s.want(s.put("k", strings.Repeat("x", 1024), nil), 200, "")
				}
				for pb.Next() {
					if condition == "create" {
						r.URL.Path = fmt.Sprintf("/bkt/k/%09d", n.Add(1))
					}
					s.serve(r, body, 200)
				}
			})
		})
	}
}

func BenchmarkGet1KB(b *testing.B) {
	s := newBench(b)
	s.want(s.put("k", strings.Repeat("x", 1024), nil), 200, "")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		r := httptest.NewRequest("GET", "http://127.0.0.1/bkt/k", nil)
		for pb.Next() {
			s.serve(r, nil, 200)
		}
	})
}

// BenchmarkList lists pages of 100 from 10,000 keys, plain and folded: each of
// the 100 common prefixes covers 100 keys.
func BenchmarkList100Of10000(b *testing.B) {
	s := newBench(b)
	for i := range 10_000 {
		s.want(s.put(fmt.Sprintf("p/%03d/%03d", i/100, i%100), "x", nil), 200, "")
	}
	for name, query := range map[string]string{
		"keys":     "list-type=2&prefix=p/&max-keys=100&start-after=p/050/",
		"prefixes": "list-type=2&prefix=p/&max-keys=100&delimiter=/",
	} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest("GET", "http://127.0.0.1/bkt?"+query, nil)
			b.ReportAllocs()
			for b.Loop() {
				s.serve(r, nil, 200)
			}
		})
	}
}

func BenchmarkOpen100000(b *testing.B) {
	j := newTestJournal()
	s := openBench(b, j)
	s.want(s.do("PUT", "/bkt", nil, ""), 200, "")
	for i := range 100_000 {
		s.want(s.put(fmt.Sprintf("jobs/%06d", i), "small body", headers{"X-Amz-Meta-Write-Id": "01J0000000000000000000000"}), 200, "")
	}
	j.units = nil
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Open(Options{Journal: j}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCollectExpired goes through a bucket in which nothing has expired,
// as a hub does every minute.
func BenchmarkCollectExpired(b *testing.B) {
	const keys = 100_000
	bn := newBench(b)
	bn.want(bn.putLifecycle(rule("a", "payload/", expireAfter(45)), rule("b", "open/", forgetBareMarkers+forgetOldAfter(1)), rule("c", "", forgetOldAfter(30)+abortAfter(1))), 200, "")
	for i := range keys {
		bn.want(bn.put(fmt.Sprintf("jobs/%d", i), "x", nil), 200, "")
	}
	for b.Loop() {
		bn.collect(Collection{})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/keys, "ns/version")
}
