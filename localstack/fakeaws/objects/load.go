package objects

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// load rebuilds the state from the journal.
func (e *Engine) load() error {
	spaces := []struct {
		name string
		load func(key string, value []byte) error
	}{
		{spaceBucket, e.loadBucket},
		{spaceLifecycle, e.loadLifecycle},
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

func (e *Engine) loadLifecycle(name string, record []byte) (err error) {
	b := e.buckets[name]
	if b == nil {
		return errRecord
	}
	b.lifecycle, err = decodeLifecycle(record)
	return err
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
