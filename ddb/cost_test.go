package ddb_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"drawbridge/core"
	"drawbridge/core/coretest"
	"drawbridge/localstack/fakeaws"
)

// spend is what an operation costs: sequential round trips, requests, and
// capacity units computed by AWS's rules (not taken from an answer's
// ConsumedCapacity: localstack/localstack#13090).
type spend struct {
	rounds, requests int
	write, read      float64
}

// costs is a hub with one agent "a" (generation 1, due in a minute), whose
// identity the process has read.
type costs struct {
	*world
	t     testing.TB
	clock *coretest.Clock
	core  *core.Hub
}

func newCosts(t testing.TB) *costs {
	w := newWorld(t)
	c := &costs{world: w, t: t, clock: coretest.NewClock()}
	c.core = w.hub(c.clock)
	c.register("a")
	return c
}

func (c *costs) register(id string, topics ...string) {
	c.t.Helper()
	c.do(func(ctx context.Context) error {
		_, err := c.core.Register(ctx, core.RegisterRequest{AgentID: id, CLI: "claude", TimeoutSec: core.Some(-60.0), Topics: topics})
		return err
	})
}

func (c *costs) do(operation func(context.Context) error) {
	c.t.Helper()
	if err := operation(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

// measure holds every request back for a moment of the bubble's time, which only
// passes when everybody waits: requests that may run at once do, and are counted
// as one round on the slowest machine.
func (c *costs) measure(operation func(context.Context) error) spend {
	c.t.Helper()
	hold := c.aws.Faults().Add(fakeaws.Rule{Action: fakeaws.Delay(time.Millisecond)})
	defer hold.Remove()
	var err error
	begun := time.Now()
	cost := c.aws.Measure(c.t.Context(), func(ctx context.Context) { err = operation(ctx) })
	if err != nil {
		c.t.Fatal(err)
	}
	// Every request takes one millisecond of the bubble's time and nothing else
	// takes any, so the time is the longest chain of requests. Counting overlaps
	// would not do: which of two ends and starts comes first in one instant is chance.
	rounds := int(time.Since(begun) / time.Millisecond)
	return spend{rounds, cost.Requests, cost.WriteUnits, cost.ReadUnits}
}

// The budgets of design section 3, and what else this issue serves.
func TestEveryOperationCostsWhatTheDesignAllows(t *testing.T) {
	register := func(r core.RegisterRequest) func(*costs) func(context.Context) error {
		return func(c *costs) func(context.Context) error {
			return func(ctx context.Context) error {
				r.CLI = "claude"
				_, err := c.core.Register(ctx, r)
				return err
			}
		}
	}
	heartbeat := func(r core.HeartbeatRequest) func(*costs) func(context.Context) error {
		return func(c *costs) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := c.core.Heartbeat(ctx, r)
				return err
			}
		}
	}
	topics := make([]string, 25)
	for i := range topics {
		topics[i] = fmt.Sprintf("topic-%d", i)
	}
	key := core.Some(core.IdempotencyKey{Scope: "s", Key: "k", Body: []byte("b")})
	one := core.Some(int64(1))

	for _, test := range []struct {
		name string
		// prepare brings about the state and returns the operation to measure.
		prepare func(*costs) func(context.Context) error
		want    spend
	}{
		{"register, the first of an id", register(core.RegisterRequest{AgentID: "b"}), spend{1, 1, 3, 0}},
		{"register, a later one", register(core.RegisterRequest{AgentID: "a"}), spend{1, 1, 1, 0}},
		{"register that ends before the due entry", register(core.RegisterRequest{AgentID: "a", TimeoutSec: core.Some(-119.0)}), spend{2, 2, 4, 0}},
		{"register with 25 topics, a later one", register(core.RegisterRequest{AgentID: "a", Topics: topics}), spend{2, 2, 26, 0}},
		{"register with an idempotency key", register(core.RegisterRequest{AgentID: "a", Idempotency: key}), spend{2, 2, 4, 2}},
		{"register with an idempotency key, repeated", func(c *costs) func(context.Context) error {
			again := register(core.RegisterRequest{AgentID: "a", Idempotency: key})(c)
			c.do(again)
			return again
		}, spend{1, 1, 0, 2}},
		{"heartbeat", heartbeat(core.HeartbeatRequest{AgentID: "a", Fences: core.Fences{Generation: one}}), spend{1, 1, 1, 0}},
		{"heartbeat whose step has grown", heartbeat(core.HeartbeatRequest{AgentID: "a", Step: one}), spend{1, 1, 1, 0}},
		{"heartbeat whose step has not grown", func(c *costs) func(context.Context) error {
			again := heartbeat(core.HeartbeatRequest{AgentID: "a", Step: one})(c)
			c.do(again)
			return again
		}, spend{2, 2, 2, 0}},
		{"heartbeat that revives an offline agent", func(c *costs) func(context.Context) error {
			c.do(func(ctx context.Context) error {
				_, err := c.core.Deregister(ctx, core.DeregisterRequest{AgentID: "a"})
				return err
			})
			return heartbeat(core.HeartbeatRequest{AgentID: "a"})(c)
		}, spend{1, 1, 2, 0}},
		{"heartbeat that is refused", func(c *costs) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := c.core.Heartbeat(ctx, core.HeartbeatRequest{AgentID: "a", Fences: core.Fences{Generation: core.Some(int64(7))}})
				if core.CodeOf(err) != core.CodeStalePresenceOwner {
					return fmt.Errorf("not refused: %w", err)
				}
				return nil
			}
		}, spend{1, 1, 1, 0}},
		{"batch heartbeat of 20 agents", func(c *costs) func(context.Context) error {
			var batch core.BatchHeartbeatRequest
			for i := range 20 {
				id := fmt.Sprintf("n%d", i)
				c.register(id)
				batch.Agents = append(batch.Agents, core.AgentBeat{AgentID: id, Generation: one})
			}
			return func(ctx context.Context) error {
				_, err := c.core.HeartbeatBatch(ctx, batch)
				return err
			}
		}, spend{1, 20, 20, 0}},
		{"status report", func(c *costs) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := c.core.ReportStatus(ctx, core.ReportRequest{AgentID: "a", Status: "paused"})
				return err
			}
		}, spend{1, 2, 1, 1}},
		{"deregister", func(c *costs) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := c.core.Deregister(ctx, core.DeregisterRequest{AgentID: "a", Fences: core.Fences{Generation: one}})
				return err
			}
		}, spend{1, 1, 2, 0}},
		{"status of the hub", func(c *costs) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := c.core.Status(ctx, core.StatusQuery{Scope: core.StatusScopeHub, IncludeMetrics: true})
				return err
			}
		}, spend{1, 4, 0, 4}},
		{"status of an agent", func(c *costs) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := c.core.Status(ctx, core.StatusQuery{Scope: core.StatusScopeAgent, AgentID: "a"})
				return err
			}
		}, spend{1, 2, 0, 2}},
		{"a page of 20 agents", func(c *costs) func(context.Context) error {
			for i := range 20 {
				c.register(fmt.Sprintf("n%d", i))
			}
			return func(ctx context.Context) error {
				_, err := c.core.Agents(ctx, core.AgentQuery{Limit: 20})
				return err
			}
		}, spend{2, 9, 0, 24}},
		{"a page of 20 agents of a topic", func(c *costs) func(context.Context) error {
			for i := range 20 {
				c.register(fmt.Sprintf("n%d", i), "x")
			}
			return func(ctx context.Context) error {
				_, err := c.core.Agents(ctx, core.AgentQuery{Topic: core.Some("x"), Limit: 20})
				return err
			}
		}, spend{2, 5, 0, 24}},
		{"identity, copy too old", func(c *costs) func(context.Context) error {
			c.clock.Advance(core.IdentityWindow)
			return func(ctx context.Context) error {
				_, err := c.core.Identity(ctx)
				return err
			}
		}, spend{1, 1, 0, 1}},
		{"rotation of the identity", func(c *costs) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := c.core.RotateIdentity(ctx, "test")
				return err
			}
		}, spend{2, 2, 1, 1}},
		{"look up a token", func(c *costs) func(context.Context) error {
			return func(ctx context.Context) error {
				_, _, err := c.store.ReadToken(ctx, core.TokenHash("t"))
				return err
			}
		}, spend{1, 1, 0, 1}},
		{"health", func(c *costs) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := c.core.Health(ctx)
				return err
			}
		}, spend{1, 1, 0, float64(len(core.SweepNames))}},
		{"presence sweep with nothing due, and its record", func(c *costs) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := c.core.RunSweep(ctx, core.SweepPresence)
				return err
			}
		}, spend{2, 9, 1, 4}},
		{"presence sweep that marks 10 agents stale", func(c *costs) func(context.Context) error {
			for i := range 9 {
				c.register(fmt.Sprintf("n%d", i))
			}
			c.clock.Advance(2 * time.Minute)
			return func(ctx context.Context) error {
				_, err := c.core.SweepAgents(ctx)
				return err
			}
		}, spend{3, 19, 30, 14}},
		{"presence sweep that marks 1 agent offline", func(c *costs) func(context.Context) error {
			c.clock.Advance(10 * time.Minute)
			c.do(func(ctx context.Context) error { _, err := c.core.SweepAgents(ctx); return err })
			return func(ctx context.Context) error {
				_, err := c.core.SweepAgents(ctx)
				return err
			}
		}, spend{3, 10, 2, 5}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCosts(t)
				operation := test.prepare(c)
				if got := c.measure(operation); got != test.want {
					t.Errorf("%d rounds, %d requests, %g write units, %g read units; want %+v", got.rounds, got.requests, got.write, got.read, test.want)
				}
			})
		})
	}
}
