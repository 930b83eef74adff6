package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"drawbridge/localstack/processes"
)

const (
	// startPatience and stopPatience bound how long a hub may take to start and
	// to end; a start reads the whole data folder.
	startPatience = 2 * time.Minute
	stopPatience  = 30 * time.Second
	// keptOutput is how much of a hub's standard error is kept to tell why it
	// ended, in bytes.
	keptOutput = 4000
)

// A Hub is a hub in a process of its own, durable in a folder, as a user starts
// it: only its ports are chosen by the system.
type Hub struct {
	URL   string
	Token string
	PID   int

	aws *dynamodb.Client // of its embedded AWS

	process *exec.Cmd
	ended   chan error // gets what the process ended with, once
	errors  tail
}

var (
	hubLine = regexp.MustCompile(`(?m)^  hub +(http://\S+)$`)
	awsLine = regexp.MustCompile(`embedded AWS answers at (http://\S+)`)
)

// Start starts the binary of the command localstack with a data folder and waits
// until it serves. The working directory has to be in the project. Stop ends it.
func Start(ctx context.Context, binary, folder string, flags ...string) (*Hub, error) {
	h := &Hub{ended: make(chan error, 1), errors: tail{limit: keptOutput}}
	h.process = exec.Command(binary, append([]string{"-http", "127.0.0.1:0", "-aws", "127.0.0.1:0", "-data", folder}, flags...)...)
	// The environment may name another endpoint, or a token that is no file's.
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "AWS_") && !strings.HasPrefix(variable, "DRAWBRIDGE_TOKEN=") {
			h.process.Env = append(h.process.Env, variable)
		}
	}
	processes.Apart(h.process) // Ctrl-C reaches whoever measures, which ends it in order
	h.process.Stderr = &h.errors
	out, err := h.process.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a hub: %w", err)
	}
	if err := h.process.Start(); err != nil {
		return nil, fmt.Errorf("start a hub: %w", err)
	}
	h.PID = h.process.Process.Pid
	ready := make(chan string, 1)
	go h.read(out, ready)
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	select {
	case greeting := <-ready:
		if err := h.greeted(greeting); err != nil {
			return nil, errors.Join(err, h.Stop())
		}
	case err := <-h.ended:
		return nil, fmt.Errorf("the hub ended before it served: %w\n%s", err, h.errors.kept)
	case <-ctx.Done():
		_ = h.process.Process.Kill() // an error says that it has ended
		return nil, fmt.Errorf("the hub did not get ready: %w", ctx.Err())
	}
	token, err := os.ReadFile(filepath.Join(folder, "token"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the hub's token: %w", err), h.Stop())
	}
	h.Token = strings.TrimSpace(string(token))
	return h, nil
}

// greeted takes the addresses out of what the hub says when it is ready.
func (h *Hub) greeted(greeting string) error {
	url, endpoint := hubLine.FindStringSubmatch(greeting), awsLine.FindStringSubmatch(greeting)
	if url == nil || endpoint == nil {
		return fmt.Errorf("the hub did not tell where it is: %s", greeting)
	}
	h.URL = url[1]
	h.aws = dynamodb.New(dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(endpoint[1]), Credentials: credentials.NewStaticCredentialsProvider("test", "testtest", ""),
	})
	return nil
}

// Rows is how many items the hub's table holds.
func (h *Hub) Rows() (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	name, err := h.table(ctx)
	if err != nil {
		return 0, err
	}
	table, err := h.aws.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
	if err != nil {
		return 0, fmt.Errorf("count the hub's rows: %w", err)
	}
	return aws.ToInt64(table.Table.ItemCount), nil
}

// read waits for the greeting, which ends with how to stop the hub, and then for
// the end of the process.
func (h *Hub) read(out io.Reader, ready chan<- string) {
	lines, greeting := bufio.NewScanner(out), ""
	for lines.Scan() {
		greeting += lines.Text() + "\n"
		if strings.HasPrefix(lines.Text(), "Ctrl-C") {
			ready <- greeting
		}
	}
	h.ended <- h.process.Wait()
}

// Stop ends the hub in order and returns what it ended with.
func (h *Hub) Stop() error {
	if err := processes.End(h.process.Process); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the hub: %w", err)
	}
	select {
	case err := <-h.ended:
		if err != nil {
			return fmt.Errorf("the hub ended: %w\n%s", err, h.errors.kept)
		}
		return nil
	case <-time.After(stopPatience):
		_ = h.process.Process.Kill() // an error says that it has ended
		return errors.New("the hub did not stop; it was killed")
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
		t.kept = t.kept[:copy(t.kept, t.kept[over:])]
	}
	return len(p), nil
}
