package provision

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"drawbridge/localstack/template"
)

// rules are the bucket's; nil without any.
func rules(ctx context.Context, client *s3.Client, bucket string) ([]types.LifecycleRule, error) {
	out, err := client.GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{Bucket: &bucket})
	var refusal smithy.APIError
	if errors.As(err, &refusal) && refusal.ErrorCode() == "NoSuchLifecycleConfiguration" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return out.Rules, nil
}

func TestABucketGetsTheRulesOfTheTemplateAtEveryStart(t *testing.T) {
	client := s3.NewFromConfig(open(t, ""), func(o *s3.Options) { o.UsePathStyle = true })
	declared, err := template.Load(projectTemplate, template.Local())
	if err != nil {
		t.Fatal(err)
	}
	bucket := declared.Buckets[0]
	if _, err := Bucket(t.Context(), client, bucket.Name); err != nil {
		t.Fatal(err)
	}
	older, none := bucket, bucket
	older.Lifecycle, none.Lifecycle = bucket.Lifecycle[:1], nil
	for _, c := range []struct {
		start string
		b     template.Bucket
	}{{"an older template", older}, {"today's", bucket}, {"again", bucket}, {"one without rules", none}, {"again without", none}} {
		if err := Lifecycle(t.Context(), client, c.b); err != nil {
			t.Fatalf("%s: %v", c.start, err)
		}
		got, err := rules(t.Context(), client, bucket.Name)
		if err != nil || !reflect.DeepEqual(got, c.b.Lifecycle) {
			t.Errorf("%s: %v, and\n%+v\nwant\n%+v", c.start, err, got, c.b.Lifecycle)
		}
	}
	bucket.Name = "absent"
	var absent smithy.APIError
	if err := Lifecycle(t.Context(), client, bucket); !errors.As(err, &absent) || absent.ErrorCode() != "NoSuchBucket" {
		t.Errorf("of a bucket that is not there: %v", err)
	}
	bucket.Name, bucket.Lifecycle = none.Name, []types.LifecycleRule{{ID: aws.String("no-action"), Status: "Enabled", Prefix: aws.String("")}}
	if err := Lifecycle(t.Context(), client, bucket); err == nil {
		t.Error("a rule without an action is taken")
	}
}
