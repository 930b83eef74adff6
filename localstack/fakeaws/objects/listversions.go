package objects

import (
	"strings"

	"drawbridge/localstack/fakeaws/engine"
)

// A versionItem is one version in a list.
type versionItem struct {
	key    string
	v      *version
	latest bool
}

type versionPage struct {
	items     []versionItem
	prefixes  []string
	truncated bool
	lastKey   string // key or common prefix where the page ended
	lastID    string // version where it ended; empty after a common prefix
}

func (e *Engine) listObjectVersions(req *request) (engine.Response, error) {
	l, err := parseListing(req, "max-keys")
	if err != nil {
		return engine.Response{}, err
	}
	keyMarker, idMarker := req.query.Get("key-marker"), req.query.Get("version-id-marker")
	if idMarker != "" {
		if keyMarker == "" {
			return engine.Response{}, invalidArgument("version-id-marker", idMarker, "A version-id marker cannot be specified without a key marker.")
		}
		if err := checkVersionID(idMarker); err != nil {
			return engine.Response{}, err
		}
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	b, err := e.bucket(req.bucket)
	if err != nil {
		return engine.Response{}, err
	}
	p := b.walkVersions(l, keyMarker, idMarker)

	x := startXML("ListVersionsResult", xmlNamespace)
	x.grow(len(p.items))
	x.text("Name", b.name)
	x.name("Prefix", l.prefix, l.encode)
	x.name("KeyMarker", keyMarker, l.encode)
	x.text("VersionIdMarker", idMarker)
	if p.truncated {
		x.name("NextKeyMarker", p.lastKey, l.encode)
		x.textIf("NextVersionIdMarker", p.lastID)
	}
	x.listing(l, "MaxKeys", p.truncated)
	for _, item := range p.items {
		x.version(l, item)
	}
	x.commonPrefixes(l, p.prefixes)
	return xmlResponse(x.end("ListVersionsResult")), nil
}

func (x *xmlWriter) version(l listing, item versionItem) {
	element := "Version"
	if item.v.marker {
		element = "DeleteMarker"
	}
	x.open(element)
	x.name("Key", item.key, l.encode)
	x.text("VersionId", item.v.id)
	x.bool("IsLatest", item.latest)
	if item.v.marker {
		x.time("LastModified", item.v.modified)
	} else {
		x.object(item.v)
	}
	x.owner("Owner")
	x.close(element)
}

// walkVersions collects the page after a version (or after a whole key, when
// there is no id): keys in order, the versions of a key newest first.
func (b *bucket) walkVersions(l listing, keyMarker, idMarker string) versionPage {
	var p versionPage
	if l.limit == 0 {
		return p
	}
	from := l.prefix
	if keyMarker >= from && keyMarker != "" {
		from = keyMarker
		if idMarker == "" {
			from += "\x00"
		}
	}
	it := b.entries.Iter()
	defer it.Release()
	for ok := it.Seek(&entry{key: from}); ok; {
		en := it.Item()
		if !strings.HasPrefix(en.key, l.prefix) {
			break
		}
		common, isPrefix := l.commonPrefix(en.key)
		if isPrefix && common == keyMarker {
			ok = seekPast(&it, common)
			continue
		}
		if isPrefix {
			if len(p.items)+len(p.prefixes) == l.limit {
				p.truncated = true
				break
			}
			p.prefixes = append(p.prefixes, common)
			p.lastKey, p.lastID = common, ""
			ok = seekPast(&it, common)
			continue
		}
		newest := len(en.versions) - 1
		if en.key == keyMarker {
			newest = en.before(idMarker)
		}
		if !p.take(l, en, newest) {
			break
		}
		ok = it.Next()
	}
	return p
}

// take adds the versions of a key from index i down; false when the page is full.
func (p *versionPage) take(l listing, en *entry, i int) bool {
	for ; i >= 0; i-- {
		if len(p.items)+len(p.prefixes) == l.limit {
			p.truncated = true
			return false
		}
		v := en.versions[i]
		p.items = append(p.items, versionItem{en.key, v, i == len(en.versions)-1})
		p.lastKey, p.lastID = en.key, v.id
	}
	return true
}

// before returns the index of the newest version older than the one with the
// id. An id tells its place even when the version is gone, except for "null":
// then the key starts over, because telling a version twice is better than
// leaving one out.
func (en *entry) before(id string) int {
	if i := en.find(id); i >= 0 {
		return i - 1
	}
	i := len(en.versions) - 1
	if seq, ok := parseOpaqueID(id); ok {
		for i >= 0 && en.versions[i].seq > seq {
			i--
		}
	}
	return i
}
