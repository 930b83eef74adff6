package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"drawbridge/localstack/bench"
	"drawbridge/localstack/client"
)

type operation = func(ctx context.Context, caller, n int) error

// A comparison is one operation of the reference's table.
type comparison struct {
	name string
	// reference is the faster of its two releases, in operations a second by 16
	// callers; it stored without waiting for the disk.
	reference float64
	// prepare makes what the operation needs and returns it, with the loop to run
	// it in.
	prepare preparation
}

type preparation func(context.Context, *client.Client, bench.Loop) (operation, bench.Loop, error)

type fields = map[string]any

const (
	knownAgents = 64
	followers   = 10
	// drains is how many drains of 10 a round of that case makes: each of the
	// known agents so many times.
	drains = 20
)

func known(n int) string { return fmt.Sprintf("known-%02d", n%knownAgents) }

// cases are the operations in an order in which each finds what it needs.
func cases() []comparison {
	fresh := 0
	return []comparison{
		{"register, 64 known agents", 1611, posting("register", func(n int) any { return fields{"agent_id": known(n), "cli": "claude"} })},
		{"register, new ids", 1298, func(ctx context.Context, c *client.Client, l bench.Loop) (operation, bench.Loop, error) {
			fresh++
			round := fresh
			return posting("register", func(n int) any {
				return fields{"agent_id": fmt.Sprintf("new-%d-%d", round, n), "cli": "claude"}
			})(ctx, c, l)
		}},
		{"status report", 1682, registered(posting("status", func(n int) any { return fields{"agent_id": known(n), "status": "busy"} }))},
		// The older release has no heartbeat: its status report does that work.
		{"heartbeat", 1682, registered(posting("heartbeat", func(n int) any { return fields{"agent_id": known(n)} }))},
		{"publish to an agent", 1223, posting("publish", func(n int) any { return message(known(n)) })},
		{"publish to a topic, 10 followers", 830, publishToTopic},
		{"drain of 10", 596, drainTen},
		{"drain, empty", 2533, posting("context", func(n int) any { return fields{"agent_id": "nobody-" + known(n)} })},
		{"create an assignment", 776, posting("assign/async", func(n int) any {
			return fields{"supervisor_agent": "chief", "worker_agent": known(n), "task": "review the change"}
		})},
	}
}

// posting is an operation that needs nothing: its body goes to an endpoint.
func posting(endpoint string, body func(n int) any) preparation {
	return func(_ context.Context, c *client.Client, l bench.Loop) (operation, bench.Loop, error) {
		return func(ctx context.Context, _, n int) error { return c.Post(ctx, endpoint, body(n), nil) }, l, nil
	}
}

// registered registers the known agents first.
func registered(then preparation) preparation {
	return func(ctx context.Context, c *client.Client, l bench.Loop) (operation, bench.Loop, error) {
		for i := range knownAgents {
			if err := register(ctx, c, known(i)); err != nil {
				return nil, l, err
			}
		}
		return then(ctx, c, l)
	}
}

func message(to string) fields {
	return fields{
		"from": "chief", "to": to, "type": "event", "topic": "build", "ttl_ms": 86_400_000,
		"payload": fields{"text": "the build of the main branch has passed", "commit": "0123456789abcdef0123456789abcdef01234567"},
	}
}

func register(ctx context.Context, c *client.Client, id string, topics ...string) error {
	return c.Post(ctx, "register", fields{"agent_id": id, "cli": "claude", "topics": topics, "timeout_sec": 3600}, nil)
}

func publishToTopic(ctx context.Context, c *client.Client, l bench.Loop) (operation, bench.Loop, error) {
	for i := range followers {
		if err := register(ctx, c, fmt.Sprintf("follower-%d", i), "of-ten"); err != nil {
			return nil, l, err
		}
	}
	return func(ctx context.Context, _, _ int) error {
		var sent struct {
			Fanout int `json:"fanout_count"`
		}
		err := c.Post(ctx, "publish", message("topic:of-ten"), &sent)
		if err == nil && sent.Fanout != followers {
			return fmt.Errorf("the message went to %d followers, not %d", sent.Fanout, followers)
		}
		return err
	}, l, nil
}

// drainTen gives every drainer 10 messages for each of its drains. No two
// callers drain the same one.
func drainTen(ctx context.Context, c *client.Client, l bench.Loop) (operation, bench.Loop, error) {
	drainer := func(n int) string { return fmt.Sprintf("drainer-%02d", n%knownAgents) }
	for i := range knownAgents {
		if err := register(ctx, c, drainer(i), "of-all"); err != nil {
			return nil, l, err
		}
	}
	fill := bench.Loop{Callers: callers, Total: 10 * drains}
	if _, err := fill.Run(ctx, func(ctx context.Context, _, _ int) error {
		return c.Post(ctx, "publish", message("topic:of-all"), nil)
	}); err != nil {
		return nil, l, err
	}
	return func(ctx context.Context, _, n int) error { return drain(ctx, c, drainer(n), 10) },
		bench.Loop{Callers: callers, Total: drains * knownAgents}, nil
}

// drain takes so many messages out of an inbox, and acknowledges them.
func drain(ctx context.Context, c *client.Client, agent string, count int) error {
	var got struct{ Messages []struct{} }
	err := c.Post(ctx, "context", fields{"agent_id": agent, "auto_ack": true, "max_messages": count}, &got)
	if err == nil && len(got.Messages) != count {
		return fmt.Errorf("the drain gave %d messages, not %d", len(got.Messages), count)
	}
	return err
}

// deepDrain is the name of the measurement of growth.
const deepDrain = "drain of 10 out of the backlog"

// mostGrowth is how much longer a drain of 10 out of the deep backlog may take
// than one out of 10.
const mostGrowth = 1.2

// growth drains 10 of 10 and 10 of the backlog in turns, with one caller, so that
// what disturbs the machine disturbs both.
func (m *measurement) growth(ctx context.Context, out io.Writer) error {
	const deep, shallow, samples = "deep", "shallow", 200
	send := func(to string, count int) error {
		_, err := bench.Loop{Callers: callers, Total: count}.Run(ctx, func(ctx context.Context, _, _ int) error {
			return m.client.Post(ctx, "publish", message(to), nil)
		})
		return err
	}
	if err := send(deep, m.backlog+10*samples); err != nil {
		return fmt.Errorf("fill the backlog: %w", err)
	}
	took := map[string]*bench.Latencies{deep: {}, shallow: {}}
	for range samples {
		if err := send(shallow, 10); err != nil {
			return err
		}
		for agent, latencies := range took {
			at := time.Now()
			if err := drain(ctx, m.client, agent, 10); err != nil {
				return err
			}
			latencies.Add(time.Since(at))
		}
	}
	ratio := float64(took[deep].Quantile(0.5)) / float64(took[shallow].Quantile(0.5))
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\ndrain of 10, one caller\tp50 ms\tp99 ms\t")
	for _, agent := range []string{shallow, deep} {
		name := "out of 10"
		if agent == deep {
			name = fmt.Sprintf("out of %d", m.backlog)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t\n", name, ms(took[agent].Quantile(0.5)), ms(took[agent].Quantile(0.99)))
	}
	fmt.Fprintf(table, "times\t%.2f\t\t\n", ratio)
	if ratio > mostGrowth {
		m.slower = append(m.slower, deepDrain)
	}
	return table.Flush()
}
