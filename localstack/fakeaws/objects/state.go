package objects

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"time"

	"github.com/tidwall/btree"
)

// The states of a bucket's versioning; a bucket that never had it has neither.
const (
	versioningEnabled   = "Enabled"
	versioningSuspended = "Suspended"
)

// nullVersion is the id of the one version of a key that was written while
// versioning was not enabled.
const nullVersion = "null"

type bucket struct {
	name       string
	region     string
	created    time.Time
	versioning string
	settings   settings
	policy     *policy    // nil: none
	lifecycle  *lifecycle // nil: none

	entries *btree.BTreeG[*entry] // every key that has a version, by key
	live    *btree.BTreeG[*entry] // those whose current version is an object

	uploads     *btree.BTreeG[*upload] // by key, then age
	uploadsByID map[string]*upload
}

func newBucket(name, region string, created time.Time) *bucket {
	// The engine's lock guards the trees.
	unlocked := btree.Options{NoLocks: true}
	byKey := func(a, b *entry) bool { return a.key < b.key }
	return &bucket{
		name: name, region: region, created: created, settings: defaultSettings(),
		entries:     btree.NewBTreeGOptions(byKey, unlocked),
		live:        btree.NewBTreeGOptions(byKey, unlocked),
		uploads:     btree.NewBTreeGOptions(olderUpload, unlocked),
		uploadsByID: make(map[string]*upload),
	}
}

// An entry holds the versions of one key, oldest first; it has at least one.
type entry struct {
	key      string
	versions []*version
}

// A version is one object or one delete marker. It is immutable once it is in
// an entry, so that answers may be built from it after the lock is released.
type version struct {
	id       string
	seq      uint64 // order of writing
	marker   bool   // a delete marker: nothing below is set
	modified time.Time

	etag         string // without quotes
	body         body
	parts        int // 0 unless written by a multipart upload
	checksum     checksum
	metadata     []field // system and user metadata as headers of the answer
	storageClass string
	encryption   encryption
}

// A field is one header: its canonical name and its value.
type field struct{ name, value string }

// entry finds the versions of a key, or nil.
func (b *bucket) entry(key string) *entry {
	en, _ := b.entries.Get(&entry{key: key})
	return en
}

// current returns the newest version of a key, a delete marker included, or nil.
func (b *bucket) current(key string) *version {
	if en := b.entry(key); en != nil {
		return en.current()
	}
	return nil
}

func (en *entry) current() *version { return en.versions[len(en.versions)-1] }

// find returns the index of a version, or -1.
func (en *entry) find(id string) int {
	return slices.IndexFunc(en.versions, func(v *version) bool { return v.id == id })
}

// isObject tells whether the version exists and is no delete marker.
func (v *version) isObject() bool { return v != nil && !v.marker }

// add makes v the current version of a key. A null version replaces the key's
// null version, which is returned.
func (b *bucket) add(key string, v *version) (replaced *version) {
	en := b.entry(key)
	if en == nil {
		en = &entry{key: key}
		b.entries.Set(en)
	} else if v.id == nullVersion {
		if i := en.find(nullVersion); i >= 0 {
			replaced = en.versions[i]
			en.versions = slices.Delete(en.versions, i, i+1)
		}
	}
	en.versions = append(en.versions, v)
	b.index(en)
	return replaced
}

// remove takes a version out and returns it, or nil when there is none.
func (b *bucket) remove(key, id string) *version {
	en := b.entry(key)
	if en == nil {
		return nil
	}
	i := en.find(id)
	if i < 0 {
		return nil
	}
	removed := en.versions[i]
	en.versions = slices.Delete(en.versions, i, i+1)
	b.index(en)
	return removed
}

// index puts an entry into the trees its versions call for.
func (b *bucket) index(en *entry) {
	switch {
	case len(en.versions) == 0:
		b.entries.Delete(en)
		b.live.Delete(en)
	case en.current().marker:
		b.live.Delete(en)
	default:
		b.live.Set(en)
	}
}

// newOpaqueID returns a 32-character id for versions and uploads. It starts with
// the sequence number, so that a page of versions can resume after a version
// that is gone, and ends with a sum, so that an id that was never issued is told
// from one whose version is gone, as S3 does.
func newOpaqueID(seq uint64) string {
	var raw [24]byte
	binary.BigEndian.PutUint64(raw[:8], seq)
	_, _ = rand.Read(raw[8:20]) // never fails (crypto/rand)
	binary.BigEndian.PutUint32(raw[20:], crc32.ChecksumIEEE(raw[:20]))
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

// parseOpaqueID returns the sequence number of an id that was issued.
func parseOpaqueID(id string) (seq uint64, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil || len(raw) != 24 || binary.BigEndian.Uint32(raw[20:]) != crc32.ChecksumIEEE(raw[:20]) {
		return 0, false
	}
	return binary.BigEndian.Uint64(raw[:8]), true
}

// checkVersionID refuses an id that was never issued.
func checkVersionID(id string) error {
	switch id {
	case nullVersion:
		return nil
	case "":
		return invalidArgument("versionId", id, "Version id cannot be the empty string")
	}
	if _, ok := parseOpaqueID(id); !ok {
		return invalidArgument("versionId", id, "Invalid version id specified")
	}
	return nil
}
