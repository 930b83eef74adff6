package disk

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	bolt "go.etcd.io/bbolt"

	"drawbridge/localstack/fakeaws/engine"
)

// ErrClosed is the fate of writes appended after Close, and of what waits for
// a barrier then: it may have seen such a write.
var ErrClosed = errors.New("disk: the journal is closed")

// A Journal is an engine.Journal in a folder. Its methods may be called from
// many goroutines.
type Journal struct {
	folder *folder
	db     *bolt.DB

	mu         sync.Mutex
	work       sync.Cond // the committer waits here for writes or for closing
	open       *group    // gathers writes; never nil
	committing *group    // nil while the committer waits
	err        error     // once set, nothing more is acknowledged
	closing    bool
	stopped    chan struct{} // closed when the committer has ended
}

var _ engine.Journal = (*Journal)(nil)

// record names one record.
type record struct{ space, key string }

// A group is the writes of one commit and the ticket for them.
type group struct {
	writes map[record][]byte // last value; nil deletes
	done   chan struct{}     // closed when stable or failed
	err    error             // set before done is closed
}

func newGroup() *group {
	return &group{writes: map[record][]byte{}, done: make(chan struct{})}
}

// Wait implements engine.Ticket.
func (g *group) Wait() error {
	<-g.done
	return g.err
}

// Done is closed when Wait will not block.
func (g *group) Done() <-chan struct{} { return g.done }

func (g *group) end(err error) {
	g.err = err
	close(g.done)
}

// ended returns a ticket that needs no wait.
func ended(err error) *group {
	g := &group{done: make(chan struct{})}
	g.end(err)
	return g
}

// Append implements engine.Journal. Writes that the store cannot hold (an
// empty key or space, a key over 32 KB) fail as a whole, without poisoning.
func (j *Journal) Append(writes []engine.Write) engine.Ticket {
	for _, w := range writes {
		if err := checkName(w); err != nil {
			return ended(err)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.err != nil:
		return ended(j.err)
	case j.closing:
		return ended(ErrClosed)
	case len(writes) == 0:
		return j.barrier()
	}
	for _, w := range writes {
		j.open.writes[record{w.Space, w.Key}] = w.Value
	}
	j.work.Signal()
	return j.open
}

func checkName(w engine.Write) error {
	switch {
	case w.Space == "" || strings.HasPrefix(w.Space, reserved):
		return fmt.Errorf("disk: %q is not the name of a space", w.Space)
	case w.Key == "" || len(w.Key) > bolt.MaxKeySize:
		return fmt.Errorf("disk: a key has 1 to %d bytes, not %d", bolt.MaxKeySize, len(w.Key))
	}
	return nil
}

// Barrier implements engine.Journal.
func (j *Journal) Barrier() engine.Ticket {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.err != nil:
		return ended(j.err)
	case j.closing:
		return ended(ErrClosed)
	}
	return j.barrier()
}

// barrier is the newest group that is not stable yet. j.mu is held.
func (j *Journal) barrier() engine.Ticket {
	switch {
	case len(j.open.writes) > 0:
		return j.open
	case j.committing != nil:
		return j.committing
	}
	return stable
}

var stable = ended(nil)

// commitGroups is the committer: it ends when the journal is closing and
// everything appended is stable or failed.
func (j *Journal) commitGroups() {
	defer close(j.stopped)
	j.mu.Lock()
	defer j.mu.Unlock()
	for {
		for len(j.open.writes) == 0 {
			if j.closing {
				return
			}
			j.work.Wait()
		}
		g := j.open
		j.open, j.committing = newGroup(), g
		err := j.err
		if err == nil {
			j.mu.Unlock()
			err = j.commit(g)
			j.mu.Lock()
		}
		j.committing = nil
		if err != nil && j.err == nil {
			j.err = fmt.Errorf("disk: an earlier commit failed: %w", err)
		}
		g.end(err)
	}
}

// commit makes a group stable with one transaction. Sorted writes touch each
// page once.
func (j *Journal) commit(g *group) error {
	records := make([]record, 0, len(g.writes))
	for r := range g.writes {
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b record) int {
		if c := strings.Compare(a.space, b.space); c != 0 {
			return c
		}
		return strings.Compare(a.key, b.key)
	})
	return guarded(func() error {
		return j.db.Update(func(tx *bolt.Tx) error { return g.writeTo(tx, records) })
	})
}

// writeTo writes the group's last values of the records, which are sorted.
func (g *group) writeTo(tx *bolt.Tx, records []record) error {
	var bucket *bolt.Bucket
	for i, r := range records {
		if i == 0 || r.space != records[i-1].space {
			var err error
			if bucket, err = tx.CreateBucketIfNotExists([]byte(r.space)); err != nil {
				return fmt.Errorf("make the space %q: %w", r.space, err)
			}
		}
		if err := put(bucket, r.key, g.writes[r]); err != nil {
			return fmt.Errorf("write a record of %q: %w", r.space, err)
		}
	}
	return nil
}

func put(bucket *bolt.Bucket, key string, value []byte) error {
	if value == nil {
		return bucket.Delete([]byte(key))
	}
	return bucket.Put([]byte(key), value)
}

// Read implements engine.Journal. It costs a copy of the value.
func (j *Journal) Read(space, key string) ([]byte, error) {
	if value, ok := j.pending(record{space, key}); ok {
		return value, nil
	}
	var value []byte
	err := j.view(func(tx *bolt.Tx) error {
		if bucket := tx.Bucket([]byte(space)); bucket != nil {
			value = bytes.Clone(bucket.Get([]byte(key)))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("disk: read a record of %q: %w", space, err)
	}
	return value, nil
}

// pending looks a record up among the writes that bbolt may not show yet. A
// group leaves here only after its transaction is visible.
func (j *Journal) pending(r record) (value []byte, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if value, ok = j.open.writes[r]; !ok && j.committing != nil {
		value, ok = j.committing.writes[r]
	}
	return value, ok
}

// Load implements engine.Journal. It first waits for everything appended so
// far. fn must not wait for a ticket: a commit may need to wait for Load.
func (j *Journal) Load(space string, fn func(key string, value []byte) error) error {
	if err := j.Barrier().Wait(); err != nil {
		return err
	}
	return j.view(func(tx *bolt.Tx) error {
		bucket := tx.Bucket([]byte(space))
		if bucket == nil {
			return nil
		}
		return bucket.ForEach(func(key, value []byte) error { return fn(string(key), value) })
	})
}

// view reads the file; damage is an error.
func (j *Journal) view(fn func(tx *bolt.Tx) error) error {
	return guarded(func() error { return j.db.View(fn) })
}

// Close makes stable what was appended and gives the folder up. It returns the
// error of a commit that failed since Open.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closing {
		j.mu.Unlock()
		<-j.stopped
		return nil
	}
	j.closing = true
	j.work.Signal()
	j.mu.Unlock()
	<-j.stopped
	j.mu.Lock()
	failed := j.err
	j.mu.Unlock()
	return errors.Join(failed, j.folder.release(j.db))
}
