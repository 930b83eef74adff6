package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// The model below takes the steps of two candidates, a sweep, an operator and the
// clock with one role in every order. A read and the write that follows from it
// are steps of their own, so that anything may happen in between; a write takes
// effect where the version is the one that was read, as in the store.

// modelWorld is a state of the model. It is compared as a whole, so it holds
// values only.
type modelWorld struct {
	role  modelRole
	live  [2]bool
	ticks int
	held  [2]modelBelief // what an acknowledgement told the agent last
	mail  [2]modelBelief // the latest activation in the agent's inbox
	seen  [4]modelView   // what a process has read and not yet acted on
}

// modelRole is a role without what no step depends on.
type modelRole struct {
	state            RoleState
	holder, previous string
	generation       int64
	epoch, version   int64
	activation       string
	deadline         Instant
	retries          int64
	next             Instant
	bound            Instant
	acked            int64 // -1: not
	successor        string
}

type modelBelief struct {
	epoch int64
	known bool
}

type modelView struct {
	role modelRole
	live [2]bool
	now  Instant
	what string
}

var modelKey = RoleKey{ProjectID: testProject, Kind: RoleCTO}

var modelAgents = [2]string{"a", "b"}

func (r modelRole) role() Role {
	role := AbsentRole(modelKey, modelKey.Wire())
	if r.version < 0 {
		return role
	}
	role.State, role.Holder, role.PreviousHolder, role.HolderGeneration = r.state, r.holder, r.previous, r.generation
	role.Epoch, role.Version, role.ActivationSeq, role.ActivationID = r.epoch, r.version, r.epoch, r.activation
	role.ActivationDeadline, role.RetryCount, role.NextProbe, role.HolderLeaseExpires = r.deadline, r.retries, r.next, r.bound
	role.Successor = r.successor
	if r.acked >= 0 {
		role.CharterAckedEpoch = Some(r.acked)
	}
	return role
}

func modelOf(role Role) modelRole {
	r := modelRole{
		state: role.State, holder: role.Holder, previous: role.PreviousHolder, generation: role.HolderGeneration,
		epoch: role.Epoch, version: role.Version, activation: role.ActivationID, deadline: role.ActivationDeadline,
		retries: role.RetryCount, next: role.NextProbe, bound: role.HolderLeaseExpires, acked: -1, successor: role.Successor,
	}
	if role.CharterAckedEpoch.Set {
		r.acked = role.CharterAckedEpoch.Value
	}
	return r
}

// now is a moment that only ticks move: each lets every deadline pass.
func (w modelWorld) now() Instant { return Instant(w.ticks+1).Add(0) * 1_000_000 }

func (v modelView) board() board {
	b := board{RoleBoard: RoleBoard{Role: v.role.role(), Settings: DefaultRoleSettings()}, agents: map[string]Agent{}, now: v.now}
	for i, id := range modelAgents {
		agent := Agent{ID: id, Generation: 1, Status: StatusOnline, LeaseExpires: v.now.Add(time.Hour), Capabilities: []string{"role:cto:candidate"}}
		if !v.live[i] {
			agent.LeaseExpires = v.now
		}
		b.agents[id] = agent
		b.Candidates = append(b.Candidates, RoleCandidate{AgentID: id})
	}
	return b
}

// A modelStep is one step of a process. One that cannot be taken changes nothing.
type modelStep struct {
	name string
	take func(w modelWorld) modelWorld
}

// act is a read and, as a step of its own, the write that follows from it.
func act(p int, what string) []modelStep {
	return []modelStep{
		{what + " reads", func(w modelWorld) modelWorld { w.seen[p] = w.view(what); return w }},
		{what + " writes", func(w modelWorld) modelWorld { return w.write(p) }},
	}
}

func acks(i int) []modelStep {
	return []modelStep{{modelAgents[i] + " acknowledges", func(w modelWorld) modelWorld { n, _ := w.acknowledge(i); return n }}}
}

func changes(i int) []modelStep {
	return []modelStep{{modelAgents[i] + " lapses or heartbeats", func(w modelWorld) modelWorld { w.live[i] = !w.live[i]; return w }}}
}

func passes() []modelStep {
	return []modelStep{{"time passes", func(w modelWorld) modelWorld { w.ticks++; return w }}}
}

func (w modelWorld) view(what string) modelView {
	return modelView{role: w.role, live: w.live, now: w.now(), what: what}
}

// write carries out what a process decided on what it read.
func (w modelWorld) write(p int) modelWorld {
	v := w.seen[p]
	w.seen[p] = modelView{}
	b := v.board()
	activation := fmt.Sprintf("activation-%d", b.Role.Epoch+1)
	var role Role
	agentID, releases := strings.CutPrefix(v.what, "release ")
	switch {
	case v.what == "recover":
		next, changed := b.recovered(activation)
		if !changed {
			return w
		}
		role = next
	case releases:
		request := ReleaseRequest{AgentID: agentID, Epoch: w.held[indexOf(agentID)].epoch}
		if request.judge(b.Role) != "" || b.Role.Holder == "" {
			return w
		}
		role = b.release(request, activation).next
	default:
		plan := b.plan(roleWish{trigger: v.what}, activation, 0.5)
		if !plan.write {
			return w
		}
		role = plan.next
	}
	if w.role.version != v.role.version {
		return w // the store refuses it
	}
	w.role = modelOf(role)
	if role.State == RoleProbing && role.Holder != "" {
		w.mail[indexOf(role.Holder)] = modelBelief{role.Epoch, true}
	}
	return w
}

func indexOf(id string) int {
	if id == modelAgents[0] {
		return 0
	}
	return 1
}

// acknowledge is the store's transaction over role and agent.
func (w modelWorld) acknowledge(i int) (modelWorld, bool) {
	role := w.role.role()
	fits := w.mail[i].known && w.live[i] && role.State == RoleProbing && role.Holder == modelAgents[i] &&
		role.Epoch == w.mail[i].epoch && !passed(role.ActivationDeadline, w.now())
	if !fits {
		return w, false
	}
	next := role.acknowledged(RoleAck{Holder: modelAgents[i], Generation: 1, Epoch: role.Epoch, WriteStamp: WriteStamp{Started: time.UnixMilli(int64(w.now()))}})
	w.role = modelOf(next)
	w.held[i] = w.mail[i]
	return w, true
}

// modelPlace is how far every process has come, and what the world is like.
type modelPlace struct {
	at    [4]int
	world modelWorld
}

// TestEveryOrderOfTwoCandidatesLeavesOneHolderOfAnEpoch takes the steps of four
// processes in every order there is.
func TestEveryOrderOfTwoCandidatesLeavesOneHolderOfAnEpoch(t *testing.T) {
	candidate := func(i int) []modelStep {
		return slices.Concat(act(i, "manual"), acks(i), act(i, "release "+modelAgents[i]))
	}
	again := slices.Concat(candidate(0), act(0, "manual"), acks(0))
	for name, scripts := range map[string][4][]modelStep{
		"reserve, acknowledge, release, expire, recover": {again, candidate(1), slices.Concat(changes(0), passes(), changes(0)), act(3, "recover")},
		"reserve, acknowledge, release, expire, sweep":   {again, candidate(1), slices.Concat(changes(0), changes(1), passes()), slices.Concat(act(3, triggerSweep), act(3, triggerSweep))},
		"two recoveries and a sweep":                     {slices.Concat(act(0, "manual"), acks(0), acks(0)), acks(1), slices.Concat(act(2, "recover"), act(2, "recover")), slices.Concat(passes(), act(3, triggerSweep))},
	} {
		t.Run(name, func(t *testing.T) { explore(t, scripts) })
	}
}

func explore(t *testing.T, scripts [4][]modelStep) {
	start := modelPlace{world: modelWorld{role: modelRole{epoch: -1, version: -1, acked: -1, state: RoleElectable}, live: [2]bool{true, true}}}
	visited := map[modelPlace]bool{start: true}
	queue := []modelPlace{start}
	held := 0
	for len(queue) > 0 {
		place := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for p, script := range scripts {
			if place.at[p] == len(script) {
				continue
			}
			step := script[place.at[p]]
			next := modelPlace{at: place.at, world: step.take(place.world)}
			next.at[p]++
			checkStep(t, place.world, step.name, next.world)
			if t.Failed() {
				return
			}
			if next.world.role.state == RoleActive {
				held++
			}
			if !visited[next] {
				visited[next] = true
				queue = append(queue, next)
			}
		}
	}
	if len(visited) < 500 || held == 0 {
		t.Fatalf("only %d states were met, %d of them with a holder", len(visited), held)
	}
	t.Logf("%d states", len(visited))
}

// checkStep holds what must be true whatever the order.
func checkStep(t *testing.T, before modelWorld, step string, after modelWorld) {
	t.Helper()
	b, a := before.role, after.role
	switch {
	case a.version < b.version || a.epoch < b.epoch:
		t.Errorf("%s: the numbers go back, from %+v to %+v", step, b, a)
	case a != b && a.version == b.version:
		t.Errorf("%s: the role changes without its version, from %+v to %+v", step, b, a)
	case a.epoch == b.epoch && a.holder != b.holder && a.holder != "" && b.holder != "":
		t.Errorf("%s: two holders within an epoch, from %+v to %+v", step, b, a)
	case a.state == RoleActive && b.state == RoleActive && a.holder != b.holder:
		t.Errorf("%s: the authority moves without a reservation, from %+v to %+v", step, b, a)
	case after.held[0].known && after.held[1].known && after.held[0].epoch == after.held[1].epoch:
		t.Errorf("%s: both believe in epoch %d", step, after.held[0].epoch)
	case a.state == RoleActive && !after.held[indexOf(a.holder)].known:
		t.Errorf("%s: a holder that never acknowledged: %+v", step, a)
	case a.state == RoleActive && after.held[indexOf(a.holder)].epoch != a.epoch:
		t.Errorf("%s: a holder that acknowledged another epoch: %+v", step, a)
	}
}
