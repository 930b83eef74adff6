package core

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// AckRequest acknowledges messages that were handed out.
type AckRequest struct {
	AgentID    string
	MessageIDs []string // of messages no lease holds; these, or Receipts
	Receipts   []string
	Fences     Fences
}

// NackRequest gives leased messages back.
type NackRequest struct {
	AgentID  string
	Receipts []string
	DelayMs  int64 // 0..43,200,000: hidden that long
	Error    string
	Fences   Fences
}

// ItemOutcome is what became of one message of a request; Code is "" when it
// was done.
type ItemOutcome struct {
	ID   string // the message id or receipt as given
	Code Code
}

// AckResult is the answer to an ack or nack, in the order of the request.
type AckResult struct {
	Done    int64
	Results []ItemOutcome
}

// maxErrorBytes is the longest error of a nack that is kept.
const maxErrorBytes = 4096

// A receipt names its message, so that it is found without asking for its id,
// and a lease of it that no other has. Of a message for a role it also names the
// inbox: it is a fence of its own, and outlasts the role's holder.
func newReceipt(d Delivery, ids IDs) string {
	receipt := d.ID + "." + ids.New()
	if isRoleAddress(d.Inbox) {
		receipt += "@" + d.Inbox
	}
	return receipt
}

func messageOfReceipt(receipt string) string {
	id, _, _ := strings.Cut(receipt, ".")
	return id
}

// inboxOfReceipt is the inbox of a leased message: the agent's own, unless the
// receipt names a role's.
func inboxOfReceipt(receipt, agentID string) string {
	if _, inbox, ofRole := strings.Cut(receipt, "@"); ofRole && isRoleAddress(inbox) {
		return inbox
	}
	return agentID
}

// Ack acknowledges messages: they leave the inbox for good and stay readable by
// their trace. By receipt it succeeds as long as nobody else was handed the
// message, even when the lease lapsed; a receipt of an earlier lease never
// touches a message that was handed out again. By message id it succeeds only
// while no lease holds the message.
//
// Each message has its own outcome: NOT_FOUND, ALREADY_ACKED, RECEIPT_STALE,
// DEAD_LETTERED, EXPIRED. Errors of the call: INVALID_ARGUMENT and those of the
// fences; then nothing was acknowledged.
func (h *Hub) Ack(ctx context.Context, r AckRequest) (AckResult, error) {
	given, byReceipt, err := r.validate()
	if err != nil {
		return AckResult{}, err
	}
	return h.settle(ctx, settling{agentID: r.AgentID, given: given, fences: r.Fences}, func(id string) DeliveryChange {
		if byReceipt {
			return DeliveryChange{
				Inbox: inboxOfReceipt(id, r.AgentID), MessageID: messageOfReceipt(id), Receipt: Some(id), To: DeliveryAcked,
			}
		}
		return DeliveryChange{Inbox: r.AgentID, MessageID: id, Unleased: true, To: DeliveryAcked}
	})
}

func (r AckRequest) validate() (given []string, byReceipt bool, err error) {
	if err := checkID("agent_id", r.AgentID); err != nil {
		return nil, false, err
	}
	if len(r.Receipts) > 0 && len(r.MessageIDs) > 0 {
		return nil, false, Invalid("receipts", "message_ids and receipts exclude each other")
	}
	if len(r.Receipts) > 0 {
		return r.Receipts, true, checkReceipts("receipts", r.Receipts)
	}
	return r.MessageIDs, false, checkReceipts("message_ids", r.MessageIDs)
}

func checkReceipts(field string, given []string) error {
	if len(given) == 0 || len(given) > MaxReceipts {
		return Invalid(field, fmt.Sprintf("%s must be 1 to %d", field, MaxReceipts))
	}
	for i, id := range given {
		if err := checkID(fmt.Sprintf("%s[%d]", field, i), id); err != nil {
			return err
		}
	}
	return nil
}

// Nack gives leased messages back, at once or after a delay. A message that was
// handed out as often as it may be becomes a dead letter instead, with the
// nack's error. Outcomes and errors as of Ack.
func (h *Hub) Nack(ctx context.Context, r NackRequest) (AckResult, error) {
	if err := r.validate(); err != nil {
		return AckResult{}, err
	}
	visible := InstantOf(h.clock.Now()).Add(time.Duration(r.DelayMs) * time.Millisecond)
	return h.settle(ctx, settling{agentID: r.AgentID, given: r.Receipts, fences: r.Fences, nack: true, lastError: r.Error}, func(receipt string) DeliveryChange {
		return DeliveryChange{
			Inbox: inboxOfReceipt(receipt, r.AgentID), MessageID: messageOfReceipt(receipt), Receipt: Some(receipt), Unspent: true,
			To: DeliveryHidden, VisibleAt: visible, Error: r.Error,
		}
	})
}

func (r NackRequest) validate() error {
	if err := checkID("agent_id", r.AgentID); err != nil {
		return err
	}
	if r.DelayMs < 0 || r.DelayMs > MaxVisibility.Milliseconds() {
		return Invalid("delay_ms", fmt.Sprintf("delay_ms must be 0 to %d", MaxVisibility.Milliseconds()))
	}
	if len(r.Error) > maxErrorBytes {
		return Invalid("error", fmt.Sprintf("error must be at most %d bytes", maxErrorBytes))
	}
	return checkReceipts("receipts", r.Receipts)
}

// settling is an ack or a nack.
type settling struct {
	agentID   string
	given     []string
	fences    Fences
	nack      bool
	lastError string
}

// settle applies one change for each given id. Ids that name the same message
// come after one another: the store takes one change of a message at a time.
func (h *Hub) settle(ctx context.Context, s settling, change func(id string) DeliveryChange) (AckResult, error) {
	identity, err := h.checkIdentity(ctx, s.fences)
	if err != nil {
		return AckResult{}, err
	}
	result := AckResult{Results: make([]ItemOutcome, len(s.given))}
	waiting := make([]int, len(s.given))
	for i := range s.given {
		waiting[i] = i
	}
	for len(waiting) > 0 {
		var wave []int
		var changes []DeliveryChange
		var later []int
		for _, i := range waiting {
			c := change(s.given[i])
			if slices.ContainsFunc(changes, func(o DeliveryChange) bool { return o.MessageID == c.MessageID }) {
				later = append(later, i)
				continue
			}
			wave, changes = append(wave, i), append(changes, c)
		}
		outcomes, err := h.settleWave(ctx, s, identity, changes)
		if err != nil && len(waiting) == len(s.given) {
			return AckResult{}, err // nothing was settled yet
		}
		for j, i := range wave {
			code := CodeOf(err)
			if err == nil {
				code = h.outcomeCode(ctx, s, changes[j], outcomes[j])
			}
			result.Results[i] = ItemOutcome{ID: s.given[i], Code: code}
			if code == "" {
				result.Done++
			}
		}
		waiting = later
	}
	return result, nil
}

func (h *Hub) settleWave(ctx context.Context, s settling, identity Identity, changes []DeliveryChange) ([]ChangeOutcome, error) {
	if !isAgentInbox(s.agentID) {
		return make([]ChangeOutcome, len(changes)), nil
	}
	guard := InboxGuard{Agent: fenceOf(s.agentID, s.fences)}
	outcomes, refusal, err := h.messages.ChangeDeliveries(ctx, changes, guard, h.stamp(h.clock.Now()))
	switch {
	case err != nil:
		return nil, fmt.Errorf("settle messages: %w", err)
	case refusal.Agent.Set:
		return nil, h.staleActor(guard.Agent.Value, refusal.Agent.Value, identity)
	}
	h.settleForRoles(ctx, s, changes, outcomes)
	return outcomes, nil
}

// settleForRoles tries ids that the agent's own inbox does not know in the
// inboxes of its roles. What was settled stands whatever fails here.
func (h *Hub) settleForRoles(ctx context.Context, s settling, changes []DeliveryChange, outcomes []ChangeOutcome) {
	unknown := func(i int) bool {
		return outcomes[i].Stands.ID == "" && outcomes[i].Err == nil && !outcomes[i].Done && changes[i].Unleased
	}
	some := false
	for i := range outcomes {
		some = some || unknown(i)
	}
	if !some {
		return
	}
	now := h.clock.Now()
	agent, _, err := h.presence.ReadAgent(ctx, s.agentID)
	if err != nil {
		return
	}
	posts, _, err := h.posts(ctx, agent, InstantOf(now))
	if err != nil {
		return
	}
	for _, p := range posts {
		var at []int
		var again []DeliveryChange
		for i := range outcomes {
			if unknown(i) {
				c := changes[i]
				c.Inbox = p.inbox
				at, again = append(at, i), append(again, c)
			}
		}
		guard := InboxGuard{Agent: fenceOf(s.agentID, s.fences), Role: Some(p.authority)}
		found, refusal, err := h.messages.ChangeDeliveries(ctx, again, guard, h.stamp(now))
		if err != nil || refusal.Refused() {
			continue
		}
		for j, i := range at {
			outcomes[i] = found[j]
		}
	}
}

// outcomeCode tells what became of a change, "" when it was done.
func (h *Hub) outcomeCode(ctx context.Context, s settling, c DeliveryChange, o ChangeOutcome) Code {
	switch {
	case o.Done:
		return ""
	case o.Err != nil:
		return CodeOf(o.Err)
	case s.nack && h.spent(ctx, c, o.Stands, s.lastError):
		return ""
	}
	return settleCode(o.Stands, InstantOf(h.clock.Now()))
}

// spent dead-letters a message that a nack may not give back any more.
func (h *Hub) spent(ctx context.Context, c DeliveryChange, stands Delivery, lastError string) bool {
	over := stands.live() && stands.Receipt == c.Receipt.Value && !stands.Expired(InstantOf(h.clock.Now())) &&
		stands.MaxDeliveries > 0 && stands.Deliveries >= stands.MaxDeliveries
	if !over {
		return false
	}
	if lastError == "" {
		lastError = stands.LastError
	}
	done, err := h.deadLetter(ctx, DeadLettering{Seen: stands, Reason: DeadMaxDeliveries, Error: lastError, Unmoved: true}, recoveryManual)
	return err == nil && done
}

// settleCode tells why a message could not be settled.
func settleCode(stands Delivery, now Instant) Code {
	switch {
	case stands.ID == "":
		return CodeNotFound
	case stands.State == DeliveryAcked:
		return CodeAlreadyAcked
	case stands.State == DeliveryDead:
		return CodeDeadLettered
	case stands.Expired(now):
		return CodeExpired
	}
	return CodeReceiptStale
}
