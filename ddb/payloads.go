package ddb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"drawbridge/core"
)

// inlinePayload is the largest payload that stands in its item, in bytes: a
// partition with a local index holds 10 GB, and every write of an item is billed
// for all of it.
const inlinePayload = 8 << 10

// maxStoredPayload bounds what is read back: nothing larger was written.
const maxStoredPayload = 2 << 20

// payloadReads bounds the payloads read at once.
const payloadReads = 16

// PayloadBucket is where payloads over 8 KB are kept, one object a message.
type PayloadBucket struct {
	Client *s3.Client
	Name   string
}

func payloadKey(messageID string) string { return "payload/" + messageID }

// storePayload puts a large payload before anything refers to it. The key is the
// message's own, so a repeated put writes the same bytes. Cost: 1 S3 put. IAM:
// s3:PutObject.
func (s *Store) storePayload(ctx context.Context, messageID string, p core.Payload) error {
	if len(p.JSON) <= inlinePayload {
		return nil
	}
	if s.payloads.Client == nil {
		return core.Refuse(core.CodeInternal, "the hub has no bucket for large payloads")
	}
	_, err := s.payloads.Client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: aws.String(s.payloads.Name), Key: aws.String(payloadKey(messageID)),
		Body: bytes.NewReader(p.JSON), ContentType: aws.String("application/json"),
	})
	if err != nil {
		return payloadFailure("the payload could not be stored; nothing was done", err)
	}
	return nil
}

// dropPayload removes a payload that nothing refers to. IAM: s3:DeleteObject.
func (s *Store) dropPayload(ctx context.Context, messageID string, p core.Payload) error {
	if len(p.JSON) <= inlinePayload {
		return nil
	}
	_, err := s.payloads.Client.DeleteObject(ctx, &s3.DeleteObjectInput{
		Bucket: aws.String(s.payloads.Name), Key: aws.String(payloadKey(messageID)),
	})
	return err
}

// renewPayload makes a large payload as young as a new one: the bucket's
// lifecycle counts from here. One that is gone stays so. IAM: s3:GetObject,
// s3:PutObject, s3:ListBucket.
func (s *Store) renewPayload(ctx context.Context, messageID string, p core.Payload) error {
	if p.JSON != nil {
		return nil
	}
	p, err := s.loadPayload(ctx, messageID, p)
	if err != nil || p.Lost {
		return err
	}
	return s.storePayload(ctx, messageID, p)
}

// LoadPayloads reads large payloads, several at once and each message's once.
// Cost: 1 S3 get a large payload, and a listing where one is gone. IAM:
// s3:GetObject, s3:ListBucket.
func (s *Store) LoadPayloads(ctx context.Context, deliveries []core.Delivery) error {
	var large []string
	loaded := map[string]core.Payload{}
	for _, d := range deliveries {
		if _, seen := loaded[d.ID]; d.Payload.JSON == nil && !seen {
			large = append(large, d.ID)
			loaded[d.ID] = d.Payload
		}
	}
	results := make([]core.Payload, len(large))
	err := boundedParallel(len(large), payloadReads, func(i int) error {
		var err error
		results[i], err = s.loadPayload(ctx, large[i], loaded[large[i]])
		return err
	})
	if err != nil {
		return err
	}
	for i, id := range large {
		loaded[id] = results[i]
	}
	for i, d := range deliveries {
		if d.Payload.JSON == nil {
			deliveries[i].Payload = loaded[d.ID]
		}
	}
	return nil
}

func (s *Store) loadPayload(ctx context.Context, messageID string, p core.Payload) (core.Payload, error) {
	if s.payloads.Client == nil {
		return p, core.Refuse(core.CodeInternal, "the hub has no bucket for large payloads")
	}
	in := &s3.GetObjectInput{Bucket: aws.String(s.payloads.Name), Key: aws.String(payloadKey(messageID))}
	out, err := s.payloads.Client.GetObject(ctx, in)
	lost := isCode(err, "NoSuchKey")
	if isCode(err, "AccessDenied") {
		// So S3 answers for what is not there to whoever may not list the whole
		// bucket. A message whose payload is gone must not keep its inbox.
		if lost, err = s.payloadIsLost(ctx, messageID); err == nil && !lost {
			out, err = s.payloads.Client.GetObject(ctx, in)
		}
	}
	if lost {
		p.JSON, p.Lost = json.RawMessage("null"), true
		return p, nil
	}
	if err != nil {
		return p, payloadFailure("a payload could not be read", err)
	}
	body, err := io.ReadAll(io.LimitReader(out.Body, maxStoredPayload))
	if err = errors.Join(err, out.Body.Close()); err != nil {
		return p, payloadFailure("a payload could not be read", err)
	}
	p.JSON = body
	return p, nil
}

// payloadIsLost lists what may be listed, to tell an absence from a refusal.
func (s *Store) payloadIsLost(ctx context.Context, messageID string) (bool, error) {
	key := payloadKey(messageID)
	out, err := s.payloads.Client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{
		Bucket: aws.String(s.payloads.Name), Prefix: aws.String(key), MaxKeys: aws.Int32(1),
	})
	if err != nil {
		return false, err
	}
	return len(out.Contents) == 0 || aws.ToString(out.Contents[0].Key) != key, nil
}

func isCode(err error, code string) bool {
	var answer smithy.APIError
	return errors.As(err, &answer) && answer.ErrorCode() == code
}

var payloadThrottles = map[string]bool{"SlowDown": true, "RequestLimitExceeded": true, "ThrottlingException": true}

func payloadFailure(message string, err error) error {
	var answer smithy.APIError
	if errors.As(err, &answer) && payloadThrottles[answer.ErrorCode()] {
		return core.Wrap(core.CodeThrottled, message, err)
	}
	return core.Wrap(core.CodeUnavailable, message, err)
}
