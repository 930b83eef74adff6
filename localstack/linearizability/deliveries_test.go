package linearizability

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"drawbridge/core"
)

// delivery is one message in one inbox. Times are milliseconds.
type delivery struct {
	State      core.DeliveryState // "": there is none
	Expires    int64
	Max        int64
	Deliveries int64
	VisibleAt  int64 // of a hidden one
	Receipt    string
}

type deliveryCall struct {
	Op      string // publish, take, pass, ack, nack, sweep or read
	Message string // the text of its payload
	At      int64
	Expires int64  // of a publish
	Receipt string // what the drain got, what the ack sends; "": the drain acknowledges
	Until   int64  // how long it is hidden
	Looked  bool   // the drain that passed over it came to the end of the inbox
}

type deliveryReply struct {
	told
	State      core.DeliveryState
	Deliveries int64
}

// twice: an ack or nack that lost its answer may be overtaken by whoever was
// handed the message next.
func (deliveryCall) twice(t told) any {
	if t.Code == "" {
		return nil
	}
	return deliveryReply{told: unknown}
}

var deliveryModel = model[delivery, deliveryCall, deliveryReply]{
	after: delivery.after, also: delivery.died, part: func(c deliveryCall) string { return c.Message },
}

func (s delivery) live() bool {
	return s.State == core.DeliveryPending || s.State == core.DeliveryHidden
}
func (s delivery) spent() bool { return s.live() && s.Max > 0 && s.Deliveries >= s.Max }

// due tells whether a drain meets it; it hands it out unless it is spent.
func (s delivery) due(at int64) bool {
	return s.live() && s.Expires > at && (s.State == core.DeliveryPending || s.VisibleAt <= at)
}

func (s delivery) refuse(code core.Code) (delivery, deliveryReply) {
	return s, deliveryReply{told: told{Code: code}}
}

// notThere is what a call is told that the model does not allow.
const notThere core.Code = "not there"

func (s delivery) after(c deliveryCall) (delivery, deliveryReply) {
	switch c.Op {
	case "publish":
		return delivery{State: core.DeliveryPending, Expires: c.Expires, Max: deliveryLimit}, deliveryReply{}
	case "take":
		if !s.due(c.At) || s.spent() {
			return s.refuse(notThere)
		}
		s.Deliveries++
		s.State, s.VisibleAt, s.Receipt = core.DeliveryHidden, c.Until, c.Receipt
		if c.Receipt == "" {
			s.State, s.VisibleAt = core.DeliveryAcked, 0
		}
		return s, deliveryReply{}
	case "pass":
		if c.Looked && s.due(c.At) && !s.spent() {
			return s.refuse(notThere)
		}
		return s, deliveryReply{}
	case "ack", "nack":
		return s.settle(c)
	case "read":
		return s, deliveryReply{State: s.State, Deliveries: s.Deliveries}
	}
	return s, deliveryReply{} // a sweep is in no hurry: see died
}

func (s delivery) settle(c deliveryCall) (delivery, deliveryReply) {
	switch {
	case s.State == "":
		return s.refuse(core.CodeNotFound)
	case s.State == core.DeliveryAcked:
		return s.refuse(core.CodeAlreadyAcked)
	case s.State == core.DeliveryDead:
		return s.refuse(core.CodeDeadLettered)
	case s.Expires <= c.At:
		return s.refuse(core.CodeExpired)
	case s.Receipt != c.Receipt:
		return s.refuse(core.CodeReceiptStale)
	case c.Op == "ack":
		s.State, s.VisibleAt, s.Receipt = core.DeliveryAcked, 0, ""
	case s.spent():
		s.State, s.VisibleAt, s.Receipt = core.DeliveryDead, 0, ""
	default:
		s.State, s.VisibleAt, s.Receipt = core.DeliveryHidden, c.Until, ""
	}
	return s, deliveryReply{}
}

// died is what a drain leaves behind of a spent message that it met, and a sweep
// of an expired one.
func (s delivery) died(c deliveryCall) []delivery {
	spent := c.Op == "pass" && s.due(c.At) && s.spent()
	expired := c.Op == "sweep" && s.live() && s.Expires <= c.At
	if !spent && !expired {
		return nil
	}
	s.State, s.VisibleAt, s.Receipt = core.DeliveryDead, 0, ""
	return []delivery{s}
}

// The messages of a history: their limit, and the inbox they are in.
const (
	deliveryLimit = 3
	inbox         = "reader"
)

// TestTheHistoryOfADeliveryIsLinearizable lets callers publish into one inbox,
// drain it with and without leases, acknowledge and give back at once; between
// two bouts the time passes every lease, and at last every expiry.
func TestTheHistoryOfADeliveryIsLinearizable(t *testing.T) {
	eachRound(t, 2, func(t *testing.T, b *bed, seed uint64) {
		h := deliveryHistory(t, b, seed, 4, 3, 7)
		if done := h.count(isDone); done < 20 {
			t.Fatalf("only %d of %d calls were done", done, len(h.operations))
		}
		check(t, deliveryModel, h)
	})
}

// A drained message, before it is known which messages there are.
type drain struct {
	caller   int
	at       int64
	from, to int64
	until    int64
	lost     bool
	got      map[string]string // receipts by text
	untold   []string          // ids
	failed   told
	looked   bool
}

type deliveries struct {
	*history
	t      *testing.T
	drains []drain
	names  map[string]string // texts by id
}

func deliveryHistory(t *testing.T, b *bed, seed uint64, callers, bouts, calls int) *history {
	t.Helper()
	d := &deliveries{history: newHistory(), t: t, names: map[string]string{}}
	all := b.callers(callers, seed)
	for bout := range bouts {
		atOnce(all, func(c *caller) {
			receipts := map[string]string{} // by text
			for n := range calls {
				c.disturb()
				d.act(c, fmt.Sprintf("%d-%d-%d", bout, c.number, n), receipts)
			}
		})
		b.time.jump(time.Minute)
	}
	d.name(all[0])
	for _, text := range d.texts() {
		all[0].calm()
		record(d.history, all[0], deliveryCall{}, func() (deliveryCall, deliveryReply) {
			return deliveryCall{Op: "read", Message: text, At: all[0].tick()}, d.read(all[0], text)
		})
	}
	d.split()
	return d.history
}

// act makes one call.
func (d *deliveries) act(c *caller, text string, receipts map[string]string) {
	asked := deliveryCall{Op: "ack"}
	if c.random.IntN(3) == 0 {
		asked.Op = "nack"
	}
	for asked.Message, asked.Receipt = range receipts {
		break
	}
	switch pick := c.random.IntN(20); {
	case pick < 6:
		d.publish(c, text)
	case pick < 13 || len(receipts) == 0:
		d.drain(c, receipts)
	case pick == 13:
		d.sweep(c)
	default:
		delete(receipts, asked.Message)
		record(d.history, c, asked, func() (deliveryCall, deliveryReply) {
			asked.At = c.tick()
			asked.Until = asked.At
			if asked.Op == "ack" {
				return asked, settled(c.hub.Ack(d.t.Context(), core.AckRequest{AgentID: inbox, Receipts: []string{asked.Receipt}}))
			}
			return asked, settled(c.hub.Nack(d.t.Context(), core.NackRequest{AgentID: inbox, Receipts: []string{asked.Receipt}}))
		})
	}
}

func settled(result core.AckResult, err error) deliveryReply {
	if err == nil && len(result.Results) == 1 && result.Results[0].Code != "" {
		err = core.Refuse(result.Results[0].Code, "")
	}
	return deliveryReply{told: tell(err)}
}

// publish sends a message; half of them with a key, until it is told.
func (d *deliveries) publish(c *caller, text string) {
	once := c.random.IntN(2) == 0
	record(d.history, c, deliveryCall{}, func() (deliveryCall, deliveryReply) {
		at := c.tick()
		ttl := int64(30_000 + c.random.IntN(100_000))
		r := core.PublishRequest{
			From: c.id, To: inbox, Topic: "t", Priority: int64(1 + c.random.IntN(9)), TTLMs: ttl, MaxDeliveries: core.Some(int64(deliveryLimit)),
			Payload: json.RawMessage(fmt.Sprintf(`{"text":%q}`, text)), TraceID: traceID,
		}
		asked := deliveryCall{Op: "publish", Message: text, At: at, Expires: at + ttl}
		publish := func() deliveryReply {
			_, err := c.hub.Publish(d.t.Context(), r)
			return deliveryReply{told: tell(err)}
		}
		if once {
			r.Idempotency = core.Some(core.IdempotencyKey{Scope: "s", Key: text, Body: []byte("{}")})
			return asked, untilTold(d.t.Context(), c, publish)
		}
		return asked, publish()
	})
}

const traceID = "trace"

func textOf(m core.Delivery) string {
	var content struct{ Text string }
	_ = json.Unmarshal(m.Payload.JSON, &content) // every message of the history has a text
	return content.Text
}

// drain takes up to 4 messages.
func (d *deliveries) drain(c *caller, receipts map[string]string) {
	r := core.DrainRequest{AgentID: inbox, Max: int64(1 + c.random.IntN(4)), AutoAck: c.random.IntN(3) == 0}
	visibility := int64(20_000)
	if !r.AutoAck {
		r.VisibilityMs = core.Some(visibility)
	}
	from, lost := d.since(), c.network.lost.Load()
	at := c.tick()
	drained, err := c.hub.Drain(d.t.Context(), r)
	done := drain{
		caller: c.number, at: at, until: at + visibility, from: from, to: d.since(), lost: c.network.lost.Load() > lost,
		got: map[string]string{}, untold: drained.Unconfirmed, failed: tell(err),
	}
	if details, ok := detailsOf(err)["message_ids"].([]string); ok {
		done.untold = details
	}
	for _, m := range drained.Messages {
		if r.AutoAck {
			m.Receipt = "" // it shows that of the lease before
		}
		done.got[textOf(m)] = m.Receipt
		if m.Receipt != "" {
			receipts[textOf(m)] = m.Receipt
		}
	}
	done.looked = err == nil && len(done.untold) == 0 && int64(len(drained.Messages)) < r.Max
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drains = append(d.drains, done)
}

func (d *deliveries) sweep(c *caller) {
	c.calm()
	from, at := d.since(), c.tick()
	_, err := c.hub.SweepMessages(d.t.Context())
	if err != nil {
		d.t.Errorf("the sweep failed: %v", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drains = append(d.drains, drain{caller: -1, at: at, from: from, to: d.since()})
}

// name learns the ids of all messages: those of whose publish nobody knows the
// outcome are in the trace.
func (d *deliveries) name(c *caller) {
	c.calm()
	found, more, err := c.store.ReadTrace(d.t.Context(), traceID, 1000)
	if err != nil || more {
		d.t.Fatalf("the trace reads %v, %v", more, err)
	}
	if err := c.store.LoadPayloads(d.t.Context(), found); err != nil {
		d.t.Fatal(err)
	}
	for _, m := range found {
		d.names[m.ID] = textOf(m)
	}
}

func (d *deliveries) texts() []string {
	var texts []string
	for _, o := range d.operations {
		if c := o.Input.(deliveryCall); c.Op == "publish" {
			texts = append(texts, c.Message)
		}
	}
	return texts
}

func (d *deliveries) read(c *caller, text string) deliveryReply {
	for id, name := range d.names {
		if name == text {
			m, _, err := c.store.ReadDelivery(d.t.Context(), inbox, id)
			return deliveryReply{told: tell(err), State: m.State, Deliveries: m.Deliveries}
		}
	}
	return deliveryReply{}
}

// split makes of every drain and sweep one call for each message there is.
func (d *deliveries) split() {
	for _, drained := range d.drains {
		var untold []string
		for _, id := range drained.untold {
			untold = append(untold, d.names[id])
		}
		for _, text := range d.texts() {
			asked, reply := deliveryCall{Op: "pass", Message: text, At: drained.at, Looked: drained.looked}, deliveryReply{}
			receipt, got := drained.got[text]
			switch {
			case drained.caller < 0:
				asked.Op = "sweep"
			case got:
				asked.Op, asked.Receipt = "take", receipt
			case slices.Contains(untold, text):
				asked.Op, asked.Receipt, reply.told = "take", fmt.Sprint("untold ", drained.from), unknown
			}
			if asked.Op == "take" && asked.Receipt != "" {
				asked.Until = drained.until
			}
			d.add(drained.caller, asked, reply, drained.from, drained.to, drained.lost)
		}
	}
}
