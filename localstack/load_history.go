package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"drawbridge/localstack/bench"
)

const (
	// historyAgents have received all that is old.
	historyAgents = 32
	// historyCallers make it at once.
	historyCallers = 16
	// historyPage is the most messages that a drain gives.
	historyPage = 100
	// forgetEvery is how often as many old rows go as new ones came.
	forgetEvery = 5 * time.Second
)

// A history is what a hub has kept of the time before the load. What is over stays
// for days, so a hub is as large as days of work: one that begins empty grows in a
// soak whatever it does. With a history it begins as it would be after those days,
// and for every row that the fleet makes an old one goes, as it would expire then.
type history struct {
	fleet *fleet
	hub   *bench.Hub
	keys  []bench.Key // of the rows that are left
	level int64       // how many rows the table has when the load begins
}

// makeHistory has so many messages sent, drained and acknowledged.
func makeHistory(ctx context.Context, f *fleet, own *bench.Hub, messages int, out io.Writer) (*history, error) {
	h := &history{fleet: f, hub: own}
	if messages == 0 {
		return h, nil
	}
	at := time.Now()
	past := func(agent int) string { return fmt.Sprintf("%s-past-%d", f.run, agent%historyAgents) }
	sending := bench.Loop{Callers: historyCallers, Total: messages}
	if _, err := sending.Run(ctx, func(ctx context.Context, _, n int) error {
		return f.hub.Post(ctx, "publish", map[string]any{
			"from": past(n + 1), "to": past(n), "topic": "chatter", "payload": note{Load: "past", Text: "words of long ago"},
		}, nil)
	}); err != nil {
		return nil, fmt.Errorf("make a history: %w", err)
	}
	draining := bench.Loop{Callers: historyCallers, Total: historyAgents}
	if _, err := draining.Run(ctx, func(ctx context.Context, _, n int) error {
		for {
			var got struct{ Messages []struct{} }
			body := map[string]any{"agent_id": past(n), "auto_ack": true, "max_messages": historyPage}
			if err := f.hub.Post(ctx, "context", body, &got); err != nil || len(got.Messages) == 0 {
				return err
			}
		}
	}); err != nil {
		return nil, fmt.Errorf("make a history: %w", err)
	}
	var err error
	if h.keys, err = own.Partitions(ctx, f.run+"-past-"); err != nil {
		return nil, err
	}
	if h.level, err = own.Rows(); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "A history of %d messages was made in %s.\n", len(h.keys), time.Since(at).Round(time.Second))
	return h, nil
}

// run forgets until the context ends or nothing is left.
func (h *history) run(ctx context.Context) {
	ticker := time.NewTicker(forgetEvery)
	defer ticker.Stop()
	for len(h.keys) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			// An answer that did not come is made up for the next time: the rows tell.
			_ = h.forget(ctx)
		}
	}
}

// forget takes away as many old rows as there are too many.
func (h *history) forget(ctx context.Context) error {
	rows, err := h.hub.Rows()
	if err != nil {
		return err
	}
	n := min(max(0, int(rows-h.level)), len(h.keys))
	err = h.hub.Remove(ctx, h.keys[:n])
	h.keys = h.keys[n:]
	return err
}
