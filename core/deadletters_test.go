package core_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"drawbridge/core"
	"drawbridge/core/coretest"
)

// morgue is a message store of dead letters in memory. What a test does not ask of
// it is not there.
type morgue struct {
	core.MessageStore
	letters  []core.Delivery // newest first
	pageSize int
	pages    int // that were read
	requeued []string
	onPage   func() error // before each page
	onRead   func(id string) error
}

func (m *morgue) DeadLetters(_ context.Context, s core.DeadLetterScan) (core.DeadLetterPage, error) {
	m.pages++
	if m.onPage != nil {
		if err := m.onPage(); err != nil {
			return core.DeadLetterPage{}, err
		}
	}
	from := 0
	if s.Before != "" {
		from = 1 + slices.IndexFunc(m.letters, func(d core.Delivery) bool { return d.ID == s.Before })
	}
	to := min(len(m.letters), from+m.pageSize)
	page := core.DeadLetterPage{Letters: m.letters[from:to]}
	for _, letter := range page.Letters {
		page.Positions = append(page.Positions, letter.ID)
	}
	if to < len(m.letters) {
		page.Next = m.letters[to-1].ID
	}
	return page, nil
}

func (m *morgue) LoadPayloads(context.Context, []core.Delivery) error { return nil }

func (m *morgue) ReadDelivery(_ context.Context, inbox, id string) (core.Delivery, bool, error) {
	if m.onRead != nil {
		if err := m.onRead(id); err != nil {
			return core.Delivery{}, false, err
		}
	}
	for _, letter := range m.letters {
		if letter.ID == id && letter.Inbox == inbox {
			return letter, true, nil
		}
	}
	return core.Delivery{}, false, nil
}

func (m *morgue) Requeue(_ context.Context, r core.Redrive) (bool, error) {
	m.requeued = append(m.requeued, r.Seen.ID)
	return true, nil
}

// buried is a morgue with so many letters of the agent r, and its hub.
func buried(t *testing.T, n int) (*morgue, *core.Hub, *coretest.Clock) {
	t.Helper()
	clock := coretest.NewClock()
	m := &morgue{pageSize: 100}
	for i := range n {
		m.letters = append(m.letters, core.Delivery{Message: core.Message{ID: fmt.Sprint("m", i), To: "r", TTL: time.Minute}, Inbox: "r",
			State: core.DeliveryDead, DeadLetterings: 2, Reason: core.DeadExpired, FailedAt: core.InstantOf(clock.Now())})
	}
	return m, core.New(core.Config{Messages: m, Clock: clock, IDs: core.NewIDs(clock, rand.Reader)}), clock
}

// letterIDs are the ids under which the hub lists the letters.
func letterIDs(t *testing.T, hub *core.Hub) []string {
	t.Helper()
	list, err := hub.DeadLetters(t.Context(), core.DeadLetterQuery{})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, letter := range list.Letters {
		ids = append(ids, letter.ID)
	}
	return ids
}

func TestTheBoundsOfARedriveAndOfAFilter(t *testing.T) {
	const last = 999_999_999_999_999
	_, hub, _ := buried(t, 0)
	filtered := func(limit int64, f core.DeadLetterFilter) core.RedriveRequest {
		return core.RedriveRequest{Filter: core.Some(f), Max: limit}
	}
	ids := func(n int) core.RedriveRequest { return core.RedriveRequest{IDs: slices.Repeat([]string{"x"}, n)} }
	for _, test := range []struct {
		name    string
		request core.RedriveRequest
		field   string // that is refused
	}{
		{"one id", ids(1), ""},
		{"as many ids as there may be", ids(core.MaxReceipts), ""},
		{"an id more", ids(core.MaxReceipts + 1), "dead_letter_ids"},
		{"nothing", ids(0), "dead_letter_ids"},
		{"at most one", filtered(1, core.DeadLetterFilter{}), ""},
		{"at most none", filtered(0, core.DeadLetterFilter{}), "max"},
		{"as many as there may be", filtered(core.MaxRedrive, core.DeadLetterFilter{}), ""},
		{"one more", filtered(core.MaxRedrive+1, core.DeadLetterFilter{}), "max"},
		{"from the first moment", filtered(1, core.DeadLetterFilter{From: core.Some(int64(0))}), ""},
		{"from before it", filtered(1, core.DeadLetterFilter{From: core.Some(int64(-1))}), "from_ms"},
		{"up to the last moment", filtered(1, core.DeadLetterFilter{Up: core.Some(int64(last))}), ""},
		{"up to after it", filtered(1, core.DeadLetterFilter{Up: core.Some(int64(last + 1))}), "to_ms"},
	} {
		_, err := hub.Redrive(t.Context(), test.request)
		if (err != nil) != (test.field != "") || err != nil && (core.CodeOf(err) != core.CodeInvalidArgument || !strings.Contains(err.Error(), test.field)) {
			t.Errorf("%s: %v, want a refusal of %q", test.name, err, test.field)
		}
	}
}

// An id is that of one death: what died again since, or was redriven, is not it.
func TestARedriveIsOfTheDeathThatItsIDNames(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*core.Delivery)
		want   core.Code
	}{
		{"as it was listed", func(*core.Delivery) {}, ""},
		{"not dead so often", func(d *core.Delivery) { d.DeadLetterings-- }, core.CodeNotDead},
		{"dead again", func(d *core.Delivery) { d.DeadLetterings++ }, core.CodeAlreadyRedriven},
		{"alive again", func(d *core.Delivery) { d.State = core.DeliveryPending }, core.CodeAlreadyRedriven},
		{"gone", func(d *core.Delivery) { d.Inbox = "s" }, core.CodeNotFound},
	} {
		m, hub, _ := buried(t, 1)
		ids := letterIDs(t, hub)
		test.change(&m.letters[0])
		done, err := hub.Redrive(t.Context(), core.RedriveRequest{IDs: ids})
		if err != nil || done.Results[0].Code != test.want || len(m.requeued) != int(done.Count) || (done.Count == 1) != (test.want == "") {
			t.Errorf("%s: %+v, %v; requeued %v", test.name, done, err, m.requeued)
		}
	}
}

// A failure is that of the call as long as nothing was redriven. After that it is
// the letter's: what was done is told.
func TestAFailureAfterTheFirstRedriveIsItsLetters(t *testing.T) {
	broken := core.Refuse(core.CodeUnavailable, "no answer")
	for _, test := range []struct {
		name  string
		fails string // the letter that cannot be read
		want  core.Code
		codes []core.Code
	}{
		{"the first", "m0", core.CodeUnavailable, nil},
		{"the second", "m1", "", []core.Code{"", core.CodeUnavailable, ""}},
	} {
		for _, filter := range []bool{false, true} {
			m, hub, _ := buried(t, 3)
			request := core.RedriveRequest{IDs: letterIDs(t, hub)}
			if filter {
				request = core.RedriveRequest{Filter: core.Some(core.DeadLetterFilter{}), Max: 10}
			}
			m.onRead = func(id string) error {
				if id == test.fails {
					return broken
				}
				return nil
			}
			done, err := hub.Redrive(t.Context(), request)
			var codes []core.Code
			for _, item := range done.Results {
				codes = append(codes, item.Code)
			}
			if core.CodeOf(err) != test.want || !slices.Equal(codes, test.codes) {
				t.Errorf("%s, by filter %t: %v, %v", test.name, filter, codes, err)
			}
		}
	}
}

// A redrive by filter ends at its bound or when its time is up, and reads no page
// more than it needs.
func TestARedriveByFilterEndsAtItsBoundAndInTime(t *testing.T) {
	const pause = 10 * time.Second // that a page takes; the time for all is 20 s
	for _, test := range []struct {
		name   string
		max    int64
		takes  time.Duration
		change func(*morgue)
		count  int64
		pages  int
		want   core.Code
	}{
		{"fewer than there are", 2, 0, nil, 2, 1, ""},
		{"a whole page", 3, 0, nil, 3, 1, ""},
		{"one more than a page", 4, 0, nil, 4, 2, ""},
		{"more than there are", 20, 0, nil, 9, 3, ""},
		{"until its time is up", 20, pause, nil, 6, 2, ""},
		{"until just before its time is up", 20, pause - time.Millisecond, nil, 9, 3, ""},
		{"not those that were redriven", 20, 0, func(m *morgue) { m.letters[4].RedrivenAt = 1 }, 8, 3, ""},
		{"not those that are alive", 20, 0, func(m *morgue) { m.letters[4].State = core.DeliveryPending }, 8, 3, ""},
		{"what was done before a page could not be read", 20, 0, func(m *morgue) {
			m.onPage = func() error {
				if m.pages > 1 {
					return core.Refuse(core.CodeUnavailable, "no answer")
				}
				return nil
			}
		}, 3, 2, ""},
		{"nothing when the first page cannot be read", 20, 0, func(m *morgue) {
			m.onPage = func() error { return core.Refuse(core.CodeUnavailable, "no answer") }
		}, 0, 1, core.CodeUnavailable},
	} {
		m, hub, clock := buried(t, 9)
		m.pageSize = 3
		if test.change != nil {
			test.change(m)
		}
		if m.onPage == nil {
			m.onPage = func() error { clock.Advance(test.takes); return nil }
		}
		done, err := hub.Redrive(t.Context(), core.RedriveRequest{Filter: core.Some(core.DeadLetterFilter{}), Max: test.max})
		if core.CodeOf(err) != test.want || done.Count != test.count || len(done.Results) != int(test.count) || m.pages != test.pages || len(m.requeued) != int(test.count) {
			t.Errorf("%s: %d of %d after %d of %d pages, %v", test.name, done.Count, test.count, m.pages, test.pages, err)
		}
	}
}
