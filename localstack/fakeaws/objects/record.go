package objects

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"drawbridge/localstack/fakeaws/engine"
)

// The journal's spaces and their keys.
const (
	spaceBucket  = "s3.bucket"  // bucket
	spaceVersion = "s3.version" // bucket / key NUL version id
	spaceBody    = "s3.body"    // 16 hexadecimal digits
	spaceUpload  = "s3.upload"  // bucket / upload id
	spacePart    = "s3.part"    // bucket / upload id / part number
)

// recordFormat is the first byte of every metadata record.
const recordFormat = 1

func bodyKey(record uint64) string { return fmt.Sprintf("%016x", record) }

// versionKey is unambiguous: a bucket's name has no slash, an id has no NUL.
func versionKey(bucket, key, id string) string { return bucket + "/" + key + "\x00" + id }

func uploadKey(bucket, id string) string { return bucket + "/" + id }

func partKey(bucket, id string, number int) string {
	return fmt.Sprintf("%s/%s/%05d", bucket, id, number)
}

// A change collects the records of one operation, so that they reach the
// journal as one atomic unit. It lives under the engine's lock.
type change struct {
	e      *Engine
	writes []engine.Write
}

func (e *Engine) begin() *change { return &change{e: e} }

// commit appends the collected records; the ticket is nil in memory mode.
func (c *change) commit() engine.Ticket {
	if c.e.journal == nil || len(c.writes) == 0 {
		return nil
	}
	return c.e.journal.Append(c.writes)
}

func (c *change) write(space, key string, value []byte) {
	c.writes = append(c.writes, engine.Write{Space: space, Key: key, Value: value})
}

// keep takes over data as a segment.
func (c *change) keep(data []byte) segment {
	if c.e.journal == nil || len(data) <= inlineLimit {
		return segment{size: int64(len(data)), data: data}
	}
	s := segment{record: c.e.nextSeq(), size: int64(len(data))}
	c.write(spaceBody, bodyKey(s.record), data)
	return s
}

// drop deletes the records of segments that nothing refers to any more.
func (c *change) drop(segments ...segment) {
	for _, s := range segments {
		if s.record != 0 {
			c.write(spaceBody, bodyKey(s.record), nil)
		}
	}
}

// addVersion makes v the current version of a key and tells the key's uploads.
func (c *change) addVersion(b *bucket, key string, v *version) {
	before := b.current(key)
	if replaced := b.add(key, v); replaced != nil {
		c.drop(replaced.body.segments...) // its own record is overwritten: same id
	}
	if c.e.journal != nil {
		c.write(spaceVersion, versionKey(b.name, key, v.id), encodeVersion(v))
	}
	c.noteChange(b, key, before)
}

// removeVersion takes a version out, or returns nil when there is none.
func (c *change) removeVersion(b *bucket, key, id string) *version {
	before := b.current(key)
	removed := b.remove(key, id)
	if removed == nil {
		return nil
	}
	c.drop(removed.body.segments...)
	if c.e.journal != nil {
		c.write(spaceVersion, versionKey(b.name, key, id), nil)
	}
	c.noteChange(b, key, before)
	return removed
}

// noteChange marks the multipart uploads of a key whose current version is not
// the one before: their conditional completion conflicts from now on.
func (c *change) noteChange(b *bucket, key string, before *version) {
	after := b.current(key)
	if after == before || b.uploads.Len() == 0 {
		return
	}
	deleted := before.isObject() && !after.isObject()
	b.uploads.Ascend(&upload{key: key}, func(u *upload) bool {
		if u.key != key {
			return false
		}
		if !u.keyChanged || deleted && !u.keyDeleted {
			u.keyChanged, u.keyDeleted = true, u.keyDeleted || deleted
			c.saveUpload(b, u)
		}
		return true
	})
}

func (c *change) saveBucket(b *bucket) {
	if c.e.journal != nil {
		c.write(spaceBucket, b.name, encodeBucket(b))
	}
}

func (c *change) saveUpload(b *bucket, u *upload) {
	if c.e.journal != nil {
		c.write(spaceUpload, uploadKey(b.name, u.id), encodeUpload(u))
	}
}

func (c *change) savePart(b *bucket, u *upload, p *part) {
	if c.e.journal != nil {
		c.write(spacePart, partKey(b.name, u.id, p.number), encodePart(p))
	}
}

// removeUpload forgets an upload and its parts' records. The bodies stay: the
// caller drops those that no object took over.
func (c *change) removeUpload(b *bucket, u *upload) {
	b.uploads.Delete(u)
	delete(b.uploadsByID, u.id)
	if c.e.journal == nil {
		return
	}
	c.write(spaceUpload, uploadKey(b.name, u.id), nil)
	for number := range u.parts {
		c.write(spacePart, partKey(b.name, u.id, number), nil)
	}
}

// An encoder writes a record: numbers as varints, strings with their length.
type encoder struct{ b []byte }

func newEncoder(size int) *encoder {
	return &encoder{b: append(make([]byte, 0, size), recordFormat)}
}

func (e *encoder) uint(n uint64) { e.b = binary.AppendUvarint(e.b, n) }

func (e *encoder) bool(v bool) {
	if v {
		e.uint(1)
	} else {
		e.uint(0)
	}
}

func (e *encoder) string(s string) {
	e.uint(uint64(len(s)))
	e.b = append(e.b, s...)
}

func (e *encoder) time(t time.Time) { e.uint(uint64(t.Unix())) }

func (e *encoder) fields(fields []field) {
	e.uint(uint64(len(fields)))
	for _, f := range fields {
		e.string(f.name)
		e.string(f.value)
	}
}

func (e *encoder) segment(s segment) {
	e.uint(s.record)
	e.uint(uint64(s.size))
	if s.record == 0 {
		e.b = append(e.b, s.data...)
	}
}

func (e *encoder) checksum(c checksum) {
	e.string(string(c.algorithm))
	e.string(c.value)
	e.bool(c.composite)
}

func (e *encoder) encryption(s encryption) {
	e.string(s.algorithm)
	e.string(s.keyID)
	e.bool(s.bucketKey)
	e.string(s.context)
}

// A decoder reads what an encoder wrote. After its first error it returns zero
// values; done tells the error.
type decoder struct {
	b   []byte
	err error
}

var errRecord = errors.New("damaged record")

func newDecoder(record []byte) *decoder {
	if len(record) == 0 || record[0] != recordFormat {
		return &decoder{err: errRecord}
	}
	return &decoder{b: record[1:]}
}

func (d *decoder) done() error {
	if d.err == nil && len(d.b) > 0 {
		return errRecord
	}
	return d.err
}

func (d *decoder) uint() uint64 {
	n, size := binary.Uvarint(d.b)
	if size <= 0 {
		d.b, d.err = nil, errRecord
		return 0
	}
	d.b = d.b[size:]
	return n
}

func (d *decoder) bool() bool { return d.uint() == 1 }

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.b, d.err = nil, errRecord
		return nil
	}
	taken := d.b[:n]
	d.b = d.b[n:]
	return taken
}

func (d *decoder) string() string { return string(d.take(d.uint())) }

func (d *decoder) time() time.Time { return time.Unix(int64(d.uint()), 0).UTC() }

// count reads the length of a list, of which every element takes a byte at least.
func (d *decoder) count() int {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.b, d.err = nil, errRecord
		return 0
	}
	return int(n)
}

func (d *decoder) fields() []field {
	fields := make([]field, 0, d.count())
	for range cap(fields) {
		fields = append(fields, field{d.string(), d.string()})
	}
	return fields
}

func (d *decoder) segment() segment {
	s := segment{record: d.uint(), size: int64(d.uint())}
	if s.record == 0 {
		s.data = slices.Clone(d.take(uint64(s.size)))
	}
	return s
}

func (d *decoder) checksum() checksum {
	return checksum{algorithm: algorithm(d.string()), value: d.string(), composite: d.bool()}
}

func (d *decoder) encryption() encryption {
	return encryption{algorithm: d.string(), keyID: d.string(), bucketKey: d.bool(), context: d.string()}
}

func encodeVersion(v *version) []byte {
	size := 256
	for _, s := range v.body.segments {
		size += 16 + len(s.data)
	}
	e := newEncoder(size)
	e.uint(v.seq)
	e.bool(v.marker)
	e.time(v.modified)
	e.string(v.etag)
	e.uint(uint64(v.parts))
	e.checksum(v.checksum)
	e.fields(v.metadata)
	e.string(v.storageClass)
	e.encryption(v.encryption)
	e.uint(uint64(len(v.body.segments)))
	for _, s := range v.body.segments {
		e.segment(s)
	}
	return e.b
}

func decodeVersion(id string, record []byte) (*version, error) {
	d := newDecoder(record)
	v := &version{
		id: id, seq: d.uint(), marker: d.bool(), modified: d.time(), etag: d.string(), parts: int(d.uint()),
		checksum: d.checksum(), metadata: d.fields(), storageClass: d.string(), encryption: d.encryption(),
	}
	segments := make([]segment, 0, d.count())
	for range cap(segments) {
		segments = append(segments, d.segment())
	}
	v.body = newBody(segments...)
	return v, d.done()
}

func encodeUpload(u *upload) []byte {
	e := newEncoder(256)
	e.string(u.key)
	e.uint(u.seq)
	e.time(u.initiated)
	e.string(string(u.algorithm))
	e.bool(u.composite)
	e.fields(u.metadata)
	e.string(u.storageClass)
	e.encryption(u.encryption)
	e.bool(u.keyChanged)
	e.bool(u.keyDeleted)
	return e.b
}

func decodeUpload(id string, record []byte) (*upload, error) {
	d := newDecoder(record)
	u := &upload{
		id: id, key: d.string(), seq: d.uint(), initiated: d.time(),
		algorithm: algorithm(d.string()), composite: d.bool(),
		metadata: d.fields(), storageClass: d.string(), encryption: d.encryption(),
		keyChanged: d.bool(), keyDeleted: d.bool(), parts: make(map[int]*part),
	}
	return u, d.done()
}

func encodePart(p *part) []byte {
	e := newEncoder(128 + len(p.body.data))
	e.uint(uint64(p.number))
	e.time(p.modified)
	e.string(p.etag)
	e.checksum(p.checksum)
	e.segment(p.body)
	return e.b
}

func decodePart(record []byte) (*part, error) {
	d := newDecoder(record)
	p := &part{number: int(d.uint()), modified: d.time(), etag: d.string(), checksum: d.checksum(), body: d.segment()}
	return p, d.done()
}

// load rebuilds the state from the journal.
func (e *Engine) load() error {
	spaces := []struct {
		name string
		load func(key string, value []byte) error
	}{
		{spaceBucket, e.loadBucket},
		{spaceVersion, e.loadVersion},
		{spaceUpload, e.loadUpload},
		{spacePart, e.loadPart},
	}
	for _, s := range spaces {
		err := e.journal.Load(s.name, func(key string, value []byte) error {
			if err := s.load(key, value); err != nil {
				return fmt.Errorf("record %q of %s: %w", key, s.name, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, b := range e.buckets {
		b.entries.Scan(func(en *entry) bool {
			// The journal sorts the versions of a key by id, not by age.
			slices.SortFunc(en.versions, func(v, w *version) int { return cmp.Compare(v.seq, w.seq) })
			b.index(en)
			return true
		})
	}
	return nil
}

func (e *Engine) loadBucket(name string, record []byte) error {
	b, err := decodeBucket(name, record)
	if err != nil {
		return err
	}
	e.buckets[name] = b
	return nil
}

func (e *Engine) loadVersion(recordKey string, record []byte) error {
	name, rest, _ := strings.Cut(recordKey, "/")
	nul := strings.LastIndexByte(rest, 0)
	b := e.buckets[name]
	if b == nil || nul < 0 {
		return errRecord
	}
	v, err := decodeVersion(rest[nul+1:], record)
	if err != nil {
		return err
	}
	key := rest[:nul]
	en := b.entry(key)
	if en == nil {
		en = &entry{key: key}
		b.entries.Set(en)
	}
	en.versions = append(en.versions, v)
	e.seen(v.seq)
	for _, s := range v.body.segments {
		e.seen(s.record)
	}
	return nil
}

func (e *Engine) loadUpload(recordKey string, record []byte) error {
	name, id, _ := strings.Cut(recordKey, "/")
	b := e.buckets[name]
	if b == nil {
		return errRecord
	}
	u, err := decodeUpload(id, record)
	if err != nil {
		return err
	}
	b.uploads.Set(u)
	b.uploadsByID[id] = u
	e.seen(u.seq)
	return nil
}

func (e *Engine) loadPart(recordKey string, record []byte) error {
	name, rest, _ := strings.Cut(recordKey, "/")
	id, _, _ := strings.Cut(rest, "/")
	b := e.buckets[name]
	if b == nil || b.uploadsByID[id] == nil {
		return errRecord
	}
	p, err := decodePart(record)
	if err != nil {
		return err
	}
	b.uploadsByID[id].parts[p.number] = p
	e.seen(p.body.record)
	return nil
}

// seen keeps the sequence above every number in use.
func (e *Engine) seen(n uint64) { e.seq = max(e.seq, n) }
