package objects

import "drawbridge/localstack/fakeaws/engine"

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

// abortUpload forgets an upload with all that was uploaded.
func (c *change) abortUpload(b *bucket, u *upload) {
	for _, p := range u.parts {
		c.drop(p.body)
	}
	c.removeUpload(b, u)
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
