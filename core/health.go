package core

import (
	"context"
	"fmt"
)

// HubHealthy is the state of a hub whose store answers.
const HubHealthy = "healthy"

// Health is the hub's health. It is healthy when its store answers: a sweep
// that fails is reported but does not make it unhealthy, because no rule rests
// on a sweep.
type Health struct {
	State     string
	CheckedAt Instant
	Sweeps    []SweepRecord
}

// Health reads the health of the sweeps; an error means that the store does not
// answer and the hub is not healthy. Cost: one request.
func (h *Hub) Health(ctx context.Context) (Health, error) {
	records, err := h.sweeps.ReadSweeps(ctx, SweepNames)
	if err != nil {
		return Health{}, fmt.Errorf("read sweeps: %w", err)
	}
	return Health{State: HubHealthy, CheckedAt: InstantOf(h.clock.Now()), Sweeps: records}, nil
}
