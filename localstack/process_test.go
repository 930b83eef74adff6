package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// asCommand makes the test binary behave as the command itself, so that a test
// can kill it without building it first.
const asCommand = "DRAWBRIDGE_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// patience bounds what a test waits for; it is no expectation.
const patience = 30 * time.Second

// A process is a running command.
type process struct {
	*exec.Cmd
	t      *testing.T
	url    string // of the hub
	aws    string // of the embedded AWS
	folder string
	token  string
	greets string // what it printed until it was ready

	mu     sync.Mutex
	output bytes.Buffer // stdout after that, and stderr
	ended  chan struct{}
}

// prepare makes a command in a folder that is not started yet.
func prepare(t *testing.T, folder string, args ...string) *process {
	t.Helper()
	path, err := filepath.Abs("../template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, folder: folder, ended: make(chan struct{})}
	p.Cmd = exec.Command(os.Args[0], append([]string{
		"-http", "127.0.0.1:0", "-aws", "127.0.0.1:0", "-data", folder, "-template", path, "-tick", "0",
	}, args...)...)
	p.Env = append(os.Environ(), asCommand+"=1", "DRAWBRIDGE_TOKEN=", "AWS_ENDPOINT_URL=", "AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=")
	return p
}

var (
	hubLine = regexp.MustCompile(`(?m)^  hub +(http://\S+)$`)
	awsLine = regexp.MustCompile(`answers at (http://\S+)`)
)

// begin starts the command and waits until it has greeted.
func (p *process) begin() *process {
	p.t.Helper()
	out, err := p.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	p.Stderr = (*locked)(p)
	if err := p.Cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(p.kill)
	ready := make(chan struct{})
	go p.read(out, ready)
	select {
	case <-ready:
	case <-p.ended:
		p.t.Fatalf("the hub ended before it was ready: %s", p.end())
	case <-time.After(patience):
		p.t.Fatalf("the hub did not get ready: %s", p.end())
	}
	p.url = hubLine.FindStringSubmatch(p.greets)[1]
	if m := awsLine.FindStringSubmatch(p.greets); m != nil {
		p.aws = m[1]
	}
	token, err := os.ReadFile(filepath.Join(p.folder, "token"))
	if err != nil {
		p.t.Fatal(err)
	}
	p.token = strings.TrimSpace(string(token))
	return p
}

func (p *process) read(out io.Reader, ready chan<- struct{}) {
	defer close(p.ended)
	lines := bufio.NewScanner(out)
	var greeting strings.Builder
	for lines.Scan() {
		greeting.WriteString(lines.Text() + "\n")
		if strings.HasPrefix(lines.Text(), "Ctrl-C") {
			p.greets = greeting.String()
			close(ready)
			break
		}
	}
	_, _ = io.Copy((*locked)(p), out)
	_ = p.Wait() // the exit code is in ProcessState
}

// locked is the output of a process as a writer.
type locked process

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.output.Write(b)
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// end is the end of what the process said, for a test's failure.
func (p *process) end() string {
	said := p.said()
	return said[max(0, len(said)-2000):]
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("the hub did not end: %s", p.end())
	}
}

// kill is kill -9. It may have ended before.
func (p *process) kill() {
	_ = p.Process.Kill()
	<-p.ended
}

// An answer is an envelope of the hub.
type answer struct {
	Status int
	OK     bool
	Data   json.RawMessage
	Error  struct{ Code, Message string }
}

// call sends a request; ok is false when no answer came.
func (p *process) call(method, path, body string) (a answer, ok bool) {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, false
	}
	r.Header.Set("Authorization", "Bearer "+p.token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{}, false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || json.Unmarshal(text, &a) != nil {
		return answer{}, false
	}
	a.Status = resp.StatusCode
	return a, true
}

// must is call for an answer that has to be a success.
func (p *process) must(method, path, body string, into any) {
	p.t.Helper()
	a, ok := p.call(method, path, body)
	if !ok || !a.OK {
		p.t.Fatalf("%s %s: %+v, answered: %v; the hub said: %s", method, path, a, ok, p.end())
	}
	if err := json.Unmarshal(a.Data, into); err != nil {
		p.t.Fatal(err)
	}
}

type registration struct {
	Generation int64 `json:"presence_generation"`
}

type agentView struct {
	ID         string `json:"agent_id"`
	Status     string `json:"status"`
	Generation int64  `json:"presence_generation"`
}

func (p *process) agents() map[string]agentView {
	p.t.Helper()
	all := map[string]agentView{}
	for cursor := ""; ; {
		var page struct {
			Agents []agentView
			Next   *string `json:"next_cursor"`
		}
		p.must("GET", "/bridge/agents?limit=100"+cursor, "", &page)
		for _, a := range page.Agents {
			all[a.ID] = a
		}
		if page.Next == nil {
			return all
		}
		cursor = "&cursor=" + *page.Next
	}
}

func (p *process) register(id string) int64 {
	p.t.Helper()
	var r registration
	p.must("POST", "/bridge/register", fmt.Sprintf(`{"agent_id":%q,"cli":"claude","timeout_sec":600}`, id), &r)
	return r.Generation
}

func TestANewUserGetsARunningHub(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data")
	p := prepare(t, folder).begin()
	for _, part := range []string{
		"Drawbridge is ready after", "token      " + folder + "/token", "made       table drawbridge-HubTable, bucket drawbridge-queuebucket",
		"state      in " + folder + "/aws", "none is fired (-tick 0)",
	} {
		if !strings.Contains(p.greets, part) {
			t.Errorf("the greeting lacks %q:\n%s", part, p.greets)
		}
	}
	if strings.Contains(p.greets, p.token) {
		t.Error("the greeting shows the token")
	}
	if info, err := os.Stat(filepath.Join(folder, "token")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token's mode: %v, %v", info.Mode().Perm(), err)
	}
	p.tryTheCurlLines()

	var beat struct {
		Expires int64 `json:"lease_expires_ms"`
	}
	p.must("POST", "/bridge/heartbeat", `{"agent_id":"a1","presence_generation":1}`, &beat)
	var status struct{ Agent agentView }
	p.must("GET", "/bridge/status?scope=agent&agent_id=a1", "", &status)
	if beat.Expires == 0 || status.Agent.Status != "online" {
		t.Errorf("beat %+v, status %+v", beat, status)
	}
}

// tryTheCurlLines runs what the greeting says to try.
func (p *process) tryTheCurlLines() {
	t := p.t
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("curl is not installed")
		}
		t.Skip("curl is not installed")
	}
	_, rest, _ := strings.Cut(p.greets, "Try:\n")
	script, _, _ := strings.Cut(rest, "\nCtrl-C")
	if n := strings.Count(script, "curl "); n != 3 {
		t.Fatalf("there are %d lines to try:\n%s", n, p.greets)
	}
	out, err := exec.Command("sh", "-ec", strings.ReplaceAll(script, "curl -s", "curl -sS --fail-with-body -w '\\n'")).CombinedOutput()
	if err != nil || strings.Count(string(out), `"ok":true`) != 3 {
		t.Errorf("the lines to try gave: %v\n%s", err, out)
	}
}

func TestKillLosesNothingThatWasAnswered(t *testing.T) {
	folder := t.TempDir()
	const workers = 8
	var acknowledged [workers]int64 // the last generation that each worker was told
	for round := range 3 {
		p := prepare(t, folder).begin()
		for w, a := range acknowledged {
			if got := p.agents()[agentID(w)].Generation; got < a {
				t.Fatalf("round %d: %s was told generation %d and has %d", round, agentID(w), a, got)
			}
		}
		var answered, done sync.WaitGroup
		for w := range workers {
			answered.Add(1)
			done.Go(func() { p.registerUntilItDies(w, &acknowledged[w], answered.Done) })
		}
		answered.Wait() // every worker is in full swing
		p.kill()
		done.Wait()
	}
	p := prepare(t, folder).begin()
	for w, a := range acknowledged {
		if got := p.register(agentID(w)); got <= a {
			t.Errorf("%s was told generation %d and gets %d", agentID(w), a, got)
		}
	}
	if strings.Contains(p.greets, "made ") {
		t.Errorf("the table was made again:\n%s", p.greets)
	}
}

func agentID(worker int) string { return fmt.Sprintf("worker-%d", worker) }

func (p *process) registerUntilItDies(worker int, last *int64, answered func()) {
	first := sync.OnceFunc(answered)
	defer first()
	for range 10_000 {
		a, ok := p.call("POST", "/bridge/register", fmt.Sprintf(`{"agent_id":%q,"cli":"claude","timeout_sec":600}`, agentID(worker)))
		if !ok {
			return
		}
		var r registration
		if !a.OK || json.Unmarshal(a.Data, &r) != nil || r.Generation <= *last {
			p.t.Errorf("worker %d had generation %d and was answered %+v", worker, *last, a)
			return
		}
		*last = r.Generation
		first()
	}
}

func TestCtrlCStopsInOrder(t *testing.T) {
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(s.String(), func(t *testing.T) {
			folder := t.TempDir()
			p := prepare(t, folder).begin()
			generation := p.register("a1")
			p.signal(s)
			if code := p.ProcessState.ExitCode(); code != 0 || !strings.Contains(p.said(), "Stopping.") {
				t.Errorf("exit code %d, it said: %s", code, p.said())
			}
			if got := prepare(t, folder).begin().agents()["a1"].Generation; got != generation {
				t.Errorf("after the restart the generation is %d, it was %d", got, generation)
			}
		})
	}
}

func TestAMemoryHubForgetsAndKeepsItsToken(t *testing.T) {
	folder := t.TempDir()
	p := prepare(t, folder, "-memory").begin()
	p.register("a1")
	p.signal(os.Interrupt)
	again := prepare(t, folder, "-memory").begin()
	if agents := again.agents(); len(agents) != 0 {
		t.Errorf("it remembers %v", agents)
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
	if again.token != p.token {
		t.Error("it has another token")
	}
}

func TestATokenOfTheEnvironmentOpensTheHub(t *testing.T) {
	p := prepare(t, t.TempDir(), "-memory")
	// A second token, so that begin finds one in the folder.
	if err := os.WriteFile(filepath.Join(p.folder, "token"), []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Env = append(p.Env, "DRAWBRIDGE_TOKEN=of-the-environment")
	p.begin()
	if a, ok := p.call("GET", "/bridge/agents", ""); !ok || a.Status != http.StatusUnauthorized {
		t.Errorf("the token of the file: %+v, %v", a, ok)
	}
	p.token = "of-the-environment"
	p.agents()
	if !strings.Contains(p.greets, "token      the environment variable DRAWBRIDGE_TOKEN") ||
		!strings.Contains(p.greets, `TOKEN="$DRAWBRIDGE_TOKEN"`) || strings.Contains(p.greets, "of-the-environment") {
		t.Errorf("the greeting: %s", p.greets)
	}
}

// fails runs a command that must end by itself and returns what it said.
func (p *process) fails(code int) string {
	p.t.Helper()
	out, err := p.CombinedOutput()
	if got := p.ProcessState.ExitCode(); got != code {
		p.t.Errorf("exit code %d, %v", got, err)
	}
	return string(out)
}

func TestStartsThatCannotWorkSayWhy(t *testing.T) {
	folder := t.TempDir()
	p := prepare(t, folder).begin()
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	text := "Transform: AWS::Serverless-2016-10-31\nResources:\n  V:\n    Type: AWS::Lambda::Url\n"
	if err := os.WriteFile(bad, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	address := func(url string) string { return strings.TrimPrefix(url, "http://") }
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"the folder is in use", nil, []string{"start the embedded AWS", folder}},
		{"the hub's port is taken", []string{"-http", address(p.url)}, []string{address(p.url) + " of the hub is taken by process", "-http"}},
		{"the port of AWS is taken", []string{"-aws", address(p.aws)}, []string{address(p.aws) + " of the embedded AWS is taken by process", "-aws"}},
		{"the template is not there", []string{"-template", "no-such.yaml"}, []string{"no-such.yaml"}},
		{"the template is not understood", []string{"-template", bad}, []string{bad + ":4: Resources.V: the resource type AWS::Lambda::Url"}},
		{"the faults are not there", []string{"-faults", "no-such.json"}, []string{"no-such.json"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			said := prepare(t, folder, c.args...).fails(exitFailed)
			for _, part := range c.want {
				if !strings.Contains(said, part) {
					t.Errorf("it said %q, without %q", said, part)
				}
			}
			if strings.Contains(said, "panic") || strings.Contains(said, "goroutine") {
				t.Errorf("it said %q", said)
			}
		})
	}
	p.register("still-alive")
}

// A start that finds the folder taken must not replace the token of the hub that
// is there: a token is only good where it was recorded.
func TestAStartThatFindsTheFolderTakenMakesNoToken(t *testing.T) {
	folder := t.TempDir()
	prepare(t, folder).begin()
	token := filepath.Join(folder, "token")
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	prepare(t, folder).fails(exitFailed)
	if _, err := os.Stat(token); !os.IsNotExist(err) {
		t.Errorf("it made a token file: %v", err)
	}
}

func TestMemoryIsRefusedWithAnotherEndpoint(t *testing.T) {
	p := prepare(t, t.TempDir(), "-memory")
	p.Env = append(p.Env, "AWS_ENDPOINT_URL=http://127.0.0.1:1")
	if said := p.fails(exitUsage); !strings.Contains(said, "-memory is of the embedded AWS") {
		t.Errorf("it said %q", said)
	}
}

func TestScheduledSweepsMarkASilentAgent(t *testing.T) {
	p := prepare(t, t.TempDir(), "-memory", "-tick", "600") // the sweep runs five times a second
	p.begin()
	var r registration
	p.must("POST", "/bridge/register", `{"agent_id":"silent","cli":"claude","timeout_sec":-119}`, &r) // a lease of 1 s
	p.waitFor("silent to become stale", func() bool { return p.agents()["silent"].Status == "stale" })
	p.waitFor("the sweep's success in health", func() bool {
		resp, err := http.Get(p.url + "/health")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var health struct {
			Sweeps []struct {
				Name string
				At   *int64 `json:"last_success_at_ms"`
			}
		}
		if err := json.NewDecoder(resp.Body).Decode(&health); err != nil {
			return false
		}
		return len(health.Sweeps) > 0 && health.Sweeps[0].At != nil
	})
	p.waitFor("a sweep that counts it", func() bool { return strings.Contains(p.said(), `"stale":1`) })
}

func (p *process) waitFor(what string, done func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if done() {
			return
		}
	}
	p.t.Fatalf("waited in vain for %s; the hub said: %s", what, p.end())
}

func TestAFaultFileReachesTheEmbeddedAWS(t *testing.T) {
	faults := filepath.Join(t.TempDir(), "faults.json")
	text := `{"rules": [{"op": "UpdateItem", "key": "agent#*", "count": 1, "action": "drop-response"}],
		"schedules": [{"schedule": "*", "action": "never"}]}`
	if err := os.WriteFile(faults, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := prepare(t, t.TempDir(), "-memory", "-tick", "6000", "-faults", faults).begin()
	// The first answer of the store is lost; the retry recognises its own write.
	if got := p.register("a1"); got != 1 {
		t.Errorf("generation %d after a lost answer", got)
	}
	p.waitFor("a tick that is not delivered", func() bool { return strings.Contains(p.said(), "schedule fault") })
	if strings.Contains(p.said(), `"msg":"sweep"`) {
		t.Errorf("a sweep ran: %s", p.said())
	}
}

func TestAnotherEndpointHoldsTheStateOnceTheDoctorPassedIt(t *testing.T) {
	first := prepare(t, t.TempDir(), "-memory").begin()
	p := prepare(t, t.TempDir())
	p.Env = append(p.Env, "AWS_ENDPOINT_URL="+first.aws)
	p.begin()
	for _, part := range []string{"Doctor: " + first.aws, "ok     S3       If-Match has one winner", "state      at " + first.aws} {
		if !strings.Contains(p.greets, part) {
			t.Errorf("the greeting lacks %q:\n%s", part, p.greets)
		}
	}
	generation := p.register("a1")
	if got := first.agents()["a1"].Generation; got != generation {
		t.Errorf("the first hub sees generation %d, the second made %d", got, generation)
	}
}

func TestAnEndpointOfSomebodyElseIsNotTouched(t *testing.T) {
	first := prepare(t, t.TempDir(), "-memory").begin()
	for _, c := range []struct {
		name string
		env  []string
		args []string
		want string
	}{
		{"no table, and no leave to make one", []string{"TABLE_NAME=other", "BUCKET_NAME=other"}, nil,
			"has no table other in region eu-west-1; deploy the stack there"},
		{"no region", []string{"AWS_REGION=", "AWS_DEFAULT_REGION="}, nil, "AWS_REGION is not set"},
		{"no URL", []string{"AWS_ENDPOINT_URL=127.0.0.1:4566"}, nil, "is not a URL such as"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := prepare(t, t.TempDir(), c.args...)
			// The name stands for a host elsewhere: the proxy leads it to the first hub.
			p.Env = append(p.Env, "HTTP_PROXY="+first.aws, "AWS_ENDPOINT_URL=http://aws.test", "AWS_REGION=eu-west-1",
				"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=testtest", "AWS_CONFIG_FILE=/nonexistent")
			p.Env = append(p.Env, c.env...)
			if said := p.fails(exitFailed); !strings.Contains(said, c.want) {
				t.Errorf("it said %q, want %q", said, c.want)
			}
		})
	}
	t.Run("with leave it is made", func(t *testing.T) {
		p := prepare(t, t.TempDir(), "-create")
		p.Env = append(p.Env, "HTTP_PROXY="+first.aws, "AWS_ENDPOINT_URL=http://aws.test", "AWS_REGION=eu-west-1",
			"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=testtest", "TABLE_NAME=other", "BUCKET_NAME=other")
		p.begin()
		if !strings.Contains(p.greets, "made       table other, bucket other") {
			t.Errorf("the greeting: %s", p.greets)
		}
	})
}

func TestTheDoctorCommandTellsGoodFromAbsent(t *testing.T) {
	first := prepare(t, t.TempDir(), "-memory").begin()
	code, out, errs := command(t, "doctor", "-endpoint", first.aws)
	if code != 0 || errs != "" || strings.Count(out, "  ok ") != 9 {
		t.Errorf("code %d, out %q, err %q", code, out, errs)
	}
	first.signal(os.Interrupt)
	code, _, errs = command(t, "doctor", "-endpoint", first.aws)
	if code != exitFailed || !strings.Contains(errs, "nothing answers at "+first.aws) {
		t.Errorf("code %d, err %q", code, errs)
	}
}

func TestLogsAreJSONWithoutSecrets(t *testing.T) {
	p := prepare(t, t.TempDir(), "-memory", "-log", "DEBUG").begin()
	p.register("agent-in-the-log")
	p.signal(os.Interrupt)
	lines := slices.DeleteFunc(strings.Split(p.said(), "\n"), func(l string) bool { return l == "" || l == "Stopping." })
	if len(lines) == 0 {
		t.Fatal("nothing was logged")
	}
	for _, l := range lines {
		if !json.Valid([]byte(l)) {
			t.Errorf("not JSON: %s", l)
		}
		if strings.Contains(l, p.token) {
			t.Errorf("the token is in the log: %s", l)
		}
	}
}
