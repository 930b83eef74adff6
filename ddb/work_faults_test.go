package ddb_test

import (
	"context"
	"testing"
	"time"

	"drawbridge/core"
	"drawbridge/localstack/fakeaws"
)

// A write that may have happened is looked up before anybody is told "unknown".
func TestAChangeOfWorkWithoutAnAnswerIsLookedUp(t *testing.T) {
	for name, action := range map[string]fakeaws.Action{
		"every answer lost": fakeaws.DropResponse(), "every answer torn": fakeaws.TearResponse(),
		"a fault after the write": fakeaws.ErrorAfter(500, "InternalServerError"),
	} {
		t.Run(name, func(t *testing.T) {
			c := newCosts(t)
			request := c.newRequest(core.HumanQuestion{})
			lost := c.aws.Faults().Add(fakeaws.Rule{Op: "TransactWriteItems", Action: action})
			job := c.newJob(core.AssignRequest{})
			c.do(c.report(job, "succeeded"))
			c.do(c.submit(request))
			lost.Remove()
			stored, _, err := c.store.ReadJob(t.Context(), job)
			if err != nil || stored.Status != core.JobSucceeded {
				t.Fatalf("the job reads %+v, %v", stored, err)
			}
		})
	}
}

func TestAChangeOfWorkThatNeverArrivedChangesNothing(t *testing.T) {
	c := newCosts(t)
	request, job := c.newRequest(core.HumanQuestion{}), c.newJob(core.AssignRequest{})
	away := c.aws.Faults().Add(fakeaws.Rule{Op: "TransactWriteItems", Action: fakeaws.DropRequest()})
	for name, operation := range map[string]func(context.Context) error{
		"a report": c.report(job, "succeeded"), "an answer": c.submit(request),
		"a job": func(ctx context.Context) error { _, err := c.assign(ctx, core.AssignRequest{}); return err },
	} {
		code := core.CodeOf(operation(t.Context()))
		if code != core.CodeOutcomeUnknown && code != core.CodeUnavailable {
			t.Errorf("%s ends in %s", name, code)
		}
	}
	away.Remove()
	c.do(c.report(job, "succeeded"))
	c.do(c.submit(request))
}

func TestAChangeOfWorkWaitsForOtherTransactions(t *testing.T) {
	c := newCosts(t)
	job := c.newJob(core.AssignRequest{})
	rule := c.aws.Faults().Add(fakeaws.Rule{Op: "TransactWriteItems", Count: 12, Action: fakeaws.TransactionConflict()})
	c.do(c.report(job, "succeeded")) // more than one commit waits for: the report looks again
	if rule.Hits() != 12 {
		t.Errorf("the report met %d transactions", rule.Hits())
	}
}

// A lagging index shows what is not true any more: the items decide.
func TestASweepOfWorkOverALaggingIndexBelievesTheItems(t *testing.T) {
	c := newCosts(t)
	second := core.Some(int64(1000))
	c.aws.Faults().LagIndex(c.table, "due", 0)
	job, request := c.newJob(core.AssignRequest{TimeoutMs: second}), c.newRequest(core.HumanQuestion{DeadlineMs: second})
	c.aws.Faults().LagIndex(c.table, "due", time.Hour)
	c.do(c.report(job, "succeeded"))
	c.do(c.submit(request))
	c.clock.Advance(5 * time.Second)
	if counts, err := c.core.SweepJobs(t.Context()); err != nil || counts.TimedOut != 0 {
		t.Errorf("the sweep of jobs did %+v, %v", counts, err)
	}
	if counts, err := c.core.SweepHumanRequests(t.Context()); err != nil || counts.TimedOut != 0 {
		t.Errorf("the sweep of requests did %+v, %v", counts, err)
	}
}
