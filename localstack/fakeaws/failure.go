package fakeaws

import (
	"encoding/json"
	"encoding/xml"
	"net/http"
	"strings"

	"drawbridge/localstack/fakeaws/engine"
)

// protocol is the wire protocol of a request. It decides which service answers
// and how an error looks.
type protocol int

const (
	restXML protocol = iota // S3
	awsJSON                 // DynamoDB, JSON 1.0
)

// protocolOf tells the protocol of a request: DynamoDB's clients name the
// operation in X-Amz-Target, S3's never send that header. One that forgot it is
// known by its content type, at the only path that DynamoDB has: an object of
// S3 may have any type.
func protocolOf(r *http.Request) protocol {
	forgotten := func() bool {
		return r.Method == http.MethodPost && r.URL.Path == "/" && strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-amz-json-")
	}
	if len(r.Header["X-Amz-Target"]) > 0 || forgotten() {
		return awsJSON
	}
	return restXML
}

// service is the name that signatures are scoped to.
func (p protocol) service() string {
	if p == awsJSON {
		return "dynamodb"
	}
	return "s3"
}

// A failure is an error that the shell answers itself, without the engines:
// refused signatures, scripted errors, storage that failed.
type failure struct {
	status  int
	code    string
	message string
	fields  []field  // further elements of S3's error document, in order
	reasons []string // codes of DynamoDB's CancellationReasons, one an item
}

type field struct{ name, value string }

// response writes the failure in the protocol's form. requestID and hostID are
// repeated in S3's document as AWS does.
func (f *failure) response(p protocol, r *http.Request, id requestID) engine.Response {
	resp := engine.Response{Status: f.status, ErrorCode: f.code, Header: make(http.Header, 8)}
	if p == awsJSON {
		resp.Header["Content-Type"] = []string{"application/x-amz-json-1.0"}
		resp.Body = f.json()
		return resp
	}
	resp.Header["Content-Type"] = []string{"application/xml"}
	if r.Method != http.MethodHead {
		resp.Body = f.xml(r.URL.Path, id)
	}
	return resp
}

func (f *failure) json() []byte {
	type reason struct {
		Code    string
		Message string `json:",omitempty"`
	}
	document := struct {
		Type    string   `json:"__type"`
		Message string   `json:"message"`
		Reasons []reason `json:"CancellationReasons,omitempty"`
	}{Type: jsonNamespace(f.code) + f.code, Message: f.message}
	for _, code := range f.reasons {
		r := reason{Code: code}
		if code != "None" {
			r.Message = "Transaction is ongoing for the item"
		}
		document.Reasons = append(document.Reasons, r)
	}
	body, _ := json.Marshal(document) // strings only: cannot fail
	return body
}

// jsonNamespace is the prefix of __type: AWS's front end and DynamoDB itself
// use different ones.
func jsonNamespace(code string) string {
	switch code {
	case "MissingAuthenticationTokenException", "IncompleteSignatureException", "InvalidSignatureException",
		"UnrecognizedClientException", "SerializationException", "UnknownOperationException":
		return "com.amazon.coral.service#"
	}
	return "com.amazonaws.dynamodb.v20120810#"
}

func (f *failure) xml(resource string, id requestID) []byte {
	var b strings.Builder
	b.WriteString(xml.Header + "<Error>")
	element := func(name, value string) {
		b.WriteString("<" + name + ">")
		_ = xml.EscapeText(&b, []byte(value)) // a strings.Builder does not fail
		b.WriteString("</" + name + ">")
	}
	element("Code", f.code)
	element("Message", f.message)
	for _, x := range f.fields {
		element(x.name, x.value)
	}
	element("Resource", resource)
	element("RequestId", id.request)
	element("HostId", id.host)
	b.WriteString("</Error>")
	return []byte(b.String())
}

// storageFailure answers a request whose writes could not be made stable. The
// cause goes to the caller: the user of the embedded AWS owns the disk.
func storageFailure(p protocol, err error) *failure {
	if p == awsJSON {
		return &failure{status: 500, code: "InternalServerError", message: "the write is not stable: " + err.Error()}
	}
	return &failure{status: 500, code: "InternalError", message: "the write is not stable: " + err.Error()}
}

func bodyTooLarge(p protocol, limit int64) *failure {
	if p == awsJSON {
		return &failure{status: http.StatusRequestEntityTooLarge, code: "RequestEntityTooLarge", message: "the request is larger than 16 MB"}
	}
	return &failure{status: 400, code: "EntityTooLarge", message: "Your proposed upload exceeds the maximum allowed size",
		fields: []field{{"MaxSizeAllowed", itoa(limit)}}}
}

func bodyIncomplete(p protocol) *failure {
	if p == awsJSON {
		return &failure{status: 400, code: "SerializationException", message: "the request body ended early"}
	}
	return &failure{status: 400, code: "IncompleteBody",
		message: "You did not provide the number of bytes specified by the Content-Length HTTP header"}
}
