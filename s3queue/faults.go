package s3queue

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/aws/smithy-go"

	"drawbridge/core"
)

// What S3 answers to a condition. They never leave the package.
var (
	errAbsent   = errors.New("there is no such object")
	errLost     = errors.New("the condition failed")
	errConflict = errors.New("another request was in the way")
)

// throttledFor is how long a caller should wait when S3 asks to slow down.
const throttledFor = time.Second

// refusal turns an answer of S3 into what it means. Only the code decides: S3
// can answer an error with status 200, which the SDK reports as 500 with the
// code kept.
func refusal(err error, write bool) error {
	if err == nil {
		return nil
	}
	var answer smithy.APIError
	if !errors.As(err, &answer) {
		return unanswered(err, write)
	}
	switch answer.ErrorCode() {
	case "NoSuchKey", "NotFound":
		return errAbsent
	case "PreconditionFailed":
		return errLost
	case "ConditionalRequestConflict", "OperationAborted":
		return errConflict
	case "SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests":
		e := core.Wrap(core.CodeThrottled, "the object store asks to slow down", err)
		e.RetryAfter = throttledFor
		return e
	case "InternalError", "ServiceUnavailable", "RequestTimeout", "InternalFailure":
		return unanswered(err, write)
	}
	// Whatever a server, or a gateway before it, calls its failure.
	if isServerFault(err) {
		return unanswered(err, write)
	}
	return core.Wrap(core.CodeInternal, "the object store refused", err)
}

// unanswered is a request of which nobody knows whether it took effect.
func unanswered(err error, write bool) error {
	if write {
		return core.Wrap(core.CodeOutcomeUnknown, "the object store gave no answer; the operation may have happened", err)
	}
	return core.Wrap(core.CodeUnavailable, "the object store gave no answer", err)
}

func isServerFault(err error) bool {
	var answer interface{ HTTPStatusCode() int }
	return errors.As(err, &answer) && answer.HTTPStatusCode() >= http.StatusInternalServerError && !isUnsupported(err)
}

func isDenied(err error) bool {
	var answer smithy.APIError
	return errors.As(err, &answer) && (answer.ErrorCode() == "AccessDenied" || answer.ErrorCode() == "Forbidden")
}

func isUnsupported(err error) bool {
	var answer smithy.APIError
	return errors.As(err, &answer) && answer.ErrorCode() == "NotImplemented"
}

// patience bounds how long an operation tries against others on one job, from
// the first collision: a process that stood still before it has not waited.
type patience struct {
	queue  *Queue
	began  time.Time
	waited time.Duration // in pauses: a bound even where the clock stands still
	tries  int
}

func (q *Queue) patience() *patience { return &patience{queue: q} }

const (
	firstPause = 10 * time.Millisecond
	maxPause   = 500 * time.Millisecond
)

// pause waits before another try, longer each time and by chance, so that
// those who collided do not collide again. It refuses with queue_contention
// when the wait is used up.
func (p *patience) pause(ctx context.Context) error {
	limit := p.queue.settings.ContentionWait
	if p.tries == 0 {
		p.began = p.queue.clock.Now()
	}
	if p.waited >= limit || p.queue.clock.Now().Sub(p.began) >= limit {
		e := core.Refuse(core.CodeQueueContention, "others kept changing the job; nothing was done")
		e.RetryAfter = throttledFor
		return e
	}
	longest := maxPause
	if p.tries < 6 {
		longest = firstPause << p.tries
	}
	p.tries++
	d := firstPause/2 + time.Duration(p.queue.random()*float64(longest))
	p.waited += d
	if err := p.queue.sleep(ctx, d); err != nil {
		return unanswered(err, false)
	}
	return nil
}
