package objects

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// maxUserMetadata is S3's limit of user metadata: the bytes of all names,
// without their prefix, and values.
const maxUserMetadata = 2 << 10

const userMetadataPrefix = "X-Amz-Meta-"

// systemMetadata are the headers that an object keeps and gives back.
var systemMetadata = []string{
	"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Type", "Expires",
}

// refusedHeaders ask for features that are not here, by their canonical prefix.
var refusedHeaders = []string{
	"X-Amz-Annotation", "X-Amz-Bucket-Object-Lock-Enabled", "X-Amz-Bypass-Governance-Retention",
	"X-Amz-Copy-Source-Server-Side-Encryption-Customer-", "X-Amz-Grant-", "X-Amz-If-Match-",
	"X-Amz-Mfa", "X-Amz-Object-Lock-", "X-Amz-Rename-Source", "X-Amz-Server-Side-Encryption-Customer-",
	"X-Amz-Tagging", "X-Amz-Website-Redirect-Location", "X-Amz-Write-Offset-Bytes",
}

// refuseHeaders names a header that asks for what is not implemented. The
// preconditions of directory buckets (x-amz-if-match-size and the like) are 501
// on AWS's general purpose buckets too.
func refuseHeaders(h http.Header) error {
	for name, values := range h {
		if !strings.HasPrefix(name, "X-Amz-") {
			continue
		}
		for _, refused := range refusedHeaders {
			if strings.HasPrefix(name, refused) && !(name == "X-Amz-Tagging-Directive" && h.Get(name) == "COPY") {
				return headerNotImplemented(strings.ToLower(name), "The embedded S3 does not implement it")
			}
		}
		if name == "X-Amz-Acl" && len(values) > 0 && values[0] != "private" && values[0] != "bucket-owner-full-control" {
			return newError(http.StatusBadRequest, "AccessControlListNotSupported", "The bucket does not allow ACLs")
		}
	}
	return nil
}

// parseMetadata collects the system and user metadata of a write, in a fixed
// order. The strings are copied: they share memory with the whole request.
func parseMetadata(h http.Header) ([]field, error) {
	fields := make([]field, 0, 4)
	for _, name := range systemMetadata {
		value := h.Get(name)
		if name == "Content-Encoding" {
			value = withoutChunked(value)
		}
		if name == "Content-Type" && value == "" {
			value = "binary/octet-stream"
		}
		if value != "" {
			fields = append(fields, field{name, strings.Clone(value)})
		}
	}
	user, size := len(fields), 0
	for name, values := range h {
		if rest, ok := strings.CutPrefix(name, userMetadataPrefix); ok && rest != "" {
			value := strings.Join(values, ",")
			size += len(rest) + len(value)
			fields = append(fields, field{strings.Clone(name), strings.Clone(value)})
		}
	}
	if size > maxUserMetadata {
		return nil, newError(http.StatusBadRequest, "MetadataTooLarge",
			"Your metadata headers exceed the maximum allowed metadata size").
			with("Size", strconv.Itoa(size)).with("MaxSizeAllowed", strconv.Itoa(maxUserMetadata))
	}
	slices.SortFunc(fields[user:], func(a, b field) int { return strings.Compare(a.name, b.name) })
	return fields, nil
}

// withoutChunked strips aws-chunked, which frames the request and is no
// encoding of the object, from a Content-Encoding.
func withoutChunked(value string) string {
	if !strings.Contains(value, "aws-chunked") {
		return value
	}
	var kept []string
	for token := range strings.SplitSeq(value, ",") {
		if token = strings.TrimSpace(token); token != "" && token != "aws-chunked" {
			kept = append(kept, token)
		}
	}
	return strings.Join(kept, ",")
}

const standardClass = "STANDARD"

// storageClasses are those of general purpose buckets whose objects can be read
// at once; the archive classes would need RestoreObject.
var storageClasses = []string{standardClass, "REDUCED_REDUNDANCY", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR"}

func parseStorageClass(h http.Header) (string, error) {
	class := h.Get("X-Amz-Storage-Class")
	if class == "" {
		return standardClass, nil
	}
	if class == "GLACIER" || class == "DEEP_ARCHIVE" {
		return "", notImplemented("the storage class " + class)
	}
	i := slices.Index(storageClasses, class)
	if i < 0 {
		return "", newError(http.StatusBadRequest, "InvalidStorageClass", "The storage class you specified is not valid").
			with("StorageClassRequested", class)
	}
	return storageClasses[i], nil
}

const (
	encryptionS3  = "AES256"
	encryptionKMS = "aws:kms"
	// managedKey stands for the account's aws/s3 key, which AWS uses when no key is named.
	managedKey = "arn:aws:kms:us-east-1:" + accountID + ":alias/aws/s3"
)

// An encryption is how an object claims to be encrypted. Nothing is encrypted
// here; what shows is told as on AWS: the headers, and an ETag that is not the
// MD5 of the content with aws:kms.
type encryption struct {
	algorithm string // empty: the bucket's default
	keyID     string
	bucketKey bool
	context   string
}

func parseEncryption(h http.Header) (encryption, error) {
	s := encryption{
		algorithm: h.Get("X-Amz-Server-Side-Encryption"),
		keyID:     strings.Clone(h.Get("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id")),
		context:   strings.Clone(h.Get("X-Amz-Server-Side-Encryption-Context")),
		bucketKey: h.Get("X-Amz-Server-Side-Encryption-Bucket-Key-Enabled") == "true",
	}
	switch s.algorithm {
	case "", encryptionS3:
		if s.keyID != "" || s.context != "" {
			return s, invalidArgument("x-amz-server-side-encryption", s.algorithm,
				"Server Side Encryption with AWS KMS managed key requires HTTP header x-amz-server-side-encryption : aws:kms")
		}
		if s.algorithm != "" {
			s.algorithm = encryptionS3
		}
	case encryptionKMS:
		s.algorithm = encryptionKMS
	case "aws:kms:dsse":
		return s, notImplemented("the server-side encryption " + s.algorithm)
	default:
		return s, invalidArgument("x-amz-server-side-encryption", s.algorithm, "The encryption method specified is not supported")
	}
	return s, nil
}

// or fills in the bucket's default for a write that names no algorithm.
func (s encryption) or(byDefault encryption) encryption {
	if s.algorithm == "" {
		s = byDefault
	}
	if s.algorithm == encryptionKMS && s.keyID == "" {
		s.keyID = managedKey
	}
	return s
}

func (s encryption) set(h http.Header) {
	h["X-Amz-Server-Side-Encryption"] = []string{s.algorithm}
	if s.keyID != "" {
		h["X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id"] = []string{s.keyID}
	}
	if s.bucketKey {
		h["X-Amz-Server-Side-Encryption-Bucket-Key-Enabled"] = []string{"true"}
	}
	if s.context != "" {
		h["X-Amz-Server-Side-Encryption-Context"] = []string{s.context}
	}
}

// setVersionID adds x-amz-version-id. A bucket that never had versioning shows
// none.
func (b *bucket) setVersionID(h http.Header, id string) {
	if b.versioning != "" {
		h["X-Amz-Version-Id"] = []string{id}
	}
}

func quoted(etag string) string { return `"` + etag + `"` }

// sizeHeader reads a header that is a number of bytes.
func sizeHeader(h http.Header, name string) (size int64, present bool, err error) {
	text := h.Get(name)
	if text == "" {
		return 0, false, nil
	}
	size, err = strconv.ParseInt(text, 10, 64)
	if err != nil || size < 0 {
		return 0, true, invalidArgument(strings.ToLower(name), text, fmt.Sprintf("%s must be a non-negative integer", strings.ToLower(name)))
	}
	return size, true, nil
}
