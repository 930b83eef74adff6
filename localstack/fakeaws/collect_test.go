package fakeaws_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	ddbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"drawbridge/localstack/fakeaws"
	"drawbridge/localstack/fakeaws/objects"
)

// A hoard is a server with a table that has a time to live and a versioned
// bucket with lifecycle rules, at a time that the test sets.
type hoard struct {
	t       *testing.T
	server  *fakeaws.Server
	now     time.Time
	tables  *dynamodb.Client
	buckets *s3.Client
}

func openHoard(t *testing.T, dir string, now time.Time) *hoard {
	t.Helper()
	h := &hoard{t: t, now: now}
	var err error
	h.server, err = fakeaws.Open(fakeaws.Options{Dir: dir, Clock: func() time.Time { return h.now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.server.Close() })
	cfg := h.server.Config()
	h.tables = dynamodb.NewFromConfig(cfg)
	h.buckets = s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	return h
}

func (h *hoard) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *hoard) create() {
	h.t.Helper()
	ctx := h.t.Context()
	_, err := h.tables.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: aws.String("table"), BillingMode: ddbtypes.BillingModePayPerRequest,
		AttributeDefinitions: []ddbtypes.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: "S"}},
		KeySchema:            []ddbtypes.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: "HASH"}},
	})
	h.must(err)
	_, err = h.tables.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{TableName: aws.String("table"),
		TimeToLiveSpecification: &ddbtypes.TimeToLiveSpecification{AttributeName: aws.String("ttl"), Enabled: aws.Bool(true)}})
	h.must(err)
	_, err = h.buckets.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String("bucket")})
	h.must(err)
	_, err = h.buckets.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{Bucket: aws.String("bucket"),
		VersioningConfiguration: &s3types.VersioningConfiguration{Status: s3types.BucketVersioningStatusEnabled}})
	h.must(err)
	_, err = h.buckets.PutBucketLifecycleConfiguration(ctx, &s3.PutBucketLifecycleConfigurationInput{Bucket: aws.String("bucket"),
		LifecycleConfiguration: &s3types.BucketLifecycleConfiguration{Rules: []s3types.LifecycleRule{{
			ID: aws.String("forget"), Status: s3types.ExpirationStatusEnabled,
			Filter:                      &s3types.LifecycleRuleFilter{Prefix: aws.String("")},
			Expiration:                  &s3types.LifecycleExpiration{ExpiredObjectDeleteMarker: aws.Bool(true)},
			NoncurrentVersionExpiration: &s3types.NoncurrentVersionExpiration{NoncurrentDays: aws.Int32(1)},
		}}}})
	h.must(err)
}

// write puts an item that expires in an hour, and an object twice, which it
// removes.
func (h *hoard) write(name string, body []byte) {
	h.t.Helper()
	ctx := h.t.Context()
	ttl := fmt.Sprint(h.now.Add(time.Hour).Unix())
	_, err := h.tables.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String("table"), Item: map[string]ddbtypes.AttributeValue{
		"pk": &ddbtypes.AttributeValueMemberS{Value: name}, "ttl": &ddbtypes.AttributeValueMemberN{Value: ttl},
		"body": &ddbtypes.AttributeValueMemberB{Value: body},
	}})
	h.must(err)
	for range 2 {
		_, err = h.buckets.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String("bucket"), Key: &name, Body: bytes.NewReader(body)})
		h.must(err)
	}
	_, err = h.buckets.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: aws.String("bucket"), Key: &name})
	h.must(err)
}

func (h *hoard) collect(want fakeaws.Collection) {
	h.t.Helper()
	if got, err := h.server.Collect(h.t.Context()); got != want || err != nil {
		h.t.Fatalf("collected %+v, %v, want %+v", got, err, want)
	}
}

// counts tells the items and the versions, markers among them.
func (h *hoard) counts() (items, versions int) {
	h.t.Helper()
	scan, err := h.tables.Scan(h.t.Context(), &dynamodb.ScanInput{TableName: aws.String("table")})
	h.must(err)
	list, err := h.buckets.ListObjectVersions(h.t.Context(), &s3.ListObjectVersionsInput{Bucket: aws.String("bucket")})
	h.must(err)
	return int(scan.Count), len(list.Versions) + len(list.DeleteMarkers)
}

func TestCollectTakesAwayWhatHasExpiredAndForGood(t *testing.T) {
	dir := t.TempDir()
	h := openHoard(t, dir, time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC))
	h.create()
	for i := range 3 {
		h.write(fmt.Sprint("x", i), []byte("body"))
	}
	h.collect(fakeaws.Collection{})
	if items, versions := h.counts(); items != 3 || versions != 9 {
		t.Fatalf("before: %d items, %d versions", items, versions)
	}
	before := h.server.Meter().Total().Requests
	h.now = h.now.Add(48 * time.Hour)
	h.write("young", []byte("body"))
	h.collect(fakeaws.Collection{Items: 3, Objects: objects.Collection{Old: 6, Markers: 3}})
	h.collect(fakeaws.Collection{})
	if n := h.server.Meter().Total().Requests - before; n != 4 {
		t.Errorf("the meter counts %d requests beside the four of a write", n-4)
	}
	h.must(h.server.Close())
	if _, err := h.server.Collect(t.Context()); err == nil {
		t.Error("a closed server collects")
	}
	h = openHoard(t, dir, h.now)
	if items, versions := h.counts(); items != 1 || versions != 3 {
		t.Errorf("after a restart: %d items, %d versions", items, versions)
	}
	h.now = h.now.Add(48 * time.Hour) // the rules are there too
	h.collect(fakeaws.Collection{Items: 1, Objects: objects.Collection{Old: 2, Markers: 1}})
}

func TestACollectionEndsWithItsContext(t *testing.T) {
	h := openHoard(t, "", time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC))
	h.create()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.server.Collect(ended); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("got %v", err)
	}
}

// The store gives the room of what was collected to what comes later: the file
// of a hub that writes and forgets for months is as large as that of its busiest
// days.
func TestTheFileOfAHubThatForgetsDoesNotGrow(t *testing.T) {
	const rounds, writes, bodySize = 12, 8, 256 << 10
	dir := t.TempDir()
	h := openHoard(t, dir, time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC))
	h.create()
	body := bytes.Repeat([]byte("drawbridge"), bodySize/10)
	var sizes []int64
	for round := range rounds {
		for i := range writes {
			h.write(fmt.Sprintf("%d-%d", round, i), body)
		}
		h.now = h.now.Add(72 * time.Hour)
		h.collect(fakeaws.Collection{Items: writes, Objects: objects.Collection{Old: 2 * writes, Markers: writes}})
		sizes = append(sizes, fileSize(t, dir))
	}
	// Three copies of each body are there at once; bbolt frees pages one
	// transaction late and doubles the file while it is small. Both logs are full by
	// then.
	if last, settled := sizes[rounds-1], sizes[4]; last > settled+settled/16 { // how groups fall into a log differs
		t.Errorf("the file grows: %d", sizes)
	}
	t.Logf("%d bytes in all were written; the file has %d", rounds*writes*3*len(body), sizes[rounds-1])
}

func fileSize(t *testing.T, dir string) int64 {
	t.Helper()
	var total int64
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	return total
}
