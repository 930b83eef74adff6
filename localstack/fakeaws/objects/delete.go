package objects

import (
	"encoding/xml"
	"errors"
	"net/http"
	"strings"

	"drawbridge/localstack/fakeaws/engine"
)

// maxDeletes is the number of keys that one DeleteObjects may name.
const maxDeletes = 1000

// A deletion tells what a delete did.
type deletion struct {
	versionID string // of the version removed or of the marker made; may be empty
	marker    bool   // a marker was made or removed
}

func (e *Engine) deleteObject(req *request) (engine.Response, error) {
	ifMatch := req.header.Get("If-Match")
	switch {
	case len(req.header["If-None-Match"]) > 0:
		return engine.Response{}, headerNotImplemented("If-None-Match", "A delete accepts If-Match only")
	case ifMatch == "" && len(req.header["If-Match"]) > 0:
		return engine.Response{}, conditionNotAccepted("If-Match")
	}
	id, err := req.versionID()
	if err != nil {
		return engine.Response{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	b, err := e.bucket(req.bucket)
	if err != nil {
		return engine.Response{}, err
	}
	c := e.begin()
	d, err := e.delete(c, b, req.key, id, ifMatch)
	if err != nil {
		return engine.Response{}, err
	}
	h := make(http.Header, 2)
	if d.versionID != "" {
		h["X-Amz-Version-Id"] = []string{d.versionID}
	}
	if d.marker {
		h["X-Amz-Delete-Marker"] = []string{"true"}
	}
	return engine.Response{Status: http.StatusNoContent, Header: h, Durable: c.commit()}, nil
}

// delete removes one version (id), or deletes the key: for good in a bucket that
// never had versioning, under a delete marker otherwise. Deleting what is not
// there succeeds, unless the condition ("" means none) asks for it.
func (e *Engine) delete(c *change, b *bucket, key, id, ifMatch string) (deletion, error) {
	if err := checkDelete(ifMatch, key, b.current(key)); err != nil {
		return deletion{}, err
	}
	if id != "" {
		removed := c.removeVersion(b, key, id)
		d := deletion{marker: removed != nil && removed.marker}
		if b.versioning != "" {
			d.versionID = id
		}
		return d, nil
	}
	if b.versioning == "" {
		c.removeVersion(b, key, nullVersion)
		return deletion{}, nil
	}
	v := &version{marker: true, modified: e.now()}
	e.publish(c, b, strings.Clone(key), v)
	return deletion{versionID: v.id, marker: true}, nil
}

// A deleteRequest is the document of DeleteObjects.
type deleteRequest struct {
	XMLName xml.Name `xml:"Delete"`
	Quiet   bool
	Objects []deleteTarget   `xml:"Object"`
	Unknown []unknownElement `xml:",any"`
}

type deleteTarget struct {
	Key       string
	VersionID *string          `xml:"VersionId"`
	ETag      *string          `xml:"ETag"`
	Unknown   []unknownElement `xml:",any"`
}

// isWellFormed tells whether every element has a text: an empty version or ETag
// must not be taken for none, because then the current version would go.
func (t deleteTarget) isWellFormed() bool {
	isEmpty := func(text *string) bool { return text != nil && *text == "" }
	return t.Key != "" && !isEmpty(t.VersionID) && !isEmpty(t.ETag)
}

func (t deleteTarget) versionID() string { return textOf(t.VersionID) }

// textOf is the text of an element, "" of an absent one.
func textOf(element *string) string {
	if element == nil {
		return ""
	}
	return *element
}

func parseDeleteObjects(req *request) (*deleteRequest, error) {
	var del deleteRequest
	if err := decodeXML(req, &del); err != nil {
		return nil, err
	}
	if len(del.Objects) == 0 || len(del.Objects) > maxDeletes {
		return nil, malformedXML()
	}
	if err := refuseUnknown("DeleteObjects", del.Unknown); err != nil {
		return nil, err
	}
	for _, o := range del.Objects {
		if !o.isWellFormed() {
			return nil, malformedXML()
		}
		// LastModifiedTime and Size are preconditions of directory buckets.
		if err := refuseUnknown("DeleteObjects", o.Unknown); err != nil {
			return nil, err
		}
	}
	return &del, nil
}

func (e *Engine) deleteObjects(req *request) (engine.Response, error) {
	if err := requireDigest(req.header); err != nil {
		return engine.Response{}, err
	}
	del, err := parseDeleteObjects(req)
	if err != nil {
		return engine.Response{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	b, err := e.bucket(req.bucket)
	if err != nil {
		return engine.Response{}, err
	}
	c := e.begin()
	x := startXML("DeleteResult", xmlNamespace)
	for _, target := range del.Objects {
		d, err := e.deleteOne(c, b, target)
		if err != nil {
			x.deleteError(target, err)
		} else if !del.Quiet {
			x.deleted(target, d)
		}
	}
	resp := xmlResponse(x.end("DeleteResult"))
	resp.Durable = c.commit()
	return resp, nil
}

// deleteOne carries out one element of DeleteObjects.
func (e *Engine) deleteOne(c *change, b *bucket, t deleteTarget) (deletion, error) {
	ctx := policyContext{action: "s3:DeleteObject", bucket: b.name, key: t.Key, ifMatch: textOf(t.ETag)}
	id := t.versionID()
	if id != "" {
		ctx.action = "s3:DeleteObjectVersion"
		if en := b.entry(t.Key); checkVersionID(id) != nil || id != nullVersion && (en == nil || en.find(id) < 0) {
			return deletion{}, noSuchVersion(t.Key, id) // unlike DeleteObject, as recorded on AWS
		}
	}
	if err := b.policy.authorize(ctx); err != nil {
		return deletion{}, err
	}
	if err := checkKey(t.Key); err != nil {
		return deletion{}, err
	}
	return e.delete(c, b, t.Key, id, textOf(t.ETag))
}

func (x *xmlWriter) deleted(t deleteTarget, d deletion) {
	x.open("Deleted")
	x.text("Key", t.Key)
	x.textIf("VersionId", t.versionID())
	if d.marker {
		x.bool("DeleteMarker", true)
		x.textIf("DeleteMarkerVersionId", d.versionID)
	}
	x.close("Deleted")
}

func (x *xmlWriter) deleteError(t deleteTarget, err error) {
	code, message := "InternalError", err.Error()
	var failure *apiError
	if errors.As(err, &failure) {
		code, message = failure.code, failure.message
	}
	x.open("Error")
	x.text("Key", t.Key)
	x.textIf("VersionId", t.versionID())
	x.text("Code", code)
	x.text("Message", message)
	x.close("Error")
}
