package ddb_test

import (
	"testing"

	"drawbridge/core/coretest"
)

func TestHumanRequestsAndAssignmentsConform(t *testing.T) {
	coretest.RunWork(t, func(t *testing.T) coretest.WorkHarness {
		w := newWorldUnderTest(t)
		return coretest.WorkHarness{Store: w.store, LoseNextWrite: w.network.loseNextWrite, Seeds: either(15, 3), Rounds: either(4, 2)}
	})
}
