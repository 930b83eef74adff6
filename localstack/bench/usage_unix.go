//go:build unix

package bench

import (
	"syscall"
	"time"
)

// OwnCPU is the processor time that this process has used; 0 where it is not known.
func OwnCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
