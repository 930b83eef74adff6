package dynamo

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// randomWrite gives an operation on one of few rows, so that rows enter, leave
// and move within the indexes often.
func randomWrite(r *rand.Rand) (op, body string) {
	pk, sk := string(rune('a'+r.IntN(3))), string(rune('a'+r.IntN(4)))
	key := mainItem(pk, sk, "")
	values := map[string]string{
		"n":     fmt.Sprintf(`{"N": "%d"}`, r.IntN(4)-2),
		"g":     fmt.Sprintf(`{"S": "g%d"}`, r.IntN(2)),
		"name":  []string{`{"B": "AA=="}`, `{"B": "AAA="}`}[r.IntN(2)],
		"extra": fmt.Sprintf(`{"S": "%s"}`, strings.Repeat("x", r.IntN(3)*600)),
		"other": fmt.Sprintf(`{"N": "%d"}`, r.IntN(9)),
	}
	switch r.IntN(4) {
	case 0:
		return "DeleteItem", `{"TableName": "main", "Key": ` + key + `}`
	case 1:
		var rest []string
		for name, v := range values {
			if r.IntN(3) > 0 {
				rest = append(rest, `"`+name+`": `+v)
			}
		}
		return "PutItem", `{"TableName": "main", "Item": ` + mainItem(pk, sk, strings.Join(rest, ", ")) + `}`
	}
	name := slices.Sorted(maps.Keys(values))[r.IntN(len(values))]
	names := `, "ExpressionAttributeNames": {"#a": "` + name + `"}`
	if r.IntN(3) == 0 {
		return "UpdateItem", `{"TableName": "main", "Key": ` + key + `, "UpdateExpression": "REMOVE #a"` + names + `}`
	}
	return "UpdateItem", `{"TableName": "main", "Key": ` + key + `, "UpdateExpression": "SET #a = :v"` + names + `, "ExpressionAttributeValues": {":v": ` + values[name] + `}}`
}

// checkIndexes compares every index with what follows from the rows.
func (f *fixture) checkIndexes() {
	f.Helper()
	t := f.tables["main"]
	size := int64(0)
	t.rows.Scan(func(key string, r row) bool {
		if it := r.item(); it.size != newItem(it.attributes).size {
			f.Fatalf("row %q has %d bytes, its attributes %d", key, it.size, newItem(it.attributes).size)
		}
		size += int64(r.size)
		return true
	})
	if size != t.bytes {
		f.Fatalf("the table counts %d bytes, its rows %d", t.bytes, size)
	}
	for _, x := range t.indexes {
		expected := newIndex(x.definition, x.local, t.keys, t.definition.kinds())
		expected.fill(t.rows)
		if x.entries.Len() != expected.entries.Len() || x.bytes != expected.bytes {
			f.Fatalf("index %s has %d entries of %d bytes, want %d of %d", x.name, x.entries.Len(), x.bytes, expected.entries.Len(), expected.bytes)
		}
		expected.entries.Scan(func(key string, entry row) bool {
			want := entry.item()
			found, ok := x.entries.Get(key)
			got := found.item()
			if !ok || !got.equal(want) || got.size != newItem(got.attributes).size {
				f.Fatalf("index %s: entry %q is %v, want %v", x.name, key, got, want)
			}
			return true
		})
	}
}

func TestIndexesFollowTheirTable(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	f := newFixture(t)
	f.createMain()
	for range 3000 {
		f.do(randomWrite(r))
		f.checkIndexes()
	}
}

func TestWhatAnIndexCostsIsWhatChangedInIt(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	f := newFixture(t)
	f.createMain()
	entries := func(x *index) map[string]*item {
		all := map[string]*item{}
		x.entries.Scan(func(key string, r row) bool {
			all[key] = r.item()
			return true
		})
		return all
	}
	for range 1500 {
		indexes := f.tables["main"].indexes
		before := map[string]map[string]*item{}
		for _, x := range indexes {
			before[x.name] = entries(x)
		}
		op, body := randomWrite(r)
		billed := map[string]float64{}
		for _, u := range f.send(op, body).Usage {
			billed[u.Index] = u.WriteUnits
		}
		for _, x := range indexes {
			want := 0.0
			after := entries(x)
			for key, was := range before[x.name] {
				if is, still := after[key]; !still {
					want += writeUnits(was.size)
				} else if !is.equal(was) {
					want += writeUnits(max(is.size, was.size))
				}
			}
			for key, is := range after {
				if _, old := before[x.name][key]; !old {
					want += writeUnits(is.size)
				}
			}
			if billed[x.name] != want {
				t.Fatalf("%s %s: %s billed %g, changed %g", op, body, x.name, billed[x.name], want)
			}
		}
	}
}
