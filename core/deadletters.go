package core

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// DeadLetterReason tells why a delivery is a dead letter. The first reason wins:
// a dead letter does not die again.
type DeadLetterReason string

// The reasons.
const (
	DeadExpired       DeadLetterReason = "ttl_expired"
	DeadMaxDeliveries DeadLetterReason = "max_deliveries"
)

// DeadLetterReasons lists the reasons.
var DeadLetterReasons = []DeadLetterReason{DeadExpired, DeadMaxDeliveries}

// Where a dead-lettering came from, as its notice tells.
const (
	recoveryPeriodic = "periodic" // the sweep's tick
	recoveryManual   = "manual"   // an operation that met the message
)

// The notice of a dead letter (contract 5.6).
const (
	noticeSender   = "hub-sweeper"
	noticeTopic    = "handoff.dead_letter"
	noticePriority = 7
	noticeTTLMs    = 300_000
	assignKind     = "assign.job"
)

// deadLetter makes a dead letter of a delivery and tells its sender in the same
// transaction, so that both happen or neither. It is false when the delivery is
// not what it was seen as any more.
func (h *Hub) deadLetter(ctx context.Context, d DeadLettering, source string) (bool, error) {
	now := h.clock.Now()
	d.WriteStamp = h.stamp(now)
	if noticed(d.Seen) {
		loaded := []Delivery{d.Seen}
		if err := h.messages.LoadPayloads(ctx, loaded); err != nil {
			return false, fmt.Errorf("load payload of a dead letter: %w", err)
		}
		if notice, ok := h.notice(loaded[0], d.Reason, InstantOf(now), source); ok {
			d.Notice = Some(notice)
		}
	}
	done, err := h.messages.DeadLetter(ctx, d)
	if err != nil {
		return false, fmt.Errorf("dead-letter message: %w", err)
	}
	return done, nil
}

// noticed tells whether a message's sender is told of its death: for requests
// and handoffs that die the first time and come from an agent. Notices are
// events, so they never cause notices.
func noticed(d Delivery) bool {
	return (d.Type == MessageHandoff || d.Type == MessageRequest) && d.DeadLetterings == 0 &&
		d.From != "" && isAgentInbox(d.From)
}

// notice is what the sender gets, unless the message is an assignment's: those
// have their own ways to tell.
func (h *Hub) notice(d Delivery, reason DeadLetterReason, now Instant, source string) (Delivery, bool) {
	content := object{}
	if err := content.merge(d.Payload.JSON); err != nil {
		content = nil
	}
	if string(content.get("kind")) == string(quoted(assignKind)) {
		return Delivery{}, false
	}
	task := content.get("task")
	if task == nil {
		task = json.RawMessage("null")
	}
	payload := object{}
	payload.put("kind", quoted(noticeTopic))
	payload.put("message_id", quoted(d.ID))
	payload.put("original_topic", quoted(d.Topic))
	payload.put("original_to", quoted(d.To))
	payload.put("recipient", quoted(d.Inbox))
	payload.put("reason", quoted(string(reason)))
	payload.put("task", task)
	payload.put("expired_at_ms", numeral(int64(d.ExpiresAt)))
	payload.put("failed_at_ms", numeral(int64(now)))
	payload.put("recovery_source", quoted(source))
	message := PublishRequest{
		From: noticeSender, To: d.From, Type: MessageEvent, Topic: noticeTopic, Priority: noticePriority,
		TTLMs: noticeTTLMs, Payload: payload.encode(), CorrelationID: d.CorrelationID, TraceID: d.TraceID,
	}.message(now, h.ids)
	return Delivery{Message: message, Inbox: d.From, State: DeliveryPending}, true
}

// sweepParallel bounds the writes a sweep has under way.
const sweepParallel = 32

// expire makes dead letters of expired deliveries, many at once. One that fails
// does not keep the others; the first failure is returned.
func (h *Hub) expire(ctx context.Context, expired []Delivery, source string) (done int, err error) {
	var mu sync.Mutex
	var wait sync.WaitGroup
	slots := make(chan struct{}, sweepParallel)
	for _, d := range expired {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			dead, failed := h.deadLetter(ctx, DeadLettering{Seen: d, Reason: DeadExpired}, source)
			mu.Lock()
			defer mu.Unlock()
			if dead {
				done++
			}
			if failed != nil && err == nil {
				err = failed
			}
		})
	}
	wait.Wait()
	return done, err
}

// DeadLetterQuery asks for a page of the dead letters, newest first.
type DeadLetterQuery struct {
	DeadLetterFilter
	Limit  int // 1..100; 0: 50
	Cursor string
}

// DeadLetterFilter keeps to some dead letters.
type DeadLetterFilter struct {
	Reason   Opt[string]
	To       Opt[string] // the recipient, or the message's address
	From, Up Opt[int64]  // failed at or after, at or before; ms
}

// DeadLetterView is a dead letter as a reader sees it.
type DeadLetterView struct {
	ID string // opaque: this message, this recipient, this death
	Delivery
}

// DeadLetterList is a page of dead letters. With a filter it may hold fewer than
// asked, or none, and still have a next page.
type DeadLetterList struct {
	Letters    []DeadLetterView
	NextCursor string // "" at the end
}

// DeadLetters lists the dead letters, newest first, redriven ones with when. A
// page also ends before it exceeds MaxDrainBytes. Which letters there are may
// lag a moment behind. Cost: 2 round trips.
//
// Errors: INVALID_ARGUMENT naming reason, to, from_ms, to_ms, limit or cursor.
func (h *Hub) DeadLetters(ctx context.Context, q DeadLetterQuery) (DeadLetterList, error) {
	if err := q.validate(); err != nil {
		return DeadLetterList{}, err
	}
	if q.Limit < 0 || q.Limit > MaxListLimit {
		return DeadLetterList{}, Invalid("limit", fmt.Sprintf("limit must be 1 to %d", MaxListLimit))
	}
	if q.Limit == 0 {
		q.Limit = DefaultListLimit
	}
	before := ""
	if q.Cursor != "" {
		var err error
		if before, err = decodeCursor(q.cursorKind(), q.Cursor); err != nil {
			return DeadLetterList{}, err
		}
	}
	scan := q.scan(before)
	if scan.Limit = q.Limit; q.Reason.Set || q.To.Set {
		scan.Limit = MaxListLimit
	}
	page, err := h.messages.DeadLetters(ctx, scan)
	if err != nil {
		return DeadLetterList{}, fmt.Errorf("read dead letters: %w", err)
	}
	list, last := q.take(page)
	if last != "" {
		list.NextCursor = encodeCursor(q.cursorKind(), last)
	}
	loaded := make([]Delivery, len(list.Letters))
	for i, letter := range list.Letters {
		loaded[i] = letter.Delivery
	}
	if err := h.messages.LoadPayloads(ctx, loaded); err != nil {
		return DeadLetterList{}, fmt.Errorf("load payloads: %w", err)
	}
	for i := range loaded {
		list.Letters[i].Delivery = loaded[i]
	}
	return list, nil
}

// take keeps what matches and fits, and tells where the next page begins.
func (q DeadLetterQuery) take(page DeadLetterPage) (DeadLetterList, string) {
	list := DeadLetterList{Letters: []DeadLetterView{}}
	size, last := PayloadSize{}, ""
	for i, letter := range page.Letters {
		if q.matches(letter) {
			next := letter.size()
			size = PayloadSize{Answer: size.Answer + next.Answer, Framed: size.Framed + next.Framed}
			over := size.Answer > MaxDrainBytes || size.Framed > maxFramedBytes
			if len(list.Letters) == q.Limit || over && len(list.Letters) > 0 {
				return list, last
			}
			list.Letters = append(list.Letters, DeadLetterView{ID: deadLetterID(letter), Delivery: letter})
		}
		last = page.Positions[i]
	}
	return list, page.Next
}

func (f DeadLetterFilter) validate() error {
	if f.Reason.Set {
		if err := checkID("reason", f.Reason.Value); err != nil {
			return err
		}
	}
	if f.To.Set {
		if _, err := parseAddress("to", f.To.Value); err != nil {
			return err
		}
	}
	for _, bound := range []struct {
		field string
		value Opt[int64]
	}{{"from_ms", f.From}, {"to_ms", f.Up}} {
		if bound.value.Set && (bound.value.Value < 0 || bound.value.Value > lastFailedAt) {
			return Invalid(bound.field, bound.field+" must be a time in milliseconds")
		}
	}
	return nil
}

// lastFailedAt is the last moment that dead letters are ordered by.
const lastFailedAt = 999_999_999_999_999

func (f DeadLetterFilter) scan(before string) DeadLetterScan {
	s := DeadLetterScan{From: Instant(f.From.Value), To: lastFailedAt, Before: before}
	if f.Up.Set {
		s.To = Instant(f.Up.Value)
	}
	return s
}

func (f DeadLetterFilter) matches(d Delivery) bool {
	if f.Reason.Set && f.Reason.Value != string(d.Reason) {
		return false
	}
	return !f.To.Set || f.To.Value == d.Inbox || f.To.Value == d.To
}

func (f DeadLetterFilter) cursorKind() string {
	return strings.Join([]string{
		"dead-letters", f.Reason.Value, f.To.Value, fmt.Sprint(f.From), fmt.Sprint(f.Up),
	}, "\x00")
}

// deadLetterKind binds the ids of dead letters: like cursors they are opaque,
// and grant nothing.
const deadLetterKind = "dead-letter"

func deadLetterID(d Delivery) string {
	return encodeCursor(deadLetterKind, strings.Join([]string{d.ID, strconv.FormatInt(d.DeadLetterings, 10), d.Inbox}, " "))
}

// parseDeadLetterID reads an id back: which message, whose, which death.
func parseDeadLetterID(id string) (inbox, messageID string, death int64, ok bool) {
	position, err := decodeCursor(deadLetterKind, id)
	if err != nil {
		return "", "", 0, false
	}
	parts := strings.SplitN(position, " ", 3)
	if len(parts) != 3 {
		return "", "", 0, false
	}
	death, err = strconv.ParseInt(parts[1], 10, 64)
	return parts[2], parts[0], death, err == nil
}

// RedriveRequest makes dead letters pending again: those of the ids, or up to
// Max of those a filter keeps.
type RedriveRequest struct {
	IDs    []string // 1..100
	Filter Opt[DeadLetterFilter]
	Max    int64      // with a filter: 1..1000
	TTLMs  Opt[int64] // of their new life; without it what they had
}

// RedriveItem is what became of one dead letter; Code is "" when it was
// redriven.
type RedriveItem struct {
	ID        string
	MessageID string
	Code      Code
}

// Redriven is the answer to a redrive.
type Redriven struct {
	Count   int64
	Results []RedriveItem
}

// The bounds of a redrive by filter.
const (
	MaxRedrive     = 1000
	DefaultRedrive = 100
	redriveTime    = 20 * time.Second
)

// Redrive gives dead letters a new life: the same message id in the same inbox,
// with a new expiry and no deliveries counted. It is idempotent for each death:
// the second redrive of one finds ALREADY_REDRIVEN and changes nothing. A
// message to a topic that nobody followed goes to those who follow it now.
//
// Outcomes a letter: NOT_FOUND, NOT_DEAD, ALREADY_REDRIVEN. Errors of the call:
// INVALID_ARGUMENT; then nothing was redriven.
func (h *Hub) Redrive(ctx context.Context, r RedriveRequest) (Redriven, error) {
	if err := r.validate(); err != nil {
		return Redriven{}, err
	}
	if r.Filter.Set {
		return h.redriveAll(ctx, r)
	}
	return h.redriveEach(ctx, r.IDs, r.TTLMs)
}

func (r RedriveRequest) validate() error {
	if r.Filter.Set == (len(r.IDs) > 0) {
		return Invalid("dead_letter_ids", "give dead_letter_ids or a filter")
	}
	if len(r.IDs) > MaxReceipts {
		return Invalid("dead_letter_ids", fmt.Sprintf("dead_letter_ids must be 1 to %d", MaxReceipts))
	}
	if r.TTLMs.Set {
		if err := checkMessageTTL(r.TTLMs.Value); err != nil {
			return err
		}
	}
	if !r.Filter.Set {
		return nil
	}
	if r.Max < 1 || r.Max > MaxRedrive {
		return Invalid("max", fmt.Sprintf("max must be 1 to %d", MaxRedrive))
	}
	return r.Filter.Value.validate()
}

// redriveEach redrives the letters of the ids, in order: an id may be given
// twice.
func (h *Hub) redriveEach(ctx context.Context, ids []string, ttl Opt[int64]) (Redriven, error) {
	result := Redriven{Results: []RedriveItem{}}
	for _, id := range ids {
		item := RedriveItem{ID: id}
		inbox, messageID, death, ok := parseDeadLetterID(id)
		if !ok {
			item.Code = CodeNotFound
		} else {
			item.MessageID = messageID
			code, err := h.redrive(ctx, inbox, messageID, death, ttl)
			if err != nil && result.Count == 0 {
				return Redriven{}, err
			}
			if item.Code = code; err != nil {
				item.Code = CodeOf(err)
			}
		}
		if item.Code == "" {
			result.Count++
		}
		result.Results = append(result.Results, item)
	}
	return result, nil
}

func (h *Hub) redrive(ctx context.Context, inbox, messageID string, death int64, ttl Opt[int64]) (Code, error) {
	for attempt := range onceAttempts {
		letter, found, err := h.messages.ReadDelivery(ctx, inbox, messageID)
		if err != nil {
			return "", fmt.Errorf("read dead letter: %w", err)
		}
		switch {
		case !found:
			return CodeNotFound, nil
		case letter.DeadLetterings < death:
			return CodeNotDead, nil
		case letter.DeadLetterings > death || letter.State != DeliveryDead:
			return CodeAlreadyRedriven, nil
		}
		done, err := h.requeue(ctx, letter, ttl)
		if err != nil || done {
			return "", err
		}
		if err := pause(ctx, attempt); err != nil {
			return "", err
		}
	}
	return CodeContended, nil
}

func (h *Hub) requeue(ctx context.Context, letter Delivery, ttl Opt[int64]) (bool, error) {
	now := h.clock.Now()
	lifetime := letter.TTL
	if ttl.Set {
		lifetime = time.Duration(ttl.Value) * time.Millisecond
	}
	r := Redrive{Seen: letter, ExpiresAt: InstantOf(now).Add(lifetime), TTL: ttl, WriteStamp: h.stamp(now)}
	if letter.Inbox == "" {
		topic, err := parseAddress("to", letter.To)
		if err != nil {
			return false, err
		}
		found, err := h.messages.Followers(ctx, topic.topic)
		if err != nil {
			return false, fmt.Errorf("read followers: %w", err)
		}
		r.Recipients, _ = followersOf(topic.topic, found, InstantOf(now))
	}
	done, err := h.messages.Requeue(ctx, r)
	if err != nil {
		return false, fmt.Errorf("requeue dead letter: %w", err)
	}
	if done && len(r.Recipients) > 0 {
		// It is in the store: what is left undone here, the sweep does.
		_ = h.resumeFanout(ctx, letter.ID)
	}
	return done, nil
}

// redriveAll redrives what the filter keeps, newest first, up to the bound. A
// redriven letter is not met again, so that repeating the call goes on.
func (h *Hub) redriveAll(ctx context.Context, r RedriveRequest) (Redriven, error) {
	filter := r.Filter.Value
	result := Redriven{Results: []RedriveItem{}}
	started, before := h.clock.Now(), ""
	for result.Count < r.Max && h.clock.Now().Sub(started) < redriveTime {
		scan := filter.scan(before)
		scan.Limit = MaxListLimit
		page, err := h.messages.DeadLetters(ctx, scan)
		if err != nil {
			if result.Count > 0 {
				return result, nil
			}
			return Redriven{}, fmt.Errorf("read dead letters: %w", err)
		}
		for _, letter := range page.Letters {
			if result.Count == r.Max || letter.State != DeliveryDead || letter.RedrivenAt > 0 || !filter.matches(letter) {
				continue
			}
			item := RedriveItem{ID: deadLetterID(letter), MessageID: letter.ID}
			if item.Code, err = h.redrive(ctx, letter.Inbox, letter.ID, letter.DeadLetterings, r.TTLMs); err != nil {
				if result.Count == 0 {
					return Redriven{}, err
				}
				item.Code = CodeOf(err)
			}
			if item.Code == "" {
				result.Count++
			}
			result.Results = append(result.Results, item)
		}
		if before = page.Next; before == "" {
			break
		}
	}
	return result, nil
}
