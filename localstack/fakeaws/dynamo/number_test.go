package dynamo

import (
	"bytes"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestNumbersComeBackInCanonicalForm(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "-0": "0", "0.000": "0", "0e1000": "0", "007": "7", "+3": "3", "1.0": "1", ".123": "0.123", "1.": "1",
		"1E3": "1000", "-17.4e2": "-1740", "1e-3": "0.001", "0001.2300": "1.23", "123e-2": "1.23", "1e+5": "100000",
		"12345678901234567890123456789012345678":      "12345678901234567890123456789012345678",
		"-0.12345678901234567890123456789012345678":   "-0.12345678901234567890123456789012345678",
		"1234567890123456789012345678901234567800000": "1234567890123456789012345678901234567800000",
		"9.9999999999999999999999999999999999999e125": "99999999999999999999999999999999999999" + strings.Repeat("0", 88),
		"1e-130": "0." + strings.Repeat("0", 129) + "1",
	} {
		got, err := canonicalNumber(text)
		if err != nil || got != want {
			t.Errorf("%s: got %s, %v; want %s", text, got, err, want)
		}
	}
}

func TestNumbersThatDynamoDBRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"": "numeric value", "-": "numeric value", ".": "numeric value", "abc": "numeric value", "NaN": "numeric value", "Infinity": "numeric value",
		" 1": "numeric value", "1 ": "numeric value", "1e": "numeric value", "1e+": "numeric value", "1.2.3": "numeric value", "0x10": "numeric value", "1_000": "numeric value",
		"1e126": "overflow", "11e125": "overflow", "-1e126": "overflow", "1e999999999999": "overflow",
		"1e-131": "underflow", "0.9e-130": "underflow", "1e-999999999999": "underflow",
		"3.14159265358979323846264338327950288419": "38 significant digits",
		"100000000000000000000000000000000000001":  "38 significant digits",
	} {
		_, err := canonicalNumber(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestSumsThatDynamoDBRefuses(t *testing.T) {
	huge, tiny := mustCanonical(t, "9e125"), mustCanonical(t, "1e-130")
	for _, c := range []struct {
		a, b  string
		minus bool
	}{{huge, huge, false}, {"-" + huge, huge, true}, {mustCanonical(t, "1e50"), "1", false}, {mustCanonical(t, "1e50"), "1", true}, {huge, tiny, false}} {
		if sum, err := addNumbers(c.a, c.b, c.minus); err == nil || !strings.Contains(err.Error(), "overflow") {
			t.Errorf("%s, %s: %s, %v", c.a, c.b, sum, err)
		}
	}
}

func mustCanonical(tb testing.TB, text string) string {
	tb.Helper()
	canonical, err := canonicalNumber(text)
	if err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return canonical
}

// randomNumber gives canonical numbers of all sizes, close ones and equal ones
// included.
func randomNumber(r *rand.Rand) string {
	digits := 1 + r.IntN(maxDigits)
	if r.IntN(2) == 0 {
		digits = 1 + r.IntN(3)
	}
	var text strings.Builder
	if r.IntN(2) == 0 {
		text.WriteByte('-')
	}
	for range digits {
		text.WriteByte(byte('0' + r.IntN(10)))
	}
	exponent := r.IntN(40) - 20
	if r.IntN(10) == 0 {
		exponent = r.IntN(80) - 110
	}
	canonical, err := canonicalNumber(fmt.Sprintf("%se%d", text.String(), exponent))
	if err != nil {
		return "0"
	}
	return canonical
}

func exact(tb testing.TB, canonical string) *big.Rat {
	tb.Helper()
	r, ok := new(big.Rat).SetString(canonical)
	if !ok {
		tb.Fatalf("%s is no number", canonical)
	}
	return r
}

func TestArithmeticAndOrderAgreeWithExactRationals(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 20_000 {
		a, b := randomNumber(r), randomNumber(r)
		x, y := exact(t, a), exact(t, b)
		if got, want := compareNumbers(a, b), x.Cmp(y); got != want {
			t.Fatalf("seed %d: compare %s with %s: %d, want %d", seed, a, b, got, want)
		}
		encoded := bytes.Compare(appendOrderedNumber(nil, a), appendOrderedNumber(nil, b))
		if encoded != x.Cmp(y) {
			t.Fatalf("seed %d: keys of %s and %s sort %d", seed, a, b, encoded)
		}
		minus := r.IntN(2) == 0
		want := new(big.Rat).Add(x, y)
		if minus {
			want.Sub(x, y)
		}
		sum, err := addNumbers(a, b, minus)
		if err != nil {
			if fits(t, want) {
				t.Fatalf("seed %d: %s, %s (minus %v): %v", seed, a, b, minus, err)
			}
			continue
		}
		if exact(t, sum).Cmp(want) != 0 || mustCanonical(t, sum) != sum {
			t.Fatalf("seed %d: %s, %s (minus %v) gave %s", seed, a, b, minus, sum)
		}
	}
}

// fits tells whether 38 digits hold a number exactly.
func fits(tb testing.TB, x *big.Rat) bool {
	tb.Helper()
	_, err := canonicalNumber(x.FloatString(200))
	return err == nil
}

func TestOrderedKeysSortAsTheirValues(t *testing.T) {
	sorted := []string{"", "\x00", "\x00\x00", "\x00\x01", "\x00\xff", "\x01", "a", "a\x00", "a\x00b", "a\x01", "ab", "b", "é", "\uff5e", "\U0001f600", "\xff", "\xff\xff"}
	if !slices.IsSorted(sorted) {
		t.Fatal("the test's own order is wrong")
	}
	for i, a := range sorted {
		for j, b := range sorted {
			x, y := appendOrdered(nil, stringValue(a)), appendOrdered(nil, stringValue(b))
			if got := bytes.Compare(x, y); got != compareInts(i, j) {
				t.Errorf("keys of %q and %q compare as %d", a, b, got)
			}
			if i != j && bytes.HasPrefix(x, y) {
				t.Errorf("the key of %q begins with that of %q", a, b)
			}
		}
	}
}

func TestNumberSizeFollowsTheDigits(t *testing.T) {
	for number, want := range map[string]int{"0": 1, "1": 2, "12": 2, "123": 3, "-123": 4, "1000": 2, "0.001": 2, "1.25": 3, "12345678901234567890123456789012345678": 20} {
		if got := numberSize(number); got != want {
			t.Errorf("%s takes %d, want %d", number, got, want)
		}
	}
}
