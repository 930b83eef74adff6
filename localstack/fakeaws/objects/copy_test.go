package objects

import "testing"

func TestCopyKeepsOrReplacesMetadata(t *testing.T) {
	b := newBench(t)
	b.want(b.put("a b+c", "body", headers{"X-Amz-Meta-A": "1", "Content-Type": "text/x", "X-Amz-Checksum-Sha1": sha1Sum.of([]byte("body")).value}), 200, "")
	resp := b.do("PUT", "/bkt/kept", headers{"X-Amz-Copy-Source": "/bkt/a%20b+c", "X-Amz-Meta-A": "ignored"}, "")
	b.want(resp, 200, "")
	if element(resp, "ETag") != "&quot;"+etagOf("body")[1:33]+"&quot;" || element(resp, "ChecksumSHA1") == "" || element(resp, "LastModified") == "" {
		t.Errorf("result %s", resp.Body)
	}
	if got := b.get("kept", nil); string(got.Body) != "body" || got.Header.Get("X-Amz-Meta-A") != "1" || got.Header.Get("Content-Type") != "text/x" {
		t.Errorf("copy: %q %v", got.Body, got.Header)
	}
	b.want(b.do("PUT", "/bkt/replaced", headers{"X-Amz-Copy-Source": "bkt/a%20b%2Bc", "X-Amz-Metadata-Directive": "REPLACE", "X-Amz-Meta-B": "2", "X-Amz-Checksum-Algorithm": "CRC32C"}, ""), 200, "")
	got := b.get("replaced", headers{"X-Amz-Checksum-Mode": "ENABLED"})
	if got.Header.Get("X-Amz-Meta-A") != "" || got.Header.Get("X-Amz-Meta-B") != "2" || got.Header.Get("X-Amz-Checksum-Crc32c") != crc32C.of([]byte("body")).value {
		t.Errorf("replaced: %v", got.Header)
	}
}

func TestCopyIsChecked(t *testing.T) {
	b := newBench(t)
	b.want(b.put("k", "v", nil), 200, "")
	for source, code := range map[string]string{
		"bkt": "InvalidArgument", "bkt/": "InvalidArgument", "bkt/%zz": "InvalidArgument", "bkt/k?version=1": "InvalidArgument",
		"bkt/k?versionId=zz": "InvalidArgument", "bkt/none": "NoSuchKey", "none/k": "NoSuchBucket", "bkt/k": "InvalidRequest",
	} {
		if resp := b.do("PUT", "/bkt/k", headers{"X-Amz-Copy-Source": source}, ""); resp.ErrorCode != code {
			t.Errorf("source %s: %d %s, want %s", source, resp.Status, resp.ErrorCode, code)
		}
	}
	b.want(b.do("PUT", "/bkt/k", headers{"X-Amz-Copy-Source": "bkt/k", "X-Amz-Metadata-Directive": "MERGE"}, ""), 400, "InvalidArgument")
	// Onto itself with other metadata is the way to change metadata.
	b.want(b.do("PUT", "/bkt/k", headers{"X-Amz-Copy-Source": "bkt/k", "X-Amz-Metadata-Directive": "REPLACE", "X-Amz-Meta-A": "1"}, ""), 200, "")
	if got := b.get("k", nil); string(got.Body) != "v" || got.Header.Get("X-Amz-Meta-A") != "1" {
		t.Errorf("copied onto itself: %q %v", got.Body, got.Header)
	}
}

func TestCopyOfAMultipartObjectIsAPlainObject(t *testing.T) {
	b := newBench(t)
	u := b.upload("k", headers{"X-Amz-Checksum-Algorithm": "SHA256"})
	sum := sha256Sum.of([]byte("part")).value
	resp := b.do("PUT", u.target("&partNumber=1"), nil, "part")
	u.parts = []string{"<Part><PartNumber>1</PartNumber><ETag>" + resp.Header.Get("Etag") + "</ETag><ChecksumSHA256>" + sum + "</ChecksumSHA256></Part>"}
	b.want(u.complete(nil), 200, "")
	b.want(b.do("PUT", "/bkt/copy", headers{"X-Amz-Copy-Source": "bkt/k"}, ""), 200, "")
	got := b.get("copy", headers{"X-Amz-Checksum-Mode": "ENABLED"})
	if got.Header.Get("Etag") != etagOf("part") || got.Header.Get("X-Amz-Checksum-Sha256") != sum || got.Header.Get("X-Amz-Checksum-Type") != "FULL_OBJECT" {
		t.Errorf("copy: %v", got.Header)
	}
}
