package objects

import (
	"fmt"
	"strings"
	"testing"
)

func TestBucketsAreCreatedListedAndDeleted(t *testing.T) {
	b := newBench(t)
	b.want(b.do("HEAD", "/bkt", nil, ""), 200, "")
	b.want(b.do("PUT", "/bkt", nil, ""), 200, "") // us-east-1 answers the owner 200
	eu := "<CreateBucketConfiguration><LocationConstraint>eu-central-1</LocationConstraint></CreateBucketConfiguration>"
	b.want(b.do("PUT", "/bkt-eu", nil, eu), 200, "")
	b.want(b.do("PUT", "/bkt-eu", nil, eu), 409, "BucketAlreadyOwnedByYou")
	b.want(b.do("PUT", "/bkt-x", nil, "<CreateBucketConfiguration><Location/></CreateBucketConfiguration>"), 501, "NotImplemented")
	b.want(b.do("PUT", "/bkt-x", nil, strings.Replace(eu, "eu-central-1", "us-east-1", 1)), 400, "InvalidLocationConstraint")
	for bucket, want := range map[string]string{"bkt": "", "bkt-eu": "eu-central-1"} {
		resp := b.do("GET", "/"+bucket+"?location", nil, "")
		b.want(resp, 200, "")
		if !strings.Contains(string(resp.Body), ">"+want+"</LocationConstraint>") {
			t.Errorf("location of %s: %s", bucket, resp.Body)
		}
	}
	if region := b.do("HEAD", "/bkt-eu", nil, "").Header.Get("X-Amz-Bucket-Region"); region != "eu-central-1" {
		t.Errorf("region %q", region)
	}
	type list struct {
		Buckets           struct{ Bucket []struct{ Name string } }
		ContinuationToken string
	}
	first := document[list](b, b.do("GET", "/?max-buckets=1", nil, ""))
	second := document[list](b, b.do("GET", "/?continuation-token="+first.ContinuationToken, nil, ""))
	if fmt.Sprint(first.Buckets, second.Buckets) != "{[{bkt}]} {[{bkt-eu}]}" || second.ContinuationToken != "" {
		t.Errorf("pages %+v %+v", first, second)
	}
	b.want(b.put("k", "", nil), 200, "")
	b.want(b.do("DELETE", "/bkt", nil, ""), 409, "BucketNotEmpty")
	b.want(b.do("DELETE", "/bkt/k", nil, ""), 204, "")
	b.upload("unfinished", nil)
	b.want(b.do("DELETE", "/bkt", nil, ""), 204, "")
	b.want(b.do("DELETE", "/bkt", nil, ""), 404, "NoSuchBucket")
	b.want(b.get("k", nil), 404, "NoSuchBucket")
}

func TestBucketNamesFollowS3sRules(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"ab", strings.Repeat("a", 64), "Upper", "under_score", "-a-b", "a-b-", "a..b", "127.0.0.1", "xn--abc", "abc--x-s3", "a b"} {
		b.want(b.do("PUT", "/"+strings.ReplaceAll(name, " ", "%20"), nil, ""), 400, "InvalidBucketName")
	}
	for _, name := range []string{"abc", strings.Repeat("a", 63), "a.b-c", "1abc9"} {
		b.want(b.do("PUT", "/"+name, nil, ""), 200, "")
	}
}

func TestEncryptionIsToldAsOnAWS(t *testing.T) {
	b := newBench(t)
	resp := b.do("GET", "/bkt?encryption", nil, "")
	if element(resp, "SSEAlgorithm") != "AES256" || element(resp, "BucketKeyEnabled") != "false" {
		t.Errorf("default %s", resp.Body)
	}
	if got := b.put("plain", "v", nil).Header; got.Get("X-Amz-Server-Side-Encryption") != "AES256" {
		t.Errorf("headers %v", got)
	}
	kms := headers{"X-Amz-Server-Side-Encryption": "aws:kms", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": "key-1"}
	first, second := b.put("kms", "v", kms), b.put("kms", "v", kms)
	if tag := first.Header.Get("Etag"); tag == etagOf("v") || tag == second.Header.Get("Etag") {
		t.Errorf("with aws:kms the ETag is no MD5 and differs from write to write: %s", tag)
	}
	if got := b.get("kms", nil).Header; got.Get("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id") != "key-1" || got.Get("Etag") != second.Header.Get("Etag") {
		t.Errorf("headers %v", got)
	}
	b.want(b.put("k", "v", headers{"X-Amz-Server-Side-Encryption": "rot13"}), 400, "InvalidArgument")
	b.want(b.put("k", "v", headers{"X-Amz-Server-Side-Encryption": "aws:kms:dsse"}), 501, "NotImplemented")
	b.want(b.put("k", "v", headers{"X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": "key-1"}), 400, "InvalidArgument")

	rule := func(inner string) string {
		return "<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault>" + inner +
			"</ApplyServerSideEncryptionByDefault><BucketKeyEnabled>true</BucketKeyEnabled></Rule></ServerSideEncryptionConfiguration>"
	}
	b.want(b.do("PUT", "/bkt?encryption", nil, rule("<SSEAlgorithm>aws:kms</SSEAlgorithm><KMSMasterKeyID>key-2</KMSMasterKeyID>")), 200, "")
	put := b.put("by-default", "v", nil)
	if put.Header.Get("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id") != "key-2" || put.Header.Get("X-Amz-Server-Side-Encryption-Bucket-Key-Enabled") != "true" || put.Header.Get("Etag") == etagOf("v") {
		t.Errorf("the bucket's default is not applied: %v", put.Header)
	}
	b.want(b.do("PUT", "/bkt?encryption", nil, rule("<SSEAlgorithm>AES256</SSEAlgorithm><KMSMasterKeyID>k</KMSMasterKeyID>")), 400, "InvalidArgument")
	b.want(b.do("PUT", "/bkt?encryption", nil, rule("<SSEAlgorithm>x</SSEAlgorithm>")), 400, "MalformedXML")
	b.want(b.do("PUT", "/bkt?encryption", nil, rule("<SSEAlgorithm>AES256</SSEAlgorithm><New/>")), 501, "NotImplemented")
	b.want(b.do("PUT", "/bkt?encryption", nil, "<ServerSideEncryptionConfiguration/>"), 400, "MalformedXML")
	b.want(b.do("DELETE", "/bkt?encryption", nil, ""), 204, "")
	if got := element(b.do("GET", "/bkt?encryption", nil, ""), "SSEAlgorithm"); got != "AES256" {
		t.Errorf("after the delete: %q", got)
	}
}

func TestPublicAccessBlockAndOwnership(t *testing.T) {
	b := newBench(t)
	if resp := b.do("GET", "/bkt?publicAccessBlock", nil, ""); strings.Count(string(resp.Body), ">true<") != 4 {
		t.Errorf("default %s", resp.Body)
	}
	b.want(b.do("PUT", "/bkt?publicAccessBlock", nil, "<PublicAccessBlockConfiguration><BlockPublicAcls>true</BlockPublicAcls></PublicAccessBlockConfiguration>"), 200, "")
	if resp := b.do("GET", "/bkt?publicAccessBlock", nil, ""); element(resp, "BlockPublicAcls") != "true" || element(resp, "RestrictPublicBuckets") != "false" {
		t.Errorf("stored %s", resp.Body)
	}
	b.want(b.do("PUT", "/bkt?publicAccessBlock", nil, "<PublicAccessBlockConfiguration><BlockPublicAcls>si</BlockPublicAcls></PublicAccessBlockConfiguration>"), 400, "MalformedXML")
	b.want(b.do("DELETE", "/bkt?publicAccessBlock", nil, ""), 204, "")
	b.want(b.do("GET", "/bkt?publicAccessBlock", nil, ""), 404, "NoSuchPublicAccessBlockConfiguration")

	own := func(o string) string {
		return "<OwnershipControls><Rule><ObjectOwnership>" + o + "</ObjectOwnership></Rule></OwnershipControls>"
	}
	b.want(b.do("PUT", "/bkt?ownershipControls", nil, own(ownerEnforced)), 200, "")
	b.want(b.do("PUT", "/bkt?ownershipControls", nil, own("ObjectWriter")), 501, "NotImplemented")
	if got := element(b.do("GET", "/bkt?ownershipControls", nil, ""), "ObjectOwnership"); got != ownerEnforced {
		t.Errorf("ownership %q", got)
	}
	b.want(b.do("GET", "/bkt?lifecycle", nil, ""), 404, "NoSuchLifecycleConfiguration")
}
