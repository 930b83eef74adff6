package core

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The document of a job is JSON in camelCase, as the reference tool writes it,
// so that its job files can be imported and exported again. Fields that this
// version does not know, at the top or within the nested objects, are kept byte
// for byte and written after the known ones. What breaks a rule is damaged: it
// is told by name, and never overwritten or deleted.

const (
	archiveDocumentVersion = 1
	archiveTimeLayout      = "2006-01-02T15:04:05.000Z"

	// MaxArchiveDocumentBytes bounds what is read as a document: a hundred
	// times what one with the longest path and message has.
	MaxArchiveDocumentBytes = 1 << 20

	maxSafeInteger = 1<<53 - 1 // the largest integer every JSON reader keeps exact
	minInstant     = Instant(-62167219200000)
	maxInstant     = Instant(253402300799999)
)

func inYears0To9999(i Instant) bool { return minInstant <= i && i <= maxInstant }

// DamagedError tells what is wrong with a document.
type DamagedError struct {
	Field  string // path of the field, empty for the document as a whole
	Reason string
}

func (e *DamagedError) Error() string {
	if e.Field == "" {
		return "damaged job document: " + e.Reason
	}
	return "damaged job document: " + e.Field + " " + e.Reason
}

// RefuseArchiveJobDamaged is the refusal of a job whose document cannot be read.
func RefuseArchiveJobDamaged(id string, cause error) error {
	e := Wrap(CodeQueueJobDamaged, "the job's document is damaged", cause)
	e.Details = map[string]any{"id": id}
	return e
}

// rawField is one field of an object as it was written: the name still quoted.
type rawField struct{ name, value []byte }

// DecodeArchiveJob reads the document of the job with that id and checks every
// rule. The error is a *DamagedError.
func DecodeArchiveJob(id string, data []byte) (ArchiveJob, error) {
	var j ArchiveJob
	if len(data) > MaxArchiveDocumentBytes {
		return j, &DamagedError{Reason: fmt.Sprintf("is over %d bytes", MaxArchiveDocumentBytes)}
	}
	if !utf8.Valid(data) {
		return j, &DamagedError{Reason: "is not UTF-8"}
	}
	o, err := readObject("", data)
	if err != nil {
		return j, err
	}
	if version := o.integer("version", archiveDocumentVersion); o.err == nil && version != archiveDocumentVersion {
		o.fail("version", "must be 1")
	}
	o.job(&j)
	if o.err == nil && j.ID != id {
		o.fail("id", "is not the document's name")
	}
	return j, o.done()
}

func (o *archiveObject) job(j *ArchiveJob) {
	j.ID = o.text("id")
	o.check("id", IsArchiveJobID(j.ID), "must be 64 lower-case hex characters")
	j.Status = ArchiveStatus(o.text("status"))
	o.check("status", slices.Contains(ArchiveStatuses, j.Status), "must be ready, leased, done or failed")
	j.Agent = o.text("agent")
	j.SourcePath = o.text("sourcePath")
	o.check("sourcePath", isAbsolutePath(j.SourcePath), "must be absolute")
	j.Event = o.text("event")
	j.SessionID = o.optionalText("sessionId")
	j.SourceBytes = o.integer("sourceBytes", 0)
	j.SourceModifiedAt = o.instant("sourceModifiedAt")
	j.EnqueuedAt = o.instant("enqueuedAt")
	j.UpdatedAt = o.instant("updatedAt")
	j.NextAttemptAt = o.instant("nextAttemptAt")
	j.Attempts = o.integer("attempts", 0)
	if n := o.nested("lease"); n != nil {
		j.Lease = &ArchiveLease{ID: n.text("id"), Owner: n.text("owner"),
			AcquiredAt: n.instant("acquiredAt"), ExpiresAt: n.instant("expiresAt"), extra: n.rest()}
		o.adopt(n)
	}
	if n := o.nested("progress"); n != nil {
		j.Progress = &ArchiveProgress{Bytes: n.integer("bytes", 0), Of: n.integer("of", 0), extra: n.rest()}
		o.adopt(n)
	}
	if n := o.nested("lastError"); n != nil {
		j.LastError = &ArchiveFailure{Code: n.anyText("code"), Message: n.anyText("message"), extra: n.rest()}
		o.adopt(n)
	}
	if n := o.nested("result"); n != nil {
		j.Result = &ArchiveResult{ArchiveID: n.text("archiveId"), CiphertextSHA256: n.text("ciphertextSha256"),
			Bytes: n.integer("bytes", 0), CompletedAt: n.instant("completedAt"),
			Deduplicated: n.optionalBool("deduplicated"), extra: n.rest()}
		o.adopt(n)
	}
	if by := o.optionalText("supersededBy"); by.Set {
		j.SupersededBy = by.Value
		o.check("supersededBy", IsArchiveJobID(by.Value), "must be a job's id")
	}
	j.extra = o.rest()
}

// archiveObject reads the fields of one JSON object. The first broken rule is kept;
// after it every read answers a zero value.
type archiveObject struct {
	path   string // prefix of the fields' names in errors
	fields []rawField
	byName map[string]int
	taken  []bool
	err    *DamagedError
}

// readObject splits an object into its fields without decoding their values.
func readObject(path string, data []byte) (*archiveObject, error) {
	if !json.Valid(data) {
		return nil, &DamagedError{Field: strings.TrimSuffix(path, "."), Reason: "is not JSON"}
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, &DamagedError{Field: strings.TrimSuffix(path, "."), Reason: "is not an object"}
	}
	o := &archiveObject{path: path, byName: map[string]int{}}
	for d.More() {
		from := d.InputOffset()
		name, err := d.Token()
		if err != nil {
			return nil, &DamagedError{Reason: "is not JSON"}
		}
		quoted := bytes.TrimLeft(data[from:d.InputOffset()], ", \t\r\n")
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, &DamagedError{Reason: "is not JSON"}
		}
		key, _ := name.(string)
		if _, twice := o.byName[key]; twice {
			return nil, &DamagedError{Field: path + key, Reason: "is there twice"}
		}
		o.byName[key] = len(o.fields)
		o.fields = append(o.fields, rawField{bytes.Clone(quoted), value})
	}
	o.taken = make([]bool, len(o.fields))
	return o, nil
}

func (o *archiveObject) fail(field, reason string) {
	if o.err == nil {
		o.err = &DamagedError{Field: o.path + field, Reason: reason}
	}
}

func (o *archiveObject) check(field string, holds bool, rule string) {
	if !holds {
		o.fail(field, rule)
	}
}

func (o *archiveObject) done() error {
	if o.err != nil {
		return o.err
	}
	return nil
}

// adopt takes over what went wrong in a nested object.
func (o *archiveObject) adopt(n *archiveObject) {
	if o.err == nil {
		o.err = n.err
	}
}

func (o *archiveObject) take(field string) (json.RawMessage, bool) {
	i, ok := o.byName[field]
	if !ok {
		return nil, false
	}
	o.taken[i] = true
	return o.fields[i].value, true
}

// rest are the fields that nothing took.
func (o *archiveObject) rest() []rawField {
	var rest []rawField
	for i, f := range o.fields {
		if !o.taken[i] {
			rest = append(rest, f)
		}
	}
	return rest
}

// text reads a required string that is not empty.
func (o *archiveObject) text(field string) string {
	s := o.anyText(field)
	o.check(field, s != "", "must not be empty")
	return s
}

// anyText reads a required string.
func (o *archiveObject) anyText(field string) string {
	s := o.optionalText(field)
	o.check(field, s.Set, "is missing")
	return s.Value
}

func (o *archiveObject) optionalText(field string) Opt[string] {
	raw, ok := o.take(field)
	if !ok {
		return Opt[string]{}
	}
	var s string
	if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		o.fail(field, "must be a string")
		return Some("")
	}
	// A lone surrogate decodes to U+FFFD: such a string cannot be written back
	// as it was, and two different ones would look alike.
	o.check(field, strings.Count(s, "\uFFFD") == writtenReplacements(raw), "must be valid Unicode")
	return Some(s)
}

// writtenReplacements counts U+FFFD in a quoted string, literal or escaped.
func writtenReplacements(quoted []byte) int {
	n := bytes.Count(quoted, []byte("\uFFFD"))
	for i := 0; i+1 < len(quoted); i++ {
		if quoted[i] != '\\' {
			continue
		}
		if quoted[i+1] == 'u' && strings.EqualFold(string(quoted[i+2:i+6]), "fffd") {
			n++
		}
		i++ // an escaped backslash must not open another escape
	}
	return n
}

func (o *archiveObject) optionalBool(field string) Opt[bool] {
	raw, ok := o.take(field)
	if !ok {
		return Opt[bool]{}
	}
	switch string(raw) {
	case "true":
		return Some(true)
	case "false":
		return Some(false)
	}
	o.fail(field, "must be true or false")
	return Opt[bool]{}
}

// integer reads a required integer from least to 2^53-1.
func (o *archiveObject) integer(field string, least int64) int64 {
	raw, ok := o.take(field)
	if !ok {
		o.fail(field, "is missing")
		return 0
	}
	n, err := parseInteger(string(raw))
	if err != nil || n < least || n > maxSafeInteger {
		o.fail(field, fmt.Sprintf("must be an integer from %d to 2^53-1", least))
		return 0
	}
	return n
}

var errNotInteger = errors.New("not an integer")

// parseInteger reads a JSON number with an integral value, however it is
// written: 5, 5.0 and 5e0 are the same number to every reader.
func parseInteger(s string) (int64, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > maxSafeInteger {
		return 0, errNotInteger
	}
	return int64(f), nil
}

func (o *archiveObject) instant(field string) Instant {
	s := o.anyText(field)
	if o.err != nil {
		return 0
	}
	t, err := time.Parse(archiveTimeLayout, s)
	// time.Parse tolerates other numbers of fraction digits.
	if err != nil || t.Format(archiveTimeLayout) != s {
		o.fail(field, "must be a time like 2026-01-31T23:59:59.999Z")
		return 0
	}
	return InstantOf(t)
}

func (o *archiveObject) nested(field string) *archiveObject {
	raw, ok := o.take(field)
	if !ok || o.err != nil {
		return nil
	}
	n, err := readObject(o.path+field+".", raw)
	if err != nil {
		var damaged *DamagedError
		errors.As(err, &damaged)
		o.err = damaged
		return nil
	}
	return n
}

// ArchiveTime is the text of an instant in a document and in answers: RFC 3339
// in UTC with milliseconds.
func ArchiveTime(i Instant) string { return i.Time().Format(archiveTimeLayout) }

// EncodeArchiveJob writes the document of a job: one line, the known fields in
// a fixed order, then those that are not known, byte for byte.
func EncodeArchiveJob(j ArchiveJob) []byte {
	var w documentWriter
	w.open()
	w.integer("version", archiveDocumentVersion)
	w.text("id", j.ID)
	w.text("status", string(j.Status))
	w.text("agent", j.Agent)
	w.text("sourcePath", j.SourcePath)
	w.text("event", j.Event)
	if j.SessionID.Set {
		w.text("sessionId", j.SessionID.Value)
	}
	w.integer("sourceBytes", j.SourceBytes)
	w.instant("sourceModifiedAt", j.SourceModifiedAt)
	w.instant("enqueuedAt", j.EnqueuedAt)
	w.instant("updatedAt", j.UpdatedAt)
	w.integer("attempts", j.Attempts)
	w.instant("nextAttemptAt", j.NextAttemptAt)
	if l := j.Lease; l != nil {
		w.nested("lease")
		w.text("id", l.ID)
		w.text("owner", l.Owner)
		w.instant("acquiredAt", l.AcquiredAt)
		w.instant("expiresAt", l.ExpiresAt)
		w.close(l.extra)
	}
	if p := j.Progress; p != nil {
		w.nested("progress")
		w.integer("bytes", p.Bytes)
		w.integer("of", p.Of)
		w.close(p.extra)
	}
	if f := j.LastError; f != nil {
		w.nested("lastError")
		w.text("code", f.Code)
		w.text("message", f.Message)
		w.close(f.extra)
	}
	if r := j.Result; r != nil {
		w.nested("result")
		w.text("archiveId", r.ArchiveID)
		w.text("ciphertextSha256", r.CiphertextSHA256)
		w.integer("bytes", r.Bytes)
		w.instant("completedAt", r.CompletedAt)
		if r.Deduplicated.Set {
			w.name("deduplicated")
			w.WriteString(strconv.FormatBool(r.Deduplicated.Value))
		}
		w.close(r.extra)
	}
	if j.SupersededBy != "" {
		w.text("supersededBy", j.SupersededBy)
	}
	w.close(j.extra)
	return w.Bytes()
}

type documentWriter struct {
	bytes.Buffer
	first bool // no field of the innermost object has been written
}

func (w *documentWriter) open() {
	w.WriteByte('{')
	w.first = true
}

func (w *documentWriter) close(extra []rawField) {
	for _, f := range extra {
		w.comma()
		w.Write(f.name)
		w.WriteByte(':')
		w.Write(f.value)
	}
	w.WriteByte('}')
	w.first = false
}

func (w *documentWriter) comma() {
	if !w.first {
		w.WriteByte(',')
	}
	w.first = false
}

func (w *documentWriter) name(name string) {
	w.comma()
	w.WriteString(`"` + name + `":`)
}

func (w *documentWriter) nested(name string) {
	w.name(name)
	w.open()
}

func (w *documentWriter) integer(name string, n int64) {
	w.name(name)
	w.WriteString(strconv.FormatInt(n, 10))
}

func (w *documentWriter) instant(name string, i Instant) { w.text(name, ArchiveTime(i)) }

func (w *documentWriter) text(name, s string) {
	w.name(name)
	e := json.NewEncoder(&w.Buffer)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		// Encoding a string into a buffer cannot fail.
		panic(fmt.Sprintf("encode %s: %v", name, err))
	}
	w.Truncate(w.Len() - 1) // the encoder ends every value with a line feed
}
