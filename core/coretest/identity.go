package coretest

import (
	"strings"
	"sync"
	"testing"
	"time"

	"drawbridge/core"
)

func testIdentity(t *testing.T, open func(*testing.T) *bench) {
	t.Run("64 first users at once agree on one identity", func(t *testing.T) {
		b := open(t)
		var ids [64]core.Identity
		var errs [64]error
		var wait sync.WaitGroup
		for i := range ids {
			hub := b.newHub()
			wait.Go(func() { ids[i], errs[i] = hub.Identity(b.ctx) })
		}
		wait.Wait()
		for i, id := range ids {
			b.must(errs[i])
			if id != ids[0] || id.HubInstanceID == "" {
				t.Fatalf("user %d sees %+v, user 0 %+v", i, id, ids[0])
			}
		}
	})

	t.Run("the identity is stable and its fingerprint names the store", func(t *testing.T) {
		b := open(t)
		first, err := b.hub.Identity(b.ctx)
		b.must(err)
		b.clock.Advance(24 * time.Hour)
		second, err := b.newHub().Identity(b.ctx)
		b.must(err)
		kind, name, fingerprint := b.Store.Describe()
		if first != second || first.StoreType != kind || first.StoreName != name || first.StoreFingerprint != fingerprint {
			t.Fatalf("identity is %+v, then %+v", first, second)
		}
		if digest, ok := strings.CutPrefix(fingerprint, kind+":"); !ok || len(digest) != 64 {
			t.Fatalf("the fingerprint is %q", fingerprint)
		}
	})

	t.Run("a rotation is seen elsewhere within the window, and at once by who presents the new identity", func(t *testing.T) {
		b := open(t)
		other := b.newHub()
		before, err := other.Identity(b.ctx)
		b.must(err)
		b.clock.Advance(time.Second)
		rotation, err := b.hub.RotateIdentity(b.ctx, "test")
		b.must(err)
		if rotation.Previous != before.HubInstanceID || rotation.Identity.HubInstanceID == before.HubInstanceID {
			t.Fatalf("rotation is %+v from %+v", rotation, before)
		}
		b.register("a")
		_, err = other.Heartbeat(b.ctx, core.HeartbeatRequest{AgentID: "a", Fences: core.Fences{HubInstanceID: core.Some(rotation.Identity.HubInstanceID)}})
		b.must(err)
		third := b.newHub()
		_, err = third.Identity(b.ctx)
		b.must(err)
		rotation, err = b.hub.RotateIdentity(b.ctx, "test")
		b.must(err)
		b.clock.Advance(core.IdentityWindow)
		_, err = third.Heartbeat(b.ctx, core.HeartbeatRequest{AgentID: "a", Fences: core.Fences{HubInstanceID: core.Some(rotation.Previous)}})
		b.wantCode(err, core.CodeStaleHubInstance)
	})

	t.Run("a rotation whose answer was lost happens once", func(t *testing.T) {
		b := open(t)
		before, err := b.hub.Identity(b.ctx)
		b.must(err)
		defer b.LoseNextWrite()()
		rotation, err := b.hub.RotateIdentity(b.ctx, "test")
		b.must(err)
		stands, err := b.newHub().Identity(b.ctx)
		b.must(err)
		if rotation.Previous != before.HubInstanceID || stands != rotation.Identity {
			t.Fatalf("rotation from %+v is %+v, but %+v stands", before, rotation, stands)
		}
	})

	t.Run("rotations at once form one chain", func(t *testing.T) {
		b := open(t)
		first, err := b.hub.Identity(b.ctx)
		b.must(err)
		var rotations [4]core.Rotation
		var errs [4]error
		var wait sync.WaitGroup
		for i := range rotations {
			hub := b.newHub()
			wait.Go(func() { rotations[i], errs[i] = hub.RotateIdentity(b.ctx, "test") })
		}
		wait.Wait()
		next := map[string]string{}
		for i, r := range rotations {
			b.must(errs[i])
			next[r.Previous] = r.Identity.HubInstanceID
		}
		at := first.HubInstanceID
		for range rotations {
			at = next[at]
		}
		stands, err := b.newHub().Identity(b.ctx)
		b.must(err)
		if len(next) != len(rotations) || at != stands.HubInstanceID {
			t.Fatalf("rotations are %+v, %s stands", rotations, stands.HubInstanceID)
		}
	})
}
