package core

import "time"

// Clock tells the time. Every decision about a lease takes its time from the
// one clock the hub was built with.
type Clock interface{ Now() time.Time }

// SystemClock is the machine's clock.
type SystemClock struct{}

// Now returns the machine's wall clock.
func (SystemClock) Now() time.Time { return time.Now() }

// Instant is a moment in milliseconds since the Unix epoch: the unit of every
// time the hub stores or tells. Zero means "never set".
type Instant int64

// InstantOf truncates t to the millisecond.
func InstantOf(t time.Time) Instant { return Instant(t.UnixMilli()) }

// Add returns the instant d later, d truncated to the millisecond.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d.Milliseconds()) }

// Sub returns the duration from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i-j) * time.Millisecond }

// Time returns the instant as a UTC time.
func (i Instant) Time() time.Time { return time.UnixMilli(int64(i)).UTC() }
