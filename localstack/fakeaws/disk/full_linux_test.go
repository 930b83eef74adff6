package disk

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"drawbridge/localstack/fakeaws/engine"
)

// onFullDisk runs the test again in a process of its own, where setRoom sets how long
// a file may get: as a disk that is full. In this process it returns false.
func onFullDisk(t *testing.T) (dir string, setRoom func(bytes uint64), ok bool) {
	t.Helper()
	const childDir = "DISK_FULL_CHILD_DIR"
	dir = os.Getenv(childDir)
	if dir == "" {
		child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		child.Env = append(os.Environ(), childDir+"="+t.TempDir())
		if out, err := child.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return "", nil, false
	}
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	return dir, func(bytes uint64) {
		t.Helper()
		limit.Cur = min(bytes, limit.Max)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
	}, true
}

const enough = 1 << 40

// On a disk that is full the file cannot be made. When there is room again, the
// folder can be opened.
func TestAFolderThatCouldNotBeMadeCanBeMadeLater(t *testing.T) {
	dir, setRoom, ok := onFullDisk(t)
	if !ok {
		return
	}
	for _, room := range []uint64{0, 4096, 8192, 12288} {
		setRoom(room)
		if _, err := Open(dir); err == nil {
			t.Errorf("opened with room for %d bytes", room)
		}
		setRoom(enough)
		if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
			t.Errorf("room for %d bytes: %v is left, %v", room, left, err)
		}
	}
	open(t, dir)
}

// Whether a log or the data file takes no more: what was acknowledged is there when
// there is room again, also after a start without.
func TestNothingAcknowledgedIsLostOnAFullDisk(t *testing.T) {
	dir, setRoom, ok := onFullDisk(t)
	if !ok {
		return
	}
	for _, room := range []uint64{300_000, maxLog + maxEntry} {
		dir := filepath.Join(dir, strconv.FormatUint(room, 10))
		j := open(t, dir)
		setRoom(room)
		acknowledged, n := 0, 1
		for ; n < 1000; n++ {
			body := strconv.Itoa(n) + " " + strings.Repeat("x", 100_000)
			if err := j.Append([]engine.Write{set("key-"+strconv.Itoa(n%keptRecords), body), set("last", strconv.Itoa(n))}).Wait(); err != nil {
				break
			}
			acknowledged = n
		}
		if acknowledged == 0 || n == 1000 {
			t.Errorf("room for %d bytes: %d groups were acknowledged", room, acknowledged)
		}
		if err := j.Close(); err == nil {
			t.Errorf("room for %d bytes: Close did not tell of the failure", room)
		}
		if j, err := Open(dir); err == nil { // what the log holds has room in the data file
			_ = j.Close()
		}
		setRoom(enough)
		j = open(t, dir)
		checkGroups(t, load(t, j, "s"), acknowledged, n)
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
}
