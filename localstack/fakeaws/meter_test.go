package fakeaws_test

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"drawbridge/localstack/fakeaws"
)

func TestMeasureCountsRequestsRoundsAndUnits(t *testing.T) {
	r := newRig(t, fakeaws.Options{})
	cost := r.server.Measure(t.Context(), func(ctx context.Context) {
		if err := r.put(ctx, benchItem(1)); err != nil { // 1 unit, and 1 on the index
			t.Error(err)
		}
		_ = r.create(ctx, benchItem(1)) // a refused condition costs the unit all the same
		if _, err := r.tables.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String("table"), Key: keyOf(1)}); err != nil {
			t.Error(err)
		}
		if err := r.putObject(ctx, "jobs/1", "v", nil); err != nil {
			t.Error(err)
		}
	})
	if cost.Requests != 4 || cost.Rounds != 4 {
		t.Errorf("%d requests in %d rounds, want 4 in 4", cost.Requests, cost.Rounds)
	}
	if cost.WriteUnits != 3 || cost.ReadUnits != 0.5 {
		t.Errorf("%v write units and %v read units, want 3 and 0.5", cost.WriteUnits, cost.ReadUnits)
	}
	wantOps := map[string]fakeaws.OpCost{
		"PutItem":   {Requests: 2, Rounds: 2, WriteUnits: 3},
		"GetItem":   {Requests: 1, Rounds: 1, ReadUnits: 0.5},
		"PutObject": {Requests: 1, Rounds: 1},
	}
	if !maps.Equal(cost.ByOp, wantOps) {
		t.Errorf("by operation %v, want %v", cost.ByOp, wantOps)
	}
	wantIndexes := map[string]fakeaws.Units{"table": {Read: 0.5, Write: 2}, "table/index": {Write: 1}}
	if !maps.Equal(cost.ByIndex, wantIndexes) {
		t.Errorf("by index %v, want %v", cost.ByIndex, wantIndexes)
	}
	if want := map[string]int{"ConditionalCheckFailedException": 1}; !maps.Equal(cost.Errors, want) {
		t.Errorf("errors %v, want %v", cost.Errors, want)
	}
	wantTouched := []fakeaws.Access{
		{Op: "GetItem", Resource: "table", KeyPrefix: "AGENT#"},
		{Op: "PutItem", Resource: "table", KeyPrefix: "AGENT#"},
		{Op: "PutObject", Resource: "bucket", KeyPrefix: "jobs/"},
	}
	if !slices.Equal(cost.Touched, wantTouched) {
		t.Errorf("touched %v, want %v", cost.Touched, wantTouched)
	}
}

func TestRequestsInFlightTogetherAreOneRound(t *testing.T) {
	r := newRig(t, fakeaws.Options{})
	h := r.server.Faults().Add(fakeaws.Rule{Op: "PutItem", Action: fakeaws.Freeze()})
	cost := r.server.Measure(t.Context(), func(ctx context.Context) {
		var wg sync.WaitGroup
		for n := range 5 {
			wg.Go(func() {
				if err := r.put(ctx, keyOf(n)); err != nil {
					t.Error(err)
				}
			})
		}
		eventually(t, "all five are in flight", func() bool { return h.Held() == 5 })
		h.Release()
		wg.Wait()
		if err := r.put(ctx, keyOf(9)); err != nil {
			t.Error(err)
		}
	})
	if cost.Requests != 6 || cost.Rounds != 2 {
		t.Errorf("%d requests in %d rounds, want 6 in 2", cost.Requests, cost.Rounds)
	}
}

func TestRetriesOfTheSDKAreRequests(t *testing.T) {
	r := newRig(t, fakeaws.Options{})
	r.server.Faults().Add(fakeaws.Rule{Op: "PutItem", Count: 1, Action: fakeaws.DropResponse()})
	cost := r.server.Measure(t.Context(), func(ctx context.Context) {
		if err := r.put(ctx, keyOf(1)); err != nil {
			t.Error(err)
		}
	})
	if cost.Requests != 2 || cost.Rounds != 2 || cost.WriteUnits != 2 || cost.Errors[fakeaws.Dropped] != 1 {
		t.Errorf("%+v, want 2 requests, 2 rounds, 2 write units, 1 dropped", cost)
	}
}

func TestLabelsAreCountedApartInProcessAndOverASocket(t *testing.T) {
	for _, p := range paths(t) {
		t.Run(p.name, func(t *testing.T) {
			meter := p.rig.server.Meter()
			meter.Reset()
			before := meter.Labels()
			call := func(label string) {
				tables := p.rig.tables
				ctx := fakeaws.WithLabel(t.Context(), label)
				if p.name == "over a socket" {
					o := tables.Options()
					next := o.HTTPClient
					o.HTTPClient = doer(func(r *http.Request) (*http.Response, error) {
						r.Header.Set("X-Fakeaws-Label", label)
						return next.Do(r)
					})
					tables = dynamodb.New(o)
				}
				if _, err := tables.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String("table"), Item: keyOf(1)}); err != nil {
					t.Error(err)
				}
			}
			call("a")
			call("a")
			call("b")
			if a, b := meter.Label("a").Requests, meter.Label("b").Requests; a != 2 || b != 1 {
				t.Errorf("%d requests of a and %d of b, want 2 and 1", a, b)
			}
			if total := meter.Total().Requests; total != 3 {
				t.Errorf("%d requests in all, want 3", total)
			}
			if labels := meter.Labels(); len(before) != 0 || !slices.Equal(labels, []string{"a", "b"}) {
				t.Errorf("labels %v, then %v", before, labels)
			}
			if c := meter.Label("never seen"); c.Requests != 0 {
				t.Errorf("a label never seen cost %+v", c)
			}
		})
	}
}

type doer func(*http.Request) (*http.Response, error)

func (d doer) Do(r *http.Request) (*http.Response, error) { return d(r) }

func TestMeasuresNestAndKeepTheLabel(t *testing.T) {
	r := newRig(t, fakeaws.Options{})
	put := func(ctx context.Context) {
		if err := r.put(ctx, keyOf(1)); err != nil {
			t.Error(err)
		}
	}
	var inner fakeaws.Cost
	outer := r.server.Measure(fakeaws.WithLabel(t.Context(), "me"), func(ctx context.Context) {
		put(ctx)
		inner = r.server.Measure(ctx, func(ctx context.Context) {
			put(ctx)
			put(fakeaws.WithLabel(ctx, "you"))
		})
	})
	if outer.Requests != 3 || inner.Requests != 2 {
		t.Errorf("outer %d, inner %d requests; want 3 and 2", outer.Requests, inner.Requests)
	}
	if me, you := r.server.Meter().Label("me").Requests, r.server.Meter().Label("you").Requests; me != 2 || you != 1 {
		t.Errorf("%d of me, %d of you; want 2 and 1", me, you)
	}
}

func TestEveryKeyOfATransactionIsTouched(t *testing.T) {
	r := newRig(t, fakeaws.Options{})
	cost := r.server.Measure(t.Context(), func(ctx context.Context) {
		_, err := r.tables.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
			{Put: &types.Put{TableName: aws.String("table"), Item: item{"pk": str("ROLE#1"), "sk": str("meta")}}},
			{Update: &types.Update{TableName: aws.String("table"), Key: keyOf(1), UpdateExpression: aws.String("SET a = :a"), ExpressionAttributeValues: item{":a": num(1)}}},
		}})
		if err != nil {
			t.Error(err)
		}
		_, err = r.store.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: aws.String("bucket"), Prefix: aws.String("jobs/done/")})
		if err != nil {
			t.Error(err)
		}
	})
	var keys []string
	for _, a := range cost.Touched {
		keys = append(keys, a.Op+" "+a.KeyPrefix)
	}
	if got := strings.Join(keys, ", "); !strings.Contains(got, "TransactWriteItems AGENT#, TransactWriteItems ROLE#") {
		t.Errorf("touched %s", got)
	}
	if cost.WriteUnits != 4 {
		t.Errorf("%v write units, want 4: two items, twice in a transaction", cost.WriteUnits)
	}
}

func TestRefusedSignaturesAreCounted(t *testing.T) {
	r := newRig(t, fakeaws.Options{})
	r.server.Meter().Reset()
	cfg := r.server.Config()
	cfg.Credentials = aws.NewCredentialsCache(aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "nobody", SecretAccessKey: "x"}, nil
	}))
	tables, _ := clients(cfg)
	_, err := tables.ListTables(t.Context(), &dynamodb.ListTablesInput{})
	if errorCode(err) != "UnrecognizedClientException" {
		t.Errorf("%v", err)
	}
	total := r.server.Meter().Total()
	if total.ByOp[fakeaws.Unauthenticated].Requests != 1 || total.Errors["UnrecognizedClientException"] != 1 {
		t.Errorf("%+v", total)
	}
}
