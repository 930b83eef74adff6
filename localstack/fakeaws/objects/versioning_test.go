package objects

import (
	"fmt"
	"net/url"
	"testing"

	"drawbridge/localstack/fakeaws/engine"
)

func (b *bench) setVersioning(status string) {
	b.Helper()
	b.want(b.do("PUT", "/bkt?versioning", nil, "<VersioningConfiguration><Status>"+status+"</Status></VersioningConfiguration>"), 200, "")
}

func (b *bench) version(method, key, id string) engine.Response {
	b.Helper()
	return b.do(method, keyPath(key)+"?versionId="+url.QueryEscape(id), nil, "")
}

type listedVersion struct {
	Key, VersionId string
	IsLatest       bool
	ETag           string
}

type versionsResult struct {
	IsTruncated         bool
	NextKeyMarker       string
	NextVersionIdMarker string
	Version             []listedVersion
	DeleteMarker        []listedVersion
	CommonPrefixes      []struct{ Prefix string }
}

func TestVersionsAreKeptUntilDeletedByID(t *testing.T) {
	b := newBench(t)
	b.want(b.put("k", "null", nil), 200, "")
	b.setVersioning("Enabled")
	v1 := b.put("k", "one", nil).Header.Get("X-Amz-Version-Id")
	v2 := b.put("k", "two", nil).Header.Get("X-Amz-Version-Id")
	if len(v1) != 32 || len(v2) != 32 || v1 == v2 {
		t.Fatalf("version ids %q %q", v1, v2)
	}
	for id, want := range map[string]string{"null": "null", v1: "one", v2: "two"} {
		if resp := b.version("GET", "k", id); string(resp.Body) != want || resp.Header.Get("X-Amz-Version-Id") != id {
			t.Errorf("version %s: %d %q", id, resp.Status, resp.Body)
		}
	}
	del := b.do("DELETE", "/bkt/k", nil, "")
	marker := del.Header.Get("X-Amz-Version-Id")
	if del.Header.Get("X-Amz-Delete-Marker") != "true" || marker == "" {
		t.Fatalf("delete: %v", del.Header)
	}
	gone := b.get("k", nil)
	b.want(gone, 404, "NoSuchKey")
	if gone.Header.Get("X-Amz-Delete-Marker") != "true" || gone.Header.Get("X-Amz-Version-Id") != marker {
		t.Errorf("a deleted key is told by its marker: %v", gone.Header)
	}
	of := b.version("GET", "k", marker)
	b.want(of, 405, "MethodNotAllowed")
	if of.Header.Get("Allow") != "DELETE" || of.Header.Get("Last-Modified") == "" {
		t.Errorf("405 of a marker: %v", of.Header)
	}
	b.want(b.do("PUT", "/bkt/copy", headers{"X-Amz-Copy-Source": "bkt/k?versionId=" + marker}, ""), 400, "InvalidRequest")
	b.want(b.do("PUT", "/bkt/copy", headers{"X-Amz-Copy-Source": "bkt/k"}, ""), 404, "NoSuchKey")

	// Removing the marker brings the version before it back.
	if resp := b.version("DELETE", "k", marker); resp.Status != 204 || resp.Header.Get("X-Amz-Delete-Marker") != "true" || resp.Header.Get("X-Amz-Version-Id") != marker {
		t.Errorf("delete of the marker: %d %v", resp.Status, resp.Header)
	}
	if resp := b.get("k", nil); string(resp.Body) != "two" {
		t.Errorf("current is %q", resp.Body)
	}
	b.want(b.version("DELETE", "k", v2), 204, "")
	b.want(b.version("GET", "k", v2), 404, "NoSuchVersion")
	if resp := b.get("k", nil); string(resp.Body) != "one" {
		t.Errorf("current is %q", resp.Body)
	}
	b.want(b.version("GET", "k", "HPniJFCxqTsMuIH9KX8K8wEjNUgmABCD"), 400, "InvalidArgument") // never issued
	b.want(b.version("DELETE", "k", "HPniJFCxqTsMuIH9KX8K8wEjNUgmABCD"), 400, "InvalidArgument")
	if resp := b.do("DELETE", "/bkt/never-there", nil, ""); resp.Header.Get("X-Amz-Delete-Marker") != "true" {
		t.Errorf("a delete of an absent key leaves a marker too: %v", resp.Header)
	}
	b.want(b.do("DELETE", "/bkt", nil, ""), 409, "BucketNotEmpty")
}

func TestABucketOfDeleteMarkersIsNotEmpty(t *testing.T) {
	b := newBench(t)
	b.setVersioning("Enabled")
	marker := b.do("DELETE", "/bkt/k", nil, "").Header.Get("X-Amz-Version-Id")
	refused := b.do("DELETE", "/bkt", nil, "")
	b.want(refused, 409, "BucketNotEmpty")
	if got := element(refused, "Message"); got != "The bucket you tried to delete is not empty. You must delete all versions in the bucket." {
		t.Errorf("message %q", got) // as recorded on AWS
	}
	b.want(b.version("DELETE", "k", marker), 204, "")
	b.want(b.do("DELETE", "/bkt", nil, ""), 204, "")
}

func TestSuspendedVersioningReplacesTheNullVersion(t *testing.T) {
	b := newBench(t)
	b.setVersioning("Enabled")
	v1 := b.put("k", "one", nil).Header.Get("X-Amz-Version-Id")
	b.setVersioning("Suspended")
	for _, body := range []string{"two", "three"} {
		if resp := b.put("k", body, nil); resp.Header.Get("X-Amz-Version-Id") != "" {
			t.Errorf("a null version's id is not told by its write: %v", resp.Header)
		}
	}
	if resp := b.get("k", nil); string(resp.Body) != "three" || resp.Header.Get("X-Amz-Version-Id") != "null" {
		t.Errorf("current %q %v", resp.Body, resp.Header)
	}
	if got := b.versions(""); fmt.Sprint(got) != fmt.Sprintf("[k null* k %s]", v1) {
		t.Errorf("versions %v", got)
	}
	if resp := b.do("DELETE", "/bkt/k", nil, ""); resp.Header.Get("X-Amz-Version-Id") != "null" || resp.Header.Get("X-Amz-Delete-Marker") != "true" {
		t.Errorf("delete: %v", resp.Header)
	}
	if got := b.versions(""); fmt.Sprint(got) != fmt.Sprintf("[k null*(marker) k %s]", v1) {
		t.Errorf("versions %v", got)
	}
	b.want(b.version("GET", "k", v1), 200, "")
	b.want(b.version("DELETE", "k", "null"), 204, "")
	if resp := b.get("k", nil); string(resp.Body) != "one" {
		t.Errorf("current %q", resp.Body)
	}
}

// versions lists all versions as "key id", "*" for the latest, in S3's order.
func (b *bench) versions(query string) []string {
	b.Helper()
	doc := document[versionsResult](b, b.do("GET", "/bkt?versions&"+query, nil, ""))
	// The two kinds are separate lists once decoded; a merge by key is enough for
	// tests where a marker is the latest of its key.
	var names []string
	for _, m := range doc.DeleteMarker {
		names = append(names, m.name()+"(marker)")
	}
	for _, v := range doc.Version {
		names = append(names, v.name())
	}
	return names
}

func (v listedVersion) name() string {
	if v.IsLatest {
		return v.Key + " " + v.VersionId + "*"
	}
	return v.Key + " " + v.VersionId
}

func TestListObjectVersionsPagesNewestFirst(t *testing.T) {
	b := newBench(t)
	b.setVersioning("Enabled")
	var want []string
	for _, key := range []string{"a", "b/1", "b/2", "c"} {
		ids := []string{}
		for i := range 3 {
			ids = append([]string{b.put(key, fmt.Sprint(i), nil).Header.Get("X-Amz-Version-Id")}, ids...)
		}
		for i, id := range ids {
			name := key + " " + id
			if i == 0 {
				name += "*"
			}
			want = append(want, name)
		}
	}
	for _, limit := range []int{1, 2, 5, 100} {
		var got []string
		keyMarker, idMarker := "", ""
		for range 100 {
			resp := b.do("GET", fmt.Sprintf("/bkt?versions&max-keys=%d&key-marker=%s&version-id-marker=%s", limit, keyMarker, idMarker), nil, "")
			b.want(resp, 200, "")
			page := document[versionsResult](b, resp)
			for _, v := range page.Version {
				got = append(got, v.name())
			}
			if !page.IsTruncated {
				break
			}
			keyMarker, idMarker = page.NextKeyMarker, page.NextVersionIdMarker
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("limit %d:\n got %v\nwant %v", limit, got, want)
		}
	}
	folded := document[versionsResult](b, b.do("GET", "/bkt?versions&delimiter=/&max-keys=4", nil, ""))
	if len(folded.Version) != 3 || len(folded.CommonPrefixes) != 1 || !folded.IsTruncated || folded.NextKeyMarker != "b/" {
		t.Errorf("folded page %+v", folded)
	}
	rest := document[versionsResult](b, b.do("GET", "/bkt?versions&delimiter=/&key-marker=b/", nil, ""))
	if len(rest.Version) != 3 || rest.Version[0].Key != "c" || len(rest.CommonPrefixes) != 0 {
		t.Errorf("rest %+v", rest)
	}
	b.want(b.do("GET", "/bkt?versions&version-id-marker=null", nil, ""), 400, "InvalidArgument")
}

func TestVersionPagesGoOnAfterADeletedVersion(t *testing.T) {
	b := newBench(t)
	b.setVersioning("Enabled")
	var ids []string
	for i := range 4 {
		ids = append(ids, b.put("k", fmt.Sprint(i), nil).Header.Get("X-Amz-Version-Id"))
	}
	page := document[versionsResult](b, b.do("GET", "/bkt?versions&max-keys=2", nil, ""))
	b.want(b.version("DELETE", "k", page.NextVersionIdMarker), 204, "")
	rest := document[versionsResult](b, b.do("GET", "/bkt?versions&key-marker=k&version-id-marker="+page.NextVersionIdMarker, nil, ""))
	if len(rest.Version) != 2 || rest.Version[0].VersionId != ids[1] || rest.Version[1].VersionId != ids[0] {
		t.Errorf("rest %+v of %v", rest.Version, ids)
	}
}

func TestVersioningConfiguration(t *testing.T) {
	b := newBench(t)
	get := func() string { return element(b.do("GET", "/bkt?versioning", nil, ""), "Status") }
	if got := get(); got != "" {
		t.Errorf("a new bucket has status %q", got)
	}
	put := func(status string) engine.Response {
		return b.do("PUT", "/bkt?versioning", nil, "<VersioningConfiguration>"+status+"</VersioningConfiguration>")
	}
	// As recorded on AWS (test_bucket_versioning_crud).
	b.want(put("<Status>enabled</Status>"), 400, "MalformedXML")
	b.want(put("<Status>Disabled</Status>"), 400, "MalformedXML")
	b.want(put(""), 400, "IllegalVersioningConfigurationException")
	b.want(put("<Status>Enabled</Status><MfaDelete>Enabled</MfaDelete>"), 501, "NotImplemented")
	b.want(put("<Status>Suspended</Status>"), 200, "")
	if got := get(); got != "Suspended" {
		t.Errorf("status %q", got)
	}
	b.want(b.do("PUT", "/nobucket?versioning", nil, "<VersioningConfiguration/>"), 404, "NoSuchBucket")
}

// A caller that names a version by an empty id must not reach the current one.
func TestAnEmptyVersionIDNamesNoVersion(t *testing.T) {
	b := newBench(t)
	enableVersioning(b)
	b.want(b.put("k", "now", nil), 200, "")
	for _, method := range []string{"GET", "DELETE"} {
		b.want(b.do(method, "/bkt/k?versionId=", nil, ""), 400, "InvalidArgument")
	}
	b.want(b.do("HEAD", "/bkt/k?versionId=", nil, ""), 400, "InvalidArgument")
	if resp := b.get("k", nil); string(resp.Body) != "now" {
		t.Errorf("after the refused requests: %d %q", resp.Status, resp.Body)
	}
}
