package ddb_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
)

// TestEveryFormatIsReadFencedAndSwept restores what each released format wrote
// and goes on with it as if nothing had happened.
func TestEveryFormatIsReadFencedAndSwept(t *testing.T) {
	for name, c := range readCorpora(t) {
		for _, part := range []struct {
			name  string
			check func(l *ledger)
		}{
			{"the hub and its tokens", (*ledger).checkHub},
			{"agents", (*ledger).checkAgents},
			{"messages that are acted on", (*ledger).checkMessages},
			{"messages that are swept", (*ledger).checkSweptMessages},
			{"roles", (*ledger).checkRoles},
			{"human requests", (*ledger).checkHumans},
			{"assignments", (*ledger).checkJobs},
			{"what was learnt, and pipelines", (*ledger).checkLearnt},
		} {
			t.Run(name+"/"+part.name, func(t *testing.T) { part.check(c.restore(t)) })
		}
	}
}

func (l *ledger) wantCode(err error, want core.Code) {
	l.t.Helper()
	if core.CodeOf(err) != want {
		l.t.Errorf("error is %v, want %q", err, want)
	}
}

func (l *ledger) checkHub() {
	identity, err := l.hub.Identity(l.ctx())
	l.must(err)
	stored, found, err := l.store.ReadIdentity(l.ctx())
	l.must(err)
	if !found || identity.HubInstanceID != stored.HubInstanceID || stored.Reason != "moved" {
		l.t.Errorf("the identity reads %+v", stored)
	}
	now := core.InstantOf(l.clock.Now())
	for name, valid := range map[string]bool{"operator": true, "bound": true, "expired": false, "revoked": false} {
		token, found, err := l.store.ReadToken(l.ctx(), core.TokenHash(name))
		l.must(err)
		if !found || token.Valid(now) != valid || token.Name != name {
			l.t.Errorf("token %s reads %+v", name, token)
		}
	}
	bound, _, err := l.store.ReadToken(l.ctx(), core.TokenHash("bound"))
	l.must(err)
	if bound.ActsAs("other") || !bound.ActsAs("online") || !bound.Allows(core.ScopeAgent) || bound.Allows(core.ScopeOperator) {
		l.t.Errorf("the bound token allows %+v", bound)
	}
	tokens, err := core.NewTokens(l.store, l.clock, strings.NewReader("")).List(l.ctx())
	l.must(err)
	rotated := slices.DeleteFunc(tokens, func(t core.Token) bool { return t.Name != "rotated" })
	if len(rotated) != 2 || rotated[1].Replaces != rotated[0].Hash && rotated[0].Replaces != rotated[1].Hash {
		l.t.Errorf("the rotated tokens read %+v", rotated)
	}
	health, err := l.hub.Health(l.ctx())
	l.must(err)
	for _, s := range health.Sweeps {
		failed := s.Name == core.SweepRoles
		if s.Name == core.SweepPresence && s.LastSuccessAt == 0 || failed && (s.ConsecutiveFailures != 1 || s.LastErrorCode != core.CodeThrottled) {
			l.t.Errorf("the sweep's health reads %+v", s)
		}
	}
	report, err := l.hub.Status(l.ctx(), core.StatusQuery{Scope: core.StatusScopeHub, IncludeMetrics: true})
	l.must(err)
	if report.Queues.Normal == 0 || report.Assigns.Queued == 0 {
		l.t.Errorf("the roll-ups read %+v and %+v", report.Queues, report.Assigns)
	}
}

func (l *ledger) status(id string) core.Status {
	l.t.Helper()
	agent, found, err := l.store.ReadAgent(l.ctx(), id)
	l.must(err)
	if !found {
		l.t.Fatalf("%s is unknown", id)
	}
	return agent.EffectiveStatus(core.InstantOf(l.clock.Now()))
}

func (l *ledger) beat(id string, generation int64) error {
	_, err := l.hub.Heartbeat(l.ctx(), core.HeartbeatRequest{AgentID: id, Fences: core.Fences{Generation: core.Some(generation)}})
	return err
}

func (l *ledger) checkAgents() {
	for id, want := range map[string]core.Status{
		"online": core.StatusOnline, "hung": core.StatusOnline, "twice": core.StatusOnline, "final": core.StatusOffline,
		"offline": core.StatusOffline, "stale": core.StatusStale, "lapsing": core.StatusOnline,
	} {
		if got := l.status(id); got != want {
			l.t.Errorf("%s reads %s, want %s", id, got, want)
		}
	}
	placed, _, err := l.store.ReadAgent(l.ctx(), "placed")
	l.must(err)
	if placed.ProjectID != roleOf(heldRole).ProjectID || placed.HostID != "hst_one" || placed.SessionID != "session" || !strings.Contains(string(placed.Locators), "t.1") {
		l.t.Errorf("the placed agent reads %+v", placed)
	}
	hung, _, err := l.store.ReadAgent(l.ctx(), "hung")
	l.must(err)
	if _, is := hung.Hung(core.InstantOf(l.clock.Now())); !is {
		l.t.Error("the hung agent is not")
	}
	var stale *core.Error
	if err := l.beat("twice", 1); !errors.As(err, &stale) || stale.Data.(core.StalePresence).Current != 2 {
		l.t.Errorf("the stale owner is told %v", err)
	}
	l.must(l.beat("twice", 2))
	l.wantCode(l.beat("final", 1), core.CodeStalePresenceOwner)
	repeated, err := l.hub.Register(l.ctx(), core.RegisterRequest{AgentID: "twice", CLI: "claude", Idempotency: core.Some(onceKey("register"))})
	l.must(err)
	again, err := l.hub.Register(l.ctx(), core.RegisterRequest{AgentID: "final", CLI: "claude"})
	l.must(err)
	if repeated.Generation != 2 || !repeated.Replayed || again.Generation != 2 {
		l.t.Errorf("the registers give %d and %d", repeated.Generation, again.Generation)
	}
	l.must(l.beat("offline", 1))
	l.pass(soon)
	if got := l.status("lapsing"); got != core.StatusStale {
		l.t.Errorf("the lapsed agent reads %s", got)
	}
	for range 2 {
		l.pass(core.OfflineAfter)
		counts, err := l.hub.SweepAgents(l.ctx())
		l.must(err)
		if counts.Stale+counts.Offline == 0 {
			l.t.Error("the sweep met nobody")
		}
	}
	for _, id := range []string{"stale", "lapsing"} {
		if agent, _, err := l.store.ReadAgent(l.ctx(), id); err != nil || agent.Status != core.StatusOffline || agent.Generation != 1 {
			l.t.Errorf("after the sweeps %s is %+v, %v", id, agent, err)
		}
	}
}

// take empties an inbox and returns the ids.
func (l *ledger) take(id string) []string {
	l.t.Helper()
	drained, err := l.hub.Drain(l.ctx(), core.DrainRequest{AgentID: id, Max: core.MaxDrain, AutoAck: true})
	l.must(err)
	ids := []string{}
	for _, m := range drained.Messages {
		if len(m.Payload.JSON) == 0 || m.Payload.Lost {
			l.t.Errorf("message %s of %s has no payload", m.ID, id)
		}
		ids = append(ids, m.ID)
	}
	return ids
}

func (l *ledger) ackCode(name string) core.Code {
	l.t.Helper()
	result, err := l.hub.Ack(l.ctx(), core.AckRequest{AgentID: name, Receipts: []string{l.names[name+" receipt"]}})
	l.must(err)
	return result.Results[0].Code
}

func (l *ledger) checkMessages() {
	again, err := l.hub.Publish(l.ctx(), core.PublishRequest{
		From: "sender", To: "keyed", Topic: "t", Priority: 5, TTLMs: later.Milliseconds(), Idempotency: core.Some(onceKey("publish")),
	})
	l.must(err)
	if again.MessageID != l.names["keyed"] || !again.Replayed {
		l.t.Errorf("the key is answered with %+v", again)
	}
	for name, want := range map[string]core.Code{
		"leased": "", "acked": core.CodeAlreadyAcked, "spent": core.CodeDeadLettered, "given back": core.CodeReceiptStale,
	} {
		if got := l.ackCode(name); got != want {
			l.t.Errorf("acknowledging %s is told %q, want %q", name, got, want)
		}
	}
	l.pass(time.Second)
	for _, name := range []string{"pending", "large", "keyed", "given back", "redriven"} {
		if got := l.take(name); !slices.Equal(got, []string{l.names[name]}) {
			l.t.Errorf("%s gets %v", name, got)
		}
	}
	for _, name := range []string{"leased", "acked", "taken", "spent", "expired", "nobody"} {
		if got := l.take(name); len(got) > 0 {
			l.t.Errorf("%s gets %v", name, got)
		}
	}
	if got := l.take("online"); !slices.Contains(got, l.names["followed"]) {
		l.t.Errorf("the follower gets %v", got)
	}
	answer, found, err := l.store.ReadAnswer(l.ctx(), "question", core.InstantOf(l.clock.Now()))
	if err != nil || !found || string(answer.Payload.JSON) != `"42"` {
		l.t.Errorf("the answer reads %+v, %v", answer, err)
	}
}

func (l *ledger) letters() map[string]core.DeadLetterView {
	l.t.Helper()
	list, err := l.hub.DeadLetters(l.ctx(), core.DeadLetterQuery{Limit: 100})
	l.must(err)
	byRecipient := map[string]core.DeadLetterView{}
	for _, letter := range list.Letters {
		byRecipient[letter.Inbox] = letter
	}
	return byRecipient
}

func (l *ledger) redrive(id string) core.Code {
	l.t.Helper()
	done, err := l.hub.Redrive(l.ctx(), core.RedriveRequest{IDs: []string{id}})
	l.must(err)
	return done.Results[0].Code
}

func (l *ledger) checkSweptMessages() {
	letters := l.letters()
	for name, reason := range map[string]core.DeadLetterReason{"expired": core.DeadExpired, "spent": core.DeadMaxDeliveries, "redriven": core.DeadExpired} {
		if letters[name].Reason != reason || letters[name].Delivery.ID != l.names[name] {
			l.t.Errorf("the dead letter of %s reads %+v", name, letters[name])
		}
	}
	if letters["redriven"].RedrivenAt == 0 {
		l.t.Error("nobody knows that it was redriven")
	}
	l.pass(2 * time.Minute)
	if got := l.take("expiring"); len(got) > 0 {
		l.t.Errorf("an expired message is handed out: %v", got)
	}
	for range 2 { // twice, and nothing is told twice
		_, err := l.hub.SweepMessages(l.ctx())
		l.must(err)
	}
	if got := l.letters()["expiring"]; got.Reason != core.DeadExpired {
		l.t.Errorf("the swept message is %+v", got)
	}
	drained, err := l.hub.Drain(l.ctx(), core.DrainRequest{AgentID: "sender", Max: core.MaxDrain, AutoAck: true})
	l.must(err)
	told := map[string]int{}
	for _, m := range drained.Messages {
		for _, name := range []string{"expired", "expiring"} {
			if strings.Contains(string(m.Payload.JSON), l.names[name]) {
				told[name]++
			}
		}
	}
	if told["expired"] != 1 || told["expiring"] != 1 {
		l.t.Errorf("the sender was told %v", told)
	}
	for _, id := range []string{"cut-1", "cut-2"} {
		if got := l.take(id); len(got) != 1 {
			l.t.Errorf("%s of the fan-out that was cut short gets %v", id, got)
		}
	}
	if code := l.redrive(letters["expired"].ID); code != "" {
		l.t.Errorf("the redrive is told %q", code)
	}
	if code := l.redrive(letters["redriven"].ID); code != core.CodeAlreadyRedriven {
		l.t.Errorf("the second redrive is told %q", code)
	}
	if got := l.take("expired"); !slices.Equal(got, []string{l.names["expired"]}) {
		l.t.Errorf("the redriven message is handed out as %v", got)
	}
	l.pass(2 * time.Minute)
	// Its lease lapsed: it is handed out again, and the old receipt is stale.
	drained, err = l.hub.Drain(l.ctx(), core.DrainRequest{AgentID: "leased", Max: 1, VisibilityMs: core.Some(int64(1000))})
	l.must(err)
	if len(drained.Messages) != 1 || drained.Messages[0].Deliveries != 2 || l.ackCode("leased") != core.CodeReceiptStale {
		l.t.Errorf("the lapsed message is handed out as %+v", drained.Messages)
	}
}

func (l *ledger) stands(role int) core.Role {
	l.t.Helper()
	r, err := l.store.ReadRole(l.ctx(), roleOf(role).Wire())
	l.must(err)
	return r
}

func (l *ledger) holds(role int, id string) bool {
	l.t.Helper()
	r := l.stands(role)
	verdict, err := l.hub.CheckRoleFence(l.ctx(), core.FenceQuery{Wire: r.Wire, AgentID: id, Epoch: r.Epoch})
	if core.CodeOf(err) == core.CodeRoleNotFound {
		return false // its scope was closed
	}
	l.must(err)
	return verdict.Valid
}

func (l *ledger) setValue(epoch, expected int64) error {
	_, err := l.hub.SetRoleValue(l.ctx(), core.RoleValueRequest{
		Wire: roleOf(heldRole).Wire(), AgentID: "holder", Epoch: epoch, Value: json.RawMessage(`2`), Expected: expected,
	})
	return err
}

func (l *ledger) checkRoles() {
	for role, want := range map[int]core.RoleState{
		heldRole: core.RoleActive, probingRole: core.RoleProbing, releasedRole: core.RoleElectable, handedRole: core.RoleActive,
		unreachableRole: core.RoleUnreachable, quarantinedRole: core.RoleQuarantined,
	} {
		if r := l.stands(role); r.State != want {
			l.t.Errorf("role %d reads %+v", role, r)
		}
	}
	held := l.stands(heldRole)
	if !l.holds(heldRole, "holder") || !l.holds(handedRole, "leaving") || l.holds(closedRole, "closing") || l.holds(releasedRole, "former") {
		l.t.Error("an authority does not stand as it was written")
	}
	if !l.stands(closedRole).Closed || l.stands(closedRole).Epoch == 0 {
		l.t.Error("the closed scope's role is no tombstone")
	}
	value, err := l.hub.ReadRoleValue(l.ctx(), held.Wire)
	l.must(err)
	if value.Version != 1 || string(value.Value) != `{"plan":1}` {
		l.t.Errorf("the role's value reads %+v", value)
	}
	l.wantCode(l.setValue(held.Epoch-1, 1), core.CodeStaleEpoch)
	l.wantCode(l.setValue(held.Epoch, 7), core.CodeStaleStateVersion)
	l.must(l.setValue(held.Epoch, 1))
	if got := l.take("holder"); !slices.Contains(got, l.names["for the role"]) {
		l.t.Errorf("the holder gets %v", got)
	}
	if _, err := l.acknowledge(probingRole, "probed"); err != nil {
		l.t.Errorf("the reserved agent cannot acknowledge: %v", err)
	}
	if receipt, err := l.hub.EnsureRole(l.ctx(), core.EnsureRequest{Wire: roleOf(closedRole).Wire(), Trigger: "manual", CauseID: "c"}); err != nil ||
		receipt.Disposition != core.DispositionScopeClosed {
		l.t.Errorf("the closed role is ensured: %+v, %v", receipt, err)
	}
	before := l.stands(releasedRole).Epoch
	l.hold(releasedRole, "fresh", later)
	if after := l.stands(releasedRole); after.Epoch <= before || !l.holds(releasedRole, "fresh") {
		l.t.Errorf("the released role goes on with %+v", after)
	}
	l.pass(6 * time.Minute)
	if l.holds(handedRole, "leaving") {
		l.t.Error("the authority outlasts its grace")
	}
	_, err = l.hub.SweepRoles(l.ctx())
	l.must(err)
	if r := l.stands(handedRole); r.Holder != "coming" && r.State != core.RoleProbing {
		l.t.Errorf("the successor does not follow: %+v", r)
	}
	report, err := l.hub.Status(l.ctx(), core.StatusQuery{Scope: core.StatusScopeHub})
	l.must(err)
	if got := report.Roles[core.LegacyWire].Leader; got != "legacy" {
		l.t.Errorf("the legacy leader reads %q", got)
	}
}

func (l *ledger) human(name string) core.HumanView {
	l.t.Helper()
	view, err := l.hub.HumanRequest(l.ctx(), core.HumanRead{RequestID: l.names["human "+name]})
	l.must(err)
	return view
}

func (l *ledger) checkHumans() {
	for name, want := range map[string]core.HumanState{
		"pending": core.HumanPending, "overdue": core.HumanPending, "accepted": core.HumanAccepted, "declined": core.HumanDeclined,
		"cancelled": core.HumanCancelled, "credential": core.HumanAccepted, "late": core.HumanTimedOut,
	} {
		if view := l.human(name); view.State != want {
			l.t.Errorf("%s reads %+v", name, view)
		}
	}
	if view := l.human("late"); len(view.Late) != 1 || view.Late[0].SubmittedBy != "ann" {
		l.t.Errorf("the late answer reads %+v", view.Late)
	}
	if view := l.human("accepted"); string(view.Response) != `{"go":true}` {
		l.t.Errorf("the answer reads %s", view.Response)
	}
	opened, err := l.hub.HumanRequest(l.ctx(), core.HumanRead{
		RequestID: l.names["human credential"], Fences: core.Fences{Generation: core.Some(int64(1))},
	})
	l.must(err)
	if !opened.Opened || string(opened.Response) != `{"password":"p"}` {
		l.t.Errorf("the credential reads %+v", opened)
	}
	l.wantCode(l.submit("declined", core.ActionAccept, `{}`), core.CodeAlreadyHandled)
	l.must(l.submit("pending", core.ActionAccept, `{}`))
	l.take("asking")
	l.pass(soon)
	if view := l.human("overdue"); view.State != core.HumanTimedOut {
		l.t.Errorf("the overdue question reads %s", view.State)
	}
	_, err = l.hub.SweepHumanRequests(l.ctx())
	l.must(err)
	if got := l.take("asking"); len(got) != 1 {
		l.t.Errorf("of the overdue question its requester is told %v", got)
	}
}

func (l *ledger) jobNow(name string) core.Job {
	l.t.Helper()
	job, err := l.hub.Job(l.ctx(), l.names["job "+name], core.Fences{})
	l.must(err)
	return job
}

// relayed counts what leaves the hub.
type relayed struct{ events atomic.Int64 }

func (r *relayed) Publish(_ context.Context, events []core.JobEvent) (int, error) {
	r.events.Add(int64(len(events)))
	return len(events), nil
}

func (l *ledger) checkJobs() {
	for name, want := range map[string]core.JobStatus{
		"queued": core.JobQueued, "large": core.JobQueued, "dispatched": core.JobQueued, "running": core.JobRunning, "succeeded": core.JobSucceeded,
		"failed": core.JobFailed, "waiting": core.JobQueued, "cancelled": core.JobFailed, "timed out": core.JobTimedOut, "overdue": core.JobQueued,
	} {
		if job := l.jobNow(name); job.Status != want || string(job.Task()) != `"dig"` {
			l.t.Errorf("%s reads %+v", name, job)
		}
	}
	if job := l.jobNow("large"); len(job.Payload()) != 10_002 {
		l.t.Errorf("the large payload has %d bytes", len(job.Payload()))
	}
	if job := l.jobNow("succeeded"); string(job.Result()) != `{"depth":2}` {
		l.t.Errorf("the result reads %s", job.Result())
	}
	events := 0
	for name := range l.names {
		if id, isJob := strings.CutPrefix(name, "job "); isJob {
			page, err := l.hub.Events(l.ctx(), core.EventQuery{JobID: l.names["job "+id]})
			l.must(err)
			events += len(page.Jobs)
		}
	}
	relay := &relayed{}
	hub := core.New(core.Config{Jobs: l.store, Identity: l.store, Relay: relay, Clock: l.clock, IDs: core.NewIDs(l.clock, strings.NewReader(""))})
	_, err := hub.RelayEvents(l.ctx())
	l.must(err)
	if relay.events.Load() != int64(events) || events < 10 {
		l.t.Errorf("%d of %d events are relayed", relay.events.Load(), events)
	}
	l.must(l.report("succeeded", "succeeded")) // it repeats what it reported
	l.wantCode(l.report("waiting", "succeeded"), core.CodeAssignAttemptMismatch)
	l.wantCode(l.report("cancelled", "succeeded"), core.CodeAssignAlreadyFinal)
	l.must(l.report("running", "succeeded"))
	_, err = l.hub.RetryJob(l.ctx(), core.JobRetryRequest{JobID: l.names["job timed out"]})
	l.must(err)
	if got := l.take("hand queued"); !slices.Equal(got, []string{l.jobNow("queued").LastMessageID}) {
		l.t.Errorf("the worker gets %v", got)
	}
	l.pass(soon)
	if job := l.jobNow("overdue"); job.Attempt != 2 || job.Status != core.JobQueued {
		l.t.Errorf("the overdue job reads %+v", job)
	}
	if job := l.jobNow("waiting"); job.Attempt != 2 || job.LastMessageID == "" {
		l.t.Errorf("the waiting job reads %+v", job)
	}
	_, err = l.hub.SweepJobs(l.ctx())
	l.must(err)
	list, err := l.hub.Jobs(l.ctx(), core.JobQuery{Supervisor: "boss", Limit: 100})
	l.must(err)
	if len(list.Jobs) != 10 {
		l.t.Errorf("the list has %d jobs", len(list.Jobs))
	}
}

func (l *ledger) checkLearnt() {
	found, err := l.hub.Lookup(l.ctx(), core.LookupRequest{Message: core.Some("build: exit status 1"), Context: json.RawMessage(`{"lang":"go"}`)})
	l.must(err)
	if len(found.Entries) != 1 || found.Entries[0].Hits < 1 || found.Entries[0].Code != "go build" {
		l.t.Errorf("the lookup finds %+v", found)
	}
	before := found.Entries[0].Hits
	hit, err := l.hub.Hit(l.ctx(), core.HitRequest{ID: l.names["fix build"], Success: true})
	l.must(err)
	if hit.Entry.Hits != before+1 {
		l.t.Errorf("a hit makes %d of %d", hit.Entry.Hits, before)
	}
	pipeline, err := l.hub.Pipeline(l.ctx(), "team")
	l.must(err)
	if pipeline.Phase != core.PhasePRD || pipeline.Version != 2 || len(pipeline.History) == 0 {
		l.t.Errorf("the pipeline reads %+v", pipeline)
	}
	_, err = l.hub.AdvancePipeline(l.ctx(), core.AdvanceRequest{Team: "team", Phase: core.PhaseConfidence, Version: core.Some(int64(1))})
	l.wantCode(err, core.CodePipelineVersionStale)
	_, err = l.hub.AdvancePipeline(l.ctx(), core.AdvanceRequest{Team: "team", Phase: core.PhaseConfidence, Version: core.Some(int64(2))})
	l.must(err)
	l.pass(30 * 24 * time.Hour)
	counts, err := l.hub.SweepReflexion(l.ctx())
	l.must(err)
	if counts.Decayed+counts.Pruned == 0 {
		l.t.Errorf("the sweep does %+v", counts)
	}
}

// unheard is an attribute that no release knows.
const unheard = "from_the_future"

// rewritten are the kinds of items that a change writes anew: what a later
// release adds to them does not outlive a change by this one (docs/design.md,
// Stored formats).
var rewritten = []string{"hub/identity", "human", "job", "pipeline", "role/candidate", "role/legacy", "role/role", "role/value", "rollup"}

// TestWhatALaterReleaseAddsIsKept marks every item as a later release might, lets
// today's code change as many as it can, and tells which kinds lose the mark.
func TestWhatALaterReleaseAddsIsKept(t *testing.T) {
	corpora := readCorpora(t)
	lost, changed := map[string]bool{}, map[string]bool{}
	for _, c := range corpora {
		for _, act := range []func(*ledger){
			(*ledger).checkHub, (*ledger).checkAgents, (*ledger).checkMessages, (*ledger).checkSweptMessages, (*ledger).checkRoles, (*ledger).checkHumans,
			(*ledger).checkJobs, (*ledger).checkLearnt, (*ledger).rotateAndCount,
		} {
			l := c.restore(t)
			before := map[string]map[string]types.AttributeValue{}
			for _, it := range l.allItems(t) {
				it[unheard] = &types.AttributeValueMemberS{Value: "kept"}
				_, err := l.client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(l.table), Item: it})
				l.must(err)
				before[itemName(it)] = it
			}
			act(l)
			for _, it := range l.allItems(t) {
				was, there := before[itemName(it)]
				if !there {
					continue // it is new, and ours
				}
				if it[unheard] == nil {
					lost[kindOf(it)] = true
				} else if !sameItem(t, was, it) {
					changed[kindOf(it)] = true
				}
			}
		}
	}
	for kind := range lost {
		if !slices.Contains(rewritten, kind) {
			t.Errorf("a change of %s drops what it does not know", kind)
		}
	}
	for _, kind := range rewritten {
		if !lost[kind] {
			t.Errorf("%s is said to be rewritten, and was not", kind)
		}
	}
	for _, kind := range []string{"agent", "inbox/m", "fanout/record", "reflexion", "sweep", "events"} {
		if !changed[kind] {
			t.Errorf("nothing changed %s, so nothing is known of it", kind)
		}
	}
}

func (l *ledger) rotateAndCount() {
	_, err := l.hub.RotateIdentity(l.ctx(), "again")
	l.must(err)
	for _, sweep := range []string{core.SweepPresence, core.SweepMessages, core.SweepAssignments, core.SweepRoles} {
		_, err := l.hub.RunSweep(l.ctx(), sweep)
		l.must(err)
	}
	l.register(core.RegisterRequest{AgentID: "chief", TimeoutSec: seconds(later), Capabilities: []string{"role:cto"}, Metadata: json.RawMessage(`{"role":"cto"}`)})
	_, err = l.hub.ReachCandidate(l.ctx(), roleOf(heldRole).Wire(), "holder", core.Reachability{ProbeSucceeded: true, At: core.InstantOf(l.clock.Now())})
	l.must(err)
	_, err = l.hub.TakeoverRole(l.ctx(), core.TakeoverRequest{Role: core.LegacyWire, AgentID: "chief"})
	l.must(err)
}

func sameItem(t *testing.T, a, b map[string]types.AttributeValue) bool {
	t.Helper()
	first, err := json.Marshal(encodeItem(t, a))
	if err != nil {
		t.Fatal(err)
	}
	second, err := json.Marshal(encodeItem(t, b))
	if err != nil {
		t.Fatal(err)
	}
	return string(first) == string(second)
}
