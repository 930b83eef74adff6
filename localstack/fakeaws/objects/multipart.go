package objects

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"drawbridge/localstack/fakeaws/engine"
)

const (
	// minPartSize is S3's least size of a part that is not the last.
	minPartSize = 5 << 20
	// maxPartNumber is S3's highest part number, and so the most parts.
	maxPartNumber = 10_000
)

// An upload is a multipart upload that was neither completed nor aborted.
type upload struct {
	id        string
	key       string
	seq       uint64 // order of creation
	initiated time.Time

	algorithm    algorithm // of the checksum asked for at creation; may be empty
	composite    bool      // the object's checksum is made of its parts'
	metadata     []field
	storageClass string
	encryption   encryption

	parts map[int]*part

	// What happened to the key's current version since the upload was created;
	// see conflict.
	keyChanged bool
	keyDeleted bool
}

// A part is one part of an upload. It is immutable.
type part struct {
	number   int
	modified time.Time
	etag     string
	checksum checksum // by the upload's algorithm, or CRC64NVME
	body     segment
}

func olderUpload(a, b *upload) bool {
	return a.key < b.key || a.key == b.key && a.seq < b.seq
}

// conflict answers 409 when the key changed in a way that dooms a conditional
// completion for good, so that the caller has to start again from
// CreateMultipartUpload. On AWS (recorded by LocalStack's snapshot tests):
// If-None-Match conflicts when the key existed and was deleted since the upload
// was created; If-Match conflicts after any write since, even of identical bytes.
// It is asked after the condition itself held.
func (u *upload) conflict(c writeCondition) error {
	switch {
	case c.ifNoneMatch && u.keyDeleted:
		return conditionalConflict("If-None-Match", u.key)
	case c.ifMatch != "" && u.keyChanged:
		return conditionalConflict("If-Match", u.key)
	}
	return nil
}

// upload finds the upload that a request names; the caller holds the lock.
func (e *Engine) upload(req *request) (*bucket, *upload, error) {
	b, err := e.bucket(req.bucket)
	if err != nil {
		return nil, nil, err
	}
	id := req.query.Get("uploadId")
	u := b.uploadsByID[id]
	if u == nil || u.key != req.key {
		return nil, nil, noSuchUpload(id)
	}
	return b, u, nil
}

func parsePartNumber(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxPartNumber {
		return 0, invalidArgument("partNumber", text,
			fmt.Sprintf("Part number must be an integer between 1 and %d, inclusive", maxPartNumber))
	}
	return n, nil
}

// parseChecksumType tells whether an upload's checksum is composite. CRC64NVME
// is never, the SHA family always; the other CRCs are unless asked otherwise.
func parseChecksumType(a algorithm, text string) (composite bool, err error) {
	switch {
	case a == noChecksum && text != "":
		return false, invalidRequest("The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.")
	case text != "" && text != "COMPOSITE" && text != "FULL_OBJECT":
		return false, invalidRequest("Value for x-amz-checksum-type header is invalid.")
	case a == noChecksum:
		return false, nil
	case a == crc64NVME && text == "COMPOSITE", !a.composable() && text == "FULL_OBJECT":
		return false, invalidRequest(fmt.Sprintf("The %s checksum type cannot be used with the %s checksum algorithm.", text, strings.ToLower(string(a))))
	}
	return a != crc64NVME && text != "FULL_OBJECT", nil
}

func (e *Engine) createMultipartUpload(req *request) (engine.Response, error) {
	var described version
	if err := described.describe(req.header); err != nil {
		return engine.Response{}, err
	}
	u := &upload{
		key: strings.Clone(req.key), parts: make(map[int]*part),
		metadata: described.metadata, storageClass: described.storageClass,
	}
	var err error
	if name := req.header.Get("X-Amz-Checksum-Algorithm"); name != "" {
		if u.algorithm, err = parseAlgorithm(name); err != nil {
			return engine.Response{}, err
		}
	}
	if u.composite, err = parseChecksumType(u.algorithm, req.header.Get("X-Amz-Checksum-Type")); err != nil {
		return engine.Response{}, err
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	b, err := e.bucket(req.bucket)
	if err != nil {
		return engine.Response{}, err
	}
	u.seq = e.nextSeq()
	u.id = newOpaqueID(u.seq)
	u.initiated = e.now()
	u.encryption = described.encryption.or(b.settings.encryption)
	b.uploads.Set(u)
	b.uploadsByID[u.id] = u
	c := e.begin()
	c.saveUpload(b, u)

	x := startXML("InitiateMultipartUploadResult", xmlNamespace)
	x.text("Bucket", b.name)
	x.text("Key", u.key)
	x.text("UploadId", u.id)
	resp := xmlResponse(x.end("InitiateMultipartUploadResult"))
	u.encryption.set(resp.Header)
	if u.algorithm != noChecksum {
		resp.Header.Set("X-Amz-Checksum-Algorithm", string(u.algorithm))
		resp.Header.Set("X-Amz-Checksum-Type", checksum{composite: u.composite}.kind())
	}
	resp.Durable = c.commit()
	return resp, nil
}

func (e *Engine) uploadPart(req *request) (engine.Response, error) {
	number, err := parsePartNumber(req.query.Get("partNumber"))
	if err != nil {
		return engine.Response{}, err
	}
	p, err := readPayload(req)
	if err != nil {
		return engine.Response{}, err
	}
	want, err := e.partAlgorithm(req)
	if err != nil {
		return engine.Response{}, err
	}
	if p.checksum.algorithm != noChecksum && p.checksum.algorithm != want && want != noChecksum {
		return engine.Response{}, invalidRequest(fmt.Sprintf("Checksum Type mismatch occurred, expected checksum Type: %s, actual checksum Type: %s",
			strings.ToLower(string(want)), strings.ToLower(string(p.checksum.algorithm))))
	}
	// Without an algorithm the object will have a CRC64NVME, joined from its parts'.
	kept := p.checksum
	if want == noChecksum {
		want = crc64NVME
	}
	if kept.algorithm != want {
		kept = want.of(p.data)
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	b, u, err := e.upload(req)
	if err != nil {
		return engine.Response{}, err
	}
	c := e.begin()
	if replaced := u.parts[number]; replaced != nil {
		c.drop(replaced.body)
	}
	stored := &part{number: number, modified: e.now(), etag: u.encryption.etag(p.md5), checksum: kept, body: c.keep(p.data)}
	u.parts[number] = stored
	c.savePart(b, u, stored)

	h := make(http.Header, 4)
	h["Etag"] = []string{quoted(stored.etag)}
	h["Content-Length"] = []string{"0"}
	u.encryption.set(h)
	if given := p.checksum; given.algorithm != noChecksum {
		h[checksumHeader[given.algorithm]] = []string{given.value}
	}
	return engine.Response{Status: http.StatusOK, Header: h, Durable: c.commit()}, nil
}

// partAlgorithm returns the checksum algorithm that an upload was created with,
// which never changes.
func (e *Engine) partAlgorithm(req *request) (algorithm, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	_, u, err := e.upload(req)
	if err != nil {
		return "", err
	}
	return u.algorithm, nil
}

func (e *Engine) abortMultipartUpload(req *request) (engine.Response, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, u, err := e.upload(req)
	if err != nil {
		return engine.Response{}, err
	}
	c := e.begin()
	c.abortUpload(b, u)
	return engine.Response{Status: http.StatusNoContent, Header: http.Header{}, Durable: c.commit()}, nil
}

// A completion is the document of CompleteMultipartUpload.
type completion struct {
	XMLName xml.Name         `xml:"CompleteMultipartUpload"`
	Parts   []completedPart  `xml:"Part"`
	Unknown []unknownElement `xml:",any"`
}

type completedPart struct {
	PartNumber        int
	ETag              string `xml:"ETag"`
	ChecksumCRC32     string
	ChecksumCRC32C    string
	ChecksumCRC64NVME string
	ChecksumSHA1      string
	ChecksumSHA256    string
	Unknown           []unknownElement `xml:",any"`
}

func (p *completedPart) checksum(a algorithm) string {
	switch a {
	case crc32IEEE:
		return p.ChecksumCRC32
	case crc32C:
		return p.ChecksumCRC32C
	case crc64NVME:
		return p.ChecksumCRC64NVME
	case sha1Sum:
		return p.ChecksumSHA1
	case sha256Sum:
		return p.ChecksumSHA256
	}
	return ""
}

// parseCompletion reads the document. The checksum headers of this request are
// the object's, not the document's.
func parseCompletion(req *request) (*completion, error) {
	var doc completion
	plain := *req
	plain.header = http.Header{}
	if err := decodeXML(&plain, &doc); err != nil {
		return nil, err
	}
	if len(doc.Parts) == 0 || len(doc.Parts) > maxPartNumber {
		return nil, malformedXML()
	}
	if err := refuseUnknown("CompleteMultipartUpload", doc.Unknown); err != nil {
		return nil, err
	}
	for i := range doc.Parts {
		if err := refuseUnknown("CompleteMultipartUpload", doc.Parts[i].Unknown); err != nil {
			return nil, err
		}
		if i > 0 && doc.Parts[i].PartNumber <= doc.Parts[i-1].PartNumber {
			return nil, newError(http.StatusBadRequest, "InvalidPartOrder",
				"The list of parts was not in ascending order. Parts must be ordered by part number.").with("UploadId", req.query.Get("uploadId"))
		}
	}
	return &doc, nil
}

// assemble returns the parts that a completion names, all checked.
func (u *upload) assemble(doc *completion) ([]*part, error) {
	parts := make([]*part, 0, len(doc.Parts))
	size := int64(0)
	for i := range doc.Parts {
		named := &doc.Parts[i]
		p := u.parts[named.PartNumber]
		given := named.checksum(u.partChecksum())
		if p == nil || strings.Trim(named.ETag, `"`) != p.etag || given != "" && given != p.checksum.value {
			return nil, newError(http.StatusBadRequest, "InvalidPart",
				"One or more of the specified parts could not be found.  The part may not have been uploaded, or the specified entity tag may not match the part's entity tag.").
				with("UploadId", u.id).with("PartNumber", strconv.Itoa(named.PartNumber)).with("ETag", named.ETag)
		}
		if u.composite && given == "" {
			return nil, invalidRequest(fmt.Sprintf("The upload was created using a %s checksum. The complete request must include the checksum for each part. It was missing for part %d in the request.",
				strings.ToLower(string(u.algorithm)), named.PartNumber))
		}
		if i < len(doc.Parts)-1 && p.body.size < minPartSize {
			return nil, newError(http.StatusBadRequest, "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size").
				with("ProposedSize", strconv.FormatInt(p.body.size, 10)).with("MinSizeAllowed", strconv.Itoa(minPartSize)).
				with("PartNumber", strconv.Itoa(named.PartNumber)).with("ETag", p.etag)
		}
		size += p.body.size
		parts = append(parts, p)
	}
	if size > MaxObjectSize {
		return nil, entityTooLarge(size)
	}
	return parts, nil
}

// partChecksum is the algorithm of the parts' checksums.
func (u *upload) partChecksum() algorithm {
	if u.algorithm == noChecksum {
		return crc64NVME
	}
	return u.algorithm
}

// multipartETag is the MD5 of the parts' MD5s and their number. With aws:kms the
// parts' ETags are opaque, and so is this one.
func multipartETag(parts []*part) string {
	digest := md5.New()
	for _, p := range parts {
		raw, _ := hex.DecodeString(p.etag) // written by encryption.etag
		digest.Write(raw)
	}
	return fmt.Sprintf("%x-%d", digest.Sum(nil), len(parts))
}

// wholeChecksum is the object's checksum: composite, or joined from the parts'.
func (u *upload) wholeChecksum(parts []*part) checksum {
	a := u.partChecksum()
	if u.composite {
		var joined []byte
		for _, p := range parts {
			raw, _ := base64.StdEncoding.DecodeString(p.checksum.value) // verified or computed here
			joined = append(joined, raw...)
		}
		return checksum{algorithm: a, composite: true, value: fmt.Sprintf("%s-%d", a.of(joined).value, len(parts))}
	}
	var whole uint64
	width := len(a.sum(nil))
	for _, p := range parts {
		raw, _ := base64.StdEncoding.DecodeString(p.checksum.value)
		whole = a.join(whole, bigEndian(raw), p.body.size)
	}
	raw := binary.BigEndian.AppendUint64(nil, whole)
	return checksum{algorithm: a, value: base64.StdEncoding.EncodeToString(raw[8-width:])}
}

func bigEndian(raw []byte) uint64 {
	var n uint64
	for _, c := range raw {
		n = n<<8 | uint64(c)
	}
	return n
}

func (e *Engine) completeMultipartUpload(req *request) (engine.Response, error) {
	cond, err := parseWriteCondition(req.header)
	if err != nil {
		return engine.Response{}, err
	}
	doc, err := parseCompletion(req)
	if err != nil {
		return engine.Response{}, err
	}
	size, sized, err := sizeHeader(req.header, "X-Amz-Mp-Object-Size")
	if err != nil {
		return engine.Response{}, err
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	b, u, err := e.upload(req)
	if err != nil {
		return engine.Response{}, err
	}
	parts, err := u.assemble(doc)
	if err != nil {
		return engine.Response{}, err
	}
	if err := cond.check(u.key, b.current(u.key)); err != nil {
		return engine.Response{}, err
	}
	if err := u.conflict(cond); err != nil {
		return engine.Response{}, err
	}
	v := u.object(parts)
	if sized && size != v.body.size {
		return engine.Response{}, invalidRequest(fmt.Sprintf("The provided 'x-amz-mp-object-size' header value %d does not match what was computed: %d", size, v.body.size))
	}
	if err := v.checksum.verifyCompletion(req.header); err != nil {
		return engine.Response{}, err
	}
	c := e.begin()
	c.removeUpload(b, u)
	for _, p := range parts {
		delete(u.parts, p.number) // the object took its body over
	}
	for _, left := range u.parts {
		c.drop(left.body)
	}
	e.publish(c, b, u.key, v)
	resp := completed(b, u.key, v)
	resp.Durable = c.commit()
	return resp, nil
}

// object makes the version that an upload's parts amount to.
func (u *upload) object(parts []*part) *version {
	segments := make([]segment, len(parts))
	for i, p := range parts {
		segments[i] = p.body
	}
	return &version{
		modified: u.initiated, // as S3 documents for multipart uploads
		etag:     multipartETag(parts),
		body:     newBody(segments...),
		parts:    len(parts),
		checksum: u.wholeChecksum(parts),
		metadata: u.metadata, storageClass: u.storageClass, encryption: u.encryption,
	}
}

// completed is the answer to a completion that made v.
func completed(b *bucket, key string, v *version) engine.Response {
	x := startXML("CompleteMultipartUploadResult", xmlNamespace)
	x.text("Location", "/"+b.name+"/"+key)
	x.text("Bucket", b.name)
	x.text("Key", key)
	x.etag(v.etag)
	x.checksum(v.checksum)
	resp := xmlResponse(x.end("CompleteMultipartUploadResult"))
	v.tell(resp.Header)
	return resp
}

// verifyCompletion compares the object's checksum with what the request gives.
func (c checksum) verifyCompletion(h http.Header) error {
	if kind := h.Get("X-Amz-Checksum-Type"); kind != "" && kind != c.kind() {
		return invalidRequest(fmt.Sprintf("The upload was created using the %s checksum mode. The complete request must use the same checksum mode.", c.kind()))
	}
	given := h.Get(checksumHeader[c.algorithm])
	if given != "" && given != c.value {
		return newError(http.StatusBadRequest, "BadDigest",
			fmt.Sprintf("The %s you specified did not match the calculated checksum.", c.algorithm))
	}
	return nil
}
