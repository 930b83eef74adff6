// Localstack runs a Drawbridge hub on a laptop: the handlers that are deployed
// to Lambda, over an embedded AWS, with what template.yaml declares.
//
//	go run ./localstack             start a hub
//	go run ./localstack doctor      tell whether an endpoint can hold a hub's state
//	go run ./localstack queue       import, export and work on archive jobs
//	go run ./localstack load        put a fleet on a hub and audit what becomes of its work
//	go run ./localstack token       make, list, rotate and revoke the hub's tokens
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes of the command.
const (
	exitFailed = 1
	exitUsage  = 2
)

// A terminal is how the command talks to its user and its environment.
type terminal struct {
	out, err io.Writer
	getenv   func(string) string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal ends the hub in order, a second one at once.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], terminal{out: os.Stdout, err: os.Stderr, getenv: os.Getenv})
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, t terminal) int {
	command := serve
	if len(args) > 0 {
		switch args[0] {
		case "doctor":
			command, args = examine, args[1:]
		case "queue":
			command, args = manageQueue, args[1:]
		case "load":
			command, args = load, args[1:]
		case "token":
			command, args = manageToken, args[1:]
		}
	}
	err := command(ctx, args, t)
	var usage *usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &usage):
		fmt.Fprintln(t.err, "drawbridge:", err)
		return exitUsage
	default:
		fmt.Fprintln(t.err, "drawbridge:", err)
		return exitFailed
	}
}

// A usageError is a mistake in the command line.
type usageError struct{ reason string }

func (e *usageError) Error() string { return e.reason + " (-help lists the flags)" }

// parseFlags parses args into the flag set and refuses what is left over.
func parseFlags(flags *flag.FlagSet, args []string, t terminal) error {
	// The package would print a mistake and the whole usage; run prints it once.
	flags.SetOutput(io.Discard)
	usage := flags.Usage
	flags.Usage = func() {}
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(t.out)
		usage()
		return err
	case err != nil:
		return &usageError{err.Error()}
	case flags.NArg() > 0:
		return &usageError{fmt.Sprintf("%q is not understood", flags.Arg(0))}
	default:
		return nil
	}
}
