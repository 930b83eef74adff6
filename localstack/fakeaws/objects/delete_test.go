package objects

import (
	"fmt"
	"strings"
	"testing"
)

type deleteResult struct {
	Deleted []struct {
		Key, VersionId, DeleteMarkerVersionId string
		DeleteMarker                          bool
	}
	Error []struct{ Key, VersionId, Code string }
}

// deleteMany sends a DeleteObjects document with the digest that S3 demands.
func (b *bench) deleteMany(doc string) deleteResult {
	b.Helper()
	resp := b.do("POST", "/bkt?delete", headers{"X-Amz-Checksum-Crc32": crc32IEEE.of([]byte(doc)).value}, doc)
	b.want(resp, 200, "")
	return document[deleteResult](b, resp)
}

func TestDeleteObjectsAnswersKeyByKey(t *testing.T) {
	b := newBench(t)
	for _, key := range []string{"a", "b", "c"} {
		b.want(b.put(key, key, nil), 200, "")
	}
	got := b.deleteMany(`<Delete xmlns="` + xmlNamespace + `">` +
		`<Object><Key>a</Key></Object>` +
		`<Object><Key>b</Key><ETag>` + etagOf("other") + `</ETag></Object>` +
		`<Object><Key>c</Key><ETag>` + etagOf("c") + `</ETag></Object>` +
		`<Object><Key>absent</Key></Object>` +
		`<Object><Key>absent</Key><ETag>` + etagOf("c") + `</ETag></Object>` +
		`<Object><Key>a</Key><VersionId>HPniJFCxqTsMuIH9KX8K8wEjNUgmABCD</VersionId></Object></Delete>`)
	if fmt.Sprint(got.Deleted) != "[{a   false} {c   false} {absent   false}]" {
		t.Errorf("deleted %v", got.Deleted)
	}
	if fmt.Sprint(got.Error) != "[{b  PreconditionFailed} {absent  NoSuchKey} {a HPniJFCxqTsMuIH9KX8K8wEjNUgmABCD NoSuchVersion}]" {
		t.Errorf("errors %v", got.Error)
	}
	for key, status := range map[string]int{"a": 404, "b": 200, "c": 404} {
		if resp := b.get(key, nil); resp.Status != status {
			t.Errorf("%s: %d, want %d", key, resp.Status, status)
		}
	}
	quiet := b.deleteMany(`<Delete><Quiet>true</Quiet><Object><Key>b</Key></Object></Delete>`)
	if len(quiet.Deleted) != 0 || len(quiet.Error) != 0 || b.get("b", nil).Status != 404 {
		t.Errorf("quiet answer %+v", quiet)
	}
}

func TestDeleteObjectsInAVersionedBucket(t *testing.T) {
	b := newBench(t)
	b.setVersioning("Enabled")
	id := b.put("k", "v", nil).Header.Get("X-Amz-Version-Id")
	made := b.deleteMany(`<Delete><Object><Key>k</Key></Object></Delete>`).Deleted[0]
	if !made.DeleteMarker || made.DeleteMarkerVersionId == "" || made.VersionId != "" {
		t.Errorf("marker made: %+v", made)
	}
	removed := b.deleteMany(`<Delete><Object><Key>k</Key><VersionId>` + made.DeleteMarkerVersionId + `</VersionId></Object></Delete>`).Deleted[0]
	if !removed.DeleteMarker || removed.DeleteMarkerVersionId != removed.VersionId {
		t.Errorf("marker removed: %+v", removed)
	}
	version := b.deleteMany(`<Delete><Object><Key>k</Key><VersionId>` + id + `</VersionId></Object></Delete>`).Deleted[0]
	if version.DeleteMarker || version.VersionId != id {
		t.Errorf("version removed: %+v", version)
	}
	b.want(b.do("DELETE", "/bkt", nil, ""), 204, "")
}

func TestDeleteObjectsIsChecked(t *testing.T) {
	b := newBench(t)
	digest := func(doc string) headers { return headers{"X-Amz-Checksum-Crc32": crc32IEEE.of([]byte(doc)).value} }
	one := "<Delete><Object><Key>k</Key></Object></Delete>"
	many := "<Delete>" + strings.Repeat("<Object><Key>k</Key></Object>", maxDeletes+1) + "</Delete>"
	b.want(b.do("POST", "/bkt?delete", nil, one), 400, "InvalidRequest") // no digest
	b.want(b.do("POST", "/bkt?delete", digest("other"), one), 400, "BadDigest")
	b.want(b.do("POST", "/bkt?delete", headers{"Content-Md5": "AAAA"}, one), 400, "InvalidDigest")
	for _, doc := range []string{"", "<", "<Delete>", "<Delete></Delete>", "<Remove/>", "<Delete><Object/></Delete>", many,
		"<Delete><Object><Key>k</Key><VersionId/></Object></Delete>", "<Delete><Object><Key>k</Key><ETag></ETag></Object></Delete>", one + "x", one + one, one + "<"} {
		b.want(b.do("POST", "/bkt?delete", digest(doc), doc), 400, "MalformedXML")
	}
	spaced := one + "\n<!-- end -->\n"
	b.want(b.do("POST", "/bkt?delete", digest(spaced), spaced), 200, "")
	size := "<Delete><Object><Key>k</Key><Size>1</Size></Object></Delete>" // directory buckets only
	b.want(b.do("POST", "/bkt?delete", digest(size), size), 501, "NotImplemented")
}
