package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"drawbridge/ddb"
	"drawbridge/functions"
	"drawbridge/localstack/fakeaws"
	"drawbridge/localstack/gateway"
	"drawbridge/localstack/provision"
	"drawbridge/localstack/template"
)

// stopGrace is how long a stopping hub waits for requests and sweeps in flight.
const stopGrace = 10 * time.Second

// A hub is everything that runs.
type hub struct {
	options   options
	template  *template.Template
	token     bootstrapToken
	log       *slog.Logger
	cfg       aws.Config
	embedded  *fakeaws.Server // nil when AWS_ENDPOINT_URL names another
	api       net.Listener
	aws       net.Listener // nil without the embedded AWS
	scheduler *scheduler
	collector *collector
	jobs      []*job
	gateway   *gateway.Gateway
	made      []string // tables and buckets that this start made
}

// serve is the command that starts a hub and runs it until the context ends.
func serve(ctx context.Context, args []string, t terminal) error {
	started := time.Now()
	o, err := parseOptions(args, t)
	if err != nil {
		return err
	}
	h := &hub{options: o, log: functions.NewLog(t.err, o.level.String())}
	defer h.close()
	if err := h.open(ctx, t); err != nil {
		if ctx.Err() != nil {
			return nil // stopped while it started
		}
		return err
	}
	h.greet(t.out, time.Since(started))
	return h.run(ctx, t)
}

// open makes everything ready to serve, in the order in which mistakes are
// cheapest to find: the template, the ports, the state.
func (h *hub) open(ctx context.Context, t terminal) error {
	if err := h.listen(t); err != nil {
		return err
	}
	remote := t.getenv(endpointVariable)
	stack := template.Local()
	stack.APIEndpoint = "http://" + h.api.Addr().String()
	var e endpoint
	if remote != "" {
		var err error
		if e, err = openEndpoint(ctx, remote, t.getenv); err != nil {
			return err
		}
		stack.Region = e.cfg.Region
		stack.Names = map[string]string{"HubTable": t.getenv("TABLE_NAME"), "QueueBucket": t.getenv("BUCKET_NAME")}
	}
	script, err := h.declare(stack, remote == "")
	if err != nil {
		return err
	}
	if remote == "" {
		err = h.embed(script)
	} else {
		h.cfg, err = functions.ForLambda(e.cfg), e.admit(ctx, t.out, h.template, h.options.create)
	}
	if err != nil {
		return err
	}
	// Not before the folder is this hub's: another one's token stays as it is.
	if h.token, err = findToken(h.options.data, t.getenv); err != nil {
		return err
	}
	if err := h.provision(ctx); err != nil {
		return err
	}
	return h.wire(ctx)
}

func (h *hub) listen(t terminal) (err error) {
	if h.api, err = listen(h.options.http, "the hub", "http"); err != nil {
		return err
	}
	if t.getenv(endpointVariable) != "" {
		return nil
	}
	h.aws, err = listen(h.options.aws, "the embedded AWS", "aws")
	return err
}

// declare reads the template and the faults, of the embedded AWS too when the hub
// has one.
func (h *hub) declare(stack template.Stack, embedded bool) (*fakeaws.Script, error) {
	path, err := findTemplate(h.options.template)
	if err != nil {
		return nil, err
	}
	if h.template, err = template.Load(path, stack); err != nil {
		return nil, err
	}
	if len(h.template.Tables) != 1 || len(h.template.Buckets) != 1 {
		return nil, fmt.Errorf("%s: %w", path, errNoState)
	}
	var names []string
	for _, s := range h.template.Schedules() {
		names = append(names, s.Name)
	}
	script, faults, err := loadFaults(h.options.faults, names, embedded)
	if err != nil {
		return nil, err
	}
	h.scheduler = &scheduler{stack: stack, faults: faults, log: h.log, speed: h.options.tick}
	h.collector = &collector{log: h.log}
	return script, nil
}

func (h *hub) embed(script *fakeaws.Script) (err error) {
	o := fakeaws.Options{Faults: script}
	if !h.options.memory {
		o.Dir = h.stateFolder()
	}
	if h.embedded, err = fakeaws.Open(o); err != nil {
		return fmt.Errorf("start the embedded AWS: %w", err)
	}
	h.cfg = h.embedded.Config()
	if h.options.tick != 0 {
		h.collector.collect = h.embedded.Collect
	}
	if h.options.memory {
		return nil
	}
	return tellEndpoint(h.options.data, h.aws)
}

func (h *hub) stateFolder() string { return stateFolder(h.options.data) }

// stateFolder is where a data folder holds the embedded AWS's state.
func stateFolder(data string) string { return filepath.Join(data, "aws") }

// keyFile is the key that seals credentials, beside the token.
func (h *hub) keyFile() string {
	if h.options.memory {
		return "" // what is sealed would end with the process
	}
	return filepath.Join(h.options.data, "credential.key")
}

// provision makes what the template declares and is not there yet.
func (h *hub) provision(ctx context.Context) error {
	tables := dynamodb.NewFromConfig(h.cfg)
	for _, t := range h.template.Tables {
		made, err := provision.Table(ctx, tables, t)
		if err != nil {
			return err
		}
		if made {
			h.made = append(h.made, "table "+t.Name)
		}
	}
	buckets := newS3(h.cfg)
	for _, b := range h.template.Buckets {
		made, err := provision.Bucket(ctx, buckets, b.Name)
		if err != nil {
			return err
		}
		if made {
			h.made = append(h.made, "bucket "+b.Name)
		}
		if err := h.declareLifecycle(ctx, buckets, b, made); err != nil {
			return err
		}
	}
	return nil
}

// declareLifecycle puts the rules that say what a bucket forgets. A bucket of
// another endpoint that was there before may hold more than the hub's objects, and
// an endpoint may know no rules: its operator is told.
func (h *hub) declareLifecycle(ctx context.Context, client *s3.Client, b template.Bucket, made bool) error {
	if h.embedded == nil && !made {
		return nil
	}
	err := provision.Lifecycle(ctx, client, b)
	if err != nil && h.embedded == nil {
		h.log.Warn("the endpoint takes no lifecycle rules: nothing in the bucket expires", "bucket", b.Name, "error", err)
		return nil
	}
	return err
}

// settings are what the template puts into the functions' environment. One process
// serves them all, so it has to be the same for all.
func (h *hub) settings() (functions.Settings, error) {
	all := h.template.Functions
	if len(all) == 0 {
		return functions.Settings{}, fmt.Errorf("%s declares no function", h.template.Path)
	}
	for _, f := range all {
		if !maps.Equal(f.Environment, all[0].Environment) {
			return functions.Settings{}, fmt.Errorf("%s: %s and %s have different environments; the local runner serves all functions in one",
				h.template.Path, all[0].LogicalID, f.LogicalID)
		}
	}
	s, err := functions.SettingsFrom(func(name string) string { return all[0].Environment[name] })
	s.Log = h.log
	s.CredentialKeyFile = h.keyFile()
	if h.embedded != nil {
		s.NewTables = func(cfg aws.Config) ddb.Client { return h.embedded.NewTables(cfg) }
	}
	s.EventBus = "" // the bus is not there: events are followed over HTTP
	return s, err
}

// wire puts the functions behind the routes and the schedules.
func (h *hub) wire(ctx context.Context) error {
	settings, err := h.settings()
	if err != nil {
		return err
	}
	table := ddb.Table{Name: settings.Table, Region: h.cfg.Region, Account: settings.Account}
	if err := h.token.record(ctx, ddb.Open(dynamodb.NewFromConfig(h.cfg), table)); err != nil {
		return err
	}
	app, err := functions.Open(h.cfg, settings)
	if err != nil {
		return fmt.Errorf("open the functions: %w", err)
	}
	h.gateway, err = gateway.New(h.template, func(name string) (gateway.Handler, bool) {
		handler, ok := app.HTTP(name)
		return gateway.Handler(handler), ok
	}, h.log)
	if err != nil {
		return err
	}
	for _, f := range h.template.Functions {
		for _, s := range f.Schedules {
			sweep, ok := app.Sweep(f.Handler)
			if !ok {
				return fmt.Errorf("schedule %s: there is no sweep %q", s.Name, f.Handler)
			}
			h.jobs = append(h.jobs, &job{schedule: s, timeout: f.Timeout, invoke: func(ctx context.Context, event json.RawMessage) error {
				return sweep(ctx, event)
			}})
		}
	}
	return nil
}

// ballastSize, in bytes, is held so that the heap is never collected for less
// garbage than that. A fresh hub's is a few megabytes, and collecting it for every
// few of new ones takes a fifth of the processor under load. Never touched, the
// ballast itself takes no memory.
const ballastSize = 64 << 20

// run serves until the context ends or a listener fails.
func (h *hub) run(ctx context.Context, t terminal) error {
	ballast := make([]byte, ballastSize)
	defer runtime.KeepAlive(ballast)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := h.gateway.Server()
	failed := make(chan error, 2)
	go func() { failed <- server.Serve(h.api) }()
	if h.embedded != nil {
		go func() {
			if err := h.embedded.Serve(h.aws); err != nil {
				failed <- err
			}
		}()
	}
	h.scheduler.start(ctx, h.jobs)
	h.collector.start(ctx)
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		err = fmt.Errorf("serve: %w", err)
	}
	cancel()
	fmt.Fprintln(t.out, "Stopping.")
	return errors.Join(err, h.stop(server))
}

// stop ends requests and sweeps in flight before the state is closed.
func (h *hub) stop(server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	h.scheduler.wait()
	h.collector.wait()
	return err
}

// close gives back what open took, in the reverse order.
func (h *hub) close() {
	if h.embedded != nil {
		if err := h.embedded.Close(); err != nil {
			h.log.Error("close the embedded AWS", "error", err)
		}
	}
	for _, l := range []net.Listener{h.aws, h.api} {
		if l != nil {
			_ = l.Close() // closed already when it was served
		}
	}
}
