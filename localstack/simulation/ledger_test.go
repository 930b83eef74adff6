package simulation

// A ledger is what callers know: what they asked for and what they were told.
type ledger struct {
	sent     map[string]*publication // by serial
	jobs     map[string]*assignment  // by serial
	asked    map[string]*question    // by serial
	enqueued map[string]bool         // archive jobs that the hub took, by id
	done     map[string]bool         // those whose completion was confirmed
	serials  []string                // of everything, in order
}

func newLedger() *ledger {
	return &ledger{
		sent: map[string]*publication{}, jobs: map[string]*assignment{}, asked: map[string]*question{},
		enqueued: map[string]bool{}, done: map[string]bool{},
	}
}

// attempts is what became of a request that was sent once or more.
type attempts struct {
	keyed    bool
	unknown  int // that may have been carried out
	accepted map[string]int
}

// note takes an answer in; id is what it created.
func (t *attempts) note(a answer, id string) {
	switch {
	case a.ok():
		if t.accepted == nil {
			t.accepted = map[string]int{}
		}
		t.accepted[id]++
	case a.unknown():
		t.unknown++
	}
}

// A publication is a message that somebody sent.
type publication struct {
	attempts
	to string
}

// An assignment is a job that somebody gave.
type assignment struct{ attempts }

// A question is one for a person.
type question struct{ attempts }

// check compares what was told with what there is.
func (t *attempts) check(there map[string]bool) string {
	for id := range t.accepted {
		if !there[id] {
			return "what was accepted is not there: " + id
		}
	}
	switch {
	case t.keyed && len(there) > 1:
		return "one key made several"
	case t.keyed && len(t.accepted) > 1:
		return "one key was answered with several"
	case !t.keyed && len(there) > len(t.accepted)+t.unknown:
		return "there is more than was sent"
	case len(t.accepted) == 0 && t.unknown == 0 && len(there) > 0:
		return "it is there although every answer said that it is not"
	}
	return ""
}
