package fakeaws

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// The canonical request of Signature Version 4:
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html

const upperHex = "0123456789ABCDEF"

// appendEncoded appends s percent-encoded by AWS's rule: everything but the
// unreserved characters of RFC 3986 becomes %XX with upper-case digits.
func appendEncoded(b []byte, s string, keepSlash bool) []byte {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9',
			c == '-', c == '_', c == '.', c == '~', c == '/' && keepSlash:
			b = append(b, c)
		default:
			b = append(b, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return b
}

// appendCanonicalURI appends the path. S3 encodes the decoded path once and
// keeps it otherwise as it is (keys may hold "//" and ".."); every other
// service encodes what is on the wire a second time.
func appendCanonicalURI(b []byte, u *url.URL, p protocol) []byte {
	path := u.Path
	if p != restXML {
		path = u.EscapedPath()
	}
	if path == "" {
		path = "/"
	}
	return appendEncoded(b, path, true)
}

// appendCanonicalQuery appends the parameters, each name and value encoded,
// sorted after encoding; of a presigned URL without the signature itself.
func appendCanonicalQuery(b []byte, raw string, presigned bool) ([]byte, error) {
	if raw == "" {
		return b, nil
	}
	var params [][2]string
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		name, err := url.QueryUnescape(name)
		if err != nil {
			return b, err
		}
		if presigned && name == "X-Amz-Signature" {
			continue
		}
		value, err = url.QueryUnescape(value)
		if err != nil {
			return b, err
		}
		params = append(params, [2]string{
			string(appendEncoded(nil, name, false)),
			string(appendEncoded(nil, value, false)),
		})
	}
	slices.SortFunc(params, func(x, y [2]string) int {
		if c := strings.Compare(x[0], y[0]); c != 0 {
			return c
		}
		return strings.Compare(x[1], y[1])
	})
	for i, p := range params {
		if i > 0 {
			b = append(b, '&')
		}
		b = append(b, p[0]...)
		b = append(b, '=')
		b = append(b, p[1]...)
	}
	return b, nil
}

// A signedName is one name of SignedHeaders, as signed and as net/http files it.
type signedName struct{ lower, canonical string }

// appendCanonicalHeaders appends a line for each signed header.
func appendCanonicalHeaders(b []byte, r *http.Request, names []signedName) []byte {
	for _, n := range names {
		b = append(b, n.lower...)
		b = append(b, ':')
		switch values := r.Header[n.canonical]; {
		case n.lower == "host":
			b = appendTrimmed(b, r.Host)
		case n.lower == "content-length" && len(values) == 0:
			b = append(b, itoa(r.ContentLength)...)
		default:
			for i, v := range values {
				if i > 0 {
					b = append(b, ',')
				}
				b = appendTrimmed(b, v)
			}
		}
		b = append(b, '\n')
	}
	return b
}

// appendTrimmed appends a header value without spaces at its ends and with
// runs of spaces made one.
func appendTrimmed(b []byte, v string) []byte {
	v = strings.Trim(v, " \t")
	if !strings.Contains(v, "  ") {
		return append(b, v...)
	}
	space := false
	for i := 0; i < len(v); i++ {
		if v[i] == ' ' && space {
			continue
		}
		space = v[i] == ' '
		b = append(b, v[i])
	}
	return b
}
