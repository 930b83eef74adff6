// Differential sends the same random DynamoDB operations to the embedded engine
// and to another server, and compares every answer.
//
//	go run ./localstack/fakeaws/differential -other http://127.0.0.1:4567 -name dynalite -ops 20000
//
// A difference must be explained by an entry of the explanations table
// (explain.go), which says who is right and why; any other difference is printed with
// the seed that repeats it, and the command exits 1. After each difference both
// tables are emptied, so that one divergence cannot hide or cause the next.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sort"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"drawbridge/localstack/fakeaws"
)

func main() {
	other := flag.String("other", "", "endpoint of the other server")
	name := flag.String("name", "", "its name in the explanations: dynalite or moto")
	ops := flag.Int("ops", 20_000, "operations to compare")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the run")
	show := flag.Int("show", 10, "unexplained differences to print")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	code, err := run(ctx, os.Stdout, *other, *name, *seed, *ops, *show)
	if err != nil {
		fmt.Fprintln(os.Stderr, "differential:", err)
		os.Exit(2)
	}
	os.Exit(code)
}

func run(ctx context.Context, out io.Writer, other, name string, seed uint64, ops, show int) (int, error) {
	if _, ok := explanations[name]; !ok {
		return 0, fmt.Errorf("no explanations for %q", name)
	}
	ours, err := fakeaws.Open(fakeaws.Options{})
	if err != nil {
		return 0, fmt.Errorf("open the embedded server: %w", err)
	}
	defer ours.Close()
	theirs, err := clientFor(ctx, other)
	if err != nil {
		return 0, err
	}
	c := &comparison{
		ours:   dynamodb.NewFromConfig(ours.Config(), func(o *dynamodb.Options) { o.RetryMaxAttempts = 1 }),
		theirs: theirs,
		name:   name,
		table:  fmt.Sprintf("diff-%x", seed),
		rng:    rand.New(rand.NewPCG(seed, 1)),
		known:  map[string]int{},
		texts:  texts,
	}
	if name != "dynalite" { // knows no empty texts, and sizes beyond 16 bits differ
		c.texts = append(slices.Clone(texts), "😀")
		c.values = append(slices.Clone(c.texts), "")
	} else {
		c.values = texts
	}
	fmt.Fprintf(out, "seed %d, %d operations against %s\n", seed, ops, name)
	if err := c.createTables(ctx); err != nil {
		return 0, err
	}
	defer c.deleteTables(context.WithoutCancel(ctx))
	for i := range ops {
		op := c.randomOp()
		a, b := op.send(ctx, c.ours), op.send(ctx, c.theirs)
		if a.err != nil {
			return 0, fmt.Errorf("operation %d %s: no answer from the embedded server: %w", i, op.kind, a.err)
		}
		if a.text == b.text && (!op.writes || c.sameState(ctx)) {
			continue
		}
		reason := c.explain(op, a, b)
		if reason == "" {
			c.unexplained++
			if c.unexplained <= show {
				fmt.Fprintf(out, "DIFFERENCE at operation %d (%s)\n  request %s\n  ours    %s\n  %s %s\n", i, op.kind, op.text(), a.text, name, b.text)
			}
		} else {
			c.known[reason]++
		}
		if err := c.empty(ctx); err != nil {
			return 0, err
		}
	}
	reasons := make([]string, 0, len(c.known))
	for r := range c.known {
		reasons = append(reasons, r)
	}
	sort.Strings(reasons)
	for _, r := range reasons {
		fmt.Fprintf(out, "explained %6d  %s\n", c.known[r], r)
	}
	fmt.Fprintf(out, "%d operations compared, %d unexplained differences\n", ops, c.unexplained)
	if c.unexplained > 0 {
		return 1, nil
	}
	return 0, nil
}

func clientFor(ctx context.Context, endpoint string) (*dynamodb.Client, error) {
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithRegion("us-east-1"),
		config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("test", "testtest", "")),
		config.WithBaseEndpoint(endpoint),
		config.WithRetryMaxAttempts(1),
		config.WithHTTPClient(awshttp.NewBuildableClient()),
	)
	if err != nil {
		return nil, fmt.Errorf("load the client's configuration: %w", err)
	}
	cfg.HTTPClient = plainBodies{cfg.HTTPClient}
	return dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) { o.DisableValidateResponseChecksum = true }), nil
}

// plainBodies hides the WriteTo of request bodies, which reports io.EOF as an error once
// the SDK has closed the body (smithy-go 1.28.9): the transport would drop the connection
// while a slow server's answer is still being read.
type plainBodies struct{ next aws.HTTPClient }

func (c plainBodies) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		plain := *r
		plain.Body = struct{ io.ReadCloser }{r.Body}
		r = &plain
	}
	return c.next.Do(r)
}

type comparison struct {
	ours, theirs *dynamodb.Client
	name, table  string
	texts        []string // for keys and operands
	values       []string // for attributes: also the empty text, where it is known
	rng          *rand.Rand
	known        map[string]int
	unexplained  int
}

func (c *comparison) createTables(ctx context.Context) error {
	for _, cl := range []*dynamodb.Client{c.ours, c.theirs} {
		if _, err := cl.CreateTable(ctx, tableInput(c.table)); err != nil {
			return fmt.Errorf("create table: %w", err)
		}
		w := dynamodb.NewTableExistsWaiter(cl, func(o *dynamodb.TableExistsWaiterOptions) { o.MinDelay, o.MaxDelay = 50*time.Millisecond, time.Second })
		if err := w.Wait(ctx, &dynamodb.DescribeTableInput{TableName: &c.table}, 30*time.Second); err != nil {
			return fmt.Errorf("wait for table: %w", err)
		}
	}
	return nil
}

func (c *comparison) deleteTables(ctx context.Context) {
	for _, cl := range []*dynamodb.Client{c.ours, c.theirs} {
		_, _ = cl.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &c.table})
	}
}

// empty removes every item on both sides.
func (c *comparison) empty(ctx context.Context) error {
	for _, cl := range []*dynamodb.Client{c.ours, c.theirs} {
		o, err := cl.Scan(ctx, &dynamodb.ScanInput{TableName: &c.table, ConsistentRead: aws.Bool(true)})
		if err != nil {
			return fmt.Errorf("scan to empty: %w", err)
		}
		for _, it := range o.Items {
			if _, err := cl.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &c.table, Key: keyOf(it)}); err != nil {
				return fmt.Errorf("delete to empty: %w", err)
			}
		}
	}
	return nil
}

// sameState compares the whole content of the tables.
func (c *comparison) sameState(ctx context.Context) bool {
	in := &dynamodb.ScanInput{TableName: &c.table, ConsistentRead: aws.Bool(true)}
	a, errA := c.ours.Scan(ctx, in)
	b, errB := c.theirs.Scan(ctx, in)
	if errA != nil || errB != nil {
		return false
	}
	return unordered(a.Items) == unordered(b.Items)
}
