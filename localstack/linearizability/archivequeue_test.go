package linearizability

import (
	"fmt"
	"testing"
	"time"

	"drawbridge/core"
)

// archived is one job of the archive queue.
type archived struct {
	Status   core.ArchiveStatus // "": there is none
	Attempts int64
	Next     int64 // when a ready one may be claimed
	Lease    string
	Expires  int64
	Under    string // the lease that completed it
}

type archiveCall struct {
	Op    string // enqueue, claim, renew, complete, release, fail, retry, read or sweep
	At    int64
	Job   int
	Lease string
}

type archiveReply struct {
	told
	Got      bool // a claim got it; an enqueue made it
	Status   core.ArchiveStatus
	Attempts int64
}

// twice: a second try that was overtaken is refused (archive-queue.md).
func (archiveCall) twice(t told) any {
	if t.Code == "" {
		return nil
	}
	return archiveReply{told: unknown}
}

var archiveModel = model[archived, archiveCall, archiveReply]{
	after: archived.after, also: archived.deadLettered, part: func(c archiveCall) string { return fmt.Sprint(c.Job) },
}

var archiveSettings = core.DefaultArchiveSettings()

func (s archived) lapsed(at int64) bool { return s.Status == core.ArchiveLeased && s.Expires <= at }

func (s archived) exhausted(at int64) bool {
	return s.lapsed(at) && s.Attempts >= archiveSettings.MaxAttempts
}

func (s archived) claimable(at int64) bool {
	return s.Status == core.ArchiveReady && s.Next <= at || s.lapsed(at) && !s.exhausted(at)
}

// deadLettered is what whoever meets a crash loop may leave behind.
func (s archived) deadLettered(c archiveCall) []archived {
	if !s.exhausted(c.At) || c.Op != "claim" && c.Op != "sweep" {
		return nil
	}
	s.Status, s.Lease, s.Expires = core.ArchiveFailed, "", 0
	return []archived{s}
}

func (s archived) refuse(code core.Code) (archived, archiveReply) {
	return s, archiveReply{told: told{Code: code}}
}

func (s archived) after(c archiveCall) (archived, archiveReply) {
	switch c.Op {
	case "enqueue":
		if s.Status != "" {
			return s, archiveReply{}
		}
		return archived{Status: core.ArchiveReady, Next: c.At}, archiveReply{Got: true}
	case "claim":
		if !s.claimable(c.At) {
			return s, archiveReply{}
		}
		s.Status, s.Lease, s.Expires = core.ArchiveLeased, c.Lease, c.At+archiveSettings.Lease.Milliseconds()
		s.Attempts++
		return s, archiveReply{Got: true}
	case "sweep":
		return s, archiveReply{}
	}
	if s.Status == "" {
		return s.refuse(core.CodeQueueJobNotFound)
	}
	switch c.Op {
	case "read":
		return s, archiveReply{Status: s.Status, Attempts: s.Attempts}
	case "retry":
		return s.retry(c)
	}
	return s.work(c)
}

func (s archived) retry(c archiveCall) (archived, archiveReply) {
	switch s.Status {
	case core.ArchiveDone:
		return s.refuse(core.CodeQueueJobDone)
	case core.ArchiveLeased:
		return s.refuse(core.CodeQueueJobLeased)
	}
	s.Status, s.Attempts, s.Next = core.ArchiveReady, 0, c.At
	return s, archiveReply{}
}

// work is what the holder of the lease does.
func (s archived) work(c archiveCall) (archived, archiveReply) {
	switch {
	case c.Op == "complete" && s.Status == core.ArchiveDone && s.Under == c.Lease:
		return s, archiveReply{}
	case s.Status != core.ArchiveLeased || s.Lease != c.Lease:
		return s.refuse(core.CodeQueueLeaseInvalid)
	case c.Op == "renew":
		s.Expires = c.At + archiveSettings.Lease.Milliseconds()
		return s, archiveReply{}
	}
	s.Lease, s.Expires = "", 0
	switch c.Op {
	case "complete":
		s.Status, s.Under = core.ArchiveDone, c.Lease
	case "release":
		s.Status = core.ArchiveReady
		s.Attempts--
	case "fail":
		s.Status, s.Next = core.ArchiveReady, c.At+archiveBackoff(s.Attempts)
		if s.Attempts >= archiveSettings.MaxAttempts {
			s.Status, s.Next = core.ArchiveFailed, 0
		}
	}
	return s, archiveReply{}
}

// archiveBackoff doubles with every attempt. No history has so many that the
// bound counts.
func archiveBackoff(attempts int64) int64 {
	return archiveSettings.Backoff.Milliseconds() << (attempts - 1)
}

// TestTheHistoryOfAnArchiveJobIsLinearizable lets callers enqueue, claim, renew,
// complete, release, fail, retry and read a few jobs at once, and lets every
// lease and back-off pass between two bouts.
func TestTheHistoryOfAnArchiveJobIsLinearizable(t *testing.T) {
	eachRound(t, 2, func(t *testing.T, b *bed, seed uint64) {
		h := archiveHistory(t, b, seed, 4, 3, 8)
		if done := h.count(isDone); done < 20 {
			t.Fatalf("only %d of %d calls were done", done, len(h.operations))
		}
		check(t, archiveModel, h)
	})
}

// archiveJobs is how many jobs a history has: few, so that callers meet.
const archiveJobs = 2

func archiveRequest(job int) core.ArchiveRequest {
	return core.ArchiveRequest{Event: "stop", ArchiveObservation: core.ArchiveObservation{
		Agent: "claude", SourcePath: fmt.Sprintf("/t/%d.jsonl", job), SourceBytes: 1, SourceModifiedAt: 1,
	}}
}

func archiveHistory(t *testing.T, b *bed, seed uint64, callers, bouts, calls int) *history {
	t.Helper()
	h := newHistory()
	all := b.callers(callers, seed)
	for range bouts {
		atOnce(all, func(c *caller) {
			var held [archiveJobs]string
			for n := range calls {
				c.disturb()
				c.archive(t, h, &held, n)
			}
		})
		b.time.jump(time.Hour)
	}
	return h
}

// archive makes one call. A claim and a sweep are about every job.
func (c *caller) archive(t *testing.T, h *history, held *[archiveJobs]string, n int) {
	ctx := t.Context()
	job := c.random.IntN(archiveJobs)
	asked := archiveCall{Job: job, Lease: held[job]}
	id := archiveRequest(job).JobID()
	switch pick := c.random.IntN(13); {
	case n == 0 || pick == 0:
		asked.Op = "enqueue"
	case pick == 1:
		asked.Op = "retry"
	case pick == 2:
		asked.Op = "read"
	case pick == 3:
		c.sweepArchive(t, h)
		return
	case pick <= 7 || held[job] == "":
		c.claimArchive(t, h, held, n)
		return
	default:
		asked.Op = []string{"renew", "complete", "release", "release", "fail"}[pick-8]
	}
	record(h, c, asked, func() (archiveCall, archiveReply) {
		asked.At = c.tick()
		switch asked.Op {
		case "enqueue":
			out := c.queue.Enqueue(ctx, []core.ArchiveRequest{archiveRequest(job)})[0]
			return asked, archiveReply{told: tell(out.Err), Got: out.Err == nil && !out.Deduped}
		case "read":
			read, err := c.queue.Get(ctx, id)
			return asked, archiveReply{told: tell(err), Status: read.Status, Attempts: read.Attempts}
		}
		return asked, archiveReply{told: tell(c.workArchive(t, id, asked))}
	})
}

func (c *caller) workArchive(t *testing.T, id string, asked archiveCall) error {
	ctx := t.Context()
	var err error
	switch asked.Op {
	case "renew":
		_, err = c.queue.Renew(ctx, id, asked.Lease)
	case "complete":
		_, err = c.queue.Complete(ctx, core.ArchiveCompletion{
			ID: id, LeaseID: asked.Lease, Result: core.ArchiveResult{ArchiveID: "a", CiphertextSHA256: "00", Bytes: 1},
		})
	case "release":
		_, err = c.queue.Release(ctx, id, asked.Lease, nil)
	case "fail":
		_, err = c.queue.Fail(ctx, id, asked.Lease, core.ArchiveFailure{Code: "broken", Message: "m"})
	case "retry":
		_, err = c.queue.Retry(ctx, id)
	}
	return err
}

// claimArchive claims all it can get: what it did not get was not claimable.
func (c *caller) claimArchive(t *testing.T, h *history, held *[archiveJobs]string, n int) {
	from, lost := h.since(), c.network.lost.Load()
	at := c.tick()
	claimed, err := c.queue.Claim(t.Context(), core.ArchiveClaim{Owner: c.id, Max: archiveJobs})
	to := h.since()
	for job := range archiveJobs {
		asked := archiveCall{Op: "claim", At: at, Job: job, Lease: fmt.Sprintf("untold %s %d %d", c.id, n, from)}
		reply := archiveReply{told: tell(err)}
		for _, got := range claimed.Jobs {
			if got.ID == archiveRequest(job).JobID() {
				asked.Lease, reply = got.Lease.ID, archiveReply{Got: true}
				held[job] = got.Lease.ID
			}
		}
		h.add(c.number, asked, reply, from, to, c.network.lost.Load() > lost)
	}
}

func (c *caller) sweepArchive(t *testing.T, h *history) {
	from := h.since()
	at := c.tick()
	_, err := c.queue.Sweep(t.Context())
	for job := range archiveJobs {
		reply := archiveReply{told: tell(err)}
		if err != nil {
			reply.told = unknown
		}
		h.add(c.number, archiveCall{Op: "sweep", At: at, Job: job}, reply, from, h.since(), false)
	}
}
