package gateway

import (
	"log/slog"
	"net/http"
	"time"

	"drawbridge/localstack/hostcheck"
)

// Bounds on slow clients. An answer takes at most the gateway's 30 s after the
// whole request has arrived.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = readTimeout + 35*time.Second
	idleTimeout       = 75 * time.Second
	// maxHeaderBytes leaves room for the gateway to refuse a head over its limit
	// in its own words.
	maxHeaderBytes = 64 << 10
)

// Server returns an HTTP server for the gateway that no slow client can hold up,
// and that no web page can reach under a name of its own.
func (g *Gateway) Server() *http.Server {
	return &http.Server{
		Handler:                      http.HandlerFunc(g.serveLocal),
		ReadHeaderTimeout:            readHeaderTimeout,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		DisableGeneralOptionsHandler: true, // the gateway answers OPTIONS *
		ErrorLog:                     slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
}

// serveLocal answers a request that is meant for this machine, as API Gateway
// answers only to its own names.
func (g *Gateway) serveLocal(w http.ResponseWriter, r *http.Request) {
	if hostcheck.Rebound(r) {
		refuse(w, http.StatusForbidden)
		return
	}
	g.ServeHTTP(w, r)
}
