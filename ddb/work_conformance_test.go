package ddb_test

import (
	"testing"

	"drawbridge/core/coretest"
)

func TestHumanRequestsAndAssignmentsConform(t *testing.T) {
	coretest.RunWork(t, func(t *testing.T) coretest.WorkHarness {
		w := newWorld(t)
		return coretest.WorkHarness{Store: w.store, LoseNextWrite: w.network.loseNextWrite, Seeds: 15, Rounds: 4}
	})
}
