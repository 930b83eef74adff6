package core_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"drawbridge/core"
	"drawbridge/core/coretest"
)

// mailroom is a store of messages with one inbox, as a test puts it there. What
// a test does not ask of it is not there.
type mailroom struct {
	core.MessageStore
	mu        sync.Mutex
	inbox     []core.Delivery
	scans     int
	changed   []core.DeliveryChange
	outcomes  []core.ChangeOutcome // "": every change is done
	refusal   core.GuardRefusal
	dead      []core.DeadLettering
	put       []core.Publication
	answer    core.PublicationOutcome
	followers []core.Follower
	forgotten []core.Follower
	due       []core.DueDeliveries
	later     func() // what happens while the second page of due ones is read
	read      int
}

func (m *mailroom) PutMessage(_ context.Context, p core.Publication) (core.PublicationOutcome, error) {
	m.put = append(m.put, p)
	return m.answer, nil
}

func (m *mailroom) ReadInbox(_ context.Context, s core.InboxScan) (core.InboxPage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scans++
	if s.Lapsed.Set {
		return core.InboxPage{}, nil
	}
	page := core.InboxPage{}
	for _, d := range m.inbox {
		if d.Inbox == s.Inbox {
			page.Deliveries = append(page.Deliveries, d)
		}
	}
	return page, nil
}

func (m *mailroom) CountInbox(context.Context, string, core.Instant, int) (int64, error) {
	return 600, nil
}

func (m *mailroom) LoadPayloads(context.Context, []core.Delivery) error { return nil }

func (m *mailroom) ChangeDeliveries(_ context.Context, changes []core.DeliveryChange, _ core.InboxGuard, _ core.WriteStamp) ([]core.ChangeOutcome, core.GuardRefusal, error) {
	m.changed = append(m.changed, changes...)
	if m.refusal.Refused() {
		return nil, m.refusal, nil
	}
	if m.outcomes != nil {
		return m.outcomes, core.GuardRefusal{}, nil
	}
	outcomes := make([]core.ChangeOutcome, len(changes))
	for i, c := range changes {
		outcomes[i] = core.ChangeOutcome{Done: true, Stands: c.Seen.Value}
	}
	return outcomes, core.GuardRefusal{}, nil
}

func (m *mailroom) DeadLetter(_ context.Context, d core.DeadLettering) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = append(m.dead, d)
	return true, nil
}

func (m *mailroom) Followers(context.Context, string) ([]core.Follower, error) {
	return m.followers, nil
}

func (m *mailroom) ForgetFollowers(_ context.Context, _ string, entries []core.Follower) error {
	m.forgotten = entries
	return nil
}

func (m *mailroom) MessageShards() (messages, fanouts int) { return 1, 0 }

func (m *mailroom) DueMessages(context.Context, int, core.Instant, string, int) (core.DueDeliveries, error) {
	if m.read++; m.read == 2 && m.later != nil {
		m.later()
	}
	return m.due[m.read-1], nil
}

func (m *mailroom) CountMessages(context.Context, core.Instant) (core.MessageCounts, bool, error) {
	return core.MessageCounts{}, true, nil
}

func (m *mailroom) StoreCounts(context.Context, core.MessageCounts) error { return nil }

// mailDesk is a hub with a mailroom. The agent a is in its third generation.
type mailDesk struct {
	*mailroom
	roles *roleDesk
	clock *coretest.Clock
	hub   *core.Hub
	now   core.Instant
}

func newMailDesk(t *testing.T) *mailDesk {
	t.Helper()
	roles := newRoleDesk(t)
	d := &mailDesk{mailroom: &mailroom{}, roles: roles, clock: roles.clock, now: roles.now}
	model := coretest.NewModel()
	d.hub = core.New(core.Config{
		Presence: rolePresence{shelf: roles.roleShelf}, Identity: model, Roles: roles.roleShelf, Messages: d.mailroom,
		Clock: d.clock, IDs: core.NewIDs(d.clock, rand.Reader),
	})
	return d
}

// message is one that lies in the inbox of a.
func (d *mailDesk) message(id string, change func(*core.Delivery)) core.Delivery {
	m := core.Delivery{
		Message: core.Message{ID: id, Type: core.MessageEvent, Priority: 5, CreatedAt: d.now - 100, ExpiresAt: d.now + 1},
		Inbox:   "a", State: core.DeliveryPending,
	}
	if change != nil {
		change(&m)
	}
	return m
}

func TestTheNumbersOfAMessageAreWithinTheirBounds(t *testing.T) {
	some := core.Some[int64]
	week := int64(7 * 24 * time.Hour / time.Millisecond)
	for _, test := range []struct {
		name          string
		priority, ttl int64
		most          core.Opt[int64]
		field         string // "": it is stored
	}{
		{"the lowest", 1, 1, some(1), ""},
		{"the highest", 9, week, some(1000), ""},
		{"without a limit of deliveries", 5, 1000, core.Opt[int64]{}, ""},
		{"a priority too low", 0, 1000, some(1), "priority"},
		{"a priority too high", 10, 1000, some(1), "priority"},
		{"no time to live", 5, 0, some(1), "ttl_ms"},
		{"too long to live", 5, week + 1, some(1), "ttl_ms"},
		{"no deliveries", 5, 1000, some(0), "max_deliveries"},
		{"too many deliveries", 5, 1000, some(1001), "max_deliveries"},
	} {
		d := newMailDesk(t)
		_, err := d.hub.Publish(t.Context(), core.PublishRequest{
			From: "b", To: "a", Topic: "t", Priority: test.priority, TTLMs: test.ttl, MaxDeliveries: test.most,
		})
		if refusedField(err) != test.field || len(d.put) > 0 != (test.field == "") {
			t.Errorf("%s: %v, %d stored", test.name, err, len(d.put))
		}
	}
}

// refusedField is the field that an argument's refusal begins with, "" without one.
func refusedField(err error) string {
	var refusal *core.Error
	if !errors.As(err, &refusal) || refusal.Code != core.CodeInvalidArgument {
		return ""
	}
	field, _, _ := strings.Cut(refusal.Message, " ")
	return field
}

func TestAControlMessageLivesWithinItsBounds(t *testing.T) {
	for ttl, want := range map[int64]time.Duration{
		0: time.Hour, -1: time.Second, 1: time.Second, 999: time.Second, 1001: 1001 * time.Millisecond,
		86_400_000: 24 * time.Hour, 86_400_001: 24 * time.Hour,
	} {
		d := newMailDesk(t)
		_, err := d.hub.Control(t.Context(), core.ControlRequest{From: "b", To: "a", Command: "stop", TTLMs: ttl})
		if err != nil || d.put[0].Delivery.TTL != want {
			t.Errorf("with ttl_ms %d: %+v, %v", ttl, d.put, err)
		}
	}
}

// A publish tells whether somebody holds the role now; what was stored before
// tells nothing new.
func TestAMessageToARoleIsCountedWhereSomebodyHoldsIt(t *testing.T) {
	role := core.RoleAddressPrefix + deskProject.Wire()
	leads := func(d *mailDesk) {
		d.roles.agent("a", func(a *core.Agent) { a.Capabilities = []string{"cto"} })
		d.roles.legacy, d.roles.legacyIDs = core.LegacyState{Leader: "a", Source: "explicit"}, []string{"a"}
	}
	for _, test := range []struct {
		name string
		to   string
		set  func(*mailDesk)
		want int64
	}{
		{"held", role, func(*mailDesk) {}, 1},
		{"the holder's lease ends now", role, func(d *mailDesk) { d.roles.lapse() }, 0},
		{"closed", role, func(d *mailDesk) { d.roles.board.Role.Closed = true }, 0},
		{"reserved", role, func(d *mailDesk) { d.roles.probing("a", time.Second) }, 0},
		{"held, and stored before", role, func(d *mailDesk) { d.answer.Replayed = true }, 0},
		{"the cto leads", "topic:cto", leads, 1},
		{"the cto leads, and stored before", "topic:cto", func(d *mailDesk) { leads(d); d.answer.Replayed = true }, 0},
		{"no cto", "topic:cto", func(*mailDesk) {}, 0},
	} {
		d := newMailDesk(t)
		test.set(d)
		published, err := d.hub.Publish(t.Context(), core.PublishRequest{From: "b", To: test.to, Topic: "t", Priority: 5, TTLMs: 1000})
		if err != nil || published.FanoutCount != test.want || published.Replayed != d.answer.Replayed {
			t.Errorf("%s: %+v, %v", test.name, published, err)
		}
	}
}

func TestAnOldEntryOfWhoFollowsNoMoreIsForgotten(t *testing.T) {
	d := newMailDesk(t)
	hour := core.Instant(time.Hour / time.Millisecond)
	stranger := core.Agent{Status: core.StatusOnline, LeaseExpires: d.now + 1}
	follower := stranger
	follower.Topics = []string{"t"}
	d.followers = []core.Follower{
		{AgentID: "older than an hour", WrittenAt: d.now - hour - 1, Agent: stranger},
		{AgentID: "an hour old", WrittenAt: d.now - hour, Agent: stranger},
		{AgentID: "new", WrittenAt: d.now, Agent: stranger},
		{AgentID: "unknown and old", WrittenAt: d.now - hour - 1},
	}
	if _, err := d.hub.Publish(t.Context(), core.PublishRequest{From: "b", To: "topic:t", Topic: "t", Priority: 5, TTLMs: 1000}); err != nil {
		t.Fatal(err)
	}
	var forgotten []string
	for _, f := range d.forgotten {
		forgotten = append(forgotten, f.AgentID)
	}
	if want := []string{"older than an hour", "unknown and old"}; !slices.Equal(forgotten, want) {
		t.Errorf("it forgets %q", forgotten)
	}
}

func TestADrainIsAskedForWithinItsBounds(t *testing.T) {
	some := core.Some[int64]
	for _, test := range []struct {
		name       string
		visibility core.Opt[int64]
		most       core.Opt[int64]
		field      string // "": it drains
	}{
		{"neither", core.Opt[int64]{}, core.Opt[int64]{}, ""},
		{"the shortest lease and one delivery", some(1000), some(1), ""},
		{"the longest lease and the most deliveries", some(43_200_000), some(1000), ""},
		{"too short a lease", some(999), some(1), "visibility_ms"},
		{"too long a lease", some(43_200_001), some(1), "visibility_ms"},
		{"no delivery", some(1000), some(0), "max_deliveries"},
		{"too many deliveries", some(1000), some(1001), "max_deliveries"},
	} {
		d := newMailDesk(t)
		_, err := d.hub.Drain(t.Context(), core.DrainRequest{AgentID: "a", Max: 1, VisibilityMs: test.visibility, MaxDeliveries: test.most})
		if refusedField(err) != test.field || test.field == "" && err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	for _, most := range []int64{0, -1, -1 << 40} {
		d := newMailDesk(t)
		d.inbox = []core.Delivery{d.message("m", nil)}
		d.roles.agent("a", func(a *core.Agent) { a.Holds = []core.RoleHold{{Wire: deskProject.Wire(), Epoch: 5}} })
		if drained, err := d.hub.Drain(t.Context(), core.DrainRequest{AgentID: "a", Max: most, AutoAck: true}); err != nil || len(drained.Messages) > 0 || d.scans > 0 {
			t.Errorf("of %d: %+v, %v after %d reads", most, drained, err, d.scans)
		}
	}
}

func TestADrainHandsOutByPriorityThenAgeThenID(t *testing.T) {
	d := newMailDesk(t)
	for id, m := range map[string]struct {
		priority int64
		age      core.Instant
	}{"4": {5, 9}, "1": {5, 9}, "3": {9, 1}, "2": {5, 1}, "0": {1, 99}} {
		d.inbox = append(d.inbox, d.message(id, func(x *core.Delivery) { x.Priority, x.CreatedAt = m.priority, d.now-m.age }))
	}
	drained, err := d.hub.Drain(t.Context(), core.DrainRequest{AgentID: "a", Max: 100, AutoAck: true})
	var order []string
	for _, m := range drained.Messages {
		order = append(order, m.ID)
	}
	if err != nil || !slices.Equal(order, []string{"3", "1", "4", "2", "0"}) {
		t.Errorf("it hands out %q, %v", order, err)
	}
}

// The stricter of the message's limit and the drain's holds.
func TestADrainPassesOverWhatWasHandedOutAsOftenAsItMay(t *testing.T) {
	for _, test := range []struct {
		of, asked, before int64
		taken             bool
		limit             int64
	}{
		{0, 0, 99, true, 0},
		{0, 3, 2, true, 3},
		{0, 3, 3, false, 0},
		{3, 0, 2, true, 3},
		{3, 0, 3, false, 0},
		{3, 5, 2, true, 3},
		{3, 5, 3, false, 0},
		{5, 3, 2, true, 3},
		{5, 3, 3, false, 0},
		{3, 3, 2, true, 3},
	} {
		d := newMailDesk(t)
		d.inbox = []core.Delivery{d.message("m", func(m *core.Delivery) { m.MaxDeliveries, m.Deliveries = test.of, test.before })}
		ask := core.DrainRequest{AgentID: "a", Max: 1, VisibilityMs: core.Some[int64](1000)}
		if test.asked > 0 {
			ask.MaxDeliveries = core.Some(test.asked)
		}
		drained, err := d.hub.Drain(t.Context(), ask)
		name := fmt.Sprintf("a limit of %d, asked for %d, handed out %d times", test.of, test.asked, test.before)
		if err != nil || len(drained.Messages) > 0 != test.taken || len(d.dead) > 0 == test.taken {
			t.Errorf("%s: %+v, %d dead, %v", name, drained.Messages, len(d.dead), err)
		}
		if test.taken && d.changed[0].MaxDeliveries != test.limit {
			t.Errorf("%s: the limit is %d now", name, d.changed[0].MaxDeliveries)
		}
	}
}

func TestADrainIsTheAgentsInItsGeneration(t *testing.T) {
	fence := core.Fences{Generation: core.Some[int64](3)}
	at := func(generation int64, final bool) core.GuardRefusal {
		return core.GuardRefusal{Agent: core.Some(core.Agent{ID: "a", Generation: generation, Final: final})}
	}
	for _, test := range []struct {
		name    string
		set     func(*mailDesk)
		refusal core.GuardRefusal
		fences  core.Fences
		want    core.Code
		taken   int
	}{
		{"as it is", nil, core.GuardRefusal{}, fence, "", 1},
		{"of an earlier generation", nil, core.GuardRefusal{}, core.Fences{Generation: core.Some[int64](2)}, core.CodeStalePresenceOwner, 0},
		{"retired", func(d *mailDesk) { d.roles.agent("a", func(a *core.Agent) { a.Final = true }) }, core.GuardRefusal{}, fence, core.CodeStalePresenceOwner, 0},
		{"retired, and it does not say", func(d *mailDesk) { d.roles.agent("a", func(a *core.Agent) { a.Final = true }) }, core.GuardRefusal{}, core.Fences{}, "", 1},
		{"overtaken meanwhile", nil, at(4, false), fence, core.CodeStalePresenceOwner, 0},
		{"retired meanwhile", nil, at(3, true), fence, core.CodeStalePresenceOwner, 0},
		{"not held meanwhile by what the agent is", nil, at(3, false), fence, "", 0},
		{"not held meanwhile, and it does not say", nil, at(4, true), core.Fences{}, "", 0},
	} {
		d := newMailDesk(t)
		if test.set != nil {
			test.set(d)
		}
		d.inbox, d.refusal = []core.Delivery{d.message("m", nil)}, test.refusal
		drained, err := d.hub.Drain(t.Context(), core.DrainRequest{AgentID: "a", Max: 1, AutoAck: true, Fences: test.fences})
		if core.CodeOf(err) != test.want || len(drained.Messages) != test.taken {
			t.Errorf("%s: %+v, %v", test.name, drained, err)
		}
	}
}

func TestADrainNamesWhatItDoesNotKnowTheEndOf(t *testing.T) {
	unknown := &core.Error{Code: core.CodeOutcomeUnknown, Message: "nobody knows"}
	plain := errors.New("plain")
	for _, test := range []struct {
		name     string
		outcomes []core.ChangeOutcome
		told     string
	}{
		{"one that was taken and one not known", []core.ChangeOutcome{{Done: true}, {Err: unknown}}, "took 1, unconfirmed [2]"},
		{"one that failed and one that was taken", []core.ChangeOutcome{{Err: plain}, {Done: true}}, "took 1, unconfirmed []"},
		{"none known", []core.ChangeOutcome{{Err: unknown}, {Err: unknown}}, "OUTCOME_UNKNOWN map[message_ids:[1 2]]"},
		{"one not known behind one that failed", []core.ChangeOutcome{{Err: plain}, {Err: unknown}}, "plain"},
		{"one that failed behind one not known", []core.ChangeOutcome{{Err: unknown}, {Err: plain}}, "OUTCOME_UNKNOWN map[message_ids:[1]]"},
		{"both failed", []core.ChangeOutcome{{Err: plain}, {Err: plain}}, "plain"},
	} {
		d := newMailDesk(t)
		d.inbox, d.outcomes = []core.Delivery{d.message("1", nil), d.message("2", nil)}, test.outcomes
		drained, err := d.hub.Drain(t.Context(), core.DrainRequest{AgentID: "a", Max: 2, AutoAck: true})
		got := fmt.Sprintf("took %d, unconfirmed %v", len(drained.Messages), drained.Unconfirmed)
		var refusal *core.Error
		switch {
		case errors.As(err, &refusal):
			got = fmt.Sprintf("%s %v", refusal.Code, refusal.Details)
		case errors.Is(err, plain):
			got = "plain"
		}
		if got != test.told {
			t.Errorf("%s: %s, %v", test.name, got, err)
		}
	}
}

func TestADrainOfTheRolesOfAnAgentIsOfThoseItHolds(t *testing.T) {
	for _, test := range []struct {
		name  string
		set   func(*mailDesk)
		taken int
		gone  int
	}{
		{"held", func(*mailDesk) {}, 1, 0},
		{"held in a later epoch", func(d *mailDesk) { d.roles.board.Role.Epoch = 6 }, 1, 1},
		{"held by another", func(d *mailDesk) { d.roles.board.Role.Holder = "b" }, 0, 1},
		{"held by another generation", func(d *mailDesk) { d.roles.board.Role.HolderGeneration = 2 }, 0, 1},
		{"closed", func(d *mailDesk) { d.roles.board.Role.Closed = true }, 0, 1},
		{"reserved", func(d *mailDesk) { d.roles.board.Role.State = core.RoleProbing }, 0, 1},
		{"the lease ends now", func(d *mailDesk) { d.roles.lapse() }, 0, 0},
	} {
		d := newMailDesk(t)
		address := deskProject.Address()
		d.roles.agent("a", func(a *core.Agent) { a.Holds = []core.RoleHold{{Wire: deskProject.Wire(), Epoch: 5}} })
		d.inbox = []core.Delivery{d.message("m", func(m *core.Delivery) { m.Inbox = address })}
		test.set(d)
		drained, err := d.hub.Drain(t.Context(), core.DrainRequest{AgentID: "a", Max: 9, AutoAck: true})
		if err != nil || len(drained.Messages) != test.taken || len(d.roles.gone) != test.gone {
			t.Errorf("%s: took %d, forgets %+v, %v", test.name, len(drained.Messages), d.roles.gone, err)
		}
	}
}

func TestANackIsAskedForWithinItsBounds(t *testing.T) {
	receipts := func(n int) []string { return strings.Split(strings.Repeat("m.r ", n-1)+"m.r", " ") }
	for _, test := range []struct {
		name     string
		delay    int64
		receipts int
		field    string
	}{
		{"no delay", 0, 1, ""},
		{"the longest delay", 43_200_000, 1, ""},
		{"a delay below nothing", -1, 1, "delay_ms"},
		{"too long a delay", 43_200_001, 1, "delay_ms"},
		{"the most receipts", 0, 100, ""},
		{"too many receipts", 0, 101, "receipts"},
	} {
		d := newMailDesk(t)
		_, err := d.hub.Nack(t.Context(), core.NackRequest{AgentID: "a", Receipts: receipts(test.receipts), DelayMs: test.delay})
		if refusedField(err) != test.field || test.field == "" && err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if test.field == "" && d.changed[0].VisibleAt != d.now.Add(time.Duration(test.delay)*time.Millisecond) {
			t.Errorf("%s: it is hidden until %d", test.name, d.changed[0].VisibleAt-d.now)
		}
	}
}

// A nack of the last delivery there may be makes a dead letter, if the receipt is
// that of the lease that stands.
func TestANackOfTheLastDeliveryMakesADeadLetter(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*core.Delivery)
		want   core.Code
	}{
		{"the last", nil, ""},
		{"more than the last", func(m *core.Delivery) { m.Deliveries = 4 }, ""},
		{"one before the last", func(m *core.Delivery) { m.Deliveries = 2 }, core.CodeReceiptStale},
		{"without a limit", func(m *core.Delivery) { m.MaxDeliveries = 0 }, core.CodeReceiptStale},
		{"another receipt", func(m *core.Delivery) { m.Receipt = "m.s" }, core.CodeReceiptStale},
		{"expired", func(m *core.Delivery) { m.ExpiresAt-- }, core.CodeExpired},
		{"acknowledged", func(m *core.Delivery) { m.State = core.DeliveryAcked }, core.CodeAlreadyAcked},
		{"dead", func(m *core.Delivery) { m.State = core.DeliveryDead }, core.CodeDeadLettered},
		{"not there", func(m *core.Delivery) { m.ID = "" }, core.CodeNotFound},
	} {
		d := newMailDesk(t)
		stands := d.message("m", func(m *core.Delivery) {
			m.State, m.Receipt, m.MaxDeliveries, m.Deliveries = core.DeliveryHidden, "m.r", 3, 3
			if test.change != nil {
				test.change(m)
			}
		})
		if test.name == "not there" {
			stands = core.Delivery{}
		}
		d.outcomes = []core.ChangeOutcome{{Stands: stands}}
		done, err := d.hub.Nack(t.Context(), core.NackRequest{AgentID: "a", Receipts: []string{"m.r"}, Error: "why"})
		if err != nil || done.Results[0].Code != test.want || len(d.dead) > 0 != (test.want == "") {
			t.Errorf("%s: %+v, %d dead, %v", test.name, done, len(d.dead), err)
		}
	}
}

// A receipt names its inbox: only an id is looked for in the inboxes of roles.
func TestOnlyAnIDIsLookedForInTheInboxesOfRoles(t *testing.T) {
	for _, test := range []struct {
		name string
		ask  core.AckRequest
		want int
	}{
		{"an id", core.AckRequest{AgentID: "a", MessageIDs: []string{"m"}}, 2},
		{"a receipt", core.AckRequest{AgentID: "a", Receipts: []string{"m.r"}}, 1},
	} {
		d := newMailDesk(t)
		d.roles.agent("a", func(a *core.Agent) { a.Holds = []core.RoleHold{{Wire: deskProject.Wire(), Epoch: 5}} })
		d.outcomes = []core.ChangeOutcome{{}}
		done, err := d.hub.Ack(t.Context(), test.ask)
		if err != nil || done.Results[0].Code != core.CodeNotFound || len(d.changed) != test.want {
			t.Errorf("%s: %+v after %d writes, %v", test.name, done, len(d.changed), err)
		}
	}
}

func TestASweepOfMessagesTellsItsLongestLagAndStopsInTime(t *testing.T) {
	unreadable := errors.New("unreadable")
	page := func(oldest core.Instant, next string, damaged error, deliveries ...core.Delivery) core.DueDeliveries {
		return core.DueDeliveries{Deliveries: deliveries, Oldest: oldest, Next: next, Unreadable: damaged}
	}
	for _, test := range []struct {
		name string
		took time.Duration // of the second page
		due  func(d *mailDesk) []core.DueDeliveries
		want string
	}{
		{"what expired", 0, func(d *mailDesk) []core.DueDeliveries {
			expired := func(m *core.Delivery) { m.ExpiresAt = d.now }
			return []core.DueDeliveries{page(d.now-50, "", nil, d.message("1", expired), d.message("2", nil))}
		}, "dead 1, lost 1, lag 0s"},
		{"the first is the oldest", 0, func(d *mailDesk) []core.DueDeliveries {
			return []core.DueDeliveries{page(d.now-90, "n", unreadable), page(d.now-50, "", unreadable)}
		}, "dead 0, lost 0, lag 90ms, failed"},
		{"the second is the oldest", 0, func(d *mailDesk) []core.DueDeliveries {
			return []core.DueDeliveries{page(d.now-50, "n", unreadable), page(d.now-90, "", unreadable)}
		}, "dead 0, lost 0, lag 90ms, failed"},
		{"in time", 20 * time.Second, func(d *mailDesk) []core.DueDeliveries {
			return []core.DueDeliveries{page(d.now-90, "n", nil), page(d.now-50, "", nil)}
		}, "dead 0, lost 0, lag 0s"},
		{"late", 20*time.Second + time.Millisecond, func(d *mailDesk) []core.DueDeliveries {
			return []core.DueDeliveries{page(d.now-90, "n", nil), page(d.now-50, "", nil)}
		}, "dead 0, lost 0, lag 50ms, more"},
		{"late, after an older one that failed", 20*time.Second + time.Millisecond, func(d *mailDesk) []core.DueDeliveries {
			return []core.DueDeliveries{page(d.now-90, "n", unreadable), page(d.now-50, "", nil)}
		}, "dead 0, lost 0, lag 90ms, more, failed"},
		{"late, with nothing left", 20*time.Second + time.Millisecond, func(d *mailDesk) []core.DueDeliveries {
			return []core.DueDeliveries{page(d.now-90, "n", nil), page(0, "", nil)}
		}, "dead 0, lost 0, lag 0s"},
	} {
		d := newMailDesk(t)
		d.due = test.due(d)
		d.later = func() { d.clock.Advance(test.took) }
		swept, err := d.hub.SweepMessages(t.Context())
		got := fmt.Sprintf("dead %d, lost %d, lag %v", swept.DeadLettered, swept.Lost, swept.Lag)
		if swept.More {
			got += ", more"
		}
		if err != nil {
			got += ", failed"
		}
		if got != test.want {
			t.Errorf("%s: %s, %v", test.name, got, err)
		}
	}
}

func TestTheMessagesThatWaitForAnAgentAreCountedUpToABound(t *testing.T) {
	d := newMailDesk(t)
	for holds, want := range map[int]int64{0: 600, 1: 1000} {
		d.roles.agent("a", func(a *core.Agent) {
			a.Holds = []core.RoleHold{{Wire: deskProject.Wire(), Epoch: 5}}[:holds]
		})
		status, err := d.hub.Status(t.Context(), core.StatusQuery{Scope: core.StatusScopeAgent, AgentID: "a"})
		if err != nil || status.Agent.Pending != want {
			t.Errorf("with %d roles: %+v, %v", holds, status.Agent, err)
		}
	}
}
