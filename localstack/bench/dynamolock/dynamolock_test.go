package dynamolock_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"cirello.io/dynamolock/v2"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"drawbridge/core"
	"drawbridge/ddb"
	"drawbridge/localstack/bench"
	"drawbridge/localstack/fakeaws"
	"drawbridge/localstack/template"
)

// BenchmarkAcquireAndHeartbeat measures taking a lease and extending it, by
// Drawbridge's core and by dynamolock, over the same embedded DynamoDB and the
// same SDK client.
func BenchmarkAcquireAndHeartbeat(b *testing.B) {
	server, err := fakeaws.Open(fakeaws.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = server.Close() })
	tables := dynamodb.NewFromConfig(server.Config())
	locks := newLocks(b, tables)
	hub := newHub(b, tables)
	ctx := context.Background()

	n := 0
	fresh := func(kind string) string { n++; return fmt.Sprintf("%s-%d", kind, n) }
	held, err := locks.AcquireLockWithContext(ctx, "held")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := hub.Register(ctx, core.RegisterRequest{AgentID: "held", CLI: "claude"}); err != nil {
		b.Fatal(err)
	}
	for _, o := range []struct {
		name string
		run  func(ctx context.Context) error
	}{
		{"acquire/by=dynamolock", func(ctx context.Context) error {
			_, err := locks.AcquireLockWithContext(ctx, fresh("lock"))
			return err
		}},
		{"acquire/by=drawbridge", func(ctx context.Context) error {
			_, err := hub.Register(ctx, core.RegisterRequest{AgentID: fresh("agent"), CLI: "claude"})
			return err
		}},
		{"heartbeat/by=dynamolock", func(ctx context.Context) error { return locks.SendHeartbeatWithContext(ctx, held) }},
		{"heartbeat/by=drawbridge", func(ctx context.Context) error {
			_, err := hub.Heartbeat(ctx, core.HeartbeatRequest{AgentID: "held"})
			return err
		}},
	} {
		b.Run(o.name, func(b *testing.B) {
			cpu := bench.OwnCPU()
			cost := server.Measure(ctx, func(ctx context.Context) {
				for b.Loop() {
					if err := o.run(ctx); err != nil {
						b.Fatal(err)
					}
				}
			})
			n := float64(b.N)
			b.ReportMetric(float64(bench.OwnCPU()-cpu)/n, "cpu-ns/op")
			b.ReportMetric(float64(cost.Requests)/n, "requests/op")
			b.ReportMetric(float64(cost.Rounds)/n, "rounds/op")
			b.ReportMetric(cost.WriteUnits/n, "WRU/op")
			b.ReportMetric(cost.ReadUnits/n, "RRU/op")
		})
	}
}

// newLocks is dynamolock with a table of its own, as its documentation makes it,
// without heartbeats of its own: they are measured one by one.
func newLocks(b *testing.B, tables *dynamodb.Client) *dynamolock.Client {
	b.Helper()
	locks, err := dynamolock.New(tables, "locks", dynamolock.WithLeaseDuration(time.Hour), dynamolock.DisableHeartbeat())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := locks.CreateTable("locks"); err != nil {
		b.Fatal(err)
	}
	return locks
}

func newHub(b *testing.B, tables *dynamodb.Client) *core.Hub {
	b.Helper()
	declared, err := template.Load("../../../template.yaml", template.Local())
	if err != nil {
		b.Fatal(err)
	}
	in := declared.Tables[0].CreateInput()
	in.TableName = aws.String("hub")
	if _, err := tables.CreateTable(b.Context(), in); err != nil {
		b.Fatal(err)
	}
	store := ddb.Open(tables, ddb.Table{Name: "hub"})
	return core.New(core.Config{
		Presence: store, Identity: store, Sweeps: store, Messages: store, Roles: store, Reflexion: store,
		Clock: core.SystemClock{}, IDs: core.NewIDs(core.SystemClock{}, rand.Reader),
	})
}
