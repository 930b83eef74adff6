package ddb_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"

	"drawbridge/core"
	"drawbridge/core/coretest"
	"drawbridge/ddb"
)

// partitions adds up what requests ask of every partition: 1,000 write units
// and 3,000 read units a second is what one gives. An item's local index lies in
// its own partition; a global index has partitions of its own.
type partitions struct {
	mu      sync.Mutex
	writes  map[string]float64
	reads   map[string]float64
	records map[string]string // a record's partition: that of its due entry
}

func (p *partitions) install(stack *middleware.Stack) error {
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("CountPartitions", func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
		p.count(in.Parameters)
		return next.HandleInitialize(ctx, in)
	}), middleware.Before)
}

func (p *partitions) count(parameters any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch in := parameters.(type) {
	case *dynamodb.PutItemInput:
		key := textOf(in.Item["pk"])
		p.writes["table "+key]++
		if in.Item["inbox_sk"] != nil {
			p.writes["table "+key]++
		}
		for _, index := range []string{"due_pk", "list_pk"} {
			if entry := textOf(in.Item[index]); entry != "" {
				p.writes[index+" "+entry]++
			}
		}
		p.records[key] = textOf(in.Item["due_pk"])
	case *dynamodb.UpdateItemInput: // the end of a fan-out: the due entry goes
		key := textOf(in.Key["pk"])
		p.writes["table "+key]++
		p.writes["due_pk "+p.records[key]]++
	case *dynamodb.QueryInput:
		p.reads["table "+textOf(in.ExpressionAttributeValues[":pk"])]++
	case *dynamodb.BatchGetItemInput:
		for _, keys := range in.RequestItems {
			for _, key := range keys.Keys {
				p.reads["table "+textOf(key["pk"])]++
			}
		}
	}
}

func textOf(v types.AttributeValue) string {
	if s, ok := v.(*types.AttributeValueMemberS); ok {
		return s.Value
	}
	return ""
}

// BrighterCommand/Brighter#2810, gravitational/teleport#43372,
// stacks-sbtc/sbtc#1191: 2,000 publishes in one second over topics of 10
// followers, of which each gets 200.
func TestTwoThousandPublishesASecondOverloadNoPartition(t *testing.T) {
	const topics, followers, second = 10, 10, 2000
	publishes := second / 5 // a fifth of the second, counted five times
	if long() {
		publishes = second
	}
	share := float64(publishes) / second
	w := newWorld(t)
	clock := coretest.NewClock()
	setUp := w.hub(clock)
	for topic := range topics {
		for i := range followers {
			r := core.RegisterRequest{AgentID: fmt.Sprintf("agent-%d-%d", topic, i), CLI: "claude", Topics: []string{fmt.Sprint("topic-", topic)}}
			if _, err := setUp.Register(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}

	counted := &partitions{writes: map[string]float64{}, reads: map[string]float64{}, records: map[string]string{}}
	cfg := w.aws.Config()
	cfg.APIOptions = append(cfg.APIOptions, counted.install)
	w.store = ddb.Open(dynamodb.NewFromConfig(cfg), ddb.Table{Name: w.table})
	hub := w.hub(clock)
	var wait sync.WaitGroup
	for caller := range 8 {
		wait.Go(func() {
			for i := caller; i < publishes; i += 8 {
				r := letterTo(fmt.Sprint("topic:topic-", i%topics))
				r.From = fmt.Sprint("sender-", i)
				if done, err := hub.Publish(t.Context(), r); err != nil || done.FanoutCount != followers || done.Resuming {
					t.Errorf("%+v, %v", done, err)
				}
			}
		})
	}
	wait.Wait()

	busiest := func(units map[string]float64) (string, float64) {
		name, most := "", 0.0
		for partition, n := range units {
			if n/share > most {
				name, most = partition, n/share
			}
		}
		return name, most
	}
	name, writes := busiest(counted.writes)
	if writes > 1000 || writes == 0 {
		t.Errorf("%s is asked for %g write units", name, writes)
	}
	name, reads := busiest(counted.reads)
	if reads > 3000 || reads == 0 {
		t.Errorf("%s is asked for %g read units", name, reads)
	}
	// The ceilings that docs/messages.md states.
	perTopic := publishes / topics
	if got := counted.writes["table inbox#agent-0-0"] / float64(perTopic); got != 2 {
		t.Errorf("a delivery takes %g units of its inbox's partition", got)
	}
	for partition, n := range counted.writes {
		if n >= float64(perTopic) && !strings.HasPrefix(partition, "table inbox#") && !strings.HasPrefix(partition, "due_pk ") {
			t.Errorf("%s is written by every publish to a topic", partition)
		}
	}
	t.Logf("busiest: %g write units, %g read units", writes, reads)
}
