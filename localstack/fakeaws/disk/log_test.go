package disk

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"drawbridge/localstack/fakeaws/engine"
)

// copyFolder is a data folder as a crash leaves it, while nothing is being written.
func copyFolder(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// logged makes a folder whose records 1 to n are in its first log alone, one group
// each, and returns it as a crash leaves it.
func logged(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	j := open(t, dir)
	for i := 1; i <= n; i++ {
		must(t, j.Append([]engine.Write{set(strconv.Itoa(i), strings.Repeat("v", 10*i))}))
	}
	return copyFolder(t, dir)
}

// edited changes a file of the folder.
func edited(t *testing.T, dir, name string, change func([]byte) []byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, change(data), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// entryBounds are where the entries of a log begin, and where the last one ends.
func entryBounds(t *testing.T, dir string) []int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, logName(0)))
	if err != nil {
		t.Fatal(err)
	}
	bounds := []int{0}
	for at := 0; at < len(data) && string(data[at:at+4]) == entryMagic; {
		length := int(data[at+4])<<24 | int(data[at+5])<<16 | int(data[at+6])<<8 | int(data[at+7])
		at += (headerSize + length + entryAlign - 1) / entryAlign * entryAlign
		bounds = append(bounds, at)
	}
	return bounds
}

// Of the group that was being written when the power went, any part can be there.
func TestALogThatWasCutOffHoldsWhatCameBefore(t *testing.T) {
	whole := logged(t, 5)
	bounds := entryBounds(t, whole)
	if len(bounds) != 6 {
		t.Fatalf("the log has %d entries, want 5", len(bounds)-1)
	}
	for cut := bounds[4]; cut < bounds[5]; cut += 7 {
		dir := copyFolder(t, whole)
		edited(t, dir, logName(0), func(data []byte) []byte { return data[:cut] })
		j := open(t, dir)
		if got := len(load(t, j, "s")); got < 4 || got == 5 && cut < bounds[5]-entryAlign {
			t.Errorf("cut at %d of %d: %d records, want 4", cut, bounds[5], got)
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
	for range 50 { // sectors that were not written yet are as they were before
		dir := copyFolder(t, whole)
		edited(t, dir, logName(0), func(data []byte) []byte {
			from := bounds[4] + rand.IntN(bounds[5]-bounds[4])
			return append(data[:from], make([]byte, len(data)-from)...)
		})
		if got := len(load(t, open(t, dir), "s")); got < 4 {
			t.Errorf("%d records, want 4 or 5", got)
		}
	}
}

// Unlike the last group, earlier ones have been acknowledged: they are not left out
// without a word.
func TestDamageBeforeTheLastEntryOfALogIsTold(t *testing.T) {
	whole := logged(t, 5)
	bounds := entryBounds(t, whole)
	for i := range 4 {
		for at := bounds[i]; at < bounds[i]+headerSize-4; at += 3 {
			dir := copyFolder(t, whole)
			edited(t, dir, logName(0), func(data []byte) []byte { data[at] ^= 0x10; return data })
			if _, err := Open(dir); !errors.Is(err, ErrDamaged) {
				t.Errorf("byte %d of entry %d changed: %v, want ErrDamaged", at-bounds[i], i+1, err)
			}
		}
	}
	for i := range logs {
		dir := copyFolder(t, whole)
		if err := os.Remove(filepath.Join(dir, logName(i))); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); !errors.Is(err, ErrDamaged) || errors.Is(err, os.ErrClosed) {
			t.Errorf("without log %d: %v, want ErrDamaged and nothing else", i, err)
		}
	}
	// A length that is beyond the numbers of a small processor.
	edited(t, whole, logName(0), func(data []byte) []byte { copy(data[magicEnd:], "\xff\xff\xff\xff"); return data })
	if _, err := Open(whole); !errors.Is(err, ErrDamaged) {
		t.Errorf("%v, want ErrDamaged", err)
	}
}

// A data file of another time is not made one with logs that go on from elsewhere.
func TestLogsThatDoNotFollowTheDataFileAreDamage(t *testing.T) {
	dir := logged(t, 3)
	older := copyFolder(t, dir)
	j := open(t, dir)
	for i := range 3 {
		must(t, j.Append([]engine.Write{set(strconv.Itoa(i), "later")}))
	}
	newer := copyFolder(t, dir)
	for i := range logs {
		later, err := os.ReadFile(filepath.Join(newer, logName(i)))
		if err != nil {
			t.Fatal(err)
		}
		edited(t, older, logName(i), func([]byte) []byte { return later })
	}
	if _, err := Open(older); !errors.Is(err, ErrDamaged) {
		t.Errorf("%v, want ErrDamaged", err)
	}
}

// A data file that was closed in order is whole without its logs, and whatever lies
// beside it: a copy of that file alone is a backup.
func TestAClosedDataFileIsWholeByItself(t *testing.T) {
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
	crashed := copyFolder(t, dir)
	edited(t, crashed, dataFile, func([]byte) []byte { return backup })
	alone := t.TempDir()
	if err := os.WriteFile(filepath.Join(alone, dataFile), backup, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{crashed, alone} {
		j := open(t, dir)
		if got, want := load(t, j, "s"), map[string]string{"a": "1"}; !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		must(t, j.Append([]engine.Write{set("b", "2")}))
		if got, want := load(t, open(t, copyFolder(t, dir)), "s"), map[string]string{"a": "1", "b": "2"}; !maps.Equal(got, want) {
			t.Errorf("after a crash: %v, want %v", got, want)
		}
	}
}

func TestAFolderOfTheFormatWithoutLogsIsReadAndConverted(t *testing.T) {
	dir := t.TempDir()
	edit(t, filepath.Join(dir, dataFile), func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte(formatBucket))
		s, errToo := tx.CreateBucket([]byte("s"))
		return errors.Join(err, errToo, b.Put([]byte(formatKey), []byte(formatBefore)), s.Put([]byte("a"), []byte("1")))
	})
	j := open(t, dir)
	if got, want := load(t, j, "s"), map[string]string{"a": "1"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	must(t, j.Append([]engine.Write{set("b", "2")}))
	if got, want := load(t, open(t, copyFolder(t, dir)), "s"), map[string]string{"a": "1", "b": "2"}; !maps.Equal(got, want) {
		t.Errorf("after a crash: %v, want %v", got, want)
	}
}

// When the data file takes no more, what the logs hold is neither lost nor
// forgotten, and soon nothing more is acknowledged.
func TestADataFileThatFailsLosesNothing(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	must(t, j.Append([]engine.Write{set("a", "1")}))
	if err := j.db.Close(); err != nil {
		t.Fatal(err)
	}
	must(t, j.Append([]engine.Write{set("a", "2")}))
	if err := j.Load("s", func(string, []byte) error { return nil }); err == nil {
		t.Error("Load read a file that is gone")
	}
	if err := j.Append([]engine.Write{set("a", "3")}).Wait(); err == nil {
		t.Error("a write was acknowledged after the data file had failed")
	}
	if err := j.Close(); err == nil {
		t.Error("Close did not tell of the failure")
	}
	if got, want := load(t, open(t, dir), "s"), map[string]string{"a": "2"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A process is killed at any instant while its logs turn all the time. What it was
// told is stable is there, and nothing of a later group without an earlier one.
func TestNothingAcknowledgedIsLostWhenTheProcessIsKilled(t *testing.T) {
	const childDir = "DISK_KILLED_CHILD_DIR"
	if dir := os.Getenv(childDir); dir != "" {
		writeUntilKilled(dir)
		return
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	for round := range 8 {
		child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		child.Env = append(os.Environ(), childDir+"="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		acknowledged := 0
		lines := bufio.NewScanner(out)
		end := time.Duration(50+random.IntN(200)) * time.Millisecond
		for lines.Scan() {
			n, err := strconv.Atoi(lines.Text())
			if err != nil {
				t.Fatalf("the child said %q", lines.Text())
			}
			if acknowledged == 0 {
				time.AfterFunc(end, func() { _ = child.Process.Kill() }) // Wait tells
			}
			acknowledged = n
		}
		_ = child.Wait() // it was killed
		if acknowledged == 0 {
			t.Fatal("the child acknowledged nothing")
		}
		j := open(t, dir)
		records := load(t, j, "s")
		checkGroups(t, records, acknowledged, math.MaxInt)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

const keptRecords = 50

// checkGroups checks that the records are what the groups up to one made of them, which
// is none before the last acknowledged nor after the last appended, and returns it.
func checkGroups(t *testing.T, records map[string]string, acknowledged, appended int) int {
	t.Helper()
	last, _ := strconv.Atoi(records["last"]) // 0 when there is none
	if last < acknowledged || last > appended {
		t.Errorf("the last group there is %q, the last acknowledged %d, the last appended %d", records["last"], acknowledged, appended)
	}
	for i := range keptRecords {
		// The newest group that wrote the key, of all up to the last.
		want := last - (last-i+keptRecords)%keptRecords
		if got, _, _ := strings.Cut(records["key-"+strconv.Itoa(i)], " "); want > 0 && got != strconv.Itoa(want) {
			t.Errorf("key %d is of group %s, want %d (last %d)", i, got, want, last)
		}
	}
	return last
}

// writeUntilKilled goes on from the last group, and tells of each that is stable.
// Groups have several sizes: some are too large for the log.
func writeUntilKilled(dir string) {
	j, err := Open(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	value, err := j.Read("s", "last")
	if err != nil {
		fmt.Println(err)
		return
	}
	n, _ := strconv.Atoi(string(value)) // 0 in a new folder
	type written struct {
		n      int
		ticket engine.Ticket
	}
	tickets := make(chan written, 8)
	go func() {
		for n++; ; n++ {
			size := 1 + rand.IntN(40_000)
			if n%97 == 0 {
				size = maxEntry
			}
			body := strconv.Itoa(n) + " " + string(bytes.Repeat([]byte("x"), size))
			tickets <- written{n, j.Append([]engine.Write{set("key-"+strconv.Itoa(n%keptRecords), body), set("last", strconv.Itoa(n))})}
		}
	}()
	for w := range tickets {
		if err := w.ticket.Wait(); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(w.n)
	}
}
