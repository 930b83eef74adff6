package ddb

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"drawbridge/core"
)

// Attributes of more than one kind of item.
const (
	versionAttr  = "version"     // of a human request, a job, a pipeline, a role
	updatedAttr  = "updated_ms"  // of a job, of what was learnt, of a candidate
	deadlineAttr = "deadline_ms" // of a human request, of a role's activation
)

// A saving is the next version of an entity and all that goes with it.
type saving struct {
	entity  item
	version int64 // of the entity, from 1: it follows the one before
	// records are new items of the entity's own.
	records []item
	// apart are what the entity and its records keep in the bucket, by name.
	apart map[string]core.Payload
	core.Announcement
}

// save puts the entity on the condition that the version before it stands, in
// one transaction with its records, its messages, the stored answer and the
// fence, or as one PutItem when there is none of them. What is large goes to the
// bucket first, where nothing refers to it until the transaction does.
//
// The entity carries the id of the write: a put that finds it there has found
// its own earlier try.
func (s *Store) save(ctx context.Context, w saving) (core.SaveOutcome, error) {
	w.entity[versionAttr], w.entity[writeIDAttr] = number(w.version), text(w.WriteID)
	if err := s.storeApart(ctx, w); err != nil {
		return core.SaveOutcome{}, err
	}
	outcome, err := s.commitSaving(ctx, w)
	switch core.CodeOf(err) {
	case core.CodeOutcomeUnknown:
		// Nobody shall be told "unknown" of what one read can tell.
		it, failed := s.get(ctx, keyOf(w.entity))
		if failed == nil && isStampOf(it, w.WriteStamp) {
			return core.SaveOutcome{Done: true, Replayed: true}, nil
		}
	case core.CodeContended:
		if w.version > 1 {
			return core.SaveOutcome{}, nil // others are at it: the caller looks again
		}
	}
	if err == nil && !outcome.Done {
		s.dropApart(ctx, w)
	}
	return outcome, err
}

// storeApart puts everything large at once.
func (s *Store) storeApart(ctx context.Context, w saving) error {
	names, payloads := w.large()
	return parallel(len(names), func(i int) error { return s.storePayload(ctx, names[i], payloads[i]) })
}

// dropApart removes it again where a new entity was refused. What a lost race
// leaves behind, the bucket's lifecycle removes.
func (s *Store) dropApart(ctx context.Context, w saving) {
	if w.version > 1 {
		return
	}
	names, payloads := w.large()
	_ = parallel(len(names), func(i int) error { return s.dropPayload(ctx, names[i], payloads[i]) })
}

func (w saving) large() (names []string, payloads []core.Payload) {
	add := func(name string, p core.Payload) {
		if len(p.JSON) > inlinePayload {
			names, payloads = append(names, name), append(payloads, p)
		}
	}
	for name, p := range w.apart {
		add(name, p)
	}
	for _, m := range w.Messages {
		add(m.ID, m.Payload)
	}
	return names, payloads
}

func (w saving) condition() (string, item) {
	if w.version == 1 {
		return "attribute_not_exists(pk)", nil
	}
	return "version = :seen", item{":seen": number(w.version - 1)}
}

func (s *Store) commitSaving(ctx context.Context, w saving) (core.SaveOutcome, error) {
	condition, values := w.condition()
	if len(w.records)+len(w.Messages) == 0 && !w.Once.Set && !w.Fence.Set {
		stands, done, err := s.put(ctx, w.entity, condition, values)
		if err != nil || done {
			return core.SaveOutcome{Done: done}, err
		}
		return s.refusedSaving(stands, w), nil
	}
	actions := []types.TransactWriteItem{{Put: &types.Put{
		TableName: aws.String(s.table), Item: w.entity,
		ConditionExpression: aws.String(condition), ExpressionAttributeValues: values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}}
	for _, record := range w.records {
		actions = append(actions, s.putNew(record))
	}
	for _, m := range w.Messages {
		actions = append(actions, s.putNew(deliveryItem(m)))
	}
	once, fence := -1, -1
	if w.Once.Set {
		once = len(actions)
		actions = append(actions, s.putAnswer(w.Once.Value, w.Started))
	}
	if w.Fence.Set {
		fence = len(actions)
		actions = append(actions, s.checkFence(w.Fence.Value))
	}
	reasons, err := s.commit(ctx, actions)
	switch {
	case err != nil:
		return core.SaveOutcome{}, err
	case reasons == nil:
		return core.SaveOutcome{Done: true}, nil
	case once >= 0 && reasons[once].code == conditionFailed:
		// The stored answer comes first: what happened since does not undo it.
		record, err := readAnswer(w.Once.Value.ID, reasons[once].item)
		return core.SaveOutcome{Repeated: core.Some(record)}, err
	case reasons[0].code == conditionFailed:
		return s.refusedSaving(reasons[0].item, w), nil
	case fence >= 0 && reasons[fence].code == conditionFailed:
		agent, _, err := readAgent(reasons[fence].item)
		return core.SaveOutcome{Stale: core.Some(agent)}, err
	}
	return core.SaveOutcome{}, core.Refuse(core.CodeInternal, "a new message's or event's key was taken")
}

func (s *Store) refusedSaving(stands item, w saving) core.SaveOutcome {
	ours := isStampOf(stands, w.WriteStamp)
	return core.SaveOutcome{Done: ours, Replayed: ours}
}
