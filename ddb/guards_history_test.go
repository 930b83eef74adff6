package ddb_test

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"drawbridge/core"
)

// A write that expects no epoch still has one: that of the event before it, or the
// next where it reserves.
func TestAnEventOfAWriteThatExpectsNoEpochTellsTheRightOne(t *testing.T) {
	for reserve, want := range map[bool]int64{false: 3, true: 4} {
		w := newWorld(t)
		wire := w.guardRole(t, func(*core.Role) {})
		outcome, err := w.store.UpdateRole(t.Context(), core.RoleUpdate{
			Wire: wire, Expected: core.RoleExpectation{Version: core.Some(int64(0))}, Reserve: reserve,
			Patch: core.RolePatch{LastTransition: guardMoment + 1}, WriteStamp: guardStamp("update"),
		})
		if err != nil || !outcome.Done {
			t.Fatalf("%+v, %v", outcome, err)
		}
		history := outcome.Role.History
		if last := history[len(history)-1]; last.Version != 1 || last.Epoch != want || outcome.Role.Epoch != want {
			t.Errorf("reserve %v: the event is %+v, the role's epoch %d", reserve, last, outcome.Role.Epoch)
		}
	}
}

// interrupted loses one write's answer, or the write itself, and lets others go
// first before the sender tries again.
type interrupted struct {
	inner     aws.HTTPClient
	before    bool // the write has no effect
	done      atomic.Bool
	meanwhile func()
}

func (i *interrupted) Do(r *http.Request) (*http.Response, error) {
	if !isWrite(r) || !i.done.CompareAndSwap(false, true) {
		return i.inner.Do(r)
	}
	var err error
	if !i.before {
		var response *http.Response
		if response, err = i.inner.Do(r); err == nil {
			err = response.Body.Close()
		}
	}
	i.meanwhile()
	return nil, errors.Join(errLost, err)
}

// A write whose answer was lost is told as what it was for as long as the role's
// history reaches back to it, and as unknown after that.
func TestAWriteOnARoleIsToldAsWhatItWasWhileTheHistoryReachesBack(t *testing.T) {
	type told struct{ done, replayed, unknown bool }
	for _, test := range []struct {
		name   string
		before bool
		others int64
		want   told
	}{
		{"its answer lost, one other", false, 1, told{done: true, replayed: true}},
		{"its answer lost, as many others as are kept", false, core.MaxRoleHistory, told{unknown: true}},
		{"itself lost, one other", true, 1, told{}},
		{"itself lost, as many others as are kept", true, core.MaxRoleHistory, told{}},
		{"itself lost, one other more", true, core.MaxRoleHistory + 1, told{unknown: true}},
	} {
		for _, step := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, a step %v", test.name, step), func(t *testing.T) {
				w := newWorld(t)
				wire := w.guardRole(t, func(*core.Role) {})
				seen, err := w.store.ReadRole(t.Context(), wire)
				if err != nil {
					t.Fatal(err)
				}
				update := func(version int64, id string) (core.RoleOutcome, error) {
					return w.store.UpdateRole(t.Context(), core.RoleUpdate{
						Wire: wire, Expected: core.RoleExpectation{Version: core.Some(version), Epoch: core.Some(int64(3))},
						Patch: core.RolePatch{
							State: core.Some(core.RoleActive), Holder: core.Some("a"), LastReason: core.Some("r"), LastTransition: guardMoment,
						},
						WriteStamp: guardStamp(id),
					})
				}
				w.network.inner = &interrupted{inner: w.network.inner, before: test.before, meanwhile: func() {
					first := int64(1)
					if test.before {
						first = 0
					}
					for version := first; version < first+test.others; version++ {
						if outcome, err := update(version, fmt.Sprint("another write, ", version)); err != nil || !outcome.Done {
							t.Errorf("version %d: %+v, %v", version, outcome, err)
						}
					}
				}}
				var outcome core.RoleOutcome
				if next := seen; step {
					next.Version++
					outcome, err = w.store.StepRole(t.Context(), core.RoleStep{Seen: seen, Next: next, WriteStamp: guardStamp("the write itself")})
				} else {
					outcome, err = update(0, "the write itself")
				}
				unknown := core.CodeOf(err) == core.CodeOutcomeUnknown
				if (err != nil) != unknown || (told{outcome.Done, outcome.Replayed, unknown}) != test.want {
					t.Errorf("%+v, %v", outcome, err)
				}
			})
		}
	}
}
