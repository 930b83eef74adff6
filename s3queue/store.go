package s3queue

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"drawbridge/core"
)

// S3API is what the queue needs of an S3 client.
type S3API interface {
	GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error)
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
	DeleteObject(context.Context, *s3.DeleteObjectInput, ...func(*s3.Options)) (*s3.DeleteObjectOutput, error)
	DeleteObjects(context.Context, *s3.DeleteObjectsInput, ...func(*s3.Options)) (*s3.DeleteObjectsOutput, error)
	ListObjectsV2(context.Context, *s3.ListObjectsV2Input, ...func(*s3.Options)) (*s3.ListObjectsV2Output, error)
}

// pageSize is the most keys that S3 lists or deletes in one request.
const pageSize = 1000

// A stamp is what the queue keeps beside a document, in the object's metadata.
type stamp struct {
	// writes are the ids of the latest writes, newest first: a writer whose
	// answer was lost finds its own here even when others wrote since.
	writes []string
	// created is the id of the write that created the job. It is the nonce of
	// its source mark.
	created string
	// marker announces the document's state, or an earlier moment of it.
	marker string
	// former is the marker of the state before, kept once a job is done so that
	// a repeated completion can remove it.
	former string
	// lease is the digest of the last lease id, so that a repeated completion
	// is recognised, and leaseFor the length it is renewed by.
	lease    string
	leaseFor time.Duration
}

// rememberedWrites bounds stamp.writes: others would have to write so many times
// between a lost answer and its writer's next look for it to miss its own.
const rememberedWrites = 8

// The names of the metadata.
const (
	metaWrites   = "writes"
	metaCreated  = "created"
	metaMarker   = "marker"
	metaFormer   = "former-marker"
	metaLease    = "lease"
	metaLeaseFor = "lease-ms"
)

func (s stamp) metadata() map[string]string {
	m := map[string]string{metaWrites: strings.Join(s.writes, " "), metaCreated: s.created, metaMarker: s.marker}
	if s.former != "" {
		m[metaFormer] = s.former
	}
	if s.lease != "" {
		m[metaLease] = s.lease
		m[metaLeaseFor] = strconv.FormatInt(s.leaseFor.Milliseconds(), 10)
	}
	return m
}

// readStamp reads the metadata of a document, and makes up that of one which
// was copied into the bucket by hand.
func readStamp(j core.ArchiveJob, m map[string]string) stamp {
	if _, ok := parseMarker(m[metaMarker]); !ok || !isNonce(m[metaCreated]) {
		return stamp{created: rawNonce, marker: markerOf(j, rawNonce).key}
	}
	s := stamp{writes: strings.Fields(m[metaWrites]), created: m[metaCreated], marker: m[metaMarker],
		former: m[metaFormer], lease: m[metaLease]}
	if ms, err := strconv.ParseInt(m[metaLeaseFor], 10, 64); err == nil && ms > 0 {
		s.leaseFor = time.Duration(ms) * time.Millisecond
	}
	return s
}

// next is the stamp of the write that follows.
func (s stamp) next(writeID string) stamp {
	kept := s.writes[:min(len(s.writes), rememberedWrites-1)]
	s.writes = append([]string{writeID}, kept...)
	return s
}

func (s stamp) has(writeID string) bool { return slices.Contains(s.writes, writeID) }

// leaseDigest stands for a lease id in metadata, which holds ASCII only while
// an imported lease's id may be any text.
func leaseDigest(leaseID string) string {
	sum := sha256.Sum256([]byte(leaseID))
	return hex.EncodeToString(sum[:16])
}

// A record is a job as it is stored.
type record struct {
	job   core.ArchiveJob
	etag  string // of the document; what replaces it must be conditional on it
	stamp stamp
}

// source is the key that lists the job under its source.
func (r record) source() string { return sourceMarkOf(r.job, r.stamp.created).key }

// damagedDocument is a document that cannot be read.
type damagedDocument struct {
	id    string
	cause error
}

func (d *damagedDocument) Error() string { return fmt.Sprintf("job %s: %v", d.id, d.cause) }
func (d *damagedDocument) Unwrap() error { return core.RefuseArchiveJobDamaged(d.id, d.cause) }

// read reads a job: errAbsent when there is none, a *damagedDocument when it
// cannot be read.
func (q *Queue) read(ctx context.Context, id string) (record, error) {
	out, body, err := q.get(ctx, jobKey(id), core.MaxArchiveDocumentBytes)
	if err != nil {
		return record{}, err
	}
	job, err := core.DecodeArchiveJob(id, body)
	if err != nil {
		return record{}, &damagedDocument{id, err}
	}
	return record{job, aws.ToString(out.ETag), readStamp(job, out.Metadata)}, nil
}

// get reads an object, of a larger one only so much that its size shows.
func (q *Queue) get(ctx context.Context, key string, limit int64) (*s3.GetObjectOutput, []byte, error) {
	out, err := q.s3.GetObject(ctx, &s3.GetObjectInput{Bucket: &q.bucket, Key: &key})
	for attempt := 1; isDenied(err); attempt++ {
		if absent, listed := q.isAbsent(ctx, key); listed != nil || absent {
			return nil, nil, cmp.Or(listed, errAbsent)
		}
		if attempt == deniedAttempts {
			break
		}
		// It is there: either it may not be read, or it came after the read.
		out, err = q.s3.GetObject(ctx, &s3.GetObjectInput{Bucket: &q.bucket, Key: &key})
	}
	if err != nil {
		return nil, nil, refusal(err, false)
	}
	defer out.Body.Close()
	var body io.Reader = out.Body
	if aws.ToInt64(out.ContentLength) > limit {
		body = io.LimitReader(out.Body, limit+1)
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, nil, unanswered(err, false)
	}
	return out, data, nil
}

// deniedAttempts is how often a read is refused before the refusal is believed: an
// object that others remove and make again may be missed once or twice.
const deniedAttempts = 3

// isAbsent tells an absence from a refusal. S3 answers 403 for a missing object to
// whoever may not list the whole bucket; a listing within the prefix, which the
// queue always may make, tells them apart.
func (q *Queue) isAbsent(ctx context.Context, key string) (bool, error) {
	keys, _, err := q.page(ctx, key, "", 1)
	return len(keys) == 0 || keys[0] != key, err
}

// content is the object of a job: its document, and a line of blanks that spell
// the write id. The blanks mean nothing in JSON and make every write's ETag
// another one: where ETags are content hashes, a job that came back to an
// earlier state would otherwise look unchanged to a writer who missed what
// happened in between.
func content(document []byte, writeID string) []byte {
	return append(append(document, '\n'), blanks(writeID)...)
}

func blanks(writeID string) []byte {
	raw, err := hex.DecodeString(writeID)
	if err != nil {
		return nil
	}
	line := make([]byte, 0, 8*len(raw))
	for _, b := range raw {
		for bit := range 8 {
			line = append(line, " \t"[b>>(7-bit)&1])
		}
	}
	return line
}

// document takes the line of blanks off again.
func document(content []byte) []byte {
	const line = 1 + 4*nonceLength
	cut := len(content) - line
	if cut < 0 || content[cut] != '\n' || len(bytes.Trim(content[cut+1:], " \t")) > 0 {
		return content
	}
	return content[:cut]
}

// create stores a job where there is none.
func (q *Queue) create(ctx context.Context, body []byte, id string, s stamp) (etag string, err error) {
	return q.put(ctx, &s3.PutObjectInput{Key: aws.String(jobKey(id)), Body: bytes.NewReader(body),
		ContentType: aws.String("application/json"), Metadata: s.metadata(), IfNoneMatch: aws.String("*")})
}

// replace stores a job where it is still the one with that ETag.
func (q *Queue) replace(ctx context.Context, j core.ArchiveJob, s stamp, etag string) (string, error) {
	body := content(core.EncodeArchiveJob(j), s.writes[0])
	return q.put(ctx, &s3.PutObjectInput{Key: aws.String(jobKey(j.ID)), Body: bytes.NewReader(body),
		ContentType: aws.String("application/json"), Metadata: s.metadata(), IfMatch: &etag})
}

// announce writes an index key. body is what an interrupted enqueue is finished
// from, otherwise empty. Nobody else writes the key, yet S3 may answer that
// another request is in the way: then it is written again.
func (q *Queue) announce(ctx context.Context, key string, body []byte) error {
	for p := q.patience(); ; {
		_, err := q.put(ctx, &s3.PutObjectInput{Key: &key, Body: bytes.NewReader(body)})
		if !errors.Is(err, errConflict) {
			return err
		}
		if err := p.pause(ctx); err != nil {
			return err
		}
	}
}

func (q *Queue) put(ctx context.Context, in *s3.PutObjectInput) (string, error) {
	in.Bucket = &q.bucket
	out, err := q.s3.PutObject(ctx, in)
	if err != nil {
		return "", refusal(err, true)
	}
	return aws.ToString(out.ETag), nil
}

// page lists up to limit keys with the prefix that come after a key.
func (q *Queue) page(ctx context.Context, prefix, after string, limit int) (keys []string, more bool, err error) {
	in := &s3.ListObjectsV2Input{Bucket: &q.bucket, Prefix: &prefix, MaxKeys: aws.Int32(int32(limit))}
	if after != "" {
		in.StartAfter = &after
	}
	out, err := q.s3.ListObjectsV2(ctx, in)
	if err != nil {
		return nil, false, refusal(err, false)
	}
	for _, o := range out.Contents {
		keys = append(keys, aws.ToString(o.Key))
	}
	return keys, aws.ToBool(out.IsTruncated) && len(keys) > 0, nil
}

// walk calls fn for every key with the prefix that comes after a key, in order,
// until fn answers false.
func (q *Queue) walk(ctx context.Context, prefix, after string, fn func(key string) bool) error {
	return q.walkPages(ctx, prefix, after, pageSize, fn)
}

// walkPages is walk for who needs about limit keys: it lists one more at first.
func (q *Queue) walkPages(ctx context.Context, prefix, after string, limit int, fn func(key string) bool) error {
	size := min(limit+1, pageSize)
	for more := true; more; size = pageSize {
		var keys []string
		var err error
		if keys, more, err = q.page(ctx, prefix, after, size); err != nil {
			return err
		}
		for _, key := range keys {
			if !fn(key) {
				return nil
			}
			after = key
		}
	}
	return nil
}

// litter collects index keys whose state has been left.
type litter struct {
	mu   sync.Mutex
	keys []string
}

func (l *litter) add(keys ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if key != "" && !slices.Contains(l.keys, key) {
			l.keys = append(l.keys, key)
		}
	}
}

// clear deletes the litter. An operation that has changed its job has happened
// whether or not this succeeds: a key that stays is a stale hint, which whoever
// meets it removes. Only the sweep, whose work it is, looks at the error.
func (q *Queue) clear(ctx context.Context, l *litter) error {
	l.mu.Lock()
	keys := l.keys
	l.keys = nil
	l.mu.Unlock()
	if len(keys) == 1 {
		_, err := q.s3.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &q.bucket, Key: &keys[0]})
		return undeleted(err)
	}
	for chunk := range slices.Chunk(keys, pageSize) {
		if err := q.deleteAll(ctx, chunk); err != nil {
			return undeleted(err)
		}
	}
	return nil
}

// undeleted is what an answer to a deletion without a condition means.
func undeleted(err error) error {
	refused := refusal(err, true)
	if errors.Is(refused, errConflict) {
		return core.Wrap(core.CodeQueueContention, "another request was in the way of a deletion", err)
	}
	return refused
}

func (q *Queue) deleteAll(ctx context.Context, keys []string) error {
	objects := make([]types.ObjectIdentifier, len(keys))
	for i := range keys {
		objects[i].Key = &keys[i]
	}
	out, err := q.s3.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &q.bucket,
		Delete: &types.Delete{Objects: objects, Quiet: aws.Bool(true)}})
	if err == nil && len(out.Errors) > 0 {
		e := out.Errors[0] // S3 answers 200 and tells of each key that stayed
		err = fmt.Errorf("delete %s: %w", aws.ToString(e.Key),
			&smithy.GenericAPIError{Code: aws.ToString(e.Code), Message: aws.ToString(e.Message)})
	}
	return err
}
