package objects

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"drawbridge/localstack/fakeaws/engine"
)

// An uploadBench drives one multipart upload.
type uploadBench struct {
	*bench
	key, id string
	parts   []string // the elements of the completion
}

func (b *bench) upload(key string, h headers) *uploadBench {
	b.Helper()
	resp := b.do("POST", keyPath(key)+"?uploads", h, "")
	b.want(resp, 200, "")
	return &uploadBench{bench: b, key: key, id: element(resp, "UploadId")}
}

func (u *uploadBench) target(query string) string {
	return keyPath(u.key) + "?uploadId=" + u.id + query
}

// part uploads a part and notes it for the completion.
func (u *uploadBench) part(number int, body string) engine.Response {
	u.Helper()
	resp := u.do("PUT", u.target(fmt.Sprintf("&partNumber=%d", number)), nil, body)
	u.want(resp, 200, "")
	u.parts = append(u.parts, fmt.Sprintf("<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", number, resp.Header.Get("Etag")))
	return resp
}

func (u *uploadBench) complete(h headers) engine.Response {
	u.Helper()
	return u.do("POST", u.target(""), h, "<CompleteMultipartUpload>"+strings.Join(u.parts, "")+"</CompleteMultipartUpload>")
}

func (u *uploadBench) abort() engine.Response { return u.do("DELETE", u.target(""), nil, "") }

func TestMultipartUploadJoinsPartsInOrder(t *testing.T) {
	b := newBench(t)
	first, second := strings.Repeat("A", minPartSize), "tail"
	u := b.upload("big", headers{"Content-Type": "text/plain", "X-Amz-Meta-Who": "me"})
	b.want(b.get("big", nil), 404, "NoSuchKey") // an upload is no object
	p2 := u.part(7, second)
	p1 := u.part(3, first)
	u.parts[0], u.parts[1] = u.parts[1], u.parts[0]
	resp := u.complete(nil)
	b.want(resp, 200, "")

	raw := md5.New()
	for _, p := range []engine.Response{p1, p2} {
		digest, err := hex.DecodeString(strings.Trim(p.Header.Get("Etag"), `"`))
		if err != nil {
			t.Fatal(err)
		}
		raw.Write(digest)
	}
	want := fmt.Sprintf(`"%x-2"`, raw.Sum(nil))
	got := b.get("big", headers{"X-Amz-Checksum-Mode": "ENABLED"})
	if string(got.Body) != first+second || got.Header.Get("Etag") != want || got.Header.Get("X-Amz-Meta-Who") != "me" {
		t.Errorf("%d bytes, etag %s (want %s), headers %v", len(got.Body), got.Header.Get("Etag"), want, got.Header)
	}
	// Without an algorithm, S3 joins a CRC64NVME of the whole object.
	if sum := crc64NVME.of([]byte(first + second)); got.Header.Get("X-Amz-Checksum-Crc64nvme") != sum.value || got.Header.Get("X-Amz-Checksum-Type") != "FULL_OBJECT" {
		t.Errorf("checksum %v, want %s", got.Header, sum.value)
	}
	b.want(u.complete(nil), 404, "NoSuchUpload") // the ghost of a retried completion

	part := b.do("GET", "/bkt/big?partNumber=2", nil, "")
	if part.Status != 206 || string(part.Body) != second || part.Header.Get("X-Amz-Mp-Parts-Count") != "2" ||
		part.Header.Get("Content-Range") != fmt.Sprintf("bytes %d-%d/%d", len(first), len(first)+3, len(first)+4) {
		t.Errorf("part 2: %d %q %v", part.Status, part.Body, part.Header)
	}
	b.want(b.do("GET", "/bkt/big?partNumber=3", nil, ""), 416, "InvalidPartNumber")
	across := b.get("big", headers{"Range": fmt.Sprintf("bytes=%d-%d", len(first)-2, len(first)+1)})
	if string(across.Body) != "AAta" {
		t.Errorf("range over the border of two parts: %q", across.Body)
	}
}

func TestMultipartChecksums(t *testing.T) {
	first, second := strings.Repeat("B", minPartSize), "end"
	for _, a := range algorithms {
		for _, kind := range []string{"COMPOSITE", "FULL_OBJECT"} {
			t.Run(string(a)+" "+kind, func(t *testing.T) {
				b := newBench(t)
				h := headers{"X-Amz-Checksum-Algorithm": string(a), "X-Amz-Checksum-Type": kind}
				if a == crc64NVME && kind == "COMPOSITE" || !a.composable() && kind == "FULL_OBJECT" {
					b.want(b.do("POST", "/bkt/k?uploads", h, ""), 400, "InvalidRequest")
					return
				}
				u := b.upload("k", h)
				var joined []byte
				for i, body := range []string{first, second} {
					sum := a.of([]byte(body))
					resp := b.do("PUT", u.target(fmt.Sprintf("&partNumber=%d", i+1)), headers{checksumHeader[a]: sum.value}, body)
					b.want(resp, 200, "")
					if resp.Header.Get(checksumHeader[a]) != sum.value {
						t.Errorf("the part's checksum is not echoed: %v", resp.Header)
					}
					u.parts = append(u.parts, fmt.Sprintf("<Part><PartNumber>%d</PartNumber><ETag>%s</ETag><Checksum%s>%s</Checksum%s></Part>",
						i+1, resp.Header.Get("Etag"), a, sum.value, a))
					joined = append(joined, a.sum([]byte(body))...)
				}
				want := a.of([]byte(first + second)).value
				if kind == "COMPOSITE" {
					want = a.of(joined).value + "-2"
				}
				b.want(u.complete(headers{checksumHeader[a]: "AAAA"}), 400, "BadDigest")
				b.want(u.complete(headers{"X-Amz-Mp-Object-Size": "1"}), 400, "InvalidRequest")
				resp := u.complete(headers{checksumHeader[a]: want, "X-Amz-Mp-Object-Size": fmt.Sprint(len(first + second))})
				b.want(resp, 200, "")
				if got := element(resp, "Checksum"+string(a)); got != want {
					t.Errorf("checksum %q, want %q", got, want)
				}
				head := b.do("HEAD", "/bkt/k", headers{"X-Amz-Checksum-Mode": "ENABLED"}, "")
				if head.Header.Get(checksumHeader[a]) != want || head.Header.Get("X-Amz-Checksum-Type") != kind {
					t.Errorf("head: %v", head.Header)
				}
			})
		}
	}
}

func TestMultipartCompletionIsChecked(t *testing.T) {
	b := newBench(t)
	u := b.upload("k", nil)
	u.part(1, "short")
	u.part(2, "last")
	one, two := u.parts[0], u.parts[1]
	complete := func(parts ...string) engine.Response {
		u.parts = parts
		return u.complete(nil)
	}
	b.want(complete(one, two), 400, "EntityTooSmall")
	b.want(complete(two, one), 400, "InvalidPartOrder")
	b.want(complete(two, two), 400, "InvalidPartOrder")
	b.want(complete("<Part><PartNumber>9</PartNumber><ETag>x</ETag></Part>"), 400, "InvalidPart")
	b.want(complete(strings.Replace(two, "<ETag>", "<ETag>0", 1)), 400, "InvalidPart")
	b.want(complete(), 400, "MalformedXML")
	b.want(u.do("POST", u.target(""), nil, "<Complete/>"), 400, "MalformedXML")
	b.want(complete(strings.Replace(two, "</Part>", "<ChecksumXXHASH3>x</ChecksumXXHASH3></Part>", 1)), 501, "NotImplemented")
	b.want(b.do("PUT", u.target("&partNumber=0"), nil, ""), 400, "InvalidArgument")
	b.want(b.do("PUT", u.target("&partNumber=10001"), nil, ""), 400, "InvalidArgument")
	b.want(b.do("PUT", "/bkt/other?partNumber=1&uploadId="+u.id, nil, ""), 404, "NoSuchUpload")
	b.want(complete(one), 200, "") // a part may be left out
	if got := b.get("k", nil); string(got.Body) != "short" {
		t.Errorf("object is %q", got.Body)
	}

	sums := b.upload("k2", headers{"X-Amz-Checksum-Algorithm": "CRC32"})
	b.want(b.do("PUT", sums.target("&partNumber=1"), headers{"X-Amz-Checksum-Sha1": sha1Sum.of([]byte("x")).value}, "x"), 400, "InvalidRequest")
	sums.part(1, "x")
	b.want(sums.complete(nil), 400, "InvalidRequest") // composite: the part's checksum is missing
}

func TestReplacedAndAbortedPartsAreGone(t *testing.T) {
	b := newBench(t)
	u := b.upload("k", nil)
	u.part(1, "first")
	u.part(1, "second")
	old := u.parts[0]
	u.parts = u.parts[1:]
	list := b.do("GET", u.target(""), nil, "")
	if strings.Count(string(list.Body), "<Part>") != 1 || element(list, "Size") != "6" {
		t.Errorf("parts: %s", list.Body)
	}
	b.want(b.do("POST", u.target(""), nil, "<CompleteMultipartUpload>"+old+"</CompleteMultipartUpload>"), 400, "InvalidPart")
	b.want(u.abort(), 204, "")
	b.want(u.abort(), 404, "NoSuchUpload")
	b.want(u.complete(nil), 404, "NoSuchUpload")
	b.want(b.do("GET", u.target(""), nil, ""), 404, "NoSuchUpload")
}

func TestListPartsPages(t *testing.T) {
	b := newBench(t)
	u := b.upload("k", nil)
	for _, n := range []int{9, 2, 5, 10000, 1} {
		u.part(n, "x")
	}
	var got []string
	marker := "0"
	for range 10 {
		page := b.do("GET", u.target("&max-parts=2&part-number-marker="+marker), nil, "")
		b.want(page, 200, "")
		for _, p := range strings.Split(string(page.Body), "<PartNumber>")[1:] {
			number, _, _ := strings.Cut(p, "<")
			got = append(got, number)
		}
		if element(page, "IsTruncated") == "false" {
			break
		}
		marker = element(page, "NextPartNumberMarker")
	}
	if strings.Join(got, " ") != "1 2 5 9 10000" {
		t.Errorf("parts %v", got)
	}
}

func TestListMultipartUploadsPagesAndFolds(t *testing.T) {
	b := newBench(t)
	var want []string
	for _, key := range []string{"a", "a", "b/1", "b/2", "c", "d/x"} {
		u := b.upload(key, nil)
		want = append(want, key+" "+u.id)
	}
	var got []string
	keyMarker, idMarker := "", ""
	for range 10 {
		page := b.do("GET", "/bkt?uploads&max-uploads=2&key-marker="+keyMarker+"&upload-id-marker="+idMarker, nil, "")
		b.want(page, 200, "")
		doc := document[struct {
			IsTruncated                       bool
			NextKeyMarker, NextUploadIdMarker string
			Upload                            []struct{ Key, UploadId string }
		}](b, page)
		for _, u := range doc.Upload {
			got = append(got, u.Key+" "+u.UploadId)
		}
		if !doc.IsTruncated {
			break
		}
		keyMarker, idMarker = doc.NextKeyMarker, doc.NextUploadIdMarker
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("uploads\n%v, want\n%v", got, want)
	}
	var folded []string
	keyMarker = ""
	for range 10 {
		page := b.do("GET", "/bkt?uploads&delimiter=/&max-uploads=1&key-marker="+keyMarker, nil, "")
		doc := document[struct {
			IsTruncated    bool
			NextKeyMarker  string
			Upload         []struct{ Key string }
			CommonPrefixes []struct{ Prefix string }
		}](b, page)
		for _, u := range doc.Upload {
			folded = append(folded, u.Key)
		}
		for _, p := range doc.CommonPrefixes {
			folded = append(folded, p.Prefix)
		}
		if !doc.IsTruncated {
			break
		}
		keyMarker = doc.NextKeyMarker
	}
	if fmt.Sprint(folded) != "[a b/ c d/]" { // without an id marker the page goes on after the whole key
		t.Errorf("folded %v", folded)
	}
}
