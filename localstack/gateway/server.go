package gateway

import (
	"log/slog"
	"net/http"
	"time"
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

// Server returns an HTTP server for the gateway that no slow client can hold up.
func (g *Gateway) Server() *http.Server {
	return &http.Server{
		Handler:                      g,
		ReadHeaderTimeout:            readHeaderTimeout,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		DisableGeneralOptionsHandler: true, // the gateway answers OPTIONS *
		ErrorLog:                     slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
}
