package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"drawbridge/core"
	"drawbridge/functions"
)

// patience is longer than anything lasts that the actors begin: leases, times to
// live, timeouts, notices, exclusions of candidates.
const patience = 6 * time.Minute

// audit compares, when everybody is done, what was told with what there is; then
// it lets everything end that can end, and compares again.
func (w *world) audit() {
	w.checkAccepted()
	w.visit(func(a *auditor) { a.compareLists() })
	// A job may have three attempts to go: each has to time out, and the next one to
	// wait out its delay and be dispatched.
	const rounds = 7
	for round := range rounds {
		w.scheduler.advance(patience)
		w.visit(func(a *auditor) {
			if w.plan.sweeps != sweepsNever {
				a.sweepAll(round == 0 || round == rounds-1)
			}
		})
	}
	w.visit(func(a *auditor) { a.compareLists() })
	w.checkAccepted()
	w.checkDeaths()
	w.checkJobs()
	w.checkArchive()
	if w.plan.sweeps != sweepsNever {
		w.checkEnded()
	}
	w.checkTable()
}

// An auditor is an actor that looks around.
type auditor struct{ *actor }

// visit lets an auditor act, alone.
func (w *world) visit(act func(*auditor)) {
	w.start(fmt.Sprintf("auditor%d", w.started), func(a *actor) { act(&auditor{a}) })
	w.run()
}

// sweepAll runs every sweep; that of the messages, which asks for the most by far,
// where it is told to.
func (a *auditor) sweepAll(messages bool) {
	for _, sweep := range functions.Sweeps() {
		if sweep.Run == core.SweepMessages && !messages {
			continue
		}
		if err := a.w.sweep(a.name, sweep.Name, a.random); err != nil {
			a.w.violatef("%s fails where nothing went wrong: %v", sweep.Name, err)
		}
	}
}

// each calls fn for every stored item of a kind: of the partitions with that
// prefix, at the positions with that prefix.
func (w *world) each(partition, position string, fn func(id string, k itemKey, it item)) {
	keys := slices.SortedFunc(maps.Keys(w.monitor.items), func(a, b itemKey) int { return strings.Compare(a.String(), b.String()) })
	for _, k := range keys {
		if id, ok := strings.CutPrefix(k.pk, partition); ok && strings.HasPrefix(k.sk, position) {
			fn(id, k, w.monitor.items[k])
		}
	}
}

// checkAccepted holds what callers were told about what they created against
// what there is.
func (w *world) checkAccepted() {
	messages, jobs, asked := sets{}, sets{}, sets{}
	w.each("inbox#", "m#", func(_ string, _ itemKey, it item) {
		if it.text("from_agent") != "hub-sweeper" {
			messages.add(serialOf(it), it.text("message_id"))
		}
	})
	w.each("fanout#", "record", func(_ string, _ itemKey, it item) { messages.add(serialOf(it), it.text("message_id")) })
	w.each("job#", "job", func(id string, _ itemKey, it item) { jobs.add(serialOf(it), id) })
	w.each("human#", "request", func(id string, _ itemKey, it item) { asked.add(serialOf(it), id) })
	for _, entry := range w.ledger.entries {
		there := map[string]sets{"message": messages, "job": jobs, "question": asked}[entry.kind][entry.serial]
		if wrong := entry.check(there); wrong != "" {
			w.violatef("%s %s: %s (told %v, unknown %d; there is %v)", entry.kind, entry.serial, wrong, entry.accepted, entry.unknown, there)
		}
	}
}

// sets are sets by name.
type sets map[string]map[string]bool

func (s sets) add(name, member string) {
	if s[name] == nil {
		s[name] = map[string]bool{}
	}
	s[name][member] = true
}

// checkDeaths holds every death against the one notice it causes.
func (w *world) checkDeaths() {
	notices := map[string]int{}
	deaths := map[string]item{}
	w.each("inbox#", "m#", func(inbox string, _ itemKey, it item) {
		if about, is := noticeOf(it); is {
			notices[about]++
		}
		deaths[it.text("message_id")+" "+inbox] = it
	})
	w.each("fanout#", "record", func(_ string, _ itemKey, it item) { deaths[it.text("message_id")+" "] = it })
	for _, about := range slices.Sorted(maps.Keys(deaths)) {
		it := deaths[about]
		want := 0
		kind := core.MessageType(it.text("message_type"))
		if it.number("dead_letterings") > 0 && (kind == core.MessageRequest || kind == core.MessageHandoff) &&
			slices.Contains(agentIDs, it.text("from_agent")) && !strings.HasPrefix(it.text("payload"), `{"kind":"assign.job"`) {
			want = 1
		}
		if notices[about] != want {
			w.violatef("the sender of %s was told %d times that it died, not %d:%s", about, notices[about], want, sortedItem(it))
		}
	}
}

// checkJobs holds every job against its events and its messages.
func (w *world) checkJobs() {
	told := map[string]int{}
	w.each("inbox#", "m#", func(_ string, _ itemKey, it item) {
		var payload struct {
			Kind     string `json:"kind"`
			Event    string `json:"event"`
			Assigned string `json:"assign_job_id"`
			Job      string `json:"job_id"`
			Attempt  int64  `json:"attempt"`
		}
		if json.Unmarshal([]byte(it.text("payload")), &payload) == nil && payload.Kind+payload.Event != "" {
			told[fmt.Sprintf("%s%s %s%s %d", payload.Kind, payload.Event, payload.Assigned, payload.Job, payload.Attempt)]++
		}
	})
	w.each("job#", "job", func(id string, _ itemKey, it item) {
		for seq := int64(1); seq <= it.number("event_count")+1; seq++ {
			there := w.monitor.items[itemKey{"events#" + id, fmt.Sprintf("%010d", seq)}] != nil
			if there != (seq <= it.number("event_count")) {
				w.violatef("job %s has %d events, and number %d there: %v", id, it.number("event_count"), seq, there)
			}
		}
		for attempt := int64(1); attempt <= it.number("attempt"); attempt++ {
			want := 1
			if attempt == it.number("attempt") && it.number("retry_at_ms") > 0 {
				want = 0 // it waits to be dispatched
			}
			if attempt == it.number("attempt") && it.text("ended_by") == "cancelled" && told[dispatchOf(id, attempt)] == 0 {
				want = 0 // it was cancelled before its delay was over
			}
			if got := told[dispatchOf(id, attempt)]; got != want && !it.has("payload_bytes") {
				w.violatef("attempt %d of job %s was dispatched %d times, not %d:%s", attempt, id, got, want, sortedItem(it))
			}
		}
		ended := core.JobStatus(it.text("job_status")).Final()
		if got := told[fmt.Sprintf("completed %s %d", id, it.number("attempt"))]; ended != (got == 1) || got > 1 {
			w.violatef("the supervisor of job %s was told %d times of its end:%s", id, got, sortedItem(it))
		}
	})
}

// checkArchive holds the jobs of the archive queue against what was told and
// against their hints.
func (w *world) checkArchive() {
	hints := map[string]bool{}
	for key := range w.monitor.objects {
		name, _, _ := strings.Cut(key, "/")
		for part := range strings.SplitSeq(key, "_") {
			if core.IsArchiveJobID(part) {
				hints[name+" "+part] = true
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.ledger.enqueued)) {
		document := w.monitor.objects["jobs/"+id+".json"]
		if document == nil {
			w.violatef("archive job %s was taken and is not there", id)
			continue
		}
		job, err := core.DecodeArchiveJob(id, document)
		if err != nil {
			w.violatef("archive job %s is damaged: %v", id, err)
			continue
		}
		shelf := map[core.ArchiveStatus]string{
			core.ArchiveReady: "open", core.ArchiveLeased: "open", core.ArchiveFailed: "open", core.ArchiveDone: "done",
		}[job.Status]
		if !hints[shelf+" "+id] {
			w.violatef("archive job %s is %s and nothing under %s/ leads to it", id, job.Status, shelf)
		}
		if w.ledger.done[id] && (job.Status != core.ArchiveDone || job.Result == nil) {
			w.violatef("archive job %s was completed and is %s", id, document)
		}
	}
}

// checkEnded finds what should have ended when the clock passed it and every
// sweep ran.
func (w *world) checkEnded() {
	now := int64(w.instant()) - slack
	deliveries := func(_ string, k itemKey, it item) {
		switch state := core.DeliveryState(it.text("delivery_state")); {
		case (state == core.DeliveryPending || state == core.DeliveryHidden) && it.number("expires_ms") < now-patience.Milliseconds():
			w.violatef("%s expired long ago and is %s:%s", k, state, sortedItem(it))
		case state == core.DeliveryFanning:
			w.violatef("%s is still being given to its recipients:%s", k, sortedItem(it))
		case state == core.DeliveryFanned:
			for _, recipient := range list(it["recipients"]) {
				if !w.monitor.hasMessage(fmt.Sprint(recipient), it.text("message_id")) {
					w.violatef("%s never reached %s", k, recipient)
				}
			}
		}
	}
	w.each("inbox#", "m#", deliveries)
	w.each("fanout#", "record", deliveries)
	w.each("job#", "job", func(_ string, k itemKey, it item) {
		if !core.JobStatus(it.text("job_status")).Final() {
			w.violatef("%s has not ended:%s", k, sortedItem(it))
		}
	})
	w.each("human#", "request", func(_ string, k itemKey, it item) {
		if core.HumanState(it.text("human_state")) == core.HumanPending {
			w.violatef("%s has not ended:%s", k, sortedItem(it))
		}
	})
	w.each("agent#", "agent", func(_ string, k itemKey, it item) {
		if it.text("presence") != "offline" {
			w.violatef("%s is stored as %s long after its lease", k, it.text("presence"))
		}
	})
}

// checkTable finds what the monitor has not seen change.
func (w *world) checkTable() {
	stored := 0
	pages := dynamodb.NewScanPaginator(w.tables, &dynamodb.ScanInput{TableName: aws.String(w.table), ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(context.Background())
		w.must(err)
		for _, found := range page.Items {
			it := plain(found)
			k := itemKey{it.text("pk"), it.text("sk")}
			if strings.HasPrefix(k.pk, "token#") {
				continue // made before the run
			}
			stored++
			if seen := w.monitor.items[k]; !reflect.DeepEqual(seen, it) {
				w.violatef("%s is stored as%s and was seen as%s", k, sortedItem(it), sortedItem(seen))
			}
		}
	}
	if stored != len(w.monitor.items) {
		w.violatef("%d items are stored, %d were seen", stored, len(w.monitor.items))
	}
}

// dispatchOf is how the message that dispatches an attempt is counted.
func dispatchOf(job string, attempt int64) string {
	return fmt.Sprintf("assign.job %s %d", job, attempt)
}
