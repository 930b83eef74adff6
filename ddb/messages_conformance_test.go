package ddb_test

import (
	"testing"

	"drawbridge/core/coretest"
)

func TestTheMessagesConform(t *testing.T) {
	coretest.RunMessages(t, func(t *testing.T) coretest.MessageHarness { return newWorldUnderTest(t).messages() })
}

func (w *world) messages() coretest.MessageHarness {
	return coretest.MessageHarness{Store: w.store, LoseNextWrite: w.network.loseNextWrite, RefuseAfter: w.network.refuseAfter}
}
