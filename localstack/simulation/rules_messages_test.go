package simulation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"drawbridge/core"
)

// slack is how much two clocks of a run may differ, in milliseconds.
const slack = int64(2 * maxSkew / time.Millisecond)

// messageRules is what the monitor knows of deliveries beyond the items.
type messageRules struct {
	drains map[*call]*drained
	// takenBy is the call that took a delivery for good, leases the one that got
	// a receipt.
	takenBy map[itemKey]*call
	leases  map[string]*call
}

// drained is what a drain took, and what it told its caller.
type drained struct {
	took     []string // message ids
	told     []string
	answered bool
}

func newMessageRules() messageRules {
	return messageRules{drains: map[*call]*drained{}, takenBy: map[itemKey]*call{}, leases: map[string]*call{}}
}

const drainEndpoint = "POST /bridge/context"

// judgeMessage holds a change of a delivery, or of a topic message's record,
// against the life of one (docs/messages.md).
func (m *monitor) judgeMessage(c *call, k itemKey, before, after item) {
	switch {
	case after == nil:
		m.violatef(c, k, before, after, "a message is gone")
		return
	case !strings.HasPrefix(k.sk, "m#") && k.sk != "record":
		m.judgeOnce(c, k, before, after)
		return
	}
	m.judgeMessageEntries(c, k, before, after)
	if before == nil {
		// A message to a topic is accepted with its record; what follows is its course.
		accepted := m.items[itemKey{"fanout#" + after.text("message_id"), "record"}] != nil && k.sk != "record"
		if c.acts != "" && after.text("from_agent") == c.acts && !accepted && !isSettlement(c, after) {
			m.mustHoldFence(c, c.acts, k, before, after)
		}
		return
	}
	was, is := core.DeliveryState(before.text("delivery_state")), core.DeliveryState(after.text("delivery_state"))
	switch {
	case was == core.DeliveryAcked:
		m.violatef(c, k, before, after, "what was acknowledged changed")
	case was == core.DeliveryDead && is == core.DeliveryFanning && c.endpoint == "POST /bridge/dead-letters/redrive":
		// The record of a message to a topic that died before it went out.
	case was == core.DeliveryDead && is != core.DeliveryPending && !sameBut(before, after, "redriven_ms", "due_pk", "due_sk"):
		m.violatef(c, k, before, after, "a dead letter changed")
	case was == core.DeliveryDead && is == core.DeliveryPending && c.endpoint != "POST /bridge/dead-letters/redrive":
		m.violatef(c, k, before, after, "only a redrive revives a dead letter")
	case is == core.DeliveryAcked, is == core.DeliveryHidden && c.endpoint == drainEndpoint:
		m.judgeTaking(c, k, before, after)
	case is == core.DeliveryDead && was != core.DeliveryDead:
		m.judgeDeath(c, k, before, after)
	}
	if is == core.DeliveryHidden && c.endpoint == drainEndpoint {
		m.judgeLease(c, k, before, after)
	}
}

// isSettlement tells a message that says what a deadline did to a job: whoever
// meets the deadline sends it, with or without a fence that stands.
func isSettlement(c *call, message item) bool {
	payload := message.text("payload")
	return c.endpoint != "POST /bridge/assign/retry" &&
		(strings.Contains(payload, `"kind":"assign.job","reason":"retry"`) || strings.Contains(payload, `"requested_by":"sweeper"`) ||
			strings.Contains(payload, `"completion_reason":"timed_out"`))
}

// judgeTaking holds an acknowledgement or a lease against the fences it needs.
func (m *monitor) judgeTaking(c *call, k itemKey, before, after item) {
	inbox := strings.TrimPrefix(k.pk, "inbox#")
	begun := core.InstantOf(c.begun)
	if expires := before.number("expires_ms"); expires <= int64(begun)-slack {
		m.violatef(c, k, before, after, "it had expired when the call began")
	}
	m.mustHoldFence(c, c.acts, k, before, after)
	if wire, ofRole := strings.CutPrefix(inbox, core.RoleAddressPrefix); ofRole && wire != core.LegacyWire {
		// A receipt is a fence of its own, and outlasts the role's holder.
		if _, receipts := c.sent.body["receipts"]; c.endpoint == drainEndpoint || !receipts {
			m.mustHoldRole(c, wire, k, before, after)
		}
	} else if !ofRole && inbox != c.acts && inbox != "topic:"+core.LegacyWire {
		m.violatef(c, k, before, after, "%s takes what is another's", c.acts)
	}
	id := after.text("message_id")
	if c.endpoint != drainEndpoint {
		return
	}
	if after.text("delivery_state") == string(core.DeliveryAcked) {
		m.takenBy[k] = c
	}
	d := m.drain(c)
	d.took = append(d.took, id)
	if d.answered && !slices.Contains(d.told, id) {
		m.violatef(c, k, before, after, "the drain took it after it had answered, and did not name it")
	}
}

func (m *monitor) drain(c *call) *drained {
	if m.drains[c] == nil {
		m.drains[c] = &drained{}
	}
	return m.drains[c]
}

func (m *monitor) judgeLease(c *call, k itemKey, before, after item) {
	if before.text("delivery_state") == string(core.DeliveryHidden) && before.number("visible_ms") > int64(m.w.instant())+slack {
		m.violatef(c, k, before, after, "it was handed out while another held it")
	}
	if after.number("deliveries") != before.number("deliveries")+1 || after.text("receipt") == before.text("receipt") {
		m.violatef(c, k, before, after, "it was handed out under an old receipt, or not counted")
	}
	if limit := before.number("max_deliveries"); limit > 0 && after.number("deliveries") > limit {
		m.violatef(c, k, before, after, "it was handed out too often")
	}
	m.leases[after.text("receipt")] = c
}

func (m *monitor) judgeDeath(c *call, k itemKey, before, after item) {
	if after.number("dead_letterings") != before.number("dead_letterings")+1 {
		m.violatef(c, k, before, after, "its death is not counted once")
	}
	switch reason := core.DeadLetterReason(after.text("reason")); {
	case reason == core.DeadExpired && before.number("expires_ms") > int64(m.w.instant())+slack:
		m.violatef(c, k, before, after, "it died of an expiry that has not come")
	case reason == core.DeadMaxDeliveries && before.number("deliveries") == 0:
		m.violatef(c, k, before, after, "it died of deliveries that it never had")
	}
}

// judgeMessageEntries holds the index entries of a delivery against its state.
func (m *monitor) judgeMessageEntries(c *call, k itemKey, before, after item) {
	state := core.DeliveryState(after.text("delivery_state"))
	live := state == core.DeliveryPending || state == core.DeliveryHidden
	inInbox := strings.HasPrefix(k.pk, "inbox#")
	due := after.text("due_pk")
	switch {
	case inInbox && live != after.has("inbox_sk"):
		m.violatef(c, k, before, after, "the inbox shows what is over, or not what is there")
	case live && (!strings.HasPrefix(due, "message#") || deadlineOf(after) > after.number("expires_ms")):
		m.violatef(c, k, before, after, "the sweep finds it late or never")
	case state == core.DeliveryFanning && !strings.HasPrefix(due, "fanout#"):
		m.violatef(c, k, before, after, "the sweep does not find the fan-out")
	case (state == core.DeliveryAcked || state == core.DeliveryFanned) && due != "":
		m.violatef(c, k, before, after, "it is over and still due")
	case state == core.DeliveryDead && !strings.HasPrefix(due, "dead#") && !strings.HasPrefix(due, "redriven#"):
		m.violatef(c, k, before, after, "the list of dead letters does not show it")
	}
}

// deadlineOf is the deadline in an item's due entry.
func deadlineOf(it item) int64 {
	var deadline int64
	digits, _, _ := strings.Cut(it.text("due_sk"), "#")
	if _, err := fmt.Sscanf(digits, "%d", &deadline); err != nil {
		return -1
	}
	return deadline
}

// answeredDrain holds what a drain told its caller against what it took.
func (m *monitor) answeredDrain(c *call, r request, a answer) {
	d := m.drain(c)
	d.answered = true
	for _, id := range append(list(a.at("data.unconfirmed")), list(a.at("error.details.message_ids"))...) {
		d.told = append(d.told, fmt.Sprint(id))
	}
	peek := r.body["auto_ack"] == false && r.body["visibility_ms"] == nil
	for _, message := range list(a.at("data.messages")) {
		id, _ := at(message, "id").(string)
		d.told = append(d.told, id)
		switch receipt, leased := at(message, "receipt").(string); {
		case peek:
		case leased && m.leases[receipt] != c:
			m.w.violatef("%s handed %s out under the receipt %s, which it did not make", c.name, id, receipt)
		case !leased && !slices.Contains(d.took, id):
			m.w.violatef("%s handed %s out and did not take it", c.name, id)
		}
	}
	for _, id := range d.took {
		if !slices.Contains(d.told, id) {
			m.w.violatef("%s took %s and told nobody: %s", c.name, id, a.text)
		}
	}
}

// serialOf is the mark that a sender left in a message: its trace.
func serialOf(it item) string { return it.text("trace_id") }

// noticeOf is the message and the recipient that a notice is about; false for any
// other message.
func noticeOf(it item) (string, bool) {
	if it.text("from_agent") != "hub-sweeper" || it.text("topic") != "handoff.dead_letter" {
		return "", false
	}
	var payload struct {
		Message   string `json:"message_id"`
		Recipient string `json:"recipient"`
	}
	if err := json.Unmarshal([]byte(it.text("payload")), &payload); err != nil {
		return "", false
	}
	return payload.Message + " " + payload.Recipient, true
}
