package ddb_test

import (
	"testing"

	"drawbridge/core/coretest"
)

func TestTheStoreConforms(t *testing.T) {
	coretest.Run(t, func(t *testing.T) coretest.Harness { return newWorldUnderTest(t).harness(either(300, 20)) })
}
