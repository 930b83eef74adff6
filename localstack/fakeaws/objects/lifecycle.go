package objects

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"drawbridge/localstack/fakeaws/engine"
)

// S3's limits of a lifecycle configuration.
const (
	maxLifecycleRules = 1000
	maxRuleID         = 255
)

// The sizes of objects that transitions leave alone. Nothing here moves objects
// to another class, so only S3's default can be told.
const (
	transitionSizeHeader  = "X-Amz-Transition-Default-Minimum-Object-Size"
	defaultTransitionSize = "all_storage_classes_128K"
)

// A lifecycle is a bucket's lifecycle configuration: the document of the
// requests, and of the record.
type lifecycle struct {
	XMLName xml.Name         `xml:"LifecycleConfiguration"`
	Rules   []lifecycleRule  `xml:"Rule"`
	Unknown []unknownElement `xml:",any"`
}

// A lifecycleRule is one rule: which keys, and what ends when.
type lifecycleRule struct {
	ID         *string
	Prefix     *string // the older place of the filter's prefix
	Filter     *lifecycleFilter
	Status     string
	Expiration *expiration
	Noncurrent *noncurrentExpiration `xml:"NoncurrentVersionExpiration"`
	Abort      *uploadExpiration     `xml:"AbortIncompleteMultipartUpload"`
	Unknown    []unknownElement      `xml:",any"`
}

type lifecycleFilter struct {
	Prefix  *string
	Unknown []unknownElement `xml:",any"`
}

// An expiration ends current versions after days, or delete markers under which
// nothing is left.
type expiration struct {
	Days    *int32
	Markers *bool            `xml:"ExpiredObjectDeleteMarker"`
	Unknown []unknownElement `xml:",any"`
}

type noncurrentExpiration struct {
	Days    *int32           `xml:"NoncurrentDays"`
	Unknown []unknownElement `xml:",any"`
}

type uploadExpiration struct {
	Days    *int32           `xml:"DaysAfterInitiation"`
	Unknown []unknownElement `xml:",any"`
}

// The two states of a rule.
const (
	ruleEnabled  = "Enabled"
	ruleDisabled = "Disabled"
)

// prefix is what the keys of a rule begin with.
func (r *lifecycleRule) prefix() string {
	if r.Filter != nil {
		return textOf(r.Filter.Prefix)
	}
	return textOf(r.Prefix)
}

// check refuses what S3 refuses, and by name what is not implemented here: an
// element that was overlooked could delete what it was meant to keep.
func (l *lifecycle) check() error {
	if err := refuseUnknown(putLifecycle, l.Unknown); err != nil {
		return err
	}
	switch {
	case len(l.Rules) == 0:
		return invalidRequest("At least one lifecycle rule must be specified.")
	case len(l.Rules) > maxLifecycleRules:
		return invalidRequest(fmt.Sprintf("The number of lifecycle rules must not exceed the allowed limit of %d rules.", maxLifecycleRules))
	}
	ids := make(map[string]bool, len(l.Rules))
	for i := range l.Rules {
		r := &l.Rules[i]
		if err := r.check(); err != nil {
			return err
		}
		id := textOf(r.ID)
		if id != "" && ids[id] {
			return invalidArgument("ID", id, "Rule ID must be unique. Found same ID for more than one rule")
		}
		ids[id] = true
	}
	return nil
}

// putLifecycle is the operation that refusals name.
const putLifecycle = "PutBucketLifecycleConfiguration"

func (r *lifecycleRule) check() error {
	if err := r.refuseUnknown(); err != nil {
		return err
	}
	switch {
	case len(textOf(r.ID)) > maxRuleID:
		return invalidArgument("ID", *r.ID, fmt.Sprintf("ID length should not exceed allowed limit of %d", maxRuleID))
	case r.Status != ruleEnabled && r.Status != ruleDisabled, (r.Prefix == nil) == (r.Filter == nil):
		return malformedXML()
	case len(r.prefix()) > maxKeyLength:
		return invalidRequest(fmt.Sprintf("The maximum size of a prefix is %d.", maxKeyLength))
	case r.Expiration == nil && r.Noncurrent == nil && r.Abort == nil:
		return invalidRequest("At least one action must be specified in a lifecycle rule.")
	}
	if x := r.Expiration; x != nil {
		if (x.Days == nil) == (x.Markers == nil) {
			return malformedXML()
		}
		if err := checkDays("Days", "Expiration", x.Days); x.Days != nil && err != nil {
			return err
		}
	}
	if x := r.Noncurrent; x != nil {
		if err := checkDays("NoncurrentDays", "NoncurrentVersionExpiration", x.Days); err != nil {
			return err
		}
	}
	if x := r.Abort; x != nil {
		return checkDays("DaysAfterInitiation", "AbortIncompleteMultipartUpload", x.Days)
	}
	return nil
}

func (r *lifecycleRule) refuseUnknown() error {
	unknown := slices.Clone(r.Unknown)
	if r.Filter != nil {
		unknown = append(unknown, r.Filter.Unknown...)
	}
	if r.Expiration != nil {
		unknown = append(unknown, r.Expiration.Unknown...)
	}
	if r.Noncurrent != nil {
		unknown = append(unknown, r.Noncurrent.Unknown...)
	}
	if r.Abort != nil {
		unknown = append(unknown, r.Abort.Unknown...)
	}
	return refuseUnknown(putLifecycle, unknown)
}

// checkDays demands a whole positive number of days.
func checkDays(element, action string, days *int32) error {
	switch {
	case days == nil:
		return malformedXML()
	case *days < 1:
		return invalidArgument(element, fmt.Sprint(*days), fmt.Sprintf("'%s' for %s action must be a positive integer", element, action))
	}
	return nil
}

// document renders the configuration as it is answered and recorded.
func (l *lifecycle) document() ([]byte, error) {
	doc := bytes.NewBufferString(xml.Header)
	root := xml.StartElement{Name: xml.Name{Space: xmlNamespace, Local: "LifecycleConfiguration"}}
	if err := xml.NewEncoder(doc).EncodeElement(l, root); err != nil {
		return nil, fmt.Errorf("encode lifecycle rules: %w", err)
	}
	return doc.Bytes(), nil
}

func encodeLifecycle(document []byte) []byte {
	e := newEncoder(16 + len(document))
	e.string(string(document))
	return e.b
}

func decodeLifecycle(record []byte) (*lifecycle, error) {
	d := newDecoder(record)
	document := d.string()
	if err := d.done(); err != nil {
		return nil, err
	}
	l := &lifecycle{}
	if err := xml.Unmarshal([]byte(document), l); err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	return l, l.check()
}

func (e *Engine) putBucketLifecycle(req *request) (engine.Response, error) {
	if err := requireDigest(req.header); err != nil {
		return engine.Response{}, err
	}
	size := req.header.Get(transitionSizeHeader)
	if size != "" && size != defaultTransitionSize {
		return engine.Response{}, headerNotImplemented(strings.ToLower(transitionSizeHeader), "The embedded S3 has no transitions")
	}
	l := &lifecycle{}
	if err := decodeXML(req, l); err != nil {
		return engine.Response{}, err
	}
	if err := l.check(); err != nil {
		return engine.Response{}, err
	}
	return e.changeLifecycle(req.bucket, http.StatusOK, l)
}

func (e *Engine) deleteBucketLifecycle(req *request) (engine.Response, error) {
	return e.changeLifecycle(req.bucket, http.StatusNoContent, nil)
}

// changeLifecycle puts rules in the place of a bucket's; nil takes them away.
func (e *Engine) changeLifecycle(name string, status int, l *lifecycle) (engine.Response, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, err := e.bucket(name)
	if err != nil {
		return engine.Response{}, err
	}
	h := http.Header{}
	if l != nil {
		for i := range l.Rules {
			if textOf(l.Rules[i].ID) == "" {
				id := newOpaqueID(e.nextSeq())
				l.Rules[i].ID = &id // S3 names rules that have no id
			}
		}
		h.Set(transitionSizeHeader, defaultTransitionSize)
	}
	c := e.begin()
	if err := c.setLifecycle(b, l); err != nil {
		return engine.Response{}, err
	}
	return engine.Response{Status: status, Header: h, Durable: c.commit()}, nil
}

func (c *change) setLifecycle(b *bucket, l *lifecycle) error {
	var record []byte // nil deletes it
	if l != nil {
		document, err := l.document()
		if err != nil {
			return err
		}
		record = encodeLifecycle(document)
	}
	b.lifecycle = l
	c.write(spaceLifecycle, b.name, record)
	return nil
}

func (e *Engine) getBucketLifecycle(req *request) (engine.Response, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	b, err := e.bucket(req.bucket)
	if err != nil {
		return engine.Response{}, err
	}
	if b.lifecycle == nil {
		return engine.Response{}, newError(http.StatusNotFound, "NoSuchLifecycleConfiguration",
			"The lifecycle configuration does not exist").with("BucketName", b.name)
	}
	document, err := b.lifecycle.document()
	if err != nil {
		return engine.Response{}, err
	}
	resp := xmlResponse(document)
	resp.Header.Set(transitionSizeHeader, defaultTransitionSize)
	return resp, nil
}
