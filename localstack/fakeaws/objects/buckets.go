package objects

import (
	"encoding/xml"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"drawbridge/localstack/fakeaws/engine"
)

// maxBuckets is AWS's quota of buckets in an account, and the largest page of
// ListBuckets.
const maxBuckets = 10_000

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// reservedPrefixes and reservedSuffixes are kept by AWS for its own names.
var (
	reservedPrefixes = []string{"xn--", "sthree-", "amzn-s3-demo-"}
	reservedSuffixes = []string{"-s3alias", "--ol-s3", "--x-s3", "--table-s3", ".mrap"}
)

func invalidBucketName(name string) *apiError {
	return newError(http.StatusBadRequest, "InvalidBucketName", "The specified bucket is not valid.").with("BucketName", name)
}

func checkBucketName(name string) error {
	reserved := func(match func(string, string) bool) func(string) bool {
		return func(affix string) bool { return match(name, affix) }
	}
	if !bucketName.MatchString(name) || strings.Contains(name, "..") || net.ParseIP(name) != nil ||
		slices.ContainsFunc(reservedPrefixes, reserved(strings.HasPrefix)) ||
		slices.ContainsFunc(reservedSuffixes, reserved(strings.HasSuffix)) {
		return invalidBucketName(name)
	}
	return nil
}

type createBucketConfiguration struct {
	XMLName            xml.Name `xml:"CreateBucketConfiguration"`
	LocationConstraint string
	Unknown            []unknownElement `xml:",any"`
}

func (e *Engine) createBucket(req *request) (engine.Response, error) {
	if err := checkBucketName(req.bucket); err != nil {
		return engine.Response{}, err
	}
	if ownership := req.header.Get("X-Amz-Object-Ownership"); ownership != "" && ownership != ownerEnforced {
		return engine.Response{}, notImplemented("CreateBucket with object ownership " + ownership)
	}
	var conf createBucketConfiguration
	if len(req.body) > 0 {
		if err := decodeXML(req, &conf); err != nil {
			return engine.Response{}, err
		}
		if err := refuseUnknown("CreateBucket", conf.Unknown); err != nil {
			return engine.Response{}, err
		}
	}
	region := conf.LocationConstraint
	switch region {
	case "":
		region = defaultRegion
	case defaultRegion:
		return engine.Response{}, newError(http.StatusBadRequest, "InvalidLocationConstraint",
			"The specified location-constraint is not valid").with("LocationConstraint", region)
	case "EU":
		region = "eu-west-1"
	}
	name := strings.Clone(req.bucket)
	e.mu.Lock()
	defer e.mu.Unlock()
	resp := engine.Response{Status: http.StatusOK, Header: http.Header{"Location": {"/" + name}, "Content-Length": {"0"}}}
	if b := e.buckets[name]; b != nil {
		// us-east-1 alone answers 200 to the owner, for compatibility with its past.
		if b.region == defaultRegion && region == defaultRegion {
			return resp, nil
		}
		return engine.Response{}, newError(http.StatusConflict, "BucketAlreadyOwnedByYou",
			"Your previous request to create the named bucket succeeded and you already own it.").with("BucketName", name)
	}
	if len(e.buckets) >= maxBuckets {
		return engine.Response{}, newError(http.StatusBadRequest, "TooManyBuckets",
			"You have attempted to create more buckets than allowed")
	}
	b := newBucket(name, strings.Clone(region), e.now())
	e.buckets[name] = b
	c := e.begin()
	c.saveBucket(b)
	resp.Durable = c.commit()
	return resp, nil
}

func (e *Engine) headBucket(req *request) (engine.Response, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	b, err := e.bucket(req.bucket)
	if err != nil {
		return engine.Response{}, err
	}
	return engine.Response{Status: http.StatusOK, Header: http.Header{
		"X-Amz-Bucket-Region": {b.region}, "X-Amz-Access-Point-Alias": {"false"}, "Content-Type": {"application/xml"},
	}}, nil
}

// deleteBucket deletes an empty bucket, and with it its unfinished uploads.
func (e *Engine) deleteBucket(req *request) (engine.Response, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, err := e.bucket(req.bucket)
	if err != nil {
		return engine.Response{}, err
	}
	if b.entries.Len() > 0 {
		message := "The bucket you tried to delete is not empty"
		if b.versioning != "" {
			message += ". You must delete all versions in the bucket."
		}
		return engine.Response{}, newError(http.StatusConflict, "BucketNotEmpty", message).with("BucketName", b.name)
	}
	c := e.begin()
	for _, u := range b.uploads.Items() {
		c.abortUpload(b, u)
	}
	delete(e.buckets, b.name)
	c.write(spaceBucket, b.name, nil)
	c.write(spaceLifecycle, b.name, nil)
	return engine.Response{Status: http.StatusNoContent, Header: http.Header{}, Durable: c.commit()}, nil
}

func (e *Engine) listBuckets(req *request) (engine.Response, error) {
	limit, err := req.intParameter("max-buckets", maxBuckets, maxBuckets)
	if err != nil {
		return engine.Response{}, err
	}
	after, err := parseToken(req.query.Get("continuation-token"))
	if err != nil {
		return engine.Response{}, err
	}
	prefix, region := req.query.Get("prefix"), req.query.Get("bucket-region")
	e.mu.RLock()
	defer e.mu.RUnlock()
	var names []string
	for name, b := range e.buckets {
		if name > after && strings.HasPrefix(name, prefix) && (region == "" || region == b.region) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	next := ""
	if limit = max(limit, 1); len(names) > limit {
		names = names[:limit]
		next = newToken(names[limit-1])
	}
	x := startXML("ListAllMyBucketsResult", xmlNamespace)
	x.owner("Owner")
	x.open("Buckets")
	for _, name := range names {
		b := e.buckets[name]
		x.open("Bucket")
		x.text("Name", name)
		x.time("CreationDate", b.created)
		x.text("BucketRegion", b.region)
		x.close("Bucket")
	}
	x.close("Buckets")
	x.textIf("ContinuationToken", next)
	x.textIf("Prefix", prefix)
	return xmlResponse(x.end("ListAllMyBucketsResult")), nil
}

func (e *Engine) getBucketLocation(req *request) (engine.Response, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	b, err := e.bucket(req.bucket)
	if err != nil {
		return engine.Response{}, err
	}
	x := startXML("LocationConstraint", xmlNamespace)
	if b.region != defaultRegion { // us-east-1 is told by an empty element
		x.b = appendEscaped(x.b, b.region)
	}
	return xmlResponse(x.end("LocationConstraint")), nil
}

type versioningConfiguration struct {
	XMLName xml.Name `xml:"VersioningConfiguration"`
	Status  *string
	Unknown []unknownElement `xml:",any"`
}

func (e *Engine) getBucketVersioning(req *request) (engine.Response, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	b, err := e.bucket(req.bucket)
	if err != nil {
		return engine.Response{}, err
	}
	x := startXML("VersioningConfiguration", xmlNamespace)
	x.textIf("Status", b.versioning)
	return xmlResponse(x.end("VersioningConfiguration")), nil
}

func (e *Engine) putBucketVersioning(req *request) (engine.Response, error) {
	var conf versioningConfiguration
	if err := decodeXML(req, &conf); err != nil {
		return engine.Response{}, err
	}
	if err := refuseUnknown("PutBucketVersioning", conf.Unknown); err != nil { // MfaDelete
		return engine.Response{}, err
	}
	var status string
	switch {
	case conf.Status == nil:
		return engine.Response{}, newError(http.StatusBadRequest, "IllegalVersioningConfigurationException",
			"The Versioning element must be specified")
	case *conf.Status == versioningEnabled:
		status = versioningEnabled
	case *conf.Status == versioningSuspended:
		status = versioningSuspended
	default:
		return engine.Response{}, malformedXML()
	}
	return e.changeBucket(req.bucket, http.StatusOK, func(b *bucket) { b.versioning = status })
}

// changeBucket changes what a bucket's record holds.
func (e *Engine) changeBucket(name string, status int, change func(*bucket)) (engine.Response, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, err := e.bucket(name)
	if err != nil {
		return engine.Response{}, err
	}
	change(b)
	c := e.begin()
	c.saveBucket(b)
	return engine.Response{Status: status, Header: http.Header{}, Durable: c.commit()}, nil
}

func (x *xmlWriter) owner(element string) {
	x.open(element)
	x.text("ID", ownerID)
	x.close(element)
}

// time writes an instant the way S3 does: with milliseconds, which are zero.
func (x *xmlWriter) time(name string, t time.Time) {
	x.open(name)
	x.b = t.UTC().AppendFormat(x.b, "2006-01-02T15:04:05.000Z")
	x.close(name)
}
