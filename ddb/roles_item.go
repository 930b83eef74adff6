package ddb

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
)

// The attributes of a role's item. Texts and numbers that are null are stored
// empty and 0, so that a condition can compare them and one write can copy the
// holder to the previous one.
const (
	roleStateAttr        = "role_state"
	holderAttr           = "holder"
	previousHolderAttr   = "previous_holder"
	holderGenerationAttr = "holder_generation"
	epochAttr            = "epoch"
	activationSeqAttr    = "activation_seq"
	activationIDAttr     = "activation_id"
	boundAttr            = "holder_lease_ms"
	charterAttr          = "charter_version"
	charterEpochAttr     = "charter_epoch" // absent for null
	retriesAttr          = "retry_count"
	nextProbeAttr        = "next_probe_ms"
	blockedAttr          = "blocked_reason"
	transitionAttr       = "transition_ms"
	successorAttr        = "successor"
	closedAttr           = "closed" // there, and true, of a tombstone
	holdsAttr            = "holds"  // of an agent: the roles it acknowledged
)

// roleItem encodes a role with its index entries.
func roleItem(r core.Role, history []core.RoleEvent, stamp core.WriteStamp) item {
	it := roleKey(r.Wire).item()
	for name, v := range map[string]string{
		roleStateAttr: string(r.State), holderAttr: r.Holder, previousHolderAttr: r.PreviousHolder, activationIDAttr: r.ActivationID,
		charterAttr: r.CharterVersion, blockedAttr: r.BlockedReason, reasonAttr: r.LastReason, successorAttr: r.Successor,
		writeIDAttr: stamp.WriteID, listPK: rolePartition(roleShard(r.Wire)), listSK: r.Wire,
	} {
		it[name] = text(v)
	}
	for name, v := range map[string]int64{
		holderGenerationAttr: r.HolderGeneration, epochAttr: r.Epoch, versionAttr: r.Version, activationSeqAttr: r.ActivationSeq,
		deadlineAttr: int64(r.ActivationDeadline), boundAttr: int64(r.HolderLeaseExpires), retriesAttr: r.RetryCount,
		nextProbeAttr: int64(r.NextProbe), transitionAttr: int64(r.LastTransition),
	} {
		it[name] = number(v)
	}
	if r.CharterAckedEpoch.Set {
		it[charterEpochAttr] = number(r.CharterAckedEpoch.Value)
	}
	if r.Closed {
		it[closedAttr] = flag(true)
	}
	if r.DueAt != 0 {
		it[duePK], it[dueSK] = text(rolePartition(roleShard(r.Wire))), text(roleDueKey(r.DueAt, r.Wire))
	}
	for _, e := range history {
		it[eventAttr(e.Version)] = text(encodeEvent(e))
	}
	return it
}

// roleDueKey names the role by a hash: the key is in the item once already.
func roleDueKey(deadline core.Instant, wire string) string {
	return dueKey(deadline, strconv.Itoa(shardOf(wire, 1<<31)))
}

// readRole decodes a role; no item is a role that is not stored.
func readRole(wire string, it item) (core.Role, error) {
	if it == nil {
		key, err := core.ParseRoleWire(wire)
		return core.AbsentRole(key, wire), err
	}
	r := reader{it: it}
	role := core.Role{
		Wire:               wire,
		State:              core.RoleState(r.text(roleStateAttr)),
		Holder:             r.text(holderAttr),
		PreviousHolder:     r.text(previousHolderAttr),
		HolderGeneration:   r.number(holderGenerationAttr),
		Epoch:              r.number(epochAttr),
		Version:            r.number(versionAttr),
		ActivationSeq:      r.number(activationSeqAttr),
		ActivationID:       r.text(activationIDAttr),
		ActivationDeadline: r.instant(deadlineAttr),
		HolderLeaseExpires: r.instant(boundAttr),
		CharterVersion:     r.text(charterAttr),
		CharterAckedEpoch:  core.Opt[int64]{Value: r.number(charterEpochAttr), Set: r.has(charterEpochAttr)},
		RetryCount:         r.number(retriesAttr),
		NextProbe:          r.instant(nextProbeAttr),
		BlockedReason:      r.text(blockedAttr),
		LastTransition:     r.instant(transitionAttr),
		LastReason:         r.text(reasonAttr),
		Successor:          r.text(successorAttr),
		Closed:             r.flag(closedAttr),
		DueAt:              r.deadline(),
		History:            r.history(),
	}
	key, err := core.ParseRoleWire(wire)
	if err != nil {
		r.fail(pk, "a role's")
	}
	role.Key = key
	return role, r.err
}

// The history of a role is a ring of attributes, so that a write which does not
// read the role can add to it. A write that does not know the version, an
// acknowledgement, has a ring of its own by epoch, and copies the version.
const ackedEvents = 4

func eventAttr(version int64) string      { return fmt.Sprintf("p%d", place(version, core.MaxRoleHistory)) }
func ackAttr(epoch int64) string          { return fmt.Sprintf("a%d", place(epoch, ackedEvents)) }
func ackedVersionAttr(epoch int64) string { return fmt.Sprintf("v%d", place(epoch, ackedEvents)) }

// place is a number's place in a ring. A caller may expect any number: one that
// no role has is to fail the condition, not the request.
func place(n int64, ring uint64) uint64 { return uint64(n) % ring }

// eventMark stands for what a write leaves as it is and does not know, nextEpoch
// for the epoch that follows the one it does not know.
const (
	eventMark      = "*"
	eventNextEpoch = "+"
	eventSeparator = "\x1f" // in no id and no reason
)

func encodeEvent(e core.RoleEvent) string {
	return joinEvent(e.Version, e.At, string(e.To), strconv.FormatInt(e.Epoch, 10), e.Reason, e.Holder, e.Mark)
}

func joinEvent(version int64, at core.Instant, to, epoch, reason, holder, mark string) string {
	return strings.Join([]string{
		strconv.FormatInt(version, 36), strconv.FormatInt(int64(at), 36), to, epoch, reason, holder, mark,
	}, eventSeparator)
}

// storedEvent is an event as it was written, before what it left unsaid is
// filled in from the one before.
type storedEvent struct {
	core.RoleEvent
	epoch string
}

func (r *reader) event(name string) storedEvent {
	parts := strings.Split(r.text(name), eventSeparator)
	if len(parts) != 7 {
		r.fail(name, "an event")
		return storedEvent{}
	}
	version, bad := strconv.ParseInt(parts[0], 36, 64)
	at, worse := strconv.ParseInt(parts[1], 36, 64)
	if bad != nil || worse != nil {
		r.fail(name, "an event")
	}
	return storedEvent{core.RoleEvent{
		Version: version, At: core.Instant(at), To: core.RoleState(parts[2]), Reason: parts[4], Holder: parts[5], Mark: parts[6],
	}, parts[3]}
}

func (r *reader) history() []core.RoleEvent {
	var stored []storedEvent
	for i := range int64(core.MaxRoleHistory) {
		if name := eventAttr(i); r.has(name) {
			stored = append(stored, r.event(name))
		}
	}
	for i := range int64(ackedEvents) {
		if name := ackAttr(i); r.has(name) {
			e := r.event(name)
			e.Version = r.number(ackedVersionAttr(i))
			stored = append(stored, e)
		}
	}
	slices.SortFunc(stored, func(a, b storedEvent) int { return cmp.Compare(a.Version, b.Version) })
	return completed(stored)
}

// completed fills in what events left unsaid. Events before the first that says
// everything are left out.
func completed(stored []storedEvent) []core.RoleEvent {
	events := make([]core.RoleEvent, 0, len(stored))
	for _, s := range stored {
		e, before := s.RoleEvent, core.RoleEvent{}
		if len(events) > 0 {
			before = events[len(events)-1]
		} else if slices.Contains([]string{string(e.To), e.Reason, e.Holder, s.epoch}, eventMark) || s.epoch == eventNextEpoch {
			continue
		}
		e.From = before.To
		if e.To == eventMark {
			e.To = before.To
		}
		if e.Reason == eventMark {
			e.Reason = before.Reason
		}
		if e.Holder == eventMark {
			e.Holder = before.Holder
		}
		switch s.epoch {
		case eventMark:
			e.Epoch = before.Epoch
		case eventNextEpoch:
			e.Epoch = before.Epoch + 1
		default:
			e.Epoch, _ = strconv.ParseInt(s.epoch, 10, 64) // written by this hub as a number
		}
		events = append(events, e)
	}
	if len(events) > core.MaxRoleHistory {
		events = events[len(events)-core.MaxRoleHistory:]
	}
	return events
}

// candidateItem encodes a candidate.
func candidateItem(wire string, c core.RoleCandidate) item {
	it := candidateKey(wire, c.AgentID).item()
	it[sourceAttr], it[priorityAttr], it[locatorsAttr] = text(c.Source), number(c.Priority), text(string(c.Locators))
	it[failuresAttr], it[excludedAttr], it[probedAttr] = number(c.Failures), instant(c.ExcludedUntil), instant(c.LastProbe)
	it[probeCodeAttr], it[updatedAttr] = text(c.LastProbeCode), instant(c.UpdatedAt)
	return it
}

const (
	sourceAttr    = "source"
	excludedAttr  = "excluded_ms"
	probedAttr    = "probed_ms"
	probeCodeAttr = "probe_code"
)

func readCandidate(it item) (core.RoleCandidate, error) {
	r := reader{it: it}
	c := core.RoleCandidate{
		AgentID:       strings.TrimPrefix(r.text(sk), candidatePrefix),
		Source:        r.text(sourceAttr),
		Priority:      r.number(priorityAttr),
		Locators:      r.json(locatorsAttr, "[]"),
		Failures:      r.number(failuresAttr),
		ExcludedUntil: r.instant(excludedAttr),
		LastProbe:     r.instant(probedAttr),
		LastProbeCode: r.text(probeCodeAttr),
		UpdatedAt:     r.instant(updatedAttr),
	}
	return c, r.err
}

// holds decodes an agent's hints: a set of texts, epoch and wire form.
func (r *reader) holds() []core.RoleHold {
	set, ok := r.it[holdsAttr].(*types.AttributeValueMemberSS)
	if !ok {
		if r.has(holdsAttr) {
			r.fail(holdsAttr, "a set of texts")
		}
		return nil
	}
	holds := make([]core.RoleHold, 0, len(set.Value))
	for _, s := range set.Value {
		digits, wire, _ := strings.Cut(s, "#")
		epoch, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			r.fail(holdsAttr, "a set of epochs and roles")
		}
		holds = append(holds, core.RoleHold{Wire: wire, Epoch: epoch})
	}
	return holds
}

func encodeHold(h core.RoleHold) string { return fmt.Sprintf("%d#%s", h.Epoch, h.Wire) }
