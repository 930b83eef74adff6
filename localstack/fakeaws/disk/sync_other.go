//go:build !linux

package disk

import "os"

// syncData makes a file's data stable.
func syncData(file *os.File) error { return file.Sync() }
