package coretest_test

import (
	"testing"

	"drawbridge/core/coretest"
)

func TestTheModelConforms(t *testing.T) {
	coretest.Run(t, func(*testing.T) coretest.Harness {
		m := coretest.NewModel()
		return coretest.Harness{Store: m, LoseNextWrite: m.LoseNextWrite, ResendWrites: m.ResendWrites, Seeds: 10_000}
	})
}
