package disk

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

// On a disk that is full the file cannot be made. When there is room again, the
// folder can be opened. The disk is full by the file size limit of a process.
func TestAFolderThatCouldNotBeMadeCanBeMadeLater(t *testing.T) {
	const childDir = "DISK_FULL_CHILD_DIR"
	dir := os.Getenv(childDir)
	if dir == "" {
		child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		child.Env = append(os.Environ(), childDir+"="+t.TempDir())
		if out, err := child.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	for _, room := range []uint64{0, 4096, 8192, 12288} {
		limit := before
		limit.Cur = room
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); err == nil {
			t.Errorf("opened with room for %d bytes", room)
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
			t.Fatal(err)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
			t.Errorf("room for %d bytes: %v is left, %v", room, left, err)
		}
	}
	open(t, dir)
}
