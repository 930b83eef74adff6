// Package ddb keeps the hub in one DynamoDB table, as template.yaml declares it.
//
// # Items
//
//	pk                       sk          is
//	agent#<id>               agent       an agent; with list_pk/list_sk from its first
//	                                     register on, due_pk/due_sk while a sweep has to
//	                                     look at it
//	topic#<topic>#<shard>    <agent id>  an agent that may follow the topic
//	hub                      identity    the hub's identity
//	hub                      roles       the switches of the roles
//	role#<wire>              role        a role, with its latest transitions; listed, and due
//	                                     while a sweep has to look at it
//	role#<wire>              candidate#… an agent that may hold it
//	role#<wire>              value       what its holder attached to it
//	role#cto                 legacy      the leader of the legacy role
//	role#cto                 candidate#… an agent that registered as its candidate
//	token#<sha256>           token       a bearer token's record
//	sweep#<name>             health      a sweep's health
//	idem#<sha256>            record      a stored answer, collected by ttl
//	reflexion#<pattern>      <variant>   a learnt fix, keyed by hashes; in list from its
//	                                     birth on, in due while the sweep has to look at it
//	pipeline#<team>          pipeline    a team's pipeline, in list by its last update
//
//	human#<id>               request     a request to a person; with due_pk/due_sk and
//	                                     list_pk/list_sk while it is pending
//	job#<id>                 job         an assignment; with due_pk/due_sk while it is
//	                                     active, list_pk/list_sk by its status, and
//	                                     job_sk in the indexes jobs_by_*
//	events#<job id>          <sequence>  a change of a job's status; with due_pk/due_sk
//	                                     until it is relayed
//	rollup#jobs              counts      the jobs by status, as of a moment
//
// (The items of messages are described with them.) The indexes due, list and
// jobs_by_* hold keys only. They lag behind the table, so what they show is a hint: whoever
// acts on it reads the item and writes under a condition. An entry of the due
// index may be early, never late: a deadline that moves later leaves it alone, a
// deadline that moves earlier moves it in the same write.
//
// # Writes
//
// An operation on one agent is one UpdateItem whose condition decides, with the
// refused item in the answer (ALL_OLD). Its attributes write_id and touched_us
// tell a retry of this write from another write, and an older write from a newer
// one. Where the refused item says that the write only needs another form (the
// due entry has to move, the step has not grown), it is sent once more. The one
// transaction of presence is a register with an idempotency key, because the
// change and its stored answer are two items that must not part.
//
// A human request or a job is put whole, on the condition that its version is
// the one that was read, in one transaction with what tells of the change (see
// saving). The one exception is the mark of a first delivery, an UpdateItem that
// counts the version up.
//
// # Errors
//
// Everything that is not the store's business comes back as a *core.Error. A
// write that failed is UNAVAILABLE, THROTTLED or INTERNAL only when every
// attempt of the SDK says that nothing happened, else OUTCOME_UNKNOWN. A plain
// write that meets a transaction on its item, which the SDK does not retry,
// waits and tries again.
//
// # Permissions
//
// What each operation of the hub needs on the table and its indexes, beside the
// read of the identity (GetItem, and PutItem for the first of all) and of the
// token (GetItem); each method says what it costs:
//
//	register                   UpdateItem, BatchWriteItem (topics); with a key also
//	                           BatchGetItem, PutItem
//	heartbeat, batch           UpdateItem
//	deregister, status report  UpdateItem
//	status of an agent         GetItem
//	list of agents             Query on index list or, by topic, the table; BatchGetItem
//	rotation                   GetItem, PutItem
//	health                     BatchGetItem
//	presence sweep             Query on index due, BatchGetItem, UpdateItem
//
// Those of human requests, assignments and events stand with their methods, and
// for each function in template.yaml.
//
// A transaction has no permission of its own: IAM checks PutItem and UpdateItem
// for the actions in it. BatchGetItem and BatchWriteItem are permissions of their
// own.
package ddb
