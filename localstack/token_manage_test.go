package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"drawbridge/core"
	"drawbridge/localstack/fakeaws"
)

// A tokenDesk runs the token command on the hub of a data folder.
type tokenDesk struct {
	t      *testing.T
	folder string
}

// told is what a command said, and how it ended.
type told struct {
	out, err string
	code     int
}

func (d tokenDesk) token(args ...string) told {
	d.t.Helper()
	var out, problems bytes.Buffer
	code := run(context.Background(), append([]string{"token"}, args...), terminal{out: &out, err: &problems, getenv: none})
	return told{out: out.String(), err: problems.String(), code: code}
}

// here names the folder's hub to a command.
func (d tokenDesk) here(args ...string) []string {
	return append(args, "-data="+d.folder, "-template=../template.yaml")
}

// must runs a command that has to work.
func (d tokenDesk) must(args ...string) told {
	d.t.Helper()
	got := d.token(d.here(args...)...)
	if got.code != 0 {
		d.t.Fatalf("token %v: exit %d, %s", args, got.code, got.err)
	}
	return got
}

// secret runs a command that has to show a token, and nothing else.
func (d tokenDesk) secret(args ...string) string {
	d.t.Helper()
	got := d.must(args...)
	if !regexp.MustCompile(`^[A-Za-z0-9_-]{43}\n$`).MatchString(got.out) {
		d.t.Fatalf("token %v wrote %d bytes to standard output", args, len(got.out))
	}
	secret := strings.TrimSpace(got.out)
	if strings.Contains(got.err, secret) {
		d.t.Errorf("token %v tells the token twice", args)
	}
	return secret
}

// status asks the hub with a token.
func (p *process) status(token string) int {
	p.t.Helper()
	was := p.token
	p.token = token
	defer func() { p.token = was }()
	got, ok := p.call(http.MethodGet, "/bridge/status", "")
	if !ok {
		p.t.Fatal(p.said())
	}
	return got.Status
}

func TestTokensAreManagedWhileTheHubRunsAndWhileItDoesNot(t *testing.T) {
	d := tokenDesk{t: t, folder: filepath.Join(t.TempDir(), "data")}
	hub := prepare(t, d.folder).begin()
	first := d.secret("create", "-name", "ci", "-scope", "agent", "-agent", "a1", "-agent", "a2", "-expires", "24h")
	if got := hub.status(first); got != 200 {
		t.Fatalf("the new token is answered %d", got)
	}
	second := d.secret("rotate", "ci", "-overlap", "1h")
	for _, token := range []string{first, second} {
		if got := hub.status(token); got != 200 {
			t.Errorf("while both overlap one is answered %d", got)
		}
	}
	unused := d.secret("create", "-name", "unused")
	d.must("revoke", "unused")
	d.must("revoke", "unused") // is done already
	if got := hub.status(unused); got != 401 {
		t.Errorf("a revoked token is answered %d", got)
	}

	hub.kill()
	d.must("revoke", core.TokenHash(first)[:12])
	lines := strings.Split(strings.TrimSpace(d.must("list").out), "\n")
	want := []string{
		`^ID +NAME +STATUS +SCOPES +AGENTS +CREATED +EXPIRES +REVOKED$`,
		`^[0-9a-f]{12} +bootstrap +active +read,agent,operator +any +\S+Z +- +-$`,
		`^` + core.TokenHash(first)[:12] + ` +ci +revoked +agent +a1,a2 +\S+Z +\S+Z +\S+Z$`,
		`^` + core.TokenHash(second)[:12] + ` +ci +active +agent +a1,a2 +\S+Z +\S+Z +-$`,
		`^` + core.TokenHash(unused)[:12] + ` +unused +revoked +agent +any +\S+Z +- +\S+Z$`,
	}
	if len(lines) != len(want) {
		t.Fatalf("the list is\n%s", strings.Join(lines, "\n"))
	}
	for i, line := range lines {
		if !regexp.MustCompile(want[i]).MatchString(line) {
			t.Errorf("line %d is %q, want %s", i, line, want[i])
		}
	}
	hub = prepare(t, d.folder).begin()
	for token, status := range map[string]int{first: 401, second: 200, unused: 401} {
		if got := hub.status(token); got != status {
			t.Errorf("after a restart %d, want %d", got, status)
		}
	}
	for _, secret := range []string{first, second, unused} {
		if strings.Contains(hub.said(), secret) {
			t.Error("the hub's log holds a token")
		}
	}
}

func TestAHubDoesNotStartOnABootstrapTokenThatWasRevoked(t *testing.T) {
	d := tokenDesk{t: t, folder: filepath.Join(t.TempDir(), "data")}
	prepare(t, d.folder).begin().kill()
	d.must("revoke", "bootstrap")
	if said := prepare(t, d.folder).fails(1); !strings.Contains(said, "is revoked; take it away to get a new one") {
		t.Errorf("it says %s", said)
	}
}

func TestTokenCommandsThatCannotWorkSayWhy(t *testing.T) {
	d := tokenDesk{t: t, folder: filepath.Join(t.TempDir(), "data")}
	prepare(t, d.folder).begin().kill()
	d.secret("create", "-name", "twice")
	d.secret("create", "-name", "twice")
	absent := tokenDesk{t: t, folder: filepath.Join(t.TempDir(), "absent")}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, 2, `token "" is not understood`},
		{[]string{"make"}, 2, `token "make" is not understood`},
		{d.here("create"), 1, "a token needs a name"},
		{d.here("create", "-name", "a\nb"), 1, "a token needs a name"},
		{d.here("create", "-name", "x", "-scope", "root"), 1, "the scope must be read, agent or operator"},
		{d.here("create", "-name", "x", "-agent", ""), 1, "agent is required"},
		{d.here("create", "-name", "x", "-expires", "-1h"), 1, "a token expires after"},
		{d.here("create", "-name", "x", "-expires", "soon"), 2, "invalid value"},
		{d.here("create", "-name", "x", "y"), 2, "not understood"},
		{d.here("revoke"), 2, "needs the name or the id"},
		{d.here("rotate"), 2, "needs the name or the id"},
		{d.here("revoke", "nobody"), 1, `no token is called "nobody"`},
		{d.here("rotate", "nobody"), 1, `no token is called "nobody"`},
		{d.here("revoke", "twice"), 1, `"twice" may mean 2 tokens: name one of`},
		{d.here("rotate", "twice", "-overlap", "9000h"), 1, "the overlap is at most 90 days"},
		{absent.here("list"), 1, "no hub has kept its state in"},
		{d.here("list", "-endpoint", "nowhere"), 1, "is not a URL"},
		{d.here("list", "-endpoint", "http://127.0.0.1:1"), 1, "nothing answers at http://127.0.0.1:1"},
		{d.here("list", "-table", "another", "-endpoint", "http://127.0.0.1:1"), 1, "table another at http://127.0.0.1:1"},
	} {
		got := d.token(c.args...)
		if got.code != c.code || !strings.Contains(got.err, c.says) || got.out != "" {
			t.Errorf("token %q: exit %d, %q, %d bytes of output; want exit %d and %q", c.args, got.code, got.err, len(got.out), c.code, c.says)
		}
	}
}

// With -table the command speaks to AWS as the SDK finds it: here the SDK is told
// that it is elsewhere.
func TestANamedTableIsThatOfTheEnvironmentsAccount(t *testing.T) {
	server, err := fakeaws.Open(fakeaws.Options{AccessKey: "AKIAOPERATOR", SecretKey: "operators-secret"})
	if err != nil {
		t.Fatal(err)
	}
	listening := httptest.NewServer(server)
	t.Cleanup(func() {
		listening.Close()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	in := projectTemplate(t).Tables[0].CreateInput()
	in.TableName = aws.String("stack-HubTable-X1")
	if _, err := dynamodb.NewFromConfig(server.Config()).CreateTable(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_DYNAMODB": listening.URL, "AWS_ACCESS_KEY_ID": "AKIAOPERATOR", "AWS_SECRET_ACCESS_KEY": "operators-secret",
		"AWS_REGION": "eu-central-1", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
	d := tokenDesk{t: t}
	made := d.token("create", "-name", "ops", "-scope", "operator", "-table", "stack-HubTable-X1")
	if made.code != 0 || len(made.out) != 44 {
		t.Fatalf("exit %d, %s", made.code, made.err)
	}
	if list := d.token("list", "-table", "stack-HubTable-X1"); list.code != 0 || !strings.Contains(list.out, core.TokenHash(strings.TrimSpace(made.out))[:12]+"  ops ") {
		t.Errorf("exit %d, %s%s", list.code, list.out, list.err)
	}
	if got := d.token("list", "-table", "absent"); got.code != 1 || !strings.Contains(got.err, "table absent at AWS: AWS has no such table") {
		t.Errorf("exit %d, %s", got.code, got.err)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "another")
	if got := d.token("list", "-table", "stack-HubTable-X1"); got.code != 1 || !strings.Contains(got.err, "does not accept the credentials") || strings.Contains(got.err, "another") {
		t.Errorf("exit %d, %s", got.code, got.err)
	}
	t.Setenv("AWS_REGION", "")
	if got := d.token("list", "-table", "stack-HubTable-X1"); got.code != 1 || !strings.Contains(got.err, "AWS_REGION is not set") {
		t.Errorf("exit %d, %s", got.code, got.err)
	}
}

// closedPipe is a standard output that nobody reads.
type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestATokenThatCannotBeWrittenOutIsNotLeftValid(t *testing.T) {
	d := tokenDesk{t: t, folder: filepath.Join(t.TempDir(), "data")}
	prepare(t, d.folder).begin().kill()
	d.secret("create", "-name", "ci")
	for _, args := range [][]string{{"create", "-name", "lost"}, {"rotate", "ci", "-overlap", "0s"}} {
		var problems bytes.Buffer
		code := run(context.Background(), append([]string{"token"}, d.here(args...)...), terminal{out: closedPipe{}, err: &problems, getenv: none})
		if code != 1 || !strings.Contains(problems.String(), "which is revoked now: broken pipe") {
			t.Errorf("%v: exit %d, %s", args, code, problems.String())
		}
	}
	list := d.must("list").out
	if strings.Count(list, "revoked") != 2 || !regexp.MustCompile(`(?m) ci +active .* - +-$`).MatchString(list) {
		t.Errorf("the list is\n%s", list)
	}
}

func TestTheReferenceOfATokenStandsInFrontOrAtTheEnd(t *testing.T) {
	for _, c := range []struct {
		args []string
		ref  string
		rest []string
	}{
		{nil, "", nil},
		{[]string{"ci", "-overlap", "1h"}, "ci", []string{"-overlap", "1h"}},
		{[]string{"-overlap", "1h", "ci"}, "ci", []string{"-overlap", "1h"}},
		{[]string{"-help"}, "", []string{"-help"}},
	} {
		ref, rest := takeRef(c.args)
		if ref != c.ref || !slices.Equal(rest, c.rest) {
			t.Errorf("%q: %q, %q", c.args, ref, rest)
		}
	}
}

func TestNamesInTheListCannotSteerATerminal(t *testing.T) {
	for text, want := range map[string]string{
		"ci": "ci", "에이전트": "에이전트", "": `""`, "a\x1b[2Jb": `"a\x1b[2Jb"`, "a\u202eb": `"a\u202eb"`, "a\u200bb": `"a\u200bb"`, "a\tb": `"a\tb"`, "a\u00a0b": `"a\u00a0b"`,
	} {
		if got := printable(text); got != want {
			t.Errorf("%q is shown as %s, want %s", text, got, want)
		}
	}
}
