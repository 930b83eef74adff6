package objects

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"drawbridge/localstack/fakeaws/engine"
)

// A bench drives an engine with requests, as the server would.
type bench struct {
	testing.TB
	e     *Engine
	clock *testClock
}

// A testClock is a clock that moves when told.
type testClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// newBench opens an engine in memory with one bucket, "bkt".
func newBench(t testing.TB) *bench {
	t.Helper()
	clock := &testClock{now: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)}
	e, err := Open(Options{Clock: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{TB: t, e: e, clock: clock}
	b.want(b.do("PUT", "/bkt", nil, ""), 200, "")
	return b
}

// headers are the headers of one request, one value each.
type headers map[string]string

// do serves one request; target is a path (already escaped) with an optional query.
func (b *bench) do(method, target string, h headers, body string) engine.Response {
	b.Helper()
	r := httptest.NewRequest(method, "http://127.0.0.1:9000"+target, nil)
	for name, value := range h {
		r.Header.Set(name, value)
	}
	r.Header.Set(requestIDHeader, "REQUEST1")
	return b.e.Serve(r, []byte(body))
}

// want checks the status and, for errors, the code ("" means no error).
func (b *bench) want(resp engine.Response, status int, code string) {
	b.Helper()
	if resp.Status != status || resp.ErrorCode != code {
		b.Fatalf("answer %d %q, want %d %q\n%s", resp.Status, resp.ErrorCode, status, code, resp.Body)
	}
}

func (b *bench) put(key, body string, h headers) engine.Response {
	b.Helper()
	return b.do("PUT", keyPath(key), h, body)
}

func (b *bench) get(key string, h headers) engine.Response {
	b.Helper()
	return b.do("GET", keyPath(key), h, "")
}

// keyPath is the escaped path of a key of the bucket "bkt".
func keyPath(key string) string { return "/bkt/" + (&url.URL{Path: key}).EscapedPath() }

func etagOf(body string) string {
	digest := md5.Sum([]byte(body))
	return `"` + hex.EncodeToString(digest[:]) + `"`
}

// document decodes an XML answer.
func document[T any](b *bench, resp engine.Response) T {
	b.Helper()
	var doc T
	if err := xml.Unmarshal(resp.Body, &doc); err != nil {
		b.Fatalf("decode answer: %v\n%s", err, resp.Body)
	}
	return doc
}

// element returns the text of the first element with a name, or "".
func element(resp engine.Response, name string) string {
	_, rest, ok := strings.Cut(string(resp.Body), "<"+name+">")
	if !ok {
		return ""
	}
	text, _, _ := strings.Cut(rest, "</"+name+">")
	return text
}

func TestErrorDocumentNamesResourceAndRequest(t *testing.T) {
	b := newBench(t)
	resp := b.get("a<b", nil)
	b.want(resp, 404, "NoSuchKey")
	for name, want := range map[string]string{"Code": "NoSuchKey", "Key": "a&lt;b", "Resource": "/bkt/a&lt;b", "RequestId": "REQUEST1"} {
		if got := element(resp, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if err := xml.Unmarshal(resp.Body, new(struct{ Code string })); err != nil {
		t.Errorf("not well-formed: %v", err)
	}
}

func TestHeadErrorsHaveNoBody(t *testing.T) {
	b := newBench(t)
	for _, target := range []string{"/bkt/none", "/nobucket", "/nobucket/x"} {
		resp := b.do("HEAD", target, nil, "")
		if resp.Status != 404 || len(resp.Body) != 0 || resp.ErrorCode == "" {
			t.Errorf("HEAD %s: %d %q with %d bytes", target, resp.Status, resp.ErrorCode, len(resp.Body))
		}
	}
}

func TestUnsupportedOperationsNameThemselves(t *testing.T) {
	b := newBench(t)
	b.want(b.put("k", "v", nil), 200, "")
	tests := []struct {
		method, target string
		header         headers
		name           string
	}{
		{"GET", "/bkt?acl", nil, "GetBucketAcl"},
		{"PUT", "/bkt?cors", nil, "PutBucketCors"},
		{"PUT", "/bkt?tagging", nil, "PutBucketTagging"},
		{"GET", "/bkt?analytics&id=1", nil, `"id"`},
		{"PUT", "/bkt/k?tagging", nil, "PutObjectTagging"},
		{"GET", "/bkt/k?attributes", nil, "GetObjectAttributes"},
		{"POST", "/bkt/k?restore", nil, "PostRestoreObject"},
		{"PUT", "/bkt/k?uploadId=x&partNumber=1", headers{"X-Amz-Copy-Source": "/bkt/k"}, "UploadPartCopy"},
		{"POST", "/bkt", nil, "PostObject"},
		{"GET", "/bkt/k?frobnicate", nil, `"frobnicate"`},
		{"PUT", "/bkt/k", headers{"X-Amz-Tagging": "a=b"}, "x-amz-tagging"},
		{"PUT", "/bkt/k", headers{"X-Amz-Object-Lock-Mode": "GOVERNANCE"}, "x-amz-object-lock-mode"},
		{"PUT", "/bkt/k", headers{"X-Amz-Server-Side-Encryption-Customer-Algorithm": "AES256"}, "x-amz-server-side-encryption-customer-algorithm"},
		{"DELETE", "/bkt/k", headers{"X-Amz-If-Match-Size": "1"}, "x-amz-if-match-size"},
		{"PUT", "/bkt/k", headers{"X-Amz-Storage-Class": "GLACIER"}, "GLACIER"},
		{"PUT", "/bkt/k", headers{"X-Amz-Checksum-Sha512": "AAAA"}, "SHA512"},
	}
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.target+" "+tt.name, func(t *testing.T) {
			resp := b.do(tt.method, tt.target, tt.header, "x")
			if resp.Status != 501 || resp.ErrorCode != "NotImplemented" || !bytes.Contains(resp.Body, []byte(strings.ReplaceAll(tt.name, `"`, "&quot;"))) {
				t.Errorf("answer %d %s\n%s", resp.Status, resp.ErrorCode, resp.Body)
			}
		})
	}
	if got := b.get("k", nil); string(got.Body) != "v" {
		t.Errorf("a refused write changed the object to %q", got.Body)
	}
}

func TestPresignedParametersAreAccepted(t *testing.T) {
	b := newBench(t)
	b.want(b.put("k", "v", nil), 200, "")
	presigned := "/bkt/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=60&x-id=GetObject&X-Amz-Signature=0"
	resp := b.do("GET", presigned+"&X-Amz-Checksum-Mode=ENABLED", nil, "")
	b.want(resp, 200, "")
	if resp.Header.Get("X-Amz-Checksum-Crc64nvme") == "" {
		t.Errorf("a header hoisted into the URL is not honoured: %v", resp.Header)
	}
	b.want(b.do("GET", presigned+"&x-amz-expected-bucket-owner=1", nil, ""), 403, "AccessDenied")
	b.want(b.do("GET", "/bkt/k?x-amz-expected-bucket-owner=1", nil, ""), 200, "") // not presigned
}

func TestVirtualHostedAddressesGetAClearError(t *testing.T) {
	b := newBench(t)
	for host, refused := range map[string]bool{
		"bkt.localhost:9000": true, "bkt.s3.amazonaws.com": true, "bkt.s3-eu-west-1.amazonaws.com": true, "bkt.fakeaws.invalid": true, "fakeaws.invalid": false,
		"127.0.0.1:9000": false, "localhost": false, "s3.localhost": false, "[::1]:9000": false, "minio.internal:9000": false,
	} {
		r := httptest.NewRequest("PUT", "http://127.0.0.1/bkt/k", nil)
		r.Host = host
		resp := b.e.Serve(r, nil)
		if got := resp.ErrorCode == "InvalidRequest" && bytes.Contains(resp.Body, []byte("path-style")); got != refused {
			t.Errorf("host %s: %d %s, want refused %v", host, resp.Status, resp.Body, refused)
		}
	}
}

func TestAnyLegalKeyIsKeptByteForByte(t *testing.T) {
	b := newBench(t)
	keys := []string{
		"//", "/", "a//b", "a/", ".", "..", "a/./b", "a/../b", "../../etc/passwd", "+", "a+b", " ", "a b", "%2F", "a%41",
		"?", "#", "a=b&c", `"<>'&`, "\U0001F600", "שלום/مرحبا", "e\u0301", "\u00e9", "a\nb", "tab\t", "\x01", "\u2028",
		strings.Repeat("k", 1024), strings.Repeat("\u00e9", 512),
	}
	for _, key := range keys {
		b.want(b.put(key, "value of "+key, nil), 200, "")
	}
	for _, key := range keys {
		resp := b.get(key, nil)
		if resp.Status != 200 || string(resp.Body) != "value of "+key {
			t.Errorf("key %q: %d %q", key, resp.Status, resp.Body)
		}
		list := b.do("GET", "/bkt?list-type=2&encoding-type=url&prefix="+url.QueryEscape(key), nil, "")
		found := false
		for _, c := range document[listResult](b, list).Contents {
			got, err := url.QueryUnescape(c.Key)
			found = found || err == nil && got == key
		}
		if !found {
			t.Errorf("key %q is not listed under its own prefix:\n%s", key, list.Body)
		}
	}
	b.want(b.put(strings.Repeat("k", 1025), "", nil), 400, "KeyTooLongError")
	r := httptest.NewRequest("PUT", "http://127.0.0.1/bkt/%ff", nil)
	b.want(b.e.Serve(r, nil), 400, "InvalidURI")
	b.want(b.do("GET", "//k", nil, ""), 400, "InvalidBucketName")
}

func TestDescribeNamesOperationAndKeys(t *testing.T) {
	b := newBench(t)
	two := "<Delete><Object><Key>a</Key></Object><Object><Key>b/c</Key></Object></Delete>"
	tests := []struct {
		method, target string
		header         headers
		body           string
		op, resource   string
		keys           []string
	}{
		{"GET", "/", nil, "", "ListBuckets", "", nil},
		{"PUT", "/bkt", nil, "", "CreateBucket", "bkt", nil},
		{"GET", "/bkt?list-type=2&prefix=x", nil, "", "ListObjectsV2", "bkt", nil},
		{"GET", "/bkt", nil, "", "ListObjects", "bkt", nil},
		{"PUT", "/bkt/a%20b?x-id=PutObject", nil, "", "PutObject", "bkt", []string{"a b"}},
		{"PUT", "/bkt/k", headers{"X-Amz-Copy-Source": "bkt/a"}, "", "CopyObject", "bkt", []string{"k"}},
		{"HEAD", "/bkt/k", nil, "", "HeadObject", "bkt", []string{"k"}},
		{"PUT", "/bkt/k?uploadId=1&partNumber=2", nil, "", "UploadPart", "bkt", []string{"k"}},
		{"POST", "/bkt/k?uploadId=1", nil, "", "CompleteMultipartUpload", "bkt", []string{"k"}},
		{"POST", "/bkt?delete", nil, two, "DeleteObjects", "bkt", []string{"a", "b/c"}},
		{"POST", "/bkt?delete", nil, "<", "DeleteObjects", "bkt", nil},
		{"BREW", "/bkt", nil, "", "", "", nil},
	}
	for _, tt := range tests {
		r := httptest.NewRequest(tt.method, "http://127.0.0.1"+tt.target, nil)
		for name, value := range tt.header {
			r.Header.Set(name, value)
		}
		call := b.e.Describe(r, []byte(tt.body))
		want := engine.Call{Service: "s3", Op: tt.op, Resource: tt.resource, Keys: tt.keys}
		if fmt.Sprint(call) != fmt.Sprint(want) {
			t.Errorf("%s %s: %+v, want %+v", tt.method, tt.target, call, want)
		}
	}
}

func TestMetadataAndStandardHeadersComeBack(t *testing.T) {
	b := newBench(t)
	given := headers{
		"Content-Type": "text/x", "Cache-Control": "max-age=1", "Content-Disposition": "inline", "Content-Language": "de",
		"Content-Encoding": "gzip, aws-chunked", "Expires": "Thu, 01 Dec 2033 16:00:00 GMT",
		"X-Amz-Meta-Write-Id": "01ABC", "X-Amz-Meta-Name": "=?UTF-8?B?w6k=?=", "X-Amz-Storage-Class": "STANDARD_IA",
	}
	b.want(b.put("k", "v", given), 200, "")
	given["Content-Encoding"] = "gzip"
	for _, method := range []string{"GET", "HEAD"} {
		resp := b.do(method, "/bkt/k", nil, "")
		for name, want := range given {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", method, name, got, want)
			}
		}
		if resp.Header.Get("Content-Length") != "1" || resp.Header.Get("Accept-Ranges") != "bytes" {
			t.Errorf("%s: headers %v", method, resp.Header)
		}
	}
	if got := b.do("GET", "/bkt/k?response-content-type=a/b&response-cache-control=no-store", nil, "").Header; got.Get("Content-Type") != "a/b" || got.Get("Cache-Control") != "no-store" {
		t.Errorf("response overrides: %v", got)
	}
	b.want(b.put("plain", "v", nil), 200, "")
	if got := b.get("plain", nil).Header.Get("Content-Type"); got != "binary/octet-stream" {
		t.Errorf("default content type %q", got)
	}
	b.want(b.put("large", "v", headers{"X-Amz-Meta-A": strings.Repeat("x", 2047)}), 200, "")
	b.want(b.put("larger", "v", headers{"X-Amz-Meta-A": strings.Repeat("x", 2048)}), 400, "MetadataTooLarge")
	b.want(b.put("k", "v", headers{"X-Amz-Storage-Class": "LUKEWARM"}), 400, "InvalidStorageClass")
	b.want(b.put("k", "v", headers{"X-Amz-Acl": "public-read"}), 400, "AccessControlListNotSupported")
	b.want(b.put("k", "v", headers{"X-Amz-Expected-Bucket-Owner": "123456789012"}), 403, "AccessDenied")
}

func TestEngineKeepsNoReferenceToTheRequest(t *testing.T) {
	b := newBench(t)
	body := []byte("original")
	r := httptest.NewRequest("PUT", "http://127.0.0.1/bkt/k", nil)
	b.want(b.e.Serve(r, body), 200, "")
	copy(body, "scribble")
	if got := b.get("k", nil); string(got.Body) != "original" {
		t.Errorf("the object follows the caller's buffer: %q", got.Body)
	}
}

func TestBodiesAboveTheLimitAreRefused(t *testing.T) {
	b := newBench(t)
	h := headers{"X-Amz-Content-Sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "X-Amz-Decoded-Content-Length": fmt.Sprint(MaxObjectSize + 1)}
	b.want(b.put("k", "0\r\n\r\n", h), 400, "EntityTooLarge")
	if testing.Short() {
		return
	}
	r := httptest.NewRequest("PUT", "http://127.0.0.1/bkt/k", nil)
	b.want(b.e.Serve(r, make([]byte, MaxObjectSize+1)), 400, "EntityTooLarge")
}

func TestMethodsThatMeanNothingAreRefused(t *testing.T) {
	b := newBench(t)
	b.want(b.do("PATCH", "/bkt/k", nil, ""), http.StatusMethodNotAllowed, "MethodNotAllowed")
	b.want(b.do("GET", "/bkt?versions&uploads", nil, ""), 400, "InvalidArgument")
	b.want(b.do("GET", "/bkt?list-type=3", nil, ""), 400, "InvalidArgument")
	b.want(b.do("PUT", "/bkt/k?versionId=x", nil, ""), 400, "InvalidArgument")
	r := httptest.NewRequest("GET", "http://127.0.0.1/bkt", nil)
	r.URL.RawQuery = "a=%zz"
	b.want(b.e.Serve(r, nil), 400, "InvalidURI")
}
