package fakeaws

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"hash"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Signature Version 4 as AWS checks it, in the Authorization header and, for
// S3, in presigned URLs.
// https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-auth-using-authorization-header.html
// https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html

const (
	algorithm      = "AWS4-HMAC-SHA256"
	scopeEnd       = "aws4_request"
	amzTime        = "20060102T150405Z"
	maxSkew        = 15 * time.Minute
	maxPresignLife = 7 * 24 * time.Hour

	unsignedPayload        = "UNSIGNED-PAYLOAD"
	unsignedPayloadTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	signedChunks           = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	signedChunksTrailer    = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"

	// Bounds of the two caches. Real clients use one scope a day and a handful
	// of header sets; a client that varies them only costs itself time.
	maxSigningKeys = 256
	maxHeaderSets  = 256
)

// verifier checks who signed a request and that it arrived as it was signed.
type verifier struct {
	secrets map[string]string // secret of each access key
	region  string            // the only region signatures may be scoped to; empty: any

	// wall is the machine's clock, which clients sign with, and judges skew.
	// clock is the service's clock, which a test may move, and ends presigned
	// URLs.
	wall, clock func() time.Time

	keysMu sync.RWMutex
	keys   map[keyScope]*signingKey

	namesMu sync.RWMutex
	names   map[string][]signedName
}

func newVerifier(secrets map[string]string, region string, clock func() time.Time) *verifier {
	return &verifier{
		secrets: secrets, region: region, wall: time.Now, clock: clock,
		keys: map[keyScope]*signingKey{}, names: map[string][]signedName{},
	}
}

// keyScope names one signing key.
type keyScope struct{ accessKey, date, region, service string }

// A claim is what a request says about its own signature.
type claim struct {
	keyScope
	end           string // last part of the credential scope
	time          string // X-Amz-Date
	signedHeaders string
	signature     string
	presigned     bool
	expires       string // X-Amz-Expires of a presigned URL
}

func (c *claim) scope() string {
	return c.date + "/" + c.region + "/" + c.service + "/" + c.end
}

// verify returns the access key that signed the request, or the refusal. A
// session token is signed like any header but not looked at: the embedded AWS
// issues none.
func (v *verifier) verify(r *http.Request, body []byte, p protocol) (string, *failure) {
	c, f := parseClaim(r, p)
	if f != nil {
		return "", f
	}
	secret, ok := v.secrets[c.accessKey]
	if !ok {
		return "", unknownKey(p, c.accessKey)
	}
	if f := v.checkScope(&c, p); f != nil {
		return "", f
	}
	if f := v.checkTime(&c, p); f != nil {
		return "", f
	}
	names, f := v.signedNames(&c, r, p)
	if f != nil {
		return "", f
	}
	payload, f := declaredPayload(r, body, &c, p)
	if f != nil {
		return "", f
	}
	key := v.signingKey(c.keyScope, secret)
	if f := checkSignature(r, &c, p, names, payload, key); f != nil {
		return "", f
	}
	return c.accessKey, checkPayload(body, &c, p, payload, key)
}

// parseClaim finds the signature in the header or the query.
func parseClaim(r *http.Request, p protocol) (claim, *failure) {
	header := r.Header.Get("Authorization")
	presigned := p == restXML && strings.Contains(r.URL.RawQuery, "X-Amz-Algorithm=")
	switch {
	case header != "" && presigned:
		return claim{}, &failure{status: 400, code: "InvalidArgument", message: "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string parameter or the Authorization header should be specified"}
	case header != "":
		return headerClaim(r, header, p)
	case presigned:
		return queryClaim(r.URL)
	}
	return claim{}, noCredentials(p)
}

// headerClaim parses "AWS4-HMAC-SHA256 Credential=.., SignedHeaders=.., Signature=..".
func headerClaim(r *http.Request, header string, p protocol) (claim, *failure) {
	rest, ok := strings.CutPrefix(header, algorithm+" ")
	if !ok {
		return claim{}, unsupportedAlgorithm(p)
	}
	var c claim
	var credential string
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "Credential":
			credential = value
		case "SignedHeaders":
			c.signedHeaders = value
		case "Signature":
			c.signature = value
		}
	}
	if credential == "" || c.signedHeaders == "" || c.signature == "" {
		return claim{}, incomplete(p, "the Authorization header needs Credential, SignedHeaders and Signature")
	}
	if !c.setCredential(credential) {
		return claim{}, incomplete(p, "the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\"")
	}
	if c.time = r.Header.Get("X-Amz-Date"); c.time == "" {
		date, err := http.ParseTime(r.Header.Get("Date"))
		if err != nil {
			return claim{}, noDate(p)
		}
		c.time = date.UTC().Format(amzTime)
	}
	return c, nil
}

// queryClaim parses the X-Amz-* parameters of a presigned URL.
func queryClaim(u *url.URL) (claim, *failure) {
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return claim{}, badQuery("the query string cannot be parsed")
	}
	if q.Get("X-Amz-Algorithm") != algorithm {
		return claim{}, badQuery("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"")
	}
	c := claim{
		time: q.Get("X-Amz-Date"), expires: q.Get("X-Amz-Expires"), presigned: true,
		signedHeaders: q.Get("X-Amz-SignedHeaders"), signature: q.Get("X-Amz-Signature"),
	}
	if c.time == "" || c.expires == "" || c.signedHeaders == "" || c.signature == "" || !q.Has("X-Amz-Credential") {
		return claim{}, badQuery("Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.")
	}
	if !c.setCredential(q.Get("X-Amz-Credential")) {
		return claim{}, badQuery("Error parsing the X-Amz-Credential parameter; the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".")
	}
	return c, nil
}

// setCredential splits "key/date/region/service/aws4_request". An access key
// may itself hold slashes, so the parts are taken from the end.
func (c *claim) setCredential(s string) bool {
	for _, part := range []*string{&c.end, &c.service, &c.region, &c.date} {
		i := strings.LastIndexByte(s, '/')
		if i < 0 {
			return false
		}
		s, *part = s[:i], s[i+1:]
	}
	c.accessKey = s
	return s != ""
}

func (v *verifier) checkScope(c *claim, p protocol) *failure {
	switch {
	case c.end != scopeEnd:
		return badScope(p, c, "the credential scope must end in '"+scopeEnd+"'", "")
	case c.service != p.service():
		return badScope(p, c, "the service '"+c.service+"' is wrong; expecting '"+p.service()+"'", "")
	case c.region == "" || v.region != "" && c.region != v.region:
		return badScope(p, c, "the region '"+c.region+"' is wrong; expecting '"+v.region+"'", v.region)
	case len(c.date) != len("20060102") || !strings.HasPrefix(c.time, c.date):
		return badScope(p, c, "the date '"+c.date+"' in the credential scope does not match the day of '"+c.time+"'", "")
	}
	return nil
}

func (v *verifier) checkTime(c *claim, p protocol) *failure {
	signed, err := time.Parse(amzTime, c.time)
	if err != nil {
		if c.presigned {
			return badQuery("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"")
		}
		return noDate(p)
	}
	now := v.wall()
	if !c.presigned {
		if skew := now.Sub(signed); skew > maxSkew || skew < -maxSkew {
			return skewed(p, c.time, signed, now)
		}
		return nil
	}
	seconds, err := strconv.ParseInt(c.expires, 10, 64)
	switch {
	case err != nil:
		return badQuery("X-Amz-Expires should be a number")
	case seconds < 0:
		return badQuery("X-Amz-Expires must be non-negative")
	case seconds > int64(maxPresignLife/time.Second):
		return badQuery("X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less than 604800 seconds")
	case signed.Sub(now) > maxSkew:
		return &failure{status: 403, code: "AccessDenied", message: "Request is not valid yet", fields: []field{{"ServerTime", now.UTC().Format(time.RFC3339)}}}
	}
	end := signed.Add(time.Duration(seconds) * time.Second)
	if at := v.clock(); at.After(end) {
		return &failure{status: 403, code: "AccessDenied", message: "Request has expired", fields: []field{
			{"X-Amz-Expires", c.expires}, {"Expires", end.Format(time.RFC3339)}, {"ServerTime", at.UTC().Format(time.RFC3339)}}}
	}
	return nil
}

// signedNames returns the signed headers and refuses a request with headers
// that change its meaning but are not signed.
func (v *verifier) signedNames(c *claim, r *http.Request, p protocol) ([]signedName, *failure) {
	v.namesMu.RLock()
	names, ok := v.names[c.signedHeaders]
	v.namesMu.RUnlock()
	if !ok {
		names = splitNames(c.signedHeaders)
		v.namesMu.Lock()
		if len(v.names) >= maxHeaderSets {
			clear(v.names)
		}
		v.names[strings.Clone(c.signedHeaders)] = names
		v.namesMu.Unlock()
	}
	if !slices.ContainsFunc(names, func(n signedName) bool { return n.lower == "host" }) {
		return nil, unsignedHeader(p, "host")
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Amz-") && !slices.ContainsFunc(names, func(n signedName) bool { return n.canonical == name }) {
			return nil, unsignedHeader(p, strings.ToLower(name))
		}
	}
	return names, nil
}

func splitNames(signedHeaders string) []signedName {
	var names []signedName
	for name := range strings.SplitSeq(strings.Clone(signedHeaders), ";") {
		names = append(names, signedName{name, textproto.CanonicalMIMEHeaderKey(name)})
	}
	return names
}

// declaredPayload is the last line of the canonical request. Only S3 lets the
// client say what it is.
func declaredPayload(r *http.Request, body []byte, c *claim, p protocol) (string, *failure) {
	if p == awsJSON {
		return hexSHA256(body), nil
	}
	declared := r.Header.Get("X-Amz-Content-Sha256")
	switch {
	case declared != "":
		return declared, nil
	case !c.presigned:
		return "", &failure{status: 400, code: "InvalidRequest", message: "Missing required header for this request: x-amz-content-sha256"}
	}
	if strings.Contains(r.URL.RawQuery, "X-Amz-Content-Sha256=") {
		return r.URL.Query().Get("X-Amz-Content-Sha256"), nil
	}
	return unsignedPayload, nil
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 2048); return &b }}

// checkSignature recomputes the signature from the request as it arrived.
func checkSignature(r *http.Request, c *claim, p protocol, names []signedName, payload string, key *signingKey) *failure {
	pooled := buffers.Get().(*[]byte)
	defer buffers.Put(pooled)
	b := append((*pooled)[:0], r.Method...)
	b = append(b, '\n')
	b = appendCanonicalURI(b, r.URL, p)
	b = append(b, '\n')
	b, err := appendCanonicalQuery(b, r.URL.RawQuery, c.presigned)
	if err != nil {
		return mismatch(p, c, "", "")
	}
	b = append(b, '\n')
	b = appendCanonicalHeaders(b, r, names)
	b = append(b, '\n')
	b = append(b, c.signedHeaders...)
	b = append(b, '\n')
	b = append(b, payload...)
	request := len(b)
	digest := sha256.Sum256(b)
	b = append(b, algorithm+"\n"...)
	b = append(b, c.time...)
	b = append(b, '\n')
	b = append(b, c.scope()...)
	b = append(b, '\n')
	b = hex.AppendEncode(b, digest[:])
	*pooled = b
	if !key.signed(b[request:], c.signature) {
		return mismatch(p, c, string(b[:request]), string(b[request:]))
	}
	return nil
}

// checkPayload compares the body with what the signature says about it.
func checkPayload(body []byte, c *claim, p protocol, payload string, key *signingKey) *failure {
	if p == awsJSON {
		return nil // its hash was part of the signature
	}
	switch payload {
	case unsignedPayload, unsignedPayloadTrailer:
		return nil // the engine verifies the checksum of the trailer
	case signedChunks, signedChunksTrailer:
		return checkChunks(body, c, key, payload == signedChunksTrailer)
	}
	if strings.HasPrefix(payload, "STREAMING-") {
		return &failure{status: 501, code: "NotImplemented", message: "x-amz-content-sha256 " + payload + " is not supported"}
	}
	if len(payload) != sha256.Size*2 {
		return &failure{status: 400, code: "InvalidArgument", message: "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a valid sha256 value."}
	}
	if actual := hexSHA256(body); !strings.EqualFold(actual, payload) {
		return &failure{status: 400, code: "XAmzContentSHA256Mismatch", message: "The provided 'x-amz-content-sha256' header does not match what was computed.",
			fields: []field{{"ClientComputedContentSHA256", payload}, {"S3ComputedContentSHA256", actual}}}
	}
	return nil
}

func hexSHA256(b []byte) string {
	digest := sha256.Sum256(b)
	return hex.EncodeToString(digest[:])
}

// A signingKey signs for one access key, day, region and service. Its keyed
// hashes are kept: setting one up costs as much as the signature itself.
type signingKey struct{ macs sync.Pool }

func (v *verifier) signingKey(scope keyScope, secret string) *signingKey {
	v.keysMu.RLock()
	key, ok := v.keys[scope]
	v.keysMu.RUnlock()
	if ok {
		return key
	}
	raw := []byte("AWS4" + secret)
	for _, part := range []string{scope.date, scope.region, scope.service, scopeEnd} {
		mac := hmac.New(sha256.New, raw)
		mac.Write([]byte(part))
		raw = mac.Sum(nil)
	}
	key = &signingKey{}
	key.macs.New = func() any { return hmac.New(sha256.New, raw) }
	v.keysMu.Lock()
	defer v.keysMu.Unlock()
	if len(v.keys) >= maxSigningKeys {
		clear(v.keys)
	}
	// The parts point into the request's headers, which must not be kept.
	v.keys[keyScope{strings.Clone(scope.accessKey), strings.Clone(scope.date), strings.Clone(scope.region), strings.Clone(scope.service)}] = key
	return key
}

// signed reports whether signature, in hex, is the key's signature of text.
func (k *signingKey) signed(text []byte, signature string) bool {
	var hexed [sha256.Size * 2]byte
	return subtle.ConstantTimeCompare(k.sign(hexed[:0], text), []byte(signature)) == 1
}

// sign appends the key's signature of text in hex.
func (k *signingKey) sign(b, text []byte) []byte {
	mac := k.macs.Get().(hash.Hash)
	defer k.macs.Put(mac)
	mac.Reset()
	mac.Write(text)
	var sum [sha256.Size]byte
	return hex.AppendEncode(b, mac.Sum(sum[:0]))
}
