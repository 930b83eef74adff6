package deadlines

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"drawbridge/core"
)

// A sight is one way to meet a deadline, and what it tells one millisecond before
// and at the first instant that is too late.
type sight struct {
	name          string
	look          func(w *world) string
	before, after string
}

// A deadline is a row of the walk.
type deadline struct {
	name string
	// begin arranges it and returns the first instant at which it has passed.
	begin  func(w *world) core.Instant
	sights []sight // before the deadline they are looked at in this order, in one world
	// told is what somebody was told in the end; nil where nobody is. sweep is the
	// one that would tell it.
	told  func(w *world) string
	once  string
	sweep string
}

// TestEveryDeadlineHoldsWithoutAnySweep walks the deadlines. At each it tries
// every sight as the first that meets it. Then the others look too, twice, and the
// sweep runs, twice: nothing is told again.
func TestEveryDeadlineHoldsWithoutAnySweep(t *testing.T) {
	for _, d := range deadlines {
		t.Run(d.name, func(t *testing.T) {
			w := newWorld(t)
			w.until(d.begin(w).Add(-time.Millisecond))
			for _, s := range d.sights {
				if got := s.look(w); got != s.before {
					t.Errorf("a millisecond early, %s tells %q, want %q", s.name, got, s.before)
				}
			}
			for _, first := range d.sights {
				t.Run(first.name, func(t *testing.T) { d.meet(t, first) })
			}
		})
	}
}

func (d deadline) meet(t *testing.T, first sight) {
	w := newWorld(t)
	w.until(d.begin(w))
	if got := first.look(w); got != first.after {
		t.Errorf("it tells %q, want %q", got, first.after)
	}
	if d.told == nil {
		return
	}
	for range 2 {
		for _, s := range d.sights {
			s.look(w)
		}
	}
	for range 2 {
		_, err := w.hub.RunSweep(w.ctx(), d.sweep)
		w.must(err)
	}
	if got := d.told(w); got != d.once {
		t.Errorf("told is %q, want %q", got, d.once)
	}
}

var deadlines = []deadline{
	{
		name: "an agent's lease",
		begin: func(w *world) core.Instant {
			w.register("a", core.RegisterRequest{})
			return w.after(lease + time.Millisecond) // a lease that ends now is live
		},
		sights: []sight{
			{"its status", func(w *world) string { return w.status("a") }, "online", "stale"},
			{"the list", func(w *world) string { return string(w.listed("a").Effective) }, "online", "stale"},
			{"a publish that wants it online", func(w *world) string {
				_, err := w.publish(core.PublishRequest{To: "a", RequireOnline: true})
				return outcome(err)
			}, "done", string(core.CodeRecipientNotOnline)},
		},
	},
	{
		name: "an agent's way offline",
		begin: func(w *world) core.Instant {
			w.register("a", core.RegisterRequest{Topics: []string{"news"}})
			return w.after(lease + core.OfflineAfter + time.Millisecond)
		},
		sights: []sight{
			{"its status", func(w *world) string { return w.status("a") }, "stale", "offline"},
			{"the list", func(w *world) string { return string(w.listed("a").Effective) }, "stale", "offline"},
			{"a publish to its topic", func(w *world) string {
				done, err := w.publish(core.PublishRequest{To: "topic:news"})
				w.must(err)
				return fmt.Sprint(done.FanoutCount)
			}, "1", "0"},
		},
	},
	{
		name: "an agent's step",
		begin: func(w *world) core.Instant {
			w.register("a", core.RegisterRequest{Step: core.Some(int64(1)), StepDeadlineMs: core.Some(int64(1000))})
			return w.after(time.Second + time.Millisecond)
		},
		sights: []sight{
			{"the list", func(w *world) string { return fmt.Sprint(w.listed("a").Hung) }, "false", "true"},
			{"its events", func(w *world) string {
				page, err := w.hub.Events(w.ctx(), core.EventQuery{AgentID: "a"})
				w.must(err)
				hung := false
				for _, e := range page.Agents {
					hung = hung || e.Hung
				}
				return fmt.Sprint(hung)
			}, "false", "true"},
		},
	},
	{
		name: "a message",
		begin: func(w *world) core.Instant {
			for _, id := range []string{"sender", "a"} {
				w.agent(id)
			}
			done, err := w.publish(core.PublishRequest{To: "a", Type: core.MessageHandoff, TTLMs: 60_000, TraceID: "trace", MaxDeliveries: core.Some(int64(9))})
			w.must(err)
			w.ids["message"] = done.MessageID
			return w.after(time.Minute)
		},
		sights: []sight{
			{"a look into the inbox", func(w *world) string { return fmt.Sprint(len(w.drain(core.DrainRequest{AgentID: "a"}))) }, "1", "0"},
			{"the count", func(w *world) string {
				report, err := w.hub.Status(w.ctx(), core.StatusQuery{Scope: core.StatusScopeAgent, AgentID: "a"})
				w.must(err)
				return fmt.Sprint(report.Agent.Pending)
			}, "1", "0"},
			{"its trace", func(w *world) string {
				report, err := w.hub.Status(w.ctx(), core.StatusQuery{Scope: core.StatusScopeTrace, TraceID: "trace"})
				w.must(err)
				return string(report.Trace[0].Status)
			}, "delivered", "expired"},
			{"an acknowledgement by its id", func(w *world) string {
				return settled(w.hub.Ack(w.ctx(), core.AckRequest{AgentID: "a", MessageIDs: []string{w.ids["message"]}}))
			}, "done", string(core.CodeExpired)},
			{"a drain", func(w *world) string { return w.took("a") }, "0", "0"}, // it was acknowledged above
		},
		told:  func(w *world) string { return w.took("sender") },
		once:  "1",
		sweep: core.SweepMessages,
	},
	{
		name: "a leased message",
		begin: func(w *world) core.Instant {
			_, err := w.publish(core.PublishRequest{To: "a", TTLMs: 60_000})
			w.must(err)
			w.ids["receipt"] = w.drain(core.DrainRequest{AgentID: "a", VisibilityMs: core.Some(int64(3_600_000))})[0].Receipt
			return w.after(time.Minute)
		},
		sights: []sight{
			{"a negative acknowledgement", func(w *world) string {
				return settled(w.hub.Nack(w.ctx(), core.NackRequest{AgentID: "a", Receipts: []string{w.ids["receipt"]}, DelayMs: 1000}))
			}, "done", string(core.CodeExpired)},
			{"an acknowledgement", func(w *world) string {
				return settled(w.hub.Ack(w.ctx(), core.AckRequest{AgentID: "a", Receipts: []string{w.ids["receipt"]}}))
			}, string(core.CodeReceiptStale), string(core.CodeExpired)}, // it was given back above
		},
	},
	{
		name: "a message's visibility",
		begin: func(w *world) core.Instant {
			_, err := w.publish(core.PublishRequest{To: "a"})
			w.must(err)
			w.ids["receipt"] = w.drain(core.DrainRequest{AgentID: "a", VisibilityMs: core.Some(int64(60_000))})[0].Receipt
			return w.after(time.Minute)
		},
		sights: []sight{
			{"a drain that leases", func(w *world) string {
				return fmt.Sprint(len(w.drain(core.DrainRequest{AgentID: "a", VisibilityMs: core.Some(int64(60_000))})))
			}, "0", "1"},
			{"a drain that acknowledges", func(w *world) string { return w.took("a") }, "0", "1"},
			{"an acknowledgement, which nobody has overtaken", func(w *world) string {
				return settled(w.hub.Ack(w.ctx(), core.AckRequest{AgentID: "a", Receipts: []string{w.ids["receipt"]}}))
			}, "done", "done"},
		},
	},
	{
		name: "a question to a person",
		begin: func(w *world) core.Instant {
			asked, err := w.hub.AskHuman(w.ctx(), core.HumanQuestion{
				Requester: "a", Kind: "approval", Prompt: "may I?", DeadlineMs: core.Some(int64(60_000)), DefaultAction: core.DefaultContinue,
			})
			w.must(err)
			w.ids["question"] = asked.RequestID
			return w.after(time.Minute)
		},
		sights: []sight{
			{"a read", func(w *world) string { return string(w.human().State) }, "pending", "timed_out"},
			{"the list of the pending ones", func(w *world) string {
				pending, err := w.hub.PendingHuman(w.ctx())
				w.must(err)
				return fmt.Sprint(len(pending))
			}, "1", "0"},
			{"an answer", func(w *world) string {
				_, err := w.hub.SubmitHuman(w.ctx(), core.HumanSubmission{
					RequestID: w.ids["question"], Action: core.ActionAccept, Content: json.RawMessage(`{}`), SubmittedBy: "ann",
				})
				return outcome(err)
			}, "done", string(core.CodeDeadlinePassed)},
		},
		told:  func(w *world) string { return w.told("a", "action") },
		once:  "timeout_continue",
		sweep: core.SweepHumanRequests,
	},
	{
		name: "an attempt of a job",
		begin: func(w *world) core.Instant {
			w.assign(core.AssignRequest{TimeoutMs: core.Some(int64(60_000)), MaxRetries: 1})
			return w.after(time.Minute)
		},
		sights: []sight{
			{"a read", func(w *world) string { return words(w.job().Status, w.job().Attempt) }, "queued 1", "queued 2"},
			{"the list", func(w *world) string { return words(w.listedJob().Status, w.listedJob().Attempt) }, "queued 1", "queued 2"},
			{"its events", (*world).jobEvents, "queued", "queued timed_out queued"},
			{"a retry", func(w *world) string {
				_, err := w.hub.RetryJob(w.ctx(), core.JobRetryRequest{JobID: w.ids["job"]})
				return outcome(err)
			}, string(core.CodeAssignActive), string(core.CodeAssignRetryExhausted)},
			{"a report", func(w *world) string { return w.report(1, "succeeded") }, "done", string(core.CodeAssignAttemptMismatch)},
		},
		told:  func(w *world) string { return w.told("hand", "kind") },
		once:  "assign.cancel assign.job assign.job",
		sweep: core.SweepAssignments,
	},
	{
		name: "the last attempt of a job",
		begin: func(w *world) core.Instant {
			w.assign(core.AssignRequest{TimeoutMs: core.Some(int64(60_000))})
			return w.after(time.Minute)
		},
		sights: []sight{
			{"a read", func(w *world) string { return string(w.job().Status) }, "queued", "timed_out"},
			{"the list", func(w *world) string { return string(w.listedJob().Status) }, "queued", "timed_out"},
			{"its events", (*world).jobEvents, "queued", "queued timed_out"},
			{"a cancel", func(w *world) string {
				_, err := w.hub.CancelJob(w.ctx(), core.JobCancelRequest{JobID: w.ids["job"]})
				return outcome(err)
			}, "done", string(core.CodeAssignAlreadyFinal)},
		},
		told:  func(w *world) string { return w.told("lead", "completion_reason") },
		once:  "timed_out",
		sweep: core.SweepAssignments,
	},
	{
		name: "a retry's delay",
		begin: func(w *world) core.Instant {
			w.assign(core.AssignRequest{MaxRetries: 1, RetryDelayMs: 60_000})
			w.took("hand")
			if got := w.report(1, "failed"); got != "done" {
				w.t.Fatalf("the report ends in %s", got)
			}
			return w.after(time.Minute)
		},
		sights: []sight{
			{"a read", func(w *world) string { return fmt.Sprint(w.job().LastMessageID != "") }, "false", "true"},
			{"its events", func(w *world) string { return w.jobEvents() + " " + w.dispatched() }, "queued failed queued false", "queued failed queued true"},
			{"the list", func(w *world) string { return words(w.listedJob().Status, w.listedJob().Attempt) }, "queued 2", "queued 2"},
		},
		told:  func(w *world) string { return w.told("hand", "kind") },
		once:  "assign.job",
		sweep: core.SweepAssignments,
	},
	{
		name: "an activation of a role",
		begin: func(w *world) core.Instant {
			w.agent("first", mayLead)
			w.agent("second", mayLead)
			w.candidate("first", 2)
			w.candidate("second", 1)
			w.ensure()
			return w.role().ActivationDeadline
		},
		sights: []sight{
			{"the list", func(w *world) string { return string(w.effective().State) }, "elected-probing", "unreachable"},
			{"an ensure", func(w *world) string { return string(w.ensure().Disposition) }, "joined", "started"},
			{"the acknowledgement", func(w *world) string {
				_, err := w.hub.AcknowledgeRole(w.ctx(), w.firstAck())
				return outcome(err)
			}, "done", string(core.CodeStaleEpoch)},
		},
		told:  func(w *world) string { return w.took("second") },
		once:  "1",
		sweep: core.SweepRoles,
	},
	{
		name: "a holder's lease",
		begin: func(w *world) core.Instant {
			w.register("a", core.RegisterRequest{Capabilities: []string{mayLead}})
			w.lead("a")
			_, err := w.publish(core.PublishRequest{To: roleKey.Address()})
			w.must(err)
			return w.after(lease) // an authority ends with the last instant of the lease
		},
		sights: []sight{
			{"a check of its fence", func(w *world) string { return w.holds("a", w.epoch()) }, "true", "false"},
			{"the list", func(w *world) string { return string(w.effective().State) }, "active", "electable"},
			{"an ensure", func(w *world) string { return string(w.ensure().Disposition) }, "already_active", "started"},
			{"a value it attaches", func(w *world) string {
				_, err := w.hub.SetRoleValue(w.ctx(), core.RoleValueRequest{Wire: wire, AgentID: "a", Epoch: w.epoch(), Value: json.RawMessage(`1`)})
				return outcome(err)
			}, "done", string(core.CodeHolderLeaseExpired)},
			{"a drain for the role", func(w *world) string { return w.took("a") }, "1", "0"},
		},
	},
	{
		name: "the grace of a hand-over",
		begin: func(w *world) core.Instant {
			w.agent("a", mayLead)
			w.lead("a")
			w.agent("next", mayLead)
			w.candidate("next", 1)
			_, err := w.hub.ReleaseRole(w.ctx(), core.ReleaseRequest{
				Wire: wire, AgentID: "a", Epoch: w.epoch(), Successor: "next", GraceMs: 60_000,
			})
			w.must(err)
			return w.after(time.Minute)
		},
		sights: []sight{
			{"a check of its fence", func(w *world) string { return w.holds("a", w.epoch()) }, "true", "false"},
			{"an ensure", func(w *world) string { return string(w.ensure().Disposition) }, "already_active", "started"},
			{"a value it attaches", func(w *world) string {
				_, err := w.hub.SetRoleValue(w.ctx(), core.RoleValueRequest{Wire: wire, AgentID: "a", Epoch: w.epoch(), Value: json.RawMessage(`1`)})
				return outcome(err)
			}, "done", string(core.CodeStaleEpoch)},
		},
		told:  func(w *world) string { return w.took("next") },
		once:  "1",
		sweep: core.SweepRoles,
	},
	{
		name: "the lease of an archive job",
		begin: func(w *world) core.Instant {
			w.must(w.queue.Enqueue(w.ctx(), []core.ArchiveRequest{archiveRequest})[0].Err)
			w.claim()
			w.ids["former"] = w.ids["lease"]
			return w.archived().Lease.ExpiresAt
		},
		sights: []sight{
			{"whether there is work", (*world).claimable, "false", "true"},
			{"a claim", func(w *world) string { return fmt.Sprint(w.claim()) }, "0", "2"},
			{"its holder, whom nobody has overtaken", func(w *world) string {
				_, err := w.queue.Renew(w.ctx(), archiveRequest.JobID(), w.ids["former"])
				return outcome(err)
			}, "done", "done"},
		},
	},
	{
		name: "the last lease of an archive job",
		begin: func(w *world) core.Instant {
			w.must(w.queue.Enqueue(w.ctx(), []core.ArchiveRequest{archiveRequest})[0].Err)
			for range core.DefaultArchiveSettings().MaxAttempts {
				w.clock.Advance(core.DefaultArchiveSettings().Lease)
				w.claim()
			}
			return w.archived().Lease.ExpiresAt
		},
		sights: []sight{
			{"whether there is work", (*world).claimable, "false", "false"},
			{"a claim, which leaves a dead letter", func(w *world) string { return words(w.claim(), w.archived().Status) }, "0 leased", "0 failed"},
		},
		told:  func(w *world) string { return words(w.archived().Status, w.archived().LastError.Code) },
		once:  "failed lease_exhausted",
		sweep: core.SweepArchive,
	},
	{
		name: "the back-off of an archive job",
		begin: func(w *world) core.Instant {
			w.must(w.queue.Enqueue(w.ctx(), []core.ArchiveRequest{archiveRequest})[0].Err)
			w.claim()
			job, err := w.queue.Fail(w.ctx(), archiveRequest.JobID(), w.ids["lease"], core.ArchiveFailure{Code: "io", Message: "m"})
			w.must(err)
			return job.NextAttemptAt
		},
		sights: []sight{
			{"whether there is work", (*world).claimable, "false", "true"},
			{"a claim", func(w *world) string { return fmt.Sprint(w.claim()) }, "0", "2"},
		},
	},
	{
		name: "an idempotency key",
		begin: func(w *world) core.Instant {
			w.ids["message"] = w.keyed()
			return w.after(core.IdempotencyRetention)
		},
		sights: []sight{
			{"the same request", func(w *world) string { return fmt.Sprint(w.keyed() == w.ids["message"]) }, "true", "false"},
		},
	},
	{
		name: "an answer to a question",
		begin: func(w *world) core.Instant {
			_, err := w.publish(core.PublishRequest{To: "a", Type: core.MessageResponse, CorrelationID: "c", TTLMs: 60_000, Payload: json.RawMessage(`42`)})
			w.must(err)
			return w.after(time.Minute)
		},
		sights: []sight{
			{"whoever asks", func(w *world) string {
				asked, err := w.hub.Ask(w.ctx(), core.AskRequest{From: "x", To: "b", Topic: "t", Question: "q", Priority: 5, TTLMs: 1000, AwaitMs: 1, CorrelationID: "c"})
				w.must(err)
				return string(asked.State) + string(asked.Response)
			}, "answered42", "delivered"},
		},
	},
	{
		name: "a token",
		begin: func(w *world) core.Instant {
			_, err := w.store.CreateToken(w.ctx(), core.Token{
				Hash: core.TokenHash("secret"), Scopes: []core.Scope{core.ScopeRead}, CreatedAt: w.now(), ExpiresAt: w.after(time.Minute),
			})
			w.must(err)
			return w.after(time.Minute)
		},
		sights: []sight{
			{"a request", func(w *world) string { return w.get("agents", "/bridge/agents", "secret") }, "200", "401"},
		},
	},
	{
		name: "a rule that is not seen",
		begin: func(w *world) core.Instant {
			learnt, err := w.hub.Learn(w.ctx(), core.LearnRequest{Message: "exit status 1", Solution: "s", Success: true, Type: core.ReflexionAdaptive})
			w.must(err)
			w.ids["rule"] = learnt.Entry.ID()
			for range 2 {
				_, err = w.hub.Hit(w.ctx(), core.HitRequest{ID: w.ids["rule"], Success: true})
				w.must(err)
			}
			return w.after(7 * 24 * time.Hour)
		},
		sights: []sight{
			{"a look-up", func(w *world) string { return w.confidence(w.lookup()) }, "0.8", "0.7"},
			{"the list", func(w *world) string {
				page, err := w.hub.Reflexions(w.ctx(), core.ReflexionQuery{})
				w.must(err)
				return w.confidence(page.Entries)
			}, "0.8", "0.7"},
		},
	},
}

func (w *world) assign(r core.AssignRequest) {
	w.t.Helper()
	r.Supervisor, r.Worker, r.Task = "lead", "hand", "dig"
	done, err := w.hub.Assign(w.ctx(), r)
	w.must(err)
	w.ids["job"] = done.Job.ID
}

// dispatched tells whether the worker has got the attempt, without a look at the
// job.
func (w *world) dispatched() string {
	w.t.Helper()
	return fmt.Sprint(len(w.drain(core.DrainRequest{AgentID: "hand"})) > 0)
}

// lead makes an agent the holder.
func (w *world) lead(id string) {
	w.t.Helper()
	w.candidate(id, 5)
	w.ensure()
	w.must(w.acknowledge(id))
	w.ids["epoch"] = fmt.Sprint(w.role().Epoch)
}

// epoch is the one that the holder was granted.
func (w *world) epoch() int64 {
	w.t.Helper()
	var epoch int64
	_, err := fmt.Sscan(w.ids["epoch"], &epoch)
	w.must(err)
	return epoch
}

// firstAck is the acknowledgement of the first activation.
func (w *world) firstAck() core.AckRoleRequest {
	w.t.Helper()
	r := w.role()
	if w.ids["activation"] == "" {
		w.ids["activation"] = r.ActivationID
	}
	return core.AckRoleRequest{
		AgentID: "first", Wire: wire, HolderAgentID: "first", Epoch: 1, ActivationSeq: 1, ActivationID: w.ids["activation"],
		CharterWire: wire, CharterEpoch: 1, CharterVersion: r.CharterVersion,
	}
}

func (w *world) keyed() string {
	w.t.Helper()
	done, err := w.publish(core.PublishRequest{To: "a", Idempotency: core.Some(core.IdempotencyKey{Scope: "s", Key: "k", Body: []byte("{}")})})
	w.must(err)
	return done.MessageID
}

func (w *world) lookup() []core.ReflexionView {
	w.t.Helper()
	found, err := w.hub.Lookup(w.ctx(), core.LookupRequest{Message: core.Some("exit status 1")})
	w.must(err)
	return found.Entries
}

func (w *world) confidence(entries []core.ReflexionView) string {
	if len(entries) == 0 {
		return "none"
	}
	return fmt.Sprint(entries[0].Confidence)
}
