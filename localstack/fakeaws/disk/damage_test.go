package disk

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"drawbridge/localstack/fakeaws/engine"
)

// A file that lost its end, or pages of which were overwritten, is told at
// Open or while it is read. It never ends the process.
func TestADamagedFileIsAnErrorAndNoCrash(t *testing.T) {
	whole := writtenFile(t)
	for _, kept := range []int{1, 100, 4096, 8192, 3 * 4096, 5 * 4096, len(whole) / 2} {
		t.Run(fmt.Sprintf("cut to %d bytes", kept), func(t *testing.T) {
			if err := readDamaged(t, whole[:kept]); err == nil {
				t.Error("the rest was read without an error")
			}
		})
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range 100 {
		damaged := append([]byte(nil), whole...)
		page := damaged[random.IntN(len(whole)/4096)*4096:][:4096]
		for i := range page {
			page[i] = byte(random.Uint32())
		}
		if err := readDamaged(t, damaged); err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("round %d: %v, want ErrDamaged", round, err)
		}
	}
}

// A file that loses its end while it is used is an error too, and Close does not wait
// for what bbolt then holds. The logs keep what was acknowledged.
func TestADataFileThatIsCutWhileUsedIsAnErrorAndNoHang(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file that is mapped cannot be cut")
	}
	for _, kept := range []int64{0, 4096, 3 * 4096} {
		dir := t.TempDir()
		j, err := Open(dir) // it is closed below, once
		if err != nil {
			t.Fatal(err)
		}
		must(t, j.Append([]engine.Write{set("a", strings.Repeat("v", 20_000))}))
		load(t, j, "s")
		must(t, j.Append([]engine.Write{set("b", "1")}))
		if err := os.Truncate(filepath.Join(dir, dataFile), kept); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			err := j.Load("s", func(string, []byte) error { return nil })
			if err == nil {
				err = errors.New("Load read a file that is gone")
			}
			if closed := j.Close(); !errors.Is(closed, ErrDamaged) {
				err = fmt.Errorf("Close: %v, want ErrDamaged", closed)
			}
			ended <- err
		}()
		select {
		case err := <-ended:
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("cut to %d bytes: %v, want ErrDamaged", kept, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("cut to %d bytes: Close hangs", kept)
		}
	}
}

// writtenFile is the data file of a journal with records of several sizes.
func writtenFile(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	j := open(t, dir)
	for i := range 50 {
		must(t, j.Append([]engine.Write{
			set(strconv.Itoa(i), strings.Repeat("v", 100*i)),
			{Space: "body", Key: strconv.Itoa(i % 5), Value: make([]byte, 20_000)},
		}))
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(dir, dataFile))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// readDamaged opens a folder with the file and reads all of it.
func readDamaged(t *testing.T, file []byte) error {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, dataFile), file, 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = j.Close() }() // what was damaged may end in an error
	for _, space := range []string{"s", "body"} {
		if err := j.Load(space, func(string, []byte) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}
