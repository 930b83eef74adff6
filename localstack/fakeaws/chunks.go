package fakeaws

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// checkChunks verifies the signature of every chunk of a signed aws-chunked
// body, each of which covers the one before it. The engine decodes the same
// framing afterwards.
// https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html
// https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming-trailers.html
func checkChunks(body []byte, c *claim, key *signingKey, trailer bool) *failure {
	previous := c.signature
	for {
		line, rest, ok := bytes.Cut(body, []byte("\r\n"))
		if !ok {
			return bodyIncomplete(restXML)
		}
		size, signature, ok := chunkHead(string(line))
		if !ok {
			return badChunk("a chunk starts with '<hex size>;chunk-signature=<hex signature>'")
		}
		if size > int64(len(rest)) {
			return bodyIncomplete(restXML)
		}
		data := rest[:size]
		if !key.signed(chunkText(c, "AWS4-HMAC-SHA256-PAYLOAD", previous, emptySHA256, data), signature) {
			return mismatch(restXML, c, "", "")
		}
		previous, body = signature, rest[size:]
		if size == 0 {
			break
		}
		if body, ok = bytes.CutPrefix(body, []byte("\r\n")); !ok {
			return badChunk("a chunk ends with CR LF")
		}
	}
	if trailer {
		return checkTrailer(body, c, key, previous)
	}
	return nil
}

const emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func chunkHead(line string) (size int64, signature string, ok bool) {
	hexSize, extension, _ := strings.Cut(line, ";")
	signature, ok = strings.CutPrefix(extension, "chunk-signature=")
	size, err := strconv.ParseInt(hexSize, 16, 64)
	return size, signature, ok && err == nil && size >= 0
}

// chunkText is the string to sign of a chunk or, without fixed, of the trailer.
func chunkText(c *claim, kind, previous, fixed string, data []byte) []byte {
	digest := sha256.Sum256(data)
	b := make([]byte, 0, 320)
	for _, line := range []string{kind, c.time, c.scope(), previous, fixed} {
		if line != "" {
			b = append(append(b, line...), '\n')
		}
	}
	return hex.AppendEncode(b, digest[:])
}

// checkTrailer verifies the trailing headers, which are signed with one LF a
// line.
func checkTrailer(block []byte, c *claim, key *signingKey, previous string) *failure {
	var signed []byte
	for line := range bytes.SplitSeq(block, []byte("\r\n")) {
		if len(line) == 0 {
			continue
		}
		line = bytes.TrimSuffix(line, []byte("\n"))
		if signature, ok := bytes.CutPrefix(line, []byte("x-amz-trailer-signature:")); ok {
			if !key.signed(chunkText(c, "AWS4-HMAC-SHA256-TRAILER", previous, "", signed), string(signature)) {
				return mismatch(restXML, c, "", "")
			}
			return nil
		}
		signed = append(append(signed, line...), '\n')
	}
	return badChunk("the trailer is not signed")
}

func badChunk(why string) *failure {
	return &failure{status: 400, code: "InvalidRequest", message: "The aws-chunked body is malformed: " + why}
}
