package disk

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"

	"drawbridge/localstack/fakeaws/engine"
)

const sector = 512

// A forgetfulDisk keeps of the logs what was synced. Of what came later a loss of
// power leaves any sectors. The data file is bbolt's: of it each transaction is there
// or not.
type forgetfulDisk struct {
	random *rand.Rand
	event  func() // after each write and sync

	mu    sync.Mutex
	files map[string]*forgetfulFile
}

type forgetfulFile struct {
	osFile
	disk   *forgetfulDisk
	stable []byte
	// later is what was not synced: changes of the file, in order.
	later []func(data []byte, sectors func() bool) []byte
}

func newDisk(random *rand.Rand) *forgetfulDisk {
	return &forgetfulDisk{random: random, event: func() {}, files: map[string]*forgetfulFile{}}
}

func (d *forgetfulDisk) open(path string, flags int) (stableFile, error) {
	before, err := os.ReadFile(path)
	if err != nil && flags&os.O_CREATE == 0 {
		return nil, err
	}
	file, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	f := &forgetfulFile{osFile: osFile{file}, disk: d, stable: before}
	if flags&os.O_TRUNC != 0 {
		f.later = append(f.later, func(data []byte, kept func() bool) []byte {
			if kept() {
				return nil
			}
			return data
		})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[filepath.Base(path)] = f
	return f, nil
}

func (f *forgetfulFile) WriteAt(written []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(written, at)
	written = bytes.Clone(written)
	f.later = append(f.later, func(data []byte, kept func() bool) []byte {
		for i := 0; i < len(written); {
			size := min(len(written)-i, sector-(int(at)+i)%sector)
			if kept() {
				end := int(at) + i + size
				data = append(data, make([]byte, max(0, end-len(data)))...)
				copy(data[end-size:], written[i:i+size])
			}
			i += size
		}
		return data
	})
	f.disk.event()
	return n, err
}

func (f *forgetfulFile) Sync() error {
	for _, change := range f.later {
		f.stable = change(f.stable, func() bool { return true })
	}
	f.later = nil
	f.disk.event()
	return nil
}

// losePower returns a folder as the loss of power leaves it now. The logs must not be
// written meanwhile.
func (d *forgetfulDisk) losePower(t *testing.T, dir string, db *bolt.DB) string {
	t.Helper()
	to := t.TempDir()
	for name, f := range d.files {
		chance := d.random.IntN(4) // 0 keeps nothing, 3 all
		data := bytes.Clone(f.stable)
		for _, change := range f.later {
			data = change(data, func() bool { return d.random.IntN(3) < chance })
		}
		if err := os.WriteFile(filepath.Join(to, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(to, dataFile)
	err := db.View(func(tx *bolt.Tx) error { return tx.CopyFile(path, 0o600) })
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// Whatever a loss of power leaves of what was not synced, the next start finds what
// was acknowledged, and nothing of a later group without an earlier one. So it is when
// power goes again soon after.
func TestNothingAcknowledgedIsLostWhenThePowerGoes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const groups, losses = 250, 8
	type loss struct {
		dir                    string
		acknowledged, appended int
		times                  int // that power went until here
	}
	lost := []loss{{dir: t.TempDir()}}
	for len(lost) > 0 {
		from := lost[0]
		lost = lost[1:]
		d := newDisk(random)
		j, err := openOn(from.dir, d.open)
		if err != nil {
			t.Fatalf("after %d losses, with %d groups acknowledged: %v", from.times, from.acknowledged, err)
		}
		n := checkGroups(t, load(t, j, "s"), from.acknowledged, from.appended)
		acknowledged, left := n, losses
		switch {
		case from.times == 3:
			left = 0
		case from.times > 0:
			left = 1
		}
		const each = 2 * groups / losses // events, of which a group has two
		next := 1 + random.IntN(each)
		d.event = func() { // from the committer, while this test waits for it
			if next--; next == 0 && left > 0 {
				left--
				lost = append(lost, loss{d.losePower(t, from.dir, j.db), acknowledged, n, from.times + 1})
				next = 1 + random.IntN(2*each)
			}
		}
		for i := 0; i < groups && left > 0; i++ {
			n++
			size := 1 + random.IntN(80_000)
			if random.IntN(60) == 0 {
				size = maxEntry
			}
			body := strconv.Itoa(n) + " " + strings.Repeat("x", size)
			must(t, j.Append([]engine.Write{set("key-"+strconv.Itoa(n%keptRecords), body), set("last", strconv.Itoa(n))}))
			acknowledged = n
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(from.dir); err != nil {
			t.Fatal(err)
		}
	}
}

// The logs of another time are gone for good before a data file that was put back is
// in use: else they could come back, and go on where it goes on.
func TestLogsOfAnotherTimeDoNotComeBackWhenThePowerGoes(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	must(t, j.Append([]engine.Write{set("a", "1")}))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	backup, err := os.ReadFile(filepath.Join(dir, dataFile))
	if err != nil {
		t.Fatal(err)
	}
	j = open(t, dir)
	must(t, j.Append([]engine.Write{set("a", "2")}))
	load(t, j, "s") // turns to the other log
	must(t, j.Append([]engine.Write{set("a", "3")}))
	crashed := copyFolder(t, dir)
	edited(t, crashed, dataFile, func([]byte) []byte { return backup })

	d := newDisk(rand.New(rand.NewPCG(1, 1)))
	j, err = openOn(crashed, d.open)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	must(t, j.Append([]engine.Write{set("b", "2")}))
	want := map[string]string{"a": "1", "b": "2"}
	for range 20 {
		j, err := Open(d.losePower(t, crashed, j.db))
		if err != nil {
			t.Fatal(err)
		}
		if got := load(t, j, "s"); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
