package functions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"drawbridge/core"
)

// archiveJobView is a job in an answer.
type archiveJobView struct {
	ID               string               `json:"id"`
	Status           core.ArchiveStatus   `json:"status"`
	Agent            string               `json:"agent"`
	SourcePath       string               `json:"source_path"`
	Event            string               `json:"event"`
	SessionID        *string              `json:"session_id,omitempty"`
	SourceBytes      int64                `json:"source_bytes"`
	SourceModifiedAt string               `json:"source_modified_at"`
	EnqueuedAt       string               `json:"enqueued_at"`
	UpdatedAt        string               `json:"updated_at"`
	Attempts         int64                `json:"attempts"`
	NextAttemptAt    string               `json:"next_attempt_at"`
	Lease            *archiveLeaseView    `json:"lease,omitempty"`
	Progress         *archiveProgressView `json:"progress,omitempty"`
	LastError        *archiveFailureView  `json:"last_error,omitempty"`
	Result           *archiveResultView   `json:"result,omitempty"`
	SupersededBy     string               `json:"superseded_by,omitempty" doc:"The job that made this one unnecessary."`
}

type archiveLeaseView struct {
	ID         string `json:"id" doc:"The fence: every call on the job's behalf carries it."`
	Owner      string `json:"owner"`
	AcquiredAt string `json:"acquired_at"`
	ExpiresAt  string `json:"expires_at"`
}

type archiveProgressView struct {
	Bytes int64 `json:"bytes"`
	Of    int64 `json:"of"`
}

type archiveFailureView struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type archiveResultView struct {
	ArchiveID        string `json:"archive_id"`
	CiphertextSHA256 string `json:"ciphertext_sha256"`
	Bytes            int64  `json:"bytes"`
	CompletedAt      string `json:"completed_at"`
	Deduplicated     *bool  `json:"deduplicated,omitempty"`
}

func archiveJobViewOf(j core.ArchiveJob) archiveJobView {
	v := archiveJobView{
		ID: j.ID, Status: j.Status, Agent: j.Agent, SourcePath: j.SourcePath, Event: j.Event,
		SourceBytes: j.SourceBytes, SourceModifiedAt: core.ArchiveTime(j.SourceModifiedAt),
		EnqueuedAt: core.ArchiveTime(j.EnqueuedAt), UpdatedAt: core.ArchiveTime(j.UpdatedAt),
		Attempts: j.Attempts, NextAttemptAt: core.ArchiveTime(j.NextAttemptAt), SupersededBy: j.SupersededBy,
	}
	if j.SessionID.Set {
		v.SessionID = &j.SessionID.Value
	}
	if l := j.Lease; l != nil {
		v.Lease = &archiveLeaseView{l.ID, l.Owner, core.ArchiveTime(l.AcquiredAt), core.ArchiveTime(l.ExpiresAt)}
	}
	if p := j.Progress; p != nil {
		v.Progress = &archiveProgressView{p.Bytes, p.Of}
	}
	if f := j.LastError; f != nil {
		v.LastError = &archiveFailureView{f.Code, f.Message}
	}
	if r := j.Result; r != nil {
		v.Result = &archiveResultView{ArchiveID: r.ArchiveID, CiphertextSHA256: r.CiphertextSHA256, Bytes: r.Bytes,
			CompletedAt: core.ArchiveTime(r.CompletedAt)}
		if r.Deduplicated.Set {
			v.Result.Deduplicated = &r.Deduplicated.Value
		}
	}
	return v
}

func archiveJobViews(jobs []core.ArchiveJob) []archiveJobView {
	views := make([]archiveJobView, len(jobs))
	for i, j := range jobs {
		views[i] = archiveJobViewOf(j)
	}
	return views
}

// archiveJobData is the data of an answer, and of a refusal, about one job.
type archiveJobData struct {
	Job archiveJobView `json:"job"`
}

func archiveJobAnswer(j core.ArchiveJob, err error) (archiveJobData, error) {
	if err != nil {
		return archiveJobData{}, archiveRefusal(err)
	}
	return archiveJobData{archiveJobViewOf(j)}, nil
}

// archiveRefusal shows the current job in a refusal about it.
func archiveRefusal(err error) error {
	var refusal *core.Error
	if !errors.As(err, &refusal) {
		return err
	}
	job, ok := refusal.Data.(core.ArchiveJob)
	if !ok {
		return err
	}
	shown := *refusal
	shown.Data = archiveJobData{archiveJobViewOf(job)}
	return &shown
}

// decodeObject reads an object that stands in a field of a request, by the
// rules of its own struct.
func decodeObject[T any](value json.RawMessage, field string) (T, error) {
	var into T
	if jsonText(value).kind() != jsonObject {
		return into, core.Invalid(field, field+" must be an object")
	}
	rules, err := shapeOf(reflect.TypeFor[T]())
	if err != nil {
		return into, err
	}
	return into, rules.decode(jsonText(value), field+".", reflect.ValueOf(&into).Elem())
}

// --- enqueue

type enqueueRequest struct {
	Requests []json.RawMessage `json:"requests" in:"list,min=1,max=500" each:"any" doc:"Observations, each with the fields that one alone has beside this one; each gets its own outcome."`
	observationFields
}

// observationFields are one observation. None is required by its rule, because
// a batch has none of them; core requires them.
type observationFields struct {
	Agent              core.Opt[string] `json:"agent" in:"id"`
	SourcePath         core.Opt[string] `json:"source_path" in:"text,max=4096" doc:"Absolute."`
	SourceBytes        core.Opt[int64]  `json:"source_bytes" in:"integer,min=0,max=9007199254740991"`
	SourceModifiedAt   core.Opt[string] `json:"source_modified_at" in:"line" doc:"RFC 3339; what is below a millisecond is dropped."`
	SourceModifiedAtMs core.Opt[int64]  `json:"source_modified_at_ms" in:"integer" doc:"Instead of source_modified_at: epoch milliseconds."`
	Event              core.Opt[string] `json:"event" in:"id" doc:"The lifecycle event; manual promotes a waiting job."`
	SessionID          core.Opt[string] `json:"session_id" in:"id"`
}

// core makes the request of core out of the fields.
func (f observationFields) core() (core.ArchiveRequest, error) {
	r := core.ArchiveRequest{
		ArchiveObservation: core.ArchiveObservation{Agent: f.Agent.Value, SourcePath: f.SourcePath.Value, SourceBytes: f.SourceBytes.Value},
		Event:              f.Event.Value, SessionID: f.SessionID,
	}
	if !f.SourceBytes.Set {
		return r, core.Invalid("source_bytes", "source_bytes is required")
	}
	var err error
	switch {
	case f.SourceModifiedAt.Set:
		r.SourceModifiedAt, err = parseTime("source_modified_at", f.SourceModifiedAt.Value)
	case f.SourceModifiedAtMs.Set:
		r.SourceModifiedAt = core.Instant(f.SourceModifiedAtMs.Value)
	default:
		err = core.Invalid("source_modified_at", "source_modified_at is required")
	}
	return r, err
}

func parseTime(field, text string) (core.Instant, error) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0, core.Invalid(field, field+" must be a time of RFC 3339")
	}
	return core.InstantOf(t), nil
}

// enqueueResponse is the outcome of one observation, or those of a batch.
type enqueueResponse struct {
	Job        *archiveJobView  `json:"job,omitempty"`
	Deduped    *bool            `json:"deduped,omitempty" doc:"The job existed already."`
	Superseded *[]string        `json:"superseded,omitempty" doc:"Jobs of the same source that this one made unnecessary."`
	Outcomes   []enqueueOutcome `json:"outcomes,omitempty" doc:"Of a batch: one for each request, in order."`
}

type enqueueOutcome struct {
	OK         bool            `json:"ok"`
	Job        *archiveJobView `json:"job,omitempty"`
	Deduped    *bool           `json:"deduped,omitempty"`
	Superseded *[]string       `json:"superseded,omitempty"`
	Error      *errorView      `json:"error,omitempty"`
}

func enqueue(ctx context.Context, c *call, r enqueueRequest) (enqueueResponse, error) {
	if r.Requests != nil {
		return enqueueResponse{Outcomes: enqueueBatch(ctx, c, r.Requests)}, nil
	}
	request, err := r.observationFields.core()
	if err != nil {
		return enqueueResponse{}, err
	}
	out := c.hub.ArchiveQueue().Enqueue(ctx, []core.ArchiveRequest{request})[0]
	if out.Err != nil {
		return enqueueResponse{}, archiveRefusal(out.Err)
	}
	view := archiveJobViewOf(out.Job)
	return enqueueResponse{Job: &view, Deduped: &out.Deduped, Superseded: &out.Superseded}, nil
}

// enqueueBatch enqueues the requests that can be read, and answers all of them
// in order.
func enqueueBatch(ctx context.Context, c *call, values []json.RawMessage) []enqueueOutcome {
	outcomes := make([]enqueueOutcome, len(values))
	var requests []core.ArchiveRequest
	var places []int
	for i, value := range values {
		request, err := decodeObservation(value, fmt.Sprintf("requests[%d]", i))
		if err != nil {
			outcomes[i] = failedOutcome(err)
			continue
		}
		requests, places = append(requests, request), append(places, i)
	}
	for n, out := range c.hub.ArchiveQueue().Enqueue(ctx, requests) {
		i := places[n]
		if out.Err != nil {
			outcomes[i] = failedOutcome(out.Err)
			continue
		}
		view := archiveJobViewOf(out.Job)
		outcomes[i] = enqueueOutcome{OK: true, Job: &view, Deduped: &out.Deduped, Superseded: &out.Superseded}
	}
	return outcomes
}

func decodeObservation(value json.RawMessage, field string) (core.ArchiveRequest, error) {
	fields, err := decodeObject[observationFields](value, field)
	if err != nil {
		return core.ArchiveRequest{}, err
	}
	request, err := fields.core()
	if err == nil {
		err = request.Validate()
	}
	return request, within(field, err)
}

// within names the field of a refusal after the element that it stands in.
func within(element string, err error) error {
	var refusal *core.Error
	if !errors.As(err, &refusal) {
		return err
	}
	shown := *refusal
	shown.Details = map[string]any{"field": fmt.Sprintf("%s.%s", element, refusal.Details["field"])}
	return &shown
}

func failedOutcome(err error) enqueueOutcome {
	view := viewOf(shownError(err))
	return enqueueOutcome{Error: &view}
}

// --- claim

type claimRequest struct {
	Owner      string           `json:"owner" in:"id,required" doc:"Who works; shown in the lease. A token that is bound to agents names one of them."`
	Max        int64            `json:"max" in:"integer,min=1,max=10,default=1" doc:"Jobs to lease at most."`
	Agents     []string         `json:"agents" in:"list,max=100" each:"id" doc:"Only jobs of these agents."`
	Events     []string         `json:"events" in:"list,max=100" each:"id" doc:"Only jobs of these events."`
	PathPrefix core.Opt[string] `json:"path_prefix" in:"text,max=4096" doc:"Only jobs whose source path begins so."`
	Exclude    []string         `json:"exclude" in:"list,max=1000" each:"line" doc:"Ids of jobs not to lease."`
	LeaseMs    core.Opt[int64]  `json:"lease_ms" in:"integer,min=1000,max=86400000" doc:"Length of the lease and of its renewals; 300,000 without it."`
	From       core.Opt[string] `json:"from" in:"line" doc:"scanned_to of an earlier claim."`
}

func (r claimRequest) actingAgents() []actingAgent { return []actingAgent{{"owner", r.Owner}} }

type claimResponse struct {
	Jobs        []archiveJobView `json:"jobs" doc:"Earliest claimable first; empty when there are none."`
	HeartbeatMs int64            `json:"heartbeat_ms" doc:"How often to renew."`
	ScannedTo   string           `json:"scanned_to,omitempty" doc:"The claim stopped here after 1,000 candidates: send it back as from to go on."`
}

func claim(ctx context.Context, c *call, r claimRequest) (claimResponse, error) {
	out, err := c.hub.ArchiveQueue().Claim(ctx, core.ArchiveClaim{
		Owner: r.Owner, Max: int(r.Max), Agents: r.Agents, Events: r.Events, PathPrefix: r.PathPrefix.Value,
		Exclude: r.Exclude, Lease: time.Duration(r.LeaseMs.Value) * time.Millisecond, From: r.From.Value,
	})
	if err != nil {
		return claimResponse{}, archiveRefusal(err)
	}
	return claimResponse{Jobs: archiveJobViews(out.Jobs), HeartbeatMs: out.Heartbeat.Milliseconds(), ScannedTo: out.ScannedTo}, nil
}

// --- what the holder of a lease does

type leaseFields struct {
	ID      string `json:"id" in:"line,required" doc:"The job."`
	LeaseID string `json:"lease_id" in:"text,required,min=1,max=4096" doc:"lease.id of the claim."`
}

type renewRequest struct{ leaseFields }

func renew(ctx context.Context, c *call, r renewRequest) (archiveJobData, error) {
	return archiveJobAnswer(c.hub.ArchiveQueue().Renew(ctx, r.ID, r.LeaseID))
}

type progressRequest struct {
	leaseFields
	Bytes int64 `json:"bytes" in:"integer,required,min=0,max=9007199254740991"`
	Of    int64 `json:"of" in:"integer,required,min=0,max=9007199254740991"`
}

func progress(ctx context.Context, c *call, r progressRequest) (archiveJobData, error) {
	return archiveJobAnswer(c.hub.ArchiveQueue().Progress(ctx, r.ID, r.LeaseID, core.ArchiveProgress{Bytes: r.Bytes, Of: r.Of}))
}

type completeRequest struct {
	leaseFields
	Result   json.RawMessage `json:"result" in:"object,required" doc:"archive_id, ciphertext_sha256, bytes and, where it is known, deduplicated."`
	Snapshot json.RawMessage `json:"source_snapshot" in:"object" doc:"What the worker read: bytes and modified_at (RFC 3339). Settles the jobs that it covers."`
}

type resultFields struct {
	ArchiveID        string         `json:"archive_id" in:"id,required"`
	CiphertextSHA256 string         `json:"ciphertext_sha256" in:"id,required"`
	Bytes            int64          `json:"bytes" in:"integer,required,min=0,max=9007199254740991"`
	Deduplicated     core.Opt[bool] `json:"deduplicated" in:"boolean"`
}

type snapshotFields struct {
	Bytes      int64  `json:"bytes" in:"integer,required,min=0,max=9007199254740991"`
	ModifiedAt string `json:"modified_at" in:"line,required"`
}

type completeResponse struct {
	Job        archiveJobView `json:"job"`
	Superseded []string       `json:"superseded" doc:"Jobs of the same source that the result covers."`
}

func (r completeRequest) core() (core.ArchiveCompletion, error) {
	done := core.ArchiveCompletion{ID: r.ID, LeaseID: r.LeaseID}
	result, err := decodeObject[resultFields](r.Result, "result")
	if err != nil {
		return done, err
	}
	done.Result = core.ArchiveResult{ArchiveID: result.ArchiveID, CiphertextSHA256: result.CiphertextSHA256,
		Bytes: result.Bytes, Deduplicated: result.Deduplicated}
	if r.Snapshot == nil {
		return done, nil
	}
	snapshot, err := decodeObject[snapshotFields](r.Snapshot, "source_snapshot")
	if err != nil {
		return done, err
	}
	at, err := parseTime("source_snapshot.modified_at", snapshot.ModifiedAt)
	done.Snapshot = core.Some(core.ArchiveSnapshot{Bytes: snapshot.Bytes, ModifiedAt: at})
	return done, err
}

func complete(ctx context.Context, c *call, r completeRequest) (completeResponse, error) {
	done, err := r.core()
	if err != nil {
		return completeResponse{}, err
	}
	out, err := c.hub.ArchiveQueue().Complete(ctx, done)
	if err != nil {
		return completeResponse{}, archiveRefusal(err)
	}
	c.replayed = out.Replayed
	return completeResponse{Job: archiveJobViewOf(out.Job), Superseded: out.Superseded}, nil
}

type failureFields struct {
	Code    string `json:"code" in:"id,required"`
	Message string `json:"message" in:"text,required,max=4096"`
}

type failRequest struct {
	leaseFields
	Error json.RawMessage `json:"error" in:"object,required" doc:"code and message."`
}

func fail(ctx context.Context, c *call, r failRequest) (archiveJobData, error) {
	f, err := decodeObject[failureFields](r.Error, "error")
	if err != nil {
		return archiveJobData{}, err
	}
	return archiveJobAnswer(c.hub.ArchiveQueue().Fail(ctx, r.ID, r.LeaseID, core.ArchiveFailure{Code: f.Code, Message: f.Message}))
}

type releaseRequest struct {
	leaseFields
	Reason json.RawMessage `json:"reason" in:"object" doc:"code and message, kept as the job's last error."`
}

func release(ctx context.Context, c *call, r releaseRequest) (archiveJobData, error) {
	var reason *core.ArchiveFailure
	if r.Reason != nil {
		f, err := decodeObject[failureFields](r.Reason, "reason")
		if err != nil {
			return archiveJobData{}, err
		}
		reason = &core.ArchiveFailure{Code: f.Code, Message: f.Message}
	}
	return archiveJobAnswer(c.hub.ArchiveQueue().Release(ctx, r.ID, r.LeaseID, reason))
}

// --- what an operator does

type archiveJobRequest struct {
	ID string `json:"id" in:"line,required" doc:"The job."`
}

func retryJob(ctx context.Context, c *call, r archiveJobRequest) (archiveJobData, error) {
	return archiveJobAnswer(c.hub.ArchiveQueue().Retry(ctx, r.ID))
}

func removeJob(ctx context.Context, c *call, r archiveJobRequest) (archiveJobData, error) {
	return archiveJobAnswer(c.hub.ArchiveQueue().Remove(ctx, r.ID))
}

// --- reads

type jobsRequest struct {
	ID     core.Opt[string] `json:"id" in:"line" doc:"One job; the other fields are not read then."`
	Status core.Opt[string] `json:"status" in:"line,enum=ready|leased|done|failed"`
	Limit  int64            `json:"limit" in:"integer,min=1,max=1000,default=50"`
	Cursor core.Opt[string] `json:"cursor" in:"line,max=1024"`
}

type jobsResponse struct {
	Job     *archiveJobView   `json:"job,omitempty"`
	Jobs    *[]archiveJobView `json:"jobs,omitempty" doc:"By when they were enqueued; the done ones alone by when they were settled."`
	Damaged *[]string         `json:"damaged,omitempty" doc:"Documents of this page that cannot be read, by name."`
	Cursor  string            `json:"cursor,omitempty" doc:"Send it back to go on; none at the end."`
}

func jobs(ctx context.Context, c *call, r jobsRequest) (jobsResponse, error) {
	if r.ID.Set {
		job, err := c.hub.ArchiveQueue().Get(ctx, r.ID.Value)
		if err != nil {
			return jobsResponse{}, archiveRefusal(err)
		}
		view := archiveJobViewOf(job)
		return jobsResponse{Job: &view}, nil
	}
	page, err := c.hub.ArchiveQueue().List(ctx, core.ArchiveQuery{
		Status: core.ArchiveStatus(r.Status.Value), Limit: int(r.Limit), Cursor: r.Cursor.Value,
	})
	if err != nil {
		return jobsResponse{}, archiveRefusal(err)
	}
	views := archiveJobViews(page.Jobs)
	return jobsResponse{Jobs: &views, Damaged: &page.Damaged, Cursor: page.Cursor}, nil
}

type queueStatsRequest struct{}

type queueStatsResponse struct {
	Total      int      `json:"total"`
	Ready      int      `json:"ready"`
	Leased     int      `json:"leased"`
	Done       int      `json:"done"`
	Completed  int      `json:"completed" doc:"Done with a result."`
	Superseded int      `json:"superseded" doc:"Done because of another job."`
	Failed     int      `json:"failed" doc:"Dead letters."`
	Damaged    int      `json:"damaged" doc:"Documents that cannot be read, of those met so far."`
	Names      []string `json:"damaged_names,omitempty"`
	Claimable  bool     `json:"claimable" doc:"A claim would get a job now."`
}

func queueStats(ctx context.Context, c *call, _ queueStatsRequest) (queueStatsResponse, error) {
	s, err := c.hub.ArchiveQueue().Stats(ctx)
	if err != nil {
		return queueStatsResponse{}, archiveRefusal(err)
	}
	return queueStatsResponse{Total: s.Total(), Ready: s.Ready, Leased: s.Leased, Done: s.Done, Completed: s.Completed,
		Superseded: s.Superseded, Failed: s.Failed, Damaged: len(s.Damaged), Names: s.Damaged, Claimable: s.Claimable}, nil
}
