// Command bootstrap is the binary of every function of the hub. The function's
// Handler (_HANDLER) names the endpoint or sweep it serves.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"drawbridge/functions"
)

// prewarmTimeout bounds the one request of the initialisation.
const prewarmTimeout = 2 * time.Second

func main() {
	handler, err := build(context.Background(), os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bootstrap:", err)
		os.Exit(1)
	}
	lambda.Start(handler)
}

// build returns the handler that _HANDLER names.
func build(ctx context.Context, getenv func(string) string) (any, error) {
	app, err := functions.FromEnv(ctx, getenv)
	if err != nil {
		return nil, err
	}
	handler, err := handlerOf(app, getenv("_HANDLER"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, prewarmTimeout)
	defer cancel()
	app.Prewarm(ctx)
	return handler, nil
}

func handlerOf(app *functions.App, name string) (any, error) {
	if http, ok := app.HTTP(name); ok {
		return http, nil
	}
	if sweep, ok := app.Sweep(name); ok {
		return sweep, nil
	}
	return nil, fmt.Errorf("_HANDLER is %q, which names no endpoint and no sweep", name)
}
