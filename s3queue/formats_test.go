package s3queue

import (
	"encoding/json"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"drawbridge/core"
)

// The corpus holds what each released format wrote: a bucket with a job in every
// state, its index keys, metadata and roll-up. A release that writes otherwise adds
// a file; none is ever changed, because buckets are not either.
//
//	go test ./s3queue -run Format -update=v2
var update = flag.String("update", "", "write what today's code stores into testdata/formats/<name>.json")

const formatsFolder = "testdata/formats"

// A storedObject is one object of a corpus.
type storedObject struct {
	Key      string            `json:"key"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Body     string            `json:"body,omitempty"`
}

// A corpus is one file of it.
type corpus struct {
	WrittenAt core.Instant      `json:"written_at_ms"`
	Leases    map[string]string `json:"leases"` // lease ids by path
	Objects   []storedObject    `json:"objects"`
}

// A ledger is a queue in which a job gets into every state.
type ledger struct {
	*bed
	q      *Queue
	leases map[string]string
}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	b := newEmbedded(t)
	return &ledger{bed: b, q: b.queue(b.config.HTTPClient), leases: map[string]string{}}
}

func (l *ledger) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// ask enqueues a state of a file by its path's name; n orders the states.
func (l *ledger) ask(name string, n int) core.ArchiveJob {
	l.t.Helper()
	return l.enqueue(l.q, request(name, n))
}

// work claims the job of a file, if it can be had.
func (l *ledger) work(name string) core.ArchiveJob {
	l.t.Helper()
	claimed, err := l.q.Claim(l.t.Context(), core.ArchiveClaim{Owner: "worker", Max: 1, PathPrefix: request(name, 1).SourcePath})
	l.must(err)
	if len(claimed.Jobs) == 0 {
		return core.ArchiveJob{}
	}
	l.leases[name] = claimed.Jobs[0].Lease.ID
	return claimed.Jobs[0]
}

func (l *ledger) finish(name string) error {
	_, err := l.q.Complete(l.t.Context(), core.ArchiveCompletion{
		ID: request(name, 1).JobID(), LeaseID: l.leases[name],
		Result: core.ArchiveResult{ArchiveID: "archive", CiphertextSHA256: "00", Bytes: 9, Deduplicated: core.Some(true)},
	})
	return err
}

// broken is why jobs of the corpus fail.
var broken = core.ArchiveFailure{Code: "io", Message: "the disk is full"}

// write brings a job into every state that one can rest in.
func (l *ledger) write() {
	l.t.Helper()
	ctx := l.t.Context()
	for _, name := range []string{"crashed", "spent"} {
		l.ask(name, 1)
		for range l.q.settings.MaxAttempts {
			job := l.work(name)
			if name == "spent" {
				_, err := l.q.Fail(ctx, job.ID, job.Lease.ID, broken)
				l.must(err)
			}
			l.clock.Advance(time.Hour)
		}
	}
	l.sweep(l.q) // dead-letters the crash loop
	for _, name := range []string{"done", "leased", "progressed", "released", "failing", "lapsed"} {
		l.ask(name, 1)
		l.work(name)
	}
	l.must(l.finish("done"))
	l.sweep(l.q) // counts it
	_, err := l.q.Progress(ctx, request("progressed", 1).JobID(), l.leases["progressed"], core.ArchiveProgress{Bytes: 3, Of: 9})
	l.must(err)
	_, err = l.q.Release(ctx, request("released", 1).JobID(), l.leases["released"], &broken)
	l.must(err)
	l.clock.Advance(l.q.settings.Lease)
	for _, name := range []string{"leased", "progressed", "failing"} {
		_, err := l.q.Renew(ctx, request(name, 1).JobID(), l.leases[name])
		l.must(err)
	}
	_, err = l.q.Fail(ctx, request("failing", 1).JobID(), l.leases["failing"], broken)
	l.must(err)
	l.ask("file", 1)
	l.ask("file", 2) // retires the first
	manual := request("manual", 1)
	manual.Event, manual.SessionID = core.ArchiveManual, core.Some("session")
	l.enqueue(l.q, manual)
	l.put(jobKey(damagedJob), []byte("{"))
	_, err = l.q.Reindex(ctx)
	l.must(err)
}

// damagedJob is the name of a document that cannot be read.
var damagedJob = strings.Repeat("d", 64)

// snapshot reads the whole bucket.
func (l *ledger) snapshot() corpus {
	l.t.Helper()
	c := corpus{WrittenAt: core.InstantOf(l.clock.Now()), Leases: l.leases}
	for _, key := range l.keys("") {
		got, err := l.s3.GetObject(l.t.Context(), &s3.GetObjectInput{Bucket: &l.bucket, Key: &key})
		l.must(err)
		body, err := io.ReadAll(got.Body)
		l.must(err)
		l.must(got.Body.Close())
		c.Objects = append(c.Objects, storedObject{Key: key, Metadata: got.Metadata, Body: string(body)})
	}
	return c
}

// restore puts a corpus into a new bucket, at the time it was written.
func (c corpus) restore(t *testing.T) *ledger {
	t.Helper()
	l := newLedger(t)
	l.leases = c.Leases
	l.clock.Advance(c.WrittenAt.Sub(core.InstantOf(l.clock.Now())))
	for _, o := range c.Objects {
		_, err := l.s3.PutObject(t.Context(), &s3.PutObjectInput{
			Bucket: &l.bucket, Key: &o.Key, Metadata: o.Metadata, Body: strings.NewReader(o.Body),
		})
		l.must(err)
	}
	return l
}

func readCorpora(t *testing.T) map[string]corpus {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(formatsFolder, "*.json"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no corpus in %s: %v", formatsFolder, err)
	}
	corpora := map[string]corpus{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var c corpus
		if err := json.Unmarshal(text, &c); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		corpora[strings.TrimSuffix(filepath.Base(name), ".json")] = c
	}
	return corpora
}

// varying is what differs from key to key: times, ids, nonces.
var varying = regexp.MustCompile(`\d{8}T\d{6}\.\d{3}Z|[0-9a-f]{64}|[0-9a-f]{32}|\d+`)

// shapes lists what a format writes: the forms of keys, names of metadata, and
// members of documents with their types.
func (c corpus) shapes(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, o := range c.Objects {
		form := varying.ReplaceAllString(o.Key, "*")
		all[form] = true
		for name, value := range o.Metadata {
			all[form+" metadata "+name+" "+varying.ReplaceAllString(strings.Fields(value + " -")[0], "*")] = true
		}
		var document map[string]any
		if json.Unmarshal([]byte(o.Body), &document) == nil {
			addShapes(all, form, document)
		}
	}
	return all
}

func addShapes(all map[string]bool, at string, document map[string]any) {
	for name, value := range document {
		switch value := value.(type) {
		case map[string]any:
			addShapes(all, at+"."+name, value)
		case string:
			all[at+"."+name+" text"] = true
		case float64:
			all[at+"."+name+" number"] = true
		default:
			all[at+"."+name] = true
		}
	}
}

// TestTodaysObjectsHaveTheNewestFormat compares what today's code stores with
// what the newest format holds.
func TestTodaysObjectsHaveTheNewestFormat(t *testing.T) {
	l := newLedger(t)
	l.write()
	today := l.snapshot()
	if *update != "" {
		writeCorpus(t, today)
	}
	corpora := readCorpora(t)
	newest := slices.Max(slices.Collect(maps.Keys(corpora)))
	known, written := corpora[newest].shapes(t), today.shapes(t)
	for shape := range written {
		if !known[shape] {
			t.Errorf("%s is written, and %s has none: see docs/design.md, Stored formats", shape, newest)
		}
	}
	for shape := range known {
		if !written[shape] {
			t.Errorf("%s of %s is not written any more: see docs/design.md, Stored formats", shape, newest)
		}
	}
}

func writeCorpus(t *testing.T, c corpus) {
	t.Helper()
	text, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(formatsFolder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(formatsFolder, *update+".json"), append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (l *ledger) wantCode(err error, want core.Code) {
	l.t.Helper()
	if core.CodeOf(err) != want {
		l.t.Errorf("error is %v, want %q", err, want)
	}
}

func (l *ledger) stands(name string, want core.ArchiveStatus) core.ArchiveJob {
	l.t.Helper()
	job, err := l.q.Get(l.t.Context(), request(name, 1).JobID())
	if err != nil || job.Status != want {
		l.t.Errorf("%s reads %+v, %v, want %s", name, job, err, want)
	}
	return job
}

// TestEveryFormatIsReadFencedAndSwept restores what each released format wrote
// and goes on with it as if nothing had happened.
func TestEveryFormatIsReadFencedAndSwept(t *testing.T) {
	for name, c := range readCorpora(t) {
		for _, part := range []struct {
			name  string
			check func(l *ledger)
		}{
			{"read and counted", (*ledger).checkRead},
			{"worked on under its lease", (*ledger).checkHeld},
			{"claimed again", (*ledger).checkClaimed},
			{"swept", (*ledger).checkSwept},
		} {
			t.Run(name+"/"+part.name, func(t *testing.T) { part.check(c.restore(t)) })
		}
	}
}

func (l *ledger) checkRead() {
	for name, want := range map[string]core.ArchiveStatus{
		"crashed": core.ArchiveFailed, "spent": core.ArchiveFailed, "done": core.ArchiveDone, "leased": core.ArchiveLeased,
		"progressed": core.ArchiveLeased, "released": core.ArchiveReady, "failing": core.ArchiveReady, "lapsed": core.ArchiveLeased,
		"file": core.ArchiveDone, "manual": core.ArchiveReady,
	} {
		l.stands(name, want)
	}
	if job := l.stands("crashed", core.ArchiveFailed); job.LastError == nil || job.LastError.Code != core.ArchiveLeaseExhausted {
		l.t.Errorf("the crash loop reads %+v", job)
	}
	if job := l.stands("spent", core.ArchiveFailed); job.LastError == nil || job.LastError.Message != broken.Message {
		l.t.Errorf("the failed job reads %+v", job)
	}
	if job := l.stands("done", core.ArchiveDone); job.Result == nil || job.Result.Bytes != 9 || !job.Result.Deduplicated.Value {
		l.t.Errorf("the result reads %+v", job.Result)
	}
	if job := l.stands("progressed", core.ArchiveLeased); job.Progress == nil || job.Progress.Bytes != 3 {
		l.t.Errorf("the progress reads %+v", job.Progress)
	}
	if job := l.stands("file", core.ArchiveDone); job.SupersededBy != request("file", 2).JobID() {
		l.t.Errorf("the superseded job reads %+v", job)
	}
	if job := l.stands("manual", core.ArchiveReady); job.SessionID.Value != "session" || job.Event != core.ArchiveManual {
		l.t.Errorf("the manual job reads %+v", job)
	}
	stats, err := l.q.Stats(l.t.Context())
	l.must(err)
	if stats.Ready != 4 || stats.Leased != 3 || stats.Completed != 1 || stats.Superseded != 1 || stats.Failed != 2 || !stats.Claimable ||
		!slices.Equal(stats.Damaged, []string{damagedJob}) {
		l.t.Errorf("the counts are %+v", stats)
	}
	_, err = l.q.Get(l.t.Context(), damagedJob)
	l.wantCode(err, core.CodeQueueJobDamaged)
	page, err := l.q.List(l.t.Context(), core.ArchiveQuery{Limit: 100})
	l.must(err)
	if len(page.Jobs) != 11 {
		l.t.Errorf("the list has %d jobs", len(page.Jobs))
	}
	if again := l.ask("done", 1); again.Status != core.ArchiveDone {
		l.t.Errorf("enqueued again it is %+v", again)
	}
}

func (l *ledger) checkHeld() {
	ctx := l.t.Context()
	l.must(l.finish("done")) // it repeats itself
	l.must(l.finish("leased"))
	_, err := l.q.Renew(ctx, request("lapsed", 1).JobID(), l.leases["lapsed"]) // nobody has claimed it
	l.must(err)
	_, err = l.q.Fail(ctx, request("progressed", 1).JobID(), l.leases["progressed"], broken)
	l.must(err)
	_, err = l.q.Renew(ctx, request("released", 1).JobID(), l.leases["released"])
	l.wantCode(err, core.CodeQueueLeaseInvalid)
	l.wantCode(l.finish("crashed"), core.CodeQueueLeaseInvalid)
	for _, name := range []string{"crashed", "failing"} {
		_, err = l.q.Retry(ctx, request(name, 1).JobID())
		l.must(err)
		l.work(name)
		l.must(l.finish(name))
	}
	_, err = l.q.Remove(ctx, request("spent", 1).JobID())
	l.must(err)
	_, err = l.q.Remove(ctx, request("done", 1).JobID())
	l.wantCode(err, core.CodeQueueJobDone)
}

func (l *ledger) checkClaimed() {
	former := maps.Clone(l.leases)
	if job := l.work("lapsed"); job.Attempts != 2 {
		l.t.Errorf("the lapsed job is claimed as %+v", job)
	}
	_, err := l.q.Renew(l.t.Context(), request("lapsed", 1).JobID(), former["lapsed"])
	l.wantCode(err, core.CodeQueueLeaseInvalid)
	for _, name := range []string{"leased", "failing", "spent", "crashed", "done"} {
		if job := l.work(name); job.ID != "" {
			l.t.Errorf("%s is claimed as %+v", name, job)
		}
	}
	l.clock.Advance(l.q.settings.MaxBackoff + time.Hour)
	for name, attempts := range map[string]int64{"released": 1, "failing": 2, "leased": 2, "progressed": 2, "manual": 1, "file": 1} {
		if job := l.work(name); job.Attempts != attempts {
			l.t.Errorf("%s is claimed as %+v", name, job)
		}
	}
}

func (l *ledger) checkSwept() {
	for range l.q.settings.MaxAttempts - 1 {
		l.clock.Advance(time.Hour)
		l.work("lapsed")
	}
	l.clock.Advance(time.Hour)
	l.put(jobKey(damagedJob), core.EncodeArchiveJob(func() core.ArchiveJob {
		job := core.NewArchiveJob(request("mended", 1), l.q.now())
		job.ID = damagedJob
		return job
	}()))
	swept := l.sweep(l.q)
	if swept.DeadLettered != 1 || swept.Healed != 1 {
		l.t.Errorf("the sweep does %+v", swept)
	}
	if job := l.stands("lapsed", core.ArchiveFailed); job.LastError == nil || job.LastError.Code != core.ArchiveLeaseExhausted {
		l.t.Errorf("the crash loop reads %+v", job)
	}
}

// TestWhatALaterReleaseAddsIsKept marks every document as a later release might:
// no transition drops what it does not know.
func TestWhatALaterReleaseAddsIsKept(t *testing.T) {
	const addition = `"fromTheFuture":{"a": [1, 2.50, "\u00e9"]}`
	for _, c := range readCorpora(t) {
		for _, check := range []func(*ledger){(*ledger).checkHeld, (*ledger).checkClaimed, (*ledger).checkSwept} {
			marked := c
			marked.Objects = slices.Clone(c.Objects)
			for i, o := range marked.Objects {
				if strings.HasPrefix(o.Key, jobPrefix) && o.Body != "{" {
					marked.Objects[i].Body = "{" + addition + "," + o.Body[1:]
				}
			}
			l := marked.restore(t)
			check(l)
			for _, o := range l.snapshot().Objects {
				if strings.HasPrefix(o.Key, jobPrefix) && o.Key != jobKey(damagedJob) && !strings.Contains(o.Body, addition) {
					t.Errorf("%s lost what was added: %s", o.Key, o.Body)
				}
			}
		}
	}
}

// TestJobFilesOfTheReferenceToolAreWorkedOn imports a committed folder of job
// files as the reference tool writes them, works on them, and exports them: what
// a transition does not change stays byte for byte.
func TestJobFilesOfTheReferenceToolAreWorkedOn(t *testing.T) {
	given := files{}
	names, err := filepath.Glob(filepath.Join(formatsFolder, "reference", "*.json"))
	if err != nil || len(names) != 5 {
		t.Fatalf("the folder holds %v, %v", names, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		given[filepath.Base(name)] = string(text)
	}
	l := newLedger(t)
	copied, err := l.q.Import(t.Context(), given.all)
	if err != nil || copied.Jobs != len(given) || len(copied.Damaged) > 0 {
		t.Fatalf("imported %+v, %v", copied, err)
	}
	if got, _ := l.export(l.q); !maps.Equal(got, given) {
		t.Fatalf("exported %v", got)
	}
	stats, err := l.q.Stats(t.Context())
	if err != nil || stats.Ready != 1 || stats.Leased != 1 || stats.Completed != 1 || stats.Superseded != 1 || stats.Failed != 1 {
		t.Fatalf("the counts are %+v, %v", stats, err)
	}
	claimed, err := l.q.Claim(t.Context(), core.ArchiveClaim{Owner: "worker", Max: 5})
	if err != nil || len(claimed.Jobs) != 2 { // the ready one, and one whose lease has lapsed
		t.Fatalf("claimed %+v, %v", claimed, err)
	}
	for _, job := range claimed.Jobs {
		_, err := l.q.Complete(t.Context(), core.ArchiveCompletion{
			ID: job.ID, LeaseID: job.Lease.ID, Result: core.ArchiveResult{ArchiveID: "a", CiphertextSHA256: "00", Bytes: 1},
		})
		l.must(err)
	}
	got, _ := l.export(l.q)
	worked := map[string]bool{}
	for _, job := range claimed.Jobs {
		worked[job.ID+jobSuffix] = true
	}
	for name, content := range given {
		switch {
		case !worked[name] && got[name] != content:
			t.Errorf("%s changed to %s", name, got[name])
		case worked[name] && !strings.Contains(got[name], `"tool":{"name": "reference", "pid": 4711, "ratio": 2.50}`):
			t.Errorf("%s lost what nobody here knows: %s", name, got[name])
		}
	}
}
