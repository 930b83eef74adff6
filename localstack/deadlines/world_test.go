package deadlines

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"drawbridge/core"
	"drawbridge/core/coretest"
	"drawbridge/ddb"
	"drawbridge/functions"
	"drawbridge/localstack/fakeaws"
	"drawbridge/localstack/template"
	"drawbridge/s3queue"
)

// A world is a hub over the embedded AWS, whose clock the test moves.
type world struct {
	t     *testing.T
	clock *coretest.Clock
	store *ddb.Store
	queue *s3queue.Queue
	hub   *core.Hub
	// random makes the ids of the hub.
	random core.IDs
	app    *functions.App // nil until a request is sent
	// ids are what a deadline needs to find again.
	ids map[string]string
}

// declared is the template, read once.
var declared = sync.OnceValues(func() (*template.Template, error) {
	return template.Load("../../template.yaml", template.Local())
})

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, clock: coretest.NewClock(), ids: map[string]string{}}
	server, err := fakeaws.Open(fakeaws.Options{})
	w.must(err)
	t.Cleanup(func() { _ = server.Close() })
	stack, err := declared()
	w.must(err)
	cfg := server.Config()
	client := dynamodb.NewFromConfig(cfg)
	_, err = client.CreateTable(t.Context(), stack.Tables[0].CreateInput())
	w.must(err)
	bucket := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	_, err = bucket.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("jobs")})
	w.must(err)
	w.store = ddb.Open(client, ddb.Table{Name: stack.Tables[0].Name, Region: cfg.Region, Account: "000000000000"})
	w.random = core.NewIDs(w.clock, rand.Reader)
	w.queue = s3queue.New(s3queue.Config{S3: bucket, Bucket: "jobs", Settings: core.DefaultArchiveSettings(), Clock: w.clock, IDs: w.random})
	w.hub = core.New(core.Config{
		Presence: w.store, Identity: w.store, Sweeps: w.store, Messages: w.store, Roles: w.store, Humans: w.store, Jobs: w.store,
		Reflexion: w.store, Pipelines: w.store, Archive: w.queue, Schemas: functions.Schemas{}, Clock: w.clock, IDs: w.random,
	})
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) ctx() context.Context { return w.t.Context() }

func (w *world) now() core.Instant { return core.InstantOf(w.clock.Now()) }

// until sets the clock.
func (w *world) until(at core.Instant) { w.clock.Advance(at.Sub(w.now())) }

// after is the instant that comes so much later.
func (w *world) after(d time.Duration) core.Instant { return w.now().Add(d) }

// outcome is what a call ends with.
func outcome(err error) string {
	if err == nil {
		return "done"
	}
	return string(core.CodeOf(err))
}

// words are what a sight tells when it tells of several things.
func words(of ...any) string { return strings.TrimSuffix(fmt.Sprintln(of...), "\n") }

// The operations below are what the deadlines are met by.

const lease = 10 * time.Minute

func (w *world) register(id string, r core.RegisterRequest) {
	w.t.Helper()
	r.AgentID, r.CLI = id, "claude"
	if !r.TimeoutSec.Set {
		r.TimeoutSec = core.Some((lease - core.RegisterGrace).Seconds())
	}
	_, err := w.hub.Register(w.ctx(), r)
	w.must(err)
}

// agent registers one whose lease outlasts every deadline.
func (w *world) agent(id string, capabilities ...string) {
	w.t.Helper()
	w.register(id, core.RegisterRequest{TimeoutSec: core.Some(1e6), Capabilities: capabilities})
}

func (w *world) status(id string) string {
	w.t.Helper()
	report, err := w.hub.Status(w.ctx(), core.StatusQuery{Scope: core.StatusScopeAgent, AgentID: id})
	w.must(err)
	return string(report.Agent.Status)
}

// listed tells how the list of agents shows one.
func (w *world) listed(id string) core.AgentView {
	w.t.Helper()
	page, err := w.hub.Agents(w.ctx(), core.AgentQuery{Limit: 100})
	w.must(err)
	for _, a := range page.Agents {
		if a.ID == id {
			return a
		}
	}
	w.t.Fatalf("%s is not listed", id)
	return core.AgentView{}
}

func (w *world) publish(r core.PublishRequest) (core.Published, error) {
	r.From, r.Topic, r.Priority = "sender", "t", 5
	if r.TTLMs == 0 {
		r.TTLMs = (7 * 24 * time.Hour).Milliseconds()
	}
	return w.hub.Publish(w.ctx(), r)
}

func (w *world) drain(r core.DrainRequest) []core.Delivery {
	w.t.Helper()
	r.Max = core.MaxDrain
	drained, err := w.hub.Drain(w.ctx(), r)
	w.must(err)
	return drained.Messages
}

// took tells how many messages an agent takes.
func (w *world) took(id string) string {
	w.t.Helper()
	return fmt.Sprint(len(w.drain(core.DrainRequest{AgentID: id, AutoAck: true})))
}

// told lists a member of what an agent was told, in order.
func (w *world) told(id, member string) string {
	w.t.Helper()
	var words []string
	for _, m := range w.drain(core.DrainRequest{AgentID: id, AutoAck: true}) {
		var payload map[string]any
		w.must(json.Unmarshal(m.Payload.JSON, &payload))
		words = append(words, fmt.Sprint(payload[member]))
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func settled(result core.AckResult, err error) string {
	if err == nil && result.Results[0].Code != "" {
		return string(result.Results[0].Code)
	}
	return outcome(err)
}

// roleKey is the role of the deadlines, wire its name.
var (
	roleKey = core.RoleKey{ProjectID: "prj_AbCdEfGhIjKlMnOpQrStUv", Kind: core.RoleCTO}
	wire    = roleKey.Wire()
)

const mayLead = "role:cto:candidate"

func (w *world) candidate(id string, priority int64) {
	w.t.Helper()
	_, err := w.hub.AddCandidate(w.ctx(), core.CandidateRequest{Wire: wire, AgentID: id, Priority: core.Some(priority)})
	w.must(err)
}

func (w *world) ensure() core.EnsureReceipt {
	w.t.Helper()
	receipt, err := w.hub.EnsureRole(w.ctx(), core.EnsureRequest{Wire: wire, Trigger: "manual", CauseID: "c"})
	w.must(err)
	return receipt
}

func (w *world) role() core.Role {
	w.t.Helper()
	r, err := w.store.ReadRole(w.ctx(), wire)
	w.must(err)
	return r
}

// effective is the role as the list shows it.
func (w *world) effective() core.RoleView {
	w.t.Helper()
	list, err := w.hub.RoleStatus(w.ctx(), core.RoleQuery{Wire: core.Some(wire)})
	w.must(err)
	return list.Roles[0]
}

func (w *world) acknowledge(id string) error {
	r := w.role()
	_, err := w.hub.AcknowledgeRole(w.ctx(), core.AckRoleRequest{
		AgentID: id, Wire: wire, HolderAgentID: id, Epoch: r.Epoch, ActivationSeq: r.ActivationSeq, ActivationID: r.ActivationID,
		CharterWire: wire, CharterEpoch: r.Epoch, CharterVersion: r.CharterVersion,
	})
	return err
}

// holds tells whether an agent's authority stands under the epoch that it was
// granted.
func (w *world) holds(id string, epoch int64) string {
	w.t.Helper()
	verdict, err := w.hub.CheckRoleFence(w.ctx(), core.FenceQuery{Wire: wire, AgentID: id, Epoch: epoch})
	w.must(err)
	return fmt.Sprint(verdict.Valid)
}

func (w *world) human() core.HumanView {
	w.t.Helper()
	view, err := w.hub.HumanRequest(w.ctx(), core.HumanRead{RequestID: w.ids["question"]})
	w.must(err)
	return view
}

func (w *world) job() core.Job {
	w.t.Helper()
	job, err := w.hub.Job(w.ctx(), w.ids["job"], core.Fences{})
	w.must(err)
	return job
}

func (w *world) report(attempt int64, status string) string {
	_, err := w.hub.ReportJob(w.ctx(), core.JobReport{JobID: w.ids["job"], Attempt: core.Some(attempt), Status: status})
	return outcome(err)
}

// listedJob tells how the list of the supervisor's jobs shows it.
func (w *world) listedJob() core.Job {
	w.t.Helper()
	list, err := w.hub.Jobs(w.ctx(), core.JobQuery{Supervisor: "lead"})
	w.must(err)
	return list.Jobs[0]
}

func (w *world) jobEvents() string {
	w.t.Helper()
	page, err := w.hub.Events(w.ctx(), core.EventQuery{JobID: w.ids["job"]})
	w.must(err)
	var words []string
	for _, e := range page.Jobs {
		words = append(words, string(e.Job.Status))
	}
	return strings.Join(words, " ")
}

// archiveRequest is the job of the archive queue.
var archiveRequest = core.ArchiveRequest{Event: "stop", ArchiveObservation: core.ArchiveObservation{
	Agent: "claude", SourcePath: "/t.jsonl", SourceBytes: 1, SourceModifiedAt: 1,
}}

// claim leases the archive job and tells its attempt, 0 when it cannot be had.
func (w *world) claim() int64 {
	w.t.Helper()
	claimed, err := w.queue.Claim(w.ctx(), core.ArchiveClaim{Owner: "worker", Max: 1})
	w.must(err)
	if len(claimed.Jobs) == 0 {
		return 0
	}
	w.ids["lease"] = claimed.Jobs[0].Lease.ID
	return claimed.Jobs[0].Attempts
}

func (w *world) archived() core.ArchiveJob {
	w.t.Helper()
	job, err := w.queue.Get(w.ctx(), archiveRequest.JobID())
	w.must(err)
	return job
}

func (w *world) claimable() string {
	w.t.Helper()
	claimable, err := w.queue.HasClaimable(w.ctx())
	w.must(err)
	return fmt.Sprint(claimable)
}

// get sends a request with a token through the handlers and tells the status.
func (w *world) get(function, path, token string) string {
	w.t.Helper()
	if w.app == nil {
		var err error
		w.app, err = functions.New(functions.Config{
			Hub: w.hub, Tokens: w.store, Clock: w.clock, IDs: w.random, Log: slog.New(slog.DiscardHandler), Version: "test",
		})
		w.must(err)
	}
	handler, found := w.app.HTTP(function)
	if !found {
		w.t.Fatalf("there is no function %s", function)
	}
	request := events.APIGatewayV2HTTPRequest{Version: "2.0", RawPath: path, Headers: map[string]string{"authorization": "Bearer " + token}}
	request.RequestContext.HTTP.Method, request.RequestContext.HTTP.Path = "GET", path
	response, err := handler(w.ctx(), request)
	w.must(err)
	return fmt.Sprint(response.StatusCode)
}
