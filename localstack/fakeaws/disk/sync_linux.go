package disk

import (
	"os"
	"syscall"
)

// syncData makes a file's data stable. What else fsync writes, the time of the last
// change, costs a commit of the file system's own journal.
func syncData(file *os.File) error {
	for {
		if err := syscall.Fdatasync(int(file.Fd())); err != syscall.EINTR {
			return err
		}
	}
}
