package objects

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/crc64"
	"net/http"
	"strings"
)

// An algorithm is one of S3's checksums, by the name of its XML elements.
type algorithm string

// The algorithms that the embedded S3 verifies and stores.
const (
	crc32IEEE  algorithm = "CRC32"
	crc32C     algorithm = "CRC32C"
	crc64NVME  algorithm = "CRC64NVME"
	sha1Sum    algorithm = "SHA1"
	sha256Sum  algorithm = "SHA256"
	noChecksum algorithm = ""
)

const (
	checksumPrefix = "X-Amz-Checksum-"
	// nvmePolynomial is CRC-64/NVME's, reflected as hash/crc64 wants it.
	nvmePolynomial = 0x9A6C9329AC4BC9B5
)

var (
	algorithms     = []algorithm{crc32IEEE, crc32C, crc64NVME, sha1Sum, sha256Sum}
	castagnoli     = crc32.MakeTable(crc32.Castagnoli)
	nvme           = crc64.MakeTable(nvmePolynomial)
	checksumHeader = map[algorithm]string{
		crc32IEEE: checksumPrefix + "Crc32", crc32C: checksumPrefix + "Crc32c", crc64NVME: checksumPrefix + "Crc64nvme",
		sha1Sum: checksumPrefix + "Sha1", sha256Sum: checksumPrefix + "Sha256",
	}
	// refusedAlgorithms are S3's newer ones.
	refusedAlgorithms = map[string]bool{"MD5": true, "SHA512": true, "XXHASH64": true, "XXHASH3": true, "XXHASH128": true}
)

// A checksum is an algorithm and its value in base64; that of a multipart
// object may be composite: the checksum of its parts' checksums and their number.
type checksum struct {
	algorithm algorithm
	value     string
	composite bool
}

func (c checksum) kind() string {
	if c.composite {
		return "COMPOSITE"
	}
	return "FULL_OBJECT"
}

// set adds the checksum to the headers of an answer.
func (c checksum) set(h http.Header) {
	if c.algorithm == noChecksum {
		return
	}
	h[checksumHeader[c.algorithm]] = []string{c.value}
	h["X-Amz-Checksum-Type"] = []string{c.kind()}
}

func parseAlgorithm(name string) (algorithm, error) {
	upper := strings.ToUpper(name)
	for _, a := range algorithms {
		if string(a) == upper {
			return a, nil
		}
	}
	if refusedAlgorithms[upper] {
		return "", notImplemented("the checksum algorithm " + upper)
	}
	return "", invalidRequest("Checksum algorithm provided is unsupported. Please try again with any of the valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]")
}

// sum computes the raw checksum of data.
func (a algorithm) sum(data []byte) []byte {
	switch a {
	case crc32IEEE:
		return binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(data))
	case crc32C:
		return binary.BigEndian.AppendUint32(nil, crc32.Checksum(data, castagnoli))
	case crc64NVME:
		return binary.BigEndian.AppendUint64(nil, crc64.Checksum(data, nvme))
	case sha1Sum:
		s := sha1.Sum(data)
		return s[:]
	case sha256Sum:
		s := sha256.Sum256(data)
		return s[:]
	}
	return nil
}

func (a algorithm) of(data []byte) checksum {
	return checksum{algorithm: a, value: base64.StdEncoding.EncodeToString(a.sum(data))}
}

// composable tells whether the checksum of a whole follows from those of its parts.
func (a algorithm) composable() bool { return a == crc32IEEE || a == crc32C || a == crc64NVME }

// join returns the CRC of two runs of bytes from the CRC of each and the length
// of the second.
func (a algorithm) join(first, second uint64, secondLength int64) uint64 {
	var polynomial uint64
	width := 32
	switch a {
	case crc32IEEE:
		polynomial = crc32.IEEE
	case crc32C:
		polynomial = crc32.Castagnoli
	case crc64NVME:
		polynomial, width = nvmePolynomial, 64
	}
	// Appending n bytes multiplies the first CRC by x^(8n). In the reflected
	// form the highest bit is the coefficient of x^0. The initial and final
	// inversions of the two cancel out.
	product := func(p, q uint64) (r uint64) {
		for bit := uint64(1) << (width - 1); bit != 0; bit >>= 1 {
			if p&bit != 0 {
				r ^= q
			}
			carry := q & 1
			q >>= 1
			if carry == 1 {
				q ^= polynomial
			}
		}
		return r
	}
	power := uint64(1) << (width - 1 - 8) // x^8
	for n := secondLength; n > 0; n >>= 1 {
		if n&1 == 1 {
			first = product(first, power)
		}
		power = product(power, power)
	}
	return first ^ second
}

// requestChecksum finds the checksum that a request gives in a header or in a
// trailer; without one, the algorithm is empty.
func requestChecksum(h http.Header) (checksum, error) {
	var found checksum
	for _, a := range algorithms {
		value := h.Get(checksumHeader[a])
		if value == "" {
			continue
		}
		if found.algorithm != noChecksum {
			return found, invalidRequest("Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.")
		}
		if raw, err := base64.StdEncoding.DecodeString(value); err != nil || len(raw) != len(a.sum(nil)) {
			return found, invalidRequest("Value for " + strings.ToLower(checksumHeader[a]) + " header is invalid.")
		}
		found = checksum{algorithm: a, value: strings.Clone(value)}
	}
	if found.algorithm == noChecksum {
		for name := range refusedAlgorithms {
			if h.Get("X-Amz-Checksum-"+name) != "" {
				return found, notImplemented("the checksum algorithm " + name)
			}
		}
	}
	named := h.Get("X-Amz-Sdk-Checksum-Algorithm")
	if named == "" {
		return found, nil
	}
	a, err := parseAlgorithm(named)
	switch {
	case err != nil:
		return found, err
	case found.algorithm == noChecksum:
		return found, invalidRequest("x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer headers were found.")
	case found.algorithm != a:
		return found, invalidRequest("Value for x-amz-sdk-checksum-algorithm header is invalid.")
	}
	return found, nil
}

// verify compares a given checksum with the data.
func (c checksum) verify(data []byte) error {
	if c.algorithm != noChecksum && c.algorithm.of(data).value != c.value {
		return newError(http.StatusBadRequest, "BadDigest",
			fmt.Sprintf("The %s you specified did not match the calculated checksum.", c.algorithm))
	}
	return nil
}

// verifyMD5 compares a Content-MD5 header, when there is one, with a digest.
func verifyMD5(h http.Header, digest [md5.Size]byte) error {
	text := h.Get("Content-Md5")
	if text == "" {
		return nil
	}
	given, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(given) != md5.Size {
		return newError(http.StatusBadRequest, "InvalidDigest", "The Content-MD5 you specified was invalid.").with("Content-MD5", text)
	}
	if [md5.Size]byte(given) != digest {
		return newError(http.StatusBadRequest, "BadDigest", "The Content-MD5 you specified did not match what we received.").
			with("ExpectedDigest", text).with("CalculatedDigest", base64.StdEncoding.EncodeToString(digest[:]))
	}
	return nil
}

// verifyDigests checks the digests of a request whose body is a document.
func verifyDigests(h http.Header, body []byte) error {
	given, err := requestChecksum(h)
	if err != nil {
		return err
	}
	if err := given.verify(body); err != nil {
		return err
	}
	if h.Get("Content-Md5") == "" {
		return nil
	}
	return verifyMD5(h, md5.Sum(body))
}

// requireDigest refuses a document that comes without any digest, where S3
// demands one. Whether it is right is for verifyDigests.
func requireDigest(h http.Header) error {
	given, err := requestChecksum(h)
	if err != nil {
		return err
	}
	if given.algorithm == noChecksum && h.Get("Content-Md5") == "" {
		return invalidRequest("Missing required header for this request: Content-MD5 OR x-amz-checksum-*")
	}
	return nil
}
