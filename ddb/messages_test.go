package ddb_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"drawbridge/core"
	"drawbridge/core/coretest"
	"drawbridge/ddb"
	"drawbridge/localstack/fakeaws"
)

// large is a payload that does not stand in its item.
var large = []byte(`{"task":"` + strings.Repeat("x", 9000) + `"}`)

func (c *costs) drain(agent string) ([]core.Delivery, error) {
	done, err := c.core.Drain(c.t.Context(), core.DrainRequest{AgentID: agent, Max: 10, AutoAck: true})
	return done.Messages, err
}

func TestAPayloadThatCannotBeReadIsNotAcknowledged(t *testing.T) {
	c := newCosts(t)
	r := letterTo("b")
	r.Payload = large
	id := c.publish(r).MessageID
	for _, action := range []fakeaws.Action{fakeaws.Error(503, "SlowDown"), fakeaws.DropRequest(), fakeaws.Error(500, "InternalError")} {
		broken := c.aws.Faults().Add(fakeaws.Rule{Service: "s3", Op: "GetObject", Action: action})
		got, err := c.drain("b")
		broken.Remove()
		if code := core.CodeOf(err); len(got) > 0 || code != core.CodeUnavailable && code != core.CodeThrottled {
			t.Fatalf("drained %v, %v", got, err)
		}
	}
	if got, err := c.drain("b"); err != nil || len(got) != 1 || got[0].ID != id || string(got[0].Payload.JSON) != string(large) {
		t.Fatalf("drained %+v, %v", got, err)
	}
}

func TestAPayloadThatCannotBeStoredLeavesNoMessage(t *testing.T) {
	c := newCosts(t)
	r := letterTo("b")
	r.Payload = large
	broken := c.aws.Faults().Add(fakeaws.Rule{Service: "s3", Op: "PutObject", Action: fakeaws.Error(503, "SlowDown")})
	if _, err := c.core.Publish(t.Context(), r); core.CodeOf(err) != core.CodeThrottled {
		t.Fatalf("error is %v", err)
	}
	broken.Remove()
	if got, err := c.drain("b"); err != nil || len(got) != 0 {
		t.Fatalf("drained %v, %v", got, err)
	}
}

// payloads lists the bucket.
func (w *world) payloads(t *testing.T) []string {
	t.Helper()
	client := s3.NewFromConfig(w.aws.Config(), func(o *s3.Options) { o.UsePathStyle = true })
	out, err := client.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String("payloads")})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, object := range out.Contents {
		keys = append(keys, *object.Key)
	}
	return keys
}

func TestARefusedPublishLeavesNoPayloadBehind(t *testing.T) {
	c := newCosts(t)
	r := letterTo("b")
	r.Payload = large
	r.Fences.Generation = core.Some(int64(7))
	if _, err := c.core.Publish(t.Context(), r); core.CodeOf(err) != core.CodeStalePresenceOwner {
		t.Fatalf("error is %v", err)
	}
	if keys := c.payloads(t); len(keys) != 0 {
		t.Fatalf("the bucket holds %v", keys)
	}
	r.Fences = core.Fences{}
	if id := c.publish(r).MessageID; len(c.payloads(t)) != 1 || c.payloads(t)[0] != "payload/"+id {
		t.Fatalf("the bucket holds %v", c.payloads(t))
	}
}

// A message whose payload somebody removed must neither block its inbox nor be
// acknowledged unseen.
func TestAMessageWhosePayloadIsGoneEndsAsADeadLetter(t *testing.T) {
	c := newCosts(t)
	r := letterTo("b")
	r.Payload, r.Type, r.Priority = large, core.MessageRequest, 9
	id := c.publish(r).MessageID
	next := c.publish(letterTo("b")).MessageID
	client := s3.NewFromConfig(c.aws.Config(), func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: aws.String("payloads"), Key: aws.String("payload/" + id)}); err != nil {
		t.Fatal(err)
	}
	if got, err := c.drain("b"); err != nil || len(got) != 1 || got[0].ID != next {
		t.Fatalf("drained %v, %v", got, err)
	}
	c.clock.Advance(time.Minute)
	if s, err := c.core.SweepMessages(t.Context()); err != nil || s.DeadLettered != 1 {
		t.Fatalf("the sweep counts %+v, %v", s, err)
	}
	if got, err := c.drain("a"); err != nil || len(got) != 1 || !strings.Contains(string(got[0].Payload.JSON), `"task":null`) {
		t.Fatalf("the notice is %+v, %v", got, err)
	}
}

func TestSettledMessagesAreCollectedAfterTheirRetentionAndNotBefore(t *testing.T) {
	clock := coretest.NewClock()
	w := newWorldAt(t, clock.Now)
	c := &costs{world: w, t: t, clock: clock, core: w.hub(clock)}
	collect := &types.TimeToLiveSpecification{AttributeName: aws.String("ttl"), Enabled: aws.Bool(true)}
	if _, err := c.client.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{TableName: &c.table, TimeToLiveSpecification: collect}); err != nil {
		t.Fatal(err)
	}
	c.aws.Faults().Add(fakeaws.Rule{Action: fakeaws.CollectExpired()})
	c.register("f", "x")
	acked, dying, fanned, pending := letterTo("b"), letterTo("b"), letterTo("topic:x"), letterTo("b")
	acked.TraceID, dying.TraceID, fanned.TraceID, pending.TraceID = "acked", "dying", "fanned", "pending"
	acked.Priority, pending.TTLMs, fanned.TTLMs = 9, core.MaxMessageTTL.Milliseconds(), core.MaxMessageTTL.Milliseconds()
	for _, r := range []core.PublishRequest{acked, dying, fanned, pending} {
		c.publish(r)
	}
	if _, err := c.core.Drain(t.Context(), core.DrainRequest{AgentID: "b", Max: 1, AutoAck: true}); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Minute)
	if s, err := c.core.SweepMessages(t.Context()); err != nil || s.DeadLettered != 1 {
		t.Fatalf("the sweep counts %+v, %v", s, err)
	}
	there := func(trace string) bool {
		found, _, err := c.store.ReadTrace(t.Context(), trace, 10)
		if err != nil {
			t.Fatal(err)
		}
		return len(found) > 0
	}
	clock.Advance(core.DefaultMessageRetention - 2*time.Minute)
	for _, trace := range []string{"acked", "dying", "fanned", "pending"} {
		if !there(trace) {
			t.Errorf("%s is gone before its retention ended", trace)
		}
	}
	clock.Advance(3 * time.Minute)
	for trace, want := range map[string]bool{"acked": false, "dying": false, "fanned": true, "pending": true} {
		if there(trace) != want {
			t.Errorf("%s is there: %t", trace, !want)
		}
	}
	clock.Advance(30 * 24 * time.Hour)
	if !there("pending") {
		t.Error("a message that is neither acknowledged nor dead is gone")
	}
}

func TestAHubWithoutABucketRefusesLargePayloadsOnly(t *testing.T) {
	c := newCosts(t)
	c.store = ddb.Open(c.client, ddb.Table{Name: c.table})
	c.core = c.hub(c.clock)
	r := letterTo("b")
	c.publish(r)
	r.Payload = large
	if _, err := c.core.Publish(t.Context(), r); core.CodeOf(err) != core.CodeInternal {
		t.Fatalf("error is %v", err)
	}
}

// The reference stops for 8.8 s for so many; here no run takes more than its
// bound, and the runs add up.
func TestAHundredThousandExpiredMessagesAreWorkedOffInBoundedSteps(t *testing.T) {
	expired, bound := 1000, 20_000+8*100 // pages that were begun are finished
	if long() {
		expired = 100_000
	}
	c := newCosts(t)
	var wait sync.WaitGroup
	for caller := range 8 {
		wait.Go(func() {
			for i := caller; i < expired; i += 8 {
				if _, err := c.core.Publish(t.Context(), letterTo("b")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	c.clock.Advance(time.Hour)
	dead := 0
	for runs := 0; dead < expired && runs < 10; runs++ {
		s, err := c.core.SweepMessages(t.Context())
		if err != nil || s.DeadLettered > bound {
			t.Fatalf("the sweep counts %+v, %v", s, err)
		}
		if dead += s.DeadLettered; (dead < expired) != s.More {
			t.Fatalf("%d of %d are dead, and the sweep counts %+v", dead, expired, s)
		}
	}
	counts, done, err := c.store.CountMessages(t.Context(), core.InstantOf(c.clock.Now()))
	if err != nil || !done || counts.DeadLetters != int64(expired) || counts.Normal != 0 {
		t.Fatalf("counted %+v, %v", counts, err)
	}
}
