package core

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func archiveRequest(file string, n int64) ArchiveRequest {
	return ArchiveRequest{ArchiveObservation: ArchiveObservation{Agent: "claude", SourcePath: "/" + file,
		SourceBytes: n, SourceModifiedAt: Instant(1_760_000_000_000 + n)}, Event: "stop"}
}

// The vectors pin the hashes: a changed id would make every stored job
// unknown. They were computed with another implementation (Python's hashlib).
func TestJobAndSourceIDsAreWhatTheyWere(t *testing.T) {
	for _, v := range []struct {
		observation ArchiveObservation
		job, source string
	}{
		{ArchiveObservation{"claude", "/home/a/t.jsonl", 1234, 1_767_225_600_123},
			"165033caf32ef6aaa54cd57b872bc37a43ea598b8570e2888cefa667489f60d5", "fa0f557ed0f37f4256dcba5bca3d1b5e32bd94623b482592975bab5826bc6cc7"},
		{ArchiveObservation{"codex", "/", 0, 0},
			"30f9642a00be551f7546bc634ca5c563d19764c0fac681fcb51d894a765b0f48", "79e689122416af6f143602a04c2dbd14078479e08e1796d2e2141463d0178909"},
		{ArchiveObservation{"é\u202e", `C:\x y\😀`, maxSafeInteger, -1},
			"08a962a5b0fea3bdc0ff69f7e94077d55f679112812553624805fd45a94558f4", "5c28326611af72b453496e9429002595a97846215b7da858356127d329f3336b"},
	} {
		if got := v.observation.JobID(); got != v.job {
			t.Errorf("job id of %+v is %s, want %s", v.observation, got, v.job)
		}
		if got := v.observation.SourceID(); got != v.source {
			t.Errorf("source id of %+v is %s, want %s", v.observation, got, v.source)
		}
	}
}

func TestNoTwoObservationsShareAnIDByConcatenation(t *testing.T) {
	seen := map[string]ArchiveObservation{}
	for _, agent := range []string{"a", "a1", "1:a", "a,1:/", "a,2:/1,"} {
		for _, path := range []string{"/", "/1", "/1,1:1", "/,1:1,", "/1:1,"} {
			for _, size := range []int64{0, 1, 11, 111} {
				for _, at := range []Instant{0, 1, 11, -1} {
					o := ArchiveObservation{agent, path, size, at}
					for _, id := range []string{o.JobID(), o.SourceID() + fmt.Sprint(size, at)} {
						if other, twice := seen[id]; twice {
							t.Fatalf("%+v and %+v share an id", o, other)
						}
						seen[id] = o
					}
				}
			}
		}
	}
}

// someArchiveJob is a valid job in any state.
func someArchiveJob(random *rand.Rand, now Instant) ArchiveJob {
	j := NewArchiveJob(archiveRequest(fmt.Sprint(random.IntN(2)), random.Int64N(4)), now.Add(-time.Duration(random.IntN(100))*time.Minute))
	j.Attempts = random.Int64N(7)
	j.NextAttemptAt = now.Add(time.Duration(random.IntN(5)-2) * time.Minute)
	if random.IntN(2) == 0 {
		j.Progress = &ArchiveProgress{Bytes: 1, Of: 2}
	}
	if random.IntN(2) == 0 {
		j.LastError = &ArchiveFailure{Code: "io"}
	}
	switch j.Status = ArchiveStatuses[random.IntN(4)]; {
	case j.Status == ArchiveLeased && random.IntN(5) > 0:
		j.Lease = &ArchiveLease{ID: "l", Owner: "w", AcquiredAt: now, ExpiresAt: now.Add(time.Duration(random.IntN(5)-2) * time.Minute)}
	case j.Status == ArchiveDone && random.IntN(2) == 0:
		j.Result = &ArchiveResult{ArchiveID: "a", CiphertextSHA256: "c", CompletedAt: now}
	case j.Status == ArchiveDone:
		j.SupersededBy = strings.Repeat("0", 64)
	}
	return j
}

// arrows are the transitions there may be.
var arrows = map[string][]ArchiveStatus{
	"promote":     {},
	"claim":       {ArchiveReady, ArchiveLeased, ArchiveLeased},
	"dead-letter": {ArchiveLeased, ArchiveFailed},
	"renew":       {ArchiveLeased, ArchiveLeased},
	"progress":    {ArchiveLeased, ArchiveLeased},
	"complete":    {ArchiveLeased, ArchiveDone},
	"release":     {ArchiveLeased, ArchiveReady},
	"fail":        {ArchiveLeased, ArchiveReady, ArchiveFailed},
	"retry":       {ArchiveReady, ArchiveFailed, ArchiveReady},
	"supersede":   {ArchiveReady, ArchiveLeased, ArchiveDone},
	"cover":       {ArchiveReady, ArchiveLeased, ArchiveDone},
}

// errPrecondition is what a transition that has a precondition answers when
// it does not hold.
var errPrecondition = errors.New("the precondition does not hold")

func transit(name string, j ArchiveJob, lease string, s ArchiveSettings, now Instant) (ArchiveJob, error) {
	guarded := func(holds bool, next func() ArchiveJob) (ArchiveJob, error) {
		if !holds {
			return j, errPrecondition
		}
		return next(), nil
	}
	switch name {
	case "promote":
		next, changed := j.Promoted(ArchiveManual, now)
		return guarded(changed, func() ArchiveJob { return next })
	case "claim":
		return guarded(j.Claimable(now, s), func() ArchiveJob { return j.Claimed("w", "new", s.Lease, now) })
	case "dead-letter":
		return guarded(j.Exhausted(now, s), func() ArchiveJob { return j.DeadLettered(now) })
	case "renew":
		return j.Renewed(lease, s.Lease, now)
	case "progress":
		return j.Progressed(lease, ArchiveProgress{Bytes: 5, Of: 9}, s.Lease, now)
	case "complete":
		return j.Completed(lease, ArchiveResult{ArchiveID: "x", CiphertextSHA256: "y"}, now)
	case "release":
		return j.Released(lease, nil, now)
	case "fail":
		return j.Failed(lease, ArchiveFailure{Code: "f"}, s, now)
	case "retry":
		return j.Retried(now)
	case "supersede":
		return guarded(j.Retirable(now), func() ArchiveJob { return j.Superseded(strings.Repeat("1", 64), now) })
	default:
		return guarded(j.Retirable(now), func() ArchiveJob { return j.Covered(strings.Repeat("1", 64), now) })
	}
}

// TestTransitionsKeepTheirRulesOnEveryState applies every transition to jobs by
// chance and checks what holds for all of them.
func TestTransitionsKeepTheirRulesOnEveryState(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := DefaultArchiveSettings()
	now := Instant(1_800_000_000_000)
	for range 4_000 {
		j := someArchiveJob(random, now)
		before := EncodeArchiveJob(j)
		lease := []string{"l", "other"}[random.IntN(2)]
		for name, statuses := range arrows {
			next, err := transit(name, j, lease, s, now)
			if !bytes.Equal(before, EncodeArchiveJob(j)) {
				t.Fatalf("seed %d: %s changed the job it was given", seed, name)
			}
			if err != nil {
				if !bytes.Equal(before, EncodeArchiveJob(next)) {
					t.Fatalf("seed %d: a refused %s returned a changed job", seed, name)
				}
				if err != errPrecondition && string(EncodeArchiveJob(mustCarry(t, err))) != string(before) {
					t.Fatalf("seed %d: the refusal of %s does not carry the job", seed, name)
				}
				continue
			}
			checkTransition(t, fmt.Sprintf("seed %d: %s", seed, name), name, statuses, j, next, lease, now)
		}
	}
}

func mustCarry(t *testing.T, err error) ArchiveJob {
	t.Helper()
	var refusal *Error
	if !errors.As(err, &refusal) {
		t.Fatalf("%v is no refusal", err)
	}
	job, ok := refusal.Data.(ArchiveJob)
	if !ok {
		t.Fatalf("the refusal carries %v", refusal.Data)
	}
	return job
}

func checkTransition(t *testing.T, what, name string, statuses []ArchiveStatus, j, next ArchiveJob, lease string, now Instant) {
	t.Helper()
	if len(statuses) > 0 && (!slices.Contains(statuses, j.Status) || !slices.Contains(statuses, next.Status)) {
		t.Fatalf("%s went from %s to %s", what, j.Status, next.Status)
	}
	if j.Status == ArchiveDone {
		t.Fatalf("%s changed a done job", what)
	}
	if next.UpdatedAt != now || next.ID != j.ID || next.ArchiveObservation != j.ArchiveObservation || next.EnqueuedAt != j.EnqueuedAt {
		t.Fatalf("%s made %+v of %+v", what, next, j)
	}
	holder := slices.Contains([]string{"renew", "progress", "complete", "release", "fail"}, name)
	if holder && (j.Lease == nil || j.Lease.ID != lease) {
		t.Fatalf("%s went through under the lease %q of %+v", what, lease, j)
	}
	if others := slices.Contains([]string{"claim", "supersede", "cover"}, name); others && j.Status == ArchiveLeased && !j.Lapsed(now) {
		t.Fatalf("%s took a job from a live lease", what)
	}
	if next.Status == ArchiveLeased && next.Lease == nil || next.Status != ArchiveLeased && next.Lease != nil && name != "promote" {
		t.Fatalf("%s left %s with the lease %+v", what, next.Status, next.Lease)
	}
	if _, err := DecodeArchiveJob(next.ID, EncodeArchiveJob(next)); err != nil {
		t.Fatalf("%s made a job that is damaged: %v", what, err)
	}
}

func TestTheBackoffDoublesUpToItsEnd(t *testing.T) {
	s := DefaultArchiveSettings()
	for attempts, want := range map[int64]time.Duration{0: 15 * time.Second, 1: 15 * time.Second, 2: 30 * time.Second, 7: 16 * time.Minute,
		8: 30 * time.Minute, 9: 30 * time.Minute, maxSafeInteger: 30 * time.Minute} {
		if got := s.backoff(attempts); got != want {
			t.Errorf("after %d attempts %s, want %s", attempts, got, want)
		}
	}
}

func TestTheHeartbeatIsAThirdOfTheLeaseWithinBounds(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{time.Millisecond: 10 * time.Millisecond, time.Second: 333 * time.Millisecond,
		5 * time.Minute: time.Minute, time.Hour: time.Minute} {
		if got := ArchiveHeartbeat(lease); got != want {
			t.Errorf("of %s: %s, want %s", lease, got, want)
		}
	}
}

func TestPathsOfEverySystemCanBeAbsolute(t *testing.T) {
	for path, want := range map[string]bool{"/": true, "/a b": true, `C:\x`: true, "c:/x": true, `\\host\share`: true, "": false, "a/b": false,
		"C:x": false, "1:/x": false, "C:": false, `\x`: false, "~/x": false} {
		if got := isAbsolutePath(path); got != want {
			t.Errorf("%q: %t", path, got)
		}
	}
}

const validDocument = `{"version":1,"id":"%ID","status":"leased","agent":"claude","sourcePath":"/x","event":"stop","sessionId":"s",` +
	`"sourceBytes":5.0,"sourceModifiedAt":"2026-01-01T00:00:00.000Z","enqueuedAt":"2026-01-01T00:00:00.000Z",` +
	`"updatedAt":"0000-01-01T00:00:00.000Z","attempts":1e0,"nextAttemptAt":"9999-12-31T23:59:59.999Z",` +
	`"lease":{"id":"l","owner":"o","acquiredAt":"2026-01-01T00:00:00.000Z","expiresAt":"2026-01-01T00:00:00.000Z","pid": 7},` +
	`"progress":{"bytes":0,"of":9007199254740991},"lastError":{"code":"","message":""},` +
	`"result":{"archiveId":"a","ciphertextSha256":"c","bytes":0,"completedAt":"2026-01-01T00:00:00.000Z","deduplicated":false},` +
	`"supersededBy":"%ID","x":{"y":[1.50,"\u00e9" ]}}`

func validArchiveDocument() string {
	return strings.ReplaceAll(validDocument, "%ID", strings.Repeat("a", 64))
}

func TestADocumentIsReadAndWrittenBackWithWhatNobodyKnows(t *testing.T) {
	id := strings.Repeat("a", 64)
	j, err := DecodeArchiveJob(id, []byte("\n "+validArchiveDocument()+"\t\n"))
	if err != nil {
		t.Fatal(err)
	}
	written := string(EncodeArchiveJob(j))
	for _, keep := range []string{`"pid":7`, `"x":{"y":[1.50,"\u00e9" ]}`, `"sourceBytes":5,`, `"attempts":1,`} {
		if !strings.Contains(written, keep) {
			t.Errorf("%s is not in %s", keep, written)
		}
	}
	again, err := DecodeArchiveJob(id, []byte(written))
	if err != nil || string(EncodeArchiveJob(again)) != written {
		t.Fatalf("written %s, then %s: %v", written, EncodeArchiveJob(again), err)
	}
	j, _ = j.Completed("l", *j.Result, 0)
	if strings.Contains(string(EncodeArchiveJob(j)), `"lease"`) {
		t.Fatal("a completed job kept its lease")
	}
}

func TestWhatBreaksARuleIsDamagedAndSaysWhere(t *testing.T) {
	id := strings.Repeat("a", 64)
	for _, c := range []struct{ old, new, field string }{
		{`"version":1`, `"version":2`, "version"},
		{`"version":1,`, ``, "version"},
		{`"id":"` + id, `"id":"` + strings.Repeat("b", 64), "id"},
		{`"id":"` + id, `"id":"` + strings.Repeat("A", 64), "id"},
		{`"status":"leased"`, `"status":"busy"`, "status"},
		{`"status":"leased"`, `"status":7`, "status"},
		{`"agent":"claude"`, `"agent":""`, "agent"},
		{`"agent":"claude"`, `"agent":"\ud800"`, "agent"},
		{`"agent":"claude"`, "\"agent\":\"cl\xffude\"", ""},
		{`"agent":"claude"`, "\"agent\":\"claude\",\"x-unknown\":\"\xff\"", ""},
		{`"agent":"claude"`, `"agent":"claude","agent":"codex"`, "agent"},
		{`"sourcePath":"/x"`, `"sourcePath":"x"`, "sourcePath"},
		{`"sessionId":"s"`, `"sessionId":null`, "sessionId"},
		{`"sourceBytes":5.0`, `"sourceBytes":-1`, "sourceBytes"},
		{`"sourceBytes":5.0`, `"sourceBytes":5.5`, "sourceBytes"},
		{`"sourceBytes":5.0`, `"sourceBytes":9007199254740992`, "sourceBytes"},
		{`"sourceBytes":5.0`, `"sourceBytes":1e400`, "sourceBytes"},
		{`"sourceBytes":5.0`, `"sourceBytes":"5"`, "sourceBytes"},
		{`"sourceModifiedAt":"2026-01-01T00:00:00.000Z"`, `"sourceModifiedAt":"2026-01-01T00:00:00Z"`, "sourceModifiedAt"},
		{`"sourceModifiedAt":"2026-01-01T00:00:00.000Z"`, `"sourceModifiedAt":"2026-02-30T00:00:00.000Z"`, "sourceModifiedAt"},
		{`"sourceModifiedAt":"2026-01-01T00:00:00.000Z"`, `"sourceModifiedAt":"2026-01-01T00:00:00.000+00:00"`, "sourceModifiedAt"},
		{`"lease":{`, `"lease":[{`, ""},
		{`"owner":"o"`, `"owner":""`, "lease.owner"},
		{`"of":9007199254740991`, `"of":-1`, "progress.of"},
		{`"code":""`, `"code":1`, "lastError.code"},
		{`"archiveId":"a"`, `"archiveId":""`, "result.archiveId"},
		{`"deduplicated":false`, `"deduplicated":0`, "result.deduplicated"},
		{`"supersededBy":"` + id, `"supersededBy":"x`, "supersededBy"},
	} {
		doc := strings.Replace(validArchiveDocument(), c.old, c.new, 1)
		_, err := DecodeArchiveJob(id, []byte(doc))
		var damaged *DamagedError
		if !errors.As(err, &damaged) || damaged.Field != c.field {
			t.Errorf("with %s: %v, want field %q", c.new, err, c.field)
		}
	}
	for _, doc := range []string{"", "null", "[]", "7", "{", "{}", "{}{}", "\xff", strings.Repeat(" ", MaxArchiveDocumentBytes+1),
		strings.Repeat("[", 100_000)} {
		if _, err := DecodeArchiveJob(id, []byte(doc)); err == nil {
			t.Errorf("%.20q is no document", doc)
		}
	}
}

func FuzzDecodeArchiveJob(f *testing.F) {
	f.Add([]byte(validArchiveDocument()))
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"id":"\ud83d\ude00","x":"\ufffd\\ufffd` + "\uFFFD" + `"}`))
	random := rand.New(rand.NewPCG(1, 2))
	for range 6 {
		f.Add(EncodeArchiveJob(someArchiveJob(random, 1_800_000_000_000)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var named struct{ ID string }
		_ = json.Unmarshal(data, &named) // the name that gives the document its best chance
		j, err := DecodeArchiveJob(named.ID, data)
		if err != nil {
			var damaged *DamagedError
			if !errors.As(err, &damaged) {
				t.Fatalf("%v is no *DamagedError", err)
			}
			return
		}
		written := EncodeArchiveJob(j)
		again, err := DecodeArchiveJob(j.ID, written)
		if err != nil {
			t.Fatalf("%q was written as %q, which is damaged: %v", data, written, err)
		}
		if !bytes.Equal(EncodeArchiveJob(again), written) {
			t.Fatalf("%q is not stable", written)
		}
	})
}
