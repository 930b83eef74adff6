package ddb

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
)

// ReadInbox reads a page of an inbox through the local index, which holds the
// whole items and is strongly consistent. Cost: 1 request, 1 read unit per 4 KB
// of the page. IAM: Query on the index inbox.
func (s *Store) ReadInbox(ctx context.Context, scan core.InboxScan) (core.InboxPage, error) {
	from, to := "p", "p~"
	if scan.Lapsed.Set {
		from, to = "h", "h"+duePrefix(scan.Lapsed.Value+1)
	}
	if scan.After != "" {
		from = scan.After + "\x00" // the least text after it
	}
	items, more, err := s.keys(ctx, query{
		index:     inboxIndex,
		condition: "pk = :pk AND inbox_sk BETWEEN :from AND :to",
		values:    item{":pk": text(inboxPartition(scan.Inbox)), ":from": text(from), ":to": text(to)},
		limit:     scan.Limit,
	})
	if err != nil {
		return core.InboxPage{}, err
	}
	var page core.InboxPage
	page.Deliveries, page.Unreadable = readable(items, readDelivery)
	if more && len(items) > 0 {
		page.Next = sortValue(items[len(items)-1], inboxSK)
	}
	return page, nil
}

// CountInbox counts through the local index. It looks at limit deliveries, in
// the order of draining. Cost: 1 request a MB, 1 read unit per 4 KB looked at.
// IAM: Query on the index inbox.
func (s *Store) CountInbox(ctx context.Context, inbox string, now core.Instant, limit int) (int64, error) {
	in := &dynamodb.QueryInput{
		TableName:                 aws.String(s.table),
		IndexName:                 aws.String(inboxIndex),
		KeyConditionExpression:    aws.String("pk = :pk"),
		FilterExpression:          aws.String("expires_ms > :now"),
		ExpressionAttributeValues: item{":pk": text(inboxPartition(inbox)), ":now": instant(now)},
		ConsistentRead:            aws.Bool(true),
		Select:                    types.SelectCount,
		Limit:                     aws.Int32(int32(limit)),
	}
	count, _, err := s.count(ctx, in, limit)
	return count, err
}

// count adds up a counting query until it has looked at limit entries; done
// tells that there are no others.
func (s *Store) count(ctx context.Context, in *dynamodb.QueryInput, limit int) (count int64, done bool, err error) {
	for looked := 0; looked < limit; {
		in.Limit = aws.Int32(int32(limit - looked))
		out, err := s.client.Query(ctx, in)
		if err != nil {
			return 0, false, readFailure(err)
		}
		looked += int(out.ScannedCount)
		count += int64(out.Count)
		if in.ExclusiveStartKey = out.LastEvaluatedKey; len(out.LastEvaluatedKey) == 0 {
			return count, true, nil
		}
	}
	return count, false, nil
}

// guardedChanges are the changes of a transaction, which also checks the guard.
const guardedChanges = 98

// ChangeDeliveries is one UpdateItem a change, all at once; with a guard one
// transaction for every 98. A transaction that one of its changes does not fit
// is sent again without it.
//
// Cost: 1 round trip. Acknowledging takes 1 write unit and 2 index units a
// delivery, hiding 1 and 2; in a transaction 1 more each, 2 for the agent's
// fence and 4 for a role's. A change that is refused costs its 1 (2) units. IAM:
// UpdateItem, ConditionCheckItem, GetItem.
func (s *Store) ChangeDeliveries(ctx context.Context, changes []core.DeliveryChange, guard core.InboxGuard, stamp core.WriteStamp) ([]core.ChangeOutcome, core.GuardRefusal, error) {
	outcomes := make([]core.ChangeOutcome, len(changes))
	if !guard.Agent.Set && !guard.Role.Set {
		err := parallel(len(changes), func(i int) error {
			outcomes[i] = s.changeDelivery(ctx, changes[i], stamp)
			return nil
		})
		return outcomes, core.GuardRefusal{}, err
	}
	chunks := (len(changes) + guardedChanges - 1) / guardedChanges
	refusals := make([]core.GuardRefusal, chunks)
	err := parallel(chunks, func(i int) error {
		from, to := i*guardedChanges, min((i+1)*guardedChanges, len(changes))
		refusals[i] = s.changeGuarded(ctx, changes[from:to], outcomes[from:to], guard, stamp)
		return nil
	})
	if err != nil {
		return nil, core.GuardRefusal{}, err
	}
	return outcomes, refuseAll(outcomes, refusals), nil
}

// refuseAll reports a guard that did not hold, unless an earlier transaction of
// the same call had carried out its changes: then the others just failed.
func refuseAll(outcomes []core.ChangeOutcome, refusals []core.GuardRefusal) core.GuardRefusal {
	for _, o := range outcomes {
		if o.Done {
			return core.GuardRefusal{}
		}
	}
	for _, refusal := range refusals {
		if refusal.Refused() {
			return refusal
		}
	}
	return core.GuardRefusal{}
}

func (s *Store) changeDelivery(ctx context.Context, c core.DeliveryChange, stamp core.WriteStamp) core.ChangeOutcome {
	it, done, err := s.apply(ctx, s.change(c, stamp))
	if err != nil {
		return s.confirm(ctx, c, stamp, err)
	}
	stands, err := readDelivery(it)
	if err != nil {
		return core.ChangeOutcome{Err: err}
	}
	if !done && isStampOf(it, stamp) {
		return core.ChangeOutcome{Done: true, Replayed: true, Stands: stands}
	}
	return core.ChangeOutcome{Done: done, Stands: stands}
}

// isStampOf tells whether the latest change of a delivery was this one.
func isStampOf(it item, stamp core.WriteStamp) bool {
	r := reader{it: it}
	return it != nil && r.text(writeIDAttr) == stamp.WriteID
}

// confirm finds out what became of a change whose answer never came: a message
// that was taken must not be lost because nobody knows.
func (s *Store) confirm(ctx context.Context, c core.DeliveryChange, stamp core.WriteStamp, failed error) core.ChangeOutcome {
	if core.CodeOf(failed) != core.CodeOutcomeUnknown {
		return core.ChangeOutcome{Err: failed}
	}
	it, err := s.get(ctx, deliveryKey(c.Inbox, c.MessageID))
	if err != nil || !isStampOf(it, stamp) {
		return core.ChangeOutcome{Err: failed}
	}
	stands, err := readDelivery(it)
	return core.ChangeOutcome{Done: err == nil, Replayed: true, Stands: stands, Err: err}
}

// changeGuarded carries out changes under a guard and fills in their outcomes.
func (s *Store) changeGuarded(ctx context.Context, changes []core.DeliveryChange, outcomes []core.ChangeOutcome, guard core.InboxGuard, stamp core.WriteStamp) core.GuardRefusal {
	waiting := make([]int, len(changes))
	for i := range changes {
		waiting[i] = i
	}
	for len(waiting) > 0 {
		actions := s.authorityActions(guard)
		checks := len(actions)
		for _, i := range waiting {
			actions = append(actions, s.updateAction(s.change(changes[i], stamp)))
		}
		reasons, err := s.commit(ctx, actions)
		switch {
		case err != nil:
			s.failAll(ctx, changes, outcomes, waiting, stamp, err)
			return core.GuardRefusal{}
		case reasons == nil:
			for _, i := range waiting {
				outcomes[i] = core.ChangeOutcome{Done: true, Stands: changed(changes[i], stamp)}
			}
			return core.GuardRefusal{}
		}
		if refusal, err := guardRefusal(guard, reasons[:checks]); refusal.Refused() || err != nil {
			for _, i := range waiting {
				outcomes[i].Err = errors.Join(err, core.Refuse(core.CodeStalePresenceOwner, "the authority to take this message does not stand"))
			}
			return refusal
		}
		if waiting = refuseSome(outcomes, waiting, reasons[checks:]); waiting == nil {
			return core.GuardRefusal{}
		}
	}
	return core.GuardRefusal{}
}

// guardRefusal tells which of a guard's conditions failed: that on the agent is
// the last.
func guardRefusal(guard core.InboxGuard, reasons []reason) (core.GuardRefusal, error) {
	var refusal core.GuardRefusal
	refusal.Role = guard.Role.Set && reasons[0].code == conditionFailed
	if last := reasons[len(reasons)-1]; last.code == conditionFailed {
		agent, _, err := readAgent(last.item)
		refusal.Agent = core.Some(agent)
		return refusal, err
	}
	return refusal, nil
}

// refuseSome fills in the outcomes of the changes that do not fit and returns
// the others.
func refuseSome(outcomes []core.ChangeOutcome, waiting []int, reasons []reason) []int {
	var left []int
	for j, i := range waiting {
		if reasons[j].code != conditionFailed {
			left = append(left, i)
			continue
		}
		stands, err := readDelivery(reasons[j].item)
		outcomes[i] = core.ChangeOutcome{Stands: stands, Err: err}
	}
	return left
}

// failAll fills in the outcomes of a transaction that failed. It is all or
// nothing, so one item tells about all of them.
func (s *Store) failAll(ctx context.Context, changes []core.DeliveryChange, outcomes []core.ChangeOutcome, waiting []int, stamp core.WriteStamp, failed error) {
	first := s.confirm(ctx, changes[waiting[0]], stamp, failed)
	for _, i := range waiting {
		outcomes[i] = core.ChangeOutcome{Err: failed}
		if first.Done {
			outcomes[i] = core.ChangeOutcome{Done: true, Replayed: true, Stands: changed(changes[i], stamp)}
		}
	}
}

// changed is a delivery after a change, as far as the change knows it.
func changed(c core.DeliveryChange, stamp core.WriteStamp) core.Delivery {
	now := core.InstantOf(stamp.Started)
	d := c.Seen.Value
	d.State = c.To
	if c.HandedOut {
		if d.Deliveries++; d.DeliveredAt == 0 {
			d.DeliveredAt = now
		}
	}
	if c.To == core.DeliveryAcked {
		d.AckedAt = now
		return d
	}
	d.VisibleAt, d.Receipt = c.VisibleAt, c.Lease
	if c.MaxDeliveries > 0 {
		d.MaxDeliveries = c.MaxDeliveries
	}
	return d
}

// change is the update of a change. Only live deliveries have a position, so
// that its presence is what every change depends on.
func (s *Store) change(c core.DeliveryChange, stamp core.WriteStamp) update {
	now := core.InstantOf(stamp.Started)
	u := update{
		key:       deliveryKey(c.Inbox, c.MessageID),
		set:       []string{"delivery_state = :to", "write_id = :wid"},
		condition: []string{"attribute_exists(inbox_sk)", "expires_ms > :now"},
		values: item{
			":to":  text(string(c.To)),
			":wid": text(stamp.WriteID),
			":now": instant(now),
		},
	}
	s.conditions(&u, c)
	if c.HandedOut {
		u.set = append(u.set, "deliveries = if_not_exists(deliveries, :none) + :one", "delivered_ms = if_not_exists(delivered_ms, :now)")
		u.values[":none"], u.values[":one"] = number(0), number(1)
	}
	if c.Error != "" {
		u.set = append(u.set, "last_error = :error")
		u.values[":error"] = text(c.Error)
	}
	if c.To == core.DeliveryAcked {
		u.set = append(u.set, "acked_ms = :now", "#ttl = :ttl")
		u.remove = []string{inboxSK, duePK, dueSK}
		u.names = map[string]string{"#ttl": ttl}
		u.values[":ttl"] = number(s.collectAfter(now))
		return u
	}
	u.set = append(u.set, "inbox_sk = :position", "visible_ms = :visible")
	u.values[":position"] = text(hiddenPosition(c.VisibleAt, c.MessageID))
	u.values[":visible"] = instant(c.VisibleAt)
	if c.MaxDeliveries > 0 {
		u.set = append(u.set, "max_deliveries = :max")
		u.values[":max"] = number(c.MaxDeliveries)
	}
	if c.Lease != "" {
		u.set = append(u.set, "receipt = :lease")
		u.values[":lease"] = text(c.Lease)
	} else {
		u.remove = []string{receiptAttr}
	}
	return u
}

func (s *Store) conditions(u *update, c core.DeliveryChange) {
	if c.Seen.Set {
		// The death keeps a copy of this write that arrives after a redrive from
		// taking the message's new life.
		u.condition = append(u.condition, "inbox_sk = :seen", seenDeliveries(u, c.Seen.Value), sameDeath(u, c.Seen.Value.DeadLetterings))
		u.values[":seen"] = text(position(c.Seen.Value))
	}
	if c.Receipt.Set {
		u.condition = append(u.condition, "receipt = :receipt")
		u.values[":receipt"] = text(c.Receipt.Value)
	}
	if c.Unleased {
		u.condition = append(u.condition, "(attribute_not_exists(receipt) OR visible_ms <= :now)")
	}
	if c.Unspent {
		u.condition = append(u.condition, "(attribute_not_exists(max_deliveries) OR deliveries < max_deliveries)")
	}
}

// seenDeliveries keeps a delivery from being handed out more often than it may
// be: others may have leased it and given it back since it was read.
func seenDeliveries(u *update, seen core.Delivery) string {
	if seen.Deliveries == 0 {
		return "attribute_not_exists(deliveries)"
	}
	u.values[":deliveries"] = number(seen.Deliveries)
	return "deliveries = :deliveries"
}

// position is where a live delivery stands in its inbox.
func position(d core.Delivery) string {
	if d.State == core.DeliveryHidden {
		return hiddenPosition(d.VisibleAt, d.ID)
	}
	return pendingPosition(d)
}
