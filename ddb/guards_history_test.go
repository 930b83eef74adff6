package ddb_test

import (
	"testing"

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
