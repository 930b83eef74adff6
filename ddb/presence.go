package ddb

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
)

// The attributes of an agent's item. What a heartbeat changes is in no index.
const (
	generationAttr   = "generation"
	presenceAttr     = "presence" // the stored status ("status" is a reserved word)
	finishedAttr     = "finished" // there, and true, when the generation is over for good
	cliAttr          = "cli"
	capabilitiesAttr = "capabilities"
	topicsAttr       = "topics"
	metadataAttr     = "metadata"
	projectAttr      = "project_id"
	sessionAttr      = "session_id"
	hostAttr         = "host_id"
	locatorsAttr     = "locators"
	registeredAttr   = "registered_ms"
	seenAttr         = "seen_ms"
	leaseAttr        = "lease_ms"
	stepAttr         = "step"
	stepAtAttr       = "step_ms"
	stepDeadlineAttr = "step_deadline_ms"
	writeIDAttr      = "write_id"   // of the latest write by an agent
	touchedAttr      = "touched_us" // when the operation of that write started, or past what it met
	sweptIDAttr      = "swept_id"   // write id of the latest step by a sweep
)

// writeAttempts bounds how often a write is fitted to the item that refused it.
const writeAttempts = 16

// RegisterAgent is one UpdateItem. Two things make it two: the due entry has to
// move to an earlier deadline, or a host whose clock is ahead wrote last. Topics
// go before it, as entries of their own, so that a follower is never missed.
//
// Cost: 1 round trip, 1 write unit; 2 index units more the first time (the list
// entry of the id's life, the due entry), 2 when the due entry moves earlier
// (and 1 for the refused write); with topics 1 round trip and one unit per topic
// more. IAM: UpdateItem, BatchWriteItem.
func (s *Store) RegisterAgent(ctx context.Context, r core.AgentRegistration) (core.AgentWrite, error) {
	if err := s.writeFollowers(ctx, r); err != nil {
		return core.AgentWrite{}, err
	}
	touched, moveDue := micros(r.Started), false
	for range writeAttempts {
		u := registration(r, touched, moveDue)
		u.condition = append(u.condition, "(attribute_not_exists(pk) OR write_id <> :wid AND touched_us <= :touched"+dueKept(moveDue)+")")
		it, done, err := s.apply(ctx, u)
		if err != nil {
			return core.AgentWrite{}, err
		}
		agent, stamp, err := readAgent(it)
		if err != nil || done || stamp.writeID == r.WriteID {
			return core.AgentWrite{Agent: agent, Replayed: !done}, err
		}
		// A register never yields: it takes its place after what it met.
		touched, moveDue = placeAfter(touched, agent), true
	}
	return core.AgentWrite{}, core.Refuse(core.CodeContended, "others kept registering this agent")
}

// placeAfter is where a write goes among an agent's writes, in microseconds:
// where it would, or past the one it met, so that a late copy of that one is
// older than this one.
func placeAfter(touched int64, met core.Agent) int64 {
	if last := micros(met.TouchedAt); last > touched {
		return last + 1
	}
	return touched
}

// dueKept is the condition under which an existing due entry may stay where it
// is: it is not later than the deadline of this write.
func dueKept(moveDue bool) string {
	if moveDue {
		return ""
	}
	return " AND (attribute_not_exists(due_sk) OR due_sk <= :due_sk)"
}

// setDue writes the due entry: where there is none, or in any case.
func setDue(u *update, moveDue bool, id string, deadline core.Instant) {
	if moveDue {
		u.set = append(u.set, "due_pk = :due_pk", "due_sk = :due_sk")
	} else {
		u.set = append(u.set, "due_pk = if_not_exists(due_pk, :due_pk)", "due_sk = if_not_exists(due_sk, :due_sk)")
	}
	u.values[":due_pk"] = text(agentPartition(shardOf(id, agentShards)))
	u.values[":due_sk"] = text(dueKey(deadline, id))
}

// registration is the update of a register without its condition.
func registration(r core.AgentRegistration, touched int64, moveDue bool) update {
	now := core.InstantOf(r.Started)
	u := update{
		key: agentKey(r.AgentID),
		set: []string{
			"generation = if_not_exists(generation, :none) + :one",
			"presence = :online", "cli = :cli", "capabilities = :capabilities", "topics = :topics", "metadata = :metadata",
			"registered_ms = :now", "seen_ms = :now", "step_ms = :now", "lease_ms = :lease",
			"write_id = :wid", "touched_us = :touched",
			"list_pk = if_not_exists(list_pk, :list_pk)", "list_sk = if_not_exists(list_sk, :list_sk)",
		},
		remove: []string{finishedAttr, sweptIDAttr, holdsAttr},
		values: item{
			":none":         number(0),
			":one":          number(1),
			":online":       text(string(core.StatusOnline)),
			":cli":          text(r.CLI),
			":capabilities": texts(r.Capabilities),
			":topics":       texts(r.Topics),
			":metadata":     text(string(r.Metadata)),
			":now":          instant(now),
			":lease":        instant(r.LeaseExpires),
			":wid":          text(r.WriteID),
			":touched":      number(touched),
			":list_pk":      text(agentPartition(shardOf(r.AgentID, agentShards))),
			":list_sk":      text(r.AgentID),
		},
	}
	setDue(&u, moveDue, r.AgentID, r.LeaseExpires)
	keepUnlessSet(&u, projectAttr, r.ProjectID)
	keepUnlessSet(&u, sessionAttr, r.SessionID)
	keepUnlessSet(&u, hostAttr, r.HostID)
	keepUnlessSet(&u, locatorsAttr, core.Opt[string]{Value: string(r.Locators.Value), Set: r.Locators.Set})
	setOrRemove(&u, stepAttr, r.Step.Set, r.Step.Value)
	setOrRemove(&u, stepDeadlineAttr, r.StepDeadline.Set, r.StepDeadline.Value.Milliseconds())
	return u
}

func keepUnlessSet(u *update, name string, v core.Opt[string]) {
	if v.Set {
		u.set = append(u.set, name+" = :"+name)
		u.values[":"+name] = text(v.Value)
	}
}

func setOrRemove(u *update, name string, set bool, v int64) {
	if !set {
		u.remove = append(u.remove, name)
		return
	}
	u.set = append(u.set, name+" = :"+name)
	u.values[":"+name] = number(v)
}

// ReadRegistration reads the agent and a stored answer. Cost: 1 request, 1 read
// unit each per 4 KB. IAM: BatchGetItem.
func (s *Store) ReadRegistration(ctx context.Context, agentID, recordID string) (core.Agent, core.Opt[core.IdempotencyRecord], error) {
	none := core.Opt[core.IdempotencyRecord]{}
	found, err := s.batchGet(ctx, []key{agentKey(agentID), idempotencyKey(recordID)})
	if err != nil {
		return core.Agent{}, none, err
	}
	agent, _, err := readAgent(found[agentKey(agentID)])
	if err != nil {
		return core.Agent{}, none, err
	}
	stored, ok := found[idempotencyKey(recordID)]
	if !ok {
		return agent, none, nil
	}
	answer, err := readAnswer(recordID, stored)
	return agent, core.Some(answer), err
}

// RegisterAgentOnce is a transaction over the agent and the stored answer,
// because the answer tells the generation and neither may exist without the
// other. Cost: 1 round trip (one more with topics), 4 write units and those of
// the indexes. IAM: UpdateItem, PutItem, BatchWriteItem.
func (s *Store) RegisterAgentOnce(ctx context.Context, r core.AgentRegistration, seen core.Agent, answer core.IdempotencyRecord) (bool, error) {
	if err := s.writeFollowers(ctx, r); err != nil {
		return false, err
	}
	moveDue := seen.DueAt > r.LeaseExpires
	u := registration(r, placeAfter(micros(r.Started), seen), moveDue)
	condition := "attribute_not_exists(pk)"
	if seen.Generation > 0 {
		condition = "generation = :seen AND touched_us <= :touched" + dueKept(moveDue)
		u.values[":seen"] = number(seen.Generation)
	}
	return s.transact(ctx, types.TransactWriteItem{Update: &types.Update{
		TableName:                 aws.String(s.table),
		Key:                       u.key.item(),
		UpdateExpression:          aws.String(u.expression()),
		ConditionExpression:       aws.String(condition),
		ExpressionAttributeValues: u.values,
	}}, s.putAnswer(answer, r.Started))
}

// HeartbeatAgent is one UpdateItem that changes no index key. It becomes two
// when its step has not grown, or when the lease now ends before the due entry.
//
// Cost: 1 round trip, 1 write unit; 2 index units more when the agent had no due
// entry (it was offline). IAM: UpdateItem.
func (s *Store) HeartbeatAgent(ctx context.Context, b core.AgentHeartbeat) (core.AgentWrite, error) {
	step, moveDue := b.Step, false
	for range writeAttempts {
		it, done, err := s.apply(ctx, heartbeat(b, step, moveDue))
		if err != nil {
			return core.AgentWrite{}, err
		}
		agent, stamp, err := readAgent(it)
		switch {
		case err != nil || done:
			return core.AgentWrite{Agent: agent}, err
		case stamp.writeID == b.WriteID:
			return core.AgentWrite{Agent: agent, Replayed: true}, nil
		case agent.Generation == 0 || agent.Final || b.Generation.Set && b.Generation.Value != agent.Generation:
			return core.AgentWrite{Agent: agent, Refused: true}, nil
		case micros(agent.TouchedAt) > micros(b.Started):
			// The agent was written by an operation that started later, so this
			// heartbeat counts as the earlier one and has nothing to add.
			return core.AgentWrite{Agent: agent}, nil
		}
		if step.Set && agent.Step.Set && agent.Step.Value >= step.Value {
			step = core.Opt[int64]{}
		}
		moveDue = agent.DueAt > b.LeaseExpires
	}
	return core.AgentWrite{}, core.Refuse(core.CodeContended, "others kept changing this agent")
}

func heartbeat(b core.AgentHeartbeat, step core.Opt[int64], moveDue bool) update {
	u := update{
		key:       agentKey(b.AgentID),
		set:       []string{"lease_ms = :lease", "seen_ms = :now", "presence = :online", "write_id = :wid", "touched_us = :touched"},
		condition: []string{"attribute_exists(pk)", "attribute_not_exists(finished)", "touched_us <= :touched" + dueKept(moveDue)},
		values: item{
			":lease":   instant(b.LeaseExpires),
			":now":     instant(core.InstantOf(b.Started)),
			":online":  text(string(core.StatusOnline)),
			":wid":     text(b.WriteID),
			":touched": number(micros(b.Started)),
		},
	}
	setDue(&u, moveDue, b.AgentID, b.LeaseExpires)
	requireGeneration(&u, b.Generation)
	if step.Set {
		u.set = append(u.set, "step = :step", "step_ms = :now")
		u.condition = append(u.condition, "(attribute_not_exists(step) OR step < :step)")
		u.values[":step"] = number(step.Value)
	}
	if b.StepDeadline.Set {
		u.set = append(u.set, "step_deadline_ms = :step_deadline")
		u.values[":step_deadline"] = number(b.StepDeadline.Value.Milliseconds())
	}
	return u
}

func requireGeneration(u *update, generation core.Opt[int64]) {
	if generation.Set {
		u.condition = append(u.condition, "generation = :generation")
		u.values[":generation"] = number(generation.Value)
	}
}

// ChangeAgentStatus is one UpdateItem that its own copy repeats without harm, so
// a retry after a lost answer needs no recognition; offline takes the due entry out of the
// index, because nothing is due for an agent that is offline.
//
// Cost: 1 round trip, 1 write unit and 1 index unit when the due entry goes. A
// second round trip only when a concurrent operation that started later wrote
// first. IAM: UpdateItem.
func (s *Store) ChangeAgentStatus(ctx context.Context, c core.AgentStatusChange) (core.AgentWrite, error) {
	touched := micros(c.Started)
	for range writeAttempts {
		it, done, err := s.apply(ctx, statusChange(c, touched))
		if err != nil {
			return core.AgentWrite{}, err
		}
		agent, _, err := readAgent(it)
		switch {
		case err != nil || done:
			return core.AgentWrite{Agent: agent}, err
		case agent.Generation == 0 || c.Generation.Set && c.Generation.Value != agent.Generation:
			return core.AgentWrite{Agent: agent, Refused: true}, nil
		case agent.Final && c.Status != core.StatusOffline:
			return core.AgentWrite{Agent: agent, Refused: true}, nil
		case !c.Generation.Set && agent.RegisteredAt > core.InstantOf(c.Started):
			// Unfenced and overtaken by a register: it counts as the earlier one,
			// so that a delayed request cannot take a new owner offline.
			return core.AgentWrite{Agent: agent}, nil
		}
		// A heartbeat that started later wrote first. The change wins all the
		// same, and its stamp keeps that heartbeat's copies from undoing it.
		touched = placeAfter(touched, agent)
	}
	return core.AgentWrite{}, core.Refuse(core.CodeContended, "others kept changing this agent")
}

func statusChange(c core.AgentStatusChange, touched int64) update {
	u := update{
		key:       agentKey(c.AgentID),
		set:       []string{"presence = :presence", "write_id = :wid", "touched_us = :touched"},
		condition: []string{"attribute_exists(pk)", "touched_us <= :touched"},
		values: item{
			":presence": text(string(c.Status)),
			":wid":      text(c.WriteID),
			":touched":  number(touched),
		},
	}
	requireGeneration(&u, c.Generation)
	if c.Status == core.StatusOffline {
		u.remove = []string{duePK, dueSK}
	} else {
		// The lease is not known here: an entry that is due at once is early,
		// and the next sweep moves it to where it belongs.
		setDue(&u, false, c.AgentID, core.InstantOf(c.Started))
		u.condition = append(u.condition, "attribute_not_exists(finished)")
	}
	if c.Final {
		u.set = append(u.set, "finished = :finished")
		u.values[":finished"] = flag(true)
	}
	return u
}

// ReadAgent reads one agent. Cost: 1 request, 1 read unit per 4 KB. IAM:
// GetItem.
func (s *Store) ReadAgent(ctx context.Context, agentID string) (core.Agent, bool, error) {
	it, err := s.get(ctx, agentKey(agentID))
	if err != nil || it == nil {
		return core.Agent{}, false, err
	}
	agent, _, err := readAgent(it)
	return agent, err == nil, err
}

// stamp is what a write left of itself.
type stamp struct {
	writeID string
	sweptID string
}

// readAgent decodes an agent's item; no item is the zero Agent.
func readAgent(it item) (core.Agent, stamp, error) {
	if it == nil {
		return core.Agent{}, stamp{}, nil
	}
	r := reader{it: it}
	agent := core.Agent{
		ID:           agentIDOf(r.text(pk)),
		CLI:          r.text(cliAttr),
		Capabilities: r.texts(capabilitiesAttr),
		Topics:       r.texts(topicsAttr),
		Metadata:     r.json(metadataAttr, "{}"),
		ProjectID:    r.text(projectAttr),
		SessionID:    r.text(sessionAttr),
		HostID:       r.text(hostAttr),
		Locators:     r.json(locatorsAttr, "[]"),
		Generation:   r.number(generationAttr),
		Status:       core.Status(r.text(presenceAttr)),
		Final:        r.flag(finishedAttr),
		RegisteredAt: r.instant(registeredAttr),
		LastSeen:     r.instant(seenAttr),
		LeaseExpires: r.instant(leaseAttr),
		Step:         core.Opt[int64]{Value: r.number(stepAttr), Set: r.has(stepAttr)},
		StepAt:       r.instant(stepAtAttr),
		StepDeadline: core.Opt[time.Duration]{Value: r.duration(stepDeadlineAttr), Set: r.has(stepDeadlineAttr)},
		Holds:        r.holds(),
		DueAt:        r.deadline(),
		TouchedAt:    time.UnixMicro(r.number(touchedAttr)).UTC(),
	}
	return agent, stamp{r.text(writeIDAttr), r.text(sweptIDAttr)}, r.err
}

// deadline reads the deadline out of a due entry's key; 0 when there is none.
func (r *reader) deadline() core.Instant {
	due := r.text(dueSK)
	if due == "" {
		return 0
	}
	at, err := deadlineOf(due)
	if err != nil {
		r.fail(dueSK, "a deadline and an id")
	}
	return at
}

// writeFollowers writes an entry for every topic of a registration, and one for
// the legacy role where the agent may lead it. The first to fail ends the
// register before the agent's item says anything.
func (s *Store) writeFollowers(ctx context.Context, r core.AgentRegistration) error {
	const perRequest = 25
	pending := make([]types.WriteRequest, 0, len(r.Topics)+1)
	for _, topic := range r.Topics {
		it := followerKey(topic, r.AgentID).item()
		it["written_ms"] = instant(core.InstantOf(r.Started))
		pending = append(pending, types.WriteRequest{PutRequest: &types.PutRequest{Item: it}})
	}
	if r.LegacyCandidate {
		pending = append(pending, legacyCandidate(r.AgentID, core.InstantOf(r.Started)))
	}
	chunks := (len(pending) + perRequest - 1) / perRequest
	return parallel(chunks, func(i int) error {
		return s.batchWrite(ctx, pending[i*perRequest:min((i+1)*perRequest, len(pending))])
	})
}

// batchWrite puts up to 25 items, in any order and as often as needed.
func (s *Store) batchWrite(ctx context.Context, pending []types.WriteRequest) error {
	for round := 0; len(pending) > 0; round++ {
		if round == batchRounds {
			return core.Refuse(core.CodeThrottled, "the store keeps part of a write back")
		}
		if round > 0 {
			if err := core.Backoff(ctx, round); err != nil {
				return readFailure(err)
			}
		}
		var sent attempts
		out, err := s.client.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{
			RequestItems: map[string][]types.WriteRequest{s.table: pending},
		}, sent.trace)
		if err != nil {
			return sent.failure(err)
		}
		pending = out.UnprocessedItems[s.table]
	}
	return nil
}
