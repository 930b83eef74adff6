package objects

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"drawbridge/localstack/fakeaws/engine"
)

func (e *Engine) getObject(req *request) (engine.Response, error) { return e.readObject(req, true) }

func (e *Engine) headObject(req *request) (engine.Response, error) { return e.readObject(req, false) }

func (e *Engine) readObject(req *request, withBody bool) (engine.Response, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	b, err := e.bucket(req.bucket)
	if err != nil {
		return engine.Response{}, err
	}
	id, err := req.versionID()
	if err != nil {
		return engine.Response{}, err
	}
	v, err := b.findObject(req.key, id)
	if err != nil {
		return engine.Response{}, err
	}
	switch outcome, header := getConditions.check(req.header, v, e.clock()); outcome {
	case conditionFailed:
		return engine.Response{}, preconditionFailed(header)
	case conditionNotModified:
		return engine.Response{}, b.notModified(v)
	}
	part, err := v.selectPart(req)
	if err != nil {
		return engine.Response{}, err
	}
	s, err := selectSpan(req, v, part)
	if err != nil {
		return engine.Response{}, err
	}

	resp := engine.Response{Status: http.StatusOK, Header: make(http.Header, 16)}
	h := resp.Header
	v.setValidators(h)
	b.setVersionID(h, v.id)
	for _, f := range v.metadata {
		h[f.name] = []string{f.value}
	}
	overrideHeaders(h, req)
	v.encryption.set(h)
	if v.storageClass != standardClass {
		h["X-Amz-Storage-Class"] = []string{v.storageClass}
	}
	h["Accept-Ranges"] = []string{"bytes"}
	h["Content-Length"] = []string{strconv.FormatInt(s.length, 10)}
	if part > 0 && v.parts > 0 {
		h["X-Amz-Mp-Parts-Count"] = []string{strconv.Itoa(v.parts)}
	}
	if s.partial {
		resp.Status = http.StatusPartialContent
		h["Content-Range"] = []string{fmt.Sprintf("bytes %d-%d/%d", s.first, s.first+s.length-1, v.body.size)}
	}
	// The checksum is the whole object's: with a part of it the SDK would refuse
	// the answer.
	if s.length == v.body.size && req.header.Get("X-Amz-Checksum-Mode") == "ENABLED" {
		v.checksum.set(h)
	}
	if withBody {
		if resp.Body, err = e.read(v.body, s.span); err != nil {
			return engine.Response{}, err
		}
	}
	return resp, nil
}

// versionID reads the version that a request names; "" when it names none.
func (req *request) versionID() (string, error) {
	if !req.query.Has("versionId") {
		return "", nil
	}
	id := req.query.Get("versionId")
	return id, checkVersionID(id)
}

// findObject finds the current version of a key, or the one with the checked
// id, and refuses delete markers.
func (b *bucket) findObject(key, id string) (*version, error) {
	en := b.entry(key)
	switch {
	case id == "" && en == nil:
		return nil, noSuchKey(key)
	case id == "":
		v := en.current()
		if v.marker {
			err := noSuchKey(key)
			err.header = markerHeader(v)
			return nil, err
		}
		return v, nil
	case en == nil || en.find(id) < 0:
		return nil, noSuchVersion(key, id)
	}
	v := en.versions[en.find(id)]
	if v.marker {
		err := newError(http.StatusMethodNotAllowed, "MethodNotAllowed",
			"The specified method is not allowed against this resource.").
			with("Method", http.MethodGet).with("ResourceType", "DeleteMarker")
		err.header = markerHeader(v)
		err.header.Set("Allow", http.MethodDelete)
		err.header.Set("Last-Modified", v.modified.Format(http.TimeFormat))
		return nil, err
	}
	return v, nil
}

func markerHeader(v *version) http.Header {
	return http.Header{"X-Amz-Delete-Marker": {"true"}, "X-Amz-Version-Id": {v.id}}
}

// setValidators adds what a cache compares.
func (v *version) setValidators(h http.Header) {
	h["Etag"] = []string{quoted(v.etag)}
	h["Last-Modified"] = []string{v.modified.Format(http.TimeFormat)}
}

func (b *bucket) notModified(v *version) *apiError {
	err := newError(http.StatusNotModified, "NotModified", "Not Modified")
	err.header = make(http.Header, 3)
	v.setValidators(err.header)
	b.setVersionID(err.header, v.id)
	return err
}

// overrideHeaders applies the response-* parameters, for which S3 wants a
// signed request; here every request is.
func overrideHeaders(h http.Header, req *request) {
	if len(req.query) == 0 {
		return
	}
	for _, name := range systemMetadata {
		if value := req.query.Get("response-" + strings.ToLower(name)); value != "" {
			h[name] = []string{value}
		}
	}
}

// selectPart reads partNumber; 0 means that the request names none.
func (v *version) selectPart(req *request) (int, error) {
	text := req.query.Get("partNumber")
	if text == "" {
		return 0, nil
	}
	if req.header.Get("Range") != "" {
		return 0, invalidRequest("Cannot specify both Range header and partNumber query parameter")
	}
	n, err := parsePartNumber(text)
	if err != nil {
		return 0, err
	}
	if n > max(v.parts, 1) {
		return 0, newError(http.StatusRequestedRangeNotSatisfiable, "InvalidPartNumber", "The requested partnumber is not satisfiable").
			with("PartNumberRequested", text).with("ActualPartCount", strconv.Itoa(max(v.parts, 1)))
	}
	return n, nil
}

// A selection is the span that a read asks for.
type selection struct {
	span
	partial bool // answer 206
}

func selectSpan(req *request, v *version, part int) (selection, error) {
	whole := selection{span: span{0, v.body.size}}
	if part > 0 {
		s := selection{partial: v.body.size > 0}
		for _, seg := range v.body.segments[:part-1] {
			s.first += seg.size
		}
		s.length = v.body.segments[part-1].size
		return s, nil
	}
	text := req.header.Get("Range")
	if text == "" {
		return whole, nil
	}
	s, ok, satisfiable := parseRange(text, v.body.size)
	switch {
	case !ok:
		return whole, nil
	case !satisfiable:
		err := newError(http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "The requested range is not satisfiable").
			with("RangeRequested", text).with("ActualObjectSize", strconv.FormatInt(v.body.size, 10))
		err.header = http.Header{"Content-Range": {fmt.Sprintf("bytes */%d", v.body.size)}}
		return whole, err
	}
	return selection{span: s, partial: true}, nil
}

// parseRange reads a Range header of one range. As on AWS (recorded by
// LocalStack's snapshot tests), a header that is not one well-formed range of
// bytes is ignored (ok is false), and a suffix longer than the object is the
// whole object.
func parseRange(text string, size int64) (s span, ok, satisfiable bool) {
	ranges, isBytes := strings.CutPrefix(text, "bytes=")
	from, to, isRange := strings.Cut(ranges, "-")
	if !isBytes || !isRange {
		return s, false, false
	}
	first, fromOK := parseOffset(from)
	last, toOK := parseOffset(to)
	switch {
	case from == "" && toOK: // suffix
		length := min(last, size)
		return span{size - length, length}, true, length > 0
	case fromOK && to == "":
		last = size - 1
	case !fromOK || !toOK || last < first:
		return s, false, false
	}
	if first >= size {
		return s, true, false
	}
	last = min(last, size-1)
	return span{first, last - first + 1}, true, true
}

func parseOffset(text string) (int64, bool) {
	n, err := strconv.ParseUint(text, 10, 63)
	return int64(n), err == nil
}
