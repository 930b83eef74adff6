package fakeaws_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"drawbridge/localstack/fakeaws"
)

// FuzzHTTP sends requests to the whole surface, signed (which reaches the
// engines) and as they are (which stays in the signature check). Any answer
// will do that is complete: no panic, no 500, an error in the protocol's form.
func FuzzHTTP(f *testing.F) {
	dynamo := func(op, body string) {
		f.Add(true, "POST", "/", "X-Amz-Target: DynamoDB_20120810."+op+"\r\nContent-Type: application/x-amz-json-1.0", []byte(body))
	}
	const key = `{"pk":{"S":"a"},"sk":{"S":"b"}}`
	dynamo("ListTables", `{}`)
	dynamo("DescribeTable", `{"TableName":"table"}`)
	dynamo("CreateTable", `{"TableName":"new","BillingMode":"PAY_PER_REQUEST","AttributeDefinitions":[{"AttributeName":"p","AttributeType":"N"}],"KeySchema":[{"AttributeName":"p","KeyType":"HASH"}]}`)
	dynamo("DeleteTable", `{"TableName":"new"}`)
	dynamo("UpdateTimeToLive", `{"TableName":"table","TimeToLiveSpecification":{"AttributeName":"e","Enabled":true}}`)
	dynamo("PutItem", `{"TableName":"table","Item":{"pk":{"S":"a"},"sk":{"S":"b"},"n":{"N":"1e3"},"b":{"B":"AAE="},"l":{"L":[{"NULL":true},{"BOOL":false}]},"m":{"M":{"x":{"SS":["a"]}}}},"ConditionExpression":"attribute_not_exists(pk) OR #n < :v","ExpressionAttributeNames":{"#n":"n"},"ExpressionAttributeValues":{":v":{"N":"5"}},"ReturnValues":"ALL_OLD"}`)
	dynamo("GetItem", `{"TableName":"table","Key":`+key+`,"ConsistentRead":true,"ProjectionExpression":"m.x, l[0]"}`)
	dynamo("UpdateItem", `{"TableName":"table","Key":`+key+`,"UpdateExpression":"SET n = if_not_exists(n, :z) + :o, l = list_append(l, :l) REMOVE m.x ADD c :o","ExpressionAttributeValues":{":z":{"N":"0"},":o":{"N":"1"},":l":{"L":[]}},"ReturnConsumedCapacity":"INDEXES"}`)
	dynamo("DeleteItem", `{"TableName":"table","Key":`+key+`,"ConditionExpression":"size(b) BETWEEN :a AND :b","ExpressionAttributeValues":{":a":{"N":"1"},":b":{"N":"9"}}}`)
	dynamo("Query", `{"TableName":"table","IndexName":"index","KeyConditionExpression":"gpk = :g AND begins_with(gsk, :s)","FilterExpression":"contains(t, :s)","ExpressionAttributeValues":{":g":{"S":"g"},":s":{"S":"s"}},"Limit":3,"ScanIndexForward":false}`)
	dynamo("Scan", `{"TableName":"table","Segment":0,"TotalSegments":2,"Select":"COUNT"}`)
	dynamo("BatchGetItem", `{"RequestItems":{"table":{"Keys":[`+key+`]}}}`)
	dynamo("BatchWriteItem", `{"RequestItems":{"table":[{"DeleteRequest":{"Key":`+key+`}}]}}`)
	dynamo("TransactWriteItems", `{"ClientRequestToken":"t","TransactItems":[{"ConditionCheck":{"TableName":"table","Key":`+key+`,"ConditionExpression":"attribute_exists(pk)"}}]}`)
	dynamo("TransactGetItems", `{"TransactItems":[{"Get":{"TableName":"table","Key":`+key+`}}]}`)
	dynamo("Nothing", `{`)

	object := func(method, target, header, body string) { f.Add(true, method, target, header, []byte(body)) }
	object("GET", "/", "", "")
	object("PUT", "/other-bucket", "", "")
	object("HEAD", "/bucket", "", "")
	object("PUT", "/bucket?versioning", "", `<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>`)
	object("GET", "/bucket?list-type=2&prefix=a%2F&delimiter=%2F&max-keys=2&start-after=a", "", "")
	object("GET", "/bucket?versions&key-marker=a", "", "")
	object("PUT", "/bucket/a", "Content-Md5: AAAA", "text")
	object("PUT", "/bucket/b", "Content-Type: text/plain", "text")
	object("PUT", "/bucket/a/b%20c", "If-None-Match: *\r\nX-Amz-Meta-Id: 1\r\nX-Amz-Checksum-Crc32: O4unxw==", "text")
	object("PUT", "/bucket/a", "X-Amz-Copy-Source: /bucket/b\r\nX-Amz-Copy-Source-If-None-Match: \"e\"\r\nX-Amz-Metadata-Directive: REPLACE", "")
	object("PUT", "/bucket/chunked", "Content-Encoding: aws-chunked\r\nX-Amz-Decoded-Content-Length: 5\r\nX-Amz-Trailer: x-amz-checksum-crc32", "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n")
	object("GET", "/bucket/a", "Range: bytes=1-2\r\nIf-None-Match: \"x\"", "")
	object("HEAD", "/bucket/a?partNumber=1", "X-Amz-Checksum-Mode: ENABLED", "")
	object("DELETE", "/bucket/a?versionId=null", "If-Match: *", "")
	object("POST", "/bucket?delete", "", `<Delete><Quiet>true</Quiet><Object><Key>a</Key></Object></Delete>`)
	object("POST", "/bucket/big?uploads", "X-Amz-Checksum-Algorithm: CRC32C", "")
	object("PUT", "/bucket/big?partNumber=1&uploadId=x", "", "part")
	object("POST", "/bucket/big?uploadId=x", "", `<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>"e"</ETag></Part></CompleteMultipartUpload>`)
	object("DELETE", "/bucket/big?uploadId=x", "", "")
	object("GET", "/bucket?acl", "", "")

	// Keys with characters that XML 1.0 cannot hold, in answers that name the key.
	object("0", "/bucket/a%00b", "", "")
	object("GET", "/bucket/a%1Bb", "", "")
	object("GET", "/bucket/a%EF%BF%BEb", "", "")
	object("PUT", "/bucket/%EF%BF%BF", "If-Match: *", "")
	object("GET", "/bucket/%FF%C0%80?acl", "", "")

	f.Add(false, "GET", "/bucket/a?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=test%2F20200101%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20200101T000000Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=00", "", []byte(nil))
	f.Add(false, "PUT", "/bucket/a", "Authorization: AWS4-HMAC-SHA256 Credential=test/20200101/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature=00\r\nX-Amz-Date: 20200101T000000Z\r\nX-Amz-Content-Sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD", []byte("0;chunk-signature=00\r\n\r\n"))
	f.Add(false, "POST", "/", "X-Amz-Target: DynamoDB_20120810.PutItem\r\nAuthorization: AWS4-HMAC-SHA256 Credential=test//, SignedHeaders=, Signature=", []byte(`{}`))

	var server *fakeaws.Server
	served := 0
	f.Fuzz(func(t *testing.T, signed bool, method, target, header string, body []byte) {
		r := wireRequest(method, target, header, body)
		if r == nil {
			return
		}
		if signed && !sign(r, body) {
			return
		}
		if served%1000 == 0 { // what the requests leave behind must not add up
			server = openFuzzed(t)
		}
		served++
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		checkAnswer(t, r, w)
	})
}

// openFuzzed opens a server in memory with a table and a bucket. It outlives
// the test that opens it.
func openFuzzed(t *testing.T) *fakeaws.Server {
	t.Helper()
	server, err := fakeaws.Open(fakeaws.Options{AccessKey: "test", SecretKey: "testtest"})
	if err != nil {
		t.Fatal(err)
	}
	tables, store := clients(server.Config())
	setUp(t, tables, store)
	return server
}

// wireRequest parses a request as a server does, or returns nil where net/http
// would answer itself.
func wireRequest(method, target, header string, body []byte) *http.Request {
	text := method + " " + target + " HTTP/1.1\r\nHost: 127.0.0.1:4566\r\n"
	if header != "" {
		text += header + "\r\n"
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text + "\r\n")))
	if err != nil {
		return nil
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return r
}

func sign(r *http.Request, body []byte) bool {
	service, payload := "s3", "UNSIGNED-PAYLOAD"
	if r.Header.Get("X-Amz-Target") != "" {
		service = "dynamodb"
		digest := sha256.Sum256(body)
		payload = hex.EncodeToString(digest[:])
	} else if r.Header.Get("Content-Encoding") == "aws-chunked" {
		payload = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	}
	r.Header.Set("X-Amz-Content-Sha256", payload)
	uri, query := r.URL.RawPath, r.URL.RawQuery
	err := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = service == "s3" }).
		SignHTTP(context.Background(), aws.Credentials{AccessKeyID: "test", SecretAccessKey: "testtest"}, r, payload, service, "us-east-1", time.Now())
	r.URL.RawPath, r.URL.RawQuery = uri, query // the signer rewrites what it signs
	return err == nil
}

var unholdable = regexp.MustCompile(`&#x(?:[0-9a-f]{1,2}|fff[ef]);`)

func checkAnswer(t *testing.T, r *http.Request, w *httptest.ResponseRecorder) {
	t.Helper()
	if w.Code < 200 || w.Code >= 500 && w.Code != http.StatusNotImplemented {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	h := w.Result().Header
	if h.Get("X-Amzn-Requestid")+h.Get("X-Amz-Request-Id") == "" {
		t.Errorf("status %d without a request id", w.Code)
	}
	if w.Code < 400 || r.Method == http.MethodHead {
		return
	}
	var code string
	if h.Get("X-Amzn-Requestid") != "" {
		var document struct {
			Type string `json:"__type"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil {
			t.Fatalf("status %d: %v in %q", w.Code, err, w.Body)
		}
		code = document.Type
	} else {
		var document struct{ Code string }
		// A reference to a character that XML 1.0 cannot hold is S3's own way.
		if err := xml.Unmarshal(unholdable.ReplaceAll(w.Body.Bytes(), nil), &document); err != nil {
			t.Fatalf("status %d: %v in %q", w.Code, err, w.Body)
		}
		code = document.Code
	}
	if code == "" {
		t.Errorf("status %d without a code: %s", w.Code, w.Body)
	}
}
