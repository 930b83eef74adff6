package objects

import (
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"drawbridge/localstack/fakeaws/engine"
)

// maxKeyLength is S3's limit of a key, in bytes of UTF-8.
const maxKeyLength = 1024

// A request is an S3 request taken apart.
type request struct {
	op     *operation
	bucket string
	key    string
	query  url.Values
	header http.Header
	body   []byte
}

type scope int

const (
	serviceScope scope = iota
	bucketScope
	objectScope
)

// An operation is one of S3's, told by method, by what the path names and by
// the sub-resource in the query.
type operation struct {
	name   string
	action string // the IAM action that a bucket policy names
	serve  func(*Engine, *request) (engine.Response, error)
}

type selector struct {
	method string
	scope  scope
	sub    string // sub-resource; empty selects the resource itself
}

var operations = map[selector]*operation{
	{"GET", serviceScope, ""}: {"ListBuckets", "s3:ListAllMyBuckets", (*Engine).listBuckets},

	{"PUT", bucketScope, ""}:                     {"CreateBucket", "s3:CreateBucket", (*Engine).createBucket},
	{"HEAD", bucketScope, ""}:                    {"HeadBucket", "s3:ListBucket", (*Engine).headBucket},
	{"DELETE", bucketScope, ""}:                  {"DeleteBucket", "s3:DeleteBucket", (*Engine).deleteBucket},
	{"GET", bucketScope, "location"}:             {"GetBucketLocation", "s3:GetBucketLocation", (*Engine).getBucketLocation},
	{"GET", bucketScope, "versioning"}:           {"GetBucketVersioning", "s3:GetBucketVersioning", (*Engine).getBucketVersioning},
	{"PUT", bucketScope, "versioning"}:           {"PutBucketVersioning", "s3:PutBucketVersioning", (*Engine).putBucketVersioning},
	{"GET", bucketScope, "encryption"}:           {"GetBucketEncryption", "s3:GetEncryptionConfiguration", (*Engine).getBucketEncryption},
	{"PUT", bucketScope, "encryption"}:           {"PutBucketEncryption", "s3:PutEncryptionConfiguration", (*Engine).putBucketEncryption},
	{"DELETE", bucketScope, "encryption"}:        {"DeleteBucketEncryption", "s3:PutEncryptionConfiguration", (*Engine).deleteBucketEncryption},
	{"GET", bucketScope, "publicAccessBlock"}:    {"GetPublicAccessBlock", "s3:GetBucketPublicAccessBlock", (*Engine).getPublicAccessBlock},
	{"PUT", bucketScope, "publicAccessBlock"}:    {"PutPublicAccessBlock", "s3:PutBucketPublicAccessBlock", (*Engine).putPublicAccessBlock},
	{"DELETE", bucketScope, "publicAccessBlock"}: {"DeletePublicAccessBlock", "s3:PutBucketPublicAccessBlock", (*Engine).deletePublicAccessBlock},
	{"GET", bucketScope, "ownershipControls"}:    {"GetBucketOwnershipControls", "s3:GetBucketOwnershipControls", (*Engine).getOwnershipControls},
	{"PUT", bucketScope, "ownershipControls"}:    {"PutBucketOwnershipControls", "s3:PutBucketOwnershipControls", (*Engine).putOwnershipControls},
	{"GET", bucketScope, "policy"}:               {"GetBucketPolicy", "s3:GetBucketPolicy", (*Engine).getBucketPolicy},
	{"PUT", bucketScope, "policy"}:               {"PutBucketPolicy", "s3:PutBucketPolicy", (*Engine).putBucketPolicy},
	{"DELETE", bucketScope, "policy"}:            {"DeleteBucketPolicy", "s3:DeleteBucketPolicy", (*Engine).deleteBucketPolicy},
	{"GET", bucketScope, "lifecycle"}:            {"GetBucketLifecycleConfiguration", "s3:GetLifecycleConfiguration", (*Engine).getBucketLifecycle},
	{"PUT", bucketScope, "lifecycle"}:            {putLifecycle, "s3:PutLifecycleConfiguration", (*Engine).putBucketLifecycle},
	{"DELETE", bucketScope, "lifecycle"}:         {"DeleteBucketLifecycle", "s3:PutLifecycleConfiguration", (*Engine).deleteBucketLifecycle},
	{"GET", bucketScope, ""}:                     {"ListObjects", "s3:ListBucket", (*Engine).listObjects},
	{"GET", bucketScope, "list-type"}:            {"ListObjectsV2", "s3:ListBucket", (*Engine).listObjectsV2},
	{"GET", bucketScope, "versions"}:             {"ListObjectVersions", "s3:ListBucketVersions", (*Engine).listObjectVersions},
	{"GET", bucketScope, "uploads"}:              {"ListMultipartUploads", "s3:ListBucketMultipartUploads", (*Engine).listMultipartUploads},
	{"POST", bucketScope, "delete"}:              {"DeleteObjects", "", (*Engine).deleteObjects}, // authorized key by key
	{"POST", bucketScope, ""}:                    {"PostObject", "", nil},

	{"GET", objectScope, ""}:            {"GetObject", "s3:GetObject", (*Engine).getObject},
	{"HEAD", objectScope, ""}:           {"HeadObject", "s3:GetObject", (*Engine).headObject},
	{"PUT", objectScope, ""}:            {"PutObject", "s3:PutObject", (*Engine).putObject},
	{"DELETE", objectScope, ""}:         {"DeleteObject", "s3:DeleteObject", (*Engine).deleteObject},
	{"POST", objectScope, "uploads"}:    {"CreateMultipartUpload", "s3:PutObject", (*Engine).createMultipartUpload},
	{"PUT", objectScope, "uploadId"}:    {"UploadPart", "s3:PutObject", (*Engine).uploadPart},
	{"POST", objectScope, "uploadId"}:   {"CompleteMultipartUpload", "s3:PutObject", (*Engine).completeMultipartUpload},
	{"DELETE", objectScope, "uploadId"}: {"AbortMultipartUpload", "s3:AbortMultipartUpload", (*Engine).abortMultipartUpload},
	{"GET", objectScope, "uploadId"}:    {"ListParts", "s3:ListMultipartUploadParts", (*Engine).listParts},
}

// The operations that a header tells apart.
var (
	copyObject     = &operation{"CopyObject", "s3:PutObject", (*Engine).copyObject}
	uploadPartCopy = &operation{"UploadPartCopy", "s3:PutObject", nil}
)

// Operations returns the names of the operations that the engine knows, those
// included that it refuses as not implemented, in no order.
func Operations() []string {
	names := []string{copyObject.name, uploadPartCopy.name}
	for _, op := range operations {
		names = append(names, op.name)
	}
	return names
}

// subresources names S3's sub-resources: what follows the verb in the name of
// the operation that is refused.
var subresources = map[scope]map[string]string{
	bucketScope: {
		"abac": "BucketAbac", "accelerate": "BucketAccelerateConfiguration", "acl": "BucketAcl",
		"analytics": "BucketAnalyticsConfiguration", "cors": "BucketCors", "delete": "Objects",
		"encryption": "BucketEncryption", "intelligent-tiering": "BucketIntelligentTieringConfiguration",
		"inventory": "BucketInventoryConfiguration", "lifecycle": "BucketLifecycleConfiguration",
		"list-type": "ObjectsV2", "location": "BucketLocation", "logging": "BucketLogging",
		"metadataConfiguration": "BucketMetadataConfiguration", "metadataTable": "BucketMetadataTableConfiguration",
		"metrics": "BucketMetricsConfiguration", "notification": "BucketNotificationConfiguration",
		"object-lock": "ObjectLockConfiguration", "ownershipControls": "BucketOwnershipControls",
		"policy": "BucketPolicy", "policyStatus": "BucketPolicyStatus", "publicAccessBlock": "PublicAccessBlock",
		"replication": "BucketReplication", "requestPayment": "BucketRequestPayment", "session": "Session",
		"tagging": "BucketTagging", "uploads": "MultipartUploads", "versioning": "BucketVersioning",
		"versions": "ObjectVersions", "website": "BucketWebsite",
	},
	objectScope: {
		"acl": "ObjectAcl", "annotation": "ObjectAnnotation", "attributes": "ObjectAttributes",
		"encryption": "ObjectEncryption", "legal-hold": "ObjectLegalHold", "renameObject": "RenameObject",
		"restore": "RestoreObject", "retention": "ObjectRetention", "select": "SelectObjectContent",
		"tagging": "ObjectTagging", "torrent": "ObjectTorrent", "uploadId": "MultipartUpload",
		"uploads": "MultipartUploads",
	},
}

// parameters are the query parameters that do not select an operation.
var parameters = map[string]bool{
	"bucket-region": true, "continuation-token": true, "delimiter": true, "encoding-type": true,
	"fetch-owner": true, "key-marker": true, "marker": true, "max-buckets": true, "max-keys": true,
	"max-parts": true, "max-uploads": true, "part-number-marker": true, "partNumber": true, "prefix": true,
	"response-cache-control": true, "response-content-disposition": true, "response-content-encoding": true,
	"response-content-language": true, "response-content-type": true, "response-expires": true,
	"start-after": true, "upload-id-marker": true, "version-id-marker": true, "versionId": true,
}

var verbs = map[string]string{"GET": "Get", "PUT": "Put", "DELETE": "Delete", "POST": "Post", "HEAD": "Head"}

// parseRequest takes a path-style request apart and finds its operation.
func parseRequest(r *http.Request, body []byte) (*request, error) {
	if virtualHosted(r.Host) {
		return nil, invalidRequest("The embedded S3 serves path-style addresses only (host/bucket/key): set UsePathStyle, or use an IP address as the endpoint. Host: " + r.Host)
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, newError(http.StatusBadRequest, "InvalidURI", "Couldn't parse the specified URI.")
	}
	req := &request{query: query, header: r.Header, body: body}
	if query.Has("X-Amz-Signature") {
		req.header = withHoisted(r.Header, query)
	}
	// Only the first slash separates: the rest is the key's text, "//", "." and
	// ".." included.
	req.bucket, req.key, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if err := checkKey(req.key); err != nil {
		return nil, err
	}
	if req.bucket == "" && req.key != "" {
		return nil, invalidBucketName("")
	}
	at := serviceScope
	switch {
	case req.key != "":
		at = objectScope
	case req.bucket != "":
		at = bucketScope
	}
	req.op, err = findOperation(r.Method, at, req)
	return req, err
}

// withHoisted adds the headers that a presigned URL carries as parameters: the
// SDK moves those there that the signature does not have to name, such as
// x-amz-expected-bucket-owner and x-amz-checksum-mode.
func withHoisted(h http.Header, query url.Values) http.Header {
	h = h.Clone()
	for name, values := range query {
		if strings.HasPrefix(strings.ToLower(name), "x-amz-") && h.Get(name) == "" {
			h.Set(name, values[0])
		}
	}
	return h
}

func checkKey(key string) error {
	if len(key) > maxKeyLength {
		return newError(http.StatusBadRequest, "KeyTooLongError", "Your key is too long").
			with("Size", strconv.Itoa(len(key))).with("MaxSizeAllowed", strconv.Itoa(maxKeyLength))
	}
	if !utf8.ValidString(key) {
		return newError(http.StatusBadRequest, "InvalidURI", "Couldn't parse the specified URI.")
	}
	return nil
}

func findOperation(method string, at scope, req *request) (*operation, error) {
	sub := ""
	for name := range req.query {
		if subresources[at][name] == "" {
			if !parameters[name] && !strings.HasPrefix(strings.ToLower(name), "x-") {
				return nil, notImplemented("the query parameter " + strconv.Quote(name) + " here")
			}
			continue
		}
		if sub != "" {
			return nil, invalidArgument("ResourceType", sub, "Conflicting query string parameters: "+min(sub, name)+", "+max(sub, name))
		}
		sub = name
	}
	op := operations[selector{method, at, sub}]
	if op == nil && sub != "" && verbs[method] != "" {
		op = &operation{name: verbs[method] + subresources[at][sub]}
	}
	if op == nil {
		return nil, newError(http.StatusMethodNotAllowed, "MethodNotAllowed",
			"The specified method is not allowed against this resource.").with("Method", method)
	}
	if req.header.Get("X-Amz-Copy-Source") != "" {
		switch op.name {
		case "PutObject":
			op = copyObject
		case "UploadPart":
			op = uploadPartCopy
		}
	}
	return op, nil
}

// virtualHosted tells whether the host name carries a bucket. Taking such a
// request for path style would read the key as a bucket's name.
func virtualHosted(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if net.ParseIP(host) != nil {
		return false
	}
	if name, ok := strings.CutSuffix(host, ".localhost"); ok {
		return name != "s3"
	}
	if strings.HasSuffix(host, ".fakeaws.invalid") { // the endpoint of clients in process
		return true
	}
	return strings.Contains(host, ".s3.") || strings.Contains(host, ".s3-")
}

// intParameter reads a query parameter between 0 and its cap; what is above the
// cap counts as the cap, as S3's page sizes do.
func (req *request) intParameter(name string, missing, cap int) (int, error) {
	text := req.query.Get(name)
	if text == "" {
		return missing, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0, invalidArgument(name, text, "Provided "+name+" not an integer or within integer range")
	}
	return min(int(n), cap), nil
}

// urlEncoded tells whether the keys of an answer are to be URL-encoded.
func (req *request) urlEncoded() (bool, error) {
	switch t := req.query.Get("encoding-type"); t {
	case "":
		return false, nil
	case "url":
		return true, nil
	default:
		return false, invalidArgument("encoding-type", t, "Invalid Encoding Method specified in Request")
	}
}
