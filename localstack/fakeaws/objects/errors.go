package objects

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"drawbridge/localstack/fakeaws/engine"
)

// requestIDHeader is the request header in which the server hands the request's
// id to the engine, for the RequestId element of errors.
const requestIDHeader = "X-Fakeaws-Request-Id"

// An apiError is an error answer in S3's terms.
type apiError struct {
	status  int
	code    string
	message string
	details []detail    // further elements of the XML, in order
	header  http.Header // headers beyond those of every error
}

// A detail is one element of the error document, such as BucketName.
type detail struct{ name, value string }

// Error implements error.
func (e *apiError) Error() string { return e.code + ": " + e.message }

// with adds an element to the document and returns e.
func (e *apiError) with(name, value string) *apiError {
	e.details = append(e.details, detail{name, value})
	return e
}

func newError(status int, code, message string) *apiError {
	return &apiError{status: status, code: code, message: message}
}

func invalidArgument(name, value, message string) *apiError {
	return newError(http.StatusBadRequest, "InvalidArgument", message).
		with("ArgumentName", name).with("ArgumentValue", value)
}

func invalidRequest(message string) *apiError {
	return newError(http.StatusBadRequest, "InvalidRequest", message)
}

// notImplemented refuses a feature by name, so that nobody takes it for done.
func notImplemented(what string) *apiError {
	return newError(http.StatusNotImplemented, "NotImplemented",
		fmt.Sprintf("The embedded S3 does not implement %s.", what))
}

// headerNotImplemented is S3's answer to a header whose presence or value it
// does not support; the elements are the recorded ones.
func headerNotImplemented(header, reason string) *apiError {
	return newError(http.StatusNotImplemented, "NotImplemented",
		"A header you provided implies functionality that is not implemented").
		with("Header", header).with("additionalMessage", reason)
}

func malformedXML() *apiError {
	return newError(http.StatusBadRequest, "MalformedXML",
		"The XML you provided was not well-formed or did not validate against our published schema")
}

func noSuchBucket(name string) *apiError {
	return newError(http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist").
		with("BucketName", name)
}

func noSuchKey(key string) *apiError {
	return newError(http.StatusNotFound, "NoSuchKey", "The specified key does not exist.").with("Key", key)
}

func noSuchVersion(key, id string) *apiError {
	return newError(http.StatusNotFound, "NoSuchVersion", "The specified version does not exist.").
		with("Key", key).with("VersionId", id)
}

func noSuchUpload(id string) *apiError {
	return newError(http.StatusNotFound, "NoSuchUpload",
		"The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed.").
		with("UploadId", id)
}

func preconditionFailed(condition string) *apiError {
	return newError(http.StatusPreconditionFailed, "PreconditionFailed",
		"At least one of the pre-conditions you specified did not hold").with("Condition", condition)
}

func conditionalConflict(condition, key string) *apiError {
	return newError(http.StatusConflict, "ConditionalRequestConflict",
		"The conditional request cannot succeed due to a conflicting operation against this resource.").
		with("Condition", condition).with("Key", key)
}

// errorResponse renders an error as S3's XML document. An error that is not an
// *apiError is the engine's own failure: InternalError, 500.
func errorResponse(r *http.Request, err error) engine.Response {
	var failure *apiError
	if !errors.As(err, &failure) {
		// The text is told: the client is the developer who runs the engine.
		failure = newError(http.StatusInternalServerError, "InternalError",
			"We encountered an internal error. Please try again. ("+err.Error()+")")
	}
	header := failure.header.Clone()
	if header == nil {
		header = make(http.Header, 2)
	}
	resp := engine.Response{Status: failure.status, Header: header, ErrorCode: failure.code}
	if r.Method == http.MethodHead || failure.status == http.StatusNotModified {
		return resp // HTTP allows neither a body
	}
	x := startXML("Error", "")
	x.text("Code", failure.code)
	x.text("Message", failure.message)
	for _, d := range failure.details {
		x.text(d.name, d.value)
	}
	x.text("Resource", r.URL.Path)
	x.text("RequestId", r.Header.Get(requestIDHeader))
	resp.Body = x.end("Error")
	header.Set("Content-Type", "application/xml")
	header.Set("Content-Length", strconv.Itoa(len(resp.Body)))
	return resp
}
