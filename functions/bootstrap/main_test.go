package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"drawbridge/core"
	"drawbridge/ddb"
	"drawbridge/functions"
	"drawbridge/localstack/fakeaws"
	"drawbridge/localstack/template"
)

// asBootstrap makes the test binary be the bootstrap.
const asBootstrap = "TEST_AS_BOOTSTRAP"

func TestMain(m *testing.M) {
	if os.Getenv(asBootstrap) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// A deployment is the template's table behind a socket and a runtime that hands
// out invocations, as Lambda does.
type deployment struct {
	t           *testing.T
	aws         *fakeaws.Server
	table       string
	environment []string
	invocations chan string
	answers     chan string
}

func deploy(t *testing.T) *deployment {
	t.Helper()
	d := &deployment{t: t, invocations: make(chan string), answers: make(chan string, 1)}
	var err error
	d.aws, err = fakeaws.Open(fakeaws.Options{AccessKey: "key", SecretKey: "secret"})
	check(t, err)
	declared, err := template.Load("../../template.yaml", template.Local())
	check(t, err)
	d.table = declared.Tables[0].Name
	client := dynamodb.NewFromConfig(d.aws.Config())
	_, err = client.CreateTable(context.Background(), declared.Tables[0].CreateInput())
	check(t, err)
	_, err = ddb.Open(client, ddb.Table{Name: d.table}).CreateToken(context.Background(), core.Token{
		Hash: core.TokenHash("a-token"), Scopes: []core.Scope{core.ScopeAgent},
	})
	check(t, err)
	endpoint := httptest.NewServer(d.aws)
	runtime := httptest.NewServer(http.HandlerFunc(d.serveRuntime))
	t.Cleanup(func() {
		close(d.invocations)
		runtime.CloseClientConnections()
		runtime.Close()
		endpoint.Close()
		check(t, d.aws.Close())
	})
	d.environment = append(os.Environ(), asBootstrap+"=1", "AWS_REGION=eu-central-1", "AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=secret",
		"AWS_ENDPOINT_URL="+endpoint.URL, "TABLE_NAME="+d.table, "AWS_LAMBDA_RUNTIME_API="+strings.TrimPrefix(runtime.URL, "http://"))
	return d
}

// serveRuntime is the runtime API of Lambda.
func (d *deployment) serveRuntime(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/invocation/next") {
		event, ok := <-d.invocations
		if !ok {
			w.WriteHeader(http.StatusGone)
			return
		}
		w.Header().Set("Lambda-Runtime-Aws-Request-Id", "invocation-1")
		w.Header().Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(time.Now().Add(20*time.Second).UnixMilli()))
		_, _ = io.WriteString(w, event)
		return
	}
	body, _ := io.ReadAll(r.Body)
	d.answers <- r.URL.Path[strings.LastIndexByte(r.URL.Path, '/'):] + " " + string(body)
	w.WriteHeader(http.StatusAccepted)
}

// start runs the bootstrap as the function with this handler.
func (d *deployment) start(handler string) *exec.Cmd {
	d.t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(d.environment, "_HANDLER="+handler)
	command.Stderr = os.Stderr
	check(d.t, command.Start())
	d.t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	return command
}

func (d *deployment) invoke(event any) string {
	d.t.Helper()
	encoded, err := json.Marshal(event)
	check(d.t, err)
	select {
	case d.invocations <- string(encoded):
	case <-time.After(10 * time.Second):
		d.t.Fatal("the bootstrap asks for no invocation")
	}
	select {
	case answer := <-d.answers:
		return answer
	case <-time.After(10 * time.Second):
		d.t.Fatal("the bootstrap does not answer")
	}
	return ""
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestBootstrapServesTheEndpointItsHandlerNames(t *testing.T) {
	d := deploy(t)
	d.start("register")
	event := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RawPath: "/bridge/register", Headers: map[string]string{"authorization": "Bearer a-token"},
		Body: `{"agent_id":"a1","cli":"codex"}`,
	}
	event.RequestContext.HTTP.Method = "POST"
	for generation := 1; generation <= 2; generation++ {
		answer := d.invoke(event)
		if !strings.HasPrefix(answer, "/response ") || !strings.Contains(answer, fmt.Sprintf(`\"presence_generation\":%d`, generation)) {
			t.Fatalf("the bootstrap answers %s", answer)
		}
	}
}

func TestBootstrapRunsTheSweepItsHandlerNames(t *testing.T) {
	d := deploy(t)
	d.start("sweep-agents")
	if answer := d.invoke(map[string]any{"version": "0", "detail-type": "Scheduled Event"}); answer != "/response null" {
		t.Errorf("the sweep answers %s", answer)
	}
	unreadable := d.aws.Faults().Add(fakeaws.Rule{Op: "Query", Action: fakeaws.Error(500, "InternalServerError")})
	defer unreadable.Remove()
	if answer := d.invoke(nil); !strings.HasPrefix(answer, "/error ") {
		t.Errorf("a sweep that fails answers %s", answer)
	}
}

func TestBootstrapRefusesAHandlerThatNamesNothing(t *testing.T) {
	env := map[string]string{"TABLE_NAME": "t", "_HANDLER": "nonsense"}
	t.Setenv("AWS_REGION", "eu-central-1")
	_, err := build(context.Background(), func(name string) string { return env[name] })
	if err == nil || !strings.Contains(err.Error(), `"nonsense"`) {
		t.Errorf("got %v", err)
	}
	if _, err := build(context.Background(), func(string) string { return "" }); err == nil || !strings.Contains(err.Error(), "TABLE_NAME") {
		t.Errorf("got %v", err)
	}
}

func TestEveryFunctionOfTheTemplateHasAHandler(t *testing.T) {
	d := deploy(t)
	app, err := functions.Open(d.aws.Config(), functions.Settings{Table: d.table, Log: functions.NewLog(io.Discard, "")})
	check(t, err)
	declared, err := template.Load("../../template.yaml", template.Local())
	check(t, err)
	for _, function := range declared.Functions {
		if _, err := handlerOf(app, function.Handler); err != nil {
			t.Errorf("function %s: %v", function.LogicalID, err)
		}
	}
}
