package objects

import (
	"bytes"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// ChunkSignatures verifies the signatures inside a signed aws-chunked body, in
// the order of the body: each depends on the one before.
type ChunkSignatures interface {
	// Chunk verifies one chunk; the last one is empty.
	Chunk(signature string, data []byte) error
	// Trailer verifies the trailing headers, each as "name:value\n".
	Trailer(signature string, canonical []byte) error
}

const streamingPrefix = "STREAMING-"

// isChunked tells whether the body of a request is framed as aws-chunked.
func isChunked(h http.Header) bool {
	return strings.HasPrefix(h.Get("X-Amz-Content-Sha256"), streamingPrefix)
}

// DecodeChunked undoes the aws-chunked framing that x-amz-content-sha256
// announces (STREAMING-UNSIGNED-PAYLOAD-TRAILER, or
// STREAMING-AWS4-HMAC-SHA256-PAYLOAD with or without -TRAILER), and returns the
// content and the trailing headers. It checks the framing, that every announced
// trailer came, and x-amz-decoded-content-length. Signatures are given to verify;
// nil skips them, for a body whose signatures have been verified before. Errors
// are *Error, or what verify returned.
func DecodeChunked(body []byte, h http.Header, verify ChunkSignatures) (content []byte, trailer http.Header, err error) {
	mode := h.Get("X-Amz-Content-Sha256")
	if mode != "STREAMING-UNSIGNED-PAYLOAD-TRAILER" &&
		mode != "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" && mode != "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" {
		return nil, nil, notImplemented("x-amz-content-sha256: " + strconv.Quote(mode))
	}
	want, present, err := sizeHeader(h, "X-Amz-Decoded-Content-Length")
	if err != nil {
		return nil, nil, err
	}
	if !present {
		return nil, nil, newError(http.StatusLengthRequired, "MissingContentLength",
			"You must provide the x-amz-decoded-content-length HTTP header.")
	}
	if want > MaxObjectSize {
		return nil, nil, entityTooLarge(want)
	}
	c := &chunkReader{rest: body, signed: mode != "STREAMING-UNSIGNED-PAYLOAD-TRAILER", verify: verify}
	content = make([]byte, 0, min(want, int64(len(body))))
	for {
		chunk, err := c.next()
		if err != nil {
			return nil, nil, err
		}
		if len(chunk) == 0 {
			break
		}
		content = append(content, chunk...)
	}
	if int64(len(content)) != want {
		return nil, nil, newError(http.StatusBadRequest, "IncompleteBody",
			"You did not provide the number of bytes specified by the x-amz-decoded-content-length HTTP header")
	}
	trailer, err = c.trailer(h.Values("X-Amz-Trailer"))
	return content, trailer, err
}

// A chunkReader walks through an aws-chunked body.
type chunkReader struct {
	rest   []byte
	signed bool
	verify ChunkSignatures
}

func malformedChunk() error {
	return newError(http.StatusBadRequest, "IncompleteBody", "The request body is not well-formed aws-chunked content.")
}

func malformedTrailer() error {
	return newError(http.StatusBadRequest, "MalformedTrailerError",
		"The request contained trailing data that was not well-formed or did not conform to our published schema.")
}

// next returns the next chunk; the last one is empty.
func (c *chunkReader) next() ([]byte, error) {
	line, rest, ok := bytes.Cut(c.rest, []byte("\r\n"))
	if !ok {
		return nil, malformedChunk()
	}
	sizeText, extension, _ := strings.Cut(string(line), ";")
	size, err := strconv.ParseUint(sizeText, 16, 63)
	if err != nil || size > uint64(len(rest)) {
		return nil, malformedChunk()
	}
	chunk := rest[:size]
	c.rest = rest[size:]
	if c.signed {
		signature, ok := strings.CutPrefix(extension, "chunk-signature=")
		if !ok {
			return nil, malformedChunk()
		}
		if c.verify != nil {
			if err := c.verify.Chunk(signature, chunk); err != nil {
				return nil, err
			}
		}
	}
	if size == 0 {
		return nil, nil // the trailer, or an empty line, follows
	}
	if c.rest, ok = bytes.CutPrefix(c.rest, []byte("\r\n")); !ok {
		return nil, malformedChunk()
	}
	return chunk, nil
}

// trailer reads what follows the last chunk: the announced headers and, in a
// signed body, their signature.
func (c *chunkReader) trailer(announced []string) (http.Header, error) {
	trailer := make(http.Header)
	var canonical []byte
	signature := ""
	for {
		line, rest, ok := bytes.Cut(c.rest, []byte("\n"))
		c.rest = rest
		text := strings.TrimRight(string(line), "\r")
		if text == "" {
			if !ok || len(rest) == 0 {
				break
			}
			return nil, malformedTrailer()
		}
		name, value, ok := strings.Cut(text, ":")
		name = strings.ToLower(strings.TrimSpace(name))
		if !ok || name == "" {
			return nil, malformedTrailer()
		}
		value = strings.TrimSpace(value)
		if name == "x-amz-trailer-signature" {
			signature = value
			continue
		}
		canonical = append(append(append(append(canonical, name...), ':'), value...), '\n')
		trailer.Add(textproto.CanonicalMIMEHeaderKey(name), value)
	}
	expected := 0
	for _, list := range announced {
		for name := range strings.SplitSeq(list, ",") {
			expected++
			if trailer.Get(strings.TrimSpace(name)) == "" {
				return nil, malformedTrailer()
			}
		}
	}
	if expected != len(trailer) {
		return nil, malformedTrailer()
	}
	if c.signed && len(trailer) > 0 && c.verify != nil {
		return trailer, c.verify.Trailer(signature, canonical)
	}
	return trailer, nil
}
