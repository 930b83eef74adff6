package dynamo

import (
	"encoding/base64"
	"math"
	"strconv"
	"unicode/utf8"
)

// The append functions write JSON behind a buffer, as the standard library's
// append functions do.

const hexDigits = "0123456789abcdef"

// appendText appends a JSON string.
func appendText(out []byte, text string) []byte {
	out = append(out, '"')
	start := 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		if isPlain[c] {
			continue
		}
		if c >= utf8.RuneSelf {
			// Stored text is UTF-8; error messages may quote anything.
			if r, width := utf8.DecodeRuneInString(text[i:]); r != utf8.RuneError || width > 1 {
				i += width - 1
				continue
			}
			out = append(out, text[start:i]...)
			out = append(out, `\ufffd`...)
			start = i + 1
			continue
		}
		out = append(out, text[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			out = append(out, '\\', c)
		case '\n':
			out = append(out, '\\', 'n')
		case '\r':
			out = append(out, '\\', 'r')
		case '\t':
			out = append(out, '\\', 't')
		default:
			out = append(out, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	out = append(out, text[start:]...)
	return append(out, '"')
}

// appendName appends a member's name and the colon, with a comma before it
// unless it is the first member of its object.
func appendName(out []byte, name string) []byte {
	if n := len(out); n > 0 && out[n-1] != '{' && out[n-1] != '[' {
		out = append(out, ',')
	}
	out = appendText(out, name)
	return append(out, ':')
}

// appendUnits appends capacity units, which come in halves.
func appendUnits(out []byte, units float64) []byte {
	if units == math.Trunc(units) {
		out = strconv.AppendInt(out, int64(units), 10)
		return append(out, ".0"...)
	}
	return strconv.AppendFloat(out, units, 'f', -1, 64)
}

// appendAttributes appends an item, or any map of attributes.
func appendAttributes(out []byte, attributes []attribute) []byte {
	out = append(out, '{')
	for i := range attributes {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendText(out, attributes[i].name)
		out = append(out, ':')
		out = appendValue(out, attributes[i].value)
	}
	return append(out, '}')
}

// appendValue appends an AttributeValue.
func appendValue(out []byte, v value) []byte {
	out = append(out, '{', '"')
	out = append(out, v.kind.String()...)
	out = append(out, '"', ':')
	switch {
	case v.kind.isScalar():
		out = appendScalar(out, v)
	case v.kind == kindBool || v.kind == kindNull:
		out = strconv.AppendBool(out, v.truth)
	case v.kind == kindMap:
		out = appendAttributes(out, v.fields())
	case v.kind.isSet():
		out = append(out, '[')
		for i, m := range v.list() {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendScalar(out, m)
		}
		out = append(out, ']')
	default:
		out = append(out, '[')
		for i, e := range v.list() {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendValue(out, e)
		}
		out = append(out, ']')
	}
	return append(out, '}')
}

func appendScalar(out []byte, v value) []byte {
	if v.kind != kindBinary {
		return appendText(out, v.text)
	}
	out = append(out, '"')
	out = base64.StdEncoding.AppendEncode(out, []byte(v.text))
	return append(out, '"')
}

// encodedSize estimates the JSON size of an item, so that a response is
// allocated once.
func encodedSize(it *item) int {
	if it == nil {
		return 0
	}
	return it.size + it.size/4 + 16*len(it.attributes)
}

// appendError appends the body of an error answer.
func appendError(out []byte, e *apiError) []byte {
	namespace, ok := errorNamespaces[e.code]
	if !ok {
		namespace = modelNamespace
	}
	out = append(out, `{"__type":`...)
	out = appendText(out, namespace+e.code)
	out = append(out, `,"message":`...)
	out = appendText(out, e.message)
	if e.code == codeCanceled || e.code == codeTokenMismatch {
		// The model of these two spells the member with a capital.
		out = append(out, `,"Message":`...)
		out = appendText(out, e.message)
	}
	if e.code == codeCanceled {
		out = append(out, `,"CancellationReasons":[`...)
		for i, reason := range e.reasons {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendReason(out, reason)
		}
		out = append(out, ']')
	}
	if e.item != nil {
		out = append(out, `,"Item":`...)
		out = appendAttributes(out, e.item.attributes)
	}
	return append(out, '}')
}

func appendReason(out []byte, reason cancellationReason) []byte {
	out = append(out, `{"Code":`...)
	out = appendText(out, reason.code)
	if reason.message != "" {
		out = append(out, `,"Message":`...)
		out = appendText(out, reason.message)
	}
	if reason.item != nil {
		out = append(out, `,"Item":`...)
		out = appendAttributes(out, reason.item.attributes)
	}
	return append(out, '}')
}
