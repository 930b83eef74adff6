package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"drawbridge/core"
)

// A session is the command's output and environment in a test.
type session struct {
	mu       sync.Mutex
	out, err bytes.Buffer
}

type sessionWriter struct {
	s *session
	b *bytes.Buffer
}

func (w sessionWriter) Write(p []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.b.Write(p)
}

func (s *session) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String() + s.err.String()
}

// command runs the command in this process.
func (s *session) command(ctx context.Context, env map[string]string, args ...string) int {
	return run(ctx, args, terminal{out: sessionWriter{s, &s.out}, err: sessionWriter{s, &s.err},
		getenv: func(name string) string { return env[name] }})
}

// jobFolder is a folder of job files as another tool writes them.
func jobFolder(t *testing.T, jobs ...core.ArchiveJob) string {
	t.Helper()
	dir := t.TempDir()
	for _, j := range jobs {
		doc := strings.Replace(string(core.EncodeArchiveJob(j)), `{"version"`, "{\n  \"tool\": [1.0, null],\n  \"version\"", 1)
		if err := os.WriteFile(filepath.Join(dir, j.ID+".json"), []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func waiting(file string, n int) core.ArchiveJob {
	return core.NewArchiveJob(observation(file, n), core.InstantOf(time.Now().Add(-time.Minute)))
}

type jobView struct {
	ID        string
	Status    string
	LastError *struct{ Code, Message string } `json:"last_error"`
	Progress  *struct{ Bytes, Of int64 }
	Result    *struct {
		Bytes int64 `json:"bytes"`
	}
}

func (p *process) job(id string) jobView {
	p.t.Helper()
	var out struct{ Job jobView }
	p.must("GET", "/bridge/queue/jobs?id="+id, "", &out)
	return out.Job
}

func TestAFolderOfJobFilesIsImportedWorkedOnAndExported(t *testing.T) {
	hub := prepare(t, filepath.Join(t.TempDir(), "data"), "-memory").begin()
	env := map[string]string{"AWS_ENDPOINT_URL": hub.aws, "DRAWBRIDGE_TOKEN": hub.token}
	old, latest, failing := waiting("x", 1), waiting("x", 2), waiting("y", 1)
	dir := jobFolder(t, old, latest, failing)
	if err := os.WriteFile(filepath.Join(dir, "broken.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	template, err := filepath.Abs("../template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var s session
	if code := s.command(t.Context(), env, "queue", "import", "-template", template, dir); code != exitFailed {
		t.Fatalf("a damaged file went unnoticed: %s", s.said())
	}
	for _, want := range []string{"broken.json", "3 imported, 0 as they were, 1 damaged", "1 superseded"} {
		if !strings.Contains(s.said(), want) {
			t.Fatalf("the import did not say %q: %s", want, s.said())
		}
	}

	script := `case "$DRAWBRIDGE_JOB_SOURCE_PATH" in /y) echo "no disk" >&2; exit 3;; esac
cat > "$1"; echo progress 1 2; echo working; echo '{"archive_id":"a","ciphertext_sha256":"c","bytes":7}'`
	stdin := filepath.Join(t.TempDir(), "stdin")
	if code := s.command(t.Context(), env, "queue", "work", "-hub", hub.url, "-owner", "w", "-poll", "10ms", "-drain", "--",
		"sh", "-c", script, "worker", stdin); code != 0 {
		t.Fatalf("work ended with %d: %s", code, s.said())
	}
	if job := hub.job(latest.ID); job.Status != "done" || job.Result.Bytes != 7 || job.Progress == nil || job.Progress.Of != 2 {
		t.Fatalf("the worked job is %+v: %s", job, s.said())
	}
	if job := hub.job(failing.ID); job.Status != "ready" || job.LastError.Code != "exit_3" || job.LastError.Message != "no disk" {
		t.Fatalf("the failing job is %+v: %s", job, s.said())
	}
	var given struct{ ID string }
	if text, err := os.ReadFile(stdin); err != nil || json.Unmarshal(text, &given) != nil || given.ID != latest.ID {
		t.Fatalf("the command got %s, %v", text, err)
	}

	out := filepath.Join(t.TempDir(), "out")
	if code := s.command(t.Context(), env, "queue", "export", "-template", template, out); code != 0 {
		t.Fatalf("export ended with %d: %s", code, s.said())
	}
	for _, id := range []string{old.ID, latest.ID, failing.ID} {
		doc, err := os.ReadFile(filepath.Join(out, id+".json"))
		if err != nil || !strings.Contains(string(doc), `"tool":[1.0, null]`) {
			t.Fatalf("exported %s, %v", doc, err)
		}
		if _, err := core.DecodeArchiveJob(id, doc); err != nil {
			t.Fatal(err)
		}
	}
	if code := s.command(t.Context(), env, "queue", "reindex", "-template", template); code != 0 || !strings.Contains(s.said(), "0 indexed, 3 as they were") {
		t.Fatalf("reindex ended with %d: %s", code, s.said())
	}
}

func TestAStoppedWorkerReleasesItsJob(t *testing.T) {
	hub := prepare(t, filepath.Join(t.TempDir(), "data"), "-memory").begin()
	hub.must("POST", "/bridge/queue/enqueue", observed("x", 1), &struct{}{})
	ctx, stop := context.WithCancel(t.Context())
	started := filepath.Join(t.TempDir(), "started")
	var s session
	ended := make(chan int)
	go func() {
		ended <- s.command(ctx, map[string]string{"DRAWBRIDGE_TOKEN": hub.token}, "queue", "work", "-hub", hub.url, "--",
			"sh", "-c", `touch "$1"; exec sleep 60`, "worker", started)
	}()
	hub.waitFor("the command to run", func() bool { _, err := os.Stat(started); return err == nil })
	stop()
	if code := <-ended; code != 0 {
		t.Fatalf("the worker ended with %d: %s", code, s.said())
	}
	if job := hub.job(observation("x", 1).JobID()); job.Status != "ready" || job.LastError.Code != "shutdown" {
		t.Fatalf("the job is %+v: %s", job, s.said())
	}
}

// A fakeHub answers the queue's endpoints by script.
type fakeHub struct {
	mu     sync.Mutex
	calls  []string
	answer map[string]string // by endpoint; claims are answered once
}

func (h *fakeHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	endpoint := filepath.Base(r.URL.Path)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, endpoint)
	answer, ok := h.answer[endpoint]
	if !ok {
		answer = `{"ok":true,"data":{}}`
	}
	if endpoint == "claim" {
		h.answer["claim"] = `{"ok":true,"data":{"jobs":[],"heartbeat_ms":10}}`
	}
	fmt.Fprint(w, answer)
}

func (h *fakeHub) count(endpoint string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Count(strings.Join(h.calls, " ")+" ", endpoint+" ")
}

const oneJob = `{"ok":true,"data":{"jobs":[{"id":"0123456789abcdef","lease":{"id":"l"},"source_path":"/x"}],"heartbeat_ms":10}}`

func workFor(t *testing.T, h *fakeHub, script string) string {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	var s session
	if code := s.command(t.Context(), map[string]string{"DRAWBRIDGE_TOKEN": "t"}, "queue", "work", "-hub", server.URL, "-poll", "1ms", "-drain",
		"--", "sh", "-c", script); code != 0 {
		t.Fatalf("the worker ended with %d: %s", code, s.said())
	}
	return s.said()
}

func TestAWorkerThatLostItsLeaseStopsTheCommandAndReportsNothing(t *testing.T) {
	h := &fakeHub{answer: map[string]string{"claim": oneJob,
		"renew": `{"ok":false,"error":{"code":"queue_lease_invalid","message":"no"}}`}}
	said := workFor(t, h, "exec sleep 60")
	if !strings.Contains(said, "lease was lost") || h.count("complete")+h.count("fail")+h.count("release") != 0 {
		t.Fatalf("calls %v: %s", h.calls, said)
	}
}

// stablemates/workhorse#120
func TestAHeartbeatThatFailsDoesNotStopTheCommand(t *testing.T) {
	h := &fakeHub{answer: map[string]string{"claim": oneJob,
		"renew": `{"ok":false,"error":{"code":"UNAVAILABLE","message":"later","retryable":true}}`}}
	workFor(t, h, `while [ $((i=i+1)) -lt 20 ]; do sleep 0.01; done; echo '{"archive_id":"a","ciphertext_sha256":"c","bytes":1}'`)
	if h.count("renew") == 0 || h.count("complete") != 1 {
		t.Fatalf("calls %v", h.calls)
	}
}

func TestACommandWithoutAResultHasFailed(t *testing.T) {
	h := &fakeHub{answer: map[string]string{"claim": oneJob}}
	workFor(t, h, "true")
	if h.count("fail") != 1 || h.count("complete") != 0 {
		t.Fatalf("calls %v", h.calls)
	}
}

func TestQueueCommandsThatCannotWorkSayWhy(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"queue"}, exitUsage, "import, export, reindex or work"},
		{[]string{"queue", "dance"}, exitUsage, "dance"},
		{[]string{"queue", "import"}, exitUsage, "needs a folder"},
		{[]string{"queue", "work"}, exitUsage, "command after --"},
		{[]string{"queue", "work", "--", "no-such-command-anywhere"}, exitFailed, "cannot be run"},
		{[]string{"queue", "work", "-data", t.TempDir(), "--", "sh"}, exitFailed, "no token"},
		{[]string{"queue", "-help"}, 0, "Usage"},
	} {
		var s session
		if code := s.command(t.Context(), nil, c.args...); code != c.code || !strings.Contains(s.said(), c.says) {
			t.Errorf("%v ended with %d: %s", c.args, code, s.said())
		}
	}
}
