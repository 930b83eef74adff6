package functions

import (
	"encoding/base64"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"drawbridge/core"
)

// maxBody is the largest request body in bytes, after base64 (compat rule 1).
const maxBody = 1 << 20

// Header names as API Gateway hands them over: in lower case.
const (
	headerAuthorization  = "authorization"
	headerCorrelationID  = "x-correlation-id"
	headerRequestID      = "x-request-id"
	headerIdempotencyKey = "idempotency-key"
	headerOrigin         = "origin"
)

// maxCorrelationID is the longest correlation id that is taken over.
const maxCorrelationID = 128

// A request is what the hub reads of an API Gateway event, payload format 2.0.
// Cookies and the context's parsed parameters are not read.
type request struct {
	method string
	// path is the path as the client sent it, still percent-encoded. It is
	// compared with the endpoints' paths and never decoded, so that no
	// encoding, dot segment or doubled slash of one path reaches another.
	path          string
	query         string
	headers       map[string]string
	id            string // the gateway's
	correlationID string
	remote        string // the client's address
	body          string
	bodyIsBase64  bool
}

func newRequest(event events.APIGatewayV2HTTPRequest, ids core.IDs) *request {
	r := &request{
		method:       event.RequestContext.HTTP.Method,
		path:         event.RawPath,
		query:        event.RawQueryString,
		headers:      event.Headers,
		id:           event.RequestContext.RequestID,
		remote:       event.RequestContext.HTTP.SourceIP,
		body:         event.Body,
		bodyIsBase64: event.IsBase64Encoded,
	}
	r.correlationID = r.pickCorrelationID(ids)
	return r
}

// header returns a header's value, "" when it was not sent. name is lower case.
func (r *request) header(name string) string { return r.headers[name] }

// pickCorrelationID takes the client's id over when it can stand in a header
// and a log line as it is, and makes one otherwise.
func (r *request) pickCorrelationID(ids core.IDs) string {
	for _, name := range []string{headerCorrelationID, headerRequestID} {
		if id := r.header(name); id != "" && len(id) <= maxCorrelationID && isPrintableASCII(id) {
			return id
		}
	}
	return ids.New()
}

func isPrintableASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// readBody returns the body's bytes, base64 undone. The size is judged before
// anything is decoded.
func (r *request) readBody() ([]byte, error) {
	size := len(r.body)
	if r.bodyIsBase64 {
		size = base64.StdEncoding.DecodedLen(size) - strings.Count(r.body[max(0, size-2):], "=")
	}
	if size > maxBody {
		return nil, core.Refuse(core.CodeBodyTooLarge, "the body is larger than 1 MiB")
	}
	if !r.bodyIsBase64 {
		return []byte(r.body), nil
	}
	body, err := base64.StdEncoding.DecodeString(r.body)
	if err != nil {
		return nil, core.Wrap(core.CodeInvalidJSON, "the body is not valid base64", err)
	}
	return body, nil
}

// readJSON returns the body as one JSON value.
func (r *request) readJSON() (jsonText, error) {
	body, err := r.readBody()
	if err != nil {
		return nil, err
	}
	value, err := scanJSON(body)
	if err != nil {
		return nil, core.Wrap(core.CodeInvalidJSON, "the body is not a JSON value: "+err.Error(), err)
	}
	if value.kind() == jsonNull {
		return nil, core.Refuse(core.CodeInvalidJSON, "the body is null")
	}
	return value, nil
}
