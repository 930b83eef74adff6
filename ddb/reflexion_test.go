package ddb_test

import (
	"testing"

	"drawbridge/core/coretest"
)

func (w *world) shared() coretest.SharedHarness {
	return coretest.SharedHarness{Store: w.store, LoseNextWrite: w.network.loseNextWrite}
}

func TestReflexionConforms(t *testing.T) {
	coretest.RunReflexion(t, func(t *testing.T) coretest.SharedHarness { return newWorldUnderTest(t).shared() })
}

func TestPipelinesConform(t *testing.T) {
	coretest.RunPipelines(t, func(t *testing.T) coretest.SharedHarness { return newWorldUnderTest(t).shared() }, seedOf(t))
}

func TestReflexionDoesWhatTheModelDoes(t *testing.T) {
	steps := either(1500, 200)
	if long() {
		steps = 20_000
	}
	coretest.RunReflexionModel(t, newWorldUnderTest(t).shared(), seedOf(t), steps)
}
