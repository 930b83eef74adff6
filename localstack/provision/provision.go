// Package provision makes the tables and buckets that a template declares in an
// endpoint without CloudFormation: the embedded AWS, or another local server.
package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	ddbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"drawbridge/localstack/template"
)

// tableReady bounds the wait for a table; local servers take milliseconds, real
// ones some seconds.
const tableReady = 60 * time.Second

// noConstraint is the region whose buckets must not name it when they are made.
const noConstraint = "us-east-1"

// Table makes a table unless it is there, and turns on its time to live. It tells
// whether it made it. A table of the same name with other keys or indexes is an
// error: indexes decide what can be asked, and a local one cannot be added later.
func Table(ctx context.Context, client *dynamodb.Client, t template.Table) (made bool, err error) {
	found, err := Describe(ctx, client, t.Name)
	if err != nil {
		return false, err
	}
	if found != nil {
		if err := match(t, found); err != nil {
			return false, err
		}
		// A start that ended between the two steps has left this one undone.
		return false, expire(ctx, client, t)
	}
	var race *ddbtypes.ResourceInUseException
	if _, err := client.CreateTable(ctx, t.CreateInput()); err != nil && !errors.As(err, &race) {
		return false, fmt.Errorf("create table %s: %w", t.Name, err)
	}
	in := &dynamodb.DescribeTableInput{TableName: &t.Name}
	waiter := dynamodb.NewTableExistsWaiter(client, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay = 50 * time.Millisecond
	})
	if err := waiter.Wait(ctx, in, tableReady); err != nil {
		return false, fmt.Errorf("wait for table %s: %w", t.Name, err)
	}
	return true, expire(ctx, client, t)
}

// expire turns on the table's time to live where it is not on.
func expire(ctx context.Context, client *dynamodb.Client, t template.Table) error {
	if t.TTLAttribute == "" {
		return nil
	}
	on, err := expires(ctx, client, t)
	if on || err != nil {
		return err
	}
	_, err = client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName: &t.Name,
		TimeToLiveSpecification: &ddbtypes.TimeToLiveSpecification{
			AttributeName: &t.TTLAttribute, Enabled: aws.Bool(true),
		},
	})
	if err == nil {
		return nil
	}
	// Another start may have been faster; turning it on twice is refused.
	if on, failed := expires(ctx, client, t); on && failed == nil {
		return nil
	}
	return fmt.Errorf("turn on time to live of table %s: %w", t.Name, err)
}

// expires tells whether the table's time to live is on, or about to be.
func expires(ctx context.Context, client *dynamodb.Client, t template.Table) (bool, error) {
	out, err := client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &t.Name})
	if err != nil {
		return false, fmt.Errorf("look up the time to live of table %s: %w", t.Name, err)
	}
	d := out.TimeToLiveDescription
	if d == nil || aws.ToString(d.AttributeName) != t.TTLAttribute {
		return false, nil
	}
	return d.TimeToLiveStatus == ddbtypes.TimeToLiveStatusEnabled || d.TimeToLiveStatus == ddbtypes.TimeToLiveStatusEnabling, nil
}

// Describe returns a table's description, or nil when there is no such table.
func Describe(ctx context.Context, client *dynamodb.Client, name string) (*ddbtypes.TableDescription, error) {
	out, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
	var absent *ddbtypes.ResourceNotFoundException
	switch {
	case errors.As(err, &absent):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("describe table %s: %w", name, err)
	default:
		return out.Table, nil
	}
}

// match compares keys, and of indexes also kind and projection: a global index
// cannot be read strongly consistent, and one of keys shows no items. Extra
// indexes do no harm.
func match(t template.Table, found *ddbtypes.TableDescription) error {
	want := t.CreateInput()
	if got, want := shape(found.KeySchema), shape(want.KeySchema); got != want {
		return fmt.Errorf("table %s has the key %s, the template declares %s", t.Name, got, want)
	}
	indexes := map[string]string{}
	for _, x := range found.LocalSecondaryIndexes {
		indexes[aws.ToString(x.IndexName)] = indexShape("local", x.KeySchema, x.Projection)
	}
	for _, x := range found.GlobalSecondaryIndexes {
		indexes[aws.ToString(x.IndexName)] = indexShape("global", x.KeySchema, x.Projection)
	}
	for _, x := range want.LocalSecondaryIndexes {
		if err := matchIndex(t.Name, indexes, x.IndexName, indexShape("local", x.KeySchema, x.Projection)); err != nil {
			return err
		}
	}
	for _, x := range want.GlobalSecondaryIndexes {
		if err := matchIndex(t.Name, indexes, x.IndexName, indexShape("global", x.KeySchema, x.Projection)); err != nil {
			return err
		}
	}
	return nil
}

func matchIndex(table string, found map[string]string, name *string, want string) error {
	got := found[aws.ToString(name)]
	if got == "" {
		return fmt.Errorf("table %s lacks the index %s that the template declares; it was made from an older template", table, aws.ToString(name))
	}
	if got != want {
		return fmt.Errorf("index %s of table %s is %s, the template declares %s", aws.ToString(name), table, got, want)
	}
	return nil
}

// indexShape tells an index: "local (pk HASH, inbox_sk RANGE) ALL".
func indexShape(kind string, keys []ddbtypes.KeySchemaElement, p *ddbtypes.Projection) string {
	projected := "without a projection"
	if p != nil {
		projected = strings.Join(append([]string{string(p.ProjectionType)}, slices.Sorted(slices.Values(p.NonKeyAttributes))...), " ")
	}
	return strings.Join([]string{kind, shape(keys), projected}, " ")
}

func shape(keys []ddbtypes.KeySchemaElement) string {
	var parts []string
	for _, k := range keys {
		parts = append(parts, aws.ToString(k.AttributeName)+" "+string(k.KeyType))
	}
	slices.Sort(parts)
	return "(" + strings.Join(parts, ", ") + ")"
}

// Bucket makes a bucket unless it is there and tells whether it made it.
func Bucket(ctx context.Context, client *s3.Client, name string) (made bool, err error) {
	there, err := HasBucket(ctx, client, name)
	if there || err != nil {
		return false, err
	}
	in := &s3.CreateBucketInput{Bucket: &name}
	if region := client.Options().Region; region != noConstraint {
		in.CreateBucketConfiguration = &s3types.CreateBucketConfiguration{
			LocationConstraint: s3types.BucketLocationConstraint(region),
		}
	}
	var race *s3types.BucketAlreadyOwnedByYou
	if _, err := client.CreateBucket(ctx, in); err != nil && !errors.As(err, &race) {
		return false, fmt.Errorf("create bucket %s: %w", name, err)
	}
	return true, nil
}

// HasBucket tells whether a bucket is there.
func HasBucket(ctx context.Context, client *s3.Client, name string) (bool, error) {
	_, err := client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &name})
	var absent *s3types.NotFound
	switch {
	case errors.As(err, &absent):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look up bucket %s: %w", name, err)
	default:
		return true, nil
	}
}
