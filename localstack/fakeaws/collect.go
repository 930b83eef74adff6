package fakeaws

import (
	"context"
	"fmt"

	"drawbridge/localstack/fakeaws/objects"
)

// A Collection counts what a collection took away.
type Collection struct {
	Items   int // of all tables, their time to live having passed
	Objects objects.Collection
}

// Collect takes away what has expired by the server's clock: the items whose
// time to live has passed, and what the lifecycle rules of the buckets say. AWS
// does both by itself, hours or days late; here nothing is taken away until
// Collect is called, so that a test decides when. It returns when the result is
// durable, and early when the context or the server ends: what it had not come
// to is left for the next call. Requests are answered meanwhile, see
// objects.Engine.CollectExpired and dynamo.Engine.CollectExpired for how long
// they may wait; the meter and fault scripts see nothing of it.
func (s *Server) Collect(ctx context.Context) (Collection, error) {
	if !s.enter() {
		return Collection{}, errClosed
	}
	defer s.underWay.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-s.closed:
			cancel(errClosed)
		case <-ctx.Done():
		}
	}()
	var c Collection
	var err error
	if c.Items, err = s.tables.CollectAllExpired(ctx); err != nil {
		return c, fmt.Errorf("collect expired items: %w", err)
	}
	if c.Objects, err = s.buckets.CollectExpired(ctx); err != nil {
		return c, fmt.Errorf("collect expired objects: %w", err)
	}
	return c, nil
}
