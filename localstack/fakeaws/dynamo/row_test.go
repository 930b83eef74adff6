package dynamo

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// randomValue makes a value of any kind, with nests at most so deep.
func randomValue(r *rand.Rand, depth int) value {
	text := func() string { return strings.Repeat(fmt.Sprint(r.IntN(100)), r.IntN(60)) }
	kinds := 8
	if depth > 0 {
		kinds = 10
	}
	switch k := kind(1 + r.IntN(kinds)); k {
	case kindString, kindBinary:
		return value{kind: k, text: text()}
	case kindNumber:
		return numberValue(fmt.Sprint(r.IntN(1000)))
	case kindBool, kindNull:
		return value{kind: k, truth: r.IntN(2) == 0}
	case kindMap:
		return mapValue(randomAttributes(r, depth-1))
	case kindList:
		var elements []value
		for range r.IntN(5) {
			elements = append(elements, randomValue(r, depth-1))
		}
		return listValue(elements)
	default:
		return setValue(k, []value{{kind: k.member(), text: "1"}, {kind: k.member(), text: "2"}})
	}
}

func randomAttributes(r *rand.Rand, depth int) []attribute {
	var attributes []attribute
	for range r.IntN(8) {
		attributes = append(attributes, attribute{name: fmt.Sprintf("name-%d", r.IntN(20)), value: randomValue(r, depth)})
	}
	return sortAttributes(attributes)
}

func TestARowIsTheItemThatWasPutAtRest(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 7))
	for range 3000 {
		want := newItem(randomAttributes(r, 4))
		at := rowOf(want)
		if got := at.item(); !got.equal(want) || got.size != want.size || at.size != want.size {
			t.Fatalf("%v comes back as %v", want, got)
		}
		for n := range 20 {
			name := fmt.Sprintf("name-%d", n)
			got, has := at.get(name)
			if expected, had := want.get(name); has != had || !got.equal(expected) {
				t.Fatalf("%s of %v is %v (%v)", name, want, got, has)
			}
		}
	}
	if got := rowOf(nil).item(); got != nil {
		t.Errorf("no item comes back as %v", got)
	}
	if v, has := rowOf(nil).get("name"); has {
		t.Errorf("no item has %v", v)
	}
	if got := rowOf(newItem(nil)).item(); got == nil {
		t.Error("an item without attributes comes back as none")
	}
}

func TestTheDeepestItemComesBack(t *testing.T) {
	f := newFixture(t)
	f.createMain()
	for levels := maxNesting - 1; levels <= maxNesting+1; levels++ {
		deep := strings.Repeat(`{"L": [`, levels) + `{"S": "innermost"}` + strings.Repeat(`]}`, levels)
		put := f.send("PutItem", `{"TableName": "main", "Item": `+mainItem("deep", "1", `"a": `+deep)+`}`)
		if (put.Status == 200) != (levels <= maxNesting) {
			t.Fatalf("%d levels: %d %s", levels, put.Status, put.Body)
		}
		if put.Status != 200 {
			continue
		}
		got := f.send("GetItem", `{"TableName": "main", "Key": `+mainItem("deep", "1", "")+`}`)
		if !strings.Contains(string(got.Body), strings.ReplaceAll(deep, " ", "")) {
			t.Errorf("%d levels come back as %s", levels, got.Body)
		}
	}
}
