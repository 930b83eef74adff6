package fakeaws_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"drawbridge/localstack/fakeaws"
)

// Operations through the real SDK and the in-process transport, so the SDK's
// own cost is part of each figure. Items have about 1 KB.

// rig is a server with SDK clients, a table "table" (pk, sk; index "index" by gpk,
// gsk) and a bucket "bucket".
type rig struct {
	server *fakeaws.Server
	tables *dynamodb.Client
	store  *s3.Client
}

func newRig(tb testing.TB, o fakeaws.Options) *rig {
	tb.Helper()
	server, err := fakeaws.Open(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := server.Close(); err != nil {
			tb.Error(err)
		}
	})
	r := &rig{server: server}
	r.tables, r.store = clients(server.Config())
	setUp(tb, r.tables, r.store)
	return r
}

func clients(cfg aws.Config) (*dynamodb.Client, *s3.Client) {
	return dynamodb.NewFromConfig(cfg), s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
}

// setUp makes the table and the bucket where they are not there yet.
func setUp(tb testing.TB, tables *dynamodb.Client, store *s3.Client) {
	tb.Helper()
	ctx := context.Background()
	key := func(name string, kind types.KeyType) types.KeySchemaElement {
		return types.KeySchemaElement{AttributeName: aws.String(name), KeyType: kind}
	}
	var attributes []types.AttributeDefinition
	for _, name := range []string{"pk", "sk", "gpk", "gsk"} {
		attributes = append(attributes, types.AttributeDefinition{AttributeName: aws.String(name), AttributeType: types.ScalarAttributeTypeS})
	}
	_, err := tables.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: aws.String("table"), BillingMode: types.BillingModePayPerRequest, AttributeDefinitions: attributes,
		KeySchema: []types.KeySchemaElement{key("pk", types.KeyTypeHash), key("sk", types.KeyTypeRange)},
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{{
			IndexName: aws.String("index"), Projection: &types.Projection{ProjectionType: types.ProjectionTypeAll},
			KeySchema: []types.KeySchemaElement{key("gpk", types.KeyTypeHash), key("gsk", types.KeyTypeRange)},
		}},
	})
	if inUse := new(types.ResourceInUseException); err != nil && !errors.As(err, &inUse) {
		tb.Fatal(err)
	}
	if _, err := store.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String("bucket")}); err != nil && errorCode(err) != "BucketAlreadyOwnedByYou" {
		tb.Fatal(err)
	}
}

func errorCode(err error) string {
	var e smithy.APIError
	if errors.As(err, &e) {
		return e.ErrorCode()
	}
	return ""
}

type item = map[string]types.AttributeValue

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func num(n int) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.Itoa(n)}
}

func (r *rig) put(ctx context.Context, i item) error {
	_, err := r.tables.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String("table"), Item: i})
	return err
}

func keyOf(n int) item { return item{"pk": str("AGENT#" + strconv.Itoa(n%1000)), "sk": str("meta")} }

var filler = strings.Repeat("x", 900)

func benchItem(n int) item {
	i := keyOf(n)
	i["data"], i["n"] = str(filler), num(0)
	i["gpk"], i["gsk"] = str("GROUP#"+strconv.Itoa(n%100)), str(strconv.Itoa(n%1000))
	return i
}

func BenchmarkOperations(b *testing.B) {
	ctx := context.Background()
	table, bucket := aws.String("table"), aws.String("bucket")
	object := bytes.Repeat([]byte("x"), 1024)
	operations := []struct {
		name string
		run  func(r *rig, n int) error
	}{
		{"put", func(r *rig, n int) error { return r.put(ctx, benchItem(n)) }},
		{"update", func(r *rig, n int) error {
			_, err := r.tables.UpdateItem(ctx, &dynamodb.UpdateItemInput{
				TableName: table, Key: keyOf(n),
				UpdateExpression:    aws.String("SET n = n + :one, seen = :now"),
				ConditionExpression: aws.String("attribute_exists(pk) AND n >= :zero"),
				ExpressionAttributeValues: item{
					":one": num(1), ":zero": num(0), ":now": num(n)},
			})
			return err
		}},
		{"get", func(r *rig, n int) error {
			_, err := r.tables.GetItem(ctx, &dynamodb.GetItemInput{TableName: table, Key: keyOf(n), ConsistentRead: aws.Bool(true)})
			return err
		}},
		{"query10", func(r *rig, n int) error {
			out, err := r.tables.Query(ctx, &dynamodb.QueryInput{
				TableName: table, IndexName: aws.String("index"), Limit: aws.Int32(10),
				KeyConditionExpression:    aws.String("gpk = :g"),
				ExpressionAttributeValues: item{":g": str("GROUP#" + strconv.Itoa(n%100))},
			})
			if err == nil && out.Count != 10 {
				return fmt.Errorf("%d items", out.Count)
			}
			return err
		}},
		{"transact3", func(r *rig, n int) error {
			var items []types.TransactWriteItem
			for i := range 3 {
				items = append(items, types.TransactWriteItem{Update: &types.Update{
					TableName: table, Key: keyOf(3*n + i), UpdateExpression: aws.String("ADD n :one"), ExpressionAttributeValues: item{":one": num(1)}}})
			}
			_, err := r.tables.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: items})
			return err
		}},
		{"s3put", func(r *rig, n int) error {
			_, err := r.store.PutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: aws.String("k/" + strconv.Itoa(n%1000)), Body: bytes.NewReader(object)})
			return err
		}},
		{"s3get", func(r *rig, n int) error {
			out, err := r.store.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: aws.String("fixed")})
			if err != nil {
				return err
			}
			return out.Body.Close()
		}},
		{"s3cas", func(r *rig, n int) error {
			_, err := r.store.PutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: aws.String("fixed"), Body: bytes.NewReader(object), IfMatch: fixedETag.Load()})
			return err
		}},
	}
	for _, mode := range []string{"memory", "durable"} {
		for _, op := range operations {
			for _, callers := range []int{1, 16} {
				b.Run(fmt.Sprintf("%s/%s/%d", mode, op.name, callers), func(b *testing.B) {
					var o fakeaws.Options
					if mode == "durable" {
						o.Dir = b.TempDir()
					}
					r := newRig(b, o)
					fill(b, r, object)
					b.ReportAllocs()
					b.ResetTimer()
					drive(b, callers, func(n int) error { return op.run(r, n) })
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
				})
			}
		}
	}
}

var fixedETag atomic.Pointer[string]

// fill makes what the operations read and update.
func fill(b *testing.B, r *rig, object []byte) {
	ctx := context.Background()
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for n := g; n < 1000; n += 16 {
				if err := r.put(ctx, benchItem(n)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	out, err := r.store.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String("bucket"), Key: aws.String("fixed"), Body: bytes.NewReader(object)})
	if err != nil {
		b.Fatal(err)
	}
	fixedETag.Store(out.ETag)
}

// drive runs b.N operations from so many callers.
func drive(b *testing.B, callers int, run func(n int) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= b.N {
					return
				}
				if err := run(n); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkOpen starts a durable server on a folder with 100,000 items.
func BenchmarkOpen(b *testing.B) {
	const items = 100_000
	o := fakeaws.Options{Dir: b.TempDir()}
	server, err := fakeaws.Open(o)
	if err != nil {
		b.Fatal(err)
	}
	tables, store := clients(server.Config())
	setUp(b, tables, store)
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for n := g * 25; n < items; n += 16 * 25 {
				if err := putBatch(tables, n, 25); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := server.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if server, err = fakeaws.Open(o); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := server.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func putBatch(tables *dynamodb.Client, from, count int) error {
	var writes []types.WriteRequest
	for n := from; n < from+count; n++ {
		i := benchItem(n)
		i["pk"] = str("ITEM#" + strconv.Itoa(n))
		writes = append(writes, types.WriteRequest{PutRequest: &types.PutRequest{Item: i}})
	}
	_, err := tables.BatchWriteItem(context.Background(), &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{"table": writes}})
	return err
}
