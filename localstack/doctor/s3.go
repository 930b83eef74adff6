package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/google/uuid"
)

// buckets examines S3.
type buckets struct {
	client  *s3.Client
	bucket  string
	prefix  string
	region  string
	scratch bool // the bucket is the doctor's own

	mu   sync.Mutex
	used map[string]bool // keys that may exist
}

func (b *buckets) name() string { return "S3" }

func (b *buckets) checks() []check {
	return []check{
		{"If-None-Match is not ignored", b.ifNoneMatchHolds},
		{"If-Match is not ignored", b.ifMatchHolds},
		{"If-None-Match has one winner", b.putIfAbsent},
		{"If-Match has one winner", b.compareAndSet},
	}
}

func (b *buckets) open(ctx context.Context) error {
	b.used = map[string]bool{}
	if b.bucket != "" {
		_, err := b.client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &b.bucket})
		return err
	}
	b.bucket = "drawbridge-doctor-" + uuid.NewString()
	in := &s3.CreateBucketInput{Bucket: &b.bucket}
	if b.region != "us-east-1" {
		in.CreateBucketConfiguration = &types.CreateBucketConfiguration{
			LocationConstraint: types.BucketLocationConstraint(b.region),
		}
	}
	if _, err := b.client.CreateBucket(ctx, in); err != nil {
		return fmt.Errorf("make a scratch bucket: %w", err)
	}
	b.scratch = true
	return nil
}

func (b *buckets) close(ctx context.Context) error {
	var all []error
	for key := range b.used {
		_, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.bucket, Key: aws.String(key)})
		all = append(all, err)
	}
	if b.scratch {
		_, err := b.client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &b.bucket})
		all = append(all, err)
	}
	return errors.Join(all...)
}

// key is a key that will have to be deleted.
func (b *buckets) key(name string) *string {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := b.prefix + name
	b.used[key] = true
	return &key
}

func (b *buckets) put(ctx context.Context, name, writer string) (etag string, err error) {
	out, err := b.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.bucket, Key: b.key(name), Body: strings.NewReader(writer),
	})
	if err != nil {
		return "", fmt.Errorf("put an object: %w", err)
	}
	return aws.ToString(out.ETag), nil
}

func (b *buckets) tryPutIfAbsent(ctx context.Context, name, writer string) (outcome, error) {
	_, err := b.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.bucket, Key: b.key(name), Body: strings.NewReader(writer), IfNoneMatch: aws.String("*"),
	})
	return judgedByStatus(err)
}

func (b *buckets) trySwap(ctx context.Context, name, writer, etag string) (outcome, error) {
	_, err := b.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.bucket, Key: b.key(name), Body: strings.NewReader(writer), IfMatch: &etag,
	})
	return judgedByStatus(err)
}

func judgedByStatus(err error) (outcome, error) {
	if err == nil {
		return won, nil
	}
	var answer *awshttp.ResponseError
	if !errors.As(err, &answer) {
		return lost, err
	}
	switch answer.HTTPStatusCode() {
	case http.StatusPreconditionFailed:
		return lost, nil
	case http.StatusConflict:
		return contended, nil
	default:
		return lost, err
	}
}

func (b *buckets) stored(ctx context.Context, name string) (string, error) {
	out, err := b.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.bucket, Key: b.key(name)})
	if err != nil {
		return "", err
	}
	defer out.Body.Close()
	body, err := io.ReadAll(out.Body)
	return string(body), err
}

func (b *buckets) ifNoneMatchHolds(ctx context.Context) error {
	const name = "if-none-match"
	if _, err := b.put(ctx, name, "first"); err != nil {
		return err
	}
	result, err := b.tryPutIfAbsent(ctx, name, "second")
	if err != nil {
		return err
	}
	if result == won {
		return refusef("a put with If-None-Match: * replaced an object that exists: the header is ignored")
	}
	return b.unchanged(ctx, name, "first")
}

func (b *buckets) ifMatchHolds(ctx context.Context) error {
	const name = "if-match"
	stale, err := b.put(ctx, name, "first")
	if err != nil {
		return err
	}
	if _, err := b.put(ctx, name, "second"); err != nil {
		return err
	}
	result, err := b.trySwap(ctx, name, "third", stale)
	if err != nil {
		return err
	}
	if result == won {
		return refusef("a put with the ETag of an older version replaced the object: If-Match is ignored")
	}
	return b.unchanged(ctx, name, "second")
}

func (b *buckets) unchanged(ctx context.Context, name, want string) error {
	value, err := b.stored(ctx, name)
	if err != nil {
		return fmt.Errorf("read it back: %w", err)
	}
	if value != want {
		return refusef("a put that failed its condition changed the object all the same")
	}
	return nil
}

func (b *buckets) putIfAbsent(ctx context.Context) error {
	return repeat(ctx, func(ctx context.Context, n int) error {
		name := "put-" + strconv.Itoa(n)
		return race(ctx,
			func(ctx context.Context, writer string) (outcome, error) { return b.tryPutIfAbsent(ctx, name, writer) },
			func(ctx context.Context) (string, error) { return b.stored(ctx, name) })
	})
}

func (b *buckets) compareAndSet(ctx context.Context) error {
	return repeat(ctx, func(ctx context.Context, n int) error {
		name := "swap-" + strconv.Itoa(n)
		etag, err := b.put(ctx, name, "before")
		if err != nil {
			return err
		}
		return race(ctx,
			func(ctx context.Context, writer string) (outcome, error) { return b.trySwap(ctx, name, writer, etag) },
			func(ctx context.Context) (string, error) { return b.stored(ctx, name) })
	})
}
