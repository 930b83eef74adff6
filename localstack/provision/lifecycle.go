package provision

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"drawbridge/localstack/template"
)

// Lifecycle makes the template's lifecycle rules those of the bucket, in place of
// any others: rules that the template no longer has are taken away.
func Lifecycle(ctx context.Context, client *s3.Client, b template.Bucket) error {
	var err error
	if len(b.Lifecycle) == 0 {
		_, err = client.DeleteBucketLifecycle(ctx, &s3.DeleteBucketLifecycleInput{Bucket: &b.Name})
	} else {
		_, err = client.PutBucketLifecycleConfiguration(ctx, &s3.PutBucketLifecycleConfigurationInput{
			Bucket:                 &b.Name,
			LifecycleConfiguration: &s3types.BucketLifecycleConfiguration{Rules: b.Lifecycle},
		})
	}
	if err != nil {
		return fmt.Errorf("put the lifecycle rules of bucket %s: %w", b.Name, err)
	}
	return nil
}
