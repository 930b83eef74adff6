package ddb

import (
	"context"
	"errors"
	"net"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"drawbridge/core"
)

// failedCondition tells whether err is a failed condition, and returns the item
// that failed it (nil: there is none).
func failedCondition(err error) (item, bool) {
	var failed *types.ConditionalCheckFailedException
	if !errors.As(err, &failed) {
		return nil, false
	}
	return failed.Item, true
}

// readFailure gives a failed read its code. Nothing was done, whatever happened.
func readFailure(err error) error {
	switch {
	case isThrottle(err):
		return core.Wrap(core.CodeThrottled, "the store asks to slow down", err)
	case isRefusal(err):
		return core.Wrap(core.CodeInternal, "the store refused a read", err)
	}
	return core.Wrap(core.CodeUnavailable, "the store did not answer", err)
}

// attempts observes every attempt of one request, because only they tell
// whether a write that failed in the end may have happened before.
type attempts struct{ failures []error }

// trace installs the observer into a request.
func (a *attempts) trace(o *dynamodb.Options) { a.traceAs(o, "ObserveAttempts") }

// traceAs installs the observer under a name: a request takes one of each.
func (a *attempts) traceAs(o *dynamodb.Options, name string) {
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc(name, a.observe), middleware.Before)
	})
}

func (a *attempts) observe(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
	out, metadata, err := next.HandleInitialize(ctx, in)
	if results, ok := retry.GetAttemptResults(metadata); ok {
		for _, result := range results.Results {
			a.failures = append(a.failures, result.Err)
		}
	}
	return out, metadata, err
}

// resent tells whether an attempt failed in a way that leaves open whether it had
// its effect.
func (a *attempts) resent() bool {
	for _, failure := range a.failures {
		if _, refused := failedCondition(failure); failure != nil && !refused && !isThrottle(failure) && !isUnsent(failure) {
			return true
		}
	}
	return false
}

// failure gives a failed write its code: whether it did not happen, or whether
// nobody knows.
func (a *attempts) failure(err error) error {
	for _, failure := range append(a.failures, err) {
		if !isThrottle(failure) && !isRefusal(failure) && !isUnsent(failure) {
			return core.Wrap(core.CodeOutcomeUnknown, "the store did not answer; the operation may have happened", err)
		}
	}
	switch {
	case isThrottle(err):
		return core.Wrap(core.CodeThrottled, "the store asks to slow down; nothing was done", err)
	case isRefusal(err):
		return core.Wrap(core.CodeInternal, "the store refused a write", err)
	}
	return core.Wrap(core.CodeUnavailable, "the store cannot be reached; nothing was done", err)
}

var throttles = map[string]bool{
	"ProvisionedThroughputExceededException": true,
	"ThrottlingException":                    true,
	"RequestLimitExceeded":                   true,
	"LimitExceededException":                 true,
}

func isThrottle(err error) bool {
	var answer smithy.APIError
	return errors.As(err, &answer) && throttles[answer.ErrorCode()]
}

// isRefusal tells whether the store answered that the request is wrong: such a
// request had no effect.
func isRefusal(err error) bool {
	var answer smithy.APIError
	return errors.As(err, &answer) && answer.ErrorFault() != smithy.FaultServer && !isServerFault(err)
}

// isServerFault looks at the status, because an error the SDK has no type for
// does not tell whose fault it is.
func isServerFault(err error) bool {
	var answer interface{ HTTPStatusCode() int }
	return errors.As(err, &answer) && answer.HTTPStatusCode() >= 500
}

// isUnsent tells whether the request never left this host.
func isUnsent(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && failed.Op == "dial"
}

// cancellation is what a cancelled transaction tells about its actions.
type cancellation int

const (
	notCancelled cancellation = iota
	conditionFailed
	conflicted
	cancelThrottled
	cancelRefused
)

// cancellationOf decodes every reason of a cancelled transaction. A condition
// that failed outweighs a conflict, because only it says that the state has
// changed for good; what repeating cannot mend outweighs both.
func cancellationOf(err error) cancellation {
	var cancelled *types.TransactionCanceledException
	if !errors.As(err, &cancelled) {
		return notCancelled
	}
	worst := notCancelled
	for _, reason := range cancelled.CancellationReasons {
		worst = max(worst, cancellationCode(reason))
	}
	if worst == notCancelled {
		return cancelRefused
	}
	return worst
}

func cancellationCode(reason types.CancellationReason) cancellation {
	if reason.Code == nil {
		return notCancelled
	}
	switch *reason.Code {
	case "None":
		return notCancelled
	case "ConditionalCheckFailed":
		return conditionFailed
	case "TransactionConflict":
		return conflicted
	case "ProvisionedThroughputExceeded", "ThrottlingError", "RequestLimitExceeded":
		return cancelThrottled
	default:
		return cancelRefused
	}
}
