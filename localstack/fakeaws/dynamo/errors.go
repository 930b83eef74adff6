package dynamo

import (
	"fmt"
	"net/http"
)

// An apiError is an answer other than success, with AWS's error code.
type apiError struct {
	status  int
	code    string
	message string
	// item is the item that made a condition fail, when the caller asked for it.
	item *item
	// reasons has one entry per action of a cancelled transaction.
	reasons []cancellationReason
}

// A cancellationReason tells what one action of a cancelled transaction met;
// its code is "None" for an action that did not fail.
type cancellationReason struct {
	code    string
	message string
	item    *item
}

func (e *apiError) Error() string { return e.code + ": " + e.message }

const (
	codeValidation       = "ValidationException"
	codeSerialization    = "SerializationException"
	codeConditionFailed  = "ConditionalCheckFailedException"
	codeNotFound         = "ResourceNotFoundException"
	codeInUse            = "ResourceInUseException"
	codeLimitExceeded    = "LimitExceededException"
	codeCanceled         = "TransactionCanceledException"
	codeTokenMismatch    = "IdempotentParameterMismatchException"
	codeUnsupported      = "UnsupportedOperationException"
	codeUnknownOperation = "UnknownOperationException"
)

// errorNamespaces are the prefixes of __type: errors of AWS's front end carry
// another one than those of DynamoDB's model.
var errorNamespaces = map[string]string{
	codeValidation:       "com.amazon.coral.validate#",
	codeSerialization:    "com.amazon.coral.service#",
	codeUnknownOperation: "com.amazon.coral.service#",
}

const modelNamespace = "com.amazonaws.dynamodb.v20120810#"

func newError(code, format string, args ...any) *apiError {
	message := format
	if len(args) > 0 {
		message = fmt.Sprintf(format, args...)
	}
	return &apiError{status: http.StatusBadRequest, code: code, message: message}
}

func validationError(format string, args ...any) *apiError {
	return newError(codeValidation, format, args...)
}

// invalidParameter is AWS's most common opening of a validation message.
func invalidParameter(format string, args ...any) *apiError {
	return newError(codeValidation, "One or more parameter values were invalid: "+format, args...)
}

// constraintError is what AWS's generated parameter checks answer.
func constraintError(value any, at, constraint string) *apiError {
	quoted := "null"
	if value != nil {
		quoted = fmt.Sprintf("'%v'", value)
	}
	return validationError("1 validation error detected: Value %s at '%s' failed to satisfy constraint: %s", quoted, at, constraint)
}

func missingParameter(at string) *apiError {
	return constraintError(nil, at, "Member must not be null")
}

func serializationError(format string, args ...any) *apiError {
	return newError(codeSerialization, format, args...)
}

func tableNotFound() *apiError {
	return newError(codeNotFound, "Requested resource not found")
}

func namedTableNotFound(name string) *apiError {
	return newError(codeNotFound, "Requested resource not found: Table: %s not found", name)
}

func conditionFailed(blocking *item) *apiError {
	e := newError(codeConditionFailed, "The conditional request failed")
	e.item = blocking
	return e
}

func unsupported(what string) *apiError {
	return newError(codeUnsupported, "UnsupportedOperation: %s is not supported by this server", what)
}
