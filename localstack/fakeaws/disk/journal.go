package disk

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
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
	folder   *folder
	db       *bolt.DB
	identity uint64 // of the data file, in the entries of its logs
	logs     [logs]*logFile

	// The committer's own.
	sequence uint64     // of the last group
	buffer   []byte     // the last entry, to be used again
	stored   chan error // gets the outcome of storing the log that is not written; nil when none is

	mu         sync.Mutex
	work       sync.Cond // the committer waits here for writes or for closing
	open       *group    // gathers writes; never nil
	committing *group    // nil while the committer waits
	active     int       // the log that is written
	err        error     // once set, nothing more is acknowledged
	closing    bool
	stopped    chan struct{} // closed when the committer has ended
	closed     sync.Once
	closeErr   error // what Close returns
}

var _ engine.Journal = (*Journal)(nil)

// record names one record.
type record struct{ space, key string }

// A group is the writes of one commit and the ticket for them.
type group struct {
	writes map[record][]byte // last value; nil deletes
	store  bool              // everything up to it is wanted in the data file
	done   chan struct{}     // closed when stable or failed
	err    error             // set before done is closed
}

// empty tells whether there is nothing to do for the group.
func (g *group) empty() bool { return len(g.writes) == 0 && !g.store }

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
	case !j.open.empty():
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
		for j.open.empty() {
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

// commit makes a group stable: in the log, or where it is large in the data file.
func (j *Journal) commit(g *group) error {
	if len(g.writes) > 0 {
		j.sequence++
		if err := j.write(g.writes); err != nil {
			return err
		}
	}
	if g.store {
		return j.storeAll()
	}
	return nil
}

func (j *Journal) write(writes map[record][]byte) error {
	size := entrySize(writes)
	if size > maxEntry {
		if err := j.storeAll(); err != nil {
			return err
		}
		return j.store(writes, j.sequence)
	}
	if j.logs[j.active].size+int64(size) > maxLog {
		if err := j.turn(); err != nil {
			return err
		}
	}
	l := j.logs[j.active]
	j.buffer = appendEntry(j.buffer[:0], j.identity, j.sequence, writes)
	if err := l.append(j.buffer, j.sequence); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	maps.Copy(l.writes, writes)
	return nil
}

// turn begins the other log and stores what this one holds meanwhile.
func (j *Journal) turn() error {
	if err := j.awaitStored(); err != nil {
		return err
	}
	full := j.logs[j.active]
	j.mu.Lock()
	j.active = (j.active + 1) % logs
	j.logs[j.active].size = 0
	j.mu.Unlock()
	stored := make(chan error, 1)
	j.stored = stored
	go func() {
		err := j.store(full.writes, full.last)
		if err == nil {
			j.mu.Lock()
			full.writes = map[record][]byte{}
			j.mu.Unlock()
		}
		stored <- err
	}()
	return nil
}

// awaitStored waits for the log that is being stored, if one is.
func (j *Journal) awaitStored() error {
	if j.stored == nil {
		return nil
	}
	err := <-j.stored
	j.stored = nil
	return err
}

// storeAll brings everything that is in the logs into the data file.
func (j *Journal) storeAll() error {
	if len(j.logs[j.active].writes) > 0 {
		if err := j.turn(); err != nil {
			return err
		}
	}
	return j.awaitStored()
}

// store writes what groups came to, the last of the sequence, with one transaction
// of the data file. Sorted writes touch each page once.
func (j *Journal) store(writes map[record][]byte, sequence uint64) error {
	records := slices.SortedFunc(maps.Keys(writes), func(a, b record) int {
		return cmp.Or(strings.Compare(a.space, b.space), strings.Compare(a.key, b.key))
	})
	return j.folder.update(j.db, func(tx *bolt.Tx) error {
		return errors.Join(writeTo(tx, records, writes), putNumber(tx.Bucket([]byte(formatBucket)), storedKey, sequence))
	})
}

// writeTo writes the last values of the records, which are sorted.
func writeTo(tx *bolt.Tx, records []record, writes map[record][]byte) error {
	var bucket *bolt.Bucket
	for i, r := range records {
		if i == 0 || r.space != records[i-1].space {
			var err error
			if bucket, err = tx.CreateBucketIfNotExists([]byte(r.space)); err != nil {
				return fmt.Errorf("make the space %q: %w", r.space, err)
			}
		}
		if err := put(bucket, r.key, writes[r]); err != nil {
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

// pending looks a record up among the writes that bbolt may not show yet, the
// newest first. They leave here only after their transaction is visible.
func (j *Journal) pending(r record) (value []byte, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if value, ok = j.open.writes[r]; ok {
		return value, true
	}
	if j.committing != nil {
		if value, ok = j.committing.writes[r]; ok {
			return value, true
		}
	}
	for i := range logs { // the one that is written, then the one before it
		if value, ok = j.logs[(j.active+logs-i)%logs].writes[r]; ok {
			return value, true
		}
	}
	return nil, false
}

// Load implements engine.Journal. It first brings everything appended so far into
// the data file. fn must not wait for a ticket, nor call Read or Load: a commit may need
// to wait for Load, and later readers for that commit.
func (j *Journal) Load(space string, fn func(key string, value []byte) error) error {
	if err := j.storing().Wait(); err != nil {
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

// storing is a ticket for everything appended so far being in the data file.
func (j *Journal) storing() engine.Ticket {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.err != nil:
		return ended(j.err)
	case j.closing:
		return ended(ErrClosed)
	}
	j.open.store = true
	j.work.Signal()
	return j.open
}

// view reads the file; damage is an error.
func (j *Journal) view(fn func(tx *bolt.Tx) error) error {
	return guarded(func() error { return j.db.View(fn) })
}

// Close makes stable what was appended and gives the folder up; one that met damage
// may stay locked until the process ends. It returns the error of a commit that failed
// since Open. Every call returns when the first is done, and what it returns.
func (j *Journal) Close() error {
	j.mu.Lock()
	j.closing = true
	j.work.Signal()
	j.mu.Unlock()
	<-j.stopped
	j.closed.Do(func() {
		j.mu.Lock()
		failed := j.err
		j.mu.Unlock()
		j.closeErr = errors.Join(j.end(failed), closeLogs(j.logs), j.folder.release(j.db))
	})
	return j.closeErr
}

// end leaves all in the data file. After a failure the logs stay as they are: they
// hold what was acknowledged, and the next Open reads them.
func (j *Journal) end(failed error) error {
	if failed != nil {
		return errors.Join(failed, j.awaitStored())
	}
	if err := j.storeAll(); err != nil {
		return err
	}
	return j.folder.update(j.db, closedInOrder)
}
