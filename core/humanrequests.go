package core

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A human request asks a person and has a deadline. It ends once:
//
//	            submit before the deadline
//	pending ─────────────────────────────────▶ accepted | declined | cancelled
//	   │
//	   └──── whoever meets it at or after ───▶ timed_out
//	         the deadline: a submit, a read,
//	         the sweep
//
// The end and the message that tells the requester of it are one transaction,
// so a hundred people who answer at once give one answer and one message. The
// message may expire while the requester is away: the request itself keeps the
// answer, and whoever comes back finds it by the request's id.
//
// An answer at or after the deadline is refused and kept as a late answer. What
// the requester was told does not change.

// HumanKind is what a person is asked for.
type HumanKind string

// The kinds.
const (
	HumanCaptcha    HumanKind = "captcha"
	HumanApproval   HumanKind = "approval"
	HumanCredential HumanKind = "credential"
	HumanChoice     HumanKind = "choice"
	HumanText       HumanKind = "text"
)

// HumanKinds lists the kinds.
var HumanKinds = []HumanKind{HumanCaptcha, HumanApproval, HumanCredential, HumanChoice, HumanText}

// HumanState is where a human request stands.
type HumanState string

// The states; all but the first are final.
const (
	HumanPending   HumanState = "pending"
	HumanAccepted  HumanState = "accepted"
	HumanDeclined  HumanState = "declined"
	HumanCancelled HumanState = "cancelled"
	HumanTimedOut  HumanState = "timed_out"
)

// The actions of a submit, and the state each leads to.
const (
	ActionAccept  = "accept"
	ActionDecline = "decline"
	ActionCancel  = "cancel"
)

var humanActions = map[string]HumanState{
	ActionAccept: HumanAccepted, ActionDecline: HumanDeclined, ActionCancel: HumanCancelled,
}

// The default actions: what the requester is told when the deadline passes.
const (
	DefaultDecline  = "decline"
	DefaultCancel   = "cancel"
	DefaultContinue = "timeout_continue"
)

// timeoutActions are the actions that the message of a timeout carries
// (compat 11): a halt is told as one, never as silence.
var timeoutActions = map[string]string{
	DefaultDecline: "timeout_decline", DefaultCancel: "timeout_cancel", DefaultContinue: "timeout_continue",
}

// The limits of human requests.
const (
	DefaultHumanDeadline = 5 * time.Minute
	MinHumanDeadline     = time.Second
	MaxHumanDeadline     = 7 * 24 * time.Hour
	MaxHumanPrompt       = 16 << 10 // bytes
	MaxHumanSchema       = 16 << 10 // bytes of JSON
	MaxHumanContent      = 64 << 10 // bytes of JSON of an answer
	MaxCredential        = 4 << 10  // bytes of JSON of a credential: KMS seals no more at once
	MaxLateAnswers       = 10       // kept of a request
	maxLateContent       = 8 << 10  // bytes of a late answer's content; a longer one is left out
	MaxPendingHuman      = 1000     // requests a list of the pending ones holds
	maxHumanWait         = 25 * time.Second
)

// The message that tells a requester (contract 6).
const (
	humanSender          = "hub:hitl"
	humanTopic           = "human.response"
	humanPriority        = 7
	humanTimeoutPriority = 5
	humanMessageTTL      = 5 * time.Minute
	humanSystem          = "system"
	// DefaultSubmitter is who answered when nobody says.
	DefaultSubmitter = "human"
)

// HumanRequest is a question to a person, as it is stored.
type HumanRequest struct {
	ID            string
	Requester     string
	Kind          HumanKind
	Prompt        string
	Schema        json.RawMessage // {} asks for nothing
	Channel       string          // where the requester would like the person to be asked
	State         HumanState
	Deadline      Instant // the first instant at which an answer is late
	DefaultAction string
	CorrelationID string
	TraceID       string
	CreatedAt     Instant

	// Of the outcome; zero while pending.
	Action      string
	Answer      HumanContent
	SubmittedBy string
	ResolvedAt  Instant
	MessageID   string // of the message that told the requester

	Late []LateAnswer // oldest first
	// Version counts the changes: a write names the one it follows.
	Version int64
}

// HumanContent is what a person answered: JSON, or for a credential the sealed
// bytes. Both are empty when there is nothing.
type HumanContent struct {
	JSON   json.RawMessage `json:"json,omitempty"`
	Sealed []byte          `json:"sealed,omitempty"`
}

// LateAnswer is an answer that came at or after the deadline.
type LateAnswer struct {
	At          Instant      `json:"at_ms"`
	Action      string       `json:"action"`
	Content     HumanContent `json:"content"`
	SubmittedBy string       `json:"submitted_by"`
	// Cut: the content was too long to be kept.
	Cut bool `json:"cut,omitempty"`
}

// overdue tells whether the deadline has passed and nobody has met the request
// since.
func (r HumanRequest) overdue(now Instant) bool { return r.State == HumanPending && r.Deadline <= now }

// HumanChange is a request's next version and what is announced with it. It
// applies where the version before it stands (0: there is none).
type HumanChange struct {
	Request HumanRequest
	Announcement
}

// HumanRequestStore keeps the human requests. Reads are strongly consistent
// except where said.
type HumanRequestStore interface {
	// SaveHumanRequest applies a change, all of it or nothing.
	SaveHumanRequest(ctx context.Context, c HumanChange) (SaveOutcome, error)
	// ReadHumanRequest returns one request; false when there is none.
	ReadHumanRequest(ctx context.Context, id string) (HumanRequest, bool, error)
	// PendingHumanRequests returns up to limit pending requests, oldest first.
	// Which there are may lag a moment behind.
	PendingHumanRequests(ctx context.Context, limit int) ([]HumanRequest, error)
	// DueHumanRequests returns a page of one shard of the requests whose deadline
	// has passed by now.
	DueHumanRequests(ctx context.Context, shard int, now Instant, after string, limit int) (DueHumanPage, error)
	// HumanShards tells how many shards DueHumanRequests has.
	HumanShards() int
}

// DueHumanPage is a page of requests that are due.
type DueHumanPage struct {
	Requests []HumanRequest
	Oldest   Instant // the first entry's deadline; 0 when there is none
	Next     string
	// Unreadable is the error of the first item that cannot be read; the page leaves
	// such items out.
	Unreadable error
}

// SchemaChecker judges JSON Schemas and the answers that have to satisfy them.
// It reads nothing but what it is given: no reference leads outside a schema.
type SchemaChecker interface {
	// CheckSchema tells what is wrong with a schema, "" for nothing.
	CheckSchema(schema json.RawMessage) string
	// CheckValue tells where a value does not satisfy a schema, "" where it does.
	CheckValue(schema, value json.RawMessage) string
}

// Sealer encrypts credentials at rest. The context is bound into the sealed
// bytes: they open under the same context only.
type Sealer interface {
	Seal(ctx context.Context, plain []byte, context string) ([]byte, error)
	Open(ctx context.Context, sealed []byte, context string) ([]byte, error)
}

// HumanQuestion asks a person.
type HumanQuestion struct {
	Requester     string
	Kind          string
	Prompt        string
	Schema        json.RawMessage // an object or nil
	DeadlineMs    Opt[int64]      // a duration
	DefaultAction string          // "": decline
	Channel       string
	CorrelationID string
	TraceID       string
	Fences        Fences
	Idempotency   Opt[IdempotencyKey]
}

// HumanAsked is the answer to a question to a person.
type HumanAsked struct {
	RequestID string     `json:"request_id"`
	State     HumanState `json:"state"`
	Deadline  Instant    `json:"deadline_ms"`
	Replayed  bool       `json:"-"`
}

// AskHuman stores a question (contract 6). No message is sent: people find it
// among the pending ones. Cost: one conditional put, a transaction with a fence
// or an idempotency key.
//
// Errors: INVALID_ARGUMENT, CREDENTIALS_NOT_SEALED, IDEMPOTENCY_MISMATCH and
// those of the fences.
func (h *Hub) AskHuman(ctx context.Context, q HumanQuestion) (HumanAsked, error) {
	if err := q.validate(h); err != nil {
		return HumanAsked{}, err
	}
	identity, err := h.checkIdentity(ctx, q.Fences)
	if err != nil {
		return HumanAsked{}, err
	}
	started := h.clock.Now()
	request := q.request(InstantOf(started), h.ids)
	answer := HumanAsked{RequestID: request.ID, State: request.State, Deadline: request.Deadline}
	change := HumanChange{Request: request, Announcement: Announcement{
		Fence: fenceOf(q.Requester, q.Fences), WriteStamp: h.stamp(started),
	}}
	if q.Idempotency.Set {
		record, err := q.Idempotency.Value.record(answer, InstantOf(started))
		if err != nil {
			return HumanAsked{}, err
		}
		change.Once = Some(record)
	}
	saved, err := h.humans.SaveHumanRequest(ctx, change)
	switch {
	case err != nil:
		return HumanAsked{}, fmt.Errorf("put human request: %w", err)
	case saved.Repeated.Set:
		answer = HumanAsked{Replayed: true}
		return answer, q.Idempotency.Value.replay(saved.Repeated.Value, &answer)
	case saved.Stale.Set:
		return HumanAsked{}, h.staleActor(change.Fence.Value, saved.Stale.Value, identity)
	case !saved.Done:
		return HumanAsked{}, Refuse(CodeInternal, "a new request's id was taken")
	}
	answer.Replayed = saved.Replayed
	return answer, nil
}

func (q *HumanQuestion) validate(h *Hub) error {
	if err := checkAgentID("requester_agent", q.Requester); err != nil {
		return err
	}
	if !slices.Contains(HumanKinds, HumanKind(q.Kind)) {
		return Invalid("kind", fmt.Sprintf("kind must be one of %v", HumanKinds))
	}
	if q.Prompt == "" || len(q.Prompt) > MaxHumanPrompt {
		return Invalid("prompt", fmt.Sprintf("prompt must have 1 to %d bytes", MaxHumanPrompt))
	}
	if q.DefaultAction == "" {
		q.DefaultAction = DefaultDecline
	}
	if timeoutActions[q.DefaultAction] == "" {
		return Invalid("default_action", "default_action must be decline, cancel or timeout_continue")
	}
	if d := q.DeadlineMs; d.Set && (d.Value < MinHumanDeadline.Milliseconds() || d.Value > MaxHumanDeadline.Milliseconds()) {
		return Invalid("deadline_ms", fmt.Sprintf("deadline_ms must be a duration of %d to %d", MinHumanDeadline.Milliseconds(), MaxHumanDeadline.Milliseconds()))
	}
	if len(q.Channel) > MaxIDBytes || !isText(q.Channel) {
		return Invalid("channel_preference", "channel_preference must be at most 512 bytes of UTF-8 without control characters")
	}
	if err := checkOptionalIDs(map[string]string{"correlation_id": q.CorrelationID, "trace_id": q.TraceID}); err != nil {
		return err
	}
	if err := q.checkSchema(h.schemas); err != nil {
		return err
	}
	if HumanKind(q.Kind) == HumanCredential && h.sealer == nil {
		return Refuse(CodeCredentialsNotSealed, "this hub has no key to seal credentials with; nothing was stored")
	}
	if q.Idempotency.Set {
		return q.Idempotency.Value.validate()
	}
	return nil
}

func (q *HumanQuestion) checkSchema(schemas SchemaChecker) error {
	if isNull(q.Schema) {
		q.Schema = json.RawMessage("{}")
		return nil
	}
	schema, err := compactJSON("requested_schema", q.Schema, MaxHumanSchema)
	if err != nil {
		return err
	}
	if !isObject(schema) {
		return Invalid("requested_schema", "requested_schema must be an object")
	}
	if problem := schemas.CheckSchema(schema); problem != "" {
		return Invalid("requested_schema", "requested_schema is not a JSON Schema this hub takes: "+problem)
	}
	q.Schema = schema
	return nil
}

func (q HumanQuestion) request(now Instant, ids IDs) HumanRequest {
	deadline := DefaultHumanDeadline
	if q.DeadlineMs.Set {
		deadline = time.Duration(q.DeadlineMs.Value) * time.Millisecond
	}
	return HumanRequest{
		ID: ids.New(), Requester: q.Requester, Kind: HumanKind(q.Kind), Prompt: q.Prompt, Schema: q.Schema, Channel: q.Channel,
		State: HumanPending, Deadline: now.Add(deadline), DefaultAction: q.DefaultAction,
		CorrelationID: orNewID(q.CorrelationID, ids), TraceID: orNewID(q.TraceID, ids), CreatedAt: now, Version: 1,
	}
}

// HumanSubmission is a person's answer.
type HumanSubmission struct {
	RequestID   string
	Action      string // accept, decline or cancel
	Content     json.RawMessage
	SubmittedBy string
	// Agents are the agents the caller is bound to, if it is: none of them may
	// answer its own question.
	Agents []string
}

// HumanResolved is the answer to a submit.
type HumanResolved struct {
	RequestID string
	State     HumanState
	MessageID string // of the message to the requester
	Replayed  bool
}

// SubmitHuman answers a question (contract 6, compat 11). The first answer wins,
// by the condition of the transaction that also tells the requester. Cost: a
// read, then one transaction.
//
// Errors, in this order: NOT_FOUND, ALREADY_HANDLED, INVALID_ACTION,
// DEADLINE_PASSED (the answer is kept as a late one), SCHEMA_MISMATCH; and
// INVALID_ARGUMENT, FORBIDDEN for a caller bound to the requester.
func (h *Hub) SubmitHuman(ctx context.Context, s HumanSubmission) (HumanResolved, error) {
	if err := s.validate(); err != nil {
		return HumanResolved{}, err
	}
	for attempt := range changeAttempts {
		seen, found, err := h.humans.ReadHumanRequest(ctx, s.RequestID)
		if err != nil {
			return HumanResolved{}, fmt.Errorf("read human request: %w", err)
		}
		if !found {
			return HumanResolved{}, Refuse(CodeNotFound, "there is no such human request")
		}
		started := h.clock.Now()
		change, refusal := h.submission(ctx, seen, s, started)
		if change.Request.Version == 0 {
			return HumanResolved{}, refusal
		}
		saved, err := h.humans.SaveHumanRequest(ctx, change)
		switch {
		case err != nil:
			return HumanResolved{}, fmt.Errorf("put answer: %w", err)
		case saved.Done && refusal != nil:
			return HumanResolved{}, refusal
		case saved.Done:
			done := change.Request
			return HumanResolved{RequestID: done.ID, State: done.State, MessageID: done.MessageID, Replayed: saved.Replayed}, nil
		}
		if err := pause(ctx, attempt); err != nil {
			return HumanResolved{}, err
		}
	}
	return HumanResolved{}, errCrowded()
}

func (s *HumanSubmission) validate() error {
	if err := checkID("request_id", s.RequestID); err != nil {
		return err
	}
	if s.SubmittedBy == "" {
		s.SubmittedBy = DefaultSubmitter
	}
	if err := checkID("submitted_by", s.SubmittedBy); err != nil {
		return err
	}
	var err error
	s.Content, err = compactJSON("content", s.Content, MaxHumanContent)
	return err
}

// submission is what a submit does to the request it sees: the change to make,
// the refusal to answer when it was made, or a refusal without any change.
func (h *Hub) submission(ctx context.Context, seen HumanRequest, s HumanSubmission, started time.Time) (HumanChange, error) {
	now := InstantOf(started)
	if seen.State != HumanPending && seen.State != HumanTimedOut {
		return HumanChange{}, Refuse(CodeAlreadyHandled, "the request was answered before")
	}
	state, known := humanActions[s.Action]
	switch {
	case !known:
		return HumanChange{}, InvalidCode(CodeInvalidAction, "action", "action must be accept, decline or cancel")
	case slices.Contains(s.Agents, seen.Requester):
		return HumanChange{}, Refuse(CodeForbidden, "an agent does not answer its own question")
	case seen.Kind == HumanCredential && len(s.Content) > MaxCredential:
		return HumanChange{}, Invalid("content", fmt.Sprintf("content of a credential must be at most %d bytes", MaxCredential))
	case seen.State == HumanTimedOut || seen.Deadline <= now:
		return h.lateSubmission(ctx, seen, s, started)
	}
	if state == HumanAccepted && string(seen.Schema) != "{}" {
		if problem := h.schemas.CheckValue(seen.Schema, s.Content); problem != "" {
			return HumanChange{}, InvalidCode(CodeSchemaMismatch, "content", "content does not satisfy the request's schema: "+problem)
		}
	}
	answer, err := h.humanContent(ctx, seen, s.Content)
	if err != nil {
		return HumanChange{}, err
	}
	shown := s.Content
	if seen.Kind == HumanCredential {
		shown = json.RawMessage("null") // compat 20: it is fetched, under the fence
	}
	return h.resolution(seen, humanOutcome{
		state: state, action: s.Action, answer: answer, shown: shown, by: s.SubmittedBy, priority: humanPriority,
	}, started), nil
}

// humanOutcome is how a request ends.
type humanOutcome struct {
	state    HumanState
	action   string
	answer   HumanContent
	shown    json.RawMessage // the content in the message
	by       string
	priority int64
}

// resolution ends a request and tells its requester.
func (h *Hub) resolution(seen HumanRequest, o humanOutcome, started time.Time) HumanChange {
	now := InstantOf(started)
	payload := object{}
	payload.put("request_id", quoted(seen.ID))
	payload.put("action", quoted(o.action))
	payload.put("content", o.shown)
	payload.put("submitted_by", quoted(o.by))
	message := h.announce(announcement{
		from: humanSender, to: seen.Requester, kind: MessageHumanResponse, topic: humanTopic, priority: o.priority,
		ttl: humanMessageTTL, correlationID: seen.CorrelationID, traceID: seen.TraceID, payload: payload.encode(),
	}, now)
	next := seen
	next.Version++
	next.State, next.Action, next.Answer, next.SubmittedBy = o.state, o.action, o.answer, o.by
	next.ResolvedAt, next.MessageID = now, message.ID
	return HumanChange{Request: next, Announcement: Announcement{Messages: []Delivery{message}, WriteStamp: h.stamp(started)}}
}

// expiry ends a request whose deadline has passed with its default action.
func (h *Hub) expiry(seen HumanRequest, started time.Time) HumanChange {
	return h.resolution(seen, humanOutcome{
		state: HumanTimedOut, action: timeoutActions[seen.DefaultAction], shown: json.RawMessage("null"),
		by: humanSystem, priority: humanTimeoutPriority,
	}, started)
}

// lateSubmission keeps an answer that came too late, and ends the request in
// the same write when nobody has yet.
func (h *Hub) lateSubmission(ctx context.Context, seen HumanRequest, s HumanSubmission, started time.Time) (HumanChange, error) {
	refusal := Refuse(CodeDeadlinePassed, "the request's deadline has passed; the answer is kept as a late one")
	change := HumanChange{Request: seen, Announcement: Announcement{WriteStamp: h.stamp(started)}}
	if seen.State == HumanPending {
		change = h.expiry(seen, started)
	} else {
		change.Request.Version++
	}
	if len(seen.Late) >= MaxLateAnswers {
		refusal = Refuse(CodeDeadlinePassed, "the request's deadline has passed, and it has as many late answers as are kept")
		if seen.State == HumanTimedOut {
			return HumanChange{}, refusal
		}
		return change, refusal
	}
	late := LateAnswer{At: InstantOf(started), Action: s.Action, SubmittedBy: s.SubmittedBy, Cut: len(s.Content) > maxLateContent}
	if !late.Cut {
		content, err := h.humanContent(ctx, seen, s.Content)
		if err != nil {
			return HumanChange{}, err
		}
		late.Content = content
	}
	change.Request.Late = append(slices.Clone(seen.Late), late)
	return change, refusal
}

// humanContent is an answer as it is stored: what is falsy to the reference as
// nothing (contract 1.7), a credential sealed.
func (h *Hub) humanContent(ctx context.Context, r HumanRequest, content json.RawMessage) (HumanContent, error) {
	if slices.Contains([]string{"null", "false", "0", `""`}, string(content)) {
		return HumanContent{}, nil
	}
	if r.Kind != HumanCredential {
		return HumanContent{JSON: content}, nil
	}
	if h.sealer == nil {
		return HumanContent{}, Refuse(CodeCredentialsNotSealed, "this hub has no key to seal credentials with; nothing was stored")
	}
	sealed, err := h.sealer.Seal(ctx, content, r.ID)
	if err != nil {
		return HumanContent{}, fmt.Errorf("seal credential: %w", err)
	}
	return HumanContent{Sealed: sealed}, nil
}

// settleHuman ends a request that is overdue and returns it as it then stands.
// ended tells that this call did it.
func (h *Hub) settleHuman(ctx context.Context, seen HumanRequest) (_ HumanRequest, ended bool, _ error) {
	for attempt := range changeAttempts {
		started := h.clock.Now()
		if !seen.overdue(InstantOf(started)) {
			return seen, false, nil
		}
		change := h.expiry(seen, started)
		saved, err := h.humans.SaveHumanRequest(ctx, change)
		if err != nil {
			return seen, false, fmt.Errorf("end human request: %w", err)
		}
		if saved.Done {
			return change.Request, true, nil
		}
		if err := pause(ctx, attempt); err != nil {
			return seen, false, err
		}
		if seen, _, err = h.humans.ReadHumanRequest(ctx, seen.ID); err != nil {
			return seen, false, fmt.Errorf("read human request: %w", err)
		}
	}
	return seen, false, errCrowded()
}

// HumanRead asks for one request.
type HumanRead struct {
	RequestID string
	// WaitMs is how long to wait for the request to end: brought into 0..25,000.
	WaitMs int64
	// Fences: the generation is the requester's. With it a credential is opened.
	Fences Fences
}

// HumanView is a request as a reader sees it. Response and the late answers'
// contents are null where there is nothing, or nothing for this reader.
type HumanView struct {
	HumanRequest
	Response json.RawMessage
	Late     []LateView
	// Opened: it shows a credential.
	Opened bool
}

// LateView is a late answer as a reader sees it.
type LateView struct {
	LateAnswer
	Content json.RawMessage
}

// HumanRequest reads one request, whatever became of its message (contract 1.7).
// An overdue one ends here if nobody has met it. A credential shows only to a
// reader that sends the requester's current generation. Cost: one read, two with
// the fence; while it waits one read at most every second.
//
// Errors: NOT_FOUND, INVALID_ARGUMENT and those of the fences.
func (h *Hub) HumanRequest(ctx context.Context, r HumanRead) (HumanView, error) {
	if err := checkID("request_id", r.RequestID); err != nil {
		return HumanView{}, err
	}
	identity, err := h.checkIdentity(ctx, r.Fences)
	if err != nil {
		return HumanView{}, err
	}
	var request HumanRequest
	wait := time.Duration(min(max(r.WaitMs, 0), maxHumanWait.Milliseconds())) * time.Millisecond
	err = follow(ctx, wait, func(ctx context.Context) (bool, error) {
		var found bool
		if request, found, err = h.humans.ReadHumanRequest(ctx, r.RequestID); err != nil {
			return false, fmt.Errorf("read human request: %w", err)
		}
		if !found {
			return false, Refuse(CodeNotFound, "there is no such human request")
		}
		request, _, err = h.settleHuman(ctx, request)
		return request.State != HumanPending, err
	})
	if err != nil {
		return HumanView{}, err
	}
	if r.Fences.Generation.Set {
		if err := h.checkFence(ctx, fenceOf(request.Requester, r.Fences).Value, identity); err != nil {
			return HumanView{}, err
		}
	}
	return h.humanView(ctx, request, r.Fences.Generation.Set)
}

// checkFence refuses an agent whose fence does not hold at this moment.
func (h *Hub) checkFence(ctx context.Context, fence AgentFence, identity Identity) error {
	agent, _, err := h.presence.ReadAgent(ctx, fence.AgentID)
	if err != nil {
		return fmt.Errorf("read agent: %w", err)
	}
	if agent.Generation != fence.Generation || agent.Final {
		return h.staleActor(fence, agent, identity)
	}
	return nil
}

// follow looks until there is something, soon at first and then every second,
// as long as wait and the context allow. A look that fails ends it.
func follow(ctx context.Context, wait time.Duration, look func(context.Context) (bool, error)) error {
	limit := time.NewTimer(wait)
	defer limit.Stop()
	for pause := askFirstLook; ; pause = min(pause*3/2, askLastLook) {
		if found, err := look(ctx); err != nil || found || wait <= 0 {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-limit.C:
			timer.Stop()
			_, err := look(ctx)
			return err
		case <-ctx.Done():
			timer.Stop()
			return nil // what was seen last is the answer
		}
	}
}

func (h *Hub) humanView(ctx context.Context, r HumanRequest, open bool) (HumanView, error) {
	view := HumanView{HumanRequest: r, Late: []LateView{}}
	show := func(c HumanContent) (json.RawMessage, error) {
		switch {
		case c.JSON != nil:
			return c.JSON, nil
		case len(c.Sealed) == 0 || !open:
			return json.RawMessage("null"), nil
		case h.sealer == nil:
			return nil, Refuse(CodeCredentialsNotSealed, "this hub has no key to open credentials with")
		}
		plain, err := h.sealer.Open(ctx, c.Sealed, r.ID)
		if err != nil {
			return nil, fmt.Errorf("open credential: %w", err)
		}
		view.Opened = true
		return plain, nil
	}
	var err error
	if view.Response, err = show(r.Answer); err != nil {
		return HumanView{}, err
	}
	for _, late := range r.Late {
		content, err := show(late.Content)
		if err != nil {
			return HumanView{}, err
		}
		view.Late = append(view.Late, LateView{LateAnswer: late, Content: content})
	}
	return view, nil
}

// maxSettledByList bounds the overdue requests that one list ends on its way.
const maxSettledByList = 20

// PendingHuman lists the requests that wait for a person, oldest first, up to
// MaxPendingHuman. One whose deadline has passed is not among them. Cost: 2
// round trips; more where it meets overdue ones, which it ends.
func (h *Hub) PendingHuman(ctx context.Context) ([]HumanView, error) {
	found, err := h.humans.PendingHumanRequests(ctx, MaxPendingHuman)
	if err != nil {
		return nil, fmt.Errorf("read pending human requests: %w", err)
	}
	now := InstantOf(h.clock.Now())
	views, size := []HumanView{}, 0
	var overdue []HumanRequest
	for _, r := range found {
		if r.overdue(now) && len(overdue) < maxSettledByList {
			overdue = append(overdue, r)
		}
		if r.State != HumanPending || r.Deadline <= now {
			continue
		}
		if size += len(r.Prompt) + len(r.Schema) + messageOverhead; size > MaxDrainBytes {
			break
		}
		view, err := h.humanView(ctx, r, false)
		if err != nil {
			return nil, err
		}
		views = append(views, view)
	}
	// They read as ended either way: what fails here, the sweep does.
	_ = inParallel(len(overdue), sweepParallel, func(i int) error {
		_, _, err := h.settleHuman(ctx, overdue[i])
		return err
	})
	return views, nil
}

// HumanSweep counts what a sweep of the human requests did.
type HumanSweep struct {
	TimedOut int
	Lost     int // due ones that somebody else ended first
	Lag      time.Duration
	More     bool
}

// SweepHumanRequests ends the requests whose deadline has passed and tells their
// requesters. Every end is a write that decides by itself, so the sweep is safe
// beside submits, reads and another sweep, and may die anywhere.
func (h *Hub) SweepHumanRequests(ctx context.Context) (HumanSweep, error) {
	run := newDueRun(h)
	var counts HumanSweep
	run.shards(h.humans.HumanShards(), func(shard int, after string) (duePage, error) {
		page, err := h.humans.DueHumanRequests(ctx, shard, run.now, after, sweepPage)
		if err != nil {
			return duePage{}, fmt.Errorf("read due human requests: %w", err)
		}
		return duePage{page.Oldest, page.Next, len(page.Requests), func(i int) error {
			_, ended, err := h.settleHuman(ctx, page.Requests[i])
			if err != nil {
				return err
			}
			run.count(func() {
				if ended {
					counts.TimedOut++
				} else {
					counts.Lost++
				}
			})
			return nil
		}, page.Unreadable}, nil
	})
	counts.Lag, counts.More = run.lag, run.more
	return counts, run.failed
}

func (h *Hub) sweepHumanRequests(ctx context.Context) (SweepReport, error) {
	s, err := h.SweepHumanRequests(ctx)
	return SweepReport{Counts: map[string]int{"timed_out": s.TimedOut, "lost": s.Lost}, Lag: s.Lag, More: s.More}, err
}

// trimmed brings a word of the outside into the form the hub knows it in.
func trimmed(word string) string { return strings.ToLower(strings.TrimSpace(word)) }
