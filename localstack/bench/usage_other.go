//go:build !unix

package bench

import "time"

// OwnCPU is not known here.
func OwnCPU() time.Duration { return 0 }
