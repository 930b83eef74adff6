package ddb_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/aws/aws-sdk-go-v2/aws"

	"drawbridge/core"
	"drawbridge/core/coretest"
)

// roleRegister is what the history of a role is checked against: a register that
// takes one call at a time.
type roleRegister struct {
	exists                    bool
	version, epoch            int64
	activation, state, holder string
}

// A roleCall is one operation on the role, with what it expected.
type roleCall struct {
	op                        string // reserve, cas, ack or read
	version, epoch            int64
	activation, state, holder string
}

// A roleReply is what it was told.
type roleReply struct {
	done    bool
	unknown bool // no answer came in time: it may have happened
	late    bool // done, but others have written since: stands is theirs
	again   bool // an acknowledgement that was made before
	code    core.Code
	stands  roleRegister // after it or, when it was refused, what refused it
}

func registerOf(r core.Role) roleRegister {
	if r.Version < 0 || r.Wire == "" {
		return roleRegister{}
	}
	return roleRegister{true, r.Version, r.Epoch, r.ActivationID, string(r.State), r.Holder}
}

// step is the sequential specification.
func (c roleCall) step(s roleRegister) (roleRegister, core.Code) {
	if c.op == "read" {
		return s, ""
	}
	switch {
	case c.version != s.version:
		return s, core.CodeStaleVersion
	case c.epoch != s.epoch:
		return s, core.CodeStaleEpoch
	case c.op != "reserve" && c.activation != s.activation:
		return s, core.CodeStaleActivationID
	case c.op == "ack" && (s.state != string(core.RoleProbing) || s.holder != "" && s.holder != c.holder):
		return s, core.CodeStaleEpoch
	}
	next := s
	next.version++
	switch c.op {
	case "reserve":
		next.epoch++
		next.activation, next.state, next.holder = c.activation, string(core.RoleProbing), c.holder
	case "cas":
		next.state = c.state
	case "ack":
		next.state, next.holder = string(core.RoleActive), c.holder // a role may be reserved for whoever comes
	}
	return next, ""
}

// The acknowledgement does not carry a version: in its specification every
// version fits.
var roleModel = porcupine.NondeterministicModel{
	Init: func() []any {
		return []any{roleRegister{exists: true, version: 0, epoch: 0, state: string(core.RoleElectable)}}
	},
	Step: func(state, input, output any) []any {
		s, call, reply := state.(roleRegister), input.(roleCall), output.(roleReply)
		if call.op == "ack" {
			call.version = s.version
		}
		next, code := call.step(s)
		switch {
		case reply.unknown && code == "":
			return []any{s, next}
		case reply.unknown:
			return []any{s}
		case call.op == "read" && reply.stands == s:
			return []any{s}
		case call.op == "read":
			return nil
		case reply.again && reply.stands == s && s.state == string(core.RoleActive) && s.epoch == call.epoch && s.holder == call.holder:
			return []any{s}
		case reply.again:
			return nil
		case call.op == "ack" && !reply.done && code != "" && reply.stands == s:
			return []any{s} // its codes have a precedence of their own
		case reply.done && code == "" && reply.tells(call.op, next):
			return []any{next}
		case !reply.done && code == reply.code && reply.stands == s:
			return []any{s}
		}
		return nil
	},
}

// tells tells whether the reply to a write that was done fits what the write
// made of the register. Of a late one the history may have lost the
// acknowledgement that named the holder. The role of an acknowledgement is read
// beside it: its version may be too low, which only makes the next write fail.
func (r roleReply) tells(op string, next roleRegister) bool {
	switch {
	case op == "ack" && r.stands.version < next.version:
		return true
	case r.late:
		r.stands.holder = next.holder
	}
	return r.stands == next
}

// TestAnAcknowledgementMayTakeARoleReservedForNobody is the history of a role
// that is made to wait for whoever comes, and is acknowledged by two.
func TestAnAcknowledgementMayTakeARoleReservedForNobody(t *testing.T) {
	c := newCosts(t)
	c.do(c.reserveRole(core.RoleReservation{}))
	var history []porcupine.Operation
	for i, call := range []roleCall{
		{op: "cas", state: string(core.RoleProbing), holder: "a"},
		{op: "ack", holder: "a"},
		{op: "read", holder: "a"},
		{op: "ack", holder: "a"},
		{op: "ack", holder: "b"},
	} {
		reply := call.send(t.Context(), c.core, c.store, costRole.Wire(), call.holder)
		if call.op == "read" && (reply.stands.holder != "a" || reply.stands.state != string(core.RoleActive)) {
			t.Errorf("the role is %+v", reply.stands)
		}
		history = append(history, porcupine.Operation{Input: call, Output: reply, Call: int64(2 * i), Return: int64(2*i + 1)})
	}
	if !porcupine.CheckOperations(roleModel.ToModel(), history) {
		t.Errorf("the history is illegal: %+v", history)
	}
}

// overtaking loses the answer to the next write that is done, and lets others act
// before the caller tries again.
type overtaking struct {
	aws.HTTPClient
	others atomic.Pointer[func()] // nil once they have acted; requests may run at once
}

func (o *overtaking) Do(r *http.Request) (*http.Response, error) {
	response, err := o.HTTPClient.Do(r)
	if err != nil || !isWrite(r) || response.StatusCode != http.StatusOK {
		return response, err
	}
	if others := o.others.Swap(nil); others != nil {
		(*others)()
		return nil, errors.Join(errLost, response.Body.Close())
	}
	return response, nil
}

// TestAWriteOnARoleThatWasOvertakenIsNeverCalledStale loses the answer to a
// write, makes as many others as its history holds, a few less and more, and
// retries: the write is done or its outcome unknown, but not refused.
func TestAWriteOnARoleThatWasOvertakenIsNeverCalledStale(t *testing.T) {
	for _, op := range []string{"cas", "reserve", "reserve again", "ack"} {
		for _, others := range []int{1, core.MaxRoleHistory - 2, core.MaxRoleHistory - 1, core.MaxRoleHistory, 2 * core.MaxRoleHistory} {
			t.Run(fmt.Sprintf("%s with %d others", op, others), func(t *testing.T) { checkOvertaken(t, op, others) })
		}
	}
}

func checkOvertaken(t *testing.T, op string, others int) {
	c := newCosts(t)
	wire := costRole.Wire()
	c.do(c.reserveRole(core.RoleReservation{}))
	c.do(c.reserveRole(core.RoleReservation{Patch: core.RolePatch{Holder: core.Some("a"), ActivationID: core.Some("first")}}))
	seen := registerOf(c.roleNow())
	call := roleCall{op: op, version: seen.version, epoch: seen.epoch, activation: seen.activation, holder: "a"}
	switch op {
	case "cas":
		call.state = string(core.RoleQuarantined)
	case "reserve":
		call.activation, call.holder = "second", "b"
	case "reserve again": // the holder that stands: the role is read and put
		call.op, call.activation = "reserve", "second"
	}
	next, _ := call.step(seen)
	overtake := func() {
		for range others {
			c.do(c.casRole(core.RolePatch{State: core.Some(core.RoleElectable)}))
		}
	}
	overtaken := &overtaking{HTTPClient: c.network.inner}
	overtaken.others.Store(&overtake)
	c.network.inner = overtaken
	reply := call.send(t.Context(), c.core, c.store, wire, call.holder)
	if stands := c.roleNow(); stands.Version != next.version+int64(others) {
		t.Fatalf("the role has version %d", stands.Version)
	}
	if !reply.unknown && !(reply.done && reply.tells(op, next)) {
		t.Errorf("the write made %+v and is told as %+v", next, reply)
	}
	if reply.unknown && others < core.MaxRoleHistory-1 {
		t.Error("the outcome of a write within the history's reach is unknown")
	}
}

// TestTheHistoryOfARoleIsLinearizable lets clients whose clocks differ by up to
// 30 seconds reserve, change, acknowledge and read one role at once, with answers
// that get lost, and checks what they were told.
func TestTheHistoryOfARoleIsLinearizable(t *testing.T) {
	for round := range 4 {
		seed := mathrand.Uint64()
		t.Run(fmt.Sprintf("round %d", round), func(t *testing.T) {
			t.Logf("seed %d", seed)
			checkHistory(t, seed)
		})
	}
}

func checkHistory(t *testing.T, seed uint64) {
	c := newCosts(t)
	wire := costRole.Wire()
	c.do(c.reserveRole(core.RoleReservation{}))
	const clients, each = 5, 14
	// All before the first client begins: it would lose the answers to these too.
	for i := range clients {
		c.do(func(ctx context.Context) error {
			_, err := c.core.Register(ctx, core.RegisterRequest{AgentID: clientID(i), CLI: "claude", TimeoutSec: core.Some(3600.0)})
			return err
		})
	}
	var mu sync.Mutex
	var history []porcupine.Operation
	started := time.Now()
	var wait sync.WaitGroup
	for i := range clients {
		id := clientID(i)
		clock := offset{c.clock, time.Duration(i*15-30) * time.Second}
		hub := core.New(core.Config{
			Presence: c.store, Identity: c.store, Sweeps: c.store, Messages: c.store, Roles: c.store,
			Clock: clock, IDs: core.NewIDs(clock, rand.Reader),
		})
		random := mathrand.New(mathrand.NewPCG(seed, uint64(i)))
		wait.Go(func() {
			seen := roleRegister{exists: true, state: string(core.RoleElectable)}
			for n := range each {
				if random.IntN(4) == 0 {
					defer c.network.loseNextWrite()()
				}
				call := nextCall(random, seen, id, n)
				from := time.Since(started)
				reply := call.send(t.Context(), hub, c.store, wire, id)
				to := time.Since(started)
				if reply.stands.exists {
					seen = reply.stands
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: i, Input: call, Output: reply, Call: int64(from), Return: int64(to)})
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	done := 0
	for _, o := range history {
		if o.Output.(roleReply).done {
			done++
		}
	}
	if done < clients {
		t.Fatalf("only %d of %d operations were done", done, len(history))
	}
	if result := porcupine.CheckOperationsTimeout(roleModel.ToModel(), history, 20*time.Second); result != porcupine.Ok {
		slices.SortFunc(history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		for _, o := range history {
			t.Logf("%d..%d client %d: %+v: %+v", o.Call, o.Return, o.ClientId, o.Input, o.Output)
		}
		t.Fatalf("the history of %d operations is %s", len(history), result)
	}
}

func clientID(i int) string { return fmt.Sprintf("client-%d", i) }

// offset is a clock that differs from another by a fixed time.
type offset struct {
	*coretest.Clock
	by time.Duration
}

func (o offset) Now() time.Time { return o.Clock.Now().Add(o.by) }

func nextCall(random *mathrand.Rand, seen roleRegister, id string, n int) roleCall {
	call := roleCall{version: seen.version, epoch: seen.epoch, activation: seen.activation, holder: id}
	switch random.IntN(5) {
	case 0:
		call.op = "read"
	case 1:
		call.op, call.state = "cas", string(core.RoleStates[random.IntN(len(core.RoleStates))])
	case 2:
		call.op = "ack"
	default:
		call.op, call.activation = "reserve", fmt.Sprintf("%s-%d", id, n)
	}
	return call
}

func (c roleCall) send(ctx context.Context, hub *core.Hub, store core.RoleStore, wire, id string) roleReply {
	switch c.op {
	case "reserve":
		done, err := hub.ReserveRole(ctx, core.RoleReservation{
			Wire: wire, Version: core.Some(c.version), Epoch: core.Some(c.epoch),
			Patch: core.RolePatch{Holder: core.Some(c.holder), ActivationID: core.Some(c.activation)},
		})
		return replyOf(done.Role, err).orLate(done)
	case "cas":
		done, err := hub.CompareAndSetRole(ctx, core.RoleCAS{
			Wire: wire, Patch: core.RolePatch{State: core.Some(core.RoleState(c.state))},
			Expected: core.RoleExpectation{
				Version: core.Some(c.version), Epoch: core.Some(c.epoch), ActivationSeq: core.Some(c.epoch), ActivationID: core.Some(c.activation),
			},
		})
		return replyOf(done.Role, err).orLate(done)
	case "ack":
		done, err := hub.AcknowledgeRole(ctx, core.AckRoleRequest{
			AgentID: id, Wire: wire, HolderAgentID: id, Epoch: c.epoch, ActivationSeq: c.epoch, ActivationID: c.activation,
			CharterWire: wire, CharterEpoch: c.epoch, Fences: core.Fences{Generation: core.Some(int64(1))},
		})
		if err == nil && done.Idempotent {
			return roleReply{again: true, stands: registerOf(done.Role)}
		}
		return replyOf(done.Role, err)
	default:
		role, err := store.ReadRole(ctx, wire)
		return replyOf(role, err)
	}
}

func (r roleReply) orLate(o core.RoleOutcome) roleReply {
	r.late = o.Replayed
	return r
}

func replyOf(r core.Role, err error) roleReply {
	if err == nil {
		return roleReply{done: true, stands: registerOf(r)}
	}
	var refusal *core.Error
	if !errors.As(err, &refusal) || refusal.Code.Entry().Kind != core.KindConflict {
		return roleReply{unknown: true}
	}
	stands, _ := refusal.Data.(core.RoleStands)
	return roleReply{code: refusal.Code, stands: registerOf(stands.Role.Value)}
}
