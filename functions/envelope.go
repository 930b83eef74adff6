package functions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"drawbridge/core"
)

// outcomeOK is the outcome code of a log line when the operation was done.
const outcomeOK = "OK"

// A reply is an answer before it becomes an event: what the client gets, and
// what the log line says about it.
type reply struct {
	status  int
	headers map[string]string
	body    []byte
	code    string // outcome for the log: OK or the error's code
	cause   error  // for the log only, when the hub itself failed
}

// success is the envelope of an operation that was done.
type success struct {
	OK       bool `json:"ok"`
	Data     any  `json:"data"`
	Replayed bool `json:"replayed,omitempty"`
}

// failure is the envelope of an operation that was refused or failed.
type failure struct {
	OK    bool      `json:"ok"`
	Error errorView `json:"error"`
	Data  any       `json:"data,omitempty"`
}

// errorView is an error as clients see it. Retryable is there when repeating
// the same request unchanged can succeed.
type errorView struct {
	Code      core.Code      `json:"code" doc:"Stable code out of the catalogue."`
	Message   string         `json:"message" doc:"Free text for people."`
	Details   map[string]any `json:"details,omitempty" doc:"What is wrong with the request; field names the field."`
	Retryable bool           `json:"retryable,omitempty" doc:"Repeating the same request unchanged can succeed."`
}

// viewOf shows a core error.
func viewOf(e *core.Error) errorView {
	return errorView{Code: e.Code, Message: e.Message, Details: e.Details, Retryable: e.Code.Entry().Retryable}
}

// statusOfKind is the HTTP status of each kind of refusal.
var statusOfKind = map[core.Kind]int{
	core.KindInvalid:      http.StatusBadRequest,
	core.KindUnauthorized: http.StatusUnauthorized,
	core.KindForbidden:    http.StatusForbidden,
	core.KindNotFound:     http.StatusNotFound,
	core.KindNotAllowed:   http.StatusMethodNotAllowed,
	core.KindConflict:     http.StatusConflict,
	core.KindTooLarge:     http.StatusRequestEntityTooLarge,
	core.KindThrottled:    http.StatusTooManyRequests,
	core.KindUnavailable:  http.StatusServiceUnavailable,
	core.KindInternal:     http.StatusInternalServerError,
}

// answered is the reply of an operation that was done.
func answered(e *Endpoint, c *call, data any) reply {
	r := reply{status: http.StatusOK, code: outcomeOK}
	if c.unhealthy != nil {
		r = refusalHead(e, c.unhealthy)
		r.status = http.StatusServiceUnavailable
	}
	body := data
	if !e.Bare {
		body = success{OK: true, Data: data, Replayed: c.replayed}
	}
	var err error
	if r.body, err = encodeJSON(body); err != nil {
		return refused(e, fmt.Errorf("encode the answer: %w", err))
	}
	return r
}

// refused is the reply of an error. e is nil when no endpoint was reached.
func refused(e *Endpoint, err error) reply {
	r := refusalHead(e, err)
	shown := shownError(err)
	var failed error
	if r.body, failed = encodeJSON(failure{Error: viewOf(shown), Data: dataView(shown.Data)}); failed != nil {
		return refused(nil, fmt.Errorf("encode the refusal: %w", failed))
	}
	return r
}

// refusalHead is the status, the headers and the log's part of a refusal.
func refusalHead(e *Endpoint, err error) reply {
	shown := shownError(err)
	entry := shown.Code.Entry()
	r := reply{status: statusOfKind[entry.Kind], headers: map[string]string{}, code: string(shown.Code)}
	if entry.Kind == core.KindConflict && e != nil && e.ConflictStatus != 0 {
		r.status = e.ConflictStatus
	}
	if entry.Kind == core.KindNotFound && e != nil && e.NotFoundStatus != 0 {
		r.status = e.NotFoundStatus
	}
	if r.status >= http.StatusInternalServerError {
		r.cause = err
	}
	if entry.Retryable {
		r.headers["retry-after"] = retryAfter(shown.RetryAfter)
	}
	if entry.Kind == core.KindUnauthorized {
		r.headers["www-authenticate"] = `Bearer realm="drawbridge"`
	}
	return r
}

// shownError is what the client is told of an error. Only a core.Error tells
// its own text; any other is a fault of the hub, or a request that ran out of
// time.
func shownError(err error) *core.Error {
	var known *core.Error
	switch {
	case errors.As(err, &known) && known.Code.Entry().Kind != core.KindInternal:
		return known
	case known == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
		return core.Refuse(core.CodeOutcomeUnknown, "the request ran out of time; it may have been done")
	default:
		return core.Refuse(core.CodeInternal, "a fault inside the hub")
	}
}

// dataView shows the data of an error that no handler has made a view of: the
// identity that the fences disclose, the pipeline or the role that was judged.
func dataView(data any) any {
	switch d := data.(type) {
	case core.Identity:
		return identityViewOf(d)
	case core.Pipeline:
		return pipelineViewOf(d)
	case core.RoleStands:
		return roleStandsOf(d)
	case core.RoleValue:
		return roleValueViewOf(d)
	case core.LegacyRole:
		return legacyStandsView{Role: legacyRoleViewOf(d)}
	}
	return data
}

// retryAfter is the header's value: whole seconds, at least one.
func retryAfter(wait time.Duration) string {
	return strconv.Itoa(max(1, int((wait+time.Second-1)/time.Second)))
}

// encodeJSON encodes without escaping <, > and &: the answer is JSON, never
// HTML, and says so.
func encodeJSON(v any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), nil
}

// event turns the reply into the gateway's form, with the headers that every
// answer carries (contract 2.1).
func (p reply) event(r *request, cors corsPolicy) events.APIGatewayV2HTTPResponse {
	headers := map[string]string{
		"x-content-type-options": "nosniff",
		"x-frame-options":        "DENY",
		"cache-control":          "no-store",
		headerCorrelationID:      r.correlationID,
	}
	if len(p.body) > 0 {
		headers["content-type"] = "application/json"
	}
	cors.headers(r.header(headerOrigin), headers)
	maps.Copy(headers, p.headers)
	body := string(p.body)
	if r.method == http.MethodHead {
		body = ""
	}
	return events.APIGatewayV2HTTPResponse{StatusCode: p.status, Headers: headers, Body: body}
}
