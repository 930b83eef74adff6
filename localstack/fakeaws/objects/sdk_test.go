package objects

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
)

// A roundTripper hands the SDK's requests to an engine. It takes any signature:
// verifying is the server's part.
type roundTripper struct{ e *Engine }

func (t roundTripper) Do(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	// A server parses the path again from the wire.
	parsed, err := url.ParseRequestURI(r.URL.RequestURI())
	if err != nil {
		return nil, err
	}
	served := &http.Request{Method: r.Method, URL: parsed, Header: r.Header, Host: r.URL.Host}
	resp := t.e.Serve(served, body)
	return &http.Response{
		StatusCode: resp.Status, Header: resp.Header, ContentLength: int64(len(resp.Body)),
		Body: io.NopCloser(bytes.NewReader(resp.Body)), Request: r, ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

func sdkClient(e *Engine) *s3.Client {
	return s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("https://127.0.0.1:1"), UsePathStyle: true, HTTPClient: roundTripper{e},
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenSupported,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "testtest"}, nil
		}),
		RetryMaxAttempts: 1,
	})
}

// TestSDKUnderstandsEveryAnswer drives each operation through the real client,
// which decodes the documents and checks the checksums.
func TestSDKUnderstandsEveryAnswer(t *testing.T) {
	b := newBench(t)
	client, ctx, bucket := sdkClient(b.e), context.Background(), aws.String("bkt")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := client.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{Bucket: bucket, VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}})
	must(err)
	put, err := client.PutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: aws.String("a b/+é"), Body: strings.NewReader("body"), Metadata: map[string]string{"Write-Id": "1"}})
	must(err)
	got, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: aws.String("a b/+é")})
	must(err)
	body, err := io.ReadAll(got.Body) // fails when the checksum does not match
	must(err)
	if string(body) != "body" || got.Metadata["write-id"] != "1" || aws.ToString(got.VersionId) != aws.ToString(put.VersionId) || aws.ToString(got.ChecksumCRC32) == "" {
		t.Errorf("get: %q %+v", body, got)
	}
	cp, err := client.CopyObject(ctx, &s3.CopyObjectInput{Bucket: bucket, Key: aws.String("copy"), CopySource: aws.String("bkt/" + url.PathEscape("a b/+é"))})
	must(err)
	if aws.ToString(cp.CopyObjectResult.ETag) != aws.ToString(put.ETag) || cp.CopyObjectResult.LastModified == nil {
		t.Errorf("copy: %+v", cp.CopyObjectResult)
	}
	mpu, err := client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: bucket, Key: aws.String("mpu"), ChecksumAlgorithm: types.ChecksumAlgorithmCrc32})
	must(err)
	part, err := client.UploadPart(ctx, &s3.UploadPartInput{Bucket: bucket, Key: aws.String("mpu"), UploadId: mpu.UploadId, PartNumber: aws.Int32(1), Body: strings.NewReader("part")})
	must(err)
	uploads, err := client.ListMultipartUploads(ctx, &s3.ListMultipartUploadsInput{Bucket: bucket})
	must(err)
	parts, err := client.ListParts(ctx, &s3.ListPartsInput{Bucket: bucket, Key: aws.String("mpu"), UploadId: mpu.UploadId})
	must(err)
	if len(uploads.Uploads) != 1 || len(parts.Parts) != 1 || aws.ToString(parts.Parts[0].ChecksumCRC32) != aws.ToString(part.ChecksumCRC32) {
		t.Errorf("uploads %+v parts %+v", uploads.Uploads, parts.Parts)
	}
	done, err := client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{Bucket: bucket, Key: aws.String("mpu"), UploadId: mpu.UploadId,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: []types.CompletedPart{{ETag: part.ETag, PartNumber: aws.Int32(1), ChecksumCRC32: part.ChecksumCRC32}}}})
	must(err)
	if !strings.HasSuffix(aws.ToString(done.ETag), `-1"`) || done.VersionId == nil || done.ChecksumType != types.ChecksumTypeComposite {
		t.Errorf("complete: %+v", done)
	}
	del, err := client.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: bucket, Delete: &types.Delete{Objects: []types.ObjectIdentifier{{Key: aws.String("copy")}, {Key: aws.String("mpu"), ETag: aws.String(`"no"`)}}}})
	must(err)
	if len(del.Deleted) != 1 || !aws.ToBool(del.Deleted[0].DeleteMarker) || len(del.Errors) != 1 || aws.ToString(del.Errors[0].Code) != "PreconditionFailed" {
		t.Errorf("delete: %+v", del)
	}
	versions, err := client.ListObjectVersions(ctx, &s3.ListObjectVersionsInput{Bucket: bucket, EncodingType: types.EncodingTypeUrl})
	must(err)
	if len(versions.Versions) != 3 || len(versions.DeleteMarkers) != 1 || !aws.ToBool(versions.DeleteMarkers[0].IsLatest) {
		t.Errorf("versions: %+v", versions)
	}
	list, err := client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: bucket, Delimiter: aws.String("/")})
	must(err)
	if aws.ToInt32(list.KeyCount) != 2 || aws.ToString(list.CommonPrefixes[0].Prefix) != "a b/" {
		t.Errorf("list: %+v", list)
	}
	_, err = client.ListObjects(ctx, &s3.ListObjectsInput{Bucket: bucket})
	must(err)
	buckets, err := client.ListBuckets(ctx, &s3.ListBucketsInput{})
	must(err)
	if len(buckets.Buckets) != 1 || buckets.Buckets[0].CreationDate == nil {
		t.Errorf("buckets: %+v", buckets)
	}
	_, err = client.PutBucketEncryption(ctx, &s3.PutBucketEncryptionInput{Bucket: bucket, ServerSideEncryptionConfiguration: &types.ServerSideEncryptionConfiguration{
		Rules: []types.ServerSideEncryptionRule{{ApplyServerSideEncryptionByDefault: &types.ServerSideEncryptionByDefault{SSEAlgorithm: types.ServerSideEncryptionAwsKms}}}}})
	must(err)
	_, err = client.PutPublicAccessBlock(ctx, &s3.PutPublicAccessBlockInput{Bucket: bucket, PublicAccessBlockConfiguration: &types.PublicAccessBlockConfiguration{BlockPublicAcls: aws.Bool(true)}})
	must(err)
	access, err := client.GetPublicAccessBlock(ctx, &s3.GetPublicAccessBlockInput{Bucket: bucket})
	must(err)
	if !aws.ToBool(access.PublicAccessBlockConfiguration.BlockPublicAcls) {
		t.Errorf("access block: %+v", access.PublicAccessBlockConfiguration)
	}
	_, err = client.PutBucketOwnershipControls(ctx, &s3.PutBucketOwnershipControlsInput{Bucket: bucket, OwnershipControls: &types.OwnershipControls{Rules: []types.OwnershipControlsRule{{ObjectOwnership: types.ObjectOwnershipBucketOwnerEnforced}}}})
	must(err)
}

// TestSDKSeesTheErrorTypesOfAWS: modelled errors of GetObject and HeadObject,
// generic ones of writes, told by their codes.
func TestSDKSeesTheErrorTypesOfAWS(t *testing.T) {
	b := newBench(t)
	b.want(b.put("k", "v", nil), 200, "")
	client, ctx, bucket := sdkClient(b.e), context.Background(), aws.String("bkt")
	code := func(err error) string {
		var api smithy.APIError
		if errors.As(err, &api) {
			return api.ErrorCode()
		}
		return "no API error"
	}
	_, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: aws.String("none")})
	var noSuchKey *types.NoSuchKey
	if !errors.As(err, &noSuchKey) {
		t.Errorf("GetObject of an absent key: %v", err)
	}
	_, err = client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: bucket, Key: aws.String("none")})
	var notFound *types.NotFound
	if !errors.As(err, &notFound) {
		t.Errorf("HeadObject of an absent key: %v", err)
	}
	_, err = client.PutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: aws.String("none"), IfMatch: aws.String("x"), Body: strings.NewReader("")})
	if errors.As(err, &noSuchKey) || code(err) != "NoSuchKey" {
		t.Errorf("PutObject with If-Match on an absent key: %v", err)
	}
	_, err = client.PutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: aws.String("k"), IfNoneMatch: aws.String("*"), Body: strings.NewReader("")})
	if code(err) != "PreconditionFailed" {
		t.Errorf("PutObject with If-None-Match on a key that exists: %v", err)
	}
	_, err = client.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: aws.String("k"), IfNoneMatch: aws.String(etagOf("v"))})
	if code(err) != "NotModified" {
		t.Errorf("GetObject that is not modified: %v", err)
	}
	_, err = client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: bucket, Key: aws.String("k"), IfMatch: aws.String("x")})
	if code(err) != "PreconditionFailed" {
		t.Errorf("HeadObject whose condition fails: %v", err)
	}
}
