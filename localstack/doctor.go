package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"drawbridge/localstack/doctor"
	"drawbridge/localstack/provision"
	"drawbridge/localstack/template"
)

const doctorHelp = `Usage: go run ./localstack doctor [flags]

Races conditional writes against an AWS endpoint and fails when more than one
writer wins, or a condition is ignored: such an endpoint cannot hold a hub's
state. It cleans up after itself.

`

// examine is the command doctor.
func examine(ctx context.Context, args []string, t terminal) error {
	flags := flag.NewFlagSet("doctor", flag.ContinueOnError)
	rawURL := flags.String("endpoint", "", "`URL` of the endpoint (default: AWS_ENDPOINT_URL, else the embedded AWS of a hub on this machine)")
	table := flags.String("table", "", "`name` of a table with string keys pk and sk to write to (default: a scratch table)")
	bucket := flags.String("bucket", "", "`name` of a bucket to write to (default: a scratch bucket)")
	create := flags.Bool("create", false, "make a scratch table and bucket at an endpoint that is not on this machine")
	flags.Usage = func() {
		fmt.Fprint(t.out, doctorHelp)
		flags.PrintDefaults()
	}
	if err := parseFlags(flags, args, t); err != nil {
		return err
	}
	e, err := openEndpoint(ctx, cmp.Or(*rawURL, t.getenv(endpointVariable), "http://127.0.0.1:4566"), t.getenv)
	if err != nil {
		return err
	}
	if !e.local && !*create && (*table == "" || *bucket == "") {
		return &usageError{"name a table and a bucket of " + e.url + ", or allow scratch ones with -create"}
	}
	return e.diagnose(ctx, t.out, *table, *bucket)
}

// diagnose examines the endpoint and prints the checks.
func (e endpoint) diagnose(ctx context.Context, out io.Writer, table, bucket string) error {
	fmt.Fprintf(out, "Doctor: %s, region %s\n", e.url, e.cfg.Region)
	report, err := doctor.Examine(ctx, doctor.Target{
		DynamoDB: e.dynamoDB(), S3: e.s3(), Endpoint: e.url, Region: e.cfg.Region, Table: table, Bucket: bucket,
	})
	for _, c := range report.Checks {
		verdict := "ok"
		if c.Err != nil {
			verdict = "FAILED"
		}
		fmt.Fprintf(out, "  %-6s %-8s %s (%d ms)\n", verdict, c.Service, c.Name, c.Took/time.Millisecond)
	}
	if err == nil {
		err = report.Err()
	}
	if err != nil {
		return fmt.Errorf("the endpoint %s cannot hold a hub's state:\n%w", e.url, err)
	}
	return nil
}

// admit lets the endpoint hold the hub's state: what the template declares is
// there or may be made, and conditional writes are honoured.
func (e endpoint) admit(ctx context.Context, out io.Writer, t *template.Template, create bool) error {
	missing, err := e.missing(ctx, t)
	if err != nil {
		return doctor.Explain(err, e.url, e.cfg.Region)
	}
	if missing != "" && !e.local && !create {
		return fmt.Errorf("%s has no %s in region %s; deploy the stack there and name its table and bucket in TABLE_NAME and BUCKET_NAME, or make them with -create", e.url, missing, e.cfg.Region)
	}
	table, bucket := t.Tables[0].Name, t.Buckets[0].Name
	if missing != "" {
		table, bucket = "", "" // examine scratch ones before anything is made
	}
	return e.diagnose(ctx, out, table, bucket)
}

// missing names the first table or bucket of the template that is not there.
func (e endpoint) missing(ctx context.Context, t *template.Template) (string, error) {
	for _, x := range t.Tables {
		found, err := provision.Describe(ctx, e.dynamoDB(), x.Name)
		if err != nil {
			return "", err
		}
		if found == nil {
			return "table " + x.Name, nil
		}
	}
	for _, b := range t.Buckets {
		found, err := provision.HasBucket(ctx, e.s3(), b.Name)
		if err != nil {
			return "", err
		}
		if !found {
			return "bucket " + b.Name, nil
		}
	}
	return "", nil
}

// errNoState is a template that a hub cannot run on.
var errNoState = errors.New("the template must declare one table and one bucket for the hub's state")
