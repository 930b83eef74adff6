package functions

import (
	"context"
	"runtime"

	"drawbridge/core"
)

// storeType is where the hub keeps its state (compat rule 4). Health tells it
// also when the store does not answer.
const storeType = "dynamodb"

type healthRequest struct{}

// healthResponse keeps the reference's fields (contract 2.21); what it has a
// process for is 0 or null.
type healthResponse struct {
	OK            bool         `json:"ok"`
	Version       string       `json:"version"`
	Platform      string       `json:"platform"`
	UptimeS       int64        `json:"uptime_s"`
	Node          *string      `json:"node"`
	Sessions      int          `json:"sessions"`
	Store         string       `json:"store"`
	IdleTimeoutMs int64        `json:"idle_timeout_ms"`
	IdleMs        int64        `json:"idle_ms"`
	Fingerprint   *string      `json:"fingerprint"`
	CheckedAtMs   core.Instant `json:"checked_at_ms"`
	Sweeps        []sweepView  `json:"sweeps"`
	Error         *errorView   `json:"error,omitempty" doc:"Why the hub is not healthy."`
}

// sweepView is the health of one sweep. A sweep that fails makes nothing
// wrong: leases and deadlines hold without it.
type sweepView struct {
	Name                string        `json:"name"`
	LastRunAtMs         *core.Instant `json:"last_run_at_ms"`
	LastSuccessAtMs     *core.Instant `json:"last_success_at_ms"`
	ConsecutiveFailures int           `json:"consecutive_failures"`
	LastErrorCode       *core.Code    `json:"last_error_code"`
	LagMs               int64         `json:"lag_ms" doc:"Age of the oldest due work the last run left undone."`
}

func health(ctx context.Context, c *call, _ healthRequest) (healthResponse, error) {
	answer := healthResponse{
		Version:     c.version,
		Platform:    runtime.GOOS,
		Store:       storeType,
		CheckedAtMs: core.InstantOf(c.clock.Now()),
		Sweeps:      []sweepView{},
	}
	if err := answer.check(ctx, c); err != nil {
		c.unhealthy = err
		shown := viewOf(shownError(err))
		answer.Error = &shown
		return answer, nil
	}
	answer.OK = true
	return answer, nil
}

// check asks the store for everything health tells about.
func (r *healthResponse) check(ctx context.Context, c *call) error {
	identity, err := c.hub.Identity(ctx)
	if err != nil {
		return err
	}
	r.Fingerprint = &identity.StoreFingerprint
	r.UptimeS = r.CheckedAtMs.Sub(identity.CreatedAt).Milliseconds() / 1000
	state, err := c.hub.Health(ctx)
	if err != nil {
		return err
	}
	for _, sweep := range state.Sweeps {
		r.Sweeps = append(r.Sweeps, sweepView{
			Name:                sweep.Name,
			LastRunAtMs:         orNull(sweep.LastRunAt),
			LastSuccessAtMs:     orNull(sweep.LastSuccessAt),
			ConsecutiveFailures: sweep.ConsecutiveFailures,
			LastErrorCode:       orNull(sweep.LastErrorCode),
			LagMs:               sweep.Lag.Milliseconds(),
		})
	}
	return nil
}
