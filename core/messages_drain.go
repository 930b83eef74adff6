package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// DrainRequest takes messages out of an inbox.
type DrainRequest struct {
	AgentID string
	// Topics keeps to messages of these topics; empty takes any.
	Topics []string
	Max    int64 // brought into 0..100
	// AutoAck acknowledges what is handed out: each message goes to one drain
	// and is never handed out again. Without it the messages stay pending.
	AutoAck bool
	// VisibilityMs hides what is handed out for that long and gives each message
	// a receipt: at least once, until it is acknowledged. Not with AutoAck.
	VisibilityMs Opt[int64]
	// MaxDeliveries dead-letters messages that were leased so often already; a
	// message's own limit counts where it is lower.
	MaxDeliveries Opt[int64]
	Fences        Fences
}

// Drained is the answer to a drain.
type Drained struct {
	Messages   []Delivery // as this drain left them, in the order of draining
	ServerTime Instant
	// Unconfirmed are messages that this drain may have taken without knowing
	// it: the store did not answer. They are not handed out, so that no message
	// is twice; their trace tells what they are and whether they are still
	// pending.
	Unconfirmed []string
}

// The bounds of one drain.
const (
	maxDrainLook    = 1000 // deliveries it looks at
	maxDrainRounds  = 16   // times it goes back for more because others were faster
	drainPage       = 100  // deliveries it reads at once when it may skip some
	maxDrainExpired = 100  // expired deliveries it dead-letters when they stand in its way
)

// Drain hands out messages of the agent's inbox: by priority, then age, then id
// (contract 2.13, 5.4; compat 9). The write that takes a message decides, so
// drains at once never both get an auto-acknowledged or leased one.
//
// With AutoAck a message is handed out at most once: a caller that dies before
// it read the answer finds it by its trace, acknowledged, until the retention
// ends. With VisibilityMs it is handed out at least once: the lease lapses and
// the next drain gets it. With neither, the drain changes nothing.
//
// Once it has taken a message it answers, whatever fails after that, and names
// the messages whose fate it does not know; so does the error when it has none.
//
// Errors: INVALID_ARGUMENT and those of the fences.
func (h *Hub) Drain(ctx context.Context, r DrainRequest) (Drained, error) {
	if err := r.validate(); err != nil {
		return Drained{}, err
	}
	identity, err := h.checkIdentity(ctx, r.Fences)
	if err != nil {
		return Drained{}, err
	}
	started := h.clock.Now()
	d := draining{
		hub: h, r: r, now: InstantOf(started), fence: fenceOf(r.AgentID, r.Fences), identity: identity,
		started: started, max: int(min(max(r.Max, 0), MaxDrain)), met: map[string]bool{},
	}
	if err := d.run(ctx); err != nil && len(d.taken) == 0 {
		return Drained{}, d.naming(err)
	}
	h.markDispatched(ctx, d.taken, d.now)
	return Drained{Messages: d.taken, ServerTime: d.now, Unconfirmed: d.unconfirmed}, nil
}

// naming lets an error name the messages that may have been taken.
func (d *draining) naming(err error) error {
	var known *Error
	if len(d.unconfirmed) == 0 || !errors.As(err, &known) {
		return err
	}
	named := *known
	named.Details = map[string]any{"message_ids": d.unconfirmed}
	return &named
}

func (r DrainRequest) validate() error {
	if err := checkID("agent_id", r.AgentID); err != nil {
		return err
	}
	for i, topic := range r.Topics {
		if err := checkID(fmt.Sprintf("topics[%d]", i), topic); err != nil {
			return err
		}
	}
	if v := r.VisibilityMs; v.Set {
		switch {
		case r.AutoAck:
			return Invalid("visibility_ms", "visibility_ms needs auto_ack: false")
		case v.Value < MinVisibility.Milliseconds() || v.Value > MaxVisibility.Milliseconds():
			return Invalid("visibility_ms", fmt.Sprintf("visibility_ms must be %d to %d", MinVisibility.Milliseconds(), MaxVisibility.Milliseconds()))
		}
	}
	if m := r.MaxDeliveries; m.Set && (m.Value < 1 || m.Value > MaxMaxDeliveries) {
		return Invalid("max_deliveries", fmt.Sprintf("max_deliveries must be 1 to %d", MaxMaxDeliveries))
	}
	return nil
}

// draining is one drain on its way.
type draining struct {
	hub      *Hub
	r        DrainRequest
	now      Instant
	fence    Opt[AgentFence]
	identity Identity
	started  time.Time
	max      int

	sources []*source
	queue   []Delivery // read and not yet considered, in the order of draining
	looked  int
	met     map[string]bool // ids considered: a message that moved between two reads is in both
	full    bool            // the answer holds what it may
	taken   []Delivery
	size    PayloadSize
	expired []Delivery
	spent   []Delivery // handed out as often as they may be

	unconfirmed []string

	mu         sync.Mutex
	unreadable error // of a delivery that was passed over
}

// source is an inbox that is drained: the agent's own, or one of a role it holds.
type source struct {
	inbox     string
	authority Opt[RoleAuthority] // of a role's
	next      string             // where the pending ones go on
	more      bool               // pending ones follow the last that was read
}

func (d *draining) run(ctx context.Context) error {
	if err := d.open(ctx); err != nil {
		return err
	}
	for range maxDrainRounds {
		batch := d.pick()
		if len(batch) == 0 {
			if !d.more() || d.full || d.looked >= maxDrainLook {
				break
			}
			if err := d.read(ctx); err != nil {
				return err
			}
			continue
		}
		if err := d.take(ctx, batch); err != nil {
			return err
		}
	}
	d.clear(ctx)
	return d.unreadable
}

// passOver keeps the first error of a delivery that cannot be read. It stays
// where it is and keeps no other from being drained; whoever finds nothing else
// is told.
func (d *draining) passOver(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unreadable == nil {
		d.unreadable = err
	}
}

// open reads the first pending deliveries of the agent's own inbox and, beside
// them, the agent: it tells whether the fence stands and which roles to drain
// for. The writes carry the fences again, and there they decide.
func (d *draining) open(ctx context.Context) error {
	var agent Agent
	read := inBackground(func() (err error) {
		agent, _, err = d.hub.presence.ReadAgent(ctx, d.r.AgentID)
		return err
	})
	var own []Delivery
	var err error
	if isAgentInbox(d.r.AgentID) && d.max > 0 {
		s := &source{inbox: d.r.AgentID}
		d.sources = append(d.sources, s)
		own, err = d.first(ctx, s)
	}
	if failed := read(); failed != nil {
		return fmt.Errorf("read agent: %w", failed)
	}
	if f := d.fence.Value; d.fence.Set && (agent.Generation != f.Generation || agent.Final) {
		return d.hub.staleActor(f, agent, d.identity)
	}
	if err != nil || d.max == 0 {
		return err
	}
	return d.openPosts(ctx, agent, own)
}

// openPosts adds the inboxes of the agent's roles. They are read while the roles
// tell which of them are the agent's.
func (d *draining) openPosts(ctx context.Context, agent Agent, own []Delivery) error {
	inboxes := agent.postInboxes(d.now)
	sources := make([]*source, len(inboxes))
	found := make([][]Delivery, len(inboxes))
	read := inBackground(func() error {
		return each(len(inboxes), max(len(inboxes), 1), func(i int) (err error) {
			sources[i] = &source{inbox: inboxes[i]}
			found[i], err = d.first(ctx, sources[i])
			return err
		})
	})
	posts, gone, err := d.hub.posts(ctx, agent, d.now)
	if failed := read(); err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	if len(gone) > 0 {
		// A hint is removed with its epoch: one that an acknowledgement leaves
		// meanwhile is another. What fails here is tried again by the next drain.
		_ = d.hub.roles.ForgetHolds(ctx, agent.ID, gone)
	}
	d.enqueue(own)
	for _, p := range posts {
		if i := slices.Index(inboxes, p.inbox); i >= 0 {
			sources[i].authority = Some(p.authority)
			d.sources = append(d.sources, sources[i])
			d.enqueue(found[i])
		}
	}
	return nil
}

func (d *draining) enqueue(found ...[]Delivery) {
	for _, deliveries := range found {
		d.looked += len(deliveries)
		d.queue = append(d.queue, deliveries...)
	}
	slices.SortFunc(d.queue, inOrder)
}

// first reads the first pending deliveries of an inbox and, beside them, those
// whose lease has lapsed.
func (d *draining) first(ctx context.Context, s *source) ([]Delivery, error) {
	var lapsed []Delivery
	back := inBackground(func() (err error) {
		lapsed, err = d.lapsed(ctx, s)
		return err
	})
	limit := d.max
	if len(d.r.Topics) > 0 {
		limit = drainPage
	}
	pending, err := d.page(ctx, s, limit)
	if failed := back(); err == nil {
		err = failed
	}
	return append(pending, lapsed...), err
}

// lapsed reads every lapsed lease there is, within bounds: they are in the
// order they lapsed, not in the order of draining.
func (d *draining) lapsed(ctx context.Context, s *source) ([]Delivery, error) {
	var found []Delivery
	after := ""
	for len(found) < maxDrainLook {
		page, err := d.hub.messages.ReadInbox(ctx, InboxScan{Inbox: s.inbox, Lapsed: Some(d.now), After: after, Limit: drainPage})
		if err != nil {
			return nil, fmt.Errorf("read lapsed leases: %w", err)
		}
		d.passOver(page.Unreadable)
		found = append(found, page.Deliveries...)
		if after = page.Next; after == "" {
			break
		}
	}
	return found, nil
}

func (d *draining) page(ctx context.Context, s *source, limit int) ([]Delivery, error) {
	page, err := d.hub.messages.ReadInbox(ctx, InboxScan{Inbox: s.inbox, After: s.next, Limit: limit})
	if err != nil {
		return nil, fmt.Errorf("read inbox: %w", err)
	}
	d.passOver(page.Unreadable)
	s.next, s.more = page.Next, page.Next != ""
	return page.Deliveries, nil
}

// read reads the next page of every inbox of which the queue holds none and
// more follow.
func (d *draining) read(ctx context.Context) error {
	for _, s := range d.sources {
		if !s.more || d.queues(s) {
			continue
		}
		found, err := d.page(ctx, s, drainPage)
		if err != nil {
			return err
		}
		d.enqueue(found)
	}
	return nil
}

// more tells whether pending deliveries follow those that were read.
func (d *draining) more() bool {
	return slices.ContainsFunc(d.sources, func(s *source) bool { return s.more })
}

// queues tells whether the queue holds a pending delivery of the inbox.
func (d *draining) queues(s *source) bool {
	return slices.ContainsFunc(d.queue, func(q Delivery) bool { return q.Inbox == s.inbox && q.State == DeliveryPending })
}

func inOrder(a, b Delivery) int {
	if a.before(b.Message) {
		return -1
	}
	return 1
}

// pick takes from the queue what fits the answer. Beyond the last pending one of
// an inbox it stops while more of it follow: those may come before what is left.
func (d *draining) pick() []Delivery {
	var batch []Delivery
	for len(d.queue) > 0 && len(d.taken)+len(batch) < d.max {
		if slices.ContainsFunc(d.sources, func(s *source) bool { return s.more && !d.queues(s) }) {
			return batch
		}
		head := d.queue[0]
		if !d.met[head.ID] && d.wants(head) {
			if !d.fits(head) {
				d.full = true
				return batch
			}
			batch = append(batch, head)
		}
		d.met[head.ID] = true
		d.queue = d.queue[1:]
	}
	d.full = len(d.taken)+len(batch) >= d.max
	return batch
}

// wants tells whether the drain hands a delivery out, and keeps the ones that
// are over.
func (d *draining) wants(head Delivery) bool {
	limit := tighter(head.MaxDeliveries, d.r.MaxDeliveries.Value)
	switch {
	case head.Expired(d.now):
		d.expired = append(d.expired, head)
		return false
	case len(d.r.Topics) > 0 && !slices.Contains(d.r.Topics, head.Topic):
		return false
	case limit > 0 && head.Deliveries >= limit:
		d.spent = append(d.spent, head)
		return false
	}
	return true
}

// tighter is the lower of two limits of which 0 is none.
func tighter(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// fits counts a delivery in unless the answer would become too large; the first
// always fits.
func (d *draining) fits(head Delivery) bool {
	size := head.size()
	answer, framed := d.size.Answer+size.Answer, d.size.Framed+size.Framed
	if d.size.Answer > 0 && (answer > MaxDrainBytes || framed > maxFramedBytes) {
		return false
	}
	d.size = PayloadSize{Answer: answer, Framed: framed}
	return true
}

// take loads the payloads of a batch and then takes it: a message whose payload
// cannot be read is not acknowledged.
func (d *draining) take(ctx context.Context, batch []Delivery) error {
	if err := d.hub.messages.LoadPayloads(ctx, batch); err != nil {
		return fmt.Errorf("load payloads: %w", err)
	}
	// A payload that is gone cannot be handed out: its message stays until it
	// expires, and its sender is told.
	batch = slices.DeleteFunc(batch, func(b Delivery) bool { return b.Payload.Lost })
	if !d.r.AutoAck && !d.r.VisibilityMs.Set {
		d.taken = append(d.taken, batch...)
		return nil
	}
	return d.commit(ctx, batch)
}

// commit takes a batch, each inbox under the fences that it needs. An inbox
// whose role was lost meanwhile is drained no more.
func (d *draining) commit(ctx context.Context, batch []Delivery) error {
	took := map[string]Delivery{}
	var failed error
	for _, s := range slices.Clone(d.sources) {
		var own []Delivery
		for _, delivery := range batch {
			if delivery.Inbox == s.inbox {
				own = append(own, delivery)
			}
		}
		if len(own) == 0 {
			continue
		}
		if err := d.commitInbox(ctx, s, own, took); err != nil && failed == nil {
			failed = err
		}
	}
	for _, delivery := range batch {
		if taken, ok := took[delivery.Inbox+"\x00"+delivery.ID]; ok {
			taken.Payload = delivery.Payload
			d.taken = append(d.taken, taken)
			continue
		}
		size := delivery.size()
		d.size = PayloadSize{Answer: d.size.Answer - size.Answer, Framed: d.size.Framed - size.Framed}
		d.full = false
	}
	return failed
}

func (d *draining) commitInbox(ctx context.Context, s *source, own []Delivery, took map[string]Delivery) error {
	changes := make([]DeliveryChange, len(own))
	for i, delivery := range own {
		changes[i] = d.change(delivery)
	}
	guard := InboxGuard{Agent: d.fence, Role: s.authority}
	outcomes, refusal, err := d.hub.messages.ChangeDeliveries(ctx, changes, guard, d.hub.stamp(d.started))
	switch {
	case err != nil:
		return fmt.Errorf("take messages: %w", err)
	case refusal.Agent.Set && d.fence.Set && (refusal.Agent.Value.Generation != d.fence.Value.Generation || refusal.Agent.Value.Final):
		return d.hub.staleActor(d.fence.Value, refusal.Agent.Value, d.identity)
	case refusal.Refused():
		d.close(s)
		return nil
	}
	for i, outcome := range outcomes {
		if CodeOf(outcome.Err) == CodeOutcomeUnknown {
			d.unconfirmed = append(d.unconfirmed, own[i].ID)
		}
		switch {
		case outcome.Done:
			took[own[i].Inbox+"\x00"+own[i].ID] = outcome.Stands
		case outcome.Err != nil && err == nil:
			err = outcome.Err
		}
	}
	return err
}

// close leaves an inbox alone from now on.
func (d *draining) close(s *source) {
	d.sources = slices.DeleteFunc(slices.Clone(d.sources), func(other *source) bool { return other == s })
	d.queue = slices.DeleteFunc(d.queue, func(q Delivery) bool { return q.Inbox == s.inbox })
}

// change is the write that hands a delivery out. It holds only where the
// delivery still is what the drain read.
func (d *draining) change(seen Delivery) DeliveryChange {
	c := DeliveryChange{Inbox: seen.Inbox, MessageID: seen.ID, Seen: Some(seen), HandedOut: true, To: DeliveryAcked}
	if d.r.VisibilityMs.Set {
		c.To = DeliveryHidden
		c.VisibleAt = d.now.Add(time.Duration(d.r.VisibilityMs.Value) * time.Millisecond)
		c.Lease = newReceipt(seen, d.hub.ids)
		c.MaxDeliveries = tighter(seen.MaxDeliveries, d.r.MaxDeliveries.Value)
	}
	return c
}

// clear makes dead letters of what was handed out too often, and of what
// expired where so much of it lies in the way that the drain did not get past
// it: without a sweep the messages behind would never be reached. Nothing rests
// on it: what fails here is tried again.
func (d *draining) clear(ctx context.Context) {
	for _, spent := range d.spent {
		// Whoever was faster decided it; the outcome does not concern the caller.
		_, _ = d.hub.deadLetter(ctx, DeadLettering{
			Seen: spent, Reason: DeadMaxDeliveries, Error: spent.LastError, Unmoved: true,
		}, recoveryManual)
	}
	if d.full || d.looked < maxDrainLook {
		return
	}
	_, _ = d.hub.expire(ctx, d.expired[:min(len(d.expired), maxDrainExpired)], recoveryManual)
}
