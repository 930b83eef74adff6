package core

import (
	"errors"
	"fmt"
	"time"
)

// Code names an outcome. Codes are stable: clients decide by them.
type Code string

// Kind groups codes by what a caller can do about them. An adapter derives its
// own status from it.
type Kind string

// The kinds.
const (
	KindInvalid      Kind = "invalid"            // the request is wrong: change it
	KindTooLarge     Kind = "too_large"          // the request is too big: shrink it
	KindUnauthorized Kind = "unauthorized"       // no valid credential
	KindForbidden    Kind = "forbidden"          // the credential does not allow this
	KindNotFound     Kind = "not_found"          // there is no such thing
	KindNotAllowed   Kind = "method_not_allowed" // the thing does not take this method
	KindConflict     Kind = "conflict"           // a fence or the state refuses it
	KindThrottled    Kind = "throttled"          // slow down, then repeat
	KindUnavailable  Kind = "unavailable"        // a dependency is down or contended: repeat
	KindInternal     Kind = "internal"           // a fault of the hub
)

// The codes of presence, authentication, limits and the HTTP surface.
const (
	CodeInvalidJSON      Code = "INVALID_JSON"
	CodeInvalidArgument  Code = "INVALID_ARGUMENT"
	CodeBodyTooLarge     Code = "BODY_TOO_LARGE"
	CodeUnauthorized     Code = "UNAUTHORIZED"
	CodeForbidden        Code = "FORBIDDEN"
	CodeNotFound         Code = "NOT_FOUND"
	CodeUnknownEndpoint  Code = "UNKNOWN_ENDPOINT"
	CodeNotServed        Code = "NOT_SERVED"
	CodeMethodNotAllowed Code = "METHOD_NOT_ALLOWED"
	CodeThrottled        Code = "THROTTLED"
	CodeUnavailable      Code = "UNAVAILABLE"
	CodeContended        Code = "CONTENDED"
	CodeOutcomeUnknown   Code = "OUTCOME_UNKNOWN"
	CodeInternal         Code = "INTERNAL"

	CodeStaleHubInstance         Code = "STALE_HUB_INSTANCE"
	CodeStoreFingerprintMismatch Code = "STORE_FINGERPRINT_MISMATCH"
	CodeStalePresenceOwner       Code = "STALE_PRESENCE_OWNER"
	CodeIdempotencyMismatch      Code = "IDEMPOTENCY_MISMATCH"
	CodeConductorUnavailable     Code = "CONDUCTOR_REGISTRY_NOT_AVAILABLE"

	CodeRecipientNotOnline Code = "RECIPIENT_NOT_ONLINE"
	CodeAlreadyAcked       Code = "ALREADY_ACKED"
	CodeReceiptStale       Code = "RECEIPT_STALE"
	CodeDeadLettered       Code = "DEAD_LETTERED"
	CodeExpired            Code = "EXPIRED"
	CodeNotDead            Code = "NOT_DEAD"
	CodeAlreadyRedriven    Code = "ALREADY_REDRIVEN"

	CodeAlreadyHandled            Code = "ALREADY_HANDLED"
	CodeInvalidAction             Code = "INVALID_ACTION"
	CodeDeadlinePassed            Code = "DEADLINE_PASSED"
	CodeSchemaMismatch            Code = "SCHEMA_MISMATCH"
	CodeCredentialsNotSealed      Code = "CREDENTIALS_NOT_SEALED"
	CodeAssignNotFound            Code = "ASSIGN_NOT_FOUND"
	CodeAssignWorkerMismatch      Code = "ASSIGN_WORKER_MISMATCH"
	CodeAssignSupervisorMismatch  Code = "ASSIGN_SUPERVISOR_MISMATCH"
	CodeAssignAttemptMismatch     Code = "ASSIGN_ATTEMPT_MISMATCH"
	CodeAssignAlreadyFinal        Code = "ASSIGN_ALREADY_FINAL"
	CodeAssignActive              Code = "ASSIGN_ACTIVE"
	CodeAssignRetryExhausted      Code = "ASSIGN_RETRY_EXHAUSTED"
	CodePipelineNotFound          Code = "PIPELINE_NOT_FOUND"
	CodePipelineTransitionInvalid Code = "PIPELINE_TRANSITION_INVALID"
	CodePipelineVersionStale      Code = "PIPELINE_VERSION_STALE"

	CodeProjectIDInvalid             Code = "PROJECT_ID_INVALID"
	CodeSessionIDInvalid             Code = "SESSION_ID_INVALID"
	CodeHostIDInvalid                Code = "HOST_ID_INVALID"
	CodeHeartbeatTTLInvalid          Code = "HEARTBEAT_TTL_INVALID"
	CodeTransportLocatorsJSONInvalid Code = "TRANSPORT_LOCATORS_JSON_INVALID"
	CodeTransportLocatorsInvalid     Code = "TRANSPORT_LOCATORS_INVALID"
	CodeTransportLocatorInvalid      Code = "TRANSPORT_LOCATOR_INVALID"
	CodeTransportLocatorSchema       Code = "TRANSPORT_LOCATOR_SCHEMA_UNSUPPORTED"
	CodeTransportIDInvalid           Code = "TRANSPORT_ID_INVALID"
	CodeTransportKindUnsupported     Code = "TRANSPORT_KIND_UNSUPPORTED"
	CodeCodexTransportUnsupported    Code = "CODEX_TRANSPORT_UNSUPPORTED"
	CodeTransportCapabilitiesInvalid Code = "TRANSPORT_CAPABILITIES_INVALID"
	CodeTransportPriorityInvalid     Code = "TRANSPORT_PRIORITY_INVALID"
	CodeTransportExpiryInvalid       Code = "TRANSPORT_EXPIRY_INVALID"
	CodeClaudeUDSSessionRequired     Code = "CLAUDE_UDS_SESSION_REQUIRED"
	CodeClaudeUDSSessionInvalid      Code = "CLAUDE_UDS_SESSION_INVALID"
	CodeClaudeUDSShortInvalid        Code = "CLAUDE_UDS_SHORT_INVALID"
	CodeClaudeUDSBridgeInvalid       Code = "CLAUDE_UDS_BRIDGE_INVALID"
	CodeTmuxSessionInvalid           Code = "TMUX_SESSION_INVALID"
	CodeTmuxServerInvalid            Code = "TMUX_SERVER_INVALID"

	CodeRoleKeyInvalid          Code = "ROLE_KEY_INVALID"
	CodeRoleKeyFieldUnsupported Code = "ROLE_KEY_FIELD_UNSUPPORTED"
	CodeRoleKindUnsupported     Code = "ROLE_KIND_UNSUPPORTED"
	CodeRoleScopeForbidden      Code = "ROLE_SCOPE_FORBIDDEN"
	CodeScopeRequired           Code = "SCOPE_REQUIRED"
	CodeScopeIDInvalid          Code = "SCOPE_ID_INVALID"
	CodeRoleKeyWireInvalid      Code = "ROLE_KEY_WIRE_INVALID"
	CodeRoleKeyWirePrefix       Code = "ROLE_KEY_WIRE_PREFIX"
	CodeRoleKeyNonCanonical     Code = "ROLE_KEY_NON_CANONICAL"

	CodeRoleStateInvalid       Code = "ROLE_REACHABILITY_STATE_INVALID"
	CodeInvalidRoleTransition  Code = "INVALID_ROLE_TRANSITION"
	CodeRoleNotFound           Code = "ROLE_NOT_FOUND"
	CodeInvalidCAS             Code = "INVALID_CAS"
	CodeStaleVersion           Code = "STALE_VERSION"
	CodeStaleEpoch             Code = "STALE_EPOCH"
	CodeStaleActivationSeq     Code = "STALE_ACTIVATION_SEQ"
	CodeStaleActivationID      Code = "STALE_ACTIVATION_ID"
	CodeEnsureRoleInvalid      Code = "ENSURE_ROLE_REQUEST_INVALID"
	CodeActivationAckInvalid   Code = "ACTIVATION_ACK_INVALID"
	CodeHolderMismatch         Code = "HOLDER_MISMATCH"
	CodeCharterVersionMismatch Code = "CHARTER_VERSION_MISMATCH"
	CodeHolderLeaseExpired     Code = "HOLDER_LEASE_EXPIRED"
	CodeStaleStateVersion      Code = "STALE_STATE_VERSION"
	CodeRoleNotSupported       Code = "ROLE_NOT_SUPPORTED"
	CodeAgentIDRequired        Code = "AGENT_ID_REQUIRED"
	CodeCandidateUnavailable   Code = "ROLE_CANDIDATE_UNAVAILABLE"

	CodeQueueJobNotFound  Code = "queue_job_not_found"
	CodeQueueJobDone      Code = "queue_job_done"
	CodeQueueJobLeased    Code = "queue_job_leased"
	CodeQueueJobDamaged   Code = "queue_job_damaged"
	CodeQueueLeaseInvalid Code = "queue_lease_invalid"
	CodeQueueContention   Code = "queue_contention"
)

// CodeEntry is one line of the catalogue.
type CodeEntry struct {
	Code      Code
	Kind      Kind
	Retryable bool   // repeating the same request unchanged can succeed
	Meaning   string // one sentence for the documentation
}

// Codes is the catalogue of every outcome the hub answers, in one place for
// core, HTTP and the documentation. Treat it as read-only.
var Codes = []CodeEntry{
	{CodeInvalidJSON, KindInvalid, false, "The body is not a JSON value the endpoint can read."},
	{CodeInvalidArgument, KindInvalid, false, "A field is missing, of the wrong type or out of range; details.field names it."},
	{CodeBodyTooLarge, KindTooLarge, false, "The body is over 1 MiB."},
	{CodeUnauthorized, KindUnauthorized, false, "The request carries no valid bearer token."},
	{CodeForbidden, KindForbidden, false, "The token's scope or bound agents do not allow this."},
	{CodeNotFound, KindNotFound, false, "There is no such thing."},
	{CodeUnknownEndpoint, KindNotFound, false, "There is no such endpoint."},
	{CodeNotServed, KindNotFound, false, "The endpoint belongs to the user's machine and a shared hub does not serve it."},
	{CodeMethodNotAllowed, KindNotAllowed, false, "The endpoint does not take this method."},
	{CodeThrottled, KindThrottled, true, "Too many requests; nothing was done."},
	{CodeUnavailable, KindUnavailable, true, "The store is unavailable; nothing was done."},
	{CodeContended, KindUnavailable, true, "Others kept changing the same thing; nothing was done."},
	{CodeOutcomeUnknown, KindUnavailable, true, "No answer came from the store in time; the operation may have happened."},
	{CodeInternal, KindInternal, false, "A fault inside the hub."},

	{CodeStaleHubInstance, KindConflict, false, "The caller speaks to another incarnation of the hub; data carries the current one."},
	{CodeStoreFingerprintMismatch, KindConflict, false, "The caller speaks to another store; data carries the current one."},
	{CodeStalePresenceOwner, KindConflict, false, "The caller's generation is not the agent's current one, is finished, or the agent is unknown."},
	{CodeIdempotencyMismatch, KindConflict, false, "The Idempotency-Key was used with another body."},
	{CodeConductorUnavailable, KindUnavailable, false, "This hub has no registry of conductors."},

	{CodeRecipientNotOnline, KindConflict, false, "if_recipient asks for a recipient that is online, and it is not; nothing was stored."},
	{CodeAlreadyAcked, KindConflict, false, "The message was acknowledged before."},
	{CodeReceiptStale, KindConflict, false, "The receipt is not the one of the message's latest lease, or a lease holds the message."},
	{CodeDeadLettered, KindConflict, false, "The message is a dead letter."},
	{CodeExpired, KindConflict, false, "The message has expired."},
	{CodeNotDead, KindConflict, false, "The message did not die this death."},
	{CodeAlreadyRedriven, KindConflict, false, "This dead letter was redriven before."},

	{CodeAlreadyHandled, KindConflict, false, "The human request was answered before."},
	{CodeInvalidAction, KindInvalid, false, "The action is not accept, decline or cancel."},
	{CodeDeadlinePassed, KindConflict, false, "The human request's deadline has passed; the answer is kept as a late one."},
	{CodeSchemaMismatch, KindInvalid, false, "The answer does not satisfy the human request's schema."},
	{CodeCredentialsNotSealed, KindConflict, false, "This hub has no key to seal credentials with; nothing was stored."},
	{CodeAssignNotFound, KindNotFound, false, "There is no such job."},
	{CodeAssignWorkerMismatch, KindConflict, false, "The job is another worker's."},
	{CodeAssignSupervisorMismatch, KindConflict, false, "The job is another supervisor's."},
	{CodeAssignAttemptMismatch, KindConflict, false, "The job is at another attempt; details.preserved_message_id names the message that keeps the report."},
	{CodeAssignAlreadyFinal, KindConflict, false, "The job has ended; data is its snapshot."},
	{CodeAssignActive, KindConflict, false, "The job is queued or running; data is its snapshot."},
	{CodeAssignRetryExhausted, KindConflict, false, "The job has no retry left."},
	{CodePipelineNotFound, KindNotFound, false, "The team has no pipeline."},
	{CodePipelineTransitionInvalid, KindInvalid, false, "The pipeline's phase does not lead to this one, or its fix loop is used up; data is its current state."},
	{CodePipelineVersionStale, KindConflict, false, "The pipeline has another version than the caller believes; data is its current state."},

	{CodeProjectIDInvalid, KindInvalid, false, "project_id is not prj_ and 22 characters of A-Za-z0-9_-."},
	{CodeSessionIDInvalid, KindInvalid, false, "session_id is blank or over 256 characters."},
	{CodeHostIDInvalid, KindInvalid, false, "host_id is not hst_ and characters of A-Za-z0-9_- (at most 128), or disagrees with a locator."},
	{CodeHeartbeatTTLInvalid, KindInvalid, false, "Locators are given with a lease that is not positive."},
	{CodeTransportLocatorsJSONInvalid, KindInvalid, false, "transport_locators_json is neither an array nor a string holding JSON."},
	{CodeTransportLocatorsInvalid, KindInvalid, false, "transport_locators_json holds JSON that is not an array."},
	{CodeTransportLocatorInvalid, KindInvalid, false, "A locator is not an object or has an unknown key."},
	{CodeTransportLocatorSchema, KindInvalid, false, "A locator's schema_version is not tfx.transport-locator.v1."},
	{CodeTransportIDInvalid, KindInvalid, false, "A locator's transport_id is not a reference of 1 to 128 characters."},
	{CodeTransportKindUnsupported, KindInvalid, false, "A locator's kind is neither claude-uds nor tmux."},
	{CodeCodexTransportUnsupported, KindInvalid, false, "A codex agent has a locator of a kind other than tmux."},
	{CodeTransportCapabilitiesInvalid, KindInvalid, false, "A locator's capabilities are not a set of probe, wake, activate, interrupt."},
	{CodeTransportPriorityInvalid, KindInvalid, false, "A locator's priority is not a safe integer."},
	{CodeTransportExpiryInvalid, KindInvalid, false, "A locator expires in the past or after the agent's lease."},
	{CodeClaudeUDSSessionRequired, KindInvalid, false, "A claude-uds locator has neither session_id nor short."},
	{CodeClaudeUDSSessionInvalid, KindInvalid, false, "A claude-uds locator's session_id is not a reference."},
	{CodeClaudeUDSShortInvalid, KindInvalid, false, "A claude-uds locator's short is not a reference."},
	{CodeClaudeUDSBridgeInvalid, KindInvalid, false, "A claude-uds locator's bridge_id is missing or not a reference."},
	{CodeTmuxSessionInvalid, KindInvalid, false, "A tmux locator's session_name is not a reference."},
	{CodeTmuxServerInvalid, KindInvalid, false, "A tmux locator's mux_server_id is not a reference."},

	{CodeRoleKeyInvalid, KindInvalid, false, "role_key is not an object."},
	{CodeRoleKeyFieldUnsupported, KindInvalid, false, "role_key has a key other than project_id, role_kind and scope_id."},
	{CodeRoleKindUnsupported, KindInvalid, false, "role_kind is neither cto nor lead."},
	{CodeRoleScopeForbidden, KindInvalid, false, "A cto's role_key has a scope_id."},
	{CodeScopeRequired, KindInvalid, false, "A lead's role_key has no scope_id."},
	{CodeScopeIDInvalid, KindInvalid, false, "scope_id is not scp_ and 22 characters of A-Za-z0-9_-."},
	{CodeRoleKeyWireInvalid, KindInvalid, false, "role_key_wire is no text or over 512 bytes."},
	{CodeRoleKeyWirePrefix, KindInvalid, false, "role_key_wire does not start with rk2.."},
	{CodeRoleKeyNonCanonical, KindInvalid, false, "role_key_wire is not the one wire form of a role key."},

	{CodeRoleStateInvalid, KindInvalid, false, "The state is none that a role can have."},
	{CodeInvalidRoleTransition, KindConflict, false, "A role in this state does not take this trigger."},
	{CodeRoleNotFound, KindNotFound, false, "There is no such role."},
	{CodeInvalidCAS, KindConflict, false, "A compare-and-set lacks one of its expectations; data.role is the role as it stands."},
	{CodeStaleVersion, KindConflict, false, "The role has another version; data.role is the role as it stands."},
	{CodeStaleEpoch, KindConflict, false, "The epoch is not the role's, or grants no authority any more; data.role is the role as it stands."},
	{CodeStaleActivationSeq, KindConflict, false, "The role has another activation_seq; data.role is the role as it stands."},
	{CodeStaleActivationID, KindConflict, false, "The role has another activation_id; data.role is the role as it stands."},
	{CodeEnsureRoleInvalid, KindInvalid, false, "trigger or cause_id of an ensure is missing or unknown."},
	{CodeActivationAckInvalid, KindInvalid, false, "The acknowledgement has not the shape of tfx.role-activation-ack.v1."},
	{CodeHolderMismatch, KindConflict, false, "Somebody else holds the role, or is to hold it; data.role is the role as it stands."},
	{CodeCharterVersionMismatch, KindConflict, false, "The acknowledgement is for another charter version; data.role is the role as it stands."},
	{CodeHolderLeaseExpired, KindConflict, false, "The agent's lease, or the one its authority is limited to, has passed; data.role is the role as it stands."},
	{CodeStaleStateVersion, KindConflict, false, "The role's value has another version; data carries the current one."},
	{CodeRoleNotSupported, KindConflict, false, "The legacy interface knows the role cto only."},
	{CodeAgentIDRequired, KindConflict, false, "agent_id is blank."},
	{CodeCandidateUnavailable, KindConflict, false, "The agent is not a live candidate; data.role is the role's snapshot."},

	{CodeQueueJobNotFound, KindNotFound, false, "The archive queue has no job with this id."},
	{CodeQueueJobDone, KindConflict, false, "The job is done; data.job is its current state."},
	{CodeQueueJobLeased, KindConflict, false, "A worker holds the job; data.job is its current state."},
	{CodeQueueJobDamaged, KindConflict, false, "The job's document cannot be read; details.id names it."},
	{CodeQueueLeaseInvalid, KindConflict, false, "The job is not under this lease, or not leased at all; data.job is its current state."},
	{CodeQueueContention, KindUnavailable, true, "Others kept changing the same job; nothing was done."},
}

var codeEntries = indexCodes(Codes)

func indexCodes(entries []CodeEntry) map[Code]CodeEntry {
	index := make(map[Code]CodeEntry, len(entries))
	for _, e := range entries {
		index[e.Code] = e
	}
	return index
}

// Entry returns the catalogue's line of c; a code that is not in it is a fault
// inside the hub and is described as CodeInternal.
func (c Code) Entry() CodeEntry {
	if e, ok := codeEntries[c]; ok {
		return e
	}
	return codeEntries[CodeInternal]
}

// Error is a refusal or failure with a stable code. Message is free text that
// is safe to show; the cause, which may not be, is only reachable by unwrapping.
type Error struct {
	Code    Code
	Message string
	// Details tells what is wrong with the request: "field" names the field.
	Details map[string]any
	// Data is what the caller needs to go on: an Identity for the identity
	// fences, a StalePresence for the generation fence, an ArchiveJob or a Job for
	// a refusal about that job, a Pipeline for a refusal about it, nil otherwise.
	Data any
	// RetryAfter is how long to wait before repeating; zero says nothing.
	RetryAfter time.Duration

	cause error
}

func (e *Error) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Message, e.cause)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// retryAfter is how long a caller waits before it repeats what failed for a
// reason that passes.
const retryAfter = time.Second

// Wrap returns an error with a code and a text that is safe to show around a
// cause that is not. A retryable code tells when to repeat.
func Wrap(code Code, message string, cause error) *Error {
	e := &Error{Code: code, Message: message, cause: cause}
	if code.Entry().Retryable {
		e.RetryAfter = retryAfter
	}
	return e
}

// Refuse returns an error with a code and a text.
func Refuse(code Code, message string) *Error { return Wrap(code, message, nil) }

// Invalid refuses a field of the request: INVALID_ARGUMENT with details.field.
func Invalid(field, message string) *Error {
	return InvalidCode(CodeInvalidArgument, field, message)
}

// InvalidCode refuses a field with a code of its own.
func InvalidCode(code Code, field, message string) *Error {
	return &Error{Code: code, Message: message, Details: map[string]any{"field": field}}
}

// CodeOf returns the code of err, INTERNAL when it carries none, "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}
