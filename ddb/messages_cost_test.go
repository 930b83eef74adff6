package ddb_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"drawbridge/core"
)

func (c *costs) publish(r core.PublishRequest) core.Published {
	c.t.Helper()
	var done core.Published
	c.do(func(ctx context.Context) (err error) {
		done, err = c.core.Publish(ctx, r)
		return err
	})
	return done
}

func letterTo(to string) core.PublishRequest {
	return core.PublishRequest{From: "a", To: to, Topic: "t", Priority: 5, TTLMs: 60_000}
}

// anyRounds are those of an operation whose requests overlap in more than one
// way: a sweep works through many shards, a few at a time, and a large payload
// is stored while the recipient is read.
const anyRounds = -1

// followers registers agents that follow the topic x.
func (c *costs) followers(n int) {
	c.t.Helper()
	var wait sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range n {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			c.register(fmt.Sprintf("f-%04d", i), "x")
		})
	}
	wait.Wait()
}

// The budgets of design section 3 for messages of up to 1 KB. Reads are those
// of strongly consistent items, 1 unit each, and of empty pages, half a unit
// through an index.
func TestEveryMessageOperationCostsWhatTheDesignAllows(t *testing.T) {
	fence := core.Fences{Generation: core.Some(int64(1))}
	key := core.Some(core.IdempotencyKey{Scope: "s", Key: "k", Body: []byte("b")})
	publish := func(change func(*core.PublishRequest)) func(*costs) func(context.Context) error {
		return func(c *costs) func(context.Context) error {
			r := letterTo("b")
			change(&r)
			return func(ctx context.Context) error {
				_, err := c.core.Publish(ctx, r)
				return err
			}
		}
	}
	topic := func(followers int) func(*costs) func(context.Context) error {
		return func(c *costs) func(context.Context) error {
			c.followers(followers)
			return publish(func(r *core.PublishRequest) { r.To = "topic:x" })(c)
		}
	}
	drain := func(pending int, r core.DrainRequest) func(*costs) func(context.Context) error {
		return func(c *costs) func(context.Context) error {
			for range pending {
				c.publish(letterTo("a"))
			}
			r.AgentID = "a"
			return func(ctx context.Context) error {
				done, err := c.core.Drain(ctx, r)
				if err == nil && len(done.Messages) != min(pending, int(r.Max)) {
					return fmt.Errorf("drained %d", len(done.Messages))
				}
				return err
			}
		}
	}
	leased := func(settle func(c *costs, ctx context.Context, receipts []string) error) func(*costs) func(context.Context) error {
		return func(c *costs) func(context.Context) error {
			for range 10 {
				c.publish(letterTo("a"))
			}
			var receipts []string
			c.do(func(ctx context.Context) error {
				done, err := c.core.Drain(ctx, core.DrainRequest{AgentID: "a", Max: 10, VisibilityMs: core.Some(int64(10_000))})
				for _, d := range done.Messages {
					receipts = append(receipts, d.Receipt)
				}
				return err
			})
			return func(ctx context.Context) error { return settle(c, ctx, receipts) }
		}
	}
	die := func(kind core.MessageType) func(*costs) func(context.Context) error {
		return func(c *costs) func(context.Context) error {
			r := letterTo("b")
			r.Type = kind
			c.publish(r)
			c.clock.Advance(time.Minute)
			due := c.due()
			return func(ctx context.Context) error { return c.kill(ctx, due) }
		}
	}

	for _, test := range []struct {
		name    string
		prepare func(*costs) func(context.Context) error
		want    spend
	}{
		// The recipient's state is 1 read beside the write.
		{"publish to an agent", publish(func(*core.PublishRequest) {}), spend{1, 2, 4, 1}},
		{"publish with a sender fence", publish(func(r *core.PublishRequest) { r.Fences = fence }), spend{1, 2, 7, 1}},
		{"publish with an idempotency key", publish(func(r *core.PublishRequest) { r.Idempotency = key }), spend{1, 2, 7, 1}},
		{"publish with both", publish(func(r *core.PublishRequest) { r.Fences, r.Idempotency = fence, key }), spend{1, 2, 9, 1}},
		{"publish to an agent that has to be online", publish(func(r *core.PublishRequest) { r.To, r.RequireOnline = "a", true }), spend{1, 2, 7, 1}},
		{"publish a response", publish(func(r *core.PublishRequest) { r.Type = core.MessageResponse }), spend{1, 2, 7, 1}},
		{"publish 100 KB", publish(func(r *core.PublishRequest) { r.Payload = []byte(`"` + strings.Repeat("x", 100<<10) + `"`) }), spend{anyRounds, 3, 4, 1}},
		// 4 n + 5: the record is put (3) and finished (2).
		{"publish to a topic with 1 follower", topic(1), spend{5, 8, 4 + 5, 5}},
		{"publish to a topic with 10 followers", topic(10), spend{5, 17, 4*10 + 5, 14}},
		{"publish to a topic with 1,000 followers", topic(1000), spend{13, 1017, 4*1000 + 5 + 8, 1012}},
		{"publish to a topic that nobody follows", topic(0), spend{2, 5, 3, 4}},
		{"drain of nothing", drain(0, core.DrainRequest{Max: 10, AutoAck: true}), spend{1, 3, 0, 3}},
		{"drain of 10 with acknowledgement", drain(10, core.DrainRequest{Max: 10, AutoAck: true}), spend{2, 13, 3 * 10, 4}},
		{"drain of 10 with acknowledgement and a fence", drain(10, core.DrainRequest{Max: 10, AutoAck: true, Fences: fence}), spend{2, 4, 4*10 + 2, 4}},
		{"drain of 100 with acknowledgement and a fence", drain(100, core.DrainRequest{Max: 100, AutoAck: true, Fences: fence}), spend{2, 5, 4*100 + 4, 16}},
		{"drain of 10 that changes nothing", drain(10, core.DrainRequest{Max: 10}), spend{1, 3, 0, 4}},
		{"lease of 10", drain(10, core.DrainRequest{Max: 10, VisibilityMs: core.Some(int64(10_000))}), spend{2, 13, 3 * 10, 4}},
		{"ack of 10", leased(func(c *costs, ctx context.Context, receipts []string) error {
			done, err := c.core.Ack(ctx, core.AckRequest{AgentID: "a", Receipts: receipts})
			return wantDone(done, err)
		}), spend{1, 10, 3 * 10, 0}},
		{"ack of 10 with a fence", leased(func(c *costs, ctx context.Context, receipts []string) error {
			done, err := c.core.Ack(ctx, core.AckRequest{AgentID: "a", Receipts: receipts, Fences: fence})
			return wantDone(done, err)
		}), spend{1, 1, 4*10 + 2, 0}},
		{"nack of 10", leased(func(c *costs, ctx context.Context, receipts []string) error {
			done, err := c.core.Nack(ctx, core.NackRequest{AgentID: "a", Receipts: receipts})
			return wantDone(done, err)
		}), spend{1, 10, 3 * 10, 0}},
		{"dead-letter one message", die(core.MessageEvent), spend{1, 1, 4, 0}},
		{"dead-letter one message with its notice", die(core.MessageRequest), spend{1, 1, 10, 0}},
		{"list of 20 dead letters", func(c *costs) func(context.Context) error {
			for range 20 {
				c.publish(letterTo("b"))
			}
			c.clock.Advance(time.Minute)
			c.do(func(ctx context.Context) error { return c.kill(ctx, c.due()) })
			return func(ctx context.Context) error {
				list, err := c.core.DeadLetters(ctx, core.DeadLetterQuery{Limit: 20})
				if err == nil && len(list.Letters) != 20 {
					return fmt.Errorf("%d letters", len(list.Letters))
				}
				return err
			}
		}, spend{2, 17, 0, 28}},
		{"redrive of one", func(c *costs) func(context.Context) error {
			c.publish(letterTo("b"))
			c.clock.Advance(time.Minute)
			c.do(func(ctx context.Context) error { return c.kill(ctx, c.due()) })
			list, err := c.core.DeadLetters(c.t.Context(), core.DeadLetterQuery{})
			if err != nil {
				t.Fatal(err)
			}
			return func(ctx context.Context) error {
				done, err := c.core.Redrive(ctx, core.RedriveRequest{IDs: []string{list.Letters[0].ID}})
				if err == nil && done.Count != 1 {
					return fmt.Errorf("outcomes %+v", done)
				}
				return err
			}
		}, spend{2, 2, 8, 1}},
		{"trace of 10 messages", func(c *costs) func(context.Context) error {
			for range 10 {
				r := letterTo("b")
				r.TraceID = "x"
				c.publish(r)
			}
			return func(ctx context.Context) error {
				_, err := c.core.Status(ctx, core.StatusQuery{Scope: core.StatusScopeTrace, TraceID: "x"})
				return err
			}
		}, spend{2, 5, 0, 12}},
		{"message sweep with nothing due, and its record", func(c *costs) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := c.core.RunSweep(ctx, core.SweepMessages)
				return err
			}
		}, spend{anyRounds, 282, 2, 140}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCosts(t)
				operation := test.prepare(c)
				got := c.measure(operation)
				if test.want.rounds == anyRounds {
					got.rounds = anyRounds
				}
				if got != test.want {
					t.Errorf("%d rounds, %d requests, %g write units, %g read units; want %+v", got.rounds, got.requests, got.write, got.read, test.want)
				}
			})
		})
	}
}

func wantDone(done core.AckResult, err error) error {
	if err == nil && done.Done != int64(len(done.Results)) {
		return fmt.Errorf("outcomes %+v", done)
	}
	return err
}

// due returns what has expired.
func (c *costs) due() []core.Delivery {
	c.t.Helper()
	var due []core.Delivery
	shards, _ := c.store.MessageShards()
	for shard := range shards {
		page, err := c.store.DueMessages(c.t.Context(), shard, core.InstantOf(c.clock.Now()), "", 100)
		if err != nil {
			c.t.Fatal(err)
		}
		due = append(due, page.Deliveries...)
	}
	return due
}

// kill makes dead letters of deliveries, with the notice that a request gets.
func (c *costs) kill(ctx context.Context, due []core.Delivery) error {
	for i, d := range due {
		letter := core.DeadLettering{
			Seen: d, Reason: core.DeadExpired, WriteStamp: core.WriteStamp{WriteID: fmt.Sprint("w", i), Started: c.clock.Now()},
		}
		if d.Type == core.MessageRequest {
			notice := d
			notice.ID, notice.Inbox, notice.Type = "notice", d.From, core.MessageEvent
			letter.Notice = core.Some(notice)
		}
		if done, err := c.store.DeadLetter(ctx, letter); err != nil || !done {
			return fmt.Errorf("dead-letter %s: %t, %w", d.ID, done, err)
		}
	}
	return nil
}
