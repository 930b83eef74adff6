package doctor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"drawbridge/localstack/fakeaws"
)

const region = "eu-west-1"

// A fault turns a good endpoint into a broken one: it may change a request, or
// answer it by itself through next.
type fault func(r *http.Request, body []byte, next func([]byte) (int, []byte)) (status int, answer []byte)

// endpoint is an embedded AWS behind a proxy that has the fault and signs what it
// changed.
type endpoint struct {
	*httptest.Server
	fault fault
	aws   *fakeaws.Server
}

func serve(t *testing.T, f fault) *endpoint {
	t.Helper()
	server, err := fakeaws.Open(fakeaws.Options{AccessKey: "test", SecretKey: "testtest", Region: region})
	if err != nil {
		t.Fatal(err)
	}
	e := &endpoint{fault: f, aws: server}
	e.Server = httptest.NewServer(e)
	t.Cleanup(func() {
		e.Close()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if e.fault == nil {
		r.Body = io.NopCloser(bytes.NewReader(body))
		e.aws.ServeHTTP(w, r)
		return
	}
	status, answer := e.fault(r, body, func(body []byte) (int, []byte) { return e.forward(w, r, body) })
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	w.Header().Del("X-Amz-Crc32")
	w.WriteHeader(status)
	_, _ = w.Write(answer)
}

// forward signs the request anew and hands it to the embedded AWS.
func (e *endpoint) forward(w http.ResponseWriter, r *http.Request, body []byte) (int, []byte) {
	service := "s3"
	if r.Header.Get("X-Amz-Target") != "" {
		service = "dynamodb"
	}
	out := r.Clone(r.Context())
	out.URL.Host, out.URL.Scheme = r.Host, "http"
	out.Header.Del("Authorization")
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	out.Header.Set("X-Amz-Content-Sha256", hash)
	out.ContentLength = int64(len(body))
	out.Header.Set("Content-Length", strconv.Itoa(len(body)))
	out.Body = io.NopCloser(bytes.NewReader(body))
	key := aws.Credentials{AccessKeyID: "test", SecretAccessKey: "testtest"}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = service == "s3" })
	if err := signer.SignHTTP(r.Context(), key, out, hash, service, region, time.Now()); err != nil {
		panic(err)
	}
	rec := httptest.NewRecorder()
	e.aws.ServeHTTP(rec, out)
	for name, values := range rec.Header() {
		w.Header()[name] = values
	}
	return rec.Code, rec.Body.Bytes()
}

func (e *endpoint) target(signedFor string) Target {
	cfg := aws.Config{
		Region:           signedFor,
		BaseEndpoint:     aws.String(e.URL),
		Credentials:      credentials.NewStaticCredentialsProvider("test", "testtest", ""),
		RetryMaxAttempts: 1,
	}
	return Target{
		DynamoDB: dynamodb.NewFromConfig(cfg),
		S3:       s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true }),
		Endpoint: e.URL, Region: signedFor,
	}
}

// left is what the doctor left behind: tables, buckets, items and objects.
func left(t *testing.T, target Target) (names []string) {
	t.Helper()
	tables, err := target.DynamoDB.ListTables(t.Context(), &dynamodb.ListTablesInput{})
	if err != nil {
		t.Fatal(err)
	}
	names = append(names, tables.TableNames...)
	buckets, err := target.S3.ListBuckets(t.Context(), &s3.ListBucketsInput{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range buckets.Buckets {
		names = append(names, aws.ToString(b.Name))
	}
	return names
}

func TestAGoodEndpointPassesAndIsLeftClean(t *testing.T) {
	target := serve(t, nil).target(region)
	report, err := Examine(t.Context(), target)
	if err != nil || report.Err() != nil {
		t.Fatal(err, report.Err())
	}
	if len(report.Checks) != 9 {
		t.Errorf("%d checks were made", len(report.Checks))
	}
	if names := left(t, target); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
}

func TestTheHubsOwnTableAndBucketAreLeftAsTheyWere(t *testing.T) {
	target := serve(t, nil).target(region)
	d := &tables{client: target.DynamoDB}
	b := &buckets{client: target.S3, region: region}
	if err := errors.Join(d.open(t.Context()), b.open(t.Context())); err != nil {
		t.Fatal(err)
	}
	target.Table, target.Bucket = d.table, b.bucket
	report, err := Examine(t.Context(), target)
	if err != nil || report.Err() != nil {
		t.Fatal(err, report.Err())
	}
	if names := left(t, target); len(names) != 2 {
		t.Fatalf("there are %v", names)
	}
	items, err := target.DynamoDB.Scan(t.Context(), &dynamodb.ScanInput{TableName: &target.Table})
	if err != nil || items.Count != 0 {
		t.Errorf("items left: %+v, %v", items, err)
	}
	objects, err := target.S3.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &target.Bucket})
	if err != nil || len(objects.Contents) != 0 {
		t.Errorf("objects left: %+v, %v", objects, err)
	}
}

// change edits the JSON of a DynamoDB request.
func change(body []byte, edit func(map[string]any)) []byte {
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil {
		panic(err)
	}
	edit(m)
	out, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return out
}

func isOp(r *http.Request, op string) bool {
	return strings.HasSuffix(r.Header.Get("X-Amz-Target"), "."+op)
}

func through(_ *http.Request, body []byte, next func([]byte) (int, []byte)) (int, []byte) {
	return next(body)
}

func ignoresConditions(r *http.Request, body []byte, next func([]byte) (int, []byte)) (int, []byte) {
	if isOp(r, "PutItem") {
		body = change(body, func(m map[string]any) {
			delete(m, "ConditionExpression")
			delete(m, "ReturnValuesOnConditionCheckFailure")
		})
	}
	return next(body)
}

func forgetsTheOldItem(r *http.Request, body []byte, next func([]byte) (int, []byte)) (int, []byte) {
	if isOp(r, "PutItem") {
		body = change(body, func(m map[string]any) { delete(m, "ReturnValuesOnConditionCheckFailure") })
	}
	return next(body)
}

// splitsTransactions carries out the parts of a transaction one by one.
func splitsTransactions(r *http.Request, body []byte, next func([]byte) (int, []byte)) (int, []byte) {
	if !isOp(r, "TransactWriteItems") {
		return next(body)
	}
	var in struct{ TransactItems []map[string]json.RawMessage }
	if err := json.Unmarshal(body, &in); err != nil {
		panic(err)
	}
	r.Header.Set("X-Amz-Target", "DynamoDB_20120810.PutItem")
	won := false
	for _, item := range in.TransactItems {
		status, _ := next(item["Put"])
		won = won || status == http.StatusOK
	}
	if won {
		return http.StatusOK, []byte("{}")
	}
	return http.StatusBadRequest, []byte(`{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException",` +
		`"CancellationReasons":[{"Code":"ConditionalCheckFailed"}]}`)
}

// checksOutsideTheLock lets every writer of a race pass the check, as when all of
// them read before the first one writes. One writer alone is judged correctly.
func checksOutsideTheLock(header string) fault {
	return func(r *http.Request, body []byte, next func([]byte) (int, []byte)) (int, []byte) {
		if strings.Contains(r.URL.Path, "/put-") || strings.Contains(r.URL.Path, "/swap-") {
			r.Header.Del(header)
		}
		return next(body)
	}
}

func ignoresHeader(header string) fault {
	return func(r *http.Request, body []byte, next func([]byte) (int, []byte)) (int, []byte) {
		r.Header.Del(header)
		return next(body)
	}
}

func TestAnEndpointThatBreaksAConditionIsRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault fault
		want  []string // the checks that must fail, with a part of the finding
	}{
		{"the proxy itself breaks nothing", through, nil},
		{"DynamoDB ignores conditions", ignoresConditions, []string{
			"DynamoDB: a condition is not ignored: a put with attribute_not_exists replaced an item",
			"DynamoDB: a failed condition returns the old item: a put with attribute_not_exists replaced an item",
			"DynamoDB: put if absent has one winner: 32 of 32 writers won",
		}},
		{"DynamoDB forgets the old item", forgetsTheOldItem, []string{
			"DynamoDB: a failed condition returns the old item: ReturnValuesOnConditionCheckFailure=ALL_OLD gave no item",
		}},
		{"S3 ignores If-None-Match", ignoresHeader("If-None-Match"), []string{
			"S3: If-None-Match is not ignored: a put with If-None-Match: * replaced an object",
			"S3: If-None-Match has one winner: 32 of 32 writers won",
		}},
		{"S3 ignores If-Match", ignoresHeader("If-Match"), []string{
			"S3: If-Match is not ignored: a put with the ETag of an older version replaced the object",
			"S3: If-Match has one winner: 32 of 32 writers won",
		}},
		{"S3 checks If-None-Match outside the lock", checksOutsideTheLock("If-None-Match"), []string{
			"S3: If-None-Match has one winner: 32 of 32 writers won",
		}},
		{"S3 checks If-Match outside the lock", checksOutsideTheLock("If-Match"), []string{
			"S3: If-Match has one winner: 32 of 32 writers won",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			target := serve(t, c.fault).target(region)
			report, err := Examine(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, x := range report.Checks {
				if x.Err != nil {
					got = append(got, x.Err.Error())
				}
			}
			if len(got) != len(c.want) {
				t.Fatalf("findings %q", got)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], c.want[i]) {
					t.Errorf("finding %q, want %q", got[i], c.want[i])
				}
			}
		})
	}
}

// A transaction that is carried out in parts can let two writers each win a half;
// whether it does in one run is chance, so the race itself is not asserted here:
// the halves are told apart by who won them.
func TestATransactionInPartsIsFoundByItsHalves(t *testing.T) {
	target := serve(t, splitsTransactions).target(region)
	d := &tables{client: target.DynamoDB, partition: "doctor#test"}
	if err := d.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Another writer has the right half already.
	if err := d.put(t.Context(), "right", "other"); err != nil {
		t.Fatal(err)
	}
	if result, err := d.tryClaim(t.Context(), "one", "left", "right"); result != won || err != nil {
		t.Fatalf("outcome %v, %v", result, err)
	}
	var finding *Refusal
	if err := d.sameWinner(t.Context(), "left", "right"); !errors.As(err, &finding) {
		t.Errorf("got %v", err)
	}
}

func TestARegionMismatchIsReadable(t *testing.T) {
	e := serve(t, nil)
	for name, examine := range map[string]func(context.Context, Target) error{
		"DynamoDB": func(ctx context.Context, target Target) error {
			_, err := Examine(ctx, target)
			return err
		},
		"S3": func(ctx context.Context, target Target) error {
			err := examine(ctx, &Report{}, &buckets{client: target.S3, region: target.Region})
			return Explain(err, target.Endpoint, target.Region)
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := examine(t.Context(), e.target("us-west-2"))
			want := e.URL + ` serves another region than "us-west-2", for which the request was signed; set AWS_REGION`
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

func TestWhatKeepsAnEndpointFromBeingExaminedIsExplained(t *testing.T) {
	t.Run("nothing answers", func(t *testing.T) {
		e := serve(t, nil)
		target := e.target(region)
		e.CloseClientConnections()
		e.Close()
		_, err := Examine(t.Context(), target)
		if err == nil || !strings.HasPrefix(err.Error(), "nothing answers at "+e.URL) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the table does not exist", func(t *testing.T) {
		target := serve(t, nil).target(region)
		target.Table = "absent"
		_, err := Examine(t.Context(), target)
		if err == nil || !strings.Contains(err.Error(), "has no such table or bucket") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the key is wrong", func(t *testing.T) {
		e := serve(t, nil)
		target := e.target(region)
		cfg := aws.Config{Region: region, BaseEndpoint: aws.String(e.URL), RetryMaxAttempts: 1,
			Credentials: credentials.NewStaticCredentialsProvider("nobody", "nothing", "")}
		target.DynamoDB = dynamodb.NewFromConfig(cfg)
		_, err := Examine(t.Context(), target)
		if err == nil || !strings.Contains(err.Error(), "does not accept the credentials") {
			t.Errorf("got %v", err)
		}
	})
}

func TestTracesAreDeletedWhenTheCallerGivesUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	e := serve(t, func(r *http.Request, body []byte, next func([]byte) (int, []byte)) (int, []byte) {
		if isOp(r, "GetItem") {
			cancel()
		}
		return next(body)
	})
	target := e.target(region)
	if _, err := Examine(ctx, target); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if names := left(t, target); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
}
