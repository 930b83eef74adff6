package ddb_test

import (
	"os"
	"testing"

	"drawbridge/core/coretest"
)

func TestTheRolesConform(t *testing.T) {
	coretest.RunRoles(t, func(t *testing.T) coretest.RoleHarness {
		w := newWorldUnderTest(t)
		rounds := either(6, 2)
		if os.Getenv("DRAWBRIDGE_LONG") != "" {
			rounds = 1000
		}
		return coretest.RoleHarness{Store: w.store, LoseNextWrite: w.network.loseNextWrite, Contenders: either(64, 8), Rounds: rounds}
	})
}
