package objects

import (
	"fmt"
	"testing"
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
	h := chunkedHeaders(streamUnsigned, 11, "x-amz-checksum-crc32")
	h["X-Amz-Sdk-Checksum-Algorithm"] = "CRC32"
	b.want(b.put("k", body, h), 200, "")
	got := b.get("k", headers{"X-Amz-Checksum-Mode": "ENABLED"})
	if string(got.Body) != "hello world" || got.Header.Get("Content-Encoding") != "" || got.Header.Get("X-Amz-Checksum-Crc32") != sum {
		t.Errorf("%q %v", got.Body, got.Header)
	}
	bad := "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n"
	b.want(b.put("bad", bad, chunkedHeaders(streamUnsigned, 5, "x-amz-checksum-crc32")), 400, "BadDigest")
	b.want(b.get("bad", nil), 404, "NoSuchKey")
	b.want(b.put("empty", "0\r\n\r\n", chunkedHeaders(streamUnsigned, 0, "")), 200, "")
}

func TestMalformedChunkedBodiesAreRefused(t *testing.T) {
	b := newBench(t)
	tests := []struct {
		name, body string
		header     headers
		code       string
	}{
		{"no frame", "hello", chunkedHeaders(streamUnsigned, 5, ""), "IncompleteBody"},
		{"no last chunk", "5\r\nhello\r\n", chunkedHeaders(streamUnsigned, 5, ""), "IncompleteBody"},
		{"chunk past the end", "6\r\nhello\r\n0\r\n\r\n", chunkedHeaders(streamUnsigned, 5, ""), "IncompleteBody"},
		{"huge chunk", "ffffffffffffffff\r\nhello", chunkedHeaders(streamUnsigned, 5, ""), "IncompleteBody"},
		{"no hexadecimal", "x\r\nhello\r\n0\r\n\r\n", chunkedHeaders(streamUnsigned, 5, ""), "IncompleteBody"},
		{"no line end after the chunk", "5\r\nhello0\r\n\r\n", chunkedHeaders(streamUnsigned, 5, ""), "IncompleteBody"},
		{"length too small", "5\r\nhello\r\n0\r\n\r\n", chunkedHeaders(streamUnsigned, 4, ""), "IncompleteBody"},
		{"length too large", "5\r\nhello\r\n0\r\n\r\n", chunkedHeaders(streamUnsigned, 6, ""), "IncompleteBody"},
		{"announced trailer missing", "0\r\n\r\n", chunkedHeaders(streamUnsigned, 0, "x-amz-checksum-crc32"), "MalformedTrailerError"},
		{"trailer not announced", "0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n", chunkedHeaders(streamUnsigned, 0, ""), "MalformedTrailerError"},
		{"trailer without a colon", "0\r\nabc\r\n\r\n", chunkedHeaders(streamUnsigned, 0, "abc"), "MalformedTrailerError"},
		{"data after the end", "0\r\n\r\nmore", chunkedHeaders(streamUnsigned, 0, ""), "MalformedTrailerError"},
		{"chunk without a signature", "5\r\nhello\r\n0\r\n\r\n", chunkedHeaders(streamSigned, 5, ""), "IncompleteBody"},
		{"unknown mode", "hello", chunkedHeaders("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", 5, ""), "NotImplemented"},
		{"no length", "0\r\n\r\n", headers{"X-Amz-Content-Sha256": streamUnsigned}, "MissingContentLength"},
		{"bad length", "0\r\n\r\n", headers{"X-Amz-Content-Sha256": streamUnsigned, "X-Amz-Decoded-Content-Length": "-1"}, "InvalidArgument"},
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

func TestSignedFramingIsUndone(t *testing.T) {
	b := newBench(t)
	sum := crc32C.of([]byte("hello")).value
	trailer := "x-amz-checksum-crc32c:" + sum + "\nx-amz-trailer-signature:s3\r\n\r\n"
	chunks := "5;chunk-signature=s1\r\nhello\r\n0;chunk-signature=s2\r\n"
	b.want(b.put("plain", chunks+"\r\n", chunkedHeaders(streamSigned, 5, "")), 200, "")
	b.want(b.put("trailer", chunks+trailer, chunkedHeaders(streamSignedTrailer, 5, "x-amz-checksum-crc32c")), 200, "")
	for _, key := range []string{"plain", "trailer"} {
		if got := b.get(key, nil); string(got.Body) != "hello" {
			t.Errorf("%s: %q", key, got.Body)
		}
	}
	if got := b.get("trailer", headers{"X-Amz-Checksum-Mode": "ENABLED"}).Header.Get("X-Amz-Checksum-Crc32c"); got != sum {
		t.Errorf("checksum of the trailer %q", got)
	}
}
