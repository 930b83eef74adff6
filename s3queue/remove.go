package s3queue

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"drawbridge/core"
)

// Remove implements core.ArchiveQueue: 5 requests. The job is first marked as
// removed, so that no claim can take it any more and a removal cut short leaves
// a dead letter, then its document is deleted: the only deletion of one.
func (q *Queue) Remove(ctx context.Context, id string) (core.ArchiveJob, error) {
	r, err := q.find(ctx, id)
	if err != nil {
		return core.ArchiveJob{}, err
	}
	var l litter
	defer func() { _ = q.clear(ctx, &l) }()
	r, err = q.update(ctx, r, &l, func(r record, now core.Instant) (change, error) {
		job, err := r.job.Removed(now)
		return change{job: job}, err
	})
	if err != nil {
		return core.ArchiveJob{}, err
	}
	if err := q.deleteJob(ctx, r); err != nil {
		return core.ArchiveJob{}, err
	}
	l.add(r.stamp.marker, r.source())
	return r.job, nil
}

// deleteJob deletes the document if it is still this one. A server that cannot
// delete conditionally deletes it as it is: only a retry by another operator can
// come between.
func (q *Queue) deleteJob(ctx context.Context, r record) error {
	in := &s3.DeleteObjectInput{Bucket: &q.bucket, Key: aws.String(jobKey(r.job.ID)), IfMatch: &r.etag}
	for p := q.patience(); ; {
		_, err := q.s3.DeleteObject(ctx, in)
		if isUnsupported(err) {
			in.IfMatch = nil
			_, err = q.s3.DeleteObject(ctx, in)
		}
		err = refusal(err, true)
		switch {
		case errors.Is(err, errAbsent): // an earlier send of this request
			return nil
		case errors.Is(err, errLost):
			e := core.Refuse(core.CodeQueueContention, "the job was retried while it was removed; it stays")
			e.RetryAfter = throttledFor
			return e
		case !errors.Is(err, errConflict):
			return err
		}
		if err := p.pause(ctx); err != nil {
			return err
		}
	}
}
