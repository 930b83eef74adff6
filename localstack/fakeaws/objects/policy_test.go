package objects

import (
	"strings"
	"testing"
)

// statementOf wraps one statement into a policy.
func statementOf(statement string) string {
	return `{"Version":"2012-10-17","Statement":[` + statement + `]}`
}

// TestPolicyEnforcesConditionalWrites uses the policy of the S3 user guide,
// "Enforce conditional writes": a write below jobs/ without a condition is denied.
func TestPolicyEnforcesConditionalWrites(t *testing.T) {
	b := newBench(t)
	b.want(b.put("jobs/old", "old", nil), 200, "")
	b.want(b.do("PUT", "/bkt?policy", nil, statementOf(`
		{"Sid":"CAS","Effect":"Deny","Principal":"*","Action":"s3:PutObject","Resource":"arn:aws:s3:::bkt/jobs/*",
		 "Condition":{"Null":{"s3:if-none-match":"true","s3:if-match":true},"Bool":{"s3:ObjectCreationOperation":"true"}}},
		{"Sid":"TLS","Effect":"Deny","Principal":{"AWS":"*"},"Action":["s3:*"],"Resource":["arn:aws:s3:::bkt","arn:aws:s3:::bkt/*"],
		 "Condition":{"Bool":{"aws:SecureTransport":"false"}}}`)), 204, "")

	b.want(b.put("jobs/old", "x", nil), 403, "AccessDenied")
	b.want(b.put("jobs/new", "x", nil), 403, "AccessDenied")
	b.want(b.put("jobs/new", "x", headers{"If-None-Match": "*"}), 200, "")
	b.want(b.put("jobs/old", "x", headers{"If-Match": etagOf("old")}), 200, "")
	b.want(b.put("elsewhere", "x", nil), 200, "")
	b.want(b.do("PUT", "/bkt/jobs/copy", headers{"X-Amz-Copy-Source": "bkt/elsewhere"}, ""), 403, "AccessDenied")
	b.want(b.do("PUT", "/bkt/jobs/copy", headers{"X-Amz-Copy-Source": "bkt/elsewhere", "If-None-Match": "*"}, ""), 200, "")
	b.want(b.do("DELETE", "/bkt/jobs/copy", nil, ""), 204, "") // another action
	u := b.upload("jobs/big", nil)                             // exempted: creates no object
	u.part(1, "x")
	b.want(u.complete(nil), 403, "AccessDenied")
	b.want(u.complete(headers{"If-None-Match": "*"}), 200, "")
}

func TestPolicyMayDenyDeletesAndReads(t *testing.T) {
	b := newBench(t)
	b.want(b.put("keep/a", "v", nil), 200, "")
	b.want(b.put("free", "v", nil), 200, "")
	b.want(b.do("PUT", "/bkt?policy", nil, statementOf(`
		{"Effect":"Deny","Principal":"*","Action":["s3:DeleteObject*"],"Resource":"arn:aws:s3:::bkt/keep/*","Condition":{"Null":{"s3:if-match":"true"}}},
		{"Effect":"Deny","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::bkt/secret?"}`)), 204, "")
	b.want(b.do("DELETE", "/bkt/keep/a", nil, ""), 403, "AccessDenied")
	got := b.deleteMany(`<Delete><Object><Key>keep/a</Key></Object><Object><Key>free</Key></Object></Delete>`)
	if len(got.Error) != 1 || got.Error[0].Code != "AccessDenied" || len(got.Deleted) != 1 {
		t.Errorf("DeleteObjects: %+v", got)
	}
	b.want(b.do("DELETE", "/bkt/keep/a", headers{"If-Match": etagOf("v")}, ""), 204, "")
	b.want(b.put("secret1", "v", nil), 200, "")
	b.want(b.get("secret1", nil), 403, "AccessDenied")
	b.want(b.do("PUT", "/bkt/copy", headers{"X-Amz-Copy-Source": "bkt/secret1"}, ""), 403, "AccessDenied")
	b.want(b.get("secret12", nil), 404, "NoSuchKey")
}

func TestPolicyIsKeptAsWritten(t *testing.T) {
	b := newBench(t)
	b.want(b.do("GET", "/bkt?policy", nil, ""), 404, "NoSuchBucketPolicy")
	document := statementOf(`{"Effect":"Deny","Principal":"*","Action":"s3:DeleteBucket","Resource":"arn:aws:s3:::bkt"}`)
	b.want(b.do("PUT", "/bkt?policy", nil, document), 204, "")
	if resp := b.do("GET", "/bkt?policy", nil, ""); string(resp.Body) != document {
		t.Errorf("policy %s", resp.Body)
	}
	b.want(b.do("DELETE", "/bkt", nil, ""), 403, "AccessDenied")
	b.want(b.do("DELETE", "/bkt?policy", nil, ""), 204, "")
	b.want(b.do("DELETE", "/bkt?policy", nil, ""), 204, "")
	b.want(b.do("DELETE", "/bkt", nil, ""), 204, "")
}

func TestPoliciesThatAreNotUnderstoodAreRefusedByName(t *testing.T) {
	deny := func(rest string) string {
		return statementOf(`{"Effect":"Deny","Principal":"*","Action":"s3:PutObject","Resource":"arn:aws:s3:::bkt/*"` + rest + `}`)
	}
	tests := []struct{ document, code, names string }{
		{"", "MalformedPolicy", "first byte"}, // the recorded texts of AWS
		{"policy", "MalformedPolicy", "first byte"},
		{"{}", "MalformedPolicy", "Missing required field Statement"},
		{`{"Statement":1}`, "MalformedPolicy", "Statement[0]"},
		{`{"Statement":[],"Extra":1}`, "NotImplemented", "Extra"},
		{statementOf(`{"Effect":"Maybe","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::bkt"}`), "MalformedPolicy", "Maybe"},
		{statementOf(`{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::bkt"}`), "NotImplemented", "Allow"},
		{statementOf(`{"Effect":"Deny","Principal":{"AWS":"arn:aws:iam::1:user/a"},"Action":"s3:*","Resource":"arn:aws:s3:::bkt"}`), "NotImplemented", "Principal"},
		{statementOf(`{"Effect":"Deny","Action":"s3:*","Resource":"arn:aws:s3:::bkt"}`), "MalformedPolicy", "Principal"},
		{statementOf(`{"Effect":"Deny","Principal":"*","NotAction":"s3:*","Resource":"arn:aws:s3:::bkt"}`), "NotImplemented", "NotAction"},
		{statementOf(`{"Effect":"Deny","Principal":"*","Action":"s3:*","NotResource":"arn:aws:s3:::bkt"}`), "NotImplemented", "NotResource"},
		{statementOf(`{"Effect":"Deny","Principal":"*","Action":"sqs:*","Resource":"arn:aws:s3:::bkt"}`), "MalformedPolicy", "action"},
		{statementOf(`{"Effect":"Deny","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::other/*"}`), "MalformedPolicy", "resource"},
		{statementOf(`{"Effect":"Deny","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::bkt/${aws:username}"}`), "NotImplemented", "variables"},
		{deny(`,"Condition":{"StringEquals":{"s3:if-none-match":"*"}}`), "NotImplemented", "StringEquals"},
		{deny(`,"Condition":{"Null":{"s3:x-amz-copy-source":"true"}}`), "NotImplemented", "s3:x-amz-copy-source"},
		{deny(`,"Condition":{"Null":{"s3:if-match":"perhaps"}}`), "MalformedPolicy", "perhaps"},
		{deny(`,"Condition":{"Null":{"s3:if-match":["true","false"]}}`), "MalformedPolicy", "one value"},
		{deny(`,"Sid":"` + strings.Repeat("x", maxPolicySize) + `"`), "MalformedPolicy", "20 KB"},
	}
	b := newBench(t)
	for _, tt := range tests {
		resp := b.do("PUT", "/bkt?policy", nil, tt.document)
		if resp.ErrorCode != tt.code || !strings.Contains(element(resp, "Message"), tt.names) {
			t.Errorf("%.200s: %s %s, want %s naming %q", tt.document, resp.ErrorCode, element(resp, "Message"), tt.code, tt.names)
		}
	}
	b.want(b.do("GET", "/bkt?policy", nil, ""), 404, "NoSuchBucketPolicy")
}

func TestWildcardMatch(t *testing.T) {
	tests := []struct {
		pattern, text string
		want          bool
	}{
		{"*", "", true}, {"", "", true}, {"", "a", false}, {"a*c", "abbc", true}, {"a*c", "abb", false}, {"a?c", "abc", true},
		{"a?c", "ac", false}, {"*a*b*", "xxaxxb", true}, {"*a*b", "ab a", false}, {"jobs/*", "jobs/", true}, {"**a", "ba", true},
		{"a", "ab", false}, {"ab", "a", false}, {"*" + strings.Repeat("a*", 50) + "b", strings.Repeat("a", 1000), false},
	}
	for _, tt := range tests {
		if got := wildcardMatch(tt.pattern, tt.text); got != tt.want {
			t.Errorf("%.20q matches %.20q: %v", tt.pattern, tt.text, got)
		}
	}
}
