package objects

import (
	"net/http"
	"strings"
	"time"
)

// A writeCondition is what a write demands of the key's current version. On
// AWS, as recorded by LocalStack's snapshot tests:
//
//	If-None-Match: *   key absent, or current version a delete marker: write
//	                   key present: 412 PreconditionFailed
//	If-Match: etag     equal: write; differs: 412 PreconditionFailed
//	                   key absent, or current version a delete marker: 404 NoSuchKey
//	any other value, or both headers: 501 NotImplemented
//
// What AWS says to an empty value is not recorded. Taken for no condition it
// would let through what the caller meant to guard, so it is one of the others.
//
// CompleteMultipartUpload also looks at what happened to the key since the
// upload was created; see upload.conflict.
type writeCondition struct {
	ifNoneMatch bool
	ifMatch     string // etag; empty: no condition
}

func parseWriteCondition(h http.Header) (writeCondition, error) {
	none, match := h.Get("If-None-Match"), h.Get("If-Match")
	switch {
	case none != "" && match != "":
		return writeCondition{}, headerNotImplemented("If-Match,If-None-Match",
			"Multiple conditional request headers present in the request")
	case none != "*" && len(h["If-None-Match"]) > 0:
		return writeCondition{}, conditionNotAccepted("If-None-Match")
	case match == "*" || match == "" && len(h["If-Match"]) > 0:
		return writeCondition{}, conditionNotAccepted("If-Match")
	}
	return writeCondition{ifNoneMatch: none == "*", ifMatch: match}, nil
}

func conditionNotAccepted(header string) error {
	return headerNotImplemented(header, "We don't accept the provided value of "+header+" header for this API")
}

// check compares the condition with the key's current version.
func (c writeCondition) check(key string, current *version) error {
	switch {
	case c.ifNoneMatch && current.isObject():
		return preconditionFailed("If-None-Match")
	case c.ifMatch == "":
		return nil
	case !current.isObject():
		return noSuchKey(key)
	case !etagMatches(c.ifMatch, current.etag):
		return preconditionFailed("If-Match")
	}
	return nil
}

// checkDelete compares the If-Match of a delete ("" means none) with the key's
// current version. A delete without a condition accepts any state, an absent
// key included; with one, an absent key is 404 and a delete marker is 412.
func checkDelete(ifMatch, key string, current *version) error {
	switch {
	case ifMatch == "":
		return nil
	case current == nil:
		return noSuchKey(key)
	case current.marker, !etagMatches(ifMatch, current.etag):
		return preconditionFailed("If-Match")
	}
	return nil
}

// etagMatches compares a condition with an etag; "*" matches any. S3 ignores
// the quotes around the condition's value.
func etagMatches(condition, etag string) bool {
	return condition == "*" || strings.Trim(condition, `"`) == etag
}

// A readCondition is the outcome of the conditional headers of a read.
type readCondition int

const (
	conditionsHold readCondition = iota
	conditionFailed
	conditionNotModified
)

// readHeaders are the names of the four conditional headers: those of a read,
// or those of a copy's source.
type readHeaders struct{ match, noneMatch, modified, unmodified string }

var (
	getConditions    = readHeaders{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"}
	sourceConditions = readHeaders{
		"x-amz-copy-source-If-Match", "x-amz-copy-source-If-None-Match",
		"x-amz-copy-source-If-Modified-Since", "x-amz-copy-source-If-Unmodified-Since",
	}
)

// check evaluates the headers against a version, by the precedence of RFC 9110
// that S3 documents: If-Match overrides If-Unmodified-Since, If-None-Match
// overrides If-Modified-Since. It returns the name of the header that decided.
// Dates that do not parse, and an If-Modified-Since in the future, are ignored.
func (n readHeaders) check(h http.Header, v *version, now time.Time) (readCondition, string) {
	if match := h.Get(n.match); match != "" {
		if !etagMatches(match, v.etag) {
			return conditionFailed, n.match
		}
	} else if t, err := http.ParseTime(h.Get(n.unmodified)); err == nil && v.modified.After(t) {
		return conditionFailed, n.unmodified
	}
	if noneMatch := h.Get(n.noneMatch); noneMatch != "" {
		if etagMatches(noneMatch, v.etag) {
			return conditionNotModified, n.noneMatch
		}
	} else if t, err := http.ParseTime(h.Get(n.modified)); err == nil && !t.After(now) && !v.modified.After(t) {
		return conditionNotModified, n.modified
	}
	return conditionsHold, ""
}
