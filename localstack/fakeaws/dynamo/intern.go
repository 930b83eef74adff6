package dynamo

import "sync"

// maxInterned bounds the table of known attribute names; names beyond it are
// simply not shared.
const maxInterned = 4096

// maxInternedSize keeps long names out of the table.
const maxInternedSize = 64

// An interner gives equal attribute names one string: requests name the same few
// dozen attributes again and again.
type interner struct {
	mu    sync.RWMutex
	names map[string]string
}

func newInterner() *interner { return &interner{names: map[string]string{}} }

// intern returns the string for a name in a buffer.
func (n *interner) intern(name []byte) string {
	if len(name) > maxInternedSize {
		return string(name)
	}
	n.mu.RLock()
	known, ok := n.names[string(name)]
	full := len(n.names) >= maxInterned
	n.mu.RUnlock()
	if ok {
		return known
	}
	owned := string(name)
	if !full {
		n.mu.Lock()
		n.names[owned] = owned
		n.mu.Unlock()
	}
	return owned
}
