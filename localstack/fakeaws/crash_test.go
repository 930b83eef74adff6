package fakeaws_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// TestNoAcknowledgedWriteIsLostInACrash kills a durable server with SIGKILL at
// random moments while writers are at it, starts it again on the same folder,
// and compares what is there with what was acknowledged. The number of kills is
// DRAWBRIDGE_CRASH_ROUNDS, or 10.
//
// Each writer makes its steps 1, 2, 3, ... one at a time without retries. So
// after a crash its state is the last acknowledged step, or the one after it
// when that was on its way: nothing else.
func TestNoAcknowledgedWriteIsLostInACrash(t *testing.T) {
	rounds := 10
	if s := os.Getenv("DRAWBRIDGE_CRASH_ROUNDS"); s != "" {
		var err error
		if rounds, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	crash := &crashTest{binary: buildServer(t), dir: t.TempDir()}

	writers := []writer{}
	for i := range 3 {
		writers = append(writers,
			&counterWriter{name: fmt.Sprintf("COUNTER#%d", i)},
			&transactionWriter{name: fmt.Sprintf("TRANSACTION#%d", i)},
			&objectWriter{key: fmt.Sprintf("jobs/%d", i)})
	}
	writers = append(writers, &logWriter{name: "LOG#0"}, &logWriter{name: "LOG#1"})
	acknowledged := make([]int, len(writers))

	for range rounds {
		if random.IntN(4) == 0 { // a kill while it is starting
			crash.start(t)
			time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
			crash.kill(t)
		}
		crash.start(t)
		crash.connect(t)
		verify(t, crash, writers, acknowledged)
		var wg sync.WaitGroup
		for i, w := range writers {
			wg.Go(func() {
				for {
					if err := w.step(crash, acknowledged[i]+1); err != nil {
						return // the server is gone; the next round tells what it did
					}
					acknowledged[i]++
				}
			})
		}
		time.Sleep(time.Duration(20+random.IntN(250)) * time.Millisecond)
		crash.kill(t)
		wg.Wait()
	}
	crash.start(t)
	crash.connect(t)
	for _, w := range writers {
		if log, ok := w.(*logWriter); ok {
			log.seen = 0 // everything once more
		}
	}
	verify(t, crash, writers, acknowledged)
	crash.kill(t)
	total := 0
	for _, n := range acknowledged {
		total += n
	}
	if total < rounds*len(writers) {
		t.Errorf("only %d writes were acknowledged in %d rounds: the test hardly tested", total, rounds)
	}
	t.Logf("%d kills, %d acknowledged writes, none lost", rounds, total)
}

// verify checks every writer's state and lets it go on from there.
func verify(t *testing.T, c *crashTest, writers []writer, acknowledged []int) {
	t.Helper()
	sum := 0
	for i, w := range writers {
		n, err := w.state(c, acknowledged[i])
		if err != nil {
			t.Fatalf("%T %d: %v", w, i, err)
		}
		if n < acknowledged[i] || n > acknowledged[i]+1 {
			t.Fatalf("%T %d: step %d is there, %d was acknowledged", w, i, n, acknowledged[i])
		}
		acknowledged[i] = n
		if _, ok := w.(*transactionWriter); ok {
			sum += n
		}
	}
	// The shared total was part of each transaction.
	total, err := c.number("TOTAL")
	if err != nil {
		t.Fatal(err)
	}
	if total != sum {
		t.Fatalf("the total is %d, the sum of its parts %d: a transaction was torn", total, sum)
	}
}

// A writer makes numbered steps and can tell which one it finds.
type writer interface {
	step(c *crashTest, n int) error
	// state returns the step that the server holds. acknowledged is where to
	// look from.
	state(c *crashTest, acknowledged int) (int, error)
}

// counterWriter counts one item up by conditional updates.
type counterWriter struct{ name string }

func (w *counterWriter) step(c *crashTest, n int) error {
	_, err := c.tables.UpdateItem(context.Background(), &dynamodb.UpdateItemInput{
		TableName: aws.String("table"), Key: crashKey(w.name), UpdateExpression: aws.String("SET n = :n"),
		ConditionExpression:       aws.String("attribute_not_exists(n) OR n = :before"),
		ExpressionAttributeValues: item{":n": num(n), ":before": num(n - 1)}})
	return err
}

func (w *counterWriter) state(c *crashTest, _ int) (int, error) { return c.number(w.name) }

// transactionWriter counts two items of its own and a shared total up together.
type transactionWriter struct{ name string }

func (w *transactionWriter) step(c *crashTest, n int) error {
	var items []types.TransactWriteItem
	for _, key := range []string{w.name + "/a", w.name + "/b"} {
		items = append(items, types.TransactWriteItem{Put: &types.Put{TableName: aws.String("table"),
			Item: item{"pk": str(key), "sk": str("meta"), "n": num(n), "data": str(filler)}}})
	}
	items = append(items, types.TransactWriteItem{Update: &types.Update{TableName: aws.String("table"), Key: crashKey("TOTAL"),
		UpdateExpression: aws.String("ADD n :one"), ExpressionAttributeValues: item{":one": num(1)}}})
	_, err := c.tables.TransactWriteItems(context.Background(), &dynamodb.TransactWriteItemsInput{TransactItems: items})
	return err
}

func (w *transactionWriter) state(c *crashTest, _ int) (int, error) {
	a, err := c.number(w.name + "/a")
	if err != nil {
		return 0, err
	}
	b, err := c.number(w.name + "/b")
	if err == nil && a != b {
		err = fmt.Errorf("the transaction was torn: %d and %d", a, b)
	}
	return a, err
}

// logWriter puts a new item for each step.
type logWriter struct {
	name string
	seen int // items that were there after an earlier crash
}

func (w *logWriter) key(n int) item { return crashKey(fmt.Sprintf("%s#%d", w.name, n)) }

func (w *logWriter) step(c *crashTest, n int) error {
	_, err := c.tables.PutItem(context.Background(), &dynamodb.PutItemInput{TableName: aws.String("table"), Item: w.key(n)})
	return err
}

// state looks for every item acknowledged since the last time, and for the one
// after.
func (w *logWriter) state(c *crashTest, acknowledged int) (int, error) {
	for n := acknowledged + 1; n > w.seen; n-- {
		out, err := c.tables.GetItem(context.Background(), &dynamodb.GetItemInput{TableName: aws.String("table"), Key: w.key(n)})
		if err != nil {
			return 0, err
		}
		switch found := out.Item != nil; {
		case n == acknowledged+1 && found:
			acknowledged++
		case n <= acknowledged && !found:
			return 0, fmt.Errorf("item %d of %d is gone", n, acknowledged)
		}
	}
	w.seen = acknowledged
	return acknowledged, nil
}

// objectWriter rewrites one object by conditional puts.
type objectWriter struct{ key, etag string }

func (w *objectWriter) step(c *crashTest, n int) error {
	in := &s3.PutObjectInput{Bucket: aws.String("bucket"), Key: &w.key, Body: strings.NewReader(strconv.Itoa(n) + "\n" + strings.Repeat("x", n%5000))}
	if w.etag == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = &w.etag
	}
	out, err := c.store.PutObject(context.Background(), in)
	if err == nil {
		w.etag = aws.ToString(out.ETag)
	}
	return err
}

func (w *objectWriter) state(c *crashTest, _ int) (int, error) {
	out, err := c.store.GetObject(context.Background(), &s3.GetObjectInput{Bucket: aws.String("bucket"), Key: &w.key})
	if errorCode(err) == "NoSuchKey" {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer out.Body.Close()
	text, err := io.ReadAll(out.Body)
	if err != nil {
		return 0, err
	}
	w.etag = aws.ToString(out.ETag)
	digits, rest, _ := strings.Cut(string(text), "\n")
	n, err := strconv.Atoi(digits)
	if err == nil && len(rest) != n%5000 {
		err = fmt.Errorf("the body of step %d has %d bytes", n, len(rest))
	}
	return n, err
}

func crashKey(pk string) item { return item{"pk": str(pk), "sk": str("meta")} }

// crashTest runs the server's binary on one folder.
type crashTest struct {
	binary, dir string
	process     *exec.Cmd
	stdout      io.ReadCloser
	stderr      *strings.Builder
	tables      *dynamodb.Client
	store       *s3.Client
}

func buildServer(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "fakeaws")
	if out, err := exec.Command("go", "build", "-o", binary, "./cmd").CombinedOutput(); err != nil {
		t.Fatalf("build the server: %v\n%s", err, out)
	}
	return binary
}

func (c *crashTest) start(t *testing.T) {
	t.Helper()
	c.process = exec.Command(c.binary, "-addr", "127.0.0.1:0", "-data", filepath.Join(c.dir, "data"))
	c.process.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=testtest")
	c.stderr = &strings.Builder{}
	c.process.Stderr = c.stderr
	var err error
	if c.stdout, err = c.process.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.process.Start(); err != nil {
		t.Fatal(err)
	}
	process := c.process
	t.Cleanup(func() { _ = process.Process.Kill() }) // it is over already unless the test failed
}

// connect waits until the server is ready and makes clients that do not retry.
func (c *crashTest) connect(t *testing.T) {
	t.Helper()
	line, err := bufio.NewReader(c.stdout).ReadString('\n')
	if err != nil {
		_ = c.process.Wait()
		t.Fatalf("the server did not start: %v: %s", err, c.stderr)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 32}
	t.Cleanup(transport.CloseIdleConnections)
	c.tables, c.store = clients(aws.Config{
		Region:       "us-east-1",
		Credentials:  credentials.NewStaticCredentialsProvider("test", "testtest", ""),
		HTTPClient:   &http.Client{Transport: transport, Timeout: 20 * time.Second},
		BaseEndpoint: aws.String(strings.TrimSpace(line)),
		Retryer:      func() aws.Retryer { return aws.NopRetryer{} },
	})
	setUp(t, c.tables, c.store)
}

func (c *crashTest) kill(t *testing.T) {
	t.Helper()
	if err := c.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.process.Wait() // it was killed: that is an error by definition
	if text := c.stderr.String(); text != "" {
		t.Fatalf("the server said: %s", text)
	}
}

// number is attribute n of an item, 0 when there is none.
func (c *crashTest) number(pk string) (int, error) {
	out, err := c.tables.GetItem(context.Background(), &dynamodb.GetItemInput{TableName: aws.String("table"), Key: crashKey(pk), ConsistentRead: aws.Bool(true)})
	if err != nil {
		return 0, err
	}
	n, ok := out.Item["n"].(*types.AttributeValueMemberN)
	if !ok {
		return 0, nil
	}
	return strconv.Atoi(n.Value)
}
