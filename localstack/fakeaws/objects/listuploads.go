package objects

import (
	"maps"
	"slices"
	"strings"

	"drawbridge/localstack/fakeaws/engine"
)

func (e *Engine) listParts(req *request) (engine.Response, error) {
	limit, err := req.intParameter("max-parts", maxPage, maxPage)
	if err != nil {
		return engine.Response{}, err
	}
	marker, err := req.intParameter("part-number-marker", 0, maxPartNumber)
	if err != nil {
		return engine.Response{}, err
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	b, u, err := e.upload(req)
	if err != nil {
		return engine.Response{}, err
	}
	numbers := slices.Sorted(maps.Keys(u.parts))
	first, _ := slices.BinarySearch(numbers, marker+1)
	numbers = numbers[first:]
	truncated := len(numbers) > limit
	numbers = numbers[:min(limit, len(numbers))]

	x := startXML("ListPartsResult", xmlNamespace)
	x.text("Bucket", b.name)
	x.text("Key", u.key)
	x.text("UploadId", u.id)
	x.owner("Initiator")
	x.owner("Owner")
	x.text("StorageClass", u.storageClass)
	if u.algorithm != noChecksum {
		x.text("ChecksumAlgorithm", string(u.algorithm))
		x.text("ChecksumType", checksum{composite: u.composite}.kind())
	}
	x.int("PartNumberMarker", int64(marker))
	if len(numbers) > 0 {
		x.int("NextPartNumberMarker", int64(numbers[len(numbers)-1]))
	}
	x.int("MaxParts", int64(limit))
	x.bool("IsTruncated", truncated)
	for _, n := range numbers {
		p := u.parts[n]
		x.open("Part")
		x.int("PartNumber", int64(n))
		x.time("LastModified", p.modified)
		x.etag(p.etag)
		x.int("Size", p.body.size)
		if u.algorithm != noChecksum {
			x.text("Checksum"+string(p.checksum.algorithm), p.checksum.value)
		}
		x.close("Part")
	}
	return xmlResponse(x.end("ListPartsResult")), nil
}

func (e *Engine) listMultipartUploads(req *request) (engine.Response, error) {
	l, err := parseListing(req, "max-uploads")
	if err != nil {
		return engine.Response{}, err
	}
	keyMarker, idMarker := req.query.Get("key-marker"), req.query.Get("upload-id-marker")
	if keyMarker == "" {
		idMarker = "" // S3 ignores it without a key
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	b, err := e.bucket(req.bucket)
	if err != nil {
		return engine.Response{}, err
	}
	uploads, prefixes, truncated := b.walkUploads(l, keyMarker, idMarker)

	x := startXML("ListMultipartUploadsResult", xmlNamespace)
	x.text("Bucket", b.name)
	x.name("KeyMarker", keyMarker, l.encode)
	x.text("UploadIdMarker", idMarker)
	x.name("Prefix", l.prefix, l.encode)
	if truncated {
		key, id := "", ""
		if n := len(uploads); n > 0 {
			key, id = uploads[n-1].key, uploads[n-1].id
		}
		if n := len(prefixes); n > 0 && prefixes[n-1] > key {
			key, id = prefixes[n-1], ""
		}
		x.name("NextKeyMarker", key, l.encode)
		x.text("NextUploadIdMarker", id)
	}
	x.listing(l, "MaxUploads", truncated)
	for _, u := range uploads {
		x.open("Upload")
		x.name("Key", u.key, l.encode)
		x.text("UploadId", u.id)
		x.owner("Initiator")
		x.owner("Owner")
		x.text("StorageClass", u.storageClass)
		x.time("Initiated", u.initiated)
		if u.algorithm != noChecksum {
			x.text("ChecksumAlgorithm", string(u.algorithm))
			x.text("ChecksumType", checksum{composite: u.composite}.kind())
		}
		x.close("Upload")
	}
	x.commonPrefixes(l, prefixes)
	return xmlResponse(x.end("ListMultipartUploadsResult")), nil
}

// walkUploads collects the uploads after an upload of keyMarker, or after all of
// keyMarker's when there is no id.
func (b *bucket) walkUploads(l listing, keyMarker, idMarker string) (uploads []*upload, prefixes []string, truncated bool) {
	if l.limit == 0 {
		return nil, nil, false
	}
	from := &upload{key: l.prefix}
	if keyMarker >= from.key && keyMarker != "" {
		from.key = keyMarker
		seq, ok := parseOpaqueID(idMarker)
		if !ok {
			from.key += "\x00"
		}
		from.seq = seq + 1
	}
	it := b.uploads.Iter()
	defer it.Release()
	for ok := it.Seek(from); ok; {
		u := it.Item()
		if !strings.HasPrefix(u.key, l.prefix) {
			break
		}
		common, isPrefix := l.commonPrefix(u.key)
		told := isPrefix && common == keyMarker
		if !told && len(uploads)+len(prefixes) == l.limit {
			return uploads, prefixes, true
		}
		switch {
		case isPrefix:
			if !told {
				prefixes = append(prefixes, common)
			}
			next := successor(common)
			ok = next != "" && it.Seek(&upload{key: next})
		default:
			uploads = append(uploads, u)
			ok = it.Next()
		}
	}
	return uploads, prefixes, false
}
