package objects

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"
)

// The published check values of the algorithms, for "123456789".
func TestChecksumsHaveTheirCheckValues(t *testing.T) {
	for a, want := range map[algorithm]string{
		crc32IEEE: "\xcb\xf4\x39\x26",
		crc32C:    "\xe3\x06\x92\x83",
		crc64NVME: "\xae\x8b\x14\x86\x0a\x79\x98\x88",
	} {
		if got := string(a.sum([]byte("123456789"))); got != want {
			t.Errorf("%s: %x, want %x", a, got, want)
		}
	}
}

func TestJoinedChecksumsEqualThoseOfTheWhole(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		whole := make([]byte, rng.IntN(5000))
		for i := range whole {
			whole[i] = byte(rng.Uint32())
		}
		cut := rng.IntN(len(whole) + 1)
		for _, a := range []algorithm{crc32IEEE, crc32C, crc64NVME} {
			got := a.join(bigEndian(a.sum(whole[:cut])), bigEndian(a.sum(whole[cut:])), int64(len(whole)-cut))
			if want := bigEndian(a.sum(whole)); got != want {
				t.Fatalf("%s of %d bytes cut at %d: %x, want %x", a, len(whole), cut, got, want)
			}
		}
	}
	if got := bigEndian(binary.BigEndian.AppendUint32(nil, 0x01020304)); got != 0x01020304 {
		t.Errorf("bigEndian: %x", got)
	}
}

func TestGivenChecksumsAreVerifiedStoredAndReturned(t *testing.T) {
	b := newBench(t)
	for _, a := range algorithms {
		name := checksumHeader[a]
		good, bad := a.of([]byte("body")).value, a.of([]byte("other")).value
		b.want(b.put("k"+string(a), "body", headers{name: bad}), 400, "BadDigest")
		b.want(b.get("k"+string(a), nil), 404, "NoSuchKey")
		b.want(b.put("k"+string(a), "body", headers{name: "????"}), 400, "InvalidRequest")
		b.want(b.put("k"+string(a), "body", headers{name: "AAA="}), 400, "InvalidRequest")
		b.want(b.put("k"+string(a), "body", headers{name: good, "X-Amz-Sdk-Checksum-Algorithm": "MD4"}), 400, "InvalidRequest")
		resp := b.put("k"+string(a), "body", headers{name: good, "X-Amz-Sdk-Checksum-Algorithm": string(a)})
		b.want(resp, 200, "")
		if resp.Header.Get(name) != good || resp.Header.Get("X-Amz-Checksum-Type") != "FULL_OBJECT" {
			t.Errorf("put: %v", resp.Header)
		}
		if got := b.get("k"+string(a), headers{"X-Amz-Checksum-Mode": "ENABLED"}); got.Header.Get(name) != good {
			t.Errorf("get: %v", got.Header)
		}
		if got := b.get("k"+string(a), nil); got.Header.Get(name) != "" {
			t.Errorf("get without checksum mode: %v", got.Header)
		}
	}
	two := headers{checksumHeader[sha1Sum]: sha1Sum.of(nil).value, checksumHeader[crc32C]: crc32C.of(nil).value}
	b.want(b.put("k", "", two), 400, "InvalidRequest")
	b.want(b.put("k", "", headers{"X-Amz-Sdk-Checksum-Algorithm": "CRC32"}), 400, "InvalidRequest")
	b.want(b.put("k", "", headers{"X-Amz-Sdk-Checksum-Algorithm": "SHA1", checksumHeader[crc32C]: crc32C.of(nil).value}), 400, "InvalidRequest")
	// S3 computes a CRC64NVME for writes that give nothing.
	if resp := b.put("k", "body", nil); resp.Header.Get("X-Amz-Checksum-Crc64nvme") != crc64NVME.of([]byte("body")).value {
		t.Errorf("put without a checksum: %v", resp.Header)
	}
}

func TestContentMD5IsVerified(t *testing.T) {
	b := newBench(t)
	digest := md5.Sum([]byte("body"))
	b.want(b.put("k", "body", headers{"Content-Md5": base64.StdEncoding.EncodeToString(digest[:])}), 200, "")
	b.want(b.put("k", "changed", headers{"Content-Md5": base64.StdEncoding.EncodeToString(digest[:])}), 400, "BadDigest")
	b.want(b.put("k", "body", headers{"Content-Md5": "no"}), 400, "InvalidDigest")
	if got := b.get("k", nil); string(got.Body) != "body" {
		t.Errorf("a refused body was stored: %q", got.Body)
	}
}
