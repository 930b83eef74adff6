package objects

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"strconv"
	"unicode/utf8"

	"drawbridge/localstack/fakeaws/engine"
)

const (
	xmlNamespace = "http://s3.amazonaws.com/doc/2006-03-01/"
	// maxXMLBody bounds what is parsed: 10,000 parts with checksums and 1,000
	// keys of 1,024 bytes fit.
	maxXMLBody = 4 << 20
)

// An xmlWriter builds a document by hand: lists are the hot path, and an
// element costs no allocation this way.
type xmlWriter struct{ b []byte }

func startXML(root, namespace string) *xmlWriter {
	x := &xmlWriter{b: make([]byte, 0, 512)}
	x.b = append(x.b, `<?xml version="1.0" encoding="UTF-8"?>`+"\n<"...)
	x.b = append(x.b, root...)
	if namespace != "" {
		x.b = append(x.b, ` xmlns="`...)
		x.b = append(x.b, namespace...)
		x.b = append(x.b, '"')
	}
	x.b = append(x.b, '>')
	return x
}

func (x *xmlWriter) open(name string) {
	x.b = append(x.b, '<')
	x.b = append(x.b, name...)
	x.b = append(x.b, '>')
}

func (x *xmlWriter) close(name string) {
	x.b = append(x.b, '<', '/')
	x.b = append(x.b, name...)
	x.b = append(x.b, '>')
}

func (x *xmlWriter) end(root string) []byte {
	x.close(root)
	return x.b
}

func (x *xmlWriter) text(name, value string) {
	x.open(name)
	x.b = appendEscaped(x.b, value)
	x.close(name)
}

// textIf writes the element only when there is a value.
func (x *xmlWriter) textIf(name, value string) {
	if value != "" {
		x.text(name, value)
	}
}

func (x *xmlWriter) int(name string, value int64) {
	x.open(name)
	x.b = strconv.AppendInt(x.b, value, 10)
	x.close(name)
}

func (x *xmlWriter) bool(name string, value bool) {
	x.open(name)
	x.b = strconv.AppendBool(x.b, value)
	x.close(name)
}

// etag writes an ETag element with the quotes that belong to the value.
func (x *xmlWriter) etag(value string) {
	x.open("ETag")
	x.b = append(x.b, "&quot;"...)
	x.b = append(x.b, value...)
	x.b = append(x.b, "&quot;"...)
	x.close("ETag")
}

// appendEscaped escapes text. Characters that XML 1.0 cannot hold are written
// as references, as S3 does: who lists such keys asks for encoding-type=url.
func appendEscaped(b []byte, s string) []byte {
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == 0xFFFE || r == 0xFFFF {
				b = appendReference(b, r)
			} else {
				b = utf8.AppendRune(b, r)
			}
			i += n
			continue
		}
		switch {
		case c == '&':
			b = append(b, "&amp;"...)
		case c == '<':
			b = append(b, "&lt;"...)
		case c == '>':
			b = append(b, "&gt;"...)
		case c == '"':
			b = append(b, "&quot;"...)
		case c == '\'':
			b = append(b, "&#39;"...)
		case c < 0x20:
			b = appendReference(b, rune(c))
		default:
			b = append(b, c)
		}
		i++
	}
	return b
}

func appendReference(b []byte, r rune) []byte {
	b = append(b, "&#x"...)
	b = strconv.AppendUint(b, uint64(r), 16)
	return append(b, ';')
}

// xmlResponse is a 200 with a document.
func xmlResponse(doc []byte) engine.Response {
	return engine.Response{Status: http.StatusOK, Body: doc, Header: http.Header{
		"Content-Type":   {"application/xml"},
		"Content-Length": {strconv.Itoa(len(doc))},
	}}
}

// An unknownElement catches what a document holds beyond what is understood.
type unknownElement struct{ XMLName xml.Name }

// decodeXML reads a request document; the target's XMLName tells the root element.
func decodeXML(req *request, into any) error {
	if len(req.body) > maxXMLBody {
		return newError(http.StatusBadRequest, "MaxMessageLengthExceeded", "Your request was too big.")
	}
	if err := verifyDigests(req.header, req.body); err != nil {
		return err
	}
	d := xml.NewDecoder(bytes.NewReader(req.body))
	if err := d.Decode(into); err != nil {
		return malformedXML()
	}
	return endOfXML(d)
}

// endOfXML demands that nothing but space and comments follow the document.
func endOfXML(d *xml.Decoder) error {
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		switch t := token.(type) {
		case xml.Comment:
			continue
		case xml.CharData:
			if len(bytes.TrimSpace(t)) == 0 {
				continue
			}
		}
		return malformedXML() // also where err tells so
	}
}

// refuseUnknown names the first element that the engine does not understand.
func refuseUnknown(op string, unknown []unknownElement) error {
	if len(unknown) > 0 {
		return notImplemented(op + " with element " + unknown[0].XMLName.Local)
	}
	return nil
}
