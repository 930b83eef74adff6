package ddb_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"drawbridge/core"
)

// letters writes a number without digits, which patterns do not keep.
func letters(n int) string {
	return strings.Map(func(r rune) rune { return r - '0' + 'g' }, fmt.Sprint(n))
}

func (h *benchHub) learnt(n int) {
	h.b.Helper()
	var wait sync.WaitGroup
	for worker := range 8 {
		wait.Go(func() {
			for i := worker; i < n; i += 8 {
				if _, err := h.Learn(h.b.Context(), learnOf("error "+letters(i))); err != nil {
					h.b.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
}

// BenchmarkReflexion reports the units of an exact lookup, of one that falls
// back to the bounded search, and of a hit, over what is stored already.
func BenchmarkReflexion(b *testing.B) {
	stored := []int{0, 10_000}
	if long() {
		stored = append(stored, 100_000)
	}
	for _, n := range stored {
		b.Run(fmt.Sprintf("stored=%d", n), func(b *testing.B) {
			h := newBenchHub(b, 0)
			h.learnt(n)
			learnt, err := h.Learn(b.Context(), learnOf("boom"))
			if err != nil {
				b.Fatal(err)
			}
			for name, operation := range map[string]func(context.Context) error{
				"lookup":   func(ctx context.Context) error { return h.find(ctx, "boom") },
				"fallback": func(ctx context.Context) error { return h.find(ctx, "no such thing") },
				"hit": func(ctx context.Context) error {
					_, err := h.Hit(ctx, core.HitRequest{ID: learnt.Entry.ID()})
					return err
				},
			} {
				b.Run(name, func(b *testing.B) {
					measured := *h
					measured.b = b
					measured.measure(operation)
				})
			}
		})
	}
}

func (h *benchHub) find(ctx context.Context, text string) error {
	_, err := h.Lookup(ctx, core.LookupRequest{Pattern: core.Some(text)})
	return err
}
