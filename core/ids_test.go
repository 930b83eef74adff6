package core_test

import (
	"crypto/rand"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"drawbridge/core"
	"drawbridge/core/coretest"
)

var uuidV7 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// Contract 1.14. 5,000 ids in one millisecond use up its 4,096 sequence numbers.
func TestIDsAreUUIDv7InOrderWhateverTheClockDoes(t *testing.T) {
	clock := coretest.NewClock()
	ids := core.NewIDs(clock, rand.Reader)
	last := ""
	for i := range 20_000 {
		switch i {
		case 6_000:
			clock.Advance(-time.Hour)
		case 12_000:
			clock.Advance(2 * time.Hour)
		}
		id := ids.New()
		if !uuidV7.MatchString(id) {
			t.Fatalf("%s is no UUIDv7", id)
		}
		if id <= last {
			t.Fatalf("%s comes after %s", id, last)
		}
		last = id
	}
	if ms, _ := uuid.MustParse(last).Time().UnixTime(); ms != clock.Now().Unix() {
		t.Fatalf("the last id is of %d, the clock stands at %d", ms, clock.Now().Unix())
	}
}

func TestIDsMadeAtOnceAreAllDifferent(t *testing.T) {
	ids := core.NewIDs(coretest.NewClock(), rand.Reader)
	var made sync.Map
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 1000 {
				if _, twice := made.LoadOrStore(ids.New(), true); twice {
					t.Error("an id was made twice")
				}
			}
		})
	}
	wait.Wait()
}
