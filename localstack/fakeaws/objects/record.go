package objects

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The journal's spaces and their keys.
const (
	spaceBucket    = "s3.bucket"    // bucket
	spaceLifecycle = "s3.lifecycle" // bucket; beside the bucket's record, which is older
	spaceVersion   = "s3.version"   // bucket / key NUL version id
	spaceBody      = "s3.body"      // 16 hexadecimal digits
	spaceUpload    = "s3.upload"    // bucket / upload id
	spacePart      = "s3.part"      // bucket / upload id / part number
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
