package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"drawbridge/localstack/processes"
)

const workHelp = `Usage: go run ./localstack queue work [flags] -- CMD [ARG...]

Claims archive jobs one after the other and runs the command for each. The
command gets the job as JSON on its standard input and in its environment
(DRAWBRIDGE_JOB_ID, _SOURCE_PATH, _AGENT, _EVENT, _SESSION_ID, _SOURCE_BYTES,
_SOURCE_MODIFIED_AT). On its standard output it may say

    progress BYTES OF

any number of times, and must say what it made as one line of JSON:

    {"archive_id":"...","ciphertext_sha256":"...","bytes":123}

with source_snapshot {"bytes":...,"modified_at":"..."} beside it where it knows
what it read. When it exits with 0, the job is completed; otherwise it has
failed, and is tried again later. The lease is renewed meanwhile. On SIGINT or
SIGTERM the command gets SIGTERM, and the job is released.

`

const (
	// killDelay is how long a command may take to end after SIGTERM.
	killDelay = 10 * time.Second
	// farewell is how long the worker tries to tell the hub what became of a
	// job once it has been told to stop.
	farewell = 10 * time.Second
	// reportTries is how often it tells the hub what became of a job.
	reportTries = 5
	// errorTail is how much of the command's standard error a failure keeps.
	errorTail = 2000
)

// A worker works on archive jobs with a command.
type worker struct {
	hub     hubClient
	owner   string
	poll    time.Duration
	drain   bool
	command []string
	t       terminal
}

// work is the command queue work.
func work(ctx context.Context, args []string, t terminal) error {
	w := worker{t: t}
	flags := flag.NewFlagSet("queue work", flag.ContinueOnError)
	flags.StringVar(&w.hub.url, "hub", "http://127.0.0.1:27888", "`URL` of the hub")
	data := flags.String("data", ".drawbridge", "data `folder` of the hub, for its token (DRAWBRIDGE_TOKEN goes before)")
	flags.StringVar(&w.owner, "owner", defaultOwner(), "`name` of this worker, shown in its leases")
	flags.DurationVar(&w.poll, "poll", 5*time.Second, "how long to wait when there is nothing to do")
	flags.BoolVar(&w.drain, "drain", false, "stop when there is nothing to do")
	flags.Usage = func() {
		fmt.Fprint(t.out, workHelp)
		flags.PrintDefaults()
	}
	if i := slices.Index(args, "--"); i >= 0 {
		args, w.command = args[:i], args[i+1:]
	}
	if err := parseFlags(flags, args, t); err != nil {
		return err
	}
	if len(w.command) == 0 {
		return &usageError{"queue work needs a command after --"}
	}
	if _, err := exec.LookPath(w.command[0]); err != nil {
		return fmt.Errorf("the command cannot be run: %w", err)
	}
	var err error
	if w.hub.token, err = findHubToken(*data, t.getenv); err != nil {
		return err
	}
	return w.run(ctx)
}

func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// run works until it is told to stop; that is no error.
func (w worker) run(ctx context.Context) error {
	for ctx.Err() == nil {
		job, beat, err := w.claim(ctx)
		var refusal *hubRefusal
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &refusal) && !refusal.Retryable:
			return err
		case err != nil:
			fmt.Fprintln(w.t.err, "claim:", err)
		case job != nil:
			w.do(ctx, *job, beat)
			continue
		case w.drain:
			return nil
		}
		pause(ctx, w.poll/2+rand.N(w.poll/2+1))
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// archiveJob is a job as the hub answers it.
type archiveJob struct {
	ID               string
	Agent            string
	SourcePath       string `json:"source_path"`
	Event            string
	SessionID        string `json:"session_id"`
	SourceBytes      int64  `json:"source_bytes"`
	SourceModifiedAt string `json:"source_modified_at"`
	Lease            struct{ ID string }

	raw json.RawMessage
}

func (w worker) claim(ctx context.Context) (*archiveJob, time.Duration, error) {
	var out struct {
		Jobs        []json.RawMessage
		HeartbeatMs int64 `json:"heartbeat_ms"`
	}
	if err := w.hub.call(ctx, "claim", map[string]any{"owner": w.owner}, &out); err != nil || len(out.Jobs) == 0 {
		return nil, 0, err
	}
	job := archiveJob{raw: out.Jobs[0]}
	if err := json.Unmarshal(job.raw, &job); err != nil {
		return nil, 0, fmt.Errorf("read the claimed job: %w", err)
	}
	return &job, time.Duration(out.HeartbeatMs) * time.Millisecond, nil
}

// do works on one job and tells the hub what became of it.
func (w worker) do(ctx context.Context, job archiveJob, beat time.Duration) {
	fmt.Fprintf(w.t.out, "%s  %s\n", job.ID[:12], job.SourcePath)
	// lost ends the command when the job is another worker's.
	running, lost := context.WithCancelCause(ctx)
	var heart sync.WaitGroup
	heart.Go(func() { w.heartbeat(running, job, beat, lost) })
	out := w.execute(running, job, lost)
	wasLost := errors.Is(context.Cause(running), errLeaseLost)
	lost(nil)
	heart.Wait()

	switch {
	case wasLost:
		fmt.Fprintf(w.t.err, "%s  the lease was lost: another worker has the job\n", job.ID[:12])
	case out.failure == nil:
		w.report(ctx, job, "complete", out.completion())
	case ctx.Err() != nil:
		w.report(ctx, job, "release", map[string]any{"reason": jobFailure{"shutdown", "the worker was told to stop"}})
	default:
		w.report(ctx, job, "fail", map[string]any{"error": *out.failure})
	}
}

var errLeaseLost = errors.New("the lease was lost")

// heartbeat renews the lease until the job is over. A renewal that gets no
// answer changes nothing: until another worker claims the job, it is ours.
func (w worker) heartbeat(ctx context.Context, job archiveJob, every time.Duration, lost context.CancelCauseFunc) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.tell(ctx, job, "renew", nil, lost)
		}
	}
}

// tell makes a call that may fail, unless it is because the lease is gone.
func (w worker) tell(ctx context.Context, job archiveJob, endpoint string, fields map[string]any, lost context.CancelCauseFunc) {
	err := w.hub.call(ctx, endpoint, job.fields(fields), nil)
	var refusal *hubRefusal
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.As(err, &refusal) && refusal.lostLease():
		lost(errLeaseLost)
	default:
		fmt.Fprintf(w.t.err, "%s  %s: %v\n", job.ID[:12], endpoint, err)
	}
}

// report tells the hub how the job ended, also after the worker was told to
// stop, and as often as it takes.
func (w worker) report(ctx context.Context, job archiveJob, endpoint string, fields map[string]any) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTries*farewell)
	defer cancel()
	var err error
	for try := range reportTries {
		err = w.hub.call(ctx, endpoint, job.fields(fields), nil)
		var refusal *hubRefusal
		if err == nil || errors.As(err, &refusal) && !refusal.Retryable {
			break
		}
		pause(ctx, time.Duration(try+1)*time.Second)
	}
	if err != nil {
		fmt.Fprintf(w.t.err, "%s  %s: %v\n", job.ID[:12], endpoint, err)
		return
	}
	fmt.Fprintf(w.t.out, "%s  %s\n", job.ID[:12], map[string]string{"complete": "completed", "fail": "failed", "release": "released"}[endpoint])
}

func (j archiveJob) fields(more map[string]any) map[string]any {
	body := map[string]any{"id": j.ID, "lease_id": j.Lease.ID}
	for name, value := range more {
		body[name] = value
	}
	return body
}

func (j archiveJob) environment() []string {
	return []string{
		"DRAWBRIDGE_JOB_ID=" + j.ID,
		"DRAWBRIDGE_JOB_AGENT=" + j.Agent,
		"DRAWBRIDGE_JOB_SOURCE_PATH=" + j.SourcePath,
		"DRAWBRIDGE_JOB_EVENT=" + j.Event,
		"DRAWBRIDGE_JOB_SESSION_ID=" + j.SessionID,
		"DRAWBRIDGE_JOB_SOURCE_BYTES=" + strconv.FormatInt(j.SourceBytes, 10),
		"DRAWBRIDGE_JOB_SOURCE_MODIFIED_AT=" + j.SourceModifiedAt,
	}
}

type jobFailure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// An execution is what the command made of a job.
type execution struct {
	result  json.RawMessage
	failure *jobFailure
}

// completion are the fields of complete: the result, and the snapshot that may
// stand in it.
func (e execution) completion() map[string]any {
	var parts struct {
		Snapshot json.RawMessage `json:"source_snapshot"`
	}
	fields := map[string]any{"result": e.result}
	if json.Unmarshal(e.result, &parts) == nil && parts.Snapshot != nil {
		fields["source_snapshot"] = parts.Snapshot
	}
	return fields
}

// execute runs the command to its end.
func (w worker) execute(ctx context.Context, job archiveJob, lost context.CancelCauseFunc) execution {
	command := exec.CommandContext(ctx, w.command[0], w.command[1:]...)
	command.Cancel = func() error { return processes.End(command.Process) }
	command.WaitDelay = killDelay
	processes.Apart(command) // Ctrl-C reaches the worker, which passes it on in order
	command.Stdin = bytes.NewReader(append(slices.Clone(job.raw), '\n'))
	command.Env = append(os.Environ(), job.environment()...)
	last := tail{limit: errorTail}
	command.Stderr = io.MultiWriter(w.t.err, &last)
	output, input := io.Pipe()
	command.Stdout = input

	var result json.RawMessage
	var reading sync.WaitGroup
	reading.Go(func() { result = w.read(ctx, job, output, lost) })
	err := command.Run()
	input.Close() // ends the reading
	reading.Wait()
	return ended(command.ProcessState, err, result, last.String())
}

func ended(state *os.ProcessState, err error, result json.RawMessage, stderr string) execution {
	switch {
	case state == nil:
		return execution{failure: &jobFailure{"not_run", err.Error()}}
	case !state.Success():
		return execution{failure: &jobFailure{fmt.Sprintf("exit_%d", state.ExitCode()), stderr}}
	case result == nil:
		return execution{failure: &jobFailure{"no_result", "the command exited with 0 and told no result"}}
	}
	return execution{result: result}
}

// read takes progress and the result out of the command's output, and passes on
// the rest.
func (w worker) read(ctx context.Context, job archiveJob, output io.Reader, lost context.CancelCauseFunc) (result json.RawMessage) {
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadString('\n')
		text := strings.TrimSpace(line)
		var done, of int64
		switch n, _ := fmt.Sscanf(text, "progress %d %d", &done, &of); {
		case n == 2:
			w.tell(ctx, job, "progress", map[string]any{"bytes": done, "of": of}, lost)
		case strings.HasPrefix(text, "{") && json.Valid([]byte(text)):
			result = json.RawMessage(text)
		case text != "":
			fmt.Fprintln(w.t.out, text)
		}
		if err != nil {
			return result
		}
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	limit int
	kept  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.limit; over > 0 {
		t.kept = t.kept[over:]
	}
	return len(p), nil
}

// String is the tail as text that any JSON can hold.
func (t *tail) String() string { return strings.ToValidUTF8(strings.TrimSpace(string(t.kept)), "") }

// A hubClient calls the queue's endpoints.
type hubClient struct{ url, token string }

// A hubRefusal is an answer of the hub that is not the wanted one.
type hubRefusal struct {
	Code      string
	Message   string
	Retryable bool
}

func (r *hubRefusal) Error() string { return r.Code + ": " + r.Message }

// lostLease tells whether the job is not this worker's any more.
func (r *hubRefusal) lostLease() bool {
	return r.Code == "queue_lease_invalid" || r.Code == "queue_job_not_found"
}

// callTimeout is above what the hub takes to answer at most.
const callTimeout = 35 * time.Second

// maxAnswer bounds what is read of an answer.
const maxAnswer = 16 << 20

func (h hubClient) call(ctx context.Context, endpoint string, body map[string]any, into any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(h.url, "/")+"/bridge/queue/"+endpoint, bytes.NewReader(encoded))
	if err != nil {
		return &hubRefusal{Code: "bad_url", Message: err.Error()}
	}
	r.Header.Set("Authorization", "Bearer "+h.token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("ask the hub: %w", err)
	}
	defer resp.Body.Close()
	var answer struct {
		OK    bool
		Data  json.RawMessage
		Error hubRefusal
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&answer); err != nil {
		return fmt.Errorf("read the hub's answer, status %d: %w", resp.StatusCode, err)
	}
	if !answer.OK {
		return &answer.Error
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(answer.Data, into); err != nil {
		return fmt.Errorf("read the hub's answer: %w", err)
	}
	return nil
}
