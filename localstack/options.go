package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
)

// options are the flags of the command that starts a hub.
type options struct {
	http     string
	aws      string
	data     string
	memory   bool
	level    slog.Level
	tick     float64
	faults   string
	template string
	create   bool
}

const serveHelp = `Usage: go run ./localstack [flags]
       go run ./localstack doctor [flags]
       go run ./localstack queue COMMAND [flags]
       go run ./localstack load [flags]
       go run ./localstack token COMMAND [flags]

Starts a Drawbridge hub on this machine. With AWS_ENDPOINT_URL set it keeps its
state there instead of in the embedded AWS, once the doctor has passed it.
DRAWBRIDGE_TOKEN, when set, is taken as the token with every scope.

`

func parseOptions(args []string, t terminal) (options, error) {
	o := options{level: slog.LevelInfo}
	flags := flag.NewFlagSet("localstack", flag.ContinueOnError)
	flags.StringVar(&o.http, "http", "127.0.0.1:27888", "`address` of the hub's HTTP API")
	flags.StringVar(&o.aws, "aws", "127.0.0.1:4566", "`address` of the embedded AWS (DynamoDB and S3)")
	flags.StringVar(&o.data, "data", ".drawbridge", "`folder` for the state and the token")
	flags.BoolVar(&o.memory, "memory", false, "keep the state in memory: it is gone when the hub stops")
	flags.TextVar(&o.level, "log", slog.LevelInfo, "least `level` that is logged: DEBUG, INFO, WARN, ERROR")
	flags.Float64Var(&o.tick, "tick", 1, "how many times `faster` the schedules run; 0: never")
	flags.StringVar(&o.faults, "faults", "", "`file` that tells how the embedded AWS and the schedules misbehave")
	flags.StringVar(&o.template, "template", "", "the SAM template `file` (default: template.yaml here or in a folder above)")
	flags.BoolVar(&o.create, "create", false, "make missing tables and buckets at an AWS_ENDPOINT_URL that is not on this machine")
	flags.Usage = func() {
		fmt.Fprint(t.out, serveHelp)
		flags.PrintDefaults()
	}
	if err := parseFlags(flags, args, t); err != nil {
		return o, err
	}
	if o.tick != 0 && !(o.tick >= minTick && o.tick <= maxTick) {
		return o, &usageError{fmt.Sprintf("-tick must be 0 or from %g to %g", minTick, float64(maxTick))}
	}
	if o.memory && t.getenv(endpointVariable) != "" {
		return o, &usageError{"-memory is of the embedded AWS, and " + endpointVariable + " names another"}
	}
	return o, nil
}

// The bounds of -tick keep the shortest period of a schedule above a
// millisecond, and the longest one a time.Duration.
const (
	minTick = 1e-4
	maxTick = 10_000
)

// findTemplate walks up from the working directory, so that the command works in
// any folder of the project.
func findTemplate(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, "template.yaml")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		} else if !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("look for the template: %w", err)
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("there is no template.yaml in %s or a folder above it; run this in the project, or name it with -template", start)
		}
	}
}
