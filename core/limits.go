package core

import (
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"
)

// The limits of presence (compat 1).
const (
	MaxIDBytes        = 512              // of an id or a topic
	MaxTopics         = 100              // an agent
	MaxProfileBytes   = 16 << 10         // metadata, capabilities and locators together, as JSON
	MaxBatch          = 100              // agents a batch heartbeat
	MaxListLimit      = 100              // items a page
	DefaultListLimit  = 50               // items a page when none is asked for
	MinLease          = time.Second      // of a register
	MaxLease          = 720 * time.Hour  // of a register: 30 days
	MinHeartbeatLease = time.Second      // a shorter ttl_ms is raised to it
	MaxHeartbeatLease = 24 * time.Hour   // a longer ttl_ms is lowered to it
	DefaultLease      = 22 * time.Minute // of a register or heartbeat that asks for none (contract 1.15)
	RegisterGrace     = 2 * time.Minute  // added to a register's timeout_sec
	OfflineAfter      = 5 * time.Minute  // from the end of the lease to offline
)

// isText tells whether s is UTF-8 without control characters, so that it is
// safe in a key, a log line and an answer.
func isText(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return false
		}
	}
	return true
}

// checkID refuses what cannot be an id or a topic.
func checkID(field, id string) error {
	switch {
	case id == "":
		return Invalid(field, field+" is required")
	case len(id) > MaxIDBytes:
		return Invalid(field, fmt.Sprintf("%s must be at most %d bytes", field, MaxIDBytes))
	case !isText(id):
		return Invalid(field, field+" must be UTF-8 without control characters")
	}
	return nil
}
