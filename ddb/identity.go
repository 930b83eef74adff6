package ddb

import (
	"context"

	"drawbridge/core"
)

const (
	instanceAttr = "hub_instance_id"
	createdAttr  = "created_ms"
	reasonAttr   = "reason"
)

// ReadIdentity reads the identity item. Cost: 1 request, 1 read unit. IAM:
// GetItem.
func (s *Store) ReadIdentity(ctx context.Context) (core.IdentityRecord, bool, error) {
	it, err := s.get(ctx, identityKey())
	if err != nil || it == nil {
		return core.IdentityRecord{}, false, err
	}
	record, err := readIdentity(it)
	return record, err == nil, err
}

// CreateIdentity puts the identity unless there is one. The one that stands is
// in the answer either way, so it does not matter whether a refusal meets this
// write's own earlier try. Cost: 1 request, 1 write unit. IAM: PutItem.
func (s *Store) CreateIdentity(ctx context.Context, r core.IdentityRecord) (core.IdentityRecord, error) {
	stands, _, err := s.put(ctx, identityItem(r), "attribute_not_exists(pk)", nil)
	if err != nil {
		return core.IdentityRecord{}, err
	}
	return readIdentity(stands)
}

// ReplaceIdentity puts the identity where previous stands. The new instance id
// is the write id: finding it there means that an earlier try did it. Cost: 1
// request, 1 write unit. IAM: PutItem.
func (s *Store) ReplaceIdentity(ctx context.Context, previous string, r core.IdentityRecord) (bool, error) {
	stands, done, err := s.put(ctx, identityItem(r), instanceAttr+" = :previous", item{":previous": text(previous)})
	if err != nil || done {
		return done, err
	}
	old := reader{it: stands}
	return old.text(instanceAttr) == r.HubInstanceID, old.err
}

func identityItem(r core.IdentityRecord) item {
	it := identityKey().item()
	it[instanceAttr] = text(r.HubInstanceID)
	it[createdAttr] = instant(r.CreatedAt)
	it[reasonAttr] = text(r.Reason)
	return it
}

func readIdentity(it item) (core.IdentityRecord, error) {
	r := reader{it: it}
	record := core.IdentityRecord{
		HubInstanceID: r.text(instanceAttr),
		CreatedAt:     r.instant(createdAttr),
		Reason:        r.text(reasonAttr),
	}
	return record, r.err
}
