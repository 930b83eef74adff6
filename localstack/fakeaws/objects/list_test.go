package objects

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

type listResult struct {
	Name, Prefix, Marker, NextMarker  string
	StartAfter, NextContinuationToken string
	KeyCount, MaxKeys                 int
	IsTruncated                       bool
	Contents                          []struct {
		Key, ETag, StorageClass, ChecksumAlgorithm, ChecksumType string
		Size                                                     int
		LastModified                                             time.Time
		Owner                                                    *struct{ ID string }
	}
	CommonPrefixes []struct{ Prefix string }
}

// names are the keys and common prefixes of a page, in order.
func (l listResult) names() []string {
	var names []string
	for _, c := range l.Contents {
		names = append(names, c.Key)
	}
	for _, p := range l.CommonPrefixes {
		names = append(names, p.Prefix)
	}
	slices.Sort(names)
	return names
}

// naiveList folds every key of a bucket.
func naiveList(keys []string, prefix, delimiter, after string) []string {
	seen := make(map[string]bool)
	var names []string
	for _, key := range keys {
		if !strings.HasPrefix(key, prefix) || key <= after {
			continue
		}
		name := key
		if delimiter != "" {
			if i := strings.Index(key[len(prefix):], delimiter); i >= 0 {
				name = key[:len(prefix)+i+len(delimiter)]
			}
		}
		if !seen[name] && name != after {
			seen[name] = true
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func TestListsAgreeWithANaiveImplementation(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	b := newBench(t)
	pieces := []string{"a", "b", "/", "//", "é", "\U0001F600", "-", "z", "a/", "0"}
	random := func(most int) string {
		var s string
		for range rng.IntN(most + 1) {
			s += pieces[rng.IntN(len(pieces))]
		}
		return s
	}
	live := make(map[string]bool)
	for round := range 60 {
		if round == 30 {
			enableVersioning(b) // from here deletes leave markers, which lists pass over
		}
		for range 10 {
			key := random(5)
			if key == "" {
				continue
			}
			if rng.IntN(3) == 0 {
				b.want(b.do("DELETE", keyPath(key), nil, ""), 204, "")
				delete(live, key)
			} else {
				b.want(b.put(key, "x", nil), 200, "")
				live[key] = true
			}
		}
		var keys []string
		for key := range live {
			keys = append(keys, key)
		}
		prefix, after := random(2), ""
		delimiter := []string{"", "/", "//", "a", "é"}[rng.IntN(5)]
		if rng.IntN(3) == 0 {
			after = random(3)
		}
		limit := 1 + rng.IntN(6)
		want := naiveList(keys, prefix, delimiter, after)
		for _, v2 := range []bool{true, false} {
			if got := b.listAll(v2, prefix, delimiter, after, limit); !slices.Equal(got, want) {
				t.Fatalf("v2=%v prefix %q delimiter %q after %q limit %d:\n got %q\nwant %q\nkeys %q", v2, prefix, delimiter, after, limit, got, want, keys)
			}
		}
	}
}

// listAll pages through a list and checks what every page promises.
func (b *bench) listAll(v2 bool, prefix, delimiter, after string, limit int) []string {
	b.Helper()
	var all []string
	q := url.Values{"prefix": {prefix}, "delimiter": {delimiter}, "max-keys": {fmt.Sprint(limit)}}
	if v2 {
		q.Set("list-type", "2")
		q.Set("start-after", after)
	} else {
		q.Set("marker", after)
	}
	for range 1000 {
		resp := b.do("GET", "/bkt?"+q.Encode(), nil, "")
		b.want(resp, 200, "")
		page := document[listResult](b, resp)
		names := page.names()
		all = append(all, names...)
		if len(names) > limit || v2 && page.KeyCount != len(names) {
			b.Fatalf("page of %d names with KeyCount %d and limit %d", len(names), page.KeyCount, limit)
		}
		if !page.IsTruncated {
			return all
		}
		switch {
		case v2:
			q.Set("continuation-token", page.NextContinuationToken)
		case delimiter != "":
			q.Set("marker", page.NextMarker)
		default:
			q.Set("marker", names[len(names)-1])
		}
	}
	b.Fatal("the list never ends")
	return nil
}

func TestListTellsObjectsApart(t *testing.T) {
	b := newBench(t)
	b.want(b.put("k", "body", headers{"X-Amz-Storage-Class": "STANDARD_IA", "X-Amz-Checksum-Sha256": sha256Sum.of([]byte("body")).value}), 200, "")
	resp := b.do("GET", "/bkt?list-type=2&fetch-owner=true", nil, "")
	c := document[listResult](b, resp).Contents[0]
	if c.ETag != etagOf("body") || c.Size != 4 || c.StorageClass != "STANDARD_IA" || c.ChecksumAlgorithm != "SHA256" ||
		c.ChecksumType != "FULL_OBJECT" || !c.LastModified.Equal(b.clock.Now()) || c.Owner == nil || c.Owner.ID != ownerID {
		t.Errorf("contents %+v", c)
	}
	if c := document[listResult](b, b.do("GET", "/bkt?list-type=2", nil, "")).Contents[0]; c.Owner != nil {
		t.Error("the second version of the list tells owners only when asked")
	}
	if c := document[listResult](b, b.do("GET", "/bkt", nil, "")).Contents[0]; c.Owner == nil {
		t.Error("the first version of the list always tells owners")
	}
}

func TestListParametersAreChecked(t *testing.T) {
	b := newBench(t)
	b.want(b.put("k", "", nil), 200, "")
	for _, query := range []string{"max-keys=-1", "max-keys=x", "max-keys=99999999999", "encoding-type=base64", "continuation-token=zz", "continuation-token="} {
		b.want(b.do("GET", "/bkt?list-type=2&"+query, nil, ""), 400, "InvalidArgument")
	}
	none := document[listResult](b, b.do("GET", "/bkt?list-type=2&max-keys=0", nil, ""))
	if none.IsTruncated || len(none.Contents) != 0 || none.MaxKeys != 0 {
		t.Errorf("max-keys=0: %+v", none)
	}
	if capped := document[listResult](b, b.do("GET", "/bkt?list-type=2&max-keys=5000", nil, "")); capped.MaxKeys != 1000 {
		t.Errorf("max-keys=5000 shows as %d", capped.MaxKeys)
	}
}

func TestSuccessorIsTheLeastStringAboveAPrefix(t *testing.T) {
	for prefix, want := range map[string]string{"a": "b", "a/": "a0", "a\xff": "b", "\xff\xff": "", "": ""} {
		if got := successor(prefix); got != want {
			t.Errorf("successor(%q) = %q, want %q", prefix, got, want)
		}
	}
}
