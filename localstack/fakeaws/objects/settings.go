package objects

import (
	"encoding/xml"
	"net/http"

	"drawbridge/localstack/fakeaws/engine"
)

// ownerEnforced is the only object ownership that is implemented: ACLs are off.
const ownerEnforced = "BucketOwnerEnforced"

// settings are what a bucket is configured with beyond versioning and policy.
// Only settings whose whole effect is implemented are accepted: the default
// encryption is applied to every write, and public access is always blocked,
// because every request is signed by the owner.
type settings struct {
	encryption   encryption
	publicAccess *publicAccessBlock // nil: deleted
}

// defaultSettings are those of a new bucket on AWS since 2023.
func defaultSettings() settings {
	return settings{
		encryption:   encryption{algorithm: encryptionS3},
		publicAccess: &publicAccessBlock{BlockPublicAcls: true, IgnorePublicAcls: true, BlockPublicPolicy: true, RestrictPublicBuckets: true},
	}
}

func encodeBucket(b *bucket) []byte {
	e := newEncoder(256)
	e.string(b.region)
	e.time(b.created)
	e.string(b.versioning)
	e.encryption(b.settings.encryption)
	access := b.settings.publicAccess
	e.bool(access != nil)
	if access != nil {
		for _, flag := range access.flags() {
			e.bool(*flag)
		}
	}
	document := ""
	if b.policy != nil {
		document = b.policy.document
	}
	e.string(document)
	return e.b
}

func decodeBucket(name string, record []byte) (*bucket, error) {
	d := newDecoder(record)
	b := newBucket(name, d.string(), d.time())
	b.versioning = d.string()
	b.settings = settings{encryption: d.encryption()}
	if d.bool() {
		b.settings.publicAccess = &publicAccessBlock{}
		for _, flag := range b.settings.publicAccess.flags() {
			*flag = d.bool()
		}
	}
	if document := d.string(); document != "" {
		p, err := parsePolicy(name, document)
		if err != nil {
			return nil, err
		}
		b.policy = p
	}
	return b, d.done()
}

// A publicAccessBlock is the document of the public access block.
type publicAccessBlock struct {
	XMLName               xml.Name `xml:"PublicAccessBlockConfiguration"`
	BlockPublicAcls       bool
	IgnorePublicAcls      bool
	BlockPublicPolicy     bool
	RestrictPublicBuckets bool
	Unknown               []unknownElement `xml:",any"`
}

func (p *publicAccessBlock) flags() [4]*bool {
	return [4]*bool{&p.BlockPublicAcls, &p.IgnorePublicAcls, &p.BlockPublicPolicy, &p.RestrictPublicBuckets}
}

func (e *Engine) getPublicAccessBlock(req *request) (engine.Response, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	b, err := e.bucket(req.bucket)
	if err != nil {
		return engine.Response{}, err
	}
	access := b.settings.publicAccess
	if access == nil {
		return engine.Response{}, newError(http.StatusNotFound, "NoSuchPublicAccessBlockConfiguration",
			"The public access block configuration was not found").with("BucketName", b.name)
	}
	x := startXML("PublicAccessBlockConfiguration", xmlNamespace)
	x.bool("BlockPublicAcls", access.BlockPublicAcls)
	x.bool("IgnorePublicAcls", access.IgnorePublicAcls)
	x.bool("BlockPublicPolicy", access.BlockPublicPolicy)
	x.bool("RestrictPublicBuckets", access.RestrictPublicBuckets)
	return xmlResponse(x.end("PublicAccessBlockConfiguration")), nil
}

func (e *Engine) putPublicAccessBlock(req *request) (engine.Response, error) {
	access := &publicAccessBlock{}
	if err := decodeXML(req, access); err != nil {
		return engine.Response{}, err
	}
	if err := refuseUnknown("PutPublicAccessBlock", access.Unknown); err != nil {
		return engine.Response{}, err
	}
	return e.changeBucket(req.bucket, http.StatusOK, func(b *bucket) { b.settings.publicAccess = access })
}

func (e *Engine) deletePublicAccessBlock(req *request) (engine.Response, error) {
	return e.changeBucket(req.bucket, http.StatusNoContent, func(b *bucket) { b.settings.publicAccess = nil })
}

// An encryptionConfiguration is the document of the default encryption.
type encryptionConfiguration struct {
	XMLName xml.Name `xml:"ServerSideEncryptionConfiguration"`
	Rules   []struct {
		Default *struct {
			SSEAlgorithm   string
			KMSMasterKeyID string
			Unknown        []unknownElement `xml:",any"`
		} `xml:"ApplyServerSideEncryptionByDefault"`
		BucketKeyEnabled bool
		Unknown          []unknownElement `xml:",any"`
	} `xml:"Rule"`
	Unknown []unknownElement `xml:",any"`
}

func (e *Engine) getBucketEncryption(req *request) (engine.Response, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	b, err := e.bucket(req.bucket)
	if err != nil {
		return engine.Response{}, err
	}
	s := b.settings.encryption
	x := startXML("ServerSideEncryptionConfiguration", xmlNamespace)
	x.open("Rule")
	x.open("ApplyServerSideEncryptionByDefault")
	x.text("SSEAlgorithm", s.algorithm)
	x.textIf("KMSMasterKeyID", s.keyID)
	x.close("ApplyServerSideEncryptionByDefault")
	x.bool("BucketKeyEnabled", s.bucketKey)
	x.close("Rule")
	return xmlResponse(x.end("ServerSideEncryptionConfiguration")), nil
}

func (e *Engine) putBucketEncryption(req *request) (engine.Response, error) {
	var conf encryptionConfiguration
	if err := decodeXML(req, &conf); err != nil {
		return engine.Response{}, err
	}
	if len(conf.Rules) != 1 || conf.Rules[0].Default == nil {
		return engine.Response{}, malformedXML()
	}
	rule := conf.Rules[0]
	for _, unknown := range [][]unknownElement{conf.Unknown, rule.Unknown, rule.Default.Unknown} {
		if err := refuseUnknown("PutBucketEncryption", unknown); err != nil {
			return engine.Response{}, err
		}
	}
	s := encryption{algorithm: rule.Default.SSEAlgorithm, keyID: rule.Default.KMSMasterKeyID, bucketKey: rule.BucketKeyEnabled}
	switch s.algorithm {
	case encryptionS3:
		if s.keyID != "" {
			return engine.Response{}, invalidArgument("ApplyServerSideEncryptionByDefault", s.keyID,
				"a KMSMasterKeyID is not applicable if the default sse algorithm is not aws:kms or aws:kms:dsse")
		}
		s.bucketKey = false // means nothing without KMS
	case encryptionKMS:
	case "aws:kms:dsse":
		return engine.Response{}, notImplemented("PutBucketEncryption with " + s.algorithm)
	default:
		return engine.Response{}, malformedXML()
	}
	return e.changeBucket(req.bucket, http.StatusOK, func(b *bucket) { b.settings.encryption = s })
}

// deleteBucketEncryption resets the default: AWS always encrypts.
func (e *Engine) deleteBucketEncryption(req *request) (engine.Response, error) {
	return e.changeBucket(req.bucket, http.StatusNoContent, func(b *bucket) {
		b.settings.encryption = defaultSettings().encryption
	})
}

type ownershipControls struct {
	XMLName xml.Name `xml:"OwnershipControls"`
	Rules   []struct {
		ObjectOwnership string
	} `xml:"Rule"`
	Unknown []unknownElement `xml:",any"`
}

func (e *Engine) getOwnershipControls(req *request) (engine.Response, error) {
	x := startXML("OwnershipControls", xmlNamespace)
	x.open("Rule")
	x.text("ObjectOwnership", ownerEnforced)
	x.close("Rule")
	return xmlResponse(x.end("OwnershipControls")), nil
}

// putOwnershipControls accepts what is so anyway.
func (e *Engine) putOwnershipControls(req *request) (engine.Response, error) {
	var conf ownershipControls
	if err := decodeXML(req, &conf); err != nil {
		return engine.Response{}, err
	}
	if len(conf.Rules) != 1 || len(conf.Unknown) > 0 {
		return engine.Response{}, malformedXML()
	}
	if o := conf.Rules[0].ObjectOwnership; o != ownerEnforced {
		return engine.Response{}, notImplemented("PutBucketOwnershipControls with " + o)
	}
	return engine.Response{Status: http.StatusOK, Header: http.Header{}}, nil
}

func (e *Engine) getBucketPolicy(req *request) (engine.Response, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	b, err := e.bucket(req.bucket)
	if err != nil {
		return engine.Response{}, err
	}
	if b.policy == nil {
		return engine.Response{}, newError(http.StatusNotFound, "NoSuchBucketPolicy", "The bucket policy does not exist").
			with("BucketName", b.name)
	}
	resp := xmlResponse([]byte(b.policy.document))
	resp.Header.Set("Content-Type", "application/json")
	return resp, nil
}

func (e *Engine) putBucketPolicy(req *request) (engine.Response, error) {
	if err := verifyDigests(req.header, req.body); err != nil {
		return engine.Response{}, err
	}
	p, err := parsePolicy(req.bucket, string(req.body))
	if err != nil {
		return engine.Response{}, err
	}
	return e.changeBucket(req.bucket, http.StatusNoContent, func(b *bucket) { b.policy = p })
}

func (e *Engine) deleteBucketPolicy(req *request) (engine.Response, error) {
	return e.changeBucket(req.bucket, http.StatusNoContent, func(b *bucket) { b.policy = nil })
}
