package simulation

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"

	"drawbridge/core"
	"drawbridge/ddb"
	"drawbridge/functions"
	"drawbridge/localstack/fakeaws"
	"drawbridge/localstack/template"
	"drawbridge/s3queue"
)

const bucketName = "drawbridge"

// A world is one run: the embedded AWS, the hub's instances and who uses them.
type world struct {
	t         testing.TB
	plan      plan
	aws       *fakeaws.Server
	table     string
	routes    []template.Route
	tables    *dynamodb.Client // the world's own
	objects   *s3.Client
	network   *network
	scheduler *scheduler
	chance    *chance
	trace     *trace
	monitor   *monitor
	ledger    *ledger
	instances []*instance
	started   int            // instances and calls, for their names
	calls     []*call        // under way
	wrong     []string       // what the monitor and the audit found
	closing   bool           // the faults are over: everybody comes to an end
	running   int            // actors
	costs     map[string]int // calls whose costs were held against their bounds, by endpoint
}

// sources of chance: one for each purpose, so that a new use of one does not
// change what the others draw.
func (p plan) random(purpose string) *rand.Rand {
	var seed [32]byte
	copy(seed[:], fmt.Sprintf("%d %s", p.seed, purpose))
	return rand.New(rand.NewChaCha8(seed))
}

// openWorld makes the embedded AWS with what the template declares, and nobody
// in it.
func openWorld(t testing.TB, p plan) *world {
	t.Helper()
	w := &world{t: t, plan: p, scheduler: &scheduler{
		random: p.random("scheduler"), clock: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
	}, chance: &chance{random: p.random("faults"), faults: p.faults}, costs: map[string]int{}}
	w.trace = newTrace(func() string {
		return fmt.Sprintf("%06d %9.3f", w.scheduler.steps, w.now().Sub(start).Seconds())
	})
	var err error
	w.aws, err = fakeaws.Open(fakeaws.Options{Clock: w.now})
	w.must(err)
	declared, err := template.Load("../../template.yaml", template.Local())
	w.must(err)
	w.table, w.routes = declared.Tables[0].Name, declared.Routes()
	w.tables = dynamodb.NewFromConfig(w.aws.Config())
	w.objects = bucketClient(w.aws.Config())
	_, err = w.tables.CreateTable(context.Background(), declared.Tables[0].CreateInput())
	w.must(err)
	_, err = w.objects.CreateBucket(context.Background(), &s3.CreateBucketInput{Bucket: aws.String(bucketName)})
	w.must(err)
	w.network = &network{w: w, inner: w.aws.Transport()}
	w.monitor, w.ledger = newMonitor(w), newLedger()
	if p.lag > 0 {
		for _, index := range []string{"due", "list", "jobs_by_supervisor", "jobs_by_worker", "jobs_by_trace", "jobs_by_correlation"} {
			w.aws.Faults().LagIndex(w.table, index, p.lag)
		}
	}
	store := ddb.Open(w.tables, ddb.Table{Name: w.table, Region: "us-east-1", Account: "000000000000"})
	for token, scope := range map[string]core.Scope{agentToken: core.ScopeAgent, operatorToken: core.ScopeOperator} {
		_, err := store.CreateToken(context.Background(), core.Token{Hash: core.TokenHash(token), Scopes: []core.Scope{scope}})
		w.must(err)
	}
	return w
}

const (
	agentToken    = "an-agent's-token"
	operatorToken = "an-operator's-token"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func bucketClient(cfg aws.Config) *s3.Client {
	return s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) now() time.Time { return w.scheduler.now() }

func (w *world) instant() core.Instant { return core.InstantOf(w.now()) }

// violatef notes that something is not as it must be.
func (w *world) violatef(format string, args ...any) {
	found := fmt.Sprintf(format, args...)
	w.trace.addf("VIOLATION %s", found)
	if len(w.wrong) < 20 {
		w.wrong = append(w.wrong, found)
	}
}

// An instance is one process of the hub: it shares the table and the bucket with
// the others, and nothing else.
type instance struct {
	w    *world
	name string
	skew time.Duration
	app  *functions.App
	busy int
	dead bool
}

// Now is the instance's clock.
func (i *instance) Now() time.Time { return i.w.now().Add(i.skew) }

// maxSkew is how far an instance's clock is from the right time, at most: any
// two agree within a second (docs/guarantees.md).
const maxSkew = 500 * time.Millisecond

func (w *world) newInstance() *instance {
	w.started++
	i := &instance{w: w, name: fmt.Sprintf("i%03d", w.started)}
	random := w.plan.random(i.name)
	if w.plan.lambda {
		i.skew = time.Duration(random.Int64N(int64(2*maxSkew)+1)) - maxSkew
	}
	var seed [32]byte
	copy(seed[:], fmt.Sprintf("%d ids of %s", w.plan.seed, i.name))
	i.app = i.open(drawnIDs{w, core.NewIDs(i, rand.NewChaCha8(seed))}, random)
	w.instances = append(w.instances, i)
	return i
}

// open wires the functions as functions.Open does, with the clock, ids and
// chance of the run.
func (i *instance) open(ids core.IDs, random *rand.Rand) *functions.App {
	cfg := i.w.aws.Config()
	cfg.HTTPClient = i.w.network
	cfg.APIOptions = append(cfg.APIOptions, functions.CountSpend, i.w.plan.tampering)
	cfg.Retryer = func() aws.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts = 4 // as functions.ForLambda
			o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return time.Millisecond, nil })
		})
	}
	store := ddb.Open(dynamodb.NewFromConfig(cfg), ddb.Table{Name: i.w.table, Region: cfg.Region, Account: "000000000000"})
	i.w.must(store.KeepMessages(ddb.Messages{Payloads: ddb.PayloadBucket{Client: bucketClient(cfg), Name: bucketName}}))
	hub := core.New(core.Config{
		Presence: store, Identity: store, Sweeps: store, Messages: store, Roles: store, Reflexion: store, Pipelines: store,
		Humans: store, Jobs: store, Schemas: functions.Schemas{}, Clock: i, IDs: ids,
		Archive: s3queue.New(s3queue.Config{
			S3: bucketClient(cfg), Bucket: bucketName, Settings: core.DefaultArchiveSettings(), Clock: i, IDs: ids,
			Sleep: i.sleep, Random: func() float64 { i.w.scheduler.draw(); return random.Float64() },
		}),
	})
	app, err := functions.New(functions.Config{
		Hub: hub, Tokens: store, Clock: i, IDs: ids, Log: slog.New(slog.DiscardHandler), Version: functions.Version,
	})
	i.w.must(err)
	return app
}

// drawnIDs are ids in an order that does not depend on the runtime.
type drawnIDs struct {
	w   *world
	ids core.IDs
}

func (d drawnIDs) New() string {
	d.w.scheduler.draw()
	return d.ids.New()
}

// sleep is a wait inside of a call.
func (i *instance) sleep(ctx context.Context, d time.Duration) error {
	c := callOf(ctx)
	return i.w.scheduler.wait(ctx, &waiter{owner: c.name, what: "sleep", from: i.w.now().Add(d)})
}

// tampering lets a plan change what is sent: a fault in the product, to see that
// the audit finds it.
func (p plan) tampering(stack *middleware.Stack) error {
	if p.tamper == nil {
		return nil
	}
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("Tamper",
		func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			p.tamper(in.Parameters)
			return next.HandleInitialize(ctx, in)
		}), middleware.After)
}

// take returns an instance for a call: on Lambda one that is idle, and
// sometimes a new one; else the one process there is.
func (w *world) take(random *rand.Rand) *instance {
	free := slices.Clone(w.instances)
	free = slices.DeleteFunc(free, func(i *instance) bool { return i.dead || w.plan.lambda && i.busy > 0 })
	if len(free) == 0 || w.plan.lambda && len(free) < 6 && random.IntN(40) == 0 {
		return w.newInstance()
	}
	return free[random.IntN(len(free))]
}

// crash ends an instance where it stands: none of its calls asks AWS for
// anything any more, and no client gets an answer.
func (w *world) crash(i *instance) {
	w.trace.addf("%s dies", i.name)
	i.dead = true
	for _, c := range slices.Clone(w.calls) {
		if c.instance == i {
			c.dead, c.troubled = true, true
			close(c.died)
			c.cancel()
			w.scheduler.quiet()
		}
	}
}
