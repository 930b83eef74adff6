package objects

import "testing"

// TestRanges holds what LocalStack's snapshot tests recorded on AWS for an
// object of ten bytes (test_get_object_range).
func TestRanges(t *testing.T) {
	b := newBench(t)
	b.want(b.put("k", "0123456789", nil), 200, "")
	tests := []struct {
		header string
		status int
		body   string
		region string
	}{
		{"bytes=0-8", 206, "012345678", "bytes 0-8/10"},
		{"bytes=1-1", 206, "1", "bytes 1-1/10"},
		{"bytes=1-0", 200, "0123456789", ""},
		{"bytes=1-", 206, "123456789", "bytes 1-9/10"},
		{"bytes=-1-", 200, "0123456789", ""},
		{"bytes=-2", 206, "89", "bytes 8-9/10"},
		{"bytes=-9", 206, "123456789", "bytes 1-9/10"},
		{"bytes=-15", 206, "0123456789", "bytes 0-9/10"},
		{"bytes=0-100", 206, "0123456789", "bytes 0-9/10"},
		{"bytes=0-0", 206, "0", "bytes 0-0/10"},
		{"bytes=0--1", 200, "0123456789", ""},
		{"bytes=0-1,3-4,7-9", 200, "0123456789", ""},
		{"0-9", 200, "0123456789", ""},
		{"bytes=-", 200, "0123456789", ""},
		{"bytes=99999999999999999999-", 200, "0123456789", ""},
		{"bytes=-0", 416, "", "bytes */10"},
		{"bytes=100-200", 416, "", "bytes */10"},
		{"bytes=10-", 416, "", "bytes */10"},
	}
	for _, tt := range tests {
		resp := b.get("k", headers{"Range": tt.header, "X-Amz-Checksum-Mode": "ENABLED"})
		if resp.Status != tt.status || tt.status != 416 && string(resp.Body) != tt.body || resp.Header.Get("Content-Range") != tt.region {
			t.Errorf("%s: %d %q %q", tt.header, resp.Status, resp.Body, resp.Header.Get("Content-Range"))
		}
		if got, whole := resp.Header.Get("X-Amz-Checksum-Crc64nvme") != "", len(tt.body) == 10; got != whole {
			t.Errorf("%s: the whole object's checksum is shown: %v", tt.header, got)
		}
	}
	resp := b.get("k", headers{"Range": "bytes=50-60"})
	if element(resp, "ActualObjectSize") != "10" || element(resp, "RangeRequested") != "bytes=50-60" {
		t.Errorf("416 document: %s", resp.Body)
	}
	b.want(b.put("empty", "", nil), 200, "")
	b.want(b.get("empty", headers{"Range": "bytes=0-"}), 416, "InvalidRange")
	b.want(b.get("empty", headers{"Range": "bytes=-5"}), 416, "InvalidRange")
	b.want(b.get("empty", nil), 200, "")
	b.want(b.do("GET", "/bkt/k?partNumber=1", headers{"Range": "bytes=0-1"}, ""), 400, "InvalidRequest")
	if resp := b.do("HEAD", "/bkt/k", headers{"Range": "bytes=2-4"}, ""); resp.Status != 206 || resp.Header.Get("Content-Length") != "3" || len(resp.Body) != 0 {
		t.Errorf("HEAD of a range: %d %v", resp.Status, resp.Header)
	}
	if resp := b.do("GET", "/bkt/k?partNumber=1", nil, ""); resp.Status != 206 || string(resp.Body) != "0123456789" || resp.Header.Get("X-Amz-Mp-Parts-Count") != "" {
		t.Errorf("part 1 of a plain object: %d %v", resp.Status, resp.Header)
	}
	b.want(b.do("GET", "/bkt/empty?partNumber=1", nil, ""), 200, "")
}
