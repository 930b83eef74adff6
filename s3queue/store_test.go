package s3queue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"drawbridge/core"
	"drawbridge/localstack/fakeaws"
)

// lifecycle takes a job through every kind of write there is.
func lifecycle(t *testing.T, b *bed, q *Queue) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	b.enqueue(q, request("x", 1))
	b.enqueue(q, request("x", 2))
	job := b.claim(q)
	_, err := q.Renew(ctx, job.ID, job.Lease.ID)
	must(err)
	_, err = q.Progress(ctx, job.ID, job.Lease.ID, core.ArchiveProgress{Bytes: 1, Of: 2})
	must(err)
	_, err = q.Fail(ctx, job.ID, job.Lease.ID, core.ArchiveFailure{Code: "io"})
	must(err)
	_, err = q.Retry(ctx, job.ID)
	must(err)
	job = b.claim(q)
	_, err = q.Release(ctx, job.ID, job.Lease.ID, nil)
	must(err)
	_, err = q.Complete(ctx, doneWith(b.claim(q)))
	must(err)
	gone := b.enqueue(q, request("y", 1))
	_, err = q.Remove(ctx, gone.ID)
	must(err)
	_, err = q.Get(ctx, gone.ID)
	if core.CodeOf(err) != core.CodeQueueJobNotFound {
		t.Fatalf("the removed job: %v", err)
	}
	b.clock.Advance(time.Hour)
	b.sweep(q)
	stats, err := q.Stats(ctx)
	must(err)
	if stats.Done != 2 || stats.Completed != 1 || stats.Superseded != 1 || stats.Total() != 2 {
		t.Fatalf("stats %+v", stats)
	}
}

func TestABucketPolicyThatEnforcesConditionalWritesIsKept(t *testing.T) {
	b := newEmbedded(t)
	statement := `{"Sid":"%s","Effect":"Deny","Principal":"*","Action":"s3:PutObject","Resource":"arn:aws:s3:::queue/%s*",
		"Condition":{"Null":{"s3:if-none-match":"true","s3:if-match":"true"}}}`
	_, err := b.s3.PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: &b.bucket, Policy: aws.String(
		`{"Version":"2012-10-17","Statement":[` + fmt.Sprintf(statement, "jobs", "jobs/") + "," + fmt.Sprintf(statement, "state", "state/") + `]}`)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.s3.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &b.bucket, Key: aws.String("jobs/x"), Body: strings.NewReader("")})
	if !isDenied(err) {
		t.Fatalf("the policy does not hold: %v", err)
	}
	lifecycle(t, b, b.queue(b.config.HTTPClient))
}

// An ETag of an object under SSE-KMS is no hash of its content.
func TestABucketEncryptedWithKMSServes(t *testing.T) {
	b := newEmbedded(t)
	_, err := b.s3.PutBucketEncryption(t.Context(), &s3.PutBucketEncryptionInput{Bucket: &b.bucket,
		ServerSideEncryptionConfiguration: &types.ServerSideEncryptionConfiguration{Rules: []types.ServerSideEncryptionRule{{
			ApplyServerSideEncryptionByDefault: &types.ServerSideEncryptionByDefault{SSEAlgorithm: types.ServerSideEncryptionAwsKms},
			BucketKeyEnabled:                   aws.Bool(true)}}}})
	if err != nil {
		t.Fatal(err)
	}
	lifecycle(t, b, b.queue(b.config.HTTPClient))
}

func TestAVersionedBucketServes(t *testing.T) {
	b := newBed(t).versioned()
	lifecycle(t, b, b.queue(b.config.HTTPClient))
}

// prefixOnly answers as S3 does where the list permission holds for some
// prefixes only: what is not there is forbidden.
type prefixOnly struct {
	over      aws.HTTPClient
	forbidden string // a prefix that may not be listed either
}

func (p prefixOnly) Do(r *http.Request) (*http.Response, error) {
	list := r.URL.Query().Get("prefix")
	if p.forbidden != "" && strings.HasPrefix(list, p.forbidden) {
		return answer(r, http.StatusForbidden, "AccessDenied"), nil
	}
	resp, err := p.over.Do(r)
	if err == nil && r.Method == http.MethodGet && resp.StatusCode == http.StatusNotFound {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return answer(r, http.StatusForbidden, "AccessDenied"), nil
	}
	return resp, err
}

func TestAPermissionToListThePrefixesOnlyIsEnough(t *testing.T) {
	b := newBed(t)
	lifecycle(t, b, b.queue(prefixOnly{over: b.config.HTTPClient}))
}

// lateArrival answers the first read of an object as if it were not there yet.
type lateArrival struct {
	over aws.HTTPClient
	left int
}

func (l *lateArrival) Do(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/jobs/") && l.left > 0 {
		l.left--
		return answer(r, http.StatusForbidden, "AccessDenied"), nil
	}
	return l.over.Do(r)
}

// An object that is made between the read and the listing that explains the
// read's refusal is no permission failure.
func TestAnObjectThatArrivesAfterTheReadIsReadAgain(t *testing.T) {
	b := newBed(t)
	q := b.queue(b.config.HTTPClient)
	b.enqueue(q, request("x", 1))
	id := core.NewArchiveJob(request("x", 1), 0).ID
	if _, err := b.queue(&lateArrival{over: b.config.HTTPClient, left: 1}).Get(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	_, err := b.queue(&lateArrival{over: b.config.HTTPClient, left: 100}).Get(t.Context(), id)
	if core.CodeOf(err) != core.CodeInternal {
		t.Fatalf("a read that stays refused: %v, want %s", err, core.CodeInternal)
	}
}

func TestAPermissionFailureIsAnErrorAndNeverAnEmptyQueue(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	q := b.queue(prefixOnly{over: b.config.HTTPClient, forbidden: openPrefix})
	job := core.NewArchiveJob(request("x", 1), 0)
	for name, err := range map[string]error{
		"claim":          second(q.Claim(ctx, core.ArchiveClaim{Owner: "w", Max: 1})),
		"stats":          second(q.Stats(ctx)),
		"has claimable":  second(q.HasClaimable(ctx)),
		"list":           second(q.List(ctx, core.ArchiveQuery{Status: core.ArchiveReady, Limit: 1})),
		"sweep":          second(q.Sweep(ctx)),
		"get":            second(b.queue(prefixOnly{b.config.HTTPClient, jobPrefix}).Get(ctx, job.ID)),
		"get, no bucket": second(New(Config{S3: b.s3, Bucket: "no-such-bucket-here", Clock: b.clock}).Get(ctx, job.ID)),
	} {
		if core.CodeOf(err) != core.CodeInternal {
			t.Errorf("%s: %v, want %s", name, err, core.CodeInternal)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// aws/aws-sdk-java-v2#6023: S3 can answer an error with status 200.
func TestAnErrorWithStatus200IsWhatItsCodeSays(t *testing.T) {
	for _, code := range []string{"PreconditionFailed", "ConditionalRequestConflict", "SlowDown"} {
		t.Run(code, func(t *testing.T) {
			b := newEmbedded(t)
			q := b.queue(b.config.HTTPClient)
			b.enqueue(q, request("x", 1))
			job := b.claim(q)
			// As often as the SDK sends it again by itself.
			b.aws.Faults().Add(fakeaws.Rule{Op: "PutObject", Key: "jobs/*", Count: 3, Action: fakeaws.ErrorWith200(code)})
			_, err := q.Progress(t.Context(), job.ID, job.Lease.ID, core.ArchiveProgress{Bytes: 1, Of: 2})
			if code == "SlowDown" {
				if core.CodeOf(err) != core.CodeThrottled {
					t.Fatalf("got %v, want %s", err, core.CodeThrottled)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestWhatS3AnswersIsToldByItsCode(t *testing.T) {
	api := func(code string) error { return fmt.Errorf("operation: %w", &smithy.GenericAPIError{Code: code}) }
	status := func(status int, code string) error {
		return &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}}, Err: api(code)}
	}
	for _, c := range []struct {
		err   error
		write bool
		want  error
		code  core.Code
	}{
		{api("NoSuchKey"), true, errAbsent, ""},
		{api("NotFound"), false, errAbsent, ""},
		{api("PreconditionFailed"), true, errLost, ""},
		{api("ConditionalRequestConflict"), true, errConflict, ""},
		{api("OperationAborted"), true, errConflict, ""},
		{api("SlowDown"), true, nil, core.CodeThrottled},
		{api("InternalError"), true, nil, core.CodeOutcomeUnknown},
		{api("InternalError"), false, nil, core.CodeUnavailable},
		{status(500, "InternalServerError"), false, nil, core.CodeUnavailable},
		{status(502, "BadGateway"), true, nil, core.CodeOutcomeUnknown},
		{status(504, "UnknownError"), true, nil, core.CodeOutcomeUnknown},
		{status(501, "NotImplemented"), true, nil, core.CodeInternal},
		{status(400, "InvalidRequest"), true, nil, core.CodeInternal},
		{errors.New("connection reset"), true, nil, core.CodeOutcomeUnknown},
		{errors.New("connection reset"), false, nil, core.CodeUnavailable},
		{api("AccessDenied"), true, nil, core.CodeInternal},
		{api("NoSuchBucket"), false, nil, core.CodeInternal},
		{api("NotImplemented"), true, nil, core.CodeInternal},
	} {
		got := refusal(c.err, c.write)
		if c.want != nil && !errors.Is(got, c.want) || c.code != "" && core.CodeOf(got) != c.code {
			t.Errorf("%v (write %t) became %v", c.err, c.write, got)
		}
	}
	if refusal(nil, true) != nil {
		t.Error("no error became one")
	}
}

// A reluctant S3 keeps one key of each deletion.
type reluctant struct {
	S3API
	code string
}

func (r reluctant) DeleteObjects(_ context.Context, in *s3.DeleteObjectsInput, _ ...func(*s3.Options)) (*s3.DeleteObjectsOutput, error) {
	return &s3.DeleteObjectsOutput{Errors: []types.Error{{Key: in.Delete.Objects[0].Key, Code: &r.code}}}, nil
}

func (r reluctant) DeleteObject(context.Context, *s3.DeleteObjectInput, ...func(*s3.Options)) (*s3.DeleteObjectOutput, error) {
	return nil, &smithy.GenericAPIError{Code: r.code}
}

func TestAKeyThatIsNotDeletedIsToldByItsCode(t *testing.T) {
	for code, want := range map[string]core.Code{
		"SlowDown": core.CodeThrottled, "InternalError": core.CodeOutcomeUnknown, "AccessDenied": core.CodeInternal,
		"OperationAborted": core.CodeQueueContention, "ConditionalRequestConflict": core.CodeQueueContention,
	} {
		q := newBed(t).queue(http.DefaultClient)
		q.s3 = reluctant{q.s3, code}
		for _, keys := range [][]string{{"one"}, {"one", "another"}} {
			err := q.clear(t.Context(), &litter{keys: keys})
			if core.CodeOf(err) != want || !strings.Contains(err.Error(), code) {
				t.Errorf("%s of %d keys: %v, want %s", code, len(keys), err, want)
			}
		}
	}
}

func TestContentionEndsInARefusalThatMayBeRepeated(t *testing.T) {
	b := newBed(t)
	n := newNetwork(b.config.HTTPClient)
	q := b.queue(n)
	job := b.enqueue(q, request("x", 1))
	n.Conflict(1 << 20)
	_, err := q.Retry(t.Context(), job.ID)
	var e *core.Error
	if !errors.As(err, &e) || e.Code != core.CodeQueueContention || !e.Code.Entry().Retryable || e.RetryAfter == 0 {
		t.Fatalf("got %v", err)
	}
	n.Conflict(0)
	if _, err := q.Retry(t.Context(), job.ID); err != nil {
		t.Fatal(err)
	}
}

func TestADocumentComesBackWithoutItsLineOfBlanks(t *testing.T) {
	for _, doc := range []string{`{"a":1}`, "{}\n", "x \t\n \t", ""} {
		nonce := strings.Repeat("0123456789abcdef", 2)
		if got := string(document(content([]byte(doc), nonce))); got != doc {
			t.Errorf("%q came back as %q", doc, got)
		}
		if got := string(document([]byte(doc))); got != doc {
			t.Errorf("%q without blanks came back as %q", doc, got)
		}
	}
}

// Nobody else writes an index key, and S3 answers 409 all the same when another
// request is under way on the resource.
func TestAnIndexKeyThatAConflictKeptOutIsWrittenAgain(t *testing.T) {
	for _, prefix := range []string{"open/*", "source/*"} {
		t.Run(prefix, func(t *testing.T) {
			b := newEmbedded(t)
			q := b.queue(b.config.HTTPClient)
			fault := b.aws.Faults().Add(fakeaws.Rule{Op: "PutObject", Key: prefix, Count: 2, Action: fakeaws.Error(409, "OperationAborted")})
			b.enqueue(q, request("x", 1))
			if fault.Hits() != 2 {
				t.Fatalf("%d of 2 conflicts were met", fault.Hits())
			}
			b.claim(q)
		})
	}
}
