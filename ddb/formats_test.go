package ddb_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"drawbridge/core"
	"drawbridge/core/coretest"
)

// The corpus holds what each released format wrote: every kind of item in every
// state, as DynamoDB's own JSON, and the payloads beside them. A release whose
// items differ adds a file; none is ever changed, because tables that were
// written by that release are not either.
//
//	go test ./ddb -run Format -update=v2
var update = flag.String("update", "", "write what today's code stores into testdata/formats/<name>.json")

// A corpus is one file of it.
type corpus struct {
	WrittenAt core.Instant      `json:"written_at_ms"`
	Names     map[string]string `json:"names"` // of ids that the hub chose
	Items     []map[string]any  `json:"items"`
	Objects   map[string]string `json:"objects"` // payloads by key
}

const formatsFolder = "testdata/formats"

func readCorpora(t *testing.T) map[string]corpus {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(formatsFolder, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpus in %s: %v", formatsFolder, err)
	}
	corpora := map[string]corpus{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var c corpus
		if err := json.Unmarshal(text, &c); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		corpora[strings.TrimSuffix(filepath.Base(file), ".json")] = c
	}
	return corpora
}

// encodeValue and decodeValue are DynamoDB's JSON form of an attribute.
func encodeValue(t *testing.T, v types.AttributeValue) map[string]any {
	t.Helper()
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return map[string]any{"S": v.Value}
	case *types.AttributeValueMemberN:
		return map[string]any{"N": v.Value}
	case *types.AttributeValueMemberBOOL:
		return map[string]any{"BOOL": v.Value}
	case *types.AttributeValueMemberB:
		return map[string]any{"B": base64.StdEncoding.EncodeToString(v.Value)}
	case *types.AttributeValueMemberSS:
		slices.Sort(v.Value)
		return map[string]any{"SS": v.Value}
	case *types.AttributeValueMemberBS:
		set := []string{}
		for _, element := range v.Value {
			set = append(set, base64.StdEncoding.EncodeToString(element))
		}
		slices.Sort(set)
		return map[string]any{"BS": set}
	case *types.AttributeValueMemberL:
		list := []any{}
		for _, element := range v.Value {
			list = append(list, encodeValue(t, element))
		}
		return map[string]any{"L": list}
	case *types.AttributeValueMemberM:
		return map[string]any{"M": encodeItem(t, v.Value)}
	}
	t.Fatalf("the corpus knows no attribute of type %T", v)
	return nil
}

func encodeItem(t *testing.T, it map[string]types.AttributeValue) map[string]any {
	t.Helper()
	encoded := map[string]any{}
	for name, value := range it {
		encoded[name] = encodeValue(t, value)
	}
	return encoded
}

func decodeValue(t *testing.T, v any) types.AttributeValue {
	t.Helper()
	for kind, value := range v.(map[string]any) {
		switch kind {
		case "S":
			return &types.AttributeValueMemberS{Value: value.(string)}
		case "N":
			return &types.AttributeValueMemberN{Value: value.(string)}
		case "BOOL":
			return &types.AttributeValueMemberBOOL{Value: value.(bool)}
		case "B":
			return &types.AttributeValueMemberB{Value: decodeBytes(t, value)}
		case "BS":
			set := &types.AttributeValueMemberBS{}
			for _, element := range value.([]any) {
				set.Value = append(set.Value, decodeBytes(t, element))
			}
			return set
		case "SS":
			set := &types.AttributeValueMemberSS{}
			for _, element := range value.([]any) {
				set.Value = append(set.Value, element.(string))
			}
			return set
		case "L":
			list := &types.AttributeValueMemberL{Value: []types.AttributeValue{}}
			for _, element := range value.([]any) {
				list.Value = append(list.Value, decodeValue(t, element))
			}
			return list
		case "M":
			return &types.AttributeValueMemberM{Value: decodeItem(t, value.(map[string]any))}
		}
	}
	t.Fatalf("the corpus holds %v", v)
	return nil
}

func decodeBytes(t *testing.T, text any) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(text.(string))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func decodeItem(t *testing.T, encoded map[string]any) map[string]types.AttributeValue {
	t.Helper()
	it := map[string]types.AttributeValue{}
	for name, value := range encoded {
		it[name] = decodeValue(t, value)
	}
	return it
}

// allItems reads the whole table.
func (w *world) allItems(t *testing.T) []map[string]types.AttributeValue {
	t.Helper()
	var all []map[string]types.AttributeValue
	pages := dynamodb.NewScanPaginator(w.client, &dynamodb.ScanInput{TableName: aws.String(w.table), ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Items...)
	}
	slices.SortFunc(all, func(a, b map[string]types.AttributeValue) int { return strings.Compare(itemName(a), itemName(b)) })
	return all
}

func itemName(it map[string]types.AttributeValue) string {
	return it["pk"].(*types.AttributeValueMemberS).Value + "/" + it["sk"].(*types.AttributeValueMemberS).Value
}

// kindOf is what an item is: the beginnings of its keys.
func kindOf(it map[string]types.AttributeValue) string {
	partition, position, _ := strings.Cut(itemName(it), "/")
	kind, _, _ := strings.Cut(partition, "#")
	if kind == "hub" || kind == "role" || kind == "inbox" || kind == "fanout" {
		position, _, _ = strings.Cut(position, "#")
		kind += "/" + position
	}
	return kind
}

// attributesOf lists what a format writes: kind, attribute and type.
func attributesOf(t *testing.T, items []map[string]types.AttributeValue) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, it := range items {
		for name, value := range it {
			for kind := range encodeValue(t, value) {
				all[kindOf(it)+": "+name+" "+kind] = true
			}
		}
	}
	return all
}

// restore puts a corpus into a new world whose clock stands where it was written.
func (c corpus) restore(t *testing.T) *ledger {
	t.Helper()
	l := newLedger(t)
	l.names = c.Names
	l.clock.Advance(c.WrittenAt.Sub(core.InstantOf(l.clock.Now())))
	for _, encoded := range c.Items {
		_, err := l.client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(l.table), Item: decodeItem(t, encoded)})
		l.must(err)
	}
	for key, body := range c.Objects {
		_, err := l.bucket().PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String("payloads"), Key: aws.String(key), Body: strings.NewReader(body)})
		l.must(err)
	}
	return l
}

// A ledger is a world in which every kind of item gets written.
type ledger struct {
	*world
	t     *testing.T
	clock *coretest.Clock
	hub   *core.Hub
	names map[string]string
}

// repeatable is a source of the same bytes every time.
type repeatable struct{ *mathrand.ChaCha8 }

func newLedger(t *testing.T) *ledger {
	t.Helper()
	l := &ledger{world: newWorld(t), t: t, clock: coretest.NewClock(), names: map[string]string{}}
	l.store.RelayEvents()
	ids := core.NewIDs(l.clock, repeatable{mathrand.NewChaCha8([32]byte{})})
	l.hub = core.New(core.Config{
		Presence: l.store, Identity: l.store, Sweeps: l.store, Messages: l.store, Roles: l.store, Reflexion: l.store, Pipelines: l.store,
		Humans: l.store, Schemas: noSchemas{}, Sealer: plainSealer{}, Jobs: l.store, Clock: l.clock, IDs: ids,
	})
	return l
}

func (l *ledger) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *ledger) bucket() *s3.Client {
	return s3.NewFromConfig(l.aws.Config(), func(o *s3.Options) { o.UsePathStyle = true })
}

func (l *ledger) ctx() context.Context { return l.t.Context() }

// pass lets time pass.
func (l *ledger) pass(d time.Duration) { l.clock.Advance(d) }

// snapshot is the corpus of what was written.
func (l *ledger) snapshot() corpus {
	l.t.Helper()
	c := corpus{WrittenAt: core.InstantOf(l.clock.Now()), Names: l.names, Objects: map[string]string{}}
	for _, it := range l.allItems(l.t) {
		c.Items = append(c.Items, encodeItem(l.t, it))
	}
	listed, err := l.bucket().ListObjectsV2(l.ctx(), &s3.ListObjectsV2Input{Bucket: aws.String("payloads")})
	l.must(err)
	for _, object := range listed.Contents {
		got, err := l.bucket().GetObject(l.ctx(), &s3.GetObjectInput{Bucket: aws.String("payloads"), Key: object.Key})
		l.must(err)
		body, err := io.ReadAll(got.Body)
		l.must(errors.Join(err, got.Body.Close()))
		c.Objects[*object.Key] = string(body)
	}
	return c
}

// The deadlines of the corpus: those that pass within minutes of its end, and
// those that do not.
const (
	soon  = 90 * time.Second
	later = 24 * time.Hour
)

func seconds(d time.Duration) core.Opt[float64] {
	return core.Some((d - core.RegisterGrace).Seconds())
}

// write writes every kind of item, in every state that an item can rest in.
func (l *ledger) write() {
	l.t.Helper()
	l.writeHub()
	l.writeAgents()
	l.writeMessages()
	l.writeRoles()
	l.writeHumans()
	l.writeJobs()
	l.writeLearnt()
	for _, sweep := range []string{core.SweepPresence, core.SweepMessages, core.SweepHumanRequests, core.SweepAssignments, core.SweepReflexion} {
		_, err := l.hub.RunSweep(l.ctx(), sweep)
		l.must(err)
	}
	l.must(l.store.RecordSweep(l.ctx(), core.SweepOutcome{
		Name: core.SweepRoles, ErrorCode: core.CodeThrottled, WriteStamp: core.WriteStamp{WriteID: "w", Started: l.clock.Now()},
	}))
	l.writeFresh()
}

func (l *ledger) writeHub() {
	l.t.Helper()
	_, err := l.hub.Identity(l.ctx())
	l.must(err)
	_, err = l.hub.RotateIdentity(l.ctx(), "moved")
	l.must(err)
	now := core.InstantOf(l.clock.Now())
	for name, token := range map[string]core.Token{
		"operator": {Scopes: []core.Scope{core.ScopeOperator}},
		"bound":    {Scopes: []core.Scope{core.ScopeAgent, core.ScopeRead}, AgentIDs: []string{"online"}, ExpiresAt: now.Add(later)},
		"expired":  {Scopes: []core.Scope{core.ScopeRead}, ExpiresAt: now.Add(time.Millisecond)},
		"revoked":  {Scopes: []core.Scope{core.ScopeRead}, RevokedAt: now},
	} {
		token.Hash, token.Name, token.CreatedAt = core.TokenHash(name), name, now
		_, err := l.store.CreateToken(l.ctx(), token)
		l.must(err)
	}
	tokens := core.NewTokens(l.store, l.clock, repeatable{mathrand.NewChaCha8([32]byte{1})})
	shown := func(string) error { return nil }
	_, err = tokens.Create(l.ctx(), core.TokenRequest{Name: "rotated", Scope: core.ScopeAgent, Lifetime: later}, shown)
	l.must(err)
	l.pass(time.Millisecond)
	_, err = tokens.Rotate(l.ctx(), "rotated", soon, shown)
	l.must(err)
}

func (l *ledger) register(r core.RegisterRequest) {
	l.t.Helper()
	r.CLI = "claude"
	_, err := l.hub.Register(l.ctx(), r)
	l.must(err)
	l.pass(time.Millisecond)
}

func (l *ledger) writeAgents() {
	l.t.Helper()
	l.register(core.RegisterRequest{
		AgentID: "online", TimeoutSec: seconds(later), Topics: []string{"build", "test"}, Capabilities: []string{"go"}, Metadata: json.RawMessage(`{"host":"h"}`),
		Step: core.Some(int64(7)), StepDeadlineMs: core.Some(later.Milliseconds()),
	})
	l.register(core.RegisterRequest{
		AgentID: "placed", TimeoutSec: seconds(later), ProjectID: core.Some(roleOf(heldRole).ProjectID), SessionID: core.Some("session"), HostID: core.Some("hst_one"),
		TransportLocators: core.Some(json.RawMessage(fmt.Sprintf(`[{"schema_version":%q,"transport_id":"t.1","kind":"tmux","host_id":"hst_one",
			"capabilities":["probe"],"priority":1,"expires_at_ms":%d,"locator":{"session_name":"s","mux_server_id":"m"}}]`, core.LocatorSchema, core.InstantOf(l.clock.Now()).Add(time.Hour)))),
	})
	l.register(core.RegisterRequest{AgentID: "hung", TimeoutSec: seconds(later), Step: core.Some(int64(1)), StepDeadlineMs: core.Some(int64(1000))})
	l.register(core.RegisterRequest{AgentID: "twice", TimeoutSec: seconds(later)})
	l.register(core.RegisterRequest{AgentID: "twice", TimeoutSec: seconds(later), Idempotency: core.Some(onceKey("register"))})
	l.register(core.RegisterRequest{AgentID: "final", TimeoutSec: seconds(later)})
	_, err := l.hub.Deregister(l.ctx(), core.DeregisterRequest{AgentID: "final", Final: true, Fences: core.Fences{Generation: core.Some(int64(1))}})
	l.must(err)
	l.register(core.RegisterRequest{AgentID: "offline", TimeoutSec: seconds(time.Second)})
	l.register(core.RegisterRequest{AgentID: "stale", TimeoutSec: seconds(time.Second)})
	l.pass(2 * time.Second)
	_, err = l.hub.SweepAgents(l.ctx())
	l.must(err)
	_, err = l.hub.ReportStatus(l.ctx(), core.ReportRequest{AgentID: "offline", Status: "offline"})
	l.must(err)
	_, err = l.hub.Heartbeat(l.ctx(), core.HeartbeatRequest{AgentID: "online", TTLMs: core.Some(later.Milliseconds()), Step: core.Some(int64(8))})
	l.must(err)
	l.register(core.RegisterRequest{AgentID: "lapsing", TimeoutSec: seconds(soon)})
}

func onceKey(name string) core.IdempotencyKey {
	return core.IdempotencyKey{Scope: "corpus", Key: name, Body: []byte("{}")}
}

// publish sends a message to its own name's inbox and keeps its id.
func (l *ledger) publish(name string, r core.PublishRequest) {
	l.t.Helper()
	if r.To == "" {
		r.To = name
	}
	if r.TTLMs == 0 {
		r.TTLMs = later.Milliseconds()
	}
	r.From, r.Topic, r.Priority, r.TraceID = "sender", "t", 5, "trace"
	done, err := l.hub.Publish(l.ctx(), r)
	l.must(err)
	l.names[name] = done.MessageID
	l.pass(time.Millisecond)
}

// lease takes what is in an inbox under a lease and keeps the receipt.
func (l *ledger) lease(name string) string {
	l.t.Helper()
	drained, err := l.hub.Drain(l.ctx(), core.DrainRequest{AgentID: name, Max: 1, VisibilityMs: core.Some(soon.Milliseconds())})
	l.must(err)
	if len(drained.Messages) != 1 {
		l.t.Fatalf("%s has %d messages", name, len(drained.Messages))
	}
	l.names[name+" receipt"] = drained.Messages[0].Receipt
	return drained.Messages[0].Receipt
}

func (l *ledger) writeMessages() {
	l.t.Helper()
	large := json.RawMessage(`"` + strings.Repeat("x", 10_000) + `"`)
	l.publish("pending", core.PublishRequest{})
	l.publish("large", core.PublishRequest{Payload: large})
	l.publish("keyed", core.PublishRequest{Idempotency: core.Some(onceKey("publish"))})
	l.publish("leased", core.PublishRequest{MaxDeliveries: core.Some(int64(3))})
	l.lease("leased")
	l.publish("given back", core.PublishRequest{})
	_, err := l.hub.Nack(l.ctx(), core.NackRequest{AgentID: "given back", Receipts: []string{l.lease("given back")}, DelayMs: 1000, Error: "later"})
	l.must(err)
	l.publish("acked", core.PublishRequest{})
	_, err = l.hub.Ack(l.ctx(), core.AckRequest{AgentID: "acked", Receipts: []string{l.lease("acked")}})
	l.must(err)
	l.publish("taken", core.PublishRequest{})
	_, err = l.hub.Drain(l.ctx(), core.DrainRequest{AgentID: "taken", Max: 1, AutoAck: true})
	l.must(err)
	l.publish("spent", core.PublishRequest{MaxDeliveries: core.Some(int64(1))})
	_, err = l.hub.Nack(l.ctx(), core.NackRequest{AgentID: "spent", Receipts: []string{l.lease("spent")}, Error: "broken"})
	l.must(err)
	l.publish("expired", core.PublishRequest{Type: core.MessageHandoff, TTLMs: 1000})
	l.publish("redriven", core.PublishRequest{TTLMs: 1000})
	l.publish("nobody", core.PublishRequest{To: "topic:nobody"})
	l.publish("followed", core.PublishRequest{To: "topic:build"})
	for i := range 12 {
		l.register(core.RegisterRequest{AgentID: fmt.Sprintf("follower-%d-%s", i, strings.Repeat("x", 40)), TimeoutSec: seconds(later), Topics: []string{"many"}})
	}
	l.publish("many", core.PublishRequest{To: "topic:many"})
	l.publish("answer", core.PublishRequest{To: "asker", Type: core.MessageResponse, CorrelationID: "question", Payload: json.RawMessage(`"42"`)})
	l.pass(time.Second)
	_, err = l.hub.SweepMessages(l.ctx())
	l.must(err)
	letters, err := l.hub.DeadLetters(l.ctx(), core.DeadLetterQuery{DeadLetterFilter: core.DeadLetterFilter{To: core.Some("redriven")}})
	l.must(err)
	_, err = l.hub.Redrive(l.ctx(), core.RedriveRequest{IDs: []string{letters.Letters[0].ID}, TTLMs: core.Some(later.Milliseconds())})
	l.must(err)
	// A publisher that dies after it stored the record and one delivery.
	l.register(core.RegisterRequest{AgentID: "cut-1", TimeoutSec: seconds(later), Topics: []string{"cut"}})
	l.register(core.RegisterRequest{AgentID: "cut-2", TimeoutSec: seconds(later), Topics: []string{"cut"}})
	revive := l.network.refuseAfter(2)
	_, _ = l.hub.Publish(l.ctx(), core.PublishRequest{From: "sender", To: "topic:cut", Topic: "t", Priority: 5, TTLMs: later.Milliseconds()})
	revive()
	l.pass(time.Millisecond)
	l.publish("expiring", core.PublishRequest{Type: core.MessageRequest, TTLMs: soon.Milliseconds()})
}

// roleOf is one of the roles of the corpus.
func roleOf(n int) core.RoleKey {
	return core.RoleKey{ProjectID: "prj_AbCdEfGhIjKlMnOpQrStUv", Kind: core.RoleLead, ScopeID: fmt.Sprintf("scp_ZyXwVuTsRqPoNmLkJiHg%02d", n)}
}

// The roles of the corpus.
const (
	heldRole = iota
	probingRole
	waitingRole
	releasedRole
	handedRole
	closedRole
	unreachableRole
	quarantinedRole
)

// candidate adds an agent to a role's candidates.
func (l *ledger) candidate(role int, id string, lease time.Duration) {
	l.t.Helper()
	l.register(core.RegisterRequest{AgentID: id, TimeoutSec: seconds(lease), Capabilities: []string{"role:lead:candidate"}})
	_, err := l.hub.AddCandidate(l.ctx(), core.CandidateRequest{Wire: roleOf(role).Wire(), AgentID: id, Priority: core.Some(int64(3))})
	l.must(err)
}

func (l *ledger) ensure(role int) {
	l.t.Helper()
	_, err := l.hub.EnsureRole(l.ctx(), core.EnsureRequest{Wire: roleOf(role).Wire(), Trigger: "manual", CauseID: "corpus"})
	l.must(err)
	l.pass(time.Millisecond)
}

func (l *ledger) acknowledge(role int, id string) (core.Role, error) {
	l.t.Helper()
	wire := roleOf(role).Wire()
	r, err := l.store.ReadRole(l.ctx(), wire)
	l.must(err)
	_, err = l.hub.AcknowledgeRole(l.ctx(), core.AckRoleRequest{
		AgentID: id, Wire: wire, HolderAgentID: id, Epoch: r.Epoch, ActivationSeq: r.ActivationSeq, ActivationID: r.ActivationID,
		CharterWire: wire, CharterEpoch: r.Epoch, CharterVersion: r.CharterVersion,
	})
	l.pass(time.Millisecond)
	return r, err
}

func (l *ledger) hold(role int, id string, lease time.Duration) core.Role {
	l.t.Helper()
	l.candidate(role, id, lease)
	l.ensure(role)
	r, err := l.acknowledge(role, id)
	l.must(err)
	return r
}

func (l *ledger) writeRoles() {
	l.t.Helper()
	held := l.hold(heldRole, "holder", later)
	_, err := l.hub.SetRoleValue(l.ctx(), core.RoleValueRequest{Wire: held.Wire, AgentID: "holder", Epoch: held.Epoch, Value: json.RawMessage(`{"plan":1}`)})
	l.must(err)
	l.publish("for the role", core.PublishRequest{To: roleOf(heldRole).Address()})
	l.ensure(waitingRole) // nobody may have it: it asks for a session
	released := l.hold(releasedRole, "former", later)
	_, err = l.hub.ReleaseRole(l.ctx(), core.ReleaseRequest{Wire: released.Wire, AgentID: "former", Epoch: released.Epoch})
	l.must(err)
	handed := l.hold(handedRole, "leaving", later)
	l.candidate(handedRole, "coming", later)
	_, err = l.hub.ReleaseRole(l.ctx(), core.ReleaseRequest{
		Wire: handed.Wire, AgentID: "leaving", Epoch: handed.Epoch, Successor: "coming", GraceMs: (5 * time.Minute).Milliseconds(),
	})
	l.must(err)
	l.hold(closedRole, "closing", later)
	_, err = l.hub.ChangeRoleSettings(l.ctx(), core.RoleSettingsRequest{
		ClosedScopes: core.Some([]string{roleOf(closedRole).ScopeID}), CharterVersion: core.Some("c2"),
		MasterEnabled: core.Some(true), CTOEnabled: core.Some(false), LeadEnabled: core.Some(true),
	})
	l.must(err)
	_, err = l.hub.ReachCandidate(l.ctx(), held.Wire, "holder", core.Reachability{ProbeFailed: true, Code: core.Some("timeout"), At: core.InstantOf(l.clock.Now())})
	l.must(err)
	for role, state := range map[int]core.RoleState{unreachableRole: core.RoleUnreachable, quarantinedRole: core.RoleQuarantined} {
		done, err := l.hub.ReserveRole(l.ctx(), core.RoleReservation{Wire: roleOf(role).Wire()})
		l.must(err)
		_, err = l.hub.CompareAndSetRole(l.ctx(), core.RoleCAS{Wire: done.Role.Wire, Expected: core.RoleExpectation{
			Version: core.Some(done.Role.Version), Epoch: core.Some(done.Role.Epoch),
			ActivationSeq: core.Some(done.Role.ActivationSeq), ActivationID: core.Some(done.Role.ActivationID),
		}, Patch: core.RolePatch{
			State: core.Some(state), RetryCount: core.Some(int64(2)), BlockedReason: core.Some("blocked"), NextProbe: core.Some(core.InstantOf(l.clock.Now()).Add(later)),
		}})
		l.must(err)
	}
	l.candidate(probingRole, "probed", later)
	l.register(core.RegisterRequest{AgentID: "legacy", TimeoutSec: seconds(later), Topics: []string{"cto"}})
}

func (l *ledger) question(name string, q core.HumanQuestion) {
	l.t.Helper()
	q.Requester, q.Prompt = "asking", "may I?"
	if q.Kind == "" {
		q.Kind = "approval"
	}
	if !q.DeadlineMs.Set {
		q.DeadlineMs = core.Some(later.Milliseconds())
	}
	asked, err := l.hub.AskHuman(l.ctx(), q)
	l.must(err)
	l.names["human "+name] = asked.RequestID
	l.pass(time.Millisecond)
}

func (l *ledger) submit(name, action, content string) error {
	_, err := l.hub.SubmitHuman(l.ctx(), core.HumanSubmission{
		RequestID: l.names["human "+name], Action: action, Content: json.RawMessage(content), SubmittedBy: "ann",
	})
	return err
}

func (l *ledger) writeHumans() {
	l.t.Helper()
	l.register(core.RegisterRequest{AgentID: "asking", TimeoutSec: seconds(later)})
	l.question("pending", core.HumanQuestion{Schema: json.RawMessage(`{"type":"object"}`), Channel: "c", Idempotency: core.Some(onceKey("human"))})
	l.question("overdue", core.HumanQuestion{DeadlineMs: core.Some(soon.Milliseconds()), DefaultAction: core.DefaultContinue})
	l.question("accepted", core.HumanQuestion{})
	l.must(l.submit("accepted", core.ActionAccept, `{"go":true}`))
	l.question("declined", core.HumanQuestion{})
	l.must(l.submit("declined", core.ActionDecline, `{}`))
	l.question("cancelled", core.HumanQuestion{})
	l.must(l.submit("cancelled", core.ActionCancel, `{}`))
	l.question("credential", core.HumanQuestion{Kind: "credential"})
	l.must(l.submit("credential", core.ActionAccept, `{"password":"p"}`))
	l.question("late", core.HumanQuestion{DeadlineMs: core.Some(int64(1000))})
	l.pass(time.Second)
	if err := l.submit("late", core.ActionAccept, `{}`); core.CodeOf(err) != core.CodeDeadlinePassed {
		l.t.Fatalf("a late answer ends in %v", err)
	}
}

func (l *ledger) job(name string, r core.AssignRequest) string {
	l.t.Helper()
	r.Supervisor, r.Worker, r.Task = "boss", "hand "+name, "dig"
	if !r.TimeoutMs.Set {
		r.TimeoutMs = core.Some((later - time.Hour).Milliseconds())
	}
	done, err := l.hub.Assign(l.ctx(), r)
	l.must(err)
	l.names["job "+name] = done.Job.ID
	l.pass(time.Millisecond)
	return done.Job.ID
}

func (l *ledger) report(name, status string) error {
	_, err := l.hub.ReportJob(l.ctx(), core.JobReport{
		JobID: l.names["job "+name], Attempt: core.Some(int64(1)), Status: status, Result: json.RawMessage(`{"depth":2}`),
	})
	return err
}

func (l *ledger) writeJobs() {
	l.t.Helper()
	l.job("queued", core.AssignRequest{TTLMs: core.Some(later.Milliseconds()), Idempotency: core.Some(onceKey("assign"))})
	l.job("large", core.AssignRequest{TTLMs: core.Some(later.Milliseconds()), Payload: json.RawMessage(`"` + strings.Repeat("y", 10_000) + `"`)})
	l.job("dispatched", core.AssignRequest{TTLMs: core.Some(later.Milliseconds())})
	_, err := l.hub.Drain(l.ctx(), core.DrainRequest{AgentID: "hand dispatched", Max: 1, AutoAck: true})
	l.must(err)
	for _, status := range []string{"running", "succeeded", "failed"} {
		l.job(status, core.AssignRequest{})
		l.must(l.report(status, status))
	}
	l.job("waiting", core.AssignRequest{MaxRetries: 2, RetryDelayMs: soon.Milliseconds(), Backoff: core.BackoffExponential})
	l.must(l.report("waiting", "failed"))
	l.job("cancelled", core.AssignRequest{})
	_, err = l.hub.CancelJob(l.ctx(), core.JobCancelRequest{JobID: l.names["job cancelled"], Reason: "no need", RequestedBy: "boss"})
	l.must(err)
	l.job("timed out", core.AssignRequest{TimeoutMs: core.Some(int64(1000)), MaxRetries: 1, HoldTimeouts: true})
	l.pass(time.Second)
	_, err = l.hub.Job(l.ctx(), l.names["job timed out"], core.Fences{})
	l.must(err)
	l.job("overdue", core.AssignRequest{TimeoutMs: core.Some(soon.Milliseconds()), MaxRetries: 1})
}

func (l *ledger) learn(name string, r core.LearnRequest) {
	l.t.Helper()
	r.Message, r.Solution, r.Success = name+": exit status 1", "try again", true
	learnt, err := l.hub.Learn(l.ctx(), r)
	l.must(err)
	l.names["fix "+name] = learnt.Entry.ID()
	l.pass(time.Millisecond)
}

// rememberedHits is how many hits of a fix are known again by their write ids
// before the older half is forgotten.
const rememberedHits = 32

func (l *ledger) writeLearnt() {
	l.t.Helper()
	l.learn("build", core.LearnRequest{Code: "go build", Context: json.RawMessage(`{"lang":"go"}`), AgentID: "online"})
	l.learn("rule", core.LearnRequest{Type: core.ReflexionAdaptive})
	for range rememberedHits + 1 {
		_, err := l.hub.Hit(l.ctx(), core.HitRequest{ID: l.names["fix build"], Success: true})
		l.must(err)
	}
	_, err := l.hub.InitPipeline(l.ctx(), core.InitRequest{Team: "team", FixMax: 3, RalphMax: 10})
	l.must(err)
	_, err = l.hub.AdvancePipeline(l.ctx(), core.AdvanceRequest{Team: "team", Phase: core.PhasePRD})
	l.must(err)
}

// writeFresh writes what a sweep of the roles would move on.
func (l *ledger) writeFresh() {
	l.t.Helper()
	l.ensure(probingRole)
}

// TestTodaysItemsHaveTheNewestFormat runs what writes the corpus and compares what today's
// code stores with what the newest format holds: an attribute more or less is
// another format, which needs a file and a reader of the old one.
func TestTodaysItemsHaveTheNewestFormat(t *testing.T) {
	l := newLedger(t)
	l.write()
	if *update != "" {
		writeCorpus(t, l.snapshot())
	}
	corpora := readCorpora(t)
	newest := slices.Max(slices.Collect(maps.Keys(corpora)))
	var stored []map[string]types.AttributeValue
	for _, encoded := range corpora[newest].Items {
		stored = append(stored, decodeItem(t, encoded))
	}
	known, today := attributesOf(t, stored), attributesOf(t, l.allItems(t))
	for attribute := range today {
		if !known[attribute] {
			t.Errorf("%s is written, and no item of %s has it: see docs/design.md, Stored formats", attribute, newest)
		}
	}
	for attribute := range known {
		if !today[attribute] {
			t.Errorf("%s of %s is not written any more: see docs/design.md, Stored formats", attribute, newest)
		}
	}
}

func writeCorpus(t *testing.T, c corpus) {
	t.Helper()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(c); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(formatsFolder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(formatsFolder, *update+".json"), text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
