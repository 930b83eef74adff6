package s3queue

import (
	"testing"

	"drawbridge/core/coretest"
)

func TestTheQueueConformsInAPlainBucket(t *testing.T) {
	coretest.RunArchiveQueue(t, func(t *testing.T) coretest.ArchiveHarness { return newBed(t).harness() })
}

func TestTheQueueConformsInAVersionedBucket(t *testing.T) {
	coretest.RunArchiveQueue(t, func(t *testing.T) coretest.ArchiveHarness {
		h := newBed(t).versioned().harness()
		if !long() {
			h.Steps, h.Jobs = h.Steps/3, h.Jobs/5
		}
		return h
	})
}
