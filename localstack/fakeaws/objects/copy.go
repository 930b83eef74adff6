package objects

import (
	"crypto/md5"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"drawbridge/localstack/fakeaws/engine"
)

// A copySource is what x-amz-copy-source names.
type copySource struct{ bucket, key, versionID string }

func parseCopySource(h http.Header) (copySource, error) {
	var s copySource
	text := strings.TrimPrefix(h.Get("X-Amz-Copy-Source"), "/")
	path, query, _ := strings.Cut(text, "?")
	path, err := url.PathUnescape(path)
	if err != nil {
		return s, invalidArgument("x-amz-copy-source", text, "Invalid copy source encoding.")
	}
	var ok bool
	if s.bucket, s.key, ok = strings.Cut(path, "/"); !ok || s.bucket == "" || s.key == "" {
		return s, invalidArgument("x-amz-copy-source", text, "Invalid copy source object key")
	}
	if query != "" {
		if s.versionID, ok = strings.CutPrefix(query, "versionId="); !ok || s.versionID == "" {
			return s, invalidArgument("x-amz-copy-source", text, "Invalid copy source version id")
		}
		if err := checkVersionID(s.versionID); err != nil {
			return s, err
		}
	}
	return s, checkKey(s.key)
}

// find returns the source's version; conditions on it are 412, never 304.
func (e *Engine) find(s copySource, h http.Header) (*bucket, *version, error) {
	b, err := e.bucket(s.bucket)
	if err != nil {
		return nil, nil, err
	}
	ctx := policyContext{action: "s3:GetObject", bucket: s.bucket, key: s.key}
	if s.versionID != "" {
		ctx.action = "s3:GetObjectVersion"
	}
	if err := b.policy.authorize(ctx); err != nil {
		return nil, nil, err
	}
	v, err := b.findObject(s.key, s.versionID)
	var failure *apiError
	if errors.As(err, &failure) && failure.code == "MethodNotAllowed" {
		return nil, nil, invalidRequest("The source of a copy request may not specifically refer to a delete marker by version id.")
	}
	if err != nil {
		return nil, nil, err
	}
	if outcome, header := sourceConditions.check(h, v, e.clock()); outcome != conditionsHold {
		return nil, nil, preconditionFailed(header)
	}
	return b, v, nil
}

// A copyRequest is what the headers of a CopyObject ask for.
type copyRequest struct {
	source    copySource
	condition writeCondition
	replace   bool      // the metadata is the request's, not the source's
	checksum  algorithm // empty: the source's
	described *version  // what the headers say about the destination
	changes   bool      // the destination differs from the source
}

func parseCopy(h http.Header) (c copyRequest, err error) {
	if c.source, err = parseCopySource(h); err != nil {
		return c, err
	}
	if c.condition, err = parseWriteCondition(h); err != nil {
		return c, err
	}
	switch directive := h.Get("X-Amz-Metadata-Directive"); directive {
	case "", "COPY":
	case "REPLACE":
		c.replace = true
	default:
		return c, invalidArgument("x-amz-metadata-directive", directive, "Unknown metadata directive.")
	}
	c.described = &version{}
	if err := c.described.describe(h); err != nil {
		return c, err
	}
	if name := h.Get("X-Amz-Checksum-Algorithm"); name != "" {
		if c.checksum, err = parseAlgorithm(name); err != nil {
			return c, err
		}
	}
	c.changes = c.replace || c.described.encryption.algorithm != "" || h.Get("X-Amz-Storage-Class") != "" || c.source.versionID != ""
	return c, nil
}

// checksumOf is the checksum of the copy, which is that of a whole object.
func (c copyRequest) checksumOf(src *version, data []byte) checksum {
	a := c.checksum
	if a == noChecksum {
		a = src.checksum.algorithm
	}
	if a == src.checksum.algorithm && !src.checksum.composite {
		return src.checksum
	}
	return a.of(data)
}

// copyObject copies within one instant: the source's version read is the one
// that is current when the destination is written.
func (e *Engine) copyObject(req *request) (engine.Response, error) {
	asked, err := parseCopy(req.header)
	if err != nil {
		return engine.Response{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	b, err := e.bucket(req.bucket)
	if err != nil {
		return engine.Response{}, err
	}
	from, src, err := e.find(asked.source, req.header)
	if err != nil {
		return engine.Response{}, err
	}
	if b == from && asked.source.key == req.key && !asked.changes {
		return engine.Response{}, invalidRequest("This copy request is illegal because it is trying to copy an object to itself without changing the object's metadata, storage class, website redirect location or encryption attributes.")
	}
	if err := asked.condition.check(req.key, b.current(req.key)); err != nil {
		return engine.Response{}, err
	}
	data, err := e.readAll(src.body)
	if err != nil {
		return engine.Response{}, err
	}
	v := asked.described
	if !asked.replace {
		v.metadata = src.metadata
	}
	v.checksum = asked.checksumOf(src, data)
	c := e.begin()
	v.modified = e.now()
	v.encryption = v.encryption.or(b.settings.encryption)
	v.etag = v.encryption.etag(md5.Sum(data))
	v.body = newBody(c.keep(data))
	e.publish(c, b, strings.Clone(req.key), v)

	x := startXML("CopyObjectResult", xmlNamespace)
	x.time("LastModified", v.modified)
	x.etag(v.etag)
	x.checksum(v.checksum)
	resp := xmlResponse(x.end("CopyObjectResult"))
	v.tell(resp.Header)
	from.setCopySourceVersion(resp.Header, src.id)
	resp.Durable = c.commit()
	return resp, nil
}

func (b *bucket) setCopySourceVersion(h http.Header, id string) {
	if b.versioning != "" {
		h["X-Amz-Copy-Source-Version-Id"] = []string{id}
	}
}

// checksum writes the elements that answers to writes carry.
func (x *xmlWriter) checksum(c checksum) {
	if c.algorithm != noChecksum {
		x.text("Checksum"+string(c.algorithm), c.value)
		x.text("ChecksumType", c.kind())
	}
}
