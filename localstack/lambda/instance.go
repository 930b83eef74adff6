package lambda

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"drawbridge/localstack/processes"
	"drawbridge/localstack/template"
)

const (
	// invokePath is the only one that the emulator serves, whatever the function's name.
	invokePath = "/2015-03-31/functions/function/invocations"
	// startPatience bounds the wait for an emulator to listen; it takes some 20 ms.
	startPatience = 20 * time.Second
	// timedOut is how the emulator, with status 200, tells of a function that took
	// too long.
	timedOut = "Task timed out after "
)

// ErrCrashed is why an invocation has no answer: the function's process, or the
// emulator, ended meanwhile. What the function did may have taken effect.
var ErrCrashed = errors.New("the function's process ended")

// A FunctionError is an invocation that the function let fail.
type FunctionError struct {
	Type    string `json:"errorType"`
	Message string `json:"errorMessage"`
}

// Error has the type and the message as the function gave them.
func (e *FunctionError) Error() string { return e.Type + ": " + e.Message }

// A Runtime is what every function is started with.
type Runtime struct {
	Emulator  string // path of aws-lambda-rie
	Bootstrap string // path of the functions' binary, built for this machine
	// Environment is what Lambda itself adds: region and credentials; and the
	// endpoint that stands for AWS.
	Environment map[string]string
	// Log takes what emulators and functions write; nil discards it.
	Log io.Writer
}

// An Instance is one function's process with the emulator before it.
type Instance struct {
	url     string
	command *exec.Cmd
	ended   chan struct{}
	began   time.Time

	turn sync.Mutex // the emulator does not survive two invocations at once
}

// Start starts a function and waits until its emulator listens. The function's own
// process starts with the first invocation, as on AWS.
func (r Runtime) Start(ctx context.Context, f template.Function) (*Instance, error) {
	addresses, err := freeAddresses(2)
	if err != nil {
		return nil, err
	}
	// Its defaults would bind every interface.
	command := exec.Command(r.Emulator, "--runtime-interface-emulator-address", addresses[0], "--runtime-api-address", addresses[1], r.Bootstrap)
	command.Env = r.environment(f)
	command.Stdout, command.Stderr = r.Log, r.Log
	processes.Apart(command) // so that a kill takes both processes
	i := &Instance{url: "http://" + addresses[0] + invokePath, command: command, ended: make(chan struct{}), began: time.Now()}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start the emulator: %w", err)
	}
	go func() {
		_ = command.Wait() // ended by Kill, or by itself: the invocation tells
		close(i.ended)
	}()
	if err := i.await(ctx, addresses[0]); err != nil {
		i.Kill()
		return nil, fmt.Errorf("start %s: %w", f.LogicalID, err)
	}
	return i, nil
}

// environment is all that a function's process sees.
func (r Runtime) environment(f template.Function) []string {
	all := map[string]string{
		"_HANDLER":                    f.Handler,
		"AWS_LAMBDA_FUNCTION_NAME":    f.LogicalID,
		"AWS_LAMBDA_FUNCTION_TIMEOUT": strconv.Itoa(int(f.Timeout.Seconds())),
	}
	maps.Copy(all, r.Environment)
	maps.Copy(all, f.Environment)
	var list []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, name+"="+all[name])
	}
	return list
}

// freeAddresses finds ports on which nothing listens.
func freeAddresses(n int) ([]string, error) {
	var addresses []string
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer listener.Close() // not before all are found, so that they differ
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}

// await returns when the emulator takes connections.
func (i *Instance) await(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		connection, err := net.Dial("tcp", address)
		if err == nil {
			return connection.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the emulator: %w", err)
		case <-i.ended:
			return errors.New("the emulator ended")
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Invoke hands the function an event, as JSON or, when it is a []byte, as it is.
// One invocation waits for the other. The error is a *FunctionError when the
// function answered with one, and wraps ErrCrashed when its process ended.
func (i *Instance) Invoke(ctx context.Context, event any) (json.RawMessage, error) {
	payload, raw := event.([]byte)
	if !raw {
		var err error
		if payload, err = json.Marshal(event); err != nil {
			return nil, fmt.Errorf("encode the event: %w", err)
		}
	}
	i.turn.Lock()
	defer i.turn.Unlock()
	status, answer, err := i.post(ctx, payload)
	if err != nil {
		return nil, err
	}
	return outcome(status, answer)
}

func (i *Instance) post(ctx context.Context, payload []byte) (status int, answer []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, i.url, bytes.NewReader(payload))
	if err != nil {
		return 0, nil, fmt.Errorf("make the invocation: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err == nil {
		defer response.Body.Close()
		answer, err = io.ReadAll(response.Body)
	}
	switch {
	case err == nil:
		return response.StatusCode, answer, nil
	case ctx.Err() != nil:
		return 0, nil, fmt.Errorf("invoke: %w", err)
	default:
		return 0, nil, fmt.Errorf("invoke: %w: %w", ErrCrashed, err)
	}
}

// outcome reads the emulator's answer: it has status 200 for a function that failed
// too, and no header that says so.
func outcome(status int, answer []byte) (json.RawMessage, error) {
	if status != http.StatusOK {
		return nil, fmt.Errorf("%w: the emulator answers %d: %s", ErrCrashed, status, answer)
	}
	if strings.HasPrefix(string(answer), timedOut) {
		return nil, &FunctionError{Type: "Sandbox.Timedout", Message: string(answer)}
	}
	var failed FunctionError
	if json.Unmarshal(answer, &failed) == nil && failed.Type != "" {
		return nil, &failed
	}
	return answer, nil
}

// Kill ends emulator and function at once, as a crash does.
func (i *Instance) Kill() {
	processes.KillAll(i.command)
	<-i.ended
}
