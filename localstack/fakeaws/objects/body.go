package objects

import "fmt"

// A body is the bytes of an object: one segment, or one for each part of the
// multipart upload that wrote it.
type body struct {
	segments []segment
	size     int64
}

// A segment is a run of bytes, in memory or under a record of the journal.
type segment struct {
	record uint64 // 0: in memory
	size   int64
	data   []byte
}

func newBody(segments ...segment) body {
	b := body{segments: segments}
	for _, s := range segments {
		b.size += s.size
	}
	return b
}

// A span is a run of an object's bytes.
type span struct{ first, length int64 }

// read returns the bytes of a span, which the caller must not modify. The
// caller holds the lock, which keeps the body's records from being deleted.
func (e *Engine) read(b body, s span) ([]byte, error) {
	if s.length == 0 {
		return nil, nil
	}
	var joined []byte
	offset := int64(0)
	for _, seg := range b.segments {
		from := max(s.first-offset, 0)
		to := min(s.first+s.length-offset, seg.size)
		offset += seg.size
		if from >= to {
			continue
		}
		data, err := e.segmentData(seg)
		if err != nil {
			return nil, err
		}
		if to-from == s.length {
			return data[from:to:to], nil
		}
		if joined == nil {
			joined = make([]byte, 0, s.length)
		}
		joined = append(joined, data[from:to]...)
	}
	return joined, nil
}

// readAll returns all bytes of a body under the rules of read.
func (e *Engine) readAll(b body) ([]byte, error) { return e.read(b, span{0, b.size}) }

func (e *Engine) segmentData(s segment) ([]byte, error) {
	if s.record == 0 {
		return s.data, nil
	}
	data, err := e.journal.Read(spaceBody, bodyKey(s.record))
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	if int64(len(data)) != s.size {
		return nil, fmt.Errorf("read body %d: have %d bytes, want %d", s.record, len(data), s.size)
	}
	return data, nil
}
