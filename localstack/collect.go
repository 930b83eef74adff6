package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"drawbridge/localstack/fakeaws"
)

// collectEvery is the time between collections, and before the first. AWS collects
// by itself, within hours or days; no answer depends on when. Often is little each
// time, and what is over leaves the memory as evenly as it came: a walk over
// 100,000 items takes less than a tenth of a second.
const collectEvery = time.Minute

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
		ticker := time.NewTicker(collectEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				c.once(ctx)
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
		c.log.Debug("collected what has expired", "items", took.Items, "objects", o.Expired, "old_versions", o.Old,
			"delete_markers", o.Markers, "uploads", o.Uploads)
	}
}
