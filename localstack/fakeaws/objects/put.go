package objects

import (
	"crypto/md5"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"drawbridge/localstack/fakeaws/engine"
)

// A payload is the content of a request: unframed, copied, with every digest
// that came with it verified.
type payload struct {
	data     []byte
	md5      [md5.Size]byte
	checksum checksum // given by the caller; without one the algorithm is empty
}

func entityTooLarge(size int64) *apiError {
	return newError(http.StatusBadRequest, "EntityTooLarge", "Your proposed upload exceeds the maximum allowed size").
		with("ProposedSize", strconv.FormatInt(size, 10)).with("MaxSizeAllowed", strconv.Itoa(MaxObjectSize))
}

// readPayload takes the content out of a request.
func readPayload(req *request) (payload, error) {
	given := req.header
	var p payload
	if isChunked(req.header) {
		data, trailer, err := decodeChunked(req.body, req.header)
		if err != nil {
			return p, err
		}
		p.data = data
		if len(trailer) > 0 {
			given = given.Clone()
			maps.Copy(given, trailer)
		}
	} else {
		if len(req.body) > MaxObjectSize {
			return p, entityTooLarge(int64(len(req.body)))
		}
		p.data = append(make([]byte, 0, len(req.body)), req.body...)
	}
	var err error
	if p.checksum, err = requestChecksum(given); err != nil {
		return p, err
	}
	if err := p.checksum.verify(p.data); err != nil {
		return p, err
	}
	p.md5 = md5.Sum(p.data)
	return p, verifyMD5(req.header, p.md5)
}

// etag is the entity tag of a single write: the MD5 of the content, or with
// aws:kms something opaque that differs from write to write.
func (s encryption) etag(digest [md5.Size]byte) string {
	if s.algorithm == encryptionKMS {
		_, _ = rand.Read(digest[:]) // never fails (crypto/rand)
	}
	return hex.EncodeToString(digest[:])
}

func (e *Engine) putObject(req *request) (engine.Response, error) {
	for _, name := range []string{"versionId", "partNumber"} {
		if req.query.Has(name) {
			return engine.Response{}, invalidArgument(name, req.query.Get(name), "This operation does not accept a "+name+".")
		}
	}
	cond, err := parseWriteCondition(req.header)
	if err != nil {
		return engine.Response{}, err
	}
	v := &version{}
	if err := v.describe(req.header); err != nil {
		return engine.Response{}, err
	}
	p, err := readPayload(req)
	if err != nil {
		return engine.Response{}, err
	}
	v.checksum = p.checksum
	if v.checksum.algorithm == noChecksum {
		v.checksum = crc64NVME.of(p.data) // S3's default since December 2024
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	b, err := e.bucket(req.bucket)
	if err != nil {
		return engine.Response{}, err
	}
	if err := cond.check(req.key, b.current(req.key)); err != nil {
		return engine.Response{}, err
	}
	c := e.begin()
	v.modified = e.now()
	v.encryption = v.encryption.or(b.settings.encryption)
	v.etag = v.encryption.etag(p.md5)
	v.body = newBody(c.keep(p.data))
	e.publish(c, b, strings.Clone(req.key), v)

	h := make(http.Header, 8)
	h["Etag"] = []string{quoted(v.etag)}
	h["Content-Length"] = []string{"0"}
	v.checksum.set(h)
	v.tell(h)
	return engine.Response{Status: http.StatusOK, Header: h, Durable: c.commit()}, nil
}

// tell adds what the answers to all writes of an object have: how it is
// encrypted, and its version.
func (v *version) tell(h http.Header) {
	v.encryption.set(h)
	if v.id != nullVersion {
		h["X-Amz-Version-Id"] = []string{v.id}
	}
}

// describe reads what the headers of a write say about the object.
func (v *version) describe(h http.Header) (err error) {
	if v.metadata, err = parseMetadata(h); err != nil {
		return err
	}
	if v.storageClass, err = parseStorageClass(h); err != nil {
		return err
	}
	v.encryption, err = parseEncryption(h)
	return err
}

// publish makes v the current version of a key under the id that the bucket's
// versioning calls for; the caller holds the lock.
func (e *Engine) publish(c *change, b *bucket, key string, v *version) {
	v.seq = e.nextSeq()
	v.id = nullVersion
	if b.versioning == versioningEnabled {
		v.id = newOpaqueID(v.seq)
	}
	c.addVersion(b, key, v)
}
