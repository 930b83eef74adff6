package main

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"drawbridge/core"
	"drawbridge/core/coretest"
	"drawbridge/localstack/fakeaws"
	"drawbridge/localstack/provision"
	"drawbridge/s3queue"
)

func TestAHubCollectsEveryMinute(t *testing.T) {
	for _, c := range []struct {
		name    string
		collect func() error
	}{
		{"as it should", func() error { return nil }},
		{"after an error", func() error { return errors.New("disk full") }},
		{"after a panic", func() error { panic("broken") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				var at []time.Duration
				k := &collector{log: slog.New(slog.DiscardHandler), collect: func(context.Context) (fakeaws.Collection, error) {
					at = append(at, time.Since(begun))
					return fakeaws.Collection{Items: 1}, c.collect()
				}}
				ctx, cancel := context.WithCancel(t.Context())
				k.start(ctx)
				time.Sleep(3*time.Minute + time.Second)
				cancel()
				k.wait()
				want := []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute}
				if !slices.Equal(at, want) {
					t.Errorf("collected at %v, want %v", at, want)
				}
			})
		})
	}
}

func TestWhereNothingIsCollectedNothingRuns(t *testing.T) {
	k := &collector{}
	k.start(t.Context())
	k.wait()
}

func TestACollectionIsToldWhenItTookSomethingAndWhenItFailed(t *testing.T) {
	for _, c := range []struct {
		name string
		took fakeaws.Collection
		err  error
		want string
	}{
		{"nothing", fakeaws.Collection{}, nil, ""},
		{"something", fakeaws.Collection{Items: 7}, nil, "items=7"},
		{"a failure", fakeaws.Collection{}, errors.New("disk full"), "disk full"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var said strings.Builder
			k := &collector{log: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug})),
				collect: func(context.Context) (fakeaws.Collection, error) { return c.took, c.err }}
			k.once(t.Context())
			if got := said.String(); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("said %q, want %q", got, c.want)
			}
		})
	}
}

// A hub gives its bucket the rules of the template: also one of before, which had
// none.
func TestAHubOfBeforeGetsTheLifecycleRulesAtItsNextStart(t *testing.T) {
	folder, want := t.TempDir(), projectTemplate(t).Buckets[0]
	for start := range 2 {
		p := prepare(t, folder).begin()
		e, err := openEndpoint(t.Context(), p.aws, func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		out, err := e.s3().GetBucketLifecycleConfiguration(t.Context(), &s3.GetBucketLifecycleConfigurationInput{Bucket: &want.Name})
		if err != nil || !reflect.DeepEqual(out.Rules, want.Lifecycle) {
			t.Fatalf("start %d: %v, and\n%+v", start, err, out)
		}
		if _, err := e.s3().DeleteBucketLifecycle(t.Context(), &s3.DeleteBucketLifecycleInput{Bucket: &want.Name}); err != nil {
			t.Fatal(err)
		}
		p.kill()
	}
}

func TestTheLifecycleOfABucketElsewhereIsLeftAloneUnlessTheHubMadeIt(t *testing.T) {
	bucket := projectTemplate(t).Buckets[0]
	for _, c := range []struct {
		name    string
		made    bool
		refuses bool
		rules   int
		says    string
	}{
		{"made by this start", true, false, len(bucket.Lifecycle), ""},
		{"there before", false, false, 0, ""},
		{"of a server without lifecycle rules", true, true, 0, "takes no lifecycle rules"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, err := fakeaws.Open(fakeaws.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Close() })
			client := newS3(server.Config())
			if _, err := provision.Bucket(t.Context(), client, bucket.Name); err != nil {
				t.Fatal(err)
			}
			if c.refuses {
				server.Faults().Add(fakeaws.Rule{Op: "PutBucketLifecycleConfiguration", Action: fakeaws.Error(501, "NotImplemented")})
			}
			var said strings.Builder
			h := &hub{log: slog.New(slog.NewTextHandler(&said, nil))}
			if err := h.declareLifecycle(t.Context(), client, bucket, c.made); err != nil {
				t.Fatal(err)
			}
			rules := 0
			out, err := client.GetBucketLifecycleConfiguration(t.Context(), &s3.GetBucketLifecycleConfigurationInput{Bucket: &bucket.Name})
			if err == nil { // an error: it has none
				rules = len(out.Rules)
			}
			if rules != c.rules {
				t.Errorf("%d rules, want %d (%v)", rules, c.rules, err)
			}
			if got := said.String(); (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
				t.Errorf("said %q, want %q", got, c.says)
			}
		})
	}
}

// An archive is a queue in a versioned bucket with the template's rules, as it is
// deployed.
type archive struct {
	t      *testing.T
	clock  *coretest.Clock
	aws    *fakeaws.Server
	s3     *s3.Client
	bucket string
	queue  *s3queue.Queue
}

func openArchive(t *testing.T) *archive {
	t.Helper()
	a := &archive{t: t, clock: coretest.NewClock(), bucket: projectTemplate(t).Buckets[0].Name}
	var err error
	a.aws, err = fakeaws.Open(fakeaws.Options{Clock: a.clock.Now})
	a.must(err)
	t.Cleanup(func() { _ = a.aws.Close() })
	a.s3 = newS3(a.aws.Config())
	_, err = provision.Bucket(t.Context(), a.s3, a.bucket)
	a.must(err)
	a.must(provision.Lifecycle(t.Context(), a.s3, projectTemplate(t).Buckets[0]))
	_, err = a.s3.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{Bucket: &a.bucket,
		VersioningConfiguration: &s3types.VersioningConfiguration{Status: s3types.BucketVersioningStatusEnabled}})
	a.must(err)
	a.queue = s3queue.New(s3queue.Config{S3: a.s3, Bucket: a.bucket, Settings: core.DefaultArchiveSettings(),
		Clock: a.clock, IDs: core.NewIDs(a.clock, rand.Reader)})
	return a
}

func (a *archive) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *archive) enqueue(path string) core.ArchiveJob {
	a.t.Helper()
	out := a.queue.Enqueue(a.t.Context(), []core.ArchiveRequest{{Event: "stop", ArchiveObservation: core.ArchiveObservation{
		Agent: "claude", SourcePath: path, SourceBytes: 1, SourceModifiedAt: core.InstantOf(a.clock.Now())}}})[0]
	a.must(out.Err)
	return out.Job
}

// work brings a job through leases and failures to its end: each of its writes
// replaces the version before.
func (a *archive) work() {
	a.t.Helper()
	ctx := a.t.Context()
	claim := func() core.ArchiveJob {
		a.t.Helper()
		got, err := a.queue.Claim(ctx, core.ArchiveClaim{Owner: "w", Max: 1})
		a.must(err)
		if len(got.Jobs) != 1 {
			a.t.Fatalf("claimed %d jobs", len(got.Jobs))
		}
		return got.Jobs[0]
	}
	job := claim()
	for range 5 {
		_, err := a.queue.Renew(ctx, job.ID, job.Lease.ID)
		a.must(err)
	}
	_, err := a.queue.Release(ctx, job.ID, job.Lease.ID, nil)
	a.must(err)
	job = claim()
	_, err = a.queue.Complete(ctx, core.ArchiveCompletion{ID: job.ID, LeaseID: job.Lease.ID,
		Result: core.ArchiveResult{ArchiveID: "a", CiphertextSHA256: "c", Bytes: 1}})
	a.must(err)
}

func (a *archive) collect() {
	a.t.Helper()
	_, err := a.aws.Collect(a.t.Context())
	a.must(err)
}

// An inventory is what a bucket holds: the ETag of each current object, and how
// many old versions and delete markers there are by prefix.
type inventory struct {
	objects map[string]string
	old     map[string]int
	markers map[string]int
}

func (a *archive) inventory() inventory {
	a.t.Helper()
	got := inventory{objects: map[string]string{}, old: map[string]int{}, markers: map[string]int{}}
	pages := s3.NewListObjectVersionsPaginator(a.s3, &s3.ListObjectVersionsInput{Bucket: &a.bucket})
	for pages.HasMorePages() {
		page, err := pages.NextPage(a.t.Context())
		a.must(err)
		for _, v := range page.Versions {
			if aws.ToBool(v.IsLatest) {
				got.objects[*v.Key] = *v.ETag
			} else {
				got.old[prefixOf(*v.Key)]++
			}
		}
		for _, m := range page.DeleteMarkers {
			got.markers[prefixOf(*m.Key)]++
		}
	}
	return got
}

func prefixOf(key string) string {
	prefix, _, _ := strings.Cut(key, "/")
	return prefix + "/"
}

func TestAHubForgetsWhatTheTemplateSaysAndNoJob(t *testing.T) {
	const day = 24 * time.Hour
	a := openArchive(t)
	for _, path := range []string{"/t/a", "/t/b", "/t/c"} {
		a.enqueue(path)
		a.work()
	}
	waiting := a.enqueue("/t/waiting")
	removed := a.enqueue("/t/removed")
	_, err := a.queue.Remove(t.Context(), removed.ID)
	a.must(err)
	_, err = a.s3.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &a.bucket, Key: aws.String("payload/m1"), Body: strings.NewReader("{}")})
	a.must(err)
	_, err = a.s3.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: &a.bucket, Key: aws.String("payload/m2")})
	a.must(err)
	stats, err := a.queue.Stats(t.Context())
	a.must(err)

	before := a.inventory()
	if before.old["jobs/"] < 20 || before.markers["open/"] == 0 || before.old["open/"] == 0 {
		t.Fatalf("there is little to forget: %+v", before)
	}
	a.clock.Advance(3 * day) // the index's day is over, the jobs' 30 days are not
	a.collect()
	early := a.inventory()
	if early.old["open/"]+early.old["source/"]+early.markers["open/"]+early.markers["source/"] != 0 || early.old["jobs/"] != before.old["jobs/"] {
		t.Errorf("after 3 days: old %v, markers %v", early.old, early.markers)
	}
	if !maps.Equal(early.objects, before.objects) {
		t.Errorf("after 3 days the objects are %v, before %v", early.objects, before.objects)
	}
	uploads, err := a.s3.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: &a.bucket})
	if err != nil || len(uploads.Uploads) != 0 {
		t.Errorf("uploads after 3 days: %v, %v", uploads.Uploads, err)
	}

	for range 400 { // more than a year, day by day
		a.clock.Advance(day)
		a.collect()
	}
	late := a.inventory()
	delete(before.objects, "payload/m1")
	if len(late.old) != 0 || late.markers["payload/"] != 0 || !maps.Equal(late.objects, before.objects) {
		t.Errorf("after a year: old %v, markers %v, objects %v, before %v", late.old, late.markers, late.objects, before.objects)
	}
	if got, err := a.queue.Stats(t.Context()); err != nil || !reflect.DeepEqual(got, stats) {
		t.Errorf("the queue counts %+v, %v, before %+v", got, err, stats)
	}
	if got, err := a.queue.Get(t.Context(), waiting.ID); err != nil || got.Status != waiting.Status {
		t.Errorf("the job that waits: %+v, %v", got, err)
	}
	a.work() // of the job that waits
}
