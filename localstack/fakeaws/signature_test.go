package fakeaws

import (
	"bytes"
	"context"
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go/encoding/httpbinding"

	"drawbridge/localstack/fakeaws/engine"
)

// echo is an engine that answers every request with its body.
type echo struct{ served []engine.Call }

func (e *echo) Describe(r *http.Request, _ []byte) engine.Call {
	return engine.Call{Service: protocolOf(r).service(), Op: r.Method, Resource: r.URL.Path}
}

func (e *echo) Serve(r *http.Request, body []byte) engine.Response {
	e.served = append(e.served, e.Describe(r, body))
	return engine.Response{Status: 200, Body: body}
}

func shell(o Options) (*Server, *echo) {
	o.AccessKey, o.SecretKey = "test", "testtest"
	if o.Clock == nil {
		o.Clock = time.Now
	}
	e := &echo{}
	return newServer(o, e, e), e
}

var (
	good  = aws.Credentials{AccessKeyID: "test", SecretAccessKey: "testtest"}
	wrong = aws.Credentials{AccessKeyID: "test", SecretAccessKey: "nope"}
	other = aws.Credentials{AccessKeyID: "AKIAOTHER", SecretAccessKey: "testtest"}
)

// signing says how a test request is signed.
type signing struct {
	method, target string // "PUT", "/bucket/key?x=y"
	body           string
	credentials    aws.Credentials
	service        string
	region         string
	at             time.Time
	payload        string // empty: the body's hash
	header         http.Header
}

func (s signing) request(t testing.TB) *http.Request {
	t.Helper()
	r, err := http.NewRequest(s.method, "http://127.0.0.1:4566"+s.target, strings.NewReader(s.body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range s.header {
		r.Header[name] = values
	}
	if s.payload == "" {
		s.payload = hexSHA256([]byte(s.body))
	}
	if s.service == "s3" {
		r.Header.Set("X-Amz-Content-Sha256", s.payload)
	}
	r.ContentLength = -1 // else the signer signs it, and no tampering with the body would get past the header
	err = v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = s.service == "s3" }).
		SignHTTP(context.Background(), s.credentials, r, s.payload, s.service, s.region, s.at)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func s3Put() signing {
	return signing{method: "PUT", target: "/bucket/a/key%20with%2Bsigns?x=1&a=b%2Fc", body: "the body",
		credentials: good, service: "s3", region: "us-east-1", at: time.Now(),
		header: http.Header{"X-Amz-Meta-Note": {"  two   spaces "}, "Content-Type": {"text/plain"}}}
}

func dynamoPut() signing {
	return signing{method: "POST", target: "/", body: `{"TableName":"t"}`,
		credentials: good, service: "dynamodb", region: "us-east-1", at: time.Now(),
		header: http.Header{"X-Amz-Target": {"DynamoDB_20120810.PutItem"}, "Content-Type": {"application/x-amz-json-1.0"}}}
}

func body(r *http.Request, s string) {
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(s)), int64(len(s))
}

func TestSignatures(t *testing.T) {
	s3With := func(change func(*signing)) signing { s := s3Put(); change(&s); return s }
	dynamoWith := func(change func(*signing)) signing { s := dynamoPut(); change(&s); return s }
	for name, c := range map[string]struct {
		signing signing
		tamper  func(r *http.Request)
		region  string
		status  int
		code    string
	}{
		"S3, as signed":                   {signing: s3Put(), status: 200},
		"DynamoDB, as signed":             {signing: dynamoPut(), status: 200},
		"S3, right region":                {signing: s3Put(), region: "us-east-1", status: 200},
		"S3, signed 14 minutes ago":       {signing: s3With(func(s *signing) { s.at = s.at.Add(-14 * time.Minute) }), status: 200},
		"S3, unsigned payload":            {signing: s3With(func(s *signing) { s.payload = unsignedPayload }), status: 200},
		"S3, another body unsigned":       {signing: s3With(func(s *signing) { s.payload = unsignedPayload }), tamper: func(r *http.Request) { body(r, "x") }, status: 200},
		"S3, unsigned trailer":            {signing: s3With(func(s *signing) { s.payload = unsignedPayloadTrailer }), status: 200},
		"S3, key of dots and slashes":     {signing: s3With(func(s *signing) { s.target = "/bucket/a//../b/./c" }), status: 200},
		"S3, key of every sign":           {signing: s3With(func(s *signing) { s.target = "/bucket/" + httpbinding.EscapePath("é!'()*;:@&=+$,[] ~-_.%", true) }), status: 200},
		"S3, unencoded signs on the wire": {signing: s3With(func(s *signing) { s.target = "/bucket/a%2Bb" }), tamper: func(r *http.Request) { r.URL.RawPath = "/bucket/a+b" }, status: 200},
		"S3, reordered query":             {signing: s3Put(), tamper: func(r *http.Request) { r.URL.RawQuery = "a=b%2Fc&x=1" }, status: 200},
		"S3, unsigned ordinary header":    {signing: s3Put(), tamper: func(r *http.Request) { r.Header.Set("User-Agent", "x") }, status: 200},
		"S3, session token is signed":     {signing: s3With(func(s *signing) { s.credentials.SessionToken = "t" }), status: 200},

		"S3, an object of DynamoDB's type": {signing: s3With(func(s *signing) { s.header.Set("Content-Type", "application/x-amz-json-1.0") }), status: 200},

		"S3, wrong secret":           {signing: s3With(func(s *signing) { s.credentials = wrong }), status: 403, code: "SignatureDoesNotMatch"},
		"DynamoDB, wrong secret":     {signing: dynamoWith(func(s *signing) { s.credentials = wrong }), status: 400, code: "InvalidSignatureException"},
		"S3, unknown key":            {signing: s3With(func(s *signing) { s.credentials = other }), status: 403, code: "InvalidAccessKeyId"},
		"DynamoDB, unknown key":      {signing: dynamoWith(func(s *signing) { s.credentials = other }), status: 400, code: "UnrecognizedClientException"},
		"S3, no signature":           {signing: s3Put(), tamper: func(r *http.Request) { r.Header.Del("Authorization") }, status: 403, code: "AccessDenied"},
		"DynamoDB, no signature":     {signing: dynamoPut(), tamper: func(r *http.Request) { r.Header.Del("Authorization") }, status: 400, code: "MissingAuthenticationTokenException"},
		"S3, version 2":              {signing: s3Put(), tamper: func(r *http.Request) { r.Header.Set("Authorization", "AWS test:abc") }, status: 400, code: "InvalidRequest"},
		"DynamoDB, version 2":        {signing: dynamoPut(), tamper: func(r *http.Request) { r.Header.Set("Authorization", "AWS test:abc") }, status: 400, code: "IncompleteSignatureException"},
		"S3, no SignedHeaders":       {signing: s3Put(), tamper: editAuthorization("SignedHeaders=", "Signed="), status: 400, code: "AuthorizationHeaderMalformed"},
		"DynamoDB, no Signature":     {signing: dynamoPut(), tamper: editAuthorization("Signature=", "Sig="), status: 400, code: "IncompleteSignatureException"},
		"DynamoDB, short credential": {signing: dynamoPut(), tamper: editAuthorization("/aws4_request", ""), status: 400, code: "IncompleteSignatureException"},
		"S3, credential without slashes": {signing: s3Put(), tamper: func(r *http.Request) {
			r.Header.Set("Authorization", algorithm+" Credential=x, SignedHeaders=host, Signature=00")
		}, status: 400, code: "AuthorizationHeaderMalformed"},
		"S3, other signature":            {signing: s3Put(), tamper: editAuthorization("Signature=", "Signature=0"), status: 403, code: "SignatureDoesNotMatch"},
		"S3, tampered body":              {signing: s3Put(), tamper: func(r *http.Request) { body(r, "the b0dy") }, status: 400, code: "XAmzContentSHA256Mismatch"},
		"DynamoDB, tampered body":        {signing: dynamoPut(), tamper: func(r *http.Request) { body(r, `{"TableName":"u"}`) }, status: 400, code: "InvalidSignatureException"},
		"S3, tampered path":              {signing: s3Put(), tamper: func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/bucket/b", "" }, status: 403, code: "SignatureDoesNotMatch"},
		"S3, tampered query":             {signing: s3Put(), tamper: func(r *http.Request) { r.URL.RawQuery = "x=2&a=b%2Fc" }, status: 403, code: "SignatureDoesNotMatch"},
		"S3, added query":                {signing: s3Put(), tamper: func(r *http.Request) { r.URL.RawQuery += "&versionId=1" }, status: 403, code: "SignatureDoesNotMatch"},
		"S3, added signature":            {signing: s3Put(), tamper: func(r *http.Request) { r.URL.RawQuery += "&X-Amz-Signature=00" }, status: 403, code: "SignatureDoesNotMatch"},
		"S3, broken query":               {signing: s3Put(), tamper: func(r *http.Request) { r.URL.RawQuery = "x=%zz" }, status: 403, code: "SignatureDoesNotMatch"},
		"S3, tampered method":            {signing: s3Put(), tamper: func(r *http.Request) { r.Method = "DELETE" }, status: 403, code: "SignatureDoesNotMatch"},
		"S3, tampered host":              {signing: s3Put(), tamper: func(r *http.Request) { r.Host = "elsewhere" }, status: 403, code: "SignatureDoesNotMatch"},
		"S3, tampered header":            {signing: s3Put(), tamper: func(r *http.Request) { r.Header.Set("X-Amz-Meta-Note", "three") }, status: 403, code: "SignatureDoesNotMatch"},
		"S3, removed header":             {signing: s3Put(), tamper: func(r *http.Request) { r.Header.Del("X-Amz-Meta-Note") }, status: 403, code: "SignatureDoesNotMatch"},
		"S3, added unsigned header":      {signing: s3Put(), tamper: func(r *http.Request) { r.Header.Set("X-Amz-Copy-Source", "b/k") }, status: 403, code: "AccessDenied"},
		"DynamoDB, tampered target":      {signing: dynamoPut(), tamper: func(r *http.Request) { r.Header.Set("X-Amz-Target", "DynamoDB_20120810.DeleteItem") }, status: 400, code: "InvalidSignatureException"},
		"DynamoDB, unsigned target":      {signing: dynamoPut(), tamper: editAuthorization(";x-amz-target", ""), status: 400, code: "InvalidSignatureException"},
		"S3, host not signed":            {signing: s3Put(), tamper: editAuthorization(";host;", ";"), status: 403, code: "AccessDenied"},
		"S3, no payload hash":            {signing: s3Put(), tamper: func(r *http.Request) { r.Header.Del("X-Amz-Content-Sha256") }, status: 400, code: "InvalidRequest"},
		"S3, payload hash of no kind":    {signing: s3With(func(s *signing) { s.payload = "abc" }), status: 400, code: "InvalidArgument"},
		"S3, asymmetric chunks":          {signing: s3With(func(s *signing) { s.payload = "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD" }), status: 501, code: "NotImplemented"},
		"S3, old":                        {signing: s3With(func(s *signing) { s.at = s.at.Add(-16 * time.Minute) }), status: 403, code: "RequestTimeTooSkewed"},
		"S3, early":                      {signing: s3With(func(s *signing) { s.at = s.at.Add(16 * time.Minute) }), status: 403, code: "RequestTimeTooSkewed"},
		"DynamoDB, old":                  {signing: dynamoWith(func(s *signing) { s.at = s.at.Add(-16 * time.Minute) }), status: 400, code: "InvalidSignatureException"},
		"S3, date moved":                 {signing: s3Put(), tamper: func(r *http.Request) { r.Header.Set("X-Amz-Date", time.Now().Add(time.Second).UTC().Format(amzTime)) }, status: 403, code: "SignatureDoesNotMatch"},
		"S3, day unlike the scope's":     {signing: s3Put(), tamper: func(r *http.Request) { r.Header.Set("X-Amz-Date", "20200101T000000Z") }, status: 400, code: "AuthorizationHeaderMalformed"},
		"S3, scope of a month":           {signing: s3Put(), tamper: editAuthorization(time.Now().UTC().Format("/20060102/"), time.Now().UTC().Format("/200601/")), status: 400, code: "AuthorizationHeaderMalformed"},
		"S3, no date":                    {signing: s3Put(), tamper: func(r *http.Request) { r.Header.Del("X-Amz-Date") }, status: 403, code: "AccessDenied"},
		"DynamoDB, no date":              {signing: dynamoPut(), tamper: func(r *http.Request) { r.Header.Del("X-Amz-Date") }, status: 400, code: "IncompleteSignatureException"},
		"S3, signed for DynamoDB":        {signing: s3Put(), tamper: editAuthorization("/s3/", "/dynamodb/"), status: 400, code: "AuthorizationHeaderMalformed"},
		"DynamoDB, scope of another end": {signing: dynamoPut(), tamper: editAuthorization("aws4_request", "aws5_request"), status: 400, code: "InvalidSignatureException"},
		"DynamoDB, signed for S3":        {signing: dynamoWith(func(s *signing) { s.service = "s3" }), status: 400, code: "InvalidSignatureException"},
		"S3, other region":               {signing: s3Put(), region: "eu-west-1", status: 400, code: "AuthorizationHeaderMalformed"},
		"DynamoDB, other region":         {signing: dynamoPut(), region: "eu-west-1", status: 400, code: "InvalidSignatureException"},
		"S3, two signatures":             {signing: s3Put(), tamper: func(r *http.Request) { r.URL.RawQuery += "&X-Amz-Algorithm=" + algorithm }, status: 400, code: "InvalidArgument"},
	} {
		t.Run(name, func(t *testing.T) {
			s, e := shell(Options{Region: c.region})
			r := c.signing.request(t)
			if c.tamper != nil {
				c.tamper(r)
			}
			status, code, _ := roundTrip(t, s, r)
			if status != c.status || code != c.code {
				t.Errorf("in process: %d %q, want %d %q", status, code, c.status, c.code)
			}
			if served := len(e.served) > 0; served != (c.status == 200) {
				t.Errorf("the engine was asked: %v", served)
			}
		})
	}
}

func editAuthorization(was, is string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), was, is, 1))
	}
}

// roundTrip sends the request in process and reads the error code in the
// protocol's form.
func roundTrip(t *testing.T, s *Server, r *http.Request) (status int, code, text string) {
	t.Helper()
	resp, err := s.Transport().RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	return readAnswer(t, r, resp)
}

func readAnswer(t *testing.T, r *http.Request, resp *http.Response) (status int, code, text string) {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode < 300 {
		return resp.StatusCode, "", string(b)
	}
	if protocolOf(r) == awsJSON {
		_, code, _ = strings.Cut(string(b), "#")
		code, _, _ = strings.Cut(code, `"`)
		return resp.StatusCode, code, string(b)
	}
	var document struct {
		Code, RequestId, HostId string
	}
	if err := xml.Unmarshal(b, &document); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	if document.RequestId == "" || document.RequestId != resp.Header.Get("X-Amz-Request-Id") || document.HostId != resp.Header.Get("X-Amz-Id-2") {
		t.Errorf("the document says request %q of host %q, the header %v", document.RequestId, document.HostId, resp.Header)
	}
	return resp.StatusCode, document.Code, string(b)
}

func TestARegionMismatchNamesBothRegions(t *testing.T) {
	s, _ := shell(Options{Region: "eu-west-1"})
	for _, c := range []signing{s3Put(), dynamoPut()} {
		_, _, text := roundTrip(t, s, c.request(t))
		// XML writes the quotes as &#39;.
		if plain := strings.ReplaceAll(text, "&#39;", "'"); !strings.Contains(plain, "the region 'us-east-1' is wrong; expecting 'eu-west-1'") {
			t.Errorf("%s: %s", c.service, text)
		}
	}
}

func presign(t *testing.T, method, query string, at time.Time) *http.Request {
	t.Helper()
	r, err := http.NewRequest(method, "http://127.0.0.1:4566/bucket/key?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	u, header, err := signer.PresignHTTP(context.Background(), good, r, unsignedPayload, "s3", "us-east-1", at)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := http.NewRequest(method, u, nil)
	if err != nil {
		t.Fatal(err)
	}
	header.Del("Host")
	signed.Header = header
	return signed
}

func TestPresignedURLs(t *testing.T) {
	now := time.Now()
	setQuery := func(name, value string) func(*http.Request) {
		return func(r *http.Request) {
			q := r.URL.Query()
			q.Set(name, value)
			r.URL.RawQuery = q.Encode()
		}
	}
	for name, c := range map[string]struct {
		query  string
		at     time.Time
		clock  time.Time // zero: now
		tamper func(r *http.Request)
		status int
		code   string
	}{
		"fresh":                  {query: "X-Amz-Expires=60", at: now, status: 200},
		"signed long ago, valid": {query: "X-Amz-Expires=604800", at: now.Add(-6 * 24 * time.Hour), status: 200},
		"with a parameter":       {query: "X-Amz-Expires=60&versionId=a%2Bb", at: now, status: 200},
		"just valid":             {query: "X-Amz-Expires=60", at: now, clock: now.Add(59 * time.Second), status: 200},
		"expired by the clock":   {query: "X-Amz-Expires=60", at: now, clock: now.Add(62 * time.Second), status: 403, code: "AccessDenied"},
		"expired":                {query: "X-Amz-Expires=1", at: now.Add(-5 * time.Second), status: 403, code: "AccessDenied"},
		"not valid yet":          {query: "X-Amz-Expires=60", at: now.Add(20 * time.Minute), status: 403, code: "AccessDenied"},
		"longer than a week":     {query: "X-Amz-Expires=604801", at: now, status: 400, code: "AuthorizationQueryParametersError"},
		"negative expiry":        {query: "X-Amz-Expires=-1", at: now, status: 400, code: "AuthorizationQueryParametersError"},
		"no number":              {query: "X-Amz-Expires=soon", at: now, status: 400, code: "AuthorizationQueryParametersError"},
		"no expiry":              {query: "x=y", at: now, status: 400, code: "AuthorizationQueryParametersError"},
		"longer than signed":     {query: "X-Amz-Expires=60", at: now, tamper: setQuery("X-Amz-Expires", "6000"), status: 403, code: "SignatureDoesNotMatch"},
		"other version":          {query: "X-Amz-Expires=60&versionId=1", at: now, tamper: setQuery("versionId", "2"), status: 403, code: "SignatureDoesNotMatch"},
		"other key":              {query: "X-Amz-Expires=60", at: now, tamper: func(r *http.Request) { r.URL.Path = "/bucket/other" }, status: 403, code: "SignatureDoesNotMatch"},
		"other method":           {query: "X-Amz-Expires=60", at: now, tamper: func(r *http.Request) { r.Method = "DELETE" }, status: 403, code: "SignatureDoesNotMatch"},
		"other signature":        {query: "X-Amz-Expires=60", at: now, tamper: setQuery("X-Amz-Signature", "00"), status: 403, code: "SignatureDoesNotMatch"},
		"no signature":           {query: "X-Amz-Expires=60", at: now, tamper: setQuery("X-Amz-Signature", ""), status: 400, code: "AuthorizationQueryParametersError"},
		"other algorithm":        {query: "X-Amz-Expires=60", at: now, tamper: setQuery("X-Amz-Algorithm", "AWS4-ECDSA-P256-SHA256"), status: 400, code: "AuthorizationQueryParametersError"},
		"malformed credential":   {query: "X-Amz-Expires=60", at: now, tamper: setQuery("X-Amz-Credential", "test"), status: 400, code: "AuthorizationQueryParametersError"},
		"unknown key":            {query: "X-Amz-Expires=60", at: now, tamper: setQuery("X-Amz-Credential", "AKIA/"+now.UTC().Format("20060102")+"/us-east-1/s3/aws4_request"), status: 403, code: "InvalidAccessKeyId"},
		"malformed date":         {query: "X-Amz-Expires=60", at: now, tamper: setQuery("X-Amz-Date", now.UTC().Format("20060102")), status: 400, code: "AuthorizationQueryParametersError"},
		"added header":           {query: "X-Amz-Expires=60", at: now, tamper: func(r *http.Request) { r.Header.Set("X-Amz-Acl", "public-read") }, status: 403, code: "AccessDenied"},
	} {
		t.Run(name, func(t *testing.T) {
			clock := time.Now
			if !c.clock.IsZero() {
				clock = func() time.Time { return c.clock }
			}
			s, _ := shell(Options{Clock: clock})
			r := presign(t, "GET", c.query, c.at)
			if c.tamper != nil {
				c.tamper(r)
			}
			if status, code, text := roundTrip(t, s, r); status != c.status || code != c.code {
				t.Errorf("%d %q, want %d %q: %s", status, code, c.status, c.code, text)
			}
		})
	}
}

// chunked signs body as an aws-chunked stream of chunks of 8 bytes.
func chunked(t *testing.T, s *Server, text string, trailer bool) *http.Request {
	t.Helper()
	put := s3Put()
	put.payload = signedChunks
	if trailer {
		put.payload = signedChunksTrailer
	}
	r := put.request(t)
	c, f := headerClaim(r, r.Header.Get("Authorization"), restXML)
	if f != nil {
		t.Fatal(f.message)
	}
	key := s.verifier.signingKey(c.keyScope, good.SecretAccessKey)
	var b bytes.Buffer
	previous := c.signature
	for rest := []byte(text); ; {
		chunk := rest[:min(8, len(rest))]
		rest = rest[len(chunk):]
		previous = sign(key, chunkText(&c, "AWS4-HMAC-SHA256-PAYLOAD", previous, emptySHA256, chunk))
		b.WriteString(strconv.FormatInt(int64(len(chunk)), 16) + ";chunk-signature=" + previous + "\r\n")
		b.Write(chunk)
		if len(chunk) == 0 {
			break
		}
		b.WriteString("\r\n")
	}
	if trailer {
		b.WriteString("x-amz-checksum-crc32:AAAAAA==\r\nx-amz-trailer-signature:" +
			sign(key, chunkText(&c, "AWS4-HMAC-SHA256-TRAILER", previous, "", []byte("x-amz-checksum-crc32:AAAAAA==\n"))) + "\r\n")
	}
	b.WriteString("\r\n")
	body(r, b.String())
	return r
}

func sign(key *signingKey, text []byte) string { return string(key.sign(nil, text)) }

func TestSignedChunkStreams(t *testing.T) {
	edit := func(was, is string) func(string) string {
		return func(b string) string { return strings.Replace(b, was, is, 1) }
	}
	for name, c := range map[string]struct {
		trailer bool
		tamper  func(string) string
		status  int
		code    string
	}{
		"as signed":              {status: 200},
		"as signed, trailer":     {trailer: true, status: 200},
		"tampered first chunk":   {tamper: edit("the body", "the b0dy"), status: 403, code: "SignatureDoesNotMatch"},
		"tampered last chunk":    {tamper: edit("ks!", "ks?"), status: 403, code: "SignatureDoesNotMatch"},
		"tampered trailer":       {trailer: true, tamper: edit("crc32:AAAAAA", "crc32:BBBBBB"), status: 403, code: "SignatureDoesNotMatch"},
		"unsigned trailer":       {trailer: true, tamper: edit("x-amz-trailer-signature:", "x-other:"), status: 400, code: "InvalidRequest"},
		"unsigned chunk":         {tamper: edit(";chunk-signature=", ";x="), status: 400, code: "InvalidRequest"},
		"size of no number":      {tamper: edit("8;", "y;"), status: 400, code: "InvalidRequest"},
		"negative size":          {tamper: edit("8;", "-8;"), status: 400, code: "InvalidRequest"},
		"size beyond the body":   {tamper: edit("8;", "FFFFFF;"), status: 400, code: "IncompleteBody"},
		"missing line end":       {tamper: edit("the body\r\n", "the body"), status: 400, code: "InvalidRequest"},
		"cut off after a chunk":  {tamper: func(b string) string { return b[:strings.Index(b, "the body\r\n")+10] }, status: 400, code: "IncompleteBody"},
		"cut off inside a chunk": {tamper: func(b string) string { return b[:strings.Index(b, "the body")+3] }, status: 400, code: "IncompleteBody"},
		"empty":                  {tamper: func(string) string { return "" }, status: 400, code: "IncompleteBody"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := shell(Options{})
			r := chunked(t, s, "the body in chunks!", c.trailer)
			if c.tamper != nil {
				b, err := io.ReadAll(r.Body)
				if err != nil {
					t.Fatal(err)
				}
				body(r, c.tamper(string(b)))
			}
			if status, code, text := roundTrip(t, s, r); status != c.status || code != c.code {
				t.Errorf("%d %q, want %d %q: %s", status, code, c.status, c.code, text)
			}
		})
	}
}

// The example of AWS's documentation pins the canonical form and the chunk
// signatures to something that this package did not compute itself.
// https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html
func TestTheDocumentedChunkUploadVerifies(t *testing.T) {
	const secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
	e := &echo{}
	s := newServer(Options{AccessKey: "AKIAIOSFODNN7EXAMPLE", SecretKey: secret, Clock: time.Now}, e, e)
	s.verifier.wall = func() time.Time { return time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC) }
	chunk := func(n int, signature string) string {
		return strconv.FormatInt(int64(n), 16) + ";chunk-signature=" + signature + "\r\n" + strings.Repeat("a", n) + "\r\n"
	}
	text := chunk(65536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648") +
		chunk(1024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497") +
		"0;chunk-signature=b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9\r\n\r\n"
	r := httptest.NewRequest("PUT", "/examplebucket/chunkObject.txt", strings.NewReader(text))
	r.Host = "s3.amazonaws.com"
	for name, value := range map[string]string{
		"X-Amz-Date":                   "20130524T000000Z",
		"X-Amz-Storage-Class":          "REDUCED_REDUNDANCY",
		"X-Amz-Content-Sha256":         signedChunks,
		"Content-Encoding":             "aws-chunked",
		"X-Amz-Decoded-Content-Length": "66560",
		"Content-Length":               "66824",
		"Authorization":                "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class,Signature=4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
	} {
		r.Header.Set(name, value)
	}
	if status, code, text := roundTrip(t, s, r); status != 200 {
		t.Errorf("%d %s %.600s", status, code, text)
	}
}

func TestCachesOfTheVerifierAreBounded(t *testing.T) {
	s, _ := shell(Options{})
	for i := range maxSigningKeys + 10 {
		put := s3Put()
		put.region = "r" + itoa(int64(i))
		put.header = http.Header{"X-Amz-Meta-" + itoa(int64(i)): {"v"}}
		if status, code, text := roundTrip(t, s, put.request(t)); status != 200 {
			t.Fatalf("%d %s %s", status, code, text)
		}
	}
	if n := len(s.verifier.keys); n > maxSigningKeys {
		t.Errorf("%d signing keys are kept", n)
	}
	if n := len(s.verifier.names); n > maxHeaderSets {
		t.Errorf("%d header sets are kept", n)
	}
}

// BenchmarkShell measures what the shell adds to an engine that does nothing:
// the transport with a signed request of 1 KB, and of that the verification.
func BenchmarkShell(b *testing.B) {
	for _, c := range []signing{s3Put(), dynamoPut()} {
		c.body = strings.Repeat("x", 1024)
		s, e := shell(Options{})
		r := c.request(b)
		p := protocolOf(r)
		in, text := arriving(r, len(c.body)), []byte(c.body)
		b.Run(c.service+"/verify", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, f := s.verifier.verify(in, text, p); f != nil {
					b.Fatal(f.message)
				}
			}
		})
		transport := s.Transport()
		b.Run(c.service+"/transport", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				e.served = e.served[:0]
				r.Body = io.NopCloser(bytes.NewReader(text))
				resp, err := transport.RoundTrip(r)
				if err != nil || resp.StatusCode != 200 {
					b.Fatal(resp, err)
				}
			}
		})
	}
}
