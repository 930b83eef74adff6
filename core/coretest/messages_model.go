package coretest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"drawbridge/core"
)

// RunMessageModel drives a hub and the simplest description of its messages
// through the same random steps and compares everything that can be seen.
func RunMessageModel(t *testing.T, h MessageHarness, seed uint64, steps int) {
	m := &model{
		post: newPost(t, h), random: rand.New(rand.NewPCG(seed, 0)), agents: map[string]*modelFollower{},
	}
	for _, id := range modelAgents {
		m.reregister(id)
	}
	for step := range steps {
		m.clock.Advance(time.Duration(1+m.random.IntN(400)) * time.Millisecond)
		m.step()
		if t.Failed() {
			t.Fatalf("seed %d, step %d", seed, step)
		}
		if step%(steps/20) == steps/20-1 { // it reads everything there is
			m.compareAll()
		}
	}
	t.Log(m.summary())
}

var (
	modelAgents = []string{"a", "b", "c", "d"}
	modelTopics = []string{"x", "y", "z"}
)

// model is what the hub should hold.
type model struct {
	*post
	random  *rand.Rand
	agents  map[string]*modelFollower
	letters []*modelLetter // deliveries, and records of topics that nobody followed
	past    []*modelLetter // what dead letters were when they were redriven
	sent    int
}

type modelFollower struct {
	topics     []string
	offline    bool
	generation int64
}

// modelLetter is a delivery. A notice has no id before it is seen: its key names
// what it is about.
type modelLetter struct {
	core.Delivery
	key string
}

// keyOf names a message apart from its id, where the hub chose it unseen.
func keyOf(d core.Delivery) string {
	if d.From != "hub-sweeper" {
		return d.ID
	}
	var about struct {
		MessageID string `json:"message_id"`
		Recipient string `json:"recipient"`
	}
	if err := json.Unmarshal(d.Payload.JSON, &about); err != nil {
		return err.Error()
	}
	return "notice of " + about.MessageID + "/" + about.Recipient
}

func (m *model) step() {
	share := m.random.IntN(100)
	for _, action := range []struct {
		share int
		run   func()
	}{
		{30, m.publish}, {8, m.drainAll}, {4, m.peek}, {14, m.leaseSome}, {12, m.ackReceipt}, {5, m.ackID}, {10, m.nack},
		{4, func() { m.clock.Advance(time.Duration(m.random.IntN(20_000)) * time.Millisecond) }},
		{3, m.sweepAll}, {4, m.redrive}, {2, func() { m.reregister(m.agent()) }}, {1, m.leave}, {3, m.compareTrace},
	} {
		if share -= action.share; share < 0 {
			action.run()
			return
		}
	}
}

func (m *model) agent() string { return modelAgents[m.random.IntN(len(modelAgents))] }

func (m *model) chance(one int) bool { return m.random.IntN(one) == 0 }

func (m *model) reregister(id string) {
	var topics []string
	for _, topic := range modelTopics[:2] { // nobody ever follows the last
		if m.chance(2) {
			topics = append(topics, topic)
		}
	}
	if m.chance(5) && m.sent > 100 {
		topics = append(topics, modelTopics[2]) // but late, for redrives
	}
	done, err := m.hub.Register(m.ctx, core.RegisterRequest{AgentID: id, CLI: "codex", Topics: topics, TimeoutSec: core.Some(2_000_000.0)})
	m.must(err)
	m.agents[id] = &modelFollower{topics: topics, generation: done.Generation}
}

func (m *model) leave() {
	id := m.agent()
	_, err := m.hub.Deregister(m.ctx, core.DeregisterRequest{AgentID: id})
	m.must(err)
	m.agents[id].offline = true
}

func (m *model) followers(topic string) []string {
	var ids []string
	for _, id := range modelAgents {
		if a := m.agents[id]; !a.offline && slices.Contains(a.topics, topic) {
			ids = append(ids, id)
		}
	}
	return ids
}

// fences are none, the agent's own, or stale ones.
func (m *model) fences(agent string) (core.Fences, bool) {
	switch m.random.IntN(6) {
	case 0:
		return core.Fences{Generation: core.Some(m.agents[agent].generation)}, true
	case 1:
		return core.Fences{Generation: core.Some(m.agents[agent].generation - 1)}, false
	}
	return core.Fences{}, true
}

func (m *model) publish() {
	m.sent++
	from := m.agent()
	fences, valid := m.fences(from)
	r := core.PublishRequest{
		From: from, Topic: modelTopics[m.random.IntN(2)], Priority: 1 + m.random.Int64N(9), TTLMs: 1 + m.random.Int64N(60_000),
		Type: core.MessageTypes[m.random.IntN(4)], TraceID: fmt.Sprint("trace-", m.sent/3), Fences: fences,
		Payload: json.RawMessage(fmt.Sprintf(`{"n":%d}`, m.sent)),
	}
	if m.chance(10) {
		r.MaxDeliveries = core.Some(1 + m.random.Int64N(2))
	}
	if m.chance(40) {
		r.Payload = json.RawMessage(`"` + strings.Repeat("x", 9000) + `"`)
	}
	topic := ""
	if r.To = m.agent(); m.chance(3) {
		topic = modelTopics[m.random.IntN(3)]
		r.To = "topic:" + topic
	}
	done, err := m.hub.Publish(m.ctx, r)
	if !valid {
		m.wantCode(err, core.CodeStalePresenceOwner)
		return
	}
	m.must(err)
	inboxes := []string{r.To}
	if topic != "" {
		inboxes = m.followers(topic)
	}
	if done.FanoutCount != int64(len(inboxes)) {
		m.t.Errorf("fan-out to %s is %d, want %v", r.To, done.FanoutCount, inboxes)
	}
	if len(inboxes) == 0 {
		inboxes = []string{""}
	}
	now := m.now()
	for _, inbox := range inboxes {
		m.letters = append(m.letters, &modelLetter{key: done.MessageID, Delivery: core.Delivery{
			Message: core.Message{
				ID: done.MessageID, Type: r.Type, From: r.From, To: r.To, Topic: r.Topic, Priority: r.Priority,
				TTL: time.Duration(r.TTLMs) * time.Millisecond, CreatedAt: now, ExpiresAt: now + core.Instant(r.TTLMs),
				TraceID: r.TraceID, MaxDeliveries: r.MaxDeliveries.Value,
			},
			Inbox: inbox, State: core.DeliveryPending,
		}})
	}
}

func isLive(l *modelLetter) bool {
	return l.State == core.DeliveryPending || l.State == core.DeliveryHidden
}

// order compares what may be told apart: notices of one sweep are equals.
func order(a, b *modelLetter) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.CreatedAt, b.CreatedAt))
}

// takes is what a drain should hand out, and what it should end on the way.
func (m *model) takes(r core.DrainRequest) (batch, candidates, spent []*modelLetter) {
	for _, l := range m.letters {
		if l.Inbox != r.AgentID || !isLive(l) || l.ExpiresAt <= m.now() || l.State == core.DeliveryHidden && l.VisibleAt > m.now() {
			continue
		}
		if len(r.Topics) == 0 || slices.Contains(r.Topics, l.Topic) {
			candidates = append(candidates, l)
		}
	}
	slices.SortStableFunc(candidates, order)
	for _, l := range candidates {
		if int64(len(batch)) == r.Max {
			break
		}
		if l.MaxDeliveries > 0 && l.Deliveries >= l.MaxDeliveries {
			spent = append(spent, l)
			continue
		}
		batch = append(batch, l)
	}
	return batch, candidates, spent
}

// runDrain drains, compares and returns what was handed out.
func (m *model) runDrain(change func(*core.DrainRequest)) []*modelLetter {
	r := core.DrainRequest{AgentID: m.agent(), Max: 1 + m.random.Int64N(12)}
	if m.chance(4) {
		r.Topics = []string{modelTopics[m.random.IntN(2)], "handoff.dead_letter"}
	}
	change(&r)
	fences, valid := m.fences(r.AgentID)
	r.Fences = fences
	done, err := m.hub.Drain(m.ctx, r)
	if !valid {
		m.wantCode(err, core.CodeStalePresenceOwner)
		return nil
	}
	m.must(err)
	batch, candidates, spent := m.takes(r)
	if len(done.Messages) != len(batch) {
		m.t.Errorf("the drain %+v got %v, want %d", r, ids(done.Messages), len(batch))
		for _, d := range done.Messages {
			for _, l := range m.letters {
				if l.key == keyOf(d) && l.Inbox == r.AgentID {
					m.t.Logf("the model has %+v", l)
				}
			}
		}
		return nil
	}
	var got []*modelLetter
	for i, d := range done.Messages {
		at := slices.IndexFunc(candidates, func(l *modelLetter) bool { return l.key == keyOf(d) })
		if at < 0 || slices.Contains(got, candidates[at]) || order(candidates[at], batch[i]) != 0 {
			m.t.Errorf("place %d of the drain %+v has %s, want %s", i, r, keyOf(d), batch[i].key)
			return nil
		}
		l := candidates[at]
		l.ID, l.Receipt = d.ID, d.Receipt
		got = append(got, l)
	}
	for _, l := range spent {
		m.kill(l, core.DeadMaxDeliveries)
	}
	return got
}

func (m *model) drainAll() {
	for _, l := range m.runDrain(func(r *core.DrainRequest) { r.AutoAck = true }) {
		l.State = core.DeliveryAcked
		l.Deliveries++
	}
}

func (m *model) peek() { m.runDrain(func(*core.DrainRequest) {}) }

func (m *model) leaseSome() {
	visibility := 1000 + m.random.Int64N(20_000)
	for _, l := range m.runDrain(func(r *core.DrainRequest) { r.VisibilityMs = core.Some(visibility) }) {
		l.State, l.VisibleAt = core.DeliveryHidden, m.now()+core.Instant(visibility)
		l.Deliveries++
	}
}

// known picks a letter that an agent has seen, and now and then one it has not.
func (m *model) known() *modelLetter {
	var some []*modelLetter
	for _, l := range m.letters[max(0, len(m.letters)-60):] {
		if l.Inbox != "" && l.ID != "" {
			some = append(some, l)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[m.random.IntN(len(some))]
}

// settled is the outcome that acknowledging or giving back should have.
func (m *model) settled(l *modelLetter, receipt string) core.Code {
	switch {
	case l.State == core.DeliveryAcked:
		return core.CodeAlreadyAcked
	case l.State == core.DeliveryDead:
		return core.CodeDeadLettered
	case l.ExpiresAt <= m.now():
		return core.CodeExpired
	case receipt == "" && l.Receipt != "" && l.VisibleAt > m.now(), receipt != "" && receipt != l.Receipt:
		return core.CodeReceiptStale
	}
	return ""
}

func (m *model) receipt(l *modelLetter) string {
	if l.Receipt == "" || m.chance(6) {
		return l.ID + ".another"
	}
	return l.Receipt
}

func (m *model) ackReceipt() {
	if l := m.known(); l != nil {
		receipt := m.receipt(l)
		want := m.settled(l, receipt)
		m.wantCodes(m.ack(core.AckRequest{AgentID: l.Inbox, Receipts: []string{receipt}}), want)
		m.acked(l, want)
	}
}

func (m *model) ackID() {
	if l := m.known(); l != nil {
		want := m.settled(l, "")
		m.wantCodes(m.ack(core.AckRequest{AgentID: l.Inbox, MessageIDs: []string{l.ID}}), want)
		m.acked(l, want)
	}
}

func (m *model) acked(l *modelLetter, code core.Code) {
	if code == "" {
		l.State = core.DeliveryAcked
	}
}

func (m *model) nack() {
	l := m.known()
	if l == nil {
		return
	}
	receipt, delay := m.receipt(l), m.random.Int64N(2)*m.random.Int64N(10_000)
	want := m.settled(l, receipt)
	done, err := m.hub.Nack(m.ctx, core.NackRequest{AgentID: l.Inbox, Receipts: []string{receipt}, DelayMs: delay, Error: fmt.Sprint("e", m.sent)})
	m.must(err)
	m.wantCodes(done, want)
	if want != "" {
		return
	}
	l.LastError = fmt.Sprint("e", m.sent)
	if l.MaxDeliveries > 0 && l.Deliveries >= l.MaxDeliveries {
		m.kill(l, core.DeadMaxDeliveries)
		return
	}
	l.State, l.VisibleAt, l.Receipt = core.DeliveryHidden, m.now()+core.Instant(delay), ""
}

// kill makes a dead letter, and the notice of a first death.
func (m *model) kill(l *modelLetter, reason core.DeadLetterReason) {
	l.State, l.Reason, l.FailedAt, l.RedrivenAt = core.DeliveryDead, reason, m.now(), 0
	told := (l.Type == core.MessageRequest || l.Type == core.MessageHandoff) && l.DeadLetterings == 0
	if l.DeadLetterings++; !told {
		return
	}
	m.letters = append(m.letters, &modelLetter{key: "notice of " + l.ID + "/" + l.Inbox, Delivery: core.Delivery{
		Message: core.Message{
			Type: core.MessageEvent, From: "hub-sweeper", To: l.From, Topic: "handoff.dead_letter", Priority: 7,
			TTL: 300 * time.Second, CreatedAt: m.now(), ExpiresAt: m.now() + 300_000, TraceID: l.TraceID,
		},
		Inbox: l.From, State: core.DeliveryPending,
	}})
}

func (m *model) sweepAll() {
	s := m.sweep()
	dead := 0
	for _, l := range slices.Clone(m.letters) {
		if isLive(l) && l.ExpiresAt <= m.now() {
			m.kill(l, core.DeadExpired)
			dead++
		}
	}
	if s.DeadLettered != dead {
		m.t.Errorf("the sweep counts %+v, want %d", s, dead)
	}
}

func (m *model) redrive() {
	letters := m.deadLetters()
	if len(letters) == 0 {
		return
	}
	letter := letters[m.random.IntN(len(letters))]
	ttl := core.Opt[int64]{Value: 1 + m.random.Int64N(60_000), Set: m.chance(2)}
	done, err := m.hub.Redrive(m.ctx, core.RedriveRequest{IDs: []string{letter.ID}, TTLMs: ttl})
	m.must(err)
	i := slices.IndexFunc(m.letters, func(l *modelLetter) bool { return l.key == keyOf(letter.Delivery) && l.Inbox == letter.Inbox })
	if i < 0 {
		m.t.Errorf("there is a dead letter of %s", keyOf(letter.Delivery))
		return
	}
	l := m.letters[i]
	want := core.Code("")
	if l.State != core.DeliveryDead || l.DeadLetterings != letter.DeadLetterings {
		want = core.CodeAlreadyRedriven
	}
	if done.Results[0].Code != want {
		m.t.Errorf("redriving %s has the outcome %q, want %q", l.key, done.Results[0].Code, want)
	}
	if want == "" {
		m.revive(l, ttl)
	}
}

func (m *model) revive(l *modelLetter, ttl core.Opt[int64]) {
	before := *l
	before.RedrivenAt = m.now()
	m.past = append(m.past, &before)
	if ttl.Set {
		l.TTL = time.Duration(ttl.Value) * time.Millisecond
	}
	l.ExpiresAt = m.now().Add(l.TTL)
	l.State, l.Deliveries, l.Receipt, l.LastError, l.VisibleAt = core.DeliveryPending, 0, "", "", 0
	if l.Inbox != "" {
		return
	}
	for _, id := range m.followers(strings.TrimPrefix(l.To, "topic:")) {
		delivery := *l
		delivery.Inbox, delivery.State, delivery.DeadLetterings = id, core.DeliveryPending, 0
		m.letters = append(m.letters, &delivery)
		l.State = core.DeliveryFanned
	}
}

// summary tells what the steps came to: a model that nothing happens in agrees
// with everything.
func (m *model) summary() string {
	states := map[core.DeliveryState]int{}
	reasons := map[core.DeadLetterReason]int{}
	for _, l := range slices.Concat(m.letters, m.past) {
		states[l.State]++
		reasons[l.Reason]++
	}
	return fmt.Sprintf("%d messages sent, deliveries %v, deaths %v, %d redriven", m.sent, states, reasons, len(m.past))
}

// compareTrace compares the messages of a trace and their statuses.
func (m *model) compareTrace() {
	trace := fmt.Sprint("trace-", m.random.IntN(m.sent/3+1))
	report, err := m.hub.Status(m.ctx, core.StatusQuery{Scope: core.StatusScopeTrace, TraceID: trace})
	m.must(err)
	want := map[string]core.MessageStatus{}
	rank := []core.MessageStatus{core.MessageDelivered, core.MessageQueued, core.MessageExpired, core.MessageDeadLetter, core.MessageAcked}
	for _, l := range m.letters {
		if l.TraceID != trace || l.State == core.DeliveryFanned {
			continue
		}
		status := m.statusOf(l)
		if had, ok := want[l.key]; !ok || slices.Index(rank, status) < slices.Index(rank, had) {
			want[l.key] = status
		}
	}
	for _, got := range report.Trace {
		key := keyOf(core.Delivery{Message: got.Message})
		if want[key] != got.Status {
			m.t.Errorf("%s reads %s in its trace, want %q", key, got.Status, want[key])
		}
		delete(want, key)
	}
	if len(want) > 0 {
		m.t.Errorf("the trace lacks %v", want)
	}
}

func (m *model) statusOf(l *modelLetter) core.MessageStatus {
	switch {
	case l.State == core.DeliveryAcked:
		return core.MessageAcked
	case l.State == core.DeliveryDead:
		return core.MessageDeadLetter
	case l.ExpiresAt <= m.now():
		return core.MessageExpired
	case l.Inbox == "":
		return core.MessageQueued
	}
	return core.MessageDelivered
}

// compareAll compares every inbox's count and all dead letters.
func (m *model) compareAll() {
	for _, id := range modelAgents {
		want := int64(0)
		for _, l := range m.letters {
			if l.Inbox == id && isLive(l) && l.ExpiresAt > m.now() {
				want++
			}
		}
		if got, err := m.Store.CountInbox(m.ctx, id, m.now(), 100_000); err != nil || got != want {
			m.t.Errorf("%s has %d pending, want %d (%v)", id, got, want, err)
		}
	}
	describe := func(d core.Delivery, key string) string {
		return fmt.Sprintf("%s in %q, death %d of %s at %d after %d, %q, redriven at %d", key, d.Inbox, d.DeadLetterings, d.Reason, d.FailedAt, d.Deliveries, d.LastError, d.RedrivenAt)
	}
	var want, got []string
	for _, l := range slices.Concat(m.letters, m.past) {
		if l.State == core.DeliveryDead {
			want = append(want, describe(l.Delivery, l.key))
		}
	}
	q := core.DeadLetterQuery{Limit: 100}
	for {
		list, err := m.hub.DeadLetters(m.ctx, q)
		m.must(err)
		for _, l := range list.Letters {
			got = append(got, describe(l.Delivery, keyOf(l.Delivery)))
		}
		if q.Cursor = list.NextCursor; q.Cursor == "" {
			break
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			m.t.Fatalf("dead letters differ: %d, want %d; first at %d:\ngot  %v\nwant %v", len(got), len(want), i, got[i:min(i+1, len(got))], want[i:min(i+1, len(want))])
		}
	}
}
