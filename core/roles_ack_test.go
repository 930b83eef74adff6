package core

import "testing"

func TestAnAcknowledgementIsNotToldUnderALaterVersion(t *testing.T) {
	ack := RoleAck{Wire: "w", Holder: "a", Generation: 3, Epoch: 5, ActivationSeq: 5, ActivationID: "i", WriteStamp: WriteStamp{WriteID: "the-write"}}
	ours := RoleEvent{Version: 8, To: RoleActive, Epoch: 5, Holder: "a", Mark: ack.Mark()}
	theirs := RoleEvent{Version: 9, To: RoleQuarantined, Epoch: 5, Holder: "a", Mark: "another"}
	for name, c := range map[string]struct {
		read Role
		want int64
	}{
		"read before it":                           {Role{Version: 7, Epoch: 5, State: RoleProbing}, 8},
		"read after it":                            {Role{Version: 8, Epoch: 5, State: RoleActive, History: []RoleEvent{ours}}, 8},
		"overtaken":                                {Role{Version: 9, Epoch: 5, State: RoleQuarantined, History: []RoleEvent{ours, theirs}}, 8},
		"overtaken and probing again":              {Role{Version: 10, Epoch: 5, State: RoleProbing, History: []RoleEvent{ours, theirs}}, 8},
		"overtaken beyond the history":             {Role{Version: 37, Epoch: 17, State: RoleProbing, Holder: "b"}, -1},
		"overtaken beyond it within the epoch":     {Role{Version: 37, Epoch: 5, State: RoleQuarantined, History: []RoleEvent{theirs}}, -1},
		"overtaken beyond it, and probing again":   {Role{Version: 37, Epoch: 5, State: RoleProbing, CharterAckedEpoch: Some(int64(5))}, -1},
		"read before it, when it was not reserved": {Role{Version: 3, Epoch: 4, State: RoleElectable}, -1},
	} {
		told := c.read.acknowledged(ack)
		if told.Version != c.want {
			t.Errorf("%s: it is told as version %d, not %d", name, told.Version, c.want)
		}
		if told.State != RoleActive || told.Epoch != ack.Epoch {
			t.Errorf("%s: it is told as %+v", name, told)
		}
	}
}

func TestARoleRemembersWhatItsHistoryHolds(t *testing.T) {
	role := Role{Version: 9, History: []RoleEvent{{Version: 7}, {Version: 9}}}
	for version, want := range map[int64]bool{6: false, 7: true, 8: false, 9: true, 10: true} {
		if got := role.Remembers(version); got != want {
			t.Errorf("of version %d it says %t", version, got)
		}
	}
	// What wrote the version that stands is forgotten, too, where it left no event.
	if (Role{Version: 9}).Remembers(9) {
		t.Error("without a history it remembers the version that stands")
	}
}

func TestAnUpdateThatWasOvertakenIsToldAsItLeftTheRole(t *testing.T) {
	update := RoleUpdate{
		Expected: RoleExpectation{ActivationID: Some("i")}, Patch: RolePatch{Holder: Some("b"), LastTransition: 7}, WriteStamp: WriteStamp{WriteID: "the-write"},
	}
	ours := RoleEvent{Version: 8, To: RoleProbing, Epoch: 5, Holder: "b", Mark: update.Mark()}
	for name, c := range map[string]struct {
		stands           Role
		found            bool
		version          int64
		generation       int64
		holder, activate string
	}{
		"it stands":    {Role{Version: 8, Epoch: 5, Holder: "b", ActivationID: "i", History: []RoleEvent{ours}}, true, 8, 0, "b", "i"},
		"acknowledged": {Role{Version: 9, Epoch: 5, Holder: "b", HolderGeneration: 4, ActivationID: "i", History: []RoleEvent{ours, {Version: 9}}}, true, 8, 0, "b", "i"},
		"passed on":    {Role{Version: 9, Epoch: 6, Holder: "c", HolderGeneration: 4, ActivationID: "j", History: []RoleEvent{ours, {Version: 9}}}, true, 8, 0, "b", "i"},
		"not there":    {Role{Version: 9, Epoch: 6, Holder: "c", HolderGeneration: 4, ActivationID: "j", History: []RoleEvent{{Version: 9}}}, false, 9, 4, "c", "j"},
	} {
		r, found := update.Recognise(c.stands)
		if found != c.found || r.Version != c.version || r.HolderGeneration != c.generation || r.Holder != c.holder || r.ActivationID != c.activate {
			t.Errorf("%s: %v, %+v", name, found, r)
		}
	}
}
