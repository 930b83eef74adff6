package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/uuid"
)

const (
	// writers race in every round: enough that a check outside a lock shows.
	writers = 32
	// rounds of each race: a window that is open one time in two stays hidden
	// from one check in eight.
	rounds = 3
	// cleanupTime is what the doctor takes to delete its traces, also after the
	// caller gave up.
	cleanupTime = 20 * time.Second
)

// A Target is the endpoint to examine.
type Target struct {
	DynamoDB *dynamodb.Client
	S3       *s3.Client
	// Endpoint and Region are named in errors.
	Endpoint string
	Region   string
	// Table with string keys pk and sk, and Bucket, are written to and cleaned
	// up. An empty name stands for a scratch one, which the doctor makes and
	// deletes.
	Table  string
	Bucket string
}

// A Refusal says which guarantee the endpoint does not give.
type Refusal struct {
	Service string // "DynamoDB" or "S3"
	Check   string
	Finding string
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("%s: %s: %s", r.Service, r.Check, r.Finding)
}

// A Check is one thing that was examined.
type Check struct {
	Service string
	Name    string
	Took    time.Duration
	// Err is nil when the endpoint passed. It is a *Refusal when it did not, and
	// another error when the question could not be answered.
	Err error
}

// A Report lists the checks in the order they were made.
type Report struct {
	Checks []Check
}

// Err joins what is wrong; nil when the endpoint can be used.
func (r Report) Err() error {
	var all []error
	for _, c := range r.Checks {
		all = append(all, c.Err)
	}
	return errors.Join(all...)
}

// Examine runs every check on the target and cleans up after itself. It costs
// about 32 writes a round, some 600 requests in all. The error is that the target
// could not be examined at all; whether it passed is in the report.
func Examine(ctx context.Context, t Target) (Report, error) {
	var report Report
	id := uuid.NewString()
	if err := examine(ctx, &report, &tables{client: t.DynamoDB, table: t.Table, partition: "doctor#" + id}); err != nil {
		return report, Explain(fmt.Errorf("examine DynamoDB: %w", err), t.Endpoint, t.Region)
	}
	if err := examine(ctx, &report, &buckets{client: t.S3, bucket: t.Bucket, prefix: "doctor/" + id + "/", region: t.Region}); err != nil {
		return report, Explain(fmt.Errorf("examine S3: %w", err), t.Endpoint, t.Region)
	}
	return report, nil
}

// A service is one of the two whose conditions are examined.
type service interface {
	name() string
	// open makes the scratch table or bucket where none was named.
	open(ctx context.Context) error
	checks() []check
	// close deletes what open and the checks made.
	close(ctx context.Context) error
}

type check struct {
	name string
	run  func(ctx context.Context) error
}

func examine(ctx context.Context, report *Report, s service) (err error) {
	defer func() {
		// Deleting goes on when the caller has given up.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		if failed := s.close(ctx); failed != nil {
			err = errors.Join(err, fmt.Errorf("clean up: %w", failed))
		}
	}()
	if err := s.open(ctx); err != nil {
		return err
	}
	for _, c := range s.checks() {
		started := time.Now()
		failed := c.run(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		var finding *Refusal
		if errors.As(failed, &finding) {
			finding.Service, finding.Check = s.name(), c.name
		}
		report.Checks = append(report.Checks, Check{s.name(), c.name, time.Since(started), failed})
	}
	return nil
}

func refusef(format string, args ...any) error {
	return &Refusal{Finding: fmt.Sprintf(format, args...)}
}
