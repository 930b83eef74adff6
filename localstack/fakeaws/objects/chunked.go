package objects

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
)

// The framings of aws-chunked, by x-amz-content-sha256.
const (
	streamingPrefix     = "STREAMING-"
	streamUnsigned      = streamingPrefix + "UNSIGNED-PAYLOAD-TRAILER"
	streamSigned        = streamingPrefix + "AWS4-HMAC-SHA256-PAYLOAD"
	streamSignedTrailer = streamingPrefix + "AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
)

// isChunked tells whether the body of a request is framed as aws-chunked.
func isChunked(h http.Header) bool {
	return strings.HasPrefix(h.Get("X-Amz-Content-Sha256"), streamingPrefix)
}

// decodeChunked undoes the aws-chunked framing that x-amz-content-sha256
// announces, and returns the content and the trailing headers. It checks the
// framing, that the announced trailers came, and x-amz-decoded-content-length.
// The signatures of the chunks are the server's to verify, before the engine
// sees the request.
func decodeChunked(body []byte, h http.Header) (content []byte, trailer http.Header, err error) {
	mode := h.Get("X-Amz-Content-Sha256")
	if mode != streamUnsigned && mode != streamSigned && mode != streamSignedTrailer {
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
	c := &chunkReader{rest: body, signed: mode != streamUnsigned}
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
	signed bool // every chunk carries a signature
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
	if c.signed && !strings.HasPrefix(extension, "chunk-signature=") {
		return nil, malformedChunk()
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
// signed body, their signature, which is left out.
func (c *chunkReader) trailer(announced []string) (http.Header, error) {
	trailer := make(http.Header)
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
		if name != "x-amz-trailer-signature" {
			trailer.Add(name, strings.TrimSpace(value))
		}
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
	return trailer, nil
}
