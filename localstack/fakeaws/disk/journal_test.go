package disk

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"

	"drawbridge/localstack/fakeaws/engine"
)

func open(t *testing.T, dir string) *Journal {
	t.Helper()
	j, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() }) // the test may have closed it
	return j
}

func set(key, value string) engine.Write {
	return engine.Write{Space: "s", Key: key, Value: []byte(value)}
}

func must(t *testing.T, ticket engine.Ticket) {
	t.Helper()
	if err := ticket.Wait(); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, j *Journal, space string) map[string]string {
	t.Helper()
	records := map[string]string{}
	last := ""
	err := j.Load(space, func(key string, value []byte) error {
		if key <= last {
			t.Errorf("Load gave %q after %q", key, last)
		}
		last = key
		records[key] = string(value)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return records
}

func TestStableWritesAreThereAfterAnUncleanEnd(t *testing.T) {
	dir := t.TempDir()
	if os.Getenv("DISK_TEST_CHILD") != "" {
		j, err := Open(os.Getenv("DISK_TEST_CHILD"))
		if err == nil {
			j.Append([]engine.Write{set("gone", "x"), set("kept", "1")}).Wait()
			err = j.Append([]engine.Write{{Space: "s", Key: "gone"}, set("kept", "2"), set("empty", "")}).Wait()
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0) // without Close
	}
	child := exec.Command(os.Args[0], "-test.run=^TestStableWritesAreThereAfterAnUncleanEnd$")
	child.Env = append(os.Environ(), "DISK_TEST_CHILD="+dir)
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	j := open(t, dir)
	if got, want := load(t, j, "s"), map[string]string{"kept": "2", "empty": ""}; !maps.Equal(got, want) {
		t.Errorf("after reopening: %v, want %v", got, want)
	}
	if v, err := j.Read("s", "empty"); err != nil || v == nil {
		t.Errorf("Read of an empty value: %v, %v; want an empty slice, not nil", v, err)
	}
}

func TestReadSeesWritesThatAreNotStableYet(t *testing.T) {
	j := open(t, t.TempDir())
	must(t, j.Append([]engine.Write{set("a", "stable"), set("b", "stable")}))
	for i := range 200 {
		v := strconv.Itoa(i)
		ticket := j.Append([]engine.Write{set("a", v), {Space: "s", Key: "b"}})
		got, err := j.Read("s", "a")
		if err != nil || string(got) != v {
			t.Fatalf("Read right after Append: %q, %v; want %q", got, err, v)
		}
		if got, err := j.Read("s", "b"); err != nil || got != nil {
			t.Fatalf("Read of a deleted record: %q, %v; want nil", got, err)
		}
		must(t, ticket)
	}
}

func TestABarrierCoversEverythingBefore(t *testing.T) {
	j := open(t, t.TempDir())
	must(t, j.Barrier())
	var tickets []engine.Ticket
	for i := range 50 {
		tickets = append(tickets, j.Append([]engine.Write{set(strconv.Itoa(i), "v")}))
	}
	must(t, j.Barrier())
	for i, ticket := range tickets {
		select {
		case <-ticket.(*group).Done():
		default:
			t.Errorf("batch %d was not stable after the barrier", i)
		}
	}
}

// Writers share counters and check that what a reopened journal holds is the
// last acknowledged state, whole batches only.
func TestConcurrentBatchesAreWholeAndInOrder(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	var mu sync.Mutex // stands for an engine's lock
	counter := 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				mu.Lock()
				counter++
				v := strconv.Itoa(counter)
				ticket := j.Append([]engine.Write{set("x", v), set("y", v), {Space: "other", Key: "z", Value: []byte(v)}})
				mu.Unlock()
				if err := ticket.Wait(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, dir)
	want := strconv.Itoa(counter)
	if s, other := load(t, j, "s"), load(t, j, "other"); s["x"] != want || s["y"] != want || other["z"] != want {
		t.Errorf("%v %v, want %s everywhere", s, other, want)
	}
}

func TestRandomWritesMatchAModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	j := open(t, dir)
	model := map[string]string{}
	for range 400 {
		batch := make([]engine.Write, 1+r.IntN(20))
		for i := range batch {
			key := strconv.Itoa(r.IntN(60))
			batch[i] = set(key, strings.Repeat(key, r.IntN(2000)))
			if r.IntN(3) == 0 {
				batch[i].Value = nil
			}
			if batch[i].Value == nil {
				delete(model, key)
			} else {
				model[key] = string(batch[i].Value)
			}
		}
		ticket := j.Append(batch)
		if r.IntN(4) == 0 {
			must(t, ticket)
		}
		if r.IntN(100) == 0 {
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			j = open(t, dir)
		}
	}
	if got := load(t, j, "s"); !maps.Equal(got, model) {
		t.Errorf("the journal holds %d records, the model %d, or they differ", len(got), len(model))
	}
}

func TestAFailedCommitPoisonsTheJournal(t *testing.T) {
	j := open(t, t.TempDir())
	must(t, j.Append([]engine.Write{set("a", "1")}))
	if err := closeLogs(j.logs); err != nil { // as a disk that is gone
		t.Fatal(err)
	}
	first := j.Append([]engine.Write{set("a", "2")}).Wait()
	if first == nil {
		t.Fatal("a commit without a store was acknowledged")
	}
	for _, ticket := range []engine.Ticket{j.Append([]engine.Write{set("b", "1")}), j.Append(nil), j.Barrier()} {
		if err := ticket.Wait(); err == nil || !strings.Contains(err.Error(), "an earlier commit failed") {
			t.Errorf("after a failed commit: %v, want an error that says so", err)
		}
	}
	if err := j.Close(); err == nil {
		t.Error("Close did not report the failed commit")
	}
}

func TestWritesThatTheStoreCannotHoldFailAlone(t *testing.T) {
	j := open(t, t.TempDir())
	for name, w := range map[string]engine.Write{
		"empty key":      {Space: "s", Value: []byte("v")},
		"long key":       {Space: "s", Key: strings.Repeat("k", bolt.MaxKeySize+1), Value: []byte("v")},
		"empty space":    {Key: "k", Value: []byte("v")},
		"reserved space": {Space: formatBucket, Key: formatKey, Value: []byte("9")},
	} {
		if err := j.Append([]engine.Write{set("beside", name), w}).Wait(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	must(t, j.Append([]engine.Write{set("good", "1")}))
	if got, want := load(t, j, "s"), map[string]string{"good": "1"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestASecondOpenIsRefusedAndNamesTheHolder(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	_, err := Open(dir)
	if err == nil || !strings.Contains(err.Error(), "in use by process "+strconv.Itoa(os.Getpid())) {
		t.Fatalf("second Open: %v, want an error with the holder's pid", err)
	}
	must(t, j.Append([]engine.Write{set("a", "1")}))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
}

func TestAClosedJournalAcknowledgesNothing(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	before := j.Append([]engine.Write{set("a", "1")})
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	must(t, before) // Close makes stable what was appended
	if err := j.Append([]engine.Write{set("a", "2")}).Wait(); !errors.Is(err, ErrClosed) {
		t.Errorf("Append after Close: %v, want ErrClosed", err)
	}
	// An engine's memory has the refused write: who read it must not be told.
	if err := j.Barrier().Wait(); !errors.Is(err, ErrClosed) {
		t.Errorf("Barrier after Close: %v, want ErrClosed", err)
	}
	if err := j.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, pidFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the holder's name is still there: %v", err)
	}
}

// Who closes while another one does is not sent on before the folder is given up.
func TestEveryCloseReturnsWhenTheFolderIsGivenUp(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	must(t, j.Append([]engine.Write{set("a", strings.Repeat("v", maxEntry/2))}))
	var closing sync.WaitGroup
	for range 4 {
		closing.Go(func() {
			if err := j.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(dir, pidFile)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("Close returned, and the holder's name is still there: %v", err)
			}
		})
	}
	closing.Wait()

	j = open(t, dir)
	if err := closeLogs(j.logs); err != nil { // as a disk that is gone
		t.Fatal(err)
	}
	_ = j.Append([]engine.Write{set("a", "2")}).Wait() // TestAFailedCommitPoisonsTheJournal
	first, second := j.Close(), j.Close()
	if first == nil || !errors.Is(second, first) {
		t.Errorf("the first Close: %v, the second: %v; want the same error", first, second)
	}
}

func TestForeignFoldersAreRefusedAndLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		make func(t *testing.T, file string)
		want string
	}{
		"a newer format": {func(t *testing.T, file string) {
			edit(t, file, func(tx *bolt.Tx) error {
				b, err := tx.CreateBucket([]byte(formatBucket))
				return errors.Join(err, b.Put([]byte(formatKey), []byte("3")))
			})
		}, `format version "3"`},
		"another program's bbolt file": {func(t *testing.T, file string) {
			edit(t, file, func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte("theirs")); return err })
		}, "no format version"},
		"not a bbolt file": {func(t *testing.T, file string) {
			if err := os.WriteFile(file, bytes.Repeat([]byte("text "), 10_000), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, dataFile)
			c.make(t, file)
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if j, err := Open(dir); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("Open: %v, %v; want an error with %q", j, err, c.want)
			}
			after, err := os.ReadFile(file)
			if err != nil || !bytes.Equal(before, after) {
				t.Errorf("Open changed the file it refused (%v)", err)
			}
		})
	}
}

func edit(t *testing.T, file string, fn func(*bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(file, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(fn), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// Updates and deleted bodies reuse the space: without reuse this writes
// several times the bound.
func TestTheFolderDoesNotGrowUnderUpdates(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	body := bytes.Repeat([]byte("x"), 1<<20)
	for round := range 15 {
		var ticket engine.Ticket
		for i := range 10 {
			ticket = j.Append([]engine.Write{{Space: "body", Key: strconv.Itoa(i), Value: body}, set(strconv.Itoa(round), "v")})
		}
		must(t, ticket)
		for i := range 10 {
			ticket = j.Append([]engine.Write{{Space: "body", Key: strconv.Itoa(i)}})
		}
		must(t, ticket)
	}
	info, err := os.Stat(filepath.Join(dir, dataFile))
	if err != nil {
		t.Fatal(err)
	}
	const written, bound = 150, 64
	if size := info.Size() >> 20; size > bound {
		t.Errorf("the file has %d MB after %d MB of short-lived bodies, want at most %d", size, written, bound)
	}
}

func BenchmarkAppend(b *testing.B) {
	value := bytes.Repeat([]byte("v"), 1024)
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			j, err := Open(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			defer j.Close()
			b.ResetTimer()
			var wg sync.WaitGroup
			for c := range callers {
				wg.Go(func() {
					for i := c; i < b.N; i += callers {
						w := engine.Write{Space: "s", Key: strconv.Itoa(i % 10_000), Value: value}
						if err := j.Append([]engine.Write{w}).Wait(); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
