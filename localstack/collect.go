package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"drawbridge/localstack/fakeaws"
)

// AWS collects by itself, within hours or days; no answer depends on when. The
// first collection of a hub does not have to wait for a laptop that is up for
// whole hours, nor does it slow the start down.
const (
	firstCollection = time.Minute
	nextCollection  = time.Hour
)

// A collector takes away what has expired in the embedded AWS, so that a hub that
// runs for months does not grow.
type collector struct {
	// collect is nil where nothing is collected: at another endpoint, and in a hub
	// whose schedules never fire, so that nothing in it happens by itself.
	collect func(context.Context) (fakeaws.Collection, error)
	log     *slog.Logger

	running sync.WaitGroup
}

// start collects until the context ends; wait returns when the last collection
// has ended.
func (c *collector) start(ctx context.Context) {
	if c.collect == nil {
		return
	}
	c.running.Go(func() {
		timer := time.NewTimer(firstCollection)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
				c.once(ctx)
				timer.Reset(nextCollection)
			}
		}
	})
}

func (c *collector) wait() { c.running.Wait() }

func (c *collector) once(ctx context.Context) {
	var took fakeaws.Collection
	err := guard(func() (err error) {
		took, err = c.collect(ctx)
		return err
	})
	switch {
	case ctx.Err() != nil: // the next start goes on
	case err != nil:
		c.log.Error("the collection failed", "error", err)
	case took != fakeaws.Collection{}:
		o := took.Objects
		c.log.Info("collected what has expired", "items", took.Items, "objects", o.Expired, "old_versions", o.Old,
			"delete_markers", o.Markers, "uploads", o.Uploads)
	}
}
