package ddb

import (
	"context"

	"drawbridge/core"
)

const (
	lastRunAttr     = "last_run_ms"
	lastSuccessAttr = "last_success_ms"
	failuresAttr    = "failures"
	errorCodeAttr   = "error_code"
	lagAttr         = "lag_ms"
)

// RecordSweep updates a sweep's record. A retry whose first try landed finds its
// write id and counts nothing twice. Cost: 1 request, 1 write unit. IAM:
// UpdateItem.
func (s *Store) RecordSweep(ctx context.Context, o core.SweepOutcome) error {
	u := update{
		key:       sweepKey(o.Name),
		set:       []string{"last_run_ms = :at", "write_id = :wid"},
		condition: []string{"(attribute_not_exists(pk) OR write_id <> :wid)"},
		values: item{
			":at":  instant(core.InstantOf(o.Started)),
			":wid": text(o.WriteID),
		},
	}
	if o.ErrorCode == "" {
		u.set = append(u.set, "last_success_ms = :at", "lag_ms = :lag")
		u.values[":lag"] = number(o.Lag.Milliseconds())
		u.remove = []string{failuresAttr, errorCodeAttr}
	} else {
		u.set = append(u.set, "failures = if_not_exists(failures, :none) + :one", "error_code = :code")
		u.values[":none"], u.values[":one"] = number(0), number(1)
		u.values[":code"] = text(string(o.ErrorCode))
	}
	_, _, err := s.apply(ctx, u)
	return err
}

// ReadSweeps reads the sweeps' records. Cost: 1 request, 1 read unit a sweep.
// IAM: BatchGetItem.
func (s *Store) ReadSweeps(ctx context.Context, names []string) ([]core.SweepRecord, error) {
	keys := make([]key, 0, len(names))
	for _, name := range names {
		keys = append(keys, sweepKey(name))
	}
	found, err := s.batchGet(ctx, keys)
	if err != nil {
		return nil, err
	}
	records := make([]core.SweepRecord, 0, len(names))
	for i, name := range names {
		r := reader{it: found[keys[i]]}
		records = append(records, core.SweepRecord{
			Name:                name,
			LastRunAt:           r.instant(lastRunAttr),
			LastSuccessAt:       r.instant(lastSuccessAttr),
			ConsecutiveFailures: int(r.number(failuresAttr)),
			LastErrorCode:       core.Code(r.text(errorCodeAttr)),
			Lag:                 r.duration(lagAttr),
		})
		if r.err != nil {
			return nil, r.err
		}
	}
	return records, nil
}
