package linearizability

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/aws/aws-sdk-go-v2/aws"

	"drawbridge/core"
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
	told
	late   bool         // done, but others have written since: stands is theirs
	again  bool         // an acknowledgement that was made before
	stands roleRegister // after it or, when it was refused, what refused it
}

func (r roleReply) done() bool { return r.told == told{} && !r.again }

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

// roleModel is the specification of a role. A reply is not the model's alone: a
// refusal of an acknowledgement may name any of its reasons, and what stands may
// be others' work.
type roleModel struct{}

// reservedOnce is how a history finds the role: reserved, for nobody.
var reservedOnce = roleRegister{exists: true, state: string(core.RoleElectable)}

func (roleModel) porcupine() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init:              func() []any { return []any{reservedOnce} },
		Step:              stepRole,
		Equal:             func(a, b any) bool { return a.(roleRegister) == b.(roleRegister) },
		Hash:              hash,
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
	return m.ToModel()
}

func (roleModel) parts(all []porcupine.Operation) [][]porcupine.Operation {
	return [][]porcupine.Operation{all}
}

// stepRole is a step of the model. The acknowledgement does not carry a version:
// in its specification every version fits.
func stepRole(state, input, output any) []any {
	s, call, reply := state.(roleRegister), input.(roleCall), output.(roleReply)
	if call.op == "ack" {
		call.version = s.version
	}
	next, code := call.step(s)
	switch {
	case reply.Nothing:
		return []any{s}
	case reply.Unknown && code == "":
		return []any{s, next}
	case reply.Unknown:
		return []any{s}
	case call.op == "read" && reply.stands == s:
		return []any{s}
	case call.op == "read":
		return nil
	case reply.again && reply.stands == s && s.state == string(core.RoleActive) && s.epoch == call.epoch && s.holder == call.holder:
		return []any{s}
	case reply.again:
		return nil
	case call.op == "ack" && !reply.done() && code != "" && reply.stands == s:
		return []any{s} // its codes have a precedence of their own
	case reply.done() && code == "" && reply.tells(call.op, next):
		return []any{next}
	case !reply.done() && code == reply.Code && reply.stands == s:
		return []any{s}
	}
	return nil
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

// roleKey is the role of every history.
var roleKey = core.RoleKey{ProjectID: "prj_AbCdEfGhIjKlMnOpQrStUv", Kind: core.RoleLead, ScopeID: "scp_ZyXwVuTsRqPoNmLkJiHgFe"}

// openRole makes the role as a history finds it, and registers the callers.
func openRole(t *testing.T, callers ...*caller) {
	t.Helper()
	for _, c := range callers {
		c.tick()
		must(t, errorOf(c.hub.Register(t.Context(), core.RegisterRequest{AgentID: c.id, CLI: "claude", TimeoutSec: core.Some(360_000.0)})))
	}
	must(t, errorOf(callers[0].hub.ReserveRole(t.Context(), core.RoleReservation{Wire: roleKey.Wire()})))
}

func errorOf[T any](_ T, err error) error { return err }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestAnAcknowledgementMayTakeARoleReservedForNobody is the history of a role
// that is made to wait for whoever comes, and is acknowledged by two.
func TestAnAcknowledgementMayTakeARoleReservedForNobody(t *testing.T) {
	b := newBed(t)
	first, second := b.caller(0, 0), b.caller(1, 0)
	openRole(t, first, second)
	h := newHistory()
	for _, step := range []struct {
		by   *caller
		call roleCall
	}{
		{first, roleCall{op: "cas", state: string(core.RoleProbing)}},
		{first, roleCall{op: "ack"}},
		{first, roleCall{op: "read"}},
		{first, roleCall{op: "ack"}},
		{second, roleCall{op: "ack"}},
	} {
		step.call.holder = step.by.id
		reply := step.by.sendRole(t, h, step.call)
		if step.call.op == "read" && (reply.stands.holder != first.id || reply.stands.state != string(core.RoleActive)) {
			t.Errorf("the role is %+v", reply.stands)
		}
	}
	check(t, roleModel{}, h)
}

// overtaking loses the answer to the next write that is done, and lets others act
// before the caller tries again.
type overtaking struct {
	aws.HTTPClient
	others atomic.Pointer[func()] // nil once they have acted; requests may run at once
}

func (o *overtaking) Do(r *http.Request) (*http.Response, error) {
	response, err := o.HTTPClient.Do(r)
	if err != nil || !mayLose(r) || response.StatusCode != http.StatusOK {
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
		if op == "ack" && remote() {
			continue // it is a transaction: see mayLose
		}
		for _, others := range []int{1, core.MaxRoleHistory - 2, core.MaxRoleHistory - 1, core.MaxRoleHistory, 2 * core.MaxRoleHistory} {
			t.Run(fmt.Sprintf("%s with %d others", op, others), func(t *testing.T) { checkOvertaken(t, op, others) })
		}
	}
}

func checkOvertaken(t *testing.T, op string, others int) {
	b := newBed(t)
	c, other := b.caller(0, 0), b.caller(1, 0)
	openRole(t, c)
	must(t, errorOf(c.hub.ReserveRole(t.Context(), core.RoleReservation{
		Wire: roleKey.Wire(), Patch: core.RolePatch{Holder: core.Some(c.id), ActivationID: core.Some("first")},
	})))
	seen := c.roleNow(t)
	call := roleCall{op: op, version: seen.version, epoch: seen.epoch, activation: seen.activation, holder: c.id}
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
			stands := other.roleNow(t)
			must(t, errorOf(other.compareAndSet(t.Context(), stands.expect("cas", other.id, string(core.RoleElectable)))))
		}
	}
	overtaken := &overtaking{HTTPClient: c.network.inner}
	overtaken.others.Store(&overtake)
	c.network.inner = overtaken
	reply := call.send(t.Context(), c)
	if stands := c.roleNow(t); stands.version != next.version+int64(others) {
		t.Fatalf("the role has version %d", stands.version)
	}
	if !reply.Unknown && !(reply.done() && reply.tells(op, next)) {
		t.Errorf("the write made %+v and is told as %+v", next, reply)
	}
	if reply.Unknown && others < core.MaxRoleHistory-1 {
		t.Error("the outcome of a write within the history's reach is unknown")
	}
}

func (c *caller) roleNow(t *testing.T) roleRegister {
	t.Helper()
	r, err := c.store.ReadRole(t.Context(), roleKey.Wire())
	must(t, err)
	return registerOf(r)
}

// expect is a call on the role as it stands.
func (s roleRegister) expect(op, holder, state string) roleCall {
	return roleCall{op: op, version: s.version, epoch: s.epoch, activation: s.activation, holder: holder, state: state}
}

// TestTheHistoryOfARoleIsLinearizable lets callers whose clocks differ by up to
// 30 seconds reserve, change, acknowledge and read one role at once.
func TestTheHistoryOfARoleIsLinearizable(t *testing.T) {
	eachRound(t, 2, func(t *testing.T, b *bed, seed uint64) {
		h := roleHistory(t, b, seed, 5, 14)
		if done := h.count(isDone); done < 10 {
			t.Fatalf("only %d of %d calls were done", done, len(h.operations))
		}
		check(t, roleModel{}, h)
	})
}

func roleHistory(t *testing.T, b *bed, seed uint64, callers, calls int) *history {
	t.Helper()
	h := newHistory()
	all := b.callers(callers, seed)
	for _, c := range all {
		c.skew = time.Duration(c.number*15-30) * time.Second
	}
	openRole(t, all...)
	atOnce(all, func(c *caller) {
		seen := reservedOnce
		for n := range calls {
			c.disturb()
			if reply := c.sendRole(t, h, c.nextRole(seen, n)); reply.stands.exists {
				seen = reply.stands
			}
		}
	})
	return h
}

func (c *caller) nextRole(seen roleRegister, n int) roleCall {
	switch c.random.IntN(5) {
	case 0:
		return seen.expect("read", c.id, "")
	case 1:
		return seen.expect("cas", c.id, string(core.RoleStates[c.random.IntN(len(core.RoleStates))]))
	case 2:
		return seen.expect("ack", c.id, "")
	}
	call := seen.expect("reserve", c.id, "")
	call.activation = fmt.Sprintf("%s-%d", c.id, n)
	return call
}

func (c *caller) sendRole(t *testing.T, h *history, call roleCall) roleReply {
	return record(h, c, call, func() (roleCall, roleReply) {
		c.tick()
		return call, call.send(t.Context(), c)
	})
}

func (c *caller) compareAndSet(ctx context.Context, call roleCall) (core.RoleOutcome, error) {
	return c.hub.CompareAndSetRole(ctx, core.RoleCAS{
		Wire: roleKey.Wire(), Patch: core.RolePatch{State: core.Some(core.RoleState(call.state))},
		Expected: core.RoleExpectation{
			Version: core.Some(call.version), Epoch: core.Some(call.epoch), ActivationSeq: core.Some(call.epoch), ActivationID: core.Some(call.activation),
		},
	})
}

func (c roleCall) send(ctx context.Context, by *caller) roleReply {
	wire := roleKey.Wire()
	switch c.op {
	case "reserve":
		done, err := by.hub.ReserveRole(ctx, core.RoleReservation{
			Wire: wire, Version: core.Some(c.version), Epoch: core.Some(c.epoch),
			Patch: core.RolePatch{Holder: core.Some(c.holder), ActivationID: core.Some(c.activation)},
		})
		return replyOf(done.Role, err).orLate(done)
	case "cas":
		done, err := by.compareAndSet(ctx, c)
		return replyOf(done.Role, err).orLate(done)
	case "ack":
		done, err := by.hub.AcknowledgeRole(ctx, core.AckRoleRequest{
			AgentID: by.id, Wire: wire, HolderAgentID: by.id, Epoch: c.epoch, ActivationSeq: c.epoch, ActivationID: c.activation,
			CharterWire: wire, CharterEpoch: c.epoch, Fences: core.Fences{Generation: core.Some(int64(1))},
		})
		reply := replyOf(done.Role, err)
		reply.again = err == nil && done.Idempotent
		return reply
	}
	role, err := by.store.ReadRole(ctx, wire)
	return replyOf(role, err)
}

func (r roleReply) orLate(o core.RoleOutcome) roleReply {
	r.late = o.Replayed
	return r
}

func replyOf(r core.Role, err error) roleReply {
	if err == nil {
		return roleReply{stands: registerOf(r)}
	}
	reply := roleReply{told: tell(err)}
	var refusal *core.Error
	if errors.As(err, &refusal) {
		stands, _ := refusal.Data.(core.RoleStands)
		reply.stands = registerOf(stands.Role.Value)
	}
	return reply
}
