package simulation

// A ledger is what callers know: what they asked for and what they were told.
type ledger struct {
	entries  []*entry
	enqueued map[string]bool // archive jobs that the hub took, by id
	done     map[string]bool // those whose completion was confirmed
}

func newLedger() *ledger { return &ledger{enqueued: map[string]bool{}, done: map[string]bool{}} }

// An entry is something that somebody asked the hub to create, with one request
// or several of the same.
type entry struct {
	kind     string // message, job, question
	serial   string // the mark it left in what was created
	keyed    bool
	unknown  int            // requests that may have been carried out
	accepted map[string]int // what was told to be created, and how often
}

func (l *ledger) open(kind, serial string, keyed bool) *entry {
	e := &entry{kind: kind, serial: serial, keyed: keyed, accepted: map[string]int{}}
	l.entries = append(l.entries, e)
	return e
}

// note takes an answer in; id is what it says was created.
func (e *entry) note(a answer, id string) {
	switch {
	case a.ok():
		e.accepted[id]++
	case a.unknown():
		e.unknown++
	}
}

// check compares what was told with what there is; "" when it agrees.
func (e *entry) check(there map[string]bool) string {
	for id := range e.accepted {
		if !there[id] {
			return "what was accepted is not there: " + id
		}
	}
	switch {
	case e.keyed && (len(there) > 1 || len(e.accepted) > 1):
		return "one key made several"
	case !e.keyed && len(there) > len(e.accepted)+e.unknown:
		return "there is more than was sent"
	case len(e.accepted) == 0 && e.unknown == 0 && len(there) > 0:
		return "it is there although every answer said that it is not"
	}
	return ""
}
