package gateway

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"

	"github.com/aws/aws-lambda-go/events"
)

// respond sends the function's answer, or returns the status of a refusal when it
// is none that the gateway can send.
func (g *Gateway) respond(w http.ResponseWriter, requestID string, answer events.APIGatewayV2HTTPResponse) int {
	status := answer.StatusCode
	if status == 0 {
		status = http.StatusOK // payload 2.0: a missing status means success
	}
	body, err := decodeBody(answer)
	if err != nil || status < 200 || status > 599 || len(answer.Body) > maxPayload {
		g.log.Error("the function's answer cannot be sent", "status", status, "bytes", len(answer.Body), "error", err)
		return http.StatusInternalServerError
	}
	h := w.Header()
	for name, value := range answer.Headers {
		name = http.CanonicalHeaderKey(name)
		if name != "Content-Length" && !slices.Contains(hopByHop, name) {
			h.Set(name, value)
		}
	}
	for _, c := range answer.Cookies {
		h.Add("Set-Cookie", c)
	}
	h.Set("Apigw-Requestid", requestID)
	if h.Get("Content-Type") == "" && len(body) > 0 {
		h.Set("Content-Type", "text/plain;charset=UTF-8")
	}
	if status != http.StatusNoContent && status != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(status)
	if len(body) > 0 {
		_, _ = w.Write(body) // the client may have gone away
	}
	return 0
}

func decodeBody(answer events.APIGatewayV2HTTPResponse) ([]byte, error) {
	if answer.IsBase64Encoded {
		return base64.StdEncoding.DecodeString(answer.Body)
	}
	return []byte(answer.Body), nil
}

// refuse sends one of the gateway's own answers.
func refuse(w http.ResponseWriter, status int) {
	body := []byte(`{"message":"` + http.StatusText(status) + `"}`)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:gosec // the text of a status, and nothing of the request
}
