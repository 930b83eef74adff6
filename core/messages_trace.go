package core

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// maxTrace bounds the deliveries that a trace's view is made of.
const maxTrace = 2000

// maxPendingCount bounds the pending messages that an agent's status counts.
const maxPendingCount = 1000

// TraceMessage is a message of a trace as readers see it.
type TraceMessage struct {
	Message
	Status MessageStatus // of all its deliveries
}

// trace returns the messages of a trace, oldest first (contract 2.6). It is
// read through an index and may lag a moment behind. Cut tells that it was cut
// at its bounds: the newest messages are left out.
func (h *Hub) trace(ctx context.Context, traceID string, now Instant) (messages []TraceMessage, cut bool, err error) {
	found, more, err := h.messages.ReadTrace(ctx, traceID, maxTrace)
	if err != nil {
		return nil, false, fmt.Errorf("read trace: %w", err)
	}
	byMessage := map[string][]Delivery{}
	for _, d := range found {
		byMessage[d.ID] = append(byMessage[d.ID], d)
	}
	var chosen []Delivery
	for _, deliveries := range byMessage {
		chosen = append(chosen, deliveries[0])
	}
	slices.SortFunc(chosen, func(a, b Delivery) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	size := PayloadSize{}
	for i, d := range chosen {
		next := d.size()
		size = PayloadSize{Answer: size.Answer + next.Answer, Framed: size.Framed + next.Framed}
		if i > 0 && (size.Answer > MaxDrainBytes || size.Framed > maxFramedBytes) {
			chosen, more = chosen[:i], true
			break
		}
	}
	if err := h.messages.LoadPayloads(ctx, chosen); err != nil {
		return nil, false, fmt.Errorf("load payloads: %w", err)
	}
	messages = make([]TraceMessage, 0, len(chosen))
	for _, d := range chosen {
		messages = append(messages, TraceMessage{Message: d.Message, Status: messageStatus(byMessage[d.ID], now)})
	}
	return messages, more, nil
}

// depths are the counts that the sweep rolled up last.
func (h *Hub) depths(ctx context.Context) (QueueDepths, error) {
	counts, err := h.messages.ReadCounts(ctx)
	if err != nil {
		return QueueDepths{}, fmt.Errorf("read message counts: %w", err)
	}
	return QueueDepths{
		Urgent: counts.Urgent, Normal: counts.Normal, DeadLetters: counts.DeadLetters,
		AsOf: counts.AsOf,
	}, nil
}
