package ddb_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"drawbridge/core"
)

func (c *costs) ask(ctx context.Context, more core.HumanQuestion) (string, error) {
	more.Requester, more.Kind, more.Prompt = "a", "text", "May I?"
	asked, err := c.core.AskHuman(ctx, more)
	return asked.RequestID, err
}

func (c *costs) assign(ctx context.Context, more core.AssignRequest) (string, error) {
	more.Supervisor, more.Worker, more.Task = "a", "w", "task"
	assigned, err := c.core.Assign(ctx, more)
	return assigned.Job.ID, err
}

func (c *costs) newRequest(more core.HumanQuestion) string {
	c.t.Helper()
	id, err := c.ask(c.t.Context(), more)
	if err != nil {
		c.t.Fatal(err)
	}
	return id
}

func (c *costs) newJob(more core.AssignRequest) string {
	c.t.Helper()
	id, err := c.assign(c.t.Context(), more)
	if err != nil {
		c.t.Fatal(err)
	}
	return id
}

// report is an operation that reports on attempt 1.
func (c *costs) report(id, status string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.core.ReportJob(ctx, core.JobReport{
			JobID: id, Attempt: core.Some(int64(1)), Status: status, Result: json.RawMessage(`"done"`),
		})
		return err
	}
}

func (c *costs) submit(id string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.core.SubmitHuman(ctx, core.HumanSubmission{RequestID: id, Action: core.ActionAccept, Content: json.RawMessage(`"yes"`)})
		return err
	}
}

// refused is an operation that has to end in a code.
func refused(operation func(context.Context) error, want core.Code) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := operation(ctx); core.CodeOf(err) != want {
			return fmt.Errorf("the operation ends in %w, want %s", err, want)
		}
		return nil
	}
}

// The budgets of design section 3 for human requests, assignments and events.
func TestHumanRequestsAndAssignmentsCostWhatIsStated(t *testing.T) {
	key := core.Some(core.IdempotencyKey{Scope: "s", Key: "k", Body: []byte("b")})
	fence := core.Fences{Generation: core.Some(int64(1))}
	second := core.Some(int64(1000))
	for _, test := range []struct {
		name    string
		prepare func(*costs) func(context.Context) error
		want    spend
	}{
		{"ask a person", func(c *costs) func(context.Context) error {
			return func(ctx context.Context) error { _, err := c.ask(ctx, core.HumanQuestion{}); return err }
		}, spend{1, 1, 3, 0}},
		{"ask a person, with a fence and a key", func(c *costs) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := c.ask(ctx, core.HumanQuestion{Fences: fence, Idempotency: key})
				return err
			}
		}, spend{1, 1, 8, 0}},
		{"answer a request and tell the requester", func(c *costs) func(context.Context) error {
			return c.submit(c.newRequest(core.HumanQuestion{}))
		}, spend{2, 2, 9, 1}},
		{"answer a request that was answered", func(c *costs) func(context.Context) error {
			again := c.submit(c.newRequest(core.HumanQuestion{}))
			c.do(again)
			return refused(again, core.CodeAlreadyHandled)
		}, spend{1, 1, 0, 1}},
		{"answer late", func(c *costs) func(context.Context) error {
			late := refused(c.submit(c.newRequest(core.HumanQuestion{DeadlineMs: second})), core.CodeDeadlinePassed)
			c.clock.Advance(time.Second)
			c.do(late)
			return late
		}, spend{2, 2, 1, 1}},
		{"read a request", func(c *costs) func(context.Context) error {
			id := c.newRequest(core.HumanQuestion{})
			return func(ctx context.Context) error {
				_, err := c.core.HumanRequest(ctx, core.HumanRead{RequestID: id})
				return err
			}
		}, spend{1, 1, 0, 1}},
		{"read a request with the fence", func(c *costs) func(context.Context) error {
			id := c.newRequest(core.HumanQuestion{})
			return func(ctx context.Context) error {
				_, err := c.core.HumanRequest(ctx, core.HumanRead{RequestID: id, Fences: fence})
				return err
			}
		}, spend{2, 2, 0, 2}},
		{"list 10 pending requests", func(c *costs) func(context.Context) error {
			for range 10 {
				c.newRequest(core.HumanQuestion{})
			}
			return func(ctx context.Context) error { _, err := c.core.PendingHuman(ctx); return err }
		}, spend{2, 5, 0, 12}},
		{"sweep of human requests with nothing due", func(c *costs) func(context.Context) error {
			c.newRequest(core.HumanQuestion{})
			return func(ctx context.Context) error { _, err := c.core.SweepHumanRequests(ctx); return err }
		}, spend{1, 8, 0, 4}},
		{"sweep that ends one request", func(c *costs) func(context.Context) error {
			c.newRequest(core.HumanQuestion{DeadlineMs: second})
			c.clock.Advance(time.Second)
			return func(ctx context.Context) error { _, err := c.core.SweepHumanRequests(ctx); return err }
		}, spend{3, 10, 9, 5}},
		{"create an assignment", func(c *costs) func(context.Context) error {
			return func(ctx context.Context) error { _, err := c.assign(ctx, core.AssignRequest{}); return err }
		}, spend{1, 1, 15, 0}},
		{"create an assignment, with a fence and a key", func(c *costs) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := c.assign(ctx, core.AssignRequest{Fences: fence, Idempotency: key})
				return err
			}
		}, spend{1, 1, 19, 0}},
		{"drain its dispatch", func(c *costs) func(context.Context) error {
			c.newJob(core.AssignRequest{})
			return func(ctx context.Context) error {
				_, err := c.core.Drain(ctx, core.DrainRequest{AgentID: "w", Max: 10, AutoAck: true})
				return err
			}
		}, spend{3, 5, 4, 3}},
		{"report progress, the first", func(c *costs) func(context.Context) error {
			return c.report(c.newJob(core.AssignRequest{}), "running")
		}, spend{2, 2, 14, 1}},
		{"report progress, a later one", func(c *costs) func(context.Context) error {
			again := c.report(c.newJob(core.AssignRequest{}), "running")
			c.do(again)
			c.clock.Advance(time.Second)
			return again
		}, spend{2, 2, 10, 1}},
		{"report a result and tell the supervisor", func(c *costs) func(context.Context) error {
			return c.report(c.newJob(core.AssignRequest{}), "succeeded")
		}, spend{2, 2, 15, 1}},
		{"report a result again", func(c *costs) func(context.Context) error {
			again := c.report(c.newJob(core.AssignRequest{}), "succeeded")
			c.do(again)
			return again
		}, spend{1, 1, 0, 1}},
		{"report a failure that is retried", func(c *costs) func(context.Context) error {
			return c.report(c.newJob(core.AssignRequest{MaxRetries: 1}), "failed")
		}, spend{2, 2, 19, 1}},
		{"cancel", func(c *costs) func(context.Context) error {
			id := c.newJob(core.AssignRequest{})
			return func(ctx context.Context) error {
				_, err := c.core.CancelJob(ctx, core.JobCancelRequest{JobID: id})
				return err
			}
		}, spend{2, 2, 20, 1}},
		{"read a job", func(c *costs) func(context.Context) error {
			id := c.newJob(core.AssignRequest{})
			return func(ctx context.Context) error { _, err := c.core.Job(ctx, id, core.Fences{}); return err }
		}, spend{1, 1, 0, 1}},
		{"list 10 jobs of a supervisor", func(c *costs) func(context.Context) error {
			for range 10 {
				c.newJob(core.AssignRequest{})
			}
			return func(ctx context.Context) error {
				_, err := c.core.Jobs(ctx, core.JobQuery{Supervisor: "a"})
				return err
			}
		}, spend{2, 2, 0, 10.5}},
		{"list 10 jobs of any status", func(c *costs) func(context.Context) error {
			for range 10 {
				c.newJob(core.AssignRequest{})
			}
			return func(ctx context.Context) error { _, err := c.core.Jobs(ctx, core.JobQuery{}); return err }
		}, spend{2, 21, 0, 20}},
		{"look for events when there are none", func(c *costs) func(context.Context) error {
			id := c.newJob(core.AssignRequest{})
			page, err := c.core.Events(c.t.Context(), core.EventQuery{JobID: id})
			if err != nil {
				c.t.Fatal(err)
			}
			return func(ctx context.Context) error {
				_, err := c.core.Events(ctx, core.EventQuery{JobID: id, Cursor: page.NextCursor})
				return err
			}
		}, spend{1, 1, 0, 1}},
		{"read a job's events", func(c *costs) func(context.Context) error {
			id := c.newJob(core.AssignRequest{})
			return func(ctx context.Context) error { _, err := c.core.Events(ctx, core.EventQuery{JobID: id}); return err }
		}, spend{2, 2, 0, 2}},
		{"look at an agent's events", func(c *costs) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := c.core.Events(ctx, core.EventQuery{AgentID: "a"})
				return err
			}
		}, spend{1, 1, 0, 1}},
		{"sweep of assignments with nothing due", func(c *costs) func(context.Context) error {
			c.newJob(core.AssignRequest{})
			return func(ctx context.Context) error { _, err := c.core.SweepJobs(ctx); return err }
		}, spend{4, 33, 1, 16}},
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

// Cost must not grow with what is stored. The large ones run with
// DRAWBRIDGE_LONG=1.
func BenchmarkAssignments(b *testing.B) {
	for _, stored := range []int{0, 10_000, 100_000} {
		if stored > 0 && os.Getenv("DRAWBRIDGE_LONG") == "" {
			continue
		}
		c := newStored(b, stored)
		b.Run(fmt.Sprintf("create/%d", stored), func(b *testing.B) {
			for b.Loop() {
				c.newJob(core.AssignRequest{})
			}
		})
		b.Run(fmt.Sprintf("result/%d", stored), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				id := c.newJob(core.AssignRequest{})
				b.StartTimer()
				c.do(c.report(id, "succeeded"))
			}
		})
		b.Run(fmt.Sprintf("list/%d", stored), func(b *testing.B) {
			for b.Loop() {
				c.do(func(ctx context.Context) error {
					_, err := c.core.Jobs(ctx, core.JobQuery{Supervisor: "a"})
					return err
				})
			}
		})
	}
}

// newStored is a hub that holds so many finished jobs.
func newStored(b *testing.B, stored int) *costs {
	c := newCosts(b)
	for range stored {
		id := c.newJob(core.AssignRequest{})
		c.do(c.report(id, "succeeded"))
	}
	return c
}
