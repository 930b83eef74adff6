package ddb

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"drawbridge/core"
)

const (
	phaseAttr          = "phase"
	fixAttemptAttr     = "fix_attempt"
	fixMaxAttr         = "fix_max"
	ralphIterationAttr = "ralph_iteration"
	ralphMaxAttr       = "ralph_max"
	historyAttr        = "history" // JSON
	writesAttr         = "writes"
)

func pipelineItem(p core.Pipeline) (item, error) {
	history, err := json.Marshal(p.History)
	if err != nil {
		return nil, fmt.Errorf("encode phase history: %w", err)
	}
	it := pipelineKey(p.Team).item()
	it[phaseAttr] = text(string(p.Phase))
	it[historyAttr] = text(string(history))
	it[writesAttr] = texts(p.Writes)
	for name, n := range map[string]int64{
		fixAttemptAttr: p.FixAttempt, fixMaxAttr: p.FixMax, ralphIterationAttr: p.RalphIteration, ralphMaxAttr: p.RalphMax,
		createdAttr: int64(p.CreatedAt), updatedAttr: int64(p.UpdatedAt), versionAttr: p.Version,
	} {
		it[name] = number(n)
	}
	it[listPK] = text(pipelinePartition(shardOf(p.Team, pipelineShards)))
	it[listSK] = text(dueKey(p.UpdatedAt, p.Team))
	return it, nil
}

func readPipeline(it item) (core.Pipeline, error) {
	r := reader{it: it}
	p := core.Pipeline{
		Team:       strings.TrimPrefix(r.text(pk), "pipeline#"),
		Phase:      core.Phase(r.text(phaseAttr)),
		FixAttempt: r.number(fixAttemptAttr), FixMax: r.number(fixMaxAttr),
		RalphIteration: r.number(ralphIterationAttr), RalphMax: r.number(ralphMaxAttr),
		CreatedAt: r.instant(createdAttr), UpdatedAt: r.instant(updatedAttr),
		Version: r.number(versionAttr), Writes: r.texts(writesAttr),
	}
	if err := json.Unmarshal(r.json(historyAttr, "[]"), &p.History); err != nil {
		r.fail(historyAttr, "a history")
	}
	return p, r.err
}

// ReadPipeline reads one item. Cost: 1 request, 1 read unit per 4 KB. IAM:
// GetItem.
func (s *Store) ReadPipeline(ctx context.Context, team string) (core.Pipeline, bool, error) {
	it, err := s.get(ctx, pipelineKey(team))
	if err != nil || it == nil {
		return core.Pipeline{}, false, err
	}
	p, err := readPipeline(it)
	return p, err == nil, err
}

// WritePipeline is one PutItem on the version before. Cost: 1 request; 1 write
// unit per KB and 2 index units (1 for the first of a team). IAM: PutItem.
func (s *Store) WritePipeline(ctx context.Context, next core.Pipeline) (bool, error) {
	it, err := pipelineItem(next)
	if err != nil {
		return false, err
	}
	condition, values := "attribute_not_exists(pk)", item(nil)
	if next.Version > 1 {
		condition, values = "version = :before", item{":before": number(next.Version - 1)}
	}
	_, done, err := s.put(ctx, it, condition, values)
	return done, err
}

// ScanPipelines reads a page of keys from the shards of the list, newest first,
// and then their items. Cost: 2 round trips; 8 index requests and a batch, the
// keys read and 1 read unit per 4 KB a pipeline. IAM: Query on the index list,
// BatchGetItem.
func (s *Store) ScanPipelines(ctx context.Context, scan core.PipelineScan) (core.PipelineScanPage, error) {
	page := core.PipelineScanPage{Pipelines: []core.Pipeline{}}
	m, err := s.merge(ctx, pipelineShards, listSK, scan.Limit+1, func(shard int) query {
		q := query{index: listIndex, condition: "list_pk = :pk", limit: scan.Limit + 1, descending: true}
		q.values = item{":pk": text(pipelinePartition(shard))}
		if scan.Before != "" {
			q.condition += " AND list_sk < :before"
			q.values[":before"] = text(scan.Before)
		}
		return q
	})
	if err != nil || len(m.entries) == 0 {
		return page, err
	}
	m = m.first(scan.Limit)
	if m.more {
		page.Next = sortValue(m.entries[len(m.entries)-1], listSK)
	}
	items, err := s.itemsOf(ctx, m.entries)
	if err != nil {
		return page, err
	}
	for _, it := range items {
		p, err := readPipeline(it)
		if err != nil {
			return page, err
		}
		page.Pipelines = append(page.Pipelines, p)
	}
	return page, nil
}
