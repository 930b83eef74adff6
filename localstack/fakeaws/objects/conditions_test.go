package objects

import (
	"net/http"
	"testing"
	"time"

	"drawbridge/localstack/fakeaws/engine"
)

// The states that a key can be in before a conditional request. The current
// version's content is "now".
var keyStates = map[string]func(*bench){
	"absent":  func(*bench) {},
	"present": func(b *bench) { b.want(b.put("k", "now", nil), 200, "") },
	"marker": func(b *bench) {
		enableVersioning(b)
		b.want(b.put("k", "old", nil), 200, "")
		b.want(b.do("DELETE", "/bkt/k", nil, ""), 204, "")
	},
	"versions": func(b *bench) {
		enableVersioning(b)
		b.want(b.put("k", "old", nil), 200, "")
		b.want(b.put("k", "now", nil), 200, "")
	},
}

func enableVersioning(b *bench) {
	b.Helper()
	b.want(b.do("PUT", "/bkt?versioning", nil, "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"), 200, "")
}

// TestConditionalWriteTable is the status matrix of general purpose buckets, as
// recorded on AWS; see writeCondition. The comments quote its rows.
func TestConditionalWriteTable(t *testing.T) {
	none, match, stale, any := headers{"If-None-Match": "*"}, headers{"If-Match": etagOf("now")}, headers{"If-Match": etagOf("old")}, headers{"If-Match": "*"}
	unquoted := headers{"If-Match": etagOf("now")[1:33]}
	tests := []struct {
		op, state string
		header    headers
		status    int
		code      string
		condition string
	}{
		// PUT INM:* | key absent, or current version is a delete marker | 200
		{"PUT", "absent", none, 200, "", ""},
		{"PUT", "marker", none, 200, "", ""},
		// PUT INM:* | key present | 412 PreconditionFailed (Condition=If-None-Match)
		{"PUT", "present", none, 412, "PreconditionFailed", "If-None-Match"},
		{"PUT", "versions", none, 412, "PreconditionFailed", "If-None-Match"},
		// PUT If-Match | etag equal | 200
		{"PUT", "present", match, 200, "", ""},
		{"PUT", "versions", match, 200, "", ""},
		{"PUT", "present", unquoted, 200, "", ""},
		// PUT If-Match | etag differs | 412 PreconditionFailed
		{"PUT", "present", stale, 412, "PreconditionFailed", "If-Match"},
		{"PUT", "versions", stale, 412, "PreconditionFailed", "If-Match"},
		// PUT If-Match | key absent, or current version is a delete marker | 404 NoSuchKey
		{"PUT", "absent", match, 404, "NoSuchKey", ""},
		{"PUT", "marker", stale, 404, "NoSuchKey", ""},
		// If-None-Match accepts only *; If-Match: * on PutObject and both together: 501
		{"PUT", "present", headers{"If-None-Match": etagOf("x")}, 501, "NotImplemented", ""},
		{"PUT", "present", any, 501, "NotImplemented", ""},
		{"PUT", "present", headers{"If-Match": etagOf("now"), "If-None-Match": "*"}, 501, "NotImplemented", ""},

		{"PUT", "absent", headers{"If-None-Match": ""}, 501, "NotImplemented", ""},
		{"PUT", "present", headers{"If-Match": ""}, 501, "NotImplemented", ""},
		{"DELETE", "present", headers{"If-Match": ""}, 501, "NotImplemented", ""},
		{"DELETE", "present", headers{"If-None-Match": ""}, 501, "NotImplemented", ""},

		// COPY: the destination's conditions are those of PUT
		{"COPY", "absent", none, 200, "", ""},
		{"COPY", "present", none, 412, "PreconditionFailed", "If-None-Match"},
		{"COPY", "present", match, 200, "", ""},
		{"COPY", "present", stale, 412, "PreconditionFailed", "If-Match"},
		// COPY If-Match, dest absent/delete marker | 404 NoSuchKey
		{"COPY", "absent", match, 404, "NoSuchKey", ""},
		{"COPY", "marker", match, 404, "NoSuchKey", ""},
		{"COPY", "present", any, 501, "NotImplemented", ""},

		// plain DELETE of absent key = 204
		{"DELETE", "absent", nil, 204, "", ""},
		{"DELETE", "present", nil, 204, "", ""},
		{"DELETE", "present", match, 204, "", ""},
		{"DELETE", "present", any, 204, "", ""},
		{"DELETE", "versions", match, 204, "", ""},
		// DELETE If-Match wrong | 412
		{"DELETE", "present", stale, 412, "PreconditionFailed", "If-Match"},
		{"DELETE", "versions", stale, 412, "PreconditionFailed", "If-Match"},
		// DELETE If-Match, key absent | 404 NoSuchKey
		{"DELETE", "absent", match, 404, "NoSuchKey", ""},
		{"DELETE", "absent", any, 404, "NoSuchKey", ""},
		// DELETE If-Match:*, current = delete marker | 412
		{"DELETE", "marker", any, 412, "PreconditionFailed", "If-Match"},
		{"DELETE", "marker", stale, 412, "PreconditionFailed", "If-Match"},
		{"DELETE", "present", headers{"If-None-Match": "*"}, 501, "NotImplemented", ""},

		// CompleteMPU INM:* | key exists now | 412
		{"COMPLETE", "present", none, 412, "PreconditionFailed", "If-None-Match"},
		{"COMPLETE", "absent", none, 200, "", ""},
		{"COMPLETE", "marker", none, 200, "", ""},
		{"COMPLETE", "present", match, 200, "", ""},
		{"COMPLETE", "present", stale, 412, "PreconditionFailed", "If-Match"},
		{"COMPLETE", "absent", match, 404, "NoSuchKey", ""},
		{"COMPLETE", "marker", match, 404, "NoSuchKey", ""},
	}
	for _, tt := range tests {
		name := tt.op + " " + tt.state
		for k, v := range tt.header {
			name += " " + k + "=" + v
		}
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.want(b.put("source", "new", nil), 200, "")
			keyStates[tt.state](b)
			before := b.get("k", nil)
			resp := b.conditional(tt.op, tt.header)
			b.want(resp, tt.status, tt.code)
			if got := element(resp, "Condition"); got != tt.condition {
				t.Errorf("Condition is %q, want %q", got, tt.condition)
			}
			after := b.get("k", nil)
			switch {
			case tt.code != "" && (after.Status != before.Status || string(after.Body) != string(before.Body) && before.Status == 200):
				t.Errorf("a refused %s changed the key from %d %q to %d %q", tt.op, before.Status, before.Body, after.Status, after.Body)
			case tt.code == "" && tt.op == "DELETE" && after.Status != 404:
				t.Errorf("after the delete: %d %q", after.Status, after.Body)
			case tt.code == "" && tt.op != "DELETE" && string(after.Body) != "new":
				t.Errorf("after the write: %d %q", after.Status, after.Body)
			}
		})
	}
}

// conditional carries out one write on key "k" whose new content is "new".
func (b *bench) conditional(op string, h headers) engine.Response {
	b.Helper()
	switch op {
	case "PUT":
		return b.put("k", "new", h)
	case "DELETE":
		return b.do("DELETE", "/bkt/k", h, "")
	case "COPY":
		with := headers{"X-Amz-Copy-Source": "/bkt/source"}
		for name, value := range h {
			with[name] = value
		}
		return b.do("PUT", "/bkt/k", with, "")
	default:
		u := b.upload("k", nil)
		u.part(1, "new")
		return u.complete(h)
	}
}

// TestMultipartCompletionConflicts is the part of the matrix that depends on
// what happened between CreateMultipartUpload and CompleteMultipartUpload.
func TestMultipartCompletionConflicts(t *testing.T) {
	none, matchNow := headers{"If-None-Match": "*"}, headers{"If-Match": etagOf("now")}
	put := func(body string) func(*bench) { return func(b *bench) { b.want(b.put("k", body, nil), 200, "") } }
	del := func(b *bench) { b.want(b.do("DELETE", "/bkt/k", nil, ""), 204, "") }
	tests := []struct {
		name          string
		before, since []func(*bench)
		header        headers
		status        int
		code          string
	}{
		{"INM, key created after the upload", nil, []func(*bench){put("x")}, none, 412, "PreconditionFailed"},
		{"INM, key existed at the creation and was deleted", []func(*bench){put("x")}, []func(*bench){del}, none, 409, "ConditionalRequestConflict"},
		{"INM, key created and deleted since", nil, []func(*bench){put("x"), del}, none, 409, "ConditionalRequestConflict"},
		{"INM, key deleted before the upload", []func(*bench){put("x"), del}, nil, none, 200, ""},
		{"INM, absent key deleted since", nil, []func(*bench){del}, none, 200, ""},
		{"If-Match, overwritten by identical bytes", []func(*bench){put("now")}, []func(*bench){put("now")}, matchNow, 409, "ConditionalRequestConflict"},
		{"If-Match of what was written since", []func(*bench){put("x")}, []func(*bench){put("now")}, matchNow, 409, "ConditionalRequestConflict"},
		{"If-Match of what was overwritten since", []func(*bench){put("now")}, []func(*bench){put("x")}, matchNow, 412, "PreconditionFailed"},
		{"If-Match, key deleted since", []func(*bench){put("now")}, []func(*bench){del}, matchNow, 404, "NoSuchKey"},
		{"If-Match, key deleted and written again", []func(*bench){put("now")}, []func(*bench){del, put("now")}, matchNow, 409, "ConditionalRequestConflict"},
		{"If-Match, untouched", []func(*bench){put("now")}, nil, matchNow, 200, ""},
		{"no condition, overwritten since", []func(*bench){put("now")}, []func(*bench){put("x")}, nil, 200, ""},
	}
	for _, versioned := range []bool{false, true} {
		for _, tt := range tests {
			t.Run(map[bool]string{false: "plain: ", true: "versioned: "}[versioned]+tt.name, func(t *testing.T) {
				b := newBench(t)
				if versioned {
					enableVersioning(b)
				}
				for _, step := range tt.before {
					step(b)
				}
				u := b.upload("k", nil)
				u.part(1, "new")
				for _, step := range tt.since {
					step(b)
				}
				resp := u.complete(tt.header)
				b.want(resp, tt.status, tt.code)
				if tt.status == 409 {
					// It stays so: the whole upload has to start again.
					b.want(u.complete(tt.header), 409, tt.code)
					b.want(u.abort(), 204, "")
				}
			})
		}
	}
}

// TestReadConditionPrecedence follows RFC 9110, 13.2.2, which S3 documents.
func TestReadConditionPrecedence(t *testing.T) {
	b := newBench(t)
	written := b.clock.Now()
	b.want(b.put("k", "now", nil), 200, "")
	b.clock.Advance(time.Hour)
	before, after := written.Add(-time.Minute).Format(http.TimeFormat), written.Add(time.Minute).Format(http.TimeFormat)
	future := written.Add(2 * time.Hour).Format(http.TimeFormat)
	good, bad := etagOf("now"), etagOf("other")
	tests := []struct {
		header headers
		status int
		source int // the same conditions on a copy's source
	}{
		{headers{"If-Match": good}, 200, 200},
		{headers{"If-Match": "*"}, 200, 200},
		{headers{"If-Match": bad}, 412, 412},
		{headers{"If-None-Match": good}, 304, 412},
		{headers{"If-None-Match": "*"}, 304, 412},
		{headers{"If-None-Match": bad}, 200, 200},
		{headers{"If-Modified-Since": before}, 200, 200},
		{headers{"If-Modified-Since": after}, 304, 412},
		{headers{"If-Modified-Since": written.Format(http.TimeFormat)}, 304, 412},
		{headers{"If-Modified-Since": future}, 200, 200},
		{headers{"If-Modified-Since": "yesterday"}, 200, 200},
		{headers{"If-Unmodified-Since": before}, 412, 412},
		{headers{"If-Unmodified-Since": after}, 200, 200},
		{headers{"If-Unmodified-Since": written.Format(http.TimeFormat)}, 200, 200},
		{headers{"If-Match": good, "If-Unmodified-Since": before}, 200, 200},
		{headers{"If-Match": bad, "If-None-Match": good}, 412, 412},
		{headers{"If-None-Match": bad, "If-Modified-Since": after}, 200, 200},
		{headers{"If-None-Match": good, "If-Modified-Since": before}, 304, 412},
	}
	for _, tt := range tests {
		for _, method := range []string{"GET", "HEAD"} {
			resp := b.do(method, "/bkt/k", tt.header, "")
			if resp.Status != tt.status {
				t.Errorf("%s %v: %d, want %d", method, tt.header, resp.Status, tt.status)
			}
			if resp.Status == 304 && (len(resp.Body) > 0 || resp.Header.Get("Etag") != good || resp.Header.Get("Last-Modified") == "") {
				t.Errorf("%s %v: 304 with %d bytes and headers %v", method, tt.header, len(resp.Body), resp.Header)
			}
		}
		source := headers{"X-Amz-Copy-Source": "bkt/k"}
		for name, value := range tt.header {
			source["X-Amz-Copy-Source-"+name] = value
		}
		if resp := b.do("PUT", "/bkt/copy", source, ""); resp.Status != tt.source {
			t.Errorf("COPY from %v: %d, want %d", tt.header, resp.Status, tt.source)
		}
	}
	resp := b.do("PUT", "/bkt/copy", headers{"X-Amz-Copy-Source": "bkt/k", "X-Amz-Copy-Source-If-Match": bad}, "")
	if got := element(resp, "Condition"); got != "x-amz-copy-source-If-Match" { // as recorded on AWS
		t.Errorf("Condition of a copy's source is %q", got)
	}
}

// TestRefusalsOfHeadersNameThem checks the recorded elements of 501 answers.
func TestRefusalsOfHeadersNameThem(t *testing.T) {
	b := newBench(t)
	for want, h := range map[string]headers{
		"If-None-Match":          {"If-None-Match": "x"},
		"If-Match":               {"If-Match": "*"},
		"If-Match,If-None-Match": {"If-Match": "x", "If-None-Match": "*"},
	} {
		resp := b.put("k", "v", h)
		if got := element(resp, "Header"); got != want || element(resp, "additionalMessage") == "" {
			t.Errorf("%v: Header is %q, want %q\n%s", h, got, want, resp.Body)
		}
	}
}
