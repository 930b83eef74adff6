package objects

import (
	"bufio"
	"encoding/xml"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

var controlReference = regexp.MustCompile(`&#x(?:[0-9a-f]{1,2}|fff[ef]);`)

// FuzzServe sends raw requests: method, request target, header lines and body.
// Whatever arrives, the engine answers a well-formed status without a panic,
// refuses without changing anything, and keeps serving.
func FuzzServe(f *testing.F) {
	upload := "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>x</ETag></Part></CompleteMultipartUpload>"
	seeds := []struct{ method, target, header, body string }{
		{"GET", "/", "", ""},
		{"PUT", "/new-bucket", "", "<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint></CreateBucketConfiguration>"},
		{"PUT", "/bkt/k", "If-None-Match: *\nX-Amz-Meta-A: 1\nX-Amz-Checksum-Crc32: AAAAAA==", ""},
		{"PUT", "/bkt/k", "X-Amz-Content-Sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\nX-Amz-Decoded-Content-Length: 5\nX-Amz-Trailer: x-amz-checksum-crc32", "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n"},
		{"PUT", "/bkt/k", "X-Amz-Content-Sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD\nX-Amz-Decoded-Content-Length: 1", "1;chunk-signature=a\r\nx\r\n0;chunk-signature=b\r\n\r\n"},
		{"GET", "/bkt/seed?response-content-type=a&partNumber=1", "If-Match: *\nX-Amz-Checksum-Mode: ENABLED", ""},
		{"GET", "/bkt/seed", "Range: bytes=1-2", ""},
		{"GET", "/bkt//../%2F?versionId=null", "", ""},
		{"DELETE", "/bkt/seed", "If-Match: *", ""},
		{"GET", "/bkt?list-type=2&prefix=s&delimiter=e&max-keys=1&encoding-type=url&continuation-token=MTpz", "", ""},
		{"GET", "/bkt?versions&key-marker=s&version-id-marker=null", "", ""},
		{"POST", "/bkt?delete", "Content-MD5: 1B2M2Y8AsgTpgAmY7PhCfg==", "<Delete><Object><Key>a</Key></Object></Delete>"},
		{"PUT", "/bkt/copy", "X-Amz-Copy-Source: /bkt/seed?versionId=null", ""},
		{"POST", "/bkt/k?uploads", "X-Amz-Checksum-Algorithm: CRC32", ""},
		{"POST", "/bkt/k?uploadId=x", "", upload},
		{"PUT", "/bkt?policy", "", `{"Statement":{"Effect":"Deny","Principal":"*","Action":"s3:PutObject","Resource":"arn:aws:s3:::bkt/*","Condition":{"Null":{"s3:if-match":"true"}}}}`},
		{"PUT", "/bkt?lifecycle", "Content-MD5: aesltK2V8q1fGKkiieINEA==", "<LifecycleConfiguration><Rule><Status>Enabled</Status><Filter/><Expiration><Days>1</Days></Expiration></Rule></LifecycleConfiguration>"},
		{"PUT", "/bkt?versioning", "", "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"},
		{"PUT", "/bkt?encryption", "", "<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>aws:kms</SSEAlgorithm></ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>"},
	}
	for _, s := range seeds {
		f.Add(s.method, s.target, s.header, s.body)
	}
	f.Fuzz(func(t *testing.T, method, target, header, body string) {
		raw := method + " " + target + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + strings.ReplaceAll(header, "\n", "\r\n") + "\r\n\r\n"
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil {
			t.Skip("no HTTP request")
		}
		j := newTestJournal()
		b := openBench(t, j)
		b.want(b.do("PUT", "/bkt", nil, ""), 200, "")
		b.want(b.put("seed", "content", nil), 200, "")
		units := len(j.units)
		b.e.Describe(r, []byte(body))
		start := time.Now()
		resp := b.e.Serve(r, []byte(body))
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("the answer took %v", took) // bounded work, with room for a slow machine
		}
		if resp.Status < 200 || resp.Status > 599 || (resp.Status >= 300) != (resp.ErrorCode != "") {
			t.Errorf("status %d with code %q", resp.Status, resp.ErrorCode)
		}
		if resp.ErrorCode == "InternalError" {
			t.Errorf("internal error: %s", resp.Body)
		}
		if resp.ErrorCode != "" && len(j.units) != units {
			t.Errorf("%d %s, and the journal grew", resp.Status, resp.ErrorCode)
		}
		if resp.ErrorCode != "" && len(resp.Body) > 0 {
			var doc struct{ Code string }
			// A reference to a character that XML 1.0 cannot hold is S3's own way.
			text := controlReference.ReplaceAll(resp.Body, nil)
			if err := xml.Unmarshal(text, &doc); err != nil || doc.Code != resp.ErrorCode {
				t.Errorf("error document: %v\n%s", err, resp.Body)
			}
		}
		// What was accepted can be reopened.
		if _, err := Open(Options{Journal: newTestJournal(j.units...)}); err != nil {
			t.Errorf("reopen: %v", err)
		}
		b.do("GET", "/", nil, "")
	})
}
