package ddb

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
)

// DeadLetter flips a delivery or a record: one UpdateItem, or one transaction
// with the notice to its sender, so that neither is without the other.
//
// Cost: 1 round trip; 1 write unit and 3 index units (2 for a record); with the
// notice 10 in all. IAM: UpdateItem, PutItem.
func (s *Store) DeadLetter(ctx context.Context, d core.DeadLettering) (bool, error) {
	u := s.deadLettering(d)
	if !d.Notice.Set {
		it, done, err := s.apply(ctx, u)
		return done || isStampOf(it, d.WriteStamp), err
	}
	reasons, err := s.commit(ctx, []types.TransactWriteItem{s.updateAction(u), s.putNew(deliveryItem(d.Notice.Value))})
	return reasons == nil && err == nil, err
}

func (s *Store) deadLettering(d core.DeadLettering) update {
	now := core.InstantOf(d.Started)
	dead := d.Seen
	dead.FailedAt = now
	dead.DeadLetterings++
	u := update{
		key: deliveryKey(dead.Inbox, dead.ID),
		set: []string{
			"delivery_state = :dead", "write_id = :wid", "reason = :reason", "failed_ms = :now",
			"dead_letterings = :deaths", "due_pk = :due_pk", "due_sk = :due_sk", "#ttl = :ttl",
		},
		remove: []string{inboxSK, redrivenAttr},
		names:  map[string]string{"#ttl": ttl},
		values: item{
			":dead":   text(string(core.DeliveryDead)),
			":wid":    text(d.WriteID),
			":reason": text(string(d.Reason)),
			":now":    instant(now),
			":deaths": number(dead.DeadLetterings),
			":due_pk": text(deadPartition(deadShard(dead))),
			":due_sk": text(deadKey(dead)),
			":ttl":    number(s.collectAfter(now)),
		},
	}
	if d.Error != "" {
		u.set = append(u.set, "last_error = :error")
		u.values[":error"] = text(d.Error)
	}
	if d.Unmoved {
		u.condition = append(u.condition, "inbox_sk = :seen", seenDeliveries(&u, d.Seen))
		u.values[":seen"] = text(position(d.Seen))
	} else {
		u.condition = append(u.condition, "delivery_state IN (:pending, :hidden)", "expires_ms <= :now")
		u.values[":pending"] = text(string(core.DeliveryPending))
		u.values[":hidden"] = text(string(core.DeliveryHidden))
	}
	u.condition = append(u.condition, sameDeath(&u, d.Seen.DeadLetterings))
	return u
}

// sameDeath holds while a message has died as often as it was seen to have.
func sameDeath(u *update, deaths int64) string {
	if deaths == 0 {
		return "attribute_not_exists(dead_letterings)"
	}
	u.values[":died"] = number(deaths)
	return "dead_letterings = :died"
}

func deadShard(d core.Delivery) int { return shardOf(d.ID+d.Inbox, deadLetterShards) }

// DeadLetters reads a page of entries from all the shards of dead and redriven
// letters, and then the letters. Cost: 2 round trips; 16 index requests and a
// batch, the keys read and 1 read unit per 4 KB a letter. IAM: Query on the
// index due, BatchGetItem.
func (s *Store) DeadLetters(ctx context.Context, scan core.DeadLetterScan) (core.DeadLetterPage, error) {
	from, to := duePrefix(scan.From), duePrefix(scan.To+1)
	if scan.Before != "" {
		to = min(to, scan.Before)
	}
	m, err := s.merge(ctx, 2*deadLetterShards, dueSK, scan.Limit+1, func(shard int) query {
		partition := deadPartition(shard)
		if shard >= deadLetterShards {
			partition = redrivenPartition(shard - deadLetterShards)
		}
		return query{
			index: dueIndex, condition: "due_pk = :pk AND due_sk BETWEEN :from AND :to",
			values: item{":pk": text(partition), ":from": text(from), ":to": text(to)},
			limit:  scan.Limit + 1, descending: true,
		}
	})
	if err != nil {
		return core.DeadLetterPage{}, err
	}
	entries := m.entries
	if len(entries) > 0 && sortValue(entries[0], dueSK) == scan.Before {
		entries = entries[1:] // the bound itself was on the page before
	}
	if len(entries) > scan.Limit {
		entries, m.more = entries[:scan.Limit], true
	}
	return s.deadLetterPage(ctx, entries, m.more)
}

func (s *Store) deadLetterPage(ctx context.Context, entries []item, more bool) (core.DeadLetterPage, error) {
	var page core.DeadLetterPage
	if len(entries) == 0 {
		return page, nil
	}
	if more {
		page.Next = sortValue(entries[len(entries)-1], dueSK)
	}
	items, err := s.itemsOf(ctx, entries)
	if err != nil {
		return page, err
	}
	for _, it := range items {
		letter, err := readDelivery(it)
		if err != nil {
			return page, err
		}
		if letter.State != core.DeliveryDead {
			continue // redriven since: its entry is out of date
		}
		page.Letters = append(page.Letters, letter)
		page.Positions = append(page.Positions, deadKey(letter))
	}
	return page, nil
}

// Requeue is a transaction over the letter, which is pending again, and an item
// that keeps what it was for the list of dead letters.
//
// Cost: 1 round trip; 4 write units and 4 index units for a letter of up to 1
// KB. A topic's recipients, when they are many, go before it as in PutMessage,
// and a large payload is written once more, so that its age starts anew. IAM:
// UpdateItem, PutItem, BatchWriteItem, s3:GetObject, s3:PutObject.
func (s *Store) Requeue(ctx context.Context, r core.Redrive) (bool, error) {
	now := core.InstantOf(r.Started)
	next := r.Seen
	next.State, next.ExpiresAt = core.DeliveryPending, r.ExpiresAt
	if len(r.Recipients) > 0 {
		next.State, next.VisibleAt, next.Recipients = core.DeliveryFanning, now, r.Recipients
	}
	if err := s.renewPayload(ctx, next.ID, next.Payload); err != nil {
		return false, err
	}
	parts, err := s.putRecipients(ctx, next)
	if err != nil {
		return false, err
	}
	u := requeue(r, next, parts)
	past := r.Seen
	past.RedrivenAt = now
	letter := messageItem(redrivenKey(past.Inbox, past.ID, past.DeadLetterings), past)
	letter[duePK], letter[dueSK] = text(redrivenPartition(deadShard(past))), text(deadKey(past))
	letter[ttl] = number(s.collectAfter(now))
	reasons, err := s.commit(ctx, []types.TransactWriteItem{s.updateAction(u), s.putNew(letter)})
	return reasons == nil && err == nil, err
}

func requeue(r core.Redrive, next core.Delivery, parts int) update {
	partition, deadline := dueEntry(next)
	u := update{
		key: deliveryKey(next.Inbox, next.ID),
		set: []string{
			"delivery_state = :state", "write_id = :wid", "expires_ms = :expires", "redriven_ms = :now",
			"due_pk = :due_pk", "due_sk = :due_sk",
		},
		remove:    []string{"#ttl", reasonAttr, failedAttr, lastErrorAttr, receiptAttr, visibleAttr, deliveriesAttr, deliveredAttr},
		names:     map[string]string{"#ttl": ttl},
		condition: []string{"delivery_state = :dead", "dead_letterings = :died"},
		values: item{
			":state":   text(string(next.State)),
			":wid":     text(r.WriteID),
			":expires": instant(next.ExpiresAt),
			":now":     instant(core.InstantOf(r.Started)),
			":due_pk":  text(partition),
			":due_sk":  text(deadline),
			":dead":    text(string(core.DeliveryDead)),
			":died":    number(r.Seen.DeadLetterings),
		},
	}
	if r.TTL.Set {
		u.set = append(u.set, "ttl_ms = :ttl_ms")
		u.values[":ttl_ms"] = number(r.TTL.Value)
	}
	if next.Inbox != "" {
		u.set = append(u.set, "inbox_sk = :position")
		u.values[":position"] = text(pendingPosition(next))
	}
	switch {
	case parts > 0:
		u.set = append(u.set, "recipient_parts = :parts")
		u.values[":parts"] = number(int64(parts))
	case len(next.Recipients) > 0:
		u.set = append(u.set, "recipients = :recipients")
		u.values[":recipients"] = texts(next.Recipients)
	}
	return u
}
