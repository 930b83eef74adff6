package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// A ledger knows what the hub accepted, and what became of it.
type ledger struct {
	mu       sync.Mutex
	messages map[string]*letter
	unknown  int // publishes that got no answer: they may have been accepted
	lostAcks int // deliveries whose acknowledgement got none
	owed     int // deliveries that were accepted and not acknowledged yet
	jobs     works
	files    works
}

// A letter is one message.
type letter struct {
	accepted bool
	fanout   int
	acks     map[int]int // by the agent
}

func newLedger() *ledger {
	return &ledger{messages: map[string]*letter{}, jobs: newWorks(), files: newWorks()}
}

// letter is that of a message: it may be acknowledged before the sender has read
// that it was accepted.
func (l *ledger) letter(id string) *letter {
	if l.messages[id] == nil {
		l.messages[id] = &letter{acks: map[int]int{}}
	}
	return l.messages[id]
}

func (l *ledger) published(id string, fanout int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		m := l.letter(id)
		m.accepted, m.fanout = true, fanout
		l.owed += fanout
	case uncertain(err):
		l.unknown++
	}
}

func (l *ledger) acknowledged(id string, agent int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.letter(id).acks[agent]++
	l.owed--
}

// unanswered are deliveries of which nobody knows whether they are acknowledged.
func (l *ledger) unanswered(deliveries int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lostAcks += deliveries
	l.owed -= deliveries
}

// settled tells whether everything that was accepted is known to have ended.
func (l *ledger) settled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owed <= 0 && l.jobs.settled() && l.files.settled()
}

// works are jobs, or files to archive: each is begun once and ends once.
type works struct {
	mu      *sync.Mutex
	begun   map[string]bool
	ends    map[string]int
	unknown int // that may have begun, or ended: no answer came
}

func newWorks() works {
	return works{mu: &sync.Mutex{}, begun: map[string]bool{}, ends: map[string]int{}}
}

func (w *works) began(id string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.begun[id] = true
	case uncertain(err):
		w.unknown++
	}
}

func (w *works) ended(id string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.ends[id]++
	case uncertain(err):
		w.unknown++
	}
}

// mayBeHeld notes a claim without an answer: what it took is nobody's until its
// lease ends, after the load.
func (w *works) mayBeHeld(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if uncertain(err) {
		w.unknown++
	}
}

func (w *works) settled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ends)+w.unknown >= len(w.begun)
}

// audit compares what was accepted with what became of it. Where a call got no
// answer, what it may have done is no failure; how many there were is told.
func (f *fleet) audit(ctx context.Context, out io.Writer) error {
	found := f.ledger.findings()
	found = append(found, f.ledger.jobs.findings("job", "ended")...)
	found = append(found, f.ledger.files.findings("file", "archived")...)
	found = append(found, f.outcomes(ctx)...)
	l := f.ledger
	fmt.Fprintf(out, "\nAudit: %d messages, %d jobs, %d files accepted; %d calls without an answer.\n",
		len(l.messages), len(l.jobs.begun), len(l.files.begun), l.unknown+l.lostAcks+l.jobs.unknown+l.files.unknown)
	if len(found) == 0 {
		fmt.Fprintln(out, "Every accepted message was drained once by each of its recipients, every job has one outcome, every file was archived once.")
		return nil
	}
	const shown = 20
	for _, finding := range found[:min(shown, len(found))] {
		fmt.Fprintln(out, "  "+finding)
	}
	return fmt.Errorf("the audit found %d faults", len(found))
}

func (l *ledger) findings() (found []string) {
	unannounced, missing := 0, 0
	for id, m := range l.messages {
		if !m.accepted {
			unannounced++
			continue
		}
		missing += max(0, m.fanout-len(m.acks))
		if len(m.acks) > m.fanout {
			found = append(found, fmt.Sprintf("message %s was drained by %d agents and has %d recipients", id, len(m.acks), m.fanout))
		}
		for agent, times := range m.acks {
			if times != 1 {
				found = append(found, fmt.Sprintf("message %s was drained %d times by agent %d", id, times, agent))
			}
		}
	}
	if missing > l.lostAcks {
		found = append(found, fmt.Sprintf("%d deliveries of accepted messages were not drained", missing-l.lostAcks))
	}
	if unannounced > l.unknown {
		found = append(found, fmt.Sprintf("%d messages were drained that nobody knows to have sent", unannounced-l.unknown))
	}
	return found
}

func (w *works) findings(what, done string) (found []string) {
	lost := 0
	for id := range w.begun {
		switch times := w.ends[id]; {
		case times == 0:
			lost++
		case times > 1:
			found = append(found, fmt.Sprintf("%s %s was %s %d times", what, id, done, times))
		}
	}
	if lost > w.unknown {
		found = append(found, fmt.Sprintf("%d of %d %ss were not %s", lost, len(w.begun), what, done))
	}
	return found
}

// outcomes asks the hub itself what became of the jobs.
func (f *fleet) outcomes(ctx context.Context) (found []string) {
	ctx, cancel := context.WithTimeout(ctx, f.patience+time.Duration(len(f.ledger.jobs.begun))*10*time.Millisecond)
	defer cancel()
	for id := range f.ledger.jobs.begun {
		var job struct{ Status string }
		if err := f.hub.Post(ctx, "assign/status", map[string]any{"job_id": id}, &job); err != nil {
			return append(found, fmt.Sprintf("job %s cannot be read: %v", id, err))
		}
		if f.ledger.jobs.ends[id] == 1 && job.Status != "succeeded" {
			found = append(found, fmt.Sprintf("job %s reads %s after its result was taken", id, job.Status))
		}
	}
	return found
}
