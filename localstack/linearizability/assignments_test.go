package linearizability

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"drawbridge/core"
)

// assignment is one job.
type assignment struct {
	Status        core.JobStatus // "": there is none
	Attempt       int64
	Retries, Left int64 // given, and not used yet
	EndedBy       core.JobEnd
	ReportedAs    string // the report that ended an attempt
	ReportedFor   int64
}

type assignmentCall struct {
	Op      string // assign, report, retry, cancel, read, or jump: the time passes every deadline
	Retries int64
	Attempt int64
	Word    string
}

type assignmentReply struct {
	told
	Status  core.JobStatus
	Attempt int64
}

// twice: a transaction is known again by its token, so nothing happens twice.

var assignmentModel = model[assignment, assignmentCall, assignmentReply]{after: assignment.after}

func (s assignment) reply() assignmentReply {
	return assignmentReply{Status: s.Status, Attempt: s.Attempt}
}

func (s assignment) refuse(code core.Code) (assignment, assignmentReply) {
	return s, assignmentReply{told: told{Code: code}}
}

func (s assignment) after(c assignmentCall) (assignment, assignmentReply) {
	if c.Op == "assign" {
		next := assignment{Status: core.JobQueued, Attempt: 1, Retries: c.Retries, Left: c.Retries}
		return next, next.reply()
	}
	if s.Status == "" {
		return s.refuse(core.CodeAssignNotFound)
	}
	switch c.Op {
	case "report":
		return s.report(c)
	case "retry":
		return s.retry()
	case "cancel":
		if s.Status.Final() {
			return s.refuse(core.CodeAssignAlreadyFinal)
		}
		s.Status, s.EndedBy = core.JobFailed, core.EndedByCancel
	case "jump":
		if !s.Status.Final() {
			s.Status, s.EndedBy = core.JobTimedOut, core.EndedByTimeout
			s = s.again()
		}
		return s, assignmentReply{}
	}
	return s, s.reply()
}

// again begins the next attempt, where there is one left.
func (s assignment) again() assignment {
	if s.Left > 0 {
		s.Status, s.EndedBy = core.JobQueued, ""
		s.Attempt++
		s.Left--
	}
	return s
}

func (s assignment) report(c assignmentCall) (assignment, assignmentReply) {
	switch {
	case s.ReportedAs == c.Word && s.ReportedFor == c.Attempt:
		return s, s.reply()
	case c.Attempt != s.Attempt:
		return s.refuse(core.CodeAssignAttemptMismatch)
	case s.Status.Final():
		return s.refuse(core.CodeAssignAlreadyFinal)
	}
	s.Status = core.JobStatus(c.Word)
	if s.Status.Final() {
		s.EndedBy, s.ReportedAs, s.ReportedFor = core.EndedByReport, c.Word, c.Attempt
	}
	if s.Status == core.JobFailed {
		s = s.again()
	}
	return s, s.reply()
}

func (s assignment) retry() (assignment, assignmentReply) {
	switch {
	case s.Left == 0 && s.Retries > 0 && !s.Status.Final():
		return s.refuse(core.CodeAssignRetryExhausted)
	case !s.Status.Final():
		return s.refuse(core.CodeAssignActive)
	case s.Status == core.JobSucceeded:
		return s.refuse(core.CodeAssignAlreadyFinal)
	case s.Left == 0:
		return s.refuse(core.CodeAssignRetryExhausted)
	}
	s = s.again()
	return s, s.reply()
}

// TestTheHistoryOfAnAssignmentIsLinearizable lets callers report on, retry,
// cancel and read one job at once, and lets its deadline pass between two bouts.
// No sweep runs: whoever comes first moves the job on.
func TestTheHistoryOfAnAssignmentIsLinearizable(t *testing.T) {
	eachRound(t, 2, func(t *testing.T, b *bed, seed uint64) {
		h := assignmentHistory(t, b, seed, 4, 3, 5)
		if done := h.count(isDone); done < 12 {
			t.Fatalf("only %d of %d calls were done", done, len(h.operations))
		}
		check(t, assignmentModel, h)
	})
}

func assignmentHistory(t *testing.T, b *bed, seed uint64, callers, bouts, calls int) *history {
	t.Helper()
	h := newHistory()
	all := b.callers(callers, seed)
	job := ""
	first := all[0]
	record(h, first, assignmentCall{Op: "assign", Retries: 6}, func() (assignmentCall, assignmentReply) {
		first.tick()
		first.network.lose.Store(attempts)
		asked := assignmentCall{Op: "assign", Retries: 6}
		return asked, untilTold(t.Context(), first, func() assignmentReply {
			done, err := first.hub.Assign(t.Context(), core.AssignRequest{
				Supervisor: "lead", Worker: "worker", Task: "t", TimeoutMs: core.Some((10 * time.Minute).Milliseconds()), MaxRetries: asked.Retries,
				Idempotency: core.Some(core.IdempotencyKey{Scope: "s", Key: "k", Body: []byte("{}")}),
			})
			if err == nil {
				job = done.Job.ID
			}
			return assignmentTold(done, err)
		})
	})
	for range bouts {
		atOnce(all, func(c *caller) {
			attempt := int64(1)
			for range calls {
				c.disturb()
				asked := c.nextAssignment(attempt)
				reply := record(h, c, asked, func() (assignmentCall, assignmentReply) {
					c.tick()
					return asked, c.assignment(t, job, asked)
				})
				attempt = max(attempt, reply.Attempt)
			}
		})
		record(h, first, assignmentCall{Op: "jump"}, func() (assignmentCall, assignmentReply) {
			b.time.jump(time.Hour)
			return assignmentCall{Op: "jump"}, assignmentReply{}
		})
	}
	first.calm()
	record(h, first, assignmentCall{Op: "read"}, func() (assignmentCall, assignmentReply) {
		first.tick()
		return assignmentCall{Op: "read"}, first.assignment(t, job, assignmentCall{Op: "read"})
	})
	return h
}

func (c *caller) nextAssignment(attempt int64) assignmentCall {
	switch c.random.IntN(9) {
	case 0:
		return assignmentCall{Op: "cancel"}
	case 1, 2:
		return assignmentCall{Op: "retry"}
	case 3, 4:
		return assignmentCall{Op: "read"}
	}
	words := []string{"running", "running", "failed", "succeeded"}
	return assignmentCall{Op: "report", Attempt: attempt, Word: words[c.random.IntN(len(words))]}
}

func (c *caller) assignment(t *testing.T, job string, asked assignmentCall) assignmentReply {
	ctx := t.Context()
	switch asked.Op {
	case "report":
		return assignmentTold(c.hub.ReportJob(ctx, core.JobReport{
			JobID: job, Attempt: core.Some(asked.Attempt), Status: asked.Word, Result: json.RawMessage(fmt.Sprintf("%q", asked.Word)),
		}))
	case "retry":
		return assignmentTold(c.hub.RetryJob(ctx, core.JobRetryRequest{JobID: job}))
	case "cancel":
		return assignmentTold(c.hub.CancelJob(ctx, core.JobCancelRequest{JobID: job}))
	}
	read, err := c.hub.Job(ctx, job, core.Fences{})
	return assignmentTold(core.Assigned{Job: read}, err)
}

func assignmentTold(done core.Assigned, err error) assignmentReply {
	if err != nil {
		return assignmentReply{told: tell(err)}
	}
	return assignmentReply{Status: done.Job.Status, Attempt: done.Job.Attempt}
}
