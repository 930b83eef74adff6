package ddb

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"drawbridge/core"
)

// cortexproject/cortex#7706, eng-floe/floecat#257, guregu/dynamo#203: each
// reason of a cancelled transaction counts, not the exception alone.
func TestEveryReasonOfACancelledTransactionIsDecoded(t *testing.T) {
	for _, test := range []struct {
		reasons []string
		want    cancellation
	}{
		{[]string{"None", "ConditionalCheckFailed"}, conditionFailed},
		{[]string{"TransactionConflict", "None"}, conflicted},
		{[]string{"TransactionConflict", "ConditionalCheckFailed"}, conflicted},
		{[]string{"ThrottlingError", "None"}, cancelThrottled},
		{[]string{"ProvisionedThroughputExceeded", "ConditionalCheckFailed"}, cancelThrottled},
		{[]string{"ValidationError", "ConditionalCheckFailed"}, cancelRefused},
		{[]string{"ItemCollectionSizeLimitExceeded", "None"}, cancelRefused},
		{[]string{"SomethingNew"}, cancelRefused},
		{[]string{"None", "None"}, cancelRefused},
		{nil, cancelRefused},
	} {
		cancelled := &types.TransactionCanceledException{}
		for _, code := range test.reasons {
			cancelled.CancellationReasons = append(cancelled.CancellationReasons, types.CancellationReason{Code: aws.String(code)})
		}
		if got := cancellationOf(fmt.Errorf("wrapped: %w", cancelled)); got != test.want {
			t.Errorf("%v is decoded as %d, want %d", test.reasons, got, test.want)
		}
	}
	if got := cancellationOf(errors.New("no answer")); got != notCancelled {
		t.Errorf("an error that cancels nothing is decoded as %d", got)
	}
}

func TestAWriteDidNotHappenOnlyWhenEveryAttemptSaysSo(t *testing.T) {
	throttle := &types.ThrottlingException{}
	refused := &smithy.GenericAPIError{Code: "AccessDeniedException", Fault: smithy.FaultClient}
	broken := &smithy.GenericAPIError{Code: "InternalServerError", Fault: smithy.FaultServer}
	reset := errors.New("connection reset by peer")
	unsent := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for _, test := range []struct {
		name    string
		earlier []error
		last    error
		want    core.Code
	}{
		{"throttled all along", []error{throttle, throttle}, throttle, core.CodeThrottled},
		{"throttled after no answer", []error{reset, throttle}, throttle, core.CodeOutcomeUnknown},
		{"throttled after a fault of the store", []error{broken}, throttle, core.CodeOutcomeUnknown},
		{"no answer at all", []error{reset}, reset, core.CodeOutcomeUnknown},
		{"refused at once", nil, refused, core.CodeInternal},
		{"refused after no answer", []error{reset}, refused, core.CodeOutcomeUnknown},
		{"never sent", []error{unsent, unsent}, unsent, core.CodeUnavailable},
		{"throttled, then never sent", []error{throttle}, unsent, core.CodeUnavailable},
	} {
		a := attempts{failures: test.earlier}
		err := a.failure(test.last)
		if core.CodeOf(err) != test.want || !errors.Is(err, test.last) {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
}

func TestAFailedReadDidNothingWhateverItsCause(t *testing.T) {
	for _, test := range []struct {
		cause error
		want  core.Code
	}{
		{&types.ProvisionedThroughputExceededException{}, core.CodeThrottled},
		{&types.RequestLimitExceeded{}, core.CodeThrottled},
		{&types.InternalServerError{}, core.CodeUnavailable},
		{errors.New("connection reset by peer"), core.CodeUnavailable},
		{&types.ResourceNotFoundException{}, core.CodeInternal},
	} {
		err := readFailure(test.cause)
		var failure *core.Error
		if !errors.As(err, &failure) || failure.Code != test.want {
			t.Errorf("%T is answered %v, want %s", test.cause, err, test.want)
			continue
		}
		if retryable := test.want.Entry().Retryable; retryable != (failure.RetryAfter > 0) {
			t.Errorf("%s says retry after %s", failure.Code, failure.RetryAfter)
		}
	}
}
