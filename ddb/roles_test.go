package ddb_test

import (
	"os"
	"testing"

	"drawbridge/core/coretest"
)

func TestTheRolesConform(t *testing.T) {
	coretest.RunRoles(t, func(t *testing.T) coretest.RoleHarness {
		w := newWorld(t)
		rounds := 6
		if os.Getenv("DRAWBRIDGE_LONG") != "" {
			rounds = 1000
		}
		return coretest.RoleHarness{Store: w.store, LoseNextWrite: w.network.loseNextWrite, Contenders: 64, Rounds: rounds}
	})
}
