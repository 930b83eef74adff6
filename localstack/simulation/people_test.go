package simulation

import (
	"fmt"
	"time"

	"drawbridge/core"
	"drawbridge/functions"
)

// populate brings in everybody: agents, of whom some share an id, people,
// operators and the schedules.
func (w *world) populate() {
	jobs := &desk{}
	for i, id := range append(agentIDs, agentIDs[0], agentIDs[1]) {
		w.start(fmt.Sprintf("agent%d", i), func(a *actor) { (&agent{actor: a, id: id, desk: jobs}).live() })
	}
	for i := range 2 {
		w.start(fmt.Sprintf("person%d", i), func(a *actor) { (&person{a}).live() })
	}
	w.start("operator", func(a *actor) { (&operator{actor: a}).live() })
	copies, pause := 1, [2]int{500, 4000}
	switch w.plan.sweeps {
	case sweepsNever:
		return
	case sweepsOverlap:
		copies, pause = 2, [2]int{100, 1500}
	case sweepsLag:
		pause = [2]int{20_000, 90_000}
	case sweepsRun:
	}
	for i := range copies {
		for _, sweep := range functions.Sweeps() {
			pause := pause
			if sweep.Run == core.SweepMessages { // it asks for every shard: most of a run would be its requests
				pause = [2]int{4 * pause[0], 4 * pause[1]}
			}
			w.start(fmt.Sprintf("%s%d", sweep.Name, i), func(a *actor) { a.tick(sweep.Name, pause) })
		}
	}
}

// tick is a schedule.
func (a *actor) tick(sweep string, pause [2]int) {
	for !a.w.closing {
		a.think(time.Duration(a.between(pause[0], pause[1])) * time.Millisecond)
		_ = a.w.sweep(a.name, sweep, a.random) // the next tick goes on where it stopped
	}
}

// A person answers what agents ask. Two of them answer the same at once.
type person struct{ *actor }

func (p *person) live() {
	for !p.w.closing {
		p.think(time.Duration(p.between(100, 3000)) * time.Millisecond)
		for _, pending := range list(p.send(request{method: "GET", path: "/bridge/hitl/pending"}).at("data")) {
			if p.chance(2) {
				p.answer(at(pending, "request_id"))
			}
		}
	}
}

func (p *person) answer(id any) {
	r := request{method: "POST", path: "/bridge/hitl/submit", body: map[string]any{
		"request_id": id, "action": pick(p.actor, "accept", "accept", "decline", "cancel"), "submitted_by": p.name,
		"content": map[string]any{"by": p.unique("answer")},
	}}
	got := p.send(r)
	if got.unknown() {
		got = p.insist(r)
	}
	if !got.ok() && got.code() != "ALREADY_HANDLED" && got.code() != "DEADLINE_PASSED" && got.status < 500 {
		p.w.violatef("%s: an answer is refused: %s", p.name, got.text)
	}
}

// An operator redrives, rotates, recovers and tidies up.
type operator struct{ *actor }

func (o *operator) live() {
	for !o.w.closing {
		o.think(time.Duration(o.between(200, 5000)) * time.Millisecond)
		switch o.random.IntN(12) {
		case 0:
			o.rotate()
		case 1:
			o.do("roles/recover", map[string]any{})
		case 2:
			o.do("roles/reserve", map[string]any{"role_key_wire": pick(o.actor, roles...).Wire()})
		case 3, 4:
			o.tidy()
		default:
			o.redrive()
		}
	}
}

func (o *operator) do(path string, body map[string]any) answer {
	return o.send(request{method: "POST", path: "/bridge/" + path, body: body, token: operatorToken})
}

func (o *operator) rotate() {
	if o.chance(2) {
		o.do("hub/rotate", map[string]any{"reason": "drill"})
	}
}

func (o *operator) redrive() {
	var ids []any
	for _, letter := range list(o.send(request{method: "GET", path: "/bridge/dead-letters?limit=20"}).at("data.dead_letters")) {
		if o.chance(3) {
			ids = append(ids, at(letter, "dead_letter_id"))
		}
	}
	if len(ids) > 0 {
		o.do("dead-letters/redrive", map[string]any{"dead_letter_ids": ids, "ttl_ms": o.between(1000, 20000)})
	}
}

func (o *operator) tidy() {
	for _, job := range list(o.send(request{method: "GET", path: "/bridge/queue/jobs?status=failed"}).at("data.jobs")) {
		if o.chance(2) {
			o.do("queue/retry", map[string]any{"id": at(job, "id")})
		}
	}
}
