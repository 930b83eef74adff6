package objects

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
)

const (
	unsignedTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	signedPayload   = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	signedTrailer   = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
)

func chunkedHeaders(mode string, size int, trailer string) headers {
	h := headers{"X-Amz-Content-Sha256": mode, "X-Amz-Decoded-Content-Length": fmt.Sprint(size), "Content-Encoding": "aws-chunked"}
	if trailer != "" {
		h["X-Amz-Trailer"] = trailer
	}
	return h
}

func TestChunkedBodiesAreUnframedAndTheirTrailerVerified(t *testing.T) {
	b := newBench(t)
	sum := crc32IEEE.of([]byte("hello world")).value
	body := "5\r\nhello\r\n6\r\n world\r\n0\r\nx-amz-checksum-crc32:" + sum + "\r\n\r\n"
	h := chunkedHeaders(unsignedTrailer, 11, "x-amz-checksum-crc32")
	h["X-Amz-Sdk-Checksum-Algorithm"] = "CRC32"
	b.want(b.put("k", body, h), 200, "")
	got := b.get("k", headers{"X-Amz-Checksum-Mode": "ENABLED"})
	if string(got.Body) != "hello world" || got.Header.Get("Content-Encoding") != "" || got.Header.Get("X-Amz-Checksum-Crc32") != sum {
		t.Errorf("%q %v", got.Body, got.Header)
	}
	bad := "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n"
	b.want(b.put("bad", bad, chunkedHeaders(unsignedTrailer, 5, "x-amz-checksum-crc32")), 400, "BadDigest")
	b.want(b.get("bad", nil), 404, "NoSuchKey")
	b.want(b.put("empty", "0\r\n\r\n", chunkedHeaders(unsignedTrailer, 0, "")), 200, "")
}

func TestMalformedChunkedBodiesAreRefused(t *testing.T) {
	b := newBench(t)
	tests := []struct {
		name, body string
		header     headers
		code       string
	}{
		{"no frame", "hello", chunkedHeaders(unsignedTrailer, 5, ""), "IncompleteBody"},
		{"no last chunk", "5\r\nhello\r\n", chunkedHeaders(unsignedTrailer, 5, ""), "IncompleteBody"},
		{"chunk past the end", "6\r\nhello\r\n0\r\n\r\n", chunkedHeaders(unsignedTrailer, 5, ""), "IncompleteBody"},
		{"huge chunk", "ffffffffffffffff\r\nhello", chunkedHeaders(unsignedTrailer, 5, ""), "IncompleteBody"},
		{"no hexadecimal", "x\r\nhello\r\n0\r\n\r\n", chunkedHeaders(unsignedTrailer, 5, ""), "IncompleteBody"},
		{"no line end after the chunk", "5\r\nhello0\r\n\r\n", chunkedHeaders(unsignedTrailer, 5, ""), "IncompleteBody"},
		{"length too small", "5\r\nhello\r\n0\r\n\r\n", chunkedHeaders(unsignedTrailer, 4, ""), "IncompleteBody"},
		{"length too large", "5\r\nhello\r\n0\r\n\r\n", chunkedHeaders(unsignedTrailer, 6, ""), "IncompleteBody"},
		{"announced trailer missing", "0\r\n\r\n", chunkedHeaders(unsignedTrailer, 0, "x-amz-checksum-crc32"), "MalformedTrailerError"},
		{"trailer not announced", "0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n", chunkedHeaders(unsignedTrailer, 0, ""), "MalformedTrailerError"},
		{"trailer without a colon", "0\r\nabc\r\n\r\n", chunkedHeaders(unsignedTrailer, 0, "abc"), "MalformedTrailerError"},
		{"data after the end", "0\r\n\r\nmore", chunkedHeaders(unsignedTrailer, 0, ""), "MalformedTrailerError"},
		{"chunk without a signature", "5\r\nhello\r\n0\r\n\r\n", chunkedHeaders(signedPayload, 5, ""), "IncompleteBody"},
		{"unknown mode", "hello", chunkedHeaders("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", 5, ""), "NotImplemented"},
		{"no length", "0\r\n\r\n", headers{"X-Amz-Content-Sha256": unsignedTrailer}, "MissingContentLength"},
		{"bad length", "0\r\n\r\n", headers{"X-Amz-Content-Sha256": unsignedTrailer, "X-Amz-Decoded-Content-Length": "-1"}, "InvalidArgument"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp := b.put("k", tt.body, tt.header)
			if resp.ErrorCode != tt.code {
				t.Errorf("%d %s, want %s", resp.Status, resp.ErrorCode, tt.code)
			}
			b.want(b.get("k", nil), 404, "NoSuchKey")
		})
	}
}

// A signatureLog notes what it is asked to verify, and fails where told.
type signatureLog struct {
	seen []string
	fail string
}

var errSignature = errors.New("bad signature")

func (l *signatureLog) note(s string) error {
	l.seen = append(l.seen, s)
	if s == l.fail {
		return errSignature
	}
	return nil
}

func (l *signatureLog) Chunk(signature string, data []byte) error {
	return l.note(signature + "=" + string(data))
}

func (l *signatureLog) Trailer(signature string, canonical []byte) error {
	return l.note("trailer " + signature + "=" + string(canonical))
}

func TestSignaturesOfChunksAreHandedOver(t *testing.T) {
	body := []byte("5;chunk-signature=s1\r\nhello\r\n0;chunk-signature=s2\r\nx-amz-checksum-crc32c:AA==\nx-amz-trailer-signature:s3\r\n\r\n")
	h := make(http.Header)
	for name, value := range chunkedHeaders(signedTrailer, 5, "x-amz-checksum-crc32c") {
		h.Set(name, value)
	}
	log := &signatureLog{}
	content, trailer, err := DecodeChunked(body, h, log)
	if err != nil || string(content) != "hello" || trailer.Get("X-Amz-Checksum-Crc32c") != "AA==" {
		t.Fatalf("%q %v %v", content, trailer, err)
	}
	if got, want := fmt.Sprintf("%q", log.seen), `["s1=hello" "s2=" "trailer s3=x-amz-checksum-crc32c:AA==\n"]`; got != want {
		t.Errorf("verified %s, want %s", got, want)
	}
	for _, seen := range log.seen {
		if _, _, err := DecodeChunked(body, h, &signatureLog{fail: seen}); !errors.Is(err, errSignature) {
			t.Errorf("a bad signature %q gives %v", seen, err)
		}
	}
}
