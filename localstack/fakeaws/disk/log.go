package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
)

const (
	// logs is how many log files there are: one is written while what another
	// holds is stored in the data file.
	logs = 2
	// maxLog is the size, in bytes, at which a log is stored and begun again. A
	// start reads two of them, and memory holds what is in them.
	maxLog = 4 << 20
	// maxEntry is the largest entry. Larger groups, bodies of objects, go into the
	// data file at once: through the log they would be written twice.
	maxEntry = 1 << 20

	entryMagic  = "DBL1"
	headerSize  = 32
	entryAlign  = 64 // entries begin at multiples of it, so that they can be looked for
	magicEnd    = 4
	lengthEnd   = 8
	identityEnd = 16
	sequenceEnd = 24
)

func logName(i int) string { return fmt.Sprintf("journal.%d.log", i) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A logFile is a file of entries, one a group, each written and synced before the
// next. When it is full and all of it is in the data file, it is overwritten from
// its start: what then follows the last entry is older, which its sequence tells.
// An entry is:
//
//	"DBL1" | length of the writes, 4 bytes | identity of the data file, 8 |
//	sequence, 8 | CRC-32C of the two numbers and the writes, 4 | 4 zeros |
//	writes | zeros up to a multiple of 64
//
// Numbers are big endian. A write is its space, key and value, each behind its
// length as a varint; the value's length has one added, and is 0 for a deletion.
type logFile struct {
	file stableFile
	size int64  // where the next entry goes; the committer's
	last uint64 // sequence of the last entry; the committer's
	// writes are what its entries come to, until they are in the data file.
	// Guarded by Journal.mu.
	writes map[record][]byte
}

// A stableFile is a file whose Sync makes its data and its length stable.
type stableFile interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Name() string
	Sync() error
}

type osFile struct{ *os.File }

func (f osFile) Sync() error { return syncData(f.File) }

func openFile(path string, flags int) (stableFile, error) {
	file, err := os.OpenFile(path, flags, 0o600)
	return osFile{file}, err
}

// append writes an entry and makes it stable.
func (l *logFile) append(entry []byte, sequence uint64) error {
	if _, err := l.file.WriteAt(entry, l.size); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	if err := l.file.Sync(); err != nil {
		return fmt.Errorf("sync the log: %w", err)
	}
	l.size += int64(len(entry))
	l.last = sequence
	return nil
}

// entrySize is the most that an entry of the writes can take.
func entrySize(writes map[record][]byte) int {
	size := headerSize + entryAlign
	for r, value := range writes {
		size += 3*binary.MaxVarintLen32 + len(r.space) + len(r.key) + len(value)
	}
	return size
}

// appendEntry appends an entry to a buffer that holds whole entries or nothing.
func appendEntry(out []byte, identity, sequence uint64, writes map[record][]byte) []byte {
	start := len(out)
	out = append(out, make([]byte, headerSize)...)
	for r, value := range writes {
		out = appendSized(out, r.space)
		out = appendSized(out, r.key)
		if value == nil {
			out = append(out, 0)
			continue
		}
		out = binary.AppendUvarint(out, uint64(len(value))+1)
		out = append(out, value...)
	}
	header := out[start:]
	copy(header, entryMagic)
	binary.BigEndian.PutUint32(header[magicEnd:], uint32(len(header)-headerSize))
	binary.BigEndian.PutUint64(header[lengthEnd:], identity)
	binary.BigEndian.PutUint64(header[identityEnd:], sequence)
	binary.BigEndian.PutUint32(header[sequenceEnd:], sumOf(header))
	if over := len(header) % entryAlign; over > 0 {
		out = append(out, make([]byte, entryAlign-over)...)
	}
	return out
}

func appendSized(out []byte, text string) []byte {
	out = binary.AppendUvarint(out, uint64(len(text)))
	return append(out, text...)
}

// sumOf covers what an entry is and holds. entry ends with its writes.
func sumOf(entry []byte) uint32 {
	return crc32.Update(crc32.Checksum(entry[lengthEnd:sequenceEnd], castagnoli), castagnoli, entry[headerSize:])
}

// An entry is one that was read.
type entry struct {
	sequence uint64
	writes   []byte
	size     int // with its zeros
}

// entryAt reads the entry that begins at data[at]; false when there is none.
func entryAt(data []byte, at int, identity uint64) (entry, bool) {
	if len(data)-at < headerSize || string(data[at:at+magicEnd]) != entryMagic {
		return entry{}, false
	}
	header := data[at:]
	length := uint64(binary.BigEndian.Uint32(header[magicEnd:]))
	if length > uint64(len(header)-headerSize) || binary.BigEndian.Uint64(header[lengthEnd:]) != identity {
		return entry{}, false
	}
	whole := header[:headerSize+int(length)]
	if binary.BigEndian.Uint32(whole[sequenceEnd:]) != sumOf(whole) {
		return entry{}, false
	}
	size := (len(whole) + entryAlign - 1) / entryAlign * entryAlign
	return entry{binary.BigEndian.Uint64(whole[identityEnd:]), whole[headerSize:], size}, true
}

// entriesOf reads the entries of a log that follow one another from its start. The
// group that was being written when the process ended may be cut off: nobody was
// told of it. An entry behind it that is newer all the same, and not stored, is one
// that somebody was told of, and what came before it is damaged.
func entriesOf(data []byte, identity, stored uint64) ([]entry, error) {
	var found []entry
	newest := stored
	at := 0
	for {
		e, ok := entryAt(data, at, identity)
		if !ok || len(found) > 0 && e.sequence != found[len(found)-1].sequence+1 {
			break
		}
		found = append(found, e)
		newest = max(newest, e.sequence)
		at += e.size
	}
	for ; at < len(data); at += entryAlign {
		if e, ok := entryAt(data, at, identity); ok && e.sequence > newest {
			return nil, fmt.Errorf("%w: it lacks what comes before entry %d", ErrDamaged, e.sequence)
		}
	}
	return found, nil
}

// writesOf takes the writes of an entry into a map.
func writesOf(data []byte, into map[record][]byte) error {
	next := func() ([]byte, bool) {
		size, width := binary.Uvarint(data)
		if width <= 0 || size > uint64(len(data)-width) {
			return nil, false
		}
		text := data[width : width+int(size)]
		data = data[width+int(size):]
		return text, true
	}
	for len(data) > 0 {
		space, ok := next()
		key, okToo := next()
		size, width := binary.Uvarint(data)
		if !ok || !okToo || width <= 0 || size > uint64(len(data)-width)+1 {
			return fmt.Errorf("%w: the log holds a write that cannot be read", ErrDamaged)
		}
		data = data[width:]
		var value []byte
		if size > 0 {
			value = data[: size-1 : size-1]
			data = data[size-1:]
		}
		into[record{string(space), string(key)}] = value
	}
	return nil
}

// openLogs opens the log files. Where they count, the absence of one is damage: it
// held what its writers were told is stable. Otherwise they begin empty: what is in
// them is stored, or of another time of a data file that was put back. That they are
// empty is made stable, or a loss of power could bring it back when they count. Those
// that were opened are returned with an error too.
func (f *folder) openLogs(count bool) ([logs]*logFile, error) {
	var all [logs]*logFile
	flags := os.O_RDWR
	if !count {
		flags |= os.O_CREATE | os.O_TRUNC
	}
	for i := range all {
		file, err := f.openLog(filepath.Join(f.dir, logName(i)), flags)
		if err != nil {
			if count && errors.Is(err, os.ErrNotExist) {
				err = fmt.Errorf("%w: %w", ErrDamaged, err)
			}
			return all, fmt.Errorf("open a log: %w", err)
		}
		all[i] = &logFile{file: file, writes: map[record][]byte{}}
		if count {
			continue
		}
		if err := file.Sync(); err != nil {
			return all, fmt.Errorf("sync a log that was emptied: %w", err)
		}
	}
	return all, nil
}

func closeLogs(all [logs]*logFile) error {
	var err error
	for _, l := range all {
		if l != nil {
			err = errors.Join(err, l.file.Close())
		}
	}
	return err
}

// unstored reads what the logs hold beyond the sequence that is stored, and the
// sequence up to which they go.
func unstored(all [logs]*logFile, identity, stored uint64) (map[record][]byte, uint64, error) {
	var runs [logs][]entry
	for i, l := range all {
		data, err := io.ReadAll(io.NewSectionReader(l.file, 0, maxLog+maxEntry))
		if err == nil {
			runs[i], err = entriesOf(data, identity, stored)
		}
		if err != nil {
			return nil, 0, fmt.Errorf("read %s: %w", l.file.Name(), err)
		}
	}
	if len(runs[0]) > 0 && len(runs[1]) > 0 && runs[0][0].sequence > runs[1][0].sequence {
		runs[0], runs[1] = runs[1], runs[0]
	}
	writes := map[record][]byte{}
	last := stored
	for _, run := range runs {
		for _, e := range run {
			switch {
			case e.sequence <= stored:
				continue
			case e.sequence != last+1:
				return nil, 0, fmt.Errorf("%w: the logs lack entry %d", ErrDamaged, last+1)
			}
			if err := writesOf(e.writes, writes); err != nil {
				return nil, 0, err
			}
			last = e.sequence
		}
	}
	return writes, last, nil
}
