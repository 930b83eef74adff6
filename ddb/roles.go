package ddb

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
)

// ReadRole reads one role. Cost: 1 request, 1 read unit per 4 KB. IAM: GetItem.
func (s *Store) ReadRole(ctx context.Context, wire string) (core.Role, error) {
	it, err := s.get(ctx, roleKey(wire))
	if err != nil {
		return core.Role{}, err
	}
	return readRole(wire, it)
}

// ReadRoles reads roles. Cost: 1 request a hundred, 1 read unit each per 4 KB.
// IAM: BatchGetItem.
func (s *Store) ReadRoles(ctx context.Context, wires []string) ([]core.Role, error) {
	roles := make([]core.Role, 0, len(wires))
	for chunk := range slices.Chunk(wires, batchLimit) {
		keys := make([]key, 0, len(chunk))
		for _, wire := range chunk {
			keys = append(keys, roleKey(wire))
		}
		found, err := s.batchGet(ctx, keys)
		if err != nil {
			return nil, err
		}
		for i, wire := range chunk {
			role, err := readRole(wire, found[keys[i]])
			if err != nil {
				return nil, err
			}
			roles = append(roles, role)
		}
	}
	return roles, nil
}

// ReadAgents reads agents. Cost: 1 request a hundred, 1 read unit each per 4 KB.
// IAM: BatchGetItem.
func (s *Store) ReadAgents(ctx context.Context, ids []string) ([]core.Agent, error) {
	return s.readAgents(ctx, ids)
}

// ReadRoleBoard reads a role's partition from its candidates to itself, beside
// the settings. Cost: 1 round trip, 2 requests; 1 read unit for the settings and
// 1 per 4 KB of role and candidates. IAM: Query, GetItem.
func (s *Store) ReadRoleBoard(ctx context.Context, wire string) (core.RoleBoard, error) {
	board := core.RoleBoard{}
	var items []item
	err := parallel(2, func(i int) (err error) {
		if i == 0 {
			board.Settings, err = s.ReadRoleSettings(ctx)
			return err
		}
		items, err = s.partition(ctx, roleKey(wire).pk, candidatePrefix, roleSK)
		return err
	})
	if err != nil {
		return core.RoleBoard{}, err
	}
	if board.Role, err = readRole(wire, nil); err != nil {
		return core.RoleBoard{}, err
	}
	for _, it := range items {
		if keyOf(it).sk == roleSK {
			board.Role, err = readRole(wire, it)
		} else {
			var c core.RoleCandidate
			c, err = readCandidate(it)
			board.Candidates = append(board.Candidates, c)
		}
		if err != nil {
			return core.RoleBoard{}, err
		}
	}
	return board, nil
}

// partition reads the items of a partition between two sort keys, both
// inclusive, strongly consistent.
func (s *Store) partition(ctx context.Context, partition, from, to string) ([]item, error) {
	var items []item
	for {
		page, more, err := s.keys(ctx, query{
			condition: "pk = :pk AND sk BETWEEN :from AND :to",
			values:    item{":pk": text(partition), ":from": text(from), ":to": text(to)},
			limit:     partitionPage,
		})
		if err != nil {
			return nil, err
		}
		items = append(items, page...)
		if !more || len(page) == 0 {
			return items, nil
		}
		from = keyOf(page[len(page)-1]).sk + "\x00" // the least text after it
	}
}

const partitionPage = 1000

// UpdateRole is one UpdateItem on a role that nobody has read. It becomes two
// when the due entry has to move to an earlier moment. A retry whose first try
// landed finds itself in the role's history, whoever wrote since; when more has
// been written than the history holds, the outcome is unknown and told as such.
//
// Cost: 1 round trip, 1 write unit (2 where the history makes the item larger
// than 1 KB) and up to 2 index units. IAM: UpdateItem.
func (s *Store) UpdateRole(ctx context.Context, u core.RoleUpdate) (core.RoleOutcome, error) {
	var sent attempts
	for moveDue := false; ; moveDue = true {
		up := roleUpdate(u, moveDue)
		up.sent = &sent
		it, done, err := s.apply(ctx, up)
		if err != nil {
			return core.RoleOutcome{}, err
		}
		role, err := readRole(u.Wire, it)
		if err != nil || done {
			return core.RoleOutcome{Done: done, Role: role}, err
		}
		if left, found := u.Recognise(role); found {
			return core.RoleOutcome{Done: true, Replayed: true, Role: left}, nil
		}
		if sent.resent() && !role.Remembers(u.Expected.Version.Value+1) {
			return core.RoleOutcome{}, forgotten()
		}
		if moveDue || u.Due == 0 || role.DueAt <= u.Due || role.Version != u.Expected.Version.Value {
			return core.RoleOutcome{Role: role}, nil
		}
	}
}

// forgotten refuses to tell what became of a write whose answer was lost: the
// version it would have made has left the role's history.
func forgotten() error {
	return core.Refuse(core.CodeOutcomeUnknown, "an answer was lost, and the role's history does not reach back to it; the operation may have happened")
}

func roleUpdate(u core.RoleUpdate, moveDue bool) update {
	up := update{
		key:       roleKey(u.Wire),
		set:       []string{"version = version + :one", "transition_ms = :transition", "write_id = :wid"},
		condition: []string{"version = :version"},
		values: item{
			":one": number(1), ":transition": instant(u.Patch.LastTransition), ":wid": text(u.WriteID),
			":version": number(u.Expected.Version.Value),
		},
	}
	up.require(epochAttr, u.Expected.Epoch)
	up.require(activationSeqAttr, u.Expected.ActivationSeq)
	if u.Expected.ActivationID.Set {
		up.condition = append(up.condition, "activation_id = :expected_id")
		up.values[":expected_id"] = text(u.Expected.ActivationID.Value)
	}
	up.patch(u.Patch)
	if u.Reserve {
		up.set = append(up.set, "epoch = epoch + :one", "activation_seq = activation_seq + :one", "successor = :none")
		up.values[":none"] = text("")
		up.remove = append(up.remove, closedAttr)
	} else {
		up.condition = append(up.condition, "attribute_not_exists(closed)")
	}
	if u.Displace {
		up.set = append(up.set, "previous_holder = holder")
		up.condition = append(up.condition, "holder <> :holder")
	}
	if u.Due != 0 {
		up.setRoleDue(u.Wire, u.Due, moveDue)
	}
	version := u.Expected.Version.Value + 1
	up.set = append(up.set, eventAttr(version)+" = :event")
	up.values[":event"] = text(eventOf(u, version))
	return up
}

// require makes the update conditional on a number that is expected.
func (u *update) require(name string, expected core.Opt[int64]) {
	if expected.Set {
		u.condition = append(u.condition, name+" = :expected_"+name)
		u.values[":expected_"+name] = number(expected.Value)
	}
}

// patch writes the fields of a patch that are set.
func (u *update) patch(p core.RolePatch) {
	put := func(name, as string, set bool, v types.AttributeValue) {
		if set {
			u.set = append(u.set, name+" = :"+as)
			u.values[":"+as] = v
		}
	}
	put(roleStateAttr, "state", p.State.Set, text(string(p.State.Value)))
	put(holderAttr, "holder", p.Holder.Set, text(p.Holder.Value))
	put(holderGenerationAttr, "holder_generation", p.Holder.Set, number(0))
	put(previousHolderAttr, "previous", p.PreviousHolder.Set, text(p.PreviousHolder.Value))
	put(activationIDAttr, "activation_id", p.ActivationID.Set, text(p.ActivationID.Value))
	put(deadlineAttr, "deadline", p.ActivationDeadline.Set, instant(p.ActivationDeadline.Value))
	put(boundAttr, "bound", p.HolderLeaseExpires.Set, instant(p.HolderLeaseExpires.Value))
	put(charterAttr, "charter", p.CharterVersion.Set, text(p.CharterVersion.Value))
	put(retriesAttr, "retries", p.RetryCount.Set, number(p.RetryCount.Value))
	put(nextProbeAttr, "next_probe", p.NextProbe.Set, instant(p.NextProbe.Value))
	put(blockedAttr, "blocked", p.BlockedReason.Set, text(p.BlockedReason.Value))
	put(reasonAttr, "reason", p.LastReason.Set, text(p.LastReason.Value))
	if e := p.CharterAckedEpoch; e.Set && e.Value < 0 {
		u.remove = append(u.remove, charterEpochAttr)
	} else {
		put(charterEpochAttr, "charter_epoch", e.Set, number(e.Value))
	}
}

func (u *update) setRoleDue(wire string, due core.Instant, move bool) {
	if move {
		u.set = append(u.set, "due_pk = :due_pk", "due_sk = :due_sk")
	} else {
		u.set = append(u.set, "due_pk = if_not_exists(due_pk, :due_pk)", "due_sk = if_not_exists(due_sk, :due_sk)")
		u.condition = append(u.condition, "(attribute_not_exists(due_sk) OR due_sk <= :due_sk)")
	}
	u.values[":due_pk"] = text(rolePartition(roleShard(wire)))
	u.values[":due_sk"] = text(roleDueKey(due, wire))
}

// eventOf is what the update knows of its event.
func eventOf(u core.RoleUpdate, version int64) string {
	known := func(set bool, v string) string {
		if set {
			return v
		}
		return eventMark
	}
	epoch := eventMark
	switch e := u.Expected.Epoch; {
	case e.Set && u.Reserve:
		epoch = fmt.Sprint(e.Value + 1)
	case u.Reserve:
		epoch = eventNextEpoch
	case e.Set:
		epoch = fmt.Sprint(e.Value)
	}
	p := u.Patch
	return joinEvent(version, p.LastTransition, known(p.State.Set, string(p.State.Value)), epoch,
		known(p.LastReason.Set, p.LastReason.Value), known(p.Holder.Set, p.Holder.Value), u.Mark())
}

// StepRole is one PutItem on the version that was seen, or one transaction where
// more than the role has to hold or change. A retry of the PutItem is recognised
// as one of UpdateRole is.
//
// Cost: 1 round trip; 1 write unit (2 above 1 KB) and the index entries that
// change, in a transaction twice the units of the items and 2 for each other
// item. IAM: PutItem, ConditionCheckItem.
func (s *Store) StepRole(ctx context.Context, step core.RoleStep) (core.RoleOutcome, error) {
	next := step.Next
	next.History = step.History()
	it := roleItem(next, next.History, step.WriteStamp)
	condition, values := "attribute_not_exists(pk)", item(nil)
	if step.Seen.Version >= 0 {
		condition, values = "version = :version", item{":version": number(step.Seen.Version)}
	}
	if !step.Candidate.Set && !step.Message.Set && !step.Settings.Set && !step.Fence.Set {
		var sent attempts
		observe := func(o *dynamodb.Options) { sent.traceAs(o, "ObserveResends") }
		stands, done, err := s.put(ctx, it, condition, values, observe)
		if err != nil || done {
			return core.RoleOutcome{Done: done, Role: next}, err
		}
		role, err := readRole(next.Wire, stands)
		switch {
		case err != nil:
			return core.RoleOutcome{}, err
		case isStampOf(stands, step.WriteStamp), step.IsIn(role):
			return core.RoleOutcome{Done: true, Replayed: true, Role: next}, nil
		case sent.resent() && !role.Remembers(next.Version):
			return core.RoleOutcome{}, forgotten()
		}
		return core.RoleOutcome{Role: role}, nil
	}
	actions := []types.TransactWriteItem{{Put: &types.Put{
		TableName: aws.String(s.table), Item: it, ConditionExpression: aws.String(condition), ExpressionAttributeValues: values,
	}}}
	fenced := len(actions)
	if step.Fence.Set {
		actions = append(actions, s.checkFence(step.Fence.Value))
	}
	actions = append(actions, s.stepActions(step)...)
	reasons, err := s.commit(ctx, actions)
	if err != nil || reasons == nil {
		return core.RoleOutcome{Done: err == nil, Role: next}, err
	}
	if step.Fence.Set && reasons[fenced].code == conditionFailed {
		agent, _, err := readAgent(reasons[fenced].item)
		return core.RoleOutcome{Stale: core.Some(agent)}, err
	}
	return core.RoleOutcome{Role: step.Seen}, nil
}

// stepActions are what a step changes or needs beside its role.
func (s *Store) stepActions(step core.RoleStep) []types.TransactWriteItem {
	var actions []types.TransactWriteItem
	if step.Candidate.Set {
		actions = append(actions, types.TransactWriteItem{Put: &types.Put{
			TableName: aws.String(s.table), Item: candidateItem(step.Next.Wire, step.Candidate.Value),
		}})
	}
	if step.Message.Set {
		actions = append(actions, s.putNew(deliveryItem(step.Message.Value)))
	}
	if step.Settings.Set {
		actions = append(actions, s.checkSettings(step.Settings.Value))
	}
	return actions
}

func (s *Store) checkSettings(generation int64) types.TransactWriteItem {
	check := &types.ConditionCheck{
		TableName: aws.String(s.table), Key: roleSettingsKey().item(), ConditionExpression: aws.String("attribute_not_exists(pk)"),
	}
	if generation > 0 {
		check.ConditionExpression = aws.String("generation = :generation")
		check.ExpressionAttributeValues = item{":generation": number(generation)}
	}
	return types.TransactWriteItem{ConditionCheck: check}
}

// AcknowledgeRole is one transaction: the role, where it still is reserved that
// way, and the agent, where it is live under its generation. The agent's part is
// also the hint by which its drains find the role. The due entry stays: it is the
// activation's deadline, and the sweep moves it to the lease.
//
// Cost: 1 round trip; 4 write units, 6 where the history makes the role larger
// than 1 KB. IAM: UpdateItem.
func (s *Store) AcknowledgeRole(ctx context.Context, a core.RoleAck) (core.RoleAckOutcome, error) {
	reasons, err := s.commit(ctx, []types.TransactWriteItem{s.updateAction(acknowledgement(a)), s.updateAction(holding(a))})
	if err != nil || reasons == nil {
		return core.RoleAckOutcome{Done: err == nil}, err
	}
	outcome := core.RoleAckOutcome{Role: core.Role{Version: -1}}
	if reasons[0].code == conditionFailed {
		if outcome.Role, err = readRole(a.Wire, reasons[0].item); err != nil {
			return core.RoleAckOutcome{}, err
		}
	}
	if reasons[1].code == conditionFailed {
		agent, _, err := readAgent(reasons[1].item)
		if err != nil {
			return core.RoleAckOutcome{}, err
		}
		outcome.Agent = core.Some(agent)
	}
	return outcome, nil
}

func acknowledgement(a core.RoleAck) update {
	now := core.InstantOf(a.Started)
	return update{
		key: roleKey(a.Wire),
		set: []string{
			"version = version + :one", "role_state = :active", "holder = :holder", "holder_generation = :generation",
			"charter_epoch = :epoch", "deadline_ms = :zero", "blocked_reason = :none", "retry_count = :zero", "next_probe_ms = :zero",
			"transition_ms = :now", "reason = :reason", "write_id = :wid",
			ackAttr(a.Epoch) + " = :event", ackedVersionAttr(a.Epoch) + " = version + :one",
		},
		condition: []string{
			"role_state = :probing", "(holder = :holder OR holder = :none)", "epoch = :epoch", "activation_seq = :seq",
			"activation_id = :id", "charter_version = :charter", "attribute_not_exists(closed)",
			"(deadline_ms = :zero OR deadline_ms > :now)", boundCondition,
		},
		values: item{
			":one": number(1), ":zero": number(0), ":none": text(""), ":now": instant(now),
			":active": text(string(core.RoleActive)), ":probing": text(string(core.RoleProbing)),
			":holder": text(a.Holder), ":generation": number(a.Generation), ":epoch": number(a.Epoch), ":seq": number(a.ActivationSeq),
			":id": text(a.ActivationID), ":charter": text(a.CharterVersion), ":reason": text(core.ReasonAcknowledged), ":wid": text(a.WriteID),
			":event": text(joinEvent(0, now, string(core.RoleActive), fmt.Sprint(a.Epoch), core.ReasonAcknowledged, a.Holder, a.Mark())),
		},
	}
}

// boundCondition holds while the authority's own bound has not passed.
const boundCondition = "(holder_lease_ms = :zero OR holder_lease_ms > :now)"

// liveCondition holds while an agent can act for a role.
const liveCondition = "presence = :online AND lease_ms > :now AND attribute_not_exists(finished)"

func holding(a core.RoleAck) update {
	return update{
		key:       agentKey(a.Holder),
		add:       []string{holdsAttr + " :hold"},
		condition: []string{"generation = :generation", liveCondition},
		values: item{
			":hold":       &types.AttributeValueMemberSS{Value: []string{encodeHold(core.RoleHold{Wire: a.Wire, Epoch: a.Epoch})}},
			":generation": number(a.Generation), ":online": text(string(core.StatusOnline)), ":now": instant(core.InstantOf(a.Started)),
		},
	}
}

// ForgetHolds removes hints from an agent's set. Cost: 1 request, 1 write unit.
// IAM: UpdateItem.
func (s *Store) ForgetHolds(ctx context.Context, agentID string, holds []core.RoleHold) error {
	gone := make([]string, 0, len(holds))
	for _, hold := range holds {
		gone = append(gone, encodeHold(hold))
	}
	_, _, err := s.apply(ctx, update{
		key: agentKey(agentID), remove: nil, drop: []string{holdsAttr + " :gone"},
		condition: []string{"attribute_exists(pk)"}, values: item{":gone": &types.AttributeValueMemberSS{Value: gone}},
	})
	return err
}

// ReadAuthority reads both items in one TransactGetItems: a snapshot, where a
// BatchGetItem may show one item before a change and the other after it. Cost: 1
// request, 2 read units an item per 4 KB. IAM: GetItem.
func (s *Store) ReadAuthority(ctx context.Context, wire, agentID string) (core.Role, core.Agent, error) {
	get := func(k key) types.TransactGetItem {
		return types.TransactGetItem{Get: &types.Get{TableName: aws.String(s.table), Key: k.item()}}
	}
	for attempt := 1; ; attempt++ {
		out, err := s.client.TransactGetItems(ctx, &dynamodb.TransactGetItemsInput{
			TransactItems: []types.TransactGetItem{get(roleKey(wire)), get(agentKey(agentID))},
		})
		if err == nil {
			role, err := readRole(wire, out.Responses[0].Item)
			if err != nil {
				return core.Role{}, core.Agent{}, err
			}
			agent, _, err := readAgent(out.Responses[1].Item)
			return role, agent, err
		}
		if cancellationOf(err) != conflicted {
			return core.Role{}, core.Agent{}, readFailure(err)
		}
		if attempt == conflictAttempts || core.Backoff(ctx, attempt) != nil {
			return core.Role{}, core.Agent{}, core.Wrap(core.CodeContended, "others kept changing the role or the agent", err)
		}
	}
}

// authorityActions are a transaction's conditions on a guard: on the role, and on
// the agent, whose fence and liveness are one condition.
func (s *Store) authorityActions(g core.InboxGuard) []types.TransactWriteItem {
	if !g.Role.Set {
		return []types.TransactWriteItem{s.checkFence(g.Agent.Value)}
	}
	a := g.Role.Value
	live, values := liveCondition, onlineValues(a.At)
	generation := a.Generation
	if g.Agent.Set {
		generation = core.Some(g.Agent.Value.Generation)
	}
	if generation.Set {
		live += " AND generation = :generation"
		values[":generation"] = number(generation.Value)
	}
	return []types.TransactWriteItem{s.checkRole(a), s.checkAgent(a.Holder, live, values)}
}

// checkRole is a transaction's condition on an authority, without the holder's
// liveness.
func (s *Store) checkRole(a core.RoleAuthority) types.TransactWriteItem {
	k, condition := roleKey(a.Wire), "role_state = :active AND holder = :holder AND epoch = :epoch AND attribute_not_exists(closed) AND "+boundCondition
	values := item{":holder": text(a.Holder), ":epoch": number(a.Epoch)}
	if a.Wire == core.LegacyWire {
		k, condition = legacyKey(), "leader = :holder AND epoch = :epoch"
	} else {
		values[":active"], values[":zero"], values[":now"] = text(string(core.RoleActive)), number(0), instant(a.At)
		if a.Generation.Set {
			condition += " AND holder_generation = :generation"
			values[":generation"] = number(a.Generation.Value)
		}
	}
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
		TableName: aws.String(s.table), Key: k.item(), ConditionExpression: aws.String(condition), ExpressionAttributeValues: values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

// PutCandidate is one UpdateItem, with a fence one transaction and the read of
// what it wrote. Cost: 1 round trip, 1 write unit; with a fence 2, 4 write units
// and 1 read unit. IAM: UpdateItem, ConditionCheckItem, GetItem.
func (s *Store) PutCandidate(ctx context.Context, w core.CandidateWrite) (core.RoleCandidate, core.Opt[core.Agent], error) {
	none := core.Opt[core.Agent]{}
	u := candidateUpdate(w)
	if !w.Fence.Set {
		it, _, err := s.apply(ctx, u)
		if err != nil {
			return core.RoleCandidate{}, none, err
		}
		c, err := readCandidate(it)
		return c, none, err
	}
	reasons, err := s.commit(ctx, []types.TransactWriteItem{s.updateAction(u), s.checkFence(w.Fence.Value)})
	if err != nil {
		return core.RoleCandidate{}, none, err
	}
	if reasons != nil {
		agent, _, err := readAgent(reasons[1].item)
		return core.RoleCandidate{}, core.Some(agent), err
	}
	it, err := s.get(ctx, u.key)
	if err != nil {
		return core.RoleCandidate{}, none, err
	}
	c, err := readCandidate(it)
	return c, none, err
}

func candidateUpdate(w core.CandidateWrite) update {
	u := update{
		key:    candidateKey(w.Wire, w.AgentID),
		set:    []string{"updated_ms = :now"},
		names:  map[string]string{"#source": sourceAttr},
		values: item{":now": instant(core.InstantOf(w.Started))},
	}
	put := func(name, attribute string, set bool, given, fallback types.AttributeValue) {
		if !set {
			u.set = append(u.set, fmt.Sprintf("%s = if_not_exists(%s, :%s)", name, name, attribute))
			u.values[":"+attribute] = fallback
			return
		}
		u.set = append(u.set, fmt.Sprintf("%s = :%s", name, attribute))
		u.values[":"+attribute] = given
	}
	put("#source", sourceAttr, w.Source.Set, text(w.Source.Value), text(core.CandidateOperator))
	put(priorityAttr, priorityAttr, w.Priority.Set, number(w.Priority.Value), number(0))
	put(locatorsAttr, locatorsAttr, w.Locators.Set, text(string(w.Locators.Value)), text("[]"))
	put(failuresAttr, failuresAttr, false, nil, number(0))
	put(excludedAttr, excludedAttr, w.ExcludedUntil.Set, instant(w.ExcludedUntil.Value), number(0))
	return u
}

// ReachCandidate replaces a candidate that is as it was seen. Cost: 1 request, 1
// write unit. IAM: PutItem.
func (s *Store) ReachCandidate(ctx context.Context, wire string, seen, next core.RoleCandidate) (bool, error) {
	it := candidateItem(wire, next)
	stands, done, err := s.put(ctx, it, "updated_ms = :updated AND failures = :failures", item{
		":updated": instant(seen.UpdatedAt), ":failures": number(seen.Failures),
	})
	if err != nil || done || stands == nil {
		return done, err
	}
	c, err := readCandidate(stands)
	return err == nil && sameCandidate(c, next), err // a retry finds its own write
}

func sameCandidate(a, b core.RoleCandidate) bool {
	return a.Failures == b.Failures && a.UpdatedAt == b.UpdatedAt && a.ExcludedUntil == b.ExcludedUntil && a.LastProbeCode == b.LastProbeCode
}

// ScanRoles reads a page of the list, of one shard for a project, and then the
// roles. Cost: 2 round trips; 4 index requests (1 for a project) and a batch. IAM:
// Query on the index list, BatchGetItem.
func (s *Store) ScanRoles(ctx context.Context, scan core.RoleScan) (core.RolePage, error) {
	shards, shardAt := roleShards, func(i int) int { return i }
	from, to := "rk2.", "rk2.~"
	if scan.Project != "" {
		shards, shardAt = 1, func(int) int { return projectShard(scan.Project) }
		from = core.ProjectWirePrefix(scan.Project)
		to = from + "~"
	}
	if scan.After != "" {
		from = scan.After + "\x00" // the least text after it
	}
	m, err := s.merge(ctx, shards, listSK, scan.Limit, func(i int) query {
		return query{
			index: listIndex, condition: "list_pk = :pk AND list_sk BETWEEN :from AND :to", limit: scan.Limit,
			values: item{":pk": text(rolePartition(shardAt(i))), ":from": text(from), ":to": text(to)},
		}
	})
	if err != nil || len(m.entries) == 0 {
		return core.RolePage{Done: true}, err
	}
	roles, err := s.ReadRoles(ctx, wiresOf(m.entries))
	return core.RolePage{Roles: roles, Last: sortValue(m.entries[len(m.entries)-1], listSK), Done: !m.more}, err
}

// wiresOf tells which roles index entries lead to.
func wiresOf(entries []item) []string {
	wires := make([]string, 0, len(entries))
	for _, entry := range entries {
		wires = append(wires, strings.TrimPrefix(keyOf(entry).pk, roleKey("").pk))
	}
	return wires
}

// DueRoles reads a page of due entries from all shards, earliest first. Cost: 1
// round trip; 4 index requests and the keys read. IAM: Query on the index due.
func (s *Store) DueRoles(ctx context.Context, scan core.DueScan) (core.DueRolePage, error) {
	due, err := s.dueInAll(ctx, roleShards, rolePartition, scan)
	if err != nil || len(due.entries) == 0 {
		return core.DueRolePage{}, err
	}
	return core.DueRolePage{Wires: wiresOf(due.entries), Oldest: due.oldest, Next: due.next}, nil
}

const (
	valueAttr        = "value_json"
	valueVersionAttr = "value_version"
)

// ReadRoleValue reads the value. Cost: 1 request, 1 read unit per 4 KB. IAM:
// GetItem.
func (s *Store) ReadRoleValue(ctx context.Context, wire string) (core.RoleValue, error) {
	it, err := s.get(ctx, roleValueKey(wire))
	if err != nil {
		return core.RoleValue{}, err
	}
	return readRoleValue(it)
}

func readRoleValue(it item) (core.RoleValue, error) {
	if it == nil {
		return core.RoleValue{}, nil
	}
	r := reader{it: it}
	value := core.RoleValue{
		Version: r.number(valueVersionAttr), Epoch: r.number(epochAttr), Value: json.RawMessage(r.text(valueAttr)),
	}
	return value, r.err
}

// PutRoleValue is one transaction: the value on its version, and the authority.
// Cost: 1 round trip; 2 write units per KB of the value and 4. IAM: PutItem,
// ConditionCheckItem.
func (s *Store) PutRoleValue(ctx context.Context, w core.RoleValueWrite) (core.RoleValueOutcome, error) {
	it := roleValueKey(w.Authority.Wire).item()
	it[valueVersionAttr], it[epochAttr], it[valueAttr] = number(w.Expected+1), number(w.Authority.Epoch), text(string(w.Value))
	put := &types.Put{
		TableName: aws.String(s.table), Item: it, ConditionExpression: aws.String("attribute_not_exists(pk)"),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if w.Expected > 0 {
		put.ConditionExpression = aws.String("value_version = :version")
		put.ExpressionAttributeValues = item{":version": number(w.Expected)}
	}
	checks := s.authorityActions(core.InboxGuard{Role: core.Some(w.Authority)})
	reasons, err := s.commit(ctx, append([]types.TransactWriteItem{{Put: put}}, checks...))
	if err != nil || reasons == nil {
		return core.RoleValueOutcome{Done: err == nil}, err
	}
	var outcome core.RoleValueOutcome
	if reasons[0].code == conditionFailed {
		value, err := readRoleValue(reasons[0].item)
		if err != nil {
			return outcome, err
		}
		outcome.Value = core.Some(value)
	}
	if reasons[1].code == conditionFailed {
		role, err := readRole(w.Authority.Wire, reasons[1].item)
		if err != nil {
			return outcome, err
		}
		outcome.Role = core.Some(role)
	}
	if reasons[2].code == conditionFailed {
		agent, _, err := readAgent(reasons[2].item)
		if err != nil {
			return outcome, err
		}
		outcome.Agent = core.Some(agent)
	}
	return outcome, nil
}

const (
	masterAttr       = "master_enabled"
	ctoAttr          = "cto_enabled"
	leadAttr         = "lead_enabled"
	closedScopesAttr = "closed_scopes"
)

// ReadRoleSettings reads the settings. Cost: 1 request, 1 read unit per 4 KB.
// IAM: GetItem.
func (s *Store) ReadRoleSettings(ctx context.Context) (core.RoleSettings, error) {
	it, err := s.get(ctx, roleSettingsKey())
	if err != nil {
		return core.RoleSettings{}, err
	}
	return readRoleSettings(it)
}

func readRoleSettings(it item) (core.RoleSettings, error) {
	settings := core.DefaultRoleSettings()
	if it == nil {
		return settings, nil
	}
	r := reader{it: it}
	for name, field := range map[string]*bool{masterAttr: &settings.MasterEnabled, ctoAttr: &settings.CTOEnabled, leadAttr: &settings.LeadEnabled} {
		if r.has(name) {
			*field = r.flag(name)
		}
	}
	settings.CharterVersion, settings.ClosedScopes = r.text(charterAttr), r.texts(closedScopesAttr)
	settings.Generation = r.number(generationAttr)
	return settings, r.err
}

// ChangeRoleSettings is one UpdateItem. A retry whose first try landed finds its
// write id. Cost: 1 request, 1 write unit per KB. IAM: UpdateItem.
func (s *Store) ChangeRoleSettings(ctx context.Context, c core.SettingsChange) (core.RoleSettings, error) {
	u := update{
		key:       roleSettingsKey(),
		set:       []string{"generation = if_not_exists(generation, :none) + :one", "write_id = :wid"},
		condition: []string{"(attribute_not_exists(pk) OR write_id <> :wid)"},
		values:    item{":none": number(0), ":one": number(1), ":wid": text(c.WriteID)},
	}
	values := item{
		masterAttr: flag(c.MasterEnabled.Value), ctoAttr: flag(c.CTOEnabled.Value), leadAttr: flag(c.LeadEnabled.Value),
		charterAttr: text(c.CharterVersion.Value), closedScopesAttr: texts(c.ClosedScopes.Value),
	}
	given := map[string]bool{
		masterAttr: c.MasterEnabled.Set, ctoAttr: c.CTOEnabled.Set, leadAttr: c.LeadEnabled.Set,
		charterAttr: c.CharterVersion.Set, closedScopesAttr: c.ClosedScopes.Set,
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if given[name] {
			u.set = append(u.set, name+" = :"+name)
			u.values[":"+name] = values[name]
		}
	}
	it, _, err := s.apply(ctx, u) // a failed condition is this write's own first try
	if err != nil {
		return core.RoleSettings{}, err
	}
	return readRoleSettings(it)
}
