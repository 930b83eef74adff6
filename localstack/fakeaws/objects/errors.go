package objects

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"drawbridge/localstack/fakeaws/engine"
)

// RequestIDHeader is the request header in which the server hands the request's
// id to the engine, for the RequestId element of errors.
const RequestIDHeader = "X-Fakeaws-Request-Id"

// An Error is an error answer in S3's terms. The server uses it too, so that a
// refused signature looks like every other error.
type Error struct {
	Status  int
	Code    string
	Message string
	Details []Detail    // further elements of the XML, in order
	Header  http.Header // headers beyond those of every error
}

// A Detail is one element of the error document, such as BucketName.
type Detail struct{ Name, Value string }

// Error implements error.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// With adds an element to the document and returns e.
func (e *Error) With(name, value string) *Error {
	e.Details = append(e.Details, Detail{name, value})
	return e
}

func newError(status int, code, message string) *Error {
	return &Error{Status: status, Code: code, Message: message}
}

func invalidArgument(name, value, message string) *Error {
	return newError(http.StatusBadRequest, "InvalidArgument", message).
		With("ArgumentName", name).With("ArgumentValue", value)
}

func invalidRequest(message string) *Error {
	return newError(http.StatusBadRequest, "InvalidRequest", message)
}

// notImplemented refuses a feature by name, so that nobody takes it for done.
func notImplemented(what string) *Error {
	return newError(http.StatusNotImplemented, "NotImplemented",
		fmt.Sprintf("The embedded S3 does not implement %s.", what))
}

// headerNotImplemented is S3's answer to a header whose presence or value it
// does not support; the elements are the recorded ones.
func headerNotImplemented(header, reason string) *Error {
	return newError(http.StatusNotImplemented, "NotImplemented",
		"A header you provided implies functionality that is not implemented").
		With("Header", header).With("additionalMessage", reason)
}

func malformedXML() *Error {
	return newError(http.StatusBadRequest, "MalformedXML",
		"The XML you provided was not well-formed or did not validate against our published schema")
}

func noSuchBucket(name string) *Error {
	return newError(http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist").
		With("BucketName", name)
}

func noSuchKey(key string) *Error {
	return newError(http.StatusNotFound, "NoSuchKey", "The specified key does not exist.").With("Key", key)
}

func noSuchVersion(key, id string) *Error {
	return newError(http.StatusNotFound, "NoSuchVersion", "The specified version does not exist.").
		With("Key", key).With("VersionId", id)
}

func noSuchUpload(id string) *Error {
	return newError(http.StatusNotFound, "NoSuchUpload",
		"The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed.").
		With("UploadId", id)
}

func preconditionFailed(condition string) *Error {
	return newError(http.StatusPreconditionFailed, "PreconditionFailed",
		"At least one of the pre-conditions you specified did not hold").With("Condition", condition)
}

func conditionalConflict(condition, key string) *Error {
	return newError(http.StatusConflict, "ConditionalRequestConflict",
		"The conditional request cannot succeed due to a conflicting operation against this resource.").
		With("Condition", condition).With("Key", key)
}

// ErrorResponse renders an error as S3's XML document. An error that is not an
// *Error is the engine's own failure: InternalError, 500.
func ErrorResponse(r *http.Request, err error) engine.Response {
	var failure *Error
	if !errors.As(err, &failure) {
		// The text is told: the client is the developer who runs the engine.
		failure = newError(http.StatusInternalServerError, "InternalError",
			"We encountered an internal error. Please try again. ("+err.Error()+")")
	}
	header := failure.Header.Clone()
	if header == nil {
		header = make(http.Header, 2)
	}
	resp := engine.Response{Status: failure.Status, Header: header, ErrorCode: failure.Code}
	if r.Method == http.MethodHead || failure.Status == http.StatusNotModified {
		return resp // HTTP allows neither a body
	}
	x := startXML("Error", "")
	x.text("Code", failure.Code)
	x.text("Message", failure.Message)
	for _, d := range failure.Details {
		x.text(d.Name, d.Value)
	}
	x.text("Resource", r.URL.Path)
	x.text("RequestId", r.Header.Get(RequestIDHeader))
	resp.Body = x.end("Error")
	header.Set("Content-Type", "application/xml")
	header.Set("Content-Length", strconv.Itoa(len(resp.Body)))
	return resp
}
