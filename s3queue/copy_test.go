package s3queue

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"drawbridge/core"
)

// files is a folder of job files.
type files map[string]string

func (f files) all(yield func(string, []byte) bool) {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if !yield(name, []byte(f[name])) {
			return
		}
	}
}

func (b *bed) export(q *Queue) (files, Copied) {
	b.t.Helper()
	got := files{}
	var mu sync.Mutex
	copied, err := q.Export(b.t.Context(), func(name string, document []byte) error {
		mu.Lock()
		defer mu.Unlock()
		got[name] = string(document)
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return got, copied
}

// jobFile is a file as another tool writes it: indented, in another order, with
// fields that we do not know.
func jobFile(j core.ArchiveJob) (name, content string) {
	doc := string(core.EncodeArchiveJob(j))
	doc = strings.Replace(doc, `{"version":1,`, "{\n  \"x-tool\": {\"a\": [1, 2.50, \"\\u00e9\"]},\n  \"version\": 1,", 1)
	return j.ID + ".json", strings.Replace(doc, `"owner":`, `"host": "h", "owner":`, 1) + "\n"
}

func TestJobFilesAreImportedAndExportedByteForByte(t *testing.T) {
	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	now := q.now()
	ready := core.NewArchiveJob(request("x", 1), now)
	leased := core.NewArchiveJob(request("y", 1), now).Claimed("w", "lease é", time.Minute, now)
	done, err := leased.Completed("lease é", core.ArchiveResult{ArchiveID: "a", CiphertextSHA256: "c"}, now.Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	done.ID, done.SourcePath = strings.Repeat("ab", 32), "/t/z"
	want := files{}
	for _, j := range []core.ArchiveJob{ready, leased, done} {
		name, content := jobFile(j)
		want[name] = content
	}
	given := maps.Clone(want)
	given[strings.Repeat("c", 64)+".json"] = "{"
	given["notes.txt"] = "hello"

	copied, err := q.Import(t.Context(), given.all)
	if err != nil || copied.Jobs != 3 || len(copied.Damaged) != 2 || copied.Damaged[1].Name != "notes.txt" {
		t.Fatalf("imported %+v, %v", copied, err)
	}
	got, exported := b.export(q)
	if !maps.Equal(got, want) || exported.Jobs != 3 {
		t.Fatalf("exported %v, want %v", got, want)
	}
	copied, err = q.Import(t.Context(), want.all)
	if err != nil || copied.Jobs != 0 || copied.Skipped != 3 {
		t.Fatalf("imported again %+v, %v", copied, err)
	}

	// They work as any other, and what nobody knows stays in them.
	stats, err := q.Stats(t.Context())
	if err != nil || stats.Ready != 1 || stats.Leased != 1 || stats.Completed != 1 {
		t.Fatalf("stats %+v, %v", stats, err)
	}
	if _, err := q.Renew(t.Context(), leased.ID, "lease é"); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Complete(t.Context(), doneWith(b.claim(q))); err != nil {
		t.Fatal(err)
	}
	got, _ = b.export(q)
	for _, keep := range []struct{ id, text string }{{ready.ID, `"x-tool":{"a": [1, 2.50, "\u00e9"]}`},
		{leased.ID, `"x-tool":{"a": [1, 2.50, "\u00e9"]}`}, {leased.ID, `"host":"h"`}} {
		if !strings.Contains(got[keep.id+".json"], keep.text) {
			t.Errorf("%s is not in %s", keep.text, got[keep.id+".json"])
		}
	}
}

func TestDocumentsCopiedByHandWorkAfterAReindex(t *testing.T) {
	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	now := q.now()
	var jobs []core.ArchiveJob
	for n := range 3 {
		j := core.NewArchiveJob(request("x", n), now)
		jobs = append(jobs, j)
		b.put(jobKey(j.ID), core.EncodeArchiveJob(j))
	}
	lapsed := core.NewArchiveJob(request("y", 1), now).Claimed("w", "l", time.Minute, now.Add(-time.Hour))
	b.put(jobKey(lapsed.ID), core.EncodeArchiveJob(lapsed))
	archived, err := core.NewArchiveJob(request("z", 2), now).Claimed("w", "l", time.Minute, now).
		Completed("l", core.ArchiveResult{ArchiveID: "a", CiphertextSHA256: "c"}, now)
	if err != nil {
		t.Fatal(err)
	}
	b.put(jobKey(archived.ID), core.EncodeArchiveJob(archived))
	b.put("jobs/bad name.json", []byte("x"))
	b.put(jobKey(strings.Repeat("d", 64)), []byte("{"))

	copied, err := q.Reindex(t.Context())
	if err != nil || copied.Jobs != 5 || len(copied.Damaged) != 2 {
		t.Fatalf("indexed %+v, %v", copied, err)
	}
	stats, err := q.Stats(t.Context())
	if err != nil || stats.Ready != 3 || stats.Leased != 1 || stats.Completed != 1 || !slices.Equal(stats.Damaged, []string{"bad%20name.json", strings.Repeat("d", 64)}) {
		t.Fatalf("stats %+v, %v", stats, err)
	}
	if late := b.enqueue(q, request("z", 1)); late.SupersededBy != archived.ID {
		t.Fatalf("a late observation became %+v", late)
	}

	// The first pass over the backlog retires what is superseded, once.
	for _, want := range []int{2, 0} {
		if n, err := q.SettleBacklog(t.Context()); err != nil || n != want {
			t.Fatalf("settled %d of the backlog, %v, want %d", n, err, want)
		}
	}
	if got := costs(costs{b, q}).claim(2); got[0].ID != lapsed.ID || got[1].ID != jobs[2].ID {
		t.Fatalf("claimed %s and %s", got[0].ID, got[1].ID)
	}
	b.put(jobKey(strings.Repeat("d", 64)), nil)
	before := b.keys("")
	if copied, err = q.Reindex(t.Context()); err != nil || copied.Jobs != 0 || copied.Skipped != 6 {
		t.Fatalf("indexed again %+v, %v", copied, err)
	}
	if after := b.keys(""); !slices.Equal(before, after) {
		t.Fatalf("a second re-index changed %v to %v", before, after)
	}
}
