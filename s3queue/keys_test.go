package s3queue

import (
	"cmp"
	"crypto/rand"
	mathrand "math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"drawbridge/core"
)

// someJob is a job in a state by chance.
func someJob(random *mathrand.Rand, ids core.IDs) core.ArchiveJob {
	at := func() core.Instant { return core.Instant(random.Int64N(315_569_519_999_999) - 62_167_219_200_000) }
	r := request(ids.New(), int(random.Int64N(1<<53)))
	r.SourceModifiedAt = at()
	j := core.NewArchiveJob(r, at())
	j.NextAttemptAt = at()
	switch random.IntN(5) {
	case 0:
		j.Status = core.ArchiveFailed
	case 1:
		j.Status, j.UpdatedAt = core.ArchiveLeased, at()
	case 2:
		j.Status, j.Lease = core.ArchiveLeased, &core.ArchiveLease{ID: "l", Owner: "o", ExpiresAt: at()}
	case 3:
		j.Status, j.Result = core.ArchiveDone, &core.ArchiveResult{ArchiveID: "a", CiphertextSHA256: "c", CompletedAt: at()}
	}
	return j
}

func TestMarkersCanBeReadBackAndOrderAsTimeDoes(t *testing.T) {
	seed := mathrand.Uint64()
	t.Logf("seed %d", seed)
	random := mathrand.New(mathrand.NewPCG(seed, 0))
	ids := core.NewIDs(core.SystemClock{}, rand.Reader)
	var last marker
	var lastSource sourceMark
	for range 5000 {
		j := someJob(random, ids)
		m := markerOf(j, newNonce(ids))
		if got, ok := parseMarker(m.key); !ok || !reflect.DeepEqual(got, m) {
			t.Fatalf("%+v came back as %+v", m, got)
		}
		if len(m.key) > 220 || strings.Count(m.key, "/") != 1 {
			t.Fatalf("key %q does not fit a directory of every server", m.key)
		}
		if prefix := m.key[:8]; last.key != "" && prefix == last.key[:8] && last.at != m.at &&
			cmp.Compare(m.key, last.key) != cmp.Compare(m.at, last.at) {
			t.Fatalf("%s and %s are not in the order of time", m.key, last.key)
		}
		s := sourceMarkOf(j, newNonce(ids))
		if got, ok := parseSourceMark(s.key); !ok || got != s {
			t.Fatalf("%+v came back as %+v", s, got)
		}
		if last.key != "" && s.observation().ObservedBefore(lastSource.observation()) != (s.key[len(sourcePrefix)+65:] < lastSource.key[len(sourcePrefix)+65:]) {
			t.Fatalf("%s and %s are not in the order of observations", s.key, lastSource.key)
		}
		last, lastSource = m, s
	}
}

func TestOtherKeysAreNoMarkers(t *testing.T) {
	id, nonce := strings.Repeat("a", 64), strings.Repeat("0", 32)
	at := "20260301T120000.000Z"
	for _, key := range []string{"", "open/", "open/due_", duePrefix + join(at, at, id, "done", nonce),
		duePrefix + join(at, at, id, "ready"), duePrefix + join("20261301T120000.000Z", at, id, "ready", nonce),
		duePrefix + join(at, at, id[1:], "ready", nonce), duePrefix + join(at, at, id, "ready", nonce+"0"),
		failedPrefix + join(at, id), donePrefix + join(at, at, id, "ready", nonce), damagedPrefix + id, "jobs/" + id} {
		if m, ok := parseMarker(key); ok {
			t.Errorf("%q was read as %+v", key, m)
		}
	}
	for _, key := range []string{"", "source/", "source/x/y", sourcePrefix + id + "/" + join(at, "1x", id, nonce),
		sourcePrefix + id + "/" + join(at, "1", id, nonce+"0"), sourcePrefix + id + "/" + join(at, "1", id, nonce[1:]+"x")} {
		if m, ok := parseSourceMark(key); ok {
			t.Errorf("%q was read as %+v", key, m)
		}
	}
}

func TestANonceTellsWhenItWasMade(t *testing.T) {
	now := core.InstantOf(time.Now())
	got := nonceTime(newNonce(core.NewIDs(core.SystemClock{}, rand.Reader)))
	if d := got.Sub(now); d < 0 || d > time.Minute {
		t.Fatalf("off by %s", d)
	}
}

func FuzzParseMarker(f *testing.F) {
	random := mathrand.New(mathrand.NewPCG(1, 1))
	ids := core.NewIDs(core.SystemClock{}, rand.Reader)
	for range 8 {
		j := someJob(random, ids)
		f.Add(markerOf(j, newNonce(ids)).key)
		f.Add(sourceMarkOf(j, newNonce(ids)).key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if m, ok := parseMarker(key); ok && (m.key != key || len(m.id) != 64 || len(m.nonce) != 32) {
			t.Fatalf("%q was read as %+v", key, m)
		}
		if m, ok := parseSourceMark(key); ok && (m.key != key || len(m.id) != 64) {
			t.Fatalf("%q was read as %+v", key, m)
		}
	})
}
