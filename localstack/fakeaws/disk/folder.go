package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

const (
	dataFile = "journal.db"
	pidFile  = "journal.pid" // who holds the folder; the lock itself is on dataFile

	// reserved starts the names of buckets that are not spaces.
	reserved     = "\x00"
	formatBucket = reserved + "format"
	formatKey    = "version"
	// format is the version of what this package and the engines write. A folder
	// of version 1, which had no logs, becomes one of it; another one is refused.
	format, formatBefore = "2", "1"
	identityKey          = "identity" // what entries of this file's logs carry
	storedKey            = "stored"   // the sequence of the last group in this file
	inUseKey             = "in use"   // there until a holder ends in order: the logs count
)

// folder is the data folder held by this process.
type folder struct {
	dir     string
	openLog func(path string, flags int) (stableFile, error) // tests have a disk that forgets
	stuck   bool                                             // closing the data file would wait for ever
}

// Open takes the folder, which is made when it is absent, and returns its
// journal. A folder in use, of another format version, not a journal's or with
// a damaged file (ErrDamaged) is refused at once and left as it is; a damaged
// one may stay locked until the process ends.
func Open(dir string) (*Journal, error) { return openOn(dir, openFile) }

func openOn(dir string, openLog func(string, int) (stableFile, error)) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder: %w", err)
	}
	f := &folder{dir: dir, openLog: openLog}
	db, err := f.take()
	if err != nil {
		return nil, err
	}
	if err := f.prepare(db); err != nil {
		return nil, errors.Join(err, f.release(db))
	}
	j := &Journal{folder: f, db: db, open: newGroup(), stopped: make(chan struct{})}
	j.work = sync.Cond{L: &j.mu}
	if err := j.begin(); err != nil {
		return nil, errors.Join(fmt.Errorf("the folder %s: %w", dir, err), closeLogs(j.logs), f.release(db))
	}
	go j.commitGroups()
	return j, nil
}

// begin opens the logs and brings what they hold into the data file.
func (j *Journal) begin() error {
	var inUse bool
	err := j.view(func(tx *bolt.Tx) error {
		bucket := tx.Bucket([]byte(formatBucket))
		j.identity, j.sequence = number(bucket, identityKey), number(bucket, storedKey)
		inUse = bucket.Get([]byte(inUseKey)) != nil
		return nil
	})
	if err != nil {
		return err
	}
	if j.logs, err = j.folder.openLogs(inUse); err != nil {
		return err
	}
	writes, last, err := unstored(j.logs, j.identity, j.sequence)
	if err != nil {
		return err
	}
	if len(writes) > 0 {
		if err := j.store(writes, last); err != nil {
			return err
		}
	}
	j.sequence = last
	if inUse {
		return nil
	}
	if err := syncFolder(j.folder.dir); err != nil { // the logs' names
		return err
	}
	return j.folder.update(j.db, openedForUse)
}

func openedForUse(tx *bolt.Tx) error {
	return tx.Bucket([]byte(formatBucket)).Put([]byte(inUseKey), []byte{1})
}

func closedInOrder(tx *bolt.Tx) error {
	return tx.Bucket([]byte(formatBucket)).Delete([]byte(inUseKey))
}

// number reads a number of the format bucket; absent ones are 0.
func number(bucket *bolt.Bucket, key string) uint64 {
	if value := bucket.Get([]byte(key)); len(value) == 8 {
		return binary.BigEndian.Uint64(value)
	}
	return 0
}

func putNumber(bucket *bolt.Bucket, key string, n uint64) error {
	return bucket.Put([]byte(key), binary.BigEndian.AppendUint64(nil, n))
}

// create makes the data file where there is none. It is made under another name
// and linked when it is whole: one that was cut off, by a full disk or a crash,
// could not be told from one that lost its data.
func (f *folder) create() error {
	path := filepath.Join(f.dir, dataFile)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return nil // Open tells what is wrong with it
	}
	unfinished, err := os.CreateTemp(f.dir, dataFile+".*.new")
	if err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	defer func() { _ = os.Remove(unfinished.Name()) }() // what is left of it only takes room
	if err := unfinished.Close(); err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	db, err := bolt.Open(unfinished.Name(), 0o600, nil)
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	// An error says that another process was faster, or that the file system has
	// no links: then the file is made in its place when it is opened.
	_ = os.Link(unfinished.Name(), path)
	return nil
}

// take opens and locks the data file.
func (f *folder) take() (*bolt.DB, error) {
	if err := f.create(); err != nil {
		return nil, err
	}
	path := filepath.Join(f.dir, dataFile)
	var db *bolt.DB
	err := guarded(func() (err error) {
		db, err = bolt.Open(path, 0o600, &bolt.Options{
			Timeout:      time.Millisecond, // the shortest there is; zero waits for ever
			FreelistType: bolt.FreelistMapType,
		})
		return err
	})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("the folder %s is in use by %s; stop it or choose another folder", f.dir, f.holder())
	case err != nil:
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return db, nil
}

// prepare checks or writes the format version, names this process as the
// holder, and makes the files' names themselves survive a loss of power.
func (f *folder) prepare(db *bolt.DB) error {
	err := guarded(func() error { return checkLength(db) })
	if err == nil {
		err = f.update(db, checkFormat)
	}
	if err != nil {
		return fmt.Errorf("the folder %s: %w", f.dir, err)
	}
	if err := os.WriteFile(filepath.Join(f.dir, pidFile), []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		return fmt.Errorf("write who holds the folder: %w", err)
	}
	for _, dir := range []string{f.dir, filepath.Dir(f.dir)} {
		if err := syncFolder(dir); err != nil {
			return fmt.Errorf("sync %s: %w", dir, err)
		}
	}
	return nil
}

// update writes to the data file; damage is an error. A transaction that met damage
// could not be taken back perhaps, and then holds the file's lock for writing.
func (f *folder) update(db *bolt.DB, fn func(*bolt.Tx) error) error {
	err := guarded(func() error { return db.Update(fn) })
	f.stuck = f.stuck || errors.Is(err, ErrDamaged)
	return err
}

func checkFormat(tx *bolt.Tx) error {
	bucket := tx.Bucket([]byte(formatBucket))
	if bucket == nil {
		if name, _ := tx.Cursor().First(); name != nil {
			return errors.New("its data has no format version: it is not Drawbridge's")
		}
		var err error
		if bucket, err = tx.CreateBucket([]byte(formatBucket)); err != nil {
			return err
		}
	} else {
		switch version := string(bucket.Get([]byte(formatKey))); version {
		case format:
			return nil
		case formatBefore:
		default:
			return fmt.Errorf("its data is of format version %q; this program reads version %q", version, format)
		}
	}
	return errors.Join(bucket.Put([]byte(formatKey), []byte(format)), putNumber(bucket, identityKey, rand.Uint64()))
}

// holder names the process that holds the folder, as far as it can be known.
func (f *folder) holder() string {
	b, err := os.ReadFile(filepath.Join(f.dir, pidFile))
	if pid := strings.TrimSpace(string(b)); err == nil && pid != "" {
		return "process " + pid
	}
	return "another process"
}

// release gives the folder up. The name of the holder goes first: afterwards
// it could be the next holder's. A data file whose lock for writing is held cannot
// be closed: it stays this process's.
func (f *folder) release(db *bolt.DB) error {
	if f.stuck {
		return nil
	}
	err := os.Remove(filepath.Join(f.dir, pidFile))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, db.Close())
}

// syncFolder makes the entries of a folder stable. Windows has no such call.
func syncFolder(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
