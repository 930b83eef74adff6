package s3queue

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"drawbridge/core"
)

// The prefixes of the keys. Caller-supplied text is in none of them: jobs are
// named by their id, sources by a hash.
const (
	jobPrefix     = "jobs/"
	openPrefix    = "open/" // every marker of a job that is not done
	duePrefix     = openPrefix + "due_"
	failedPrefix  = openPrefix + "failed_"
	damagedPrefix = openPrefix + "damaged_"
	donePrefix    = "done/"
	sourcePrefix  = "source/"
	rollupKey     = "state/rollup.json"

	jobSuffix = ".json"
)

// keyTime orders as time does for the years 0 to 9999, which is what a document
// can hold, and can be read by people.
const keyTime = "20060102T150405.000Z"

// nonceLength is that of a write id: a UUID without its dashes.
const nonceLength = 32

// rawNonce stands in the markers of documents that were copied into the bucket
// by hand and so carry no stamp.
var rawNonce = strings.Repeat("0", nonceLength)

// The kinds of markers.
const (
	kindReady      = "ready"
	kindLeased     = "leased"
	kindFailed     = "failed"
	kindCompleted  = "completed"
	kindSuperseded = "superseded"
	kindSettled    = "settled" // done with neither a result nor a winner: only an import brings it
)

// A marker is an index key that announces a state of a job. It is a hint: the
// job's document alone decides. The nonce makes each marker belong to one
// attempt to write one state, so that deleting it can never hit another's.
type marker struct {
	key      string
	kind     string
	at       core.Instant // claimable, or settled; for failed ones when enqueued
	enqueued core.Instant
	id       string
	nonce    string
}

// markerOf is the marker that announces the state of j.
func markerOf(j core.ArchiveJob, nonce string) marker {
	m := marker{kind: kindOf(j), at: j.EnqueuedAt, enqueued: j.EnqueuedAt, id: j.ID, nonce: nonce}
	switch m.kind {
	case kindReady, kindLeased:
		m.at, _ = j.ClaimableAt()
		m.key = duePrefix + join(timeKey(m.at), timeKey(m.enqueued), m.id, m.kind, nonce)
	case kindFailed:
		m.key = failedPrefix + join(timeKey(m.enqueued), m.id, nonce)
	default:
		m.at = settledAt(j)
		m.key = donePrefix + join(timeKey(m.at), timeKey(m.enqueued), m.id, m.kind, nonce)
	}
	return m
}

func kindOf(j core.ArchiveJob) string {
	switch {
	case j.Status == core.ArchiveReady:
		return kindReady
	case j.Status == core.ArchiveLeased:
		return kindLeased
	case j.Status == core.ArchiveFailed:
		return kindFailed
	case j.Result != nil:
		return kindCompleted
	case j.SupersededBy != "":
		return kindSuperseded
	}
	return kindSettled
}

func settledAt(j core.ArchiveJob) core.Instant {
	if j.Result != nil {
		return j.Result.CompletedAt
	}
	return j.UpdatedAt
}

// parseMarker reads a key under open/ or done/ back. Keys that are not markers,
// and those of damaged documents, give false.
func parseMarker(key string) (marker, bool) {
	m := marker{key: key}
	var at, enqueued string
	switch {
	case strings.HasPrefix(key, duePrefix):
		p := strings.Split(key[len(duePrefix):], "_")
		if len(p) != 5 || (p[3] != kindReady && p[3] != kindLeased) {
			return m, false
		}
		at, enqueued, m.id, m.kind, m.nonce = p[0], p[1], p[2], p[3], p[4]
	case strings.HasPrefix(key, failedPrefix):
		p := strings.Split(key[len(failedPrefix):], "_")
		if len(p) != 3 {
			return m, false
		}
		at, enqueued, m.id, m.kind, m.nonce = p[0], p[0], p[1], kindFailed, p[2]
	case strings.HasPrefix(key, donePrefix):
		p := strings.Split(key[len(donePrefix):], "_")
		if len(p) != 5 || (p[3] != kindCompleted && p[3] != kindSuperseded && p[3] != kindSettled) {
			return m, false
		}
		at, enqueued, m.id, m.kind, m.nonce = p[0], p[1], p[2], p[3], p[4]
	default:
		return m, false
	}
	var ok1, ok2 bool
	m.at, ok1 = parseTimeKey(at)
	m.enqueued, ok2 = parseTimeKey(enqueued)
	return m, ok1 && ok2 && core.IsArchiveJobID(m.id) && isNonce(m.nonce)
}

// writtenBefore tells whether the marker's attempt began before t, by the clock
// of whoever made it.
func (m marker) writtenBefore(t core.Instant) bool { return nonceTime(m.nonce) < t }

// A sourceMark is an index key that lists a job under its source.
type sourceMark struct {
	key        string
	source     string
	modifiedAt core.Instant
	bytes      int64
	id         string
	nonce      string
}

func sourceMarkOf(j core.ArchiveJob, nonce string) sourceMark {
	source := j.SourceID()
	return sourceMark{
		key: sourcePrefix + source + "/" +
			join(timeKey(j.SourceModifiedAt), fmt.Sprintf("%016d", j.SourceBytes), j.ID, nonce),
		source: source, modifiedAt: j.SourceModifiedAt, bytes: j.SourceBytes, id: j.ID, nonce: nonce,
	}
}

func parseSourceMark(key string) (sourceMark, bool) {
	m := sourceMark{key: key}
	source, tail, ok := strings.Cut(strings.TrimPrefix(key, sourcePrefix), "/")
	p := strings.Split(tail, "_")
	if !ok || len(p) != 4 || !core.IsArchiveJobID(source) || !core.IsArchiveJobID(p[2]) || !isNonce(p[3]) {
		return m, false
	}
	bytes, err := strconv.ParseInt(p[1], 10, 64)
	at, timed := parseTimeKey(p[0])
	m.source, m.modifiedAt, m.bytes, m.id, m.nonce = source, at, bytes, p[2], p[3]
	return m, err == nil && timed
}

// observation is what the mark tells of its job: enough to order it.
func (m sourceMark) observation() core.ArchiveJob {
	return core.ArchiveJob{ID: m.id, ArchiveObservation: core.ArchiveObservation{
		SourceBytes: m.bytes, SourceModifiedAt: m.modifiedAt}}
}

func jobKey(id string) string { return jobPrefix + id + jobSuffix }

// jobID is the id in the key of a job's document.
func jobID(key string) (string, bool) {
	id := strings.TrimSuffix(strings.TrimPrefix(key, jobPrefix), jobSuffix)
	return id, jobKey(id) == key && core.IsArchiveJobID(id)
}

func join(parts ...string) string { return strings.Join(parts, "_") }

func timeKey(i core.Instant) string { return i.Time().Format(keyTime) }

func parseTimeKey(s string) (core.Instant, bool) {
	t, err := time.Parse(keyTime, s)
	return core.InstantOf(t), err == nil && t.Format(keyTime) == s
}

// newNonce makes a write id from a UUID.
func newNonce(ids core.IDs) string { return strings.ReplaceAll(ids.New(), "-", "") }

func isNonce(s string) bool {
	return len(s) == nonceLength && strings.Trim(s, "0123456789abcdef") == ""
}

// nonceTime is when the id was made: a UUIDv7 begins with 48 bits of
// milliseconds.
func nonceTime(nonce string) core.Instant {
	ms, err := strconv.ParseInt(nonce[:12], 16, 64)
	if err != nil {
		return 0
	}
	return core.Instant(ms)
}
