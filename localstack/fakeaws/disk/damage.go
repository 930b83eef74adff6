package disk

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	bolt "go.etcd.io/bbolt"
)

// ErrDamaged is met in a data file that is shorter than it says or holds pages
// that are none of bbolt's. Pages have no checksum: damage inside a value is
// only found where the value's own form shows it.
var ErrDamaged = errors.New("the data file is damaged")

// guarded runs fn and makes an error of damage to the file: bbolt panics at a
// page that is not what it should be, and touching the map of the file beyond
// the file's end is a memory fault.
func guarded(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if found := recover(); found != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, found)
		}
	}()
	return fn()
}

// checkLength refuses a file that lost its end. bbolt makes a file longer
// before it uses the pages, so that a crash alone never leaves it too short.
func checkLength(db *bolt.DB) error {
	return db.View(func(tx *bolt.Tx) error {
		info, err := os.Stat(db.Path())
		if err != nil {
			return fmt.Errorf("look at the length of the file: %w", err)
		}
		if info.Size() < tx.Size() {
			return fmt.Errorf("%w: it has %d of %d bytes", ErrDamaged, info.Size(), tx.Size())
		}
		return nil
	})
}
