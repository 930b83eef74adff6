// Command cmd serves the embedded AWS on a socket, for tools that need it in a
// process of its own: the crash test, awsprobe, comparisons with other
// servers.
//
//	go run ./localstack/fakeaws/cmd -addr 127.0.0.1:4566 [-data DIR] [-faults FILE]
//
// It prints the endpoint's URL when it is ready and stops cleanly on SIGINT
// and SIGTERM. The access key is that of AWS_ACCESS_KEY_ID and
// AWS_SECRET_ACCESS_KEY, or test and testtest.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"drawbridge/localstack/fakeaws"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:4566", "address to listen on")
	data := flag.String("data", "", "data folder; without it everything is in memory")
	faults := flag.String("faults", "", "fault script, a JSON file (see fakeaws.ParseScript)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *addr, *data, *faults); err != nil {
		fmt.Fprintln(os.Stderr, "fakeaws:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, addr, data, faults string) error {
	options := fakeaws.Options{Dir: data}
	if faults != "" {
		document, err := os.ReadFile(faults)
		if err != nil {
			return fmt.Errorf("read the fault script: %w", err)
		}
		if options.Faults, err = fakeaws.ParseScript(document); err != nil {
			return err
		}
	}
	server, err := fakeaws.Open(options)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return errors.Join(err, server.Close())
	}
	fmt.Printf("http://%s\n", listener.Addr())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	return errors.Join(err, server.Close())
}
