package core_test

import (
	"context"
	"testing"

	"drawbridge/core"
	"drawbridge/core/coretest"
)

// slowIdentity is a store whose reads of the identity wait until they are let go.
type slowIdentity struct {
	*coretest.Model
	reading chan struct{} // gets a value with each read that begins
	letGo   chan struct{}
}

func (s slowIdentity) ReadIdentity(ctx context.Context) (core.IdentityRecord, bool, error) {
	s.reading <- struct{}{}
	<-s.letGo
	return s.Model.ReadIdentity(ctx)
}

func TestWhoeverWaitsForAnothersReadOfTheIdentityMayGiveUp(t *testing.T) {
	store := slowIdentity{coretest.NewModel(), make(chan struct{}, 1), make(chan struct{})}
	hub := coretest.NewHub(store, coretest.NewClock())
	first := make(chan error, 1)
	go func() {
		_, err := hub.Identity(t.Context())
		first <- err
	}()
	<-store.reading

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := hub.Identity(ctx)
	if code := core.CodeOf(err); code != core.CodeUnavailable {
		t.Errorf("a caller whose time is over while another reads gets %v", err)
	}
	close(store.letGo)
	if err := <-first; err != nil {
		t.Errorf("the read that the other waited for: %v", err)
	}
}
