package functions

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"time"
)

// Bounds of what a client can write into a log line.
const maxLoggedText = 128

// httpMethods are the methods that are logged by name.
var httpMethods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
	http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace,
}

// NewLog returns the log of the functions: JSON, one object a line, so that no
// text of a client can start a line of its own. level is the least level that
// is written: DEBUG, INFO, WARN or ERROR, and INFO for anything else.
func NewLog(w io.Writer, level string) *slog.Logger {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		least = slog.LevelInfo
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: least}))
}

// logRequest writes the one line of a request. Paths, query strings, tokens,
// ids and payloads are not in it: the endpoint's name says enough, and a secret
// that a client put in the wrong place stays out of the log.
func (a *App) logRequest(ctx context.Context, name string, r *request, p reply, spent *Spend, took time.Duration) {
	attributes := []slog.Attr{
		slog.String("request_id", clip(r.id)),
		slog.String("correlation_id", r.correlationID),
		slog.String("endpoint", name),
		slog.String("method", loggedMethod(r.method)),
		slog.Int("status", p.status),
		slog.String("outcome", p.code),
		slog.Float64("duration_ms", milliseconds(took)),
		slog.String("remote", clip(r.remote)),
	}
	a.log.LogAttrs(ctx, levelOf(p), "request", slices.Concat(attributes, spent.attributes(), cause(p.cause))...)
}

func levelOf(p reply) slog.Level {
	switch {
	case p.status == http.StatusServiceUnavailable:
		return slog.LevelWarn
	case p.cause != nil:
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}

func cause(err error) []slog.Attr {
	if err == nil {
		return nil
	}
	return []slog.Attr{slog.String("error", err.Error())}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func loggedMethod(method string) string {
	if slices.Contains(httpMethods, method) {
		return method
	}
	return "other"
}

func clip(text string) string {
	if len(text) > maxLoggedText {
		return text[:maxLoggedText]
	}
	return text
}
