package objects

import (
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/tidwall/btree"

	"drawbridge/localstack/fakeaws/engine"
)

// maxPage is the largest page of every list but that of buckets.
const maxPage = 1000

// A listing is what all lists of a bucket have in common.
type listing struct {
	prefix, delimiter string
	limit             int
	encode            bool // keys are URL-encoded
}

func parseListing(req *request, limitName string) (l listing, err error) {
	l.prefix, l.delimiter = req.query.Get("prefix"), req.query.Get("delimiter")
	if l.encode, err = req.urlEncoded(); err != nil {
		return l, err
	}
	l.limit, err = req.intParameter(limitName, maxPage, maxPage)
	return l, err
}

// commonPrefix returns the prefix that key shares with others, up to and with
// the first delimiter after the listing's prefix.
func (l listing) commonPrefix(key string) (string, bool) {
	if l.delimiter == "" {
		return "", false
	}
	i := strings.Index(key[len(l.prefix):], l.delimiter)
	if i < 0 {
		return "", false
	}
	return key[:len(l.prefix)+i+len(l.delimiter)], true
}

// successor returns the least string above every string that starts with
// prefix, or "" when there is none.
func successor(prefix string) string {
	for n := len(prefix); n > 0; n-- {
		if prefix[n-1] < 0xFF {
			return prefix[:n-1] + string([]byte{prefix[n-1] + 1})
		}
	}
	return ""
}

// A page is one page of a list of objects.
type page struct {
	objects   []*entry
	prefixes  []string
	truncated bool
	last      string // the last key or common prefix of the page
}

// walk collects the page after a key or a common prefix ("" starts at the
// beginning). It seeks over what a common prefix covers, so that its cost is
// that of the page, whatever the bucket holds.
func (l listing) walk(tree *btree.BTreeG[*entry], after string) page {
	var p page
	if l.limit == 0 {
		return p
	}
	from := l.prefix
	if after >= from && after != "" {
		from = after + "\x00" // the least key above after
	}
	it := tree.Iter()
	defer it.Release()
	for ok := it.Seek(&entry{key: from}); ok; {
		key := it.Item().key
		if !strings.HasPrefix(key, l.prefix) {
			break
		}
		common, isPrefix := l.commonPrefix(key)
		if isPrefix && common == after { // told on the page before
			ok = seekPast(&it, common)
			continue
		}
		if len(p.objects)+len(p.prefixes) == l.limit {
			p.truncated = true
			break
		}
		if isPrefix {
			p.prefixes = append(p.prefixes, common)
			p.last = common
			ok = seekPast(&it, common)
			continue
		}
		p.objects = append(p.objects, it.Item())
		p.last = key
		ok = it.Next()
	}
	return p
}

// seekPast moves to the first entry above everything that starts with prefix.
func seekPast(it *btree.IterG[*entry], prefix string) bool {
	next := successor(prefix)
	return next != "" && it.Seek(&entry{key: next})
}

func (e *Engine) listObjectsV2(req *request) (engine.Response, error) {
	if t := req.query.Get("list-type"); t != "2" {
		return engine.Response{}, invalidArgument("list-type", t, "Invalid List Type specified in Request")
	}
	l, err := parseListing(req, "max-keys")
	if err != nil {
		return engine.Response{}, err
	}
	token, startAfter := req.query.Get("continuation-token"), req.query.Get("start-after")
	after := startAfter
	if req.query.Has("continuation-token") {
		if after, err = parseToken(token); err != nil || after == "" {
			return engine.Response{}, invalidToken(token)
		}
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	b, err := e.bucket(req.bucket)
	if err != nil {
		return engine.Response{}, err
	}
	p := l.walk(b.live, after)

	x := startXML("ListBucketResult", xmlNamespace)
	x.grow(len(p.objects))
	x.text("Name", b.name)
	x.name("Prefix", l.prefix, l.encode)
	if startAfter != "" {
		x.name("StartAfter", startAfter, l.encode)
	}
	x.textIf("ContinuationToken", token)
	if p.truncated {
		x.text("NextContinuationToken", newToken(p.last))
	}
	x.int("KeyCount", int64(len(p.objects)+len(p.prefixes)))
	x.listing(l, "MaxKeys", p.truncated)
	owner := req.query.Get("fetch-owner") == "true"
	x.contents(l, p, owner)
	return xmlResponse(x.end("ListBucketResult")), nil
}

// listObjects is the first version of the list, whose marker is a key.
func (e *Engine) listObjects(req *request) (engine.Response, error) {
	l, err := parseListing(req, "max-keys")
	if err != nil {
		return engine.Response{}, err
	}
	marker := req.query.Get("marker")
	e.mu.RLock()
	defer e.mu.RUnlock()
	b, err := e.bucket(req.bucket)
	if err != nil {
		return engine.Response{}, err
	}
	p := l.walk(b.live, marker)

	x := startXML("ListBucketResult", xmlNamespace)
	x.grow(len(p.objects))
	x.text("Name", b.name)
	x.name("Prefix", l.prefix, l.encode)
	x.name("Marker", marker, l.encode)
	if p.truncated && l.delimiter != "" { // without a delimiter the last key serves
		x.name("NextMarker", p.last, l.encode)
	}
	x.listing(l, "MaxKeys", p.truncated)
	x.contents(l, p, true)
	return xmlResponse(x.end("ListBucketResult")), nil
}

// grow makes room for a page, so that it is not copied while it grows.
func (x *xmlWriter) grow(items int) {
	const typical = 320 // bytes of one Contents element
	x.b = append(make([]byte, 0, len(x.b)+1024+items*typical), x.b...)
}

// listing writes the elements that all lists share.
func (x *xmlWriter) listing(l listing, limitName string, truncated bool) {
	x.int(limitName, int64(l.limit))
	if l.delimiter != "" {
		x.name("Delimiter", l.delimiter, l.encode)
	}
	if l.encode {
		x.text("EncodingType", "url")
	}
	x.bool("IsTruncated", truncated)
}

// contents writes a page of current objects.
func (x *xmlWriter) contents(l listing, p page, owner bool) {
	for _, en := range p.objects {
		x.open("Contents")
		x.name("Key", en.key, l.encode)
		x.object(en.current())
		if owner {
			x.owner("Owner")
		}
		x.close("Contents")
	}
	x.commonPrefixes(l, p.prefixes)
}

// object writes what lists tell of a version that is no marker.
func (x *xmlWriter) object(v *version) {
	x.time("LastModified", v.modified)
	x.etag(v.etag)
	if v.checksum.algorithm != noChecksum {
		x.text("ChecksumAlgorithm", string(v.checksum.algorithm))
		x.text("ChecksumType", v.checksum.kind())
	}
	x.int("Size", v.body.size)
	x.text("StorageClass", v.storageClass)
}

func (x *xmlWriter) commonPrefixes(l listing, prefixes []string) {
	for _, p := range prefixes {
		x.open("CommonPrefixes")
		x.name("Prefix", p, l.encode)
		x.close("CommonPrefixes")
	}
}

// name writes a key or what is made of keys, URL-encoded on request.
func (x *xmlWriter) name(element, value string, encode bool) {
	if !encode {
		x.text(element, value)
		return
	}
	x.open(element)
	x.b = appendURLEncoded(x.b, value)
	x.close(element)
}

// appendURLEncoded encodes as S3 does for encoding-type=url: a space is "+", a
// slash stays.
func appendURLEncoded(b []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			c == '-', c == '_', c == '.', c == '*', c == '/':
			b = append(b, c)
		case c == ' ':
			b = append(b, '+')
		default:
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return b
}

// tokenPrefix marks the continuation tokens that were issued here.
const tokenPrefix = "1:"

// newToken makes an opaque token of the place where the next page starts.
func newToken(after string) string {
	return base64.URLEncoding.EncodeToString([]byte(tokenPrefix + after))
}

// parseToken reads a token; the empty token is the beginning.
func parseToken(token string) (after string, err error) {
	if token == "" {
		return "", nil
	}
	raw, err := base64.URLEncoding.DecodeString(token)
	if err != nil {
		return "", invalidToken(token)
	}
	after, ok := strings.CutPrefix(string(raw), tokenPrefix)
	if !ok {
		return "", invalidToken(token)
	}
	return after, nil
}

func invalidToken(token string) *apiError {
	return newError(http.StatusBadRequest, "InvalidArgument", "The continuation token provided is incorrect").
		with("ArgumentName", "continuation-token").with("ArgumentValue", token)
}
