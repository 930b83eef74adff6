package ddb_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"drawbridge/core"
	"drawbridge/ddb"
	"drawbridge/localstack/fakeaws"
	"drawbridge/localstack/template"
)

// benchHub is a hub over the embedded AWS with messages pending for the agent
// "r" already, and what its requests cost.
type benchHub struct {
	*core.Hub
	b   *testing.B
	aws *fakeaws.Server
}

func newBenchHub(b *testing.B, pending int) *benchHub {
	b.Helper()
	server, err := fakeaws.Open(fakeaws.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := server.Close(); err != nil {
			b.Error(err)
		}
	})
	client := dynamodb.NewFromConfig(server.Config())
	stack, err := template.Load("../template.yaml", template.Local())
	if err != nil {
		b.Fatal(err)
	}
	in := stack.Tables[0].CreateInput()
	in.TableName = aws.String("hub")
	if _, err := client.CreateTable(b.Context(), in); err != nil {
		b.Fatal(err)
	}
	store := ddb.Open(client, ddb.Table{Name: "hub"})
	h := &benchHub{b: b, aws: server, Hub: core.New(core.Config{
		Presence: store, Identity: store, Sweeps: store, Messages: store, Roles: store, Reflexion: store,
		Clock: core.SystemClock{}, IDs: core.NewIDs(core.SystemClock{}, rand.Reader),
	})}
	h.backlog(pending, "r")
	return h
}

func (h *benchHub) backlog(n int, to string) {
	h.b.Helper()
	var wait sync.WaitGroup
	for caller := range 8 {
		wait.Go(func() {
			for i := caller; i < n; i += 8 {
				h.publish(to)
			}
		})
	}
	wait.Wait()
}

func (h *benchHub) publish(to string) {
	r := letterTo(to)
	r.TTLMs = 86_400_000
	if _, err := h.Publish(h.b.Context(), r); err != nil {
		h.b.Error(err)
	}
}

func (h *benchHub) follow(n int) {
	h.b.Helper()
	for i := range n {
		if _, err := h.Register(h.b.Context(), core.RegisterRequest{AgentID: fmt.Sprintf("f-%04d", i), CLI: "claude", Topics: []string{"x"}}); err != nil {
			h.b.Fatal(err)
		}
	}
}

// measure runs an operation b.N times and reports what each costs of AWS.
func (h *benchHub) measure(operation func(ctx context.Context) error) {
	h.b.Helper()
	cost := h.aws.Measure(h.b.Context(), func(ctx context.Context) {
		for h.b.Loop() {
			if err := operation(ctx); err != nil {
				h.b.Fatal(err)
			}
		}
	})
	n := float64(h.b.N)
	h.b.ReportMetric(float64(cost.Requests)/n, "requests/op")
	h.b.ReportMetric(cost.WriteUnits/n, "WRU/op")
	h.b.ReportMetric(cost.ReadUnits/n, "RRU/op")
}

var backlogs = []int{0, 10_000, 100_000}

func BenchmarkPublish(b *testing.B) {
	for _, pending := range backlogs {
		b.Run(fmt.Sprintf("pending=%d", pending), func(b *testing.B) {
			h := newBenchHub(b, pending)
			h.measure(func(ctx context.Context) error {
				_, err := h.Publish(ctx, letterTo("r"))
				return err
			})
		})
	}
}

// BenchmarkDrain10 publishes 10 messages and drains 10, so that the backlog
// stays; what the publishes cost is not in the units but in the time.
func BenchmarkDrain10(b *testing.B) {
	for _, pending := range backlogs {
		b.Run(fmt.Sprintf("pending=%d", pending), func(b *testing.B) {
			h := newBenchHub(b, pending)
			h.measure(func(ctx context.Context) error {
				b.StopTimer()
				h.backlog(10, "r")
				b.StartTimer()
				done, err := h.Drain(ctx, core.DrainRequest{AgentID: "r", Max: 10, AutoAck: true})
				if err == nil && len(done.Messages) != 10 {
					return fmt.Errorf("drained %d", len(done.Messages))
				}
				return err
			})
		})
	}
}

func BenchmarkPublishToTopic(b *testing.B) {
	for _, followers := range []int{10, 1000} {
		for _, pending := range backlogs {
			b.Run(fmt.Sprintf("followers=%d/pending=%d", followers, pending), func(b *testing.B) {
				h := newBenchHub(b, 0)
				h.follow(followers)
				h.backlog(pending, "f-0000")
				h.measure(func(ctx context.Context) error {
					done, err := h.Publish(ctx, letterTo("topic:x"))
					if err == nil && done.FanoutCount != int64(followers) {
						return fmt.Errorf("fan-out %d", done.FanoutCount)
					}
					return err
				})
			})
		}
	}
}

func BenchmarkSweepMessages(b *testing.B) {
	for _, pending := range backlogs {
		b.Run(fmt.Sprintf("pending=%d", pending), func(b *testing.B) {
			h := newBenchHub(b, pending)
			h.measure(func(ctx context.Context) error {
				_, err := h.RunSweep(ctx, core.SweepMessages)
				return err
			})
		})
	}
}
